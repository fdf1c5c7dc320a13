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
    """Which machines are deleted if the plan lowers a group's replicas."""

    may_remove_running: bool = False  # True: a request to remove nodes may delete running machines, too
    keeps: frozenset[MachineRef] = frozenset()  # machines that such a request does not delete
    # Exactly these machines are deleted, running or not; empty: the first in deletion order.
    machines: tuple[MachineRef, ...] = ()


# Not frozen: a frozen object takes three times as long to create, and a scan creates one for each group.
@dataclass(kw_only=True, slots=True)
class GroupPlan:
    """The plan of one group. If ``bounds`` is None, Evenkeel does not write bounds."""

    group: NodeGroup
    state: State
    requested: int
    bounds: Bounds | None
    reasons: Sequence[Reason]
    rolling: Rolling | None = None
    failed_at: datetime | None = None  # the group's last failure, if this plan is the first since that failure
    # Replicas that the journal stores: gained from another zone or on request (negative: lost).
    journal_delta: int = 0
    removal: Removal = field(default_factory=Removal)
    provision_timeout: timedelta = PROVISION_TIMEOUT
    short_provision: timedelta | None = None  # provision timeout for the autoscaler while the group is suspect
    leaves: bool = False  # True: restore the adopted bounds and remove Evenkeel's annotations
    pins: bool = False  # True: the owner of the bounds holds replicas at max

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
        """Return True if other clusters' reports limit the group to one more machine."""
        return any(reason.rule is Rule.THROTTLED for reason in self.reasons)

    @property
    def lowers_requested(self) -> bool:
        """Return True if the plan lowers the group's replicas."""
        return self.requested < self.group.requested


@dataclass(frozen=True, kw_only=True)
class PoolMode:
    """Which parts of a pool are planned, and which parts of the plan are written."""

    valid: bool = True
    judged: bool = True  # False: nothing is planned, so unplaced replicas and requests are unknown
    dry_run: bool | None = None  # True: nothing is written; None: the cluster's setting applies
    autoscaler: bool = True  # True: an autoscaler orders nodes for pods
    opens: bool = False  # True: paused or dry run; Evenkeel only raises bounds, so that autoscalers can order again
    closes: bool = False  # True: a group's max is below the strategy's max, so that no autoscaler orders there


@dataclass(frozen=True, kw_only=True)
class PoolReport:
    """The part of a pool's plan that is reported to people."""

    origins: tuple[Origin, ...] = ()  # the origins of min and max
    notes: tuple[Reason, ...] = ()  # reasons that need no action
    problems: tuple[Problem, ...] = ()
    starved: int = 0  # requested nodes that no healthy zone can take
    overcommitted: bool = False
    contested: tuple[str, ...] = ()  # groups whose fields another writer reverts
    unmet_minimum: int = 0  # nodes of PoolMinimum that no group can take


@dataclass(frozen=True, kw_only=True)
class RequestPlan:
    """The scale request that a pool carries out, and what remains of it, in nodes."""

    current: ScaleRequest | None = None  # the part of the request that is not done yet; None: there is no request
    missing: int = 0  # nodes that no group can add, or nodes that cannot be removed
    later: int = 0  # nodes that later runs add


@dataclass(frozen=True, kw_only=True)
class ReplicasPlan:
    """The changes of a pool's replicas, in numbers of nodes."""

    unplaced_before: int = 0  # replicas that an interrupted move gave up and no group has taken on yet
    unplaced: int = 0  # unplaced replicas after this plan, including those that this plan gives up
    added: int = 0  # nodes that count against max_step: added by this plan and by runs of the last seconds


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """Released replicas of a pool that are to be ordered again."""

    planned: Release | None = None  # the release by this plan, stored before its writes; None: it releases nothing
    untaken: int = 0  # released replicas that are not ordered again yet
    taker_due: datetime | None = None  # the time by which the untaken replicas should be ordered; None: there are none
    asks_waiting: bool = False  # True: the plan depends on pending pods, which were not read


