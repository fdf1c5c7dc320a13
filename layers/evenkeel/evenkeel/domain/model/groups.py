"""Node groups, their machines and their bounds, as one check reads them.

A *node group* is one scalable (MachineDeployment, MachineSet or MachinePool), normally one zone of one *pool*. *Bounds*
are the (min, max) that Cluster Autoscaler reads. *Requested* is ``spec.replicas``. *Running* counts machines with a
node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from evenkeel.domain.model.choices import Level, OnFailure, Strategy
from evenkeel.domain.model.offerings import Offering
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import BadValueError, Fault

UNNAMED = "somebody"  # an unnamed writer
# Two clocks that differ by no more count as one: an API server gives whole seconds, and answers take time.
CLOCKS_AGREE = timedelta(seconds=30)
# How long a machine may take to become a node, as in Cluster Autoscaler (config/flags/flags.go:129).
PROVISION_TIMEOUT = timedelta(minutes=15)


class State(StrEnum):
    """The state of a node group."""

    HEALTHY = "healthy"
    FENCED = "fenced"  # in backoff, or its zone is impaired: no growth
    PROBING = "probing"  # backoff is over, success not yet seen: may grow by one
    FROZEN = "frozen"  # read and counted, never written


def is_outage(states: Iterable[State]) -> bool:
    """Return True if each of a pool's groups is fenced or probing, so that no zone is known to deliver."""
    acting = {*states} - {State.FROZEN}
    return bool(acting) and acting <= {State.FENCED, State.PROBING}


@dataclass(frozen=True, order=True)
class GroupKey:
    """A node group's name in state, messages and answers: ``<flavour>/<namespace>/<name>``."""

    flavour: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.flavour}/{self.namespace}/{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a user may give it: its name or its whole key."""
        return frozenset({self.name, str(self)})

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the key. Raises BadValueError if the text has not three parts."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise BadValueError("a node group is written <flavour>/<namespace>/<name>")
        return cls(*parts)


@dataclass(frozen=True, order=True)
class PoolId:
    """A pool's name. Pools of one name in two namespaces, or of two workload clusters, are two pools."""

    flavour: str
    namespace: str
    cluster: str  # workload cluster; empty where the flavour has one per namespace
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.flavour, self.namespace, self.cluster, self.name) if part)

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the id of ``<flavour>/<namespace>/<cluster>/<name>``; the cluster is left out if there is none.

        Raises BadValueError if the text has not three or four parts.
        """
        parts = text.split("/")
        if len(parts) not in (3, 4) or not all(parts):
            raise BadValueError("a pool is written <flavour>/<namespace>/<name>, or with its cluster before the name")
        return cls(parts[0], parts[1], parts[2] if len(parts) == 4 else "", parts[-1])

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a user may give it: its name, or its whole id if several share the name."""
        return frozenset({self.name, str(self)})


@dataclass(frozen=True)
class Bounds:
    """The (min, max) of a node group, always 0 <= min <= max."""

    min: int
    max: int

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max:
            raise ValueError(f"bounds ({self.min}, {self.max}) are not 0 <= min <= max")


@dataclass(frozen=True, order=True, kw_only=True)
class OwnerRef:
    """An object that gives a pool numbers, or one entry of it."""

    kind: str
    namespace: str  # empty: the object is in none
    name: str
    part: str = ""  # name of the entry; empty: the object has one pair of numbers
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(part for part in (self.namespace, self.name) if part)}"

    @property
    def id(self) -> str:
        """Return the id for stored state: a recreated object of the same name is another one."""
        return "/".join(part for part in (self.uid or f"{self.kind}/{self.namespace}/{self.name}", self.part) if part)


@dataclass(frozen=True, kw_only=True)
class OwnerNumbers:
    """The present numbers of an owner. Groups of one owner share them; those of several owners add up."""

    ref: OwnerRef
    bounds: Bounds
    min_field: str  # for people: spec.minReplicas
    max_field: str
    set_by: str = ""  # last writer of max except Evenkeel (managedFields); empty: not read, or unknown
    takes_ours: bool = False  # Evenkeel writes its bounds there too
    needs_consent: bool = False  # written only if the record allows it: that takes the fields from their manager
    besides: tuple[tuple[str, str], ...] = ()  # further values for people, by field


