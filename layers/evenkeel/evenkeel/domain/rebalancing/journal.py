"""What is remembered of a pool around the writes of its plan: written down before the first, closed after the last.

A run that ends in between leaves the journal open; the next look reads from the groups which steps were done
(``domain.model.moves``).
"""

from dataclasses import replace

from evenkeel.domain.model.convergence import opened_step
from evenkeel.domain.model.moves import FOR_PODS, Move
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.rebalancing.writes import bounds_of


def opened(pool: PoolPlan, id: str) -> PoolState:
    """Before the first patch: the bounds that the groups had before us, and the move that begins, under this ULID."""
    state = pool.remembered
    if not pool.changes:
        return state
    release = pool.releases or state.release
    state = replace(state, adopted={**state.adopted, **pool.adopted}, desired_bounds=_wishes(pool), release=release)
    if pool.closes and state.closed_at is None:
        state = replace(state, closed_at=time_of(id))
    if pool.added:
        state = replace(state, added_at=time_of(id), added=pool.added)
    if not pool.moves:
        return state
    if pool.step is not None:  # it has a journal of its own: nothing is ever owed to another zone
        return replace(state, move=Move(id=id), convergence=opened_step(state.convergence, pool.step, id))
    move = Move(id=id, unplaced=pool.unplaced_before, steps=pool.moves)
    request = pool.scale_request
    if request is not None:
        later = 0 if request.is_of_plan or request.nodes < 0 else pool.missing + pool.request_later
        begun = request.nodes + request.later - later
        move = replace(move, unplaced=begun, request=request.id, only=request.only, later=later)
    grows = request is not None and any(step > 0 for step in pool.moves.values())
    orders = state.orders
    if grows:
        if release is not None and request is not None and request.id == FOR_PODS:
            release = replace(release, ordered=_requested(pool))
        orders = orders if pool.orders_after is None else pool.orders_after
        state = replace(state, grew_at=time_of(id))
    return replace(state, move=move, release=release, orders=orders)


def _requested(pool: PoolPlan) -> dict[str, int]:
    return {str(plan.group.key): plan.requested for plan in pool.groups}


def _wishes(pool: PoolPlan) -> dict[str, DesiredBounds]:
    """What is wanted of the objects that are about to be written, and what may then be found there of ours.

    What stands there now was read before: of what we wrote earlier nothing else can come back.
    """
    desired_bounds = dict(pool.remembered.desired_bounds)
    owners = {plan.group.owner.ref.id for plan in pool.groups if plan.group.owner is not None}
    if all(plan.group.owner is not None for plan in pool.groups):  # objects that were made anew are others
        desired_bounds = {id: wish for id, wish in desired_bounds.items() if id in owners}
    for plan in pool.changes:
        owner, wanted = plan.group.owner, desired_bounds_of(plan.group, pool.remembered)
        if owner is None or not owner.takes_ours or wanted is None:
            continue
        # Pinned is ours, whatever is wanted: until its patch has arrived, that must be found there.
        ours = [owner.bounds] if owner.bounds != wanted or plan.group.pinned else []
        desired_bounds[owner.ref.id] = DesiredBounds(
            bounds=wanted, ours=tuple(dict.fromkeys([*ours, *bounds_of(plan)]))
        )
    return desired_bounds


def closed(pool: PoolPlan, state: PoolState) -> PoolState:
    """After every write of the plan is done: what is left of a move is what found no place."""
    if not pool.judged:
        return state
    if pool.valid and not pool.closes:
        state = replace(state, closed_at=None)
    if state.move is None or pool.opens or pool.keeps_journal:
        return state
    return replace(state, move=replace(state.move, unplaced=pool.unplaced, steps={}) if pool.unplaced else None)
