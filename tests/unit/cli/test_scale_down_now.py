"""The nodes that scale-down takes before a forecast's pods need a place."""

from typing import Any

import pytest

from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.plan import plan
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.simulation.scale_down_now import without_unneeded
from tests.builders import NOW, group
from tests.workloads import group_key, node, pod, template

FULL = {"autoscaler": "none", "demand": "full", "on_failure": "move"}


def observation(minimum: int = 0, **fields: Any) -> Observation:
    """Two nodes in each of three zones, of which the second has no pod."""
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
    found = without_unneeded(seen, planned, ClusterState(), policy, NOW)
    assert found.workload is not None
    return [node.name for node in found.workload.nodes if node.unschedulable]


@pytest.mark.parametrize("record", [FULL, {}, {"demand": "advise"}])
def test_a_node_that_is_unneeded_now_gets_no_pods(record: dict[str, str]) -> None:
    assert taken(observation(), **record) == ["a-1", "b-1", "c-1"]


@pytest.mark.parametrize("demand", ["off", "scale-up"])
def test_without_scale_down_every_node_counts(demand: str) -> None:
    assert taken(observation(), autoscaler="none", demand=demand) == []


def test_nodes_within_a_minimum_count() -> None:
    assert taken(observation(zone_min=2), **FULL) == []
    assert len(taken(observation(minimum=5), **FULL)) == 1


def test_nodes_that_survival_keeps_count() -> None:
    """Without one zone, the other four nodes must remain, or one of two empty nodes for its pod."""
    assert taken(observation(minimum=4), survive_zones="1") == []
    assert taken(observation(), survive_zones="1", **FULL) == ["a-1"]
