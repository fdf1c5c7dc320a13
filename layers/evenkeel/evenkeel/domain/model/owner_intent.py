"""Desired bounds of an object that Evenkeel writes its bounds to.

The values from before Evenkeel's first write are the desired bounds. A later value that Evenkeel did not write is new
desired bounds: Evenkeel reports and follows it. Only a writer that restores the old desired bounds reverts Evenkeel.
"""

from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.relief import Relief
from evenkeel.domain.model.states import PoolState


def desired_bounds_of(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the desired bounds of the group's owner; None: there is no owner, or it has none."""
    if group.owner.numbers is None:
        return None
    if not group.owner.numbers.takes_ours and state.relief is not None:
        return _without_relief(group.owner.numbers.bounds, state.relief)
    return _before(group, state) if _is_ours(group, state) else group.owner.numbers.bounds


def _without_relief(bounds: Bounds, relief: Relief) -> Bounds:
    """Return the bounds that a Worker would have without relief. Relief does not change its minimum."""
    return Bounds(bounds.min, max(bounds.min, relief.wanted(bounds.max)))


def is_new_intent(group: NodeGroup, state: PoolState) -> bool:
    """Return True if the owner has new desired bounds, other than the stored ones."""
    if group.owner.numbers is None or not _is_written(group, state) or _is_ours(group, state):
        return False
    return group.owner.numbers.bounds != _before(group, state)


def is_put_back(group: NodeGroup, state: PoolState) -> bool:
    """Return True if another writer has reverted Evenkeel's bounds to the desired ones."""
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
    """Return the desired bounds at the first write, or at the last new intent.

    Without stored ones for the object's uid, these are the annotation's, else the adopted ones.
    """
    if group.owner.numbers is not None and (known := state.desired_bounds.get(group.owner.numbers.ref.id)) is not None:
        return known.bounds
    if group.ours.has_adopted:
        return group.ours.adopted
    return state.adopted.get(str(group.key), group.owner.numbers.bounds if group.owner.numbers is not None else None)
