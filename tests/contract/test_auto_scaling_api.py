"""Auto Scaling and EKS as boto3 reads and writes them: on the simulated API and, where it is right, on moto's.

The same tests run on `simulated`, also with its worst behavior, and on `moto`. What moto lacks or does wrong is tested
on `simulated` alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Behavior, Rate, worst
from sandbox.auto_scaling.calls import AwsError
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.aws import AwsEndpoints
from sandbox.kube.cloud import Cloud, subnet_in
from sandbox.server import Response

REGION = "eu-central-1"
ZONES = [f"{REGION}{letter}" for letter in "abc"]
ROLE = "arn:aws:iam::123456789012:role/nodes"
_names = count(1)


@dataclass
class Aws:
    """The clients of one implementation.

    Instances of every group start or end by `settle`. Reads show all writes after `renew`.
    """

    clients: dict[str, Any]
    settle: Callable[[], None]
    subnet: str
    simulated: AutoScaling | None = None
    renew: Callable[[], None] = lambda: None

    @property
    def auto_scaling(self) -> Any:
        return self.clients["autoscaling"]

    @property
    def eks(self) -> Any:
        return self.clients["eks"]

    def create(self, name: str, minimum: int, maximum: int, desired: int, **more: Any) -> None:
        more.setdefault("AvailabilityZones", ZONES[:1])
        self.auto_scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            **more,
        )
        self.settle()

    def group(self, name: str) -> dict[str, Any]:
        self.renew()
        (found,) = self.auto_scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return dict(found)

    def numbers(self, name: str) -> tuple[int, int, int, int]:
        """Return minimum, desired capacity, instances in service and maximum of a group."""
        group = self.group(name)
        running = [one for one in group["Instances"] if one["LifecycleState"] == "InService"]
        return group["MinSize"], group["DesiredCapacity"], len(running), group["MaxSize"]


def _client(service: str, url: str, *, key: str = "KEY") -> Any:
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )


def _simulated(behavior: Behavior) -> Iterator[Aws]:
    api = AutoScaling(Cloud(zones=ZONES), behavior=behavior)
    node_groups = NodeGroups(api)
    with AwsServer(lambda _key, _region: {"autoscaling": api, "eks": node_groups}) as server:
        clients = {name: _client(name, server.url) for name in ("autoscaling", "eks")}
        settle, renew = (lambda: api.clock.run(timedelta(minutes=3))), (lambda: api.clock.run(behavior.read_age[1]))
        yield Aws(clients, settle, subnet_in(ZONES[0]), api, renew)


@pytest.fixture(scope="module")
def simulated() -> Iterator[Aws]:
    yield from _simulated(Behavior())


@pytest.fixture
def alone() -> Iterator[Aws]:
    """Yield a simulated API without the groups of other tests."""
    yield from _simulated(Behavior())


@pytest.fixture(scope="module")
def at_its_worst() -> Iterator[Aws]:
    yield from _simulated(worst())


@pytest.fixture(scope="module")
def moto() -> Iterator[Aws]:
    with ExitStack() as stack:
        url = stack.enter_context(AwsEndpoints()).url
        clients = {name: _client(name, url) for name in ("autoscaling", "eks", "ec2")}
        data = {"ImageId": "ami-12c6146b", "InstanceType": "m5.xlarge"}
        clients["ec2"].create_launch_template(LaunchTemplateName="web", LaunchTemplateData=data)
        subnet = clients["ec2"].describe_subnets()["Subnets"][0]["SubnetId"]
        yield Aws(clients, lambda: None, subnet)


@pytest.fixture(params=["simulated", "at_its_worst", "moto"])
def aws(request: pytest.FixtureRequest) -> Aws:
    """Return the clients of each implementation."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def name() -> str:
    return f"group-{next(_names)}"


