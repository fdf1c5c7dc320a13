"""The ports of rollouts and readiness."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evenkeel.application.incidents.ports import FleetHealthStore
from evenkeel.application.ports import RegistrationStore, StoredCluster, Versions
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import ControlRecord


class DecisionStore(Protocol):
    """The stored decisions. All methods raise StateUnavailableError."""

    def load_with_decisions(self, cluster: str, ulid: str) -> tuple[StoredCluster, Sequence[Mapping[str, Any]] | None]:
        """Return a cluster as ``load`` does, and its decisions after ``ulid``, the oldest first; None: too many."""

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return a page of decisions after ``ulid``, the oldest first, and True if there are more pages."""

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return up to ``limit`` decisions, the newest first."""


class RolloutStore(RegistrationStore, FleetHealthStore, DecisionStore, Protocol):
    """The methods of the DynamoDB table that rollouts need."""

    def rollout(self) -> tuple[Rollout | None, int | None]:
        """Return the last rollout and its version. Raises ConfigError if the rollout has a bad value."""

    def save_rollout(self, rollout: Rollout, version: int | None) -> int:
        """Replace the last rollout, and return the new version. Raises StateConflictError."""

    def save_control(self, cluster: str, control: ControlRecord, versions: Versions) -> None:
        """Store the control record of a cluster whose cluster record cannot be read. Raises StateConflictError."""
