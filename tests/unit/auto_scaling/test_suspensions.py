"""Which suspended processes are Evenkeel's: AWS shows the time of a suspension, and not its writer."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.suspensions import is_suspended_by_others
from evenkeel.domain.model.groups import Bounds, PublishedBounds
from evenkeel.domain.rebalancing.annotations import begun, ended, suspends_since, write_published

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def decision(seconds: int = 0) -> str:
    at = NOW + timedelta(seconds=seconds)
    return write_published(PublishedBounds(at=at, bounds=Bounds(0, 4)), 2, "a reason")


def begins(seconds: int = 0, *, since: datetime | None = None, suspends: bool = True) -> str:
    return begun(decision(seconds), Bounds(0, 4), writer="evenkeel/demo", suspends=suspends, since=since)


def group(reason: str) -> dict[str, Any]:
    return {"SuspendedProcesses": [{"ProcessName": "Terminate", "SuspensionReason": reason}]}


def at(seconds: int) -> str:
    return f"User suspended at {(NOW + timedelta(seconds=seconds)).isoformat().replace('+00:00', 'Z')}"


@pytest.mark.parametrize(
    ("seconds", "by_others"), [(-600, True), (-15, True), (-5, False), (0, False), (600, False), (601, True)]
)
def test_a_process_suspended_before_the_write_or_long_after_it_is_another_writers(
    seconds: int, *, by_others: bool
) -> None:
    assert is_suspended_by_others(group(at(seconds)), begins()) is by_others


def test_a_process_that_an_earlier_unfinished_write_has_suspended_is_ours() -> None:
    later = begins(50, since=suspends_since(begins()))
    assert not is_suspended_by_others(group(at(1)), later)
    assert suspends_since(begins(99, since=suspends_since(later))) == NOW
    assert '"since"' not in ended(later, Bounds(0, 4), writer="evenkeel/demo", at=None, now=NOW)


@pytest.mark.parametrize("reason", ["", "Administrative suspension", "at 2026-99-99T99:99:99Z", "suspended at noon"])
def test_a_process_whose_time_is_unknown_counts_as_ours(reason: str) -> None:
    assert not is_suspended_by_others(group(reason), begins())


@pytest.mark.parametrize("text", ["", "{", decision(), begins(suspends=False)])
def test_a_decision_that_suspends_nothing_names_no_other_writer(text: str) -> None:
    assert suspends_since(text) is None
    assert not is_suspended_by_others(group(at(-600)), text)
