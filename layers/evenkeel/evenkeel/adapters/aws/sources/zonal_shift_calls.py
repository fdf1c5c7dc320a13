"""The calls that start or prolong a manual zonal shift, as CloudTrail records them: ARC's own events have no end."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from evenkeel.adapters.aws.signals import CloudTrailCall, Envelope, Rows, ignored
from evenkeel.adapters.aws.sources.zonal_shift import ARC, MANUAL_SHIFT, ShiftedZone
from evenkeel.application.rebalancing.events import InboundEvent, ZoneShift
from evenkeel.domain.model.values import quote
from evenkeel.validation import read_model

_EXPIRES_IN = re.compile(r"([1-9][0-9]{0,3})([mh])")  # the API's own pattern


def _shift_call(event: Mapping[str, Any]) -> InboundEvent:
    """The call that starts or prolongs a manual shift: the only sign of when it expires."""
    envelope = read_model(Envelope, event, "zonal shift call")
    detail = read_model(CloudTrailCall, event.get("detail"), "zonal shift call: detail")
    if detail.eventName not in ("StartZonalShift", "UpdateZonalShift") or detail.errorCode:
        return ignored("no failure", f"zonal shift call: {quote(detail.eventName)} sets no end, or failed")
    request = detail.requestParameters or {}
    expiry = _EXPIRES_IN.fullmatch(str(request.get("expiresIn")))
    if expiry is None:
        return ignored("no failure", f"zonal shift call: {detail.eventName} sets no end")
    # UpdateZonalShift is asked by the shift's id; its answer says the zone.
    zone = {"awayFrom": request.get("awayFrom") or (detail.responseElements or {}).get("awayFrom")}
    shifted = read_model(ShiftedZone, zone, "zonal shift call: detail")
    return ZoneShift(
        zone=shifted.awayFrom,
        region=envelope.region,
        impaired=True,
        at=envelope.time,
        until=envelope.time + timedelta(minutes=int(expiry[1]) * (60 if expiry[2] == "h" else 1)),
        by=MANUAL_SHIFT,
        id=detail.eventID or envelope.id,
    )


ROWS: Rows = {(ARC, "AWS API Call via CloudTrail"): _shift_call}
