"""The cost of first fit if pods depend on others, in instructions, compared with a fixed amount of plain Python."""

from functools import partial

import pytest

from bench.planning import TRAITS, growth, reference_work
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy
from evenkeel.domain.model.workload import ZONE, Owner, TopologySpreadConstraint, Workload
from tests.builders import NOW
from tests.unit.rebalancing.test_plan_cost import instructions
from tests.workloads import pod, pool_offer, selector, template

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


def _scale_up_of(pools: int) -> None:
    """Order nodes in pools that have their own pods: those of an app that spreads, and of one that does not."""
    offers, pods = [], []
    for name in (f"pool-{number:02}" for number in range(pools)):
        offers.append(pool_offer(name, template=template({"pool": name})))
        for app, spreads in ((f"{name}-spread", True), (name, False)):
            constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector(f"app in {app}"))
            fields = {"node_selector": {"pool": name}, "labels": {"app": app}, "owner": Owner("ReplicaSet", app)}
            pods += [
                pod(f"{app}-{number}", cpu="1", spread=(constraint,) if spreads else (), **fields)
                for number in range(12)
            ]
    answer = scale_up(Simulation(Workload(pods=tuple(pods)), tuple(offers), DemandPolicy(), NOW))
    assert len(answer.pools) == pools
    assert all(demand.nodes for demand in answer.pools)


def test_first_fit_of_pools_with_their_own_pods_grows_with_the_pools() -> None:
    few, many = (instructions(partial(_scale_up_of, pools)) / pools for pools in (6, 18))
    # Each further pool is compared with the others. None is packed again because another one gets nodes.
    assert many < 1.6 * few
