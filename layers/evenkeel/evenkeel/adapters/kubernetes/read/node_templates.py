"""Reads node templates, which describe the nodes of a group. Pure.

For each field, the first of these sources that has a value is used: annotations
``capacity.cluster-autoscaler.kubernetes.io/*``; a running node of the group; the scalable's labels and taints, with the
template object that the scalable refers to. Cluster Autoscaler reads the same sources (cloudprovider/clusterapi
clusterapi_unstructured.go: Labels, Taints, InstanceCapacity; OpenShift's cloudprovider/openshift).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from evenkeel.adapters.kubernetes.flavours.base import ARCH_LABEL, OS_LABEL, Flavour, Reference
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import (
    Object,
    annotations_of,
    condition_of,
    get_path,
    labels_of,
    name_of,
    read_pieces,
    read_resources,
    string_map,
)
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.adapters.kubernetes.read.machines import ScalableId, scalable_of, scalables_of
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.values import Fault, quote
from evenkeel.domain.rebalancing.membership.quantities import read_amount
from evenkeel.domain.rebalancing.membership.templates import merged, read_labels, read_taints

# The prefix of annotations by which Cluster Autoscaler reads a group's node template
# (cloudprovider/clusterapi/clusterapi_utils.go:35-44).
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
# The largest number of notes about one annotation, which can contain a hundred thousand entries.
_MAX_NOTES = 3
# Cluster Autoscaler's defaults (clusterapi_nodegroup.go, buildGenericLabels; defaultMaxPods).
_USUAL = NodeTemplate(capacity={"pods": Fraction(110)}, labels={ARCH_LABEL: "amd64", OS_LABEL: "linux"})
# The prefixes of taints that describe the present state of one node. A new node of the group does not have such taints.
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
)
# Each entry has the end of an annotation's name (after CAPACITY), the resource, and the function that reads the amount.
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


@dataclass(frozen=True, kw_only=True)
class NodeSources:
    """The objects that were read besides the scalables and their machines."""

    # Template objects by API group, kind, namespace and name.
    templates: Mapping[tuple[str, str, str, str], Object] = field(default_factory=dict)
    # API group and kind of each complete list. An object of these kinds that was not read does not exist.
    kinds: Collection[tuple[str, str]] = ()
    nodes: Mapping[GroupKey, Object] = field(default_factory=dict)  # a running node of the group


def is_template(flavour: Flavour, group: str, version: str, kind: str) -> bool:
    """Return True where objects of this kind can describe nodes of the flavour."""
    return flavour.nodes.template is not None and flavour.nodes.template.holds(group, version, kind)


def template_of(flavour: Flavour, scalable: Object) -> Reference | None:
    """Return the scalable's reference to a template, or None where it has no reference that can be followed."""
    source = flavour.nodes.template
    return None if source is None else source.reference(get_path(scalable, source.path))


def described(member: GroupObjects, flavour: Flavour, sources: NodeSources) -> GroupObjects:
    """Return the group with its node template. Sets ``closed_because`` if an empty group's cpu or memory is unknown."""
    reading = Reading(name=f"{member.group.identity.kind} {member.group.key.namespace}/{member.group.key.name}")
    template = _annotated(member.scalable, flavour, reading)
    blind = bool(reading.faults)  # if one amount is not valid, Cluster Autoscaler uses none of the amounts
    # This function is called a second time for a group after further objects are read, so it does not repeat notes.
    group = replace(
        member.group,
        unreadable=replace(
            member.group.unreadable, notes=tuple(dict.fromkeys((*member.group.unreadable.notes, *reading.notes)))
        ),
    )
    member = replace(member, group=group)
    reference = template_of(flavour, member.scalable)
    source = _source_of(member, flavour, sources)
    node = sources.nodes.get(group.key)
    if node is not None:
        template = merged(template, _of_node(node, reading))
    else:
        template = merged(template, _of_scalable(member.scalable, flavour))
        if source is not None and flavour.nodes.template is not None:
            template = merged(template, flavour.nodes.template.read(source, reading))
    is_known = bool(template.capacity or template.labels or template.taints)
    closed = is_empty(member) and (blind or not template.complete)
    if not is_known and not closed and not reading.faults:
        return member
    # ``is_certain`` is True in three cases: the scalable refers to no template object, that object was read, or a
    # complete list shows that the object does not exist.
    stated = get_path(member.scalable, flavour.nodes.template.path) if flavour.nodes.template else None
    listed = reference is not None and (reference.kind.group, reference.kind.kind) in sources.kinds
    is_certain = stated is None or source is not None or listed
    unseen = closed and flavour.autoscaler.discovers_groups and (blind or is_certain)
    reason = _closed_because(template, reading.faults, unseen, None if is_certain else reference) if closed else None
    described = replace(
        group.template,
        node=_with_usual_values(template) if is_known else None,
        faults=tuple(reading.faults),
        closed_because=reason,
        invisible_at_zero=unseen,
    )
    group = replace(group, template=described)
    return replace(member, group=group)


def _with_usual_values(template: NodeTemplate) -> NodeTemplate:
    usual = {*_USUAL.labels, *_USUAL.capacity} - {*template.labels, *template.capacity}
    return replace(merged(template, _USUAL), assumed=frozenset(usual))


def _source_of(member: GroupObjects, flavour: Flavour, sources: NodeSources) -> Object | None:
    """Return the object that the scalable refers to, where it was read."""
    reference = template_of(flavour, member.scalable)
    if reference is None:
        return None
    key = (reference.kind.group, reference.kind.kind, member.group.key.namespace, reference.name)
    return sources.templates.get(key)


