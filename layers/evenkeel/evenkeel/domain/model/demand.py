"""The input, the result and the limits of scale-up and scale-down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.model.groups import PROVISION_TIMEOUT, GroupKey, MachineRef, PoolId
from evenkeel.domain.model.past_orders import BlockedPods, IneffectiveOrder, PastOrder
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.templates import NodeTemplate

UNNEEDED_TIME = timedelta(minutes=10)
UNREADY_TIME = timedelta(minutes=20)
UTILIZATION_THRESHOLD = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class DemandPolicy:
    """Limits and times, with cluster-autoscaler's defaults where it has them."""

    # scale-up
    expendable_below: int = -10  # pods of a lower priority get no node and take no resources
    patience: timedelta = timedelta(seconds=2)  # while the oldest pending pod is younger, nothing is decided
    patience_gpu: timedelta = timedelta(seconds=30)
    most_nodes: int = 1000  # ordered in one check
    reserve: Fraction = Fraction(1, 10)  # of cpu, memory and disk, if a template has no allocatable
    startup: timedelta = timedelta(minutes=15)  # a young node may still get devices and lose startup taints
    order: tuple[str, ...] = ()  # pools by name or id: the first that fits, then the one with the least waste
    # scale-down
    after_growth: timedelta = timedelta(minutes=10)
    after_failure: timedelta = timedelta(minutes=3)
    most_empty: int = 10  # empty nodes removed at once
    drain_takes: timedelta = timedelta(minutes=15)  # a longer drain hangs


# ---------------------------------------------------------------- input


@dataclass(frozen=True, kw_only=True)
class ScaleDownOptions:
    """A group's options of scale-down, with cluster-autoscaler's defaults."""

    unneeded_for: timedelta = UNNEEDED_TIME
    unready_for: timedelta = UNREADY_TIME
    threshold: Fraction = UTILIZATION_THRESHOLD  # a node with a larger utilization is needed
    gpu_threshold: Fraction = UTILIZATION_THRESHOLD  # for a node with a GPU
    provision_timeout: timedelta = PROVISION_TIMEOUT  # a node that is not Ready is starting until then


@dataclass(frozen=True, kw_only=True)
class GroupOffer:
    """A node group as demand sees it, in numbers of nodes."""

    group: GroupKey
    zone: str
    requested: int = 0
    before: int = 0  # requested before this plan
    coming: int = 0  # requested, without a node object, and may still get one
    ordered: int = 0  # the part of ``coming`` that this plan adds
    room: int = 0  # how many more it may have
    min: int = 0
    template: NodeTemplate | None = None
    closed: Reason | None = None  # why it gets no node, whatever its room
    held: Reason | None = None  # why its nodes are needed, whatever their pods
    waits: Reason | None = None  # why its unneeded nodes are not removed now
    marked: tuple[str, ...] = ()  # machines with Evenkeel's delete mark
    options: ScaleDownOptions = ScaleDownOptions()


