"""A provisioning failure has been heard: remember it, and have the cluster looked at now.

Events are hints: lost, repeated, late, out of order. The backoff machine takes them in any order; the scan finds the
same failures by itself, so an event only ever makes us faster. What can never become right is counted, explained and
acknowledged: retrying it would be a storm.

An event that names its node group is recorded. One that names only a machine, a cluster or a tag asks for a look: the
look reads the machines' own status, and no group's name is ever guessed.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.application.errors import BadRequestError, StateConflictError, UnknownClusterError
from evenkeel.application.ports import Clock, Queue, Remembered, Store
from evenkeel.config import ClusterRecord, ConfigError
from evenkeel.domain.backoff import GroupState, record_failure
from evenkeel.domain.failures import classify
from evenkeel.domain.model import BackoffPolicy, GroupKey
from evenkeel.domain.values import shown

_log = logging.getLogger("evenkeel.failure")

# Clocks of clusters and of AWS differ by seconds. A failure from the future would fence a group for longer than it may.
CLOCK_SKEW = timedelta(minutes=2)
# The longest scan_interval: whatever happened before has been looked at since.
_LOOKED_AT_SINCE = timedelta(hours=1)
# A zone without room makes every controller try every machine again and again; each try is an event.
_SECONDS_PER_LOOK = 20
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure as any of the sources reports it, in our words."""

    cluster: str | None = None  # our id of it
    called: tuple[str, ...] = ()  # what tags and exporters call it; the first name that is known counts
    flavour: str | None = None  # None: the source does not say
    namespace: str = ""
    name: str | None = None  # of the scalable; None: the source does not tie it to one
    machine: str | None = None
    code: str
    message: str
    occurred_at: datetime
    id: str
    zone: str | None = None

    @property
    def at(self) -> str:
        """The cluster as the source names it."""
        return self.cluster or " or ".join(self.called[:3])


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """An event that no use case is called for: in one word why, and in one sentence."""

    kind: str
    reason: str


class Verdict(StrEnum):
    """What became of an event."""

    RECORDED = "recorded"
    LOOKED = "looked"  # nothing to record, but the cluster is looked at now
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
            StateUnavailableError, QueueUnavailableError: the event must be tried again.
            StateConflictError: somebody else kept writing the same group; try again.
        """
        now = self.clock.now()
        if failure.occurred_at > now + CLOCK_SKEW:
            return self._ignored(
                failure, f"it says it happened at {failure.occurred_at:%Y-%m-%dT%H:%M:%SZ}, in the future"
            )
        if failure.cluster is not None and failure.name is not None:
            return self._hear(failure, failure.cluster, now)
        clusters = self._clusters(failure)
        if not clusters:
            why = "no such cluster is registered"
            return self._ignored(failure, why if failure.cluster else f"{why}; names of its record may list it")
        if failure.name is not None and len(clusters) == 1:
            return self._hear(failure, clusters[0], now)
        return self._look(failure, clusters, now)

    def _clusters(self, failure: Failure) -> list[str]:
        """The registered clusters that the failure may be about; an id goes before a name."""
        known = self.store.due()
        if failure.cluster is not None:
            return [cluster for cluster, _ in known if cluster == failure.cluster]
        for name in failure.called:
            found = [cluster for cluster, _ in known if cluster == name]
            found = found or [id for id, record in known if isinstance(record, ClusterRecord) and name in record.names]
            if found:
                return found
        return []

    def _look(self, failure: Failure, clusters: list[str], now: datetime) -> Heard:
        if failure.occurred_at < now - _LOOKED_AT_SINCE:
            return Heard(verdict=Verdict.KNOWN, message=f"{failure.id}: scans have looked since: it changes nothing")
        turn = int(now.timestamp()) // _SECONDS_PER_LOOK
        for cluster in clusters:
            self.queue.request(cluster, f"provisioning failure {failure.code}", f"look-{cluster}-{turn}")
        about = f" of machine {shown(failure.machine)}" if failure.machine else ""
        message = f"{failure.id}: {failure.code[:128]}{about} is tied to no node group: a look at {', '.join(clusters)}"
        return Heard(verdict=Verdict.LOOKED, message=message)

    def _hear(self, failure: Failure, cluster: str, now: datetime) -> Heard:
        for attempt in range(_TRIES):
            try:
                changed, counts = self._record(failure, cluster, now)
            except UnknownClusterError:
                return self._ignored(failure, "no such cluster is registered")
            except BadRequestError as error:
                return self._ignored(failure, str(error))
            except ConfigError as error:
                return self._ignored(failure, f"its record cannot be read: {error}")
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
                continue
            break
        if changed or counts:  # also when an earlier try recorded it, and could not ask for the look
            self.queue.request(cluster, f"provisioning failure {failure.code}", f"failure-{failure.id}"[:128])
        if not changed:
            return Heard(verdict=Verdict.KNOWN, message=f"{failure.id}: known already, or over: it changes nothing")
        return Heard(
            verdict=Verdict.RECORDED,
            message=f"{failure.id}: {changed} failure recorded, {cluster} is looked at now",
        )

    def _record(self, failure: Failure, cluster: str, now: datetime) -> tuple[str, bool]:
        """The failure's class, empty where it changed nothing, and whether it is among those that count.

        Raises BadRequestError where the cluster's record leaves out the failure's machine API.
        """
        remembered = self.store.load(cluster)
        flavours = [one for one in remembered.record.flavours if failure.flavour in (None, one)]
        if not flavours or failure.name is None:
            raise BadRequestError(f"flavours of the cluster's record does not list {failure.flavour}")
        kind = classify(failure.code, failure.message)
        changed, counts = "", False
        # An event that does not say which machine API it is about counts for all of the cluster's. A name that exists
        # in only one of them is harmless in the others: nothing reads it there, and it is forgotten.
        for flavour in flavours:
            key = GroupKey(flavour, failure.namespace, failure.name)
            backoff = backoff_of(key, remembered)
            if failure.occurred_at < now - backoff.forget_after:
                continue
            before = remembered.state.groups.get(key, GroupState())
            after = record_failure(before, failure.occurred_at, kind, f"{failure.code}: {failure.message}", backoff)
            if after != before:
                self.store.save_group(cluster, key, after, remembered.versions.get(f"GROUP#{key}"))
                changed = kind.value
            counts |= failure.occurred_at in after.reports and after.in_trouble
        return changed, counts

    def _ignored(self, failure: Failure, why: str) -> Heard:
        message = f"failure event {shown(failure.id)} for cluster {shown(failure.at)} ignored: {why}"
        _log.warning(message, extra={"cluster": failure.at})
        return Heard(verdict=Verdict.IGNORED, message=message)


def backoff_of(key: GroupKey, remembered: Remembered) -> BackoffPolicy:
    """The durations of the group's pool, where the pool is remembered and has its own; else the cluster's."""
    policy = remembered.record.policy()
    for pool, state in remembered.state.pools.items():
        if str(key) in state.adopted:
            rules = [
                rule for rule in policy.pools if rule.name == pool.name and rule.namespace in (None, pool.namespace)
            ]
            return (rules[0].backoff if rules else None) or policy.backoff
    return policy.backoff
