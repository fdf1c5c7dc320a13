"""A pool with survive-zones and pods with every kind of need, compared with places that the test finds."""

from collections import Counter
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage, Level
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from tests.builders import NOW, group, numbers, requested, stated
from tests.parts import replace
from tests.places import NEEDS, Kind, Place, World, new_places, template_of, without_place, workload_of, worlds
from tests.property.survival.test_counts_properties import result_of, surviving

POLICY = replace(surviving(numbers(0, 40)), demand=DemandStage.ADVISE)


def zones_of(world: World) -> str:
    return "".join(sorted({place.zone for place in world} | {"a", "b"}))


def planned(world: World, policy: Policy = POLICY, **first: Any) -> PoolPlan:
    """Return the plan. Further fields are those of the group in zone a."""
    zones = zones_of(world)
    groups = [
        group(zone, sum(place.zone == zone for place in world), template=template_of(zone, world)) for zone in zones
    ]
    groups[0] = replace(groups[0], **first)
    observation = Observation(groups=tuple(groups), workload=workload_of(world))
    (pool,) = plan(observation, ClusterState(), policy, NOW).pools
    return pool


@given(worlds())
def test_a_surviving_pool_has_a_place_for_every_pod_that_may_run_elsewhere(world: World) -> None:
    pool = planned(world)
    if not result_of(pool).survives:
        return
    bound = result_of(pool).bound or {}
    event(f"survives with {sum(bound.values()) > 0}")
    for zone in zones_of(world):
        assert without_place(world, zone) <= bound.get(zone, 0)


@given(worlds())
def test_only_pods_without_a_place_on_any_new_node_count_as_bound(world: World) -> None:
    pool = planned(world)
    for zone in zones_of(world):
        new = new_places(world, zones_of(world), zone, 3)
        assert (result_of(pool).bound or {}).get(zone, 0) == without_place(world, zone, new)


def with_ordered(world: World, pool: PoolPlan) -> World:
    """Return the world after the ordered nodes have registered."""
    zones = zones_of(world)
    more = list(world)
    for zone, count in zip(zones, requested(pool), strict=True):
        there = sum(place.zone == zone for place in world)
        new = [place for place in new_places(world, zones, "", count) if place.zone == zone]
        more += [replace(place, name=f"{zone}{i}") for i, place in enumerate(new) if i >= there]
    return tuple(more)


@given(worlds(), st.sampled_from(Level))
def test_no_autoscaler_may_remove_more_nodes_than_are_unneeded(world: World, level: Level) -> None:
    policy = replace(POLICY, settings=replace(POLICY.settings, level=level))
    pool = planned(world, policy)
    assert pool.demand.advice is not None
    unneeded = Counter(node.group for node in pool.demand.advice.nodes if node.needed is None)
    for planned_group in pool.groups:
        assert planned_group.bounds is not None
        assert planned_group.bounds.min >= planned_group.requested - unneeded[planned_group.group.key]


@given(worlds())
def test_a_frozen_or_full_zone_gets_no_node_and_the_others_get_its_share(world: World) -> None:
    there = sum(place.zone == "a" for place in world)
    free = planned(world)
    for limited in (planned(world, frozen_because=stated("rolling out")), planned(world, zone_max=there)):
        assert requested(limited)[0] == there
        assert result_of(limited).bound == result_of(free).bound or not result_of(limited).possible
        if result_of(limited).possible and not result_of(free).short:
            assert not result_of(limited).short


# A new node changes which zones and nodes are even. So more nodes may be needed once it runs.
@given(worlds([need for need in NEEDS if not need.startswith("even")]))
def test_the_ordered_nodes_suffice(world: World) -> None:
    pool = planned(world)
    assume(result_of(pool).short)
    more = with_ordered(world, pool)
    assert len(more) > len(world)
    for zone in zones_of(world):
        assert without_place(more, zone) <= (result_of(pool).bound or {}).get(zone, 0)


def after_orders(world: World) -> PoolPlan:
    """Return the plan once nothing more is ordered."""
    for _ in range(4):
        pool = planned(world)
        if not result_of(pool).short:
            break
        world = with_ordered(world, pool)
    return pool


@given(worlds())
def test_orders_end_with_a_pool_that_survives(world: World) -> None:
    found = result_of(after_orders(world))
    assert found is not None
    assert found.survives


def test_new_nodes_for_several_zones_have_different_names() -> None:
    near = Kind("k1", 3, 1, "another in the zone", tolerates=True)
    away = Kind("k0", 3, 1, "another in the zone")
    on_b = tuple(Place(f"b{i}", "b", {near: 1}) for i in range(2))
    on_c = tuple(Place(f"c{i}", "c", {away: 1}) for i in range(2))
    found = result_of(after_orders((Place("a0", "a", is_tainted=True), *on_b, *on_c)))
    assert found is not None
    assert found.survives
