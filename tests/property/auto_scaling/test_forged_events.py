"""Forged, foreign, malformed, repeated and badly dated events: none fences another group or reaches another cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.rebalancing.events import EventResult, Ignored
from evenkeel.domain.model.policy import BackoffPolicy
from tests.unit.rebalancing.test_auto_scaling_events import (
    CHANGES,
    GROUP,
    KEY,
    NOON,
    OURS,
    REGION,
    THEIRS,
    Stack,
    event,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ODD = st.sampled_from(["", "a" * 300, "٣", "\ud800", "workers\n", "../prod", "http://evil", "arn:aws:x", "💥" * 2000])
KINDS = st.sampled_from(["group", "launch", *CHANGES])
TIMES = st.one_of(
    st.integers(-200, 200).map(lambda minutes: NOON + timedelta(minutes=minutes)),
    st.datetimes(datetime(2001, 1, 1), datetime(2190, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
).map(datetime.isoformat)


def stack_of_two() -> Stack:
    stack = Stack()
    stack.add("prod", [GROUP])
    stack.add("other", ["another-group"])
    stack.add("abroad", [GROUP], region="eu-west-1")
    return stack


@given(KINDS, st.dictionaries(st.sampled_from(["account", "region", "id", "time", "resources", "detail"]), JSON | ODD))
def test_no_bad_field_is_an_error_or_reaches_another_group(kind: str, fields: dict[str, Any]) -> None:
    stack = stack_of_two()
    forged = {**event(kind), **fields}
    found = read_event(forged, OURS)
    if isinstance(found, Ignored):
        assert "\n" not in found.reason
        assert len(found.reason) < 2000
        return
    stack.receive(forged)
    assert set(stack.fenced) <= {"prod"}
    assert set(stack.requested) <= {"prod"}


@given(
    KINDS,
    st.sampled_from([OURS, THEIRS, ""]),
    st.sampled_from([REGION, "eu-west-2"]),
    st.sampled_from([GROUP, "another", "prod", f"{GROUP}x", GROUP.upper()]),
)
@example("group", THEIRS, REGION, GROUP)
def test_only_the_account_the_region_and_the_name_of_a_group_reach_it(
    kind: str, account: str, region: str, name: str
) -> None:
    stack = stack_of_two()
    stack.receive(event(kind, name, account=account, region=region))
    is_it = (account, region, name) == (OURS, REGION, GROUP)
    assert stack.fenced == ({"prod": {str(KEY)}} if is_it and kind == "group" else {})
    assert is_it or (account == OURS and name == "prod") or stack.requested == []


@given(TIMES, st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_no_time_of_an_event_fences_for_longer_and_no_repetition_counts_twice(at: str, ids: list[int]) -> None:
    stack = stack_of_two()
    for number in ids:
        given = event("group", time=at, id=f"id-{number}")
        given["detail"]["ActivityId"] = f"activity-{number}"
        assert stack.receive(given).result in (EventResult.RECORDED, EventResult.KNOWN, EventResult.REQUESTED)
    state = stack.store.load("prod").state.groups.get(KEY)
    if state is not None and state.failure.backoff_until is not None:
        assert state.failure.failures == 1
        assert state.failure.backoff_until <= NOON + timedelta(minutes=1) + BackoffPolicy().initial
    assert set(stack.requested) <= {"prod"}
