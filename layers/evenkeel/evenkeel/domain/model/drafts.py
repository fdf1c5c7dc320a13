"""The drafts of a plan: one for each pool, and one for each group of a pool. The plan's steps change the drafts."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.convergence import NO_CHOICES, Choices, ConvergenceState, Converging, Step
from evenkeel.domain.model.demand import DemandFacts, KeptEmpty, KeptNodes
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import Bounds, PoolId, State
from evenkeel.domain.model.moves import RequestedNodes, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.pools import Pool, tie_of
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.states import STEPS_APART, MemberSnapshot, Publication, Release
from evenkeel.domain.model.values import LARGEST_COUNT

# The rules of ``Draft.limits``, in the order in which bounds are capped. ``health.states`` sets all except STEP_MAX:
# - SLOW_START_MAX: while the zone recovers, the running nodes plus the nodes that may be added now
# - STEP_MAX: during a step of converge, the requested replicas, so that no autoscaler orders here
# - WORKER_SHARE: the largest number of replicas that the owner accepts
# - ZONE_MAX: ``evenkeel.dev/zone-max``
LIMITS = (Rule.SLOW_START_MAX, Rule.STEP_MAX, Rule.WORKER_SHARE, Rule.ZONE_MAX)
LASTING_LIMITS = (Rule.WORKER_SHARE, Rule.ZONE_MAX)  # the limits that do not depend on the group's health
# The rules of ``Draft.floors``. ``health.states`` sets the first four:
# - REPLICAS_OF_OTHERS: the requested replicas of a group whose replicas another writer owns
# - WORKER_SHARE: the smallest number of replicas that the owner of the replicas accepts
# - OWNER_MIN_MIN: the smallest min that the owner of the bounds accepts
# - ZONE_MIN: ``evenkeel.dev/zone-min``
# - STRATEGY: the strategy's min, if it publishes one for each zone; otherwise that is only a share of PoolMinimum
# All floors hold where nodes leave the pool (``fewest``). A request to give back a number of nodes also regards the
# published min. Replicas without a node may fall to the floors of owners, because they are no nodes that a minimum
# could keep.
OWNER_FLOORS = (Rule.REPLICAS_OF_OTHERS, Rule.WORKER_SHARE, Rule.OWNER_MIN_MIN)


class MachineCounts(NamedTuple):
    """The machines of a group that have no Ready node, or are to be deleted."""

    coming: int = 0  # machines that are provisioning: without a node, without a failure, and not overdue
    starting: int = 0  # machines whose node is not Ready yet, within the provision timeout
    preserved: int = 0  # replicas of preserved machines without a node (``NodeGroup.preserved``)
    held: int = 0  # machines without a node because of a failure (quota, configuration) that any zone would have
    # Machines of a fenced or probing group that have failed for good in this zone, and have not come through a whole
    # backoff.
    lost: int = 0
    marked: tuple[str, ...] = ()  # names of the machines with Evenkeel's delete mark


# The drafts are not frozen, because the steps change them.
@dataclass(slots=True)
class HealthDraft:
    """The facts behind a group's state, and what follows from them while the group is fenced or probing."""

    contested: bool = False  # True: another writer reverts Evenkeel's writes to the group
    # True: the failure of a fenced group concerns only this zone, so other zones may get the stuck replicas.
    moves_elsewhere: bool = True
    fence_ends: datetime | None = None  # None: there is no fence, or its end is unknown
    # Since when launches of a fenced group fail that the autoscaler gives up (``GIVEN_UP_WITHIN``). None: unknown.
    refused_since: datetime | None = None
    stuck_kept: int = 0  # stuck replicas of a fenced group that this plan neither releases nor moves
    is_drilled: bool = False  # True: a drill fences the zone
    # True: the group is fenced for a lasting cause: its zone does not offer the machine type, or is left.
    not_offered: bool = False
    left: bool = False  # True: an operator leaves the zone
    doubted_since: datetime | None = None  # when a probing group last failed
    # True: a machine that was launched after the last failure of a probing group has become a node.
    is_proven: bool = False
    probes_slowly: bool = True  # True: a probing group adds one machine; False: as many as a healthy group


