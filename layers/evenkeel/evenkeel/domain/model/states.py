"""The state stored between two checks: of a group, of a pool, of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from evenkeel.domain.model.convergence import ConvergenceState
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, NodeGroup, PoolId
from evenkeel.domain.model.moves import Move, ScaleRequest
from evenkeel.domain.model.offerings import Offering, OfferingState
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.relief import Relief


@dataclass(frozen=True, kw_only=True)
class FailureHistory:
    """The failures of a group to deliver machines, and the backoff that follows from them."""

    failures: int = 0
    backoff_until: datetime | None = None
    last_failure: datetime | None = None
    failure_class: FailureClass = FailureClass.UNKNOWN
    message: str = ""
    refused: tuple[str, ...] = ()  # machines that failed since the last success: if one runs, it was relaunched
    ahead: tuple[datetime, ...] = ()  # failure times later than the API server's clock, counted as now
    announced: tuple[MachineFailure, ...] = ()  # later than the receiver's clock: the next check sets their time
    reports: tuple[datetime, ...] = ()  # times of known failures, oldest first, to fold late ones in


@dataclass(frozen=True, kw_only=True)
class ArrivalHistory:
    """The nodes that a group waits for, and those that have come since it failed."""

    last_success: datetime | None = None
    running_seen: int | None = None  # running at the last check, while it is failing or in slow start
    arrived_at: datetime | None = None  # when a node last came while the group was fenced, whenever it was launched
    ended: tuple[datetime, ...] = ()  # early ends of fences, by a success
    slow_start: int = 0  # machines that may be on their way since its zone delivers again; 0: any number
    waiting_since: datetime | None = None  # first check with replicas without a node, or the last node that came
    waiting_running: int | None = None  # running then
    stalled_since: datetime | None = None  # frozen by a rollout in which launches fail and nodes are missing


@dataclass(frozen=True, kw_only=True)
class ContestHistory:
    """The other writers that revert or refuse what Evenkeel writes to a group."""

    reverts: tuple[datetime, ...] = ()  # publications that another writer reverted within the last hour
    contested_since: datetime | None = None  # reverted too often: not written until an operator resumes
    contested_by: str = ""
    contested_replicas: bool = False  # the replicas are reverted, not the bounds
    bounds_applied_by: str = ""  # manager that would revert a write: runs read it, checks rely on it
    replicas_applied_by: str = ""
    write_refused_at: datetime | None = None  # when the API last refused a write
    write_refused: str = ""  # and why


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """Other clusters' capacity reports about a group's offering (``domain.offerings.reports``): no failures."""

    throttled_requested: int | None = None  # requested when the throttle began, or less since; None: there is none
    throttled_until: datetime | None = None  # the end of the fence that came with it
    cleared_at: datetime | None = None  # when a machine last came in spite of a throttle


@dataclass(frozen=True, kw_only=True)
class GroupState(FailureHistory, ArrivalHistory, ContestHistory, Throttle):
    """The stored state of one node group, flat as in a state file. All times are aware datetimes."""

    marked: tuple[str, ...] = ()  # machines with a delete mark of Evenkeel's
    unneeded: Mapping[str, datetime] = field(default_factory=dict)  # unneeded nodes, and since when

    @property
    def is_frozen(self) -> bool:
        """Return True if the group is not written, because another writer reverts its bounds."""
        return bool(self.bounds_applied_by) or (self.contested_since is not None and not self.contested_replicas)

    def uncontested(self) -> "GroupState":
        """Return the state without any revert, so that the group is written again."""
        return replace(
            self,
            contested_since=None,
            contested_by="",
            contested_replicas=False,
            reverts=(),
            bounds_applied_by="",
            replicas_applied_by="",
        )

    @property
    def is_failing(self) -> bool:
        """Return True if there is no success since the last failure."""
        return self.last_failure is not None and (self.last_success is None or self.last_success <= self.last_failure)

    @property
    def fence_ended(self) -> bool:
        """Return True if a machine that was launched after the last failure runs."""
        return bool(self.ended) and self.last_failure is not None and self.ended[-1] >= self.last_failure

    @property
    def has_arrivals(self) -> bool:
        """Return True if any node has come since the last failure."""
        return self.arrived_at is not None and self.last_failure is not None and self.arrived_at > self.last_failure


# Longer than the slowest usual loop of Cluster Autoscaler (--scan-interval 60 s): each publication is read.
STANDS = timedelta(seconds=65)

# The last nodes of a pool rotate to the next zone after 65 s, then after twice as long each time, up to this.
_LONGEST_TURN = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The last deal of a pool. Groups by key."""

    at: datetime
    basis: str  # its input besides the targets
    targets: Mapping[str, int] = field(default_factory=dict)
    maxima: Mapping[str, int] = field(default_factory=dict)
    grower: str = ""  # the group that has grown last
    turn: int = 0  # how often the last nodes have rotated since the last change
    lent: bool = False  # most of it went to groups at their bound

    def is_for(self, other: "Publication") -> bool:
        """Return True if the pool is unchanged between the two."""
        return (self.basis, self.targets) == (other.basis, other.targets)

    @property
    def ends_at(self) -> datetime:
        """Return when it is over, if the pool does not change before."""
        return self.at + min(_LONGEST_TURN, STANDS * (1 << min(self.turn, 12)))


