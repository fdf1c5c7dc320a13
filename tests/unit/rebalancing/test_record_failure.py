"""Failure events: those recorded, those that only request a check, in any order."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.errors import QueueUnavailableError, StateConflictError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, Failure, Report
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, PoolId
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState, MemberSnapshot, PoolState
from evenkeel.domain.rebalancing.health.observed import observe_health
from tests.builders import group, key
from tests.fakes import NOW, FakeClock, FakeQueue, InMemoryStore, adopt, register
from tests.parts import make, replace
from tests.unit.project.test_docs import rows

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
ADOPTED = PoolId("cluster-api", "default", "", "adopted")  # the pool whose groups every stack knows


def failure(**fields: Any) -> Failure:
    """Return a failure of a group in cluster `demo`."""
    given = {
        "cluster": "demo",
        "namespace": "default",
        "name": "workers-a",
        "code": "InsufficientInstanceCapacity",
        "message": "no room",
        "occurred_at": NOW - 30 * SECOND,
        "id": "event-1",
    }
    return Failure(**{**given, **fields})


def called(*names: str, **fields: Any) -> Failure:
    return failure(**{"cluster": None, "called": names, **fields})


class Delayed(FakeQueue):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.due: list[tuple[str, datetime]] = []

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        super().check_again(cluster, reason, seconds)
        self.due.append((cluster, self.clock.at + seconds * SECOND))


class Stack:
    """Registered clusters with groups in zones a and b, and the use case with its ports in memory."""

    def __init__(self, **records: dict[str, Any]) -> None:
        self.store = InMemoryStore()
        self.clock = FakeClock()
        self.queue = Delayed(self.clock)
        for cluster, fields in (records or {"demo": {}}).items():
            register(self.store, cluster, **fields)
            adopt(self.store, cluster, [key("a"), key("b")])
        self.record_failure = RecordFailure(store=self.store, queue=self.queue, clock=self.clock)

    def checks(self, cluster: str = "demo") -> list[datetime]:
        """Return the times of its checks: at once, as the deduplication id says, or after a delay."""
        now = [
            datetime.fromtimestamp(float(id.removeprefix(f"failure-{cluster}-")), UTC)
            for id, (asked, _) in self.queue.requests.items()
            if asked == cluster
        ]
        return sorted(now + [due for asked, due in self.queue.due if asked == cluster])

    def group(self, zone: str = "a", cluster: str = "demo") -> Any:
        return self.store.load(cluster).state.groups.get(key(zone))


@pytest.fixture
def stack() -> Stack:
    return Stack()


# -- recording
def test_a_failure_fences_its_group_and_requests_a_check_now(stack: Stack) -> None:
    assert stack.record_failure(failure()).result is EventResult.RECORDED
    state = stack.group()
    assert (state.failure.failures, state.failure.failure_class) == (1, FailureClass.CAPACITY)
    assert state.failure.backoff_until == NOW - 30 * SECOND + 5 * MINUTE
    assert "no room" in state.failure.message
    assert stack.queue.clusters == ["demo"]


def test_a_repeat_changes_nothing(stack: Stack) -> None:
    stack.record_failure(failure())
    before = stack.store.load("demo").state
    assert stack.record_failure(failure()).result is EventResult.KNOWN
    assert stack.store.load("demo").state == before
    assert stack.queue.clusters == ["demo"]


def test_a_failure_from_before_the_last_success_changes_nothing(stack: Stack) -> None:
    stack.store.save_group("demo", key("a"), make(GroupState, last_success=NOW - 20 * SECOND), None)
    assert stack.record_failure(failure()).result is EventResult.KNOWN
    assert stack.queue.clusters == []


@pytest.mark.parametrize("age", [timedelta(hours=4), timedelta(days=9000)])
def test_a_failure_older_than_any_backoff_changes_nothing(stack: Stack, age: timedelta) -> None:
    assert stack.record_failure(failure(occurred_at=NOW - age)).result is EventResult.KNOWN
    assert stack.group() is None


def test_a_concurrent_write_does_not_lose_the_failure(stack: Stack) -> None:
    earlier = make(GroupState, failures=1, last_failure=NOW - 20 * MINUTE)
    stack.store.before_write.append(lambda sort_key: stack.store.save_group("demo", key("a"), earlier, None))
    assert stack.record_failure(failure()).result is EventResult.RECORDED
    assert (stack.group().failure.failures, stack.group().failure.last_failure) == (2, NOW - 30 * SECOND)


def test_endless_conflicts_are_an_error_so_that_the_event_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    def contended(*_: object) -> None:
        raise StateConflictError("again")

    stack = Stack()
    monkeypatch.setattr(stack.store, "save_group", contended)
    with pytest.raises(StateConflictError):
        stack.record_failure(failure())


# -- checks without a group
@pytest.mark.parametrize("given", [failure(name=None, machine="workers-a-5b6f7-x7k2p"), called("demo", name=None)])
def test_a_failure_without_a_group_requests_a_check_and_records_nothing(stack: Stack, given: Failure) -> None:
    outcome = stack.record_failure(given)
    assert outcome.result is EventResult.REQUESTED
    assert "a check of demo reads its machines" in outcome.message
    assert "no known node group" not in outcome.message
    assert stack.queue.clusters == ["demo"]
    assert stack.store.load("demo").state.groups == {}


def test_an_old_failure_without_a_group_requests_no_check(stack: Stack) -> None:
    assert stack.record_failure(failure(name=None, occurred_at=NOW - 61 * MINUTE)).result is EventResult.KNOWN
    assert stack.queue.clusters == []


@pytest.mark.parametrize("later", [None, NOW - 10 * SECOND])
def test_a_check_that_could_not_be_requested_is_requested_by_a_repeat(stack: Stack, later: datetime | None) -> None:
    stack.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        stack.record_failure(failure())
    if later is not None:  # another failure in between cannot reach the queue either
        with pytest.raises(QueueUnavailableError):
            stack.record_failure(failure(occurred_at=later, id="event-2"))
    stack.queue.broken = None
    assert stack.record_failure(failure()).result is EventResult.KNOWN
    assert stack.queue.clusters == ["demo"]


@pytest.mark.parametrize("machine_only", [False, True])
def test_two_events_that_cannot_request_a_check_rely_on_no_other(stack: Stack, machine_only: bool) -> None:
    reported = {"name": None} if machine_only else {}
    first, second = failure(**reported), failure(**reported, id="event-2", occurred_at=NOW - 10 * SECOND)
    stack.record_failure(failure(**reported, id="event-0"))
    stack.queue.broken = QueueUnavailableError("away")
    for one in (first, second):
        with pytest.raises(QueueUnavailableError):
            stack.record_failure(one)
    stack.queue.broken = None
    stack.clock.at += MINUTE
    before = len(stack.checks())
    stack.record_failure(first)
    assert len(stack.checks()) == before + 1


# -- storms
def test_a_storm_is_checked_at_once_and_every_15_seconds_and_delays_no_other_cluster() -> None:
    stack = Stack(demo={}, other={})
    for number, second in enumerate((*range(10), 31)):
        stack.clock.at = NOW + second * SECOND
        stack.record_failure(failure(name=None, machine="m", id=str(number), occurred_at=stack.clock.at))
    assert stack.checks() == [NOW, NOW + 15 * SECOND, NOW + 31 * SECOND]
    stack.record_failure(failure(cluster="other"))
    assert stack.checks("other") == [NOW + 31 * SECOND]


def test_every_failure_is_followed_by_a_check_within_15_seconds(stack: Stack) -> None:
    """After each event, a check of the cluster is due at that moment or later, within 15 seconds."""
    for number in range(400):
        stack.clock.at += SECOND * (number * 7919 % 23) / 3
        stack.record_failure(failure(name=None, machine="m", id=str(number), occurred_at=stack.clock.at))
        assert any(stack.clock.at <= due <= stack.clock.at + 15 * SECOND for due in stack.checks())
    checks = stack.checks()
    assert all(after - before >= 14 * SECOND for before, after in pairwise(checks))


def test_a_clock_that_was_set_back_stops_no_check(stack: Stack) -> None:
    stack.clock.at = NOW + 60 * MINUTE
    stack.record_failure(failure(id="event-1"))
    stack.clock.at = NOW
    stack.record_failure(failure(id="event-2"))
    assert stack.checks() == [NOW, NOW + 60 * MINUTE]


@pytest.mark.parametrize("seconds", [0, 0.025, 1])
def test_400_failures_of_one_group_are_a_few_writes_and_checks(seconds: float) -> None:
    stack = Stack()
    stack.store.journal.entries.clear()
    for number in range(400):
        stack.record_failure(failure(id=str(number), occurred_at=stack.clock.at))
        stack.clock.at += SECOND * seconds
    storm = 400 * seconds
    assert len(stack.checks()) <= 2 + storm / 15
    assert stack.store.journal.count("save EVENT_CHECK") == len(stack.checks())
    assert stack.store.journal.count("save GROUP") <= 5 + storm / 15 * 5
    state = stack.group()
    assert state.failure.failures == (2 if storm > 300 else 1)
    assert stack.clock.at - state.failure.last_failure <= 15 * SECOND + SECOND * seconds, "status shows that it goes on"


@pytest.mark.parametrize("row", list(rows("reference/events.md", "storms")), ids=" ".join)
def test_a_storm_costs_what_the_page_says(row: list[str]) -> None:
    """Events at even distances, about each cluster in turn, and each cluster's groups in turn."""
    events, seconds, clusters, groups, *expected = (int(cell.replace(",", "")) for cell in row)
    names = [f"c{number}" for number in range(clusters)]
    stack = Stack(**{name: {} for name in names})
    stack.store.journal.entries.clear()
    for number in range(events):
        stack.clock.at = NOW + number * SECOND * seconds / events
        given = {"cluster": names[number % clusters], "name": f"workers-{'ab'[number // clusters % groups]}"}
        assert (
            stack.record_failure(failure(**given, id=str(number), occurred_at=stack.clock.at)).result
            is not EventResult.IGNORED
        )
    reads, writes = stack.store.journal.count("load"), Counter(stack.store.journal.entries)
    messages = len(stack.queue.requests) + len(stack.queue.second_checks)
    checks = sum(len(stack.checks(name)) for name in names)
    assert [reads, writes["save GROUP"] + writes["save EVENT_CHECK"], messages, checks] == expected
    assert all(len(stack.store.load(name).state.groups) == groups for name in names)


