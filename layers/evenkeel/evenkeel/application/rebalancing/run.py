"""One plan of one cluster on its way to the cluster: lease, journal, writes, record."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from evenkeel.application.errors import StateConflictError
from evenkeel.application.incidents.notify import store_cluster_health
from evenkeel.application.offerings.sharing import publish_reports
from evenkeel.application.plan_documents import outcome_json
from evenkeel.application.ports import Lease, Remaining, StoredCluster
from evenkeel.application.rebalancing.fix import Fixes, fix
from evenkeel.application.rebalancing.ports import Cluster, ClusterClock, RunPorts
from evenkeel.application.rebalancing.record import Recorder, is_failing
from evenkeel.application.rebalancing.relief import write_relief
from evenkeel.application.rebalancing.requested_plan import after_restore, still_asked
from evenkeel.application.rebalancing.run_state import RunState, RunSummary, marked_and_staying, unmark
from evenkeel.application.rebalancing.status_configmap import is_to_be_shown, status_document, status_text
from evenkeel.application.rebalancing.write import Writer
from evenkeel.domain.incidents.health import evaluate, with_pending_changes
from evenkeel.domain.model.convergence import ConvergenceState
from evenkeel.domain.model.groups import Bounds, GroupKey
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.plans import Plan, PoolPlan, Refusal, TakenOff
from evenkeel.domain.model.states import DesiredBounds, GroupState, PoolState
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.record import ClusterRecord, FixEntry
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.texts.english import counted, problem_words, taken_off_words

_log = logging.getLogger("evenkeel.rebalance")

# Items that are over, deleted in one run: they do no harm, and a run has better things to do.
_FORGOTTEN_AT_ONCE = 20
# A patch takes up to 13 s (3 s to connect, 10 s to read); none is begun that the invocation could not see the end of.
_PATCH_SECONDS = 14


@dataclass(kw_only=True)
class Run:
    """One plan of one cluster on its way to the cluster.

    ``refused`` are groups whose writes were refused lately, with the API's words; those of this run are added.
    """

    ports: RunPorts
    summary: RunSummary
    remembered: StoredCluster
    api: Cluster
    plan: Plan
    why: str
    remaining: Remaining
    refused: dict[GroupKey, str]
    lease: Lease | None = None
    cluster_health: ClusterHealth = field(
        init=False, default_factory=ClusterHealth
    )  # as it is remembered after this run
    has_restored: bool = field(init=False, default=False)  # the whole cluster, which is paused from now on
    cluster_clock: ClusterClock = field(init=False)  # for all that is compared with the cluster's times
    run_state: RunState = field(init=False)
    outcomes: dict[GroupKey, Outcome] = field(init=False, default_factory=dict)
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        state = self.remembered.state
        self.cluster_clock = ClusterClock(self.ports.clock, self.plan.clock_skew)
        self.run_state = RunState(
            store=self.ports.store,
            remembered=self.remembered,
            groups={**state.groups},
            pools={**state.pools},
            scale_requests={**self.remembered.scale_requests},
        )
        self.recorder = Recorder(ports=self.ports, summary=self.summary, api=self.api, why=self.why)

    @property
    def record(self) -> ClusterRecord:
        return self.remembered.record

    def carry_out(self) -> bool:
        """Write what the plan says, fences first, what grows last. True: look again, what was read has changed."""
        for key, state in self.plan.states.items():
            self.run_state.save_group(key, state)
        publish_reports(self.ports.store, self.remembered, self.plan)
        for taken in self.plan.taken_off:
            self._take_off(taken)
        conflict = False
        try:
            live_pools = [pool for pool in self.plan.pools if not self._is_dry(pool)]
            marked = {pool.id: groups for pool in live_pools if (groups := marked_and_staying(pool, self.run_state))}
            if marked or any(pool.changes or pool.relief for pool in live_pools):
                self._take_lease()
            for pool in self.plan.pools:
                self._open_journal(pool)
            if self.lease is not None:
                for groups in marked.values():
                    conflict |= unmark(groups, self.api, self.run_state)
                conflict |= self._write(live_pools)
                for pool in live_pools:
                    conflict |= self._relieve(pool)
            for pool in self.plan.pools:
                self._close_journal(pool)
            for refusal in self.plan.refusals:
                self._refuse(refusal)
            if not self._is_paused:
                self._judge()  # first: a cluster that is paused by the end of its restore is not judged any more
                self._end_restore()
            self._clean_up()
        finally:
            self._give_back_lease()
        return conflict

    @property
    def _is_paused(self) -> bool:
        """Return whether the whole cluster was paused when this run read it: it opens pools, and does nothing else."""
        return self.remembered.control.is_paused(self.plan.now)

    @property
    def due_fixes(self) -> tuple[FixEntry, ...]:
        """Return the fixes that an operator has agreed to, without those of pools with absent groups."""
        if self._is_paused:
            return ()
        awaited = {str(pool.id) for pool in self.plan.pools if pool.awaits_check}
        return tuple(entry for entry in self.remembered.control.fixes if entry.pool not in awaited)

    def fix(self) -> None:
        """Write the numbers that an operator has agreed to, and record it; in dry run, only that."""
        control, due = self.remembered.control, self.due_fixes
        pools = {str(pool.id): self._stays_dry(pool) for pool in self.plan.pools}
        dry_run = {entry.pool: pools.get(entry.pool, self.summary.dry_run) for entry in due}
        if not all(dry_run.values()):
            self._take_lease()
        try:
            fixes = fix(due, self.plan, self.api, self._is_late, dry_run)
            self.summary.writes += ["pool-max"] * fixes.written
            for pool in self.plan.pools:
                self._remember_wishes(pool, fixes)
            waiting = tuple(entry for entry in control.fixes if entry not in due)
            control = control.model_copy(update={"fixes": (*fixes.postponed, *waiting)})
            self.ports.store.save_record(self.record, control, self.remembered.versions)
        finally:
            self._give_back_lease()
        for pool in self.plan.pools:
            changes = [
                {"object": entry.group or "record", "from": entry.before, "to": entry.after, **outcome_json(outcome)}
                for entry, outcome in fixes.outcomes
                if entry.pool == str(pool.id)
            ]
            if changes:
                self.recorder.fixed(pool, changes, dry_run=dry_run[str(pool.id)])

    def _remember_wishes(self, pool: PoolPlan, fixes: Fixes) -> None:
        """What an operator had us write to an owner is what is wanted there, and not ours."""
        desired_bounds = dict(pool.remembered.desired_bounds)
        for entry, outcome in fixes.outcomes:
            group = next((plan.group for plan in pool.groups if str(plan.group.key) == entry.group), None)
            wish = desired_bounds_of(group, pool.remembered) if group is not None and entry.owner else None
            if wish is not None and outcome.result is Result.WRITTEN:
                desired_bounds[entry.owner] = DesiredBounds(bounds=Bounds(wish.min, entry.after))
        if desired_bounds != pool.remembered.desired_bounds:
            self.run_state.save_pool(pool.id, replace(pool.remembered, desired_bounds=desired_bounds))

    # The right to write

    def _take_lease(self) -> None:
        now = self.ports.clock.now()
        self.lease = self.ports.store.take_lease(
            self.summary.cluster,
            self.ports.new_id(),
            self.remembered.fencing_token,
            now,
            now + timedelta(seconds=max(1.0, self.remaining())),
        )

    def _give_back_lease(self) -> None:
        if self.lease is not None:
            self.ports.store.give_back_lease(self.summary.cluster, self.lease, self.ports.clock.now())

    def _is_late(self) -> bool:
        expired = self.lease is None or self.ports.clock.now() >= self.lease.expires
        return expired or self.remaining() < _PATCH_SECONDS

    def _is_dry(self, pool: PoolPlan) -> bool:
        return self._stays_dry(pool) and not (pool.opens or self.remembered.control.restores(pool.id))

    def _stays_dry(self, pool: PoolPlan) -> bool:
        """Whether nothing of it is written, but where it is restored: what it says itself goes before its cluster."""
        return self.summary.dry_run if pool.dry_run is None else pool.dry_run

    # Journal and writes

    def _open_journal(self, pool: PoolPlan) -> None:
        """Remember what must not be lost, before the first patch."""
        writes = self.lease is not None and not self._is_dry(pool)
        # What is put back needs no journal; a move that is ended before does.
        journalled = writes and (pool.moves or not self.remembered.control.restores(pool.id))
        journal = opened(pool, self.ports.new_id(self.cluster_clock)) if journalled else pool.remembered
        if journalled and pool.moves:
            self._keep_in_time(pool)
        self.run_state.save_pool(pool.id, journal)
        if pool.known_as is not None:
            self.run_state.save_pool(pool.known_as, PoolState())

    def _write(self, pools: Sequence[PoolPlan]) -> bool:
        """Write the pools, and remember which groups refuse to be written, and which do so no more. True: a conflict"""
        outcomes = self.outcomes
        # Not kept: it leads back to here, and what was read would stay until garbage is looked for.
        writer = Writer(
            api=self.api,
            run_state=self.run_state,
            summary=self.summary,
            clock=self.cluster_clock,
            together=self.ports.together,
            is_late=self._is_late,
            outcomes=outcomes,
        )
        try:
            writer.write(pools)
        finally:
            # Also when the table has gone away meanwhile: whoever plans anew, plans around them.
            self.refused |= {key: came.detail for key, came in outcomes.items() if came.result is Result.REJECTED}
        self.summary.rejected = len(self.refused)
        for key, outcome in outcomes.items():
            state = self.run_state.groups.get(key, GroupState())
            if outcome.result is Result.REJECTED:
                now = self.cluster_clock.now()
                self.run_state.save_group(key, replace(state, write_refused_at=now, write_refused=outcome.detail))
            elif outcome.result is Result.WRITTEN and state.write_refused_at is not None:
                self.run_state.save_group(key, replace(state, write_refused_at=None, write_refused=""))
        return any(outcome.result is Result.CONFLICT for outcome in outcomes.values())

    def _relieve(self, pool: PoolPlan) -> bool:
        """After all else, which helps within seconds."""
        return write_relief(pool, self.api, self.run_state, self.summary, self.cluster_clock, self._is_late)

    def _close_journal(self, pool: PoolPlan) -> None:
        """Record the decision, if there is one: the same news is not told at every scan. Then close the journal."""
        if pool.awaits_check and not pool.groups:
            return
        outcomes = self._outcomes(pool)
        state = self.run_state.pools.get(pool.id, PoolState())
        complete = all(outcome.result in (Result.WRITTEN, Result.PLANNED) for outcome in outcomes.values())
        digest, is_news = self._digest(pool, state)
        is_answered = complete and self._end_scale_request(pool)
        # The end of trouble is news as well: then the digest that was remembered is not empty, and this one may be.
        written = any(outcome.result is Result.WRITTEN for outcome in outcomes.values())
        if is_news or is_answered or written or pool.new_intents:
            shows = self.record.dry_run_events is True
            self.recorder.decide(pool, state, outcomes, dry_run=self._is_dry(pool), shows_dry_run=shows)
        if complete and not self._is_dry(pool):
            state = closed(pool, state)
        self.run_state.save_pool(pool.id, replace(state, digest=digest, is_failing=is_failing(pool, state)))

    def _outcomes(self, pool: PoolPlan) -> dict[GroupKey, Outcome]:
        """What came of the pool's groups, those included whose writes were refused in the rounds before."""
        if self._is_dry(pool):
            return {group.group.key: Outcome(Result.PLANNED) for group in pool.changes}
        refused = {key: Outcome(Result.REJECTED, detail) for key, detail in self.refused.items()}
        outcomes = {**refused, **self.outcomes}
        return {group.group.key: outcomes[group.group.key] for group in pool.groups if group.group.key in outcomes}

    def _digest(self, pool: PoolPlan, state: PoolState) -> tuple[str, bool]:
        """The fingerprint of what is told of the pool by now, and whether there is anything new in it."""
        tried = {key: self.outcomes[key] for plan in pool.groups if (key := plan.group.key) in self.outcomes}
        refused = {key: outcome.detail for key, outcome in tried.items() if outcome.result is Result.REJECTED}
        if refused:
            # Told once for each reason, however often it is tried. What becomes of the others is the next plan's news.
            before = self.remembered.state.groups
            news = any(before.get(key, GroupState()).write_refused != detail for key, detail in refused.items())
            return state.digest, news
        applied = bool(tried) and all(outcome.result is Result.WRITTEN for outcome in tried.values())
        digest = pool.digest(applied=applied)
        return digest, digest != state.digest

    def _end_scale_request(self, pool: PoolPlan) -> bool:
        """Answer a request that has been carried out. True: that is news."""
        dry_run = self._is_dry(pool)
        if pool.scale_request is None or not pool.valid:
            return False
        # Before its journal is closed: what is in neither would be carried out again. A dry run closes none.
        request = self.run_state.scale_requests.get(pool.scale_request.id)
        was_answered = request is None or request.done
        if request is not None and not was_answered:
            if pool.request_later and not dry_run:
                if not pool.keeps_journal:
                    self._save_rest(request, pool.missing + pool.request_later)
                return False
            self.run_state.end_scale_request(request, _answer(pool, request, dry_run=dry_run))
        return not (was_answered and dry_run)

    def _save_rest(self, request: ScaleRequestRecord, left: int) -> None:
        """Store how many nodes of a request later runs add. An absolute number: it may be stored twice."""
        before = request.nodes if request.left is None else request.left
        if left != before:
            step = {"left": left, "stepped_at": self.cluster_clock.now()}
            self.run_state.save_scale_request(request.model_copy(update=step))

    def _keep_in_time(self, pool: PoolPlan) -> None:
        """Store when a request begins that has waited for other requests for over an hour: a crash does not end it."""
        request = self.run_state.scale_requests.get(pool.scale_request.id) if pool.scale_request is not None else None
        now = self.cluster_clock.now()
        if request is not None and request.scale_request().is_over(now):
            self.run_state.save_scale_request(request.model_copy(update={"stepped_at": now}))

    def _take_off(self, taken: TakenOff) -> None:
        """Take nodes that are given back off the rests of other requests, then answer: a crash takes none off twice."""
        requests, draining_group = self.run_state.scale_requests, taken.scale_request
        for id, nodes in taken.nodes.items():
            rest = requests[id]
            less = {
                "left": (rest.left or 0) - nodes,
                "less": {**rest.less, draining_group.id: nodes + taken.before.get(id, 0)},
            }
            self.run_state.save_scale_request(rest.model_copy(update=less))
        answer = taken_off_words(taken)
        self.run_state.end_scale_request(requests[draining_group.id], answer)
        _log.warning("request %s: %s", draining_group.id, answer, extra={"cluster": self.summary.cluster})

    def _refuse(self, refusal: Refusal) -> None:
        request = self.run_state.scale_requests[refusal.scale_request.id]
        unfound_since = refusal.scale_request.unfound_since
        if unfound_since != request.unfound_since:
            self.run_state.save_scale_request(request.model_copy(update={"unfound_since": unfound_since}))
        if not refusal.waits:
            why = problem_words(refusal.problem)
            added = "" if request.left is None else f"{counted(request.added)} added, the rest is "
            self.run_state.end_scale_request(request, f"{added}refused: {why}")
            _log.error("refused: %s", why, extra={"cluster": self.summary.cluster})

    def _end_restore(self) -> None:
        """Pause what has been left, and forget what was remembered for it."""
        before = self.remembered.control
        restored = after_restore(before, self.plan, self.remembered.state)
        if restored is None:
            self._end_passes()
            return
        control, sentence = restored
        for id, state in list(self.run_state.pools.items()):
            # Whoever comes back may find other bounds, and those are adopted then.
            if state.adopted and before.restores(id) and not control.restores(id):
                self.run_state.save_pool(
                    id,
                    replace(
                        state,
                        adopted={},
                        desired_bounds={},
                        seen=None,
                        published=None,
                        convergence=ConvergenceState(),
                        release=None,
                    ),
                )
        self.ports.store.save_record(self.record, control, self.remembered.versions)
        self.has_restored = before.restoring
        self.summary.message = f"{self.summary.cluster}: {sentence}"

    def _end_passes(self) -> None:
        """Forget the passes of converge that are over: late, or nothing is left to be moved."""
        control = self.remembered.control
        asked = still_asked(control.convergence_requested, self.plan)
        if asked != control.convergence_requested:
            self.ports.store.save_record(
                self.record, control.model_copy(update={"convergence_requested": asked}), self.remembered.versions
            )

    def _judge(self) -> None:
        """What trouble there is, as this run leaves it."""
        before, after = self.remembered.cluster_health, self.record.opens_trouble_after
        cluster_health = with_pending_changes(evaluate(before, self.plan, self.run_state.groups, after))
        place = self.record.status_configmap
        if place is None:
            cluster_health = replace(cluster_health, published_status=None)
            self.cluster_health = store_cluster_health(
                self.ports, self.summary.cluster, before, cluster_health, self.remembered.versions
            )
        else:
            self._show(place, before, cluster_health)

    def _show(self, place: str, before: ClusterHealth, cluster_health: ClusterHealth) -> None:
        """Beside what is kept of it, the verdict is written into the cluster, where that says anything new."""
        now, dry = self.ports.clock.now(), {pool.id for pool in self.plan.pools if self._is_dry(pool)}
        document = status_document(self.summary.cluster, self.plan, self.outcomes, cluster_health, dry)
        published = is_to_be_shown(before.published_status, document, place, now)
        cluster_health = self.cluster_health = store_cluster_health(
            self.ports,
            self.summary.cluster,
            before,
            replace(cluster_health, published_status=published),
            self.remembered.versions,
        )
        if published is not before.published_status and self.api.show_status(place, status_text(document, now)):
            cluster_health = replace(cluster_health, published_status=replace(published, tried_at=None))
            self.ports.store.save_cluster_health(self.summary.cluster, cluster_health, self.remembered.versions)

    def _clean_up(self) -> None:
        """Delete what is over: events lead to it, and who hears them may set nothing by which it would go by itself."""
        for expired in self.remembered.expired[:_FORGOTTEN_AT_ONCE]:
            try:
                self.ports.store.forget(self.summary.cluster, expired, self.remembered.versions)
            except StateConflictError:
                continue  # it is news again


def _answer(pool: PoolPlan, request: ScaleRequestRecord, *, dry_run: bool) -> str:
    """What became of a whole request, also where it took several runs, for people who ask for the status."""
    unplaced = "could not be placed" if request.nodes > 0 else "have to stay"
    missing = f", {pool.missing} more {unplaced}" if pool.missing else ""
    less = sum(request.less.values())
    taken_off = f", {less} taken off by {', '.join(sorted(request.less))}" if less else ""
    if dry_run and request.left is not None:
        more = f"{request.left - pool.missing} more{missing}{taken_off}"
        return f"{counted(request.added)} in pool {pool.id}, dry run: {more}"
    placed = counted(abs(request.nodes) - pool.missing - less)
    return f"{'dry run: ' if dry_run else ''}{placed} in pool {pool.id}{missing}{taken_off}"
