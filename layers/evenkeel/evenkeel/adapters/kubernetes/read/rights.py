"""Tests by SelfSubjectAccessReviews whether the identity has the rights of a check or a run. Reads no object."""

from collections.abc import Sequence

from evenkeel.adapters.kubernetes.client.api import KubernetesApi, described_right
from evenkeel.adapters.kubernetes.flavours import flavours_of
from evenkeel.adapters.kubernetes.objects import CONFIG_MAP, Kind
from evenkeel.application.ports import Remaining
from evenkeel.record import ClusterPolicy


def missing_rights(api: KubernetesApi, policy: ClusterPolicy, remaining: Remaining, *, writes: bool) -> Sequence[str]:
    """Return a sentence for each right that a check lacks or, where ``writes`` is True, that a run lacks."""
    rights: list[dict[str, str]] = []
    served = [flavour for flavour in flavours_of(policy.flavours) if api.served(flavour.group, remaining)]
    if not served:
        return [f"it serves none of the machine APIs {', '.join(policy.flavours)}: correct flavours"]
    for flavour in served:
        for kind in dict.fromkeys((*flavour.kinds, flavour.machines.kind)):
            if kind.may_be_refused or not api.served(kind.group, remaining):
                continue
            is_written = writes and kind in (*flavour.scalables, flavour.machines.kind)
            for verb in ("list", "patch") if is_written else ("list",):
                for namespace in (policy.namespaces if kind.namespaced else None) or ("",):
                    rights.append(_right(kind, verb, namespace))
    if policy.autoscaler_status is not None:
        rights.append(_right(CONFIG_MAP, "get", policy.autoscaler_status) | {"name": "cluster-autoscaler-status"})
    if writes and policy.status_configmap is not None:
        namespace, _, name = policy.status_configmap.partition("/")
        rights.append(_right(CONFIG_MAP, "patch", namespace) | {"name": name})
    return [described_right(right) for right in rights if not api.allows(right, remaining)]


def _right(kind: Kind, verb: str, namespace: str) -> dict[str, str]:
    return {"group": kind.group, "resource": kind.plural, "verb": verb, "namespace": namespace}
