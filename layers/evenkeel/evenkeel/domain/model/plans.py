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
from evenkeel.domain.model.origins import Origin
from evenkeel.domain.model.parts import Part, Parts
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.pools import adopted_bounds
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import GroupState, PoolState, Release


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The choice of the machines that are deleted if the plan lowers a group's replicas."""

    may_remove_running: bool = False  # True: running machines may be deleted, too, because a request removes nodes
    keeps: frozenset[MachineRef] = frozenset()  # machines that such a request does not delete
    # Exactly these machines are deleted, running or not. Empty: the first machines in deletion order are deleted.
    machines: tuple[MachineRef, ...] = ()


# The classes of which a scan creates an object for each group or pool are not frozen, because a frozen object takes
# three times as long to create.
@dataclass(slots=True)
class GroupPlan:
    """The plan of one group. If ``bounds`` is None, Evenkeel does not write bounds."""

    group: NodeGroup
    state: State
    requested: int
    bounds: Bounds | None
    reasons: Sequence[Reason]
    rolling: Rolling | None = None
    failed_at: datetime | None = None  # when the group last failed, if this plan is the first that fences it
    # The change of replicas that the journal stores: gained from another zone or on request (negative: lost).
    journal_delta: int = 0
    removal: Removal = Removal()
    provision_timeout: timedelta = PROVISION_TIMEOUT
    leaves: bool = False  # True: the plan restores the adopted bounds and removes Evenkeel's annotations
    pins: bool = False  # True: the owner of the bounds keeps the replicas fixed at max

    @property
    def writable(self) -> bool:
        """Return False if the group is frozen: Evenkeel writes nothing to it. ``Draft.may_grow`` is another fact."""
        return self.state is not State.FROZEN

    @property
    def changes(self) -> bool:
        """Return True if the plan writes anything to this group."""
        return self.leaves or self.requested != self.group.requested or self.publishes

    @property
    def publishes(self) -> bool:
        """Return True if bounds or pinning change."""
        # Unchanged bounds are the same object, and its comparison with itself takes long.
        bounds = self.bounds is not self.group.bounds and self.bounds != self.group.bounds
        return bounds or self.pins != self.group.ours.pinned

    @property
    def lowers_requested(self) -> bool:
        """Return True if the plan lowers the group's replicas."""
        return self.requested < self.group.requested


@dataclass(kw_only=True, slots=True)
class PoolMode:
    """Flags that say which parts of a pool are planned, and which parts of the plan are written."""

    valid: bool = True
    judged: bool = True  # False: the pool is not planned, so its unplaced replicas and its request are unknown
    dry_run: bool | None = None  # True: nothing is written; None: the cluster's setting applies
    autoscaler: bool = True  # True: an autoscaler orders nodes for pods
    # True: the pool is paused or in dry run, and Evenkeel only raises its bounds, so that autoscalers can order again.
    opens: bool = False
    closes: bool = False  # True: a group's max is below the strategy's max, so that no autoscaler orders in this group


@dataclass(kw_only=True, slots=True)
class PoolReport:
    """The part of a pool's plan that is reported to people."""

    origins: tuple[Origin, ...] = ()  # the origins of min and max
    notes: tuple[Reason, ...] = ()  # reasons that need no action
    problems: tuple[Problem, ...] = ()
    starved: int = 0  # the number of requested nodes that no healthy zone can get
    overcommitted: bool = False
    contested: tuple[str, ...] = ()  # keys of the groups whose fields another writer reverts
    unmet_minimum: int = 0  # the number of nodes below PoolMinimum that no group can get
    uncounted: int = 0  # requested replicas that do not count for PoolMaximum, because their group may not grow


@dataclass(frozen=True, kw_only=True)
class RequestPlan:
    """The scale request that a pool carries out, and the numbers of nodes that this plan does not add or remove."""

    current: ScaleRequest | None = None  # the part of the request that is not done yet; None: there is no request
    missing: int = 0  # nodes that no group can add, or nodes that cannot be removed
    later: int = 0  # nodes that later runs add


@dataclass(frozen=True, kw_only=True)
class ReplicasPlan:
    """The changes of a pool's replicas. Each integer is a number of nodes."""

    unplaced_before: int = 0  # replicas that a group lost in an interrupted move, and that no other group has gained
    unplaced: int = 0  # replicas that are unplaced after this plan, because of an earlier move or of this plan's move
    added: int = 0  # nodes that count against max_step: added by this plan and by the runs of the last seconds


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """Released replicas of a pool that are to be ordered again."""

    # The release of this plan, stored before the plan's writes. None: the plan releases nothing.
    planned: Release | None = None
    not_reordered: int = 0  # released replicas that are not ordered again yet
    order_due: datetime | None = None  # when Evenkeel's order for these replicas is due; None: there are none
    asks_waiting: bool = False  # True: the plan depends on pending pods, which were not read


@dataclass(frozen=True, kw_only=True)
class ConvergencePlan:
    """The step of converge in a pool."""

    # The step as it is after this plan's patch. It is stored before the patch. None: this plan has no patch of a step.
    step: Step | None = None
    report: Converging | None = None  # None: converge is off
    # Key of a group whose machine to drain depends on pods -> key of the group that must get a node before the drain.
    # The second key is empty if that node already runs.
    asks: Mapping[str, str] = field(default_factory=dict)
    gives_to: PoolId | None = None  # the pool whose step deletes a machine of this pool; None: there is none