class InStep(InMemoryStore):
    """A table with concurrent readers: every answer waits until all of them have read."""

    def __init__(self, many: int) -> None:
        super().__init__()
        self.left, self.waiting, self.round = many, 0, 0
        self.changed = threading.Condition()

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        with self.changed:
            found = super().load(cluster)
            self.waiting += 1
            now = self.round
            self._go_on()
            self.changed.wait_for(lambda: self.round > now)
            return found

    def _save(self, *entry: Any) -> None:
        with self.changed:
            super()._save(*entry)

    def gone(self) -> None:
        with self.changed:
            self.left -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self.waiting >= self.left:
            self.waiting, self.round = 0, self.round + 1
            self.changed.notify_all()


@pytest.mark.parametrize("apart", [0 * SECOND, SECOND / 10, SECOND, 4 * MINUTE])
def test_20_concurrent_failures_of_one_group_are_all_recorded(apart: timedelta) -> None:
    """All read before any of them writes, in every round, so that each is overtaken many times."""
    stack, store = Stack(), InStep(20)
    store._items = stack.store._items
    record_failure = RecordFailure(store=store, queue=stack.queue, clock=stack.clock)

    def one(number: int) -> EventOutcome:
        try:
            return record_failure(failure(id=str(number), occurred_at=NOW - number * apart))
        finally:
            store.gone()

    with ThreadPoolExecutor(20) as many:
        outcome = list(many.map(one, range(20)))
    assert {one.result for one in outcome} <= {EventResult.RECORDED, EventResult.KNOWN}
    assert stack.checks() == [NOW, NOW + 15 * SECOND]
    alone = Stack()
    for number in reversed(range(20)):
        alone.record_failure(failure(id=str(number), occurred_at=NOW - number * apart))
    state, expected = stack.group(), alone.group()
    assert state.failure.failures == expected.failure.failures
    assert NOW - state.failure.last_failure < 15 * SECOND
    assert state.failure.backoff_until >= expected.failure.backoff_until


