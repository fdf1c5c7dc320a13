"""Converge: order one node in the smallest zone; once it is Ready, delete one machine of the fullest zone by name.

The phases of a step are types of ``domain.model.convergence``, and each arrow is one function of this module:

    Starting ──► Ordered ──────────────────► Deleting ──► Draining ──► over
       │           │ ▲ not Ready, or doubt     │
       │           ▼ │                         └──► Ordered: the patch never arrived
       │        Cancelling ──► over, held for an hour
       └──► forgotten: the patch never arrived

Five principles decide all cases. The comment of a special case names the test that requires the case.

1. Launch before drain. A node is drained only after the new node is Ready, and a pool has at most one extra replica.
2. The replicas, move ids and machines of the groups show the progress of a step. The last plan is not used. So a run
   finds the correct phase even after a lost answer, a second run or a crash.
3. A pool has one step at a time. A step starts only while nothing else changes in the pool. While the new machine may
   be provisioning, no autoscaler may order in the two zones of the step.
4. Every step ends. If a zone is in doubt (``zone_doubt``) before the new node exists, the order is cancelled. If the
   source is in doubt afterwards, the step waits. If the source is still in doubt at the provision timeout, the step
   deletes the new node by name.
5. Demand decides. If the source of a step grows again, its demand is bound to its zone. After bound demand or a failed
   step, the pool is *held*, which means that no step starts for some time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import (
    AFTER_FAILURE,
    BUDGET,
    COMES_BACK,
    IDLE_REMOVED_WITHIN,
    PASS_LASTS,
    SETTLES,
    STEP_HELD,
    Cancelling,
    Choice,
    ConvergenceState,
    Converging,
    Deleting,
    Draining,
    LastDrain,
    Order,
    Ordered,
    Starting,
)
from evenkeel.domain.model.drafts import Draft, Fallback, PoolDraft
from evenkeel.domain.model.groups import MachineRef, State
from evenkeel.domain.model.reasons import ROLLOUTS, Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.rebalancing.replicas.deletion import remove

Drafts = Mapping[str, Draft]
Pairs = Sequence[tuple[Draft, Draft]]
_LONGEST_COURSE = 100  # a report lists at most this many steps
# The first check after a write starts after 15 s, or with the next scan at the latest.
_FIRST_CHECK = timedelta(minutes=1)


def update_step(pool: PoolDraft) -> None:
    """Advance the stored step to the phase that the groups show, and cancel its order if a zone is in doubt.

    This step of the plan runs first, so that no other step treats the cancelled replica as stuck and moves it.
    """
    stored = pool.pool.state.convergence
    if stored.step is None and stored.last_drain is None:
        return  # neither a step to advance nor a drain after which demand may come back
    drafts = _by_key(pool)
    convergence = _advanced(pool, stored, drafts)
    convergence = _with_bound_demand(convergence, {draft.key: draft for draft in pool.groups}, pool.now)
    step = convergence.step
    if isinstance(step, Ordered):
        order = _excused_if_alone(pool, step.order, drafts.get(step.order.source))
        after = _cancelled(pool, order, drafts)
        convergence = replace(convergence, step=Ordered(order=order) if after is None else after)
        pool.convergence.surge = pool.pool.settings.converge.surge
    elif isinstance(step, Draining) and (destination := drafts.get(step.order.destination)) is not None:
        destination.protected = not step.is_undone
    pool.convergence.state = convergence


def _by_key(pool: PoolDraft) -> dict[str, Draft]:
    """Return the groups of the pool and of its fallbacks, by key."""
    others = [draft for fallback in pool.convergence.fallbacks for draft in fallback.groups]
    return {draft.key: draft for draft in (*pool.groups, *others)}


def _holder(pool: PoolDraft, draft: Draft) -> Fallback | None:
    """Return the fallback that has a group; None: the group is in the pool itself."""
    return next((each for each in pool.convergence.fallbacks if any(draft is its for its in each.groups)), None)


def _fallback_of(pool: PoolDraft, order: Order) -> Fallback | None:
    """Return the fallback that has the source of an order; None: the source is in the pool itself, or is unknown."""
    return next((each for each in pool.convergence.fallbacks if str(each.pool.id) == order.fallback), None)


def _source(pool: PoolDraft, order: Order, drafts: Drafts) -> Draft | Fallback | None:
    """Return the groups whose replicas a step lowers: the source, or the whole fallback that has the source."""
    return _fallback_of(pool, order) if order.fallback else drafts.get(order.source)


def _counts(source: Draft | Fallback) -> tuple[int, int]:
    """Return the requested replicas and the running nodes."""
    group = source.group if isinstance(source, Draft) else source
    return group.requested, group.running


def _advanced(pool: PoolDraft, convergence: ConvergenceState, drafts: Drafts) -> ConvergenceState:
    """Return the state with its step advanced to Ordered or Draining, or without its step if the step is over."""
    step, now = convergence.step, pool.now
    is_sent = True
    if isinstance(step, Starting):
        is_sent = _carries(drafts, step.order.destination, step.move_id)
    elif isinstance(step, Deleting) and not step.order.needs_node:
        is_sent = _carries(drafts, step.draining_group, step.delete_move_id)
    if step is not None and not is_sent:
        begun = tuple(at for at in convergence.begun if at != step.order.begun_at)
        return replace(convergence, step=None, begun=begun)
    if isinstance(step, Starting):
        step = Ordered(order=step.order)
    if isinstance(step, Deleting) and _carries(drafts, step.draining_group, step.delete_move_id):
        order, group, machine = step.order, step.draining_group, step.machine
        step = Draining(order=order, draining_group=group, machine=machine, delete_requested_at=now)
        if not step.is_undone:
            last = LastDrain(source=order.source, requested=order.excused_replicas - 1, at=now)
            convergence = replace(convergence, last_drain=last)
    if step is None:
        return convergence
    if isinstance(step, Draining):
        return _drained(convergence, step, drafts, now)
    return _ordered(pool, convergence, step, drafts)


def _carries(drafts: Drafts, key: str, move_id: str) -> bool:
    """Return True if the patch with this move id has reached the group."""
    return bool(move_id) and key in drafts and drafts[key].group.ours.move == move_id


def _ordered(
    pool: PoolDraft, convergence: ConvergenceState, step: Ordered | Cancelling | Deleting, drafts: Drafts
) -> ConvergenceState:
    """Return the state with the step Ordered; without a step if the order was cancelled or the source lost a node."""
    order, now = step.order, pool.now
    source, destination = _source(pool, order, drafts), drafts.get(order.destination)
    requested, running = (order.source_replicas, 0) if source is None else _counts(source)
    cancelled = step.replicas_after_cancel if isinstance(step, Cancelling) else -1
    if destination is None or destination.group.requested <= max(cancelled, order.target_replicas - 1):
        over = replace(convergence, step=None)
        return over if _is_fenced(order, destination, now) else over.held(now, AFTER_FAILURE)
    if requested < order.source_replicas:
        return replace(convergence, step=None)  # another controller has already lowered the source
    # Nodes that the source adds during the step are included once they run. If an autoscaler then removes a node of the
    # source, this removal completes the step.
    # test_a_node_that_an_autoscaler_takes_from_a_source_that_has_grown_completes_the_step
    order = replace(order, source_replicas=max(order.source_replicas, min(requested, running)))
    return replace(convergence, step=Ordered(order=order))


def _is_fenced(order: Order, destination: Draft | None, now: datetime) -> bool:
    """Return True if the destination's fence already delays the next step, so that the pool needs no hold.

    A late machine also fences the destination. But the pool is held then, because the step has capped two zones for the
    whole timeout.
    test_a_late_launch_holds_the_pool_for_an_hour_whenever_a_check_runs
    """
    if destination is None or destination.state is not State.FENCED:
        return False
    return now < order.begun_at + destination.provision_timeout


def _drained(convergence: ConvergenceState, step: Draining, drafts: Drafts, now: datetime) -> ConvergenceState:
    """Return the state with the step Draining, or without a step once this machine or another one was deleted."""
    if not _is_gone(step, drafts.get(step.draining_group)):
        return replace(convergence, step=step)
    over = replace(convergence, step=None)
    return over.held(now, AFTER_FAILURE) if step.is_undone else over


def _is_gone(step: Draining, draft: Draft | None) -> bool:
    if draft is None:
        return True
    group = draft.group
    if group.machines is None:
        return group.running <= group.requested
    named = next((machine for machine in group.machines if machine.ref == step.machine), None)
    remaining = sum(not machine.deleting for machine in group.machines)
    return named is None or (not named.deleting and remaining <= group.requested)


def _with_bound_demand(convergence: ConvergenceState, drafts: Drafts, now: datetime) -> ConvergenceState:
    """Return the state. If a source grows again, its demand fits no other zone, and the state is held (principle 5).

    While a zone cannot deliver nodes, other zones grow instead. This growth never counts as bound demand, even after
    the zone recovers.
    test_growth_in_place_of_a_frozen_zone_holds_nothing_once_it_thaws
    """
    step, last, causes = convergence.step, convergence.last_drain, []
    is_doubtful = zone_doubt(drafts.values()) is not None
    if isinstance(step, Ordered) and _grew(drafts, step.order.source, step.order.excused_replicas):
        causes.append(step.order.begun_at)
    if last is not None and now - last.at <= COMES_BACK and _grew(drafts, last.source, last.requested):
        causes.append(last.at)
    if causes and not is_doubtful:
        is_held = convergence.held_until is not None and max(causes) + STEP_HELD <= convergence.held_until
        return convergence if is_held else convergence.held(now, STEP_HELD)
    if is_doubtful or any(draft.state is not State.HEALTHY for draft in drafts.values()):
        return _with_excused_growth(convergence, drafts)
    return convergence


def _with_excused_growth(convergence: ConvergenceState, drafts: Drafts) -> ConvergenceState:
    def at_least(source: str, requested: int) -> int:
        return max(requested, drafts[source].group.requested) if source in drafts else requested

    step, last = convergence.step, convergence.last_drain
    if step is not None:
        excused = at_least(step.order.source, step.order.excused_replicas)
        step = replace(step, order=replace(step.order, excused_replicas=excused))
    if last is not None:
        last = replace(last, requested=at_least(last.source, last.requested))
    return replace(convergence, step=step, last_drain=last)


def _grew(drafts: Drafts, key: str, requested: int) -> bool:
    """Return True if a source requests more than ``requested``, and a healthy zone is far below the source.

    If the demand fitted every zone, that lower zone would have grown instead.
    """
    source = drafts.get(key)
    if source is None or source.group.requested <= requested:
        return False
    return any(other.is_far_below(source) for other in drafts.values() if other.state is State.HEALTHY)


def _is_alone(pool: PoolDraft, source: Draft) -> bool:
    """Return True if the source is the only healthy zone.

    In this case, autoscalers may still order in the source, and its growth does not show bound demand.
    test_the_only_healthy_zone_stays_open_while_a_step_tries_another
    """
    is_alone = all((draft.state is State.HEALTHY) == (draft is source) for draft in pool.groups)
    return is_alone and _holder(pool, source) is None


def _excused_if_alone(pool: PoolDraft, order: Order, source: Draft | None) -> Order:
    """Return the order. If the source is the only healthy zone, none of its growth counts as bound demand."""
    if source is None or not _is_alone(pool, source):
        return order
    return replace(order, excused_replicas=max(order.excused_replicas, pool.pool.max))


def _cancelled(pool: PoolDraft, order: Order, drafts: Drafts) -> Cancelling | None:
    """Cancel the order in this plan if needed (principle 4). Return the new phase; None: the step remains Ordered."""
    source, destination = drafts.get(order.source), drafts[order.destination]
    destination.protected = True
    if pool.now < _deadline(order, destination):
        _cap_zones(pool, source, destination)
    reason = None if _has_arrived(order, destination) else _cancel_reason(pool, order, source, destination)
    # Controllers delete preserved machines last. If the ordered machine is preserved, cancelling its replica would
    # delete a running node.
    # test_a_failed_launch_that_is_preserved_is_not_cancelled
    least = max(destination.owner_min, destination.group.running + destination.group.preserved)
    if reason is None or destination.state is State.FROZEN or destination.requested <= least:
        return None
    destination.requested -= 1
    # Without this cap, a raise in the same patch could hide the cancelled replica.
    destination.limits[Rule.STEP_MAX] = destination.requested
    destination.protected = False
    destination.add_reason(Rule.STEP_TAKEN_BACK, why=reason)
    return Cancelling(order=order, replicas_after_cancel=destination.requested)


def _cap_zones(pool: PoolDraft, source: Draft | None, destination: Draft) -> None:
    """Keep autoscalers from ordering in either zone, because they do not count machines that others ordered."""
    if not pool.pool.settings.autoscaler:
        return
    destination.limits[Rule.STEP_MAX] = destination.requested
    if source is not None and _holder(pool, source) is None and not _is_alone(pool, source):
        source.limits[Rule.STEP_MAX] = source.requested


def _has_arrived(order: Order, destination: Draft) -> bool:
    """Return True if the destination runs one node more than before the step."""
    return destination.group.running >= order.target_replicas


def _is_ready(order: Order, destination: Draft) -> bool:
    """Return True if the new node runs and the newest node is Ready. Machines without a node do not matter."""
    newest = max(
        (machine for machine in destination.group.machines or () if machine.has_node and not machine.deleting),
        key=lambda machine: (machine.created_at, machine.name),
        default=None,
    )
    return _has_arrived(order, destination) and (newest is None or newest.ready)


def _deadline(order: Order, destination: Draft) -> datetime:
    """Return the time from which the ordered machine counts as late if it has no Ready node.

    By then its group is fenced, because the wait that leads to the fence starts with the first check after the order.
    """
    return order.begun_at + destination.provision_timeout + _FIRST_CHECK


def _cancel_reason(pool: PoolDraft, order: Order, source: Draft | None, destination: Draft) -> Reason | None:
    if source is None and not order.fallback:  # a fallback may only be absent from one list
        return Reason.of(Rule.STEP_SOURCE_GONE, group=order.source)
    if source is not None and source.group.requested > order.excused_replicas:
        return Reason.of(Rule.STEP_BOUND, zone=source.group.identity.zone)
    if pool.now >= (until := _deadline(order, destination)):
        return Reason.of(Rule.STEP_LATE, until=until)
    doubt = zone_doubt(pool.groups, source)
    return doubt or (None if source is None else _takes_last_place(pool, source, destination))


def _takes_last_place(pool: PoolDraft, source: Draft, destination: Draft, *, more: int = 0) -> Reason | None:
    """Return a reason if an order in a failed zone would leave the only healthy zone no room under PoolMaximum.

    The order may last for the whole provision timeout, and pods would wait for the same time.
    test_a_try_does_not_take_the_last_place_from_the_only_zone_that_delivers
    """
    is_try = pool.pool.settings.autoscaler and destination.state is not State.HEALTHY and _is_alone(pool, source)
    return _full(pool, more=more) if is_try else None


def converge(pool: PoolDraft) -> None:
    """Plan the next patch of the step, or report why there is none. Runs after all other changes of replicas."""
    requested_at = pool.pool.convergence_requested
    is_pass = requested_at is not None and pool.now < requested_at + PASS_LASTS
    is_on = is_pass or pool.pool.settings.level is Level.CONVERGE
    _give(pool)
    pairs = [*_return_pairs(pool), *rebalance_pairs(pool, pool.groups, _least_replicas(pool))] if is_on else []
    step = pool.convergence.state.step
    if isinstance(step, Draining):
        _await_drain(pool, step)
    elif isinstance(step, Ordered | Cancelling):
        continue_step(pool, step)
    if not is_on:
        if pool.convergence.state.uneven_since is not None:
            pool.convergence.state = replace(pool.convergence.state, uneven_since=None)
        return
    if pool.convergence.state.step is None:
        since = (pool.convergence.state.uneven_since or pool.now) if pairs else None
        if since != pool.convergence.state.uneven_since:
            pool.convergence.state = replace(pool.convergence.state, uneven_since=since)
        reason = start_step(pool, pairs, is_pass=is_pass) if pairs else None
        pool.convergence.report = Converging(
            left=_left(pool), why=reason, begins=pool.convergence.step is not None, step=pool.convergence.step
        )
    if pool.convergence.report is not None and (pairs or step is not None):
        pool.convergence.report = replace(pool.convergence.report, course=_course(pool))


def _give(pool: PoolDraft) -> None:
    """Delete the machine that the step of another pool takes from this pool, if no minimum and no change prevents it.

    If the machine is not deleted, the next check of that step finds no patch with its id, and tries again.
    """
    taker, step = pool.convergence.taken_by or (None, None)
    if taker is None or not isinstance(step, Deleting) or not step.of_fallback or step.delete_move_id:
        return
    if remove(pool, {step.draining_group: (step.machine,)}):
        pool.convergence.gives_to = taker
        _by_key(pool)[step.draining_group].add_reason(Rule.RETURN_GIVES, pool=taker.name)


def _left(pool: PoolDraft) -> int:
    return max(0, pool.pool.settings.converge.per_hour - len(pool.convergence.state.spent(pool.now)))


def _await_drain(pool: PoolDraft, step: Draining) -> None:
    group, machine, since = step.draining_group, step.machine, step.delete_requested_at
    destination = _by_key(pool).get(step.order.destination)
    timeout = pool.pool.settings.provision_timeout if destination is None else destination.provision_timeout
    deadline = since + timeout
    is_late = pool.now >= deadline
    if not is_late:
        pool.check_at.append(deadline)
    elif destination is not None:
        destination.protected = False
    pool.convergence.report = Converging(
        left=_left(pool),
        step=step,
        why=Reason.of(Rule.STEP_DRAINS, machine=str(machine), group=group, since=since),
        hangs_since=deadline if is_late else None,
        draining_group=group,
        machine=machine,
    )


def continue_step(pool: PoolDraft, step: Ordered | Cancelling) -> None:
    """Delete one machine once the new node is Ready, or report what an open step waits for.

    A started step continues even if the pool's ``level`` is no longer ``converge``, so that every step ends.
    """
    drafts = _by_key(pool)
    order, source, destination = step.order, drafts.get(step.order.source), drafts[step.order.destination]
    if source is not None and source.journal_delta < 0:
        # This plan moves a replica from the source to another zone. Such a move does not complete the step.
        # test_a_replica_that_another_zone_takes_on_does_not_complete_the_step
        order = replace(order, source_replicas=min(order.source_replicas, source.requested))
        step = replace(step, order=order)
        pool.convergence.state = replace(pool.convergence.state, step=step)
    report = Converging(left=_left(pool), step=step)
    deadline = _deadline(order, destination)
    is_late = pool.now >= deadline
    if not is_late:
        pool.check_at.append(deadline)
    if not _has_arrived(order, destination) or not (is_late or _is_ready(order, destination)):
        is_kept = is_late and isinstance(step, Ordered) and destination.state is not State.FROZEN
        reason = Reason.of(Rule.STEP_AWAITS_NODE, zone=destination.group.identity.zone, until=deadline)
        pool.convergence.report = _kept(report, destination, deadline) if is_kept else replace(report, why=reason)
    elif pool.requested - 1 < pool.pool.min:
        pool.convergence.state = replace(
            pool.convergence.state, step=None
        )  # PoolMinimum was raised, so the pool needs the new node
    else:
        pool.convergence.report = _delete(pool, order, drafts, report, deadline)


def _kept(report: Converging, destination: Draft, deadline: datetime) -> Converging:
    """Return the report of a late order that cannot be cancelled, with the preserved machine that is the cause."""
    reason = Reason.of(Rule.GROUP_AT_ITS_MIN, min=destination.requested)
    if preserved := destination.group.preserved:
        reason = Reason.of(Rule.PRESERVED, count=preserved)
        machines = [each for each in destination.group.machines or () if not (each.has_node or each.deleting)]
        machine = next((each.ref for each in machines if each.preserved), None)
        report = replace(report, draining_group=destination.key, machine=machine)
    reason = Reason.of(Rule.STEP_CANNOT_GIVE, zone=destination.group.identity.zone, why=reason)
    return replace(report, why=reason, hangs_since=deadline)


def _delete(pool: PoolDraft, order: Order, drafts: Drafts, report: Converging, deadline: datetime) -> Converging:
    """Delete one machine of the source by name, or of the destination if the step is undone, and return the report."""
    # Of all reasons to doubt the other zones, only a fence stops the drain.
    # test_once_the_successor_runs_doubt_about_other_zones_stops_nothing
    fence = next((_in_state(draft) for draft in pool.groups if draft.state is State.FENCED), None)
    reason: Reason | None = _rollout(pool) or fence or _in_progress(pool)
    candidates: list[Draft] = []
    is_late = pool.now >= deadline
    if reason is None:
        candidates, reason = _candidates(order, drafts, is_late=is_late)
    for draft in candidates:
        destination = drafts[order.destination]
        may_order = order.more > 0 and draft is not destination and not is_late
        choice = _choice(pool, draft, destination if may_order else None)
        if may_order and choice.machine is not None and choice.nodes:
            if (reason := _full(pool)) is None:
                more, replicas = min(choice.nodes, order.more) - 1, destination.requested + 1
                order = replace(order, begun_at=pool.now, target_replicas=replicas, more=more)
                _order(pool, order, draft, destination)
                return replace(report, step=pool.convergence.step)
            break
        if choice.machine is None or not _may_lose(pool, draft, choice.machine):
            blocked_by = choice.why or Reason.of(Rule.GROUP_AT_ITS_MIN, min=draft.requested)
            if draft is destination and blocked_by.rule is Rule.NEEDED_TO_SURVIVE:
                over = replace(pool.convergence.state, step=None)
                pool.convergence.state = over.held(pool.now, AFTER_FAILURE)  # the pool needs the new node
            reason = reason or Reason.of(Rule.STEP_CANNOT_GIVE, zone=draft.group.identity.zone, why=blocked_by)
            continue
        if draft.key == order.destination:
            draft.protected = False
            draft.add_reason(Rule.STEP_UNDONE, group=order.source)
        elif not order.fallback:
            draft.add_reason(Rule.STEP_GIVES, zone=drafts[order.destination].group.identity.zone)
        if Rule.STEP_MAX in draft.limits:
            draft.limits[Rule.STEP_MAX] = draft.requested
        pool.convergence.step = Deleting(order=order, draining_group=draft.key, machine=choice.machine)
        report = replace(report, step=pool.convergence.step, draining_group=draft.key, machine=choice.machine)
        # Another pool must delete the machine, or an earlier check has marked it, and its node is drained first.
        waits = pool.convergence.step.of_fallback or choice.machine.name in draft.machines.marked
        return replace(report, hangs_since=deadline if waits and is_late else None)
    hangs = reason is not None and is_late
    return replace(report, why=reason, hangs_since=deadline if hangs else None)


def _may_lose(pool: PoolDraft, draft: Draft, machine: MachineRef) -> bool:
    """Remove the machine of a group. For a group of a fallback, return True if the fallback's plan can remove it."""
    fallback = _holder(pool, draft)
    return remove(pool, {draft.key: (machine,)}) > 0 if fallback is None else fallback.spare_of(draft) > 0


