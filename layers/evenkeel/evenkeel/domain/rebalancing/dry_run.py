"""Dry run: Evenkeel plans and records its decisions, and writes nothing.

A restore writes even in dry run, because an operator requests it.
"""


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
        of_pool: The pool's own setting. It overrides the cluster's. None: not set.
        cluster: True if the cluster is in dry run.
        restoring: The pool is being restored or opened, and the question is whether a run writes.
    """
    if restoring:
        return False
    return cluster if of_pool is None else of_pool
