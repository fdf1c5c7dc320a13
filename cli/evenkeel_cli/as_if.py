"""Plan Auto Scaling groups as if they had the tags that a plan proposes, and print how to set these tags."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenkeel.adapters.auto_scaling.installers import EKS_NODE_GROUP
from evenkeel.adapters.own_annotations import POOL_LABEL, Reading, read_annotations
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel_cli.aws_names import KOPS_GROUP, STACK
from evenkeel_cli.proposals import Mark

Tags = Mapping[GroupKey, Mapping[str, str]]
"""The proposed tags by Auto Scaling group."""


def tags_of(marks: Iterable[Mark]) -> Tags:
    """Return the tags that these marks set on Auto Scaling groups."""
    tags: dict[GroupKey, dict[str, str]] = {}
    for mark in marks:
        for name in mark.names if mark.kind is None else ():
            tags.setdefault(GroupKey(AUTO_SCALING, mark.namespace, name), {}).update(
                {**mark.labels, **mark.annotations}
            )
    return tags


def with_tags(observation: Observation, tags: Tags) -> Observation:
    """Return the observation with these tags on its groups."""
    groups = (_tagged(group, tags.get(group.key, {})) for group in observation.groups)
    return replace(observation, groups=tuple(groups))


def _tagged(group: NodeGroup, new: Mapping[str, str]) -> NodeGroup:
    if not new:
        return group
    from evenkeel.adapters.auto_scaling.read import no_room  # few plans have Auto Scaling groups

    tags = {**group.identity.labels, **new}
    identity = replace(group.identity, labels=tags, pool_label=tags.get(POOL_LABEL))
    settings = read_annotations(tags, Reading(name=group.key.name))
    tagged = replace(group, identity=identity, annotations=settings)
    reason = no_room(tags)
    return tagged if reason is None else tagged.frozen(reason)


def mark_pools(document: Mapping[str, Any], plan: Plan, tags: Tags) -> None:
    """Add the proposed tags to each pool of a plan's document whose groups do not have them yet."""
    for shown, pool in zip(document["pools"], plan.pools, strict=True):
        proposed = [tags[planned.group.key] for planned in pool.groups if planned.group.key in tags]
        if proposed:
            shown["asIf"] = {"tags": {key: value for each in proposed for key, value in each.items()}}


def terraform(groups: Iterable[NodeGroup], tags: Tags) -> list[str]:
    """Return the lines that set the tags in Terraform.

    The provider's tag resource is only for groups that another service makes, as EKS does. In other groups, Terraform
    itself would remove such a tag, so that its resource for the group must set it. CloudFormation and kOps define
    groups without Terraform.
    """
    tags_before = {group.key: group.identity.labels for group in groups}
    of_eks: dict[str, dict[str, str]] = {}  # by the tag's key, its values by group
    others: dict[tuple[str, str], list[str]] = {}  # by the tag, the names of its groups
    for group, new in tags.items():
        if not tags_before[group].keys().isdisjoint((STACK, KOPS_GROUP)):
            continue
        for key, value in new.items():
            if EKS_NODE_GROUP in tags_before[group]:
                of_eks.setdefault(key, {})[group.name] = value
            else:
                others.setdefault((key, value), []).append(group.name)
    lines = [line for key, values in of_eks.items() for line in _resource(key, values)]
    for (key, value), names in others.items():
        lines += [f"# in resource aws_autoscaling_group of {', '.join(names)}", *_tag(key, _quoted(value))]
    return lines


def _resource(key: str, values: Mapping[str, str]) -> Sequence[str]:
    return [
        f'resource "aws_autoscaling_group_tag" "{key.replace(".", "_").replace("/", "_")}" {{',
        "  for_each = {",
        *(f"    {_quoted(group)} = {_quoted(value)}" for group, value in values.items()),
        "  }",
        "  autoscaling_group_name = each.key",
        *(f"  {line}" for line in _tag(key, "each.value")),
        "}",
    ]


def _tag(key: str, value: str) -> Sequence[str]:
    return [
        "tag {",
        f"  key                 = {_quoted(key)}",
        f"  value               = {value}",
        "  propagate_at_launch = false",
        "}",
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
