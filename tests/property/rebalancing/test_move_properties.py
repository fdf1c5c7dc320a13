"""Plans of moves: replicas that leave a failing zone are added elsewhere, for any pool and wherever a run stops."""

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.rebalancing.writes import in_safe_order
from tests.builders import group, in_backoff, written
from tests.exhaustive.plan_rules import before, check
from tests.parts import replace
from tests.property.worlds import World, pools


def _moving(world: World, *, autoscaler: bool = True) -> World:
    rules = tuple(replace(rule, on_failure=OnFailure.MOVE, min=0) for rule in world.policy.pools)
    return replace(world, policy=replace(world.policy, pools=rules, autoscaler=autoscaler))


#: PoolMinimum is 0, because raising replicas to it is no part of a move.
moving = st.builds(lambda world, autoscaler: _moving(world, autoscaler=autoscaler), pools(), autoscaler=st.booleans())


@st.composite
def failing(draw: st.DrawFn) -> World:
    """Draw a pool within its PoolMaximum whose first zone lacks machines, and which has a healthy zone."""
    world = draw(moving)
    first, *others = world.observation.groups
    others = others or [group("b", 1)]
    stuck = draw(st.integers(1, 5))
    first = replace(first, requested=first.running + stuck, machines=None, frozen_because=None, allowed_replicas=None)
    free = {"frozen_because": None, "launches_stopped": None, "allowed_replicas": None, "zone_max": None}
    others[0] = replace(others[0], machines=None, **free)
    found = (first, *others)
    groups = {**world.state.groups, first.key: in_backoff(FailureClass.CAPACITY)}
    groups.pop(others[0].key, None)
    state = replace(world.state, groups=groups, zones={})
    total = sum(member.requested for member in found)
    rules = tuple(replace(rule, max=total + draw(st.integers(0, 6))) for rule in world.policy.pools)
    return World(Observation(groups=found), state, replace(world.policy, pools=rules))


def after(pool: PoolPlan) -> int:
    return sum(planned.target for planned in pool.groups)


@settings(max_examples=8 * settings().max_examples)
@given(moving)
def test_every_rule_of_a_plan_holds_where_replicas_move(world: World) -> None:
    check(world)


def _owing(world: World, owed: int) -> World:
    """Return the world after a move that removed ``owed`` replicas and stopped before another group got one."""
    (pool,) = world.plan().pools
    move = Move(id="interrupted", unplaced=owed, steps={})
    state = replace(world.state, pools={pool.id: replace(pool.next_state, move=move)})
    return replace(world, state=state)


@given(moving, st.integers(1, 9), st.sampled_from(OnFailure))
def test_the_next_plan_places_what_an_interrupted_move_owes(world: World, owed: int, now_set_to: OnFailure) -> None:
    rules = tuple(replace(rule, on_failure=now_set_to) for rule in world.policy.pools)
    world = replace(world, policy=replace(world.policy, pools=rules))
    pool = _owing(world, owed).pool()
    wanted = min(owed, max(0, pool.max - before(pool)))
    takes = sum(planned.journal_delta for planned in pool.groups if planned.journal_delta > 0)
    gives = -sum(planned.journal_delta for planned in pool.groups if planned.journal_delta < 0)
    assert takes + pool.replicas.unplaced >= wanted
    assert pool.replicas.unplaced <= wanted
    assert pool.report.starved >= pool.replicas.unplaced
    if now_set_to is not OnFailure.RELEASE and before(pool) <= pool.max:
        assert after(pool) + pool.replicas.unplaced == before(pool) + wanted
    if now_set_to is not OnFailure.MOVE:
        assert takes == wanted - pool.replicas.unplaced
        assert gives == 0


def _stopped(world: World, pool: PoolPlan, done: int, move: Move) -> World:
    """Return the world after a plan's journal and first ``done`` patches, before the others."""
    patched: dict[object, NodeGroup] = {}
    for planned in in_safe_order(pool.changes)[:done]:
        after_patch = written(planned, pool.adopted.get(str(planned.group.key)))
        if planned.journal_delta:
            after_patch = replace(after_patch, move=move.id)
        patched[planned.group.key] = after_patch
    groups = tuple(patched.get(group.key, group) for group in world.observation.groups)
    known: PoolState = replace(pool.next_state, adopted=pool.adopted, move=move)
    state = ClusterState(groups=world.state.groups, pools={pool.id: known}, zones=world.state.zones)
    return World(Observation(groups=groups), state, world.policy)


@given(failing(), st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_interruptions_do_not_change_the_sum_in_the_end(world: World, stops: list[int]) -> None:
    (found,) = world.plan().pools
    assert found.moves
    total = before(found)
    running = {planned.group.key: planned.group.running for planned in found.groups}
    now = world
    for number, done in enumerate(stops):
        (pool,) = now.plan().pools
        if not pool.moves:
            break
        known = pool.next_state.move
        owed = known.still_unplaced(planned.group for planned in pool.groups) if known else 0
        now = _stopped(now, pool, done, Move(id=f"move-{number}", unplaced=owed, steps=pool.moves))
    (last,) = now.plan().pools
    assert after(last) + last.replicas.unplaced == total
    assert after(last) <= last.max
    for planned in last.groups:
        assert planned.requested >= min(running[planned.group.key], planned.group.requested)
    # After a complete move, no replica is owed any more, and the next plan moves none.
    if last.replicas.unplaced == 0:
        known = last.next_state.move
        owed = known.still_unplaced(planned.group for planned in last.groups) if known else 0
        end = _stopped(now, last, 99, Move(id="last", unplaced=owed, steps=last.moves))
        absent = sum(planned.requested - planned.target for planned in last.groups)
        assert sum(group.requested for group in end.observation.groups) - absent == total
        (quiet,) = end.plan().pools
        assert quiet.replicas.unplaced == 0
        # A machine may be late before its group has a replica for it. The new replica then fails at once.
        if [planned.state for planned in quiet.groups] == [planned.state for planned in last.groups]:
            assert quiet.moves == {}
