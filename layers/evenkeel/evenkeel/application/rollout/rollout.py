"""Advance rollouts. An operator starts a rollout, and each tick of the schedule advances it.

Evenkeel stores each phase before it carries out the phase, and every write is conditional on a version. So the next
tick continues after a crash, and two parallel workers have the same effect as one worker.
"""

import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.ports import (
    NAMELESS,
    RUNBOOKS,
    Bus,
    Clock,
    DetailType,
    Executor,
    Queue,
    Registered,
    Remaining,
    sequentially,
)
from evenkeel.application.rollout.ports import RolloutStore
from evenkeel.application.rollout.summary import halt_text, rollout_text
from evenkeel.domain.fleet.check_times import chunks_of
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rollout.waves import READ_WITHIN, LeftOut, Phase, Rollout, unread_halts
from evenkeel.texts.english import rfc3339

_log = logging.getLogger("evenkeel.rollout")
_KEPT = timedelta(days=30)  # how long the entry about a switch to live or to dry run is stored
# Seconds. With less time left, no further step starts, because one request to the table may take this long.
_SECONDS_TO_END = 10
# A cluster of a wave is checked at least this often.
_ASKED_AFTER = timedelta(minutes=2)
# If the last check of a cluster is older, its checks have stopped, because the longest scan_interval is an hour.
_LATELY = timedelta(hours=1, minutes=5)


@dataclass(frozen=True, kw_only=True)
class AdvanceRollouts:
    """The use case with its ports. It advances the rollout in progress as far as possible now."""

    store: RolloutStore
    queue: Queue
    bus: Bus
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool  # the stack's default
    together: Executor = sequentially
    stack: str = NAMELESS
    runbooks: str = RUNBOOKS

    def __call__(self, remaining: Remaining) -> str:
        """Advance the rollout and return its state in one line.

        Raises:
            StateUnavailableError, QueueUnavailableError: The next tick continues the rollout.
            ConfigError: The stored rollout cannot be read.
        """
        rollout, version = self.store.rollout()
        if rollout is None or rollout.phase.is_over:
            return "no rollout is under way"
        steps = _Steps(ports=self, rollout=rollout, version=version, remaining=remaining)
        try:
            while steps.step() and remaining() > _SECONDS_TO_END:
                pass
        except StateConflictError as error:  # an operator has halted the rollout, or another worker advances it
            _log.info("rollout changed meanwhile: %s", error)
        return rollout_text(steps.rollout)


