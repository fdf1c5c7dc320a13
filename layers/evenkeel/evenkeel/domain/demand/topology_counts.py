"""Counts of matching pods in each topology domain, updated while pods are placed.

A domain is one value of a topology key, such as a zone or a host. To count again for each pod would take nodes x pods
steps. Here, a placed pod changes only the few counts that match its pod group.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from evenkeel.domain.demand.filters import once_per_shape
from evenkeel.domain.demand.node_info import NodeInfo, Shape
from evenkeel.domain.demand.pod_groups import PodGroup

# A node, the pod group of added pods (None: the node itself was added), their number (negative: they were removed),
# and the pods of an added or removed node.
Change = tuple[NodeInfo, PodGroup | None, int, Mapping[PodGroup, int]]

IsEligible = Callable[[PodGroup, NodeInfo], bool]


class Count(Protocol):
    """A number of pods that includes each change of the snapshot."""

    namespace: str | None  # the only namespace whose pods the count may include; None: any
    matches: Callable[[PodGroup], bool]  # whether the count includes a group's pods, if they are in the namespace

    def change(self, node_info: NodeInfo, count: int) -> None:
        """Add matching pods on a node. A negative count removes pods."""


class PodCount:
    """The number of matching pods on all nodes."""

    namespace: str | None = None

    def __init__(self, matches: Callable[[PodGroup], bool]) -> None:
        self.matches = matches
        self.total = 0

    def change(self, _: NodeInfo, count: int) -> None:
        """Add matching pods. A negative count removes pods."""
        self.total += count


class TopologyCount:
    """The number of matching pods for each value of a node label."""

    def __init__(self, key: str, namespace: str | None, matches: Callable[[PodGroup], bool]) -> None:
        self.key = key
        self.namespace = namespace
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

    def __init__(self, key: str, pod_group: PodGroup, is_eligible: IsEligible) -> None:
        self.domain_of: dict[NodeInfo, str] = {}
        self.nodes: Counter[str] = Counter()  # number of nodes, by domain
        self._key, self._pod_group, self._is_eligible = key, pod_group, is_eligible
        self._shapes: dict[Shape, bool] = {}  # whether nodes of a shape are eligible

    def add_node(self, node_info: NodeInfo) -> None:
        """Add a node. The first node of a domain also adds the domain."""
        if once_per_shape(self._is_eligible, self._shapes, node_info.shape, self._pod_group, node_info):
            value = self.domain_of[node_info] = node_info.labels[self._key]
            self.nodes[value] += 1

    def remove_node(self, node_info: NodeInfo) -> None:
        """Remove a node. The last node of a domain also removes the domain."""
        value = self.domain_of.pop(node_info, None)
        if value is not None:
            self.nodes[value] -= 1
            if not self.nodes[value]:
                del self.nodes[value]


class _CountsOf(dict[PodGroup, list[Count]]):
    """For each pod group that was placed so far: those of ``counts`` that include its pods."""

    def __init__(self, counts: defaultdict[str | None, list[Count]]) -> None:
        super().__init__()
        self._counts = counts

    def __missing__(self, pod_group: PodGroup) -> list[Count]:
        counts = (*self._counts[None], *self._counts[pod_group.namespace])
        self[pod_group] = [count for count in counts if count.matches(pod_group)]
        return self[pod_group]


class TopologyCounts:
    """All counts that a filter has requested so far. The snapshot includes each change at once.

    Args:
        changes: The changes of the snapshot, which appends to this list.
        node_infos: The nodes of the snapshot.
    """

    def __init__(self, changes: Sequence[Change], node_infos: Mapping[str, NodeInfo]) -> None:
        self._changes = changes
        self._node_infos = node_infos
        self._counts: defaultdict[str | None, list[Count]] = defaultdict(list)  # by ``Count.namespace``
        self.of = _CountsOf(self._counts)  # the counts that include a pod group's pods
        self.domains: dict[Hashable, EligibleDomains] = {}  # the snapshot adds and removes their nodes
        # Only a new count needs the number of pods by pod group and node, so it includes the changes then.
        self._placed: defaultdict[PodGroup, Counter[NodeInfo]] = defaultdict(Counter)
        self._indexed = 0  # number of changes that ``_placed`` includes

    def add(self, count: Count) -> None:
        """Add a count. It includes the pods that are there already."""
        self._index(self._changes[self._indexed :], 1)
        self._indexed = len(self._changes)
        self._counts[count.namespace].append(count)
        for pod_group, counts in self.of.items():
            if count.namespace in (None, pod_group.namespace) and count.matches(pod_group):
                counts.append(count)
                for node_info, pods in self._placed[pod_group].items():
                    count.change(node_info, pods)

    def domains_of(self, key: str, alike: Hashable, pod_group: PodGroup, is_eligible: IsEligible) -> EligibleDomains:
        """Return the domains of a pod group's eligible nodes. Calls with equal ``alike`` must accept the same nodes."""
        domains = self.domains.get((key, alike))
        if domains is None:
            domains = self.domains[key, alike] = EligibleDomains(key, pod_group, is_eligible)
            for node_info in self._node_infos.values():
                domains.add_node(node_info)
        return domains

    def revert(self, fork: int) -> None:
        """Forget the changes since a fork, which the snapshot is about to undo."""
        self._index(self._changes[fork : self._indexed], -1)
        self._indexed = min(self._indexed, fork)

    def _index(self, changes: Iterable[Change], sign: int) -> None:
        """Include changes in the number of pods by pod group and node; sign -1: exclude them."""
        for node_info, pod_group, number, pods in changes:
            for placed, count in pods.items() if pod_group is None else ((pod_group, 1),):
                nodes = self._placed[placed]
                nodes[node_info] += sign * number * count
                if not nodes[node_info]:
                    del nodes[node_info]
