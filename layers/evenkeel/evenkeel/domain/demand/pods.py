"""Rules about pods for scale-up and scale-down: which pods come with a node, can be placed, or count as demand.

Sources: utils/kubernetes/listers.go:181-203, core/podlistprocessor, static_autoscaler.go:531-571.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from evenkeel.domain.demand.requests import is_gpu
from evenkeel.domain.demand.taints import is_being_deleted
from evenkeel.domain.demand.volumes import ANYWHERE, OF_CLAIMS
from evenkeel.domain.model.demand import DemandPolicy, NotCounted
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import SCHEDULERS, UNSCHEDULABLE, Needs, Pod, Workload

_DAEMON_SET_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"
_MIRROR = "kubernetes.io/config.mirror"
_GRACE = timedelta(seconds=30)

# ---------------------------------------------------------------- pods that come with a node


def is_of_daemon_set(pod: Pod) -> bool:
    """Return True if a DaemonSet of any API group owns the pod."""
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def is_daemon(pod: Pod) -> bool:
    """Return True if a DaemonSet owns the pod, or if an annotation says so (utils/pod/pod.go:36-43)."""
    return is_of_daemon_set(pod) or pod.annotations.get(_DAEMON_SET_POD) == "true"


def is_mirror(pod: Pod) -> bool:
    """Return True for a mirror pod: the API object of a kubelet's static pod."""
    return _MIRROR in pod.annotations


def comes_with_node(pod: Pod) -> bool:
    """Return True if a pod comes with its node, as pods of DaemonSets and mirror pods do."""
    return is_daemon(pod) or is_mirror(pod)


def is_overdue(pod: Pod, now: datetime) -> bool:
    """Return True if a deleted pod has exceeded its grace period by more than 30 s."""
    return pod.deleted_at is not None and pod.deleted_at + pod.grace + _GRACE < now


