"""Dry run: Evenkeel plans and records its decisions, and writes nothing.

A restore writes even in dry run, because an operator requests it.
"""

from collections.abc import Sequence

from evenkeel.domain.model.groups import NodeGroup

DRY_RUN = "evenkeel.dev/dry-run"


def is_cluster_dry(of_record: bool | None, is_live: bool | None, default: bool, *, restoring: bool = False) -> bool:
    """Return True if a cluster is in dry run.

    Args:
        of_record: The setting of the cluster's record. It overrides the others. None: not set.
        is_live: True after the action ``live``, False after ``dry-run``; None: neither action was used.
        default: The stack's setting.
        restoring: The cluster is being restored, and the question is whether a run writes.
    """
    if restoring:
        return False
    if of_record is not None:
        return of_record
    return default if is_live is None else not is_live


def is_pool_dry(of_pool: bool | None, cluster: bool, *, restoring: bool = False) -> bool:
    """Return True if a pool is in dry run.

    Args:
        of_pool: The pool's own setting (``own_dry_run``). It overrides the cluster's. None: not set.
        cluster: True if the cluster is in dry run.
        restoring: The pool is being restored or opened, and the question is whether a run writes.
    """
    if restoring:
        return False
    return cluster if of_pool is None else of_pool


def own_dry_run(groups: Sequence[NodeGroup], of_record: bool | None) -> bool | None:
    """Return the own setting of a pool with these groups; None: not set.

    If the annotation of one group is true or unreadable, the setting is True.

    Args:
        groups: The pool's groups.
        of_record: The setting of the pool in the cluster's record. The annotation overrides it. None: not set.
    """
    if any(fault.field == DRY_RUN for group in groups for fault in group.unreadable.faults):
        return True
    annotated = {group.annotations.dry_run for group in groups}
    return of_record if annotated == {None} else True in annotated
