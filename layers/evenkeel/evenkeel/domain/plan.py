"""``plan()``: from what is observed, remembered and wished to what should be written, and why.

One pure function, called by the deployed worker, by dry run, by ``operator plan`` and by ``evenkeel plan``. It has a
reason for every group, written or left alone. Each pool goes through a list of named steps (:func:`steps_of`), which
fill in one draft for each of its groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from evenkeel.domain.bounds.distribute import share_rolling
from evenkeel.domain.bounds.level import hold_level
from evenkeel.domain.bounds.pinning import exact_fences, without_foreign
from evenkeel.domain.bounds.safety import publish, size, stays_closed
from evenkeel.domain.bounds.suspect import shorten_provision_time
from evenkeel.domain.demand.advice import Advised, advise, offer_of, untouched
from evenkeel.domain.demand.clocks import remembered_idle, with_clocks
from evenkeel.domain.demand.kept import kept_nodes
from evenkeel.domain.demand.moving import choose
from evenkeel.domain.demand.orders import nodes_for_released, orders_for_pods, removals_for_nobody
from evenkeel.domain.health.never_ready import with_never_ready
from evenkeel.domain.health.observed import observe_appliers, observe_health
from evenkeel.domain.health.offerings import experiences, heed, words_about
from evenkeel.domain.health.slow_start import count_arrivals
from evenkeel.domain.health.states import assess
from evenkeel.domain.membership.leave import with_leave
from evenkeel.domain.membership.pausing import freeze_paused, is_to_be_opened
from evenkeel.domain.membership.pools import find_pools
from evenkeel.domain.membership.sighting import FEW_LAST, absent_members, few_members, found_in, sight
from evenkeel.domain.model.choices import DemandStage, Strategy
from evenkeel.domain.model.demand import PoolAdvice, PoolOffer, Shrinking
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import GroupKey, NodeGroup, Observation, PoolId, State
from evenkeel.domain.model.homing import NO_CHOICES, Choices, Homing
from evenkeel.domain.model.moves import FOR_PODS, ScaleRequest
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan, Refusal, TakenOff
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, rule_of, unknown_in
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule, because
from evenkeel.domain.model.states import STEPS_APART, ClusterState, GroupState, PoolState
from evenkeel.domain.relief import relieve
from evenkeel.domain.replicas.converge import converge, mind_step
from evenkeel.domain.replicas.raising import (
    probe_the_unseen,
    raise_to_minimum,
    raise_to_own_minimum,
    wait_for_standstill,
)
from evenkeel.domain.replicas.redistribution import redistribute, take_back_overshoot
from evenkeel.domain.replicas.release import order_released, recall_release, remember_rest, untaken
from evenkeel.domain.replicas.requests import (
    awaits_check,
    begin_request,
    carry_out_request,
    hold_for_pods,
    share_out,
    take_off,
)
from evenkeel.domain.restore import is_restored, restore_held, restore_pool, with_left_groups

# Cluster Autoscaler's loop is 10 s; a /scale patch of its that was under way has landed by then.
SECOND_LOOK = timedelta(seconds=15)

Step = Callable[[PoolDraft], None]
Offer = Callable[[], PoolOffer]  # made where somebody asks: most looks do not


def plan(observation: Observation, state: ClusterState, policy: Policy, now: datetime) -> Plan:
    """What to write, and why, for every pool of a cluster.

    Args:
        observation: One complete look at the cluster.
        state: Backoffs, impaired zones and what is remembered of the pools.
        policy: The cluster record's wishes.
        now: An aware datetime; the only clock there is. It is the API server's where that differs from ours.
    """
    observation = with_leave(observation, policy)
    known_pools, left_out = find_pools(observation.groups, policy, state.pools)
    # Paused or not: whoever asks to restore asks for writes.
    pools = [pool if is_restored(pool.id, policy) else _frozen(pool, policy, now) for pool in known_pools]
    if policy.demand.orders:  # beside an autoscaler, that one judges the nodes that it orders
        pools = with_never_ready(pools, observation.workload)
    news = _health_changes(pools, state, now)
    found = found_in(observation)
    absent = _absent_pools(pools, found, state, policy, now)
    restored = {group.key for pool in pools if is_restored(pool.id, policy) for group in pool.groups}
    remembered = replace(state, groups={**state.groups, **news}) if news else state
    awaited = [pool for pool in pools if isinstance(pool, Pool) and few_members(pool, found, now) is not None]
    known = {pool.id: _known_groups(pool.state) for pool in awaited}
    known |= {pool.id: _known_groups(pool.remembered) for pool in absent}
    requests, refusals, taken_off = _requests(
        pools, known, state, policy, now, pods_unread=bool(observation.workload_unread)
    )
    if policy.pins_fenced:
        pools = _with_exact_fences(pools, remembered, policy, now)
    planned, advised = _planned_all(_Look(observation, remembered, policy, now, found), pools, requests)
    clocks = with_clocks(remembered.groups, advised, observation, policy)
    whole = Plan(
        now=now,
        pools=with_left_groups([*(each.plan for each in planned), *absent], observation, state, policy),
        skipped=observation.skipped + tuple(left_out),
        # Whoever is about to let go of a group neither remembers its health nor waits for it.
        states={key: after for key, after in (news | clocks).items() if key not in restored},
        refusals=tuple(refusals),
        taken_off=tuple(taken_off),
        pool_states={
            pool.id: pool.remembered
            for pool in [*(each.plan for each in planned), *absent]
            if pool.remembered != state.pools.get(pool.id, PoolState())
        },
        look_at=min([*_moments(planned), *_second_checks(absent, refusals), *_turns(refusals, now)], default=None),
        experiences=experiences(
            [group for pool in pools for group in pool.groups if group.key not in restored], remembered.groups, now
        ),
        clock_skew=observation.clock_skew,
    )
    return whole if advised is None else _with_demand(whole, advised)


def _moments(planned: "Sequence[_Planned]") -> list[datetime]:
    return [moment for each in planned for moment in each.moments]


def _with_demand(plan: Plan, advised: Advised) -> Plan:
    """The plan, and beside it what pods and nodes say of it."""
    moments = [moment for moment in (plan.look_at, advised.look_at) if moment is not None]
    return replace(
        plan,
        pools=tuple(replace(pool, demand=_said_of(pool, advised)) for pool in plan.pools),
        demand=advised.cluster,
        look_at=min(moments, default=None),
    )


def _said_of(pool: PoolPlan, advised: Advised) -> PoolAdvice | None:
    """What is said of a pool, and what of it its plan carries out."""
    said, request = advised.pools.get(pool.id), pool.scale_request
    if said is None:
        return None
    going = {ref for group in pool.groups for ref in group.removes}
    homes = {removal.node: removal.machine for removal in advised.idle.go} if advised.idle is not None else {}
    return replace(
        said,
        is_ordered=request is not None and request.id == FOR_PODS and request.nodes > 0,
        nodes=tuple(
            replace(node, goes=homes[node.node] in going) if node.node in homes else node for node in said.nodes
        ),
    )


def _orders(
    advised: Advised, requests: Mapping[PoolId, ScaleRequest], policy: Policy, now: datetime
) -> dict[PoolId, ScaleRequest]:
    """What pods and nodes ask for; growth and removals not in one look, anywhere: the pods that wait may need what
    nobody needed before.
    """
    orders = orders_for_pods(advised, requests, now) if policy.demand.orders else {}
    return orders or (removals_for_nobody(advised, requests, now) if policy.demand.removes else {})


class _Planned(NamedTuple):
    """A pool's plan, the moments at which time alone may change it, and what it has to offer; None: it is restored."""

    plan: PoolPlan
    moments: list[datetime]
    offer: Offer | None


