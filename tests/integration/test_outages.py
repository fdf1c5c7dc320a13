"""No shortage of machines ends with fewer nodes, or later, with events than without, or with Evenkeel than without."""

from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from tests.outages import FLAVOURS, PLACES, Outage, Play, Who, away, by_chance, certain, three_ways, ways, worse

CERTAIN = [outage for flavour in FLAVOURS for outage in certain(flavour, 8)]


@pytest.mark.parametrize("outage", CERTAIN, ids=lambda outage: f"{outage.flavour}: {outage.name}")
def test_neither_events_nor_evenkeel_nor_a_view_of_the_pods_makes_an_outage_worse(outage: Outage) -> None:
    results = three_ways(outage)
    assert worse(results) == []
    assert [result.killed for result in results.values()] == [(), (), ()]
    with_both = Play(outage, Who.EVENTS, view=True, reports=True).run()
    assert with_both.rank <= results[Who.EVENTS].rank
    assert (with_both.surplus, with_both.killed) == (results[Who.EVENTS].surplus, ())


@pytest.mark.parametrize("outage", away("cluster-api", 8), ids=lambda outage: outage.name)
def test_what_is_released_while_the_api_server_goes_away_is_ordered_elsewhere(outage: Outage) -> None:
    results = ways(outage)
    for way in ("with a view", "with a view and autoscaler_status", Who.SCANS):
        result = results[way]
        assert result.met
        assert result.away_from is not None
        assert result.after is not None
        assert result.after <= result.away_from + outage.away + 2 * outage.loop + 60
    assert results["with a view and autoscaler_status"].rank <= results["with a view"].rank
    assert results["without a view, with autoscaler_status"].rank <= results["without a view"].rank
    assert all(result.rank <= results[Who.NOBODY].rank for result in results.values())
    assert {(result.surplus, result.killed) for result in results.values()} == {(0, ())}


@pytest.mark.parametrize("flavour", ["gardener", "openshift"])
def test_where_owners_bound_the_zones_a_view_delays_nothing_and_the_released_are_ordered(flavour: str) -> None:
    for outage in away(flavour, 8)[::5]:
        results = ways(outage)
        assert results["with a view"].rank <= results["without a view"].rank <= results[Who.NOBODY].rank
        assert results["with a view"].surplus <= results["without a view"].surplus
        assert {result.killed for result in results.values()} == {()}
    outage = away(flavour, 8)[0]
    result = Play(outage, Who.EVENTS, view=True, horizon=150).run()
    assert result.nodes == 8
    assert (result.after or 0) <= (result.away_from or 0) + outage.away + 2 * outage.loop + 60


def test_nothing_is_ordered_twice_where_bounds_stand_on_an_object_of_their_own() -> None:
    """The autoscaler forgets what it has ordered in the dead zone, with a view and without: one node more."""
    for restarts_at in (56, 60, 66):
        play = Play(away("openshift", 8)[0], Who.EVENTS, view=True, restarts_at=restarts_at, in_flight=4, adds=True)
        assert play.run().most <= 10


@pytest.mark.parametrize(
    ("case", "restarts", "play"),
    [
        *((0, (44, 47, 56, 57, 60), {"in_flight": wait, "adds": adds}) for adds in (False, True) for wait in (0, 3, 8)),
        *((2, (46, 56, 60), {"in_flight": 4, "window": window}) for window in (2, 9)),
    ],
)
def test_nothing_is_ordered_twice_when_the_autoscaler_recovers_meanwhile(
    case: int, restarts: tuple[int, ...], play: dict[str, Any]
) -> None:
    """Its loops come 37, 47, 57… s after the pods; the pool is closed to it at 50 s, and the order comes at 60 s."""
    for restarts_at in restarts:
        result = Play(away("cluster-api", 8)[case], Who.EVENTS, view=True, restarts_at=restarts_at, **play).run()
        assert (result.met, result.surplus) == (True, 0), f"it restarts after {restarts_at} s"


@pytest.mark.parametrize("limit", [9, 8, 7])
def test_a_limit_of_the_autoscalers_own_is_not_passed(limit: int) -> None:
    for outage in (away("cluster-api", 8)[0], certain("cluster-api", 8)[1]):
        result = Play(replace(outage, limit=limit), Who.EVENTS, view=True).run()
        assert (result.nodes, result.most) == (limit, limit)


def test_one_refused_launch_in_four_costs_no_node_and_no_time() -> None:
    played = [three_ways(outage) for outage in by_chance("cluster-api", 60, seeds=10)]
    assert {result.nodes for results in played for result in results.values()} == {9}
    assert {result.killed for results in played for result in results.values()} == {()}
    seconds = {who: mean(results[who].after or 0 for results in played) for who in Who}
    assert seconds[Who.EVENTS] <= seconds[Who.SCANS] <= seconds[Who.NOBODY]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_running_pod_is_killed_by_a_release_however_long_the_run_takes(flavour: str, place: str) -> None:
    for outage in (certain(flavour, 8)[0], *by_chance(flavour, 8, seeds=2)):
        for window in (3, 20):
            play = Play(outage, Who.EVENTS, window=window, window_before=place, at_once=window == 20, horizon=120)
            assert play.run().killed == ()


def test_a_zone_that_an_owner_insists_on_offering_is_not_written_again_and_again() -> None:
    result = Play(certain("openshift", 8)[1], Who.EVENTS).run()
    assert result.nodes == 9  # the last of them by Cluster Autoscaler's own timeout
    assert result.patches < 10
