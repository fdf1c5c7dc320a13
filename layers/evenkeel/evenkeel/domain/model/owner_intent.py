"""The desired bounds of an object to which Evenkeel writes its own bounds.

The desired bounds are the values that the object had before Evenkeel's first write. If another writer sets new values
later, these values become the desired bounds, which Evenkeel reports and follows. But if another writer restores the
old desired bounds, it reverts Evenkeel's write.
"""

from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.overwritten import Found, found
from evenkeel.domain.model.states import PoolState


def desired_bounds_of(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the desired bounds of the group's owner; None: the group has no owner, or its bounds are unknown."""
    if group.owner.numbers is None:
        return None
    for part in () if group.owner.numbers.takes_ours else state.parts.values():
        wanted: Bounds | None = part.wanted(group.owner.numbers.bounds)
        if wanted is not None:
            return wanted
    return _before(group, state) if _found(group, state) is Found.OURS else group.owner.numbers.bounds


def is_new_intent(group: NodeGroup, state: PoolState) -> bool:
    """Return True if another writer has set new bounds at an owner, neither Evenkeel's nor the desired bounds."""
    return _found(group, state) is Found.NEW


def is_put_back(group: NodeGroup, state: PoolState) -> bool:
    """Return True if another writer has replaced Evenkeel's bounds by the desired bounds."""
    if group.owner.numbers is None or _found(group, state) is not Found.THEIRS:
        return False
    known = state.desired_bounds.get(group.owner.numbers.ref.id)
    return known is None or bool(known.ours)


def _found(group: NodeGroup, state: PoolState) -> Found | None:
    """Return whose bounds the owner has; None: Evenkeel is not known to have written to the owner."""
    owner = group.owner.numbers
    if owner is None or not owner.takes_ours:
        return None
    known = state.desired_bounds.get(owner.ref.id)
    published = None if group.ours.published is None else group.ours.published.bounds
    if known is None and published is None:
        return None
    return found(owner.bounds, _before(group, state), (published, *(() if known is None else known.ours)))


def _before(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the desired bounds: those before Evenkeel's first write, or those that another writer has set since."""
    owner = group.owner.numbers
    if owner is not None and (known := state.desired_bounds.get(owner.ref.id)) is not None:
        return known.bounds
    return bounds_before(group, state, None if owner is None else owner.bounds)


def bounds_before(group: NodeGroup, state: PoolState, present: Bounds | None) -> Bounds | None:
    """Return the bounds before Evenkeel's first write: from the state, else the annotation, else the present ones."""
    if str(group.key) in state.adopted:
        return state.adopted[str(group.key)]
    return group.ours.adopted if group.ours.has_adopted else present
