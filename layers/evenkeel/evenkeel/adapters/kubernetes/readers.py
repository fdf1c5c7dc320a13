"""From API objects as JSON to node groups. Pure: the command line reads files with the same functions.

Nothing here trusts the shape of an object: a field of the wrong type is a fault with the object's name, never an
exception.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import yaml

from evenkeel.adapters.kubernetes.flavours import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN,
    OWN_ANNOTATIONS,
    OWN_LABELS,
    POOL_LABEL,
    SCALER_OF,
    TOPOLOGY_NAME,
    TOPOLOGY_OWNED,
    ZONE_LABEL,
    Flavour,
    Path,
)
from evenkeel.domain.annotations import read_adopted, read_offer, read_publication
from evenkeel.domain.bounds.distribute import distribute_over_zones, read_int_or_percent
from evenkeel.domain.bounds.strategies import read_strategy
from evenkeel.domain.health.failures import classify, is_of_bounds
from evenkeel.domain.membership.discovery import Discovery, discovered
from evenkeel.domain.membership.quantities import read_duration
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import (
    Bounds,
    GroupKey,
    Machine,
    MachineFailure,
    NodeGroup,
    Observation,
    Rolling,
    Skipped,
)
from evenkeel.domain.model.reasons import Rule, because
from evenkeel.domain.model.values import BadValueError, Fault, near, read_count, read_flag, read_weight, shown

Object = Mapping[str, Any]
_Read = TypeVar("_Read")
_ZONE_INDEX = re.compile(r"-z([0-9]{1,4})$")
# OpenShift refuses a MachineAutoscaler whose spec.maxReplicas is below 1.
_MACHINE_AUTOSCALER_LEAST_MAX = 1
_LONG_AGO = datetime.fromtimestamp(0, UTC)
# What is remembered of an object's moments lies between these: beyond, a record could not hold it.
_FIRST, _LAST = datetime(2000, 1, 2, tzinfo=UTC), datetime(2199, 12, 31, tzinfo=UTC)
# Values of annotation node.machine.sapcloud.io/preserve that keep a failed machine
# (machine-controller-manager pkg/util/provider/machineutils/utils.go).
_ASKS_TO_PRESERVE = ("now", "when-failed", "auto-preserved")


def get_path(object: Any, path: Path) -> Any:
    """The value at a path, or None where any step is missing or no mapping."""
    for step in path:
        # What JSON and YAML make; asking for a Mapping costs ten times as much, and most of a look is this.
        if type(object) is not dict and not isinstance(object, Mapping):
            return None
        object = object.get(step)
    return object


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, or nothing in its place where it is no mapping."""
    return value if isinstance(value, Mapping) else {}


def string_map(value: Any) -> dict[str, str]:
    """The entries of a mapping whose values are texts."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}


def name_of(object: Object) -> tuple[str, str]:
    """Namespace and name; empty where the object has none."""
    namespace, name = get_path(object, ("metadata", "namespace")), get_path(object, ("metadata", "name"))
    return (namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


def _controller(object: Object) -> tuple[str, str] | None:
    """Kind and name of the controlling owner."""
    owners = get_path(object, ("metadata", "ownerReferences"))
    for owner in owners if isinstance(owners, list) else []:
        if isinstance(owner, Mapping) and owner.get("controller"):
            return str(owner.get("kind")), str(owner.get("name"))
    return None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A node group with the objects that a write needs: the scalable, and who owns its bounds if that is another."""

    group: NodeGroup
    scalable: Object
    owner: Object | None = None