@dataclass(kw_only=True)
class _Steps:
    """The steps of a rollout in progress."""

    ports: AdvanceRollouts
    rollout: Rollout
    version: int | None
    remaining: Remaining
    _left: list[str] = field(default_factory=list)  # clusters that could not be switched now

    def step(self) -> bool:
        """Carry out the present phase. Return True if the next phase may start now."""
        match self.rollout.phase:
            case Phase.SWITCHING:
                return self._halt_on_incident() or self._switch_on()
            case Phase.WATCHING:
                return self._halt_on_incident() or self._next_wave()
            case Phase.HALTING:
                return self._roll_back()
            case _:
                return False

    @property
    def _now(self) -> datetime:
        return self.ports.clock.now()

    def _save(self, rollout: Rollout) -> None:
        self.version = self.ports.store.save_rollout(rollout, self.version)
        self.rollout = rollout
        _log.info("rollout: %s", rollout_text(rollout))

    def _halt_on_incident(self) -> bool:
        halts = self.rollout.incidents(self.ports.store.cluster_healths())
        if halts:
            self._save(self.rollout.halting(halts, self._now))
        return bool(halts)

    def _switch_on(self) -> bool:
        if self._change_wave(self._live):
            # All clusters of the wave are live now. The length of the soak depends on their trouble_after.
            known, _ = self._trouble_after()
            self._save(replace(self.rollout.in_phase(Phase.WATCHING, self._now), trouble_after=_longest(known)))
            self.ports.queue.request_checks(chunks_of(self.rollout.wave, delay=1))
        return False

    def _next_wave(self) -> bool:
        now, checked_at = self._now, self.ports.store.checked_at()
        known, unreadable = self._trouble_after()
        unread = [*self.rollout.unread(checked_at, known, now, READ_WITHIN), *unreadable]
        watched = self.rollout.watched(unread, _longest(known), now) if self.rollout.wave else self.rollout
        if watched != self.rollout:
            self._save(watched)
        rollout = self.rollout
        has_soaked = rollout.has_soaked(now)
        unseen = [*rollout.unseen(checked_at, known), *unreadable] if has_soaked else unread
        if unseen and rollout.waited_too_long(now):
            self._save(rollout.halting(unread_halts(unseen), now))
            return True
        if unseen or not has_soaked:
            # These clusters have a long scan_interval and are not due yet, or the requests for their checks were lost.
            unread = sorted({*rollout.unread(checked_at, known, now, _ASKED_AFTER), *unseen})
            self.ports.queue.request_checks(chunks_of(unread, delay=1))
            return False
        rollout = rollout.with_wave(*self._choose(checked_at), now)
        if rollout.phase is Phase.DONE and not self._publish(DetailType.ROLLOUT_DONE, rollout):
            return False
        self._save(rollout)
        return True

    def _trouble_after(self) -> tuple[dict[str, timedelta], list[str]]:
        """Return the current ``trouble_after`` of the wave's clusters, and the clusters whose record cannot be read.

        Neither of the two contains clusters that are no longer registered.
        """
        known: dict[str, timedelta] = {}
        unreadable: list[str] = []

        def read(cluster: str) -> None:
            registered = self.ports.store.registered(cluster)
            record = None if registered is None else registered.record
            if isinstance(record, str):
                unreadable.append(cluster)
            elif record is not None:
                known[cluster] = record.opens_trouble_after

        self.ports.together([partial(read, cluster) for cluster in self.rollout.wave])
        return known, sorted(unreadable)

    def _choose(self, checked_at: Mapping[str, datetime]) -> tuple[tuple[str, ...], dict[str, LeftOut]]:
        """Return the clusters of the next wave, and the clusters that do not go live, with the reasons."""
        wave: list[str] = []
        left_out: dict[str, LeftOut] = {}
        cluster_healths, now = self.ports.store.cluster_healths(), self._now
        for cluster in self.rollout.waiting:
            if len(wave) == self.rollout.size or self.remaining() < 2 * _SECONDS_TO_END:
                break
            registered = self.ports.store.registered(cluster)
            health = cluster_healths.get(cluster, ClusterHealth())
            reason = why_left_out(registered, health, checked_at.get(cluster), now, self.ports.dry_run)
            if reason is None:
                wave.append(cluster)
            else:
                left_out[cluster] = reason
        return tuple(wave), left_out

    def _roll_back(self) -> bool:
        if self._change_wave(self._dry):
            halted = self.rollout.in_phase(Phase.HALTED, self._now)
            if self._publish(DetailType.ROLLOUT_HALTED, halted):
                _log.error("rollout halted: %s", halt_text(self.rollout))
                self._save(halted)
        return False

    def _change_wave(self, change: Callable[[str], None]) -> bool:
        """Apply the change to every cluster of the wave. Return False if a cluster could not be changed now."""
        self._left = []
        self.ports.together([partial(self._change, change, cluster) for cluster in self.rollout.wave])
        return not self._left

    def _change(self, change: Callable[[str], None], cluster: str) -> None:
        if self.remaining() < _SECONDS_TO_END:
            self._left.append(cluster)
            return
        try:
            change(cluster)
        except StateConflictError as error:  # the record has changed, and the next tick reads it again
            self._left.append(cluster)
            _log.info("not switched now: %s", error, extra={"cluster": cluster})

    def _live(self, cluster: str) -> None:
        """Enable writes to a cluster, but only once per rollout, because an operator may have stopped them since."""
        registered, rollout = self.ports.store.registered(cluster), self.rollout
        if registered is None or isinstance(registered.record, str) or registered.control.rollout == rollout.id:
            return
        if registered.record.dry_run is None and registered.control.is_dry(registered.record, self.ports.dry_run):
            self._switch(cluster, registered, live=True, what=f"is live: wave {rollout.number} of a rollout")

    def _dry(self, cluster: str) -> None:
        registered = self.ports.store.registered(cluster)
        if registered is None:
            return
        if registered.control.rollout != self.rollout.id:
            self._keep_dry(registered)
            return
        if registered.control.live is not True:
            return
        what = f"is back in dry run: the rollout was halted, {halt_text(self.rollout)}"
        self._switch(cluster, registered, live=False, what=what)

    def _keep_dry(self, registered: Registered) -> None:
        """Mark a cluster that is not live yet, so that no other worker of this rollout enables writes to it."""
        if isinstance(registered.record, str) or not registered.control.is_dry(registered.record, self.ports.dry_run):
            return
        control = registered.control.model_copy(update={"rollout": self.rollout.id})
        self.ports.store.save_record(registered.record, control, registered.versions)

    def _switch(self, cluster: str, registered: Registered, *, live: bool, what: str) -> None:
        store, now = self.ports.store, self._now
        control = registered.control.model_copy(update={"live": live, "rollout": self.rollout.id})
        if isinstance(registered.record, str):  # the cluster must not be live once its record is fixed
            store.save_control(cluster, control, registered.versions)
        else:
            store.save_record(registered.record, control, registered.versions)
        id = ulid(now, self.ports.random_bytes(10))
        asker = (self.rollout.by if live else self.rollout.halted_by) or None
        entry: dict[str, Any] = {"id": id, "at": rfc3339(now), "cluster": cluster}
        entry |= {"cause": "live" if live else "dry-run", "by": asker, "what": f"{cluster} {what}"}
        reason = self.rollout.reason if live else self.rollout.halt_reason
        entry |= {"reason": reason} if reason else {}
        try:
            store.save_decision(cluster, id, entry, now + _KEPT)
        except StateUnavailableError as error:  # raise nothing, because the cluster is already switched
            _log.warning("not recorded: %s", error, extra={"cluster": cluster})

    def _publish(self, detail_type: DetailType, rollout: Rollout) -> bool:
        """Publish the event. Return True if the rollout may continue. After False, the next tick publishes it again.

        The event says how many clusters there are, but does not name them, because the size of an event is limited.
        """
        detail = {
            name: len(value) if name in ("wave", "live", "waiting", "leftOut", "halts") else value
            for name, value in rollout_json(rollout, self.ports.stack).items()
        }
        command = shlex.join(["evenkeel", "rollout", "--stack", self.ports.stack])
        runbook = f"{self.ports.runbooks}#rollout"
        is_taken = self.ports.bus.publish(detail_type.value, {**detail, "command": command, "runbook": runbook})
        return is_taken or self.rollout.waited_too_long(self._now)  # a rollout ends even without its event


