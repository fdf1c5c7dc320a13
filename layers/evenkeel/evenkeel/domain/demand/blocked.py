"""Pending pods that fit no new node of any pool, but would fit such a node without its DaemonSet pods.

No node is ordered for such pods, so the problem is not reported as an order that did not help. Pods that do not fit a
new node even without DaemonSet pods are not included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import is_daemon
from evenkeel.domain.demand.requests import amount_text, request_of
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.past_orders import BlockedPods
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import Pod

# Limit of the DaemonSets that a report names. It names the DaemonSets with the largest requests.
_MOST_NAMED = 3


class Blocked:
    """Finds pods that would fit a new node only without its DaemonSet pods. Full and fenced groups are tried, too."""

    def __init__(self, simulation: Simulation, left: Mapping[PodGroup, Sequence[Pod]]) -> None:
        self._simulation, self._left = simulation, left
        groups = simulation.template_nodes if left else ()
        self._rejected = {group: self._rejected_by(group) for group in groups}
        self._fit_none = [group for group in left if all(group in rejected for rejected in self._rejected.values())]

    def of_pool(self, pool: PoolOffer) -> tuple[BlockedPods, ...]:
        """Return the pods that would fit a new node of a pool only without the node's DaemonSet pods."""
        known = sorted((offer.group for offer in pool.groups if offer.group in self._rejected), key=str)
        blocked = []
        for pod_group in self._fit_none:
            groups = [group for group in known if self._fits_without_daemons(pod_group, group)]
            if groups:
                reason = self._rejected[groups[0]][pod_group]
                daemons = self._daemons(groups[0], str(reason.facts.get("resource", "")))
                names = tuple(str(pod) for pod in self._left[pod_group])
                blocked.append(BlockedPods(pods=names, why=reason, daemons=daemons, groups=tuple(map(str, groups))))
        return tuple(sorted(blocked, key=lambda pods: pods.pods))

    def fitting(self, pod_group: PodGroup) -> frozenset[GroupKey]:
        """Return the node groups whose new node fits pods of the group, although the pods get none now."""
        return frozenset(group for group, rejected in self._rejected.items() if pod_group not in rejected)

    def _rejected_by(self, group: GroupKey) -> dict[PodGroup, Reason]:
        snapshot = self._simulation.snapshot
        fork = snapshot.fork()
        node_info = self._simulation.add_template_node(group)
        reasons = {pod_group: snapshot.failing_filter(pod_group, node_info) for pod_group in self._left}
        snapshot.revert(fork)
        return {pod_group: reason for pod_group, reason in reasons.items() if reason is not None}

    def _fits_without_daemons(self, pod_group: PodGroup, group: GroupKey) -> bool:
        snapshot, template = self._simulation.snapshot, self._simulation.template_nodes[group]
        others = Counter(self._simulation.pod_groups.of(pod) for pod in template.pods if not is_daemon(pod))
        fork = snapshot.fork()
        node_info = snapshot.add_node(template.named(f"{group} (without DaemonSets)"), others)
        fits = snapshot.failing_filter(pod_group, node_info) is None
        snapshot.revert(fork)
        return fits

    def _daemons(self, group: GroupKey, resource: str) -> tuple[tuple[str, str], ...]:
        """Return the names of a new node's DaemonSets, each with its request of a resource.

        The largest requests are first.
        """
        pods = [pod for pod in self._simulation.template_nodes[group].pods if is_daemon(pod)]
        requests = Counter({_owner(pod): request_of(pod).get(resource, 0) for pod in pods})
        named = sorted(requests.items(), key=lambda item: (-item[1], item[0]))
        return tuple((name, amount_text(resource, request) if request else "") for name, request in named[:_MOST_NAMED])


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner.name if pod.owner is not None else pod.name}"