@dataclass(frozen=True, kw_only=True)
class Pinning:
    """Of a group whose owner can hold replicas at a number, so that no autoscaler scales it."""

    cluster: str  # its autoscaler runs only while an owner leaves replicas to it
    scaled: frozenset[str]  # the owners of that cluster that do so now, by OwnerRef.id


@dataclass(frozen=True, kw_only=True)
class NodeCap:
    """The most nodes that a cluster may have, whatever its pools request."""

    ref: OwnerRef
    field: str
    nodes: int


@dataclass(frozen=True, kw_only=True)
class ShootWorker:
    """One worker of a Shoot: a pool with its zones, in the order of their shares."""

    name: str
    minimum: int
    maximum: int
    zones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Shoot:
    """Gardener's Shoot, as far as relief needs it (``domain.rebalancing.relief``)."""

    ref: OwnerRef
    workers: tuple[ShootWorker, ...]
    generation: int = 0
    observed: bool = True  # gardenlet has seen the newest numbers
    obstacle: Reason | None = None  # why nothing is written to it now
    most_nodes: int | None = None  # of its CloudProfile (limits.maxNodesTotal); None: none, or unknown

    def worker(self, name: str) -> ShootWorker | None:
        """Return the worker of that name; None: there is none, or its numbers cannot be read."""
        return next((worker for worker in self.workers if worker.name == name), None)


def shoot_of_namespace(namespace: str) -> tuple[str, str] | None:
    """Return namespace and name, in the garden, of the Shoot of a seed's namespace shoot--<project>--<name>.

    A project's namespace is garden-<project> by default. None: the name has another form.
    """
    parts = namespace.split("--")
    if len(parts) != 3 or parts[0] != "shoot" or not all(parts):
        return None
    return "garden" if parts[1] == "garden" else f"garden-{parts[1]}", parts[2]


@dataclass(frozen=True, kw_only=True)
class PublishedBounds:
    """Evenkeel's last write to an object, as its annotation says."""

    at: datetime
    bounds: Bounds | None  # on the object after that write; None: unknown
    state: State = State.HEALTHY  # of the group then
    requested: int | None = None  # replicas after that write; None: unknown
    before: int | None = None  # replicas before it, if the write changed them
    pinned: bool = False  # the owner holds replicas at max


@dataclass(frozen=True, kw_only=True)
class MachineFailure:
    """The failure that a machine's status reports: why it has not become a node."""

    code: str
    message: str
    at: datetime | None = None


@dataclass(frozen=True, order=True)
class MachineRef:
    """One machine. A recreated machine of the same name is another one."""

    name: str
    uid: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine of a node group."""

    name: str
    uid: str = ""
    has_node: bool
    created_at: datetime
    launched_at: datetime | None = None  # the provider's last try; None: created_at
    preserved: bool = False  # Gardener keeps it, running or failed: it holds a replica, and does not go
    ready: bool = True  # its node is not known to be unready
    marked: bool = False  # carries the flavour's delete mark
    marked_by_us: bool = False  # the mark names Evenkeel, where marks can
    deleting: bool = False
    deleting_since: datetime | None = None
    failure: MachineFailure | None = None
    zone: str | None = None  # of the machine or its cloud id

    @property
    def ref(self) -> MachineRef:
        """Return the reference to the machine: its name and uid."""
        return MachineRef(self.name, self.uid)

    def is_overdue(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Return True if a machine without a node should have become one by now.

        A creation time far in the future counts as overdue, because the true age is unknown.
        """
        return abs(now - self.created_at) >= provision_timeout


