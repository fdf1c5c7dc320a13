"""Observe, plan, apply, record: one run for one cluster. The only use case that writes to a cluster.

A cluster that does not answer is not opened by a run that something else asks for: a look asks it, alone and less and
less often, and says what it found. Runs remember that, and ask for the next such look.

Promises kept here and in ``application.rebalancing.run``: without the table nothing is written (the lease is taken
before the first patch); a look that broke off leads to no action (it is an exception); a conflict leads to a new look
and a new plan, at most three times; a group that refuses to be written is planned around; whoever wrote comes back for
a second look, and one such look is due at any time.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from math import ceil

from evenkeel.application.errors import (
    AccessError,
    AccessUnavailableError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.incidents.notify import PAUSED, UNREGISTERED, kind_of, store_cluster_health
from evenkeel.application.offerings.sharing import read_offerings, with_reports
from evenkeel.application.ports import CheckResult, Queue, Remaining, StoredCluster, Versions
from evenkeel.application.rebalancing.plan import ClusterObserver, is_settled
from evenkeel.application.rebalancing.ports import Clusters, RunPorts
from evenkeel.application.rebalancing.run import Run
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Unreachable, after_no_answer, next_timer
from evenkeel.domain.incidents.health import evaluate_unread
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import TROUBLE_AFTER, ClusterHealth, IncidentKind
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.rebalance")

# A fourth plan against a fourth state of the world would be as stale as the third; the next scan is a minute away.
_ROUNDS = 4
# Until the bus is asked once more to take that the trouble of a cluster without a record has ended: as long again as it
# has not taken it, within what a queue can delay. One that takes nothing for a day is not waited for any longer.
_SOONEST_TOLD, _LATEST_TOLD = timedelta(minutes=1), timedelta(minutes=15)
_TOLD_FOR = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Rebalance(RunPorts):
    """The use case with its ports; ``dry_run`` is the stack's default."""

    clusters: Clusters
    queue: Queue
    dry_run: bool

    @cached_property
    def eyes(self) -> ClusterObserver:
        return ClusterObserver(clusters=self.clusters, clock=self.clock, dry_run=self.dry_run)

    def __call__(
        self,
        cluster: str,
        why: str,
        remaining: Remaining,
        found: CheckResult | None = None,
        settled: SteadyState | None = None,
    ) -> RunSummary:
        """One run. ``found``: what the look that asks for it has found; ``settled``: what it saw, nothing to be done.

        Raises:
            UnknownClusterError: the message can never succeed.
            StateUnavailableError, LeaseHeldError: try the message again later.
        """
        summary = RunSummary(cluster=cluster)
        rounds = _Rounds(ports=self, summary=summary, why=why, remaining=remaining, found=found, settled=settled)
        try:
            rounds.run()
        finally:
            # Also when the table has gone away after a patch: what was written must be looked at again.
            self._ask_for_next_look(rounds.summary, rounds.remembered)
        rounds.summary.message = rounds.summary.sentence
        return rounds.summary

    def _ask_for_next_look(self, summary: RunSummary, remembered: StoredCluster | None) -> None:
        """Ask for the look that is due next, if none is that comes sooner."""
        before = remembered.timer if remembered else None
        skew = summary.plan.clock_skew if summary.plan else timedelta(0)
        timer, seconds = next_timer(
            before,
            self.clock.now() + skew,
            wrote=summary.written > 0,
            doubtful=summary.doubtful,
            wanted=summary.plan.look_at if summary.plan else None,
        )
        if seconds is not None:
            reason = "second look after a write" if summary.written or summary.doubtful else "a look is due"
            self.queue.look_again(summary.cluster, reason, seconds)
        if remembered is not None and timer is not None and timer != before:
            try:
                self.store.save_timer(summary.cluster, timer, remembered.versions)
            except (StateConflictError, StateUnavailableError) as error:
                _log.info("timer not remembered: %s", error, extra={"cluster": summary.cluster})


