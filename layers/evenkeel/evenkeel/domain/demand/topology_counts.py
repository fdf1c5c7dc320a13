"""Counts of matching pods in each topology domain, updated while pods are placed.

A domain is one value of a topology key, such as a zone or a host. To count again for each pod would take nodes x pods
steps. Here, a placed pod changes only the few counts that match its pod group.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.model.workload import TopologySpreadConstraint


class TopologyCount:
    """The number of matching pods for each value of a node label."""

    def __init__(self, key: str, matches: Callable[[PodGroup], bool]) -> None:
        self.key = key
        self.matches = matches
        self.pods: dict[str, int] = defaultdict(int)
        self.total = 0

    def change(self, node_info: NodeInfo, count: int) -> None:
        """Add matching pods on a node. A negative count removes pods."""
        value = node_info.labels.get(self.key)
        if value is not None:
            self.total += count
            self.pods[value] += count

    def at(self, node_info: NodeInfo) -> int:
        """Return the number of matching pods in a node's domain; 0 if the node is in no domain."""
        value = node_info.labels.get(self.key)
        return 0 if value is None else self.pods[value]


class EligibleDomains:
    """The domains of the nodes that a spread constraint counts.

    Constraints that count the same nodes share one object.
    """

    def __init__(self, key: str, is_eligible: Callable[[NodeInfo], bool]) -> None:
        self.key = key
        self.domain_of: dict[NodeInfo, str] = {}
        self.nodes: dict[str, int] = defaultdict(int)
        self.counts: list[SpreadCount] = []
        self._is_eligible = is_eligible

    def add_node(self, node_info: NodeInfo) -> None:
        """Add a node. The first node of a domain also adds the domain."""
        if self.key in node_info.labels and self._is_eligible(node_info):
            value = self.domain_of[node_info] = node_info.labels[self.key]
            self.nodes[value] += 1
            if self.nodes[value] == 1:
                for count in self.counts:
                    count.add_domain(value)

    def remove_node(self, node_info: NodeInfo) -> None:
        """Remove a node. The last node of a domain also removes the domain."""
        value = self.domain_of.pop(node_info, None)
        if value is None:
            return
        self.nodes[value] -= 1
        if not self.nodes[value]:
            del self.nodes[value]
            for count in self.counts:
                count.remove_domain(value)


class SpreadCount(TopologyCount):
    """The matching pods per eligible domain, with the minimum over these domains."""

    def __init__(self, domains: EligibleDomains, matches: Callable[[PodGroup], bool]) -> None:
        super().__init__(domains.key, matches)
        self._domains = domains
        self._levels: dict[int, int] = defaultdict(int)  # number of pods -> number of domains with that number of pods
        domains.counts.append(self)
        for value in domains.nodes:
            self.add_domain(value)

    def minimum(self, min_domains: int) -> int:
        """Return the smallest number of matching pods in a domain; 0 if there are fewer domains than minDomains."""
        return min(self._levels, default=0) if len(self._domains.nodes) >= min_domains else 0

    def change(self, node_info: NodeInfo, count: int) -> None:
        """Add matching pods on a node, if the node is eligible. A negative count removes pods."""
        value = self._domains.domain_of.get(node_info)
        if value is not None:
            before = self.pods[value]
            after = self.pods[value] = before + count
            self._levels[after] += 1
            self._leave(before)

    def add_domain(self, value: str) -> None:
        """Include a domain in the minimum, because it has got its first node."""
        self._levels[self.pods[value]] += 1

    def remove_domain(self, value: str) -> None:
        """Exclude a domain from the minimum, because it has lost its last node."""
        self._leave(self.pods[value])

    def _leave(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]


class _Placed:
    """The nodes of a pod group's pods, and the counts that include these pods."""

    __slots__ = ("compared", "counts", "node_infos")

    def __init__(self) -> None:
        self.node_infos: dict[NodeInfo, int] = {}  # number of pods by node
        self.counts: list[TopologyCount] = []
        self.compared = 0  # number of all counts that were compared with the pod group


class TopologyCounts:
    """All counts that a filter has requested so far, and the nodes of each pod group."""

    def __init__(self) -> None:
        self._node_infos: dict[NodeInfo, None] = {}
        self._placed: defaultdict[PodGroup, _Placed] = defaultdict(_Placed)
        self._domains: dict[Hashable, EligibleDomains] = {}
        self._by_name: dict[Hashable, TopologyCount] = {}
        # For each pod group: its spread constraints, each with its count and the number of matching pods one pod is.
        self.spreads: dict[PodGroup, list[tuple[TopologySpreadConstraint, SpreadCount, int]]] = {}
        self._counts: list[TopologyCount] = []

    def of(self, name: Hashable, make: Callable[[], TopologyCount]) -> TopologyCount:
        """Return the count with this name. The first call for a name makes the count."""
        count = self._by_name.get(name)
        if count is None:
            count = self._by_name[name] = make()
            self.add(count)
        return count

    def add(self, count: TopologyCount) -> None:
        """Add a count. It includes the pods that are there already."""
        self._counts.append(count)
        for pod_group, placed in self._placed.items():
            if placed.node_infos and count.matches(pod_group):
                for node_info, pods in placed.node_infos.items():
                    count.change(node_info, pods)

    def domains(self, key: str, alike: Hashable, is_eligible: Callable[[NodeInfo], bool]) -> EligibleDomains:
        """Return the domains of eligible nodes. Calls with equal ``alike`` must accept the same nodes."""
        domains = self._domains.get((key, alike))
        if domains is None:
            domains = self._domains[key, alike] = EligibleDomains(key, is_eligible)
            for node_info in self._node_infos:
                domains.add_node(node_info)
        return domains

    def add_node(self, node_info: NodeInfo, pods: Mapping[PodGroup, int]) -> None:
        """Add a node with these pods to all counts."""
        self._node_infos[node_info] = None
        for domains in self._domains.values():
            domains.add_node(node_info)
        for pod_group, count in pods.items():
            self.change(node_info, pod_group, count)

    def remove_node(self, node_info: NodeInfo, pods: Mapping[PodGroup, int]) -> None:
        """Remove a node with these pods from all counts."""
        for pod_group, count in pods.items():
            self.change(node_info, pod_group, -count)
        for domains in self._domains.values():
            domains.remove_node(node_info)
        del self._node_infos[node_info]

    def change(self, node_info: NodeInfo, pod_group: PodGroup, count: int) -> None:
        """Add pods of a group on a node to all matching counts. A negative count removes pods."""
        placed = self._placed[pod_group]
        pods = placed.node_infos.get(node_info, 0) + count
        if pods:
            placed.node_infos[node_info] = pods
        else:
            del placed.node_infos[node_info]
        if placed.compared < len(self._counts):
            placed.counts += [added for added in self._counts[placed.compared :] if added.matches(pod_group)]
            placed.compared = len(self._counts)
        for topology_count in placed.counts:
            topology_count.change(node_info, count)
