"""The patches of a plan, in an order that is safe at every moment between two patches.

If bounds, replicas and Evenkeel's annotation are on one object, one patch writes them all. On OpenShift and under a
ClusterClass, bounds and replicas are on two objects. Then Evenkeel first widens the bounds so that they allow both the
old and the new replicas. Next it writes the replicas, and finally it narrows the bounds. So at every instant max >=
requested and 0 <= min <= max.

HyperShift's operator lowers replicas to a NodePool's max, so a release there needs only one patch, of the NodePool. A
move still needs two patches, because its id must be written with the replicas. Otherwise an interrupted move would
lower the replicas twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from evenkeel.domain.model.flavours import PLACEHOLDER, WRITTEN_IN_STEPS
from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.plans import GroupPlan


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One write to one object. Bounds or replicas that are None stay unchanged.

    If both are None, the patch writes an autoscaler's options. If both are set and are on two objects, the patch writes
    only the bounds, and their owner lowers the replicas.
    """

    plan: GroupPlan
    bounds: Bounds | None = None
    requested: int | None = None
    # True: remove Evenkeel's annotations, and also the bounds if the group had none before Evenkeel.
    leaves: bool = False
    pins: bool = False  # True: write the bounds so that their owner keeps replicas at max

    @property
    def lowers_requested(self) -> bool:
        """Return True if machines will be deleted.

        Delete marks are set before the patch, on machines without a node first.
        """
        return self.requested is not None and self.requested < self.plan.group.requested


class Stage(IntEnum):
    """The stages in which the groups of a pool are written. A stage that grows groups waits for all earlier stages.

    So the sum of the maxima never exceeds the larger of its values before and after the plan. In a move, groups that
    lose replicas are written before groups that gain them. An interrupted move may leave replicas unplaced, and the
    next plan places them. But it never orders replicas twice.
    """

    NARROW = 1  # replicas do not change, and max does not rise; or Evenkeel restores the group
    REMOVE = 2  # replicas fall, and max does not rise, except in a move
    GROW = 3  # replicas rise, and max does not
    WIDEN = 4  # max rises; this stage is last, because another group's max may fall in the stage GROW

    @property
    def grows(self) -> bool:
        """Return True for a stage that waits for all earlier stages."""
        return self >= Stage.GROW


def stage_of(plan: GroupPlan) -> Stage:
    """Return the stage in which a group is written."""
    shrinks = plan.leaves or plan.journal_delta < 0
    if not shrinks and _added_room(plan) > 0:
        return Stage.WIDEN
    if not shrinks and plan.requested > plan.group.requested:
        return Stage.GROW
    return Stage.REMOVE if plan.lowers_requested else Stage.NARROW


def in_safe_order(changes: Iterable[GroupPlan]) -> list[GroupPlan]:
    """Return the changes in the order of their stages. Within a stage, changes that add least are first."""

    def order(plan: GroupPlan) -> tuple[Stage, bool, int, int, str]:
        group = plan.group
        added = plan.requested - group.requested
        return stage_of(plan), plan.journal_delta >= 0, _added_room(plan), added, str(group.key)

    return sorted(changes, key=order)


def _added_room(plan: GroupPlan) -> int:
    old = plan.group.bounds.max if plan.group.bounds else 0
    return plan.bounds.max - old if plan.bounds else 0


def fence_first(plan: GroupPlan) -> Patch | None:
    """Return the patch that fences a group before marks are set and replicas lowered; None: no such patch is needed.

    Only the patch of replicas has to wait until the delete marks are set. While max equals the present replicas, no
    autoscaler orders machines in the group.
    """
    group = plan.group
    gives_up = plan.state is State.FENCED and plan.requested < group.requested
    if not gives_up or plan.bounds is None or group.owner.bounds_held:
        return None
    if group.ours.pinned or _owner_lowers(plan):
        return None  # pinned bounds are a fence already; if the owner lowers replicas, one patch is enough
    if group.key.flavour in WRITTEN_IN_STEPS and not _ends_instances(plan):
        return None  # no mark delays the patch of replicas, whose first request is the fence
    bounds = Bounds(min(plan.bounds.min, group.requested), max(group.requested, plan.bounds.max))
    wide = group.bounds is None or group.bounds.max > bounds.max or group.bounds.min > bounds.min
    return Patch(plan=plan, bounds=bounds) if wide else None


def _ends_instances(plan: GroupPlan) -> bool:
    """Return True if the replicas fall below the machines that exist. Placeholders stand for missing ones."""
    machines = plan.group.machines
    if machines is None or plan.removal.machines:
        return True
    return plan.requested < sum(not one.deleting and not one.name.startswith(PLACEHOLDER) for one in machines)


def patches(plan: GroupPlan) -> list[Patch]:
    """Return the patches of one group, in order.

    If bounds and replicas are on two objects, Cluster Autoscaler reads the bounds that the owner's controller has
    copied to the scalable. If the copied bounds do not allow the new replicas yet, the list ends before the patch of
    replicas. The next check then continues.
    """
    group = plan.group
    if plan.leaves:
        return [Patch(plan=plan, bounds=plan.bounds, leaves=True)]
    bounds = plan.bounds if plan.publishes else None
    requested = plan.requested if plan.requested != group.requested else None
    if bounds is None and requested is None:
        return []
    if not group.owner.two_objects:
        return [Patch(plan=plan, bounds=bounds, requested=requested)]
    if requested is None or _owner_lowers(plan):
        return [Patch(plan=plan, bounds=bounds, requested=requested, pins=plan.pins)]
    if group.owner.bounds_held:
        return [Patch(plan=plan, requested=requested)]
    old, new = group.bounds or plan.bounds, plan.bounds or group.bounds
    steps = []
    wide = None
    if old is not None and new is not None:
        numbers = (requested, group.requested)
        wide = Bounds(min(old.min, new.min, *numbers), max(old.max, new.max, *numbers))
        if wide != group.bounds or group.ours.pinned:
            # While bounds are pinned, their owner would revert the replicas that Evenkeel writes.
            steps.append(Patch(plan=plan, bounds=wide))
    if group.owner.copied is not None and not group.owner.copied.min <= requested <= group.owner.copied.max:
        return steps
    steps.append(Patch(plan=plan, requested=requested))
    if wide is not None and (wide != new or plan.pins):
        steps.append(Patch(plan=plan, bounds=new, pins=plan.pins))
    return steps


def _owner_lowers(plan: GroupPlan) -> bool:
    """Return True if the owner itself lowers the replicas once the bounds are written."""
    lowers = plan.group.owner.lowers_replicas and plan.lowers_requested and not plan.journal_delta
    return lowers and plan.bounds is not None and plan.bounds.max == plan.requested


def bounds_of(plan: GroupPlan) -> list[Bounds]:
    """Return all bounds that the owner may have while the group is being written, and afterwards."""
    fence = fence_first(plan)
    return [patch.bounds for patch in (*([fence] if fence else []), *patches(plan)) if patch.bounds is not None]


def is_complete(plan: GroupPlan) -> bool:
    """Return True if ``patches`` completes the plan; False: an owner's controller has to copy bounds first."""
    steps = patches(plan)
    return plan.requested == plan.group.requested or plan.leaves or any(patch.requested is not None for patch in steps)
