"""Pools that an operator has paused: read and counted, so that their nodes stay counted, and never written."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from evenkeel.domain.model.pools import Members, is_called
from evenkeel.domain.model.reasons import Rule, because

_Pool = TypeVar("_Pool", bound=Members)


def hold(pool: _Pool, paused: Mapping[str, datetime | None], now: datetime) -> _Pool:
    """The pool with its groups frozen, if it is paused at ``now``. What freezes a group besides stays its reason."""
    ends = [until for name, until in paused.items() if is_called(pool.id, [name]) and (until is None or now < until)]
    if not ends:
        return pool
    lasting = [until for until in ends if until is not None]
    why = because(Rule.POOL_PAUSED, until=None if None in ends or not lasting else max(lasting))
    return replace(
        pool, groups=tuple(replace(group, frozen_because=group.frozen_because or why) for group in pool.groups)
    )
