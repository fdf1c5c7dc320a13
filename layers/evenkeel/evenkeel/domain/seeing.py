"""What one look at a group says about its health: the same failures that events report, and those that none reports.

A machine's own status tells a failure; a node that does not come in time is one too, counted from our own first sight,
because machine-controller-manager leaves a status alone for 30 minutes that says the same. A new running machine is a
success. Nothing is judged while a group is frozen: in a rolling update machines wait by design.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.backoff import GroupState, observe_running, record_failure, state_at
from evenkeel.domain.failures import FailureClass, classify
from evenkeel.domain.model import BackoffPolicy, NodeGroup, State


def see(
    group: NodeGroup, state: GroupState | None, now: datetime, backoff: BackoffPolicy, provision_timeout: timedelta
) -> GroupState | None:
    """The state after this look; None, or the very same, where it says nothing new."""
    if group.frozen_because is not None or (state is None and not group.waiting):
        return state
    before = after = state or GroupState()
    if state_at(before, now, None, backoff) is not State.HEALTHY:
        after = observe_running(after, group.running, now)
    after = _time_waited(group, after, now, backoff, provision_timeout)
    for machine in group.machines or ():
        failure = machine.failure
        if failure is None or machine.has_node or machine.deleting:
            continue
        # A clock that runs ahead must not fence the group for longer than it may.
        at = min(failure.at or machine.created_at, now)
        if at >= now - backoff.forget_after:
            kind = classify(failure.code, failure.message)
            after = record_failure(after, at, kind, f"{failure.code}: {failure.message}", backoff)
    return state if after == before else after


def _time_waited(
    group: NodeGroup, state: GroupState, now: datetime, backoff: BackoffPolicy, provision_timeout: timedelta
) -> GroupState:
    """The state with its clock of waiting replicas: started at first sight, started anew by every node that comes."""
    if not group.waiting:
        return state if state.waiting_since is None else replace(state, waiting_since=None, waiting_running=None)
    if state.waiting_since is None or state.waiting_running is None or group.running > state.waiting_running:
        return replace(state, waiting_since=now, waiting_running=group.running)
    if now - state.waiting_since < provision_timeout:
        return state
    minutes = int(provision_timeout.total_seconds() // 60)
    late = record_failure(
        state, now, FailureClass.TIMEOUT, f"no node within {minutes} min for {group.waiting} replicas", backoff
    )
    return replace(late, waiting_since=now, waiting_running=group.running)
