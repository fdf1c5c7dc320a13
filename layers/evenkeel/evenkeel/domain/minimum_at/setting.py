"""The entries of ``minimum_at``: each is a PoolMinimum for some hours of the week."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from evenkeel.domain.minimum_at.spans import Hours
from evenkeel.domain.model.pools import AnyPool

NAME = "minimum_at"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The least number of nodes in hours of the local time of a time zone."""

    hours: Hours
    zone: tzinfo
    min: int
    text: str  # as plans name it
    field: str  # where it is in the list


@dataclass(frozen=True, kw_only=True)
class MinimumAt:
    """The entries of a pool, and the faults of the entries that are left out: field, value and what to do."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[tuple[str, str, str], ...] = ()


_NO_ENTRIES = MinimumAt()


def read_checked(text: str) -> MinimumAt:
    """Return what a text describes. ``capabilities.minimum_at`` has checked the list, and written the text."""
    found = json.loads(text)
    return MinimumAt(entries=tuple(map(_entry, found["entries"])), faults=tuple(map(tuple, found["faults"])))


def _entry(found: Mapping[str, Any]) -> Entry:
    start, end = (timedelta(minutes=found[name]) for name in ("start", "end"))
    hours = Hours(days=frozenset(found["days"]), start=start, end=end)
    return Entry(hours=hours, zone=ZoneInfo(found["zone"]), min=found["min"], text=found["text"], field=found["field"])


def minimum_at(pool: AnyPool) -> MinimumAt:
    """Return the entries of a pool."""
    text = pool.settings.own.get(NAME)
    return _NO_ENTRIES if text is None else read_checked(text)
