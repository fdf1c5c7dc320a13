"""Which decision about a group counts: the stored one, or its tag."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from evenkeel.adapters.auto_scaling.decisions import decision_of
from evenkeel.domain.model.groups import Bounds, PublishedBounds
from evenkeel.domain.rebalancing.annotations import (
    begun,
    ended,
    ended_at,
    for_tag,
    is_unfinished,
    may_be_suspended,
    read_published,
    write_published,
)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
OURS, OTHER = "evenkeel/demo", "evenkeel/other"


def text(minutes: int = 0) -> str:
    published = PublishedBounds(at=NOW + minutes * timedelta(minutes=1), bounds=Bounds(0, 4), requested=2, before=3)
    return write_published(published, 2, "a reason " * 99)


def stored(minutes: int = 0) -> str:
    return ended(text(minutes), Bounds(0, 4), writer=OURS, at=None, now=NOW)


def tagged(minutes: int = 0, writer: str = OURS) -> str:
    return for_tag(text(minutes), writer=writer)


@pytest.mark.parametrize(
    ("tag", "in_table", "counts"),
    [
        (None, None, None),
        (tagged(), None, tagged()),
        (tagged(), stored(), stored()),
        (tagged(-5), stored(), stored()),
        (tagged(5), stored(), tagged(5)),  # of an older release of Evenkeel
        (tagged(-5, OTHER), stored(), tagged(-5, OTHER)),
        ("", stored(), stored()),
        ("{", stored(), stored()),
        (None, stored(), None),  # the group has been restored or created again
        (tagged(), "", tagged()),
    ],
)
def test_the_stored_decision_counts_unless_the_tag_is_newer_or_names_another_writer(
    tag: str | None, in_table: str | None, counts: str | None
) -> None:
    assert decision_of(tag, in_table, OURS) == counts


def test_an_unfinished_write_counts_even_if_the_tag_has_been_removed() -> None:
    begins = begun(text(), Bounds(0, 9), writer=OURS, suspends=True)
    assert decision_of(None, begins, OURS) == begins


@pytest.mark.parametrize("suspends", [True, False])
def test_a_decision_shows_whether_its_write_has_ended_and_may_have_suspended_a_process(*, suspends: bool) -> None:
    begins = begun(text(), Bounds(0, 9), writer=OURS, suspends=suspends)
    assert (is_unfinished(begins), may_be_suspended(begins), ended_at(begins)) == (True, suspends, None)
    assert read_published(begins) == PublishedBounds(at=NOW, bounds=Bounds(0, 9))
    ends = ended(begins, Bounds(0, 4), writer=OURS, at=None, now=NOW)
    assert (is_unfinished(ends), may_be_suspended(ends), ended_at(ends)) == (False, False, NOW)
    assert read_published(ends) == PublishedBounds(at=NOW, bounds=Bounds(0, 4))


def test_a_tag_has_no_numbers_and_reasons_because_not_every_write_changes_it() -> None:
    assert not {"min", "max", "requested", "before", "target", "why"} & json.loads(tagged()).keys()
    assert read_published(tagged()) == PublishedBounds(at=NOW, bounds=None)


@pytest.mark.parametrize("value", [None, "", "[]", "{", '{"ended": 7}', '{"ended": "2026-01-01"}'])
def test_a_text_that_is_no_decision_has_not_ended(value: str | None) -> None:
    assert ended_at(value) is None
    assert not is_unfinished(value)