@dataclass(frozen=True, kw_only=True)
class ConvergencePlan:
    """The step of converge in a pool."""

    step: Step | None = None  # the step after this plan's patch, stored before the patch; None: no patch
    report: Converging | None = None  # None: converge is off
    # Key of a group with a machine to choose -> key of the group that gets a node first; empty: that node runs already.
    asks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DemandPlan:
    """The advice that a pool's plan follows."""

    advice: PoolAdvice | None = None  # None: not requested, or unknown
    asks_idle: bool = False  # True: the plan depends on unneeded nodes, which this check did not look for
    orders: Mapping[str, PastOrder] | None = None  # to store once this plan has ordered for pods; None: it orders none


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """The plan of one pool."""

    id: PoolId
    known_as: PoolId | None = None  # the former id under which its state is stored
    strategy: Strategy
    min: int | None = None
    max: int | None = None
    groups: tuple[GroupPlan, ...] = ()
    next_state: PoolState  # the state to store
    mode: PoolMode = PoolMode()
    report: PoolReport = PoolReport()
    request: RequestPlan = RequestPlan()
    replicas: ReplicasPlan = ReplicasPlan()
    release: ReleasePlan = ReleasePlan()
    convergence: ConvergencePlan = ConvergencePlan()
    demand: DemandPlan = DemandPlan()
    relief: ReliefStep | None = None  # the write to the pool's Shoot; None: no write

    @property
    def awaits_check(self) -> bool:
        """Return True if known groups or owners of the pool are absent, and a second check must confirm this."""
        return self.mode.valid and not self.mode.judged

    @property
    def keeps_journal(self) -> bool:
        """Return True if max_step defers nodes of an interrupted run to a later run.

        If a patch of the interrupted run still arrives, the unchanged journal shows that the patch was done.
        """
        move, request = self.next_state.move, self.request.current
        is_begun = move is not None and request is not None and move.request == request.id
        return is_begun and not self.moves and request is not None and self.request.later > request.later

    @property
    def adopted(self) -> dict[str, Bounds | None]:
        """Return the bounds that each member had before Evenkeel's first write, as far as known."""
        return {str(plan.group.key): adopted_bounds(plan.group, self.next_state) for plan in self.groups}

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """Return the groups that would be written."""
        return tuple(group for group in self.groups if group.changes)

    @property
    def moves(self) -> dict[str, int]:
        """Return the replicas that each group gains (negative: loses), by key; empty: no replica moves."""
        return {str(plan.group.key): plan.journal_delta for plan in self.groups if plan.journal_delta}

    @property
    def new_intents(self) -> tuple[Problem, ...]:
        """Return the problems about new desired bounds at owners. Only the check that finds them reports them."""
        return tuple(problem for problem in self.report.problems if problem.kind is ProblemKind.NEW_INTENT)

    @property
    def headroom(self) -> int:
        """Return the nodes by which the pool may still grow."""
        requested = sum(plan.requested for plan in self.groups)
        return max(0, self.max - requested) if self.mode.valid and self.max is not None else 0

    @property
    def imbalance(self) -> int:
        """Return the running nodes of the fullest zone minus those of the emptiest."""
        running = [plan.group.running for plan in self.groups]
        return max(running, default=0) - min(running, default=0)

    def digest(self, *, applied: bool) -> str:
        """Return a fingerprint of the report; empty: nothing to report. Applied changes are not reported again."""
        held = [str(plan.group.key) for plan in self.groups if plan.group.owner.bounds_held]
        report = {
            **({"held": held} if held else {}),  # omitted if empty, because otherwise every pool would have a digest
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
        """Return the new maximum of a Shoot and the refused maximum; empty if there is neither."""
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
    """A request that no pool accepts now, with the problem."""

    scale_request: ScaleRequest
    problem: Problem

    @property
    def waits(self) -> bool:
        """Return True if a pool may accept the request later."""
        return self.problem.kind in (
            ProblemKind.REQUEST_POOL_INVALID,
            ProblemKind.REQUEST_BEHIND_REQUEST,
            ProblemKind.REQUEST_AWAITS_CHECK,
            ProblemKind.REQUEST_AWAITS_PODS,
        )


@dataclass(frozen=True, kw_only=True)
class TakenOff:
    """A request to remove nodes. It only cancels nodes of other requests that are not ordered yet."""

    scale_request: ScaleRequest
    nodes: Mapping[str, int]  # the nodes that it cancels, by id of the other request
    before: Mapping[str, int]  # the nodes that an interrupted run has cancelled already, by id of the other request


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
    check_at: datetime | None = None  # when the plan may first change even if nothing else does; None: never
    experiences: Mapping[Offering, Experience] = field(default_factory=dict)  # to report to other clusters
    demand: Advice | None = None  # None: not requested
    clock_skew: timedelta = timedelta(0)  # the API server's clock minus Evenkeel's; ``now`` is the API server's time

    @property
    def asks(self) -> bool:
        """Return True if the plan depends on pods that were not read."""
        return any(pool.convergence.asks or pool.demand.asks_idle or pool.release.asks_waiting for pool in self.pools)

    @property
    def of_paused(self) -> "Plan":
        """Return the part that is written while the cluster is paused: bounds that let autoscalers order again."""
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
