"""Exact fences: those of groups whose owner holds replicas itself, at 0 too, because no autoscaler scales them.

HyperShift's operator stops the autoscaler of a workload cluster in which no owner leaves replicas to it
(hostedcluster_controller.go). So one owner always does, and the fence of that group is its max.
"""

from collections.abc import Iterable
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.pools import AnyPool


def with_exact_fences(pools: list[AnyPool], fenced: Iterable[NodeGroup]) -> list[AnyPool]:
    """Return the pools with those groups marked whose owners are to hold replicas: such a fence needs no max of 1."""
    able = [group for pool in pools for group in pool.groups if group.owner.pinning is not None]
    exact = exact_fences(fenced, [group for group in able if group.ours.pinned and group.frozen_because is None])
    if not exact:
        return pools

    def marked(group: NodeGroup) -> NodeGroup:
        if group.key not in exact:
            return group
        return replace(group, owner=replace(group.owner, may_be_pinned=True, least_max=0, least_min=0))

    return [replace(pool, groups=tuple([marked(group) for group in pool.groups])) for pool in pools]


def exact_fences(fenced: Iterable[NodeGroup], pinned: Iterable[NodeGroup]) -> frozenset[GroupKey]:
    """Return the groups whose owners are to hold their replicas.

    Args:
        fenced: All groups that are to get no growth.
        pinned: All groups that are pinned now. Those that are not fenced are about to be released.
    """
    candidates: dict[str, list[NodeGroup]] = {}
    for group in fenced:
        if group.owner.pinning is not None and group.owner.numbers is not None:
            candidates.setdefault(group.owner.pinning.cluster, []).append(group)
    keys = {group.key for groups in candidates.values() for group in groups}
    released = {
        group.owner.pinning.cluster for group in pinned if group.owner.pinning is not None and group.key not in keys
    }
    return frozenset(
        group.key
        for cluster, groups in candidates.items()
        for group in _without_last(groups, is_released=cluster in released)
    )


def _without_last(groups: list[NodeGroup], *, is_released: bool) -> list[NodeGroup]:
    """Return the groups of one workload cluster that may be pinned.

    The one left out is scaled now, so that no group is pinned before another has been released.
    """
    owners = {group.owner.numbers.ref.id for group in groups if group.owner.numbers is not None}
    if any(group.owner.pinning is not None and group.owner.pinning.scaled - owners for group in groups):
        return groups
    scaled = [group for group in groups if not group.ours.pinned]
    if not scaled and is_released:
        return groups
    left_out = min(scaled or groups, key=lambda group: group.key)
    return [group for group in groups if group is not left_out]
