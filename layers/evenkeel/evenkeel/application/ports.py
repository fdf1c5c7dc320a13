"""What use cases need of the outside world. Adapters provide it; tests provide it in memory."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, NodeGroup, PoolId, Shoot
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import Buyer, Offering, OfferingState
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.pools import rule_of
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord


class DetailType(StrEnum):
    """The events that a decision is published as."""

    POOL_INVALID = "Pool Invalid"
    POOL_STARVED = "Pool Starved"
    WRITE_CONTESTED = "Write Contested"
    NODE_GROUPS_REBALANCED = "Node Groups Rebalanced"
    NODE_GROUP_FENCED = "Node Group Fenced"
    NODE_GROUP_RECOVERED = "Node Group Recovered"
    INCIDENT_OPENED = "Incident Opened"  # of a verdict: application/incidents/notify.py
    INCIDENT_CHANGED = "Incident Changed"
    INCIDENT_CLOSED = "Incident Closed"
    ROLLOUT_HALTED = "Rollout Halted"  # of many clusters: application/rollout/rollout.py
    ROLLOUT_DONE = "Rollout Done"


class Clock(Protocol):
    """The time, and waiting for it to pass."""

    def now(self) -> datetime:
        """An aware datetime in UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclass(frozen=True)
class ClusterClock:
    """A cluster's time, by a clock of ours and what its API server's is ahead of that."""

    clock: Clock
    skew: timedelta

    def now(self) -> datetime:
        return self.clock.now() + self.skew

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


Remaining = Callable[[], float]
"""Seconds that are left to the running invocation."""


class Versions(dict[str, int]):
    """Which versions of a cluster's items a reader has seen: the store's own, by its own names, opaque to all else.

    A write is conditional on them, and brings them up to date: who writes twice writes on top of what it wrote. Another
    reader's stay as they were, and so do its writes fail.
    """


@dataclass(frozen=True, kw_only=True)
class SharedOffering:
    """What clusters say of an offering, as it was read."""

    state: OfferingState
    version: int | None  # that its next write is conditional on; None: nothing is there


Offerings = Mapping[Offering, SharedOffering]
"""Every offering that any cluster has a word about."""


@dataclass(frozen=True, kw_only=True)
class StoredCluster:
    """All that is stored of one cluster, from one query, with the versions it was read at."""

    record: ClusterRecord
    control: ControlRecord
    state: ClusterState
    zones: Mapping[str, ZoneRecord]  # who said what about a zone; the plan needs only state.zones
    # By id, those that are done too; the plan needs only state.scale_requests.
    scale_requests: Mapping[str, ScaleRequestRecord]
    versions: Versions
    fencing_token: int  # of the lease
    offerings: Offerings = field(default_factory=dict)  # as they are shared; state.offerings: what others say of them
    expired: Sequence[str] = ()  # items that count no more, by the store's names, for `Store.forget`
    timer: Timer | None = None  # the look that is due besides the scans
    event_check: EventCheckRecord | None = None  # the last look that an event has asked for
    silence: Unreachable | None = None  # it did not answer when it was last looked at
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    settled: SteadyState | None = None  # nothing was to be done when it was last looked at

    @property
    def policy(self) -> Policy:
        """What plans are made from: what the record says, with what is paused and what is being restored."""
        return self.control.applied_to(self.record.policy())

    def is_left_alone(self, now: datetime) -> bool:
        """Return whether it is paused, and no bounds of ours keep an autoscaler from ordering."""
        return self.control.is_paused(now) and not self.closed_pools

    @property
    def closed_pools(self) -> Mapping[str, datetime]:
        """Return the pools in which an autoscaler may find no room because of our plan: name -> when that began."""
        return {id.name: pool.closed_at for id, pool in self.state.pools.items() if pool.closed_at is not None}

    @property
    def is_unreachable(self) -> bool:
        """Whether the cluster did not answer when it was last looked at."""
        return self.silence is not None and not self.silence.is_over

    def is_dry(self, default: bool) -> bool:
        """Whether a run writes nothing; ``default``: what the stack says.

        Who asks for restore asks for writes: what we wrote while the cluster was on is taken back in dry run too.
        """
        return self.control.is_dry(self.record, default) and not self.control.restoring

    def backoff_of(self, key: GroupKey) -> BackoffPolicy:
        """The durations of the group's pool, where the pool is remembered and has its own; else the cluster's."""
        policy, name = self.record.policy(), str(key)
        pools = self.state.pools.items()
        pool = next((id for id, state in pools if name in state.adopted or name in state.members), None)
        rule = None if pool is None else rule_of(pool, policy)
        return (rule.backoff if rule else None) or policy.backoff


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What registering a cluster again has to go on from. ``record``: a string is what is wrong with it."""

    record: ClusterRecord | str
    control: ControlRecord
    versions: Versions


@dataclass(frozen=True, kw_only=True)
class SteadyCluster:
    """A cluster of which nothing is known to have happened since a look found nothing to be done."""

    record: ClusterRecord
    settled: SteadyState


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to write to a cluster until ``expires``. Every new lease has a higher fencing token."""

    owner: str
    fencing_token: int
    expires: datetime


