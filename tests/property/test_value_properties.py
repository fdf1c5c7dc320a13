"""Numbers from annotations are read as Cluster Autoscaler reads them, or refused in one line."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, quote, read_count
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published, write_adopted, write_published
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones, read_int_or_percent
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES, read_strategy
from tests.property.worlds import bounds

counts = st.integers(0, LARGEST_COUNT)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _read_or_refuse(read: Callable[[Any], Any], value: object) -> Any:
    """What was read, or None where it was refused in one line."""
    try:
        return read(value)
    except BadValueError as error:
        told = str(error)
    assert told
    assert "\n" not in told
    return None


@given(counts, st.sampled_from(["", "+", "0", "+000"]))
def test_a_count_is_read_from_its_digits(value: int, prefix: str) -> None:
    assert read_count(f"{prefix}{value}") == value
    assert read_count(value) == value


@given(st.text() | json_values)
def test_anything_else_is_refused_and_never_crashes(value: object) -> None:
    found = _read_or_refuse(read_count, value)
    assert found is None or 0 <= found <= LARGEST_COUNT
    assert found is None or str(value).isascii()


@given(st.text())
def test_a_value_in_an_error_is_short_and_on_one_line(value: str) -> None:
    assert len(quote(value)) <= 60
    assert quote(value).isprintable()


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_the_shares_of_all_zones_add_up_and_differ_by_one_at_most(size: int, zones: int) -> None:
    shares = [distribute_over_zones(i, size, zones) for i in range(zones)]
    assert sum(shares) == size
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


@given(st.text())
def test_a_strategy_or_percentage_that_is_none_is_refused_by_a_sentence(value: str) -> None:
    assert _read_or_refuse(read_strategy, value) in (None, *STRATEGIES)
    assert isinstance(_read_or_refuse(read_int_or_percent, value), int | str | None)


@given(counts, counts, st.sampled_from(State), st.none() | counts, st.text())
def test_the_decision_annotation_is_read_back_as_it_was_written(
    low: int, more: int, state: State, before: int | None, why: str
) -> None:
    bounds = Bounds(min(low, more), max(low, more))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    published = PublishedBounds(at=at, bounds=bounds, state=state, requested=low, before=before)
    assert read_published(write_published(published, low, why)) == published


@given(st.text() | json_values.map(json.dumps))
def test_an_annotation_that_somebody_has_edited_is_no_offer_and_no_crash(text: str) -> None:
    found = read_published(text)
    assert found is None or isinstance(found, PublishedBounds)


@given(st.none() | bounds)
def test_adopted_bounds_are_read_back_as_they_were_written(found) -> None:
    assert read_adopted(write_adopted(found)) == found


@given(st.text() | json_values.map(json.dumps))
def test_adopted_bounds_that_somebody_has_edited_are_refused_by_a_sentence(text: str) -> None:
    assert isinstance(_read_or_refuse(read_adopted, text), Bounds | None)


@given(st.text(max_size=200), st.text(max_size=5000))
def test_every_code_and_message_has_a_class(code: str, message: str) -> None:
    assert classify(code, message) in FailureClass


@pytest.mark.parametrize("depth", [100_000])
def test_a_nested_annotation_is_no_offer(depth: int) -> None:
    assert read_published("[" * depth + "]" * depth) is None
