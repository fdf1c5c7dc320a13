"""Headroom and waiting pods: waiting pods get it first, and no sum is ever exceeded."""

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import maxima, minima
from tests.unit.demand.test_waited_for import bound, busy, played

REQUESTED = st.lists(st.integers(0, 6), min_size=1, max_size=4).map(tuple)


@given(REQUESTED, st.integers(0, 24), st.lists(st.integers(0, 12), min_size=4, max_size=4))
def test_zones_with_pending_pods_get_the_headroom_first(
    requested: tuple[int, ...], headroom: int, waiting: list[int]
) -> None:
    pool = played(requested, max(4, sum(requested)) + headroom)
    headroom = pool.policy.pools[0].max - sum(requested)
    pool.workload = busy(
        pool.groups, *(each for zone, n in zip("abcd", waiting, strict=True) for each in bound(zone, n))
    )
    found = pool.check()
    extra = [most - there for most, there in zip(maxima(found), requested, strict=True)]
    wanted = waiting[: len(requested)]
    assert sum(extra) == headroom
    assert sum(map(min, extra, wanted)) == min(sum(wanted), headroom)
    assert all(low <= there for low, there in zip(minima(found), requested, strict=True))


@given(REQUESTED, st.integers(0, 24), st.lists(st.tuples(st.integers(1, 90), st.integers(0, 3), st.integers(0, 9))))
def test_an_unchanged_pool_is_not_written_twice(
    requested: tuple[int, ...], headroom: int, steps: list[tuple[int, int, int]]
) -> None:
    pool = played(requested, max(4, sum(requested)) + headroom)
    for seconds, zone, number in steps:
        pool.workload = busy(pool.groups, *bound("abcd"[zone], number))
        pool.check(seconds)
    pool.check(70)
    pool.check(70)
    assert [pool.check(70).changes for _ in range(3)] == [()] * 3
    assert pool.next_check() is None
