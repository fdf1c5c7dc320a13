"""What is remembered between two looks: of a group, of a pool, of a cluster."""

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
class GroupState:
    """What is remembered of one node group between two looks. All times are aware datetimes."""

    failures: int = 0
    backoff_until: datetime | None = None
    last_failure: datetime | None = None
    failure_class: FailureClass = FailureClass.UNKNOWN
    message: str = ""
    last_success: datetime | None = None
    running_seen: int | None = None  # running when we last looked while the group was in trouble
    arrived_at: datetime | None = None  # when a node last came while the group was fenced, whenever it was launched
    ended: tuple[datetime, ...] = ()  # fences that a success has ended before their time
    refused: tuple[str, ...] = ()  # machines that failed since the last success: running, they were launched again
    ahead: tuple[datetime, ...] = ()  # failure times from the future that have been counted, as of the moment of sight
    announced: tuple[MachineFailure, ...] = ()  # of events from the future of our clock: the next check dates them
    waiting_since: datetime | None = None  # first sight of replicas without a node, or the last node that came
    waiting_running: int | None = None  # running then
    stalled_since: datetime | None = None  # frozen by a rollout in which launches fail and nodes are missing
    reverts: tuple[datetime, ...] = ()  # publications of ours that somebody put back within the last hour
    contested_since: datetime | None = None  # put back too often: not written until an operator resumes
    contested_by: str = ""
    contested_replicas: bool = False  # what is put back are the replicas, not the bounds
    bounds_applied_by: str = ""  # who will put back what we write: asked by runs, believed by looks
    replicas_applied_by: str = ""
    write_refused_at: datetime | None = None  # when the API last refused a write of ours
    write_refused: str = ""  # and why
    marked: tuple[str, ...] = ()  # machines that carry a delete mark of ours
    unneeded: Mapping[str, datetime] = field(default_factory=dict)  # nodes that nobody needs, and since when
    reports: tuple[datetime, ...] = ()  # times of known failures, oldest first, to fold late ones in
    slow_start: int = 0  # since its zone delivers again: so many machines may be on their way; 0: as many as there may
    # What other clusters' failures mean for it; none of it is a failure of its own (domain/offerings/reports.py)
    throttled_requested: int | None = (
        None  # requested when the warning that lasts began, or less since; None: none lasts
    )
    throttled_until: datetime | None = None  # the end of the fence that came with it
    cleared_at: datetime | None = None  # when a machine last came in spite of a warning

    @property
    def is_frozen(self) -> bool:
        """Whether nothing of the group is written, since somebody keeps putting our bounds back."""
        return bool(self.bounds_applied_by) or (self.contested_since is not None and not self.contested_replicas)

    def uncontested(self) -> "GroupState":
        """As if nobody had ever put anything back: what we want is written again."""
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
        """Whether there is a failure that no success has answered yet."""
        return self.last_failure is not None and (self.last_success is None or self.last_success <= self.last_failure)

    @property
    def fence_ended(self) -> bool:
        """Whether a machine that was launched after the last failure runs."""
        return bool(self.ended) and self.last_failure is not None and self.ended[-1] >= self.last_failure

    @property
    def has_arrivals(self) -> bool:
        """Whether any node has come since the last failure."""
        return self.arrived_at is not None and self.last_failure is not None and self.arrived_at > self.last_failure


# Longer than the slowest usual loop of Cluster Autoscaler (--scan-interval 60 s): nothing is taken back unread.
STANDS = timedelta(seconds=65)

