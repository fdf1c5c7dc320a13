"""Scale-down: find the unneeded nodes, choose the nodes to remove now, and explain why others remain (core/scaledown).

A node's clock is the time since which the node is unneeded. Five principles apply. The code of a special case names
cluster-autoscaler's rule, or the test that requires the case.

1. A node is removed only if each of its pods ends with the node or has a place on another node. No two pods use the
   same place.
2. Minimums are compared with existing nodes, because a requested replica may never get a node.
3. A lasting reason makes a node needed and ends its clock. A temporary reason only delays the removal of an unneeded
   node, and the node's clock continues.
4. A check that cannot evaluate the pods neither starts nor ends a clock.
5. Nodes whose machines have Evenkeel's delete mark are removed first, then empty nodes. Among equal nodes, a node in
   the zone with the most nodes is removed first.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from evenkeel.domain.demand.cluster_snapshot import Places
from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_continues, drain_decision, ends_with_node
from evenkeel.domain.demand.guards import guard_of
from evenkeel.domain.demand.node_info import NodeInfo, utilization
from evenkeel.domain.demand.pods import old_enough_at
from evenkeel.domain.demand.requests import is_gpu
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.taints import TO_BE_DELETED, is_being_deleted
from evenkeel.domain.model.demand import (
    GroupOffer,
    HangingDrain,
    PoolOffer,
    Removal,
    ScaleDownState,
    Unneeded,
)
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import Node, Pod
from evenkeel.domain.rebalancing.health.never_ready import was_never_ready

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_Zone = tuple[PoolId, str]


def scale_down(simulation: Simulation, state: ScaleDownState) -> Unneeded:
    """Return the unneeded nodes, and the nodes to remove now. This function only plans.

    A node is unneeded if its utilization is at most its threshold, no rule keeps it, and its pods have places
    elsewhere. Its clock starts at the first check that finds the node unneeded, and ends at the first check that finds
    it needed. The node is removed after the unneeded time, unless nodes were added or a removal failed recently. Empty
    nodes are removed together, and other nodes one at a time.
    """
    return _ScaleDown(simulation, state).run()


@dataclass
class _Candidate:
    """A node that may be unneeded. ``moves`` is True if the node has pods that must be placed on other nodes."""

    node_info: NodeInfo
    pool: PoolOffer
    offer: GroupOffer
    is_marked: bool
    has_clock: bool
    moves: bool
    moving: list[Pod] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    exceeds_budgets: bool = False  # True: disruption budgets do not allow the eviction of all its pods at once
    waits_for: str = ""  # name of a pod that must complete before the removal; empty: no such pod

    @property
    def name(self) -> str:
        return self.node_info.name

    @property
    def zone(self) -> _Zone:
        return self.pool.pool, self.offer.zone

    def turn(self, nodes_in_zone: int) -> tuple[bool, bool, bool, int, bool, str]:
        """Return the sort key of principle 5. The candidate with the lowest key is removed first.

        In the key, the number of nodes in the zone precedes the clock. If the clock decided, as in cluster-autoscaler,
        the zone with the newest nodes would lose the most nodes. New nodes have the fewest pods, so their clocks start
        first.
        """
        return not self.is_marked, self.moves, self.exceeds_budgets, -nodes_in_zone, not self.has_clock, self.name


def _in_turn(candidates: Iterable[_Candidate], nodes_in: Mapping[_Zone, int]) -> Iterator[_Candidate]:
    """Yield candidates in the order of ``turn``. The caller lowers ``nodes_in`` for each node that it removes."""
    queues: dict[_Zone, list[_Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: candidate.turn(0), reverse=True):
        queues[candidate.zone].append(candidate)
    while queues:
        zone = min(queues, key=lambda zone: queues[zone][-1].turn(nodes_in[zone]))
        yield queues[zone].pop()
        if not queues[zone]:
            del queues[zone]


class _ScaleDown:
    """The search for unneeded nodes in one check."""

    def __init__(self, simulation: Simulation, state: ScaleDownState) -> None:
        workload = simulation.workload
        self._simulation = simulation
        self._snapshot = simulation.snapshot
        self._policy = simulation.policy
        self._now = simulation.now
        self._state = state
        self._budgets = Budgets(workload.budgets)
        self._offers = {offer.group: (pool, offer) for pool in simulation.pools for offer in pool.groups}
        self._nodes = {node.name: node for node in workload.nodes}
        self._deleting = {node.name for node in workload.nodes if is_being_deleted(node, self._now)}
        self._pods_on: dict[str, list[Pod]] = defaultdict(list)  # including pods of nodes being deleted
        for pod in workload.pods:
            self._pods_on[pod.node].append(pod)
        self._destinations: list[NodeInfo] = []  # started nodes, in the order in which they are tried
        self._needed: dict[str, Reason] = {}
        self._waits: dict[str, Reason] = {}

    def run(self) -> Unneeded:
        clocks = {name: since for name, since in self._state.clocks.items() if self._is_of_node(name, since)}
        hanging = self._hanging()
        old_enough = old_enough_at(self._simulation.pending, self._policy, self._now)
        if old_enough is not None and self._now < old_enough:  # principle 4
            clocks = {name: since for name, since in clocks.items() if name in self._nodes}
            waits = dict.fromkeys(clocks, Reason.of(Rule.PODS_TOO_NEW, until=old_enough))
            return Unneeded(clocks=clocks, waits=waits, hanging=hanging)
        self._simulation.schedule_pending()
        self._guard = guard_of(self._simulation)
        fork = self._snapshot.fork()
        candidates = self._find_unneeded()
        self._snapshot.revert(fork)
        clocks = {candidate.name: clocks.get(candidate.name, self._now) for candidate in candidates}
        removals = self._remove(candidates, clocks, hanging)
        return Unneeded(clocks=clocks, go=removals, waits=self._waits, needed=self._needed, hanging=hanging)

    def _is_of_node(self, name: str, since: datetime) -> bool:
        """Return False if the clock belongs to a deleted node that had the same name."""
        node = self._nodes.get(name)
        return node is None or node.created_at is None or node.created_at <= since

    # ---------------------------------------------------------------- unneeded nodes

    def _find_unneeded(self) -> list[_Candidate]:
        """Return the unneeded nodes, in the order in which their pods were placed on other nodes."""
        candidates = []
        for name, node in sorted(self._nodes.items()):
            home = self._offers.get(node.group) if node.group is not None else None
            if home is None:
                self._needed[name] = Reason.of(Rule.NODE_OF_NO_GROUP)
            elif reason := self._lasting_reason(node, *home):
                self._needed[name] = reason
            else:
                candidates.append(self._candidate(name, *home))
        nodes_in = self._nodes_in()
        order = []
        for candidate in _in_turn(candidates, nodes_in):
            nodes_in[candidate.zone] -= 1
            order.append(candidate)
        # Pods are placed first on nodes that are not candidates, then on the candidates that would be removed last.
        # Otherwise an unneeded node might be needed only for the pods of another unneeded node.
        names = [candidate.name for candidate in order]
        names = sorted(self._nodes.keys() - set(names) - self._simulation.starting.keys()) + names[::-1]
        infos = map(self._snapshot.node_infos.__getitem__, names)
        self._destinations = [info for info in infos if info.is_schedulable]
        places = Places(self._snapshot, self._destinations)
        unneeded_nodes = []
        for candidate in order:
            if reason := self._try(candidate, places):
                self._needed[candidate.name] = reason
            else:
                unneeded_nodes.append(candidate)
        return unneeded_nodes

    def _candidate(self, name: str, pool: PoolOffer, offer: GroupOffer) -> _Candidate:
        return _Candidate(
            self._snapshot.node_infos[name],
            pool,
            offer,
            is_marked=name in self._state.leaving,
            has_clock=name in self._state.clocks,
            moves=any(not ends_with_node(pod, self._now) for pod in self._simulation.pods_on[name]),
        )

    def _nodes_in(self) -> Counter[_Zone]:
        nodes_in: Counter[_Zone] = Counter()
        for pool, offer in self._offers.values():
            nodes_in[pool.pool, offer.zone] += offer.requested
        return nodes_in

    def _lasting_reason(self, node: Node, pool: PoolOffer, offer: GroupOffer) -> Reason | None:
        """Return the lasting reason why a node is needed (principle 3); None: it may be unneeded.

        This method does not evaluate whether the node's pods fit other nodes.
        """
        if node.name in self._deleting:
            return Reason.of(Rule.NODE_GOING)
        if offer.held is not None:
            return offer.held
        if offer.unhealthy is not None and not was_never_ready(node):
            return offer.unhealthy
        if node.machine is not None and node.machine.preserved:
            return Reason.of(Rule.MACHINE_PRESERVED)
        if node.name in self._simulation.starting:
            return Reason.of(Rule.NODE_STARTING)
        if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
            return Reason.of(Rule.SCALE_DOWN_DISABLED, annotation=SCALE_DOWN_DISABLED)
        if offer.requested <= offer.min:
            return Reason.of(Rule.GROUP_AT_ITS_MIN, min=offer.min)
        if pool.requested <= pool.min:
            return Reason.of(Rule.POOL_AT_ITS_MIN, min=pool.min)
        used = utilization(self._snapshot.node_infos[node.name])
        if used is None:
            return Reason.of(Rule.ALLOCATABLE_UNKNOWN)
        resource, share = used
        most = offer.options.gpu_threshold if is_gpu(resource) else offer.options.threshold
        if share > most:
            percent = int(share * 100)
            return Reason.of(Rule.NODE_IN_USE, resource=resource, percent=percent, threshold=int(most * 100))
        return None

    def _try(self, candidate: _Candidate, places: Places) -> Reason | None:
        """Place the pods of a node on other nodes. If that fails, return why, and leave the snapshot unchanged."""
        if candidate.moves and candidate.pool.drains_held is not None:
            return candidate.pool.drains_held
        moving = candidate.moving
        for pod in self._simulation.pods_on[candidate.name]:
            decision = drain_decision(pod, self._budgets, self._now)
            if candidate.node_info.node.drained_since is not None:
                decision = drain_continues(pod, decision)
            if isinstance(decision, Reason):
                return decision
            if decision is DrainDecision.WAITED_FOR:
                candidate.waits_for = candidate.waits_for or str(pod)
            elif decision is DrainDecision.MOVES:
                moving.append(pod)
        if reason := self._place(candidate, moving, places):
            return reason
        candidate.exceeds_budgets = not self._budgets.allow_all(moving)
        self._budgets.take(moving)
        return None

    def _place(self, candidate: _Candidate, moving: Sequence[Pod], places: Places) -> Reason | None:
        """Place these pods on other nodes (principle 1). If that fails, return why and leave the snapshot unchanged."""
        if sum(candidate.node_info.pod_groups.values()) > len(self._simulation.pods_on[candidate.name]):
            return Reason.of(Rule.NODE_AWAITED)
        fork = self._snapshot.fork()
        found = find_places(self._simulation, candidate.node_info, moving, places)
        if not isinstance(found, Reason):
            found = self._guard(candidate.node_info) or found
        if isinstance(found, Reason):
            self._snapshot.revert(fork)
            places.revert()
            return found
        candidate.places.update(found)
        return None

    # ---------------------------------------------------------------- removals

    def _remove(
        self, candidates: Sequence[_Candidate], clocks: Mapping[str, datetime], hanging: Sequence[HangingDrain]
    ) -> tuple[Removal, ...]:
        """Return the nodes to remove now.

        Most unneeded nodes are not removed now, and pods on them may keep moved pods off other nodes. So the pods of
        each node to remove are placed once more, in a snapshot that lacks only the nodes removed so far.
        """
        hanging_in = {self._offers[drain.group][0].pool: drain for drain in hanging}
        ripe = []
        for candidate in candidates:
            reason = self._temporary_reason(candidate, clocks[candidate.name], hanging_in.get(candidate.pool.pool))
            if reason is None:
                ripe.append(candidate)
            else:
                self._waits[candidate.name] = reason
        nodes_in, spare, idle = self._nodes_in(), self._spare(), self._idle()
        empty, drains = self._removals_left({drain.node for drain in hanging})
        places = Places(self._snapshot, self._destinations)
        removals = []
        for candidate in _in_turn(ripe, nodes_in):
            group, pool = candidate.offer.group, candidate.pool.pool
            reason = None
            if spare[group] < 1:
                reason = Reason.of(Rule.GROUP_AT_ITS_MIN, min=candidate.offer.min)
            elif spare[pool] < 1:
                reason = Reason.of(Rule.POOL_AT_ITS_MIN, min=candidate.pool.min)
            elif not candidate.moves and (kept := candidate.offer.kept_empty) is not None and idle[group] <= kept.nodes:
                reason = kept.why
            elif candidate.moves and drains < 1:
                reason = Reason.of(Rule.ONE_DRAIN_AT_A_TIME)
            elif not candidate.moves and empty < 1:
                reason = Reason.of(Rule.EMPTY_AT_THEIR_MOST, most=self._policy.most_empty)
            if reason := reason or self._place(candidate, candidate.moving, places):
                self._waits[candidate.name] = reason
                continue
            nodes_in[candidate.zone] -= 1
            spare.subtract((group, pool))
            idle[group] -= not candidate.moves
            empty, drains = empty - (not candidate.moves), drains - candidate.moves
            removals.append(_removal(candidate))
        return tuple(removals)

    def _spare(self) -> Counter[GroupKey | PoolId]:
        """Return the number of existing nodes above the minimum, by group and by pool (principle 2)."""
        existing = Counter(node.group for name, node in self._nodes.items() if name not in self._deleting)
        spare: Counter[GroupKey | PoolId] = Counter()
        for group, (pool, offer) in self._offers.items():
            nodes = min(offer.requested, existing[group])
            spare[group] = nodes - offer.min
            spare[pool.pool] += nodes
        spare.subtract({pool.pool: pool.min for pool, _ in self._offers.values()})
        return spare

    def _idle(self) -> Counter[GroupKey | None]:
        """Return the number of existing nodes of each group without pods that have to move."""
        pods_on, now = self._simulation.pods_on, self._now
        existing = [node for name, node in self._nodes.items() if name not in self._deleting]
        return Counter(node.group for node in existing if all(ends_with_node(pod, now) for pod in pods_on[node.name]))

    def _removals_left(self, hanging: set[str]) -> tuple[int, int]:
        """Return how many more empty nodes, and how many more nodes with pods, may be removed now."""
        deleting = [name for name in self._deleting - hanging if self._nodes[name].group in self._offers]
        return self._policy.most_empty - len(deleting), 1 - sum(map(self._is_drained, deleting))

    def _temporary_reason(self, candidate: _Candidate, since: datetime, hanging: HangingDrain | None) -> Reason | None:
        """Return the temporary reason why an unneeded node is not removed now, apart from limits; None: no reason."""
        state, policy, offer = self._state, self._policy, candidate.offer
        if (until := held_until(state.grew_at, self._now, policy.after_growth)) is not None:
            return Reason.of(Rule.AFTER_GROWTH, until=until)
        if (until := held_until(state.failed_at, self._now, policy.after_failure)) is not None:
            return Reason.of(Rule.AFTER_FAILURE, until=until)
        if offer.waits is not None:
            return offer.waits
        time = offer.options.unneeded_for if candidate.node_info.node.ready else offer.options.unready_for
        # A node must be unneeded for longer than this time, as in cluster-autoscaler. A time of 0 means no wait.
        if time and self._now <= (until := since + time):
            return Reason.of(Rule.UNNEEDED_TOO_SHORT, since=since, until=until)
        if candidate.waits_for:
            return Reason.of(Rule.WAITS_FOR_COMPLETION, pod=candidate.waits_for)
        # A machine controller may drain a node for hours. Without this rule, a pool could start more and more drains
        # that their pods block. A hanging drain does not affect other pools.
        if hanging is not None and candidate.moves and hanging.node != candidate.name:
            return Reason.of(Rule.DRAIN_HANGS, node=hanging.node, since=hanging.since)
        return None

    def _is_drained(self, name: str) -> bool:
        pods = self._simulation.pods_on[name]
        return name in self._simulation.drained or any(not ends_with_node(pod, self._now) for pod in pods)

    def _hanging(self) -> tuple[HangingDrain, ...]:
        """Return the nodes that still have pods to drain long after the deletion of their machines began."""
        hanging = []
        for name, node in sorted(self._nodes.items()):
            since = node.drained_since if node.machine is None else node.machine.deleting_since or node.drained_since
            if since is None or node.group not in self._offers or self._now - since < self._policy.drain_takes:
                continue
            if self._is_drained(name):
                pods = sorted(str(pod) for pod in self._pods_on[name] if not ends_with_node(pod, self._now))
                hanging.append(HangingDrain(node=name, group=node.group, since=since, pods=tuple(pods)))
        return tuple(hanging)


def _removal(candidate: _Candidate) -> Removal:
    machine = candidate.node_info.node.machine
    return Removal(
        node=candidate.name,
        pool=candidate.pool.pool,
        group=candidate.offer.group,
        machine=None if machine is None else machine.ref,
        places=dict(sorted(candidate.places.items())),
    )


def no_place(simulation: Simulation, node_info: NodeInfo, moving: Sequence[Pod], places: Places) -> Reason | None:
    """Return why one of these pods fits no other node; None: all pods fit. The snapshot is unchanged afterwards."""
    fork = simulation.snapshot.fork()
    found = find_places(simulation, node_info, moving, places)
    simulation.snapshot.revert(fork)
    places.revert()
    return found if isinstance(found, Reason) else None


def find_places(
    simulation: Simulation, node_info: NodeInfo, moving: Sequence[Pod], places: Places
) -> dict[str, str] | Reason:
    """Return another node for each of these pods, by pod name; if a pod fits no other node, return why."""
    snapshot, node = simulation.snapshot, node_info.node
    places.begin(node_info)
    snapshot.remove_node(node_info)
    # During its drain, the node still exists, and its topology domains count (simulator/cluster.go:190-262). The
    # simulation replaces the node with a cordoned node without pods.
    drained = replace(node, taints=(*node.taints, Taint(TO_BE_DELETED, "", "NoSchedule")), unschedulable=True)
    drained_info = snapshot.add_node(drained, {})
    pod_groups = {str(pod): simulation.pod_groups.of(pod) for pod in moving}
    found = {}
    for name in sorted(pod_groups, key=lambda name: (-pod_groups[name].cpu, -pod_groups[name].memory, name)):
        place = places.place(pod_groups[name])
        if place is None:
            return Reason.of(Rule.NO_PLACE_ELSEWHERE, pod=name)
        found[name] = place.name
    snapshot.remove_node(drained_info)
    return found
