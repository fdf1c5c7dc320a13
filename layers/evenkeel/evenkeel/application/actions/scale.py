"""``scale-up``, ``scale-down`` and ``level``: store requests to add, give back or move nodes, which runs carry out."""

from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, GroupName, Name, PoolName, Right, action
from evenkeel.application.convergence.summary import course_text
from evenkeel.application.errors import AccessError, BadRequestError, ClusterUnavailableError
from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.application.rebalancing.events import EventResult, ScaleRequestEvent
from evenkeel.application.rebalancing.preview import find_group, find_pool
from evenkeel.application.rebalancing.request_scale import RequestScale
from evenkeel.domain.model.convergence import PASS_LASTS
from evenkeel.domain.model.values import quote
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.texts.english import counted, sentence
from evenkeel.validation import read_model


def _count(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(f"nodes is {quote(value)}: ask for a whole number of nodes, 1 or more")
    return value


class ScaleFields(Fields):
    """A request for nodes of either a pool or a group. ``ScaleRequestRecord`` validates the values."""

    nodes: Annotated[int, BeforeValidator(_count), Field(description="How many nodes.")]
    pool: PoolName = None
    group: GroupName = None
    only: Annotated[tuple[str, ...], Field(description="A group that the pods fit; may be given more than once.")] = ()
    id: Annotated[str | None, Field(description="Requests with the same id are carried out once.")] = None


class LevelFields(Fields):
    """The pool to level. Its ``level`` setting may have any value."""

    pool: Annotated[Name, Field(description="The pool, by name or id.")]
    dry_run: Flag = Field(default=False, description="Only show the steps.")


@action(ScaleFields, Right.WRITE)
def scale_up(call: Call, fields: ScaleFields) -> Answer:
    """Add nodes to a pool, split evenly over its zones."""
    return _scale(call, "scale-up", fields, fields.nodes)


@action(ScaleFields, Right.WRITE)
def scale_down(call: Call, fields: ScaleFields) -> Answer:
    """Give nodes of a pool back, from the largest zones first."""
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
    stored, pools = call.load(), []
    try:
        preview = call.preview(stored)
    except (AccessError, ClusterUnavailableError):
        pass  # the request is stored for an hour, and the first run that can read the cluster carries it out
    else:
        by_pool = fields.pool is not None
        pools = [find_pool(preview, str(fields.pool)) if by_pool else find_group(preview, str(fields.group))[0]]
    outcome = RequestScale(store=call.ports.store, queue=call.ports.queue, clock=call.ports.clock).store_and_ask(
        ScaleRequestEvent(cluster=call.cluster, record=record)
    )
    answer = {"request": record.id, "message": outcome.message}
    return answer if outcome.result is EventResult.KNOWN else call.with_dry_run(answer, stored, pools)


@action(LevelFields, Right.WRITE)
def level(call: Call, fields: LevelFields) -> Answer:
    """Move nodes of a pool one by one, once, until its zones are level."""
    stored = call.load()
    asked = {**stored.control.convergence_requested, fields.pool: call.now}
    wanted = replace(stored, control=stored.control.model_copy(update={"convergence_requested": asked}))
    preview = call.preview(wanted, with_demand=True)
    pool = find_pool(preview, fields.pool)
    converging = pool.convergence.report
    if converging is None:
        raise BadRequestError(
            f"pool is {quote(fields.pool)}: it is invalid, or too few of its groups are here: plan it"
        )
    if not any(plan.writable for plan in pool.groups):
        raise BadRequestError(
            f"pool is {quote(fields.pool)}: all of its groups are frozen, so none of its nodes is moved"
        )
    subject = f"pool {fields.pool} of {call.cluster}"
    course = converging.course
    answer: Answer = {"pool": pool_json(pool), "steps": [{"from": here, "to": there} for here, there in course]}
    if not course and converging.step is None:
        return {**answer, "done": False, "message": f"{subject}: its zones are level: no node has to be moved"}
    waits = "" if converging.why is None else f"; it waits: {sentence(converging.why)}"
    under_way = "a step is under way, then " if converging.step is not None and not converging.begins else ""
    steps = f"{under_way}{counted(len(course), 'step')}{': ' if course else ''}{course_text(converging)}{waits}"
    if fields.dry_run:
        return {**answer, "done": False, "message": f"{subject}: dry run: {steps}"}
    call.change_control(stored, {"convergence_requested": asked})
    call.request_run("level")
    hours = int(PASS_LASTS.total_seconds() // 3600)
    answer["message"] = f"{subject} is brought home, for {hours} hours at most: {steps}"
    return call.with_dry_run(answer, stored, [pool])