@dataclass(slots=True)
class AutoscalerDraft:
    """What an autoscaler must not do in a group."""

    # True: min is at least requested, so that no autoscaler removes the new node of a converge step.
    protected: bool = False
    closes: bool = False  # True: max is below the strategy's max, so that no autoscaler orders here
    mins: dict[Rule, int] = field(default_factory=dict)  # the least published min, by rule
    # Such mins that are floors, too. A move to another zone may break them, because the pool keeps the node.
    floors: dict[Rule, int] = field(default_factory=dict)


# Fields with a default are not keyword-only, because Python sets the defaults of keyword-only parameters one by one,
# and a plan creates several drafts for each pool.
@dataclass(slots=True)
class Draft(GroupPlan):
    """The plan of a group after the steps so far, with the facts that the steps need."""

    pool_id: PoolId = field(kw_only=True)
    bounds: Bounds | None = None
    reasons: list[Reason] = field(default_factory=list)
    machines: MachineCounts = MachineCounts()  # noqa: RUF009  a tuple never changes
    may_grow: bool = True  # False: the group is not writable, and no other controller adds machines to it
    health: HealthDraft = field(default_factory=HealthDraft)
    limits: dict[Rule, int] = field(default_factory=dict)  # the most replicas that the group may have, by rule
    floors: dict[Rule, int] = field(default_factory=dict)  # the fewest replicas that the group may have, by rule
    autoscaler: AutoscalerDraft = field(default_factory=AutoscalerDraft)
    key: str = field(init=False)  # the key under which the pool's state stores this group

    def __post_init__(self) -> None:
        self.key = str(self.group.key)

    def add_reason(self, rule: Rule, **facts: Fact) -> None:
        """Add a reason for the group's replicas or bounds."""
        self.reasons.append(Reason(rule, facts))

    @property
    def tie(self) -> int:
        """Return the rank among equal groups of the pool: the group with the lowest value is first."""
        return tie_of(self.pool_id, self.group)

    @property
    def most(self) -> int | None:
        """Return the most replicas that the limits allow; None: there is no limit."""
        return min(self.limits.values()) if self.limits else None

    def fewest(self, *, without: Collection[Rule] = ()) -> int:
        """Return the fewest replicas that the floors allow, except the floors by the rules in ``without``."""
        floors = self.floors | self.autoscaler.floors
        return max([nodes for rule, nodes in floors.items() if rule not in without], default=0)

    @property
    def replicas_are_ours(self) -> bool:
        """Return False if another writer owns the group's replicas."""
        return Rule.REPLICAS_OF_OTHERS not in self.floors

    @property
    def owner_min(self) -> int:
        """Return the fewest replicas that the owner of the replicas, or of the bounds, accepts."""
        return max([self.floors.get(rule, 0) for rule in OWNER_FLOORS])

    @property
    def room(self) -> int:
        """Return how many more replicas the limits allow. The group's state does not matter."""
        if not self.replicas_are_ours:
            return 0
        most = self.most
        return max(0, (LARGEST_COUNT if most is None else most) - self.requested)

    @property
    def orderable(self) -> int:
        """Return how many nodes may be ordered in the group, by its limits and its state.

        A healthy group may get up to ``room`` nodes, a probing or unhealthy group as many as ``probe``, any other none.
        """
        if self.state in (State.PROBING, State.UNHEALTHY):
            return min(self.room, self.probe)
        return self.room if self.state is State.HEALTHY else 0

    @property
    def takes(self) -> int:
        """Return how many nodes the group takes from groups that fail.

        A probing group whose node came after its failure takes one at a time. Otherwise it could stay in doubt for
        hours, because nothing else orders a node there.
        """
        return self.orderable if self.health.is_proven or self.state is State.HEALTHY else 0

    @property
    def room_for_pods(self) -> int:
        """Return how many nodes may be ordered in the group for pods.

        The published bounds do not limit this number, because they follow the replicas and no autoscaler reads them.
        """
        return 0 if self.group.template.closed_because is not None else self.orderable

    @property
    def probe(self) -> int:
        """Return how many machines a group in doubt may add: none while a replica lacks its node, otherwise one.

        A replica that this plan gives up still lacks its node. An order in the same plan would keep it instead.
        """
        ready = self.group.running - self.machines.starting + self.machines.preserved
        return 0 if ready < max(self.requested, self.group.requested) else 1

    @property
    def is_unfenced(self) -> bool:
        """Return True for a fenced, probing or unhealthy group that is sized as if healthy.

        The fence of a group whose launches are stopped always holds, because an autoscaler does not see this cause. So
        does that of a zone that is left, because an operator has asked for it.
        """
        if self.health.left:
            return False
        if not self.group.annotations.fencing_enabled and self.group.status.launches_stopped is None:
            return self.state in (State.FENCED, State.PROBING, State.UNHEALTHY)
        return not self.health.probes_slowly and self.state is State.PROBING

    @property
    def zone_fails(self) -> bool:
        """Return True if the group is unhealthy, or fenced.

        A fence because of stopped launches, of a machine type that the zone does not offer, or of a zone that is left
        names no fault. It would keep the other zones waiting without end.
        """
        if self.health.left:
            return False
        is_fenced = self.state is State.FENCED and self.group.status.launches_stopped is None
        return (is_fenced and not self.health.not_offered) or self.group.status.unhealthy is not None

    @property
    def kept_room(self) -> int:
        """Return max minus requested for a group that is frozen or has held bounds, and may grow; for others 0."""
        stay = self.group.owner.bounds_held or not self.writable
        if not stay or not self.may_grow or self.group.bounds is None:
            return 0
        return max(0, self.group.bounds.max - self.requested)

    @property
    def target(self) -> int:
        """Return the replicas that count for PoolMinimum and PoolMaximum.

        They are the requested ones, but in a group that may not grow only those with a machine that runs or may come.
        Where machines are made, replicas without one count, too: a rollout replaces each machine that it deletes.
        """
        if self.may_grow:
            return self.requested
        return min(self.requested, self.alive + (self.group.unmade if self.group.makes_machines else 0))

    def kept(self, nodes: int) -> int:
        """Return as many of these replicas as the group requests. In a fenced group, only running ones are kept."""
        return min(nodes, self.requested, self.group.running if self.state is State.FENCED else self.requested)

    def is_far_below(self, other: "Draft") -> bool:
        """Return True if this group would not be the larger one even after one node moved to it from the other group.

        The groups are compared by replicas per weight. With equal weights, this group must have at least two replicas
        fewer than the other group.
        """
        return (self.requested + 1) * other.group.annotations.weight <= (
            other.requested - 1
        ) * self.group.annotations.weight

    @property
    def fixed_because(self) -> Reason | None:
        """Return why Evenkeel changes no replicas of the group now; None: it may change them."""
        if not self.writable:
            return Reason.of(Rule.IN_STATE, state=self.state.value)
        return self.group.status.launches_stopped if self.replicas_are_ours else Reason.of(Rule.REPLICAS_OF_OTHERS)

    @property
    def drain_blocked_by(self) -> Reason | None:
        """Return why no machine of the group can be removed by name now; None: a machine can be removed."""
        group = self.group
        if self.fixed_because is not None:
            return self.fixed_because
        if group.status.launched is not None:
            if group.key.flavour == AUTO_SCALING:
                return Reason.of(Rule.NOTHING_DRAINS)
            return Reason.of(Rule.NO_MACHINE_CAN_BE_NAMED, kind=group.identity.kind)
        if self.requested != group.requested:
            return Reason.of(Rule.REPLICAS_CHANGE, before=group.requested, after=self.requested)
        return None if group.machines is None else disagree(group.machines, group.requested, self.machines.marked)

    @property
    def alive(self) -> int:
        """Return how many replicas are not stuck. Each has a node, a provisioning machine or a preserved machine."""
        return min(self.group.requested, self.group.running + self.machines.preserved + self.machines.coming)

    @property
    def stuck(self) -> int:
        """Return how many replicas are stuck. They have neither a node nor a machine that may become a node."""
        return self.group.requested - self.alive

    @property
    def counted(self) -> int:
        """Return how many replicas GEP-24's formulas count: those that are not stuck, if the group cannot grow."""
        if self.state is State.FENCED:
            return self.alive
        return self.group.requested if self.may_grow else self.target

    @property
    def missing(self) -> int:
        """Return how many stuck replicas no other zone gets.

        In a healthy or probing group, these replicas have a failure that any zone would have. In other groups, the
        result is ``HealthDraft.stuck_kept``.
        """
        if self.machines.held and self.state in (State.HEALTHY, State.PROBING, State.UNHEALTHY):
            return min(self.machines.held, self.stuck)
        return self.health.stuck_kept

    @property
    def is_held(self) -> bool:
        """Return True if a fenced group keeps its replicas, because a launch in another zone would fail, too."""
        return self.state is State.FENCED and not self.health.moves_elsewhere


