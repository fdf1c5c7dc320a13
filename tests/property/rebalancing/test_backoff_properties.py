"""Failure reports get lost or arrive doubled, late and out of order: the state must not depend on that."""

from datetime import datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import observe_running, record_failure, state_at
from tests.builders import NOW

POLICY = BackoffPolicy()

# Minutes; long enough for backoffs to end, to be forgotten, and to begin again.
streams = st.lists(st.integers(0, 600), min_size=1, max_size=20, unique=True)


def _at(minute: int) -> datetime:
    return NOW + timedelta(minutes=minute)


def _fold(minutes: list[int], state: GroupState = GroupState()) -> GroupState:  # noqa: B008 - frozen
    for minute in minutes:
        state = record_failure(state, _at(minute), FailureClass.CAPACITY, f"at {minute}", POLICY)
    return state


@given(streams.flatmap(lambda stream: st.tuples(st.just(sorted(stream)), st.permutations(stream))))
def test_late_reports_count_as_timely_ones(streams: tuple[list[int], list[int]]) -> None:
    in_order, shuffled = map(_fold, streams)
    assert shuffled.failure.failures == in_order.failure.failures
    assert shuffled.failure.last_failure == in_order.failure.last_failure
    assert shuffled.failure.message == in_order.failure.message
    assert shuffled.failure.reports == in_order.failure.reports
    assert shuffled.failure.backoff_until >= in_order.failure.backoff_until


@given(streams, st.data())
def test_a_repeated_report_changes_nothing(stream: list[int], data: st.DataObject) -> None:
    state = _fold(stream)
    again = data.draw(st.lists(st.sampled_from(stream)))
    assert _fold(again, state) == state


@given(streams)
def test_no_report_shortens_a_backoff(stream: list[int]) -> None:
    state = GroupState()
    for minute in stream:
        after = _fold([minute], state)
        if state.failure.backoff_until is not None:
            assert after.failure.backoff_until >= state.failure.backoff_until
        state = after


@given(streams)
def test_a_backoff_lasts_between_five_and_thirty_minutes(stream: list[int]) -> None:
    state = _fold(sorted(stream))
    until = state.failure.backoff_until
    begun = [_at(minute) for minute in stream if _at(minute) <= until]
    lasts = until - max(at for at in begun if at + timedelta(minutes=5) <= until)
    assert timedelta(minutes=5) <= lasts <= timedelta(minutes=30)
    assert until <= state.failure.last_failure + timedelta(minutes=30)


@given(streams, st.integers(0, 600))
def test_a_failure_before_the_last_success_changes_nothing(stream: list[int], minute: int) -> None:
    late = max(stream) + 31  # past the longest backoff
    stuck = observe_running(_fold(stream), 3, None, _at(late), POLICY)
    recovered = observe_running(stuck, 4, None, _at(late + 1), POLICY)
    assert recovered.arrivals.last_success == _at(late + 1)
    assert _fold([min(minute, late + 1)], recovered) == recovered


@given(streams, st.integers(0, 600), st.integers(1, 3))
def test_a_failure_before_the_end_of_a_backoff_changes_nothing(stream: list[int], minute: int, arrived: int) -> None:
    state = _fold(stream)
    end = max(stream) + 1  # inside the last backoff
    assume(_at(end) <= state.failure.backoff_until)  # a report in the last instant of a backoff starts no other
    seen = observe_running(state, 3, 0, _at(end), POLICY)
    assert state_at(seen, _at(end), POLICY) is State.FENCED
    ended = observe_running(seen, 3 + arrived, arrived, _at(end), POLICY)
    assert state_at(ended, _at(end), POLICY) is (State.PROBING if arrived == 1 else State.HEALTHY)
    assert _fold([min(minute, end)], ended) == ended


@given(streams, st.integers(0, 1000))
def test_a_group_is_fenced_in_backoff_and_healthy_after_forget_after(stream: list[int], minute: int) -> None:
    state = _fold(stream)
    found = state_at(state, _at(minute), POLICY)
    if _at(minute) > state.failure.last_failure + POLICY.forget_after:
        assert found is State.HEALTHY
    elif _at(minute) <= state.failure.backoff_until:
        assert found is State.FENCED
    else:
        assert found is State.PROBING


def test_failures_for_days_are_counted_in_a_bounded_record() -> None:
    state = GroupState()
    for turn in range(200):
        state = _fold([turn * 31], state)
        assert state.failure.failures == turn + 1
        assert len(state.failure.reports) <= 64
        assert state.failure.backoff_until == _at(turn * 31) + POLICY.length(turn + 1)
