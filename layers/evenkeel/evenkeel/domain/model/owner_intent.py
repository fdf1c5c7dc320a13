"""The desired bounds of an object to which Evenkeel writes its own bounds.

The desired bounds are the values that the object had before Evenkeel's first write. If another writer sets new values
later, these values become the desired bounds, which Evenkeel reports and follows. But if another writer restores the
old desired bounds, it reverts Evenkeel's write.
"""

from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.states import PoolState


def desired_bounds_of(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the desired bounds of the group's owner; None: the group has no owner, or its bounds are unknown."""
    if group.owner.numbers is None:
        return None
    for part in () if group.owner.numbers.takes_ours else state.parts.values():
        wanted: Bounds | None = part.wanted(group.owner.numbers.bounds)
        if wanted is not None:
            return wanted
    return _before(group, state) if _is_ours(group, state) else group.owner.numbers.bounds


def is_new_intent(group: NodeGroup, state: PoolState) -> bool:
    """Return True if another writer has set new bounds at an owner, neither Evenkeel's nor the desired bounds."""
    if group.owner.numbers is None or not _is_written(group, state) or _is_ours(group, state):
        return False
    return group.owner.numbers.bounds != _before(group, state)


def is_put_back(group: NodeGroup, state: PoolState) -> bool:
    """Return True if another writer has replaced Evenkeel's bounds by the desired bounds."""
    if group.owner.numbers is None or not _is_written(group, state) or _is_ours(group, state):
        return False
    known = state.desired_bounds.get(group.owner.numbers.ref.id)
    return group.owner.numbers.bounds == _before(group, state) and (known is None or bool(known.ours))


def _is_written(group: NodeGroup, state: PoolState) -> bool:
    """Return True if Evenkeel is known to have written to the owner."""
    owner = group.owner.numbers
    if owner is None or not owner.takes_ours:
        return False
    return owner.ref.id in state.desired_bounds or (
        group.ours.published is not None and group.ours.published.bounds is not None
    )


def _is_ours(group: NodeGroup, state: PoolState) -> bool:
    """Return True if Evenkeel wrote the owner's present bounds, as the annotation or the state shows."""
    owner = group.owner.numbers
    if owner is None or not owner.takes_ours:
        return False
    known = state.desired_bounds.get(owner.ref.id)
    published = group.ours.published.bounds if group.ours.published is not None else None
    return owner.bounds == published or (known is not None and owner.bounds in known.ours)


def _before(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the desired bounds: those before Evenkeel's first write, or those that another writer has set since.

    If the state has no desired bounds for the object's uid, return the adopted bounds from the annotation. If there is
    no annotation, return the adopted bounds from the state, or else the present bounds.
    """
    if group.owner.numbers is not None and (known := state.desired_bounds.get(group.owner.numbers.ref.id)) is not None:
        return known.bounds
    if group.ours.has_adopted:
        return group.ours.adopted
    return state.adopted.get(str(group.key), group.owner.numbers.bounds if group.owner.numbers is not None else None)
