"""From what pods need to requests for nodes, which are carried out as everybody's are: journal, limits, fences.

What was ordered is not remembered. It is requested, and what is requested and not there yet is on its way: pods with
room on it ask for nothing more. So a run that dies at any step, a message that comes twice and a look that comes late
lead to the same nodes, and to no second ones.

    look    pods 3, on their way 0  ->  order 3: journal, a +2, (crash)
    look    pods 3, on their way 2  ->  order 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.demand.advice import Advised, advise
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import PoolOffer, Removal, Shrinking
from evenkeel.domain.model.groups import MachineRef, Observation, PoolId, State
from evenkeel.domain.model.moves import FOR_NOBODY, FOR_PODS, ScaleRequest
from evenkeel.domain.model.plans import PoolPlan


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


def nodes_for_released(
    observation: Observation, pools: Sequence[tuple[PoolPlan, PoolOffer]], now: datetime
) -> dict[PoolId, dict[str, int]]:
    """Return the nodes that waiting pods want of those that pools released, by group; nothing where nobody knows.

    Only healthy groups of these pools are asked, for as many as were released and not ordered again. What is on its way
    anywhere serves its pods first.
    """
    offers = [_only_released(plan, offer) for plan, offer in pools]
    advised = advise(observation, offers, DemandStage.OFF, Shrinking(), now)
    if advised.cluster.unread is not None or advised.cluster.look_again is not None:
        return {}
    asking = [plan.id for plan, _ in pools if plan.asks_waiting]
    return {id: {str(group): nodes for group, nodes in advised.pools[id].asked.nodes.items()} for id in asking}


def _only_released(plan: PoolPlan, offer: PoolOffer) -> PoolOffer:
    healthy = {group.group.key for group in plan.groups if group.state is State.HEALTHY}
    return replace(
        offer,
        room=min(offer.room, plan.untaken) if plan.asks_waiting else 0,
        groups=tuple(group if group.group in healthy else replace(group, room=0) for group in offer.groups),
    )


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
