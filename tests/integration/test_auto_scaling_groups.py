"""Runs on Auto Scaling groups end to end: an outage, its end, a restore, and a worker that dies at any call."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from evenkeel.application.errors import StateUnavailableError
from sandbox.auto_scaling.behavior import Behavior, worst
from tests.auto_scaling_groups import POOL, ZONES, Stage, outage, over_http, tag
from tests.fakes import plenty
from tests.stack import Stack

HOW = ("before", "after", "answer lost")
#: AWS's behavior while the worker dies
BEHAVIORS = [Behavior, worst]


class KilledError(BaseException):
    """The worker's process ended."""


class _Dying:
    """A client or a store whose process dies at one call, before or after it, or whose answer is lost."""

    def __init__(self, client: Any, at: Callable[[], str], lost: Exception) -> None:
        self._client, self._at, self._lost = client, at, lost

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **request: Any) -> Any:
            how = self._at()
            if how == "before":
                raise KilledError
            answer = getattr(self._client, name)(*arguments, **request)
            if how == "after":
                raise KilledError
            if how == "answer lost":
                raise self._lost
            return answer

        return call


class _Calls:
    """The calls of one run; `how` happens at call `at`."""

    def __init__(self, at: int = -1, how: str = "") -> None:
        self.count, self._at, self._how = 0, at, how

    def __call__(self) -> str:
        self.count += 1
        return self._how if self.count - 1 == self._at else ""


def run_dying(stage: Stage, calls: _Calls) -> None:
    lost = ReadTimeoutError(endpoint_url="https://autoscaling")
    stage.clusters.wrap = lambda client: _Dying(client, calls, lost)
    stage.clusters.wrap_store = lambda store: _Dying(store, calls, StateUnavailableError("the answer was lost"))
    with suppress(KilledError, StateUnavailableError):
        stage.run()
    stage.clusters.wrap = stage.clusters.wrap_store = lambda same: same


def desired(stage: Stage, names: list[str]) -> list[int]:
    return [stage.numbers(name)[1] for name in names]


def test_other_zones_take_over_until_the_zone_delivers_again_and_restore_leaves_no_trace() -> None:
    stage, names = outage()
    assert [stage.numbers(name) for name in names] == [(0, 2, 2, 4), (0, 4, 2, 4), (0, 2, 2, 4)]
    stage.run()
    stage.minutes(1)
    stage.run()
    assert [stage.numbers(name)[1:] for name in names] == [(3, 3, 5), (2, 2, 2), (3, 3, 5)]
    assert '"state":"fenced"' in stage.tags(names[1])["evenkeel.dev/decision"]
    stage.stock.accept(ZONES[1])
    for _ in range(20):
        stage.run()
        stage.minutes(1)
    assert stage.group(names[1]).maximum > 2
    stage.restore()
    assert [stage.numbers(name) for name in names] == [(0, 3, 3, 9), (0, 2, 2, 9), (0, 3, 3, 9)]
    assert all(stage.tags(name) == POOL for name in names)


def test_next_to_an_autoscaler_the_refused_launches_are_released_and_no_node_is_ordered() -> None:
    stage, names = outage()
    stage.register(autoscaler="cluster-autoscaler")
    for _ in range(2):
        stage.run()
        stage.minutes(1)
    assert desired(stage, names) == [2, 4, 2]  # the autoscaler may release them itself
    for _ in range(2):
        stage.run()
        stage.minutes(1)
    assert desired(stage, names) == [2, 2, 2]
    assert stage.group(names[1]).maximum == 2


def test_min_stays_within_the_instances_that_run() -> None:
    stage, names = outage()
    stage.register(autoscaler="cluster-autoscaler")
    for name in names:
        stage.api.create_or_update_tags(Tags=[tag(name, "evenkeel.dev/pool-min", "12")])
    for _ in range(8):
        stage.run()
        stage.minutes(1)
        assert all(stage.numbers(name)[0] <= stage.numbers(name)[2] for name in names)


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_worker_that_dies_at_any_call_neither_loses_nor_doubles_a_node(behavior: Callable[[], Behavior]) -> None:
    calls = _Calls()
    stage, _ = outage()
    stage.api.behavior.become(behavior())
    run_dying(stage, calls)
    for at, how in product(range(calls.count), HOW):
        _check_crash(at, how, behavior())