def test_another_kind_of_failure_is_recorded_during_a_storm(stack: Stack) -> None:
    for number in range(50):
        stack.record_failure(failure(id=str(number), occurred_at=NOW - 20 * SECOND + number * SECOND / 10))
    stack.record_failure(failure(id="quota", code="VcpuLimitExceeded", message="limit 32", occurred_at=NOW))
    assert stack.group().failure.failure_class is FailureClass.QUOTA


# -- unknown groups
@pytest.mark.parametrize("name", ["workers-z", "workers-a-5b6f7", "x" * 253])
def test_an_unknown_group_requests_a_check_and_stores_no_state(stack: Stack, name: str) -> None:
    assert stack.record_failure(failure(name=name)).result is EventResult.REQUESTED
    assert stack.checks() == [NOW]
    stack.store.journal.entries.clear()
    for number in range(3000):
        stack.record_failure(failure(name=f"made-up-{number}", id=str(number)))
    assert stack.checks() == [NOW, NOW + 15 * SECOND]
    assert stack.store.journal.count("save GROUP") == 0


def test_a_group_with_a_stored_state_is_known(stack: Stack) -> None:
    stack.store.save_group("demo", key("c"), make(GroupState, waiting_since=NOW), None)
    assert stack.record_failure(failure(name="workers-c")).result is EventResult.RECORDED


