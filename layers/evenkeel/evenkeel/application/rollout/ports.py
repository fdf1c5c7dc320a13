"""The ports of readiness."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evenkeel.application.incidents.ports import FleetHealthStore
from evenkeel.application.ports import RegistrationStore


class DecisionStore(Protocol):
    """The stored decisions. All methods raise StateUnavailableError."""

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return a page of decisions after ``ulid``, the oldest first, and True if there are more pages."""

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return up to ``limit`` decisions, the newest first."""


class RolloutStore(RegistrationStore, FleetHealthStore, DecisionStore, Protocol):
    """The methods of the DynamoDB table that readiness needs."""
