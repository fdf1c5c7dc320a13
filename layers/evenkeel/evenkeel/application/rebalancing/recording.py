"""Decisions: into the table, the log, onto the bus, and beside the objects that were written."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from evenkeel.application.ports import DetailType
from evenkeel.application.rebalancing.decisions import decision_json
from evenkeel.application.rebalancing.ports import Cluster, RunPorts
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.groups import GroupKey, State
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import PoolState

_log = logging.getLogger("evenkeel.rebalance")

# A decision is of interest while somebody may still ask about it.
_DECISIONS_KEPT = timedelta(days=30)
# Of one pool's decision: an event is a write to the cluster, which dry run is to spare.
_MOST_DRY_EVENTS = 20


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records the decisions of one run; the summary lists their ids."""

    ports: RunPorts
    summary: RunSummary
    api: Cluster
    why: str

    def decide(
        self,
        pool: PoolPlan,
        state: PoolState,
        outcomes: Mapping[GroupKey, Outcome],
        *,
        dry_run: bool,
        shows_dry_run: bool = False,
    ) -> None:
        """Tell everybody what came of a pool's plan. ``state`` is what is remembered of what was told before.

        ``shows_dry_run``: what would be written is told beside the objects, too.
        """
        decision = self._decision(pool, outcomes, dry_run=dry_run)
        self._save(decision)
        written_groups = [group for group in pool.changes if _is_written(outcomes.get(group.group.key))]
        for detail_type in _detail_types(pool, state, wrote=bool(written_groups)):
            self.ports.bus.publish(detail_type.value, decision)
        for group in pool.changes[:_MOST_DRY_EVENTS] if dry_run and shows_dry_run else written_groups:
            self.api.emit_event(group, decision["id"], dry_run=dry_run)

    def fixed(self, pool: PoolPlan, changes: Sequence[Mapping[str, Any]], *, dry_run: bool) -> None:
        """Record numbers that an operator has agreed to: nobody has to be told."""
        self._save({**self._decision(pool, {}, dry_run=dry_run), "mended": list(changes)})

    def _decision(self, pool: PoolPlan, outcomes: Mapping[GroupKey, Outcome], *, dry_run: bool) -> dict[str, Any]:
        return decision_json(
            pool,
            id=self.ports.new_id(),
            cluster=self.summary.cluster,
            at=self.ports.clock.now(),
            why=self.why,
            dry_run=dry_run,
            outcomes=outcomes,
        )

    def _save(self, decision: Mapping[str, Any]) -> None:
        cluster, expires = self.summary.cluster, self.ports.clock.now() + _DECISIONS_KEPT
        self.ports.store.save_decision(cluster, decision["id"], decision, expires)
        self.summary.decisions.append(decision["id"])
        _log.info("decision", extra={"cluster": cluster, "decision": decision})


def _is_written(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.result is Result.WRITTEN


def is_failing(pool: PoolPlan, state: PoolState) -> tuple[str, ...]:
    """The groups that are told to be in trouble from now on; a frozen one is what it was."""
    return tuple(
        str(plan.group.key)
        for plan in pool.groups
        if plan.state in (State.FENCED, State.PROBING)
        or (plan.state is State.FROZEN and str(plan.group.key) in state.is_failing)
    ) + _absent(pool, state)


def _absent(pool: PoolPlan, state: PoolState) -> tuple[str, ...]:
    """Return the groups in trouble that this check has not found, while a second check must agree."""
    here = {str(plan.group.key) for plan in pool.groups}
    return tuple(key for key in state.is_failing if key not in here) if pool.awaits_check else ()


def _detail_types(pool: PoolPlan, state: PoolState, *, wrote: bool) -> list[DetailType]:
    """What a decision is published as; ``state`` is what was remembered of the pool before."""
    is_failing = set(state.is_failing)
    events = {
        DetailType.POOL_INVALID: not pool.valid,
        DetailType.POOL_STARVED: pool.starved > 0,
        DetailType.WRITE_CONTESTED: bool(pool.contested),
        DetailType.NODE_GROUPS_REBALANCED: wrote,
        DetailType.NODE_GROUP_FENCED: any(
            plan.state is State.FENCED and str(plan.group.key) not in is_failing for plan in pool.groups
        ),
        DetailType.NODE_GROUP_RECOVERED: any(
            plan.state is State.HEALTHY and str(plan.group.key) in is_failing for plan in pool.groups
        ),
    }
    return [detail_type for detail_type, is_so in events.items() if is_so]
