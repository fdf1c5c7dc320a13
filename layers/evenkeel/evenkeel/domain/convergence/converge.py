"""Converge: order one node in the smallest zone; once it is Ready, delete one machine of the fullest zone by name.

The phases of a step are types of ``domain.model.convergence``. Each arrow is one function here or in ``step``:

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

from dataclasses import replace
from datetime import datetime

from evenkeel.domain.convergence.obstacles import (
    awaited_machines,
    doubt_of,
    goes_without_order,
    no_room,
    not_now,
    other_change,
    rollout_in_progress,
    state_reason,
    zone_doubt,
)
from evenkeel.domain.convergence.pairs import Pairs, course_of, least_replicas, rebalance_pairs, return_pairs
from evenkeel.domain.convergence.returns import Fallback
from evenkeel.domain.convergence.step import (
    Drafts,
    by_key,
    cap_zones,
    deadline_of,
    excused_if_alone,
    has_arrived,
    holder,
    is_ready,
    takes_last_place,
)
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import (
    BUDGET,
    PASS_LASTS,
    Cancelling,
    Choice,
    Converging,
    Deleting,
    Draining,
    Order,
    Ordered,
    Starting,
)
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import MachineRef, State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.rebalancing.replicas.changes import give
from evenkeel.domain.rebalancing.replicas.deletion import remove


def converge(pool: PoolDraft) -> None:
    """Plan the next patch of the step, or report why there is none. Runs after all other changes of replicas."""
    moves = pool.convergence.moves
    is_pass = moves is None and held_until(pool.pool.convergence_requested, pool.now, PASS_LASTS) is not None
    levels = is_pass or pool.pool.settings.level is Level.CONVERGE
    is_on = levels or moves is not None
    _give(pool)
    pairs = list(moves or [])
    if levels:
        # Moves out of a zone come first. Where none can start, perhaps for good, the other zones are levelled.
        groups = [draft for draft in pool.groups if not draft.health.left]
        pairs += [*return_pairs(pool), *rebalance_pairs(pool, groups, least_replicas(pool))]
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
        reason = pool.convergence.waits or (start_step(pool, pairs, is_pass=is_pass) if pairs else None)
        pool.convergence.report = Converging(
            left=_left(pool), why=reason, begins=pool.convergence.step is not None, step=pool.convergence.step
        )
    if pool.convergence.report is not None and moves is None and (pairs or step is not None):
        pool.convergence.report = replace(pool.convergence.report, course=course_of(pool))


def _give(pool: PoolDraft) -> None:
    """Delete the machine that the step of another pool takes from this pool, if no minimum and no change prevents it.

    If the machine is not deleted, the next check of that step finds no patch with its id, and tries again.
    """
    taker, step = pool.given.taken_by or (None, None)
    if taker is None or not isinstance(step, Deleting) or not step.of_fallback or step.delete_move_id:
        return
    if remove(pool, {step.draining_group: (step.machine,)}):
        pool.convergence.gives_to = taker
        by_key(pool)[step.draining_group].add_reason(Rule.RETURN_GIVES, pool=taker.name)


def _left(pool: PoolDraft) -> int:
    return max(0, pool.pool.settings.converge.per_hour - len(pool.convergence.state.spent(pool.now)))


def _await_drain(pool: PoolDraft, step: Draining) -> None:
    group, machine, since = step.draining_group, step.machine, step.delete_requested_at
    destination = by_key(pool).get(step.order.destination)
    timeout = pool.pool.settings.provision_timeout if destination is None else destination.provision_timeout
    deadline = since + timeout
    is_late = pool.now >= deadline
    if not is_late:
        pool.check_at.append(deadline)
    elif destination is not None:
        destination.autoscaler.protected = False
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
    drafts = by_key(pool)
    order, source, destination = step.order, drafts.get(step.order.source), drafts[step.order.destination]
    if source is not None and source.journal_delta < 0:
        # This plan moves a replica from the source to another zone. Such a move does not complete the step.
        # test_a_replica_that_another_zone_takes_on_does_not_complete_the_step
        order = replace(order, source_replicas=min(order.source_replicas, source.requested))
        step = replace(step, order=order)
        pool.convergence.state = replace(pool.convergence.state, step=step)
    report = Converging(left=_left(pool), step=step)
    deadline = deadline_of(order, destination)
    is_late = pool.now >= deadline
    if not is_late:
        pool.check_at.append(deadline)
    if not has_arrived(order, destination) or not (is_late or is_ready(order, destination)):
        is_kept = is_late and isinstance(step, Ordered) and destination.writable
        reason = Reason.of(Rule.STEP_AWAITS_NODE, zone=destination.group.identity.zone, until=deadline)
        pool.convergence.report = _kept(report, destination, deadline) if is_kept else replace(report, why=reason)
    elif pool.target - 1 < pool.pool.min:
        # PoolMinimum was raised, so the pool needs the new node.
        pool.convergence.state = replace(pool.convergence.state, step=None)
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
    # Of all reasons to doubt the other zones, only a fence or broken nodes stop the drain.
    # test_once_the_successor_runs_doubt_about_other_zones_stops_nothing
    fence = next((state_reason(draft) for draft in pool.groups if draft.zone_fails), None)
    reason: Reason | None = rollout_in_progress(pool) or fence or other_change(pool)
    candidates: list[Draft] = []
    is_late = pool.now >= deadline
    if reason is None:
        candidates, reason = _candidates(order, drafts, is_late=is_late)
    for draft in candidates:
        destination = drafts[order.destination]
        may_order = order.more > 0 and draft is not destination and not is_late
        choice = _choice(pool, draft, destination if may_order else None)
        if may_order and choice.machine is not None and choice.nodes:
            if (reason := no_room(pool)) is None:
                more, replicas = min(choice.nodes, order.more) - 1, destination.requested + 1
                order = replace(order, begun_at=pool.now, target_replicas=replicas, more=more)
                _order(pool, order, draft, destination)
                return replace(report, step=pool.convergence.step)
            break
        if choice.machine is None or not _may_lose(pool, draft, choice.machine):
            blocked_by = choice.why or Reason.of(Rule.GROUP_AT_ITS_MIN, min=draft.requested)
            if draft is destination and choice.guarded:
                over = replace(pool.convergence.state, step=None)
                pool.convergence.state = over.held_after_failure(pool.now)  # the pool needs the new node
            reason = reason or Reason.of(Rule.STEP_CANNOT_GIVE, zone=draft.group.identity.zone, why=blocked_by)
            continue
        if draft.key == order.destination:
            draft.autoscaler.protected = False
            draft.add_reason(Rule.STEP_UNDONE, group=order.source)
        elif not order.fallback:
            zone = drafts[order.destination].group.identity.zone
            draft.add_reason(Rule.STEP_GIVES, zone=zone, **_purpose(draft))
        if Rule.STEP_MAX in draft.limits:
            draft.limits[Rule.STEP_MAX] = draft.requested
        pool.convergence.step = Deleting(
            phase="deleting", order=order, draining_group=draft.key, machine=choice.machine
        )
        report = replace(report, step=pool.convergence.step, draining_group=draft.key, machine=choice.machine)
        # Another pool must delete the machine, or an earlier check has marked it, and its node is drained first.
        waits = pool.convergence.step.of_fallback or choice.machine.name in draft.machines.marked
        return replace(report, hangs_since=deadline if waits and is_late else None)
    hangs = reason is not None and is_late
    return replace(report, why=reason, hangs_since=deadline if hangs else None)


def _purpose(source: Draft) -> dict[str, int]:
    """Return the fact that a step does not level the zones, but leaves that of its source."""
    return {"left": 1} if source.health.left else {}


def _may_lose(pool: PoolDraft, draft: Draft, machine: MachineRef) -> bool:
    """Remove the machine of a group. For a group of a fallback, return True if the fallback's plan can remove it."""
    fallback = holder(pool, draft)
    return remove(pool, {draft.key: (machine,)}) > 0 if fallback is None else fallback.spare_of(draft) > 0


