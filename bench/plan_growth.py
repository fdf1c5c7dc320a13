"""How plan() grows with the number of pools: CPU per pool, as a ratio to the smallest, round by round."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime

from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = (10, 100, 1_000, 10_000)
_ROUNDS = 3


def _observation(pools: int) -> Observation:
    """Pools of three zones, uneven on purpose so that every group would be written."""
    groups = [
        NodeGroup(
            key=GroupKey("cluster-api", "bench", f"pool-{pool}-z{zone + 1}"),
            kind="MachineDeployment",
            pool_label=f"pool-{pool}",
            zone=f"eu-central-1{'abc'[zone]}",
            zone_index=zone,
            requested=(pool + zone * 3) % 5,
            running=(pool + zone * 3) % 5,
            bounds=Bounds(0, 7),
            pool_min=3,
            pool_max=18,
        )
        for pool in range(pools)
        for zone in range(3)
    ]
    return Observation(groups=tuple(groups))


def main() -> None:
    """Medians of rounds in which the sizes take turns."""
    print(f"plan() for pools x 3 zones: CPU, medians of {_ROUNDS} (least-most)")
    observations = {size: _observation(size) for size in SIZES}
    spent: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(_ROUNDS):
        for size, observation in observations.items():
            repeats = max(1, SIZES[-1] // size // 4)  # so that a small one is no flicker of the clock
            began = time.process_time()
            for _ in range(repeats):
                made = plan(observation, ClusterState(), Policy(strategy=BALANCED), _NOW)
            spent[size].append((time.process_time() - began) / repeats / size)
            if len(made.changes) < 2 * size:
                raise AssertionError(f"{len(made.changes)} groups would change: this is no work")
    for size, each in spent.items():
        ratios = sorted(mine / first for mine, first in zip(each, spent[SIZES[0]], strict=True))
        print(
            f"  {size:>6} pools: {statistics.median(each) * 1e6:6.1f} µs per pool, {statistics.median(ratios):.2f} x "
            f"({ratios[0]:.2f}-{ratios[-1]:.2f}) that of {SIZES[0]} pools"
        )


if __name__ == "__main__":
    main()
