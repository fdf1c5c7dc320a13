"""Which pools of a cluster are being restored, and the record once nothing of ours is left in them."""

from dataclasses import replace
from datetime import datetime

from evenkeel.config import ClusterRecord
from evenkeel.domain.model.groups import Observation, PoolId
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.restore import carries_ours


def policy_of(record: ClusterRecord) -> Policy:
    """What a run plans by: the record's wishes, and what is being restored."""
    return replace(record.policy(), restoring=record.leaving, restoring_pools=record.leaving_pools)


def plan_for(record: ClusterRecord, observation: Observation, state: ClusterState, now: datetime) -> Plan:
    """The plan of a run, and of whoever asks what a run would do."""
    return plan(observation, state, policy_of(record), now)


def leaves(record: ClusterRecord, id: PoolId) -> bool:
    """Whether this pool is being left: by itself, or with the whole cluster."""
    return record.leaving or is_called(id, record.leaving_pools)  # asked for each pool: no policy is made for it


def after_leaving(record: ClusterRecord, plan: Plan) -> tuple[ClusterRecord, str] | None:
    """The record with what has been left paused for good, and a sentence for people; None: nothing has been."""
    unfinished = [pool.id for pool in plan.pools if any(carries_ours(group.group) for group in pool.groups)]
    if record.leaving:
        if unfinished:
            return None
        update = {"leaving": False, "paused": True, "paused_until": None, "leaving_pools": ()}
        return record.model_copy(update=update), "restored, and paused: nothing of ours is left in it"
    finished = [name for name in record.leaving_pools if not any(is_called(id, [name]) for id in unfinished)]
    if not finished:
        return None
    leaving = tuple(name for name in record.leaving_pools if name not in finished)
    paused = {**record.paused_pools, **dict.fromkeys(finished)}
    sentence = f"restored, and paused: pool {', '.join(finished)}: nothing of ours is left in it"
    return record.model_copy(update={"leaving_pools": leaving, "paused_pools": paused}), sentence
