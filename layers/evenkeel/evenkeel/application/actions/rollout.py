"""``rollout``: start, show or halt a rollout, in which clusters go live in waves. A schedule advances the rollout."""

import json
from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Right, action, length
from evenkeel.application.errors import BadRequestError
from evenkeel.application.rollout.rollout import rollout_json
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import quote
from evenkeel.domain.rollout.waves import Phase, Rollout, wave_size
from evenkeel.validation import ClusterId

_LARGEST = 300_000  # the most bytes of cluster ids in a rollout; DynamoDB limits an item to 400 KB


class RolloutFields(Fields):
    """Without fields, the answer is the state of the rollout."""

    members: Annotated[tuple[ClusterId, ...], Field(alias="clusters", description="The clusters, in order.")] = ()
    wave: Annotated[str, Field(max_length=10, description="How many go live at once: 5%, or 3.")] = "5%"
    soak: Annotated[
        timedelta,
        BeforeValidator(partial(length, field="soak")),
        Field(
            description="How long a wave must run without an incident before the next starts: 15m, 1h. It is extended "
            "if an incident of its clusters needs longer to open (trouble_after)."
        ),
    ] = timedelta(minutes=15)
    abort: Flag = Field(
        default=False,
        description="Halt it: the current wave goes back to dry run. One that an incident has halted is abandoned.",
    )


@action(RolloutFields, Right.READ, rights_with={"clusters": Right.ADMINISTER, "abort": Right.WRITE}, of_stack=True)
def rollout(call: Call, fields: RolloutFields) -> Answer:
    """Show or halt the rollout, in which clusters go live in waves."""
    before, version = call.ports.store.rollout()
    under_way = before is not None and not before.phase.is_over
    if fields.members:
        after = _started(call, fields)
        if before is not None and under_way:
            if before.is_repeated_by(after):
                return rollout_json(before, call.ports.stack)
            raise BadRequestError(
                f"a {rollout_json(before, call.ports.stack)['message']}: abort it first, or wait for its end"
            )
    elif fields.abort and before is not None and _can_be_halted(before):
        after = before.halting((), call.now, call.by or "", call.reason or "")
    elif before is None:
        return {"rollout": None, "message": "there was no rollout yet"}
    else:
        return rollout_json(before, call.ports.stack)
    call.ports.store.save_rollout(after, version)
    return rollout_json(after, call.ports.stack)


def _can_be_halted(rollout: Rollout) -> bool:
    """Return True if an operator may halt the rollout, or abandon a rollout that incidents halted."""
    return rollout.phase is not Phase.HALTING if not rollout.phase.is_over else bool(rollout.halts)


def _started(call: Call, fields: RolloutFields) -> Rollout:
    members = tuple(dict.fromkeys(fields.members))
    size = wave_size(fields.wave, len(members))
    if size is None:
        raise BadRequestError(f"wave is {quote(fields.wave)}: write how many go live at once, 5% or 3")
    if fields.abort:
        raise BadRequestError("abort and clusters are there: name one of the two")
    if len(json.dumps(members)) > _LARGEST:
        raise BadRequestError(f"clusters is a list of {len(members)}: roll out fewer at a time, by a selector")
    id = ulid(call.now, call.ports.random_bytes(10))
    return Rollout(
        id=id,
        at=call.now,
        size=size,
        soak=fields.soak,
        phase=Phase.WATCHING,  # there is no wave yet, so the next tick chooses the first wave
        since=call.now - fields.soak,
        trouble_after=_longest_trouble_after(call, members),
        waiting=members,
        by=call.by or "",
        reason=call.reason or "",
    )


def _longest_trouble_after(call: Call, members: tuple[str, ...]) -> timedelta | None:
    """Return the largest ``trouble_after`` in the current records of these clusters; None if no record can be read."""
    records = [record for id, record in call.registrations() if id in members and not isinstance(record, str)]
    return max((record.opens_trouble_after for record in records), default=None)
