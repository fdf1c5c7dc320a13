"""Clusters are read and planned for side by side, and what is news is handed to ``rebalance``. Nothing is written.

What is news is asked of the run itself: it is played with a table and a bus that take nothing, and whatever it would
write or tell is news. One that would do neither ends here, without a line in the log.
"""

import logging
from collections.abc import Callable, Sequence
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
)
from evenkeel.application.looking import Eyes, Looked
from evenkeel.application.observing import contained
from evenkeel.application.ports import (
    Clock,
    Found,
    LookedAtClusters,
    Offerings,
    Queue,
    Remaining,
    Remembered,
    RunPorts,
    RunStore,
    Together,
)
from evenkeel.application.run import Run
from evenkeel.application.run_summary import RunSummary
from evenkeel.application.settled import SettledPlans
from evenkeel.application.sharing import hearing, read_offerings
from evenkeel.config import ConfigError
from evenkeel.domain.looks import Chunk, Silence, is_missed

_log = logging.getLogger("evenkeel.look")
# Requests for runs of one cluster within so many seconds are one: the next look asks again, if it is still news.
_ASKED_APART = 15


@dataclass(kw_only=True)
class LookSummary:
    """What came of the looks of a chunk, for metrics."""

    alone: bool  # one cluster, and no neighbours
    offerings: Offerings | None  # what all clusters say; None: nobody knows
    looked: list[RunSummary] = field(default_factory=list)
    failed: int = 0  # looks that came to nothing because of ourselves

    def metrics(self) -> dict[str, int]:
        """As a run's; of a cluster that is asked a run for, the run counts what it does."""
        names = ("PoolsInvalid", "PoolsStarved", "PoolsOvercommitted", "GroupsFenced", "WritesContested", "Headroom")
        single = [summary.metrics() for summary in self.looked]
        sums = {name: sum(metrics[name] for metrics in single) for name in (*names, "ClustersUnreachable")}
        imbalance = max((metrics["Imbalance"] for metrics in single), default=0)
        return {"ClustersLookedAt": len(self.looked), "RunsFailed": self.failed, **sums, "Imbalance": imbalance}


