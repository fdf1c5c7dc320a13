"""The ports of scans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.ports import Queue
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import Registration


@dataclass(frozen=True, kw_only=True)
class DuePage:
    """One page of a shard's clusters, by id. A record that cannot be read is replaced by its fault, a string."""

    registrations: Sequence[tuple[str, Registration | str]]
    resting: Mapping[str, datetime]  # the resting clusters of the page, by id, with the ends of their rests
    after: str | None = None  # the id after which the next page starts; None: this is the last page


class DueStore(Protocol):
    """The index of clusters, in shards that are read in parallel. All methods raise StateUnavailableError."""

    shards: Sequence[str]

    def due(self, shard: str, after: str | None = None) -> DuePage:
        """Return the page of a shard that starts after the id ``after``; None: the first page."""

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Return all registrations by cluster id."""

    def rollout(self) -> tuple[Rollout | None, int | None]:
        """Return the last rollout and its version. Raises ConfigError if the rollout has a bad value."""


class ScanQueue(Queue, Protocol):
    """The queues of the function ``scan``, whose work may need more than one invocation."""

    def scan_on(self, shard: str, after: str, at: datetime) -> None:
        """Request a scan of the clusters whose ids follow ``after`` in a shard, for the tick at time ``at``."""

    def advance_rollouts(self, rollout: str, at: datetime) -> None:
        """Request the next step of a rollout, for the tick at time ``at``."""
