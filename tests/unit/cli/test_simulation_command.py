"""`evenkeel simulate`: output, pictures, replayed histories, and one line per invalid value."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from evenkeel.application.rebalancing.decisions import decision_json
from evenkeel.domain.model import outcomes
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError
from evenkeel_cli import simulate as command
from evenkeel_cli.main import app
from evenkeel_cli.simulation import plot
from evenkeel_cli.simulation.history import scenario_of
from evenkeel_cli.simulation.scenario import PodsSetup, read_scenario, write_duration
from tests.builders import MINUTE, NOW, after_backoff, in_backoff, key, numbers, pool_plan, zones
from tests.unit.project.test_docs import ROOT, block, blocks

SMALL = """
name: small
duration: 30m
zones: [{name: a}, {name: b, capacity: [{at: 5m, nodes: 1}]}]
pools: [{name: workers, max: 6, start: 2}]
demand: [{nodes: [{at: 0s, nodes: 2}, {at: 10m, nodes: 5}]}]
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return str(file)


def simulate(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, ["simulate", *arguments], input=stdin, env={"COLUMNS": "110"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert result.exit_code == code, result.output
    return result


def faults(*arguments: str, stdin: str | None = None) -> list[str]:
    result = simulate(*arguments, code=2, stdin=stdin)
    assert result.stdout == ""
    return result.stderr.splitlines()


def test_a_scenario_runs_with_its_own_or_the_named_strategy(small: str) -> None:
    result = simulate(small, "-o", "json")
    answer = json.loads(result.stdout)
    assert (answer["scenario"], answer["duration"]) == ("small", 1800)
    assert [run["strategy"] for run in answer["runs"]] == ["Balanced"]
    assert simulate("-", "-o", "json", stdin=SMALL).stdout == result.stdout
    for name, expected in [("equitable", "Backward-Compatible"), ("laxgreedy", "Lax-Greedy"), ("static", "static")]:
        answer = json.loads(simulate(small, "--strategy", name, "-o", "json").stdout)
        assert [run["strategy"] for run in answer["runs"]] == [expected]


def test_the_table_has_a_row_per_run_and_fits_a_narrow_terminal(small: str) -> None:
    result = CliRunner().invoke(app, ["simulate", small, "--strategy", "all"], env={"COLUMNS": "80"})
    for name in ("Lax-Greedy", "Backward-Compatible", "Adaptive", "Balanced", "static", "loose", "no-autoscaler"):
        assert f"\n{name} " in result.stdout
    assert "…" not in result.stdout


def test_fences_and_decisions_have_times(small: str) -> None:
    (run,) = json.loads(simulate(small, "-o", "json").stdout)["runs"]
    assert run["fenced"][0]["zone"] == "b"
    assert 600 < run["fenced"][0]["from"] < run["fenced"][0]["until"] <= 1800
    reasons = [reason for one in run["decisions"] for reason in one["reasons"]]
    assert any(reason.startswith("b: fenced until ") and ": capacity failure no. 1" in reason for reason in reasons)
    assert all(one["pool"] == "workers" for one in run["decisions"])


def test_without_an_autoscaler_only_evenkeels_strategies_run() -> None:
    alone = SMALL + "autoscaler: {enabled: false}\n"
    answer = json.loads(simulate("-", "--strategy", "all", "-o", "json", stdin=alone).stdout)
    assert [run["strategy"] for run in answer["runs"]] == ["Lax-Greedy", "Backward-Compatible", "Adaptive", "Balanced"]
    assert faults("-", "--strategy", "static", stdin=alone) == [
        "evenkeel: --strategy is 'static': small has no autoscaler: leave --strategy out"
    ]


PODS = """
name: few
duration: 30m
zones: [{name: a}, {name: b}]
pools: [{name: workers, max: 6, start: 2, node: {cpu: 4, memory: 16Gi}}]
pods: [{name: web, cpu: 1, count: [{at: 0s, pods: 8}, {at: 5m, pods: 14}], max_unavailable: 1}]
"""


def test_with_pods_evenkeel_replaces_the_autoscaler() -> None:
    answer = json.loads(simulate("-", "--strategy", "serverless", "-o", "json", stdin=PODS).stdout)
    (run,) = answer["runs"]
    assert (run["strategy"], run["measures"]["pods"]["ordered"]) == ("serverless", 2)
    assert faults("-", "--strategy", "no-autoscaler", stdin=PODS) == [
        "evenkeel: --strategy is 'no-autoscaler': few has no demand in numbers: leave --strategy out"
    ]
    assert faults("-", "--strategy", "serverless", stdin=SMALL) == [
        "evenkeel: --strategy is 'serverless': small has no pods: leave --strategy out"
    ]


def test_the_table_of_pods_has_its_own_columns() -> None:
    arguments = ["simulate", "-", "--strategy", "all"]
    quote = CliRunner().invoke(app, arguments, input=PODS, env={"COLUMNS": "80"}).stdout
    for text in ("ordered", "evicted", "pod-minutes without a node", "\nserverless "):
        assert text in quote
    assert "…" not in quote
    assert "no-autoscaler" not in quote


def test_a_picture_of_pods_shows_pending_pods(tmp_path: Path) -> None:
    texts = drawn(tmp_path, "--strategy", "serverless", stdin=PODS)
    assert {"pods waiting", "nodes and pods"} <= set(texts)
    assert "demand" not in texts


# Pictures


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_run_draws_the_same_bytes(small: str, tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"
    for file in (first, second):
        simulate(small, "--plot", str(file))
    assert first.read_bytes() == second.read_bytes()


def drawn(tmp_path: Path, *arguments: str, stdin: str) -> list[str]:
    """Return the texts of a picture, in the file's order."""
    import matplotlib

    file = tmp_path / "drawn.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text as text
        simulate("-", *arguments, "--plot", str(file), stdin=stdin)
    text = file.read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    return re.findall(r"<text[^>]*>([^<]+)</text>", text)


def test_a_picture_names_its_axes_zones_outages_and_fences(tmp_path: Path) -> None:
    texts = drawn(tmp_path, "--strategy", "balanced", stdin=SMALL)
    legend = (
        "running in a",
        "running in b",
        "limit of b",
        "demand",
        "unmet demand: pods wait",
        "PoolMaximum",
        "b fenced",
    )
    assert {"small", "nodes", *legend} <= set(texts)
    assert any("(minutes)" in text for text in texts)


def test_a_title_has_the_figures_of_its_row(tmp_path: Path) -> None:
    (run,) = json.loads(simulate("-", "-o", "json", stdin=SMALL).stdout)["runs"]
    found = run["measures"]
    wait, skew, hours = (found[name] for name in ("worst_seconds", "skew_mean", "node_hours"))
    title = f"Evenkeel (Balanced): wait {write_duration(wait)}, skew {skew:.2f}, {hours:.1f} nodes·h"
    assert title in drawn(tmp_path, stdin=SMALL)
    tight = SMALL.replace("max: 6", "max: 4")
    assert any(text.startswith("Evenkeel (Balanced): wait never met, skew") for text in drawn(tmp_path, stdin=tight))


def test_each_pool_has_its_own_figures(tmp_path: Path) -> None:
    pools = "pools: [{name: workers, max: 6, start: 2}, {name: idle, max: 4, start: 4}]"
    two = re.sub(r"pools: .*", pools, SMALL).replace("demand: [{", "demand: [{pool: workers, ")
    titles = [text for text in drawn(tmp_path, stdin=two) if text.startswith("Evenkeel")]
    assert titles[1].startswith("Evenkeel (Balanced), pool idle: wait 0s, skew 0.00, ")
    assert titles[0].startswith("Evenkeel (Balanced), pool workers: wait 1m")


def test_equal_runs_share_a_panel_and_the_baseline_is_last(tmp_path: Path) -> None:
    texts = drawn(tmp_path, "--strategy", "static", "--strategy", "all", stdin=SMALL)
    titles = [text for text in texts if re.match(r"(Evenkeel|cluster-autoscaler alone) \(", text)]
    assert [title.partition(":")[0] for title in titles] == [
        "Evenkeel (Lax-Greedy, Adaptive, Balanced)",
        "Evenkeel (Backward-Compatible)",
        "Evenkeel (no-autoscaler)",
        "cluster-autoscaler alone (static",
        "cluster-autoscaler alone (loose",
    ]


def test_unmet_demand_is_filled_above_the_running_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    filled: list[tuple[float, int, int]] = []
    fill = Axes.fill_between

    def note(panel: Axes, times: Any, lower: Any, upper: Any, **checks: Any) -> Any:
        if checks.get("label") == "unmet demand: pods wait":
            filled.extend(zip(times, lower, upper, strict=True))
        return fill(panel, times, lower, upper, **checks)

    monkeypatch.setattr(Axes, "fill_between", note)
    drawn(tmp_path, stdin=SMALL)
    assert [span for span in filled if span[0] == 10] == [(10, 2, 5)]
    assert all(lower == upper for minute, lower, upper in filled if minute < 10 or minute > 15)


@pytest.mark.parametrize(
    ("limits", "bands"),
    [
        ("zones: [{name: a, capacity: 3}]", []),  # as always
        ("zones: [{name: a, capacity: 0}]", [("outage of a", 0, 1800)]),
        (
            "zones: [{name: a, capacity: [{at: 5m, nodes: 2}, {at: 10m, nodes: 0}, {at: 15m}]}]",
            [("outage of a", 600, 900), ("limit of a", 300, 600)],
        ),
        (
            "zones: [{name: a}]\nquota: {nodes: [{at: 0s, nodes: 9}, {at: 1m, nodes: 4}, {at: 2m, nodes: 9}]}",
            [("limit of the region", 60, 120)],
        ),
    ],
)
def test_a_band_is_a_time_with_fewer_machines_than_at_another_time(limits: str, bands: list[Any]) -> None:
    text = re.sub(r"zones: .*", limits, SMALL)
    scenario = read_scenario(yaml.safe_load(text), "small.yaml")
    found = plot.outages(scenario, ["a"])
    assert [(label, start, until) for label, _, start, until in found] == bands


# Bad input


def test_an_invalid_option_is_one_line(small: str, tmp_path: Path) -> None:
    (line,) = faults(small, "--strategy", "Balnced")
    assert line.startswith("evenkeel: --strategy is 'Balnced': no such strategy: choose one of own, all, Lax-Greedy, ")
    assert line.endswith("; did you mean Balanced?")
    (line,) = faults(small, "--plot", "small.jpg")
    assert line == "evenkeel: --plot is 'small.jpg': name a file that ends in .png or .svg"
    (line,) = faults(small, "--plot", str(tmp_path / "nowhere" / "small.svg"))
    assert line.endswith("small.svg: cannot be written: No such file or directory")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "name is missing"),
        ("[1, 2]", "the whole is '[1, 2]'"),
        ("name: [", "not YAML"),
        ("{name: x, duration: 1h, zones: [], pools: []}", "zones is '[]': empty: write one or more"),
        (SMALL.replace("capacity", "capcity"), "zones.1.capcity is not a field of this record"),
        (SMALL.replace("nodes: 5", "nodes: 5000000"), "demand.0.nodes.1.nodes is '5000000'"),
        (SMALL.replace("30m", "32d"), "duration is '32d': longer than 31 days"),
    ],
)
def test_an_invalid_scenario_is_one_line_per_fault(text: str, says: str) -> None:
    lines = faults("-", stdin=text)
    assert all(line.startswith("evenkeel: standard input: ") for line in lines)
    assert says in lines[0]


