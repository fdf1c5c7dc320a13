"""What kind of pod a pod is, for those who add and take away nodes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.workload import Pod

_DAEMON = "cluster-autoscaler.kubernetes.io/daemonset-pod"
_MIRROR = "kubernetes.io/config.mirror"
_LINGERS = timedelta(seconds=30)


def is_daemon(pod: Pod) -> bool:
    """Owned by a DaemonSet, of whatever API group, or said to be like one (utils/pod/pod.go:36-43)."""
    return (pod.owner is not None and pod.owner.kind == "DaemonSet") or pod.annotations.get(_DAEMON) == "true"


def is_mirror(pod: Pod) -> bool:
    """What a kubelet runs by itself, as the API shows it."""
    return _MIRROR in pod.annotations


def comes_with_node(pod: Pod) -> bool:
    """Whether it is there because the node is."""
    return is_daemon(pod) or is_mirror(pod)


def should_be_gone(pod: Pod, now: datetime) -> bool:
    """Deleted so long ago that it only lingers: grace period and half a minute."""
    return pod.deleted_at is not None and pod.deleted_at + pod.grace + _LINGERS < now


def wants_gpu(pod: Pod) -> bool:
    """Whether any container asks for a resource that is called a gpu."""
    asked = (request for item in pod.needs.containers for request in item.requests.items())
    return any(is_gpu(name) and amount > 0 for name, amount in asked)


# With these a node has a GPU, also before its driver shows it (GPULabel of the clusterapi and the MCM provider).
GPU_LABELS = frozenset({"cluster-api/accelerator", "gardener.cloud/accelerator"})


def is_gpu(resource: str) -> bool:
    """As every vendor's device plugin calls it: nvidia.com/gpu, amd.com/gpu."""
    return resource.endswith("/gpu")


def daemons_seen(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """One pod of each DaemonSet, the newest, as it would be on any node.

    The controller puts the name of the node in the place of the template's node affinity, so that a pod does not tell
    any more what that was: it counts where its node selector and its tolerations let it, which may be too often and is
    never too seldom.
    """
    newest: dict[tuple[str, str], Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created_at, pod.namespace, pod.name)):
        if pod.owner is not None and pod.owner.kind == "DaemonSet" and not pod.has_ended and pod.deleted_at is None:
            newest[pod.namespace, pod.owner.name] = pod
    return tuple(replace(pod, node="", needs=replace(pod.needs, node_terms=None)) for pod in newest.values())
