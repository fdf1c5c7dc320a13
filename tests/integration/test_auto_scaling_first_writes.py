"""The first writes of many groups leave the limit on calls to cluster-autoscaler, unless a launch has failed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from evenkeel.adapters.thread_pool import THREADS, run_in_threads
from sandbox.auto_scaling.behavior import Behavior, Rate
from tests.auto_scaling_groups import ZONES, Stage
from tests.timed import worker

# The smallest known limit of an account.
LIMITED = Behavior(latency=timedelta(milliseconds=80), parallel=THREADS, auto_scaling_rate=Rate(size=100, per_second=5))


class NewStage(Stage):
    """Pools of three zones whose groups may each grow to the pool's maximum, so that each must be written."""

    def __init__(self, pools: int) -> None:
        super().__init__(autoscaler="none")
        for number in range(pools):
            for zone in ZONES:
                tags = {"evenkeel.dev/pool": f"workers-{number}", "evenkeel.dev/pool-max": "9"}
                self.put(f"workers-{number}-{zone[-1]}", zone, 0, 1, 9, **tags)
        self.minutes(2)

    def run_for_a_minute(self) -> int:
        """Run once, and return the number of groups that were written."""
        ends = self.clock.now() + timedelta(minutes=1)
        rebalance = replace(worker(self.store, self.clusters, self.clock, self.queue), together=run_in_threads)
        summary = rebalance("demo", "a test", self.seconds_left(60))
        self.minutes(max(0.0, (ends - self.clock.now()).total_seconds() / 60))
        return summary.written


def test_the_first_writes_of_many_groups_leave_calls_to_others() -> None:
    stage, left = NewStage(pools=30), list[float]()
    stage.api.behavior.become(LIMITED)
    stage.api.before = lambda _operation, _request: left.append(stage.api.bucket.tokens)
    assert sum(stage.run_for_a_minute() for _ in range(6)) == 90
    assert min(left) > 40


def test_where_launches_fail_groups_are_written_at_once() -> None:
    stage = NewStage(pools=30)
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName="workers-0-b", DesiredCapacity=3)
    stage.minutes(3)
    assert stage.run_for_a_minute() > 60
