"""What one look at the API finds: node groups, their machines and their bounds.

A *node group* is one scalable (MachineDeployment or MachineSet), normally one zone of one *pool*; *bounds* are the
(min, max) that Cluster Autoscaler reads; *requested* is ``spec.replicas``; *running* counts the machines that have a
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

SOMEBODY = "somebody"  # a writer that nobody names
# Two clocks that differ by no more count as one: an API server says its time in whole seconds, and answers take some.
CLOCKS_AGREE = timedelta(seconds=30)


class State(StrEnum):
    """What a node group may do now."""

    HEALTHY = "healthy"
    FENCED = "fenced"  # in backoff, or its zone is impaired: no growth
    PROBING = "probing"  # backoff is over, success not yet seen: may grow by one
    FROZEN = "frozen"  # read and counted, never written


def is_outage(states: Iterable[State]) -> bool:
    """Of a pool's groups: whether no zone is known to deliver, since each is fenced, or only tried again."""
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
        """What people may call it: by its name or by its whole key."""
        return frozenset({self.name, str(self)})

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises BadValueError where the text has not three parts."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise BadValueError("a node group is written <flavour>/<namespace>/<name>")
        return cls(*parts)


@dataclass(frozen=True, order=True)
class PoolId:
    """Pools of one name in two namespaces, or of two workload clusters in one namespace, are two pools."""

    flavour: str
    namespace: str
    cluster: str  # workload cluster; empty where the flavour has one per namespace
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.flavour, self.namespace, self.cluster, self.name) if part)

    @classmethod
    def read(cls, text: str) -> Self:
        """From ``<flavour>/<namespace>/<cluster>/<name>``; the cluster is left out where there is none.

        Raises BadValueError where the text has not three or four parts.
        """
        parts = text.split("/")
        if len(parts) not in (3, 4) or not all(parts):
            raise BadValueError("a pool is written <flavour>/<namespace>/<name>, or with its cluster before the name")
        return cls(parts[0], parts[1], parts[2] if len(parts) == 4 else "", parts[-1])

    @property
    def names(self) -> frozenset[str]:
        """What people may call it: by its name, or by its whole id where several share the name."""
        return frozenset({self.name, str(self)})


@dataclass(frozen=True)
class Bounds:
    """The (min, max) of a node group. Unlike what is found on objects, always 0 <= min <= max."""

    min: int
    max: int

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max:
            raise ValueError(f"bounds ({self.min}, {self.max}) are not 0 <= min <= max")


@dataclass(frozen=True, order=True, kw_only=True)
class OwnerRef:
    """An object that gives a pool numbers, or one entry of it."""

    kind: str
    namespace: str  # empty: it stands in none
    name: str
    part: str = ""  # the entry that is meant, by its name; empty: the object has one pair of numbers
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(part for part in (self.namespace, self.name) if part)}"

    @property
    def id(self) -> str:
        """What it is remembered by: an object that is made anew under the same name is another one."""
        return "/".join(part for part in (self.uid or f"{self.kind}/{self.namespace}/{self.name}", self.part) if part)


@dataclass(frozen=True, kw_only=True)
class OwnerNumbers:
    """What an owner says, as it stands there now. Groups of one owner share it; those of several add up."""

    ref: OwnerRef
    bounds: Bounds
    min_field: str  # where they stand, as people write it: spec.minReplicas
    max_field: str
    set_by: str = ""  # who wrote max there last, besides us (managedFields); empty: not read, or nobody says
    takes_ours: bool = False  # our bounds are written there too, so what stands there may be ours
    needs_consent: bool = False  # written only where the record says so: it takes the fields from whoever applied them
    besides: tuple[tuple[str, str], ...] = ()  # what else stands there that people may ask for, by field


@dataclass(frozen=True, kw_only=True)
class Pinning:
    """Of a group whose owner can hold replicas at a number, out of every autoscaler's hands."""

    cluster: str  # whose autoscaler is there only while an owner leaves replicas to it
    scaled: frozenset[str]  # the owners of that cluster that do so now, by OwnerRef.id


@dataclass(frozen=True, kw_only=True)
class NodeCap:
    """The most nodes that a cluster may have, whatever its pools say."""

    ref: OwnerRef
    field: str
    nodes: int


@dataclass(frozen=True, kw_only=True)
class ShootWorker:
    """One worker of a Shoot: a pool with its zones, in the order in which shares are dealt out."""

    name: str
    minimum: int
    maximum: int
    zones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Shoot:
    """Gardener's Shoot, as far as relief needs to know it (``domain.rebalancing.relief``)."""

    ref: OwnerRef
    workers: tuple[ShootWorker, ...]
    generation: int = 0
    observed: bool = True  # gardenlet has seen its newest numbers
    obstacle: Reason | None = None  # why nothing is written to it now
    most_nodes: int | None = None  # of its CloudProfile (limits.maxNodesTotal); None: there is none, or it is not known

    def worker(self, name: str) -> ShootWorker | None:
        """The worker of that name; None: there is none, or its numbers cannot be read."""
        return next((worker for worker in self.workers if worker.name == name), None)