def test_a_group_that_a_check_has_found_is_known() -> None:
    """For example in dry run, or in a pool that needs no write."""
    stack = Stack(demo={"pools": [{"name": "found", "backoff": {"initial": 60}}]})
    found = PoolState(seen=MemberSnapshot(since=NOW, requested={str(key("c")): 2}))
    stack.store.save_pool("demo", PoolId("cluster-api", "default", "", "found"), found, None)
    assert stack.record_failure(failure(name="workers-c", occurred_at=NOW)).result is EventResult.RECORDED
    state = stack.group("c")
    assert state.failure.backoff_until == NOW + MINUTE, "the durations of its pool"


# -- clocks
@pytest.mark.parametrize("ahead", [SECOND, 30 * SECOND])
def test_a_failure_from_the_future_counts_as_now(stack: Stack, ahead: timedelta) -> None:
    assert stack.record_failure(failure(occurred_at=NOW + ahead)).result is EventResult.RECORDED
    assert stack.checks() == [NOW]
    state = stack.group()
    assert (state.failure.failures, state.failure.last_failure, state.failure.backoff_until) == (
        1,
        NOW,
        NOW + 5 * MINUTE,
    )
    assert max(state.failure.reports) <= NOW


@pytest.mark.parametrize("ahead", [31 * SECOND, 10 * MINUTE, 25 * 60 * MINUTE])
@pytest.mark.parametrize("api_ahead", [0 * SECOND, 10 * MINUTE], ids=["right clock", "slow clock"])
def test_a_failure_far_ahead_is_dated_by_the_api_servers_clock(
    stack: Stack, ahead: timedelta, api_ahead: timedelta
) -> None:
    """The function's clock may be slow. By its time, the fence would end at once."""
    assert stack.record_failure(failure(occurred_at=NOW + ahead)).result is EventResult.RECORDED
    assert stack.record_failure(failure(occurred_at=NOW + ahead, id="again")).result is EventResult.KNOWN
    assert stack.checks()[0] == NOW
    now, happened = NOW + api_ahead, NOW + min(ahead, api_ahead)
    state = stack.group()
    for _ in range(2):
        state = observe_health(group("a", 3), state, now, BackoffPolicy(), 15 * MINUTE)
        known = state.failure
        assert (known.failures, known.last_failure, known.backoff_until) == (1, happened, happened + 5 * MINUTE)
        assert known.announced == ()
    stack.store.save_group("demo", key("a"), state, stack.store.load("demo").versions)
    stack.clock.at += min(ahead, 10 * MINUTE)
    stack.record_failure(failure(occurred_at=NOW + ahead, id="later"))
    repeated = observe_health(group("a", 3), stack.group(), now + 11 * MINUTE, BackoffPolicy(), 15 * MINUTE)
    assert repeated.failure.failures == 1


# -- repeats
@pytest.mark.parametrize("success", [None, NOW])
def test_a_repeat_requests_a_check_unless_a_success_followed(stack: Stack, success: datetime | None) -> None:
    stack.record_failure(failure())
    state = replace(stack.group(), last_success=success)
    stack.store.save_group("demo", key("a"), state, stack.store.load("demo").versions)
    stack.clock.at += 5 * MINUTE
    assert stack.record_failure(failure(id="again")).result is EventResult.KNOWN
    assert stack.checks() == ([NOW] if success else [NOW, NOW + 5 * MINUTE])


