"""Paused pools: Evenkeel reads and counts their groups, but does not write them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, Members, Pool, is_called
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.rebalancing.dry_run import is_pool_dry

_Pool = TypeVar("_Pool", bound=Members)


def lasts(until: datetime | None, now: datetime) -> bool:
    """Return True while a pause that ends at ``until`` lasts; None: the pause has no end."""
    return until is None or now < until


def still_paused(paused: Mapping[str, datetime | None], now: datetime) -> dict[str, datetime | None]:
    """Return the entries of the pauses that are not over. A key is the name or id of a pool."""
    return {name: until for name, until in paused.items() if lasts(until, now)}


def _ends(pool: PoolId, paused: Mapping[str, datetime | None], now: datetime) -> list[datetime | None]:
    return [until for name, until in still_paused(paused, now).items() if is_called(pool, [name])]


def is_left_alone(state: ClusterState, unfinished: Collection[str], *, is_paused: bool, has_drill: bool) -> bool:
    """Return True if a cluster is paused, and nothing of Evenkeel must be undone there.

    Evenkeel still ends its unfinished writes and its drill, and changes bounds that keep autoscalers from ordering
    nodes.

    Args:
        state: The cluster's stored state.
        unfinished: The groups whose writes have begun and not ended.
        is_paused: The whole cluster is paused.
        has_drill: The report of its drill is not recorded yet.
    """
    return is_paused and not (state.closed_pools or unfinished or has_drill)


def needs_opening(pool: AnyPool, policy: Policy, now: datetime) -> bool:
    """Return True if a pool is paused or in dry run, and its bounds keep an autoscaler from ordering.

    Evenkeel first raises the bounds of such a pool. Otherwise the pool could not grow until the pause or the dry run
    ends.
    """
    if pool.state.closed_at is None or not isinstance(pool, Pool):
        return False
    is_dry = is_pool_dry(pool.dry_run, policy.is_dry)
    return policy.is_paused or is_dry or bool(_ends(pool.id, policy.paused, now))


def freeze_pools(pools: Iterable[AnyPool], policy: Policy, now: datetime, without: Collection[PoolId]) -> list[AnyPool]:
    """Return the pools, with the groups of paused pools frozen. Pools in ``without`` are not frozen."""
    if not policy.paused:
        return list(pools)
    return [pool if pool.id in without else freeze_paused(pool, policy.paused, now) for pool in pools]


def freeze_paused(pool: _Pool, paused: Mapping[str, datetime | None], now: datetime) -> _Pool:
    """Return the pool. If it is paused, its groups are frozen. A group that is frozen already keeps its reason."""
    ends = _ends(pool.id, paused, now)
    if not ends:
        return pool
    lasting = [until for until in ends if until is not None]
    reason = Reason.of(Rule.POOL_PAUSED, until=None if None in ends or not lasting else max(lasting))
    return replace(pool, groups=tuple([group.frozen(reason) for group in pool.groups]))
