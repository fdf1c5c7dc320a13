"""`evenkeel drill`: forecast, confirmation and report, with the real operator action as the stack."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import answer_of_error
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.workload import Workload
from evenkeel_cli import live, stack_client, terminal
from evenkeel_cli.drill import numbers_of
from evenkeel_cli.inputs import read_text
from evenkeel_cli.main import app
from evenkeel_cli.objects import read_objects
from tests.builders import key
from tests.fakes import NOW, FakeWorkload, plenty
from tests.parts import replace
from tests.stack import Stack
from tests.unit.cli.test_forecast_command import files  # noqa: F401
from tests.workloads import node, pod

BEGIN = "--zone a --for 20m --reason rehearsal"


class AskedStack:
    """A stack whose operator function is the use case itself. ``asked`` has the events."""

    def __init__(self, **fields: Any) -> None:
        self.real = Stack(**fields)
        self.real.settle()
        self.asked: list[dict[str, Any]] = []

    def ask(self, _stack: str, event: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(event)
        by = {"by": "jane"} if event["action"] == "drill" and {"zone", "zone_id", "abort"} & event.keys() else {}
        try:
            answer = self.real.operate({**event, **by}, plenty)
        except EvenkeelError as error:
            answer = answer_of_error(error)
        return dict(json.loads(json.dumps(answer)))

    @property
    def drill(self) -> Any:
        return self.real.store.load("demo").drill


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> AskedStack:
    made = AskedStack()
    monkeypatch.setattr(stack_client, "ask", made.ask)
    return made


def type_(command: str, answer: str | None = None, code: int = 0) -> Result:
    arguments = ["drill", "--stack", "s", "--cluster", "demo", *command.split()]
    result = CliRunner().invoke(app, arguments, input=answer, env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def cluster(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Provide a cluster for --context: one full node of two pods in each of three zones."""

    def observe(policy: Any, *_: object) -> tuple[Observation, Callable[[Observation], Observation]]:
        observation = read_objects([("objects", read_text(files[1]))], policy, NOW)
        return observation, lambda seen: seen

    monkeypatch.setattr(live, "observe", observe)
    assert Path(files[1]).exists()


@pytest.mark.usefixtures("cluster")
def test_the_forecast_is_shown_and_stored_next_to_the_measured_effect(stack: AskedStack) -> None:
    shown = type_(f"{BEGIN} --context blue --yes").stdout
    assert shown.startswith("zone a is lost, 1 node: ")
    assert "zone a of demo is fenced until 2026-01-15T12:23:00Z" in shown
    assert (stack.drill.zone, stack.drill.by, stack.drill.reason) == ("a", "jane", "rehearsal")
    assert (stack.drill.forecast.lost_nodes, stack.drill.forecast.pods) == (1, 2)
    stack.real.runs(2)
    report = type_("").stdout.splitlines()
    assert report[0].startswith("demo: drill: a fenced until 2026-01-15T12:23:00Z by jane: rehearsal")
    rows = {line[:30].strip(): line.split()[-2:] for line in report}
    assert rows["pods that wait"] == ["2", "-"]
    assert rows["pods without a place"][1] == "-"
    assert "forecast: the zone is lost; measured: the zone is fenced, and its nodes stay" in report
    assert max(map(len, report[1:])) <= 80
    document = json.loads(type_("-o json").stdout)
    assert document["drill"]["forecast"]["lostNodes"] == 1
    assert document["drill"]["state"] == "open"


@pytest.mark.usefixtures("cluster")
def test_a_repeated_command_shows_the_report_and_asks_nothing(stack: AskedStack) -> None:
    type_(f"{BEGIN} --context blue --yes")
    began = stack.drill
    report = type_(f"{BEGIN} --context blue").stdout
    assert report.startswith("demo: drill: a fenced until 2026-01-15T12:23:00Z by jane: rehearsal")
    assert "forecast: the zone is lost; measured: the zone is fenced, and its nodes stay" in report
    assert stack.drill == began


def test_without_a_context_the_stack_reads_the_cluster(stack: AskedStack) -> None:
    nodes = [node(f"{zone}-{number}", zone, group=key(zone)) for zone in "abc" for number in range(2)]
    running = [pod(f"web-{each.name}", node=each.name) for each in nodes]
    found = Workload(nodes=tuple(nodes), pods=tuple(running))
    stack.real.clusters.workloads["demo"] = FakeWorkload(found)
    ended = type_(f"{BEGIN} --yes")
    assert (ended.stdout.splitlines()[0][:24], ended.stderr) == ("zone a is lost, 2 nodes:", "")
    assert (stack.drill.forecast.lost_nodes, stack.drill.forecast.pods) == (2, 2)


def test_a_cluster_that_the_stack_cannot_return_is_drilled_without_a_forecast(stack: AskedStack) -> None:
    stack.real.operate = replace(stack.real.operate, pack=lambda _: "x" * 5_000_001)
    ended = type_(f"{BEGIN} --yes")
    assert ended.stderr.startswith("no forecast: cluster demo: its observation has 5000001 characters, ")
    assert stack.drill.forecast is None
    assert "until requested = running" in type_("").stdout


