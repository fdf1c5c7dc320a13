"""The commands: their imports before they run, options, examples, and failures as lines or documents."""

import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError, EndpointConnectionError
from typer.main import get_command
from typer.testing import CliRunner, Result

from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import ACTIONS
from evenkeel.domain.model.values import near
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel_cli import completion, stack_client
from evenkeel_cli.commands import PANELS, discover
from evenkeel_cli.console import progress
from evenkeel_cli.main import app
from evenkeel_cli.simulation.engine import ALONE, LOOSE, SERVERLESS, STATIC
from tests.unit.cli.test_asking import _LEAVES

COMMANDS = {
    name: command
    for name, command in get_command(app).commands.items()
    if name != "discover"  # type: ignore[attr-defined]
}
# Fields that no option sets: those with the same name in events only, and those that a command sets.
FILLED_IN = {"before", "after", "records", "members", "clusters", "verify", "forecast"}


def run(command: str, **settings: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", ["['--version']", "['plan', '--help']", "['--nope', '-o', 'json']"])
def test_help_version_and_wrong_options_import_nothing_of_the_product(arguments: str) -> None:
    """The time to start is that of the imports: 0.06 s for typer, 0.3 s for a plan."""
    program = f"""
import atexit, sys
sys.argv = ["evenkeel", *{arguments}]
slow = ("boto3", "botocore", "rich", "yaml", "kubernetes", "jinja2", "evenkeel.validation", "evenkeel.domain.plan")
atexit.register(lambda: print([name for name in slow if name in sys.modules], len(sys.modules) < 400, file=sys.stderr))
from evenkeel_cli.main import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "[] True"


@pytest.mark.parametrize("name", ACTIONS)
def test_each_field_of_an_action_is_an_option_with_the_same_help(name: str) -> None:
    action, options = ACTIONS[name], {param.name: param for param in COMMANDS[name].params}
    by_option = {opt: param for param in COMMANDS[name].params for opt in param.opts}
    if name == "plan":  # it plans also without a stack
        return
    assert COMMANDS[name].callback.__doc__ == action.summary
    for alias, field in action.fields.names().items():
        if alias in FILLED_IN:
            continue
        param = by_option[f"--{alias.replace('_', '-')}"]
        if alias != "since":  # the command line also reads 30m
            assert param.help == action.fields.model_fields[field].description
            assert param.required == action.fields.model_fields[field].is_required()
    assert ("selector" in options) == bool(action.touches or action.of_all)
    assert ("yes" in options) == bool(action.touches or name in ("restore", "drill", "leave-zone"))
    assert ("reason" in options) == (action.right != "read" or name == "drill")


def test_actions_that_only_read_are_those_of_the_table() -> None:
    only_read = {
        name
        for name, action in ACTIONS.items()
        if action.right is Right.READ and not action.rights_with and action.touches is None
    }
    assert only_read == stack_client.READERS


def test_each_command_has_a_panel_and_examples_that_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_STACK", "s")
    assert set(_LEAF) == set(_LEAVES)
    for name, command in _LEAF.items():
        examples = [line.strip() for line in str(command.epilog).splitlines()[2:]]
        assert examples, name
        for example in examples:
            words = shlex.split(example.split(" > ")[0].rpartition("| ")[2])
            assert words[: 1 + len(name.split())] == ["evenkeel", *name.split()]
            command.make_context(name, words[1 + len(name.split()) :])
    top = run("--help").stdout
    assert [line.removesuffix(":") for line in top.splitlines() if line.removesuffix(":") in PANELS] == [*PANELS]
    assert "─" not in top


_LEAF = {
    " ".join(filter(None, [group, name])): command
    for group, commands in (("", COMMANDS), ("discover", get_command(discover).commands))  # type: ignore[attr-defined]
    for name, command in commands.items()
}


@pytest.mark.parametrize("form", ["-o json", "-ojson", "--output json", "--output=json", "-o yaml"])
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("status --nope", "no such option: --nope: see evenkeel status -h"),
        ("status", "missing option '--stack' (env var: 'EVENKEEL_STACK'): see evenkeel status -h"),
        ("plan -f nowhere", "nowhere: cannot be read: No such file or directory"),
        ("pause --stack s", "say which clusters: --cluster ID, --selector env=prod, or --all"),
    ],
)
def test_a_failure_is_a_document_if_the_answer_would_be_one(command: str, fault: str, form: str) -> None:
    ran = run(f"{command} {form}")
    document = yaml.safe_load(ran.stdout)  # JSON is YAML
    assert (ran.exit_code, ran.stderr) == (2, "")
    assert document == {"error": {"code": 2, "messages": [fault]}}
    plain = run(command)
    assert (plain.exit_code, plain.stdout, plain.stderr) == (2, "", f"evenkeel: {fault}\n")


@pytest.mark.parametrize("options", ["-Ao json", "-Aojson", "-wAo json"])
def test_the_form_may_stand_behind_other_short_options(options: str) -> None:
    assert json.loads(run(f"status --nope {options}").stdout)["error"]["code"] == 2


@pytest.mark.parametrize("command", ["nope", "statu", "status --watchh", "status -o csv", "discover", "simulate"])
def test_a_wrong_command_or_option_is_one_line(command: str) -> None:
    ran = run(command)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n"), ran.stderr[:10]) == (2, "", 1, "evenkeel: ")
    assert "Value error" not in ran.stderr


def test_help_has_a_short_option_and_shows_the_variables() -> None:
    for word in ("-h", "--help"):
        shown = " ".join(run(f"status {word}").stdout.split())
        assert "[env var: EVENKEEL_STACK; required]" in shown
        assert "[env var: EVENKEEL_REGION]" in shown
    assert run("").stdout == run("-h").stdout


STATUS = {"ok": True, "action": "status", "cluster": "blue", "message": "", "now": "2026-01-31T12:00:00Z"}
OVERVIEW = {
    "ok": True,
    "action": "status",
    "message": "",
    "counts": {"clusters": 3, "well": 2, "paused": 0, "unseen": 0, "incident": 1, "dryRun": 0},
    "clusters": [{"cluster": "blue", "ok": True, "state": "incident", "message": "blue: no capacity"}],
    "others": {"well": ["green", "red"], "paused": []},
}


def test_an_answer_has_five_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_client, "ask", lambda _stack, _event: OVERVIEW)
    shown = {form: run(f"status -A --stack s -o {form}").stdout for form in ("table", "wide", "name", "json", "yaml")}
    assert shown["name"] == "blue\ngreen\nred\n"
    assert json.loads(shown["json"]) == yaml.safe_load(shown["yaml"]) == OVERVIEW
    assert "blue: no capacity" in shown["table"]
    assert shown["table"] == shown["wide"]


def test_stack_and_region_are_variables_or_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(stack: str, _event: object) -> dict[str, Any]:
        asked.append((stack, stack_client.session().region_name))
        return OVERVIEW

    monkeypatch.setattr(stack_client, "ask", ask)
    monkeypatch.setenv("EVENKEEL_STACK", "mine")
    monkeypatch.setenv("EVENKEEL_REGION", "eu-west-1")
    run("status")
    run("status --stack other --region eu-north-1")
    assert asked == [("mine", "eu-west-1"), ("other", "eu-north-1")]


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("plan --cluster blue", "plan"),
        ("forecast --cluster blue --zone a", "export"),
        ("forecast --all --zone a", "export"),
        ("report --out x.html", "status"),
    ],
)
def test_a_command_that_also_works_without_a_stack_takes_that_of_the_environment(
    command: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(stack: str, event: Any) -> dict[str, Any]:
        asked.append((stack, event["action"]))
        return {"ok": False, "message": "no"}

    monkeypatch.setattr(stack_client, "ask", ask)
    monkeypatch.setenv("EVENKEEL_STACK", "mine")
    assert run(command).exit_code == 2
    assert asked == [("mine", action)]


@pytest.mark.parametrize("command", ["history --cluster blue", "record --cluster blue"])
@pytest.mark.parametrize(("since", "minutes"), [("30m", 30), ("12h", 720), ("3d", 4320), ("1h30m", 90)])
def test_the_start_of_a_period_may_be_a_length_of_time(
    command: str, since: str, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(stack_client, "ask", lambda _, event: asked.append(event) or {"ok": False, "message": "no"})
    before = datetime.now(UTC).replace(microsecond=0)
    run(f"{command} --stack s --since {since}")
    run(f"{command} --stack s --since 2026-01-31T00:00:00Z")
    start = datetime.fromisoformat(asked[0]["since"]) + timedelta(minutes=minutes)
    assert before <= start <= datetime.now(UTC)
    assert asked[1]["since"] == "2026-01-31T00:00:00Z"
    (line,) = run(f"{command} --stack s --since soon-h").stderr.splitlines()
    assert "'soon-h': no length of time: write 2h, 90m or 1d; or a time in RFC 3339" in line


def test_a_restore_asks_and_refuses_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(stack_client, "ask", lambda _, event: asked.append(event) or {**STATUS, "action": "restore"})
    command = "restore --stack s --cluster blue"
    refused = run(command)
    assert (refused.exit_code, refused.stderr.count("\n"), asked) == (2, 1, [])
    monkeypatch.setattr("evenkeel_cli.terminal.has_terminal", lambda: True)
    assert [run(command, input="n\n").exit_code, len(asked)] == [2, 0]
    assert [run(command, input="y\n").exit_code, len(asked)] == [0, 1]
    assert [run(f"{command} --yes").exit_code, len(asked)] == [0, 2]


def test_a_shell_completes_what_the_stack_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"name": "workers", "groups": [{"zone": "eu-central-1a"}, {"zone": None}]}
    answers = {"*": OVERVIEW, "blue": {"pools": [pool]}}
    monkeypatch.setattr(stack_client, "ask_quickly", lambda _stack, event: answers[event["cluster"]])
    context = SimpleNamespace(params={"stack": "s", "cluster": "blue"})
    assert completion.clusters(context, "") == ["blue", "green", "red"]
    assert completion.clusters(context, "g") == ["green"]
    assert (completion.pools(context, ""), completion.zones(context, "eu")) == (["workers"], ["eu-central-1a"])
    context.params["cluster"] = "gone"  # the stack fails
    assert completion.pools(context, "") == []
    monkeypatch.delenv("EVENKEEL_STACK", raising=False)
    assert completion.clusters(SimpleNamespace(params={}), "") == []


def test_the_strategies_are_those_of_the_simulation() -> None:
    known = {strategy.name for strategy in STRATEGIES}
    assert {*completion.strategies("")} == {"own", "all", *known, STATIC, LOOSE, ALONE, SERVERLESS}
    assert completion.strategies("Ba") == ["Backward-Compatible", "Balanced"]


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("prod-eu-2", "prod-eu-32", ""),
        ("prd-eu-32", "prod-eu-32", "; did you mean prod-eu-32?"),
        ("werkers", "workers", "; did you mean workers?"),
    ],
)
def test_a_name_with_another_number_is_no_typing_error(typed: str, known: str, meant: str) -> None:
    assert near(typed, [known]) == meant


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "patience", "said"),
    [(Terminal, 0.0, "apply: 3 of 4 clusters in "), (Terminal, 3600.0, ""), (StringIO, 0.0, "")],
)
def test_progress_is_for_a_terminal_and_what_takes_long(
    stream: type[StringIO], patience: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr("evenkeel_cli.console._PROGRESS_AFTER_SECONDS", patience)
    monkeypatch.setenv("TERM", "xterm")
    with progress("apply", "clusters", 4) as report:
        report(3)
    assert said in shown.getvalue()
    assert bool(shown.getvalue()) == bool(said)


def test_an_html_page_of_a_proxy_is_not_quoted() -> None:
    answer = {"Error": {"Code": "502", "Message": "<HTML><h1>Bad</h1>"}, "ResponseMetadata": {"HTTPStatusCode": 502}}
    fault = stack_client._error(ClientError(answer, "Invoke"), "s", "f", "Lambda", "lambda:InvokeFunction")
    assert str(fault) == "Lambda refused: 502: an HTML page with status 502: check the proxy between here and AWS"
    away = EndpointConnectionError(endpoint_url="https://lambda.nowhere")
    fault = stack_client._error(away, "s", "f", "Lambda", "lambda:InvokeFunction")
    assert str(fault) == "Lambda does not answer: no connection: check the network and the region"

    unusable = ValueError("Invalid endpoint: nowhere")
    fault = stack_client._error(unusable, "s", "f", "Lambda", "lambda:InvokeFunction")
    assert str(fault) == "Lambda does not answer: Invalid endpoint: nowhere"
