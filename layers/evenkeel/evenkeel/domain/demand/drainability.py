"""Rules by which a pod allows or blocks the removal of its node.

They are cluster-autoscaler's rules in cluster-autoscaler's order (simulator/drainability/rules/rules.go:52-80), without
the rule about replica counts (docs/guides/demand.md). The first rule that matches decides. Evenkeel adds two rules,
because machine controllers never cancel a drain:

1. A pod that Evenkeel cannot place on another node blocks the removal, even with the annotation safe-to-evict.
2. A pod that two disruption budgets select blocks the removal, because the eviction API does not evict such a pod
   (registry/core/pod/storage/eviction.go).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.demand.pods import comes_with_node, is_overdue, unplaceable
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod, PodDisruptionBudget

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_SYSTEM = "kube-system"
_SYSTEM_POD_STAYS = timedelta(hours=1)
# Kinds of controllers that replace a deleted pod.
_REPLICATING = frozenset({"ReplicationController", "ReplicaSet", "Job", "StatefulSet"})


class Budgets:
    """The evictions that disruption budgets still allow (cluster-autoscaler's RemainingPdbTracker)."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = defaultdict(list)
        self._of_labels: dict[Hashable, list[PodDisruptionBudget]] = {}  # most pods have the labels of many others
        self.left: dict[str, int] = {}
        for budget in sorted(budgets, key=str):
            self._by_namespace[budget.namespace].append(budget)
            self.left[str(budget)] = max(0, budget.allowed)

    def of(self, pod: Pod) -> Sequence[PodDisruptionBudget]:
        """Return the budgets that select a pod."""
        in_namespace = self._by_namespace.get(pod.namespace)
        if not in_namespace:
            return ()
        key = pod.namespace, frozenset(pod.labels.items())
        if key not in self._of_labels:
            self._of_labels[key] = [budget for budget in in_namespace if matches(budget.selector, pod.labels)]
        return self._of_labels[key]

    def exhausted(self, pod: Pod) -> PodDisruptionBudget | None:
        """Return the first budget that does not allow the eviction of a pod; None: all its budgets allow it."""
        return next((budget for budget in self.of(pod) if self.left[str(budget)] < 1), None)

    def allow_all(self, pods: Iterable[Pod]) -> bool:
        """Return True if the budgets allow the eviction of all these pods at once."""
        return all(count <= self.left[budget] for budget, count in self._evictions(pods).items())

    def take(self, pods: Iterable[Pod]) -> None:
        """Count these pods as evicted. No budget falls below 0."""
        for budget, count in self._evictions(pods).items():
            self.left[budget] = max(0, self.left[budget] - count)

    def _evictions(self, pods: Iterable[Pod]) -> Counter[str]:
        return Counter(str(budget) for pod in pods for budget in self.of(pod))


class DrainDecision(StrEnum):
    """The effect of a drain on a pod."""

    ENDS = "ends"  # the pod ends with its node, or has ended already
    MOVES = "moves"  # the pod must be placed on another node
    WAITED_FOR = "waited-for"  # the node is removed once the pod has completed


def drain_decision(pod: Pod, budgets: Budgets, now: datetime) -> DrainDecision | Reason:
    """Return the effect of a drain on a pod, or the reason why the pod blocks the drain."""
    if ends_with_node(pod, now):
        return DrainDecision.ENDS
    safe_to_evict = pod.annotations.get(SAFE_TO_EVICT)
    if safe_to_evict == "on-completion":
        return DrainDecision.WAITED_FOR
    if reason := unplaceable(pod):
        return Reason.of(Rule.POD_NOT_PLACEABLE, pod=str(pod), why=reason)
    of_pod = budgets.of(pod)
    if pod.deleted_at is None and len(of_pod) > 1:
        return Reason.of(Rule.TWO_BUDGETS, pod=str(pod), budgets=tuple(map(str, of_pod)))
    if safe_to_evict == "true":
        return DrainDecision.MOVES
    if not is_replicated(pod):
        return Reason.of(Rule.NOT_REPLICATED, pod=str(pod))
    if pod.namespace == _SYSTEM and not of_pod:
        # An old system pod may move. The rules below do not apply to it.
        is_young = now - pod.created_at <= _SYSTEM_POD_STAYS
        return Reason.of(Rule.SYSTEM_POD, pod=str(pod)) if is_young else DrainDecision.MOVES
    if safe_to_evict == "false":
        return Reason.of(Rule.NOT_SAFE_TO_EVICT, pod=str(pod))
    if volume := _local_volume(pod):
        return Reason.of(Rule.LOCAL_STORAGE, pod=str(pod), volume=volume)
    if budget := budgets.exhausted(pod):
        return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(pod), budget=str(budget))
    return DrainDecision.MOVES


def drain_continues(pod: Pod, decision: DrainDecision | Reason) -> DrainDecision | Reason:
    """Return the effect of a drain by Evenkeel that has begun, on a pod with this decision.

    A pod that ends needs no further place, and the eviction API waits for disruption budgets.
    """
    if pod.deleted_at is not None:
        return DrainDecision.ENDS
    is_budget = isinstance(decision, Reason) and decision.rule is Rule.BUDGET_EXHAUSTED
    return DrainDecision.MOVES if is_budget else decision


def ends_with_node(pod: Pod, now: datetime) -> bool:
    """Return True if a pod does not have to be placed on another node when its node is removed."""
    return comes_with_node(pod) or is_overdue(pod, now) or pod.has_ended


def is_replicated(pod: Pod) -> bool:
    """Return True if the pod's controller replaces a deleted pod, on any node."""
    return pod.owner is not None and pod.owner.kind in _REPLICATING


def _local_volume(pod: Pod) -> str | None:
    """Return the first volume that stores data on the node and is not annotated as safe; None: no volume does so."""
    safe = pod.annotations.get(SAFE_VOLUMES, "").split(",")
    for volume in pod.needs.volumes:
        local = volume.kind == "hostPath" or (volume.kind == "emptyDir" and not volume.in_memory)
        if local and volume.name not in safe:
            return volume.name
    return None


def kept_nodes(observation: Observation, now: datetime) -> KeptNodes | None:
    """Return the nodes that must remain, because Evenkeel cannot place their pods; None: not all pods were read."""
    workload = observation.workload
    if workload is None or not workload.whole:
        return None
    named = {pod.node for pod in workload.pods if pod.node and not ends_with_node(pod, now) and unplaceable(pod)}
    nodes = [node for node in workload.nodes if node.name in named]
    return KeptNodes(
        machines=frozenset(node.machine.ref for node in nodes if node.machine is not None),
        by_group=Counter(node.group for node in nodes if node.group is not None),
    )