def test_a_missing_or_malformed_file_is_one_line(tmp_path: Path) -> None:
    assert faults(str(tmp_path / "none.yaml"))[0].endswith("none.yaml: cannot be read: No such file or directory")
    broken = tmp_path / "history.json"
    broken.write_text("{", encoding="utf-8")
    assert "history.json: not JSON" in faults(str(broken))[0]


# Histories


def decided(after: timedelta, groups: Sequence[NodeGroup], **state: Any) -> dict[str, Any]:
    pool = pool_plan(groups, numbers(3, 12), states=state.get("states"), impaired=state.get("impaired", ()))
    written = {change.group.key: outcomes.Outcome(outcomes.Result.WRITTEN) for change in pool.changes}
    return decision_json(pool, id="0", cluster="blue", at=NOW + after, reason="scan", dry_run=False, outcomes=written)


def history(**changed: Any) -> dict[str, Any]:
    """Return a history: nine nodes are needed at minute 5, and zone a fails at 6 and has recovered by 40."""
    failed = {key("a"): in_backoff(FailureClass.CAPACITY)}
    probing = {key("a"): after_backoff(FailureClass.CAPACITY)}
    return {
        "cluster": "blue",
        "from": rfc3339(NOW),
        "to": rfc3339(NOW + 60 * MINUTE),
        "decisions": [
            decided(0 * MINUTE, zones([1, 1, 1])),
            decided(5 * MINUTE, zones([3, 3, 3], [1, 1, 1])),
            decided(6 * MINUTE, zones([3, 3, 3], [1, 3, 3]), states=failed),
            decided(12 * MINUTE, zones([1, 4, 4]), states=probing),
            decided(40 * MINUTE, zones([2, 4, 4])),
        ],
        **changed,
    }