@dataclass(kw_only=True)
class Reading:
    """Collects the faults of one object, and what is only worth telling."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)

    def read(self, where: str, value: object, reader: Callable[[Any], _Read]) -> _Read | None:
        """The value, or None where there is none or it is bad; then the fault is noted."""
        if value is None:
            return None
        try:
            return reader(value)
        except BadValueError as error:
            self.faults.append(Fault(object=self.name, field=where, value=shown(value), problem=str(error)))
            return None

    def unknown_names(self, found: Mapping[str, Any], known: Collection[str], what: str) -> None:
        """A name in our own domain that nobody reads here is a fault: it would be a wish without any effect."""
        for name in found:
            if not str(name).startswith(OWN) or name in known:
                continue
            if name in OWN_LABELS:
                problem = "no annotation: set it as a label"
            elif name in OWN_ANNOTATIONS:
                problem = "not read here: it is an annotation of MachineDeployments and MachineSets"
            else:
                # The prefix alone would make any two names of ours alike.
                nearest = near(name.removeprefix(OWN), [one.removeprefix(OWN) for one in known])
                problem = f"no {what} that Evenkeel reads{nearest.replace('mean ', f'mean {OWN}')}"
            self.faults.append(Fault(object=self.name, field=name, value=shown(found[name]), problem=problem))


@dataclass(kw_only=True)
class Listing:
    """The objects of one flavour, by kind, as one look found them."""

    flavour: Flavour
    objects: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return self.objects.get(kind, [])


@dataclass(frozen=True, kw_only=True)
class _Companions:
    """The objects beside the scalables, so that each is found at once by what refers to it."""

    sets: Mapping[tuple[str, str], list[Object]]  # by namespace and MachineDeployment
    clusters: Mapping[tuple[str, str], Object]
    topologies: Mapping[tuple[str, str], Mapping[str, Object]]  # by Cluster: its entries by name
    scalers: Mapping[tuple[str, str], Object]  # by namespace and MachineSet
    limits: Mapping[tuple[str, str, str], Bounds]  # by namespace, pool and zone

    @classmethod
    def of(cls, listing: Listing) -> "_Companions":
        sets: dict[tuple[str, str], list[Object]] = {}
        for item in listing.of("MachineSet"):
            owner = _controller(item)
            if owner and owner[0] == "MachineDeployment":
                sets.setdefault((name_of(item)[0], owner[1]), []).append(item)
        clusters = {name_of(item): item for item in listing.of("Cluster")}
        return cls(
            sets=sets,
            clusters=clusters,
            topologies={name: _topology(item) for name, item in clusters.items()},
            scalers={
                (name_of(item)[0], target): item
                for item in listing.of("MachineAutoscaler")
                if get_path(item, ("spec", "scaleTargetRef", "kind")) in (None, "MachineSet")
                and isinstance(target := get_path(item, ("spec", "scaleTargetRef", "name")), str)
            },
            limits=_worker_limits(listing.of("Worker")),
        )


def read_groups(listing: Listing, discoveries: Sequence[Discovery] = ()) -> tuple[list[Found], list[Skipped]]:
    """The node groups among a flavour's objects, and the scalables that are none, each with the reason.

    Running is what the status says; :func:`with_machines` counts again where that differs from what is requested.
    """
    flavour = listing.flavour
    beside = _Companions.of(listing)
    found: dict[GroupKey, Found] = {}
    skipped: list[Skipped] = []
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            owner = _controller(item)
            if owner and owner[0] == "MachineDeployment":
                continue  # part of a node group, none of its own
            namespace, name = name_of(item)
            key = GroupKey(flavour.name, namespace, name)
            cluster = next((c for path in flavour.cluster_paths if isinstance(c := get_path(item, path), str)), "")
            labels = string_map(get_path(item, ("metadata", "labels")))
            if not name:
                why = f"a {kind.kind} without metadata.name"
            elif not discovered(discoveries, flavour=flavour.name, namespace=namespace, cluster=cluster, labels=labels):
                why = "not matched by the record's discovery"
            elif (known := found.get(key)) is not None:
                why = f"a second object of this name: the {known.group.kind} is planned, this {kind.kind} is not"
            else:
                found[key] = _group(flavour, key, kind.kind, item, cluster, beside)
                continue
            skipped.append(Skipped(namespace=namespace, name=name, reason=because(Rule.SAID, text=why)))
    return _hibernated(list(found.values())), skipped


def _hibernated(found: list[Found]) -> list[Found]:
    """Freezes pools of hibernated shoots: no replicas at all, although their Worker's minimum asks for some.

    Awake, Gardener would have put the replicas back long ago; raising them to PoolMinimum would wake the shoot.
    """
    asleep: dict[tuple[str, str | None], list[Found]] = {}
    for one in found:
        if one.group.worker_range is not None:
            asleep.setdefault((one.group.key.namespace, one.group.pool_label), []).append(one)
    frozen = {
        one.group.key
        for members in asleep.values()
        if not any(one.group.requested for one in members)
        and any(one.group.worker_range and one.group.worker_range.min for one in members)
        for one in members
    }
    why = "its shoot is hibernated: the pool has no replicas although its Worker asks for some"
    return [
        replace(one, group=replace(one.group, frozen_because=one.group.frozen_because or why))
        if one.group.key in frozen
        else one
        for one in found
    ]


def _group(flavour: Flavour, key: GroupKey, kind: str, item: Object, cluster: str, beside: _Companions) -> Found:
    namespace, name = key.namespace, key.name
    reading = Reading(name=f"{kind} {namespace}/{name}")
    labels = string_map(get_path(item, ("metadata", "labels")))
    annotations = mapping(get_path(item, ("metadata", "annotations")))
    sets = beside.sets.get((namespace, name), [])
    parent = beside.clusters.get((namespace, cluster))
    entry = beside.topologies.get((namespace, cluster), {}).get(labels.get(TOPOLOGY_NAME, ""))
    scaler = beside.scalers.get((namespace, name))
    reading.unknown_names(annotations, OWN_ANNOTATIONS, "annotation")
    reading.unknown_names(mapping(get_path(item, ("metadata", "labels"))), OWN_LABELS, "label")

    # Who owns the bounds: a MachineAutoscaler, the Cluster's topology, or the scalable itself.
    owner: Object | None = None
    if scaler is not None:
        owner, owned = scaler, mapping(get_path(scaler, ("metadata", "annotations")))
        low = Reading(name=f"MachineAutoscaler {'/'.join(name_of(scaler))}")
        low.unknown_names(owned, (DECISION, ADOPTED), "annotation")
        minimum = low.read("spec.minReplicas", get_path(scaler, ("spec", "minReplicas")), read_count)
        maximum = low.read("spec.maxReplicas", get_path(scaler, ("spec", "maxReplicas")), read_count)
        reading.faults += low.faults
        has_bounds = True
    else:
        owned = annotations
        if TOPOLOGY_OWNED in labels and entry is not None:
            owner, owned = parent, mapping(get_path(entry, ("metadata", "annotations")))
        minimum = reading.read(flavour.min_key, owned.get(flavour.min_key), read_count)
        maximum = reading.read(flavour.max_key, owned.get(flavour.max_key), read_count)
        has_bounds = flavour.min_key in owned or flavour.max_key in owned
    bounds = None
    if has_bounds and not reading.faults:
        # Cluster Autoscaler reads a missing bound as 0 (clusterapi_utils.go:191-215).
        low_bound, high_bound = minimum or 0, maximum or 0
        if low_bound > high_bound:
            reading.faults.append(
                Fault(
                    object=reading.name,
                    field=f"{flavour.min_key} and -max-size",
                    value=f"{low_bound} and {high_bound}",
                    problem="min is larger than max: Cluster Autoscaler sees no node group at all while this lasts",
                )
            )
        else:
            bounds = Bounds(low_bound, high_bound)

    replicas = get_path(item, ("spec", "replicas"))
    requested = reading.read("spec.replicas", replicas, read_count)
    frozen = _frozen(flavour, item, sets, parent, entry, labels, annotations)
    if scaler is None and flavour.name == "openshift" and SCALER_OF in annotations and frozen is None:
        # The annotations are copies: what is written there does not last, and is nobody's wish.
        frozen = f"its bounds belong to MachineAutoscaler {shown(annotations[SCALER_OF])}, which is not there"
    if replicas is None:
        requested = flavour.absent_replicas
        if requested is None and frozen is None:
            frozen = "its spec.replicas is not set yet"
    zone = next(
        (found for path in (*flavour.zone_paths, ZONE_LABEL) if (found := get_path(item, path)) is not None), None
    )
    if zone is not None and (not isinstance(zone, str) or not zone):
        problem = "a zone is a name such as eu-central-1a"
        reading.faults.append(Fault(object=reading.name, field="zone", value=shown(zone), problem=problem))
        zone = None
    pool = labels.get(POOL_LABEL) or (labels.get(flavour.pool_label) if flavour.pool_label else None)
    pool = pool or next((text for path in flavour.pool_paths if isinstance(text := get_path(item, path), str)), None)
    adopted_text = owned.get(ADOPTED)
    adopted = reading.read(ADOPTED, adopted_text, lambda text: (read_adopted(str(text)),))
    decision = text if isinstance(text := owned.get(DECISION), str) else None
    index = _ZONE_INDEX.search(name)
    group = NodeGroup(
        key=key,
        kind=kind,
        sets=tuple(name_of(one)[1] for one in sets),
        cluster=cluster,
        pool_label=pool,
        labels=labels,
        zone=zone,
        zone_index=int(index[1]) - 1 if index else None,
        requested=requested or 0,
        running=_running(item),
        bounds=bounds,
        adopted=adopted[0] if adopted else None,
        has_adopted=adopted is not None,
        offer=read_offer(decision),
        publication=read_publication(decision),
        bounds_by=_written_by(item if owner is None else owner, _bounds_paths(flavour)),
        replicas_by=_written_by(item, (("f:spec", "f:replicas"),)),
        move=text if isinstance(text := annotations.get(MOVE), str) else None,
        owner_min_max=_MACHINE_AUTOSCALER_LEAST_MAX if scaler is not None else 0,
        worker_range=beside.limits.get((namespace, pool or "", zone or "")),
        two_objects=owner is not None,
        copied=None if owner is None else _copied_bounds(flavour, annotations),
        provision_timeout=_provision_timeout(flavour, annotations, reading),
        frozen_because=frozen,
        fencing_enabled=_or(reading.read(OWN + "fence", annotations.get(OWN + "fence"), read_flag), True),
        weight=_or(reading.read(OWN + "weight", annotations.get(OWN + "weight"), read_weight), 1),
        zone_max=reading.read(OWN + "zone-max", annotations.get(OWN + "zone-max"), read_count),
        pool_min=reading.read(OWN + "pool-min", annotations.get(OWN + "pool-min"), read_count),
        pool_max=reading.read(OWN + "pool-max", annotations.get(OWN + "pool-max"), read_count),
        strategy=reading.read(OWN + "strategy", annotations.get(OWN + "strategy"), read_strategy),
        on_failure=reading.read(OWN + "on-failure", annotations.get(OWN + "on-failure"), OnFailure.read),
        rolling=_rolling(item, reading),
        faults=tuple(reading.faults),
        notes=tuple(reading.notes),
    )
    return Found(group=group, scalable=item, owner=owner)


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


def _bounds_paths(flavour: Flavour) -> tuple[Path, ...]:
    annotation = ("f:metadata", "f:annotations", f"f:{flavour.max_key}")
    return annotation, ("f:spec", "f:maxReplicas"), ("f:spec", "f:topology")


def _written_by(item: Object, paths: Iterable[Path]) -> str:
    """Who, besides us, last wrote any of these fields, as the object's managedFields say."""
    entries = get_path(item, ("metadata", "managedFields"))
    others = [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if get_path(entry, ("manager",)) != "evenkeel"
        and any(get_path(entry, ("fieldsV1", *path)) is not None for path in paths)
    ]
    latest = max(others, key=lambda entry: str(get_path(entry, ("time",))), default=None)
    return str(get_path(latest, ("manager",)) or "somebody")