@dataclass(frozen=True, kw_only=True)
class DemandPlan:
    """The advice that a pool's plan follows."""

    advice: PoolAdvice | None = None  # None: no advice was requested, or the advice is unknown
    asks_idle: bool = False  # True: the plan depends on unneeded nodes, which this check did not look for
    orders: Mapping[str, PastOrder] | None = None  # the orders to store with this plan's order for pods; None: no order


@dataclass(kw_only=True, slots=True)
class PoolPlan:
    """The plan of one pool."""

    id: PoolId
    known_as: PoolId | None = None  # the pool's former id, under which its state is stored; None: ``id``
    strategy: Strategy
    min: int | None = None
    max: int | None = None
    groups: tuple[GroupPlan, ...] = ()
    next_state: PoolState  # the state to store
    mode: PoolMode = field(default_factory=PoolMode)
    report: PoolReport = field(default_factory=PoolReport)
    request: RequestPlan = RequestPlan()
    replicas: ReplicasPlan = ReplicasPlan()
    release: ReleasePlan = ReleasePlan()
    convergence: ConvergencePlan = ConvergencePlan()
    demand: DemandPlan = DemandPlan()
    parts: Parts = field(default_factory=Parts)  # the parts of capabilities
    asks_pods: bool = False  # True: the plan depends on pods, and not all were read
    provision_timeout: timedelta = (
        PROVISION_TIMEOUT  # before anything is learned, of groups whose owner sets no longer one
    )
    untimed: int = 0  # new nodes without a usable time of creation or joining, which no learned timeout counts

    @property
    def journal_of(self) -> PoolId:
        """Return the pool whose journal has the id of this plan's patches: this pool, or the pool to which it gives."""
        return self.convergence.gives_to or self.id

    @property
    def awaits_check(self) -> bool:
        """Return True if known groups or owners of the pool are absent, and a second check must confirm this."""
        return self.mode.valid and not self.mode.judged

    @property
    def keeps_journal(self) -> bool:
        """Return True if the journal must stay as it is, because max_step defers nodes of an interrupted run.

        A patch of the interrupted run may still reach the API server. The unchanged journal then shows its effect.
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
        """Return the groups to which the plan writes."""
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
        """Return the number of nodes by which the pool may still grow."""
        requested = sum(plan.requested for plan in self.groups) - self.report.uncounted
        return max(0, self.max - requested) if self.mode.valid and self.max is not None else 0

    @property
    def imbalance(self) -> int:
        """Return the running nodes of the fullest zone minus those of the emptiest."""
        running = [plan.group.running for plan in self.groups]
        return max(running, default=0) - min(running, default=0)

    def digest(self, *, applied: bool) -> str:
        """Return a fingerprint of the report; empty: there is nothing to report. ``applied``: changes are left out."""
        held = [str(plan.group.key) for plan in self.groups if plan.group.owner.bounds_held]
        parts: list[Part] = [*self.parts.values(), *self.next_state.parts.values()]
        report = {
            **({"held": held} if held else {}),  # omitted if empty, because otherwise every pool would have a digest
            "problems": []
            if self.mode.valid
            else [[problem.kind, dict(problem.facts)] for problem in self.report.problems],
            "starved": self.report.starved,
            "overcommitted": self.report.overcommitted,
            "contested": list(self.report.contested),
            **{name: value for part in parts for name, value in part.reported.items()},
            "incident": [
                [str(plan.group.key), plan.state] for plan in self.groups if plan.state in (State.FENCED, State.PROBING)
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


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A request that no pool accepts now, and the problem that prevents it."""

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
class Plan:
    """The result of one check of a cluster."""

    now: datetime
    pools: tuple[PoolPlan, ...]
    skipped: tuple[Skipped, ...]
    states: Mapping[GroupKey, GroupState]  # only the changed states
    refusals: tuple[Refusal, ...] = ()
    pool_states: Mapping[PoolId, PoolState] = field(default_factory=dict)  # only the changed states
    check_at: datetime | None = None  # when the plan may first change even if nothing else does; None: never
    demand: Advice | None = None  # None: no advice was requested
    clock_skew: timedelta = timedelta(0)  # the API server's clock minus Evenkeel's; ``now`` is the API server's time

    @property
    def asks(self) -> bool:
        """Return True if the plan depends on pods that were not read."""
        return any(
            [
                pool.convergence.asks or pool.demand.asks_idle or pool.release.asks_waiting or pool.asks_pods
                for pool in self.pools
            ]
        )

    @property
    def of_paused(self) -> "Plan":
        """Return the part of the plan that is written to a paused cluster: it lets autoscalers order again."""
        return Plan(
            now=self.now,
            pools=tuple(pool for pool in self.pools if pool.mode.opens),
            skipped=self.skipped,
            states={},
            clock_skew=self.clock_skew,
        )

    @property
    def changes(self) -> tuple[GroupPlan, ...]:
        """Return all groups to which the plan writes, in the order of the pools."""
        return tuple(group for pool in self.pools for group in pool.changes)