def _candidates(order: Order, drafts: Drafts, *, is_late: bool) -> tuple[list[Draft], Reason | None]:
    """Return the groups that may lose a machine, best first, and the doubt about the source; None: no doubt."""
    source, destination = drafts.get(order.source), drafts[order.destination]
    # A zone in doubt may be unable to replace the node that it would lose.
    # test_a_step_is_undone_at_its_deadline_if_its_source_is_in_doubt
    if source is None and order.fallback:
        return [destination] if is_late else [], Reason.of(Rule.STEP_SOURCE_GONE, group=order.source)
    doubt = None if source is None or order.fallback else _doubt(source)
    if source is None or source.group.requested > order.excused_replicas or not _is_ready(order, destination):
        return [destination], doubt
    return [*([source] if doubt is None else []), *([destination] if is_late else [])], doubt


def start_step(pool: PoolDraft, pairs: Pairs, *, is_pass: bool) -> Reason | None:
    """Order one node for the smallest zone, or return the first reason that keeps the step from starting."""
    reason = _not_now(pool, is_pass=is_pass) or _rollout(pool)
    reason = reason or zone_doubt(pool.groups) or _in_progress(pool) or _awaited(pool.groups)
    if reason is not None:
        return reason
    for source, destination in pairs:
        blocked_by = _start_blocked_by(pool, source, destination)
        if blocked_by is not None:
            reason = reason or blocked_by
            continue
        _start(pool, source, destination)
        return None
    return reason


