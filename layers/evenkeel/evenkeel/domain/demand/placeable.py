"""Can Evenkeel place this pod? Growth, removal and convergence ask this one question.

A node that is ordered for a pod that cannot be judged may never help it, and a pod whose node goes may never find
another one.
"""

from evenkeel.domain.demand.volumes import unknown_kinds
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import SCHEDULERS, Pod


def unplaceable(pod: Pod) -> Reason | None:
    """Return the first need of a pod that no rule here judges; None: Evenkeel can place it."""
    needs = pod.needs
    if needs.gates:
        return Reason.of(Rule.POD_GATED, gates=needs.gates)
    if needs.scheduler not in SCHEDULERS:
        return Reason.of(Rule.POD_OF_OTHER_SCHEDULER, scheduler=needs.scheduler)
    if needs.resource_claims:
        return Reason.of(Rule.POD_NEEDS_DEVICES, claims=needs.resource_claims)
    if needs.unread:
        return Reason.of(Rule.POD_NEEDS_UNKNOWN, fields=needs.unread)
    kinds = tuple(unknown_kinds(pod))
    return Reason.of(Rule.POD_OF_UNKNOWN_VOLUME, kinds=kinds) if kinds else None
