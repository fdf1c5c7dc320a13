"""End a pause; of the cluster also what stands contested. Administrators end a restore with it, and what that left."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, PoolName
from evenkeel.application.errors import BadRequestError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.preview import check_pool
from evenkeel.record import ControlRecord

# Among so many of the newest entries, who has paused a cluster is looked for: it makes no decisions meanwhile.
_NEWEST = 20


class ResumeFields(Fields):
    """Without a pool: the whole cluster."""

    pool: PoolName = None
    restored: Flag = Field(
        default=False, description="Also one that is being restored, or was: for administrators. It is managed again."
    )


def resume_touches(call: Call, fields: ResumeFields) -> str | None:
    """Nothing, where nothing is held. Raises BadRequestError where only who administers may end that."""
    remembered = call.load()
    held = call.still_held(remembered.control).removeprefix("; ")
    contested = sum(group.contested_since is not None for group in remembered.state.groups.values())
    held = "; ".join(filter(None, (held, f"contested groups: {contested}" if contested else "")))
    if not held:
        return None
    _changes(call, remembered.control, fields)
    return f"{call.cluster}: {held}{_who(call) if remembered.control.is_paused(call.now) else ''}"


def resume(call: Call, fields: ResumeFields) -> Answer:
    remembered, pool = call.load(), fields.pool
    if pool is not None:
        check_pool(call.clusters, remembered, pool, call.now, call.remaining)
    control = call.change_control(remembered, _changes(call, remembered.control, fields))
    if pool is None:
        _end_contests(call, remembered)
    call.request_look("resumed")
    subject = call.cluster if pool is None else f"pool {pool} of {call.cluster}"
    return {"message": f"{subject} is resumed and looked at now{call.still_held(control)}"}


def _changes(call: Call, before: ControlRecord, fields: ResumeFields) -> Mapping[str, Any]:
    """What is to be changed. A pause in the midst of a restore ends, and the restore goes on."""
    pool = fields.pool
    if pool is None:
        has_left, goes_on = before.has_left, before.restoring and before.is_paused(call.now)
    else:
        has_left, goes_on = before.has_left_pool(pool), pool in before.restoring_pools and pool in before.paused_pools
    if has_left and not goes_on and not fields.restored:
        subject = call.cluster if pool is None else f"pool {pool} of {call.cluster}"
        raise BadRequestError(
            f"{subject} was restored, or is being: an administrator has it managed again with --restored"
        )
    if pool is None:
        ended = {"restoring": False, "restored": False} if fields.restored else {}
        return {"paused": False, "paused_until": None, **ended}
    ended_pools = {
        "restoring_pools": tuple(name for name in before.restoring_pools if name != pool),
        "restored_pools": tuple(name for name in before.restored_pools if name != pool),
    }
    paused_pools = {name: end for name, end in before.paused_pools.items() if name != pool}
    return {"paused_pools": paused_pools, **(ended_pools if fields.restored else {})}


def _who(call: Call) -> str:
    """Who has paused it, and why, so that nobody ends by a list what somebody else has begun for a reason."""
    entries = call.store.decisions(call.cluster, _NEWEST)
    paused = next((entry for entry in entries if entry.get("cause") == "pause"), None)
    if paused is None or not paused.get("by"):
        return ""
    return f", by {paused['by']}" + (f" ({paused['reason']})" if paused.get("reason") else "")


def _end_contests(call: Call, remembered: StoredCluster) -> None:
    """Groups that somebody else kept writing, or applies, are written again, or asked about once more."""
    for key, group in remembered.state.groups.items():
        if group.contested_since is not None or group.bounds_applied_by or group.replicas_applied_by:
            call.store.save_group(call.cluster, key, group.uncontested(), remembered.versions)
