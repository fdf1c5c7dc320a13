"""The state that is stored between checks, for each group, pool and cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from evenkeel.domain.model.convergence import ConvergenceState
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING, PLACEHOLDER
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, NodeGroup, PoolId
from evenkeel.domain.model.holds import doubled
from evenkeel.domain.model.moves import Move, RequestedNodes, ScaleRequest
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.provision_times import ProvisionTimes
from evenkeel.domain.model.second_checks import SECOND_CHECK_AFTER


# The classes of the stored state of a group or pool are not frozen, because a frozen object takes three times as long
# to create, and a check creates several for every pool.
@dataclass(kw_only=True)
class FailureHistory:
    """The failures of a group to deliver machines, and the backoff that follows from them."""

    failures: int = 0
    backoff_until: datetime | None = None
    last_failure: datetime | None = None
    failure_class: FailureClass = field(default=FailureClass.UNKNOWN, metadata={"alias": "class"})
    message: str = ""
    template: str = ""  # the machine template that the zone does not offer; empty: the zone offers it, or it is unknown
    # Names of the machines that failed since the last success. If such a machine runs now, it was launched again.
    refused: tuple[str, ...] = ()
    # Reported failure times that were later than the API server's clock. Evenkeel has counted each such failure once,
    # with the time at which it read the report.
    ahead: tuple[datetime, ...] = ()
    # Failures from events whose time was later than the receiver's clock. The next check sets the failure's time.
    announced: tuple[MachineFailure, ...] = ()
    reports: tuple[datetime, ...] = ()  # times of known failures, oldest first, so that a late report can be inserted


@dataclass(kw_only=True)
class ArrivalHistory:
    """The nodes that a group waits for, and the nodes that have registered since its last failure."""

    last_success: datetime | None = None
    # The number of nodes that ran at the last check. None: the group is neither failing nor in slow start.
    running_seen: int | None = None
    arrived_at: datetime | None = None  # when a node last registered while the group was fenced or probing
    # When fences ended early, each because a machine that was launched after the failure ran.
    ended: tuple[datetime, ...] = ()
    slow_start: int = 0  # the most machines that may be provisioning at a time in slow start; 0: no slow start
    # Since when the group waits for missing nodes (``health.waiting``). None: no node is missing, or the clock stands.
    waiting_since: datetime | None = None
    waiting_running: int | None = None  # the number of nodes that ran then; None: no node is missing
    # Instances in service that have no Node -> when a check first found them so (``health.never_ready``).
    nodeless: Mapping[str, datetime] = field(default_factory=dict)
    stalled_since: datetime | None = None  # since when a rollout freezes the group and fails to launch missing nodes


@dataclass(kw_only=True)
class ContestHistory:
    """The other writers that revert Evenkeel's writes to a group, and the last write that the API refused."""

    reverts: tuple[datetime, ...] = ()  # times of Evenkeel's writes of the last hour that another writer reverted
    # Since when the group is contested, because there were too many reverts. An operator must resume the group.
    contested_since: datetime | None = None
    contested_by: str = ""
    contested_replicas: bool = False  # True: the replicas are reverted, not the bounds
    # The last other writer of the bounds that an event has named, and when it wrote them. None: no event has named one.
    changed_by: str = ""
    changed_at: datetime | None = None
    # The field managers that would revert a write of bounds, or of replicas. Empty: there is none. Runs read these
    # managers from the objects. Checks use the stored ones.
    bounds_applied_by: str = ""
    replicas_applied_by: str = ""
    # The bounds that Cluster Autoscaler uses in place of the group's, which it ignores. None: it reads the group's.
    unread_bounds: Bounds | None = None
    write_refused_at: datetime | None = None  # when the API last refused a write
    write_refused: str = ""  # the message with which the API refused that write

    @property
    def is_frozen(self) -> bool:
        """Return True if Evenkeel does not write the group, because another writer reverts its bounds."""
        return bool(self.bounds_applied_by) or (self.contested_since is not None and not self.contested_replicas)

    def uncontested(self) -> "ContestHistory":
        """Return the history without reverts and unread bounds, so that Evenkeel writes the group again."""
        return replace(
            self,
            contested_since=None,
            contested_by="",
            contested_replicas=False,
            reverts=(),
            bounds_applied_by="",
            replicas_applied_by="",
            unread_bounds=None,
        )


_State = TypeVar("_State", FailureHistory, ArrivalHistory, "GroupState", "PoolState")


def changed(state: _State, **fields: Any) -> _State:
    """Return a copy of the state of a group or pool, or of a part of it, with other fields.

    A check copies many states. ``dataclasses.replace`` takes two to three times as long.
    """
    return type(state)(**vars(state) | fields)