# The last nodes of a pool wander to the next zone after 65 s, then after twice as long each time, up to this.
_LONGEST_TURN = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a pool has dealt out last. Groups by key."""

    at: datetime
    basis: str  # everything but the targets that it was dealt for
    targets: Mapping[str, int] = field(default_factory=dict)
    maxima: Mapping[str, int] = field(default_factory=dict)
    grower: str = ""  # the group that has grown last
    turn: int = 0  # how often the last nodes have wandered since anything changed
    lent: bool = False  # most of it went to groups at their bound

    def is_for(self, other: "Publication") -> bool:
        """Whether nothing of the pool has changed between the two."""
        return (self.basis, self.targets) == (other.basis, other.targets)

    @property
    def stands_until(self) -> datetime:
        """When it is over, if nothing of the pool changes before."""
        return self.at + min(_LONGEST_TURN, STANDS * (1 << min(self.turn, 12)))


@dataclass(frozen=True, kw_only=True)
class MemberSnapshot:
    """What was requested when a pool was last looked at, and since when it has been seen so. Groups by key."""

    since: datetime
    requested: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)  # what we wanted then, where that is something else
    owners: tuple[str, ...] = ()  # of the groups' numbers, by OwnerRef.id
    few_since: datetime | None = None  # when a group or an owner was absent for the first time


@dataclass(frozen=True, kw_only=True)
class DesiredBounds:
    """What people want of an object that takes our bounds (``domain.model.owner_intent``)."""

    bounds: Bounds
    ours: tuple[Bounds, ...] = ()  # what we have written over it, or were about to


# Runs that follow one another sooner share one max_step: a conflict, a repeated message or an event is no new step.
STEPS_APART = timedelta(seconds=15)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Replicas that a pool released next to an autoscaler, until healthy zones have as many more. Groups by key."""

    at: datetime
    replicas: int
    requested: Mapping[str, int] = field(default_factory=dict)  # by the groups right after it
    ordered: Mapping[str, int] = field(default_factory=dict)  # requested right after our order; empty: none yet
    has_rest: bool = False  # a part of that order is left to later runs
    idle_since: datetime | None = None  # since when no check has found a pod that waits for them

    def untaken(self, requested: Mapping[str, int]) -> int:
        """Return how many of the replicas no group has gained since, wherever it was."""
        gained = sum(max(0, now - self.requested.get(key, 0)) for key, now in requested.items())
        return max(0, self.replicas - gained)

    def awaited(self, group: NodeGroup) -> int:
        """Return how many nodes of the group are awaited since our order or before."""
        return max(0, min(group.requested, self.ordered.get(str(group.key), 0)) - group.running)


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """What is remembered of a pool."""

    adopted: Mapping[str, Bounds | None] = field(default_factory=dict)  # before us, per member; None: it had none
    desired_bounds: Mapping[str, DesiredBounds] = field(default_factory=dict)  # by OwnerRef.id
    digest: str = ""  # of the last news
    move: Move | None = None  # the last move, until nothing of it is owed any more
    seen: MemberSnapshot | None = None
    published: Publication | None = None  # under Balanced
    held_until: datetime | None = None  # level shrink: when the hold ends, or has ended, that nodes' going began
    convergence: ConvergenceState = field(default_factory=ConvergenceState)  # for converge
    is_failing: tuple[str, ...] = ()  # groups that were told to be fenced and not yet to be well again
    zones: Mapping[str, str] = field(default_factory=dict)  # of groups whose machines alone say it, by key
    relief: Relief | None = None  # Gardener: zones that are dead, or a Shoot with a number of ours
    grew_at: datetime | None = None  # when nodes were last asked for, by pods or by people
    added_at: datetime | None = None  # when nodes were last added under max_step,
    added: int = 0  # and how many within STEPS_APART
    release: Release | None = None  # None: nothing that was released lacks a taker
    closed_at: datetime | None = None  # when max was lowered to keep an autoscaler from ordering; None: it is not
    orders: Mapping[str, PastOrder] = field(default_factory=dict)  # for pods, by a digest of both pods and node

    @property
    def members(self) -> frozenset[str]:
        """The groups that were ever found in it, as far as it is known."""
        return frozenset(self.adopted) | frozenset(self.seen.requested if self.seen else ())


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """What is remembered of a cluster between two looks."""

    groups: Mapping[GroupKey, GroupState] = field(default_factory=dict)
    pools: Mapping[PoolId, PoolState] = field(default_factory=dict)
    zones: Mapping[str, datetime] = field(default_factory=dict)  # zone -> impaired until
    scale_requests: tuple[ScaleRequest, ...] = ()  # asked for and not begun
    # What other clusters say of what they buy; None: nobody knows just now, so every warning stays as it is.
    offerings: Mapping[Offering, OfferingState] | None = field(default_factory=dict)
