"""Leave a cluster alone, or one pool of it."""

from collections.abc import Iterable
from datetime import datetime

from evenkeel.application.actions.call import Answer, Call, Ending, PoolName
from evenkeel.application.errors import BadRequestError
from evenkeel.application.incidents.notify import PAUSED
from evenkeel.application.rebalancing.preview import check_pool
from evenkeel.domain.model.pools import is_called
from evenkeel.record import ControlRecord
from evenkeel.texts.english import rfc3339


class PauseFields(Ending):
    """A pause without an end lasts until it is resumed."""

    pool: PoolName = None


def pause_touches(call: Call, fields: PauseFields) -> str | None:
    """Nothing, where a pause stands that lasts longer."""
    control = call.load().control
    if _stays(control, fields.pool, fields.end(call.now), call.now) is not None:
        return None
    held = call.still_held(control).removeprefix("; ")
    return f"{call.cluster}{': ' if held else ''}{held}"


def pause(call: Call, fields: PauseFields) -> Answer:
    """One that lasts longer is never cut short: somebody else may count on it, and after a restore it is for good."""
    remembered, pool, end = call.load(), fields.pool, fields.end(call.now)
    if end is not None and end <= call.now:
        raise BadRequestError(f"until is '{rfc3339(end)}': that is over; name a moment to come, or leave it out")
    control, subject = remembered.control, call.cluster if pool is None else f"pool {pool} of {call.cluster}"
    if pool is not None:
        check_pool(call.clusters, remembered, pool, call.now, call.remaining)
    if stays := _stays(control, pool, end, call.now):
        return {"done": False, "message": f"{subject} is paused {stays} already, and stays so: resume it first"}
    if pool is None:
        restored = control.restored and control.paused
        call.change_control(remembered, {"paused": True, "paused_until": end, "restored": restored})
        if remembered.cluster_health.outbox or remembered.closed_pools:
            call.request_look(PAUSED)
        opened = _opened(remembered.closed_pools)
        return {"message": f"{subject} is paused {_length(end)}: nothing is read from it or written to it{opened}"}
    call.change_control(remembered, {"paused_pools": {**control.paused_pools, pool: end}})
    closed = [id.name for id, state in remembered.state.pools.items() if state.closed_at and is_called(id, [pool])]
    if closed:
        call.request_look(PAUSED)
    return {"message": f"{subject} is paused {_length(end)}: it is read and counted, and left alone{_opened(closed)}"}


def _opened(pools: Iterable[str]) -> str:
    """Say what is written all the same."""
    names = ", ".join(sorted(pools))
    return f", once cluster-autoscaler can order in pool {names} again" if names else ""


def _stays(control: ControlRecord, pool: str | None, end: datetime | None, now: datetime) -> str | None:
    """How long it is paused already, where that is longer than until ``end``."""
    pauses = control.pools_paused(now)
    held = control.is_paused(now) if pool is None else pool in pauses
    until = control.paused_until if pool is None else pauses.get(pool)
    return _length(until) if held and end is not None and (until is None or until > end) else None


def _length(end: datetime | None) -> str:
    return f"until {rfc3339(end)}" if end else "until resumed"