class _Look(NamedTuple):
    """What every pool of one look is planned from."""

    observation: Observation
    state: ClusterState
    policy: Policy
    now: datetime
    found: frozenset[str]  # as :func:`found_in` has it


def _planned(
    look: _Look,
    pool: AnyPool,
    request: ScaleRequest | None,
    advice: PoolAdvice | None = None,
    choices: Choices = NO_CHOICES,
    waited_for: Mapping[str, int] | None = None,
) -> _Planned:
    """A pool with the request that it carries out, and with what pods and nodes say of its plan without them."""
    plan, moments, offer = _plan_pool(look, pool, request, advice, choices, waited_for)
    if plan.opens:
        return _Planned(plan, moments, offer)
    restored = is_restored(pool.id, look.policy)
    plan = restore_pool(plan, look.observation) if restored else restore_held(plan)
    plan, changes_at = relieve(plan, look.observation, look.state.groups, look.policy, look.now)
    moments = [*([] if restored else moments), *([] if changes_at is None else [changes_at])]
    return _Planned(plan, moments, None if restored else offer)


def _planned_all(
    look: _Look, pools: Sequence[AnyPool], requests: Mapping[PoolId, ScaleRequest]
) -> tuple[list[_Planned], Advised | None]:
    """Every pool's plan, and what pods and nodes say of them: first without, then with what follows from that."""
    observation, state, policy, now, _ = look
    planned = [_planned(look, pool, requests.get(pool.id)) for pool in pools]
    advised = _advised(observation, planned, remembered_idle(state, now), policy, now)
    said = {} if advised is None else advised.pools
    if advised is not None:
        requests = {**requests, **_orders(advised, requests, policy, now)}
        planned = [
            _planned(look, pool, requests.get(pool.id), said[pool.id]) if pool.id in said else before
            for pool, before in zip(pools, planned, strict=True)
        ]
    waited_for = _waited_for(observation, planned, now)
    choices = _choices(observation, planned, now)
    if waited_for or choices is not None:
        may_go = choices or NO_CHOICES
        planned = [
            _planned(look, pool, requests.get(pool.id), said.get(pool.id), may_go, waited_for.get(pool.id))
            if before.plan.asks or pool.id in waited_for
            else before
            for pool, before in zip(pools, planned, strict=True)
        ]
    return planned, advised


