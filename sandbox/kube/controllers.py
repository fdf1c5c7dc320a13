"""The machine controllers of the three flavours, as far as Evenkeel can see their work.

Each `step` does what the real controllers do between two looks: replicas become machines, machines become nodes after
a delay or fail as the cloud says, surplus machines go in the flavour's own order, statuses follow. No threads and no
clock of their own: whoever steps decides what time it is.
"""

# ruff: noqa: ARG002, B027 - a hook takes what some flavour needs, and does nothing where a flavour needs nothing

from __future__ import annotations

import hashlib
import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sandbox.kube.cloud import Cloud, Instance, LaunchError
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Json
from sandbox.kube.store import Object, Store, rfc3339

ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take."""

    #: from an accepted launch to a node
    provision: timedelta = timedelta(seconds=60)
    #: from a deletion to the end of the machine
    deletion: timedelta = timedelta(0)
    #: machine-controller-manager's --machine-creation-timeout
    creation_timeout: timedelta = timedelta(minutes=20)
    #: machine-controller-manager's --resource-exhausted-retry, and its medium retry for other codes
    resource_exhausted_retry: timedelta = timedelta(minutes=10)
    other_retry: timedelta = timedelta(minutes=3)
    #: machine-controller-manager leaves a status alone that says the same as 30 minutes ago
    similar_status: timedelta = timedelta(minutes=30)
    #: machine-controller-manager's --machine-preserve-timeout, as Gardener sets it
    preserve: timedelta = timedelta(hours=96)
    #: requeue of Cluster API's and OpenShift's machine controllers after a refused launch
    infrastructure_retry: timedelta = timedelta(seconds=30)


# -- the order in which machines go -----------------------------------------------------------------------------

_MCM_PHASES = {
    "Terminating": 0,
    "Failed": 1,
    "CrashLoopBackOff": 2,
    "Unknown": 3,
    "Pending": 4,
    "Available": 5,
    "Running": 6,
}
_TEN_DAYS = 864_000.0  # seconds
PRESERVE = "node.machine.sapcloud.io/preserve"
MARKED_AT = "machine.sapcloud.io/marked-for-deletion-time"
SCALED_AT = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
TRIGGER = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
UPDATING = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
PENDING_HOOKS = "runtime.cluster.x-k8s.io/pending-hooks"


def _annotations(item: Object) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def _deleting(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _age(item: Object, now: datetime) -> float:
    """Seconds since creation."""
    return (now - parse_time(item["metadata"]["creationTimestamp"])).total_seconds()


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def is_preserved(machine: Object, now: datetime) -> bool:
    """Whether machine-controller-manager keeps the machine: the time of expiry is set and has not come."""
    expires = ((machine.get("status") or {}).get("currentStatus") or {}).get("preserveExpiryTime")
    return expires is not None and parse_time(expires) > now


def _marked_at(machine: Object) -> datetime | None:
    try:
        return parse_time(_annotations(machine).get(MARKED_AT, ""))
    except ValueError:
        return None


def gardener_deletion_order(machines: Iterable[Object], now: datetime) -> list[Object]:
    """machine-controller-manager's order (pkg/controller/controller_utils.go, ActiveMachines).

    Preserved ones last, those that it preserved by itself before those that somebody asked for, the first to expire
    before the others; then by priority (lower first, default 3), marked before unmarked and the older mark first, then
    by phase and age.
    """

    def key(machine: Object) -> tuple[Any, ...]:
        current = (machine.get("status") or {}).get("currentStatus") or {}
        kept: tuple[Any, ...] = (False, False, "")
        if is_preserved(machine, now):
            by_itself = _annotations(machine).get(PRESERVE) == "auto-preserved"
            kept = (True, not by_itself, parse_time(current["preserveExpiryTime"]).isoformat())
        try:
            priority = int(_annotations(machine).get("machinepriority.machine.sapcloud.io") or 3)
        except ValueError:
            priority = 3
        marked = _marked_at(machine)
        mark = (marked is None, marked.isoformat() if marked else "")
        phase = _MCM_PHASES.get(current.get("phase", ""), 0)
        return *kept, priority, *mark, phase, machine["metadata"]["creationTimestamp"]

    return sorted(machines, key=key)


def cluster_api_deletion_order(machines: Iterable[Object], order: str, now: datetime) -> list[Object]:
    """Cluster API's: deleting, marked (any value), being updated in place, unhealthy, then the set's order and name."""

    def priority(machine: Object) -> float:
        if _deleting(machine):
            return 100.0
        if "cluster.x-k8s.io/delete-machine" in _annotations(machine):
            return 80.0
        # An update in place begins with the annotation and ends with the hook.
        if UPDATING in _annotations(machine) or "UpdateMachine" in _annotations(machine).get(PENDING_HOOKS, "").split(
            ","
        ):
            return 75.0
        if not _cluster_api_healthy(machine):
            return 50.0
        by_age = 50.0 * (1.0 - math.exp(-max(0.0, _age(machine, now)) / _TEN_DAYS))
        return {"Oldest": by_age, "Newest": 50.0 - by_age}.get(order, 20.0)

    return sorted(machines, key=lambda machine: (-priority(machine), machine["metadata"]["name"]))


def _cluster_api_healthy(machine: Object) -> bool:
    status = machine.get("status") or {}
    if not status.get("nodeRef"):
        return False
    states = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    return states.get("NodeHealthy") != "False" and states.get("HealthCheckSucceeded") != "False"


def openshift_deletion_order(machines: Iterable[Object], policy: str, now: datetime, *, seed: int) -> list[Object]:
    """OpenShift: deleting, marked (a value that is not empty) or failed, without a node, then the set's policy.

    The older mark `cluster-api-delete-machine` counts under policy Oldest only. Ties are random there; here a seed
    settles them.
    """

    def priority(machine: Object) -> float:
        status = machine.get("status") or {}
        notes = _annotations(machine)
        marked = bool(notes.get("machine.openshift.io/delete-machine"))
        failed = "errorReason" in status or "errorMessage" in status
        by_age = 100.0 * (1.0 - math.exp(-max(0.0, _age(machine, now)) / _TEN_DAYS))
        if _deleting(machine):
            return 100.0
        if policy == "Oldest":
            old_mark = bool(notes.get("machine.openshift.io/cluster-api-delete-machine"))
            return 100.0 if marked or old_mark or failed else by_age
        if policy == "Newest":
            return 100.0 if marked or failed else 100.0 - by_age
        if marked or failed:
            return 50.0
        return 20.0 if status.get("nodeRef") else 40.0

    shuffled = sorted(machines, key=lambda machine: str(machine["metadata"]["name"]))
    random.Random(seed).shuffle(shuffled)
    return sorted(shuffled, key=priority, reverse=True)


# -- controllers ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Launch:
    """What the controller knows of a machine's instance."""

    instance: Instance | None = None
    joins_at: datetime | None = None
    next_try: datetime | None = None


