"""The step in progress: its phase, read from the groups, and the end of an order that no longer helps."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.convergence.obstacles import no_room, state_reason, zone_doubt
from evenkeel.domain.convergence.returns import Fallback, fallbacks_of
from evenkeel.domain.model.convergence import (
    COMES_BACK,
    STEP_HELD,
    Cancelling,
    ConvergenceState,
    Deleting,
    Draining,
    LastDrain,
    Order,
    Ordered,
    Starting,
)
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.replicas.changes import take

Drafts = Mapping[str, Draft]
# The first check after a write starts after 15 s, or with the next scan at the latest.
_FIRST_CHECK = timedelta(minutes=1)


def update_step(pool: PoolDraft) -> None:
    """Advance the stored step to the phase that the groups show, and cancel its order if a zone is in doubt.

    It runs before all other changes of replicas (``Rank.CANCELLED_STEP``).
    """
    stored = pool.pool.state.convergence
    if stored.step is None and stored.last_drain is None:
        return  # neither a step to advance nor a drain after which demand may come back
    drafts = by_key(pool)
    convergence = _advanced(pool, stored, drafts)
    convergence = _with_bound_demand(convergence, {draft.key: draft for draft in pool.groups}, pool.now)
    step = convergence.step
    if isinstance(step, Ordered):
        order = excused_if_alone(pool, step.order, drafts.get(step.order.source))
        after = _cancelled(pool, order, drafts)
        convergence = replace(convergence, step=Ordered(phase="ordered", order=order) if after is None else after)
        pool.convergence.surge = pool.pool.settings.converge.surge
    elif isinstance(step, Draining) and (destination := drafts.get(step.order.destination)) is not None:
        destination.autoscaler.protected = not step.is_undone
    pool.convergence.state = convergence


def by_key(pool: PoolDraft) -> dict[str, Draft]:
    """Return the groups of the pool and of its fallbacks, by key."""
    others = [draft for fallback in fallbacks_of(pool) for draft in fallback.groups]
    return {draft.key: draft for draft in (*pool.groups, *others)}


def holder(pool: PoolDraft, draft: Draft) -> Fallback | None:
    """Return the fallback that has a group; None: the group is in the pool itself."""
    return next((each for each in fallbacks_of(pool) if any(draft is its for its in each.groups)), None)


def _fallback_of(pool: PoolDraft, order: Order) -> Fallback | None:
    """Return the fallback that has the source of an order; None: the source is in the pool itself, or is unknown."""
    return next((each for each in fallbacks_of(pool) if str(each.pool.id) == order.fallback), None)


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
        step = Ordered(phase="ordered", order=step.order)
    if isinstance(step, Deleting) and _carries(drafts, step.draining_group, step.delete_move_id):
        order, group, machine = step.order, step.draining_group, step.machine
        step = Draining(phase="draining", order=order, draining_group=group, machine=machine, delete_requested_at=now)
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
        return over if _is_fenced(order, destination, now) else over.held_after_failure(now)
    if requested < order.source_replicas:
        return replace(convergence, step=None)  # another controller has already lowered the source
    # Nodes that the source adds during the step are included once they run. If an autoscaler then removes a node of the
    # source, this removal completes the step.
    # test_a_node_that_an_autoscaler_takes_from_a_source_that_has_grown_completes_the_step
    order = replace(order, source_replicas=max(order.source_replicas, min(requested, running)))
    return replace(convergence, step=Ordered(phase="ordered", order=order))


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
    return over.held_after_failure(now) if step.is_undone else over


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
    return is_alone and holder(pool, source) is None


def excused_if_alone(pool: PoolDraft, order: Order, source: Draft | None) -> Order:
    """Return the order. If the source is the only healthy zone, none of its growth counts as bound demand."""
    if source is None or not _is_alone(pool, source):
        return order
    return replace(order, excused_replicas=max(order.excused_replicas, pool.pool.max))


def _cancelled(pool: PoolDraft, order: Order, drafts: Drafts) -> Cancelling | None:
    """Cancel the order in this plan if needed (principle 4). Return the new phase; None: the step remains Ordered."""
    source, destination = drafts.get(order.source), drafts[order.destination]
    destination.autoscaler.protected = True
    if pool.now < deadline_of(order, destination):
        cap_zones(pool, source, destination)
    reason = None if has_arrived(order, destination) else _cancel_reason(pool, order, source, destination)
    # Controllers delete preserved machines last. If the ordered machine is preserved, cancelling its replica would
    # delete a running node.
    # test_a_failed_launch_that_is_preserved_is_not_cancelled
    least = max(destination.owner_min, destination.group.running + destination.group.preserved)
    if reason is None or not destination.writable or destination.requested <= least:
        return None
    take(destination, 1, Reason.of(Rule.STEP_TAKEN_BACK, why=reason), journaled=False)
    # Without this cap, a raise in the same patch could hide the cancelled replica.
    destination.limits[Rule.STEP_MAX] = destination.requested
    destination.autoscaler.protected = False
    return Cancelling(phase="cancelling", order=order, replicas_after_cancel=destination.requested)


def cap_zones(pool: PoolDraft, source: Draft | None, destination: Draft) -> None:
    """Keep autoscalers from ordering in either zone, because they do not count machines that others ordered."""
    if not pool.pool.settings.autoscaler:
        return
    destination.limits[Rule.STEP_MAX] = destination.requested
    if source is not None and holder(pool, source) is None and not _is_alone(pool, source):
        source.limits[Rule.STEP_MAX] = source.requested


def has_arrived(order: Order, destination: Draft) -> bool:
    """Return True if the destination runs one node more than before the step."""
    return destination.group.running >= order.target_replicas


def is_ready(order: Order, destination: Draft) -> bool:
    """Return True if the new node runs and the newest node is Ready. Machines without a node do not matter."""
    newest = max(
        (machine for machine in destination.group.machines or () if machine.has_node and not machine.deleting),
        key=lambda machine: (machine.created_at, machine.name),
        default=None,
    )
    return has_arrived(order, destination) and (newest is None or newest.ready)


def deadline_of(order: Order, destination: Draft) -> datetime:
    """Return the time from which the ordered machine counts as late if it has no Ready node.

    By then its group is fenced, because the wait that leads to the fence starts with the first check after the order.
    """
    return order.begun_at + destination.provision_timeout + _FIRST_CHECK


def _cancel_reason(pool: PoolDraft, order: Order, source: Draft | None, destination: Draft) -> Reason | None:
    if source is None and not order.fallback:  # a fallback may only be absent from one list
        return Reason.of(Rule.STEP_SOURCE_GONE, group=order.source)
    if source is not None and source.group.requested > order.excused_replicas:
        return Reason.of(Rule.STEP_BOUND, zone=source.group.identity.zone)
    if pool.now >= (until := deadline_of(order, destination)):
        return Reason.of(Rule.STEP_LATE, until=until)
    doubt = zone_doubt(pool.groups, source)
    if destination.state is State.FENCED:
        doubt = doubt or state_reason(destination)
    return doubt or (None if source is None else takes_last_place(pool, source, destination))


def takes_last_place(pool: PoolDraft, source: Draft, destination: Draft, *, more: int = 0) -> Reason | None:
    """Return a reason if an order in a failed zone would leave the only healthy zone no room under PoolMaximum.

    The order may last for the whole provision timeout, and pods would wait for the same time.
    test_a_try_does_not_take_the_last_place_from_the_only_zone_that_delivers
    """
    is_try = pool.pool.settings.autoscaler and destination.state is not State.HEALTHY and _is_alone(pool, source)
    return no_room(pool, more=more) if is_try else None
