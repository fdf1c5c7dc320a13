"""Balanced beside an autoscaler: what demand can and cannot do between the scans."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenkeel.domain.model import NodeGroup, Observation, State, Strategy
from evenkeel.domain.plan import ClusterState
from tests.builders import applied, group, numbers
from tests.property.worlds import World, pools, states

BALANCED = (Strategy.BALANCED,)


def _room(member: NodeGroup) -> int:
    """How far an autoscaler may grow the group."""
    return max(0, (member.bounds.max if member.bounds else 0) - member.requested)


def _scanned(world: World) -> World:
    """The world after one scan of ours."""
    observation, state = applied(world.plan(), world.state)
    return replace(world, observation=observation, state=state)


@settings(max_examples=60)
@given(pools(strategies=BALANCED), st.data())
def test_no_number_of_autoscaler_loops_passes_the_pool_maximum(world: World, data: st.DataObject) -> None:
    """Whatever grows, shrinks, starts, fails or recovers between scans.

    The limit is PoolMaximum, or what stood at the first scan where that was more: see the property of the maxima.
    """
    first = world.pool()
    assert first.max is not None
    limit = max(
        first.max, sum(max(planned.requested, planned.bounds.max if planned.bounds else 0) for planned in first.groups)
    )
    for _ in range(4):
        world = _scanned(world)
        moved = []
        for member in world.observation.groups:
            grown = member.requested + data.draw(st.integers(0, _room(member)) | st.just(_room(member)))
            requested = data.draw(st.just(grown) | st.integers(0, grown))
            running = data.draw(st.just(requested) | st.just(min(member.running, requested)))
            moved.append(replace(member, requested=requested, running=running, machines=None))
        assert sum(member.requested for member in moved) <= limit
        world = replace(
            world,
            observation=Observation(groups=tuple(moved)),
            state=replace(data.draw(states(tuple(moved))), pools=world.state.pools),
        )


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=8),
    st.integers(0, 300),
    st.data(),
)
def test_demand_that_only_one_zone_can_serve_gets_all_headroom_in_logarithmically_many_scans(
    zones: list[tuple[int, int]], headroom: int, data: st.DataObject
) -> None:
    assume(headroom >= len(zones))
    found = [
        group("abcdefgh"[i], nodes, bounds=data.draw(st.none() | st.just((0, 30))), weight=weight)
        for i, (nodes, weight) in enumerate(zones)
    ]
    total = sum(nodes for nodes, _ in zones) + headroom
    wanted = data.draw(st.integers(0, len(zones) - 1))
    world = World(Observation(groups=tuple(found)), ClusterState(), numbers(0, total))
    scans = 0
    while sum(member.requested for member in world.observation.groups) < total:
        world, scans = _scanned(world), scans + 1
        assert scans <= 1 + headroom.bit_length()
        members = list(world.observation.groups)
        grown = members[wanted].requested + _room(members[wanted])
        members[wanted] = replace(members[wanted], requested=grown, running=grown)
        world = replace(world, observation=Observation(groups=tuple(members)))
    assert world.observation.groups[wanted].requested == zones[wanted][0] + headroom


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(1, 12), st.integers(0, 40))
def test_what_a_dead_zone_gives_up_finds_room_elsewhere_at_once(running: list[int], stuck: int, headroom: int) -> None:
    """After the one scan that fences the zone, the healthy zones' maxima hold all that the pool may have."""
    total = sum(running) + stuck + headroom
    found = [group("abcdef"[i], nodes, bounds=(0, total)) for i, nodes in enumerate(running)]
    found[0] = replace(found[0], requested=running[0] + stuck)
    world = World(Observation(groups=tuple(found)), ClusterState(), numbers(0, total))
    world = replace(world, state=replace(world.state, zones={"a": world.plan().now.replace(year=2099)}))
    planned = world.pool().groups
    assert planned[0].state is State.FENCED
    assert planned[0].requested == running[0]
    assert sum(plan.bounds.max for plan in planned if plan.bounds is not None) == total
