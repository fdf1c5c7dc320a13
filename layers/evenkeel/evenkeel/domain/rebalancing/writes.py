"""From a plan to patches, in an order that is safe at every moment between two of them.

Bounds, replicas and Evenkeel's annotation on one object go in one patch. On OpenShift and under a ClusterClass they are
on two objects. Then the bounds are first widened for both the old and the new replicas, and narrowed after the replicas
were written. So at every instant max >= requested and 0 <= min <= max.

HyperShift's operator lowers replicas to a NodePool's max, so there one patch of the NodePool makes a release. A move
keeps two patches: its id has to be written with the replicas, or an interrupted run would give them up twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.plans import GroupPlan


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One write to one object. None leaves that part as it is; without either it writes an autoscaler's options.

    With both, if they are on two objects, the bounds are written, and the owner lowers the replicas.
    """

    plan: GroupPlan
    bounds: Bounds | None = None
    requested: int | None = None
    leaves: bool = False  # remove Evenkeel's annotations, and bounds too if there were none before
    pins: bool = False  # the bounds are written so that their owner holds replicas at max

    @property
    def lowers_requested(self) -> bool:
        """Return True if machines will go: those without a node are marked first."""
        return self.requested is not None and self.requested < self.plan.group.requested


def in_safe_order(changes: Iterable[GroupPlan]) -> list[GroupPlan]:
    """Return fences and shrinks first, then growth, so that the sum of the maxima never rises above old and new.

    In a move, groups that give replicas up come before those that take them on. An interrupted move may owe replicas,
    which the next plan places; it must not have ordered them twice.
    """

    def order(plan: GroupPlan) -> tuple[bool, int, int, str]:
        group = plan.group
        return (plan.journal_delta >= 0, _added_room(plan), plan.requested - group.requested, str(group.key))

    return sorted(changes, key=order)


def _added_room(plan: GroupPlan) -> int:
    old = plan.group.bounds.max if plan.group.bounds else 0
    return plan.bounds.max - old if plan.bounds else 0


def grows(plan: GroupPlan) -> bool:
    """Return True if a group's room or replicas grow: it is written after all of its pool that shrink."""
    more = widens(plan) or plan.requested > plan.group.requested
    return not plan.leaves and plan.journal_delta >= 0 and more


def widens(plan: GroupPlan) -> bool:
    """Return True if the max of the group rises: it is written after all of its pool whose max falls."""
    return _added_room(plan) > 0


def fence_first(plan: GroupPlan) -> Patch | None:
    """Return the fence of a group that gives up replicas, for which machines have to be marked before; None: none.

    Bounds need no marks. With max at the present replicas, no autoscaler orders there while the marks are set.
    """
    group = plan.group
    gives_up = plan.state is State.FENCED and plan.requested < group.requested
    if not gives_up or plan.bounds is None or group.owner.bounds_held:
        return None
    if group.ours.pinned or _owner_lowers(plan):
        return None  # that is a fence already; or one patch is both
    bounds = Bounds(min(plan.bounds.min, group.requested), max(group.requested, plan.bounds.max))
    wide = group.bounds is None or group.bounds.max > bounds.max or group.bounds.min > bounds.min
    return Patch(plan=plan, bounds=bounds) if wide else None


def patches(plan: GroupPlan) -> list[Patch]:
    """Return the patches of one group, in order.

    On two objects, Cluster Autoscaler reads the bounds that the owner's controller has copied to the scalable. The list
    ends before replicas that the copy does not allow yet, and the next check continues.
    """
    group = plan.group
    if plan.leaves:
        return [Patch(plan=plan, bounds=plan.bounds, leaves=True)]
    bounds = plan.bounds if plan.publishes else None
    requested = plan.requested if plan.requested != group.requested else None
    options = [Patch(plan=plan)] if plan.changes_options else []
    if bounds is None and requested is None:
        return options
    if not group.owner.two_objects:
        return [Patch(plan=plan, bounds=bounds, requested=requested)]
    if requested is None or _owner_lowers(plan):
        first = Patch(plan=plan, bounds=bounds, requested=requested, pins=plan.pins)
        return [first] if bounds is None else [first, *options]
    if group.owner.bounds_held:
        return [Patch(plan=plan, requested=requested)]
    old, new = group.bounds or plan.bounds, plan.bounds or group.bounds
    steps = []
    wide = None
    if old is not None and new is not None:
        numbers = (requested, group.requested)
        wide = Bounds(min(old.min, new.min, *numbers), max(old.max, new.max, *numbers))
        if wide != group.bounds or group.ours.pinned:  # pinned, replicas that are written would be put back
            steps.append(Patch(plan=plan, bounds=wide))
    if group.owner.copied is not None and not group.owner.copied.min <= requested <= group.owner.copied.max:
        return steps
    steps.append(Patch(plan=plan, requested=requested))
    if wide is not None and (wide != new or plan.pins):
        steps.append(Patch(plan=plan, bounds=new, pins=plan.pins))
    return steps


def _owner_lowers(plan: GroupPlan) -> bool:
    """Return True if the owner lowers the replicas once it has the bounds."""
    lowers = plan.group.owner.lowers_replicas and plan.lowers_requested and not plan.journal_delta
    return lowers and plan.bounds is not None and plan.bounds.max == plan.requested


def bounds_of(plan: GroupPlan) -> list[Bounds]:
    """Return all bounds that the owner may hold while the group is written, and after that."""
    fence = fence_first(plan)
    return [patch.bounds for patch in (*([fence] if fence else []), *patches(plan)) if patch.bounds is not None]


def is_complete(plan: GroupPlan) -> bool:
    """Return True if ``patches`` reaches the plan; else an owner's controller has to copy bounds first."""
    steps = patches(plan)
    return plan.requested == plan.group.requested or plan.leaves or any(patch.requested is not None for patch in steps)