# -- clusters
@pytest.mark.parametrize(
    ("names", "event", "checked"),
    [
        ({"demo": ["demo-mgmt"]}, called("demo-mgmt"), ["demo"]),
        ({}, called("other"), ["other"]),
        ({}, called("nobody", "other", "demo"), ["other"]),
        ({"other": ["demo"]}, called("demo"), ["demo"]),
        ({"demo": ["shared"], "other": ["shared"]}, called("shared"), ["demo", "other"]),
    ],
    ids=["a name", "the id", "the first known name", "an id precedes a name", "two clusters of one name"],
)
def test_a_cluster_is_known_by_its_id_or_a_name(names: dict[str, Any], event: Failure, checked: list[str]) -> None:
    stack = Stack(**{cluster: {"names": names.get(cluster, [])} for cluster in ("demo", "other")})
    outcome = stack.record_failure(event)
    assert stack.queue.clusters == checked
    recorded = [cluster for cluster in ("demo", "other") if stack.group(cluster=cluster) is not None]
    if len(checked) == 1:
        assert (outcome.result, recorded) == (EventResult.RECORDED, checked)
    else:
        assert (outcome.result, recorded) == (EventResult.REQUESTED, [])


@pytest.mark.parametrize(
    "given", [failure(cluster="unknown"), failure(cluster="unknown", name=None), called("unknown"), called()]
)
def test_an_unregistered_cluster_is_ignored(stack: Stack, given: Failure) -> None:
    outcome = stack.record_failure(given)
    assert outcome.result is EventResult.IGNORED
    assert "no such cluster is registered" in outcome.message
    assert stack.queue.clusters == []


def test_an_unreadable_record_has_no_names_and_hides_no_other_cluster() -> None:
    stack = Stack(demo={"names": ["one"]}, other={})
    stack.store.plant("other", '{"names": 7}')
    assert stack.record_failure(called("one")).result is EventResult.RECORDED
    assert stack.record_failure(called("other", id="event-2")).result is EventResult.IGNORED
    assert "record of cluster other" in stack.record_failure(failure(cluster="other")).message
    assert (
        stack.record_failure(called("other", name=None)).result is EventResult.IGNORED
    )  # nor does it name the accounts whose events count


# -- groups and durations
def test_a_failure_of_one_machine_api_is_recorded_for_that_one() -> None:
    stack = Stack(demo={"flavours": ["gardener", "cluster-api"]})
    stack.record_failure(failure(flavour="cluster-api"))
    assert [one.flavour for one in stack.store.load("demo").state.groups] == ["cluster-api"]


def test_a_failure_of_another_machine_api_is_ignored() -> None:
    outcome = Stack().record_failure(failure(flavour="openshift"))
    assert outcome.result is EventResult.IGNORED
    assert "openshift" in outcome.message


@pytest.mark.parametrize(("zone", "minutes"), [("a", 1), ("b", 5)])
def test_a_pool_with_durations_of_its_own_has_them(zone: str, minutes: int) -> None:
    own = {"initial": 60, "longest": 120, "forget_after": 600}
    stack = Stack(demo={"pools": [{"name": "workers", "min": 1, "max": 9, "backoff": own}]})
    adopt(stack.store, "demo", [key("a"), key("c")], pool="workers")
    stack.store.save_pool(
        "demo", ADOPTED, PoolState(adopted={str(key("b")): Bounds(1, 3)}), stack.store.load("demo").versions
    )
    stack.record_failure(failure(name=f"workers-{zone}", occurred_at=NOW))
    state = stack.group(zone)
    assert state.failure.backoff_until == NOW + minutes * MINUTE
    late = stack.record_failure(failure(name=f"workers-{zone}", occurred_at=NOW - 11 * MINUTE, id="late"))
    assert (late.result is EventResult.KNOWN) == (zone == "a")


def test_a_pools_durations_are_not_those_of_another_namespaces_pool_of_the_name() -> None:
    pools = [{"name": "workers", "namespace": "elsewhere", "min": 1, "max": 9, "backoff": {"initial": 60}}]
    stack = Stack(demo={"pools": pools})
    stack.store.save_pool("demo", ADOPTED, PoolState(adopted={str(key("b")): None}), stack.store.load("demo").versions)
    adopt(stack.store, "demo", [key("a")], pool="workers")
    stack.record_failure(failure(occurred_at=NOW))
    assert stack.group().failure.backoff_until == NOW + 5 * MINUTE