def test_a_history_becomes_failing_zones_and_demand(tmp_path: Path) -> None:
    found = scenario_of(history(), "history.json")
    assert (found.name, found.start, found.duration) == ("history of blue", NOW, 3600)
    (pool,) = found.pools
    assert (pool.name, pool.min, pool.max) == ("workers", 3, 12)
    assert found.start_of(pool) == {"a": 1, "b": 1, "c": 1}
    (demand,) = found.demand
    assert [(step.at, step.nodes) for step in demand.nodes] == [(0, 3), (300, 9), (360, 9), (720, 9), (2400, 10)]
    first = found.zones[0]
    # From the check before the fence to the successful probe.
    assert [(step.at, step.nodes) for step in first.capacity] == [(300, 0), (720, None)]
    assert all(not zone.capacity for zone in found.zones[1:])


def test_a_history_of_auto_scaling_groups_is_played_beside_the_aws_provider() -> None:
    found = history()
    assert scenario_of(found, "f").flavour == "cluster-api"
    for decision in found["decisions"]:
        for group in decision["pool"]["groups"]:
            group["flavour"] = "auto-scaling"
    assert scenario_of(found, "f").flavour == "auto-scaling"


def test_operator_actions_in_a_history_have_no_effect() -> None:
    asked = {"id": "x", "at": rfc3339(NOW), "cluster": "blue", "cause": "pause", "by": None, "what": "blue is paused"}
    assert scenario_of(history(decisions=[asked, *history()["decisions"]]), "f") == scenario_of(history(), "f")
    with pytest.raises(ConfigError, match=r"decisions\.0\.pool is missing"):
        scenario_of(history(decisions=[{"at": rfc3339(NOW)}]), "f")


