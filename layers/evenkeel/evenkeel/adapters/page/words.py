"""Moments, durations and counts as people read them."""

from datetime import datetime

from evenkeel.adapters.page.html import Html, el
from evenkeel.texts.english import rfc3339


def duration(seconds: float) -> str:
    """The two largest units: 45 s, 12 min, 2 h 05 min, 3 d 4 h."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left} h" if hours_left else f"{days} d"
    if hours:
        return f"{hours} h {minutes_left:02} min" if minutes_left else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"
    return f"{rest} s"


def moment(at: datetime, *, beside: datetime | None = None) -> Html:
    """An absolute time in UTC; the date is left out where it is that of ``beside``."""
    same_day = beside is not None and at.date() == beside.date()
    return el("time", at.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M:%S UTC"), datetime=rfc3339(at))


def when(at: datetime | float, beside: datetime) -> Html:
    """A moment, or how far into a simulation."""
    if isinstance(at, datetime):
        return moment(at, beside=beside)
    return el("span", f"after {duration(at)}" if at else "at the start", class_="nowrap")
