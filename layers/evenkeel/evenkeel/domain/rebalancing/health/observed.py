"""What one look at a group says about its health: the same failures that events report, and those that none reports.

A machine's own status tells a failure; a node that does not come in time is one too, counted from our own first sight,
because machine-controller-manager leaves a status alone for 30 minutes that says the same. A new running machine is a
success. Nothing is judged while a group is frozen: in a rolling update machines wait by design.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.groups import MachineFailure, NodeGroup, State
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.reasons import ROLLOUTS
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import observe_running, record_failure, state_at

# Three times within an hour is no edit but an owner: a GitOps tool, a controller.
CONTEST_REVERTS = 3
CONTEST_WITHIN = timedelta(hours=1)

# Events of one failure come again and again.
_ANNOUNCED_KEPT = 4

# Names of machines that have failed, per group: enough to know most of those that are launched again.
_REFUSED_KEPT = 100


def observe_health(
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
    put_back = _bounds_put_back(group) or _replicas_put_back(group)
    news = group.waiting or put_back or group.autoscaler_failure is not None or of_sets or group.never_ready
    if group.frozen_because is not None:
        # Nor does its clock go on: what waits when a rolling update ends has not been waited for all that time.
        frozen = state if state is None or state.waiting_since is None else _not_waiting(state)
        return _stalled(group, frozen, now, provision_timeout)
    if state is None and not news:
        return None
    before = state or GroupState()
    after = replace(before, announced=(), stalled_since=None)
    if put_back:
        after = _put_back(group, after, now)
    after = observe_running(after, group.delivered, _launched_since(group, after, now), now, backoff)
    after = _time_waited(group, after, now, backoff, provision_timeout)
    failures = [(failure, failure.at or created_at) for failure, created_at in _machine_failures(group)]
    if group.autoscaler_failure is not None and group.autoscaler_failure.at is not None:
        failures.append((group.autoscaler_failure, group.autoscaler_failure.at))
    failures += [(failure, failure.at) for failure in before.announced if failure.at is not None]
    for failure, at in failures:
        if not backoff.is_forgotten(at, now):
            text = f"{failure.code}: {failure.message}"
            after = record_failure(after, at, class_of(failure), text, backoff, now=now)
    after = _with_never_ready(group, after, now, backoff, provision_timeout)
    for of_set in of_sets:
        for at in of_set.reports:
            if not backoff.is_forgotten(at, now):
                after = record_failure(after, at, of_set.failure_class, of_set.message, backoff, now=now)
    if after.is_failing and state_at(after, now, None, backoff) is not State.HEALTHY:
        after = _with_refused(group, after)
        if after.running_seen is None:  # found by this very look: the nodes that come from now on are counted
            after = replace(after, running_seen=group.delivered)
    return state if after == before else after


def _stalled(
    group: NodeGroup, state: GroupState | None, now: datetime, provision_timeout: timedelta
) -> GroupState | None:
    """Return the state with the clock of a rollout that cannot go on: launches fail and nodes are missing.

    It is for the report alone. The failures are judged once the rollout has ended.
    """
    refused = [machine.failure for machine in group.refused_machines if machine.failure is not None]
    rolls = group.frozen_because is not None and group.frozen_because.rule in ROLLOUTS
    fails = bool(refused) or (state is not None and state.is_failing)
    if not (rolls and fails and group.missing_in_rollout(now, provision_timeout)):
        return state if state is None or state.stalled_since is None else replace(state, stalled_since=None)
    state = state or GroupState()
    if state.stalled_since is not None:
        return state
    if refused and not state.is_failing:
        text = f"{refused[0].code}: {refused[0].message}"
        state = replace(state, failure_class=class_of(refused[0]), message=text)
    return replace(state, stalled_since=now)


def announce_failure(state: GroupState, failure: MachineFailure) -> GroupState:
    """Return the state with a failure from the future of the clock that received it. The next check dates it.

    Only a check knows the API server's time. Recorded as of a clock that is slow, the fence would be over at once.
    """
    known = [failure.at for failure in state.announced]
    if failure.at in known or failure.at in state.ahead or len(known) >= _ANNOUNCED_KEPT:
        return state
    return replace(state, announced=(*state.announced, failure))


def observe_appliers(group: NodeGroup, state: GroupState | None) -> GroupState | None:
    """The state with who applies the group's fields by itself and would put them back, where this look has read that.

    A run asks before it writes; a look knows only what a run has found.
    """
    bounds, replicas = group.bounds_applied_by, group.replicas_applied_by
    if bounds is None and replicas is None:
        return state
    before = state or GroupState()
    after = replace(
        before,
        bounds_applied_by=before.bounds_applied_by if bounds is None else bounds,
        replicas_applied_by=before.replicas_applied_by if replicas is None else replicas,
    )
    return state if after == before else after


def _machine_failures(group: NodeGroup) -> list[tuple[MachineFailure, datetime]]:
    """The failures that machines without a node tell, each with the time of the machine's creation."""
    return [(machine.failure, machine.created_at) for machine in group.refused_machines if machine.failure]


