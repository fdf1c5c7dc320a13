"""``plan()`` computes the writes of a check and their reasons from the observation, the stored state and the settings.

It is a pure function. The Lambda functions, dry run, the action ``plan`` and ``evenkeel plan`` all call it. This module
lists the capabilities. They plug into the pipeline of ``domain.rebalancing.plan``.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial

from evenkeel.domain.convergence.capability import CONVERGENCE
from evenkeel.domain.demand.capability import DEMAND
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Check, Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.offerings.reports import apply_reports, experiences, reports_about
from evenkeel.domain.rebalancing.capability import Capability, Extension, Inputs, Planned
from evenkeel.domain.rebalancing.plan import run_pipeline
from evenkeel.domain.rebalancing.relief import relieve
from evenkeel.domain.rebalancing.restore import is_restored
from evenkeel.domain.survival.capability import SURVIVAL


def plan(observation: Observation, state: ClusterState, policy: Policy, now: datetime) -> Plan:
    """Return the writes to each pool of a cluster, with their reasons. A group without a write has a reason, too.

    Args:
        observation: All objects that one check has read.
        state: The stored state of groups, pools and zones.
        policy: The settings of the cluster record.
        now: The present time, with time zone. If known, it is the API server's time. The plan itself reads no clock.
    """
    return run_pipeline(Check(observation, state, policy, now), CAPABILITIES)


def _with_reports(
    check: Check, pool: AnyPool, group: NodeGroup, before: GroupState | None, after: GroupState | None
) -> GroupState | None:
    offerings = check.state.offerings
    if offerings is None or not (offerings or after):
        return after
    reports = reports_about(group, offerings, check.now, pool.settings.backoff)
    return apply_reports(group, before, after, reports, check.now, pool.settings.backoff)


def _share_experiences(check: Check, planned: Planned, _: Inputs) -> tuple[Inputs, Extension]:
    groups = [group for id, pool in planned.items() if not is_restored(id, check.policy) for group in pool.pool.groups]
    return {}, partial(_with_experiences, check, groups)


def _with_experiences(check: Check, groups: list[NodeGroup], plan: Plan) -> Plan:
    found = experiences(groups, check.state.groups, check.now)
    return replace(plan, experiences=found) if found else plan


CAPABILITIES = (
    DEMAND,
    SURVIVAL,
    CONVERGENCE,
    Capability(group_state=_with_reports, advise=_share_experiences),  # offerings
    Capability(pool_plan=relieve),  # relief of a Shoot
)
