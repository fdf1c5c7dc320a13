"""From API objects as JSON to node groups. Pure: the command line reads files with the same functions."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from evenkeel.adapters.kubernetes.annotations import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN,
    OWN_ANNOTATIONS,
    OWN_LABELS,
    POOL_LABEL,
)
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Object,
    Path,
    Reading,
    Scalable,
    controller_of,
    entries_of,
    get_path,
    mapping,
    name_of,
    string_map,
)
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim
from evenkeel.domain.annotations import read_adopted, read_published
from evenkeel.domain.bounds.distribute import read_int_or_percent
from evenkeel.domain.bounds.strategies import read_strategy
from evenkeel.domain.membership.discovery import Discovery, discovered
from evenkeel.domain.membership.quantities import read_duration
from evenkeel.domain.model.choices import Level, OnFailure
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, Rolling, Skipped
from evenkeel.domain.model.reasons import Reason, Rule, because
from evenkeel.domain.model.values import BadValueError, Fault, read_count, read_flag, read_percent, read_weight, shown

_Value = TypeVar("_Value")
_ZONE_INDEX = re.compile(r"-z([0-9]{1,4})$")


@dataclass(frozen=True, kw_only=True)
class GroupObjects:
    """A node group with the objects that a write needs: the scalable, and who owns its bounds."""

    group: NodeGroup
    scalable: Object
    owner: BoundsOwner
    owner_object: Object | None = None  # where the bounds stand on another object than the scalable


@dataclass(kw_only=True)
class Listing:
    """The objects of one flavour, by kind, as one look found them."""

    flavour: Flavour
    objects: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        return self.objects.get(kind, [])


def read_groups(listing: Listing, discoveries: Sequence[Discovery] = ()) -> tuple[list[GroupObjects], list[Skipped]]:
    """The node groups among a flavour's objects, and the scalables that are none, each with the reason.

    Running is what the status says; :func:`~evenkeel.adapters.kubernetes.machines.with_machines` counts again where
    that differs from what is requested.
    """
    flavour = listing.flavour
    reader = _GroupReader(listing)
    groups: dict[GroupKey, GroupObjects] = {}
    skipped: list[Skipped] = []
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            owner = controller_of(item)
            if owner and owner[0] == "MachineDeployment":
                continue  # part of a node group, none of its own
            namespace, name = name_of(item)
            key = GroupKey(flavour.name, namespace, name)
            cluster = next((c for path in flavour.cluster_paths if isinstance(c := get_path(item, path), str)), "")
            labels = string_map(get_path(item, ("metadata", "labels")))
            if not name:
                why = because(Rule.NAMELESS, kind=kind.kind)
            elif not discovered(discoveries, flavour=flavour.name, namespace=namespace, cluster=cluster, labels=labels):
                why = because(Rule.NOT_DISCOVERED)
            elif (other := groups.get(key)) is not None:
                why = because(Rule.SECOND_OBJECT, planned=other.group.kind, kind=kind.kind)
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
            if controller and controller[0] == "MachineDeployment":
                self._sets.setdefault((name_of(item)[0], controller[1]), []).append(item)
        clusters = listing.of(flavour.cluster.kind) if flavour.cluster else []
        self._clusters = {name_of(item): item for item in clusters}
        self._owners = [
            owner(flavour.bound_keys, listing.of(owner.kind.kind) if owner.kind else ())
            for owner in flavour.bounds_owners
        ]
        self._freeze_rules = (*flavour.freeze_rules, *(owner.frozen for owner in self._owners))
        replicas_owner = flavour.replicas_owner
        self._replicas_owner = replicas_owner(listing.of(replicas_owner.kind.kind)) if replicas_owner else None

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
        replicas = get_path(item, ("spec", "replicas"))
        requested = flavour.absent_replicas if replicas is None else reading.read("spec.replicas", replicas, read_count)
        zone = _zone(flavour, item, reading)
        pool = _pool_label(flavour, scalable)
        index = _ZONE_INDEX.search(scalable.name)
        group = NodeGroup(
            key=key,
            kind=scalable.kind,
            sets=tuple(name_of(owned)[1] for owned in scalable.sets),
            cluster=scalable.cluster,
            pool_label=pool,
            labels=scalable.labels,
            zone=zone,
            zone_index=int(index[1]) - 1 if index else None,
            requested=requested or 0,
            running=_running(item),
            bounds=bounds,
            **_ownership(flavour, scalable, claim, reading),
            replicas_by=_written_by(item, (("f:spec", "f:replicas"),)),
            move=text if isinstance(text := annotations.get(MOVE), str) else None,
            worker_range=self._range(scalable.namespace, pool, zone),
            provision_timeout=_provision_timeout(flavour, annotations, reading),
            frozen_because=self._frozen(scalable),
            **_settings(annotations, reading),
            rolling=_rolling(item, reading),
            # Read last: these are complete only now.
            faults=tuple(reading.faults),
            notes=tuple(reading.notes),
        )
        return GroupObjects(group=group, scalable=item, owner=claim.owner, owner_object=claim.object)

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
            return because(Rule.REPLICAS_UNSET)
        return None

    def _range(self, namespace: str, pool: str | None, zone: str | None) -> Bounds | None:
        owner = self._replicas_owner
        return None if owner is None else owner.range(namespace, pool or "", zone or "")

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
    decision = text if isinstance(text := claim.annotations.get(DECISION), str) else None
    return {
        "adopted": adopted[0] if adopted else None,
        "has_adopted": adopted is not None,
        "published": read_published(decision),
        "bounds_by": _written_by(scalable.item if claim.object is None else claim.object, claim.owner.paths),
        "owner_min_max": claim.owner.min_max,
        "two_objects": claim.object is not None,
        "copied": None if claim.object is None else _copied_bounds(flavour, scalable.annotations),
    }


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
            Fault(object=reading.name, field=OWN + "zone-min", value=shown(zone_min), problem=problem)
        )
    return {
        "fencing_enabled": _or(read(OWN + "fence", read_flag), True),
        "weight_percent": weight[0] if weight else None,
        "weight": weight[1] if weight else 1,
        "zone_min": zone_min,
        "zone_max": zone_max,
        "pool_min": read(OWN + "pool-min", read_count),
        "pool_max": read(OWN + "pool-max", read_count),
        "strategy": read(OWN + "strategy", read_strategy),
        "on_failure": read(OWN + "on-failure", OnFailure.read),
        "level": read(OWN + "level", Level.read),
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


def _zone(flavour: Flavour, item: Object, reading: Reading) -> str | None:
    zone = None
    for path in flavour.zone_paths:
        zone = get_path(item, path)
        if zone is not None:
            break
    else:
        zone = get_path(item, ("metadata", "labels", ZONE_LABEL))
    if zone is None or (isinstance(zone, str) and zone):
        return zone
    problem = "a zone is a name such as eu-central-1a"
    reading.faults.append(Fault(object=reading.name, field="zone", value=shown(zone), problem=problem))
    return None


def _pool_label(flavour: Flavour, scalable: Scalable) -> str | None:
    labels = scalable.labels
    pool = labels.get(POOL_LABEL) or (labels.get(flavour.pool_label) if flavour.pool_label else None)
    paths = flavour.pool_paths
    return pool or next((text for path in paths if isinstance(text := get_path(scalable.item, path), str)), None)


def _copied_bounds(flavour: Flavour, annotations: Mapping[str, Any]) -> Bounds | None:
    """The bounds that stand on the scalable itself, copied there by the controller of their owner."""
    try:
        return Bounds(read_count(annotations.get(flavour.min_key)), read_count(annotations.get(flavour.max_key)))
    except ValueError:  # missing, unreadable, or just being copied
        return None


def _provision_timeout(flavour: Flavour, annotations: Mapping[str, Any], reading: Reading) -> timedelta | None:
    """Cluster Autoscaler's own option of the group. What it cannot read is its default, so it is no fault here."""
    value = annotations.get(flavour.provision_timeout)
    try:
        return None if value is None else read_duration(str(value).lower())
    except BadValueError as error:
        problem = f"{error}; the default counts"
        reading.notes.append(
            Fault(object=reading.name, field=flavour.provision_timeout, value=shown(value), problem=problem)
        )
        return None


def _written_by(item: Object, paths: Iterable[Path]) -> str:
    """Who, besides us, last wrote any of these fields, as the object's managedFields say."""
    entries = entries_of(item, ("metadata", "managedFields"))
    if not entries:  # as in a look
        return "somebody"
    others = [
        entry
        for entry in entries
        if entry.get("manager") != "evenkeel"
        and any(get_path(entry, ("fieldsV1", *path)) is not None for path in paths)
    ]
    latest = max(others, key=lambda entry: str(entry.get("time")), default=None)
    return str(get_path(latest, ("manager",)) or "somebody")


def _or(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value


def _running(item: Object) -> int:
    """Machines with a ready node, as the status counts them. An object without status has none yet."""
    ready = get_path(item, ("status", "readyReplicas"))
    return ready if isinstance(ready, int) and not isinstance(ready, bool) and ready > 0 else 0


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