class MachineControllers(ABC):
    """What the flavours share: sets keep their number of machines, machines go from launch to node to end."""

    flavour: ClassVar[str]
    group: ClassVar[str]
    manager: ClassVar[str]
    finalizer: ClassVar[str]
    #: Cluster API goes on counting machines that are being deleted, the others do not
    counts_deleting: ClassVar[bool] = False

    def __init__(self, store: Store, cloud: Cloud, *, timing: Timing | None = None, seed: int = 0) -> None:
        self.store = store
        self.cloud = cloud
        self.timing = timing or Timing()
        self._seed = seed
        self._random = random.Random(seed)
        self._launches: dict[str, _Launch] = {}

    def step(self, now: datetime) -> None:
        """Everything that the controllers would do at this moment, from the top down and the statuses back up."""
        self.reconcile_owners(now)
        self._reconcile_deployments()
        machines = self._by_owner("machines")
        for machine_set in self._list("machinesets"):
            self._reconcile_set(machine_set, machines.get(machine_set["metadata"]["uid"], []), now)
        for machine in self._list("machines"):
            self._reconcile_machine(machine, now)
        self._update_statuses(now)

    # what a flavour must say

    @abstractmethod
    def machine_of(self, machine_set: Object, name: str) -> Object:
        """The machine that a set makes."""

    @abstractmethod
    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        """The machines, the first to go first."""

    @abstractmethod
    def zone_of(self, machine: Object) -> str:
        """The zone that the machine wants."""

    @abstractmethod
    def on_created(self, machine: Object, now: datetime) -> None:
        """The machine is there, its launch was not tried yet."""

    @abstractmethod
    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        """The instance runs, the node is not there yet."""

    @abstractmethod
    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        """The launch was refused. Returns when to try again; None is never."""

    @abstractmethod
    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        """The node is there."""

    @abstractmethod
    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        """The status of a set with these machines."""

    @abstractmethod
    def has_node(self, machine: Object) -> bool:
        """Whether the machine is running, in Evenkeel's word."""

    def reconcile_owners(self, now: datetime) -> None:
        """Controllers above the scalables that write onto them."""

    def is_paused(self, item: Object) -> bool:
        """Whether the controllers leave an object alone."""
        return False

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        """Whether the set deletes the machine, however many it has: it failed, or was named for deletion."""
        return False

    def on_deleting(self, machine: Object, now: datetime) -> None:
        """The machine is being deleted."""

    def on_deleted(self, machine: Object) -> None:
        """The machine's instance and node are gone; the machine goes next."""

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        """The instance runs, but the node is late."""

    def _reconcile_deployments(self) -> None:
        """MachineDeployments to MachineSets, where the flavour has them."""

    def _update_statuses(self, now: datetime) -> None:
        machines = self._by_owner("machines")
        for machine_set in self._list("machinesets"):
            self._write_status(
                machine_set, self.set_status(machine_set, machines.get(machine_set["metadata"]["uid"], []))
            )

    # shared work

    def resource(self, plural: str) -> str:
        return f"{plural}.{self.group}"

    def _list(self, plural: str) -> list[Object]:
        return self.store.list(self.resource(plural))

    def _by_owner(self, plural: str) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for item in self._list(plural):
            for owner in item["metadata"].get("ownerReferences") or ():
                found.setdefault(owner["uid"], []).append(item)
        return found

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        if self.is_paused(machine_set) or _deleting(machine_set):
            return
        active = machines if self.counts_deleting else [item for item in machines if not _deleting(item)]
        wanted = machine_set["spec"].get("replicas", 0)
        for _ in range(wanted - len(active)):
            suffix = "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            machine = self.machine_of(machine_set, f"{machine_set['metadata']['name']}-{suffix}")
            machine["metadata"] |= {
                "ownerReferences": [_controller_reference(machine_set)],
                "finalizers": [self.finalizer],
            }
            made = self._create("machines", machine)
            self.on_created(made, now)
        surplus: list[Object] = []
        if len(active) > wanted:
            surplus = self.deletion_order(machine_set, active, now)[: len(active) - wanted]
        surplus += [item for item in active if self.must_go(machine_set, item, now) and item not in surplus]
        for machine in surplus:
            if not _deleting(machine):
                metadata = machine["metadata"]
                self.store.delete(self.resource("machines"), metadata["namespace"], metadata["name"])

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        launch = self._launches.setdefault(machine["metadata"]["uid"], _Launch())
        if _deleting(machine):
            self._end(machine, launch, now)
            return
        if self.is_paused(machine):
            return
        if launch.instance is None:
            if launch.next_try is not None and now < launch.next_try:
                self.on_waiting_for_retry(machine, now)
                return
            try:
                launch.instance = self.cloud.launch(self.zone_of(machine))
            except LaunchError as error:
                launch.next_try = self.on_refused(machine, error, now) or datetime.max.replace(tzinfo=UTC)
                return
            launch.joins_at = now + self.timing.provision
            self.on_launched(machine, launch.instance, now)
        elif launch.joins_at is None:
            return
        assert launch.joins_at is not None
        if launch.instance.joins and now >= launch.joins_at:
            launch.joins_at = None
            node = self._create_node(machine, launch.instance)
            fresh = self.store.get(
                self.resource("machines"), machine["metadata"]["namespace"], machine["metadata"]["name"]
            )
            self.on_joined(fresh, node, now)
        elif not launch.instance.joins:
            self.on_waiting(machine, launch.instance, now)

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        """A refused launch waits for its next try."""

    def _end(self, machine: Object, launch: _Launch, now: datetime) -> None:
        self.on_deleting(machine, now)
        if now < parse_time(machine["metadata"]["deletionTimestamp"]) + self.timing.deletion:
            return
        if launch.instance is not None:
            self.cloud.terminate(launch.instance.id)
        for node in self.store.list("nodes", labels=f"sandbox.evenkeel.dev/machine={machine['metadata']['name']}"):
            self.store.delete("nodes", "", node["metadata"]["name"])
        self.on_deleted(machine)
        self._patch("machines", machine, {"metadata": {"finalizers": None}})
        self._launches.pop(machine["metadata"]["uid"], None)

    def _create_node(self, machine: Object, instance: Instance) -> Object:
        name = f"ip-{instance.id[-8:]}.{instance.zone[:-1]}.compute.internal"
        return self.store.create(
            "nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {
                        ZONE_LABEL: instance.zone,
                        "topology.kubernetes.io/region": instance.zone[:-1],
                        "node.kubernetes.io/instance-type": self.cloud.machine_type,
                        "kubernetes.io/hostname": name,
                        "sandbox.evenkeel.dev/machine": machine["metadata"]["name"],
                    },
                },
                "spec": {"providerID": _provider_id(instance)},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "capacity": {"cpu": str(self.cloud.vcpus), "memory": "16Gi", "pods": "110"},
                },
            },
            manager="kubelet",
        )

    def _create(self, plural: str, body: Object) -> Object:
        return self.store.create(self.resource(plural), body, manager=self.manager)

    def _patch(self, plural: str, item: Object, patch: Json, *, subresource: str = "") -> Object:
        metadata = item["metadata"]
        return self.store.patch(
            self.resource(plural),
            metadata["namespace"],
            metadata["name"],
            patch,
            subresource=subresource,
            manager=self.manager,
        )

    def _write_status(self, item: Object, status: Object, *, resource: str | None = None) -> None:
        """Replace the whole status: fields that are left out go away."""
        if item.get("status") == status:
            return
        metadata = item["metadata"]
        try:
            self.store.patch(
                resource or self.resource(self._plural(item)),
                metadata["namespace"],
                metadata["name"],
                [{"op": "add", "path": "/status", "value": status}],
                subresource="status",
                manager=self.manager,
            )
        except ApiError as error:
            if error.code != 404:  # the last finalizer went in this very step
                raise

    @staticmethod
    def _plural(item: Object) -> str:
        return f"{item['kind'].lower()}s"

    def _event(self, about: Object, kind: str, api_version: str, reason: str, message: str, now: datetime) -> None:
        """A Warning about an object; the same one again raises its count, as the event recorder does."""
        metadata = about["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']}{reason}{_without_request_id(message)}".encode()).hexdigest()[:16]
        name, namespace, stamp = f"{metadata['name']}.{digest}", metadata["namespace"], rfc3339(now)
        try:
            known = self.store.get("events", namespace, name)
        except ApiError:
            self.store.create(
                "events",
                {
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": {
                        "apiVersion": api_version,
                        "kind": kind,
                        "namespace": namespace,
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                    },
                    "type": "Warning",
                    "reason": reason,
                    "message": message,
                    "source": {"component": self.manager},
                    "count": 1,
                    "firstTimestamp": stamp,
                    "lastTimestamp": stamp,
                },
                manager=self.manager,
            )
        else:
            patch = {"count": known["count"] + 1, "lastTimestamp": stamp, "message": message}
            self.store.patch("events", namespace, name, patch, manager=self.manager)


