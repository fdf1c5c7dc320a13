"""A drain that does not end is an incident, and a record may not lose the access that its end needs."""

from typing import Any

import pytest

from evenkeel.domain.model.incidents import IncidentKind
from tests.auto_scaling_groups import REGION
from tests.auto_scaling_pods import PodStage
from tests.integration.test_auto_scaling_pods import make, running, unneeded
from tests.stack import Stack


def kinds(stage: PodStage) -> set[IncidentKind]:
    return {incident.kind for incident in stage.store.load("demo").cluster_health.incidents}


@pytest.mark.parametrize("demand", ["off", "scale-up"])
def test_a_drain_of_convergence_that_hangs_is_an_incident_until_it_goes_on(demand: str) -> None:
    stage, names = make(nodes=(1, 4, 4), level="converge", converge={"per_hour": 10}, demand=demand)
    stage.deploy("web", 27, cpu="1200m")
    stage.minutes(1)
    stage.protect("web", 24)
    stage.minutes(1)
    while not stage.cordoned():
        stage.checks(1)
        assert kinds(stage) == set()
    (node,) = stage.cordoned()
    budget = ("poddisruptionbudgets.policy", "default", "web")
    stage.kube.store.patch(*budget, {"spec": {"minAvailable": 27}})
    stage.checks(16)
    assert running(stage, names) == [2, 4, 4]
    (incident,) = stage.store.load("demo").cluster_health.incidents
    assert (incident.kind, incident.message) == (IncidentKind.STEP_HANGS, node)
    stage.kube.store.patch(*budget, {"spec": {"minAvailable": 24}})
    stage.checks(6)
    assert kinds(stage) == set()
    assert node not in stage.nodes()


def draining() -> tuple[PodStage, Stack, str]:
    """Return a cluster with a node that Evenkeel has begun to drain, its stack, and the node."""
    stage, _ = unneeded()
    stage.run()
    (node,) = stage.cordoned()
    clusters: Any = stage.clusters
    return stage, Stack(store=stage.store, clock=stage.clock, clusters=clusters), node  # type: ignore[arg-type]


def without_workload(stage: PodStage) -> dict[str, Any]:
    given: dict[str, Any] = stage.record.model_dump(mode="json", exclude_unset=True)
    return {key: value for key, value in given.items() if key not in ("workload", "demand", "id")}


def test_workload_is_not_taken_out_while_a_node_is_cordoned() -> None:
    stage, stack, node = draining()
    record = without_workload(stage)
    said = f"Evenkeel has cordoned the node of {node}"
    assert said in stack.refused("register", record=record)
    (answer,) = stack.ask("apply", None, records={"demo": record})["clusters"]
    assert not answer["ok"]
    assert said in answer["message"]
    assert stage.store.load("demo").record.workload is not None


def test_once_the_drain_is_called_off_workload_may_go() -> None:
    stage, stack, _ = draining()
    record = without_workload(stage)
    stage.register(demand="off")
    stage.checks(3)
    assert stage.cordoned() == []
    assert stack.ask("register", record=record)["ok"]


def test_another_workload_cluster_counts_as_taken_out() -> None:
    stage, stack, _ = draining()
    other = {"access": {"kind": "eks", "name": "other", "region": REGION}}
    record = without_workload(stage) | {"workload": other, "demand": "full"}
    assert "has cordoned" in stack.refused("register", record=record)


def test_a_forced_unregister_names_the_nodes_that_stay_cordoned() -> None:
    stage, stack, node = draining()
    message = stack.ask("unregister", force=True)["message"]
    assert f"the nodes of {node} stay cordoned" in message
    assert stage.cordoned() == [node]
