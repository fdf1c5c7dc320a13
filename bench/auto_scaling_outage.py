"""Checks of Auto Scaling groups in an outage, in virtual time: each call takes as long as in AWS.

During the checks, cluster-autoscaler reads the groups and, for each group that lacks instances, its activities. Both
share the account's token bucket. AWS publishes no rate: these figures are the lowest that users report.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from bench.auto_scaling import create_managed
from bench.rows import Rows, Samples
from evenkeel.adapters.auto_scaling.api import AutoScalingApi
from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.thread_pool import THREADS
from evenkeel.application.rebalancing.observe import CHECK_SECONDS
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey
from evenkeel.record import ClusterRecord
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Behavior, Rate
from sandbox.auto_scaling.node_groups import NodeGroups as ManagedNodeGroups
from sandbox.kube.cloud import Cloud
from sandbox.kube.world import REGION

_ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_RATE = Rate(size=100, per_second=5)
_PAGE = 100
_MINUTE = timedelta(minutes=1)
_UNTIL_DESCRIBED = 9  # checks until EKS has described 300 node groups


class _World:
    """Groups of one node each. In the second zone, AWS refuses launches."""

    def __init__(self, groups: int, *, managed: bool) -> None:
        cloud = Cloud(zones=_ZONES)
        self.api = AutoScaling(cloud)
        self.eks = ManagedNodeGroups(self.api)
        self.names = [self._create(number, managed=managed) for number in range(groups)]
        self.api.clock.run(2 * _MINUTE)
        self.failing: list[str] = []
        self._cloud = cloud
        self._node_groups = NodeGroups(random=random.Random(1).random)
        access = {"kind": "auto-scaling", "region": REGION}
        self._record = ClusterRecord.model_validate({"id": "demo", "access": access})

    def _create(self, number: int, *, managed: bool) -> str:
        name, zone = f"workers-{number // 3}-{number % 3}", _ZONES[number % 3]
        if managed:
            name = create_managed(self.eks, name, zone, 0, 1, 4)
        else:
            self.api.create_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=0,
                MaxSize=4,
                DesiredCapacity=1,
                AvailabilityZones=[zone],
                LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            )
        tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        self.api.create_or_update_tags(Tags=[{**tag, "Key": "evenkeel.dev/pool", "Value": f"workers-{number // 3}"}])
        return name

    def now(self) -> datetime:
        """Return the time."""
        return self.api.clock.now

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.api.clock.wait(timedelta(seconds=seconds), THREADS)

    def fail(self, count: int) -> None:
        """Request nodes in groups of the second zone, which has none."""
        self._cloud.exhaust_zone(_ZONES[1])
        self.failing = self.names[1::3][:count]
        for name in self.failing:
            self.api.groups.set_desired(self.api.groups.by_name[name], 3, "a user request")

    def check(self) -> None:
        """Read the groups as a check does."""
        end = self.now() + timedelta(seconds=CHECK_SECONDS)
        api = AutoScalingApi(
            "demo",
            auto_scaling=lambda: self.api,
            eks=lambda: self.eks,
            node_groups=self._node_groups,
            clock=self,
            remaining=lambda: (end - self.now()).total_seconds(),
        )
        keys = [GroupKey(AUTO_SCALING, REGION, name) for name in self.failing]
        AutoScalingCluster(api, self._record, {}, consistent=False).observe(keys)


@dataclass
class _Autoscaler:
    """The reads of cluster-autoscaler: every minute the groups, and the activities of groups that lack instances."""

    world: _World
    reads: int = 0
    throttled: int = 0

    def begin(self) -> None:
        """Read from now on."""
        groups = len(self.world.names)
        self._read(-(-groups // _PAGE) + len(self.world.failing))
        self.world.api.clock.after(_MINUTE, self.begin)

    def _read(self, left: int) -> None:
        api = self.world.api
        self.reads += 1
        self.throttled += api.rate is not None and not api.bucket.take(api.rate)
        if left > 1:
            api.clock.after(api.behavior.latency, self._read, left - 1)


def auto_scaling_outage(groups: int = 300, failing: int = 100, latency_ms: int = 150, minutes: int = 10) -> Rows:
    """Measure checks of an outage: AWS calls, seconds, and the throttled reads of cluster-autoscaler.

    A check is made every minute. Time is virtual, and each call takes as long as in AWS.
    """
    yield f"a check while {failing} of {groups} groups lack instances, {latency_ms} ms a call"
    for kind in ("auto-scaling", "managed node groups"):
        for checks in (True, False):
            world = _World(groups, managed=kind != "auto-scaling")
            for _ in range(_UNTIL_DESCRIBED if checks else 0):
                world.check()
                world.api.clock.run(_MINUTE)
            latency = timedelta(milliseconds=latency_ms)
            world.api.behavior.become(Behavior(latency=latency, parallel=THREADS, auto_scaling_rate=_RATE))
            world.fail(failing)
            autoscaler, samples = _Autoscaler(world), Samples()
            autoscaler.begin()
            for _ in range(minutes):
                world.api.clock.run(_MINUTE)
                if checks:
                    samples.add(f"{kind} {groups}", **_checked(world))
            yield from samples.items()
            beside = "beside checks" if checks else "without checks"
            share = 100 * autoscaler.throttled / autoscaler.reads
            yield f"reads of cluster-autoscaler, {kind}, {beside}", {"throttled_percent": share}


def _checked(world: _World) -> dict[str, float]:
    for service in (world.api, world.eks):
        service.calls.clear()
    began = world.now()
    world.check()
    seconds = (world.now() - began).total_seconds()
    return {"calls": len(world.api.calls), "eks_calls": len(world.eks.calls), "check_s": seconds}
