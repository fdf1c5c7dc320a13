"""Reads node groups from API objects in JSON. Pure, so that the command line can read files with these functions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Object,
    Path,
    Scalable,
    annotations_of,
    controller_of,
    controller_of_field,
    get_path,
    labels_of,
    last_writer,
    mapping,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.base import AppliedBounds, BoundsOwner, Claim
from evenkeel.adapters.own_annotations import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN_ANNOTATIONS,
    OWN_LABELS,
    POOL_LABEL,
    Reading,
    read_annotations,
)
from evenkeel.domain.model.groups import (
    UNNAMED,
    AutoscalerOptions,
    Bounds,
    FieldManagers,
    GroupKey,
    GroupStatus,
    GroupTemplate,
    Identity,
    NodeGroup,
    OwnerNumbers,
    Ownership,
    Rolling,
    Unreadable,
    WrittenByUs,
)
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.value_objects import value_object
from evenkeel.domain.model.values import (
    quote,
    read_count,
)
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published
from evenkeel.domain.rebalancing.bounds.distribute import read_int_or_percent
from evenkeel.domain.rebalancing.membership.discovery import Discovery, discovered
from evenkeel.domain.rebalancing.membership.quantities import read_duration, read_share, read_wait
from evenkeel.domain.rebalancing.membership.templates import read_labels

_Value = TypeVar("_Value")
_REPLICAS: Path = ("f:spec", "f:replicas")
# The fields of OpenShift's providers (machine-api-operator).
_PROVIDER: Path = ("spec", "template", "spec", "providerSpec", "value")
_MACHINE_TYPES = ("instanceType", "vmSize", "machineType", "flavor")  # of AWS, Azure, Google Cloud, OpenStack
_SPOT = ("spotMarketOptions", "spotVMOptions", "preemptible")  # of AWS, Azure, Google Cloud
_TYPE_LABEL = "node.kubernetes.io/instance-type"
_CAPACITY_LABELS = ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType")
_LABELS_OF_NODES = "capacity.cluster-autoscaler.kubernetes.io/labels"
_ZONE_INDEX = re.compile(r"-z([0-9]{1,4})$")


@value_object
class GroupObjects:
    """A node group with the objects that a write needs: the scalable, and the owner of its bounds."""

    group: NodeGroup
    scalable: Object
    owner: BoundsOwner
    owner_object: Object | None = None  # the object that has the bounds; None: the scalable has them
    copied_maximum: bool = False  # True: the owner's controller copies pool-max from the owner's object to the scalable


@dataclass(kw_only=True)
class Listing:
    """The objects of one flavour, by kind."""

    flavour: Flavour
    objects: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return self.objects.get(kind, [])


def read_groups(listing: Listing, discoveries: Sequence[Discovery] = ()) -> tuple[list[GroupObjects], list[Skipped]]:
    """Return the node groups among a flavour's objects, and the skipped scalables with the reasons.

    ``running`` is the number in the scalable's status. Where that number differs from ``requested``, ``with_machines``
    counts the machines instead.
    """
    flavour, reader = listing.flavour, _GroupReader(listing)
    groups: dict[GroupKey, GroupObjects] = {}
    skipped: list[Skipped] = []
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            controller = controller_of(item)
            if controller and controller.kind == "MachineDeployment":
                continue  # this MachineSet is a part of its MachineDeployment's group
            scalable = reader.scalable(kind.kind, item)
            key = GroupKey(flavour.name, scalable.namespace, scalable.name)
            reason = _skipped_because(flavour, scalable, discoveries)
            if reason is None and key in groups:
                reason = Reason.of(Rule.SECOND_OBJECT, planned=groups[key].group.identity.kind, kind=kind.kind)
            if reason is None:
                groups[key] = reader.read(key, scalable)
            else:
                group = reader.read(key, scalable).group if reason.rule is Rule.NAMES_NO_ZONE else None
                skipped.append(Skipped(namespace=key.namespace, name=key.name, reason=reason, group=group))
    return reader.frozen_together(list(groups.values())), skipped


def _skipped_because(flavour: Flavour, scalable: Scalable, discoveries: Sequence[Discovery]) -> Reason | None:
    namespace, cluster, labels, pool = scalable.namespace, scalable.cluster, scalable.labels, flavour.instance_pool
    if not scalable.name:
        return Reason.of(Rule.NAMELESS, kind=scalable.kind)
    if not discovered(discoveries, flavour=flavour.name, namespace=namespace, cluster=cluster, labels=labels):
        return Reason.of(Rule.NOT_DISCOVERED)
    return pool.left_out(scalable.item) if pool is not None and pool.kind == scalable.kind else None


class _GroupReader:
    """Reads the node groups of one listing."""

    def __init__(self, listing: Listing) -> None:
        self._flavour = flavour = listing.flavour
        self._sets: dict[tuple[str, str], list[Object]] = {}  # MachineSets by namespace and MachineDeployment
        for item in listing.of("MachineSet"):
            controller = controller_of(item)
            if controller and controller.kind == "MachineDeployment":
                self._sets.setdefault((name_of(item)[0], controller.name), []).append(item)
        clusters = listing.of(flavour.cluster.kind) if flavour.cluster else []
        self._clusters = {name_of(item): item for item in clusters}
        owners = flavour.owners
        self._owners = [
            owner(flavour.bound_keys, listing.of(owner.kind.kind) if owner.kind else ()) for owner in owners.bounds
        ]
        self._freeze_rules = (*flavour.freeze_rules, *(owner.frozen for owner in self._owners))
        self._node_cap = owners.cap().cap(listing.of(owners.cap.kind.kind)) if owners.cap else None
        self._replicas_owner = None
        if owners.replicas is not None:
            copy = owners.replicas.copy_kind
            copies = listing.of(copy.kind) if copy is not None else ()
            self._replicas_owner = owners.replicas(listing.of(owners.replicas.kind.kind), copies)

    def scalable(self, kind: str, item: Object) -> Scalable:
        """Return the scalable with its related objects."""
        namespace, name = name_of(item)
        paths, labels = self._flavour.paths, labels_of(item)
        clusters = (get_path(item, path) for path in paths.clusters)
        cluster = next((text for text in clusters if isinstance(text, str)), "")
        node_labels = mapping(get_path(item, self._flavour.nodes.labels))
        pools = (labels.get(paths.pool_label), node_labels.get(paths.pool_label)) if paths.pool_label else ()
        return Scalable(
            kind=kind,
            namespace=namespace,
            name=name,
            item=item,
            cluster=cluster,
            parent=self._clusters.get((namespace, cluster)),
            pool=next((text for text in pools if isinstance(text, str) and text), ""),
            labels=labels,
            annotations=annotations_of(item),
            node_labels=node_labels,
            sets=self._sets.get((namespace, name), ()),
        )

    def read(self, key: GroupKey, scalable: Scalable) -> GroupObjects:
        """Return the node group of a scalable."""
        flavour, item, annotations = self._flavour, scalable.item, scalable.annotations
        reading = Reading(name=f"{scalable.kind} {scalable.namespace}/{scalable.name}")
        reading.unknown_names(annotations, OWN_ANNOTATIONS, "annotation")
        reading.unknown_names(mapping(get_path(item, ("metadata", "labels"))), OWN_LABELS, "label")
        claims = (owner.claim(scalable, reading) for owner in self._owners)
        claim = next(claim for claim in claims if claim is not None)  # the last owner claims every scalable
        bounds = _bounds(claim, reading)
        _note_lost_bounds(flavour, claim, annotations, reading)
        _note_unknown_controllers(flavour, scalable, claim, reading)
        replicas = get_path(item, ("spec", "replicas"))
        requested = flavour.absent_replicas if replicas is None else reading.read("spec.replicas", replicas, read_count)
        ours = _written_by_us(scalable, claim, reading)
        identity = self._identity(scalable, claim, reading)
        running, status = _status(flavour, scalable, reading)
        options = _autoscaler_options(flavour, annotations, reading, self._creation_timeouts(scalable))
        frozen_because, settings = self._frozen(scalable), read_annotations(annotations, reading)
        group = NodeGroup(
            key=key,
            identity=identity,
            requested=requested or 0,
            running=running,
            bounds=bounds,
            frozen_because=frozen_because,
            status=status,
            ours=ours,
            managers=_field_managers(scalable, claim),
            owner=self._ownership(scalable, claim, bounds, identity.zone),
            options=options,
            template=GroupTemplate(key=_template_key(flavour, item), machine_type=self._machine_type(scalable)),
            annotations=settings,
            unreadable=Unreadable(faults=tuple(reading.faults), notes=tuple(reading.notes)),
        )
        copied = isinstance(claim.owner, AppliedBounds) and POOL_MAX in claim.annotations
        return GroupObjects(
            group=group, scalable=item, owner=claim.owner, owner_object=claim.object, copied_maximum=copied
        )

    def _creation_timeouts(self, scalable: Scalable) -> Mapping[str, object]:
        """Return how long the machine controller waits for a node, by each field that says so."""
        flavour, owner = self._flavour, self._replicas_owner
        times = {path[-1]: get_path(scalable.item, path) for path in flavour.machines.creation_timeouts}
        if owner is not None:
            times["machineCreationTimeout"] = owner.creation_timeout(scalable.namespace, scalable.pool)
        return times

    def _machine_type(self, scalable: Scalable) -> str:
        """Return the machine type, with the capacity type if that is known; empty: no object that was read names it."""
        item, owner = scalable.item, self._replicas_owner
        annotated = read_labels(_text(scalable.annotations, _LABELS_OF_NODES) or "")[0]
        labels = {**scalable.node_labels, **annotated}
        provider = mapping(get_path(item, _PROVIDER))
        names = [provider.get(field) for field in _MACHINE_TYPES] if provider else []
        if owner is not None:
            names.append(owner.machine_type(scalable.namespace, scalable.pool))
        type = next((name for name in (*names, labels.get(_TYPE_LABEL)) if isinstance(name, str)), "")
        capacity = next((text for label in _CAPACITY_LABELS if isinstance(text := labels.get(label), str)), "")
        if provider and any(provider.get(field) not in (None, False) for field in _SPOT):
            capacity = "spot"
        return f"{type} {capacity}".strip() if type else ""

    def _frozen(self, scalable: Scalable) -> Reason | None:
        for rule in self._freeze_rules:
            reason = rule(scalable)
            if reason is not None:
                return reason
        if self._flavour.absent_replicas is None and get_path(scalable.item, ("spec", "replicas")) is None:
            return Reason.of(Rule.REPLICAS_UNSET)
        return None

    def _identity(self, scalable: Scalable, claim: Claim, reading: Reading) -> Identity:
        flavour, owner = self._flavour, self._replicas_owner
        index = _ZONE_INDEX.search(scalable.name)
        zone_index = int(index[1]) - 1 if index else None
        zone = _zone(flavour, scalable.item, claim, reading)
        if zone is None and owner is not None and zone_index is not None:
            zone = owner.zone(scalable.namespace, scalable.pool, zone_index)
        places = (scalable.labels, scalable.node_labels, claim.labels)
        pools = (*(labels.get(POOL_LABEL) for labels in places), scalable.pool)
        return Identity(
            kind=scalable.kind,
            sets=tuple(name_of(owned)[1] for owned in scalable.sets),
            cluster=scalable.cluster,
            pool_label=next((pool for pool in pools if isinstance(pool, str) and pool), None),
            labels={**claim.labels, **scalable.labels},
            zone=zone,
            zone_index=zone_index,
        )

    def _ownership(self, scalable: Scalable, claim: Claim, bounds: Bounds | None, zone: str | None) -> Ownership:
        flavour, owner, replicas_owner = self._flavour, claim.owner, self._replicas_owner
        place = f"annotation {owner.keys.max} of {scalable.kind} {scalable.namespace}/{scalable.name}"
        pool = (scalable.namespace, scalable.pool)
        return Ownership(
            numbers=_owner_numbers(claim, bounds) or (replicas_owner.numbers(*pool) if replicas_owner else None),
            bounds_field=place if claim.ref is None else f"{claim.fields[1]} of {claim.ref}",
            least_max=owner.least_max,
            least_min=claim.least_min,
            lowers_replicas=owner.lowers_replicas,
            pinning=claim.pinning,
            allowed_replicas=replicas_owner.range(*pool, zone or "") if replicas_owner else None,
            node_cap=self._node_cap,
            max_only=owner.max_only,
            managed_by=next(filter(None, (manager(scalable) for manager in flavour.owners.managers)), None),
            bounds_are_read=flavour.autoscaler.discovers_groups,
            two_objects=claim.object is not None,
            copied=None if claim.object is None else _copied_bounds(flavour, scalable.annotations),
        )

    def frozen_together(self, groups: list[GroupObjects]) -> list[GroupObjects]:
        """Return the groups, each frozen where its owner of replicas requires it. That rule compares all groups."""
        reasons = self._replicas_owner.frozen(member.group for member in groups) if self._replicas_owner else {}
        if not reasons:
            return groups
        return [
            replace(member, group=member.group.frozen(reason)) if (reason := reasons.get(member.group.key)) else member
            for member in groups
        ]


def _written_by_us(scalable: Scalable, claim: Claim, reading: Reading) -> WrittenByUs:
    adopted = reading.read(ADOPTED, claim.annotations.get(ADOPTED), lambda text: (read_adopted(str(text)),))
    return WrittenByUs(
        adopted=adopted[0] if adopted else None,
        has_adopted=adopted is not None,
        published=read_published(_text(claim.annotations, DECISION)),
        move=_text(scalable.annotations, MOVE),
        pinned=claim.pinned,
    )


def _field_managers(scalable: Scalable, claim: Claim) -> FieldManagers:
    holder = scalable.item if claim.object is None else claim.object
    return FieldManagers(
        # Evenkeel's forced apply makes Evenkeel the manager of the fields, instead of any former manager.
        bounds_applied_by="" if isinstance(claim.owner, AppliedBounds) else controller_of_field(holder, claim.path),
        replicas_applied_by=controller_of_field(scalable.item, _REPLICAS),
        bounds_by=last_writer(holder, claim.path) or UNNAMED,
        replicas_by=last_writer(scalable.item, _REPLICAS) or UNNAMED,
    )


def _bounds(claim: Claim, reading: Reading) -> Bounds | None:
    """Return the bounds, or None where the owner has no bounds or the scalable has a fault."""
    if not claim.has_bounds or reading.faults:
        return None
    # Cluster Autoscaler reads a missing bound as 0 (clusterapi_utils.go:191-215).
    low, high = claim.minimum or 0, claim.maximum or 0
    if low <= high:
        return Bounds(low, high)
    problem = "min is larger than max: Cluster Autoscaler sees no node group at all while this lasts"
    reading.fault(f"{claim.owner.keys.min} and -max-size", f"{low} and {high}", problem)
    return None


def _note_lost_bounds(flavour: Flavour, claim: Claim, annotations: Mapping[str, Any], reading: Reading) -> None:
    """Add a note where only annotations of the former API have bounds, because no autoscaler sees such a group."""
    former = flavour.owners.former_keys
    if former is None or claim.has_bounds:
        return
    left = [(old, key) for old, key in zip(former, flavour.bound_keys, strict=True) if old in annotations]
    if left:
        wanted = ", ".join(f"{key}: {quote(annotations[old])}" for old, key in left)
        reading.note(
            " and ".join(old for old, _ in left),
            ", ".join(quote(annotations[old]) for old, _ in left),
            f"bounds of the API that it comes from, which no autoscaler reads here: set {wanted}",
        )


def _note_unknown_controllers(flavour: Flavour, scalable: Scalable, claim: Claim, reading: Reading) -> None:
    """Add a note for each unknown kind that controls the scalable or the owner of its bounds.

    The group remains writable, because managedFields show which controller applies a field and so restores it.
    """
    controlled = [(scalable.kind, scalable.item)]
    if claim.object is not None and claim.ref is not None:
        controlled.append((claim.ref.kind, claim.object))
    for kind, item in controlled:
        controller = controller_of(item)
        if controller is None or controller.is_one_of((*flavour.kinds, *flavour.copies)):
            continue
        problem = (
            f"a kind that Evenkeel does not know, which controls a {kind} here: if it sets bounds or replicas there, "
            "set them on it, and leave its groups out by the record's discovery; else all is well"
        )
        # The note is the same for all objects of this controller, so a pool reports it once.
        controlling = Reading(name=quote(f"{controller.kind} {controller.name}")[1:-1], notes=reading.notes)
        controlling.note("apiVersion", quote(controller.api_version), problem)


def _zone(flavour: Flavour, item: Object, claim: Claim, reading: Reading) -> str | None:
    domains = get_path(item, flavour.instance_pool.domains) if flavour.instance_pool else None
    if isinstance(domains, list) and domains:
        zone = domains[0]
    else:
        paths = (*flavour.paths.zones, ("metadata", "labels", ZONE_LABEL))
        zones = (zone for path in paths if (zone := get_path(item, path)) is not None)
        zone = next(zones, claim.zone or claim.labels.get(ZONE_LABEL))
    if zone is None or (isinstance(zone, str) and zone):
        return zone
    reading.fault("zone", quote(zone), "a zone is a name such as eu-central-1a")
    return None


def _template_key(flavour: Flavour, item: Object) -> str:
    """Return the name of the scalable's template object, or the machine type in its provider's fields."""
    source = flavour.nodes.template
    described = mapping(get_path(item, source.path if source else _PROVIDER))
    names = (described.get(field) for field in (("name",) if source else _MACHINE_TYPES))
    return next((name for name in names if isinstance(name, str)), "")


def _owner_numbers(claim: Claim, bounds: Bounds | None) -> OwnerNumbers | None:
    """Return the bounds and the fields of the object that owns the bounds, or None where the scalable owns them."""
    if claim.ref is None or bounds is None:
        return None
    low, high = claim.fields
    return OwnerNumbers(
        ref=claim.ref,
        bounds=bounds,
        min_field=low,
        max_field=high,
        set_by=last_writer(claim.object, claim.path) if claim.object is not None else "",
        takes_ours=True,
        needs_consent=isinstance(claim.owner, AppliedBounds),
    )


def _copied_bounds(flavour: Flavour, annotations: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds that the owner's controller has copied to the scalable."""
    try:
        return Bounds(read_count(annotations.get(flavour.min_key)), read_count(annotations.get(flavour.max_key)))
    except ValueError:  # a copy is missing or unreadable, or only one bound is copied yet
        return None


