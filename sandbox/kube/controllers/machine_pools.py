"""MachinePools of Cluster API, with a cloud behind them that makes, spreads and chooses machines by itself.

As cluster-api-provider-aws has it: the auto-scaling group is asked for a number, what it refuses nobody tells, and when
the number falls it takes the oldest first, nodes or not. A provider of MachinePool Machines shows one Machine for each
instance, once it is there, and takes those first that carry the delete mark
(docs/proposals/20220209-machinepool-machines.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.objects import annotations_of, controller_reference, is_deleting, provider_id
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object

if TYPE_CHECKING:
    from sandbox.kube.controllers.life import MachineControllers

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
    """The controllers of all MachinePools of a server."""

    def __init__(
        self, controllers: MachineControllers, create_node: Callable[[Object, Instance], Object], *, is_new: bool
    ) -> None:
        """``is_new``: objects are stored in v1beta2's shape."""
        self._controllers = controllers
        self._create_node = create_node
        self._is_new = is_new
        #: whether the provider makes Machines for the instances
        self.has_machines = False
        #: by pool, what somebody outside of Cluster API has asked the cloud for
        self.asked_outside: dict[str, int] = {}
        self._members: dict[str, list[_Member]] = {}  # by the pool's uid, the oldest first

    def step(self, now: datetime) -> None:
        for pool in self._controllers.objects("machinepools"):
            if not self._controllers.is_paused(pool) and not is_deleting(pool):
                self._reconcile(pool, now)

    def _reconcile(self, pool: Object, now: datetime) -> None:
        members = self._members.setdefault(pool["metadata"]["uid"], [])
        wanted = self._wanted(pool)
        while len(members) > wanted:
            self._take(pool, members)
        self._launch(pool, members, wanted - len(members), now)
        for member in members:
            if member.node is None and member.instance.joins and now >= member.joins_at:
                member.node = self._create_node(_as_machine(pool, member.instance), member.instance)
        if self.has_machines:
            for member in members:
                self._show(pool, member)
        self._tell(pool, members)

    def _wanted(self, pool: Object) -> int:
        """The group's size. Managed outside, the number goes the other way: from the cloud into the object."""
        outside = self.asked_outside.get(pool["metadata"]["name"])
        if annotations_of(pool).get(MANAGED_BY, "false") != "false" and outside is not None:
            if pool["spec"].get("replicas") != outside:
                self._controllers.patch("machinepools", pool, {"spec": {"replicas": outside}}, manager="capa")
            return outside
        return int(pool["spec"].get("replicas", 1))

    def _launch(self, pool: Object, members: list[_Member], number: int, now: datetime) -> None:
        """As many as the cloud gives. Several zones are filled evenly; none named is all there are."""
        zones = pool["spec"].get("failureDomains") or list(self._controllers.cloud.zones)
        for _ in range(number):
            zone = min(zones, key=lambda name: sum(member.instance.zone == name for member in members))
            try:
                instance = self._controllers.cloud.launch(zone)
            except LaunchError:
                return  # an activity of the group, which no object tells
            members.append(_Member(instance=instance, joins_at=now + self._controllers.timing.provision))

    def _take(self, pool: Object, members: list[_Member]) -> None:
        marked = [member for member in members if _MARK in annotations_of(self._machine(pool, member) or {})]
        gone = (marked or members)[0]
        members.remove(gone)
        self._controllers.cloud.terminate(gone.instance.id)
        if gone.node is not None:
            self._controllers.store.delete("nodes", "", gone.node["metadata"]["name"])
        machine = self._machine(pool, gone)
        if machine is not None:
            metadata = machine["metadata"]
            self._controllers.store.delete(
                self._controllers.resource("machines"), metadata["namespace"], metadata["name"]
            )

    def _machine(self, pool: Object, member: _Member) -> Object | None:
        name = _as_machine(pool, member.instance)["metadata"]["name"]
        try:
            return self._controllers.store.get(
                self._controllers.resource("machines"), pool["metadata"]["namespace"], name
            )
        except ApiError:
            return None

    def _show(self, pool: Object, member: _Member) -> None:
        """The Machine of an instance."""
        machine = self._machine(pool, member)
        if machine is None:
            machine = self._controllers.create("machines", _as_machine(pool, member.instance))
        node = member.node
        status: Object = {"phase": "Provisioned" if node is None else "Running"}
        if node is not None:
            status["nodeRef"] = {"name": node["metadata"]["name"]}
        self._controllers.write_status(machine, status)

    def _tell(self, pool: Object, members: list[_Member]) -> None:
        ids = [provider_id(member.instance) for member in members]
        if pool["spec"].get("providerIDList", []) != ids:
            self._controllers.patch("machinepools", pool, {"spec": {"providerIDList": ids}})
        nodes = [member.node for member in members if member.node is not None]
        references = [{"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"]} for node in nodes]
        status: Object = {"replicas": len(members), "nodeRefs": references, "phase": "Running" if nodes else "Pending"}
        if self._is_new:
            # Without Machines, ready is what there is, node or not (machinepool_controller_status.go, setReplicas).
            ready = len(nodes) if self.has_machines else len(members)
            old = {"readyReplicas": len(nodes), "availableReplicas": len(nodes)}
            status |= {"readyReplicas": ready, "availableReplicas": ready, "deprecated": {"v1beta1": old}}
        else:
            status |= {"readyReplicas": len(nodes), "availableReplicas": len(nodes)}
        self._controllers.write_status(self._newest(pool), status)

    def _newest(self, pool: Object) -> Object:
        metadata = pool["metadata"]
        return self._controllers.store.get(
            self._controllers.resource("machinepools"), metadata["namespace"], metadata["name"]
        )


def _as_machine(pool: Object, instance: Instance) -> Object:
    """The Machine that stands for an instance, whether it is made or not: nodes are named after it."""
    metadata, template = pool["metadata"], pool["spec"]["template"]["spec"]
    return {
        "metadata": {
            "name": f"{metadata['name']}-{instance.id[-8:]}",
            "namespace": metadata["namespace"],
            "labels": {POOL_NAME: metadata["name"], "cluster.x-k8s.io/cluster-name": pool["spec"]["clusterName"]},
            "ownerReferences": [controller_reference(pool)],
        },
        "spec": {
            "clusterName": pool["spec"]["clusterName"],
            "bootstrap": template.get("bootstrap", {}),
            "infrastructureRef": template.get("infrastructureRef", {}),
            "providerID": provider_id(instance),
            "failureDomain": instance.zone,
        },
    }
