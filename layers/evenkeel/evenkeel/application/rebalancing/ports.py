"""The ports of rebalancing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from evenkeel.application.drill.ports import DrillStore
from evenkeel.application.incidents.ports import HealthPorts, HealthStore
from evenkeel.application.ports import (
    CheckTimesStore,
    Clock,
    Executor,
    LeaseStore,
    RegistrationStore,
    Remaining,
    StoredCluster,
    Versions,
    sequentially,
)
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.parts import Part
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ZoneRecord


class CheckStamps(CheckTimesStore, Protocol):
    """Also writes when clusters were read."""

    def save_checked_at(self, clusters: Sequence[str], at: datetime, resting: Sequence[str] = ()) -> None:
        """Write the time at which these clusters, and the resting clusters beside them, were read, in one write."""


class RunStore(DrillStore, LeaseStore, HealthStore, CheckStamps, Protocol):
    """The operations of the table that a run needs."""

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        """Write the state of one pool."""

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        """Write when the next check is due, in addition to the scheduled checks."""

    def save_unreachable(self, cluster: str, unreachable: Unreachable, versions: Versions | None) -> None:
        """Write that the cluster does not answer, or answers again."""

    def save_steady(self, cluster: str, steady: SteadyState, versions: Versions) -> None:
        """Write the steady state into the record's item. Every other write of that item deletes the steady state."""

    def save_rest(self, cluster: str, until: datetime | None, versions: Versions) -> None:
        """Write into the index of due clusters until when the cluster rests. None: it does not rest."""

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """Delete one of the items of `StoredCluster.expired`."""


@dataclass(frozen=True, kw_only=True)
class SteadyCluster:
    """A cluster that has had no event since a check found nothing to do."""

    record: ClusterRecord
    steady: SteadyState


class CheckStore(CheckStamps, Protocol):
    """The operations of the table that checks need."""

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Read a cluster as ``ClusterStore.load`` does."""

    def steady_clusters(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        """Return the steady clusters among these clusters.

        One request reads a hundred clusters. The data may be a second old.
        """


class EventStore(RegistrationStore, Protocol):
    """The operations of the table that inbound events need."""

    def called(self, name: str) -> Sequence[str]:
        """Return the clusters whose record lists this name, or listed it earlier."""

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        """Write the statements about one zone."""


@dataclass(frozen=True, kw_only=True)
class RunPorts(HealthPorts):
    """The ports of a run, except its cluster. ``random_bytes`` is for ids; ``together`` runs writes in parallel."""

    store: RunStore
    random_bytes: Callable[[int], bytes]
    together: Executor = sequentially

    def new_id(self, clock: Clock | None = None) -> str:
        """Return a new id, which contains the present time of ``clock`` or, if it is None, of the port's clock."""
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


class Cluster(Protocol):
    """One cluster's machine objects. Only ``shows`` may be called before ``observe``.

    Reads raise as ``observe`` does. Every patch carries the resourceVersion that was read. Writes raise RejectedError,
    ClusterUnavailableError, and ConflictError if the object has changed.
    """

    @property
    def others(self) -> "Mapping[type[Any], Others]":
        """Return the other objects that the record's capabilities use, by the type of their ``Write``."""

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        """Read the whole cluster. Raises ClusterUnavailableError or AccessError if a part cannot be read.

        ``reads_machines``: groups whose machines are always listed. The machines of other groups are listed only if a
        node is missing. ``known``: the keys of groups that Evenkeel has written. They are read even if they have lost
        the tags by which the record selects them.
        """

    def seen(self) -> Mapping[str, str]:
        """Return the fingerprints of the lists of groups and owners, by kind of object; empty: unknown."""

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Return True if the lists still have these fingerprints. Only the lists are read."""

    def nodes(self) -> Mapping[str, MachineNode]:
        """Return the observed groups' nodes, by node name and by the cloud's id."""

    def turn_of(self, key: GroupKey) -> str:
        """Return the name of the group's turn. Groups of one turn are written in sequence, others in parallel."""

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the machines that this patch removes: failed machines, then overdue ones, then others without a node.

        If the plan names machines, exactly these machines are returned. Machines with a node are last, and are returned
        only if a request removes nodes. A preserved machine is never returned.
        """

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Set the flavour's delete mark on these machines, and remove Evenkeel's marks from all other machines.

        A machine that already has the mark is not written again. ``ours``: the machines that Evenkeel has marked, for
        flavours whose marks do not name their author. Also raises ConflictError if the patch would remove other
        machines. Where no machine controller drains the nodes, a mark cordons the node, and the next checks evict its
        pods. Until these are gone, this method raises DrainingError.
        """

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        """Remove Evenkeel's marks from these machines. If the marks must stay, only return why.

        ``doubted``: the machines that an earlier check did not list; None: this check confirms no earlier one.
        """

    def confirm(self, groups: Collection[GroupKey]) -> None:
        """Return if no other writer has raised the max of these groups, the siblings of a group that grows.

        Raises ConflictError.
        """

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """Send one merge patch. ``move``: the id of the move that the patch belongs to. Also raises TooLateError."""

    def unfinished(self, begun: Collection[str]) -> Collection[str]:
        """Return the groups, by key, whose writes have begun and not ended. Never raises an error.

        ``observe`` and this method end writes of earlier runs. ``begun``: the groups that such runs may have written.
        """

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Write annotation ``evenkeel.dev/pool-max`` of a group."""

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """Write these bounds into the object that owns a group's bounds."""

    def show_status(self, place: str, text: str) -> bool:
        """Write the text to an existing ConfigMap, ``NAMESPACE/NAME``. If that fails, log it and return False."""

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Send a Kubernetes Event about the group's object, best effort. ``dry_run``: the write is only planned."""


class Others(Protocol):
    """Objects that are no groups, which one capability reads and writes."""

    def read(self, state: ClusterState, now: datetime) -> Part | None:
        """Return what the capability needs now; None: nothing. The part says why an object is unreadable."""

    def write(self, step: Any) -> None:
        """Carry out the capability's ``Write``. Raises as writes of ``Cluster`` do, and AccessError."""


class WorkloadCluster(Protocol):
    """The pods, nodes and volumes of the cluster that runs on the machines. Evenkeel only reads them."""

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Return the whole workload. Raises ClusterUnavailableError or TooLargeError if any part cannot be read.

        ``machines``: called only if nodes are read. ``judges_nodes``: True to read everything that decides which nodes
        are unneeded. If it is False and no pod is pending, only unscheduled pods are read.
        """


class Clusters(Protocol):
    """Opens clusters. The cluster's record is the only input."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        """Open a cluster. Raises AccessError.

        ``consistent``: read the newest state, because writes may follow. ``alone``: False while other clusters are read
        in parallel. To read a large cluster then raises TooLargeError.
        """

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Open the workload cluster of an open cluster. ``alone``: as in ``open``. Raises AccessError."""


class CheckableClusters(Clusters, Protocol):
    """The operations on clusters that checks need."""

    def needs_run(self, record: ClusterRecord) -> bool:
        """Return True if a token must be renewed, which only a run has the right to do. Raises AccessError."""
