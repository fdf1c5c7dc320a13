"""Tells a process that Evenkeel has suspended for a write from one that another writer has suspended. Pure.

AWS shows when a process was suspended, and not by whom. So a process that was suspended before Evenkeel's write began,
or long after, is another writer's. Evenkeel does not resume it.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.domain.rebalancing.annotations import read_published, suspends_since

TERMINATE = "Terminate"
# By then, a run has ended an unfinished write. Otherwise it may not resume the process.
WRITE_ENDS_WITHIN = timedelta(minutes=10)
_CLOCKS_DIFFER = timedelta(seconds=10)
_AT = re.compile(r"\bat (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$")  # "User suspended at 2026-11-28T12:00:00Z"


def suspended(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the reason of each suspended process of a group, by process."""
    processes = described.get("SuspendedProcesses") or ()
    return {str(process.get("ProcessName")): str(process.get("SuspensionReason") or "") for process in processes}


def is_suspended(described: Mapping[str, Any], process: str) -> bool:
    """Return True if the process of the group is suspended."""
    return process in suspended(described)


def suspended_at(described: Mapping[str, Any]) -> datetime | None:
    """Return when Terminate was suspended; None: it is not suspended, or AWS does not show the time."""
    found = _AT.search(suspended(described).get(TERMINATE, ""))
    try:
        return None if found is None else datetime.fromisoformat(found[1])
    except ValueError:
        return None


def is_suspended_by_others(described: Mapping[str, Any], decision: str) -> bool:
    """Return True if another writer than the unfinished write of this decision has suspended Terminate."""
    at, since, published = suspended_at(described), suspends_since(decision), read_published(decision)
    if at is None or since is None or published is None:
        return False
    return not since - _CLOCKS_DIFFER <= at <= published.at + WRITE_ENDS_WITHIN
