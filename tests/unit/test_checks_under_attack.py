"""Looks, scans and what they keep, under attack: each of these failed once."""

import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import trustme

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.adapters.aws import records
from evenkeel.adapters.aws.queues import Request, read_recheck
from evenkeel.adapters.aws.records import META, Stored, StoredPool
from evenkeel.adapters.kubernetes.access import clusters as access
from evenkeel.adapters.kubernetes.access.aws_identity import AwsIdentity
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.connection import Connection
from evenkeel.adapters.kubernetes.access.service_account import ServiceAccountCredential
from evenkeel.adapters.kubernetes.access.ttl_cache import Shared
from evenkeel.adapters.kubernetes.client.api import Answer, KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.offering_reader import by_machine_class
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.adapters.kubernetes.read.list_cache import ListCache
from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    AccessUnavailableError,
    TooLargeError,
)
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.application.ports import CheckResult, sequentially
from evenkeel.domain.fleet.check_times import chunks_of_minute
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.states import PoolState
from evenkeel.record import ControlRecord, Registration
from tests.builders import MINUTE
from tests.fakes import NOW, FakeClock, FakeCluster, FakeClusters, FakeQueue, InMemoryStore, plenty, record, register
from tests.house import House


def test_an_sts_that_is_away_stays_an_aws_that_is_away_for_whoever_shares_the_question() -> None:
    """shared.py `_fill` catches AccessError and `get` raises a plain one: 10,000 clusters are then called silent."""

    def away() -> tuple[str, timedelta]:
        raise AccessUnavailableError("sts:AssumeRole of r was not answered: EndpointConnectionError")

    with pytest.raises(AccessUnavailableError):
        Shared[str](FakeClock().now).get("r", away)


class Unauthorized(KubernetesApi):
    """An EKS API server before looks have their access entry: 401 to everything."""

    def _headers(self, *_: Any, **__: Any) -> dict[str, str]:
        return {}

    def _send(self, *_: Any, **__: Any) -> Any:
        return Answer("GET", "/", 401, {}, b'{"kind":"Status","message":"Unauthorized","code":401}')


@pytest.mark.parametrize("ask", ["served", "list_all", "get"])
def test_a_401_is_a_refusal_whatever_was_asked_first(ask: str) -> None:
    """Cluster API has two versions, so a look asks `served` first, and a 401 there is 'silent' and never a run."""
    api = Unauthorized("eks", None, None, FakeClock())  # type: ignore[arg-type]
    calls: dict[str, Callable[[], object]] = {
        "served": lambda: api.served("cluster.x-k8s.io", plenty),
        "list_all": lambda: api.list_all("/apis/cluster.x-k8s.io/v1beta1/machinedeployments", plenty),
        "get": lambda: api.get("/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status", plenty),
    }
    with pytest.raises(AccessRefusedError):
        calls[ask]()


class LookersLockedOut(FakeClusters):
    """Runs get in; looks do not (no token for looks yet, a role or a key policy that names the worker alone)."""

    error: Exception = AccessError("cluster demo: there is no token for checks yet: the next run requests one")
    ran = 0

    def open(self, record: Any, remaining: Any, *, consistent: bool = True, alone: bool = True) -> FakeCluster:
        if not consistent:
            raise self.error
        self.ran += 1
        return super().open(record, remaining, consistent=consistent, alone=alone)


def deliver(house: House) -> None:
    for id, (cluster, why) in list(house.queue.requests.items()):
        del house.queue.requests[id]
        house.rebalance(cluster, why, plenty, house.queue.found[id])


def pass_minutes(house: House, minutes: int) -> None:
    """Chunks each minute, looks of its own when they are due, and each run that is asked for."""
    due: list[Any] = []
    for _ in range(minutes):
        house.clock.at += MINUTE
        for when in [when for when in due if when <= house.clock.at]:
            due.remove(when)
            house.look(("demo",), plenty)
            deliver(house)
        house.look(("demo", "gone"), plenty)
        deliver(house)
        due += [house.clock.at + timedelta(seconds=look.delay) for look in house.queue.looks]
        house.queue.looks.clear()


