"""From a plan to patches in an order in which every moment between two of them is safe.

Bounds, replicas and our annotation go in one patch where they stand on one object. On OpenShift and under a
ClusterClass they stand on two; then the bounds are first widened to hold both the old and the new replicas, and
narrowed after the replicas were written: at every instant max >= requested and 0 <= min <= max.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from evenkeel.domain.model import Bounds
from evenkeel.domain.plan import GroupPlan


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One write to one object. None leaves that part as it is."""

    plan: GroupPlan
    bounds: Bounds | None = None
    requested: int | None = None
    leaves: bool = False  # take our annotations off, and bounds too where there were none before us

    @property
    def lowers_requested(self) -> bool:
        """Whether machines will go: those without a node are marked first."""
        return self.requested is not None and self.requested < self.plan.group.requested


def in_safe_order(changes: Iterable[GroupPlan]) -> list[GroupPlan]:
    """Fencing and shrinking first, growing after, so that the sum of the maxima never rises above old and new.

    Who gives replicas up in a move comes before all who take them on, whatever becomes of the maxima: stopped in
    between, a move may owe replicas, which the next plan places; it must never have ordered them twice.
    """

    def growth(plan: GroupPlan) -> tuple[bool, int, int, str]:
        group = plan.group
        old = group.bounds.max if group.bounds else 0
        new = plan.bounds.max if plan.bounds else old
        return (plan.moved >= 0, new - old, plan.requested - group.requested, str(group.key))

    return sorted(changes, key=growth)


def patches(plan: GroupPlan) -> list[Patch]:
    """The patches of one group, in order; empty where nothing changes."""
    group = plan.group
    if plan.leaves:
        return [Patch(plan=plan, bounds=plan.bounds, leaves=True)]
    bounds = plan.bounds if plan.bounds != group.bounds else None
    requested = plan.requested if plan.requested != group.requested else None
    if bounds is None and requested is None:
        return []
    if not group.two_objects or bounds is None or requested is None:
        return [Patch(plan=plan, bounds=bounds, requested=requested)]
    old = group.bounds or bounds
    wide = Bounds(
        min(old.min, bounds.min, requested, group.requested), max(old.max, bounds.max, requested, group.requested)
    )
    steps = [Patch(plan=plan, bounds=wide)] if wide != group.bounds else []
    steps.append(Patch(plan=plan, requested=requested))
    if wide != bounds:
        steps.append(Patch(plan=plan, bounds=bounds))
    return steps