def _advised(
    observation: Observation, planned: Sequence[_Planned], remembered: Shrinking, policy: Policy, now: datetime
) -> Advised | None:
    """What pods and nodes say of these plans; None: nobody has asked for them."""
    if policy.demand is DemandStage.OFF or (observation.workload is None and not observation.workload_unread):
        return None
    offers = [each.offer() for each in planned if each.offer is not None]
    remembered = remembered if policy.demand.removes else Shrinking()
    advised = advise(observation, offers, policy.demand, remembered, now, policy.pool_order)
    unknown = unknown_in(policy.pool_order, [each.plan.id for each in planned])
    return replace(advised, cluster=replace(advised.cluster, unknown_order=unknown)) if unknown else advised


def _waited_for(
    observation: Observation, planned: Sequence[_Planned], now: datetime
) -> Mapping[PoolId, Mapping[str, int]]:
    """Return the nodes that pods want of those that pools released; only of pools that ask."""
    if observation.workload is None or not any(each.plan.asks_waiting for each in planned):
        return {}
    offers = [(each.plan, each.offer()) for each in planned if each.offer is not None]
    return nodes_for_released(observation, offers, now)


def _choices(observation: Observation, planned: Sequence[_Planned], now: datetime) -> Choices | None:
    """Which machines may go, of the groups that somebody asks it of; None: nobody asks, or no pods can say."""
    asks = {group: coming for each in planned for group, coming in each.plan.asks.items()}
    is_read = observation.workload is not None and observation.workload.whole
    if not asks or not is_read:
        return None
    return choose(observation, [each.offer() for each in planned if each.offer is not None], asks, now)


def _frozen(pool: AnyPool, policy: Policy, now: datetime) -> AnyPool:
    """The pool with those of its groups frozen that an operator has paused, or whose owner somebody else has pinned."""
    if not is_to_be_opened(pool, policy, now):
        pool = freeze_paused(pool, policy.paused, now)
    if not any(group.pinned for group in pool.groups):
        return pool
    return replace(pool, groups=without_foreign(pool.groups, pool.state))


