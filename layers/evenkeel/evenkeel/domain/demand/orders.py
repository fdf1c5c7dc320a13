"""From what pods need to requests for nodes, which are carried out as everybody's are: journal, limits, fences.

What was ordered is not remembered. It is requested, and what is requested and not there yet is on its way: pods with
room on it ask for nothing more. So a run that dies at any step, a message that comes twice and a look that comes late
lead to the same nodes, and to no second ones.

    look    pods 3, on their way 0  ->  order 3: journal, a +2, (crash)
    look    pods 3, on their way 2  ->  order 1
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from evenkeel.domain.demand.advice import Advised
from evenkeel.domain.model.demand import Removal
from evenkeel.domain.model.groups import MachineRef, PoolId
from evenkeel.domain.model.moves import FOR_NOBODY, FOR_PODS, ScaleRequest


def orders_for_pods(
    advised: Advised, requests: Mapping[PoolId, ScaleRequest], now: datetime
) -> dict[PoolId, ScaleRequest]:
    """A request for each pool that pods ask for nodes. One at a time: somebody's own goes first."""
    orders = {}
    for pool, said in advised.pools.items():
        under_way = requests.get(pool)
        if said.asked.nodes and (under_way is None or under_way.is_of_plan):
            shares = {str(group): nodes for group, nodes in said.asked.nodes.items()}
            orders[pool] = ScaleRequest(id=FOR_PODS, nodes=sum(shares.values()), at=now, pool=str(pool), shares=shares)
    return orders


def removals_for_nobody(
    advised: Advised, requests: Mapping[PoolId, ScaleRequest], now: datetime
) -> dict[PoolId, ScaleRequest]:
    """A request to give back exactly the nodes that nobody needs, for each pool that has some."""
    removals: dict[PoolId, list[Removal]] = {}
    for removal in advised.idle.go if advised.idle is not None else ():
        under_way = requests.get(removal.pool)
        if under_way is None or under_way.is_of_plan:
            removals.setdefault(removal.pool, []).append(removal)
    return {pool: _given_back(pool, going, now) for pool, going in removals.items()}


def _given_back(pool: PoolId, going: Sequence[Removal], now: datetime) -> ScaleRequest:
    machines: dict[str, tuple[MachineRef, ...]] = {}
    for removal in going:
        if removal.machine is not None:
            key = str(removal.group)
            machines[key] = (*machines.get(key, ()), removal.machine)
    count = sum(map(len, machines.values()))
    return ScaleRequest(id=FOR_NOBODY, nodes=-count, at=now, pool=str(pool), machines=machines)
