"""The spans of hours are those of the local clock minute by minute, in time zones with unusual clock changes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.capabilities.minimum_at import MinimumAtEntries, MinimumAtEntry
from evenkeel.domain.minimum_at.setting import read_checked
from evenkeel.domain.minimum_at.spans import Hours, Span, current_or_next

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
# Lord Howe changes by half an hour, Troll by two hours, Casablanca twice more for Ramadan, Santiago and Cairo at
# midnight; Apia skipped a day in 2011.
ZONES = [
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Pacific/Apia",
]
names = st.sampled_from(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
times = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 59]))


def hours_of(days: Sequence[str], start: str, until: str) -> Hours:
    given = {"days": tuple(days) or None, "from": start, "until": until, "time_zone": "UTC", "min": 1}
    (entry,) = read_checked(str(MinimumAtEntries([MinimumAtEntry.model_validate(given)]))).entries
    return entry.hours


@st.composite
def any_hours(draw: st.DrawFn) -> Hours:
    start, until = draw(st.tuples(times, times | st.just("24:00")).filter(lambda pair: pair[0] != pair[1]))
    return hours_of(tuple(draw(st.sets(names))), start, until)


def is_held(hours: Hours, zone: ZoneInfo, at: datetime) -> bool:
    """Return True if the hours hold, by the local clock."""
    local = at.astimezone(zone)
    time = timedelta(hours=local.hour, minutes=local.minute)
    today, yesterday = local.weekday(), (local.weekday() - 1) % 7
    begun_today = today in hours.days and hours.start <= time < hours.end
    return begun_today or (yesterday in hours.days and time < hours.end - DAY)


def span_at(hours: Hours, zone: ZoneInfo, at: datetime) -> Span:
    found = current_or_next(hours, zone, at)
    assert found is not None
    return found


def assert_exact(hours: Hours, zone: ZoneInfo, at: datetime) -> Span:
    """Return the span for ``at``. Check that the hours hold in all its minutes, and not right outside it."""
    found = span_at(hours, zone, at)
    since, until = found.since or at, found.until or at + DAY
    assert until > at
    assert is_held(hours, zone, max(since, at))
    assert is_held(hours, zone, until - MINUTE)
    if found.since is not None:
        assert not is_held(hours, zone, since - MINUTE)
    if found.until is not None:
        assert not is_held(hours, zone, until)
    assert not any(is_held(hours, zone, at + hour * DAY / 24) for hour in range(int((since - at) / DAY * 24)))
    between = [since + hour * DAY / 24 for hour in range(int((until - since) / DAY * 24))]
    assert all(is_held(hours, zone, moment) for moment in between)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("days", "start", "until"),
    [((), "08:00", "18:00"), (("Mon-Fri",), "22:00", "06:00"), (("Sun",), "02:30", "24:00"), ((), "00:30", "02:30")],
)
def test_a_year_of_clock_changes_keeps_the_local_hours(
    zone: str, days: tuple[str, ...], start: str, until: str
) -> None:
    hours, at = hours_of(days, start, until), datetime(2026, 1, 1, tzinfo=UTC)
    while at < datetime(2027, 1, 8, tzinfo=UTC):
        end = assert_exact(hours, ZoneInfo(zone), at).until
        assert end is not None
        at = end


@given(any_hours(), st.sampled_from(ZONES), st.integers(0, 20 * 366 * 24 * 60))
@example(hours_of((), "02:30", "08:00"), "Europe/Berlin", 0)
def test_spans_are_exact_at_any_time(hours: Hours, zone: str, minutes: int) -> None:
    assert_exact(hours, ZoneInfo(zone), datetime(2011, 1, 1, tzinfo=UTC) + minutes * MINUTE)


def test_hours_that_always_hold_have_no_end() -> None:
    found = span_at(hours_of((), "00:00", "24:00"), ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, tzinfo=UTC))
    assert found == Span(None, None)


def test_hours_of_neighbouring_days_are_one_span() -> None:
    friday = datetime(2026, 1, 16, 12, tzinfo=UTC)
    found = span_at(hours_of(("Fri", "Sat"), "00:00", "24:00"), ZoneInfo("UTC"), friday)
    assert found == Span(datetime(2026, 1, 16, tzinfo=UTC), datetime(2026, 1, 18, tzinfo=UTC))
