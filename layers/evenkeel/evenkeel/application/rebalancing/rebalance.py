"""One run of one cluster: observe, plan, journal, write, record. No other use case writes to a cluster.

A run does not open an unreachable cluster. Only checks that read no other cluster open it, at growing intervals. Such a
check requests a run, which stores the check's result and requests the next such check.

A run guarantees five things:

- If the table is unavailable, the run writes nothing, because it takes the lease before the first patch.
- An incomplete read leads to no action.
- A conflict leads to a new read and plan, at most three times.
- If the API refuses to write a group, the next plan freezes this group.
- After a write, a second check follows. At most one requested check is due at any time.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from math import ceil

from evenkeel.application.drill.drill import follow
from evenkeel.application.errors import (
    AccessError,
    AccessUnavailableError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    StateConflictError,
    StateRefusedError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.incidents.notify import PAUSED, UNREGISTERED, kind_of, store_cluster_health
from evenkeel.application.ports import CheckResult, Queue, Remaining, StoredCluster, Versions
from evenkeel.application.rebalancing.plan import ClusterObserver, PlannedObservation, is_steady, rest_of
from evenkeel.application.rebalancing.ports import Clusters, RunPorts
from evenkeel.application.rebalancing.run import Run
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.drill.drill import Facts
from evenkeel.domain.fleet.check_times import (
    Chunk,
    SteadyState,
    Unreachable,
    after_no_answer,
    next_timer,
)
from evenkeel.domain.incidents.health import evaluate_unread, with_refused_write, with_stopped
from evenkeel.domain.incidents.pods_wait import without_waiting
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import TROUBLE_AFTER, ClusterHealth, IncidentKind
from evenkeel.domain.rebalancing.membership.pausing import is_left_alone
from evenkeel.state_records import fenced_zones
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.rebalance")

# Limit of plans per run: the first plan, and a new plan after each conflict. After the last one, the next scheduled
# check continues within a minute.
_ROUNDS = 4
# No check reads a paused or unregistered cluster. If the bus does not accept the event that its incident has ended, the
# run requests another run to publish the event. The delay before this run is the time since the incident ended, within
# these limits. After a day, no further run is requested.
_SOONEST_RETRY, _LATEST_RETRY = timedelta(minutes=1), timedelta(minutes=15)
_RETRIED_FOR = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Rebalance(RunPorts):
    """The use case with its ports; ``dry_run`` is the stack's default."""

    clusters: Clusters
    queue: Queue
    dry_run: bool

    @cached_property
    def observer(self) -> ClusterObserver:
        """Return the observer, which reads and plans clusters."""
        return ClusterObserver(clusters=self.clusters, clock=self.clock, dry_run=self.dry_run)

    def __call__(
        self,
        cluster: str,
        reason: str,
        remaining: Remaining,
        result: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> RunSummary:
        """Carry out one run.

        ``result``: the result of the check that requested the run. ``steady``: the steady state that this check found.

        Raises:
            UnknownClusterError: the message can never succeed.
            StateUnavailableError, LeaseHeldError: try the message again later.
        """
        summary = RunSummary(cluster=cluster)
        rounds = _Rounds(ports=self, summary=summary, reason=reason, remaining=remaining, result=result, steady=steady)
        try:
            rounds.run()
        except StateRefusedError as error:  # a retry of the message would be refused, too
            rounds.notify_refused(str(error))
        finally:
            # A write needs a second check, even if the table is unavailable after the patch.
            self._request_next_check(summary, rounds.stored)
        summary.message = summary.sentence
        return summary

    def _request_next_check(self, summary: RunSummary, stored: StoredCluster | None) -> None:
        """Request the next check, unless one is due sooner."""
        before = stored.timer if stored else None
        skew = summary.plan.clock_skew if summary.plan else timedelta(0)
        moments = (summary.check_at, summary.plan.check_at if summary.plan else None)
        timer, seconds = next_timer(
            before,
            self.clock.now() + skew,
            wrote=summary.written > 0,
            doubtful=summary.doubtful,
            wanted=min((moment for moment in moments if moment is not None), default=None),
        )
        if seconds is not None:
            reason = "second check after a write" if summary.written or summary.doubtful else "a check is due"
            self.queue.check_again(summary.cluster, reason, seconds)
        if stored is not None and timer is not None and timer != before:
            try:
                self.store.save_timer(summary.cluster, timer, stored.versions)
            except (StateConflictError, StateUnavailableError) as error:
                _log.info("timer not stored: %s", error, extra={"cluster": summary.cluster})


@dataclass(kw_only=True)
class _Rounds:
    """The reads and plans of one run, until a plan is carried out without a conflict."""

    ports: Rebalance
    summary: RunSummary
    reason: str
    remaining: Remaining
    result: CheckResult | None = None
    steady: SteadyState | None = None
    stored: StoredCluster | None = None  # the stored items, as last loaded
    refused: dict[GroupKey, str] = field(default_factory=dict)  # as in ``Run``

    @property
    def _cluster(self) -> str:
        return self.summary.cluster

    def run(self) -> None:
        """Read, plan, and carry out the plan. Start again after a fix, a conflict or a refused write."""
        for rounds_left in reversed(range(_ROUNDS)):
            stored = self._load()
            planned = None if stored is None else self._observe_and_plan(stored)
            if stored is None or planned is None:
                return
            is_quiet = is_steady(stored, planned.observation, planned.plan)
            if not is_quiet:
                self._forget_steady(stored)
            run = Run(
                ports=self.ports,
                summary=self.summary,
                stored=stored,
                api=planned.api,
                plan=planned.plan,
                reason=self.reason,
                remaining=self.remaining,
                refused=planned.refused,
                workload=planned.observation.workload,
            )
            if run.due_fixes:
                if not self._fix(run):
                    return
                continue  # the next plan is made from the fixed numbers
            refused_before, before = len(self.refused), dict(stored.versions)
            conflict = self._carry_out(run)
            if run.has_restored:
                self._notify_later(run.cluster_health, PAUSED)
            if not conflict and len(self.refused) == refused_before:
                if is_quiet and stored.versions != before:
                    self._forget_steady(stored)  # the run has changed stored items
                elif is_quiet and (steady := self._steady_to_store(stored, planned)) is not None:
                    self._save_steady(stored, steady)
                return
            self.summary.conflicts += int(conflict and rounds_left > 0)
        _log.warning(
            "still contended after %s rounds, the next scan goes on", _ROUNDS, extra={"cluster": self._cluster}
        )

    def _load(self) -> StoredCluster | None:
        """Return the stored items; None: the run ends here, and the summary has the reason."""
        try:
            stored = self.stored = self.ports.store.load(self._cluster)
        except ConfigError as error:
            self._unreadable(error)
            self._notify_invalid_record(str(error))
            return None
        except UnknownClusterError:
            if not self._notify_unregistered():
                raise
            return None
        self.summary.dry_run = stored.control.writes_nothing(stored.record, self.ports.dry_run)
        leaves = self._is_paused(stored) or self._is_stopped(stored) or self._is_unreachable(stored)
        return None if leaves else stored

    def _observe_and_plan(self, stored: StoredCluster) -> PlannedObservation | None:
        """Return the cluster's observation and plan. If it cannot be read, store and notify this, and return None."""
        observer = self.ports.observer
        try:
            observed = observer.observe(stored, self.remaining)
            planned = observer.plan(stored, observed, self.refused, self.remaining)
        except EvenkeelError as error:
            if self.summary.plan is not None:  # the cluster has answered in this run: its time may be over
                _log.warning("not read again: %s", error, extra={"cluster": self._cluster})
                self.summary.doubtful = True
                return None
            self._unreadable(error)
            if not isinstance(error, AccessUnavailableError):
                self._notify_unread(stored, kind_of(error), str(error))
            return None
        if self.result in (CheckResult.UNSEEN, CheckResult.ANSWERS):
            self.ports.store.save_checked_at([self._cluster], self.ports.clock.now())
        if stored.unreachable is not None and not stored.unreachable.is_over:
            self._save_unreachable(stored, replace(stored.unreachable, failed_checks=0))
        self.summary.plan, self.refused = planned.plan, planned.refused
        return planned

    def _carry_out(self, run: Run) -> bool:
        """Carry out the plan. Return True if the cluster or its stored state has changed since the read."""
        try:
            return run.carry_out()
        except StateConflictError as error:
            _log.info("state changed meanwhile, reading again: %s", error, extra={"cluster": self._cluster})
            return True

    def _fix(self, run: Run) -> bool:
        """Write the due fixes. Return False if the cluster does not answer."""
        try:
            run.fix()
        except (ConflictError, StateConflictError) as error:
            _log.info("changed meanwhile, reading again: %s", error, extra={"cluster": self._cluster})
        except (ClusterUnavailableError, AccessError) as error:
            self.summary.doubtful = True
            self._unreadable(error)
            return False
        return True

    def _unreadable(self, error: Exception | str) -> None:
        """Set the summary to unreachable, and log why.

        The queue does not retry the message, because the next check reads the cluster again.
        """
        self.summary.unreachable = True
        self.summary.message = f"{self._cluster}: not checked: {error}"
        _log.error(self.summary.message, extra={"cluster": self._cluster})

    # Steady clusters

    def _forget_steady(self, stored: StoredCluster) -> None:
        """Delete the steady state before any other write.

        So the next checks are full checks even if this run is killed.
        """
        if stored.steady is not None and stored.steady.seen:
            self._save_steady(stored, SteadyState(at=self.ports.clock.now(), seen={}))

    def _steady_to_store(self, stored: StoredCluster, planned: PlannedObservation) -> SteadyState | None:
        """Return the steady state to store; None: the stored one is right. An event ends the cluster's rest."""
        now, before = self.ports.clock.now(), stored.steady
        rests_until = rest_of(stored, now)
        if self.steady is not None:
            return replace(self.steady, rests_until=rests_until)
        if before is not None and not before.seen:
            return planned.steady(stored, now)  # a run after a write stores it, so that no check has to request a run
        if before is None or before.rests_until is None or rests_until is not None:
            return None
        return replace(before, rests_until=None)

    def _save_steady(self, stored: StoredCluster, steady: SteadyState) -> None:
        """Store the steady state. If a run is killed in between, the cluster is checked every minute."""
        store, before = self.ports.store, stored.steady.rests_until if stored.steady else None
        try:
            if before is not None and steady.rests_until is None:
                store.save_rest(self._cluster, None, stored.versions)
            store.save_steady(self._cluster, steady, stored.versions)
            if steady.rests_until not in (None, before):
                store.save_rest(self._cluster, steady.rests_until, stored.versions)
        except StateConflictError as error:  # another writer of the record has deleted the steady state
            _log.info("steady state not stored: %s", error, extra={"cluster": self._cluster})

    # Paused clusters

    def _is_paused(self, stored: StoredCluster) -> bool:
        """Return True if the cluster is paused, and Evenkeel's bounds keep no autoscaler from ordering nodes.

        A run of a paused cluster still publishes changes that the last run could not publish, such as the end of an
        incident. It deletes since when pods wait, because no check looks for them during the pause.
        """
        now, health = self.ports.clock.now(), stored.cluster_health
        if not stored.control.is_paused(now):
            return False
        calm = without_waiting(health)
        published = self._store_health(health, calm, stored.versions) if health.outbox or calm != health else None
        if published is not None:
            self._notify_later(published, PAUSED)
        has_drill = stored.drill is not None and not stored.drill.is_recorded
        if is_left_alone(stored.state, stored.unfinished, is_paused=True, has_drill=has_drill):
            self.summary.message = f"{self._cluster}: paused, not checked"
            return True
        return False

    # Clusters that no check reads

    def _is_stopped(self, stored: StoredCluster) -> bool:
        """Return True if this run only opens the incident that no check has read the cluster for too long.

        The next check reads the cluster, and closes the incident.
        """
        if self.result is not CheckResult.STOPPED:
            return False
        before, times, now = stored.cluster_health, self.ports.store.checked_at(), self.ports.clock.now()
        after_this = with_stopped(before, times.stopped_since(self._cluster, stored.record.scan_interval, now))
        self.summary.message = f"{self._cluster}: no check has read it"
        if after_this != before:
            self._forget_steady(stored)  # a quick check would not close the incident
            self._store_health(before, after_this, stored.versions)
        return True

    # Unreachable clusters

    def _is_unreachable(self, stored: StoredCluster) -> bool:
        """Return True if this run must not read the cluster, because it does not answer.

        If a failed check requested this run, the failure is stored. Any other request moves the next check to an
        earlier time.
        """
        unreachable, now = stored.unreachable, self.ports.clock.now()
        if self.result is CheckResult.SILENT:
            self._unreadable(self.reason)
            self._notify_unread(stored, IncidentKind.UNREACHABLE, self.reason)
            return True
        if unreachable is None or self.result is CheckResult.ANSWERS or not unreachable.keeps_away(now):
            return False
        if (sooner := unreachable.asked_soon(now)) is not None and self._save_unreachable(stored, sooner):
            self._check_alone(sooner)
        self._unreadable(f"it has not answered since {rfc3339(unreachable.since)}: {unreachable.why}")
        return True

    def _notify_unread(self, stored: StoredCluster, kind: IncidentKind, reason: str) -> None:
        """Store that a check got no answer, request the next check, and open the incident once its delay is over."""
        now, health = self.ports.clock.now(), stored.cluster_health
        unreachable = after_no_answer(stored.unreachable, now, reason)
        if unreachable is not None and self._save_unreachable(stored, unreachable):
            self._check_alone(unreachable)
        known = unreachable or stored.unreachable
        since, after = now if known is None else known.since, stored.record.opens_trouble_after
        after_this = evaluate_unread(health, kind, reason, since, self.ports.clock.now(), after)
        self._follow_drill(stored, after_this)
        self._store_health(health, after_this, stored.versions)

    def _follow_drill(self, stored: StoredCluster, health: ClusterHealth) -> None:
        """End the drill if the cluster cannot be read for too long."""
        now = self.ports.clock.now()
        incidents = tuple(incident for incident in health.incidents if incident.kind.of_cluster)
        facts = Facts(incidents=incidents, fences=frozenset(fenced_zones(stored.zones, now)))
        try:
            follow(self.ports.store, stored, facts, now)
        except StateConflictError as error:
            _log.info("drill not stored: %s", error, extra={"cluster": self._cluster})

    def _save_unreachable(self, stored: StoredCluster, unreachable: Unreachable) -> bool:
        """Store whether the cluster answers. Return False if another run has just changed this item."""
        self._forget_steady(stored)
        try:
            self.ports.store.save_unreachable(self._cluster, unreachable, stored.versions)
        except StateConflictError:
            return False
        return True

    def _check_alone(self, unreachable: Unreachable) -> None:
        seconds = ceil((unreachable.next_check - self.ports.clock.now()).total_seconds())
        self.ports.queue.request_checks([Chunk(clusters=(self._cluster,), delay=max(0, seconds))])

    # Health without a plan

    def _notify_invalid_record(self, reason: str) -> None:
        """Open an incident about the record. Without a valid record, only the stored health can be read."""
        health, versions = self.ports.store.cluster_health(self._cluster)
        now = self.ports.clock.now()
        after_this = evaluate_unread(health, IncidentKind.INVALID_RECORD, reason, now, now, TROUBLE_AFTER)
        self._store_health(health, after_this, versions)

    def notify_refused(self, reason: str) -> None:
        """Open an incident, because the table refuses to store the cluster's state. The next check tries again."""
        self.summary.rejected += 1
        self.summary.message = f"{self._cluster}: its state is not stored: {reason}"
        _log.error(self.summary.message, extra={"cluster": self._cluster})
        health, versions = self.ports.store.cluster_health(self._cluster)
        self._store_health(health, with_refused_write(health, reason, self.ports.clock.now()), versions)

    def _notify_unregistered(self) -> bool:
        """Close the incidents of an unregistered cluster. Return False if the cluster has no stored health."""
        health, versions = self.ports.store.cluster_health(self._cluster)
        if not versions and self.reason != UNREGISTERED:
            return False
        if health != ClusterHealth():
            published = self._store_health(health, without_waiting(health.with_incidents(())), versions)
            if published is None or not published.is_empty:
                self._notify_later(published or ClusterHealth(), UNREGISTERED, always=True)
        self.summary.message = f"{self._cluster}: it is not registered any more"
        return True

    def _notify_later(self, health: ClusterHealth, reason: str, *, always: bool = False) -> None:
        """Request a run that publishes the outbox. Checks request no run for a paused or unregistered cluster."""
        if not health.outbox and not always:
            return
        now = self.ports.clock.now()
        waited = now - max((change.at for change in health.outbox if change.at is not None), default=now)
        if waited >= _RETRIED_FOR:
            _log.error(
                "%s: the end of its incident is not published: the bus has not accepted it for a day: %s it again",
                self._cluster,
                "unregister" if reason == UNREGISTERED else "pause",
                extra={"cluster": self._cluster},
            )
            return
        wait = min(max(waited, _SOONEST_RETRY), _LATEST_RETRY)
        self.ports.queue.check_again(self._cluster, reason, ceil(wait.total_seconds()))

    def _store_health(self, before: ClusterHealth, health: ClusterHealth, versions: Versions) -> ClusterHealth | None:
        """Store and notify the health. Return the stored health; None: another run has stored a health meanwhile."""
        try:
            return store_cluster_health(self.ports, self._cluster, before, health, versions)
        except StateConflictError as error:
            _log.info("cluster health not stored: %s", error, extra={"cluster": self._cluster})
            return None
