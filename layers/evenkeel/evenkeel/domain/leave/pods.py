"""The pods that cannot move out of a zone: their nodes are not drained, and they stay there."""

from collections.abc import Collection

from evenkeel.domain.demand.cluster_snapshot import Places
from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_decision
from evenkeel.domain.demand.scale_down import no_place
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.leave.model import Stays
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod


def staying_pods(simulation: Simulation, inside: Collection[GroupKey], takers: Collection[GroupKey]) -> Stays:
    """Return why pods on the nodes of the groups ``inside`` a zone cannot move.

    A pod cannot move if it blocks a drain, or if it fits no node outside, not even a new node of a taker. A pod whose
    disruption budget is used up only waits.
    """
    workload = simulation.workload
    budgets, nodes = Budgets(workload.budgets), sorted(node.name for node in workload.nodes if node.group in inside)
    knows_new = all(group in simulation.template_nodes for group in takers)
    fork = simulation.snapshot.fork()
    for group in takers if knows_new else ():
        simulation.add_template_node(group)
    leaving = frozenset(nodes)
    outside = [info for info in simulation.schedulable_nodes() if info.name not in leaving]
    places = Places(simulation.snapshot, outside) if knows_new else None
    found = [
        (node, _stays_because(simulation, budgets, node, pod, places))
        for node in nodes
        for pod in simulation.pods_on[node]
    ]
    simulation.snapshot.revert(fork)
    return tuple([(node, why) for node, why in found if why is not None])


def _stays_because(
    simulation: Simulation, budgets: Budgets, node: str, pod: Pod, places: Places | None
) -> Reason | None:
    """Return why a pod cannot move; None: it can, or it ends with its node. ``places``: None if they are not known."""
    decision = drain_decision(pod, budgets, simulation.now)
    if isinstance(decision, Reason):
        return None if decision.rule is Rule.BUDGET_EXHAUSTED else decision
    if decision is not DrainDecision.MOVES or places is None or node not in simulation.snapshot.node_infos:
        return None
    return no_place(simulation, simulation.snapshot.node_infos[node], [pod], places)