def _with_exact_fences(pools: list[AnyPool], state: ClusterState, policy: Policy, now: datetime) -> list[AnyPool]:
    """The pools with those groups marked whose owners are to hold replicas: a fence there needs no max of 1."""
    able = [group for pool in pools for group in pool.groups if group.pinning is not None]
    if not able:
        return pools
    fenced = [
        draft.group
        for pool in pools
        if isinstance(pool, Pool) and not is_restored(pool.id, policy)
        for draft in assess(pool, state, now)
        if draft.state is State.FENCED and draft.group.fencing_enabled
    ]
    exact = exact_fences(fenced, [group for group in able if group.pinned and group.frozen_because is None])

    def marked(group: NodeGroup) -> NodeGroup:
        return replace(group, may_be_pinned=True, owner_min_max=0, owner_min_min=0) if group.key in exact else group

    return [replace(pool, groups=tuple([marked(group) for group in pool.groups])) for pool in pools]


def steps_of(strategy: Strategy) -> tuple[Step, ...]:
    """The steps that a pool goes through, in order: what is requested, what is published, what is told and remembered.

    Where a strategy publishes minima, groups are raised to those before they are levelled: nodes levelled first would
    mostly stand elsewhere than the minima want them, and be paid twice.
    """
    sized = (
        (size, raise_to_own_minimum, raise_to_minimum, carry_out_request, converge)
        if strategy.publishes_minima
        else (raise_to_minimum, carry_out_request, converge, size)
    )
    return (
        mind_step,
        recall_release,
        redistribute,
        order_released,
        take_back_overshoot,
        probe_the_unseen,
        begin_request,
        wait_for_standstill,
        *sized,
        remember_rest,
        hold_level,
        publish,
        shorten_provision_time,
        share_rolling,
        note,
        report,
        remember,
    )


def _health_changes(pools: list[AnyPool], state: ClusterState, now: datetime) -> dict[GroupKey, GroupState]:
    """The states that this look has changed."""
    news: dict[GroupKey, GroupState] = {}
    for pool in pools:
        for group in pool.groups:
            before = state.groups.get(group.key)
            timeout = pool.timeout_of(group)
            after = observe_health(group, before, now, pool.backoff, timeout, _of_sets(group, state))
            after = observe_appliers(group, after)
            if after is not None:
                after = count_arrivals(pool, group, before, after, now)
            if state.offerings is not None:
                words = words_about(group, state.offerings, now, pool.backoff)
                after = heed(group, before, after, words, now, pool.backoff)
            if after is not None and after != before:
                news[group.key] = after
    return news


def _of_sets(group: NodeGroup, state: ClusterState) -> list[GroupState]:
    """What is remembered under the names of the MachineSets that the group owns."""
    if not state.groups:
        return []
    keys = [GroupKey(group.key.flavour, group.key.namespace, name) for name in group.sets]
    return [state.groups[key] for key in keys if key in state.groups]


def _absent_pools(
    pools: Sequence[AnyPool], found: frozenset[str], state: ClusterState, policy: Policy, now: datetime
) -> list[PoolPlan]:
    """Return known pools of which this check finds no member, until a second check agrees."""
    here = {id for pool in pools for id in (pool.id, pool.known_as)}
    absent = []
    for id, remembered in sorted(state.pools.items()):
        sighting = None if id in here else absent_members(remembered, found, now)
        if sighting is None:
            continue
        rule = rule_of(id, policy)
        plan = PoolPlan(
            id=id,
            strategy=policy.strategy,
            min=None,
            max=None,
            valid=True,
            groups=(),
            remembered=replace(remembered, seen=sighting),
            dry_run=None if rule is None else rule.dry_run,
            notes=(because(Rule.FEW_MEMBERS),),
            judged=False,
        )
        absent.append(plan)
    return absent


def _second_check(pool: PoolState) -> datetime:
    """Return when a check must agree that known groups of a pool are absent."""
    assert pool.seen is not None
    assert pool.seen.few_since is not None
    return pool.seen.few_since + FEW_LAST


