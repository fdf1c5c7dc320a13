"""Writing the numbers that an operator has agreed to (``validate`` with ``apply``)."""

from collections.abc import Callable, Sequence
from typing import Any

from evenkeel.application.errors import RejectedError
from evenkeel.application.ports import Cluster
from evenkeel.config import FixEntry
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.plans import Plan


def mend(
    fixes: Sequence[FixEntry], planned: Plan, api: Cluster, late: Callable[[], bool], *, dry_run: bool
) -> tuple[dict[str, list[dict[str, Any]]], tuple[FixEntry, ...]]:
    """What became of each change, by pool, and the changes that there was no time for.

    A change is written to an object that is as it was when the operator saw it, or not at all. Written twice is written
    once: after a crash, what stands there already is found done.

    Raises ConflictError, ClusterUnavailableError, AccessError: then everything is tried again.
    """
    groups = {str(plan.group.key): plan.group for pool in planned.pools for plan in pool.groups}
    told: dict[str, list[dict[str, Any]]] = {}
    left: list[FixEntry] = []
    for entry in fixes:
        group = groups.get(entry.group)
        why_not = "" if dry_run else _why_not(entry, group)
        if dry_run:
            outcome = "planned"
        elif why_not:
            outcome = why_not
        elif late():
            left.append(entry)
            continue
        else:
            try:
                api.write_pool_maximum(GroupKey.read(entry.group), entry.after)
                outcome = "written"
            except RejectedError as error:
                outcome = f"rejected: {error}"
        told.setdefault(entry.pool, []).append(
            {"object": entry.group or "record", "from": entry.before, "to": entry.after, "outcome": outcome}
        )
    return told, tuple(left)


def written(told: dict[str, list[dict[str, Any]]]) -> int:
    """How many patches that were."""
    return sum(change["outcome"] == "written" for changes in told.values() for change in changes)


def _why_not(entry: FixEntry, group: NodeGroup | None) -> str:
    if not entry.group:  # agreed to in dry run, when records are not written either
        return "not written: it is a number of the record: validate again"
    if group is None:
        return "not written: it is no node group any more"
    if group.pool_max == entry.after:
        return "left alone: it is as it should be"
    if group.pool_max != entry.before or group.faults:
        return f"not written: it has changed since, to {group.pool_max}: validate again"
    if group.frozen_because is not None:
        return f"not written: {group.frozen_because}"
    return ""