def test_a_cluster_that_runs_can_open_and_looks_cannot_is_still_worked_on_within_the_hour() -> None:
    house = House()
    locked = LookersLockedOut({"demo": house.cluster})
    house = House(clusters=locked, groups=None)
    pass_minutes(house, 60)
    assert locked.ran > 0, "no run has opened the cluster for an hour, and none ever will"


def test_registering_it_again_has_a_run_open_it() -> None:
    house = House()
    locked = LookersLockedOut({"demo": house.cluster})
    house = House(clusters=locked)
    pass_minutes(house, 30)
    house.ask(
        "register", record={"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/x"}}
    )
    deliver(house)
    pass_minutes(house, 30)
    assert locked.ran > 0


def test_a_cluster_that_is_resumed_during_a_rollback_is_looked_at_again_afterwards() -> None:
    """Paused by this release, resumed by the one before (which writes META alone), then forward again.

    The shard still has what this release wrote last.
    """
    store, queue, clock = InMemoryStore(), FakeQueue(), FakeClock()
    register(store, "demo", paused=True)
    listed = dict(store._due)
    remembered = store.load("demo")
    store.save_record(remembered.record, ControlRecord(), remembered.versions)
    store._due.update(listed)  # as DynamoDB has it: an item of its own, which that release does not know
    scan = Scan(store=store, queue=queue, clock=clock, together=sequentially)
    for minute in range(60):
        clock.at = NOW + minute * MINUTE
        scan.tick(clock.at)
    assert not store.load("demo").control.is_paused(clock.at)
    assert sum("demo" in chunk.clusters for chunk in queue.looks) > 0, "it is never looked at again"


CA = trustme.CA().cert_pem.bytes().decode()
MACHINE_CLASS = {
    "metadata": {"name": "c", "namespace": "shoot", "resourceVersion": "1"},
    "provider": "AWS",
    "providerSpec": {"machineType": "m5.large", "region": "eu-west-1"},
    "nodeTemplate": {"instanceType": "m5.large", "region": "eu-west-1", "zone": "eu-west-1a"},
}


def test_a_look_sees_what_a_machine_class_buys_as_a_run_does() -> None:
    """lists.py `_Object` has no `provider` and no `providerSpec`: msgspec skips them."""
    body = {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClassList",
        "metadata": {},
        "items": [MACHINE_CLASS],
    }
    page = json.dumps(body).encode()
    whole, looked = (ReceivedList("x", (page,), whole=whole).objects()[0] for whole in (True, False))
    assert by_machine_class(whole) is not None
    assert by_machine_class(looked) == by_machine_class(whole)


def test_a_cluster_may_be_called_shard() -> None:
    body = json.dumps({"cluster": "shard", "reason": "second look after a write"})
    assert read_recheck(body) == Request(cluster="shard", reason="second look after a write")


def test_a_write_that_failed_does_not_lose_what_a_newer_release_has_written() -> None:
    """Until a write has succeeded, the versions carry the text that was read."""
    pool = PoolId("cluster-api", "default", "main", "workers")
    registration = Registration.of(record("demo"), ControlRecord()).model_dump_json(exclude_none=True)
    entry = records.entry(f"POOL#{pool}", StoredPool(id=pool, state=PoolState()), None, NOW)
    text = json.dumps({**json.loads(entry.text), "from_tomorrow": 1})
    items = {META: Stored(text=registration, version=1), f"POOL#{pool}": Stored(text=text, version=1)}
    versions = records.remembered("demo", items, 0, NOW).versions
    for attempt in range(2):  # of the first, the table takes nothing: a timeout, a lost lease
        value = StoredPool(id=pool, state=PoolState(digest=f"d{attempt}"))
        written = records.entry(f"POOL#{pool}", value, versions, NOW)
        assert json.loads(written.text).get("from_tomorrow") == 1, f"attempt {attempt + 1}"


def test_a_wish_just_after_a_look_of_a_silent_cluster_has_it_asked_after_a_minute() -> None:
    """`asked_now` gives None within a minute of the last look, and nobody asks again: five minutes, not one."""
    house = House()
    for _ in range(6):
        house.clock.at += 6 * MINUTE
        house.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
    house.queue.looks.clear()
    house.clock.at += timedelta(seconds=30)
    house.ask("restore")
    deliver(house)
    assert [look.delay <= 60 for look in house.queue.looks] == [True], "an operator's wish waits for up to five minutes"


