"""The nodes that scale-down takes now. They are free, but gone before the pods of a lost zone need a place."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from evenkeel.domain.demand.drainability import ends_with_node
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan


def without_unneeded(
    observation: Observation, planned: Plan, state: ClusterState, policy: Policy, lost: str
) -> Observation:
    """Return the observation without unneeded nodes, if an autoscaler or Evenkeel takes such nodes.

    Empty nodes have gone. Nodes whose pods have to move are cordoned, because they go one at a time.

    Args:
        observation: The observation, with the zone labels of its groups.
        planned: The plan of the observation. Its mins keep nodes.
        state: The stored state.
        policy: The settings of the record.
        lost: The zone that is lost. Its nodes go with it.
    """
    workload = observation.workload
    if workload is None or not (policy.settings.autoscaler or policy.demand.removes):
        return observation
    stage = DemandStage.ADVISE if policy.settings.autoscaler else policy.demand
    whole = replace(observation, workload=replace(workload, whole=True))
    in_lost_zone = {group.key for group in observation.groups if group.identity.zone == lost}
    gone = _unneeded(plan(whole, state, replace(policy, demand=stage), planned.now), planned, in_lost_zone)
    moving = {pod.node for pod in workload.pods if pod.node in gone and not ends_with_node(pod, planned.now)}
    fewer = Counter(group for node, group in gone.items() if node not in moving)
    return replace(
        observation,
        groups=tuple(
            replace(
                group, requested=group.requested - fewer[group.key], running=max(0, group.running - fewer[group.key])
            )
            for group in observation.groups
        ),
        workload=replace(
            workload,
            pods=tuple(pod for pod in workload.pods if pod.node in moving or pod.node not in gone),
            nodes=tuple(
                replace(node, unschedulable=node.unschedulable or node.name in gone)
                for node in workload.nodes
                if node.name in moving or node.name not in gone
            ),
        ),
    )


def _unneeded(judged: Plan, planned: Plan, left_out: Collection[GroupKey]) -> dict[str, GroupKey]:
    """Return the unneeded nodes above the mins of their groups and pools, with their groups."""
    spare: Counter[GroupKey | PoolId] = Counter()
    for pool in planned.pools:
        for group in pool.groups:
            spare[pool.id] += group.requested
            spare[group.group.key] = group.requested - (0 if group.bounds is None else group.bounds.min)
        spare[pool.id] -= pool.min or 0
    gone = {}
    for pool in judged.pools:
        for node in () if pool.demand.advice is None else pool.demand.advice.nodes:
            if node.needed is None and node.group not in left_out and spare[node.group] > 0 and spare[pool.id] > 0:
                spare.subtract((node.group, pool.id))
                gone[node.node] = node.group
    return gone
