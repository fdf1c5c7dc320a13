"""Scans that a simulation skips would have changed nothing."""

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_cli.simulation.engine import Record, Run, variants_of
from evenkeel_cli.simulation.evenkeel import Evenkeel
from evenkeel_cli.simulation.measures import simulation_json
from evenkeel_cli.simulation.scenario import Scenario, read_scenario

HOUR = 3600


def steps(draw: st.DrawFn, name: str, most: int, hours: int) -> list[dict[str, Any]]:
    times = sorted(draw(st.sets(st.integers(1, hours * HOUR), max_size=3)))
    return [{"at": f"{at}s", name: draw(st.integers(0, most))} for at in (0, *times)]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw one or two pools in three zones that refuse launches for a while, with demand in nodes or pods."""
    hours = draw(st.sampled_from([2, 5]))
    zones: list[dict[str, Any]] = []
    for name in "abc":
        zone: dict[str, Any] = {"name": name, "provision": f"{draw(st.integers(20, 200))}s"}
        if draw(st.booleans()):
            start = draw(st.integers(60, hours * HOUR))
            end = start + draw(st.integers(60, 2 * HOUR))
            capacity = [{"at": "0s"}, {"at": f"{start}s", "nodes": draw(st.integers(0, 3))}, {"at": f"{end}s"}]
            zone |= {"capacity": capacity, "failure": {"seen": draw(st.sampled_from(["event", "status", "never"]))}}
        zones.append(zone)
    size = {"cpu": 4, "memory": "16Gi"}
    level = draw(st.sampled_from(["off", "shrink", "converge"]))
    on_failure = draw(st.sampled_from(["move", "release", "hold"]))
    pool = {"min": 3, "max": 12, "start": 3, "node": size, "level": level, "on_failure": on_failure}
    pools = [{"name": "first", **pool}]
    if draw(st.booleans()):
        pools.append({"name": "second", **pool, "min": 0, "start": 0, "fallback_for": "first"})
    given: dict[str, Any] = {"name": "test", "duration": f"{hours}h", "zones": zones, "pools": pools}
    if len(pools) > 1 or draw(st.booleans()):
        spread = draw(st.sampled_from([{}, {"spread": {"zone": 1}}]))
        given["pods"] = [{"name": "shop", "count": steps(draw, "pods", 20, hours), "cpu": "1900m", "memory": "4Gi"}]
        given["pods"][0] |= spread
        if draw(st.booleans()):
            given["autoscaler"] = {"enabled": False}
    else:
        given["demand"] = [{"pool": "first", "nodes": steps(draw, "nodes", 12, hours)}]
    if draw(st.booleans()):
        start = draw(st.integers(1, HOUR))
        given["fences"] = [{"zone": "b", "from": f"{start}s", "until": f"{start + draw(st.integers(1, HOUR))}s"}]
    return read_scenario(given, "test.yaml")


def played(found: Scenario) -> Record:
    (variant,) = variants_of(found, "own")
    return Run(found, variant)()


@settings(max_examples=15)
@given(scenarios())
def test_a_scan_that_is_skipped_would_have_changed_nothing(found: Scenario) -> None:
    skipping = played(found)
    with patch.object(Evenkeel, "repeats", lambda _: False):
        assert simulation_json([played(found)]) == simulation_json([skipping])
