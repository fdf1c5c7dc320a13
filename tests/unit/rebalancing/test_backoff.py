"""The life of a backoff, minute by minute."""

from datetime import datetime, timedelta

import pytest

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import MachineFailure, State
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import UNKNOWN, ClusterState, GroupState
from evenkeel.domain.rebalancing.health.backoff import (
    impaired_until,
    observe_running,
    own_state,
    record_failure,
    state_at,
)
from tests.builders import (
    MINUTE,
    NOW,
    after_backoff,
    drafted,
    group,
    in_backoff,
    key,
    machines,
    numbers,
    plan_of,
    zones,
)
from tests.parts import make, replace

POLICY = BackoffPolicy()


def at(minutes: float):
    return NOW + timedelta(minutes=minutes)


def fail(state: GroupState, minutes: float, kind: FailureClass = FailureClass.CAPACITY) -> GroupState:
    return record_failure(state, at(minutes), kind, f"failed at {minutes}", POLICY)


def observe(state: GroupState, running: int, minutes: float, fresh: int | None = None) -> GroupState:
    """Return the state after a check of so many nodes; ``fresh``: launched since the last failure (None: unlisted)."""
    return observe_running(state, running, fresh, at(minutes), POLICY)


def lived(story: str) -> GroupState:
    """Return the state after a story: a failure or running nodes, each with its minute: "fail 0, 3@1, 4@2 fresh 1"."""
    state = GroupState()
    for event in story.split(", "):
        words = event.replace("@", " ").split()
        if words[0] == "fail":
            state = fail(state, float(words[1]))
        else:
            state = observe(state, int(words[0]), float(words[1]), int(words[3]) if len(words) > 2 else None)
    return state


def until(state: GroupState) -> float:
    assert state.failure.backoff_until is not None
    return (state.failure.backoff_until - NOW) / timedelta(minutes=1)


def found(state: GroupState, minutes: float) -> State:
    return state_at(state, at(minutes), POLICY)


@pytest.mark.parametrize(
    ("story", "minute", "state", "failures", "end"),
    [
        pytest.param("fail 0", 0, State.FENCED, 1, 5, id="a failure fences"),
        pytest.param("fail 0", 5, State.FENCED, 1, 5, id="the last moment included, as in cluster-autoscaler"),
        pytest.param("fail 0", 5.1, State.PROBING, 1, 5, id="then it probes"),
        pytest.param("fail 0, fail 0", 6, State.PROBING, 1, 5, id="a second report at once"),
        pytest.param("fail 0, fail 2", 6, State.PROBING, 1, 5, id="a second report inside"),
        pytest.param("fail 0, fail 5", 6, State.PROBING, 1, 5, id="a second report at the end"),
        pytest.param("fail 0", 180, State.PROBING, 1, 5, id="known for three hours"),
        pytest.param("fail 0", 180.1, State.HEALTHY, 1, 5, id="then forgotten"),
        pytest.param("fail 0, fail 179", 180, State.FENCED, 2, 189, id="a failure within three hours doubles"),
        pytest.param("fail 0, fail 181", 182, State.FENCED, 1, 186, id="a failure after three hours is a first"),
        pytest.param("fail 0, fail 4, fail 183", 184, State.FENCED, 2, 193, id="three hours of the last report"),
        pytest.param("fail 0, fail 4, fail 185", 186, State.FENCED, 1, 190, id="after the last report"),
        pytest.param("fail 0, 3@6", 6, State.PROBING, 1, 5, id="the first check is no success"),
        pytest.param("fail 0, 3@6, 2@7", 7, State.PROBING, 1, 5, id="fewer nodes are none"),
        pytest.param("fail 0, 3@6, 3@7", 7, State.PROBING, 1, 5, id="as many nodes are none"),
        pytest.param("fail 0, 3@6, 4@7", 7, State.HEALTHY, 1, 5, id="one new node is one"),
        pytest.param("fail 0, 3@6, 4@7, fail 20", 31, State.PROBING, 2, 30, id="a failure after it still doubles"),
        pytest.param("fail 0, 3@1, 4@2", 3, State.FENCED, 1, 5, id="a node of before the failure"),
        pytest.param("fail 0, 3@1, 4@2 fresh 0", 3, State.FENCED, 1, 5, id="none launched after it"),
        pytest.param("fail 0, 3@1, 4@2 fresh 0, 5@7 fresh 0", 7, State.PROBING, 1, 5, id="nor later"),
        pytest.param("fail 0, 3@1, 4@2, 5@7", 7, State.HEALTHY, 1, 5, id="unless machines are not listed"),
        pytest.param("fail 0, 3@1, 4@2 fresh 1", 2, State.PROBING, 1, 5, id="one launched after it ends the backoff"),
        pytest.param("fail 0, 3@1, 4@2 fresh 1, 4@3 fresh 1", 3, State.PROBING, 1, 5, id="the same node again"),
        pytest.param("fail 0, 3@1, 4@2 fresh 1, 5@4 fresh 2", 4, State.HEALTHY, 1, 5, id="the next one is a success"),
        pytest.param("fail 0, 3@1, 5@2 fresh 2", 2, State.HEALTHY, 1, 5, id="two at once"),
        pytest.param("fail 0, 3@1, 4@2 fresh 1, fail 3", 3, State.FENCED, 2, 13, id="a failure after an early end"),
    ],
)
def test_a_backoff(story: str, minute: float, state: State, failures: int, end: float) -> None:
    group_state = lived(story)
    assert (found(group_state, minute), group_state.failure.failures, until(group_state)) == (state, failures, end)


