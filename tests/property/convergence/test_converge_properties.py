"""Converge, whatever happens in between: crashes at every patch, hostile autoscalers, words about zones, people."""

from collections.abc import Callable
from datetime import datetime, time, timedelta
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import PASS_LASTS, ConvergePolicy, Deleting, Draining, Window
from evenkeel.domain.model.states import ClusterState
from tests.builders import NOW
from tests.convergence import Home, convergence
from tests.converging import crash
from tests.parts import replace

counts = st.lists(st.integers(0, 6), min_size=2, max_size=4)


def _live(home: Home, minutes: int) -> None:
    for _ in range(minutes):
        home.look(60)
        home.boot()
        home.drain()


def _level(home: Home) -> bool:
    return max(home.requested) - min(home.requested) < 2


@settings(max_examples=settings().max_examples // 3)  # each is played for hours
@given(counts, st.integers(0, 1), st.integers(0, 20))
def test_an_undisturbed_pool_converges_and_rests(nodes: list[int], surge: int, room: int) -> None:
    total = sum(nodes)
    maximum = max(total + room, len(nodes), 1)
    home = Home(nodes, convergence(maximum=maximum, surge=surge, per_hour=60))
    for _ in range(200):
        running = home.running
        home.look(60)
        assert total <= sum(home.requested) <= total + 1
        assert sum(home.requested) <= maximum + surge
        gone = [before - after for before, after in zip(running, home.running, strict=True) if after < before]
        assert not gone or sum(home.running) >= total  # its successor runs before a node goes
        home.boot()
        home.drain()
    assert sum(home.requested) == total
    assert _level(home) or maximum == total + surge == total
    assert home.memory.step is None
    before = home.state
    assert home.look(60).changes == ()
    assert home.state == before


@given(counts)
def test_announced_steps_are_carried_out(nodes: list[int]) -> None:
    home = Home(nodes, convergence(maximum=sum(nodes) + 20, per_hour=60))
    announced: list[tuple[int, tuple[tuple[str, str], ...]]] = []  # after so many steps
    made: list[tuple[str, str]] = []
    for _ in range(120):
        told = home.look(60).convergence.report
        if told is not None and not told.begins:
            announced.append((len(made), told.course))
        if told is not None and told.begins and told.step is not None:
            announced.append((len(made), told.course))
            made.append((told.step.order.source[-1], told.step.order.destination[-1]))
        home.boot()
        home.drain()
    assert _level(home)
    for done, course in announced:
        assert course == tuple(made[done:])


WHAT = ["look", "look", "look", "die", "unclosed", "boot", "boot", "drain", "fail", "word", "well", "grow", "shrink"]
happenings = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 3), st.integers(1, 1200)), max_size=60)


class _Hostile:
    def __init__(self, home: Home) -> None:
        self.home = home
        self.others = 0  # what others have added to what is requested

    def play(self, what: str, number: int, seconds: int) -> None:
        home = self.home
        zone = list(home.groups)[number % len(home.groups)]
        plays: dict[str, Callable[[], object]] = {
            "look": lambda: home.look(seconds),
            "die": lambda: home.look(seconds, dies_after=number % 2),
            "unclosed": lambda: home.look(seconds, closes=False),
            "boot": lambda: home.boot(zone),
            "drain": lambda: home.drain(zone),
            "fail": lambda: home.fail(zone),
            "word": lambda: self.words({zone: home.now + timedelta(seconds=seconds)}),
            "well": lambda: self.words({}),
            "grow": lambda: self.scale(zone, 1),
            "shrink": lambda: self.scale(zone, -1),
        }
        plays[what]()

    def words(self, zones: dict[str, datetime]) -> None:
        self.home.state = replace(self.home.state, zones=zones)

    def scale(self, zone: str, more: int) -> None:
        low, high = self.home.bounds(zone)
        before = self.home.groups[zone].requested
        after = min(max(before + more, low), high)
        self.others += after - before
        self.home.scale(zone, after)


@given(counts, st.integers(0, 1), happenings)
def test_no_node_is_drained_before_its_successor_runs(
    nodes: list[int], surge: int, happens: list[tuple[str, int, int]]
) -> None:
    maximum = sum(nodes) + 3
    home = Home(nodes, convergence(maximum=maximum, surge=surge, per_hour=60))
    hostile = _Hostile(home)
    home.look()
    for what, number, seconds in happens:
        before, given_before = home.running, _leaving(home)
        hostile.play(what, number, seconds)
        ours = what in ("look", "die", "unclosed")
        if ours:
            # A look takes away one running node at most, and only where another zone has one more than it began with.
            assert len(_leaving(home) - given_before) <= 1
            if _leaving(home) - given_before:
                step = home.memory.step
                assert isinstance(step, Deleting | Draining)
                destination = next(each for each in home.groups.values() if str(each.key) == step.order.destination)
                runs = before[list(home.groups.values()).index(destination)]
                assert runs >= step.order.target_replicas
        assert sum(home.requested) <= maximum + surge
    # Left alone from here on, it comes to an end.
    hostile.words({})
    home.state = ClusterState(pools=home.state.pools)
    _live(home, 60)
    home.policy = replace(home.policy, level=Level.OFF)
    _live(home, 20)
    assert home.memory.step is None
    assert home.state.pools
    assert all(pool.move is None for pool in home.state.pools.values())


def _leaving(home: Home) -> set[str]:
    return {each.name for zone in home.groups for each in home.machines(zone) if each.deleting and each.has_node}


@settings(max_examples=settings().max_examples // 3)
@given(counts, st.integers(0, 9), st.integers(0, 3), st.booleans())
def test_a_run_that_dies_in_a_step_changes_no_result(nodes: list[int], at: int, patches: int, closes: bool) -> None:
    calm, crashed = (Home(nodes, convergence(per_hour=60)) for _ in range(2))
    for number in range(150):
        for home in (calm, crashed):
            if home is crashed and number % 10 == at:
                home.look(30, dies_after=patches, closes=closes)
                home.look(30)
            else:
                home.look(60)
            home.boot()
            home.drain()
    assert sum(crashed.requested) == sum(calm.requested) == sum(nodes)
    assert _level(crashed)
    assert crashed.memory.step is None


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
    home = Home([nodes for nodes, _ in zones], convergence())
    found = dict(zip("abcd", [(nodes, Fraction(weight)) for nodes, weight in zones], strict=False))
    for zone, (_, weight) in found.items():
        home.change(zone, weight=int(weight))
    home.look()
    home.look(601)
    step = home.memory.step
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
    home = Home((2, 2, 4))
    home.look()
    home.scale("c", 2)
    home.look(differ)
    home.scale("c", 4)
    home.boot()
    home.look(level)
    home.look(again)
    assert (home.memory.step is not None) is (again >= 600)


@given(st.integers(0, 12))
def test_a_requested_pass_ends_after_its_time(hours: int) -> None:
    asked = NOW - timedelta(hours=hours)
    home = Home((0, 4, 5), replace(convergence(), level=Level.OFF, convergence_requested={"workers": asked}))
    home.look()
    assert (home.memory.step is not None) is (asked + PASS_LASTS > NOW)


def test_runs_that_die_beside_an_autoscaler_lose_no_node() -> None:
    assert {seed: wrong for seed in range(30) if (wrong := +crash(seed, hostile=True).wrong)} == {}
