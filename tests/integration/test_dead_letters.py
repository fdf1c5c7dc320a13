"""Dead letters as in docs/operate/runbooks.md: which messages are there, how to read them and to send them again."""

import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from evenkeel.adapters.aws.queues import TRIES
from evenkeel.bootstrap import SystemClock, container, use_clock
from evenkeel.state_records import ScaleRequestRecord
from sandbox.aws import Deployment
from sandbox.template import ROOT
from sandbox.triggers import InProcess
from tests.integration import staging
from tests.integration.staging import EVENTS
from tests.stand_ins import called
from tests.unit.project.test_docs import block

PAGE = ROOT / "docs" / "operate/runbooks.md"
PROGRAM = block("operate/runbooks.md", "python", "again")
EVENT = EVENTS["provisioning-failure-scale-up"]


class Functions:
    """The part of Lambda's client that the program needs: it calls the handlers of this process."""

    def __init__(self, functions: Callable[[str, Any], Any]) -> None:
        self._functions = functions

    def invoke(self, *, FunctionName: str, Payload: str) -> dict[str, Any]:  # noqa: N803  boto3's names
        try:
            answer = self._functions(FunctionName, json.loads(Payload))
        except Exception as error:
            text = json.dumps({"errorMessage": str(error)})
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(text.encode())}
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}


class Held:
    """The queues' client, which keeps the messages that it has received and not deleted."""

    def __init__(self, sqs: Any) -> None:
        self._sqs = sqs
        self.handles: set[str] = set()

    def receive_message(self, **given: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._sqs.receive_message(**given)
        self.handles |= {message["ReceiptHandle"] for message in answer.get("Messages", [])}
        return answer

    def delete_message(self, **given: Any) -> None:
        self._sqs.delete_message(**given)
        self.handles.remove(given["ReceiptHandle"])


class Stage(staging.Stage):
    def __init__(self, deployment: Deployment, functions: InProcess) -> None:
        super().__init__(deployment, functions)
        self.dead = deployment.physical("DeadLetters")
        answer = functions("AdminFunction", {**EVENTS["admin-register"], "cluster": "blue"})
        assert answer["ok"], answer

    def ask_for_nodes(self, id: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**EVENT, "time": now, "detail": {"cluster": "blue", "pool": "workers", "nodes": 3, "id": id}}

    @contextmanager
    def without_table(self) -> Iterator[None]:
        """Let the table not answer."""

        def away(**_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="the table")

        events = container()._dynamodb.meta.events
        events.register("before-send.dynamodb", away)
        try:
            yield
        finally:
            events.unregister("before-send.dynamodb", away)

    def waiting(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=names)["Attributes"]
        return sum(int(number) for number in found.values())

    def send_again(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
        held = Held(self.sqs)
        clients = {"sqs": held, "lambda": Functions(self.call)}
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(boto3, "client", clients.__getitem__)
            patch.setattr(sys, "argv", ["again.py", self.dead, "ProvisioningFailureFunction"])
            exec(compile(PROGRAM, str(PAGE), "exec"), {})
        for handle in held.handles:  # a minute later
            self.sqs.change_message_visibility(QueueUrl=self.dead, ReceiptHandle=handle, VisibilityTimeout=0)
        return capsys.readouterr().out

    @property
    def scale_requests(self) -> dict[str, ScaleRequestRecord]:
        return dict(container().store.load("blue").scale_requests)


@pytest.fixture
def stage(deployment: Deployment, functions: InProcess) -> Stage:
    use_clock(SystemClock())  # the container of this deployment, not of the previous one
    return Stage(deployment, functions)


def test_a_request_that_came_while_the_table_was_away_is_sent_again_from_the_dead_letters(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage.without_table():
        stage.triggers._invoke_asynchronously("ProvisioningFailureFunction", stage.ask_for_nodes("r1"))
        assert stage.waiting() == 1
        still = stage.send_again(monkeypatch, capsys)
        assert "Scale-Up Requested" in still
        assert "the table" in still
    assert stage.scale_requests == {}
    assert stage.waiting() == 1, "what still fails stays"
    (message,) = stage.sqs.receive_message(QueueUrl=stage.dead, VisibilityTimeout=0)["Messages"]
    assert "the table" in json.loads(message["Body"])["responsePayload"]["errorMessage"]
    assert '"result": "recorded"' in stage.send_again(monkeypatch, capsys)
    assert list(stage.scale_requests) == ["r1"]
    assert stage.waiting() == 0


def test_undelivered_events_are_sent_again_and_twice_does_no_harm(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        stage.sqs.send_message(QueueUrl=stage.dead, MessageBody=json.dumps(stage.ask_for_nodes("r2")))
    tick = {"requestPayload": {"source": "evenkeel.schedule", "time": "2026-01-15T12:00:00Z"}}
    others = (json.dumps(tick), '{"clusters": ["blue"]}', "garbage", "[]")
    for other in others:
        stage.sqs.send_message(QueueUrl=stage.dead, MessageBody=other)
    assert stage.send_again(monkeypatch, capsys).count("Scale-Up Requested") == 2
    assert list(stage.scale_requests) == ["r2"]
    assert stage.waiting() == len(others)


def test_a_tick_that_cannot_be_read_is_a_dead_letter(stage: Stage) -> None:
    stage.triggers._invoke_asynchronously("ScanFunction", {"source": "evenkeel.schedule", "time": "soon"})
    assert stage.waiting() == 1


def test_a_run_that_has_used_its_tries_is_a_dead_letter_with_a_reason(stage: Stage) -> None:
    record = EVENTS["rebalance"]["Records"][0]
    attributes = {**record["attributes"], "ApproximateReceiveCount": str(TRIES + 1)}
    answer = stage.call("RebalanceFunction", {"Records": [{**record, "attributes": attributes}]})
    assert answer == {"batchItemFailures": []}
    (dead,) = stage.sqs.receive_message(QueueUrl=stage.dead, MessageAttributeNames=["All"])["Messages"]
    assert dead["Body"] == record["body"]
    assert dead["MessageAttributes"]["reason"]["StringValue"] == "not handled in 5 tries"


def test_poison_is_read_with_its_reason_by_the_command_of_the_page(stage: Stage) -> None:
    stage.sqs.send_message(
        QueueUrl=stage.deployment.physical("RebalanceQueue"),
        MessageBody='{"cluster": "blue"}',
        MessageGroupId="blue",
        MessageDeduplicationId="1",
    )
    stage.triggers.drain()
    _, *command = shlex.split(block("operate/runbooks.md", "sh", "read"))
    operation, given, _ = called(command[0], command[1], command[2:])
    given["QueueUrl"] = stage.deployment.physical("DeadLetters")
    (message,) = getattr(stage.sqs, operation)(**given)["Messages"]
    assert message["Body"] == '{"cluster": "blue"}'
    assert "reason is missing" in message["MessageAttributes"]["reason"]["StringValue"]


def test_the_queues_of_the_page_exist(stage: Stage) -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## What lands where")[2].partition("##")[0]
    queues = {name for name in stage.deployment.template.of_type("AWS::SQS::Queue") if "Dead" in name}
    assert set(re.findall(r"`(\w*DeadLetters)`", table)) == queues
