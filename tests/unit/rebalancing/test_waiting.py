"""Machines that wait for their node: when they fail, and when they do not count for their zone."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from tests.builders import MINUTE, NOW, group, in_backoff, key, machines, numbers, remembered, stated
from tests.parts import make, replace

A, B, C = "a", "b", "c"
WELL, FENCED = State.HEALTHY, State.FENCED
HOUR = 60 * MINUTE


class Watched:
    """A pool that is checked at some times. Plans are not written."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or numbers(0, 30)
        self.state = ClusterState()

    def check(self, groups: Sequence[NodeGroup], at: datetime) -> Plan:
        found = plan(Observation(groups=tuple(groups)), self.state, self.policy, at)
        self.state = remembered(self.state, found)
        return found

    def states(self, groups: Sequence[NodeGroup], minute: float = 0) -> dict[str | None, State]:
        (pool,) = self.check(groups, NOW + minute * MINUTE).pools
        return {planned.group.identity.zone: planned.state for planned in pool.groups}

    def of_a(self, groups: Sequence[NodeGroup], *minutes: float) -> list[State]:
        """Return the state of zone a in checks at these minutes."""
        return [self.states(groups, minute)[A] for minute in minutes]


def waiting(zone: str, *ages: timedelta, running: int = 2, **fields: Any) -> NodeGroup:
    """Return a group with machines of these ages, at NOW, that have no node."""
    return machines(group(zone, running + len(ages), running=running, bounds=(0, 10), **fields), *ages)


def well(zone: str) -> NodeGroup:
    return machines(group(zone, 2, bounds=(0, 10)))


class TestFirstSight:
    def test_a_first_plan_in_an_outage_fences_the_zone_and_releases_its_machines(self) -> None:
        outage = waiting(A, *[40 * MINUTE] * 3)
        (pool,) = Watched().check([outage, well(B), well(C)], NOW).pools
        first = pool.groups[0]
        assert (first.state, first.group.requested, first.requested) == (State.FENCED, 5, 2)
        assert Rule.ZONES_DIFFER not in [note.rule for note in pool.report.notes]

    def test_the_failure_is_dated_now_so_that_the_fence_stands(self) -> None:
        watched = Watched()
        watched.check([waiting(A, 5 * HOUR), well(B)], NOW)
        failure = watched.state.groups[key(A)].failure
        assert (failure.failure_class, failure.last_failure) == (FailureClass.TIMEOUT, NOW)
        assert failure.message == "no node within 15 min for 1 of its replicas"

    def test_the_rest_of_the_timeout_counts_for_a_younger_machine(self) -> None:
        watched = Watched()
        assert watched.of_a([waiting(A, 10 * MINUTE), well(B)], 0, 4.9, 5) == [WELL, WELL, FENCED]

    def test_the_oldest_machine_counts(self) -> None:
        assert Watched().states([waiting(A, MINUTE, 16 * MINUTE, 2 * MINUTE), well(B)])[A] is State.FENCED

    @pytest.mark.parametrize(
        "ignored",
        [
            *(
                {"deleting": True},
                {"preserved": True},
                {"has_node": True},
                {"had_node": True},
                {"failed_for_good": True},
            ),
            {"awaited_since": NOW - 3 * MINUTE},
        ],
    )
    def test_a_machine_that_is_awaited_no_more_or_anew_does_not_count(self, ignored: dict[str, Any]) -> None:
        (*others, old) = waiting(A, 3 * MINUTE, 40 * MINUTE).machines or ()
        found = replace(waiting(A, 3 * MINUTE, 40 * MINUTE), machines=(*others, replace(old, **ignored)))
        assert Watched().states([found, well(B)])[A] is State.HEALTHY

    def test_replicas_without_a_machine_wait_since_the_first_check(self) -> None:
        watched, unmade = Watched(), machines(group(A, 4, running=2, bounds=(0, 10)))
        assert watched.of_a([unmade, well(B)], 0, 14, 15) == [WELL, WELL, FENCED]

    @pytest.mark.parametrize("created", [NOW + 365 * 24 * HOUR, NOW + MINUTE, datetime(1970, 1, 1, tzinfo=NOW.tzinfo)])
    def test_a_creation_time_that_cannot_be_counts_as_now(self, created: datetime) -> None:
        watched = Watched()
        (*others, new) = waiting(A, MINUTE).machines or ()
        found = replace(waiting(A, MINUTE), machines=(*others, replace(new, created_at=created)))
        assert watched.of_a([found, well(B)], 0, 14, 15) == [WELL, WELL, FENCED]


