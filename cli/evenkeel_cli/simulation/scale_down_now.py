"""The nodes that scale-down takes now. They are free, but gone before the pods of a lost zone need a place."""

from collections import Counter
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan


def without_unneeded(
    observation: Observation, planned: Plan, state: ClusterState, policy: Policy, now: datetime
) -> Observation:
    """Return the observation with the unneeded nodes cordoned, if an autoscaler or Evenkeel takes such nodes.

    ``planned``: the plan of the observation. Its mins keep nodes.
    """
    workload = observation.workload
    if workload is None or not (policy.settings.autoscaler or policy.demand.removes):
        return observation
    stage = DemandStage.ADVISE if policy.settings.autoscaler else policy.demand
    whole = replace(observation, workload=replace(workload, whole=True))
    gone = _unneeded(plan(whole, state, replace(policy, demand=stage), now), planned)
    nodes = tuple(replace(node, unschedulable=True) if node.name in gone else node for node in workload.nodes)
    return replace(observation, workload=replace(workload, nodes=nodes))


def _unneeded(judged: Plan, planned: Plan) -> set[str]:
    """Return the names of the unneeded nodes above the mins of their groups and pools."""
    spare: Counter[GroupKey | PoolId] = Counter()
    for pool in planned.pools:
        for group in pool.groups:
            spare[pool.id] += group.requested
            spare[group.group.key] = group.requested - (0 if group.bounds is None else group.bounds.min)
        spare[pool.id] -= pool.min or 0
    gone = set()
    for pool in judged.pools:
        for node in () if pool.demand.advice is None else pool.demand.advice.nodes:
            if node.needed is None and spare[node.group] > 0 and spare[pool.id] > 0:
                spare.subtract((node.group, pool.id))
                gone.add(node.node)
    return gone
