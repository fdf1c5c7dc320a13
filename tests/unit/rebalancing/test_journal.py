"""The journal of a pool: stored before the first patch of a plan, closed after the last."""

from datetime import timedelta

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.moves import Move, ScaleRequest
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.rebalancing.journal import closed, opened
from tests.builders import NOW, group, key, numbers, pool_plan, zones
from tests.parts import replace

ID = "01KF0000000000000000000000"
MOVING = pool_plan(zones([5, 3], [2, 3]), numbers(0, 12, on_failure=OnFailure.MOVE), fenced="a")


def test_a_new_move_is_stored_with_its_steps() -> None:
    assert opened(MOVING, ID).move == Move(id=ID, steps={str(key("a")): -3, str(key("b")): 3})


def test_a_new_move_carries_the_unplaced_replicas_of_an_open_one() -> None:
    pool = pool_plan(
        zones([5, 3], [2, 3]),
        numbers(0, 14, on_failure=OnFailure.MOVE),
        fenced="a",
        adopted={MOVING.id: PoolState(move=Move(id="before", unplaced=2))},
    )
    assert opened(pool, ID).move == Move(id=ID, unplaced=2, steps={str(key("a")): -3, str(key("b")): 5})


def test_an_open_move_stays_open_under_a_plan_that_moves_nothing() -> None:
    before = PoolState(move=Move(id="before", unplaced=2))
    pool = pool_plan(zones([5, 3], [2, 3]), numbers(0, 14), fenced="ab", adopted={MOVING.id: before})
    assert pool.changes
    assert opened(pool, ID).move == before.move


def test_adopted_bounds_are_stored_once() -> None:
    stored = PoolState(adopted={str(key("a")): Bounds(1, 2)})
    pool = replace(MOVING, next_state=stored)
    before = {str(plan.group.key): plan.group.bounds for plan in MOVING.groups}
    assert opened(pool, ID).adopted == {**before, str(key("a")): Bounds(1, 2)}


def test_a_scale_request_is_carried_by_the_move() -> None:
    asked = ScaleRequest(id="r1", nodes=4, at=NOW - timedelta(minutes=1), pool="workers", only=frozenset({"b"}))
    move = opened(replace(MOVING, request_current=asked), ID).move
    assert (move.unplaced, move.request, move.only) == (4, "r1", ("b",))


def test_a_plan_that_writes_nothing_opens_nothing() -> None:
    quiet = pool_plan([replace(plan.group, bounds=plan.bounds, requested=plan.requested) for plan in MOVING.groups])
    assert not quiet.changes
    assert opened(quiet, ID) is quiet.next_state


def test_a_completed_move_is_removed() -> None:
    assert closed(MOVING, opened(MOVING, ID)).move is None


def test_unplaced_replicas_are_carried_to_the_next_plan() -> None:
    state = closed(replace(MOVING, unplaced=2), opened(MOVING, ID))
    assert state.move == Move(id=ID, unplaced=2)
    assert state.move.still_unplaced([group("a", 2, move=ID), group("b", 6, move=ID)]) == 2


def test_a_pool_that_stays_closed_to_the_autoscaler_keeps_its_closing_time() -> None:
    since = NOW - timedelta(minutes=5)
    pool = replace(MOVING, closes=True, next_state=PoolState(closed_at=since))
    assert opened(pool, ID).closed_at == since


def test_a_check_without_an_evaluation_closes_nothing() -> None:
    state = opened(MOVING, ID)
    assert closed(replace(MOVING, judged=False), state) is state
