"""A pool while it is planned: one draft for it, and one for each of its groups, which the steps of a plan fill in."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.convergence import Choices, ConvergenceState, Converging, Step
from evenkeel.domain.model.demand import KeptNodes, PoolAdvice
from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.states import STEPS_APART, MemberSnapshot, Publication, Release
from evenkeel.domain.model.values import LARGEST_COUNT

_CAP_RULES = (Rule.CAUTIOUS_MAX, Rule.SLOW_START_MAX, Rule.STEP_MAX, Rule.WORKER_SHARE, Rule.ZONE_MAX)


@dataclass(kw_only=True, slots=True)
class MachineCounts:
    """Machines of a group that are no Ready nodes."""

    coming: int = 0  # without a node, on their way
    starting: int = 0  # whose node is not Ready yet, and may still become so
    held: int = 0  # without a node, whose own failure another zone would have too
    marked: tuple[str, ...] = ()  # with a delete mark of Evenkeel's


@dataclass(kw_only=True, slots=True)
class GrowthCaps:
    """The most replicas of a group while its zone is in doubt. None: no cap."""

    throttled: int | None = None  # other clusters have reported no capacity: one more than it requested then
    slow_start: int | None = None  # its zone delivers again: the running nodes, and those that may be on their way
    step: int | None = None  # a step of converge is open: no autoscaler orders here meanwhile


@dataclass(kw_only=True, slots=True)  # not frozen: the steps change it, and a check makes one for each group
class Draft(GroupPlan):
    """The plan of a group as the steps so far leave it, and what they decide by."""

    bounds: Bounds | None = None
    reasons: list[Reason] = field(default_factory=list)
    moves_elsewhere: bool = True  # the failure's scope is the zone: other zones may take its stuck replicas
    tie: int = 0
    machines: MachineCounts = field(default_factory=MachineCounts)
    growth: GrowthCaps = field(default_factory=GrowthCaps)
    replicas_are_ours: bool = True  # False: another writer owns them
    contested: bool = False  # another writer reverts what Evenkeel writes
    protected: bool = False  # a machine has come with a step of converge: min keeps it
    fence_ends: datetime | None = None
    doubted_since: datetime | None = None  # of a probing group: its last failure
    stuck_kept: int = 0  # stuck replicas that stay because no healthy group can take them
    closes: bool = False  # max is lower than the strategy says, so that no autoscaler orders

    def add_reason(self, rule: Rule, **facts: Fact) -> None:
        """Add a reason for the group's replicas or bounds."""
        self.reasons.append(Reason(rule, facts))

    @property
    def key(self) -> str:
        """Return the group's name in the state of its pool."""
        return str(self.group.key)

    @property
    def _caps(self) -> tuple[int | None, ...]:
        share = self.group.owner.allowed_replicas
        owner_max = None if share is None else share.max
        return (
            self.growth.throttled,
            self.growth.slow_start,
            self.growth.step,
            owner_max,
            self.group.annotations.zone_max,
        )

    @property
    def caps(self) -> list[tuple[Rule, int]]:
        """Return every cap on growth with its rule: doubt in the zone, the owner of the replicas, the operator."""
        return [(rule, cap) for rule, cap in zip(_CAP_RULES, self._caps, strict=True) if cap is not None]

    @property
    def cap(self) -> int | None:
        """Return the lowest cap on growth; None: there is none."""
        return min([cap for cap in self._caps if cap is not None], default=None)

    @property
    def room(self) -> int:
        """Return how far the group may be raised, whatever its state."""
        if not self.replicas_are_ours:
            return 0
        cap = self.cap
        return max(0, (LARGEST_COUNT if cap is None else cap) - self.requested)

    @property
    def takes_nodes(self) -> bool:
        """Return whether the group is healthy and may be raised."""
        return self.state is State.HEALTHY and self.room > 0

    @property
    def room_for_pods(self) -> int:
        """Return how many nodes waiting pods may request: any number if healthy, one if probing, else none.

        Published bounds are no limit: they follow the replicas, and no autoscaler reads them.
        """
        if self.group.template.closed_because is not None:
            return 0
        if self.state is State.PROBING:
            return min(self.room, self.probe)
        return self.room if self.state is State.HEALTHY else 0

    @property
    def probe(self) -> int:
        """Return how far a probing group may grow: by one machine, unless one is on its way already."""
        return 0 if self.group.running - self.machines.starting + self.group.preserved < self.requested else 1

    @property
    def kept_room(self) -> int:
        """Return the room under PoolMaximum that bounds keep which stay: the group is frozen, or they are held."""
        stay = self.state is State.FROZEN or self.group.owner.bounds_held
        if not stay or self.group.bounds is None:
            return 0
        return max(0, self.group.bounds.max - self.requested)

    @property
    def zone_share(self) -> int:
        """Return the replicas that ``evenkeel.dev/zone-min`` keeps; of a fenced group only running ones."""
        replicas = min(self.group.running, self.requested) if self.state is State.FENCED else self.requested
        return min(self.group.annotations.zone_min or 0, replicas)

    @property
    def owner_min(self) -> int:
        """Return the fewest replicas that the owner of replicas or bounds accepts."""
        if not self.replicas_are_ours:
            return self.requested
        return max(
            self.group.owner.allowed_replicas.min if self.group.owner.allowed_replicas else 0,
            self.group.owner.least_min,
        )

    def is_far_below(self, other: "Draft") -> bool:
        """Return True if one node more here and one less there does not make this group the fuller one, by weight.

        With equal weights that is two nodes apart.
        """
        return (self.requested + 1) * other.group.annotations.weight <= (
            other.requested - 1
        ) * self.group.annotations.weight

    @property
    def drain_blocked_by(self) -> Reason | None:
        """Return why none of its machines can be removed by name now; None: some may be."""
        group = self.group
        if self.state is State.FROZEN:
            return Reason.of(Rule.IN_STATE, state=self.state.value)
        if not self.replicas_are_ours:
            return Reason.of(Rule.REPLICAS_OF_OTHERS)
        if group.status.launched is not None:
            return Reason.of(Rule.NO_MACHINE_CAN_BE_NAMED, kind=group.identity.kind)
        if self.requested != group.requested:
            return Reason.of(Rule.REPLICAS_CHANGE, before=group.requested, after=self.requested)
        return None if group.machines is None else disagree(group.machines, group.requested, self.machines.marked)

    @property
    def alive(self) -> int:
        """Return the replicas with a node, a machine on its way to one, or a preserved machine: they stay."""
        return min(self.group.requested, self.group.running + self.group.preserved + self.machines.coming)

    @property
    def stuck(self) -> int:
        """Return the replicas that neither run nor are on their way."""
        return self.group.requested - self.alive

    @property
    def counted(self) -> int:
        """Return the count for GEP-24's formulas: requested; of a fenced group running and on its way."""
        return self.alive if self.state is State.FENCED else self.group.requested

    @property
    def missing(self) -> int:
        """Return the stuck replicas that no group takes over: kept by a fence, or held while the group is tried."""
        if self.state in (State.HEALTHY, State.PROBING):
            return min(self.machines.held, self.stuck)
        return self.stuck_kept

    @property
    def is_held(self) -> bool:
        """Return True if its replicas stay although its machines fail: another zone would fail the same way."""
        return self.state is State.FENCED and not self.moves_elsewhere


