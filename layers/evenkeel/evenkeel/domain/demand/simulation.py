"""The starting state of scale-up and of scale-down in one check: the nodes with their pods, and the pending pods."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

from evenkeel.domain.demand.cluster_snapshot import NOTHING, ClusterSnapshot
from evenkeel.domain.demand.node_info import NodeInfo, with_room
from evenkeel.domain.demand.pod_groups import PodGroup, PodGroups
from evenkeel.domain.demand.pods import comes_with_node, sort_pods
from evenkeel.domain.demand.template_node import TemplateNode, TemplateNodes, as_started
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import Node, Pod, Workload

# A function that selects, from the given nodes, the nodes on which a pod group may be placed.
Usable = Callable[[PodGroup, Sequence[NodeInfo]], Sequence[NodeInfo]]


def _all_nodes(_: PodGroup, node_infos: Sequence[NodeInfo]) -> Sequence[NodeInfo]:
    return node_infos


class Simulation:
    """The snapshot of existing and upcoming nodes, the pending pods, and the template node of each node group.

    Scale-up and scale-down of one check share a simulation, because building it takes a large part of their time. Each
    starts with the same snapshot.
    """

    def __init__(self, workload: Workload, pools: Sequence[PoolOffer], policy: DemandPolicy, now: datetime) -> None:
        self.workload, self.pools = workload, pools
        self.policy = policy
        self.now = now
        pods = sort_pods(workload, policy, now)
        self.pods_on, self.pending = pods.on_node, pods.pending
        self.not_counted, self.drained = pods.not_counted, pods.drained
        volumes = Volumes(workload)
        self._attached = volumes.attached_without_pod(self.pods_on)
        self.pod_groups = PodGroups(volumes)
        self.snapshot = ClusterSnapshot(workload.namespaces)
        templates = TemplateNodes(workload, policy)
        self.template_nodes: dict[GroupKey, TemplateNode] = {}
        for pool in pools:
            self.template_nodes |= templates.of_pool(pool)
        self.starting: dict[str, GroupKey] = {}  # name of a node that is still starting -> its group
        offers = {offer.group: offer for pool in pools for offer in pool.groups}
        self._template_infos: dict[GroupKey, NodeInfo] = {}
        for node in sorted(workload.nodes, key=lambda node: node.name):
            group = node.group
            if group is not None and group in self.template_nodes:
                started = as_started(node, self.template_nodes[group], now, policy, offers[group])
                if started is not node:
                    self.starting[node.name] = group
            else:
                started = node
            self.add_node(started, Counter(self.pod_groups.of(pod) for pod in self.pods_on[node.name]))
        self.started = self.snapshot.node_infos.keys() - self.starting.keys()
        for pool in sorted(pools, key=lambda pool: pool.pool):
            for offer in sorted(pool.groups, key=lambda offer: offer.group):
                for _ in range(offer.coming if offer.group in self.template_nodes else 0):
                    self.add_template_node(offer.group)

    def add_node(self, node: Node, pod_groups: Mapping[PodGroup, int]) -> NodeInfo:
        """Add an existing node with these pods, and with the attached volumes that none of its pods uses."""
        return self.snapshot.add_node(node, pod_groups, self._attached.get(node.name, NOTHING))

    def starting_and_empty(self, node: str) -> bool:
        """Return True if a node is still starting, and has only pods that come with a node (``comes_with_node``)."""
        return node in self.starting and all(map(comes_with_node, self.pods_on[node]))

    def add_template_node(self, group: GroupKey) -> NodeInfo:
        """Add one more node of a node group, under an unused name, with the pods of the group's template node."""
        info = self._template_infos.get(group)
        if info is None:
            template = self.template_nodes[group]
            pod_groups = Counter(self.pod_groups.of(pod) for pod in template.pods)
            info = self._template_infos[group] = self.snapshot.node_info(
                template.named(str(group)), pod_groups, NOTHING
            )
        number = len(self.snapshot.node_infos)
        while (name := f"{info.name} (new {number})") in self.snapshot.node_infos:
            number += 1  # nodes have been removed since the last one was added
        return self.snapshot.add_copy(info, name)

    def schedulable_nodes(self) -> list[NodeInfo]:
        """Return all schedulable nodes, including upcoming nodes."""
        return [node_info for node_info in self.snapshot.node_infos.values() if node_info.is_schedulable]

    @cached_property
    def pending_groups(self) -> Mapping[PodGroup, list[Pod]]:
        """Return the pending pods by group, the oldest first."""
        return self.pod_groups.group(self.pending)

    def schedule_pending(self, usable: Usable = _all_nodes) -> tuple[dict[PodGroup, list[Pod]], list[str]]:
        """Place pending pods on existing and upcoming nodes, and return the result.

        The result is the pods that fit no node, by pod group, and the names of the placed pods.

        Placed pods remain in the snapshot. So no node is ordered for them, and the nodes on which they are placed are
        needed. Pods of higher priority are placed first, then larger pods. Pods with spread constraints or pod affinity
        are retried after each round that placed a pod.
        """
        pending = self.pending_groups
        counts = {pod_group: len(pods) for pod_group, pods in pending.items()}
        unplaced = self.place(counts, self.schedulable_nodes(), usable)
        placed = [str(pod) for group, pods in pending.items() for pod in pods[: len(pods) - unplaced.get(group, 0)]]
        left = {group: pods[-unplaced[group] :] for group, pods in pending.items() if group in unplaced}
        return left, sorted(placed)

    def place(
        self, counts: Mapping[PodGroup, int], node_infos: Sequence[NodeInfo], usable: Usable = _all_nodes
    ) -> dict[PodGroup, int]:
        """Place these numbers of pods on these nodes, and return the numbers of pods that fit no node."""
        left = dict(counts)
        roomy = with_room(node_infos, counts)
        order = sorted(left, key=_turn)
        while order:
            is_placed = False
            for pod_group in order:
                nodes = usable(pod_group, roomy)
                fill = self.snapshot.fill_in_rounds if pod_group.spread else self.snapshot.fill
                more = fill(pod_group, nodes, left[pod_group])
                left[pod_group] -= more
                is_placed |= more > 0
            order = [group for group in order if left[group] and group.in_rounds]
            if not is_placed:
                break
        return {pod_group: count for pod_group, count in left.items() if count}


def _turn(pod_group: PodGroup) -> tuple[int, int, int, bool, str]:
    """Return the sort key of a pod group: priority, then size.

    Among groups of equal size, groups with spread constraints are first, because they need nodes in all zones.
    """
    return -pod_group.priority, -pod_group.cpu, -pod_group.memory, not pod_group.spread, pod_group.name