@dataclass(slots=True)
class RequestDraft:
    """The request for nodes that a pool carries out. Each integer is a number of nodes."""

    current: ScaleRequest | None = None
    waits: ScaleRequest | None = None  # a request that waits until a move between zones has ended
    # The nodes that the request must not remove. None: the request needs no such list, or pods were not read.
    kept: KeptNodes | None = None
    pods_unread: bool = False  # True: the check tried to read pods, but could not
    unmet: int = 0  # nodes that cannot be added, or cannot be removed
    later: int = 0  # nodes that later runs add
    requested_nodes: tuple[RequestedNodes, ...] = ()  # the nodes of earlier requests that do not run yet


@dataclass(slots=True)
class ReplicasDraft:
    """The changes of a pool's replicas. Each integer is a number of nodes."""

    added: int = 0  # nodes that this plan adds to reach a minimum, as a probe or on request
    later: int = 0  # nodes that later runs add, because max_step limits this plan
    unplaced: int = 0  # replicas that one group has lost in a move, and that no group has gained yet
    missing: int = 0  # nodes below PoolMinimum that no group can get
    # Since when the requested replicas have not changed. If this plan lowers them, the value is ``now``. None: not set
    # yet; then the plan raises no replicas to a minimum.
    unchanged_since: datetime | None = None


