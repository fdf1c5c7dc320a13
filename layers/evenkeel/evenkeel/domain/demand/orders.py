"""Requests that add or remove nodes according to demand's advice, and the unneeded clocks that a plan stores.

Journal, limits and fences apply to these requests as to all others. An order for pods is not stored, because the next
check finds its nodes: a requested node that does not exist yet counts as upcoming. No further node is ordered for pods
that fit an upcoming node. So a crash at any step, a repeated message or a late check does not change which nodes are
ordered.

    check   pods 3, upcoming 0  ->  order 3: journal, a +2, (crash)
    check   pods 3, upcoming 2  ->  order 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import PoolDemand, PoolOffer, Removal, ScaleDownState
from evenkeel.domain.model.groups import GroupKey, MachineRef, NodeGroup, PoolId
from evenkeel.domain.model.moves import FOR_PODS, UNNEEDED_NODES, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import ClusterState, GroupState, Release

if TYPE_CHECKING:
    from evenkeel.domain.demand.advice import Advised

# A pod that does not count as demand for one of these reasons may nevertheless need a node.
_UNDECIDED = frozenset(
    {
        Rule.POD_NOT_TRIED_YET,
        Rule.POD_YOUNG,
        Rule.POD_OF_OTHER_SCHEDULER,
        Rule.POD_NEEDS_DEVICES,
        Rule.POD_NEEDS_UNKNOWN,
        Rule.POD_OF_UNKNOWN_VOLUME,
    }
)
_UNKNOWN_NODES = frozenset({Rule.FRESH_NODE_UNKNOWN, Rule.UNKNOWN_AT_ZERO, Rule.UNREAD_AT_ZERO, Rule.UNSEEN_AT_ZERO})
# Cluster-autoscaler orders no node in a group that lacks more nodes than the larger of two limits: a number of nodes,
# and a share of the running nodes (--ok-total-unready-count, --max-total-unready-percentage; clusterstate.go,
# IsNodeGroupHealthy).
_MISSING_NODES, _MISSING_SHARE = 3, 0.45


# ---------------------------------------------------------------- requests


def orders_for_pods(
    advised: "Advised", requests: Mapping[PoolId, ScaleRequest], now: datetime
) -> dict[PoolId, ScaleRequest]:
    """Return a request for each pool from which pending pods need nodes.

    A run carries out one request per pool. An operator's request precedes a request for pods. If max_step has divided
    the operator's request, a request for pods precedes its remaining part.
    """
    orders = {}
    for pool, advice in advised.pools.items():
        request = requests.get(pool)
        if advice.asked.nodes and (request is None or request.is_of_plan or request.is_rest):
            shares = {str(group): nodes for group, nodes in advice.asked.nodes.items()}
            orders[pool] = ScaleRequest(id=FOR_PODS, nodes=sum(shares.values()), at=now, pool=str(pool), shares=shares)
    return orders


def removals_of_unneeded(
    advised: "Advised", requests: Mapping[PoolId, ScaleRequest], now: datetime
) -> dict[PoolId, ScaleRequest]:
    """Return a request for each pool with unneeded nodes to remove. The request removes exactly these nodes."""
    removals: dict[PoolId, list[Removal]] = {}
    for removal in advised.idle.go if advised.idle is not None else ():
        request = requests.get(removal.pool)
        if request is None or request.is_of_plan:
            removals.setdefault(removal.pool, []).append(removal)
    return {pool: _removal_request(pool, of_pool, now) for pool, of_pool in removals.items()}


def _removal_request(pool: PoolId, removals: Sequence[Removal], now: datetime) -> ScaleRequest:
    machines: dict[str, tuple[MachineRef, ...]] = {}
    for removal in removals:
        if removal.machine is not None:
            key = str(removal.group)
            machines[key] = (*machines.get(key, ()), removal.machine)
    count = sum(map(len, machines.values()))
    return ScaleRequest(id=UNNEEDED_NODES, nodes=-count, at=now, pool=str(pool), machines=machines)


# ---------------------------------------------------------------- released nodes


def nodes_for_released(
    observation: Observation, pools: Sequence[tuple[PoolPlan, PoolOffer]], now: datetime
) -> tuple[dict[PoolId, dict[str, int]], bool]:
    """Return how many of the released nodes the pending pods need, by pool and group, and if other pods wait.

    A pool is left out if its number is unknown, because pods were not read or some pods cannot be placed. Only groups
    that take nodes get them, at most as many as were released and not ordered again. Pods are first placed on
    existing and upcoming nodes of any pool.
    """
    from evenkeel.domain.demand.advice import advise

    offers = [_released_only(plan, offer) for plan, offer in pools]
    advised = advise(observation, offers, DemandStage.OFF, ScaleDownState(), now)
    if advised.cluster.unread is not None or advised.cluster.check_again is not None:
        return {}, False
    asked = {plan.id: advised.pools[plan.id].asked for plan, _ in pools if plan.release.asks_waiting}
    is_decided = not any(pod.reason.rule in _UNDECIDED for pod in advised.cluster.not_counted)
    waited_for = {
        id: {str(group): nodes for group, nodes in pool.nodes.items()}
        for id, pool in asked.items()
        if pool.nodes or (is_decided and not _has_unknown_nodes(pool))
    }
    return waited_for, bool(advised.cluster.unmet)


def _has_unknown_nodes(pool: PoolDemand) -> bool:
    reasons = [reason for pods in pool.unfit for reason in (pods.reason, *pods.by_group.values())]
    return any(reason.rule in _UNKNOWN_NODES for reason in reasons)


def _released_only(plan: PoolPlan, offer: PoolOffer) -> PoolOffer:
    release = plan.next_state.release
    # Once Evenkeel has ordered all released nodes again, the autoscaler orders any further nodes that pods need.
    ordered = release if release is not None and release.ordered and not plan.release.not_reordered else None
    broken = {group.group.key for group in plan.groups if ordered is not None and _seems_broken(group.group, ordered)}
    room = offer.room if ordered else min(offer.room, plan.release.not_reordered)
    return replace(
        offer,
        room=room if plan.release.asks_waiting else 0,
        groups=tuple(
            replace(group, room=0 if group.group in broken else min(group.room, group.takes)) for group in offer.groups
        ),
    )


def _seems_broken(group: NodeGroup, release: Release) -> bool:
    """Return True if an autoscaler may refuse to order nodes in a group, because the group lacks too many nodes.

    An autoscaler does not count its own recent orders as missing nodes. But it forgets its orders when it restarts, so
    this function counts all upcoming nodes as missing.
    """
    return release.awaited(group) > max(_MISSING_NODES, _MISSING_SHARE * group.running)


# ---------------------------------------------------------------- unneeded clocks


def scale_down_state(state: ClusterState, now: datetime) -> ScaleDownState:
    """Return the stored clocks, and the times of the last growth and of the last failed removal.

    A time in the future counts as now.
    """
    clocks = {name: min(since, now) for group in state.groups.values() for name, since in group.unneeded.items()}
    grew = (pool.grew_at for pool in state.pools.values() if pool.grew_at is not None)
    # A removal failed if the API server rejected a write to a group with a marked machine.
    refused = (group.contest.write_refused_at for group in state.groups.values() if group.marked)
    failed = (at for at in refused if at is not None)
    return ScaleDownState(
        clocks=clocks,
        grew_at=min(max(times), now) if (times := list(grew)) else None,
        failed_at=min(max(times), now) if (times := list(failed)) else None,
    )


def with_clocks(
    before: Mapping[GroupKey, GroupState], advised: "Advised | None", observation: Observation, policy: Policy
) -> dict[GroupKey, GroupState]:
    """Return the new states of the groups in which a clock starts or ends.

    Clocks are stored by group, so that a new clock rewrites the clocks of one group only. A check that has not read the
    nodes changes no clock. If the policy does not allow removals, all clocks end.
    """
    clocks: dict[GroupKey, dict[str, datetime]] = {}
    if policy.demand.removes:
        if advised is None or advised.idle is None or observation.workload is None:
            return {}
        groups = {node.name: node.group for node in observation.workload.nodes}
        for name, since in sorted(advised.idle.clocks.items()):
            if (group := groups.get(name)) is not None:
                clocks.setdefault(group, {})[name] = since
    running = {key for key, state in before.items() if state.unneeded}
    states = {key: (before.get(key, GroupState()), clocks.get(key, {})) for key in sorted(running | clocks.keys())}
    return {key: replace(state, unneeded=own) for key, (state, own) in states.items() if dict(state.unneeded) != own}
