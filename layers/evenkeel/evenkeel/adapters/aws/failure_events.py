"""What a provisioning failure looks like on the bus: a table from (source, detail-type) to a parser.

One new event shape is one new row. What no row knows is explained and acknowledged. No endpoint, credential or
namespace to connect to is ever taken from an event: it only names a node group of a cluster that is registered.
"""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from evenkeel.application.errors import BadRequestError
from evenkeel.application.failure import Failure
from evenkeel.config import ClusterId, ConfigError, KubernetesName, read_model
from evenkeel.domain.values import shown

# EventBridge's own limit for an entry. What arrives larger came by another way, and is no event.
LARGEST_EVENT = 256 * 1024
_Text = Annotated[str, Field(max_length=8192)]


class _Detail(BaseModel):
    """The native event's detail; README, "Failure events". Fields that we do not know are let be."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    cluster: ClusterId
    namespace: KubernetesName
    kind: _Text = ""
    name: KubernetesName | None = None
    machine: KubernetesName | None = None
    zone: _Text | None = None
    code: _Text
    message: _Text = ""
    occurredAt: AwareDatetime  # noqa: N815  the contract's own name
    id: Annotated[str, Field(min_length=1, max_length=256)]


def _native(event: Mapping[str, Any]) -> Failure:
    detail = read_model(_Detail, event.get("detail"), "failure event: detail")
    if detail.name is None and detail.machine is None:
        raise BadRequestError("failure event: detail names neither the scalable (name) nor the machine (machine)")
    machine = detail.machine if detail.name is None else detail.name if detail.kind == "Machine" else None
    return Failure(
        cluster=detail.cluster,
        namespace=detail.namespace,
        name=None if machine else detail.name,
        machine=machine,
        code=detail.code,
        message=detail.message,
        occurred_at=detail.occurredAt,
        id=detail.id,
        zone=detail.zone,
    )


PARSERS: dict[tuple[str, str], Callable[[Mapping[str, Any]], Failure]] = {
    ("evenkeel.provisioning", "Machine Provisioning Failed"): _native,
}


def read_failure(event: object) -> Failure:
    """The failure that an event reports.

    Raises:
        BadRequestError: the event is of no known shape, too large, or has a bad value. It never becomes right.
    """
    if not isinstance(event, Mapping):
        raise BadRequestError("event: not an object")
    try:
        size = len(json.dumps(event))
    except (TypeError, ValueError, RecursionError):
        raise BadRequestError("event: nested too deeply, or not JSON") from None
    if size > LARGEST_EVENT:
        raise BadRequestError(f"event: {size} bytes; an event has at most {LARGEST_EVENT}")
    source, kind = str(event.get("source")), str(event.get("detail-type"))
    parser = PARSERS.get((source, kind))
    if parser is None:
        raise BadRequestError(f"event: no parser for source {shown(source)} and detail-type {shown(kind)}")
    try:
        return parser(event)
    except ConfigError as error:
        raise BadRequestError(str(error)) from None
