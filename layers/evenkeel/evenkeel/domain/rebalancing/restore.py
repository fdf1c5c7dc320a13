"""Restore: write the adopted bounds of each group back and remove Evenkeel's annotations. Replicas do not change.

A restore is a plan like any other, with the same safety pass, order of writes, lease and record. A second restore
changes nothing.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Protocol

from evenkeel.domain.model.groups import NodeGroup, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolMode, PoolPlan, ReplicasPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import adopted_bounds, is_called, rule_of
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.rebalancing.bounds.safety import safe_bounds
from evenkeel.domain.rebalancing.dry_run import own_dry_run
from evenkeel.domain.rebalancing.membership.lost_groups import is_lost, lacks_tags


class Restoring(Protocol):
    """A policy, or the cluster record from which a policy is made."""

    @property
    def restoring(self) -> bool:
        """True while the whole cluster is being restored."""

    @property
    def restoring_pools(self) -> Collection[str]:
        """The names or ids of the pools that are being restored."""


def is_restored(id: PoolId, restoring: Restoring) -> bool:
    """Return True if this pool, or the whole cluster, is being restored."""
    return restoring.restoring or is_called(id, restoring.restoring_pools)


def restore(planned: PoolPlan, stored: PoolState, observation: Observation, *, whole: bool) -> PoolPlan:
    """Return the pool's plan with its groups restored.

    If ``whole``, all groups are restored. Otherwise, a group is restored only if the record no longer allows Evenkeel
    to write its bounds. A move in progress is completed first, because a restore removes the ids that show its
    progress.
    """
    held = {
        plan.group.key for plan in planned.groups if plan.group.owner.bounds_held and plan.group.has_ours_with_bounds
    }
    if not whole and not held:
        return planned
    move, begun = planned.next_state.move, planned.request.current is not None
    unplaced = move.still_unplaced(observation.groups) if move else 0
    if not whole:
        waits = move is not None or bool(planned.moves)
    elif begun:
        waits = planned.mode.valid and bool(planned.moves or planned.keeps_journal)
    else:
        waits = planned.mode.valid and planned.replicas.unplaced < unplaced
    if waits:
        return planned
    groups = tuple(
        [
            _restored(plan, planned.next_state, stored) if whole or plan.group.key in held else plan
            for plan in planned.groups
        ]
    )
    if not whole:
        return replace(planned, groups=groups)
    return replace(
        planned,
        groups=groups,
        mode=replace(planned.mode, closes=False),
        report=replace(planned.report, starved=0),
        replicas=replace(planned.replicas, unplaced=0 if begun else unplaced),
        convergence=replace(planned.convergence, step=None),
    )


def with_left_groups(
    pools: Iterable[PoolPlan], observation: Observation, state: ClusterState, policy: Policy
) -> tuple[PoolPlan, ...]:
    """Return the plans. A group that has left its pool and still has a value that Evenkeel wrote is restored.

    AWS lets Evenkeel write no Auto Scaling group without its tags (``membership.lost_groups``).
    Without the restore, such a group would keep its last bounds. If it was fenced, its max could remain 0.
    A group in dry run by its own setting is not written with a live pool.
    """
    plans = {pool.id: pool for pool in pools}
    if sum([len(pool.groups) for pool in plans.values()]) == len(observation.groups):
        return tuple(plans.values())  # every group is in a pool
    planned = {plan.group.key for pool in plans.values() for plan in pool.groups}
    strays = [
        group
        for group in observation.groups
        if group.key not in planned and carries_ours(group) and not lacks_tags(group, group.identity.pool_label)
    ]
    for group in sorted(strays, key=lambda group: group.key):
        pool = _former_pool(group, observation, state, policy)
        pool = plans.get(pool.id, pool)
        if pool.mode.opens:  # the only write to this pool opens its bounds
            continue
        if own_dry_run([group], None) and not (pool.mode.dry_run or is_restored(pool.id, policy)):
            continue
        plan = GroupPlan(group=group, state=State.HEALTHY, requested=group.requested, bounds=group.bounds, reasons=())
        plans[pool.id] = replace(pool, groups=(*pool.groups, _restored(plan, pool.next_state, pool.next_state)))
    return tuple(plans.values())


def _former_pool(group: NodeGroup, observation: Observation, state: ClusterState, policy: Policy) -> PoolPlan:
    """Return the plan of the pool that stores the group's adopted bounds, or of a pool named after the group."""
    key = group.key
    own = PoolId(key.flavour, key.namespace, group.identity.cluster, key.name)
    id = next((id for id, pool in state.pools.items() if str(key) in pool.adopted), own)
    pool, rule = state.pools.get(id, PoolState()), rule_of(id, policy)
    return PoolPlan(
        id=id,
        strategy=policy.settings.strategy,
        next_state=pool,
        mode=PoolMode(dry_run=own_dry_run([group], None if rule is None else rule.dry_run)),
        replicas=ReplicasPlan(unplaced=pool.move.still_unplaced(observation.groups) if pool.move else 0),
    )


