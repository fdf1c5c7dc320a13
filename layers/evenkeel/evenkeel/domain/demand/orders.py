"""From what pods ask for to requests for nodes, which are carried out as everybody's are: journal, limits, fences.

What was ordered is not remembered. It is requested, and what is requested and not there yet is on its way: pods with
room on it ask for nothing more. So a run that dies at any step, a message that comes twice and a look that comes late
lead to the same nodes, and to no second ones.

    look    pods 3, on their way 0  ->  order 3: journal, a +2, (crash)
    look    pods 3, on their way 2  ->  order 1
"""

from collections.abc import Mapping
from datetime import datetime

from evenkeel.domain.demand.advice import Advised
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import FOR_PODS, ScaleRequest


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
