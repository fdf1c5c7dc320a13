"""Machines that the cloud has started and that are no nodes: their Node never became Ready, or there is none at all.

A node that is not Ready reports since when. If this time is after the node's first minutes, the node was Ready before,
and its failure is no provisioning failure.

EC2 Auto Scaling reports an instance as in service before its kubelet has registered. So only the nodes of the cluster
show which instances are nodes. An instance without a Node is coming until the provision timeout, counted from the first
check that finds it so. Then it is a failed machine of its group, and the first one to be removed.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.workload import FIRST_MINUTES, Node


def with_never_ready(pools: Sequence[AnyPool], check: Check) -> list[AnyPool]:
    """Return the pools. Each group knows its machines whose node was never Ready, and its instances without a Node."""
    workload = check.observation.workload
    registered = None if workload is None else workload.machines_with_node
    never_ready: dict[GroupKey, list[Node]] = {}
    for node in workload.nodes if workload is not None else ():
        if node.group is not None and was_never_ready(node):
            never_ready.setdefault(node.group, []).append(node)

    def known(pool: AnyPool, group: NodeGroup) -> NodeGroup:
        if group.key.flavour == AUTO_SCALING and group.machines:
            group = _with_nodeless(pool, group, registered, check)
        ready_by = {
            node.name if node.machine is None else node.machine.name: moment
            for node in never_ready.get(group.key, ())
            if (moment := node.ready_by(pool.timeout_of(group))) is not None
        }
        return replace(group, status=replace(group.status, never_ready=ready_by)) if ready_by else group

    return [replace(pool, groups=tuple([known(pool, group) for group in pool.groups])) for pool in pools]


def _with_nodeless(pool: AnyPool, group: NodeGroup, registered: Collection[str] | None, check: Check) -> NodeGroup:
    """Return the group. Its instances without a Node do not run.

    While no instance of the cluster has a Node, the nodes may be those of another cluster, or the list of nodes may be
    wrong. So the instances keep their replicas then: they are no nodes, and they are not removed.

    ``registered``: the machines with a Node. None: the check has not read the nodes. Then all instances count as
    running, as without a workload, but the instances that were known to have no Node are no successes.
    """
    stored = check.state.groups.get(group.key)
    before = {} if stored is None else stored.arrivals.nodeless
    since = {
        machine.name: before.get(machine.name, check.now)
        for machine in group.machines or ()
        if machine.has_node
        and not machine.deleting
        and (machine.name in before if registered is None else machine.name not in registered)
    }
    if not since:
        return group
    group = replace(group, status=replace(group.status, nodeless=since))
    if registered is None:
        return group
    timeout = pool.timeout_of(group)

    def seen(machine: Machine) -> Machine:
        if machine.name not in since:
            return machine
        stays = not registered and check.now - since[machine.name] >= timeout
        return replace(machine, has_node=False, created_at=since[machine.name], preserved=stays)

    machines = tuple([seen(machine) for machine in group.machines or ()])
    return replace(group, machines=machines, running=group.running - len(since))


def was_never_ready(node: Node) -> bool:
    """Return True if a node has not been Ready since it was created."""
    if node.ready or node.deleting or node.created_at is None:
        return False
    return node.not_ready_since is None or node.not_ready_since - node.created_at <= FIRST_MINUTES
