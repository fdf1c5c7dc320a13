"""A stack over simulated time: what SQS and Lambda do with requests for checks, without either and without waiting."""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.ports import Clock, Queue
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.domain.fleet.check_times import Chunk
from tests.fakes import FakeBus, InMemoryStore, plenty

_DEDUPLICATED = timedelta(minutes=5)


@dataclass
class TimedQueue:
    """Both queues. Requests with one deduplication id within five minutes are one; of a cluster, the first goes first.

    ``sent`` counts messages by reason, also those that are one with another: each is paid for.
    """

    clock: Clock
    sent: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque[str]] = field(default_factory=dict)
    _seen: dict[str, datetime] = field(default_factory=dict)
    _delayed: list[tuple[datetime, int, str, str]] = field(default_factory=list)
    _delayed_ever: int = 0

    def request(self, cluster: str, reason: str, deduplication: str) -> None:
        self.sent[reason] += 1
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
        """The first request of every cluster that has one: what as many workers take next."""
        while self._delayed and self._delayed[0][0] <= self.clock.now():
            _, number, cluster, reason = heapq.heappop(self._delayed)
            self.request(cluster, reason, f"again-{number}")
        for cluster, reasons in self._waiting.items():
            if reasons:
                yield cluster, reasons.popleft()


def worker(store: ActionStore, clusters: Clusters, clock: Clock, queue: Queue, **more: Any) -> Rebalance:
    """The worker's use case over these ports, with chance from a seed; ``more`` replaces its other arguments."""
    given = {"bus": FakeBus(), "random_bytes": random.Random(7).randbytes, "dry_run": False, **more}
    return Rebalance(store=store, clusters=clusters, clock=clock, queue=queue, **given)


class TimedStack:
    """Table and queues, the function that receives failures, and one check per cluster and second."""

    def __init__(self, clusters: Clusters, clock: Clock, store: InMemoryStore) -> None:
        self.store = store
        self.queue = TimedQueue(clock)
        self.receive = RecordFailure(store=store, queue=self.queue, clock=clock)
        self._rebalance = worker(store, clusters, clock, self.queue)

    def scan(self, second: int, clusters: Iterable[str] = ("demo",)) -> None:
        if second % 60 == 0:
            for name in clusters:
                self.queue.request(name, "scan", f"scan-{name}-{second}")

    def check(self, before: Callable[[str], None]) -> None:
        """The checks that are due in this second; ``before`` each of them, its cluster is named."""
        for cluster, why in self.queue.next_checks():
            before(cluster)
            self._rebalance(cluster, why, plenty)
