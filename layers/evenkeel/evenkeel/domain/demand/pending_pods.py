"""Which pods are demand (utils/kubernetes/listers.go:181-203, core/podlistprocessor, static_autoscaler.go:531-571)."""

from collections.abc import Container, Iterable
from datetime import datetime, timedelta

from evenkeel.domain.demand.pods import comes_with_node, unplaceable, wants_gpu
from evenkeel.domain.model.demand import DemandPolicy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod

_UNSCHEDULABLE = "Unschedulable"


def standing_on(pod: Pod, nodes: Container[str]) -> str:
    """The node on which it takes room: its own, or the one that was cleared for it and is still there; empty: none."""
    if pod.node or pod.deleted_at is not None:
        return pod.node
    return pod.nominated if pod.nominated in nodes else ""


def is_expendable(pod: Pod, policy: DemandPolicy) -> bool:
    """Of so low a priority that no node is asked for, and that others may have its room."""
    return pod.priority is not None and pod.priority < policy.expendable_below


def why_not_counted(pod: Pod, policy: DemandPolicy, now: datetime) -> Reason | None:
    """Why a pod without a node raises no demand; None: it does.

    What we cannot judge is named here and not counted: a pod that needs a node of which we know nothing would
    otherwise be ordered nodes for ever.
    """
    return why_not_moved(pod, policy) or _not_said_to_wait(pod) or _young(pod, now)


def why_not_moved(pod: Pod, policy: DemandPolicy) -> Reason | None:
    """Why a pod of a node that is being drained raises no demand when it comes again elsewhere; None: it does."""
    if pod.deleted_at is not None:
        return Reason.of(Rule.POD_GOING)
    if comes_with_node(pod):
        return Reason.of(Rule.POD_COMES_WITH_NODE)
    if is_expendable(pod, policy):
        return Reason.of(Rule.POD_EXPENDABLE, priority=pod.priority, least=policy.expendable_below)
    return unplaceable(pod)


def _young(pod: Pod, now: datetime) -> Reason | None:
    until = pod.created_at + pod.scale_up_delay
    return Reason.of(Rule.POD_YOUNG, until=until) if pod.scale_up_delay and now <= until else None


def _not_said_to_wait(pod: Pod) -> Reason | None:
    """Only what the scheduler found unschedulable counts. Silence means that it has not tried yet."""
    if pod.unscheduled is None or not pod.unscheduled.reason:
        return Reason.of(Rule.POD_NOT_TRIED_YET)
    if pod.unscheduled.reason != _UNSCHEDULABLE:
        return Reason.of(Rule.POD_HELD_BACK, state=pod.unscheduled.reason)
    return None


def judged_from(pods: Iterable[Pod], policy: DemandPolicy, now: datetime) -> datetime | None:
    """When the oldest of these pods has waited long enough to be judged; None: there are none.

    While even the oldest is new, its scheduler may be at work on all of them. A pod from ahead of our clock is judged
    at once: its age cannot be known, and with a slow clock it would wait until that has caught up.
    """
    waiting = list(pods)

    def old_at(pod: Pod, patience: timedelta) -> datetime:
        return now if pod.created_at > now else pod.created_at + patience

    ends = [old_at(pod, policy.patience) for pod in waiting]
    gpu = [old_at(pod, policy.patience_gpu) for pod in waiting if wants_gpu(pod)]
    return max(min(ends), min(gpu) if gpu else min(ends)) if ends else None
