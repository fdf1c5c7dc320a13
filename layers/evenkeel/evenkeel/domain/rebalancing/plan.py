"""The pipeline of a plan: find pools, evaluate their health, assign requests, plan each pool in steps.

Capabilities plug in at the points of ``capability.Capability``. The pipeline knows none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.drafts import (
    BoundsDraft,
    ConvergenceDraft,
    DemandDraft,
    PoolDraft,
    ReleaseDraft,
    ReplicasDraft,
    RequestDraft,
)
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import PARTIAL_LIST_GRACE, ClusterState, GroupState, PoolState
from evenkeel.domain.rebalancing.bounds.owners import exact_fences, with_write_consent, without_foreign
from evenkeel.domain.rebalancing.capability import (
    Capability,
    Extension,
    Inputs,
    Planned,
    PlannedPool,
    PoolInput,
    Step,
)
from evenkeel.domain.rebalancing.health.arrivals import count_arrivals, with_never_ready
from evenkeel.domain.rebalancing.health.observed import observe_appliers, observe_health
from evenkeel.domain.rebalancing.health.states import assess
from evenkeel.domain.rebalancing.membership.members import (
    compare_members,
    few_members,
    names_in,
)
from evenkeel.domain.rebalancing.membership.pausing import freeze_paused, is_to_be_opened
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.domain.rebalancing.pool_plan import absent_pools, left_alone, to_plan
from evenkeel.domain.rebalancing.replicas.request_queue import assign_requests, retry_times
from evenkeel.domain.rebalancing.restore import is_restored, restore_held, restore_pool, with_left_groups
from evenkeel.domain.rebalancing.steps import opening_steps, steps_of

# Cluster Autoscaler's loop is 10 s: its /scale patch that was under way has arrived by then.
SECOND_CHECK = timedelta(seconds=15)


def run_pipeline(check: Check, capabilities: Sequence[Capability]) -> Plan:
    """Return the plan of a check with these capabilities. ``check.names`` is filled in here."""
    observation = with_write_consent(check.observation, check.policy)
    check = check._replace(observation=observation, names=names_in(observation))
    stored, policy, now = check.state, check.policy, check.now
    pools, left_out = find_pools(observation.groups, policy, stored.pools)
    restored = {pool.id for pool in pools if is_restored(pool.id, policy)}
    # A pause does not keep a pool from being restored: the operator has requested those writes.
    pools = [pool if pool.id in restored else _frozen(pool, check) for pool in pools]
    if policy.demand.orders:  # an autoscaler judges the nodes that it orders
        pools = with_never_ready(pools, observation.workload)
    changed = _changed_states(pools, check, capabilities)
    if changed:
        check = check._replace(state=replace(stored, groups={**stored.groups, **changed}))
    absent = absent_pools(pools, check)
    requests, refusals, taken_off = assign_requests(pools, _absent_groups(pools, absent, check), restored, check)
    if policy.pins_fenced:
        pools = _with_exact_fences(pools, restored, check)
    planned, extensions = _Pipeline(check, capabilities).plan_all(pools, requests)
    pool_plans = [*(pool.plan for pool in planned.values()), *absent]
    moments = [moment for pool in planned.values() for moment in pool.check_at]
    moments += [_second_check(plan.remembered) for plan in absent] + retry_times(refusals, now)
    plan = Plan(
        now=now,
        pools=with_left_groups(pool_plans, observation, stored, policy),
        skipped=observation.skipped + tuple(left_out),
        states=changed,
        refusals=tuple(refusals),
        taken_off=tuple(taken_off),
        pool_states={
            plan.id: plan.remembered for plan in pool_plans if plan.remembered != stored.pools.get(plan.id, PoolState())
        },
        check_at=min(moments, default=None),
        clock_skew=observation.clock_skew,
    )
    for extend in extensions:
        plan = extend(plan)
    # The health of a group that is about to be released is not stored.
    leaving = {group.key for pool in pools if pool.id in restored for group in pool.groups}
    return replace(plan, states={key: state for key, state in plan.states.items() if key not in leaving})


# ---------------------------------------------------------------- before the pools are planned


def _frozen(pool: AnyPool, check: Check) -> AnyPool:
    """Return the pool, with groups frozen that an operator has paused or whose owner another writer has pinned."""
    if not is_to_be_opened(pool, check.policy, check.now):
        pool = freeze_paused(pool, check.policy.paused, check.now)
    if not any(group.ours.pinned for group in pool.groups):
        return pool
    return replace(pool, groups=without_foreign(pool.groups, pool.state))


def _changed_states(
    pools: Iterable[AnyPool], check: Check, capabilities: Iterable[Capability]
) -> dict[GroupKey, GroupState]:
    observers = [capability.group_state for capability in capabilities if capability.group_state is not None]
    state, now = check.state, check.now
    changed: dict[GroupKey, GroupState] = {}
    for pool in pools:
        for group in pool.groups:
            before = state.groups.get(group.key)
            timeout = pool.timeout_of(group)
            after = observe_health(group, before, now, pool.settings.backoff, timeout, _states_of_sets(group, state))
            after = observe_appliers(group, after)
            if after is not None:
                after = count_arrivals(pool, group, before, after, now)
            for observe in observers:
                after = observe(check, pool, group, before, after)
            if after is not None and after != before:
                changed[group.key] = after
    return changed


def _states_of_sets(group: NodeGroup, state: ClusterState) -> list[GroupState]:
    if not state.groups:
        return []
    keys = [GroupKey(group.key.flavour, group.key.namespace, name) for name in group.identity.sets]
    return [state.groups[key] for key in keys if key in state.groups]


def _absent_groups(pools: Iterable[AnyPool], absent: Iterable[PoolPlan], check: Check) -> dict[PoolId, frozenset[str]]:
    """Return the known groups of each pool of which too few, or none, were found."""
    few = [pool for pool in pools if isinstance(pool, Pool) and few_members(pool, check.names, check.now) is not None]
    states = {pool.id: pool.state for pool in few} | {plan.id: plan.remembered for plan in absent}
    return {id: frozenset(state.seen.requested if state.seen is not None else ()) for id, state in states.items()}


def _second_check(state: PoolState) -> datetime:
    """Return when a check must agree that known groups of a pool are absent."""
    assert state.seen is not None
    assert state.seen.few_since is not None
    return state.seen.few_since + PARTIAL_LIST_GRACE


def _with_exact_fences(pools: list[AnyPool], restored: set[PoolId], check: Check) -> list[AnyPool]:
    """Return the pools with those groups marked whose owners hold replicas: such a fence needs no max of 1."""
    able = [group for pool in pools for group in pool.groups if group.owner.pinning is not None]
    if not able:
        return pools
    fenced = [
        draft.group
        for pool in pools
        if isinstance(pool, Pool) and pool.id not in restored
        for draft in assess(pool, check.state, check.now)
        if draft.state is State.FENCED and draft.group.annotations.fencing_enabled
    ]
    exact = exact_fences(fenced, [group for group in able if group.ours.pinned and group.frozen_because is None])

    def marked(group: NodeGroup) -> NodeGroup:
        return (
            replace(group, owner=replace(group.owner, may_be_pinned=True, least_max=0, least_min=0))
            if group.key in exact
            else group
        )

    return [replace(pool, groups=tuple([marked(group) for group in pool.groups])) for pool in pools]


# ---------------------------------------------------------------- the pools


class _Pipeline:
    """The steps of one check, and the capabilities that take part in them."""

    def __init__(self, check: Check, capabilities: Sequence[Capability]) -> None:
        self._check = check
        self._capabilities = capabilities
        self._pool_plans = [capability.pool_plan for capability in capabilities if capability.pool_plan is not None]
        self._opening = opening_steps(capabilities)
        self._steps: dict[Strategy, tuple[Step, ...]] = {}

    def plan_all(
        self, pools: Iterable[AnyPool], requests: Mapping[PoolId, ScaleRequest]
    ) -> tuple[Planned, list[Extension]]:
        """Return every pool's plan, and the capabilities' extensions of the whole plan.

        Each pool is planned once without advice. Pools with advice, or with an answer to a question of their plan, are
        planned again.
        """
        inputs: dict[PoolId, PoolInput] = {pool.id: PoolInput(request=requests.get(pool.id)) for pool in pools}
        planned = {pool.id: self._plan(pool, inputs[pool.id]) for pool in pools}

        def plan_again(again: Inputs) -> None:
            inputs.update(again)
            planned.update({id: self._plan(planned[id].pool, inputs[id]) for id in again})

        extensions = []
        again: dict[PoolId, PoolInput] = {}
        for capability in self._capabilities:
            if capability.advise is not None:
                advised, extension = capability.advise(self._check, planned, {**inputs, **again})
                again.update(advised)
                extensions.append(extension)
        plan_again(again)
        again = {}
        for capability in self._capabilities:
            if capability.answer is not None:
                again.update(capability.answer(self._check, planned, {**inputs, **again}))
        plan_again(again)
        return planned, extensions

    def _plan(self, pool: AnyPool, given: PoolInput) -> PlannedPool:
        check = self._check
        planned = self._plan_steps(pool, given)
        plan, check_at = planned.plan, planned.check_at
        if plan.mode.opens:
            return planned
        if is_restored(pool.id, check.policy):
            plan, check_at = restore_pool(plan, check.observation), []
        else:
            plan = restore_held(plan)
        for extend in self._pool_plans:
            plan, changes_at = extend(check, plan)
            check_at = check_at if changes_at is None else [*check_at, changes_at]
        return planned._replace(plan=plan, check_at=check_at)

    def _plan_steps(self, pool: AnyPool, given: PoolInput) -> PlannedPool:
        check, now = self._check, self._check.now
        if isinstance(pool, InvalidPool):
            return PlannedPool(pool, None, left_alone(pool, Rule.POOL_INVALID, check), [])
        if (few := few_members(pool, check.names, now)) is not None:
            waiting = replace(pool, state=replace(pool.state, seen=few))
            plan = left_alone(waiting, Rule.FEW_MEMBERS, check)
            return PlannedPool(pool, None, plan, [_second_check(waiting.state)])
        opens = is_to_be_opened(pool, check.policy, now) and not is_restored(pool.id, check.policy)
        snapshot, others_changed, grower = compare_members(pool, now)
        draft = PoolDraft(
            pool=pool,
            now=now,
            observation=check.observation,
            groups=assess(pool, check.state, now),
            snapshot=snapshot,
            opens=opens,
            check_at=[now + SECOND_CHECK] if others_changed else [],
            bounds=BoundsDraft(grower=grower),
            request=RequestDraft(current=None if opens else given.request),
            demand=DemandDraft(advice=given.advice),
            convergence=ConvergenceDraft(choices=given.choices, state=pool.state.convergence),
            release=ReleaseDraft(waited_for=given.waited_for),
            replicas=ReplicasDraft(unplaced=pool.unplaced if opens else 0),
        )
        draft.bounds.pool_max = pool.max - draft.spoken_for()
        for step in self._opening if opens else self._steps_of(pool.settings.strategy):
            step(draft)
        return PlannedPool(pool, draft, to_plan(draft), draft.check_at)

    def _steps_of(self, strategy: Strategy) -> tuple[Step, ...]:
        if strategy not in self._steps:
            self._steps[strategy] = steps_of(strategy, self._capabilities)
        return self._steps[strategy]
