"""End a pause, or a restore that is still under way; of the cluster also what stands contested."""

from evenkeel.application.actions.call import Answer, Call, Fields, PoolName
from evenkeel.application.ports import Remembered
from evenkeel.application.preview import check_pool


class ResumeFields(Fields):
    """Without a pool: the whole cluster."""

    pool: PoolName = None


def resume_touches(call: Call, _fields: ResumeFields) -> str | None:
    """Nothing, where nothing is held."""
    remembered = call.load()
    held = call.still_held(remembered.control).removeprefix("; ")
    contested = sum(group.contested_since is not None for group in remembered.state.groups.values())
    held = "; ".join(filter(None, (held, f"contested groups: {contested}" if contested else "")))
    return f"{call.cluster}: {held}" if held else None


def resume(call: Call, fields: ResumeFields) -> Answer:
    remembered, pool = call.load(), fields.pool
    if pool is None:
        control = call.change_control(remembered, {"paused": False, "paused_until": None, "restoring": False})
        _end_contests(call, remembered)
    else:
        check_pool(call.clusters, remembered, pool, call.now, call.remaining)
        before = remembered.control
        paused_pools = {name: end for name, end in before.paused_pools.items() if name != pool}
        restoring_pools = tuple(name for name in before.restoring_pools if name != pool)
        control = call.change_control(remembered, {"paused_pools": paused_pools, "restoring_pools": restoring_pools})
    call.request_look("resumed")
    subject = call.cluster if pool is None else f"pool {pool} of {call.cluster}"
    return {"message": f"{subject} is resumed and looked at now{call.still_held(control)}"}


def _end_contests(call: Call, remembered: Remembered) -> None:
    """Groups that somebody else kept writing, or applies, are written again, or asked about once more."""
    for key, group in remembered.state.groups.items():
        if group.contested_since is not None or group.bounds_applied_by or group.replicas_applied_by:
            call.store.save_group(call.cluster, key, group.uncontested(), remembered.versions)
