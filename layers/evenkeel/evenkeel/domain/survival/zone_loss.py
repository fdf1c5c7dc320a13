"""The loss of one zone, played on a snapshot: the pods of that zone that find a place in the other zones.

Only pods on nodes of pools that must survive look for a place. A place may be on any other node. No two pods use the
same place. Pods that come with a node, or that get no node of their own, need no place.

Many plans read no pods. So the modules that place pods are imported where they are used.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenkeel.domain.model.demand import PoolOffer
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import ZONE

if TYPE_CHECKING:
    from evenkeel.domain.demand.guards import Guard
    from evenkeel.domain.demand.node_info import NodeInfo
    from evenkeel.domain.demand.pod_groups import PodGroup
    from evenkeel.domain.demand.simulation import Simulation

PlaceMore = Callable[[str, Mapping["PodGroup", int]], dict["PodGroup", int]]

# At most so many removals are played in one search for nodes to remove. A further node whose removal might break
# survival counts as needed. More nodes are not removed at once anyway. With 1,000 nodes, each takes 25 ms.
_MOST_PLAYED = 30


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The result of the loss of one zone."""

    unplaced: "Mapping[PodGroup, int]"  # number of pods without a place, by pod group
    used: frozenset[str]  # names of the nodes on which pods of the lost zone are placed


class ZoneLosses:
    """Plays the loss of each zone in which pools that must survive have nodes."""

    def __init__(self, simulation: "Simulation", pools: Iterable[PoolOffer]) -> None:
        from evenkeel.domain.demand.pods import not_rescheduled_because

        offers = [(pool, offer) for pool in pools for offer in pool.groups]
        self._simulation = simulation
        self._snapshot = simulation.snapshot
        self._zone_of = {offer.group: offer.zone for _, offer in offers}
        self._zone_called = {offer.zone_label: offer.zone for _, offer in offers if offer.zone_label is not None}
        self._surviving = {offer.group for pool, offer in offers if survives(pool)}
        self.zones = sorted({offer.zone for pool, offer in offers if survives(pool)})
        template_pods = [pod for template in simulation.template_nodes.values() for pod in template.pods]
        settled = [
            pod
            for pods in simulation.pods_on.values()
            for pod in pods
            if not_rescheduled_because(pod, simulation.policy) is not None
        ]
        self._settled = {simulation.pod_groups.of(pod) for pod in (*settled, *template_pods)}
        self._allowed: dict[str, int] = {}  # zone -> number of pods that had no place before any removal
        self._used: frozenset[str] = frozenset()
        self._played = 0

    def zone_of(self, node_info: "NodeInfo") -> str:
        """Return the zone of a node: its group's zone, else its label."""
        group, label = node_info.node.group, node_info.labels.get(ZONE, "")
        if group is not None and group in self._zone_of:
            return self._zone_of[group]
        return self._zone_called.get(label, label)

    def is_empty(self, node_info: "NodeInfo") -> bool:
        """Return True if a node has only pods that need no place elsewhere."""
        return all(pod_group in self._settled for pod_group in node_info.pod_groups)

    def lose(self, zone: str, place_more: PlaceMore | None = None) -> Loss:
        """Return the result of the loss of a zone. The snapshot is not changed.

        ``place_more`` places pods that have no place, before the changes are reverted. It returns the pods that remain.
        """
        snapshot = self._snapshot
        before = snapshot.fork()
        homeless: Counter[PodGroup] = Counter()
        for info in [info for info in snapshot.node_infos.values() if self.zone_of(info) == zone]:
            if info.node.group in self._surviving:
                pod_groups = info.pod_groups.items()
                homeless.update({group: count for group, count in pod_groups if group not in self._settled})
            snapshot.remove_node(info)
        fork = snapshot.fork()
        unplaced = self._simulation.place(homeless, self._destinations())
        if unplaced and place_more is not None:
            unplaced = place_more(zone, unplaced)
        used = snapshot.filled_since(fork)
        snapshot.revert(before)
        return Loss(unplaced=unplaced, used=used)

    def _destinations(self) -> "Sequence[NodeInfo]":
        """Return the schedulable nodes: started ones first, nodes with pods before empty ones, small zones first.

        Scale-down removes empty nodes of large zones first. So survival keeps other nodes than scale-down would remove.
        """
        started, nodes = self._simulation.started, self._simulation.schedulable_nodes()
        nodes_in = Counter(map(self.zone_of, nodes))
        return sorted(
            nodes,
            key=lambda info: (info.name not in started, self.is_empty(info), nodes_in[self.zone_of(info)], info.name),
        )

    # ---------------------------------------------------------------- nodes that survival needs

    def begin(self) -> None:
        """Store how many pods of each zone have no place elsewhere, before any node is removed."""
        losses = {zone: self.lose(zone) for zone in self.zones}
        self._allowed = {zone: sum(loss.unplaced.values()) for zone, loss in losses.items()}
        self._used = frozenset().union(*(loss.used for loss in losses.values()))
        self._played = 0

    def needed(self, removed: "NodeInfo") -> Reason | None:
        """Return why survival needs a node that is removed from the snapshot; None: it does not need the node.

        The node is needed if the loss of a zone would leave more pods without a place than before. An empty node that
        no loss has used makes no difference. Scale-down, convergence and requests remove no needed node.
        """
        zone = self._broken(removed)
        return None if zone is None else Reason.of(Rule.NEEDED_TO_SURVIVE, zone=zone)

    def _broken(self, removed: "NodeInfo") -> str | None:
        if self.is_empty(removed) and removed.name not in self._used:
            return None
        if self._played >= _MOST_PLAYED:
            return self.zones[0]
        self._played += 1
        used: set[str] = set()
        for zone in self.zones:
            loss = self.lose(zone)
            if sum(loss.unplaced.values()) > self._allowed[zone]:
                return zone
            used |= loss.used
        self._used = frozenset(used)
        return None


def guard_zones(simulation: "Simulation") -> "Guard":
    """Return the guard of the pools that must survive."""
    losses = ZoneLosses(simulation, simulation.pools)
    losses.begin()
    return losses.needed


def survives(pool: PoolOffer) -> bool:
    """Return True if the pods of any one zone must fit on the nodes of the other zones."""
    return pool.guard is guard_zones
