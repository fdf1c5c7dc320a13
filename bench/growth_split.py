"""What splitting K nodes over a pool costs, against adding them one by one, in the same run."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

from evenkeel.domain.model.water_fill import Bucket, water_fill

GROUPS = (10, 1_000)
NODES = (10, 1_000, 100_000)


def _vessels(groups: int, nodes: int) -> list[Bucket]:
    """Uneven groups with room for more than is asked for, some of them nearly full."""
    return [Bucket(level=i % 7, room=1 if i % 5 == 0 else nodes, tie=i * 7919 % 1009) for i in range(groups)]


def _one_by_one(vessels: list[Bucket], amount: int) -> list[int]:
    """Cluster Autoscaler's loop, with a heap in the place of its sorting."""
    given = [0] * len(vessels)
    heap = [(vessel.level, vessel.tie, i) for i, vessel in enumerate(vessels) if vessel.room]
    heapq.heapify(heap)
    while amount and heap:
        size, tie, i = heapq.heappop(heap)
        given[i] += 1
        amount -= 1
        if given[i] < vessels[i].room:
            heapq.heappush(heap, (size + 1, tie, i))
    return given


def _best(call: Callable[[], list[int]]) -> tuple[float, list[int]]:
    best, found = float("inf"), []
    for _ in range(3):
        began = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - began)
    return best, found


def main() -> None:
    """Best of three each; both must split alike."""
    print("splitting K nodes: closed form against one by one")
    for groups in GROUPS:
        first = 0.0
        for nodes in NODES:
            vessels = _vessels(groups, nodes)
            closed, found = _best(lambda: water_fill(vessels, nodes))  # noqa: B023 (called in this round)
            looped, expected = _best(lambda: _one_by_one(vessels, nodes))  # noqa: B023
            if found != expected:
                raise AssertionError(f"{nodes} nodes over {groups} groups are split differently")
            first = first or closed
            print(
                f"  {groups:>5} groups, K = {nodes:>7}: {closed * 1e6:8.1f} µs ({closed / first:.1f} x that of K = "
                f"{NODES[0]}), the loop {looped / closed:8.1f} x as long"
            )


if __name__ == "__main__":
    main()
