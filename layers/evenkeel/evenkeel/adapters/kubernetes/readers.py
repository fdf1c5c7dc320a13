"""From API objects as JSON to node groups. Pure: the command line reads files with the same functions.

Nothing here trusts the shape of an object: a field of the wrong type is a fault with the object's name, never an
exception.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import yaml

from evenkeel.adapters.kubernetes.flavours import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN,
    POOL_LABEL,
    TOPOLOGY_NAME,
    TOPOLOGY_OWNED,
    ZONE_LABEL,
    Flavour,
    Path,
)
from evenkeel.domain.discovery import Discovery, discovered
from evenkeel.domain.distribute import distribute_over_zones, read_int_or_percent
from evenkeel.domain.failures import FailureClass, classify
from evenkeel.domain.model import (
    Bounds,
    GroupKey,
    Machine,
    MachineFailure,
    NodeGroup,
    Observation,
    OnFailure,
    Rolling,
    Skipped,
    Strategy,
)
from evenkeel.domain.offer import read_adopted, read_offer, read_publication
from evenkeel.domain.values import BadValueError, Fault, read_count, read_flag, read_weight, shown

Object = Mapping[str, Any]
_Read = TypeVar("_Read")
_ZONE_INDEX = re.compile(r"-z([0-9]{1,4})$")
# OpenShift refuses a MachineAutoscaler whose spec.maxReplicas is below 1.
_MACHINE_AUTOSCALER_LEAST_MAX = 1


def at(object: Any, path: Path) -> Any:
    """The value at a path, or None where any step is missing or no mapping."""
    for step in path:
        if not isinstance(object, Mapping):
            return None
        object = object.get(step)
    return object


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, or nothing in its place where it is no mapping."""
    return value if isinstance(value, Mapping) else {}


