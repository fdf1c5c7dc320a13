"""The life of a backoff, minute by minute."""

from dataclasses import replace
from datetime import timedelta

import pytest

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import observe_running, record_failure, state_at
from tests.builders import NOW, group, key, numbers, plan_of

POLICY = BackoffPolicy()


def at(minutes: float):
    return NOW + timedelta(minutes=minutes)


def fail(state: GroupState, minutes: float, kind: FailureClass = FailureClass.CAPACITY) -> GroupState:
    return record_failure(state, at(minutes), kind, f"failed at {minutes}", POLICY)


def observe(state: GroupState, running: int, minutes: float, fresh: int | None = None) -> GroupState:
    """A look that found so many nodes, of which ``fresh`` were launched after the last failure (None: not listed)."""
    return observe_running(state, running, fresh, at(minutes), POLICY)


def until(state: GroupState) -> float:
    assert state.backoff_until is not None
    return (state.backoff_until - NOW) / timedelta(minutes=1)


def found(state: GroupState, minutes: float, impaired: float | None = None) -> State:
    return state_at(state, at(minutes), None if impaired is None else at(impaired), POLICY)


def test_a_first_failure_fences_for_five_minutes_then_probes() -> None:
    state = fail(GroupState(), 0)
    assert state.failures == 1
    assert [found(state, minute) for minute in (0, 4.9, 5, 5.1, 60)] == [
        State.FENCED,
        State.FENCED,
        State.FENCED,  # the end belongs to the backoff, as in Cluster Autoscaler
        State.PROBING,
        State.PROBING,
    ]


def test_failures_after_expiry_double_the_backoff_up_to_thirty_minutes() -> None:
    state, minute, lengths = GroupState(), 0.0, []
    for _ in range(6):
        state = fail(state, minute)
        lengths.append(until(state) - minute)
        minute = until(state) + 1
    assert lengths == [5, 10, 20, 30, 30, 30]


@pytest.mark.parametrize("minute", [0, 2, 5])
def test_a_failure_inside_a_backoff_neither_doubles_nor_prolongs_it(minute) -> None:
    state = fail(fail(GroupState(), 0), minute)
    assert state.failures == 1
    assert until(state) == 5


def test_a_failure_is_forgotten_three_hours_after_the_last() -> None:
    state = fail(GroupState(), 0)
    assert found(state, 180) is State.PROBING
    assert found(state, 180.1) is State.HEALTHY
    assert fail(state, 181).failures == 1
    assert fail(state, 179).failures == 2


def test_the_three_hours_count_from_the_last_report_even_inside_a_backoff() -> None:
    state = fail(fail(GroupState(), 0), 4)
    assert found(state, 183) is State.PROBING
    assert fail(state, 183).failures == 2
    assert fail(state, 185).failures == 1


def test_one_new_running_machine_closes_a_backoff() -> None:
    state = fail(GroupState(), 0)
    state = observe(state, 3, 6)
    assert found(state, 6) is State.PROBING
    state = observe(state, 4, 7)
    assert state.last_success == at(7)
    assert found(state, 7) is State.HEALTHY


def test_the_first_look_after_a_failure_is_no_success_and_neither_are_fewer_machines() -> None:
    state = observe(fail(GroupState(), 0), 3, 6)
    assert state.last_success is None
    assert observe(state, 2, 7).last_success is None
    assert observe(state, 3, 7) == state


@pytest.mark.parametrize("fresh", [0, None])
def test_a_machine_that_was_under_way_when_its_group_failed_does_not_end_the_backoff(fresh: int | None) -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 1), 4, 2, fresh)
    assert found(state, 3) is State.FENCED
    assert found(state, 6) is State.PROBING
    # Nor is another such the success that a trial waits for, unless nobody knows.
    assert found(observe(state, 5, 7, fresh), 7) is (State.PROBING if fresh == 0 else State.HEALTHY)


def test_a_machine_launched_after_the_failure_ends_the_backoff_and_the_next_ends_the_trouble() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 1), 4, 2, fresh=1)
    assert found(state, 2) is State.PROBING
    assert found(observe(state, 4, 3, fresh=1), 3) is State.PROBING
    state = observe(state, 5, 4, fresh=2)
    assert (found(state, 4), state.last_success) == (State.HEALTHY, at(4))


def test_two_machines_launched_after_the_failure_are_enough_at_once() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 1), 5, 2, fresh=2)
    assert (found(state, 2), state.last_success) == (State.HEALTHY, at(2))


def test_a_failure_after_the_backoff_was_ended_is_a_new_one_and_doubles() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 1), 4, 2, fresh=1)
    state = fail(state, 3)
    assert (found(state, 3), state.failures, until(state)) == (State.FENCED, 2, 13)


def test_a_failure_after_a_success_still_doubles() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 6), 4, 7)
    state = fail(state, 20)
    assert state.failures == 2
    assert until(state) == 30
    assert found(state, 31) is State.PROBING


def test_a_failure_in_the_very_moment_of_a_success_changes_nothing() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 6), 4, 10)
    assert fail(state, 10) is state
    assert fail(state, 10.01).failures == 2


def test_a_failure_in_the_very_moment_that_ended_a_backoff_changes_nothing() -> None:
    state = observe(observe(fail(GroupState(), 0), 3, 1), 4, 2, fresh=1)
    assert fail(state, 2) is state


def test_the_newest_failure_says_what_kind_it_is() -> None:
    state = fail(fail(GroupState(), 10, FailureClass.QUOTA), 0, FailureClass.CAPACITY)
    assert state.failure_class is FailureClass.QUOTA
    assert state.message == "failed at 10"


def test_a_record_written_by_hand_keeps_its_count() -> None:
    written = GroupState(failures=3, last_failure=at(0), backoff_until=at(20))
    assert fail(written, 5).failures == 3
    again = fail(written, 21)
    assert (again.failures, until(again)) == (4, 51)
    assert fail(again, 52).failures == 5


def test_an_impaired_zone_is_fenced_until_it_ends() -> None:
    assert state_at(None, at(4.9), at(5), POLICY) is State.FENCED
    assert state_at(None, at(5), at(5), POLICY) is State.HEALTHY
    assert found(fail(GroupState(), 0), 6, impaired=7) is State.FENCED


def test_a_group_that_nothing_is_known_of_is_healthy() -> None:
    assert state_at(None, NOW, None, POLICY) is State.HEALTHY
    assert found(GroupState(), 0) is State.HEALTHY


def test_a_clusters_own_constants_are_used() -> None:
    quick = BackoffPolicy(initial=timedelta(minutes=1), longest=timedelta(minutes=3), forget_after=timedelta(hours=1))
    state = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "", quick)
    assert until(state) == 1
    assert state_at(state, at(61), None, quick) is State.HEALTHY


def test_a_long_message_is_kept_short() -> None:
    state = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "x" * 300_000, POLICY)
    assert len(state.message) == 1024


def test_a_plan_reports_only_the_states_that_its_look_has_changed() -> None:
    members = [group("a", 3, bounds=(0, 9)), group("b", 3, bounds=(0, 9))]
    failed = replace(fail(GroupState(), -6), running_seen=2)
    seen = replace(fail(GroupState(), -6), running_seen=3)
    changed = plan_of(members, numbers(0, 9), states={key("a"): failed, key("b"): seen}).states
    assert set(changed) == {key("a")}
    assert changed[key("a")].last_success == NOW
