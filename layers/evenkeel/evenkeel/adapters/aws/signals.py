"""What a signal source is made of: rows from (source, detail-type) to a parser, and the parts that events share.

Events are hints, so a parser claims little: a node group only where the event names it, else a look at the cluster. No
endpoint, credential or namespace to connect to is ever taken from an event: it only names a cluster that is registered,
and a group in it.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.application.rebalancing.events import Ignored, InboundEvent
from evenkeel.validation import Moment

Parser = Callable[[Mapping[str, Any]], InboundEvent]
"""From an event as EventBridge delivers it. Raises ConfigError where a field that it needs has no usable value."""
Rows = Mapping[tuple[str, str], Parser]
"""By source and detail-type; ``*`` in either stands for any text, as in a pattern of EventBridge."""

Text = Annotated[str, Field(max_length=8192)]
ShortText = Annotated[str, Field(max_length=256)]
Id = Annotated[str, Field(min_length=1, max_length=256)]


class EventPart(BaseModel):
    """A part of an event. Its senders are many and not ours: unknown fields are let be."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Envelope(EventPart):
    """What EventBridge puts around every detail."""

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
    requestParameters: dict[str, Any] | None = None  # noqa: N815
    responseElements: dict[str, Any] | None = None  # noqa: N815


def ignored(kind: str, reason: str) -> Ignored:
    """An event that says nothing for us, and why."""
    return Ignored(kind=kind, reason=one_line(reason, 500))


def one_line(text: str, length: int) -> str:
    """Text that can be written anywhere: JSON may carry half characters that UTF-8 has no bytes for."""
    return " ".join(text[: 4 * length].encode(errors="replace").decode().split())[:length]
