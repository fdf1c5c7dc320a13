"""The request that a pool carries out among those of pods, unneeded nodes and an operator; and valid clocks."""

from datetime import datetime
from typing import Any

from evenkeel.domain.demand.advice import Advised
from evenkeel.domain.demand.orders import removals_of_unneeded, scale_down_state
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import Advice, Removal, Unneeded
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.moves import FOR_PODS, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import PoolRule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Node, Pod, Workload
from evenkeel.domain.plan import plan
from tests.builders import MINUTE, NOW, group, key, numbers
from tests.parts import replace
from tests.workloads import LONG_AGO, node, pod, pool_id, template

RECORD = replace(
    numbers(0, 100),
    autoscaler=False,
    demand=DemandStage.FULL,
    pools=tuple(PoolRule(name=name, min=0, max=100) for name in ("workers", "spare")),
)


def pool_of(name: str, zone: str, nodes: int) -> tuple[list[NodeGroup], list[Node]]:
    """Return a pool of one group with its nodes, each with its machine."""
    machines = tuple(
        Machine(name=f"{name}-{i}", uid=f"uid-{name}-{i}", has_node=True, created_at=LONG_AGO) for i in range(nodes)
    )
    member = group(zone, nodes, pool=name, key=key(zone, pool=name), template=template(), machines=machines)
    there = [node(machine.name, zone, group=member.key, created_at=LONG_AGO, machine=machine) for machine in machines]
    return [member], there


def planned(*pods: Pod, request: ScaleRequest | None = None, clocks: dict[str, datetime] | None = None) -> Plan:
    """Return the plan for pool `workers` (one node) and pool `spare` (two nodes), all nodes unneeded for hours."""
    groups, nodes = pool_of("workers", "a", 1)
    spare, unneeded = pool_of("spare", "b", 2)
    members, there = [*groups, *spare], [*nodes, *unneeded]
    since = {each.name: LONG_AGO for each in there} if clocks is None else clocks
    states = {
        member.key: GroupState(unneeded={each.name: since[each.name] for each in there if each.group == member.key})
        for member in members
    }
    state = ClusterState(groups=states, scale_requests=() if request is None else (request,))
    found = Observation(groups=tuple(members), workload=Workload(nodes=tuple(there), pods=pods))
    return plan(found, state, RECORD, NOW)


def changes(found: Plan) -> dict[str, int]:
    """Return by how many nodes each pool changes, where it does."""
    return {
        pool.id.name: sum(more)
        for pool in found.pools
        if any(more := [each.requested - each.group.requested for each in pool.groups])
    }


def test_unneeded_nodes_go_when_no_pod_waits() -> None:
    assert changes(planned()) == {"workers": -1, "spare": -2}


def test_no_node_of_any_pool_goes_in_the_check_that_orders_one() -> None:
    large: dict[str, Any] = {"cpu": "3", "node_selector": {"topology.kubernetes.io/zone": "a"}}
    full = pod("full", node="workers-0", **large)
    assert changes(planned(full)) == {"spare": -2}
    assert changes(planned(full, pod("waiting", **large))) == {"workers": 1}


def test_an_operators_request_precedes_pods_and_removals() -> None:
    request = ScaleRequest(id="r1", nodes=2, at=NOW, pool="spare")
    found = planned(request=request)
    assert changes(found)["spare"] == 2
    (spare,) = (pool for pool in found.pools if pool.id.name == "spare")
    assert spare.request.current is not None
    assert spare.request.current.id == "r1"


def test_a_pool_with_an_operators_request_gives_no_node_back_beside_it() -> None:
    """The plan closes such a pool to removals earlier, so this checks the guard alone."""
    idle = Unneeded(go=tuple(Removal(node=name, pool=pool_id(name), group=key("a")) for name in "xy"))
    advised = Advised(cluster=Advice(), pools={}, idle=idle)
    operators, own = (ScaleRequest(id=id, nodes=1, at=NOW, pool="x") for id in ("r1", FOR_PODS))
    assert removals_of_unneeded(advised, {pool_id("x"): operators}, NOW).keys() == {pool_id("y")}
    assert removals_of_unneeded(advised, {pool_id("x"): own}, NOW).keys() == {pool_id("x"), pool_id("y")}


def test_a_clock_in_the_future_counts_from_now() -> None:
    later = NOW + 5 * MINUTE
    state = ClusterState(groups={key("a"): GroupState(unneeded={"n": later, "m": LONG_AGO})})
    assert scale_down_state(state, NOW).clocks == {"n": NOW, "m": LONG_AGO}
    assert "workers" not in changes(planned(clocks={"workers-0": later, "spare-0": later, "spare-1": later}))
