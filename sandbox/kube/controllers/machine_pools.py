"""MachinePools of Cluster API, and the auto-scaling groups behind them.

As in cluster-api-provider-aws, the controller sets the size of the auto-scaling group. No object reports the launches
that the cloud refuses. If the size falls, the oldest instances end first. A provider with MachinePool Machines creates
a Machine for each running instance, and ends instances of marked Machines first
(docs/proposals/20220209-machinepool-machines.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.objects import annotations_of, controller_reference, is_deleting, provider_id
from sandbox.kube.schema import Object

if TYPE_CHECKING:
    from sandbox.kube.controllers.machine_controller import MachineControllers

POOL_NAME = "cluster.x-k8s.io/pool-name"
MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
_MARK = "cluster.x-k8s.io/delete-machine"


@dataclass(kw_only=True)
class _Member:
    """An instance of a pool."""

    instance: Instance
    joins_at: datetime
    node: Object | None = None


class MachinePools:
    """The controllers of all MachinePools of a server. ``is_new``: the storage version is v1beta2."""

    def __init__(
        self,
        controllers: MachineControllers,
        create_node: Callable[[Object, Instance, datetime], Object],
        *,
        is_new: bool,
    ) -> None:
        self._controllers = controllers
        self._client = controllers.client
        self._create_node = create_node
        self._is_new = is_new
        #: True: the provider creates Machines for the instances
        self.has_machines = False
        #: by pool, the size that an external autoscaler requested from the cloud
        self.external_sizes: dict[str, int] = {}
        self._members: dict[str, list[_Member]] = {}  # by the pool's uid, the oldest first

    def step(self, now: datetime) -> None:
        """Reconcile each MachinePool that is neither paused nor being deleted."""
        for pool in self._controllers.objects("machinepools"):
            if not self._controllers.is_paused(pool) and not is_deleting(pool):
                self._reconcile(pool, now)

    def _reconcile(self, pool: Object, now: datetime) -> None:
        members = self._members.setdefault(pool["metadata"]["uid"], [])
        size = self._size(pool)
        while len(members) > size:
            self._end_one(pool, members)
        self._launch(pool, members, size - len(members), now)
        for member in members:
            if member.node is None and member.instance.joins and now >= member.joins_at:
                member.node = self._create_node(_as_machine(pool, member.instance), member.instance, now)
        if self.has_machines:
            for member in members:
                self._write_machine(pool, member)
        self._write_pool(pool, members)

    def _size(self, pool: Object) -> int:
        """Return the group's size. With an external autoscaler, write the cloud's size into the pool."""
        external = self.external_sizes.get(pool["metadata"]["name"])
        if annotations_of(pool).get(MANAGED_BY, "false") != "false" and external is not None:
            if pool["spec"].get("replicas") != external:
                self._client.patch(pool, {"spec": {"replicas": external}}, manager="capa")
            return external
        return int(pool["spec"].get("replicas", 1))

    def _launch(self, pool: Object, members: list[_Member], number: int, now: datetime) -> None:
        """Launch instances evenly over the pool's zones (default: all), until the cloud refuses one."""
        zones = pool["spec"].get("failureDomains") or list(self._controllers.cloud.zones)
        for _ in range(number):
            zone = min(zones, key=lambda name: sum(member.instance.zone == name for member in members))
            try:
                instance = self._controllers.cloud.launch(zone)
            except LaunchError:
                return  # an activity of the auto-scaling group has the failure; no object reports it
            members.append(_Member(instance=instance, joins_at=now + self._controllers.timing.provision))

    def _end_one(self, pool: Object, members: list[_Member]) -> None:
        marked = [member for member in members if _MARK in annotations_of(self._machine(pool, member) or {})]
        ended = (marked or members)[0]
        members.remove(ended)
        self._controllers.cloud.terminate(ended.instance.id)
        for item in (ended.node, self._machine(pool, ended)):
            if item is not None:
                self._client.delete(item)

    def _machine(self, pool: Object, member: _Member) -> Object | None:
        metadata = _as_machine(pool, member.instance)["metadata"]
        return self._client.find(self._controllers.resource("machines"), metadata["namespace"], metadata["name"])

    def _write_machine(self, pool: Object, member: _Member) -> None:
        """Create the Machine of an instance, and write its status."""
        machine = self._machine(pool, member)
        if machine is None:
            machine = self._client.create(self._controllers.resource("machines"), _as_machine(pool, member.instance))
        node = member.node
        status: Object = {"phase": "Provisioned" if node is None else "Running"}
        if node is not None:
            status["nodeRef"] = {"name": node["metadata"]["name"]}
        self._client.update_status(machine, status)

    def _write_pool(self, pool: Object, members: list[_Member]) -> None:
        ids = [provider_id(member.instance) for member in members]
        if pool["spec"].get("providerIDList", []) != ids:
            self._client.patch(pool, {"spec": {"providerIDList": ids}})
        nodes = [member.node for member in members if member.node is not None]
        references = [{"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"]} for node in nodes]
        status: Object = {"replicas": len(members), "nodeRefs": references, "phase": "Running" if nodes else "Pending"}
        old = {"readyReplicas": len(nodes), "availableReplicas": len(nodes)}
        if self._is_new:
            # Without Machines, every instance counts as ready (machinepool_controller_status.go, setReplicas).
            ready = len(nodes) if self.has_machines else len(members)
            status |= {"readyReplicas": ready, "availableReplicas": ready, "deprecated": {"v1beta1": old}}
        else:
            status |= old
        metadata = pool["metadata"]
        current = self._client.find(self._controllers.resource("machinepools"), metadata["namespace"], metadata["name"])
        assert current is not None
        self._client.update_status(current, status)


def _as_machine(pool: Object, instance: Instance) -> Object:
    """Return the Machine of an instance. Nodes have its name, even if the Machine is never created."""
    metadata, spec = pool["metadata"], pool["spec"]
    template = spec["template"]["spec"]
    return {
        "metadata": {
            "name": f"{metadata['name']}-{instance.id[-8:]}",
            "namespace": metadata["namespace"],
            "labels": {POOL_NAME: metadata["name"], "cluster.x-k8s.io/cluster-name": spec["clusterName"]},
            "ownerReferences": [controller_reference(pool)],
        },
        "spec": {
            "clusterName": spec["clusterName"],
            "bootstrap": template.get("bootstrap", {}),
            "infrastructureRef": template.get("infrastructureRef", {}),
            "providerID": provider_id(instance),
            "failureDomain": instance.zone,
        },
    }
