"""What people want of an object that Evenkeel writes its own bounds to.

Once we have written there, the object holds our numbers. What it held before counts, and a later value that is not ours
is a new wish: told and obeyed. Only who puts back what was there before fights with us.
"""

from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.relief import Relief
from evenkeel.domain.model.states import PoolState


def desired_bounds_of(group: NodeGroup, state: PoolState) -> Bounds | None:
    """What the people of the group's owner want; None where it has none, or nobody wants anything."""
    if group.owner is None:
        return None
    if not group.owner.takes_ours and state.relief is not None:
        return _without_relief(group.owner.bounds, state.relief)
    return _before(group, state) if _stands_ours(group, state) else group.owner.bounds


def _without_relief(bounds: Bounds, relief: Relief) -> Bounds:
    """What a Worker would have, had we not raised its Shoot's maximum. Its minimum is its people's in any case."""
    return Bounds(bounds.min, max(bounds.min, relief.wanted(bounds.max)))


def is_new_intent(group: NodeGroup, state: PoolState) -> bool:
    """Whether somebody has set other numbers at the owner since it was remembered what is wanted there."""
    if group.owner is None or not _is_written(group, state) or _stands_ours(group, state):
        return False
    return group.owner.bounds != _before(group, state)


def is_put_back(group: NodeGroup, state: PoolState) -> bool:
    """Whether somebody has put what is wanted back over what we wrote."""
    if group.owner is None or not _is_written(group, state) or _stands_ours(group, state):
        return False
    known = state.desired_bounds.get(group.owner.ref.id)
    return group.owner.bounds == _before(group, state) and (known is None or bool(known.ours))


def _is_written(group: NodeGroup, state: PoolState) -> bool:
    """Whether we have ever written to the owner, as far as anybody knows."""
    owner = group.owner
    if owner is None or not owner.takes_ours:
        return False
    return owner.ref.id in state.desired_bounds or (group.published is not None and group.published.bounds is not None)


def _stands_ours(group: NodeGroup, state: PoolState) -> bool:
    """Whether what stands at the owner was written by us: it says so itself, or it is remembered."""
    owner = group.owner
    if owner is None or not owner.takes_ours:
        return False
    known = state.desired_bounds.get(owner.ref.id)
    said = group.published.bounds if group.published is not None else None
    return owner.bounds == said or (known is not None and owner.bounds in known.ours)


def _before(group: NodeGroup, state: PoolState) -> Bounds | None:
    """What was wanted when we wrote there first, or last learnt of another wish.

    Not remembered by the object's uid: what the annotation says, or a release that remembered groups.
    """
    if group.owner is not None and (known := state.desired_bounds.get(group.owner.ref.id)) is not None:
        return known.bounds
    if group.has_adopted:
        return group.adopted
    return state.adopted.get(str(group.key), group.owner.bounds if group.owner is not None else None)
