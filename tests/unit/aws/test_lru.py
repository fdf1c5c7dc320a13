"""The bounded cache keeps the values that were used last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.lru import RotationCache
from tests.fakes import FakeClock


@given(
    most=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from(["get", "put", "drop"]), st.integers(0, 9), st.integers(1, 400))),
)
def test_the_cache_keeps_the_last_used_values_within_its_size(most: int, steps: list[tuple[str, int, int]]) -> None:
    clock = FakeClock()
    room: RotationCache[int, int] = RotationCache(most, clock.now)
    expected: dict[int, tuple[int, datetime]] = {}  # and when it was last used
    for number, (step, key, seconds) in enumerate(steps):
        clock.sleep(seconds)
        if step == "put":
            room.put(key, number)
            if key not in expected and len(expected) == most:
                oldest = min(expected, key=lambda other: expected[other][1])
                if clock.now() - expected[oldest][1] < timedelta(minutes=10):
                    continue
                del expected[oldest]
            expected[key] = number, clock.now()
        elif step == "drop":
            room.drop(key)
            expected.pop(key, None)
        else:
            value, _ = expected.get(key, (None, None))
            assert room.get(key) == value
            if value is not None:
                expected[key] = value, clock.now()


def test_a_cache_of_five_serves_five_of_ten_keys_in_turn() -> None:
    clock = FakeClock()
    room: RotationCache[int, int] = RotationCache(5, clock.now)
    for _ in range(4):
        found = [room.get(n) for n in range(10)]
        for n in range(10):
            room.put(n, n)
        clock.sleep(1 * 60)
    assert found == [0, 1, 2, 3, 4, None, None, None, None, None]


def test_many_threads_stay_within_the_size() -> None:
    room: RotationCache[int, int] = RotationCache(8, FakeClock().now)

    def use(number: int) -> None:
        room.put(number % 20, number)
        room.get((number * 7) % 20)
        room.drop((number * 3) % 20)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(4_000)))
    assert sum(room.get(n) is not None for n in range(20)) <= 8
