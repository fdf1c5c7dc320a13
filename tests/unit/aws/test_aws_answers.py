"""Each port raises its own error for an answer of AWS that cannot be read."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.parsers import ResponseParserError

from evenkeel.access_config import EksAccess
from evenkeel.adapters.alerts.channels import ChatTopic
from evenkeel.adapters.auto_scaling.api import AutoScalingApi
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.aws.alert_memory import DynamoAlertMemory
from evenkeel.adapters.aws.page_bucket import S3PageStore
from evenkeel.adapters.aws.queues import EventBridgeBus, QueueUrls, SqsQueue
from evenkeel.adapters.aws.secrets import Secrets
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.adapters.aws.zone_names import ZoneNames
from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.adapters.aws_session import RUNS, AwsSession
from evenkeel.adapters.kubernetes.access.eks import describe_eks
from evenkeel.application.errors import (
    AccessError,
    AccessUnavailableError,
    ClusterUnavailableError,
    EvenkeelError,
    QueueUnavailableError,
    StateUnavailableError,
)
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.application.incidents.alerting import ChannelError, LastNotified
from evenkeel.application.ports import Lease, Versions
from evenkeel.domain.fleet.check_times import Chunk, Timer
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.record import ControlRecord
from tests.alerts import alert
from tests.fakes import NOW, FakeClock, record

SECRET = "swordfish"
#: bodies of a 200 that are no valid answer; some raise errors in botocore's parsers, some lack fields
BODIES = [b"<html>swordfish", b"[]", b"7", b"null", b"", b"{}", b"\xff", b"<swordfish/>", b'{"Items": "swordfish"}']
TOKEN = SealedToken(sealed="c2VhbA==", seed="s", issued=NOW, expires=NOW)
URLS = QueueUrls(rebalance="https://q/r", checks="https://q/l", dead_letters="https://q/d")
CHUNK = Chunk(clusters=("a",), delay=0)
LEASE = Lease(owner="x", fencing_token=1, expires=NOW)
ACCESS = EksAccess(kind="eks", name="demo", region="eu-central-1")

Ask = Callable[[Callable[[str], Any]], Any]

STORE: dict[str, Callable[[DynamoStore], Any]] = {
    "load": lambda store: store.load("a"),
    "due": lambda store: store.due("0"),
    "registrations": lambda store: store.registrations(),
    "registered": lambda store: store.registered("a"),
    "steady": lambda store: store.steady_clusters(["a"]),
    "health": lambda store: store.cluster_healths(),
    "decisions": lambda store: store.decisions("a", 1),
    "decisions after": lambda store: store.decisions_after("a", "0"),
}
STORED: dict[str, Callable[[DynamoStore], Any]] = {
    "save": lambda store: store.save_record(record(), ControlRecord(), None),
    "timer": lambda store: store.save_timer("a", Timer(due=NOW), Versions()),
    "save health": lambda store: store.save_cluster_health("a", ClusterHealth(), None),
    "lease": lambda store: store.take_lease("a", "x", 0, NOW, NOW + timedelta(seconds=9)),
    "end of a lease": lambda store: store.give_back_lease("a", LEASE, NOW),
}


def of_store(asks: dict[str, Callable[[DynamoStore], Any]]) -> dict[str, tuple[type[EvenkeelError], Ask]]:
    def made(ask: Callable[[DynamoStore], Any]) -> Ask:
        return lambda of: ask(DynamoStore(of("dynamodb"), "t"))

    return {name: (StateUnavailableError, made(ask)) for name, ask in asks.items()}


ASKED: dict[str, tuple[type[EvenkeelError], Ask]] = {
    **of_store(STORE),
    "secret": (AccessError, lambda of: Secrets(of("secretsmanager"), lambda: NOW)("name", False)),
    "kept token": (AccessUnavailableError, lambda of: _vault(of).load("a", writes=True)),
    "encrypt": (AccessUnavailableError, lambda of: _vault(of).seal("token", "https://api", writes=True)),
    "decrypt": (AccessUnavailableError, lambda of: _vault(of).unseal("c2VhbA==", "https://api", writes=True)),
    "groups": (ClusterUnavailableError, lambda of: _auto_scaling(of).groups(())),
    "activities": (ClusterUnavailableError, lambda of: [*_auto_scaling(of).activities()]),
    "refresh": (ClusterUnavailableError, lambda of: _auto_scaling(of).refresh("workers")),
    "node group": (ClusterUnavailableError, lambda of: _auto_scaling(of).node_group("demo", "workers")),
    "zones": (AccessUnavailableError, lambda of: ZoneNames(lambda region: of("ec2"))("eu-central-1")),
    "eks": (AccessUnavailableError, lambda of: describe_eks(of("eks"), ACCESS, "cluster a")),
    "token": (AccessUnavailableError, lambda of: _identity(of).token("https://api", 300)),
    "role": (AccessUnavailableError, lambda of: _identity(of).role("arn:aws:iam::111122223333:role/a", None)),
}
#: calls that read no field of an answer
SENT: dict[str, tuple[type[EvenkeelError], Ask]] = {
    **of_store(STORED),
    "last notified": (StateUnavailableError, lambda of: _memory(of).last_notified("slack", "a")),
    "notified": (StateUnavailableError, lambda of: _memory(of).save_notified("slack", "a", LastNotified())),
    "token kept": (AccessUnavailableError, lambda of: _vault(of).save("a", TOKEN, writes=True)),
    "request": (QueueUnavailableError, lambda of: SqsQueue(of("sqs"), URLS).request("a", "b", "c")),
    "chunks": (QueueUnavailableError, lambda of: SqsQueue(of("sqs"), URLS).request_checks([CHUNK])),
    "page": (AccessUnavailableError, lambda of: S3PageStore(lambda: of("s3"), "s3://pages/a.html").put("<p>")),
    "topic": (ChannelError, lambda of: ChatTopic(client=of("sns"), topic="arn:aws:sns:x").send([alert()])),
}


def _memory(of: Callable[[str], Any]) -> DynamoAlertMemory:
    return DynamoAlertMemory(of("dynamodb"), "t", lambda: NOW)


def _vault(of: Callable[[str], Any]) -> SealedTokens:
    return SealedTokens(of("dynamodb"), of("kms"), "t", "key")


def _auto_scaling(of: Callable[[str], Any]) -> AutoScalingApi:
    return AutoScalingApi(
        "demo",
        auto_scaling=lambda: of("autoscaling"),
        eks=lambda: of("eks"),
        node_groups=NodeGroups(random=lambda: 0.0),
        clock=FakeClock(NOW),
        remaining=lambda: 60.0,
    )


def _identity(of: Callable[[str], Any]) -> AwsIdentity:
    class Session:
        def client(self, service: str, **_given: Any) -> Any:
            return of(service)

    return AwsIdentity(Session(), FakeClock(NOW).now)


class Unreadable:
    """A client none of whose answers botocore can read."""

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**_given: Any) -> Any:
            raise ResponseParserError(f"Unable to parse response (no element found):\nb'{SECRET}'")

        return call


@pytest.mark.parametrize("name", [*ASKED, *SENT])
def test_an_answer_that_cannot_be_read_is_the_error_of_the_port(name: str) -> None:
    expected, ask = {**ASKED, **SENT}[name]
    with pytest.raises(expected) as raised:
        ask(lambda service: Unreadable())
    assert SECRET not in str(raised.value)


def test_best_effort_calls_ignore_it() -> None:
    SqsQueue(Unreadable(), URLS).try_soon("receipt", 1)
    assert EventBridgeBus(Unreadable(), "bus").publish("Decision", {}) is False


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_given: Any) -> Iterator[bytes]:
        yield self._body


class _Clients:
    """Clients of the functions' session, whose every answer is `body`."""

    def __init__(self) -> None:
        self.body = b""
        self._session, self._made = AwsSession(), dict[str, Any]()

    def __call__(self, service: str) -> Any:
        if service not in self._made:
            self._made[service] = self._session.client(service, config=RUNS)
            self._made[service].meta.events.register("before-send", self._answer)
        return self._made[service]

    def _answer(self, **_given: Any) -> AWSResponse:
        return AWSResponse("https://aws", 200, {}, _Raw(self.body))


@pytest.fixture(scope="module")
def clients() -> Iterator[_Clients]:
    with pytest.MonkeyPatch.context() as patch:
        variables = {"DEFAULT_REGION": "eu-central-1", "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"}
        for variable, value in variables.items():
            patch.setenv(f"AWS_{variable}", value)
        yield _Clients()


@pytest.mark.parametrize("name", ASKED)
def test_any_other_body_is_the_error_of_the_port(name: str, clients: _Clients) -> None:
    expected, ask = ASKED[name]
    for clients.body in BODIES:
        with pytest.raises(expected) as raised:
            ask(clients)
        assert SECRET not in str(raised.value)
