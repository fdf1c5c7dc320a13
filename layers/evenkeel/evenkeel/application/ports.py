"""The shared ports of use cases: what several capabilities need from the outside world.

A port that one capability needs is in ``application/<capability>/ports.py``. Adapters and tests implement them.
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

# The stack's name in commands, where no setting names the stack.
NAMELESS = "NAME"
# The cause of an entry that replaces a decision that cannot be read; its `what` is the reason.
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
        """Wait."""


class Executor(Protocol):
    """Runs tasks, in parallel where that helps."""

    def __call__(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Return when all tasks have ended; then raise an exception that one of them raised."""


def sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks one after the other, until one raises (an ``Executor``)."""
    for task in tasks:
        task()


class Bus(Protocol):
    """Publishes events."""

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Publish one event, best effort. Return False if the bus did not accept it."""


class CheckResult(StrEnum):
    """What a check reports to the run that it requests."""

    SILENT = "silent"  # the cluster gives no usable answer
    ANSWERS = "answers"  # it answers again
    UNSEEN = "unseen"  # checks cannot read it, or may not: the run's own read counts as a check


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
        """Request a run. Requests with one deduplication id within five minutes are one request.

        ``steady``: what the run stores if it has nothing to do either.
        """

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Request a run after a delay."""

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Request checks, each after the delay of its chunk."""


class Versions(dict[str, int]):
    """The versions of a cluster's items that a reader has seen, by the store's own names for them.

    Each write is conditional on them and updates them. So a reader may write twice, and a second reader's write fails.
    """


@dataclass(frozen=True, kw_only=True)
class SharedOffering:
    """The capacity reports of one offering, as they were read."""

    state: OfferingState
    version: int | None  # condition of the next write; None: there is no item


Offerings = Mapping[Offering, SharedOffering]
"""Every offering with a capacity report."""


@dataclass(frozen=True, kw_only=True)
class StoredCluster:
    """All stored items of one cluster, from one query, with their versions."""

    record: ClusterRecord
    control: ControlRecord
    state: ClusterState
    zones: Mapping[str, ZoneRecord]  # with the source of each statement; plans need only state.zones
    scale_requests: Mapping[str, ScaleRequestRecord]  # by id, answered ones too; plans need only state.scale_requests
    versions: Versions
    fencing_token: int  # of the lease
    offerings: Offerings = field(default_factory=dict)  # with all reports; state.offerings: those of other clusters
    expired: Sequence[str] = ()  # items for `RunStore.forget`, by the store's names
    timer: Timer | None = None  # the next check besides the scans
    event_check: EventCheckRecord | None = None  # the last check that an event requested
    unreachable: Unreachable | None = None  # set if the last check got no answer
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    steady: SteadyState | None = None  # set if the last full check found nothing to do

    @property
    def policy(self) -> Policy:
        """Return the policy of plans: the record's, with pauses and restores applied."""
        return self.control.applied_to(self.record.policy())

    def is_left_alone(self, now: datetime) -> bool:
        """Return whether it is paused, and no bounds of ours keep an autoscaler from ordering."""
        return self.control.is_paused(now) and not self.closed_pools

    @property
    def closed_pools(self) -> Mapping[str, datetime]:
        """Return the pools that our plan closes to an autoscaler: name -> since when."""
        return {id.name: pool.closed_at for id, pool in self.state.pools.items() if pool.closed_at is not None}

    @property
    def is_unreachable(self) -> bool:
        """Return whether the cluster did not answer the last check."""
        return self.unreachable is not None and not self.unreachable.is_over

    def is_dry(self, default: bool) -> bool:
        """Return whether a run writes nothing; ``default``: the stack's setting.

        A restore is a request to write, so it also runs in dry run.
        """
        return self.control.is_dry(self.record, default) and not self.control.restoring

    def backoff_of(self, key: GroupKey) -> BackoffPolicy:
        """Return the backoff of the group's pool if its rule has one, else the cluster's."""
        policy, name = self.record.policy(), str(key)
        pools = self.state.pools.items()
        pool = next((id for id, state in pools if name in state.adopted or name in state.members), None)
        rule = None if pool is None else rule_of(pool, policy)
        return (rule.backoff if rule else None) or policy.settings.backoff


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The registration of a cluster, as it is before a change. ``record``: a string is the fault in it."""

    record: ClusterRecord | str
    control: ControlRecord
    versions: Versions


class ClusterStore(Protocol):
    """The items of one cluster that several capabilities write.

    In every store, a write is conditional on the versions that were read (None: there is no item) and raises
    StateConflictError. All methods raise StateUnavailableError.
    """

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Read a cluster in one query. Raises UnknownClusterError; ConfigError if a record has a bad value.

        A read without consistency has half the price and may miss writes of the last second.
        """

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """Write both or neither."""

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Write the state of one node group."""

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Write one request for nodes. A conflict without versions means that it is stored already."""

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Add a decision, or who did what. One that is too large for an item is cut."""


class RegistrationStore(ClusterStore, Protocol):
    """The same with the registrations of all clusters."""

    def registered(self, cluster: str) -> Registered | None:
        """Read a registration, also one with a fault. None: the cluster is not registered."""

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
        """Take it. Raises LeaseHeldError while another holds it; StateConflictError if it was taken since the read."""

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """End it now. A lease that is lost already is no error."""


class Shelf(Protocol):
    """Where the status page is stored."""

    def put(self, html: str) -> None:
        """Replace the page. Raises AccessError."""
