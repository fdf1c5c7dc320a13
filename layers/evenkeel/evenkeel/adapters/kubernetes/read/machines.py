"""Reads machines from API objects, and the failures that cluster-autoscaler-status reports. Pure."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from evenkeel.adapters.kubernetes.flavours.base import LAUNCHING, Flavour, Machines
from evenkeel.adapters.kubernetes.objects import (
    Object,
    controller_of,
    entries_of,
    failure_of,
    get_path,
    is_being_deleted,
    moment_of,
    name_of,
)
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.groups import GroupKey, Machine, MachineFailure, NodeGroup
from evenkeel.domain.model.observations import MachineNode

# The cloud's id of an instance: aws:///<zone>/<instance> (cloud-provider-aws), gce://<project>/<zone>/<instance>.
_PROVIDER_ID = re.compile(r"(?:aws:///|gce://[^/]+/)(?P<zone>[^/]+)/[^/]+", re.ASCII)
# OpenShift's machine controller sets this label on every platform. On vSphere, no other field has the zone.
_ZONE_OF_OPENSHIFT = "machine.openshift.io/zone"
_LONG_AGO = datetime.fromtimestamp(0, UTC)
# The autoscaler reports this error code where it could not raise replicas, because the API server did not answer or
# bounds forbade it (core/scaleup/orchestrator/executor.go, IncreaseSize). Such an error is no failure of the zone.
_OWN_REQUEST_FAILED = "cloudProviderError"

ScalableId = tuple[str, str, str]
"""Namespace, kind and name of a scalable."""


def read_machine(flavour: Flavour, item: Object, now: datetime) -> Machine:
    """Return the machine that an API object describes."""
    api = flavour.machines
    has_node, ready = api.joined(item)
    failure = _failure(api, item)
    return Machine(
        name=name_of(item)[1],
        uid=str(get_path(item, ("metadata", "uid")) or ""),
        has_node=has_node,
        ready=ready,
        created_at=moment_of(get_path(item, ("metadata", "creationTimestamp"))) or _LONG_AGO,
        launched_at=api.launched_at(item),
        awaited_since=api.awaited_since(item),
        joined_at=api.joined_at(item) if has_node else None,
        had_node=api.had_node(item),
        preserved=api.is_preserved is not None and api.is_preserved(item, now),
        marked=api.mark.marks(item),
        marked_by_us=api.mark.is_ours and api.mark.is_set_on(item),
        deleting=is_being_deleted(item),
        deleting_since=moment_of(get_path(item, ("metadata", "deletionTimestamp"))),
        failure=failure,
        failed_for_good=failure is not None and any(get_path(item, path) is not None for path in api.final_failures),
        zone=_zone_of(item),
    )


def _failure(api: Machines, item: Object) -> MachineFailure | None:
    """Return the failure that a machine's status reports.

    While the controller still launches the machine, a text without a known cause is no failure: hosts that are made on
    demand take their time, so the provision timeout decides.
    """
    failure = api.failure(item)
    retries = api.phase is not None and get_path(item, api.phase) in LAUNCHING
    return None if failure is not None and retries and class_of(failure).is_vague else failure


def nodes_of(
    flavour: Flavour, group: GroupKey, scalable: Object, items: Iterable[Object], now: datetime
) -> dict[str, MachineNode]:
    """Return a group's nodes by each of their names and provider ids, from the group's machines or instance pool."""
    nodes = dict.fromkeys(_node_names(scalable), MachineNode(group=group, deleting=is_being_deleted(scalable)))
    for item in items:
        machine = read_machine(flavour, item, now)
        nodes |= dict.fromkeys(_node_names(item), MachineNode(group=group, machine=machine, deleting=machine.deleting))
    return nodes


def _node_names(item: Object) -> list[str]:
    """Return the names and provider ids that identify the nodes of a machine or an instance pool.

    Gardener has the node's name in a label (machine-controller-manager pkg/apis/machine/v1alpha1, NodeLabelKey).
    """
    single = (("status", "nodeRef", "name"), ("metadata", "labels", "node"), ("spec", "providerID"))
    names = [get_path(item, path) for path in single]
    names += [get_path(reference, ("name",)) for reference in entries_of(item, ("status", "nodeRefs"))]
    listed = get_path(item, ("spec", "providerIDList"))
    names += listed if isinstance(listed, list) else ()
    return [name for name in names if isinstance(name, str) and name]


def by_scalable(flavour: Flavour, machines: Iterable[Object]) -> dict[ScalableId, list[Object]]:
    """Return the machines of each scalable, in one pass over the machines."""
    machines_of: dict[ScalableId, list[Object]] = {}
    for machine in machines:
        for scalable in scalables_of(flavour, machine):
            machines_of.setdefault(scalable, []).append(machine)
    return machines_of


def scalable_of(group: NodeGroup) -> ScalableId:
    """Return the group's key in ``by_scalable``."""
    return group.key.namespace, group.identity.kind, group.key.name


def scalables_of(flavour: Flavour, machine: Object) -> list[ScalableId]:
    """Return the scalables that a machine may belong to: by the machine's label, else by its controller."""
    namespace, controller = name_of(machine)[0], controller_of(machine)
    labels = get_path(machine, ("metadata", "labels"))
    scalables = []
    for kind in flavour.scalables:
        label = flavour.machines.labels.get(kind.kind)
        if label is not None:
            name = get_path(labels, (label,))
        else:
            name = controller.name if controller and controller.kind == kind.kind else None
        if isinstance(name, str):
            scalables.append((namespace, kind.kind, name))
    return scalables


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
    common = next(iter(zones)) if len(zones) == 1 else None
    return replace(
        group,
        machines=listed,
        running=max(running, min(group.running, group.requested)),
        identity=replace(
            group.identity,
            zone=group.identity.zone or common,
            zone_of_machines=group.identity.zone is None and common is not None,
        ),
    )


def _zone_of(machine: Object) -> str | None:
    """Return a machine's zone: from its failure domain or OpenShift's label, else from its provider id."""
    for path in (("spec", "failureDomain"), ("status", "failureDomain"), ("metadata", "labels", _ZONE_OF_OPENSHIFT)):
        if isinstance(domain := get_path(machine, path), str) and domain:
            return domain
    instance = _PROVIDER_ID.fullmatch(str(get_path(machine, ("spec", "providerID"))))
    return instance["zone"] if instance else None


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
    import yaml  # where it is used: its import takes 8 ms, and clusters without an autoscaler do not need it

    try:
        document = yaml.safe_load(status)
    except (yaml.YAMLError, RecursionError, ValueError):  # PyYAML raises ValueError for a date that does not exist
        return {}
    failures = {}
    for entry in entries_of(document, ("nodeGroups",)):
        scale_up = get_path(entry, ("scaleUp",))
        code, message = (get_path(scale_up, ("backoffInfo", field)) for field in ("errorCode", "errorMessage"))
        if get_path(scale_up, ("status",)) == "Backoff" and code != _OWN_REQUEST_FAILED:
            since = get_path(scale_up, ("lastTransitionTime",))
            failures[str(entry.get("name"))] = failure_of(code, message, since)
    return failures