def texts(value: Any) -> dict[str, str]:
    """The entries of a mapping whose values are texts."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}


def name_of(object: Object) -> tuple[str, str]:
    """Namespace and name; empty where the object has none."""
    namespace, name = at(object, ("metadata", "namespace")), at(object, ("metadata", "name"))
    return (namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


def _controller(object: Object) -> tuple[str, str] | None:
    """Kind and name of the controlling owner."""
    owners = at(object, ("metadata", "ownerReferences"))
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
    """Collects the faults of one object."""

    name: str
    faults: list[Fault] = field(default_factory=list)

    def read(self, where: str, value: object, reader: Callable[[Any], _Read]) -> _Read | None:
        """The value, or None where there is none or it is bad; then the fault is noted."""
        if value is None:
            return None
        try:
            return reader(value)
        except BadValueError as error:
            self.faults.append(Fault(object=self.name, field=where, value=shown(value), problem=str(error)))
            return None


@dataclass(kw_only=True)
class Listing:
    """The objects of one flavour, by kind, as one look found them."""

    flavour: Flavour
    objects: dict[str, list[Object]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return self.objects.get(kind, [])


def read_groups(listing: Listing, discoveries: Sequence[Discovery] = ()) -> tuple[list[Found], list[Skipped]]:
    """The node groups among a flavour's objects, and the scalables that are none, each with the reason.

    Running is what the status says; :func:`with_machines` counts again where that differs from what is requested.
    """
    flavour = listing.flavour
    sets_of: dict[tuple[str, str], list[Object]] = {}
    for item in listing.of("MachineSet"):
        owner = _controller(item)
        if owner and owner[0] == "MachineDeployment":
            sets_of.setdefault((name_of(item)[0], owner[1]), []).append(item)
    clusters = {name_of(item): item for item in listing.of("Cluster")}
    scalers = {
        (name_of(item)[0], target): item
        for item in listing.of("MachineAutoscaler")
        if at(item, ("spec", "scaleTargetRef", "kind")) in (None, "MachineSet")
        and isinstance(target := at(item, ("spec", "scaleTargetRef", "name")), str)
    }
    limits = _worker_limits(listing.of("Worker"))
    found: list[Found] = []
    skipped: list[Skipped] = []
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            owner = _controller(item)
            if owner and owner[0] == "MachineDeployment":
                continue  # part of a node group, none of its own
            namespace, name = name_of(item)
            if not name:
                skipped.append(Skipped(namespace=namespace, name=name, reason=f"a {kind.kind} without metadata.name"))
                continue
            cluster = next((c for path in flavour.cluster_paths if isinstance(c := at(item, path), str)), "")
            labels = texts(at(item, ("metadata", "labels")))
            if not discovered(discoveries, flavour=flavour.name, namespace=namespace, cluster=cluster, labels=labels):
                skipped.append(Skipped(namespace=namespace, name=name, reason="not matched by the record's discovery"))
                continue
            found.append(
                _group(
                    flavour,
                    kind.kind,
                    item,
                    cluster=cluster,
                    sets=sets_of.get((namespace, name), []),
                    parent=clusters.get((namespace, cluster)),
                    scaler=scalers.get((namespace, name)),
                    limits=limits,
                )
            )
    return _hibernated(found), skipped


def _hibernated(found: list[Found]) -> list[Found]:
    """Freezes pools of hibernated shoots: no replicas at all, although their Worker's minimum asks for some.

    Awake, Gardener would have put the replicas back long ago; raising them to PoolMinimum would wake the shoot.
    """
    asleep: dict[tuple[str, str | None], list[Found]] = {}
    for one in found:
        if one.group.limits is not None:
            asleep.setdefault((one.group.key.namespace, one.group.pool_label), []).append(one)
    frozen = {
        one.group.key
        for members in asleep.values()
        if not any(one.group.requested for one in members)
        and any(one.group.limits and one.group.limits.min for one in members)
        for one in members
    }
    why = "its shoot is hibernated: the pool has no replicas although its Worker asks for some"
    return [
        replace(one, group=replace(one.group, frozen_because=one.group.frozen_because or why))
        if one.group.key in frozen
        else one
        for one in found
    ]


def _group(
    flavour: Flavour,
    kind: str,
    item: Object,
    *,
    cluster: str,
    sets: list[Object],
    parent: Object | None,
    scaler: Object | None,
    limits: Mapping[tuple[str, str, str], Bounds],
) -> Found:
    namespace, name = name_of(item)
    reading = Reading(name=f"{kind} {namespace}/{name}")
    labels = texts(at(item, ("metadata", "labels")))
    annotations = mapping(at(item, ("metadata", "annotations")))

    # Who owns the bounds: a MachineAutoscaler, the Cluster's topology, or the scalable itself.
    owner: Object | None = None
    if scaler is not None:
        owner, owned = scaler, mapping(at(scaler, ("metadata", "annotations")))
        where = f"MachineAutoscaler {'/'.join(name_of(scaler))}"
        low = Reading(name=where)
        minimum = low.read("spec.minReplicas", at(scaler, ("spec", "minReplicas")), read_count)
        maximum = low.read("spec.maxReplicas", at(scaler, ("spec", "maxReplicas")), read_count)
        reading.faults += low.faults
        has_bounds = True
    else:
        owned = annotations
        if TOPOLOGY_OWNED in labels and parent is not None and (entry := topology_entry(parent, labels)) is not None:
            owner, owned = parent, mapping(at(entry, ("metadata", "annotations")))
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

    replicas = at(item, ("spec", "replicas"))
    requested = reading.read("spec.replicas", replicas, read_count)
    frozen = _frozen(flavour, item, sets, parent, labels, annotations)
    if replicas is None:
        requested = flavour.absent_replicas
        if requested is None and frozen is None:
            frozen = "its spec.replicas is not set yet"
    zone = next((found for path in (*flavour.zone_paths, ZONE_LABEL) if (found := at(item, path)) is not None), None)
    if zone is not None and (not isinstance(zone, str) or not zone):
        problem = "a zone is a name such as eu-central-1a"
        reading.faults.append(Fault(object=reading.name, field="zone", value=shown(zone), problem=problem))
        zone = None
    pool = labels.get(POOL_LABEL) or (labels.get(flavour.pool_label) if flavour.pool_label else None)
    pool = pool or next((text for path in flavour.pool_paths if isinstance(text := at(item, path), str)), None)
    adopted_text = owned.get(ADOPTED)
    adopted = reading.read(ADOPTED, adopted_text, lambda text: (read_adopted(str(text)),))
    decision = text if isinstance(text := owned.get(DECISION), str) else None
    index = _ZONE_INDEX.search(name)
    group = NodeGroup(
        key=GroupKey(flavour.name, namespace, name),
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
        bounds_by=_bounds_by(item if owner is None else owner, flavour.max_key),
        move=text if isinstance(text := annotations.get(MOVE), str) else None,
        floor_max=_MACHINE_AUTOSCALER_LEAST_MAX if scaler is not None else 0,
        limits=limits.get((namespace, pool or "", zone or "")),
        two_objects=owner is not None,
        frozen_because=frozen,
        fence=_or(reading.read(OWN + "fence", annotations.get(OWN + "fence"), read_flag), True),
        weight=_or(reading.read(OWN + "weight", annotations.get(OWN + "weight"), read_weight), 1),
        zone_max=reading.read(OWN + "zone-max", annotations.get(OWN + "zone-max"), read_count),
        pool_min=reading.read(OWN + "pool-min", annotations.get(OWN + "pool-min"), read_count),
        pool_max=reading.read(OWN + "pool-max", annotations.get(OWN + "pool-max"), read_count),
        strategy=reading.read(OWN + "strategy", annotations.get(OWN + "strategy"), Strategy.read),
        on_failure=reading.read(OWN + "on-failure", annotations.get(OWN + "on-failure"), OnFailure.read),
        rolling=_rolling(item, reading),
        faults=tuple(reading.faults),
    )
    return Found(group=group, scalable=item, owner=owner)


def _bounds_by(item: Object, max_key: str) -> str:
    """Who, besides us, last wrote the object's bounds, as its managedFields say."""
    entries = at(item, ("metadata", "managedFields"))
    others = [
        entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and entry.get("manager") != "evenkeel" and _names_bounds(entry, max_key)
    ]
    latest = max(others, key=lambda entry: str(entry.get("time", "")), default={})
    return str(latest.get("manager") or "somebody")


