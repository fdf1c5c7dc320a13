"""What the next node of a group looks like, and what comes with it.

Best known from a ready node of the same group, else from one of another zone of the same pool, else from what objects
say of it (similar ones are told apart in :mod:`evenkeel.domain.membership.similarity`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.demand import node_affinity
from evenkeel.domain.demand.pods import comes_with_node, daemons_seen
from evenkeel.domain.demand.taints import first_not_tolerated, is_of_startup, is_passing
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.similarity import IGNORED_LABELS
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Node, Pod, Workload

_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_KEPT_BACK = ("cpu", "memory", "ephemeral-storage")
_MOST_PODS = Fraction(110)  # a kubelet's own default


@dataclass(frozen=True)
class Fresh:
    """A node that is not there yet, and the pods that come with it. Its name is to be replaced."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def named(self, name: str) -> Node:
        return replace(self.node, name=name, labels={**self.node.labels, HOSTNAME: name})


class FreshNodes:
    """Fresh nodes by group, from one look at a workload cluster."""

    def __init__(self, workload: Workload, policy: DemandPolicy) -> None:
        self._policy = policy
        self._daemon_sets = workload.daemon_sets or daemons_seen(workload.pods)
        self._coming_with: dict[str, list[Pod]] = {}
        for pod in workload.pods:
            if comes_with_node(pod) and pod.node and not pod.has_ended and pod.deleted_at is None:
                self._coming_with.setdefault(pod.node, []).append(pod)
        self._samples: dict[GroupKey, Node] = {}
        # One with all its devices first, then one with all that comes with it: where a daemon's pod has no room, or is
        # not there yet, a node would be ordered for what never fits beside it. Then by name.
        for node in sorted(workload.nodes, key=self._completeness, reverse=True):
            if node.group is not None and node.ready and not node.unschedulable and not node.deleting:
                self._samples[node.group] = node

    def _completeness(self, node: Node) -> tuple[int, int, str]:
        return -len(node.allocatable), -len(self._coming_with.get(node.name, ())), node.name

    def of_pool(self, pool: PoolOffer) -> dict[GroupKey, Fresh]:
        """A fresh node for each group of which anybody knows what it would be."""
        sampled = sorted(offer.group for offer in pool.groups if offer.group in self._samples)
        found = {}
        for offer in pool.groups:
            fresh = self._of_group(offer, sampled)
            if fresh is not None:
                found[offer.group] = fresh
        return found

    def _of_group(self, offer: GroupOffer, sampled: Sequence[GroupKey]) -> Fresh | None:
        own = self._samples.get(offer.group)
        if own is not None:
            return self._from_sample(own, own.labels, offer)
        if sampled:
            other = self._samples[sampled[0]]
            return self._from_sample(other, _in_zone(other, offer.zone), offer)
        if offer.template is None or not offer.template.complete:
            return None
        node = _from_template(offer.template, offer, self._policy.reserve)
        return Fresh(node, tuple(pod for pod in self._daemon_sets if _runs_on(pod, node)))

    def _from_sample(self, sample: Node, labels: Mapping[str, str], offer: GroupOffer) -> Fresh:
        promised = offer.template.allocatable or offer.template.capacity if offer.template else {}
        late = {name: amount for name, amount in promised.items() if "/" in name}  # devices, if the sample's are gone
        node = replace(
            sample,
            labels=labels,
            taints=tuple(taint for taint in sample.taints if not is_passing(taint)),
            allocatable={**late, **sample.allocatable},
            capacity={**late, **sample.capacity},
            annotations={},
            group=offer.group,
        )
        pods = sorted(self._coming_with.get(sample.name, ()), key=str)
        return Fresh(node, tuple(pods))


def _in_zone(sample: Node, zone: str) -> dict[str, str]:
    """A node's labels as they would be in another zone of its pool.

    Whatever names its zone, under whichever key, names the other one: volumes are tied to the key of their driver.
    What says in other words where or which node it is, is not known of the other.
    """
    home = sample.labels.get(ZONE)
    labels = {}
    for key, value in sample.labels.items():
        if home is not None and value == home:
            labels[key] = zone
        elif key not in IGNORED_LABELS or key in _REGIONS:
            labels[key] = value
    return {**labels, ZONE: zone}


def _from_template(template: NodeTemplate, offer: GroupOffer, reserve: Fraction) -> Node:
    """A node as objects describe it. Where they say no allocatable, something of the capacity is kept back."""
    allocatable = template.allocatable
    if allocatable is None:
        allocatable = {
            name: amount * (1 - reserve) if name in _KEPT_BACK else amount for name, amount in template.capacity.items()
        }
    return Node(
        name="",
        labels={**template.labels, ZONE: offer.zone},
        taints=tuple(taint for taint in template.taints if not is_passing(taint)),
        capacity=template.capacity,
        allocatable={"pods": _MOST_PODS, **allocatable},
        group=offer.group,
    )


def _runs_on(daemon: Pod, node: Node) -> bool:
    """Whether a DaemonSet starts a pod there (daemon_controller.go: NodeShouldRunDaemonPod): room plays no part.

    What all daemons tolerate are passing taints, of which a fresh node has none.
    """
    needs = daemon.needs
    if first_not_tolerated(node.taints, needs.tolerations) is not None:
        return False
    return node_affinity.misfit(needs, node.labels, node.name) is None


def is_starting(node: Node, fresh: Node, now: datetime, policy: DemandPolicy) -> bool:
    """Whether a young node is not yet what it will be: a startup taint is on it, or a device is not there.

    Ordered again for each pod that waits for the device, there would be a node too many in every look.
    """
    if node.created_at is None or now - node.created_at > policy.startup or node.unschedulable or node.deleting:
        return False
    return not node.ready or any(is_of_startup(taint) for taint in node.taints) or _lacks_device(node, fresh)


def _lacks_device(node: Node, fresh: Node) -> bool:
    return any("/" in name and amount and not node.allocatable.get(name) for name, amount in fresh.allocatable.items())
