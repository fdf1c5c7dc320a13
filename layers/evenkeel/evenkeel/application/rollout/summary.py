"""Texts of readiness and rollouts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil

from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.readiness import Readiness
from evenkeel.domain.rebalancing.health.observed import CONTEST_REVERTS
from evenkeel.domain.rollout.readiness import Hindrance
from evenkeel.domain.rollout.waves import Halt, LeftOut, Phase, Rollout
from evenkeel.texts.english import counted, rfc3339
from evenkeel.texts.incidents import incident_text
from evenkeel.texts.pool_numbers import MOST_NAMED, some_names

_LEFT_OUT: Mapping[LeftOut, str] = {
    LeftOut.GONE: "not registered anymore",
    LeftOut.UNREADABLE: "its record cannot be read",
    LeftOut.RECORD_SAYS: "its record has a dry_run of its own",
    LeftOut.LIVE: "live already",
    LeftOut.PAUSED: "paused",
    LeftOut.IN_TROUBLE: "it has an incident",
    LeftOut.UNSEEN: "not checked lately",
}


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
            return "it is being restored"
        case Hindrance.NO_POOLS:
            return "it has no known pool: nothing would be written"
        case Hindrance.TOO_SHORT:
            return f"its dry run has lasted {dry_run.days:.1f} of {_days(needed / timedelta(days=1))}"
        case Hindrance.PUT_BACK:
            return f"put back by others: {some_names(_held(dry_run.put_back))}: have them leave out bounds and replicas"
        case Hindrance.WRITTEN_BY_OTHERS:
            often = [f"{key} {times} times" for key, times in dry_run.rewritten.items() if times >= CONTEST_REVERTS]
            return f"other controllers have changed the bounds: {some_names(often)}"
        case Hindrance.RESTLESS:
            return f"{dry_run.patches_per_day:.0f} patches a day would be written: its plan never settles"
        case Hindrance.RIGHTS:
            return f"rights are missing: {some_names(readiness.asked.refused if readiness.asked else ())}"


def _held(put_back: Mapping[str, str]) -> list[str]:
    return [f"{key} by {who or 'another controller'}" for key, who in put_back.items()]


def _days(days: float) -> str:
    return f"{days:.1f} days"


def rollout_text(rollout: Rollout) -> str:
    """Return the state of a rollout in one line."""
    left = f"; left out: {', '.join(f'{id} ({_LEFT_OUT[why]})' for id, why in _some(rollout.left_out))}"
    rest = f"{len(rollout.waiting)} to come" + (left if rollout.left_out else "")
    wave = f"wave {rollout.number} ({counted(len(rollout.wave), 'cluster')})"
    on = len(rollout.proven)
    if not rollout.number and not rollout.phase.is_over:
        is_halting = rollout.phase is Phase.HALTING
        return f"halting, {halt_text(rollout)}" if is_halting else f"begins within a minute; {rest}{_longer(rollout)}"
    match rollout.phase:
        case Phase.SWITCHING:
            return f"{wave} goes live; {on} live before it, {rest}"
        case Phase.WATCHING:
            until = rfc3339((rollout.read_since or rollout.since) + rollout.soak_time)
            return f"{wave} is watched until {until}; {on} live before it, {rest}{_longer(rollout)}"
        case Phase.HALTING:
            return f"halting, {halt_text(rollout)}: {wave} goes back to dry run; {on} stay live, {rest}"
        case Phase.HALTED:
            return f"halted, {halt_text(rollout)}: {wave} is back in dry run; {on} stay live, {rest}"
        case Phase.DONE:
            return f"done at {rfc3339(rollout.since)}: {on} live{left if rollout.left_out else ''}"


def _longer(rollout: Rollout) -> str:
    """Return why the soak is longer than requested; empty if it has the requested length."""
    if rollout.soak_time == rollout.soak or rollout.trouble_after is None:
        return ""
    lengths = (rollout.soak, rollout.soak_time, rollout.trouble_after)
    soak, stands, after = (f"{ceil(length / timedelta(minutes=1))} min" for length in lengths)
    up_to = "" if rollout.number else "up to "
    return f"; each wave is watched for {up_to}{stands}, not {soak}: trouble_after is {up_to}{after}"


def _some(left_out: Mapping[str, LeftOut]) -> list[tuple[str, LeftOut]]:
    return list(left_out.items())[:MOST_NAMED]


def halt_text(rollout: Rollout) -> str:
    """Return the cause of a halt."""
    return (
        some_names([*map(_halt, rollout.halts)])
        if rollout.halts
        else f"by {rollout.halted_by or 'an unnamed operator'}"
    )


def _halt(halt: Halt) -> str:
    pool = f" of {halt.pool.rpartition('/')[2]}" if halt.pool else ""
    return f"{halt.cluster}: {halt.kind.value if halt.kind else ''}{pool}"
