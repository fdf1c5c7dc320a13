"""The bounded cache keeps the values that were used last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.lru import LruCache


@given(most=st.integers(1, 5), steps=st.lists(st.tuples(st.sampled_from(["get", "put", "drop"]), st.integers(0, 9))))
def test_the_cache_keeps_the_last_used_values_within_its_size(most: int, steps: list[tuple[str, int]]) -> None:
    room: LruCache[int, int] = LruCache(most)
    expected: dict[int, int] = {}  # the last used is last
    for number, (step, key) in enumerate(steps):
        before = expected.pop(key, None)
        if step == "put":
            room.put(key, number)
            expected[key] = number
            expected = dict(list(expected.items())[-most:])
        elif step == "drop":
            room.drop(key)
        else:
            assert room.get(key) == before
            expected |= {} if before is None else {key: before}


def test_many_threads_stay_within_the_size() -> None:
    room: LruCache[int, int] = LruCache(8)

    def use(number: int) -> None:
        room.put(number % 20, number)
        room.get((number * 7) % 20)
        room.drop((number * 3) % 20)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(4_000)))
    assert sum(room.get(n) is not None for n in range(20)) <= 8
