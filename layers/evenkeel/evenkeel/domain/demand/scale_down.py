"""Nodes that nobody needs: since when, which of them go now, and why each other one stays.

As Cluster Autoscaler does it (core/scaledown), from the fullest zone first. What is remembered from look to look is
one moment per node, written when it begins and when it ends: a look that is missed changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_decision
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pods import is_gpu, judged_from
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.taints import GOING, is_going
from evenkeel.domain.demand.utilization import utilization
from evenkeel.domain.model.demand import (
    DemandPolicy,
    GroupOffer,
    HangingDrain,
    PoolOffer,
    Removal,
    ScaleDownState,
    Unneeded,
)
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import Node, Pod, Workload

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


def unneeded(
    workload: Workload, pools: Iterable[PoolOffer], remembered: ScaleDownState, policy: DemandPolicy, now: datetime
) -> Unneeded:
    """Which nodes of one complete look are not needed, and which of them may go now. Pure: nothing is taken away.

    A node is unneeded if it uses no more than the threshold of itself, nothing on it holds it, and all its pods have a
    place elsewhere: a place that is not given to anybody else in this look, neither to waiting pods nor to those of
    another node. Its clock runs from the first look that finds so to the first that does not. Whoever has been
    unneeded for long enough goes, if neither growth nor a failure was too recent: empty nodes at once, others one by
    one, never below a min. A node whose drain hangs holds the others of its pool, and not those of other pools. The
    answer's ``clocks`` are what to remember; ``go`` is what may be done now.
    """
    simulation = Simulation(workload, tuple(pools), policy, now)
    return _Shrinking(simulation, workload, tuple(pools), remembered).run()


@dataclass
class _Candidate:
    """A node that is not needed, with what would become of its pods."""

    room: NodeInfo
    pool: PoolOffer
    offer: GroupOffer
    places: dict[str, str] = field(default_factory=dict)
    is_risky: bool = False  # its budgets do not allow all its pods at once
    waits_for: str = ""  # a pod that is to complete before

    @property
    def name(self) -> str:
        return self.room.name


class _Shrinking:
    """One look for nodes to take away."""

    def __init__(
        self, simulation: Simulation, workload: Workload, pools: Sequence[PoolOffer], remembered: ScaleDownState
    ) -> None:
        self._world = simulation
        self._placing = simulation.snapshot
        self._policy = simulation.policy
        self._now = simulation.now
        self._remembered = remembered
        self._budgets = Budgets(workload.budgets)
        self._homes = {offer.group: (pool, offer) for pool in pools for offer in pool.groups}
        self._nodes = {node.name: node for node in workload.nodes}
        self._on: dict[str, list[Pod]] = defaultdict(
            list
        )  # every pod that stands on a node, those of one that goes too
        for pod in workload.pods:
            self._on[pod.node].append(pod)
        self._places: list[str] = []  # nodes that are there, in the order in which places are sought on them
        self._needed: dict[str, Reason] = {}
        self._waits: dict[str, Reason] = {}
        self._there = Counter(
            node.group for node in workload.nodes if node.group is not None and not is_going(node, simulation.now)
        )

    def run(self) -> Unneeded:
        clocks = {name: since for name, since in self._remembered.clocks.items() if self._runs(name, since)}
        hanging = self._hanging()
        judged_at = judged_from(self._world.waiting, self._policy, self._now)
        if judged_at is not None and self._now < judged_at:
            # Who waits has not been judged yet: nothing begins, nothing ends, nothing goes.
            held = Reason.of(Rule.PODS_TOO_NEW, until=judged_at)
            pods_on = {name: since for name, since in clocks.items() if name in self._nodes}
            gone = frozenset(self._remembered.clocks.keys() - pods_on.keys())
            return Unneeded(clocks=pods_on, ended=gone, waits=dict.fromkeys(pods_on, held), hanging=hanging)
        self._world.schedule_pending()
        fork = self._placing.fork()
        found = self._find()
        self._placing.revert(fork)
        now_clocks = {candidate.name: clocks.get(candidate.name, self._now) for candidate in found}
        go = self._choose(found, now_clocks, hanging)
        return Unneeded(
            clocks=now_clocks,
            started=frozenset(now_clocks.keys() - clocks.keys()),
            ended=frozenset(self._remembered.clocks.keys() - now_clocks.keys()),
            go=tuple(go),
            hanging=hanging,
            waits=self._waits,
            needed=self._needed,
        )

    def _runs(self, name: str, since: datetime) -> bool:
        """Whether a clock is of the node that is there now, and not of one before it that was called the same."""
        node = self._nodes.get(name)
        return node is None or node.created_at is None or node.created_at <= since

    # ---------------------------------------------------------------- who is not needed

    def _find(self) -> list[_Candidate]:
        """Every node that is not needed, in the order in which places were given away for their pods."""
        candidates = []
        for name, node in sorted(self._nodes.items()):
            home = self._homes.get(node.group) if node.group is not None else None
            reason = self._kept(node, home)
            if reason is not None:
                self._needed[name] = reason
            elif home is not None:
                candidates.append(_Candidate(self._placing.node_infos[name], *home))
        self._sort(candidates)
        # Places on nodes that stay anyway come first, then on those that would go last: else a node that could go as
        # well is needed for what came from another.
        going = [candidate.name for candidate in candidates]
        staying = self._nodes.keys() - set(going) - self._world.starting.keys()
        self._places = sorted(staying) + going[::-1]
        found = []
        for candidate in candidates:
            reason = self._try(candidate)
            if reason is None:
                found.append(candidate)
            else:
                self._needed[candidate.name] = reason
        return found

    def _sort(self, candidates: list[_Candidate]) -> None:
        """What we have marked already first, then empty ones; of each from the fullest zone, and then those whose clock
        runs. Clocks before zones, as Cluster Autoscaler has them, the zone with the newest nodes would give most: the
        newest have the fewest pods, so their clocks begin first, and other nodes are needed for what stands there.

        Each that goes leaves its zone with one less.
        """
        known = self._remembered
        turns = {
            each.name: (each.name not in known.leaving, bool(self._moving(each.name)), each.name not in known.clocks)
            for each in candidates
        }
        candidates.sort(key=lambda candidate: (turns[candidate.name], candidate.name))
        left = _in_zones(self._homes)
        ranks: dict[str, tuple[bool, bool, int, bool, str]] = {}
        for candidate in candidates:
            zone, (is_new, moves, no_clock) = (candidate.pool.pool, candidate.offer.zone), turns[candidate.name]
            ranks[candidate.name] = is_new, moves, -left[zone], no_clock, candidate.name
            left[zone] -= 1
        candidates.sort(key=lambda candidate: ranks[candidate.name])

    def _kept(self, node: Node, home: tuple[PoolOffer, GroupOffer] | None) -> Reason | None:
        """What keeps a node, whatever stands on it, or because too much does."""
        if home is None:
            return Reason.of(Rule.NODE_OF_NO_GROUP)
        pool, offer = home
        if is_going(node, self._now):
            return Reason.of(Rule.NODE_GOING)
        if offer.held is not None:
            return offer.held
        if node.machine is not None and node.machine.preserved:
            return Reason.of(Rule.MACHINE_PRESERVED)
        if node.name in self._world.starting:
            return Reason.of(Rule.NODE_STARTING)
        if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
            return Reason.of(Rule.SCALE_DOWN_DISABLED, annotation=SCALE_DOWN_DISABLED)
        if offer.requested <= offer.min:
            return Reason.of(Rule.GROUP_AT_ITS_MIN, min=offer.min)
        if pool.requested <= pool.min:
            return Reason.of(Rule.POOL_AT_ITS_MIN, min=pool.min)
        used = utilization(self._placing.node_infos[node.name])
        if used is None:
            return Reason.of(Rule.ALLOCATABLE_UNKNOWN)
        resource, share = used
        threshold = self._threshold(offer, has_gpu=is_gpu(resource))
        if share > threshold:
            percent, most = int(share * 100), int(threshold * 100)
            return Reason.of(Rule.NODE_IN_USE, resource=resource, percent=percent, threshold=most)
        return None

    def _threshold(self, offer: GroupOffer, *, has_gpu: bool) -> Fraction:
        """Return the share of a node that may be asked for while it is unneeded: its group's own, else the default."""
        if has_gpu:
            return self._policy.gpu_threshold if offer.gpu_threshold is None else offer.gpu_threshold
        return self._policy.threshold if offer.threshold is None else offer.threshold

    def _moving(self, node: str) -> list[Pod]:
        """The pods of a node that would need another place, whether or not they may have one."""
        return [
            pod
            for pod in self._world.pods_on[node]
            if drain_decision(pod, self._budgets, self._now) is not DrainDecision.ENDS
        ]

    def _try(self, candidate: _Candidate) -> Reason | None:
        """Find a place for each pod, and give it away; or why the node has to stay, with everything as before."""
        moving = []
        for pod in self._world.pods_on[candidate.name]:
            its = drain_decision(pod, self._budgets, self._now)
            if isinstance(its, Reason):
                return its
            if its is DrainDecision.WAITED_FOR:
                candidate.waits_for = candidate.waits_for or str(pod)
            elif its is DrainDecision.MOVES:
                moving.append(pod)
        if reason := self._settle_elsewhere(candidate, moving):
            return reason
        candidate.is_risky = not self._budgets.allow_all(moving)
        self._budgets.take(moving)
        return None

    def _settle_elsewhere(self, candidate: _Candidate, moving: Sequence[Pod]) -> Reason | None:
        """A place for each of these pods, with the node gone; or why it has to stay, with everything as before."""
        if candidate.room.pod_groups.total() > len(self._world.pods_on[candidate.name]):
            return Reason.of(Rule.NODE_AWAITED)
        node_infos = (room for name in self._places if (room := self._placing.node_infos.get(name)) and room.is_open)
        fork = self._placing.fork()
        places = find_places(self._world, candidate.room, moving, node_infos)
        if isinstance(places, Reason):
            self._placing.revert(fork)
            return places
        candidate.places.update(places)
        return None

    # ---------------------------------------------------------------- who goes now

    def _choose(
        self, found: Sequence[_Candidate], clocks: Mapping[str, datetime], hanging: Sequence[HangingDrain]
    ) -> list[Removal]:
        """Who goes: long enough unneeded, within the limits, from the fullest zone first.

        Of those that were found together most may stay for now, and with them whom they keep away: so the pods of each
        have to have their places also in a world without those alone that go.
        """
        held = self._held()
        hangs = {self._homes[each.group][0].pool: each for each in hanging}
        ripe = []
        for candidate in found:
            reason = held or candidate.offer.waits or self._unripe(candidate, clocks[candidate.name])
            stuck = hangs.get(candidate.pool.pool)
            if reason is None and stuck is not None and candidate.places:
                reason = Reason.of(Rule.DRAIN_HANGS, node=stuck.node, since=stuck.since)
            if reason is None:
                ripe.append(candidate)
            else:
                self._waits[candidate.name] = reason
        limits = _Limits(self._homes, self._policy, self._remembered.leaving, self._there, *self._under_way(hanging))
        go = []
        while ripe:
            candidate = min(ripe, key=limits.turn)
            ripe.remove(candidate)
            reason = limits.refusal(candidate)
            if reason is None:
                moving = [pod for pod in self._world.pods_on[candidate.name] if str(pod) in candidate.places]
                reason = self._settle_elsewhere(candidate, moving)
            if reason is None:
                limits.take(candidate)
                go.append(
                    Removal(
                        node=candidate.name,
                        pool=candidate.pool.pool,
                        group=candidate.offer.group,
                        machine=None if (machine := candidate.room.node.machine) is None else machine.ref,
                        places=dict(sorted(candidate.places.items())),
                    )
                )
            else:
                self._waits[candidate.name] = reason
        return go

    def _held(self) -> Reason | None:
        """What holds every node for now."""
        grew, failed = self._remembered.grew_at, self._remembered.failed_at
        if grew is not None and self._now < (until := grew + self._policy.after_growth):
            return Reason.of(Rule.AFTER_GROWTH, until=until)
        if failed is not None and self._now < (until := failed + self._policy.after_failure):
            return Reason.of(Rule.AFTER_FAILURE, until=until)
        return None

    def _unripe(self, candidate: _Candidate, since: datetime) -> Reason | None:
        offer, policy = candidate.offer, self._policy
        own, default = offer.unneeded_for, policy.unneeded_for
        if not self._nodes[candidate.name].ready:
            own, default = offer.unready_for, policy.unready_for
        wanted: timedelta = default if own is None else own
        if self._now - since <= wanted:
            return Reason.of(Rule.UNNEEDED_TOO_SHORT, since=since, until=since + wanted)
        if candidate.waits_for:
            return Reason.of(Rule.WAITS_FOR_COMPLETION, pod=candidate.waits_for)
        return None

    def _under_way(self, hanging: Sequence[HangingDrain]) -> tuple[int, int]:
        """Nodes of pools that are going already: all of them, and those that are still drained and do not hang."""
        hang = {each.node for each in hanging}
        ours = [name for name, node in self._nodes.items() if node.group in self._homes and name not in hang]
        going = [name for name in ours if is_going(self._nodes[name], self._now)]
        return len(going), sum(self._is_drained(name) for name in going)

    def _is_drained(self, name: str) -> bool:
        return bool(self._moving(name)) or name in self._world.drained

    def _hanging(self) -> tuple[HangingDrain, ...]:
        """Machines that were asked to go long ago, and whose nodes still have pods that should go first."""
        found = []
        for name, node in sorted(self._nodes.items()):
            since = None if node.machine is None else node.machine.deleting_since
            if since is None or node.group not in self._homes or self._now - since < self._policy.drain_takes:
                continue
            if self._is_drained(name):
                pods = tuple(sorted(str(pod) for pod in self._on.get(name, ()) if self._is_evicted(pod)))
                found.append(HangingDrain(node=name, group=node.group, since=since, pods=pods))
        return tuple(found)

    def _is_evicted(self, pod: Pod) -> bool:
        return drain_decision(pod, self._budgets, self._now) is not DrainDecision.ENDS


