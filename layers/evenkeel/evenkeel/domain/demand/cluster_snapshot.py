"""The nodes and pods of a simulation. Every change can be reverted."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from evenkeel.domain.demand import filters
from evenkeel.domain.demand.node_info import NodeInfo, Shape, shape_of
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.topology_counts import TopologyCounts
from evenkeel.domain.demand.topology_filters import InterPodAffinity, Namespaces, topology_spread
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node

NOTHING: Mapping[str, int] = {}


class _Change(NamedTuple):
    node_info: NodeInfo
    pod_group: PodGroup | None  # None: the node itself is added or removed
    number: int  # number of pods added (negative: removed); for a node: 1 or -1


class ClusterSnapshot:
    """Nodes by name, in the order in which they were added."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self._counts = TopologyCounts()
        self._affinity = InterPodAffinity(self._counts, namespaces)
        self._shapes: defaultdict[Hashable, Shape] = defaultdict(Shape)
        self._users: Counter[str] = Counter()  # number of pods, by claim that only one pod may use
        self._changes: list[_Change] = []

    def add_node(
        self, node: Node, pod_groups: Mapping[PodGroup, int], attached: Mapping[str, int] = NOTHING
    ) -> NodeInfo:
        """Add a node with these pods, whether or not they fit.

        Args:
            node: The node.
            pod_groups: Its pods, by group.
            attached: Number of attached volumes that none of its pods uses, by CSI driver.
        """
        node_info = NodeInfo(node, self._shapes[shape_of(node)], attached)
        for pod_group, count in pod_groups.items():
            node_info.change(pod_group, count)
        self._apply_new(_Change(node_info, None, 1))
        return node_info

    def remove_node(self, node_info: NodeInfo) -> None:
        """Remove a node with all its pods."""
        self._apply_new(_Change(node_info, None, -1))

    def add_pod(self, pod_group: PodGroup, node_info: NodeInfo, count: int = 1) -> None:
        """Add pods of a group to a node, whether or not they fit; a negative count removes them."""
        self._apply_new(_Change(node_info, pod_group, count))

    def fork(self) -> int:
        """Return the current number of changes, for ``revert``."""
        return len(self._changes)

    def revert(self, fork: int) -> None:
        """Undo all changes since a fork."""
        while len(self._changes) > fork:
            node_info, pod_group, count = self._changes.pop()
            self._apply(node_info, pod_group, -count)

    def _apply_new(self, change: _Change) -> None:
        self._changes.append(change)
        self._apply(*change)

    def _apply(self, node_info: NodeInfo, pod_group: PodGroup | None, count: int) -> None:
        if pod_group is not None:
            node_info.change(pod_group, count)
            self._counts.change(node_info, pod_group, count)
            self._use(pod_group, count)
            return
        if count > 0:
            self.node_infos[node_info.name] = node_info
            self._counts.add_node(node_info)
        else:
            del self.node_infos[node_info.name]
            self._counts.remove_node(node_info)
        for of_node, pods in node_info.pod_groups.items():
            self._use(of_node, count * pods)

    def _use(self, pod_group: PodGroup, count: int) -> None:
        for claim in pod_group.volumes.exclusive:
            self._users[claim] += count

    def depends_on_others(self, pod_group: PodGroup) -> bool:
        """Return True if placed pods of any group affect where this group fits, other than by their resources."""
        return bool(pod_group.spread or pod_group.volumes.exclusive) or self._affinity.depends_on_others(pod_group)

    def failing_filter(self, pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
        """Return the reason of the first default-profile filter that rejects one more pod; None: the pod fits."""
        volumes = pod_group.volumes
        return (
            volumes.obstacle
            or filters.taints_and_affinity(pod_group, node_info)
            or (filters.node_ports(pod_group, node_info) if pod_group.ports else None)
            or filters.node_resources_fit(pod_group, node_info)
            or (self._volume_restrictions(pod_group) if volumes.exclusive else None)
            or (filters.node_volume_limits(pod_group, node_info) if volumes.drivers else None)
            or (filters.volume_binding(pod_group, node_info) if volumes.reaches else None)
            or (topology_spread(pod_group, node_info, self._counts) if pod_group.spread else None)
            or self._affinity.failing_term(pod_group, node_info)
        )

    def _volume_restrictions(self, pod_group: PodGroup) -> Reason | None:
        """Return why a ReadWriteOncePod claim rejects one more pod (plugin volumerestrictions); None: no claim does."""
        used = next((claim for claim in sorted(pod_group.volumes.exclusive) if self._users[claim] > 0), None)
        return None if used is None else Reason.of(Rule.CLAIM_IN_USE, claim=used)

    def fill_node(self, pod_group: PodGroup, node_info: NodeInfo, wanted: int) -> int:
        """Add pods of a group to a node, as many as fit, up to ``wanted``. Return the number added."""
        count = 0
        if self.depends_on_others(pod_group):
            while count < wanted and self.failing_filter(pod_group, node_info) is None:
                self.add_pod(pod_group, node_info)
                count += 1
        elif self.failing_filter(pod_group, node_info) is None:
            count = filters.capacity_for(pod_group, node_info, wanted)
            if count:
                self.add_pod(pod_group, node_info, count)
        return count

    def fill(self, pod_group: PodGroup, node_infos: Iterable[NodeInfo], wanted: int) -> int:
        """Add pods of a group to the first nodes where they fit, up to ``wanted``. Return the number added."""
        added = 0
        cpu, memory = pod_group.cpu, pod_group.memory
        for node_info in node_infos:
            if added >= wanted:
                break
            # Most nodes lack cpu or memory. This condition skips them without a call.
            if (not cpu or node_info.cpu >= cpu) and (not memory or node_info.memory >= memory) and node_info.pods > 0:
                added += self.fill_node(pod_group, node_info, wanted - added)
        return added