def with_autoscaler_status(found: list[Found], flavour: Flavour, status: str) -> list[Found]:
    """The groups, with what ``cluster-autoscaler-status`` says of those that it backs off from.

    Its silence says nothing: the autoscaler's timeout often gives no backoff at all. Groups are named
    ``<kind>/<namespace>/<name>`` by the clusterapi provider and ``<namespace>.<name>`` by Gardener's.
    """
    try:
        groups = get_path(yaml.safe_load(status), ("nodeGroups",))
    except (yaml.YAMLError, RecursionError, ValueError):  # ValueError: a date that does not exist
        groups = None
    failures: dict[str, MachineFailure] = {}
    for entry in groups if isinstance(groups, list) else []:
        if get_path(entry, ("scaleUp", "status")) == "Backoff":
            info = get_path(entry, ("scaleUp", "backoffInfo"))
            since = get_path(entry, ("scaleUp", "lastTransitionTime"))
            since = since.isoformat() if isinstance(since, datetime) else since
            if is_of_bounds(str(get_path(info, ("errorMessage",)))):
                continue  # our own bounds, lowered between two looks of the autoscaler's
            name = str(get_path(entry, ("name",)))
            failures[name] = _failure(get_path(info, ("errorCode",)), get_path(info, ("errorMessage",)), since)
    if not failures:
        return found

    def told(one: Found) -> Found:
        key = one.group.key
        gardener = flavour.name == "gardener"
        name = f"{key.namespace}.{key.name}" if gardener else f"{one.group.kind}/{key.namespace}/{key.name}"
        failure = failures.get(name)
        return replace(one, group=replace(one.group, autoscaler_failure=failure)) if failure else one

    return [told(one) for one in found]


