"""`evenkeel send`: the target of each event, its times and ids, and one line for each bad input."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel_cli.main import app
from evenkeel_cli.send import refreshed, target_of
from sandbox.server import HttpRequest, LoopbackServer, Response
from sandbox.stack import StackEndpoint
from sandbox.template import ROOT, Template
from tests.integration.staging import EVENTS

NOW = datetime(2026, 11, 28, 16, 30, tzinfo=UTC)
ACCEPTED = {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}
ON_BUS = [
    name
    for name, event in EVENTS.items()
    if target_of(name).function == "ProvisioningFailureFunction" and not event["source"].startswith("aws.")
]


class Shell:
    """A folder, a stack whose functions answer `answer`, and an event bus that answers `bus`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.answer: Any = {"ok": True, "message": "done"}
        self.bus = Response(status=200, body=json.dumps(ACCEPTED).encode())
        self.entries: list[dict[str, Any]] = []
        self.endpoint = stack.enter_context(StackEndpoint("evenkeel", lambda *_: self.answer))
        self._bus = stack.enter_context(LoopbackServer(self._put_events))

    def _put_events(self, request: HttpRequest) -> Response:
        self.entries += json.loads(request.body)["Entries"]
        return self.bus

    def send(self, name: str, event: Any, stack: str = "evenkeel", **env: str) -> tuple[int, str, str]:
        file = self.folder / f"{name}.json"
        file.write_text(event if isinstance(event, str) else json.dumps(event), encoding="utf-8")
        bus = {"AWS_ENDPOINT_URL_EVENTBRIDGE": self._bus.url}
        environment = {**self.endpoint.environment(), **bus, **env}
        result = CliRunner().invoke(app, ["send", str(file), "--stack", stack], env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result.exit_code, result.stdout, result.stderr.removeprefix("evenkeel: ").replace(str(file), file.name)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with ExitStack() as stack:
        yield Shell(tmp_path, stack)


def texts(event: Any) -> list[str]:
    """Return all texts inside an event, also inside the body of a message."""
    if isinstance(event, str):
        return texts(json.loads(event)) if event.startswith("{") else [event]
    values = event.values() if isinstance(event, dict) else event if isinstance(event, list) else ()
    return [text for value in values for text in texts(value)]


@pytest.mark.parametrize("name", [name for name, event in EVENTS.items() if "action" not in event])
def test_no_old_time_is_left_in_a_sent_event(name: str) -> None:
    sent = refreshed(EVENTS[name], NOW)
    old = [text for text in texts(sent) if text.startswith(("2026-01-", "17684784"))]
    assert old == []


@pytest.mark.parametrize("name", ON_BUS)
def test_an_event_of_another_program_goes_to_the_stacks_bus(shell: Shell, name: str) -> None:
    code, printed, _ = shell.send(name, EVENTS[name])
    assert (code, shell.endpoint.called) == (0, [])
    assert printed.startswith("Sent to event bus evenkeel-bus, which passes it to ProvisioningFailureFunction.\n")
    (entry,) = shell.entries
    assert (entry["EventBusName"], entry["Source"]) == ("evenkeel-bus", EVENTS[name]["source"])
    assert entry["DetailType"] == EVENTS[name]["detail-type"]
    again = shell.send(name, EVENTS[name])
    assert again[0] == 0
    assert shell.entries[0]["Detail"] != shell.entries[1]["Detail"], "an event with a known id would change nothing"


@pytest.mark.parametrize("name", [name for name in EVENTS if name not in (*ON_BUS, "notify", "status-page-schedule")])
def test_any_other_event_goes_to_the_function_of_its_name_and_the_answer_is_printed(shell: Shell, name: str) -> None:
    shell.answer = {"ok": True, "message": "answered"}
    code, printed, _ = shell.send(name, EVENTS[name])
    assert (code, shell.endpoint.called, shell.entries) == (0, [target_of(name).function], [])
    assert '"message": "answered"' in printed


def test_an_event_of_aws_has_the_account_of_the_stack(shell: Shell) -> None:
    name = "provisioning-failure-zone-shift-started"
    shell.send(name, EVENTS[name] | {"account": "999999999999"})
    (event,) = shell.endpoint.invoked
    assert event["account"] == "123456789012"


def test_an_action_is_sent_as_it_is(shell: Shell) -> None:
    shell.send("operator-pause", EVENTS["operator-pause"])
    assert shell.endpoint.invoked == [EVENTS["operator-pause"]]


@pytest.mark.parametrize(
    ("name", "event", "fault"),
    [
        ("mine", EVENTS["rebalance"], "mine.json: its name begins with no function: begin it with admin, check, "),
        ("admin", "[1]", "admin.json: no event: write one JSON object"),
        ("admin", "{", "admin.json: "),
        ("admin", "", "admin.json: no event: "),
        ("admin", EVENTS["rebalance"], "admin.json: no event for AdminFunction, which has action: rename the file"),
        ("rebalance", EVENTS["check"], "rebalance.json: no event for RebalanceFunction, which has Records"),
        ("notify", {"Records": []}, "notify.json: no event for NotifyFunction, which has Records"),
        ("check", {"Records": 7}, "check.json: no event for CheckFunction"),
        ("scan", EVENTS["widget"], "scan.json: no event for ScanFunction, which has clusters, or source"),
        ("provisioning-failure", EVENTS["scan-schedule"], "provisioning-failure.json: no event for Provisioning"),
        (
            "provisioning-failure",
            EVENTS["provisioning-failure"] | {"source": "batch"},
            "provisioning-failure.json: event: no parser for source 'batch' and detail-type ",
        ),
        (
            "provisioning-failure",
            EVENTS["provisioning-failure"] | {"detail": {"cluster": "blue"}},
            "provisioning-failure.json: failure event: detail: ",
        ),
        ("status-page", {"source": "aws"}, "status-page.json: no event for StatusPageFunction"),
        ("widget", EVENTS["scan-by-hand"], "widget.json: no event for WidgetFunction"),
        ("notify", EVENTS["notify"], "stack is 'evenkeel': it has no NotifyFunction: deploy it with an alert channel"),
        ("status-page", EVENTS["status-page-schedule"], "stack is 'evenkeel': it has no StatusPageFunction: deploy it"),
        (
            "rebalance",
            {"Records": [{**EVENTS["rebalance"]["Records"][0], "body": "{"}]},
            "rebalance.json: the body of a message is not JSON",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(shell: Shell, name: str, event: Any, fault: str) -> None:
    code, printed, error = shell.send(name, event)
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert error.startswith(fault)
    assert (shell.endpoint.called, shell.entries) == ([], [])


def test_a_stack_of_another_name_is_one_line(shell: Shell) -> None:
    code, _, error = shell.send("rebalance", EVENTS["rebalance"], stack="other")
    assert (code, error) == (2, "stack is 'other': no stack of that name is here: check name, region and account\n")


@pytest.mark.parametrize(
    ("status", "answer", "fault"),
    [
        (
            400,
            {"__type": "AccessDeniedException", "message": "jane may not"},
            "missing permission events:PutEvents for stack evenkeel: jane may not\n",
        ),
        (
            200,
            {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "too many"}]},
            "event bus evenkeel-bus refused the event: ThrottlingException: too many: "
            "correct the file, or send it again\n",
        ),
    ],
)
def test_a_bus_that_refuses_is_one_line(shell: Shell, status: int, answer: Any, fault: str) -> None:
    shell.bus = Response(status=status, body=json.dumps(answer).encode())
    assert shell.send("provisioning-failure", EVENTS["provisioning-failure"]) == (1, "", fault)


def test_a_localstack_that_does_not_run_is_one_line(shell: Shell) -> None:
    nowhere = {"AWS_ENDPOINT_URL_CLOUDFORMATION": "http://127.0.0.1:1"}
    code, _, error = shell.send("rebalance", EVENTS["rebalance"], **nowhere)
    assert code == 1
    assert error.startswith(
        "CloudFormation does not answer: no connection: start LocalStack, or unset AWS_ENDPOINT_URL"
    )
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "answer", "code", "fault"),
    [
        ("rebalance", {"batchItemFailures": [{"itemIdentifier": "m"}]}, 1, "RebalanceFunction did not handle"),
        ("operator-pause", {"ok": False, "message": "no such cluster"}, 2, "no such cluster"),
        ("operator-pause", {"ok": False, "retry": True, "message": "again"}, 1, "again"),
    ],
)
def test_a_failure_that_a_function_reports_is_the_commands_failure(
    shell: Shell, name: str, answer: Any, code: int, fault: str
) -> None:
    shell.answer = answer
    found, _, error = shell.send(name, EVENTS[name])
    assert found == code
    assert error.startswith(fault)


