"""The machine controller that the three machine APIs share: replicas become machines, and machines become nodes.

Each `step` does the work that real controllers do in the time since the last step. Sets create machines. A machine
becomes a node after a delay, or fails if the cloud refuses it. Surplus machines are deleted in the API's deletion
order. Then the statuses are updated. The caller passes the time, because controllers have no threads and no clock.
"""

# ruff: noqa: ARG002, B027 - a hook has the arguments that some flavour needs; for other flavours, it does nothing

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from sandbox.kube.client import Client
from sandbox.kube.cloud import Cloud, Instance, LaunchError
from sandbox.kube.controllers.objects import (
    ZONE_LABEL,
    annotations_of,
    condition,
    controller_reference,
    is_deleting,
    parse_time,
    provider_id,
    status_of,
)
from sandbox.kube.disruption import is_ready
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Delays and timeouts of the controllers and the cloud."""

    #: from a change of replicas to the machine objects
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
    #: machine-controller-manager keeps a similar status for 30 minutes
    similar_status: timedelta = timedelta(minutes=30)
    #: machine-controller-manager's --machine-preserve-timeout, as Gardener sets it
    preserve: timedelta = timedelta(hours=96)
    #: the delay after which the controllers of Cluster API and OpenShift retry a refused launch
    infrastructure_retry: timedelta = timedelta(seconds=30)


@dataclass(kw_only=True)
class _Launch:
    """The controller's state of a machine's instance."""

    instance: Instance | None = None
    joins_at: datetime | None = None
    next_try: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class MachineAPI:
    """A machine API: the resources of groups and machines, and the mark for the deletion of a machine."""

    scalables: str
    machines: str
    prefix: str
    mark: Callable[[datetime], dict[str, str]]
    pool_label: str | None = None


class MachineControllers(ABC):
    """The controllers of one machine API: sets keep their number of machines, and machines launch, join and end."""

    flavour: ClassVar[str]
    api: ClassVar[MachineAPI]
    group: ClassVar[str]
    manager: ClassVar[str]
    finalizer: ClassVar[str]
    #: Cluster API also counts machines that are being deleted
    counts_deleting: ClassVar[bool] = False
    #: time until a drain deletes the pods that it cannot evict; None: such pods keep their machine forever
    drain_timeout: ClassVar[timedelta | None] = None

    def __init__(self, store: Store, cloud: Cloud, *, timing: Timing | None = None, seed: int = 0) -> None:
        self.store = store
        self.client = Client(store, self.manager)
        self.cloud = cloud
        self.timing = timing or Timing()
        self._seed = seed
        self._random = random.Random(seed)
        self._launches: dict[str, _Launch] = {}
        self._short_since: dict[str, datetime] = {}  # sets that have fewer machines than replicas
        self._known_broken: set[str] = set()  # instances whose nodes are reported as not Ready

    def step(self, now: datetime) -> None:
        """Reconcile owners, deployments, sets and machines, then update the statuses."""
        self.reconcile_owners(now)
        self._reconcile_deployments()
        machines = self.by_owner("machines")
        for machine_set in self.objects("machinesets"):
            self._reconcile_set(machine_set, machines.get(machine_set["metadata"]["uid"], []), now)
        for machine in self.objects("machines"):
            self._reconcile_machine(machine, now)
        self._watch_nodes(now)
        self._update_statuses(now)

    # -- hooks that a flavour must have ---------------------------------------------------------------------------

    @abstractmethod
    def machine_of(self, machine_set: Object, name: str) -> Object:
        """Return the machine that a set creates."""

    @abstractmethod
    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        """Return the machines in the order in which they are deleted."""

    @abstractmethod
    def zone_of(self, spec: Object) -> str:
        """Return the zone of a machine's spec."""

    @abstractmethod
    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Report that the instance runs and the node has not joined."""

    @abstractmethod
    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        """Report a refused launch. Return the time of the next try; None for never."""

    @abstractmethod
    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        """Report that the node has joined."""

    @abstractmethod
    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        """Return the status of a set with these machines."""

    # -- hooks that a flavour may have ----------------------------------------------------------------------------

    def has_node(self, machine: Object) -> bool:
        """Return whether the machine's node has joined."""
        return bool(status_of(machine).get("nodeRef"))

    def on_created(self, machine: Object, now: datetime) -> None:
        """Report a new machine, before its first launch."""

    def reconcile_owners(self, now: datetime) -> None:
        """Run the controllers that own the scalables."""

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """Return the arguments that a controller gives to cluster-autoscaler; None while no autoscaler runs."""
        return ()

    def pool_of(self, item: Object) -> str | None:
        """Return the pool of a scalable if the flavour has its own source for it; otherwise None."""
        return None

    def is_paused(self, item: Object) -> bool:
        """Return whether the controllers skip an object."""
        return False

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        """Return whether the set always deletes the machine, because it failed or is marked to be deleted."""
        return False

    def on_deleting(self, machine: Object, now: datetime) -> None:
        """Report a machine that is being deleted."""
        if status_of(machine).get("phase") != "Deleting":
            self.client.update_status(machine, {**status_of(machine), "phase": "Deleting"})

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Return the labels and the taints that a machine's node gets."""
        return {}, []

    def skips_drain(self, machine: Object) -> bool:
        """Return whether an annotation excludes the machine's node from draining."""
        return f"machine.{self.group.removeprefix('machine.')}/exclude-node-draining" in annotations_of(machine)

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        """Report a refused launch that waits for its next try."""

    def on_deleted(self, machine: Object) -> None:
        """Clean up after instance and node are gone, before the machine is deleted."""

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Report an instance whose node is late."""

    def _reconcile_deployments(self) -> None:
        """Reconcile MachineDeployments, if the flavour has them."""

    def _update_statuses(self, now: datetime) -> None:
        machines = self.by_owner("machines")
        for machine_set in self.objects("machinesets"):
            status = self.set_status(machine_set, machines.get(machine_set["metadata"]["uid"], []))
            self.client.update_status(machine_set, status)

    # -- shared work ----------------------------------------------------------------------------------------------

    def resource(self, plural: str) -> str:
        """Return the full name of a resource of the API group."""
        return f"{plural}.{self.group}"

    def objects(self, plural: str) -> list[Object]:
        """Return the objects of a resource of the API group."""
        return self.store.list(self.resource(plural))

    def by_owner(self, plural: str) -> dict[str, list[Object]]:
        """Return the objects of a kind by the uid of their owners."""
        owned: dict[str, list[Object]] = {}
        for item in self.objects(plural):
            for owner in item["metadata"].get("ownerReferences") or ():
                owned.setdefault(owner["uid"], []).append(item)
        return owned

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        if self.is_paused(machine_set) or is_deleting(machine_set):
            return
        active = machines if self.counts_deleting else [item for item in machines if not is_deleting(item)]
        replicas = machine_set["spec"].get("replicas", 0)
        for _ in range(self._to_create(machine_set, replicas - len(active), now)):
            suffix = "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            machine = self.machine_of(machine_set, f"{machine_set['metadata']['name']}-{suffix}")
            owners = [controller_reference(machine_set)]
            machine["metadata"] |= {"ownerReferences": owners, "finalizers": [self.finalizer]}
            self.on_created(self.client.create(self.resource("machines"), machine), now)
        surplus: list[Object] = []
        if len(active) > replicas:
            surplus = self.deletion_order(machine_set, active, now)[: len(active) - replicas]
        surplus += [item for item in active if self.must_go(machine_set, item, now) and item not in surplus]
        for machine in surplus:
            if not is_deleting(machine):
                self.client.delete(machine)

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
            node = self._create_node(machine, launch.instance, now)
            metadata = machine["metadata"]
            current = self.store.get(self.resource("machines"), metadata["namespace"], metadata["name"])
            self.on_joined(current, node, now)
        elif not launch.instance.joins:
            self.on_waiting(machine, launch.instance, now)

    def _end(self, machine: Object, launch: _Launch, now: datetime) -> None:
        self.on_deleting(machine, now)
        if now < parse_time(machine["metadata"]["deletionTimestamp"]) + self.timing.deletion:
            return
        nodes = self.nodes_of(machine)
        if not self.skips_drain(machine) and not all(self._drain(machine, node, now) for node in nodes):
            return
        if launch.instance is not None:
            self.cloud.terminate(launch.instance.id)
        for node in nodes:
            self.client.delete(node)
        self.on_deleted(machine)
        self.client.patch(machine, {"metadata": {"finalizers": None}})
        self._launches.pop(machine["metadata"]["uid"], None)

    def _watch_nodes(self, now: datetime) -> None:
        """Report the nodes whose kubelets have stopped or started again, with condition and taints (node controller).

        A node that registers with a broken kubelet is reported by its kubelet, and never was Ready.
        """
        client = Client(self.store, "kube-controller-manager")
        for launch in self._launches.values():
            instance = launch.instance
            if instance is None or launch.joins_at is not None:
                continue
            is_broken = instance.id in self.cloud.broken
            node = (
                client.find("nodes", "", node_name(instance))
                if is_broken != (instance.id in self._known_broken)
                else None
            )
            if node is None:
                continue
            (self._known_broken.add if is_broken else self._known_broken.discard)(instance.id)
            if is_ready(node) is not is_broken:
                continue  # the kubelet has reported it
            status, reason = ("Unknown", "NodeStatusUnknown") if is_broken else ("True", "KubeletReady")
            others = [taint for taint in node["spec"].get("taints") or () if taint["key"] not in _NOT_READY_TAINTS]
            client.patch(node, {"spec": {"taints": [*others, *(_UNREACHABLE if is_broken else ())]}})
            ready = condition("Ready", status, now, reason=reason, always_reason=True)
            client.patch_status(node, {"conditions": [ready]})

    def nodes_of(self, machine: Object) -> list[Object]:
        """Return a list with the machine's node; it is empty before the node joins."""
        return self.store.list("nodes", labels=f"{_MACHINE_LABEL}={machine['metadata']['name']}")

    def _drain(self, machine: Object, node: Object, now: datetime) -> bool:
        """Cordon a node and evict its pods; return whether they are gone. Pods of DaemonSets and static pods stay."""
        if not node["spec"].get("unschedulable"):
            self.client.patch(node, {"spec": {"unschedulable": True}})
        fields = f"spec.nodeName={node['metadata']['name']}"
        pods = [pod for pod in self.store.list("pods", fields=fields) if _is_evicted(pod)]
        since = parse_time(machine["metadata"]["deletionTimestamp"])
        forced = self.drain_timeout is not None and now >= since + self.drain_timeout
        for pod in pods:
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            if forced:
                self.store.delete("pods", *key, grace=0)
            elif not is_deleting(pod):
                try:
                    self.store.evict(*key)
                except ApiError as error:
                    if error.code not in (404, 429, 500):  # the pod is already gone, or a budget protects it: retry
                        raise
        return forced or not pods

    def _create_node(self, machine: Object, instance: Instance, now: datetime) -> Object:
        name = node_name(instance)
        labels, taints = self.node_template(machine)
        labels = {
            **labels,
            ZONE_LABEL: instance.zone,
            "topology.kubernetes.io/region": instance.zone[:-1],
            "node.kubernetes.io/instance-type": self.cloud.machine_type,
            "kubernetes.io/hostname": name,
            _MACHINE_LABEL: machine["metadata"]["name"],
        }
        is_broken = instance.id in self.cloud.broken
        ready = condition(
            "Ready",
            str(not is_broken),
            now,
            reason="KubeletNotReady" if is_broken else "KubeletReady",
            always_reason=True,
        )
        taints = [*taints, *(_NOT_READY if is_broken else ())]
        status = {
            "conditions": [ready],
            "capacity": {"cpu": str(self.cloud.vcpus), "memory": "16Gi", "pods": "110"},
            # the capacity without the reservations for kubelet and system
            "allocatable": {"cpu": f"{self.cloud.vcpus * 1000 - 80}m", "memory": "15Gi", "pods": "110"},
        }
        spec = {"providerID": provider_id(instance), **({"taints": taints} if taints else {})}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        return Client(self.store, "kubelet").create("nodes", body)


_MACHINE_LABEL = "sandbox.evenkeel.dev/machine"
_NOT_READY, _UNREACHABLE = (
    [{"key": f"node.kubernetes.io/{why}", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    for why in ("not-ready", "unreachable")
)
_NOT_READY_TAINTS = {taint["key"] for taint in (*_NOT_READY, *_UNREACHABLE)}


def node_name(instance: Instance) -> str:
    """Return the name of an instance's node."""
    return f"ip-{instance.id[-8:]}.{instance.zone[:-1]}.compute.internal"


def _is_evicted(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    of_daemon_set = any(owner["kind"] == "DaemonSet" and owner.get("controller") for owner in owners)
    return not of_daemon_set and "kubernetes.io/config.mirror" not in annotations_of(pod)
