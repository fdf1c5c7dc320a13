"""Types for the event sources: parsers by source and detail-type, and the fields that events share.

Events are hints. A parser returns a node group only if the event names one. Any other event only causes a check of the
cluster. An event can select only a registered cluster and a known node group, never an endpoint or a credential.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.application.rebalancing.events import Ignored, InboundEvent
from evenkeel.validation import Moment

Parser = Callable[[Mapping[str, Any]], InboundEvent]
"""Parses an event that EventBridge has delivered. Raises ConfigError if a required field has a bad value."""
Rows = Mapping[tuple[str, str], Parser]
"""Parsers by source and detail-type; ``*`` matches any text, as in a pattern of EventBridge."""

Text = Annotated[str, Field(max_length=8192)]
ShortText = Annotated[str, Field(max_length=256)]
Id = Annotated[str, Field(min_length=1, max_length=256)]


class EventPart(BaseModel):
    """A part of an event. Unknown fields are ignored, because events have many different senders."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Envelope(EventPart):
    """The fields that every event of EventBridge has in addition to its detail."""

    id: Id
    time: Moment
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{0,64}$")] = ""


class CloudTrailCall(EventPart):
    """A call of an AWS API, as CloudTrail records it."""

    eventSource: ShortText  # noqa: N815
    eventName: ShortText  # noqa: N815
    eventID: Id | None = None  # noqa: N815
    errorCode: ShortText | None = None  # noqa: N815
    errorMessage: str | None = None  # noqa: N815
    userAgent: str = ""  # noqa: N815
    userIdentity: dict[str, Any] = {}  # noqa: N815
    requestParameters: dict[str, Any] | None = None  # noqa: N815
    responseElements: dict[str, Any] | None = None  # noqa: N815


def ignored(kind: str, reason: str) -> Ignored:
    """Return the result for an event that is ignored, with the reason."""
    return Ignored(kind=kind, reason=one_line(reason, 500))


def one_line(text: str, length: int) -> str:
    """Return a text as one line of valid UTF-8, cut to ``length``. Text from JSON may contain half a surrogate pair."""
    return " ".join(text[: 4 * length].encode(errors="replace").decode().split())[:length]
