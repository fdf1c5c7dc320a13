"""The ports that several capabilities share: interfaces to the outside world, which adapters and tests implement.

A port that only one capability needs is in ``application/<capability>/ports.py``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.check_times import Chunk, Interval, SteadyState, Timer, Unreachable, check_interval
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import ClusterHealth, stopped_since
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord

# A placeholder for the stack's name in proposed commands. It is used if no setting names the stack.
NAMELESS = "NAME"
# The runbooks, a file of this repository, if no setting names the URL of a published copy.
RUNBOOKS = "docs/operate/runbooks.md"


class DetailType(StrEnum):
    """The detail-types of published events."""

    POOL_INVALID = "Pool Invalid"
    POOL_STARVED = "Pool Starved"
    WRITE_CONTESTED = "Write Contested"
    NODE_GROUPS_REBALANCED = "Node Groups Rebalanced"
    NODE_GROUP_FENCED = "Node Group Fenced"
    NODE_GROUP_RECOVERED = "Node Group Recovered"
    REQUEST_REFUSED = "Scale Request Refused"
    INCIDENT_OPENED = "Incident Opened"
    INCIDENT_CHANGED = "Incident Changed"
    INCIDENT_CLOSED = "Incident Closed"


Remaining = Callable[[], float]
"""Return the seconds that the running invocation has left."""


class Clock(Protocol):
    """The time, and a way to wait."""

    def now(self) -> datetime:
        """Return an aware datetime in UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""


class Executor(Protocol):
    """Runs tasks, in parallel where that helps."""

    def __call__(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run the tasks and wait until all have ended. If tasks raised exceptions, raise one of the exceptions."""


def sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks one after the other, until a task raises an exception. This function is an ``Executor``."""
    for task in tasks:
        task()


class Bus(Protocol):
    """Publishes events."""

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Publish one event, best effort. Return False if the bus did not accept it."""


class CheckResult(StrEnum):
    """The result of a check, which the check passes to the run that it requests."""

    SILENT = "silent"  # the cluster returns no usable answer
    ANSWERS = "answers"  # the cluster answers again
    # Checks cannot or may not read the cluster, so the run's own read of the cluster counts as a check.
    UNSEEN = "unseen"
    STOPPED = "stopped"  # no check has read the cluster for too long, so the run only opens an incident


class Queue(Protocol):
    """The queues of the functions ``check`` and ``rebalance``. All methods raise QueueUnavailableError."""

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        """Request a run. Requests with the same deduplication id within five minutes count as one.

        ``found``: the result of the check that requests the run. ``steady``: the state that the run stores if the run,
        too, finds nothing to do.
        """

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Request a run that starts after this many seconds."""

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Request checks, each after the delay of its chunk."""


class CheckTimes(dict[str, datetime]):
    """When each cluster was last checked, by cluster id, and the clusters that were resting then."""

    resting: frozenset[str] = frozenset()

    def stopped_since(self, cluster: str, interval: Interval, now: datetime) -> datetime | None:
        """Return when a cluster was last checked if its checks have stopped; None: they go on, or it is unknown."""
        return stopped_since(check_interval(interval, resting=cluster in self.resting), self.get(cluster), now)


class Versions(dict[str, int]):
    """The versions of a cluster's stored items at the time of a read, by the store's names of items.

    Each write of an item is conditional on the item's version here, and then updates this version. So one reader may
    write an item several times. Another reader, which has the older version, can then no longer write the item.
    """


@dataclass(frozen=True, kw_only=True)
class StoredCluster:
    """All stored items of one cluster, from one query, with their versions."""

    record: ClusterRecord
    control: ControlRecord
    state: ClusterState
    # The stored statements about each zone, with their sources. ``zones_with_drill`` adds the drill's. Plans use only
    # ``state.zones``.
    zones: Mapping[str, ZoneRecord]
    # All requests for nodes by id, including completed requests. Plans use only ``state.scale_requests``.
    scale_requests: Mapping[str, ScaleRequestRecord]
    versions: Versions
    fencing_token: int  # the fencing token of the last lease
    # Groups, by key, whose writes a run has begun and not ended. They are ended even in a paused or dry-run cluster,
    # because a process of the group is suspended until then. Empty while another run has the lease.
    unfinished: Sequence[str] = ()
    expired: Sequence[str] = ()  # the expired items that `RunStore.forget` deletes, by the store's names
    timer: Timer | None = None  # the next check that is due in addition to scans
    event_check: EventCheckRecord | None = None  # the last check that an event requested
    # Set after a check without an answer. Once the cluster answers again, ``unreachable.is_over`` is True.
    unreachable: Unreachable | None = None
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    steady: SteadyState | None = None  # set if the last full check found nothing to do
    drill: Drill | None = None  # the last drill, open or ended

    @property
    def policy(self) -> Policy:
        """Return the policy for plans. It is the record's policy, changed by pauses, restores and converge passes."""
        return self.control.applied_to(self.record.policy())


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The stored registration of a cluster. If the record cannot be read, ``record`` is its fault as text."""

    record: ClusterRecord | str
    control: ControlRecord
    versions: Versions


class ClusterStore(Protocol):
    """Stores the items of one cluster that several capabilities write.

    In every store, a write is conditional on the versions that were read. ``versions`` is None if there was no item. If
    a version has changed, the write raises StateConflictError. All methods raise StateUnavailableError.
    """

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Return a cluster from one query. Raises UnknownClusterError; ConfigError if a record has a bad value.

        An eventually consistent read costs half as much, and may miss writes of the last second.
        """

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """Store both the record and the control record, or neither."""

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Store the state of one node group."""

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Store one request for nodes. If ``versions`` is None, a conflict means that the request is already stored."""

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        """Store the latest check that an event has requested, and what the events of the cluster have shown."""

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Store a decision, or an operator action with its caller. An entry that is too large for an item is cut."""


class CheckTimesStore(Protocol):
    """Stores when each cluster was last read."""

    def checked_at(self) -> CheckTimes:
        """Return when each cluster was last read, from one query; only of clusters that were read in the last hours."""


class RegistrationStore(ClusterStore, Protocol):
    """A ``ClusterStore`` that also reads the registrations of all clusters."""

    def registered(self, cluster: str) -> Registered | None:
        """Return a registration, even if its record has a fault; None if the cluster is not registered.

        Raises ConfigError if the cluster's items are of a release that this one cannot read.
        """

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Return all registrations by cluster id. An invalid record is replaced by its fault, a string."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write to a cluster until ``expires``. Every new lease has a higher fencing token."""

    owner: str
    fencing_token: int
    expires: datetime


class LeaseStore(Protocol):
    """The lease of each cluster."""

    def take_lease(
        self,
        cluster: str,
        owner: str,
        seen_token: int,
        now: datetime,
        expires: datetime,
        writes: Collection[str] = (),
    ) -> Lease:
        """Take the lease, and return it.

        ``seen_token``: the fencing token that the caller has read. ``writes``: the groups that are
        ``StoredCluster.unfinished`` if the lease ends without being given back.

        Raises LeaseHeldError if another owner has the lease, StateConflictError if one has had it since ``seen_token``.
        """

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime, unfinished: Collection[str] = ()) -> None:
        """End the lease now, and store the unfinished writes. Do nothing if another owner has already taken it."""

    def unfinished(self, cluster: str) -> Sequence[str]:
        """Return the groups whose writes have not ended, also those of a run that has the lease. Raises ConfigError."""


class PageStore(Protocol):
    """The store of the status page."""

    def put(self, html: str) -> None:
        """Replace the page. Raises AccessError."""