def test_failures_after_expiry_double_the_backoff_up_to_thirty_minutes() -> None:
    state, minute, lengths = GroupState(), 0.0, []
    for _ in range(6):
        state = fail(state, minute)
        lengths.append(until(state) - minute)
        minute = until(state) + 1
    assert lengths == [5, 10, 20, 30, 30, 30]


@pytest.mark.parametrize(("story", "minute"), [("fail 0, 3@6, 4@10", 10), ("fail 0, 3@1, 4@2 fresh 1", 2)])
def test_a_failure_in_the_moment_of_a_success_changes_nothing(story: str, minute: float) -> None:
    state = lived(story)
    assert fail(state, minute) is state
    assert fail(state, minute + 0.01).failure.failures == 2


def test_the_newest_failure_has_the_class_and_message() -> None:
    state = fail(fail(GroupState(), 10, FailureClass.QUOTA), 0, FailureClass.CAPACITY)
    assert (state.failure.failure_class, state.failure.message) == (FailureClass.QUOTA, "failed at 10")


def test_a_record_written_by_hand_keeps_its_count() -> None:
    written = make(GroupState, failures=3, last_failure=at(0), backoff_until=at(20))
    assert fail(written, 5).failure.failures == 3
    again = fail(written, 21)
    assert (again.failure.failures, until(again)) == (4, 51)
    assert fail(again, 52).failure.failures == 5


def test_an_impaired_zone_is_fenced_until_it_ends() -> None:
    zone = group("a", 2)

    def is_fenced(minutes: float, ends: float, state: GroupState = UNKNOWN) -> bool:
        impaired = impaired_until(zone, {str(zone.identity.zone): at(ends)}, at(minutes))
        return own_state(zone, state, at(minutes), impaired, POLICY) is State.FENCED

    assert [is_fenced(4.9, 5), is_fenced(5, 5), is_fenced(6, 7, lived("fail 0"))] == [True, False, True]
    assert found(UNKNOWN, 0) is State.HEALTHY


def test_a_clusters_own_constants_are_used() -> None:
    quick = BackoffPolicy(initial=timedelta(minutes=1), longest=timedelta(minutes=3), forget_after=timedelta(hours=1))
    state = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "", quick)
    assert until(state) == 1
    assert state_at(state, at(61), quick) is State.HEALTHY


def test_a_long_message_is_cut() -> None:
    state = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "x" * 300_000, POLICY)
    assert len(state.failure.message) == 1024


def test_a_plan_has_only_the_states_that_it_changes() -> None:
    members = [group("a", 3, bounds=(0, 9)), group("b", 3, bounds=(0, 9))]
    failed = replace(fail(GroupState(), -6), running_seen=2)
    seen = replace(fail(GroupState(), -6), running_seen=3)
    changed = plan_of(members, numbers(0, 9), states={key("a"): failed, key("b"): seen}).states
    assert set(changed) == {key("a")}
    assert changed[key("a")].arrivals.last_success == NOW


def test_a_failed_machine_has_come_through_a_backoff_if_it_failed_before_the_one_before_the_present() -> None:
    """A fenced group may have failed again only because the machine is late, so its present backoff does not count."""

    def lost(state: GroupState, failed_at: datetime) -> int:
        (*ran, new) = machines(group("a", 3, running=2, bounds=(0, 9)), MINUTE).machines or ()
        failed = replace(new, failure=MachineFailure(code="X", message="", at=failed_at), failed_for_good=True)
        found = group("a", 3, running=2, bounds=(0, 9), machines=(*ran, failed))
        groups = (found, group("b", 2, bounds=(0, 9)))
        return drafted(groups, numbers(0, 9), ClusterState(groups={key("a"): state})).groups[0].machines.lost

    for failures, minutes in ((1, 5), (2, 10), (3, 20)):
        until = NOW + MINUTE
        fenced = replace(in_backoff(failures=failures), backoff_until=until)
        assert [lost(fenced, until - (minutes + 5) * MINUTE - timedelta(seconds=second)) for second in (0, 1)] == [0, 1]
    probing, until = after_backoff(), after_backoff().failure.backoff_until
    assert [lost(probing, until - timedelta(seconds=second)) for second in (0, 1)] == [0, 1]


def test_a_success_that_no_check_has_seen_coming_starts_slow_start_with_two_nodes() -> None:
    """An event has reported the failure. The next check finds two nodes that were launched after it."""
    failed = record_failure(GroupState(), NOW - 4 * MINUTE, FailureClass.CAPACITY, "", POLICY)
    (found, other) = (machines(group(zone, 4, bounds=(0, 90))) for zone in "ab")
    (first, second, *others) = found.machines or ()
    new = [replace(one, created_at=NOW - 3 * MINUTE) for one in (first, second)]
    made = plan_of([replace(found, machines=(*new, *others)), other], numbers(0, 90), states={key("a"): failed})
    assert made.states[key("a")].arrivals.slow_start == 2


def test_a_fence_names_its_end_also_in_the_second_in_which_it_ends() -> None:
    policy = BackoffPolicy()
    state = record_failure(GroupState(), NOW - policy.initial, FailureClass.CAPACITY, "no room", policy)
    assert state.failure.backoff_until == NOW
    groups = zones((2, 2, 2), bounds=[(0, 9)] * 3)
    plan = plan_of(groups, states={groups[0].key: state}).pools[0].groups[0]
    (reason,) = [reason for reason in plan.reasons if reason.rule is Rule.IN_BACKOFF]
    assert reason.facts["until"] == NOW