def test_a_history_is_replayed_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_text(json.dumps(history()), encoding="utf-8")
    answer = json.loads(simulate(str(file), "-o", "json").stdout)
    assert answer["scenario"] == "history of blue"
    (run,) = answer["runs"]
    assert run["fenced"][0]["zone"] == "a"
    assert 300 < run["fenced"][0]["from"] < 400


@pytest.mark.parametrize(
    ("kind", "code"), [(FailureClass.QUOTA, "VcpuLimitExceeded"), (FailureClass.TIMEOUT, "Timeout")]
)
def test_a_failures_class_survives_the_history(kind: FailureClass, code: str) -> None:
    states = {key("a"): in_backoff(kind)}
    decisions = [decided(0 * MINUTE, zones([1, 1, 1])), decided(MINUTE, zones([2, 1, 1], [1, 1, 1]), states=states)]
    first = scenario_of(history(decisions=decisions), "history.json").zones[0]
    assert first.failure.code == code
    assert first.failure.seen == ("never" if kind is FailureClass.TIMEOUT else "event")
    assert [(step.at, step.nodes) for step in first.capacity] == [(0, 0), (3600, None)]


def test_an_operators_fence_is_in_the_replay() -> None:
    impaired = ((0, ()), (5, ("b",)), (30, ()))
    decisions = [decided(at * MINUTE, zones([1, 1, 1]), impaired=zones_of) for at, zones_of in impaired]
    (fence,) = scenario_of(history(decisions=decisions), "history.json").fences
    assert (fence.zone, fence.start, fence.until) == ("b", 300, 1800)