def _launched_since(group: NodeGroup, state: GroupState, now: datetime) -> int | None:
    """How many machines with a node were launched, or launched again, after the last failure; None: not listed.

    A machine that is known to have failed and runs was launched again. Of the others only the time of their creation
    counts: when the provider was done with one says nothing of when it was asked.
    """
    if group.machines is None or state.last_failure is None:
        return None
    launches = [
        (machine.launched_at or now) if machine.name in state.refused else machine.created_at
        for machine in group.machines
        if machine.has_node and not machine.deleting and machine.name not in group.never_ready
    ]
    return sum(launch > state.last_failure for launch in launches)


def _with_never_ready(
    group: NodeGroup, state: GroupState, now: datetime, backoff: BackoffPolicy, provision_timeout: timedelta
) -> GroupState:
    """Return the state with a failure for each node that was not Ready in time.

    At a time of its own, so that one node is one failure, however long it stays. The backoff neither doubles nor goes
    on after the provision timeout: the zone delivers machines, and each try takes that timeout already. So a bootstrap
    that is fixed is noticed soon.
    """
    backoff = replace(backoff, longest=backoff.initial)
    minutes = int(provision_timeout.total_seconds() // 60)
    for name, ready_by in sorted(group.never_ready.items()):
        at = ready_by - min(backoff.initial, provision_timeout)
        if ready_by <= now and not backoff.is_forgotten(at, now):
            message = f"machine {name} has a node that was not Ready within {minutes} min"
            state = record_failure(state, at, FailureClass.TIMEOUT, message, backoff, now=now)
    return state


def _with_refused(group: NodeGroup, state: GroupState) -> GroupState:
    names = {machine.name for machine in group.refused_machines}
    if names <= set(state.refused):
        return state
    return replace(
        state, refused=tuple(sorted(names) + [name for name in state.refused if name not in names])[:_REFUSED_KEPT]
    )


def _bounds_put_back(group: NodeGroup) -> bool:
    wrote = group.published
    if wrote is None or wrote.bounds is None or group.bounds is None:
        return False
    return group.bounds != wrote.bounds or group.pinned != wrote.pinned


def _replicas_put_back(group: NodeGroup) -> bool:
    """Whether the replicas are again what they were before we wrote them."""
    wrote = group.published
    return wrote is not None and wrote.before is not None and group.requested == wrote.before != wrote.requested


def _put_back(group: NodeGroup, state: GroupState, now: datetime) -> GroupState:
    """The state after somebody wrote other values over ours. Each publication is counted once, however often seen."""
    publication = group.published
    if publication is None or publication.at in state.reverts or state.contested_since is not None:
        return state
    reverts = (*(at for at in state.reverts if now - at < CONTEST_WITHIN), publication.at)
    contested = len(reverts) >= CONTEST_REVERTS and now - reverts[0] < CONTEST_WITHIN
    replicas = contested and not _bounds_put_back(group)
    return replace(
        state,
        reverts=reverts,
        contested_since=now if contested else None,
        contested_by=(group.replicas_by if replicas else group.bounds_by) if contested else "",
        contested_replicas=replicas,
    )


def _time_waited(
    group: NodeGroup, state: GroupState, now: datetime, backoff: BackoffPolicy, provision_timeout: timedelta
) -> GroupState:
    """The state with its clock of waiting replicas: started at first sight, started anew by every node that comes.

    What the machines say of a quota or of their configuration stays the reason, however long it lasts.
    """
    if not group.waiting:
        return state if state.waiting_since is None else _not_waiting(state)
    if state.waiting_since is None or state.waiting_running is None or group.running > state.waiting_running:
        return replace(state, waiting_since=now, waiting_running=group.running)
    if now - state.waiting_since < provision_timeout:
        return state
    minutes = int(provision_timeout.total_seconds() // 60)
    kind, message = FailureClass.TIMEOUT, f"no node within {minutes} min for {group.waiting} of its replicas"
    for machine in group.refused_machines:
        failure = machine.failure
        if failure is not None and not machine.preserved and not class_of(failure).moves_elsewhere:
            kind, message = class_of(failure), f"{failure.code}: {failure.message}"
    late = record_failure(state, now, kind, message, backoff, overrides=True)
    return replace(late, waiting_since=now, waiting_running=group.running)


def _not_waiting(state: GroupState) -> GroupState:
    return replace(state, waiting_since=None, waiting_running=None)
