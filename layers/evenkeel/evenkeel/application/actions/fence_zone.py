"""No growth in one zone until a moment; one that is over lifts the fence."""

from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Ending, length
from evenkeel.application.errors import BadRequestError, ClusterUnavailableError, EvenkeelError, contained
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.events import ZoneShift
from evenkeel.application.rebalancing.observe import observe_cluster
from evenkeel.application.rebalancing.preview import preview_of
from evenkeel.application.rebalancing.zones import OPERATOR, RecordZoneShift, check_zone
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.values import quote
from evenkeel.texts.english import rfc3339

_SECONDS_TO_READ = 3
_ZoneName = Annotated[str | None, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class FenceZoneFields(Ending):
    """A zone and an end are needed: a fence without one would be forgotten. One that lasts no time lifts it."""

    zone: Annotated[_ZoneName, Field(description="The zone's name or id, as the cluster has it.")] = None
    zone_id: Annotated[
        _ZoneName, Field(description="AWS's id of the zone, which is the same in every account; such as euc1-az2.")
    ] = None
    lasting: Annotated[
        timedelta | None,
        BeforeValidator(partial(length, or_none=True)),
        Field(alias="for", description="How long: 2h, 90m, 1d; 0m lifts the fence."),
    ] = None


def fence_zone_touches(call: Call, fields: FenceZoneFields) -> Answer | None:
    """Nothing, where the cluster has no such zone. Raises where nobody could be asked: it may have one."""
    remembered = call.load()
    try:
        zone, doubt = _zone(call, fields, remembered)
    except BadRequestError:
        return None
    return {"message": f"{call.cluster}: zone {zone}{doubt}", "alike": f"zone {zone}{doubt}"}


def fence_zone(call: Call, fields: FenceZoneFields) -> Answer:
    until, remembered = fields.end(call.now), call.load()
    if until is None:
        raise BadRequestError("fence-zone: until is missing: say when the fence ends, or for how long it lasts")
    zone, doubt = _zone(call, fields, remembered)
    impaired = until > call.now
    shift = ZoneShift(zone=zone, region="", impaired=impaired, at=call.now, until=until, by=OPERATOR, id="hand")
    zone_shifts = RecordZoneShift(store=call.store, queue=call.queue, clock=call.clock)
    zone_shifts.record(call.cluster, zone, shift)
    if impaired:
        end = rfc3339(until)
        answer = {
            "message": f"zone {zone} of {call.cluster} is fenced until {end}: its groups get no "
            f"growth. To lift it, ask again for 0m{doubt}",
            "alike": f"zone {zone} is fenced until {end}, or until asked again for 0m{doubt}",
        }
        planned = {
            "message": f"zone {zone} of {call.cluster} would be fenced until {end}; nothing is written. "
            f"To lift it, ask again for 0m{doubt}",
            "alike": f"zone {zone} would be fenced until {end}, or until asked again for 0m; nothing is written{doubt}",
        }
        return call.with_dry_run(answer, remembered, _pools_in(call, zone, remembered), planned)
    others = ", ".join(zone_shifts.still_impaired(call.cluster, zone))
    subject = f"zone {zone} of {call.cluster}"
    answer = {
        "message": f"{subject} is no longer fenced (that moment is over)",
        "alike": f"zone {zone} is no longer fenced",
    }
    planned = {
        "message": f"{subject} would no longer be fenced (that moment is over); nothing is written",
        "alike": f"zone {zone} would no longer be fenced; nothing is written",
    }
    if others:
        still = f"{subject} is no longer fenced by hand (that moment is over); it is still impaired, says {others}"
        answer = planned = {"message": still}
    return call.with_dry_run(answer, remembered, _pools_in(call, zone, remembered), planned)


def _pools_in(call: Call, zone: str, remembered: StoredCluster) -> list[PoolPlan]:
    """Return the pools with a group in the zone; none where the cluster does not answer soon.

    The fence is stored by now, and the answer is not to wait long for a cluster in trouble.
    """
    name, begun = remembered.record.zone_ids.get(zone, zone), call.clock.now()

    def remaining() -> float:
        return min(call.remaining(), _SECONDS_TO_READ - (call.clock.now() - begun).total_seconds())

    if remembered.is_unreachable:
        return []
    try:
        plan = preview_of(call.clusters, remembered, call.now, remaining).plan
    except EvenkeelError:
        return []
    return [pool for pool in plan.pools if any(group.group.zone == name for group in pool.groups)]


def _zone(call: Call, fields: FenceZoneFields, remembered: StoredCluster) -> tuple[str, str]:
    """The zone that is meant, and what the answer must add where it could not be checked. Raises BadRequestError."""
    if (fields.zone is None) == (fields.zone_id is None):
        raise BadRequestError("fence-zone needs a zone or a zone_id: name one of them")
    if fields.zone is not None:
        observe = lambda: observe_cluster(call.clusters, remembered.record, call.remaining)[1]  # noqa: E731
        return fields.zone, check_zone(remembered, fields.zone, observe)
    return _zone_of_id(call, str(fields.zone_id), remembered), ""


def _zone_of_id(call: Call, id: str, remembered: StoredCluster) -> str:
    """What the cluster calls a zone: its record says, or AWS where this account buys the machines, or their nodes.

    Never guessed: two accounts have the same names for different zones.
    """
    record = remembered.record
    if id in record.zone_ids:
        return record.zone_ids[id]
    problems = []
    if record.is_of_this_account:
        try:
            if (name := call.zone_names(record.region).get(id)) is not None:
                return name
        except EvenkeelError as error:
            problems.append(str(error))
    try:
        ask = partial(call.clusters.zone_ids, record, call.remaining)
        if (name := contained(record.id, "it was read", ask).get(id)) is not None:
            return name
    except EvenkeelError as error:
        problems.append(str(error))
    if problems:
        raise ClusterUnavailableError(
            f"zone_id is {quote(id)}: nobody could say what {record.id} calls that zone ({'; '.join(problems)}): "
            "name it in its zone_ids, or fence it by its zone's name"
        )
    raise BadRequestError(
        f"zone_id is {quote(id)}: neither the record of {record.id} nor its nodes name that zone: "
        "name it in its zone_ids, or fence it by its zone's name"
    )
