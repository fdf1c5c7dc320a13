"""Demand's part in planning: advice for every pool, and the orders and removals that follow from the advice.

Many plans read no pods. So the modules that place pods are imported where they are used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from evenkeel.domain.demand.offers import offer_of, untouched
from evenkeel.domain.demand.orders import (
    nodes_for_released,
    orders_for_pods,
    removals_of_unneeded,
    scale_down_state,
    with_clocks,
)
from evenkeel.domain.model.choices import DemandStage, Level
from evenkeel.domain.model.demand import DemandFacts, PoolAdvice, PoolOffer, ScaleDownState
from evenkeel.domain.model.drafts import PoolDraft, PoolInput
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import FOR_PODS, ScaleRequest
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, InvalidPool, unknown_in
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.capability import (
    Capability,
    Extension,
    Inputs,
    Planned,
    PlannedPool,
    Point,
)
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.domain.rebalancing.restore import is_restored

if TYPE_CHECKING:
    from evenkeel.domain.demand.advice import Advised


def keep_unplaceable(pool: PoolDraft) -> None:
    """Set the nodes that a request to remove nodes must keep, because Evenkeel cannot place their pods elsewhere."""
    pool.request.pods_unread = pool.observation.workload_unread is not None
    if pool.request.current is not None and pool.request.current.gives_number:
        from evenkeel.domain.demand.drainability import kept_nodes

        pool.request.kept = kept_nodes(pool.observation, pool.now)


def offers_of(check: Check, planned: Iterable[PlannedPool]) -> list[tuple[PoolPlan, PoolOffer]]:
    """Return the plan and the offer of each pool, except pools that are being restored.

    A dry-run pool gets no nodes while another pool is live. Otherwise pods assigned to it would wait for ever, although
    the live pool could get a node for them.
    """
    offered = [pool for pool in planned if not is_restored(pool.plan.id, check.policy)]
    dry = {pool.plan.id for pool in offered if is_pool_dry(pool.pool.dry_run, check.policy.is_dry)}
    has_live = len(dry) < len(offered)
    return [(pool.plan, _offer_of(pool, is_dry=has_live and pool.plan.id in dry)) for pool in offered]


def _offer_of(planned: PlannedPool, *, is_dry: bool) -> PoolOffer:
    if planned.draft is None:
        is_invalid = isinstance(planned.pool, InvalidPool)
        return untouched(planned.pool, Rule.POOL_INVALID if is_invalid else Rule.FEW_MEMBERS)
    if is_dry or planned.draft.opens:
        return untouched(planned.pool, Rule.CLUSTER_DRY_RUN if planned.pool.dry_run is None else Rule.POOL_DRY_RUN)
    return offer_of(planned.draft)


def _assume(check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of pools for which no pod waits and no node is unneeded, as in most checks.

    The advice is computed from the first plan. So an assumption must not change this plan's requests and removals. With
    a request, or with leveled minima of a strategy that publishes them, it could.
    """
    policy, workload = check.policy, check.observation.workload
    if policy.demand is DemandStage.OFF or workload is None:
        return {}
    from evenkeel.domain.demand.advice import expects_advice, pods_decide

    advised = [pool for pool in pools if not is_restored(pool.id, policy)]
    ids = [pool.id for pool in advised]
    assumed = {}
    if policy.demand.orders and pods_decide(check.observation, ids, policy.demand, check.now):
        inputs = {id: given._replace(orders_for_pods=True) for id, given in inputs.items()}
        assumed = {id: inputs[id] for id in ids}
    if not expects_advice(check.observation, ids, policy.demand, check.now):
        return assumed
    for pool in advised:
        if inputs[pool.id].request is None and not (pool.settings.strategy.publishes_minima and _is_levelled(pool)):
            is_judged = policy.demand.judges_nodes and workload.whole and any([group.running for group in pool.groups])
            unneeded = () if is_judged and _is_levelled(pool) else None
            assumed[pool.id] = inputs[pool.id]._replace(demand=DemandFacts({}, unneeded, pool.state.orders, {}))
    return assumed


def _is_levelled(pool: AnyPool) -> bool:
    return pool.settings.level is not Level.OFF or pool.convergence_requested is not None


