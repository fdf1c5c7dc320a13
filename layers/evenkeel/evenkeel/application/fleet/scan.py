"""From a tick of the schedule to looks at the clusters that are due, and from a delayed message to a run.

Nothing is written for this: which clusters are due, and at which second of the minute, follows from the tick's own
time, the cluster's interval and its id. A tick that arrives twice has them looked at twice, which changes nothing.

    tick ──► a rollout that is under way goes on: a message of its own
      ├────► first page of each shard, side by side ──► chunks of clusters onto `looks`, over the minute
      └────► a shard with more pages is scanned on by a message of its own
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from evenkeel.application.errors import EvenkeelError, StateUnavailableError
from evenkeel.application.fleet.ports import DuePage, DueStore, ScanQueue
from evenkeel.application.ports import Clock, Executor
from evenkeel.domain.fleet.check_times import Chunk, chunks_of_minute, is_due
from evenkeel.record import Registration
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.scan")
# What a look costs besides its clusters is shared by so many.
CHUNK = 50
# After an upgrade, and a rollback of it, clusters may be registered that no shard lists.
_STRAYS_SOUGHT_AFTER = timedelta(minutes=15)
# Of the strays, so many are put into the shards by one tick; looked at are all of them.
_LISTED_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The clusters that a look was asked for, and why others could not be."""

    requested: tuple[str, ...]
    broken: tuple[str, ...]  # records that cannot be read, each with the reason

    def answer(self) -> dict[str, Any]:
        """For people who call the function by hand."""
        message = f"{len(self.requested)} clusters are looked at" + "".join(f"; {reason}" for reason in self.broken)
        return {"ok": not self.broken, "message": message, "clusters": list(self.requested)}


@dataclass(kw_only=True)
class _Strays:
    """Clusters that are registered, and in no shard as they are now."""

    by_id: dict[str, Registration | str] = field(default_factory=dict)
    sought_at: datetime | None = None  # None: this instance has not sought any yet


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Asks for a look at each cluster that is due."""

    store: DueStore
    queue: ScanQueue
    clock: Clock
    together: Executor
    _strays: _Strays = field(default_factory=_Strays)

    def tick(self, at: datetime) -> ScanResult:
        """The schedule has fired for the minute of ``at``."""
        pages: dict[str, DuePage] = {}

        def read(shard: str) -> None:
            pages[shard] = self.store.due(shard)

        self.together([partial(read, shard) for shard in self.store.shards])
        for shard, page in pages.items():
            if page.after is not None:
                self.queue.scan_on(shard, page.after, at)
        listed = dict(entry for page in pages.values() for entry in page.registrations)
        complete = all(page.after is None for page in pages.values())
        self._seek_strays(listed, complete=complete)
        self._go_on(at)
        return self._look_at(listed | self._list_strays(), at)

    def _go_on(self, at: datetime) -> None:
        """Have a rollout that is under way go on. Whatever is wrong with it keeps no cluster from being looked at."""
        try:
            rollout, _ = self.store.rollout()
            if rollout is not None and not rollout.phase.is_over:
                self.queue.advance_rollouts(rollout.id, at)
        except (EvenkeelError, ConfigError) as error:
            _log.error("rollout: not gone on with: %s", error)

    def rest_of(self, shard: str, after: str, at: datetime) -> ScanResult:
        """What the tick of that moment has left to do in a shard."""
        listed: dict[str, Registration | str] = {}
        position: str | None = after
        while position is not None:
            page = self.store.due(shard, position)
            listed |= dict(page.registrations)
            position = page.after
        return self._look_at(listed, at)

    def _look_at(self, registered: dict[str, Registration | str], at: datetime) -> ScanResult:
        due, broken = [], {}
        for cluster, record in registered.items():
            if isinstance(record, str):
                broken[cluster] = record
                _log.error("cluster cannot be scanned: %s", record, extra={"cluster": cluster})
            elif is_due(cluster, record.scan_interval, at):
                due.append((cluster, record.scan_interval))
        late = max(0, int((self.clock.now() - at).total_seconds()))
        chunks = chunks_of_minute(due, CHUNK)
        self.queue.request_checks([replace(chunk, delay=max(0, chunk.delay - late)) for chunk in chunks])
        for cluster in broken:  # a run tells of it; one in five minutes, for so long SQS takes these for one
            self.queue.request(cluster, "its record is invalid", f"record-{cluster}")
        return ScanResult(requested=tuple(cluster for cluster, _ in due), broken=tuple(broken.values()))

    def _seek_strays(self, listed: dict[str, Registration | str], *, complete: bool) -> None:
        """Find, now and then, what a release without shards has written: no shard lists it, or not as it is now."""
        strays, now = self._strays, self.clock.now()
        if not complete or (strays.sought_at is not None and now < strays.sought_at + _STRAYS_SOUGHT_AFTER):
            return  # a release without shards never had so many clusters that a page of each does not hold them
        registered = self.store.registrations()
        strays.by_id = {cluster: record for cluster, record in registered if listed.get(cluster) != record}
        strays.sought_at = now

    def _list_strays(self) -> dict[str, Registration | str]:
        """The strays that are known, all of them looked at. Some are listed now: then they are strays no more."""
        found = dict(self._strays.by_id)
        records = [
            record for cluster, record in found.items() if isinstance(record, Registration) and record.id == cluster
        ]
        self.together([partial(self._list, record) for record in records[:_LISTED_AT_ONCE]])
        return found

    def _list(self, record: Registration) -> None:
        try:
            self.store.list_as_due(record)
        except StateUnavailableError as error:  # the next tick tries again
            _log.warning("not listed as due: %s", error, extra={"cluster": record.id})
        else:
            self._strays.by_id.pop(record.id, None)

    def by_hand(self, clusters: Iterable[str]) -> ScanResult:
        """Somebody asks for a run now, due or not; without names, for a look at every registered cluster.

        Unknown names are reported as broken, nothing is sent for them.
        """
        registered = dict(self.store.registrations())
        names, at = list(clusters), self.clock.now()
        requested, broken = [], []
        for cluster in names or registered:
            record = registered.get(cluster, f"cluster {cluster!r} is not registered")
            if isinstance(record, str):
                broken.append(record)
                continue
            requested.append(cluster)
            if names:
                self.queue.request(cluster, "scan by hand", f"hand-{cluster}-{at.timestamp()}")
        if not names:
            starts = range(0, len(requested), CHUNK)
            self.queue.request_checks([Chunk(clusters=tuple(requested[start : start + CHUNK])) for start in starts])
        return ScanResult(requested=tuple(requested), broken=tuple(broken))

    def look_again(self, cluster: str, reason: str, message_id: str) -> None:
        """A run has come due: into the one queue that leads to the cluster."""
        self.queue.request(cluster, reason, f"again-{message_id}")
