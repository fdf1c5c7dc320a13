"""The shared ports of use cases: what several capabilities need from the outside world.

A port that only one capability needs is in ``application/<capability>/ports.py``. Adapters and tests implement them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.offerings import Offering, OfferingState
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.pools import rule_of
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord

# The stack's name in proposed commands if no setting names the stack.
NAMELESS = "NAME"
# The runbooks, if no setting names a copy of them.
RUNBOOKS = "https://github.com/evenkeel-dev/evenkeel/blob/main/docs/operate/runbooks.md"
# The cause of an entry that replaces an unreadable decision. Its `what` is the fault.
UNREADABLE = "unreadable"


class DetailType(StrEnum):
    """The detail-types of published events."""

    POOL_INVALID = "Pool Invalid"
    POOL_STARVED = "Pool Starved"
    WRITE_CONTESTED = "Write Contested"
    NODE_GROUPS_REBALANCED = "Node Groups Rebalanced"
    NODE_GROUP_FENCED = "Node Group Fenced"
    NODE_GROUP_RECOVERED = "Node Group Recovered"
    INCIDENT_OPENED = "Incident Opened"
    INCIDENT_CHANGED = "Incident Changed"
    INCIDENT_CLOSED = "Incident Closed"
    ROLLOUT_HALTED = "Rollout Halted"
    ROLLOUT_DONE = "Rollout Done"


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
        """Run the tasks and wait until all have ended. If tasks raised exceptions, raise one of these."""


def sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks one after the other, until one raises an exception. This is an ``Executor``."""
    for task in tasks:
        task()


class Bus(Protocol):
    """Publishes events."""

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Publish one event, best effort. Return False if the bus did not accept it."""


class CheckResult(StrEnum):
    """The result of a check, for the run that it requests."""

    SILENT = "silent"  # the cluster returns no usable answer
    ANSWERS = "answers"  # the cluster answers again
    UNSEEN = "unseen"  # checks are unable or forbidden to read the cluster: the run's own read counts as a check


class Queue(Protocol):
    """The queues of ``check`` and ``rebalance``. All methods raise QueueUnavailableError."""

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        """Request a run. Requests with the same deduplication id within five minutes count as one.

        ``steady``: the state that the run stores if it also finds nothing to do.
        """

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Request a run after a delay."""

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Request checks, each after the delay of its chunk."""


class Versions(dict[str, int]):
    """The versions of a cluster's items that a reader has seen, by the store's names of items.

    Each write is conditional on these versions and updates them. So one reader may write an item several times. A
    reader with older versions then fails to write it.
    """


@dataclass(frozen=True, kw_only=True)
class SharedOffering:
    """The stored capacity reports of one offering."""

    state: OfferingState
    version: int | None  # the next write is conditional on this version; None: there is no item


Offerings = Mapping[Offering, SharedOffering]
"""Every offering with a capacity report."""


@dataclass(frozen=True, kw_only=True)
class StoredCluster:
    """All stored items of one cluster, from one query, with their versions."""

    record: ClusterRecord
    control: ControlRecord
    state: ClusterState
    zones: Mapping[str, ZoneRecord]  # with the source of each statement; plans use only state.zones
    scale_requests: Mapping[str, ScaleRequestRecord]  # by id, done ones too; plans use only state.scale_requests
    versions: Versions
    fencing_token: int  # of the lease
    offerings: Offerings = field(default_factory=dict)  # all reports; state.offerings: only those of other clusters
    expired: Sequence[str] = ()  # items for `RunStore.forget`, by the store's names
    timer: Timer | None = None  # the next check in addition to scans
    event_check: EventCheckRecord | None = None  # the last check that an event requested
    unreachable: Unreachable | None = None  # set if the last check got no answer
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    steady: SteadyState | None = None  # set if the last full check found nothing to do

    @property
    def policy(self) -> Policy:
        """Return the policy for plans: the record's policy, with pauses and restores applied."""
        return self.control.applied_to(self.record.policy())

    def is_left_alone(self, now: datetime) -> bool:
        """Return True if the cluster is paused, and Evenkeel's bounds prevent no autoscaler from ordering."""
        return self.control.is_paused(now) and not self.closed_pools

    @property
    def closed_pools(self) -> Mapping[str, datetime]:
        """Return the pools in which Evenkeel's bounds prevent an autoscaler from ordering nodes: name -> since when."""
        return {id.name: pool.closed_at for id, pool in self.state.pools.items() if pool.closed_at is not None}

    @property
    def is_unreachable(self) -> bool:
        """Return True if the cluster did not answer the last check."""
        return self.unreachable is not None and not self.unreachable.is_over

    def is_dry(self, default: bool) -> bool:
        """Return True if a run writes nothing; ``default``: the stack's setting.

        A restore is a request to write, so it writes in dry run, too.
        """
        return self.control.is_dry(self.record, default) and not self.control.restoring

    def backoff_of(self, key: GroupKey) -> BackoffPolicy:
        """Return the backoff durations of the group's pool if the record sets them, else the cluster's."""
        policy, name = self.record.policy(), str(key)
        pools = self.state.pools.items()
        pool = next((id for id, state in pools if name in state.adopted or name in state.members), None)
        rule = None if pool is None else rule_of(pool, policy)
        return (rule.backoff if rule else None) or policy.settings.backoff


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The stored registration of a cluster. If the record cannot be read, ``record`` is the fault, a string."""

    record: ClusterRecord | str
    control: ControlRecord
    versions: Versions


class ClusterStore(Protocol):
    """The items of one cluster that several capabilities write.

    In every store, a write is conditional on the versions that were read (None: there was no item). If these have
    changed, the write raises StateConflictError. All methods raise StateUnavailableError.
    """

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Read a cluster in one query. Raises UnknownClusterError; ConfigError if a record has a bad value.

        A read that is not consistent costs half and may miss writes of the last second.
        """

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """Write the record and the control record, both or neither."""

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Write the state of one node group."""

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Write one request for nodes. With ``versions`` None, a conflict means that the request is already stored."""

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Add a decision, or an operator action with its caller. One that is too large for an item is truncated."""


class RegistrationStore(ClusterStore, Protocol):
    """``ClusterStore``, and the registrations of all clusters."""

    def registered(self, cluster: str) -> Registered | None:
        """Read a registration, even if its record has a fault. None: the cluster is not registered."""

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Read all registrations by cluster id; a string is the fault in a record."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write to a cluster until ``expires``. Every new lease has a higher fencing token."""

    owner: str
    fencing_token: int
    expires: datetime


class LeaseStore(Protocol):
    """The lease of each cluster."""

    def take_lease(self, cluster: str, owner: str, seen_token: int, now: datetime, expires: datetime) -> Lease:
        """Take the lease.

        Raises:
            LeaseHeldError: Another owner has it.
            StateConflictError: A run has taken it since the read (``seen_token``).
        """

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """End the lease now. If the lease is already lost, do nothing."""


class Shelf(Protocol):
    """The store of the status page."""

    def put(self, html: str) -> None:
        """Replace the page. Raises AccessError."""
