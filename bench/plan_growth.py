"""How plan() grows with the number of pools: time per pool, as a ratio to the smallest."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from evenkeel.domain.bounds.balanced import BALANCED
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = (10, 100, 1_000, 10_000)


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
    """Best of three per size."""
    print("plan() for pools x 3 zones")
    first = 0.0
    for size in SIZES:
        observation = _observation(size)
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            made = plan(observation, ClusterState(), Policy(strategy=BALANCED), _NOW)
            best = min(best, time.perf_counter() - began)
        per_pool = best / size
        first = first or per_pool
        print(
            f"  {size:>6} pools: {best * 1000:8.1f} ms, {per_pool * 1e6:6.1f} µs per pool, "
            f"{per_pool / first:.2f} x the smallest; {len(made.changes)} groups would change"
        )


if __name__ == "__main__":
    main()
