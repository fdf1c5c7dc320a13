"""An EKS cluster for the demo: a managed node group in each zone, on the simulated Auto Scaling API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from unittest.mock import patch

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.demo.stage import Side
from sandbox.kube.cloud import Cloud, subnet_in
from sandbox.kube.world import REGION, GroupView, Pool

WRITES = ("UpdateAutoScalingGroup", "SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup")


class EksCluster(AbstractContextManager["EksCluster"]):
    """The cluster. Inside the `with` block boto3 calls its API instead of AWS."""

    def __init__(self, name: str, pool: Pool, now: datetime) -> None:
        self.name, self._pool = name, pool
        self.cloud = Cloud(zones=pool.zones)
        self.api = AutoScaling(self.cloud, clock=VirtualClock(now - timedelta(minutes=5)), region=REGION)
        self.node_groups = NodeGroups(self.api)
        self.events: list[Mapping[str, Any]] = []
        self._server = AwsServer(lambda _key, _region: {"autoscaling": self.api, "eks": self.node_groups})
        self._groups = [self._create(zone, nodes) for zone, nodes in zip(pool.zones, pool.replicas, strict=True)]
        self.api.clock.step(now)
        self.api.log.listeners.append(self.events.append)
        self._stack = ExitStack()

    def _create(self, zone: str, nodes: int) -> str:
        """Create a node group, and give its Auto Scaling group the tags of the pool."""
        named = {"clusterName": self.name, "nodegroupName": f"{self._pool.name}-{zone[-1]}"}
        share = self._pool.maximum // len(self._pool.zones)
        sizes = {"minSize": 0, "desiredSize": nodes, "maxSize": share}
        role = "arn:aws:iam::123456789012:role/nodes"
        self.node_groups.create_nodegroup(subnets=[subnet_in(zone)], nodeRole=role, scalingConfig=sizes, **named)
        node_group = self.node_groups.describe_nodegroup(**named)["nodegroup"]
        group: str = node_group["resources"]["autoScalingGroups"][0]["name"]
        values = {"pool": self._pool.name, "pool-min": self._pool.minimum, "pool-max": self._pool.maximum}
        tag = {"ResourceId": group, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        tags = [{**tag, "Key": f"evenkeel.dev/{key}", "Value": str(value)} for key, value in values.items()]
        self.api.create_or_update_tags(Tags=tags)
        self.api.calls.clear()
        return group

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._server)
            stack.enter_context(patch.dict(os.environ, self._server.environment()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self, now: datetime) -> list[Any]:
        """Move AWS to this time, and return its new events."""
        with self.api.clock.lock:
            self.api.clock.step(now)
            events, self.events[:] = [*self.events], []
        return [json.loads(json.dumps(event)) for event in events]

    def groups(self) -> list[GroupView]:
        """Return the node groups, by zone."""
        with self.api.clock.lock:
            found = [self.api.groups.by_name[name] for name in self._groups]
            return [
                GroupView(
                    cluster=self.name,
                    pool=self._pool.name,
                    namespace=REGION,
                    name=group.name,
                    zone=zone,
                    requested=group.desired,
                    running=sum(instance.state == "InService" for instance in group.instances.values()),
                    minimum=group.minimum,
                    maximum=group.maximum,
                    annotations=dict(group.tags),
                )
                for group, zone in zip(found, self._pool.zones, strict=True)
            ]

    def writes(self) -> Iterator[str]:
        """Yield the calls that changed bounds or sizes. Nothing but Evenkeel makes them."""
        return (name for name, _ in self.api.calls if name in WRITES)


@dataclass
class EksSide(Side):
    """The EKS cluster of the demo. Its pods are a number: each needs a node."""

    cluster: Any
    pods: int = 0

    def pending(self) -> int:
        """Return the number of pending pods."""
        return max(0, self.pods - sum(view.running for view in self.cluster.groups()))

    def patches(self) -> int:
        """Return the number of Evenkeel's writes."""
        return sum(1 for _ in self.cluster.writes())
