"""Backoff per node group: healthy -> fenced -> probing -> healthy, or fenced again for twice as long.

Constants and rules are Cluster Autoscaler's (utils/backoff/exponential_backoff.go:75-131), with two differences. The
state is stored, so it outlives the process. A failure during a backoff does not count, so duplicate and late reports of
one failure cannot lengthen the backoff.

The state depends only on the *set* of failure times, not on the order or the number of their reports. A late report
never ends a backoff earlier.

    failure      end of backoff             a success, or 3 h without a failure
       |   5 min    |                          |
    ---*============|--------------------------|--------------->
    healthy  fenced   probing: one more          healthy
                      machine at most

A machine that was launched after the last failure and has become a node ends the fence early, because the zone delivers
again. A machine that was already provisioning when the failure happened does not end the fence.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId, State
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.pools import rule_of
from evenkeel.domain.model.states import GroupState, PoolState, changed
from evenkeel.domain.rebalancing.health.not_offered import backoff_after, is_not_offered

# The most stored reports per group. At most 36 backoffs of at least 5 min fit into 3 h. So the report that started each
# backoff is stored, and also many of the other reports.
_KEPT = 64
_AHEAD_KEPT = 16


def record_failure(  # noqa: PLR0913  three facts of a failure, the group's state and policy, and two options
    state: GroupState,
    at: datetime,
    failure_class: FailureClass,
    message: str,
    policy: BackoffPolicy,
    *,
    now: datetime | None = None,
    overrides: bool = False,
) -> GroupState:
    """Return the state after a failure at the time ``at``, which may be long ago or already known.

    A failure before the last success changes nothing. A failure during a known backoff does not change this backoff. A
    failure that is dated after ``now`` counts once, as a failure at ``now``. A timeout or an unknown failure replaces
    the class of a quota or configuration failure only after a success, or if ``overrides`` is True.
    """
    failure, arrivals = state.failure, state.arrivals
    ahead = failure.ahead
    if at in ahead:
        return state
    if now is not None and at > now:
        ahead, at = (*ahead, at)[-_AHEAD_KEPT:], now
    earlier = failure.reports or ((failure.last_failure,) if failure.last_failure is not None else ())
    deliveries = (arrivals.last_success, *arrivals.ended[-1:])
    if at in earlier or any([moment is not None and at <= moment for moment in deliveries]):
        return state if ahead == failure.ahead else changed(state, failure=changed(failure, ahead=ahead))
    newest = failure.last_failure is None or at > failure.last_failure
    replaces_reason = _replaces_reason(state, failure_class, newest=newest, overrides=overrides)
    reason = message if replaces_reason else failure.message
    policy = backoff_after(reason, policy)
    # Failures without a stored report are older: there were too many reports, or a person edited the stored state.
    unreported = max(0, failure.failures - _fold(earlier, 0, policy, arrivals.ended)[0]) if earlier else 0
    failures, until, reports = _fold({*earlier, at}, unreported, policy, arrivals.ended)
    if failure.backoff_until is not None and not (newest and _is_day_over(state, reason)):
        until = max(until, failure.backoff_until)  # a late report never shortens a backoff
    if newest and arrivals.slow_start:
        # After each failure, slow start counts new nodes from 0 again.
        arrivals = changed(arrivals, slow_start=0, running_seen=None)
    failure = changed(
        failure,
        failures=failures,
        backoff_until=until,
        last_failure=at if newest else failure.last_failure,
        failure_class=failure_class if replaces_reason else failure.failure_class,
        message=reason[:1024],
        template="" if replaces_reason else failure.template,
        reports=reports,
        ahead=ahead,
    )
    return changed(state, failure=failure, arrivals=arrivals)


def _replaces_reason(state: GroupState, failure_class: FailureClass, *, newest: bool, overrides: bool) -> bool:
    """Return True if class and message of a further failure replace the stored ones."""
    reason = state.failure.failure_class
    is_day = state.is_failing and not state.fence_ended and is_not_offered(state.failure.message)
    if is_day and failure_class.is_vague:
        return False  # replicas that wait in vain say nothing new
    if newest:
        return overrides or not (state.is_failing and failure_class.is_vague and not reason.moves_elsewhere)
    # The cloud's own reason replaces a timeout, even if the cloud reports it late.
    return state.is_failing and reason.is_vague and not failure_class.is_vague


def _is_day_over(state: GroupState, reason: str) -> bool:
    """Return True if the zone has offered the machine type since, or its failure now has another reason."""
    return is_not_offered(state.failure.message) and (state.fence_ended or not is_not_offered(reason))


def _fold(
    times: Iterable[datetime], failures: int, policy: BackoffPolicy, ended: Sequence[datetime] = ()
) -> tuple[int, datetime, tuple[datetime, ...]]:
    """Return the number of failures in a row, the end of the last backoff, and the reports to keep."""
    until = last = None
    starts: list[datetime] = []
    inside: list[datetime] = []
    for at in sorted(times):
        if until is not None:
            start = starts[-1]
            until = min((end for end in ended if start <= end <= until and end < at), default=until)
        if until is not None and at <= until:  # a backoff includes its last moment, as in Cluster Autoscaler
            inside.append(at)
            last = at
            continue
        if last is not None and policy.is_forgotten(last, at):
            failures = 0
        failures += 1
        until = at + policy.length(failures)
        last = at
        starts.append(at)
    if until is None:
        raise ValueError("no failure to fold")
    starts = starts[-_KEPT:]
    spare = _KEPT - len(starts)
    return failures, until, tuple(sorted(starts + (inside[-spare:] if spare else [])))


def observe_running(
    state: GroupState, running: int, fresh: int | None, now: datetime, policy: BackoffPolicy
) -> GroupState:
    """Return the state after a check that found ``running`` machines with a node.

    ``fresh`` is the number of these machines that were launched after the last failure; None: machines were not listed.
    One fresh machine ends a fence early, and the group is then probing. One further machine with a node is a success,
    and the group is then healthy.
    """
    found = state_at(state, now, policy)
    if found is State.HEALTHY:
        return state
    failure, arrivals, seen = state.failure, state.arrivals, state.arrivals.running_seen
    arrived = max(0, running - seen) if seen is not None else 0
    if running != seen:
        arrivals = changed(arrivals, running_seen=running)
    if arrived:
        arrivals = changed(arrivals, arrived_at=now)
    fenced = found is State.FENCED
    if fenced and fresh:
        arrivals = changed(arrivals, ended=(*arrivals.ended, now)[-_KEPT:])
    if (fresh is not None and fresh > 1) if fenced else (arrived and fresh != 0):
        failure, arrivals = changed(failure, refused=()), changed(arrivals, last_success=now, running_seen=None)
    return state if arrivals is state.arrivals else changed(state, failure=failure, arrivals=arrivals)


def state_at(state: GroupState, now: datetime, policy: BackoffPolicy) -> State:
    """Return healthy, fenced or probing, by the group's failures and successes."""
    failed, until = state.failure.last_failure, state.failure.backoff_until
    if failed is None:
        return State.HEALTHY
    if until is not None and now <= until and not state.fence_ended:
        return State.FENCED
    # A backoff that is longer than the policy's longest, and has ended early, is not forgotten before it is over.
    if policy.is_forgotten(failed if until is None else max(failed, until - policy.longest), now):
        return State.HEALTHY
    return State.PROBING if state.is_failing else State.HEALTHY


def impaired_until(group: NodeGroup, zones: Mapping[str, datetime], now: datetime) -> datetime | None:
    """Return when the impairment of the group's zone ends; None: the zone is not impaired."""
    if not zones:
        return None
    ends = [zones[name] for name in group.identity.zone_names if name in zones]
    return max((end for end in ends if end > now), default=None)


def own_state(
    group: NodeGroup, state: GroupState, now: datetime, impaired: datetime | None, policy: BackoffPolicy
) -> State:
    """Return the group's state without regard to its nodes and to the other groups of its pool.

    An impaired zone fences every group in it.
    """
    if group.frozen_because is not None or state.contest.is_frozen:
        return State.FROZEN
    is_closed = group.status.launches_stopped is not None or impaired is not None
    return State.FENCED if is_closed else state_at(state, now, policy)


def backoff_of(key: GroupKey, pools: Mapping[PoolId, PoolState], policy: Policy) -> BackoffPolicy:
    """Return a group's backoff durations: those of its pool if the record sets them, else those of the cluster."""
    name = str(key)
    pool = next((id for id, state in pools.items() if name in state.adopted or name in state.members), None)
    rule = None if pool is None else rule_of(pool, policy)
    return (rule.backoff if rule else None) or policy.settings.backoff