@dataclass(kw_only=True)
class GroupState:
    """The stored state of one node group. All times are aware datetimes."""

    failure: FailureHistory = field(default_factory=FailureHistory)
    arrivals: ArrivalHistory = field(default_factory=ArrivalHistory)
    contest: ContestHistory = field(default_factory=ContestHistory)
    marked: tuple[str, ...] = ()  # names of machines with Evenkeel's delete mark
    # When a list of machines that may be incomplete first left these marks in doubt. None: no list has.
    marks_doubted_since: datetime | None = None
    marks_hidden: tuple[str, ...] = ()  # the marked machines that this list did not have
    unneeded: Mapping[str, datetime] = field(default_factory=dict)  # name of a node -> since when it is unneeded
    unhealthy_since: datetime | None = None  # since when too many nodes are not Ready; None: the group is healthy

    @property
    def is_failing(self) -> bool:
        """Return True if the group has failed and has had no success since."""
        failed, succeeded = self.failure.last_failure, self.arrivals.last_success
        return failed is not None and (succeeded is None or succeeded <= failed)

    @property
    def fence_ended(self) -> bool:
        """Return True if the fence has ended early, because a machine that was launched after the last failure runs."""
        failed, ended = self.failure.last_failure, self.arrivals.ended
        return bool(ended) and failed is not None and ended[-1] >= failed

    @property
    def has_arrivals(self) -> bool:
        """Return True if any node has registered since the last failure."""
        failed, arrived = self.failure.last_failure, self.arrivals.arrived_at
        return arrived is not None and failed is not None and arrived > failed


UNKNOWN = GroupState()  # of a group of which nothing is stored


# While a pool is unchanged, Balanced keeps its published maxima for at least this time. So even the slowest usual loop
# of Cluster Autoscaler (60 s) reads them.
STANDS = timedelta(seconds=65)

# If no zone uses the last free nodes of a pool, Evenkeel offers them to one zone after another. The first offer lasts
# 65 s. Each further offer lasts twice as long as the offer before, but at most this long.
_LONGEST_TURN = timedelta(hours=1)


@dataclass(kw_only=True)
class Publication:
    """The maxima that Balanced last published for a pool. The mappings are by key of the group."""

    at: datetime
    basis: str  # the values from which the maxima were computed, except ``targets``, as one text
    targets: Mapping[str, int] = field(default_factory=dict)  # the requested replicas of each group at ``at``
    maxima: Mapping[str, int] = field(default_factory=dict)
    grower: str = ""  # key of the group that grew last
    turn: int = 0  # how often the last free nodes were offered to another zone since the pool last changed
    # True: most headroom is lent to the groups that have used up their own headroom, or that pending pods need.
    lent: bool = False

    def ends_at(self, stands: timedelta) -> datetime:
        """Return when the publication ends if the pool does not change. ``stands``: how long its first turn lasts."""
        return self.at + doubled(stands, self.turn, _LONGEST_TURN)


@dataclass(kw_only=True)
class MemberSnapshot:
    """The replicas of a pool's groups at the last check. The mappings but ``tagged`` are by key of the group."""

    since: datetime  # when the replicas last changed
    requested: Mapping[str, int] = field(default_factory=dict)
    # The replicas that the check planned, for each group where they differ from ``requested``.
    planned: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[str, ...] = ()  # ids (OwnerRef.id) of the owners of the groups' bounds
    # Of Auto Scaling groups, the tags pool-min and pool-max that a group has, and their values.
    tagged: Mapping[str, int] = field(default_factory=dict)
    members_missing: tuple[str, ...] = ()  # the known groups and owners that the last check has not found
    members_missing_since: datetime | None = None  # when a check first missed exactly these; None: none is missing

    @property
    def second_check_at(self) -> datetime:
        """Return the time from which a check can confirm that known groups or owners are absent."""
        assert self.members_missing_since is not None
        return self.members_missing_since + SECOND_CHECK_AFTER


@dataclass(frozen=True, kw_only=True)
class DesiredBounds:
    """The desired bounds of an object to which Evenkeel writes its own bounds (``domain.model.owner_intent``)."""

    bounds: Bounds
    ours: tuple[Bounds, ...] = ()  # the bounds that Evenkeel has written instead, or was about to write


