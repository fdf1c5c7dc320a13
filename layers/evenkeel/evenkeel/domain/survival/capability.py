"""Survival in the pipeline of a plan: the mins of zones, the nodes to order, and the report.

If the record has ``demand``, a pool's needs are its pods'. Otherwise they are PoolMinimum.
Many plans read no pods. So the modules that place pods are imported where they are used.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evenkeel.domain.demand.capability import offers_of
from evenkeel.domain.demand.offers import with_coming, with_deleting
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import DemandPolicy, KeptNodes, PoolOffer
from evenkeel.domain.model.drafts import PoolInput
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Planned, Point, Rank
from evenkeel.domain.survival.minimum import order_to_survive, report_survival, set_survival_minima
from evenkeel.domain.survival.model import HeldNodes, Survival, SurvivalFacts
from evenkeel.domain.survival.setting import has_to_survive
from evenkeel.domain.survival.zone_loss import survives

if TYPE_CHECKING:
    from evenkeel.domain.demand.simulation import Simulation
    from evenkeel.domain.survival.pods import PodNeeds


def _assume(check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of the pools that must survive. If their pods decide, add the nodes that they still hold."""
    surviving = [pool for pool in pools if has_to_survive(pool)]
    if check.policy.demand is DemandStage.OFF:
        return {pool.id: inputs[pool.id]._replace(keeps_minima=True) for pool in surviving}
    return {pool.id: _with(inputs[pool.id], SurvivalFacts(_held(pool, check))) for pool in surviving}


def _with(given: PoolInput, facts: SurvivalFacts) -> PoolInput:
    return given._replace(pods_decide=True, parts=given.parts.plus(SurvivalFacts, facts))


def _held(pool: AnyPool, check: Check) -> HeldNodes | None:
    held, seen = pool.state.parts.of(HeldNodes) or HeldNodes(at=check.now), pool.state.seen
    requested = {} if seen is None else seen.requested
    lost = any([group.requested < requested.get(str(group.key), 0) for group in pool.groups])
    held = held.at_check(check.now, lost=lost)
    return None if held.is_over(check.now) else held


def _advise(check: Check, planned: Planned, inputs: Inputs) -> tuple[Inputs, None]:
    """Return the inputs of the pools whose pods decide, with the nodes that these pods need."""
    workload = check.observation.workload
    if not any(SurvivalFacts in given.parts for given in inputs.values()):
        return {}, None
    offers = [offer for _, offer in offers_of(check, planned.values())]
    if not any(map(survives, offers)) or workload is None or not workload.whole:
        return {}, None
    from evenkeel.domain.demand.advice import unread
    from evenkeel.domain.demand.simulation import Simulation
    from evenkeel.domain.survival.pods import needs_of

    if unread(check.observation, [offer.pool for offer in offers]) is not None:
        return {}, None
    workload = with_deleting(workload, offers)
    offers = list(with_coming(offers, workload))
    needs = needs_of(Simulation(workload, tuple(offers), DemandPolicy(), check.now), offers)
    advised = {}
    for offer in offers:
        if survives(offer):
            given = inputs[offer.pool]
            facts = _facts(check, offer, needs[offer.pool], given)
            if given.request is not None and given.request.gives_number:
                simulation = Simulation(workload, tuple(offers), DemandPolicy(), check.now)
                facts = facts._replace(kept=_kept(check, simulation, offers, offer.pool))
            advised[offer.pool] = _with(given, facts)
    return advised, None


def _kept(check: Check, simulation: "Simulation", offers: Sequence[PoolOffer], pool: PoolId) -> KeptNodes | None:
    """Return the nodes that a request to remove nodes of a pool must leave so that pools survive."""
    from evenkeel.domain.demand.drainability import kept_nodes
    from evenkeel.domain.survival.pods import nodes_to_keep

    kept = kept_nodes(check.observation, check.now)
    return None if kept is None else nodes_to_keep(simulation, offers, pool, kept)


def _facts(check: Check, offer: PoolOffer, needs: "PodNeeds", given: PoolInput) -> SurvivalFacts:
    idle = {str(group): count for group, count in needs.idle.items() if count}
    before = given.parts.of(SurvivalFacts)
    held = ((before and before.held) or HeldNodes(at=check.now)).renewed(idle, check.now)
    if needs.missing:
        held = held.after_order(check.now)
    bound = {zone: count for zone, count in needs.bound.items() if count}
    short = max(needs.missing.total(), needs.coming)
    return SurvivalFacts(
        held=None if held.is_over(check.now) else held,
        minima=_minima(offer, needs, given, held.nodes),
        missing={str(group): count for group, count in needs.missing.items()},
        result=Survival(short=short, held=needs.idle.total(), bound=bound),
    )


def _minima(offer: PoolOffer, needs: "PodNeeds", given: PoolInput, held: Mapping[str, int]) -> dict[str, int]:
    """Return the nodes that an autoscaler must leave in each group: all but those that are unneeded."""
    if given.demand is None or given.demand.unneeded is None:
        return {}
    unneeded = Counter(node.group for node in given.demand.unneeded)
    return {
        str(group.group): max(
            group.requested + needs.missing[group.group] - unneeded[group.group],
            needs.busy[group.group] + held.get(str(group.group), 0),
        )
        for group in offer.groups
    }


def _is_at_risk(pool: PoolPlan) -> bool:
    survival = pool.parts.of(Survival)
    return survival is not None and not survival.survives


def _held_by(pool: PoolPlan) -> int:
    survival = pool.parts.of(Survival)
    return 0 if survival is None else survival.held


SURVIVAL = Capability(
    figures={"PoolsNotSurviving": _is_at_risk, "NodesToSurvive": _held_by},
    kinds={Rule.SURVIVAL_MIN: "safety pass", Rule.SURVIVAL_ORDER: "raise"},
    steps={
        Point.START: set_survival_minima,
        Rank.RESERVE: order_to_survive,
        Point.BOUNDS: report_survival,
    },
    assume=_assume,
    advise=_advise,
)