def _start(pool: PoolDraft, source: Draft, destination: Draft) -> None:
    fallback, choice = _holder(pool, source), _choice(pool, source, destination)
    order = Order(
        source=source.key,
        destination=destination.key,
        begun_at=pool.now,
        target_replicas=destination.requested + 1 if choice.nodes else 0,
        source_replicas=source.requested if fallback is None else fallback.requested,
        # Growth of a fallback is no demand that is bound to a zone of this pool.
        excused_replicas=source.requested if fallback is None else LARGEST_COUNT,
        fallback="" if fallback is None else str(fallback.pool.id),
        more=max(0, choice.nodes - 1),
    )
    if not order.needs_node and choice.machine is not None:
        pool.convergence.step = Deleting(order=order, draining_group=source.key, machine=choice.machine)
        return
    _order(pool, _excused_if_alone(pool, order, source), source, destination)


def _order(pool: PoolDraft, order: Order, source: Draft, destination: Draft) -> None:
    destination.requested += 1
    destination.journal_delta += 1
    destination.protected = True
    if order.fallback:
        destination.add_reason(Rule.RETURN_ORDERS, group=source.key)
    else:
        destination.add_reason(Rule.STEP_ORDERS, zone=source.group.identity.zone)
    _cap_zones(pool, source, destination)
    pool.convergence.surge = pool.pool.settings.converge.surge
    pool.convergence.step = Starting(order=order)


