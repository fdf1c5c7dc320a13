"""Convergence in the pipeline of a plan: its steps, and the machines that may be drained."""

from evenkeel.domain.convergence.converge import converge, update_step
from evenkeel.domain.convergence.level import hold_level
from evenkeel.domain.convergence.machine_choice import choose
from evenkeel.domain.convergence.returns import with_fallbacks, with_steps
from evenkeel.domain.demand.capability import offers_of
from evenkeel.domain.model.observations import Check
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Planned, Point


def _answer(check: Check, planned: Planned, inputs: Inputs) -> Inputs:
    """Return the machines that may be drained, for each pool whose plan asks; empty: some pods were not read."""
    asks = {group: coming for pool in planned.values() for group, coming in pool.plan.convergence.asks.items()}
    workload = check.observation.workload
    if not asks or workload is None or not workload.whole:
        return {}
    offers = [offer for _, offer in offers_of(check, planned.values())]
    choices = choose(check.observation, offers, asks, check.now)
    return {id: inputs[id]._replace(choices=choices) for id, pool in planned.items() if pool.plan.convergence.asks}


CONVERGENCE = Capability(
    steps={Point.START: update_step, Point.REPLICAS: converge, Point.BOUNDS: hold_level},
    assume=with_fallbacks,
    answer=_answer,
    follow=with_steps,
)