@dataclass(slots=True)
class ReleaseDraft:
    """Released replicas that have to be ordered again (``domain.rebalancing.replicas.release``)."""

    stored: Release | None = None  # the release of an earlier plan, while it is needed
    planned: Release | None = None  # the release of this plan, stored before its writes; None: it releases nothing
    not_reordered: int = 0  # replicas of the stored release that no group has gained since
    asks_waiting: bool = False  # True: the plan depends on ``PoolInput.waited_for``, which is None
    closed: bool = False  # True: no autoscaler may order in the pool, because Evenkeel orders the released nodes
    orders_at: datetime | None = None  # when Evenkeel orders the released nodes; None: already ordered, or not known
    # Key of a group -> number of nodes that an autoscaler may still order there.
    open_for: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class BoundsDraft:
    """The values from which the bounds of a pool are computed."""

    grower: str = ""  # key of the group that other controllers have raised most since the last check
    sizes: Sequence[Size] = ()  # the strategy's sizes, in the order of the groups
    publication: Publication | None = None  # the maxima that Balanced publishes; None: another strategy
    deal_ends: datetime | None = None  # when ``publication`` may change even if the pool does not change
    held_until: datetime | None = None  # when the last hold of level shrink ends, or has ended


@dataclass(slots=True)
class ConvergenceDraft:
    """The step of a pool's convergence."""

    state: ConvergenceState = field(default_factory=ConvergenceState)
    step: Step | None = None  # the step after this plan's patch; None: this plan changes no step
    surge: int = 0  # how many nodes above PoolMaximum an open step may request
    report: Converging | None = None
    # Key of a group whose machine to drain depends on pods -> key of the group that must get a node before the drain.
    # The second key is empty if that node already runs.
    asks: dict[str, str] = field(default_factory=dict)
    # Source and destination of each move that comes in place of leveling, and why none starts. None: zones are leveled.
    moves: Sequence[tuple[Draft, Draft]] | None = None
    waits: Reason | None = None
    gives_to: PoolId | None = None  # the pool whose step this plan's patch belongs to