def test_pools_of_one_name_in_two_namespaces_are_two() -> None:
    other = [replace(group, key=group.key._replace(namespace="other")) for group in zones([2, 2, 2])]
    decisions = [decided(0 * MINUTE, zones([1, 1, 1])), decided(MINUTE, other)]
    found = scenario_of(history(decisions=decisions), "history.json")
    assert [pool.name for pool in found.pools] == ["default.workers", "other.workers"]


def test_a_history_begins_with_the_running_nodes() -> None:
    failed = {key(zone): in_backoff(FailureClass.CAPACITY) for zone in "abc"}
    decisions = [decided(0 * MINUTE, zones([3, 3, 3], [1, 1, 1]), states=failed)]
    found = scenario_of(history(decisions=decisions), "history.json")
    assert found.start_of(found.pools[0]) == {"a": 1, "b": 1, "c": 1}
    (run,) = json.loads(simulate("-", "-o", "json", stdin=json.dumps(history(decisions=decisions))).stdout)["runs"]
    assert run["measures"]["unmet"] == 1, "of all zones none gives a machine, and nine are wanted"


def test_a_history_without_running_nodes_is_read() -> None:
    answer = json.loads(json.dumps(history()))
    for decision in answer["decisions"]:
        for group in decision["pool"]["groups"]:
            del group["running"]
    found = scenario_of(answer, "history.json")
    assert found.start_of(found.pools[0]) == {"a": 1, "b": 1, "c": 1}


def test_a_large_invalid_file_is_reported_with_its_first_faults() -> None:
    wrong = {"demand": [{"no such field": 1}] * 20_000}
    lines = faults("-", stdin=json.dumps(wrong))
    assert len(lines) == 51
    answer = re.fullmatch(r"evenkeel: standard input: (\d+) more values are bad", lines[-1])
    assert answer
    assert int(answer[1]) > 19_950


def test_leaves_at_the_same_time_are_refused() -> None:
    zones = [{"name": "a"}, {"name": "b"}]
    leaves = [{"zone": "a", "from": "1h", "until": "2h"}, {"zone": "b", "from": "90m", "until": "3h"}]
    data = {"name": "x", "duration": "4h", "zones": zones, "pools": [{"name": "w", "min": 1, "max": 6}]}
    data["leaves"] = leaves
    with pytest.raises(ConfigError, match=r"leaves\.1\.zone is 'b': an earlier leave is not over then: end it first"):
        read_scenario(data, "x.yaml")
    leaves[1]["from"] = "2h"
    assert len(read_scenario(data, "x.yaml").leaves) == 2


def test_an_invalid_history_is_one_line() -> None:
    with pytest.raises(ConfigError, match="decisions holds no valid pool: record a longer time"):
        scenario_of(history(decisions=[]), "history.json")
    with pytest.raises(ConfigError, match="to is not after from"):
        scenario_of(history(to=rfc3339(NOW)), "history.json")
    with pytest.raises(ConfigError, match=r"history.json: decisions.0.at is missing"):
        scenario_of(history(decisions=[{"pool": decided(MINUTE, zones([1]))["pool"]}]), "history.json")


# The page's figures


def test_documented_scenarios_are_valid_and_use_every_field() -> None:
    used: set[str] = set()
    for name in ("scenario.yaml", "pods.yaml"):
        text = block("guides/simulate.md", "yaml", name)
        simulate("-", stdin=text)
        used |= set(yaml.safe_load(text))
    assert used == set(command.Scenario.model_fields) - {"about", "start"}
    of_pods = {field for entry in yaml.safe_load(text)["pods"] for field in entry}
    assert of_pods == set(PodsSetup.model_fields)


SHOWN = [text for _, text in blocks(ROOT / "docs" / "guides" / "simulate.md", "console")]


@pytest.mark.parametrize("quote", SHOWN)
def test_every_documented_command_prints_what_the_page_shows(
    quote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "history.json").write_text(json.dumps(history()), encoding="utf-8")
    command, _, printed = quote.partition("\n")
    result = simulate(*shlex.split(command)[3:])
    if printed.strip():
        assert [line.rstrip() for line in result.stdout.splitlines()] == printed.rstrip("\n").splitlines()
