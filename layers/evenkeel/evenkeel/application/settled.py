"""Plans of clusters that nothing happens to: kept between looks of a warm instance, for as long as nothing does.

A plan follows from what was seen, what is remembered, and the time. Where nothing that is remembered has an end, and no
machine is waited for, time changes nothing; then the same sight of the same state is the same plan.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.application.ports import Remembered
from evenkeel.config import ControlRecord
from evenkeel.domain.model.groups import Observation
from evenkeel.domain.model.plans import Plan

# Should time change what nobody here thought of, it does so within this.
_PLANNED_AGAIN_AFTER = timedelta(minutes=5)
_MOST_GROUPS = 30_000


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """A look that found nothing to be done, nor anything that will have to be by itself."""

    remembered: Remembered
    observation: Observation
    plan: Plan


class SettledPlans:
    """By cluster, the last used last."""

    def __init__(self, most_groups: int = _MOST_GROUPS) -> None:
        self._most = most_groups
        self._plans: OrderedDict[str, _Settled] = OrderedDict()
        self._groups = 0
        self._one_at_a_time = threading.Lock()

    def plan_of(self, remembered: Remembered, observation: Observation, now: datetime) -> Plan | None:
        """The plan, if it is known to be as it was; then a run has nothing to do either."""
        with self._one_at_a_time:
            kept = self._plans.get(remembered.record.id)
        if kept is None or not kept.plan.now <= now < kept.plan.now + _PLANNED_AGAIN_AFTER:
            return None
        before = kept.remembered
        same_record = before.record == remembered.record and before.control == remembered.control
        same_state = same_record and before.versions == remembered.versions and before.state == remembered.state
        # Groups that were kept are the same objects, so this compares little.
        return kept.plan if same_state and kept.observation == observation else None

    def keep(self, remembered: Remembered, observation: Observation, plan: Plan) -> None:
        """A look has found nothing to be done."""
        with self._one_at_a_time:
            self._forget(remembered.record.id)
            if is_settled(remembered, observation, plan):
                kept = _Settled(remembered=remembered, observation=observation, plan=plan)
                self._plans[remembered.record.id] = kept
                self._groups += len(observation.groups)
            while self._groups > self._most:
                self._forget(next(iter(self._plans)))

    def _forget(self, cluster: str) -> None:
        before = self._plans.pop(cluster, None)
        self._groups -= len(before.observation.groups) if before else 0


def is_settled(remembered: Remembered, observation: Observation, plan: Plan) -> bool:
    """Whether time alone changes nothing about this plan."""
    state = remembered.state
    awaited = any(group.machines is not None or group.requested != group.running for group in observation.groups)
    has_ends = state.groups or state.zones or state.scale_requests or state.offerings or remembered.expired
    return not (
        awaited or has_ends or plan.look_at or plan.states or state.offerings is None or remembered.control != _FREE
    )


_FREE = ControlRecord()  # nothing paused, restored or fixed
