"""What should become of a cluster, its pools and their groups, and why."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.convergence import Converging, Step
from evenkeel.domain.model.demand import Advice, PoolAdvice
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineRef, NodeGroup, PoolId, Rolling, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.offerings import Experience, Offering
from evenkeel.domain.model.origins import Origin
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.pools import adopted_bounds
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.relief import ReliefStep
from evenkeel.domain.model.states import GroupState, PoolState, Release


@dataclass(kw_only=True, slots=True)  # not frozen, which costs three times as much: a scan makes one per group
class GroupPlan:
    """What should become of one group. ``bounds`` None: they are not ours to write."""

    group: NodeGroup
    state: State
    requested: int
    bounds: Bounds | None
    reasons: tuple[Reason, ...]
    rolling: Rolling | None = None
    failed_at: datetime | None = None  # when the failure happened that this plan is the first answer to
    journal_delta: int = 0  # of the change in requested: taken on from another zone or on request (negative: given up)
    may_remove_running: bool = False  # on request: running nodes may go as well,
    keeps: frozenset[MachineRef] = frozenset()  # but not those of these machines
    removes: tuple[MachineRef, ...] = ()  # of those that go, exactly these, which may run; none named: whoever is first
    provision_timeout: timedelta = timedelta(minutes=15)  # until which a machine of it is on its way
    short_provision: timedelta | None = None  # for which an autoscaler waits for its nodes while it is suspect
    leaves: bool = False  # put back what was found at adoption and take our annotations off
    pins: bool = False  # the owner of the bounds holds replicas at max

    @property
    def changes(self) -> bool:
        """Whether anything would be written to this group."""
        numbers = self.requested != self.group.requested or self.publishes
        return self.leaves or numbers or self.changes_options

    @property
    def publishes(self) -> bool:
        """Whether other bounds are to stand than do now, or in another way."""
        return self.bounds != self.group.bounds or self.pins != self.group.pinned

    @property
    def changes_options(self) -> bool:
        """Whether what an autoscaler is told of the group besides its bounds changes."""
        return self.short_provision != self.group.short_provision

    @property
    def is_throttled(self) -> bool:
        """Whether other clusters' words keep it at one machine more."""
        return any(reason.rule is Rule.THROTTLED for reason in self.reasons)

    @property
    def lowers_requested(self) -> bool:
        """Whether machines will go."""
        return self.requested < self.group.requested


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """What should become of one pool."""

    id: PoolId
    strategy: Strategy
    min: int | None
    max: int | None
    valid: bool
    groups: tuple[GroupPlan, ...]
    remembered: PoolState  # what is to be remembered of it from now on
    dry_run: bool | None = None  # whether nothing of it is written; None: as the cluster
    origins: tuple[Origin, ...] = ()  # where min and max come from
    notes: tuple[Reason, ...] = ()  # what people should know of it, and nothing has to be done about
    problems: tuple[Problem, ...] = ()
    starved: int = 0
    overcommitted: bool = False
    known_as: PoolId | None = None  # the pool's former id, where that is what is remembered of it stood under
    unplaced_before: int = 0  # replicas that an interrupted move gave up, as this look found it
    unplaced: int = 0  # of those and of what this plan gives up, what still finds no place
    contested: tuple[str, ...] = ()  # groups whose bounds somebody keeps putting back
    scale_request: ScaleRequest | None = None  # what somebody asked for, as far as it is not done yet
    missing: int = 0  # nodes of it that found no room, or have to stay
    request_later: int = 0  # nodes of it that are left to later runs
    added: int = 0  # nodes that this plan and those of the last seconds add under max_step
    unmet_minimum: int = 0  # nodes of PoolMinimum that no group can take
    relief: ReliefStep | None = None  # what is to be written to its Shoot
    autoscaler: bool = True  # one orders nodes for pods, and may give an order up
    closes: bool = False  # max of a group is lower than the strategy says, so that no autoscaler orders
    opens: bool = False  # paused or in dry run: its bounds are opened to autoscalers, and nothing else is written
    judged: bool = True  # False: left alone whole, so that this look says nothing of what is unplaced or asked for
    demand: PoolAdvice | None = None  # None: nobody has asked, or nobody knows
    step: Step | None = None  # of converge, as the patch of this plan is to leave it: written down before
    converging: Converging | None = None  # None: nobody wants it
    # Groups of which somebody has to say which machine may go -> the group where one comes before; empty: it is there.
    asks: Mapping[str, str] = field(default_factory=dict)
    asks_idle: bool = False  # whether it turns on nodes that nobody needs, and nobody has looked for them
    asks_waiting: bool = False  # whether it turns on pods that wait, and they were not read
    releases: Release | None = None  # what this plan's writes release: written down before
    untaken: int = 0  # released replicas that nobody has ordered again
    taker_due: datetime | None = None  # when somebody should have
    orders_after: Mapping[str, PastOrder] | None = None  # remembered once it has ordered for pods; None: it does not

    @property
    def awaits_check(self) -> bool:
        """Return whether known groups or owners of it are absent, and a second check must agree."""
        return self.valid and not self.judged

    @property
    def keeps_journal(self) -> bool:
        """Return whether max_step leaves nodes that were begun to a later run.

        A patch of the run that was interrupted may still arrive: the journal says then that it was done.
        """
        move, request = self.remembered.move, self.scale_request
        is_begun = move is not None and request is not None and move.request == request.id
        return is_begun and not self.moves and request is not None and self.request_later > request.later

    @property
    def adopted(self) -> dict[str, Bounds | None]:
        """The bounds that each member had before us, as far as it is known."""
        return {str(plan.group.key): adopted_bounds(plan.group, self.remembered) for plan in self.groups}

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """The groups that would be written."""
        return tuple(group for group in self.groups if group.changes)

    @property
    def moves(self) -> dict[str, int]:
        """What each group takes on or gives up; empty where nothing is moved."""
        return {str(plan.group.key): plan.journal_delta for plan in self.groups if plan.journal_delta}

    @property
    def new_intents(self) -> tuple[Problem, ...]:
        """What somebody has set anew at the owner of a group's bounds: told once, with the look that finds it."""
        return tuple(problem for problem in self.problems if problem.kind is ProblemKind.NEW_WISH)

    @property
    def headroom(self) -> int:
        """Nodes that the pool may still grow by."""
        requested = sum(plan.requested for plan in self.groups)
        return max(0, self.max - requested) if self.valid and self.max is not None else 0

    @property
    def imbalance(self) -> int:
        """Running nodes in the fullest zone less those in the emptiest."""
        running = [plan.group.running for plan in self.groups]
        return max(running, default=0) - min(running, default=0)

    def digest(self, *, applied: bool) -> str:
        """A fingerprint of what is worth telling; empty in a quiet pool. What has been applied is not told again."""
        held = [str(plan.group.key) for plan in self.groups if plan.group.bounds_held]
        news = {
            **({"held": held} if held else {}),  # not named where there are none: it would be news to every pool
            "problems": [] if self.valid else [[problem.kind, dict(problem.facts)] for problem in self.problems],
            "starved": self.starved,
            "overcommitted": self.overcommitted,
            "contested": list(self.contested),
            **self._relief_news,
            "incident": [
                [str(plan.group.key), "cautious" if plan.is_throttled else plan.state]
                for plan in self.groups
                if plan.state in (State.FENCED, State.PROBING) or plan.is_throttled
            ],
            "changes": []
            if applied
            else [
                [
                    str(g.group.key),
                    g.requested,
                    g.bounds and [g.bounds.min, g.bounds.max],
                    *(["pinned"] if g.pins else []),
                ]
                for g in self.changes
            ],
        }
        if not any(news.values()):
            return ""
        return hashlib.sha256(json.dumps(news, sort_keys=True, default=str).encode()).hexdigest()[:32]

    @property
    def _relief_news(self) -> dict[str, object]:
        """What a Shoot's maximum is to become, and what of it the garden has refused. Most pools have no such thing."""
        refused = self.remembered.relief.refused if self.remembered.relief is not None else None
        return {
            name: value
            for name, value in (
                ("relief", self.relief and self.relief.maximum),
                ("refused", refused and [refused.number, refused.generation]),
            )
            if value is not None
        }


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A request that no pool takes, and why."""

    scale_request: ScaleRequest
    problem: Problem

    @property
    def waits(self) -> bool:
        """Whether it may be taken later."""
        return self.problem.kind in (
            ProblemKind.REQUEST_POOL_INVALID,
            ProblemKind.REQUEST_BEHIND_REQUEST,
            ProblemKind.REQUEST_AWAITS_CHECK,
            ProblemKind.REQUEST_AWAITS_PODS,
        )


@dataclass(frozen=True, kw_only=True)
class TakenOff:
    """A request to give nodes back, and the nodes that it takes off the rests of other requests, by their ids."""

    scale_request: ScaleRequest
    nodes: Mapping[str, int]
    before: Mapping[str, int]  # taken off by a run that was interrupted


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that one look at a cluster leads to."""

    now: datetime
    pools: tuple[PoolPlan, ...]
    skipped: tuple[Skipped, ...]
    states: Mapping[GroupKey, GroupState]  # only those that the look has changed
    refusals: tuple[Refusal, ...] = ()  # growth on request that no pool takes
    taken_off: tuple[TakenOff, ...] = ()
    pool_states: Mapping[PoolId, PoolState] = field(default_factory=dict)  # only those that the look has changed
    look_at: datetime | None = None  # the first moment at which this plan could change by time alone
    experiences: Mapping[Offering, Experience] = field(default_factory=dict)  # what other clusters may want to hear
    demand: Advice | None = None  # None: nobody has asked
    clock_skew: timedelta = timedelta(0)  # the API server's clock, which ``now`` follows, less ours

    @property
    def asks(self) -> bool:
        """Whether pods have to say which machine may go, which node nobody needs, or who waits, and were not asked."""
        return any(pool.asks or pool.asks_idle or pool.asks_waiting for pool in self.pools)

    @property
    def of_paused(self) -> "Plan":
        """What of it is carried out while the whole cluster is paused: pools are opened to autoscalers."""
        return Plan(
            now=self.now,
            pools=tuple(pool for pool in self.pools if pool.opens),
            skipped=self.skipped,
            states={},
            clock_skew=self.clock_skew,
        )

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """All groups that would be written, in pool order."""
        return tuple(group for pool in self.pools for group in pool.changes)
