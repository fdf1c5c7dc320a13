"""Pods in the simulation: controllers, scheduler, budgets, drains, and the autoscaler."""

from typing import Any

import pytest

from evenkeel.domain.model.choices import DemandStage
from evenkeel_cli.simulation.engine import SERVERLESS, STATIC, Record, Run, Snapshot, variants_of
from evenkeel_cli.simulation.measures import Measures, PodMeasures, measure
from evenkeel_cli.simulation.pods import PodCounts, Pods
from evenkeel_cli.simulation.scenario import Scenario, read_scenario

MINUTE = 60
SIZE = {"cpu": 4, "memory": "16Gi"}
QUICK = [{"name": name, "answer": "0s", "provision": "60s"} for name in "abc"]


def scenario(*pods: dict[str, Any], **fields: Any) -> Scenario:
    """Return a scenario with three zones and a pool of 3 to 30 nodes: one in each zone, of 4 cores, after a minute."""
    given: dict[str, Any] = {
        "name": "pods",
        "duration": "2h",
        "zones": QUICK,
        "pools": [{"name": "workers", "min": 3, "max": 30, "start": 3, "node": SIZE}],
        "pods": [{"name": f"kind-{number}", **kind} for number, kind in enumerate(pods)],
    }
    return read_scenario({**given, **fields}, "pods.yaml")


def steps(*found: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"at": at, "pods": pods} for at, pods in found]


def made(found: Scenario, name: str) -> Run:
    (variant,) = variants_of(found, name)
    return Run(found, variant)


def run(found: Scenario, name: str) -> Record:
    return made(found, name)()


def of_pods(found: Scenario, name: str) -> PodMeasures:
    measured = measure(run(found, name)).pods
    assert measured is not None
    return measured


def counts(shot: Snapshot) -> PodCounts:
    assert shot.pods is not None
    return shot.pods


def at(record: Record, second: int) -> Snapshot:
    return [shot for shot in record.snapshots if shot.at <= second][-1]


def running(shot: Snapshot) -> list[int]:
    return [group.running for group in shot.groups]


def sized(start: int) -> list[dict[str, Any]]:
    """Return a pool of so many nodes at the start, with PoolMinimum 0."""
    return [{"name": "workers", "min": 0, "max": 30, "start": start, "node": SIZE}]


DRAINING = scenario({"count": 8, "cpu": "250m", "ready": "3m", "max_unavailable": 1}, pools=sized(4))
both = pytest.mark.parametrize("name", [STATIC, SERVERLESS])


# The scheduler and the controllers


def test_pods_are_placed_on_the_emptiest_node() -> None:
    ran = made(scenario({"count": steps(("0s", 6), ("1m", 4)), "cpu": 1}), STATIC)
    ran()
    assert ran.world.pods is not None
    assert sorted(node.pods for node in ran.world.pods.scheduler.nodes.values()) == [1, 1, 2]


def test_a_job_ends_after_its_lifetime() -> None:
    record = run(scenario({"count": steps(("1m", 3)), "cpu": 1, "lifetime": "10m"}), STATIC)
    assert counts(at(record, 11 * MINUTE - 1)).wanted["kind-0"] == 3
    assert counts(at(record, 11 * MINUTE)).wanted["kind-0"] == 0


@both
def test_pods_of_a_zone_get_nodes_there(name: str) -> None:
    record = run(scenario({"count": steps(("1m", 12)), "cpu": 1, "zones": ["b"]}), name)
    assert counts(at(record, 10 * MINUTE)).waiting["kind-0"] == 0
    assert running(at(record, 10 * MINUTE)) == [1, 3, 1]


@both
def test_pods_of_a_pool_or_selector_get_matching_nodes(name: str) -> None:
    pools = [
        {"name": "plain", "max": 12, "node": SIZE},
        {"name": "disks", "max": 12, "node": {**SIZE, "labels": {"disk": "ssd"}}},
    ]
    wanted = [
        {"count": steps(("1m", 2)), "cpu": 3, "selector": {"disk": "ssd"}},
        {"count": steps(("1m", 2)), "cpu": 3, "pool": "plain"},
    ]
    shot = at(run(scenario(*wanted, pools=pools), name), 10 * MINUTE)
    assert [sum(group.running for group in shot.of_pool(pool)) for pool in ("plain", "disks")] == [2, 2]


@both
def test_no_node_is_ordered_for_a_pod_larger_than_any(name: str) -> None:
    found = scenario({"count": steps(("1m", 1)), "cpu": 5})
    measured = measure(run(found, name))
    assert measured.pods is not None
    assert (measured.unmet, measured.pods.ordered) == (1, 0)


# Growth


