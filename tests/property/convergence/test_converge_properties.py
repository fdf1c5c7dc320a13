"""Converge, whatever happens meanwhile: crashes at every patch, hostile autoscalers, operators, zones' statements."""

from datetime import datetime, time, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import PASS_LASTS, ConvergePolicy, Window
from tests.builders import NOW
from tests.convergence import PlayedPool, convergence
from tests.parts import replace
from tests.stories import ConvergenceStory

counts = st.lists(st.integers(0, 6), min_size=2, max_size=4)


def _level(pool: PlayedPool) -> bool:
    return max(pool.requested) - min(pool.requested) < 2


@settings(max_examples=settings().max_examples // 3)  # each is played for hours
@given(counts, st.integers(0, 1), st.integers(0, 20))
def test_an_undisturbed_pool_converges_and_rests(nodes: list[int], surge: int, room: int) -> None:
    total = sum(nodes)
    maximum = max(total + room, len(nodes), 1)
    pool = PlayedPool(nodes, convergence(maximum=maximum, surge=surge, per_hour=60))
    for _ in range(200):
        running = pool.running
        pool.check(60)
        assert total <= sum(pool.requested) <= total + 1
        assert sum(pool.requested) <= maximum + surge
        gone = [before - after for before, after in zip(running, pool.running, strict=True) if after < before]
        assert not gone or sum(pool.running) >= total  # its successor runs before a node is removed
        pool.boot()
        pool.drain()
    assert sum(pool.requested) == total
    assert _level(pool) or maximum == total + surge == total
    assert pool.memory.step is None
    before = pool.state
    assert pool.check(60).changes == ()
    assert pool.state == before


@given(counts)
def test_announced_steps_are_carried_out(nodes: list[int]) -> None:
    pool = PlayedPool(nodes, convergence(maximum=sum(nodes) + 20, per_hour=60))
    announced: list[tuple[int, tuple[tuple[str, str], ...]]] = []  # after so many steps
    made: list[tuple[str, str]] = []
    for _ in range(120):
        reported = pool.check(60).convergence.report
        if reported is not None and not reported.begins:
            announced.append((len(made), reported.course))
        if reported is not None and reported.begins and reported.step is not None:
            announced.append((len(made), reported.course))
            made.append((reported.step.order.source[-1], reported.step.order.destination[-1]))
        pool.boot()
        pool.drain()
    assert _level(pool)
    for done, course in announced:
        assert course == tuple(made[done:])


def _is_open(window: Window, now: datetime) -> bool:
    for days in (0, 1):
        begins = datetime.combine(now.date() - timedelta(days=days), window.start, now.tzinfo)
        ends = datetime.combine(begins.date(), window.end or time(), now.tzinfo)
        ends += timedelta(days=ends <= begins)
        if begins <= now < ends and (not window.days or begins.weekday() in window.days):
            return True
    return False


times = st.times().map(lambda at: at.replace(second=0, microsecond=0))
windows = st.builds(
    Window, start=times, end=st.none() | times, days=st.frozensets(st.integers(0, 6), max_size=3)
).filter(lambda window: window.start != window.end)


@given(windows, st.integers(0, 20_000))
def test_a_window_opens_when_it_says(window: Window, later: int) -> None:
    assert Window.read(str(window)) == window
    now = NOW + timedelta(minutes=later)
    opens = window.begins(now)
    assert (opens == now) is _is_open(window, now)
    assert opens >= now
    assert _is_open(window, opens)
    closed = int((opens - now) / timedelta(minutes=1))
    assert not any(_is_open(window, opens - timedelta(minutes=early)) for early in range(1, closed, 13))


@given(st.lists(windows, min_size=1, max_size=3), st.integers(0, 20_000))
def test_the_next_of_several_windows_counts(each: list[Window], later: int) -> None:
    now = NOW + timedelta(minutes=later)
    assert ConvergePolicy(windows=tuple(each)).opens(now) == min(window.begins(now) or now for window in each)


@given(st.integers(0, 6), st.integers(0, 6))
def test_days_of_a_window_may_wrap_around_the_week(first: int, last: int) -> None:
    names = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    days = {first}
    while last not in days:
        days.add((max(days, key=lambda day: (day - first) % 7) + 1) % 7)
    assert Window.read(f"{names[first]}-{names[last]} 22:00-06:00").days == days


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), min_size=2, max_size=4))
def test_a_step_leads_from_the_fullest_zone_for_its_weight_to_the_emptiest(zones: list[tuple[int, int]]) -> None:
    pool = PlayedPool([nodes for nodes, _ in zones], convergence())
    found = dict(zip("abcd", [(nodes, Fraction(weight)) for nodes, weight in zones], strict=False))
    for zone, (_, weight) in found.items():
        pool.change(zone, weight=int(weight))
    pool.check()
    pool.check(601)
    step = pool.memory.step
    givers = {
        low: [each / its for each, its in found.values() if (nodes + 1) / weight <= (each - 1) / its]
        for low, (nodes, weight) in found.items()
    }
    lowest = min((nodes / weight for zone, (nodes, weight) in found.items() if givers[zone]), default=None)
    assert (step is None) is (lowest is None)
    if step is not None:
        nodes, weight = found[step.order.destination[-1]]
        assert nodes / weight == lowest
        nodes, weight = found[step.order.source[-1]]
        assert nodes / weight == max(givers[step.order.destination[-1]])


@given(st.integers(1, 600), st.integers(0, 600), st.integers(0, 1200))
def test_zones_have_to_differ_for_ten_minutes_since_they_were_last_level(differ: int, level: int, again: int) -> None:
    pool = PlayedPool((2, 2, 4))
    pool.check()
    pool.scale("c", 2)
    pool.check(differ)
    pool.scale("c", 4)
    pool.boot()
    pool.check(level)
    pool.check(again)
    assert (pool.memory.step is not None) is (again >= 600)


@given(st.integers(0, 12))
def test_a_requested_pass_ends_after_its_time(hours: int) -> None:
    asked = NOW - timedelta(hours=hours)
    pool = PlayedPool((0, 4, 5), replace(convergence(), level=Level.OFF, convergence_requested={"workers": asked}))
    pool.check()
    assert (pool.memory.step is not None) is (asked + PASS_LASTS > NOW)


@pytest.mark.parametrize(("hostile", "worlds"), [(True, 30), (False, 15)])
def test_runs_that_die_lose_no_node_and_drain_none_before_its_successor_runs(hostile: bool, worlds: int) -> None:
    stories = {seed: ConvergenceStory(seed, hostile=hostile) for seed in range(worlds)}
    assert {seed: wrong for seed, story in stories.items() if (wrong := story.play())} == {}
    assert sum(story.world.moved for story in stories.values()) > worlds / 2
