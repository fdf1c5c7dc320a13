"""A stack in simulated time, with models of SQS and Lambda, and a timetable of other events."""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.ports import CheckResult, Clock, Queue
from evenkeel.application.rebalancing.events import Failure
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.domain.fleet.check_times import Chunk, SteadyState
from tests.fakes import FakeBus, InMemoryStore, plenty

_DEDUPLICATED = timedelta(minutes=5)
#: time from a refused launch to the function that receives its event: exporter, EventBridge and Lambda
_TRAVEL = timedelta(seconds=2)


class Who(StrEnum):
    """Who manages a pool."""

    EVENTS = "with events"
    SCANS = "scans of 60 s only"
    NOBODY = "no Evenkeel"


class Timetable:
    """Acts by time in the caller's unit, once or periodically."""

    def __init__(self) -> None:
        self._once: list[tuple[int, Callable[[], object]]] = []
        self._again: list[tuple[int, int, Callable[[], object]]] = []

    def at(self, time: int, act: Callable[[], object]) -> None:
        self._once.append((time, act))

    def every(self, period: int, act: Callable[[], object], first: int = 0) -> None:
        """Repeat an act at ``first`` of each period. A caller that skips times must not skip these."""
        self._again.append((period, first, act))

    def happen(self, time: int) -> None:
        """Call the acts that are due, non-periodic ones first."""
        due = [act for when, act in self._once if when <= time]
        self._once = [(when, act) for when, act in self._once if when > time]
        due += [act for period, first, act in self._again if time % period == first]
        for act in due:
            act()


@dataclass
class TimedQueue:
    """Both queues, FIFO per cluster. A request whose deduplication id was seen within five minutes is dropped.

    Duplicates also cost, so ``sent`` counts all messages by reason; ``found`` is the check's result in the last request
    by cluster and reason.
    """

    clock: Clock
    sent: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str], tuple[CheckResult | None, SteadyState | None]] = field(default_factory=dict)
    _waiting: dict[str, deque[str]] = field(default_factory=dict)
    _seen: dict[str, datetime] = field(default_factory=dict)
    _delayed: list[tuple[datetime, int, str, str]] = field(default_factory=list)
    _delayed_ever: int = 0

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        self.sent[reason] += 1
        self.found[cluster, reason] = found, steady
        now = self.clock.now()
        seen = self._seen.get(deduplication)
        if seen is None or now >= seen + _DEDUPLICATED:
            self._seen[deduplication] = now
            self._waiting.setdefault(cluster, deque()).append(reason)

    def request_checks(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            for cluster in chunk.clusters:
                self.check_again(cluster, "alone", chunk.delay)

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        self.sent[reason] += 1
        self._delayed_ever += 1
        due = self.clock.now() + timedelta(seconds=seconds)
        heapq.heappush(self._delayed, (due, self._delayed_ever, cluster, reason))

    @property
    def waiting(self) -> int:
        return sum(len(reasons) for reasons in self._waiting.values())

    def next_checks(self) -> Iterator[tuple[str, str]]:
        """Take and yield the first request of each cluster, as so many workers would."""
        while self._delayed and self._delayed[0][0] <= self.clock.now():
            _, number, cluster, reason = heapq.heappop(self._delayed)
            self.request(cluster, reason, f"again-{number}")
        for cluster, reasons in self._waiting.items():
            if reasons:
                yield cluster, reasons.popleft()


def worker(store: ActionStore, clusters: Clusters, clock: Clock, queue: Queue, **more: Any) -> Rebalance:
    """Return the worker's use case with these ports and a fixed seed. ``more`` replaces its other arguments."""
    given = {"bus": FakeBus(), "random_bytes": random.Random(7).randbytes, "dry_run": False, **more}
    return Rebalance(store=store, clusters=clusters, clock=clock, queue=queue, **given)


class TimedWorld:
    """Clusters and Evenkeel's functions, second by second.

    It has a timetable, scans, failure events, and one check of a cluster at a time. ``checks`` are the second and the
    cluster of each check.
    """

    def __init__(
        self,
        clusters: Clusters,
        clock: Any,
        store: InMemoryStore,
        *,
        who: Who = Who.EVENTS,
        names: Iterable[str] = ("demo",),
    ) -> None:
        self.clock, self.store, self.names = clock, store, names
        self.second, self.timetable = 0, Timetable()
        self.queue = TimedQueue(clock)
        self.receive = RecordFailure(store=store, queue=self.queue, clock=clock)
        self.rebalance = worker(store, clusters, clock, self.queue)
        self.checks: list[tuple[int, str]] = []
        self._who = who
        self._reported: deque[tuple[datetime, Failure]] = deque()

    def pass_time(self, time: timedelta) -> None:
        self.clock.at += time

    def without_evenkeel(self, seconds: int = 1) -> None:
        """Let time pass without Evenkeel's functions."""
        self.second += seconds
        self.pass_time(timedelta(seconds=seconds))
        self.timetable.happen(self.second)

    def step(self, seconds: int = 1) -> None:
        """Let time pass, and carry out the scan, the events and the checks that are due then."""
        self.without_evenkeel(seconds)
        if self._who is Who.NOBODY:
            return
        if self.second % 60 == 0:
            self.scan()
        while self._reported and self._reported[0][0] <= self.clock.now():
            _, failure = self._reported.popleft()
            if self._who is Who.EVENTS:
                self.receive(failure)
        for cluster, why in self.queue.next_checks():
            self.checks.append((self.second, cluster))
            self.check(cluster, why)

    def report(self, failure: Failure) -> None:
        """Let an event about a failure arrive after ``_TRAVEL``."""
        self._reported.append((self.clock.now() + _TRAVEL, failure))

    def scan(self) -> None:
        for name in self.names:
            self.queue.request(name, "scan", f"scan-{name}-{self.second}")

    def check(self, cluster: str, why: str) -> None:
        self.rebalance(cluster, why, plenty, *self.queue.found[cluster, why])
