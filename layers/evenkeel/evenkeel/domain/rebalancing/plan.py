"""The pipeline of a plan: find pools, evaluate their health, assign requests, plan each pool.

Capabilities plug in at the points of ``capability.Capability``. The pipeline itself imports no capability.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evenkeel.domain.model.drafts import PoolInput
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.zone_names import with_zone_labels
from evenkeel.domain.rebalancing.bounds.exact_fences import with_exact_fences
from evenkeel.domain.rebalancing.bounds.owners import with_write_consent, without_foreign, without_unread
from evenkeel.domain.rebalancing.capability import Capability, Extension, Inputs, Planned
from evenkeel.domain.rebalancing.health.never_ready import with_never_ready
from evenkeel.domain.rebalancing.health.observed import changed_states
from evenkeel.domain.rebalancing.health.provision_times import learn, nodes_by_group
from evenkeel.domain.rebalancing.health.states import by_clock_of_cluster, fenced_groups
from evenkeel.domain.rebalancing.health.unhealthy import with_unhealthy
from evenkeel.domain.rebalancing.membership.known_sizes import with_known_sizes
from evenkeel.domain.rebalancing.membership.members import compare_pools
from evenkeel.domain.rebalancing.membership.pausing import freeze_pools, needs_opening
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.domain.rebalancing.pool_plan import PoolPlanner, plan_absent
from evenkeel.domain.rebalancing.replicas.request_queue import assign_requests, retry_times
from evenkeel.domain.rebalancing.restore import is_restored, with_left_groups


def run_pipeline(check: Check, capabilities: Sequence[Capability]) -> Plan:
    """Return the plan of a check with these capabilities."""
    observation = with_zone_labels(check.observation, check.state.zones)
    observation = without_unread(with_write_consent(observation, check.policy), check.state)
    check = check._replace(observation=observation, state=by_clock_of_cluster(check.state, observation.clock_skew))
    stored, policy, now = check.state, check.policy, check.now
    pools, left_out = find_pools(observation.groups, policy, stored.pools)
    members = compare_pools(pools, check)
    # A paused pool is restored, too, because the operator has requested the restore.
    restored = {pool.id for pool in pools if is_restored(pool.id, policy)}
    opened = {pool.id for pool in pools if needs_opening(pool, policy, now)} - restored
    pools = freeze_pools(pools, policy, now, restored | opened)
    pools = without_foreign(pools, restored)
    if policy.demand.orders:
        # Evenkeel must evaluate the nodes that it orders itself. An autoscaler evaluates the nodes that it orders.
        pools = with_known_sizes(with_never_ready(pools, check), observation.workload)
    pools = with_unhealthy(pools, check)
    changed = changed_states(pools, check)
    if changed:
        check = check._replace(state=replace(stored, groups={**stored.groups, **changed}))
    requests, refusals = assign_requests(pools, members.groups, restored, check)
    if policy.pins_fenced and any(group.owner.pinning is not None for group in observation.groups):
        fenced = fenced_groups([pool for pool in pools if pool.id not in restored], check.state, now)
        pools = with_exact_fences(pools, fenced)
    planner = PoolPlanner(check, members, opened, restored, capabilities)
    planned, extensions = _plan_all(check, capabilities, planner, pools, requests)
    nodes = nodes_by_group(observation.workload)
    for pool, _, pool_plan, _ in planned.values():
        # Without an absent group's mark, its machines would count twice once it is back.
        if pool.id not in restored and pool_plan.mode.judged:
            pool_plan.next_state, pool_plan.untimed = learn(pool, check, stored.groups, nodes, pool_plan.next_state)
    absent = [plan_absent(id, snapshot, check) for id, snapshot in members.absent.items()]
    pool_plans = [*(pool.plan for pool in planned.values()), *absent]
    moments = [moment for pool in planned.values() for moment in pool.check_at]
    moments += [snapshot.second_check_at for snapshot in members.absent.values()] + retry_times(refusals, now)
    plan = Plan(
        now=now,
        pools=with_left_groups(pool_plans, observation, stored, policy),
        skipped=observation.skipped + tuple(left_out),
        states=changed,
        refusals=tuple(refusals),
        pool_states=_changed_pool_states(pool_plans, stored),
        check_at=min(moments, default=None),
        clock_skew=observation.clock_skew,
    )
    for extend in extensions:
        plan = extend(plan)
    # The health of a group that is being restored is not stored.
    leaving = {group.key for pool in pools if pool.id in restored for group in pool.groups}
    return replace(plan, states={key: state for key, state in plan.states.items() if key not in leaving})


def _changed_pool_states(plans: Iterable[PoolPlan], stored: ClusterState) -> dict[PoolId, PoolState]:
    unknown = PoolState()
    changed = {}
    for plan in plans:
        before, after = stored.pools.get(plan.id, unknown), plan.next_state
        if after is not before and after != before:  # an unchanged state mostly is the same object
            changed[plan.id] = after
    return changed


def _plan_all(
    check: Check,
    capabilities: Sequence[Capability],
    planner: PoolPlanner,
    pools: Sequence[AnyPool],
    requests: Mapping[PoolId, ScaleRequest],
) -> tuple[Planned, list[Extension]]:
    """Return every pool's plan, and the capabilities' extensions of the whole plan.

    First, each pool is planned with the most likely advice. It is planned again if the advice differs, or if a
    capability answers a question of its plan.
    """
    inputs = dict.fromkeys([pool.id for pool in pools], PoolInput())
    inputs.update({id: PoolInput(request=request) for id, request in requests.items()})
    for capability in capabilities:
        if capability.assume is not None:
            inputs.update(capability.assume(check, pools, inputs))
    planned = {pool.id: planner.plan(pool, inputs[pool.id]) for pool in pools}

    def plan_again(again: Inputs) -> None:
        changed = {id: given for id, given in again.items() if given != inputs[id]}
        inputs.update(changed)
        planned.update({id: planner.plan(planned[id].pool, given) for id, given in changed.items()})

    extensions: list[Extension] = []
    again: dict[PoolId, PoolInput] = {}
    for capability in capabilities:
        if capability.advise is not None:
            advised, extension = capability.advise(check, planned, {**inputs, **again})
            again.update(advised)
            extensions += [] if extension is None else [extension]
    plan_again(again)
    again = {}
    for capability in capabilities:
        if capability.answer is not None:
            again.update(capability.answer(check, planned, {**inputs, **again}))
    plan_again(again)
    for capability in capabilities:
        if capability.follow is not None:
            plan_again(capability.follow(planned, inputs))
    return planned, extensions