@dataclass(slots=True)
class DemandDraft:
    """The advice of scale-up and scale-down for a pool."""

    asks_idle: bool = False  # True: the plan depends on unneeded nodes, but the check did not look for them
    asks_pods: bool = False  # True: the plan depends on pods, and not all were read
    # Returns what says which nodes must stay for other reasons than their pods (``domain.demand.guards``).
    guard: Callable[[Any], Any] | None = None
    kept_empty: dict[str, KeptEmpty] = field(default_factory=dict)  # by key of the group: empty nodes that stay for now
    drains_held: Reason | None = None  # why all nodes with pods count as needed


@dataclass(slots=True)
class PartsDraft:
    """What capabilities add to a pool's plan."""

    drafts: Parts = field(default_factory=Parts)  # their inputs, and what their steps know
    results: Parts = field(default_factory=Parts)  # their parts of the plan
    stored: Parts = field(default_factory=Parts)  # their parts of the state to store
    notes: list[Reason] = field(default_factory=list)  # reasons that need no action


_NO_NODES: Mapping[str, int] = {}
_NO_PARTS = Parts()


class PoolInput(NamedTuple):
    """The input of a pool's plan in addition to the check. None: the value is not known, or was not requested.

    The mappings are by key of the group.
    """

    request: ScaleRequest | None = None
    demand: DemandFacts | None = None
    orders_for_pods: bool = False  # True: Evenkeel orders nodes for the pods that this check has read
    choices: Choices = NO_CHOICES  # for each group in an earlier plan's ``asks``: the machine to drain
    waited_for: Mapping[str, int] | None = None  # the nodes that pending pods need; None: pods were not read
    pods_unmet: bool = False  # True: pods wait that fit no node of ``waited_for``; False if that is None
    pods_decide: bool = False  # True: pods decide which nodes of the pool must stay
    keeps_minima: bool = False  # True: published mins are limits where nodes return to another pool
    others_take: bool = False  # True: another pool can get nodes for the pods that wait
    # The requested replicas of such pools. Nodes that they gain replace released ones.
    others_requested: Mapping[str, int] = _NO_NODES
    held: Mapping[str, int] = _NO_NODES  # the nodes that a group holds for the pools of which its pool is a fallback
    # The step of another pool that takes a node of this pool, and that pool; None: there is none.
    taken_by: tuple[PoolId, Step] | None = None
    parts: Parts = _NO_PARTS  # the inputs of capabilities


