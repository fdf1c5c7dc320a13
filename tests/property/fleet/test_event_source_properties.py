"""With `scan_interval: auto`, at most one failure a week is found as late as by checks every five minutes."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenkeel.application.fleet.scan import Scan
from evenkeel.application.ports import sequentially
from evenkeel.application.rebalancing.events import Failure, Report
from evenkeel.domain.fleet.check_times import AUTO
from evenkeel.domain.fleet.event_source import (
    ALERT_FOR,
    DOUBTED_FOR,
    PROVEN_FOR,
    EventSource,
    after_check,
    after_event,
    rests_until,
)
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.states import GroupState
from tests.builders import MINUTE, key, refused, zones
from tests.fakes import NOW, FakeClock, InMemoryStore, plenty, register
from tests.parts import make
from tests.stack import NUMBERS, Stack

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


class TimedStack(Stack):
    """A cluster with its scans, checks, runs and events, at each second with an act."""

    def __init__(self, **fields: object) -> None:
        clock = FakeClock()
        store = InMemoryStore(clock=clock)
        register(store, pools=NUMBERS, **fields)
        super().__init__(zones((2, 2, 2), bounds=[(1, 9)] * 3), store=store, clock=clock)
        self.scan = Scan(store=store, queue=self.queue, clock=clock, together=sequentially)
        self.tick = clock.at
        self.checked: list[datetime] = []
        self.count = 0

    @property
    def is_resting(self) -> bool:
        steady = self.store.load("demo").steady
        return steady is not None and steady.is_resting(self.clock.at)

    def live(self, minutes: int) -> None:
        """Play the ticks of these minutes, with the checks and runs that they cause."""
        if self.clock.at >= self.tick + 2 * MINUTE:
            self.tick = self.clock.at.replace(second=0, microsecond=0)
        for _ in range(minutes):
            self.tick += MINUTE
            self.clock.at = max(self.clock.at, self.tick)
            self.queue.checks.clear()
            self.scan.tick(self.tick)
            for chunk in self.queue.checks:
                self.clock.at = max(self.clock.at, self.tick + chunk.delay * SECOND)
                self.check(chunk.clusters, plenty, chunk.rests)
                self.carry_out()
                self.checked.append(self.clock.at)

    def receive(self, zone: str, late: timedelta = timedelta(0), *, fails: bool, cluster: str = "demo") -> None:
        self.count += 1
        event = Failure(
            cluster=cluster,
            namespace="default",
            name=key(zone).name if zone else None,
            machine="workers-a-x7k2p",
            code="InsufficientInstanceCapacity",
            message="no room",
            occurred_at=self.clock.at - late,
            id=f"event-{self.count}",
            reports=Report.FAILURE if fails else Report.ARRIVAL,
        )
        self.record_failure(event)
        self.carry_out()

    def break_down(self, zone: str) -> None:
        """Let the autoscaler order a machine that the cloud refuses now."""
        group = self.cluster.groups[key(zone)]
        wanting = refused(replace(group, requested=group.running + 1), NOW - self.clock.at)
        self.cluster.change(key(zone), requested=wanting.requested, machines=wanting.machines)

    def repair(self, zone: str) -> None:
        self.cluster.change(key(zone), requested=self.cluster.groups[key(zone)].running, machines=None)

    def has_seen(self, zone: str, since: datetime) -> bool:
        state = self.state.groups.get(key(zone))
        return state is not None and state.failure.last_failure is not None and state.failure.last_failure >= since

    def settle(self) -> None:
        """Let all effects of failures end, with the runs that delete their states."""
        self.clock.at += 2 * timedelta(days=1) + 4 * HOUR
        self.live(17)

    def prove(self) -> None:
        self.receive("a", fails=False)
        self.live(35)


# The arrival of a failure's event: in time, two minutes late, never, or only for group a.
arrivals = st.sampled_from(["in time", "late", "never", "of a only"])
stories = st.lists(
    st.tuples(arrivals, st.sampled_from("abc"), st.integers(0, 299), st.booleans()), min_size=1, max_size=4
)


def arrives(how: str, zone: str) -> bool:
    return how == "in time" or (how == "of a only" and zone == "a")


def live_through(stack: TimedStack, how: str, zone: str, second: int) -> timedelta:
    """Let a group fail, and return the time until Evenkeel has read the failure."""
    stack.live(5 + second // 60)
    stack.clock.at += second % 60 * SECOND
    failed = stack.clock.at
    stack.break_down(zone)
    if arrives(how, zone):
        stack.clock.at += 2 * SECOND
        stack.receive(zone, 2 * SECOND, fails=True)
        return stack.clock.at - failed
    for _ in range(8):
        if stack.has_seen(zone, failed):
            return stack.clock.at - failed
        stack.live(1)
        if how == "late" and stack.clock.at - failed > 1.5 * MINUTE and not stack.has_seen(zone, failed):
            stack.receive(zone, stack.clock.at - failed, fails=True)
    raise AssertionError("never seen")


# A check each minute is at the same second of each minute.
PROMPT = MINUTE


@example([("never", "b", 0, True), ("of a only", "b", 0, True), ("in time", "a", 0, True)])
@example([("late", "a", 0, True), ("late", "c", 100, True)])
@example([("late", "a", 200, True), ("late", "c", 30, True)])
@example([("late", "a", 240, True), ("never", "c", 0, True)])
@settings(max_examples=15)
@given(stories)
def test_at_most_one_failure_a_week_is_seen_late_whatever_events_do(story: list[tuple[str, str, int, bool]]) -> None:
    stack, late = TimedStack(), list[datetime]()
    stack.live(20)
    for how, zone, second, proves in story:
        if proves:
            stack.prove()
        rested = stack.is_resting
        assert not (rested and late and stack.clock.at < late[-1] + DOUBTED_FOR)
        took = live_through(stack, how, zone, second)
        assert took <= (5 * MINUTE if rested else PROMPT)
        if took > PROMPT:
            assert all(stack.clock.at >= at + DOUBTED_FOR for at in late)
            late.append(stack.clock.at)
        assert not stack.is_resting
        stack.repair(zone)
        stack.checked.clear()
        stack.live(3)
        assert len(stack.checked) >= 3, "checked every minute again, at once"
        stack.settle()


@settings(max_examples=10)
@given(story=stories)
def test_without_a_proven_source_nothing_changes(story: list[tuple[str, str, int, bool]]) -> None:
    seen = {}
    for interval in ("auto", 60):
        stack = TimedStack(scan_interval=interval)
        stack.live(20)
        times = []
        for _, zone, second, _ in story:
            times.append(live_through(stack, "never", zone, second))
            stack.repair(zone)
            stack.settle()
        seen[interval] = times
    assert seen["auto"] == seen[60]


def test_a_source_that_stops_is_found_out_by_its_first_missing_event() -> None:
    stack = TimedStack()
    stack.live(20)
    stack.prove()
    assert stack.is_resting
    stack.checked.clear()
    stack.live(30)
    assert len(stack.checked) == 6
    assert "; checked every 5 min: events proven 1 hour ago" in stack.ask("status")["message"]
    assert live_through(stack, "never", "b", 1) > PROMPT
    stack.repair("b")
    stack.settle()
    stack.prove()
    assert not stack.is_resting
    assert "; checked every minute: no event in time for a failure 2 days ago" in stack.ask("status")["message"]
    stack.clock.at += timedelta(days=5)
    stack.live(17)
    stack.prove()
    assert stack.is_resting


@pytest.mark.parametrize("what", ["proof ends", "failure", "machine", "pause", "register", "order"])
def test_a_rest_ends_at_once(what: str) -> None:
    stack = TimedStack()
    stack.live(20)
    stack.prove()
    assert stack.is_resting
    match what:
        case "proof ends":
            stack.clock.at += timedelta(hours=24)
        case "failure":
            stack.receive("c", fails=True)
        case "machine":  # the event may precede the machine's status
            stack.receive("", fails=True)
        case "pause":
            stack.ask("pause")
        case "register":
            stack.ask("register", record={"flavours": ["cluster-api"], "access": stack.record.access.model_dump()})
        case "order":
            stack.cluster.change(key("a"), requested=5)
            stack.live(5)
    stack.checked.clear()
    stack.live(5)
    assert len(stack.checked) == 5


@pytest.mark.parametrize(("zone", "minutes"), [("a", -60), ("a", -2), ("a", 2), ("a", 60), ("x", 0), ("workers", 0)])
def test_an_event_of_another_time_or_of_an_unknown_group_proves_nothing(zone: str, minutes: int) -> None:
    stack = TimedStack()
    stack.live(20)
    stack.receive(zone, minutes * MINUTE, fails=False)
    stack.live(35)
    assert not stack.is_resting


def test_all_sources_of_a_fleet_may_stop_at_one_moment() -> None:
    """Every cluster is checked each minute again within five minutes of the first tick after the proofs' end."""
    stack = TimedStack()
    stack.live(20)
    stack.prove()
    stack.live(24 * 60)
    assert not stack.is_resting
    stack.checked.clear()
    stack.live(5)
    assert len(stack.checked) == 5