# The cause of an entry that stands in the place of a decision that cannot be read; `what` says why.
UNREADABLE = "unreadable"


class RunStore(Protocol):
    """What a run needs of the table. Every write is conditional on the versions that were read; None: nothing is there.

    All methods raise StateUnavailableError when the table does not answer.
    """

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """One query. Raises UnknownClusterError; ConfigError where a record has a bad value.

        Who reads without consistency, at half the price, may not see the last second's writes.
        """

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """Both or neither. Raises StateConflictError where one has been written since."""

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Raises StateConflictError."""

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        """Raises StateConflictError."""

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Raises StateConflictError; without versions: it is known already."""

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        """Raises StateConflictError."""

    def save_silence(self, cluster: str, silence: Unreachable, versions: Versions | None) -> None:
        """Raises StateConflictError."""

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        """Also where all verdicts are read together. Raises StateConflictError."""

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        """One item, also of a cluster whose other records nobody can read."""

    def save_looked_at(self, clusters: Sequence[str], at: datetime) -> None:
        """These clusters were read then, side by side: one write."""

    def save_settled(self, cluster: str, settled: SteadyState, versions: Versions) -> None:
        """Of the record as it was read; with whatever else is written of the record it is forgotten.

        Raises StateConflictError.
        """

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """Delete one of the items of `Remembered.expired`. Raises StateConflictError where it was written since."""

    def offerings(self) -> Offerings:
        """All that are in trouble: one query, as cheap as an empty answer where none is. May be a second old."""

    def offering(self, offering: Offering) -> SharedOffering:
        """One of them as it is now."""

    def save_offering(self, offering: Offering, state: OfferingState, version: int | None) -> None:
        """Raises StateConflictError."""

    def take_lease(self, cluster: str, owner: str, seen_token: int, now: datetime, expires: datetime) -> Lease:
        """Raises LeaseHeldError while another's is running; StateConflictError if it was taken since ``seen_token``."""

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """Let it end now. Not having it any more is no error."""

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Decisions are only ever added; one that is too large for an item is cut."""


class CheckStore(RunStore, Protocol):
    """The same for looks, which only read of it."""

    def steady_clusters(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        """Those of the clusters that are settled, in one request for a hundred. May be a second old.

        Raises StateUnavailableError.
        """


@dataclass(frozen=True, kw_only=True)
class DuePage:
    """Some of the clusters of one shard, by id; a string is what is wrong with the record."""

    registrations: Sequence[tuple[str, Registration | str]]
    after: str | None = None  # where the next page begins; None: this is the last


class DueStore(Protocol):
    """The index of clusters that ``scan`` reads: in shards, so that any number of them can be read side by side."""

    shards: Sequence[str]

    def due(self, shard: str, after: str | None = None) -> DuePage:
        """One page of a shard. Raises StateUnavailableError."""

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """All registered clusters by id. Raises StateUnavailableError."""

    def rollout(self) -> tuple[Rollout | None, int | None]:
        """The last rollout as it is now, and the version that its next write is conditional on; None: there was none.

        Raises StateUnavailableError; ConfigError where it cannot be read.
        """


class ActionStore(CheckStore, DueStore, Protocol):
    """The table, as everybody else needs it too."""

    def called(self, name: str) -> Sequence[str]:
        """Clusters whose record lists this name, or once did."""

    def registered(self, cluster: str) -> Registered | None:
        """Also of a cluster whose record cannot be read. None: it is not registered."""

    def save_rollout(self, rollout: Rollout, version: int | None) -> int:
        """In the place of the one before. Its version from now on. Raises StateConflictError."""

    def save_control(self, cluster: str, control: ControlRecord, versions: Versions) -> None:
        """Beside a record that nobody can read, which stays as it is. Raises StateConflictError."""

    def remove_record(self, cluster: str, versions: Versions) -> None:
        """What a person registered, and what actions have said; the cluster is not registered any more.

        What is remembered of its groups and pools stays, for whoever registers it again. Raises StateConflictError.
        """

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        """Raises StateConflictError."""

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        """Raises StateConflictError: another event has asked for a look meanwhile."""

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        """Of all clusters that ever were in trouble: one query (and one more per MiB)."""

    def looked_at(self) -> Mapping[str, datetime]:
        """When each cluster was last read, of those that were within the last hours: one query."""

    def load_with_decisions(self, cluster: str, ulid: str) -> tuple[StoredCluster, Sequence[Mapping[str, Any]] | None]:
        """As ``load``, with all decisions that have a higher id, the oldest first; None: they are too many for that."""

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """A page of decisions with a higher id, the oldest first, and whether there are more."""

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest first."""


