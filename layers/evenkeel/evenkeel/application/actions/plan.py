"""``plan``: return the writes that the next check would make, or the observation that a forecast plays."""

from pydantic import Field

from evenkeel.access_config import AutoScalingAccess, SameAccess, WorkloadEntry
from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Right, action
from evenkeel.application.errors import BadRequestError
from evenkeel.application.rebalancing.decisions import plan_json, plan_message
from evenkeel.application.rebalancing.observe import observe, see_all_pods
from evenkeel.domain.model.observations import Observation
from evenkeel.record import ClusterRecord

_LARGEST_OBSERVATION = 5_000_000  # characters. Lambda limits answers to 6 MB.


class PlanFields(Fields):
    """Without a field, the answer is the plan."""

    observation: Flag = Field(default=False, description="Return what was read of the cluster, instead of the plan.")


@action(PlanFields, Right.READ)
def plan(call: Call, fields: PlanFields) -> Answer:
    """Return the writes of the next check."""
    if fields.observation:
        return _observation_answer(call)
    preview = call.preview(with_demand=True)
    control = preview.stored.control
    paused = f"; {call.cluster} is paused: none of this happens until it is resumed"
    return {
        "dryRun": control.is_dry(preview.record, call.ports.dry_run),
        "plan": plan_json(preview.plan),
        "poolIds": [str(pool.id) for pool in preview.plan.pools],
        "message": f"{plan_message(preview.plan)}{paused if control.is_paused(call.now) else ''}",
    }


def _observation_answer(call: Call) -> Answer:
    """Return the observation as text. Raises BadRequestError if the text is too large for an answer."""
    packed = call.ports.pack(_observation(call))
    if len(packed) > _LARGEST_OBSERVATION:
        raise BadRequestError(
            f"cluster {call.cluster}: its observation has {len(packed)} characters, and an answer has at most "
            f"{_LARGEST_OBSERVATION}: read the cluster with a context of your kubeconfig (--context)"
        )
    return {"observation": packed, "message": f"{call.cluster} is read"}


def _observation(call: Call) -> Observation:
    """Return the observation of the cluster, with all pods and nodes if they can be read."""
    clusters, stored = call.ports.clusters, call.load()
    now = call.ports.clock.now
    cluster, observation = observe(clusters, stored, call.remaining, now, judges_nodes=None)
    return see_all_pods(clusters, _with_workload(stored.record), cluster, observation, call.remaining)


def _with_workload(record: ClusterRecord) -> ClusterRecord:
    """Return the record with a workload, because checks without ``demand`` need no pods, but a forecast needs them."""
    if record.workload is not None or isinstance(record.access, AutoScalingAccess):
        return record
    return record.model_copy(update={"workload": WorkloadEntry(access=SameAccess(kind="same"))})
