"""Nodes that registered but were never Ready. Each of them counts as a machine without a node.

A Node reports since when it is not Ready. If this time is after the node's first minutes, the node was Ready before,
and its failure is no provisioning failure.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.workload import FIRST_MINUTES, Node, Workload


def with_never_ready(pools: Sequence[AnyPool], workload: Workload | None) -> list[AnyPool]:
    """Return the pools. If nodes were read, the status of each group lists its nodes that were never Ready."""
    nodes: dict[GroupKey, list[Node]] = {}
    for node in workload.nodes if workload is not None else ():
        if node.group is not None and was_never_ready(node):
            nodes.setdefault(node.group, []).append(node)
    if not nodes:
        return list(pools)

    def known(pool: AnyPool, group: NodeGroup) -> NodeGroup:
        never_ready = {
            node.name if node.machine is None else node.machine.name: ready_by
            for node in nodes.get(group.key, ())
            if (ready_by := node.ready_by(pool.timeout_of(group))) is not None
        }
        return replace(group, status=replace(group.status, never_ready=never_ready)) if never_ready else group

    return [replace(pool, groups=tuple([known(pool, group) for group in pool.groups])) for pool in pools]


def was_never_ready(node: Node) -> bool:
    """Return True if a node has not been Ready since it was created."""
    if node.ready or node.deleting or node.created_at is None:
        return False
    return node.not_ready_since is None or node.not_ready_since - node.created_at <= FIRST_MINUTES