@dataclass(kw_only=True, slots=True)
class RequestDraft:
    """The request that a pool carries out, in numbers of nodes."""

    current: ScaleRequest | None = None
    waits: ScaleRequest | None = None  # the same, while a move between zones is not ended
    kept: KeptNodes | None = None  # nodes that it leaves alone; None: no request needs it, or pods were not read
    pods_unread: bool = False  # pods were requested and could not be read
    unmet: int = 0  # nodes that find no room, or have to stay
    later: int = 0  # nodes that are left to later runs


@dataclass(kw_only=True, slots=True)
class ReplicasDraft:
    """The changes of a pool's replicas, in numbers of nodes."""

    added: int = 0  # by this plan: to a minimum, as a probe, on request
    later: int = 0  # left to later runs by max_step
    unplaced: int = 0  # given up, by this plan or an earlier move, and taken on by no group
    missing: int = 0  # of PoolMinimum, that no group can take
    unchanged_since: datetime | None = None  # since when requested is unchanged, removals of this plan included
    raises: bool = False  # requested is unchanged for long enough to be raised


@dataclass(kw_only=True, slots=True)
class ReleaseDraft:
    """Replicas that wait to be ordered again (``domain.rebalancing.replicas.release``)."""

    stored: Release | None = None  # an earlier release that is not ordered again yet
    planned: Release | None = None  # the same, as this plan's writes leave it; None: it releases nothing
    untaken: int = 0  # replicas of the stored one that no group has gained since
    waited_for: Mapping[str, int] | None = None  # nodes that pods want of those, by group; None: pods were not read
    asks_waiting: bool = False  # the plan depends on that
    closed: bool = False  # no autoscaler may order in the pool: Evenkeel orders the released nodes
    orders_at: datetime | None = None  # when Evenkeel orders it; None: it is ordered, or waits
    open_for: Mapping[str, int] = field(default_factory=dict)  # nodes that an autoscaler may still order, by group


