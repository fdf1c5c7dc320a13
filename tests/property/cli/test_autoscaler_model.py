"""The model of Cluster Autoscaler with any groups and demand: its limits, and its final state."""

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation.autoscaler_model import (
    Action,
    ClusterAutoscaler,
    Decrease,
    Delete,
    Flags,
    Increase,
    balance,
)
from tests.autoscaling import Group, loop

World = tuple[list[Group], dict[tuple[str, str | None], int]]
ZONES = "abc"
LOOP = 10  # seconds
TIMEOUT = int(Flags().provision_timeout)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw one or two pools in three zones, with nodes, machines that never join, any bounds and any demand."""
    groups, demand = [], {}
    for pool in ("p", "q")[: draw(st.integers(1, 2))]:
        for zone in ZONES:
            low, more = draw(st.integers(0, 3)), draw(st.integers(0, 6))
            group = Group(zone, Bounds(low, low + more), pool)
            group.grow(draw(st.integers(0, 6)), now=0)
            group.deliver()
            group.grow(draw(st.integers(0, 3)), now=0)
            groups.append(group)
        demand[(pool, None)] = draw(st.integers(0, 15))
        demand[(pool, draw(st.sampled_from(ZONES)))] = draw(st.integers(0, 6))
    return groups, demand


delivering = st.sets(st.sampled_from(ZONES))
flags = st.builds(Flags, balance=st.booleans())


@given(worlds(), delivering, flags, st.integers())
def test_actions_stay_within_bounds_and_a_loop_scales_up_once(
    world: World, alive: set[str], flags: Flags, seed: int
) -> None:
    groups, demand = world
    model = ClusterAutoscaler[Group](flags, seed=seed)

    def check(action: Action[Group]) -> None:
        match action:
            case Increase(group, nodes):
                assert nodes > 0
                assert group.requested + nodes <= group.max
                assert not model.in_backoff(group.key, now)
            case Decrease(group, nodes):
                assert 0 < nodes <= group.requested - group.running
                assert group.min <= group.requested - nodes <= group.max
            case Delete(group, _):
                assert group.min <= group.requested - 1 <= group.max

    for number in range(200):
        now = number * LOOP
        actions = loop(model, groups, demand, now, check)
        grown = [action.group for action in actions if isinstance(action, Increase)]
        assert len({group.pool for group in grown}) <= 1
        assert flags.balance or len(grown) <= 1
        assert len({group.key for group in grown}) == len(grown)
        for group in groups:
            if group.zone in alive:
                group.deliver()


@given(worlds(), st.integers())
def test_pods_within_the_bounds_get_nodes_and_the_model_rests(world: World, seed: int) -> None:
    groups, demand = world
    model = ClusterAutoscaler[Group](Flags(scale_down=False), seed=seed)
    for number in range(30):
        loop(model, groups, demand, number * LOOP)
        for group in groups:
            group.deliver()
    assert not loop(model, groups, demand, 300)
    for group in groups:
        pods = demand.get((group.pool, group.zone), 0)
        assert group.running >= min(pods, group.max)
    for pool in {group.pool for group in groups}:
        members = [group for group in groups if group.pool == pool]
        spare = sum(max(0, group.running - demand.get((pool, group.zone), 0)) for group in members)
        assert spare >= demand[(pool, None)] or all(group.running >= group.max for group in members)


@given(worlds(), st.integers())
def test_no_node_is_ordered_twice(world: World, seed: int) -> None:
    groups, demand = world
    for group in groups:
        group.machines = []
    model = ClusterAutoscaler[Group](Flags(), seed=seed)
    for number in range(TIMEOUT // LOOP):
        loop(model, groups, demand, number * LOOP)
    for pool in {group.pool for group in groups}:
        wanted = sum(pods for (name, _), pods in demand.items() if name == pool)
        assert sum(group.requested for group in groups if group.pool == pool) <= wanted


@given(st.integers(0, 5), st.integers(1, 6))
def test_a_dead_zone_is_tried_again_after_twice_the_time_up_to_half_an_hour(low: int, pods: int) -> None:
    group = Group("a", Bounds(0, 6))
    model = ClusterAutoscaler[Group](Flags())
    timeouts: list[int] = []
    orders: list[int] = []
    for now in range(0, 5 * 3600, LOOP):
        for action in loop(model, [group], {("p", None): pods}, now):
            (timeouts if isinstance(action, Decrease) else orders).append(now)
    waits = [order - timeout for timeout, order in zip(timeouts, orders[1:], strict=False)]
    assert waits[:5] == [310, 610, 1210, 1810, 1810]  # the last instant of a backoff belongs to it


@given(worlds(), st.integers(0, 15), st.integers())
def test_nodes_go_only_when_no_pod_needs_them_and_never_below_the_min(world: World, pods: int, seed: int) -> None:
    groups, demand = world
    for group in groups:
        group.machines = [machine for machine in group.machines if machine.node]
    model = ClusterAutoscaler[Group](Flags(), seed=seed)
    for number in range(200):
        now = number * LOOP
        before = {group.key: group.running for group in groups}
        for action in loop(model, groups, demand, now):
            if isinstance(action, Delete):
                assert now >= Flags().unneeded
        for pool in {group.pool for group in groups}:
            members = [group for group in groups if group.pool == pool]
            if any(group.running < before[group.key] for group in members):
                spare = sum(max(0, group.running - demand.get((pool, group.zone), 0)) for group in members)
                assert spare >= demand[(pool, None)]
        for group in groups:
            assert group.running >= min(before[group.key], group.min)
            if group.running < before[group.key]:
                assert group.running >= demand.get((group.pool, group.zone), 0)
            group.deliver()


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=6), st.integers(0, 40))
def test_balancing_is_one_node_at_a_time_to_the_smallest_group_with_room(
    shapes: list[tuple[int, int]], nodes: int
) -> None:
    groups = []
    for i, (size, high) in enumerate(shapes):
        groups.append(Group(str(i), Bounds(0, high)))
        groups[-1].grow(size, now=0)
    sizes = [group.requested for group in groups]
    for _ in range(nodes):
        roomy = [i for i, group in enumerate(groups) if sizes[i] < group.max]
        if not roomy:
            break
        sizes[min(roomy, key=lambda i: (sizes[i], i))] += 1
    added = {group.key: share for group, share in balance(groups, nodes)}
    assert [group.requested + added.get(group.key, 0) for group in groups] == sizes
