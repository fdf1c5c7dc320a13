"""Hearing failures: what is recorded, what only asks for a look, and that no order of events does harm."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.errors import QueueUnavailableError, StateConflictError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, Failure
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, PoolId
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState, MemberSnapshot, PoolState
from evenkeel.domain.rebalancing.health.observed import observe_health
from tests.builders import group, key
from tests.fakes import NOW, FakeClock, FakeQueue, InMemoryStore, adopt, register
from tests.unit.test_docs import rows

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
ADOPTED = PoolId("cluster-api", "default", "", "adopted")  # the pool whose groups every house knows


def failure(**fields: Any) -> Failure:
    """One that names its group, in cluster `demo`."""
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
    """One that knows its cluster by other names."""
    return failure(**{"cluster": None, "called": names, **fields})


class Delayed(FakeQueue):
    """Knows when its delayed messages come."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.due: list[tuple[str, datetime]] = []

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        super().look_again(cluster, reason, seconds)
        self.due.append((cluster, self.clock.at + seconds * SECOND))


class House:
    """Registered clusters with groups in zones a and b, and hearing with every port in memory."""

    def __init__(self, **records: dict[str, Any]) -> None:
        self.store = InMemoryStore()
        self.clock = FakeClock()
        self.queue = Delayed(self.clock)
        for cluster, fields in (records or {"demo": {}}).items():
            register(self.store, cluster, **fields)
            adopt(self.store, cluster, [key("a"), key("b")])
        self.hear = RecordFailure(store=self.store, queue=self.queue, clock=self.clock)

    def looks(self, cluster: str = "demo") -> list[datetime]:
        """When it is looked at: at once, as the deduplication id says, or after a delay."""
        now = [
            datetime.fromtimestamp(float(id.removeprefix(f"failure-{cluster}-")), UTC)
            for id, (asked, _) in self.queue.requests.items()
            if asked == cluster
        ]
        return sorted(now + [due for asked, due in self.queue.due if asked == cluster])

    def group(self, zone: str = "a", cluster: str = "demo") -> Any:
        return self.store.load(cluster).state.groups.get(key(zone))


@pytest.fixture
def house() -> House:
    return House()


# ---------------------------------------------------------------- what is recorded
def test_a_failure_fences_its_group_and_asks_for_a_look_now(house: House) -> None:
    assert house.hear(failure()).result is EventResult.RECORDED
    state = house.group()
    assert (state.failures, state.failure_class) == (1, FailureClass.CAPACITY)
    assert state.backoff_until == NOW - 30 * SECOND + 5 * MINUTE
    assert "no room" in state.message
    assert house.queue.clusters == ["demo"]


def test_a_repeat_changes_nothing(house: House) -> None:
    house.hear(failure())
    before = house.store.load("demo").state
    assert house.hear(failure()).result is EventResult.KNOWN
    assert house.store.load("demo").state == before
    assert house.queue.clusters == ["demo"]


def test_a_failure_from_before_the_last_success_changes_nothing(house: House) -> None:
    house.store.save_group("demo", key("a"), GroupState(last_success=NOW - 20 * SECOND), None)
    assert house.hear(failure()).result is EventResult.KNOWN
    assert house.queue.clusters == []


@pytest.mark.parametrize("age", [timedelta(hours=4), timedelta(days=9000)])
def test_a_failure_older_than_any_backoff_changes_nothing(house: House, age: timedelta) -> None:
    assert house.hear(failure(occurred_at=NOW - age)).result is EventResult.KNOWN
    assert house.group() is None


def test_a_write_in_between_is_no_reason_to_lose_the_failure(house: House) -> None:
    earlier = GroupState(failures=1, last_failure=NOW - 20 * MINUTE)
    house.store.before_write.append(lambda sort_key: house.store.save_group("demo", key("a"), earlier, None))
    assert house.hear(failure()).result is EventResult.RECORDED
    assert (house.group().failures, house.group().last_failure) == (2, NOW - 30 * SECOND)


