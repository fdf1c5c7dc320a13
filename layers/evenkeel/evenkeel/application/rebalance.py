"""Observe, plan, apply, record: one run for one cluster. The only use case that writes to a cluster.

Promises kept here: without the table nothing is written (the lease is taken before the first patch); a look that
broke off leads to no action (it is an exception); a conflict leads to a new look and a new plan, at most three times;
every fence is written before the first machine is marked, and no write waits for one that it does not rest on: what
shrinks depends on nothing, what grows in a pool on all that shrinks there; a group that refuses to be written is
planned around; whoever wrote comes back for a second look, and one such look is due at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from evenkeel.application.decisions import decision_json
from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    RejectedError,
    StateConflictError,
    StateUnavailableError,
)
from evenkeel.application.fix import mend, written
from evenkeel.application.observing import contained, in_trouble, observe_cluster
from evenkeel.application.ports import (
    Bus,
    Clock,
    Cluster,
    Clusters,
    Lease,
    Queue,
    Remaining,
    Remembered,
    Store,
    Together,
    in_turn,
)
from evenkeel.application.restoring import after_leaving, plan_for
from evenkeel.application.run_state import RunState, mark, marked_and_staying, unmark
from evenkeel.application.words import counted, problem_words, sentences
from evenkeel.config import ConfigError, ScaleRequestRecord
from evenkeel.domain.annotations import write_adopted, write_decision
from evenkeel.domain.looks import next_timer
from evenkeel.domain.model.groups import GroupKey, Observation, PoolId, State
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.writes import Patch, fence_first, grows, in_safe_order, is_complete, patches

_log = logging.getLogger("evenkeel.rebalance")

# A fourth plan against a fourth state of the world would be as stale as the third; the next scan is a minute away.
_ROUNDS = 4
# A decision is of interest while somebody may still ask about it.
_DECISIONS_KEPT = timedelta(days=30)
# Items that are over, deleted in one run: they do no harm, and a run has better things to do.
_FORGOTTEN_AT_ONCE = 20
# A group whose write was refused is left alone for so long. Tried at every look, and planned around each time, its pool
# would be written to and fro.
_REFUSED_FOR = timedelta(minutes=5)
# A patch takes up to 13 s (3 s to connect, 10 s to read); none is begun that the invocation could not see the end of.
_PATCH_SECONDS = 14


@dataclass(kw_only=True)
class Outcome:
    """What came of a run, in numbers for metrics and in one sentence."""

    cluster: str
    message: str = ""
    plan: Plan | None = None
    writes: list[str] = field(default_factory=list)  # the objects that were patched, one entry a patch
    conflicts: int = 0
    rejected: int = 0
    unreachable: bool = False
    doubtful: bool = False  # a patch was sent and its answer lost
    dry_run: bool = False
    decisions: list[str] = field(default_factory=list)
    seconds_to_patch: list[float] = field(default_factory=list)  # from a failure to the patch that fenced its group

    @property
    def written(self) -> int:
        """How many patches were written."""
        return len(self.writes)

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
    """The use case with its ports.

    ``chance`` gives random bytes for ids; ``dry_run`` is the stack's default; ``together`` carries writes out.
    """

    store: Store
    clusters: Clusters
    queue: Queue
    bus: Bus
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool
    together: Together = in_turn

    def __call__(self, cluster: str, why: str, remaining: Remaining) -> Outcome:
        """One run.

        Raises:
            UnknownClusterError: the message can never succeed.
            StateUnavailableError, LeaseHeldError: try the message again later.
        """
        outcome = Outcome(cluster=cluster)
        look = _Looks()
        try:
            self._look_and_write(outcome, why, remaining, look)
        finally:
            # Also when the table has gone away after a patch: what was written must be looked at again.
            self._look_again(outcome, look)
        outcome.message = outcome.message or _sentence(outcome)
        return outcome

    def _look_and_write(self, outcome: Outcome, why: str, remaining: Remaining, looks: _Looks) -> None:
        cluster = outcome.cluster
        refused: dict[GroupKey, str] = {}  # groups whose writes this run, or one just before it, has seen refused
        for attempt in range(_ROUNDS):
            try:
                remembered = looks.remembered = self.store.load(cluster)
            except ConfigError as error:
                _not_looked_at(outcome, error)
                return
            record, control = remembered.record, remembered.control
            # Who asks for restore asks for writes: what we wrote while the cluster was on is taken back in dry run too.
            outcome.dry_run = record.is_dry(self.dry_run) and not control.restoring
            if control.is_paused(self.clock.now()):
                outcome.message = f"{cluster}: paused, nothing looked at"
                return
            try:
                api, observation = observe_cluster(self.clusters, record, remaining, in_trouble(remembered.state))
                now = self.clock.now()
                refused = {**_refused_lately(remembered.state, now), **refused}
                observation = _without(observation, refused)
                planned = contained(cluster, "it was planned", partial(plan_for, remembered, observation, now))
            except EvenkeelError as error:
                _not_looked_at(outcome, error)
                return
            outcome.plan = planned
            run = _Run(
                ports=self,
                outcome=outcome,
                remembered=remembered,
                api=api,
                why=why,
                remaining=remaining,
                refused=refused,
            )
            if control.fixes:
                try:
                    run.mend(outcome.plan)
                except (ConflictError, StateConflictError) as error:
                    _log.info("changed meanwhile, reading again: %s", error, extra={"cluster": cluster})
                except (ClusterUnavailableError, AccessError) as error:
                    outcome.doubtful = True
                    _not_looked_at(outcome, error)
                    return
                continue  # what is planned next, is planned with the new numbers
            known = len(refused)
            try:
                conflict = run.carry_out(outcome.plan)
            except StateConflictError as error:
                _log.info("state changed meanwhile, reading again: %s", error, extra={"cluster": cluster})
                conflict = True
            if not conflict and len(refused) == known:
                break
            outcome.conflicts += int(conflict and attempt < _ROUNDS - 1)
        else:
            _log.warning("still contended after %s rounds, the next scan goes on", _ROUNDS, extra={"cluster": cluster})

    def _look_again(self, outcome: Outcome, looks: _Looks) -> None:
        """Ask for the look that is due next, if none is that comes sooner."""
        remembered, now = looks.remembered, self.clock.now()
        before = remembered.timer if remembered else None
        timer, seconds = next_timer(
            before,
            now,
            wrote=outcome.written > 0,
            doubtful=outcome.doubtful,
            wanted=outcome.plan.look_at if outcome.plan else None,
        )
        if seconds is not None:
            reason = "second look after a write" if outcome.written or outcome.doubtful else "a look is due"
            self.queue.look_again(outcome.cluster, reason, seconds)
        if remembered is not None and timer is not None and timer != before:
            try:
                self.store.save_timer(outcome.cluster, timer, remembered.versions)
            except (StateConflictError, StateUnavailableError) as error:
                _log.info("timer not remembered: %s", error, extra={"cluster": outcome.cluster})


@dataclass
class _Looks:
    """What the last look of a run was made from."""

    remembered: Remembered | None = None


def _refused_lately(state: ClusterState, now: datetime) -> dict[GroupKey, str]:
    """The groups whose writes have just been refused, and why."""
    return {
        key: known.write_refused
        for key, known in state.groups.items()
        if known.write_refused_at is not None and now < known.write_refused_at + _REFUSED_FOR
    }


def _without(observation: Observation, refused: Mapping[GroupKey, str]) -> Observation:
    """The observation, with groups frozen that refuse to be written: the others are planned around them."""
    if not refused:
        return observation
    groups = tuple(
        replace(group, frozen_because=group.frozen_because or f"its write was refused: {refused[group.key]}")
        if group.key in refused
        else group
        for group in observation.groups
    )
    return replace(observation, groups=groups)


@dataclass(kw_only=True)
class _Run:
    """One plan of one cluster on its way to the cluster."""

    ports: Rebalance
    outcome: Outcome
    remembered: Remembered
    api: Cluster
    why: str
    remaining: Remaining
    refused: dict[GroupKey, str]
    lease: Lease | None = None
    conflict: bool = False  # somebody has changed what was read: look again
    known: dict[PoolId, PoolState] = field(default_factory=dict)  # as it is remembered by now
    outcomes: dict[GroupKey, str] = field(default_factory=dict)
    run_state: RunState = field(init=False)

    def __post_init__(self) -> None:
        self.run_state = RunState(
            store=self.ports.store, remembered=self.remembered, groups={**self.remembered.state.groups}
        )
        self.known = dict(self.remembered.state.pools)

    def carry_out(self, planned: Plan) -> bool:
        """Write what the plan says, fences first, what grows last. True: look again, what was read has changed."""
        for key, state in planned.states.items():
            self.run_state.save_group(key, state)
        try:
            written = [pool for pool in planned.pools if not self._is_dry(pool)]
            left_over = {pool.id: marked_and_staying(pool, self.run_state) for pool in written}
            if any(pool.changes or left_over[pool.id] for pool in written):
                self._take_lease()
            for pool in planned.pools:
                self._write_down(pool)
            if self.lease is not None:
                for pool in written:
                    self.conflict |= bool(left_over[pool.id]) and unmark(left_over[pool.id], self.api, self.run_state)
                self._write(written)
                self._remember_refusals()
            for pool in planned.pools:
                self._tell(pool)
            for refusal in planned.refusals:
                if not refusal.waits:
                    _log.error("refused: %s", problem_words(refusal.problem), extra={"cluster": self.outcome.cluster})
                    request = self.remembered.scale_requests[refusal.scale_request.id]
                    self.run_state.end_scale_request(request, f"refused: {problem_words(refusal.problem)}")
            self._after_leaving(planned)
            self._clean_up()
        finally:
            if self.lease is not None:
                self.ports.store.give_back_lease(self.outcome.cluster, self.lease, self.ports.clock.now())
        return self.conflict

    def _clean_up(self) -> None:
        """Delete what is over: events lead to it, and who hears them may set nothing by which it would go by itself."""
        for expired in self.remembered.expired[:_FORGOTTEN_AT_ONCE]:
            try:
                self.ports.store.forget(self.outcome.cluster, expired, self.remembered.versions)
            except StateConflictError:
                continue  # it is news again

    def _is_dry(self, pool: PoolPlan) -> bool:
        return self.outcome.dry_run and not self.remembered.control.restores(pool.id)

    def _after_leaving(self, planned: Plan) -> None:
        before = self.remembered.control
        left = after_leaving(before, planned)
        if left is None:
            return
        control, sentence = left
        for id, state in self.known.items():
            # Whoever comes back may find other bounds, and those are adopted then.
            if state.adopted and before.restores(id) and not control.restores(id):
                self._remember(id, replace(state, adopted={}, seen=None, published=None))
        self.ports.store.save_record(self.remembered.record, control, self.remembered.versions)
        self.outcome.message = f"{self.outcome.cluster}: {sentence}"

    def mend(self, planned: Plan) -> None:
        """Write the numbers that an operator has agreed to, and record it; in dry run, only that."""
        record, control, store = self.remembered.record, self.remembered.control, self.ports.store
        dry_run = self.outcome.dry_run
        if not dry_run:
            self._take_lease()
        try:
            told, left = mend(
                control.fixes, planned, self.api, lambda: self.remaining() < _PATCH_SECONDS, dry_run=dry_run
            )
            self.outcome.writes += ["pool-max"] * written(told)
            store.save_record(record, control.model_copy(update={"fixes": left}), self.remembered.versions)
        finally:
            if self.lease is not None:
                store.give_back_lease(record.id, self.lease, self.ports.clock.now())
        for pool in planned.pools:
            if changes := told.get(str(pool.id)):
                self._decide(pool, {}, dry_run=dry_run, mended=changes)

    def _take_lease(self) -> None:
        now = self.ports.clock.now()
        self.lease = self.ports.store.take_lease(
            self.outcome.cluster,
            ulid(now, self.ports.random_bytes(10)),
            self.remembered.fencing_token,
            now,
            now + timedelta(seconds=max(1.0, self.remaining())),
        )

    def _remember(self, id: PoolId, state: PoolState) -> None:
        if state != self.known.get(id, PoolState()):
            self.run_state.save_pool(id, state)
            self.known[id] = state

    def _write_down(self, pool: PoolPlan) -> None:
        """Remember what must not be lost, before the first patch: the bounds before us, and a move that begins."""
        state = pool.remembered
        leaving = self.remembered.control.restores(pool.id)
        if self.lease is not None and pool.changes and not self._is_dry(pool) and (pool.moves or not leaving):
            if not set(pool.adopted) <= set(state.adopted):
                state = replace(state, adopted={**pool.adopted, **state.adopted})
            if pool.moves:
                state = replace(state, move=self._move(pool))
        self._remember(pool.id, state)
        if pool.known_as is not None:
            self._remember(pool.known_as, PoolState())

    def _move(self, pool: PoolPlan) -> Move:
        id = ulid(self.ports.clock.now(), self.ports.random_bytes(10))
        if pool.scale_request is not None:
            request, only = pool.scale_request.id, pool.scale_request.only
            return Move(id=id, unplaced=pool.scale_request.nodes, steps=pool.moves, request=request, only=only)
        return Move(id=id, unplaced=pool.unplaced_before, steps=pool.moves)

    def _write(self, pools: Sequence[PoolPlan]) -> None:
        """Patch everything, in an order in which what a write rests on has been written before it.

        Fences need no marks, so all of them come before the first machine is marked. What shrinks depends on nothing.
        What grows in a pool waits for all that shrinks there.
        """
        shrinking = [(pool, group) for pool in pools for group in in_safe_order(pool.changes) if not grows(group)]
        fences = [(pool, group, patch) for pool, group in shrinking if (patch := fence_first(group)) is not None]
        self._together([(group, partial(self._fence, pool, group, patch)) for pool, group, patch in fences])
        plain = [(pool, group) for pool, group in shrinking if not group.lowers_requested]
        self._together([(group, partial(self._write_group, pool, group)) for pool, group in plain])
        marked = [(pool, group) for pool, group in shrinking if group.lowers_requested]
        self._together([(group, partial(self._write_group, pool, group)) for pool, group in marked])
        growing = []
        for pool in pools:
            if all(self.outcomes.get(group.group.key) == "written" for group in pool.changes if not grows(group)):
                growing += [(pool, group) for group in in_safe_order(pool.changes) if grows(group)]
        self._together([(group, partial(self._write_group, pool, group)) for pool, group in growing])
        self.outcome.rejected = len(self.refused)  # counted here, since tasks side by side would count past each other

    def _remember_refusals(self) -> None:
        """Which groups refuse to be written, for the looks to come; and which do so no more."""
        for key, word in self.outcomes.items():
            known = self.run_state.groups.get(key, GroupState())
            if key in self.refused and word != "written":
                at, why = self.ports.clock.now(), self.refused[key]
                self.run_state.save_group(key, replace(known, write_refused_at=at, write_refused=why))
            elif word == "written" and known.write_refused_at is not None:
                self.run_state.save_group(key, replace(known, write_refused_at=None, write_refused=""))

    def _together(self, tasks: Sequence[tuple[GroupPlan, Callable[[], None]]]) -> None:
        """Side by side, but for groups whose bounds stand on one object: those one after the other."""
        by_object: dict[str, list[Callable[[], None]]] = {}
        for group, task in tasks:
            by_object.setdefault(self.api.object_of(group.group.key), []).append(task)
        if by_object:
            self.ports.together([partial(in_turn, mine) for mine in by_object.values()])

    def _is_late(self) -> bool:
        over = self.lease is None or self.ports.clock.now() >= self.lease.expires
        return over or self.remaining() < _PATCH_SECONDS

    def _fence(self, pool: PoolPlan, group: GroupPlan, patch: Patch) -> None:
        """The fence alone. The rest of the group's change follows, unless this one failed."""
        failed = self._try(pool, group, [patch])
        if failed is not None:
            self.outcomes[group.group.key] = failed

    def _write_group(self, pool: PoolPlan, group: GroupPlan) -> None:
        key = group.group.key
        if key in self.outcomes:
            return  # its fence was not written
        failed = self._try(pool, group, patches(group))
        if failed is None and not is_complete(group):
            failed = "waits: the owner of its bounds has not copied them yet"
        self.outcomes[key] = failed or "written"
        if failed is None and group.failed_at is not None:
            seconds = (self.ports.clock.now() - group.failed_at).total_seconds()
            self.outcome.seconds_to_patch.append(max(0.0, seconds))

    def _try(self, pool: PoolPlan, group: GroupPlan, steps: Sequence[Patch]) -> str | None:
        """What stopped the patches of one group; None: all are written."""
        key = group.group.key
        try:
            for patch in steps:
                cluster = self.outcome.cluster
                if patch.lowers_requested and not self._is_late():
                    # A patch per machine, so the time is looked at again.
                    contained(cluster, "machines were marked", partial(mark, self.api, patch, self.run_state))
                if self._is_late():
                    return "not tried: no time left"
                contained(cluster, "it was written", partial(self._apply, pool, group, patch))
                self.outcome.writes.append(str(key))
        except ConflictError as error:
            self.conflict = True
            return f"conflict: {error}"
        except RejectedError as error:
            self.refused[key] = str(error)
            _log.error("write refused: %s", error, extra={"cluster": self.outcome.cluster, "group": str(key)})
            return f"rejected: {error}"
        except ClusterUnavailableError as error:
            self.outcome.unreachable = self.outcome.doubtful = True
            return f"unknown: {error}"
        except AccessError as error:  # the credential ran out between two patches, and there is no other
            self.outcome.unreachable = True
            return f"not written: {error}"
        return None

    def _apply(self, pool: PoolPlan, group: GroupPlan, patch: Patch) -> None:
        known = self.known.get(pool.id, PoolState())
        done = patch.requested is not None or (patch.bounds is not None and patch.bounds == group.bounds)
        requested = group.requested if done else group.group.requested
        decision = write_decision(
            group.offer,
            self.ports.clock.now(),
            "; ".join(sentences(group.reasons)),
            patch.bounds or group.group.bounds,
            requested=requested,
            before=group.group.requested if requested != group.group.requested else None,
        )
        move = known.move.id if known.move and group.journal_delta and patch.requested is not None else None
        self.api.apply(patch, decision, write_adopted(pool.adopted.get(str(group.group.key))), move)

    def _tell(self, pool: PoolPlan) -> None:
        """Record the decision if there is one, once: the same news is not told at every scan."""
        dry_run = self._is_dry(pool)
        refused = {key: f"rejected: {why}" for key, why in self.refused.items()}
        came_of = {**refused, **self.outcomes}
        outcomes = {
            str(group.group.key): came_of[group.group.key] for group in pool.groups if group.group.key in came_of
        }
        if dry_run:
            outcomes = {str(group.group.key): "planned" for group in pool.changes}
        known = self.known.get(pool.id, PoolState())
        failed = any(word not in ("written", "planned") for word in outcomes.values())
        tried = {
            plan.group.key: self.outcomes[plan.group.key] for plan in pool.groups if plan.group.key in self.outcomes
        }
        just_refused = [key for key in tried if key in refused]
        if just_refused:
            # Told once for each reason, however often it is tried. What becomes of the others is the next plan's news.
            before = self.remembered.state.groups
            is_news = any(before.get(key, GroupState()).write_refused != self.refused[key] for key in just_refused)
            digest = known.digest
        else:
            done = bool(tried) and all(word == "written" for word in tried.values())
            digest = pool.digest(applied=done and not dry_run)
            is_news = digest != known.digest
        move = known.move
        if move is not None and not failed and not dry_run and pool.judged:
            # Every step is done: what is left of it is what found no place.
            move = replace(move, unplaced=pool.unplaced, steps={}) if pool.unplaced else None
        ended = self._end_scale_request(pool, failed=failed, dry_run=dry_run)
        # The end of trouble is news as well: then the digest that was remembered is not empty, and this one may be.
        if "written" in outcomes.values() or is_news or ended:
            self._decide(pool, outcomes, dry_run=dry_run)
        self._remember(pool.id, replace(known, digest=digest, move=move, in_trouble=_in_trouble(pool, known)))

    def _end_scale_request(self, pool: PoolPlan, *, failed: bool, dry_run: bool) -> bool:
        """Answer a request that has been carried out. True: that is news."""
        if pool.scale_request is None or failed or not pool.valid:
            return False
        # Before its journal is closed: what is in neither would be carried out again. A dry run closes none.
        request = self.remembered.scale_requests.get(pool.scale_request.id)
        answered = request is None or request.done
        if request is not None and not answered:
            self.run_state.end_scale_request(request, _result(pool, request, dry_run=dry_run))
        return not (answered and dry_run)

    def _decide(
        self,
        pool: PoolPlan,
        outcomes: Mapping[str, str],
        *,
        dry_run: bool,
        mended: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        """One decision: into the table, the log, and (but for agreed numbers) onto the bus."""
        now, cluster = self.ports.clock.now(), self.outcome.cluster
        id = ulid(now, self.ports.random_bytes(10))
        decision = decision_json(pool, id=id, cluster=cluster, at=now, why=self.why, dry_run=dry_run, outcomes=outcomes)
        if mended is not None:
            decision["mended"] = list(mended)
        self.ports.store.save_decision(cluster, id, decision, now + _DECISIONS_KEPT)
        self.outcome.decisions.append(id)
        _log.info("decision", extra={"cluster": cluster, "decision": decision})
        if mended is not None:
            return
        known = self.known.get(pool.id, PoolState())
        for detail_type in _detail_types(pool, known, "written" in outcomes.values()):
            self.ports.bus.publish(detail_type, decision)
        for group in pool.changes:
            if outcomes.get(str(group.group.key)) == "written":
                self.api.emit_event(group, id)


def _result(pool: PoolPlan, record: ScaleRequestRecord, *, dry_run: bool) -> str:
    """What became of a whole request, also where it took several runs, for people who ask for the status."""
    left = "could not be placed" if record.nodes > 0 else "have to stay"
    missing = f", {pool.missing} more {left}" if pool.missing else ""
    done = counted(abs(record.nodes) - pool.missing)
    return f"{'dry run: ' if dry_run else ''}{done} in pool {pool.id}{missing}"


def _not_looked_at(outcome: Outcome, error: Exception) -> None:
    """The next scan tries again; a message kept in the queue would try no better."""
    outcome.unreachable = True
    outcome.message = f"{outcome.cluster}: not looked at: {error}"
    _log.error(outcome.message, extra={"cluster": outcome.cluster})


def _in_trouble(pool: PoolPlan, known: PoolState) -> tuple[str, ...]:
    """The groups that are told to be in trouble from now on; a frozen one is what it was."""
    return tuple(
        str(plan.group.key)
        for plan in pool.groups
        if plan.state in (State.FENCED, State.PROBING)
        or (plan.state is State.FROZEN and str(plan.group.key) in known.in_trouble)
    )


def _detail_types(pool: PoolPlan, known: PoolState, wrote: bool) -> list[str]:
    types = []
    if not pool.valid:
        types.append("Pool Invalid")
    if pool.starved:
        types.append("Pool Starved")
    if pool.contested:
        types.append("Write Contested")
    if wrote:
        types.append("Node Groups Rebalanced")
    told = set(known.in_trouble)
    if any(plan.state is State.FENCED and str(plan.group.key) not in told for plan in pool.groups):
        types.append("Node Group Fenced")
    if any(plan.state is State.HEALTHY and str(plan.group.key) in told for plan in pool.groups):
        types.append("Node Group Recovered")
    return types


def _sentence(outcome: Outcome) -> str:
    planned = outcome.plan.changes if outcome.plan else ()
    if outcome.dry_run and planned:
        return f"{outcome.cluster}: dry run: would write {len(planned)} node groups"
    if outcome.written:
        return f"{outcome.cluster}: {outcome.written} patches written, {outcome.conflicts} conflicts"
    return f"{outcome.cluster}: nothing to write"
