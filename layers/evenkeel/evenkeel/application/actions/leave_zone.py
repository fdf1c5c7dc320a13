"""``leave-zone``: move the nodes of one zone to the other zones of their pools, a few an hour; ``back`` ends it."""

import shlex
from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Ending, Flag, PoolName, Right, action
from evenkeel.application.actions.zones import ZoneFields, one_zone
from evenkeel.application.errors import BadRequestError
from evenkeel.application.leave.forecast import forecast_of
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.preview import find_pool
from evenkeel.application.rebalancing.zones import check_zone
from evenkeel.domain.leave.model import leaves
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.values import quote
from evenkeel.domain.model.zone_names import zone_called
from evenkeel.texts.english import rfc3339, some_names


def _rate(value: object) -> object:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadRequestError(f"per_hour is {quote(value)}: ask for a whole number of nodes, 1 or more")
    return value


class LeaveZoneFields(ZoneFields, Ending):
    """A leave without an end lasts until ``back``."""

    pool: PoolName = None
    per_hour: Annotated[
        int | None,
        BeforeValidator(_rate),
        Field(description="The most nodes of the cluster that move in an hour; default: converge.per_hour per pool."),
    ] = None
    back: Flag = Field(default=False, description="End it: the zone may grow again.")
    dry_run: Flag = Field(default=False, description="Show only the forecast; move nothing.")


@action(LeaveZoneFields, Right.WRITE)
def leave_zone(call: Call, fields: LeaveZoneFields) -> Answer:
    """Move the nodes of one zone to the other zones, a few an hour. Pods that cannot move stay."""
    stored = call.load()
    before = stored.control.leave
    before = None if before is None or (before.until is not None and before.until <= call.now) else before
    if fields.back:
        return _back(call, fields, stored, before)
    leave = _wanted(call, fields, stored, before)
    wanted = replace(stored, control=stored.control.model_copy(update={"leave": leave}))
    preview = call.preview(wanted, with_demand=True)
    leaving = {pool.id for pool in preview.pools if leaves(pool, leave)}
    pools = [pool for pool in preview.plan.pools if pool.id in leaving]
    document, forecast = forecast_of(leave, pools, preview.now)
    until = "" if leave.until is None else f" until {rfc3339(leave.until)}"
    answer, subject = {"leave": document}, f"zone {leave.zone} of {call.cluster}"
    if fields.dry_run:
        return {**answer, "done": False, "message": f"{subject} would be left{until}: {forecast}"}
    if leave != before:
        call.change_control(stored, {"leave": leave})
    call.request_run("leave-zone")  # also if it is stored already, because the invocation may have been killed
    command = ["evenkeel", "leave-zone", "--stack", call.ports.stack, "--cluster", call.cluster, "--back"]
    message = f"{until}: {forecast}. To end it: {shlex.join(command)}"
    planned = {**answer, "done": leave != before, "message": f"{subject} is to be left{message}"}
    return call.with_dry_run({**planned, "message": f"{subject} is left{message}"}, stored, pools, planned)


def _wanted(call: Call, fields: LeaveZoneFields, stored: StoredCluster, before: Leave | None) -> Leave:
    """Return the leave that the fields ask for. Raises BadRequestError if the cluster cannot leave the zone now."""
    until = fields.future_end(call.now)
    name = one_zone(call, "leave-zone", fields, stored)
    name, _ = check_zone(stored, stored.record.zone_ids.get(name, name), call.ports.clusters, call.remaining)
    preview = call.preview(stored)
    pool = "" if fields.pool is None else str(find_pool(preview, fields.pool).id)
    zone = zone_called(name, [each.group for each_pool in preview.plan.pools for each in each_pool.groups])
    if before is not None and (before.zone != zone or pool not in ("", before.pool)):
        left = f"{f'pool {before.pool} of ' if before.pool else ''}{call.cluster} leaves zone {before.zone}"
        raise BadRequestError(f"{left}: end that with --back first")
    if stored.drill is not None and stored.drill.is_open(call.now):
        raise BadRequestError(f"{call.cluster} has an open drill: end it before you leave a zone")
    at = call.now if before is None else before.at
    leave = Leave(zone=zone, at=at, pool=pool, per_hour=fields.per_hour, until=until)
    if not any(leaves(each, leave) for each in preview.pools):
        names = sorted(each.id.name for each in preview.pools if not pool or str(each.id) == pool)
        why = "is invalid, or has no node group there, or none in another zone"
        raise BadRequestError(f"zone {zone} of {call.cluster} cannot be left: pool {some_names(names)} {why}")
    return leave


def _back(call: Call, fields: LeaveZoneFields, stored: StoredCluster, before: Leave | None) -> Answer:
    """End the leave. Its pools level their zones again if their level is converge."""
    if others := sorted(fields.model_fields_set - {"back", "dry_run"}):
        raise BadRequestError(f"leave-zone: back ends it: leave out {', '.join(others)}")
    if stored.control.leave is not None and not fields.dry_run:
        call.change_control(stored, {"leave": None})
    if not fields.dry_run:
        call.request_run("leave-zone ended")  # also if it has ended, because the invocation may have been killed
    if before is None:
        return {"leave": None, "done": False, "message": f"{call.cluster} leaves no zone: nothing is to be ended"}
    ends = "would no longer be left" if fields.dry_run else "is no longer left"
    level = "pools with level converge level their zones again; for others, see evenkeel level"
    message = f"zone {before.zone} of {call.cluster} {ends}: its groups may grow, and {level}"
    return {"leave": None, "done": not fields.dry_run, "message": message}
