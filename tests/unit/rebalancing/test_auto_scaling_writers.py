"""The writers that revert an Auto Scaling group's bounds, named by CloudTrail's events before or after the contest."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.rebalancing.events import EventResult, Failure
from evenkeel.domain.model.groups import UNNAMED_BY_AWS, Bounds, FieldManagers, PublishedBounds, State, WrittenByUs
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState, MemberSnapshot, PoolState
from evenkeel.domain.rebalancing.health.observed import note_writer, observe_health
from tests.builders import NOW, group
from tests.unit.rebalancing.test_auto_scaling_events import KEY, NOON, OURS, Stack, event

TERRAFORM = {
    "eventName": "UpdateAutoScalingGroup",
    "userAgent": "APN/1.0 HashiCorp/1.0 Terraform/1.9.5",
    "userIdentity": {"type": "AssumedRole", "arn": f"arn:aws:sts::{OURS}:assumed-role/deployer/ci-1"},
}
NAMED = "role deployer (APN/1.0 HashiCorp/1.0 Terraform/1.9.5)"
MINUTE = timedelta(minutes=1)


def call(**detail: Any) -> dict[str, Any]:
    given = event("call")
    given["detail"] |= TERRAFORM | detail
    return given


def stack_with_group() -> Stack:
    stack = Stack()
    stack.add("prod", [KEY.name])
    return stack


def state_of(stack: Stack) -> GroupState:
    return stack.store.load("prod").state.groups.get(KEY, GroupState())


def test_the_writer_of_bounds_is_kept() -> None:
    stack = stack_with_group()
    assert stack.receive(call()).result is EventResult.REQUESTED
    contest = state_of(stack).contest
    assert (contest.changed_by, contest.changed_at) == (NAMED, NOON + timedelta(seconds=5))


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ({"arn": f"arn:aws:iam::{OURS}:user/ann"}, "user/ann"),
        ({"arn": f"arn:aws:iam::{OURS}:root"}, "root"),
        ({"invokedBy": "eks.amazonaws.com"}, "eks.amazonaws.com"),
        ({}, "an unnamed principal"),
        ({"arn": 7, "invokedBy": "a\nb"}, "7"),
    ],
)
def test_every_kind_of_principal_has_one_line(identity: dict[str, Any], name: str) -> None:
    found = read_event(call(userIdentity=identity, userAgent="x" * 500), OURS)
    assert isinstance(found, Failure)
    assert found.writer == f"{name} ({'x' * 80})"


def test_a_write_of_the_desired_capacity_names_nobody() -> None:
    stack = stack_with_group()
    stack.receive(call(eventName="SetDesiredCapacity"))
    assert state_of(stack) == GroupState()


def test_a_group_that_evenkeel_has_not_written_stores_no_writer() -> None:
    stack = stack_with_group()
    (id,) = stack.store.load("prod").state.pools
    stored = stack.store.load("prod")
    stack.store.save_pool(
        "prod", id, PoolState(seen=MemberSnapshot(since=NOON, requested={str(KEY): 2})), stored.versions
    )
    assert stack.receive(call()).result is EventResult.REQUESTED
    assert stack.store.load("prod").state.groups == {}


def contested(state: GroupState) -> GroupState:
    """Revert three publications within an hour."""
    for minutes in (1, 2, 3):
        at = NOW + minutes * MINUTE
        wrote = PublishedBounds(at=at - MINUTE / 2, bounds=Bounds(0, 4), state=State.HEALTHY, requested=2, before=None)
        reverted = replace(
            group("a", 2, bounds=(0, 9)),
            ours=WrittenByUs(published=wrote),
            managers=FieldManagers(bounds_by=UNNAMED_BY_AWS),
        )
        state = observe_health(reverted, state, at, BackoffPolicy(), timedelta(minutes=15))
    assert state.contest.contested_since == NOW + 3 * MINUTE
    return state


def test_the_writer_of_the_last_hour_is_named() -> None:
    assert contested(GroupState()).contest.contested_by == UNNAMED_BY_AWS
    assert contested(note_writer(GroupState(), NAMED, NOW)).contest.contested_by == NAMED
    assert contested(note_writer(GroupState(), NAMED, NOW - timedelta(hours=1))).contest.contested_by == UNNAMED_BY_AWS


def test_an_event_that_is_late_names_the_writer_of_the_contest() -> None:
    state = contested(GroupState())
    assert note_writer(state, NAMED, NOW + 2 * MINUTE).contest.contested_by == NAMED
    late = note_writer(state, NAMED, NOW + 9 * MINUTE)  # after the contest
    assert late.contest.contested_by == UNNAMED_BY_AWS


def test_an_older_event_does_not_replace_a_newer_one() -> None:
    state = note_writer(GroupState(), "newer", NOW)
    assert note_writer(state, "older", NOW - MINUTE) == state