def _check_crash(at: int, how: str, behavior: Behavior) -> None:
    stage, names = outage()
    stage.api.behavior.become(behavior)
    running = {one for name in names for one in stage.group(name).instances}
    run_dying(stage, _Calls(at, how))
    stage.minutes(2)
    stage.settle()
    place = f"call {at}, {how}"
    assert sum(desired(stage, names)) == 8, place
    assert desired(stage, names)[1] == 2, place
    assert running <= {one for name in names for one in stage.group(name).instances}, place
    assert not any(stage.group(name).suspended for name in names), place
    assert all(stage.tags(name)["evenkeel.dev/adopted-bounds"] == "0,9" for name in names), place
    assert not any('"unfinished"' in stage.decision(name) for name in names), place
    stage.restore()
    assert {stage.numbers(name)[::3] for name in names} == {(0, 9)}, place
    assert all(stage.tags(name) == POOL for name in names), place


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_worker_that_dies_at_any_call_of_the_first_write_keeps_the_adopted_bounds(
    behavior: Callable[[], Behavior],
) -> None:
    calls = _Calls()
    stage = Stage(autoscaler="none")
    stage.pool()
    stage.api.behavior.become(behavior())
    run_dying(stage, calls)
    for at, how in product(range(calls.count), HOW):
        stage = Stage(autoscaler="none")
        names = stage.pool()
        stage.api.behavior.become(behavior())
        run_dying(stage, _Calls(at, how))
        stage.minutes(2)
        stage.settle()
        assert {stage.tags(name)["evenkeel.dev/adopted-bounds"] for name in names} == {"0,9"}, at
        assert not any(stage.group(name).suspended for name in names), at


def _raising(behavior: Behavior) -> tuple[Stage, list[str]]:
    """Return a pool at rest whose maximum has just been doubled."""
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.settle()
    for name in names:
        stage.api.create_or_update_tags(Tags=[tag(name, "evenkeel.dev/pool-max", "24")])
    stage.minutes(1)
    stage.api.calls.clear()
    stage.api.behavior.become(behavior)
    return stage, names


def test_a_raise_of_max_is_two_mutating_calls_and_suspends_no_process() -> None:
    stage, names = _raising(Behavior())
    stage.run()
    writes = [name for name, _ in stage.api.calls if not name.startswith("Describe")]
    assert writes == ["CreateOrUpdateTags", "UpdateAutoScalingGroup"] * len(names)
    assert {stage.numbers(name) for name in names} == {(0, 2, 2, 8)}


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_worker_that_dies_at_any_call_of_a_raise_leaves_nothing_contested(behavior: Callable[[], Behavior]) -> None:
    calls = _Calls()
    stage, _ = _raising(behavior())
    run_dying(stage, calls)
    for at, how in product(range(calls.count), HOW):
        stage, names = _raising(behavior())
        run_dying(stage, _Calls(at, how))
        stage.minutes(2)
        stage.settle()
        place = f"call {at}, {how}"
        assert {stage.numbers(name) for name in names} == {(0, 2, 2, 8)}, place
        assert not any(stage.group(name).suspended for name in names), place
        assert not any('"unfinished"' in stage.decision(name) for name in names), place
        contests = [one.contest for one in stage.store.load("demo").state.groups.values()]
        assert not any(one.reverts or one.contested_since for one in contests), place


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_after_a_killed_raise_a_process_that_another_writer_suspends_stays_suspended(
    behavior: Callable[[], Behavior],
) -> None:
    calls = _Calls()
    stage, _ = _raising(behavior())
    run_dying(stage, calls)
    for at in range(0, calls.count, 3):
        stage, names = _raising(behavior())
        run_dying(stage, _Calls(at, "before"))
        for name in names:
            stage.api.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Terminate"])
        for _ in range(4):
            stage.minutes(1)
            stage.run()
        assert all(stage.group(name).suspended for name in names), f"call {at}"


