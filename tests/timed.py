"""Queues over simulated time: what SQS does with the requests for looks, without SQS and without waiting."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.application.ports import Clock

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

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        self.sent[reason] += 1
        self._delayed_ever += 1
        due = self.clock.now() + timedelta(seconds=seconds)
        heapq.heappush(self._delayed, (due, self._delayed_ever, cluster, reason))

    @property
    def waiting(self) -> int:
        """Requests that no worker has taken yet."""
        return sum(len(reasons) for reasons in self._waiting.values())

    def next_looks(self) -> Iterator[tuple[str, str]]:
        """The first request of every cluster that has one: what as many workers take next."""
        while self._delayed and self._delayed[0][0] <= self.clock.now():
            _, number, cluster, reason = heapq.heappop(self._delayed)
            self.request(cluster, reason, f"again-{number}")
        for cluster, reasons in self._waiting.items():
            if reasons:
                yield cluster, reasons.popleft()