def _start_blocked_by(pool: PoolDraft, source: Draft, destination: Draft) -> Reason | None:
    if (fallback := _holder(pool, source)) is not None:
        return _return_blocked_by(pool, fallback, source, destination)
    if (full := _full(pool)) is not None:
        return full
    if source.state is State.PROBING:
        return _in_state(source)
    if (idle := _goes_without_order(pool, source)) is not None:
        return idle
    if (reason := _choice(pool, source, destination).why) is not None:
        return Reason.of(Rule.CONVERGE_STAYS, zone=source.group.identity.zone, why=reason)
    return _takes_last_place(pool, source, destination, more=1)


def _return_blocked_by(pool: PoolDraft, fallback: Fallback, source: Draft, destination: Draft) -> Reason | None:
    """Return why no node returns from this group of a fallback now; None: a node may return."""
    if fallback.pool.state.convergence.step is not None or fallback.pool.unplaced or fallback.pool.scale_request:
        return Reason.of(Rule.CONVERGE_BEHIND)
    choice = _choice(pool, source, destination)
    reason = _awaited(fallback.groups) or choice.why
    if reason is not None:
        return Reason.of(Rule.CONVERGE_STAYS, zone=source.group.identity.zone, why=reason)
    policy, now = pool.pool.settings.converge, pool.now
    if choice.nodes > policy.per_hour:
        reason = Reason.of(Rule.RETURN_TOO_LARGE, nodes=choice.nodes, per_hour=policy.per_hour)
        return Reason.of(Rule.CONVERGE_STAYS, zone=source.group.identity.zone, why=reason)
    if choice.nodes > 1 and choice.nodes > _left(pool):
        until = min(pool.convergence.state.spent(now)) + BUDGET
        pool.check_at.append(until)
        return Reason.of(Rule.CONVERGE_BUDGET, per_hour=policy.per_hour, until=until)
    return _full(pool, more=choice.nodes - 1) if choice.nodes else None


