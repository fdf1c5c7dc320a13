"""The cost of a plan: one per pool and check, in instructions, compared with a fixed amount of plain Python."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bench.oracle import play
from bench.planning import plan_balanced, plan_worlds, reference_work
from evenkeel.domain.model.choices import DemandStage, Level, Size
from evenkeel.domain.model.drafts import PoolDraft, PoolInput
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Pod, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.capability import PlannedPool
from evenkeel.domain.rebalancing.pool_plan import PoolPlanner
from tests.builders import NOW, zones
from tests.parts import make
from tests.workloads import node, pod, template


def counted_plans(
    stage: DemandStage, *pending: Pod, level: Level = Level.OFF, autoscaler_at: datetime | None = None
) -> tuple[Plan, Counter[str]]:
    """Plan two pools of three zones with one node each, and count the sizings of each pool."""
    count: Counter[str] = Counter()

    def size(pool: PoolDraft) -> Sequence[Size]:
        count[pool.pool.id.name] += 1
        return BALANCED.size(pool)

    groups = [
        each for name in ("x", "y") for each in zones([1, 1, 1], pool=name, template=template(), pool_min=3, pool_max=9)
    ]
    nodes = tuple(
        node(f"n-{each.key.name}", str(each.identity.zone), group=each.key, created_at=NOW) for each in groups
    )
    pods = tuple(pod(f"p-{each.name}", cpu="3", node=each.name) for each in nodes)
    workload = Workload(
        nodes=nodes, pods=(*pods, *pending), autoscaler_sought=autoscaler_at is not None, autoscaler_at=autoscaler_at
    )
    policy = make(Policy, strategy=replace(BALANCED, size=size), demand=stage, level=level, autoscaler=False)
    made = plan(Observation(groups=tuple(groups), workload=workload), ClusterState(), policy, NOW)
    return made, count


@pytest.mark.parametrize("level", [Level.OFF, Level.CONVERGE])
@pytest.mark.parametrize("stage", [DemandStage.ADVISE, DemandStage.SCALE_UP, DemandStage.FULL])
def test_each_pool_is_planned_once_if_no_pod_waits(stage: DemandStage, level: Level) -> None:
    made, count = counted_plans(stage, level=level)
    assert made.demand is not None
    assert all(pool.demand.advice is not None for pool in made.pools)
    assert count == {"x": 1, "y": 1}


def test_only_the_pool_that_gets_a_node_for_a_pod_is_planned_again() -> None:
    made, count = counted_plans(DemandStage.SCALE_UP, pod("waits", cpu="3"))
    grown = [pool.id.name for pool in made.pools if pool.changes and pool.request.current is not None]
    assert len(grown) == 1
    assert count == {name: 2 if name in grown else 1 for name in ("x", "y")}


def test_each_pool_is_planned_once_if_all_pending_pods_are_too_young() -> None:
    made, count = counted_plans(DemandStage.SCALE_UP, pod("young", cpu="3", created_at=NOW))
    assert made.demand is not None
    assert made.demand.check_again is not None
    assert count == {"x": 1, "y": 1}


def test_each_pool_is_planned_once_if_another_autoscaler_orders_nodes() -> None:
    made, count = counted_plans(DemandStage.SCALE_UP, autoscaler_at=NOW)
    assert made.demand is not None
    assert made.demand.beside_another
    assert count == {"x": 1, "y": 1}


def test_no_pool_of_random_worlds_is_planned_more_than_three_times_and_few_are_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decision "A pool is planned again if advice differs" has the figures."""
    count: Counter[tuple[PoolPlanner, PoolId]] = Counter()
    planned = PoolPlanner.plan

    def counted(planner: PoolPlanner, pool: AnyPool, given: PoolInput) -> PlannedPool:
        count[planner, pool.id] += 1  # each check has its own planner
        return planned(planner, pool, given)

    monkeypatch.setattr(PoolPlanner, "plan", counted)
    for seed in range(30):
        play(seed)
    times = Counter(count.values())
    assert times.keys() == {1, 2, 3}
    assert (times[2] + times[3]) / times.total() < 0.38
    assert times[3] / times.total() < 0.06


def instructions(work: Callable[[], object]) -> int:
    """Return the number of Python instructions of a call. It does not depend on the machine, nor on its load."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    work()  # code that runs once, such as an import, is no cost of a plan
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


# Instructions of a plan for each group, of 1,000 in the reference work (``reference_work``), as last recorded.
COST = {"quiet": 129, "uneven": 140, "fenced": 163, "waiting": 174, "refused": 231, "listed": 138, "new": 209}


@pytest.mark.parametrize("pools", [10, 30])
def test_a_plan_costs_no_more_for_each_group_than_recorded(pools: int) -> None:
    reference = instructions(partial(reference_work, 50)) / 1_000
    cost = {
        name: instructions(partial(plan_balanced, groups, state)) / len(groups) / reference
        for name, (groups, state) in plan_worlds(pools).items()
    }
    assert cost.keys() == COST.keys()
    assert {name: value / COST[name] for name, value in cost.items() if value > 1.25 * COST[name]} == {}


def test_a_plan_leaves_no_reference_cycles_which_would_keep_all_that_its_check_has_read() -> None:
    for groups, state in plan_worlds(3).values():
        gc.collect()
        gc.disable()
        try:
            plan_balanced(groups, state)
            assert gc.collect() == 0
        finally:
            gc.enable()
