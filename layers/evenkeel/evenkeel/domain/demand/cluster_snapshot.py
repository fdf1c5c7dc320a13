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
    pod_group: PodGroup | None  # None: the change adds or removes the node itself
    number: int  # number of added pods, negative if pods are removed; 1 for an added node, -1 for a removed node


class ClusterSnapshot:
    """The nodes and pods of one simulation. ``node_infos`` has the nodes in the order in which they were added."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self._counts = TopologyCounts()
        self._affinity = InterPodAffinity(self._counts, namespaces)
        self._shapes: defaultdict[Hashable, Shape] = defaultdict(Shape)
        self._users: Counter[str] = Counter()  # number of pods that use a ReadWriteOncePod claim, by claim
        self._changes: list[_Change] = []

    def add_node(
        self, node: Node, pod_groups: Mapping[PodGroup, int], attached: Mapping[str, int] = NOTHING
    ) -> NodeInfo:
        """Add a node with these pods, without a check whether the pods fit.

        Args:
            node: The node.
            pod_groups: The number of its pods, by pod group.
            attached: The number of volumes that are attached, but that none of its pods uses, by CSI driver.
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
        """Add pods of a group to a node, without a check whether the pods fit. A negative count removes pods."""
        self._apply_new(_Change(node_info, pod_group, count))

    def fork(self) -> int:
        """Return the current number of changes: the point to which ``revert`` can go back."""
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
        """Return True if placed pods of any group affect where this group fits, apart from the resources they use."""
        return bool(pod_group.spread or pod_group.volumes.exclusive) or self._affinity.depends_on_others(pod_group)

    def failing_filter(self, pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
        """Return why one more pod of a group does not fit a node; None: it fits.

        The reason is from the first filter of the scheduler's default profile that rejects the pod.
        """
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
        """Return why a ReadWriteOncePod claim rejects one more pod (plugin volumerestrictions); None: the pod fits."""
        used = next((claim for claim in sorted(pod_group.volumes.exclusive) if self._users[claim] > 0), None)
        return None if used is None else Reason.of(Rule.CLAIM_IN_USE, claim=used)

    def fill_node(self, pod_group: PodGroup, node_info: NodeInfo, wanted: int) -> int:
        """Add as many pods of a group to a node as fit, at most ``wanted``. Return the number of added pods."""
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
        """Add up to ``wanted`` pods of a group, each to the first node that it fits. Return the number added."""
        added = 0
        cpu, memory = pod_group.cpu, pod_group.memory
        for node_info in node_infos:
            if added >= wanted:
                break
            # Most nodes lack cpu or memory. This condition skips them without a call.
            if (not cpu or node_info.cpu >= cpu) and (not memory or node_info.memory >= memory) and node_info.pods > 0:
                added += self.fill_node(pod_group, node_info, wanted - added)
        return added
