"""What first fit costs if pods depend on others, in instructions that a fixed amount of plain Python bounds."""

from functools import partial

import pytest

from bench.planning import TRAITS, growth, reference_work
from tests.unit.rebalancing.test_plan_cost import instructions

# Instructions of scale_up() for each pod, of 1,000 in the reference work (``reference_work``), as last recorded.
COST = {
    "no kind spread over zones": 44,
    "every tenth kind spread over zones": 65,
    "a mix": 75,
    "every kind spread over zones": 131,
}


@pytest.mark.parametrize("size", [1, 3])
def test_first_fit_costs_no_more_for_each_pod_than_recorded(size: int) -> None:
    reference = instructions(partial(reference_work, 50)) / 1_000
    pods = 400 * size
    cost = {
        title: instructions(growth(pods, 40 * size, 5, traits)) / pods / reference for title, traits in TRAITS.items()
    }
    assert cost.keys() == COST.keys()
    assert {title: value / COST[title] for title, value in cost.items() if value > 1.25 * COST[title]} == {}
