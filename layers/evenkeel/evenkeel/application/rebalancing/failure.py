"""A provisioning failure is reported: remember it, and have the cluster looked at.

Events are hints: lost, repeated, late, out of order. The backoff machine takes them in any order; the scan finds the
same failures by itself, so an event only ever makes us faster.

An event that names a node group of the cluster is recorded. One that names a machine, a cluster, a tag or a group that
nobody knows asks for a look: the look reads the machines' own status, and no name in an event becomes state.

A zone without room makes every controller try every machine again and again, and each try is an event. So a cluster is
looked at once per `LOOKS_APART` for all of them:

    events     *  * ***   *                  *
    looks      |---------------|------|------|--------------
               at once         in the end of it, for all since     and at once again, when it has been quiet
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from evenkeel.application.errors import BadRequestError, QueueUnavailableError, StateConflictError, UnknownClusterError
from evenkeel.application.ports import Clock, Queue, StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, Failure, foreign_account
from evenkeel.application.rebalancing.ports import EventStore
from evenkeel.domain.model.failures import classify
from evenkeel.domain.model.groups import CLOCKS_AGREE, GroupKey, MachineFailure
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.values import quote
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.health.observed import announce_failure
from evenkeel.state_records import EventCheckRecord
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.failure")

# As long as a second look waits after a write: what one look leads to has shown itself by the next.
RUNS_APART = timedelta(seconds=15)
# The longest scan_interval: whatever happened before has been looked at since.
_LOOKED_AT_SINCE = timedelta(hours=1)
# So many reports of one kind, this near to each other, say all that any more of them would.
_ENOUGH_REPORTS = 4
_NEAR = timedelta(seconds=15)
# Each conflict means that another event was remembered, and a few that are tell what all the others would.
_TRIES = 50


@dataclass(frozen=True, kw_only=True)
class RecordFailure:
    """Writes a failure down where it is tied to a node group, and asks for a look at the cluster."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, failure: Failure) -> EventOutcome:
        """What became of the event; of several clusters that share a name, of those that are looked at.

        Raises:
            StateUnavailableError, QueueUnavailableError: the event must be tried again.
            StateConflictError: somebody else kept writing the same group; try again.
        """
        now = self.clock.now()
        clusters = [failure.cluster] if failure.cluster is not None else self._clusters_called(failure)
        if not clusters:
            return _ignored(failure, "no such cluster is registered; names of its record may list it")
        outcomes = [self._outcome(failure, cluster, now, alone=len(clusters) == 1) for cluster in clusters]
        result = next(result for result in EventResult if any(outcome.result is result for outcome in outcomes))
        decisive = [outcome for outcome in outcomes if outcome.result is result]
        message = "; ".join(outcome.message for outcome in decisive)
        return EventOutcome(result=result, message=message, kind=decisive[0].kind)

    def _clusters_called(self, failure: Failure) -> list[str]:
        """The registered clusters that the first known of the failure's names is for; an id goes before a name."""
        for name in failure.called:
            clusters = [] if self.store.registered(name) is None else [name]
            clusters = clusters or [id for id in self.store.called(name) if self._lists(id, name)]
            if clusters:
                return clusters
        return []

    def _lists(self, cluster: str, name: str) -> bool:
        """Whether the cluster's record lists the name now; one that cannot be read is told where it is used."""
        try:
            return name in self.store.load(cluster).record.names
        except UnknownClusterError:
            return False
        except ConfigError:
            return True

    def _outcome(self, failure: Failure, cluster: str, now: datetime, *, alone: bool) -> EventOutcome:
        try:
            return self._record_and_ask(failure, cluster, now, alone=alone)
        except UnknownClusterError:
            return _ignored(failure, "no such cluster is registered")
        except BadRequestError as error:
            return _ignored(failure, str(error))
        except ConfigError as error:
            return _ignored(failure, f"its record cannot be read: {error}")

    def _record_and_ask(self, failure: Failure, cluster: str, now: datetime, *, alone: bool) -> EventOutcome:
        """``alone``: no other cluster has the name, so that the event's node group can only be in this one."""
        recorded = ""
        for attempt in range(_TRIES):
            remembered = self.store.load(cluster)
            if failure.sender is not None and not failure.sender.may_speak_of(remembered.record):
                return foreign_account(f"failure event {quote(failure.id)}", cluster, failure.sender)
            if failure.of_pods and not remembered.record.demand_stage.orders:
                message = f"{failure.id}: a pod of {cluster} waits, and demand of its record orders no nodes"
                return EventOutcome(result=EventResult.KNOWN, message=message)
            groups = _groups(failure, remembered) if alone else []
            is_news = failure.occurred_at >= now - _LOOKED_AT_SINCE
            try:
                if groups:
                    failure_class, is_news = self._record(failure, cluster, groups, remembered, now)
                    recorded = recorded or failure_class
                if is_news:
                    self._ask_for_look(failure, cluster, remembered, now)
                break
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
        return _recorded_or_looked(failure, cluster, recorded, known_groups=bool(groups), is_news=is_news)

    def _record(
        self, failure: Failure, cluster: str, groups: list[GroupKey], remembered: StoredCluster, now: datetime
    ) -> tuple[str, bool]:
        """The failure's class, empty where nothing is stored, and whether no success has answered it yet."""
        kind = classify(failure.code, failure.message)
        at = min(failure.occurred_at, now)
        recorded, is_news = "", False
        for key in groups:
            backoff = remembered.backoff_of(key)
            if backoff.is_forgotten(at, now):
                continue
            before = remembered.state.groups.get(key, GroupState())
            message = f"{failure.code}: {failure.message}"
            if failure.occurred_at > now + CLOCKS_AGREE:
                announced = MachineFailure(code=failure.code, message=failure.message[:1024], at=failure.occurred_at)
                after = announce_failure(before, announced)
            else:
                after = record_failure(before, failure.occurred_at, kind, message, backoff, now=now)
            if after != before and not _adds_nothing(before, after, at):
                self.store.save_group(cluster, key, after, remembered.versions)
                recorded = kind.value
            # A repeat that no success has answered counts as well: an earlier try may have recorded it, and died.
            is_news |= before.last_success is None or at > before.last_success
        return recorded, is_news

    def _ask_for_look(self, failure: Failure, cluster: str, remembered: StoredCluster, now: datetime) -> None:
        """Ask for a look now; within `LOOKS_APART` of the last, for one at its end; and for none where one will come.

        Written down before it is asked for, with the event's id: two events at once ask once, and whoever dies
        between the two asks again when the event is tried again. What could not be sent is taken back: others must
        not rely on it.
        """
        latest, at = remembered.event_check, now
        if latest is not None and abs(latest.at - now) <= RUNS_APART:
            if latest.by == failure.id:
                at = latest.at
            elif now < latest.at:
                return
            else:
                at = latest.at + RUNS_APART
        look = EventCheckRecord(at=at, by=failure.id)
        if look != latest:
            self.store.save_event_check(cluster, look, remembered.versions)
        reason = "pods wait" if failure.of_pods else f"provisioning failure {failure.code}"
        try:
            if at <= now:
                self.queue.request(cluster, reason, f"failure-{cluster}-{at.timestamp()}")
            else:
                self.queue.look_again(cluster, reason, ceil((at - now).total_seconds()))
        except QueueUnavailableError:
            taken_back = EventCheckRecord(at=at - 2 * RUNS_APART, by=failure.id)
            with suppress(StateConflictError):
                self.store.save_event_check(cluster, taken_back, remembered.versions)
            raise