def _goes_without_order(pool: PoolDraft, source: Draft) -> Reason | None:
    """Return the reason if no step starts because scale-down will remove a node of the source anyway; else None.

    Evenkeel's own scale-down removes each node that has an unneeded clock. Another autoscaler may never remove its
    unneeded nodes. So the step starts once the zones have differed for ``IDLE_REMOVED_WITHIN``.
    test_a_node_that_no_autoscaler_takes_does_not_keep_the_pool_uneven
    """
    unneeded = None if pool.demand.facts is None else pool.demand.facts.unneeded
    idle = [node for node in unneeded or () if str(node.group) == source.key]
    until = (pool.convergence.state.uneven_since or pool.now) + IDLE_REMOVED_WITHIN
    is_ours = any(node.since is not None for node in idle)
    if not idle or not (is_ours or (pool.pool.settings.autoscaler and pool.now < until)):
        return None
    if not is_ours:
        pool.check_at.append(until)
    return Reason.of(Rule.CONVERGE_IDLE, zone=source.group.identity.zone, node=idle[0].node)


def _not_now(pool: PoolDraft, *, is_pass: bool) -> Reason | None:
    """Return the hold, window, budget or settling time that delays a step; None: no such reason.

    A convergence that an operator has requested (``is_pass``) ignores all of them, except a hold that began after the
    request.
    """
    convergence, policy, now = pool.convergence.state, pool.pool.settings.converge, pool.now
    since, held, asked = convergence.held_since, convergence.held_until, pool.pool.convergence_requested
    is_before = is_pass and since is not None and asked is not None and since < asked
    if held is not None and now < held and not is_before:
        return Reason.of(Rule.CONVERGE_HELD, until=held)
    if is_pass:
        return None
    if convergence.uneven_since is not None and now < (until := convergence.uneven_since + SETTLES):
        pool.check_at.append(until)
        return Reason.of(Rule.CONVERGE_SETTLES, until=until)
    opens = policy.opens(now)
    if opens != now:
        return Reason.of(Rule.CONVERGE_WINDOW, until=opens)
    if (spent := convergence.spent(now)) and len(spent) >= policy.per_hour:
        until = min(spent) + BUDGET
        pool.check_at.append(until)
        return Reason.of(Rule.CONVERGE_BUDGET, per_hour=policy.per_hour, until=until)
    return None