def test_a_frozen_group_is_counted_and_not_written() -> None:
    stage, names = outage()
    stage.api.suspend_processes(AutoScalingGroupName=names[1], ScalingProcesses=["Terminate"])
    before = stage.api.describe_auto_scaling_groups(AutoScalingGroupNames=[names[1]])
    for _ in range(4):
        stage.run()
    assert stage.api.describe_auto_scaling_groups(AutoScalingGroupNames=[names[1]]) == before
    reason = stage.observe()[names[1]].frozen_because
    assert reason is not None
    assert reason.facts["process"] == "Terminate"


def test_a_group_whose_launches_are_suspended_is_fenced_and_released_and_the_others_get_its_room() -> None:
    stage = Stage(dry_run=False)
    names = stage.pool()
    stage.settle()
    stage.api.suspend_processes(AutoScalingGroupName=names[0], ScalingProcesses=["Launch"])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[0], DesiredCapacity=3)
    stage.settle()
    assert [stage.numbers(name)[1:] for name in names] == [(2, 2, 2), (2, 2, 5), (2, 2, 5)]
    assert stage.group(names[0]).suspended.keys() == {"Launch"}
    stage.api.resume_processes(AutoScalingGroupName=names[0], ScalingProcesses=["Launch"])
    stage.settle()
    assert [stage.numbers(name)[3] for name in names] == [4, 4, 4]


def stack_of(stage: Stage) -> Stack:
    """Return a stack of functions on the stage's groups."""
    return Stack(store=stage.store, clock=stage.clock, clusters=stage.clusters)  # type: ignore[arg-type]


def test_checks_of_a_quiet_cluster_are_one_call_and_a_refused_launch_is_found_within_a_minute() -> None:
    stage = Stage(autoscaler="none", dry_run=False)
    with over_http(stage):
        names = stage.pool()
        stage.settle()
        stack, calls = stack_of(stage), list[int]()
        for _ in range(40):
            stage.api.calls.clear()
            stack.check(["demo"], plenty)
            calls.append(len(stage.api.calls))
            stack.carry_out()
            stage.minutes(1)
        assert stage.store.steady_clusters(["demo"])
        assert calls[-10:] == [1] * 10
        stage.refuse(ZONES[1])
        stage.api.groups.fail(next(iter(stage.group(names[1]).instances)))
        stage.minutes(1)
        stack.check(["demo"], plenty)
        stack.carry_out()
    assert desired(stage, names) in ([3, 1, 2], [2, 1, 3])


def test_operators_read_and_steer_the_cluster() -> None:
    stage = Stage(autoscaler="none", dry_run=False)
    names = stage.pool()
    stack = stack_of(stage)
    for action in ("status", "validate", "plan"):
        assert stack.ask(action)["ok"], action
    assert stack.ask("explain", group=names[0])["ok"]
    assert stack.ask("scale-up", pool="workers", nodes=3)["ok"]
    for _ in range(3):
        stack.carry_out()
        stage.run()
        stage.minutes(1)
    assert desired(stage, names) == [3, 3, 3]
    assert stack.ask("fence-zone", zone=ZONES[2], until="2026-01-01T06:00:00Z")["ok"]
    stage.run()
    assert stage.group(names[2]).maximum == 3
    assert stack.ask("restore")["ok"]
    for _ in range(3):
        stack.carry_out()
        stage.run()
    assert all(stage.tags(name) == POOL for name in names)


def test_nodes_of_managed_groups_move_back_after_an_outage() -> None:
    stage = Stage(autoscaler="none", level="converge", converge={"blind": True, "per_hour": 10})
    names = [
        stage.put_managed(f"workers-{zone[-1]}", zone, 0, nodes, 9)
        for zone, nodes in zip(ZONES, (1, 4, 4), strict=True)
    ]
    stage.minutes(6)
    for _ in range(30):
        stage.run()
        stage.minutes(1)
        assert sum(stage.numbers(name)[2] for name in names) >= 9
    assert [stage.numbers(name)[1:3] for name in names] == [(3, 3)] * 3
