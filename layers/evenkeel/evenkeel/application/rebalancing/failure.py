"""Store a reported provisioning failure, and request a run of the cluster.

Events may be lost, repeated, late or out of order. The backoff accepts them in any order. Checks find the same
failures, so an event only makes the reaction faster.

A failure of a known node group is stored. An event with any other name only requests a run, which reads the status of
the machines. An unknown name is never stored.

In a zone without capacity, controllers retry every machine, and each retry causes an event. So all events of a cluster
share one run per interval of `RUNS_APART`. The first event requests a run at once. The next events together request one
run at the end of the interval.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from evenkeel.application.errors import BadRequestError, QueueUnavailableError, StateConflictError, UnknownClusterError
from evenkeel.application.ports import Clock, Queue, StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, Failure, Report, foreign_account
from evenkeel.application.rebalancing.ports import EventStore
from evenkeel.domain.fleet.event_source import EventSource, after_event
from evenkeel.domain.model.failures import classify
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import CLOCKS_AGREE, GroupKey, MachineFailure
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.values import quote
from evenkeel.domain.rebalancing.health.backoff import backoff_of, record_failure
from evenkeel.domain.rebalancing.health.observed import announce_failure, note_writer
from evenkeel.state_records import EventCheckRecord
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.failure")

# This equals the delay of the second check after a write. After this time, the effect of the first run is visible.
RUNS_APART = timedelta(seconds=15)
# The longest scan_interval. A check has already found every failure that is older than this.
_CHECKED_SINCE = timedelta(hours=1)
# A report is not stored if the backoff already has this many reports within ``_NEAR`` of the report's time.
_ENOUGH_REPORTS = 4
_NEAR = timedelta(seconds=15)
# The most attempts to store a failure. Each conflict means that another event was stored.
_TRIES = 50


@dataclass(frozen=True, kw_only=True)
class RecordFailure:
    """Stores a failure of a known node group, and requests a run of the cluster."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, failure: Failure) -> EventOutcome:
        """Store the failure, and return the result; for several clusters, the most important result.

        Raises:
            StateUnavailableError, QueueUnavailableError: the event must be tried again.
            StateConflictError: other writers kept changing the same group; try again.
        """
        now = self.clock.now()
        failure, clusters = self._with_clusters(failure)
        if not clusters:
            return _ignored(failure, "no such cluster is registered; names of its record may list it")
        outcomes = [self._outcome(failure, cluster, now, alone=len(clusters) == 1) for cluster in clusters]
        result = next(result for result in EventResult if any(outcome.result is result for outcome in outcomes))
        decisive = [outcome for outcome in outcomes if outcome.result is result]
        message = "; ".join(outcome.message for outcome in decisive)
        return EventOutcome(result, message, kind=decisive[0].kind)

    def _with_clusters(self, failure: Failure) -> tuple[Failure, list[str]]:
        """Return the clusters of an event, and the event.

        An Auto Scaling group that no cluster knows may belong to a cluster of another machine API. Then only the
        beginning of the group's name leads to the cluster, and the returned event names no group.
        """
        if failure.cluster is not None:
            return failure, [failure.cluster]
        if failure.flavour == AUTO_SCALING:
            listed = dict.fromkeys((id, place) for place in failure.places for id in self.store.called(place))
            if owners := [id for id, place in listed if self._knows_group(id, place, failure)]:
                return failure, owners
            failure = replace(failure, flavour=None, namespace="", name=None)
        return failure, self._clusters_called(failure)

    def _knows_group(self, cluster: str, place: str, failure: Failure) -> bool:
        """Return True if the cluster's Auto Scaling groups are in this place, and the failure's is one of them."""
        try:
            stored = self.store.load(cluster)
            return place in stored.record.listed_names and bool(_groups(failure, stored))
        except (UnknownClusterError, BadRequestError, ConfigError):
            return False

    def _clusters_called(self, failure: Failure) -> list[str]:
        """Return the clusters of the failure's first registered name. A cluster's id selects only this cluster."""
        for name in failure.called:
            clusters = [name] if self._is_registered(name) else []
            clusters = clusters or [id for id in self.store.called(name) if self._lists(id, name)]
            if clusters:
                return clusters
        return []

    def _is_registered(self, cluster: str) -> bool:
        """Return True if the cluster is registered, also by a release that this one cannot read."""
        try:
            return self.store.registered(cluster) is not None
        except ConfigError:
            return True

    def _lists(self, cluster: str, name: str) -> bool:
        """Return True if the record lists the name now, or cannot be read. ``_outcome`` then reports the fault."""
        try:
            return name in self.store.load(cluster).record.listed_names
        except UnknownClusterError:
            return False
        except ConfigError:
            return True

    def _outcome(self, failure: Failure, cluster: str, now: datetime, *, alone: bool) -> EventOutcome:
        try:
            return self._store_and_request(failure, cluster, now, alone=alone)
        except UnknownClusterError:
            return _ignored(failure, "no such cluster is registered")
        except BadRequestError as error:
            return _ignored(failure, str(error))
        except ConfigError as error:
            return _ignored(failure, f"its record cannot be read: {error}")

    def _store_and_request(self, failure: Failure, cluster: str, now: datetime, *, alone: bool) -> EventOutcome:
        """Store the failure and request a run. ``alone``: no other cluster has this name."""
        recorded = ""
        for attempt in range(_TRIES):
            stored = self.store.load(cluster)
            if failure.sender is not None and not failure.sender.may_speak_of(stored.record):
                return foreign_account(f"failure event {quote(failure.id)}", cluster, failure.sender)
            if failure.reports is Report.PENDING_POD and not stored.record.demand_stage.orders:
                message = f"{failure.id}: a pod of {cluster} waits, and demand of its record orders no nodes"
                return EventOutcome(EventResult.KNOWN, message)
            groups = _groups(failure, stored) if alone else []
            is_new = failure.occurred_at >= now - _CHECKED_SINCE and failure.reports is not Report.ARRIVAL
            try:
                if groups and failure.reports is Report.FAILURE:
                    failure_class, is_new = self._record(failure, cluster, groups, stored, now)
                    recorded = recorded or failure_class
                if failure.writer:
                    self._note_writer(failure, cluster, groups, stored)
                is_failure = bool(recorded) if groups else is_new and failure.is_of_machines
                source = after_event(
                    _latest(stored, now).source,
                    next(iter(groups), None),
                    failure.occurred_at,
                    now,
                    is_failure=is_failure,
                )
                self._save_and_request(failure, cluster, stored, source, now, is_new=is_new)
                break
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
        return _recorded_or_checked(failure, cluster, recorded, known_groups=bool(groups), is_new=is_new)

    def _record(
        self, failure: Failure, cluster: str, groups: list[GroupKey], stored: StoredCluster, now: datetime
    ) -> tuple[str, bool]:
        """Store the failure. Return its class (empty: nothing is stored), and True if no later success is known."""
        kind = classify(failure.code, failure.message)
        at = min(failure.occurred_at, now)
        recorded, is_new = "", False
        for key in groups:
            backoff = backoff_of(key, stored.state.pools, stored.record.policy())
            if backoff.is_forgotten(at, now):
                continue
            before = stored.state.groups.get(key, GroupState())
            message = f"{failure.code}: {failure.message}"
            if failure.occurred_at > now + CLOCKS_AGREE:
                announced = MachineFailure(code=failure.code, message=failure.message[:1024], at=failure.occurred_at)
                after = announce_failure(before, announced)
            else:
                after = record_failure(before, failure.occurred_at, kind, message, backoff, now=now)
            if after != before and not _adds_nothing(before, after, at):
                self.store.save_group(cluster, key, after, stored.versions)
                recorded = kind.value
            # A repeated event counts as new, too, because the invocation that stored it may have ended before it
            # requested a run.
            is_new |= before.arrivals.last_success is None or at > before.arrivals.last_success
        return recorded, is_new

    def _note_writer(self, failure: Failure, cluster: str, groups: list[GroupKey], stored: StoredCluster) -> None:
        """Store who has changed the bounds of groups that Evenkeel writes, because it may revert Evenkeel's bounds."""
        written = {key for pool in stored.state.pools.values() for key in pool.adopted}
        for key in groups:
            before = stored.state.groups.get(key, GroupState())
            after = note_writer(before, failure.writer, failure.occurred_at)
            if str(key) in written and after != before:
                self.store.save_group(cluster, key, after, stored.versions)

    def _save_and_request(
        self,
        failure: Failure,
        cluster: str,
        stored: StoredCluster,
        source: EventSource,
        now: datetime,
        *,
        is_new: bool,
    ) -> None:
        """Store the event source. After a new event, request a run, unless one is due.

        The run starts now or, if that is later, `RUNS_APART` after the last requested run.

        The request is stored before it is sent, with the event's id. So two events request only one run, and a retried
        event repeats its own request. If the request cannot be sent, its stored time is moved to the past, so that
        other events send a request.
        """
        latest = _latest(stored, now)
        at = _run_at(latest, failure.id, now) if is_new else None
        look = latest.of(source).model_copy(update={} if at is None else {"at": at, "by": failure.id})
        if look != latest:
            self.store.save_event_check(cluster, look, stored.versions)
        if at is None:
            return
        reasons = {Report.PENDING_POD: "pods wait", Report.CHANGE: "a node group has changed"}
        reason = reasons.get(failure.reports, f"provisioning failure {failure.code}")
        try:
            if at <= now:
                self.queue.request(cluster, reason, f"failure-{cluster}-{at.timestamp()}")
            else:
                self.queue.check_again(cluster, reason, ceil((at - now).total_seconds()))
        except QueueUnavailableError:
            taken_back = look.model_copy(update={"at": at - 2 * RUNS_APART})
            with suppress(StateConflictError):
                self.store.save_event_check(cluster, taken_back, stored.versions)
            raise