@dataclass(frozen=True, kw_only=True)
class MachineNode:
    """Whose machine a node is."""

    group: GroupKey
    machine: Machine | None = None  # None: a pool of instances has it, and no object says which it is
    deleting: bool = False  # the machine, whatever the node says


class Cluster(Protocol):
    """One cluster's machine objects."""

    def observe(self, closely: Collection[GroupKey] = (), buyer: Buyer | None = None) -> Observation:
        """A complete look. Raises ClusterUnavailableError or AccessError, never returns half of it.

        ``closely``: groups whose machines are listed in any case; those of others only where a node is missing.
        ``buyer``: what groups buy is looked up, of those in trouble and those that other clusters' words may be about.
        """

    def seen(self) -> Mapping[str, str]:
        """Where the groups of the last look stand, with a fingerprint of each list; empty where it cannot be told."""

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Whether these are the same objects in the same versions. Nothing else is asked. Raises as ``observe``."""

    def nodes(self) -> Mapping[str, MachineNode]:
        """Of the groups of the last look, by the names of their nodes and by the cloud's ids. Raises as ``observe``."""

    def object_of(self, key: GroupKey) -> str:
        """Names the object that carries a group's bounds. Several groups may share one: they are written in turn."""

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Names of the machines that are to go with this patch: failed ones, late ones, others without a node.

        Then the least useful. A machine that its owner preserves is never named.

        A machine with a node is named only where the plan gives nodes back on request, or names machines itself: then
        exactly those. Raises ClusterUnavailableError, ConflictError where one of those is another by now.
        """

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Give these machines the flavour's delete mark, so that they go first, and take ours off all others.

        What is marked already is not written again.
        ``ours``: machines that we are remembered to have marked, for flavours whose mark does not say whose it is.
        Raises ConflictError where a machine has changed since the look, or others than the named would go,
        RejectedError, ClusterUnavailableError.
        """

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        """Take our mark off those of the machines that stay. False: they are still going, look again later.

        Raises as ``mark``.
        """

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """One merge patch that carries the resourceVersion of the last look; ``move`` marks a step of that move.

        Raises ConflictError, RejectedError, ClusterUnavailableError.
        """

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Annotation ``evenkeel.dev/pool-max`` of a group, in a patch with the resourceVersion of the last look.

        Raises ConflictError, RejectedError, ClusterUnavailableError.
        """

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """The numbers that the owner of a group's bounds has, in a patch with the resourceVersion of the last look.

        Raises ConflictError, RejectedError, ClusterUnavailableError.
        """

    def shoots(self, namespaces: Collection[str]) -> Mapping[str, Shoot | Reason]:
        """The Shoots of these namespaces of a Gardener seed, from its garden; a reason: it could not be read.

        Never raises: a garden that does not answer keeps nobody from planning for the seed.
        """

    def write_shoot_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        """One number of a Shoot that was read, in a patch with the resourceVersion of that.

        Raises ConflictError, RejectedError, ClusterUnavailableError, AccessError.
        """

    def show_status(self, place: str, text: str) -> bool:
        """Into a ConfigMap, ``NAMESPACE/NAME``, that somebody has made. False: it was not written; the log says why."""
        ...

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """A Kubernetes Event beside the object, so that ``kubectl describe`` shows why. Best effort, never raises.

        ``dry_run``: it says what would be written.
        """


class WorkloadCluster(Protocol):
    """The pods, nodes and volumes of the cluster that runs on the machines. Nothing of it is ever written."""

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """A complete look. Raises ClusterUnavailableError, TooLargeError, never returns half of it.

        ``machines``: asked for where nodes are read. ``judges_nodes``: nodes that nobody needs are looked for; else, if
        no pod waits, only that is found out.
        """


class Executor(Protocol):
    """Carries out tasks, side by side where that helps."""

    def __call__(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Returns when all have ended; raises what one of them has raised, after all have ended."""


def sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """``Executor``, one after the other; what one raises ends it."""
    for task in tasks:
        task()


class Clusters(Protocol):
    """Opens clusters from their records, and from nothing else."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        """Raises AccessError.

        ``consistent``: what is read must be the newest, since writes may follow from it. ``alone``: False where others
        are looked at beside it; a look at a large one then raises TooLargeError.
        """

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Of a cluster that has been opened. ``alone`` as above. Raises AccessError, ClusterUnavailableError."""


class CheckableClusters(Clusters, Protocol):
    """The same for who only looks."""

    def needs_run(self, record: ClusterRecord) -> bool:
        """Whether a run is to open the cluster although there is no news: it renews what a look may not.

        Raises AccessError.
        """


class InspectableClusters(Clusters, Protocol):
    """The same for who asks about a cluster beyond what a look sees."""

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """AWS's ids of zones to their names, as running nodes of its node groups say.

        Raises AccessError, ClusterUnavailableError.
        """

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        """What it would refuse of all that a look needs, pods included, or (``writes``) a run; each in words.

        It is asked for each right, and nothing is read. Raises AccessError, ClusterUnavailableError.
        """

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        """When a cluster-autoscaler last showed itself in the workload cluster, as far as that may be read.

        Raises AccessError, ClusterUnavailableError.
        """


class CheckResult(StrEnum):
    """What a look has found, where that is more than a reason to plan."""

    SILENT = "silent"  # the cluster gives no usable answer
    ANSWERS = "answers"  # it does so again
    UNSEEN = "unseen"  # looks cannot read it, or may not: what the run reads counts as a look


class Queue(Protocol):
    """The ways in to ``look`` and ``rebalance``. All methods raise QueueUnavailableError."""

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        settled: SteadyState | None = None,
    ) -> None:
        """Ask for a run. Requests with one deduplication id within five minutes are one.

        ``settled``: what the run is to remember, should it find nothing to be done either.
        """

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Ask for a run after a delay."""

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Ask for looks, each after its chunk's delay."""


class ScanQueue(Queue, Protocol):
    """The same for ``scan``, which may have more to do than one invocation can."""

    def scan_on(self, shard: str, after: str, at: datetime) -> None:
        """Ask for the rest of a shard to be scanned, for the tick of that moment."""

    def advance_rollouts(self, rollout: str, at: datetime) -> None:
        """Have a rollout go on, for the tick of that moment."""


class Bus(Protocol):
    """Decision events out."""

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Best effort: what the table says is the truth. False: nobody was told."""


class Shelf(Protocol):
    """Where a page lies for whoever looks."""

    def put(self, html: str) -> None:
        """In the place of the one before. Raises AccessError."""


# Where nobody has said what the stack is called.
NAMELESS = "NAME"


@dataclass(frozen=True, kw_only=True)
class RunPorts:
    """What a run needs besides the cluster. ``random_bytes`` is for ids; ``together`` carries writes out.

    ``stack``: the name of ours, for commands that people are told.
    """

    store: RunStore
    bus: Bus
    clock: Clock
    random_bytes: Callable[[int], bytes]
    together: Executor = sequentially
    stack: str = NAMELESS  # as commands for people name it

    def new_id(self, clock: Clock | None = None) -> str:
        """Return an id of this moment, by a clock of its own where one is given."""
        return ulid((clock or self.clock).now(), self.random_bytes(10))
