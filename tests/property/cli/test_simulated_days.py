"""Pods in the simulation: Evenkeel's promises without an autoscaler hold at all times."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_cli.simulation.engine import SERVERLESS, STATIC, Record, Run, variants_of
from evenkeel_cli.simulation.measures import measure, simulation_json
from evenkeel_cli.simulation.scenario import Scenario, read_scenario

LENGTH = 60  # minutes
LAST = 40  # after which nothing changes any more


@st.composite
def kinds(draw: st.DrawFn, name: str) -> dict[str, Any]:
    moments = sorted({0, *draw(st.lists(st.integers(1, LAST), max_size=3))})
    lifetime = draw(st.sampled_from([None, None, "10m"]))
    return {
        "name": name,
        "count": [{"at": f"{at}m", "pods": draw(st.integers(0, 12))} for at in moments],
        "cpu": draw(st.sampled_from(["250m", "1", "1700m"])),
        "memory": draw(st.sampled_from(["512Mi", "5Gi"])),
        "zones": draw(st.sampled_from([(), (), ("a",)])),
        "spread": draw(st.sampled_from([{}, {}, {"zone": 1}, {"node": 1}])),
        "max_unavailable": draw(st.sampled_from([None, 0, 1, 3])),
        **({} if lifetime is None else {"lifetime": lifetime}),
    }


@st.composite
def days(draw: st.DrawFn, *, disturbed: bool = True) -> Scenario:
    zones = list("abc")[: draw(st.integers(2, 3))]
    outage = [{"at": "10m", "nodes": draw(st.integers(0, 3))}, {"at": f"{draw(st.integers(25, LAST))}m"}]
    size = {"cpu": 4, "memory": "16Gi"}
    pools = [{"name": "one", "min": draw(st.integers(0, 3)), "max": 30, "start": draw(st.integers(0, 9)), "node": size}]
    if draw(st.booleans()):
        pools.append({"name": "two", "max": 6, "node": {"cpu": 8, "memory": "16Gi"}})
    if disturbed:
        pools[0]["max"] = draw(st.integers(9, 14))
    return read_scenario(
        {
            "name": "drawn",
            "duration": f"{LENGTH}m",
            "seed": draw(st.integers(0, 9)),
            "zones": [
                {
                    "name": zone,
                    "jitter": f"{draw(st.sampled_from([0, 60]))}s",
                    "capacity": outage if disturbed and zone == "a" else [],
                }
                for zone in zones
            ],
            "pools": pools,
            "pods": [draw(kinds(f"k{number}")) for number in range(draw(st.integers(1, 3)))],
        },
        "drawn",
    )


def run(scenario: Scenario, name: str) -> Record:
    (variant,) = variants_of(scenario, name)
    return Run(scenario, variant)()


@settings(max_examples=15)
@given(days(), st.sampled_from([SERVERLESS, STATIC]))
def test_pool_maxima_and_disruption_budgets_hold(scenario: Scenario, name: str) -> None:
    record = run(scenario, name)
    for shot in record.snapshots:
        assert shot.pods.against_budget == 0
        for pool in scenario.pools:
            assert sum(group.requested for group in shot.of_pool(pool.name)) <= pool.max


@settings(max_examples=15)
@given(days())
def test_running_nodes_are_removed_down_to_the_minimum(scenario: Scenario) -> None:
    shots = run(scenario, SERVERLESS).snapshots
    for before, after in pairwise(shots):
        for pool in scenario.pools:
            was, became = (sum(group.running for group in shot.of_pool(pool.name)) for shot in (before, after))
            assert became >= was or became >= pool.min


@settings(max_examples=15)
@given(days(disturbed=False))
def test_no_pod_that_fits_a_new_node_waits_in_the_end(scenario: Scenario) -> None:
    # A zone in which it cannot run may hold a pod that spreads (decision 174).
    waiting = run(scenario, SERVERLESS).snapshots[-1].pods
    for setup in scenario.pods:
        if setup.spread.zone is None:
            assert waiting.waiting[setup.name] == 0, setup


@settings(max_examples=15)
@given(days(), st.sampled_from([SERVERLESS, STATIC, "balanced"]))
def test_a_simulation_with_pods_is_deterministic(scenario: Scenario, name: str) -> None:
    first, second = (json.dumps(simulation_json([run(scenario, name)])) for _ in range(2))
    assert first == second
    measured = measure(run(scenario, name)).pods
    assert sum(wave.ordered for wave in measured.waves) == (measured.ordered if measured.waves else 0)
