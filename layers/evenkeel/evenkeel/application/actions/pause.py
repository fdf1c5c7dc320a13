"""Leave a cluster alone, or one pool of it."""

from evenkeel.application.actions.call import Answer, Call, Ending, PoolName
from evenkeel.application.errors import BadRequestError
from evenkeel.application.preview import check_pool
from evenkeel.application.words import rfc3339


class PauseFields(Ending):
    """A pause without an end lasts until it is resumed."""

    pool: PoolName = None


def pause_touches(call: Call, _fields: PauseFields) -> str:
    control = call.load().control
    held = call.still_held(control).removeprefix("; ")
    return f"{call.cluster}{': ' if held else ''}{held}"


def pause(call: Call, fields: PauseFields) -> Answer:
    remembered, pool, end = call.load(), fields.pool, fields.end(call.now)
    if end is not None and end <= call.now:
        raise BadRequestError(f"until is '{rfc3339(end)}': that is over; name a moment to come, or leave it out")
    length = f"until {rfc3339(end)}" if end else "until resumed"
    if pool is None:
        call.change_control(remembered, {"paused": True, "paused_until": end})
        return {"message": f"{call.cluster} is paused {length}: nothing is read from it or written to it"}
    check_pool(call.clusters, remembered, pool, call.now, call.remaining)
    call.change_control(remembered, {"paused_pools": {**remembered.control.paused_pools, pool: end}})
    return {"message": f"pool {pool} of {call.cluster} is paused {length}: it is read and counted, and left alone"}