def _names_bounds(entry: Mapping[str, Any], max_key: str) -> bool:
    annotation = at(entry, ("fieldsV1", "f:metadata", "f:annotations", f"f:{max_key}"))
    replicas = at(entry, ("fieldsV1", "f:spec", "f:maxReplicas"))
    topology = at(entry, ("fieldsV1", "f:spec", "f:topology"))
    return annotation is not None or replicas is not None or topology is not None


def with_autoscaler_status(found: list[Found], flavour: Flavour, status: str) -> list[Found]:
    """The groups, with what ``cluster-autoscaler-status`` says of those that it backs off from.

    Its silence says nothing: the autoscaler's timeout often gives no backoff at all. Groups are named
    ``<kind>/<namespace>/<name>`` by the clusterapi provider and ``<namespace>.<name>`` by Gardener's.
    """
    try:
        groups = at(yaml.safe_load(status), ("nodeGroups",))
    except (yaml.YAMLError, RecursionError, ValueError):  # ValueError: a date that does not exist
        groups = None
    failures: dict[str, MachineFailure] = {}
    for entry in groups if isinstance(groups, list) else []:
        if at(entry, ("scaleUp", "status")) == "Backoff":
            info = at(entry, ("scaleUp", "backoffInfo"))
            since = at(entry, ("scaleUp", "lastTransitionTime"))
            since = since.isoformat() if isinstance(since, datetime) else since
            name = str(at(entry, ("name",)))
            failures[name] = _failure(at(info, ("errorCode",)), at(info, ("errorMessage",)), since)
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
    ready = at(item, ("status", "readyReplicas"))
    return ready if isinstance(ready, int) and not isinstance(ready, bool) and ready > 0 else 0


def _rolling(item: Object, reading: Reading) -> Rolling | None:
    """The numbers of a rolling update; where they stand differs between API versions."""
    for path in (("spec", "strategy", "rollingUpdate"), ("spec", "rollout", "strategy", "rollingUpdate")):
        found = at(item, path)
        if isinstance(found, Mapping) and "maxSurge" in found and "maxUnavailable" in found:
            surge = reading.read("maxSurge", found["maxSurge"], read_int_or_percent)
            unavailable = reading.read("maxUnavailable", found["maxUnavailable"], read_int_or_percent)
            return None if surge is None or unavailable is None else Rolling(surge, unavailable)
    return None


def topology_entry(cluster: Object, labels: Mapping[str, str]) -> Object | None:
    """The entry of a Cluster's topology that a ClusterClass-managed MachineDeployment comes from."""
    entries = at(cluster, ("spec", "topology", "workers", "machineDeployments"))
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == labels.get(TOPOLOGY_NAME):
            return entry
    return None


def _frozen(
    flavour: Flavour,
    item: Object,
    sets: list[Object],
    parent: Object | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, Any],
) -> str | None:
    """Why a group must not be written now, or None."""
    if at(item, ("metadata", "deletionTimestamp")) is not None:
        return "it is being deleted"
    if at(item, ("spec", "paused")) is True or "cluster.x-k8s.io/paused" in annotations:
        return "it is paused"
    if parent is not None and at(parent, ("spec", "paused")) is True:
        return f"its Cluster {'/'.join(name_of(parent))} is paused"
    if parent is not None and at(parent, ("metadata", "deletionTimestamp")) is not None:
        return f"its Cluster {'/'.join(name_of(parent))} is being deleted"
    for place in ("spec", "status"):
        authority = at(item, (place, "authoritativeAPI"))
        if authority not in (None, "", "MachineAPI"):
            return f"{place}.authoritativeAPI is {shown(authority)}: another API owns it"
    conditions = at(item, ("status", "conditions"))
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, Mapping) and condition.get("type") == "Frozen" and condition.get("status") == "True":
            return "machine-controller-manager has frozen it"
    # Kubernetes' own way to see a rollout: more than one MachineSet still has machines
    # (cluster-autoscaler clusterapi_nodegroup.go:531-587).
    holding = [one for one in sets if (at(one, ("spec", "replicas")) or 0) or (at(one, ("status", "replicas")) or 0)]
    if len(holding) > 1:
        return f"it is rolling: {len(holding)} MachineSets hold machines"
    if TOPOLOGY_OWNED in labels:
        if parent is None or (entry := topology_entry(parent, labels)) is None:
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
        pools = at(worker, ("spec", "pools"))
        for pool in pools if isinstance(pools, list) else []:
            zones = at(pool, ("zones",))
            try:
                low, high = read_count(at(pool, ("minimum",))), read_count(at(pool, ("maximum",)))
            except BadValueError:
                continue
            for index, zone in enumerate(zones if isinstance(zones, list) else []):
                share = [distribute_over_zones(index, size, len(zones)) for size in (low, high)]
                limits[(namespace, str(at(pool, ("name",))), str(zone))] = Bounds(min(share), max(share))
    return limits