def _controller_reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _provider_id(instance: Instance) -> str:
    return f"aws:///{instance.zone}/{instance.id}"


def _without_request_id(text: str) -> str:
    return text.split("request id:")[0]


def _template_hash(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:5]


def _positive(**numbers: int) -> dict[str, int]:
    """Go leaves zeros out of the statuses of these APIs (`omitempty`)."""
    return {key: value for key, value in numbers.items() if value}


class _DeploymentControllers(MachineControllers):
    """Flavours with MachineDeployments: one MachineSet per deployment and template.

    A new template rolls out as the default strategy does: one machine more than wanted, none less.
    """

    hash_label: ClassVar[str] = "machine-template-hash"
    revision: ClassVar[str]

    def _reconcile_deployments(self) -> None:
        sets = self._by_owner("machinesets")
        for deployment in self._list("machinedeployments"):
            if not (self.is_paused(deployment) or _deleting(deployment)):
                self._reconcile_deployment(deployment, sets.get(deployment["metadata"]["uid"], []))

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        wanted = deployment["spec"].get("replicas", 0)
        digest = _template_hash(deployment["spec"]["template"])
        current = next((item for item in sets if item["metadata"]["labels"][self.hash_label] == digest), None)
        old = [item for item in sets if item is not current and item["spec"].get("replicas")]
        ready = (current.get("status") or {}).get("readyReplicas", 0) if current else 0
        share = min(wanted, ready + 1) if old else wanted
        if current is None:
            made = self.machine_set_of(deployment, digest)
            latest = max((int(_annotations(item)[self.revision]) for item in sets), default=0)
            made["metadata"]["annotations"] = {self.revision: str(latest + 1)}
            made["spec"]["replicas"] = share
            self._create("machinesets", made)
        elif current["spec"].get("replicas") != share:
            self._patch("machinesets", current, {"spec": {"replicas": share}})
        left = max(0, wanted - ready)
        for item in old:
            kept = min(item["spec"]["replicas"], left)
            left -= kept
            if kept != item["spec"]["replicas"]:
                self._patch("machinesets", item, {"spec": {"replicas": kept}})

    @abstractmethod
    def machine_set_of(self, deployment: Object, template_hash: str) -> Object:
        """The set that a deployment makes."""

    @abstractmethod
    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        """The status of a deployment with these sets."""

    def _update_statuses(self, now: datetime) -> None:
        super()._update_statuses(now)
        sets = self._by_owner("machinesets")
        for deployment in self._list("machinedeployments"):
            mine = sets.get(deployment["metadata"]["uid"], [])
            self._write_status(deployment, self.deployment_status(deployment, mine, now))


