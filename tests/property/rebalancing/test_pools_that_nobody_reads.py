"""Without an autoscaler and ``demand``, no program reads bounds: a pool is written after a change, then rests."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import MINUTE, key, zones
from tests.stack import Stack

#: An operator's change of a group, and the minutes that pass afterwards.
EVENTS = st.tuples(
    st.sampled_from("abc"),
    st.one_of(
        st.integers(0, 9).map(lambda replicas: {"requested": replicas}),
        st.sampled_from([0, 1, 3]).map(lambda weight: {"weight": weight}),
        st.integers(1, 9).map(lambda most: {"zone_max": most}),
    ),
    st.integers(1, 3),
)
LATER = [*[65 * timedelta(seconds=1)] * 3, *[5 * MINUTE] * 12, *[timedelta(hours=1)] * 8]


@given(
    replicas=st.tuples(*[st.integers(0, 5)] * 3),
    minimum=st.integers(0, 3),
    free=st.integers(0, 5),
    strategy=st.sampled_from([*[strategy.name for strategy in STRATEGIES], "Balanced", "Balanced", "Balanced"]),
    events=st.lists(EVENTS, max_size=5),
    failed=st.sampled_from([None, None, "a"]),
)
def test_a_pool_that_no_program_reads_rests_after_the_last_change(
    replicas: tuple[int, int, int],
    minimum: int,
    free: int,
    strategy: str,
    events: list[tuple[str, dict[str, Any], int]],
    failed: str | None,
) -> None:
    pools = [{"name": "workers", "min": minimum, "max": max(3, sum(replicas) + free), "strategy": strategy}]
    stack = Stack(zones(replicas, bounds=[(0, 9)] * 3), pools=pools, autoscaler="none")
    if failed:
        stack.fail(failed)
    for zone, change, minutes in events:
        stack.cluster.change(key(zone), **change)
        live(stack, [MINUTE] * minutes)
    live(stack, [MINUTE] * (5 if failed is None else 200))
    stack.cluster.applied.clear()
    live(stack, LATER)
    assert stack.cluster.applied == []


def live(stack: Stack, steps: list[timedelta]) -> None:
    for step in steps:
        stack.clock.at += step - MINUTE
        stack.run()
        for group in list(stack.cluster.groups.values()):
            if group.running != group.requested:
                stack.cluster.change(group.key, running=group.requested)
