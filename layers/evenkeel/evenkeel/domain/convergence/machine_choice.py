"""Which machine of a zone may be moved to another: the one whose pods are cheapest to move, once its successor runs.

Machine controllers drain, and know none of Cluster Autoscaler's annotations (Gardener's ends by force what a budget
holds): what must not move has to be found out before. Stricter than ``domain.demand.scale_down``, which may
wait for a pod to complete and lets evictions wait their turn: here nobody has to go.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from evenkeel.domain.demand.advice import unread, with_coming
from evenkeel.domain.demand.budgets import Budgets
from evenkeel.domain.demand.drainability import DrainDecision, drain_decision
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.scale_down import KEPT, resettle
from evenkeel.domain.demand.taints import is_going
from evenkeel.domain.demand.world import World
from evenkeel.domain.model.convergence import Choice
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node, Pod


def choose(
    observation: Observation, pools: Iterable[PoolOffer], asks: Mapping[str, str], now: datetime
) -> dict[str, Choice]:
    """For each group that is asked for, by key, the machine that may go; or the first reason why none may.

    Args:
        observation: One look, with its pods as far as they could be read.
        pools: What the pools have to offer, so that nobody's place is given away who waits or is on the way.
        asks: Groups, each with the one where a node is to come before; empty: it has come.
        now: The time.
    """
    workload, offers = observation.workload, tuple(pools)
    why = unread(observation, offers)
    if workload is None or why is not None:
        why = why or Reason.of(Rule.CONVERGE_NO_VIEW)
        return {group: Choice(why=why) for group in asks}
    world = World(workload, with_coming(offers, workload), DemandPolicy(), now)
    world.place_waiting()
    budgets = Budgets(workload.budgets)
    choices = {}
    for group, coming in asks.items():
        mark = world.placing.mark()
        nodes = [node for node in workload.nodes if node.group is not None and str(node.group) == group]
        choices[group] = _choose(world, budgets, nodes, GroupKey.read(coming) if coming else None)
        world.placing.back_to(mark)
    return choices


def _choose(world: World, budgets: Budgets, nodes: Iterable[Node], coming: GroupKey | None) -> Choice:
    if coming is not None:
        if coming not in world.fresh:
            return Choice(why=Reason.of(Rule.FRESH_NODE_UNKNOWN))
        world.add_fresh(coming)
    found: list[tuple[tuple[bool, int, int, str], Node]] = []
    why: Reason | None = None
    for node in sorted(nodes, key=lambda node: node.name):
        moving = _moving(world, budgets, node)
        if isinstance(moving, Reason):
            why = why or moving
        elif node.machine is not None:
            cost = sum(world.kinds.of(pod).cpu for pod in moving)
            found.append(((node.ready, len(moving), cost, node.name), node))
    best = min(found, default=None, key=lambda each: each[0])
    if best is None or best[1].machine is None:
        return Choice(why=why or Reason.of(Rule.CONVERGE_NO_MACHINE))
    return Choice(machine=best[1].machine.ref)


def _moving(world: World, budgets: Budgets, node: Node) -> list[Pod] | Reason:
    """The pods that would move with a node, all of which may and have a place; or the first reason why it stays."""
    if node.machine is None or node.machine.preserved:
        return Reason.of(Rule.CONVERGE_NO_MACHINE)
    if is_going(node, world.now):
        return Reason.of(Rule.NODE_GOING)
    if node.annotations.get(KEPT) == "true":
        return Reason.of(Rule.SCALE_DOWN_DISABLED, annotation=KEPT)
    moving = []
    for pod in world.standing[node.name]:
        its = drain_decision(pod, budgets, world.now)
        if isinstance(its, Reason):
            return its
        if its is DrainDecision.WAITED_FOR:
            return Reason.of(Rule.WAITS_FOR_COMPLETION, pod=str(pod))
        if its is DrainDecision.MOVES:
            if (reason := _held(world, budgets, pod)) is not None:
                return reason
            moving.append(pod)
    if not budgets.allow_all(moving):
        held = next((pod for pod in moving if budgets.of(pod)), moving[0])
        return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(held), budget=str(budgets.of(held)[0]))
    return _resettled(world, world.placing.rooms[node.name], moving) or moving


def _held(world: World, budgets: Budgets, pod: Pod) -> Reason | None:
    """What keeps a pod where it is although it may be evicted: a volume of its zone, a budget without room."""
    if (budget := budgets.exhausted(pod)) is not None:
        return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(pod), budget=str(budget))
    needs = world.kinds.of(pod).volumes
    for reach in needs.reaches:
        if reach.terms is not None or reach.labels or reach.node:
            return Reason.of(Rule.VOLUME_OF_ITS_ZONE, pod=str(pod), claim=reach.claim)
    return needs.obstacle


def _resettled(world: World, room: NodeInfo, moving: list[Pod]) -> Reason | None:
    """The first pod that has no place elsewhere; None: all have. Everything is as before then."""
    mark = world.placing.mark()
    rooms = [other for other in world.open_rooms() if other is not room and other.name not in world.starting]
    places = resettle(world, room, moving, rooms)
    world.placing.back_to(mark)
    return places if isinstance(places, Reason) else None
