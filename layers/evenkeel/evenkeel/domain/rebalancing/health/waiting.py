"""The clock of a group's replicas that wait for their node. At the provision timeout, their wait is a failure.

The clock begins when the oldest of their machines was created. For replicas without a machine, it begins at the first
check that misses the nodes. It begins anew whenever a node registers, and when the timeout is reached. It stops while
the group is frozen, or while the cloud launches nothing in it, because the zone is not the cause of such a wait.

    machine is created                 provision timeout
    ---*------------*---------------------*--------------------*--------> time
                    first check           failure: fenced      ended unseen: a failure only if
                                                               another group of the pool is healthy

If no check has seen a clock run, its end says little about the zone. After Evenkeel was away, or after etcd was
restored, the machines of all zones are old at once. So such a clock fences no whole pool: without a healthy group in
the pool, it begins anew at this check.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.states import ArrivalHistory

# The longest time between two checks, by ``scan_interval``. An older clock may have run without a check.
_LONGEST_PAUSE = timedelta(hours=1)
# A check is at most this late, if it is not missing.
_SLACK = timedelta(minutes=5)


def ended_unseen(group: NodeGroup, arrivals: ArrivalHistory, now: datetime, provision_timeout: timedelta) -> bool:
    """Return True if the clock has ended, and an hour may have passed without a check, or this is the first check."""
    if not _runs(group):
        return False
    waited = now - _began(group, arrivals, now)
    is_seen = arrivals.waiting_since is not None and waited < max(_LONGEST_PAUSE, provision_timeout + _SLACK)
    return waited >= provision_timeout and not is_seen


class Clock(NamedTuple):
    """The clock after a check, as the fields ``waiting_*`` of the group's history store it."""

    since: datetime | None
    running: int | None


def time_waited(
    group: NodeGroup,
    arrivals: ArrivalHistory,
    now: datetime,
    provision_timeout: timedelta,
    *,
    others_deliver: bool,
) -> tuple[Clock, bool]:
    """Return the clock, and True if the wait is a failure of the group.

    A stopped clock begins anew, and not at a machine's creation. ``others_deliver``: another group of the pool is
    healthy. It matters only for a clock whose end no check has seen.
    """
    if not _runs(group):
        return Clock(None, arrivals.waiting_running if group.waiting else None), False
    began = _began(group, arrivals, now)
    has_ended = now - began >= provision_timeout
    if not has_ended and began == arrivals.waiting_since:
        return Clock(began, arrivals.waiting_running), False
    is_failure = has_ended and (not ended_unseen(group, arrivals, now, provision_timeout) or others_deliver)
    return Clock(now if has_ended else began, group.running), is_failure


def late(group: NodeGroup, now: datetime, provision_timeout: timedelta) -> list[Machine]:
    """Return the machines of the group that have waited for their node for a provision timeout."""
    return [machine for machine in awaited(group) if now - machine.awaited_from(now) >= provision_timeout]


def late_failure(group: NodeGroup, provision_timeout: timedelta) -> tuple[FailureClass, str]:
    """Return the class and the message of the failure of replicas that have waited too long.

    If a machine reports a quota or configuration failure, class and message are those of the report.
    """
    minutes, seconds = divmod(int(provision_timeout.total_seconds()), 60)
    within = f"{minutes} min" + (f" {seconds} s" if seconds else "")
    kind, message = FailureClass.TIMEOUT, f"no node within {within} for {group.waiting} of its replicas"
    if group.status.nodeless:
        message += f", though instance {min(group.status.nodeless)} is in service"
    for machine in group.refused_machines:
        failure = machine.failure
        if failure is not None and not machine.preserved and not class_of(failure).moves_elsewhere:
            kind, message = class_of(failure), failure.text
    return kind, message


def _runs(group: NodeGroup) -> bool:
    return group.waiting > 0 and group.frozen_because is None and group.status.launches_stopped is None


def _began(group: NodeGroup, arrivals: ArrivalHistory, now: datetime) -> datetime:
    """Return when the clock began; now, if it begins anew at this check."""
    since, running = arrivals.waiting_since, arrivals.waiting_running
    if since is not None:
        return now if running is None or group.running > running else since
    if running is not None:  # it was stopped
        return now
    return min([machine.awaited_from(now) for machine in awaited(group)], default=now)


def awaited(group: NodeGroup) -> list[Machine]:
    """Return the machines without those that have or had a node, or get none: another machine replaces them."""
    return [
        machine
        for machine in group.machines or ()
        if not (machine.has_node or machine.had_node)
        and not (machine.deleting or machine.preserved or machine.failed_for_good)
    ]
