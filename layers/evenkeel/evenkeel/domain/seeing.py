"""What one look at a group says about its health: the same failures that events report, and those that none reports.

A machine's own status tells a failure; a node that does not come in time is one too, counted from our own first sight,
because machine-controller-manager leaves a status alone for 30 minutes that says the same. A new running machine is a
success. Nothing is judged while a group is frozen: in a rolling update machines wait by design.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.backoff import GroupState, observe_running, record_failure, state_at
from evenkeel.domain.failures import FailureClass, classify
from evenkeel.domain.model import BackoffPolicy, NodeGroup, State

# Three times within an hour is no edit but an owner: a GitOps tool, a controller.
CONTEST_REVERTS = 3
CONTEST_WITHIN = timedelta(hours=1)


def see(
    group: NodeGroup,
    state: GroupState | None,
    now: datetime,
    backoff: BackoffPolicy,
    provision_timeout: timedelta,
    of_sets: Sequence[GroupState] = (),
) -> GroupState | None:
    """The state after this look; None, or the very same, where it says nothing new.

    ``of_sets`` is what events told of MachineSets that are part of the group: their failures are the group's.
    """
    put_back = group.publication is not None and group.bounds not in (None, group.publication.bounds)
    news = group.waiting or put_back or group.autoscaler_failure is not None or of_sets
    if group.frozen_because is not None:
        # Nor does its clock go on: what waits when a rolling update ends has not been waited for all that time.
        return state if state is None or state.waiting_since is None else _not_waiting(state)
    if state is None and not news:
        return None
    before = after = state or GroupState()
    if put_back:
        after = _put_back(group, after, now)
    if state_at(before, now, None, backoff) is not State.HEALTHY:
        after = observe_running(after, group.running, now)
    after = _time_waited(group, after, now, backoff, provision_timeout)
    failures = [
        (machine.failure, machine.failure.at or machine.created_at)
        for machine in group.machines or ()
        if machine.failure is not None and not machine.has_node and not machine.deleting
    ]
    if group.autoscaler_failure is not None and group.autoscaler_failure.at is not None:
        failures.append((group.autoscaler_failure, group.autoscaler_failure.at))
    for failure, said_at in failures:
        # A clock that runs ahead must not fence the group for longer than it may.
        at = min(said_at, now)
        if at >= now - backoff.forget_after:
            kind = classify(failure.code, failure.message)
            after = record_failure(after, at, kind, f"{failure.code}: {failure.message}", backoff)
    for of_set in of_sets:
        for at in of_set.reports:
            if at >= now - backoff.forget_after:
                after = record_failure(after, at, of_set.failure_class, of_set.message, backoff)
    return state if after == before else after


def _put_back(group: NodeGroup, state: GroupState, now: datetime) -> GroupState:
    """The state after somebody wrote other bounds over ours. Each publication is counted once, however often seen."""
    publication = group.publication
    if publication is None or publication.at in state.reverts or state.contested_since is not None:
        return state
    reverts = (*(at for at in state.reverts if now - at < CONTEST_WITHIN), publication.at)
    contested = len(reverts) >= CONTEST_REVERTS and now - reverts[0] < CONTEST_WITHIN
    return replace(
        state,
        reverts=reverts,
        contested_since=now if contested else None,
        contested_by=group.bounds_by if contested else "",
    )


def _time_waited(
    group: NodeGroup, state: GroupState, now: datetime, backoff: BackoffPolicy, provision_timeout: timedelta
) -> GroupState:
    """The state with its clock of waiting replicas: started at first sight, started anew by every node that comes."""
    if not group.waiting:
        return state if state.waiting_since is None else _not_waiting(state)
    if state.waiting_since is None or state.waiting_running is None or group.running > state.waiting_running:
        return replace(state, waiting_since=now, waiting_running=group.running)
    if now - state.waiting_since < provision_timeout:
        return state
    minutes = int(provision_timeout.total_seconds() // 60)
    late = record_failure(
        state, now, FailureClass.TIMEOUT, f"no node within {minutes} min for {group.waiting} replicas", backoff
    )
    return replace(late, waiting_since=now, waiting_running=group.running)


def _not_waiting(state: GroupState) -> GroupState:
    return replace(state, waiting_since=None, waiting_running=None)
