"""Pods on Auto Scaling groups end to end: nodes are ordered for them, and drained before their instances end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.write.drainer import NodeDrainer
from evenkeel.domain.model.incidents import IncidentKind
from sandbox.auto_scaling.behavior import Behavior, worst
from tests.auto_scaling_groups import ZONES
from tests.auto_scaling_pods import PodStage, rights
from tests.crashing import How, Life, harmed_at
from tests.fakes import plenty

KINDS = ("plain", "managed")


def make(kind: str = "plain", nodes: tuple[int, ...] = (1, 1, 1), **fields: object) -> tuple[PodStage, list[str]]:
    """Return groups of one kind, one per zone, whose instances run."""
    stage, names = PodStage(**fields), []
    for zone, desired in zip(ZONES, nodes, strict=False):
        name = f"workers-{zone[-1]}"
        if kind == "managed":
            name = stage.put_managed(name, zone, 0, desired, 9)
        else:
            stage.put(name, zone, 0, desired, 9)
        names.append(name)
    stage.minutes(6)
    return stage, names


def running(stage: PodStage, names: list[str]) -> list[int]:
    return [stage.numbers(name)[2] for name in names]


def unneeded(kind: str = "plain") -> tuple[PodStage, list[str]]:
    """Return two nodes with two small pods each. One node has been unneeded for long enough."""
    stage, names = make(kind, (1, 1))
    stage.deploy("web", 4, cpu="500m")
    stage.minutes(1)
    stage.protect("web", 3)
    stage.minutes(1)
    stage.run()
    stage.minutes(11)
    return stage, names


def is_clean(stage: PodStage) -> bool:
    """Return True if no pod was lost, and no mark of a drain is left."""
    marked = any(state.marked for state in stage.store.load("demo").state.groups.values())
    return not (stage.lost or stage.below or stage.marks() or stage.cordoned() or marked)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_are_ordered_for_pods_and_drained_once_they_are_unneeded(kind: str) -> None:
    stage, names = make(kind)
    stage.run_on_each_node("agent")
    stage.deploy("web", 15)
    stage.checks(8)
    assert sum(running(stage, names)) == 5
    assert len(stage.pods()) == 15 + 5
    assert all(pod["status"]["phase"] == "Running" for pod in stage.pods())
    stage.protect("web", 2)
    stage.scale("web", 3)
    stage.checks(50)
    assert sum(running(stage, names)) == 1
    assert len(stage.pods()) == 3 + 1
    evictions = stage.kube.requests.matching(method="POST", path_contains="/eviction")
    assert evictions
    assert not any("/agent-" in request.path for request in evictions)
    assert is_clean(stage)


def test_a_drain_is_a_cordon_then_evictions_then_the_end_of_the_instance() -> None:
    stage, names = unneeded()
    stage.run()
    (node,) = stage.cordoned()
    assert (stage.evicted(), len(stage.pods(node))) == (0, 2)
    stage.minutes(1)
    stage.run()
    assert stage.evicted() == 2  # the budget allows one
    stage.minutes(1)
    stage.run()
    assert len([pod for pod in stage.pods(node) if "deletionTimestamp" not in pod["metadata"]]) == 0
    assert running(stage, names) == [1, 1]
    stage.minutes(1)
    stage.checks(3)
    assert node not in stage.nodes()
    assert sum(running(stage, names)) == 1
    assert is_clean(stage)


@pytest.mark.parametrize("behavior", [Behavior, worst])
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])  # a death before a call is one after the previous call
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_dies_at_any_call_of_a_drain_leaves_nothing_behind(
    kind: str, how: How, behavior: Callable[[], Behavior]
) -> None:
    for check in range(4):
        stage, names = unneeded(kind)
        stage.api.behavior.become(behavior())
        stage.checks(check)
        for at, step in harmed_at(stage.die_at(-1, how), how):
            stage, names = unneeded(kind)
            stage.api.behavior.become(behavior())
            stage.checks(check)
            stage.die_at(at, how)
            stage.minutes(1)
            stage.checks(9)
            place = f"check {check}, {step}, {how}"
            assert sum(running(stage, names)) == 1, place
            assert not any(stage.group(name).suspended for name in names), place
            assert is_clean(stage), place


def test_a_node_that_pods_need_again_is_uncordoned() -> None:
    stage, names = unneeded()
    stage.run()
    assert len(stage.cordoned()) == 1
    stage.deploy("more", 5)
    stage.minutes(1)
    stage.checks(2)
    assert sum(running(stage, names)) == 2
    assert is_clean(stage)


@dataclass
class ShortListLife(Life):
    """A life in which one list of nodes leaves some out."""

    short: int = -1  # the number of that list, from 0
    keep: Callable[[Any], Any] = list
    lists: int = 0

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        answer = super().step(name, call, lost)
        if not name.startswith("GET") or not name.endswith("/api/v1/nodes"):
            return answer
        self.lists += 1
        if self.lists - 1 != self.short:
            return answer
        body = json.loads(answer.body)
        return replace(answer, body=json.dumps({**body, "items": self.keep(body["items"])}).encode())


@pytest.mark.parametrize("keep", [lambda items: [], lambda items: items[:1], lambda items: items[1:]])
def test_an_incomplete_list_of_nodes_leaves_no_node_cordoned(keep: Callable[[Any], Any]) -> None:
    """The node of an instance is uncordoned only where it is listed."""
    lists, short = 1, 0
    while short < lists:
        stage, names = unneeded()
        stage.run()
        assert len(stage.cordoned()) == 1
        stage.deploy("more", 5)
        stage.minutes(1)
        life = stage.life = ShortListLife(short=short, keep=keep)
        stage.run()
        stage.life, lists = Life(), life.lists
        stage.minutes(1)
        stage.checks(3)
        assert sum(running(stage, names)) == 2
        assert is_clean(stage), f"list {short}"
        short += 1
    assert lists > 1


def test_a_cordon_of_another_else_stays() -> None:
    stage, _ = unneeded()
    for name in stage.nodes():
        stage.kube.store.patch("nodes", "", name, {"spec": {"unschedulable": True}})
    stage.deploy("more", 1)
    stage.checks(5)
    assert len(stage.cordoned()) == 2
    assert stage.marks() == []


def test_a_drain_that_a_budget_stops_is_an_incident_and_ends_once_it_may() -> None:
    stage, names = unneeded()
    stage.run()
    stage.kube.store.patch("poddisruptionbudgets.policy", "default", "web", {"spec": {"minAvailable": 4}})
    stage.minutes(1)
    stage.checks(17)
    assert sum(running(stage, names)) == 2
    open_kinds = {incident.kind for incident in stage.store.load("demo").cluster_health.incidents}
    assert IncidentKind.DRAIN_HANGS in open_kinds
    stage.kube.store.patch("poddisruptionbudgets.policy", "default", "web", {"spec": {"minAvailable": 3}})
    stage.checks(6)
    assert sum(running(stage, names)) == 1
    assert is_clean(stage)


def test_without_the_right_to_evict_no_instance_ends() -> None:
    stage, names = unneeded()
    stage.kube._rules["evenkeel"] = rights("workload")
    workload = stage.open_workload(stage.record, plenty)
    assert NodeDrainer(workload, plenty).refused() == ["it may not patch nodes", "it may not create pods/eviction"]
    stage.checks(5)
    assert sum(running(stage, names)) == 2
    assert stage.lost == []
    stage.kube._rules["evenkeel"] += rights("drain")
    assert NodeDrainer(workload, plenty).refused() == []


def test_nodes_of_plain_groups_move_back_after_an_outage() -> None:
    stage, names = make(nodes=(1, 4, 4), level="converge", converge={"per_hour": 10}, demand="scale-up")
    stage.deploy("web", 27, cpu="1200m")
    stage.minutes(1)
    stage.protect("web", 24)
    stage.minutes(1)
    for _ in range(60):
        stage.checks(1)
        assert sum(running(stage, names)) >= 9
    assert running(stage, names) == [3, 3, 3]
    assert is_clean(stage)


def waiting(behavior: Behavior) -> tuple[PodStage, list[str]]:
    """Return three nodes and twelve pods that need a node each."""
    stage, names = PodStage(), [f"workers-{zone[-1]}" for zone in ZONES]
    for name, zone in zip(names, ZONES, strict=True):
        stage.put(name, zone, 0, 1, 30, **{"evenkeel.dev/pool-max": "60"})
    stage.minutes(6)
    stage.run()
    stage.api.behavior.become(behavior)
    stage.deploy("web", 12, cpu="3")
    return stage, names


def test_twelve_pods_get_twelve_nodes_where_nodes_join_after_their_instances() -> None:
    late = timedelta(seconds=45)
    stage, names = waiting(Behavior(join=(late, late)))
    for _ in range(10):
        stage.checks(1)
        assert sum(stage.group(name).desired for name in names) <= 12
    assert len(stage.nodes()) == 12
