"""Node groups, their machines and their bounds, as one check reads them.

A *node group* is one scalable (MachineDeployment, MachineSet or MachinePool). Normally it is one zone of one *pool*.
*Bounds* are the (min, max) that Cluster Autoscaler reads. *Requested* is ``spec.replicas``. *Running* is the number of
machines with a node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

from evenkeel.domain.model.choices import Level, OnFailure, Strategy
from evenkeel.domain.model.reasons import STOPS, Reason
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.value_objects import value_object
from evenkeel.domain.model.values import BadValueError, Fault

# The texts for a writer whose name is unknown.
UNNAMED = "another writer"
UNNAMED_BY_AWS = "another writer (AWS names it only in CloudTrail)"
# Smaller differences between two clocks are ignored, because API servers report whole seconds and answers take time.
CLOCKS_AGREE = timedelta(seconds=30)
KUBERNETES_SINCE = 2014  # a machine of an earlier year has no real creation time
# How long a machine may take to become a node: the default of Cluster Autoscaler (config/flags/flags.go:129).
PROVISION_TIMEOUT = timedelta(minutes=15)


class State(StrEnum):
    """The state of a node group."""

    HEALTHY = "healthy"
    FENCED = "fenced"  # the group must not grow, because it is in backoff or its zone is impaired
    PROBING = "probing"  # the group may grow by one machine, to find out whether its zone delivers again
    UNHEALTHY = "unhealthy"  # the group must not grow, because too many nodes of it or of its zone are not Ready
    FROZEN = "frozen"  # Evenkeel reads and counts the group, but writes nothing to it


def is_outage(states: Iterable[State]) -> bool:
    """Return True if all groups of a pool, except frozen ones, are fenced, probing or unhealthy.

    In such a pool, no zone is known to deliver machines.
    """
    acting = {*states} - {State.FROZEN}
    return bool(acting) and State.HEALTHY not in acting


# Keys and ids are tuples, because a plan hashes each several times, and a tuple needs no Python code for that.
class GroupKey(NamedTuple):
    """The name of a node group in stored state, messages and answers: ``<flavour>/<namespace>/<name>``."""

    flavour: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a user may use for the group: its name and its whole key."""
        return frozenset({self.name, str(self)})

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the key that a text names. Raises BadValueError if the text does not have three parts."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise BadValueError("a node group is written <flavour>/<namespace>/<name>")
        return cls(*parts)


class PoolId(NamedTuple):
    """The id of a pool. Pools of the same name in two namespaces, or in two workload clusters, are different pools."""

    flavour: str
    namespace: str
    cluster: str  # the name of the workload cluster; empty: this flavour has only one cluster per namespace
    name: str

    def __str__(self) -> str:
        return "/".join([part for part in (self.flavour, self.namespace, self.cluster, self.name) if part])

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the id that a text ``<flavour>/<namespace>/<cluster>/<name>`` names; the cluster is optional.

        Raises BadValueError if the text does not have three or four parts.
        """
        parts = text.split("/")
        if len(parts) not in (3, 4) or not all(parts):
            raise BadValueError("a pool is written <flavour>/<namespace>/<name>, or with its cluster before the name")
        return cls(parts[0], parts[1], parts[2] if len(parts) == 4 else "", parts[-1])

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a user may use for the pool: its name, or its id if pools share the name."""
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
    """A reference to the owner of a pool's minimum and maximum: an object, or one entry of an object."""

    kind: str
    namespace: str  # empty: the object is cluster-scoped
    name: str
    part: str = ""  # the name of the entry; empty: the object has only one minimum and one maximum
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(part for part in (self.namespace, self.name) if part)}"

    @property
    def id(self) -> str:
        """Return the id that stored state uses. A new object with the same name has another id."""
        return "/".join(part for part in (self.uid or f"{self.kind}/{self.namespace}/{self.name}", self.part) if part)


