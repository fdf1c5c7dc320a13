"""A plan as a whole: its reasons, its news, and what it leaves alone."""

from datetime import datetime, timedelta

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


def test_a_look_at_nothing_plans_nothing() -> None:
    found = plan(Observation(groups=()), ClusterState(), make(Policy, strategy=BALANCED), NOW)
    assert (found.pools, found.skipped, found.changes, dict(found.states)) == ((), (), (), {})


def test_what_the_look_skipped_stays_skipped_with_its_reason() -> None:
    gone = Skipped(namespace="default", name="x", reason=Reason.of(Rule.SAID, text="not ours"))
    assert plan(
        Observation(groups=(), skipped=(gone,)), ClusterState(), make(Policy, strategy=BALANCED), NOW
    ).skipped == (gone,)


def test_a_group_that_is_as_it_should_be_says_so() -> None:
    settled = [group(zone, 4, bounds=(0, 4), published=offered(4)) for zone in "abc"]
    found = pool_plan(settled, numbers(0, 12))
    assert not found.changes
    assert all("no change needed" in reasons(found, zone) for zone in "abc")


def test_groups_of_an_invalid_pool_say_that_they_are_left_alone() -> None:
    found = pool_plan(zones((1, 1)), numbers(5, 4))
    assert all("no change: its pool is invalid" in reasons(found, zone) for zone in "ab")
    assert all(planned.bounds == planned.group.bounds for planned in found.groups)


def test_a_fenced_group_says_why_and_until_when() -> None:
    found = pool_plan(zones((2, 2)), numbers(0, 12), fenced=("a",))
    assert "fenced until 2026-01-15T12:04:00Z (capacity failure 1)" in reasons(found, "a")


def test_memory_of_a_group_that_is_gone_does_no_harm() -> None:
    members = zones((2, 2))
    states = {key("gone"): None}
    found = plan_of(members, numbers(0, 12), states={k: v for k, v in states.items() if v})
    assert [planned.group.identity.zone for planned in found.pools[0].groups] == ["a", "b"]


def test_imbalance_is_the_fullest_zone_less_the_emptiest() -> None:
    assert pool_plan(zones((5, 2, 3)), numbers(0, 12)).imbalance == 3


def test_a_quiet_pool_has_no_news() -> None:
    settled = [group(zone, 4, bounds=(0, 4), published=offered(4)) for zone in "abc"]
    assert pool_plan(settled, numbers(0, 12)).digest(applied=False) == ""


def test_what_was_applied_is_no_news_any_more() -> None:
    found = pool_plan(zones((1, 1, 1)), numbers(0, 12))
    assert found.digest(applied=False) != ""
    assert found.digest(applied=True) == ""


