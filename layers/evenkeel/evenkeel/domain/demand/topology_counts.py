"""Counts of matching pods in each topology domain, updated while pods are placed.

A domain is one value of a topology key, such as a zone or a host. To count again for each pod would take nodes x pods
steps. Here, a placed pod changes only the few counts that match its pod group.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup

# A node, the pod group of added pods (None: the node itself was added), their number (negative: they were removed),
# and the pods of an added or removed node.
Change = tuple[NodeInfo, PodGroup | None, int, Mapping[PodGroup, int]]


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
        self._least: int | None = None  # the least key of ``_levels``; None: unknown
        domains.counts.append(self)
        for value in domains.nodes:
            self.add_domain(value)

    def minimum(self, min_domains: int) -> int:
        """Return the smallest number of matching pods in a domain; 0 if there are fewer domains than minDomains."""
        if self._least is None:
            self._least = min(self._levels, default=0)
        return self._least if len(self._domains.nodes) >= min_domains else 0

    def change(self, node_info: NodeInfo, count: int) -> None:
        """Add matching pods on a node, if the node is eligible. A negative count removes pods."""
        value = self._domains.domain_of.get(node_info)
        if value is not None:
            before = self.pods[value]
            self.pods[value] = before + count
            self._levels[before + count] += 1
            self._leave(before)
            if count < 0:
                self._least = None

    def add_domain(self, value: str) -> None:
        """Include a domain in the minimum, because it has got its first node."""
        self._levels[self.pods[value]] += 1
        self._least = None

    def remove_domain(self, value: str) -> None:
        """Exclude a domain from the minimum, because it has lost its last node."""
        self._leave(self.pods[value])

    def _leave(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]
            if level == self._least:
                self._least = None


class _CountsOf(dict[PodGroup, list[TopologyCount]]):
    """For each pod group that was placed so far: those of ``counts`` that include its pods."""

    def __init__(self, counts: Sequence[TopologyCount]) -> None:
        super().__init__()
        self._counts = counts

    def __missing__(self, pod_group: PodGroup) -> list[TopologyCount]:
        self[pod_group] = [count for count in self._counts if count.matches(pod_group)]
        return self[pod_group]


class TopologyCounts:
    """All counts that a filter has requested so far.

    Args:
        changes: The changes of the snapshot, which appends to this list. Most changes need no count. So ``update``
            includes new changes before counts are read.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        self._counted = 0  # number of changes that the counts include
        self._node_infos: dict[NodeInfo, None] = {}
        self._counts: list[TopologyCount] = []
        self._counts_of = _CountsOf(self._counts)
        self._domains: dict[Hashable, EligibleDomains] = {}
        # Only a new count needs the number of pods by pod group and node, so fewer changes are included.
        self._placed: defaultdict[PodGroup, Counter[NodeInfo]] = defaultdict(Counter)
        self._indexed = 0  # number of changes that ``_placed`` includes

    def add(self, count: TopologyCount) -> None:
        """Add a count. It includes the pods that are there already."""
        self._index(self._changes[self._indexed : self._counted], 1)
        self._indexed = self._counted
        self._counts.append(count)
        for pod_group, counts in self._counts_of.items():
            if count.matches(pod_group):
                counts.append(count)
                for node_info, pods in self._placed[pod_group].items():
                    count.change(node_info, pods)

    def domains(self, key: str, alike: Hashable, is_eligible: Callable[[NodeInfo], bool]) -> EligibleDomains:
        """Return the domains of eligible nodes. Calls with equal ``alike`` must accept the same nodes."""
        domains = self._domains.get((key, alike))
        if domains is None:
            domains = self._domains[key, alike] = EligibleDomains(key, is_eligible)
            for node_info in self._node_infos:
                domains.add_node(node_info)
        return domains

    def update(self) -> None:
        """Include all changes in the counts."""
        if self._counted < len(self._changes):
            self._count(self._changes[self._counted :], 1)
            self._counted = len(self._changes)

    def revert(self, fork: int) -> None:
        """Exclude the changes since a fork, which the snapshot is about to undo."""
        self._count(reversed(self._changes[fork : self._counted]), -1)
        self._index(self._changes[fork : self._indexed], -1)
        self._counted, self._indexed = min(self._counted, fork), min(self._indexed, fork)

    def _count(self, changes: Iterable[Change], sign: int) -> None:
        """Include changes in the counts; sign -1: exclude them."""
        for node_info, pod_group, number, pods in changes:
            if pod_group is not None:
                for count in self._counts_of[pod_group]:
                    count.change(node_info, sign * number)
            elif sign * number > 0:
                self._add_node(node_info, pods)
            else:
                self._remove_node(node_info, pods)

    def _index(self, changes: Iterable[Change], sign: int) -> None:
        """Include changes in the number of pods by pod group and node; sign -1: exclude them."""
        for node_info, pod_group, number, pods in changes:
            for placed, count in pods.items() if pod_group is None else ((pod_group, 1),):
                nodes = self._placed[placed]
                nodes[node_info] += sign * number * count
                if not nodes[node_info]:
                    del nodes[node_info]

    def _add_node(self, node_info: NodeInfo, pods: Mapping[PodGroup, int]) -> None:
        self._node_infos[node_info] = None
        for domains in self._domains.values():
            domains.add_node(node_info)
        for pod_group, number in pods.items():
            for count in self._counts_of[pod_group]:
                count.change(node_info, number)

    def _remove_node(self, node_info: NodeInfo, pods: Mapping[PodGroup, int]) -> None:
        for pod_group, number in pods.items():
            for count in self._counts_of[pod_group]:
                count.change(node_info, -number)
        for domains in self._domains.values():
            domains.remove_node(node_info)
        del self._node_infos[node_info]
