"""The steps of a pool's plan. Each step changes the pool's draft, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import UNNAMED, UNNAMED_BY_AWS, State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import STEPS_APART
from evenkeel.domain.rebalancing.bounds.distribute import share_rolling
from evenkeel.domain.rebalancing.bounds.safety import publish, size
from evenkeel.domain.rebalancing.capability import Capability, Point, Rank, Step
from evenkeel.domain.rebalancing.replicas.raising import (
    probe_the_unseen,
    raise_to_minimum,
    raise_to_strategy_minima,
    set_unchanged_since,
)
from evenkeel.domain.rebalancing.replicas.redistribution import redistribute, take_back_overshoot
from evenkeel.domain.rebalancing.replicas.release import order_released, recall_release, remember_rest
from evenkeel.domain.rebalancing.replicas.requested_nodes import recall_requested
from evenkeel.domain.rebalancing.replicas.requests import begin_request, carry_out_request
from evenkeel.domain.rebalancing.replicas.starvation import refused_everywhere

_AS_IT_SHOULD_BE = Reason.of(Rule.AS_IT_SHOULD_BE)


# The steps of those who ask for changes of replicas, apart from capabilities. ``set_unchanged_since`` comes once all
# that the plan takes away is known, and before the orders that wait for it.
_STEPS: Mapping[Rank, tuple[Step, ...]] = {
    Rank.STUCK: (redistribute,),
    Rank.RELEASED: (order_released,),
    Rank.OVERSHOOT: (take_back_overshoot, set_unchanged_since),
    Rank.UNSEEN: (probe_the_unseen,),
    Rank.POOL_MINIMUM: (raise_to_minimum,),
    Rank.REQUEST: (begin_request, carry_out_request),
}


def steps_of(strategy: Strategy, capabilities: Sequence[Capability]) -> tuple[Step, ...]:
    """Return the steps of a pool, in order: replicas, bounds, report, stored state.

    A strategy that publishes minima sizes the groups first, because nodes are ordered for these minima. Other
    strategies size the groups once all replicas are known.
    """
    minima_first = strategy.publishes_minima
    ranked = {**_STEPS, Rank.STRATEGY_MINIMA: (size, raise_to_strategy_minima) if minima_first else ()}
    return (
        *_steps_at(Point.START, capabilities),
        recall_release,
        recall_requested,
        *[step for rank in Rank for step in (*ranked.get(rank, ()), *_steps_at(rank, capabilities))],
        *(() if minima_first else (size,)),
        remember_rest,
        *_steps_at(Point.BOUNDS, capabilities),
        publish,
        share_rolling,
        note,
        report,
        remember,
    )


def opening_steps(capabilities: Sequence[Capability]) -> tuple[Step, ...]:
    """Return the steps that open a paused or dry-run pool. They only change bounds, so that autoscalers can order."""
    bounds = _steps_at(Point.BOUNDS, capabilities)
    return (recall_release, recall_requested, size, *bounds, publish, note, report, remember)


def _steps_at(point: Point | Rank, capabilities: Sequence[Capability]) -> list[Step]:
    return [capability.steps[point] for capability in capabilities if point in capability.steps]


def note(pool: PoolDraft) -> None:
    """Add the reasons that explain the numbers: machines that stay, owners, groups closed at zero, rollout shares."""
    for draft in pool.groups:
        group, owner = draft.group, draft.group.owner.numbers
        if count := draft.machines.preserved:
            draft.add_reason(Rule.NODES_OF_ANOTHER if group.status.nodeless else Rule.PRESERVED, count=count)
        if _is_lowered_by_others(draft):
            by = None if group.managers.replicas_by in (UNNAMED, UNNAMED_BY_AWS) else group.managers.replicas_by
            draft.add_reason(Rule.BELOW_RUNNING, surplus=group.running - group.requested, by=by)
        if owner is not None and owner.needs_consent and owner.set_by and _max_changes(draft):
            draft.add_reason(Rule.TAKEN_FROM, field=owner.max_field, owner=str(owner.ref), manager=owner.set_by)
        if group.template.closed_because is not None and draft.requested == 0:
            draft.add_reason(Rule.CLOSED_AT_ZERO, why=group.template.closed_because)
        if draft.rolling is not None:
            surge, unavailable = draft.rolling.max_surge, draft.rolling.max_unavailable
            draft.add_reason(Rule.ROLLING_SHARE, surge=surge, unavailable=unavailable)
        # A fenced group is not as it should be.
        if draft.state is State.HEALTHY and draft.requested == group.requested and not draft.publishes:
            draft.reasons.append(_AS_IT_SHOULD_BE)


def _is_lowered_by_others(draft: Draft) -> bool:
    """Return True if fewer replicas are requested than run, not because of an autoscaler, a rollout or Evenkeel."""
    group, wrote = draft.group, draft.group.ours.published
    if group.requested >= group.running:
        return False
    is_usual = group.managers.replicas_by == "cluster-autoscaler" or not draft.writable
    is_ours = wrote is not None and wrote.requested == group.requested
    return not is_ours and not is_usual


def _max_changes(draft: Draft) -> bool:
    before, after = draft.group.bounds, draft.bounds
    return before is not None and after is not None and before.max != after.max


def report(pool: PoolDraft) -> None:
    """Add the warnings of the pool itself, and then the problems that remain after the plan."""
    requested, pool_max = pool.target, pool.pool.max
    pool.problems += pool.pool.warnings
    pool.starved, pool.overcommitted = _starved(pool), requested > pool.surged_max
    if pool.overcommitted:
        pool.problem(ProblemKind.OVER_COMMITTED, requested=requested, maximum=pool_max)
    reserves = pool.pool.settings.strategy.reserves
    if reserves and any([draft.group.owner.least_max > draft.requested for draft in pool.groups]):
        offered = sum(
            draft.bounds.max if draft.may_grow else draft.target for draft in pool.groups if draft.bounds is not None
        )
        if offered > pool_max >= requested:
            pool.problem(ProblemKind.OVER_OFFERED, offered=offered, maximum=pool_max)
    if pool.starved:
        why = refused_everywhere(pool, pool.starved)
        pool.problem(ProblemKind.STARVED, nodes=pool.starved, **({} if why is None else {"why": why}))
    if (waiting := pool.request.waits) is not None:
        pool.problem(ProblemKind.REQUEST_BEHIND_MOVE, request=waiting.id, nodes=waiting.nodes)
    if (request := pool.request.current) is not None and pool.request.unmet:
        if request.is_over(pool.now):
            pool.problem(ProblemKind.REQUEST_EXPIRED, request=request.id, nodes=request.nodes)
        else:
            pool.problem(ProblemKind.REQUEST_UNMET, request=request.id, nodes=request.nodes, unmet=pool.request.unmet)


def _starved(pool: PoolDraft) -> int:
    missing = pool.replicas.missing + sum([draft.missing for draft in pool.groups])
    if missing and not any([draft.writable for draft in pool.groups]):
        missing = 0  # A paused or hibernated pool has no missing nodes.
    return pool.replicas.unplaced + missing


def remember(pool: PoolDraft) -> None:
    """Store the planned replicas, and add the times at which the plan may change even if the cluster does not."""
    planned = {draft.key: draft.requested for draft in pool.groups if draft.requested != draft.group.requested}
    if planned != pool.snapshot.planned:
        pool.snapshot = replace(pool.snapshot, planned=planned, since=pool.now if planned else pool.snapshot.since)
    unchanged_since = pool.replicas.unchanged_since
    if unchanged_since is not None and pool.target < pool.pool.min and not pool.may_raise:
        pool.check_at.append(unchanged_since + pool.pool.standstill)
    pool.check_at += [
        end + timedelta(seconds=1) for draft in pool.groups if (end := draft.health.fence_ends) is not None
    ]
    if pool.replicas.later and pool.added_lately and pool.pool.state.added_at is not None:
        # Nodes that this plan itself adds need no check time here, because a follow-up check is made after its writes.
        pool.check_at.append(pool.pool.state.added_at + STEPS_APART)
    elif pool.request.later and not pool.replicas.added:
        pool.check_at.append(pool.now + STEPS_APART)  # this plan adds no node; it only closes the journal
    if pool.bounds.deal_ends is not None:
        pool.check_at.append(pool.bounds.deal_ends)
    if (until := held_until(pool.bounds.held_until, pool.now)) is not None:
        pool.check_at.append(until)
