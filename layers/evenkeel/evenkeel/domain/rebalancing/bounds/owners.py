"""Owners of bounds: those that the record does not let Evenkeel write, and those that hold replicas themselves.

A fence of a group whose owner holds replicas is exact, at 0 too, because no autoscaler scales it. HyperShift's operator
stops the autoscaler of a workload cluster in which no owner leaves replicas to it (hostedcluster_controller.go). So one
owner always does, and the fence of that group is its max.
"""

from collections.abc import Iterable
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
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


def without_foreign(groups: Iterable[NodeGroup], state: PoolState) -> tuple[NodeGroup, ...]:
    """Return the groups, with those frozen that only their own annotation calls pinned by Evenkeel.

    They are copies of what Evenkeel wrote, or another writer has set replicas there since.
    """
    return tuple([_frozen_if_foreign(group, state) for group in groups])


def _frozen_if_foreign(group: NodeGroup, state: PoolState) -> NodeGroup:
    if not group.ours.pinned or group.owner.numbers is None:
        return group
    known = state.desired_bounds.get(group.owner.numbers.ref.id)
    if known is not None and group.owner.numbers.bounds in known.ours:
        return group
    return group.frozen(Reason.of(Rule.OWNER_SETS_REPLICAS, owner=str(group.owner.numbers.ref)))
