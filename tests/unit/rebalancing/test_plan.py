"""A plan as a whole: its reasons, its digest, and groups that it leaves unchanged."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.observations import Observation, Skipped
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import LAX_GREEDY
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.texts.english import sentences
from tests.builders import (
    MINUTE,
    NOW,
    Played,
    group,
    in_backoff,
    key,
    maxima,
    numbers,
    offered,
    owned,
    plan_of,
    pool_plan,
    reasons,
    requested,
    stated,
    zones,
)
from tests.parts import make, replace

SECOND = timedelta(seconds=1)


def test_a_plan_without_groups_keeps_what_the_check_skipped() -> None:
    gone = Skipped(namespace="default", name="x", reason=Reason.of(Rule.SAID, text="not ours"))
    observation = Observation(groups=(), skipped=(gone,))
    found = plan(observation, ClusterState(), make(Policy, strategy=BALANCED), NOW)
    assert (found.pools, found.skipped, found.changes, dict(found.states)) == ((), (gone,), (), {})


def test_a_settled_pool_has_no_change_and_no_digest() -> None:
    found = pool_plan([group(zone, 4, bounds=(0, 4), published=offered(4)) for zone in "abc"], numbers(0, 12))
    assert not found.changes
    assert all("no change needed" in reasons(found, zone) for zone in "abc")
    assert found.digest(applied=False) == ""
    assert pool_plan(zones((5, 2, 3)), numbers(0, 12)).imbalance == 3


def test_groups_of_an_invalid_pool_are_unchanged() -> None:
    found = pool_plan(zones((1, 1)), numbers(5, 4))
    assert all("no change: the pool is invalid" in reasons(found, zone) for zone in "ab")
    assert all(planned.bounds == planned.group.bounds for planned in found.groups)


def test_an_applied_change_has_no_digest() -> None:
    found = pool_plan(zones((1, 1, 1)), numbers(0, 12))
    assert found.digest(applied=False) != ""
    assert found.digest(applied=True) == ""


@pytest.mark.parametrize("incident", ["invalid", "over-committed", "starved"])
def test_an_incident_keeps_its_digest(incident) -> None:
    found = {
        "invalid": lambda: pool_plan(zones((1, 1)), numbers(5, 4)),
        "over-committed": lambda: pool_plan(zones((7, 7)), numbers(0, 12)),
        "starved": lambda: pool_plan(zones((3, 3), running=(1, 3)), numbers(0, 12), fenced=("a", "b")),
    }
    first, second = found[incident](), found[incident]()
    assert first.digest(applied=True) == second.digest(applied=True) != ""
    others = {found[other]().digest(applied=True) for other in found if other != incident}
    assert first.digest(applied=True) not in others


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_zone_alone_may_have_the_whole_pool_and_an_empty_pool_nothing(strategy) -> None:
    bounds = pool_plan([group("a", 2)], numbers(1, 5, strategy)).groups[0].bounds
    assert (bounds.min, bounds.max) == (0 if strategy is LAX_GREEDY else 1, 5)
    assert maxima(pool_plan(zones((0, 0), bounds=[(0, 1)] * 2), numbers(0, 0, strategy))) == (0, 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numbers_as_large_as_they_come_are_planned(strategy) -> None:
    most = 2**31 - 1
    found = pool_plan(zones((0, 0, 0)), numbers(most, most, strategy))
    assert sum(planned.requested for planned in found.groups) == most


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ({"fenced": "a"}, in_backoff().failure.backoff_until),
        ({"fenced": "a", "impaired": "a"}, NOW + 30 * MINUTE),
        ({}, None),
    ],
)
def test_a_check_is_due_a_second_after_the_last_fence_ends(state: Any, end: datetime | None) -> None:
    found = plan_of(zones((1, 1, 1), bounds=[(0, 4)] * 3), numbers(0, 12), **state)
    assert found.check_at == (end and end + SECOND)
    if state == {"fenced": "a"}:
        assert "fenced until 2026-01-15T12:04:00Z: capacity failure no. 1" in reasons(found.pools[0], "a")


class TestNoZoneIsHealthy:
    """After a failure of all zones: each zone with a success since is probed, once for each success."""

    @pytest.mark.parametrize(
        ("arrived", "failed", "running", "others", "states"),
        [
            (-MINUTE / 2, -MINUTE, 3, {"fenced": "b"}, (State.PROBING, State.FENCED)),
            (-MINUTE / 2, -MINUTE, 2, {"fenced": "b"}, (State.FENCED, State.FENCED)),
            (None, -MINUTE, 3, {"fenced": "b"}, (State.FENCED, State.FENCED)),
            (-MINUTE / 2, -MINUTE / 3, 3, {"fenced": "b"}, (State.FENCED, State.FENCED)),
            (-MINUTE / 4, -MINUTE / 3, 3, {"fenced": "b"}, (State.PROBING, State.FENCED)),
            (0 * MINUTE, -MINUTE, 3, {}, (State.FENCED, State.HEALTHY)),
            (0 * MINUTE, -MINUTE, 3, {"fenced": "b", "impaired": "a"}, (State.FENCED, State.FENCED)),
        ],
        ids=[
            *("a node came", "it still waits for a node", "no node came", "the trial failed", "the next node came"),
            *("another zone is healthy", "the zone is impaired"),
        ],
    )
    def test_a_zone_with_a_new_node_since_its_failure_is_probed(
        self, arrived: timedelta | None, failed: timedelta, running: int, others: Any, states: tuple[State, ...]
    ) -> None:
        known = replace(in_backoff(), last_failure=NOW + failed, arrived_at=None if arrived is None else NOW + arrived)
        members = [group("a", 3, running=running), group("b", 3)]
        found = pool_plan(members, numbers(0, 12), states={key("a"): known}, **others)
        assert tuple(planned.state for planned in found.groups) == states


@pytest.mark.parametrize(
    ("added_at", "added", "adds"),
    [(NOW - 5 * SECOND, 5, 0), (NOW - 5 * SECOND, 3, 2), (NOW - 15 * SECOND, 5, 5), (NOW + 5 * MINUTE, 5, 5)],
)
def test_nodes_of_the_last_seconds_count_for_max_step(added_at: datetime, added: int, adds: int) -> None:
    """A clock that was set back leaves a time in the future."""
    groups, policy = zones((0, 0, 0), max_step=5), numbers(20, 60)
    state = PoolState(added_at=added_at, added=added)
    found = plan_of(groups, policy, adopted={pool_plan(groups, policy).id: state})
    (pool,) = found.pools
    assert sum(requested(pool)) == adds
    assert pool.replicas.added == (5 if adds else 0), "with those of the last seconds"
    if adds < 5:
        assert found.check_at == added_at + 15 * SECOND


def test_probes_of_invisible_zones_count_for_max_step() -> None:
    unseen = zones((0, 0, 0), invisible_at_zero=True, max_step=2)
    assert sum(requested(pool_plan(unseen, numbers(0, 9), probing="abc"))) == 2


def test_max_step_does_not_hide_nodes_that_no_zone_may_get() -> None:
    """Of 6 missing nodes, this plan orders 2 and a later one 1. The zones may get no more."""
    found = pool_plan(zones((0, 0, 0), max_step=2, zone_max=1), numbers(6, 9))
    assert sum(requested(found)) == 2
    assert found.report.starved == 3
    assert [note.facts["later"] for note in found.report.notes if note.rule is Rule.MAX_STEP] == [1]


class TestHalfAList:
    """The list has at most half of the groups of the last check."""

    @staticmethod
    def pool() -> Played:
        found = Played(zones((3, 3, 3, 3, 3)), numbers(0, 25))
        found.check()
        found.groups = found.groups[:2]
        return found

    def test_nothing_is_written_until_a_second_check_a_minute_later(self) -> None:
        pool = self.pool()
        found = pool.check(10)
        assert not found.changes
        assert all(
            "node groups of the pool, or their owners, are missing" in sentences(planned.reasons)[-1]
            for planned in found.groups
        )
        assert pool.next_check() == 60
        assert not pool.check(59).changes
        assert sum(maxima(pool.check(1))) == 25

    def test_the_whole_list_ends_the_doubt_at_once_and_the_next_half_begins_it_anew(self) -> None:
        pool = self.pool()
        whole, half = Played(zones((3, 3, 3, 3, 3)), numbers(0, 25)), list(pool.groups)
        whole.check()
        pool.check(10)
        pool.groups = whole.groups
        assert not pool.check(30).changes
        pool.groups = half
        assert not pool.check(40).changes
        assert pool.next_check() == 60

    def test_one_absent_member_awaits_a_second_check(self) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.check()
        pool.groups = pool.groups[:3]
        assert not pool.check(10).changes
        assert pool.next_check() == 60
        assert sum(maxima(pool.check(60))) == 20

    @pytest.mark.parametrize(("stay", "awaiting"), [(3, []), (2, ["workers"])])
    def test_half_of_the_members_at_once_in_another_pool_await_a_second_check(
        self, stay: int, awaiting: list[str]
    ) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.check()
        moved = [replace(group, pool_label="others", pool_max=9) for group in pool.groups[stay:]]
        planned = plan(Observation(groups=(*pool.groups[:stay], *moved)), pool.state, pool.policy, pool.now)
        assert [found.id.name for found in planned.pools if found.awaits_check] == awaiting

    @pytest.mark.parametrize("is_skipped", [True, False])
    def test_a_skipped_member_is_not_absent(self, is_skipped: bool) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.check()
        *rest, last = pool.groups
        skipped = Skipped(namespace=last.key.namespace, name=last.key.name, reason=stated("unreadable"))
        observation = Observation(groups=tuple(rest), skipped=(skipped,) if is_skipped else ())
        planned = plan(observation, pool.state, pool.policy, pool.now)
        assert any(found.awaits_check for found in planned.pools) is not is_skipped

    def test_replicas_as_planned_are_no_change_of_others(self) -> None:
        pool = Played(zones((0, 0, 0)), numbers(3, 9))
        assert sum(requested(pool.check())) == 3
        pool.check(10)
        (state,) = pool.state.pools.values()
        assert state.seen is not None
        assert state.seen.since == NOW

    def test_an_absent_owner_is_as_an_absent_member(self) -> None:
        """Without the list of owners, a group seems to have no bounds of Evenkeel."""
        groups = [owned(zone, Bounds(0, 9)) for zone in "abc"]
        policy = numbers(0, 20)
        first = plan(Observation(groups=tuple(groups)), ClusterState(), policy, NOW)
        state = ClusterState(pools=dict(first.pool_states))
        bare = tuple(replace(group, owner=None, bounds=None, two_objects=False) for group in groups)
        (pool,) = plan(Observation(groups=bare), state, policy, NOW + MINUTE).pools
        assert pool.awaits_check
        waited = replace(state, pools={pool.id: pool.next_state})
        (pool,) = plan(Observation(groups=bare), waited, policy, NOW + 2 * MINUTE).pools
        assert not pool.awaits_check

    def test_a_pool_without_any_member_awaits_a_second_check_and_then_is_gone(self) -> None:
        first = plan(Observation(groups=tuple(zones((3, 3)))), ClusterState(), numbers(0, 20), NOW)
        state = ClusterState(pools=dict(first.pool_states))
        empty = plan(Observation(groups=()), state, numbers(0, 20), NOW + MINUTE)
        (pool,) = empty.pools
        assert (pool.awaits_check, pool.groups, empty.check_at) == (True, (), NOW + 2 * MINUTE)
        waited = replace(state, pools={pool.id: pool.next_state})
        assert plan(Observation(groups=()), waited, numbers(0, 20), NOW + 2 * MINUTE).pools == ()