def shoot_of_namespace(namespace: str) -> tuple[str, str] | None:
    """Namespace and name, in the garden, of the Shoot of a namespace of a seed: shoot--<project>--<name>.

    A project's namespace is garden-<project> unless somebody chose another. None: the name is no such name.
    """
    parts = namespace.split("--")
    if len(parts) != 3 or parts[0] != "shoot" or not all(parts):
        return None
    return "garden" if parts[1] == "garden" else f"garden-{parts[1]}", parts[2]


@dataclass(frozen=True, kw_only=True)
class PublishedBounds:
    """What we last wrote to an object, and when, as its annotation says."""

    at: datetime
    bounds: Bounds | None  # those that stood on the object after that write; None: it does not say
    state: State = State.HEALTHY  # what the group might do then
    requested: int | None = None  # replicas that stood on the object after that write; None: it does not say
    before: int | None = None  # replicas before it, where the write changed them
    pinned: bool = False  # the owner was told to hold replicas at max


@dataclass(frozen=True, kw_only=True)
class MachineFailure:
    """What a machine's status says about why it has not become a node."""

    code: str
    message: str
    at: datetime | None = None


@dataclass(frozen=True, order=True)
class MachineRef:
    """One machine. Made anew under the same name, it is another one."""

    name: str
    uid: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine of a node group, as far as redistribution needs to know it."""

    name: str
    uid: str = ""
    has_node: bool
    created_at: datetime
    launched_at: datetime | None = None  # when the provider last made it, where that was tried again; None: created_at
    preserved: bool = False  # Gardener keeps it, running or failed: it holds a slot, and does not go
    ready: bool = True  # nothing says that its node is unwell
    marked: bool = False  # carries the flavour's delete mark
    marked_by_us: bool = False  # and the mark says that it is ours, where such marks can
    deleting: bool = False
    deleting_since: datetime | None = None
    failure: MachineFailure | None = None
    zone: str | None = None  # as itself or the cloud's id of it says

    @property
    def ref(self) -> MachineRef:
        return MachineRef(self.name, self.uid)

    def is_overdue(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Whether a machine without a node should have become one by now.

        A machine that says it was made long from now is as old as nobody knows.
        """
        return abs(now - self.created_at) >= provision_timeout


