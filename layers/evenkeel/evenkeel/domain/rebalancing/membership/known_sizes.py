"""Empty groups whose cpu and memory no object names, but a node of a sibling group shows."""

from collections.abc import Sequence
from dataclasses import replace

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.workload import Workload


def with_known_sizes(pools: Sequence[AnyPool], workload: Workload | None) -> list[AnyPool]:
    """Return the pools. An empty group may get nodes if a Ready node of its pool shows their cpu and memory.

    An autoscaler does not learn them from other groups, so a pool with an autoscaler does not change.
    """
    ready = {node.group for node in workload.nodes if node.ready} if workload is not None else set()

    def opened(group: NodeGroup) -> NodeGroup:
        return replace(group, template=replace(group.template, closed_because=None))

    def known(pool: AnyPool) -> AnyPool:
        is_closed = any(group.template.closed_because is not None for group in pool.groups)
        if pool.settings.autoscaler or not is_closed or ready.isdisjoint(group.key for group in pool.groups):
            return pool
        return replace(pool, groups=tuple(map(opened, pool.groups)))

    return list(map(known, pools))