@dataclass(kw_only=True)
class _Rounds:
    """The looks and plans of one run, until one is carried out without a conflict."""

    ports: Rebalance
    summary: RunSummary
    why: str
    remaining: Remaining
    found: CheckResult | None = None
    settled: SteadyState | None = None
    remembered: StoredCluster | None = None  # at the last look
    refused: dict[GroupKey, str] = field(default_factory=dict)  # as ``Run`` has them

    def run(self) -> None:
        for rounds_left in reversed(range(_ROUNDS)):
            looked = self._look_and_plan()
            if looked is None:
                return
            run, is_quiet = looked
            if run.due_fixes:
                if not self._fix(run):
                    return
                continue  # what is planned next, is planned with the new numbers
            refused_before, before = len(self.refused), dict(run.remembered.versions)
            conflict = self._carry_out(run)
            if run.has_restored:
                self._notify_later(run.cluster_health)
            if not conflict and len(self.refused) == refused_before:
                if is_quiet and run.remembered.versions != before:
                    self._forget_settled(run.remembered)  # something was to be done after all
                elif is_quiet and self.settled is not None:
                    self._save_settled(run.remembered, self.settled)
                return
            self.summary.conflicts += int(conflict and rounds_left > 0)
        _log.warning(
            "still contended after %s rounds, the next scan goes on", _ROUNDS, extra={"cluster": self.summary.cluster}
        )

    def _look_and_plan(self) -> tuple[Run, bool] | None:
        """A plan that is to be carried out, and whether time alone changes nothing about it.

        None: there is none, and the summary says why.
        """
        cluster, clock = self.summary.cluster, self.ports.clock
        try:
            remembered = self.remembered = self.ports.store.load(cluster)
        except ConfigError as error:
            self._unreadable(error)
            self._tell_bad_record(str(error))
            return None
        except UnknownClusterError:
            if not self._tell_gone():
                raise
            return None
        self.summary.dry_run = remembered.is_dry(self.ports.dry_run)
        if self._is_paused(remembered) or self._is_silent(remembered):
            return None
        try:
            remembered = self.remembered = with_reports(remembered, read_offerings(self.ports.store))
            looked = self.ports.eyes.look(remembered, self.remaining, self.refused)
        except EvenkeelError as error:
            self._unreadable(error)
            if not isinstance(error, AccessUnavailableError):
                since = self._remember_silence(remembered, str(error))
                self._tell_unread(remembered, kind_of(error), str(error), since)
            return None
        if self.found in (CheckResult.UNSEEN, CheckResult.ANSWERS):
            self.ports.store.save_looked_at([cluster], clock.now())
        if remembered.silence is not None and remembered.is_unreachable:
            self._save_silence(remembered, replace(remembered.silence, looks=0))
        self.summary.plan, self.refused = looked.plan, looked.refused
        is_quiet = is_settled(remembered, looked.observation, looked.plan)
        if not is_quiet:
            self._forget_settled(remembered)
        run = Run(
            ports=self.ports,
            summary=self.summary,
            remembered=remembered,
            api=looked.api,
            plan=looked.plan,
            why=self.why,
            remaining=self.remaining,
            refused=looked.refused,
        )
        return run, is_quiet

    # Clusters that nothing happens to

    def _forget_settled(self, remembered: StoredCluster) -> None:
        """Before anything is done: should this run break off, looks are at all of the cluster again."""
        if remembered.settled is not None and remembered.settled.seen:
            self._save_settled(remembered, SteadyState(at=self.ports.clock.now(), seen={}))

    def _save_settled(self, remembered: StoredCluster, settled: SteadyState) -> None:
        try:
            self.ports.store.save_settled(self.summary.cluster, settled, remembered.versions)
        except StateConflictError as error:  # the record has been written, and what stood beside it is gone
            _log.info("not remembered as settled: %s", error, extra={"cluster": self.summary.cluster})

    # Clusters that are paused, or do not answer

    def _is_paused(self, remembered: StoredCluster) -> bool:
        """Return True if the cluster is paused, and no pool has to be opened to an autoscaler first."""
        now = self.ports.clock.now()
        if not remembered.control.is_paused(now):
            return False
        self._notify_paused(remembered)
        if remembered.is_left_alone(now):
            return True
        self.summary.message = ""
        return False

    def _is_silent(self, remembered: StoredCluster) -> bool:
        """Whether the cluster is left alone because it does not answer; with what is to be done about that."""
        silence, now = remembered.silence, self.ports.clock.now()
        if self.found is CheckResult.SILENT:
            self._unreadable(self.why)
            since = self._remember_silence(remembered, self.why)
            self._tell_unread(remembered, IncidentKind.UNREACHABLE, self.why, since)
            return True
        if silence is None or self.found is CheckResult.ANSWERS or not silence.keeps_away(now):
            return False
        if (sooner := silence.asked_soon(now)) is not None and self._save_silence(remembered, sooner):
            self._look_alone(sooner)
        self._unreadable(f"it has not answered since {rfc3339(silence.since)}: {silence.why}")
        return True

    def _remember_silence(self, remembered: StoredCluster, why: str) -> datetime:
        """Count a look that was not answered, and ask for the next. Since when it does not answer."""
        now = self.ports.clock.now()
        silence = after_no_answer(remembered.silence, now, why)
        if silence is not None and self._save_silence(remembered, silence):
            self._look_alone(silence)
        known = silence or remembered.silence
        return now if known is None else known.since

    def _tell_unread(self, remembered: StoredCluster, kind: IncidentKind, why: str, since: datetime) -> None:
        cluster_health, after = remembered.cluster_health, remembered.record.opens_trouble_after
        after_this = evaluate_unread(cluster_health, kind, why, since, self.ports.clock.now(), after)
        self._store_cluster_health(cluster_health, after_this, remembered.versions)

    def _tell_bad_record(self, why: str) -> None:
        """What is stored of the cluster cannot be read: of all that, its verdict alone."""
        cluster_health, versions = self.ports.store.cluster_health(self.summary.cluster)
        now = self.ports.clock.now()
        after_this = evaluate_unread(cluster_health, IncidentKind.INVALID_RECORD, why, now, now, TROUBLE_AFTER)
        self._store_cluster_health(cluster_health, after_this, versions)

    def _tell_gone(self) -> bool:
        """Of a cluster that somebody has unregistered: what was told to begin ends. False: nothing is known of it."""
        cluster_health, versions = self.ports.store.cluster_health(self.summary.cluster)
        if not versions and self.why != UNREGISTERED:
            return False
        if cluster_health != ClusterHealth():
            kept = self._store_cluster_health(cluster_health, cluster_health.with_incidents(()), versions)
            if kept is None or not kept.is_empty:
                self._tell_the_rest_later(kept or ClusterHealth(), UNREGISTERED)
        self.summary.message = f"{self.summary.cluster}: it is not registered any more"
        return True

    def _notify_paused(self, remembered: StoredCluster) -> None:
        """Send what its last run could not send, such as the end of an incident. Nothing else is done."""
        cluster_health = remembered.cluster_health
        self.summary.message = f"{self.summary.cluster}: paused, nothing looked at"
        if (
            cluster_health.outbox
            and (kept := self._store_cluster_health(cluster_health, cluster_health, remembered.versions)) is not None
        ):
            self._notify_later(kept)

    def _notify_later(self, cluster_health: ClusterHealth) -> None:
        if cluster_health.outbox:
            self._tell_the_rest_later(cluster_health, PAUSED)

    def _tell_the_rest_later(self, cluster_health: ClusterHealth, why: str) -> None:
        """No look asks for another run of a cluster that is paused, or has no record."""
        cluster, now = self.summary.cluster, self.ports.clock.now()
        waited = now - max((news.at for news in cluster_health.outbox if news.at is not None), default=now)
        if waited >= _TOLD_FOR:
            _log.error(
                "%s: that its trouble has ended is not told: the bus has not taken it for a day: %s it again",
                cluster,
                "unregister" if why == UNREGISTERED else "pause",
                extra={"cluster": cluster},
            )
            return
        wait = min(max(waited, _SOONEST_TOLD), _LATEST_TOLD)
        self.ports.queue.look_again(cluster, why, ceil(wait.total_seconds()))

    def _store_cluster_health(
        self, before: ClusterHealth, cluster_health: ClusterHealth, versions: Versions
    ) -> ClusterHealth | None:
        """As it is remembered then. None: somebody else has judged meanwhile."""
        try:
            return store_cluster_health(self.ports, self.summary.cluster, before, cluster_health, versions)
        except StateConflictError as error:
            _log.info("verdict not kept: %s", error, extra={"cluster": self.summary.cluster})
            return None

    def _save_silence(self, remembered: StoredCluster, silence: Unreachable) -> bool:
        """False: somebody else has just remembered it."""
        self._forget_settled(remembered)
        try:
            self.ports.store.save_silence(self.summary.cluster, silence, remembered.versions)
        except StateConflictError:
            return False
        return True

    def _look_alone(self, silence: Unreachable) -> None:
        seconds = ceil((silence.next_check - self.ports.clock.now()).total_seconds())
        self.ports.queue.request_checks([Chunk(clusters=(self.summary.cluster,), delay=max(0, seconds))])

    def _carry_out(self, run: Run) -> bool:
        """True: what was read has changed."""
        try:
            return run.carry_out()
        except StateConflictError as error:
            _log.info("state changed meanwhile, reading again: %s", error, extra={"cluster": self.summary.cluster})
            return True

    def _fix(self, run: Run) -> bool:
        """False: the cluster does not answer."""
        try:
            run.fix()
        except (ConflictError, StateConflictError) as error:
            _log.info("changed meanwhile, reading again: %s", error, extra={"cluster": self.summary.cluster})
        except (ClusterUnavailableError, AccessError) as error:
            self.summary.doubtful = True
            self._unreadable(error)
            return False
        return True

    def _unreadable(self, error: Exception | str) -> None:
        """The next look tries again; a message kept in the queue would try no better."""
        self.summary.unreachable = True
        self.summary.message = f"{self.summary.cluster}: not looked at: {error}"
        _log.error(self.summary.message, extra={"cluster": self.summary.cluster})