def test_a_function_that_raises_is_one_line(shell: Shell, tmp_path: Path) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no table")

    failing: Callable[..., Any] = fails
    with StackEndpoint("evenkeel", failing) as endpoint:
        shell.endpoint = endpoint
        assert shell.send("scan-by-hand", EVENTS["scan-by-hand"]) == (
            1,
            "",
            "ScanFunction of stack evenkeel failed: no table: see its log\n",
        )


def _make_event(file: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox.local_stack", "event", file]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _lasting(printed: str) -> str:
    """Return the text without the ids and times of one run."""
    return re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9-]{10}T[0-9:]{8}Z", "*", printed)


def test_make_event_sends_a_failure_that_fences_its_group_in_one_call() -> None:
    done = _make_event("events/provisioning-failure.json")
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "guides" / "test-events.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ make event FILE=events/provisioning-failure.json\n(.*?)^```", page, re.S | re.M)
    assert _lasting(done.stdout) == _lasting(shown)
    assert "fenced until" in done.stdout
    assert "evenkeel status" not in done.stdout, "the stack is gone"


def test_make_event_says_which_change_is_the_sandboxs_own() -> None:
    printed = _make_event("events/rebalance.json").stdout
    groups = re.findall(r"  demo-cluster-api: demo-workers-.*: (.*)\n", printed)
    assert groups == ["max 4 to 5"] * 3
    assert "Without the event, max is 5 in each zone" in printed
    assert "Without the event" not in _make_event("events/operator-pause.json").stdout


def test_make_event_with_a_bad_file_starts_nothing() -> None:
    done = _make_event("events/none.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_no_policy_of_the_stack_allows_to_put_events_on_its_bus() -> None:
    policies = Template().of_type("AWS::IAM::ManagedPolicy")
    assert policies.keys() == {"ReaderPolicy", "OperatorPolicy", "AdminPolicy"}
    assert "events:" not in json.dumps(policies)
