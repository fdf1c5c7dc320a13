"""The plan of a cluster, its pools and their groups, with reasons."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.convergence import Converging, Step
from evenkeel.domain.model.demand import Advice, PoolAdvice
from evenkeel.domain.model.groups import (
    PROVISION_TIMEOUT,
    Bounds,
    GroupKey,
    MachineRef,
    NodeGroup,
    PoolId,
    Rolling,
    State,
)
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


@dataclass(kw_only=True, slots=True)
class Removal:
    """The machines that may go where a group's replicas are lowered."""

    may_remove_running: bool = False  # on request: running nodes may go as well,
    keeps: frozenset[MachineRef] = frozenset()  # but not those of these machines
    machines: tuple[MachineRef, ...] = ()  # exactly these go, running or not; empty: the first in order


@dataclass(kw_only=True, slots=True)  # not frozen, which costs three times as much: a scan makes one per group
class GroupPlan:
    """The plan of one group. ``bounds`` None: Evenkeel does not write them."""

    group: NodeGroup
    state: State
    requested: int
    bounds: Bounds | None
    reasons: Sequence[Reason]
    rolling: Rolling | None = None
    failed_at: datetime | None = None  # of the failure that this plan is the first answer to
    journal_delta: int = 0  # of the change in requested: taken on from another zone or on request (negative: given up)
    removal: Removal = field(default_factory=Removal)
    provision_timeout: timedelta = PROVISION_TIMEOUT
    short_provision: timedelta | None = None  # provision time of an autoscaler while the group is suspect
    leaves: bool = False  # write the adopted bounds back and remove Evenkeel's annotations
    pins: bool = False  # the owner of the bounds holds replicas at max

    @property
    def changes(self) -> bool:
        """Return True if anything would be written to this group."""
        numbers = self.requested != self.group.requested or self.publishes
        return self.leaves or numbers or self.changes_options

    @property
    def publishes(self) -> bool:
        """Return True if bounds or pinning change."""
        return self.bounds != self.group.bounds or self.pins != self.group.ours.pinned

    @property
    def changes_options(self) -> bool:
        """Return True if an option of the autoscaler changes."""
        return self.short_provision != self.group.options.short_provision

    @property
    def is_throttled(self) -> bool:
        """Return True if other clusters' reports cap it at one machine more."""
        return any(reason.rule is Rule.THROTTLED for reason in self.reasons)

    @property
    def lowers_requested(self) -> bool:
        """Return True if machines will go."""
        return self.requested < self.group.requested


@dataclass(frozen=True, kw_only=True)
class PoolMode:
    """Why a plan of a pool is whole or not, and written or not."""

    valid: bool = True
    judged: bool = True  # False: left alone whole, so unplaced replicas and requests are unknown
    dry_run: bool | None = None  # True: it is not written; None: as the cluster
    autoscaler: bool = True  # one orders nodes for pods
    opens: bool = False  # paused or in dry run: its bounds open to autoscalers, and nothing else is written
    closes: bool = False  # max of a group is lower than the strategy says, so that no autoscaler orders


@dataclass(frozen=True, kw_only=True)
class PoolReport:
    """What a plan reports about a pool to people."""

    origins: tuple[Origin, ...] = ()  # where min and max come from
    notes: tuple[Reason, ...] = ()  # they need no action
    problems: tuple[Problem, ...] = ()
    starved: int = 0  # nodes that find no healthy zone that can take them
    overcommitted: bool = False
    contested: tuple[str, ...] = ()  # groups whose fields another writer reverts
    unmet_minimum: int = 0  # nodes of PoolMinimum that no group can take


@dataclass(frozen=True, kw_only=True)
class RequestPlan:
    """The rest of the request that a pool carries out, in numbers of nodes."""

    current: ScaleRequest | None = None  # the part that is not done yet
    missing: int = 0  # nodes that find no room, or have to stay
    later: int = 0  # nodes that are left to later runs


@dataclass(frozen=True, kw_only=True)
class ReplicasPlan:
    """The changes of a pool's replicas, in numbers of nodes."""

    unplaced_before: int = 0  # given up by an interrupted move, before this plan
    unplaced: int = 0  # of those and of this plan's, the ones that no group takes on
    added: int = 0  # by this plan and those of the last seconds, under max_step


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """Released replicas of a pool that are to be ordered again."""

    planned: Release | None = None  # of this plan's writes: stored before them
    untaken: int = 0  # released replicas that are not ordered again
    taker_due: datetime | None = None  # when they should be
    asks_waiting: bool = False  # the plan depends on waiting pods, which were not read


