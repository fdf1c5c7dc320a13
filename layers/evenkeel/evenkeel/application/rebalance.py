"""Observe, plan, apply, record: one run for one cluster. The only use case that writes to a cluster.

Promises kept here and in :mod:`evenkeel.application.run`: without the table nothing is written (the lease is taken
before the first patch); a look that broke off leads to no action (it is an exception); a conflict leads to a new look
and a new plan, at most three times; a group that refuses to be written is planned around; whoever wrote comes back for
a second look, and one such look is due at any time.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
)
from evenkeel.application.observing import contained, observe_cluster
from evenkeel.application.ports import Clusters, Queue, Remaining, Remembered, RunPorts
from evenkeel.application.restoring import plan_for
from evenkeel.application.run import Run
from evenkeel.application.run_summary import RunSummary
from evenkeel.application.sharing import hearing, read_offerings
from evenkeel.config import ConfigError
from evenkeel.domain.looks import next_timer
from evenkeel.domain.model.groups import GroupKey, Observation
from evenkeel.domain.model.reasons import Rule, because
from evenkeel.domain.model.states import ClusterState

_log = logging.getLogger("evenkeel.rebalance")

# A fourth plan against a fourth state of the world would be as stale as the third; the next scan is a minute away.
_ROUNDS = 4
# A group whose write was refused is left alone for so long. Tried at every look, and planned around each time, its pool
# would be written to and fro.
_REFUSED_FOR = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Rebalance(RunPorts):
    """The use case with its ports; ``dry_run`` is the stack's default."""

    clusters: Clusters
    queue: Queue
    dry_run: bool

    def __call__(self, cluster: str, why: str, remaining: Remaining) -> RunSummary:
        """One run.

        Raises:
            UnknownClusterError: the message can never succeed.
            StateUnavailableError, LeaseHeldError: try the message again later.
        """
        rounds = _Rounds(ports=self, summary=RunSummary(cluster=cluster), why=why, remaining=remaining)
        try:
            rounds.run()
        finally:
            # Also when the table has gone away after a patch: what was written must be looked at again.
            self._ask_for_next_look(rounds.summary, rounds.remembered)
        rounds.summary.message = rounds.summary.sentence
        return rounds.summary

    def _ask_for_next_look(self, summary: RunSummary, remembered: Remembered | None) -> None:
        """Ask for the look that is due next, if none is that comes sooner."""
        before = remembered.timer if remembered else None
        timer, seconds = next_timer(
            before,
            self.clock.now(),
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
    remembered: Remembered | None = None  # at the last look
    refused: dict[GroupKey, str] = field(default_factory=dict)  # as :class:`Run` has them

    def run(self) -> None:
        for rounds_left in reversed(range(_ROUNDS)):
            run = self._look_and_plan()
            if run is None:
                return
            if run.remembered.control.fixes:
                if not self._fix(run):
                    return
                continue  # what is planned next, is planned with the new numbers
            refused_before = len(self.refused)
            conflict = self._carry_out(run)
            if not conflict and len(self.refused) == refused_before:
                return
            self.summary.conflicts += int(conflict and rounds_left > 0)
        _log.warning(
            "still contended after %s rounds, the next scan goes on", _ROUNDS, extra={"cluster": self.summary.cluster}
        )

    def _look_and_plan(self) -> Run | None:
        """A plan that is to be carried out; None: there is none, and the summary says why."""
        cluster, clock = self.summary.cluster, self.ports.clock
        try:
            remembered = self.remembered = self.ports.store.load(cluster)
        except ConfigError as error:
            self._unreadable(error)
            return None
        record, control, state = remembered.record, remembered.control, remembered.state
        # Who asks for restore asks for writes: what we wrote while the cluster was on is taken back in dry run too.
        self.summary.dry_run = record.is_dry(self.ports.dry_run) and not control.restoring
        if control.is_paused(clock.now()):
            self.summary.message = f"{cluster}: paused, nothing looked at"
            return None
        try:
            remembered = self.remembered = hearing(remembered, read_offerings(self.ports.store))
            state = remembered.state
            api, observation = observe_cluster(self.ports.clusters, record, self.remaining, state)
            now = clock.now()
            self.refused = {**_refused_lately(state, now), **self.refused}
            observation = _without(observation, self.refused)
            plan = contained(cluster, "it was planned", partial(plan_for, remembered, observation, now))
        except EvenkeelError as error:
            self._unreadable(error)
            return None
        self.summary.plan = plan
        return Run(
            ports=self.ports,
            summary=self.summary,
            remembered=remembered,
            api=api,
            plan=plan,
            why=self.why,
            remaining=self.remaining,
            refused=self.refused,
        )

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

    def _unreadable(self, error: Exception) -> None:
        """The next scan tries again; a message kept in the queue would try no better."""
        self.summary.unreachable = True
        self.summary.message = f"{self.summary.cluster}: not looked at: {error}"
        _log.error(self.summary.message, extra={"cluster": self.summary.cluster})


def _refused_lately(state: ClusterState, now: datetime) -> dict[GroupKey, str]:
    """The groups whose writes have just been refused, and why."""
    return {
        key: group.write_refused
        for key, group in state.groups.items()
        if group.write_refused_at is not None and now < group.write_refused_at + _REFUSED_FOR
    }


def _without(observation: Observation, refused: Mapping[GroupKey, str]) -> Observation:
    """The observation, with groups frozen that refuse to be written: the others are planned around them."""
    if not refused:
        return observation
    groups = tuple(
        group.frozen(because(Rule.WRITE_REFUSED, error=refused[group.key])) if group.key in refused else group
        for group in observation.groups
    )
    return replace(observation, groups=groups)
