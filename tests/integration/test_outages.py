"""No shortage of machines ends with fewer nodes, or later, with events than without, nor than with no Evenkeel at all.

A part of what `python -m bench.outages` plays, in simulated time: the table in docs/outages.md.
"""

from statistics import mean

import pytest

from bench.outages import FLAVOURS, PLACES, by_chance, certain, three_ways, worse
from tests.outages import Outage, Play, Who

CERTAIN = [outage for flavour in FLAVOURS for outage in certain(flavour, 8)]


@pytest.mark.parametrize("outage", CERTAIN, ids=lambda outage: f"{outage.flavour}: {outage.name}")
def test_events_never_make_an_outage_worse_and_neither_do_we(outage: Outage) -> None:
    results = three_ways(outage)
    assert worse(results) == []
    assert [result.killed for result in results.values()] == [(), (), ()]


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
