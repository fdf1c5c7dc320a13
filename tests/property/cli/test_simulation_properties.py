"""The simulation: Evenkeel's promises hold at every moment, and a second run has the same result."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_cli.simulation.engine import ALONE, Record, Run, variants_of
from evenkeel_cli.simulation.measures import simulation_json
from evenkeel_cli.simulation.scenario import Limit, Scenario, read_scenario

LENGTH = 60  # minutes


def spans(zones: list[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.tuples(st.sampled_from(zones), st.integers(0, LENGTH - 10), st.integers(1, 40)).map(
        lambda drawn: {"zone": drawn[0], "from": f"{drawn[1]}m", "until": f"{drawn[1] + drawn[2]}m"}
    )
    return st.lists(one, max_size=1)


@st.composite
def steps(draw: st.DrawFn, most: int) -> list[dict[str, Any]]:
    moments = sorted(draw(st.lists(st.integers(0, LENGTH * 60), max_size=4, unique=True)))
    return [{"at": f"{at}s", "nodes": draw(st.integers(0, most))} for at in moments]


@st.composite
def scenarios(draw: st.DrawFn, *, disturbed: bool = True) -> Scenario:
    """Draw one or two pools in two or three zones that run out of machines, with any demand and sums within bounds."""
    zones = list("abc")[: draw(st.integers(2, 3))]
    flavour = draw(st.sampled_from(["cluster-api", "auto-scaling"]))
    pools, demand = [], []
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        most = draw(st.integers(len(zones), 15))
        least = draw(st.integers(0, most))
        on_failure = draw(st.sampled_from(["release", "move", "hold"]))
        start = draw(st.integers(0, most))
        pools.append({"name": name, "min": least, "max": most, "start": start, "on_failure": on_failure})
        demand.append({"pool": name, "nodes": draw(steps(20)) or 0})
        if draw(st.booleans()):
            demand.append({"pool": name, "zone": draw(st.sampled_from(zones)), "nodes": draw(steps(8)) or 0})
    return read_scenario(
        {
            "name": "drawn",
            "flavour": flavour,
            "duration": f"{LENGTH}m",
            "seed": draw(st.integers(0, 9)),
            "zones": [
                {
                    "name": zone,
                    "capacity": draw(steps(8)),
                    "provision": f"{draw(st.sampled_from([30, 90, 1000]))}s",
                    "jitter": f"{draw(st.sampled_from([0, 60]))}s",
                    "failure": {"seen": draw(st.sampled_from(["event", "status", "never"]))},
                }
                for zone in zones
            ],
            "quota": {"nodes": draw(steps(20))},
            "pools": pools,
            "demand": demand,
            "fences": draw(spans(zones)),
            "frozen": [{"pool": "one", **span} for span in draw(spans(zones))] if disturbed else [],
            "bad_bounds": [{"pool": "one", **span} for span in draw(spans(zones))]
            if disturbed and flavour == "cluster-api"
            else [],
            "autoscaler": {"balance": draw(st.booleans())},
        },
        "drawn",
    )


class Watched(Run):
    def check(self) -> None:
        before = {node for group in self.world.groups for node in group.nodes()}
        requested = {pool: sum(g.requested for g in groups) for pool, groups in self.world.of_pool.items()}
        super().check()
        gone = [node.name for node in before if node.gone]
        assert not gone, f"running nodes removed at {self.world.now}: {gone}"
        if self.variant.name == ALONE:
            for pool in self.scenario.pools:
                left = sum(group.requested for group in self.world.of_pool[pool.name])
                if pool.on_failure == "move":
                    assert left >= min(requested[pool.name], pool.max), f"replicas lost at {self.world.now}"


def run(scenario: Scenario, strategy: str) -> Record:
    (variant,) = variants_of(scenario, strategy)
    return Watched(scenario, variant)()


names = st.sampled_from(["lax-greedy", "backward-compatible", "adaptive", "balanced", "static", ALONE])


@settings(max_examples=settings().max_examples // 3)
@given(scenarios())
def test_under_balanced_no_pool_ever_requests_more_than_its_maximum(scenario: Scenario) -> None:
    for shot in run(scenario, "balanced").snapshots:
        for pool in scenario.pools:
            assert sum(group.requested for group in shot.of_pool(pool.name)) <= pool.max


@settings(max_examples=settings().max_examples // 3)
@given(scenarios(), names)
def test_no_running_node_is_removed_by_evenkeel_and_no_replica_is_lost_by_a_move(scenario: Scenario, name: str) -> None:
    for shot in run(scenario, name).snapshots:
        for group in shot.groups:
            assert 0 <= group.running <= group.requested


@settings(max_examples=settings().max_examples // 3)
@given(scenarios(disturbed=False), names.filter(lambda name: name != "static"))
def test_every_bound_that_the_autoscaler_can_read_is_valid(scenario: Scenario, name: str) -> None:
    for shot in run(scenario, name).snapshots:
        for group in shot.groups:
            assert 0 <= group.min <= group.max
            assert group.requested <= group.max


@settings(max_examples=20)
@given(scenarios(), names)
def test_a_simulation_is_deterministic(scenario: Scenario, name: str) -> None:
    first, second = (json.dumps(simulation_json([run(scenario, name)])) for _ in range(2))
    assert first == second


@settings(max_examples=settings().max_examples // 3)
@given(scenarios(), names, st.integers(0, 8))
def test_a_zone_never_runs_more_than_it_has_or_had_at_the_start(scenario: Scenario, name: str, room: int) -> None:
    zones = tuple(
        zone.model_copy(update={"capacity": (Limit.model_validate({"at": "0s", "nodes": room}),)})
        for zone in scenario.zones
    )
    found = run(scenario.model_copy(update={"zones": zones}), name)
    for shot in found.snapshots:
        for zone in zones:
            nodes, at_start = (
                sum(g.running for g in one.groups if g.zone == zone.name) for one in (shot, found.snapshots[0])
            )
            assert nodes <= max(room, at_start)
