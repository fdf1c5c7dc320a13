"""Texts of readiness."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.readiness import Readiness
from evenkeel.domain.rebalancing.health.observed import CONTEST_REVERTS
from evenkeel.domain.rollout.readiness import Hindrance
from evenkeel.texts.english import counted, some_names
from evenkeel.texts.incidents import incident_text


def readiness_text(readiness: Readiness, stored: StoredCluster, needed: timedelta, now: datetime) -> str:
    """Return in one line whether the cluster is ready, or why not."""
    dry_run = readiness.dry_run
    if not readiness.is_ready:
        why = "; ".join(hindrance_text(each, readiness, stored, needed, now) for each in readiness.hindrances)
        return f"{stored.record.id} is not ready: {why}"
    times = f"{'' if readiness.whole else 'at least '}{dry_run.patches_per_day:.1f} patches a day"
    facts = f"in {_days(dry_run.days)} of dry run {counted(dry_run.decisions, 'decision')}, {times}"
    if readiness.asked and readiness.asked.plan and readiness.asked.plan.skipped:
        facts += f", {counted(len(readiness.asked.plan.skipped), 'object')} skipped"
    return f"{stored.record.id} is ready: {facts}"


def hindrance_text(
    hindrance: Hindrance, readiness: Readiness, stored: StoredCluster, needed: timedelta, now: datetime
) -> str:
    """Return, for people, one reason why the cluster is not ready."""
    dry_run = readiness.dry_run
    match hindrance:
        case Hindrance.IN_TROUBLE:
            incidents = stored.cluster_health.incidents
            more = f" (+{len(incidents) - 1})" if len(incidents) > 1 else ""
            return f"it has an incident: {incident_text(incidents[0], now)}{more}"
        case Hindrance.UNREAD:
            return f"it cannot be read: {readiness.asked.unread if readiness.asked else ''}"
        case Hindrance.PAUSED:
            return "it is paused: resume it first"
        case Hindrance.RESTORING:
            return "it is being restored: resume it with --restored first"
        case Hindrance.NO_POOLS:
            return "it has no pool: give its node groups one"
        case Hindrance.TOO_SHORT:
            return f"its dry run has lasted {dry_run.days:.1f} of {_days(needed / timedelta(days=1))}"
        case Hindrance.PUT_BACK:
            groups = some_names(_held(dry_run.put_back))
            return f"other controllers put back bounds or replicas: {groups}: remove these fields there"
        case Hindrance.WRITTEN_BY_OTHERS:
            often = [f"{key} {times} times" for key, times in dry_run.rewritten.items() if times >= CONTEST_REVERTS]
            return f"other controllers have changed the bounds: {some_names(often)}"
        case Hindrance.RESTLESS:
            return f"{dry_run.patches_per_day:.0f} patches a day would be written: find out why its plan keeps changing"
        case Hindrance.RIGHTS:
            return f"rights are missing: {some_names(readiness.asked.refused if readiness.asked else ())}"


def _held(put_back: Mapping[str, str]) -> list[str]:
    return [f"{key} by {who or 'another controller'}" for key, who in put_back.items()]


def _days(days: float) -> str:
    return f"{days:.1f} days"
