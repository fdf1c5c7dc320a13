"""The ports of readiness."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class DecisionStore(Protocol):
    """The stored decisions. All methods raise StateUnavailableError."""

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return a page of decisions after ``ulid``, the oldest first, and True if there are more pages."""

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return up to ``limit`` decisions, the newest first."""