def test_endless_conflicts_end_in_an_error_so_that_the_event_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def contended(*_: object) -> None:
        raise StateConflictError("again")

    house = House()
    monkeypatch.setattr(house.store, "save_group", contended)
    with pytest.raises(StateConflictError):
        house.hear(failure())


# ---------------------------------------------------------------- a look is enough
@pytest.mark.parametrize("given", [failure(name=None, machine="workers-a-5b6f7-x7k2p"), called("demo", name=None)])
def test_a_failure_that_is_tied_to_no_group_asks_for_a_look_and_records_nothing(house: House, given: Failure) -> None:
    heard = house.hear(given)
    assert heard.result is EventResult.LOOKED
    assert "demo" in heard.message
    assert house.queue.clusters == ["demo"]
    assert house.store.load("demo").state.groups == {}


def test_what_happened_before_the_last_scans_is_no_reason_to_look(house: House) -> None:
    assert house.hear(failure(name=None, occurred_at=NOW - 61 * MINUTE)).result is EventResult.KNOWN
    assert house.queue.clusters == []


def test_a_look_that_could_not_be_asked_for_is_asked_for_when_the_event_is_tried_again(house: House) -> None:
    house.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        house.hear(failure(name=None))
    house.queue.broken = None
    assert house.hear(failure(name=None)).result is EventResult.LOOKED


@pytest.mark.parametrize("later", [None, NOW - 10 * SECOND])
def test_so_it_is_where_the_failure_was_recorded_already(house: House, later: datetime | None) -> None:
    house.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        house.hear(failure())
    if later is not None:  # nor could the look be asked for when another failure was heard meanwhile
        with pytest.raises(QueueUnavailableError):
            house.hear(failure(occurred_at=later, id="event-2"))
    house.queue.broken = None
    assert house.hear(failure()).result is EventResult.KNOWN
    assert house.queue.clusters == ["demo"]


@pytest.mark.parametrize("machine_only", [False, True])
def test_two_events_that_cannot_ask_for_a_look_rely_on_no_other(house: House, machine_only: bool) -> None:
    told = {"name": None} if machine_only else {}
    first, second = failure(**told), failure(**told, id="event-2", occurred_at=NOW - 10 * SECOND)
    house.hear(failure(**told, id="event-0"))
    house.queue.broken = QueueUnavailableError("away")
    for one in (first, second):
        with pytest.raises(QueueUnavailableError):
            house.hear(one)
    house.queue.broken = None
    house.clock.at += MINUTE
    before = len(house.looks())
    house.hear(first)
    assert len(house.looks()) == before + 1


# ---------------------------------------------------------------- storms
def test_the_first_failure_is_looked_at_at_once_and_all_of_the_next_15_seconds_once_at_their_end(house: House) -> None:
    for number in range(10):
        house.hear(failure(name=None, machine="m", id=str(number), occurred_at=house.clock.at))
        house.clock.at += SECOND
    assert house.queue.clusters == ["demo"]
    assert house.looks() == [NOW, NOW + 15 * SECOND]


def test_no_look_that_was_asked_for_before_a_failure_stands_for_the_look_after_it(house: House) -> None:
    """Whatever is heard, a look at the cluster is due at that moment or later, and within 15 seconds."""
    for number in range(400):
        house.clock.at += SECOND * (number * 7919 % 23) / 3
        house.hear(failure(name=None, machine="m", id=str(number), occurred_at=house.clock.at))
        assert any(house.clock.at <= due <= house.clock.at + 15 * SECOND for due in house.looks())
    looks = house.looks()
    assert all(after - before >= 14 * SECOND for before, after in pairwise(looks))


def test_when_a_storm_is_over_the_next_failure_is_looked_at_at_once(house: House) -> None:
    for number, second in enumerate((0, 1, 31)):
        house.clock.at = NOW + second * SECOND
        house.hear(failure(name=None, machine="m", id=str(number), occurred_at=house.clock.at))
    assert house.looks() == [NOW, NOW + 15 * SECOND, NOW + 31 * SECOND]


