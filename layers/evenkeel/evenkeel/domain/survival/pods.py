"""The nodes that pools need so that the pods of any lost zone find a place in the other zones.

The loss of each zone is played on the nodes of this check (``domain.survival.zone_loss``). Pods without a place get new
nodes in other zones of their pool. A node that is added for one zone also counts for the next one. Pods that fit no new
node of another zone are bound to their zone, and get none.

A new node helps all zones but its own. So the zone with the most pods without a place is first, and nodes are added to
the zone with the fewest. If all pods are equal, no fewer nodes suffice. Otherwise this is first-fit.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel.domain.demand.cluster_snapshot import Places
from evenkeel.domain.demand.drainability import ends_with_node
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import is_unplaceable
from evenkeel.domain.demand.scale_down import find_places
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import GroupOffer, KeptNodes, PoolOffer
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node
from evenkeel.domain.survival.zone_loss import ZoneLosses, survives

# The most nodes that one check orders so that pools survive. Further nodes follow at later checks.
_MOST_NODES = 100


@dataclass(kw_only=True)
class PodNeeds:
    """The needs of one pool. The mappings of nodes are by group."""

    missing: Counter[GroupKey] = field(default_factory=Counter)  # nodes to order
    coming: int = 0  # nodes that are needed and have not started yet
    idle: Counter[GroupKey] = field(default_factory=Counter)  # needed nodes that have no pods of their own
    bound: Counter[str] = field(default_factory=Counter)  # number of pods that fit in no other zone, by their zone
    busy: Counter[GroupKey] = field(default_factory=Counter)  # nodes with pods that need a place elsewhere


def nodes_to_keep(simulation: Simulation, pools: Sequence[PoolOffer], pool: PoolId, kept: KeptNodes) -> KeptNodes:
    """Return the nodes of a pool that no request may remove, so that the pods of any lost zone still find a place.

    Nodes are tried in the order in which a request removes them: first the newest of the group with the most nodes. The
    pods of each removed node take their places first. A node without a place for them remains, too.

    ``simulation``: a new one of the check. ``kept``: the nodes that remain anyway. They are not part of the result.
    """
    simulation.schedule_pending()
    losses = ZoneLosses(simulation, pools)
    losses.begin()
    groups = {offer.group for each in pools if each.pool == pool for offer in each.groups}
    left = _nodes_to_try(simulation, groups, kept)
    tried = {info.name: info for infos in left.values() for info in infos}
    started = simulation.started - tried.keys()
    others = [info for info in simulation.schedulable_nodes() if info.name in started]
    places = Places(simulation.snapshot, [*others, *(info for info in tried.values() if info.is_schedulable)])
    to_survive: Counter[GroupKey] = Counter()
    machines = set()
    while left:
        group = max(left, key=lambda group: (len(left[group]), group))
        info = left[group].pop()
        if not left[group]:
            del left[group]
        if not _is_removed(simulation, info, places, losses):
            to_survive[group] += 1
            machines |= {info.node.machine.ref} if info.node.machine is not None else set()
    return KeptNodes(machines=frozenset(machines), by_group={}, others={Rule.KEPT_TO_SURVIVE: to_survive})


def _nodes_to_try(
    simulation: Simulation, groups: Container[GroupKey], kept: KeptNodes
) -> dict[GroupKey, list[NodeInfo]]:
    """Return the nodes of each group that a request might remove. The last node of a group is removed first."""
    found: dict[GroupKey, list[NodeInfo]] = {}
    for node in sorted(simulation.workload.nodes, key=lambda node: (not node.ready, _created(node), node.name)):
        is_kept = node.machine is not None and node.machine.ref in kept.machines
        if node.group is not None and node.group in groups and not (node.deleting or is_kept):
            found.setdefault(node.group, []).append(simulation.snapshot.node_infos[node.name])
    return found


def _created(node: Node) -> float:
    created_at = node.created_at if node.machine is None else node.machine.created_at
    return 0.0 if created_at is None else created_at.timestamp()


def _is_removed(simulation: Simulation, info: NodeInfo, places: Places, losses: ZoneLosses) -> bool:
    """Remove a node, and place its pods on other nodes. False: it must remain, and the snapshot is unchanged."""
    pods, fork = simulation.pods_on[info.name], simulation.snapshot.fork()
    if sum(info.pod_groups.values()) > len(pods):
        return False  # pods of a removed node are placed here
    found = find_places(simulation, info, [pod for pod in pods if not ends_with_node(pod, simulation.now)], places)
    if not isinstance(found, Reason) and losses.needed(info) is None:
        return True
    simulation.snapshot.revert(fork)
    places.revert()
    return False


def needs_of(simulation: Simulation, pools: Sequence[PoolOffer]) -> dict[PoolId, PodNeeds]:
    """Return the needs of each pool that must survive. Pending pods take their places first."""
    simulation.schedule_pending()
    return _Search(simulation, list(filter(survives, pools)), ZoneLosses(simulation, pools)).run()


class _Search:
    def __init__(self, simulation: Simulation, pools: Sequence[PoolOffer], losses: ZoneLosses) -> None:
        self._simulation = simulation
        self._losses = losses
        self._pools = pools
        self._offers = {offer.group: (pool, offer) for pool in pools for offer in pool.groups}
        self._needs = {pool.pool: PodNeeds() for pool in pools}
        self._added: list[GroupKey] = []
        # Zone -> the pods that need new nodes if the zone is lost. After nodes are added, the numbers are estimates.
        self._unplaced: Counter[str] = Counter()

    def run(self) -> dict[PoolId, PodNeeds]:
        short = [zone for zone in self._losses.zones if self._losses.lose(zone).unplaced]
        self._unplaced = Counter({zone: self._lacking_nodes(zone) for zone in short})
        while short:
            zone = max(short, key=lambda zone: self._unplaced[zone])
            short.remove(zone)
            before = len(self._added)
            loss = self._losses.lose(zone, self._place_on_new_nodes)
            for group in self._added[before:]:
                self._simulation.add_template_node(group)
            self._count_bound(zone, loss.unplaced)
        self._count_unplaceable()
        used = {name for zone in self._losses.zones for name in self._losses.lose(zone).used}
        for info in self._simulation.snapshot.node_infos.values():
            if (needs := self._needs_at(info)) is not None and info.node.group is not None:
                is_empty = self._losses.is_empty(info)
                needs.busy[info.node.group] += not is_empty
                needs.idle[info.node.group] += is_empty and info.name in used
                needs.coming += info.name in used and info.name not in self._simulation.started
        for group in self._added:
            needs = self._needs[self._offers[group][0].pool]
            needs.missing[group] += 1
        return self._needs

    def _lacking_nodes(self, zone: str) -> int:
        """Return how many pods of a lost zone have no place, but fit new nodes. No node is added."""
        unplaced, bound = self._losses.lose(zone), self._losses.lose(zone, self._place_on_new_nodes)
        self._added.clear()
        return sum(unplaced.unplaced.values()) - sum(bound.unplaced.values())

    def _place_on_new_nodes(self, zone: str, unplaced: Mapping[PodGroup, int]) -> dict[PodGroup, int]:
        """Place pods of a lost zone on new nodes, and return the number of pods that fit no new node."""
        left = dict(unplaced)
        for pod_group in unplaced:
            while left[pod_group] and self._fills_new_node(zone, pod_group, left):
                pass
        return {pod_group: count for pod_group, count in left.items() if count}

    def _fills_new_node(self, zone: str, pod_group: PodGroup, left: dict[PodGroup, int]) -> bool:
        """Add a node that fits these pods to the best group, and place as many pods as fit. False: none fits."""
        snapshot = self._simulation.snapshot
        if len(self._added) >= _MOST_NODES:
            return False
        for offer in self._best_first(zone):
            fork, before = snapshot.fork(), sum(left.values())
            info = self._simulation.add_template_node(offer.group)
            if placed := snapshot.fill_node(pod_group, info, left[pod_group]):
                left[pod_group] -= placed
                for other in left:
                    left[other] -= snapshot.fill_node(other, info, left[other])
                self._added.append(offer.group)
                fitted = before - sum(left.values())
                for helped in self._unplaced.keys() - {offer.zone}:
                    self._unplaced[helped] = max(0, self._unplaced[helped] - fitted)
                return True
            snapshot.revert(fork)
        return False

    def _needs_at(self, info: NodeInfo) -> PodNeeds | None:
        """Return the needs of a node's pool; None: the pool does not have to survive, or the node is in no pool."""
        home = self._offers.get(info.node.group) if info.node.group is not None else None
        return None if home is None else self._needs[home[0].pool]

    def _best_first(self, zone: str) -> list[GroupOffer]:
        """Return the groups outside this zone whose nodes are known, best first.

        Groups that may get nodes are first. Then the zone with the fewest pods without a place is first, and in it the
        smallest group.
        """
        added = Counter(self._added)
        known = [
            offer
            for _, offer in self._offers.values()
            if offer.zone != zone and offer.group in self._simulation.template_nodes
        ]
        return sorted(
            known,
            key=lambda offer: (
                offer.room <= added[offer.group],
                self._unplaced[offer.zone],
                offer.requested + added[offer.group],
                offer.group,
            ),
        )

    def _count_bound(self, zone: str, unplaced: Mapping[PodGroup, int]) -> None:
        """Count the pods of a zone that fit in no other zone, by the pool of their nodes."""
        left = dict(unplaced)
        for info in self._simulation.snapshot.node_infos.values():
            needs = self._needs_at(info)
            if needs is None or self._losses.zone_of(info) != zone:
                continue
            for pod_group, count in info.pod_groups.items():
                bound = min(count, left.get(pod_group, 0))
                left[pod_group] = left.get(pod_group, 0) - bound
                needs.bound[zone] += bound

    def _count_unplaceable(self) -> None:
        """Count the pods that Evenkeel cannot place anywhere as bound to their zone."""
        for name, pods in self._simulation.pods_on.items():
            info = self._simulation.snapshot.node_infos.get(name)
            needs = None if info is None else self._needs_at(info)
            if info is not None and needs is not None:
                needs.bound[self._losses.zone_of(info)] += sum(map(is_unplaceable, pods))
