"""``drill``: fence one zone for a limited time, and measure the effect; end it; or show the report of the last one."""

import shlex
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import PLANNED_ONLY, Answer, Call, Flag, Right, action, length
from evenkeel.application.actions.zones import ZoneFields, one_zone
from evenkeel.application.drill.drill import ForecastNumbers, drill_json, forecast_of, record_report
from evenkeel.application.errors import BadRequestError, ClusterUnavailableError, StateConflictError
from evenkeel.application.ports import StoredCluster
from evenkeel.domain.drill.drill import LONGEST, SHORTEST, Drill, End, Ended, failing_elsewhere, pools_of, zones_of
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.model.zone_names import zone_called
from evenkeel.state_records import fenced_zones
from evenkeel.texts.drill import drill_text
from evenkeel.texts.english import duration, rfc3339
from evenkeel.texts.incidents import incident_headline

_TRIES = 5
_USUAL = timedelta(minutes=30)


class DrillFields(ZoneFields):
    """With a zone, a drill begins. Without any field, the answer is the report of the last drill."""

    lasting: Annotated[
        timedelta | None,
        BeforeValidator(partial(length, or_none=True)),
        Field(alias="for", description="How long: 5m to 4h; default: 30m."),
    ] = None
    abort: Flag = Field(default=False, description="End the drill now.")
    dry_run: Flag = Field(default=False, description="Show only the forecast; fence nothing.")
    forecast: Annotated[
        ForecastNumbers | None, Field(description="The forecast for the loss of the zone, to store in the report.")
    ] = None


@action(DrillFields, Right.READ, rights_with={"zone": Right.WRITE, "zone_id": Right.WRITE, "abort": Right.WRITE})
def drill(call: Call, fields: DrillFields) -> Answer:
    """Fence one zone for a limited time, and report the forecast next to the effect. Running nodes stay."""
    if fields.abort and (fields.zone or fields.zone_id):
        raise BadRequestError("drill: abort and a zone are there: name one of the two")
    if fields.abort and (fields.dry_run or fields.lasting is not None or fields.forecast is not None):
        raise BadRequestError("drill: abort ends the drill: leave out dry_run, for and forecast")
    if fields.abort:
        return _abort(call)
    if fields.zone is None and fields.zone_id is None:
        if fields.model_fields_set - {"abort"}:
            raise BadRequestError("drill: the zone is missing: name it by zone or zone_id")
        stored = call.load()
        if stored.drill is None:
            return {"drill": None, "message": f"{call.cluster}: no drill in the last 30 days"}
        return _answer(call, stored.drill)
    return _begin(call, fields)


def _answer(call: Call, drill: Drill, message: str = "") -> Answer:
    text = message or f"{call.cluster}: {drill_text(drill, call.now)}"
    return {"drill": drill_json(drill, call.now), "message": text}


def _abort(call: Call) -> Answer:
    for attempt in range(_TRIES):
        stored = call.load()
        before = stored.drill
        if before is None or not before.is_open(call.now):
            # The run is requested again, because the invocation that ended the drill may have been killed before.
            call.request_run("drill aborted")
            raise BadRequestError(f"{call.cluster}: no drill is open: nothing is to be ended")
        drill = before.ended_by(Ended(at=call.now, why=End.ABORTED, by=call.by or "", reason=call.reason or ""))
        try:
            call.ports.store.save_drill(call.cluster, drill, stored.versions)
            break
        except StateConflictError:  # a run has measured meanwhile
            if attempt == _TRIES - 1:
                raise
    call.request_run("drill aborted")
    return _answer(call, drill)


def _begin(call: Call, fields: DrillFields) -> Answer:
    lasting = _USUAL if fields.lasting is None else fields.lasting
    if not SHORTEST <= lasting <= LONGEST:
        shortest, longest = duration(SHORTEST.total_seconds()), duration(LONGEST.total_seconds())
        raise BadRequestError(f"for is {duration(lasting.total_seconds())}: choose {shortest} to {longest}")
    for name, value in (("by", call.by), ("reason", call.reason)):
        if not value and not fields.dry_run:
            raise BadRequestError(f"{name} is missing: a drill stores who begins it, and why")
    stored = call.load()
    if stored.drill is not None and stored.drill.is_open(call.now):
        return _repeated(call, fields, lasting, stored, stored.drill)
    _refuse_if_busy(call, stored)
    plan = _healthy_plan(call)
    zone = _known_zone(call, fields, stored, plan)
    if (failing := failing_elsewhere(zone, pools_of(plan))) is not None:
        pool, other = failing
        text = f"pool {pool.rpartition('/')[2]} of {call.cluster} fails in zone {other}"
        raise BadRequestError(f"{text}: begin a drill once it is healthy there")
    pools = [pool for pool in plan.pools if any(group.group.identity.zone == zone for group in pool.groups)]
    answer = _not_written(call, stored, zone, pools)
    if answer is not None or fields.dry_run:
        would = f"zone {zone} of {call.cluster} would be fenced for {duration(lasting.total_seconds())}"
        return {"drill": None, "zone": zone, "done": False, "message": f"{would}; nothing is fenced", **(answer or {})}
    drill = Drill(
        id=ulid(call.now, call.ports.random_bytes(10)),
        zone=zone,
        at=call.now,
        until=call.now + lasting,
        by=call.by or "",
        reason=call.reason or "",
        start=zones_of(plan),
        forecast=None if fields.forecast is None else forecast_of(fields.forecast),
    )
    call.ports.store.save_drill(call.cluster, drill, stored.versions)
    call.request_run("drill")
    command = ["evenkeel", "drill", "--stack", call.ports.stack, "--cluster", call.cluster]
    dry = call.dry_pools(stored, pools)
    left = f"; not fenced, because in dry run: pool {', '.join(sorted(pool.id.name for pool in dry))}" if dry else ""
    message = (
        f"zone {zone} of {call.cluster} is fenced until {rfc3339(drill.until)}: its groups get no growth, its nodes "
        f"stay{left}. Report: {shlex.join(command)}. To end it now: {shlex.join([*command, '--abort'])}"
    )
    return {**_answer(call, drill, message), "zone": zone, "dryRun": False}


