"""A cluster autoscaler beside simulated Auto Scaling groups: the decisions of Evenkeel's model, CA's provider for AWS.

The provider (cloudprovider/aws/auto_scaling_groups.go) reads groups every 60 s and after its own deletions, and writes
the desired capacity as an absolute number, computed from the size that it has read. A desired capacity above the
instances becomes placeholders. Since 1.24, launches that failed after its own last write mark them as refused. To
delete any of them, it sets the desired capacity to the instances that are listed, or, before 1.30, to the size that it
has read without them. That number may be stale, and end instances in service.

Its defects are those of the provider: an activity that began before its own last write ends the search for refused
launches, and AWS lists activities in progress first. Instances that end are listed and have nodes; to delete one does
nothing, without an error. A read that fails ends the loop. Empty managed node groups are similar to no other group,
because their tag eks:nodegroup-name is a label of their template, for which EKS is asked every six minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation import autoscaler_model as model

_REFRESH, _NODE_GROUP_KEPT = timedelta(minutes=1), timedelta(minutes=6)
#: versions: refused launches are noticed; the instances are listed anew before placeholders are deleted; nodes that
#: others ordered are no longer upcoming
_NOTICES_REFUSALS, _LISTS_ANEW, _COUNTS_OWN = (1, 24), (1, 30), (1, 36)
_FAULTS = (ClientError, BotoCoreError)
_NEVER = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance, or a placeholder for one that is missing."""

    name: str
    created: float
    node: bool
    placeholder: bool = False


@dataclass(kw_only=True)
class NodeGroup:
    """A group as the last refresh has read it, and as own writes have changed it since."""

    key: str
    pool: str
    zone: str
    requested: int
    readable_bounds: Bounds | None
    machines: list[Machine]
    ending: frozenset[str] = frozenset()  # instances whose termination has begun
    refused: bool = False  # launches have failed since the last own write
    has_template: bool = True
    is_managed: bool = False

    @property
    def running(self) -> int:
        """Return the number of instances with a node."""
        return sum(machine.node for machine in self.machines)


