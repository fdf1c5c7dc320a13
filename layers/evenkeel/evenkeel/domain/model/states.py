"""The state that is stored between checks, for each group, pool and cluster."""

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
    refused: tuple[str, ...] = ()  # machines that failed since the last success; if one runs, it was launched again
    # Failure times in the API server's future; each failure was counted when it was read.
    ahead: tuple[datetime, ...] = ()
    # Failures with a time in the receiver's future; the next check sets the time.
    announced: tuple[MachineFailure, ...] = ()
    reports: tuple[datetime, ...] = ()  # times of known failures, oldest first, so that a late report can be inserted


@dataclass(frozen=True, kw_only=True)
class ArrivalHistory:
    """The nodes that a group waits for, and the nodes that have arrived since it failed."""

    last_success: datetime | None = None
    running_seen: int | None = None  # running nodes at the last check; None: neither failing nor in slow start
    arrived_at: datetime | None = None  # when a node last arrived while the group was fenced or probing
    ended: tuple[datetime, ...] = ()  # when fences ended early: a machine that was launched after the failure then ran
    slow_start: int = 0  # how many machines may be provisioning at a time in slow start; 0: no slow start
    # When the wait for nodes began: at the first check with missing ones, or when the last node arrived. None: no wait.
    waiting_since: datetime | None = None
    waiting_running: int | None = None  # the nodes that ran at ``waiting_since``
    stalled_since: datetime | None = None  # since when a rollout freezes the group and cannot launch missing nodes


@dataclass(frozen=True, kw_only=True)
class ContestHistory:
    """The other writers that revert or refuse what Evenkeel writes to a group."""

    reverts: tuple[datetime, ...] = ()  # times of publications that another writer reverted within an hour
    contested_since: datetime | None = None  # since when reverts are too many; an operator must resume the group
    contested_by: str = ""
    contested_replicas: bool = False  # True: the replicas are reverted, not the bounds
    bounds_applied_by: str = ""  # field manager that would revert a write of bounds; runs read it, checks use this one
    replicas_applied_by: str = ""  # field manager that would revert a write of replicas; read likewise
    write_refused_at: datetime | None = None  # when the API last refused a write
    write_refused: str = ""  # the message of that refusal


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """Other clusters' capacity reports limit the group's growth (``domain.offerings.reports``). This is no failure."""

    throttled_requested: int | None = None  # the lowest requested since the throttle began; None: no throttle
    throttled_until: datetime | None = None  # the end of the fence that the reports cause; None: they cause no fence
    cleared_at: datetime | None = None  # when a new machine last ended a throttle


@dataclass(frozen=True, kw_only=True)
class GroupState(FailureHistory, ArrivalHistory, ContestHistory, Throttle):
    """The stored state of one node group, as one flat object. All times are aware datetimes."""

    marked: tuple[str, ...] = ()  # names of machines with Evenkeel's delete mark
    unneeded: Mapping[str, datetime] = field(default_factory=dict)  # node -> since when it is unneeded

    @property
    def is_frozen(self) -> bool:
        """Return True if Evenkeel does not write the group, because another writer reverts its bounds."""
        return bool(self.bounds_applied_by) or (self.contested_since is not None and not self.contested_replicas)

    def uncontested(self) -> "GroupState":
        """Return the state without reverts, so that Evenkeel writes the group again."""
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
        """Return True if the group has failed and has had no success since."""
        return self.last_failure is not None and (self.last_success is None or self.last_success <= self.last_failure)

    @property
    def fence_ended(self) -> bool:
        """Return True if the fence has ended early: a machine that was launched after the last failure runs."""
        return bool(self.ended) and self.last_failure is not None and self.ended[-1] >= self.last_failure

    @property
    def has_arrivals(self) -> bool:
        """Return True if any node has arrived since the last failure."""
        return self.arrived_at is not None and self.last_failure is not None and self.arrived_at > self.last_failure


# The shortest time for which a publication lasts, so that the slowest usual loop of Cluster Autoscaler (60 s) reads it.
STANDS = timedelta(seconds=65)

