"""The store: the table of template.yaml and the unit tests' store in memory pass the same tests."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import botocore.session
import pytest

from bench.fleet import stand_in_for_aws
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.codec import pack
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import (
    LeaseHeldError,
    StateConflictError,
    StateRefusedError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.operate import Operate
from evenkeel.application.ports import StoredCluster, Versions
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.drill.drill import Drill, DrillForecast, End, Ended, Measured, Span, ZoneNodes
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind, Notified
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.record import ClusterRecord, ControlRecord, FixEntry, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord, ZoneStatement, zones_with_drill
from evenkeel.validation import ConfigError
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.template import ROOT
from tests.fakes import (
    NOW,
    FakeClock,
    FakeClusters,
    FakeQueue,
    InMemoryStore,
    plenty,
    record,
    register,
    register_again,
    with_form,
)
from tests.parts import make, replace
from tests.unit.rebalancing.test_decisions import large_decision

#: the stores that pass the same tests
KINDS = ["memory", pytest.param("table", marks=pytest.mark.aws), "bench"]
KEY = GroupKey("cluster-api", "demo", "workers-a")
POOL = PoolId("cluster-api", "demo", "main", "workers")
FAILED = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "no room", BackoffPolicy())
MINUTE = timedelta(minutes=1)
REQUEST = ScaleRequestRecord(id="r1", nodes=4, pool="workers", only=("workers-a",), at=NOW)
CHECK = EventCheckRecord(at=NOW, by="event-1")
PAUSED = ControlRecord(paused=True)
INCIDENT = Incident(
    kind=IncidentKind.MISSING,
    since=NOW,
    pool=str(POOL),
    zones=("a", "b"),
    groups=(str(KEY),),
    missing=3,
    requested=9,
    running=6,
    wanted=9,
    is_outage=True,
    calm_since=NOW + MINUTE,
    failure_class=FailureClass.QUOTA,
    message="VcpuLimitExceeded: no more",
)
INVALID = Incident(
    kind=IncidentKind.INVALID,
    since=NOW,
    pool=str(POOL),
    problems=(
        Problem.of(ProblemKind.MIN_ABOVE_MAX, minimum=5, maximum=3),
        Problem.of(ProblemKind.MEMBERS_DISAGREE, annotation="evenkeel.dev/pool-max", values="4 on a, 5 on b"),
    ),
)
NOTIFIED = {INCIDENT.key: Notified(kind=INCIDENT.kind, since=NOW, pool=INCIDENT.pool, missing=3, matter="x")}


@dataclass
class Kept:
    """A store, its clock, and functions that bypass the store."""

    store: ActionStore
    clock: FakeClock
    plant: Callable[[str, str], None]  # a cluster's record, as another writer writes it
    text: Callable[[str, str], str]  # an item's text, by cluster and sort key
    change: Callable[[str, str, str], None]  # an item's text, as a newer release writes it


def address(cluster: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": f"CLUSTER#{cluster}"}, "sk": {"S": sort_key}}


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    """Yield a stack of which only the table exists."""
    made = aws.prepare(parameters={"DryRun": "false"})
    yield made
    made.delete()


@pytest.fixture(scope="module")
def stand_in() -> Iterator[Any]:
    """Yield a client of the benches' stand-in for DynamoDB, with an empty table for each test."""
    with stand_in_for_aws() as url:
        session = botocore.session.get_session()
        access = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench", "region_name": "eu-central-1"}
        yield session.create_client("dynamodb", endpoint_url=url, **access)


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest) -> Kept:
    clock = FakeClock(NOW)
    if request.param == "memory":
        memory = InMemoryStore(clock=clock)
        memory.page = 6

        def rewrite(cluster: str, key: str, text: str) -> None:
            memory._items[cluster][key] = replace(memory._items[cluster][key], text=text)

        return Kept(memory, clock, memory.plant, memory.text, rewrite)
    if request.param == "bench":
        client, table = request.getfixturevalue("stand_in"), request.node.name
    else:
        deployment: Deployment = request.getfixturevalue("deployment")
        client, table = deployment.aws.client("dynamodb"), deployment.table

    def plant(cluster: str, text: str) -> None:
        client.put_item(
            TableName=table,
            Item={
                **address(cluster, "META"),
                "due": {"S": "DUE"},
                "record": {"S": with_form(text)},
                "version": {"N": "1"},
            },
        )

    def item(cluster: str, key: str) -> dict[str, Any]:
        found: dict[str, Any] = client.get_item(TableName=table, Key=address(cluster, key), ConsistentRead=True)["Item"]
        return found

    def text(cluster: str, key: str) -> str:
        found = item(cluster, key)
        return str((found.get("state") or found["record"])["S"])

    def change(cluster: str, key: str, new: str) -> None:
        found = item(cluster, key)
        found["state" if "state" in found else "record"] = {"S": new}
        client.put_item(TableName=table, Item=found)

    return Kept(DynamoStore(client, table, clock.now), clock, plant, text, change)


@pytest.fixture
def store(kept: Kept) -> ActionStore:
    return kept.store


@pytest.fixture
def registered(store: ActionStore) -> ActionStore:
    register(store)
    return store


def operate_on(kept: Kept) -> Operate:
    ports: dict[str, Any] = {"store": kept.store, "queue": FakeQueue(), "clock": kept.clock}
    return Operate(**ports, clusters=FakeClusters({}), random_bytes=os.urandom, pack=pack, dry_run=False)


def said(until: datetime, at: datetime = NOW) -> ZoneRecord:
    return ZoneRecord(statements={"x": ZoneStatement(until=until, stated_at=at)})


