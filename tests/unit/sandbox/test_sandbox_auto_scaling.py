"""The simulated Auto Scaling API in process behaves like AWS, or worse."""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.kube.cloud import Cloud, subnet_in

A, *_ = ZONES = [f"eu-central-1{letter}" for letter in "abc"]
MINUTE = timedelta(minutes=1)
ICE = "We currently do not have sufficient m5.xlarge capacity in the Availability Zone you requested (eu-central-1a)."


class Play:
    """One account, with a method for each step of a test."""

    def __init__(self) -> None:
        self.cloud = Cloud(zones=ZONES)
        self.api = AutoScaling(self.cloud)
        self.events: list[dict[str, Any]] = []
        self.api.log.listeners.append(self.events.append)

    def create(self, minimum: int, maximum: int, desired: int, **more: Any) -> None:
        self.api.create_auto_scaling_group(
            AutoScalingGroupName="g",
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            AvailabilityZones=[A],
            LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            **more,
        )
        self.run()

    def run(self, duration: timedelta = MINUTE) -> None:
        self.api.clock.run(duration)

    def update(self, **request: Any) -> None:
        self.api.update_auto_scaling_group(AutoScalingGroupName="g", **request)

    def desire(self, desired: int) -> None:
        self.api.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=desired)

    def group(self) -> dict[str, Any]:
        (group,) = self.api.describe_auto_scaling_groups(AutoScalingGroupNames=["g"])["AutoScalingGroups"]
        return dict(group)

    def bounds(self) -> tuple[int, int, int]:
        group = self.group()
        return group["MinSize"], group["DesiredCapacity"], group["MaxSize"]

    def states(self) -> list[str]:
        return [instance["LifecycleState"] for instance in self.group()["Instances"]]

    def ids(self) -> list[str]:
        return [instance["InstanceId"] for instance in self.group()["Instances"]]

    def activities(self) -> list[dict[str, Any]]:
        return list(self.api.describe_scaling_activities(AutoScalingGroupName="g")["Activities"])

    def sent(self) -> list[str]:
        return [event["detail-type"] for event in self.events]


@pytest.fixture
def play() -> Play:
    return Play()


class TestLaunches:
    def test_a_refused_launch_is_an_activity_and_an_event_and_is_retried_ever_later(self, play: Play) -> None:
        play.create(0, 5, 1)
        play.cloud.exhaust_zone(A)
        play.desire(2)
        failed = play.activities()[0]
        assert failed["StatusCode"] == "Failed"
        assert failed["StatusMessage"].startswith(ICE)
        assert len(failed["StatusMessage"]) == 255
        assert json.loads(failed["Details"]) == {"Subnet ID": subnet_in(A), "Availability Zone": A}
        event = play.events[-1]
        assert (event["detail-type"], event["source"]) == ("EC2 Instance Launch Unsuccessful", "aws.autoscaling")
        assert event["detail"]["StatusMessage"] == failed["StatusMessage"]
        assert event["detail"]["ActivityId"] == failed["ActivityId"]
        assert event["resources"] == [play.group()["AutoScalingGroupARN"]]
        play.run(timedelta(hours=2))
        starts = [activity["StartTime"] for activity in play.activities() if activity["StatusCode"] == "Failed"]
        waits = [(later - sooner) / MINUTE for later, sooner in pairwise(starts)][::-1]
        assert waits[:6] == [1, 2, 4, 8, 15, 15]
        play.cloud.restore_zone(A)
        play.run(timedelta(minutes=16))
        assert play.states() == ["InService"] * 2

    def test_a_new_desired_capacity_is_tried_at_once(self, play: Play) -> None:
        play.create(0, 5, 0)
        play.cloud.exhaust_zone(A)
        play.desire(1)
        play.run(timedelta(minutes=10))
        play.cloud.restore_zone(A)
        play.desire(2)
        assert play.states() == ["Pending"] * 2

    def test_a_lowered_desired_capacity_cancels_pending_launches(self, play: Play) -> None:
        play.create(0, 5, 0)
        play.desire(1)
        play.desire(0)
        ended, cancelled = play.activities()
        assert (cancelled["StatusCode"], ended["StatusCode"]) == ("Cancelled", "InProgress")
        play.run()
        assert play.states() == []