@pytest.mark.parametrize("incident", ["invalid", "over-committed", "starved"])
def test_trouble_stays_news_until_it_changes(incident) -> None:
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
def test_one_zone_alone_may_have_the_whole_pool(strategy) -> None:
    found = pool_plan([group("a", 2)], numbers(1, 5, strategy))
    bounds = found.groups[0].bounds
    assert (bounds.min, bounds.max) == (0 if strategy is LAX_GREEDY else 1, 5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pool_of_nothing_is_nothing(strategy) -> None:
    found = pool_plan(zones((0, 0), bounds=[(0, 1)] * 2), numbers(0, 0, strategy))
    assert all(planned.bounds is not None and planned.bounds.max == 0 for planned in found.groups)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numbers_as_large_as_they_come_are_planned(strategy) -> None:
    most = 2**31 - 1
    found = pool_plan(zones((0, 0, 0)), numbers(most, most, strategy))
    assert sum(planned.requested for planned in found.groups) == most


def test_a_look_is_asked_for_at_the_end_of_a_backoff() -> None:
    """The end belongs to the backoff, so a second later."""
    state = in_backoff()
    assert state.backoff_until is not None
    found = plan_of(zones((1, 1, 1), bounds=[(0, 4)] * 3), numbers(0, 12), states={key("a"): state})
    assert found.check_at == state.backoff_until + timedelta(seconds=1)


def test_a_look_is_asked_for_when_the_last_word_about_a_fenced_zone_ends() -> None:
    found = plan_of(zones((1, 1, 1), bounds=[(0, 4)] * 3), numbers(0, 12), fenced=("a",), impaired=("a",))
    assert found.check_at == NOW + 30 * MINUTE + timedelta(seconds=1)


def test_a_pool_in_which_time_changes_nothing_asks_for_no_look() -> None:
    assert plan_of(zones((1, 1, 1), bounds=[(0, 4)] * 3), numbers(0, 12)).check_at is None


class TestNoZoneIsHealthy:
    """After a hiccup that all had at once: who has had a success since is tried, once for each."""

    @staticmethod
    def states_of(arrived: timedelta | None, failed: timedelta = -MINUTE, **fields: int) -> list[State]:
        known = replace(in_backoff(), last_failure=NOW + failed, arrived_at=None if arrived is None else NOW + arrived)
        members = [group("a", 3, **fields), group("b", 3)]
        return [
            planned.state
            for planned in pool_plan(members, numbers(0, 12), states={key("a"): known}, fenced=("b",)).groups
        ]

    def test_a_zone_to_which_a_node_has_come_since_it_failed_is_tried(self) -> None:
        assert self.states_of(-MINUTE / 2) == [State.PROBING, State.FENCED]

    def test_not_while_it_still_waits_for_a_node(self) -> None:
        assert self.states_of(-MINUTE / 2, running=2) == [State.FENCED, State.FENCED]

    def test_not_where_no_node_has_come(self) -> None:
        assert self.states_of(None) == [State.FENCED, State.FENCED]

    def test_a_trial_that_fails_fences_it_until_the_next_node_comes(self) -> None:
        assert self.states_of(-MINUTE / 2, failed=-MINUTE / 3) == [State.FENCED, State.FENCED]
        assert self.states_of(-MINUTE / 4, failed=-MINUTE / 3) == [State.PROBING, State.FENCED]

    def test_a_healthy_zone_goes_before_any_trial(self) -> None:
        known = replace(in_backoff(), arrived_at=NOW)
        found = pool_plan([group("a", 3), group("b", 3)], numbers(0, 12), states={key("a"): known})
        assert [planned.state for planned in found.groups] == [State.FENCED, State.HEALTHY]

    def test_a_zone_that_is_fenced_by_a_word_is_not_tried(self) -> None:
        known = replace(in_backoff(), arrived_at=NOW)
        members = [group("a", 3), group("b", 3)]
        found = pool_plan(members, numbers(0, 12), states={key("a"): known}, fenced=("b",), impaired=("a",))
        assert [planned.state for planned in found.groups] == [State.FENCED, State.FENCED]


@pytest.mark.parametrize(
    ("added_at", "added", "adds"),
    [(NOW - 5 * SECOND, 5, 0), (NOW - 5 * SECOND, 3, 2), (NOW - 15 * SECOND, 5, 5), (NOW + 5 * MINUTE, 5, 5)],
)
def test_what_runs_have_added_in_the_last_seconds_counts_for_max_step(
    added_at: datetime, added: int, adds: int
) -> None:
    """A clock that was set back leaves a time in the future."""
    groups, policy = zones((0, 0, 0), max_step=5), numbers(20, 60)
    state = PoolState(added_at=added_at, added=added)
    found = plan_of(groups, policy, adopted={pool_plan(groups, policy).id: state})
    (pool,) = found.pools
    assert sum(requested(pool)) == adds
    assert pool.replicas.added == (5 if adds else 0), "with those of the last seconds"
    if adds < 5:
        assert found.check_at == added_at + 15 * SECOND


def test_machines_that_try_zones_nobody_sees_count_for_max_step() -> None:
    unseen = zones((0, 0, 0), invisible_at_zero=True, max_step=2)
    assert sum(requested(pool_plan(unseen, numbers(0, 9), probing="abc"))) == 2


class TestHalfAList:
    """No more than half of the groups that were there at the last look, as from a server that answers in halves."""

    @staticmethod
    def pool() -> Played:
        found = Played(zones((3, 3, 3, 3, 3)), numbers(0, 25))
        found.look()
        found.groups = found.groups[:2]
        return found

    def test_nothing_is_written_and_another_look_is_asked_for_a_minute_later(self) -> None:
        pool = self.pool()
        found = pool.look(10)
        assert not found.changes
        assert all(
            "node groups of the pool, or their owners, are missing" in sentences(planned.reasons)[-1]
            for planned in found.groups
        )
        assert pool.next_check() == 60
        assert not pool.look(59).changes

    def test_found_again_a_minute_later_it_is_how_things_are(self) -> None:
        pool = self.pool()
        pool.look(10)
        assert sum(maxima(pool.look(60))) == 25

    def test_the_whole_list_ends_the_doubt_at_once_and_the_next_half_begins_it_anew(self) -> None:
        pool = self.pool()
        whole, half = Played(zones((3, 3, 3, 3, 3)), numbers(0, 25)), list(pool.groups)
        whole.look()
        pool.look(10)
        pool.groups = whole.groups
        assert not pool.look(30).changes
        pool.groups = half
        assert not pool.look(40).changes
        assert pool.next_check() == 60

    def test_one_absent_member_is_enough_and_a_second_check_that_agrees_makes_the_pool_smaller(self) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.look()
        pool.groups = pool.groups[:3]
        assert not pool.look(10).changes
        assert pool.next_check() == 60
        assert sum(maxima(pool.look(60))) == 20

    def test_a_member_that_went_to_another_pool_is_not_absent(self) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.look()
        moved = replace(pool.groups[3], pool_label="others", pool_max=9)
        planned = plan(Observation(groups=(*pool.groups[:3], moved)), pool.state, pool.policy, pool.now)
        assert not any(each.awaits_check for each in planned.pools)

    def test_half_of_the_members_at_once_in_another_pool_waits_for_a_second_check(self) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.look()
        moved = [replace(group, pool_label="others", pool_max=9) for group in pool.groups[2:]]
        planned = plan(Observation(groups=(*pool.groups[:2], *moved)), pool.state, pool.policy, pool.now)
        assert [each.id.name for each in planned.pools if each.awaits_check] == ["workers"]

    @pytest.mark.parametrize("is_skipped", [True, False])
    def test_a_member_that_is_there_and_skipped_is_not_absent(self, is_skipped: bool) -> None:
        pool = Played(zones((3, 3, 3, 3)), numbers(0, 20))
        pool.look()
        *rest, last = pool.groups
        skipped = (
            (Skipped(namespace=last.key.namespace, name=last.key.name, reason=stated("unreadable")),)
            if is_skipped
            else ()
        )
        planned = plan(Observation(groups=tuple(rest), skipped=skipped), pool.state, pool.policy, pool.now)
        assert any(each.awaits_check for each in planned.pools) is not is_skipped

    def test_replicas_that_stand_as_evenkeel_planned_are_no_change_of_others(self) -> None:
        pool = Played(zones((0, 0, 0)), numbers(3, 9))
        assert sum(requested(pool.look())) == 3
        pool.look(10)
        (state,) = pool.state.pools.values()
        assert state.seen is not None
        assert state.seen.since == NOW

    def test_an_absent_owner_is_as_an_absent_member(self) -> None:
        """Without the list of owners, a group looks as if nothing of ours stood anywhere."""
        groups = [owned(zone, Bounds(0, 9)) for zone in "abc"]
        policy = numbers(0, 20)
        first = plan(Observation(groups=tuple(groups)), ClusterState(), policy, NOW)
        state = ClusterState(pools=dict(first.pool_states))
        bare = tuple(replace(group, owner=None, bounds=None, two_objects=False) for group in groups)
        (pool,) = plan(Observation(groups=bare), state, policy, NOW + MINUTE).pools
        assert pool.awaits_check
        waited = replace(state, pools={pool.id: pool.remembered})
        (pool,) = plan(Observation(groups=bare), waited, policy, NOW + 2 * MINUTE).pools
        assert not pool.awaits_check

    def test_a_pool_without_any_member_awaits_a_second_check_and_then_is_gone(self) -> None:
        first = plan(Observation(groups=tuple(zones((3, 3)))), ClusterState(), numbers(0, 20), NOW)
        state = ClusterState(pools=dict(first.pool_states))
        empty = plan(Observation(groups=()), state, numbers(0, 20), NOW + MINUTE)
        (pool,) = empty.pools
        assert (pool.awaits_check, pool.groups, empty.check_at) == (True, (), NOW + 2 * MINUTE)
        waited = replace(state, pools={pool.id: pool.remembered})
        assert plan(Observation(groups=()), waited, numbers(0, 20), NOW + 2 * MINUTE).pools == ()
