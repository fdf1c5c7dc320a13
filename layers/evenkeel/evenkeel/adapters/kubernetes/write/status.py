"""Writes Kubernetes Events, and the status into a ConfigMap. A failure is logged, and does not block a run."""

import logging

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.objects import CONFIG_MAP, Kind, Object, get_path, name_of
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import rfc3339, sentences

_EVENT = Kind("", ("v1",), "Event", "events")
# With fewer seconds left, neither events nor the status are written, because patches of other pools need the time.
_SPARE_SECONDS = 30
_STATUS_ENTRY = "evenkeel.json"
_STATUS_RIGHTS = "deploy/kubernetes/rbac-status.yaml"
_EVENT_REASONS = {
    State.HEALTHY: "Rebalanced",
    State.FENCED: "Fenced",
    State.PROBING: "Probing",
    State.UNHEALTHY: "Unhealthy",
    State.FROZEN: "Frozen",  # Evenkeel never writes a frozen group; this entry only completes the table
}
_log = logging.getLogger("evenkeel.kubernetes")


def emit_event(
    api: KubernetesApi, scalable: Object, plan: GroupPlan, decision: str, remaining: Remaining, *, dry_run: bool
) -> None:
    """Create an Event about the scalable. Its name has the decision's id, so the API server refuses a duplicate."""
    if remaining() < _SPARE_SECONDS:
        return
    namespace, name = name_of(scalable)
    moment = rfc3339(api.now())
    reason = "Restored" if plan.leaves else _EVENT_REASONS[plan.state]
    message = printable("; ".join(sentences(plan.reasons)))  # kubectl describe prints the message to a terminal
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:200]}.{decision.lower()}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": scalable.get("apiVersion"),
            "kind": scalable.get("kind"),
            "namespace": namespace,
            "name": name,
            "uid": get_path(scalable, ("metadata", "uid")),
        },
        "reason": f"Evenkeel{'DryRun' if dry_run else ''}{reason}",
        "message": f"{'Dry run, not written: ' if dry_run else ''}{message}"[:1024],
        "type": "Warning" if plan.state in (State.FENCED, State.UNHEALTHY) and not dry_run else "Normal",
        "source": {"component": "evenkeel"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    try:
        api.create(_EVENT.path("v1", namespace), event, remaining)
    except EvenkeelError as error:
        _log.info("event not created: %s", error)


def write_status(api: KubernetesApi, place: str, text: str, remaining: Remaining) -> bool:
    """Write one entry of an existing ConfigMap, ``NAMESPACE/NAME``; return False where the write failed."""
    if remaining() < _SPARE_SECONDS:
        return False
    namespace, _, name = place.partition("/")
    path = CONFIG_MAP.path("v1", namespace, name)
    try:
        api.patch(path, {"data": {_STATUS_ENTRY: text}}, remaining, rights=_STATUS_RIGHTS)
    except EvenkeelError as error:
        _log.warning("status not written: %s", error)
        return False
    return True