class TestBounds:
    @pytest.mark.parametrize(
        ("running", "desired", "write", "after"),
        [
            (2, 2, {"MinSize": 1, "MaxSize": 5, "DesiredCapacity": 4}, 4),
            (2, 5, {"MaxSize": 3}, 3),
            (2, 5, {"MinSize": 3}, 3),  # "size" as the number of instances: a new minimum lowers the desired capacity
            (2, 5, {"MinSize": 2, "MaxSize": 9}, 5),
        ],
    )
    def test_new_bounds_clamp_the_desired_capacity(
        self, play: Play, running: int, desired: int, write: dict[str, int], after: int
    ) -> None:
        play.create(0, 8, running)
        play.cloud.exhaust_zone(A)
        play.desire(desired)
        play.update(**write)
        assert play.bounds()[1] == after

    def test_a_maximum_below_the_instances_raises_the_desired_capacity(self, play: Play) -> None:
        play.create(0, 5, 3, NewInstancesProtectedFromScaleIn=True)
        play.desire(1)
        play.update(MinSize=0, MaxSize=2)
        assert play.bounds() == (0, 2, 2)

    def test_a_maximum_below_the_desired_capacity_terminates_running_instances(self, play: Play) -> None:
        play.create(1, 5, 4)
        oldest = play.ids()[:2]
        play.update(MinSize=1, MaxSize=2)
        ending = [one for one in play.group()["Instances"] if one["LifecycleState"] == "Terminating"]
        assert [one["InstanceId"] for one in ending] == oldest
        cause = play.activities()[0]["Cause"]
        assert "constraints to min: 1, max: 2, desired: 2 changing the desired capacity from 4 to 2." in cause
        assert "shrinking the capacity from 4 to 2." in cause
        assert all(f"instance {one} was selected for termination." in cause for one in oldest)

    def test_protected_instances_outlive_scale_in_but_not_a_termination(self, play: Play) -> None:
        play.create(0, 5, 2, NewInstancesProtectedFromScaleIn=True)
        play.update(MinSize=0, MaxSize=1)
        assert play.bounds() == (0, 1, 1)
        assert play.states() == ["InService"] * 2
        assert play.activities()[0]["StatusMessage"].endswith("are protected from scale-in.")
        assert play.sent()[-1] == "EC2 Instance Terminate Unsuccessful"
        first = play.ids()[0]
        play.api.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
        play.run()
        assert first not in play.ids()

    def test_a_second_termination_of_an_instance_decrements_again(self, play: Play) -> None:
        play.create(0, 5, 3)
        first = play.ids()[0]
        for _ in range(2):
            play.api.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
        assert play.bounds()[1] == 1
        assert play.states().count("InService") == 1


class TestNodeGroups:
    IDS: dict[str, Any] = {"clusterName": "c", "nodegroupName": "n"}  # noqa: RUF012 (read only)

    @pytest.fixture
    def eks(self, play: Play) -> NodeGroups:
        eks = NodeGroups(play.api)
        scaling = {"minSize": 1, "maxSize": 5, "desiredSize": 2}
        eks.create_nodegroup(
            **self.IDS, subnets=[subnet_in(A)], nodeRole="r", instanceTypes=["m5.xlarge"], scalingConfig=scaling
        )
        play.run()
        return eks

    def _group(self, eks: NodeGroups) -> Any:
        return eks.auto_scaling.groups.by_name[eks.clusters["c"]["n"].group]

    def _described(self, eks: NodeGroups) -> dict[str, Any]:
        return dict(eks.describe_nodegroup(**self.IDS)["nodegroup"])

    def test_the_stored_bounds_do_not_follow_the_group_and_win_with_the_next_update(
        self, play: Play, eks: NodeGroups
    ) -> None:
        group = self._group(eks)
        play.api.update_auto_scaling_group(AutoScalingGroupName=group.name, MinSize=2, MaxSize=3)
        assert self._described(eks)["scalingConfig"] == {"minSize": 1, "maxSize": 5, "desiredSize": 2}
        eks.update_nodegroup_config(**self.IDS, updateConfig={"maxUnavailable": 2})
        assert self._described(eks)["status"] == "UPDATING"
        play.run()
        assert (group.minimum, group.maximum) == (1, 5)
        assert self._described(eks)["status"] == "ACTIVE"

    def test_eks_drains_before_an_instance_ends(self, play: Play, eks: NodeGroups) -> None:
        group = self._group(eks)
        play.api.set_desired_capacity(AutoScalingGroupName=group.name, DesiredCapacity=1)
        play.run(timedelta(seconds=50))
        assert [one.state for one in group.instances.values()] == ["Terminating:Wait", "InService"]
        play.run()
        assert [one.state for one in group.instances.values()] == ["InService"]
