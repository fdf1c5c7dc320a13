"""Observe, plan, apply, record: one run for one cluster. The only use case that writes to a cluster.

Promises kept here: without the table nothing is written (the lease is taken before the first patch); a look that
broke off leads to no action (it is an exception); a conflict leads to a new look and a new plan, at most three times;
within a pool nothing grows when a shrink before it has failed; whoever wrote comes back for a second look, because
Cluster Autoscaler's own ``/scale`` patch carries no version and can land after ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from evenkeel.application.books import Books, mark, marked_and_staying, unmark
from evenkeel.application.decisions import decision_json
from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    RejectedError,
    StateConflictError,
)
from evenkeel.application.leaving import after_leaving, leaves, plan_for
from evenkeel.application.mend import mend, written
from evenkeel.application.ports import Bus, Clock, Cluster, Clusters, Lease, Queue, Remaining, Remembered, Store
from evenkeel.config import ClusterRecord, ConfigError, GrowthRecord
from evenkeel.domain.model import State
from evenkeel.domain.moves import Move, counted
from evenkeel.domain.offer import write_adopted, write_decision
from evenkeel.domain.plan import GroupPlan, Plan, PoolPlan
from evenkeel.domain.pools import PoolState
from evenkeel.domain.ulids import ulid
from evenkeel.domain.writes import Patch, in_safe_order, patches

_log = logging.getLogger("evenkeel.rebalance")

# A fourth plan against a fourth state of the world would be as stale as the third; the next scan is a minute away.
_ROUNDS = 4
# Cluster Autoscaler's loop is 10 s; a /scale patch of its that was under way has landed by then.
SECOND_LOOK_SECONDS = 15
# A decision is of interest while somebody may still ask about it.
_DECISIONS_KEPT = timedelta(days=30)
# A patch takes up to 13 s (3 s to connect, 10 s to read); none is begun that the invocation could not see the end of.
_PATCH_SECONDS = 14


@dataclass(kw_only=True)
class Outcome:
    """What came of a run, in numbers for metrics and in one sentence."""

    cluster: str
    message: str = ""
    plan: Plan | None = None
    written: int = 0
    conflicts: int = 0
    rejected: int = 0
    unreachable: bool = False
    doubtful: bool = False  # a patch was sent and its answer lost
    dry_run: bool = False
    decisions: list[str] = field(default_factory=list)
    seconds_to_patch: list[float] = field(default_factory=list)  # from a failure to the patch that fenced its group

    def metrics(self) -> dict[str, int]:
        """What the run adds to the stack's metrics. Not per cluster: every name more would be billed."""
        pools = self.plan.pools if self.plan else ()
        groups = [group for pool in pools for group in pool.groups]
        return {
            "PatchesWritten": self.written,
            "Conflicts": self.conflicts,
            "Rejected": self.rejected,
            "RunsFailed": 0,
            "WritesContested": sum(len(pool.contested) for pool in pools),
            "ClustersUnreachable": int(self.unreachable),
            "PoolsInvalid": sum(not pool.valid for pool in pools),
            "PoolsStarved": sum(pool.starved > 0 for pool in pools),
            "PoolsOvercommitted": sum(pool.overcommitted for pool in pools),
            "GroupsFenced": sum(group.state is State.FENCED for group in groups),
            "Imbalance": max((pool.imbalance for pool in pools), default=0),
            "Headroom": sum(pool.headroom for pool in pools),
        }


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """The use case with its ports. ``chance`` gives random bytes for ids; ``dry_run`` is the stack's default."""

    store: Store
    clusters: Clusters
    queue: Queue
    bus: Bus
    clock: Clock
    chance: Callable[[int], bytes]
    dry_run: bool

    def __call__(self, cluster: str, why: str, remaining: Remaining) -> Outcome:
        """One run.

        Raises:
            UnknownClusterError: the message can never succeed.
            StateUnavailableError, LeaseHeldError: try the message again later.
        """
        outcome = Outcome(cluster=cluster)
        try:
            self._look_and_write(outcome, why, remaining)
        finally:
            # Also when the table has gone away after a patch: what was written must be looked at again.
            if outcome.written or outcome.doubtful:
                self.queue.look_again(cluster, "second look after a write", SECOND_LOOK_SECONDS)
        outcome.message = outcome.message or _sentence(outcome)
        return outcome

    def _look_and_write(self, outcome: Outcome, why: str, remaining: Remaining) -> None:
        cluster = outcome.cluster
        settled: dict[str, str] = {}  # what became of groups in earlier rounds of this run
        for attempt in range(_ROUNDS):
            try:
                remembered = self.store.load(cluster)
            except ConfigError as error:
                _not_looked_at(outcome, error)
                return
            record = remembered.record
            # Who asks for restore asks for writes: what we wrote while the cluster was on is taken back in dry run too.
            outcome.dry_run = (self.dry_run if record.dry_run is None else record.dry_run) and not record.leaving
            if is_paused(record, self.clock.now()):
                outcome.message = f"{cluster}: paused, nothing looked at"
                return
            try:
                api = self.clusters.open(record, remaining)
                observation = api.observe()
            except EvenkeelError as error:
                _not_looked_at(outcome, error)
                return
            outcome.plan = plan_for(record, observation, remembered.state, self.clock.now())
            if record.mending:
                try:
                    self._mend(outcome, outcome.plan, remembered, api, why, remaining)
                except (ConflictError, StateConflictError) as error:
                    _log.info("changed meanwhile, reading again: %s", error, extra={"cluster": cluster})
                except (ClusterUnavailableError, AccessError) as error:
                    outcome.doubtful = True
                    _not_looked_at(outcome, error)
                    return
                continue  # what is planned next, is planned with the new numbers
            try:
                again = self._carry_out(outcome, outcome.plan, remembered, api, why, remaining, settled)
            except StateConflictError as error:
                _log.info("state changed meanwhile, reading again: %s", error, extra={"cluster": cluster})
                again = True
            if not again:
                break
            if attempt < _ROUNDS - 1:
                outcome.conflicts += 1
        else:
            _log.warning("still contended after %s rounds, the next scan goes on", _ROUNDS, extra={"cluster": cluster})

    def _carry_out(
        self,
        outcome: Outcome,
        planned: Plan,
        remembered: Remembered,
        api: Cluster,
        why: str,
        remaining: Remaining,
        settled: dict[str, str],
    ) -> bool:
        """Write what the plan says. True: something was in the way, look again."""
        cluster = remembered.record.id
        books = Books(store=self.store, remembered=remembered, groups={**remembered.state.groups})
        for key, state in planned.states.items():
            books.save_group(key, state)
        again = False
        lease: Lease | None = None
        try:
            for pool in planned.pools:
                outcomes: dict[str, str] = {}
                known = remembered.state.pools.get(pool.id, PoolState())
                dry_run = outcome.dry_run and not leaves(remembered.record, pool.id)
                left_over = [] if dry_run else marked_and_staying(pool, books)
                if (pool.changes or left_over) and not dry_run and lease is None:
                    lease = self._take_lease(cluster, remembered, remaining)
                if lease is not None and left_over:
                    again |= unmark(left_over, api, books)
                if lease is not None and pool.changes and not dry_run:
                    if pool.moves or not leaves(remembered.record, pool.id):
                        known = self._write_down(pool, known, books)
                    again |= self._write(outcome, pool, known, api, lease, outcomes, settled, remaining, books)
                elif pool.changes:
                    outcomes = {str(group.group.key): "planned" for group in pool.changes}
                self._tell(outcome, pool, known, api, books, why, outcomes, dry_run)
            for refusal in planned.refusals:
                if not refusal.waits:
                    _log.error("refused: %s", refusal.reason, extra={"cluster": cluster})
                    books.end_growth(remembered.growths[refusal.growth.id], f"refused: {refusal.reason}")
            left = after_leaving(remembered.record, planned)
            if left is not None:
                record, sentence = left
                for id, pool_state in remembered.state.pools.items():
                    # Whoever comes back may find other bounds, and those are adopted then.
                    if pool_state.adopted and leaves(remembered.record, id) and not leaves(record, id):
                        books.save_pool(id, replace(pool_state, adopted={}))
                self.store.save_record(record, remembered.versions["META"])
                outcome.message = f"{cluster}: {sentence}"
        finally:
            if lease is not None:
                self.store.give_back_lease(cluster, lease, self.clock.now())
        return again

    def _mend(
        self, outcome: Outcome, planned: Plan, remembered: Remembered, api: Cluster, why: str, remaining: Remaining
    ) -> None:
        """Write the numbers that an operator has agreed to, and record it; in dry run, only that."""
        record, dry_run = remembered.record, outcome.dry_run
        lease = None if dry_run else self._take_lease(record.id, remembered, remaining)
        try:
            told, left = mend(record, planned, api, lambda: remaining() < _PATCH_SECONDS, dry_run=dry_run)
            outcome.written += written(told)
            self.store.save_record(record.model_copy(update={"mending": left}), remembered.versions["META"])
        finally:
            if lease is not None:
                self.store.give_back_lease(record.id, lease, self.clock.now())
        for pool in planned.pools:
            if changes := told.get(str(pool.id)):
                now = self.clock.now()
                id = ulid(now, self.chance(10))
                decision = decision_json(pool, id=id, cluster=record.id, at=now, why=why, dry_run=dry_run, outcomes={})
                decision["mended"] = changes
                self.store.save_decision(record.id, id, decision, now + _DECISIONS_KEPT)
                outcome.decisions.append(id)
                _log.info("decision", extra={"cluster": record.id, "decision": decision})

    def _take_lease(self, cluster: str, remembered: Remembered, remaining: Remaining) -> Lease:
        now = self.clock.now()
        owner = ulid(now, self.chance(10))
        return self.store.take_lease(
            cluster, owner, remembered.fence, now, now + timedelta(seconds=max(1.0, remaining()))
        )

    def _write_down(self, pool: PoolPlan, known: PoolState, books: Books) -> PoolState:
        """Remember what must not be lost, before the first patch: the bounds before us, and a move that begins."""
        state = known
        if not set(pool.adopted) <= set(known.adopted):
            state = replace(state, adopted={**pool.adopted, **known.adopted})
        if pool.moves:
            id = ulid(self.clock.now(), self.chance(10))
            if pool.growth is not None:
                request, only = pool.growth.id, pool.growth.only
                move = Move(id=id, carried=pool.growth.nodes, steps=pool.moves, request=request, only=only)
            else:
                owed = known.move.owed(group.group for group in pool.groups) if known.move else 0
                move = Move(id=id, carried=owed, steps=pool.moves)
            state = replace(state, move=move)
        if state != known:
            books.save_pool(pool.id, state)
        return state

    def _write(
        self,
        outcome: Outcome,
        pool: PoolPlan,
        known: PoolState,
        api: Cluster,
        lease: Lease,
        outcomes: dict[str, str],
        settled: dict[str, str],
        remaining: Remaining,
        books: Books,
    ) -> bool:
        """Patch the groups of one pool in safe order, and stop the pool at the first that fails. True: look again."""

        def late() -> bool:
            return self.clock.now() >= lease.expires or remaining() < _PATCH_SECONDS

        for group in in_safe_order(pool.changes):
            key = str(group.group.key)
            if key in settled:
                outcomes[key] = settled[key]
                return False
            try:
                for patch in patches(group):
                    if patch.lowers_requested and not late():
                        mark(api, patch, books)  # a patch per machine, so the time is looked at again
                    if late():
                        outcomes[key] = "not tried: no time left"
                        return False
                    self._apply(api, pool, known, group, patch)
                    outcome.written += 1
            except ConflictError as error:
                outcomes[key] = f"conflict: {error}"
                return True
            except RejectedError as error:
                outcome.rejected += 1
                outcomes[key] = settled[key] = f"rejected: {error}"
                _log.error("write refused: %s", error, extra={"cluster": outcome.cluster, "group": key})
                return False
            except ClusterUnavailableError as error:
                outcome.unreachable = outcome.doubtful = True
                outcomes[key] = f"unknown: {error}"
                return False
            except AccessError as error:  # the credential ran out between two patches, and there is no other
                outcome.unreachable = True
                outcomes[key] = f"not written: {error}"
                return False
            outcomes[key] = "written"
            if group.failed_at is not None:
                outcome.seconds_to_patch.append(max(0.0, (self.clock.now() - group.failed_at).total_seconds()))
        return False

    def _apply(self, api: Cluster, pool: PoolPlan, known: PoolState, group: GroupPlan, patch: Patch) -> None:
        bounds = patch.bounds or group.group.bounds
        decision = write_decision(group.offer, self.clock.now(), "; ".join(group.reasons), bounds)
        move = known.move.id if known.move and group.moved and patch.requested is not None else None
        api.apply(patch, decision, write_adopted(pool.adopted.get(str(group.group.key))), move)

    def _tell(
        self,
        outcome: Outcome,
        pool: PoolPlan,
        known: PoolState,
        api: Cluster,
        books: Books,
        why: str,
        outcomes: dict[str, str],
        dry_run: bool,
    ) -> None:
        """Record the decision if there is one, once: the same news is not told at every scan."""
        wrote = "written" in outcomes.values()
        failed = any(word not in ("written", "planned") for word in outcomes.values())
        digest = pool.digest(applied=bool(outcomes) and not failed and not dry_run)
        move = known.move
        if move is not None and not failed and not dry_run and pool.valid:
            # Every step is done: what is left of it is what found no place.
            move = replace(move, carried=pool.owed, steps={}) if pool.owed else None
        ended = pool.growth is not None and not failed and pool.valid
        if pool.growth is not None and ended:
            # Before its journal is closed: what is in neither would be carried out again. A dry run closes none.
            request = books.remembered.growths.get(pool.growth.id)
            answered = request is None or request.done
            if request is not None and not answered:
                books.end_growth(request, _result(pool, request, dry_run=dry_run))
            ended = not (answered and dry_run)
        if not ended and not outcomes and digest == known.digest and move == known.move:
            return
        # The end of trouble is news as well: then the digest that was remembered is not empty, and this one may be.
        news = wrote or digest != known.digest or ended
        if news:
            now = self.clock.now()
            id = ulid(now, self.chance(10))
            decision = decision_json(
                pool,
                id=id,
                cluster=outcome.cluster,
                at=now,
                why=why,
                dry_run=dry_run,
                outcomes=outcomes,
            )
            self.store.save_decision(outcome.cluster, id, decision, now + _DECISIONS_KEPT)
            outcome.decisions.append(id)
            _log.info("decision", extra={"cluster": outcome.cluster, "decision": decision})
            for detail_type in _detail_types(pool, wrote):
                self.bus.publish(detail_type, decision)
            for group in pool.changes:
                if outcomes.get(str(group.group.key)) == "written":
                    api.tell(group, id)
        if digest != known.digest or move != known.move:
            books.save_pool(pool.id, replace(known, digest=digest, move=move))


