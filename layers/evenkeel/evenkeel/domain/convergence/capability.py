"""Convergence in the pipeline of a plan: its steps, and the machines that may be drained."""

from evenkeel.domain.convergence.converge import converge
from evenkeel.domain.convergence.level import hold_level
from evenkeel.domain.convergence.step import update_step
from evenkeel.domain.demand.capability import offers_of
from evenkeel.domain.model.observations import Check
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Planned, PlannedPool, Point, Rank


def _answer(check: Check, planned: Planned, inputs: Inputs) -> Inputs:
    """Return the machines that may be drained, for each pool whose plan asks; empty: some pods were not read."""
    workload = check.observation.workload
    asks: dict[str, str] = {}
    returns: dict[str, str] = {}
    for pool in planned.values():
        for group, coming in pool.plan.convergence.asks.items():
            (asks if _is_own(pool, group) else returns)[group] = coming
    if not (asks or returns) or workload is None or not workload.whole:
        return {}
    from evenkeel.domain.convergence.machine_choice import choose  # with the modules that place pods

    offers = [offer for _, offer in offers_of(check, planned.values())]
    choices, returned = choose(check.observation, offers, asks, check.now, returns)
    again = {}
    for id, pool in planned.items():
        if of_pool := pool.plan.convergence.asks:
            others = {group: returned[group] for group in of_pool if returns and not _is_own(pool, group)}
            again[id] = inputs[id]._replace(choices={**choices, **others})
    return again


def _is_own(pool: PlannedPool, group: str) -> bool:
    return any(str(own.key) == group for own in pool.pool.groups)


CONVERGENCE = Capability(
    steps={Rank.CANCELLED_STEP: update_step, Rank.CONVERGENCE: converge, Point.BOUNDS: hold_level},
    answer=_answer,
)
