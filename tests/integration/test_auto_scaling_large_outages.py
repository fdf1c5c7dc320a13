"""An outage of 100 among 300 groups, while each call of AWS takes 150 ms: checks and runs, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.thread_pool import THREADS, run_in_threads
from evenkeel.application.rebalancing.observe import CHECK_SECONDS
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.fleet.check_times import is_unreachable
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.states import ClusterState
from sandbox.auto_scaling.behavior import Behavior, Rate
from tests.auto_scaling_groups import ZONES, Stage, tag
from tests.timed import worker

GROUPS = 300
LATENCY = Behavior(latency=timedelta(milliseconds=150), parallel=THREADS)
RUN_SECONDS = 60


class LargeStage(Stage):
    """Pools of three zones, in each of which one node runs. ``kind``: plain, managed or mixed."""

    def __init__(self, kind: str, *, runs: int = 9) -> None:
        super().__init__(autoscaler="none")
        self.names = [self._put(kind, number // 3, number % 3) for number in range(GROUPS)]
        self.minutes(2)
        self.clusters.node_groups = NodeGroups(random=Random(1).random)
        for _ in range(runs):  # after nine, EKS has described all node groups
            self.run()
            self.minutes(1)

    def _put(self, kind: str, pool: int, zone: int) -> str:
        name = f"workers-{pool}-{zone}"
        if kind == "plain" or (kind == "mixed" and pool % 2):
            self.put(name, ZONES[zone], 0, 1, 4, **{"evenkeel.dev/pool": f"workers-{pool}"})
            return name
        group = self.put_managed(name, ZONES[zone], 0, 1, 4)
        self.api.create_or_update_tags(Tags=[tag(group, "evenkeel.dev/pool", f"workers-{pool}")])
        return group

    def begin_outage(self, behavior: Behavior = LATENCY) -> None:
        self.api.behavior.become(behavior)
        self.refuse(ZONES[1])
        for name in self.failing:
            self.api.groups.set_desired(self.group(name), 3, "a user request")
        self.forget_calls()

    @property
    def failing(self) -> list[str]:
        return self.names[1::3]

    def forget_calls(self) -> None:
        self.api.calls.clear()
        self.eks.calls.clear()

    def check(self, state: ClusterState) -> dict[str, NodeGroup]:
        """Read as a check does, in its time."""
        cluster = self.clusters.open(self.record, self.seconds_left(CHECK_SECONDS), consistent=False)
        failing = [key for key, group in state.groups.items() if group.is_failing]
        return {group.key.name: group for group in cluster.observe(failing).groups}

    def run(self) -> RunSummary:
        rebalance = replace(worker(self.store, self.clusters, self.clock, self.queue), together=run_in_threads)
        return rebalance("demo", "a test", self.seconds_left(RUN_SECONDS))

    def is_released(self) -> bool:
        """Return True if no failing group can grow, and none requests a node that it does not get."""
        return all(self.group(name).maximum <= 2 and self.group(name).desired == 1 for name in self.failing)


@pytest.mark.parametrize(("kind", "runs"), [("plain", 9), ("managed", 9), ("mixed", 9), ("managed", 0)])
def test_the_failing_groups_are_fenced_and_released_within_two_minutes(kind: str, runs: int) -> None:
    """Also with the first check: only a write needs the status of a node group, and reads it just before."""
    stage = LargeStage(kind, runs=runs)
    stage.begin_outage()
    ends, released = stage.clock.now() + timedelta(minutes=2), list[bool]()

    def note(_name: str, _request: object) -> None:
        if not released and stage.is_released():
            released.append(stage.clock.now() < ends)

    stage.api.before = note  # a run releases the groups first, and then raises their siblings
    stage.minutes(1)  # at most, until a check finds the failures
    while stage.clock.now() < ends:
        stage.minutes(0.25)
        stage.run()
        assert not is_unreachable(stage.store.load("demo").unreachable)
    assert released == [True]
    stage.run()
    assert sum(stage.group(name).desired for name in stage.names) == GROUPS + 2 * len(stage.failing)


@pytest.mark.parametrize("kind", ["plain", "managed", "mixed"])
def test_checks_make_few_calls_while_the_outage_lasts(kind: str) -> None:
    stage = LargeStage(kind)
    stage.begin_outage()
    managed = {"plain": 0, "managed": GROUPS, "mixed": GROUPS / 2}[kind]
    for minute in range(12):
        stage.minutes(1)
        began = stage.clock.now()
        groups = stage.check(stage.store.load("demo").state)
        assert stage.clock.now() - began < timedelta(seconds=CHECK_SECONDS)
        assert {name for name, group in groups.items() if group.refused_machines} == set(stage.failing), minute
        assert not [group for group in groups.values() if group.frozen_because is not None]
        assert len(stage.api.calls) <= 10
        assert len(stage.eks.calls) <= managed / 4
        stage.forget_calls()


def test_where_aws_lists_the_accounts_activities_too_slowly_checks_end_in_time_and_find_all_failures() -> None:
    stage = LargeStage("plain")
    stage.begin_outage(replace(LATENCY, account_wide_latency=timedelta(seconds=2)))
    stage.minutes(1)
    began = stage.clock.now()
    groups = stage.check(stage.store.load("demo").state)
    assert stage.clock.now() - began < timedelta(seconds=CHECK_SECONDS)
    assert {name for name, group in groups.items() if group.refused_machines} == set(stage.failing)


def test_ten_minutes_of_throttling_leave_the_fences_and_end_by_themselves() -> None:
    stage = LargeStage("mixed")
    stage.begin_outage()
    stage.minutes(1)
    stage.run()
    assert stage.is_released()
    stage.api.throttle(timedelta(minutes=10))
    stage.eks.throttle(timedelta(minutes=10))
    before = stage.store.load("demo").state.groups
    for _ in range(10):
        began = stage.clock.now()
        assert stage.run().unreachable
        assert stage.clock.now() - began < timedelta(seconds=CHECK_SECONDS)
        assert stage.store.load("demo").state.groups == before
        stage.minutes(1)
    stage.minutes(5)
    stage.run()
    assert stage.is_released()
    assert not is_unreachable(stage.store.load("demo").unreachable)


def test_a_quick_check_makes_a_call_for_each_hundred_groups() -> None:
    stage = LargeStage("managed")
    cluster = stage.clusters.open(stage.record, stage.seconds_left(CHECK_SECONDS), consistent=False)
    cluster.observe()
    stage.forget_calls()
    assert cluster.shows(cluster.seen())
    assert (len(stage.api.calls), len(stage.eks.calls)) == (3, 0)


def test_the_calls_of_a_run_are_paced_where_the_account_allows_twenty_a_second() -> None:
    stage = LargeStage("mixed")
    stage.begin_outage(replace(LATENCY, auto_scaling_rate=Rate(size=100, per_second=20)))
    for _ in range(8):
        stage.minutes(0.25)
        stage.run()
        assert not is_unreachable(stage.store.load("demo").unreachable)
    assert stage.is_released()


@pytest.mark.parametrize("per_second", [5, 10])
def test_no_run_ends_while_a_process_is_suspended_where_aws_allows_few_calls(per_second: int) -> None:
    stage = LargeStage("plain", runs=1)
    stage.begin_outage(replace(LATENCY, auto_scaling_rate=Rate(size=20, per_second=per_second)))
    written = 0
    for _ in range(6):
        stage.minutes(0.25)
        written += stage.run().written
        assert not [name for name in stage.names if stage.group(name).suspended]
    assert written > 50
