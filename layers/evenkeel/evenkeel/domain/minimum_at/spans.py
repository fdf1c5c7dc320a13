"""The spans of time in which some hours of the local week hold.

They hold whenever the local clock shows one of their times on one of their days. A time that a change of the clock
skips never comes. A time that comes twice counts both times.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
# Longer than a week, so that hours that hold at all times have no end here.
_REACH = timedelta(days=8)


class Hours(NamedTuple):
    """Hours of the local week. Times are since midnight; ``end`` is later than ``start``, maybe on the next day."""

    days: frozenset[int]  # the days on which they begin; 0 is Monday
    start: timedelta
    end: timedelta


class Span(NamedTuple):
    """A span of time. None: it has no begin, or no end."""

    since: datetime | None
    until: datetime | None


def current_or_next(hours: Hours, zone: tzinfo, now: datetime) -> Span | None:
    """Return the span that holds now, else the next one; None: there is none within a week."""
    first = now.astimezone(UTC).replace(second=0, microsecond=0) - _REACH
    last = first + 2 * _REACH
    for since, until in _spans(hours, zone, first, last):
        if until > now:
            return Span(None if since == first else since, None if until == last else until)
    return None


def _spans(hours: Hours, zone: tzinfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Return the parts of a time in which the hours hold, in order."""
    found: list[tuple[datetime, datetime]] = []
    for begin, end, offset in _offsets(zone, first, last):
        midnight = (begin + offset).replace(hour=0, minute=0) - DAY  # hours may begin on the day before
        while midnight - offset < end:
            if midnight.weekday() in hours.days:
                since, until = max(begin, midnight + hours.start - offset), min(end, midnight + hours.end - offset)
                if since < until and found and since <= found[-1][1]:
                    found[-1] = (found[-1][0], until)
                elif since < until:
                    found.append((since, until))
            midnight += DAY
    return found


def _offsets(zone: tzinfo, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """Yield the parts of a time between changes of the clock, each with the offset of the local time from UTC."""

    def offset_at(at: datetime) -> timedelta:
        return at.astimezone(zone).utcoffset() or timedelta(0)

    begin, offset, at = first, offset_at(first), first
    while at < last:
        day, at = at, at + DAY
        if (after := offset_at(at)) != offset:
            # Clocks change at whole minutes.
            minutes = range(DAY // _MINUTE)
            change = day + _MINUTE * bisect_left(
                minutes, True, key=lambda minute: offset_at(day + minute * _MINUTE) != offset
            )
            yield begin, change, offset
            begin, offset = change, after
    yield begin, last, offset