@dataclass(kw_only=True)
class AwsAutoscaler:
    """The cluster-autoscaler of one cluster.

    ``client``: the simulated API, or a client of it. ``has_node`` returns whether an instance in service is a node.
    ``eks`` describes the managed node groups; None: it has no right to.
    """

    client: Any
    eks: Any = None
    names: Sequence[str]
    has_node: Callable[[str], bool] = lambda _instance: True
    version: tuple[int, int] = (1, 36)
    flags: model.Flags = field(default_factory=model.Flags)
    seed: int = 0
    demand: dict[tuple[str, str | None], int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        flags = replace(self.flags, counts_others=self.version < _COUNTS_OWN)
        self.model = model.ClusterAutoscaler[NodeGroup](flags, seed=self.seed, similar=_are_similar)
        self.groups: list[NodeGroup] = []
        self._read_at = _NEVER
        self._wrote_at: dict[str, datetime] = {}
        self._seen: dict[str, float] = {}
        self._nodes: set[str] = set()  # instances that have joined
        self._asked_at: dict[tuple[str, str], datetime] = {}  # EKS, by cluster and node group

    def step(self, now: datetime) -> None:
        """Run one loop."""
        self.errors = []
        if now - self._read_at >= _REFRESH:
            try:
                self.refresh(now)
            except _FAULTS as error:
                self.errors.append(str(error))
                return
        seconds = now.timestamp()
        for group in [group for group in self.groups if group.refused]:
            if self.model.has_order(group.key):
                for action in self.model.hear_refusal(group, _placeholders(group), seconds):
                    if isinstance(action, model.Decrease):
                        self._delete_placeholders(group, now)
            elif group.readable_bounds and group.requested - _placeholders(group) >= group.readable_bounds.min:
                self._delete_placeholders(group, now)
        for action in self.model.loop(self.groups, self.demand, seconds):
            match action:
                case model.Increase(group, nodes):
                    self.set_size(group, group.requested + nodes, now)
                case model.Delete(group, machine):
                    self._delete(group, machine, now)
                case model.Decrease(group) | model.Refused(group):
                    # DecreaseTargetSize counts placeholders as instances, and refuses (kubernetes/autoscaler#6128).
                    self.errors.append(f"{group.key}: size stays {group.requested}")

    def refresh(self, now: datetime) -> None:
        """Read bounds, desired capacities, instances and, for groups with placeholders, their activities."""
        request: dict[str, Any] = {"AutoScalingGroupNames": list(self.names), "MaxRecords": 100}
        found: list[dict[str, Any]] = []
        while True:
            answer = self.client.describe_auto_scaling_groups(**request)
            found += answer["AutoScalingGroups"]
            if not answer.get("NextToken"):
                break
            request["NextToken"] = answer["NextToken"]
        self.groups = [self._group(item, now) for item in found]
        self._read_at = now

    def _group(self, item: dict[str, Any], now: datetime) -> NodeGroup:
        name, desired = item["AutoScalingGroupName"], item["DesiredCapacity"]
        missing = [f"i-placeholder-{name}-{number}" for number in range(desired - len(item["Instances"]))]
        present = {one["InstanceId"]: one["LifecycleState"] for one in item["Instances"]}
        self._nodes |= {each for each, state in present.items() if state == "InService" and self.has_node(each)}
        ending = frozenset(each for each, state in present.items() if state.startswith("Terminat"))
        machines = [
            Machine(
                name=each,
                created=self._seen.setdefault(each, now.timestamp()),
                node=each in self._nodes,
                placeholder=each not in present,
            )
            for each in (*present, *missing)
        ]
        for each in [each for each in self._seen if each.startswith(f"i-placeholder-{name}-") and each not in missing]:
            del self._seen[each]
        tags = {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        is_managed = "eks:nodegroup-name" in tags
        if is_managed and not any(machine.node for machine in machines):
            self._describe(tags["eks:cluster-name"], tags["eks:nodegroup-name"], now)
        return NodeGroup(
            key=name,
            pool=tags.get("evenkeel.dev/pool", name),
            zone=item["AvailabilityZones"][0],
            requested=desired,
            readable_bounds=Bounds(item["MinSize"], item["MaxSize"]),
            machines=machines,
            ending=ending,
            is_managed=is_managed,
            refused=bool(missing) and self.version >= _NOTICES_REFUSALS and self._is_refused(name),
        )

    def _describe(self, cluster: str, name: str, now: datetime) -> None:
        """Ask EKS for the labels of an empty node group. It is not asked sooner after an error."""
        if self.eks is None or now - self._asked_at.get((cluster, name), _NEVER) < _NODE_GROUP_KEPT:
            return
        self._asked_at[cluster, name] = now
        with suppress(*_FAULTS):
            self.eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)

    def _is_refused(self, name: str) -> bool:
        try:
            activities = self.client.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]
        except _FAULTS:
            return False
        own = self._wrote_at.get(name, _NEVER)  # after a restart, any old failure counts
        for activity in activities:
            if activity["StartTime"] < own:
                return False
            if activity["StatusCode"] == "Failed":
                return True
        return False

    def set_size(self, group: NodeGroup, size: int, now: datetime) -> bool:
        """Set the desired capacity. Return False if AWS refuses."""
        try:
            self.client.set_desired_capacity(AutoScalingGroupName=group.key, DesiredCapacity=size, HonorCooldown=False)
        except _FAULTS as error:
            self.errors.append(f"{group.key}: {error}")
            return False
        self._wrote_at[group.key] = now
        group.requested = size
        return True

    def _delete_placeholders(self, group: NodeGroup, now: datetime) -> None:
        size = group.requested - _placeholders(group)
        if self.version >= _LISTS_ANEW:
            try:
                answer = self.client.describe_auto_scaling_groups(AutoScalingGroupNames=[group.key])
            except _FAULTS as error:
                self.errors.append(f"{group.key}: {error}")
                return
            size = len(answer["AutoScalingGroups"][0]["Instances"])
        if self.set_size(group, size, now):
            group.machines = [machine for machine in group.machines if not machine.placeholder]
            group.refused = False
        self._read_at = _NEVER

    def _delete(self, group: NodeGroup, machine: model.Machine, now: datetime) -> None:
        if machine.name.startswith("i-placeholder-"):
            self._delete_placeholders(group, now)
            return
        if machine.name in group.ending:
            self._read_at = _NEVER
            return
        try:
            self.client.terminate_instance_in_auto_scaling_group(
                InstanceId=machine.name, ShouldDecrementDesiredCapacity=True
            )
        except _FAULTS as error:
            self.errors.append(f"{group.key}: {error}")
            return
        group.requested -= 1
        group.machines = [other for other in group.machines if other.name != machine.name]
        self._read_at = _NEVER


def _placeholders(group: NodeGroup) -> int:
    return sum(machine.placeholder for machine in group.machines)


def _are_similar(group: NodeGroup, other: NodeGroup) -> bool:
    return not any(each.is_managed and not each.running for each in (group, other))