def test_one_clusters_storm_delays_no_other_cluster() -> None:
    house = House(demo={}, other={})
    for number in range(50):
        house.hear(failure(id=str(number)))
    house.hear(failure(cluster="other"))
    assert house.looks("other") == [NOW]


def test_a_clock_that_was_set_back_keeps_nobody_from_looking(house: House) -> None:
    house.clock.at = NOW + 60 * MINUTE
    house.hear(failure(id="event-1"))
    house.clock.at = NOW
    house.hear(failure(id="event-2"))
    assert house.looks() == [NOW, NOW + 60 * MINUTE]


@pytest.mark.parametrize("seconds", [0, 0.025, 1])
def test_400_failures_of_one_group_are_a_handful_of_writes_and_looks_and_one_failure(seconds: float) -> None:
    house = House()
    house.store.journal.entries.clear()
    for number in range(400):
        house.hear(failure(id=str(number), occurred_at=house.clock.at))
        house.clock.at += SECOND * seconds
    storm = 400 * seconds
    assert len(house.looks()) <= 2 + storm / 15
    assert house.store.journal.count("save HEARD") == len(house.looks())
    assert house.store.journal.count("save GROUP") <= 5 + storm / 15 * 5
    state = house.group()
    assert state.failures == (2 if storm > 300 else 1)
    assert house.clock.at - state.last_failure <= 15 * SECOND + SECOND * seconds, "whoever asks sees that it goes on"


@pytest.mark.parametrize("row", list(rows("failure-events.md", "storms")), ids=" ".join)
def test_a_storm_costs_what_the_page_says(row: list[str]) -> None:
    """Events at even distances, about each cluster in turn, and each cluster's groups in turn."""
    events, seconds, clusters, groups, *expected = (int(cell.replace(",", "")) for cell in row)
    names = [f"c{number}" for number in range(clusters)]
    house = House(**{name: {} for name in names})
    house.store.journal.entries.clear()
    for number in range(events):
        house.clock.at = NOW + number * SECOND * seconds / events
        given = {"cluster": names[number % clusters], "name": f"workers-{'ab'[number // clusters % groups]}"}
        assert (
            house.hear(failure(**given, id=str(number), occurred_at=house.clock.at)).result is not EventResult.IGNORED
        )
    reads, writes = house.store.journal.count("load"), Counter(house.store.journal.entries)
    messages = len(house.queue.requests) + len(house.queue.second_looks)
    looks = sum(len(house.looks(name)) for name in names)
    assert [reads, writes["save GROUP"] + writes["save HEARD"], messages, looks] == expected
    assert all(len(house.store.load(name).state.groups) == groups for name in names)


class InStep(InMemoryStore):
    """A table that many ask at the same time: nobody's answer comes before all who are left have asked."""

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
def test_20_at_once_about_one_group_all_end_well(apart: timedelta) -> None:
    """However often each is overtaken by the others: all read before any of them writes, in every round anew."""
    house, store = House(), InStep(20)
    store._items = house.store._items
    hear = RecordFailure(store=store, queue=house.queue, clock=house.clock)

    def one(number: int) -> EventOutcome:
        try:
            return hear(failure(id=str(number), occurred_at=NOW - number * apart))
        finally:
            store.gone()

    with ThreadPoolExecutor(20) as many:
        heard = list(many.map(one, range(20)))
    assert {one.result for one in heard} <= {EventResult.RECORDED, EventResult.KNOWN}
    assert house.looks() == [NOW, NOW + 15 * SECOND]
    alone = House()
    for number in reversed(range(20)):
        alone.hear(failure(id=str(number), occurred_at=NOW - number * apart))
    state, expected = house.group(), alone.group()
    assert state.failures == expected.failures
    assert NOW - state.last_failure < 15 * SECOND
    assert state.backoff_until >= expected.backoff_until


def test_another_kind_of_failure_is_remembered_in_the_middle_of_a_storm(house: House) -> None:
    for number in range(50):
        house.hear(failure(id=str(number), occurred_at=NOW - 20 * SECOND + number * SECOND / 10))
    house.hear(failure(id="quota", code="VcpuLimitExceeded", message="limit 32", occurred_at=NOW))
    assert house.group().failure_class is FailureClass.QUOTA