def _autoscaler_options(
    flavour: Flavour, annotations: Mapping[str, Any], reading: Reading, creation_timeouts: Mapping[str, object]
) -> AutoscalerOptions:
    """Return the group's options of the autoscaler. The longest of all provision timeouts counts."""
    names = flavour.autoscaler
    timeouts = {names.provision_timeout: annotations.get(names.provision_timeout), **creation_timeouts}
    waits = [reading.option(name, value, read_wait) for name, value in timeouts.items()]
    return AutoscalerOptions(
        provision_timeout=max([wait for wait in waits if wait is not None], default=None),
        unneeded_time=reading.option(names.unneeded_time, annotations.get(names.unneeded_time), read_duration),
        unready_time=reading.option(names.unready_time, annotations.get(names.unready_time), read_duration),
        utilization_threshold=reading.option(
            names.utilization_threshold, annotations.get(names.utilization_threshold), read_share
        ),
        gpu_utilization_threshold=reading.option(
            names.gpu_utilization_threshold, annotations.get(names.gpu_utilization_threshold), read_share
        ),
    )


def _text(annotations: Mapping[str, Any], name: str) -> str | None:
    return text if isinstance(text := annotations.get(name), str) else None


def _status(flavour: Flavour, scalable: Scalable, reading: Reading) -> tuple[int, GroupStatus]:
    """Return the number of running machines, and what else the scalable reports about machines."""
    item, pool, rolling = scalable.item, flavour.instance_pool, _rolling(scalable.item, reading)
    if pool is None or pool.kind != scalable.kind:
        path = flavour.machines.preserved_failed
        preserved = _count(item, path) if path else 0
        return _count(item, ("status", "readyReplicas")), GroupStatus(preserved_failed=preserved, rolling=rolling)
    launched, nodes = (
        len(set(map(str, entries))) if isinstance(entries := get_path(item, path), list) else 0
        for path in (pool.members, pool.nodes)
    )
    # A reference to a node may remain for a while after its machine is deleted.
    return min(launched, nodes), GroupStatus(launched=launched, rolling=rolling)


def _count(item: Object, path: Path) -> int:
    """Return a count in a status; 0 where it is missing or not a positive number."""
    count = get_path(item, path)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def _rolling(item: Object, reading: Reading) -> Rolling | None:
    """Return maxSurge and maxUnavailable of a rolling update, from the path of either API version, or None."""
    for path in (("spec", "strategy", "rollingUpdate"), ("spec", "rollout", "strategy", "rollingUpdate")):
        update = get_path(item, path)
        if isinstance(update, dict) and "maxSurge" in update and "maxUnavailable" in update:
            surge = reading.read("maxSurge", update["maxSurge"], read_int_or_percent)
            unavailable = reading.read("maxUnavailable", update["maxUnavailable"], read_int_or_percent)
            return None if surge is None or unavailable is None else Rolling(surge, unavailable)
    return None
