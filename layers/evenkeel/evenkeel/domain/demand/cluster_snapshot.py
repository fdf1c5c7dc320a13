"""The nodes and pods of a simulation. Every change can be reverted."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from evenkeel.domain.demand import filters
from evenkeel.domain.demand.node_info import ANY_AMOUNT, NodeInfo, Shape, shape_of
from evenkeel.domain.demand.pod_groups import PodGroup, PodGroupClasses
from evenkeel.domain.demand.topology_counts import Change, PodCount, TopologyCounts
from evenkeel.domain.demand.topology_filters import Namespaces, TopologyRules
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node

NOTHING: Mapping[str, int] = {}
_NO_PODS: Mapping[PodGroup, int] = {}


class ClusterSnapshot:
    """The nodes and pods of one simulation. ``node_infos`` has the nodes in the order in which they were added."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self._changes: list[Change] = []
        self._counts = TopologyCounts(self._changes, self.node_infos)
        self._rules = TopologyRules(self._counts, namespaces)
        self._shapes: defaultdict[Hashable, Shape] = defaultdict(Shape)
        self._users: dict[str, PodCount] = {}  # the pods that use a ReadWriteOncePod claim, by claim

    def add_node(
        self, node: Node, pod_groups: Mapping[PodGroup, int], attached: Mapping[str, int] = NOTHING
    ) -> NodeInfo:
        """Add a node with these pods, without a check whether the pods fit.

        Args:
            node: The node.
            pod_groups: The number of its pods, by pod group.
            attached: The number of volumes that are attached, but that none of its pods uses, by CSI driver.
        """
        node_info = self.node_info(node, pod_groups, attached)
        self._add(node_info, pod_groups)
        return node_info

    def node_info(self, node: Node, pod_groups: Mapping[PodGroup, int], attached: Mapping[str, int]) -> NodeInfo:
        """Return a node with these pods, without adding it."""
        return NodeInfo(node, self._shapes[shape_of(node)], attached, pod_groups)

    def add_copy(self, template: NodeInfo, name: str) -> NodeInfo:
        """Add a node that equals a template, except for its name and hostname."""
        node_info = template.named(name)
        self._add(node_info, template.pod_groups)
        return node_info

    def _add(self, node_info: NodeInfo, pod_groups: Mapping[PodGroup, int]) -> None:
        self._change_node(node_info, 1)
        self._changes.append((node_info, None, 1, pod_groups))
        for pod_group in pod_groups:
            self._rules.respect(pod_group)

    def remove_node(self, node_info: NodeInfo) -> None:
        """Remove a node with all its pods."""
        self._change_node(node_info, -1)
        self._changes.append((node_info, None, -1, node_info.pod_groups))

    def add_pod(self, pod_group: PodGroup, node_info: NodeInfo, count: int = 1) -> None:
        """Add pods of a group to a node, without a check whether the pods fit. A negative count removes pods."""
        node_info.change(pod_group, count)
        self._count(pod_group, node_info, count)
        self._changes.append((node_info, pod_group, count, _NO_PODS))
        self._rules.respect(pod_group)

    def fork(self) -> int:
        """Return the current number of changes: the point to which ``revert`` can go back."""
        return len(self._changes)

    def changed_since(self, fork: int) -> frozenset[NodeInfo]:
        """Return the nodes that were added since a fork, or got pods."""
        return frozenset(node_info for node_info, _, _, _ in self._changes[fork:])

    def filled_since(self, fork: int) -> frozenset[str]:
        """Return the names of the nodes to which pods were added since a fork."""
        return frozenset(info.name for info, group, count, _ in self._changes[fork:] if group is not None and count > 0)

    def revert(self, fork: int) -> None:
        """Undo all changes since a fork. A node that was added since then keeps its pods, because it is dropped."""
        self._counts.revert(fork)
        undone = self._changes[fork:]
        del self._changes[fork:]
        dropped = {node_info for node_info, pod_group, number, _ in undone if pod_group is None and number > 0}
        for node_info, pod_group, number, _ in reversed(undone):
            if pod_group is None:
                self._change_node(node_info, -number)
            elif node_info not in dropped:
                node_info.change(pod_group, -number)
                self._count(pod_group, node_info, -number)

    def _change_node(self, node_info: NodeInfo, number: int) -> None:
        """Add a node with its pods (number 1), or remove it (number -1)."""
        if number > 0:
            self.node_infos[node_info.name] = node_info
            for domains in self._counts.domains.values():
                domains.add_node(node_info)
        counts_of = self._counts.of
        for pod_group, pods in node_info.pod_groups.items():
            for count in counts_of[pod_group]:
                count.change(node_info, number * pods)
        if number < 0:
            for domains in self._counts.domains.values():
                domains.remove_node(node_info)
            del self.node_infos[node_info.name]

    def _count(self, pod_group: PodGroup, node_info: NodeInfo, number: int) -> None:
        """Include pods of a group in what other pods depend on. A negative number excludes pods."""
        for count in self._counts.of[pod_group]:
            count.change(node_info, number)

    def depends_on_others(self, pod_group: PodGroup) -> bool:
        """Return True if placed pods of any group affect where this group fits, apart from the resources they use."""
        return pod_group.counts_others or bool(self._rules[pod_group])

    def depends_on(self, pod_group: PodGroup, node_infos: Collection[NodeInfo]) -> bool:
        """Return True if placed pods of any group on these nodes may affect where this group fits on other nodes."""
        return bool(pod_group.volumes.exclusive) or any(
            rule.counts(node_info) for rule in self._rules[pod_group] for node_info in node_infos
        )

    def is_repelled_beyond_hosts(self, pod_group: PodGroup) -> bool:
        """Return True if anti-affinity of placed pods keeps the group out of more than a host."""
        return any(rule.repels_beyond_host for rule in self._rules[pod_group])

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
            or (filters.node_volume_limits(pod_group, node_info) if volumes.drivers or volumes.shared else None)
            or (filters.volume_binding(pod_group, node_info) if volumes.reaches else None)
            or self._rejected_by_others(pod_group, node_info)
        )

    def rejections(self, classes: PodGroupClasses, node_info: NodeInfo) -> dict[PodGroup, Reason]:
        """Return the pod groups of which a pod does not fit a node, each with the reason."""
        cpu, memory = (node_info.cpu, node_info.memory) if node_info.pods > 0 else (-1, -1)
        doubtful = [
            group
            for group in classes.others
            if group.cpu > cpu or group.memory > memory or not self._fits(group, node_info)
        ]
        for most_cpu, most_memory, plain in classes.plain:
            if not _accepts(plain[0], node_info):
                doubtful += plain
            elif most_cpu > cpu or most_memory > memory or self._rules.repelling:
                doubtful += [
                    group
                    for group in plain
                    if group.cpu > cpu or group.memory > memory or self.depends_on_others(group)
                ]
        reasons = ((pod_group, self.failing_filter(pod_group, node_info)) for pod_group in doubtful)
        return {pod_group: reason for pod_group, reason in reasons if reason is not None}

    def _fits(self, pod_group: PodGroup, node_info: NodeInfo) -> bool:
        """Return True if one more pod of a group fits a node that has cpu and memory for it."""
        if not _accepts(pod_group, node_info):
            return False
        for rule in self._rules[pod_group]:
            if rule.room(node_info) < 1:
                return False
        return pod_group.by_shape or self._room_beside(pod_group, node_info, 1) > 0

    def _rejected_by_others(self, pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
        return next(
            (rule.reason(node_info) for rule in self._rules[pod_group] if rule.room(node_info) < 1),
            None,
        )

    def _volume_restrictions(self, pod_group: PodGroup) -> Reason | None:
        """Return why a ReadWriteOncePod claim rejects one more pod (plugin volumerestrictions); None: the pod fits."""
        used = next((claim for claim in sorted(pod_group.volumes.exclusive) if self._users_of(claim) > 0), None)
        return None if used is None else Reason.of(Rule.CLAIM_IN_USE, claim=used)

    def _users_of(self, claim: str) -> int:
        count = self._users.get(claim)
        if count is None:
            count = self._users[claim] = PodCount(lambda pod_group: claim in pod_group.volumes.exclusive)
            self._counts.add(count)
        return count.total

    def fill_node(self, pod_group: PodGroup, node_info: NodeInfo, wanted: int) -> int:
        """Add as many pods of a group to a node as fit, at most ``wanted``. Return the number of added pods."""
        return self.fill(pod_group, (node_info,), wanted)

    def fill_in_rounds(self, pod_group: PodGroup, node_infos: Sequence[NodeInfo], wanted: int) -> int:
        """Fill nodes until a pass places no pod. Return the number added.

        Once a pod with spread constraints or affinity is placed, the next pod may fit nodes that rejected it before
        (kubernetes/autoscaler#8181).
        """
        added = 0
        while added < wanted and (more := self.fill(pod_group, node_infos, wanted - added)):
            added += more
        return added

    def fill(self, pod_group: PodGroup, node_infos: Iterable[NodeInfo], wanted: int) -> int:
        """Add up to ``wanted`` pods of a group in one pass, to each node as many as it takes. Return the number added.

        Pods that spread, or that need other pods, may then fit an earlier node: ``fill_in_rounds``.
        """
        cpu, memory, left = pod_group.cpu or ANY_AMOUNT, pod_group.memory or ANY_AMOUNT, wanted
        by_shape = pod_group.by_shape
        rules = self._rules[pod_group]
        counts = self._counts.of[pod_group]
        for info in node_infos if wanted else ():
            if info.cpu >= cpu and info.memory >= memory and info.pods > 0 and _accepts(pod_group, info):
                room = left if by_shape else self._room_beside(pod_group, info, left)
                for rule in rules:
                    most = rule.room(info)
                    if most < room:  # faster than min
                        room = most
                if room > 0:
                    count = info.add(pod_group, room)
                    for each in counts:
                        each.change(info, count)
                    self._changes.append((info, pod_group, count, _NO_PODS))
                    left -= count
                    if not left:
                        break
        if pod_group.needs.anti_affinity and left < wanted:
            self._rules.respect(pod_group)
        return wanted - left

    def _room_beside(self, pod_group: PodGroup, node_info: NodeInfo, wanted: int) -> int:
        """Return how many more pods a node takes by everything except cpu and memory, at most ``wanted``."""
        if pod_group.volumes.exclusive:
            wanted = 0 if self._volume_restrictions(pod_group) else 1
        return filters.room_beside_cpu_and_memory(pod_group, node_info, wanted)


def _accepts(pod_group: PodGroup, node_info: NodeInfo) -> bool:
    """Return True if a node accepts the pods of a group by its labels, its taints and the pods' volumes."""
    return filters.once_per_shape(_accepts_here, node_info.shape.accepts, pod_group.selects, pod_group, node_info)


def _accepts_here(pod_group: PodGroup, node_info: NodeInfo) -> bool:
    return not (
        pod_group.volumes.obstacle
        or filters.taints_and_affinity(pod_group, node_info)
        or filters.volume_binding(pod_group, node_info)
    )


class Places:
    """Nodes on which single pods are placed, each on the first node that it fits.

    Pods that depend on no other pod fit none of the nodes that rejected an equal pod before, since nodes only fill up.
    So the search for such a pod starts at the node of the last equal pod.
    """

    def __init__(self, snapshot: ClusterSnapshot, node_infos: Iterable[NodeInfo]) -> None:
        self._snapshot = snapshot
        self._node_infos = list(node_infos)
        self._position = {node_info: position for position, node_info in enumerate(self._node_infos)}
        self._starts: dict[Hashable, int] = {}
        self._starts_before: dict[Hashable, int] = {}  # of this trial
        self._first_changed = 0  # position of the first node that this trial has changed

    def begin(self, removed: NodeInfo) -> None:
        """Begin a trial, in which one node is removed from the snapshot."""
        self._starts_before.clear()
        self._first_changed = self._position.get(removed, len(self._node_infos))

    def place(self, pod_group: PodGroup) -> NodeInfo | None:
        """Add a pod to the first node that it fits, and return the node; None: it fits no node."""
        snapshot, node_infos, alike = self._snapshot, self._node_infos, pod_group.alike
        depends = snapshot.depends_on_others(pod_group)
        start = 0 if depends else self._starts.get(alike, 0)
        cpu, memory = pod_group.cpu or ANY_AMOUNT, pod_group.memory or ANY_AMOUNT
        position = start
        for position in range(start, len(node_infos)):
            node_info = node_infos[position]
            if (
                node_info.cpu >= cpu
                and node_info.memory >= memory
                and snapshot.node_infos.get(node_info.name) is node_info
                and snapshot.fill_node(pod_group, node_info, 1)
            ):
                break
        else:
            node_info, position = None, len(node_infos)
        if not depends:
            self._starts_before.setdefault(alike, start)
            self._starts[alike] = position
        self._first_changed = min(self._first_changed, position)
        return node_info

    def revert(self) -> None:
        """End a trial whose changes the caller reverts. Only nodes that it changed may fit pods that they rejected."""
        for alike, before in self._starts_before.items():
            self._starts[alike] = max(before, min(self._starts[alike], self._first_changed))
