"""A pool while it is planned: one draft for it, and one for each of its groups, which the steps of a plan fill in."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.demand import KeptNodes, PoolAdvice
from evenkeel.domain.model.groups import Bounds, MachineRef, NodeGroup, Rolling, State
from evenkeel.domain.model.homing import Choices, Converging, Homing, Step
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule, because
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.states import STEPS_APART, Publication, Release, Sighting
from evenkeel.domain.model.values import LARGEST_COUNT


@dataclass(kw_only=True, slots=True)  # not frozen: the steps change it, and a scan makes one for each group
class Draft:
    """A group on its way from what it requests and publishes to what it should."""

    group: NodeGroup
    state: State
    requested: int
    moves_elsewhere: bool = True  # the failure's scope is the zone: other zones may take its stuck replicas
    tie: int = 0
    coming: int = 0  # machines without a node that are on their way
    starting: int = 0  # machines whose node is not Ready yet, and may still become so
    held: int = 0  # machines without a node that say themselves that another zone would fail the same way
    replicas_are_ours: bool = True  # False: somebody keeps putting them back
    contested: bool = False  # somebody keeps putting back what we write
    cautious_max: int | None = (
        None  # where other clusters could not buy the same: one more than stood when they said so
    )
    slow_start_max: int | None = None  # where a zone has begun to deliver again: what runs and may be on its way
    step_max: int | None = None  # while a step of converge is open: what it requests, so that nobody else orders there
    stays: bool = False  # a machine has come with a step of converge: it keeps what it requests
    provision_timeout: timedelta = timedelta(minutes=15)  # until which a machine of it is on its way
    fence_ends: datetime | None = None  # when the fence ends by itself
    failed_at: datetime | None = None  # when the failure happened that this plan is the first answer to
    doubted_since: datetime | None = None  # where it is probing: when it has failed last
    journal_delta: int = 0  # replicas taken on from another zone or on request (negative: given up)
    may_remove_running: bool = False  # on request: running nodes may go as well,
    keeps: frozenset[MachineRef] = frozenset()  # but not those of these machines
    removes: tuple[MachineRef, ...] = ()  # exactly these go (domain/replicas/removal.py)
    marked: tuple[str, ...] = ()  # machines that carry a delete mark of ours
    stuck_kept: int = 0  # stuck replicas that stay because nobody healthy can take them
    bounds: Bounds | None = None  # to be published; None: they are not ours to write
    short_provision: timedelta | None = None  # for which an autoscaler waits for its nodes while it is suspect
    closes: bool = False  # max is lower than the strategy says, so that no autoscaler orders
    pins: bool = False  # and replicas are to be held at max
    rolling: Rolling | None = None  # its share of the pool's rolling-update numbers, for people
    reasons: list[Reason] = field(default_factory=list)

    def because(self, rule: Rule, **facts: Fact) -> None:
        """Another reason for what becomes of the group."""
        self.reasons.append(Reason(rule, facts))

    @property
    def key(self) -> str:
        """Its name in what a pool remembers."""
        return str(self.group.key)

    @property
    def room(self) -> int:
        """How far the group may be raised: the operator's cap, the owner of the replicas', what its zone has shown."""
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
        """How many nodes pods that wait may ask it for. A zone that is tried is tried with one machine.

        Published bounds are no limit to that: they follow what is requested, and no autoscaler reads them.
        """
        if self.group.closed_because is not None:
            return 0
        if self.state is State.PROBING:
            return min(self.room, self.probe)
        return self.room if self.state is State.HEALTHY else 0

    @property
    def kept_room(self) -> int:
        """Room under PoolMaximum that is spoken for, because the bounds stay: the group is frozen, or they are held."""
        stay = self.state is State.FROZEN or self.group.bounds_held
        if not stay or self.group.bounds is None:
            return 0
        return max(0, self.group.bounds.max - self.requested)

    @property
    def cap(self) -> int | None:
        """The most that operator, owner of the replicas, others' words and a slow start let it grow to; None: any."""
        share = None if self.group.worker_range is None else self.group.worker_range.max
        caps = (self.group.zone_max, share, self.cautious_max, self.slow_start_max, self.step_max)
        return min([cap for cap in caps if cap is not None], default=None)

    @property
    def zone_share(self) -> int:
        """What ``evenkeel.dev/zone-min`` keeps of what the group requests; where it is fenced, of what runs."""
        there = min(self.group.running, self.requested) if self.state is State.FENCED else self.requested
        return min(self.group.zone_min or 0, there)

    @property
    def probe(self) -> int:
        """How far a probing group may grow: by one machine, unless one is on its way already."""
        return 0 if self.group.running - self.starting + self.group.preserved < self.requested else 1

    @property
    def owner_min(self) -> int:
        """The least that the owner of the replicas, or of the bounds, lets stand."""
        if not self.replicas_are_ours:
            return self.requested
        return max(self.group.worker_range.min if self.group.worker_range else 0, self.group.owner_min_min)

    def is_far_below(self, other: "Draft") -> bool:
        """Whether it would not pass the other with one node more and the other one less, by weight: two nodes apart,
        where weights are equal.
        """
        return (self.requested + 1) * other.group.weight <= (other.requested - 1) * self.group.weight

    @property
    def keeps_all(self) -> Reason | None:
        """Why none of its machines can be taken away by name now; None: some may be."""
        group = self.group
        if self.state is State.FROZEN:
            return because(Rule.IN_STATE, state=self.state.value)
        if not self.replicas_are_ours:
            return because(Rule.REPLICAS_OF_OTHERS)
        if group.launched is not None:
            return because(Rule.NO_MACHINE_CAN_BE_NAMED, kind=group.kind)
        if self.requested != group.requested:
            return because(Rule.REPLICAS_CHANGE, before=group.requested, after=self.requested)
        return None if group.machines is None else disagree(group.machines, group.requested, self.marked)

    @property
    def alive(self) -> int:
        """Replicas that have a node, a machine on its way to one, or one that is preserved: they cannot be given up."""
        return min(self.group.requested, self.group.running + self.group.preserved + self.coming)

    @property
    def stuck(self) -> int:
        """Replicas that neither run nor are on their way."""
        return self.group.requested - self.alive

    @property
    def counted(self) -> int:
        """The count that GEP-24's formulas work on: requested; of a fenced group running and on its way."""
        return self.alive if self.state is State.FENCED else self.group.requested

    @property
    def missing(self) -> int:
        """Stuck replicas that nobody takes over: kept by a fence, or held although the group is tried again."""
        if self.state in (State.HEALTHY, State.PROBING):
            return min(self.held, self.stuck)
        return self.stuck_kept

    @property
    def is_held(self) -> bool:
        """Whether its replicas stay although its machines fail: another zone would fail the same way."""
        return self.state is State.FENCED and not self.moves_elsewhere


