"""``pause``, ``resume`` and ``restore``: pause a cluster or pool, end a pause, or restore former bounds."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Ending, Fields, Flag, PoolName, Right, action
from evenkeel.application.errors import BadRequestError
from evenkeel.application.incidents.notify import PAUSED
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.preview import check_pool
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.pools import is_called
from evenkeel.record import ControlRecord
from evenkeel.texts.english import in_words, problem_text, rfc3339

# The number of newest entries that are searched for the caller of a pause. Few entries are enough, because a paused
# cluster gets no new decisions.
_NEWEST = 20


class PauseFields(Ending):
    """A pause without an end lasts until ``resume``."""

    pool: PoolName = None


class RestoreFields(Fields):
    """Without a pool, the whole cluster is restored."""

    pool: PoolName = None


class ResumeFields(RestoreFields):
    """Without a pool, the whole cluster is resumed."""

    restored: Flag = Field(default=False, description="Also end a restore, or the pause after it. For administrators.")


def _subject(call: Call, pool: str | None) -> str:
    return call.cluster if pool is None else f"pool {pool} of {call.cluster}"


def _load(call: Call, pool: str | None) -> StoredCluster:
    """Return the cluster's stored items. Raises BadRequestError if the cluster has no such pool."""
    stored = call.load()
    if pool is not None:
        check_pool(call.ports.clusters, stored, pool, call.now, call.remaining)
    return stored


def _pause_touches(call: Call, fields: PauseFields) -> str | None:
    control = call.load().control
    if _longer_pause(control, fields.pool, fields.end(call.now), call.now) is not None:
        return None
    held = call.still_held(control).removeprefix("; ")
    return f"{call.cluster}{': ' if held else ''}{held}"


@action(PauseFields, Right.WRITE, touches=_pause_touches, spares="paused for longer")
def pause(call: Call, fields: PauseFields) -> Answer:
    """Pause a cluster, or one of its pools.

    An existing pause is never shortened, because another operator may rely on it.
    """
    pool, end = fields.pool, fields.future_end(call.now)
    stored = _load(call, pool)
    control, subject = stored.control, _subject(call, pool)
    if longer := _longer_pause(control, pool, end, call.now):
        return {
            "done": False,
            "message": f"{subject} is paused {longer} already: resume it before you shorten its pause",
        }
    if pool is None:
        closed: Iterable[str] = stored.state.closed_pools
        restored = control.restored and control.paused
        call.change_control(stored, {"paused": True, "paused_until": end, "restored": restored})
    else:
        closed = [id.name for id, state in stored.state.pools.items() if state.closed_at and is_called(id, [pool])]
        call.change_control(stored, {"paused_pools": {**control.paused_pools, pool: end}})
    if closed or (pool is None and _is_run_needed(stored)):
        call.request_run(PAUSED)
    effect = (
        "Evenkeel neither reads it nor writes to it" if pool is None else "Evenkeel reads it and writes nothing to it"
    )
    opened = f", once cluster-autoscaler can order in pool {', '.join(sorted(closed))} again" if closed else ""
    ended = ", once the write that a killed run has begun is ended" if stored.unfinished and pool is None else ""
    return {"message": f"{subject} is paused {_length(end)}: {effect}{opened}{ended}"}


def _is_run_needed(stored: StoredCluster) -> bool:
    """Return True if a run has something to do in the paused cluster: publish, end its writes, or reset clocks."""
    health = stored.cluster_health
    return bool(health.outbox or health.waiting or stored.unfinished)


def _longer_pause(control: ControlRecord, pool: str | None, end: datetime | None, now: datetime) -> str | None:
    """Return, as text, the end of the existing pause if it is after ``end``; None: no pause lasts longer."""
    pauses = control.pools_paused(now)
    held = control.is_paused(now) if pool is None else pool in pauses
    until = control.paused_until if pool is None else pauses.get(pool)
    return _length(until) if held and end is not None and (until is None or until > end) else None


def _length(end: datetime | None) -> str:
    return f"until {rfc3339(end)}" if end else "until resumed"


def _resume_touches(call: Call, fields: ResumeFields) -> str | None:
    stored = call.load()
    held = call.still_held(stored.control).removeprefix("; ")
    contested = sum(
        bool(group.contest.contested_since or group.contest.unread_bounds) for group in stored.state.groups.values()
    )
    held = "; ".join(filter(None, (held, f"contested groups: {contested}" if contested else "")))
    if not held:
        return None
    _resumed(call, stored.control, fields)
    return f"{call.cluster}: {held}{_paused_by(call) if stored.control.is_paused(call.now) else ''}"