@dataclass(frozen=True)
class Rolling:
    """``maxSurge`` and ``maxUnavailable`` of a rolling update: a count, or a percentage as text."""

    max_surge: int | str
    max_unavailable: int | str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a group is, and to which cluster, pool and zone it belongs."""

    kind: str
    sets: tuple[str, ...] = ()  # names of the MachineSets that a MachineDeployment owns
    cluster: str = ""
    pool_label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    zone_of_machines: bool = False  # only its machines show the zone
    zone_index: int | None = None  # N-1 of a name that ends in -z<N>


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """The state of a group's machines and rollout, besides their counts."""

    launched: int | None = None  # of a MachinePool: its instances, nodes or not; which one goes cannot be chosen
    never_ready: Mapping[str, datetime] = field(default_factory=dict)  # machine -> until when its node may become Ready
    preserved_failed: int = 0  # failed machines that Gardener preserves, as the scalable's status counts them
    autoscaler_failure: MachineFailure | None = None  # from cluster-autoscaler-status
    rolling: Rolling | None = None


@dataclass(frozen=True, kw_only=True)
class WrittenByUs:
    """The values that Evenkeel has written to a group's objects."""

    adopted: Bounds | None = None  # from annotation evenkeel.dev/adopted-bounds; None also where that says "none"
    has_adopted: bool = False  # the annotation is there
    published: PublishedBounds | None = None  # None: never, or unreadable
    move: str | None = None  # from annotation evenkeel.dev/move: the last move that has been carried out here
    pinned: bool = False  # the owner of its bounds holds replicas at max because of Evenkeel


@dataclass(frozen=True, kw_only=True)
class FieldManagers:
    """The other writers of a group's bounds and replicas, by managedFields."""

    # Managers that apply max and spec.replicas, and would revert them. Empty: none. None: not read, as in a check.
    bounds_applied_by: str | None = None
    replicas_applied_by: str | None = None
    bounds_by: str = UNNAMED  # last writer of the bounds except Evenkeel
    replicas_by: str = UNNAMED  # last writer of spec.replicas except Evenkeel


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of a group's bounds, and what it accepts."""

    numbers: OwnerNumbers | None = None  # it gives its pool numbers, besides annotations and the record
    bounds_field: str = ""  # the field of its max, for people
    least_max: int = 0  # least max that it accepts
    least_min: int = 0  # least min that it accepts, and so the fewest replicas
    lowers_replicas: bool = False  # its controller lowers replicas to max as well
    pinning: Pinning | None = None  # None: it cannot hold replicas
    may_be_pinned: bool = False  # planned: it is to hold them while the group is fenced
    allowed_replicas: Bounds | None = None  # replicas that it accepts, or held bounds
    bounds_held: bool = False  # the record does not let Evenkeel write it: the bounds stay
    node_cap: NodeCap | None = None  # of the whole cluster
    max_only: bool = False  # its min has no effect, and Karpenter writes its replicas
    bounds_are_read: bool = True  # False: its autoscaler has other bounds
    two_objects: bool = False  # bounds and replicas are on two objects
    copied: Bounds | None = None  # then: the bounds on the scalable itself, which Cluster Autoscaler reads


@dataclass(frozen=True, kw_only=True)
class AutoscalerOptions:
    """Cluster Autoscaler's options of one group. None: its flags decide."""

    provision_timeout: timedelta | None = None  # maxnodeprovisiontime
    short_provision: timedelta | None = None  # Evenkeel's value of that option for a suspect group
    keeps_provision: bool = False  # another writer has set it, or would remove Evenkeel's
    unneeded_time: timedelta | None = None  # how long a node is unneeded before it goes
    unready_time: timedelta | None = None  # the same, of a node that is not ready
    utilization_threshold: float | None = None  # below this share of requests a node is unneeded
    gpu_utilization_threshold: float | None = None  # the same, of a node with a GPU


