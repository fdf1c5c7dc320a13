"""Clusters are read and planned for side by side, and what is news is handed to ``rebalance``.

Nothing is written of a cluster, but in one item for all of them that they were looked at.

What is news is asked of the run itself: it is played with a table and a bus that take nothing, and whatever it would
write or tell is news. One that would do neither ends here, without a line in the log.

A cluster that is settled is glanced at: while its node groups are the objects, in the versions, that they were when
nothing was to be done, nothing is. A run remembers what they were, since looks may not; and now and then all of the
cluster is looked at in any case.
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
from evenkeel.application.offerings.sharing import is_affected, read_offerings, with_reports
from evenkeel.application.ports import CheckResult, Clock, Executor, Offerings, Queue, Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import is_unchanged
from evenkeel.application.rebalancing.plan import ClusterObserver, PlannedObservation
from evenkeel.application.rebalancing.ports import CheckableClusters, CheckStore, RunPorts, RunStore, SteadyCluster
from evenkeel.application.rebalancing.run import Run
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Unreachable, is_full_check, is_missed
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.look")
# Requests for runs of one cluster within so many seconds are one: the next look asks again, if it is still news.
_ASKED_APART = 15


@dataclass(kw_only=True)
class CheckSummary:
    """What came of the looks of a chunk, for metrics."""

    alone: bool  # one cluster, and no neighbours
    offerings: Offerings | None  # what all clusters say; None: nobody knows
    looked: list[RunSummary] = field(default_factory=list)
    steady_clusters: dict[str, SteadyState] = field(default_factory=dict)  # clusters that are as they were
    failed: int = 0  # looks that came to nothing because of ourselves
    cluster_healths: dict[str, ClusterHealth] = field(
        default_factory=dict
    )  # of clusters in trouble, as their last runs judged
    measured: set[str] = field(default_factory=set)  # clusters that have metrics of their own

    def metrics(self) -> dict[str, int]:
        """As a run's; of a cluster that is asked a run for, the run counts what it does."""
        names = ("PoolsInvalid", "PoolsStarved", "PoolsOvercommitted", "GroupsFenced", "WritesContested", "Headroom")
        single = [summary.metrics() for summary in self.looked]
        sums = {name: sum(metrics[name] for metrics in single) for name in (*names, "ClustersUnreachable")}
        sums["Headroom"] += sum(settled.headroom for settled in self.steady_clusters.values())
        imbalances = [metrics["Imbalance"] for metrics in single]
        imbalances += [settled.imbalance for settled in self.steady_clusters.values()]
        looked_at = len(self.looked) + len(self.steady_clusters)
        return {
            "ClustersLookedAt": looked_at,
            "RunsFailed": self.failed,
            "Incidents": sum(len(cluster_health.incidents) for cluster_health in self.cluster_healths.values()),
            **sums,
            "Imbalance": max(imbalances, default=0),
        }

    def metrics_of_clusters(self) -> dict[str, dict[str, int]]:
        """Of those whose records ask for it. What is not known of one that was not read is left out."""
        runs = {run.cluster: run.metrics() for run in self.looked if run.plan is not None}
        measured = {}
        for cluster in sorted(self.measured):
            cluster_health = self.cluster_healths.get(cluster, ClusterHealth())
            counts = {
                "Incidents": len(cluster_health.incidents),
                "NodesMissing": sum(each.missing for each in cluster_health.incidents),
            }
            if settled := self.steady_clusters.get(cluster):
                counts |= {"Headroom": settled.headroom, "Imbalance": settled.imbalance}
            elif run := runs.get(cluster):
                counts |= {name: run[name] for name in ("GroupsFenced", "Headroom", "Imbalance")}
            measured[cluster] = counts
        return measured


