"""Plan an Auto Scaling group that spans zones as if each zone had a group of its own, and say how to split it.

Such a group has one desired capacity and one minimum and maximum, so Evenkeel cannot direct its nodes to a zone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenkeel.adapters.auto_scaling.installers import EKS_NODE_GROUP, control_plane_tag
from evenkeel.adapters.auto_scaling.read import Described, instances_of, read_groups, tags_of
from evenkeel.adapters.own_annotations import OWN, POOL_LABEL
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel_cli.aws_names import KOPS_GROUP, STACK, is_called_other, plain_name
from evenkeel_cli.cluster_file import ClusterFile

_LONGEST_VALUE = 63
_HOW = {
    EKS_NODE_GROUP: "create one managed node group for each zone, with one subnet "
    "(aws eks create-nodegroup --subnets SUBNET; terraform-aws-eks: one of eks_managed_node_groups for each of "
    "subnet_ids; eksctl: one of managedNodeGroups with availabilityZones: [ZONE])",
    "alpha.eksctl.io/nodegroup-name": "create one of nodeGroups for each zone, with availabilityZones: [ZONE]",
    KOPS_GROUP: "create one InstanceGroup for each zone, with one of spec.subnets",
    STACK: "create one AWS::AutoScaling::AutoScalingGroup for each zone, with one subnet in VPCZoneIdentifier",
}
_HOW_ELSE = "create one group for each zone, with one subnet (Terraform: vpc_zone_identifier)"


@dataclass(frozen=True)
class SplitGroup:
    """A group over several zones, the document of its pool if it were split, and how to split it."""

    name: str
    pool_id: str
    pool: Mapping[str, Any]
    how: str


def split_groups(described: Iterable[Described], policy: ClusterFile, now: datetime) -> Iterator[SplitGroup]:
    """Yield the groups that span zones, each planned as if it were split."""
    for item in described:
        name, tags = str(item["AutoScalingGroupName"]), tags_of(item)
        is_other = control_plane_tag(name, tags) or is_called_other(name, tags)
        if len(item.get("AvailabilityZones") or ()) < 2 or is_other:
            continue
        members, _ = read_groups(list(_parts(item, tags)), policy, now)
        planned = plan(Observation(groups=tuple(each.group for each in members)), ClusterState(), policy.policy(), now)
        for shown, pool in zip(plan_json(planned)["pools"], planned.pools, strict=True):
            how = next((text for key, text in _HOW.items() if key in tags), _HOW_ELSE)
            yield SplitGroup(name, str(pool.id), {**shown, "asIf": {"splitByZone": name}}, how)


def _parts(group: Described, tags: Mapping[str, str]) -> Iterator[Described]:
    """Yield one group for each zone, with the instances of the zone, and an equal part of the bounds."""
    name, zones = str(group["AutoScalingGroupName"]), sorted(group["AvailabilityZones"])
    arn = str(group.get("AutoScalingGroupARN") or "").split(":")
    region = arn[3] if len(arn) > 3 else ""
    pool = re.sub(r"[^\w.-]", "-", plain_name(name, tags))[:_LONGEST_VALUE].strip("-._") or "workers"
    others = {key: value for key, value in tags.items() if not key.startswith(OWN)}
    nodes = _nodes(group, zones)
    for number, zone in enumerate(zones):
        yield {
            **group,
            "AutoScalingGroupName": f"{pool}-{zone.removeprefix(region).strip('-')}",
            "AvailabilityZones": [zone],
            "DesiredCapacity": nodes[zone],
            "MinSize": _part(group["MinSize"], number, len(zones)),
            "MaxSize": max(_part(group["MaxSize"], number, len(zones)), nodes[zone]),
            "Instances": [each for each in group.get("Instances") or () if each.get("AvailabilityZone") == zone],
            "Tags": [{"Key": key, "Value": value} for key, value in {**others, POOL_LABEL: pool}.items()],
        }


def _part(number: int, place: int, parts: int) -> int:
    return number // parts + (place < number % parts)


def _nodes(group: Described, zones: Iterable[str]) -> dict[str, int]:
    """Return the desired instances by zone. AWS launches what is missing in the emptiest zones."""
    running = [each.get("AvailabilityZone") for each in instances_of(group)]
    nodes = {zone: running.count(zone) for zone in zones}
    for _ in range(group["DesiredCapacity"] - sum(nodes.values())):
        nodes[min(nodes, key=lambda zone: (nodes[zone], zone))] += 1
    return nodes
