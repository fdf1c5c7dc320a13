"""Numbers from annotations are read as Cluster Autoscaler reads them, or refused in one line."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, quote, read_count
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published, write_adopted, write_published
from evenkeel.domain.rebalancing.bounds.distribute import read_int_or_percent
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES, read_strategy
from tests.builders import json_values
from tests.property.worlds import bounds

counts = st.integers(0, LARGEST_COUNT)
values = json_values(st.text(), keys=st.text())
texts = st.text() | values.map(json.dumps)


def _read_or_refuse(read: Callable[[Any], Any], value: object) -> Any:
    try:
        return read(value)
    except BadValueError as error:
        reported = str(error)
    assert reported
    assert "\n" not in reported
    return None


@given(counts, st.sampled_from(["", "+", "0", "+000"]))
def test_a_count_is_read_from_its_digits(value: int, prefix: str) -> None:
    assert read_count(f"{prefix}{value}") == value
    assert read_count(value) == value


@given(st.text() | values)
def test_anything_else_is_refused_and_never_crashes(value: object) -> None:
    found = _read_or_refuse(read_count, value)
    assert found is None or 0 <= found <= LARGEST_COUNT
    assert found is None or str(value).isascii()


@given(st.text())
def test_a_value_in_an_error_is_short_and_on_one_line(value: str) -> None:
    assert len(quote(value)) <= 60
    assert quote(value).isprintable()


@given(st.text())
def test_an_unknown_strategy_or_percentage_is_refused(value: str) -> None:
    assert _read_or_refuse(read_strategy, value) in (None, *STRATEGIES)
    assert isinstance(_read_or_refuse(read_int_or_percent, value), int | str | None)


@given(counts, counts, st.sampled_from(State), st.none() | counts, st.text())
def test_the_decision_annotation_is_read_back(low: int, more: int, state: State, before: int | None, why: str) -> None:
    bounds = Bounds(min(low, more), max(low, more))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    published = PublishedBounds(at=at, bounds=bounds, state=state, requested=low, before=before)
    assert read_published(write_published(published, low, why)) == published


@given(texts)
def test_an_edited_decision_annotation_is_ignored(text: str) -> None:
    found = read_published(text)
    assert found is None or isinstance(found, PublishedBounds)


@given(st.none() | bounds)
def test_adopted_bounds_are_read_back_as_they_were_written(found) -> None:
    assert read_adopted(write_adopted(found)) == found


@given(texts)
def test_edited_adopted_bounds_are_refused(text: str) -> None:
    assert isinstance(_read_or_refuse(read_adopted, text), Bounds | None)


@given(st.text(max_size=200), st.text(max_size=5000))
def test_every_code_and_message_has_a_class(code: str, message: str) -> None:
    assert classify(code, message) in FailureClass


def test_a_nested_annotation_is_no_offer() -> None:
    assert read_published("[" * 100_000 + "]" * 100_000) is None
