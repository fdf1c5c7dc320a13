"""A ServiceAccount's token over its life: encrypted by KMS, stored in the table, renewed by runs, read by checks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.adapters.aws.token_store import SealedTokens, encryption_context
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.application.errors import AccessError, ClusterUnavailableError, RejectedError
from evenkeel.bootstrap import Container
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.permissions import Permissions, request_of
from tests.fakes import FakeClock, plenty, record
from tests.tls_server import CA_PEM

SERVER = "https://api.blue.example:6443"
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    with aws.deploy(parameters={"WithTokenKey": "true"}) as made:
        yield made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def vault(deployment: Deployment) -> SealedTokens:
    aws = deployment.aws
    key = deployment.physical("TokenKey", "Arn")
    return SealedTokens(aws.client("dynamodb"), aws.client("kms"), deployment.table, key)


def jwt(name: str, issued: datetime, life: timedelta) -> str:
    """Return a token like an API server's, except for the signature."""
    claims = {"iat": int(issued.timestamp()), "exp": int((issued + life).timestamp()), "name": name}
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", json.dumps(claims).encode(), b"s")
    )


def name_in(token: str) -> str:
    part = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["name"])


class Server:
    """An API server with the one request that renewal needs."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.life = DAY
        self.refuse: Callable[[str], Exception | None] = lambda name: None

    def create(self, path: str, body: Any, remaining: Any) -> dict[str, Any]:
        name = path.split("/")[-2]
        self.asked.append(name)
        if failure := self.refuse(name):
            raise failure
        assert body["spec"]["expirationSeconds"] >= 600, "less is 422"
        life = min(self.life, timedelta(seconds=body["spec"]["expirationSeconds"]))
        token = jwt(f"{name}-{len(self.asked)}", self.clock.at, life)
        ends = (self.clock.at + life).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"status": {"token": token, "expirationTimestamp": ends}}


class Life:
    """One cluster, whose runs and checks are separate function instances."""

    def __init__(self, vault: SealedTokens, clock: FakeClock, cluster: str) -> None:
        self.vault, self.clock, self.cluster = vault, clock, cluster
        self.server = Server(clock)
        self.register(jwt("first", clock.at, DAY))

    def register(self, token: str, server: str = SERVER) -> None:
        sealed = self.vault.seal(token, SERVER, writes=True)
        ca = base64.b64encode(CA_PEM.encode()).decode()
        access = {"kind": "service-account", "endpoint": server, "ca_data": ca, "token": sealed}
        self.record = record(self.cluster, access=access)

    def clusters(self, *, writes: bool) -> RecordedClusters:
        ports: dict[str, Any] = {"session": lambda: None, "secret": lambda *_: "", "clock": self.clock}
        return RecordedClusters(**ports, writes=writes, vault=self.vault)

    def credential(self, *, writes: bool) -> Any:
        return self.clusters(writes=writes)._service_account(self.cluster, self.record.access)  # type: ignore[arg-type]

    def run(self) -> str:
        """Return the token that a run sends, after it has renewed it if due."""
        credential = self.credential(writes=True)
        credential.renew(self.server, plenty)
        return name_in(credential.token(fresh=False))

    def check(self) -> str:
        return name_in(self.credential(writes=False).token(fresh=False))

    def needs_run(self) -> bool:
        return self.clusters(writes=False).needs_run(self.record)


@pytest.fixture
def life(vault: SealedTokens, clock: FakeClock, request: pytest.FixtureRequest) -> Life:
    return Life(vault, clock, f"c{abs(hash(request.node.name))}")


def test_the_first_run_asks_for_a_token_of_each_account(life: Life) -> None:
    with pytest.raises(AccessError, match=r"cluster c\d+: there is no token for checks yet: the next run requests one"):
        life.check()
    assert (life.run(), life.check()) == ("evenkeel-2", "evenkeel-readers-1")
    assert not life.needs_run()


@pytest.mark.parametrize("life_of_tokens", [DAY, timedelta(hours=1)])
def test_tokens_are_renewed_from_half_of_their_life_on(life: Life, clock: FakeClock, life_of_tokens: timedelta) -> None:
    life.server.life = life_of_tokens
    life.run()
    clock.at += life_of_tokens / 2 - timedelta(seconds=1)
    assert (life.run(), life.needs_run()) == ("evenkeel-2", False)
    clock.at += timedelta(seconds=1)
    assert life.needs_run()
    assert (life.run(), life.check(), life.needs_run()) == ("evenkeel-4", "evenkeel-readers-3", False)


def test_renewals_go_beyond_the_versions_that_a_secret_keeps(life: Life, clock: FakeClock) -> None:
    for _ in range(110):
        assert life.run().startswith("evenkeel-")
        clock.at += DAY / 2
    assert len(life.server.asked) == 2 * 110


@pytest.mark.parametrize("crashes", ["evenkeel-readers", "evenkeel"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_run_that_crashes_while_it_renews_keeps_access(
    life: Life, clock: FakeClock, crashes: str, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.run()
    clock.at += DAY / 2

    class CrashError(BaseException):
        pass

    save = life.vault.save

    def crash(cluster: str, token: Any, *, writes: bool) -> None:
        if writes is (crashes == "evenkeel"):
            if stored:
                save(cluster, token, writes=writes)
            raise CrashError
        save(cluster, token, writes=writes)

    with monkeypatch.context() as patched:
        patched.setattr(life.vault, "save", crash)
        with pytest.raises(CrashError):
            life.run()
    assert life.check()
    assert life.run()
    assert not life.needs_run()


def test_two_runs_at_once_both_go_on(life: Life, clock: FakeClock) -> None:
    first, second = life.credential(writes=True), life.credential(writes=True)
    first.token(fresh=False)
    second.token(fresh=False)
    load = life.vault.load
    seen = {writes: load(life.cluster, writes=writes) for writes in (True, False)}
    first.renew(life.server, plenty)
    vault = life.vault
    behind = {"save": vault.save, "seal": vault.seal, "unseal": vault.unseal}
    second._vault = SimpleNamespace(load=lambda cluster, *, writes: seen[writes], **behind)
    second.renew(life.server, plenty)
    assert first.token(fresh=True)
    assert (life.run(), life.check()) == ("evenkeel-2", "evenkeel-readers-1"), "those of the first are kept"


@pytest.mark.parametrize("failing", ["evenkeel-readers", "evenkeel"])
def test_an_account_that_is_not_renewed_delays_neither_the_run_nor_the_other(
    life: Life, clock: FakeClock, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    life.run()
    clock.at += DAY / 2
    life.server.refuse = lambda name: RejectedError("403 no") if name == failing else None
    assert life.run() == ("evenkeel-2" if failing == "evenkeel" else "evenkeel-4")
    assert f"its token of {failing} is not renewed yet: 403 no" in caplog.text
    assert life.needs_run() is (failing == "evenkeel-readers")
    life.server.refuse = lambda name: None
    life.run()
    assert not life.needs_run()


def test_one_that_was_not_renewed_in_time_says_what_to_do(life: Life, clock: FakeClock) -> None:
    life.run()
    life.server.refuse = lambda name: ClusterUnavailableError("away")
    clock.at += DAY
    for ask in (life.run, life.check):
        with pytest.raises(AccessError) as caught:
            ask()
        assert "its token ended at 2026-01-16T12:00:00Z and was not renewed: encrypt a new one" in str(caught.value)
    life.server.refuse = lambda name: None
    life.register(jwt("second", clock.at, DAY))
    assert (life.run(), life.check()) == ("evenkeel-6", "evenkeel-readers-5")


def test_a_first_token_that_lasts_longer_is_used_where_the_renewed_has_ended(life: Life, clock: FakeClock) -> None:
    life.register(jwt("long", clock.at, 30 * DAY))
    life.run()
    life.server.refuse = lambda name: ClusterUnavailableError("away")
    clock.at += 2 * DAY
    assert life.run() == "long"


def test_a_new_first_token_ends_the_use_of_tokens_that_the_former_renewed(life: Life, clock: FakeClock) -> None:
    life.run()
    life.register(jwt("second", clock.at, DAY))
    life.server.refuse = lambda name: ClusterUnavailableError("away")
    assert life.run() == "second"
    with pytest.raises(AccessError, match="there is no token for checks yet"):
        life.check()


def test_a_copied_text_with_another_address_opens_nothing(life: Life, clock: FakeClock) -> None:
    life.register(jwt("first", clock.at, DAY), server="https://attacker.example")
    with pytest.raises(AccessError) as caught:
        life.run()
    assert str(caught.value) == (
        f"cluster {life.cluster}: the token cannot be decrypted: it was not encrypted for this endpoint under this "
        "stack's key: encrypt it again"
    )
    assert life.server.asked == []


def test_a_kept_token_that_is_moved_to_another_cluster_opens_nothing(life: Life, clock: FakeClock) -> None:
    life.run()
    kept = life.vault.load(life.cluster, writes=True)
    assert kept is not None
    for server, writes in (("https://attacker.example", True), (SERVER, False)):
        with pytest.raises(AccessError, match="not encrypted for this endpoint"):
            life.vault.unseal(kept.sealed, server, writes=writes)


def test_nothing_is_stored_in_clear_and_what_is_stored_ends(
    life: Life, deployment: Deployment, clock: FakeClock
) -> None:
    life.run()
    items = deployment.aws.client("dynamodb").query(
        TableName=deployment.table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": f"CLUSTER#{life.cluster}"}},
    )["Items"]
    assert [item["sk"]["S"] for item in items] == ["ACCESS#checks", "ACCESS#writes"]
    for item in items:
        text = json.dumps(item)
        assert "eyJ" not in text
        assert ".s" not in text
        assert int(item["expires_at"]["N"]) == int((clock.at + 2 * DAY).timestamp())


def test_items_that_the_event_function_could_write_do_no_harm(life: Life, deployment: Deployment) -> None:
    for purpose in ("writes", "checks"):
        key = {"pk": {"S": f"CLUSTER#{life.cluster}"}, "sk": {"S": f"ACCESS#{purpose}"}}
        deployment.aws.client("dynamodb").put_item(TableName=deployment.table, Item={**key, "state": {"S": "{}"}})
    assert (life.run(), life.check()) == ("evenkeel-2", "evenkeel-readers-1")


def test_a_stack_without_a_key_is_an_error(clock: FakeClock, life: Life) -> None:
    clusters = RecordedClusters(session=None, secret=lambda *_: "", clock=clock)
    with pytest.raises(AccessError, match="the stack has no key for tokens: deploy it with WithTokenKey=true"):
        clusters.open(life.record, plenty)


def test_the_functions_have_the_key_where_the_stack_has_one(
    deployment: Deployment, dry_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    variables = deployment.environment("RebalanceFunction")
    assert variables["EVENKEEL_TOKEN_KEY"] == deployment.physical("TokenKey", "Arn")
    assert isinstance(Container(variables).clusters._kubernetes()._vault, SealedTokens)
    assert Container(dry_deployment.environment("RebalanceFunction")).clusters._kubernetes()._vault is None


@pytest.mark.parametrize("writes", [True, False])
def test_a_function_that_only_reads_uses_the_other_identity(deployment: Deployment, writes: bool) -> None:
    variables = deployment.environment("RebalanceFunction" if writes else "CheckFunction")
    assert Container(variables, writes=writes).clusters._kubernetes()._writes is writes


@pytest.mark.parametrize(
    ("function", "operation", "writes", "allowed"),
    [
        ("RebalanceFunction", "Encrypt", True, True),
        ("RebalanceFunction", "Encrypt", False, True),
        ("RebalanceFunction", "Decrypt", True, True),
        ("WidgetFunction", "Decrypt", False, True),
        ("AdminFunction", "Decrypt", False, True),
        ("WidgetFunction", "Decrypt", True, False),
        ("AdminFunction", "Decrypt", True, False),
        ("WidgetFunction", "Encrypt", False, False),
        ("ScanFunction", "Decrypt", False, False),
        ("ProvisioningFailureFunction", "Decrypt", False, False),
    ],
)
def test_functions_that_read_cannot_decrypt_a_token_that_writes(
    deployment: Deployment, function: str, operation: str, writes: bool, allowed: bool
) -> None:
    context = encryption_context(SERVER, writes=writes)
    asked = {"KeyId": deployment.physical("TokenKey", "Arn"), "EncryptionContext": context}
    request = request_of(deployment, "kms", operation, asked)
    assert Permissions(deployment, function).allows(request) is allowed
    other = {**asked, "KeyId": "arn:aws:kms:eu-central-1:123456789012:key/another"}
    assert not Permissions(deployment, function).allows(request_of(deployment, "kms", operation, other))
