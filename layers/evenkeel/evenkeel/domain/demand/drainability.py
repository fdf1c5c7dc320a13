"""Which pods let their node go: Cluster Autoscaler's rules, in its order; the first answer holds.

simulator/drainability/rules/rules.go:52-80. Its rule of replica counts is not here: it is off unless an option asks
for it, and needs rights to read every kind of controller. Two rules are Evenkeel's own: a pod that it cannot place
keeps its node, and so does a pod of two disruption budgets.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.demand.drainability import Budgets
from evenkeel.domain.demand.pods import is_daemon, is_mirror, should_be_gone, unplaceable
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_SYSTEM = "kube-system"
_SYSTEM_POD_STAYS = timedelta(hours=1)
# Controllers of which it is known that they make a pod anew.
_REPLICATING = frozenset({"ReplicationController", "ReplicaSet", "Job", "StatefulSet"})


class DrainDecision(StrEnum):
    """What becomes of a pod whose node goes."""

    ENDS = "ends"  # with its node, or has ended
    MOVES = "moves"  # needs another place
    WAITED_FOR = "waited-for"  # the node goes once it has completed


def drain_decision(pod: Pod, budgets: Budgets, now: datetime) -> DrainDecision | Reason:
    """What becomes of a pod whose node goes, or the rule by which it keeps the node."""
    if ends_with_node(pod, now):
        return DrainDecision.ENDS
    said = pod.annotations.get(SAFE_TO_EVICT)
    if said == "on-completion":
        return DrainDecision.WAITED_FOR
    if reason := _never_evicted(pod, budgets):
        return reason
    if said == "true":
        return DrainDecision.MOVES
    return _blocked(pod, said, budgets, now) or DrainDecision.MOVES


def ends_with_node(pod: Pod, now: datetime) -> bool:
    """Return True if a pod needs no other place when its node goes."""
    return is_mirror(pod) or should_be_gone(pod, now) or is_daemon(pod) or pod.has_ended


def _never_evicted(pod: Pod, budgets: Budgets) -> Reason | None:
    """Return why a pod keeps its node whatever its annotations say.

    Evenkeel evicts no pod that it cannot place again: safe-to-evict lifts the rules of eviction, and finds no place.
    The API evicts no pod of two budgets, whatever they allow (registry/core/pod/storage/eviction.go): a drain by it
    would never end. Cluster Autoscaler gives up such a node after two minutes; machine controllers do not.
    """
    if why := unplaceable(pod):
        return Reason.of(Rule.POD_NOT_PLACEABLE, pod=str(pod), why=why)
    found = budgets.of(pod) if pod.deleted_at is None else ()
    if len(found) < 2:
        return None
    return Reason.of(Rule.TWO_BUDGETS, pod=str(pod), budgets=tuple(str(budget) for budget in found))


def is_replicated(pod: Pod) -> bool:
    """Return whether its controller is known to make the pod anew, on any node."""
    return pod.owner is not None and pod.owner.kind in _REPLICATING


def _blocked(pod: Pod, said: str | None, budgets: Budgets, now: datetime) -> Reason | None:
    if not is_replicated(pod):
        return Reason.of(Rule.NOT_REPLICATED, pod=str(pod))
    if pod.namespace == _SYSTEM and not budgets.of(pod):
        # What is old enough may move, whatever the rules below say of it.
        young = now - pod.created_at <= _SYSTEM_POD_STAYS
        return Reason.of(Rule.SYSTEM_POD, pod=str(pod)) if young else None
    if said == "false":
        return Reason.of(Rule.NOT_SAFE_TO_EVICT, pod=str(pod))
    if local := _local_volume(pod):
        return Reason.of(Rule.LOCAL_STORAGE, pod=str(pod), volume=local)
    budget = budgets.exhausted(pod)
    return Reason.of(Rule.BUDGET_EXHAUSTED, pod=str(pod), budget=str(budget)) if budget is not None else None


def _local_volume(pod: Pod) -> str | None:
    """The first volume that stays behind and that nobody has said may be lost."""
    named = pod.annotations.get(SAFE_VOLUMES, "").split(",")
    for volume in pod.needs.volumes:
        local = volume.kind == "hostPath" or (volume.kind == "emptyDir" and not volume.in_memory)
        if local and volume.name not in named:
            return volume.name
    return None