def daemon_sets_of(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the newest pod of each DaemonSet, without the fields that bind the pod to its node.

    In each pod, the DaemonSet controller replaces the template's node affinity with a node name, and Evenkeel drops
    this name. So only node selector and tolerations decide on which nodes a DaemonSet counts. It may count on too many
    nodes, but never on too few.
    """
    newest: dict[tuple[str, str], Pod] = {}
    running = (pod for pod in pods if is_of_daemon_set(pod) and not pod.has_ended and pod.deleted_at is None)
    for pod in sorted(running, key=lambda pod: (pod.created_at, pod.namespace, pod.name)):
        if pod.owner is not None:
            newest[pod.namespace, pod.owner.name] = pod
    return tuple(replace(pod, node="", needs=replace(pod.needs, node_terms=None)) for pod in newest.values())


# ---------------------------------------------------------------- can Evenkeel place this pod?


def unplaceable(pod: Pod) -> Reason | None:
    """Return the first need of a pod that Evenkeel cannot evaluate; None: Evenkeel can place the pod.

    Scale-up, scale-down and convergence all use this function. A node that is ordered for an unplaceable pod may not
    help the pod. If the node of such a pod is removed, the pod may fit no other node.
    """
    needs = pod.needs
    if needs.gates:
        return Reason.of(Rule.POD_GATED, gates=needs.gates)
    if needs.scheduler not in SCHEDULERS:
        return Reason.of(Rule.POD_OF_OTHER_SCHEDULER, scheduler=needs.scheduler)
    if needs.resource_claims:
        return Reason.of(Rule.POD_NEEDS_DEVICES, claims=needs.resource_claims)
    if needs.unread:
        return Reason.of(Rule.POD_NEEDS_UNKNOWN, fields=needs.unread)
    if not needs.volumes:
        return None
    kinds = tuple(sorted({volume.kind for volume in needs.volumes} - ANYWHERE - OF_CLAIMS))
    return Reason.of(Rule.POD_OF_UNKNOWN_VOLUME, kinds=kinds) if kinds else None


# ---------------------------------------------------------------- pending pods


@dataclass
class SortedPods:
    """The pods of one check: pods on nodes, pending pods, and pods that do not count as demand."""

    on_node: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    pending: list[Pod] = field(default_factory=list)
    not_counted: list[NotCounted] = field(default_factory=list)
    drained: set[str] = field(default_factory=set)  # names of nodes that are being deleted and have pods that must move


def sort_pods(workload: Workload, policy: DemandPolicy, now: datetime) -> SortedPods:
    """Return the pods of each node, the pending pods, and the pods that do not count as demand."""
    deleting = {node.name for node in workload.nodes if is_being_deleted(node, now)}
    names = {node.name for node in workload.nodes}
    pods = SortedPods()
    for pod in sorted(workload.pods, key=str):
        if pod.has_ended or is_overdue(pod, now):
            continue
        if node := node_of(pod, names):
            # A pod on a node that is being deleted counts as pending, because its controller replaces it. The
            # replacement needs a new node only if it fits no existing or upcoming node.
            if node in deleting and not_rescheduled_because(pod, policy) is None:
                pods.pending.append(replace(pod, node=""))
                pods.drained.add(node)
            elif not is_expendable(pod, policy) or unplaceable(pod) is not None:
                pods.on_node[node].append(pod)
            continue
        reason = not_demand_because(pod, policy, now)
        if reason is None:
            pods.pending.append(pod)
        else:
            pods.not_counted.append(NotCounted(pod=str(pod), reason=reason))
    return pods


def node_of(pod: Pod, nodes: Container[str]) -> str:
    """Return the name of the node whose resources a pod uses; empty: no node.

    It is the pod's own node or, if the pod has none, the existing node that the scheduler has nominated for the pod.
    """
    if pod.node or pod.deleted_at is not None:
        return pod.node
    return pod.nominated if pod.nominated in nodes else ""


def is_expendable(pod: Pod, policy: DemandPolicy) -> bool:
    """Return True if a pod's priority is so low that no node is ordered for it and other pods may preempt it."""
    return pod.priority is not None and pod.priority < policy.expendable_below


def not_demand_because(pod: Pod, policy: DemandPolicy, now: datetime) -> Reason | None:
    """Return why a pod without a node does not count as demand; None: it counts.

    Only a pod that the scheduler reports as unschedulable counts. If a pod has no scheduling condition, the scheduler
    has not tried it yet.
    """
    if reason := not_rescheduled_because(pod, policy):
        return reason
    if pod.unscheduled is None or not pod.unscheduled.reason:
        return Reason.of(Rule.POD_NOT_TRIED_YET)
    if pod.unscheduled.reason != UNSCHEDULABLE:
        return Reason.of(Rule.POD_HELD_BACK, state=pod.unscheduled.reason)
    until = pod.created_at + pod.scale_up_delay
    return Reason.of(Rule.POD_YOUNG, until=until) if pod.scale_up_delay and now <= until else None


def not_rescheduled_because(pod: Pod, policy: DemandPolicy) -> Reason | None:
    """Return why a pod does not count as demand once its node is drained; None: it counts."""
    if pod.deleted_at is not None:
        return Reason.of(Rule.POD_GOING)
    if comes_with_node(pod):
        return Reason.of(Rule.POD_COMES_WITH_NODE)
    if is_expendable(pod, policy):
        return Reason.of(Rule.POD_EXPENDABLE, priority=pod.priority, least=policy.expendable_below)
    return unplaceable(pod)


def is_unplaceable(pod: Pod) -> bool:
    """Return True if a pod would need a place once its node is lost, but Evenkeel cannot evaluate its needs."""
    return pod.deleted_at is None and not comes_with_node(pod) and unplaceable(pod) is not None


def old_enough_at(pods: Iterable[Pod], policy: DemandPolicy, now: datetime) -> datetime | None:
    """Return when the oldest pending pod is old enough to act on; None: no pod is pending.

    If pods request GPUs, the oldest of these pods must be old enough, too. Before that time, the scheduler may still
    place all pending pods. A pod with a creation time in the future counts as old enough. Otherwise, if Evenkeel's
    clock is slow, the pod would wait until that clock has caught up.
    """
    pending = list(pods)

    def first_at(pods: Iterable[Pod], patience: timedelta) -> datetime | None:
        times = {pod.created_at for pod in pods}  # pods of one burst have equal times
        return min((now if time > now else time + patience for time in times), default=None)

    specs = {id(pod.needs): pod.needs for pod in pending}  # many pods share one spec
    with_gpu = {key for key, needs in specs.items() if _requests_gpu(needs)}
    first = first_at(pending, policy.patience)
    gpu = first_at((pod for pod in pending if id(pod.needs) in with_gpu), policy.patience_gpu)
    return max(first, gpu or first) if first is not None else None


def _requests_gpu(needs: Needs) -> bool:
    requests = (request for container in needs.resources.containers for request in container.requests.items())
    return any(is_gpu(name) and amount > 0 for name, amount in requests)
