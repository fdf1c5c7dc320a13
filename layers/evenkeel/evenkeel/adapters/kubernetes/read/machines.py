"""From API objects to machines, and the groups that they belong to. Pure."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import (
    Object,
    controller_of,
    entries_of,
    get_path,
    mapping,
    moment_of,
    name_of,
)
from evenkeel.application.rebalancing.ports import MachineNode
from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup

_PROVIDER_ID = re.compile(r"(?:aws:///|gce://[^/]+/)(?P<zone>[^/]+)/[^/]+", re.ASCII)
_LONG_AGO = datetime.fromtimestamp(0, UTC)

ScalableId = tuple[str, str, str]
"""Namespace, kind and name of a scalable."""


def read_machine(flavour: Flavour, item: Object, now: datetime) -> Machine:
    """One machine, as far as redistribution needs it."""
    has_node, ready = flavour.joined(item)
    annotations = mapping(get_path(item, ("metadata", "annotations")))
    return Machine(
        name=name_of(item)[1],
        uid=str(get_path(item, ("metadata", "uid")) or ""),
        has_node=has_node,
        ready=ready,
        created_at=moment_of(get_path(item, ("metadata", "creationTimestamp"))) or _LONG_AGO,
        launched_at=flavour.launched_at(item),
        preserved=flavour.is_preserved is not None and flavour.is_preserved(item, now),
        marked=flavour.is_marked(annotations),
        marked_by_us=flavour.mark_is_ours and annotations.get(flavour.mark[0]) == flavour.mark[1],
        deleting=get_path(item, ("metadata", "deletionTimestamp")) is not None,
        deleting_since=moment_of(get_path(item, ("metadata", "deletionTimestamp"))),
        failure=flavour.failure(item),
        zone=_zone_of(item),
    )


def nodes_of(
    flavour: Flavour, group: GroupKey, scalable: Object, items: Iterable[Object], now: datetime
) -> dict[str, MachineNode]:
    """The nodes of a group's machines, by every name that these, or a pool of instances, give them."""
    is_going = get_path(scalable, ("metadata", "deletionTimestamp")) is not None
    found = dict.fromkeys(_node_names(scalable), MachineNode(group=group, deleting=is_going))
    for item in items:
        machine = read_machine(flavour, item, now)
        node = MachineNode(group=group, machine=machine, deleting=machine.deleting)
        found |= dict.fromkeys(_node_names(item), node)
    return found


def _node_names(item: Object) -> list[str]:
    """What the node of a machine may be known by: its name, or the cloud's id that both have.

    Gardener names it in a label (machine-controller-manager pkg/apis/machine/v1alpha1, NodeLabelKey); a pool of
    instances has a list of each.
    """
    single = (("status", "nodeRef", "name"), ("metadata", "labels", "node"), ("spec", "providerID"))
    names = [get_path(item, path) for path in single]
    names += [get_path(reference, ("name",)) for reference in entries_of(item, ("status", "nodeRefs"))]
    listed = get_path(item, ("spec", "providerIDList"))
    names += listed if isinstance(listed, list) else ()
    return [name for name in names if isinstance(name, str) and name]


def by_scalable(flavour: Flavour, machines: Iterable[Object]) -> dict[ScalableId, list[Object]]:
    """The machines of each scalable, each once. One pass over the machines, however many groups there are."""
    machines_of: dict[ScalableId, list[Object]] = {}
    for machine in machines:
        for scalable in scalables_of(flavour, machine):
            machines_of.setdefault(scalable, []).append(machine)
    return machines_of


def scalable_of(group: NodeGroup) -> ScalableId:
    """The group as ``by_scalable`` calls it."""
    return group.key.namespace, group.kind, group.key.name


def scalables_of(flavour: Flavour, machine: Object) -> list[ScalableId]:
    """The scalables that a machine may be one of: by its label, else by its controller."""
    namespace, controller = name_of(machine)[0], controller_of(machine)
    labels = get_path(machine, ("metadata", "labels"))
    scalables = []
    for kind in flavour.scalables:
        label = flavour.machine_labels.get(kind.kind)
        if label is not None:
            name = get_path(labels, (label,))
        else:
            name = controller.name if controller and controller.kind == kind.kind else None
        if isinstance(name, str):
            scalables.append((namespace, kind.kind, name))
    return scalables


def with_machines(group: NodeGroup, machines: Iterable[Machine]) -> NodeGroup:
    """The group with its machines, running counted from them: those with a node that are not going.

    The status is a second witness. A list by label can miss machines that somebody has relabelled, and what runs must
    never be given up because it was not seen.
    """
    listed = tuple(machines)
    if group.launched is not None and not listed:
        return group  # of a pool of instances, machines are listed only where its provider makes some
    running = sum(machine.has_node and not machine.deleting for machine in listed)
    common = _common_zone(listed)
    return replace(
        group,
        machines=listed,
        running=max(running, min(group.running, group.requested)),
        zone=group.zone or common,
        zone_of_machines=group.zone is None and common is not None,
    )


def _common_zone(machines: Iterable[Machine]) -> str | None:
    """Where all of them stand; None where nobody says, or not all in one place."""
    zones = {machine.zone for machine in machines if machine.zone is not None}
    return next(iter(zones)) if len(zones) == 1 else None


def _zone_of(machine: Object) -> str | None:
    """Where a machine stands: as its API says, else as the cloud's own id of it does.

    ``aws:///<zone>/<instance>`` (cloud-provider-aws), ``gce://<project>/<zone>/<instance>``.
    """
    for path in (("spec", "failureDomain"), ("status", "failureDomain")):
        if isinstance(domain := get_path(machine, path), str) and domain:
            return domain
    found = _PROVIDER_ID.fullmatch(str(get_path(machine, ("spec", "providerID"))))
    return found["zone"] if found else None