class TestUnseen:
    """Clocks that ended while nothing was checked."""

    @pytest.mark.parametrize(
        "other",
        [
            waiting(B, 40 * MINUTE),
            replace(well(B), frozen_because=stated("the object is paused")),
            replace(well(B), launches_stopped=stated("launches are suspended")),
        ],
    )
    def test_without_a_healthy_group_all_clocks_begin_anew(self, other: NodeGroup) -> None:
        watched, old = Watched(), waiting(A, 40 * MINUTE)
        assert watched.of_a([old, other], 0, 14, 15) == [WELL, WELL, FENCED]  # checks have seen this clock

    def test_a_group_that_failed_before_or_in_this_check_is_not_healthy(self) -> None:
        watched, old = Watched(), waiting(A, 40 * MINUTE)
        watched.state = ClusterState(groups={key(B): in_backoff()})
        assert watched.states([old, well(B)])[A] is State.HEALTHY
        watched = Watched()
        watched.state = ClusterState(zones={B: NOW + HOUR})
        assert watched.states([old, well(B)])[A] is State.HEALTHY

    def test_a_group_with_too_many_broken_nodes_is_not_healthy(self) -> None:
        watched, old = Watched(replace(numbers(0, 30), demand=DemandStage.ADVISE)), waiting(A, 40 * MINUTE)
        watched.state = ClusterState(groups={key(B): make(GroupState, unhealthy_since=NOW - MINUTE)})
        assert watched.states([old, well(B)]) == {A: State.HEALTHY, B: State.UNHEALTHY}

    def test_a_controller_that_was_away_for_an_hour_closes_no_pool(self) -> None:
        watched = Watched()
        began = [waiting(zone, MINUTE) for zone in (A, B, C)]
        assert set(watched.states(began).values()) == {State.HEALTHY}
        assert set(watched.states(began, 61).values()) == {State.HEALTHY}
        assert set(watched.states(began, 75).values()) == {State.HEALTHY}
        assert set(watched.states(began, 76).values()) == {State.FENCED}

    def test_after_an_hour_a_zone_fails_next_to_a_healthy_one(self) -> None:
        watched = Watched()
        began = [waiting(A, MINUTE), waiting(B, MINUTE)]
        watched.states(began)
        assert watched.states([began[0], well(B)], 61) == {A: State.FENCED, B: State.HEALTHY}

    def test_an_outage_of_all_zones_that_checks_have_seen_fences_all(self) -> None:
        watched = Watched()
        began = [waiting(zone, MINUTE) for zone in (A, B, C)]
        for minute in range(0, 14, 2):
            assert set(watched.states(began, minute).values()) == {State.HEALTHY}
        assert set(watched.states(began, 14).values()) == {State.FENCED}

    def test_checks_an_hour_apart_need_not_be_a_pause_for_a_longer_timeout(self) -> None:
        policy = numbers(0, 30)
        watched = Watched(replace(policy, settings=replace(policy.settings, provision_timeout=2 * HOUR)))
        began = [waiting(zone, MINUTE) for zone in (A, B)]
        for minute in (0, 60, 118):
            assert set(watched.states(began, minute).values()) == {State.HEALTHY}
        assert set(watched.states(began, 119).values()) == {State.FENCED}

    @given(
        ages=st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=3), min_size=1, max_size=4),
        pause=st.integers(60, 300),
        seen=st.booleans(),
    )
    def test_no_pool_is_closed_after_a_pause_and_every_pool_recovers(
        self, ages: list[list[int]], pause: int, seen: bool
    ) -> None:
        """All zones' machines are old, because Evenkeel did not run, or because etcd was restored."""
        watched = Watched()
        old = [waiting(f"z{i}", *[age * MINUTE for age in found]) for i, found in enumerate(ages)]
        if seen:
            young = [waiting(found.identity.zone or "", 0 * MINUTE) for found in old]
            assert set(watched.states(young, -pause).values()) == {State.HEALTHY}
        states = watched.states(old).values()
        assert State.HEALTHY in states
        # The machines join, and the pool is healthy at the latest when its backoffs are over.
        joined = [machines(group(found.identity.zone or "", found.requested, bounds=(0, 10))) for found in old]
        watched.states(joined, 1)
        assert set(watched.states(joined, 40).values()) <= {State.HEALTHY, State.PROBING}
        new = [
            replace(found, machines=tuple(replace(one, created_at=NOW + 30 * MINUTE) for one in found.machines or ()))
            for found in joined
        ]
        assert set(
            watched.states(
                [replace(found, requested=found.requested + 1, running=found.running + 1) for found in new], 41
            ).values()
        ) == {State.HEALTHY}


class TestStopped:
    """A frozen group's clock stops, and begins again when the group may be written again."""

    @pytest.mark.parametrize(
        "stops", [{"frozen_because": stated("the object is paused")}, {"launches_stopped": stated("suspended")}]
    )
    def test_a_pause_does_not_count(self, stops: dict[str, Any]) -> None:
        watched, found = Watched(), waiting(A, MINUTE)
        assert watched.states([found, well(B)])[A] is State.HEALTHY
        watched.states([replace(found, **stops), well(B)], 5)
        watched.states([replace(found, **stops), well(B)], 90)
        assert watched.of_a([found, well(B)], 100, 114, 115) == [WELL, WELL, FENCED]

    def test_a_group_whose_nodes_came_in_the_pause_waits_anew_from_its_next_machine(self) -> None:
        watched, paused = Watched(), stated("the object is paused")
        watched.states([waiting(A, MINUTE), well(B)])
        watched.states([replace(waiting(A, MINUTE), frozen_because=paused), well(B)], 5)
        watched.states([well(A), well(B)], 10)
        found = replace(waiting(A), requested=3, machines=(*(waiting(A).machines or ()), machine(NOW + 10 * MINUTE)))
        assert watched.of_a([found, well(B)], 24, 25) == [WELL, FENCED]


def machine(created_at: datetime) -> Machine:
    return Machine(name="late", has_node=False, created_at=created_at)


class TestRollout:
    """A rollout is stalled if machines wait too long, whether or not their status has a known failure."""

    @pytest.mark.parametrize(("minutes", "is_stalled"), [(14, False), (15, True)])
    def test_a_silent_machine_stalls_it_at_the_provision_timeout(self, minutes: int, is_stalled: bool) -> None:
        watched = Watched()
        rolling = replace(waiting(A, minutes * MINUTE), frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
        assert watched.states([rolling, well(B)])[A] is State.FROZEN
        state = watched.state.groups.get(key(A))
        assert (state is not None and state.arrivals.stalled_since == NOW) is is_stalled
        if state is not None:
            assert state.failure.failure_class is FailureClass.TIMEOUT
            assert state.failure.message == "no node within 15 min for 1 of its replicas"
            assert state.failure.last_failure is None
