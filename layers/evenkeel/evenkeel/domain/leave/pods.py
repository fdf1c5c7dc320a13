"""The pods that cannot move out of a zone: their nodes are not drained, and they stay there."""

from collections.abc import Collection, Sequence

from evenkeel.domain.demand.cluster_snapshot import Places
from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_decision
from evenkeel.domain.demand.offers import with_coming
from evenkeel.domain.demand.scale_down import find_places
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod


def staying_pods(
    check: Check, offers: Sequence[PoolOffer], zone: str, pools: Collection[PoolId]
) -> dict[PoolId, dict[str, Reason]]:
    """Return by pool the pods on its nodes of a zone that cannot move: name -> why.

    A pod cannot move if it blocks a drain, or if it fits no node of another zone, not even a new one. A pod whose
    disruption budget is used up only waits.
    """
    workload = check.observation.workload
    assert workload is not None
    simulation = Simulation(workload, with_coming(offers, workload), DemandPolicy(), check.now)
    in_zone = {group.key: zone in group.identity.zone_names for group in check.observation.groups}
    taking = {id: [each.group for each in offer.groups if not in_zone[each.group]] for id, offer in _by_id(offers)}
    budgets = Budgets(workload.budgets)
    stays: dict[PoolId, dict[str, Reason]] = {id: {} for id in pools}
    pool_of = {each.group: offer.pool for offer in offers for each in offer.groups if offer.pool in stays}
    fork = simulation.snapshot.fork()
    for groups in (taking[id] for id in stays if id in taking):
        for group in groups:
            if group in simulation.template_nodes:
                simulation.add_template_node(group)
    inside = {node.name for node in workload.nodes if node.group is not None and in_zone.get(node.group, False)}
    places = Places(simulation.snapshot, [info for info in simulation.schedulable_nodes() if info.name not in inside])
    for node in sorted(workload.nodes, key=lambda node: node.name):
        if node.group is None or not in_zone.get(node.group, False) or node.group not in pool_of:
            continue
        for pod in simulation.pods_on[node.name]:
            knows_new = all(group in simulation.template_nodes for group in taking[pool_of[node.group]])
            why = _stays_because(simulation, budgets, node.name, pod, places if knows_new else None)
            if why is not None:
                stays[pool_of[node.group]][str(pod)] = why
    simulation.snapshot.revert(fork)
    return stays


def _by_id(offers: Sequence[PoolOffer]) -> list[tuple[PoolId, PoolOffer]]:
    return [(offer.pool, offer) for offer in offers]


def _stays_because(
    simulation: Simulation, budgets: Budgets, node: str, pod: Pod, places: Places | None
) -> Reason | None:
    """Return why a pod cannot move; None: it can, or it ends with its node. ``places``: None if they are not known."""
    decision = drain_decision(pod, budgets, simulation.now)
    if isinstance(decision, Reason):
        return None if decision.rule is Rule.BUDGET_EXHAUSTED else decision
    if decision is not DrainDecision.MOVES or places is None or node not in simulation.snapshot.node_infos:
        return None
    fork = simulation.snapshot.fork()
    found = find_places(simulation, simulation.snapshot.node_infos[node], [pod], places)
    simulation.snapshot.revert(fork)
    places.revert()
    return found if isinstance(found, Reason) else None
