"""The built artefact in Lambda's real runtime client, fed with the events that people are told to try."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from sandbox.aws import Deployment
from sandbox.kube.world import Cluster, Pool, World
from sandbox.lambda_runtime import HostBuild, RuntimeProcess
from sandbox.template import ROOT

pytestmark = pytest.mark.slow

EVENTS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "events").glob("*.json")}
FUNCTION_OF = {
    "failure": "ProvisioningFailureFunction",
    "operator": "OperatorFunction",
    "provisioning": "ProvisioningFailureFunction",
    "rebalance": "RebalanceFunction",
    "scan": "ScanFunction",
    "widget": "WidgetFunction",
}


def function_of(event: str) -> str:
    return FUNCTION_OF[event.partition("-")[0]]


class Stage:
    """A deployment, the cluster that the events speak of, and a process per function that has been called."""

    def __init__(self, twin: HostBuild, deployment: Deployment, cluster: Cluster, stack: ExitStack) -> None:
        self.deployment = deployment
        self.cluster = cluster
        self.processes: dict[str, RuntimeProcess] = {}
        self._twin = twin
        self._stack = stack

    def call(self, function: str, event: Any) -> Any:
        if function not in self.processes:
            self.processes[function] = self._stack.enter_context(self._twin.process(self.deployment, function))
        return self.processes[function].invoke(event)

    def send(self, name: str, change: Callable[[Any], object] | None = None) -> Any:
        """The function that an event of events/ is for, called with it."""
        event = json.loads(json.dumps(EVENTS[name]))
        if change:
            change(event)
        return self.call(function_of(name), event)

    def switch_on(self) -> None:
        answer = self.send("operator-register", lambda event: event["record"].update(dry_run=False))
        assert answer["ok"], answer
        self.messages("RebalanceQueue")  # registering asks for a first look by itself

    def messages(self, queue: str) -> list[Any]:
        """Bodies of what waits in a queue of the template; taken out."""
        sqs, url = self.deployment.aws.client("sqs"), self.deployment.physical(queue)
        bodies = []
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in found:
                bodies.append(message["Body"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies

    def patches(self) -> int:
        return sum(request.method == "PATCH" and request.user == "evenkeel" for request in self.cluster.api.requests)


@pytest.fixture
def stage(twin: HostBuild, deployment: Deployment) -> Iterator[Stage]:
    with ExitStack() as stack:
        uneven = {"cluster-api": [Pool(name="workers", minimum=3, maximum=12, replicas=(4, 1, 1))]}
        world = World(clusters=["cluster-api"], pools=uneven, clock=lambda: datetime.now(UTC), settings=None)
        cluster = stack.enter_context(world).clusters["cluster-api"]
        name = EVENTS["operator-register"]["record"]["access"]["secret"]
        secrets = deployment.aws.client("secretsmanager")
        secrets.create_secret(Name=name, SecretString=json.dumps(cluster.api.kubeconfig("evenkeel")))
        stack.callback(secrets.delete_secret, SecretId=name, ForceDeleteWithoutRecovery=True)
        yield Stage(twin, deployment, cluster, stack)


def test_every_function_has_an_event_to_try_it_with(deployment: Deployment) -> None:
    assert {function_of(name) for name in EVENTS} == set(deployment.template.functions())


def test_the_events_lead_from_registration_over_a_scan_to_patches_and_a_status(stage: Stage) -> None:
    stage.switch_on()
    scanned = stage.send("scan-schedule")
    assert scanned["clusters"] == ["demo-cluster-api"]
    (message,) = stage.messages("RebalanceQueue")
    assert json.loads(message)["cluster"] == "demo-cluster-api"

    assert stage.send("rebalance") == {"batchItemFailures": []}
    assert stage.patches() > 0
    status = stage.send("operator-status")
    assert status["ok"]
    assert status["decisions"]
    maxima = [view.maximum for view in stage.cluster.groups()]
    assert sum(m for m in maxima if m is not None) == 12
    html = stage.send("widget")
    assert all(view.name in html for view in stage.cluster.groups())


def test_a_first_registration_plans_and_records_and_writes_nothing(stage: Stage) -> None:
    assert stage.send("operator-register", lambda event: event["record"].update(dry_run=True))["ok"]
    assert stage.send("rebalance") == {"batchItemFailures": []}
    assert stage.send("operator-plan")["ok"]
    assert stage.send("operator-status")["decisions"]
    assert stage.patches() == 0


def test_a_failure_event_is_answered_and_a_repeated_one_changes_nothing(stage: Stage) -> None:
    stage.switch_on()
    assert stage.send("rebalance") == {"batchItemFailures": []}  # what is written is known by name from now on
    now = datetime.now(UTC).isoformat()
    first = stage.send("provisioning-failure", lambda event: event["detail"].update(occurredAt=now))
    again = stage.send("provisioning-failure", lambda event: event["detail"].update(occurredAt=now))
    assert first == again
    bodies = [json.loads(body) for body in stage.messages("RebalanceQueue")]
    assert [body["cluster"] for body in bodies] == ["demo-cluster-api"]
    # The event as it stands in the file is long past: a late event must not start a backoff.
    stage.send("provisioning-failure", lambda event: event["detail"].update(id="another"))
    assert stage.send("rebalance") == {"batchItemFailures": []}
    states = {group["state"] for pool in stage.send("operator-plan")["plan"]["pools"] for group in pool["groups"]}
    assert states == {"healthy", "fenced"}


def test_every_kind_of_failure_event_is_answered_in_one_line(stage: Stage) -> None:
    stage.switch_on()
    names = [name for name in EVENTS if function_of(name) == "ProvisioningFailureFunction"]
    answers = {name: stage.send(name) for name in names}
    for name, answer in answers.items():
        assert answer["verdict"] in ("recorded", "looked", "known", "ignored"), name
        assert "\n" not in answer["message"], name
    ignored = {name for name, answer in answers.items() if answer["verdict"] == "ignored"}
    assert ignored >= {"failure-spot-interruption", "failure-zone-practice-run"}
    assert "Traceback" not in stage.processes["ProvisioningFailureFunction"].log()


def test_a_paused_cluster_is_not_scanned_until_it_is_resumed(stage: Stage) -> None:
    stage.switch_on()
    assert stage.send("operator-pause")["ok"]
    assert stage.send("scan-schedule")["clusters"] == []
    assert stage.send("operator-resume")["ok"]
    stage.messages("RebalanceQueue")
    assert stage.send("scan-schedule")["clusters"] == ["demo-cluster-api"]


def test_a_scan_by_hand_and_a_second_look_come_in_by_the_same_queue(stage: Stage) -> None:
    stage.switch_on()
    assert stage.send("scan-by-hand")["ok"]
    assert stage.send("scan-recheck") == {"batchItemFailures": []}
    assert [json.loads(body)["cluster"] for body in stage.messages("RebalanceQueue")] == ["demo-cluster-api"] * 2


POISON = {
    "empty": "",
    "no JSON": "not JSON",
    "nested garbage": "[" * 10_000,
    "300 KB": "x" * 300_000,
    "a path for a name": '{"cluster": "../../etc", "reason": ""}',
    "a number for a name": '{"cluster": 7}',
    "null": "null",
}


@pytest.mark.parametrize("name", ["rebalance", "scan-recheck"])
def test_poison_is_put_aside_with_its_reason_and_holds_up_nobody(stage: Stage, name: str) -> None:
    def poisoned(number: int, body: str) -> Callable[[Any], object]:
        return lambda event: event["Records"][0].update(messageId=f"message-{number}", body=body)

    for number, (what, body) in enumerate(POISON.items()):
        assert stage.send(name, poisoned(number, body)) == {"batchItemFailures": []}, what
        assert len(stage.messages("RebalanceDeadLetters")) == 1, what
    assert stage.patches() == 0


def test_a_bad_request_by_hand_gets_one_line_and_no_traceback(stage: Stage) -> None:
    events: list[Any] = [{}, {"action": "plan"}, {"action": "destroy", "cluster": "c"}, {"cluster": {"a": []}}, [], "x"]
    for event in events:
        answer = stage.call("OperatorFunction", event)
        assert answer["ok"] is False, event
        assert "\n" not in answer["message"], event
    assert "Traceback" not in stage.processes["OperatorFunction"].log()


def test_no_secret_reaches_the_log(stage: Stage) -> None:
    stage.switch_on()
    stage.send("rebalance")
    stage.send("operator-plan")
    token = stage.cluster.api.token("evenkeel")
    assert all(token not in process.log() for process in stage.processes.values())