@dataclass(frozen=True, kw_only=True)
class PoolOffer:
    """A pool with its groups."""

    pool: PoolId
    groups: tuple[GroupOffer, ...]
    room: int = 0  # PoolMaximum less the requested nodes
    min: int = 0  # PoolMinimum
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # stored orders for pods

    @property
    def requested(self) -> int:
        """Return the requested nodes of all groups."""
        return sum(group.requested for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class ScaleDownState:
    """The clocks of earlier checks, and times that make unneeded nodes wait."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # node -> unneeded since
    grew_at: datetime | None = None  # when a node was last requested
    failed_at: datetime | None = None  # when a removal last failed
    leaving: frozenset[str] = frozenset()  # nodes with Evenkeel's mark whose replicas are still requested


@dataclass(frozen=True, kw_only=True)
class KeptNodes:
    """Nodes with a pod that Evenkeel cannot place again."""

    machines: frozenset[MachineRef]
    by_group: Mapping[GroupKey, int]


# ---------------------------------------------------------------- result of scale-up


@dataclass(frozen=True, kw_only=True)
class PendingPods:
    """Pods with equal needs that wait for a node."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # of the oldest
    zones: tuple[str, ...] = ()  # where their nodes may be


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Pods with equal needs, and why a new node would not hold them."""

    pods: tuple[str, ...]
    since: datetime
    reason: Reason
    by_group: Mapping[GroupKey, Reason] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NotCounted:
    """A pod without a node that raises no demand."""

    pod: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class PoolDemand:
    """The nodes that pending pods need from one pool."""

    pool: PoolId
    pending: tuple[PendingPods, ...] = ()  # the pods for which the nodes are
    nodes: Mapping[GroupKey, int] = field(default_factory=dict)  # only groups that get some
    unfit: tuple[Unfit, ...] = ()  # pending pods that get no node here
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # to store after this check
    orders_after: Mapping[str, PastOrder] = field(default_factory=dict)  # to store once ``nodes`` are ordered
    ineffective: tuple[IneffectiveOrder, ...] = ()
    blocked: tuple[BlockedPods, ...] = ()  # no pool serves them, because of DaemonSets alone


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The nodes that all pending pods of a cluster need."""

    pools: tuple[PoolDemand, ...] = ()
    unmet: tuple[Unfit, ...] = ()  # no pool serves them; one reason about all pools
    not_counted: tuple[NotCounted, ...] = ()
    fits_already: tuple[str, ...] = ()  # pods that existing or upcoming nodes hold
    check_again: datetime | None = None  # until then all pending pods are too young
    retry_at: datetime | None = None  # the next order for pods whose last one did not help

    @property
    def nodes(self) -> int:
        """Return the nodes of all pools."""
        return sum(sum(pool.nodes.values()) for pool in self.pools)


# ---------------------------------------------------------------- result of scale-down


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A node to remove now."""

    node: str
    pool: PoolId
    group: GroupKey
    machine: MachineRef | None = None
    places: Mapping[str, str] = field(default_factory=dict)  # pod -> node that holds it; empty: no pod moves


@dataclass(frozen=True, kw_only=True)
class HangingDrain:
    """A node being deleted whose pods do not leave."""

    node: str
    group: GroupKey
    since: datetime  # its machine was deleted
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unneeded:
    """The unneeded nodes, those to remove now, and why the others stay."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # node -> unneeded since, to be stored
    go: tuple[Removal, ...] = ()
    waits: Mapping[str, Reason] = field(default_factory=dict)  # why an unneeded node is not removed now
    needed: Mapping[str, Reason] = field(default_factory=dict)  # the first rule that keeps a node
    hanging: tuple[HangingDrain, ...] = ()  # by name

    @property
    def check_at(self) -> datetime | None:
        """Return when the passing of time may let a node be removed."""
        times = (reason.facts.get("until") for reason in self.waits.values())
        return min((time for time in times if isinstance(time, datetime)), default=None)


# ---------------------------------------------------------------- advice


@dataclass(frozen=True, kw_only=True)
class NodeAdvice:
    """A node of a pool, and the first rule by which it is needed; None: it is unneeded."""

    node: str
    group: GroupKey
    needed: Reason | None = None
    since: datetime | None = None  # unneeded since, if that is stored
    waits: Reason | None = None  # why an unneeded node is not removed now
    goes: bool = False  # this plan removes it
    hangs: HangingDrain | None = None


@dataclass(frozen=True, kw_only=True)
class PoolAdvice:
    """Demand's advice for one pool."""

    asked: PoolDemand
    is_ordered: bool = False  # this plan requests the nodes
    nodes: tuple[NodeAdvice, ...] = ()  # by name; empty if unneeded nodes were not searched
    not_counted: tuple[NotCounted, ...] = ()  # of the whole cluster


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Demand's advice for a cluster, apart from its pools."""

    unread: Reason | None = None  # why nothing else is known
    beside_another: bool | None = None  # another autoscaler orders nodes; None: not checked
    unknown_order: tuple[str, ...] = ()  # names of expander_order that no pool has
    unmet: tuple[Unfit, ...] = ()
    not_counted: tuple[NotCounted, ...] = ()
    fit_already: int = 0  # pending pods that existing or upcoming nodes hold
    check_again: datetime | None = None  # until then all pending pods are too young
