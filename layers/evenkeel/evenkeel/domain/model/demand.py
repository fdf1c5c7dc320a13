"""The input, the result and the limits of scale-up and scale-down."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from evenkeel.domain.model.groups import PROVISION_TIMEOUT, GroupKey, MachineRef, PoolId
from evenkeel.domain.model.past_orders import BlockedPods, IneffectiveOrder, PastOrder
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

UNNEEDED_TIME = timedelta(minutes=10)
UNREADY_TIME = timedelta(minutes=20)
UTILIZATION_THRESHOLD = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class DemandPolicy:
    """The limits and times of scale-up and scale-down.

    If cluster-autoscaler has the same setting, the value is the default of cluster-autoscaler.
    """

    # scale-up
    expendable_below: int = -10  # pods with a lower priority than this get no node, and their requests do not count
    patience: timedelta = timedelta(seconds=2)  # no order while the oldest pending pod is younger than this
    patience_gpu: timedelta = timedelta(seconds=30)  # no order while the oldest pending pod with a GPU is younger
    most_nodes: int = 1000  # the maximum number of nodes that one check orders
    # The share of cpu, memory and disk that a node reserves for itself, if its template has no allocatable.
    reserve: Fraction = Fraction(1, 10)
    startup: timedelta = timedelta(minutes=15)  # a node younger than this may still lack devices or have startup taints
    # Names or ids of pools. Pods get a node in the first listed pool that fits them. If no listed pool fits, they get a
    # node in the pool with the least waste.
    order: tuple[str, ...] = ()
    # scale-down
    after_growth: timedelta = timedelta(minutes=10)  # no removal for this long after a node was requested
    after_failure: timedelta = timedelta(minutes=3)  # no removal for this long after a removal failed
    most_empty: int = 10  # the maximum number of empty nodes that are removed at a time
    drain_takes: timedelta = timedelta(minutes=15)  # a drain that takes longer than this counts as hanging


# ---------------------------------------------------------------- input


@dataclass(frozen=True, kw_only=True)
class ScaleDownOptions:
    """The scale-down options of a group, with cluster-autoscaler's defaults."""

    unneeded_for: timedelta = UNNEEDED_TIME
    unready_for: timedelta = UNREADY_TIME
    threshold: Fraction = UTILIZATION_THRESHOLD  # a node whose utilization is above this is needed
    gpu_threshold: Fraction = UTILIZATION_THRESHOLD  # the same threshold for a node with a GPU
    provision_timeout: timedelta = PROVISION_TIMEOUT  # until this age, a node that is not Ready counts as starting


class KeptEmpty(NamedTuple):
    """Nodes without pods that stay for now."""

    nodes: int
    why: Reason


@dataclass(frozen=True, kw_only=True)
class GroupOffer:
    """The facts about a node group that scale-up and scale-down use. Each integer is a number of nodes."""

    group: GroupKey
    zone: str
    zone_label: str | None = None  # the zone label of its nodes; None: equal to ``zone``
    requested: int = 0
    before: int = 0  # the nodes that were requested before this plan
    coming: int = 0  # the requested nodes that have no Node object yet and may still register
    ordered: int = 0  # the part of ``coming`` that this plan adds
    room: int = 0  # how many more nodes the group may get
    takes: int = 0  # how many of them may replace released nodes (``Draft.takes``)
    min: int = 0
    kept_empty: KeptEmpty | None = None  # empty nodes that are not removed for now
    template: NodeTemplate | None = None
    ignored_taints: frozenset[str] = frozenset()  # keys of taints that each new node loses by itself
    closed: Reason | None = None  # why the group gets no node even if ``room`` is not 0; None: it may get one
    unhealthy: Reason | None = None  # why the group gets one node at a time, and keeps its nodes; None: it is healthy
    held: Reason | None = None  # why all nodes of the group count as needed, even without pods
    waits: Reason | None = None  # why the group's unneeded nodes are not removed now
    marked: tuple[str, ...] = ()  # names of the machines that have Evenkeel's delete mark
    options: ScaleDownOptions = ScaleDownOptions()


