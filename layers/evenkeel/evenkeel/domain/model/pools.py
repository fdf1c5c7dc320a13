"""A pool with its members. A pool is valid, or it is invalid because of its minimum, its maximum or its members."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from evenkeel.domain.model.flavours import BOUNDS_KEPT
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.origins import Origin
from evenkeel.domain.model.owner_intent import bounds_before, desired_bounds_of
from evenkeel.domain.model.policy import Policy, PoolRule, PoolSettings
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.states import STANDS, PoolState


def count_zones(groups: Iterable[NodeGroup]) -> int:
    """Return the number of zones of these groups."""
    return len({group.identity.zone for group in groups})


# These classes are not frozen, because a frozen object takes twice as long to create, and a plan creates several for
# each pool.
@dataclass(kw_only=True, slots=True)
class Members:
    """The fields of every pool, valid or not. ``warnings`` are only reported."""

    id: PoolId
    groups: tuple[NodeGroup, ...]  # ordered by zone index
    settings: PoolSettings
    convergence_requested: datetime | None = None  # when an operator last requested a pass of converge
    dry_run: bool | None = None  # True: nothing is written; None: the cluster's setting applies
    state: PoolState = field(default_factory=PoolState)
    known_as: PoolId | None = None  # the pool's former id, under which its state is stored; None: ``id``
    unplaced: int = 0  # replicas that a group lost in an interrupted move, and that no other group has gained
    scale_request: ScaleRequest | None = None  # the request that a run has begun and no run has completed
    origins: tuple[Origin, ...] = ()  # the origins of PoolMinimum and PoolMaximum
    warnings: tuple[Problem, ...] = ()
    # The pools of which this pool is a fallback, the nearest first. Each further one is that of the one before it.
    first_pools: tuple[PoolId, ...] = ()

    def timeout_of(self, group: NodeGroup) -> timedelta:
        """Return the provision timeout of the group: its own option or the pool's, whichever is longer."""
        own, least = group.options.provision_timeout, self.settings.provision_timeout
        return least if own is None or own < least else own

    @property
    def standstill(self) -> timedelta:
        """Return how long the requested replicas must be unchanged before Evenkeel raises them."""
        return max(self.settings.autoscaler_loop * 1.5, self.autoscaler_reads)

    @property
    def autoscaler_reads(self) -> timedelta:
        """Return how long after a write the autoscaler may still use the former bounds."""
        kept = BOUNDS_KEPT.get(self.id.flavour)
        return self.settings.autoscaler_loop if kept is None else self.settings.autoscaler_loop + kept

    @property
    def publication_stands(self) -> timedelta:
        """Return how long Balanced keeps its maxima at least, so that every usual loop of the autoscaler reads them."""
        kept = BOUNDS_KEPT.get(self.id.flavour)
        return STANDS if kept is None else max(STANDS, kept + min(self.settings.autoscaler_loop, STANDS))

    @property
    def zones(self) -> int:
        """Return the number of zones. If PoolMaximum is below this number, at least one zone has no node."""
        return count_zones(self.groups)


@dataclass(kw_only=True, slots=True)
class Pool(Members):
    """A pool with a valid minimum and maximum."""

    min: int
    max: int


@dataclass(kw_only=True, slots=True)
class InvalidPool(Members):
    """A pool to which Evenkeel writes nothing until ``problems`` are fixed. An unknown minimum or maximum is None."""

    min: int | None
    max: int | None
    problems: tuple[Problem, ...]


AnyPool = Pool | InvalidPool


def is_called(id: PoolId, names: Collection[str]) -> bool:
    """Return True if the pool has one of these names."""
    return bool(names) and not id.names.isdisjoint(names)


def place_in(order: Sequence[str], id: PoolId) -> int:
    """Return the index of a pool in a list of names or ids; if it is not listed, the length of the list."""
    return next((place for place, name in enumerate(order) if name in id.names), len(order))


def unknown_in(order: Iterable[str], ids: Iterable[PoolId]) -> tuple[str, ...]:
    """Return the listed names that none of these pools has."""
    names = frozenset[str]().union(*(id.names for id in ids))
    return tuple(name for name in order if name not in names)


def tie_of(pool: PoolId, group: NodeGroup) -> int:
    """Return a stable hash of pool, zone and name. It orders equal groups, so that no zone is always first."""
    return _hash(pool, group.identity.zone, group.key.name)


@lru_cache(maxsize=32768)  # a warm Lambda function hashes the same groups at every scan
def _hash(pool: PoolId, zone: str | None, name: str) -> int:
    text = f"{pool}/{zone}/{name}"
    return int.from_bytes(hashlib.sha256(text.encode(errors="backslashreplace")).digest()[:8])


def adopted_bounds(group: NodeGroup, state: PoolState) -> Bounds | None:
    """Return the bounds that a group had before Evenkeel: from the state, else the annotation, else its present bounds.

    If Evenkeel writes bounds to the group's owner, the result is the owner's desired bounds.
    """
    if group.owner.numbers is not None and group.owner.numbers.takes_ours:
        return desired_bounds_of(group, state)
    return bounds_before(group, state, group.bounds)


def rule_of(id: PoolId, policy: Policy) -> PoolRule | None:
    """Return the first entry of the cluster record with the pool's name; None: there is none."""
    for rule in policy.pools:
        if rule.name == id.name and rule.namespace in (None, id.namespace):
            return rule
    return None