# ---------------------------------------------------------------- names that nobody knows
@pytest.mark.parametrize("name", ["workers-z", "workers-a-5b6f7", "x" * 253])
def test_a_group_that_the_cluster_does_not_have_leads_to_a_look_and_to_no_state(house: House, name: str) -> None:
    heard = house.hear(failure(name=name))
    assert heard.result is EventResult.LOOKED
    assert house.looks() == [NOW]
    assert house.store.load("demo").state.groups == {}


def test_3000_made_up_names_are_one_storm_and_no_state(house: House) -> None:
    house.store.journal.entries.clear()
    for number in range(3000):
        house.hear(failure(name=f"made-up-{number}", id=str(number)))
    assert house.looks() == [NOW, NOW + 15 * SECOND]
    assert house.store.journal.count("save GROUP") == 0


def test_a_group_that_something_is_remembered_of_is_known_also_where_we_have_never_written_it(house: House) -> None:
    house.store.save_group("demo", key("c"), GroupState(waiting_since=NOW), None)
    assert house.hear(failure(name="workers-c")).result is EventResult.RECORDED


def test_a_group_that_a_look_has_found_is_known_also_where_there_has_been_nothing_to_write() -> None:
    """In dry run, say, or in a pool that stands as we would have it."""
    house = House(demo={"pools": [{"name": "found", "backoff": {"initial": 60}}]})
    found = PoolState(seen=MemberSnapshot(since=NOW, requested={str(key("c")): 2}))
    house.store.save_pool("demo", PoolId("cluster-api", "default", "", "found"), found, None)
    assert house.hear(failure(name="workers-c", occurred_at=NOW)).result is EventResult.RECORDED
    state = house.group("c")
    assert state.backoff_until == NOW + MINUTE, "the durations of its pool"


# ---------------------------------------------------------------- clocks
@pytest.mark.parametrize("ahead", [SECOND, 30 * SECOND])
def test_a_failure_from_the_future_counts_as_now(house: House, ahead: timedelta) -> None:
    assert house.hear(failure(occurred_at=NOW + ahead)).result is EventResult.RECORDED
    assert house.looks() == [NOW]
    state = house.group()
    assert (state.failures, state.last_failure, state.backoff_until) == (1, NOW, NOW + 5 * MINUTE)
    assert max(state.reports) <= NOW


@pytest.mark.parametrize("ahead", [31 * SECOND, 10 * MINUTE, 25 * 60 * MINUTE])
@pytest.mark.parametrize("api_ahead", [0 * SECOND, 10 * MINUTE], ids=["right clock", "slow clock"])
def test_one_from_farther_ahead_is_dated_by_the_next_check_with_the_api_servers_clock(
    house: House, ahead: timedelta, api_ahead: timedelta
) -> None:
    """Our clock may be slow. Recorded as of it, the fence would be over at once."""
    assert house.hear(failure(occurred_at=NOW + ahead)).result is EventResult.RECORDED
    assert house.hear(failure(occurred_at=NOW + ahead, id="again")).result is EventResult.KNOWN
    assert house.looks()[0] == NOW
    now, happened = NOW + api_ahead, NOW + min(ahead, api_ahead)
    state = house.group()
    for _ in range(2):
        state = observe_health(group("a", 3), state, now, BackoffPolicy(), 15 * MINUTE) or GroupState()
        assert (state.failures, state.last_failure, state.backoff_until) == (1, happened, happened + 5 * MINUTE)
        assert state.announced == ()


def test_a_repeat_of_a_failure_from_the_future_is_no_second_failure(house: House) -> None:
    house.hear(failure(occurred_at=NOW + 60 * MINUTE))
    state = observe_health(group("a", 3), house.group(), NOW, BackoffPolicy(), 15 * MINUTE) or GroupState()
    house.store.save_group("demo", key("a"), state, house.store.load("demo").versions)
    house.clock.at += 10 * MINUTE
    house.hear(failure(occurred_at=NOW + 60 * MINUTE))
    state = observe_health(group("a", 3), house.group(), NOW + 11 * MINUTE, BackoffPolicy(), 15 * MINUTE)
    assert state is not None
    assert state.failures == 1


