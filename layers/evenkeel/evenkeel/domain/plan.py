"""``plan()`` computes the writes of a check and their reasons from the observation, the stored state and the settings.

It is a pure function. The Lambda functions, dry run, the action ``plan`` and ``evenkeel plan`` all call it. This module
lists the capabilities. They plug into the pipeline of ``domain.rebalancing.plan``.
"""

from collections.abc import Iterable
from datetime import datetime

from evenkeel.domain.convergence.capability import CONVERGENCE
from evenkeel.domain.convergence.returns import RETURNS
from evenkeel.domain.demand.capability import DEMAND
from evenkeel.domain.leave.capability import LEAVE
from evenkeel.domain.minimum_at.capability import MINIMUM_BY_CLOCK
from evenkeel.domain.model.observations import Check, Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.rebalancing.plan import run_pipeline
from evenkeel.domain.relief.capability import RELIEF
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


CAPABILITIES = (MINIMUM_BY_CLOCK, DEMAND, SURVIVAL, LEAVE, RETURNS, CONVERGENCE, RELIEF)
"""All capabilities. Shared classes and the pipeline of a plan (``domain.rebalancing.plan``) name none of them."""

FIGURES = {name: figure for capability in CAPABILITIES for name, figure in capability.figures.items()}


def figures_of(pools: Iterable[PoolPlan]) -> dict[str, int]:
    """Return the capabilities' metrics of these pools."""
    pools = list(pools)
    return {name: sum(map(figure, pools)) for name, figure in FIGURES.items()}
