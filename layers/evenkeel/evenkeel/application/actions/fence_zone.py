"""No growth in one zone until a moment; one that is over lifts the fence."""

from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.events import ZoneShift
from evenkeel.application.observing import observe_cluster
from evenkeel.application.words import rfc3339
from evenkeel.application.zones import OPERATOR, RecordZoneShift, check_zone
from evenkeel.config import Moment


class FenceZoneFields(Fields):
    """Both are needed: a fence without an end would be forgotten."""

    zone: Annotated[
        str,
        Field(
            min_length=1,
            max_length=63,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="The zone's name or id.",
        ),
    ]
    until: Annotated[Moment, Field(description="A moment, RFC 3339; one that is over lifts the fence.")]


def fence_zone(call: Call, fields: FenceZoneFields) -> Answer:
    zone, until, remembered = fields.zone, fields.until, call.load()
    doubt = check_zone(remembered, zone, lambda: observe_cluster(call.clusters, remembered.record, call.remaining)[1])
    impaired = until > call.now
    shift = ZoneShift(zone=zone, region="", impaired=impaired, at=call.now, until=until, by=OPERATOR, id="hand")
    zone_shifts = RecordZoneShift(store=call.store, queue=call.queue, clock=call.clock)
    zone_shifts.record(call.cluster, zone, shift)
    if impaired:
        return {
            "message": f"zone {zone} of {call.cluster} is fenced until {rfc3339(until)}: its groups get no "
            f"growth. To lift it, ask again with a moment that is over{doubt}"
        }
    if others := zone_shifts.still_impaired(call.cluster, zone):
        return {
            "message": f"zone {zone} of {call.cluster} is no longer fenced by hand (that moment is over); it is "
            f"still impaired, says {', '.join(others)}"
        }
    return {"message": f"zone {zone} of {call.cluster} is no longer fenced (that moment is over)"}
