"""Carry out one plan: take the lease, store the journal, write to the cluster, and record the decisions."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from evenkeel.application.drill.drill import follow
from evenkeel.application.errors import StateConflictError
from evenkeel.application.incidents.notify import store_cluster_health
from evenkeel.application.plan_documents import outcome_json
from evenkeel.application.ports import Lease, Remaining, StoredCluster
from evenkeel.application.rebalancing.ports import Cluster, ClusterClock, RunPorts
from evenkeel.application.rebalancing.record import Recorder, is_failing
from evenkeel.application.rebalancing.restore import after_restore, unfinished_passes
from evenkeel.application.rebalancing.run_state import RunState, RunSummary
from evenkeel.application.rebalancing.scale_requests import ScaleRequests
from evenkeel.application.rebalancing.status_configmap import is_to_be_shown, status_document, status_text
from evenkeel.application.rebalancing.write import FixOutcomes, Writer, marked_and_staying
from evenkeel.domain.drill.drill import Facts, facts_of
from evenkeel.domain.fleet.event_source import after_check
from evenkeel.domain.incidents.health import evaluate, with_pending_changes
from evenkeel.domain.model.convergence import ConvergenceState
from evenkeel.domain.model.flavours import WRITTEN_IN_STEPS
from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.states import DesiredBounds, GroupState, PoolState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.record import ClusterRecord, FixEntry
from evenkeel.state_records import fenced_zones

_log = logging.getLogger("evenkeel.rebalance")

# Limit of expired items deleted per run. They do no harm, and other work is more important.
_FORGOTTEN_AT_ONCE = 20
# A patch takes up to 13 s (3 s to connect, 10 s to read). It starts only if the invocation has more time than this.
_PATCH_SECONDS = 14


@dataclass(kw_only=True)
class Run:
    """One plan of one cluster, while it is carried out.

    ``refused``: groups whose writes were refused lately, with the API server's message. This run adds its own refused
    writes.
    """

    ports: RunPorts
    summary: RunSummary
    stored: StoredCluster
    api: Cluster
    plan: Plan
    reason: str
    remaining: Remaining
    refused: dict[GroupKey, str]
    workload: Workload | None = None  # the pods that this run has read; only a drill uses them
    stores_waiting: bool = True  # False: since when pods wait is no reason to store the health
    lease: Lease | None = None
    cluster_health: ClusterHealth = field(init=False, default_factory=ClusterHealth)  # the health that this run stores
    has_restored: bool = field(init=False, default=False)  # True: the whole cluster is restored and now paused
    cluster_clock: ClusterClock = field(init=False)  # for times that are compared with times of the cluster
    run_state: RunState = field(init=False)
    outcomes: dict[GroupKey, Outcome] = field(init=False, default_factory=dict)
    _requests: ScaleRequests = field(init=False)
    _journal_ids: dict[PoolId, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        state = self.stored.state
        self.cluster_clock = ClusterClock(self.ports.clock, self.plan.clock_skew)
        self.run_state = RunState(
            store=self.ports.store,
            stored=self.stored,
            groups={**state.groups},
            pools={**state.pools},
            scale_requests={**self.stored.scale_requests},
        )
        self._requests = ScaleRequests(run_state=self.run_state, clock=self.cluster_clock)

    def carry_out(self) -> bool:
        """Write the plan, fences first, growth last. Return True after a conflict, so that the caller plans again."""
        self._save_missed_failures()
        for key, state in self.plan.states.items():
            self.run_state.save_group(key, state)
        for pool in self.plan.pools:
            if pool.untimed:
                text = "%s: pool %s: %s new nodes lack a usable time of creation or joining, so no timeout is learned"
                _log.warning(text, self.summary.cluster, pool.id, pool.untimed, extra={"cluster": self.summary.cluster})
        conflict = False
        try:
            live_pools = [pool for pool in self.plan.pools if not self._is_dry(pool)]
            marked = {pool.id: groups for pool in live_pools if (groups := marked_and_staying(pool, self.run_state))}
            if self.stored.unfinished or marked or any(pool.changes or pool.parts.writes for pool in live_pools):
                self._take_lease(live_pools)
            for pool in self.plan.pools:
                self._open_journal(pool)
            if self.lease is not None:
                writer = self._writer()
                for groups in marked.values():
                    conflict |= writer.unmark(groups)
                conflict |= self._write(writer, live_pools)
                # Other objects are written last, because they take effect within minutes, and patches within seconds.
                for pool in live_pools:
                    conflict |= writer.write_others(pool)
            for pool in self.plan.pools:
                self._close_journal(pool)
            for refusal in self.plan.refusals:
                self._requests.refuse(refusal, self.ports.bus)
            if not self._is_paused:
                # The health is stored first, because ``_end_restore`` may pause the cluster, and then no health is
                # evaluated.
                health = self._evaluate()
                # The drill is ended before the health is stored. Otherwise the incident that ends the drill could close
                # before the next run, if this run is killed in between.
                conflict |= self._follow_drill(health)
                self._store_health(health)
                self._end_restore()
            else:
                conflict |= self._follow_drill(None)
            self._delete_expired()
        finally:
            self._give_back_lease()
        return conflict

    def _save_missed_failures(self) -> None:
        """Store that events have not reported a failure that this check found."""
        event, now = self.stored.event_check, self.ports.clock.now()
        if event is None:
            return
        source = after_check(event.source, self.stored.state.groups, self.plan.states, event.at, now)
        if source != event.source:
            self.ports.store.save_event_check(self.summary.cluster, event.of(source), self.stored.versions)

    @property
    def _record(self) -> ClusterRecord:
        return self.stored.record

    @property
    def _is_paused(self) -> bool:
        """Return True if the whole cluster was paused when it was read.

        This run then only writes bounds that let autoscalers order nodes again.
        """
        return self.stored.control.is_paused(self.plan.now)

    @property
    def _recorder(self) -> Recorder:
        return Recorder(ports=self.ports, summary=self.summary, api=self.api, reason=self.reason)

    def _writer(self) -> Writer:
        # The writer is not a field, because a reference cycle would keep the observation until the next garbage
        # collection.
        return Writer(
            api=self.api,
            run_state=self.run_state,
            summary=self.summary,
            clock=self.cluster_clock,
            together=self.ports.together,
            is_late=self._is_late,
            outcomes=self.outcomes,
        )

    def _is_dry(self, pool: PoolPlan) -> bool:
        restoring = pool.mode.opens or self.stored.control.restores(pool.id)
        return is_pool_dry(pool.mode.dry_run, self.summary.dry_run, restoring=restoring)

    # Lease

    def _take_lease(self, pools: Sequence[PoolPlan] = ()) -> None:
        keys = [group.group.key for pool in pools for group in pool.changes]
        writes = {*self.stored.unfinished, *(str(key) for key in keys if key.flavour in WRITTEN_IN_STEPS)}
        now = self.ports.clock.now()
        self.lease = self.ports.store.take_lease(
            self.summary.cluster,
            self.ports.new_id(),
            self.stored.fencing_token,
            now,
            now + timedelta(seconds=max(1.0, self.remaining())),
            sorted(writes),
        )

    def _give_back_lease(self) -> None:
        if self.lease is not None:
            unfinished = sorted(self.api.unfinished(self.stored.unfinished))
            self.ports.store.give_back_lease(self.summary.cluster, self.lease, self.ports.clock.now(), unfinished)

    def _is_late(self) -> bool:
        expired = self.lease is None or self.ports.clock.now() >= self.lease.expires
        return expired or self.remaining() < _PATCH_SECONDS

    # Fixes, which replace the plan of this round

    @property
    def due_fixes(self) -> tuple[FixEntry, ...]:
        """Return the fixes that an operator has agreed to, except fixes of pools with absent groups."""
        if self._is_paused:
            return ()
        awaited = {str(pool.id) for pool in self.plan.pools if pool.awaits_check}
        return tuple(entry for entry in self.stored.control.fixes if entry.pool not in awaited)

    def fix(self) -> None:
        """Write the due fixes and record them; in dry run, only record them."""
        control, due = self.stored.control, self.due_fixes
        pools = {str(pool.id): is_pool_dry(pool.mode.dry_run, self.summary.dry_run) for pool in self.plan.pools}
        dry_run = {entry.pool: pools.get(entry.pool, self.summary.dry_run) for entry in due}
        if not all(dry_run.values()):
            self._take_lease()
        try:
            fixes = self._writer().fix(due, self.plan, dry_run)
            for pool in self.plan.pools:
                self._save_desired_bounds(pool, fixes)
            tried = [entry for entry, _ in fixes]
            postponed = [entry for entry in due if entry not in tried]
            waiting = [entry for entry in control.fixes if entry not in due]
            control = control.model_copy(update={"fixes": (*postponed, *waiting)})
            self.ports.store.save_record(self._record, control, self.stored.versions)
        finally:
            self._give_back_lease()
        for pool in self.plan.pools:
            changes = [
                {"object": entry.group or "record", "from": entry.before, "to": entry.after, **outcome_json(outcome)}
                for entry, outcome in fixes
                if entry.pool == str(pool.id)
            ]
            if changes:
                self._recorder.fixed(pool, changes, dry_run=dry_run[str(pool.id)])

    def _save_desired_bounds(self, pool: PoolPlan, fixes: FixOutcomes) -> None:
        """Store each fixed number of an owner as the owner's intent, and not as a number that Evenkeel wrote."""
        desired_bounds = dict(pool.next_state.desired_bounds)
        for entry, outcome in fixes:
            group = next((plan.group for plan in pool.groups if str(plan.group.key) == entry.group), None)
            desired = desired_bounds_of(group, pool.next_state) if group is not None and entry.owner else None
            if desired is not None and outcome.result is Result.WRITTEN:
                desired_bounds[entry.owner] = DesiredBounds(bounds=Bounds(desired.min, entry.after))
        if desired_bounds != pool.next_state.desired_bounds:
            self.run_state.save_pool(pool.id, replace(pool.next_state, desired_bounds=desired_bounds))

    # Journal and writes

    def _open_journal(self, pool: PoolPlan) -> None:
        """Store the pool's journal before the first patch, so that a crash does not lose it."""
        writes = self.lease is not None and not self._is_dry(pool)
        # A restore needs no journal, but a move that must end before the restore needs one.
        journalled = writes and (pool.moves or not self.stored.control.restores(pool.id))
        journal = opened(pool, self._journal_id(pool.journal_of)) if journalled else pool.next_state
        if journalled and pool.moves:
            self._requests.keep_in_time(pool)
        self.run_state.save_pool(pool.id, journal)
        if pool.known_as is not None:
            self.run_state.save_pool(pool.known_as, PoolState())

    def _journal_id(self, pool: PoolId) -> str:
        if pool not in self._journal_ids:
            self._journal_ids[pool] = self.ports.new_id(self.cluster_clock)
        return self._journal_ids[pool]

    def _write(self, writer: Writer, pools: Sequence[PoolPlan]) -> bool:
        """Write the pools, and store the groups whose writes were refused. Return True if there was a conflict."""
        outcomes = self.outcomes
        try:
            writer.write(pools)
        finally:
            # In a ``finally`` clause, so that the next plan freezes these groups even if the table is unavailable now.
            self.refused |= {key: outcome.detail for key, outcome in outcomes.items() if _is_rejected(outcome)}
        self.summary.rejected = len(self.refused)
        for key, outcome in outcomes.items():
            state = self.run_state.groups.get(key, GroupState())
            contest = state.contest
            if _is_rejected(outcome):
                now = self.cluster_clock.now()
                contest = replace(contest, write_refused_at=now, write_refused=outcome.detail)
                self.run_state.save_group(key, replace(state, contest=contest))
            elif outcome.result is Result.WRITTEN and contest.write_refused_at is not None:
                contest = replace(contest, write_refused_at=None, write_refused="")
                self.run_state.save_group(key, replace(state, contest=contest))
        return any(outcome.result is Result.CONFLICT for outcome in outcomes.values())

    def _close_journal(self, pool: PoolPlan) -> None:
        """Record the decision, if it is new, and close the journal."""
        if pool.awaits_check and not pool.groups:
            return
        outcomes, dry_run = self._outcomes(pool), self._is_dry(pool)
        state = self.run_state.pools.get(pool.id, PoolState())
        complete = all(outcome.result in (Result.WRITTEN, Result.PLANNED) for outcome in outcomes.values())
        # The end of a failure is a new decision, too: at this end, the stored digest is not empty, but the new digest
        # may be empty.
        digest, is_new = self._digest(pool, state)
        is_answered = complete and self._requests.answer(pool, dry_run=dry_run)
        written = any(outcome.result is Result.WRITTEN for outcome in outcomes.values())
        if is_new or is_answered or written or pool.new_intents:
            shows = self._record.dry_run_events is True
            self._recorder.decide(pool, state, outcomes, dry_run=dry_run, shows_dry_run=shows)
        if complete and not dry_run:
            state = closed(pool, state)
        failing = is_failing(pool, state)
        if (digest, failing) != (state.digest, state.is_failing):
            state = replace(state, digest=digest, is_failing=failing)
        self.run_state.save_pool(pool.id, state)

    def _outcomes(self, pool: PoolPlan) -> dict[GroupKey, Outcome]:
        """Return the outcomes of the pool's groups, including refused writes of earlier rounds."""
        if self._is_dry(pool):
            return {group.group.key: Outcome(Result.PLANNED) for group in pool.changes}
        refused = {key: Outcome(Result.REJECTED, detail) for key, detail in self.refused.items()}
        outcomes = {**refused, **self.outcomes}
        return {group.group.key: outcomes[group.group.key] for group in pool.groups if group.group.key in outcomes}

    def _digest(self, pool: PoolPlan, state: PoolState) -> tuple[str, bool]:
        """Return the digest to store for the pool, and True if this plan is a new decision."""
        tried = {key: self.outcomes[key] for plan in pool.groups if (key := plan.group.key) in self.outcomes}
        refused = {key: outcome.detail for key, outcome in tried.items() if _is_rejected(outcome)}
        if refused:
            # Each refusal is recorded once, however often the write is tried. The next plan, which freezes these
            # groups, decides about the other groups.
            before = {key: state.contest.write_refused for key, state in self.stored.state.groups.items()}
            is_new = any(before.get(key, "") != detail for key, detail in refused.items())
            return state.digest, is_new
        applied = bool(tried) and all(outcome.result is Result.WRITTEN for outcome in tried.values())
        digest = pool.digest(applied=applied)
        return digest, digest != state.digest

    # Health, restores and expired items, after the writes

    @property
    def _dry_pools(self) -> set[PoolId]:
        return {pool.id for pool in self.plan.pools if self._is_dry(pool)}

    def _evaluate(self) -> ClusterHealth:
        before, after = self.stored.cluster_health, self._record.opens_trouble_after
        health = with_pending_changes(evaluate(before, self.plan, self.run_state.groups, after, self._dry_pools))
        return health if self.stores_waiting else replace(health, waiting=before.waiting)

    def _follow_drill(self, health: ClusterHealth | None) -> bool:
        """Measure the drill. Return True if it has ended early, so that the next plan must lift its fence.

        ``health``: None if the cluster is paused.
        """
        drill, now = self.stored.drill, self.ports.clock.now()
        if drill is None or drill.is_recorded:
            return False
        facts = Facts(is_paused=True)
        if health is not None:
            facts = facts_of(self.plan, self.workload, health.incidents, fenced_zones(self.stored.zones, now))
        return follow(self.ports.store, self.stored, facts, now)

    def _store_health(self, health: ClusterHealth) -> None:
        """Store and notify the cluster's health, and write it into the status ConfigMap if its content has changed."""
        before, place, cluster = self.stored.cluster_health, self._record.status_configmap, self.summary.cluster
        now, status = self.ports.clock.now(), None
        document: dict[str, Any] = {}
        if place is not None:
            document = status_document(cluster, self.plan, self.outcomes, health, self._dry_pools)
            status = is_to_be_shown(before.published_status, document, place, now)
        versions = self.stored.versions
        health = store_cluster_health(self.ports, cluster, before, replace(health, published_status=status), versions)
        self.cluster_health = health
        if place is None or status is None or status is before.published_status:
            return
        if self.api.show_status(place, status_text(document, now)):
            health = replace(health, published_status=replace(status, tried_at=None))
            self.ports.store.save_cluster_health(cluster, health, versions)

    def _end_restore(self) -> None:
        """Pause restored pools and delete their adopted bounds.

        If no restore is finished, end the finished passes of convergence.
        """
        before, store, versions = self.stored.control, self.ports.store, self.stored.versions
        restored = after_restore(before, self.plan, self.stored.state, self.run_state.groups)
        if restored is None:
            requested = unfinished_passes(before.convergence_requested, self.plan)
            if requested != before.convergence_requested:
                control = before.model_copy(update={"convergence_requested": requested})
                store.save_record(self._record, control, versions)
            return
        control, sentence = restored
        for id, state in list(self.run_state.pools.items()):
            if state.adopted and before.restores(id) and not control.restores(id):
                # These bounds are deleted, because the next check after a resume adopts the bounds of that time, which
                # may differ.
                state = replace(state, adopted={}, desired_bounds={}, seen=None, published=None, release=None)
                self.run_state.save_pool(id, replace(state, convergence=ConvergenceState()))
        store.save_record(self._record, control, versions)
        self.has_restored = before.restoring
        self.summary.message = f"{self.summary.cluster}: {sentence}"

    def _delete_expired(self) -> None:
        """Delete expired items of events. The function that stores them has no right to set a time to live."""
        for expired in self.stored.expired[:_FORGOTTEN_AT_ONCE]:
            try:
                self.ports.store.forget(self.summary.cluster, expired, self.stored.versions)
            except StateConflictError:
                continue  # another writer has changed the item


def _is_rejected(outcome: Outcome) -> bool:
    return outcome.result is Result.REJECTED
