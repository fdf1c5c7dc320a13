"""Taints and tolerations (component-helpers scheduling/corev1/helpers.go, plugin tainttoleration)."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import Node, Toleration

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# Cluster-autoscaler's taint on a node that it removes (utils/taints/taints.go:41-43). The taint's value is a Unix time.
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
# If that taint is older than this, the autoscaler that set the taint no longer runs (eligibility.go:108-190).
_DELETION_TAKES = timedelta(minutes=5)

# Keys of taints that are removed once a new node is initialized.
_STARTUP = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
    }
)
# Keys of taints that describe the current state of one node (utils/taints/taints.go:71-83). A template node has none of
# them.
_STATUS = _STARTUP | {
    TO_BE_DELETED,
    "DeletionCandidateOfClusterAutoscaler",
    UNSCHEDULABLE.key,
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.cloudprovider.kubernetes.io/shutdown",
    "NodeWithImpairedVolumes",
    "cloud.google.com/impending-node-termination",
}
_DECLARED_PREFIXES = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)


def is_being_deleted(node: Node, now: datetime) -> bool:
    """Return True if a node or its machine is being deleted, or if an autoscaler has just tainted the node."""
    return node.deleting or any(taint.key == TO_BE_DELETED and _is_recent(taint.value, now) for taint in node.taints)


def _is_recent(seconds: str, now: datetime) -> bool:
    is_time = seconds.isascii() and seconds.isdigit() and len(seconds) <= len(str(2**63))
    return is_time and abs(now.timestamp() - int(seconds)) < _DELETION_TAKES.total_seconds()


def is_startup_taint(taint: Taint) -> bool:
    """Return True if a taint is removed once a new node is initialized."""
    return taint.key in _STARTUP or taint.key.startswith(_DECLARED_PREFIXES)


def is_status_taint(taint: Taint) -> bool:
    """Return True if a taint describes the current state of one node, so that the group's next node lacks it."""
    return taint.key in _STATUS or taint.key.startswith(_DECLARED_PREFIXES)


def first_not_tolerated(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """Return the first taint that rejects a pod with these tolerations; None: no taint rejects the pod."""
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(_tolerates(item, taint) for item in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if a toleration matches a taint. ``tolerationSeconds`` is ignored.

    A toleration with operator Gt or Lt matches no taint, because the feature gate of these operators is off.
    """
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value
