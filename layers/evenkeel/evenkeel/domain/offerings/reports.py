"""Capacity reports: failures in other clusters throttle or fence a group, and the group's own failures are reported.

A report does not count as a failure of the group. The report throttles the group: the group may request only one
machine more than it requested when the first report was read. The group's own state stores these requested replicas, so
no rule compares the clocks of two clusters.

    first report      two reports: fenced, 5 min at most,        more run than requested    reports count again
        |             while another zone is healthy              at the first report        |
    ----*=================|-------- one machine more ------------*.........................|-----
                            throttled                             ignores reports, 5 min

The throttling ends when more machines run than were requested at the first report. The new machine shows that the
offering is available, so all earlier reports count as answered, for all clusters. The group then ignores reports for
the length of a first backoff (5 min), and can order all machines that it needs. So any number of reports costs a group
at most one fence and one order of a single machine. Reports of only one cluster never fence a group.

The fence lasts at most as long as a first backoff after a failed launch of the group. It applies only while another
group of the pool is healthy and has room. Stuck replicas are never released because of a report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.failures import FailureClass, is_own_affair
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.offerings import CapacityReport, Experience, Offering, OfferingState
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState

# The most stored reports of an offering. Two reports fence a group. A reporting cluster ignores its own report, so
# Evenkeel stores three, and two remain for that cluster.
REPORTS_KEPT = 3
# If two clusters cannot buy an offering, neither of these clusters is the cause.
REPORTS_TO_FENCE = 2
_USUAL = BackoffPolicy()


def merged(one: OfferingState, other: OfferingState) -> OfferingState:
    """Return both states as one.

    The result has the last unanswered report of each API server, limited to the newest ``REPORTS_KEPT`` reports. The
    result does not depend on the order or the number of merges.
    """
    delivered = [at for at in (one.delivered_at, other.delivered_at) if at is not None]
    delivered_at = max(delivered, default=None)
    reports: dict[str, CapacityReport] = {}
    for server, report in (*one.reports.items(), *other.reports.items()):
        is_answered = delivered_at is not None and report.failed_at <= delivered_at
        if not is_answered and (server not in reports or _age(report) > _age(reports[server])):
            reports[server] = report
    newest = sorted(reports, key=lambda server: (*_age(reports[server]), server), reverse=True)[:REPORTS_KEPT]
    return OfferingState(reports={server: reports[server] for server in sorted(newest)}, delivered_at=delivered_at)


def _age(report: CapacityReport) -> tuple[datetime, datetime, str]:
    return report.failed_at, report.until, report.cluster


def standing(state: OfferingState | None, now: datetime, policy: BackoffPolicy) -> list[CapacityReport]:
    """Return the unanswered reports that are not too old, the newest first."""
    reports = [] if state is None else [report for report in state.reports.values() if not is_answered(report, state)]
    return sorted(
        (report for report in reports if not policy.is_forgotten(report.failed_at, now)), key=_age, reverse=True
    )


def reports_about(
    group: NodeGroup, offerings: Mapping[Offering, OfferingState], now: datetime, policy: BackoffPolicy
) -> list[CapacityReport]:
    """Return the reports about the offering that a group buys."""
    return (
        standing(offerings.get(group.template.offering), now, policy)
        if offerings and group.template.offering is not None
        else []
    )


def is_answered(report: CapacityReport, state: OfferingState) -> bool:
    """Return True if a cluster has received a machine of the offering since the report."""
    return state.delivered_at is not None and report.failed_at <= state.delivered_at


def changes(
    state: OfferingState, server: str, experience: Experience, now: datetime, policy: BackoffPolicy = _USUAL
) -> OfferingState | None:
    """Return the state with the experience of a cluster; None: the experience changes nothing for any cluster.

    For one outage, ten thousand clusters together store only three reports. A further report is stored only if fewer
    than three stored reports last for at least half as long as the new report.
    """
    after = merged(state, OfferingState(delivered_at=experience.delivered_at))
    answers = len(standing(after, now, policy)) < len(standing(state, now, policy))
    report = experience.report
    if report is not None and not is_answered(report, after) and _adds(after, server, report, now, policy):
        return merged(after, OfferingState(reports={server: report}))
    return after if answers else None


def _adds(state: OfferingState, server: str, report: CapacityReport, now: datetime, policy: BackoffPolicy) -> bool:
    if policy.is_forgotten(report.failed_at, now):
        return False
    reports = {voice: report for voice, report in state.reports.items() if report in standing(state, now, policy)}
    own = reports.pop(server, None)
    if own is not None and (own.until, own.cluster) == (report.until, report.cluster):
        return False
    if report.until <= now:
        return not reports and own is None
    half = now + (report.until - now) / 2
    return sum(report.until >= half for report in reports.values()) < REPORTS_KEPT


def experiences(
    groups: Iterable[NodeGroup], states: Mapping[GroupKey, GroupState], now: datetime
) -> dict[Offering, Experience]:
    """Return a cluster's experience of each offering: its last failure, and its last new machine after a failure."""
    by_offering: dict[Offering, Experience] = {}
    for group in groups:
        if group.template.offering is None or (state := states.get(group.key)) is None:
            continue
        before = by_offering.get(group.template.offering, Experience())
        reports = [report for report in (before.report, _report(state, now)) if report is not None]
        delivered = [at for at in (before.delivered_at, _delivered_at(state)) if at is not None]
        if reports or delivered:
            newest = max(reports, key=_age, default=None)
            by_offering[group.template.offering] = Experience(report=newest, delivered_at=max(delivered, default=None))
    return by_offering


