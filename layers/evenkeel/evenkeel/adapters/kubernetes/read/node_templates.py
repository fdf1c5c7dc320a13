"""From API objects to node templates: what the nodes of a group look like, as far as anybody says. Pure.

The stronger first: annotations ``capacity.cluster-autoscaler.kubernetes.io/*``, field by field; a running node of the
group; labels and taints of the scalable with the object that its flavour names. As Cluster Autoscaler does it:
cloudprovider/clusterapi clusterapi_unstructured.go (Labels, Taints, InstanceCapacity), OpenShift's
cloudprovider/openshift.

An amount of zero is as good as none, as it is for Cluster Autoscaler.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from evenkeel.adapters.kubernetes.flavours.base import ARCH_LABEL, OS_LABEL, Flavour, Reference
from evenkeel.adapters.kubernetes.objects import (
    Object,
    Reading,
    entries_of,
    get_path,
    mapping,
    name_of,
    read_amount,
    read_pieces,
    read_resources,
    string_map,
)
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.adapters.kubernetes.read.machines import ScalableId, scalable_of, scalables_of
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.offerings import Buyer, Offering
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.values import Fault, quote
from evenkeel.domain.rebalancing.membership.templates import merged, read_labels, read_taints

# What Cluster Autoscaler reads of a group's nodes (cloudprovider/clusterapi/clusterapi_utils.go:35-44).
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"

# Of AWS's cloud controller manager: the name of a zone that is the same in every account.
_ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
# Enough to mend an annotation by; one can hold a hundred thousand entries.
_NOTES_EACH = 3
# What Cluster Autoscaler takes where nobody says (clusterapi_nodegroup.go, buildGenericLabels; defaultMaxPods).
_USUAL = NodeTemplate(capacity={"pods": Fraction(110)}, labels={ARCH_LABEL: "amd64", OS_LABEL: "linux"})
# Taints that say how one node is doing, and nothing about the next.
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
)


@dataclass(frozen=True, kw_only=True)
class NodeSources:
    """What was read beside the scalables and their machines. Empty: nothing was."""

    # By API group, kind, namespace and name.
    templates: Mapping[tuple[str, str, str, str], Object] = field(default_factory=dict)
    kinds: Collection[tuple[str, str]] = ()  # API group and kind, listed whole: what is not among them does not exist
    nodes: Mapping[GroupKey, Object] = field(default_factory=dict)  # a running node of the group


def is_template(flavour: Flavour, group: str, version: str, kind: str) -> bool:
    """Whether objects of this kind can say what nodes of the flavour look like."""
    return flavour.node_template is not None and flavour.node_template.holds(group, version, kind)


def template_of(flavour: Flavour, scalable: Object) -> Reference | None:
    """The reference of a scalable; None where it has none that can be followed."""
    source = flavour.node_template
    return None if source is None else source.reference(get_path(scalable, source.path))


def described(member: GroupObjects, flavour: Flavour, sources: NodeSources) -> GroupObjects:
    """The group with its node template, and with what keeps it closed where it has no nodes."""
    reading = Reading(name=f"{member.group.kind} {member.group.key.namespace}/{member.group.key.name}")
    template = _annotated(member.scalable, flavour, reading)
    blind = bool(reading.faults)  # one amount that it cannot read, and Cluster Autoscaler takes none of them
    # The same group is described again when more has been read.
    group = replace(member.group, notes=tuple(dict.fromkeys((*member.group.notes, *reading.notes))))
    member = replace(member, group=group)
    reference = template_of(flavour, member.scalable)
    source = _source_of(member, flavour, sources)
    node = sources.nodes.get(group.key)
    if node is not None:
        template = merged(template, _of_node(node, reading))
    else:
        template = merged(template, _of_scalable(member.scalable, flavour))
        if source is not None and flavour.node_template is not None:
            template = merged(template, flavour.node_template.read(source, reading))
    is_known = bool(template.capacity or template.labels or template.taints)
    closed = is_empty(member) and (blind or not template.complete)
    if not is_known and not closed and not reading.faults:
        return member
    # Nobody else has anything to say: there is no other object, or it was read, or it would have been found.
    stated = get_path(member.scalable, flavour.node_template.path) if flavour.node_template else None
    listed = reference is not None and (reference.kind.group, reference.kind.kind) in sources.kinds
    settled = stated is None or source is not None or listed
    unseen = closed and flavour.discovers_groups and (blind or settled)
    why = _why_closed(template, reading.faults, unseen, None if settled else reference) if closed else None
    group = replace(
        group,
        template=merged(template, _USUAL) if is_known else None,
        template_faults=tuple(reading.faults),
        closed_because=why,
        invisible_at_zero=unseen,
    )
    return replace(member, group=group)


def with_offerings(
    members: Iterable[GroupObjects], asked: Collection[GroupKey], flavour: Flavour, sources: NodeSources, buyer: Buyer
) -> list[GroupObjects]:
    """The groups, with what those buy of which it is asked, as far as it is fully known."""
    return [
        replace(member, group=replace(member.group, offering=_offering(member, flavour, sources, buyer)))
        if member.group.key in asked
        else member
        for member in members
    ]


def _offering(member: GroupObjects, flavour: Flavour, sources: NodeSources, buyer: Buyer) -> Offering | None:
    said_by: Object | None = member.scalable
    if flavour.node_template is not None:
        said_by = _source_of(member, flavour, sources)
    bought = None if said_by is None else flavour.bought(said_by)
    node = sources.nodes.get(member.group.key)
    zone_id = None if node is None else string_map(get_path(node, ("metadata", "labels"))).get(_ZONE_ID_LABEL)
    return buyer.offering(bought, member.group.zone, zone_id)


def _source_of(member: GroupObjects, flavour: Flavour, sources: NodeSources) -> Object | None:
    """The object that the scalable refers to, where it was read."""
    reference = template_of(flavour, member.scalable)
    if reference is None:
        return None
    key = (reference.kind.group, reference.kind.kind, member.group.key.namespace, reference.name)
    return sources.templates.get(key)


def _annotated(scalable: Object, flavour: Flavour, reading: Reading) -> NodeTemplate:
    """What annotations say. Entries that are no labels or taints are noted, and change nothing."""
    annotations = mapping(get_path(scalable, ("metadata", "annotations")))
    capacity = _annotated_capacity(flavour, annotations, reading)
    labels, odd_labels = read_labels(_text(annotations.get(f"{CAPACITY}labels")))
    taints, odd_taints = read_taints(_text(annotations.get(f"{CAPACITY}taints")))
    reading.notes += [
        Fault(object=reading.name, field=CAPACITY + name, value=quote(annotations[CAPACITY + name]), problem=problem)
        for name, problems in (("labels", odd_labels), ("taints", odd_taints))
        for problem in problems[:_NOTES_EACH]
    ]
    reading.notes += [
        Fault(object=reading.name, field=name, value=quote(annotations[name]), problem=_UNSUPPORTED)
        for name in sorted(annotations)
        if name.startswith(CAPACITY) and name not in _SUPPORTED
    ][:_NOTES_EACH]
    is_annotated = bool(capacity or labels or taints)
    return NodeTemplate(capacity=capacity, labels=labels, taints=taints, source="annotations" if is_annotated else "")


def is_empty(member: GroupObjects) -> bool:
    """Whether the group has no nodes and wants none: only then can it be closed."""
    return member.group.requested == 0 and member.group.running == 0


def is_unseen(member: GroupObjects) -> bool:
    """Whether no node shows what the group's nodes are, and nothing that was read says their cpu and memory."""
    template = member.group.template
    return member.group.running == 0 and (template is None or not template.complete)


