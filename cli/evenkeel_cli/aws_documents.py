"""Read what the AWS command line prints about Auto Scaling groups, scaling activities, node groups and instance types.

botocore's service models list the fields of an answer. So the values here are the ones that boto3 returns. Few plans
read answers of AWS, so the modules that read them are imported where an answer is read.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from evenkeel.adapters.auto_scaling.installers import clusters_of
from evenkeel.adapters.own_annotations import OWN
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import printable, quote
from evenkeel.record import ClusterPolicy
from evenkeel.validation import ConfigError

if TYPE_CHECKING:
    from evenkeel.adapters.auto_scaling.read import Member

# Field of an answer -> the service, and the operation that answers with it.
_ANSWERS = {
    "AutoScalingGroups": ("autoscaling", "DescribeAutoScalingGroups"),
    "Activities": ("autoscaling", "DescribeScalingActivities"),
    "nodegroup": ("eks", "DescribeNodegroup"),
    "InstanceTypes": ("ec2", "DescribeInstanceTypes"),
}
# Fields of other answers -> the command that prints them. No plan reads them.
_OTHER_ANSWERS = {
    "nodegroups": "aws eks list-nodegroups",
    "eksctl": "eksctl get nodegroup",
    "clusters": "aws eks list-clusters",
    "cluster": "aws eks describe-cluster",
    "Reservations": "aws ec2 describe-instances",
    "LaunchTemplates": "aws ec2 describe-launch-templates",
    "LaunchTemplateVersions": "aws ec2 describe-launch-template-versions",
    "Subnets": "aws ec2 describe-subnets",
    "AutoScalingInstances": "aws autoscaling describe-auto-scaling-instances",
    "LaunchConfigurations": "aws autoscaling describe-launch-configurations",
    "InstanceRefreshes": "aws autoscaling describe-instance-refreshes",
    "Tags": "aws autoscaling describe-tags",
    "Stacks": "aws cloudformation describe-stacks",
    "StackSummaries": "aws cloudformation list-stacks",
    "StackResources": "aws cloudformation describe-stack-resources",
    "StackResourceSummaries": "aws cloudformation list-stack-resources",
}
_GROUP_NAME = "AutoScalingGroupName"
# botocore's models require these fields, but no plan uses them.
_UNUSED = ("DefaultCooldown", "HealthCheckType", "ProtectedFromScaleIn", "Cause")
KIND = "AutoScalingGroup"
# EKS, kOps and eksctl set the first three. Cluster Autoscaler finds groups by the third.
_OF_CLUSTERS = ("eks:", "kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/", OWN)
_PAGES = ("NextToken", "nextToken")
_MOST_FAULTS = 50  # of one document
_TYPES: Mapping[str, tuple[type, str]] = {
    "structure": (Mapping, "no object: write it with named fields"),
    "map": (Mapping, "no object: write it with named fields"),
    "list": (list, "no list: write it as one"),
    "string": (str, "no text"),
    "integer": (int, "no whole number"),
    "long": (int, "no whole number"),
    "boolean": (bool, "neither true nor false"),
}


@dataclass(kw_only=True)
class AwsDocuments:
    """The answers of AWS that files contain."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    activities: list[dict[str, Any]] = field(default_factory=list)
    node_groups: list[dict[str, Any]] = field(default_factory=list)
    types: list[dict[str, Any]] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)  # the commands that printed other answers
    has_no_group: bool = False  # an answer about groups has none

    def add(self, document: Mapping[str, Any]) -> list[str]:
        """Add an answer of AWS. Return one line for each bad value. An answer with a bad value must not be used."""
        faults: list[str] = []
        if not any(name in document for name in _ANSWERS):
            known = [command for name, command in _OTHER_ANSWERS.items() if name in document]
            self.unused += [*known, f"another command ({', '.join(map(printable, map(str, document)))})"][:1]
            return faults
        for name, (service, operation) in _ANSWERS.items():
            if name in document:
                shape = _service(service).operation_model(operation).output_shape.members[name]
                value = _read(shape, document[name], name, faults)
                self._lists()[name].extend(value if isinstance(value, list) else [value])
        self.has_no_group |= document.get("AutoScalingGroups") == []
        if any(document.get(name) for name in _PAGES):
            faults.append("NextToken: the list goes on: print all of it, without --max-items and --no-paginate")
        more = len(faults) - _MOST_FAULTS
        return faults if more <= 0 else [*faults[:_MOST_FAULTS], f"{more} more values are bad"]

    def read(self, policy: ClusterPolicy, now: datetime) -> tuple[list["Member"], list[Skipped]]:
        """Return the node groups, and the skipped Auto Scaling groups with the reasons.

        Raises:
            ConfigError: The groups are of several accounts or Regions. A cluster has its groups in one.
        """
        from evenkeel.adapters.auto_scaling.read import Answers, read_groups

        arns = (str(group.get("AutoScalingGroupARN", "")).split(":") for group in self.groups)
        places = sorted({f"{arn[4]} {arn[3]}" for arn in arns if len(arn) > 4})
        if len(places) > 1:
            raise ConfigError([f"the Auto Scaling groups are of {', '.join(places)}: plan one account and Region"])
        groups: dict[str, dict[str, Any]] = {}
        skipped: list[Skipped] = []
        for group in self.groups:
            if groups.setdefault(group["AutoScalingGroupName"], group) is not group:
                reason = Reason.of(Rule.SECOND_COPY, kind="Auto Scaling group")
                skipped.append(Skipped(namespace="", name=group["AutoScalingGroupName"], reason=reason))
        self.groups = [*groups.values()]
        chosen = self.groups_of_clusters(policy)
        skipped += not_of_clusters(len(groups) - len(chosen))
        activities: dict[str, list[dict[str, Any]]] = {}
        for activity in self.activities:
            activities.setdefault(activity["AutoScalingGroupName"], []).append(activity)
        types = {str(each.get("InstanceType")): each for each in self.types}
        answers = Answers(activities=activities, node_groups=self.node_groups, types=types if self.types else None)
        members, others_skipped = read_groups(chosen, policy, now, answers)
        unknown = [one.name for one in members if one.group.waiting and one.name not in activities]
        if unknown:
            reason = Reason.of(Rule.ACTIVITIES_NOT_READ, count=len(unknown), name=shlex.quote(unknown[0]))
            skipped.append(Skipped(namespace="", name="Activities", reason=reason))
        return members, [*skipped, *others_skipped]

    def groups_of_clusters(self, policy: ClusterPolicy) -> list[dict[str, Any]]:
        """Return the groups that the record's discovery may match or, without discovery, those of clusters."""
        return [group for group in self.groups if policy.discovery or is_of_cluster(group)]

    def with_purchases(self, groups: Iterable[NodeGroup]) -> list[NodeGroup]:
        """Return the groups with a label that tells Spot from on demand, because no such groups are alike."""
        shares = {str(item[_GROUP_NAME]): _on_demand(item) for item in self.groups}
        return [
            _labelled(group, shares[group.key.name])
            if group.key.flavour == AUTO_SCALING and group.key.name in shares
            else group
            for group in groups
        ]

    def skipped(self) -> list[Skipped]:
        """Return the answers that add nothing to a plan."""
        unused = [Reason.of(Rule.UNUSED_ANSWER, command=command) for command in dict.fromkeys(self.unused)]
        if self.has_no_group and not self.groups:
            unused.append(Reason.of(Rule.NO_GROUP_ANSWERED))
        elif self.node_groups and not self.groups:
            groups = [each.get("resources", {}).get("autoScalingGroups", ()) for each in self.node_groups]
            names = sorted({shlex.quote(group["name"]) for of_one in groups for group in of_one if group.get("name")})
            unused.append(Reason.of(Rule.NODE_GROUPS_ALONE, count=len(self.node_groups), names=" ".join(names)))
        elif (self.activities or self.types) and not self.groups:
            unused.append(Reason.of(Rule.ANSWER_ALONE))
        return [Skipped(namespace="", name="answer of AWS", reason=reason) for reason in unused]

    def _lists(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "AutoScalingGroups": self.groups,
            "Activities": self.activities,
            "nodegroup": self.node_groups,
            "InstanceTypes": self.types,
        }