def _candidates(order: Order, drafts: Drafts, *, is_late: bool) -> tuple[list[Draft], Reason | None]:
    """Return the groups that may lose a machine, best first, and the doubt about the source; None: no doubt."""
    source, destination = drafts.get(order.source), drafts[order.destination]
    # A zone in doubt may be unable to replace the node that it would lose.
    # test_a_step_is_undone_at_its_deadline_if_its_source_is_in_doubt
    if source is None and order.fallback:
        return [destination] if is_late else [], Reason.of(Rule.STEP_SOURCE_GONE, group=order.source)
    doubt = None if source is None or order.fallback else doubt_of(source)
    if source is None or source.group.requested > order.excused_replicas or not is_ready(order, destination):
        return [destination], doubt
    return [*([source] if doubt is None else []), *([destination] if is_late else [])], doubt


def start_step(pool: PoolDraft, pairs: Pairs, *, is_pass: bool) -> Reason | None:
    """Order one node for the smallest zone, or return the first reason that keeps the step from starting."""
    reason = not_now(pool, is_pass=is_pass) or rollout_in_progress(pool)
    reason = reason or zone_doubt(pool.groups) or other_change(pool) or awaited_machines(pool.groups)
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
    fallback, choice = holder(pool, source), _choice(pool, source, destination)
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
        pool.convergence.step = Deleting(
            phase="deleting", order=order, draining_group=source.key, machine=choice.machine
        )
        return
    _order(pool, excused_if_alone(pool, order, source), source, destination)


