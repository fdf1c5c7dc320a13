"""Scan: at each tick of the schedule, request checks of the clusters that are due.

A scan stores nothing. The tick's time, the cluster's interval, rest and id determine if it is due, and at which second
of the minute. A tick that arrives twice requests the same checks twice, which is harmless.

Every five minutes, a scan also requests a run for each cluster whose checks have stopped.

    tick ──► shards, in parallel ──► chunks of clusters for `checks`, spread over the minute
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from evenkeel.application.errors import StateUnavailableError
from evenkeel.application.fleet.ports import DueStore, Shard
from evenkeel.application.ports import CheckResult, Clock, Executor, Queue
from evenkeel.domain.fleet.check_times import CHUNK, check_interval, chunks_of, chunks_of_minute, is_due
from evenkeel.domain.model.holds import held_until
from evenkeel.record import Registration

_log = logging.getLogger("evenkeel.scan")
_MINUTES_BETWEEN_REPORTS = 5


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The clusters whose check was requested, and the faults that prevented other checks."""

    requested: tuple[str, ...]
    broken: tuple[str, ...]  # the fault of each invalid record

    def answer(self) -> dict[str, Any]:
        """Return the answer for an operator who invokes the function."""
        message = f"checks of {len(self.requested)} clusters are requested" + "".join(
            f"; {reason}" for reason in self.broken
        )
        return {"ok": not self.broken, "message": message, "clusters": list(self.requested)}


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The use case. It requests a check of each cluster that is due."""

    store: DueStore
    queue: Queue
    clock: Clock
    together: Executor

    def tick(self, at: datetime) -> ScanResult:
        """Request the checks of the minute that starts at ``at``."""
        shards: list[Shard] = []

        def read(shard: str) -> None:
            shards.append(self.store.due(shard))

        self.together([partial(read, shard) for shard in self.store.shards])
        registered = dict(entry for shard in shards for entry in shard.registrations)
        if at.minute == 0:  # finds clusters that a former release has stored in other shards
            registered = {**dict(self.store.registrations()), **registered}
        resting = {cluster: until for shard in shards for cluster, until in shard.resting.items()}
        if at.minute % _MINUTES_BETWEEN_REPORTS == 0:
            self._report_stopped(registered, at)
        return self._check(registered, resting, at)

    def _report_stopped(self, registered: Mapping[str, Registration | str], at: datetime) -> None:
        """Request runs that open an incident for each cluster that no check has read for too long.

        Checks cannot detect that themselves, and `status` shows it only to those who look.
        """
        try:
            times = self.store.checked_at()
        except StateUnavailableError as error:
            _log.warning("times of the last checks not read: %s", error)
            return
        for cluster, record in registered.items():
            if isinstance(record, str) or record.control().is_paused(at):
                continue
            if times.stopped_since(cluster, record.scan_interval, at) is not None:
                self.queue.request(cluster, "not checked", f"stopped-{cluster}-{at.timestamp()}", CheckResult.STOPPED)

    def _check(
        self, registered: dict[str, Registration | str], resting: Mapping[str, datetime], at: datetime
    ) -> ScanResult:
        due, others, broken = [], [], {}
        for cluster, record in registered.items():
            if isinstance(record, str):
                broken[cluster] = record
                _log.error("cluster cannot be scanned: %s", record, extra={"cluster": cluster})
                continue
            rests = held_until(resting.get(cluster), at) is not None
            interval = check_interval(record.scan_interval, resting=rests)
            if is_due(cluster, interval, at):
                due.append((cluster, interval))
            elif rests:
                others.append(cluster)
        late = max(0, int((self.clock.now() - at).total_seconds()))
        chunks = chunks_of_minute(due, CHUNK, others)
        self.queue.request_checks([replace(chunk, delay=max(0, chunk.delay - late)) for chunk in chunks])
        # A run opens an incident for the invalid record. SQS drops repeated messages for five minutes.
        for cluster in broken:
            self.queue.request(cluster, "its record is invalid", f"record-{cluster}")
        return ScanResult(requested=tuple(cluster for cluster, _ in due), broken=tuple(broken.values()))

    def by_hand(self, clusters: Iterable[str]) -> ScanResult:
        """Request a run for each named cluster; without names, a check of every registered cluster.

        An unknown name is reported in ``broken``.
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
            self.queue.request_checks(chunks_of(requested))
        return ScanResult(requested=tuple(requested), broken=tuple(broken))