@dataclass(frozen=True, kw_only=True)
class ConvergencePlan:
    """The step of a pool's convergence, as the plan's patch leaves it."""

    step: Step | None = None  # stored before the patch
    report: Converging | None = None  # None: not requested
    # Groups whose drainable machine is needed -> the group where a machine comes first; empty: it is there.
    asks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DemandPlan:
    """The advice that a pool's plan follows."""

    advice: PoolAdvice | None = None  # None: not requested, or unknown
    asks_idle: bool = False  # the plan depends on unneeded nodes, which were not sought
    orders: Mapping[str, PastOrder] | None = None  # stored once it has ordered for pods; None: it does not


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """The plan of one pool."""

    id: PoolId
    known_as: PoolId | None = None  # the former id under which its state is stored
    strategy: Strategy
    min: int | None = None
    max: int | None = None
    groups: tuple[GroupPlan, ...] = ()
    next_state: PoolState  # to store
    mode: PoolMode = PoolMode()
    report: PoolReport = PoolReport()
    request: RequestPlan = RequestPlan()
    replicas: ReplicasPlan = ReplicasPlan()
    release: ReleasePlan = ReleasePlan()
    convergence: ConvergencePlan = ConvergencePlan()
    demand: DemandPlan = DemandPlan()
    relief: ReliefStep | None = None  # the write to its Shoot

    @property
    def awaits_check(self) -> bool:
        """Return whether known groups or owners of it are absent, and a second check must agree."""
        return self.mode.valid and not self.mode.judged

    @property
    def keeps_journal(self) -> bool:
        """Return whether max_step leaves nodes that were begun to a later run.

        A patch of the run that was interrupted may still arrive: the journal says then that it was done.
        """
        move, request = self.next_state.move, self.request.current
        is_begun = move is not None and request is not None and move.request == request.id
        return is_begun and not self.moves and request is not None and self.request.later > request.later

    @property
    def adopted(self) -> dict[str, Bounds | None]:
        """Return the bounds that each member had before Evenkeel, as far as known."""
        return {str(plan.group.key): adopted_bounds(plan.group, self.next_state) for plan in self.groups}

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """Return the groups that would be written."""
        return tuple(group for group in self.groups if group.changes)

    @property
    def moves(self) -> dict[str, int]:
        """Return the replicas that each group takes on or gives up; empty: none moves."""
        return {str(plan.group.key): plan.journal_delta for plan in self.groups if plan.journal_delta}

    @property
    def new_intents(self) -> tuple[Problem, ...]:
        """Return the new desired bounds at owners of bounds: the check that finds them reports them, once."""
        return tuple(problem for problem in self.report.problems if problem.kind is ProblemKind.NEW_INTENT)

    @property
    def headroom(self) -> int:
        """Return the nodes by which the pool may still grow."""
        requested = sum(plan.requested for plan in self.groups)
        return max(0, self.max - requested) if self.mode.valid and self.max is not None else 0

    @property
    def imbalance(self) -> int:
        """Return the running nodes of the fullest zone less those of the emptiest."""
        running = [plan.group.running for plan in self.groups]
        return max(running, default=0) - min(running, default=0)

    def digest(self, *, applied: bool) -> str:
        """Return a fingerprint of the report; empty for a quiet pool. Applied changes are not reported again."""
        held = [str(plan.group.key) for plan in self.groups if plan.group.owner.bounds_held]
        report = {
            **({"held": held} if held else {}),  # left out if empty: else every pool would have a report
            "problems": []
            if self.mode.valid
            else [[problem.kind, dict(problem.facts)] for problem in self.report.problems],
            "starved": self.report.starved,
            "overcommitted": self.report.overcommitted,
            "contested": list(self.report.contested),
            **self._relief_report,
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
        if not any(report.values()):
            return ""
        return hashlib.sha256(json.dumps(report, sort_keys=True, default=str).encode()).hexdigest()[:32]

    @property
    def _relief_report(self) -> dict[str, object]:
        """Return the new maximum of a Shoot, and the one that the garden has refused; empty for most pools."""
        refused = self.next_state.relief.refused if self.next_state.relief is not None else None
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
    """A request that no pool takes, with the problem."""

    scale_request: ScaleRequest
    problem: Problem

    @property
    def waits(self) -> bool:
        """Return True if it may be taken later."""
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
    """The result of one check of a cluster."""

    now: datetime
    pools: tuple[PoolPlan, ...]
    skipped: tuple[Skipped, ...]
    states: Mapping[GroupKey, GroupState]  # only changed ones
    refusals: tuple[Refusal, ...] = ()
    taken_off: tuple[TakenOff, ...] = ()
    pool_states: Mapping[PoolId, PoolState] = field(default_factory=dict)  # only changed ones
    check_at: datetime | None = None  # when time alone may first change this plan
    experiences: Mapping[Offering, Experience] = field(default_factory=dict)  # for other clusters
    demand: Advice | None = None  # None: not requested
    clock_skew: timedelta = timedelta(0)  # the API server's clock, which ``now`` follows, less Evenkeel's

    @property
    def asks(self) -> bool:
        """Return True if the plan depends on pods that were not read."""
        return any(pool.convergence.asks or pool.demand.asks_idle or pool.release.asks_waiting for pool in self.pools)

    @property
    def of_paused(self) -> "Plan":
        """Return the part that is carried out while the whole cluster is paused: pools open to autoscalers."""
        return Plan(
            now=self.now,
            pools=tuple(pool for pool in self.pools if pool.mode.opens),
            skipped=self.skipped,
            states={},
            clock_skew=self.clock_skew,
        )

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """Return all groups that would be written, in pool order."""
        return tuple(group for pool in self.pools for group in pool.changes)
