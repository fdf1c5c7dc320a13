"""One pass of converge by hand: running nodes of a pool are moved, one by one, until its zones are level."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Name
from evenkeel.application.convergence.summary import course_words
from evenkeel.application.errors import BadRequestError
from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.application.rebalancing.preview import find_pool, preview_of
from evenkeel.domain.model.convergence import PASS_LASTS
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.values import quote
from evenkeel.texts.english import counted, sentence


class LevelFields(Fields):
    """A pool, whatever its level says."""

    pool: Annotated[Name, Field(description="The pool, by name or id.")]
    dry_run: Flag = Field(default=False, description="Only say which steps would follow.")


def level(call: Call, fields: LevelFields) -> Answer:
    remembered = call.load()
    asked = {**remembered.control.convergence_requested, fields.pool: call.now}
    wanted = replace(remembered, control=remembered.control.model_copy(update={"convergence_requested": asked}))
    preview = preview_of(call.clusters, wanted, call.now, call.remaining, with_demand=True)
    pool = find_pool(preview, fields.pool)
    told = pool.converging
    if told is None:
        raise BadRequestError(
            f"pool is {quote(fields.pool)}: it is invalid, or too few of its groups are here: plan it"
        )
    if all(plan.state is State.FROZEN for plan in pool.groups):
        raise BadRequestError(
            f"pool is {quote(fields.pool)}: all of its groups are frozen, so none of its nodes is moved"
        )
    subject = f"pool {fields.pool} of {call.cluster}"
    answer: Answer = {"pool": pool_json(pool), "steps": [{"from": here, "to": there} for here, there in told.course]}
    if not told.course and told.step is None:
        return {**answer, "done": False, "message": f"{subject}: its zones are level: no node has to be moved"}
    waits = "" if told.why is None else f"; it waits: {sentence(told.why)}"
    under_way = "a step is under way, then " if told.step is not None and not told.begins else ""
    steps = f"{under_way}{counted(len(told.course), 'step')}{': ' if told.course else ''}{course_words(told)}{waits}"
    if fields.dry_run:
        return {**answer, "done": False, "message": f"{subject}: dry run: {steps}"}
    call.change_control(remembered, {"convergence_requested": asked})
    call.request_look("level")
    hours = int(PASS_LASTS.total_seconds() // 3600)
    answer["message"] = f"{subject} is brought home, for {hours} hours at most: {steps}"
    return call.with_dry_run(answer, remembered, [pool])
