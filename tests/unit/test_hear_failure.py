"""Hearing failures: what is recorded, what only asks for a look, and that no order of events does harm."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.errors import QueueUnavailableError
from evenkeel.application.failure import Failure, HearFailure, Verdict
from evenkeel.domain.backoff import GroupState
from evenkeel.domain.model import Bounds, PoolId
from evenkeel.domain.pools import PoolState
from tests.builders import key
from tests.fakes import NOW, FakeClock, FakeQueue, InMemoryStore, record

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


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


class House:
    """Registered clusters, and hearing with every port in memory."""

    def __init__(self, **records: dict[str, Any]) -> None:
        self.store = InMemoryStore()
        self.queue = FakeQueue()
        self.clock = FakeClock()
        for cluster, fields in (records or {"demo": {}}).items():
            self.store.save_record(record(cluster, **fields), None)
        self.hear = HearFailure(store=self.store, queue=self.queue, clock=self.clock)

    def group(self, zone: str = "a", cluster: str = "demo") -> GroupState | None:
        return self.store.load(cluster).state.groups.get(key(zone))


# ---------------------------------------------------------------- a look is enough
@pytest.mark.parametrize("given", [failure(name=None, machine="workers-a-5b6f7-x7k2p"), called("demo", name=None)])
def test_a_failure_that_is_tied_to_no_group_asks_for_a_look_and_records_nothing(given: Failure) -> None:
    house = House()
    heard = house.hear(given)
    assert heard.verdict is Verdict.LOOKED
    assert "demo" in heard.message
    assert house.queue.clusters == ["demo"]
    assert house.store.load("demo").state.groups == {}


def test_a_storm_of_such_failures_asks_for_a_look_now_and_again_not_for_one_each() -> None:
    house = House()
    for number in range(600):
        house.clock.at = NOW + number * SECOND / 10
        house.hear(failure(name=None, machine="m", id=str(number), occurred_at=house.clock.at))
    assert house.queue.clusters == ["demo"] * 3
    assert len({reason for _, reason in house.queue.requests.values()}) == 1


def test_what_happened_before_the_last_scans_is_no_reason_to_look() -> None:
    house = House()
    assert house.hear(failure(name=None, occurred_at=NOW - 61 * MINUTE)).verdict is Verdict.KNOWN
    assert house.queue.clusters == []


def test_a_look_that_could_not_be_asked_for_is_asked_for_when_the_event_is_tried_again() -> None:
    house = House()
    house.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        house.hear(failure(name=None))
    house.queue.broken = None
    assert house.hear(failure(name=None)).verdict is Verdict.LOOKED


@pytest.mark.parametrize("later", [None, NOW - 10 * SECOND])
def test_so_it_is_where_the_failure_was_recorded_already(later: datetime | None) -> None:
    house = House()
    house.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        house.hear(failure())
    if later is not None:  # nor could the look be asked for when another failure was heard meanwhile
        with pytest.raises(QueueUnavailableError):
            house.hear(failure(occurred_at=later, id="event-2"))
    house.queue.broken = None
    assert house.hear(failure()).verdict is Verdict.KNOWN
    assert house.queue.clusters == ["demo"]


# ---------------------------------------------------------------- which cluster
def test_a_cluster_is_known_by_its_id_or_by_one_of_its_names() -> None:
    house = House(demo={"names": ["demo-mgmt"]}, other={})
    assert house.hear(called("demo-mgmt")).verdict is Verdict.RECORDED
    assert house.hear(called("other", id="event-2")).verdict is Verdict.RECORDED
    assert house.queue.clusters == ["demo", "other"]
    assert (house.group().failures, house.group(cluster="other").failures) == (1, 1)  # type: ignore[union-attr]


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
    assert house.hear(called("shared")).verdict is Verdict.LOOKED
    assert house.queue.clusters == ["demo", "other"]
    assert house.group() is None


@pytest.mark.parametrize(
    "given", [failure(cluster="unknown"), failure(cluster="unknown", name=None), called("unknown"), called()]
)
def test_a_cluster_that_nobody_registered_is_explained_and_not_retried(given: Failure) -> None:
    house = House()
    heard = house.hear(given)
    assert heard.verdict is Verdict.IGNORED
    assert "no such cluster is registered" in heard.message
    assert house.queue.clusters == []


def test_an_unreadable_record_has_no_names_and_hides_no_other_cluster() -> None:
    house = House(demo={"names": ["one"]}, other={})
    house.store.plant("other", '{"names": 7}')
    assert house.hear(called("one")).verdict is Verdict.RECORDED
    assert house.hear(called("other", id="event-2")).verdict is Verdict.IGNORED
    assert house.hear(called("other", name=None)).verdict is Verdict.LOOKED  # the look says what is wrong with it


# ---------------------------------------------------------------- which group, and for how long
def test_a_failure_that_says_its_machine_api_is_recorded_for_that_one_alone() -> None:
    house = House(demo={"flavours": ["gardener", "cluster-api"]})
    house.hear(failure(flavour="cluster-api"))
    assert [one.flavour for one in house.store.load("demo").state.groups] == ["cluster-api"]


def test_a_machine_api_that_the_cluster_does_not_have_is_explained() -> None:
    heard = House().hear(failure(flavour="openshift"))
    assert heard.verdict is Verdict.IGNORED
    assert "openshift" in heard.message


@pytest.mark.parametrize(("zone", "minutes"), [("a", 1), ("b", 5)])
def test_a_pool_with_durations_of_its_own_has_them(zone: str, minutes: int) -> None:
    own = {"initial": 60, "longest": 120, "forget_after": 600}
    house = House(demo={"pools": [{"name": "workers", "min": 1, "max": 9, "backoff": own}]})
    members = {str(key("a")): Bounds(1, 3), str(key("c")): None}
    house.store.save_pool("demo", PoolId("cluster-api", "default", "", "workers"), PoolState(adopted=members), None)
    house.hear(failure(name=f"workers-{zone}", occurred_at=NOW))
    state = house.group(zone)
    assert state is not None
    assert state.backoff_until == NOW + minutes * MINUTE
    late = house.hear(failure(name=f"workers-{zone}", occurred_at=NOW - 11 * MINUTE, id="late"))
    assert (late.verdict is Verdict.KNOWN) == (zone == "a")


def test_a_pools_durations_are_not_those_of_another_namespaces_pool_of_the_name() -> None:
    pools = [{"name": "workers", "namespace": "elsewhere", "min": 1, "max": 9, "backoff": {"initial": 60}}]
    house = House(demo={"pools": pools})
    adopted = PoolState(adopted={str(key("a")): None})
    house.store.save_pool("demo", PoolId("cluster-api", "default", "", "workers"), adopted, None)
    house.hear(failure(occurred_at=NOW))
    assert house.group().backoff_until == NOW + 5 * MINUTE  # type: ignore[union-attr]


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
        assert expected.backoff_until is not None
        assert found.backoff_until is not None
        assert found.backoff_until >= expected.backoff_until
        assert ends[zone] == sorted(ends[zone])  # and on the way no event has made a backoff shorter


@given(stream=st.lists(st.integers(0, 7000), min_size=1, max_size=8), order=st.randoms())
@settings(deadline=None)
def test_every_order_of_one_stream_that_is_heard_at_once_leads_to_one_state(stream: list[int], order: Any) -> None:
    shuffled = [*stream, *stream]
    order.shuffle(shuffled)
    states = [heard_in([(one, 7000) for one in given])[0].group() for given in (sorted(stream), shuffled)]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0].failures == states[1].failures
    assert states[0].reports == states[1].reports
