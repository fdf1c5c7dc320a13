"""Shortages beside Auto Scaling groups in simulated time: cluster-autoscaler alone, and with Evenkeel."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import product

from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from tests.auto_scaling_groups import ZONES, Stage
from tests.outages import Who

PODS, PODS_AT_MOST = 9, 12
_STEP, _HORIZON, _SCAN, _APPEAR = 10, 30 * 60, 60, 130


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Zones that refuse launches, for so many seconds (0: always), and the autoscaler beside them."""

    zones: int
    seconds: int
    loop: int
    version: tuple[int, int]


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


def play(outage: Outage, who: Who, maximum: int = PODS_AT_MOST // 3) -> Result:
    """Play an outage in steps of ten seconds. ``maximum``: of each group, before Evenkeel's first run.

    Evenkeel runs once a minute, and with events also at the step after a refused launch.
    """
    stage = Stage(autoscaler="cluster-autoscaler", autoscaler_loop=outage.loop)
    names = stage.pool(desired=0, maximum=maximum)
    autoscaler = AwsAutoscaler(
        client=stage.api, names=names, version=outage.version, flags=Flags(scale_down=False), seed=1
    )
    refusals: list[object] = []
    stage.api.log.listeners.append(
        lambda event: refusals.append(event) if event["detail-type"] == "EC2 Instance Launch Unsuccessful" else None
    )
    nodes = after = ended = 0
    running: set[str] = set()
    for second in range(0, _APPEAR + _HORIZON, _STEP):
        if second == _APPEAR:
            autoscaler.demand[("workers", None)] = PODS
            for zone in ZONES[: outage.zones]:
                stage.refuse(zone)
        if outage.seconds and second == _APPEAR + outage.seconds:
            for zone in ZONES:
                stage.stock.accept(zone)
        if second % outage.loop == 0:
            autoscaler.step(stage.clock.now())
        heard, refusals[:] = bool(refusals), ()
        if who is not Who.NOBODY and (second % _SCAN == 0 or (heard and who is Who.EVENTS)):
            stage.run()
        stage.api.clock.run(timedelta(seconds=_STEP))
        now = {one.id for name in names for one in stage.group(name).instances.values() if one.state == "InService"}
        ended += len(running - now)
        running = now
        if min(PODS, len(now)) != nodes:
            nodes, after = min(PODS, len(now)), second - _APPEAR
    return Result(nodes=nodes, after=after, ended=ended)
