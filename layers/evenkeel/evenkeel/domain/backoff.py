"""Backoff per node group: closed -> fenced -> probing -> closed, or fenced again for twice as long.

Constants and rules are Cluster Autoscaler's (utils/backoff/exponential_backoff.go:75-131), with two differences on
purpose: the state outlives the process, and a failure inside a running backoff changes nothing at all, so that
doubled and late reports of one failure cannot lengthen it.

The state is a fold over the *set* of failure times. Whatever order they arrive in, and however often, it is the same.

    failure      until          not one more      success, or
       |  5 min    |  probing   failure: healthy  3 h of silence
    ---*===========|------------...---------------------------->
    healthy  fenced  at most one more machine
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from evenkeel.domain.failures import FailureClass
from evenkeel.domain.model import BackoffPolicy, State

# 3 h of backoffs of at least 5 min are 36, so this holds every start and plenty of reports between them.
_KEPT = 64


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """What is remembered of one node group between two looks. All times are aware datetimes."""

    failures: int = 0
    backoff_until: datetime | None = None
    last_failure: datetime | None = None
    failure_class: FailureClass = FailureClass.UNKNOWN
    message: str = ""
    last_success: datetime | None = None
    running_seen: int | None = None  # running when we last looked while the group was in trouble
    waiting_since: datetime | None = None  # first sight of replicas without a node, or the last node that came
    waiting_running: int | None = None  # running then
    reverts: tuple[datetime, ...] = ()  # publications of ours that somebody put back within the last hour
    contested_since: datetime | None = None  # put back too often: not written until an operator resumes
    contested_by: str = ""
    marked: tuple[str, ...] = ()  # machines that carry a delete mark of ours
    reports: tuple[datetime, ...] = ()  # times of known failures, oldest first, to fold late ones in

    @property
    def in_trouble(self) -> bool:
        """Whether there is a failure that no success has answered yet."""
        return self.last_failure is not None and (self.last_success is None or self.last_success <= self.last_failure)


def record_failure(
    state: GroupState,
    at: datetime,
    failure_class: FailureClass,
    message: str,
    policy: BackoffPolicy,
    *,
    now: datetime | None = None,
) -> GroupState:
    """The state after a failure that happened ``at``, which may be long ago or already known.

    A failure that is older than the last success, or that falls into a known backoff, changes nothing. One from the
    future of ``now`` counts as now, once.
    """
    if state.last_success is not None and at <= state.last_success:
        return state
    known = state.reports or ((state.last_failure,) if state.last_failure is not None else ())
    if at in known:
        return state
    # Failures that are counted but whose reports are not kept (too many, or a record written by hand) came before.
    before = max(0, state.failures - _fold(known, 0, policy)[0]) if known else 0
    failures, until, reports = _fold({*known, at}, before, policy)
    if state.backoff_until is not None:
        until = max(until, state.backoff_until)  # a late report may begin an earlier backoff; it never shortens one
    newest = state.last_failure is None or at > state.last_failure
    return replace(
        state,
        failures=failures,
        backoff_until=until,
        last_failure=at if newest else state.last_failure,
        failure_class=failure_class if newest else state.failure_class,
        message=message[:1024] if newest else state.message,
        reports=reports,
    )


def _fold(
    times: Iterable[datetime], failures: int, policy: BackoffPolicy
) -> tuple[int, datetime, tuple[datetime, ...]]:
    """Number of failures in a row, end of the last backoff, and the reports worth keeping."""
    until = last = None
    starts: list[datetime] = []
    inside: list[datetime] = []
    for at in sorted(times):
        if until is not None and at <= until:  # the end belongs to the backoff, as in Cluster Autoscaler
            inside.append(at)
            last = at
            continue
        if last is not None and at > last + policy.forget_after:
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


def observe_running(state: GroupState, running: int, now: datetime) -> GroupState:
    """The state after a look that found ``running`` machines with a node. One more than before is a success."""
    if not state.in_trouble:
        return state
    if state.running_seen is not None and running > state.running_seen:
        return replace(state, last_success=now, running_seen=None)
    return state if running == state.running_seen else replace(state, running_seen=running)


def state_at(state: GroupState | None, now: datetime, impaired_until: datetime | None, policy: BackoffPolicy) -> State:
    """Healthy, fenced or probing at ``now``. An impaired zone fences every group in it, whatever its own state."""
    if impaired_until is not None and now < impaired_until:
        return State.FENCED
    if state is None or state.last_failure is None or now > state.last_failure + policy.forget_after:
        return State.HEALTHY
    if state.backoff_until is not None and now <= state.backoff_until:
        return State.FENCED
    return State.PROBING if state.in_trouble else State.HEALTHY
