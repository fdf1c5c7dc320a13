"""Reads events of ARC's zonal shifts and autoshifts. In a shift, AWS or a user moves traffic away from a zone.

The events of FIS experiments fence the zone, because these experiments affect the whole zone. Practice runs fence no
zone. ARC's events do not state when a shift ends. Only CloudTrail's records of the API calls that start or extend a
manual shift state its end.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from evenkeel.adapters.aws.signals import CloudTrailCall, Envelope, EventPart, Parser, Rows, ignored
from evenkeel.application.rebalancing.events import InboundEvent, ZoneShift
from evenkeel.domain.model.values import quote
from evenkeel.validation import read_model

_ARC = "aws.arc-zonal-shift"
_MANUAL_SHIFT = "ARC zonal shift"
_AUTOSHIFT = "ARC autoshift"
_EXPERIMENT = "ARC autoshift, FIS experiment"


class _ShiftedZone(EventPart):
    """The zone that traffic is shifted away from."""

    awayFrom: Annotated[str, Field(pattern=r"^[a-z0-9-]{3,32}$")]  # noqa: N815  a zone's id, such as use1-az1


class _Shift(EventPart):
    metadata: _ShiftedZone


def _shift(source: str, *, impaired: bool) -> Parser:
    def parse(event: Mapping[str, Any]) -> InboundEvent:
        envelope = read_model(Envelope, event, "zonal shift event")
        detail = read_model(_Shift, event.get("detail"), "zonal shift event: detail")
        return ZoneShift(
            zone=detail.metadata.awayFrom,
            region=envelope.region,
            impaired=impaired,
            at=envelope.time,
            until=None,  # RecordZoneShift limits the duration
            by=source,
            id=envelope.id,
        )

    return parse


_EXPIRES_IN = re.compile(r"([1-9][0-9]{0,3})([mh])")  # the pattern in ARC's API


def _shift_call(event: Mapping[str, Any]) -> InboundEvent:
    """Return a manual shift with its end, which no other event states."""
    envelope = read_model(Envelope, event, "zonal shift call")
    detail = read_model(CloudTrailCall, event.get("detail"), "zonal shift call: detail")
    if detail.eventName not in ("StartZonalShift", "UpdateZonalShift") or detail.errorCode:
        return ignored("no failure", f"zonal shift call: {quote(detail.eventName)} sets no end, or failed")
    request = detail.requestParameters or {}
    expiry = _EXPIRES_IN.fullmatch(str(request.get("expiresIn")))
    if expiry is None:
        return ignored("no failure", f"zonal shift call: {detail.eventName} sets no end")
    # A request of UpdateZonalShift has only the shift's id; its answer has the zone.
    zone = {"awayFrom": request.get("awayFrom") or (detail.responseElements or {}).get("awayFrom")}
    shifted = read_model(_ShiftedZone, zone, "zonal shift call: detail")
    return ZoneShift(
        zone=shifted.awayFrom,
        region=envelope.region,
        impaired=True,
        at=envelope.time,
        until=envelope.time + timedelta(minutes=int(expiry[1]) * (60 if expiry[2] == "h" else 1)),
        by=_MANUAL_SHIFT,
        id=detail.eventID or envelope.id,
    )


ROWS: Rows = {
    (_ARC, "AWS API Call via CloudTrail"): _shift_call,
    (_ARC, "Autoshift In Progress"): _shift(_AUTOSHIFT, impaired=True),
    (_ARC, "Autoshift Completed"): _shift(_AUTOSHIFT, impaired=False),
    (_ARC, "FIS Experiment Autoshift In Progress"): _shift(_EXPERIMENT, impaired=True),
    (_ARC, "FIS Experiment Autoshift Completed"): _shift(_EXPERIMENT, impaired=False),
    (_ARC, "FIS Experiment Autoshift Canceled"): _shift(_EXPERIMENT, impaired=False),
    (_ARC, "Manual Shift Started"): _shift(_MANUAL_SHIFT, impaired=True),
    (_ARC, "Manual Shift Updated"): _shift(_MANUAL_SHIFT, impaired=True),
    (_ARC, "Manual Shift Canceled"): _shift(_MANUAL_SHIFT, impaired=False),
}