@dataclass(frozen=True, kw_only=True)
class GroupTemplate:
    """The nodes that a group makes."""

    node: NodeTemplate | None = None  # None: not read, or unknown
    offering: Offering | None = None  # None: not read, or not fully known
    faults: tuple[Fault, ...] = ()  # unreadable values about its nodes
    closed_because: Reason | None = None  # at zero without cpu and memory: the annotation that would open it
    invisible_at_zero: bool = False  # Cluster Autoscaler does not see it at zero


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """The values of a group's annotations ``evenkeel.dev/*``. None: not set."""

    fencing_enabled: bool = True  # evenkeel.dev/fence
    weight: int = 1
    weight_percent: int | None = None  # the same as a percentage of the pool, 1 to 100
    zone_min: int | None = None
    zone_max: int | None = None
    pool_min: int | None = None
    pool_max: int | None = None
    max_step: int | None = None
    strategy: Strategy | None = None
    on_failure: OnFailure | None = None
    level: Level | None = None
    dry_run: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """The unreadable values of a group."""

    faults: tuple[Fault, ...] = ()  # they make its pool invalid
    notes: tuple[Fault, ...] = ()  # without effect: they are reported only


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One participating scalable, as one check has read it.

    Unreadable numbers are None, with a reason in ``unreadable``. A pool with such a member is invalid.
    """

    key: GroupKey
    identity: Identity
    requested: int = 0
    running: int = 0
    machines: tuple[Machine, ...] | None = None  # None: not listed
    bounds: Bounds | None = None
    frozen_because: Reason | None = None
    status: GroupStatus = GroupStatus()
    ours: WrittenByUs = WrittenByUs()
    managers: FieldManagers = FieldManagers()
    owner: Ownership = Ownership()
    options: AutoscalerOptions = AutoscalerOptions()
    template: GroupTemplate = GroupTemplate()
    annotations: Annotations = Annotations()
    unreadable: Unreadable = Unreadable()

    @property
    def has_ours_with_bounds(self) -> bool:
        """Return True if a value of Evenkeel's is on the object of the bounds."""
        return self.ours.has_adopted or self.ours.published is not None

    def frozen(self, reason: Reason) -> Self:
        """Return the group, frozen for this reason; a group that is frozen already keeps its reason."""
        return self if self.frozen_because is not None else replace(self, frozen_because=reason)

    @property
    def delivered(self) -> int:
        """Return the number of machines with a node that was Ready."""
        return max(0, self.running - len(self.status.never_ready))

    @property
    def preserved(self) -> int:
        """Return the replicas of preserved machines without a node.

        They do not become nodes, and cannot be given up: Gardener deletes preserved machines last, so a healthy node
        would go instead (machine-controller-manager pkg/controller/controller_utils.go, ActiveMachines). The scalable's
        status counts too, because the annotation may be on a node, which is not read.
        """
        listed = sum(
            machine.preserved and not machine.has_node and not machine.deleting for machine in self.machines or ()
        )
        return min(max(listed, self.status.preserved_failed), max(0, self.requested - self.running))

    @property
    def waiting(self) -> int:
        """Return the requested replicas that have no node yet, and should get one."""
        return max(0, self.requested - self.running - self.preserved)

    @property
    def refused_machines(self) -> tuple[Machine, ...]:
        """Return the machines without a node that report a failure."""
        return tuple(
            machine
            for machine in self.machines or ()
            if machine.failure is not None and not machine.has_node and not machine.deleting
        )

    def is_ordered_by_us(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Return True if a move or a request has changed its replicas within the provision timeout."""
        return self.ours.move is not None and now - time_of(self.ours.move) < provision_timeout

    def missing_in_rollout(self, now: datetime, provision_timeout: timedelta) -> int:
        """Return the replicas without a node, and without a machine that is on its way or being replaced."""
        replaced = sum(machine.deleting for machine in self.machines or ())
        return max(0, self.waiting - self.on_its_way(now, provision_timeout) - replaced)

    def on_its_way(self, now: datetime, provision_timeout: timedelta) -> int:
        """Return the machines without a node that have not failed, are not preserved and not overdue.

        Of a MachinePool all instances count, however old: if one is given up, a node could go instead.
        """
        if self.status.launched is not None:
            return min(max(0, self.status.launched - self.running), self.waiting)
        if not self.waiting or self.machines is None:
            return 0
        timeout = self.options.provision_timeout or provision_timeout
        coming = sum(
            machine.failure is None and not machine.is_overdue(now, timeout)
            for machine in self.machines
            if not machine.has_node and not machine.deleting and not machine.preserved
        )
        return min(coming, self.waiting)