@both
def test_as_many_nodes_are_ordered_as_pods_fill(name: str) -> None:
    # Three nodes hold 12 of one core; 36 more fill nine.
    measured = of_pods(scenario({"count": steps(("0s", 12), ("10m", 48)), "cpu": 1}), name)
    assert measured.ordered == 9
    assert [wave.skew_high for wave in measured.waves] == [0]


def test_pending_pods_cause_a_check_before_the_next_scan() -> None:
    found = scenario({"count": steps(("0s", 12), ("10m1s", 13)), "cpu": 1})
    rise = of_pods(found, SERVERLESS).rises[1]
    assert rise.seconds is not None
    assert rise.seconds <= 60 + 2 + 2  # the node, the event, and the delay for a new pod


def test_the_pool_with_the_least_waste_is_ordered() -> None:
    pools = [
        {"name": "small", "max": 12, "node": {"cpu": 2, "memory": "8Gi"}},
        {"name": "large", "max": 12, "node": {"cpu": 16, "memory": "64Gi"}},
    ]
    found = scenario({"count": steps(("1m", 1)), "cpu": 2, "memory": "8Gi"}, pools=pools)
    for name in (STATIC, SERVERLESS):
        shot = at(run(found, name), 5 * MINUTE)
        assert [sum(group.requested for group in shot.of_pool(pool)) for pool in ("small", "large")] == [1, 0], name


# Shrinking


def test_the_autoscaler_removes_empty_nodes_together_and_others_one_by_one() -> None:
    empty = run(scenario({"count": 0, "cpu": 1}, pools=sized(9)), STATIC)
    assert [sum(running(shot)) for shot in empty.snapshots] == [9, 0]
    spread = run(scenario({"count": 9, "cpu": 1}, pools=sized(9)), STATIC)
    sizes = [sum(running(shot)) for shot in spread.snapshots]
    assert sizes == sorted(sizes, reverse=True)
    assert set(sizes) == set(range(3, 10))


@pytest.mark.parametrize("pods", [{"cpu": "2001m"}, {"cpu": 1, "max_unavailable": 0}], ids=["utilization", "budget"])
def test_nodes_above_half_utilization_or_under_a_full_budget_stay(pods: dict[str, Any]) -> None:
    last = run(scenario({"count": 6, **pods}, pools=sized(6)), STATIC).snapshots[-1]
    assert (sum(running(last)), counts(last).evicted) == (6, 0)


def test_a_drain_waits_for_its_budget_while_its_node_runs() -> None:
    record = run(DRAINING, STATIC)
    assert counts(record.snapshots[-1]).held > 0
    assert counts(record.snapshots[-1]).against_budget == 0
    drained = [shot for shot in record.snapshots if any(group.drained for group in shot.groups)]
    assert drained
    nodes = {shot.at: sum(g.running + g.drained for g in shot.groups) for shot in record.snapshots}
    ends = [*list(nodes)[1:], DRAINING.duration]
    seconds = sum(count * (until - since) for (since, count), until in zip(nodes.items(), ends, strict=True))
    assert measure(record).node_hours == pytest.approx(seconds / 3600, abs=0.01)


def test_a_drain_against_a_budget_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pods, "allowed", lambda *_: None)
    assert of_pods(DRAINING, STATIC).against_budget > 0


# Measures


def test_waves_begin_with_a_rise_after_a_fall() -> None:
    found = scenario(
        {"count": steps(("0s", 3), ("10m", 9), ("20m", 15), ("50m", 6), ("80m", 12)), "cpu": 1},
        {"count": steps(("30m", 3)), "cpu": 1, "lifetime": "5m"},
    )
    for name in (STATIC, SERVERLESS):
        waves = of_pods(found, name).waves
        assert [(wave.at // MINUTE, wave.pods) for wave in waves] == [(0, 18), (80, 12)]
        assert sum(wave.ordered for wave in waves) == of_pods(found, name).ordered


def test_waiting_times_agree_with_a_calculation_by_hand() -> None:
    # Ordered in the autoscaler's loop at 10m10s: at 10m the pods are too new. A minute later the node runs.
    measured: Measures = measure(run(scenario({"count": steps(("0s", 12), ("10m", 14)), "cpu": 1}), STATIC))
    assert measured.pods is not None
    assert measured.worst_seconds == 70
    assert measured.pods.waiting_pod_minutes == pytest.approx(2 * 70 / 60, abs=0.1)


def test_the_strategy_decides_which_components_run() -> None:
    found = scenario({"count": 3})
    stages = {variant.name: (variant.autoscaler, variant.demand) for variant in variants_of(found, "all")}
    assert stages.pop(SERVERLESS) == (False, DemandStage.FULL)
    assert set(stages.values()) == {(True, DemandStage.OFF)}
    (alone,) = variants_of(scenario({"count": 3}, autoscaler={"enabled": False}), "own")
    assert alone.demand is DemandStage.FULL
