"""The expected next node of each group (cluster-autoscaler's TemplateNodeInfo), and the pods that come with the node.

1. The sample is the newest Ready node of the group that lacks no device of an older Ready node of the group. The next
   node gets a label or taint of the sample only if the template or most Ready nodes of the group have it. So a label
   that a person set on one node is left out.
2. Without a Ready node, the group's own template comes first. The newest sample of the pool's other groups fills in
   what the template does not name. Of the pool's labels and taints, only those that most Ready nodes have are used.
   A complete template (cpu and memory) gets no taint of other groups.
3. Evenkeel stores no samples, so a deleted node is never a sample.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.demand.filters import node_affinity
from evenkeel.domain.demand.pods import comes_with_node, daemon_sets_of, is_mirror, is_of_daemon_set
from evenkeel.domain.demand.taints import first_not_tolerated, is_startup_taint, is_status_taint
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.similarity import IGNORED_LABELS
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Node, Pod, Workload

_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_TYPE = "node.kubernetes.io/instance-type"
_RESERVED = ("cpu", "memory", "ephemeral-storage")
_DEFAULT_PODS = Fraction(110)  # the kubelet's default for maxPods


@dataclass(frozen=True)
class TemplateNode:
    """A node that does not exist yet, and the pods that come with it."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def named(self, name: str) -> Node:
        """Return the node with this name and hostname."""
        return replace(self.node, name=name, labels={**self.node.labels, HOSTNAME: name})


class TemplateNodes:
    """Makes the template nodes of pools from one check's workload."""

    def __init__(self, workload: Workload, policy: DemandPolicy) -> None:
        self._policy = policy
        self._are_listed = bool(workload.daemon_sets)
        self._daemon_sets = workload.daemon_sets or daemon_sets_of(workload.pods)
        self._node_pods: dict[str, list[Pod]] = {}
        for pod in workload.pods:
            if pod.node and comes_with_node(pod) and not pod.has_ended and pod.deleted_at is None:
                self._node_pods.setdefault(pod.node, []).append(pod)
        self._ready: dict[GroupKey, list[Node]] = {}
        for node in workload.nodes:
            if node.group is not None and node.ready and not node.unschedulable and not node.deleting:
                self._ready.setdefault(node.group, []).append(node)
        self._whole = {group: _whole(nodes) for group, nodes in self._ready.items()}
        self._samples = {group: nodes[-1] for group, nodes in self._whole.items()}

    def of_pool(self, pool: PoolOffer) -> dict[GroupKey, TemplateNode]:
        """Return the template node of each group that has a sample or a complete template."""
        samples = [self._samples[offer.group] for offer in pool.groups if offer.group in self._samples]
        newest = max(samples, key=_age, default=None)
        ready = [node for offer in pool.groups for node in self._ready.get(offer.group, ())]
        devices = _common_devices([node for offer in pool.groups for node in self._whole.get(offer.group, ())])
        templates = {offer.group: self._of_group(offer, newest, ready, devices) for offer in pool.groups}
        return {group: template for group, template in templates.items() if template is not None}

    def _of_group(
        self, offer: GroupOffer, newest: Node | None, ready: Sequence[Node], devices: Mapping[str, Fraction]
    ) -> TemplateNode | None:
        sample = self._samples.get(offer.group)
        if sample is not None:
            return self._from_sample(sample, offer, devices)
        template = offer.template or NodeTemplate()
        if newest is not None and newest.group is not None:
            node = _with_missing_values(template, _in_zone_of(offer, newest, ready, devices), offer)
            return TemplateNode(node, self._pods(self._ready[newest.group], node))
        if not template.complete:
            return None
        node = _from_template(template, offer, self._policy.reserve)
        return TemplateNode(node, tuple(pod for pod in self._daemon_sets if _runs_on(pod, node)))

    def _from_sample(self, sample: Node, offer: GroupOffer, common: Mapping[str, Fraction]) -> TemplateNode:
        template = offer.template or NodeTemplate()
        peers = self._ready[offer.group]
        labels = {
            key: value
            for key, value in sample.labels.items()
            if template.labels.get(key) == value or _in_most(node.labels.get(key) == value for node in peers)
        }
        # The sample's driver may be silent. Then the devices of the pool's nodes, or of the template, are used.
        resources = template.allocatable or template.capacity
        devices = {name: amount for name, amount in resources.items() if "/" in name and name not in template.assumed}
        devices = {**common, **devices}
        node = replace(
            sample,
            labels=labels,
            taints=tuple(
                taint
                for taint in sample.taints
                if not _is_passing(taint, offer)
                and (taint in template.taints or _in_most(taint in node.taints for node in peers))
            ),
            allocatable={**sample.allocatable, **devices, **_devices(sample)},
            capacity={**devices, **sample.capacity},
            annotations={},
        )
        return TemplateNode(node, self._pods(peers, node))

    def _pods(self, peers: Iterable[Node], node: Node) -> tuple[Pod, ...]:
        """Return the pods that come with the node: those of the peer that has the most such pods.

        The newest peer may not have all such pods yet, and a full peer has no room for the pod of a new DaemonSet. If
        the check listed the DaemonSets, their node affinity and tolerations decide which of their pods run on the node.
        """
        by_peer = [self._node_pods.get(peer.name, []) for peer in sorted(peers, key=_age, reverse=True)]
        most = max(by_peer, key=len)
        running = sorted(most, key=str)
        if not self._are_listed:
            return tuple(running)
        by_owner = {(pod.namespace, pod.owner): pod for pod in running if pod.owner is not None}
        listed = {(pod.namespace, pod.owner): pod for pod in self._daemon_sets if pod.owner is not None}
        others = [pod for pod in running if is_mirror(pod) or not is_of_daemon_set(pod)]
        return (*others, *(by_owner.get(owner, pod) for owner, pod in listed.items() if _runs_on(pod, node)))


