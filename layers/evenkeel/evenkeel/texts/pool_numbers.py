"""Texts about PoolMinimum and PoolMaximum: their origin, the diff of a fix, and the command that applies the fix."""

import json

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import (
    UNNAMED,
    UNNAMED_BY_AWS,
    Bounds,
    NodeGroup,
    OwnerNumbers,
    OwnerRef,
    shoot_of_namespace,
)
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, OwnerShare, Source
from evenkeel.domain.rebalancing.membership.numbers import Change, Fix, Unfixable
from evenkeel.texts.english import MOST_NAMED, fill, in_words, some_names, texts

# The resources whose numbers are in a list, which a patch would replace as a whole.
_WITH_LISTS = {"Cluster": "cluster", "Rancher Cluster": "clusters.provisioning.cattle.io"}


def origin_text(origin: Origin) -> str:
    """Return where a pool's number comes from."""
    cap = origin.cut_by
    cut = "" if cap is None else f"; cut to {origin.value}: {cap.field} of {cap.ref} is {cap.nodes}"
    return _source(origin) + cut


def _source(origin: Origin) -> str:
    if origin.source is Source.ANNOTATION:
        flavour = origin.groups[0].key.flavour if origin.groups else ""
        names = some_names([object_text(group) for group in origin.groups])
        return f"{in_words('annotation', flavour)} {origin.field} on {names}"
    if origin.rule is not None:
        return f"the record's {'min' if origin.field == POOL_MIN else 'max'} for pool {origin.rule.name}"
    if origin.source is Source.ADOPTION:
        return "the sum of its members' bounds without Evenkeel's changes"
    if len(origin.owners) == 1 and not origin.groups:
        owner = origin.owners[0].owner
        return f"{_field(owner, origin)} of {owner.ref}"
    added = [f"{share.desired} ({share.owner.ref}{_entry(share.owner.ref)})" for share in origin.owners]
    rest = ["the bounds of members without an owner"] if origin.groups else []
    return f"the sum of {some_names([*added, *rest])}"


def _entry(ref: OwnerRef) -> str:
    return f", {ref.part}" if ref.part else ""


def _field(owner: OwnerNumbers, origin: Origin) -> str:
    return owner.min_field if origin.field == POOL_MIN else owner.max_field


def chain_text(origin: Origin) -> list[str]:
    """Return a sentence for each owner of a number, with the owner's value, the last writer and the reader.

    A scalable that owns both of its bounds gets only one sentence, among the sentences about PoolMaximum.
    """
    links = [_link(share, origin) for share in origin.owners[:MOST_NAMED]]
    if origin.source is Source.ANNOTATION or origin.field == POOL_MIN:
        return links
    return links + [_own_link(group, group.bounds) for group in origin.groups[:MOST_NAMED] if group.bounds is not None]


def _own_link(group: NodeGroup, bounds: Bounds) -> str:
    if group.owner.max_only:
        reader = "karpenter-provider-cluster-api reads it, and no min"
    else:
        reader = "cluster-autoscaler reads it" if group.owner.bounds_are_read else "no autoscaler reads it"
    by = "" if group.managers.bounds_by in (UNNAMED, UNNAMED_BY_AWS) else f", last set by {group.managers.bounds_by}"
    return f"{group.owner.bounds_field} is {bounds.max}{by}: {reader}."


def _link(share: OwnerShare, origin: Origin) -> str:
    owner = share.owner
    value = owner.bounds.min if origin.field == POOL_MIN else owner.bounds.max
    text = f"{_field(owner, origin)} of {owner.ref} is {value}"
    if value != share.desired:
        text += f", which Evenkeel wrote; its owner wants {share.desired}"
    if owner.set_by:
        text += f", last set by {owner.set_by}"
    if owner.besides:
        text += f" (beside it: {', '.join(f'{field} {value}' for field, value in owner.besides)})"
    return f"{text}: {texts()['readers'][owner.ref.kind]}."


def object_text(group: NodeGroup) -> str:
    """Return the kind, namespace and name of a group's object. An Auto Scaling group has no namespace."""
    if group.key.flavour == AUTO_SCALING:
        return f"Auto Scaling group {group.key.name}"
    return f"{group.identity.kind} {group.key.namespace}/{group.key.name}"


def diff(change: Change) -> tuple[str, ...]:
    """Return a change of PoolMaximum as the lines of a diff."""
    if change.group is not None:
        place, line = object_text(change.group), f'{POOL_MAX}: "{{}}"'
    elif change.owner is not None:
        place, line = str(change.owner.ref), f"{change.owner.max_field}: {{}}"
    else:
        place, line = f"record, pool {change.rule.name if change.rule else ''}", "max: {}"
    old_lines = () if change.before is None else (f"-{line.format(change.before)}",)
    return (f"--- {place}", f"+++ {place}", *old_lines, f"+{line.format(change.after)}")


def command_text(change: Change) -> str:
    """Return the kubectl command that changes a number in an owner that Evenkeel does not write to."""
    owner = change.owner
    if owner is None:
        raise ValueError("a change of an annotation or of the record needs no command")
    ref, after = owner.ref, change.after
    if (resource := _WITH_LISTS.get(ref.kind)) is not None:
        return f"kubectl --namespace {ref.namespace} edit {resource} {ref.name}  # {owner.max_field}: {after}"
    if ref.kind in ("Worker", "Shoot"):
        shoot, namespace = _shoot(ref)
        workers = {"provider": {"workers": [{"name": ref.part, "maximum": after}]}}
        return (
            f"kubectl --namespace {namespace} patch shoot {shoot} --type strategic {_spec(workers)}  # garden cluster"
        )
    spec: object = after
    for step in reversed(owner.max_field.removeprefix("spec.").split(".")):
        spec = {step: spec}
    return f"kubectl --namespace {ref.namespace} patch {ref.kind.lower()} {ref.name} --type merge {_spec(spec)}"


def _spec(spec: object) -> str:
    return f"--patch '{json.dumps({'spec': spec}, separators=(',', ':'))}'"


def _shoot(ref: OwnerRef) -> tuple[str, str]:
    """Return the name and the namespace of a Shoot.

    For a Worker, the Shoot's namespace is derived from the seed's namespace; otherwise, it is a placeholder.
    """
    if ref.kind == "Shoot":
        return ref.name, ref.namespace
    place = shoot_of_namespace(ref.namespace)
    return ref.name, "garden-<project>" if place is None else place[0]


def unfixable_text(fix: Fix) -> str:
    """Return why an operator must fix a fault; empty if Evenkeel can fix it."""
    reasons = texts()["unfixable"]
    if fix.unfixable in (Unfixable.AMBIGUOUS, Unfixable.CUT):
        return str(reasons[fix.unfixable.value])
    if fix.frozen is not None and fix.frozen.frozen_because is not None:
        return fill(reasons["frozen"], {"group": str(fix.frozen.key), "why": fix.frozen.frozen_because})
    return ""
