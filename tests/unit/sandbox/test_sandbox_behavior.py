"""The simulated AWS when it is slow, stale and disobedient, and cluster-autoscaler next to it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from sandbox.auto_scaling.behavior import Behavior, Rate, Termination
from sandbox.auto_scaling.clock import WallClock
from sandbox.kube.cloud import Cloud
from tests.auto_scaling_groups import ZONES, Stage, tag

NAME = "workers-a"
SECOND = timedelta(seconds=1)


def put(behavior: Behavior, desired: int = 2) -> Stage:
    """Return a stage with a group whose instances run, in an AWS that behaves so from then on."""
    stage = Stage()
    stage.put(NAME, ZONES[0], 0, desired, 9)
    stage.minutes(2)
    stage.api.behavior.become(behavior)
    return stage


def desire(stage: Stage, desired: int) -> None:
    stage.api.set_desired_capacity(AutoScalingGroupName=NAME, DesiredCapacity=desired)


def read(stage: Stage) -> dict[str, Any]:
    (group,) = stage.api.describe_auto_scaling_groups(AutoScalingGroupNames=[NAME])["AutoScalingGroups"]
    return dict(group)


def listed(stage: Stage) -> list[str]:
    return [group["AutoScalingGroupName"] for group in stage.api.describe_auto_scaling_groups()["AutoScalingGroups"]]


def status(stage: Stage) -> str:
    answer = stage.eks.describe_nodegroup(clusterName="demo", nodegroupName="workers")
    return str(answer["nodegroup"]["status"])


def activities(stage: Stage) -> list[str]:
    return [one["StatusCode"] for one in stage.api.describe_scaling_activities()["Activities"]]


def terminate(stage: Stage, instance: str) -> None:
    stage.api.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)


class TestCalls:
    def test_a_call_takes_its_latency_in_the_time_of_the_world(self) -> None:
        stage = put(Behavior(latency=SECOND, account_wide_latency=SECOND / 2))
        began = stage.clock.now()
        read(stage)
        assert stage.clock.now() - began == SECOND
        activities(stage)
        assert stage.clock.now() - began == 2.5 * SECOND

    @pytest.mark.parametrize(("parallel", "seconds"), [(1, 12), (4, 3), (5, 3), (12, 1)])
    def test_calls_of_threads_overlap(self, parallel: int, seconds: int) -> None:
        stage = put(Behavior(latency=SECOND, parallel=parallel))
        began = stage.clock.now()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: read(stage), range(12)))
        assert stage.clock.now() - began == seconds * SECOND
        read(stage)
        assert stage.clock.now() - began == (seconds + 1) * SECOND

    def test_a_call_that_takes_too_long_is_carried_out_and_not_answered(self) -> None:
        stage = put(Behavior(latency=3 * SECOND))
        with pytest.raises(ReadTimeoutError):
            desire(stage, 3)
        assert stage.group(NAME).desired == 3

    def test_over_http_calls_may_take_real_time(self) -> None:
        clock = WallClock()
        began = clock.now
        AutoScaling(Cloud(zones=ZONES), clock=clock).describe_auto_scaling_groups()
        assert clock.now > began

    def test_all_callers_share_the_tokens_of_a_service(self) -> None:
        stage = put(Behavior(auto_scaling_rate=Rate(size=2, per_second=1)))
        autoscaler = AwsAutoscaler(client=stage.api, names=[NAME])
        read(stage)
        read(stage)
        autoscaler.step(stage.clock.now())
        assert "Throttling" in autoscaler.errors[0]
        assert autoscaler.groups == []
        stage.eks.clusters["demo"] = {}
        stage.eks.list_nodegroups(clusterName="demo")
        stage.minutes(1)
        autoscaler.step(stage.clock.now())
        assert [group.requested for group in autoscaler.groups] == [2]


class TestReads:
    def test_an_old_read_shows_what_was_and_writes_count_at_once(self) -> None:
        stage = put(Behavior(read_age=(5 * SECOND, 5 * SECOND)))
        desire(stage, 4)
        stage.api.create_or_update_tags(Tags=[tag(NAME, "team", "x")])
        stage.api.clock.run(4 * SECOND)
        old = read(stage)
        assert (old["DesiredCapacity"], len(old["Instances"]), "team" in str(old["Tags"])) == (2, 2, False)
        assert stage.numbers(NAME)[1] == 4
        assert activities(stage)[:2] == ["InProgress"] * 2  # these are not stale
        stage.api.clock.run(2 * SECOND)
        new = read(stage)
        assert (new["DesiredCapacity"], len(new["Instances"]), "team" in str(new["Tags"])) == (4, 4, True)

    def test_each_group_has_its_own_age(self) -> None:
        stage = put(Behavior())
        stage.put("workers-b", ZONES[1], 0, 0, 9)
        stage.api.behavior.become(Behavior(read_age=(0 * SECOND, 10 * SECOND)))
        stage.api.clock.run(SECOND)
        for name in (NAME, "workers-b"):
            stage.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=4)
        stage.api.clock.run(5 * SECOND)
        seen = {
            tuple(one["DesiredCapacity"] for one in stage.api.describe_auto_scaling_groups()["AutoScalingGroups"])
            for _ in range(50)
        }
        assert seen == {(2, 0), (2, 4), (4, 0), (4, 4)}

    def test_a_deleted_group_is_seen_and_a_new_one_is_not(self) -> None:
        stage = put(Behavior(read_age=(5 * SECOND, 5 * SECOND)))
        stage.api.clock.run(SECOND)
        del stage.api.groups.by_name[NAME]
        stage.put("new", ZONES[0], 0, 0, 9)
        stage.api.clock.run(SECOND)
        assert listed(stage) == [NAME]
        stage.api.clock.run(6 * SECOND)
        assert listed(stage) == ["new"]

    def test_the_status_of_a_node_group_is_old_too(self) -> None:
        stage = Stage()
        stage.put_managed("workers", ZONES[0], 0, 1, 9)
        stage.minutes(2)
        stage.api.behavior.read_age = (5 * SECOND, 5 * SECOND)
        stage.eks.update_nodegroup_config(clusterName="demo", nodegroupName="workers", scalingConfig={"maxSize": 8})
        stage.api.clock.run(SECOND)
        assert status(stage) == "ACTIVE"
        stage.api.clock.run(6 * SECOND)
        assert status(stage) == "UPDATING"

    def test_activities_come_late(self) -> None:
        stage = put(Behavior(activity_delay=(120 * SECOND, 120 * SECOND)))
        stage.refuse(ZONES[0])
        desire(stage, 3)
        stage.api.clock.run(100 * SECOND)
        assert "Failed" not in activities(stage)
        stage.api.clock.run(25 * SECOND)
        assert "Failed" in activities(stage)

    def test_states_may_be_unknown(self) -> None:
        stage = put(Behavior())
        (first, _) = stage.group(NAME).instances
        stage.api.overrides |= {NAME: {"Status": "Shifting"}, first: {"LifecycleState": "Quarantined"}}
        assert read(stage)["Status"] == "Shifting"
        assert [one["LifecycleState"] for one in read(stage)["Instances"]] == ["Quarantined", "InService"]


class TestWrites:
    @pytest.mark.parametrize("code", ["ScalingActivityInProgress", "ResourceContention", "ValidationError"])
    def test_a_termination_may_be_refused(self, code: str) -> None:
        stage = put(Behavior(suspended_termination=Termination.REFUSED, termination_error=code))
        first, second = stage.group(NAME).instances
        terminate(stage, first)
        stage.api.suspend_processes(AutoScalingGroupName=NAME, ScalingProcesses=["Terminate"])
        with pytest.raises(ClientError, match=code):
            terminate(stage, second)
        assert (stage.group(NAME).desired, len(stage.group(NAME).counted)) == (1, 1)

    @pytest.mark.parametrize(
        ("effect", "left"),
        [(Termination.DONE, (1, 1)), (Termination.IGNORED, (2, 2)), (Termination.DECREMENTED, (1, 2))],
    )
    def test_a_termination_may_do_nothing_or_half_of_it(self, effect: Termination, left: tuple[int, int]) -> None:
        stage = put(Behavior(suspended_termination=effect))
        stage.api.suspend_processes(AutoScalingGroupName=NAME, ScalingProcesses=["Terminate"])
        terminate(stage, [*stage.group(NAME).instances][-1])
        assert (stage.group(NAME).desired, len(stage.group(NAME).counted)) == left

    def test_while_terminate_is_suspended_only_launches_end(self) -> None:
        stage = put(Behavior())
        desire(stage, 4)
        stage.api.suspend_processes(AutoScalingGroupName=NAME, ScalingProcesses=["Terminate"])
        desire(stage, 1)
        assert [one.state for one in stage.group(NAME).counted] == ["InService"] * 2

    def test_another_writer_strips_the_tags_that_it_does_not_know(self) -> None:
        stage = put(Behavior(tags_kept=60 * SECOND))
        declared = stage.tags(NAME)
        stage.api.create_or_update_tags(Tags=[tag(NAME, "evenkeel.dev/decision", "x")])
        stage.api.clock.run(59 * SECOND)
        assert stage.tags(NAME) != declared
        stage.api.clock.run(SECOND)
        assert stage.tags(NAME) == declared

    def test_launches_begin_after_the_desired_capacity_has_changed(self) -> None:
        stage = put(Behavior(launch_delay=(3 * SECOND, 3 * SECOND)))
        desire(stage, 4)
        assert (read(stage)["DesiredCapacity"], len(read(stage)["Instances"])) == (4, 2)
        assert "InProgress" not in activities(stage)
        stage.api.clock.run(3 * SECOND)
        assert len(read(stage)["Instances"]) == 4
        launch = stage.api.describe_scaling_activities()["Activities"][0]
        assert "changing the desired capacity from 2 to 4." in launch["Cause"]
        desire(stage, 3)
        assert len(stage.group(NAME).counted) == 3


class TestNodes:
    def test_an_instance_in_service_joins_later_or_never(self) -> None:
        behavior = Behavior(join=(45 * SECOND, 45 * SECOND), never_join=frozenset({ZONES[1]}))
        stage = put(behavior, desired=0)
        stage.put("workers-b", ZONES[1], 0, 1, 9)
        desire(stage, 1)
        autoscaler = AwsAutoscaler(client=stage.api, names=[NAME, "workers-b"], has_node=stage.api.groups.has_node)
        running = []
        for _ in range(3):
            stage.api.clock.run(40 * SECOND)
            autoscaler.refresh(stage.clock.now())
            running.append([group.running for group in autoscaler.groups])
        assert stage.numbers("workers-b")[2] == 1
        assert running == [[0, 0], [1, 0], [1, 0]]


class TestAutoscaler:
    def test_an_older_activity_in_progress_ends_its_search_for_refused_launches(self) -> None:
        stage = put(Behavior(launch=600 * SECOND))
        autoscaler = AwsAutoscaler(client=stage.api, names=[NAME])
        desire(stage, 3)  # of another writer, and still in progress
        stage.api.clock.run(10 * SECOND)
        stage.refuse(ZONES[0])
        autoscaler.refresh(stage.clock.now())
        autoscaler.set_size(autoscaler.groups[0], 4, stage.clock.now())
        autoscaler.refresh(stage.clock.now())
        assert not autoscaler.groups[0].refused
        stage.minutes(10)
        desire(stage, 5)
        autoscaler.refresh(stage.clock.now())
        assert autoscaler.groups[0].refused

    def test_it_deletes_an_instance_that_ends_without_a_call_and_without_an_error(self) -> None:
        stage = put(Behavior(termination_time=600 * SECOND))
        autoscaler = AwsAutoscaler(client=stage.api, names=[NAME])
        (first, _) = stage.group(NAME).instances
        autoscaler.refresh(stage.clock.now())
        terminate(stage, first)
        autoscaler.refresh(stage.clock.now())
        (group,) = autoscaler.groups
        assert (group.requested, group.running) == (1, 2)
        stage.api.calls.clear()
        autoscaler.delete(group, group.machines[0], stage.clock.now())
        assert (stage.api.calls, autoscaler.errors, group.requested) == ([], [], 1)

    @pytest.mark.parametrize(("desired", "most"), [(0, 6), (1, 2)])
    def test_it_does_not_balance_empty_managed_groups(self, desired: int, most: int) -> None:
        stage = Stage()
        names = [stage.put_managed(f"workers-{zone[-1]}", zone, 0, desired, 9) for zone in ZONES]
        stage.minutes(2)
        autoscaler = AwsAutoscaler(client=stage.api, eks=stage.eks, names=names)
        autoscaler.demand[("workers", None)] = 6
        stage.eks.calls.clear()
        autoscaler.step(stage.clock.now())
        assert len(stage.eks.calls) == (0 if desired else len(names))
        assert max(stage.group(name).desired for name in names) == most