def _in_zones(homes: Mapping[GroupKey, tuple[PoolOffer, GroupOffer]]) -> Counter[tuple[PoolId, str]]:
    """What is requested in each zone of each pool."""
    found: Counter[tuple[PoolId, str]] = Counter()
    for pool, offer in homes.values():
        found[pool.pool, offer.zone] += offer.requested
    return found


def find_places(
    simulation: Simulation, room: NodeInfo, moving: Sequence[Pod], node_infos: Iterable[NodeInfo]
) -> dict[str, str] | Reason:
    """The place of each of these pods with their node gone, among these rooms; or the first pod that has none."""
    snapshot, node = simulation.snapshot, room.node
    snapshot.remove(room)
    # While its pods come elsewhere, the node is still there, with nobody on it (simulator/cluster.go:190-262).
    gone = replace(node, taints=(*node.taints, Taint(GOING, "", "NoSchedule")), unschedulable=True)
    ghost = snapshot.add(gone, {})
    others = [other for other in node_infos if other.name != room.name]
    pod_groups = {str(pod): simulation.pod_groups.of(pod) for pod in moving}
    places = {}
    for pod in sorted(moving, key=lambda pod: (-pod_groups[str(pod)].cpu, -pod_groups[str(pod)].memory, str(pod))):
        place = snapshot.find(pod_groups[str(pod)], others)
        if place is None:
            return Reason.of(Rule.NO_PLACE_ELSEWHERE, pod=str(pod))
        places[str(pod)] = place.name
    snapshot.remove(ghost)
    return places


