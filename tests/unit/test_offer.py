"""Our annotations: what is read back from them, and what is not."""

import json

import pytest

from evenkeel.domain.annotations import read_adopted, read_offer, read_publication, write_adopted, write_decision
from evenkeel.domain.model.groups import Bounds, Offer, State
from evenkeel.domain.model.values import BadValueError
from tests.builders import NOW


def test_a_decision_can_be_read_by_people() -> None:
    text = write_decision(Offer(max=4, target=3, state=State.HEALTHY), NOW, "levelled with the other zones")
    assert json.loads(text) == {
        "at": "2026-01-15T12:00:00Z",
        "state": "healthy",
        "target": 3,
        "max": 4,
        "why": "levelled with the other zones",
    }


def test_a_long_reason_does_not_swell_the_object() -> None:
    assert len(write_decision(Offer(max=4, target=3, state=State.HEALTHY), NOW, "x" * 9999)) < 1200


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
        '{"max": 4, "target": 3}',
        '{"max": 4, "target": 3, "state": "happy"}',
        '{"max": 4, "target": 3, "state": ["healthy"]}',
        '{"max": -4, "target": 3, "state": "healthy"}',
        '{"max": 4.5, "target": 3, "state": "healthy"}',
        '{"max": true, "target": 3, "state": "healthy"}',
        '{"max": NaN, "target": 3, "state": "healthy"}',
        '{"max": 4, "target": 99999999999, "state": "healthy"}',
        '{"max": ' + "9" * 5000 + ', "target": 3, "state": "healthy"}',
    ],
)
def test_what_is_no_decision_is_no_offer(text) -> None:
    assert read_offer(text) is None


@pytest.mark.parametrize(("text", "found"), [("none", None), ("0,4", Bounds(0, 4)), ("3,3", Bounds(3, 3))])
def test_adopted_bounds_are_read(text, found) -> None:
    assert read_adopted(text) == found
    assert write_adopted(found) == text


@pytest.mark.parametrize("text", ["", "4", "0,4,5", "4,0", "-1,4", "a,b", "None"])
def test_adopted_bounds_that_cannot_be_put_back_are_refused(text) -> None:
    with pytest.raises(BadValueError):
        read_adopted(text)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "1999-06-01T00:00:00Z", "2026-01-15T12:00:00", "soon"])
def test_a_moment_that_we_cannot_have_written_is_no_publication(moment) -> None:
    assert read_publication(json.dumps({"at": moment, "min": 0, "max": 4})) is None
