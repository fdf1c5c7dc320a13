"""What the next node of a group looks like, and what comes with it.

The newest Ready node of the group is the sample: it shows what machines of the group have become. Without one, the
newest of another zone of the pool is, else what objects say (``domain.rebalancing.membership.similarity``). A label or
taint of the sample counts if the template has it too, or most Ready nodes of its group: one that a person set on one
node says nothing about the next node. Nothing about a node is remembered once it is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.demand import node_affinity
from evenkeel.domain.demand.pods import comes_with_node, daemons_seen, is_mirror
from evenkeel.domain.demand.taints import first_not_tolerated, is_of_startup, is_passing
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.similarity import IGNORED_LABELS
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Node, Pod, Workload

_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_KEPT_BACK = ("cpu", "memory", "ephemeral-storage")
_MOST_PODS = Fraction(110)  # a kubelet's own default


@dataclass(frozen=True)
class TemplateNode:
    """A node that is not there yet, and the pods that come with it. Its name is to be replaced."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def named(self, name: str) -> Node:
        return replace(self.node, name=name, labels={**self.node.labels, HOSTNAME: name})


class TemplateNodes:
    """Fresh nodes by group, from one look at a workload cluster."""

    def __init__(self, workload: Workload, policy: DemandPolicy, now: datetime) -> None:
        self._policy = policy
        self._are_listed = bool(workload.daemon_sets)
        self._daemon_sets = workload.daemon_sets or daemons_seen(workload.pods)
        self._coming_with: dict[str, list[Pod]] = {}
        for pod in workload.pods:
            if comes_with_node(pod) and pod.node and not pod.has_ended and pod.deleted_at is None:
                self._coming_with.setdefault(pod.node, []).append(pod)
        self._ready: dict[GroupKey, list[Node]] = {}
        for node in workload.nodes:
            if node.group is not None and node.ready and not node.unschedulable and not node.deleting:
                self._ready.setdefault(node.group, []).append(node)
        self._samples = {group: self._newest(nodes, now) for group, nodes in self._ready.items()}

    def _newest(self, nodes: Sequence[Node], now: datetime) -> Node:
        """The newest node. One that is young and has fewer devices than another one may still get them."""
        devices = max(len(node.allocatable) for node in nodes)

        def is_complete(node: Node) -> bool:
            is_young = node.created_at is not None and now - node.created_at <= self._policy.startup
            return not is_young or len(node.allocatable) == devices

        return max(nodes, key=lambda node: (is_complete(node), *_age(node)))

    def of_pool(self, pool: PoolOffer) -> dict[GroupKey, TemplateNode]:
        """Return the next node of each group of which anything is known."""
        sampled = [self._samples[offer.group] for offer in pool.groups if offer.group in self._samples]
        newest = max(sampled, key=_age, default=None)
        found = {}
        for offer in pool.groups:
            template_nodes = self._of_group(offer, newest)
            if template_nodes is not None:
                found[offer.group] = template_nodes
        return found

    def _of_group(self, offer: GroupOffer, newest: Node | None) -> TemplateNode | None:
        sample = self._samples.get(offer.group)
        if sample is not None:
            return self._from_sample(sample, self._shared_labels(sample, offer), offer)
        if newest is not None:
            labels = _in_zone(newest, self._shared_labels(newest, offer), offer.zone)
            return self._from_sample(newest, labels, offer)
        if offer.template is None or not offer.template.complete:
            return None
        node = _from_template(offer.template, offer, self._policy.reserve)
        return TemplateNode(node, tuple(pod for pod in self._daemon_sets if _runs_on(pod, node)))

    def _from_sample(self, sample: Node, labels: Mapping[str, str], offer: GroupOffer) -> TemplateNode:
        promised = offer.template.allocatable or offer.template.capacity if offer.template else {}
        late = {name: amount for name, amount in promised.items() if "/" in name}  # devices, if the sample's are gone
        node = replace(
            sample,
            labels=labels,
            taints=self._shared_taints(sample, offer),
            allocatable={**late, **sample.allocatable},
            capacity={**late, **sample.capacity},
            annotations={},
            group=offer.group,
        )
        return TemplateNode(node, self._with(sample, node))

    def _shared_labels(self, sample: Node, offer: GroupOffer) -> dict[str, str]:
        promised = offer.template.labels if offer.template else {}
        others = self._others(sample)
        return {
            key: value
            for key, value in sample.labels.items()
            if promised.get(key) == value or _is_usual(sum(node.labels.get(key) == value for node in others), others)
        }

    def _shared_taints(self, sample: Node, offer: GroupOffer) -> tuple[Taint, ...]:
        promised = offer.template.taints if offer.template else ()
        others = self._others(sample)
        return tuple(
            taint
            for taint in sample.taints
            if not is_passing(taint)
            and (taint in promised or _is_usual(sum(taint in node.taints for node in others), others))
        )

    def _others(self, sample: Node) -> Sequence[Node]:
        """The Ready nodes of the sample's group, itself included."""
        return self._ready[sample.group] if sample.group is not None else ()

    def _with(self, sample: Node, node: Node) -> tuple[Pod, ...]:
        """The pods that come with the node, as they run on the node of the group that has most of them.

        The newest node may not have all of them yet, and a full one has no room for a new DaemonSet's. Where
        DaemonSets are listed, they decide which of them run on it.
        """
        on_nodes = [self._coming_with.get(other.name, []) for other in sorted(self._others(sample), key=_age)]
        most = max(reversed(on_nodes), key=len)
        running = sorted(most, key=str)
        if not self._are_listed:
            return tuple(running)
        by_owner = {(pod.namespace, pod.owner): pod for pod in running if pod.owner is not None}
        listed = {(pod.namespace, pod.owner): pod for pod in self._daemon_sets if pod.owner is not None}
        others = [pod for pod in running if is_mirror(pod) or not _is_of_daemon_set(pod)]
        daemons = [by_owner.get(owner, pod) for owner, pod in listed.items() if _runs_on(pod, node)]
        return (*others, *daemons)