@dataclass(frozen=True)
class Write:
    """One kind of item of a cluster: how to save it, and where a load returns it."""

    sort_key: str
    method: str
    keys: tuple[Any, ...]
    read: Callable[[StoredCluster], Any]
    value: Any
    other: Any

    def save(self, store: ActionStore, value: Any, versions: Versions | None) -> None:
        cluster = () if self.method == "save_record" else ("demo",)
        getattr(store, self.method)(*cluster, *self.keys, value, versions)


MOVE = Move(id="01", unplaced=-3, steps={str(KEY): -3}, request="r1", only=("a", "b"))
ADOPTED = PoolState(adopted={str(KEY): Bounds(1, 4), "other": None}, digest="abc", move=MOVE)
AGAIN = replace(FAILED, message="again")
SOON = NOW + MINUTE
DONE = REQUEST.model_copy(update={"done": True, "result": "4 nodes"})
LATER = EventCheckRecord(at=SOON, by="event-2")
ILL, WELL = ClusterHealth().with_incidents([INCIDENT]), ClusterHealth().with_incidents([INVALID])
SILENT = Unreachable(since=NOW, failed_checks=2, last_check=NOW, next_check=NOW + 2 * MINUTE, why="no answer")
DRILL = Drill(
    id="d1",
    zone="a",
    at=NOW,
    until=SOON,
    reason="a rehearsal",
    start={"a": ZoneNodes(requested=2, running=1)},
    forecast=DrillForecast(longest_wait=MINUTE, ordered={"b": 1}),
    measured=Measured(waits=Span(since=NOW), ordered={"b": 2}, not_at_size=("workers",)),
)

WRITES = {
    "control": Write("META#CONTROL", "save_record", (record(),), lambda it: it.control, PAUSED, ControlRecord()),
    "group": Write(f"GROUP#{KEY}", "save_group", (KEY,), lambda it: it.state.groups.get(KEY), FAILED, AGAIN),
    "pool": Write(f"POOL#{POOL}", "save_pool", (POOL,), lambda it: it.state.pools.get(POOL), ADOPTED, PoolState()),
    "zone": Write("ZONE#-/a", "save_zone", ("-", "a"), lambda it: it.zones.get("a"), said(SOON), said(NOW)),
    "request": Write(
        "SCALE_REQUEST#r1", "save_scale_request", (), lambda it: it.scale_requests.get("r1"), REQUEST, DONE
    ),
    "timer": Write("NEXT_CHECK", "save_timer", (), lambda it: it.timer, Timer(due=SOON), Timer(due=NOW)),
    "event check": Write("EVENT_CHECK", "save_event_check", (), lambda it: it.event_check, CHECK, LATER),
    "silence": Write(
        "UNREACHABLE", "save_unreachable", (), lambda it: it.unreachable, SILENT, replace(SILENT, failed_checks=3)
    ),
    "drill": Write("ZONE-DRILL", "save_drill", (), lambda it: it.drill, DRILL, DRILL.as_of(DRILL.until)),
    "health": Write("HEALTH", "save_cluster_health", (), lambda it: it.cluster_health, ILL, WELL),
}

EXPIRING = [WRITES[name] for name in ("group", "zone", "request", "event check")]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
class TestWrites:
    def test_a_write_is_loaded_with_its_cluster_alone(self, registered: ActionStore, write: Write) -> None:
        register(registered, "demo-2")
        untouched = write.read(registered.load("demo-2"))
        write.save(registered, write.value, registered.load("demo").versions)
        found = registered.load("demo")
        assert write.read(found) == write.value
        assert (found.record, found.fencing_token) == (record(), 0)
        assert write.read(registered.load("demo-2")) == untouched

    def test_a_write_on_anything_but_the_last_version_changes_nothing(
        self, registered: ActionStore, write: Write
    ) -> None:
        first, second = registered.load("demo").versions, registered.load("demo").versions
        write.save(registered, write.other, first)
        write.save(registered, write.value, first)  # a run overwrites its own item
        for stale in (second, None):
            with pytest.raises(StateConflictError):
                write.save(registered, write.other, stale)
        assert write.read(registered.load("demo")) == write.value

    def test_what_is_over_is_gone_although_dynamodb_has_not_deleted_it(
        self, kept: Kept, registered: ActionStore, write: Write
    ) -> None:
        write.save(registered, write.value, registered.load("demo").versions)
        before = registered.load("demo").versions
        kept.clock.at = NOW + timedelta(days=400)
        found = registered.load("demo")
        if write in EXPIRING:
            assert not write.read(found)
            (expired,) = found.expired
            registered.forget("demo", expired, found.versions)
            assert list(registered.load("demo").expired) == []
            with pytest.raises(StateConflictError):
                write.save(registered, write.value, before)
            write.save(registered, write.value, None)
        else:
            write.save(registered, write.other, found.versions)
            assert write.read(registered.load("demo")) == write.other


def test_silence_is_kept_until_a_day_after_the_next_check(kept: Kept, registered: ActionStore) -> None:
    registered.save_unreachable("demo", SILENT, None)
    for days, unreachable in ((1, SILENT), (2, None)):
        kept.clock.at = NOW + timedelta(days=days)
        assert registered.load("demo").unreachable == unreachable


