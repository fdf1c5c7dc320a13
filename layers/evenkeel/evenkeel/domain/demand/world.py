"""A look at a workload cluster as the simulation of both directions begins: who stands where, who waits."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.demand.cluster_snapshot import NOTHING, ClusterSnapshot
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup, PodGroups
from evenkeel.domain.demand.pods import (
    comes_with_node,
    is_expendable,
    should_be_gone,
    standing_on,
    unplaceable,
    why_not_counted,
    why_not_moved,
)
from evenkeel.domain.demand.taints import is_going
from evenkeel.domain.demand.template_node import TemplateNode, TemplateNodes, is_starting
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import DemandPolicy, NotCounted, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import HOSTNAME, Node, Pod, Workload


class Simulation:
    """Rooms with what stands on them, and pods that wait, by kind. ``template_nodes`` is what groups would get."""

    def __init__(self, workload: Workload, pools: tuple[PoolOffer, ...], policy: DemandPolicy, now: datetime) -> None:
        self.policy = policy
        self.now = now
        volumes = Volumes(workload)
        self.kinds = PodGroups(volumes)
        self.snapshot = ClusterSnapshot(workload.namespaces)
        nodes_fresh = TemplateNodes(workload, policy, now)
        self.template_nodes: dict[GroupKey, TemplateNode] = {}
        for pool in pools:
            self.template_nodes |= nodes_fresh.of_pool(pool)
        self.not_counted: list[NotCounted] = []
        self.waiting: list[Pod] = []
        self.pods_on: dict[str, list[Pod]] = defaultdict(list)
        self.starting: dict[str, GroupKey] = {}  # young nodes that are not yet what they will be, and whose
        self.drained: set[str] = set()  # nodes that are going and whose pods are still to go
        # Groups whose next node does not hold a kind, although it seems to. Earlier orders have shown that.
        self.vain: Callable[[PodGroup], Collection[GroupKey]] = lambda _: ()
        self._timeouts = {offer.group: offer.provision_timeout for pool in pools for offer in pool.groups}
        self._sort_out(workload)
        self._comes_with: dict[GroupKey, Counter[PodGroup]] = {}
        self._attached = volumes.attached_without_pod(self.pods_on)
        for node in sorted(workload.nodes, key=lambda node: node.name):
            self.add_node(self._as_it_will_be(node), self._kinds_on(node.name))
        self.there = self.snapshot.node_infos.keys() - self.starting.keys()  # nodes that are what they are
        for pool in sorted(pools, key=lambda pool: pool.pool):
            for offer in sorted(pool.groups, key=lambda offer: offer.group):
                for _ in range(offer.coming if offer.group in self.template_nodes else 0):
                    self.add_template_node(offer.group)

    def _sort_out(self, workload: Workload) -> None:
        """Who stands on which node, who waits, and who waits without being counted."""
        leaving = {node.name for node in workload.nodes if is_going(node, self.now)}
        names = {node.name for node in workload.nodes}
        for pod in sorted(workload.pods, key=str):
            if pod.has_ended or should_be_gone(pod, self.now):
                continue
            if node := standing_on(pod, names):
                # Who is drained comes again, and is demand only if it fits nowhere else.
                if node in leaving and why_not_moved(pod, self.policy) is None:
                    self.waiting.append(replace(pod, node=""))
                    self.drained.add(node)
                elif not is_expendable(pod, self.policy) or unplaceable(pod) is not None:
                    self.pods_on[node].append(pod)
                continue
            reason = why_not_counted(pod, self.policy, self.now)
            if reason is None:
                self.waiting.append(pod)
            else:
                self.not_counted.append(NotCounted(pod=str(pod), reason=reason))

    def add_node(self, node: Node, pods_on: Mapping[PodGroup, int]) -> NodeInfo:
        """Return the room of a node with these pods, and with the volumes that are attached to it without a pod."""
        return self.snapshot.add(node, pods_on, self._attached.get(node.name, NOTHING))

    def _kinds_on(self, node: str) -> Counter[PodGroup]:
        return Counter(self.kinds.of(pod) for pod in self.pods_on[node])

    def _as_it_will_be(self, node: Node) -> Node:
        """A young node that is still starting counts as what the next one of its group would be."""
        template_nodes = None if node.group is None else self.template_nodes.get(node.group)
        if node.group is None or template_nodes is None:
            return node
        if not is_starting(node, template_nodes.node, self.now, self.policy, self._timeouts[node.group]):
            return node
        self.starting[node.name] = node.group
        late = template_nodes.named(node.name)
        return replace(late, labels={**late.labels, HOSTNAME: node.labels.get(HOSTNAME, node.name)})

    def awaited_of(self, node: str) -> GroupKey | None:
        """Whose node that still starts it is, while nothing stands there but what comes with every node."""
        return None if any(not comes_with_node(pod) for pod in self.pods_on[node]) else self.starting[node]

    def add_template_node(self, group: GroupKey) -> NodeInfo:
        """A node more of a group, with the pods that come with it. No real node is called like it."""
        template_nodes = self.template_nodes[group]
        if group not in self._comes_with:
            self._comes_with[group] = Counter(self.kinds.of(pod) for pod in template_nodes.pods)
        return self.snapshot.add(
            template_nodes.named(f"{group} (new {len(self.snapshot.node_infos)})"), self._comes_with[group]
        )

    def schedulable_nodes(self) -> list[NodeInfo]:
        """Every node that takes pods, those that are not there yet included."""
        return [room for room in self.snapshot.node_infos.values() if room.is_open]

    def rooms_for(self, kind: PodGroup, node_infos: Sequence[NodeInfo]) -> Sequence[NodeInfo]:
        """Return the rooms that count for a kind: in groups that did not help it, only nodes that are there."""
        vain = self.vain(kind)
        return (
            [room for room in node_infos if room.name in self.there or room.node.group not in vain]
            if vain
            else node_infos
        )

    def schedule_pending(self) -> tuple[dict[PodGroup, list[Pod]], list[str]]:
        """Give who waits the room that is there or on its way. Returns who is left, by kind, and who was placed.

        The highest priority first, then the largest: what is placed keeps its place for the rest of the look, so that
        nothing is ordered for it, and no node below it is taken away. Of equal size, pods that spread go first: others
        would fill the first zone. Once more while that goes on, for those who have to be with others.
        """
        left = self.kinds.group(self.waiting)
        order = sorted(left, key=lambda kind: (-kind.priority, -kind.cpu, -kind.memory, not kind.spread, kind.name))
        placed: list[str] = []
        node_infos = self.schedulable_nodes()
        while order:
            before = len(placed)
            for kind in order:
                pods = left[kind]
                open_to_it = self.rooms_for(kind, node_infos)
                count = more = self.snapshot.fill_any(kind, open_to_it, len(pods))
                while more and kind.spread:  # each pod may let the next one onto any node
                    more = self.snapshot.fill_any(kind, open_to_it, len(pods) - count)
                    count += more
                placed += [str(pod) for pod in pods[:count]]
                left[kind] = pods[count:]
            order = [kind for kind in order if left[kind] and (kind.spread or kind.needs.affinity)]
            if len(placed) == before:
                break
        return {kind: pods for kind, pods in left.items() if pods}, sorted(placed)
