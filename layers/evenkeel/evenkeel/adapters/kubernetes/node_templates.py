"""From API objects to node templates: what the nodes of a group look like, as far as anybody says. Pure.

The stronger first: annotations ``capacity.cluster-autoscaler.kubernetes.io/*``, field by field; a running node of the
group; labels and taints of the scalable with the infrastructure template's ``status`` (Cluster API) or the
MachineClass's ``nodeTemplate`` (Gardener). As Cluster Autoscaler does it: cloudprovider/clusterapi
clusterapi_unstructured.go (Labels, Taints, InstanceCapacity), OpenShift's cloudprovider/openshift, Gardener's
mcm_manager.go (GetMachineDeploymentNodeTemplate).

An amount of zero is as good as none, as it is for Cluster Autoscaler.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from evenkeel.adapters.kubernetes.flavours import CAPACITY, Flavour, Kind
from evenkeel.adapters.kubernetes.readers import (
    Found,
    Object,
    Owner,
    Reading,
    get_path,
    mapping,
    name_of,
    owner_of,
    owners_of,
    string_map,
)
from evenkeel.domain.membership.quantities import read_quantity
from evenkeel.domain.membership.templates import merged, read_labels, read_taints
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.values import BadValueError, Fault, shown

NODE = Kind("", ("v1",), "Node", "nodes")

# Enough to mend an annotation by; one can hold a hundred thousand entries.
_NOTES_EACH = 3
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MEBIBYTE = 2**20
_ARCH, _OS = "kubernetes.io/arch", "kubernetes.io/os"
# What Cluster Autoscaler takes where nobody says (clusterapi_nodegroup.go, buildGenericLabels; defaultMaxPods).
_USUAL = NodeTemplate(capacity={"pods": Fraction(110)}, labels={_ARCH: "amd64", _OS: "linux"})
# Taints that say how one node is doing, and nothing about the next.
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
)
# A reference names the kind that is listed: nothing but a template of a named API group is ever read for it.
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+", re.ASCII)
_VERSION = re.compile(r"v[0-9]+([a-z]+[0-9]+)?", re.ASCII)
_TEMPLATE = re.compile(r"[A-Z][A-Za-z0-9]*MachineTemplate", re.ASCII)


@dataclass(frozen=True)
class Reference:
    """The object that says what a group's nodes look like. It stands in the group's own namespace."""

    kind: Kind  # without versions: any that is served
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What was read beside the scalables and their machines. Empty: nothing was."""

    # By API group, kind, namespace and name.
    templates: Mapping[tuple[str, str, str, str], Object] = field(default_factory=dict)
    kinds: Collection[tuple[str, str]] = ()  # API group and kind, listed whole: what is not among them does not exist
    nodes: Mapping[GroupKey, Object] = field(default_factory=dict)  # a running node of the group


def is_template(flavour: Flavour, group: str, version: str, kind: str) -> bool:
    """Whether objects of this kind can say what nodes of the flavour look like."""
    if flavour.template is not None:
        return (group, kind) == (flavour.template.group, flavour.template.kind) and version in flavour.template.versions
    return flavour.template_path is not None and bool(_GROUP.fullmatch(group) and _TEMPLATE.fullmatch(kind))


def template_of(flavour: Flavour, scalable: Object) -> Reference | None:
    """The reference of a scalable, in both of Cluster API's styles; None where it has none that can be followed."""
    found = get_path(scalable, flavour.template_path) if flavour.template_path else None
    kind, name = get_path(found, ("kind",)), get_path(found, ("name",))
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        return None
    if flavour.template is not None:
        return Reference(flavour.template, name) if kind == flavour.template.kind else None
    group, _, version = str(get_path(found, ("apiVersion",)) or "").rpartition("/")  # v1beta1: an ObjectReference
    group = get_path(found, ("apiGroup",)) or group
    if not isinstance(group, str) or not _GROUP.fullmatch(group) or not _TEMPLATE.fullmatch(kind):
        return None
    # Lower case and an s: what Cluster API's contract demands of its providers.
    versions = (version,) if _VERSION.fullmatch(version) else ()
    return Reference(Kind(group, versions, kind, f"{kind.lower()}s", optional=True), name)


