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
from evenkeel.domain.model.demand import PoolDemand, PoolOffer, Removal, ScaleDownState
from evenkeel.domain.model.groups import MachineRef, NodeGroup, PoolId, State
from evenkeel.domain.model.moves import FOR_PODS, UNNEEDED_NODES, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import Release

# Another scheduler, or the same one a moment later, may find that these pods need a node.
_UNJUDGED = frozenset(
    {
        Rule.POD_NOT_TRIED_YET,
        Rule.POD_YOUNG,
        Rule.POD_OF_OTHER_SCHEDULER,
        Rule.POD_NEEDS_DEVICES,
        Rule.POD_NEEDS_UNKNOWN,
        Rule.POD_OF_UNKNOWN_VOLUME,
    }
)
# Nodes that an autoscaler allows to be missing in a group.
_MISSING_NODES, _MISSING_SHARE = 3, 0.45
_UNKNOWN_NODES = frozenset({Rule.FRESH_NODE_UNKNOWN, Rule.CPU_AND_MEMORY_UNKNOWN})


def orders_for_pods(
    advised: Advised, requests: Mapping[PoolId, ScaleRequest], now: datetime
) -> dict[PoolId, ScaleRequest]:
    """Return a request for each pool that pods ask for nodes.

    A pool carries out one request in a run: an operator's goes first, but its rest after max_step goes after pods.
    """
    orders = {}
    for pool, said in advised.pools.items():
        under_way = requests.get(pool)
        if said.asked.nodes and (under_way is None or under_way.is_of_plan or under_way.is_rest):
            shares = {str(group): nodes for group, nodes in said.asked.nodes.items()}
            orders[pool] = ScaleRequest(id=FOR_PODS, nodes=sum(shares.values()), at=now, pool=str(pool), shares=shares)
    return orders


def nodes_for_released(
    observation: Observation, pools: Sequence[tuple[PoolPlan, PoolOffer]], now: datetime
) -> dict[PoolId, dict[str, int]]:
    """Return the nodes that waiting pods want of those that pools released, by group.

    A pool is left out where this is unknown: pods were not read, or some of them cannot be judged.

    Only healthy groups of these pools are asked, for as many as were released and not ordered again. What is on its way
    anywhere serves its pods first.
    """
    offers = [_only_released(plan, offer) for plan, offer in pools]
    advised = advise(observation, offers, DemandStage.OFF, ScaleDownState(), now)
    if advised.cluster.unread is not None or advised.cluster.look_again is not None:
        return {}
    asked = {plan.id: advised.pools[plan.id].asked for plan, _ in pools if plan.asks_waiting}
    is_judged = not any(pod.reason.rule in _UNJUDGED for pod in advised.cluster.not_counted)
    return {
        id: {str(group): nodes for group, nodes in pool.nodes.items()}
        for id, pool in asked.items()
        if pool.nodes or (is_judged and not _has_unknown_nodes(pool))
    }


def _has_unknown_nodes(pool: PoolDemand) -> bool:
    reasons = [reason for pods in pool.unfit for reason in (pods.reason, *pods.by_group.values())]
    return any(reason.rule in _UNKNOWN_NODES for reason in reasons)


def _only_released(plan: PoolPlan, offer: PoolOffer) -> PoolOffer:
    ordered = _ordered(plan)
    able = {
        group.group.key
        for group in plan.groups
        if group.state is State.HEALTHY and (ordered is None or not _seems_broken(group.group, ordered))
    }
    return replace(
        offer,
        room=_room(plan, offer) if plan.asks_waiting else 0,
        groups=tuple(group if group.group in able else replace(group, room=0) for group in offer.groups),
    )


def _ordered(plan: PoolPlan) -> Release | None:
    """Return the release that Evenkeel has ordered again whole: the autoscaler orders what pods want beyond it."""
    release = plan.remembered.release
    return release if release is not None and release.ordered and not plan.untaken else None


def _room(plan: PoolPlan, offer: PoolOffer) -> int:
    """Return what is left of the release; once it is ordered, what the pool has room for."""
    return offer.room if _ordered(plan) else min(offer.room, plan.untaken)


def _seems_broken(group: NodeGroup, release: Release) -> bool:
    """Return True if an autoscaler may give a group no order, because too many nodes are missing.

    It does not miss what it has ordered itself, but a restart forgets that: here all of it counts. Cluster Autoscaler
    allows 3, or 45 % of the nodes (--ok-total-unready-count, --max-total-unready-percentage; clusterstate.go,
    IsNodeGroupHealthy).
    """
    return release.awaited(group) > max(_MISSING_NODES, _MISSING_SHARE * group.running)


def removals_of_unneeded(
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
    return ScaleRequest(id=UNNEEDED_NODES, nodes=-count, at=now, pool=str(pool), machines=machines)
