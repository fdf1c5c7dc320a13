"""The policies allow each call of the adapter under their conditions, and the calls use each allowed action."""

from collections.abc import Callable
from functools import partial
from typing import Any

import botocore.session
import pytest

from evenkeel.application.errors import BadRequestError
from sandbox.permissions import Request, allows, request_to_auto_scaling
from sandbox.template import ROOT, Template
from tests.auto_scaling_groups import ZONES, Ec2, Stage
from tests.stack import Stack

WORKLOAD = {"access": {"kind": "eks", "name": "demo", "region": "eu-central-1"}}
ARN = "arn:aws:{}:eu-central-1:123456789012:{}"
# The fields for which the Service Authorization Reference has no condition key.
WITHOUT_KEY = {
    *("AvailabilityZones", "AvailabilityZoneIds", "DefaultCooldown", "HealthCheckType", "HealthCheckGracePeriod"),
    *("PlacementGroup", "TerminationPolicies", "NewInstancesProtectedFromScaleIn", "ServiceLinkedRoleARN"),
    *("MaxInstanceLifetime", "CapacityRebalance", "Context", "DesiredCapacityType", "DefaultInstanceWarmup"),
    *("InstanceMaintenancePolicy", "AvailabilityZoneDistribution", "AvailabilityZoneImpairmentPolicy"),
    *("SkipZonalShiftValidation", "DeletionProtection", "InstanceLifecyclePolicy", "DesiredCapacity"),
}
GIVEN: dict[str, Any] = {
    "LaunchConfigurationName": "other",
    "LaunchTemplate": {"LaunchTemplateName": "other"},
    "MixedInstancesPolicy": {"LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateName": "other"}}},
    "VPCZoneIdentifier": "subnet-1",
    "CapacityReservationSpecification": {
        "CapacityReservationTarget": {"CapacityReservationResourceGroupArns": ["arn:aws:resource-groups:g"]}
    },
}


def statements(file: str, role: str) -> list[dict[str, Any]]:
    template = Template(ROOT / file)
    properties = template.resources[role]["Properties"]
    policies = [*properties["Policies"]]
    if "ManagedPolicyArns" in properties and file != "template.yaml":
        policies.append(template.resources["ReadPolicy"]["Properties"])
    found = template.resolve([policy["PolicyDocument"]["Statement"] for policy in policies], lambda name, _: name)
    listed = [statement for each in found for statement in each]
    of_groups = [each for each in listed if "autoscaling:" in str(each["Action"]) or "DescribeNodegroup" in str(each)]
    text = {"AWS::Partition": "aws", "AWS::AccountId": "123456789012"}
    for each in of_groups:
        resources = each["Resource"] if isinstance(each["Resource"], list) else [each["Resource"]]
        for name, value in text.items():
            resources = [resource.replace(name, value) for resource in resources]
        each["Resource"] = resources
    return of_groups


POLICIES = {
    "stack": statements("template.yaml", "RebalanceRole"),
    "account": statements("deploy/auto-scaling/account.yaml", "WriteRole"),
}


class Recorder:
    """A client that notes each call, with the tags that its group has at that time."""

    def __init__(self, client: Any, stage: Stage, requests: list[Request]) -> None:
        self._client, self._stage, self._requests = client, stage, requests

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**params: Any) -> Any:
            if operation == "describe_nodegroup":
                name = f"nodegroup/{params['clusterName']}/{params['nodegroupName']}/0a1b2c3d"
                self._requests.append(Request("eks:DescribeNodegroup", ARN.format("eks", name)))
            elif operation == "describe_instance_types":
                self._requests.append(Request("ec2:DescribeInstanceTypes", "*"))
            else:
                name = "".join(word.title() for word in operation.split("_"))
                request = request_to_auto_scaling(name, params, ARN)
                self._requests.append(self._with_tags(request, params))
            return getattr(self._client, operation)(**params)

        return call

    def _with_tags(self, request: Request, params: dict[str, Any]) -> Request:
        group = params.get("AutoScalingGroupName") or next((tag["ResourceId"] for tag in params.get("Tags", ())), None)
        if group is None or "evenkeel.dev/pool" in self._stage.tags(group):
            return request
        key = "aws:ResourceTag/evenkeel.dev/pool"
        return Request(request.action, request.resource, {k: v for k, v in request.keys.items() if k != key})


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    """Return the requests in an outage of plain groups with an autoscaler, a removal of managed ones, and restores."""
    found: list[Request] = []
    for fields in ({}, {"autoscaler": "none", "dry_run": False}):
        stage = Stage(**fields)
        stage.clusters.wrap = partial(Recorder, stage=stage, requests=found)
        stage.clusters.ec2 = Recorder(Ec2(), stage, found)
        names = [stage.put_managed(f"m-{zone[-1]}", zone, 0, 2, 9) for zone in ZONES] if fields else stage.pool()
        stage.minutes(6)
        stage.settle()
        if fields:
            stack = Stack(store=stage.store, clock=stage.clock, clusters=stage.clusters)  # type: ignore[arg-type]
            assert stack.ask("scale-down", pool="workers", nodes=2)["ok"]
        else:
            stage.refuse(ZONES[1])
            stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)
        runs(stage, 6)
        stage.restore()
    stage.register(demand="full", workload=WORKLOAD)
    stage.observe()
    return found


def runs(stage: Stage, minutes: int) -> None:
    for _ in range(minutes):
        stage.minutes(1)
        stage.run()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_allows_each_call(policy: str, requests: list[Request]) -> None:
    denied = {str(each) for each in requests if not any(allows(one, each) for one in POLICIES[policy])}
    assert denied == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_calls_use_each_allowed_action(policy: str, requests: list[Request]) -> None:
    used = {request.action for request in requests}
    allowed = {
        action
        for statement in POLICIES[policy]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert allowed == used


@pytest.mark.parametrize("policy", POLICIES)
def test_an_update_sets_nothing_but_sizes_as_far_as_aws_has_condition_keys(policy: str) -> None:
    model = botocore.session.get_session().get_service_model("autoscaling")
    fields = set(model.operation_model("UpdateAutoScalingGroup").input_shape.members)
    sizes = {"AutoScalingGroupName": "workers-a", "MinSize": 1, "MaxSize": 3}
    assert fields - sizes.keys() - WITHOUT_KEY == GIVEN.keys()
    for field, value in GIVEN.items():
        request = request_to_auto_scaling("UpdateAutoScalingGroup", {**sizes, field: value}, ARN)
        assert not any(allows(statement, request) for statement in POLICIES[policy]), field


@pytest.mark.parametrize("action", ["register", "apply"])
def test_a_selector_that_the_policy_denies_is_refused(action: str) -> None:
    stack = Stack([])
    record = {
        "access": {"kind": "auto-scaling", "region": "eu-central-1"},
        "pools": [{"name": "workers", "selector": {"team": "blue"}}],
    }
    text = "pools[0].selector: a stack may write only Auto Scaling groups with tag evenkeel.dev/pool"
    if action == "register":
        with pytest.raises(BadRequestError, match=r"set evenkeel\.dev/pool=workers on the groups") as raised:
            stack.ask("register", record=record)
        assert text in str(raised.value)
    else:
        for verify in (True, False):
            assert text in str(stack.ask("apply", cluster=None, records={"demo": record}, verify=verify))
