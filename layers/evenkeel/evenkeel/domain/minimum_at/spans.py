"""The spans of time in which a window of local time is open.

A window is open whenever the local clock shows one of its times on one of its days. A time that a change of the clock
skips never comes. A time that comes twice counts both times.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from evenkeel.domain.model.convergence import Window

_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
# Longer than a week, so that a window that is open on each day of the week has no end here.
_REACH = timedelta(days=8)


class Span(NamedTuple):
    """A span of time. None: it has no begin, or no end."""

    since: datetime | None
    until: datetime | None


def current_or_next(window: Window, zone: tzinfo, now: datetime) -> Span | None:
    """Return the span that is open now, else the next one; None: there is none within a week."""
    first = now.astimezone(UTC).replace(second=0, microsecond=0) - _REACH
    last = first + 2 * _REACH
    for since, until in _spans(window, zone, first, last):
        if until > now:
            return Span(None if since == first else since, None if until == last else until)
    return None


def _spans(window: Window, zone: tzinfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Return the parts of a time in which the window is open, in order."""
    found: list[tuple[datetime, datetime]] = []
    for begin, end, offset in _offsets(zone, first, last):
        midnight = (begin + offset).replace(hour=0, minute=0) - _DAY  # a window may begin on the day before
        while midnight - offset < end:
            start, until = _on_day(window, midnight)
            if not window.days or midnight.weekday() in window.days:
                since, until = max(begin, start - offset), min(end, until - offset)
                if since < until and found and since <= found[-1][1]:
                    found[-1] = (found[-1][0], until)
                elif since < until:
                    found.append((since, until))
            midnight += _DAY
    return found


def _on_day(window: Window, midnight: datetime) -> tuple[datetime, datetime]:
    """Return the local times between which the window of a day is open."""
    start = midnight.replace(hour=window.start.hour, minute=window.start.minute)
    if window.end is None:
        return start, midnight + _DAY
    until = midnight.replace(hour=window.end.hour, minute=window.end.minute)
    return start, until + (_DAY if until <= start else timedelta(0))


def _offsets(zone: tzinfo, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """Yield the parts of a time between changes of the clock, each with the offset of the local time from UTC."""

    def offset_at(at: datetime) -> timedelta:
        return at.astimezone(zone).utcoffset() or timedelta(0)

    begin, offset, at = first, offset_at(first), first
    while at < last:
        day, at = at, at + _DAY
        if (after := offset_at(at)) != offset:
            # Clocks change at whole minutes.
            minutes = range(_DAY // _MINUTE)
            change = day + _MINUTE * bisect_left(
                minutes, True, key=lambda minute: offset_at(day + minute * _MINUTE) != offset
            )
            yield begin, change, offset
            begin, offset = change, after
    yield begin, last, offset
