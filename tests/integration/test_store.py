"""The state, in the table that template.yaml describes and in the memory that unit tests use: one set of promises."""

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
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import LeaseHeldError, StateConflictError, StateUnavailableError, UnknownClusterError
from evenkeel.application.operate import Operate
from evenkeel.application.ports import SharedOffering, Versions
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind, Notified
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.offerings import CapacityReport, Offering, OfferingState
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rollout.waves import Halt, LeftOut, Phase, Rollout
from evenkeel.record import ClusterRecord, ControlRecord, FixEntry, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord, ZoneStatement
from evenkeel.validation import ConfigError
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.template import ROOT
from tests.fakes import NOW, FakeClock, FakeClusters, FakeQueue, InMemoryStore, plenty, record, register, register_again
from tests.parts import replace
from tests.unit.test_decisions import large_decision

#: of stores under the same tests; what is kept elsewhere than in AWS answers the same whichever emulator is asked
KINDS = ["memory", "table", "bench"]
if os.environ.get("EVENKEEL_LOCALSTACK"):
    KINDS = ["table"]
KEY = GroupKey("cluster-api", "demo", "workers-a")
POOL = PoolId("cluster-api", "demo", "main", "workers")
FAILED = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "no room", BackoffPolicy())
MINUTE = timedelta(minutes=1)
REQUEST = ScaleRequestRecord(id="r1", nodes=4, pool="workers", at=NOW)
LOOK = EventCheckRecord(at=NOW, by="event-1")


@dataclass
class Kept:
    """A store, its clock, and ways past it."""

    store: ActionStore
    clock: FakeClock
    plant: Callable[[str, str], None]  # a cluster's record, as somebody else writes it
    text: Callable[[str, str], str]  # an item's text, by cluster and sort key
    change: Callable[[str, str, str], None]  # an item's text, as a newer release writes it


