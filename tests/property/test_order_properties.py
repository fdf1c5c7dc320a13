"""Pods that wait are given nodes: as many as they need, once, within every limit, whatever becomes of the worker."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import Demand, DemandPolicy, PoolOffer
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.workload import ZONE, Pod, TopologySpreadConstraint, Workload
from tests.builders import NOW, key
from tests.crashing import How, Life
from tests.ordering import LOOK, Town
from tests.property.test_advice_properties import looked_at, planned
from tests.property.worlds import World
from tests.workloads import node, pod, pods, pool_offer, selector, template

ORDERS = st.sampled_from([DemandStage.SCALE_UP, DemandStage.FULL])


@st.composite
def waiting(draw: st.DrawFn, most: int = 12, cpu: Sequence[str] = ("500m", "1", "1500m", "2", "3")) -> tuple[Pod, ...]:
    found: list[Pod] = []
    for kind in range(draw(st.integers(1, most))):
        fields: dict[str, Any] = {"cpu": draw(st.sampled_from(cpu))}
        fields["memory"] = draw(st.sampled_from(["1Gi", "3Gi", "6Gi"]))
        if draw(st.integers(0, 3)) == 0:
            fields["node_selector"] = {ZONE: draw(st.sampled_from("abc"))}
        if draw(st.integers(0, 3)) == 0:
            fields["priority"] = draw(st.sampled_from([0, 100]))
        found += [pod(f"p{kind}-{i}", **fields) for i in range(draw(st.integers(1, 4)))]
    return tuple(found)


# ---------------------------------------------------------------- nothing is ordered twice


def ordered(pools: Sequence[PoolOffer], found: Demand) -> tuple[PoolOffer, ...]:
    """The pools once all that was asked for is on its way."""
    nodes = {pool.pool: pool.nodes for pool in found.pools}
    return tuple(
        replace(
            pool,
            room=pool.room - sum(nodes[pool.pool].values()),
            groups=tuple(
                replace(
                    offer,
                    requested=offer.requested + (more := nodes[pool.pool].get(offer.group, 0)),
                    coming=offer.coming + more,
                    room=offer.room - more,
                )
                for offer in pool.groups
            ),
        )
        for pool in pools
    )


POOLS = (pool_offer("small", template=template()), pool_offer("big", template=template(cpu="8", memory="20Gi")))


@settings(max_examples=150)
@given(waiting(cpu=("500m", "1", "1500m", "2", "3", "5")), st.integers(1, 2), st.data())
def test_what_is_on_its_way_for_them_is_enough_for_the_same_pods(
    pods: tuple[Pod, ...], number: int, data: st.DataObject
) -> None:
    """However they were packed when it was ordered, and while some of it registers and starts."""
    pools, policy = POOLS[:number], DemandPolicy()
    found = scale_up(Workload(pods=pods), pools, policy, NOW)
    asked = ordered(pools, found)
    assert scale_up(Workload(pods=pods), asked, policy, NOW).nodes == 0 or found.unmet
    starting, left = [], []
    for pool in asked:
        offers = []
        for offer in pool.groups:
            there = data.draw(st.integers(0, offer.coming))
            size = {} if "small" in offer.group.name else {"cpu": "8", "memory": "20Gi"}
            young = {"group": offer.group, "created_at": NOW - timedelta(seconds=30), "ready": False, "size": size}
            starting += [node(f"{offer.group.name}-{i}", offer.zone, **young) for i in range(there)]
            offers.append(replace(offer, coming=offer.coming - there))
        left.append(replace(pool, groups=tuple(offers)))
    again = scale_up(Workload(pods=pods, nodes=tuple(starting)), left, policy, NOW)
    assert again.nodes == 0 or found.unmet


@st.composite
def spreading(draw: st.DrawFn) -> tuple[Pod, ...]:
    """Pods that spread over zones, one by one, and others of the same size or smaller that may stand anywhere."""
    sizes = ("1", "2", "3")
    size = draw(st.integers(0, 2))
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=draw(st.integers(1, 2)), selector=selector("app in web"))
    spread = pods(draw(st.integers(2, 12)), "w", cpu=sizes[size], labels={"app": "web"}, spread=(constraint,))
    return (*spread, *pods(draw(st.integers(0, 12)), "f", cpu=draw(st.sampled_from(sizes[: size + 1]))))


@settings(max_examples=300)
@given(spreading(), st.data())
def test_in_whatever_order_nodes_come_pods_that_spread_over_zones_ask_for_none_more(
    waiting: tuple[Pod, ...], data: st.DataObject
) -> None:
    """Some of what was ordered is Ready, the rest is on its way, and no pod is bound yet."""
    (pool,), policy = POOLS[:1], DemandPolicy()
    nodes = [
        node(f"old-{offer.zone}-{i}", offer.zone, group=offer.group)
        for offer in pool.groups
        for i in range(data.draw(st.integers(1, 2)))
    ]
    found = scale_up(Workload(pods=waiting, nodes=tuple(nodes)), (pool,), policy, NOW)
    (asked,) = ordered((pool,), found)
    left = []
    for offer in asked.groups:
        come = data.draw(st.integers(0, offer.coming))
        nodes += [node(f"{offer.group.name}-{i}", offer.zone, group=offer.group) for i in range(come)]
        left.append(replace(offer, coming=offer.coming - come))
    again = scale_up(Workload(pods=waiting, nodes=tuple(nodes)), (replace(asked, groups=tuple(left)),), policy, NOW)
    assert again.nodes == 0


@given(looked_at(), ORDERS)
def test_orders_keep_to_the_pool_maximum_and_closed_zones_get_none(
    seen: tuple[World, Workload], stage: DemandStage
) -> None:
    world, _ = seen
    with_pods, plain = planned(*seen, stage), planned(world, None, stage)
    for pool, before in zip(with_pods.pools, plain.pools, strict=True):
        requested, without = (sum(each.requested for each in one.groups) for one in (pool, before))
        if requested != without:
            assert pool.valid
            assert pool.max is not None
            assert without < requested <= pool.max
        for each, bare in zip(pool.groups, before.groups, strict=True):
            if each.state in (State.FENCED, State.FROZEN):
                assert each.requested == bare.requested
            if each.state is State.PROBING:
                assert each.requested <= max(bare.requested, each.group.running + each.group.preserved + 1)
            assert each.requested >= bare.requested


# ---------------------------------------------------------------- a small world that goes on


@settings(max_examples=40)
@given(waiting(6), st.integers(1, 4))
def test_demand_that_healthy_zones_can_serve_is_met_in_a_bounded_number_of_looks(
    pods: tuple[Pod, ...], takes: int
) -> None:
    town = Town(pods, takes=takes)
    asked = scale_up(town.workload(), [replace(POOLS[0], room=27)], DemandPolicy(), NOW).nodes
    # The scheduler takes pods as they come and not the largest first: first fit may need 1.7 times what is best.
    assert town.live(2 * takes + 4) <= 2 * takes + 4
    assert town.faults == []
    assert sum(town.ordered.values()) <= 2 * asked + 1


@settings(max_examples=40)
@given(
    waiting(5),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST])), max_size=3),
    st.booleans(),
)
def test_whatever_runs_die_at_the_same_pods_get_the_same_nodes(
    pods: tuple[Pod, ...], deaths: list[tuple[int, How]], instances: bool
) -> None:
    """Machines take longer than all of it, so that nothing else than orders changes."""
    undisturbed, town = (Town(pods, takes=1000, instances=instances) for _ in range(2))
    undisturbed.run()
    for at, how in deaths:
        town.run(Life(at=at, how=how))
    for _ in range(3):
        town.run()
        town.pass_time()
    assert town.faults == []
    assert town.ordered == undisturbed.ordered
    assert all(pool.move is None for pool in town.store.load("demo").state.pools.values())


def test_a_node_that_goes_takes_no_place_of_the_one_that_comes_for_it() -> None:
    """Its replica is replaced: of three requested two are there, one is on its way, and the fourth is drained."""
    town = Town((pod("p", cpu="3"),))
    town.cluster.change(key("a"), running=0)
    town.nodes["old-a-0"] = replace(town.nodes["old-a-0"], deleting=True)
    town.standing["old-a-0"] = []
    for _ in range(3):
        town.run()
        town.pass_time(timedelta(seconds=1))
    assert town.ordered == {}


def test_a_worker_may_die_at_every_step_of_an_order() -> None:
    pods = tuple(pod(f"p{i}", cpu="3") for i in range(5))
    undisturbed = Town(pods, takes=1000)
    life = Life()
    undisturbed.run(life)
    assert sum(undisturbed.ordered.values()) == 5
    assert sum(step == "api.apply" for step in life.steps) == 3
    found = {}
    for how in (How.BEFORE, How.AFTER, How.LOST):
        for at, step in enumerate(life.steps):
            town = Town(pods, takes=1000)
            town.run(Life(at=at, how=how))
            for _ in range(3):
                town.run()
                town.pass_time()
            if town.ordered != undisturbed.ordered or town.faults:
                found[f"{at} {step}: {how}"] = town.ordered
    assert found == {}


def test_a_workload_that_is_away_orders_nothing_and_the_rest_is_ordered_when_it_is_back() -> None:
    town = Town(tuple(pod(f"p{i}", cpu="3") for i in range(4)))
    town.unread = ClusterUnavailableError("away")
    for _ in range(3):
        town.run()
        town.pass_time()
    assert town.ordered == {}
    town.unread = None
    assert town.live(4) <= 4
    assert sum(town.ordered.values()) == 4


def test_a_dead_zone_costs_what_was_ordered_there_and_the_others_serve_all() -> None:
    town = Town(tuple(pod(f"p{i}", cpu="3") for i in range(6)), provision_timeout=300)
    town.dead = {"a"}
    assert town.live(60) <= 60
    assert town.faults == []


# ---------------------------------------------------------------- looks while pods wait


@pytest.mark.parametrize("pods", [(pod("huge", cpu="64"),), ()], ids=["fits nowhere", "nobody"])
def test_who_fits_nowhere_keeps_no_chain_of_looks_alive(pods: tuple[Pod, ...]) -> None:
    town = Town(pods)
    for _ in range(8):
        town.run()
        town.pass_time(timedelta(minutes=2))
    asked = len(town.queue.second_looks)
    for _ in range(5):
        town.run()
        town.pass_time(timedelta(minutes=2))
    assert town.ordered == {}
    assert len(town.queue.second_looks) == asked


def test_while_pods_wait_for_a_node_on_its_way_the_next_look_comes_in_15_s_and_ends_with_them() -> None:
    town = Town((pod("p", cpu="3"), pod("huge", cpu="64")), takes=8)
    while town.waiting[0].name == "p":
        town.run()
        assert town.queue.second_looks[-1][2] == LOOK.total_seconds()
        town.pass_time()
    for _ in range(8):
        town.run()
        town.pass_time(timedelta(minutes=2))
    asked = len(town.queue.second_looks)
    town.run()
    assert len(town.queue.second_looks) == asked


def test_a_dry_run_orders_nothing_tells_it_once_and_comes_to_rest() -> None:
    town = Town(tuple(pod(f"p{i}", cpu="3") for i in range(4)), dry_run=True)
    told = []
    for _ in range(8):
        summary = town.run()
        assert summary is not None
        told.append(len(summary.decisions))
        town.pass_time(timedelta(minutes=2))
    assert town.ordered == {}
    assert sum(told[2:]) == 0
