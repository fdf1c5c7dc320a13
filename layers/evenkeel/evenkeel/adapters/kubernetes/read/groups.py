"""From API objects as JSON to node groups. Pure: the command line reads files with the same functions."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN,
    OWN_ANNOTATIONS,
    OWN_LABELS,
    POOL_LABEL,
    PROVISION_TIME,
    ZONE_LABEL,
    Object,
    Path,
    Reading,
    Scalable,
    controller_of,
    controller_of_field,
    get_path,
    last_writer,
    mapping,
    name_of,
    string_map,
)
from evenkeel.adapters.kubernetes.owners.base import AppliedBounds, BoundsOwner, Claim
from evenkeel.domain.model.choices import Level, OnFailure
from evenkeel.domain.model.groups import SOMEBODY, Bounds, GroupKey, NodeGroup, OwnerNumbers, Rolling
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import (
    BadValueError,
    Fault,
    quote,
    read_count,
    read_flag,
    read_percent,
    read_step,
    read_weight,
)
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published
from evenkeel.domain.rebalancing.bounds.distribute import read_int_or_percent
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel.domain.rebalancing.membership.discovery import Discovery, discovered
from evenkeel.domain.rebalancing.membership.quantities import read_duration

_Value = TypeVar("_Value")
_REPLICAS: Path = ("f:spec", "f:replicas")
_ZONE_INDEX = re.compile(r"-z([0-9]{1,4})$")


@dataclass(frozen=True, kw_only=True)
class GroupObjects:
    """A node group with the objects that a write needs: the scalable, and who owns its bounds."""

    group: NodeGroup
    scalable: Object
    owner: BoundsOwner
    owner_object: Object | None = None  # where the bounds stand on another object than the scalable
    copied_maximum: bool = False  # whether its PoolMaximum stands there, too, and is copied to the scalable


@dataclass(kw_only=True)
class Listing:
    """The objects of one flavour, by kind, as one look found them."""

    flavour: Flavour
    objects: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        return self.objects.get(kind, [])


def read_groups(listing: Listing, discoveries: Sequence[Discovery] = ()) -> tuple[list[GroupObjects], list[Skipped]]:
    """The node groups among a flavour's objects, and the scalables that are none, each with the reason.

    Running is what the status says; ``with_machines`` counts again where
    that differs from what is requested.
    """
    flavour = listing.flavour
    reader = _GroupReader(listing)
    groups: dict[GroupKey, GroupObjects] = {}
    skipped: list[Skipped] = []
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            owner = controller_of(item)
            if owner and owner.kind == "MachineDeployment":
                continue  # part of a node group, none of its own
            namespace, name = name_of(item)
            key = GroupKey(flavour.name, namespace, name)
            cluster = next((c for path in flavour.cluster_paths if isinstance(c := get_path(item, path), str)), "")
            labels = string_map(get_path(item, ("metadata", "labels")))
            if not name:
                why = Reason.of(Rule.NAMELESS, kind=kind.kind)
            elif not discovered(discoveries, flavour=flavour.name, namespace=namespace, cluster=cluster, labels=labels):
                why = Reason.of(Rule.NOT_DISCOVERED)
            elif (left_out := _left_out(flavour, kind.kind, item)) is not None:
                why = left_out
            elif (other := groups.get(key)) is not None:
                why = Reason.of(Rule.SECOND_OBJECT, planned=other.group.kind, kind=kind.kind)
            else:
                groups[key] = reader.read(key, kind.kind, item, cluster, labels)
                continue
            skipped.append(Skipped(namespace=namespace, name=name, reason=why))
    return reader.frozen_together(list(groups.values())), skipped


class _GroupReader:
    """Reads node groups with what one look listed besides them."""

    def __init__(self, listing: Listing) -> None:
        self._flavour = flavour = listing.flavour
        self._sets: dict[tuple[str, str], list[Object]] = {}  # by namespace and MachineDeployment
        for item in listing.of("MachineSet"):
            controller = controller_of(item)
            if controller and controller.kind == "MachineDeployment":
                self._sets.setdefault((name_of(item)[0], controller.name), []).append(item)
        clusters = listing.of(flavour.cluster.kind) if flavour.cluster else []
        self._clusters = {name_of(item): item for item in clusters}
        self._owners = [
            owner(flavour.bound_keys, listing.of(owner.kind.kind) if owner.kind else ())
            for owner in flavour.bounds_owners
        ]
        self._freeze_rules = (*flavour.freeze_rules, *(owner.frozen for owner in self._owners))
        replicas_owner = flavour.replicas_owner
        cap_owner = flavour.cap_owner
        self._node_cap = cap_owner().cap(listing.of(cap_owner.kind.kind)) if cap_owner else None
        self._replicas_owner = None
        if replicas_owner is not None:
            copy = replicas_owner.copy_kind
            copies = listing.of(copy.kind) if copy is not None else ()
            self._replicas_owner = replicas_owner(listing.of(replicas_owner.kind.kind), copies)

    def read(self, key: GroupKey, kind: str, item: Object, cluster: str, labels: Mapping[str, str]) -> GroupObjects:
        """The node group that the object of this kind is."""
        scalable = Scalable(
            kind=kind,
            namespace=key.namespace,
            name=key.name,
            item=item,
            cluster=cluster,
            parent=self._clusters.get((key.namespace, cluster)),
            labels=labels,
            annotations=mapping(get_path(item, ("metadata", "annotations"))),
            sets=self._sets.get((key.namespace, key.name), ()),
        )
        flavour, annotations = self._flavour, scalable.annotations
        reading = Reading(name=f"{scalable.kind} {scalable.namespace}/{scalable.name}")
        reading.unknown_names(annotations, OWN_ANNOTATIONS, "annotation")
        reading.unknown_names(mapping(get_path(item, ("metadata", "labels"))), OWN_LABELS, "label")
        claim = self._claim(scalable, reading)
        bounds = _bounds(claim, reading)
        _note_lost_bounds(flavour, claim, annotations, reading)
        _note_unknown_controllers(flavour, scalable, claim, reading)
        replicas = get_path(item, ("spec", "replicas"))
        requested = flavour.absent_replicas if replicas is None else reading.read("spec.replicas", replicas, read_count)
        group = NodeGroup(
            key=key,
            kind=scalable.kind,
            sets=tuple(name_of(owned)[1] for owned in scalable.sets),
            cluster=scalable.cluster,
            labels={**claim.labels, **scalable.labels},
            requested=requested or 0,
            **_counts(flavour, kind, item),
            bounds=bounds,
            **_ownership(flavour, scalable, claim, reading),
            **self._place(scalable, claim, bounds, reading),
            replicas_by=_written_by(item, (_REPLICAS,)),
            move=text if isinstance(text := annotations.get(MOVE), str) else None,
            **_provision_time(flavour, annotations, reading),
            **_scale_down_options(flavour, annotations, reading),
            frozen_because=self._frozen(scalable),
            **_settings(annotations, reading),
            # Read last: these are complete only now.
            faults=tuple(reading.faults),
            notes=tuple(reading.notes),
        )
        copied = isinstance(claim.owner, AppliedBounds) and POOL_MAX in claim.annotations
        return GroupObjects(
            group=group, scalable=item, owner=claim.owner, owner_object=claim.object, copied_maximum=copied
        )

    def _claim(self, scalable: Scalable, reading: Reading) -> Claim:
        for owner in self._owners:
            claim = owner.claim(scalable, reading)
            if claim is not None:
                return claim
        raise AssertionError("the last of a flavour's owners claims every scalable")

    def _frozen(self, scalable: Scalable) -> Reason | None:
        """Why the group must not be written now, or None."""
        for rule in self._freeze_rules:
            reason = rule(scalable)
            if reason is not None:
                return reason
        if self._flavour.absent_replicas is None and get_path(scalable.item, ("spec", "replicas")) is None:
            return Reason.of(Rule.REPLICAS_UNSET)
        return None

    def _place(self, scalable: Scalable, claim: Claim, bounds: Bounds | None, reading: Reading) -> dict[str, Any]:
        """Fields of a node group that say where it belongs, and what is said of that place."""
        flavour, owner = self._flavour, self._replicas_owner
        own_pool, index = _own_pool(flavour, scalable), _ZONE_INDEX.search(scalable.name)
        numbers, at_pool = _owner_numbers(claim, bounds), (scalable.namespace, own_pool or "")
        zone = _zone(flavour, scalable.item, claim, reading)
        if zone is None and owner is not None and index is not None:
            zone = owner.zone(*at_pool, int(index[1]) - 1)
        return {
            "zone": zone,
            "pool_label": _pool_label(flavour, scalable, claim) or own_pool,
            "owner": numbers or (owner.numbers(*at_pool) if owner else None),
            "worker_range": owner.range(*at_pool, zone or "") if owner else None,
            "zone_index": int(index[1]) - 1 if index else None,
            "node_cap": self._node_cap,
            "rolling": _rolling(scalable.item, reading),
        }

    def frozen_together(self, groups: list[GroupObjects]) -> list[GroupObjects]:
        """The groups; those are frozen that the owner of the replicas finds so, seeing all of them."""
        reasons = self._replicas_owner.frozen(member.group for member in groups) if self._replicas_owner else {}
        if not reasons:
            return groups
        return [
            replace(member, group=member.group.frozen(reason)) if (reason := reasons.get(member.group.key)) else member
            for member in groups
        ]


def _ownership(flavour: Flavour, scalable: Scalable, claim: Claim, reading: Reading) -> dict[str, Any]:
    """Fields of a node group that stand where its bounds stand, or are about them."""
    adopted = reading.read(ADOPTED, claim.annotations.get(ADOPTED), lambda text: (read_adopted(str(text)),))
    holder = scalable.item if claim.object is None else claim.object
    decision = text if isinstance(text := claim.annotations.get(DECISION), str) else None
    return {
        "adopted": adopted[0] if adopted else None,
        "has_adopted": adopted is not None,
        "published": read_published(decision),
        "bounds_by": _written_by(holder, claim.paths),
        "owner_min_max": claim.owner.min_max,
        "owner_min_min": claim.min_min,
        "owner_lowers": claim.owner.lowers_replicas,
        "pinning": claim.pinning,
        "pinned": claim.pinned,
        "bounds_are_read": flavour.discovers_groups,
        "max_only": claim.owner.max_only,
        "bounds_place": _bounds_place(claim, scalable),
        # What is written with force alone is taken from whoever applies it.
        "bounds_applied_by": ""
        if isinstance(claim.owner, AppliedBounds)
        else controller_of_field(holder, claim.paths[0]),
        "replicas_applied_by": controller_of_field(scalable.item, _REPLICAS),
        "two_objects": claim.object is not None,
        "copied": None if claim.object is None else _copied_bounds(flavour, scalable.annotations),
    }


def _bounds_place(claim: Claim, scalable: Scalable) -> str:
    """Where the group's max stands, as people call it."""
    if claim.ref is None:
        return f"annotation {claim.owner.keys.max} of {scalable.kind} {scalable.namespace}/{scalable.name}"
    return f"{claim.fields[1]} of {claim.ref}"