class _Limits:
    """How many more may go, and whose turn it is."""

    def __init__(
        self,
        homes: Mapping[GroupKey, tuple[PoolOffer, GroupOffer]],
        policy: DemandPolicy,
        leaving: Container[str],
        there: Mapping[GroupKey, int],
        going: int,
        drained: int,
    ) -> None:
        # A minimum is one of nodes: what is requested and not there yet may never come.
        self._spare = {key: min(offer.requested, there.get(key, 0)) - offer.min for key, (_, offer) in homes.items()}
        nodes = Counter[PoolId]()
        for key, (pool, offer) in homes.items():
            nodes[pool.pool] += min(offer.requested, there.get(key, 0))
        self._pool_spare = {pool.pool: nodes[pool.pool] - pool.min for pool, _ in homes.values()}
        self._in_zone = _in_zones(homes)
        self._leaving = leaving
        self._empty = max(0, policy.most_empty - going)
        self._most_empty = policy.most_empty
        self._drains = max(0, 1 - drained)

    def turn(self, candidate: _Candidate) -> tuple[bool, bool, bool, int, str]:
        """Marked by us already before others, empty before drained, what its budgets let go at once before what they do
        not, the fullest zone first.
        """
        full = self._in_zone[candidate.pool.pool, candidate.offer.zone]
        is_new = candidate.name not in self._leaving
        return is_new, bool(candidate.places), candidate.is_risky, -full, candidate.name

    def refusal(self, candidate: _Candidate) -> Reason | None:
        """Which limit a node has to wait for; None: it may go."""
        group, pool = candidate.offer.group, candidate.pool.pool
        if self._spare[group] < 1:
            return Reason.of(Rule.GROUP_AT_ITS_MIN, min=candidate.offer.min)
        if self._pool_spare[pool] < 1:
            return Reason.of(Rule.POOL_AT_ITS_MIN, min=candidate.pool.min)
        if candidate.places and self._drains < 1:
            return Reason.of(Rule.ONE_DRAIN_AT_A_TIME)
        if not candidate.places and self._empty < 1:
            return Reason.of(Rule.EMPTY_AT_THEIR_MOST, most=self._most_empty)
        return None

    def take(self, candidate: _Candidate) -> None:
        """Count a node as going."""
        group, pool = candidate.offer.group, candidate.pool.pool
        if candidate.places:
            self._drains -= 1
        else:
            self._empty -= 1
        self._spare[group] -= 1
        self._pool_spare[pool] -= 1
        self._in_zone[pool, candidate.offer.zone] -= 1
