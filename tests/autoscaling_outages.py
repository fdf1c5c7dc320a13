"""Shortages beside Auto Scaling groups in simulated time: cluster-autoscaler alone, and with Evenkeel."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.rebalancing.events import Failure
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from sandbox.auto_scaling.behavior import Behavior
from tests.auto_scaling_groups import ZONES, Stage
from tests.outages import Who
from tests.timed import TimedStack

PODS, _MAXIMUM = 9, 12
_ACCOUNT = "123456789012"
#: the pods appear in the second minute, once Evenkeel has published its bounds and cluster-autoscaler has read them
_APPEAR, _HORIZON, _SETTLED = 130, 30 * 60, 300
#: from a refused launch to the function that receives it: EventBridge and Lambda
_TRAVEL = timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Zones that refuse launches, for so many seconds (0: always), and the autoscaler beside them.

    ``suspends``: their groups have Launch suspended instead, so that nothing is refused.
    """

    zones: int
    seconds: int
    loop: int
    version: tuple[int, int]
    suspends: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """The nodes at the end, when there were as many first, and instances in service that were ended."""

    nodes: int
    after: int
    ended: int

    @property
    def rank(self) -> tuple[int, int]:
        """Better is less: more nodes, and as many sooner."""
        return -self.nodes, self.after


WORLDS = [
    Outage(zones=zones, seconds=seconds, loop=loop, version=version)
    for (zones, seconds), loop, version in product(
        [(1, 0), (2, 0), (3, 90)], (10, 20, 30, 60), ((1, 24), (1, 30), (1, 36))
    )
]


class _Play:
    """One outage, second by second."""

    def __init__(self, outage: Outage, who: Who, behavior: Behavior) -> None:
        self._outage, self._who = outage, who
        self.stage = stage = Stage(behavior, autoscaler="cluster-autoscaler", autoscaler_loop=outage.loop)
        self._names = stage.pool(desired=0, maximum=_MAXIMUM // len(ZONES))
        self._autoscaler = AwsAutoscaler(
            client=stage.api,
            names=self._names,
            has_node=stage.api.groups.has_node,
            version=outage.version,
            flags=Flags(scale_down=False),
            seed=1,
        )
        self.stack = TimedStack(stage.clusters, stage.clock, stage.store)
        self._events: list[tuple[datetime, dict[str, Any]]] = []
        self._ends_at: datetime | None = None  # the outage; by the clock, which calls of Evenkeel move, too
        stage.api.log.listeners.append(lambda event: self._events.append((stage.clock.now() + _TRAVEL, event)))

    def live(self, second: int) -> None:
        """Live through a second: the zones, cluster-autoscaler, and Evenkeel with its queue."""
        stage, outage = self.stage, self._outage
        if second == _APPEAR:
            self._ends_at = stage.clock.now() + timedelta(seconds=outage.seconds) if outage.seconds else None
            self._autoscaler.demand[("workers", None)] = PODS
            for zone, name in zip(ZONES[: outage.zones], self._names, strict=False):
                if outage.suspends:
                    stage.api.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
                else:
                    stage.refuse(zone)
        if self._ends_at is not None and self._ends_at <= stage.clock.now():
            self._ends_at = None
            for name in self._names if outage.suspends else ():
                stage.api.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
            for zone in ZONES:
                stage.stock.accept(zone)
        if second % outage.loop == 0:
            self._autoscaler.step(stage.clock.now())
        if self._who is not Who.NOBODY:
            self._receive()
            self.stack.scan(second)
            self.stack.check(before=lambda _: None)
        stage.api.clock.run(timedelta(seconds=1))

    def _receive(self) -> None:
        while self._events and self._events[0][0] <= self.stage.clock.now():
            inbound = read_event(self._events.pop(0)[1], _ACCOUNT)
            if self._who is Who.EVENTS and isinstance(inbound, Failure):
                self.stack.receive(inbound)

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
    for second in range(_APPEAR + _HORIZON):
        world.live(second)
        before, running = running, world.running
        ended += len(before - running)
        since = second + 1 - _APPEAR
        if min(PODS, len(running)) != nodes:
            nodes, after = min(PODS, len(running)), since
        if nodes == PODS and since >= after + _SETTLED:
            break
    return Result(nodes=nodes, after=after, ended=ended)