def read_machine(flavour: Flavour, item: Object) -> Machine:
    """One machine, as far as redistribution needs it."""
    annotations = mapping(at(item, ("metadata", "annotations")))
    key, value = flavour.mark
    if flavour.name == "gardener":
        # The node label is set when the VM is made; the phase says whether the node has joined
        # (machine-controller-manager pkg/util/provider/machinecontroller/machine_util.go).
        phase = at(item, ("status", "currentStatus", "phase"))
        has_node, ready = phase in ("Running", "Unknown"), phase != "Unknown"
        marked = annotations.get(key) == value
    else:
        has_node = at(item, ("status", "nodeRef", "name")) is not None
        health = _condition(at(item, ("status", "conditions")), "NodeHealthy")
        ready = health is None or health.get("status") != "False"
        marked = bool(annotations.get(key))
    return Machine(
        name=name_of(item)[1],
        has_node=has_node,
        ready=ready,
        created_at=_moment(at(item, ("metadata", "creationTimestamp"))),
        marked=marked,
        deleting=at(item, ("metadata", "deletionTimestamp")) is not None,
        failure=_FAILURES[flavour.name](item),
    )


def _gardener_failure(item: Object) -> MachineFailure | None:
    """``status.lastOperation``: what machine-controller-manager last tried, and how the provider refused it.

    A similar status is not written again for 30 minutes (isMachineStatusSimilar), so its time is that of the first.
    """
    operation = at(item, ("status", "lastOperation"))
    if at(operation, ("type",)) != "Create" or at(operation, ("state",)) != "Failed":
        return None
    return _failure(at(operation, ("errorCode",)), at(operation, ("description",)), at(operation, ("lastUpdateTime",)))


def _cluster_api_failure(item: Object) -> MachineFailure | None:
    """The infrastructure's condition, mirrored by the Machine; where it stands differs between the API versions.

    CAPA mirrors InstanceProvisionFailed with the EC2 error and sets no failureMessage
    (controllers/awsmachine_controller.go:577-581). ``NotReady`` alone is also said of a machine that is only young.
    """
    for place in (("status", "deprecated", "v1beta1"), ("status",)):
        message = at(item, (*place, "failureMessage"))
        if message is not None:
            return _failure(at(item, (*place, "failureReason")), message, None)
        condition = _condition(at(item, (*place, "conditions")), "InfrastructureReady")
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
    if at(item, ("status", "errorMessage")) is not None:
        return _failure(at(item, ("status", "errorReason")), at(item, ("status", "errorMessage")), None)
    condition = _condition(at(item, ("status", "providerStatus", "conditions")), "MachineCreation")
    if condition is None or condition.get("status") != "False":
        return None
    return _failure(condition.get("reason"), condition.get("message"), condition.get("lastTransitionTime"))


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
    return MachineFailure(
        code=str(code or "")[:128],
        message=str(message or "")[:1024],
        at=_moment(moment) if isinstance(moment, str) else None,
    )


def _moment(value: object) -> datetime:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        found = datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def belongs_to(found: Found, flavour: Flavour, machine: Object) -> bool:
    """Whether a machine is one of this group's."""
    key = found.group.key
    return name_of(machine)[0] == key.namespace and (found.group.kind, key.name) in owners_of(flavour, machine)


def owners_of(flavour: Flavour, machine: Object) -> list[tuple[str, Any]]:
    """Kind and name of the scalables that a machine may be one of: by its label, else by its controller."""
    controller = _controller(machine)
    return [
        (kind.kind, at(machine, ("metadata", "labels", label)))
        if (label := flavour.machine_labels.get(kind.kind)) is not None
        else (kind.kind, controller[1] if controller and controller[0] == kind.kind else None)
        for kind in flavour.scalables
    ]


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