def _second_checks(absent: Sequence[PoolPlan], refusals: Sequence[Refusal]) -> list[datetime]:
    """Return when a check must agree that known pools, or all node groups, are absent."""
    unfound = [each.scale_request.unfound_since for each in refusals if each.waits]
    of_requests = [since + FEW_LAST for since in unfound if since is not None]
    return [*(_second_check(pool.remembered) for pool in absent), *of_requests]


def _turns(refusals: Sequence[Refusal], now: datetime) -> list[datetime]:
    """Return when rests that wait for another request of their pool may have their turn."""
    behind = [each for each in refusals if each.problem.kind is ProblemKind.REQUEST_BEHIND_REQUEST]
    return [now + STEPS_APART] if any(each.scale_request.is_rest for each in behind) else []


def _known_groups(pool: PoolState) -> frozenset[str]:
    return frozenset(pool.seen.requested if pool.seen is not None else ())


def _awaits_second_check(request: ScaleRequest, now: datetime) -> bool:
    """Return whether a list without any node group may be empty by mistake, so that it refuses nothing yet."""
    since = request.unfound_since
    return not request.is_over(now) and (since is None or now < since + FEW_LAST)


def _requests(
    pools: list[AnyPool],
    awaited: Mapping[PoolId, frozenset[str]],
    state: ClusterState,
    policy: Policy,
    now: datetime,
    *,
    pods_unread: bool,
) -> tuple[dict[PoolId, ScaleRequest], list[Refusal], list[TakenOff]]:
    """The request that each pool carries out, and those that none does. A restored pool only ends what it has begun."""
    asked = {request.id for request in state.scale_requests}
    waiting: Sequence[ScaleRequest] = () if policy.restoring else state.scale_requests
    unfound = [] if pools else [request for request in waiting if _awaits_second_check(request, now)]
    waiting = tuple(request for request in waiting if request not in unfound)
    waiting, taken_off = take_off(waiting, pools, state.pools, now, awaited=awaited)
    waiting, held = hold_for_pods(waiting, state.pools, now) if pods_unread else (waiting, [])
    requests, refusals = share_out(waiting, pools, state.pools, now, awaited=awaited)
    refusals += held
    for request in unfound:
        dated = replace(request, unfound_since=request.unfound_since or now)
        refusals.append(Refusal(scale_request=dated, problem=awaits_check(dated)))
    for pool in pools:
        if is_restored(pool.id, policy):
            requests.pop(pool.id, None)
            if pool.scale_request is not None:
                requests[pool.id] = pool.scale_request
    for id, request in requests.items():
        if request.later and request.id not in asked:
            requests[id] = replace(request, later=0)  # answered, or deleted: its rest has no place to go back to
    return requests, refusals, taken_off


def _opening_steps() -> tuple[Step, ...]:
    """The steps of a pool that Evenkeel stops acting on: what it requests stays as it is."""
    return (recall_release, size, hold_level, publish, shorten_provision_time, note, report, remember)


def _plan_pool(
    look: _Look,
    pool: AnyPool,
    request: ScaleRequest | None,
    advice: PoolAdvice | None,
    choices: Choices,
    waited_for: Mapping[str, int] | None,
) -> tuple[PoolPlan, list[datetime], Offer]:
    """The pool's plan, the moments at which time alone may change it, and what it has to offer to pods that wait."""
    state, now = look.state, look.now
    if isinstance(pool, InvalidPool):
        return _left_alone(pool, Rule.POOL_INVALID, state, now), [], partial(untouched, pool, Rule.POOL_INVALID)
    if (few := few_members(pool, look.found, now)) is not None:
        waiting = replace(pool, state=replace(pool.state, seen=few))
        left_alone = _left_alone(waiting, Rule.FEW_MEMBERS, state, now)
        return left_alone, [_second_check(waiting.state)], partial(untouched, pool, Rule.FEW_MEMBERS)
    opens = is_to_be_opened(pool, look.policy, now) and not is_restored(pool.id, look.policy)
    sighting, others_changed, grower = sight(pool, now)
    draft = PoolDraft(
        pool=pool,
        now=now,
        groups=assess(pool, state, now),
        sighting=sighting,
        grower=grower,
        request=None if opens else request,
        advice=advice,
        choices=choices,
        waited_for=waited_for,
        kept=kept_nodes(look.observation, now) if request is not None and request.gives_number else None,
        pods_unread=bool(look.observation.workload_unread),
        opens=opens,
        unplaced=pool.unplaced if opens else 0,
        homing=pool.state.homing if opens else Homing(),
        look_at=[now + SECOND_LOOK] if others_changed else [],
    )
    draft.ceiling = pool.max - draft.spoken_for()
    for step in _opening_steps() if opens else steps_of(pool.strategy):
        step(draft)
    # Pods for which a pool in dry run were asked would wait for ever, though another pool could take them.
    offer = partial(untouched, pool, Rule.POOL_DRY_RUN) if pool.dry_run or opens else partial(offer_of, draft)
    return _pool_plan(draft), draft.look_at, offer


