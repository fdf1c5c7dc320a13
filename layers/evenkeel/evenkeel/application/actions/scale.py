"""Nodes added to a pool, or given back, split evenly over its zones; written by the worker like all else."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, GroupName, PoolName
from evenkeel.application.errors import AccessError, BadRequestError, ClusterUnavailableError
from evenkeel.application.rebalancing.events import EventResult, ScaleRequestEvent
from evenkeel.application.rebalancing.preview import find_group, find_pool, preview_of
from evenkeel.application.rebalancing.request_scale import RequestScale
from evenkeel.domain.model.values import quote
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.validation import read_model


def _count(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(f"nodes is {quote(value)}: ask for a whole number of nodes, 1 or more")
    return value


class ScaleFields(Fields):
    """A pool or a group. What a request may look like beyond that, its record says."""

    nodes: Annotated[int, BeforeValidator(_count), Field(description="How many nodes.")]
    pool: PoolName = None
    group: GroupName = None
    only: Annotated[tuple[str, ...], Field(description="A group that the pods fit; may be given more than once.")] = ()
    id: Annotated[str | None, Field(description="Asked twice under one id, it is done once.")] = None


def scale_up(call: Call, fields: ScaleFields) -> Answer:
    return _scale(call, "scale-up", fields, fields.nodes)


def scale_down(call: Call, fields: ScaleFields) -> Answer:
    return _scale(call, "scale-down", fields, -fields.nodes)


def _scale(call: Call, action: str, fields: ScaleFields, nodes: int) -> Answer:
    if (fields.group is None) == (fields.pool is None):
        raise BadRequestError(f"{action} needs a pool or a group: name one of them")
    record = read_model(
        ScaleRequestRecord,
        {
            "id": f"hand-{call.now.timestamp()}" if fields.id is None else fields.id,
            "nodes": nodes,
            "pool": fields.pool or "",
            "group": fields.group or "",
            "only": fields.only,
            "at": call.now,
            "by": call.by or "",
        },
        action,
    )
    remembered, pools = call.load(), []
    try:
        preview = preview_of(call.clusters, remembered, call.now, call.remaining)
    except (AccessError, ClusterUnavailableError):
        pass  # it is kept for an hour: whoever can read the cluster by then finds out
    else:
        by_pool = fields.pool is not None
        pools = [find_pool(preview, str(fields.pool)) if by_pool else find_group(preview, str(fields.group))[0]]
    outcome = RequestScale(store=call.store, queue=call.queue, clock=call.clock).store_and_ask(
        ScaleRequestEvent(cluster=call.cluster, record=record)
    )
    answer = {"request": record.id, "message": outcome.message}
    return answer if outcome.result is EventResult.KNOWN else call.with_dry_run(answer, remembered, pools)