def address(cluster: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": f"CLUSTER#{cluster}"}, "sk": {"S": sort_key}}


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    """Of the stack these tests ask for the table alone: the rest is not made."""
    made = aws.prepare(parameters={"DryRun": "false"})
    yield made
    made.delete()


@pytest.fixture(scope="module")
def stand_in() -> Iterator[Any]:
    """A client of what the benches have in DynamoDB's place; each test has a table of its own there."""
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
            Item={**address(cluster, "META"), "due": {"S": "DUE"}, "record": {"S": text}, "version": {"N": "1"}},
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
    return Operate(**ports, clusters=FakeClusters({}), random_bytes=os.urandom, dry_run=False)


def said(until: datetime, at: datetime = NOW) -> ZoneRecord:
    """Somebody has spoken of a zone."""
    return ZoneRecord(words={"x": ZoneStatement(until=until, said_at=at)})


def test_what_was_saved_is_loaded(registered: ActionStore) -> None:
    pool = PoolState(adopted={str(KEY): Bounds(1, 4), "other": None}, digest="abc")
    registered.save_group("demo", KEY, FAILED, None)
    registered.save_pool("demo", POOL, pool, None)
    found = registered.load("demo")
    assert found.record == record()
    assert found.state.groups == {KEY: FAILED}
    assert found.state.pools == {POOL: pool}
    assert found.control == ControlRecord()
    assert found.fencing_token == 0


def test_what_was_said_about_a_zone_is_loaded_and_replaced_by_whoever_knows_its_version(
    registered: ActionStore,
) -> None:
    word = said(NOW + 30 * MINUTE)
    registered.save_zone("demo", "eu-central-1", "eu-central-1a", word, None)
    found = registered.load("demo")
    assert found.zones == {"eu-central-1a": word}
    assert found.state.zones == {"eu-central-1a": NOW + 30 * MINUTE}
    later = said(NOW, NOW + MINUTE)
    with pytest.raises(StateConflictError):
        registered.save_zone("demo", "eu-central-1", "eu-central-1a", later, None)
    registered.save_zone("demo", "eu-central-1", "eu-central-1a", later, found.versions)
    assert registered.load("demo").zones == {"eu-central-1a": later}


def test_a_request_for_nodes_is_pending_until_it_is_done_and_known_after(registered: ActionStore) -> None:
    asked = ScaleRequestRecord(id="r1", nodes=4, pool="workers", only=("workers-a",), at=NOW)
    registered.save_scale_request("demo", asked, None)
    found = registered.load("demo")
    assert found.scale_requests == {"r1": asked}
    assert found.state.scale_requests == (asked.scale_request(),)
    with pytest.raises(StateConflictError):
        registered.save_scale_request("demo", asked, None)
    done = asked.model_copy(update={"done": True, "result": "4 nodes"})
    registered.save_scale_request("demo", done, found.versions)
    assert registered.load("demo").scale_requests == {"r1": done}
    assert registered.load("demo").state.scale_requests == ()


def test_the_journal_of_a_request_comes_back_as_it_was(registered: ActionStore) -> None:
    move = Move(id="01", unplaced=-3, steps={str(KEY): -3}, request="r1", only=frozenset({"a", "b"}))
    registered.save_pool("demo", POOL, PoolState(move=move), None)
    assert registered.load("demo").state.pools[POOL].move == move


def test_a_cluster_that_nobody_registered_is_unknown(registered: ActionStore) -> None:
    with pytest.raises(UnknownClusterError, match="'dem'"):
        registered.load("dem")
    assert registered.registered("dem") is None
    assert registered.decisions("dem", 5) == []


def test_one_clusters_state_is_not_anothers(registered: ActionStore) -> None:
    register(registered, "demo-2")
    registered.save_group("demo-2", KEY, FAILED, None)
    assert registered.load("demo").state.groups == {}


def hold(store: ActionStore, control: ControlRecord) -> None:
    """What actions say of the cluster."""
    store.save_record(record(), control, store.load("demo").versions)


def registered_control(store: ActionStore) -> ControlRecord | None:
    found = store.registered("demo")
    return found.control if found else None


def register_over(store: ActionStore) -> None:
    """The record once more, over whatever stands there; what actions say is kept as far as it can be read."""
    found = store.registered("demo")
    assert found is not None
    store.save_record(record(), found.control, found.versions)


PAUSED = ControlRecord(paused=True)


@pytest.mark.parametrize("new", [True, False])
def test_a_write_that_has_not_seen_the_last_one_changes_nothing(registered: ActionStore, new: bool) -> None:
    registered.save_group("demo", KEY, FAILED, None)
    registered.save_pool("demo", POOL, PoolState(digest="first"), None)
    stale = None if new else registered.load("demo").versions
    between = registered.load("demo").versions
    registered.save_record(record(), ControlRecord(), between)
    registered.save_group("demo", KEY, FAILED, between)
    registered.save_pool("demo", POOL, PoolState(digest="second"), between)
    with pytest.raises(StateConflictError):
        registered.save_record(record(), PAUSED, stale)
    with pytest.raises(StateConflictError):
        registered.save_group("demo", KEY, GroupState(), stale)
    with pytest.raises(StateConflictError):
        registered.save_pool("demo", POOL, PoolState(digest="third"), stale)
    found = registered.load("demo")
    assert (found.control.paused, found.state.groups[KEY], found.state.pools[POOL].digest) == (False, FAILED, "second")


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


def test_whoever_writes_twice_writes_on_top_of_what_it_wrote(registered: ActionStore) -> None:
    first, second = registered.load("demo").versions, registered.load("demo").versions
    timer = Timer(due=NOW + MINUTE)
    zone = said(NOW + MINUTE)
    writes: list[Callable[[Versions], None]] = [
        lambda versions: registered.save_record(record(), PAUSED, versions),
        lambda versions: registered.save_group("demo", KEY, FAILED, versions),
        lambda versions: registered.save_pool("demo", POOL, PoolState(digest="abc"), versions),
        lambda versions: registered.save_zone("demo", "-", "a", zone, versions),
        lambda versions: registered.save_scale_request("demo", REQUEST, versions),
        lambda versions: registered.save_timer("demo", timer, versions),
        lambda versions: registered.save_event_check("demo", LOOK, versions),
    ]
    for write in writes:
        write(first)
        write(first)
        with pytest.raises(StateConflictError):
            write(second)
    found = registered.load("demo")
    assert (found.control, found.timer, found.event_check, found.zones) == (PAUSED, timer, LOOK, {"a": zone})


def test_a_write_to_what_was_there_and_is_gone_is_a_conflict(kept: Kept, registered: ActionStore) -> None:
    registered.save_group("demo", KEY, FAILED, None)
    before = registered.load("demo").versions
    kept.clock.at += timedelta(days=30)
    found = registered.load("demo")
    registered.forget("demo", found.expired[0], found.versions)
    with pytest.raises(StateConflictError):
        registered.save_group("demo", KEY, FAILED, before)


class TestControl:
    """What actions say of a cluster stands beside what a person registered."""

    HELD = ControlRecord(
        paused=True,
        paused_until=NOW + MINUTE,
        paused_pools={"workers": None, "gpu": NOW + MINUTE},
        restoring_pools=("old",),
        fixes=(FixEntry(pool="workers", before=1, after=3),),
    )

    def test_it_comes_back_as_it_was_and_the_record_too(self, registered: ActionStore) -> None:
        hold(registered, self.HELD)
        found = registered.load("demo")
        assert (found.record, found.control) == (record(), self.HELD)
        assert registered_control(registered) == self.HELD

    def test_the_index_shows_what_is_paused_and_restored(self, registered: ActionStore) -> None:
        restoring = self.HELD.model_copy(update={"restoring": True})
        for control in (self.HELD, restoring, ControlRecord()):
            hold(registered, control)
            found = dict(registered.registrations())["demo"]
            assert isinstance(found, Registration)
            assert (found.record, found.control()) == (record(), control.model_copy(update={"fixes": ()}))

    def test_it_outlives_a_record_that_nobody_can_read(self, kept: Kept, registered: ActionStore) -> None:
        hold(registered, self.HELD)
        kept.change("demo", "META", "{")
        with pytest.raises(ConfigError):
            registered.load("demo")
        register_over(registered)
        assert registered.load("demo").control == self.HELD

    def test_it_is_written_beside_a_record_that_nobody_can_read_and_that_stays(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        hold(registered, ControlRecord(live=True))
        registered.save_settled("demo", SteadyState(at=NOW, seen={"a": "1"}), registered.load("demo").versions)
        kept.change("demo", "META", '{"colour": 1}')
        found, before = registered.registered("demo"), registered.registered("demo")
        assert found is not None
        assert before is not None
        registered.save_control("demo", self.HELD, found.versions)
        assert kept.text("demo", "META") == '{"colour": 1}'
        with pytest.raises(StateConflictError):
            registered.save_control("demo", ControlRecord(), before.versions)
        register_over(registered)
        after = registered.load("demo")
        assert (after.control, after.settled) == (self.HELD, None)

    def test_where_nobody_can_read_it_nothing_is_loaded_and_registering_again_keeps_what_is_paused(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        hold(registered, self.HELD)
        kept.change("demo", "META#CONTROL", '{"paused": "perhaps"}')
        with pytest.raises(ConfigError, match="paused is 'perhaps'"):
            registered.load("demo")
        register_over(registered)
        assert registered.load("demo").control == self.HELD.model_copy(update={"fixes": ()})


class TestLease:
    def test_nobody_gets_a_lease_that_another_run_holds(self, registered: ActionStore) -> None:
        registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        fence = registered.load("demo").fencing_token
        with pytest.raises(LeaseHeldError):
            registered.take_lease("demo", "second", fence, NOW + MINUTE / 2, NOW + 2 * MINUTE)

    def test_a_lease_that_ran_out_is_taken_over_with_a_higher_fence(self, registered: ActionStore) -> None:
        first = registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        fence = registered.load("demo").fencing_token
        second = registered.take_lease("demo", "second", fence, NOW + MINUTE, NOW + 2 * MINUTE)
        assert second.fencing_token > first.fencing_token
        assert second.expires == NOW + 2 * MINUTE

    def test_a_lease_taken_since_the_look_is_a_conflict_also_after_its_end(self, registered: ActionStore) -> None:
        seen = registered.load("demo").fencing_token
        between = registered.take_lease("demo", "first", seen, NOW, NOW + MINUTE)
        registered.give_back_lease("demo", between, NOW)
        with pytest.raises(StateConflictError):
            registered.take_lease("demo", "second", seen, NOW, NOW + MINUTE)

    def test_a_lease_given_back_is_free_at_once(self, registered: ActionStore) -> None:
        first = registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        registered.give_back_lease("demo", first, NOW)
        assert (
            registered.take_lease("demo", "second", first.fencing_token, NOW, NOW + MINUTE).fencing_token
            == first.fencing_token + 1
        )

    def test_giving_back_what_another_run_holds_by_now_leaves_it_to_that_run(self, registered: ActionStore) -> None:
        first = registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        second = registered.take_lease("demo", "second", first.fencing_token, NOW + MINUTE, NOW + 2 * MINUTE)
        registered.give_back_lease("demo", first, NOW + MINUTE)
        with pytest.raises(LeaseHeldError):
            registered.take_lease("demo", "third", second.fencing_token, NOW + MINUTE, NOW + 3 * MINUTE)

    def test_two_clusters_have_two_leases(self, registered: ActionStore) -> None:
        register(registered, "demo-2")
        registered.take_lease("demo", "first", 0, NOW, NOW + MINUTE)
        assert registered.take_lease("demo-2", "second", 0, NOW, NOW + MINUTE).fencing_token == 1


def _records(store: ActionStore) -> dict[str, ClusterRecord | str]:
    return {id: found.record if isinstance(found, Registration) else found for id, found in store.registrations()}


class TestDue:
    def test_every_registered_cluster_is_in_the_index_with_its_record(self, store: ActionStore) -> None:
        for name in ("c", "a", "b"):
            register(store, name)
        assert _records(store) == {name: record(name) for name in "abc"}

    def test_an_empty_table_has_no_due_clusters(self, store: ActionStore) -> None:
        assert list(store.registrations()) == []

    def test_a_broken_record_is_told_and_does_not_hide_the_others(self, kept: Kept, registered: ActionStore) -> None:
        kept.plant("broken", '{"id": "broken", "flavours": "all"}')
        kept.plant("no-json", "{")
        due = dict(registered.registrations())
        assert _records(registered)["demo"] == record()
        assert "record of cluster broken: flavours is 'all'" in str(due["broken"])
        assert "record of cluster no-json: not JSON" in str(due["no-json"])

    def test_the_shards_together_list_every_registered_cluster_once(self, store: ActionStore) -> None:
        names = {f"cluster-{'x' * (number % 3)}-{number}" for number in range(40)}
        for name in names:
            register(store, name)
        listed = [entry for shard in store.shards for entry in listed_in(store, shard)]
        assert sorted(cluster for cluster, _ in listed) == sorted(names)
        assert dict(listed)["cluster--0"] == dict(store.registrations())["cluster--0"]

    def test_a_record_that_is_written_again_is_listed_as_it_is_then(self, registered: ActionStore) -> None:
        hold(registered, PAUSED)
        (entry,) = [entry for shard in registered.shards for entry in listed_in(registered, shard)]
        assert isinstance(entry[1], Registration)
        assert entry[1].control().paused

    def test_a_name_leads_to_the_clusters_that_list_it(self, store: ActionStore) -> None:
        for cluster in ("b", "a"):
            register(store, cluster, names=("shared", f"only-{cluster}"))
        assert list(store.called("shared")) == ["a", "b"]
        assert list(store.called("only-b")) == ["b"]
        assert [list(store.called(name)) for name in ("nobody", "", "x" * 5000)] == [[], [], []]

    def test_a_broken_record_cannot_be_loaded_and_can_be_replaced(self, kept: Kept, store: ActionStore) -> None:
        kept.plant("demo", json.dumps({**record().model_dump(mode="json"), "scan_interval": -5}))
        with pytest.raises(ConfigError, match=r"record of cluster demo: scan_interval is '-5'"):
            store.load("demo")
        register_over(store)
        assert store.load("demo").record == record()


def listed_in(store: ActionStore, shard: str) -> Iterator[tuple[str, Registration | str]]:
    """All pages of a shard."""
    position: str | None = None
    while True:
        page = store.due(shard, position)
        yield from page.registrations
        if page.after is None:
            return
        position = page.after


SILENT = Unreachable(since=NOW, looks=2, last_check=NOW, next_check=NOW + 2 * MINUTE, why="no answer")


class TestSilence:
    def test_it_is_remembered_until_a_day_after_the_next_look(self, kept: Kept, registered: ActionStore) -> None:
        versions = registered.load("demo").versions
        registered.save_silence("demo", SILENT, versions)
        assert registered.load("demo").silence == SILENT
        registered.save_silence("demo", replace(SILENT, looks=3), versions)
        kept.clock.at = NOW + timedelta(days=1)
        assert registered.load("demo").silence == replace(SILENT, looks=3)
        kept.clock.at = NOW + timedelta(days=2)
        assert registered.load("demo").silence is None

    def test_two_at_once_are_one(self, registered: ActionStore) -> None:
        one, other = registered.load("demo").versions, registered.load("demo").versions
        registered.save_silence("demo", SILENT, one)
        with pytest.raises(StateConflictError):
            registered.save_silence("demo", SILENT, other)


SETTLED = SteadyState(
    at=NOW, seen={"cluster-api/MachineDeployment/v1beta2": "ab" * 32}, zones=frozenset("ab"), headroom=3
)


class TestSettled:
    def test_it_stands_beside_the_record_and_is_found_with_it(self, registered: ActionStore) -> None:
        assert registered.steady_clusters(["demo", "gone"]) == {}
        registered.save_settled("demo", SETTLED, registered.load("demo").versions)
        assert registered.load("demo").settled == SETTLED
        found = registered.steady_clusters(["demo", "gone", "demo"])
        assert found == {"demo": SteadyCluster(record=registered.load("demo").record, settled=SETTLED)}
        ended = SteadyState(at=NOW + MINUTE, seen={})
        registered.save_settled("demo", ended, registered.load("demo").versions)
        assert (registered.steady_clusters(["demo"]), registered.load("demo").settled) == ({}, ended)

    def test_of_any_number_of_clusters(self, registered: ActionStore) -> None:
        names = [f"c{number}" for number in range(120)]
        for name in names:
            register(registered, name)
            registered.save_settled(name, SETTLED, registered.load(name).versions)
        assert sorted(registered.steady_clusters(["demo", *names])) == sorted(names)

    def test_whatever_is_written_of_the_record_ends_it(self, registered: ActionStore) -> None:
        registered.save_settled("demo", SETTLED, registered.load("demo").versions)
        remembered = registered.load("demo")
        registered.save_record(remembered.record, PAUSED, remembered.versions)
        assert registered.steady_clusters(["demo"]) == {}
        with pytest.raises(StateConflictError):
            registered.save_settled("demo", SETTLED, Versions({"META": 1}))
        assert registered.load("demo").control == PAUSED

    def test_it_changes_no_version(self, registered: ActionStore) -> None:
        before = registered.load("demo")
        registered.save_settled("demo", SETTLED, before.versions)
        assert registered.load("demo").versions == before.versions
        registered.save_record(before.record, PAUSED, before.versions)

    def test_a_record_that_nobody_can_read_is_not_at_rest(self, kept: Kept, registered: ActionStore) -> None:
        registered.save_settled("demo", SETTLED, registered.load("demo").versions)
        kept.change("demo", "META", "{")
        assert registered.steady_clusters(["demo"]) == {}


class TestReadingAgain:
    def test_what_expires_meanwhile_counts_no_more(self, kept: Kept, registered: ActionStore) -> None:
        registered.save_group("demo", KEY, FAILED, None)
        assert KEY in registered.load("demo").state.groups
        kept.clock.at = NOW + timedelta(days=400)
        assert KEY not in registered.load("demo").state.groups

    def test_versions_are_every_readers_own(self, registered: ActionStore) -> None:
        one, other = registered.load("demo"), registered.load("demo")
        registered.save_group("demo", KEY, FAILED, one.versions)
        assert one.versions != other.versions
        assert KEY in registered.load("demo").state.groups

    def test_what_somebody_else_writes_is_seen_although_its_version_is_the_same(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        assert registered.load("demo").record.scan_interval == 60
        kept.change("demo", "META", kept.text("demo", "META").replace('"scan_interval":60', '"scan_interval":120'))
        assert registered.load("demo").record.scan_interval == 120


def done(at: datetime, id: str = "") -> dict[str, Any]:
    """What somebody did, as it is recorded."""
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


def test_a_look_that_an_event_has_asked_for_is_known_to_the_next(registered: ActionStore) -> None:
    look = EventCheckRecord(at=NOW + MINUTE, by="event-1")
    registered.save_event_check("demo", look, None)
    assert registered.load("demo").event_check == look
    with pytest.raises(StateConflictError):
        registered.save_event_check("demo", look, None)
    registered.save_event_check(
        "demo", EventCheckRecord(at=NOW + 2 * MINUTE, by="event-2"), registered.load("demo").versions
    )


class TestWhatIsOver:
    """DynamoDB deletes late, within days, and never what ended five years ago."""

    def save_all(self, store: ActionStore) -> None:
        store.save_group("demo", KEY, FAILED, None)
        store.save_zone("demo", "-", "a", said(NOW + MINUTE), None)
        store.save_scale_request("demo", REQUEST, None)
        store.save_event_check("demo", LOOK, None)
        store.save_pool("demo", POOL, PoolState(digest="abc"), None)
        store.save_decision("demo", "01A", {"id": "01A"}, NOW + 30 * MINUTE)

    def test_it_is_as_if_it_were_not_there_although_it_still_is(self, kept: Kept, registered: ActionStore) -> None:
        self.save_all(registered)
        kept.clock.at = NOW + timedelta(days=3)
        found = registered.load("demo")
        assert (found.state.groups, found.zones, found.scale_requests, found.event_check) == ({}, {}, {}, None)
        assert found.state.pools == {POOL: PoolState(digest="abc")}, "this never is"
        assert registered.decisions("demo", 5) == []
        assert registered.decisions_after("demo", "") == ([], False)

    def test_it_can_be_written_again(self, kept: Kept, registered: ActionStore) -> None:
        self.save_all(registered)
        kept.clock.at = NOW + timedelta(days=3)
        versions = registered.load("demo").versions
        registered.save_group("demo", KEY, FAILED, versions)
        assert registered.load("demo").state.groups == {KEY: FAILED}

    @pytest.mark.parametrize(
        "state", [GroupState(), GroupState(last_success=NOW), FAILED, GroupState(last_failure=NOW - timedelta(2000))]
    )
    def test_what_is_written_is_never_over_already(self, registered: ActionStore, state: GroupState) -> None:
        """A state without a time of its own used to end in 1970, and then stays for ever."""
        registered.save_group("demo", KEY, state, None)
        assert KEY in registered.load("demo").state.groups

    def test_an_old_word_and_an_old_request_are_not_either(self, registered: ActionStore) -> None:
        old = NOW - timedelta(days=2000)
        registered.save_zone("demo", "-", "a", said(old, old), None)
        registered.save_scale_request(
            "demo", ScaleRequestRecord(id="r1", nodes=4, pool="workers", at=old, done=True), None
        )
        found = registered.load("demo")
        assert set(found.zones) == {"a"}
        assert set(found.scale_requests) == {"r1"}


class TestANewerRelease:
    """What it wrote into records is not understood here, and still there when it comes back."""

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

    def test_its_fields_inside_of_fields_too(self, kept: Kept, store: ActionStore) -> None:
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
        assert store.load("demo").control.paused

    def test_its_fields_are_not_put_where_something_else_stands_by_now(self, kept: Kept, store: ActionStore) -> None:
        register(store, pools=[{"name": "workers", "min": 1, "max": 9}])
        stored = json.loads(kept.text("demo", "META"))
        stored["pools"][0]["max_surge"] = 2
        kept.change("demo", "META", json.dumps(stored))
        store.load("demo")
        register_again(store, record(pools=[{"name": "gpu", "min": 1, "max": 9}]))
        assert "max_surge" not in kept.text("demo", "META")

    def test_its_fields_of_all_that_is_remembered_are_kept_however_often_it_is_written(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        zone = said(NOW + MINUTE)
        control = ControlRecord(paused_pools={"workers": None})
        saves: dict[str, Callable[[Versions | None], None]] = {
            "META#CONTROL": lambda versions: registered.save_record(
                record(), control, versions or registered.load("demo").versions
            ),
            f"GROUP#{KEY}": lambda versions: registered.save_group("demo", KEY, FAILED, versions),
            f"POOL#{POOL}": lambda versions: registered.save_pool("demo", POOL, PoolState(digest="abc"), versions),
            "ZONE#-/a": lambda versions: registered.save_zone("demo", "-", "a", zone, versions),
            "GROWTH#r1": lambda versions: registered.save_scale_request("demo", REQUEST, versions),
        }
        for key, save in saves.items():
            save(None)
            kept.change("demo", key, json.dumps({**json.loads(kept.text("demo", key)), **self.NEW}))
        versions = registered.load("demo").versions
        for key, save in saves.items():
            save(versions)
            save(versions)  # as one run does, which reads once and writes twice
            found = json.loads(kept.text("demo", key))
            assert {name: found[name] for name in self.NEW} == self.NEW, key
        found_again = registered.load("demo")
        assert (found_again.state.groups, found_again.zones) == ({KEY: FAILED}, {"a": zone})

    def test_a_known_field_with_a_bad_value_is_told_beside_an_unknown_one(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        stored = {**json.loads(kept.text("demo", "META")), **self.NEW, "scan_interval": -5}
        kept.change("demo", "META", json.dumps(stored))
        with pytest.raises(ConfigError) as caught:
            registered.load("demo")
        assert len(caught.value.faults) == 1
        assert "scan_interval is '-5'" in str(caught.value)

    def test_what_people_hand_in_stays_strict(self, kept: Kept, registered: ActionStore) -> None:
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


OFFERING = Offering("aws", "eu-central-1", "123456789012/eu-central-1a", "m5.xlarge", "spot")
WORD = CapacityReport(failed_at=NOW, until=NOW + 5 * MINUTE, cluster="blue")


class TestRollouts:
    ROLLOUT = Rollout(
        id="01",
        at=NOW,
        size=2,
        soak=15 * MINUTE,
        phase=Phase.HALTING,
        since=NOW,
        waiting=("c", "d"),
        wave=("b",),
        number=2,
        proven=("a",),
        left_out={"e": LeftOut.PAUSED},
        halts=(Halt(cluster="b", kind=IncidentKind.MISSING, pool="x/workers"), Halt()),
        by="jane",
        reason="ticket 7",
        halted_by="joe",
        halt_reason="ticket 8",
    )

    def test_one_is_kept_whole_and_written_on_the_version_that_was_read(self, store: ActionStore) -> None:
        assert store.rollout() == (None, None)
        version = store.save_rollout(self.ROLLOUT, None)
        assert store.rollout() == (self.ROLLOUT, version)
        done = self.ROLLOUT.in_phase(Phase.DONE, NOW + MINUTE)
        for other in (None, version + 1):
            with pytest.raises(StateConflictError):
                store.save_rollout(done, other)
        assert store.rollout() == (self.ROLLOUT, version)
        assert store.save_rollout(done, version) == version + 1
        assert store.rollout() == (done, version + 1)

    def test_ten_thousand_clusters_fit_into_one(self, store: ActionStore) -> None:
        large = replace(self.ROLLOUT, waiting=tuple(f"cluster-number-{number:06}" for number in range(10_000)))
        store.save_rollout(large, None)
        assert store.rollout()[0] == large

    def test_a_cluster_keeps_what_a_rollout_has_said_of_it(self, store: ActionStore) -> None:
        control = ControlRecord(live=True, rollout="01")
        store.save_record(record(), control, None)
        assert store.load("demo").control == control
        found = store.registered("demo")
        assert found is not None
        assert found.control == control
        (listed,) = [one for shard in store.shards for _, one in store.due(shard).registrations]
        assert isinstance(listed, Registration)
        assert listed.live is True


class TestOfferings:
    def test_what_one_cluster_says_every_other_reads(self, store: ActionStore) -> None:
        assert store.offerings() == {}
        assert store.offering(OFFERING) == SharedOffering(state=OfferingState(), version=None)
        state = OfferingState(reports={"A": WORD}, delivered_at=NOW - MINUTE)
        store.save_offering(OFFERING, state, None)
        assert store.offerings() == {OFFERING: SharedOffering(state=state, version=1)}
        assert store.offering(OFFERING) == SharedOffering(state=state, version=1)

    def test_who_has_not_read_the_last_word_does_not_write_over_it(self, store: ActionStore) -> None:
        state = OfferingState(reports={"A": WORD})
        store.save_offering(OFFERING, state, None)
        for version in (None, 2):
            with pytest.raises(StateConflictError):
                store.save_offering(OFFERING, OfferingState(), version)
        store.save_offering(OFFERING, OfferingState(delivered_at=NOW), 1)
        assert store.offering(OFFERING).version == 2

    def test_what_is_over_says_nothing_and_can_be_written_again(self, kept: Kept, store: ActionStore) -> None:
        store.save_offering(OFFERING, OfferingState(reports={"A": WORD}), None)
        kept.clock.at += timedelta(hours=5)
        assert store.offerings() == {}
        found = store.offering(OFFERING)
        assert found.state == OfferingState()
        store.save_offering(OFFERING, OfferingState(delivered_at=kept.clock.at), found.version)
        assert list(store.offerings()) == [OFFERING]

    def test_no_cluster_is_anything_of_it(self, registered: ActionStore) -> None:
        registered.save_offering(OFFERING, OfferingState(reports={"A": WORD}), None)
        assert [cluster for cluster, _ in registered.registrations()] == ["demo"]
        assert registered.load("demo").offerings == {}

    def test_a_thousand_offerings_are_read_to_the_end(self, store: ActionStore) -> None:
        for i in range(30):
            offering = replace(OFFERING, machine_type=f"m{i}.large")
            words = {f"{voice}": replace(WORD, cluster="c" * 100) for voice in range(3)}
            store.save_offering(offering, OfferingState(reports=words), None)
        assert len(store.offerings()) == 30

    def test_an_item_that_nobody_can_read_hides_no_other(self, deployment: Deployment) -> None:
        client = deployment.aws.client("dynamodb")
        table = DynamoStore(client, deployment.table, lambda: NOW)
        table.save_offering(OFFERING, OfferingState(reports={"A": WORD}), None)
        broken = replace(OFFERING, capacity_type="on-demand")
        for sort_key, text in (
            (str(broken), "{"),
            ("of/a/newer/release", '{"delivered_at": "2026-01-15T12:00:00Z"}'),
        ):
            item = {"pk": {"S": "OFFERING"}, "sk": {"S": sort_key}, "record": {"S": text}, "version": {"N": "7"}}
            client.put_item(TableName=deployment.table, Item=item)
        assert list(table.offerings()) == [OFFERING]
        table.save_offering(broken, OfferingState(reports={"A": WORD}), table.offering(broken).version)
        assert set(table.offerings()) == {OFFERING, broken}

    def test_what_the_function_that_hears_events_could_write_counts_for_nothing(self, deployment: Deployment) -> None:
        client = deployment.aws.client("dynamodb")
        table = DynamoStore(client, deployment.table, lambda: NOW)
        item = {"pk": {"S": "OFFERING"}, "sk": {"S": str(OFFERING)}, "revision": {"N": "1"}}
        client.put_item(TableName=deployment.table, Item={**item, "state": {"S": '{"words": {}}'}})
        assert table.offerings() == {}
        table.save_offering(OFFERING, OfferingState(reports={"A": WORD}), table.offering(OFFERING).version)
        assert list(table.offerings()) == [OFFERING]

    def test_it_expires_and_never_in_the_past(self, deployment: Deployment) -> None:
        client = deployment.aws.client("dynamodb")
        DynamoStore(client, deployment.table, lambda: NOW).save_offering(
            OFFERING, OfferingState(reports={"A": replace(WORD, failed_at=NOW - timedelta(days=2000))}), None
        )
        key = {"pk": {"S": "OFFERING"}, "sk": {"S": str(OFFERING)}}
        item = client.get_item(TableName=deployment.table, Key=key)["Item"]
        assert int(item["expires_at"]["N"]) > NOW.timestamp()


class TestTheTableItself:
    """What only the real adapter can be asked."""

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

    def test_only_a_clusters_record_is_in_the_index(self, table: DynamoStore, deployment: Deployment) -> None:
        register(table)
        table.save_group("demo", KEY, FAILED, None)
        table.save_pool("demo", POOL, PoolState(), None)
        table.take_lease("demo", "me", 0, NOW, NOW + MINUTE)
        table.save_decision("demo", "01A", {}, NOW)
        answer = deployment.aws.client("dynamodb").scan(TableName=deployment.table, IndexName="due")
        assert [item["sk"]["S"] for item in answer["Items"]] == ["META"]

    def test_backoffs_and_decisions_expire_and_records_pools_and_leases_stay(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        register(table)
        table.save_group("demo", KEY, FAILED, None)
        table.save_pool("demo", POOL, PoolState(), None)
        table.take_lease("demo", "me", 0, NOW, NOW + MINUTE)
        table.save_decision("demo", "01A", {}, NOW + 30 * MINUTE)
        items = self.items(deployment)
        assert {kind for kind, item in items.items() if "expires_at" in item} == {"DECISION"}
        assert int(items["DECISION"]["expires_at"]["N"]) == (NOW + 30 * MINUTE).timestamp()
        assert FAILED.backoff_until is not None
        assert int(items["GROUP"]["kept_until"]["N"]) > (FAILED.backoff_until + timedelta(hours=3)).timestamp()

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
        text = '{"words": {"arc": {"until": "2026-01-15T12:30:00Z"}}}'
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
            ("ZONE#r/z", '{"words": {"arc": {"until": "soon"}}}', "ZONE#r/z: words.arc.until is 'soon'"),
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

    def test_what_events_lead_to_touches_no_attribute_that_a_clusters_record_stands_in(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        """So that a policy on attributes keeps the function that hears events from writing META."""
        table.save_group("demo", KEY, FAILED, None)
        table.save_zone("demo", "-", "a", said(NOW), None)
        table.save_scale_request("demo", REQUEST, None)
        table.save_event_check("demo", LOOK, None)
        items = self.items(deployment)
        assert set(items) == {"GROUP", "ZONE", "GROWTH", "HEARD"}
        for item in items.values():
            assert set(item) == {"pk", "sk", "state", "revision", "kept_until"}

    def test_an_item_that_has_only_what_the_hearing_function_may_write_counts_for_nothing(
        self, table: DynamoStore, deployment: Deployment
    ) -> None:
        """It may add its attributes under any sort key: nobody must be kept from reading or writing by them."""
        register(table)
        found = table.load("demo")
        for key in ("META#CONTROL", "LOOK", f"POOL#{POOL}", "POOL#x", "LEASE#x"):
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
            gone.offerings,
            lambda: gone.called("name"),
            lambda: gone.save_silence("demo", SILENT, None),
            lambda: gone.save_settled("demo", SETTLED, Versions()),
            lambda: gone.steady_clusters(["demo"]),
            lambda: gone.registered("demo"),
            lambda: gone.remove_record("demo", Versions()),
            lambda: register(gone),
            lambda: gone.save_group("demo", KEY, FAILED, None),
            lambda: gone.save_pool("demo", POOL, PoolState(), None),
            lambda: gone.save_event_check("demo", LOOK, None),
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


def test_what_is_known_and_decided_is_read_at_once_unless_it_is_too_much(registered: ActionStore) -> None:
    ids = [ulid(NOW + minute * MINUTE, bytes(10)) for minute in range(9)]
    registered.save_group("demo", KEY, FAILED, None)
    for id in ids[:2]:
        registered.save_decision("demo", id, done(NOW, id), NOW + timedelta(days=30))
    registered.save_decision("demo", ulid(NOW + 9 * MINUTE, bytes(10)), {"id": "over"}, NOW - timedelta(days=1))
    remembered, decisions = registered.load_with_decisions("demo", ids[0])
    assert remembered == registered.load("demo")
    assert decisions == [done(NOW, ids[1])]
    for id in ids[2:]:
        registered.save_decision("demo", id, {"id": id, "why": "x" * 150_000}, NOW + timedelta(days=30))
    remembered, decisions = registered.load_with_decisions("demo", "")
    assert remembered == registered.load("demo")
    assert decisions is None
    with pytest.raises(UnknownClusterError):
        registered.load_with_decisions("nobody", "")


def test_what_is_over_is_named_and_forgotten_unless_it_was_written_since(kept: Kept, registered: ActionStore) -> None:
    registered.save_group("demo", KEY, FAILED, None)
    assert list(registered.load("demo").expired) == []
    kept.clock.at += timedelta(days=30)
    before = registered.load("demo")
    assert len(before.expired) == 1
    assert before.state.groups == {}
    registered.save_group("demo", KEY, FAILED, registered.load("demo").versions)
    with pytest.raises(StateConflictError):
        registered.forget("demo", before.expired[0], before.versions)
    kept.clock.at += timedelta(days=30)
    found = registered.load("demo")
    registered.forget("demo", found.expired[0], found.versions)
    assert list(registered.load("demo").expired) == []
    registered.save_group("demo", KEY, FAILED, None)


def test_sort_keys_stand_in_the_stores_alone() -> None:
    """A second store is two files: the store, and the records that it keeps."""
    spelled = re.compile(r'"(META|HEARD|LOOK|OFFERING)"|(GROUP|POOL|GROWTH|ZONE|META)#')
    stores = {ROOT / "layers/evenkeel/evenkeel/adapters/aws" / name for name in ("store.py", "records.py")}
    files = {file for folder in ("layers/evenkeel/evenkeel", "functions") for file in (ROOT / folder).rglob("*.py")}
    assert stores <= files
    assert {file for file in files if spelled.search(file.read_text(encoding="utf-8"))} == stores


TROUBLE = Incident(
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
    said="VcpuLimitExceeded: no more",
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
TOLD = {TROUBLE.key: Notified(kind=TROUBLE.kind, since=NOW, pool=TROUBLE.pool, missing=3, matter="x")}


class TestVerdicts:
    def test_one_is_read_with_all_else_of_its_cluster_and_with_all_others(self, registered: ActionStore) -> None:
        outbox = (
            IncidentChange(change=Change.CLOSED, incident=INVALID),
            IncidentChange(change=Change.OPENED, incident=TROUBLE),
        )
        cluster_health = ClusterHealth(notified=TOLD, outbox=outbox).with_incidents([INVALID, TROUBLE])
        registered.save_cluster_health("demo", cluster_health, registered.load("demo").versions)
        assert registered.load("demo").cluster_health == cluster_health
        assert registered.cluster_health("demo")[0] == cluster_health
        assert registered.cluster_healths() == {"demo": cluster_health}

    def test_every_kind_can_be_stored(self, registered: ActionStore) -> None:
        cluster_health = ClusterHealth().with_incidents([Incident(kind=kind, since=NOW) for kind in IncidentKind])
        registered.save_cluster_health("demo", cluster_health, None)
        assert registered.load("demo").cluster_health == cluster_health

    def test_of_two_that_judge_at_once_the_second_is_refused_and_nobody_reads_half(
        self, registered: ActionStore
    ) -> None:
        one, other = registered.load("demo").versions, registered.cluster_health("demo")[1]
        first = ClusterHealth().with_incidents([TROUBLE])
        registered.save_cluster_health("demo", first, one)
        with pytest.raises(StateConflictError):
            registered.save_cluster_health("demo", ClusterHealth(), other)
        assert registered.cluster_healths() == {"demo": first}
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INVALID]), one)
        assert registered.cluster_healths()["demo"].incidents == (INVALID,)

    def test_it_lasts_as_long_as_the_trouble(self, kept: Kept, registered: ActionStore) -> None:
        versions = registered.load("demo").versions
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([TROUBLE]), versions)
        kept.clock.at = NOW + timedelta(days=400)
        assert registered.load("demo").cluster_health.incidents == (TROUBLE,)
        registered.save_cluster_health("demo", ClusterHealth(), versions)
        kept.clock.at += timedelta(days=2)
        remembered = registered.load("demo")
        assert (remembered.cluster_health, list(remembered.expired)) == (ClusterHealth(), []), (
            "DynamoDB deletes it by itself"
        )
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([TROUBLE]), remembered.versions)

    def test_it_can_be_kept_of_a_cluster_whose_record_nobody_can_read(
        self, kept: Kept, registered: ActionStore
    ) -> None:
        kept.plant("demo", "{")
        cluster_health, versions = registered.cluster_health("demo")
        assert (cluster_health, dict(versions)) == (ClusterHealth(), {})
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([TROUBLE]), versions)
        registered.save_cluster_health("demo", ClusterHealth(notified=TOLD), versions)
        assert registered.cluster_health("demo")[0] == ClusterHealth(notified=TOLD)

    def test_one_of_a_newer_release_says_nothing_and_is_written_over(self, kept: Kept, registered: ActionStore) -> None:
        versions = registered.load("demo").versions
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([TROUBLE]), versions)
        kept.change("demo", "HEALTH", kept.text("demo", "HEALTH").replace("missing", "haunted", 1))
        remembered = registered.load("demo")
        assert remembered.cluster_health == ClusterHealth()
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([INVALID]), remembered.versions)
        assert registered.load("demo").cluster_health.incidents == (INVALID,)

    def test_registering_again_keeps_it(self, registered: ActionStore) -> None:
        registered.save_cluster_health("demo", ClusterHealth().with_incidents([TROUBLE]), None)
        register_again(registered, record())
        assert (
            registered.cluster_healths()["demo"].incidents
            == registered.load("demo").cluster_health.incidents
            == (TROUBLE,)
        )


class TestLooks:
    def test_of_each_cluster_the_latest_counts(self, store: ActionStore) -> None:
        store.save_looked_at(["blue", "green"], NOW)
        store.save_looked_at(["blue"], NOW + MINUTE)
        store.save_looked_at(["blue", "green"], NOW - MINUTE)  # a message that came late
        assert store.looked_at() == {"blue": NOW + MINUTE, "green": NOW - MINUTE}
        store.save_looked_at(["blue", "green"], NOW + 2 * MINUTE)
        assert store.looked_at() == dict.fromkeys(("blue", "green"), NOW + 2 * MINUTE)

    def test_after_two_hours_nobody_knows(self, kept: Kept, store: ActionStore) -> None:
        store.save_looked_at(["blue"], NOW)
        kept.clock.at = NOW + timedelta(hours=2)
        assert store.looked_at() == {}

    def test_they_hold_many_names(self, store: ActionStore) -> None:
        names = [f"{number:03}-{'x' * 96}" for number in range(50)]
        store.save_looked_at(names, NOW)
        assert set(store.looked_at()) == set(names)