def described(one: Found, flavour: Flavour, looked: Looked) -> Found:
    """The group with its node template, and with what keeps it closed where it has no nodes."""
    item, group = one.scalable, one.group
    annotations = mapping(get_path(item, ("metadata", "annotations")))
    reading = Reading(name=f"{group.kind} {group.key.namespace}/{group.key.name}")
    capacity = _annotated_capacity(flavour, annotations, reading)
    blind = bool(reading.faults)  # one amount that it cannot read, and Cluster Autoscaler takes none of them
    labels, odd_labels = read_labels(_text(annotations.get(f"{CAPACITY}labels")))
    taints, odd_taints = read_taints(_text(annotations.get(f"{CAPACITY}taints")))
    notes = [
        Fault(object=reading.name, field=CAPACITY + name, value=shown(annotations[CAPACITY + name]), problem=problem)
        for name, problems in (("labels", odd_labels), ("taints", odd_taints))
        for problem in problems[:_NOTES_EACH]
    ]
    # The same group is described again when more has been read.
    group = replace(group, notes=tuple(dict.fromkeys((*group.notes, *notes))))
    one = replace(one, group=group)
    said = bool(capacity or labels or taints)
    template = NodeTemplate(capacity=capacity, labels=labels, taints=taints, source="annotations" if said else "")
    reference = template_of(flavour, item)
    source = looked.templates.get(_key(reference, one)) if reference else None
    node = looked.nodes.get(group.key)
    if node is not None:
        template = merged(template, _of_node(node, reading))
    else:
        own = NodeTemplate(labels=_own_labels(flavour, item), taints=_taints(get_path(item, flavour.node_taints)))
        template = merged(template, own)
        if source is not None:
            read = _of_machine_class if flavour.template is not None else _of_infrastructure
            template = merged(template, read(source, reading))
    known = bool(template.capacity or template.labels or template.taints)
    closed = is_empty(one) and (blind or not template.complete)
    if not known and not closed and not reading.faults:
        return one
    # Nobody else has anything to say: there is no other object, or it was read, or it would have been found.
    stated = get_path(item, flavour.template_path) if flavour.template_path else None
    listed = reference is not None and (reference.kind.group, reference.kind.kind) in looked.kinds
    settled = stated is None or source is not None or listed
    unseen = closed and flavour.discovers_groups and (blind or settled)
    return replace(
        one,
        group=replace(
            group,
            template=merged(template, _USUAL) if known else None,
            template_faults=tuple(reading.faults),
            closed_because=_why_closed(template, reading.faults, unseen, None if settled else reference)
            if closed
            else None,
            invisible_at_zero=unseen,
        ),
    )


def is_empty(one: Found) -> bool:
    """Whether the group has no nodes and wants none: only then can it be closed."""
    return one.group.requested == 0 and one.group.running == 0


def needs_a_look(one: Found) -> bool:
    """Whether only another object can say if the group, which has no nodes, is seen by Cluster Autoscaler."""
    group = one.group
    complete = group.template is not None and group.template.complete
    return group.closed_because is not None and group.frozen_because is None and not complete


def running_nodes(
    flavour: Flavour, found: Iterable[Found], machines: Iterable[Object], nodes: Iterable[Object]
) -> dict[GroupKey, Object]:
    """A ready node of each group that has one: the first by name, so that it is the same at every look.

    A node and its machine have the same ``spec.providerID``.
    """
    ready = {
        provider: node
        for node in nodes
        if isinstance(provider := get_path(node, ("spec", "providerID")), str) and provider and _is_ready(node)
    }
    nodes_of: dict[Owner, list[Object]] = defaultdict(list)
    for machine in machines:
        provider = get_path(machine, ("spec", "providerID"))
        if isinstance(provider, str) and provider in ready:
            for owner in owners_of(flavour, machine):
                nodes_of[owner].append(ready[provider])
    keys = {one.group.key: owner_of(one.group) for one in found}
    return {
        key: min(nodes_of[owner], key=lambda node: name_of(node)[1]) for key, owner in keys.items() if owner in nodes_of
    }


def _is_ready(node: Object) -> bool:
    conditions = get_path(node, ("status", "conditions"))
    return any(
        get_path(condition, ("type",)) == "Ready" and get_path(condition, ("status",)) == "True"
        for condition in (conditions if isinstance(conditions, list) else [])
    )


def _key(reference: Reference, one: Found) -> tuple[str, str, str, str]:
    return (reference.kind.group, reference.kind.kind, one.group.key.namespace, reference.name)


def _text(value: object) -> str:
    """The text of an annotation; nothing where there is none. The API allows no others than texts."""
    return "" if value is None else str(value)


def _amount(value: object) -> Fraction:
    amount = read_quantity(value)
    if amount < 0:
        raise BadValueError("negative: write 0 or more")
    return amount


def _pieces(value: object) -> Fraction:
    """Cluster Autoscaler reads counts with Go's ``strconv.ParseInt``: no units."""
    if not isinstance(value, str) or not _WHOLE.fullmatch(value):
        raise BadValueError("not a whole number: write it without a unit, such as 8")
    return _amount(int(value))


def _mebibytes(value: object) -> Fraction:
    return _pieces(value) * _MEBIBYTE