def _annotated(scalable: Object, flavour: Flavour, reading: Reading) -> NodeTemplate:
    """Return the node template in annotations. An entry that is no label or taint becomes a note."""
    annotations = annotations_of(scalable)
    capacity = _annotated_capacity(flavour, annotations, reading)
    labels, odd_labels = read_labels(_text(annotations.get(f"{CAPACITY}labels")))
    taints, odd_taints = read_taints(_text(annotations.get(f"{CAPACITY}taints")))
    for name, problems in (("labels", odd_labels), ("taints", odd_taints)):
        for problem in problems[:_MAX_NOTES]:
            reading.note(CAPACITY + name, quote(annotations[CAPACITY + name]), problem)
    unsupported = [name for name in sorted(annotations) if name.startswith(CAPACITY) and name not in _SUPPORTED]
    for name in unsupported[:_MAX_NOTES]:
        reading.note(name, quote(annotations[name]), _UNSUPPORTED)
    is_annotated = bool(capacity or labels or taints)
    return NodeTemplate(capacity=capacity, labels=labels, taints=taints, source="annotations" if is_annotated else "")


def is_empty(member: GroupObjects) -> bool:
    """Return True where the group has no nodes and requests none. Only such a group can have ``closed_because``."""
    return member.group.requested == 0 and member.group.running == 0


def is_unseen(member: GroupObjects) -> bool:
    """Return True where the group has no node, and no object names the cpu and memory of its nodes."""
    template = member.group.template.node
    return member.group.running == 0 and (template is None or not template.complete)


def needs_template(member: GroupObjects) -> bool:
    """Return True for an empty group if only its template object can show whether Cluster Autoscaler sees it."""
    group = member.group
    complete = group.template.node is not None and group.template.node.complete
    return group.template.closed_because is not None and group.frozen_because is None and not complete


def running_nodes(
    flavour: Flavour, groups: Iterable[GroupObjects], machines: Iterable[MachineObject], nodes: Iterable[Object]
) -> dict[GroupKey, Object]:
    """Return a ready node of each group that has one: the first by name, so that all checks choose the same node.

    A node and its machine have the same ``spec.providerID``.
    """
    ready = {
        provider: node
        for node in nodes
        if isinstance(provider := get_path(node, ("spec", "providerID")), str) and provider and _is_ready(node)
    }
    nodes_of: dict[ScalableId, list[Object]] = defaultdict(list)
    for machine in machines:
        provider = machine.spec.provider_id
        if provider in ready:
            for scalable in scalables_of(flavour, machine):
                nodes_of[scalable].append(ready[provider])
    scalables = {member.group.key: scalable_of(member.group) for member in groups}
    return {
        key: min(nodes_of[scalable], key=lambda node: name_of(node)[1])
        for key, scalable in scalables.items()
        if scalable in nodes_of
    }


def _is_ready(node: Object) -> bool:
    condition = condition_of(node, ("status", "conditions"), "Ready")
    return condition is not None and condition.get("status") == "True"


def _text(value: object) -> str:
    """Return an annotation's text, empty where it is missing. In a file, its value may have another type."""
    return "" if value is None else str(value)


def _annotated_capacity(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> dict[str, Fraction]:
    def read(name: str, reader: Callable[[object], Fraction]) -> Fraction | None:
        amount = reading.read(CAPACITY + name, annotations.get(CAPACITY + name) or None, reader)
        if amount or name not in flavour.nodes.older_capacity:
            return amount
        older, older_reader = flavour.nodes.older_capacity[name]
        return reading.read(older, annotations.get(older) or None, older_reader)

    capacity = {resource: amount for name, resource, reader in _AMOUNTS if (amount := read(name, reader))}
    gpus, gpu = read("gpu-count", read_pieces), annotations.get(f"{CAPACITY}gpu-type") or flavour.nodes.gpu
    if gpus and isinstance(gpu, str):
        capacity[gpu] = gpus
    return capacity


def _of_scalable(scalable: Object, flavour: Flavour) -> NodeTemplate:
    """Return the labels and taints that the scalable gives to its nodes."""
    domains = flavour.nodes.label_domains
    labels = {
        key: value
        for key, value in string_map(get_path(scalable, flavour.nodes.labels)).items()
        if not domains or any(_is_below(key.partition("/")[0], domain) for domain in domains)
    }
    return NodeTemplate(labels=labels, taints=_taints(get_path(scalable, flavour.nodes.taints)))


def _is_below(prefix: str, domain: str) -> bool:
    """Return True where a label's prefix is the domain. A domain with a leading dot includes its subdomains."""
    return f".{prefix}".endswith(domain) if domain.startswith(".") else prefix == domain


def _taints(value: Any) -> tuple[Taint, ...]:
    entries = [string_map(entry) for entry in (value if isinstance(value, list) else [])]
    return tuple(
        Taint(entry["key"], entry.get("value", ""), entry["effect"])
        for entry in entries
        if "key" in entry and "effect" in entry and not entry["key"].startswith(_PASSING)
    )


def _of_node(node: Object, reading: Reading) -> NodeTemplate:
    reading = reading.of("Node", *name_of(node))
    return NodeTemplate(
        capacity=read_resources("status.capacity", get_path(node, ("status", "capacity")), reading),
        allocatable=read_resources("status.allocatable", get_path(node, ("status", "allocatable")), reading) or None,
        labels=labels_of(node),
        taints=_taints(get_path(node, ("spec", "taints"))),
        source=f"Node {name_of(node)[1]}",
    )


def _closed_because(template: NodeTemplate, faults: list[Fault], unseen: bool, unread: Reference | None) -> Reason:
    """Return the reason why an empty group must not grow, with the annotations that would let it grow."""
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
