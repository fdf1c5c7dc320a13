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
    """When each cluster was last read."""

    def save_checked_at(self, clusters: Sequence[str], at: datetime) -> None:
        """Write for all these clusters that they were read: one write."""


class RunStore(ClusterStore, LeaseStore, HealthStore, OfferingStore, CheckStamps, Protocol):
    """The table, as a run needs it."""

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        """Write the state of one pool."""

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        """Write when the next check is due besides the scans."""

    def save_unreachable(self, cluster: str, unreachable: Unreachable, versions: Versions | None) -> None:
        """Write that the cluster does not answer, or answers again."""

    def save_steady(self, cluster: str, steady: SteadyState, versions: Versions) -> None:
        """Write the steady state into the record's item. Every other write of the record deletes it."""

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
        """As of ``ClusterStore``."""

    def steady_clusters(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        """Read those of the clusters that are steady: one request for a hundred. May be a second old."""


class EventStore(RegistrationStore, Protocol):
    """The table, as inbound events need it."""

    def called(self, name: str) -> Sequence[str]:
        """Return the clusters whose record lists this name, or once did."""

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        """Write the statements about one zone."""

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        """Write which check an event requested last."""


@dataclass(frozen=True, kw_only=True)
class RunPorts(HealthPorts):
    """The ports of a run besides the cluster. ``random_bytes`` is for ids; ``together`` executes writes."""

    store: RunStore
    random_bytes: Callable[[int], bytes]
    together: Executor = sequentially

    def new_id(self, clock: Clock | None = None) -> str:
        """Return an id of this moment, by another clock if one is given."""
        return ulid((clock or self.clock).now(), self.random_bytes(10))


@dataclass(frozen=True)
class ClusterClock:
    """A cluster's time: our clock plus the skew of its API server."""

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
    machine: Machine | None = None  # None: a pool of instances has it, without an object for each
    deleting: bool = False  # the machine, whatever the node reports


class ClusterReader(Protocol):
    """Reads one cluster's machine objects. ``observe`` comes first; all methods but ``shoots`` raise as it does."""

    def observe(self, closely: Collection[GroupKey] = (), buyer: Buyer | None = None) -> Observation:
        """Read the whole cluster. Raises ClusterUnavailableError or AccessError, never returns a part.

        ``closely``: groups whose machines are listed in any case; others only if a node is missing.
        ``buyer``: what a group buys is read too, if the group is failing or another cluster's reports may concern it.
        """

    def seen(self) -> Mapping[str, str]:
        """Return where the observed groups are, with a fingerprint of each list; empty if that is unknown."""

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Return whether these are the same objects in the same versions. Reads nothing else."""

    def nodes(self) -> Mapping[str, MachineNode]:
        """Return the observed groups' nodes, by node name and by the cloud's id."""

    def shoots(self, namespaces: Collection[str]) -> Mapping[str, Shoot | Reason]:
        """Read the Shoots of these seed namespaces from the garden; a reason: it cannot be read. Never raises."""


class ClusterWriter(Protocol):
    """Writes to one cluster; every patch carries the resourceVersion that was read.

    All methods raise ConflictError if the object has changed, RejectedError and ClusterUnavailableError.
    """

    def object_of(self, key: GroupKey) -> str:
        """Return the name of the object with a group's bounds. Groups that share one are written in turn."""

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the machines that this patch removes: failed ones, late ones, others without a node.

        Then the least useful; never one that its owner preserves. A machine with a node is named only if the plan
        names machines or gives nodes back on request: then exactly those.
        """

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Set the flavour's delete mark on these machines, and remove ours from all others.

        A marked machine is not written again. ``ours``: machines that we marked, for flavours whose mark has no owner.
        Raises ConflictError too if other machines than the named would be removed.
        """

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        """Remove our mark from the machines that stay. False: they are still being deleted."""

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """Send one merge patch; ``move`` marks a step of that move."""

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Write annotation ``evenkeel.dev/pool-max`` of a group."""

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """Write the bounds of the object that owns a group's bounds."""

    def write_shoot_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        """Write one maximum of a Shoot. Raises AccessError too."""

    def show_status(self, place: str, text: str) -> bool:
        """Write an existing ConfigMap, ``NAMESPACE/NAME``. Return False, with a log line, if that fails."""

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Send a Kubernetes Event about the object, best effort. ``dry_run``: it reports a planned write."""


class Cluster(ClusterReader, ClusterWriter, Protocol):
    """One cluster's machine objects."""


class WorkloadCluster(Protocol):
    """The pods, nodes and volumes of the cluster that runs on the machines. It is read only."""

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Read it whole. Raises ClusterUnavailableError, TooLargeError, never returns a part.

        ``machines``: called where nodes are read. ``judges_nodes``: also read what says which nodes are unneeded;
        otherwise, without a pending pod, nothing else is read.
        """


class Clusters(Protocol):
    """Opens clusters from their records, and from nothing else."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        """Open a cluster. Raises AccessError.

        ``consistent``: read the newest state, since writes may follow. ``alone``: False beside other clusters; then a
        read of a large cluster raises TooLargeError.
        """

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Open the workload cluster of an open cluster. ``alone``: as above. Raises AccessError too."""


class CheckableClusters(Clusters, Protocol):
    """Clusters, as checks open them."""

    def needs_run(self, record: ClusterRecord) -> bool:
        """Return whether a run has to renew what a check may not. Raises AccessError."""
