"""Balanced, with the examples of its description and the limits of its steps."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import (
    Played,
    after_backoff,
    group,
    in_backoff,
    in_slow_start,
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


def burst(maximum: int = 12) -> Played:
    """Return an empty pool right after its first bounds."""
    pool = Played(zones((0, 0, 0)), numbers(0, maximum))
    pool.check()
    return pool


@pytest.fixture
def pool() -> Played:
    return burst()


class TestAPublicationStands:
    def test_for_65_seconds_whatever_checks_run_in_between(self, pool: Played) -> None:
        pool.check(20, a=4)
        assert maxima(pool.check(15)) == (10, 1, 1)
        assert pool.next_check() == 65
        for _ in range(32):  # every 2 s, caused by other pools
            assert maxima(pool.check(2)) == (10, 1, 1)
        back = maxima(pool.check(1))
        assert (back[0], sum(back)) == (5, 12)
        assert {maxima(pool.check(30)) for _ in range(20)} == {back}, "not offered again until something changes"
        assert pool.next_check() is None

    def test_until_a_group_changes(self, pool: Played) -> None:
        pool.check(20, a=4)
        pool.check(15)
        assert maxima(pool.check(10, a=6)) == maxima(pool_plan(zones((6, 0, 0)), numbers(0, 12)))

    @pytest.mark.parametrize(
        ("place", "changed", "maximum"),
        [(0, {"weight": 2}, 12), (0, {"zone_max": 2}, 12), (2, {"bounds": Bounds(0, 4)}, 12), (0, {}, 15)],
    )
    def test_until_a_number_behind_it_changes(self, place, changed, maximum) -> None:
        frozen = group("c", bounds=(0, 2), frozen_because=stated("rolling out"))
        pool = Played([group("a"), group("b"), frozen], numbers(0, 12))
        assert maxima(pool.check()) == (5, 5, 2)
        pool.groups[place] = replace(pool.groups[place], **changed)
        pool.policy = numbers(0, maximum)
        afresh = maxima(pool_plan(pool.groups, pool.policy))
        assert maxima(pool.check(2)) == afresh != (5, 5, 2)

    def test_until_a_probing_zone_may_no_longer_use_it(self) -> None:
        pool = Played(zones((1, 0, 0)), numbers(0, 12), ClusterState(groups={key("a"): after_backoff()}))
        assert maxima(pool.check()) == (2, 5, 5)
        pool.groups[0] = replace(pool.groups[0], running=0)
        found = maxima(pool.check(2))
        assert (found[0], sum(found)) == (1, 12)


class TestALoan:
    @pytest.mark.parametrize(("loop", "seconds"), [(10, 15), (30, 45)])
    def test_a_zone_at_its_bound_gets_it_after_1_5_loops(self, pool: Played, loop: int, seconds: int) -> None:
        pool.policy = replace(pool.policy, autoscaler_loop=timedelta(seconds=loop))
        assert maxima(pool.check(20, a=4)) == (4, 4, 4)
        assert pool.next_check() == 15
        assert maxima(pool.check(seconds - 1)) == (4, 4, 4)
        assert maxima(pool.check(1)) == (10, 1, 1)

    def test_nothing_is_lent_where_another_zone_grows_too(self, pool: Played) -> None:
        pool.check(20, a=4)
        found = maxima(pool.check(10, b=2))
        assert (found[0] <= 6, sum(found)) == (True, 12)
        assert maxima(pool.check(15)) == found

    def test_nothing_is_lent_without_an_autoscaler(self) -> None:
        pool = Played([group("a"), group("b"), group("c")], replace(numbers(0, 12), autoscaler=False))
        pool.check()
        levelled = maxima(pool.check(20, a=4))
        assert sum(levelled) == 12
        assert 10 not in levelled
        assert [maxima(pool.check(seconds)) for seconds in (15, 65, 3600)] == [levelled] * 3
        assert pool.next_check() is None

    def test_the_others_get_what_the_cap_of_the_zone_leaves(self) -> None:
        pool = Played([group("a", zone_max=6), group("b"), group("c")], numbers(0, 12))
        pool.check()
        pool.check(20, a=4)
        assert maxima(pool.check(15)) == (6, 3, 3)

    def test_two_zones_at_their_bound_share_the_rest(self) -> None:
        pool = burst(21)
        assert maxima(pool.check()) == (7, 7, 7)
        pool.check(20, a=7, b=7)
        assert maxima(pool.check(15)) == (10, 10, 1)

    def test_the_last_nodes_follow_it_so_that_one_zone_can_have_all(self, pool: Played) -> None:
        pool.check(20, a=4)
        pool.check(15)
        assert maxima(pool.check(10, a=10)) == (12, 0, 0)

    @pytest.mark.parametrize("state", [in_backoff(), after_backoff()], ids=["fenced", "probing"])
    def test_a_bound_that_was_a_fence_is_no_sign_of_demand(self, state) -> None:
        pool = Played([group("a", 4), group("b"), group("c")], numbers(0, 12), ClusterState(groups={key("a"): state}))
        pool.check()
        pool.state = replace(pool.state, groups={})
        pool.check(20)
        assert maxima(pool.check(15))[0] == 5

    def test_a_zone_without_an_offer_is_not_at_its_bound(self) -> None:
        pool = Played([group("a", 4, zone_max=4), group("b"), group("c")], numbers(0, 14))
        assert maxima(pool.check()) == (4, 5, 5)
        pool.check(20, b=5)
        assert maxima(pool.check(15)) == (4, 9, 1)

    def test_bounds_of_others_are_no_offer(self) -> None:
        pool = Played([group("a", 4, bounds=(0, 4)), group("b"), group("c")], numbers(0, 12))
        pool.check()
        assert maxima(pool.check(15))[0] == 5


class TestTheLastNodes:
    @pytest.mark.parametrize(("place", "zone"), list(enumerate("abc")))
    def test_they_stay_with_the_zone_that_grew_last(self, place: int, zone: str) -> None:
        pool = Played(zones((3, 3, 3)), numbers(0, 12))
        pool.check()
        assert maxima(pool.check(10, **{zone: 4}))[place] == 6

    def test_they_stay_with_it_as_far_as_its_cap_allows(self) -> None:
        pool = Played([group("a", 3, zone_max=5), group("b", 3), group("c", 3)], numbers(0, 12))
        pool.check()
        bounds = maxima(pool.check(10, a=4))
        assert (bounds[0], sum(bounds)) == (5, 12)

    def test_they_stay_with_it_before_its_growth_is_answered(self, pool: Played) -> None:
        pool.check(20, a=4)
        pool.policy = numbers(0, 6)
        assert maxima(pool.check(2)) == (6, 0, 0)

    def test_as_many_as_there_are_zones_are_not_the_last(self) -> None:
        pool = Played(zones((3, 3, 2)), numbers(0, 12))
        pool.check()
        assert maxima(pool.check(10, c=3)) == (4, 4, 4)

    def test_an_unused_offer_moves_after_65_seconds_then_twice_as_long_up_to_an_hour(self) -> None:
        pool = Played(zones((4, 4, 3)), numbers(0, 12))
        pool.check()
        turns, where = [], []
        for _ in range(10):
            wait = pool.next_check()
            assert wait is not None
            before = maxima(pool.check(wait - 1))
            after = maxima(pool.check(1))
            assert before != after
            turns.append(wait)
            where.append(max(range(3), key=lambda i: after[i] - (4, 4, 3)[i]))
        assert turns == [65, 130, 260, 520, 1040, 2080, *[3600] * 4]
        assert sorted(where[:3]) == sorted(where[3:6]) == [0, 1, 2]

    def test_without_an_autoscaler_an_unused_offer_stays(self) -> None:
        pool = Played(zones((4, 4, 3)), replace(numbers(0, 12), autoscaler=False))
        offered = maxima(pool.check())
        assert [maxima(pool.check(seconds)) for seconds in (65, 130, 3600)] == [offered] * 3
        assert pool.next_check() is None

    def test_any_change_starts_it_again(self) -> None:
        pool = Played(zones((4, 4, 2)), numbers(0, 12))
        pool.check()
        pool.check(65)
        pool.check(130)
        assert pool.next_check() == 260
        pool.check(30, c=3)
        pool.check(15)
        assert pool.next_check() == 65 - 15


PAUSED = group("a", 4, bounds=(3, 4), frozen_because=stated("paused"))
ROLLING = group("a", 2, bounds=(0, 6), frozen_because=stated("rolling out"))


@pytest.mark.parametrize(
    ("groups", "policy", "doubt", "expected"),
    [
        pytest.param(zones((0, 0, 0)), numbers(0, 12), {}, (4, 4, 4), id="the same for every zone"),
        pytest.param(zones((5, 4, 4)), numbers(0, 12), {}, (5, 4, 4), id="over-committed"),
        pytest.param(zones((2, 3, 3)), numbers(0, 12), {"probing": "a"}, (3, 4, 5), id="one for a probing zone"),
        pytest.param(zones((4, 4, 3)), numbers(0, 12), {"probing": "a"}, (4, 4, 4), id="the last for a healthy one"),
        pytest.param(
            zones((0, 0, 0), fencing_enabled=False), numbers(0, 12), {"fenced": "a"}, (4, 4, 4), id="own fence"
        ),
        pytest.param(
            zones((0, 0, 0), fencing_enabled=False), numbers(0, 12), {"probing": "a"}, (4, 4, 4), id="own probe"
        ),
        pytest.param([group("a", weight=2), group("b"), group("c")], numbers(0, 12), {}, (6, 3, 3), id="weights"),
        pytest.param([group("a", 1, zone_max=2), group("b"), group("c")], numbers(0, 12), {}, (2, 5, 5), id="zone-max"),
    ],
)
def test_headroom_is_shared(groups, policy, doubt, expected) -> None:
    assert sorted(maxima(pool_plan(groups, policy, **doubt))) == sorted(expected)
    assert maxima(pool_plan(groups, policy, **doubt))[0] == expected[0]


def test_a_fenced_zone_keeps_what_it_holds_and_the_others_share_the_rest() -> None:
    pool = pool_plan(zones((3, 3, 3)), numbers(3, 12), fenced=("a",))
    assert maxima(pool)[0] == 3
    assert sorted(maxima(pool)[1:]) == [4, 5]
    assert minima(pool) == (1, 1, 1)


def test_an_over_committed_pool_says_so() -> None:
    pool = pool_plan(zones((5, 4, 4)), numbers(0, 12))
    assert "may grow by 0 of the pool's 0 free nodes" in reasons(pool, "a")
    assert pool.report.overcommitted
    assert any(
        "over-committed: 13 requested, PoolMaximum is 12" in problem for problem in problems_of(pool.report.problems)
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_probing_zone_gets_one_machine_under_every_strategy(strategy) -> None:
    pool = pool_plan(zones((0, 1, 1)), numbers(0, 12, strategy), probing=("a",))
    assert maxima(pool)[0] == 1
    assert "probing" in reasons(pool, "a")


@pytest.mark.parametrize(
    ("groups", "policy", "fenced", "wanted", "least", "starved"),
    [
        pytest.param(zones((5, 1, 0)), numbers(4, 12), "", (5, 1, 0), (3, 1, 0), 0, id="levelled over what is there"),
        pytest.param([PAUSED, group("b", 4), group("c", 4)], numbers(5, 12), "", (4, 4, 4), (3, 1, 1), 0, id="frozen"),
        pytest.param(
            zones((3, 3, 3), running=(0, 3, 3)), numbers(6, 12), "a", (0, 3, 3), (0, 3, 3), 0, id="running nodes only"
        ),
        pytest.param(zones((0, 0, 0), least_max=1), numbers(4, 4), "bc", (2, 0, 0), (2, 0, 0), 2, id="owner's 1"),
        pytest.param([ROLLING, group("b"), group("c")], numbers(12, 12), "", (2, 3, 3), (0, 3, 3), 4, id="frozen room"),
    ],
)
def test_the_minimum_is_shared(groups, policy, fenced, wanted, least, starved) -> None:
    pool = pool_plan(groups, policy, fenced=fenced)
    assert (requested(pool), minima(pool), pool.report.starved) == (wanted, least, starved)
    assert sum(maxima(pool)) <= policy.pools[0].max + bool(starved and fenced)


def test_an_owner_that_refuses_max_0_keeps_the_maxima_within_the_pool_maximum() -> None:
    """One node of headroom is kept for each other zone from the start."""
    pool = Played(zones((0, 0, 0), least_max=1), numbers(0, 4))
    for _ in range(12):
        pool.check(20)
        planned = pool.check(15)
        assert sum(maxima(planned)) == 4
        pool.check(5, a=maxima(planned)[0])
    assert pool.groups[0].requested == 2


def test_the_fence_follows_requested_down_at_every_check() -> None:
    pool = Played(zones((2, 3, 3)), numbers(0, 12), ClusterState(groups={key("a"): in_backoff()}))
    assert [maxima(pool.check(10, a=left))[0] for left in (2, 1, 0)] == [2, 1, 0]
    assert pool.next_check() == 15


@pytest.mark.parametrize("held", [0, 1])
def test_ties_do_not_always_go_to_the_first_zone(held) -> None:
    pools = [zones((held,) * 3, pool=f"pool-{i}", pool_min=0, pool_max=4) for i in range(20)]
    assert {maxima(pool_plan(pool)).index(2) for pool in pools} == {0, 1, 2}


def test_the_last_free_node_stays_where_it_was_offered() -> None:
    steady = [group(zone, n, bounds=(0, 4), published=offered(4)) for zone, n in zip("abc", (4, 4, 3), strict=True)]
    assert not pool_plan(steady, numbers(0, 12)).changes


@pytest.mark.parametrize("state", [after_backoff(), in_slow_start(1, running_seen=0)], ids=["probing", "slow start"])
@pytest.mark.parametrize(
    ("flavour", "whole"), [("cluster-api", (1, 1, 1)), ("gardener", (1, 1, 1)), ("auto-scaling", (4, 4, 4))]
)
def test_beside_auto_scaling_groups_zones_start_slowly_only_while_another_is_healthy(
    state: GroupState, flavour: str, whole: tuple[int, ...]
) -> None:
    keys = [key(zone, flavour=flavour) for zone in "abc"]
    groups = [group(zone, key=each) for zone, each in zip("abc", keys, strict=True)]
    assert maxima(pool_plan(groups, numbers(0, 12), states=dict.fromkeys(keys, state))) == whole
    assert maxima(pool_plan(groups, numbers(0, 12), states=dict.fromkeys(keys[1:], state))) == (10, 1, 1)