def _result(pool: PoolPlan, record: GrowthRecord, *, dry_run: bool) -> str:
    """What became of a whole request, also where it took several runs, for people who ask for the status."""
    left = "could not be placed" if record.nodes > 0 else "have to stay"
    missing = f", {pool.missing} more {left}" if pool.missing else ""
    done = counted(abs(record.nodes) - pool.missing)
    return f"{'dry run: ' if dry_run else ''}{done} in pool {pool.id}{missing}"


_TROUBLE = (State.FENCED, State.PROBING)


def _not_looked_at(outcome: Outcome, error: Exception) -> None:
    """The next scan tries again; a message kept in the queue would try no better."""
    outcome.unreachable = True
    outcome.message = f"{outcome.cluster}: not looked at: {error}"
    _log.error(outcome.message, extra={"cluster": outcome.cluster})


def _detail_types(pool: PoolPlan, wrote: bool) -> list[str]:
    types = []
    if not pool.valid:
        types.append("Pool Invalid")
    if pool.starved:
        types.append("Pool Starved")
    if pool.contested:
        types.append("Write Contested")
    if wrote:
        types.append("Node Groups Rebalanced")
    # What was published last says what the group was then.
    before = [plan.group.offer.state if plan.group.offer else State.HEALTHY for plan in pool.groups]
    now = [plan.state for plan in pool.groups]
    if any(new is State.FENCED is not old for old, new in zip(before, now, strict=True)):
        types.append("Node Group Fenced")
    if any(new is State.HEALTHY and old in _TROUBLE for old, new in zip(before, now, strict=True)):
        types.append("Node Group Recovered")
    return types


def is_paused(record: ClusterRecord, now: datetime) -> bool:
    """Whether the cluster is paused: for good, or until a moment that has not come yet."""
    return record.paused and (record.paused_until is None or now < record.paused_until)


def _sentence(outcome: Outcome) -> str:
    planned = outcome.plan.changes if outcome.plan else ()
    if outcome.dry_run and planned:
        return f"{outcome.cluster}: dry run: would write {len(planned)} node groups"
    if outcome.written:
        return f"{outcome.cluster}: {outcome.written} patches written, {outcome.conflicts} conflicts"
    return f"{outcome.cluster}: nothing to write"
