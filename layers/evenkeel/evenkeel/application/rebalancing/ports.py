"""The ports of rebalancing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from evenkeel.application.incidents.ports import HealthPorts, HealthStore
from evenkeel.application.offerings.ports import OfferingStore
from evenkeel.application.ports import (
    Clock,
    ClusterStore,
    Executor,
    LeaseStore,
    RegistrationStore,
    Remaining,
    StoredCluster,
    Versions,
    sequentially,
)
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, NodeGroup, PoolId, Shoot
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import Buyer
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord
from evenkeel.state_records import EventCheckRecord, ZoneRecord


class CheckStamps(Protocol):
    """Stores when each cluster was last read."""

    def save_checked_at(self, clusters: Sequence[str], at: datetime) -> None:
        """Write the time at which these clusters were read, in one write."""


class RunStore(ClusterStore, LeaseStore, HealthStore, OfferingStore, CheckStamps, Protocol):
    """The table, as a run needs it."""

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        """Write the state of one pool."""

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        """Write when the next check is due, in addition to the scans."""

    def save_unreachable(self, cluster: str, unreachable: Unreachable, versions: Versions | None) -> None:
        """Write that the cluster does not answer, or answers again."""

    def save_steady(self, cluster: str, steady: SteadyState, versions: Versions) -> None:
        """Write the steady state into the record's item. Every other write of that item deletes it."""

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """Delete one of the items of `StoredCluster.expired`."""


@dataclass(frozen=True, kw_only=True)
class SteadyCluster:
    """A cluster that has had no event since a check found nothing to do."""

    record: ClusterRecord
    steady: SteadyState


class CheckStore(OfferingStore, CheckStamps, Protocol):
    """The table, as checks need it."""

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Read a cluster as ``ClusterStore.load`` does."""

    def steady_clusters(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        """Read which of these clusters are steady, in one request per hundred. The data may be a second old."""


class EventStore(RegistrationStore, Protocol):
    """The table, as inbound events need it."""

    def called(self, name: str) -> Sequence[str]:
        """Return the clusters whose record lists this name or listed it once."""

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        """Write the statements about one zone."""

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        """Write the check that an event requested last."""


@dataclass(frozen=True, kw_only=True)
class RunPorts(HealthPorts):
    """The ports of a run, except its cluster. ``random_bytes`` is for ids; ``together`` runs writes in parallel."""

    store: RunStore
    random_bytes: Callable[[int], bytes]
    together: Executor = sequentially

    def new_id(self, clock: Clock | None = None) -> str:
        """Return an id that contains the present time by ``clock``; None: by the port's clock."""
        return ulid((clock or self.clock).now(), self.random_bytes(10))


@dataclass(frozen=True)
class ClusterClock:
    """A cluster's time: Evenkeel's clock plus the skew of the cluster's API server."""

    clock: Clock
    skew: timedelta

    def now(self) -> datetime:
        """Return the cluster's time in UTC."""
        return self.clock.now() + self.skew

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        self.clock.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class MachineNode:
    """The machine of a node, and its group."""

    group: GroupKey
    machine: Machine | None = None  # None: an instance pool has no object per machine
    deleting: bool = False  # True: the machine is being deleted, whatever the node reports


class ClusterReader(Protocol):
    """Reads one cluster's machine objects. All methods but ``shoots`` raise as ``observe`` does.

    Only ``shows`` may be called before ``observe``.
    """

    def observe(self, closely: Collection[GroupKey] = (), buyer: Buyer | None = None) -> Observation:
        """Read the whole cluster. Raises ClusterUnavailableError or AccessError if a part cannot be read.

        ``closely``: groups whose machines are always listed; machines of other groups are listed if a node is missing.
        ``buyer``: also read the offerings of a group that is failing, or that another cluster's reports may affect.
        """

    def seen(self) -> Mapping[str, str]:
        """Return the fingerprints of the observed groups' lists, by kind of object; empty if they are unknown."""

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Return True if the lists still have these fingerprints. Read only the lists."""

    def nodes(self) -> Mapping[str, MachineNode]:
        """Return the observed groups' nodes, by node name and by the cloud's id."""

    def shoots(self, namespaces: Collection[str]) -> Mapping[str, Shoot | Reason]:
        """Read the Shoots of these seed namespaces from the garden; if unreadable, the reason. Never raises."""


class ClusterWriter(Protocol):
    """Writes to one cluster; every patch carries the resourceVersion that was read.

    All methods raise RejectedError, ClusterUnavailableError, and ConflictError if the object has changed.
    """

    def object_of(self, key: GroupKey) -> str:
        """Return the name of the object with a group's bounds. Groups that share it are written in sequence."""

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the machines that this patch removes: first failed, then overdue ones, then others without a node.

        If the plan names machines, exactly these are returned. Otherwise, machines with a node follow last, and only if
        a request gives nodes back. A preserved machine is never returned.
        """

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Set the flavour's delete mark on these machines, and remove Evenkeel's marks from all other machines.

        A machine that already has the mark is not written again. ``ours``: the machines that Evenkeel has marked, for
        flavours whose marks name no author. Also raises ConflictError if the patch would remove other machines.
        """

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        """Remove Evenkeel's marks from these machines. Return False if the group must first delete a machine."""

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """Send one merge patch. ``move``: the id of the move that the patch belongs to."""

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Write annotation ``evenkeel.dev/pool-max`` of a group."""

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """Write the bounds of the object that owns a group's bounds."""

    def write_shoot_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        """Write the maximum of one worker of a Shoot. Also raises AccessError."""

    def show_status(self, place: str, text: str) -> bool:
        """Write an existing ConfigMap, ``NAMESPACE/NAME``. Return False, with a log line, if that fails."""

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Send a Kubernetes Event about the group's object, best effort. ``dry_run``: the write is only planned."""


class Cluster(ClusterReader, ClusterWriter, Protocol):
    """One cluster's machine objects."""


class WorkloadCluster(Protocol):
    """The pods, nodes and volumes of the cluster that runs on the machines. It is read only."""

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Read the workload. Raises ClusterUnavailableError or TooLargeError; a failed read never returns a part.

        ``machines``: called when nodes are read. ``judges_nodes``: read everything that decides which nodes are
        unneeded. False: if no pod is pending, only unscheduled pods are read.
        """


class Clusters(Protocol):
    """Opens clusters. The cluster's record is the only input."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        """Open a cluster. Raises AccessError.

        ``consistent``: read the newest state, since writes may follow. ``alone``: False while other clusters are read
        in parallel; the read of a large cluster then raises TooLargeError.
        """

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Open the workload cluster of an open cluster. ``alone``: as in ``open``. Raises AccessError."""


class CheckableClusters(Clusters, Protocol):
    """Clusters, as checks open them."""

    def needs_run(self, record: ClusterRecord) -> bool:
        """Return True if a token must be renewed, which only a run has the right to do. Raises AccessError."""
