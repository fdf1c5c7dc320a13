"""A check of a large outage: the calls do not grow with the failing groups, and unread activities are unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.reasons import Rule
from sandbox.auto_scaling.calls import AwsError, Json
from tests.auto_scaling_groups import ZONES, Stage

ACTIVITIES = "DescribeScalingActivities"


def outage_of(failing: int, groups: int) -> Stage:
    """Return groups of one node each in three zones. Some in the second zone request a node that AWS refuses."""
    stage = Stage()
    for number in range(groups):
        pool = f"workers-{number // 3}"
        stage.put(f"{pool}-{number % 3}", ZONES[number % 3], 0, 1, 4, **{"evenkeel.dev/pool": pool})
    stage.minutes(2)
    stage.refuse(ZONES[1])
    for number in range(failing):
        stage.api.set_desired_capacity(AutoScalingGroupName=f"workers-{number}-1", DesiredCapacity=3)
    stage.minutes(2)
    stage.api.calls.clear()
    return stage


def failed(groups: dict[str, NodeGroup]) -> set[str]:
    return {name for name, group in groups.items() if group.refused_machines}


def unread(groups: dict[str, NodeGroup]) -> dict[str, Rule]:
    return {name: group.frozen_because.rule for name, group in groups.items() if group.frozen_because is not None}


def undescribed(groups: dict[str, NodeGroup]) -> set[str]:
    problem = "EKS has not described it yet: the next checks read it"
    return {name for name, group in groups.items() if any(one.problem == problem for one in group.unreadable.notes)}


def calls(stage: Stage) -> Counter[str]:
    return Counter(name for name, _ in stage.api.calls)


@pytest.mark.parametrize(("failing", "groups"), [(1, 30), (10, 30), (100, 300)])
def test_a_check_finds_all_refused_launches_with_at_most_ten_calls(failing: int, groups: int) -> None:
    stage = outage_of(failing, groups)
    observed = stage.observe()
    assert failed(observed) == {f"workers-{number}-1" for number in range(failing)}
    assert not unread(observed)
    assert calls(stage).total() <= 10


def refuse(stage: Stage, refuses: Callable[[Json], bool], code: str = "InternalFailure") -> None:
    """Refuse calls for activities from now on."""

    def before(name: str, request: Json) -> None:
        if name == ACTIVITIES and refuses(request):
            raise AwsError(code, "it took too long", 400 if code == "Throttling" else 500)

    stage.api.before = before


def test_where_aws_does_not_list_the_accounts_activities_in_time_each_group_is_asked() -> None:
    stage = outage_of(10, 30)
    refuse(stage, lambda request: "AutoScalingGroupName" not in request)
    observed = stage.observe()
    assert (len(failed(observed)), unread(observed)) == (10, {})
    assert calls(stage)[ACTIVITIES] == 1 + 10


def test_a_group_that_is_not_answered_for_is_unknown_and_the_others_are_not() -> None:
    stage = outage_of(10, 30)
    refuse(stage, lambda request: request.get("AutoScalingGroupName") in (None, "workers-3-1"))
    observed = stage.observe()
    assert len(failed(observed)) == 9
    assert unread(observed) == {"workers-3-1": Rule.LAUNCHES_UNREAD}


def test_where_aws_throttles_the_account_no_group_is_asked() -> None:
    stage = outage_of(10, 30)
    refuse(stage, lambda _: True, "Throttling")
    observed = stage.observe()
    assert set(unread(observed)) == {f"workers-{number}-1" for number in range(10)}
    assert calls(stage)[ACTIVITIES] == 4  # one call and its repeats


@pytest.mark.parametrize(("code", "is_asked"), [("InternalFailure", True), ("Throttling", False)])
def test_a_page_that_is_not_answered_leaves_the_groups_of_the_first_pages_known(code: str, is_asked: bool) -> None:
    stage = outage_of(100, 300)
    refuse(stage, lambda request: "NextToken" in request, code)
    observed = stage.observe()
    assert failed(observed) | set(unread(observed)) == {f"workers-{number}-1" for number in range(100)}
    assert len(failed(observed)) > 0
    assert bool(unread(observed)) is not is_asked
    assert (calls(stage)[ACTIVITIES] > 10) is is_asked


def loud_outage() -> Stage:
    """Return an outage of 100 groups, and a group of another owner whose activities fill more than five pages."""
    stage = outage_of(100, 300)
    stage.put("loud", ZONES[1], 0, 600, 600, **{"evenkeel.dev/pool": ""})
    stage.minutes(0.5)
    stage.api.calls.clear()
    return stage


def test_a_group_that_five_pages_do_not_show_is_not_taken_for_one_without_failures() -> None:
    stage = loud_outage()
    observed = stage.observe()
    failing = {f"workers-{number}-1" for number in range(100)}
    assert failed(observed) | set(unread(observed)) == failing
    assert set(unread(observed).values()) == {Rule.LAUNCHES_UNREAD}
    assert len(failed(observed)) == 2, "three calls for the groups, five pages, and two groups by name"
    assert calls(stage).total() == 10
    stage.minutes(1)
    assert failed(stage.observe()) != failed(observed), "each minute has another order"


def test_a_run_reads_each_group_by_name_that_five_pages_do_not_show() -> None:
    stage = loud_outage()
    observed = stage.observe(consistent=True)
    assert failed(observed) == {f"workers-{number}-1" for number in range(100)}
    assert calls(stage)[ACTIVITIES] == 5 + 100
    stage.run()
    assert {stage.numbers(f"workers-{number}-1")[3] for number in range(100)} == {3}, "each is fenced"


def test_a_group_without_activities_is_known_once_the_last_page_is_read() -> None:
    stage = outage_of(3, 30)
    stage.put("quiet", ZONES[0], 0, 0, 4)
    stage.api.groups.by_name["quiet"].desired = 2
    assert not unread(stage.observe())


def test_what_is_unknown_changes_nothing_that_is_stored_about_the_group() -> None:
    stage = outage_of(1, 30)
    stage.run()
    before = {key: state for key, state in stage.store.load("demo").state.groups.items() if state.is_failing}
    stage.api.before = lambda name, _request: _throttled() if name == ACTIVITIES else None
    stage.minutes(1)
    stage.run()
    assert {key: stage.store.load("demo").state.groups[key] for key in before} == before
    assert len(before) == 1


def _throttled() -> None:
    raise AwsError("Throttling", "Rate exceeded")


def test_eks_is_asked_for_an_eighth_of_the_node_groups_and_the_others_are_unknown_until_then() -> None:
    stage = Stage()
    names = [stage.put_managed(f"workers-{number}", ZONES[number % 3], 0, 1, 4) for number in range(48)]
    stage.minutes(2)
    stage.clusters.node_groups = NodeGroups(random=lambda: 0.5)
    for known in (20, 40, 48):
        observed = stage.observe()
        assert len(names) - len(undescribed(observed)) == known
        assert not unread(observed)
        stage.api.clock.run(timedelta(minutes=1))


def test_a_throttled_eks_leaves_the_older_answers_and_gets_few_more_calls() -> None:
    stage = Stage()
    for number in range(18):
        stage.put_managed(f"workers-{number}", ZONES[number % 3], 0, 1, 4)
    stage.minutes(2)
    stage.observe()
    stage.minutes(20)
    stage.eks.calls.clear()
    stage.eks.before = lambda _name, _request: _too_many()
    assert not undescribed(stage.observe())
    assert len(stage.eks.calls) <= 18 * 4


def _too_many() -> None:
    raise AwsError("ThrottlingException", "Rate exceeded")
