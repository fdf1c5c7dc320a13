"""Reads machines from API objects, and the failures that cluster-autoscaler-status reports. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import (
    Object,
    entries_of,
    failure_of,
    get_path,
    is_being_deleted,
)
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.groups import GroupKey, Machine, MachineFailure, NodeGroup
from evenkeel.domain.model.observations import MachineNode

# The autoscaler reports this error code where it could not raise replicas, because the API server did not answer or
# bounds forbade it (core/scaleup/orchestrator/executor.go, IncreaseSize). Such an error is no failure of the zone.
_OWN_REQUEST_FAILED = "cloudProviderError"

ScalableId = tuple[str, str, str]
"""Namespace, kind and name of a scalable."""


def nodes_of(
    flavour: Flavour, group: GroupKey, scalable: Object, items: Iterable[MachineObject], now: datetime
) -> dict[str, MachineNode]:
    """Return a group's nodes by each of their names and provider ids, from the group's machines or instance pool."""
    nodes = dict.fromkeys(_node_names(scalable), MachineNode(group=group, deleting=is_being_deleted(scalable)))
    for item in items:
        machine = item.read(flavour.machines.mark, now)
        nodes |= dict.fromkeys(item.node_names(), MachineNode(group=group, machine=machine, deleting=machine.deleting))
    return nodes


def _node_names(pool: Object) -> list[str]:
    """Return the names and provider ids of the nodes of an instance pool."""
    names = [reference.get("name") for reference in entries_of(pool, ("status", "nodeRefs"))]
    listed = get_path(pool, ("spec", "providerIDList"))
    names += listed if isinstance(listed, list) else ()
    return [name for name in names if isinstance(name, str) and name]


def scalable_of(group: NodeGroup) -> ScalableId:
    """Return the group's scalable."""
    return group.key.namespace, group.identity.kind, group.key.name


def scalables_of(flavour: Flavour, machine: MachineObject) -> list[ScalableId]:
    """Return the scalables that a machine may belong to: by the machine's label, else by its controller."""
    names = ((kind.kind, flavour.machines.scalable_of(machine, kind.kind)) for kind in flavour.scalables)
    return [(machine.metadata.namespace, kind, name) for kind, name in names if name is not None]


def with_machines(group: NodeGroup, machines: Iterable[Machine]) -> NodeGroup:
    """Return the group with its machines. ``running`` counts machines that have a node and are not being deleted.

    The scalable's status is the second source of ``running``. A list by label misses relabelled machines, but the nodes
    of such machines must still count.
    """
    listed = tuple(machines)
    if group.status.launched is not None and not listed:
        return group  # an instance pool has Machine objects only where its provider creates them
    running = sum(machine.has_node and not machine.deleting for machine in listed)
    zones = {machine.zone for machine in listed if machine.zone is not None}
    identity = group.identity
    if identity.zone is None and len(zones) == 1:
        identity = replace(identity, zone=zones.pop(), zone_of_machines=True)
    running = max(running, min(group.running, group.requested))
    return replace(group, machines=listed, running=running, identity=identity)


def with_autoscaler_status(members: list[GroupObjects], flavour: Flavour, status: str) -> list[GroupObjects]:
    """Return the groups, with the backoffs that ConfigMap ``cluster-autoscaler-status`` reports.

    A group without a backoff may have failures, too, because a node that exceeds the autoscaler's timeout often causes
    no backoff.
    """
    failures = _backoffs(status) if status else {}

    def with_failure(member: GroupObjects) -> GroupObjects:
        group, key = member.group, member.group.key
        name = flavour.autoscaler.status_name.format(kind=group.identity.kind, namespace=key.namespace, name=key.name)
        failure = failures.get(name)
        return (
            replace(member, group=replace(group, status=replace(group.status, autoscaler_failure=failure)))
            if failure
            else member
        )

    return [with_failure(member) for member in members] if failures else members


def _backoffs(status: str) -> dict[str, MachineFailure]:
    """Return the failures of groups, by the name that the autoscaler gives a group."""
    try:
        document = read_document(status)
    except UnreadableError:
        return {}
    failures = {}
    for entry in entries_of(document, ("nodeGroups",)):
        scale_up = get_path(entry, ("scaleUp",))
        code, message = (get_path(scale_up, ("backoffInfo", field)) for field in ("errorCode", "errorMessage"))
        if get_path(scale_up, ("status",)) == "Backoff" and code != _OWN_REQUEST_FAILED:
            since = get_path(scale_up, ("lastTransitionTime",))
            failures[str(entry.get("name"))] = failure_of(code, message, since)
    return failures
