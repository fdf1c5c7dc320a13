"""Clusters go live in waves, by themselves: begun by an operator, gone on with at each tick of the schedule.

What is to be done is written down before it is done, and every write is conditional on what was read. So whoever was
killed half-way is gone on from, two at once do no more than one, and nobody's laptop need stay open.
"""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.ports import (
    NAMELESS,
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
from evenkeel.application.rollout.summary import halt_words, rollout_words
from evenkeel.domain.fleet.check_times import Chunk
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rollout.waves import READ_WITHIN, LeftOut, Phase, Rollout, unread_halts
from evenkeel.texts.english import rfc3339

_log = logging.getLogger("evenkeel.rollout")
_KEPT = timedelta(days=30)  # of what was done to a cluster, as decisions
# One more request to the table may take that long.
_SECONDS_TO_END = 10
# A cluster of a wave is read at least this often.
_ASKED_AFTER = timedelta(minutes=2)
# What a look costs besides its clusters is shared by so many.
_CHUNK = 50
# A cluster that is looked at at all was looked at since; the interval is an hour at most.
_LATELY = timedelta(hours=1, minutes=5)


@dataclass(frozen=True, kw_only=True)
class AdvanceRollouts:
    """The use case with its ports: takes the rollout that is under way as far as it goes now."""

    store: RolloutStore
    queue: Queue
    bus: Bus
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool  # the stack's default
    together: Executor = sequentially
    stack: str = NAMELESS

    def __call__(self, remaining: Remaining) -> str:
        """What has come of it, in one line.

        Raises StateUnavailableError, QueueUnavailableError: the next tick goes on. ConfigError: nobody can read it.
        """
        rollout, version = self.store.rollout()
        if rollout is None or rollout.phase.is_over:
            return "no rollout is under way"
        steps = _Steps(ports=self, rollout=rollout, version=version, remaining=remaining)
        try:
            while steps.step() and remaining() > _SECONDS_TO_END:
                pass
        except StateConflictError as error:  # somebody has halted it, or goes on with it as well
            _log.info("rollout changed meanwhile: %s", error)
        return rollout_words(steps.rollout)


@dataclass(kw_only=True)
class _Steps:
    """One rollout on its way."""

    ports: AdvanceRollouts
    rollout: Rollout
    version: int | None
    remaining: Remaining
    _left: list[str] = field(default_factory=list)  # that could not be switched now

    def step(self) -> bool:
        """True: there may be more to do now."""
        match self.rollout.phase:
            case Phase.SWITCHING:
                return self._halt_on_incident() or self._switch_on()
            case Phase.WATCHING:
                return self._halt_on_incident() or self._next_wave()
            case Phase.HALTING:
                return self._take_back()
            case _:
                return False

    @property
    def _now(self) -> datetime:
        return self.ports.clock.now()

    def _save(self, rollout: Rollout) -> None:
        self.version = self.ports.store.save_rollout(rollout, self.version)
        self.rollout = rollout
        _log.info("rollout: %s", rollout_words(rollout))

    def _halt_on_incident(self) -> bool:
        halts = self.rollout.incidents(self.ports.store.cluster_healths())
        if halts:
            self._save(self.rollout.halting(halts, self._now))
        return bool(halts)

    def _switch_on(self) -> bool:
        if self._to_all(self._live):
            # From now on what is read of them is read while they are live.
            known, _ = self._trouble_after()
            self._save(replace(self.rollout.in_phase(Phase.WATCHING, self._now), trouble_after=_longest(known)))
            self._ask_for_looks(self.rollout.wave)
        return False

    def _ask_for_looks(self, clusters: Sequence[str]) -> None:
        chunks = [tuple(clusters[start : start + _CHUNK]) for start in range(0, len(clusters), _CHUNK)]
        self.ports.queue.request_checks([Chunk(clusters=chunk, delay=1) for chunk in chunks])

    def _next_wave(self) -> bool:
        now, looked_at = self._now, self.ports.store.looked_at()
        known, unreadable = self._trouble_after()
        unread = [*self.rollout.unread(looked_at, known, now, READ_WITHIN), *unreadable]
        watched = self.rollout.watched(unread, _longest(known), now) if self.rollout.wave else self.rollout
        if watched != self.rollout:
            self._save(watched)
        rollout = self.rollout
        has_stood = rollout.has_stood(now)
        unseen = [*rollout.unseen(looked_at, known), *unreadable] if has_stood else unread
        if unseen and rollout.waited_too_long(now):
            self._save(rollout.halting(unread_halts(unseen), now))
            return True
        if unseen or not has_stood:
            # A cluster with a long scan_interval is not due yet, or the first request was lost.
            self._ask_for_looks(sorted({*rollout.unread(looked_at, known, now, _ASKED_AFTER), *unseen}))
            return False
        rollout = rollout.with_wave(*self._choose(looked_at), now)
        if rollout.phase is Phase.DONE and not self._is_told(DetailType.ROLLOUT_DONE, rollout):
            return False
        self._save(rollout)
        return True

    def _trouble_after(self) -> tuple[dict[str, timedelta], list[str]]:
        """Return ``trouble_after`` of each cluster of the wave as it is now, and those whose record cannot be read.

        One that is not registered any more is in neither.
        """
        known: dict[str, timedelta] = {}
        unreadable: list[str] = []

        def read(cluster: str) -> None:
            found = self.ports.store.registered(cluster)
            record = None if found is None else found.record
            if isinstance(record, str):
                unreadable.append(cluster)
            elif record is not None:
                known[cluster] = record.opens_trouble_after

        self.ports.together([partial(read, cluster) for cluster in self.rollout.wave])
        return known, sorted(unreadable)

    def _choose(self, looked_at: Mapping[str, datetime]) -> tuple[tuple[str, ...], dict[str, LeftOut]]:
        """Who comes next, and who is left out."""
        wave: list[str] = []
        left_out: dict[str, LeftOut] = {}
        cluster_healths, now = self.ports.store.cluster_healths(), self._now
        for cluster in self.rollout.waiting:
            if len(wave) == self.rollout.size or self.remaining() < 2 * _SECONDS_TO_END:
                break
            found = self.ports.store.registered(cluster)
            why = why_left_out(
                found, cluster_healths.get(cluster, ClusterHealth()), looked_at.get(cluster), now, self.ports.dry_run
            )
            if why is None:
                wave.append(cluster)
            else:
                left_out[cluster] = why
        return tuple(wave), left_out

    def _take_back(self) -> bool:
        if self._to_all(self._dry):
            halted = self.rollout.in_phase(Phase.HALTED, self._now)
            if self._is_told(DetailType.ROLLOUT_HALTED, halted):
                _log.error("rollout halted: %s", halt_words(self.rollout))
                self._save(halted)
        return False

    def _to_all(self, change: Callable[[str], None]) -> bool:
        """Of the present wave. False: it could not be done to some of it now."""
        self._left = []
        self.ports.together([partial(self._to_one, change, cluster) for cluster in self.rollout.wave])
        return not self._left

    def _to_one(self, change: Callable[[str], None], cluster: str) -> None:
        if self.remaining() < _SECONDS_TO_END:
            self._left.append(cluster)
            return
        try:
            change(cluster)
        except StateConflictError as error:  # somebody has changed the record: the next tick reads it again
            self._left.append(cluster)
            _log.info("not switched now: %s", error, extra={"cluster": cluster})

    def _live(self, cluster: str) -> None:
        """Unless this has been done before; what became of it since is somebody's wish."""
        found, rollout = self.ports.store.registered(cluster), self.rollout
        if found is None or isinstance(found.record, str) or found.control.rollout == rollout.id:
            return
        if found.record.dry_run is None and found.control.is_dry(found.record, self.ports.dry_run):
            self._switch(cluster, found, live=True, what=f"is live: wave {rollout.number} of a rollout")

    def _dry(self, cluster: str) -> None:
        found = self.ports.store.registered(cluster)
        if found is None:
            return
        if found.control.rollout != self.rollout.id:
            self._keep_dry(found)
            return
        if found.control.live is not True:
            return
        what = f"is back in dry run: the rollout was halted, {halt_words(self.rollout)}"
        self._switch(cluster, found, live=False, what=what)

    def _keep_dry(self, found: Registered) -> None:
        """Not switched on yet: whoever is still about to finds that it has changed, and that its turn is over."""
        if isinstance(found.record, str) or not found.control.is_dry(found.record, self.ports.dry_run):
            return
        control = found.control.model_copy(update={"rollout": self.rollout.id})
        self.ports.store.save_record(found.record, control, found.versions)

    def _switch(self, cluster: str, found: Registered, *, live: bool, what: str) -> None:
        store, now = self.ports.store, self._now
        control = found.control.model_copy(update={"live": live, "rollout": self.rollout.id})
        if isinstance(found.record, str):  # who mends it must not find it live
            store.save_control(cluster, control, found.versions)
        else:
            store.save_record(found.record, control, found.versions)
        id = ulid(now, self.ports.random_bytes(10))
        asker = (self.rollout.by if live else self.rollout.halted_by) or None
        entry: dict[str, Any] = {"id": id, "at": rfc3339(now), "cluster": cluster}
        entry |= {"cause": "live" if live else "dry-run", "by": asker, "what": f"{cluster} {what}"}
        why = self.rollout.reason if live else self.rollout.halt_reason
        entry |= {"reason": why} if why else {}
        try:
            store.save_decision(cluster, id, entry, now + _KEPT)
        except StateUnavailableError as error:  # it is done
            _log.warning("not recorded: %s", error, extra={"cluster": cluster})

    def _is_told(self, detail_type: DetailType, rollout: Rollout) -> bool:
        """Before it is remembered as told. False: the bus did not take it, and the next tick tells it.

        Of clusters by the thousand only the number: an event has its limit.
        """
        detail = {
            name: len(value) if name in ("wave", "live", "waiting", "leftOut", "halts") else value
            for name, value in rollout_json(rollout, self.ports.stack).items()
        }
        command = shlex.join(["evenkeel", "rollout", "--stack", self.ports.stack])
        is_taken = self.ports.bus.publish(detail_type.value, {**detail, "command": command})
        return is_taken or self.rollout.waited_too_long(self._now)  # whose bus is gone for good must come to an end


def _longest(trouble_after: Mapping[str, timedelta]) -> timedelta | None:
    return max(trouble_after.values(), default=None)


def why_left_out(
    found: Registered | None,
    cluster_health: ClusterHealth,
    looked_at: datetime | None,
    now: datetime,
    stack_dry_run: bool,
) -> LeftOut | None:
    """Why a cluster is not switched on; None: it is."""
    if found is None:
        return LeftOut.GONE
    if isinstance(found.record, str):
        return LeftOut.UNREADABLE
    reasons = {
        LeftOut.RECORD_SAYS: found.record.dry_run is not None,
        LeftOut.LIVE: not found.control.is_dry(found.record, stack_dry_run),
        LeftOut.PAUSED: found.control.is_paused(now) or found.control.restoring,
        LeftOut.IN_TROUBLE: bool(cluster_health.incidents),
        LeftOut.UNSEEN: looked_at is None or now - looked_at > _LATELY,
    }
    return next((why for why, is_so in reasons.items() if is_so), None)


def rollout_json(rollout: Rollout, stack: str) -> dict[str, Any]:
    """For programs, and beside it the words for people. ``key`` is the same for all rollouts of a stack.

    So what one of them has opened where people are paged, the next one closes that comes to its end.
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
        "leftOut": {cluster: why.value for cluster, why in rollout.left_out.items()},
        "halts": [
            {"cluster": halt.cluster, "kind": halt.kind.value if halt.kind else None, "pool": halt.pool or None}
            for halt in rollout.halts
        ],
        "haltedBy": rollout.halted_by or None,
        "haltReason": rollout.halt_reason or None,
        "message": f"rollout of {rfc3339(rollout.at)}: {rollout_words(rollout)}",
    }


def begun(  # noqa: PLR0913 (what is known of it, each named by its only caller)
    clusters: Sequence[str],
    *,
    id: str,
    size: int,
    soak: timedelta,
    trouble_after: timedelta | None,
    by: str,
    reason: str,
    now: datetime,
) -> Rollout:
    """One that the next tick goes on with: there is no wave yet, and so nothing to be watched."""
    return Rollout(
        id=id,
        at=now,
        size=size,
        soak=soak,
        phase=Phase.WATCHING,
        since=now - soak,
        trouble_after=trouble_after,
        waiting=tuple(clusters),
        by=by,
        reason=reason,
    )