@pytest.mark.parametrize("interval", [15, 20, 25, 30, 40, 45, 50])
def test_between_two_looks_there_is_never_more_than_the_interval(interval: int) -> None:
    for number in range(200):
        seconds = sorted(chunk.delay for chunk in chunks_of_minute([(f"cluster-{number}", interval)], 50))
        gaps = [after - before for before, after in zip(seconds, [*seconds[1:], seconds[0] + 60], strict=True)]
        assert max(gaps) <= interval


class TooLargeForLooks(LookersLockedOut):
    """All lists of a look share 64 MiB; a run may receive 64 MiB of each."""

    error = TooLargeError("GET /apis of demo: the answer is not usable: it is larger than 64 MiB")


def test_a_cluster_that_a_run_can_read_and_a_look_cannot_is_still_worked_on() -> None:
    large = TooLargeForLooks({"demo": House().cluster})
    house = House(clusters=large)
    pass_minutes(house, 60)
    assert large.ran > 0


def test_a_fleet_larger_than_what_is_kept_asks_eks_once_for_each_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are kept for some. Asked at each look, EKS would be asked ten thousand times a minute."""
    asked: list[str] = []

    def describe(client: Any, access: Any, where: str) -> Connection:
        asked.append(access.name)
        return Connection(server="https://eks.example", ca=CA, ca_place=where)

    monkeypatch.setattr(access, "describe_eks", describe)
    monkeypatch.setattr(AwsIdentity, "client", lambda *_: None)
    clusters = RecordedClusters(session=lambda: None, secret=lambda *_: "", clock=FakeClock(), writes=False)
    fleet = [record(f"c{n}", access={"kind": "eks", "name": f"c{n}", "region": "eu-west-1"}) for n in range(300)]
    for _ in range(3):
        for one in fleet:
            clusters.open(one, plenty, consistent=False)
    assert len(asked) == len(fleet)


def test_what_is_kept_of_garbage_takes_about_as_much_memory_as_its_bytes() -> None:
    """4 MiB of `[[]],` in one object are 135 MiB of Python."""
    kept, fill = ListCache(most_bytes=2**20), b",".join([b"[[]]"] * 40_000)
    body = (
        b'{"apiVersion":"machine.sapcloud.io/v1alpha1","items":[{"metadata":{"name":"w","namespace":"s"},"spec":{"x":['
    )
    page = body + fill + b']}}],"kind":"MachineDeploymentList","metadata":{}}'
    received = ReceivedList("GET x", (page,), whole=False)

    def read() -> Any:
        objects = {"MachineDeployment": received.objects(), "MachineSet": []}
        return read_groups(Listing(flavour=FLAVOURS["gardener"], objects=objects), ())

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept.groups(("demo", "gardener"), [received], (), read)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 8 * len(page), f"{grown / len(page):.0f} times its bytes"


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


def test_once_a_run_has_renewed_a_token_looks_ask_for_no_more_runs() -> None:
    """`is_due` asks what was decrypted up to six hours ago: a run a minute for hours, each day, per cluster."""
    clock, vault = FakeClock(), Vault()
    access = ServiceAccountAccess.model_construct(
        kind="service-account",
        endpoint="https://api.blue.example:6443",
        ca_data="",
        token="c2VhbGVk",
        namespace="evenkeel",
    )

    def instance(*, writes: bool) -> ServiceAccountCredential:
        return ServiceAccountCredential("demo", access, vault, Shared(clock.now), clock.now, writes=writes)

    def run() -> None:
        instance(writes=True).renew(TokenServer(clock), plenty)  # type: ignore[arg-type]

    run()
    clock.at += timedelta(hours=11)
    look, runs = instance(writes=False), 0  # a warm instance of look, whose first look is then
    for _ in range(7 * 60):
        clock.at += MINUTE
        look.token(fresh=False)
        if look.is_due():
            runs += 1
            run()
    assert runs == 1, f"{runs} runs to renew one token once"
