"""A pool with survive-zones, without a view of its pods: its orders, kept nodes and reports."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.domain.model.choices import Level, Strategy
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.survival.model import Survival
from evenkeel.domain.survival.setting import SurviveZones
from tests.builders import Played, minima, numbers, pool_plan, requested, zones
from tests.parts import replace
from tests.property.worlds import World, pools


def surviving(policy: Policy) -> Policy:
    return replace(policy, pools=tuple(replace(rule, survive_zones=SurviveZones.ONE) for rule in policy.pools))


def result_of(plan: PoolPlan) -> Survival:
    result = plan.parts.of(Survival)
    assert result is not None
    return result


def survives(plan: PoolPlan) -> bool:
    return result_of(plan).survives


def without_any_zone(plan: PoolPlan) -> list[int]:
    """Return how many planned nodes run without each zone in turn."""
    nodes: Counter[str | None] = Counter()
    for group in plan.groups:
        nodes[group.group.identity.zone] += min(group.requested, group.group.running)
    return [nodes.total() - count for count in nodes.values()]


@given(pools())
def test_a_pool_reported_as_surviving_holds_its_minimum_without_any_one_zone(world: World) -> None:
    found = replace(world, policy=surviving(world.policy)).pool()
    if result_of(found).survives:
        assert min(without_any_zone(found)) >= (found.min or 0)
    elif result_of(found).possible and not result_of(found).short:
        raise AssertionError("it is short of no node, and yet does not survive")


@given(pools())
def test_each_zone_of_a_pool_that_lacks_nodes_gets_one_or_a_reason(world: World) -> None:
    found = replace(world, policy=surviving(world.policy)).pool()
    in_zones: Counter[str | None] = Counter()
    for group in found.groups:
        in_zones[group.group.identity.zone] += group.requested
    if not result_of(found).possible or in_zones.total() - max(in_zones.values()) >= (found.min or 0):
        return
    if any(why.rule is Rule.SURVIVAL_WAITS for why in result_of(found).causes):
        assert any(group.state in (State.FENCED, State.UNHEALTHY) for group in found.groups)
        return
    ordered = {
        group.group.identity.zone
        for group in found.groups
        if any(why.rule is Rule.SURVIVAL_ORDER for why in group.reasons)
    }
    explained = {why.facts["zone"] for why in result_of(found).causes}
    assert in_zones.keys() == ordered | explained
    assert not ordered & explained


@given(pools())
def test_nothing_is_ordered_in_a_zone_that_cannot_deliver_nor_past_the_maximum(world: World) -> None:
    found = replace(world, policy=surviving(world.policy)).pool()
    ordered = [group for group in found.groups if any(why.rule is Rule.SURVIVAL_ORDER for why in group.reasons)]
    assert not ordered or all(group.state is not State.FENCED for group in found.groups)
    assert all(group.state in (State.HEALTHY, State.PROBING) for group in ordered)
    if ordered:
        assert sum(requested(found)) <= (found.max or 0)


@given(
    st.integers(2, 4).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, 12), st.integers(0, 6))),
    st.sampled_from(list(STRATEGIES)),
)
def test_a_level_pool_orders_as_few_nodes_as_any_way_to_survive_needs(
    case: tuple[int, int, int], strategy: Strategy
) -> None:
    count, nodes, minimum = case
    start = [nodes // count + (i < nodes % count) for i in range(count)]
    ways = product(*(range(low, 13) for low in start))
    fewest = min(sum(way) for way in ways if sum(way) - max(way) >= minimum)
    play = Played(zones(start), surviving(numbers(minimum, 40, strategy)))
    for _ in range(4):
        play.check(60)
        arrive(play)
    pool = play.check(60)
    assert sum(requested(pool)) == fewest
    assert survives(pool)


def arrive(play: Played) -> None:
    """Let every ordered node register."""
    play.groups = [replace(group, running=group.requested) for group in play.groups]


@given(
    st.integers(2, 4).flatmap(
        lambda count: st.tuples(
            st.lists(st.integers(0, 9), min_size=count, max_size=count),
            st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=count, max_size=count),
        )
    ),
    st.integers(0, 9),
    st.sampled_from(list(STRATEGIES)),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=8),
    st.sampled_from(Level),
)
def test_an_autoscaler_within_the_mins_takes_no_node_that_survival_needs(
    world: tuple[list[int], list[int]], minimum: int, strategy: Strategy, takes: list[tuple[int, int]], level: Level
) -> None:
    """So a node that it removes is never ordered again: the pool settles."""
    start, weights = world
    groups = [replace(group, weight=weight) for group, weight in zip(zones(start), weights, strict=True)]
    policy = surviving(numbers(minimum, 1000, strategy))
    play = Played(groups, replace(policy, settings=replace(policy.settings, level=level)))
    for _ in range(6):
        play.check(60)
        arrive(play)
    pool = play.check(60)
    assert survives(pool)
    for zone, nodes in takes:
        group = pool.groups[zone % len(pool.groups)]
        assert group.bounds is not None
        left = max(group.bounds.min, group.requested - nodes)
        pool = play.check(60, **{str(group.group.identity.zone): left})
        assert survives(pool)
        assert not any(planned.requested != planned.group.requested for planned in pool.groups)


@given(pools())
def test_zero_zones_is_as_if_the_setting_were_absent(world: World) -> None:
    rules = tuple(replace(rule, survive_zones=SurviveZones.NONE) for rule in world.policy.pools)
    found = replace(world, policy=replace(world.policy, pools=rules)).pool()
    assert pool_json(found) == pool_json(world.pool())


@given(st.lists(st.integers(0, 9), min_size=2, max_size=4), st.integers(0, 12), st.data())
def test_in_an_outage_survival_orders_nothing_and_keeps_what_a_level_pool_would(
    nodes: list[int], minimum: int, data: st.DataObject
) -> None:
    policy = numbers(minimum, 100)
    zone = data.draw(st.sampled_from("abcd"[: len(nodes)]))
    usual = pool_plan(zones(nodes), policy, fenced=[zone])
    found = pool_plan(zones(nodes), surviving(policy), fenced=[zone])
    assert requested(found) == requested(usual)
    assert all(a >= b for a, b in zip(minima(found), minima(usual), strict=True))