def _error(call: Callable[..., Any], **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def _names_of(answer: dict[str, Any]) -> list[str]:
    return sorted(group["AutoScalingGroupName"] for group in answer["AutoScalingGroups"])


def _tags(name: str, **tags: str) -> list[dict[str, Any]]:
    shared = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    return [{**shared, "Key": key, "Value": value} for key, value in tags.items()]


class TestBoth:
    def test_a_new_group_launches_its_desired_capacity(self, aws: Aws, name: str) -> None:
        aws.create(name, 1, 5, 2, NewInstancesProtectedFromScaleIn=True)
        assert aws.numbers(name) == (1, 2, 2, 5)
        group = aws.group(name)
        assert group["AvailabilityZones"] == ZONES[:1]
        assert f"autoScalingGroupName/{name}" in group["AutoScalingGroupARN"]
        for instance in group["Instances"]:
            assert instance["AvailabilityZone"] == ZONES[0]
            assert instance["HealthStatus"].capitalize() == "Healthy"
            assert instance["ProtectedFromScaleIn"]
            assert instance["LaunchTemplate"]["LaunchTemplateName"] == "web"

    def test_filters_are_anded_and_their_values_ored(self, aws: Aws, name: str) -> None:
        others = [f"{name}-{letter}" for letter in "xyz"]
        for other, pool in zip(others, ("p1", "p2", "p3"), strict=True):
            aws.create(other, 0, 1, 0, Tags=_tags(other, **{f"pool-{name}": pool, "env": f"{name}-{pool}"}))

        def found(*filters: tuple[str, list[str]]) -> list[str]:
            wanted = [{"Name": key, "Values": values} for key, values in filters]
            return _names_of(aws.auto_scaling.describe_auto_scaling_groups(Filters=wanted))

        assert found(("tag-key", [f"pool-{name}"])) == others
        assert found((f"tag:pool-{name}", ["p1", "p3"])) == [others[0], others[2]]
        assert found((f"tag:pool-{name}", ["p1", "p3"]), ("tag-value", [f"{name}-p3"])) == [others[2]]
        assert found(("tag-value", [f"{name}-p4"])) == []

    def test_groups_come_in_pages(self, aws: Aws, name: str) -> None:
        others = [f"{name}-{number}" for number in range(5)]
        for other in others:
            aws.create(other, 0, 1, 0)
        pages = aws.auto_scaling.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=others, PaginationConfig={"PageSize": 2}
        )
        found = [_names_of(page) for page in pages]
        assert max(len(page) for page in found) <= 2
        assert len(found) > 2
        assert sorted(name for page in found for name in page) == others

    def test_tags_are_replaced_and_deleted_by_key(self, aws: Aws, name: str) -> None:
        aws.create(name, 0, 1, 0, Tags=_tags(name, a="1", b="2"))
        aws.auto_scaling.create_or_update_tags(Tags=_tags(name, b="3", c="4 & <5>"))
        aws.auto_scaling.delete_tags(Tags=_tags(name, a=""))
        assert {tag["Key"]: tag["Value"] for tag in aws.group(name)["Tags"]} == {"b": "3", "c": "4 & <5>"}

    def test_desired_capacity_follows_a_write(self, aws: Aws, name: str) -> None:
        aws.create(name, 1, 5, 2)
        aws.auto_scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=4, HonorCooldown=False)
        aws.settle()
        assert aws.numbers(name) == (1, 4, 4, 5)
        aws.auto_scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
        aws.settle()
        assert aws.numbers(name) == (1, 1, 1, 5)

    def test_bounds_clamp_the_desired_capacity(self, aws: Aws, name: str) -> None:
        aws.create(name, 1, 5, 2)
        update = aws.auto_scaling.update_auto_scaling_group
        update(AutoScalingGroupName=name, MinSize=3, MaxSize=5)
        aws.settle()
        assert aws.numbers(name) == (3, 3, 3, 5)
        update(AutoScalingGroupName=name, MinSize=0, MaxSize=1)
        aws.settle()
        assert aws.numbers(name) == (0, 1, 1, 1)
        update(AutoScalingGroupName=name, MinSize=0, MaxSize=8)
        aws.settle()
        assert aws.numbers(name) == (0, 1, 1, 8)

    def test_a_termination_with_decrement_is_not_replaced(self, aws: Aws, name: str) -> None:
        aws.create(name, 1, 5, 3)
        first = aws.group(name)["Instances"][0]["InstanceId"]
        aws.auto_scaling.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
        aws.settle()
        assert aws.numbers(name) == (1, 2, 2, 5)
        assert first not in [one["InstanceId"] for one in aws.group(name)["Instances"]]

    def test_suspended_processes_are_listed_until_they_are_resumed(self, aws: Aws, name: str) -> None:
        aws.create(name, 0, 1, 0)
        aws.auto_scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch", "AZRebalance"])
        listed = {process["ProcessName"] for process in aws.group(name)["SuspendedProcesses"]}
        assert listed == {"Launch", "AZRebalance"}
        aws.auto_scaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
        assert [process["ProcessName"] for process in aws.group(name)["SuspendedProcesses"]] == ["AZRebalance"]

    def test_scale_in_protection_is_listed_per_instance(self, aws: Aws, name: str) -> None:
        aws.create(name, 0, 5, 2)
        first, second = (one["InstanceId"] for one in aws.group(name)["Instances"])
        aws.auto_scaling.set_instance_protection(
            AutoScalingGroupName=name, InstanceIds=[second], ProtectedFromScaleIn=True
        )
        protected = {one["InstanceId"]: one["ProtectedFromScaleIn"] for one in aws.group(name)["Instances"]}
        assert protected == {first: False, second: True}

    def test_a_deleted_group_is_not_listed(self, aws: Aws, name: str) -> None:
        aws.create(name, 0, 1, 1)
        aws.auto_scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        aws.settle()
        answer = aws.auto_scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        assert answer["AutoScalingGroups"] == []

    def test_node_groups_are_listed_and_described(self, aws: Aws, name: str) -> None:
        if aws.simulated is None:
            aws.eks.create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": [aws.subnet]})
        scaling = {"minSize": 1, "maxSize": 4, "desiredSize": 2}
        for node_group in ("one", "two"):
            aws.eks.create_nodegroup(
                clusterName=name, nodegroupName=node_group, subnets=[aws.subnet], nodeRole=ROLE, scalingConfig=scaling
            )
        aws.settle()
        assert sorted(aws.eks.list_nodegroups(clusterName=name)["nodegroups"]) == ["one", "two"]
        described = aws.eks.describe_nodegroup(clusterName=name, nodegroupName="one")["nodegroup"]
        assert described["scalingConfig"] == scaling
        assert described["status"] == "ACTIVE"
        assert described["subnets"] == [aws.subnet]
        assert described["health"]["issues"] == []
        assert described["resources"]["autoScalingGroups"][0]["name"].startswith("eks-")
        missing = _error(aws.eks.describe_nodegroup, clusterName=name, nodegroupName="three")
        assert missing == ("ResourceNotFoundException", "No node group found for name: three.")