@action(
    ResumeFields,
    Right.WRITE,
    rights_with={"restored": Right.ADMINISTER},
    touches=_resume_touches,
    spares="nothing is held",
)
def resume(call: Call, fields: ResumeFields) -> Answer:
    """End a pause; or, for administrators, a restore and the pause that follows it.

    Without a pool, contests with other controllers end, too. Without ``restored``, a restore in progress continues.
    """
    pool = fields.pool
    stored = _load(call, pool)
    control = call.change_control(stored, _resumed(call, stored.control, fields))
    for key, group in stored.state.groups.items() if pool is None else ():
        contest = group.contest.uncontested()
        if contest != group.contest:
            call.ports.store.save_group(call.cluster, key, replace(group, contest=contest), stored.versions)
    call.request_run("resumed")
    dry = "" if control.is_paused(call.now) else call.in_dry_run(stored.record, control)
    return {"message": f"{_subject(call, pool)} is resumed and checked now{call.still_held(control)}{dry}"}


def _resumed(call: Call, before: ControlRecord, fields: ResumeFields) -> Mapping[str, Any]:
    """Return the changed control fields. Raises BadRequestError if ``restored`` is required, but missing."""
    pool = fields.pool
    if pool is None:
        was_restored, goes_on = before.has_left, before.restoring and before.is_paused(call.now)
    else:
        was_restored = before.has_left_pool(pool)
        goes_on = pool in before.restoring_pools and pool in before.paused_pools
    if was_restored and not goes_on and not fields.restored:
        raise BadRequestError(
            f"{_subject(call, pool)} is restored or being restored: as an administrator, resume it with --restored"
        )
    if pool is None:
        ended = {"restoring": False, "restored": False} if fields.restored else {}
        return {"paused": False, "paused_until": None, **ended}
    ended_pools = {
        "restoring_pools": tuple(name for name in before.restoring_pools if name != pool),
        "restored_pools": tuple(name for name in before.restored_pools if name != pool),
    }
    paused_pools = {name: end for name, end in before.paused_pools.items() if name != pool}
    return {"paused_pools": paused_pools, **(ended_pools if fields.restored else {})}


def _paused_by(call: Call) -> str:
    """Return the pause's caller and reason as text, for operators who resume several clusters at once."""
    entries = call.ports.store.decisions(call.cluster, _NEWEST)
    paused = next((entry for entry in entries if entry.get("cause") == "pause"), None)
    if paused is None or not paused.get("by"):
        return ""
    return f", by {paused['by']}" + (f" ({paused['reason']})" if paused.get("reason") else "")


@action(RestoreFields, Right.ADMINISTER)
def restore(call: Call, fields: RestoreFields) -> Answer:
    """Restore the bounds from before Evenkeel, remove its annotations, and pause; one pool, or all."""
    pool = fields.pool
    stored = _load(call, pool)
    if pool is None:
        call.change_control(stored, {"restoring": True, "restored": False, "paused": False, "paused_until": None})
        scope, end = "every group", "the cluster is paused"
    else:
        restoring_pools = tuple(dict.fromkeys((*stored.control.restoring_pools, pool)))
        call.change_control(stored, {"restoring_pools": restoring_pools})
        scope, end = f"every group of pool {pool}", "the pool is paused for good"
    call.request_run("restore")
    is_dry = stored.control.is_dry(stored.record, call.ports.dry_run)
    waits = pool is not None and stored.control.is_paused(call.now)
    annotations = in_words("annotations", stored.record.flavours[0])
    return {
        "message": f"{call.cluster}: {scope} gets its bounds from before Evenkeel back and loses Evenkeel's "
        f"{annotations}; then {end}. status shows when it is done"
        + (". The cluster is in dry run: a restore is written all the same" if is_dry else "")
        + (". The cluster is paused: that happens once it is resumed" if waits else "")
        + _not_restored(stored, pool)
    }


def _not_restored(stored: StoredCluster, pool: str | None) -> str:
    """Return the groups that AWS does not let Evenkeel restore until they have their tags again."""
    lost = [
        problem
        for incident in stored.cluster_health.incidents
        if incident.kind is IncidentKind.LOST_GROUP
        and (pool is None or pool in (incident.pool, incident.pool.rpartition("/")[2]))
        for problem in incident.problems
    ]
    return f". Not restored until their tags are set again: {'; '.join(map(problem_text, lost))}" if lost else ""
