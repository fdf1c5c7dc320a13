"""Nothing is written to a cluster any more. What stands there stays, until it is restored."""

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.errors import BadRequestError


class DryRunFields(Fields):
    """It has no fields."""


def dry_run_touches(call: Call, _fields: DryRunFields) -> str | None:
    """Nothing, where nothing is written anyway."""
    remembered = call.load()
    return None if call.is_dry(remembered.record, remembered.control) else call.cluster


def dry_run(call: Call, _fields: DryRunFields) -> Answer:
    """The rollout that has switched it on is remembered: it does not do so again."""
    remembered = call.load()
    if remembered.record.dry_run is False:
        raise BadRequestError(
            f"{call.cluster}: its record says dry_run: false, which goes before this: change it there, or pause it"
        )
    if remembered.control.live is False or remembered.record.dry_run:
        return {"done": False, "message": f"{call.cluster} is in dry run already"}
    call.change_control(remembered, {"live": False})
    return {"message": f"{call.cluster} is in dry run: nothing is written to it any more; what stands there stays"}
