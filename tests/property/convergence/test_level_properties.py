"""Level shrink: the nodes that zones keep while others are removed, for how long, and with an autoscaler."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.convergence.level import LEVEL_HELD, RESTS, level_minima
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.drafts import Draft
from evenkeel.domain.model.groups import PoolId, State
from evenkeel.domain.model.states import MemberSnapshot, PoolState
from tests.builders import NOW, Played, group, numbers, zones
from tests.parts import replace
from tests.property.worlds import World, pools

LEVELLED = replace(numbers(0, 60), level=Level.SHRINK)
POOL_ID = PoolId("cluster-api", "default", "", "workers")
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=5)


def _drafts(requested: Sequence[int], weights: Sequence[int] = ()) -> list[Draft]:
    return [
        Draft(group("abcde"[i], nodes, weight=weights[i] if weights else 1), State.HEALTHY, nodes, pool_id=POOL_ID)
        for i, nodes in enumerate(requested)
    ]


@given(sizes, st.data())
def test_removals_above_the_minima_keep_zones_level(requested: list[int], data: st.DataObject) -> None:
    drafts = _drafts(requested)
    minima = level_minima(drafts)
    if max(requested) - min(requested) < 2:
        assert minima == {}
        return
    after = [data.draw(st.integers(minima[draft.key], draft.requested)) for draft in drafts]
    assert max(after) - min(after) <= max(requested) - min(requested)
    assert min(after) == min(requested)


@given(sizes, st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_fuller_zones_give_down_to_the_level_of_the_others(requested: list[int], weights: list[int]) -> None:
    drafts = _drafts(requested, weights)
    minima = level_minima(drafts)
    assert all(0 <= minima[draft.key] <= draft.requested for draft in drafts if minima)
    assert not minima or any(minima[draft.key] < draft.requested for draft in drafts)
    if any(minima.values()):
        kept = [draft for draft in drafts if minima[draft.key] == draft.requested]
        givers = [draft for draft in drafts if minima[draft.key] < draft.requested]
        levels = [draft.requested / draft.group.annotations.weight for draft in givers]
        assert max(draft.requested / draft.group.annotations.weight for draft in kept) < max(levels)
    kept_levels = [
        Fraction(one.requested, one.group.annotations.weight) for one in drafts if minima.get(one.key) == one.requested
    ]
    for draft in drafts:
        if minima.get(draft.key, draft.requested) < draft.requested - 1:
            assert Fraction(minima[draft.key], draft.group.annotations.weight) >= max(kept_levels, default=Fraction(0))


@given(pools(), st.integers(0, 40), st.integers(0, 300))
def test_levelling_only_raises_minima(world: World, went: int, minutes: int) -> None:
    """At any time since the last removal and the last hold."""
    before = {str(member.key): member.requested + went for member in world.observation.groups}
    memory = PoolState(
        seen=MemberSnapshot(since=NOW - timedelta(hours=9), requested=before),
        held_until=NOW + timedelta(minutes=30 - minutes),
    )
    stored = replace(world.state, pools={POOL_ID: memory})
    off = replace(world, state=stored).pool()
    on = replace(world, state=stored, policy=replace(world.policy, level=Level.SHRINK)).pool()
    for levelled, plain in zip(on.groups, off.groups, strict=True):
        assert levelled.requested == plain.requested
        assert levelled.state is plain.state
        if levelled.bounds != plain.bounds:
            assert levelled.state is State.HEALTHY
            assert levelled.bounds.max == plain.bounds.max
            assert plain.bounds.min < levelled.bounds.min <= levelled.requested


steps = st.lists(st.tuples(st.integers(10, 5400), st.sampled_from("abc"), st.integers(-3, 3)), min_size=1, max_size=25)


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3), steps)
def test_a_hold_ends_half_an_hour_after_the_last_removal(
    requested: list[int], happens: list[tuple[int, str, int]]
) -> None:
    pool = Played(zones(requested), LEVELLED)
    pool.check()
    went_at = NOW - timedelta(days=1)
    before: PoolState | None = None
    for seconds, zone, change in happens:
        # Time passes first: a group that awaits something is checked then.
        while (soon := pool.next_check()) is not None and 0 < soon < seconds:
            seconds -= int(soon) + 1
            _check(pool, went_at, pool.check(int(soon) + 1).next_state, before)
            before = pool.state.pools[POOL_ID]
        now = next(found for found in pool.groups if found.identity.zone == zone).requested
        after = max(0, now + change)
        if after < now:
            went_at = pool.now + timedelta(seconds=max(1, seconds))
        found = pool.check(max(1, seconds), **{zone: after})
        _check(pool, went_at, found.next_state, before)
        before = found.next_state


def _check(pool: Played, went_at: datetime, after: PoolState, before: PoolState | None) -> None:
    held = sum(found.bounds.min for found in pool.groups if found.bounds is not None)
    if held:
        assert pool.now < went_at + LEVEL_HELD
        assert after.held_until == went_at + LEVEL_HELD
        soon = pool.next_check()
        assert timedelta(seconds=soon) <= LEVEL_HELD
    last = before.held_until if before is not None else None
    if last is not None and last <= pool.now and after.held_until != last and after.held_until is not None:
        assert pool.now >= last + RESTS