@dataclass(frozen=True, kw_only=True)
class OwnerNumbers:
    """The present minimum and maximum of an owner. All groups of the owner share them.

    If a pool has several owners, their minima and maxima are added up.
    """

    ref: OwnerRef
    bounds: Bounds
    min_field: str  # the field of the minimum, for messages: spec.minReplicas
    max_field: str
    set_by: str = ""  # the last writer of max except Evenkeel (managedFields); empty: not read, or unknown
    takes_ours: bool = False  # True: Evenkeel writes its own bounds to the owner's fields
    # True: Evenkeel writes these fields only if the record allows it, because a write makes Evenkeel their manager.
    needs_consent: bool = False
    besides: tuple[tuple[str, str], ...] = ()  # the (field, value) pairs of further fields, for messages


@dataclass(frozen=True, kw_only=True)
class Pinning:
    """Facts about an owner that can set fixed replicas for a group, so that no autoscaler scales the group."""

    cluster: str  # the hosted cluster, whose autoscaler runs only while it scales the groups of at least one owner
    scaled: frozenset[str]  # ids (OwnerRef.id) of the owners whose groups this autoscaler scales now


@dataclass(frozen=True, kw_only=True)
class NodeCap:
    """A limit on the number of nodes of a whole cluster. It applies whatever the pools request."""

    ref: OwnerRef
    field: str
    nodes: int


@dataclass(frozen=True, kw_only=True)
class ShootWorker:
    """One worker of a Shoot. A worker is one pool. Gardener distributes the replicas in the order of ``zones``."""

    name: str
    minimum: int
    maximum: int
    zones: tuple[str, ...]


def shoot_of_namespace(namespace: str) -> tuple[str, str] | None:
    """Return the namespace and name of the Shoot to which a seed's namespace shoot--<project>--<name> belongs.

    By default, a project's namespace in the garden is garden-<project>. Return None if the seed's namespace has another
    form.
    """
    parts = namespace.split("--")
    if len(parts) != 3 or parts[0] != "shoot" or not all(parts):
        return None
    return "garden" if parts[1] == "garden" else f"garden-{parts[1]}", parts[2]


@value_object
class PublishedBounds:
    """Evenkeel's last write to an object, according to the annotation that the write set."""

    at: datetime
    bounds: Bounds | None  # the bounds after that write; None: unknown
    state: State = State.HEALTHY  # the state of the group at that time
    requested: int | None = None  # the replicas after that write; None: unknown
    before: int | None = None  # the replicas before that write; None: unchanged
    pinned: bool = False  # True: that write made the owner keep the replicas fixed at max


@dataclass(frozen=True, kw_only=True)
class MachineFailure:
    """The failure that a machine's status reports: the reason why the machine has no node."""

    code: str
    message: str
    at: datetime | None = None

    @property
    def text(self) -> str:
        """Return the code and the message, as state stores them."""
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, order=True)
class MachineRef:
    """A reference to one machine. A new machine with the same name has another uid."""

    name: str
    uid: str

    def __str__(self) -> str:
        return self.name


