"""Leaving a zone, whatever happens in between: crashes, late and failing machines, autoscalers, other fences."""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.leave.model import last_start
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import BUDGET, ConvergePolicy, Window
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.states import ClusterState
from tests.builders import NOW
from tests.convergence import PlayedPool, convergence, happenings, play_with_deaths
from tests.parts import replace

counts = st.lists(st.integers(0, 4), min_size=2, max_size=4)
rates = st.none() | st.integers(1, 4)
LEAVE = Leave(zone="a", at=NOW)


def leaving(nodes: Sequence[int], maximum: int, rate: int | None, **fields: object) -> PlayedPool:
    policy = convergence(maximum=maximum, level=Level.OFF, **{"per_hour": 3, **fields})
    return PlayedPool(nodes, replace(policy, leave=replace(LEAVE, per_hour=rate)))


@settings(max_examples=settings().max_examples // 5)  # each is played for hours
@given(counts, rates, st.integers(0, 1), st.integers(0, 5))
def test_an_undisturbed_leave_empties_the_zone_at_its_rate_and_rests(
    nodes: list[int], rate: int | None, surge: int, room: int
) -> None:
    total, maximum = sum(nodes), max(sum(nodes) + room, 1)
    pool = leaving(nodes, maximum, rate, surge=surge)
    begun = set()
    for _ in range(nodes[0] * 65 + 20):
        running, before = sum(pool.running), len(pool.going)
        pool.check(60)
        assert total <= sum(pool.requested) <= min(total + 1, maximum + surge)
        assert pool.requested[0] <= nodes[0]
        assert len(pool.going) == before or running > total  # its successor runs before a node goes
        begun |= set(pool.memory.begun)
        pool.boot()
        pool.drain()
    starts = sorted(begun)
    assert all(sum(at - BUDGET < each <= at for each in starts) <= min(rate or 3, 3) for at in starts)
    is_stuck = maximum + surge == total
    assert (pool.requested[0], sum(pool.requested)) == (nodes[0] if is_stuck else 0, total)
    assert len(starts) == (0 if is_stuck else nodes[0])
    before = pool.state
    assert pool.check(60).changes == ()
    assert pool.state == before


@given(counts, rates, happenings(1800, "back"))
def test_no_node_goes_before_its_successor_runs_and_none_while_another_zone_fails(
    nodes: list[int], rate: int | None, happens: list[tuple[str, int, int]]
) -> None:
    maximum = sum(nodes) + 3
    pool = leaving(nodes, maximum, rate)
    pool.check()
    for what, number, seconds in happens:
        if what == "back":
            pool.policy = replace(pool.policy, leave=None if pool.policy.leave else LEAVE)
            continue
        steps = pool.memory.begun
        pool.happens(what, number, seconds)
        assert sum(pool.requested) <= maximum
        fails = any(each.state is State.FENCED for each in pool.last.groups if each.group.identity.zone != "a")
        assert not (fails and pool.policy.leave and set(pool.memory.begun) - set(steps))
    # Left alone from here on, it ends: the zone is empty, and once the leave has ended, every step is over.
    pool.state = ClusterState(
        pools={
            id: replace(each, convergence=replace(each.convergence, held_until=None))
            for id, each in pool.state.pools.items()
        }
    )
    pool.policy = replace(pool.policy, leave=LEAVE)
    pool.live(200 + 25 * pool.requested[0])
    assert pool.requested[0] == 0 or pool.memory.held_until is not None
    pool.policy = replace(pool.policy, leave=None)
    pool.live(20)
    assert pool.memory.step is None


@settings(max_examples=settings().max_examples // 3)
@given(counts, st.integers(0, 9), st.integers(0, 3), st.booleans())
def test_a_run_that_dies_changes_no_result(nodes: list[int], at: int, patches: int, closes: bool) -> None:
    calm, crashed = (leaving(nodes, 60, None, per_hour=60) for _ in range(2))
    play_with_deaths(calm, crashed, 60, at=at, patches=patches, closes=closes)
    assert sum(crashed.requested) == sum(calm.requested) == sum(nodes)
    assert (crashed.requested[0], crashed.memory.step) == (0, None)


hours = st.integers(0, 23)
windows = st.lists(
    st.builds(
        lambda start, length: Window.read(f"{start:02}:00-{(start + length) % 24:02}:00"), hours, st.integers(1, 23)
    ),
    max_size=2,
)


@given(st.integers(0, 30), st.integers(1, 5), windows)
def test_the_forecast_is_the_time_of_the_last_start(nodes: int, rate: int, opens: list[Window]) -> None:
    policy, starts, now = ConvergePolicy(per_hour=rate, windows=tuple(opens)), [], NOW
    while len(starts) < nodes:
        if policy.opens(now) == now and sum(now - at < BUDGET for at in starts) < rate:
            starts.append(now)
        else:
            now += timedelta(minutes=60)
    assert last_start(nodes, policy, NOW) == (starts[-1] if starts else NOW)
