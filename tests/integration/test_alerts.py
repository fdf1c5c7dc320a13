"""Incidents are sent to local receivers over TLS, by the function that the template describes."""

import io
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.aws.alert_memory import DynamoAlertMemory
from evenkeel.adapters.aws.queues import SqsAlerts, SqsQueue
from evenkeel.application.errors import QueueUnavailableError, StateConflictError
from evenkeel.application.incidents.alerting import ChannelError
from evenkeel.application.ports import DetailType
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.permissions import Permissions, request_of
from sandbox.triggers import Triggers
from tests.alerts import alert, detail_of
from tests.fakes import FakeClock
from tests.recorded_requests import Recorded
from tests.tls_server import AUTHORITY, response, serving

SECRET = "T000-B000-very-secret"


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


class Receiver:
    """A service that answers with these answers in turn, repeats the last, and keeps the requests."""

    def __init__(self, *answers: bytes | Callable[[socket.socket], None]) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.bodies: list[Any] = []
        self.over = threading.Event()

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        first, _, body = head.partition(b"\r\n\r\n")
        length = int(
            next(line.split(b":")[1] for line in first.split(b"\r\n") if line.lower().startswith(b"content-length"))
        )
        while len(body) < length and (more := connection.recv(65536)):
            body += more
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.heads.append(first)
        self.bodies.append(json.loads(body))
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(answer)


OK = response(200, b"ok")


@contextmanager
def receiving(*answers: bytes | Callable[[socket.socket], None]) -> Iterator[tuple[Receiver, str]]:
    receiver = Receiver(*answers)
    with serving(receiver) as url:
        try:
            yield receiver, url
        finally:
            receiver.over.set()


def post(url: str, deadline: float = 5.0) -> None:
    HttpsPost(trusting(), deadline, allow_loopback=True)(f"{url}/services/{SECRET}", b"{}", {}, frozenset())


def refusal(*answers: bytes | Callable[[socket.socket], None], deadline: float = 5.0) -> ChannelError:
    with receiving(*answers) as (_, url), pytest.raises(ChannelError) as caught:
        post(url, deadline)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


# ------------------------------------------------------------ one request


def test_a_throttling_service_says_how_long_to_wait() -> None:
    error = refusal(response(429, b"slow down", {"Retry-After": "7"}))
    assert (error.is_away, error.pause) == (True, 7.0)
    assert refusal(response(429, b"", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})).pause is None
    assert refusal(response(429, b"", {"Retry-After": "9" * 4_000})).pause == 3600.0


@pytest.mark.parametrize(("status", "is_away"), [(500, True), (503, True), (408, True), (400, False), (404, False)])
def test_errors_of_the_service_and_of_the_message_differ(status: int, is_away: bool) -> None:
    error = refusal(response(status, b"why"))
    assert (error.is_away, str(error)) == (is_away, f"127.0.0.1 answers {status}")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiving(OK) as (other, elsewhere):
        refusal(response(status, b"", {"Location": f"{elsewhere}/{SECRET}"}))
        assert other.heads == []


