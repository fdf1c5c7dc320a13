"""What pods ask for beyond the nodes that are there, which nodes nobody needs, and by which rules both are judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.model.groups import GroupKey, MachineRef, PoolId
from evenkeel.domain.model.past_orders import BlockedPods, IneffectiveOrder, PastOrder
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.templates import NodeTemplate


@dataclass(frozen=True, kw_only=True)
class DemandPolicy:
    """Constants of both directions, with Cluster Autoscaler's defaults where it has one."""

    # growth
    expendable_below: int = -10  # pods of a lower priority get no node, and take no room
    patience: timedelta = timedelta(seconds=2)  # while even the oldest pod is younger, nobody is judged
    patience_gpu: timedelta = timedelta(seconds=30)
    most_nodes: int = 1000  # asked for in one look
    reserve: Fraction = Fraction(1, 10)  # of cpu, memory and disk, where a template says no allocatable
    startup: timedelta = timedelta(minutes=15)  # a young node may still get its devices and lose its startup taints
    order: tuple[str, ...] = ()  # pools by name or id: the first of them that fits; then the one with the least waste
    # shrinking
    threshold: Fraction = Fraction(1, 2)  # a node that uses more of itself is needed
    gpu_threshold: Fraction = Fraction(1, 2)  # the same, of a node with a GPU
    unneeded_for: timedelta = timedelta(minutes=10)
    unready_for: timedelta = timedelta(minutes=20)
    after_growth: timedelta = timedelta(minutes=10)
    after_failure: timedelta = timedelta(minutes=3)
    most_empty: int = 10  # empty nodes that may go at once
    drain_takes: timedelta = timedelta(minutes=15)  # a node that is drained for longer hangs


@dataclass(frozen=True, kw_only=True)
class GroupOffer:
    """A node group, as far as demand has to know it. Numbers of nodes."""

    group: GroupKey
    zone: str
    requested: int = 0
    before: int = 0  # what stood there before this plan
    coming: int = 0  # of those requested, how many have no node object yet and may still get one
    ordered: int = 0  # of those coming, how many this very plan adds
    room: int = 0  # how many more it may have
    min: int = 0
    template: NodeTemplate | None = None
    closed: Reason | None = None  # why it gets no node, however much room it has
    held: Reason | None = None  # why none of its nodes goes, whoever needs them
    waits: Reason | None = None  # why none of them goes just now; what nobody needs is found all the same
    marked: tuple[str, ...] = ()  # machines that carry a delete mark of ours
    unneeded_for: timedelta | None = None  # its own option; None: the policy's
    unready_for: timedelta | None = None  # the same
    threshold: Fraction | None = None  # the same
    gpu_threshold: Fraction | None = None  # the same
    provision_timeout: timedelta = timedelta(minutes=15)  # until then a node that is not Ready is still starting