@dataclass(kw_only=True, slots=True)
class BoundsDraft:
    """What the bounds of a pool follow from."""

    pool_max: int = 0  # PoolMaximum less the reserved room, before the first step
    grower: str = ""  # key of the group that others have raised most since the last check
    sizes: Sequence[Size] = ()  # of the strategy, group by group
    publication: Publication | None = None  # of Balanced
    deal_ends: datetime | None = None  # when time alone may change that
    held_until: datetime | None = None  # when the last hold of level shrink ends, or has ended


@dataclass(kw_only=True, slots=True)
class ConvergenceDraft:
    """The step of a pool's convergence."""

    state: ConvergenceState = field(default_factory=ConvergenceState)
    step: Step | None = None  # as this plan's patch is to leave it
    surge: int = 0  # nodes above PoolMaximum that an open step may have
    report: Converging | None = None
    choices: Choices = field(default_factory=dict)  # machines that may be drained, of the groups that were asked for
    asks: dict[str, str] = field(default_factory=dict)  # groups to ask for -> where a node is to come


@dataclass(kw_only=True, slots=True)
class DemandDraft:
    """The advice that a pool's requests for pods follow from."""

    advice: PoolAdvice | None = None  # None: not requested, or pods were not read
    asks_idle: bool = False  # the plan depends on unneeded nodes, which were not sought