@pytest.mark.parametrize("hangs", [True, False])
def test_a_service_that_hangs_or_drips_is_left_at_the_deadline(hangs: bool) -> None:
    stopped = threading.Event()

    def drip(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not stopped.wait(0.02):
                connection.sendall(b"x")
        except OSError:
            stopped.set()

    error = refusal((lambda _: stopped.wait(20) and None) if hangs else drip, deadline=0.3)
    assert error.is_away
    if not hangs:
        assert stopped.wait(5), "the connection was given up"
    stopped.set()


def test_nothing_of_a_huge_answer_is_read_but_how_it_begins() -> None:
    sent = [0]

    def huge(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        try:
            while sent[0] < 1_000_000_000:
                sent[0] += connection.send(b"x" * 65536)
        except OSError:
            pass

    with receiving(huge) as (_, url):
        post(url)
    assert sent[0] < 1_000_000_000


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00" * 100, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"h: x\r\n" * 500 + b"\r\n"]
)
def test_garbage_is_no_answer(garbage: bytes) -> None:
    assert refusal(garbage).is_away


@pytest.mark.parametrize("port", ["0", "99999"])
def test_a_port_that_does_not_exist_is_refused_without_a_request(port: str) -> None:
    with pytest.raises(ChannelError, match="with a port from 1 to 65535") as caught:
        post(f"https://127.0.0.1:{port}")
    assert not caught.value.is_away
    assert SECRET not in str(caught.value)


def test_an_untrusted_certificate_gets_no_request() -> None:
    with receiving(OK) as (receiver, url):
        with pytest.raises(ChannelError) as caught:
            HttpsPost(allow_loopback=True)(f"{url}/{SECRET}", b"{}", {}, frozenset())
        assert receiver.heads == []
        assert SECRET not in str(caught.value)


# ------------------------------------------------------------ with the stored memory


def test_of_two_workers_that_claim_an_alert_one_gets_it(deployment: Deployment) -> None:
    memory = DynamoAlertMemory(deployment.aws.client("dynamodb"), deployment.table, FakeClock().now)
    for version in (None, 1):
        first, second = memory.last_notified("chat", "key"), memory.last_notified("chat", "key")
        assert version is None or first.version == version
        memory.save_notified("chat", "key", first)
        with pytest.raises(StateConflictError):
            memory.save_notified("chat", "key", second)


# ------------------------------------------------------------ as deployed


def batch(*bodies: str) -> dict[str, Any]:
    fields = {"attributes": {"ApproximateReceiveCount": "1"}, "receiptHandle": "handle"}
    return {"Records": [{"messageId": f"m{number}", "body": body, **fields} for number, body in enumerate(bodies)]}


@pytest.fixture
def notified(aws: AwsEndpoints) -> Iterator[tuple[Deployment, str]]:
    """Yield a stack that notifies a topic and a pager, and the URL of a queue that receives from the topic."""
    sns, sqs, secrets = aws.client("sns"), aws.client("sqs"), aws.client("secretsmanager")
    topic = sns.create_topic(Name="incident")["TopicArn"]
    queue = sqs.create_queue(QueueName="receives-alerts")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    secrets.create_secret(Name="alerts/slack", SecretString=f"http://127.0.0.1:1/{SECRET}")
    parameters = {"ChatTopicArn": topic, "SlackSecret": "alerts/slack", "PageUrl": "https://page.example/"}
    with ExitStack() as stack:
        stack.callback(secrets.delete_secret, SecretId="alerts/slack", ForceDeleteWithoutRecovery=True)
        stack.callback(sqs.delete_queue, QueueUrl=queue)
        stack.callback(sns.delete_topic, TopicArn=topic)
        yield stack.enter_context(aws.deploy(parameters=parameters)), queue


def test_the_function_notifies_within_its_role_and_logs_no_secret(notified: tuple[Deployment, str]) -> None:
    deployment, queue = notified
    log = io.StringIO()
    news, poison = json.dumps(detail_of(alert())), '{"key": 7}'
    with Recorded(deployment, log=log) as functions:
        answer = functions("NotifyFunction", batch(news, poison))
        assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}, "Slack's address is no https"
        functions("NotifyFunction", batch(news))
        assert functions.refused() == []
        actions = {request.action for request in functions.sent["NotifyFunction"]}
    assert actions == {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "secretsmanager:GetSecretValue",
        "sns:Publish",
        "sqs:SendMessage",
    }
    sqs = deployment.aws.client("sqs")
    (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]  # a topic delivers some time later
    notification = json.loads(json.loads(message["Body"])["Message"])
    assert (notification["source"], notification["metadata"]["threadId"]) == ("custom", alert().key)
    (dead,) = sqs.receive_message(QueueUrl=deployment.physical("DeadLetters"))["Messages"]
    assert dead["Body"] == poison
    assert "alerts/slack" in log.getvalue() or "https" in log.getvalue()
    assert SECRET not in log.getvalue()


