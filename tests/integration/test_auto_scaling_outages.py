"""Beside cluster-autoscaler on AWS, Evenkeel never ends with fewer nodes than cluster-autoscaler alone, or later.

Alone, it has static bounds that keep PoolMaximum: a third for each zone.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sandbox.auto_scaling.behavior import Behavior, worst
from tests.autoscaling_outages import WORLDS, Outage, play
from tests.outages import Who


def _check(world: Outage, behavior: Callable[[], Behavior]) -> None:
    alone = play(world, Who.NOBODY, behavior())
    for who in (Who.EVENTS, Who.SCANS):
        result = play(world, who, behavior())
        assert result.rank <= alone.rank, who
        assert not result.ended, who


@pytest.mark.parametrize("behavior", [Behavior, worst])
@pytest.mark.parametrize("world", WORLDS[::11], ids=str)
def test_never_worse_than_the_autoscaler_alone(world: Outage, behavior: Callable[[], Behavior]) -> None:
    _check(world, behavior)


def test_a_suspended_launch_ends_no_worse_either_and_every_pod_gets_its_node() -> None:
    world = Outage(zones=1, seconds=0, loop=10, version=(1, 36), suspends=True)
    alone, result = play(world, Who.NOBODY, Behavior()), play(world, Who.SCANS, Behavior())
    assert (alone.nodes, result.nodes, result.ended) == (8, 9, 0)
    _check(replace(world, seconds=300, loop=30), Behavior)


@pytest.mark.deep
@pytest.mark.parametrize("behavior", [Behavior, worst])
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_never_worse_in_any_world(world: Outage, behavior: Callable[[], Behavior]) -> None:
    _check(world, behavior)
