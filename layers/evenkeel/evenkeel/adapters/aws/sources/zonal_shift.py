"""ARC's zonal shifts and autoshifts: AWS or an operator of the account moves traffic away from a zone.

FIS rehearses them whole, so its experiments count as well; practice runs do not.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from evenkeel.adapters.aws.signals import Envelope, EventPart, Parser, Rows
from evenkeel.application.rebalancing.events import InboundEvent, ZoneShift
from evenkeel.validation import read_model

ARC = "aws.arc-zonal-shift"
MANUAL_SHIFT = "ARC zonal shift"
_AUTOSHIFT = "ARC autoshift"
_EXPERIMENT = "ARC autoshift, FIS experiment"


class ShiftedZone(EventPart):
    """The zone that traffic is shifted away from."""

    awayFrom: Annotated[str, Field(pattern=r"^[a-z0-9-]{3,32}$")]  # noqa: N815  a zone's id, such as use1-az1


class _Shift(EventPart):
    metadata: ShiftedZone


def _shift(source: str, *, impaired: bool) -> Parser:
    def parse(event: Mapping[str, Any]) -> InboundEvent:
        envelope = read_model(Envelope, event, "zonal shift event")
        detail = read_model(_Shift, event.get("detail"), "zonal shift event: detail")
        return ZoneShift(
            zone=detail.metadata.awayFrom,
            region=envelope.region,
            impaired=impaired,
            at=envelope.time,
            until=None,  # the event has no end; RecordZoneShift knows the longest
            by=source,
            id=envelope.id,
        )

    return parse


ROWS: Rows = {
    (ARC, "Autoshift In Progress"): _shift(_AUTOSHIFT, impaired=True),
    (ARC, "Autoshift Completed"): _shift(_AUTOSHIFT, impaired=False),
    (ARC, "FIS Experiment Autoshift In Progress"): _shift(_EXPERIMENT, impaired=True),
    (ARC, "FIS Experiment Autoshift Completed"): _shift(_EXPERIMENT, impaired=False),
    (ARC, "FIS Experiment Autoshift Canceled"): _shift(_EXPERIMENT, impaired=False),
    (ARC, "Manual Shift Started"): _shift(MANUAL_SHIFT, impaired=True),
    (ARC, "Manual Shift Updated"): _shift(MANUAL_SHIFT, impaired=True),
    (ARC, "Manual Shift Canceled"): _shift(MANUAL_SHIFT, impaired=False),
}