class TestSimulated:
    """Calls that moto lacks or does wrong."""

    def test_errors_have_the_codes_and_texts_of_aws(self, simulated: Aws, name: str) -> None:
        client = simulated.auto_scaling
        simulated.create(name, 1, 2, 1)
        only = simulated.group(name)["Instances"][0]["InstanceId"]
        group = {"AutoScalingGroupName": name}
        calls: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
            (
                client.set_desired_capacity,
                {**group, "DesiredCapacity": 3},
                "New SetDesiredCapacity value 3 is above max value 2 for the AutoScalingGroup.",
            ),
            (
                client.set_desired_capacity,
                {**group, "DesiredCapacity": 0},
                "New SetDesiredCapacity value 0 is below min value 1 for the AutoScalingGroup.",
            ),
            (
                client.update_auto_scaling_group,
                {**group, "MinSize": 3},
                "Max bound, 2, must be greater than or equal to min bound, 3",
            ),
            (
                client.update_auto_scaling_group,
                {**group, "DesiredCapacity": 5},
                "Desired capacity:5 must be between the specified min size:1 and max size:2",
            ),
            (
                client.terminate_instance_in_auto_scaling_group,
                {"InstanceId": only, "ShouldDecrementDesiredCapacity": True},
                "Currently, desiredSize equals minSize (1). Terminating instance without replacement will violate",
            ),
            (
                client.terminate_instance_in_auto_scaling_group,
                {"InstanceId": "i-0", "ShouldDecrementDesiredCapacity": True},
                "Instance Id not found - No managed instance found for instance ID: i-0",
            ),
            (
                client.complete_lifecycle_action,
                {**group, "LifecycleHookName": "h", "InstanceId": only, "LifecycleActionResult": "CONTINUE"},
                f"No active Lifecycle Action found with instance ID {only}",
            ),
            (client.update_auto_scaling_group, {"AutoScalingGroupName": "none"}, "AutoScalingGroup name not found"),
            (client.describe_auto_scaling_groups, {"MaxRecords": 101}, "MaxRecords"),
            (client.describe_auto_scaling_groups, {"Filters": [{"Name": "zone", "Values": ["a"]}]}, "Invalid filter"),
        ]
        for call, arguments, text in calls:
            code, message = _error(call, **arguments)
            assert code == "ValidationError"
            assert message.startswith(text)
        assert simulated.numbers(name) == (1, 1, 1, 2)

    def test_activities_are_read_by_status_and_time(self, simulated: Aws, name: str) -> None:
        assert simulated.simulated
        simulated.create(name, 0, 3, 1)
        simulated.simulated.groups.stock.exhaust_zone(ZONES[0])
        simulated.auto_scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
        simulated.simulated.groups.stock.restore_zone(ZONES[0])
        read = simulated.auto_scaling.describe_scaling_activities
        failed, launched = read(AutoScalingGroupName=name)["Activities"]
        assert (failed["StatusCode"], launched["StatusCode"]) == ("Failed", "Successful")
        by_status = read(AutoScalingGroupName=name, Filters=[{"Name": "Status", "Values": ["Failed"]}])
        assert by_status["Activities"] == [failed]
        since = [{"Name": "StartTimeLowerBound", "Values": [failed["StartTime"].isoformat()]}]
        assert read(AutoScalingGroupName=name, Filters=since)["Activities"] == [failed]
        until = [{"Name": "StartTimeUpperBound", "Values": [launched["StartTime"].isoformat()]}]
        assert read(AutoScalingGroupName=name, Filters=until)["Activities"] == [launched]
        assert read(AutoScalingGroupName=name, ActivityIds=[failed["ActivityId"]])["Activities"] == [failed]
        first = read(AutoScalingGroupName=name, MaxRecords=1)
        rest = read(AutoScalingGroupName=name, MaxRecords=1, NextToken=first["NextToken"])
        assert [*first["Activities"], *rest["Activities"]] == [failed, launched]

    def test_activities_of_all_groups_come_with_those_in_progress_first(self, alone: Aws, name: str) -> None:
        assert alone.simulated
        since = alone.simulated.clock.now.isoformat()
        slow, failing = f"{name}-slow", f"{name}-failing"
        alone.create(failing, 0, 3, 0)
        alone.create(slow, 0, 3, 0)
        alone.auto_scaling.set_desired_capacity(AutoScalingGroupName=slow, DesiredCapacity=1)
        alone.simulated.clock.run(timedelta(seconds=5))
        alone.simulated.groups.stock.exhaust_zone(ZONES[0])
        alone.auto_scaling.set_desired_capacity(AutoScalingGroupName=failing, DesiredCapacity=1)
        alone.simulated.groups.stock.restore_zone(ZONES[0])
        read = alone.auto_scaling.describe_scaling_activities
        recent = [{"Name": "StartTimeLowerBound", "Values": [since]}]
        first, second = read(Filters=recent)["Activities"]
        assert (first["AutoScalingGroupName"], first["StatusCode"]) == (slow, "InProgress")
        assert (second["AutoScalingGroupName"], second["StatusCode"]) == (failing, "Failed")
        assert first["StartTime"] < second["StartTime"]
        by_status = [*recent, {"Name": "Status", "Values": ["Failed"]}]
        assert _error(read, Filters=by_status)[0] == "ValidationError"

    def test_activities_of_a_deleted_group_are_read_only_on_request(self, alone: Aws, name: str) -> None:
        assert alone.simulated
        since = [{"Name": "StartTimeLowerBound", "Values": [alone.simulated.clock.now.isoformat()]}]
        alone.create(name, 0, 1, 1)
        alone.auto_scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        alone.settle()
        read = alone.auto_scaling.describe_scaling_activities
        assert read(Filters=since)["Activities"] == []
        assert _error(read, AutoScalingGroupName=name)[0] == "ValidationError"
        former = read(AutoScalingGroupName=name, IncludeDeletedGroups=True)["Activities"]
        assert [one["AutoScalingGroupState"] for one in former] == ["Deleted"] * 2
        assert read(Filters=since, IncludeDeletedGroups=True)["Activities"] == former
        alone.create(name, 0, 1, 1)
        assert len(read(AutoScalingGroupName=name)["Activities"]) == 1  # not those of the earlier group

    @pytest.mark.parametrize("code", ["Throttling", "RequestLimitExceeded"])
    def test_ten_minutes_of_throttling_end_by_themselves(self, code: str) -> None:
        api = AutoScaling(Cloud(zones=ZONES), behavior=Behavior(throttled=code))
        api.throttle(timedelta(minutes=10))
        assert _error(api.describe_auto_scaling_groups)[0] == code
        api.clock.run(timedelta(minutes=10))
        assert api.describe_auto_scaling_groups()["AutoScalingGroups"] == []

    def test_a_proxy_answers_with_html(self) -> None:
        with AwsServer(lambda _key, _region: {}) as server:
            server.proxy = Response(status=502, body=b"<html><body>Bad Gateway</body></html>", content_type="text/html")
            assert _error(_client("autoscaling", server.url).describe_auto_scaling_groups)[0] == "502"
            server.proxy = Response(status=200, body=b"<html><p>Sign in</html>", content_type="text/html")
            with pytest.raises(ResponseParserError):
                _client("autoscaling", server.url).describe_auto_scaling_groups()

    def test_an_update_of_a_node_group_is_asynchronous(self, simulated: Aws, name: str) -> None:
        eks, ids = simulated.eks, {"clusterName": name, "nodegroupName": "one"}
        scaling = {"minSize": 1, "maxSize": 4, "desiredSize": 2}
        eks.create_nodegroup(**ids, subnets=[simulated.subnet], nodeRole=ROLE, scalingConfig=scaling)
        simulated.settle()
        refused = _error(eks.update_nodegroup_config, **ids, scalingConfig={"minSize": 3})
        assert refused == ("InvalidParameterException", "Minimum capacity 3 can't be greater than desired size 2")
        assert (
            _error(eks.update_nodegroup_config, **ids, scalingConfig={"maxSize": 1})[0] == "InvalidParameterException"
        )
        update = eks.update_nodegroup_config(**ids, scalingConfig={"minSize": 3, "desiredSize": 3})["update"]
        assert (update["status"], update["type"]) == ("InProgress", "ConfigUpdate")
        assert _error(eks.update_nodegroup_config, **ids, scalingConfig={"minSize": 2})[0] == "ResourceInUseException"
        group = eks.describe_nodegroup(**ids)["nodegroup"]["resources"]["autoScalingGroups"][0]["name"]
        assert simulated.numbers(group) == (1, 2, 2, 4)
        simulated.settle()
        described = eks.describe_update(name=name, nodegroupName="one", updateId=update["id"])["update"]
        assert described["status"] == "Successful"
        assert simulated.numbers(group) == (3, 3, 3, 4)

    def test_each_account_has_its_own_bucket(self) -> None:
        accounts = {key: AutoScaling(Cloud(zones=ZONES)) for key in ("KEY", "OTHER")}
        clock = accounts["KEY"].clock
        accounts["KEY"].behavior.auto_scaling_rate = Rate(size=2, per_second=0.5)

        def find(key: str, region: str) -> dict[str, Any]:
            if key not in accounts or region != REGION:
                raise AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
            return {"autoscaling": accounts[key]}

        with AwsServer(find) as server:
            unknown = _client("autoscaling", server.url, key="NOBODY")
            assert _error(unknown.describe_auto_scaling_groups)[0] == "InvalidClientTokenId"
            client = _client("autoscaling", server.url)
            codes = []
            for wait in (0, 0, 0, 1, 1):
                clock.run(timedelta(seconds=wait))
                try:
                    client.describe_auto_scaling_groups()
                    codes.append("")
                except ClientError as error:
                    codes.append(error.response["Error"]["Code"])
        assert codes == ["", "", "Throttling", "Throttling", ""]