def _rollout(pool: PoolDraft) -> Reason | None:
    for draft in pool.groups:
        frozen = draft.group.frozen_because
        if frozen is not None and frozen.rule in ROLLOUTS:
            return Reason.of(Rule.CONVERGE_ROLLOUT, zone=draft.group.identity.zone)
    return None


def zone_doubt(drafts: Iterable[Draft], source: Draft | None = None) -> Reason | None:
    """Return the first reason to doubt that a zone delivers: a fence, a capacity report, or a source that is probing.

    Zones other than the source may be probing. A step tries such a zone safely, because it launches a node before it
    drains one.
    test_when_backoff_is_over_a_step_tries_the_zone
    """
    for draft in drafts:
        if draft.state is State.FENCED:
            return _in_state(draft)
        if (draft is source or draft.state is not State.PROBING) and (reason := _doubt(draft)) is not None:
            return reason
    return None


def _doubt(draft: Draft) -> Reason | None:
    if draft.state is State.PROBING:
        return _in_state(draft)
    if Rule.CAUTIOUS_MAX not in draft.limits:
        return None
    return Reason.of(Rule.CONVERGE_CAUTIOUS, zone=draft.group.identity.zone)


def _in_state(draft: Draft) -> Reason:
    return Reason.of(Rule.CONVERGE_STATE, zone=draft.group.identity.zone, state=draft.state.value)


