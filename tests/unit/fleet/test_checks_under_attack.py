"""Checks and scans under attack: each of these failed once."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import trustme

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.adapters.aws import records
from evenkeel.adapters.aws.queues import Request, read_check
from evenkeel.adapters.aws.records import META, Stored, StoredPool
from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.adapters.kubernetes.access import clusters as access
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.connection import Connection
from evenkeel.adapters.kubernetes.access.service_account import ServiceAccountCredential
from evenkeel.adapters.kubernetes.client.api import Answer, KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.own_annotations import Reading
from evenkeel.adapters.ttl_cache import Shared
from evenkeel.application.errors import AccessError, AccessRefusedError, AccessUnavailableError, TooLargeError
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.application.ports import CheckResult, sequentially
from evenkeel.domain.fleet.check_times import chunks_of_minute
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.states import PoolState
from evenkeel.record import ControlRecord
from tests.builders import MINUTE
from tests.fakes import NOW, FakeClock, FakeCluster, FakeClusters, FakeQueue, InMemoryStore, plenty, record, register
from tests.stack import Stack


def test_an_unanswered_sts_call_is_unavailable_access_for_all_that_share_it() -> None:
    def away() -> tuple[str, timedelta]:
        raise AccessUnavailableError("sts:AssumeRole of r was not answered: EndpointConnectionError")

    with pytest.raises(AccessUnavailableError):
        Shared[str](FakeClock().now).get("r", away)


class Unauthorized(KubernetesApi):
    """An EKS API server before checks have their access entry: 401 to everything."""

    def _headers(self, *_: Any, **__: Any) -> dict[str, str]:
        return {}

    def _send(self, *_: Any, **__: Any) -> Any:
        return Answer("GET", "/", 401, {}, b'{"kind":"Status","message":"Unauthorized","code":401}')


@pytest.mark.parametrize(
    "request_of",
    [
        lambda api: api.served("cluster.x-k8s.io", plenty),
        lambda api: api.list_all("/apis/cluster.x-k8s.io/v1beta1/machinedeployments", plenty),
        lambda api: api.get("/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status", plenty),
    ],
    ids=["served", "list", "get"],
)
def test_a_401_is_a_refusal_of_any_request(request_of: Callable[[KubernetesApi], object]) -> None:
    with pytest.raises(AccessRefusedError):
        request_of(Unauthorized("eks", None, None, FakeClock()))  # type: ignore[arg-type]


class ChecksLockedOut(FakeClusters):
    error: Exception = AccessError("cluster demo: there is no token for checks yet: the next run requests one")
    ran = 0

    def open(self, record: Any, remaining: Any, *, consistent: bool = True, alone: bool = True) -> FakeCluster:
        if not consistent:
            raise self.error
        self.ran += 1
        return super().open(record, remaining, consistent=consistent, alone=alone)


def pass_minutes(stack: Stack, minutes: int) -> None:
    """Play chunks each minute, single checks when they are due, and each requested run."""
    due: list[Any] = []
    for _ in range(minutes):
        stack.clock.at += MINUTE
        for when in [when for when in due if when <= stack.clock.at]:
            due.remove(when)
            stack.check(("demo",), plenty)
            stack.carry_out()
        stack.check(("demo", "gone"), plenty)
        stack.carry_out()
        due += [stack.clock.at + timedelta(seconds=check.delay) for check in stack.queue.checks]
        stack.queue.checks.clear()


@pytest.mark.parametrize("error", [ChecksLockedOut.error, TooLargeError("GET /apis of demo: larger than 64 MiB")])
@pytest.mark.parametrize("registers", [False, True], ids=["", "registered again"])
def test_a_cluster_that_only_runs_can_read_is_run_within_the_hour(error: Exception, registers: bool) -> None:
    locked = ChecksLockedOut({"demo": Stack().cluster})
    locked.error = error
    stack = Stack(clusters=locked)
    pass_minutes(stack, 30)
    if registers:
        locked.ran = 0
        access = {"kind": "kubeconfig", "secret": "evenkeel/x"}
        stack.ask("register", record={"flavours": ["cluster-api"], "access": access})
        stack.carry_out()
    pass_minutes(stack, 30)
    assert locked.ran > 0


def test_a_cluster_that_is_resumed_during_a_rollback_is_checked_afterwards() -> None:
    """This release pauses it, the previous one resumes it and writes META alone: the shard is outdated."""
    store, queue, clock = InMemoryStore(), FakeQueue(), FakeClock()
    register(store, "demo", paused=True)
    listed = dict(store._due)
    stored = store.load("demo")
    store.save_record(stored.record, ControlRecord(), stored.versions)
    store._due.update(listed)
    scan = Scan(store=store, queue=queue, clock=clock, together=sequentially)
    for minute in range(60):
        clock.at = NOW + minute * MINUTE
        scan.tick(clock.at)
    assert not store.load("demo").control.is_paused(clock.at)
    assert any("demo" in chunk.clusters for chunk in queue.checks)


CA = trustme.CA().cert_pem.bytes().decode()
MACHINE_CLASS = {
    "metadata": {"name": "c", "namespace": "shoot", "resourceVersion": "1"},
    "nodeTemplate": {"capacity": {"cpu": "4", "memory": "16Gi"}, "instanceType": "m5.large", "zone": "eu-west-1a"},
}


def test_a_check_reads_the_node_template_of_a_machine_class_as_a_run_does() -> None:
    body = {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClassList", "metadata": {}}
    page = json.dumps({**body, "items": [MACHINE_CLASS]}).encode()
    of_run, of_check = (ReceivedList("x", (page,), whole=whole).objects()[0] for whole in (True, False))
    source = FLAVOURS["gardener"].nodes.template
    assert source is not None
    template = source.read(of_run, Reading(name="c"))
    assert template.complete
    assert source.read(of_check, Reading(name="c")) == template


def test_a_cluster_may_have_the_name_clusters() -> None:
    body = json.dumps({"cluster": "clusters", "reason": "second check after a write"})
    assert read_check(body) == Request(cluster="clusters", reason="second check after a write")


def test_a_failed_write_keeps_fields_of_a_newer_release() -> None:
    """Until a write has succeeded, the versions carry the text that was read."""
    pool = PoolId("cluster-api", "default", "main", "workers")
    registration = records.StoredRegistration.of(record("demo"), ControlRecord()).model_dump_json(exclude_none=True)
    entry = records.entry(f"POOL#{pool}", StoredPool.of(pool, PoolState()), None, NOW)
    text = json.dumps({**json.loads(entry.text), "from_tomorrow": 1})
    items = {META: Stored(text=registration, version=1), f"POOL#{pool}": Stored(text=text, version=1)}
    versions = records.stored_cluster("demo", items, 0, NOW).versions
    for attempt in range(2):  # the table refuses all of the first: a timeout, a lost lease
        value = StoredPool.of(pool, PoolState(digest=f"d{attempt}"))
        written = records.entry(f"POOL#{pool}", value, versions, NOW)
        assert json.loads(written.text).get("from_tomorrow") == 1, f"attempt {attempt + 1}"


def test_a_request_to_an_unreachable_cluster_checks_it_within_a_minute() -> None:
    stack = Stack()
    for _ in range(6):
        stack.clock.at += 6 * MINUTE
        stack.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
    stack.queue.checks.clear()
    stack.clock.at += timedelta(seconds=30)
    stack.ask("restore")
    stack.carry_out()
    assert [check.delay <= 60 for check in stack.queue.checks] == [True]


@pytest.mark.parametrize("interval", [15, 20, 25, 30, 40, 45, 50])
def test_checks_are_never_further_apart_than_the_interval(interval: int) -> None:
    for number in range(200):
        seconds = sorted(chunk.delay for chunk in chunks_of_minute([(f"cluster-{number}", interval)], 50))
        gaps = [after - before for before, after in zip(seconds, [*seconds[1:], seconds[0] + 60], strict=True)]
        assert max(gaps) <= interval


def test_a_fleet_with_more_clusters_than_connections_describes_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []

    def describe(client: Any, access: Any, where: str) -> Connection:
        described.append(access.name)
        return Connection(server="https://eks.example", ca=CA, ca_place=where)

    monkeypatch.setattr(access, "describe_eks", describe)
    monkeypatch.setattr(AwsIdentity, "client", lambda *_: None)
    clusters = RecordedClusters(session=None, secret=lambda *_: "", clock=FakeClock(), writes=False)
    fleet = [record(f"c{n}", access={"kind": "eks", "name": f"c{n}", "region": "eu-west-1"}) for n in range(300)]
    for _ in range(3):
        for one in fleet:
            clusters.open(one, plenty, consistent=False)
    assert len(described) == len(fleet)


class Vault:
    """``TokenVault`` in memory, sealing nothing."""

    def __init__(self) -> None:
        self.kept: dict[bool, SealedToken] = {}

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
        return self.kept.get(writes)

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        self.kept[writes] = token

    def seal(self, token: str, server: str, *, writes: bool) -> str:
        return token

    def unseal(self, sealed: str, server: str, *, writes: bool) -> str:
        return sealed


class TokenServer:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def create(self, path: str, body: Any, remaining: Any) -> dict[str, Any]:
        ends = self.clock.at + timedelta(days=1)
        return {"status": {"token": f"t{self.clock.at:%H%M}", "expirationTimestamp": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}}


def test_checks_request_one_run_to_renew_a_token() -> None:
    clock, vault = FakeClock(), Vault()
    fields = {"endpoint": "https://api.blue.example:6443", "ca_data": "", "token": "c2VhbGVk", "namespace": "evenkeel"}
    access = ServiceAccountAccess.model_construct(kind="service-account", **fields)

    def instance(*, writes: bool) -> ServiceAccountCredential:
        return ServiceAccountCredential("demo", access, vault, Shared(clock.now), clock.now, writes=writes)

    def run() -> None:
        instance(writes=True).renew(TokenServer(clock), plenty)  # type: ignore[arg-type]

    run()
    clock.at += timedelta(hours=11)
    check, runs = instance(writes=False), 0  # a warm instance of check, whose first check is then
    for _ in range(7 * 60):
        clock.at += MINUTE
        check.token(fresh=False)
        if check.is_due():
            runs += 1
            run()
    assert runs == 1, f"{runs} runs to renew one token once"
