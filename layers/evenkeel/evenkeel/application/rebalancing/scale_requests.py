"""Advance and answer the stored requests for nodes, from the plan of a run."""

import logging
from dataclasses import dataclass

from evenkeel.application.ports import Bus, DetailType
from evenkeel.application.rebalancing.ports import ClusterClock
from evenkeel.application.rebalancing.run_state import RunState
from evenkeel.domain.model.plans import PoolPlan, Refusal
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.texts.english import counted, problem_text, rfc3339

_log = logging.getLogger("evenkeel.rebalance")


@dataclass(frozen=True, kw_only=True)
class ScaleRequests:
    """The stored requests for nodes of one cluster."""

    run_state: RunState
    clock: ClusterClock

    @property
    def _cluster(self) -> str:
        return self.run_state.stored.record.id

    def keep_in_time(self, pool: PoolPlan) -> None:
        """Store that a request older than an hour has started, so that it does not expire after a crash."""
        request = (
            self.run_state.scale_requests.get(pool.request.current.id) if pool.request.current is not None else None
        )
        now = self.clock.now()
        if request is not None and request.scale_request().is_over(now):
            self.run_state.save_scale_request(request.model_copy(update={"stepped_at": now}))

    def answer(self, pool: PoolPlan, *, dry_run: bool) -> bool:
        """Answer the pool's request if it is done. Return True if the answer must be recorded in a decision.

        The answer is stored before the journal is closed, because a request that is neither answered nor in the journal
        would be repeated. A dry run closes no journal.
        """
        if pool.request.current is None or not pool.mode.valid:
            return False
        request = self.run_state.scale_requests.get(pool.request.current.id)
        if request is None or request.done:
            return not dry_run
        if pool.request.later and not dry_run:
            if not pool.keeps_journal:
                self._save_rest(request, pool.request.missing + pool.request.later)
            return False
        self.run_state.end_scale_request(request, _answer(pool, request, dry_run=dry_run))
        return True

    def _save_rest(self, request: ScaleRequestRecord, left: int) -> None:
        """Store how many nodes later runs must add or remove.

        The number is absolute, so it does no harm to store it twice.
        """
        before = abs(request.nodes) if request.left is None else request.left
        if left != before:
            self.run_state.save_scale_request(request.model_copy(update={"left": left, "stepped_at": self.clock.now()}))

    def refuse(self, refusal: Refusal, bus: Bus) -> None:
        """Answer and publish that no pool accepts a request, unless a pool may accept it later."""
        request = self.run_state.scale_requests[refusal.scale_request.id]
        unfound_since = refusal.scale_request.unfound_since
        if unfound_since != request.unfound_since:
            self.run_state.save_scale_request(request.model_copy(update={"unfound_since": unfound_since}))
        if not refusal.waits:
            reason = problem_text(refusal.problem)
            verb = "added" if request.nodes > 0 else "removed"
            added = "" if request.left is None else f"{counted(request.added)} {verb}, the rest is "
            result = f"{added}refused: {reason}"
            detail = {"cluster": self._cluster, "id": request.id, "nodes": request.nodes, "by": request.by}
            detail |= {"pool": request.pool, "group": request.group, "requestedAt": rfc3339(request.at)}
            # Published first: a run that is killed in between publishes the event again, with the same id.
            bus.publish(DetailType.REQUEST_REFUSED, {**detail, "message": result})
            self.run_state.end_scale_request(request, result)
            _log.error("refused: %s", reason, extra={"cluster": self._cluster})


def _answer(pool: PoolPlan, request: ScaleRequestRecord, *, dry_run: bool) -> str:
    """Return the result of a request over all its runs, as text for `status`."""
    unplaced = "could not be placed" if request.nodes > 0 else "have to stay"
    missing = f", {pool.request.missing} more {unplaced}" if pool.request.missing else ""
    if dry_run and request.left is not None:
        more = f"{request.left - pool.request.missing} more{missing}"
        return f"{counted(request.added)} in pool {pool.id}, dry run: {more}"
    placed = counted(abs(request.nodes) - pool.request.missing)
    return f"{'dry run: ' if dry_run else ''}{placed} in pool {pool.id}{missing}"