def needs_template(member: GroupObjects) -> bool:
    """Whether only another object can say if the group, which has no nodes, is seen by Cluster Autoscaler."""
    group = member.group
    complete = group.template is not None and group.template.complete
    return group.closed_because is not None and group.frozen_because is None and not complete


def running_nodes(
    flavour: Flavour, groups: Iterable[GroupObjects], machines: Iterable[Object], nodes: Iterable[Object]
) -> dict[GroupKey, Object]:
    """A ready node of each group that has one: the first by name, so that it is the same at every look.

    A node and its machine have the same ``spec.providerID``.
    """
    ready = {
        provider: node
        for node in nodes
        if isinstance(provider := get_path(node, ("spec", "providerID")), str) and provider and _is_ready(node)
    }
    nodes_of: dict[ScalableId, list[Object]] = defaultdict(list)
    for machine in machines:
        provider = get_path(machine, ("spec", "providerID"))
        if isinstance(provider, str) and provider in ready:
            for scalable in scalables_of(flavour, machine):
                nodes_of[scalable].append(ready[provider])
    scalables = {member.group.key: scalable_of(member.group) for member in groups}
    return {
        key: min(nodes_of[scalable], key=lambda node: name_of(node)[1])
        for key, scalable in scalables.items()
        if scalable in nodes_of
    }


