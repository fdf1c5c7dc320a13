"""On AWS, cluster-autoscaler with Evenkeel never ends with fewer nodes than alone, or later.

Alone, it has static bounds: a third of PoolMaximum for each zone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.rebalancing.events import Failure
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from sandbox.auto_scaling.behavior import Behavior, worst
from tests.auto_scaling_groups import ZONES, Stage
from tests.timed import TimedWorld, Who

PODS, _MAXIMUM = 9, 12
_ACCOUNT = "123456789012"
#: the pods appear in the second minute, after Evenkeel has published bounds and cluster-autoscaler has read them
APPEAR, _HORIZON, _SETTLED = 130, 30 * 60, 300


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Zones that refuse launches for so many seconds (0: always), and the settings of the autoscaler.

    ``suspends``: their groups have Launch suspended instead, so that no launch is refused.
    """

    zones: int
    seconds: int
    loop: int
    version: tuple[int, int]
    suspends: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """The nodes at the end, the second when so many ran first, and ended instances that were in service."""

    nodes: int
    after: int
    ended: int

    @property
    def rank(self) -> tuple[int, int]:
        """Return a rank, smaller for better results: more nodes, then sooner."""
        return -self.nodes, self.after


WORLDS = [
    Outage(zones=zones, seconds=seconds, loop=loop, version=version)
    for (zones, seconds), loop, version in product(
        [(1, 0), (2, 0), (3, 90)], (10, 20, 30, 60), ((1, 24), (1, 30), (1, 36))
    )
]


class _Play(TimedWorld):
    """One outage, second by second."""

    def __init__(self, outage: Outage, who: Who, behavior: Behavior) -> None:
        self._outage = outage
        self.stage = stage = Stage(behavior, autoscaler="cluster-autoscaler", autoscaler_loop=outage.loop)
        self._names = stage.pool(desired=0, maximum=_MAXIMUM // len(ZONES))
        self._autoscaler = AwsAutoscaler(
            client=stage.api,
            names=self._names,
            has_node=stage.api.groups.has_node,
            flags=Flags(scale_down=False, version=outage.version),
            seed=1,
        )
        super().__init__(stage.clusters, stage.clock, stage.store, who=who)
        self.second = -1  # cluster-autoscaler and the scans begin with the first step
        self.timetable.at(APPEAR, self._begin)
        self.timetable.every(outage.loop, lambda: self._autoscaler.step(stage.clock.now()))
        stage.api.log.listeners.append(self._report)

    def _begin(self) -> None:
        """Let the pods appear and the outage begin. It ends by the clock, because calls of Evenkeel take time."""
        stage, outage = self.stage, self._outage
        self._autoscaler.demand[("workers", None)] = PODS
        for zone, name in zip(ZONES[: outage.zones], self._names, strict=False):
            if outage.suspends:
                stage.api.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
            else:
                stage.refuse(zone)
        if outage.seconds:
            stage.api.clock.after(timedelta(seconds=outage.seconds), self._end)

    def _end(self) -> None:
        for name in self._names if self._outage.suspends else ():
            self.stage.api.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
        for zone in ZONES:
            self.stage.stock.accept(zone)

    def _report(self, event: Mapping[str, Any]) -> None:
        inbound = read_event(event, _ACCOUNT)
        if isinstance(inbound, Failure):
            self.report(inbound)

    def pass_time(self, time: timedelta) -> None:
        self.stage.api.clock.run(time)

    @property
    def running(self) -> set[str]:
        """Return the instances in service."""
        groups = [self.stage.group(name) for name in self._names]
        return {one.id for group in groups for one in group.instances.values() if one.state == "InService"}


def play(outage: Outage, who: Who, behavior: Behavior) -> Result:
    """Play an outage until every pod has had its node for five minutes."""
    world = _Play(outage, who, behavior)
    nodes = after = ended = 0
    running: set[str] = set()
    while world.second < APPEAR + _HORIZON:
        world.step()
        before, running = running, world.running
        ended += len(before - running)
        since = world.second - APPEAR
        if min(PODS, len(running)) != nodes:
            nodes, after = min(PODS, len(running)), since
        if nodes == PODS and since >= after + _SETTLED:
            break
    return Result(nodes=nodes, after=after, ended=ended)


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
