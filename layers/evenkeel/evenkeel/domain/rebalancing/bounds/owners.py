"""Groups that Evenkeel must not write: without consent, with another writer of replicas, or with unread bounds."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState


def with_write_consent(observation: Observation, policy: Policy) -> Observation:
    """Return the observation. A group has ``bounds_held`` if the record lacks the consent that its owner needs."""
    if policy.write_topology or all([group.owner.numbers is None for group in observation.groups]):
        return observation
    return replace(observation, groups=tuple([_held(group) for group in observation.groups]))


def without_unread(observation: Observation, state: ClusterState) -> Observation:
    """Return the observation. A group whose bounds the autoscaler ignores gets its own bounds back, and is frozen.

    Evenkeel's bounds would not stop the autoscaler, but AWS would refuse the nodes that it orders beyond them.
    """
    unread = {key: bounds for key, one in state.groups.items() if (bounds := one.contest.unread_bounds) is not None}
    if not unread:
        return observation
    groups = tuple(
        [_given_up(group, unread[group.key]) if group.key in unread else group for group in observation.groups]
    )
    return replace(observation, groups=groups)


def _given_up(group: NodeGroup, used: Bounds) -> NodeGroup:
    if group.has_ours_with_bounds:
        return replace(group, owner=replace(group.owner, bounds_held=True, allowed_replicas=group.bounds))
    return group.frozen(Reason.of(Rule.AUTOSCALER_USES_FLAGS, min=used.min, max=used.max))


def _held(group: NodeGroup) -> NodeGroup:
    numbers = group.owner.numbers
    if numbers is None or not numbers.needs_consent:
        return group
    # While the owner has bounds that Evenkeel wrote, its bounds before that write are the desired bounds. Otherwise its
    # present bounds are the desired bounds.
    numbers = replace(numbers, takes_ours=group.has_ours_with_bounds)
    return replace(group, owner=replace(group.owner, numbers=numbers, bounds_held=True, allowed_replicas=group.bounds))


def without_foreign(pools: Iterable[AnyPool], without: Collection[PoolId]) -> list[AnyPool]:
    """Return the pools. Freeze each group that is pinned by its annotation, but not by the pool's stored state.

    Such a group is a copy of an object that Evenkeel wrote, or another writer has set its replicas after Evenkeel.
    Pools in ``without`` are unchanged.
    """
    return [
        replace(pool, groups=tuple([_frozen_if_foreign(group, pool.state) for group in pool.groups]))
        if any([group.ours.pinned for group in pool.groups]) and pool.id not in without
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
