"""A pool with its members: with numbers that can be planned for, or invalid."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from evenkeel.domain.model.choices import Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import ConvergePolicy
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.origins import Origin
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.policy import BackoffPolicy, Policy, PoolRule
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.states import PoolState


def count_zones(groups: Iterable[NodeGroup]) -> int:
    """How many zones these groups stand in."""
    return len({group.zone for group in groups})


@dataclass(frozen=True, kw_only=True)
class Members:
    """What every pool has, valid or not. ``warnings`` are told and lived with."""

    id: PoolId
    groups: tuple[NodeGroup, ...]  # by zone index
    strategy: Strategy
    on_failure: OnFailure
    backoff: BackoffPolicy
    provision_timeout: timedelta
    autoscaler: bool
    suspect_provision_time: timedelta | None = None  # for which an autoscaler waits where it is suspect
    level: Level = Level.OFF
    converge: ConvergePolicy = field(default_factory=ConvergePolicy)
    convergence_requested: datetime | None = None  # when a pass of converge was last asked for by hand
    dry_run: bool | None = None  # whether nothing of it is written; None: as the cluster
    max_step: int | None = None  # nodes that one run may add; None: any number
    autoscaler_loop: timedelta = timedelta(seconds=10)
    state: PoolState = field(default_factory=PoolState)
    known_as: PoolId | None = None  # under which name the state was found, where that is not the pool's own
    unplaced: int = 0  # replicas that an interrupted move gave up and nobody has taken on yet
    scale_request: ScaleRequest | None = None  # what was begun on request and not ended
    origins: tuple[Origin, ...] = ()  # of its numbers, as far as there are any
    warnings: tuple[Problem, ...] = ()

    def timeout_of(self, group: NodeGroup) -> timedelta:
        """Until when a machine of the group is on its way: its own option, else the pool's."""
        return group.provision_timeout or self.provision_timeout

    @property
    def standstill(self) -> timedelta:
        """Return how long others must stand still before a raise."""
        return self.autoscaler_loop * 1.5

    @property
    def zones(self) -> int:
        """How many zones it has. A PoolMaximum below that leaves some zone without a node."""
        return count_zones(self.groups)


@dataclass(frozen=True, kw_only=True)
class Pool(Members):
    """A pool whose numbers keep the rules."""

    min: int
    max: int


@dataclass(frozen=True, kw_only=True)
class InvalidPool(Members):
    """A pool that is left alone whole until somebody mends its numbers; None: nobody can say what they are."""

    min: int | None
    max: int | None
    problems: tuple[Problem, ...]


AnyPool = Pool | InvalidPool


def is_called(id: PoolId, names: Iterable[str]) -> bool:
    """Whether one of the names means this pool."""
    return not id.names.isdisjoint(names)


def place_in(order: Sequence[str], id: PoolId) -> int:
    """Return the place of a pool in an order of names or ids, from 0; its length if the pool is not in it."""
    return next((place for place, name in enumerate(order) if name in id.names), len(order))


def unknown_in(order: Iterable[str], ids: Iterable[PoolId]) -> tuple[str, ...]:
    """Return the names of an order that none of these pools has."""
    names = frozenset[str]().union(*(id.names for id in ids))
    return tuple(name for name in order if name not in names)


def tie_of(pool: str, group: NodeGroup) -> int:
    """A group's place among equals: a stable hash of pool, zone and name, so that it is not always the first zone."""
    return _hash(f"{pool}/{group.zone}/{group.key.name}")


@lru_cache(maxsize=16384)  # the same groups come back at every scan of a warm function
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode(errors="backslashreplace")).digest()[:8])


def adopted_bounds(group: NodeGroup, state: PoolState) -> Bounds | None:
    """The bounds that a group had before us: from the state, else from the annotation, else as they are now.

    Where they stand at an owner: what its people want now.
    """
    if group.owner is not None and group.owner.takes_ours:
        return desired_bounds_of(group, state)
    if str(group.key) in state.adopted:
        return state.adopted[str(group.key)]
    return group.adopted if group.has_adopted else group.bounds


def rule_of(id: PoolId, policy: Policy) -> PoolRule | None:
    """The entry of the cluster's record that gives a pool its numbers: the first of that name."""
    return next(
        (rule for rule in policy.pools if rule.name == id.name and rule.namespace in (None, id.namespace)), None
    )