@dataclass(frozen=True)
class Rolling:
    """``maxSurge`` and ``maxUnavailable`` of a rolling update: a count, or a percentage as text."""

    max_surge: int | str
    max_unavailable: int | str


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """One scalable that takes part, as one look at the API found it.

    Numbers that could not be read are None, and ``faults`` says why; a pool with such a member is invalid.
    """

    key: GroupKey
    kind: str
    sets: tuple[str, ...] = ()  # names of the MachineSets that a MachineDeployment owns
    cluster: str = ""
    pool_label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    zone_of_machines: bool = False  # nobody else says it: without machines it would not be known
    zone_index: int | None = None  # N-1 of a name that ends in -z<N>
    requested: int = 0
    running: int = 0
    machines: tuple[Machine, ...] | None = None  # None: not listed
    launched: int | None = None  # of a pool of instances: those that there are, nodes or not, and nobody says which go
    never_ready: Mapping[str, datetime] = field(default_factory=dict)  # machine -> until when its node may become Ready
    preserved_failed: int = 0  # failed machines that Gardener preserves, as the scalable's status counts them
    bounds: Bounds | None = None
    adopted: Bounds | None = None  # from annotation evenkeel.dev/adopted-bounds; None also where that says "none"
    has_adopted: bool = False  # whether the annotation is there
    published: PublishedBounds | None = None  # None: never, or nobody can read it
    bounds_place: str = ""  # where its max stands, as people call it
    # Who applies max and spec.replicas, and will put them back; empty: nobody, None: not read, as in a look
    bounds_applied_by: str | None = None
    replicas_applied_by: str | None = None
    bounds_by: str = SOMEBODY  # who wrote the bounds last, besides us (managedFields)
    replicas_by: str = SOMEBODY  # who wrote spec.replicas last, besides us
    autoscaler_failure: MachineFailure | None = None  # what cluster-autoscaler-status says of the group
    move: str | None = None  # from annotation evenkeel.dev/move: the last move that has been carried out here
    owner_min_max: int = 0  # least max that the owner of the bounds accepts
    owner_min_min: int = 0  # least min that it accepts, and so the fewest replicas that it lets stand
    owner_lowers: bool = False  # who copies the owner's bounds lowers replicas to max as well
    pinning: Pinning | None = None  # None: the owner of its bounds cannot hold its replicas
    pinned: bool = False  # it holds them at max, as it says because of us
    may_be_pinned: bool = False  # it is to, where the group is fenced: what is planned, not what is found
    worker_range: Bounds | None = None  # replicas that the owner of the replicas lets stand, or bounds that are held
    bounds_held: bool = False  # they stand at an owner that the record does not let us write: they stay as they are
    owner: OwnerNumbers | None = None  # who gives its pool numbers besides annotations and the record
    node_cap: NodeCap | None = None  # of the whole cluster
    max_only: bool = False  # its min means nothing, and its replicas are written by somebody else (Karpenter)
    bounds_are_read: bool = True  # False: its autoscaler has its bounds from elsewhere
    two_objects: bool = False  # bounds and replicas live on two objects
    copied: Bounds | None = None  # then: the bounds on the scalable itself, which Cluster Autoscaler reads
    provision_timeout: timedelta | None = None  # Cluster Autoscaler's own option of the group, maxnodeprovisiontime
    short_provision: timedelta | None = None  # what we have set there while the group was suspect
    keeps_provision: bool = False  # somebody else has set it, or would take ours off
    unneeded_time: timedelta | None = None  # the same: how long a node is unneeded before it goes
    unready_time: timedelta | None = None  # the same, of a node that is not ready
    utilization_threshold: float | None = None  # the same: below this share of requests it is unneeded
    gpu_utilization_threshold: float | None = None  # the same, of a node with a GPU
    frozen_because: Reason | None = None
    offering: Offering | None = None  # what it buys; None: not looked up, or not fully known
    template: NodeTemplate | None = None  # what a node of it looks like; None: not looked up, or nobody says
    template_faults: tuple[Fault, ...] = ()  # what is said of its nodes and cannot be read
    closed_because: Reason | None = None  # at zero, and no cpu and memory known: which annotation would open it
    invisible_at_zero: bool = False  # at zero, and known to be unseen by Cluster Autoscaler
    fencing_enabled: bool = True  # evenkeel.dev/fence
    weight: int = 1  # evenkeel.dev/weight
    weight_percent: int | None = None  # the same as a percentage of the pool, 1 to 100
    zone_min: int | None = None  # evenkeel.dev/zone-min
    zone_max: int | None = None  # evenkeel.dev/zone-max
    pool_min: int | None = None  # evenkeel.dev/pool-min
    pool_max: int | None = None
    max_step: int | None = None  # evenkeel.dev/max-step
    strategy: Strategy | None = None
    on_failure: OnFailure | None = None
    level: Level | None = None
    dry_run: bool | None = None  # evenkeel.dev/dry-run
    rolling: Rolling | None = None
    faults: tuple[Fault, ...] = ()
    notes: tuple[Fault, ...] = ()  # what is said of it and cannot be read, and changes nothing: told, and lived with

    @property
    def has_ours_with_bounds(self) -> bool:
        """Whether anything that we wrote stands where the bounds stand."""
        return self.has_adopted or self.published is not None

    def frozen(self, why: Reason) -> Self:
        """The group, frozen for this reason; what freezes it already stays its reason."""
        return self if self.frozen_because is not None else replace(self, frozen_because=why)

    @property
    def delivered(self) -> int:
        """The machines that have become nodes of use: those whose node was never Ready are not among them."""
        return max(0, self.running - len(self.never_ready))

    @property
    def preserved(self) -> int:
        """Replicas that are held by machines without a node which Gardener preserves.

        Nothing comes of them, and none can be given up: preserved machines are deleted last, so a healthy node would go
        in their place (machine-controller-manager pkg/controller/controller_utils.go, ActiveMachines). Their scalable's
        status is a second witness: the wish may stand on a node, which is not read.
        """
        listed = sum(
            machine.preserved and not machine.has_node and not machine.deleting for machine in self.machines or ()
        )
        return min(max(listed, self.preserved_failed), max(0, self.requested - self.running))

    @property
    def waiting(self) -> int:
        """Requested replicas that have no node yet, and should get one."""
        return max(0, self.requested - self.running - self.preserved)

    @property
    def refused_machines(self) -> tuple[Machine, ...]:
        """Machines without a node that say why."""
        return tuple(
            machine
            for machine in self.machines or ()
            if machine.failure is not None and not machine.has_node and not machine.deleting
        )

    def is_ordered_by_us(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Whether a move or a request has changed its replicas lately."""
        return self.move is not None and now - time_of(self.move) < provision_timeout

    def missing_in_rollout(self, now: datetime, provision_timeout: timedelta) -> int:
        """Return the replicas without a node that no machine on its way, or being replaced, stands for."""
        replaced = sum(machine.deleting for machine in self.machines or ())
        return max(0, self.waiting - self.on_its_way(now, provision_timeout) - replaced)

    def on_its_way(self, now: datetime, provision_timeout: timedelta) -> int:
        """Machines without a node that have not failed, are not preserved and younger than the provision timeout.

        Of a pool of instances all that there are, however old: given up, a node could go in their place.
        """
        if self.launched is not None:
            return min(max(0, self.launched - self.running), self.waiting)
        if not self.waiting or self.machines is None:
            return 0
        timeout = self.provision_timeout or provision_timeout
        coming = sum(
            machine.failure is None and not machine.is_overdue(now, timeout)
            for machine in self.machines
            if not machine.has_node and not machine.deleting and not machine.preserved
        )
        return min(coming, self.waiting)