def _is_ready(node: Object) -> bool:
    conditions = entries_of(node, ("status", "conditions"))
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _text(value: object) -> str:
    """The text of an annotation; nothing where there is none. The API allows no others than texts."""
    return "" if value is None else str(value)


_AMOUNTS: tuple[tuple[str, str, Callable[[object], Fraction]], ...] = (
    ("cpu", "cpu", read_amount),
    ("memory", "memory", read_amount),
    ("ephemeral-disk", "ephemeral-storage", read_amount),
    ("maxPods", "pods", read_pieces),
)


_SUPPORTED = frozenset(
    CAPACITY + name for name in (*(name for name, _, _ in _AMOUNTS), "gpu-count", "gpu-type", "labels", "taints")
)
_UNSUPPORTED = "Evenkeel does not support this annotation: pods that need what it promises get no node of this group"


def _annotated_capacity(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> dict[str, Fraction]:
    def read(name: str, reader: Callable[[object], Fraction]) -> Fraction | None:
        amount = reading.read(CAPACITY + name, annotations.get(CAPACITY + name) or None, reader)
        if amount or name not in flavour.older_capacity:
            return amount
        older, older_reader = flavour.older_capacity[name]
        return reading.read(older, annotations.get(older) or None, older_reader)

    capacity = {resource: amount for name, resource, reader in _AMOUNTS if (amount := read(name, reader))}
    gpus, gpu = read("gpu-count", read_pieces), annotations.get(f"{CAPACITY}gpu-type") or flavour.gpu
    if gpus and isinstance(gpu, str):
        capacity[gpu] = gpus
    return capacity


def _of_scalable(scalable: Object, flavour: Flavour) -> NodeTemplate:
    """The labels and taints that the scalable itself gives to its nodes."""
    domains = flavour.node_label_domains
    labels = {
        key: value
        for key, value in string_map(get_path(scalable, flavour.node_labels)).items()
        if not domains or any(_is_below(key.partition("/")[0], domain) for domain in domains)
    }
    return NodeTemplate(labels=labels, taints=_taints(get_path(scalable, flavour.node_taints)))


def _is_below(prefix: str, domain: str) -> bool:
    """Whether a label's prefix is the domain, or, where that begins with a dot, one below it."""
    return f".{prefix}".endswith(domain) if domain.startswith(".") else prefix == domain


def _taints(value: Any) -> tuple[Taint, ...]:
    entries = [string_map(entry) for entry in (value if isinstance(value, list) else [])]
    return tuple(
        Taint(entry["key"], entry.get("value", ""), entry["effect"])
        for entry in entries
        if "key" in entry and "effect" in entry and not entry["key"].startswith(_PASSING)
    )


def _of_node(node: Object, reading: Reading) -> NodeTemplate:
    reading = reading.of("Node", node)
    return NodeTemplate(
        capacity=read_resources("status.capacity", get_path(node, ("status", "capacity")), reading),
        allocatable=read_resources("status.allocatable", get_path(node, ("status", "allocatable")), reading) or None,
        labels=string_map(get_path(node, ("metadata", "labels"))),
        taints=_taints(get_path(node, ("spec", "taints"))),
        source=f"Node {name_of(node)[1]}",
    )


def _why_closed(template: NodeTemplate, faults: list[Fault], unseen: bool, unread: Reference | None) -> Reason:
    """Why a group without nodes cannot be opened, and which annotation would open it."""
    unreadable = {fault.field for fault in faults}
    missing = tuple(
        CAPACITY + resource
        for resource in ("cpu", "memory")
        if resource not in template.capacity and CAPACITY + resource not in unreadable
    )
    steps = tuple(Reason.of(Rule.UNREADABLE_VALUE, **vars(fault)) for fault in faults)
    if missing:
        steps = (*steps, Reason.of(Rule.ANNOTATE, annotations=missing))
    if unseen:
        return Reason.of(Rule.UNSEEN_AT_ZERO, steps=steps)
    if unread is not None:
        return Reason.of(Rule.UNREAD_AT_ZERO, steps=steps, object=str(unread))
    return Reason.of(Rule.UNKNOWN_AT_ZERO, steps=steps)
