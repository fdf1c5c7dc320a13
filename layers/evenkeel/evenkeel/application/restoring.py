"""Which pools of a cluster are being restored, and the record once nothing of ours is left in them."""

from dataclasses import replace
from datetime import datetime

from evenkeel.config import ClusterRecord
from evenkeel.domain.model.groups import Observation, PoolId
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.restore import carries_ours, is_restored


def policy_of(record: ClusterRecord) -> Policy:
    """What a run plans by: the record's wishes, and what is being restored."""
    return replace(record.policy(), restoring=record.leaving, restoring_pools=record.leaving_pools)


def plan_for(record: ClusterRecord, observation: Observation, state: ClusterState, now: datetime) -> Plan:
    """The plan of a run, and of whoever asks what a run would do."""
    return plan(observation, state, policy_of(record), now)


def leaves(record: ClusterRecord, id: PoolId) -> bool:
    """Whether this pool is being left: by itself, or with the whole cluster."""
    return is_restored(id, policy_of(record))


def after_leaving(record: ClusterRecord, planned: Plan) -> tuple[ClusterRecord, str] | None:
    """The record with what has been left paused for good, and a sentence for people; None: nothing has been."""
    full = [pool.id for pool in planned.pools if any(_ours(pool))]
    if record.leaving and not full:
        gone = record.model_copy(update={"leaving": False, "paused": True, "paused_until": None, "leaving_pools": ()})
        return gone, "restored, and paused: nothing of ours is left in it"
    done = [name for name in record.leaving_pools if not any(is_called(id, [name]) for id in full)]
    if not done or record.leaving:
        return None
    still = tuple(name for name in record.leaving_pools if name not in done)
    paused = {**record.paused_pools, **dict.fromkeys(done)}
    gone = record.model_copy(update={"leaving_pools": still, "paused_pools": paused})
    return gone, f"restored, and paused: pool {', '.join(done)}: nothing of ours is left in it"


def _ours(pool: PoolPlan) -> list[bool]:
    return [carries_ours(plan.group) for plan in pool.groups]
