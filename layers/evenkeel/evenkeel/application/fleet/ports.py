"""The ports of scans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.ports import CheckTimesStore
from evenkeel.record import Registration


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The clusters of a shard, by id. A record that cannot be read is replaced by its fault, a string."""

    registrations: Sequence[tuple[str, Registration | str]]
    resting: Mapping[str, datetime]  # the resting clusters, by id, with the ends of their rests


class DueStore(CheckTimesStore, Protocol):
    """The index of clusters, in shards that are read in parallel. All methods raise StateUnavailableError."""

    shards: Sequence[str]

    def due(self, shard: str) -> Shard:
        """Return a shard."""

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Return all registrations by cluster id."""