def _latest(stored: StoredCluster, now: datetime) -> EventCheckRecord:
    """Return the last check that an event requested, or one that has no effect any more."""
    return stored.event_check or EventCheckRecord(at=now - _CHECKED_SINCE, by="")


def _run_at(latest: EventCheckRecord, event: str, now: datetime) -> datetime | None:
    """Return when the run of an event starts; None: a run is due that comes after the event."""
    if abs(latest.at - now) > RUNS_APART:
        return now
    if latest.by == event:
        return latest.at
    return None if now < latest.at else latest.at + RUNS_APART


def _ignored(failure: Failure, reason: str) -> EventOutcome:
    message = f"failure event {quote(failure.id)} for cluster {quote(failure.cluster_name)} ignored: {reason}"
    _log.warning(message, extra={"cluster": failure.cluster_name})
    return EventOutcome(EventResult.IGNORED, message)


def _recorded_or_checked(
    failure: Failure, cluster: str, recorded: str, *, known_groups: bool, is_new: bool
) -> EventOutcome:
    """Return the result. ``recorded``: the failure's class, empty if nothing was stored."""
    if recorded:
        return EventOutcome(EventResult.RECORDED, f"{failure.id}: {recorded} failure recorded, {cluster} is checked")
    if failure.reports is Report.ARRIVAL:
        reason = "events of its groups arrive" if known_groups else "it names no known node group"
        return EventOutcome(EventResult.KNOWN, f"{failure.id}: {reason}: no check of {cluster}")
    if failure.reports is Report.CHANGE and is_new:
        return EventOutcome(EventResult.REQUESTED, f"{failure.id}: a node group has changed: a check of {cluster}")
    if known_groups or not is_new:
        reason = "known already, or over" if known_groups else "scans have checked since"
        return EventOutcome(EventResult.KNOWN, f"{failure.id}: {reason}: it changes nothing")
    if failure.reports is Report.PENDING_POD:
        return EventOutcome(EventResult.REQUESTED, f"{failure.id}: a pod is pending: a check of {cluster}")
    about = f" of machine {quote(failure.machine)}" if failure.machine else ""
    # An event without a group's name may be about a known group. Only the check can tell.
    unknown = "" if failure.name is None else " belongs to no known node group"
    message = f"{failure.id}: {failure.code[:128]}{about}{unknown}: a check of {cluster} reads its machines"
    return EventOutcome(EventResult.REQUESTED, message)


