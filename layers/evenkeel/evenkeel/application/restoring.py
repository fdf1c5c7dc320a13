"""The plan of a run, and what is paused once nothing of ours is left in what was being restored."""

from datetime import datetime

from evenkeel.application.ports import Remembered
from evenkeel.config import ControlRecord
from evenkeel.domain.model.groups import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.plan import plan
from evenkeel.domain.restore import carries_ours


def plan_for(remembered: Remembered, observation: Observation, now: datetime) -> Plan:
    """The plan of a run, and of whoever asks what a run would do."""
    return plan(observation, remembered.state, remembered.policy, now)


def after_leaving(control: ControlRecord, planned: Plan) -> tuple[ControlRecord, str] | None:
    """With what has been restored paused for good, and a sentence for people; None: nothing has been."""
    full = [pool.id for pool in planned.pools if any(_ours(pool))]
    if control.restoring and not full:
        pause = {"restoring": False, "paused": True, "paused_until": None, "restoring_pools": ()}
        return control.model_copy(update=pause), "restored, and paused: nothing of ours is left in it"
    done = [name for name in control.restoring_pools if not any(is_called(id, [name]) for id in full)]
    if not done or control.restoring:
        return None
    still = tuple(name for name in control.restoring_pools if name not in done)
    paused = {**control.paused_pools, **dict.fromkeys(done)}
    after = control.model_copy(update={"restoring_pools": still, "paused_pools": paused})
    return after, f"restored, and paused: pool {', '.join(done)}: nothing of ours is left in it"


def _ours(pool: PoolPlan) -> list[bool]:
    return [carries_ours(plan.group) for plan in pool.groups]