# -- streams
def recorded_in(order: list[tuple[int, int]], zones: str = "a") -> tuple[Stack, dict[str, list[timedelta]]]:
    """Record failures (happened, received) in seconds after NOW; return the stack and the length of each backoff."""
    stack = Stack()
    ends: dict[str, list[timedelta]] = {zone: [] for zone in zones}
    for number, (happened, at) in enumerate(order):
        zone = zones[happened % len(zones)]
        stack.clock.at = NOW + at * SECOND
        stack.record_failure(
            failure(name=f"workers-{zone}", occurred_at=NOW + happened * SECOND, id=f"{happened}-{number}")
        )
        state = stack.group(zone)
        if state is not None and state.failure.backoff_until is not None:
            ends[zone].append(state.failure.backoff_until - NOW)
    return stack, ends


@given(
    stream=st.lists(st.tuples(st.integers(0, 7000), st.lists(st.integers(0, 1500), max_size=3)), max_size=8),
    zones=st.sampled_from(["a", "ab"]),
)
def test_permuted_repeated_and_late_events_give_the_state_of_ordered_ones(
    stream: list[tuple[int, list[int]]], zones: str
) -> None:
    """Each failure is reported at least once, up to 25 minutes late, in any resulting order."""
    end = 8600  # all is reported by then, and nothing is forgotten yet
    ordered = [(happened, happened) for happened in sorted({happened for happened, _ in stream})]
    arrivals = [(happened, happened + delay) for happened, delays in stream for delay in (delays or [0])]
    arrivals.sort(key=lambda one: one[1])
    assert all(at <= end for _, at in arrivals)
    straight, _ = recorded_in(ordered, zones)
    mixed, ends = recorded_in(arrivals, zones)
    for zone in zones:
        expected, found = straight.group(zone), mixed.group(zone)
        if expected is None or found is None:
            assert expected is found
            continue
        assert found.failure.failures == expected.failure.failures
        assert found.failure.last_failure == expected.failure.last_failure
        assert found.failure.backoff_until >= expected.failure.backoff_until
        assert ends[zone] == sorted(ends[zone])  # and no event in between has shortened a backoff


@given(stream=st.lists(st.integers(0, 7000), min_size=1, max_size=8), order=st.randoms())
def test_every_order_of_one_stream_gives_one_state(stream: list[int], order: Any) -> None:
    shuffled = [*stream, *stream]
    order.shuffle(shuffled)
    states = [recorded_in([(one, 7000) for one in given])[0].group() for given in (sorted(stream), shuffled)]
    assert states[0].failure.failures == states[1].failure.failures
    assert states[0].failure.reports == states[1].failure.reports


class TestProof:
    """An event proves the cluster's event source."""

    @staticmethod
    def proven_at(stack: Stack, cluster: str = "demo") -> datetime | None:
        event_check = stack.store.load(cluster).event_check
        return event_check.proven_at if event_check else None

    def test_an_event_of_a_machine_in_time_is_a_proof_and_requests_no_check(self, stack: Stack) -> None:
        outcome = stack.record_failure(failure(reports=Report.ARRIVAL))
        assert (outcome.result, self.proven_at(stack)) == (EventResult.KNOWN, NOW)
        assert (stack.checks(), stack.group()) == ([], None)

    def test_of_two_clusters_with_one_name_none_is_proven(self) -> None:
        stack = Stack(blue={"names": ("shared",)}, green={"names": ("shared",)})
        stack.record_failure(called("shared", reports=Report.ARRIVAL))
        assert (self.proven_at(stack, "blue"), self.proven_at(stack, "green")) == (None, None)

    @pytest.mark.parametrize(
        "fields",
        [{"name": "gone"}, {"name": None}, {"occurred_at": NOW - 31 * SECOND}, {"occurred_at": NOW + 31 * SECOND}],
        ids=["unknown group", "no group", "late", "early"],
    )
    def test_any_other_event_is_no_proof(self, stack: Stack, fields: dict[str, Any]) -> None:
        stack.record_failure(failure(reports=Report.ARRIVAL, **fields))
        assert self.proven_at(stack) is None

    def test_a_storm_stores_one_proof_an_hour(self, stack: Stack) -> None:
        for number in range(10):
            stack.clock.at = NOW + number * MINUTE
            stack.record_failure(failure(id=f"event-{number}", reports=Report.ARRIVAL, occurred_at=stack.clock.at))
        assert self.proven_at(stack) == NOW
