"""The journal of a pool: the states to store before the first write of a plan and after its last write.

A run that ends before it stores the second state leaves the journal open. The next check infers from the groups which
steps were done (``domain.model.moves``).
"""

from dataclasses import replace

from evenkeel.domain.model.convergence import Deleting, opened_step
from evenkeel.domain.model.moves import FOR_PODS, Move
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.rebalancing.writes import bounds_of


def opened(pool: PoolPlan, id: str) -> PoolState:
    """Return the state to store before the first patch: with adopted bounds, and with the new move and its id.

    The plans of both pools of a return from a fallback need the same id (``PoolPlan.journal_of``).
    """
    state, step = pool.next_state, pool.convergence.step
    if isinstance(step, Deleting) and step.of_fallback:
        state = replace(state, convergence=opened_step(state.convergence, step, id))
    if not pool.changes:
        return state
    release = pool.release.planned or state.release
    adopted = {**state.adopted, **pool.adopted}
    state = replace(state, adopted=adopted, desired_bounds=_desired_bounds(pool), release=release)
    if pool.mode.closes and state.closed_at is None:
        state = replace(state, closed_at=time_of(id))
    if pool.replicas.added:
        state = replace(state, added_at=time_of(id), added=pool.replicas.added)
    if not pool.moves:
        return state
    # A step of converge stores its own progress, so its move has no replicas to place in another zone.
    if pool.convergence.gives_to is not None:
        return replace(state, move=Move(id=id))
    if step is not None:
        return replace(state, move=Move(id=id), convergence=opened_step(state.convergence, step, id))
    move = Move(id=id, unplaced=pool.replicas.unplaced_before, steps=pool.moves)
    request = pool.request.current
    if request is not None:
        if request.nodes < 0:
            later = pool.request.later
            begun = request.nodes - request.later + later
        else:
            later = 0 if request.is_of_plan else pool.request.missing + pool.request.later
            begun = request.nodes + request.later - later
        move = replace(move, unplaced=begun, request=request.id, only=tuple(sorted(request.only)), later=later)
    grows = request is not None and any(step > 0 for step in pool.moves.values())
    orders = state.orders
    if grows:
        if release is not None and request is not None and request.id == FOR_PODS:
            release = replace(release, ordered={str(plan.group.key): plan.requested for plan in pool.groups})
        orders = orders if pool.demand.orders is None else pool.demand.orders
        state = replace(state, grew_at=time_of(id))
    return replace(state, move=move, release=release, orders=orders)


def _desired_bounds(pool: PoolPlan) -> dict[str, DesiredBounds]:
    """Return the desired bounds of each owner, with the bounds by Evenkeel that the owner may have after the plan.

    Bounds of earlier writes are omitted. They cannot reappear, because this check has read the owner's bounds after
    those writes.
    """
    desired_bounds = dict(pool.next_state.desired_bounds)
    owners = {plan.group.owner.numbers.ref.id for plan in pool.groups if plan.group.owner.numbers is not None}
    # Drop owners that no longer exist; a recreated owner has another id.
    if all(plan.group.owner.numbers is not None for plan in pool.groups):
        desired_bounds = {id: desired for id, desired in desired_bounds.items() if id in owners}
    for plan in pool.changes:
        owner, desired = plan.group.owner.numbers, desired_bounds_of(plan.group, pool.next_state)
        if owner is None or not owner.takes_ours or desired is None:
            continue
        # Pinned bounds are Evenkeel's, even if they equal the desired bounds. The owner keeps them until the patch
        # arrives.
        ours = [owner.bounds] if owner.bounds != desired or plan.group.ours.pinned else []
        desired_bounds[owner.ref.id] = DesiredBounds(
            bounds=desired, ours=tuple(dict.fromkeys([*ours, *bounds_of(plan)]))
        )
    return desired_bounds


def closed(pool: PoolPlan, state: PoolState) -> PoolState:
    """Return the state to store after the last patch. Of a move, it contains only the unplaced replicas."""
    if not pool.mode.judged:
        return state
    if pool.mode.valid and not pool.mode.closes and state.closed_at is not None:
        state = replace(state, closed_at=None)
    if state.move is None or pool.mode.opens or pool.keeps_journal:
        return state
    return replace(
        state, move=replace(state.move, unplaced=pool.replicas.unplaced, steps={}) if pool.replicas.unplaced else None
    )