@dataclass(frozen=True, kw_only=True)
class PoolOffer:
    """The facts about a pool and its groups that scale-up and scale-down use."""

    pool: PoolId
    groups: tuple[GroupOffer, ...]
    room: int = 0  # PoolMaximum minus the requested nodes
    min: int = 0  # PoolMinimum
    drains_held: Reason | None = None  # why all nodes with pods count as needed
    # Returns what says which nodes must stay for other reasons than their pods (``domain.demand.guards``). The type is
    # Any, because this module knows no snapshot.
    guard: Callable[[Any], Any] | None = None
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # the stored orders of nodes for pods
    first_pools: tuple[PoolId, ...] = ()  # the pools that get nodes for pods before this pool does

    @property
    def requested(self) -> int:
        """Return the requested nodes of all groups."""
        return sum(group.requested for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class ScaleDownState:
    """The stored times of scale-down: since when nodes are unneeded, and events that delay their removal."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # name of a node -> since when it is unneeded
    grew_at: datetime | None = None  # when a node was last requested
    failed_at: datetime | None = None  # when a removal last failed
    leaving: frozenset[str] = frozenset()  # nodes with Evenkeel's delete mark whose replicas are still requested


@dataclass(frozen=True, kw_only=True)
class KeptNodes:
    """Nodes that no request for a number of nodes removes."""

    machines: frozenset[MachineRef]
    by_group: Mapping[GroupKey, int]  # nodes with a pod for which Evenkeel finds no other node
    others: Mapping[Rule, Mapping[GroupKey, int]] = field(default_factory=dict)  # further nodes, by their rule

    def __or__(self, other: "KeptNodes") -> "KeptNodes":
        """Return the nodes of both. No node is in both."""
        return KeptNodes(
            machines=self.machines | other.machines,
            by_group=Counter(self.by_group) + Counter(other.by_group),
            others={**self.others, **other.others},
        )


# ---------------------------------------------------------------- result of scale-up


@dataclass(frozen=True, kw_only=True)
class PendingPods:
    """Pods with equal needs that wait for a node."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # when the first of these pods became unschedulable; if unknown, when it was created
    zones: tuple[str, ...] = ()  # the zones in which the pods may run


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Pods with equal needs that would not fit on a new node, with the reason."""

    pods: tuple[str, ...]
    since: datetime
    reason: Reason
    by_group: Mapping[GroupKey, Reason] = field(default_factory=dict)
    # Pods that get no node of any pool: pool -> its groups whose new node would fit them, although it gives none now.
    fitting: Mapping[PoolId, tuple[GroupKey, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NotCounted:
    """A pod without a node, and the reason why it does not count as demand."""

    pod: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class PoolDemand:
    """The nodes that pending pods need from one pool."""

    pool: PoolId
    pending: tuple[PendingPods, ...] = ()  # the pods that need ``nodes``
    # Group -> number of new nodes. Groups that get no new node are left out.
    nodes: Mapping[GroupKey, int] = field(default_factory=dict)
    unfit: tuple[Unfit, ...] = ()  # the pending pods that get no node from this pool
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # the orders to store after this check
    orders_after: Mapping[str, PastOrder] = field(default_factory=dict)  # the orders to store when ``nodes`` is ordered
    ineffective: tuple[IneffectiveOrder, ...] = ()
    blocked: tuple[BlockedPods, ...] = ()  # pods that fit no pool, but would fit a new node without its DaemonSet pods


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The nodes that all pending pods of a cluster need."""

    pools: tuple[PoolDemand, ...] = ()
    unmet: tuple[Unfit, ...] = ()  # pods that fit no pool; each reason applies to all pools
    not_counted: tuple[NotCounted, ...] = ()
    fits_already: tuple[str, ...] = ()  # pods for which existing or upcoming nodes have room
    check_again: datetime | None = None  # when the oldest pending pod is old enough for an order; None: no need to wait
    retry_at: datetime | None = None  # when pods whose last order did not help may get the next order, at the earliest

    @property
    def nodes(self) -> int:
        """Return the number of new nodes in all pools."""
        return sum(sum(pool.nodes.values()) for pool in self.pools)


# ---------------------------------------------------------------- result of scale-down


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A node to remove now."""

    node: str
    pool: PoolId
    group: GroupKey
    machine: MachineRef | None = None
    # Pod of the node -> another node that has room for the pod. Empty: no pod has to move.
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HangingDrain:
    """A node whose machine is being deleted, but whose pods do not end."""

    node: str
    group: GroupKey
    since: datetime  # when the deletion of its machine began
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unneeded:
    """The unneeded nodes, the nodes to remove now, and why the needed nodes remain."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # unneeded node -> since when; the check stores this
    go: tuple[Removal, ...] = ()  # the nodes to remove now
    waits: Mapping[str, Reason] = field(default_factory=dict)  # unneeded node -> why it is not removed now
    needed: Mapping[str, Reason] = field(default_factory=dict)  # needed node -> the first rule by which it is needed
    hanging: tuple[HangingDrain, ...] = ()  # sorted by node name

    @property
    def check_at(self) -> datetime | None:
        """Return the earliest time at which another unneeded node may be removed; None: no such time is known."""
        times = (reason.facts.get("until") for reason in self.waits.values())
        return min((time for time in times if isinstance(time, datetime)), default=None)


# ---------------------------------------------------------------- advice


@dataclass(frozen=True, kw_only=True)
class NodeAdvice:
    """A node of a pool, and the first rule by which it is needed. If ``needed`` is None, the node is unneeded."""

    node: str
    group: GroupKey
    needed: Reason | None = None
    since: datetime | None = None  # since when it is unneeded; None: not stored
    waits: Reason | None = None  # why an unneeded node is not removed now
    goes: bool = False  # True: this plan removes the node
    hangs: HangingDrain | None = None


class DemandFacts(NamedTuple):
    """The part of the advice for a pool that the pool's plan depends on."""

    awaited: Mapping[str, int] | None  # key of a group -> number of nodes that pods wait for; None: not fully known
    unneeded: tuple[NodeAdvice, ...] | None  # None: not needed, or the check did not look for unneeded nodes
    orders: Mapping[str, PastOrder]  # ``PoolDemand.orders``
    orders_after: Mapping[str, PastOrder]  # ``PoolDemand.orders_after``


@dataclass(frozen=True, kw_only=True)
class PoolAdvice:
    """Demand's advice for one pool."""

    asked: PoolDemand
    is_ordered: bool = False  # True: this plan orders the nodes
    nodes: tuple[NodeAdvice, ...] = ()  # sorted by name; empty: the check did not look for unneeded nodes
    not_counted: tuple[NotCounted, ...] = ()  # pods of the whole cluster that do not count


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The part of demand's advice for a cluster that belongs to no pool."""

    orders: bool = False  # True: Evenkeel orders nodes for pods; False: an autoscaler does
    unread: Reason | None = None  # why demand was not evaluated; None: it was evaluated
    beside_another: bool | None = None  # True: another autoscaler orders nodes; None: not checked
    unknown_order: tuple[str, ...] = ()  # names in the record's expander_order that no pool has
    unmet: tuple[Unfit, ...] = ()
    not_counted: tuple[NotCounted, ...] = ()
    fit_already: int = 0  # the number of pending pods for which existing or upcoming nodes have room
    check_again: datetime | None = None  # when the oldest pending pod is old enough for an order; None: no need to wait