def _settings(annotations: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Fields of a node group that people set by annotations of ours."""

    def read(name: str, reader: Callable[[Any], _Value]) -> _Value | None:
        return reading.read(name, annotations[name], reader) if name in annotations else None

    weight = read(
        OWN + "weight", lambda text: (read_percent(text), 1) if read_percent(text) else (None, read_weight(text))
    )
    zone_min, zone_max = read(OWN + "zone-min", read_count), read(OWN + "zone-max", read_count)
    if zone_min is not None and zone_max is not None and zone_min > zone_max:
        problem = f"larger than {OWN}zone-max, {zone_max}: lower one or raise the other"
        reading.faults.append(
            Fault(object=reading.name, field=OWN + "zone-min", value=quote(zone_min), problem=problem)
        )
    return {
        "fencing_enabled": _or(read(OWN + "fence", read_flag), True),
        "weight_percent": weight[0] if weight else None,
        "weight": weight[1] if weight else 1,
        "zone_min": zone_min,
        "zone_max": zone_max,
        "pool_min": read(OWN + "pool-min", read_count),
        "pool_max": read(OWN + "pool-max", read_count),
        "max_step": read(OWN + "max-step", read_step),
        "strategy": read(OWN + "strategy", read_strategy),
        "on_failure": read(OWN + "on-failure", OnFailure.read),
        "level": read(OWN + "level", Level.read),
        "dry_run": read(OWN + "dry-run", read_flag),
    }


def _bounds(claim: Claim, reading: Reading) -> Bounds | None:
    """The bounds that stand, or None where there are none, or something about the scalable cannot be read."""
    if not claim.has_bounds or reading.faults:
        return None
    # Cluster Autoscaler reads a missing bound as 0 (clusterapi_utils.go:191-215).
    low, high = claim.minimum or 0, claim.maximum or 0
    if low <= high:
        return Bounds(low, high)
    reading.faults.append(
        Fault(
            object=reading.name,
            field=f"{claim.owner.keys.min} and -max-size",
            value=f"{low} and {high}",
            problem="min is larger than max: Cluster Autoscaler sees no node group at all while this lasts",
        )
    )
    return None


def _note_lost_bounds(flavour: Flavour, claim: Claim, annotations: Mapping[str, Any], reading: Reading) -> None:
    """Bounds that have stayed behind in the annotations of another API: the autoscaler does not see the group."""
    former = flavour.former_bound_keys
    if former is None or claim.has_bounds:
        return
    left = [(old, key) for old, key in zip(former, flavour.bound_keys, strict=True) if old in annotations]
    if not left:
        return
    wanted = ", ".join(f"{key}: {quote(annotations[old])}" for old, key in left)
    reading.notes.append(
        Fault(
            object=reading.name,
            field=" and ".join(old for old, _ in left),
            value=", ".join(quote(annotations[old]) for old, _ in left),
            problem=f"bounds of the API that it comes from, which no autoscaler reads here: set {wanted}",
        )
    )


def _note_unknown_controllers(flavour: Flavour, scalable: Scalable, claim: Claim, reading: Reading) -> None:
    """Who controls the scalable, or the owner of its bounds, and is of no kind that is read here.

    No reason to leave the group alone: who declares a field to be his is known by managedFields, and who puts it back
    by doing so.
    """
    held = [(scalable.kind, scalable.item)]
    if claim.object is not None and claim.ref is not None:
        held.append((claim.ref.kind, claim.object))
    for kind, item in held:
        controller = controller_of(item)
        if controller is None or controller.is_one_of((*flavour.kinds, *flavour.copies)):
            continue
        problem = (
            f"a kind that Evenkeel does not know, which controls a {kind} here: if it sets bounds or replicas there, "
            "set them on it, and leave its groups out by the record's discovery; else all is well"
        )
        value = quote(controller.api_version)  # the same for all that it controls, so that a pool tells it once
        name = quote(f"{controller.kind} {controller.name}")[1:-1]
        reading.notes.append(Fault(object=name, field="apiVersion", value=value, problem=problem))


def _zone(flavour: Flavour, item: Object, claim: Claim, reading: Reading) -> str | None:
    zone = None
    domains = get_path(item, flavour.instance_pool.domains) if flavour.instance_pool else None
    if isinstance(domains, list) and domains:
        zone = domains[0]
    else:
        for path in (*flavour.zone_paths, ("metadata", "labels", ZONE_LABEL)):
            zone = get_path(item, path)
            if zone is not None:
                break
        else:
            zone = claim.zone or claim.labels.get(ZONE_LABEL)
    if zone is None or (isinstance(zone, str) and zone):
        return zone
    problem = "a zone is a name such as eu-central-1a"
    reading.faults.append(Fault(object=reading.name, field="zone", value=quote(zone), problem=problem))
    return None


def _pool_label(flavour: Flavour, scalable: Scalable, claim: Claim) -> str | None:
    """Our own label: on the object, where its nodes get theirs, or on its owner."""
    nodes = get_path(scalable.item, (*flavour.node_labels, POOL_LABEL))
    told = scalable.labels.get(POOL_LABEL) or (nodes if isinstance(nodes, str) else None)
    return told or claim.labels.get(POOL_LABEL) or None


def _own_pool(flavour: Flavour, scalable: Scalable) -> str | None:
    """The pool as the flavour's own API has it."""
    pool = scalable.labels.get(flavour.pool_label) if flavour.pool_label else None
    paths = flavour.pool_paths
    return pool or next((text for path in paths if isinstance(text := get_path(scalable.item, path), str)), None)


def _owner_numbers(claim: Claim, bounds: Bounds | None) -> OwnerNumbers | None:
    """What the owner of the bounds says, where that is another object than the scalable."""
    if claim.ref is None or claim.object is None or bounds is None:
        return None
    low, high = claim.fields
    return OwnerNumbers(
        ref=claim.ref,
        bounds=bounds,
        min_field=low,
        max_field=high,
        set_by=last_writer(claim.object, claim.paths),
        takes_ours=True,
        needs_consent=isinstance(claim.owner, AppliedBounds),
    )


def _copied_bounds(flavour: Flavour, annotations: Mapping[str, Any]) -> Bounds | None:
    """The bounds that stand on the scalable itself, copied there by the controller of their owner."""
    try:
        return Bounds(read_count(annotations.get(flavour.min_key)), read_count(annotations.get(flavour.max_key)))
    except ValueError:  # missing, unreadable, or just being copied
        return None


def _option(
    name: str, annotations: Mapping[str, Any], reading: Reading, reader: Callable[[str], _Value]
) -> _Value | None:
    """Cluster Autoscaler's own option of the group. What it cannot read is its default, so it is no fault here."""
    value = annotations.get(name)
    try:
        return None if value is None else reader(str(value).lower())
    except BadValueError as error:
        problem = f"{error}; the default counts"
        reading.notes.append(Fault(object=reading.name, field=name, value=quote(value), problem=problem))
        return None


def _scale_down_options(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Return the fields of a node group that say when one of its nodes may go."""
    return {
        "unneeded_time": _option(flavour.unneeded_time, annotations, reading, _read_time),
        "unready_time": _option(flavour.unready_time, annotations, reading, _read_time),
        "utilization_threshold": _option(flavour.utilization_threshold, annotations, reading, _read_share),
        "gpu_utilization_threshold": _option(flavour.gpu_utilization_threshold, annotations, reading, _read_share),
    }


def _provision_time(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Fields of a node group about how long its autoscaler waits for a node. What we have set is no wish of anybody's.

    It is ours where our own annotation says the same.
    """
    stands, ours = annotations.get(flavour.provision_timeout), annotations.get(PROVISION_TIME)
    is_ours = ours is not None and stands == ours
    return {
        "provision_timeout": None if is_ours else _option(flavour.provision_timeout, annotations, reading, _read_wait),
        "short_provision": None if ours is None else _or(_time_or_none(ours), timedelta(0)),
        "keeps_provision": not flavour.keeps_options or (stands is not None and not is_ours),
    }


def _time_or_none(value: object) -> timedelta | None:
    try:
        return read_duration(value)
    except BadValueError:
        return None


def _read_time(text: str) -> timedelta:
    return read_duration(text)


def _read_wait(text: str) -> timedelta:
    """Return how long to wait for a machine. With no time at all, every machine would be late at once."""
    if not (time := read_duration(text)):
        raise BadValueError("a machine needs some time to become a node: write a duration such as 15m")
    return time


def _read_share(text: str) -> float:
    """As Go's ParseFloat; Cluster Autoscaler checks no range, but beyond these nothing is meant by it."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadValueError("a share is a number from 0 to 1")
    return share


def _written_by(item: Object, paths: Iterable[Path]) -> str:
    """Who, besides us, last wrote any of these fields, as the object's managedFields say."""
    return last_writer(item, paths) or SOMEBODY


def _or(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value


def _left_out(flavour: Flavour, kind: str, item: Object) -> Reason | None:
    """Why an object of the kind is no node group."""
    pool = flavour.instance_pool
    return pool.left_out(item) if pool is not None and pool.kind == kind else None


def _counts(flavour: Flavour, kind: str, item: Object) -> dict[str, Any]:
    """Fields of a node group that its status counts."""
    pool = flavour.instance_pool
    if pool is None or pool.kind != kind:
        preserved = _counted(item, flavour.preserved_failed) if flavour.preserved_failed else 0
        return {"running": _counted(item, ("status", "readyReplicas")), "preserved_failed": preserved}
    launched, nodes = (
        len(set(map(str, entries))) if isinstance(entries := get_path(item, path), list) else 0
        for path in (pool.members, pool.nodes)
    )
    # References to nodes stay for a while after their machines have gone.
    return {"running": min(launched, nodes), "launched": launched}


def _counted(item: Object, path: Path) -> int:
    """What a status counts. An object without status has none yet; whatever is no count is none."""
    count = get_path(item, path)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def _rolling(item: Object, reading: Reading) -> Rolling | None:
    """The numbers of a rolling update; where they stand differs between API versions."""
    spec = item.get("spec")
    for path in (("strategy", "rollingUpdate"), ("rollout", "strategy", "rollingUpdate")):
        update = get_path(spec, path)
        if isinstance(update, dict) and "maxSurge" in update and "maxUnavailable" in update:
            surge = reading.read("maxSurge", update["maxSurge"], read_int_or_percent)
            unavailable = reading.read("maxUnavailable", update["maxUnavailable"], read_int_or_percent)
            return None if surge is None or unavailable is None else Rolling(surge, unavailable)
    return None
