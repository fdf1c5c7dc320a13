"""Writes while AWS's reads are stale, its terminations do nothing, and others write in the same second."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.incidents import IncidentKind
from sandbox.auto_scaling.behavior import Behavior, Termination, worst
from tests.auto_scaling_groups import ZONES, Stage, outage
from tests.integration.test_auto_scaling_pods import is_clean, running, unneeded


@pytest.mark.parametrize("kind", ["plain", "managed"])
def test_a_removal_without_effect_twice_is_an_incident_and_ends_once_it_works(kind: str) -> None:
    stage, names = unneeded(kind)
    behavior = stage.api.behavior
    behavior.termination = Termination.IGNORED
    for _ in range(12):
        stage.checks(1)
    (incident,) = stage.store.load("demo").cluster_health.incidents
    assert incident.kind is IncidentKind.REFUSED
    assert "is still in service after AWS accepted its termination twice" in incident.message
    tries = [request for name, request in stage.api.calls if name.startswith("Terminate")]
    assert len(tries) <= 4, "a refused write waits for five minutes"
    assert sum(running(stage, names)) == 2
    behavior.termination = Termination.DONE
    stage.checks(12)
    assert sum(running(stage, names)) == 1
    assert not stage.store.load("demo").cluster_health.incidents
    assert is_clean(stage)


def test_no_process_is_suspended_while_an_instance_is_terminated_by_id() -> None:
    stage, _ = unneeded("managed")
    suspended: list[list[str]] = []

    def check(name: str, request: dict[str, Any]) -> None:
        if name.startswith("Terminate"):
            suspended.append([process for group in stage.api.groups.by_name.values() for process in group.suspended])

    stage.api.before = check
    stage.checks(8)
    assert suspended
    assert not any(suspended)


@pytest.mark.parametrize("behavior", [Behavior, worst])
def test_old_reads_leave_no_process_suspended_nothing_contested_and_no_replica_lost(
    behavior: Callable[[], Behavior],
) -> None:
    for seed in range(4):
        stage, names = outage()
        stage.api.behavior.become(behavior())
        stage.api.behavior.chance.seed(seed)
        there = {id for name in names for id in stage.group(name).instances}
        for _ in range(12):
            stage.run()
            stage.minutes(1)
            assert sum(stage.group(name).maximum for name in names) <= 12
        stage.minutes(5)
        groups = [stage.group(name) for name in names]
        assert not any(group.suspended for group in groups)
        assert sum(group.desired for group in groups) == 8
        assert there <= {id for group in groups for id in group.instances}
        state = stage.store.load("demo").state
        assert not any(one.contest.reverts or one.contest.contested_since for one in state.groups.values())


def test_an_order_of_the_autoscaler_in_the_same_second_is_kept() -> None:
    """The order follows the plan's last read, and precedes the lower max."""
    stage, names = outage()
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=3)
    ordered: list[str] = []

    def order(name: str, request: dict[str, Any]) -> None:
        group = request.get("AutoScalingGroupName", "")
        if name == "SuspendProcesses" and group == names[1] and not ordered:
            ordered.append(group)
            stage.stock.accept(ZONES[1])
            stage.api.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=4)

    stage.api.before = order
    stage.run()
    assert ordered
    assert stage.group(names[1]).desired == 4
    assert len(stage.group(names[1]).instances) == 4
    assert not stage.group(names[1]).suspended


def test_an_order_of_others_does_not_count_as_the_move_that_it_prevents() -> None:
    stage, names = outage()
    ordered: list[str] = []

    def order(name: str, request: dict[str, Any]) -> None:
        """Another writer orders a node after the move is announced, and before the group's process is suspended."""
        if name == "SuspendProcesses" and request["AutoScalingGroupName"] == names[0] and not ordered:
            ordered.append(name)
            stage.api.set_desired_capacity(AutoScalingGroupName=names[0], DesiredCapacity=3)

    stage.api.before = order
    stage.settle()
    assert ordered
    assert sum(stage.group(name).desired for name in names) == 8 + 1


def test_a_sibling_that_another_writer_has_raised_is_seen_before_a_raise() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool(maximum=2)
    stage.settle()
    maxima = {name: stage.group(name).maximum for name in names}
    assert sum(maxima.values()) <= 12
    for name in names:
        stage.api.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=0, MaxSize=2)
    raised: list[str] = []

    def rival(name: str, request: dict[str, Any]) -> None:
        if name == "CreateOrUpdateTags" and not raised:
            raised.append(names[2])
            stage.api.update_auto_scaling_group(AutoScalingGroupName=names[2], MinSize=0, MaxSize=8)

    stage.api.before = rival
    stage.minutes(2)
    stage.run()
    assert raised
    assert sum(stage.group(name).maximum for name in names) <= 12


def test_a_dry_run_writes_nothing_while_reads_are_old() -> None:
    stage, _ = outage(dry_run=True)
    stage.api.behavior.become(worst())
    stage.api.calls.clear()
    for _ in range(4):
        stage.run()
        stage.minutes(1)
    assert not [name for name, _ in stage.api.calls if not name.startswith("Describe")]


def test_a_change_of_bounds_waits_for_no_read_while_reads_are_fresh() -> None:
    stage, _ = outage()
    before = stage.clock.now()
    stage.run()
    assert stage.clock.now() - before < timedelta(seconds=1)


@pytest.mark.parametrize("seconds", [15, 25])
def test_a_process_that_a_person_has_suspended_stays_suspended_even_if_reads_do_not_show_it_yet(seconds: int) -> None:
    for seed in range(6):
        stage, names = outage()
        stage.api.behavior.become(worst())
        stage.api.behavior.chance.seed(seed)
        for name in names:
            stage.api.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Terminate"])
        stage.api.clock.run(timedelta(seconds=seconds))
        for _ in range(3):
            stage.run()
            assert all(stage.group(name).suspended for name in names)
            stage.minutes(1)
        assert not any('"unfinished"' in stage.decision(name) for name in names)


def test_a_read_that_still_shows_the_suspension_of_the_write_before_is_too_old() -> None:
    """It would lack orders, and its time would look like another writer's."""
    stage, names = outage()
    stage.settle()
    stage.api.behavior.become(Behavior(latency=timedelta(seconds=1)))
    name = names[0]
    client = _Delayed(stage.api, name)
    stage.clusters.wrap = lambda _client: client
    for _ in range(2):
        stage.api.clock.run(timedelta(seconds=20))
        stage.api.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=9)
        assert not stage.run().conflicts
        stage.api.clock.run(timedelta(seconds=5))
    assert client.repeated
    assert stage.group(name).maximum < 9


class _Delayed:
    """A client whose first read after each suspension shows the suspension before, if there was one."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name
        self._shown: Any = None
        self._due, self.repeated = False, 0

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            answer = getattr(self._client, operation)(**request)
            if operation == "suspend_processes" and request["AutoScalingGroupName"] == self._name:
                self._due = True
            elif operation == "describe_auto_scaling_groups" and self._due:
                self._due = False
                self.repeated += self._shown is not None
                self._shown, answer = answer, self._shown or answer
            return answer

        return call
