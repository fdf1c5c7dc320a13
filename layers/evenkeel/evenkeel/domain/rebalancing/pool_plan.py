"""From a pool's draft to its plan; and the plans of pools that are left alone whole."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.moves import FOR_PODS
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.plans import (
    ConvergencePlan,
    DemandPlan,
    PoolMode,
    PoolPlan,
    PoolReport,
    ReleasePlan,
    ReplicasPlan,
    RequestPlan,
)
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, rule_of
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.bounds.safety import stays_closed
from evenkeel.domain.rebalancing.health.states import assess
from evenkeel.domain.rebalancing.membership.members import absent_members
from evenkeel.domain.rebalancing.replicas.release import untaken


def to_plan(draft: PoolDraft) -> PoolPlan:
    """Return the plan that a draft comes to after its last step."""
    pool, (lacking, taker_due) = draft.pool, untaken(draft)
    return PoolPlan(
        id=pool.id,
        strategy=pool.settings.strategy,
        min=pool.min,
        max=pool.max,
        groups=tuple(draft.groups),
        remembered=replace(
            pool.state,
            seen=draft.snapshot,
            published=draft.bounds.publication,
            held_until=draft.bounds.held_until,
            convergence=draft.convergence.state,
            release=draft.release.stored,
            orders=pool.state.orders if draft.demand.advice is None else draft.demand.advice.asked.orders,
        ),
        known_as=pool.known_as,
        report=PoolReport(
            problems=tuple(draft.problems),
            starved=draft.starved,
            overcommitted=draft.requested > draft.surged_max,
            origins=pool.origins,
            notes=_notes(draft),
            contested=tuple([group.key for group in draft.groups if group.contested]),
            unmet_minimum=draft.replicas.missing,
        ),
        mode=PoolMode(
            dry_run=pool.dry_run, autoscaler=pool.settings.autoscaler, closes=_closes(draft), opens=draft.opens
        ),
        replicas=ReplicasPlan(
            unplaced_before=pool.unplaced,
            unplaced=draft.replicas.unplaced,
            added=draft.added_lately + draft.replicas.added
            if draft.replicas.added and pool.settings.max_step is not None
            else 0,
        ),
        request=RequestPlan(current=draft.request.current, missing=draft.request.unmet, later=draft.request.later),
        convergence=ConvergencePlan(
            step=draft.convergence.step, report=draft.convergence.report, asks=draft.convergence.asks
        ),
        demand=DemandPlan(asks_idle=draft.demand.asks_idle, orders=_orders_after(draft)),
        release=ReleasePlan(
            asks_waiting=draft.release.asks_waiting,
            planned=draft.release.planned,
            untaken=lacking,
            taker_due=taker_due,
        ),
    )


def _notes(draft: PoolDraft) -> tuple[Reason, ...]:
    pool = draft.pool
    notes = [] if pool.dry_run is None else [Reason.of(Rule.POOL_DRY_RUN if pool.dry_run else Rule.POOL_LIVE)]
    if draft.replicas.later and pool.settings.max_step is not None:
        notes.append(Reason.of(Rule.MAX_STEP, later=draft.replicas.later, max_step=pool.settings.max_step))
    if pool.settings.autoscaler and not any(group.owner.bounds_are_read for group in pool.groups):
        owners = {group.owner.numbers.ref.id for group in pool.groups if group.owner.numbers is not None}
        # Zones with one owner share its numbers; a zone that is alone with its owner has them all.
        notes.append(Reason.of(Rule.BOUNDS_UNREAD, shared=int(len(owners) < pool.zones)))
    return tuple(notes)


def _closes(draft: PoolDraft) -> bool:
    """Return True if bounds keep an autoscaler from ordering once the plan is written."""
    was_closed = draft.pool.state.closed_at is not None
    return any(group.closes or (was_closed and stays_closed(group)) for group in draft.groups)


def _orders_after(draft: PoolDraft) -> Mapping[str, PastOrder] | None:
    request = draft.request.current
    is_order = request is not None and request.id == FOR_PODS and request.nodes > 0
    return draft.demand.advice.asked.orders_after if is_order and draft.demand.advice is not None else None


def left_alone(pool: AnyPool, rule: Rule, check: Check) -> PoolPlan:
    """Return the plan that leaves every group as it is: the pool is invalid, or too few of its members were found."""
    drafts = assess(pool, check.state, check.now)
    for draft in drafts:
        draft.add_reason(rule)
    return PoolPlan(
        id=pool.id,
        strategy=pool.settings.strategy,
        min=pool.min,
        max=pool.max,
        groups=tuple(drafts),
        remembered=pool.state,
        known_as=pool.known_as,
        mode=PoolMode(valid=isinstance(pool, Pool), dry_run=pool.dry_run, judged=False),
        report=PoolReport(
            problems=(pool.problems if isinstance(pool, InvalidPool) else ()) + pool.warnings, origins=pool.origins
        ),
    )


def absent_pools(pools: Iterable[AnyPool], check: Check) -> list[PoolPlan]:
    """Return plans for the stored pools without a member in this check, until a second check agrees."""
    present = {id for pool in pools for id in (pool.id, pool.known_as)}
    plans = []
    for id, state in sorted(check.state.pools.items()):
        snapshot = None if id in present else absent_members(state, check.names, check.now)
        if snapshot is None:
            continue
        rule = rule_of(id, check.policy)
        plan = PoolPlan(
            id=id,
            strategy=check.policy.settings.strategy,
            remembered=replace(state, seen=snapshot),
            mode=PoolMode(dry_run=None if rule is None else rule.dry_run, judged=False),
            report=PoolReport(notes=(Reason.of(Rule.FEW_MEMBERS),)),
        )
        plans.append(plan)
    return plans
