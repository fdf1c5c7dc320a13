"""A cluster whose dry run has shown that it is ready is written from now on."""

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag
from evenkeel.application.errors import BadRequestError
from evenkeel.application.rollout.readiness import Known, readiness_of
from evenkeel.application.rollout.summary import readiness_words
from evenkeel.domain.rollout.readiness import NEEDED


class LiveFields(Fields):
    """What the record says of dry run goes before this."""

    force: Flag = Field(default=False, description="Also a cluster that is not ready.")


def live_touches(call: Call, fields: LiveFields) -> str | None:
    """Nothing, where it is live already. Raises BadRequestError where it may not go live."""
    known = Known.of(call.store, call.cluster, call.now)
    is_dry = call.is_dry(known.remembered.record, known.remembered.control)
    return _checked(call, known, fields) if is_dry else None


def live(call: Call, fields: LiveFields) -> Answer:
    known = Known.of(call.store, call.cluster, call.now)
    remembered = known.remembered
    if not call.is_dry(remembered.record, remembered.control):
        return {"done": False, "message": f"{call.cluster} is live already"}
    _checked(call, known, fields)
    control = call.change_control(remembered, {"live": True, "rollout": ""})
    call.request_look("live")
    return {"message": f"{call.cluster} is live: it is looked at now, and written{call.still_held(control)}"}


def _checked(call: Call, known: Known, fields: LiveFields) -> str:
    """What its dry run has shown. Raises BadRequestError."""
    remembered = known.remembered
    if remembered.record.dry_run is not None:
        raise BadRequestError(
            f"{call.cluster}: its record says dry_run: true, which goes before this: take that out of it first"
        )
    found = readiness_of(call.store, known, NEEDED, call.now)
    words = readiness_words(found, remembered, NEEDED, call.now)
    if not found.is_ready and not fields.force:
        raise BadRequestError(words)
    return words
