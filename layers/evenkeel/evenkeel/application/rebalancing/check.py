"""Read and plan clusters in parallel, and request a run for each cluster that has a pending change.

The only item that a check writes is the time at which it read its clusters. To find out whether a run is needed, the
check carries out the run with a substitute table and bus, which raise an error at the first write.

A steady cluster gets a quick check. While its node groups are the same objects in the same versions, and the owners of
their numbers have the same settings, a run has nothing to do. Runs store these versions, because checks have no right
to store them. Each cluster gets a full check about every 15 minutes; while it rests, every hour.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NoReturn, cast

from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    AccessUnavailableError,
    EvenkeelError,
    QueueUnavailableError,
    TooLargeError,
    UnknownClusterError,
    contained,
)
from evenkeel.application.ports import CheckResult, Clock, Executor, Queue, Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import within_check
from evenkeel.application.rebalancing.plan import ClusterObserver, PlannedObservation
from evenkeel.application.rebalancing.ports import CheckableClusters, CheckStore, RunPorts, RunStore, SteadyCluster
from evenkeel.application.rebalancing.run import Run
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.fleet.check_times import (
    Chunk,
    SteadyState,
    check_interval,
    is_full_check,
    is_missed,
    is_unreachable,
)
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.plan import FIGURES
from evenkeel.domain.rebalancing.membership.pausing import is_left_alone
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.check")
# Seconds. In each interval of this length, SQS accepts one request for a run per cluster and check result.
_ASKED_APART = 15


@dataclass(kw_only=True)
class CheckSummary:
    """The result of checking a chunk, for metrics."""

    alone: bool  # True: the chunk is one cluster
    full_checks: list[RunSummary] = field(default_factory=list)  # one for each full check
    steady_clusters: dict[str, SteadyState] = field(default_factory=dict)  # clusters whose quick check found no change
    failed: int = 0  # the number of checks that failed because of the table or a queue
    cluster_healths: dict[str, ClusterHealth] = field(default_factory=dict)  # only clusters with incidents
    resting: set[str] = field(default_factory=set)  # clusters that are checked less often now
    measured: set[str] = field(default_factory=set)  # clusters whose records enable metrics per cluster

    def metrics(self) -> dict[str, int]:
        """Return the metrics of these checks for the stack. Each requested run returns its own metrics."""
        names = ("PoolsInvalid", "PoolsStarved", "PoolsOvercommitted", "GroupsFenced", "WritesContested", "Headroom")
        single = [summary.metrics() for summary in self.full_checks]
        sums = {name: sum(metrics[name] for metrics in single) for name in (*names, *FIGURES, "ClustersUnreachable")}
        for name in FIGURES:
            sums[name] += sum(steady.figures.get(name, 0) for steady in self.steady_clusters.values())
        sums["Headroom"] += sum(steady.headroom for steady in self.steady_clusters.values())
        imbalances = [metrics["Imbalance"] for metrics in single]
        imbalances += [steady.imbalance for steady in self.steady_clusters.values()]
        return {
            "ClustersChecked": len(self.full_checks) + len(self.steady_clusters),
            "RunsFailed": self.failed,
            "Incidents": sum(len(health.incidents) for health in self.cluster_healths.values()),
            **sums,
            "Imbalance": max(imbalances, default=0),
        }

    def metrics_of_clusters(self) -> dict[str, dict[str, int]]:
        """Return metrics by cluster, for the clusters whose records enable them.

        For a cluster that was not read, only the metrics of its incidents are returned.
        """
        runs = {run.cluster: run.metrics() for run in self.full_checks if run.plan is not None}
        measured = {}
        for cluster in sorted(self.measured):
            incidents = self.cluster_healths.get(cluster, ClusterHealth()).incidents
            counts = {"Incidents": len(incidents), "NodesMissing": sum(incident.missing for incident in incidents)}
            if steady := self.steady_clusters.get(cluster):
                counts |= {"Headroom": steady.headroom, "Imbalance": steady.imbalance}
            elif run := runs.get(cluster):
                counts |= {name: run[name] for name in ("GroupsFenced", "Headroom", "Imbalance")}
            measured[cluster] = counts
        return measured


@dataclass(frozen=True)
class _Change:
    """A reason to request a run."""

    reason: str
    result: CheckResult | None = None
    steady: SteadyState | None = None


_NEEDS_FULL_CHECK = _Change("not as it was")


@dataclass(frozen=True, kw_only=True)
class CheckClusters:
    """The use case with its ports; ``dry_run`` is the stack's default, ``together`` runs the checks in parallel."""

    store: CheckStore
    clusters: CheckableClusters
    queue: Queue
    clock: Clock
    dry_run: bool
    together: Executor

    @cached_property
    def _observer(self) -> ClusterObserver:
        return ClusterObserver(clusters=self.clusters, clock=self.clock, dry_run=self.dry_run, consistent=False)

    @cached_property
    def _recording_ports(self) -> RunPorts:
        store = cast(RunStore, _RecordingPorts())
        return RunPorts(store=store, bus=_RecordingPorts(), clock=self.clock, random_bytes=bytes)

    def __call__(self, clusters: Sequence[str], remaining: Remaining, rests: Sequence[str] = ()) -> CheckSummary:
        """Check these clusters, and return the results. An error of one cluster does not affect the others.

        ``rests``: resting clusters that are not due. The time of their last check is stored with that of the others, so
        that the stored item always has the same clusters.
        """
        summary = CheckSummary(alone=len(clusters) == 1)
        steady = self._steady(clusters)
        self.together([partial(self._check, cluster, steady.get(cluster), remaining, summary) for cluster in clusters])
        self._save_checked_at(summary, rests)
        return summary

    def split(self, clusters: Sequence[str]) -> None:
        """Request a separate check of each cluster: one is too large, or SQS has repeated their chunk."""
        self.queue.request_checks([Chunk(clusters=(cluster,)) for cluster in clusters])

    def _steady(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        try:
            return self.store.steady_clusters(clusters)
        except EvenkeelError as error:  # each cluster then gets a full check
            _log.warning("steady clusters not read: %s", error)
            return {}

    def _save_checked_at(self, summary: CheckSummary, rests: Sequence[str]) -> None:
        """Store when these clusters were read. Otherwise a quiet cluster would look as if checks no longer read it."""
        seen = {*summary.steady_clusters, *(run.cluster for run in summary.full_checks if run.seen)}
        resting = sorted({*rests, *(summary.resting & seen)})
        try:
            if seen or resting:
                self.store.save_checked_at(sorted(seen.difference(resting)), self.clock.now(), resting)
        except EvenkeelError as error:  # the next check stores a newer time
            _log.warning("not stored that %s clusters were checked: %s", len(seen), error)

    def _check(self, cluster: str, steady: SteadyCluster | None, remaining: Remaining, summary: CheckSummary) -> None:
        run = RunSummary(cluster=cluster)
        if steady is not None and steady.steady.is_resting(self.clock.now()):
            summary.resting.add(cluster)
        try:
            change: _Change | None = _NEEDS_FULL_CHECK
            if steady is not None and not _is_full_check(steady.record, steady.steady, self.clock.now()):
                change = self._contained(run, partial(self._quick_check, steady, remaining, summary))
            if change is _NEEDS_FULL_CHECK:
                stored = contained(cluster, "its state was read", partial(self._load, cluster, summary))
                if stored is None:
                    return
                change = self._contained(run, partial(self._full_check, stored, run, remaining, alone=summary.alone))
            if cluster not in summary.steady_clusters:
                summary.full_checks.append(run)
            elif steady is not None and steady.record.metrics:
                summary.measured.add(cluster)
            if change is not None:
                self._request_run(cluster, change)
        except EvenkeelError as error:  # the table or a queue has failed; the next check tries again
            summary.failed += 1
            _log.error("%s: not checked: %s", cluster, error, extra={"cluster": cluster})

    def _request_run(self, cluster: str, change: _Change) -> None:
        stretch = int(self.clock.now().timestamp()) // _ASKED_APART
        kind = change.result or ("steady" if change.steady else "change")
        self.queue.request(cluster, change.reason, f"check-{cluster}-{stretch}-{kind}", change.result, change.steady)

    def _contained(self, run: RunSummary, check: Callable[[], _Change | None]) -> _Change | None:
        """Return the result of a check. If the cluster gives no usable answer, this is a reason for a run, too.

        Raises AccessUnavailableError or QueueUnavailableError if AWS is at fault, not the cluster.
        """
        try:
            return contained(run.cluster, "it was checked", check)
        except (AccessUnavailableError, QueueUnavailableError):
            raise
        except EvenkeelError as error:
            run.unreachable = True
            return _Change(str(error), CheckResult.SILENT)

    # Quick checks

    def _quick_check(self, steady: SteadyCluster, remaining: Remaining, summary: CheckSummary) -> _Change | None:
        record, seen, left = steady.record, steady.steady.seen, within_check(remaining)
        open_it = partial(self.clusters.open, record, left, consistent=False, alone=summary.alone)
        try:
            if not contained(record.id, "it was checked quickly", lambda: open_it().shows(seen)):
                return _NEEDS_FULL_CHECK
        except AccessUnavailableError:
            raise
        except (TooLargeError, AccessRefusedError, AccessError):
            return _NEEDS_FULL_CHECK  # the full check handles the error
        summary.steady_clusters[record.id] = steady.steady
        return None

    # Full checks

    def _load(self, cluster: str, summary: CheckSummary) -> StoredCluster | None:
        """Return the stored items; None: the cluster is not checked now."""
        try:
            stored = self.store.load(cluster, consistent=False)
        except UnknownClusterError:
            return None
        except ConfigError as error:
            summary.full_checks.append(RunSummary(cluster=cluster, unreachable=True))
            _log.error("%s: not checked: %s", cluster, error, extra={"cluster": cluster})
            invalid = Incident(kind=IncidentKind.INVALID_RECORD, since=self.clock.now())
            summary.cluster_healths[cluster] = ClusterHealth(incidents=(invalid,))
            self.queue.request(cluster, "its record is invalid", f"record-{cluster}")  # SQS drops repeats for 5 min
            return None
        now, unreachable = self.clock.now(), stored.unreachable
        is_paused, has_drill = stored.control.is_paused(now), stored.drill is not None and not stored.drill.is_recorded
        if is_left_alone(stored.state, stored.unfinished, is_paused=is_paused, has_drill=has_drill):
            return None
        if stored.record.metrics:
            summary.measured.add(cluster)
        if stored.cluster_health.incidents:  # also for an unreachable cluster that is skipped below
            summary.cluster_healths[cluster] = stored.cluster_health
        if (
            unreachable is not None
            and unreachable.is_left_alone(now)
            and not (summary.alone and unreachable.is_due(now))
        ):
            return None
        return stored

    def _full_check(
        self, stored: StoredCluster, run: RunSummary, remaining: Remaining, *, alone: bool
    ) -> _Change | None:
        """Return why a run is needed; None: no run is needed.

        Raises EvenkeelError if the cluster gives no usable answer.
        """
        # The check result that lets a run read the cluster: ANSWERS if the cluster was unreachable, else UNSEEN.
        to_a_run = CheckResult.ANSWERS if is_unreachable(stored.unreachable) else CheckResult.UNSEEN
        try:
            observed = self._observer.observe(stored, remaining, alone=alone)
            run.seen = True
        except TooLargeError:
            if alone:  # a run's limit for each list equals the limit for all checks of a chunk together
                return _Change("too large for a check", to_a_run)
            self.split([run.cluster])
            return None
        except AccessUnavailableError:
            raise
        except (AccessRefusedError, AccessError) as error:
            # A run has other rights and tokens than a check. On EKS and with roles, only the check may lack a right.
            _log.warning("%s: left to a run: %s", run.cluster, error, extra={"cluster": run.cluster})
            return _Change("checks are refused", to_a_run)
        if is_unreachable(stored.unreachable):
            return _Change("it answers again", CheckResult.ANSWERS)
        if self.clusters.needs_run(stored.record):
            return _Change("its access is renewed")
        try:
            planned = self._observer.plan(stored, observed, {}, remaining, alone=alone)
        except TooLargeError:  # the cluster has too many pods
            self.split([run.cluster])
            return None
        run.plan = planned.plan
        if stored.control.fixes or is_missed(stored.timer, planned.plan.now, planned.plan.check_at):
            return _Change("a check is due")
        if self._would_write(stored, planned, run):
            return _Change("scan")
        steady = self._steady_state_to_store(stored, planned)
        return None if steady is None else _Change("nothing to be done", steady=steady)

    def _would_write(self, stored: StoredCluster, planned: PlannedObservation, run: RunSummary) -> bool:
        """Return True if a run would write or publish anything with this plan."""
        rehearsal = Run(
            ports=self._recording_ports,
            summary=RunSummary(cluster=run.cluster, dry_run=stored.control.writes_nothing(stored.record, self.dry_run)),
            stored=stored,
            api=planned.api,
            plan=planned.plan,
            reason="",
            remaining=lambda: 0.0,
            refused=dict(planned.refused),
            workload=planned.observation.workload,
            stores_waiting=_is_full_check(stored.record, stored.steady, self.clock.now()),
        )
        try:
            rehearsal.carry_out()
        except _WouldWriteError:
            return True
        return False

    def _steady_state_to_store(self, stored: StoredCluster, planned: PlannedObservation) -> SteadyState | None:
        """Return the steady state that a run must store to make quick checks possible; None: no state is to be stored.

        If a run has deleted the stored state, the new state is stored at once. Otherwise it is stored at the cluster's
        next regular full check, so that the requests of all clusters are spread over time.
        """
        now, before = self.clock.now(), stored.steady
        has_ended = before is not None and not before.seen
        if not has_ended and not _is_full_check(stored.record, before, now):
            return None
        steady = planned.steady(stored, now)
        return steady if steady and (before is None or before.is_followed_by(steady)) else None


class _WouldWriteError(Exception):
    """Raised when a run would write or publish."""


class _RecordingPorts:
    """A table and a bus whose every call raises _WouldWriteError."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise _WouldWriteError

        return refuse


def _is_full_check(record: ClusterRecord, steady: SteadyState | None, now: datetime) -> bool:
    """Return True if a scheduled check at this time is a full check."""
    resting = steady is not None and steady.is_resting(now)
    interval = check_interval(record.scan_interval, resting=resting)
    return is_full_check(record.id, interval, now, resting=resting)
