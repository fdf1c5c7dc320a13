"""Pending pods that surely fit a new node of a pool, as long as each of its groups has room."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.requests import CPU, MEMORY, Counts
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import HOSTNAME, Node

Rejections = Mapping[PodGroup, Mapping[GroupKey, Reason]]
"""Of each pod group, the node groups of a pool whose new node rejects it, and why."""


class CertainPods:
    """The pending pods that fit a new node later if they fit one now.

    Args:
        snapshot: The nodes and pods.
        pending: The number of pending pods, by pod group.
        open_nodes: The nodes with room, on which pods may be placed instead.
        on_new_nodes: The pod groups that come with new nodes.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        pending: Mapping[PodGroup, int],
        open_nodes: Sequence[NodeInfo],
        on_new_nodes: Collection[PodGroup],
    ) -> None:
        self._pods: dict[str, dict[PodGroup, int]] = {}  # by the topology key that a pool must span
        self._free = Counter[str]()
        if any(term.key != HOSTNAME for pod_group in pending for term in pod_group.needs.anti_affinity):
            return
        for pod_group, count in pending.items():
            key = _key_to_span(pod_group, on_new_nodes)
            if key is not None and not snapshot.is_repelled_beyond_hosts(pod_group):
                self._pods.setdefault(key, {})[pod_group] = count
        self._requests = {key: requests_of(pods) for key, pods in self._pods.items()}
        infos = snapshot.node_infos.values()
        self._domains = {key: {info.labels[key] for info in infos if key in info.labels} for key in self._pods if key}
        if any(pod_group.in_rounds for pods in self._pods.values() for pod_group in pods):
            for info in open_nodes:
                self._free += Counter({CPU: info.cpu, MEMORY: info.memory})  # drops negative amounts

    def spanned(self, templates: Sequence[Node]) -> list[str]:
        """Return the topology keys of which the nodes of a pool can be in each domain that has a node."""
        return [
            key for key in self._pods if not key or self._domains[key] <= {node.labels.get(key) for node in templates}
        ]

    def requests(self, keys: Collection[str], rejections: Rejections, groups: int) -> tuple[Counts, bool]:
        """Return the cpu and memory that the pods surely use on new nodes of a pool with so many groups.

        Also return True if all of these pods fit a new node of each group. ``keys`` are those that the pool spans.
        """
        total, fit_all = Counter[str](), not any(keys)
        for key in keys:
            pods = self._pods[key]
            partly = [group for group in rejections if group in pods]
            # Pods that need no key fit as long as one group that accepts them has room.
            rejected = [group for group in partly if key or len(rejections[group]) == groups]
            fit_all = fit_all and len(partly) == len(rejected)
            total.update(self._requests[key])
            total.subtract(requests_of({group: pods[group] for group in rejected}))
        total.subtract(self._free)
        return total, fit_all


def _key_to_span(pod_group: PodGroup, on_new_nodes: Collection[PodGroup]) -> str | None:
    """Return the topology key for which a pool must have groups in all domains, so that pods that fit now fit later.

    Empty: the pods need no key. None: the pods may not fit later.

    A new node is alone in its host. With one constraint on another key, the domain with the fewest pods, or with
    company, takes a pod. This does not hold for two constraints, or if they count pods that come with a node.
    """
    needs = pod_group.needs
    keys = [item.key for item in pod_group.spread if item.key != HOSTNAME] + [term.key for term in needs.affinity]
    selectors = [item.selector for item in pod_group.spread] + [term.selector for term in needs.affinity]
    if (
        pod_group.volumes.exclusive
        or len(keys) > 1
        or any(term.key == HOSTNAME for term in needs.affinity)
        or any(item.min_domains > 1 for item in pod_group.spread)
        or any(matches(selector, other.labels) for selector in selectors for other in on_new_nodes)
    ):
        return None
    return keys[0] if keys else ""


def requests_of(counts: Mapping[PodGroup, int]) -> Counts:
    """Return the cpu and memory that these numbers of pods request."""
    cpu = memory = 0
    for pod_group, count in counts.items():
        cpu += pod_group.cpu * count
        memory += pod_group.memory * count
    return {CPU: cpu, MEMORY: memory}