class GardenerControllers(_DeploymentControllers):
    """machine-controller-manager, and the part of the Worker's reconciler that puts replicas back."""

    flavour = "gardener"
    group = "machine.sapcloud.io"
    manager = "machine-controller-manager"
    finalizer = "machine.sapcloud.io/machine-controller-manager"
    revision = "deployment.kubernetes.io/revision"

    def __init__(self, *arguments: Any, worker_controller: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: whether each step reconciles the Workers, too; in life that happens when the Shoot is reconciled
        self.worker_controller = worker_controller

    def reconcile_owners(self, now: datetime) -> None:
        if self.worker_controller:
            self.reconcile_workers()
        for deployment in self._list("machinedeployments"):
            self._trigger_deletions(deployment, now)

    def reconcile_workers(self) -> None:
        """Put the replicas of each pool's deployments back into the zone's share of the Worker's bounds."""
        for worker in self.store.list("workers.extensions.gardener.cloud"):
            namespace = worker["metadata"]["namespace"]
            for pool in worker["spec"]["pools"]:
                zones = pool.get("zones") or []
                for index in range(len(zones)):
                    name = f"{namespace}-{pool['name']}-z{index + 1}"
                    low, high = (distribute(index, pool[key], len(zones)) for key in ("minimum", "maximum"))
                    try:
                        deployment = self.store.get(self.resource("machinedeployments"), namespace, name)
                    except ApiError:
                        continue
                    replicas = deployment["spec"].get("replicas", 0)
                    allowed = min(max(replicas, low), high)
                    if allowed != replicas:
                        self.store.patch(
                            self.resource("machinedeployments"),
                            namespace,
                            name,
                            {"spec": {"replicas": allowed}},
                            manager="gardener-extension-provider-aws",
                        )

    def _trigger_deletions(self, deployment: Object, now: datetime) -> None:
        """Machines that the deployment names, each with the moment when the autoscaler decided it, are marked.

        A name without a moment gets that of the last change of replicas by a scaler, else the present.
        """
        listed = _annotations(deployment).get(TRIGGER, "")
        namespace = deployment["metadata"]["namespace"]
        kept = []
        for entry in filter(None, (part.strip() for part in listed.split(","))):
            name, _, moment = entry.partition("~")
            moment = moment or _annotations(deployment).get(SCALED_AT) or rfc3339(now)
            try:
                parse_time(moment)
                machine = self.store.get(self.resource("machines"), namespace, name)
            except (ValueError, ApiError):
                continue  # garbled, or gone: taken off the list
            if _deleting(machine) or _mcm_phase(machine) in ("Failed", "Terminating"):
                continue
            kept.append(f"{name}~{moment}")
            marks = {"machinepriority.machine.sapcloud.io": "1", MARKED_AT: moment}
            marks |= {key: value for key, value in _annotations(machine).items() if key == MARKED_AT and value}
            if not marks.items() <= _annotations(machine).items():
                self._patch("machines", machine, {"metadata": {"annotations": marks}})
        if listed != ",".join(kept):
            self._patch(
                "machinedeployments", deployment, {"metadata": {"annotations": {TRIGGER: ",".join(kept) or None}}}
            )

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        super()._reconcile_deployment(deployment, sets)
        scaled_at = _annotations(deployment).get(SCALED_AT)
        for machine_set in sets:
            if scaled_at and _annotations(machine_set).get(SCALED_AT) != scaled_at:
                self._patch("machinesets", machine_set, {"metadata": {"annotations": {SCALED_AT: scaled_at}}})

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        if not _deleting(machine):
            machine = self._preserve(machine, now)
        super()._reconcile_machine(machine, now)

    def _preserve(self, machine: Object, now: datetime) -> Object:
        """Begin and end the preservation that the machine's annotation asks for."""
        asks = _annotations(machine).get(PRESERVE, "")
        current = (machine.get("status") or {}).get("currentStatus") or {}
        wanted = asks == "now" or (asks in ("when-failed", "auto-preserved") and current.get("phase") == "Failed")
        expires = current.get("preserveExpiryTime")
        over = expires is not None and parse_time(expires) <= now
        if wanted and expires is None and current:
            expiry = rfc3339(now + self.timing.preserve)
        elif expires is not None and (over or not wanted):
            expiry = None
            if over:
                self._patch("machines", machine, {"metadata": {"annotations": {PRESERVE: None}}})
        else:
            return machine
        current = {key: value for key, value in current.items() if key != "preserveExpiryTime"}
        status = {**machine["status"], "currentStatus": current | ({"preserveExpiryTime": expiry} if expiry else {})}
        self._write_status(machine, status)
        return {**machine, "status": status}

    @staticmethod
    def _current(machine: Object, phase: str, now: datetime, *, timeout: bool = False) -> Object:
        """A new currentStatus. How long the machine is preserved outlasts its phases."""
        known = (machine.get("status") or {}).get("currentStatus") or {}
        kept = {key: value for key, value in known.items() if key == "preserveExpiryTime"}
        return {"phase": phase, "timeoutActive": timeout, "lastUpdateTime": rfc3339(now), **kept}

    def machine_set_of(self, deployment: Object, template_hash: str) -> Object:
        metadata = deployment["metadata"]
        return {
            "metadata": {
                "name": f"{metadata['name']}-{template_hash}",
                "namespace": metadata["namespace"],
                "labels": {"name": metadata["name"], self.hash_label: template_hash},
                "ownerReferences": [_controller_reference(deployment)],
            },
            "spec": {
                "selector": {"matchLabels": {"name": metadata["name"], self.hash_label: template_hash}},
                "template": deployment["spec"]["template"],
            },
        }

    def machine_of(self, machine_set: Object, name: str) -> Object:
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": machine_set["metadata"]["labels"],
            },
            "spec": machine_set["spec"]["template"]["spec"],
        }

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        return gardener_deletion_order(machines, now)

    def zone_of(self, machine: Object) -> str:
        labels = machine["spec"].get("nodeTemplate", {}).get("metadata", {}).get("labels", {})
        return str(labels.get(ZONE_LABEL, ""))

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        if _mcm_phase(machine) == "Failed":
            asked = _annotations(machine).get(PRESERVE) in ("now", "when-failed", "auto-preserved")
            return not is_preserved(machine, now) and not asked
        marked, scaled_at = _marked_at(machine), _annotations(machine_set).get(SCALED_AT)
        first = _annotations(machine).get("machinepriority.machine.sapcloud.io") == "1"
        return first and marked is not None and scaled_at is not None and marked <= parse_time(scaled_at)

    def has_node(self, machine: Object) -> bool:
        return _mcm_phase(machine) in ("Running", "Unknown")

    def on_created(self, machine: Object, now: datetime) -> None:
        # its status stays empty until the first try to create a VM
        return

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        node = f"ip-{instance.id[-8:]}.{instance.zone[:-1]}.compute.internal"
        # the node's name is known, and written, long before the node is there
        self._patch(
            "machines",
            machine,
            {"metadata": {"labels": {"node": node}}, "spec": {"providerID": _provider_id(instance)}},
        )
        self._write_status(
            machine,
            {
                "currentStatus": self._current(machine, "Pending", now, timeout=True),
                "lastOperation": {
                    "type": "Create",
                    "state": "Processing",
                    "description": "Creating machine on cloud provider",
                    "lastUpdateTime": rfc3339(now),
                },
            },
        )

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        code = "ResourceExhausted" if error.code in _MCM_RESOURCE_EXHAUSTED else "Internal"
        operation = {
            "type": "Create",
            "state": "Failed",
            "errorCode": code,
            "description": f"Cloud provider message - machine codes error: code = [{code}] message = [{error}]",
            "lastUpdateTime": rfc3339(now),
        }
        phase = "CrashLoopBackOff"
        if _age(machine, now) > self.timing.creation_timeout.total_seconds():
            phase = "Failed"
        known = machine.get("status") or {}
        last = known.get("lastOperation") or {}
        similar = (
            _mcm_phase(machine) == phase
            and last.get("errorCode") == code
            and _without_request_id(last.get("description", "")) == _without_request_id(operation["description"])
            and now - parse_time(last["lastUpdateTime"]) < self.timing.similar_status
        )
        if not similar:
            self._write_status(
                machine, {"currentStatus": self._current(machine, phase, now), "lastOperation": operation}
            )
        if code == "ResourceExhausted":
            return now + self.timing.resource_exhausted_retry
        return now + self.timing.other_retry

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        if _mcm_phase(machine) != "Failed" and _age(machine, now) > self.timing.creation_timeout.total_seconds():
            self._write_status(machine, {**machine["status"], "currentStatus": self._current(machine, "Failed", now)})

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        if _age(machine, now) > self.timing.creation_timeout.total_seconds() and _mcm_phase(machine) != "Failed":
            minutes = int(self.timing.creation_timeout.total_seconds() // 60)
            name = machine["metadata"]["name"]
            self._write_status(
                machine,
                {
                    "currentStatus": self._current(machine, "Failed", now),
                    # no error code: only the time tells that something is wrong
                    "lastOperation": {
                        "type": "Create",
                        "state": "Failed",
                        "description": f"Machine {name} failed to join the cluster in {minutes}m0s minutes.",
                        "lastUpdateTime": rfc3339(now),
                    },
                },
            )

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        self._write_status(
            machine,
            {
                "conditions": node["status"]["conditions"],
                "currentStatus": self._current(machine, "Running", now),
                "lastOperation": {
                    "type": "Create",
                    "state": "Successful",
                    "description": f"Machine {machine['metadata']['name']} successfully joined the cluster",
                    "lastUpdateTime": rfc3339(now),
                },
            },
        )

    def on_deleting(self, machine: Object, now: datetime) -> None:
        if _mcm_phase(machine) != "Terminating":
            self._write_status(
                machine,
                {
                    **(machine.get("status") or {}),
                    "currentStatus": self._current(machine, "Terminating", now),
                    "lastOperation": {
                        "type": "Delete",
                        "state": "Processing",
                        "description": "Set machine status to termination. Now, getting VM Status",
                        "lastUpdateTime": rfc3339(now),
                    },
                },
            )

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        ready = sum(1 for machine in machines if self.has_node(machine))
        failed = [
            {
                "name": machine["metadata"]["name"],
                "providerID": machine["spec"].get("providerID", ""),
                "lastOperation": machine["status"]["lastOperation"],
                "ownerRef": machine_set["metadata"]["name"],
            }
            for machine in machines
            if ((machine.get("status") or {}).get("lastOperation") or {}).get("state") == "Failed"
        ]
        return {
            **_positive(
                replicas=len(machines), fullyLabeledReplicas=len(machines), readyReplicas=ready, availableReplicas=ready
            ),
            "observedGeneration": machine_set["metadata"]["generation"],
            **({"failedMachines": failed} if failed else {}),
        }

    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        statuses = [machine_set.get("status") or {} for machine_set in sets]
        replicas, ready, available = (
            sum(status.get(key, 0) for status in statuses) for key in ("replicas", "readyReplicas", "availableReplicas")
        )
        current = _template_hash(deployment["spec"]["template"])
        updated = sum(
            (machine_set.get("status") or {}).get("replicas", 0)
            for machine_set in sets
            if machine_set["metadata"]["labels"][self.hash_label] == current
        )
        failed = [item for status in statuses for item in status.get("failedMachines") or ()]
        wanted = deployment["spec"].get("replicas", 0)
        enough = "True" if available >= wanted else "False"
        return {
            **_positive(
                replicas=replicas,
                readyReplicas=ready,
                availableReplicas=available,
                unavailableReplicas=max(0, wanted - available),
                updatedReplicas=updated,
            ),
            "observedGeneration": deployment["metadata"]["generation"],
            "conditions": [
                {
                    "type": "Available",
                    "status": enough,
                    "reason": "MinimumReplicasAvailable" if enough == "True" else "MinimumReplicasUnavailable",
                    "message": f"Deployment has {'' if enough == 'True' else 'no '}minimum availability.",
                }
            ],
            **({"failedMachines": failed} if failed else {}),
        }


# what the AWS provider of machine-controller-manager reports as ResourceExhausted; all else is Internal
_MCM_RESOURCE_EXHAUSTED = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientAddressCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "RouteLimitExceeded",
        "Unsupported",
    }
)


