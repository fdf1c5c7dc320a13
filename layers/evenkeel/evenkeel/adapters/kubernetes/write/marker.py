"""Marks the machines that are to be deleted first when replicas fall, and removes such marks."""

from collections.abc import Collection, Iterable

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.read.cluster import ClusterObjects
from evenkeel.adapters.kubernetes.read.lister import ObjectLister
from evenkeel.adapters.kubernetes.write.patcher import Patcher
from evenkeel.application.errors import ConflictError, RejectedError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, marks_left
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.texts.english import sentence


class Marker:
    """Sets and removes the delete marks of the machines that one check has listed."""

    def __init__(
        self, api: KubernetesApi, objects: ClusterObjects, lister: ObjectLister, patcher: Patcher, remaining: Remaining
    ) -> None:
        self._api = api
        self._objects = objects
        self._lister = lister
        self._patcher = patcher
        self._remaining = remaining

    def candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the names of the machines to delete, in order (``domain.rebalancing.replicas.deletion``)."""
        if patch.plan.removal.machines:
            return self._named(patch.plan)
        group, requested = patch.plan.group, patch.requested or 0
        staying = [machine for machine, _ in self._staying(group)]
        names = deletion_candidates(
            staying,
            requested,
            may_remove_running=patch.plan.removal.may_remove_running,
            keeps=patch.plan.removal.keeps,
            provision_timeout=patch.plan.provision_timeout,
            now=self._api.now(),
        )
        preserved = sum(machine.preserved for machine in staying)
        if preserved and len(names) < min(group.requested, len(staying)) - requested:
            # ``names`` has too few machines, because preserved machines are deleted last. So the controller would also
            # delete a machine that is not in ``names``.
            raise RejectedError(
                f"{group.key}: {preserved} of its {len(staying)} machines are preserved, so spec.replicas {requested} "
                "would take others than it should: give back less, or end their preservation"
            )
        return names

    def _named(self, plan: GroupPlan) -> tuple[str, ...]:
        """Return the machines that the plan names. Raises ConflictError if one of them is now deleted or preserved."""
        staying = {machine.ref: machine for machine, _ in self._staying(plan.group)}
        for ref in plan.removal.machines:
            machine = staying.get(ref)
            if machine is None or machine.preserved:
                change = "is gone" if machine is None else "is preserved"
                raise ConflictError(f"machine {ref} of {plan.group.key} {change} since it was read")
        return tuple(ref.name for ref in plan.removal.machines)

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Mark these machines, and remove Evenkeel's marks from the group's other machines.

        Each patch contains the machine's resourceVersion. So a machine that has become a node meanwhile causes a
        conflict, and the next run plans with this node. Machines that already have the mark need no patch. Evenkeel
        lists them again to detect a change.
        """
        group, mark = patch.plan.group, FLAVOURS[patch.plan.group.key.flavour].machines.mark
        if names:
            self._patcher.check_owner(self._objects.members[group.key], patch.plan)
        staying = self._staying(group)
        if patch.plan.removal.machines:
            reason = disagree((machine for machine, _ in staying), group.requested, ours)
            if reason is not None:
                raise ConflictError(f"{group.key}: {sentence(reason)}")
        for machine, item in staying:
            # Gardener's mark does not name its author. A machine on which a mark remains would be deleted instead of a
            # machine in ``names``.
            is_ours = mark.names_author or machine.name in ours
            if machine.name not in names and is_ours and mark.is_set_on(item):
                self._set_mark(group, item, None)
        targets = [(machine, item) for machine, item in staying if machine.name in names]
        marked = [machine for machine, item in targets if mark.is_set_on(item)]
        if marked:
            self._check_unchanged(group, marked)
        for _, item in targets:
            if not mark.is_set_on(item):
                self._set_mark(group, item, mark.value)

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        """Remove Evenkeel's marks from these machines, as the port says."""
        mark, listed = FLAVOURS[group.key.flavour].machines.mark, self._listed(group)
        left = marks_left((machine for machine, _ in listed), group.requested, names, doubted)
        if left is not None:
            return left
        for machine, item in listed:
            if machine.name in names and not machine.deleting and mark.is_set_on(item):
                self._set_mark(group, item, None)
        return None

    def _check_unchanged(self, group: NodeGroup, machines: Iterable[Machine]) -> None:
        """Raise ConflictError where the node, deletion or preservation of a machine has changed since it was read."""
        mark, now = FLAVOURS[group.key.flavour].machines.mark, self._api.now()
        listed = [item.read(mark, now) for item in self._list(group)]
        newest = {machine.name: machine for machine in listed if not machine.deleting}
        for machine in machines:
            newer = newest.get(machine.name)
            if newer is None:
                change = "is going"
            elif newer.preserved != machine.preserved:
                change = "is preserved" if newer.preserved else "is preserved no more"
            elif newer.has_node != machine.has_node:
                change = "has become a node" if newer.has_node else "has lost its node"
            else:
                continue
            raise ConflictError(f"machine {machine.name} of {group.key} {change} since it was read")

    def _staying(self, group: NodeGroup) -> list[tuple[Machine, MachineObject]]:
        """Return a group's machines that are not being deleted."""
        return [(machine, item) for machine, item in self._listed(group) if not machine.deleting]

    def _listed(self, group: NodeGroup) -> list[tuple[Machine, MachineObject]]:
        """Return all machines of a group. Lists the machines if the check has not listed them."""
        mark, now = FLAVOURS[group.key.flavour].machines.mark, self._api.now()
        if group.key not in self._objects.machines:
            self._objects.machines[group.key] = self._list(group)
        return [(item.read(mark, now), item) for item in self._objects.machines[group.key]]

    def _list(self, group: NodeGroup) -> list[MachineObject]:
        flavour, member = FLAVOURS[group.key.flavour], self._objects.members[group.key]
        return self._lister.list_machines(flavour, [member.group])[group.key]

    def _set_mark(self, group: NodeGroup, item: MachineObject, value: str | None) -> None:
        flavour = FLAVOURS[group.key.flavour]
        api, version, own = flavour.machines, self._lister.machine_version(flavour), item.metadata
        if not own.resource_version:
            raise RejectedError(f"Machine {own.namespace}/{own.name} has no metadata.resourceVersion: not written")
        metadata = {"resourceVersion": own.resource_version, "annotations": {api.mark.annotation: value}}
        path = api.kind.path(version, own.namespace, own.name)
        answer = api.read(self._api.patch(path, {"metadata": metadata}, self._remaining))
        # A second patch of this machine in the run needs the new resourceVersion.
        machines = self._objects.machines
        machines[group.key] = [answer if machine is item else machine for machine in machines[group.key]]