def _left_alone(pool: AnyPool, rule: Rule, state: ClusterState, now: datetime) -> PoolPlan:
    """Every group stays as it is: the pool is invalid, or too few of its groups are there to be judged."""
    drafts = assess(pool, state, now)
    for draft in drafts:
        draft.because(rule)
    return PoolPlan(
        id=pool.id,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=isinstance(pool, Pool),
        problems=(pool.problems if isinstance(pool, InvalidPool) else ()) + pool.warnings,
        groups=tuple([_group_plan(draft) for draft in drafts]),
        remembered=pool.state,
        dry_run=pool.dry_run,
        origins=pool.origins,
        known_as=pool.known_as,
        judged=False,
    )


def note(pool: PoolDraft) -> None:
    """What stands beside the numbers: who holds replicas, why one at zero is closed, its share of a rollout, quiet."""
    for draft in pool.groups:
        if draft.group.preserved:
            draft.because(Rule.PRESERVED, count=draft.group.preserved)
        owner = draft.group.owner
        if owner is not None and owner.needs_leave and owner.set_by and _max_changes(draft):
            draft.because(Rule.TAKEN_FROM, field=owner.max_field, owner=str(owner.ref), manager=owner.set_by)
        if draft.group.closed_because is not None and draft.requested == 0:
            draft.because(Rule.CLOSED_AT_ZERO, why=draft.group.closed_because)
        if draft.rolling is not None:
            surge, unavailable = draft.rolling.max_surge, draft.rolling.max_unavailable
            draft.because(Rule.ROLLING_SHARE, surge=surge, unavailable=unavailable)
        as_is = (draft.group.requested, draft.group.bounds, draft.group.pinned)
        if (draft.requested, draft.bounds, draft.pins) == as_is:
            draft.because(Rule.AS_IT_SHOULD_BE)


def _max_changes(draft: Draft) -> bool:
    before, after = draft.group.bounds, draft.bounds
    return before is not None and after is not None and before.max != after.max


def starved(pool: PoolDraft) -> int:
    """Nodes that find no healthy zone that can take them."""
    if all(draft.state is State.FROZEN for draft in pool.groups):
        return pool.unplaced  # paused or asleep: nobody waits for a zone to take its nodes
    return pool.missing + pool.unplaced + sum(draft.missing for draft in pool.groups)


def report(pool: PoolDraft) -> None:
    """What is wrong with what has come out, besides the warnings that the pool came with."""
    requested, maximum = pool.requested, pool.pool.max
    pool.problems += pool.pool.warnings
    if requested > pool.most:
        pool.problem(ProblemKind.OVER_COMMITTED, requested=requested, maximum=maximum)
    offered = sum(draft.bounds.max for draft in pool.groups if draft.bounds is not None)
    floors = any(draft.group.owner_min_max > draft.requested for draft in pool.groups)
    if pool.pool.strategy.reserves and floors and offered > maximum >= requested:
        pool.problem(ProblemKind.OVER_OFFERED, offered=offered, maximum=maximum)
    if nodes := starved(pool):
        pool.problem(ProblemKind.STARVED, nodes=nodes)
    if (waiting := pool.request_waits) is not None:
        pool.problem(ProblemKind.REQUEST_BEHIND_MOVE, request=waiting.id, nodes=waiting.nodes)
    if (request := pool.request) is not None and pool.unmet:
        if request.is_over(pool.now):
            pool.problem(ProblemKind.REQUEST_EXPIRED, request=request.id, nodes=request.nodes)
        else:
            pool.problem(ProblemKind.REQUEST_UNMET, request=request.id, nodes=request.nodes, unmet=pool.unmet)