def carries_ours(group: NodeGroup, stored: PoolState | None = None) -> bool:
    """Return True if the group still has a value that Evenkeel has written. ``stored``: the state of its pool."""
    ours = group.has_ours_with_bounds or group.ours.move is not None or is_lost(group)
    return ours or (stored is not None and _is_stripped(group, stored))


def _is_stripped(group: NodeGroup, stored: PoolState) -> bool:
    """Return True if another writer has removed Evenkeel's annotations, and the bounds are still Evenkeel's.

    For example, Terraform removes tags that are not in its configuration.
    """
    adopted, published = stored.adopted.get(str(group.key)), stored.published
    if group.owner.numbers is not None or adopted is None or published is None or group.bounds is None:
        return False
    if published.maxima.get(str(group.key)) != group.bounds.max:
        return False
    bounds, _ = safe_bounds(adopted.min, adopted.max, group, group.requested)
    return bounds != group.bounds


def _restored(planned: GroupPlan, pool: PoolState, stored: PoolState) -> GroupPlan:
    group = planned.group
    as_it_is = replace(
        planned,
        requested=group.requested,
        bounds=group.bounds,
        pins=group.ours.pinned,
        rolling=None,
        journal_delta=0,
    )
    if (obstacle := _obstacle(group, pool, stored)) is not None:
        return replace(as_it_is, reasons=(obstacle,))
    as_it_is = replace(as_it_is, pins=False, leaves=True)
    if group.owner.bounds_held and not group.has_ours_with_bounds:
        return replace(as_it_is, reasons=(Reason.of(Rule.RESTORED_WITHOUT_BOUNDS),))
    adopted = adopted_bounds(group, pool)
    if adopted is None:
        return replace(as_it_is, bounds=None, reasons=(Reason.of(Rule.RESTORED_TO_NONE),))
    bounds, cuts = safe_bounds(adopted.min, adopted.max, group, group.requested)
    published, over = group.ours.published, ""
    if published is not None and group.bounds not in (None, published.bounds, bounds):
        over = f"{group.bounds.min} to {group.bounds.max}"
    restored = Reason.of(Rule.RESTORED, min=adopted.min, max=adopted.max, over=over)
    return replace(as_it_is, bounds=bounds, reasons=(restored, *cuts))


def _obstacle(group: NodeGroup, pool: PoolState, stored: PoolState) -> Reason | None:
    if not carries_ours(group, stored):
        return Reason.of(Rule.NOTHING_OF_OURS)
    if group.frozen_because is not None:
        return Reason.of(Rule.NOT_RESTORED_YET, why=group.frozen_because)
    edited = any(fault.field.endswith("adopted-bounds") for fault in group.unreadable.faults)
    return Reason.of(Rule.NOT_RESTORED) if edited and str(group.key) not in pool.adopted else None