def _repeated(call: Call, fields: DrillFields, lasting: timedelta, stored: StoredCluster, drill: Drill) -> Answer:
    """Return the report of the open drill to the caller who has begun it, whose first answer may be lost.

    Raises BadRequestError for any other drill.
    """
    # The run is requested again, because the invocation that began the drill may have been killed before.
    call.request_run("drill")
    is_same = (drill.by, drill.reason, drill.until - drill.at) == (call.by, call.reason, lasting)
    preview = call.evaluate().preview if is_same else None
    if not is_same or _zone_of(call, fields, stored, None if preview is None else preview.plan) != drill.zone:
        raise BadRequestError(f"{call.cluster} has an open {drill_text(drill, call.now)}: wait, or end it with --abort")
    return {**_answer(call, drill), "zone": drill.zone, "dryRun": False, "done": False}


def _refuse_if_busy(call: Call, stored: StoredCluster) -> None:
    """Raise BadRequestError if the cluster has a fence, or is not written. Record the last drill's report."""
    last, control = stored.drill, stored.control
    if control.is_paused(call.now) or control.restoring:
        state = "paused" if control.is_paused(call.now) else "being restored"
        raise BadRequestError(f"{call.cluster} is {state}, so no zone would be fenced: resume it first")
    if fenced := sorted(fenced_zones(stored.zones, call.now)):
        raise BadRequestError(
            f"zone {fenced[0]} of {call.cluster} is fenced already: begin a drill once that fence ends"
        )
    if last is not None and not last.is_recorded:  # its time has ended since the last check
        record_report(call.ports.store, call.cluster, last.as_of(call.now), stored.versions)


def _healthy_plan(call: Call) -> Plan:
    """Return the plan of a cluster that can be read and has no incident."""
    evaluated = call.evaluate(with_demand=True)
    if evaluated.preview is None:
        raise ClusterUnavailableError(f"{call.cluster} cannot be read, so no drill begins: {evaluated.unread}")
    for incident in evaluated.cluster_health.incidents:
        text = incident_headline(incident, evaluated.now)
        raise BadRequestError(f"{call.cluster} has an open incident: {text}: begin a drill once it is closed")
    return evaluated.preview.plan


def _zone_of(call: Call, fields: DrillFields, stored: StoredCluster, plan: Plan | None) -> str:
    """Return the zone's name in the machine API, if the plan knows the zone's other name."""
    zone = one_zone(call, "drill", fields, stored)
    pools = () if plan is None else plan.pools
    return zone_called(stored.record.zone_ids.get(zone, zone), [each.group for pool in pools for each in pool.groups])


def _known_zone(call: Call, fields: DrillFields, stored: StoredCluster, plan: Plan) -> str:
    """Return the zone's name. Raises BadRequestError if no pool has a node group there."""
    zone = _zone_of(call, fields, stored, plan)
    zones = sorted(zones_of(plan))
    if zone in zones:
        return zone
    known = f"its zones are {', '.join(zones[:20])}" if zones else "it has none"
    raise BadRequestError(f"zone is {quote(zone)}: no pool of {call.cluster} is there; {known}{near(zone, zones)}")


def _not_written(call: Call, stored: StoredCluster, zone: str, pools: Sequence[PoolPlan]) -> dict[str, Any] | None:
    """Return the answer if dry run keeps the zone from being fenced; None: at least one of its groups is fenced.

    Raises BadRequestError if no group of the zone is fenced for another reason.
    """
    dry, paused = call.dry_pools(stored, pools), [*stored.control.pools_paused(call.now)]
    restored = stored.control.restoring_pools
    live = [pool for pool in pools if pool not in dry and pool.mode.valid and _has_fence(pool, zone)]
    if any(not is_called(pool.id, [*paused, *restored]) for pool in live):
        return None
    if not dry:
        why = 'each pool or node group is paused, invalid, frozen, or has evenkeel.dev/fence "false"'
        raise BadRequestError(f"zone {zone} of {call.cluster} would not be fenced: {why}")
    text = f"zone {zone} of {call.cluster} is not fenced: a drill in dry run is only a forecast"
    names = sorted({pool.id.name for pool in dry})
    return {"message": f"{PLANNED_ONLY}: {text}", "dryRun": True, "plannedOnly": names}


def _has_fence(pool: PoolPlan, zone: str) -> bool:
    """Return True if a fence of the zone limits a group of the pool."""
    groups = [plan for plan in pool.groups if plan.group.identity.zone == zone]
    return any(plan.writable and plan.group.annotations.fencing_enabled for plan in groups)
