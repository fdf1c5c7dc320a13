"""One check's workload as scale-up and scale-down begin with it: nodes with their pods, and pending pods."""

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
    is_overdue,
    node_of,
    not_demand_because,
    not_rescheduled_because,
    unplaceable,
)
from evenkeel.domain.demand.taints import is_being_deleted
from evenkeel.domain.demand.template_node import TemplateNode, TemplateNodes, is_starting
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import DemandPolicy, NotCounted, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import HOSTNAME, Node, Pod, Workload


class Simulation:
    """A snapshot with existing and upcoming nodes, the pending pods, and each group's template node."""

    def __init__(self, workload: Workload, pools: tuple[PoolOffer, ...], policy: DemandPolicy, now: datetime) -> None:
        self.policy = policy
        self.now = now
        volumes = Volumes(workload)
        self.pod_groups = PodGroups(volumes)
        self.snapshot = ClusterSnapshot(workload.namespaces)
        templates = TemplateNodes(workload, policy, now)
        self.template_nodes: dict[GroupKey, TemplateNode] = {}
        for pool in pools:
            self.template_nodes |= templates.of_pool(pool)
        self.not_counted: list[NotCounted] = []
        self.pending: list[Pod] = []
        self.pods_on: dict[str, list[Pod]] = defaultdict(list)
        self.starting: dict[str, GroupKey] = {}  # nodes that are still starting, with their groups
        self.drained: set[str] = set()  # nodes being deleted whose pods have to move
        # Groups whose template node seems to hold a pod group, and whose earlier nodes did not.
        self.ineffective_groups: Callable[[PodGroup], Collection[GroupKey]] = lambda _: ()
        self._timeouts = {offer.group: offer.options.provision_timeout for pool in pools for offer in pool.groups}
        self._sort_pods(workload)
        self._pods_of_template: dict[GroupKey, Counter[PodGroup]] = {}
        self._attached = volumes.attached_without_pod(self.pods_on)
        for node in sorted(workload.nodes, key=lambda node: node.name):
            self.add_node(self._as_started(node), Counter(self.pod_groups.of(pod) for pod in self.pods_on[node.name]))
        self.started = self.snapshot.node_infos.keys() - self.starting.keys()
        for pool in sorted(pools, key=lambda pool: pool.pool):
            for offer in sorted(pool.groups, key=lambda offer: offer.group):
                for _ in range(offer.coming if offer.group in self.template_nodes else 0):
                    self.add_template_node(offer.group)

    def _sort_pods(self, workload: Workload) -> None:
        """Find the pods of each node, the pending pods, and those that are not counted."""
        deleting = {node.name for node in workload.nodes if is_being_deleted(node, self.now)}
        names = {node.name for node in workload.nodes}
        for pod in sorted(workload.pods, key=str):
            if pod.has_ended or is_overdue(pod, self.now):
                continue
            if node := node_of(pod, names):
                # A drained pod is created again. It is demand only if it fits nowhere else.
                if node in deleting and not_rescheduled_because(pod, self.policy) is None:
                    self.pending.append(replace(pod, node=""))
                    self.drained.add(node)
                elif not is_expendable(pod, self.policy) or unplaceable(pod) is not None:
                    self.pods_on[node].append(pod)
                continue
            reason = not_demand_because(pod, self.policy, self.now)
            if reason is None:
                self.pending.append(pod)
            else:
                self.not_counted.append(NotCounted(pod=str(pod), reason=reason))

    def add_node(self, node: Node, pod_groups: Mapping[PodGroup, int]) -> NodeInfo:
        """Add an existing node with these pods, and with the volumes attached to it that none of them names."""
        return self.snapshot.add_node(node, pod_groups, self._attached.get(node.name, NOTHING))

    def _as_started(self, node: Node) -> Node:
        """A node that is still starting counts as its group's template node."""
        template = None if node.group is None else self.template_nodes.get(node.group)
        if node.group is None or template is None:
            return node
        if not is_starting(node, template.node, self.now, self.policy, self._timeouts[node.group]):
            return node
        self.starting[node.name] = node.group
        started = template.named(node.name)
        return replace(started, labels={**started.labels, HOSTNAME: node.labels.get(HOSTNAME, node.name)})

    def starting_and_empty(self, node: str) -> bool:
        """Return True for a starting node without pods, except those that come with every node."""
        return node in self.starting and all(map(comes_with_node, self.pods_on[node]))

    def add_template_node(self, group: GroupKey) -> NodeInfo:
        """Add one more node of a group, with the pods that come with it. No existing node has its name."""
        template = self.template_nodes[group]
        if group not in self._pods_of_template:
            self._pods_of_template[group] = Counter(self.pod_groups.of(pod) for pod in template.pods)
        name = f"{group} (new {len(self.snapshot.node_infos)})"
        return self.snapshot.add_node(template.named(name), self._pods_of_template[group])

    def schedulable_nodes(self) -> list[NodeInfo]:
        """Return all nodes that take pods, upcoming ones included."""
        return [node_info for node_info in self.snapshot.node_infos.values() if node_info.is_schedulable]

    def usable_nodes(self, pod_group: PodGroup, node_infos: Sequence[NodeInfo]) -> Sequence[NodeInfo]:
        """Return the nodes that count for a pod group: only started ones, in groups whose nodes did not help it."""
        groups = self.ineffective_groups(pod_group)
        if not groups:
            return node_infos
        return [info for info in node_infos if info.name in self.started or info.node.group not in groups]

    def schedule_pending(self) -> tuple[dict[PodGroup, list[Pod]], list[str]]:
        """Place pending pods on existing and upcoming nodes. Return those left, by group, and the names of the others.

        A placed pod keeps its place for the rest of the check: no node is ordered for it, and its node is needed. The
        highest priority goes first, then the largest. Pods that depend on others are tried again while any is placed.
        """
        pending = self.pod_groups.group(self.pending)
        order = sorted(pending, key=_turn)
        placed: list[str] = []
        schedulable = self.schedulable_nodes()
        while order:
            before = len(placed)
            for pod_group in order:
                pods = pending[pod_group]
                usable = self.usable_nodes(pod_group, schedulable)
                count = more = self.snapshot.fill(pod_group, usable, len(pods))
                while more and pod_group.spread:  # each pod may let the next one onto any node
                    more = self.snapshot.fill(pod_group, usable, len(pods) - count)
                    count += more
                placed += [str(pod) for pod in pods[:count]]
                pending[pod_group] = pods[count:]
            order = [group for group in order if pending[group] and (group.spread or group.needs.affinity)]
            if len(placed) == before:
                break
        return {pod_group: pods for pod_group, pods in pending.items() if pods}, sorted(placed)


def _turn(pod_group: PodGroup) -> tuple[int, int, int, bool, str]:
    """Of equal size, pods that spread go first: others would fill the first zone."""
    return -pod_group.priority, -pod_group.cpu, -pod_group.memory, not pod_group.spread, pod_group.name
