"""Balanced, on the examples of its description and on the corners of its steps."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import (
    Played,
    after_backoff,
    group,
    in_backoff,
    key,
    maxima,
    minima,
    numbers,
    offered,
    pool_plan,
    problems_of,
    reasons,
    requested,
    stated,
    zones,
)
from tests.parts import replace


def test_an_empty_pool_offers_the_same_to_every_zone() -> None:
    found = pool_plan(zones((0, 0, 0)), numbers(0, 12))
    assert maxima(found) == (4, 4, 4)
    assert minima(found) == (0, 0, 0)


def burst(maximum: int = 12) -> Played:
    """A pool that has just been offered its headroom, empty."""
    pool = Played(zones((0, 0, 0)), numbers(0, maximum))
    pool.look()
    return pool


@pytest.fixture
def pool() -> Played:
    return burst()


class TestAPublicationStands:
    def test_for_65_seconds_where_nothing_changes_and_looks_in_between_take_nothing_back(self, pool: Played) -> None:
        pool.look(20, a=4)
        assert maxima(pool.look(15)) == (10, 1, 1)
        for _ in range(32):  # every 2 s, caused by other pools
            assert maxima(pool.look(2)) == (10, 1, 1)
        assert maxima(pool.look(1)) != (10, 1, 1)
        assert pool.next_check() is None

    def test_a_look_is_asked_for_when_a_loan_is_over_and_what_was_not_used_goes_back(self, pool: Played) -> None:
        pool.look(20, a=4)
        pool.look(15)
        assert pool.next_check() == 65
        back = maxima(pool.look(65))
        assert (back[0], sum(back)) == (5, 12)

    def test_what_went_back_is_not_offered_again_until_something_changes(self, pool: Played) -> None:
        pool.look(20, a=4)
        pool.look(15)
        back = maxima(pool.look(65))
        assert {maxima(pool.look(30)) for _ in range(20)} == {back}
        assert pool.next_check() is None

    def test_no_longer_than_something_changes(self, pool: Played) -> None:
        pool.look(20, a=4)
        pool.look(15)
        assert maxima(pool.look(10, a=6)) == maxima(pool_plan(zones((6, 0, 0)), numbers(0, 12)))

    @pytest.mark.parametrize(
        ("place", "changed", "maximum"),
        [(0, {"weight": 2}, 12), (0, {"zone_max": 2}, 12), (2, {"bounds": Bounds(0, 4)}, 12), (0, {}, 15)],
    )
    def test_no_longer_than_what_it_was_dealt_for(self, place, changed, maximum) -> None:
        frozen = group("c", bounds=(0, 2), frozen_because=stated("rolling out"))
        pool = Played([group("a"), group("b"), frozen], numbers(0, 12))
        assert maxima(pool.look()) == (5, 5, 2)
        pool.groups[place] = replace(pool.groups[place], **changed)
        pool.policy = numbers(0, maximum)
        afresh = maxima(pool_plan(pool.groups, pool.policy))
        assert maxima(pool.look(2)) == afresh != (5, 5, 2)

    def test_nor_than_a_probing_zone_may_use_it(self) -> None:
        pool = Played(zones((1, 0, 0)), numbers(0, 12), ClusterState(groups={key("a"): after_backoff()}))
        assert maxima(pool.look()) == (2, 5, 5)
        pool.groups[0] = replace(pool.groups[0], running=0)
        found = maxima(pool.look(2))
        assert (found[0], sum(found)) == (1, 12)


class TestALoan:
    def test_a_zone_at_its_bound_gets_all_but_one_each_when_the_others_have_stood_still(self, pool: Played) -> None:
        assert maxima(pool.look(20, a=4)) == (4, 4, 4)
        assert pool.next_check() == 15
        assert maxima(pool.look(14)) == (4, 4, 4)
        assert maxima(pool.look(1)) == (10, 1, 1)

    def test_others_stand_still_for_one_and_a_half_loops_of_their_autoscaler(self, pool: Played) -> None:
        pool.policy = replace(pool.policy, autoscaler_loop=timedelta(seconds=30))
        pool.look(20, a=4)
        assert pool.next_check() == 15
        assert maxima(pool.look(44)) == (4, 4, 4)
        assert maxima(pool.look(1)) == (10, 1, 1)

    def test_nothing_is_lent_where_another_zone_grows_too(self, pool: Played) -> None:
        pool.look(20, a=4)
        found = maxima(pool.look(10, b=2))
        assert (found[0] <= 6, sum(found)) == (True, 12)
        assert maxima(pool.look(15)) == found

    def test_what_the_cap_of_the_zone_leaves_of_it_goes_to_the_others(self) -> None:
        pool = Played([group("a", zone_max=6), group("b"), group("c")], numbers(0, 12))
        pool.look()
        pool.look(20, a=4)
        assert maxima(pool.look(15)) == (6, 3, 3)

    def test_two_zones_at_their_bound_share_the_rest(self) -> None:
        pool = burst(21)
        assert maxima(pool.look()) == (7, 7, 7)
        pool.look(20, a=7, b=7)
        assert maxima(pool.look(15)) == (10, 10, 1)

    def test_it_is_followed_by_the_last_nodes_so_that_one_zone_can_have_all_of_the_pool(self, pool: Played) -> None:
        pool.look(20, a=4)
        pool.look(15)
        assert maxima(pool.look(10, a=10)) == (12, 0, 0)

    @pytest.mark.parametrize("state", [in_backoff(), after_backoff()], ids=["fenced", "probing"])
    def test_a_bound_that_was_a_fence_is_no_sign_of_demand(self, state) -> None:
        pool = Played([group("a", 4), group("b"), group("c")], numbers(0, 12), ClusterState(groups={key("a"): state}))
        pool.look()
        pool.state = replace(pool.state, groups={})
        pool.look(20)
        assert maxima(pool.look(15))[0] == 5

    def test_a_zone_that_was_offered_nothing_has_used_up_nothing(self) -> None:
        pool = Played([group("a", 4, zone_max=4), group("b"), group("c")], numbers(0, 14))
        assert maxima(pool.look()) == (4, 5, 5)
        pool.look(20, b=5)
        assert maxima(pool.look(15)) == (4, 9, 1)

    def test_bounds_that_somebody_else_wrote_are_no_offer_of_ours(self) -> None:
        pool = Played([group("a", 4, bounds=(0, 4)), group("b"), group("c")], numbers(0, 12))
        pool.look()
        assert maxima(pool.look(15))[0] == 5


class TestTheLastNodes:
    def test_they_stay_with_the_zone_that_grew_last(self) -> None:
        for place, zone in enumerate("abc"):
            pool = Played(zones((3, 3, 3)), numbers(0, 12))
            assert maxima(pool.look()) == (4, 4, 4)
            assert maxima(pool.look(10, **{zone: 4}))[place] == 6

    def test_as_far_as_its_cap_allows(self) -> None:
        pool = Played([group("a", 3, zone_max=5), group("b", 3), group("c", 3)], numbers(0, 12))
        pool.look()
        found = maxima(pool.look(10, a=4))
        assert (found[0], sum(found)) == (5, 12)

    def test_also_where_its_growth_has_not_been_answered_yet(self, pool: Played) -> None:
        pool.look(20, a=4)
        pool.policy = numbers(0, 6)
        assert maxima(pool.look(2)) == (6, 0, 0)

    def test_as_many_as_there_are_zones_are_not_the_last(self) -> None:
        pool = Played(zones((3, 3, 2)), numbers(0, 12))
        pool.look()
        assert maxima(pool.look(10, c=3)) == (4, 4, 4)

    def test_an_unused_offer_wanders_after_65_seconds_and_after_twice_as_long_each_time(self) -> None:
        pool = Played(zones((4, 4, 3)), numbers(0, 12))
        pool.look()
        turns, where = [], []
        for _ in range(6):
            wait = pool.next_check()
            assert wait is not None
            before = maxima(pool.look(wait - 1))
            after = maxima(pool.look(1))
            assert before != after
            turns.append(wait)
            where.append(max(range(3), key=lambda i: after[i] - (4, 4, 3)[i]))
        assert turns == [65, 130, 260, 520, 1040, 2080]
        assert sorted(where[:3]) == sorted(where[3:]) == [0, 1, 2]

    def test_an_offer_stands_for_an_hour_at_most(self) -> None:
        pool = Played(zones((4, 4, 3)), numbers(0, 12))
        pool.look()
        waits = []
        for _ in range(10):
            wait = pool.next_check()
            assert wait is not None
            waits.append(wait)
            pool.look(wait)
        assert waits[-3:] == [3600] * 3

    def test_any_change_starts_it_again(self) -> None:
        pool = Played(zones((4, 4, 2)), numbers(0, 12))
        pool.look()
        pool.look(65)
        pool.look(130)
        assert pool.next_check() == 260
        pool.look(30, c=3)
        pool.look(15)
        assert pool.next_check() == 65 - 15

    def test_demand_that_one_zone_alone_can_serve_gets_the_last_node_of_the_pool(self) -> None:
        pool = Played(zones((6, 4, 0)), numbers(0, 12))
        wanted, elapsed = 8, 0.0
        pool.look()
        while (now := pool.groups[0].requested) < wanted:
            bounds = pool.groups[0].bounds
            pool.look(10, a=max(now, min(wanted, bounds.max)))
            elapsed += 10
            assert elapsed < 600, "the last nodes never reach the zone that needs them"


def test_a_fenced_zone_keeps_what_it_holds_and_the_others_share_the_rest() -> None:
    found = pool_plan(zones((3, 3, 3)), numbers(3, 12), fenced=("a",))
    assert maxima(found)[0] == 3
    assert sorted(maxima(found)[1:]) == [4, 5]
    assert minima(found) == (1, 1, 1)


def test_an_over_committed_pool_lets_nobody_grow_and_says_so() -> None:
    found = pool_plan(zones((5, 4, 4)), numbers(0, 12))
    assert maxima(found) == (5, 4, 4)
    assert "may grow by 0 of the pool's 0 free nodes" in reasons(found, "a")
    assert found.report.overcommitted
    assert any(
        "over-committed: 13 requested, PoolMaximum is 12" in problem for problem in problems_of(found.report.problems)
    )


def test_a_probing_zone_gets_room_for_one_machine() -> None:
    found = pool_plan(zones((2, 3, 3)), numbers(0, 12), probing=("a",))
    assert maxima(found)[0] == 3
    assert sum(maxima(found)) == 12
    assert "probing" in reasons(found, "a")
    assert maxima(pool_plan(zones((4, 4, 3)), numbers(0, 12), probing=("a",))) == (5, 4, 3)  # the last node as well


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_probing_zone_gets_one_machine_under_every_strategy(strategy) -> None:
    found = pool_plan(zones((0, 1, 1)), numbers(0, 12, strategy), probing=("a",))
    assert maxima(found)[0] == 1


@pytest.mark.parametrize("remembered", [in_backoff(), after_backoff()], ids=["fenced", "probing"])
def test_a_zone_whose_autoscaler_fences_by_itself_is_sized_like_any_other(remembered) -> None:
    found = pool_plan(zones((0, 0, 0), fencing_enabled=False), numbers(0, 12), states={key("a"): remembered})
    assert maxima(found) == (4, 4, 4)


def test_weights_level_by_share() -> None:
    found = pool_plan([group("a", weight=2), group("b"), group("c")], numbers(0, 12))
    assert maxima(found) == (6, 3, 3)


def test_a_zones_own_cap_is_kept_and_its_share_goes_to_the_others() -> None:
    found = pool_plan([group("a", 1, zone_max=2), group("b"), group("c")], numbers(0, 12))
    assert maxima(found) == (2, 5, 5)


def test_what_a_frozen_zone_holds_as_its_minimum_is_not_asked_of_the_others() -> None:
    found = pool_plan(
        [group("a", 4, bounds=(3, 4), frozen_because=stated("paused")), group("b", 4), group("c", 4)], numbers(5, 12)
    )
    assert minima(found) == (3, 1, 1)


def test_an_owner_that_refuses_max_0_never_makes_the_maxima_pass_the_pool_maximum() -> None:
    """Whatever one zone grows by: the others' one node each is kept free from the beginning."""
    pool = Played(zones((0, 0, 0), least_max=1), numbers(0, 4))
    for _ in range(12):
        pool.look(20)
        found = pool.look(15)
        assert sum(maxima(found)) == 4
        pool.look(5, a=maxima(found)[0])
    assert pool.groups[0].requested == 2


