"""The setting ``minimum_at``: a list of entries, each with a PoolMinimum for some hours of the week.

The record's model refuses a bad entry. A bad entry of an annotation is left out, and the plan reports it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from evenkeel.domain.minimum_at.spans import ALL_DAYS, DAY, Hours
from evenkeel.domain.model.parts import Setting, annotation_of
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.values import BadValueError, Fault, near, quote, read_count

# Each entry of each pool is evaluated at each check.
MOST_ENTRIES = 50
_LONGEST = 20_000  # characters; lists that were read are kept in memory
_NAME = "minimum_at"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = {name.lower(): day[:3] for day in _DAYS for name in (day, day[:3])}
_TIME = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]", re.ASCII)


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
    """The entries of a pool, and the faults of the entries that are left out."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[Fault, ...] = ()
    text: str = "[]"  # the list as JSON, equal for equal lists

    def __str__(self) -> str:
        return self.text


def read_day(value: object) -> str:
    """Return a day, such as ``Mon``, or a span of days, such as ``Mon-Fri``. Raises BadValueError."""
    days = [_SHORT.get(name.lower()) for name in str(value).split("-", 1)]
    if None in days:
        raise BadValueError("no day of the week: write Mon, Tue, Wed, Thu, Fri, Sat or Sun")
    return "-".join(filter(None, days))


def read_start(value: object) -> str:
    """Return a time of day from 00:00 to 23:59. Raises BadValueError."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise BadValueError('no time of day: write HH:MM in quotes, such as "08:00"')
    return value


def read_end(value: object) -> str:
    """Return a time of day from 00:00 to 24:00. Raises BadValueError."""
    return "24:00" if value == "24:00" else read_start(value)


def read_time_zone(value: object) -> str:
    """Return the name of a time zone. Raises BadValueError."""
    try:
        return ZoneInfo(str(value)).key
    except (LookupError, ValueError, OSError):  # what a name raises that is unknown, or no name at all
        raise BadValueError("no known time zone: write an IANA name, such as Europe/Berlin") from None


def read_hours(days: Sequence[str], start: str, until: str) -> Hours:
    """Return the hours of the week. Raises BadValueError if they end when they begin."""
    if start == until:
        raise BadValueError("equal to from: for whole days write from 00:00 until 24:00")
    begin, end = _since_midnight(start), _since_midnight(until)
    return Hours(days=frozenset(_each(days)) or ALL_DAYS, start=begin, end=end if end > begin else end + DAY)


def _since_midnight(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def _each(days: Sequence[str]) -> Iterator[int]:
    """Yield the days of the week by number. A span of days may cross the end of the week."""
    numbers = [day[:3] for day in _DAYS]
    for span in days:
        first, _, last = span.partition("-")
        start, end = numbers.index(first), numbers.index(last or first)
        yield from (day % 7 for day in range(start, end + 1 if start <= end else end + 8))


def _read_days(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BadValueError('no list of days: write it as one, such as ["Mon", "Tue"], or leave it out for every day')
    return tuple(map(read_day, value))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "days": _read_days,
    "from": read_start,
    "until": read_end,
    "time_zone": read_time_zone,
    "min": read_count,
}


@lru_cache(maxsize=1024)  # each plan reads the settings of each pool, and few lists differ
def _read(text: str) -> MinimumAt:
    annotation = annotation_of(_NAME)
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        return MinimumAt(text=text, faults=(_fault(annotation, text, f"no JSON: {error}"),))
    if not isinstance(listed, list) or len(listed) > MOST_ENTRIES:
        problem = f"no list of at most {MOST_ENTRIES} entries: write it as one"
        return MinimumAt(text=text, faults=(_fault(annotation, text, problem),))
    entries: list[Entry] = []
    faults: list[Fault] = []
    for place, given in enumerate(listed):
        found = _read_entry(given, f"{annotation}.{place}")
        faults += found if isinstance(found, list) else []
        entries += [] if isinstance(found, list) else [found]
    text = json.dumps(listed, sort_keys=True, separators=(",", ":"))
    return MinimumAt(entries=tuple(entries), faults=tuple(faults), text=text)


def _read_entry(given: object, where: str) -> Entry | list[Fault]:
    """Return the entry, or its faults."""
    if not isinstance(given, dict):
        return [_fault(where, given, f"no object: write it with {', '.join(_READERS)}")]
    values: dict[str, Any] = {"days": ()}
    faults = [
        _fault(f"{where}.{name}", given[name], f"no field of an entry: remove it{near(name, _READERS)}")
        for name in given
        if name not in _READERS
    ]
    for name, reader in _READERS.items():
        if name in given:
            try:
                values[name] = reader(given[name])
            except BadValueError as error:
                faults.append(_fault(f"{where}.{name}", given[name], str(error)))
        elif name not in values:
            faults.append(Fault(object="", field=f"{where}.{name}", value="missing", problem="write it"))
    if faults:
        return faults
    days, zone, least = values["days"], values["time_zone"], values["min"]
    try:
        hours = read_hours(days, values["from"], values["until"])
    except BadValueError as error:
        return [_fault(f"{where}.until", values["until"], str(error))]
    text = f"{','.join(days)} {values['from']}-{values['until']} {zone}".strip()
    return Entry(hours=hours, zone=ZoneInfo(zone), min=least, text=text, field=where)


def _fault(field: str, value: object, problem: str) -> Fault:
    return Fault(object="", field=field, value=quote(value), problem=problem)


def _read_value(value: object) -> MinimumAt:
    text = str(value)
    return _read(text if len(text) <= _LONGEST else text[:_LONGEST])  # a list that is cut off is no JSON


MINIMUM_AT = Setting(name=_NAME, read=_read_value, default=MinimumAt())


def minimum_at(pool: AnyPool) -> MinimumAt:
    """Return the entries of a pool."""
    return MINIMUM_AT.of(pool.settings.own)
