"""Exact fences: the owner of a group keeps the group's replicas fixed, even at 0, and no autoscaler scales the group.

HyperShift's operator stops a workload cluster's autoscaler if the autoscaler has no group left to scale
(hostedcluster_controller.go). So Evenkeel leaves at least one group to the autoscaler, and fences this group only by
its max.
"""

from collections.abc import Iterable
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.pools import AnyPool


def with_exact_fences(pools: list[AnyPool], fenced: Iterable[NodeGroup]) -> list[AnyPool]:
    """Return the pools. A group whose owner shall keep its replicas fixed has ``may_be_pinned``, and may have max 0."""
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
    """Return the keys of the groups whose owners shall keep the replicas fixed.

    Args:
        fenced: All groups that must not grow.
        pinned: All groups whose replicas are fixed now. Those that are not in ``fenced`` are returned to the
            autoscaler.
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

    If the autoscaler scales any other group, all of ``groups`` may be pinned. Otherwise one group is left out, if
    possible one that is not pinned now. So Evenkeel never pins the autoscaler's last group.
    """
    owners = {group.owner.numbers.ref.id for group in groups if group.owner.numbers is not None}
    if any(group.owner.pinning is not None and group.owner.pinning.scaled - owners for group in groups):
        return groups
    scaled = [group for group in groups if not group.ours.pinned]
    if not scaled and is_released:
        return groups
    left_out = min(scaled or groups, key=lambda group: group.key)
    return [group for group in groups if group is not left_out]
