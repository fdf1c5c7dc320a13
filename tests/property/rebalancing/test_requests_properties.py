"""Growth on request for any pool: never past a max, never in zones that the pods do not fit, and even."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.drafts import OWNER_FLOORS
from evenkeel.domain.model.groups import Bounds, NodeGroup, State
from evenkeel.domain.model.moves import Move, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.builders import NOW, stated
from tests.parts import replace
from tests.property.worlds import World, pools

nodes = st.integers(1, 12)


def _asked(world: World, nodes: int, only: frozenset[str] = frozenset()) -> PoolPlan:
    scale_request = ScaleRequest(id="r", nodes=nodes, at=NOW, pool="workers", only=only)
    (pool,) = plan(world.observation, replace(world.state, scale_requests=(scale_request,)), world.policy, NOW).pools
    return pool


@st.composite
def requests(draw: st.DrawFn) -> tuple[ScaleRequest, ...]:
    """Draw requests of one pool: new ones, and ones with a rest for later runs."""
    wanted = draw(st.lists(st.integers(-3, 3).filter(bool), min_size=1, max_size=5))
    found = []
    for number, nodes in enumerate(wanted):
        at = NOW - timedelta(minutes=draw(st.integers(0, 61)))
        made_at = at - timedelta(minutes=draw(st.integers(0, 61)))
        rest = {"is_rest": True, "made_at": made_at} if draw(st.booleans()) else {}
        found.append(replace(ScaleRequest(id=f"r{number}", nodes=nodes, at=at, pool="workers"), **rest))
    return tuple(found)


@given(pools(), requests())
def test_a_pools_unfinished_requests_have_one_direction(world: World, asked: tuple[ScaleRequest, ...]) -> None:
    """With and without a view of pods."""
    state, refused = replace(world.state, scale_requests=asked), []
    for unread in (None, stated("no right to list pods")):
        found = plan(replace(world.observation, workload_unread=unread), state, world.policy, NOW)
        ended = {refusal.scale_request.id: refusal.problem.kind for refusal in found.refusals if not refusal.waits}
        assert len({request.nodes > 0 for request in asked if request.id not in ended}) <= 1
        refused.append(ended)
    assert refused[0] == refused[1]


def _only(world: World, chosen: list[bool]) -> frozenset[str]:
    names = [member.key.name for member in world.observation.groups]
    return frozenset(name for name, wanted in zip(names, chosen, strict=False) if wanted)


def _cap(member: NodeGroup) -> int:
    caps = [
        member.annotations.zone_max,
        member.owner.allowed_replicas and member.owner.allowed_replicas.max,
        member.bounds and member.bounds.max,
    ]
    return min((cap for cap in caps if cap is not None), default=2**31)


def _most_of(planned: GroupPlan) -> int:
    """Return the most nodes that a group may have, also in a slow start."""
    caps = [_cap(planned.group)]
    caps += [
        planned.group.running + int(str(reason.facts["nodes"]))
        for reason in planned.reasons
        if reason.rule is Rule.SLOW_START
    ]
    return min(caps)


def _before(world: World) -> dict[str, int]:
    return {planned.group.key.name: planned.requested for planned in world.pool().groups}


@given(pools(), nodes, st.lists(st.booleans(), min_size=5, max_size=5))
def test_growth_stays_within_bounds_and_chosen_groups(world: World, wanted: int, chosen: list[bool]) -> None:
    only = _only(world, chosen)
    before, pool = _before(world), _asked(world, wanted, only)
    assert pool.max is not None
    added = {planned.group.key.name: planned.requested - before[planned.group.key.name] for planned in pool.groups}
    if pool.request.current is None:
        assert not any(added.values())
        return
    assert sum(added.values()) + pool.request.missing == wanted
    for planned in pool.groups:
        grown = added[planned.group.key.name]
        assert grown >= 0
        if grown:
            assert planned.state is State.HEALTHY
            assert not only or planned.group.key.name in only
            assert planned.requested <= _cap(planned.group)
            assert planned.bounds.max >= planned.requested
    if any(added.values()):
        assert sum(planned.target for planned in pool.groups) <= pool.max


@given(pools(), nodes)
def test_growth_adds_each_node_to_the_smallest_group(world: World, wanted: int) -> None:
    before, pool = _before(world), _asked(world, wanted)
    if pool.request.current is None or pool.max is None:
        return
    sizes = dict(before)
    takers = {planned.group.key.name: _most_of(planned) for planned in pool.groups if planned.state is State.HEALTHY}
    # An empty group that cannot grow keeps the node that its owner always offers (PoolDraft.reserved_nodes).
    insisted = sum(
        max(0, planned.group.owner.least_max - before[name])
        for planned in pool.groups
        if planned.state is not State.FROZEN and takers.get(name := planned.group.key.name, 0) <= before[name]
    )
    absent = sum(planned.requested - planned.target for planned in pool.groups)
    kept = _kept(pool) + (insisted if pool.strategy.reserves else 0) if pool.strategy.adds_up else 0
    for _ in range(wanted):
        open_ones = [name for name, most in takers.items() if sizes[name] < most]
        if not open_ones or sum(sizes.values()) - absent >= pool.max - kept:
            break
        sizes[min(open_ones, key=sizes.__getitem__)] += 1
    # The tie decides which of two equals gets the odd node.
    assert sorted(sizes.values()) == sorted(planned.requested for planned in pool.groups)


def _kept(pool: PoolPlan) -> int:
    frozen = [planned.group for planned in pool.groups if planned.state is State.FROZEN and planned.may_grow]
    return sum(max(0, member.bounds.max - member.requested) for member in frozen if member.bounds is not None)


@given(pools(strategies=(BALANCED,)), nodes)
def test_growth_keeps_balanced_maxima_within_pool_maximum(world: World, wanted: int) -> None:
    """Except for the one node that the owner of the bounds always offers (test_plan_properties.py)."""
    first, *others = world.observation.groups
    frozen = replace(first, frozen_because=stated("rolling out"), bounds=Bounds(0, first.requested + 3))
    pool = _asked(replace(world, observation=Observation(groups=(frozen, *others))), wanted)
    if pool.request.current is None or pool.max is None or not pool.moves:
        return
    written = [planned for planned in pool.groups if planned.state is not State.FROZEN]
    insisted = sum(max(0, planned.group.owner.least_max - planned.requested) for planned in written)
    total = sum(
        max(planned.requested, planned.bounds.max if planned.bounds else 0) if planned.may_grow else planned.target
        for planned in pool.groups
    )
    assert total <= pool.max + insisted


@given(pools(), st.integers(1, 12), st.randoms())
def test_the_order_of_the_groups_is_irrelevant(world: World, wanted: int, chance: object) -> None:
    mixed = list(world.observation.groups)
    chance.shuffle(mixed)
    other = replace(world, observation=Observation(groups=tuple(mixed)))
    found = [{planned.group.key: planned.requested for planned in _asked(one, wanted).groups} for one in (world, other)]
    assert found[0] == found[1]


@given(pools(), nodes)
def test_giving_back_keeps_minima_and_takes_fenced_zones_last(world: World, wanted: int) -> None:
    before, pool = _before(world), _asked(world, -wanted)
    if pool.request.current is None or pool.min is None:
        return
    gone = {planned.group.key.name: before[planned.group.key.name] - planned.requested for planned in pool.groups}
    total = sum(planned.requested for planned in pool.groups)
    assert sum(gone.values()) + pool.request.missing == wanted
    for planned in pool.groups:
        if gone[planned.group.key.name]:
            assert planned.removal.may_remove_running
            assert planned.state is not State.FROZEN
            assert planned.requested >= _floor(planned.group)
            assert total >= pool.min
    if any(gone[planned.group.key.name] for planned in pool.groups if planned.state is State.FENCED):
        for planned in pool.groups:
            # Replicas that this check adds cannot be removed yet.
            if planned.state in (State.HEALTHY, State.PROBING) and planned.requested <= planned.group.requested:
                assert planned.requested <= max(_floor(planned.group), planned.fewest(without=OWNER_FLOORS))


def _floor(member: NodeGroup) -> int:
    return max(
        member.bounds.min if member.bounds else 0,
        member.owner.allowed_replicas.min if member.owner.allowed_replicas else 0,
    )


@given(pools(), st.integers(-12, 12).filter(bool))
def test_a_finished_request_changes_nothing_more(world: World, wanted: int) -> None:
    """After the journal and the marks of all groups, the same request changes nothing more."""
    pool = _asked(world, wanted)
    if pool.request.current is None:
        return
    assert sum(pool.moves.values()) == (wanted - pool.request.missing if wanted > 0 else wanted + pool.request.missing)
    id = ulid(NOW, b"0123456789")
    move = Move(id=id, unplaced=sum(pool.moves.values()), steps=pool.moves, request="r")
    done = tuple(
        replace(
            planned.group,
            requested=planned.requested,
            running=min(planned.group.running, planned.requested),
            move=id if planned.journal_delta else None,
        )
        for planned in pool.groups
    )
    state = replace(world.state, pools={pool.id: PoolState(move=move)}, scale_requests=(pool.request.current,))
    (again,) = plan(Observation(groups=done), state, world.policy, NOW).pools
    assert again.moves == {}