@dataclass(kw_only=True, slots=True)
class PoolDraft:
    """A pool while it is planned. A step changes the draft, and nothing else."""

    pool: Pool
    now: datetime
    groups: list[Draft]
    sighting: Sighting
    grower: str = ""  # key of the group that others have let grow most since the last look
    ceiling: int = 0  # PoolMaximum less the room that is spoken for, as it was found
    request: ScaleRequest | None = None  # nodes that somebody asked for, this pool's turn
    advice: PoolAdvice | None = None  # what pods and nodes say of it; None: nobody can say
    request_waits: ScaleRequest | None = None  # the same, while a move between zones is not ended
    kept: KeptNodes | None = None  # nodes that a request leaves alone; None: no request asks, or pods were not read
    pods_unread: bool = False  # pods were asked for and could not be read
    release: Release | None = None  # what was released before, and is not ordered again yet
    releases: Release | None = None  # the same, as this plan's writes leave it; None: it releases nothing
    untaken: int = 0  # replicas of the first that no group has gained since
    waited_for: Mapping[str, int] | None = None  # nodes that pods want of those, by group; None: pods were not read
    asks_waiting: bool = False  # whether it turns on that
    closed: bool = False  # no autoscaler is to order in it: what was released is ordered by us
    orders_at: datetime | None = None  # when what no autoscaler has ordered by then is ordered; None: it is, or waits
    opens: bool = False  # Evenkeel stops acting on it: it is opened to autoscalers, and nothing else is written
    open_for: Mapping[str, int] = field(default_factory=dict)  # nodes that one may order all the same, by group
    unmet: int = 0  # nodes of the request that found no room, or have to stay
    added: int = 0  # nodes that this plan adds: to a minimum, as a probe, on request
    later: int = 0  # nodes that max_step leaves to later runs
    request_later: int = 0  # nodes of the request that are left to later runs
    unplaced: int = 0  # replicas given up, by this look or a move before it, that found no place
    stood_since: datetime | None = None  # since when requested is as it is, what this plan takes away included
    raises: bool = False  # requested has stood still for long enough to be raised
    missing: int = 0  # nodes of PoolMinimum that found no place
    sizes: Sequence[Size] = ()  # what the strategy says, group by group
    publication: Publication | None = None  # what Balanced has dealt out
    deal_ends: datetime | None = None  # when time alone may change that
    held_until: datetime | None = None  # when the last hold of level shrink ends, or has ended
    homing: Homing = field(default_factory=Homing)  # what is remembered for converge
    step: Step | None = None  # of converge, as this plan's patch is to leave it
    surge: int = 0  # nodes above PoolMaximum that an open step may have
    converging: Converging | None = None  # what is told of converge
    choices: Choices = field(default_factory=dict)  # which machines may go, of the groups that this was asked of
    asks_idle: bool = False  # whether it turns on nodes that nobody needs, and nobody has looked for them
    asks: dict[str, str] = field(default_factory=dict)  # groups of which it is to be asked -> where a node is to come
    look_at: list[datetime] = field(default_factory=list)  # moments at which time alone may change the plan
    problems: list[Problem] = field(default_factory=list)

    @property
    def requested(self) -> int:
        """Of all groups together."""
        return sum([draft.requested for draft in self.groups])

    @property
    def most(self) -> int:
        """PoolMaximum, and the node above it that an open step may have."""
        return self.pool.max + self.surge

    @property
    def added_lately(self) -> int:
        """Return how many nodes the runs of the last seconds have added under max_step."""
        state = self.pool.state
        is_late = state.added_at is not None and timedelta(0) <= self.now - state.added_at < STEPS_APART
        return state.added if is_late else 0

    @property
    def may_add(self) -> int:
        """Return how many nodes this plan may still add. A move between zones is no addition."""
        most = self.pool.max_step
        return LARGEST_COUNT if most is None else max(0, most - self.added_lately - self.added)

    def add(self, added: int, wanted: int) -> int:
        """Count nodes that this plan adds, and return how many of the wanted ones max_step leaves to later runs.

        If max_step is not used up, what is still missing has another cause.
        """
        self.added += added
        return 0 if self.may_add else max(0, wanted - added)

    @property
    def moves(self) -> bool:
        """Whether anything goes from one zone to another, or is owed by a move before."""
        return bool(self.unplaced or self.pool.unplaced or any(draft.journal_delta for draft in self.groups))

    @property
    def awaited(self) -> Mapping[str, int] | None:
        """Nodes that pods wait for, by key of the group; None: not known, or not of every pod that waits."""
        if self.advice is None or self.advice.not_counted:
            return None
        return {str(group): nodes for group, nodes in self.advice.asked.nodes.items()}

    @property
    def idle(self) -> Mapping[str, int] | None:
        """Nodes that nobody needs, by key of the group; None: nobody has looked for them."""
        if self.advice is None or not self.advice.nodes:
            return None
        return Counter(str(node.group) for node in self.advice.nodes if node.needed is None)

    def problem(self, kind: ProblemKind, **facts: Fact) -> None:
        self.problems.append(Problem(kind, facts))

    @property
    def free_on_request(self) -> int:
        """Nodes that PoolMaximum leaves to requests. Room that is spoken for counts where headroom is dealt out: else
        the maxima would pass PoolMaximum.
        """
        reserved = self.spoken_for() if self.pool.strategy.reserves else 0
        return max(0, self.pool.max - reserved - self.requested)

    def least_of(self, draft: Draft) -> int:
        """The least that a group is left with when nodes are taken away.

        Where a strategy publishes no minima, those that stand there are PoolMinimum dealt out, and no wish of the zone.
        """
        low = max(draft.owner_min, draft.group.zone_min or 0)
        if self.pool.strategy.publishes_minima and self.sizes:
            low = max(low, next(size.min for each, size in zip(self.groups, self.sizes, strict=True) if each is draft))
        return low

    def spoken_for(self) -> int:
        """Room under PoolMaximum that nobody may be raised into: what frozen groups keep free, and owners insist on.

        A group whose owner accepts no max below 1 keeps that one node offered while it is empty, unless it is raised
        itself. Where the bounds of all groups are held, each is raised into its own.
        """
        if all(draft.group.bounds_held for draft in self.groups):
            return 0
        reserved = sum([draft.kept_room for draft in self.groups])
        if not self.pool.strategy.reserves:
            return reserved
        return reserved + sum(
            max(0, draft.group.owner_min_max - draft.requested)
            for draft in self.groups
            if draft.state is not State.FROZEN and not (draft.state is State.HEALTHY and draft.room)
        )
