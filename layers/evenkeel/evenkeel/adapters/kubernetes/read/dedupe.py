"""Counts each OpenShift MachineSet once while it exists in both Machine API and Cluster API. Pure.

During OpenShift's move to Cluster API, its cluster-capi-operator keeps a copy of each MachineSet in the other API,
under the same name. The operator also copies labels, so the MachineSet and its copy would be in one pool. The operator
refuses writes to the copy.
"""

from collections import defaultdict
from collections.abc import Iterable

from evenkeel.adapters.kubernetes.flavours.openshift import CLUSTER_API, authority_of
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.reasons import Reason, Rule

# The flavour, kind and namespace of MachineSets in each API (cluster-capi-operator admission-policies/default).
_IN_MACHINE_API = ("openshift", "MachineSet", "openshift-machine-api")
_IN_CLUSTER_API = ("cluster-api", "MachineSet", "openshift-cluster-api")


def counted_once(members: Iterable[GroupObjects]) -> tuple[list[GroupObjects], list[Skipped]]:
    """Return the groups that are no copies, and the skipped copies with the reasons.

    All groups of a pool are counted in the same API. While Machine API owns one of the pool's MachineSets, all copies
    in Cluster API are skipped. During this time, MachineSets that have moved are counted in Machine API, but not
    written. Otherwise there would be two pools, each with the whole PoolMaximum.
    """
    members = list(members)
    copies = {member.group.key.name: member.group for member in members if _place(member) == _IN_CLUSTER_API}
    if not copies:
        return members, []
    pools: dict[str | None, list[GroupObjects]] = defaultdict(list)
    for member in members:
        if _place(member) == _IN_MACHINE_API:
            pools[member.group.identity.pool_label].append(member)
    reasons = {}
    for sets in pools.values():
        have_moved = all(
            authority_of(member.scalable) == CLUSTER_API and member.group.key.name in copies for member in sets
        )
        for member in sets:
            copy = copies.get(member.group.key.name)
            if copy is not None:
                left_out, counted = (member.group, copy) if have_moved else (copy, member.group)
                rule = Rule.TWIN_HAS_MOVED if have_moved else Rule.TWIN_WAITS
                reasons[left_out.key] = Reason.of(rule, twin=str(counted.key))
    skipped = [
        Skipped(namespace=key.namespace, name=key.name, reason=reasons[key])
        for key in (member.group.key for member in members)
        if key in reasons
    ]
    return [member for member in members if member.group.key not in reasons], skipped


def _place(member: GroupObjects) -> tuple[str, str, str]:
    group = member.group
    return group.key.flavour, group.identity.kind, group.key.namespace
