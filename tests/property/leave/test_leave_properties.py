"""Leaving a zone, whatever happens meanwhile: crashes, late and failing machines, autoscalers, other fences."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.leave.model import last_start
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import BUDGET, ConvergePolicy, Window
from evenkeel.domain.model.policy import Leave
from tests.builders import NOW
from tests.convergence import PlayedPool, convergence
from tests.parts import replace
from tests.stories import ConvergenceStory

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
        assert len(pool.going) == before or running > total  # its successor runs before a node is removed
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


@pytest.mark.parametrize(("hostile", "worlds"), [(True, 30), (False, 15)])
def test_no_node_goes_before_its_successor_runs_and_none_while_another_zone_fails(hostile: bool, worlds: int) -> None:
    stories = {seed: ConvergenceStory(seed, hostile=hostile, leaves=True) for seed in range(worlds)}
    assert {seed: wrong for seed, story in stories.items() if (wrong := story.play())} == {}
    assert sum(story.world.moved for story in stories.values()) > worlds / 2


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
