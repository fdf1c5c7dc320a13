"""From a pool's draft to its plan; and the plans of pools that are left alone whole."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.moves import FOR_PODS
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.plans import PoolPlan
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
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        problems=tuple(draft.problems),
        starved=draft.starved,
        overcommitted=draft.requested > draft.surged_max,
        groups=tuple(draft.groups),
        remembered=replace(
            pool.state,
            seen=draft.snapshot,
            published=draft.publication,
            held_until=draft.held_until,
            convergence=draft.convergence,
            release=draft.release,
            orders=pool.state.orders if draft.advice is None else draft.advice.asked.orders,
        ),
        dry_run=pool.dry_run,
        origins=pool.origins,
        notes=_notes(draft),
        known_as=pool.known_as,
        autoscaler=pool.autoscaler,
        unplaced_before=pool.unplaced,
        unplaced=draft.unplaced,
        contested=tuple([group.key for group in draft.groups if group.contested]),
        scale_request=draft.request,
        missing=draft.unmet,
        closes=_closes(draft),
        opens=draft.opens,
        added=draft.added_lately + draft.added if draft.added and pool.max_step is not None else 0,
        request_later=draft.request_later,
        unmet_minimum=draft.missing,
        step=draft.step,
        converging=draft.converging,
        asks=draft.asks,
        asks_idle=draft.asks_idle,
        asks_waiting=draft.asks_waiting,
        releases=draft.releases,
        untaken=lacking,
        taker_due=taker_due,
        orders_after=_orders_after(draft),
    )


def _notes(draft: PoolDraft) -> tuple[Reason, ...]:
    pool = draft.pool
    notes = [] if pool.dry_run is None else [Reason.of(Rule.POOL_DRY_RUN if pool.dry_run else Rule.POOL_LIVE)]
    if draft.later and pool.max_step is not None:
        notes.append(Reason.of(Rule.MAX_STEP, later=draft.later, max_step=pool.max_step))
    if pool.autoscaler and not any(group.owner.bounds_are_read for group in pool.groups):
        owners = {group.owner.numbers.ref.id for group in pool.groups if group.owner.numbers is not None}
        # Zones with one owner share its numbers; a zone that is alone with its owner has them all.
        notes.append(Reason.of(Rule.BOUNDS_UNREAD, shared=int(len(owners) < pool.zones)))
    return tuple(notes)


def _closes(draft: PoolDraft) -> bool:
    """Return True if bounds keep an autoscaler from ordering once the plan is written."""
    was_closed = draft.pool.state.closed_at is not None
    return any(group.closes or (was_closed and stays_closed(group)) for group in draft.groups)


def _orders_after(draft: PoolDraft) -> Mapping[str, PastOrder] | None:
    request = draft.request
    is_order = request is not None and request.id == FOR_PODS and request.nodes > 0
    return draft.advice.asked.orders_after if is_order and draft.advice is not None else None


def left_alone(pool: AnyPool, rule: Rule, check: Check) -> PoolPlan:
    """Return the plan that leaves every group as it is: the pool is invalid, or too few of its members were found."""
    drafts = assess(pool, check.state, check.now)
    for draft in drafts:
        draft.add_reason(rule)
    return PoolPlan(
        id=pool.id,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=isinstance(pool, Pool),
        problems=(pool.problems if isinstance(pool, InvalidPool) else ()) + pool.warnings,
        groups=tuple(drafts),
        remembered=pool.state,
        dry_run=pool.dry_run,
        origins=pool.origins,
        known_as=pool.known_as,
        judged=False,
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
            strategy=check.policy.strategy,
            remembered=replace(state, seen=snapshot),
            dry_run=None if rule is None else rule.dry_run,
            notes=(Reason.of(Rule.FEW_MEMBERS),),
            judged=False,
        )
        plans.append(plan)
    return plans