_AMOUNTS: tuple[tuple[str, str, Callable[[object], Fraction]], ...] = (
    ("cpu", "cpu", _amount),
    ("memory", "memory", _amount),
    ("ephemeral-disk", "ephemeral-storage", _amount),
    ("maxPods", "pods", _pieces),
)


def _annotated_capacity(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> dict[str, Fraction]:
    def read(name: str, reader: Callable[[object], Fraction]) -> Fraction | None:
        amount = reading.read(CAPACITY + name, annotations.get(CAPACITY + name) or None, reader)
        older = flavour.older_capacity.get(name)
        if amount or older is None:
            return amount
        # machine.openshift.io/memoryMb is in MiB, whatever its name says
        return reading.read(older, annotations.get(older) or None, _mebibytes if name == "memory" else reader)

    found = {resource: amount for name, resource, reader in _AMOUNTS if (amount := read(name, reader))}
    gpus, gpu = read("gpu-count", _pieces), annotations.get(f"{CAPACITY}gpu-type") or flavour.gpu
    if gpus and isinstance(gpu, str):
        found[gpu] = gpus
    return found


def _own_labels(flavour: Flavour, scalable: Object) -> dict[str, str]:
    """The labels that the scalable itself gives to its nodes."""
    domains = flavour.node_label_domains
    return {
        key: value
        for key, value in string_map(get_path(scalable, flavour.node_labels)).items()
        if not domains or any(_is_below(key.partition("/")[0], domain) for domain in domains)
    }


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


def _resources(where: str, value: Any, reading: Reading) -> dict[str, Fraction]:
    amounts = {key: reading.read(f"{where}.{key}", text, _amount) for key, text in mapping(value).items()}
    return {str(key): amount for key, amount in amounts.items() if amount}


def _within(item: Object, reading: Reading, kind: str) -> Reading:
    """The faults of another object, told with those of the group."""
    namespace, name = name_of(item)
    return Reading(name=f"{kind} {namespace}/{name}".replace(" /", " "), faults=reading.faults)


def _of_node(node: Object, reading: Reading) -> NodeTemplate:
    reading = _within(node, reading, "Node")
    return NodeTemplate(
        capacity=_resources("status.capacity", get_path(node, ("status", "capacity")), reading),
        allocatable=_resources("status.allocatable", get_path(node, ("status", "allocatable")), reading) or None,
        labels=string_map(get_path(node, ("metadata", "labels"))),
        taints=_taints(get_path(node, ("spec", "taints"))),
        source=f"Node {name_of(node)[1]}",
    )


def _of_infrastructure(item: Object, reading: Reading) -> NodeTemplate:
    kind = str(item.get("kind"))
    info = string_map(get_path(item, ("status", "nodeInfo")))
    labels = {_ARCH: info.get("architecture"), _OS: info.get("operatingSystem")}
    return NodeTemplate(
        capacity=_resources("status.capacity", get_path(item, ("status", "capacity")), _within(item, reading, kind)),
        labels={key: value for key, value in labels.items() if value},
        source=f"{kind} {name_of(item)[1]}",
    )


def _of_machine_class(item: Object, reading: Reading) -> NodeTemplate:
    reading = _within(item, reading, "MachineClass")
    template = mapping(item.get("nodeTemplate"))
    capacity = {
        **_resources("nodeTemplate.capacity", template.get("capacity"), reading),
        **_resources("nodeTemplate.virtualCapacity", template.get("virtualCapacity"), reading),
    }
    if gpus := capacity.pop("gpu", None):
        capacity["nvidia.com/gpu"] = gpus
    labels = {
        _ARCH: template.get("architecture"),
        "node.kubernetes.io/instance-type": template.get("instanceType"),
        "topology.kubernetes.io/region": template.get("region"),
        "topology.kubernetes.io/zone": template.get("zone"),
    }
    return NodeTemplate(
        capacity=capacity,
        labels={key: value for key, value in labels.items() if isinstance(value, str) and value},
        source=f"MachineClass {name_of(item)[1]}",
    )


def _why_closed(template: NodeTemplate, faults: list[Fault], unseen: bool, unread: Reference | None) -> str:
    """Why a group without nodes cannot be opened, and which annotation would open it."""
    unreadable = {fault.field for fault in faults}
    missing = [
        CAPACITY + resource
        for resource in ("cpu", "memory")
        if resource not in template.capacity and CAPACITY + resource not in unreadable
    ]
    said = [str(fault) for fault in faults]
    if missing:
        said.append(f"annotate {' and '.join(missing)}")
    if unseen:
        why = "Cluster Autoscaler cannot see it"
    elif unread is not None:
        why = f"its cpu and memory are not known ({unread} was not read)"
    else:
        why = "its cpu and memory are not known"
    return f"at zero, and {why}: {'; '.join(said)}"
