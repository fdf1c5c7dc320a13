"""Where a capability plugs into the pipeline of a plan (``domain.rebalancing.plan``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from evenkeel.domain.model.convergence import NO_CHOICES, Choices
from evenkeel.domain.model.demand import PoolAdvice
from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.rebalancing.health.observed import Observer

Step = Callable[[PoolDraft], None]


class Point(Enum):
    """A place in the list of steps where capabilities add their own."""

    START = auto()  # before every other step
    REPLICAS = auto()  # after every other step that changes replicas
    BOUNDS = auto()  # after the strategy has sized the groups, before bounds are published


class PoolInput(NamedTuple):
    """What a pool is planned with besides the check. None: not known, or not requested."""

    request: ScaleRequest | None = None
    advice: PoolAdvice | None = None
    choices: Choices = NO_CHOICES
    waited_for: Mapping[str, int] | None = None


class PlannedPool(NamedTuple):
    """A pool with its plan."""

    pool: AnyPool
    draft: PoolDraft | None  # None: the pool is left alone whole
    plan: PoolPlan
    check_at: list[datetime]  # when time alone may change the plan


Planned = Mapping[PoolId, PlannedPool]
Inputs = Mapping[PoolId, PoolInput]
Extension = Callable[[Plan], Plan]


@dataclass(frozen=True, kw_only=True)
class Capability:
    """What one capability adds to a plan. The pipeline calls each function at the point that the field names."""

    steps: Mapping[Point, Step] = field(default_factory=dict)
    group_state: Observer | None = None  # the state of a group to store
    # A pool's plan with the capability's part, and when time alone may change that.
    pool_plan: Callable[[Check, PoolPlan], tuple[PoolPlan, datetime | None]] | None = None
    # Once every pool is planned: the pools to plan again with their inputs, and the extension of the whole plan.
    advise: Callable[[Check, Planned, Inputs], tuple[Inputs, Extension]] | None = None
    # After that: the pools that have asked a question, with its answer among their inputs.
    answer: Callable[[Check, Planned, Inputs], Inputs] | None = None
