"""Restoring: every group gets back the bounds it had before us, and loses our annotations. Replicas stay as they are.

Planned like everything else, so that it goes through the same safety pass, order of writes, lease and record. A second
run finds nothing of ours and plans nothing.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Protocol

from evenkeel.domain.model.groups import NodeGroup, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import adopted_bounds, is_called, rule_of
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.rebalancing.bounds.safety import safe_bounds


class Restoring(Protocol):
    """A policy, or the record that it is made from."""

    @property
    def restoring(self) -> bool:
        """The whole cluster is being restored."""

    @property
    def restoring_pools(self) -> Collection[str]:
        """These pools are, by name or id."""


def is_restored(id: PoolId, restoring: Restoring) -> bool:
    """Whether this pool is being restored: by itself, or with the whole cluster."""
    return restoring.restoring or is_called(id, restoring.restoring_pools)


def restore_pool(planned: PoolPlan, observation: Observation) -> PoolPlan:
    """The pool with its groups restored. ``planned`` is what it would come to without that.

    A move that was interrupted is ended first, as planned: the marks that say how far it came go with us.
    """
    move = planned.remembered.move
    unplaced = move.still_unplaced(observation.groups) if move else 0
    begun = planned.scale_request is not None
    if planned.valid and (planned.moves or planned.keeps_journal if begun else planned.unplaced < unplaced):
        return planned
    groups = tuple([_restored(plan, planned.remembered) for plan in planned.groups])
    return replace(planned, groups=groups, closes=False, starved=0, unplaced=0 if begun else unplaced, step=None)


def restore_held(planned: PoolPlan) -> PoolPlan:
    """The pool with those groups restored whose bounds the record lets us write no more.

    Not before a move is ended: the marks that say how far it came go with us.
    """
    if planned.remembered.move is not None or planned.moves:
        return planned
    groups = tuple(
        [
            _restored(plan, planned.remembered) if plan.group.bounds_held and plan.group.has_ours_with_bounds else plan
            for plan in planned.groups
        ]
    )
    return replace(planned, groups=groups)


def with_left_groups(
    pools: Iterable[PoolPlan], observation: Observation, state: ClusterState, policy: Policy
) -> tuple[PoolPlan, ...]:
    """The pools, with groups restored that carry our bounds and are in no pool any more.

    Left as they are, they would keep the bounds of that moment, a max of 0 for ever if they were fenced.
    """
    plans = {pool.id: pool for pool in pools}
    planned = {plan.group.key for pool in plans.values() for plan in pool.groups}
    strays = [group for group in observation.groups if group.key not in planned and carries_ours(group)]
    for group in sorted(strays, key=lambda group: group.key):
        pool = _former_pool(group, observation, state, policy)
        pool = plans.get(pool.id, pool)
        if pool.opens:  # Evenkeel stops acting on it
            continue
        plan = GroupPlan(group=group, state=State.HEALTHY, requested=group.requested, bounds=group.bounds, reasons=())
        plans[pool.id] = replace(pool, groups=(*pool.groups, _restored(plan, pool.remembered)))
    return tuple(plans.values())


def _former_pool(group: NodeGroup, observation: Observation, state: ClusterState, policy: Policy) -> PoolPlan:
    """The pool that remembers the group's bounds from before us; else one of its own."""
    key = group.key
    own = PoolId(key.flavour, key.namespace, group.cluster, key.name)
    id = next((id for id, pool in state.pools.items() if str(key) in pool.adopted), own)
    pool, rule = state.pools.get(id, PoolState()), rule_of(id, policy)
    return PoolPlan(
        id=id,
        strategy=policy.strategy,
        min=None,
        max=None,
        valid=True,
        groups=(),
        remembered=pool,
        dry_run=group.dry_run if group.dry_run is not None or rule is None else rule.dry_run,
        unplaced=pool.move.still_unplaced(observation.groups) if pool.move else 0,
    )


def carries_ours(group: NodeGroup) -> bool:
    """Whether anything that we wrote is still on the group."""
    return group.has_ours_with_bounds or group.move is not None or group.short_provision is not None


def _restored(planned: GroupPlan, pool: PoolState) -> GroupPlan:
    group = planned.group
    as_it_is = replace(
        planned,
        requested=group.requested,
        bounds=group.bounds,
        pins=group.pinned,
        short_provision=group.short_provision,
        rolling=None,
        journal_delta=0,
    )
    if (obstacle := _obstacle(group, pool)) is not None:
        return replace(as_it_is, reasons=(obstacle,))
    as_it_is = replace(as_it_is, short_provision=None, pins=False, leaves=True)
    if group.bounds_held and not group.has_ours_with_bounds:
        return replace(as_it_is, reasons=(Reason.of(Rule.RESTORED_WITHOUT_BOUNDS),))
    adopted = adopted_bounds(group, pool)
    if adopted is None:
        return replace(as_it_is, bounds=None, reasons=(Reason.of(Rule.RESTORED_TO_NONE),))
    bounds, cuts = safe_bounds(adopted.min, adopted.max, group, group.requested)
    restored = Reason.of(Rule.RESTORED, min=adopted.min, max=adopted.max)
    return replace(as_it_is, bounds=bounds, reasons=(restored, *cuts))


def _obstacle(group: NodeGroup, pool: PoolState) -> Reason | None:
    """Why a group is left as it is."""
    if not carries_ours(group):
        return Reason.of(Rule.NOTHING_OF_OURS)
    if group.frozen_because is not None:
        return Reason.of(Rule.NOT_RESTORED_YET, why=group.frozen_because)
    edited = any(fault.field.endswith("adopted-bounds") for fault in group.faults)
    return Reason.of(Rule.NOT_RESTORED) if edited and str(group.key) not in pool.adopted else None
