"""Leaving a zone in the pipeline of a plan: which pools leave it, when no node starts to move, and which pods stay."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from evenkeel.domain.demand.capability import offers_of
from evenkeel.domain.demand.offers import with_coming
from evenkeel.domain.leave.model import Leaving, leaves
from evenkeel.domain.leave.steps import fence, name_moves, note_progress
from evenkeel.domain.model.convergence import BUDGET, Starting
from evenkeel.domain.model.demand import DemandPolicy
from evenkeel.domain.model.drafts import PoolInput
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Planned, Point, Rank
from evenkeel.domain.rebalancing.health.states import assess


def _assume(check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of the pools that leave a zone."""
    if (leave := check.policy.leave) is None:
        return {}
    skew = check.observation.clock_skew
    leave = replace(leave, at=leave.at + skew, until=None if leave.until is None else leave.until + skew)
    if leave.until is not None and check.now >= leave.until:
        return {}
    left = [pool for pool in pools if leaves(pool, leave)]
    most = LARGEST_COUNT if leave.per_hour is None else leave.per_hour
    spent = sorted(at for pool in left for at in pool.state.convergence.spent(check.now))
    room, waits = most - len(spent), _failure_elsewhere(check, pools, leave)
    if waits is None and room <= 0:
        waits = Reason.of(Rule.CONVERGE_BUDGET, per_hour=most, until=spent[-most] + BUDGET)
    return {pool.id: _with(inputs[pool.id], Leaving(leave, room, waits)) for pool in left}


def _with(given: PoolInput, leaving: Leaving) -> PoolInput:
    return given._replace(parts=given.parts.plus(Leaving, leaving))


def _failure_elsewhere(check: Check, pools: Iterable[AnyPool], leave: Leave) -> Reason | None:
    """Return the first group of the cluster that fails outside the zone, as a reason; None: none fails."""
    for pool in pools:
        for draft in assess(pool, check.state, check.now):
            if draft.zone_fails and leave.zone not in draft.group.identity.zone_names:
                zone, state = draft.group.identity.zone, draft.state.value
                return Reason.of(Rule.LEAVE_STOPS, pool=pool.id.name, zone=zone, state=state)
    return None


def _answer(check: Check, planned: Planned, inputs: Inputs) -> Inputs:
    """Return the inputs of the pools that leave a zone, with the pods that cannot move."""
    leaving = {id: known for id, given in inputs.items() if (known := given.parts.of(Leaving)) is not None}
    workload = check.observation.workload
    if not leaving or workload is None or not workload.whole:
        return {}
    from evenkeel.domain.demand.simulation import Simulation
    from evenkeel.domain.leave.pods import staying_pods  # with the modules that place pods

    offers = with_coming([offer for _, offer in offers_of(check, planned.values())], workload)
    simulation, again = Simulation(workload, tuple(offers), DemandPolicy(), check.now), {}
    for id, known in leaving.items():
        inside = [group.key for group in planned[id].pool.groups if known.leave.zone in group.identity.zone_names]
        takers = [group.key for group in planned[id].pool.groups if group.key not in inside]
        stays = staying_pods(simulation, inside, takers)
        again[id] = _with(inputs[id], known._replace(stays=stays))
    return again


def _follow(planned: Planned, inputs: Inputs) -> Inputs:
    """Return the inputs of the pools whose step would be one too many for the cluster in this hour."""
    changed, begun = {}, 0
    for id, pool in planned.items():
        leaving, step = inputs[id].parts.of(Leaving), pool.plan.convergence.step
        if leaving is None or not isinstance(step, Starting):
            continue
        begun += 1
        if begun > leaving.room:
            waits = Reason.of(Rule.CONVERGE_BUDGET, per_hour=leaving.leave.per_hour, until=step.order.begun_at + BUDGET)
            changed[id] = _with(inputs[id], leaving._replace(waits=waits))
    return changed


LEAVE = Capability(
    steps={Point.START: fence, Rank.CONVERGENCE: name_moves, Point.BOUNDS: note_progress},
    assume=_assume,
    answer=_answer,
    follow=_follow,
)
