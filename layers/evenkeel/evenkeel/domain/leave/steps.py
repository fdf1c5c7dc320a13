"""Leave a zone: fence the pool's groups there, and name the moves that converge makes.

Converge makes each move as one of its steps: it orders a node in another zone, and drains a node once the new one is
Ready. So its journal, windows, budgets and guards apply. The fence names no fault, so other zones do not stop for it.
"""

from dataclasses import replace
from datetime import datetime

from evenkeel.domain.leave.model import Leaving, Progress
from evenkeel.domain.model.convergence import SETTLES, ConvergenceState
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT


def fence(pool: PoolDraft) -> None:
    """Fence the pool's groups in the zone. The zone keeps no minimum of its own, and the leave limits the steps."""
    leaving = pool.parts.drafts.of(Leaving)
    if leaving is None:
        return
    leave, settings = leaving.leave, pool.pool.settings
    per_hour = min(settings.converge.per_hour, leave.per_hour or LARGEST_COUNT)
    pool.pool = replace(pool.pool, settings=replace(settings, converge=replace(settings.converge, per_hour=per_hour)))
    for draft in pool.groups:
        if leave.zone not in draft.group.identity.zone_names or not draft.writable:
            continue
        draft.state = State.FENCED
        draft.health.left = draft.health.not_offered = draft.health.moves_elsewhere = True
        draft.health.fence_ends = leave.until
        draft.add_reason(Rule.ZONE_LEFT, zone=leave.zone, until=leave.until)
        draft.floors.pop(Rule.ZONE_MIN, None)
        draft.autoscaler.floors.clear()


def name_moves(pool: PoolDraft) -> None:
    """Set the moves out of the zone for converge: from each group with nodes, to the lowest healthy zone with room."""
    leaving = pool.parts.drafts.of(Leaving)
    if leaving is None:
        return
    sources = [draft for draft in pool.groups if draft.health.left and _is_able(draft) and draft.requested > 0]
    for draft in sources:
        draft.floors.pop(Rule.STRATEGY, None)
    takers = [draft for draft in pool.groups if _takes(draft)]
    lowest = min(takers, key=lambda draft: (draft.requested / draft.group.annotations.weight, draft.tie), default=None)
    convergence = pool.convergence
    if sources:
        convergence.moves = [] if lowest is None else [(source, lowest) for source in sources]
        convergence.waits = leaving.waits or (Reason.of(Rule.LEAVE_FINDS_NO_ZONE) if lowest is None else None)
        convergence.state = _without_delay(convergence.state, leaving, pool)
        until = None if convergence.waits is None else convergence.waits.facts.get("until")
        if isinstance(until, datetime):
            pool.check_at.append(until)


def _is_able(draft: Draft) -> bool:
    return draft.writable and not draft.group.owner.bounds_held


def _takes(draft: Draft) -> bool:
    """Return True if a group may get the nodes. A group of another zone in doubt may not: it would prove nothing."""
    is_healthy = draft.state is State.HEALTHY and draft.group.status.unhealthy is None
    return is_healthy and not draft.health.left and _is_able(draft) and draft.room > 0


def _without_delay(state: ConvergenceState, leaving: Leaving, pool: PoolDraft) -> ConvergenceState:
    """Return the state as if the zones had differed for long, and without a hold from before the leave.

    Both delays are for moves that nobody has asked for.
    """
    if state.uneven_since is None:
        state = replace(state, uneven_since=pool.now - SETTLES)
    if state.held_since is not None and state.held_since < leaving.leave.at:
        state = replace(state, held_since=None, held_until=None)
    return state


def note_progress(pool: PoolDraft) -> None:
    """Add how many nodes are left in the zone, and which pods stay there."""
    leaving = pool.parts.drafts.of(Leaving)
    if leaving is None:
        return
    leave, stays, converge = leaving.leave, leaving.stays or (), pool.pool.settings.converge
    nodes = sum(draft.requested for draft in pool.groups if leave.zone in draft.group.identity.zone_names)
    pool.parts.results.put(Progress, Progress(nodes=nodes, stays=stays, converge=converge))
    pool.demand.asks_pods |= nodes > 0 and leaving.stays is None
    pool.parts.notes.append(
        Reason.of(
            Rule.LEAVES_ZONE,
            zone=leave.zone,
            until=leave.until,
            nodes=nodes,
            per_hour=converge.per_hour,
            stays=tuple(why for _, why in stays),
        )
    )
