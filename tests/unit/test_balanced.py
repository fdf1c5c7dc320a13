"""Balanced, on the examples of its description and on the corners of its steps."""

import pytest

from evenkeel.domain.failures import FailureClass
from evenkeel.domain.model import Bounds, State, Strategy
from tests.builders import (
    after_backoff,
    group,
    in_backoff,
    key,
    maxima,
    minima,
    numbers,
    offered,
    pool_plan,
    reasons,
    requested,
    zones,
)


def test_an_empty_pool_offers_the_same_to_every_zone() -> None:
    found = pool_plan(zones((0, 0, 0)), numbers(0, 12))
    assert maxima(found) == (4, 4, 4)
    assert minima(found) == (0, 0, 0)


@pytest.mark.parametrize("how", ["offer", "adopted bounds"])
def test_a_zone_at_its_bound_shares_half_of_the_headroom(how) -> None:
    a = group("a", 4, offer=offered(4, 0)) if how == "offer" else group("a", 4, bounds=(0, 4))
    found = pool_plan([a, group("b"), group("c")], numbers(0, 12))
    assert maxima(found) == (8, 2, 2)


def test_half_of_the_headroom_is_rounded_up() -> None:
    found = pool_plan([group("a", 4, offer=offered(4, 0)), group("b", 1), group("c", 1)], numbers(0, 11))
    assert maxima(found)[0] == 4 + 3


def test_what_a_zone_at_its_bound_did_not_use_is_taken_back_at_the_next_scan() -> None:
    found = pool_plan([group("a", 4, offer=offered(8, 4)), group("b"), group("c")], numbers(0, 12))
    assert maxima(found)[0] == 5
    assert sum(maxima(found)) == 12


@pytest.mark.parametrize("state", [State.FENCED, State.PROBING])
def test_a_bound_that_was_a_fence_is_no_sign_of_demand(state) -> None:
    found = pool_plan([group("a", 4, offer=offered(4, 3, state)), group("b"), group("c")], numbers(0, 12))
    assert maxima(found)[0] == 5


def test_a_zone_that_was_offered_nothing_has_used_up_nothing() -> None:
    found = pool_plan([group("a", 4, offer=offered(4, 4)), group("b"), group("c")], numbers(0, 12))
    assert maxima(found)[0] == 5


def test_two_zones_at_their_bound_share_the_half() -> None:
    found = pool_plan(
        [group("a", 6, offer=offered(6, 5)), group("b", 6, offer=offered(6, 5)), group("c", 2)], numbers(0, 22)
    )
    assert maxima(found) == (6 + 2, 6 + 2, 2 + 4)


def test_a_fenced_zone_keeps_what_it_holds_and_the_others_share_the_rest() -> None:
    found = pool_plan(zones((3, 3, 3)), numbers(3, 12), fenced=("a",))
    assert maxima(found)[0] == 3
    assert sorted(maxima(found)[1:]) == [4, 5]
    assert minima(found) == (1, 1, 1)


def test_an_over_committed_pool_lets_nobody_grow_and_says_so() -> None:
    found = pool_plan(zones((5, 4, 4)), numbers(0, 12))
    assert maxima(found) == (5, 4, 4)
    assert found.overcommitted
    assert any("over-committed: 13 requested, PoolMaximum is 12" in problem for problem in found.problems)


def test_an_empty_fenced_zone_gets_max_0_and_never_1() -> None:
    found = pool_plan(zones((0, 3, 3)), numbers(0, 12), fenced=("a",))
    assert maxima(found)[0] == 0


def test_the_fence_follows_the_nodes_down() -> None:
    found = pool_plan([group("a", 2, bounds=(0, 3)), group("b", 3), group("c", 3)], numbers(0, 12), fenced=("a",))
    assert maxima(found)[0] == 2


def test_a_probing_zone_gets_room_for_one_machine() -> None:
    found = pool_plan(zones((2, 3, 3)), numbers(0, 12), probing=("a",))
    assert maxima(found)[0] == 3
    assert sum(maxima(found)) == 12
    assert "probing" in reasons(found, "a")


def test_a_probe_on_its_way_is_not_followed_by_a_second() -> None:
    found = pool_plan(zones((3, 3, 3), running=(2, 3, 3)), numbers(0, 12), probing=("a",))
    assert maxima(found)[0] == 3


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_probing_zone_gets_one_machine_under_every_strategy(strategy) -> None:
    found = pool_plan(zones((0, 1, 1)), numbers(0, 12, strategy), probing=("a",))
    assert maxima(found)[0] == 1


