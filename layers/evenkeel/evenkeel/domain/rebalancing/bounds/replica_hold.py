"""Which fences are exact: the owner of the bounds holds replicas where they are, at 0 too, and no autoscaler has a say.

Where no owner of a workload cluster leaves replicas to its autoscaler any more, the autoscaler is stopped (HyperShift's
operator: hostedcluster_controller.go). So one always does, and that group's fence is its max.
"""

from collections.abc import Iterable

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import PoolState


def exact_fences(fenced: Iterable[NodeGroup], pinned: Iterable[NodeGroup]) -> frozenset[GroupKey]:
    """The groups that are to be pinned.

    Args:
        fenced: All groups that are to get no growth, whatever they are now.
        pinned: All groups that are pinned now. Those that are not fenced are about to be let go.
    """
    candidates: dict[str, list[NodeGroup]] = {}
    for group in fenced:
        if group.pinning is not None and group.owner is not None:
            candidates.setdefault(group.pinning.cluster, []).append(group)
    keys = {group.key for groups in candidates.values() for group in groups}
    let_go = {group.pinning.cluster for group in pinned if group.pinning is not None and group.key not in keys}
    return frozenset(
        group.key
        for cluster, groups in candidates.items()
        for group in _without_last(groups, is_let_go=cluster in let_go)
    )


def _without_last(groups: list[NodeGroup], *, is_let_go: bool) -> list[NodeGroup]:
    """Those of one cluster's candidates that may be pinned.

    Spared is one that is scaled now, so that nobody is pinned before another has been let go.
    """
    owners = {group.owner.ref.id for group in groups if group.owner is not None}
    if any(group.pinning is not None and group.pinning.scaled - owners for group in groups):
        return groups
    scaled = [group for group in groups if not group.pinned]
    if not scaled and is_let_go:
        return groups
    spared = min(scaled or groups, key=lambda group: group.key)
    return [group for group in groups if group is not spared]


def without_foreign(groups: Iterable[NodeGroup], state: PoolState) -> tuple[NodeGroup, ...]:
    """The groups, with those frozen that are pinned and of which only their own annotation says that we did it.

    They are copies of what we wrote, or somebody has set replicas there since.
    """
    return tuple([_frozen_if_foreign(group, state) for group in groups])


def _frozen_if_foreign(group: NodeGroup, state: PoolState) -> NodeGroup:
    if not group.pinned or group.owner is None:
        return group
    known = state.desired_bounds.get(group.owner.ref.id)
    if known is not None and group.owner.bounds in known.ours:
        return group
    return group.frozen(Reason.of(Rule.OWNER_SETS_REPLICAS, owner=str(group.owner.ref)))
