"""`evenkeel forecast`: the loss of a zone against an independent placement, with and without limits."""

from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import ZONE, Node, Owner, Pod, Workload
from evenkeel.domain.plan import plan
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.forecast_answers import Foreseen
from evenkeel_cli.simulation.forecast import Outcome, foresee
from evenkeel_cli.simulation.loss import EVICTED, Loss
from tests import places
from tests.builders import NOW, group
from tests.parts import replace
from tests.workloads import container, group_key, node, pod, template

ALONE = {"autoscaler": "none", "demand": "full", "on_failure": "move"}
NO_PLAN = Plan(now=NOW, pools=(), skipped=(), states={})
PER_NODE = 4  # pods of one core on a node of four


def world(nodes: dict[str, int], pods: dict[str, int], most: int, bound: int = 0) -> Observation:
    """Return a pool of three zones, with pods on the first nodes. The first ``bound`` pods of zone a run only there."""
    groups: list[NodeGroup] = []
    all_nodes: list[Node] = []
    all_pods: list[Pod] = []
    for zone, count in nodes.items():
        key = group_key(zone)
        groups.append(
            group(zone, count, bounds=(0, most), pool="workers", key=key, pool_min=0, pool_max=most, node=template())
        )
        all_nodes += [node(f"{zone}-{i}", zone, group=key, created_at=NOW) for i in range(count)]
        for i in range(min(pods[zone], count * PER_NODE)):
            here: dict[str, Any] = {"node_selector": {ZONE: zone}} if zone == "a" and i < bound else {}
            owner = Owner("ReplicaSet", "bound" if here else "free")
            all_pods.append(pod(f"{zone}-{i}", node=f"{zone}-{i // PER_NODE}", owner=owner, **here))
    return Observation(groups=tuple(groups), workload=Workload(nodes=tuple(all_nodes), pods=tuple(all_pods)))


def foreseen(observation: Observation, zone: str = "a", **record: Any) -> Outcome:
    policy = read_model(ClusterFile, {**ALONE, **record}, "record")
    planned = plan(observation, ClusterState(), policy.policy(), NOW)
    return foresee(Loss(observation, planned, NOW, zone), policy, ClusterState())


def running(outcome: Outcome) -> dict[str, int]:
    return {group.zone: group.running for group in outcome.snapshots[-1].groups}


numbers = st.fixed_dictionaries(dict.fromkeys("abc", st.integers(0, 4)))
counts = st.fixed_dictionaries(dict.fromkeys("abc", st.integers(0, 16)))


@settings(max_examples=10)
@given(nodes=numbers, pods=counts, more=st.integers(0, 6), bound=st.integers(0, 6))
def test_a_pod_waits_for_ever_only_if_it_fits_nowhere_within_the_limits(
    nodes: dict[str, int], pods: dict[str, int], more: int, bound: int
) -> None:
    most = sum(nodes.values()) + more
    outcome = foreseen(world(nodes, pods, most, bound))

    placed = {zone: min(pods[zone], nodes[zone] * PER_NODE) for zone in "abc"}
    homeless = placed["a"] - min(bound, placed["a"])
    free = sum(nodes[zone] * PER_NODE - placed[zone] for zone in "bc")
    # Replicas of the lost zone count until they are released, so that the others may grow to PoolMaximum.
    possible = free + (most - nodes["b"] - nodes["c"]) * PER_NODE
    assert sum(outcome.bound.values()) == min(bound, placed["a"])
    assert sum(waits.never for waits in outcome.waits) == max(0, homeless - possible)
    assert sum(waits.pods for waits in outcome.waits) == homeless
    after = running(outcome)
    assert after["a"] == 0
    least = ceil(max(0, min(homeless, possible) - free) / PER_NODE)
    assert after["b"] + after["c"] >= nodes["b"] + nodes["c"] + least


def test_a_forecast_is_the_same_each_time() -> None:
    observation = world({"a": 3, "b": 2, "c": 2}, {"a": 12, "b": 8, "c": 6}, 9)

    assert foreseen(observation) == foreseen(observation)


def test_pods_with_free_places_wait_only_for_their_eviction() -> None:
    outcome = foreseen(world({"a": 1, "b": 2, "c": 2}, {"a": 4, "b": 4, "c": 4}, 9))

    assert [(waits.pods, waits.longest, waits.never) for waits in outcome.waits] == [(4, EVICTED, 0)]
    assert outcome.survives


def test_the_pool_maximum_that_keeps_pods_waiting_is_named() -> None:
    outcome = foreseen(world({"a": 2, "b": 2, "c": 2}, {"a": 8, "b": 8, "c": 8}, 5))

    assert [(waits.pods, waits.never) for waits in outcome.waits] == [(8, 4)]
    assert outcome.at_maximum == ("cluster-api/default/workers",)
    assert not outcome.survives