@pytest.mark.parametrize(("answer", "begins"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_it_begins_only_after_a_confirmation(
    answer: str, begins: bool, stack: AskedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "has_terminal", lambda: True)
    ended = type_(BEGIN, answer, code=0 if begins else 2)
    assert "drill: fence zone a of demo for 20m. Go on?" in ended.stderr
    assert (stack.drill is not None) is begins


def test_a_script_must_confirm(stack: AskedStack) -> None:
    ended = type_(BEGIN, code=2)
    assert ended.stderr.splitlines()[-1] == (
        "evenkeel: drill: fence zone a of demo for 20m: not confirmed, nothing is done: say --yes"
    )
    assert stack.drill is None


def test_abort_and_the_report_after_it(stack: AskedStack) -> None:
    type_(f"{BEGIN} --yes")
    assert "ended by jane: enough" in type_("--abort --reason enough").stdout
    assert "was fenced from" in type_("").stdout
    assert "no drill is open" in type_("--abort", code=2).stderr


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("--zone a --for 20m", "--reason is missing: a drill stores who begins it, and why"),
        ("--zone d --reason x --yes", "zone is 'd': no pool of demo is there; its zones are a, b, c"),
        ("--zone a --for 1m --reason x --yes", "for is 1 min: choose 5 min to 4 h"),
        ("--for 20m", "drill: the zone is missing: name it by zone or zone_id"),
        ("--zone a --abort", "drill: abort and a zone are there: name one of the two"),
    ],
)
def test_a_bad_value_is_one_line(command: str, fault: str, stack: AskedStack) -> None:
    ended = type_(command, code=2)
    assert (ended.stdout, ended.stderr) == ("", f"evenkeel: {fault}\n")
    assert stack.drill is None


@pytest.mark.usefixtures("cluster")
def test_the_context_of_another_cluster(stack: AskedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    observe: Any = live.observe

    def elsewhere(*given: object) -> Any:
        observation, see = observe(*given)
        nodes = [node for node in observation.workload.nodes if node.labels["topology.kubernetes.io/zone"] != "a"]
        groups = [group for group in observation.groups if group.identity.zone != "a"]
        workload = replace(observation.workload, nodes=tuple(nodes))
        return replace(observation, groups=tuple(groups), workload=workload), see

    monkeypatch.setattr(live, "observe", elsewhere)
    ended = type_(f"{BEGIN} --context red --yes", code=2)
    assert ended.stderr == "evenkeel: --context: that cluster has nothing in zone a: name the context of demo\n"
    assert stack.drill is None


@pytest.mark.usefixtures("cluster")
class TestDryRun:
    def test_a_cluster_in_dry_run_gets_only_a_forecast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = AskedStack(stack_dry_run=True)
        monkeypatch.setattr(stack_client, "ask", stack.ask)
        ended = type_(f"{BEGIN} --context blue", code=5)
        assert ended.stdout.splitlines()[-1] == (
            "planned only: dry run: zone a of demo is not fenced: a drill in dry run is only a forecast"
        )
        assert ended.stdout.startswith("zone a is lost, ")
        assert stack.drill is None
        document = json.loads(type_(f"{BEGIN} --context blue -o json", code=5).stdout)
        assert (document["dryRun"], document["drill"], document["forecast"]["lostNodes"]) == (True, None, 1)

    def test_the_option_shows_the_forecast_of_a_live_cluster(self, stack: AskedStack) -> None:
        ended = type_("--zone a --context blue --dry-run")
        assert ended.stdout.splitlines()[-1] == "zone a of demo would be fenced for 30 min; nothing is fenced"
        assert stack.drill is None
        assert [event["action"] for event in stack.asked] == ["drill", "export", "status"]


def test_the_numbers_of_a_forecast() -> None:
    def line(at: int, requested: tuple[int, int], running: tuple[int, int]) -> dict[str, Any]:
        numbers = {"requested": requested, "running": running}
        return {"at": at, "waiting": 0, **{name: dict(zip("ab", pair, strict=True)) for name, pair in numbers.items()}}

    pods = [
        {"owner": "web", "pods": 3, "longest": 390, "withoutPlace": 0},
        {"owner": "db", "pods": 2, "longest": None, "withoutPlace": 2},
        {"owner": "early", "pods": 1, "longest": 100, "withoutPlace": 0},
    ]
    forecast: dict[str, Any] = {
        "podsKnown": True,
        "lostNodes": 2,
        "evictedAfter": 300,
        "pods": pods,
        "bound": {"x": 1, "y": 2},
        "atMaximum": ["p"],
    }
    forecast["nodes"] = [line(0, (2, 2), (0, 2)), line(20, (0, 2), (0, 2)), line(310, (0, 4), (0, 2))]
    numbers = numbers_of(forecast)
    assert numbers == {
        "lostNodes": 2,
        "pods": 6,
        "bound": 3,
        "withoutPlace": 2,
        "longestWait": 90,
        "ordered": {"b": 2},
        "readyAfter": None,
        "atMaximum": ["p"],
    }
    forecast["nodes"] = [*forecast["nodes"], line(400, (0, 4), (0, 4))]
    assert numbers_of(forecast)["readyAfter"] == 90
    unknown = numbers_of({**forecast, "podsKnown": False, "pods": [], "bound": {}})
    assert [unknown[name] for name in ("pods", "bound", "withoutPlace", "longestWait")] == [None] * 4