def _groups(failure: Failure, stored: StoredCluster) -> list[GroupKey]:
    """Return the known node groups that the failure names: members of a pool, or groups with a stored state.

    If the event names no machine API, groups of all machine APIs of the cluster match. Raises BadRequestError if the
    record does not list the event's machine API.
    """
    if failure.name is None:
        return []
    flavours = [flavour for flavour in stored.record.flavours if failure.flavour in (None, flavour)]
    if not flavours:
        raise BadRequestError(f"flavours of the cluster's record does not list {failure.flavour}")
    keys = [GroupKey(flavour, failure.namespace, failure.name) for flavour in flavours]
    members = {key for pool in stored.state.pools.values() for key in pool.members}
    return [key for key in keys if key in stored.state.groups or str(key) in members]


def _adds_nothing(before: GroupState, after: GroupState, at: datetime) -> bool:
    """Return True if a new report changes only the list of reports, and this list has enough reports near ``at``.

    Other reports within a backoff are stored, because a late report of a failure may start an earlier backoff.
    """
    known = before.failure
    failure = replace(after.failure, reports=known.reports, last_failure=known.last_failure, message=known.message)
    without_report = replace(after, failure=failure)
    return without_report == before and sum(abs(at - report) < _NEAR for report in known.reports) >= _ENOUGH_REPORTS
