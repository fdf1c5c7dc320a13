"""Released nodes are ordered once, by an autoscaler that recovers at any moment or by runs that die at any step."""

from collections.abc import Callable
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.water_fill import water_fill
from evenkeel.domain.rebalancing.health.backoff import record_failure
from tests.builders import key
from tests.crashing import How, Life
from tests.workloads import pods
from tests.world import SERVING, World

Deaths = dict[int, tuple[int, How]]
RECORD = {"autoscaler": "cluster-autoscaler", "demand": "off"}
STEP, LOOP = timedelta(seconds=5), timedelta(seconds=10)


class Outage(World):
    """Zone a has three replicas without nodes, for which three pods wait.

    The autoscaler does not run until ``recovers``. Each of its writes takes ``in_flight``, and sets the loop's number.
    It counts only its own orders.
    """

    def __init__(self, recovers: timedelta, in_flight: timedelta, max_step: int | None = None) -> None:
        given = {**SERVING, **RECORD, "nodes": (1, 2, 2), "maximum": 12, "takes": timedelta(seconds=30)}
        super().__init__(pods=pods(3, "w", cpu="3"), max_step=max_step, **given)
        self.max_step = max_step
        self.recovers, self.in_flight = recovers, in_flight
        self.cluster.change(key("a"), requested=4)
        failed = record_failure(GroupState(), self.clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
        self.store.save_group("demo", key("a"), failed, None)
        self.limit = self.most = sum(self.requested().values())
        self.refusing, self.waited = {"a"}, 3
        self.landing: list[tuple[timedelta, Callable[[], None]]] = []
        self.open_orders: list[int] = []
        self.next_loop = timedelta(0)

    def live_on(self, time: timedelta = STEP) -> None:
        """Let time pass: machines join, writes of the autoscaler take effect, and its loops decide."""
        assert self.max_step is None or self.runs[-1] <= self.max_step
        self.pass_time(time)
        served = self.waited - len(self.waiting())
        self.waited -= served
        while served and self.open_orders:
            served -= 1
            self.open_orders.pop()
        landing, self.landing = self.landing, [each for each in self.landing if each[0] > self.age()]
        for due, land in landing:
            if due <= self.age():
                land()
        if self.age() >= self.next_loop:
            self.next_loop = self.age() + LOOP
            if self.age() >= self.recovers:
                self._loop()
        self.most = max(self.most, sum(self.requested().values()))

    def _loop(self) -> None:
        groups = [group for group in self.cluster.groups.values() if group.bounds is not None]
        room = [max(0, group.bounds.max - group.requested) if group.bounds else 0 for group in groups]
        wanted = max(0, len(self.waiting()) - len(self.open_orders))
        shares = water_fill(wanted, [group.requested for group in groups], room)
        for group, more in zip(groups, shares, strict=True):
            if more:
                self.open_orders += [1] * more
                self._write(group.key, group.requested + more)

    def _write(self, group: object, size: int) -> None:
        def land() -> None:
            self.cluster.change(group, requested=size)

        self.landing.append((self.age() + self.in_flight, land))


def play(outage: Outage, deaths: Deaths, unread: set[int], checks: int = 60) -> None:
    """Play a run every five seconds, of which some die. In some checks the pods cannot be read."""
    for number in range(checks):
        outage.unread = ClusterUnavailableError("away") if number in unread else None
        at, how = deaths.get(number, (None, How.BEFORE))
        outage.run(Life(at=at, how=how))
        outage.live_on()
        assert outage.most <= outage.limit, f"{outage.most} requested after {outage.age()}"


STEPS = st.none() | st.integers(1, 4)
SECONDS = st.integers(0, 100).map(lambda seconds: timedelta(seconds=seconds))
DEATHS = st.dictionaries(
    st.integers(0, 25), st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST])), max_size=3
)


@settings(max_examples=20)
@given(SECONDS, st.integers(0, 9), DEATHS, st.sets(st.integers(6, 30), max_size=4), STEPS)
def test_released_replicas_are_ordered_once_and_pods_run(
    recovers: timedelta, in_flight: int, deaths: Deaths, unread: set[int], max_step: int | None
) -> None:
    outage = Outage(recovers, timedelta(seconds=in_flight), max_step)
    play(outage, deaths, unread)
    assert outage.waiting() == []


@settings(max_examples=10)
@given(DEATHS, st.sets(st.integers(6, 30), max_size=4), STEPS)
def test_evenkeel_orders_all_while_the_autoscaler_is_away(
    deaths: Deaths, unread: set[int], max_step: int | None
) -> None:
    outage = Outage(timedelta(days=1), timedelta(0), max_step)
    play(outage, deaths, unread)
    assert outage.waiting() == []
    assert sum(outage.requested().values()) == outage.limit


def stop(outage: Outage, way: str) -> None:
    stored = outage.store.load("demo")
    record, control = stored.record, stored.control
    match way:
        case "cluster paused":
            control = control.model_copy(update={"paused": True})
        case "pool paused":
            control = control.model_copy(update={"paused_pools": {"workers": None}})
        case _:
            record = record.model_copy(update={"dry_run": True})
    outage.store.save_record(record, control, stored.versions)


@settings(max_examples=20)
@given(DEATHS, st.integers(0, 22), st.sampled_from(["cluster paused", "pool paused", "dry run"]), STEPS)
def test_a_stop_gives_the_autoscaler_its_room_back(deaths: Deaths, stops: int, way: str, max_step: int | None) -> None:
    outage = Outage(timedelta(days=1), timedelta(0), max_step)
    play(outage, {}, set(), checks=3)
    for number in range(30):
        if number == stops:
            stop(outage, way)
        at, how = deaths.get(number, (None, How.BEFORE))
        outage.run(Life(at=at, how=how))
        outage.live_on()
    maxima = [group.bounds.max for group in outage.cluster.groups.values() if group.bounds is not None]
    assert sum(maxima) == 12
    (pool,) = outage.store.load("demo").state.pools.values()
    assert pool.closed_at is None