@dataclass(frozen=True, kw_only=True)
class PoolOffer:
    """A pool and its groups."""

    pool: PoolId
    groups: tuple[GroupOffer, ...]
    room: int = 0  # how many nodes more it may have: PoolMaximum less what is requested
    min: int = 0  # PoolMinimum
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # what it remembers of its orders for pods

    @property
    def requested(self) -> int:
        return sum(group.requested for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class PendingPods:
    """Pods with equal needs that wait for a node."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # the oldest
    zones: tuple[str, ...] = ()  # where their nodes would be


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Pods with equal needs, and why a fresh node would not hold one of them."""

    pods: tuple[str, ...]
    since: datetime
    reason: Reason
    by_group: Mapping[GroupKey, Reason] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PoolDemand:
    """What one pool would be asked for."""

    pool: PoolId
    pending: tuple[PendingPods, ...] = ()  # what its new nodes are for
    nodes: Mapping[GroupKey, int] = field(default_factory=dict)  # only groups that get some
    unfit: tuple[Unfit, ...] = ()  # what waits and would not fit, or gets no node here
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # what the pool remembers after this check
    orders_after: Mapping[str, PastOrder] = field(default_factory=dict)  # the same, once ``nodes`` are ordered
    ineffective: tuple[IneffectiveOrder, ...] = ()
    blocked: tuple[BlockedPods, ...] = ()  # only by DaemonSets, and served by no pool


@dataclass(frozen=True, kw_only=True)
class NotCounted:
    """A pod that has no node and raises no demand."""

    pod: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What all waiting pods of a cluster come to."""

    pools: tuple[PoolDemand, ...] = ()
    unmet: tuple[Unfit, ...] = ()  # for whom no pool is asked for anything; the reason is one sentence about all pools
    not_counted: tuple[NotCounted, ...] = ()
    fits_already: tuple[str, ...] = ()  # pods with room on nodes that are there or on their way
    look_again: datetime | None = None  # all that waits is too young to be judged before
    retry_at: datetime | None = None  # when a node is ordered again for pods whose last order did not help

    @property
    def nodes(self) -> int:
        """Nodes asked for in all pools together."""
        return sum(sum(pool.nodes.values()) for pool in self.pools)


@dataclass(frozen=True, kw_only=True)
class HangingDrain:
    """A node that is going, and whose pods stay."""

    node: str
    group: GroupKey
    since: datetime  # its machine was asked to go
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeAdvice:
    """A node of a pool, and the first rule by which it is needed; None: nobody needs it."""

    node: str
    group: GroupKey
    needed: Reason | None = None
    since: datetime | None = None  # unneeded, where that is remembered
    waits: Reason | None = None  # unneeded, and why it does not go now
    goes: bool = False  # by this very plan
    hangs: HangingDrain | None = None


@dataclass(frozen=True, kw_only=True)
class PoolAdvice:
    """What demand says of one pool."""

    asked: PoolDemand
    is_ordered: bool = False  # what is asked for is asked for by this very plan
    nodes: tuple[NodeAdvice, ...] = ()  # by name; none where nobody has looked for nodes that nobody needs
    not_counted: tuple[NotCounted, ...] = ()  # the cluster's: no pool gets a node for them


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What demand says of a whole cluster, besides its pools."""

    unread: Reason | None = None  # why nothing else is known
    beside_another: bool | None = None  # another autoscaler orders nodes there; None: nobody has looked
    unknown_order: tuple[str, ...] = ()  # names of expander_order that no pool has
    unmet: tuple[Unfit, ...] = ()
    not_counted: tuple[NotCounted, ...] = ()
    fit_already: int = 0  # pods that wait and have room on nodes that are there or on their way
    look_again: datetime | None = None  # all that waits is too young to be judged before


@dataclass(frozen=True, kw_only=True)
class Removal:
    """A node that may go now."""

    node: str
    pool: PoolId
    group: GroupKey
    machine: MachineRef | None = None
    places: Mapping[str, str] = field(default_factory=dict)  # pod -> node that has room for it; empty: nothing moves

    @property
    def is_empty(self) -> bool:
        return not self.places


@dataclass(frozen=True, kw_only=True)
class KeptNodes:
    """Nodes with a pod that Evenkeel could not place again."""

    machines: frozenset[MachineRef]
    by_group: Mapping[GroupKey, int]


@dataclass(frozen=True, kw_only=True)
class ScaleDownState:
    """What is remembered between two looks, and what was learned since, for nodes that nobody needs."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # node -> unneeded since
    grew_at: datetime | None = None  # when a node was last asked for
    failed_at: datetime | None = None  # when taking a node away last failed
    leaving: frozenset[str] = frozenset()  # nodes with a mark of ours that was not followed by fewer replicas yet


@dataclass(frozen=True, kw_only=True)
class Unneeded:
    """Which nodes nobody needs, since when, which of them go, and why the others stay."""

    clocks: Mapping[str, datetime] = field(default_factory=dict)  # node -> unneeded since, to be remembered
    started: frozenset[str] = frozenset()  # clocks that were not there before
    ended: frozenset[str] = frozenset()  # clocks that are not there any more
    go: tuple[Removal, ...] = ()
    waits: Mapping[str, Reason] = field(default_factory=dict)  # unneeded, and why it does not go now
    needed: Mapping[str, Reason] = field(default_factory=dict)  # the first rule that keeps a node
    hanging: tuple[HangingDrain, ...] = ()  # drained for too long, by name

    @property
    def look_at(self) -> datetime | None:
        """When time alone may let a node go."""
        until = [reason.facts.get("until") for reason in self.waits.values()]
        return min((moment for moment in until if isinstance(moment, datetime)), default=None)
