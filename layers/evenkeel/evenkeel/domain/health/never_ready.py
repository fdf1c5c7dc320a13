"""Nodes that register and never become Ready: for their group they are machines that have not come.

The API server says since when a node is not Ready. A node that was Ready and is not any more is a matter of the node's
life and not of provisioning, so only the first minutes count. A kubelet that stops at once is seen after the node
monitor's grace period, which is five minutes at most in use.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.workload import Node, Workload

_FIRST_MINUTES = timedelta(minutes=5)


def with_never_ready(pools: Sequence[AnyPool], workload: Workload | None) -> list[AnyPool]:
    """Return the pools, with each group knowing which of its nodes were never Ready, as far as nodes were read."""
    found: dict[GroupKey, dict[str, datetime]] = {}
    for node in workload.nodes if workload is not None else ():
        if node.group is not None and node.created_at is not None and was_never_ready(node):
            name = node.name if node.machine is None else node.machine.name
            found.setdefault(node.group, {})[name] = node.created_at
    if not found:
        return list(pools)

    def known(group: NodeGroup) -> NodeGroup:
        return replace(group, never_ready=found[group.key]) if group.key in found else group

    return [replace(pool, groups=tuple([known(group) for group in pool.groups])) for pool in pools]


def was_never_ready(node: Node) -> bool:
    """Return whether a node has not been Ready since it was created."""
    if node.ready or node.deleting or node.created_at is None:
        return False
    return node.not_ready_since is None or node.not_ready_since - node.created_at <= _FIRST_MINUTES
