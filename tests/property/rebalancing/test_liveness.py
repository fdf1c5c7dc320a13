"""Demand up to PoolMaximum is finally met, and PoolMaximum is not passed, in the worlds of ``tests.liveness``."""

import pytest

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE, LAX_GREEDY
from tests.liveness.cases import Case, Demand, Span, drawn, drawn_with_thaws
from tests.liveness.simulation import Result, simulate
from tests.liveness.smaller import smallest

WORLDS, IN_EACH, LOOPS = 240, 20, (10, 30, 60)


def _story(result: Result, fault: str) -> str:
    lines = result.trace if len(result.trace) <= 60 else [*result.trace[:30], "...", *result.trace[-30:]]
    return "\n".join([f"{fault} in {result.case}", *lines])


def _fault(result: Result) -> str:
    if result.passed:
        return f"PoolMaximum was passed at {result.passed}"
    if result.unsafe:
        return f"published at {result.unsafe[0]}"
    if result.removed:
        return f"{result.removed} running nodes were removed"
    if result.lost:
        return f"replicas were taken at {result.lost[0]}"
    return "" if result.met else "demand is never met"


@pytest.mark.parametrize("first", range(0, WORLDS, IN_EACH))
def test_demand_is_met_and_the_maximum_is_not_passed(first: int) -> None:
    for seed in range(first, first + IN_EACH):
        if fault := _fault(simulate(drawn(seed))):
            case = smallest(drawn(seed), lambda case: bool(_fault(simulate(case))))
            pytest.fail(_story(simulate(case), f"seed {seed}, made smaller: {_fault(simulate(case)) or fault}"))


@pytest.mark.parametrize("first", range(0, WORLDS, IN_EACH))
def test_thaws_at_any_moment_add_what_was_said_and_cost_other_groups_nothing(first: int) -> None:
    for seed in range(first, first + IN_EACH):
        if fault := _fault(simulate(drawn_with_thaws(seed))):
            case = smallest(drawn_with_thaws(seed), lambda case: bool(_fault(simulate(case))))
            pytest.fail(_story(simulate(case), f"seed {seed}, made smaller: {_fault(simulate(case)) or fault}"))


# Static shares reach less, and Lax-Greedy may pass PoolMaximum between two checks, but with neither do pods wait.
@pytest.mark.parametrize("strategy", [LAX_GREEDY, BACKWARD_COMPATIBLE])
def test_other_strategies_meet_demand_too(strategy: Strategy) -> None:
    for seed in range(60):
        result = simulate(drawn(seed, strategy))
        assert result.met, _story(result, f"seed {seed}: demand is never met")
        assert not result.removed, _story(result, f"seed {seed}: running nodes were removed")


def test_a_case_is_the_same_each_time() -> None:
    assert drawn(7) == drawn(7)
    assert simulate(drawn(7)).trace == simulate(drawn(7)).trace


def _one_zone(pods: int, zone: int, *, at: int = 600) -> tuple[Demand, ...]:
    return (Demand(at=at, free=0, bound=tuple(pods * (index == zone) for index in range(3))),)


DAY = 24 * 3600
BUT_ONE = [tuple(4 - (index == zone) for index in range(3)) for zone in range(3)]  # nodes: all but one of 12
# Zone a has failed; its probe takes the only node of headroom, and no waiting pod may run there any more.
PROBED = tuple(
    Demand(at=at, free=0, bound=bound) for at, bound in ((600, (1, 6, 5)), (900, (0, 6, 5)), (1500, (0, 6, 6)))
)


def _quiet_day(zone: int) -> Case:
    demand = (Demand(at=0, free=0, bound=BUT_ONE[zone]), Demand(at=DAY, free=0, bound=(4, 4, 4)))
    return Case(maximum=12, nodes=BUT_ONE[zone], demand=demand, scan=300)


ORDERED_IN_TIME = [
    # A scan, one and a half loops of the record for the others to move, and two loops of the autoscaler's.
    *(
        (Case(maximum=120, loop=loop, demand=_one_zone(100, zone)), 75 + 2 * loop)
        for zone in (0, 1, 2)
        for loop in LOOPS
    ),
    # Checks that other pools cause lower no max before the autoscaler has read it.
    *((Case(maximum=120, others=others, demand=_one_zone(100, 1)), 60) for others in (2, 5, 15)),
    # The last nodes stay where a pool grows.
    (Case(maximum=100, demand=_one_zone(100, 2)), 60 + 2 * (15 + 2 * 10)),
]


@pytest.mark.parametrize(("case", "seconds"), ORDERED_IN_TIME, ids=str)
def test_what_one_zone_needs_is_ordered_in_time(case: Case, seconds: int) -> None:
    result = simulate(case)
    assert result.last_order is not None, _story(result, "never ordered")
    assert result.last_order - 600 <= seconds, _story(result, "late")


MET_IN_TIME = [
    *((Case(maximum=most, demand=_one_zone(most, zone)), 0, None) for most in (3, 30, 100) for zone in (0, 1, 2)),
    # A zone that did not grow gets the last nodes in its turn.
    (
        Case(
            maximum=12,
            nodes=(6, 4, 0),
            demand=tuple(Demand(at=at, free=0, bound=(pods, 4, 0)) for at, pods in ((0, 6), (600, 8))),
        ),
        600,
        None,
    ),
    # A round of the last node through three zones at most; a failure is forgotten only after three hours.
    *(
        (Case(maximum=12, refusing=(Span(zone=0, start=0, end=None),), demand=PROBED, seed=seed), 1500, 3600)
        for seed in range(6)
    ),
    # After a day of quiet a turn takes an hour, and it may have to come around.
    *((_quiet_day(zone), DAY, 3 * 3600 + 300) for zone in (0, 1, 2)),
]


@pytest.mark.parametrize(("case", "since", "seconds"), MET_IN_TIME, ids=str)
def test_the_last_nodes_reach_the_zone_that_needs_them(case: Case, since: int, seconds: int | None) -> None:
    result = simulate(case)
    assert result.met_at is not None, _story(result, "never met")
    assert seconds is None or result.met_at - since <= seconds, _story(result, "late")


def test_demand_beyond_the_maximum_does_not_pass_it() -> None:
    result = simulate(Case(maximum=30, demand=(Demand(at=600, free=90, bound=(0, 0, 0)),), beyond=60))
    assert result.met, _story(result, "never met")
    assert not result.passed
    assert sum(result.running) == 30


def test_the_simulation_reports_a_passed_maximum() -> None:
    # Lax-Greedy offers the same headroom to every zone at once, which Balanced avoids.
    demand = (Demand(at=600, free=90, bound=(0, 0, 0)),)
    result = simulate(Case(maximum=30, strategy=LAX_GREEDY, demand=demand, beyond=60))
    assert result.passed