def _in_progress(pool: PoolDraft) -> Reason | None:
    """Return a reason if the pool is changing in another way, because the journal stores one change at a time."""
    changes = any(draft.requested != draft.group.requested for draft in pool.groups)
    is_requested = pool.request.current is not None or pool.pool.scale_request is not None
    is_taken = pool.convergence.taken_by is not None
    return Reason.of(Rule.CONVERGE_BEHIND) if pool.moves or is_requested or changes or is_taken else None


def _awaited(drafts: Iterable[Draft]) -> Reason | None:
    for draft in drafts:
        group = draft.group
        if group.requested != group.running:
            return Reason.of(
                Rule.CONVERGE_AWAITS, zone=group.identity.zone, requested=group.requested, running=group.running
            )
    return None


def _full(pool: PoolDraft, *, more: int = 0) -> Reason | None:
    reserved_nodes = pool.reserved_nodes() if pool.pool.settings.strategy.reserves else 0
    if pool.requested + more + reserved_nodes < pool.pool.max + pool.pool.settings.converge.surge:
        return None
    return Reason.of(Rule.CONVERGE_FULL, maximum=pool.pool.max, requested=pool.requested)


def rebalance_pairs(pool: PoolDraft, drafts: Iterable[Draft], least: Mapping[str, int]) -> Pairs:
    """Return the pairs of source and destination, the fullest source first; empty: the zones are level.

    Zones in doubt are included, so that the report can name the doubt that keeps the step from starting. The
    destination is the lowest zone, and among equally low zones a healthy one. Zones that have failed since the last
    drain are the last choice.
    test_a_zone_that_stays_out_keeps_no_other_zone_from_being_filled
    """
    able = [draft for draft in drafts if _is_able(draft)]
    sources = [draft for draft in able if draft.requested > least[draft.key]]
    # A zone that is far below any source is also far below the fullest source. So in a level pool, one comparison per
    # zone suffices.
    fullest = max(sources, key=lambda draft: (draft.requested - 1) / draft.group.annotations.weight, default=None)
    for low in sorted([draft for draft in able if draft.room > 0], key=partial(_turn, pool)):
        if fullest is not None and low.is_far_below(fullest):
            above = [draft for draft in sources if low.is_far_below(draft)]
            above.sort(key=lambda draft: (-draft.requested / draft.group.annotations.weight, draft.tie))
            return [(source, low) for source in above]
    return []