@dataclass(slots=True)
class PoolDraft:
    """The unfinished plan of a pool. Each step of the planning changes only this draft."""

    pool: Pool
    now: datetime
    observation: Observation
    groups: list[Draft]
    snapshot: MemberSnapshot
    given: PoolInput
    # True: the pool is paused or in dry run. The only write to this pool raises max, so that autoscalers can order.
    opens: bool = False
    request: RequestDraft = field(default_factory=RequestDraft)
    replicas: ReplicasDraft = field(default_factory=ReplicasDraft)
    release: ReleaseDraft = field(default_factory=ReleaseDraft)
    bounds: BoundsDraft = field(default_factory=BoundsDraft)
    convergence: ConvergenceDraft = field(default_factory=ConvergenceDraft)
    demand: DemandDraft = field(default_factory=DemandDraft)
    parts: PartsDraft = field(default_factory=PartsDraft)
    check_at: list[datetime] = field(default_factory=list)  # when the plan may change even if nothing else changes
    problems: list[Problem] = field(default_factory=list)
    starved: int = 0  # the number of nodes that no healthy zone of the pool can get, counted by the step ``report``
    overcommitted: bool = False  # True: the plan requests more nodes than PoolMaximum, set by the step ``report``

    @property
    def requested(self) -> int:
        """Return the requested replicas of all groups."""
        return sum([draft.requested for draft in self.groups])

    @property
    def target(self) -> int:
        """Return the replicas of all groups that count for PoolMinimum and PoolMaximum."""
        return sum([draft.target for draft in self.groups])

    @property
    def surged_max(self) -> int:
        """Return PoolMaximum plus the nodes (0 or 1) above PoolMaximum that an open step may request."""
        return self.pool.max + self.convergence.surge

    @property
    def added_lately(self) -> int:
        """Return how many nodes the runs of the last seconds have added under max_step."""
        state = self.pool.state
        is_recent = state.added_at is not None and timedelta(0) <= self.now - state.added_at < STEPS_APART
        return state.added if is_recent else 0

    @property
    def may_raise(self) -> bool:
        """Return True if this plan may raise requested replicas to a minimum.

        If the pool has an autoscaler, the replicas must have been unchanged for ``standstill``. By then the autoscaler
        has ordered the nodes that pods need. An earlier raise would order these nodes twice.
        """
        pool, since = self.pool, self.replicas.unchanged_since
        if since is None:
            return False
        return not pool.settings.autoscaler or pool.state.seen is None or self.now >= since + pool.standstill

    @property
    def may_add(self) -> int:
        """Return how many nodes this plan may still add. A move between zones adds no node."""
        step = self.pool.settings.max_step
        return LARGEST_COUNT if step is None else max(0, step - self.added_lately - self.replicas.added)

    @property
    def moves(self) -> bool:
        """Return True if this plan moves replicas between zones, or an earlier move has unplaced replicas."""
        return bool(self.replicas.unplaced or self.pool.unplaced or any(draft.journal_delta for draft in self.groups))

    @property
    def awaited(self) -> Mapping[str, int] | None:
        """Return the number of nodes that pods wait for, by key of the group; None: the numbers are not fully known."""
        return None if self.given.demand is None else self.given.demand.awaited

    @property
    def idle(self) -> Mapping[str, int] | None:
        """Return the number of unneeded nodes by key of the group; None: the check did not look for them."""
        if self.given.demand is None or self.given.demand.unneeded is None:
            return None
        return Counter(str(node.group) for node in self.given.demand.unneeded)

    def problem(self, kind: ProblemKind, **facts: Fact) -> None:
        """Add a problem to report."""
        self.problems.append(Problem(kind, facts))

    @property
    def free(self) -> int:
        """Return how many nodes may be ordered under PoolMaximum; below 0: the pool has passed it.

        Nodes that bounds let other groups request are reserved, if the strategy's maxima add up to PoolMaximum.
        """
        reserved = self.reserved_nodes() if self.pool.settings.strategy.adds_up else 0
        return self.pool.max - reserved - self.target

    def reserved_nodes(self) -> int:
        """Return the number of reserved nodes: nodes that bounds let a group request, and Evenkeel cannot lower them.

        Groups that are frozen or have held bounds, and may grow, reserve the nodes between requested and max. If an
        owner accepts no max below 1, its empty group reserves one node while the group may not get nodes. If the bounds
        of all groups are held, nothing is reserved, because each group grows within its own bounds.
        """
        reserves, reserved = self.pool.settings.strategy.reserves, 0
        for draft in self.groups:
            reserved += draft.kept_room
            empty = max(0, draft.group.owner.least_max - draft.requested)
            if reserves and empty and draft.writable and not draft.takes:
                reserved += empty
        return 0 if reserved and all([draft.group.owner.bounds_held for draft in self.groups]) else reserved