keys = st.sampled_from([key(zone) for zone in "abc"])
offsets = st.integers(-400, 400).map(lambda hours: hours * HOUR) | st.integers(-200, 200).map(lambda s: s * SECOND)
sources = st.builds(
    EventSource,
    proven_at=st.none() | offsets.map(lambda offset: NOW + offset),
    missed_at=st.none() | offsets.map(lambda offset: NOW + offset),
    missed_group=st.sampled_from(["", str(key("a"))]),
)


@given(source=sources, event=st.none() | offsets)
def test_a_rest_needs_a_proof_of_the_last_day_and_no_doubt(source: EventSource, event: timedelta | None) -> None:
    until = rests_until(AUTO, source, None if event is None else NOW + event, NOW)
    if until is None:
        return
    assert source.proven_at is not None
    assert NOW < until == source.proven_at + PROVEN_FOR <= NOW + PROVEN_FOR + 30 * SECOND
    assert source.missed_at is None or source.missed_at + DOUBTED_FOR <= NOW
    assert event is None or NOW + event + ALERT_FOR <= NOW


@given(source=sources, group=keys, delay=offsets, fails=st.booleans())
def test_an_event_proves_only_in_time(source: EventSource, group: GroupKey, delay: timedelta, fails: bool) -> None:
    after = after_event(source, group, NOW - delay, NOW, is_failure=fails)
    if after.proven_at != source.proven_at:
        assert abs(delay) <= 30 * SECOND
        assert after.proven_at == NOW
    if source.is_doubted(NOW) and not after.is_doubted(NOW):
        assert source.missed_group == str(group)
    assert after_event(after, group, NOW - delay, NOW, is_failure=fails) == after, "a repeat changes nothing"
    assert after_event(source, None, NOW - delay, NOW, is_failure=False) == source


failing = st.dictionaries(
    keys,
    st.builds(
        make,
        st.just(GroupState),
        last_failure=st.none() | st.just(NOW - 10 * SECOND),
        failure_class=st.sampled_from(FailureClass),
    ),
)


@given(source=sources, changed=failing, event=st.none() | offsets)
def test_a_failure_without_an_event_disproves(
    source: EventSource, changed: Mapping[GroupKey, GroupState], event: timedelta | None
) -> None:
    last = None if event is None else NOW + event
    after = after_check(source, {}, changed, last, NOW)
    failures = [state.failure for state in changed.values() if state.failure.last_failure]
    found = [failure for failure in failures if failure.failure_class is not FailureClass.TIMEOUT]
    announced = last is not None and last >= NOW - MINUTE
    if found and not announced and source.proven_at is not None:
        assert rests_until(AUTO, after, None, NOW) is None
    else:
        assert after == source
    assert after_check(after, {}, changed, last, NOW) == after
    assert after_check(source, changed, changed, last, NOW) == source, "a failure that is known is no news"
