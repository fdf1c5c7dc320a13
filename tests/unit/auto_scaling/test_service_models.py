"""The reader and the simulated API know the values of botocore's models of the services."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.session import get_session

from evenkeel.adapters.auto_scaling.api import ENDED_REFRESHES
from evenkeel.adapters.auto_scaling.read import _FREE_STATUSES, _UNFINISHED, instances_of, is_terminating
from evenkeel.adapters.own_annotations import DECISION
from evenkeel.texts.english import sentence
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.calls import AwsError
from sandbox.auto_scaling.groups import PROCESSES
from sandbox.auto_scaling.node_groups import NodeGroups
from tests.auto_scaling_groups import ZONES, Stage
from tests.unit.auto_scaling.test_read_groups import described, instance

SANDBOX = Path(__file__).resolve().parents[3] / "sandbox" / "auto_scaling"
# AWS's errors of every service, which no model of an operation lists.
GENERAL = {"ValidationError", "Throttling", "ThrottlingException", "AccessDenied"}


@cache
def model(service: str) -> Any:
    return get_session().get_service_model(service)


def values(name: str, service: str = "autoscaling") -> set[str]:
    return set(model(service).shape_for(name).enum)


def test_each_state_of_an_instance_counts_leaves_or_is_no_instance_of_the_desired_capacity() -> None:
    states = {state: instance(1, state) for state in values("LifecycleState")}
    counted = {state for state, one in states.items() if instances_of(described(Instances=[one]))}
    going = {state for state, one in states.items() if is_terminating(one)}
    neither = {state for state in states if state.startswith(("Warmed", "Detach", "Standby", "EnteringStandby"))}
    assert sorted([*counted, *going, *neither]) == sorted(states)


def test_each_status_of_a_launch_is_known() -> None:
    ends = {"Successful", "Failed", "Cancelled"}
    of_terminations = {"WaitingForELBConnectionDraining", "WaitingForConnectionDraining"}
    in_place = {status for status in values("ScalingActivityStatusCode") if "InPlaceUpdate" in status}
    assert _UNFINISHED | ends | of_terminations | in_place == values("ScalingActivityStatusCode")


def test_each_status_of_a_refresh_or_a_node_group_freezes_or_does_not() -> None:
    in_progress = {"Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking"}
    assert {*ENDED_REFRESHES} | in_progress == values("InstanceRefreshStatus")
    busy = {"CREATING", "UPDATING", "DELETING", "CREATE_FAILED", "DELETE_FAILED"}
    assert _FREE_STATUSES | busy == values("NodegroupStatus", "eks")


@pytest.mark.parametrize(("service", "simulated"), [("autoscaling", AutoScaling), ("eks", NodeGroups)])
def test_the_simulated_operations_and_error_codes_are_those_of_aws(service: str, simulated: type) -> None:
    methods = {name for name, one in vars(simulated).items() if hasattr(one, "__wrapped__") and name[0] != "_"}
    operations = {name.title().replace("_", "") for name in methods}
    assert operations <= set(model(service).operation_names)
    files = ("api.py", "groups.py", "activities.py") if service == "autoscaling" else ("node_groups.py",)
    text = "".join((SANDBOX / file).read_text("utf-8") for file in files)
    codes = set(re.findall(r'AwsError\("(\w+)"', text))
    errors = {shape.metadata.get("error", {}).get("code", shape.name) for shape in model(service).error_shapes}
    assert codes - {"AutoScalingGroupNotFound"} <= errors | GENERAL  # EKS reports that code in an update
    assert codes


def test_a_group_whose_launches_aws_does_not_list_is_not_written_and_the_others_are() -> None:
    stage = Stage()
    names = stage.pool()
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)

    def before(operation: str, _request: object) -> None:
        if operation == "DescribeScalingActivities":
            raise AwsError("ResourceContention", "You already have a pending update", 500)

    stage.api.before = before
    reason = stage.observe()[names[1]].frozen_because
    assert reason is not None
    assert sentence(reason) == "AWS has not listed its launches in time: the next check reads them"
    assert not stage.run().unreachable
    assert [DECISION in stage.tags(name) for name in names] == [True, False, True]


def test_the_simulated_processes_are_those_that_aws_lists() -> None:
    text = model("autoscaling").shape_for("ProcessType").members["ProcessName"].documentation
    assert set(re.findall(r"<code>(\w+)</code>", text)) == set(PROCESSES)
