"""Record decisions: in the table and the log, on the bus, and as Kubernetes Events about the written objects."""

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

_DECISIONS_KEPT = timedelta(days=30)
_MOST_DRY_EVENTS = 20  # limit of Events for one decision in dry run, because each Event is a write to the cluster


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records the decisions of one run; the summary lists their ids."""

    ports: RunPorts
    summary: RunSummary
    api: Cluster
    reason: str

    def decide(
        self,
        pool: PoolPlan,
        state: PoolState,
        outcomes: Mapping[GroupKey, Outcome],
        *,
        dry_run: bool,
        shows_dry_run: bool = False,
    ) -> None:
        """Record the decision for a pool.

        ``state``: the pool's state before the decision. ``shows_dry_run``: send Events also in dry run.
        """
        decision = self._decision(pool, outcomes, dry_run=dry_run)
        self._save(decision)
        written_groups = [group for group in pool.changes if _is_written(outcomes.get(group.group.key))]
        for detail_type in _detail_types(pool, state, wrote=bool(written_groups)):
            self.ports.bus.publish(detail_type.value, decision)
        for group in pool.changes[:_MOST_DRY_EVENTS] if dry_run and shows_dry_run else written_groups:
            self.api.emit_event(group, decision["id"], dry_run=dry_run)

    def fixed(self, pool: PoolPlan, changes: Sequence[Mapping[str, Any]], *, dry_run: bool) -> None:
        """Record fixes that an operator agreed to. Fixes are not published on the bus."""
        self._save({**self._decision(pool, {}, dry_run=dry_run), "fixed": list(changes)})

    def _decision(self, pool: PoolPlan, outcomes: Mapping[GroupKey, Outcome], *, dry_run: bool) -> dict[str, Any]:
        return decision_json(
            pool,
            id=self.ports.new_id(),
            cluster=self.summary.cluster,
            at=self.ports.clock.now(),
            reason=self.reason,
            dry_run=dry_run,
            outcomes=outcomes,
        )

    def _save(self, decision: Mapping[str, Any]) -> None:
        cluster, expires = self.summary.cluster, self.ports.clock.now() + _DECISIONS_KEPT
        self.ports.store.save_decision(cluster, decision["id"], decision, expires)
        self.summary.decisions.append(decision["id"])
        # The table and the event have the whole decision.
        short = {name: decision[name] for name in ("id", "cause", "dryRun")}
        short["pool"] = {"name": decision["pool"]["name"]}
        _log.info("decision", extra={"cluster": cluster, "decision": short})


def _is_written(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.result is Result.WRITTEN


def is_failing(pool: PoolPlan, state: PoolState) -> tuple[str, ...]:
    """Return the groups that count as published failures from now on: the fenced and the probing groups.

    A frozen or unhealthy group counts only if it was published as failing before.
    """
    return tuple(
        str(plan.group.key)
        for plan in pool.groups
        if plan.state is State.FENCED
        or (plan.state is State.PROBING and plan.group.status.unhealthy is None)
        or (plan.state is not State.HEALTHY and str(plan.group.key) in state.is_failing)
    ) + _absent(pool, state)


def _absent(pool: PoolPlan, state: PoolState) -> tuple[str, ...]:
    """Return the groups published as failing that this check did not find.

    Once a second check has confirmed their absence, return none.
    """
    if not (pool.awaits_check and state.is_failing):
        return ()
    here = {str(plan.group.key) for plan in pool.groups}
    return tuple(key for key in state.is_failing if key not in here)


def _detail_types(pool: PoolPlan, state: PoolState, *, wrote: bool) -> list[DetailType]:
    """Return the detail-types of a decision; ``state``: the pool's state before the decision."""
    is_failing = set(state.is_failing)
    events = {
        DetailType.POOL_INVALID: not pool.mode.valid,
        DetailType.POOL_STARVED: pool.report.starved > 0,
        DetailType.WRITE_CONTESTED: bool(pool.report.contested),
        DetailType.NODE_GROUPS_REBALANCED: wrote,
        DetailType.NODE_GROUP_FENCED: any(
            plan.state is State.FENCED and str(plan.group.key) not in is_failing for plan in pool.groups
        ),
        DetailType.NODE_GROUP_RECOVERED: any(
            plan.state is State.HEALTHY and str(plan.group.key) in is_failing for plan in pool.groups
        ),
    }
    return [detail_type for detail_type, is_so in events.items() if is_so]
