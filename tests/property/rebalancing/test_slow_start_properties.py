"""A zone that delivers again: the number of machines that may be upcoming, however nodes join and checks run."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.health.backoff import record_failure
from tests.builders import MINUTE, NOW, after_backoff, group, key, numbers

POLICY = numbers(0, 200)
ZONE = key("a")


class Recovering:
    """Zone a of a pool of at most 200 nodes, after its backoff. Ordered nodes join when the test says so."""

    def __init__(self) -> None:
        self.state = ClusterState(groups={ZONE: after_backoff(running_seen=0)})
        self.now = NOW
        self.running = 0
        self.made: list[datetime] = []

    def room(self, *, waiting: int = 0) -> int:
        """Return how many machines a check allows to be upcoming."""
        self.now += timedelta(seconds=30)
        groups = (self._zone(waiting), group("b", 4), group("c", 4))
        found = plan(Observation(groups=groups), self.state, POLICY, self.now)
        self.state = replace(self.state, groups={**self.state.groups, **found.states})
        planned = found.pools[0].groups[0]
        return planned.bounds.max - self.running

    def _zone(self, waiting: int) -> NodeGroup:
        wanted = self.running + waiting
        self.made += [self.now] * (wanted - len(self.made))
        made = [Machine(name=str(i), has_node=i < self.running, created_at=self.made[i]) for i in range(wanted)]
        return group("a", wanted, running=self.running, machines=tuple(made))


@given(st.lists(st.integers(0, 6), max_size=12))
def test_each_machine_that_arrives_allows_one_more(arrivals: list[int]) -> None:
    zone = Recovering()
    assert zone.room() == 1
    for came in arrivals:
        zone.running += came
        expected = 1 + zone.running
        if expected <= 30:  # less than the zone's share of the rest
            assert zone.room() == expected


@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 3))
def test_a_failure_restarts_slow_start(came: int, before: int, after: int) -> None:
    zone = Recovering()
    zone.room()
    zone.running = came
    zone.room()
    zone.running += before  # between the last check and the failure
    zone.made += [zone.now] * before
    zone.now += MINUTE
    failed = record_failure(zone.state.groups[ZONE], zone.now, FailureClass.CAPACITY, "", BackoffPolicy(), now=zone.now)
    zone.state = replace(zone.state, groups={ZONE: failed})
    assert zone.room() == 0
    zone.now = failed.failure.backoff_until + MINUTE
    assert zone.room() == 1
    zone.running += 1 + after
    assert zone.room() == 2 + after


@given(st.integers(1, 6), st.integers(0, 8))
def test_no_more_machines_are_launched_than_have_arrived(came: int, waiting: int) -> None:
    zone = Recovering()
    zone.room()
    zone.running = came
    assert zone.room(waiting=waiting) == max(waiting, came + 1)


@given(st.integers(1, 4))
def test_slow_start_ends_with_the_failure(came: int) -> None:
    zone = Recovering()
    zone.room()
    zone.running = came
    assert zone.room() == came + 1
    zone.now += BackoffPolicy().forget_after
    assert zone.room() > 40
    assert zone.state.groups[ZONE].arrivals.slow_start == 0