def _on_demand(item: Mapping[str, Any]) -> str:
    """Return the percentage of a group's instances that are on demand. AWS's default is 100."""
    distribution = (item.get("MixedInstancesPolicy") or {}).get("InstancesDistribution") or {}
    return str(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))


def _labelled(group: NodeGroup, on_demand: str) -> NodeGroup:
    node = group.template.node or NodeTemplate()
    node = replace(node, labels={**node.labels, "on-demand": on_demand})
    return replace(group, template=replace(group.template, node=node))


def is_of_cluster(group: Mapping[str, Any]) -> bool:
    """Return True if an Auto Scaling group has a tag of a Kubernetes cluster, its autoscaler, or Evenkeel."""
    from evenkeel.adapters.auto_scaling.read import tags_of

    tags = tags_of(group)
    return bool(clusters_of(tags)) or any(key.startswith(_OF_CLUSTERS) for key in tags)


def not_of_clusters(count: int) -> list[Skipped]:
    """Return the line about groups that have no tag of a cluster."""
    reason = Reason.of(Rule.NOT_OF_CLUSTER, count=count)
    return [Skipped(namespace="", name=KIND, reason=reason)] if count else []


def answer_of(document: object) -> Mapping[str, Any] | None:
    """Return a document that is an answer of AWS; None: it is none, such as an object of Kubernetes.

    ``--query AutoScalingGroups`` prints a list of groups, which is an answer without its first line.
    """
    items: list[Any] = document if isinstance(document, list) else [document]
    if not items:  # a query that no group matches
        return {"AutoScalingGroups": []}
    if isinstance(items[0], dict) and {"StackName", "NodeInstanceRoleARN"} <= items[0].keys():
        return {"eksctl": items}
    if all(isinstance(each, dict) and _GROUP_NAME in each for each in items):
        return {"Activities" if "ActivityId" in items[0] else "AutoScalingGroups": items}
    if not isinstance(document, Mapping) or "kind" in document or "apiVersion" in document:
        return None
    is_known = any(name in document for name in (*_ANSWERS, *_OTHER_ANSWERS))
    # Most services of AWS, and no other document of a plan, begin these names with a capital letter.
    return document if is_known or (document and all(str(name)[:1].isupper() for name in document)) else None


