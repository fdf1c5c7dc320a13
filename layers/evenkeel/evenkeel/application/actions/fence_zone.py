"""``fence-zone``: stop scale-up in one zone until a given time. A time in the past lifts the fence."""

import shlex
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Ending, Right, action, length
from evenkeel.application.actions.zones import ZoneFields, one_zone
from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.events import ZoneShift
from evenkeel.application.rebalancing.preview import preview_of
from evenkeel.application.rebalancing.zones import OPERATOR, RecordZoneShift, check_zone
from evenkeel.domain.fleet.check_times import is_unreachable
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.texts.english import rfc3339

_SECONDS_TO_READ = 3


class FenceZoneFields(ZoneFields, Ending):
    """A zone and an end are required, because operators would forget a fence without an end."""

    lasting: Annotated[
        timedelta | None,
        BeforeValidator(partial(length, or_none=True)),
        Field(alias="for", description="How long: 2h, 90m, 1d; 0m lifts the fence."),
    ] = None


def _fence_zone_touches(call: Call, fields: FenceZoneFields) -> Answer | None:
    """Return the effect; None if the cluster has no such zone. Raises an error if the cluster's zones are unknown."""
    stored = call.load()
    try:
        zone, doubt = _zone(call, fields, stored)
    except BadRequestError:
        return None
    paused = "; paused: nothing happens before it is resumed" if stored.control.is_paused(call.now) else ""
    dry = call.in_dry_run(stored.record, stored.control)
    dry += "; the fence is stored, and applies from going live" if dry else ""
    text = f"zone {zone}{doubt}{dry}{paused}{_silence(stored)}"
    return {"message": f"{call.cluster}: {text}", "alike": text}


@action(FenceZoneFields, Right.WRITE, touches=_fence_zone_touches, spares="no such zone")
def fence_zone(call: Call, fields: FenceZoneFields) -> Answer:
    """Stop scale-up in one zone until a given time."""
    until, stored = fields.end(call.now), call.load()
    if until is None:
        raise BadRequestError("fence-zone: until is missing: say when the fence ends, or for how long it lasts")
    zone, doubt = _zone(call, fields, stored)
    impaired = until > call.now
    shift = ZoneShift(zone=zone, region="", impaired=impaired, at=call.now, until=until, by=OPERATOR, id="hand")
    zone_shifts = RecordZoneShift(store=call.ports.store, queue=call.ports.queue, clock=call.ports.clock)
    zone_shifts.record(call.cluster, zone, shift)
    others = () if impaired else zone_shifts.still_impaired(call.cluster, zone)
    doubt += _silence(stored)
    done, planned = _fenced(call, zone, rfc3339(until), doubt) if impaired else _lifted(call, zone, others)
    return call.with_dry_run(done, stored, _pools_in(call, zone, stored), planned)


def _silence(stored: StoredCluster) -> str:
    return "; unreachable: takes effect when it answers" if is_unreachable(stored.unreachable) else ""


def _fenced(call: Call, zone: str, end: str, doubt: str) -> tuple[Answer, Answer]:
    """Return the answer for a fence that is written, and the answer for a fence that is only stored."""
    command = ["evenkeel", "fence-zone", "--stack", call.ports.stack, "--cluster", call.cluster, "--zone", zone]
    lift = f"To lift it: {shlex.join([*command, '--for', '0m'])}{doubt}"
    repeat = f"; to lift it, repeat the command with --for 0m{doubt}"
    done = _answer(call, zone, f"is fenced until {end}", f": its groups get no growth. {lift}", repeat)
    return done, _answer(call, zone, f"is to be fenced until {end}", f". {lift}", repeat)


def _lifted(call: Call, zone: str, others: Sequence[str]) -> tuple[Answer, Answer]:
    """Return the answer for a fence that is lifted now, and the answer if this is only stored.

    ``others``: the sources that still report the zone as impaired.
    """
    if others:
        still = f"is no longer fenced by hand; it is still impaired, says {', '.join(others)}"
        answer = {"message": f"zone {zone} of {call.cluster} {still}"}
        return answer, answer
    return _answer(call, zone, "is no longer fenced"), _answer(call, zone, "is no longer to be fenced")


def _answer(call: Call, zone: str, state: str, after: str = "", after_alike: str = "") -> Answer:
    """Return an answer. ``alike`` lacks the cluster, so that equal answers of several clusters are shown once."""
    return {"message": f"zone {zone} of {call.cluster} {state}{after}", "alike": f"zone {zone} {state}{after_alike}"}


def _pools_in(call: Call, zone: str, stored: StoredCluster) -> list[PoolPlan]:
    """Return the pools with a node group in the zone; an empty list if the cluster does not answer in time.

    The fence is already stored, so only a few seconds are spent on a cluster that does not answer.
    """
    name, start = stored.record.zone_ids.get(zone, zone), call.ports.clock.now()

    def remaining() -> float:
        return min(call.remaining(), _SECONDS_TO_READ - (call.ports.clock.now() - start).total_seconds())

    if is_unreachable(stored.unreachable):
        return []
    try:
        plan = preview_of(call.ports.clusters, stored, call.now, remaining).plan
    except EvenkeelError:
        return []
    return [pool for pool in plan.pools if any(name in group.group.identity.zone_names for group in pool.groups)]


def _zone(call: Call, fields: FenceZoneFields, stored: StoredCluster) -> tuple[str, str]:
    """Return the zone's name, and a note if it is unknown whether the zone exists. Raises BadRequestError."""
    zone = one_zone(call, "fence-zone", fields, stored)
    if fields.zone is None:
        return zone, ""
    return check_zone(stored, zone, call.ports.clusters, call.remaining)
