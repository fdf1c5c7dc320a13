"""A cluster-autoscaler beside simulated Auto Scaling groups: a client carries out the orders of Evenkeel's model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation import aws_autoscaler as model
from evenkeel_cli.simulation.autoscaler_model import Demand, Flags

_NODE_GROUP_KEPT = timedelta(minutes=6)
_FAULTS = (ClientError, BotoCoreError)
_NEVER = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(kw_only=True)
class AwsAutoscaler:
    """The cluster-autoscaler of one cluster.

    ``client``: the simulated API, or a client of it. ``has_node`` returns whether an instance is a node now; None: the
    instances that were read in service are nodes. ``eks`` describes the managed node groups; None: it has no right to.
    """

    client: Any
    eks: Any = None
    names: Sequence[str]
    has_node: Callable[[str], bool] | None = None
    flags: Flags = field(default_factory=Flags)
    seed: int = 0
    demand: dict[tuple[str, str | None], int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = model.AwsAutoscaler(self.flags, seed=self.seed)
        self._observation = _Observation(autoscaler=self)

    @property
    def groups(self) -> list[model.NodeGroup]:
        """Return the groups as the last refresh has read them, and as own writes have changed them since."""
        return self.model.groups

    def step(self, now: datetime) -> None:
        """Run one loop."""
        self.errors = []
        self._observation.now = now
        self._carry_out(self.model.decide(now.timestamp(), self._observation))

    def refresh(self, now: datetime) -> None:
        """Read the groups."""
        self._observation.now = now
        self.model.refresh(now.timestamp(), self._observation)

    def set_size(self, group: model.NodeGroup, size: int, now: datetime) -> None:
        """Set the desired capacity."""
        self._carry_out(self.model.set_desired(group, size, now.timestamp()))

    def delete_placeholders(self, group: model.NodeGroup, now: datetime) -> None:
        """Give up the placeholders of a group, if its size is above the minimum."""
        self._carry_out(self.model.delete_placeholders(group, now.timestamp(), self._observation))

    def delete(self, group: model.NodeGroup, machine: model.Machine, now: datetime) -> None:
        """Delete an instance or a placeholder."""
        self._carry_out(self.model.delete(group, machine, now.timestamp(), self._observation))

    def _carry_out(self, orders: Iterator[model.Order]) -> None:
        for order in orders:
            try:
                match order:
                    case model.SetDesired(group, size):
                        self.client.set_desired_capacity(
                            AutoScalingGroupName=group, DesiredCapacity=size, HonorCooldown=False
                        )
                    case model.Terminate(_, instance):
                        self.client.terminate_instance_in_auto_scaling_group(
                            InstanceId=instance, ShouldDecrementDesiredCapacity=True
                        )
            except _FAULTS as error:
                self.errors.append(f"{order.group}: {error}")
                self.model.reject()


@dataclass(kw_only=True)
class _Observation:
    """What the autoscaler reads with its client. Errors of reads are added to its errors."""

    autoscaler: AwsAutoscaler
    now: datetime = _NEVER
    in_service: set[str] = field(default_factory=set)  # instances that have been read in service
    asked_at: dict[tuple[str, str], datetime] = field(default_factory=dict)  # EKS, by cluster and node group

    @property
    def demand(self) -> Demand:
        return self.autoscaler.demand

    def has_node(self, instance: str) -> bool:
        is_node = self.autoscaler.has_node
        return instance in self.in_service if is_node is None else is_node(instance)

    def groups(self) -> Sequence[model.AutoScalingGroup] | None:
        request: dict[str, Any] = {"AutoScalingGroupNames": list(self.autoscaler.names), "MaxRecords": 100}
        found: list[dict[str, Any]] = []
        while (answer := self._read("describe_auto_scaling_groups", **request)) is not None:
            found += answer["AutoScalingGroups"]
            if not answer.get("NextToken"):
                return [self._group(item) for item in found]
            request["NextToken"] = answer["NextToken"]
        return None

    def count_instances(self, group: str) -> int | None:
        answer = self._read("describe_auto_scaling_groups", AutoScalingGroupNames=[group])
        return None if answer is None else len(answer["AutoScalingGroups"][0]["Instances"])

    def activities(self, group: str) -> Sequence[model.Activity] | None:
        answer = self._read("describe_scaling_activities", AutoScalingGroupName=group)
        if answer is None:
            return None
        return [model.Activity(each["StartTime"].timestamp(), each["StatusCode"]) for each in answer["Activities"]]

    def _read(self, name: str, **request: Any) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = getattr(self.autoscaler.client, name)(**request)
        except _FAULTS as error:
            self.autoscaler.errors.append(str(error))
            return None
        return answer

    def _group(self, item: dict[str, Any]) -> model.AutoScalingGroup:
        name, tags = item["AutoScalingGroupName"], {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        instances = {one["InstanceId"]: one["LifecycleState"] for one in item["Instances"]}
        self.in_service |= {each for each, state in instances.items() if state == "InService"}
        is_managed = "eks:nodegroup-name" in tags
        if is_managed and not any(self.has_node(each) for each in instances):
            self._describe(tags["eks:cluster-name"], tags["eks:nodegroup-name"])
        return model.AutoScalingGroup(
            name=name,
            pool=tags.get("evenkeel.dev/pool", name),
            zone=item["AvailabilityZones"][0],
            desired=item["DesiredCapacity"],
            bounds=Bounds(item["MinSize"], item["MaxSize"]),
            instances=[model.Instance(each, state.startswith("Terminat")) for each, state in instances.items()],
            is_managed=is_managed,
        )

    def _describe(self, cluster: str, name: str) -> None:
        """Ask EKS for the labels of an empty node group. It is not asked sooner after an error."""
        eks = self.autoscaler.eks
        if eks is None or self.now - self.asked_at.get((cluster, name), _NEVER) < _NODE_GROUP_KEPT:
            return
        self.asked_at[cluster, name] = self.now
        with suppress(*_FAULTS):
            eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)
