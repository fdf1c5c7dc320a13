"""Our annotations: what is read back from them, and what is not."""

import json

import pytest

from evenkeel.domain.model.groups import Bounds, PublishedBounds
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published, write_adopted, write_published
from tests.builders import NOW

PUBLISHED = PublishedBounds(at=NOW, bounds=Bounds(0, 4))


def test_a_decision_can_be_read_by_people() -> None:
    assert json.loads(write_published(PUBLISHED, 3, "levelled with the other zones")) == {
        "min": 0,
        "at": "2026-01-15T12:00:00Z",
        "state": "healthy",
        "target": 3,
        "max": 4,
        "why": "levelled with the other zones",
    }


def test_a_long_reason_does_not_swell_the_object() -> None:
    assert len(write_published(PUBLISHED, 3, "x" * 9999)) < 1200


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "null",
        "[]",
        "3",
        '"healthy"',
        "{}",
        '{"max": 4, "at": "2026-01-15T12:00:00Z"}',
        '{"max": 4, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "happy"}',
        '{"max": 4, "at": "2026-01-15T12:00:00Z", "min": 0, "state": ["healthy"]}',
        '{"max": -4, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
        '{"max": 4.5, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
        '{"max": true, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
        '{"max": NaN, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
        '{"max": 99999999999, "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
        '{"max": ' + "9" * 5000 + ', "at": "2026-01-15T12:00:00Z", "min": 0, "state": "healthy"}',
    ],
)
def test_what_is_no_decision_says_nothing(text) -> None:
    assert read_published(text) is None


@pytest.mark.parametrize(("text", "found"), [("none", None), ("0,4", Bounds(0, 4)), ("3,3", Bounds(3, 3))])
def test_adopted_bounds_are_read(text, found) -> None:
    assert read_adopted(text) == found
    assert write_adopted(found) == text


@pytest.mark.parametrize("text", ["", "4", "0,4,5", "4,0", "-1,4", "a,b", "None"])
def test_adopted_bounds_that_cannot_be_put_back_are_refused(text) -> None:
    with pytest.raises(BadValueError):
        read_adopted(text)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "1999-06-01T00:00:00Z", "2026-01-15T12:00:00", "soon"])
def test_a_moment_that_we_cannot_have_written_is_none(moment) -> None:
    assert read_published(json.dumps({"at": moment, "min": 0, "max": 4, "state": "healthy"})) is None
