"""Leaving: every group gets back the bounds it had before us, and loses our annotations. Replicas stay as they are.

Planned like everything else, so that it goes through the same safety pass, order of writes, lease and record. A second
run finds nothing of ours and plans nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.bounds.safety import safe_bounds
from evenkeel.domain.membership.pausing import is_called
from evenkeel.domain.model.groups import NodeGroup, Observation, PoolId, State
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import adopted_bounds
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.plan import plan


def plan_restore(observation: Observation, state: ClusterState, policy: Policy, now: datetime) -> Plan:
    """What to write to leave a cluster. Pools, states and names are those of :func:`plan`.

    A move that was interrupted is ended first, by the usual plan: the marks that say how far it came go with us. Groups
    that have left their pool since we wrote them are restored too.
    """
    # Paused or not: whoever asks to leave asks for writes.
    usual = plan(observation, replace(state, scale_requests=()), replace(policy, paused={}), now)
    pools: dict[PoolId, PoolPlan] = {}
    for pool in usual.pools:
        known = pool.remembered
        owed = known.move.owed(observation.groups) if known.move else 0
        begun = pool.scale_request is not None
        if (pool.moves if begun else pool.owed < owed) and pool.valid:
            pools[pool.id] = pool
            continue
        groups = tuple(_leave(planned, known) for planned in pool.groups)
        pools[pool.id] = replace(pool, groups=groups, starved=0, owed=0 if begun else owed)
    return _with_left_groups(replace(usual, pools=tuple(pools.values()), states={}), observation, state, policy)


def _with_left_groups(planned: Plan, observation: Observation, state: ClusterState, policy: Policy) -> Plan:
    """The plan, with groups restored that carry our bounds and are in no pool any more.

    Left as they are, they would keep the bounds of that moment, a max of 0 for ever if they were fenced.
    """
    pools = {pool.id: pool for pool in planned.pools}
    planned_for = {plan.group.key for pool in planned.pools for plan in pool.groups}
    for group in observation.groups:
        if group.key in planned_for or not carries_ours(group):
            continue
        pool = _pool_once_of(group, observation, state, policy)
        left = GroupPlan(group=group, state=State.HEALTHY, requested=group.requested, bounds=group.bounds, reasons=())
        pool = pools.get(pool.id, pool)
        pools[pool.id] = replace(pool, groups=(*pool.groups, _leave(left, pool.remembered)))
    return replace(planned, pools=tuple(pools.values()))


def plan_leaving(
    observation: Observation, state: ClusterState, policy: Policy, now: datetime, pools: Collection[str]
) -> Plan:
    """The usual plan, in which the named pools are left (by a pool's name or its whole id), and groups that have left
    their pool are restored.
    """
    usual = plan(observation, state, policy, now)
    if not pools:
        return _with_left_groups(usual, observation, state, policy)
    left = {pool.id: pool for pool in plan_restore(observation, state, policy, now).pools if is_called(pool.id, pools)}
    kept = tuple(left.pop(pool.id, pool) for pool in usual.pools)
    return _with_left_groups(replace(usual, pools=kept + tuple(left.values())), observation, state, policy)


def _pool_once_of(group: NodeGroup, observation: Observation, state: ClusterState, policy: Policy) -> PoolPlan:
    """The pool that remembers the group's bounds from before us; else one of its own."""
    key = group.key
    own = PoolId(key.flavour, key.namespace, group.cluster, key.name)
    id = next((id for id, known in state.pools.items() if str(key) in known.adopted), own)
    known = state.pools.get(id, PoolState())
    return PoolPlan(
        id=id,
        strategy=policy.strategy,
        min=None,
        max=None,
        valid=True,
        problems=(),
        starved=0,
        overcommitted=False,
        groups=(),
        remembered=known,
        owed=known.move.owed(observation.groups) if known.move else 0,
    )


def carries_ours(group: NodeGroup) -> bool:
    """Whether anything that we wrote is still on the group."""
    return group.has_adopted or group.offer is not None or group.move is not None


def _leave(planned: GroupPlan, known: PoolState) -> GroupPlan:
    group = planned.group
    still = replace(planned, requested=group.requested, bounds=group.bounds, rolling=None, journal_delta=0)
    if not carries_ours(group):
        return replace(still, reasons=("left alone: it carries nothing of ours",))
    if group.frozen_because is not None:
        return replace(still, reasons=(f"not restored yet: {group.frozen_because}",))
    if any(fault.field.endswith("adopted-bounds") for fault in group.faults) and str(group.key) not in known.adopted:
        return replace(still, reasons=("not restored: its adopted-bounds annotation has been edited beyond reading",))
    adopted = adopted_bounds(group, known)
    if adopted is None:
        return replace(still, bounds=None, leaves=True, reasons=("restored: it had no bounds before us",))
    bounds, cuts = safe_bounds(
        adopted.min, adopted.max, target=group.requested, owner_min_max=group.owner_min_max, zone_max=None
    )
    why = f"restored: its bounds before us were {adopted.min} to {adopted.max}"
    return replace(still, bounds=bounds, leaves=True, reasons=(why, *cuts))