def _report(state: GroupState, now: datetime) -> CapacityReport | None:
    """Return a group's last failure as a report; None: the group is not failing, or not because of its offering."""
    if not state.is_failing or state.fence_ended or state.failure_class is not FailureClass.CAPACITY:
        return None
    if state.last_failure is None or state.backoff_until is None or is_own_affair(state.message):
        return None
    return CapacityReport(failed_at=min(state.last_failure, now), until=state.backoff_until)


def _delivered_at(state: GroupState) -> datetime | None:
    """Return when the group last received a machine that was launched after a failure of any cluster; None: never."""
    moments = (state.cleared_at, state.last_success, *state.ended[-1:])
    return max((at for at in moments if at is not None), default=None)


def apply_reports(
    group: NodeGroup,
    before: GroupState | None,
    after: GroupState | None,
    reports: Sequence[CapacityReport],
    now: datetime,
    policy: BackoffPolicy,
) -> GroupState | None:
    """Return the state after this check with its throttling started, lowered, ended or unchanged.

    ``after`` includes the group's own failures and successes in this check. Throttling stores the number of requested
    replicas. Once more machines than this number run, one of them was launched after the report.
    """
    if group.frozen_because is not None or not group.annotations.fencing_enabled or not (reports or after):
        return after
    state = after or GroupState()
    reports = [report for report in reports if state.cleared_at is None or report.failed_at > state.cleared_at]
    requested = max(group.requested, group.running)
    if state.throttled_requested is None:
        ignores_reports = state.cleared_at is not None and now < state.cleared_at + policy.initial
        if not reports or ignores_reports:
            return after
        return replace(state, throttled_requested=requested, throttled_until=_fenced_until(reports, now, policy))
    if group.running > state.throttled_requested or _has_succeeded(before, state):
        return replace(state, cleared_at=now, throttled_requested=None, throttled_until=None)
    if not reports:
        return replace(state, throttled_requested=None, throttled_until=None)
    # A throttled group is fenced only once.
    until = state.throttled_until or _fenced_until(reports, now, policy)
    lowered = replace(state, throttled_requested=min(state.throttled_requested, requested), throttled_until=until)
    return after if lowered == after else lowered


def _has_succeeded(before: GroupState | None, after: GroupState) -> bool:
    """Return True if this check has found a new machine that was launched after a failure of the group."""
    return before is not None and (before.last_success, before.ended) != (after.last_success, after.ended)


def _fenced_until(reports: Sequence[CapacityReport], now: datetime, policy: BackoffPolicy) -> datetime | None:
    """Return the end of the fence: the time until which ``REPORTS_TO_FENCE`` clusters are in backoff.

    A fence lasts at most as long as the group's first backoff. None: fewer clusters than this are in backoff now.
    """
    ends = sorted((report.until for report in reports if report.until > now), reverse=True)
    return min(ends[REPORTS_TO_FENCE - 1], now + policy.initial) if len(ends) >= REPORTS_TO_FENCE else None
