"""Waiting pods get the nodes that they need, once, within every limit, whatever happens to the worker."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import Demand, DemandPolicy, PoolOffer
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.workload import ZONE, Pod, TopologySpreadConstraint, Workload
from tests.builders import NOW, key
from tests.crashing import How, Life
from tests.property.demand.test_advice_properties import checked_at, planned
from tests.property.worlds import World
from tests.workloads import node, pod, pods, pool_offer, selector, template
from tests.world import CHECK, SERVING
from tests.world import World as Serving

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


def ordered(pools: Sequence[PoolOffer], found: Demand) -> tuple[PoolOffer, ...]:
    """Return the pools with all ordered nodes upcoming."""
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


@given(waiting(cpu=("500m", "1", "1500m", "2", "3", "5")), st.integers(1, 2), st.data())
def test_ordered_nodes_are_enough_for_the_same_pods(pods: tuple[Pod, ...], number: int, data: st.DataObject) -> None:
    """However pods were packed for the order, and while some of its nodes register and start."""
    pools, policy = POOLS[:number], DemandPolicy()
    found = scale_up(Simulation(Workload(pods=pods), pools, policy, NOW))
    asked = ordered(pools, found)
    assert scale_up(Simulation(Workload(pods=pods), asked, policy, NOW)).nodes == 0 or found.unmet
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
    again = scale_up(Simulation(Workload(pods=pods, nodes=tuple(starting)), left, policy, NOW))
    assert again.nodes == 0 or found.unmet


@st.composite
def spreading(draw: st.DrawFn) -> tuple[Pod, ...]:
    """Draw pods that spread over zones, one by one, and others of at most their size that run anywhere."""
    sizes = ("1", "2", "3")
    size = draw(st.integers(0, 2))
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=draw(st.integers(1, 2)), selector=selector("app in web"))
    spread = pods(draw(st.integers(2, 12)), "w", cpu=sizes[size], labels={"app": "web"}, spread=(constraint,))
    return (*spread, *pods(draw(st.integers(0, 12)), "f", cpu=draw(st.sampled_from(sizes[: size + 1]))))


@given(spreading(), st.data())
def test_pods_that_spread_order_no_more_while_nodes_come(waiting: tuple[Pod, ...], data: st.DataObject) -> None:
    """Some ordered nodes are Ready, the others are upcoming, and no pod is bound yet."""
    (pool,), policy = POOLS[:1], DemandPolicy()
    nodes = [
        node(f"old-{offer.zone}-{i}", offer.zone, group=offer.group)
        for offer in pool.groups
        for i in range(data.draw(st.integers(1, 2)))
    ]
    found = scale_up(Simulation(Workload(pods=waiting, nodes=tuple(nodes)), (pool,), policy, NOW))
    (asked,) = ordered((pool,), found)
    left = []
    for offer in asked.groups:
        come = data.draw(st.integers(0, offer.coming))
        nodes += [node(f"{offer.group.name}-{i}", offer.zone, group=offer.group) for i in range(come)]
        left.append(replace(offer, coming=offer.coming - come))
    again = scale_up(
        Simulation(Workload(pods=waiting, nodes=tuple(nodes)), (replace(asked, groups=tuple(left)),), policy, NOW)
    )
    assert again.nodes == 0


@given(checked_at(), ORDERS)
def test_orders_keep_to_pool_maximum_and_open_zones(seen: tuple[World, Workload], stage: DemandStage) -> None:
    world, _ = seen
    # If pods are not read, refused replicas move instead of being released.
    with_pods, plain = planned(*seen, stage), planned(world, Workload(), stage)
    for pool, before in zip(with_pods.pools, plain.pools, strict=True):
        requested, without = (sum(each.requested for each in one.groups) for one in (pool, before))
        if requested != without:
            assert pool.mode.valid
            assert without < requested <= pool.max
        for each, bare in zip(pool.groups, before.groups, strict=True):
            if each.state in (State.FENCED, State.FROZEN):
                assert each.requested == bare.requested
            if each.state is State.PROBING:
                assert each.requested <= max(bare.requested, each.group.running + each.group.preserved + 1)
            assert each.requested >= bare.requested


def serving(pods: Sequence[Pod], **fields: Any) -> Serving:
    return Serving(pods=pods, **{**SERVING, **fields})


def by_zone(world: Serving) -> Counter[str]:
    counts = Counter[str]()
    for order in world.orders:
        counts[order.zone] += order.nodes
    return counts


@given(waiting(6), st.integers(1, 4))
def test_demand_is_met_in_a_bounded_number_of_runs(pods: tuple[Pod, ...], takes: int) -> None:
    town = serving(pods, takes=takes * CHECK)
    asked = scale_up(Simulation(town.workload(), [replace(POOLS[0], room=27)], DemandPolicy(), NOW)).nodes
    # The scheduler takes pods in order and not the largest first: first fit may need 1.7 times the fewest nodes.
    town.until(lambda: not town.waiting(), 2 * takes + 4)
    assert town.faults == []
    assert town.ordered <= 2 * asked + 1


@given(
    waiting(5),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST])), max_size=3),
    st.booleans(),
)
def test_runs_that_die_order_no_node_twice(
    pods: tuple[Pod, ...], deaths: list[tuple[int, How]], instances: bool
) -> None:
    """Machines take longer than the test, so that only orders change."""
    undisturbed, town = (serving(pods, takes=1000 * CHECK, instances=instances) for _ in range(2))
    undisturbed.run()
    for at, how in deaths:
        town.run(Life(at=at, how=how))
    for _ in range(3):
        town.run()
        town.pass_time()
    assert town.faults == []
    assert by_zone(town) == by_zone(undisturbed)
    assert not town.has_open_move()


def test_a_drained_node_keeps_the_order_for_its_successor() -> None:
    """Its replica is replaced: of three requested nodes two run and one is upcoming, and a fourth is drained."""
    town = serving((pod("p", cpu="3"),))
    (drained,) = town.in_zone("a")
    town.cluster.set(key("a"), drained, deleting=True)
    del town.pods[f"on-{drained}"]
    town.slow = True
    for _ in range(3):
        town.run()
        town.pass_time(timedelta(seconds=1))
    assert town.ordered == 0


def test_healthy_zones_serve_pods_of_a_dead_one() -> None:
    town = serving(tuple(pod(f"p{i}", cpu="3") for i in range(6)), provision_timeout=300)
    town.dead = {"a"}
    town.until(lambda: not town.waiting(), 60)
    assert town.faults == []


@pytest.mark.parametrize("pods", [(pod("huge", cpu="64"),), ()], ids=["fits nowhere", "nobody"])
def test_a_pod_that_fits_nowhere_causes_no_checks(pods: tuple[Pod, ...]) -> None:
    town = serving(pods)
    for _ in range(8):
        town.run()
        town.pass_time(timedelta(minutes=2))
    asked = len(town.queue.second_checks)
    for _ in range(5):
        town.run()
        town.pass_time(timedelta(minutes=2))
    assert town.ordered == 0
    assert len(town.queue.second_checks) == asked


def test_pods_that_wait_for_a_node_get_checks_every_15_seconds() -> None:
    town = serving((pod("p", cpu="3"), pod("huge", cpu="64")), takes=8 * CHECK)
    while "p" in town.waiting():
        town.run()
        assert town.queue.second_checks[-1][2] == CHECK.total_seconds()
        town.pass_time()
    for _ in range(8):
        town.run()
        town.pass_time(timedelta(minutes=2))
    asked = len(town.queue.second_checks)
    town.run()
    assert len(town.queue.second_checks) == asked


def test_a_dry_run_reports_orders_once() -> None:
    town = serving(tuple(pod(f"p{i}", cpu="3") for i in range(4)), dry_run=True)
    decided = []
    for _ in range(8):
        summary = town.run()
        decided.append(len(summary.decisions))
        town.pass_time(timedelta(minutes=2))
    assert town.ordered == 0
    assert sum(decided[2:]) == 0