@dataclass(frozen=True, kw_only=True)
class CheckClusters:
    """The use case with its ports; ``dry_run`` is the stack's default, ``together`` looks at clusters side by side."""

    store: CheckStore
    clusters: CheckableClusters
    queue: Queue
    clock: Clock
    dry_run: bool
    together: Executor

    @cached_property
    def _eyes(self) -> ClusterObserver:
        return ClusterObserver(clusters=self.clusters, clock=self.clock, dry_run=self.dry_run, consistent=False)

    @cached_property
    def _recording_ports(self) -> RunPorts:
        store = cast(RunStore, _RecordingPorts())
        return RunPorts(store=store, bus=_RecordingPorts(), clock=self.clock, random_bytes=bytes)

    def __call__(self, clusters: Sequence[str], remaining: Remaining) -> CheckSummary:
        """Look at these clusters. What goes wrong at one of them is that one's, and delays no other."""
        summary = CheckSummary(alone=len(clusters) == 1, offerings=read_offerings(self.store))
        rest = self._at_rest(clusters)
        self.together([partial(self._look_at, cluster, rest.get(cluster), remaining, summary) for cluster in clusters])
        self._say_looked_at(summary)
        return summary

    def _at_rest(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        """Those that a glance may be enough for."""
        try:
            return self.store.steady_clusters(clusters)
        except EvenkeelError as error:  # then their looks will say so, or do without
            _log.warning("not known what is settled: %s", error)
            return {}

    def _say_looked_at(self, summary: CheckSummary) -> None:
        """All that is written of a quiet chunk: a cluster that is quiet is else like one that is forgotten."""
        seen = sorted([*summary.steady_clusters, *(run.cluster for run in summary.looked if run.seen)])
        try:
            if seen:
                self.store.save_looked_at(seen, self.clock.now())
        except EvenkeelError as error:  # the next look says it
            _log.warning("not said that %s clusters were looked at: %s", len(seen), error)

    def split(self, clusters: Sequence[str]) -> None:
        """Take a chunk apart: it has come back, so one of its clusters may be more than an invocation can bear."""
        self.queue.request_checks([Chunk(clusters=(cluster,)) for cluster in clusters])

    def _look_at(self, cluster: str, rest: SteadyCluster | None, remaining: Remaining, summary: CheckSummary) -> None:
        run = RunSummary(cluster=cluster)
        try:
            news: _News | None = _NOT_AS_IT_WAS
            if rest is not None and self._may_be_glanced_at(rest, summary):
                news = self._contained(run, partial(self._glance, rest, remaining, summary))
            if news is _NOT_AS_IT_WAS:
                remembered = contained(cluster, "its state was read", partial(self._remembered, cluster, summary))
                if remembered is None:
                    return
                news = self._contained(run, partial(self._news, remembered, run, remaining, alone=summary.alone))
            if cluster not in summary.steady_clusters:
                summary.looked.append(run)
            elif rest is not None and rest.record.metrics:
                summary.measured.add(cluster)
            if news is not None:
                self._ask_for_run(cluster, news)
        except EvenkeelError as error:  # of table or queue: the next look tries again
            summary.failed += 1
            _log.error("%s: not looked at: %s", cluster, error, extra={"cluster": cluster})

    def _ask_for_run(self, cluster: str, news: "_News") -> None:
        stretch = int(self.clock.now().timestamp()) // _ASKED_APART
        deduplication = f"look-{cluster}-{stretch}-{news.found or ('settled' if news.settled else 'news')}"
        self.queue.request(cluster, news.why, deduplication, news.found, news.settled)

    def _may_be_glanced_at(self, rest: SteadyCluster, summary: CheckSummary) -> bool:
        record, now = rest.record, self.clock.now()
        if is_full_check(record.id, record.scan_interval, now):
            return False
        return not is_affected(record, summary.offerings, rest.settled.zones)

    def _glance(self, rest: SteadyCluster, remaining: Remaining, summary: CheckSummary) -> "_News | None":
        """Whether all of the cluster is to be looked at. Raises as ``_news``."""
        try:
            seen = rest.settled.seen
            if not is_unchanged(self.clusters, rest.record, seen, remaining, alone=summary.alone):
                return _NOT_AS_IT_WAS
        except AccessUnavailableError:
            raise
        except (TooLargeError, AccessRefusedError, AccessError):
            return _NOT_AS_IT_WAS  # who looks at all of it knows what to do
        summary.steady_clusters[rest.record.id] = rest.settled
        return None

    def _remembered(self, cluster: str, summary: CheckSummary) -> StoredCluster | None:
        """None: the cluster is left alone."""
        try:
            remembered = with_reports(self.store.load(cluster, consistent=False), summary.offerings)
        except UnknownClusterError:
            return None
        except ConfigError as error:  # what is stored, which a look does not make right
            summary.looked.append(RunSummary(cluster=cluster, unreachable=True))
            _log.error("%s: not looked at: %s", cluster, error, extra={"cluster": cluster})
            invalid = Incident(kind=IncidentKind.INVALID_RECORD, since=self.clock.now())
            summary.cluster_healths[cluster] = ClusterHealth(incidents=(invalid,))
            self.queue.request(cluster, "its record is invalid", f"record-{cluster}")  # one in five minutes
            return None
        now = self.clock.now()
        if remembered.is_left_alone(now):
            return None
        if remembered.record.metrics:
            summary.measured.add(cluster)
        if remembered.cluster_health.incidents:  # also of a cluster that is left alone now, since it does not answer
            summary.cluster_healths[cluster] = remembered.cluster_health
        if _is_left_alone(remembered.silence, now, alone=summary.alone):
            return None
        return remembered

    def _contained(self, run: RunSummary, look: Callable[[], "_News | None"]) -> "_News | None":
        """What the look finds. That the cluster gives no usable answer is news, too.

        Raises EvenkeelError where nothing can be known, which is no word about the cluster.
        """
        try:
            return contained(run.cluster, "it was looked at", look)
        except (AccessUnavailableError, QueueUnavailableError):
            raise
        except EvenkeelError as error:
            run.unreachable = True
            return _News(str(error), CheckResult.SILENT)

    def _news(self, remembered: StoredCluster, run: RunSummary, remaining: Remaining, *, alone: bool) -> "_News | None":
        """Why a run is asked for; raises EvenkeelError where the cluster gives no usable answer."""
        try:
            api, observation = self._eyes.observe(remembered, remaining, alone=alone)
            run.seen = True
        except TooLargeError:
            if alone:  # a run may receive as much of each list as a look of all together
                return _News("too large for a look", _let_in(remembered))
            self.queue.request_checks([Chunk(clusters=(run.cluster,))])
            return None
        except AccessUnavailableError:
            raise
        except (AccessRefusedError, AccessError) as error:
            # A run has rights, and tokens, of its own. On EKS and by roles, those of looks may have been forgotten.
            _log.warning("%s: a run looks, since looks may not: %s", run.cluster, error, extra={"cluster": run.cluster})
            return _News("looks are refused", _let_in(remembered))
        if remembered.is_unreachable:
            return _News("it answers again", CheckResult.ANSWERS)
        if self.clusters.needs_run(remembered.record):
            return _News("its access is renewed")
        try:
            looked = self._eyes.plan(remembered, api, observation, {}, remaining, alone=alone)
        except TooLargeError:  # its pods, beside others'
            self.queue.request_checks([Chunk(clusters=(run.cluster,))])
            return None
        run.plan = looked.plan
        if remembered.control.fixes or is_missed(remembered.timer, looked.plan.now, looked.plan.look_at):
            return _News("a look is due")
        if self._would_act(remembered, looked, run):
            return _News("scan")
        settled = self._steady_state_to_store(remembered, looked)
        return None if settled is None else _News("nothing to be done", settled=settled)

    def _steady_state_to_store(self, remembered: StoredCluster, looked: PlannedObservation) -> SteadyState | None:
        """What a run is to remember, so that glances are enough.

        What a run has ended, at once; else at the cluster's turn, so that not all clusters ask in the same minute.
        """
        record, before = remembered.record, remembered.settled
        has_ended = before is not None and not before.seen
        if not has_ended and not is_full_check(record.id, record.scan_interval, self.clock.now()):
            return None
        settled = looked.settled(remembered)
        return settled if settled and (before is None or before.is_followed_by(settled)) else None

    def _would_act(self, remembered: StoredCluster, looked: PlannedObservation, run: RunSummary) -> bool:
        """Whether a run would write or tell anything with this plan."""
        rehearsal = Run(
            ports=self._recording_ports,
            summary=RunSummary(cluster=run.cluster, dry_run=remembered.is_dry(self.dry_run)),
            remembered=remembered,
            api=looked.api,
            plan=looked.plan,
            why="",
            remaining=lambda: 0.0,
            refused=dict(looked.refused),
        )
        try:
            rehearsal.carry_out()
        except _WouldWriteError:
            return True
        return False


def _let_in(remembered: StoredCluster) -> CheckResult:
    """What has a run open a cluster that it would else leave to looks."""
    return CheckResult.ANSWERS if remembered.is_unreachable else CheckResult.UNSEEN


def _is_left_alone(silence: Unreachable | None, now: datetime, *, alone: bool) -> bool:
    """Whether a cluster that does not answer is not asked now."""
    if silence is None or not silence.is_left_alone(now):
        return False
    return not (alone and silence.is_due(now))


@dataclass(frozen=True)
class _News:
    """What a run is asked for."""

    why: str
    found: CheckResult | None = None
    settled: SteadyState | None = None


_NOT_AS_IT_WAS = _News("not as it was")


class _WouldWriteError(Exception):
    """A run would do something."""


class _RecordingPorts:
    """A table and a bus that take nothing: the first thing that is asked of them is news."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise _WouldWriteError

        return refuse
