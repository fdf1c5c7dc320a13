"""The spans of a window, against the local clock minute by minute, in zones with unusual changes of the clock."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.domain.minimum_at.setting import read_window
from evenkeel.domain.minimum_at.spans import Span, current_or_next
from evenkeel.domain.model.convergence import Window

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


@st.composite
def windows(draw: st.DrawFn) -> Window:
    start, until = draw(st.tuples(times, times | st.just("24:00")).filter(lambda pair: pair[0] != pair[1]))
    return read_window(tuple(draw(st.sets(names))), start, until)


def is_open(window: Window, zone: ZoneInfo, at: datetime) -> bool:
    """Read the local clock. This is what the times of a window mean."""
    local = at.astimezone(zone)
    time, today, yesterday = local.time(), local.weekday(), (local - DAY).weekday()
    on_day = not window.days or today in window.days
    if window.end is None:
        return on_day and window.start <= time
    if window.start < window.end:
        return on_day and window.start <= time < window.end
    after = not window.days or yesterday in window.days
    return (on_day and time >= window.start) or (after and time < window.end)


def span_at(window: Window, zone: ZoneInfo, at: datetime) -> Span:
    found = current_or_next(window, zone, at)
    assert found is not None
    return found


def assert_exact(window: Window, zone: ZoneInfo, at: datetime) -> Span:
    """The span is open from its first minute to its last one, and in no minute beside it since ``at``."""
    found = span_at(window, zone, at)
    since, until = found.since or at, found.until or at + DAY
    assert until > at
    assert is_open(window, zone, max(since, at))
    assert is_open(window, zone, until - MINUTE)
    if found.since is not None:
        assert not is_open(window, zone, since - MINUTE)
    if found.until is not None:
        assert not is_open(window, zone, until)
    assert not any(is_open(window, zone, at + hours * DAY / 24) for hours in range(int((since - at) / DAY * 24)))
    between = [since + hours * DAY / 24 for hours in range(int((until - since) / DAY * 24))]
    assert all(is_open(window, zone, moment) for moment in between)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("days", "start", "until"),
    [((), "08:00", "18:00"), (("Mon-Fri",), "22:00", "06:00"), (("Sun",), "02:30", "24:00"), ((), "00:30", "02:30")],
)
def test_a_year_of_clock_changes_keeps_the_local_hours(
    zone: str, days: tuple[str, ...], start: str, until: str
) -> None:
    window, at = read_window(days, start, until), datetime(2026, 1, 1, tzinfo=UTC)
    while at < datetime(2027, 1, 8, tzinfo=UTC):
        end = assert_exact(window, ZoneInfo(zone), at).until
        assert end is not None
        at = end


@given(windows(), st.sampled_from(ZONES), st.integers(0, 20 * 366 * 24 * 60))
@example(read_window((), "02:30", "08:00"), "Europe/Berlin", 0)
def test_spans_are_exact_at_any_time(window: Window, zone: str, minutes: int) -> None:
    assert_exact(window, ZoneInfo(zone), datetime(2011, 1, 1, tzinfo=UTC) + minutes * MINUTE)


def test_a_window_that_is_always_open_has_no_end() -> None:
    found = span_at(read_window((), "00:00", "24:00"), ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, tzinfo=UTC))
    assert found == Span(None, None)


def test_windows_of_neighbouring_days_are_one_span() -> None:
    friday = datetime(2026, 1, 16, 12, tzinfo=UTC)
    found = span_at(read_window(("Fri", "Sat"), "00:00", "24:00"), ZoneInfo("UTC"), friday)
    assert found == Span(datetime(2026, 1, 16, tzinfo=UTC), datetime(2026, 1, 18, tzinfo=UTC))
