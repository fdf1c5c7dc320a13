"""A provisioning failure has been heard: remember it, and have the cluster looked at now.

Events are hints: lost, repeated, late, out of order. The backoff machine takes them in any order; the scan finds the
same failures by itself, so an event only ever makes us faster. What can never become right is counted, explained and
acknowledged: retrying it would be a storm.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.application.errors import StateConflictError, UnknownClusterError
from evenkeel.application.ports import Clock, Queue, Store
from evenkeel.config import ConfigError
from evenkeel.domain.backoff import GroupState, record_failure
from evenkeel.domain.failures import classify
from evenkeel.domain.model import GroupKey

_log = logging.getLogger("evenkeel.failure")

# Clocks of clusters and of AWS differ by seconds. A failure from the future would fence a group for longer than it may.
_CLOCK_SKEW = timedelta(minutes=2)
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure as any of the sources reports it, in our words."""

    cluster: str
    namespace: str
    name: str | None  # of the scalable
    machine: str | None = None  # where the source knows only the machine
    code: str
    message: str
    occurred_at: datetime
    id: str
    zone: str | None = None

    def scalable(self, flavour: str) -> str:
        """The scalable's name; a machine is named after it, with a random part (and its MachineSet's) at the end."""
        if self.name is not None:
            return self.name
        parts = (self.machine or "").split("-")
        return "-".join(parts[: -1 if flavour == "openshift" else -2]) or (self.machine or "")


class Verdict(StrEnum):
    """What became of an event."""

    RECORDED = "recorded"
    KNOWN = "known"  # changed nothing: a repeat, or older than what is known
    IGNORED = "ignored"  # can never become right


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The verdict on one event and one sentence why."""

    verdict: Verdict
    message: str

    def answer(self) -> dict[str, str]:
        """As JSON."""
        return {"verdict": self.verdict.value, "message": self.message}


@dataclass(frozen=True, kw_only=True)
class HearFailure:
    """The use case with its ports."""

    store: Store
    queue: Queue
    clock: Clock

    def __call__(self, failure: Failure) -> Heard:
        """Record the failure and ask for a look at the cluster.

        Raises:
            StateUnavailableError: the table is away; the event must be tried again.
            StateConflictError: somebody else kept writing the same group; try again.
        """
        now = self.clock.now()
        if failure.occurred_at > now + _CLOCK_SKEW:
            return self._ignored(
                failure, f"it says it happened at {failure.occurred_at:%Y-%m-%dT%H:%M:%SZ}, in the future"
            )
        for attempt in range(_TRIES):
            try:
                changed, newest = self._record(failure, now)
            except UnknownClusterError:
                return self._ignored(failure, "no such cluster is registered")
            except ConfigError as error:
                return self._ignored(failure, f"its record cannot be read: {error}")
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
                continue
            break
        if changed or newest:  # also when an earlier try recorded it, and could not ask for the look
            self.queue.request(failure.cluster, f"provisioning failure {failure.code}", f"failure-{failure.id}"[:128])
        if not changed:
            return Heard(verdict=Verdict.KNOWN, message=f"{failure.id}: known already, or over: it changes nothing")
        return Heard(
            verdict=Verdict.RECORDED,
            message=f"{failure.id}: {changed} failure recorded, {failure.cluster} is looked at now",
        )

    def _record(self, failure: Failure, now: datetime) -> tuple[str, bool]:
        """The failure's class, empty where it changed nothing, and whether it is the newest that is known."""
        remembered = self.store.load(failure.cluster)
        policy = remembered.record.policy().backoff
        if failure.occurred_at < now - policy.forget_after:
            return "", False
        kind = classify(failure.code, failure.message)
        changed, newest = "", False
        # The event does not say which machine API it is about. A name that exists in only one of the cluster's
        # flavours is harmless in the others: nothing reads it there, and it is forgotten.
        for flavour in remembered.record.flavours:
            key = GroupKey(flavour, failure.namespace, failure.scalable(flavour))
            before = remembered.state.groups.get(key, GroupState())
            after = record_failure(before, failure.occurred_at, kind, f"{failure.code}: {failure.message}", policy)
            if after != before:
                self.store.save_group(failure.cluster, key, after, remembered.versions.get(f"GROUP#{key}"))
                changed = kind.value
            newest |= after.last_failure == failure.occurred_at and after.in_trouble
        return changed, newest

    def _ignored(self, failure: Failure, why: str) -> Heard:
        message = f"failure event {failure.id!r} for cluster {failure.cluster!r} ignored: {why}"
        _log.warning(message, extra={"cluster": failure.cluster})
        return Heard(verdict=Verdict.IGNORED, message=message)
