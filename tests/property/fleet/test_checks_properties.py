"""The next check of a cluster: one check is due at any time, and a steady cluster has no further ones."""

import heapq
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.domain.fleet.check_times import SECOND_CHECKS, Timer, next_timer
from tests.builders import NOW

SECOND = timedelta(seconds=1)


@dataclass
class Cluster:
    """A cluster's stored timer, and its messages in the queue."""

    now: datetime = NOW
    timer: Timer | None = None
    messages: list[datetime] = field(default_factory=list)
    checks: int = 0

    def check(self, *, wrote: bool = False, doubtful: bool = False, wanted: datetime | None = None) -> None:
        """Check now, for any reason."""
        due = self.timer.due if self.timer is not None and self.timer.due > self.now else None
        self.timer, seconds = next_timer(self.timer, self.now, wrote=wrote, doubtful=doubtful, wanted=wanted)
        self.checks += 1
        assert self.checks < 1500, "checks feed themselves"
        if seconds is None:
            return
        assert 1 <= seconds <= 900, "what a queue can delay"
        at = self.now + timedelta(seconds=seconds)
        assert due is None or at < due, "a check is due already that comes no later"
        heapq.heappush(self.messages, at)

    def carry_on(self, *, doubtful: bool = False, wanted: datetime | None = None) -> None:
        """Handle all messages and those that they request, without further changes."""
        while self.messages:
            self.now = max(self.now, heapq.heappop(self.messages))
            self.check(doubtful=doubtful, wanted=wanted if wanted is not None and wanted > self.now else None)


History = list[tuple[int, bool, bool, int | None]]
checks = st.tuples(
    st.integers(0, 200), st.booleans(), st.booleans(), st.none() | st.integers(-5, 4000)
)  # seconds later: whether it has written, whether an answer was lost, seconds until time changes something


def _lived(history: History) -> Cluster:
    cluster = Cluster()
    for seconds, wrote, doubtful, wanted in history:
        until = cluster.now + seconds * SECOND
        while cluster.messages and cluster.messages[0] <= until:
            cluster.now = heapq.heappop(cluster.messages)
            cluster.check(wrote=wrote, doubtful=doubtful)
        cluster.now = until
        cluster.check(wrote=wrote, doubtful=doubtful, wanted=None if wanted is None else cluster.now + wanted * SECOND)
    return cluster


@given(st.lists(checks, max_size=12), st.booleans())
def test_without_change_checks_end(history: History, doubtful: bool) -> None:
    cluster = _lived(history)
    before, under_way = cluster.checks, len(cluster.messages)
    cluster.carry_on(doubtful=doubtful)
    assert cluster.checks - before <= under_way + len(SECOND_CHECKS)


@example([(0, True, False, None)], 5, True)
@given(st.lists(checks, max_size=12), st.integers(1, 4000), st.booleans())
def test_a_wanted_moment_gets_its_check(history: History, seconds: int, wrote: bool) -> None:
    cluster = _lived(history)
    wanted = cluster.now + seconds * SECOND
    cluster.check(wrote=wrote, wanted=wanted)
    seen = []
    while cluster.messages and cluster.now < wanted:
        cluster.now = max(cluster.now, heapq.heappop(cluster.messages))
        seen.append(cluster.now)
        cluster.check(wanted=wanted if wanted > cluster.now else None)
    assert wanted in seen


@given(st.integers(0, 30), st.integers(10, 300), st.booleans())
def test_lost_answers_cost_a_few_checks_an_hour(first: int, interval: int, by_second_checks: bool) -> None:
    cluster = Cluster(now=NOW + first * SECOND)
    scans = 7200 // interval
    for number in range(scans):
        at = NOW + (number * interval + first) * SECOND
        while cluster.messages and cluster.messages[0] <= at:
            cluster.now = heapq.heappop(cluster.messages)
            cluster.check(doubtful=by_second_checks)
        cluster.now = at
        cluster.check(doubtful=True)
    assert cluster.checks <= scans + 3 * (len(SECOND_CHECKS) + 1)


@pytest.mark.parametrize("between", [0, 5])
def test_second_checks_come_after_15_30_and_60_seconds(between: int) -> None:
    cluster = Cluster()
    cluster.check(wrote=True)
    for _ in range(between):  # checks for other reasons
        cluster.check()
    waited = []
    while cluster.messages:
        waited.append((cluster.messages[0] - cluster.now) / SECOND)
        cluster.now = heapq.heappop(cluster.messages)
        cluster.check()
    assert waited == [15, 30]


def test_a_lost_answer_starts_second_checks_again() -> None:
    cluster = Cluster()
    cluster.check(doubtful=True)  # another reason, which the write ends
    cluster.check(wrote=True)
    cluster.carry_on()
    cluster.now += 600 * SECOND
    cluster.check(doubtful=True)
    assert [(moment - cluster.now) / SECOND for moment in cluster.messages] == [15]


def test_a_write_restarts_the_second_checks() -> None:
    cluster = Cluster()
    cluster.check(wrote=True)
    for _ in range(2):
        cluster.now = heapq.heappop(cluster.messages)
        cluster.check(wrote=True)
    assert (cluster.messages[0] - cluster.now) / SECOND == 15