def remember(pool: PoolDraft) -> None:
    """What is wanted now and since when, and when to look again."""
    planned = {draft.key: draft.requested for draft in pool.groups if draft.requested != draft.group.requested}
    since = pool.now if planned and planned != pool.sighting.planned else pool.sighting.since
    pool.sighting = replace(pool.sighting, planned=planned, since=since)
    if pool.stood_since is not None and not pool.raises and pool.requested < pool.pool.min:
        pool.look_at.append(pool.stood_since + pool.pool.standstill)
    pool.look_at += [draft.fence_ends + timedelta(seconds=1) for draft in pool.groups if draft.fence_ends is not None]
    if pool.later and pool.added_lately and pool.pool.state.added_at is not None:
        pool.look_at.append(pool.pool.state.added_at + STEPS_APART)  # after what this plan adds, a second look comes
    elif pool.request_later and not pool.added:
        pool.look_at.append(pool.now + STEPS_APART)  # only the journal is closed
    if pool.deal_ends is not None:
        pool.look_at.append(pool.deal_ends)
    if pool.held_until is not None and pool.now < pool.held_until:
        pool.look_at.append(pool.held_until)


def _notes(draft: PoolDraft) -> tuple[Reason, ...]:
    """What people should know of a pool before they look at its numbers."""
    pool = draft.pool
    own = () if pool.dry_run is None else (because(Rule.POOL_DRY_RUN if pool.dry_run else Rule.POOL_LIVE),)
    if draft.later and pool.max_step is not None:
        own = (*own, because(Rule.MAX_STEP, later=draft.later, max_step=pool.max_step))
    if not pool.autoscaler or any(group.bounds_are_read for group in pool.groups):
        return own
    owners = {group.owner.ref.id for group in pool.groups if group.owner is not None}
    # Zones that share one owner's numbers have a share of them each; with one owner for each, each has all of its own.
    return (*own, because(Rule.BOUNDS_UNREAD, shared=int(len(owners) < pool.zones)))


def _group_plan(draft: Draft) -> GroupPlan:
    return GroupPlan(
        group=draft.group,
        state=draft.state,
        requested=draft.requested,
        bounds=draft.bounds,
        pins=draft.pins,
        reasons=tuple(draft.reasons),
        rolling=draft.rolling,
        journal_delta=draft.journal_delta,
        may_remove_running=draft.may_remove_running,
        keeps=draft.keeps,
        removes=draft.removes,
        failed_at=draft.failed_at,
        provision_timeout=draft.provision_timeout,
        short_provision=draft.short_provision,
    )


def _pool_plan(draft: PoolDraft) -> PoolPlan:
    pool, (lacking, taker_due) = draft.pool, untaken(draft)
    return PoolPlan(
        id=pool.id,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=True,
        problems=tuple(draft.problems),
        starved=starved(draft),
        overcommitted=draft.requested > draft.most,
        groups=tuple([_group_plan(group) for group in draft.groups]),
        remembered=replace(
            pool.state,
            seen=draft.sighting,
            published=draft.publication,
            held_until=draft.held_until,
            homing=draft.homing,
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


def _closes(draft: PoolDraft) -> bool:
    """Return whether bounds keep an autoscaler from ordering once the plan is written."""
    was_closed = draft.pool.state.closed_at is not None
    return any(group.closes or (was_closed and stays_closed(group)) for group in draft.groups)


def _orders_after(draft: PoolDraft) -> Mapping[str, PastOrder] | None:
    request = draft.request
    is_order = request is not None and request.id == FOR_PODS and request.nodes > 0
    return draft.advice.asked.orders_after if is_order and draft.advice is not None else None
