"""The points at which a capability plugs into the pipeline of a plan (``domain.rebalancing.plan``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from evenkeel.domain.model.drafts import PoolDraft, PoolInput
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Rule

Step = Callable[[PoolDraft], None]


class Point(Enum):
    """A place in the list of steps where capabilities add steps that change no replicas."""

    START = auto()  # before every other step
    BOUNDS = auto()  # after the strategy has sized the groups, before bounds are published


class Rank(Enum):
    """Who asks for changes of replicas, in this order. Each gets what those before it have left.

    The order decides: with requests before the minima, 55 of 600 random worlds had other plans. Each value is the
    reason for the place.
    """

    CANCELLED_STEP = "First, because no other rule may take the replica of a cancelled step for a stuck one."
    STUCK = "Nodes that exist or were ordered come before new ones, so replicas leave failing zones before any order."
    RELEASED = "Replicas of an earlier release come after those of this plan, which add to the same release."
    OVERSHOOT = "Last of those that only take or move, so that the orders below know the room under PoolMaximum."
    UNSEEN = "First order, because its one node also counts for the minima."
    STRATEGY_MINIMA = "Before PoolMinimum, because these nodes also count for it."
    POOL_MINIMUM = "Before requests, because PoolMinimum holds always, and a request gets what is left."
    REQUEST = "Before the reserve, because pods that wait need nodes now."
    RESERVE = "After requests, because their nodes may be those that the reserve needs."
    CONVERGENCE = "Last, because a step only begins in a pool that nothing else changes."


class PlannedPool(NamedTuple):
    """A pool with its plan."""

    pool: AnyPool
    draft: PoolDraft | None  # None: the plan leaves the whole pool unchanged, or no pods were requested
    plan: PoolPlan
    check_at: list[datetime]  # when the plan may change even if the cluster does not


Planned = Mapping[PoolId, PlannedPool]
Inputs = Mapping[PoolId, PoolInput]
Extension = Callable[[Plan], Plan]


@dataclass(frozen=True, kw_only=True)
class Capability:
    """What one capability adds. Each function's name is the point at which the pipeline uses it."""

    figures: Mapping[str, Callable[[PoolPlan], int]] = field(default_factory=dict)  # metric -> its value for a pool
    kinds: Mapping[Rule, str] = field(default_factory=dict)  # rule -> its kind, as in docs/operate/status.md
    steps: Mapping[Point | Rank, Step] = field(default_factory=dict)
    # Returns the inputs with which pools are planned first: the most likely advice for them. Requests are known.
    assume: Callable[[Check, Sequence[AnyPool], Inputs], Inputs] | None = None
    # Called after every pool is planned. Returns the inputs that the advice changes, and the function that extends the
    # whole plan, if the plan needs one.
    advise: Callable[[Check, Planned, Inputs], tuple[Inputs, Extension | None]] | None = None
    # Called after ``advise``. Returns the inputs of the pools whose plans ask a question, including the answers.
    answer: Callable[[Check, Planned, Inputs], Inputs] | None = None
    # Called for the plan of each pool after its steps. Returns the plan with a further write, and when it may change
    # even if the cluster does not.
    finish: Callable[[Check, PoolPlan], tuple[PoolPlan, datetime | None]] | None = None
    # Called last. Returns the inputs of the pools that follow the plans of other pools.
    follow: Callable[[Planned, Inputs], Inputs] | None = None
