"""``live`` and ``dry-run``: whether a cluster is written."""

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Right, action
from evenkeel.application.errors import BadRequestError
from evenkeel.application.rollout.readiness import Known, readiness_of
from evenkeel.application.rollout.summary import readiness_words
from evenkeel.domain.rollout.readiness import NEEDED


class LiveFields(Fields):
    """The record's dry_run comes first."""

    force: Flag = Field(default=False, description="Also a cluster that is not ready.")


def _live_touches(call: Call, fields: LiveFields) -> str | None:
    known = Known.of(call.ports.store, call.cluster, call.now)
    is_dry = call.is_dry(known.remembered.record, known.remembered.control)
    return _readiness(call, known, fields) if is_dry else None


@action(
    "live",
    "Have clusters written whose dry run has shown that they are ready; in waves, where that is asked for.",
    LiveFields,
    Right.ADMINISTER,
    touches=_live_touches,
    spares="live already",
)
def live(call: Call, fields: LiveFields) -> Answer:
    """Enable writes for a cluster that passed its dry run."""
    known = Known.of(call.ports.store, call.cluster, call.now)
    stored = known.remembered
    if not call.is_dry(stored.record, stored.control):
        return {"done": False, "message": f"{call.cluster} is live already"}
    _readiness(call, known, fields)
    control = call.change_control(stored, {"live": True, "rollout": ""})
    call.request_run("live")
    return {"message": f"{call.cluster} is live: it is looked at now, and written{call.still_held(control)}"}


def _readiness(call: Call, known: Known, fields: LiveFields) -> str:
    """Return the result of its dry run. Raises BadRequestError if it may not go live."""
    stored = known.remembered
    if stored.record.dry_run is not None:
        raise BadRequestError(
            f"{call.cluster}: its record says dry_run: true, which goes before this: take that out of it first"
        )
    readiness = readiness_of(call.ports.store, known, NEEDED, call.now)
    words = readiness_words(readiness, stored, NEEDED, call.now)
    if not readiness.is_ready and not fields.force:
        raise BadRequestError(words)
    return words


def _dry_run_touches(call: Call, _fields: Fields) -> str | None:
    stored = call.load()
    return None if call.is_dry(stored.record, stored.control) else call.cluster


@action(
    "dry-run",
    "Have nothing written to a cluster any more; what stands there stays.",
    Fields,
    Right.WRITE,
    touches=_dry_run_touches,
    spares="in dry run already",
)
def dry_run(call: Call, _fields: Fields) -> Answer:
    """Stop writes to a cluster. The id of a rollout that enabled them stays, so that it does not do so again."""
    stored = call.load()
    if stored.record.dry_run is False:
        raise BadRequestError(
            f"{call.cluster}: its record says dry_run: false, which goes before this: change it there, or pause it"
        )
    if stored.control.live is False or stored.record.dry_run:
        return {"done": False, "message": f"{call.cluster} is in dry run already"}
    call.change_control(stored, {"live": False})
    return {"message": f"{call.cluster} is in dry run: nothing is written to it any more; what stands there stays"}