def _is_able(draft: Draft) -> bool:
    return draft.state is not State.FROZEN and not draft.group.owner.bounds_held


def _turn(pool: PoolDraft, draft: Draft) -> tuple[float, float, bool, int]:
    """Return the sort key of destinations (``rebalance_pairs``)."""
    failed, last = draft.doubted_since, pool.convergence.state.last_drain
    waits = failed is not None and (last is None or last.at <= failed)
    since = failed.timestamp() if failed is not None and waits else 0.0
    return since, draft.requested / draft.group.annotations.weight, draft.state is not State.HEALTHY, draft.tie


def _return_pairs(pool: PoolDraft) -> Pairs:
    """Return the pairs of a group with nodes that a fallback holds, and the group to which a node returns.

    The destination is in the same zone, so that pods that are bound to the zone can return. Zones that have failed
    since the last drain are the last choice.
    """
    able = sorted([draft for draft in pool.groups if _is_able(draft) and draft.room > 0], key=partial(_turn, pool))
    pairs = []
    for fallback in pool.convergence.fallbacks if able else ():
        for source in fallback.groups:
            zone = source.group.identity.zone
            destination = next((draft for draft in able if draft.group.identity.zone == zone), able[0])
            if fallback.spare_of(source) > 0:
                pairs.append((source, destination))
    place = {id(draft): number for number, draft in enumerate(able)}
    return sorted(pairs, key=lambda pair: (_turn(pool, pair[1])[0], place[id(pair[1])]))


def _least_replicas(pool: PoolDraft) -> dict[str, int]:
    return {draft.key: pool.least_of(draft) for draft in pool.groups}


def _choice(pool: PoolDraft, draft: Draft, coming: Draft | None = None) -> Choice:
    """Return the machine of a group that may be drained. If ``coming`` is set, that group first gets a new node.

    The choice depends on pods. So the plan asks for the machine, and the pool is planned again with the answer.
    """
    if draft.drain_blocked_by is not None:
        return Choice(why=draft.drain_blocked_by)
    if draft.key in pool.convergence.choices:
        return pool.convergence.choices[draft.key]
    pool.convergence.asks[draft.key] = "" if coming is None else coming.key
    # A machine of a fallback needs the view always, because its pods may not fit the pool at all. So does the machine
    # of a pool whose pods must survive the loss of a zone.
    survives = pool.survival is not None and pool.survival.facts is not None
    if not pool.pool.settings.converge.blind or survives or _holder(pool, draft) is not None:
        return Choice(why=pool.observation.workload_unread or Reason.of(Rule.CONVERGE_NO_VIEW))
    if coming is not None:
        return Choice()  # checks list machines only during a step
    may_go = [
        machine
        for machine in draft.group.machines or ()
        if machine.has_node and not machine.deleting and not machine.preserved
    ]
    # Machines that are not Ready are before Ready ones, and newer machines before older ones.
    may_go.sort(key=lambda machine: (machine.ready, -machine.created_at.timestamp(), machine.name))
    return Choice(machine=may_go[0].ref) if may_go else Choice(why=Reason.of(Rule.CONVERGE_NO_MACHINE))


def _course(pool: PoolDraft) -> tuple[tuple[str, str], ...]:
    """Return the source and destination of each step until the zones are level, except the step in progress."""
    played = [
        replace(draft, limits={rule: cap for rule, cap in draft.limits.items() if rule is not Rule.STEP_MAX})
        for draft in pool.groups
    ]
    step = pool.convergence.state.step
    one_less = ""  # key of the group that the open step will lower, or that this plan's step has raised
    if isinstance(pool.convergence.step, Starting) and step is None:
        one_less = pool.convergence.step.order.destination
    elif step is not None and step.is_open and pool.convergence.step is None:
        one_less = step.order.source
    for draft in played:
        draft.requested -= draft.key == one_less
    course: list[tuple[str, str]] = []
    least = _least_replicas(pool)
    while len(course) < _LONGEST_COURSE and (pairs := rebalance_pairs(pool, played, least)):
        source, destination = pairs[0]
        course.append((source.group.identity.zone or source.key, destination.group.identity.zone or destination.key))
        source.requested -= 1
        destination.requested += 1
    return tuple(course)