@value_object
class Machine:
    """A machine of a node group."""

    name: str
    uid: str = ""
    has_node: bool
    created_at: datetime
    launched_at: datetime | None = None  # when the provider last tried to launch the machine; None: ``created_at``
    awaited_since: datetime | None = None  # when the provision timeout begins; None: ``created_at``
    joined_at: datetime | None = None  # when its node joined; None: it has not, or this is unknown
    had_node: bool = False  # True: it had a node before, so its age does not show how long a node is awaited
    # True: the machine keeps its replica, running or failed. Gardener preserves it, or it may be of another cluster.
    preserved: bool = False
    ready: bool = True  # False: its node is known to be not Ready
    marked: bool = False  # True: it has the flavour's delete mark
    marked_by_us: bool = False  # True: the mark names Evenkeel as its writer; the marks of some flavours name no writer
    deleting: bool = False
    deleting_since: datetime | None = None
    failure: MachineFailure | None = None
    failed_for_good: bool = False  # True: no controller tries again to launch the failed machine
    zone: str | None = None  # from the Machine object or, if absent there, from its provider id; None: unknown

    @property
    def ref(self) -> MachineRef:
        """Return the reference to the machine: its name and uid."""
        return MachineRef(self.name, self.uid)

    def is_overdue(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Return True if a machine without a node should have a node by now.

        A machine whose creation time is far in the future counts as overdue, because its true age is unknown.
        """
        return abs(now - (self.awaited_since or self.created_at)) >= provision_timeout

    def awaited_from(self, now: datetime) -> datetime:
        """Return when the provision timeout begins. A time in the future, or older than Kubernetes, counts as now."""
        since = self.awaited_since or self.created_at
        return now if since > now or since.year < KUBERNETES_SINCE else since


@dataclass(frozen=True)
class Rolling:
    """The ``maxSurge`` and ``maxUnavailable`` of a rolling update. Each is a count, or a percentage as text."""

    max_surge: int | str
    max_unavailable: int | str


@value_object
class Identity:
    """The kind of a group's scalable, and the cluster, pool and zone of the group."""

    kind: str
    sets: tuple[str, ...] = ()  # names of the MachineSets that a MachineDeployment owns
    cluster: str = ""
    pool_label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    zone_of_machines: bool = False  # True: only the machines or nodes of the group show its zone
    zone_label: str | None = None  # the zone label of its nodes; None: equal to ``zone``, or not learned yet
    zone_index: int | None = None  # N-1 if the name ends in -z<N>, else None
    created_at: datetime | None = None  # None: not read
    # The tags without which Evenkeel finds an Auto Scaling group only by its stored name, as KEY or KEY=VALUE.
    missing_tags: tuple[str, ...] = ()

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Return the names of the zone: in the machine API and, if it differs, on nodes."""
        return tuple(name for name in (self.zone, self.zone_label) if name is not None)


@value_object
class GroupStatus:
    """The state of a group's machines and rollout, except for the counts ``requested`` and ``running``."""

    # MachinePools only: the number of instances, with or without a node. Evenkeel cannot choose the instance to delete.
    launched: int | None = None
    # Machines whose node was never Ready -> the time until which that node may still become Ready.
    never_ready: Mapping[str, datetime] = field(default_factory=dict)
    # Why the group is unhealthy: too many nodes of the group, its zone or its cluster are not Ready. None: it is not.
    unhealthy: Reason | None = None
    # Instances in service that have no Node -> since when Evenkeel knows so. If the check has read the nodes,
    # ``machines`` has these instances without a node.
    nodeless: Mapping[str, datetime] = field(default_factory=dict)
    preserved_failed: int = 0  # the number of failed machines that Gardener preserves, from the scalable's status
    autoscaler_failure: MachineFailure | None = None  # the group's failure in ConfigMap cluster-autoscaler-status
    # The bounds that the autoscaler of Auto Scaling groups uses, and when it has written so. None: unknown.
    autoscaler_bounds: Bounds | None = None
    autoscaler_at: datetime | None = None
    rolling: Rolling | None = None
    # Why the cloud launches no machine in the group, whatever its zone does. None: it launches machines.
    launches_stopped: Reason | None = None


@value_object
class WrittenByUs:
    """The values that Evenkeel has written to a group's objects."""

    # The bounds before Evenkeel's first write, from annotation evenkeel.dev/adopted-bounds. None: the annotation is not
    # set, or its value is "none".
    adopted: Bounds | None = None
    has_adopted: bool = False  # True: that annotation is set
    published: PublishedBounds | None = None  # None: Evenkeel has written no bounds, or the annotation is unreadable
    move: str | None = None  # annotation evenkeel.dev/move: the id of the last move that changed this group
    # Where one move is several requests: the id of a move whose requests have not all been sent, and the replicas that
    # the group has lost until then. None: there is no such move.
    move_begun: tuple[str, int] | None = None
    pinned: bool = False  # True: Evenkeel has made the owner of the bounds keep the replicas fixed at max


@value_object
class FieldManagers:
    """The other writers of a group's bounds and replicas, according to managedFields."""

    # The managers that apply max, or spec.replicas, and would revert Evenkeel's write. Empty: there is none. None: not
    # read, because a check does not read the managers; only a run does.
    bounds_applied_by: str | None = None
    replicas_applied_by: str | None = None
    bounds_by: str = UNNAMED  # last writer of the bounds except Evenkeel
    replicas_by: str = UNNAMED  # last writer of spec.replicas except Evenkeel


@value_object
class Ownership:
    """The owner of a group's bounds, and the bounds and replicas that the owner accepts."""

    numbers: OwnerNumbers | None = None  # the minimum and maximum that the owner sets; None: it sets none
    bounds_field: str = ""  # the field of max, for messages
    least_max: int = 0  # the smallest max that the owner accepts
    least_min: int = 0  # the smallest min that the owner accepts; replicas cannot be lower either
    # True: a min above the running nodes keeps Cluster Autoscaler from removing launches that failed
    # (kubernetes/autoscaler#9043).
    min_within_running: bool = False
    lowers_replicas: bool = False  # True: the owner's controller lowers replicas to max
    pinning: Pinning | None = None  # None: the owner cannot set fixed replicas
    may_be_pinned: bool = False  # True: this plan may make the owner set fixed replicas while the group is fenced
    # The range of replicas that the owner accepts. If the bounds are held, this range is the bounds. None: no limit.
    allowed_replicas: Bounds | None = None
    bounds_held: bool = False  # True: the bounds are held, because the record does not let Evenkeel write them
    node_cap: NodeCap | None = None  # the limit of the whole cluster; None: no limit
    max_only: bool = False  # True: min has no effect, and Karpenter writes replicas
    managed_by: Reason | None = None  # a note about another tool that writes the group and its bounds; None: none does
    bounds_are_read: bool = True  # False: the autoscaler of the group does not read these bounds
    two_objects: bool = False  # True: bounds and replicas are on two objects
    # If there are two objects: the bounds on the scalable, which Cluster Autoscaler reads. None: missing or unreadable.
    copied: Bounds | None = None


@value_object
class AutoscalerOptions:
    """The options of Cluster Autoscaler for one group. For an option that is None, the autoscaler's flag applies."""

    # maxnodeprovisiontime or, if that is longer, how long Gardener's machine controller waits for a node
    provision_timeout: timedelta | None = None
    unneeded_time: timedelta | None = None  # how long a node is unneeded before it is removed
    unready_time: timedelta | None = None  # the same time for a node that is not Ready
    utilization_threshold: float | None = None  # a node is unneeded if its pods request less than this share of it
    gpu_utilization_threshold: float | None = None  # the same share for a node with a GPU


@value_object
class GroupTemplate:
    """A description of the nodes that a group creates."""

    node: NodeTemplate | None = None  # None: the template was not read, or is unknown
    key: str = ""  # names the machine template, or the machine type in it; empty: unknown
    machine_type: str = ""  # the machine type, with the capacity type if that is known; empty: unknown
    faults: tuple[Fault, ...] = ()  # the unreadable values among the values that describe the nodes
    # Why an empty group with unknown cpu and memory gets no node. The reason names the annotation to set.
    closed_because: Reason | None = None
    invisible_at_zero: bool = False  # True: Cluster Autoscaler ignores the group while it is empty


@value_object
class Annotations:
    """The values of a group's annotations ``evenkeel.dev/*``. None: not set."""

    fencing_enabled: bool = True  # evenkeel.dev/fence
    weight: int = 1
    weight_percent: int | None = None  # the weight, as a percentage of the pool (1 to 100)
    zone_min: int | None = None
    zone_max: int | None = None
    pool_min: int | None = None
    pool_max: int | None = None
    max_step: int | None = None
    strategy: Strategy | None = None
    on_failure: OnFailure | None = None
    level: Level | None = None
    dry_run: bool | None = None
    own: Mapping[str, str] = field(default_factory=dict)  # the settings of capabilities (``model.parts.Setting``)


@value_object
class Unreadable:
    """The unreadable values of a group."""

    faults: tuple[Fault, ...] = ()  # values that make the pool invalid
    notes: tuple[Fault, ...] = ()  # values that are reported, but have no effect


@value_object
class NodeGroup:
    """One scalable that Evenkeel treats as a node group, as one check has read it.

    An unreadable number is None, and ``unreadable`` has the reason. A pool with such a group is invalid.
    """

    key: GroupKey
    identity: Identity
    requested: int = 0
    running: int = 0
    machines: tuple[Machine, ...] | None = None  # None: not listed
    bounds: Bounds | None = None
    frozen_because: Reason | None = None  # why Evenkeel may not write the group; None: it may
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
        """Return True if the object with the bounds has an annotation that Evenkeel wrote."""
        return self.ours.has_adopted or self.ours.published is not None

    def frozen(self, reason: Reason) -> Self:
        """Return the group frozen for this reason. A group that is already frozen keeps its reason."""
        return self if self.frozen_because is not None else replace(self, frozen_because=reason)

    @property
    def makes_machines(self) -> bool:
        """Return False while the group is paused, hibernated or being deleted, or while the cloud launches nothing."""
        is_stopped = self.frozen_because is not None and self.frozen_because.rule in STOPS
        return self.status.launches_stopped is None and not is_stopped

    @property
    def unmade(self) -> int:
        """Return how many requested replicas have no machine; 0 if the machines are not listed."""
        if self.machines is None:
            return 0
        return max(0, self.requested - sum([not machine.deleting for machine in self.machines]))

    @property
    def delivered(self) -> int:
        """Return the number of machines whose node has been Ready at least once."""
        nodeless, machines = self.status.nodeless, self.machines or ()
        unread = [machine for machine in machines if machine.has_node and machine.name in nodeless] if nodeless else ()
        return max(0, self.running - len(self.status.never_ready) - len(unread))

    @property
    def preserved(self) -> int:
        """Return the replicas of preserved machines without a node.

        Such a machine does not become a node. Evenkeel cannot release its replica: Gardener deletes preserved machines
        last, so it would delete a healthy node instead (machine-controller-manager pkg/controller/controller_utils.go,
        ActiveMachines). The annotation that preserves a machine may be on its node, and nodes are not always read. So
        the count in the scalable's status is used, too.
        """
        without_node = self.requested - self.running
        if without_node <= 0:
            return 0
        listed = [
            machine
            for machine in self.machines or ()
            if machine.preserved and not machine.has_node and not machine.deleting
        ]
        return min(max(len(listed), self.status.preserved_failed), without_node)

    @property
    def waiting(self) -> int:
        """Return the requested replicas without a node, except those of preserved machines."""
        without_node = self.requested - self.running
        return without_node - self.preserved if without_node > 0 else 0

    @property
    def refused_machines(self) -> tuple[Machine, ...]:
        """Return the machines without a node that report a failure."""
        if not self.machines:
            return ()
        return tuple(
            [
                machine
                for machine in self.machines
                if machine.failure is not None and not machine.has_node and not machine.deleting
            ]
        )

    def dead_instances(self, now: datetime, provision_timeout: timedelta) -> tuple[Machine, ...]:
        """Return the instances that have been in service without a Node for a provision timeout."""
        nodeless = self.status.nodeless
        if not nodeless:
            return ()
        dead = [machine for machine in self.machines or () if machine.name in nodeless and not machine.has_node]
        return tuple([machine for machine in dead if machine.is_overdue(now, provision_timeout)])

    def is_ordered_by_us(self, now: datetime, provision_timeout: timedelta) -> bool:
        """Return True if a move or a request has changed the replicas within the last provision timeout."""
        return self.ours.move is not None and now - time_of(self.ours.move) < provision_timeout

    def missing_in_rollout(self, now: datetime, provision_timeout: timedelta) -> int:
        """Return how many replicas have no node, and no machine that is provisioning or being replaced."""
        replaced = sum(machine.deleting for machine in self.machines or ())
        return max(0, self.waiting - self.on_its_way(now, provision_timeout) - replaced)

    def on_its_way(self, now: datetime, provision_timeout: timedelta) -> int:
        """Return the number of machines that are provisioning: without a node, and not failed, preserved or overdue.

        Instances of a MachinePool count at any age. If Evenkeel released the replica of such an instance, the provider
        could delete a running node instead.
        """
        if self.status.launched is not None:
            return min(max(0, self.status.launched - self.running), self.waiting)
        waiting = self.waiting
        if not waiting or self.machines is None:
            return 0
        coming = [
            machine
            for machine in self.machines
            if not (machine.has_node or machine.deleting or machine.preserved or machine.failure is not None)
            and not machine.is_overdue(now, provision_timeout)
        ]
        return min(len(coming), waiting)