# How long a check that misses known groups of a pool, or their owners, waits for a second check to agree.
PARTIAL_LIST_GRACE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class MemberSnapshot:
    """The replicas of a pool at its last check, and since when they are unchanged. Groups by key."""

    since: datetime
    requested: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)  # planned then, where that differs
    owners: tuple[str, ...] = ()  # of the groups' numbers, by OwnerRef.id
    few_since: datetime | None = None  # when a group or an owner was absent for the first time

    @property
    def second_check_at(self) -> datetime:
        """Return when a check must agree that known groups or owners are absent."""
        assert self.few_since is not None
        return self.few_since + PARTIAL_LIST_GRACE


@dataclass(frozen=True, kw_only=True)
class DesiredBounds:
    """The desired bounds of an object that Evenkeel writes (``domain.model.owner_intent``)."""

    bounds: Bounds
    ours: tuple[Bounds, ...] = ()  # written over it by Evenkeel, or about to be


# Runs that follow one another sooner share one max_step: a conflict, a repeated message or an event is no new step.
STEPS_APART = timedelta(seconds=15)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Replicas that a pool released next to an autoscaler, until healthy zones have as many more. Groups by key."""

    at: datetime
    replicas: int
    requested: Mapping[str, int] = field(default_factory=dict)  # by the groups right after it
    ordered: Mapping[str, int] = field(default_factory=dict)  # requested right after Evenkeel's order; empty: none yet
    has_rest: bool = False  # a part of that order is left to later runs
    idle_since: datetime | None = None  # since when no check has found a pod that waits for them

    def untaken(self, requested: Mapping[str, int]) -> int:
        """Return how many of the replicas no group has gained since."""
        gained = sum(max(0, now - self.requested.get(key, 0)) for key, now in requested.items())
        return max(0, self.replicas - gained)

    def awaited(self, group: NodeGroup) -> int:
        """Return how many nodes of the group are awaited since Evenkeel's order or before."""
        return max(0, min(group.requested, self.ordered.get(str(group.key), 0)) - group.running)


@dataclass(frozen=True, kw_only=True)
class GrowthHistory:
    """The last nodes that a pool was raised by."""

    grew_at: datetime | None = None  # when nodes were last requested, by pods or by people
    added_at: datetime | None = None  # when nodes were last added under max_step,
    added: int = 0  # and how many within STEPS_APART


@dataclass(frozen=True, kw_only=True)
class PoolState(GrowthHistory):
    """The stored state of a pool."""

    adopted: Mapping[str, Bounds | None] = field(default_factory=dict)  # before Evenkeel, per member; None: it had none
    desired_bounds: Mapping[str, DesiredBounds] = field(default_factory=dict)  # by OwnerRef.id
    digest: str = ""  # of the last report
    move: Move | None = None  # the last move, until all its replicas are placed
    seen: MemberSnapshot | None = None
    published: Publication | None = None  # under Balanced
    held_until: datetime | None = None  # level shrink: when its last hold ends, or has ended
    convergence: ConvergenceState = field(default_factory=ConvergenceState)
    is_failing: tuple[str, ...] = ()  # groups reported as fenced, and not yet as recovered
    zones: Mapping[str, str] = field(default_factory=dict)  # of groups whose machines alone show it, by key
    relief: Relief | None = None  # Gardener: dead zones, or a Shoot with a raised maximum
    release: Release | None = None  # None: every released replica is ordered again
    closed_at: datetime | None = None  # when max was lowered to keep an autoscaler from ordering; None: it is not
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # for pods, by a digest of both pods and node

    @property
    def members(self) -> frozenset[str]:
        """Return the groups that were ever found in it, as far as known."""
        return frozenset(self.adopted) | frozenset(self.seen.requested if self.seen else ())


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The stored state of a cluster."""

    groups: Mapping[GroupKey, GroupState] = field(default_factory=dict)
    pools: Mapping[PoolId, PoolState] = field(default_factory=dict)
    zones: Mapping[str, datetime] = field(default_factory=dict)  # zone -> impaired until
    scale_requests: tuple[ScaleRequest, ...] = ()  # not begun
    # Other clusters' reports about offerings; None: unknown at present, so every throttle stays.
    offerings: Mapping[Offering, OfferingState] | None = field(default_factory=dict)
