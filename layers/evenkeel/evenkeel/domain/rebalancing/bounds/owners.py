"""Owners of bounds: those that the record does not let Evenkeel write, and those that hold replicas themselves.

A fence of a group whose owner holds replicas is exact, at 0 too, because no autoscaler scales it. HyperShift's operator
stops the autoscaler of a workload cluster in which no owner leaves replicas to it (hostedcluster_controller.go). So one
owner always does, and the fence of that group is its max.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import PoolState


def with_write_consent(observation: Observation, policy: Policy) -> Observation:
    """Return the observation, with the bounds held of groups whose owner needs a consent that the record lacks."""
    if policy.write_topology:
        return observation
    groups = tuple([_held(group) for group in observation.groups])
    return observation if groups == observation.groups else replace(observation, groups=groups)


def _held(group: NodeGroup) -> NodeGroup:
    numbers = group.owner.numbers
    if numbers is None or not numbers.needs_consent:
        return group
    # While a value of Evenkeel's is there, the desired bounds are those from before it; after that, those that are set.
    numbers = replace(numbers, takes_ours=group.has_ours_with_bounds)
    return replace(group, owner=replace(group.owner, numbers=numbers, bounds_held=True, worker_range=group.bounds))


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


def without_foreign(pools: Iterable[AnyPool], without: Collection[PoolId]) -> list[AnyPool]:
    """Return the pools, with those groups frozen that only their own annotation calls pinned by Evenkeel.

    They are copies of what Evenkeel wrote, or another writer has set replicas there since. The pools ``without`` stay.
    """
    return [
        replace(pool, groups=tuple([_frozen_if_foreign(group, pool.state) for group in pool.groups]))
        if pool.id not in without and any(group.ours.pinned for group in pool.groups)
        else pool
        for pool in pools
    ]


def _frozen_if_foreign(group: NodeGroup, state: PoolState) -> NodeGroup:
    if not group.ours.pinned or group.owner.numbers is None:
        return group
    known = state.desired_bounds.get(group.owner.numbers.ref.id)
    if known is not None and group.owner.numbers.bounds in known.ours:
        return group
    return group.frozen(Reason.of(Rule.OWNER_SETS_REPLICAS, owner=str(group.owner.numbers.ref)))