def _order(pool: PoolDraft, order: Order, source: Draft, destination: Draft) -> None:
    if order.fallback:
        reason = Reason.of(Rule.RETURN_ORDERS, group=source.key)
    else:
        reason = Reason.of(Rule.STEP_ORDERS, zone=source.group.identity.zone, **_purpose(source))
    give(1, [(destination, 1)], lambda _draft, _more: reason)
    destination.autoscaler.protected = True
    cap_zones(pool, source, destination)
    pool.convergence.surge = pool.pool.settings.converge.surge
    pool.convergence.step = Starting(phase="starting", order=order)


def _start_blocked_by(pool: PoolDraft, source: Draft, destination: Draft) -> Reason | None:
    if (fallback := holder(pool, source)) is not None:
        return _return_blocked_by(pool, fallback, source, destination)
    if (full := no_room(pool)) is not None:
        return full
    if source.state is State.PROBING:
        return state_reason(source)
    if (idle := goes_without_order(pool, source)) is not None:
        return idle
    if (reason := _choice(pool, source, destination).why) is not None:
        return Reason.of(Rule.CONVERGE_STAYS, zone=source.group.identity.zone, why=reason)
    return takes_last_place(pool, source, destination, more=1)


def _return_blocked_by(pool: PoolDraft, fallback: Fallback, source: Draft, destination: Draft) -> Reason | None:
    """Return why no node returns from this group of a fallback now; None: a node may return."""
    if fallback.pool.state.convergence.step is not None or fallback.pool.unplaced or fallback.pool.scale_request:
        return Reason.of(Rule.CONVERGE_BEHIND)
    choice = _choice(pool, source, destination)
    reason = awaited_machines(fallback.groups) or choice.why
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
    return no_room(pool, more=choice.nodes - 1) if choice.nodes else None


def _choice(pool: PoolDraft, draft: Draft, coming: Draft | None = None) -> Choice:
    """Return the machine of a group that may be drained. If ``coming`` is set, that group first gets a new node.

    The choice depends on pods. So the plan asks for the machine, and the pool is planned again with the answer.
    """
    if draft.drain_blocked_by is not None:
        return Choice(why=draft.drain_blocked_by)
    if draft.key in pool.given.choices:
        return pool.given.choices[draft.key]
    pool.convergence.asks[draft.key] = "" if coming is None else coming.key
    # A machine of a fallback needs the view always, because its pods may not fit the pool at all. So does the machine
    # of a pool whose pods decide which nodes must stay.
    if not pool.pool.settings.converge.blind or pool.given.pods_decide or holder(pool, draft) is not None:
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