def test_a_drill_fences_its_zone_beside_what_others_say(registered: ActionStore) -> None:
    registered.save_zone("demo", "-", "b", said(SOON), None)
    registered.save_drill("demo", DRILL, None)
    found = registered.load("demo")
    assert found.state.zones == {"a": SOON, "b": SOON}
    assert ([*found.zones], {*zones_with_drill(found.zones, found.drill)}) == (["b"], {"a", "b"})
    ended = DRILL.ended_by(Ended(at=NOW, why=End.ABORTED))
    registered.save_drill("demo", ended, found.versions)
    assert registered.load("demo").state.zones == {"a": NOW, "b": SOON}
    registered.save_drill("demo", replace(ended, is_recorded=True), found.versions)
    assert registered.load("demo").state.zones == {"b": SOON}


def test_requests_are_pending_until_they_are_done(registered: ActionStore) -> None:
    registered.save_scale_request("demo", REQUEST, None)
    found = registered.load("demo")
    assert found.state.scale_requests == (REQUEST.scale_request(),)
    registered.save_scale_request("demo", REQUEST.model_copy(update={"done": True}), found.versions)
    assert registered.load("demo").state.scale_requests == ()


def test_an_unregistered_cluster_is_unknown(registered: ActionStore) -> None:
    with pytest.raises(UnknownClusterError, match="'dem'"):
        registered.load("dem")
    assert registered.registered("dem") is None
    assert registered.decisions("dem", 5) == []


def hold(store: ActionStore, control: ControlRecord) -> None:
    store.save_record(record(), control, store.load("demo").versions)


def registered_control(store: ActionStore) -> ControlRecord | None:
    found = store.registered("demo")
    return found.control if found else None


def listed_control(control: ControlRecord) -> ControlRecord:
    return control.model_copy(update={"fixes": ()})


def register_over(store: ActionStore) -> None:
    """Save the record over the stored one. Settings of actions are kept as far as they are readable."""
    found = store.registered("demo")
    assert found is not None
    store.save_record(record(), found.control, found.versions)


def test_a_record_that_is_removed_is_found_nowhere_and_what_is_remembered_beside_it_stays(
    registered: ActionStore,
) -> None:
    registered.save_pool("demo", POOL, PoolState(digest="first"), None)
    hold(registered, PAUSED)
    stale = registered.load("demo").versions
    registered.save_record(record(), PAUSED, registered.load("demo").versions)
    with pytest.raises(StateConflictError):
        registered.remove_record("demo", stale)
    lease = registered.take_lease("demo", "me", registered.load("demo").fencing_token, NOW, NOW + MINUTE)
    registered.remove_record("demo", registered.load("demo").versions)
    assert registered.registered("demo") is None
    assert registered.registrations() == []
    assert [page for shard in registered.shards for page in registered.due(shard).registrations] == []
    with pytest.raises(UnknownClusterError):
        registered.load("demo")
    with pytest.raises(StateConflictError):
        registered.remove_record("demo", stale)

    register(registered)
    found = registered.load("demo")
    assert (found.control, found.state.pools[POOL].digest) == (ControlRecord(), "first")
    assert found.fencing_token == lease.fencing_token


