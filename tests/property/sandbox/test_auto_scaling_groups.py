"""Properties of every simulated group, whatever its writers, the stock and the time do."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Behavior, worst
from sandbox.auto_scaling.groups import PROCESSES
from sandbox.kube.cloud import Cloud

MODEL = botocore.session.get_session().get_service_model("autoscaling")
ZONES = ["eu-central-1a", "eu-central-1b"]
ENDS = (
    "in response to a difference between desired and actual capacity",
    "in response to a user request",
    "in response to an EC2 health check",
    "in response to an abandoned lifecycle action",
    "in response to an instance refresh",
)

sizes = st.integers(min_value=0, max_value=6)
stocks = st.tuples(st.just("stock"), st.sampled_from(ZONES), st.sampled_from([0, 1, 3, None]))
steps = st.one_of(
    st.tuples(st.just("desire"), sizes),
    st.tuples(st.just("bounds"), sizes, sizes),
    st.tuples(st.just("minimum"), sizes),
    st.tuples(st.just("maximum"), sizes),
    st.tuples(st.just("terminate"), sizes, st.booleans()),
    st.tuples(st.just("fail"), sizes),
    st.tuples(st.just("protect"), sizes, st.booleans()),
    stocks,
    st.tuples(st.just("suspend"), st.sampled_from(PROCESSES)),
    st.tuples(st.just("resume"), st.sampled_from(PROCESSES)),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("run"), st.sampled_from([1, 20, 60, 600, 100_000])),
)


def _errors(operation: str, answer: dict[str, Any]) -> str:
    """Return how an answer differs from botocore's model."""
    return str(ParamValidator().validate(answer, MODEL.operation_model(operation).output_shape).generate_report())


class Play:
    """A group whose instances and numbers are checked after each step."""

    def __init__(self, zones: list[str], hooked: bool, behavior: Behavior) -> None:
        self.stock = Cloud(zones=ZONES)
        self.api = AutoScaling(self.stock, behavior=behavior)
        hook = {"LifecycleHookName": "h", "HeartbeatTimeout": 300, "DefaultResult": "CONTINUE"}
        transitions = ("autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING")
        self.api.create_auto_scaling_group(
            AutoScalingGroupName="g",
            MinSize=1,
            MaxSize=4,
            DesiredCapacity=2,
            AvailabilityZones=zones,
            LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            LifecycleHookSpecificationList=[hook | {"LifecycleTransition": one} for one in transitions if hooked],
        )
        self.group = self.api.groups.by_name["g"]
        self.most = self.group.desired
        self.seen: set[str] = set()

    def take(self, kind: str, *arguments: Any) -> None:
        """Perform a step. AWS may refuse it."""
        ids, name = [*self.group.instances], {"AutoScalingGroupName": "g"}
        update = self.api.update_auto_scaling_group
        try:
            match kind, arguments:
                case "desire", (desired,):
                    self.api.set_desired_capacity(**name, DesiredCapacity=desired)
                case "bounds", (minimum, maximum):
                    update(**name, MinSize=minimum, MaxSize=maximum)
                case "minimum", (minimum,):
                    update(**name, MinSize=minimum)
                case "maximum", (maximum,):
                    update(**name, MaxSize=maximum)
                case "terminate", (number, decrement) if number < len(ids):
                    self.api.terminate_instance_in_auto_scaling_group(
                        InstanceId=ids[number], ShouldDecrementDesiredCapacity=decrement
                    )
                case "fail", (number,) if number < len(ids):
                    self.api.groups.fail(ids[number])
                case "protect", (number, protected) if number < len(ids):
                    self.api.set_instance_protection(**name, InstanceIds=[ids[number]], ProtectedFromScaleIn=protected)
                case "stock", (zone, limit):
                    self.stock.limits[zone] = limit
                case "suspend", (process,):
                    self.api.suspend_processes(**name, ScalingProcesses=[process])
                case "resume", (process,):
                    self.api.resume_processes(**name, ScalingProcesses=[process])
                case "refresh", ():
                    self.api.start_instance_refresh(**name)
                case "run", (seconds,):
                    self.api.clock.run(timedelta(seconds=seconds))
        except ClientError:
            pass

    def check(self) -> None:
        group = self.group
        assert 0 <= group.minimum <= group.desired <= group.maximum
        self.most = max(self.most, group.desired)
        assert len(group.counted) <= self.most
        for instance in group.instances.values():
            self.seen.add(instance.id)
        assert sum(self.stock.used().values()) == len(group.instances)

    def check_causes(self) -> None:
        """Check that each ended instance has one termination with a known cause."""
        self.api.behavior.become(Behavior())
        activities: list[dict[str, Any]] = []
        answer: dict[str, Any] = {"NextToken": None}
        while "NextToken" in answer:
            answer = self.api.describe_scaling_activities(AutoScalingGroupName="g", NextToken=answer["NextToken"])
            assert not _errors("DescribeScalingActivities", answer)
            activities += answer["Activities"]
        assert not _errors("DescribeAutoScalingGroups", self.api.describe_auto_scaling_groups())
        ended = [one for one in activities if one["Description"].startswith("Terminating EC2 instance: ")]
        ids = [one["Description"].split(": ")[1] for one in ended]
        alive = {instance.id for instance in self.group.instances.values() if not instance.ends}
        assert len(ids) == len({*ids})
        assert self.seen - alive <= {*ids}  # others started and ended within one step
        assert alive.isdisjoint(ids)
        for one in ended:
            assert any(end in one["Cause"] for end in ENDS), one["Cause"]
        assert all(len(one.get("StatusMessage", "")) <= 255 for one in activities)


@pytest.mark.parametrize("behavior", [Behavior, worst])
@given(zones=st.sampled_from([ZONES[:1], ZONES]), hooked=st.booleans(), play=st.lists(steps, max_size=30))
def test_bounds_hold_and_every_termination_has_a_cause(
    behavior: Callable[[], Behavior], zones: list[str], hooked: bool, play: list[tuple[Any, ...]]
) -> None:
    world = Play(zones, hooked, behavior())
    world.check()
    for step in play:
        world.take(*step)
        world.check()
    world.check_causes()


@pytest.mark.parametrize("behavior", [Behavior, worst])
@given(desired=st.integers(min_value=1, max_value=5), play=st.lists(stocks, max_size=5))
def test_a_group_reaches_its_desired_capacity_once_there_is_stock(
    behavior: Callable[[], Behavior], desired: int, play: list[tuple[Any, ...]]
) -> None:
    world = Play(ZONES, hooked=False, behavior=behavior())
    world.take("bounds", 0, 6)
    for step in play:
        world.take(*step)
        world.take("run", 600)
    world.take("desire", desired)
    for zone in ZONES:
        world.take("stock", zone, None)
    world.take("run", 3600)
    assert len(world.group.counted) == desired