@dataclass(frozen=True, kw_only=True)
class Look:
    """The use case with its ports; ``dry_run`` is the stack's default, ``together`` looks at clusters side by side."""

    store: RunStore
    clusters: LookedAtClusters
    queue: Queue
    clock: Clock
    dry_run: bool
    together: Together

    @cached_property
    def _settled(self) -> SettledPlans:
        return SettledPlans()

    @cached_property
    def _eyes(self) -> Eyes:
        return Eyes(clusters=self.clusters, clock=self.clock, consistent=False)

    @cached_property
    def _rehearsal(self) -> RunPorts:
        store = cast(RunStore, _Rehearsal())
        return RunPorts(store=store, bus=_Rehearsal(), clock=self.clock, random_bytes=bytes)

    def __call__(self, clusters: Sequence[str], remaining: Remaining) -> LookSummary:
        """Look at these clusters. What goes wrong at one of them is that one's, and delays no other."""
        summary = LookSummary(alone=len(clusters) == 1, offerings=read_offerings(self.store))
        self.together([partial(self._look_at, cluster, remaining, summary) for cluster in clusters])
        self._say_looked_at(summary)
        return summary

    def _say_looked_at(self, summary: LookSummary) -> None:
        """All that is written of a quiet chunk: a cluster that is quiet is else like one that is forgotten."""
        try:
            if seen := sorted(run.cluster for run in summary.looked if run.seen):
                self.store.save_looked_at(seen, self.clock.now())
        except EvenkeelError as error:  # the next look says it
            _log.warning("not said that %s clusters were looked at: %s", len(seen), error)

    def one_by_one(self, clusters: Sequence[str]) -> None:
        """Take a chunk apart: it has come back, so one of its clusters may be more than an invocation can bear."""
        self.queue.request_looks([Chunk(clusters=(cluster,)) for cluster in clusters])

    def _look_at(self, cluster: str, remaining: Remaining, summary: LookSummary) -> None:
        try:
            remembered = contained(cluster, "its state was read", partial(self._remembered, cluster, summary))
            if remembered is None:
                return
            run = RunSummary(cluster=cluster)
            summary.looked.append(run)
            why, found = self._found(remembered, run, remaining, alone=summary.alone)
            if why:
                stretch = int(self.clock.now().timestamp()) // _ASKED_APART
                self.queue.request(cluster, why, f"look-{cluster}-{stretch}-{found or 'news'}", found)
        except EvenkeelError as error:  # of table or queue: the next look tries again
            summary.failed += 1
            _log.error("%s: not looked at: %s", cluster, error, extra={"cluster": cluster})

    def _remembered(self, cluster: str, summary: LookSummary) -> Remembered | None:
        """None: the cluster is left alone."""
        try:
            remembered = hearing(self.store.load(cluster, consistent=False), summary.offerings)
        except UnknownClusterError:
            return None
        except ConfigError as error:  # what is stored, which a look does not make right
            summary.looked.append(RunSummary(cluster=cluster, unreachable=True))
            _log.error("%s: not looked at: %s", cluster, error, extra={"cluster": cluster})
            self.queue.request(cluster, "its record is invalid", f"record-{cluster}")  # one in five minutes
            return None
        now = self.clock.now()
        if remembered.control.is_paused(now) or _is_left_alone(remembered.silence, now, alone=summary.alone):
            return None
        return remembered

    def _found(
        self, remembered: Remembered, run: RunSummary, remaining: Remaining, *, alone: bool
    ) -> tuple[str, Found | None]:
        """Why a run is asked for, and what it is to be told; empty: it is not.

        Raises EvenkeelError where that cannot be known, which is no word about the cluster.
        """
        news = partial(self._news, remembered, run, remaining, alone=alone)
        try:
            return contained(run.cluster, "it was looked at", news)
        except (AccessUnavailableError, QueueUnavailableError):
            raise
        except EvenkeelError as error:
            run.unreachable = True
            return str(error), Found.SILENT

    def _news(
        self, remembered: Remembered, run: RunSummary, remaining: Remaining, *, alone: bool
    ) -> tuple[str, Found | None]:
        """As :meth:`_found`; raises EvenkeelError where the cluster gives no usable answer, too."""
        try:
            api, observation = self._eyes.observe(remembered, remaining, alone=alone)
            run.seen = True
        except TooLargeError:
            if alone:  # a run may receive as much of each list as a look of all together
                return "too large for a look", _let_in(remembered)
            self.queue.request_looks([Chunk(clusters=(run.cluster,))])
            return "", None
        except AccessUnavailableError:
            raise
        except (AccessRefusedError, AccessError) as error:
            # A run has rights, and tokens, of its own. On EKS and by roles, those of looks may have been forgotten.
            _log.warning("%s: a run looks, since looks may not: %s", run.cluster, error, extra={"cluster": run.cluster})
            return "looks are refused", _let_in(remembered)
        if remembered.is_silent:
            return "it answers again", Found.ANSWERS
        if self.clusters.needs_run(remembered.record):
            return "its access is renewed", None
        run.plan = self._settled.plan_of(remembered, observation, self.clock.now())
        if run.plan is not None:
            return "", None
        looked = self._eyes.plan(remembered, api, observation, {})
        run.plan = looked.plan
        if remembered.control.fixes or is_missed(remembered.timer, self.clock.now(), looked.plan.look_at):
            return "a look is due", None
        if self._would_act(remembered, looked, run):
            return "scan", None
        self._settled.keep(remembered, observation, looked.plan)
        return "", None

    def _would_act(self, remembered: Remembered, looked: Looked, run: RunSummary) -> bool:
        """Whether a run would write or tell anything with this plan."""
        rehearsal = Run(
            ports=self._rehearsal,
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
        except _NewsError:
            return True
        return False


def _let_in(remembered: Remembered) -> Found:
    """What has a run open a cluster that it would else leave to looks."""
    return Found.ANSWERS if remembered.is_silent else Found.UNSEEN


def _is_left_alone(silence: Silence | None, now: datetime, *, alone: bool) -> bool:
    """Whether a cluster that does not answer is not asked now."""
    if silence is None or not silence.is_left_alone(now):
        return False
    return not (alone and silence.is_due(now))


class _NewsError(Exception):
    """A run would do something."""


class _Rehearsal:
    """A table and a bus that take nothing: the first thing that is asked of them is news."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise _NewsError

        return refuse
