"""Taints and tolerations (component-helpers scheduling/corev1/helpers.go, plugin tainttoleration)."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import Node, Toleration

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"

# What Cluster Autoscaler marks nodes with that it takes away (utils/taints/taints.go:41-43).
GOING = "ToBeDeletedByClusterAutoscaler"
MAY_GO = "DeletionCandidateOfClusterAutoscaler"
# Its value is when, in seconds. What is older was left behind by one that is at work no more (eligibility.go:108-190).
_TAKES = timedelta(minutes=5)

# What says how a node is just now, not what it is (utils/taints/taints.go:71-83): no fresh node is born with it, or
# it is taken off before the node counts as ready.
PASSING = frozenset(
    {
        GOING,
        MAY_GO,
        _NOT_READY,
        _UNREACHABLE,
        UNSCHEDULABLE.key,
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.cluster.x-k8s.io/uninitialized",
        "NodeWithImpairedVolumes",
        "cloud.google.com/impending-node-termination",
    }
)
_PASSING_PREFIXES = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)


_OF_STARTUP = frozenset(
    {
        _NOT_READY,
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cluster.x-k8s.io/uninitialized",
    }
)


def is_going(node: Node, now: datetime) -> bool:
    """Whether a node is on its way out: its machine or itself is being deleted, or an autoscaler takes it away."""
    return node.deleting or any(taint.key == GOING and _is_recent(taint.value, now) for taint in node.taints)


def _is_recent(seconds: str, now: datetime) -> bool:
    """What is no moment is none of an autoscaler that takes the node away now."""
    is_moment = seconds.isascii() and seconds.isdigit() and len(seconds) <= len(str(2**63))
    return is_moment and abs(now.timestamp() - int(seconds)) < _TAKES.total_seconds()


def is_of_startup(taint: Taint) -> bool:
    """Whether a taint goes by itself once a new node is complete."""
    return taint.key in _OF_STARTUP or taint.key.startswith(_PASSING_PREFIXES)


def is_passing(taint: Taint) -> bool:
    """Whether a taint of a living node says nothing of the next node of its group."""
    return taint.key in PASSING or taint.key.startswith(_PASSING_PREFIXES)


def first_not_tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps a pod with these tolerations away; None: it may come."""
    given = tuple(tolerations)
    return next(
        (
            taint
            for taint in taints
            if taint.effect in _KEEPS_AWAY and not any(_tolerates(toleration, taint) for toleration in given)
        ),
        None,
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """For how long plays no part. Gt and Lt stand behind a gate that is off, and tolerate nothing."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value