@dataclass(kw_only=True, slots=True)
class PoolDraft:
    """A pool while it is planned. A step changes the draft, and nothing else."""

    pool: Pool
    now: datetime
    observation: Observation
    groups: list[Draft]
    snapshot: MemberSnapshot
    opens: bool = False  # Evenkeel stops acting on it: its bounds open to autoscalers, and nothing else is written
    request: RequestDraft = field(default_factory=RequestDraft)
    replicas: ReplicasDraft = field(default_factory=ReplicasDraft)
    release: ReleaseDraft = field(default_factory=ReleaseDraft)
    bounds: BoundsDraft = field(default_factory=BoundsDraft)
    convergence: ConvergenceDraft = field(default_factory=ConvergenceDraft)
    demand: DemandDraft = field(default_factory=DemandDraft)
    check_at: list[datetime] = field(default_factory=list)  # when time alone may change the plan
    problems: list[Problem] = field(default_factory=list)

    @property
    def requested(self) -> int:
        """Return the replicas of all groups together."""
        return sum([draft.requested for draft in self.groups])

    @property
    def surged_max(self) -> int:
        """Return PoolMaximum, and the node above it that an open step may have."""
        return self.pool.max + self.convergence.surge

    @property
    def starved(self) -> int:
        """Return how many nodes find no healthy zone that can take them."""
        if all(draft.state is State.FROZEN for draft in self.groups):
            return self.replicas.unplaced  # paused or hibernated: its nodes do not wait for a zone
        return self.replicas.missing + self.replicas.unplaced + sum(draft.missing for draft in self.groups)

    @property
    def added_lately(self) -> int:
        """Return how many nodes the runs of the last seconds have added under max_step."""
        state = self.pool.state
        is_recent = state.added_at is not None and timedelta(0) <= self.now - state.added_at < STEPS_APART
        return state.added if is_recent else 0

    @property
    def may_add(self) -> int:
        """Return how many nodes this plan may still add. A move between zones is no addition."""
        step = self.pool.settings.max_step
        return LARGEST_COUNT if step is None else max(0, step - self.added_lately - self.replicas.added)

    def add(self, added: int, wanted: int) -> int:
        """Count nodes that this plan adds, and return how many of the wanted ones max_step leaves to later runs.

        If max_step is not used up, missing nodes have another cause.
        """
        self.replicas.added += added
        return 0 if self.may_add else max(0, wanted - added)

    @property
    def moves(self) -> bool:
        """Return True if replicas go from one zone to another, or an earlier move still owes some."""
        return bool(self.replicas.unplaced or self.pool.unplaced or any(draft.journal_delta for draft in self.groups))

    @property
    def awaited(self) -> Mapping[str, int] | None:
        """Return the nodes that pods wait for, by key of the group; None: unknown, or some pods are not counted."""
        if self.demand.advice is None or self.demand.advice.not_counted:
            return None
        return {str(group): nodes for group, nodes in self.demand.advice.asked.nodes.items()}

    @property
    def idle(self) -> Mapping[str, int] | None:
        """Return the number of unneeded nodes by key of the group; None: they were not sought."""
        if self.demand.advice is None or not self.demand.advice.nodes:
            return None
        return Counter(str(node.group) for node in self.demand.advice.nodes if node.needed is None)

    def problem(self, kind: ProblemKind, **facts: Fact) -> None:
        """Add a problem to report."""
        self.problems.append(Problem(kind, facts))

    @property
    def free_on_request(self) -> int:
        """Return the nodes that PoolMaximum leaves to requests.

        Reserved room counts where the strategy deals out headroom: else the maxima would pass PoolMaximum.
        """
        reserved = self.spoken_for() if self.pool.settings.strategy.reserves else 0
        return max(0, self.pool.max - reserved - self.requested)

    def least_of(self, draft: Draft) -> int:
        """Return the fewest replicas that a group is left with when nodes are removed.

        Where a strategy publishes no minima, the published ones are PoolMinimum dealt out, and no limit of the zone.
        """
        low = max(draft.owner_min, draft.group.annotations.zone_min or 0)
        if self.pool.settings.strategy.publishes_minima and self.bounds.sizes:
            sizes = zip(self.groups, self.bounds.sizes, strict=True)
            low = max(low, next(size.min for other, size in sizes if other is draft))
        return low

    def spoken_for(self) -> int:
        """Return the reserved room under PoolMaximum: what frozen groups keep free, and the floors of owners.

        A group whose owner accepts no max below 1 keeps that one node offered while it is empty, unless it is raised
        itself. Where the bounds of all groups are held, each is raised into its own.
        """
        if all(draft.group.owner.bounds_held for draft in self.groups):
            return 0
        reserved = sum([draft.kept_room for draft in self.groups])
        if not self.pool.settings.strategy.reserves:
            return reserved
        return reserved + sum(
            max(0, draft.group.owner.least_max - draft.requested)
            for draft in self.groups
            if draft.state is not State.FROZEN and not draft.takes_nodes
        )
