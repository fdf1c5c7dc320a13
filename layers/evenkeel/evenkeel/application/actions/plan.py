"""``plan``: return the writes that the next check would make."""

from evenkeel.application.actions.call import Answer, Call, Fields, Right, action
from evenkeel.application.rebalancing.decisions import plan_json


@action(Fields, Right.READ)
def plan(call: Call, _fields: Fields) -> Answer:
    """Return the writes of the next check."""
    preview = call.preview(with_demand=True)
    control = preview.stored.control
    invalid = sum(not pool.mode.valid for pool in preview.plan.pools)
    paused = f"; {call.cluster} is paused: none of this happens until it is resumed"
    return {
        "dryRun": control.is_dry(preview.record, call.ports.dry_run),
        "plan": plan_json(preview.plan),
        "message": f"pools: {len(preview.plan.pools)}, invalid: {invalid}; node groups that would change: "
        f"{len(preview.plan.changes)}{paused if control.is_paused(call.now) else ''}",
    }