# The last free nodes of a pool are offered to the next zone after 65 s. Each later offer lasts twice as long as the one
# before, at most this long.
_LONGEST_TURN = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The maxima that Balanced last published for a pool. Mappings have the keys of groups."""

    at: datetime
    basis: str  # the input of the maxima, except ``targets``, as one text
    targets: Mapping[str, int] = field(default_factory=dict)  # the requested replicas at that time
    maxima: Mapping[str, int] = field(default_factory=dict)
    grower: str = ""  # key of the group that grew last
    turn: int = 0  # how often the last free nodes were offered to another zone since the pool last changed
    lent: bool = False  # True: most headroom is lent to groups that used up their own, or that pods need

    def is_for(self, other: "Publication") -> bool:
        """Return True if the pool is unchanged between both publications."""
        return (self.basis, self.targets) == (other.basis, other.targets)

    @property
    def ends_at(self) -> datetime:
        """Return when the publication ends, unless the pool changes earlier."""
        return self.at + min(_LONGEST_TURN, STANDS * (1 << min(self.turn, 12)))


# If a check does not find known groups or owners of a pool, a check at least this much later must confirm that.
PARTIAL_LIST_GRACE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class MemberSnapshot:
    """The replicas of a pool at its last check, by key of group. ``since``: when they last changed."""

    since: datetime
    requested: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)  # replicas that the check planned, where they differ
    owners: tuple[str, ...] = ()  # owners of the groups' numbers, by OwnerRef.id
    few_since: datetime | None = None  # when a check first did not find a group or an owner; None: all are found

    @property
    def second_check_at(self) -> datetime:
        """Return the time from which a check can confirm that known groups or owners are absent."""
        assert self.few_since is not None
        return self.few_since + PARTIAL_LIST_GRACE


@dataclass(frozen=True, kw_only=True)
class DesiredBounds:
    """The desired bounds of an object that Evenkeel writes (``domain.model.owner_intent``)."""

    bounds: Bounds
    ours: tuple[Bounds, ...] = ()  # bounds that Evenkeel has written instead, or was about to write


# Runs less than this apart share one max_step: a retry after a conflict, for example, must not add nodes again.
STEPS_APART = timedelta(seconds=15)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Replicas that a pool with an autoscaler released; stored until healthy zones request as many more replicas."""

    at: datetime
    replicas: int
    requested: Mapping[str, int] = field(default_factory=dict)  # replicas right after the release, by key of group
    # Requested replicas right after Evenkeel ordered the nodes itself, by key of group. Empty: it has ordered none.
    ordered: Mapping[str, int] = field(default_factory=dict)
    has_rest: bool = False  # True: later runs order the remaining nodes
    idle_since: datetime | None = None  # since when checks find no pod that waits for these nodes

    def untaken(self, requested: Mapping[str, int]) -> int:
        """Return how many of the released replicas no group has added since."""
        gained = sum(max(0, now - self.requested.get(key, 0)) for key, now in requested.items())
        return max(0, self.replicas - gained)

    def awaited(self, group: NodeGroup) -> int:
        """Return how many nodes of the group do not run yet. Nodes requested after Evenkeel's order do not count."""
        return max(0, min(group.requested, self.ordered.get(str(group.key), 0)) - group.running)


@dataclass(frozen=True, kw_only=True)
class GrowthHistory:
    """The last additions of nodes to a pool."""

    grew_at: datetime | None = None  # when nodes were last requested, by pods or by people
    added_at: datetime | None = None  # when a run last added nodes under max_step
    added: int = 0  # nodes added by that run and by the runs within STEPS_APART before it


@dataclass(frozen=True, kw_only=True)
class PoolState(GrowthHistory):
    """The stored state of a pool."""

    # Each member's bounds before Evenkeel's first write, by key. None: it had no bounds.
    adopted: Mapping[str, Bounds | None] = field(default_factory=dict)
    desired_bounds: Mapping[str, DesiredBounds] = field(default_factory=dict)  # by OwnerRef.id
    digest: str = ""  # the digest of the last report
    move: Move | None = None  # the last move, until all its replicas are placed
    seen: MemberSnapshot | None = None
    published: Publication | None = None  # by Balanced; None: another strategy, or none yet
    held_until: datetime | None = None  # level shrink: when its last hold ends, or has ended
    convergence: ConvergenceState = field(default_factory=ConvergenceState)
    is_failing: tuple[str, ...] = ()  # groups reported as fenced, and not yet as recovered
    # Key of a group whose zone only its machines show -> that zone.
    zones: Mapping[str, str] = field(default_factory=dict)
    relief: Relief | None = None  # Gardener: dead zones, or a Shoot with a raised maximum
    release: Release | None = None  # None: no released replica waits for a new order
    closed_at: datetime | None = None  # since when max is lowered so that no autoscaler orders; None: it is not
    # Orders for pods, by digests of the pods and the node.
    orders: Mapping[str, PastOrder] = field(default_factory=dict)

    @property
    def members(self) -> frozenset[str]:
        """Return the keys of all groups that are known to have been in the pool."""
        return frozenset(self.adopted) | frozenset(self.seen.requested if self.seen else ())


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The stored state of a cluster."""

    groups: Mapping[GroupKey, GroupState] = field(default_factory=dict)
    pools: Mapping[PoolId, PoolState] = field(default_factory=dict)
    zones: Mapping[str, datetime] = field(default_factory=dict)  # zone -> when its impairment ends
    scale_requests: tuple[ScaleRequest, ...] = ()  # requests that no pool has begun
    # Other clusters' reports about offerings; None: unknown now, so all throttles remain.
    offerings: Mapping[Offering, OfferingState] | None = field(default_factory=dict)