def _or(value: _Read | None, default: _Read) -> _Read:
    return default if value is None else value


def _running(item: Object) -> int:
    """Machines with a ready node, as the status counts them. An object without status has none yet."""
    ready = get_path(item, ("status", "readyReplicas"))
    return ready if isinstance(ready, int) and not isinstance(ready, bool) and ready > 0 else 0


def _rolling(item: Object, reading: Reading) -> Rolling | None:
    """The numbers of a rolling update; where they stand differs between API versions."""
    for path in (("spec", "strategy", "rollingUpdate"), ("spec", "rollout", "strategy", "rollingUpdate")):
        found = get_path(item, path)
        if isinstance(found, Mapping) and "maxSurge" in found and "maxUnavailable" in found:
            surge = reading.read("maxSurge", found["maxSurge"], read_int_or_percent)
            unavailable = reading.read("maxUnavailable", found["maxUnavailable"], read_int_or_percent)
            return None if surge is None or unavailable is None else Rolling(surge, unavailable)
    return None


def _topology(cluster: Object) -> dict[str, Object]:
    """The entries of a Cluster's topology that ClusterClass-managed MachineDeployments come from, by name."""
    entries = get_path(cluster, ("spec", "topology", "workers", "machineDeployments"))
    named = [entry for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, Mapping)]
    # Of two with one name the first counts; the API allows no two.
    return {name: entry for entry in reversed(named) if isinstance(name := entry.get("name"), str)}