class TestControl:
    """A cluster's settings by actions are stored next to its registration."""

    HELD = ControlRecord(
        live=True,
        paused=True,
        paused_until=NOW + MINUTE,
        paused_pools={"workers": None, "gpu": NOW + MINUTE},
        restoring_pools=("old",),
        fixes=(FixEntry(pool="workers", before=1, after=3),),
    )

    def test_it_comes_back_as_it_was_and_the_index_shows_it_without_fixes(self, registered: ActionStore) -> None:
        restoring = self.HELD.model_copy(update={"restoring": True})
        for control in (self.HELD, restoring, ControlRecord()):
            hold(registered, control)
            found = registered.load("demo")
            assert (found.record, found.control) == (record(), control)
            assert registered_control(registered) == control
            (listed,) = (entry for shard in registered.shards for _, entry in registered.due(shard).registrations)
            assert listed == dict(registered.registrations())["demo"]
            assert isinstance(listed, Registration)
            assert (listed.record, listed.control()) == (record(), listed_control(control))

    def test_it_survives_an_unreadable_record(self, kept: Kept, registered: ActionStore) -> None:
        hold(registered, self.HELD)
        registered.save_steady("demo", SteadyState(at=NOW, seen={"a": "1"}), registered.load("demo").versions)
        kept.change("demo", "META", with_form('{"colour": 1}'))
        with pytest.raises(ConfigError):
            registered.load("demo")
        assert registered_control(registered) == self.HELD
        register_over(registered)
        after = registered.load("demo")
        assert (after.control, after.steady) == (self.HELD, None)

    def test_one_that_is_unreadable_fails_the_load_and_registering_again_keeps_what_is_paused(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        hold(registered, self.HELD)
        kept.change("demo", "META#CONTROL", '{"paused": "perhaps"}')
        with pytest.raises(ConfigError, match="paused is 'perhaps'"):
            registered.load("demo")
        register_over(registered)
        assert registered.load("demo").control == listed_control(self.HELD)


class TestLease:
    def test_one_run_holds_it_until_it_ends_and_each_holder_has_a_higher_fencing_token(
        self, registered: ActionStore
    ) -> None:
        register(registered, "demo-2")
        first = registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        assert registered.take_lease("demo-2", "second", 0, NOW, NOW + MINUTE).fencing_token == 1
        token = registered.load("demo").fencing_token
        assert token == first.fencing_token
        with pytest.raises(LeaseHeldError):
            registered.take_lease("demo", "second", token, NOW + MINUTE / 2, NOW + 2 * MINUTE)
        second = registered.take_lease("demo", "second", token, NOW + MINUTE, NOW + 2 * MINUTE)
        assert (second.fencing_token, second.expires) == (token + 1, NOW + 2 * MINUTE)
        registered.give_back_lease("demo", first, NOW + MINUTE)  # which the second one now has
        with pytest.raises(LeaseHeldError):
            registered.take_lease("demo", "third", second.fencing_token, NOW + MINUTE, NOW + 3 * MINUTE)

    def test_what_its_owner_did_not_finish_is_stored_with_it(self, kept: Kept) -> None:
        register(kept.store)
        now = kept.clock.now()
        lease = kept.store.take_lease("demo", "first", 0, now, now + MINUTE, ["b", "a"])
        assert list(kept.store.unfinished("demo")) == ["a", "b"]
        assert kept.store.load("demo").unfinished == ()  # it may still finish it
        kept.clock.at += MINUTE
        assert kept.store.load("demo").unfinished == ("a", "b")
        kept.store.give_back_lease("demo", lease, kept.clock.now(), ["a"])
        assert kept.store.load("demo").unfinished == ("a",)
        token = kept.store.load("demo").fencing_token
        lease = kept.store.take_lease("demo", "second", token, kept.clock.now(), kept.clock.now() + MINUTE)
        kept.store.give_back_lease("demo", lease, kept.clock.now())
        assert list(kept.store.unfinished("demo")) == []
        assert kept.store.load("demo").unfinished == ()

    def test_one_given_back_is_free_at_once_and_a_conflict_for_a_run_that_read_before(
        self, registered: ActionStore
    ) -> None:
        first = registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        registered.give_back_lease("demo", first, NOW)
        with pytest.raises(StateConflictError):
            registered.take_lease("demo", "second", 0, NOW, NOW + MINUTE)
        second = registered.take_lease("demo", "second", first.fencing_token, NOW, NOW + MINUTE)
        assert second.fencing_token == first.fencing_token + 1


def _records(store: ActionStore) -> dict[str, ClusterRecord | str]:
    return {id: found.record if isinstance(found, Registration) else found for id, found in store.registrations()}


class TestDue:
    def test_every_registered_cluster_is_in_the_index_with_its_record(self, store: ActionStore) -> None:
        assert list(store.registrations()) == []
        for name in ("c", "a", "b"):
            register(store, name)
        assert _records(store) == {name: record(name) for name in "abc"}

    def test_a_broken_record_is_reported_hides_no_other_and_can_be_replaced(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        kept.plant("broken", '{"id": "broken", "flavours": "all"}')
        kept.plant("no-json", "{")
        due = dict(registered.registrations())
        assert _records(registered)["demo"] == record()
        assert "record of cluster broken: flavours is 'all'" in str(due["broken"])
        assert "record of cluster no-json: not JSON" in str(due["no-json"])
        kept.plant("demo", json.dumps({**record().model_dump(mode="json"), "scan_interval": -5}))
        with pytest.raises(ConfigError, match=r"record of cluster demo: scan_interval is '-5'"):
            registered.load("demo")
        register_over(registered)
        assert registered.load("demo").record == record()

    def test_the_shards_together_list_every_registered_cluster_once(self, store: ActionStore) -> None:
        names = {f"cluster-{'x' * (number % 3)}-{number}" for number in range(40)}
        for name in names:
            register(store, name)
        listed = [entry for shard in store.shards for entry in store.due(shard).registrations]
        assert sorted(cluster for cluster, _ in listed) == sorted(names)
        assert dict(listed)["cluster--0"] == dict(store.registrations())["cluster--0"]

    def test_a_name_leads_to_the_clusters_that_list_it(self, store: ActionStore) -> None:
        for cluster in ("b", "a"):
            register(store, cluster, names=("shared", f"only-{cluster}"))
        assert list(store.called("shared")) == ["a", "b"]
        assert list(store.called("only-b")) == ["b"]
        assert [list(store.called(name)) for name in ("nobody", "", "x" * 5000)] == [[], [], []]


SETTLED = SteadyState(at=NOW, seen={"cluster-api/MachineDeployment/v1beta2": "ab" * 32}, headroom=3)


class TestSteadyState:
    def test_it_is_stored_beside_the_record_and_read_with_it(self, registered: ActionStore) -> None:
        assert registered.steady_clusters(["demo", "gone"]) == {}
        registered.save_steady("demo", SETTLED, registered.load("demo").versions)
        assert registered.load("demo").steady == SETTLED
        found = registered.steady_clusters(["demo", "gone", "demo"])
        assert found == {"demo": SteadyCluster(record=registered.load("demo").record, steady=SETTLED)}
        ended = SteadyState(at=NOW + MINUTE, seen={})
        registered.save_steady("demo", ended, registered.load("demo").versions)
        assert (registered.steady_clusters(["demo"]), registered.load("demo").steady) == ({}, ended)

    def test_of_any_number_of_clusters(self, registered: ActionStore) -> None:
        names = [f"c{number}" for number in range(101)]  # one more than a batch
        for name in names:
            register(registered, name)
            registered.save_steady(name, SETTLED, registered.load(name).versions)
        assert sorted(registered.steady_clusters(["demo", *names])) == sorted(names)

    def test_it_changes_no_version_and_any_write_of_the_record_ends_it(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        stored = registered.load("demo")
        registered.save_steady("demo", SETTLED, stored.versions)
        assert registered.load("demo").versions == stored.versions
        registered.save_record(stored.record, PAUSED, stored.versions)
        assert registered.steady_clusters(["demo"]) == {}
        with pytest.raises(StateConflictError):
            registered.save_steady("demo", SETTLED, Versions({"META": 1}))
        assert registered.load("demo").control == PAUSED
        registered.save_steady("demo", SETTLED, registered.load("demo").versions)
        kept.change("demo", "META", "{")
        assert registered.steady_clusters(["demo"]) == {}, "an unreadable record is not steady"


class TestRest:
    @staticmethod
    def resting(store: ActionStore) -> dict[str, datetime]:
        return {name: until for shard in store.shards for name, until in store.due(shard).resting.items()}

    def test_it_is_stored_for_scans_and_any_write_of_the_record_ends_it(self, registered: ActionStore) -> None:
        before, versions = registered.registrations(), registered.load("demo").versions
        registered.save_rest("demo", NOW + MINUTE, versions)
        assert (self.resting(registered), registered.registrations()) == ({"demo": NOW + MINUTE}, before)
        registered.save_rest("demo", None, versions)
        assert self.resting(registered) == {}
        stored = registered.load("demo")
        registered.save_rest("demo", NOW + MINUTE, stored.versions)
        registered.save_record(stored.record, PAUSED, stored.versions)
        assert self.resting(registered) == {}
        assert len(registered.registrations()) == 1

    def test_a_changed_record_does_not_rest(self, registered: ActionStore) -> None:
        stored, other = registered.load("demo"), registered.load("demo")
        registered.save_record(record(scan_interval=120), other.control, other.versions)
        with pytest.raises(StateConflictError):
            registered.save_rest("demo", NOW, stored.versions)
        assert self.resting(registered) == {}


class TestReadingAgain:
    def test_a_change_by_hand_is_read_although_its_version_is_the_same(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        assert registered.load("demo").record.scan_interval == "auto"
        kept.change("demo", "META", kept.text("demo", "META").replace('"scan_interval":"auto"', '"scan_interval":120'))
        assert registered.load("demo").record.scan_interval == 120


def done(at: datetime, id: str = "") -> dict[str, Any]:
    id = id or ulid(at, bytes(10))
    return {"id": id, "at": at.isoformat(), "cluster": "demo", "cause": "pause", "by": None, "what": "demo is paused"}


def test_decisions_come_newest_first_and_no_more_than_asked_for(registered: ActionStore) -> None:
    for minute in (3, 1, 2):
        at = NOW + minute * MINUTE
        registered.save_decision("demo", ulid(at, bytes(10)), done(at), at + 30 * MINUTE)
    assert registered.decisions("demo", 2) == [done(NOW + 3 * MINUTE), done(NOW + 2 * MINUTE)]


def test_a_decision_is_never_overwritten(registered: ActionStore) -> None:
    registered.save_decision("demo", "01A", done(NOW, "01A"), NOW + MINUTE)
    with pytest.raises(StateConflictError):
        registered.save_decision("demo", "01A", done(NOW + MINUTE, "01A"), NOW + MINUTE)
    assert registered.decisions("demo", 5) == [done(NOW, "01A")]


class TestExpiry:
    """DynamoDB deletes expired items late, within days, and never those that expired five years ago."""

    def test_after_days_states_and_decisions_are_over_and_pools_are_not(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        for write in (*EXPIRING, WRITES["pool"]):
            write.save(registered, write.value, None)
        registered.save_decision("demo", "01A", {"id": "01A"}, NOW + 30 * MINUTE)
        kept.clock.at = NOW + timedelta(days=3)
        found = registered.load("demo")
        assert (found.state.groups, found.zones, found.scale_requests, found.event_check) == ({}, {}, {}, None)
        assert found.state.pools == {POOL: ADOPTED}
        assert registered.decisions("demo", 5) == []
        assert registered.decisions_after("demo", "") == ([], False)

    @pytest.mark.parametrize(
        "state", [make(GroupState, last_success=NOW), FAILED, make(GroupState, last_failure=NOW - timedelta(2000))]
    )
    def test_what_is_written_is_never_over_already(self, registered: ActionStore, state: GroupState) -> None:
        """A state without a time could end in 1970, and would then stay for ever."""
        registered.save_group("demo", KEY, state, None)
        assert KEY in registered.load("demo").state.groups

    def test_a_group_state_of_defaults_is_as_none_and_can_be_written(self, registered: ActionStore) -> None:
        registered.save_group("demo", KEY, GroupState(), None)
        found = registered.load("demo")
        assert found.state.groups == {}
        registered.save_group("demo", KEY, FAILED, found.versions)
        assert registered.load("demo").state.groups == {KEY: FAILED}

    def test_neither_is_an_old_zone_statement_or_request(self, registered: ActionStore) -> None:
        old = NOW - timedelta(days=2000)
        registered.save_zone("demo", "-", "a", said(old, old), None)
        registered.save_scale_request("demo", REQUEST.model_copy(update={"at": old, "done": True}), None)
        found = registered.load("demo")
        assert (set(found.zones), set(found.scale_requests)) == ({"a"}, {"r1"})


class TestANewerRelease:
    """Its fields in records are not understood here, and are kept for when it returns."""

    NEW: ClassVar[dict[str, Any]] = {"quiet_hours": 300, "share_elsewhere": {"with": ["blue"]}}

    def test_its_fields_of_a_record_outlive_a_pause(self, kept: Kept, registered: ActionStore) -> None:
        stored = {**json.loads(kept.text("demo", "META")), **self.NEW}
        kept.change("demo", "META", json.dumps(stored))
        assert _records(registered)["demo"] == record()
        operate = operate_on(kept)
        for action in ("pause", "resume", "pause"):
            assert operate({"action": action, "cluster": "demo"}, plenty)["ok"]
            registered.load("demo")
        kept_text = json.loads(kept.text("demo", "META"))
        assert {name: kept_text[name] for name in self.NEW} == self.NEW
        assert kept_text["paused"] is True

    def test_its_fields_inside_of_fields_too_but_not_in_another_entry(self, kept: Kept, store: ActionStore) -> None:
        given = record(pools=[{"name": "workers", "min": 1, "max": 9}, {"name": "gpu", "min": 0, "max": 3}])
        store.save_record(given, ControlRecord(), None)
        stored = json.loads(kept.text("demo", "META"))
        stored["pools"][1]["max_surge"] = 2
        stored["access"]["role"] = "reader"
        kept.change("demo", "META", json.dumps(stored))
        found = store.load("demo")
        assert found.record == given
        store.save_record(found.record, PAUSED, found.versions)
        after = json.loads(kept.text("demo", "META"))
        assert [entry.get("max_surge") for entry in after["pools"]] == [None, 2]
        assert after["access"]["role"] == "reader"
        register_again(store, record(pools=[{"name": "more", "min": 1, "max": 9}]))
        assert "max_surge" not in kept.text("demo", "META")

    @pytest.mark.parametrize("name", ["control", "group", "pool", "zone", "request"])
    def test_its_fields_of_a_state_are_kept_however_often_it_is_written(
        self, kept: Kept, registered: ActionStore, name: str
    ) -> None:
        write = WRITES[name]
        write.save(registered, write.value, registered.load("demo").versions)
        kept.change("demo", write.sort_key, json.dumps({**json.loads(kept.text("demo", write.sort_key)), **self.NEW}))
        versions = registered.load("demo").versions
        for _ in range(2):  # like one run, which reads once and writes twice
            write.save(registered, write.value, versions)
            stored = json.loads(kept.text("demo", write.sort_key))
            assert {field: stored[field] for field in self.NEW} == self.NEW
        assert write.read(registered.load("demo")) == write.value

    def test_a_bad_value_is_reported_beside_an_unknown_field(self, kept: Kept, registered: ActionStore) -> None:
        stored = {**json.loads(kept.text("demo", "META")), **self.NEW, "scan_interval": -5}
        kept.change("demo", "META", json.dumps(stored))
        with pytest.raises(ConfigError) as caught:
            registered.load("demo")
        assert len(caught.value.faults) == 1
        assert "scan_interval is '-5'" in str(caught.value)

    def test_a_registered_record_is_strict(self, kept: Kept, registered: ActionStore) -> None:
        operate = operate_on(kept)
        given = {**record().model_dump(mode="json", exclude_none=True), **self.NEW}
        with pytest.raises(ConfigError, match="quiet_hours is not a field of this record"):
            operate({"action": "register", "cluster": "demo", "record": given}, plenty)


def test_a_decision_about_1000_groups_is_cut_and_not_refused(registered: ActionStore) -> None:
    decision = large_decision(1000)
    assert len(json.dumps(decision)) > 440_000
    registered.save_decision("demo", "01A", decision, NOW + MINUTE)
    (found,) = registered.decisions("demo", 1)
    assert len(json.dumps(found)) < 350_000
    assert found["truncated"] == 1000 - len(found["pool"]["groups"]) > 0


class TestTheTableItself:
    """Tests of the real adapter alone."""

    @pytest.fixture
    def table(self, deployment: Deployment) -> DynamoStore:
        return DynamoStore(deployment.aws.client("dynamodb"), deployment.table, lambda: NOW)

    def items(self, deployment: Deployment) -> dict[str, dict[str, Any]]:
        scanned = deployment.aws.client("dynamodb").scan(TableName=deployment.table)["Items"]
        return {item["sk"]["S"].partition("#")[0]: item for item in scanned}

    def put_item(self, deployment: Deployment, sort_key: str, text: str) -> None:
        content, revision = ("state", "revision") if sort_key[:4] in ("GROU", "ZONE") else ("record", "version")
        item = {**address("demo", sort_key), content: {"S": text}, revision: {"N": "7"}}
        deployment.aws.client("dynamodb").put_item(TableName=deployment.table, Item=item)

    def test_decisions_expire_and_only_a_clusters_record_is_in_the_index(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        register(table)
        table.save_group("demo", KEY, FAILED, None)
        table.save_pool("demo", POOL, PoolState(), None)
        table.take_lease("demo", "me", 0, NOW, NOW + MINUTE)
        table.save_decision("demo", "01A", {}, NOW + 30 * MINUTE)
        answer = deployment.aws.client("dynamodb").scan(TableName=deployment.table, IndexName="due")
        assert [item["sk"]["S"] for item in answer["Items"]] == ["META"]
        items = self.items(deployment)
        assert {kind for kind, item in items.items() if "expires_at" in item} == {"DECISION"}
        assert int(items["DECISION"]["expires_at"]["N"]) == (NOW + 30 * MINUTE).timestamp()
        assert FAILED.failure.backoff_until is not None
        assert int(items["GROUP"]["kept_until"]["N"]) > (FAILED.failure.backoff_until + timedelta(hours=3)).timestamp()

    def test_a_group_stays_until_our_marks_are_off_its_machines(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        register(table)
        table.save_group("demo", KEY, replace(FAILED, marked=("m-1",)), None)
        assert "kept_until" not in self.items(deployment)["GROUP"]
        table.save_group("demo", KEY, FAILED, table.load("demo").versions)
        assert "kept_until" in self.items(deployment)["GROUP"]

    def test_more_than_one_answer_is_read_to_its_end(self, table: DynamoStore) -> None:
        register(table)
        long = replace(FAILED, message="x" * 100_000)
        names = [f"workers-{number:02}" for number in range(12)]  # above the 1 MiB of one answer
        for name in names:
            table.save_group("demo", GroupKey("cluster-api", "demo", name), long, None)
        assert sorted(key.name for key in table.load("demo").state.groups) == names

    def test_an_impaired_zone_is_loaded_under_its_name(self, table: DynamoStore, deployment: Deployment) -> None:
        register(table)
        text = '{"statements": {"arc": {"until": "2026-01-15T12:30:00Z"}}}'
        self.put_item(deployment, "ZONE#eu-central-1/eu-central-1a", text)
        assert table.load("demo").state.zones == {"eu-central-1a": NOW + 30 * MINUTE}

    @pytest.mark.parametrize(
        ("sort_key", "text", "says"),
        [
            ("GROUP#cluster-api/demo/a", '{"failures": "many"}', "GROUP#cluster-api/demo/a: failures is 'many'"),
            ("GROUP#nonsense", "{}", "GROUP#nonsense"),
            ("POOL#x", '{"state": {"adopted": 3}}', "POOL#x: "),
            ("POOL#x", '{"id": {"flavour": "f", "namespace": "", "cluster": "", "name": "x"}, "state": {"adopted": '
             '{"a": {"min": 4, "max": 1}}}}', "POOL#x: state.adopted.a is"),
            ("ZONE#r/z", '{"statements": {"arc": {"until": "soon"}}}', "ZONE#r/z: statements.arc.until is 'soon'"),
        ],
    )  # fmt: skip
    def test_a_broken_item_is_one_error_that_names_it(
        self, table: DynamoStore, deployment: Deployment, sort_key: str, text: str, says: str
    ) -> None:
        register(table)
        self.put_item(deployment, sort_key, text)
        with pytest.raises(ConfigError) as caught:
            table.load("demo")
        assert says in str(caught.value)

    def test_items_of_events_use_no_attribute_of_a_clusters_record(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        """So a policy on attributes prevents the function that receives events from writing META."""
        table.save_group("demo", KEY, FAILED, None)
        table.save_zone("demo", "-", "a", said(NOW), None)
        table.save_scale_request("demo", REQUEST, None)
        table.save_event_check("demo", CHECK, None)
        items = self.items(deployment)
        assert set(items) == {"GROUP", "ZONE", "SCALE_REQUEST", "EVENT_CHECK"}
        for item in items.values():
            assert set(item) == {"pk", "sk", "state", "revision", "kept_until"}

    def test_an_item_with_only_the_event_functions_attributes_counts_for_nothing(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        """It may add its attributes under any sort key. They must not prevent reads or writes."""
        register(table)
        found = table.load("demo")
        for key in ("META#CONTROL", "NEXT_CHECK", f"POOL#{POOL}", "POOL#x", "LEASE#x"):
            deployment.aws.client("dynamodb").update_item(
                TableName=deployment.table,
                Key=address("demo", key),
                UpdateExpression="SET #state = :text, revision = :one",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues={":text": {"S": "{}"}, ":one": {"N": "7"}},
            )
        assert table.load("demo") == found
        table.save_record(record(), PAUSED, found.versions)
        table.save_timer("demo", Timer(due=NOW + MINUTE), found.versions)
        table.save_pool("demo", POOL, PoolState(digest="abc"), found.versions)
        assert table.load("demo").control == PAUSED

    def test_a_table_that_is_not_there_is_unavailable_for_every_call(self, deployment: Deployment) -> None:
        gone = DynamoStore(deployment.aws.client("dynamodb"), "gone")
        lease = InMemoryStore().take_lease("demo", "me", 0, NOW, NOW + MINUTE)
        calls: list[Callable[[], object]] = [
            lambda: gone.load("demo"),
            lambda: gone.due("0"),
            gone.registrations,
            lambda: gone.called("name"),
            lambda: gone.save_unreachable("demo", SILENT, None),
            lambda: gone.save_steady("demo", SETTLED, Versions()),
            lambda: gone.steady_clusters(["demo"]),
            lambda: gone.registered("demo"),
            lambda: gone.remove_record("demo", Versions()),
            lambda: register(gone),
            lambda: gone.save_group("demo", KEY, FAILED, None),
            lambda: gone.save_pool("demo", POOL, PoolState(), None),
            lambda: gone.save_event_check("demo", CHECK, None),
            lambda: gone.take_lease("demo", "me", 0, NOW, NOW + MINUTE),
            lambda: gone.give_back_lease("demo", lease, NOW),
            lambda: gone.save_decision("demo", "01A", {}, NOW),
            lambda: gone.decisions("demo", 1),
        ]
        for call in calls:
            with pytest.raises(StateUnavailableError, match="table gone"):
                call()


def test_decisions_are_read_in_pages_from_the_oldest_on(registered: ActionStore) -> None:
    ids = [ulid(NOW + minute * MINUTE, bytes(10)) for minute in range(13)]
    for id in ids:
        registered.save_decision("demo", id, {"id": id, "why": "x" * 150_000}, NOW + timedelta(days=30))
    found: list[str] = []
    pages = 0
    more, after = True, ""
    while more:
        page, more = registered.decisions_after("demo", after)
        found += [decision["id"] for decision in page]
        after, pages = found[-1], pages + 1
    assert found == ids
    assert pages > 1  # DynamoDB's pages have 1 MiB
    assert [decision["id"] for decision in registered.decisions_after("demo", ids[9])[0]] == ids[10:]
    assert registered.decisions_after("demo", ids[-1]) == ([], False)
    since = ulid(NOW + 10 * MINUTE, bytes(10))
    assert len(registered.decisions_after("demo", since)[0]) == 2


def test_what_is_over_is_forgotten_unless_it_was_written_since(kept: Kept, registered: ActionStore) -> None:
    registered.save_group("demo", KEY, FAILED, None)
    assert list(registered.load("demo").expired) == []
    kept.clock.at += timedelta(days=30)
    before = registered.load("demo")
    assert len(before.expired) == 1
    registered.save_group("demo", KEY, FAILED, registered.load("demo").versions)
    with pytest.raises(StateConflictError):
        registered.forget("demo", before.expired[0], before.versions)


def test_only_the_store_spells_sort_keys() -> None:
    """A second store is two files: the store, and the records that it keeps."""
    spelled = re.compile(r'"(META|EVENT_CHECK|NEXT_CHECK)"|(GROUP|POOL|SCALE_REQUEST|ZONE|META)#')
    stores = {ROOT / "layers/evenkeel/evenkeel/adapters/aws" / name for name in ("store.py", "records.py")}
    files = {file for folder in ("layers/evenkeel/evenkeel", "functions") for file in (ROOT / folder).rglob("*.py")}
    assert stores <= files
    assert {file for file in files if spelled.search(file.read_text(encoding="utf-8"))} == stores


class TestClusterHealth:
    def test_one_of_any_kind_is_read_with_its_cluster_and_with_all_others(self, registered: ActionStore) -> None:
        outbox = (
            IncidentChange(change=Change.CLOSED, incident=INVALID),
            IncidentChange(change=Change.OPENED, incident=INCIDENT),
        )
        kinds = [Incident(kind=kind, since=NOW) for kind in IncidentKind]
        cluster_health = ClusterHealth(notified=NOTIFIED, outbox=outbox).with_incidents([INVALID, INCIDENT, *kinds])
        registered.save_cluster_health("demo", cluster_health, registered.load("demo").versions)
        assert registered.load("demo").cluster_health == cluster_health
        assert registered.cluster_health("demo")[0] == cluster_health
        assert registered.cluster_healths() == {"demo": cluster_health}

    def test_it_lasts_as_long_as_the_incident(self, kept: Kept, registered: ActionStore) -> None:
        versions = registered.load("demo").versions
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INCIDENT]), versions)
        kept.clock.at = NOW + timedelta(days=400)
        assert registered.load("demo").cluster_health.incidents == (INCIDENT,)
        registered.save_cluster_health("demo", ClusterHealth(), versions)
        kept.clock.at += timedelta(days=2)
        found = registered.load("demo")
        assert (found.cluster_health, list(found.expired)) == (ClusterHealth(), []), "DynamoDB deletes it by itself"
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INCIDENT]), found.versions)
        register_again(registered, record())
        assert registered.cluster_healths()["demo"].incidents == (INCIDENT,)
        assert registered.load("demo").cluster_health.incidents == (INCIDENT,)

    def test_it_can_be_saved_beside_an_unreadable_record(self, kept: Kept, registered: ActionStore) -> None:
        kept.plant("demo", "{")
        cluster_health, versions = registered.cluster_health("demo")
        assert (cluster_health, dict(versions)) == (ClusterHealth(), {})
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INCIDENT]), versions)
        registered.save_cluster_health("demo", ClusterHealth(notified=NOTIFIED), versions)
        assert registered.cluster_health("demo")[0] == ClusterHealth(notified=NOTIFIED)

    def test_one_of_a_newer_release_is_ignored_and_overwritten(self, kept: Kept, registered: ActionStore) -> None:
        versions = registered.load("demo").versions
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INCIDENT]), versions)
        kept.change("demo", "HEALTH", kept.text("demo", "HEALTH").replace('"kind":"missing"', '"kind":"haunted"'))
        stored = registered.load("demo")
        assert stored.cluster_health == ClusterHealth()
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INVALID]), stored.versions)
        assert registered.load("demo").cluster_health.incidents == (INVALID,)


