"""A secret of any form, in any wrong field, is sent only to its server, and never output."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import botocore.credentials
import botocore.exceptions
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.codec import pack
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.kubeconfig import read_kubeconfig
from evenkeel.adapters.page.render import Theme
from evenkeel.adapters.page.widget import page_for
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import Operate
from evenkeel.application.rebalancing.observe import observe_cluster
from evenkeel.bootstrap import SystemClock
from evenkeel.record import ClusterRecord, ControlRecord
from tests.fakes import FakeQueue, InMemoryStore, plenty, record
from tests.tls_server import CA_PEM, response, serving

MARK = "S3CR3Tq7"
CA = base64.b64encode(CA_PEM.encode()).decode()
JUNK = st.one_of(
    st.just(""),
    st.sampled_from(["\n", "\r\n", "\t", " ", "\x00", "\x1b[31m", "\x7f", "\x9b", "'", '"', "\\", "\u202e", "ä", "𐀀"]),
    st.text(max_size=20),
    st.sampled_from(["x" * 100_000, "\n" * 1000, "'" * 5000, '": "', "b'", "- &a ["]),
)
SECRETS = st.builds(lambda *parts: MARK.join(parts), JUNK, JUNK, JUNK) | st.builds(
    lambda junk: junk + MARK, st.text(alphabet="abc-._~+/=\"'\\{}", max_size=50)
)


def echo(connection: socket.socket, head: bytes) -> None:
    """Send the request back as the message of an error."""
    sent = next(
        (line[15:] for line in head.decode("latin-1").split("\r\n") if line[:15].lower() == "authorization: "), ""
    )
    message = f"not for {sent}, '{sent!r}', {sent.encode()!r} or {sent[:400]}"
    connection.sendall(response(403, json.dumps({"message": message}).encode()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(echo) as here:
        yield here


class CapturedLogs(logging.Handler):
    """A handler that keeps every line of every log as it would be written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, line: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(line)} {line.__dict__}")

    def __enter__(self) -> CapturedLogs:
        root = logging.getLogger()
        self._levels = {name: logging.getLogger(name).level for name in ("", "evenkeel", "urllib3")}
        root.addHandler(self)
        for name in self._levels:
            logging.getLogger(name).setLevel(logging.DEBUG if name else logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


def chain(error: BaseException | None) -> Iterator[str]:
    """Yield all texts of an exception and of its causes."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield f"{one} {one!r} {one.args!r} {vars(one)!r}"
            waiting += [one.__cause__, one.__context__]


def output_of(clusters: RecordedClusters, given: ClusterRecord) -> str:
    """Return all output of a check of this cluster."""
    store = InMemoryStore()
    store.save_record(given, ControlRecord(), None)
    clock = SystemClock()
    operate = Operate(
        store=store, clusters=clusters, queue=FakeQueue(), clock=clock, dry_run=True, random_bytes=os.urandom, pack=pack
    )
    with CapturedLogs() as logs:
        try:
            observe_cluster(clusters, given, plenty)
            texts = []
        except EvenkeelError as error:
            texts = list(chain(error))
        for action in ("plan", "explain"):
            try:
                operate({"action": action, "cluster": "demo", **({"pool": "p"} if action == "explain" else {})}, plenty)
            except EvenkeelError as error:
                texts += chain(error)
        answers = [operate(event, plenty) for event in ({"action": "status", "live": True}, {"action": "validate"})]
        answers.append(operate({"action": "status"}, plenty))
        page = page_for(answers[0], Theme.LIGHT, datetime.now(UTC))
    assert answers[0]["ok"] is True
    return "\n".join([*texts, json.dumps(answers, ensure_ascii=False), page, *logs.lines])


def by_kubeconfig(text: str) -> RecordedClusters:
    return RecordedClusters(session=None, secret=lambda *_: text, clock=SystemClock(), allow_loopback=True)


PLACES = (
    *("token", "token with a newline", "password", "username", "key", "packed key", "certificate", "authority"),
    *("packed authority", "server", "tls name", "context", "exec", "the whole"),
)


def mistaken(place: str, secret: str, url: str) -> object:
    """Return a kubeconfig with the secret at this place, or a text that is no kubeconfig."""
    cluster: dict[str, Any] = {"server": url, "certificate-authority-data": CA}
    user: dict[str, Any] = {"token": "t0ken"}
    current: object = "main"
    packed = base64.b64encode(secret.encode("utf-8", "replace")).decode()
    match place:
        case "token":
            user["token"] = secret
        case "token with a newline":
            user["token"] = secret + "\n"
        case "password" | "username":
            user[place] = secret
        case "key" | "packed key":
            user = {"client-certificate-data": CA, "client-key-data": packed if "packed" in place else secret}
        case "certificate":
            user = {"client-certificate-data": packed, "client-key-data": packed}
        case "authority" | "packed authority":
            cluster["certificate-authority-data"] = packed if "packed" in place else secret
        case "server":
            cluster["server"] = f"https://{secret}@127.0.0.1"
        case "tls name":
            cluster["tls-server-name"] = secret + "\n"
        case "context":
            current = secret
        case "exec":
            user["exec"] = {"command": "aws", "env": [{"name": "X", "value": secret}]}
        case "the whole":
            return secret
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
    }


class FakeSession(AwsSession):
    """A session with these clients and credentials."""

    def __init__(self, clients: Callable[[str], Any], credentials: Any = None) -> None:
        self.clients, self.credentials = clients, credentials

    def client(self, service: str, **_: Any) -> Any:
        return self.clients(service)

    def get_credentials(self) -> Any:
        return self.credentials


class FakeEks:
    """EKS that describes the cluster, or fails with an error that quotes a secret."""

    def __init__(self, url: str, quoted: str = "") -> None:
        self.url, self.quoted = url, quoted

    def describe_cluster(self, name: str) -> dict[str, Any]:
        if self.quoted:
            raise ValueError(f"Invalid header value {self.quoted!r}")
        return {"cluster": {"endpoint": self.url, "certificateAuthority": {"data": CA}, "status": "ACTIVE"}}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), SECRETS, st.sampled_from(["json", "yaml", "torn"]))
def test_nothing_of_a_kubeconfig_is_shown(url: str, place: str, secret: str, form: str) -> None:
    config = mistaken(place, secret, url)
    text = config if isinstance(config, str) else json.dumps(config)
    if form == "yaml" and not isinstance(config, str):
        text = yaml.safe_dump(config, allow_unicode=True)
    elif form == "torn":
        text = text[: text.find(MARK) + len(MARK) + 2] + "\n  : [ *x"
    assert MARK not in output_of(by_kubeconfig(text), record())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(SECRETS)
def test_a_refused_token_is_in_no_exception(secret: str) -> None:
    config = mistaken("token", secret, "https://api.demo")
    connection = refusal = None
    try:
        connection = read_kubeconfig(json.dumps(config), "secret evenkeel/demo")
    except EvenkeelError as error:
        refusal = error
    assert MARK not in "\n".join([repr(connection), *chain(refusal)])
    if connection is not None:
        assert connection.token == secret.removesuffix("\n").removesuffix("\r")


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(SECRETS, st.booleans())
def test_nothing_of_the_functions_own_credentials_is_shown(url: str, secret: str, known: bool) -> None:
    credentials = botocore.credentials.Credentials(secret, secret, secret)
    session = FakeSession(lambda _: FakeEks(url, "" if known else secret), credentials)
    clusters = RecordedClusters(session=session, secret=lambda *_: "", clock=SystemClock(), allow_loopback=True)
    output = output_of(clusters, record(access={"kind": "eks", "name": "demo", "region": "eu-central-1"}))
    assert MARK not in output
    assert "k8s-aws-v1." not in output


class FailingSts:
    """STS that answers with its token, or with an error that quotes all it can."""

    def __init__(self, secret: str, fails: bool) -> None:
        self.secret, self.fails = secret, fails

    def get_web_identity_token(self, **asked: Any) -> dict[str, Any]:
        return self._answer({"WebIdentityToken": self.secret})

    def assume_role(self, **asked: Any) -> dict[str, Any]:
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        return self._answer({"Credentials": dict.fromkeys(names, self.secret)})

    def _answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        if self.fails:
            error = {"Error": {"Code": "AccessDenied", "Message": f"{self.secret} may not"}}
            raise botocore.exceptions.ClientError(error, "GetWebIdentityToken")
        return answer


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(SECRETS, st.booleans(), st.booleans(), st.booleans())
def test_nothing_of_what_sts_returns_is_shown(url: str, secret: str, fails: bool, writes: bool, eks: bool) -> None:
    session = FakeSession(lambda service: FakeEks(url) if service == "eks" else FailingSts(secret, fails))
    clusters = RecordedClusters(
        session=session, secret=lambda *_: "", clock=SystemClock(), writes=writes, allow_loopback=True
    )
    access: dict[str, Any] = {"kind": "aws-oidc", "endpoint": url, "ca_data": CA, "audience": "evenkeel:prod"}
    if eks:
        role = {"role_arn": "arn:aws:iam::210987654321:role/evenkeel", "external_id": "x1"}
        access = {"kind": "eks", "name": "demo", "region": "eu-central-1", **role}
    output = output_of(clusters, record(access=access))
    assert MARK not in output
    assert "k8s-aws-v1." not in output


def test_a_refused_token_is_withheld_after_its_replacement_too() -> None:
    older = f"{MARK}-older"

    def quote(connection: socket.socket, head: bytes) -> None:
        status = 401 if older.encode() in head else 403
        connection.sendall(response(status, json.dumps({"message": f"not for {older}"}).encode()))

    def kubeconfig(_: str, fresh: bool) -> str:
        return json.dumps(mistaken("token", "newer-t0ken" if fresh else older, server))

    clock = SystemClock()
    clusters = RecordedClusters(session=None, secret=kubeconfig, clock=clock, allow_loopback=True)
    with (
        serving(quote) as server,
        pytest.raises(EvenkeelError, match=r": 403 \(withheld: it quotes the token\)") as caught,
    ):
        observe_cluster(clusters, record(), plenty)
    assert MARK not in "\n".join(chain(caught.value))


class LeakyVault:
    """A vault that returns the secret and stores nothing, or fails with an error that quotes all it can."""

    def __init__(self, secret: str, fails: bool) -> None:
        self.secret, self.fails = secret, fails

    def query(self, **_: Any) -> dict[str, Any]:
        return {"Items": []}

    def put_item(self, **_: Any) -> None:
        raise botocore.exceptions.ClientError({"Error": {"Code": "X", "Message": self.secret}}, "PutItem")

    def decrypt(self, **_: Any) -> dict[str, Any]:
        if self.fails:
            error = {"Error": {"Code": "InvalidCiphertextException", "Message": self.secret}}
            raise botocore.exceptions.ClientError(error, "Decrypt")
        return {"Plaintext": self.secret.encode("utf-8", "replace")}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(SECRETS, st.booleans())
def test_nothing_of_a_service_accounts_token_is_shown(url: str, secret: str, fails: bool) -> None:
    leaky = LeakyVault(secret, fails)
    clusters = RecordedClusters(
        session=None,
        secret=lambda *_: "",
        clock=SystemClock(),
        allow_loopback=True,
        vault=SealedTokens(leaky, leaky, "t", "k"),
    )
    sealed = base64.b64encode(b"sealed").decode()
    access = {"kind": "service-account", "endpoint": url, "ca_data": CA, "token": sealed}
    assert MARK not in output_of(clusters, record(access=access))


def test_a_token_that_came_from_sts_does_reach_its_server(url: str) -> None:
    """This shows that the test above can fail: it reaches the server that sends its request back."""
    session = FakeSession(lambda _: FailingSts("t0ken-of-sts", False))
    clusters = RecordedClusters(session=session, secret=lambda *_: "", clock=SystemClock(), allow_loopback=True)
    output = output_of(clusters, record(access={"kind": "aws-oidc", "endpoint": url, "ca_data": CA}))
    assert "(withheld: it quotes the token)" in output
