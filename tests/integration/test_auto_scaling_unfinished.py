"""An unfinished write to an Auto Scaling group is finished, whatever an operator does before the next run."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pytest

from evenkeel.adapters.auto_scaling.decisions import Decisions, DecisionsInMemory
from evenkeel.application.errors import StateUnavailableError
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.rebalancing.annotations import ended_at, is_unfinished
from evenkeel.record import ControlRecord
from sandbox.auto_scaling.behavior import Behavior, worst
from sandbox.auto_scaling.calls import AwsError
from tests.auto_scaling_groups import REGION, ZONES, Stage, outage
from tests.auto_scaling_pods import MortalClient
from tests.crashing import How, KilledError, Life
from tests.crashing import Mortal as MortalPort
from tests.fakes import plenty
from tests.stack import Stack
from tests.timed import worker


def killed(at: int, how: How, behavior: Behavior) -> tuple[Stage, Stack, Life]:
    """Kill a run at one call of AWS or of the decisions, or lose its answer.

    A killed run reaches neither AWS nor the table from then on.
    """
    stage, _ = outage(dry_run=False)
    stage.api.behavior.become(behavior)
    life = Life(at=at, how=how)
    stage.clusters.wrap = lambda client: MortalClient(client, life)
    stage.clusters.wrap_store = lambda store: MortalPort(store, life, "decisions", StateUnavailableError)
    table = MortalPort(stage.store, life, "table", StateUnavailableError, only=("give_back_lease",))
    with suppress(KilledError, StateUnavailableError):
        worker(table, stage.clusters, stage.clock, stage.queue)("demo", "a test", plenty)
    stage.clusters.wrap = stage.clusters.wrap_store = lambda same: same
    return stage, Stack(store=stage.store, clock=stage.clock, clusters=stage.clusters), life  # type: ignore[arg-type]


def suspended(stage: Stage) -> list[str]:
    return [name for name, group in stage.api.groups.by_name.items() if group.suspended]


def crashes(behavior: Callable[[], Behavior] = Behavior) -> Iterator[tuple[Stage, Stack, str]]:
    """Yield each way to kill a run so that it leaves a process suspended."""
    _, _, life = killed(-1, How.BEFORE, behavior())
    for how in (How.BEFORE, How.AFTER):
        for at in range(len(life.steps)):
            stage, stack, _ = killed(at, how, behavior())
            if suspended(stage):
                yield stage, stack, f"{life.steps[at]}, {at}, {how}"


def check(stage: Stage, stack: Stack, minutes: int) -> None:
    """Check each minute as the schedule does, and play the runs that checks request."""
    for _ in range(minutes):
        stage.minutes(1)
        stack.check(["demo"], plenty)
        stack.carry_out()


def pause(_stage: Stage, stack: Stack) -> None:
    assert stack.ask("pause")["ok"]
    stack.queue.requests.clear()  # also if the request for a run is lost


def pause_pool(_stage: Stage, stack: Stack) -> None:
    assert stack.ask("pause", pool="workers")["ok"]
    stack.queue.requests.clear()


def dry_run(stage: Stage, _stack: Stack) -> None:
    stage.register(dry_run=True)


def pool_dry_run(stage: Stage, _stack: Stack) -> None:
    stage.register(pools=[{"name": "workers", "dry_run": True}])


def untag(stage: Stage, stack: Stack) -> None:
    """Remove every tag by which the record selects groups."""
    for group in stage.api.groups.by_name.values():
        for key in ("evenkeel.dev/pool", "evenkeel.dev/adopted-bounds"):
            group.tags.pop(key, None)
    stage.register(discovery=["asg:tag=team"])
    pause(stage, stack)


@pytest.mark.parametrize("behavior", [Behavior, worst])
@pytest.mark.parametrize("change", [pause, pause_pool, dry_run, pool_dry_run, untag])
def test_it_is_ended_whatever_an_operator_does_next(
    change: Callable[[Stage, Stack], None], behavior: Callable[[], Behavior]
) -> None:
    count = 0
    for stage, stack, place in crashes(behavior):
        (left,) = suspended(stage)
        change(stage, stack)
        bounds = stage.numbers(left)[::3]
        check(stage, stack, 3)
        assert suspended(stage) == [], place
        assert '"unfinished"' not in stage.decision(left), place
        assert stage.numbers(left)[::3] == bounds, place
        assert stage.store.load("demo").unfinished == (), place
        count += 1
    assert count > 4


def test_it_is_ended_if_the_answer_is_lost_that_its_begin_is_stored() -> None:
    _, _, life = killed(-1, How.LOST, Behavior())
    count = 0
    for at in [number for number, step in enumerate(life.steps) if step == "decisions.save"]:
        stage, stack, _ = killed(at, How.LOST, Behavior())
        pause(stage, stack)
        left = [name for name in stage.api.groups.by_name if '"unfinished"' in stage.decision(name)]
        check(stage, stack, 3)
        assert not [name for name in left if '"unfinished"' in stage.decision(name)], at
        assert stage.store.load("demo").unfinished == ()
        count += len(left)
    assert count


def test_a_paused_cluster_is_left_alone_once_it_is_ended() -> None:
    stage, stack, _ = next(crashes())
    pause(stage, stack)
    check(stage, stack, 3)
    calls = len(stage.api.calls)
    check(stage, stack, 3)
    assert len(stage.api.calls) == calls
    assert stack.queue.requests == {}


def test_it_is_tried_each_minute_until_aws_resumes_the_process() -> None:
    stage, stack, _ = next(crashes())
    pause(stage, stack)
    stage.api.before = partial(_refuse, "ResumeProcesses")
    check(stage, stack, 4)
    assert suspended(stage)
    stage.api.before = lambda _name, _request: None
    check(stage, stack, 1)
    assert suspended(stage) == []


def _refuse(refused: str, name: str, _request: object) -> None:
    if name == refused:
        raise AwsError("Throttling", "Rate exceeded")


def test_a_cluster_is_not_unregistered_before_it_is_ended() -> None:
    stage, stack, _ = next(crashes())
    (left,) = suspended(stage)
    stage.minutes(2)
    message = stack.refused("unregister")
    assert "a run was killed while it wrote" in message
    assert left in message
    check(stage, stack, 1)
    assert "Evenkeel's bounds are still set" in stack.refused("unregister")


def test_a_forced_unregister_removes_a_record_whose_lease_cannot_be_read_either() -> None:
    stage, stack, _ = next(crashes())
    stage.store.plant("demo", "{")
    stage.store._unfinished["demo"] = ("no key of a group",)
    assert "the state of its objects is unknown" in stack.ask("unregister", force=True)["message"]
    assert stage.store.registered("demo") is None


@pytest.mark.parametrize(("minutes", "record"), [(2, None), (0, "{"), (2, "{")])
def test_a_forced_unregister_names_the_groups_and_a_new_record_ends_the_write(minutes: int, record: str | None) -> None:
    stage, stack, _ = next(crashes())
    (left,) = suspended(stage)
    stage.minutes(minutes)
    if record is not None:  # the record cannot be read
        stage.store.plant("demo", record)
    command = "aws autoscaling resume-processes --scaling-processes Terminate"
    message = stack.ask("unregister", force=True)["message"]
    assert f"{command} --region {REGION} --auto-scaling-group-name {left}" in message
    stage.store.save_record(stage.record, ControlRecord(), None)
    stage.minutes(2)
    assert str(GroupKey("auto-scaling", REGION, left)) in stage.store.load("demo").unfinished
    check(stage, stack, 2)
    assert suspended(stage) == []


def test_a_group_that_was_deleted_meanwhile_ends_the_write_too() -> None:
    stage, stack, _ = next(crashes())
    (left,) = suspended(stage)
    pause(stage, stack)
    del stage.api.groups.by_name[left]
    check(stage, stack, 2)
    assert stage.store.load("demo").unfinished == ()


def suspend(stage: Stage, name: str) -> None:
    """Suspend Terminate as an operator, while Evenkeel does not run."""
    stage.minutes(10)
    stage.api.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Terminate"])
    stage.minutes(2)


def replace_group(stage: Stage, name: str) -> None:
    """Delete the group, and create one with the same name, whose Terminate is suspended."""
    del stage.api.groups.by_name[name]
    stage.put(name, ZONES[1], 0, 2, 9)
    stage.minutes(2)
    suspend(stage, name)


def suspend_again(stage: Stage, name: str) -> None:
    """Resume Terminate, as a notified operator does, and suspend it later."""
    stage.api.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Terminate"])
    stage.minutes(2)
    suspend(stage, name)


@pytest.mark.parametrize("others", [replace_group, suspend_again])
def test_a_process_that_a_person_has_suspended_since_stays_suspended(others: Callable[[Stage, str], None]) -> None:
    for stage, stack, place in crashes():
        (left,) = suspended(stage)
        others(stage, left)
        check(stage, stack, 3)
        assert suspended(stage) == [left], place
        assert '"unfinished"' not in stage.decision(left), place
        assert stage.observe()[left].frozen_because is not None, place


def test_a_write_that_follows_an_unfinished_one_still_resumes_its_process() -> None:
    """A second run is killed, too, before it resumes the process that the first one has suspended."""
    count = 0
    for stage, stack, place in crashes():
        stage.api.clock.run(timedelta(seconds=45))
        kill_before_it_resumes(stage)
        count += '"since"' in "".join(map(stage.decision, stage.api.groups.by_name))
        check(stage, stack, 4)
        assert suspended(stage) == [], place
    assert count


@dataclass
class _Slow:
    """The decisions of a worker that sleeps before it stores that its first write has ended, while ``later`` acts."""

    store: DecisionsInMemory
    later: Callable[[], None]
    slept: bool = False

    def load(self, cluster: str) -> Decisions:
        return self.store.load(cluster)

    def save(self, cluster: str, group: str, decision: str, before: str) -> None:
        if ended_at(decision) is not None and not self.slept:
            self.slept = True
            self.later()
        self.store.save(cluster, group, decision, before)


def test_a_run_that_wakes_up_after_its_lease_does_not_end_the_write_of_a_later_run() -> None:
    stage, _ = outage()

    def later() -> None:
        """End the lease. Play a later run that lowers a max again, and is killed before it resumes the process."""
        (name,) = (name for name in stage.api.groups.by_name if is_unfinished(stage.decision(name)))
        stage.minutes(2)
        stage.api.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=stage.group(name).maximum + 3)
        stage.clusters.wrap_store = lambda store: store
        kill_before_it_resumes(stage)
        killed.extend(suspended(stage))

    killed: list[str] = []
    stage.clusters.wrap_store = lambda store: _Slow(store, later)
    stage.run()
    assert len(killed) == 1
    stage.minutes(2)
    stage.run()
    assert suspended(stage) == []


def kill_before_it_resumes(stage: Stage) -> None:
    """Run once. The run is killed before it resumes a process."""
    life = Life(at=-1, how=How.BEFORE)
    stage.store._leases.clear()  # the previous run began its write at its end
    stage.clusters.wrap = lambda client: MortalClient(client, life)
    stage.api.before = partial(_kill_at_resume, stage, life)
    with suppress(KilledError):
        worker(stage.store, stage.clusters, stage.clock, stage.queue)("demo", "a test", plenty)
    stage.api.before = lambda _name, _request: None
    stage.clusters.wrap = lambda same: same


def _kill_at_resume(stage: Stage, life: Life, name: str, _request: object) -> None:
    if name == "ResumeProcesses" and suspended(stage):
        life.dead = True
        raise KilledError(name)
