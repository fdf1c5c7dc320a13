"""Many instances of one group are removed at once: as many in each run as fit one tag, and none twice."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from evenkeel.application.errors import StateUnavailableError
from evenkeel.domain.model.flavours import AUTO_SCALING, MOST_REMOVED
from sandbox.auto_scaling.behavior import Behavior
from tests.auto_scaling_groups import ZONES, Stage, tag
from tests.auto_scaling_pods import MortalClient
from tests.crashing import How, KilledError, Life, Mortal
from tests.integration.test_auto_scaling_groups import BEHAVIORS
from tests.stack import Stack


def managed(nodes: int, zones: int = 2) -> tuple[Stage, list[str], Stack]:
    """Return managed groups, whose nodes EKS drains."""
    stage = Stage(autoscaler="none", dry_run=False, pools=[{"name": "workers", "max": 90}])
    names = [stage.put_managed(f"workers-{zone[-1]}", zone, 0, nodes, 40) for zone in ZONES[:zones]]
    stage.minutes(6)
    stage.settle()
    return stage, names, Stack(store=stage.store, clock=stage.clock, clusters=stage.clusters)  # type: ignore[arg-type]


def desired(stage: Stage, names: list[str]) -> list[int]:
    return [stage.numbers(name)[1] for name in names]


def request(stage: Stage) -> tuple[bool, str]:
    ((_, record),) = stage.store.load("demo").scale_requests.items()
    return record.done, record.result


def test_each_run_removes_as_many_as_one_write_may_until_the_request_is_done() -> None:
    stage, names, stack = managed(30)
    assert stack.ask("scale-down", pool="workers", nodes=46)["ok"]
    seen = []
    for _ in range(6):
        stage.run()
        seen.append(desired(stage, names))
        stage.minutes(1)
    assert seen[:3] == [[20, 20], [10, 10], [7, 7]]
    assert seen[-1] == [7, 7]
    assert request(stage) == (True, "46 nodes in pool auto-scaling/eu-central-1/demo/workers")


def test_nodes_that_must_stay_are_reported_once_the_last_part_is_done() -> None:
    stage, names, stack = managed(15)
    for name in names:
        stage.api.create_or_update_tags(Tags=[tag(name, "evenkeel.dev/pool-min", "4")])
    assert stack.ask("scale-down", pool="workers", nodes=30)["ok"]
    for _ in range(5):
        stage.run()
        stage.minutes(1)
    assert desired(stage, names) == [2, 2]
    done, result = request(stage)
    assert done
    assert "26 nodes in pool" in result
    assert "4 more have to stay" in result


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("how", [How.BEFORE, How.AFTER, How.LOST])
def test_a_worker_that_dies_at_any_call_removes_no_node_twice(
    how: How, behavior: Callable[[], Behavior], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_REMOVED, AUTO_SCALING, 2)
    at = 0
    while True:
        stage, names, stack = managed(3, zones=1)
        nodes = 2 + at % 2  # two fit one write
        assert stack.ask("scale-down", pool="workers", nodes=nodes)["ok"]
        stage.api.behavior.become(behavior())
        life = Life(at=at, how=how)
        stage.clusters.wrap = lambda client, life=life: MortalClient(client, life)
        stage.clusters.wrap_store = lambda store, life=life: Mortal(store, life, "decisions")
        with suppress(KilledError, StateUnavailableError):
            stage.run()
        if at >= len(life.steps):
            break
        stage.clusters.wrap = stage.clusters.wrap_store = lambda same: same
        stage.minutes(2)
        for _ in range(6):
            stage.run()
            stage.minutes(1)
        place = f"call {at}, {life.steps[at]}, {how}"
        assert desired(stage, names) == [3 - nodes], place
        assert request(stage)[0], place
        at += 1


def test_an_instance_that_another_writer_ends_at_the_same_moment_costs_no_other_one() -> None:
    stage, (name,), stack = managed(5, zones=1)
    assert stack.ask("scale-down", pool="workers", nodes=2)["ok"]
    ended: list[str] = []

    def rival(operation: str, request: dict[str, Any]) -> None:
        if operation == "TerminateInstanceInAutoScalingGroup" and not ended:
            ended.append(request["InstanceId"])
            stage.api.terminate_instance_in_auto_scaling_group(**request)

    stage.api.before = rival
    stage.run()
    stage.minutes(6)
    assert ended
    assert stage.numbers(name)[1:3] == (3, 3)
    for _ in range(8):
        stage.run()
        stage.minutes(1)
        assert stage.numbers(name)[2] == 3
    assert stage.numbers(name)[0] == 0
    assert request(stage)[0]
    assert not stage.store.load("demo").cluster_health.incidents