def _ignored(failure: Failure, why: str) -> EventOutcome:
    message = f"failure event {quote(failure.id)} for cluster {quote(failure.cluster_name)} ignored: {why}"
    _log.warning(message, extra={"cluster": failure.cluster_name})
    return EventOutcome(result=EventResult.IGNORED, message=message)


def _recorded_or_looked(
    failure: Failure, cluster: str, recorded: str, *, known_groups: bool, is_news: bool
) -> EventOutcome:
    """``recorded``: the failure's class, empty where nothing was stored."""
    if recorded:
        message = f"{failure.id}: {recorded} failure recorded, {cluster} is looked at"
        return EventOutcome(result=EventResult.RECORDED, message=message)
    if known_groups or not is_news:
        why = "known already, or over" if known_groups else "scans have looked since"
        return EventOutcome(result=EventResult.KNOWN, message=f"{failure.id}: {why}: it changes nothing")
    if failure.of_pods:
        return EventOutcome(result=EventResult.LOOKED, message=f"{failure.id}: a pod waits: a look at {cluster}")
    about = f" of machine {quote(failure.machine)}" if failure.machine else ""
    message = f"{failure.id}: {failure.code[:128]}{about} is tied to no node group that is known: a look at {cluster}"
    return EventOutcome(result=EventResult.LOOKED, message=message)


def _groups(failure: Failure, remembered: StoredCluster) -> list[GroupKey]:
    """The node groups of the cluster that the failure names: those a look has found in a pool, or with a state.

    An event that does not say which machine API it is about counts for all of the cluster's.
    Raises BadRequestError where the cluster's record leaves out the failure's machine API.
    """
    if failure.name is None:
        return []
    flavours = [flavour for flavour in remembered.record.flavours if failure.flavour in (None, flavour)]
    if not flavours:
        raise BadRequestError(f"flavours of the cluster's record does not list {failure.flavour}")
    keys = [GroupKey(flavour, failure.namespace, failure.name) for flavour in flavours]
    members = {key for pool in remembered.state.pools.values() for key in pool.members}
    return [key for key in keys if key in remembered.state.groups or str(key) in members]


def _adds_nothing(before: GroupState, after: GroupState, at: datetime) -> bool:
    """Whether a report adds nothing to those that are known: inside a running backoff, among many of its kind.

    Others inside a backoff are kept, since an older failure may still arrive and begin an earlier one.
    """
    without_report = replace(after, reports=before.reports, last_failure=before.last_failure, message=before.message)
    return without_report == before and sum(abs(at - report) < _NEAR for report in before.reports) >= _ENOUGH_REPORTS