@pytest.mark.parametrize("kind", [kind for kind in DetailType if kind.name.startswith("INCIDENT")])
@pytest.mark.parametrize("source", ["evenkeel", "evenkeel.provisioning", "kubernetes-event-exporter"])
def test_no_event_of_the_bus_reaches_a_chat_or_a_pager(
    notified: tuple[Deployment, str], source: str, kind: DetailType
) -> None:
    deployment, queue = notified
    forged = {
        **detail_of(alert()),
        "type": "Warning",
        "message": "call 555",
        "runbook": "https://evil.example/#capacity",
    }
    entry = {"Source": source, "DetailType": kind.value, "Detail": json.dumps(forged), "EventBusName": deployment.bus}
    assert deployment.aws.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0
    with Recorded(deployment, log=io.StringIO()) as functions:
        Triggers(deployment, functions).drain()
        assert "NotifyFunction" not in functions.sent
    sqs = deployment.aws.client("sqs")
    for url in (deployment.physical("AlertsQueue"), queue):
        assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_a_message_with_a_runbook_of_its_own_is_refused_and_kept(notified: tuple[Deployment, str]) -> None:
    deployment, queue = notified
    forged = json.dumps(detail_of(alert(runbook="https://evil.example/#capacity")))
    with Recorded(deployment, log=io.StringIO()) as functions:
        assert functions("NotifyFunction", batch(forged)) == {"batchItemFailures": []}
    sqs = deployment.aws.client("sqs")
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    (dead,) = sqs.receive_message(QueueUrl=deployment.physical("DeadLetters"), MessageAttributeNames=["All"])[
        "Messages"
    ]
    assert dead["MessageAttributes"]["reason"]["StringValue"] == (
        "incident 'blue/cluster-api/prod/workers/missing': runbook is 'https://evil.example/#capacity': "
        "it must be a section of docs/operate/runbooks.md"
    )


def test_a_good_change_is_sent_although_a_bad_one_cannot_be_set_aside(
    notified: tuple[Deployment, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise QueueUnavailableError("queue of dead letters: away")

    deployment, queue = notified
    monkeypatch.setattr(SqsQueue, "dead_letter", away)
    with Recorded(deployment, log=io.StringIO()) as functions:
        answer = functions("NotifyFunction", batch('{"key": 7}', json.dumps(detail_of(alert()))))
    assert {"itemIdentifier": "m0"} in answer["batchItemFailures"]
    messages = deployment.aws.client("sqs").receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
    assert alert().message in messages[0]["Body"]


def test_rebalance_sends_incidents_to_the_queue_and_no_other_function_may(notified: tuple[Deployment, str]) -> None:
    deployment, _ = notified
    url = deployment.physical("AlertsQueue")
    assert SqsAlerts(deployment.aws.client("sqs"), url).send(detail_of(alert()))
    assert deployment.environment("RebalanceFunction")["EVENKEEL_ALERTS_QUEUE_URL"] == url
    request = request_of(deployment, "sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "x"})
    allowed = {name for name in deployment.template.functions() if Permissions(deployment, name).allows(request)}
    assert allowed == {"RebalanceFunction"}
    with Recorded(deployment, log=io.StringIO()) as functions:
        Triggers(deployment, functions).poll()
        assert "sns:Publish" in {request.action for request in functions.sent["NotifyFunction"]}


def test_notify_may_store_what_it_sent_and_nothing_else(notified: tuple[Deployment, str]) -> None:
    deployment, _ = notified
    allowed = Permissions(deployment, "NotifyFunction").allows
    for pk, expected in (
        ("ALERTED#slack", True),
        ("CLUSTER#blue", False),
        ("HEALTH_BY_CLUSTER", False),
        ("ALERTED", False),
    ):
        key = {"pk": {"S": pk}, "sk": {"S": "x"}}
        for operation, params in (("PutItem", {"Item": key}), ("GetItem", {"Key": key})):
            request = request_of(deployment, "dynamodb", operation, {"TableName": deployment.table, **params})
            assert allowed(request) is expected, (operation, pk)
    assert not allowed(request_of(deployment, "secretsmanager", "GetSecretValue", {"SecretId": "alerts/slack-2"}))
    assert not allowed(request_of(deployment, "secretsmanager", "GetSecretValue", {"SecretId": "evenkeel/blue"}))