# ---------------------------------------------------------------- what a success has answered
def test_a_repeat_of_a_failure_that_a_success_has_answered_asks_for_no_look(house: House) -> None:
    house.hear(failure())
    state = house.group()
    house.store.save_group("demo", key("a"), replace(state, last_success=NOW), house.store.load("demo").versions)
    house.clock.at += 5 * MINUTE
    asked = house.looks()
    assert house.hear(failure(id="again")).result is EventResult.KNOWN
    assert house.looks() == asked


def test_a_repeat_of_one_that_no_success_has_answered_asks_for_a_look(house: House) -> None:
    house.hear(failure())
    house.clock.at += 5 * MINUTE
    assert house.hear(failure(id="again")).result is EventResult.KNOWN
    assert house.looks() == [NOW, NOW + 5 * MINUTE]


# ---------------------------------------------------------------- which cluster
def test_a_cluster_is_known_by_its_id_or_by_one_of_its_names() -> None:
    house = House(demo={"names": ["demo-mgmt"]}, other={})
    assert house.hear(called("demo-mgmt")).result is EventResult.RECORDED
    assert house.hear(called("other", id="event-2")).result is EventResult.RECORDED
    assert house.queue.clusters == ["demo", "other"]
    assert (house.group().failures, house.group(cluster="other").failures) == (1, 1)


def test_the_first_of_several_names_that_is_known_counts() -> None:
    house = House(demo={}, other={})
    house.hear(called("nobody", "other", "demo", name=None))
    assert house.queue.clusters == ["other"]


def test_an_id_goes_before_a_name() -> None:
    house = House(demo={}, other={"names": ["demo"]})
    house.hear(called("demo"))
    assert house.queue.clusters == ["demo"]


def test_where_two_clusters_share_a_name_both_are_looked_at_and_nothing_is_recorded() -> None:
    house = House(demo={"names": ["shared"]}, other={"names": ["shared"]})
    assert house.hear(called("shared")).result is EventResult.LOOKED
    assert house.queue.clusters == ["demo", "other"]
    assert house.group() is None


@pytest.mark.parametrize(
    "given", [failure(cluster="unknown"), failure(cluster="unknown", name=None), called("unknown"), called()]
)
def test_a_cluster_that_nobody_registered_is_explained_and_not_retried(house: House, given: Failure) -> None:
    heard = house.hear(given)
    assert heard.result is EventResult.IGNORED
    assert "no such cluster is registered" in heard.message
    assert house.queue.clusters == []


def test_an_unreadable_record_has_no_names_and_hides_no_other_cluster() -> None:
    house = House(demo={"names": ["one"]}, other={})
    house.store.plant("other", '{"names": 7}')
    assert house.hear(called("one")).result is EventResult.RECORDED
    assert house.hear(called("other", id="event-2")).result is EventResult.IGNORED
    assert "record of cluster other" in house.hear(failure(cluster="other")).message
    assert house.hear(called("other", name=None)).result is EventResult.IGNORED  # nor does it say whose events count


# ---------------------------------------------------------------- which group, and for how long
def test_a_failure_that_says_its_machine_api_is_recorded_for_that_one_alone() -> None:
    house = House(demo={"flavours": ["gardener", "cluster-api"]})
    house.hear(failure(flavour="cluster-api"))
    assert [one.flavour for one in house.store.load("demo").state.groups] == ["cluster-api"]


def test_a_machine_api_that_the_cluster_does_not_have_is_explained() -> None:
    heard = House().hear(failure(flavour="openshift"))
    assert heard.result is EventResult.IGNORED
    assert "openshift" in heard.message


