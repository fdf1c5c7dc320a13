"""The scheduler's filters that read only the node itself, and its pods.

Each filter returns why it rejects one more pod of a pod group; None: it accepts the pod.

Filters that count pods on other nodes are in ``topology_filters``. ``ClusterSnapshot.failing_filter`` runs the filters
of both modules in the order of the default profile.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from evenkeel.domain.demand import taints
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.requests import CPU, MEMORY, PODS, amount_text
from evenkeel.domain.demand.selectors import any_term_matches
from evenkeel.domain.demand.volumes import TOPOLOGY_LABELS, ZONE_LABELS
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import HostPort, Needs

_EVERY_ADDRESS = ("", "0.0.0.0")
_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


def once_per_shape(
    check: Callable[[PodGroup, NodeInfo], _Result],
    results: dict[_Key, _Result],
    key: _Key,
    pod_group: PodGroup,
    node_info: NodeInfo,
) -> _Result:
    """Return the result of a check that reads only the shape of the node (``shape_of``), and not its pods.

    The check runs once for all nodes of one shape, unless the pods can select single nodes.
    """
    if pod_group.by_node:
        return check(pod_group, node_info)
    if key not in results:
        results[key] = check(pod_group, node_info)
    return results[key]


def taints_and_affinity(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    """Return why taints or node affinity reject a pod (plugins nodeunschedulable, tainttoleration and nodeaffinity)."""
    return once_per_shape(_taints_and_affinity, node_info.shape.by_node, pod_group.selects, pod_group, node_info)


def _taints_and_affinity(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    tolerations = pod_group.needs.tolerations
    if node_info.node.unschedulable and taints.first_not_tolerated([taints.UNSCHEDULABLE], tolerations):
        return Reason.of(Rule.NODE_CORDONED)
    taint = taints.first_not_tolerated(node_info.node.taints, tolerations)
    if taint is not None:
        return Reason.of(Rule.TAINT_NOT_TOLERATED, taint=f"{taint.key}={taint.value}:{taint.effect}", key="")
    return node_affinity(pod_group.needs, node_info.labels, node_info.name)


def node_affinity(needs: Needs, labels: Mapping[str, str], name: str) -> Reason | None:
    """Return why the node selector or required node affinity rejects a node (plugin nodeaffinity)."""
    for key, wanted in sorted(needs.node_selector.items()):
        if (value := labels.get(key)) != wanted:
            return Reason.of(Rule.NODE_SELECTOR, key=key, wanted=wanted, found="missing" if value is None else value)
    if needs.node_terms is not None and not any_term_matches(needs.node_terms, labels, name):
        keys = {item.key for term in needs.node_terms for item in (*term.expressions, *term.fields)}
        return Reason.of(Rule.NODE_AFFINITY, terms=len(needs.node_terms), keys=tuple(sorted(keys)))
    return None


def node_ports(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    """Return why a host port is unavailable (plugin nodeports, framework.HostPortInfo)."""
    for port in pod_group.ports:
        for other, count in node_info.ports.items():
            if count > 0 and _collide(port, other):
                return Reason.of(Rule.HOST_PORT_TAKEN, port=port.port, protocol=port.protocol)
    return None


def _collide(a: HostPort, b: HostPort) -> bool:
    if (a.port, a.protocol or "TCP") != (b.port, b.protocol or "TCP"):
        return False
    return a.address in _EVERY_ADDRESS or b.address in _EVERY_ADDRESS or a.address == b.address


def node_resources_fit(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    """Return why the free resources do not suffice for one more pod (plugin noderesources/fit.go:678-765)."""
    if node_info.pods < 1:
        return Reason.of(Rule.NODE_FULL_OF_PODS, pods=node_info.allocatable.get(PODS, 0))
    if 0 < pod_group.cpu > node_info.cpu:
        return _too_little(CPU, pod_group.cpu, node_info.cpu, node_info)
    if 0 < pod_group.memory > node_info.memory:
        return _too_little(MEMORY, pod_group.memory, node_info.memory, node_info)
    for name, request in pod_group.rest:
        if request > (free := node_info.free.get(name, 0)):
            return _too_little(name, request, free, node_info)
    return None


def _too_little(resource: str, request: int, free: int, node_info: NodeInfo) -> Reason:
    return Reason.of(
        Rule.TOO_LITTLE_FREE,
        resource=resource,
        asked=amount_text(resource, request),
        free=amount_text(resource, max(0, free)),
        allocatable=amount_text(resource, node_info.allocatable.get(resource, 0)),
    )


def room_beside_cpu_and_memory(pod_group: PodGroup, node_info: NodeInfo, wanted: int) -> int:
    """Return how many more pods a node's other resources, ports and volume limits allow, at most ``wanted``."""
    most = wanted
    for name, request in pod_group.rest:
        most = min(most, node_info.free.get(name, 0) // request)
    if node_info.limits and (pod_group.volumes.drivers or pod_group.volumes.shared):
        for driver, each, once in node_info.volumes_to_attach(pod_group):
            if driver in node_info.limits:
                left = node_info.limits[driver] - node_info.attached.get(driver, 0) - once
                most = min(most, left // each) if each else most if left >= 0 else 0
    if pod_group.ports:
        most = min(most, 0 if node_ports(pod_group, node_info) else 1)
    return most


def node_volume_limits(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    """Return why a CSI driver cannot attach the pod's volumes (plugin nodevolumelimits/csi.go).

    A driver without a limit rejects no pod.
    """
    for driver, each, once in node_info.volumes_to_attach(pod_group):
        limit, attached = node_info.limits.get(driver), node_info.attached.get(driver, 0)
        if limit is not None and attached + each + once > limit:
            return Reason.of(Rule.VOLUME_LIMIT, driver=driver, wanted=each + once, attached=attached, limit=limit)
    return None


def volume_binding(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    """Return why a node does not reach the pod's volumes (plugins volumebinding and volumezone)."""
    return once_per_shape(_volume_binding, node_info.shape.by_volumes, pod_group, pod_group, node_info)


def _volume_binding(pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
    labels, reaches = node_info.labels, pod_group.volumes.reaches
    for reach in reaches:
        if reach.node and reach.node != node_info.name:
            return Reason.of(Rule.VOLUME_FOR_OTHER_NODE, claim=reach.claim, node=reach.node)
        if reach.terms is not None and not any_term_matches(reach.terms, labels, node_info.name):
            return Reason.of(Rule.VOLUME_OUT_OF_REACH, claim=reach.claim)
    if not any(key in labels for key in ZONE_LABELS):
        return None
    for reach in reaches:
        for key, values in reach.labels:
            # A volume's beta label is compared with the node's beta label or, if the node has none, with its current
            # label. A volume's current label is compared only with the node's current label.
            zone = labels.get(key, labels.get(TOPOLOGY_LABELS.get(key, "")))
            if zone not in values:
                wants = " or ".join(sorted(values))
                return Reason.of(
                    Rule.VOLUME_ELSEWHERE, claim=reach.claim, key=key, wants=wants, found=zone or "missing"
                )
    return None
