"""Pools that an operator has paused: read and counted, so that their nodes stay counted, and never written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, Members, Pool, is_called
from evenkeel.domain.model.reasons import Reason, Rule

_Pool = TypeVar("_Pool", bound=Members)


def lasts(until: datetime | None, now: datetime) -> bool:
    """Whether a pause with this end is not over; None: it has no end of its own."""
    return until is None or now < until


def still_paused(paused: Mapping[str, datetime | None], now: datetime) -> dict[str, datetime | None]:
    """Of pools by name or id, each with the end of its pause, those whose pause is not over."""
    return {name: until for name, until in paused.items() if lasts(until, now)}


def _ends(pool: PoolId, paused: Mapping[str, datetime | None], now: datetime) -> list[datetime | None]:
    return [until for name, until in still_paused(paused, now).items() if is_called(pool, [name])]


def is_to_be_opened(pool: AnyPool, policy: Policy, now: datetime) -> bool:
    """Return True if Evenkeel stops acting on a pool whose bounds keep an autoscaler from ordering.

    It is opened first: else the pool could not grow at all until Evenkeel acts on it again.
    """
    if pool.state.closed_at is None or not isinstance(pool, Pool):
        return False
    is_dry = policy.is_dry if pool.dry_run is None else pool.dry_run
    return policy.is_paused or is_dry or bool(_ends(pool.id, policy.paused, now))


def freeze_paused(pool: _Pool, paused: Mapping[str, datetime | None], now: datetime) -> _Pool:
    """The pool with its groups frozen, if it is paused at ``now``. What freezes a group besides stays its reason."""
    ends = _ends(pool.id, paused, now)
    if not ends:
        return pool
    lasting = [until for until in ends if until is not None]
    why = Reason.of(Rule.POOL_PAUSED, until=None if None in ends or not lasting else max(lasting))
    return replace(pool, groups=tuple([group.frozen(why) for group in pool.groups]))