def _mcm_phase(machine: Object) -> str:
    return str(((machine.get("status") or {}).get("currentStatus") or {}).get("phase", ""))


def distribute(index: int, size: int, zones: int) -> int:
    """Gardener's DistributeOverZones: the share of the zone with this index, remainders to the first zones."""
    return size // zones + (1 if index < size % zones else 0)


class ClusterAPIControllers(_DeploymentControllers):
    """Cluster API core with its AWS provider, and the topology controller of ClusterClass."""

    flavour = "cluster-api"
    group = "cluster.x-k8s.io"
    manager = "manager"
    finalizer = "machine.cluster.x-k8s.io"
    revision = "machinedeployment.clusters.x-k8s.io/revision"
    counts_deleting = True
    _aws = "awsmachines.infrastructure.cluster.x-k8s.io"
    _aws_version = "infrastructure.cluster.x-k8s.io/v1beta2"

    @property
    def _new(self) -> bool:
        """Whether objects are stored, and so written, in v1beta2's shape."""
        return self.store.resource(self.resource("machines")).storage == "v1beta2"

    def is_paused(self, item: Object) -> bool:
        if "cluster.x-k8s.io/paused" in _annotations(item):
            return True
        try:
            name = item["spec"]["clusterName"]
            cluster = self.store.get(self.resource("clusters"), item["metadata"]["namespace"], name)
        except ApiError:
            return False
        return bool(cluster.get("spec", {}).get("paused"))

    def reconcile_owners(self, now: datetime) -> None:
        """The topology controller: what Cluster.spec.topology names is written, and put back, onto the deployments."""
        for cluster in self._list("clusters"):
            namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
            workers = (cluster.get("spec", {}).get("topology") or {}).get("workers") or {}
            for topology in workers.get("machineDeployments") or ():
                selector = (
                    f"cluster.x-k8s.io/cluster-name={name},topology.cluster.x-k8s.io/deployment-name={topology['name']}"
                )
                patch: Object = {}
                if annotations := (topology.get("metadata") or {}).get("annotations"):
                    patch["metadata"] = {"annotations": annotations}
                if "replicas" in topology:
                    patch["spec"] = {"replicas": topology["replicas"]}
                for deployment in self.store.list(self.resource("machinedeployments"), namespace, labels=selector):
                    self.store.patch(
                        self.resource("machinedeployments"),
                        namespace,
                        deployment["metadata"]["name"],
                        patch,
                        manager="capi-topology",
                    )

    def machine_set_of(self, deployment: Object, template_hash: str) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        labels = {
            "cluster.x-k8s.io/cluster-name": spec["clusterName"],
            "cluster.x-k8s.io/deployment-name": metadata["name"],
            self.hash_label: template_hash,
        }
        template = json.loads(json.dumps(spec["template"]))
        template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
        return {
            "metadata": {
                "name": f"{metadata['name']}-{template_hash}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [_controller_reference(deployment)],
            },
            "spec": {
                "clusterName": spec["clusterName"],
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }

    def machine_of(self, machine_set: Object, name: str) -> Object:
        template = machine_set["spec"]["template"]
        reference = dict(template["spec"].get("infrastructureRef") or {}) | {"kind": "AWSMachine", "name": name}
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": {
                    **template.get("metadata", {}).get("labels", {}),
                    "cluster.x-k8s.io/set-name": machine_set["metadata"]["name"],
                },
            },
            "spec": {
                **template["spec"],
                "clusterName": machine_set["spec"]["clusterName"],
                "infrastructureRef": reference,
            },
        }

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        spec = machine_set["spec"]
        order = (spec.get("deletion") or {}).get("order") or spec.get("deletePolicy") or "Random"
        return cluster_api_deletion_order(machines, order, now)

    def zone_of(self, machine: Object) -> str:
        return str(machine["spec"].get("failureDomain", ""))

    def has_node(self, machine: Object) -> bool:
        return bool((machine.get("status") or {}).get("nodeRef"))

    def on_created(self, machine: Object, now: datetime) -> None:
        self.store.create(
            self._aws,
            {
                "metadata": {
                    "name": machine["metadata"]["name"],
                    "namespace": machine["metadata"]["namespace"],
                    "labels": machine["metadata"]["labels"],
                    "ownerReferences": [_controller_reference(machine)],
                },
                "spec": {"instanceType": self.cloud.machine_type},
            },
            manager=self.manager,
        )
        self._write_status(machine, self._machine_status(machine, "Provisioning", "WaitingForInfrastructure", "", now))

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        metadata = machine["metadata"]
        aws = self.store.patch(
            self._aws,
            metadata["namespace"],
            metadata["name"],
            {"spec": {"providerID": _provider_id(instance), "instanceID": instance.id}},
            manager=self.manager,
        )
        condition = _condition("InstanceReady", "True", now)
        self._write_status(
            aws,
            {"ready": True, "instanceState": "running", "conditions": [_condition("Ready", "True", now), condition]},
            resource=self._aws,
        )
        self._patch("machines", machine, {"spec": {"providerID": _provider_id(instance)}})
        self._write_status(machine, self._machine_status(machine, "Provisioned", None, "", now))

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        metadata = machine["metadata"]
        aws = self.store.get(self._aws, metadata["namespace"], metadata["name"])
        cause = f"failed to run instance: {error}"
        message = f"failed to create AWSMachine instance: {cause}"
        conditions = [
            _condition(kind, "False", now, reason="InstanceProvisionFailed", severity="Error", message=message)
            for kind in ("Ready", "InstanceReady")
        ]
        self._write_status(aws, {"ready": False, "conditions": conditions}, resource=self._aws)
        self._event(aws, "AWSMachine", self._aws_version, "FailedCreate", f"Failed to create instance: {cause}", now)
        status = self._machine_status(machine, "Provisioning", "InstanceProvisionFailed", message, now)
        self._write_status(machine, status)
        return now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        status = self._machine_status(machine, "Running", None, "", now)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        status["nodeRef"] = (
            {"name": name} if self._new else {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        )
        status["conditions"].append(_condition("NodeHealthy", "True", now))
        self._write_status(machine, status)

    def on_deleting(self, machine: Object, now: datetime) -> None:
        if (machine.get("status") or {}).get("phase") != "Deleting":
            self._write_status(machine, {**(machine.get("status") or {}), "phase": "Deleting"})

    def on_deleted(self, machine: Object) -> None:
        try:
            self.store.delete(self._aws, machine["metadata"]["namespace"], machine["metadata"]["name"])
        except ApiError as error:
            if error.code != 404:
                raise

    def _machine_status(self, machine: Object, phase: str, reason: str | None, message: str, now: datetime) -> Object:
        """`reason` says why the infrastructure is not ready; None when it is."""
        ready = reason is None
        severity = "" if ready else ("Error" if message else "Info")
        conditions = [
            _condition(
                kind,
                "True" if ready else "False",
                now,
                reason=reason or "",
                # v1beta2's conditions know no severity
                severity="" if self._new else severity,
                message=message,
                always_reason=self._new,
            )
            for kind in ("Ready", "InfrastructureReady")
        ]
        status: Object = {
            "phase": phase,
            "conditions": conditions,
            "observedGeneration": machine["metadata"]["generation"],
        }
        if self._new:
            return status | {"initialization": {"infrastructureProvisioned": ready, "bootstrapDataSecretCreated": True}}
        return status | {"infrastructureReady": ready, "bootstrapReady": True}

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        ready = sum(1 for machine in machines if self.has_node(machine) and not _deleting(machine))
        labels = machine_set["spec"].get("selector", {}).get("matchLabels") or {}
        status: Object = {
            "replicas": len(machines),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": machine_set["metadata"]["generation"],
            "selector": _as_selector(labels),
        }
        return status | ({"upToDateReplicas": len(machines)} if self._new else {"fullyLabeledReplicas": len(machines)})

    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        statuses = [machine_set.get("status") or {} for machine_set in sets]
        replicas, ready, available = (
            sum(status.get(key, 0) for status in statuses) for key in ("replicas", "readyReplicas", "availableReplicas")
        )
        current = _template_hash(deployment["spec"]["template"])
        updated = sum(
            (machine_set.get("status") or {}).get("replicas", 0)
            for machine_set in sets
            if machine_set["metadata"]["labels"][self.hash_label] == current
        )
        wanted = deployment["spec"].get("replicas", 0)
        phase = "Running"
        if replicas < wanted or available < wanted:
            phase = "ScalingUp"
        elif replicas > wanted:
            phase = "ScalingDown"
        status: Object = {
            "replicas": replicas,
            "readyReplicas": ready,
            "availableReplicas": available,
            "observedGeneration": deployment["metadata"]["generation"],
            "phase": phase,
            "selector": _as_selector(deployment["spec"].get("selector", {}).get("matchLabels") or {}),
        }
        states = {"Available": available >= wanted}
        if self._new:
            states |= {
                "MachinesReady": ready >= wanted,
                "MachinesUpToDate": updated == replicas,
                "RollingOut": updated != replicas,
                "ScalingUp": replicas < wanted,
                "ScalingDown": replicas > wanted,
            }
            status["upToDateReplicas"] = updated
        else:
            states |= {"Ready": available >= wanted, "MachineSetReady": ready >= wanted}
            status |= {"updatedReplicas": updated, "unavailableReplicas": max(0, wanted - available)}
        known = {item["type"]: item for item in (deployment.get("status") or {}).get("conditions") or ()}
        status["conditions"] = []
        for kind, true in states.items():
            condition = _condition(kind, str(true), now, reason=kind if true else f"Not{kind}", always_reason=self._new)
            if known.get(kind, {}).get("status") == condition["status"]:
                condition = known[kind]  # the time of the last change stays
            status["conditions"].append(condition)
        return status


def _condition(
    kind: str,
    status: str,
    now: datetime,
    *,
    reason: str = "",
    severity: str = "",
    message: str = "",
    always_reason: bool = False,
) -> Object:
    condition: Object = {"type": kind, "status": status, "lastTransitionTime": rfc3339(now)}
    if always_reason:
        condition["reason"] = reason or kind
    elif reason and status != "True":
        condition["reason"] = reason
    if severity:
        condition["severity"] = severity
    if message:
        condition["message"] = message
    return condition


def _as_selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


class OpenShiftControllers(MachineControllers):
    """OpenShift's machine API on AWS, and the MachineAutoscaler controller that owns the bounds."""

    flavour = "openshift"
    group = "machine.openshift.io"
    manager = "machine-api-operator"
    finalizer = "machine.machine.openshift.io"
    _prefix = "machine.openshift.io"

    def reconcile_owners(self, now: datetime) -> None:
        """Copy each MachineAutoscaler's bounds onto its MachineSet, over whatever stands there."""
        for autoscaler in self.store.list("machineautoscalers.autoscaling.openshift.io"):
            metadata, spec = autoscaler["metadata"], autoscaler["spec"]
            target = spec["scaleTargetRef"]
            owned = {
                f"{self._prefix}/cluster-api-autoscaler-node-group-min-size": str(spec["minReplicas"]),
                f"{self._prefix}/cluster-api-autoscaler-node-group-max-size": str(spec["maxReplicas"]),
                "autoscaling.openshift.io/machineautoscaler": f"{metadata['namespace']}/{metadata['name']}",
            }
            try:
                self.store.patch(
                    self.resource("machinesets"),
                    metadata["namespace"],
                    target["name"],
                    {"metadata": {"annotations": owned}},
                    manager="cluster-autoscaler-operator",
                )
            except ApiError as error:
                if error.code != 404:
                    raise
                continue
            self.store.patch(
                "machineautoscalers.autoscaling.openshift.io",
                metadata["namespace"],
                metadata["name"],
                {"status": {"lastTargetRef": target}},
                subresource="status",
                manager="cluster-autoscaler-operator",
            )

    def machine_of(self, machine_set: Object, name: str) -> Object:
        template = machine_set["spec"].get("template") or {}
        zone = self._zone(template.get("spec") or {})
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": {
                    **(template.get("metadata") or {}).get("labels", {}),
                    f"{self._prefix}/zone": zone,
                    f"{self._prefix}/region": zone[:-1],
                    f"{self._prefix}/instance-type": self.cloud.machine_type,
                },
            },
            "spec": template.get("spec") or {},
        }

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        return openshift_deletion_order(
            machines, machine_set["spec"].get("deletePolicy", "Random"), now, seed=self._seed
        )

    def is_paused(self, item: Object) -> bool:
        return str(item["spec"].get("authoritativeAPI", "MachineAPI")) != "MachineAPI"

    def zone_of(self, machine: Object) -> str:
        return self._zone(machine["spec"])

    @staticmethod
    def _zone(spec: Object) -> str:
        value = (spec.get("providerSpec") or {}).get("value") or {}
        return str((value.get("placement") or {}).get("availabilityZone", ""))

    def has_node(self, machine: Object) -> bool:
        return bool((machine.get("status") or {}).get("nodeRef"))

    def on_created(self, machine: Object, now: datetime) -> None:
        self._write_status(
            machine,
            {
                "phase": "Provisioning",
                "lastUpdated": rfc3339(now),
                "conditions": [
                    _condition(
                        "InstanceExists",
                        "False",
                        now,
                        reason="InstanceNotCreated",
                        severity="Warning",
                        message="Instance has not been created",
                    )
                ],
            },
        )

    def _creation(self, status: str, reason: str, message: str, now: datetime) -> Object:
        return {
            "type": "MachineCreation",
            "status": status,
            "reason": reason,
            "message": message,
            "lastProbeTime": rfc3339(now),
            "lastTransitionTime": rfc3339(now),
        }

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        self._patch("machines", machine, {"spec": {"providerID": _provider_id(instance)}})
        self._write_status(
            machine,
            {
                "phase": "Provisioned",
                "lastUpdated": rfc3339(now),
                "conditions": [_condition("InstanceExists", "True", now)],
                "providerStatus": {
                    "instanceId": instance.id,
                    "instanceState": "running",
                    "conditions": [
                        self._creation("True", "MachineCreationSucceeded", "Machine successfully created", now)
                    ],
                },
            },
        )

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        client_fault = 400 <= error.status < 500
        cause = (
            f"error launching instance: {error.message}" if client_fault else f"error creating EC2 instance: {error}"
        )
        metadata = machine["metadata"]
        text = f"{metadata['name']}: reconciler failed to Create machine: failed to launch instance: {cause}"
        known = machine.get("status") or {}
        status: Object = {
            **known,
            "phase": "Failed" if client_fault else "Provisioning",
            "lastUpdated": rfc3339(now),
            "providerStatus": {"conditions": [self._creation("False", "MachineCreationFailed", cause, now)]},
        }
        if client_fault:
            status |= {"errorReason": "InvalidConfiguration", "errorMessage": cause}
        self._write_status(machine, status)
        self._event(machine, "Machine", "machine.openshift.io/v1beta1", "FailedCreate", text, now)
        # a failed machine is never tried again; someone (or a health check) has to delete it
        return None if client_fault else now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        status = {**machine["status"], "phase": "Running", "lastUpdated": rfc3339(now)}
        status["nodeRef"] = {"kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        self._write_status(machine, status)

    def on_deleting(self, machine: Object, now: datetime) -> None:
        if (machine.get("status") or {}).get("phase") != "Deleting":
            self._write_status(machine, {**(machine.get("status") or {}), "phase": "Deleting"})

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        ready = sum(1 for machine in machines if self.has_node(machine) and not _deleting(machine))
        active = sum(1 for machine in machines if not _deleting(machine))
        return {
            "replicas": active,
            **_positive(fullyLabeledReplicas=active, readyReplicas=ready, availableReplicas=ready),
            "observedGeneration": machine_set["metadata"]["generation"],
        }


CONTROLLERS: dict[str, Callable[..., MachineControllers]] = {
    "gardener": GardenerControllers,
    "cluster-api": ClusterAPIControllers,
    "openshift": OpenShiftControllers,
}