def _frozen(
    flavour: Flavour,
    item: Object,
    sets: list[Object],
    parent: Object | None,
    entry: Object | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, Any],
) -> str | None:
    """Why a group must not be written now, or None."""
    if get_path(item, ("metadata", "deletionTimestamp")) is not None:
        return "it is being deleted"
    if get_path(item, ("spec", "paused")) is True or "cluster.x-k8s.io/paused" in annotations:
        return "it is paused"
    if parent is not None and get_path(parent, ("spec", "paused")) is True:
        return f"its Cluster {'/'.join(name_of(parent))} is paused"
    if parent is not None and get_path(parent, ("metadata", "deletionTimestamp")) is not None:
        return f"its Cluster {'/'.join(name_of(parent))} is being deleted"
    for place in ("spec", "status"):
        authority = get_path(item, (place, "authoritativeAPI"))
        if authority not in (None, "", "MachineAPI"):
            return f"{place}.authoritativeAPI is {shown(authority)}: another API owns it"
    conditions = get_path(item, ("status", "conditions"))
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, Mapping) and condition.get("type") == "Frozen" and condition.get("status") == "True":
            return "machine-controller-manager has frozen it"
    # Kubernetes' own way to see a rollout: more than one MachineSet still has machines
    # (cluster-autoscaler clusterapi_nodegroup.go:531-587).
    holding = [
        one
        for one in sets
        if (get_path(one, ("spec", "replicas")) or 0) or (get_path(one, ("status", "replicas")) or 0)
    ]
    if len(holding) > 1:
        return f"it is rolling: {len(holding)} MachineSets hold machines"
    if TOPOLOGY_OWNED in labels:
        if entry is None:
            return "it belongs to a ClusterClass, and its entry in the Cluster's topology is not there"
        if entry.get("replicas") is not None:
            return "the Cluster's topology sets its replicas"
    if flavour.name == "gardener" and labels.get("freeze") == "True":
        return "machine-controller-manager has frozen it"
    return None


def _worker_limits(workers: Iterable[Object]) -> dict[tuple[str, str, str], Bounds]:
    """Replicas that Gardener's Worker lets stand per (namespace, pool, zone).

    Every reconciliation of the Worker puts replicas back into the zone's share
    (extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go:243-273).
    """
    limits = {}
    for worker in workers:
        namespace, _ = name_of(worker)
        pools = get_path(worker, ("spec", "pools"))
        for pool in pools if isinstance(pools, list) else []:
            zones = get_path(pool, ("zones",))
            try:
                low, high = read_count(get_path(pool, ("minimum",))), read_count(get_path(pool, ("maximum",)))
            except BadValueError:
                continue
            for index, zone in enumerate(zones if isinstance(zones, list) else []):
                share = [distribute_over_zones(index, size, len(zones)) for size in (low, high)]
                limits[(namespace, str(get_path(pool, ("name",))), str(zone))] = Bounds(min(share), max(share))
    return limits