@pytest.mark.parametrize("remembered", [in_backoff(), after_backoff()], ids=["fenced", "probing"])
def test_a_zone_whose_autoscaler_fences_by_itself_is_sized_like_any_other(remembered) -> None:
    found = pool_plan(zones((0, 0, 0), fence=False), numbers(0, 12), states={key("a"): remembered})
    assert maxima(found) == (4, 4, 4)


def test_weights_level_by_share() -> None:
    found = pool_plan([group("a", weight=2), group("b"), group("c")], numbers(0, 12))
    assert maxima(found) == (6, 3, 3)


def test_a_zones_own_cap_is_kept_and_its_share_goes_to_the_others() -> None:
    found = pool_plan([group("a", 1, zone_max=2), group("b"), group("c")], numbers(0, 12))
    assert maxima(found) == (2, 5, 5)


def test_a_cap_below_what_a_zone_holds_stops_growth_and_no_more() -> None:
    found = pool_plan([group("a", 5, zone_max=2), group("b"), group("c")], numbers(0, 12))
    assert maxima(found)[0] == 5
    assert sum(maxima(found)) == 12


def test_a_frozen_zone_keeps_its_room_and_the_others_share_the_rest() -> None:
    found = pool_plan(
        [group("a", 2, bounds=(1, 5), frozen_because="rolling out"), group("b"), group("c")], numbers(0, 12)
    )
    assert found.groups[0].bounds == Bounds(1, 5)
    assert sum(maxima(found)) == 12
    assert "frozen: rolling out" in reasons(found, "a")


def test_a_full_frozen_zone_keeps_no_room() -> None:
    found = pool_plan([group("a", 5, bounds=(0, 5), frozen_because="paused"), group("b"), group("c")], numbers(0, 12))
    assert sum(maxima(found)) == 12


def test_what_a_frozen_zone_holds_as_its_minimum_is_not_asked_of_the_others() -> None:
    found = pool_plan(
        [group("a", 4, bounds=(3, 4), frozen_because="paused"), group("b", 4), group("c", 4)], numbers(5, 12)
    )
    assert minima(found) == (3, 1, 1)


def test_an_owner_that_refuses_max_0_gets_its_one_node_out_of_the_headroom() -> None:
    found = pool_plan(zones((0, 4, 4), floor_max=1), numbers(0, 12), fenced=("a",))
    assert maxima(found)[0] == 1
    assert sum(maxima(found)) == 12


def test_the_minimum_is_levelled_over_what_is_there() -> None:
    found = pool_plan(zones((5, 1, 0)), numbers(4, 12))
    assert minima(found) == (3, 1, 0)


def test_the_minimum_counts_only_running_nodes_of_a_fenced_zone() -> None:
    found = pool_plan(zones((3, 3, 3), running=(0, 3, 3)), numbers(6, 12), fenced=("a",))
    assert requested(found) == (0, 3, 3)
    assert minima(found) == (0, 3, 3)


def test_ties_do_not_always_go_to_the_first_zone() -> None:
    first = {maxima(pool_plan(zones((0, 0, 0), pool=f"pool-{i}", pool_min=0, pool_max=4))).index(2) for i in range(20)}
    assert first == {0, 1, 2}


def test_the_last_free_node_stays_where_it_was_offered() -> None:
    """A quiet pool is never patched: the offer may not wander from zone to zone."""
    found = pool_plan(zones((4, 4, 3)), numbers(0, 12))
    assert maxima(found) == (4, 4, 4)
    settled = [
        group("a", 4, bounds=(0, 4), offer=offered(4, 4)),
        group("b", 4, bounds=(0, 4), offer=offered(4, 4)),
        group("c", 3, bounds=(0, 4), offer=offered(4, 3)),
    ]
    assert not pool_plan(settled, numbers(0, 12)).changes


def test_every_zone_fenced_leaves_everything_where_it_is() -> None:
    found = pool_plan(zones((2, 2, 2), running=(1, 2, 2)), numbers(0, 12), fenced=("a", "b", "c"))
    assert requested(found) == (2, 2, 2)
    assert maxima(found) == (2, 2, 2)
    assert found.starved == 1


def test_a_failure_that_is_not_the_zones_is_fenced_but_not_hopped() -> None:
    found = pool_plan(
        zones((5, 3, 3), running=(2, 3, 3)), numbers(0, 12), states={key("a"): in_backoff(FailureClass.QUOTA)}
    )
    assert requested(found) == (5, 3, 3)
    assert maxima(found)[0] == 5
    assert "another zone would fail the same way" in reasons(found, "a")
