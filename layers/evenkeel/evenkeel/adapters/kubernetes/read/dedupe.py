"""MachineSets of OpenShift that stand twice, as Machine API's and as Cluster API's: each counts once. Pure.

While OpenShift moves to Cluster API, its cluster-capi-operator keeps for each MachineSet one of the other API, of the
same name, and copies from the one that has the authority to the other. Labels are copied as well, so both would be in a
pool of the same name, and what is written to the copy is refused.
"""

from collections import defaultdict
from collections.abc import Iterable

from evenkeel.adapters.kubernetes.flavours.openshift import CLUSTER_API, authority_of
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.reasons import Reason, Rule

# Where the two stand (cluster-capi-operator admission-policies/default).
_MACHINE_API_NAMESPACE, _CLUSTER_API_NAMESPACE = "openshift-machine-api", "openshift-cluster-api"


def counted_once(members: Iterable[GroupObjects]) -> tuple[list[GroupObjects], list[Skipped]]:
    """The groups without those that are another's twin, and these, each with the reason.

    A pool moves as a whole: as long as one of its MachineSets is Machine API's, its twins in Cluster API are left out,
    and those that have moved are read and counted, and not written. Else it would be two pools, each with PoolMaximum.
    """
    members = list(members)
    twins = {
        member.group.key.name: member.group
        for member in members
        if _stands(member.group, "cluster-api", _CLUSTER_API_NAMESPACE)
    }
    if not twins:
        return members, []
    of_pool: dict[str | None, list[GroupObjects]] = defaultdict(list)
    for member in members:
        if _stands(member.group, "openshift", _MACHINE_API_NAMESPACE):
            of_pool[member.group.pool_label].append(member)
    reasons = {}
    for sets in of_pool.values():
        have_moved = all(
            authority_of(member.scalable) == CLUSTER_API and member.group.key.name in twins for member in sets
        )
        for member in sets:
            twin = twins.get(member.group.key.name)
            if twin is not None:
                left_out, kept = (member.group, twin) if have_moved else (twin, member.group)
                rule = Rule.TWIN_HAS_MOVED if have_moved else Rule.TWIN_WAITS
                reasons[left_out.key] = Reason.of(rule, twin=str(kept.key))
    skipped = [
        Skipped(namespace=member.group.key.namespace, name=member.group.key.name, reason=reasons[member.group.key])
        for member in members
        if member.group.key in reasons
    ]
    return [member for member in members if member.group.key not in reasons], skipped


def _stands(group: NodeGroup, flavour: str, namespace: str) -> bool:
    return (group.key.flavour, group.kind, group.key.namespace) == (flavour, "MachineSet", namespace)