def _age(node: Node) -> tuple[float, str]:
    """Return a sort key, which is largest for the newest node."""
    return (0.0 if node.created_at is None else node.created_at.timestamp()), node.name


def _whole(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that lack no device of an older node, the newest last. The drivers of others are silent."""
    whole: list[Node] = []
    devices: set[str] = set()
    for node in sorted(nodes, key=_age):
        own = _devices(node).keys()
        if devices <= own:
            whole.append(node)
        devices |= own
    return whole


def _devices(node: Node) -> dict[str, Fraction]:
    return {name: amount for name, amount in node.allocatable.items() if "/" in name and amount}


def _common_devices(nodes: Sequence[Node]) -> dict[str, Fraction]:
    """Return the devices that most of these nodes have, in the amounts of the newest node that has them."""
    devices: dict[str, Fraction] = {}
    for node in sorted(nodes, key=_age):
        devices |= _devices(node)
    return {name: amount for name, amount in devices.items() if _in_most(name in _devices(node) for node in nodes)}


def _is_passing(taint: Taint, offer: GroupOffer) -> bool:
    """Return True if a new node of the group has the taint only for a while, or never."""
    return is_status_taint(taint) or taint.key in offer.ignored_taints


def _in_most(nodes: Iterable[bool]) -> bool:
    """Return True if more than half of the values are True."""
    answers = list(nodes)
    return 2 * sum(answers) > len(answers)


def _in_zone_of(offer: GroupOffer, sibling: Node, ready: Sequence[Node], devices: Mapping[str, Fraction]) -> Node:
    """Return the node that a sibling group's node would be in this group.

    It has the labels and taints that most Ready nodes of the pool have. A person may have tainted the only node of the
    pool, so a taint must be on two nodes at least.

    Each label whose value is the zone of its node gets this group's zone as its value. The key does not matter, because
    each CSI driver has its own zone key. Other labels that describe location or identity are dropped, except regions.
    """
    zone = offer.zone_label or offer.zone

    def moved(node: Node) -> dict[str, str]:
        home = node.labels.get(ZONE)
        return {
            key: zone if value == home else value
            for key, value in node.labels.items()
            if value == home or key not in IGNORED_LABELS or key in _REGIONS
        }

    all_labels = [moved(node) for node in ready]
    counts = Counter(pair for labels in all_labels for pair in labels.items())
    taints = Counter(taint for node in ready for taint in node.taints if not _is_passing(taint, offer))
    return replace(
        sibling,
        labels={**{key: value for (key, value), count in counts.items() if 2 * count > len(ready)}, ZONE: zone},
        taints=tuple(taint for taint, count in taints.items() if 2 * count > len(ready) and count > 1),
        allocatable={**sibling.allocatable, **devices, **_devices(sibling)},
        capacity={**devices, **sibling.capacity},
        annotations={},
        group=offer.group,
    )


def _as_reserved_on(node: Node, capacity: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return the allocatable part of a capacity, if the same share is reserved as on a node."""
    whole = {name: amount for name, amount in node.capacity.items() if amount}
    return {
        name: amount * node.allocatable.get(name, whole[name]) / whole[name] if name in whole else amount
        for name, amount in capacity.items()
    }


def _with_missing_values(template: NodeTemplate, sibling: Node, offer: GroupOffer) -> Node:
    """Return the node of a template, with the values of a sibling group's node where the template has none.

    A complete template names all taints of its nodes.
    """
    labels = {key: value for key, value in template.labels.items() if key not in template.assumed}
    # The sibling's node shows the size of its own instance type better than a cloud's list of types.
    assumed = template.assumed if template.labels.get(_TYPE) in (None, sibling.labels.get(_TYPE)) else frozenset()
    capacity = {name: amount for name, amount in template.capacity.items() if name not in assumed}
    own = {(taint.key, taint.effect): taint for taint in template.taints if not _is_passing(taint, offer)}
    is_complete = {"cpu", "memory"} <= template.capacity.keys() - template.assumed
    others = {} if is_complete else {(taint.key, taint.effect): taint for taint in sibling.taints}
    return replace(
        sibling,
        labels={**template.labels, **sibling.labels, **labels, ZONE: sibling.labels[ZONE]},
        taints=tuple({**others, **own}.values()),
        capacity={**sibling.capacity, **capacity},
        allocatable={**sibling.allocatable, **(template.allocatable or _as_reserved_on(sibling, capacity))},
    )


def _from_template(template: NodeTemplate, offer: GroupOffer, reserve: Fraction) -> Node:
    """Return a node made from a template.

    If the allocatable resources are unknown, they are the capacity minus a reserved share of cpu, memory and storage.
    """
    allocatable = template.allocatable
    if allocatable is None:
        allocatable = {
            name: amount * (1 - reserve) if name in _RESERVED else amount for name, amount in template.capacity.items()
        }
    return Node(
        name="",
        labels={**template.labels, ZONE: offer.zone_label or offer.zone},
        taints=tuple(taint for taint in template.taints if not _is_passing(taint, offer)),
        capacity=template.capacity,
        allocatable={"pods": _DEFAULT_PODS, **allocatable},
        group=offer.group,
    )


def _runs_on(daemon: Pod, node: Node) -> bool:
    """Return True if a DaemonSet starts a pod on the node (daemon_controller.go: NodeShouldRunDaemonPod).

    Free resources do not matter. Status taints do not matter either, because a new node keeps none of them, and all
    DaemonSet pods tolerate them.
    """
    needs = daemon.needs
    if first_not_tolerated(node.taints, needs.tolerations) is not None:
        return False
    return node_affinity(needs, node.labels, node.name) is None


def as_started(node: Node, template: TemplateNode, now: datetime, policy: DemandPolicy, offer: GroupOffer) -> Node:
    """Return the group's template node with the node's name, if the node is still starting; else the node itself."""
    if not is_starting(node, template.node, now, policy, offer):
        return node
    started = template.named(node.name)
    return replace(started, labels={**started.labels, HOSTNAME: node.labels.get(HOSTNAME, node.name)})


def is_starting(node: Node, template: Node, now: datetime, policy: DemandPolicy, offer: GroupOffer) -> bool:
    """Return True if a young node is not Ready yet, has a startup taint, or lacks a device of its template.

    Without this rule, each check would order another node for a pod that waits for the node or for its device.
    """
    if node.created_at is None or node.unschedulable or node.deleting:
        return False
    if not node.ready:
        ready_by = node.ready_by(offer.options.provision_timeout)
        return ready_by is not None and now < ready_by
    has_startup_taint = any(is_startup_taint(taint) or taint.key in offer.ignored_taints for taint in node.taints)
    is_young = now - node.created_at <= policy.startup
    return is_young and (has_startup_taint or _lacks_device(node, template))


def _lacks_device(node: Node, template: Node) -> bool:
    return any(
        "/" in name and amount and not node.allocatable.get(name) for name, amount in template.allocatable.items()
    )