@pytest.mark.parametrize(("zone", "minutes"), [("a", 1), ("b", 5)])
def test_a_pool_with_durations_of_its_own_has_them(zone: str, minutes: int) -> None:
    own = {"initial": 60, "longest": 120, "forget_after": 600}
    house = House(demo={"pools": [{"name": "workers", "min": 1, "max": 9, "backoff": own}]})
    adopt(house.store, "demo", [key("a"), key("c")], pool="workers")
    house.store.save_pool(
        "demo", ADOPTED, PoolState(adopted={str(key("b")): Bounds(1, 3)}), house.store.load("demo").versions
    )
    house.hear(failure(name=f"workers-{zone}", occurred_at=NOW))
    state = house.group(zone)
    assert state.backoff_until == NOW + minutes * MINUTE
    late = house.hear(failure(name=f"workers-{zone}", occurred_at=NOW - 11 * MINUTE, id="late"))
    assert (late.result is EventResult.KNOWN) == (zone == "a")


def test_a_pools_durations_are_not_those_of_another_namespaces_pool_of_the_name() -> None:
    pools = [{"name": "workers", "namespace": "elsewhere", "min": 1, "max": 9, "backoff": {"initial": 60}}]
    house = House(demo={"pools": pools})
    house.store.save_pool("demo", ADOPTED, PoolState(adopted={str(key("b")): None}), house.store.load("demo").versions)
    adopt(house.store, "demo", [key("a")], pool="workers")
    house.hear(failure(occurred_at=NOW))
    assert house.group().backoff_until == NOW + 5 * MINUTE


# ---------------------------------------------------------------- streams
def heard_in(order: list[tuple[int, int]], zones: str = "a") -> tuple[House, dict[str, list[timedelta]]]:
    """A house that hears failures (happened, heard), in seconds after NOW; and how long each backoff was on the way."""
    house = House()
    ends: dict[str, list[timedelta]] = {zone: [] for zone in zones}
    for number, (happened, at) in enumerate(order):
        zone = zones[happened % len(zones)]
        house.clock.at = NOW + at * SECOND
        house.hear(failure(name=f"workers-{zone}", occurred_at=NOW + happened * SECOND, id=f"{happened}-{number}"))
        state = house.group(zone)
        if state is not None and state.backoff_until is not None:
            ends[zone].append(state.backoff_until - NOW)
    return house, ends


@given(
    stream=st.lists(st.tuples(st.integers(0, 7000), st.lists(st.integers(0, 1500), max_size=3)), max_size=8),
    zones=st.sampled_from(["a", "ab"]),
)
@settings(deadline=None)
def test_permuted_doubled_and_late_events_lead_where_the_ordered_ones_lead(
    stream: list[tuple[int, list[int]]], zones: str
) -> None:
    """Each failure is heard at least once, up to 25 minutes late, in whatever order the delays make of it."""
    end = 8600  # all is heard by then, and nothing is forgotten yet
    ordered = [(happened, happened) for happened in sorted({happened for happened, _ in stream})]
    arrivals = [(happened, happened + delay) for happened, delays in stream for delay in (delays or [0])]
    arrivals.sort(key=lambda one: one[1])
    assert all(at <= end for _, at in arrivals)
    straight, _ = heard_in(ordered, zones)
    mixed, ends = heard_in(arrivals, zones)
    for zone in zones:
        expected, found = straight.group(zone), mixed.group(zone)
        if expected is None or found is None:
            assert expected is found
            continue
        assert (found.failures, found.last_failure) == (expected.failures, expected.last_failure)
        assert found.backoff_until >= expected.backoff_until
        assert ends[zone] == sorted(ends[zone])  # and on the way no event has made a backoff shorter


@given(stream=st.lists(st.integers(0, 7000), min_size=1, max_size=8), order=st.randoms())
@settings(deadline=None)
def test_every_order_of_one_stream_that_is_heard_at_once_leads_to_one_state(stream: list[int], order: Any) -> None:
    shuffled = [*stream, *stream]
    order.shuffle(shuffled)
    states = [heard_in([(one, 7000) for one in given])[0].group() for given in (sorted(stream), shuffled)]
    assert states[0].failures == states[1].failures
    assert states[0].reports == states[1].reports
