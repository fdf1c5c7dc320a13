"""Level shrink: the minima while nodes are removed, the end of the hold, and the effect on an autoscaler."""

import random
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.choices import Level, Strategy
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import ClusterState, MemberSnapshot, PoolState
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel_cli.simulation.engine import Record, Run, variants_of
from evenkeel_cli.simulation.measures import measure
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from tests.builders import MINUTE, NOW, Played, key, minima, numbers, reasons, requested, zones
from tests.parts import replace

POOL_ID = PoolId("cluster-api", "default", "", "workers")
HOUR = 3600


def levelled(*nodes: int, minimum: int = 0, strategy: Strategy | None = None, level: Level = Level.SHRINK) -> Played:
    """Return a pool after its first check."""
    policy = numbers(minimum, 60, **({"strategy": strategy} if strategy else {}))
    pool = Played(zones(nodes), replace(policy, level=level))
    pool.check()
    return pool


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_when_a_node_goes_the_smaller_zones_are_held(strategy: Strategy) -> None:
    pool = levelled(9, 8, 3, strategy=strategy)
    assert minima(pool.check(60)) == (0, 0, 0)  # a difference alone begins no hold
    found = pool.check(60, a=8)
    assert minima(found) == (3, 3, 3)
    assert "min raised to the 3 requested replicas until 2026-01-15T12:32:00Z" in reasons(found, "c")
    assert "min raised to 3 until" in reasons(found, "a")
    assert requested(found) == (8, 8, 3)


def test_a_hold_lasts_from_node_to_node_and_ends_when_zones_are_level() -> None:
    pool = levelled(6, 6, 3)
    pool.check(60, a=5)
    assert minima(pool.check(29 * 60)) == (3, 3, 3)
    assert minima(pool.check(59, b=4)) == (3, 3, 3)
    assert minima(pool.check(29 * 60)) == (3, 3, 3)
    found = pool.check(30, a=4)
    assert minima(found) == (0, 0, 0)
    assert found.next_state.held_until is None
    assert minima(pool.check(60, a=6, b=6)) == (0, 0, 0)
    assert minima(pool.check(60, a=5)) == (3, 3, 3)  # its work is done, so it need not rest


@pytest.mark.parametrize(("left", "held"), [(8, False), (7, True)])
def test_nodes_that_evenkeel_removed_begin_no_hold(left: int, held: bool) -> None:
    seen = MemberSnapshot(since=NOW - MINUTE, requested=counted(9, 8, 3), planned={str(key("a")): 8})
    state = ClusterState(pools={POOL_ID: PoolState(seen=seen)})
    pool = Played(zones((left, 9, 3)), replace(numbers(0, 60), level=Level.SHRINK), state)
    assert any(minima(pool.check(60))) is held


def counted(*nodes: int) -> dict[str, int]:
    return {str(key(zone)): count for zone, count in zip("abc", nodes, strict=True)}


def test_a_hold_without_effect_pauses_for_three_hours() -> None:
    pool = levelled(9, 9, 3)
    pool.check(60, a=8)
    pool.check(15)
    soon = pool.next_check()
    assert soon == 30 * 60 - 15
    found = pool.check(soon)
    assert minima(found) == (0, 0, 0)
    assert "no min is raised to level the zones before 2026-01-15T15:31:00Z" in reasons(found, "c")
    assert pool.next_check() is None
    assert minima(pool.check(3 * HOUR - 60, a=7)) == (0, 0, 0)
    assert minima(pool.check(60, b=8)) == (3, 3, 3)


def test_the_minima_of_the_pool_are_raised_and_never_lowered() -> None:
    pool = levelled(9, 8, 3, minimum=15)
    assert minima(pool.check(60)) == (6, 6, 3)
    assert minima(pool.check(60, a=8)) == (6, 6, 3)
    assert minima(levelled(9, 8, 3, minimum=3).check(60, a=8)) == (3, 3, 3)


def test_only_healthy_zones_are_compared_and_off_holds_nothing() -> None:
    assert minima(levelled(9, 8, 3, level=Level.OFF).check(60, a=8)) == (0, 0, 0)
    pool = levelled(9, 3, 3)
    pool.state = replace(pool.state, zones={"a": NOW + timedelta(hours=1)})
    assert minima(pool.check(60, b=2)) == (0, 0, 0)
    quiet = levelled(9, 9, 3)
    quiet.check(60)
    assert [quiet.check(HOUR).changes for _ in range(6)] == [()] * 6


def test_removed_nodes_come_from_the_fullest_zone_despite_a_hold() -> None:
    pool = levelled(9, 8, 3)
    pool.check(60, a=8)
    request = ScaleRequest(id="night", nodes=-12, at=pool.now + MINUTE)
    pool.state = replace(pool.state, scale_requests=(request,))
    found: PoolPlan = pool.check(60)
    assert sorted(requested(found)) == [2, 2, 3]
    assert all(planned.bounds is not None and planned.bounds.min <= planned.requested for planned in found.groups)


# With the autoscaler


def ebb(seed: int, level: str) -> Scenario:
    """Return a peak that grows while zone c fails, and ends in steps. PoolMinimum is 0, so each min is a hold."""
    chance = random.Random(seed)
    nodes, minute = 9, 40
    steps: list[dict[str, Any]] = [{"at": "0s", "nodes": nodes}]
    for _ in range(3):
        nodes += chance.randint(3, 9)
        steps.append({"at": f"{minute}m", "nodes": nodes})
        minute += chance.randint(15, 40)
    minute += 60
    while nodes > 9:
        nodes -= chance.randint(1, 4)
        steps.append({"at": f"{minute}m", "nodes": nodes})
        minute += chance.randint(5, 25)
    out = {"name": "c", "capacity": [{"at": "0s", "nodes": 3}, {"at": "90m"}]}
    return read_scenario(
        {
            "name": "ebb",
            "duration": f"{minute + 120}m",
            "seed": seed,
            "zones": [{"name": "a"}, {"name": "b"}, out],
            "pools": [{"name": "workers", "max": 60, "start": 9, "level": level}],
            "demand": [{"nodes": steps}],
        },
        "test.yaml",
    )


def played(found: Scenario) -> Record:
    (variant,) = variants_of(found, "own")
    return Run(found, variant)()


@pytest.mark.parametrize("seed", range(5))
def test_a_shrink_ends_as_level_without_waiting_pods_and_at_little_cost(seed: int) -> None:
    without, with_it = (played(ebb(seed, level)) for level in ("off", "shrink"))
    ends = [[group.running for group in record.snapshots[-1].groups] for record in (without, with_it)]
    assert max(ends[1]) - min(ends[1]) <= max(ends[0]) - min(ends[0])
    before, after = measure(without), measure(with_it)
    assert before.skew_recovered is not None
    assert after.skew_recovered is not None
    assert after.skew_recovered <= before.skew_recovered + 0.1
    assert after.waiting_node_hours <= before.waiting_node_hours
    assert after.node_hours <= before.node_hours * 1.03
    assert not any(group.min for snapshot in without.snapshots for group in snapshot.groups)