def read_machine(flavour: Flavour, item: Object, now: datetime) -> Machine:
    """One machine, as far as redistribution needs it."""
    annotations = mapping(get_path(item, ("metadata", "annotations")))
    key, value = flavour.mark
    if flavour.name == "gardener":
        # The node label is set when the VM is made; the phase says whether the node has joined
        # (machine-controller-manager pkg/util/provider/machinecontroller/machine_util.go).
        phase = get_path(item, ("status", "currentStatus", "phase"))
        has_node, ready = phase in ("Running", "Unknown"), phase != "Unknown"
        marked = annotations.get(key) == value
    else:
        has_node = get_path(item, ("status", "nodeRef", "name")) is not None
        health = _condition(get_path(item, ("status", "conditions")), "NodeHealthy")
        ready = health is None or health.get("status") != "False"
        marked = bool(annotations.get(key))
    return Machine(
        name=name_of(item)[1],
        has_node=has_node,
        ready=ready,
        created_at=_moment(get_path(item, ("metadata", "creationTimestamp"))) or _LONG_AGO,
        launched_at=_LAUNCHES[flavour.name](item),
        preserved=not has_node and is_preserved(flavour, item, now),
        marked=marked,
        deleting=get_path(item, ("metadata", "deletionTimestamp")) is not None,
        failure=_FAILURES[flavour.name](item),
    )


def is_preserved(flavour: Flavour, item: Object, now: datetime) -> bool:
    """Whether Gardener keeps the machine, running or failed: when replicas fall it goes last, whatever its mark says.

    Asked for by annotation, in effect once a time of expiry is set, and over when that has come
    (machine-controller-manager pkg/controller/machineset.go, shouldFailedMachineBeTerminated).
    """
    if flavour.name != "gardener":
        return False
    expires = get_path(item, ("status", "currentStatus", "preserveExpiryTime"))
    if expires is not None:
        until = _moment(expires)
        return until is not None and until > now
    # Not in effect yet. The node's annotation would win, but nodes are not read.
    asked = get_path(item, ("metadata", "annotations", "node.machine.sapcloud.io/preserve"))
    return get_path(item, ("status", "currentStatus", "phase")) == "Failed" and asked in _ASKS_TO_PRESERVE


def _gardener_launch(item: Object) -> datetime | None:
    operation = get_path(item, ("status", "lastOperation"))
    if get_path(operation, ("type",)) != "Create" or get_path(operation, ("state",)) != "Successful":
        return None
    return _moment(get_path(operation, ("lastUpdateTime",)))


def _cluster_api_launch(item: Object) -> datetime | None:
    for place in (("status", "deprecated", "v1beta1"), ("status",)):
        condition = _condition(get_path(item, (*place, "conditions")), "InfrastructureReady")
        if condition is not None and condition.get("status") == "True":
            return _moment(condition.get("lastTransitionTime"))
    return None


def _openshift_launch(item: Object) -> datetime | None:
    condition = _condition(get_path(item, ("status", "providerStatus", "conditions")), "MachineCreation")
    if condition is None or condition.get("status") != "True":
        return None
    return _moment(condition.get("lastTransitionTime"))


def _gardener_failure(item: Object) -> MachineFailure | None:
    """``status.lastOperation``: what machine-controller-manager last tried, and how the provider refused it.

    A similar status is not written again for 30 minutes (isMachineStatusSimilar), so its time is that of the first.
    """
    operation = get_path(item, ("status", "lastOperation"))
    if get_path(operation, ("type",)) != "Create" or get_path(operation, ("state",)) != "Failed":
        return None
    return _failure(
        get_path(operation, ("errorCode",)),
        get_path(operation, ("description",)),
        get_path(operation, ("lastUpdateTime",)),
    )


