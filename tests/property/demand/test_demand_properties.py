"""Balanced with an autoscaler: the limits of demand's effect between scans."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import STOPS
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.builders import Played, applied, group, numbers
from tests.property.worlds import World, pools, states

BALANCED = (BALANCED,)


def _room(member: NodeGroup) -> int:
    return max(0, (member.bounds.max if member.bounds else 0) - member.requested)


def _checked_at(world: World, seconds: float) -> World:
    world = replace(world, now=world.now + timedelta(seconds=seconds))
    observation, state = applied(world.plan(), world.state, world.now)
    return replace(world, observation=observation, state=state)


# Seconds of repeated checks, second checks, loops and scans, and of states that last 65 s or an hour.
waits = st.sampled_from([0, 2, 10, 15, 30, 65, 130, 300, 4000])


@given(pools(strategies=BALANCED), st.data())
def test_autoscaler_loops_never_pass_the_pool_maximum(world: World, data: st.DataObject) -> None:
    """Whatever grows, shrinks, starts, fails, recovers or is requested between checks at any time.

    The limit is PoolMaximum, or the sum at the first check if that was more: see the property of the maxima.
    """
    first = world.pool()
    limit = max(
        first.max, sum(max(planned.requested, planned.bounds.max if planned.bounds else 0) for planned in first.groups)
    )
    for number in range(data.draw(st.integers(1, 8))):
        if data.draw(st.integers(0, 4)) == 0:
            nodes = data.draw(st.integers(-5, 9).filter(bool))
            asked = ScaleRequest(id=f"r{number}", nodes=nodes, at=world.now, pool=first.id.name)
            world = replace(world, state=replace(world.state, scale_requests=(asked,)))
        world = _checked_at(world, data.draw(waits))
        moved = []
        for member in world.observation.groups:
            grown = member.requested + data.draw(st.just(0) | st.integers(0, _room(member)) | st.just(_room(member)))
            requested = data.draw(st.just(grown) | st.integers(0, grown))
            kept = min(member.running, requested)
            running = kept if _is_stopped(member) else data.draw(st.just(requested) | st.just(kept))
            moved.append(replace(member, requested=requested, running=running, machines=None))
        total = sum(map(_most, moved))
        assert total <= limit
        groups = data.draw(st.just(world.state) | states(tuple(moved)))
        world = replace(
            world, observation=Observation(groups=tuple(moved)), state=replace(groups, pools=world.state.pools)
        )


def _is_stopped(member: NodeGroup) -> bool:
    """Return True if nothing launches machines of the group."""
    frozen = member.frozen_because
    return member.status.launches_stopped is not None or (frozen is not None and frozen.rule in STOPS)


def _most(member: NodeGroup) -> int:
    """Return the most machines that a group may have before the next check."""
    if _is_stopped(member):
        return member.running
    return max(member.requested, member.bounds.max if member.bounds else 0)


members = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=8)


def _pool(zones: list[tuple[int, int]], headroom: int, bounds: tuple[int, int] | None) -> Played:
    found = [group("abcdefgh"[i], nodes, bounds=bounds, weight=weight) for i, (nodes, weight) in enumerate(zones)]
    return Played(found, numbers(0, sum(nodes for nodes, _ in zones) + headroom))


@given(members, st.integers(0, 300), st.none() | st.just((0, 30)), st.data())
def test_demand_of_one_zone_gets_all_headroom_in_three_steps(
    zones: list[tuple[int, int]], headroom: int, bounds: tuple[int, int] | None, data: st.DataObject
) -> None:
    """First the offered room, then all but one node for each other zone, then the last nodes."""
    assume(headroom >= len(zones))
    pool = _pool(zones, headroom, bounds)
    wanted = data.draw(st.integers(0, len(zones) - 1))
    pool.check()
    steps = 0
    while _room(pool.groups[wanted]):
        steps += 1
        assert steps <= 3
        pool.check(2, **{"abcdefgh"[wanted]: pool.groups[wanted].requested + _room(pool.groups[wanted])})
        pool.check(15)
    assert pool.groups[wanted].requested == zones[wanted][0] + headroom


@given(members, st.integers(1, 7), st.data())
def test_the_last_nodes_come_to_every_zone_in_turn(
    zones: list[tuple[int, int]], headroom: int, data: st.DataObject
) -> None:
    assume(headroom < len(zones))
    pool = _pool(zones, headroom, None)
    wanted = data.draw(st.integers(0, len(zones) - 1))
    pool.check()
    turns = 0
    while not _room(pool.groups[wanted]):
        turns += 1
        assert turns < len(zones)
        wait = pool.next_check()
        pool.check(wait)
    for _ in range(headroom):  # the first one makes it the last grower, which then gets the rest at once
        pool.check(2, **{"abcdefgh"[wanted]: pool.groups[wanted].requested + _room(pool.groups[wanted])})
    assert pool.groups[wanted].requested == zones[wanted][0] + headroom


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(1, 12), st.integers(0, 40))
def test_replicas_released_by_a_dead_zone_have_room_elsewhere(running: list[int], stuck: int, headroom: int) -> None:
    """After the scan that fences the zone, the healthy zones' maxima hold all nodes that the pool may have."""
    total = sum(running) + stuck + headroom
    found = [group("abcdef"[i], nodes, bounds=(0, total)) for i, nodes in enumerate(running)]
    found[0] = replace(found[0], requested=running[0] + stuck)
    world = World(Observation(groups=tuple(found)), ClusterState(), numbers(0, total))
    world = replace(world, state=replace(world.state, zones={"a": world.plan().now.replace(year=2099)}))
    planned = world.pool().groups
    assert planned[0].state is State.FENCED
    assert planned[0].requested == running[0]
    assert sum(plan.bounds.max for plan in planned if plan.bounds is not None) == total