def _age(node: Node) -> tuple[float, str]:
    """The key by which the newest node is the largest."""
    return (0.0 if node.created_at is None else node.created_at.timestamp()), node.name


def _is_usual(nodes: int, others: Sequence[Node]) -> bool:
    return 2 * nodes > len(others)


def _is_of_daemon_set(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def _in_zone(sample: Node, shared: Mapping[str, str], zone: str) -> dict[str, str]:
    """A node's labels as they would be in another zone of its pool, of those that its group shares.

    Whatever names its zone, under whichever key, names the other one: volumes are tied to the key of their driver.
    What says in other words where or which node it is, is not known of the other.
    """
    home = sample.labels.get(ZONE)
    labels = {}
    for key, value in shared.items():
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
    return node_affinity.failing_filter(needs, node.labels, node.name) is None


def is_starting(
    node: Node, template_nodes: Node, now: datetime, policy: DemandPolicy, provision_timeout: timedelta
) -> bool:
    """Whether a young node is not yet what it will be: not Ready, a startup taint is on it, or a device is not there.

    Ordered again for each pod that waits for the device, there would be a node too many in every look.
    """
    if node.created_at is None or node.unschedulable or node.deleting:
        return False
    age = now - node.created_at
    if not node.ready:
        ready_by = node.ready_by(provision_timeout)
        return ready_by is not None and now < ready_by
    return age <= policy.startup and (
        any(is_of_startup(taint) for taint in node.taints) or _lacks_device(node, template_nodes)
    )


def _lacks_device(node: Node, template_nodes: Node) -> bool:
    return any(
        "/" in name and amount and not node.allocatable.get(name) for name, amount in template_nodes.allocatable.items()
    )