def test_a_raise_to_the_minimum_leaves_the_one_node_that_owners_insist_on() -> None:
    found = pool_plan(zones((0, 0, 0), least_max=1), numbers(4, 4), fenced=("b", "c"))
    assert (requested(found), maxima(found)) == ((2, 0, 0), (2, 1, 1))
    assert found.report.starved == 2


def test_the_fence_follows_requested_down_at_every_look() -> None:
    pool = Played(zones((2, 3, 3)), numbers(0, 12), ClusterState(groups={key("a"): in_backoff()}))
    assert [maxima(pool.look(10, a=left))[0] for left in (2, 1, 0)] == [2, 1, 0]
    assert pool.next_check() == 15


def test_a_raise_to_the_minimum_leaves_the_room_that_frozen_groups_keep() -> None:
    frozen = group("a", 2, bounds=(0, 6), frozen_because=stated("rolling out"))
    found = pool_plan([frozen, group("b"), group("c")], numbers(12, 12))
    assert requested(found) == (2, 3, 3)
    assert sum(maxima(found)) == 12
    assert found.report.starved == 4


def test_the_minimum_is_levelled_over_what_is_there() -> None:
    found = pool_plan(zones((5, 1, 0)), numbers(4, 12))
    assert minima(found) == (3, 1, 0)


def test_the_minimum_counts_only_running_nodes_of_a_fenced_zone() -> None:
    found = pool_plan(zones((3, 3, 3), running=(0, 3, 3)), numbers(6, 12), fenced=("a",))
    assert requested(found) == (0, 3, 3)
    assert minima(found) == (0, 3, 3)


@pytest.mark.parametrize("held", [0, 1])
def test_ties_do_not_always_go_to_the_first_zone(held) -> None:
    pools = [zones((held,) * 3, pool=f"pool-{i}", pool_min=0, pool_max=4) for i in range(20)]
    assert {maxima(pool_plan(pool)).index(2) for pool in pools} == {0, 1, 2}


def test_the_last_free_node_stays_where_it_was_offered() -> None:
    """A quiet pool is never patched: the offer may not wander from zone to zone."""
    found = pool_plan(zones((4, 4, 3)), numbers(0, 12))
    assert maxima(found) == (4, 4, 4)
    settled = [
        group("a", 4, bounds=(0, 4), published=offered(4)),
        group("b", 4, bounds=(0, 4), published=offered(4)),
        group("c", 3, bounds=(0, 4), published=offered(4)),
    ]
    assert not pool_plan(settled, numbers(0, 12)).changes
