"""The nodes that scale-down removes before a forecast's pods need a place."""

from typing import Any

import pytest

from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.plan import plan
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.simulation.forecast import foresee
from evenkeel_cli.simulation.loss import Loss
from evenkeel_cli.simulation.scale_down_now import without_unneeded
from tests.builders import NOW, group
from tests.parts import replace
from tests.workloads import group_key, node, pod, template

FULL = {"autoscaler": "none", "demand": "full", "on_failure": "move"}


def observation(minimum: int = 0, **fields: Any) -> Observation:
    """Return two nodes in each of three zones, of which the second has no pod."""
    nodes = [
        node(f"{zone}-{number}", zone, group=group_key(zone), created_at=NOW) for zone in "abc" for number in range(2)
    ]
    pods = [pod(zone, node=f"{zone}-0", cpu="4") for zone in "abc"]
    numbers = {"bounds": (0, 9), "pool": "workers", "pool_min": minimum, "pool_max": 9, **fields}
    groups = tuple(group(zone, 2, key=group_key(zone), node=template(), **numbers) for zone in "abc")
    return Observation(groups=groups, workload=Workload(nodes=tuple(nodes), pods=tuple(pods)))


def taken(seen: Observation, **record: Any) -> list[str]:
    policy = read_model(ClusterFile, record, "record").policy()
    planned = plan(seen, ClusterState(), policy, NOW)
    found = without_unneeded(seen, planned, ClusterState(), policy, "a")
    assert seen.workload is not None
    assert found.workload is not None
    stay = {node.name for node in found.workload.nodes}
    assert sum(group.requested for group in found.groups) == len(stay)
    return [node.name for node in seen.workload.nodes if node.name not in stay]


@pytest.mark.parametrize("record", [FULL, {}, {"demand": "advise"}])
def test_an_empty_node_outside_the_lost_zone_has_gone(record: dict[str, str]) -> None:
    assert taken(observation(), **record) == ["b-1", "c-1"]


@pytest.mark.parametrize("demand", ["off", "scale-up"])
def test_without_scale_down_every_node_counts(demand: str) -> None:
    assert taken(observation(), autoscaler="none", demand=demand) == []


def test_nodes_within_a_minimum_count() -> None:
    assert taken(observation(zone_min=2), **FULL) == []
    assert len(taken(observation(minimum=5), **FULL)) == 1


def test_nodes_that_survival_keeps_count() -> None:
    """Without one zone, the other four nodes must remain, or one of two empty nodes for its pod."""
    assert taken(observation(minimum=4), survive_zones="1") == []
    assert taken(observation(), survive_zones="1", **FULL) == []  # the unneeded node is in the lost zone


def test_a_node_whose_pod_has_to_move_gets_no_pods() -> None:
    seen = observation()
    assert seen.workload is not None
    places = [pod(zone, node=f"{zone}-0", cpu="3") for zone in "abc"]
    light = replace(seen, workload=replace(seen.workload, pods=(*places, pod("light", node="b-1", cpu="1"))))
    policy = read_model(ClusterFile, FULL, "record").policy()
    found = without_unneeded(light, plan(light, ClusterState(), policy, NOW), ClusterState(), policy, "a")
    assert found.workload is not None
    assert [node.name for node in found.workload.nodes if node.unschedulable] == ["b-1"]
    assert "light" in {pod.name for pod in found.workload.pods}


def test_a_node_that_goes_makes_room_under_the_maximum() -> None:
    full = observation(pool_max=6)
    policy = read_model(ClusterFile, {**FULL, "on_failure": "hold"}, "record")
    planned = plan(full, ClusterState(), policy.policy(), NOW)
    seen = without_unneeded(full, planned, ClusterState(), policy.policy(), "a")
    outcome = foresee(Loss(seen, planned, NOW, "a"), policy, ClusterState())
    assert (outcome.survives, outcome.at_maximum) == (True, ())
