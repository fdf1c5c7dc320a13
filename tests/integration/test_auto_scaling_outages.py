"""Beside cluster-autoscaler on AWS, Evenkeel never ends with fewer nodes than cluster-autoscaler alone, or later.

Alone, it has static bounds that keep PoolMaximum: a third for each zone.
"""

from dataclasses import replace

import pytest

from tests.autoscaling_outages import WORLDS, Outage, play
from tests.outages import Who


def _check(world: Outage) -> None:
    alone = play(world, Who.NOBODY)
    for who in (Who.EVENTS, Who.SCANS):
        result = play(world, who)
        assert result.rank <= alone.rank, who
        assert not result.ended, who


@pytest.mark.parametrize("world", WORLDS[::11], ids=str)
def test_never_worse_than_the_autoscaler_alone(world: Outage) -> None:
    _check(world)


def test_a_suspended_launch_ends_no_worse_either_and_every_pod_gets_its_node() -> None:
    world = Outage(zones=1, seconds=0, loop=10, version=(1, 36), suspends=True)
    alone, result = play(world, Who.NOBODY), play(world, Who.SCANS)
    assert (alone.nodes, result.nodes, result.ended) == (8, 9, 0)
    _check(replace(world, seconds=300, loop=30))


@pytest.mark.deep
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_never_worse_in_any_world(world: Outage) -> None:
    _check(world)