def _facts(pool: AnyPool, advice: PoolAdvice, given: PoolInput) -> DemandFacts:
    """Return the advice that the pool's plan depends on. Only few rules depend on unneeded nodes."""
    asked = advice.asked
    awaited = None if advice.not_counted else {str(group): nodes for group, nodes in asked.nodes.items()}
    is_judged = bool(advice.nodes) and (_is_levelled(pool) or given.pods_decide)
    unneeded = tuple(node for node in advice.nodes if node.needed is None) if is_judged else None
    return DemandFacts(awaited, unneeded, asked.orders, asked.orders_after)


def _advise(check: Check, planned: Planned, inputs: Inputs) -> tuple[Inputs, Extension]:
    """Return the pools' inputs with their advice and requests, and the function that extends the plan."""
    advised = _advised(check, planned)
    extension = partial(_with_demand, check, advised)
    if advised is None:
        return {}, extension
    unadvised = {id: given._replace(demand=None) for id, given in inputs.items() if id not in advised.pools}
    requests = {id: given.request for id, given in inputs.items() if given.request is not None}
    orders = _orders(advised, requests, check.policy, check.now)
    return unadvised | {
        id: given._replace(demand=_facts(planned[id].pool, advice, given), request=orders.get(id, given.request))
        for id, advice in advised.pools.items()
        for given in [inputs[id]]
    }, extension


def _advised(check: Check, planned: Planned) -> "Advised | None":
    """Return the advice that fits these plans; None: demand is off, or the check was not meant to read pods."""
    observation, policy = check.observation, check.policy
    if policy.demand is DemandStage.OFF or (observation.workload is None and observation.workload_unread is None):
        return None
    from evenkeel.domain.demand.advice import advise

    offers = [offer for _, offer in offers_of(check, planned.values())]
    clocks = scale_down_state(check.state, check.now) if policy.demand.removes else ScaleDownState()
    advised = advise(observation, offers, policy.demand, clocks, check.now, policy.pool_order)
    unknown = unknown_in(policy.pool_order, planned)
    return replace(advised, cluster=replace(advised.cluster, unknown_order=unknown)) if unknown else advised


def _orders(
    advised: "Advised", requests: Mapping[PoolId, ScaleRequest], policy: Policy, now: datetime
) -> dict[PoolId, ScaleRequest]:
    """Return the requests for pods. If there are none, return the removals.

    While pods need new nodes, no node is removed, because the pods may need it.
    """
    orders = orders_for_pods(advised, requests, now) if policy.demand.orders else {}
    return orders or (removals_of_unneeded(advised, requests, now) if policy.demand.removes else {})


def _answer(check: Check, planned: Planned, inputs: Inputs) -> Inputs:
    """Return the inputs with the number of released nodes that pending pods need, for pools that depend on it."""
    if check.observation.workload is None or not any(pool.plan.release.asks_waiting for pool in planned.values()):
        return {}
    waited_for, unmet = nodes_for_released(check.observation, offers_of(check, planned.values()), check.now)
    return {id: inputs[id]._replace(waited_for=nodes, pods_unmet=unmet) for id, nodes in waited_for.items()}


def _with_demand(check: Check, advised: "Advised | None", plan: Plan) -> Plan:
    """Return the plan with its advice, and with the clocks of unneeded nodes in the states to store."""
    clocks = with_clocks(check.state.groups, advised, check.observation, check.policy)
    if clocks:
        plan = replace(plan, states={**plan.states, **clocks})
    if advised is None:
        return plan
    moments = [moment for moment in (plan.check_at, advised.check_at) if moment is not None]
    return replace(
        plan,
        pools=tuple(
            replace(pool, demand=replace(pool.demand, advice=_advice_of(pool, advised))) for pool in plan.pools
        ),
        demand=advised.cluster,
        check_at=min(moments, default=None),
    )


def _advice_of(pool: PoolPlan, advised: "Advised") -> PoolAdvice | None:
    """Return the advice for a pool, with marks on the orders and removals that this plan makes; None: no advice."""
    advice, request = advised.pools.get(pool.id), pool.request.current
    if advice is None:
        return None
    removed = {ref for group in pool.groups for ref in group.removal.machines}
    machines = {removal.node: removal.machine for removal in advised.idle.go} if advised.idle is not None else {}
    return replace(
        advice,
        is_ordered=request is not None and request.id == FOR_PODS and request.nodes > 0,
        nodes=tuple(
            replace(node, goes=machines[node.node] in removed) if node.node in machines else node
            for node in advice.nodes
        ),
    )


DEMAND = Capability(steps={Point.START: keep_unplaceable}, assume=_assume, advise=_advise, answer=_answer)
