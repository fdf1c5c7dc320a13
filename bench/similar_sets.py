"""Finding the sets of similar groups: comparisons made, against a plain loop over all pairs in the same run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations, islice
from unittest.mock import patch

from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.rebalancing.membership.similarity import find_sets

SIZES = (1_000, 10_000)
# All pairs of 10,000 groups would take minutes: the loop is timed over this many, and the time of the rest reckoned.
PAIRS = 500_000
_MIB = 1024**2
_MACHINES = ((2, 8), (4, 16), (8, 32), (8, 64), (16, 64))  # cores and GiB


def _groups(size: int) -> dict[str, NodeTemplate]:
    """Pools of three zones, teams of five pools: five machine types each, memory a little different in each zone."""
    found = {}
    for number in range(size):
        pool, zone = divmod(number, 3)
        cores, gib = _MACHINES[pool % len(_MACHINES)]
        memory = Fraction(gib * 1024 * _MIB - (pool * 7 + zone) % 11 * _MIB)
        found[f"pool-{pool}-{zone}"] = NodeTemplate(
            capacity={"cpu": Fraction(cores), "memory": memory, "pods": Fraction(110)},
            allocatable={"cpu": Fraction(cores * 1000 - 80, 1000), "memory": memory - 700 * _MIB},
            labels={
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": f"node-{number}",
                "topology.kubernetes.io/zone": f"zone-{'abc'[zone]}",
                "team": f"team-{pool // len(_MACHINES)}",
            },
        )
    return found


@contextmanager
def _counted() -> Iterator[list[int]]:
    """How often the amounts of two nodes are compared while this is open, in a list of one."""
    count = [0]
    near = Similarity.near

    def counting(self: Similarity, a: NodeTemplate, b: NodeTemplate) -> bool:
        count[0] += 1
        return near(self, a, b)

    with patch.object(Similarity, "near", counting):
        yield count


def main() -> None:
    """Best of three per size; the loop once."""
    print("sets of similar groups, of pools of three zones, against a loop over all pairs")
    rule = Similarity()
    for size in SIZES:
        groups = _groups(size)
        with _counted() as count:
            sets = find_sets(groups, rule)
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            find_sets(groups, rule)
            best = min(best, time.perf_counter() - began)

        pairs = size * (size - 1) // 2
        timed = min(pairs, PAIRS)
        began = time.perf_counter()
        for a, b in islice(combinations(groups.values(), 2), timed):
            rule.similar(a, b)
        loop = (time.perf_counter() - began) * pairs / timed
        reckoned = "" if timed == pairs else f", reckoned from {timed:,} pairs"
        print(
            f"  {size:>6,} groups: {len(sets):,} sets in {best * 1000:.1f} ms, {count[0]:,} comparisons of amounts; "
            f"all {pairs:,} pairs take {loop / best:,.0f} x as long{reckoned}"
        )


if __name__ == "__main__":
    main()
