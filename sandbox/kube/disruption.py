"""The rules of an API server for pods: grace periods, and disruption budgets for evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.kube.errors import ApiError
from sandbox.kube.selectors import selects

if TYPE_CHECKING:
    from sandbox.kube.schema import Object

_GRACE = 30  # seconds
UNSUPPORTED = "which the eviction subresource does not support."
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


def new_pod(pod: Object) -> Object:
    """Return a new pod as the server stores it: pending, with the defaults that scheduler and kubelet read."""
    defaults = {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": _GRACE,
    }
    status = pod.get("status") or {}
    return {**pod, "spec": defaults | (pod.get("spec") or {}), "status": {"phase": "Pending"} | status}


def grace_of(pod: Object, requested: int | None) -> int:
    """Return the grace period in seconds; 0 if no kubelet has to end the pod (registry/core/pod/strategy.go)."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", _GRACE)) if requested is None else requested


def evicts_without_budget(pod: Object) -> bool:
    """Return whether an eviction skips the budgets, because the pod does not run or is being deleted."""
    ended = (pod.get("status") or {}).get("phase", "Pending") in ("Succeeded", "Failed", "Pending")
    return ended or "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Object) -> bool:
    """Return True if the pod's condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def protects(budget: Object, pod: Object) -> bool:
    """Return whether a budget selects a pod of its namespace."""
    return selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})


def spend(budget: Object, pod: Object, now: str) -> Object | None:
    """Return a budget's status after an eviction; None if the status does not change. ApiError 429 or 403 if denied.

    An unready pod may be evicted while enough other pods are ready (unhealthyPodEvictionPolicy IfHealthyBudget, the
    default).
    """
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    if not is_ready(pod) and (always or status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0):
        return None
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.")
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise ApiError(403, f'pods "{name}" is forbidden: pod disruption budget is negative')
    if allowed == 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refused(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
    return {
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now},
    }


def _refused(message: str) -> ApiError:
    return ApiError(429, _VIOLATES, details={"causes": [{"reason": "DisruptionBudget", "message": message}]})