def test_cluster_autoscaler_orders_the_nodes_next_to_which_evenkeel_runs() -> None:
    record = {"autoscaler": "cluster-autoscaler", "demand": "off", "on_failure": "release"}
    outcome = foreseen(world({"a": 2, "b": 2, "c": 2}, {"a": 8, "b": 8, "c": 8}, 9), **record)

    assert [(waits.pods, waits.never) for waits in outcome.waits] == [(8, 0)]
    assert running(outcome) == {"a": 0, "b": 3, "c": 3}


@pytest.mark.parametrize("record", [{}, {"autoscaler": "cluster-autoscaler", "demand": "off", "on_failure": "release"}])
def test_a_pod_waits_for_its_gpu(record: dict[str, Any]) -> None:
    size, resource = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"}, {"nvidia_com__gpu": 4}
    keys = {zone: group_key(zone) for zone in "abc"}
    numbers = {"bounds": (0, 2), "pool": "workers", "pool_min": 0, "pool_max": 3, "zone_max": 1}
    groups = [group(zone, 1, key=key, node=template(**size), **numbers) for zone, key in keys.items()]
    nodes = [node(zone, zone, size=size, group=key, created_at=NOW) for zone, key in keys.items()]
    pods = [pod(zone, node=zone, containers=(container(cpu="1", **resource),)) for zone in keys]
    seen = Observation(groups=tuple(groups), workload=Workload(nodes=tuple(nodes), pods=tuple(pods)))

    assert [(waits.pods, waits.never) for waits in foreseen(seen, **record).waits] == [(1, 1)]


def test_a_pod_that_evenkeel_cannot_place_is_bound_to_its_zone() -> None:
    nodes = [node(zone, zone, group=group_key(zone), created_at=NOW) for zone in "ab"]
    pods = [pod("free", node="a"), pod("devices", node="a", owner=Owner("ReplicaSet", "dra"), resource_claims=("gpu",))]
    groups = [group(zone, 1, node=template(), pool="workers", key=group_key(zone)) for zone in "ab"]
    seen = Observation(groups=tuple(groups), workload=Workload(nodes=tuple(nodes), pods=tuple(pods)))
    outcome = foreseen(seen)

    assert (outcome.displaced, dict(outcome.bound)) == (1, {"default/dra": 1})


def test_a_cluster_of_one_zone_does_not_survive_its_loss() -> None:
    outcome = foreseen(world({"a": 2}, {"a": 8}, 9))

    assert (outcome.survives, outcome.never, dict(outcome.bound)) == (False, 8, {})


def test_bound_pods_are_worse_than_pods_that_wait() -> None:
    nodes, pods = {"a": 1, "b": 2}, {"a": 4, "b": 4}
    bound, waits = (
        Foreseen(name="", outcome=foreseen(world(nodes, pods, 9, count)), planned=NO_PLAN, surviving=NO_PLAN, unread="")
        for count in (4, 0)
    )

    assert bound.outcome.survives
    assert bound.badness > waits.badness


def test_each_pod_of_the_lost_zone_counts_once_beside_a_tainted_node() -> None:
    even = places.Kind("k0", 2, 5, "even zones", tolerates=True)
    alone = places.Kind("k2", 3, 9, "no other on the node", tolerates=True)
    bound = places.Kind("k1", 2, 9, "even nodes")
    there = (
        places.Place("a0", "a", {bound: 1}),
        places.Place("a1", "a", {bound: 1}, is_tainted=True),
        places.Place("b0", "b", {even: 1}),
        places.Place("b1", "b", {bound: 1, alone: 2}),
    )
    numbers = {"bounds": (0, 40), "pool_min": 0, "pool_max": 40}
    groups = [
        group(zone, count, template=places.template_of(zone, there), **numbers) for zone, count in (("a", 2), ("b", 2))
    ]
    outcome = foreseen(Observation(groups=tuple(groups), workload=places.workload_of(there)), "b", survive_zones="1")

    (waits,) = outcome.waits
    assert waits.pods == 4, "the pods of the lost zone"
    assert waits.longest is not None
    assert waits.longest < 2 * EVICTED


def test_nodes_are_in_the_zone_of_their_group_whatever_their_label() -> None:
    seen = world({"a": 1, "b": 1, "c": 1}, {"a": 4, "b": 0, "c": 0}, 9)
    assert seen.workload is not None
    unlabelled = tuple(replace(node, labels={}) for node in seen.workload.nodes)
    outcome = foreseen(replace(seen, workload=replace(seen.workload, nodes=unlabelled)))

    assert (outcome.lost_nodes, outcome.displaced) == (1, 4)


def test_an_unknown_zone_is_no_loss() -> None:
    with pytest.raises(KeyError):
        foreseen(world({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}, 5), zone="d")
