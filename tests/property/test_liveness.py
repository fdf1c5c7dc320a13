"""Demand up to PoolMaximum is met in the end, and PoolMaximum is not passed: whatever the autoscaler and the looks do.

The worlds of ``tests.liveness``. A few hundred here; 10,000 of them with ``python -m bench liveness``.
"""

import pytest

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE, LAX_GREEDY
from tests.liveness.cases import Case, Demand, Span, drawn
from tests.liveness.simulation import Result, simulate
from tests.liveness.smaller import smallest

WORLDS, IN_EACH = 240, 20


def _story(result: Result, fault: str) -> str:
    """What a person needs to see the fault again."""
    lines = result.trace if len(result.trace) <= 60 else [*result.trace[:30], "...", *result.trace[-30:]]
    return "\n".join([f"{fault} in {result.case}", *lines])


def _fault(result: Result) -> str:
    """What Balanced must never let happen; empty where it did not."""
    if result.passed:
        return f"PoolMaximum was passed at {result.passed}"
    if result.unsafe:
        return f"published at {result.unsafe[0]}"
    if result.removed:
        return f"{result.removed} running nodes were removed"
    return "" if result.met else "demand is never met"


@pytest.mark.parametrize("first", range(0, WORLDS, IN_EACH))
def test_demand_is_met_and_the_maximum_is_not_passed(first: int) -> None:
    for seed in range(first, first + IN_EACH):
        if fault := _fault(simulate(drawn(seed))):
            case = smallest(drawn(seed), lambda case: bool(_fault(simulate(case))))
            pytest.fail(_story(simulate(case), f"seed {seed}, made smaller: {_fault(simulate(case)) or fault}"))


# Static shares reach less, and Lax-Greedy may pass PoolMaximum between two looks; but neither leaves anybody waiting.
@pytest.mark.parametrize("strategy", [LAX_GREEDY, BACKWARD_COMPATIBLE])
def test_the_other_strategies_leave_no_demand_waiting_either(strategy: Strategy) -> None:
    for seed in range(60):
        result = simulate(drawn(seed, strategy))
        assert result.met, _story(result, f"seed {seed}: demand is never met")
        assert not result.removed, _story(result, f"seed {seed}: running nodes were removed")


def test_a_case_is_the_same_each_time() -> None:
    assert drawn(7) == drawn(7)
    assert simulate(drawn(7)).trace == simulate(drawn(7)).trace


def _one_zone(pods: int, zone: int, *, at: int = 600) -> tuple[Demand, ...]:
    return (Demand(at=at, free=0, bound=tuple(pods * (index == zone) for index in range(3))),)


@pytest.mark.parametrize("loop", [10, 30, 60])
@pytest.mark.parametrize("zone", [0, 1, 2])
def test_what_is_lent_stays_until_every_autoscaler_loop_has_read_it(zone: int, loop: int) -> None:
    result = simulate(Case(maximum=120, loop=loop, demand=_one_zone(100, zone)))
    assert result.last_order is not None, _story(result, "never ordered")
    # A scan, one and a half loops of the record for the others to move, and two loops of the autoscaler's.
    assert result.last_order - 600 <= 60 + 15 + 2 * loop, _story(result, "late")


@pytest.mark.parametrize("others", [2, 5, 15])
def test_looks_that_other_pools_cause_take_nothing_back_before_it_is_read(others: int) -> None:
    result = simulate(Case(maximum=120, others=others, demand=_one_zone(100, 1)))
    assert result.last_order is not None, _story(result, "never ordered")
    assert result.last_order - 600 <= 60, _story(result, "late")


@pytest.mark.parametrize("zone", [0, 1, 2])
@pytest.mark.parametrize("maximum", [3, 30, 100])
def test_the_last_nodes_below_the_maximum_reach_the_zone_that_needs_them(maximum: int, zone: int) -> None:
    result = simulate(Case(maximum=maximum, demand=_one_zone(maximum, zone)))
    assert result.met, _story(result, "never met")


def test_a_zone_that_did_not_grow_gets_the_last_nodes_in_its_turn() -> None:
    first = Demand(at=0, free=0, bound=(6, 4, 0))
    result = simulate(Case(maximum=12, nodes=(6, 4, 0), demand=(first, Demand(at=600, free=0, bound=(8, 4, 0)))))
    assert result.met, _story(result, "never met")


@pytest.mark.parametrize("seed", range(6))
def test_a_zone_that_is_only_tried_does_not_keep_the_last_node_from_the_others(seed: int) -> None:
    # Zone a has failed; its probe takes the only node of headroom, and no pod that waits may run there any more.
    demand = (
        Demand(at=600, free=0, bound=(1, 6, 5)),
        Demand(at=900, free=0, bound=(0, 6, 5)),
        Demand(at=1500, free=0, bound=(0, 6, 6)),
    )
    refusing = (Span(zone=0, start=0, end=None),)
    result = simulate(Case(maximum=12, refusing=refusing, demand=demand, seed=seed))
    assert result.met_at is not None, _story(result, "never met")
    # A round of the last node through three zones at most; a failure is forgotten only after three hours.
    assert result.met_at - 1500 <= 3600, _story(result, "late")


def test_the_last_nodes_stay_where_a_pool_grows() -> None:
    result = simulate(Case(maximum=100, demand=_one_zone(100, 2)))
    assert result.last_order is not None, _story(result, "never ordered")
    assert result.last_order - 600 <= 60 + 2 * (15 + 2 * 10), _story(result, "late")


@pytest.mark.parametrize("zone", [0, 1, 2])
def test_after_a_day_of_quiet_the_last_node_still_comes_to_whoever_needs_it(zone: int) -> None:
    nodes = tuple(4 - (index == zone) for index in range(3))
    day = 24 * 3600
    demand = (Demand(at=0, free=0, bound=nodes), Demand(at=day, free=0, bound=(4, 4, 4)))
    result = simulate(Case(maximum=12, nodes=nodes, demand=demand, scan=300))
    assert result.met_at is not None, _story(result, "never met")
    # A turn takes an hour by then, and it may have to come around.
    assert result.met_at - day <= 3 * 3600 + 300, _story(result, "late")


def test_without_room_in_the_maxima_a_pool_asked_for_more_is_not_passed() -> None:
    result = simulate(Case(maximum=30, demand=(Demand(at=600, free=90, bound=(0, 0, 0)),), beyond=60))
    assert result.met, _story(result, "never met")
    assert not result.passed
    assert sum(result.running) == 30


def test_the_simulation_would_notice_a_strategy_that_passes_the_maximum() -> None:
    # Lax-Greedy offers the same headroom to every zone at once: what Balanced is there to avoid.
    demand = (Demand(at=600, free=90, bound=(0, 0, 0)),)
    result = simulate(Case(maximum=30, strategy=LAX_GREEDY, demand=demand, beyond=60))
    assert result.passed