def _cluster_api_failure(item: Object) -> MachineFailure | None:
    """The infrastructure's condition, mirrored by the Machine; where it stands differs between the API versions.

    CAPA mirrors InstanceProvisionFailed with the EC2 error and sets no failureMessage
    (controllers/awsmachine_controller.go:577-581). ``NotReady`` alone is also said of a machine that is only young.
    """
    for place in (("status", "deprecated", "v1beta1"), ("status",)):
        message = get_path(item, (*place, "failureMessage"))
        if message is not None:
            return _failure(get_path(item, (*place, "failureReason")), message, None)
        condition = _condition(get_path(item, (*place, "conditions")), "InfrastructureReady")
        if condition is None or condition.get("status") != "False":
            continue
        reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
        failed = condition.get("severity") == "Error" or reason.endswith(("Failed", "Error"))
        if failed or classify("", message) is not FailureClass.UNKNOWN:
            return _failure(reason, message, condition.get("lastTransitionTime"))
    return None


def _openshift_failure(item: Object) -> MachineFailure | None:
    """``errorReason`` where the provider's answer was final, else the provider's MachineCreation condition.

    InsufficientInstanceCapacity is a 5xx: phase stays Provisioning and only the condition tells
    (machine-api-provider-aws pkg/actuators/machine/instances.go:552-579, utils.go:396-411).
    """
    if get_path(item, ("status", "errorMessage")) is not None:
        return _failure(get_path(item, ("status", "errorReason")), get_path(item, ("status", "errorMessage")), None)
    condition = _condition(get_path(item, ("status", "providerStatus", "conditions")), "MachineCreation")
    if condition is None or condition.get("status") != "False":
        return None
    return _failure(condition.get("reason"), condition.get("message"), condition.get("lastTransitionTime"))


# When the provider last made the machine: where that failed before, later than its creation.
_LAUNCHES: dict[str, Callable[[Object], datetime | None]] = {
    "gardener": _gardener_launch,
    "cluster-api": _cluster_api_launch,
    "openshift": _openshift_launch,
}
_FAILURES: dict[str, Callable[[Object], MachineFailure | None]] = {
    "gardener": _gardener_failure,
    "cluster-api": _cluster_api_failure,
    "openshift": _openshift_failure,
}


def _condition(conditions: Any, kind: str) -> Mapping[str, Any] | None:
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, Mapping) and condition.get("type") == kind:
            return condition
    return None


def _failure(code: Any, message: Any, moment: Any) -> MachineFailure:
    return MachineFailure(code=str(code or "")[:128], message=str(message or "")[:1024], at=_moment(moment))


def _moment(value: object) -> datetime | None:
    """A moment of the API, drawn into the years that records hold; None where it says none, or nothing that is one."""
    if not isinstance(value, str | datetime):  # YAML makes moments of them by itself
        return None
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return min(max(found if found.tzinfo else found.replace(tzinfo=UTC), _FIRST), _LAST)


Owner = tuple[str, str, str]
"""Namespace, kind and name of a scalable."""


def by_owner(flavour: Flavour, machines: Iterable[Object]) -> dict[Owner, list[Object]]:
    """The machines of each scalable, each once. One pass over the machines, however many groups there are."""
    found: dict[Owner, list[Object]] = {}
    for machine in machines:
        for owner in owners_of(flavour, machine):
            found.setdefault(owner, []).append(machine)
    return found


def owner_of(group: NodeGroup) -> Owner:
    """The group as :func:`by_owner` calls it."""
    return group.key.namespace, group.kind, group.key.name


def owners_of(flavour: Flavour, machine: Object) -> list[Owner]:
    """The scalables that a machine may be one of: by its label, else by its controller."""
    namespace, controller = name_of(machine)[0], _controller(machine)
    labels = get_path(machine, ("metadata", "labels"))
    found = []
    for kind in flavour.scalables:
        label = flavour.machine_labels.get(kind.kind)
        if label is not None:
            name = get_path(labels, (label,))
        else:
            name = controller[1] if controller and controller[0] == kind.kind else None
        if isinstance(name, str):
            found.append((namespace, kind.kind, name))
    return found


def with_machines(group: NodeGroup, machines: Iterable[Machine]) -> NodeGroup:
    """The group with its machines, running counted from them: those with a node that are not going.

    The status is a second witness. A list by label can miss machines that somebody has relabelled, and what runs must
    never be given up because it was not seen.
    """
    listed = tuple(machines)
    seen = sum(machine.has_node and not machine.deleting for machine in listed)
    return replace(group, machines=listed, running=max(seen, min(group.running, group.requested)))


def as_observation(found: Iterable[Found], skipped: Iterable[Skipped]) -> Observation:
    """What plans are made from."""
    return Observation(groups=tuple(one.group for one in found), skipped=tuple(skipped))
