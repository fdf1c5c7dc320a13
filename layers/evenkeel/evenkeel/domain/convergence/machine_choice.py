"""Choose the machine to drain in a zone: the machine whose pods are cheapest to move once the new node runs.

Machine controllers ignore the annotations of cluster-autoscaler when they drain, and Gardener finally forces a drain.
So before Evenkeel deletes a machine, it looks for pods that must not move. The rules are stricter than those of
``domain.demand.scale_down``, which may wait until a pod completes or a budget allows the eviction.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from evenkeel.domain.demand.advice import unread
from evenkeel.domain.demand.cluster_snapshot import Places
from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_continues, drain_decision
from evenkeel.domain.demand.guards import guard_of
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.offers import with_coming
from evenkeel.domain.demand.scale_down import SCALE_DOWN_DISABLED, find_places, no_place
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.taints import is_being_deleted
from evenkeel.domain.model.convergence import Choice
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer
from evenkeel.domain.model.flavours import SIZE_TAGS
from evenkeel.domain.model.groups import GroupKey, MachineRef
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node, Pod

NO_RETURNS: Mapping[str, str] = {}
_MOST_NODES = 4  # a node whose pods need more new nodes of the first pool stays in its fallback


def choose(
    observation: Observation,
    pools: Iterable[PoolOffer],
    asks: Mapping[str, str],
    now: datetime,
    returns: Mapping[str, str] = NO_RETURNS,
) -> tuple[dict[str, Choice], dict[str, Choice]]:
    """Return, by group key, the machine that may be drained, or the first reason why no machine may be.

    The second result is for the nodes that return from fallbacks. The nodes of two pools may differ in size, so the
    pods of such a node decide how many new nodes they need. If they need none, their places are taken for other pods.

    ``asks``: group key -> key of the group that gets a new node before the drain; empty: the new node already runs.
    ``returns``: the same for groups of fallbacks.
    """
    workload, offers = observation.workload, tuple(pools)
    reason = unread(observation, [offer.pool for offer in offers])
    if workload is None or reason is not None:
        no_choice = Choice(why=reason or Reason.of(Rule.CONVERGE_NO_VIEW))
        return dict.fromkeys(asks, no_choice), dict.fromkeys(returns, no_choice)
    simulation = Simulation(workload, with_coming(offers, workload), DemandPolicy(), now)
    simulation.schedule_pending()  # first, so that moved pods do not get their places
    budgets = Budgets(workload.budgets)
    keys = {str(group.group): group.group for offer in offers for group in offer.groups}

    def chosen(group: str, coming: str, count: int = 1, *, keeps_places: bool = False) -> Choice:
        if group not in keys:  # only the pools that are being restored have no offers
            return Choice(why=Reason.of(Rule.IN_STATE, state="being restored"))
        # A node that returns is no longer in the snapshot.
        there = simulation.snapshot.node_infos
        nodes = [node for node in workload.nodes if str(node.group) == group and node.name in there]
        fork = simulation.snapshot.fork()
        new = [keys[coming]] * count if coming else []
        choice = _choose(simulation, budgets, nodes, new, keeps_places=keeps_places)
        if not keeps_places or choice.machine is None:
            simulation.snapshot.revert(fork)
        return choice

    returned = {}
    for group, coming in returns.items():
        choice = chosen(group, "", keeps_places=True)
        pods = [len(simulation.pods_on[node.name]) for node in workload.nodes if str(node.group) == group]
        if coming and choice.machine is None:
            returned[group] = _with_new_nodes(partial(chosen, group, coming), max(pods, default=0))
        else:
            returned[group] = replace(choice, nodes=0)
    return {group: chosen(group, coming) for group, coming in asks.items()}, returned


def _with_new_nodes(chosen: Callable[[int], Choice], pods: int) -> Choice:
    """Return the choice with the fewest new nodes. ``pods`` is the most pods that a node of the group has."""
    for count in range(1, _MOST_NODES + 1):
        choice = chosen(count)
        if choice.machine is not None:
            return replace(choice, nodes=count)
    if choice.why is not None and choice.why.rule is Rule.NO_PLACE_ELSEWHERE and chosen(pods).machine is not None:
        choice = Choice(why=Reason.of(Rule.RETURN_PAST_MOST, most=_MOST_NODES))
    return replace(choice, nodes=_MOST_NODES)


def _choose(
    simulation: Simulation, budgets: Budgets, nodes: Iterable[Node], coming: Iterable[GroupKey], *, keeps_places: bool
) -> Choice:
    for group in coming:
        if group not in simulation.template_nodes:
            return Choice(why=Reason.of(Rule.FRESH_NODE_UNKNOWN, tags=SIZE_TAGS.get(group.flavour, ())))
        simulation.add_template_node(group)
    node_infos: Iterable[NodeInfo] = simulation.schedulable_nodes()
    node_infos = [info for info in node_infos if info.name not in simulation.starting]
    if keeps_places:  # no pod of a fallback has to wait for a node that does not run yet
        node_infos = [info for info in node_infos if info.name in simulation.started]
    places, guard = Places(simulation.snapshot, node_infos), guard_of(simulation)
    candidates: list[tuple[bool, bool, int, int, str, MachineRef]] = []
    moved: dict[str, list[Pod]] = {}
    reason: Reason | None = None
    guarded = False
    for node in sorted(nodes, key=lambda node: node.name):
        moving = _moving(simulation, budgets, node, places)
        if isinstance(moving, Reason):
            reason = reason or moving
        elif node.machine is not None:
            cost = sum(simulation.pod_groups.of(pod).cpu for pod in moving)
            is_new = node.drained_since is None
            candidates.append((is_new, node.ready, len(moving), cost, node.name, node.machine.ref))
            moved[node.name] = moving
    for *_, name, machine in sorted(candidates):
        fork, info = simulation.snapshot.fork(), simulation.snapshot.node_infos[name]
        find_places(simulation, info, moved[name], places)
        needed = guard(info)
        if needed is None:
            return Choice(machine=machine)
        simulation.snapshot.revert(fork)
        places.revert()
        guarded, reason = guarded or reason is None, reason or needed
    return Choice(why=reason or Reason.of(Rule.CONVERGE_NO_MACHINE), guarded=guarded)


def _moving(simulation: Simulation, budgets: Budgets, node: Node, places: Places) -> list[Pod] | Reason:
    """Return the pods that must move if the node is drained, or the first reason not to drain it."""
    if node.machine is None or node.machine.preserved:
        return Reason.of(Rule.CONVERGE_NO_MACHINE)
    if is_being_deleted(node, simulation.now):
        return Reason.of(Rule.NODE_GOING)
    if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return Reason.of(Rule.SCALE_DOWN_DISABLED, annotation=SCALE_DOWN_DISABLED)
    moving, has_begun = list[Pod](), node.drained_since is not None
    for pod in simulation.pods_on[node.name]:
        decision = drain_decision(pod, budgets, simulation.now)
        if has_begun:
            decision = drain_continues(pod, decision)
        if isinstance(decision, Reason):
            return decision
        if decision is DrainDecision.WAITED_FOR:
            return Reason.of(Rule.WAITS_FOR_COMPLETION, pod=str(pod))
        if decision is DrainDecision.MOVES:
            budget = None if has_begun else budgets.exhausted(pod)
            if budget is not None:
                return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(pod), budget=str(budget))
            if (reason := _held(simulation, pod)) is not None:
                return reason
            moving.append(pod)
    if not has_begun and not budgets.allow_all(moving):
        held = next((pod for pod in moving if budgets.of(pod)), moving[0])
        return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(held), budget=str(budgets.of(held)[0]))
    return no_place(simulation, simulation.snapshot.node_infos[node.name], moving, places) or moving


def _held(simulation: Simulation, pod: Pod) -> Reason | None:
    """Return why a volume keeps an evictable pod in its zone; None: the pod may move."""
    needs = simulation.pod_groups.of(pod).volumes
    for reach in needs.reaches:
        if reach.terms is not None or reach.labels or reach.node:
            return Reason.of(Rule.VOLUME_OF_ITS_ZONE, pod=str(pod), claim=reach.claim)
    return needs.obstacle
