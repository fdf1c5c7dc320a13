"""What the next look would write."""

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.rebalancing.decisions import plan_json


class PlanFields(Fields):
    """A plan is of the whole cluster."""


def plan(call: Call, _fields: PlanFields) -> Answer:
    preview = call.preview(with_demand=True)
    invalid = sum(not pool.valid for pool in preview.plan.pools)
    paused = f"; {call.cluster} is paused: none of this happens until it is resumed"
    return {
        "dryRun": call.is_dry(preview.record, preview.remembered.control),
        "plan": plan_json(preview.plan),
        "message": f"pools: {len(preview.plan.pools)}, invalid: {invalid}; node groups that would change: "
        f"{len(preview.plan.changes)}{paused if preview.remembered.control.is_paused(call.now) else ''}",
    }