def _longest(trouble_after: Mapping[str, timedelta]) -> timedelta | None:
    return max(trouble_after.values(), default=None)


def why_left_out(
    registered: Registered | None,
    cluster_health: ClusterHealth,
    checked_at: datetime | None,
    now: datetime,
    stack_dry_run: bool,
) -> LeftOut | None:
    """Return the reason why a cluster does not go live; None if it goes live."""
    if registered is None:
        return LeftOut.GONE
    if isinstance(registered.record, str):
        return LeftOut.UNREADABLE
    reasons = {
        LeftOut.RECORD_SAYS: registered.record.dry_run is not None,
        LeftOut.LIVE: not registered.control.is_dry(registered.record, stack_dry_run),
        LeftOut.PAUSED: registered.control.is_paused(now) or registered.control.restoring,
        LeftOut.IN_TROUBLE: bool(cluster_health.incidents),
        LeftOut.UNSEEN: checked_at is None or now - checked_at > _LATELY,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def rollout_json(rollout: Rollout, stack: str) -> dict[str, Any]:
    """Return a rollout as JSON, with a message for people.

    All rollouts of a stack have the same ``key``, so the end of a rollout closes the alert of an earlier rollout.
    """
    return {
        "key": f"rollout/{stack}",
        "rollout": rollout.id,
        "phase": rollout.phase.value,
        "since": rfc3339(rollout.since),
        "at": rfc3339(rollout.at),
        "by": rollout.by or None,
        "reason": rollout.reason or None,
        "number": rollout.number,
        "size": rollout.size,
        "soakSeconds": int(rollout.soak.total_seconds()),
        "waveSoakSeconds": int(rollout.soak_time.total_seconds()),
        "wave": list(rollout.wave),
        "live": list(rollout.proven),
        "waiting": list(rollout.waiting),
        "leftOut": {cluster: reason.value for cluster, reason in rollout.left_out.items()},
        "halts": [
            {"cluster": halt.cluster, "kind": halt.kind.value if halt.kind else None, "pool": halt.pool or None}
            for halt in rollout.halts
        ],
        "haltedBy": rollout.halted_by or None,
        "haltReason": rollout.halt_reason or None,
        "message": f"rollout of {rfc3339(rollout.at)}: {rollout_text(rollout)}",
    }
