"""What is remembered of a pool around the writes of its plan: written down before the first, closed after the last.

A run that ends in between leaves the journal open; the next look reads from the groups which steps were done
(:mod:`evenkeel.domain.model.moves`).
"""

from dataclasses import replace

from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import PoolState


def opened(pool: PoolPlan, id: str) -> PoolState:
    """Before the first patch: the bounds that the groups had before us, and the move that begins, under this ULID."""
    state = pool.remembered
    if not pool.changes:
        return state
    state = replace(state, adopted={**pool.adopted, **state.adopted})
    if not pool.moves:
        return state
    move = Move(id=id, unplaced=pool.unplaced_before, steps=pool.moves)
    request = pool.scale_request
    if request is not None:
        move = replace(move, unplaced=request.nodes, request=request.id, only=request.only)
    return replace(state, move=move)


def closed(pool: PoolPlan, state: PoolState) -> PoolState:
    """After every write of the plan is done: what is left of a move is what found no place."""
    if state.move is None or not pool.judged:
        return state
    return replace(state, move=replace(state.move, unplaced=pool.unplaced, steps={}) if pool.unplaced else None)
