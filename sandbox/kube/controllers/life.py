"""What the machine controllers of the three flavours share: the way of a machine from its set to its node and its end.

Each `step` does what the real controllers do between two looks: replicas become machines, machines become nodes after
a delay or fail as the cloud says, surplus machines go in the flavour's own order, statuses follow. No threads and no
clock of their own: whoever steps decides what time it is.
"""

# ruff: noqa: ARG002, B027 - a hook takes what some flavour needs, and does nothing where a flavour needs nothing

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from sandbox.kube.cloud import Cloud, Instance, LaunchError
from sandbox.kube.controllers.objects import (
    ZONE_LABEL,
    annotations_of,
    controller_reference,
    is_deleting,
    parse_time,
    provider_id,
    status_of,
    without_request_id,
)
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import Store, rfc3339


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take."""

    #: from replicas to their machine objects
    creation: timedelta = timedelta(0)
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
    #: until pods are deleted that nothing could evict; None: they hold their machine for ever
    drain_timeout: ClassVar[timedelta | None] = None

    def __init__(self, store: Store, cloud: Cloud, *, timing: Timing | None = None, seed: int = 0) -> None:
        self.store = store
        self.cloud = cloud
        self.timing = timing or Timing()
        self._seed = seed
        self._random = random.Random(seed)
        self._launches: dict[str, _Launch] = {}
        self._short_since: dict[str, datetime] = {}  # sets that have fewer machines than replicas

    def step(self, now: datetime) -> None:
        """Everything that the controllers would do at this moment, from the top down and the statuses back up."""
        self.reconcile_owners(now)
        self._reconcile_deployments()
        machines = self.by_owner("machines")
        for machine_set in self.objects("machinesets"):
            self._reconcile_set(machine_set, machines.get(machine_set["metadata"]["uid"], []), now)
        for machine in self.objects("machines"):
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
    def zone_of(self, spec: Object) -> str:
        """The zone that a machine with this spec wants."""

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

    # what a flavour may say otherwise

    def has_node(self, machine: Object) -> bool:
        """Whether the machine is running, in Evenkeel's word."""
        return bool(status_of(machine).get("nodeRef"))

    def on_created(self, machine: Object, now: datetime) -> None:
        """The machine is there, its launch was not tried yet."""

    def reconcile_owners(self, now: datetime) -> None:
        """Controllers above the scalables that write onto them."""

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """What the cluster autoscaler was started with by a controller; None where that runs none now."""
        return ()

    def pool_of(self, item: Object) -> str | None:
        """The pool of a scalable, where that is said by something else than its labels."""
        return None

    def is_paused(self, item: Object) -> bool:
        """Whether the controllers leave an object alone."""
        return False

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        """Whether the set deletes the machine, however many it has: it failed, or was named for deletion."""
        return False

    def on_deleting(self, machine: Object, now: datetime) -> None:
        """The machine is being deleted."""
        if status_of(machine).get("phase") != "Deleting":
            self.write_status(machine, {**status_of(machine), "phase": "Deleting"})

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Labels and taints that the node of a machine gets from it."""
        return {}, []

    def skips_drain(self, machine: Object) -> bool:
        """Whether somebody said that the pods of its node do not matter."""
        return f"machine.{self.group.removeprefix('machine.')}/exclude-node-draining" in annotations_of(machine)

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        """A refused launch waits for its next try."""

    def on_deleted(self, machine: Object) -> None:
        """The machine's instance and node are gone; the machine goes next."""

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        """The instance runs, but the node is late."""

    def _reconcile_deployments(self) -> None:
        """MachineDeployments to MachineSets, where the flavour has them."""

    def _update_statuses(self, now: datetime) -> None:
        machines = self.by_owner("machines")
        for machine_set in self.objects("machinesets"):
            self.write_status(
                machine_set, self.set_status(machine_set, machines.get(machine_set["metadata"]["uid"], []))
            )

    # shared work

    def resource(self, plural: str) -> str:
        return f"{plural}.{self.group}"

    def objects(self, plural: str) -> list[Object]:
        return self.store.list(self.resource(plural))

    def by_owner(self, plural: str) -> dict[str, list[Object]]:
        owned: dict[str, list[Object]] = {}
        for item in self.objects(plural):
            for owner in item["metadata"].get("ownerReferences") or ():
                owned.setdefault(owner["uid"], []).append(item)
        return owned

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        if self.is_paused(machine_set) or is_deleting(machine_set):
            return
        active = machines if self.counts_deleting else [item for item in machines if not is_deleting(item)]
        wanted = machine_set["spec"].get("replicas", 0)
        for _ in range(self._to_create(machine_set, wanted - len(active), now)):
            suffix = "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            machine = self.machine_of(machine_set, f"{machine_set['metadata']['name']}-{suffix}")
            machine["metadata"] |= {
                "ownerReferences": [controller_reference(machine_set)],
                "finalizers": [self.finalizer],
            }
            made = self.create("machines", machine)
            self.on_created(made, now)
        surplus: list[Object] = []
        if len(active) > wanted:
            surplus = self.deletion_order(machine_set, active, now)[: len(active) - wanted]
        surplus += [item for item in active if self.must_go(machine_set, item, now) and item not in surplus]
        for machine in surplus:
            if not is_deleting(machine):
                metadata = machine["metadata"]
                self.store.delete(self.resource("machines"), metadata["namespace"], metadata["name"])

    def _to_create(self, machine_set: Object, missing: int, now: datetime) -> int:
        """Return how many machines the set creates now."""
        uid = machine_set["metadata"]["uid"]
        if missing <= 0:
            self._short_since.pop(uid, None)
            return 0
        since = self._short_since.setdefault(uid, now)
        if now < since + self.timing.creation:
            return 0
        del self._short_since[uid]
        return missing

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        launch = self._launches.setdefault(machine["metadata"]["uid"], _Launch())
        if is_deleting(machine):
            self._end(machine, launch, now)
            return
        if self.is_paused(machine):
            return
        if launch.instance is None:
            if launch.next_try is not None and now < launch.next_try:
                self.on_waiting_for_retry(machine, now)
                return
            try:
                launch.instance = self.cloud.launch(self.zone_of(machine["spec"]))
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

    def _end(self, machine: Object, launch: _Launch, now: datetime) -> None:
        self.on_deleting(machine, now)
        if now < parse_time(machine["metadata"]["deletionTimestamp"]) + self.timing.deletion:
            return
        nodes = self.store.list("nodes", labels=f"sandbox.evenkeel.dev/machine={machine['metadata']['name']}")
        if not self.skips_drain(machine) and not all(self._drain(machine, node, now) for node in nodes):
            return
        if launch.instance is not None:
            self.cloud.terminate(launch.instance.id)
        for node in nodes:
            self.store.delete("nodes", "", node["metadata"]["name"])
        self.on_deleted(machine)
        self.patch("machines", machine, {"metadata": {"finalizers": None}})
        self._launches.pop(machine["metadata"]["uid"], None)

    def _drain(self, machine: Object, node: Object, now: datetime) -> bool:
        """Cordon a node and evict its pods; whether all are gone. What DaemonSets and kubelets run stays."""
        name = node["metadata"]["name"]
        if not node["spec"].get("unschedulable"):
            self.store.patch("nodes", "", name, {"spec": {"unschedulable": True}}, manager=self.manager)
        pods = [pod for pod in self.store.list("pods", fields=f"spec.nodeName={name}") if _is_evicted(pod)]
        asked = parse_time(machine["metadata"]["deletionTimestamp"])
        forced = self.drain_timeout is not None and now >= asked + self.drain_timeout
        for pod in pods:
            where = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            if forced:
                self.store.delete("pods", *where, grace=0)
            elif not is_deleting(pod):
                try:
                    self.store.evict(*where)
                except ApiError as error:
                    if error.code not in (404, 429, 500):  # gone, or a budget holds it: the next step tries again
                        raise
        return forced or not pods

    def _create_node(self, machine: Object, instance: Instance) -> Object:
        name = f"ip-{instance.id[-8:]}.{instance.zone[:-1]}.compute.internal"
        labels, taints = self.node_template(machine)
        return self.store.create(
            "nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {
                        **labels,
                        ZONE_LABEL: instance.zone,
                        "topology.kubernetes.io/region": instance.zone[:-1],
                        "node.kubernetes.io/instance-type": self.cloud.machine_type,
                        "kubernetes.io/hostname": name,
                        "sandbox.evenkeel.dev/machine": machine["metadata"]["name"],
                    },
                },
                "spec": {"providerID": provider_id(instance), **({"taints": taints} if taints else {})},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "capacity": {"cpu": str(self.cloud.vcpus), "memory": "16Gi", "pods": "110"},
                    # what the kubelet keeps for itself and for the system
                    "allocatable": {"cpu": f"{self.cloud.vcpus * 1000 - 80}m", "memory": "15Gi", "pods": "110"},
                },
            },
            manager="kubelet",
        )

    def create(self, plural: str, body: Object) -> Object:
        return self.store.create(self.resource(plural), body, manager=self.manager)

    def patch(self, plural: str, item: Object, patch: Json, *, manager: str = "") -> Object:
        """`manager` is who writes; this controller where it is left out."""
        metadata = item["metadata"]
        return self.store.patch(
            self.resource(plural),
            metadata["namespace"],
            metadata["name"],
            patch,
            manager=manager or self.manager,
        )

    def write_status(self, item: Object, status: Object, *, resource: str | None = None) -> None:
        """Replace the whole status: fields that are left out go away."""
        if item.get("status") == status:
            return
        metadata, resource = item["metadata"], resource or self.resource(self._plural(item))
        try:
            current = self.store.get(resource, metadata["namespace"], metadata["name"])
            self.store.put(resource, {**current, "status": status}, subresource="status", manager=self.manager)
        except ApiError as error:
            if error.code not in (404, 409):  # the last finalizer went in this very step, or the next one writes it
                raise

    @staticmethod
    def _plural(item: Object) -> str:
        return f"{item['kind'].lower()}s"

    def record_event(
        self, about: Object, kind: str, api_version: str, reason: str, message: str, now: datetime
    ) -> None:
        """A Warning about an object; the same one again raises its count, as the event recorder does."""
        metadata = about["metadata"]
        digest = hashlib.sha256(f"{metadata['uid']}{reason}{without_request_id(message)}".encode()).hexdigest()[:16]
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


def _is_evicted(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    stays = any(owner["kind"] == "DaemonSet" and owner.get("controller") for owner in owners)
    return not stays and "kubernetes.io/config.mirror" not in annotations_of(pod)
