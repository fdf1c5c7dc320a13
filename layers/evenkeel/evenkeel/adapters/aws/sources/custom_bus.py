"""Reads events that other programs send to the stack's bus: reports of failures, and requests for nodes."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from evenkeel.adapters.aws.signals import Envelope, EventPart, Id, Rows, Text, ignored
from evenkeel.application.rebalancing.events import Failure, InboundEvent, ScaleRequestEvent
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.validation import ClusterId, KubernetesName, Moment, read_model


class _Failure(EventPart):
    cluster: ClusterId
    namespace: KubernetesName
    kind: Text = ""
    name: KubernetesName | None = None
    machine: KubernetesName | None = None
    zone: Text | None = None
    code: Text
    message: Text = ""
    occurredAt: Moment  # noqa: N815  the documented name of the field
    id: Id


def _failure(event: Mapping[str, Any]) -> InboundEvent:
    detail = read_model(_Failure, event.get("detail"), "failure event: detail")
    if detail.name is None and detail.machine is None:
        return ignored("malformed", "failure event: detail names neither the scalable (name) nor the machine (machine)")
    of_machine = detail.kind == "Machine"
    return Failure(
        cluster=detail.cluster,
        namespace=detail.namespace,
        name=None if of_machine else detail.name,
        machine=detail.machine or (detail.name if of_machine else None),
        code=detail.code,
        message=detail.message,
        occurred_at=detail.occurredAt,
        id=detail.id,
    )


class _ScaleRequest(EventPart):
    cluster: ClusterId
    pool: Text = ""
    group: Text = ""
    nodes: Annotated[int, Field(ge=1, strict=True)]
    only: tuple[Text, ...] = ()
    occurredAt: Moment | None = None  # noqa: N815  as in the failure event
    id: Id


def _scale_request(event: Mapping[str, Any]) -> InboundEvent:
    envelope = read_model(Envelope, event, "scale-up event")
    detail = read_model(_ScaleRequest, event.get("detail"), "scale-up event: detail")
    fields = {"id": detail.id, "nodes": detail.nodes, "pool": detail.pool, "group": detail.group, "only": detail.only}
    fields["by"] = "/".join(str(event.get(name) or "?")[:256] for name in ("account", "source"))
    record = read_model(
        ScaleRequestRecord, {**fields, "at": detail.occurredAt or envelope.time}, "scale-up event: detail"
    )
    return ScaleRequestEvent(cluster=detail.cluster, record=record)


ROWS: Rows = {
    ("evenkeel.provisioning", "Machine Provisioning Failed"): _failure,
    ("evenkeel.provisioning", "Scale-Up Requested"): _scale_request,
}