# Runs that are less than this apart share one max_step. Otherwise, a retry after a conflict would add nodes again.
STEPS_APART = timedelta(seconds=15)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Replicas that a pool with an autoscaler has released. It is stored until the groups request as many again."""

    at: datetime
    replicas: int
    requested: Mapping[str, int] = field(default_factory=dict)  # group's key -> its replicas right after the release
    # Key of a group -> its replicas right after Evenkeel itself ordered nodes. Empty: Evenkeel has ordered none.
    ordered: Mapping[str, int] = field(default_factory=dict)
    has_rest: bool = False  # True: Evenkeel has ordered only some of the nodes, and later runs order the others
    idle_since: datetime | None = None  # since when checks find no pod that waits for the released nodes

    def not_reordered(self, requested: Mapping[str, int]) -> int:
        """Return how many of the released replicas no group has requested again."""
        gained = sum(max(0, now - self.requested.get(key, 0)) for key, now in requested.items())
        return max(0, self.replicas - gained)

    def awaited(self, group: NodeGroup) -> int:
        """Return how many of the group's nodes do not run yet. Nodes requested after Evenkeel's order do not count."""
        return max(0, min(group.requested, self.ordered.get(str(group.key), 0)) - group.running)


@dataclass(frozen=True, kw_only=True)
class ReplicasState:
    """What is stored of replicas that have no node yet, and of how long they take to have one."""

    requested_nodes: tuple[RequestedNodes, ...] = ()  # by request: the nodes that do not run yet
    # Key of a group that may not grow -> the replicas that count for PoolMaximum. A group that may grow again stays
    # here until the pool is within PoolMaximum.
    reserved: Mapping[str, int] = field(default_factory=dict)
    # The provision times of the last machines of each machine type and capacity type (``health.provision_times``).
    provision_times: Mapping[str, ProvisionTimes] = field(default_factory=dict)
    counted_until: Mapping[str, datetime] = field(default_factory=dict)  # key of a group -> older machines are counted


@dataclass(kw_only=True)
class PoolState:
    """The stored state of a pool."""

    grew_at: datetime | None = None  # when Evenkeel last added nodes for pending pods or for a scale request
    added_at: datetime | None = None  # when a run last added nodes that count against max_step
    added: int = 0  # nodes added by the run at ``added_at``, and by the runs within STEPS_APART before it
    # Key of a member -> its bounds before Evenkeel's first write. None: the member had no bounds.
    adopted: Mapping[str, Bounds | None] = field(default_factory=dict)
    desired_bounds: Mapping[str, DesiredBounds] = field(default_factory=dict)  # by id of the owner (OwnerRef.id)
    digest: str = ""  # the fingerprint of the last report (``PoolPlan.digest``)
    move: Move | None = None  # the last move, until all its replicas are placed
    seen: MemberSnapshot | None = None
    published: Publication | None = None  # Balanced's last maxima; None: none yet, or the pool has another strategy
    held_until: datetime | None = None  # when the last hold of level shrink ends, or has ended
    convergence: ConvergenceState = field(default_factory=ConvergenceState)
    is_failing: tuple[str, ...] = ()  # keys of the groups that were reported as fenced, and not yet as recovered
    # Key of a group -> its zone, for each group whose zone only its machines show.
    zones: Mapping[str, str] = field(default_factory=dict)
    release: Release | None = None  # the last release, while its replicas must be ordered again or have no nodes yet
    closed_at: datetime | None = None  # since when a lowered max keeps autoscalers from ordering; None: no max does
    # The past orders of nodes for pods. The key of an order has the digests of the pods and of the node.
    orders: Mapping[str, PastOrder] = field(default_factory=dict)
    # Key of a group -> the nodes that it holds for the pools of which its pool is a fallback; no key: none.
    held_nodes: Mapping[str, int] = field(default_factory=dict)
    replicas: ReplicasState = field(default_factory=ReplicasState)
    parts: Parts = field(default_factory=Parts)  # the parts of capabilities, each stored under the capability's name

    @property
    def members(self) -> frozenset[str]:
        """Return the keys of all groups that are known to have been in the pool."""
        return frozenset(self.adopted) | frozenset(self.seen.requested if self.seen else ())


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The stored state of a cluster."""

    groups: Mapping[GroupKey, GroupState] = field(default_factory=dict)
    pools: Mapping[PoolId, PoolState] = field(default_factory=dict)
    # Name of an impaired zone -> when its impairment ends, by Evenkeel's clock.
    zones: Mapping[str, datetime] = field(default_factory=dict)
    drill_zone: str = ""  # the zone of ``zones`` that only a drill fences; empty: there is none
    scale_requests: tuple[ScaleRequest, ...] = ()  # the requests that are not answered yet

    @property
    def closed_pools(self) -> Mapping[str, datetime]:
        """Return the pools in which Evenkeel's bounds keep an autoscaler from ordering nodes: name -> since when."""
        return {id.name: pool.closed_at for id, pool in self.pools.items() if pool.closed_at is not None}

    @property
    def marked_instances(self) -> list[str]:
        """Return the instances of Auto Scaling groups that Evenkeel is about to remove.

        If the record names a workload cluster, Evenkeel has cordoned their nodes there.
        """
        groups = (state for key, state in self.groups.items() if key.flavour == AUTO_SCALING)
        return sorted({name for state in groups for name in state.marked if not name.startswith(PLACEHOLDER)})
