"""The form of Evenkeel's annotations, and bad values. property/test_value_properties.py reads written ones."""

import json

import pytest

from evenkeel.domain.model.groups import Bounds, PublishedBounds
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published, write_adopted, write_published
from tests.builders import NOW

PUBLISHED = PublishedBounds(at=NOW, bounds=Bounds(0, 4))


def test_a_decision_is_readable_json() -> None:
    assert json.loads(write_published(PUBLISHED, 3, "levelled with the other zones")) == {
        "min": 0,
        "at": "2026-01-15T12:00:00Z",
        "state": "healthy",
        "target": 3,
        "max": 4,
        "why": "levelled with the other zones",
    }


def test_a_long_reason_is_cut() -> None:
    assert len(write_published(PUBLISHED, 3, "x" * 9999)) < 1200


@pytest.mark.parametrize("text", [None, "", "{", "null", "[]", "3", '"healthy"', "{}", f'{{"max": {"9" * 5000}}}'])
def test_a_text_that_is_no_decision_is_ignored(text) -> None:
    assert read_published(text) is None


@pytest.mark.parametrize(
    "field",
    [
        *('"min": null', '"state": "happy"', '"state": ["healthy"]', '"max": -4', '"max": 4.5', '"max": true'),
        *('"max": NaN', '"max": 99999999999', '"at": "9999-12-31T23:59:59Z"'),
        *('"at": "1999-06-01T00:00:00Z"', '"at": "2026-01-15T12:00:00"', '"at": "soon"'),
    ],
)
def test_a_decision_with_a_bad_field_is_ignored(field: str) -> None:
    good = write_published(PUBLISHED, 3, "why")
    assert read_published(good) == PUBLISHED
    bad = json.loads(good) | json.loads("{" + field + "}")
    assert read_published(json.dumps(bad)) is None


@pytest.mark.parametrize(("text", "bounds"), [("none", None), ("0,4", Bounds(0, 4)), ("3,3", Bounds(3, 3))])
def test_adopted_bounds_have_this_form(text, bounds) -> None:
    assert read_adopted(text) == bounds
    assert write_adopted(bounds) == text


@pytest.mark.parametrize("text", ["", "4", "0,4,5", "4,0", "-1,4", "a,b", "None"])
def test_bad_adopted_bounds_are_refused(text) -> None:
    with pytest.raises(BadValueError):
        read_adopted(text)
