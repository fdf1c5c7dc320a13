"""The ports of the fleet's scan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.ports import Queue
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import Registration


@dataclass(frozen=True, kw_only=True)
class DuePage:
    """One page of the clusters of a shard, by id. If a record cannot be read, its fault, a string, replaces it."""

    registrations: Sequence[tuple[str, Registration | str]]
    after: str | None = None  # where the next page begins; None: this is the last page


class DueStore(Protocol):
    """The sharded index of clusters; shards are read in parallel. All methods raise StateUnavailableError."""

    shards: Sequence[str]

    def due(self, shard: str, after: str | None = None) -> DuePage:
        """Read one page of a shard."""

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Read all registrations by cluster id."""

    def rollout(self) -> tuple[Rollout | None, int | None]:
        """Read the last rollout and its version. Raises ConfigError if it cannot be read."""


class ScanQueue(Queue, Protocol):
    """The queues of ``scan``, which may have more work than one invocation can do."""

    def scan_on(self, shard: str, after: str, at: datetime) -> None:
        """Request a scan of a shard's clusters after the id ``after``, for the tick at this time."""

    def advance_rollouts(self, rollout: str, at: datetime) -> None:
        """Request the next step of a rollout, for the tick at this time."""
