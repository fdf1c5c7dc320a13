"""Auto Scaling groups that have lost a tag by which Evenkeel finds and writes them.

For example, Terraform removes the tags that are not in its configuration. AWS lets Evenkeel write no group without the
pool's tag. The pool's stored state still has the group's key, and the bounds that the group had before Evenkeel.

    the group                                       it is
    has other bounds than before Evenkeel           lost: frozen in its pool, so that its max counts for PoolMaximum
    has its bounds from before Evenkeel again       in no pool any more, because nothing of Evenkeel's is left to undo
    was created after the pool's last check, or
      is written by another cluster                 in no pool
    does not exist any more                         not read, so the pool ends it as any absent member

The tags that a group loses may be those with PoolMinimum and PoolMaximum. Without them, the pool could grow to the sum
of the bounds from before Evenkeel.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId
from evenkeel.domain.model.origins import POOL_LABEL, POOL_MAX, POOL_MIN
from evenkeel.domain.model.owner_intent import bounds_before
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import PoolState


def is_lost(group: NodeGroup) -> bool:
    """Return True if the group is frozen because it has lost a tag."""
    return group.frozen_because is not None and group.frozen_because.rule is Rule.TAGS_LOST


def lacks_tags(group: NodeGroup, pool: str | None) -> bool:
    """Return True if AWS or the record excludes an Auto Scaling group. ``pool``: the pool's name; None: unknown."""
    return group.key.flavour == AUTO_SCALING and (pool is None or bool(group.identity.missing_tags))


def lost_from(group: NodeGroup, states: Mapping[PoolId, PoolState]) -> tuple[PoolId, NodeGroup] | None:
    """Return the pool of a group that lacks tags, and the group as it is planned there; None: the group is not lost.

    If no stored pool has the group, its own tag can still name its former bounds. Then its pool is named after it.
    """
    key = group.key
    known = [id for id, state in states.items() if str(key) in state.adopted]
    id = max(known, key=lambda id: (str(key) in _seen(states[id]), id), default=None)
    adopted = bounds_before(group, PoolState() if id is None else states[id], None)
    if group.frozen_because is not None and group.frozen_because.rule is Rule.WRITTEN_BY_OTHER_CLUSTER:
        return None  # its bounds are those of the other cluster
    if adopted is None or group.bounds is None or (id is not None and _is_created_again(group, states[id])):
        return None
    if group.bounds == adopted:
        return None
    id = id or PoolId(key.flavour, key.namespace, group.identity.cluster, key.name)
    return id, replace(group, frozen_because=_reason(group, id, adopted))


def without_left(state: PoolState, groups: Iterable[NodeGroup]) -> PoolState:
    """Return a pool's state without the adopted bounds of these groups, which lack tags and are not lost.

    Otherwise such a group would count as lost when its user changes its bounds later.
    """
    left = {str(group.key) for group in groups}.intersection(state.adopted)
    if not left:
        return state
    return replace(state, adopted={key: bounds for key, bounds in state.adopted.items() if key not in left})


def with_tagged_numbers(groups: Sequence[NodeGroup], state: PoolState) -> tuple[Sequence[NodeGroup], PoolState]:
    """Return the groups, and the pool's state with the numbers of its tags to store.

    A number that only lost groups have had stays PoolMinimum or PoolMaximum until their tags are set again.
    """
    seen = state.seen
    if groups[0].key.flavour != AUTO_SCALING or seen is None:
        return groups, state
    found = {
        POOL_MIN: next((one.annotations.pool_min for one in groups if one.annotations.pool_min is not None), None),
        POOL_MAX: next((one.annotations.pool_max for one in groups if one.annotations.pool_max is not None), None),
    }
    lost = any(map(is_lost, groups))
    kept = {tag: value for tag, value in seen.tagged.items() if lost and found[tag] is None}
    tagged = {tag: value for tag, value in found.items() if value is not None} | kept
    if kept:
        groups = [_with_numbers(group, kept) if is_lost(group) else group for group in groups]
    return groups, state if tagged == seen.tagged else replace(state, seen=replace(seen, tagged=tagged))


def _with_numbers(group: NodeGroup, numbers: Mapping[str, int]) -> NodeGroup:
    """Return a lost group with these numbers, and with their tags among those to set again."""
    own, why = group.annotations, group.frozen_because
    assert why is not None
    others = why.facts["tags"]
    assert isinstance(others, tuple)
    annotations = replace(
        own, pool_min=numbers.get(POOL_MIN, own.pool_min), pool_max=numbers.get(POOL_MAX, own.pool_max)
    )
    tags = (*others, *(f"{tag}={value}" for tag, value in numbers.items()))
    reason = Reason.of(why.rule, **{**why.facts, "tags": tags})
    return replace(group, annotations=annotations, frozen_because=reason)


def _seen(state: PoolState) -> Mapping[str, int]:
    return {} if state.seen is None else state.seen.requested


def _is_created_again(group: NodeGroup, state: PoolState) -> bool:
    created_at = group.identity.created_at
    return created_at is not None and state.seen is not None and created_at > state.seen.since


def _reason(group: NodeGroup, id: PoolId, adopted: Bounds) -> Reason:
    pool_tag = f"{POOL_LABEL}={group.identity.pool_label or id.name}"
    tags = [tag for tag in group.identity.missing_tags if tag != POOL_LABEL]
    tags += [] if group.identity.pool_label else [pool_tag]
    return Reason.of(Rule.TAGS_LOST, tags=tuple(tags), min=adopted.min, max=adopted.max)