@cache
def _service(name: str) -> Any:
    from botocore.session import get_session  # takes 0.1 s of CPU

    return get_session().get_service_model(name)


def _read(shape: Any, value: Any, path: str, faults: list[str]) -> Any:
    """Return a value as boto3 returns it, without unknown fields. Add a line to ``faults`` for each bad value."""
    kind = shape.type_name
    if kind == "timestamp":
        return _moment(value, path, faults)
    expected, problem = _TYPES.get(kind, (None, ""))
    if expected is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        faults.append(f"{path} is {quote(value)}: {problem}")
        return value
    if kind == "structure":
        return dict(_members(shape, value, path, faults))
    if kind == "map":
        return {str(name): _read(shape.value, one, f"{path}.{name}", faults) for name, one in value.items()}
    if kind == "list":
        return [_read(shape.member, one, f"{path}[{number}]", faults) for number, one in enumerate(value)]
    return value


def _members(shape: Any, value: Mapping[str, Any], path: str, faults: list[str]) -> Iterator[tuple[str, Any]]:
    faults += [
        f"{path}.{name} is missing: print the whole answer of AWS, without --query"
        for name in shape.required_members
        if name not in _UNUSED and value.get(name) is None
    ]
    for name, member in shape.members.items():
        if value.get(name) is not None:
            yield name, _read(member, value[name], f"{path}.{name}", faults)


def _moment(value: Any, path: str, faults: list[str]) -> Any:
    """Return a time, which the command line prints in ISO 8601 or, in older versions, as seconds since 1970."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.replace(tzinfo=moment.tzinfo or UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        faults.append(f"{path} is {quote(value)}: no time in ISO 8601")
        return value