class TestChecks:
    def test_of_each_cluster_the_latest_counts_for_two_hours(self, kept: Kept, store: ActionStore) -> None:
        store.save_checked_at(["blue", "green"], NOW)
        store.save_checked_at(["blue"], NOW + MINUTE)
        store.save_checked_at(["blue", "green"], NOW - MINUTE)  # a late message
        assert store.checked_at() == {"blue": NOW + MINUTE, "green": NOW - MINUTE}
        store.save_checked_at(["blue", "green"], NOW + 2 * MINUTE)
        assert store.checked_at() == dict.fromkeys(("blue", "green"), NOW + 2 * MINUTE)
        store.save_checked_at(["blue"], NOW + 3 * MINUTE, ["green"])
        assert store.checked_at() == dict.fromkeys(("blue", "green"), NOW + 3 * MINUTE)
        assert store.checked_at().resting == {"green"}
        assert "green" in store.checked_at().resting
        store.save_checked_at(["green"], NOW + 4 * MINUTE)
        assert store.checked_at().resting == frozenset()
        kept.clock.at = NOW + timedelta(hours=2, minutes=4)
        assert store.checked_at() == {}

    def test_they_hold_many_names(self, store: ActionStore) -> None:
        names = [f"{number:03}-{'x' * 96}" for number in range(50)]
        store.save_checked_at(names, NOW)
        assert set(store.checked_at()) == set(names)


def test_an_item_beyond_the_largest_size_is_refused_by_name(deployment: Deployment) -> None:
    store = DynamoStore(deployment.aws.client("dynamodb"), deployment.table, lambda: NOW)
    pool = PoolId("cluster-api", "default", "", "workers")
    with pytest.raises(StateRefusedError, match=r"POOL#cluster-api/default/workers: .*size"):
        store.save_pool("demo", pool, PoolState(digest="x" * 500_000), None)
