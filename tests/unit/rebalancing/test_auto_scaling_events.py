"""Events of Auto Scaling groups: the cluster and group that each one reaches, and those that request a run."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.auto_scaling.read import Answers, read_groups
from evenkeel.adapters.aws.inbound import read_event
from evenkeel.adapters.aws_session import RUNS, AwsSession
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, Failure, Ignored, Report
from evenkeel.application.rebalancing.failure import RUNS_APART, RecordFailure
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import GroupKey
from sandbox.auto_scaling.activities import refuse
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.kube.cloud import Cloud
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, adopt, register

EVENTS = Path(__file__).resolve().parents[3] / "events"
OURS, THEIRS = "123456789012", "210987654321"
REGION, GROUP = "eu-central-1", "demo-eks-workers-eu-central-1a"
KEY = GroupKey("auto-scaling", REGION, GROUP)
NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
CHANGES = ("terminate", "refresh", "call")


def event(name: str, group: str = GROUP, **fields: Any) -> dict[str, Any]:
    path = EVENTS / f"provisioning-failure-auto-scaling-{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    parameters = found["detail"].get("requestParameters")
    if parameters is None:
        found["detail"]["AutoScalingGroupName"] = group
    else:
        parameters["autoScalingGroupName"] = group
    return {**found, **fields}


def role(account: str) -> str:
    return f"arn:aws:iam::{account}:role/evenkeel-write"


class Stack:
    """A stack in account OURS, with its use case and its ports in memory."""

    def __init__(self) -> None:
        self.store, self.queue = InMemoryStore(), FakeQueue()
        self.clock = FakeClock(NOON + timedelta(seconds=10))
        self.record_failure = RecordFailure(store=self.store, queue=self.queue, clock=self.clock)

    def add(self, cluster: str, groups: list[str], account: str = "", region: str = REGION, **fields: Any) -> None:
        access = {"kind": "auto-scaling", "region": region, **({"role_arn": role(account)} if account else {})}
        register(self.store, cluster, flavours=["auto-scaling"], access=access, **fields)
        adopt(self.store, cluster, [GroupKey("auto-scaling", region, name) for name in groups])

    def receive(self, given: dict[str, Any], account: str = OURS) -> EventOutcome:
        found = read_event(given, account)
        assert isinstance(found, Failure), found
        return self.record_failure(found)

    @property
    def fenced(self) -> dict[str, set[str]]:
        ids = [id for id, _ in self.store.registrations()]
        failed = {id: {str(key) for key in self.store.load(id).state.groups} for id in ids}
        return {id: groups for id, groups in failed.items() if groups}

    @property
    def requested(self) -> list[str]:
        return [*self.queue.clusters, *(cluster for cluster, _, _ in self.queue.second_checks)]


@pytest.fixture
def stack() -> Stack:
    stack = Stack()
    stack.add("prod", [GROUP, "demo-eks-workers-eu-central-1b"])
    return stack


def test_a_failed_launch_fences_exactly_its_group(stack: Stack) -> None:
    assert stack.receive(event("group")).result is EventResult.RECORDED
    assert stack.fenced == {"prod": {str(KEY)}}
    state = stack.store.load("prod").state.groups[KEY]
    assert (state.failure.failures, state.failure.failure_class) == (1, FailureClass.CAPACITY)
    assert stack.requested == ["prod"]


def test_a_launch_that_succeeds_only_proves_that_events_arrive(stack: Stack) -> None:
    assert stack.receive(event("launch")).result is EventResult.KNOWN
    assert (stack.requested, stack.fenced) == ([], {})
    check = stack.store.load("prod").event_check
    assert check is not None
    assert check.proven_at == stack.clock.at


def test_a_group_of_a_cluster_of_another_machine_api_is_found_by_its_name(stack: Stack) -> None:
    register(stack.store, "blue", flavours=["cluster-api"])
    assert stack.receive(event("group", "eks-blue-workers-0a1b")).result is EventResult.REQUESTED
    assert (stack.requested, stack.fenced) == (["blue"], {})
    assert stack.receive(event("terminate", "eks-blue-workers-0a1b")).result is EventResult.IGNORED


def test_a_name_that_begins_with_another_cluster_leads_to_the_group_s_own(stack: Stack) -> None:
    register(stack.store, "demo-eks", flavours=["cluster-api"])
    stack.receive(event("group"))
    assert (stack.requested, stack.fenced) == (["prod"], {"prod": {str(KEY)}})


def test_an_account_that_the_record_does_not_allow_is_refused() -> None:
    stack = Stack()
    stack.add("theirs", [GROUP], account=THEIRS)
    received = stack.receive(event("group", account=THEIRS))
    assert (received.result, received.kind) == (EventResult.IGNORED, "foreign account")
    assert "event_accounts" in received.message
    assert (stack.requested, stack.fenced) == ([], {})
    stack = Stack()
    stack.add("theirs", [GROUP], account=THEIRS, event_accounts=[THEIRS])
    assert stack.receive(event("group", account=THEIRS)).result is EventResult.RECORDED


def test_a_cluster_that_has_left_the_place_or_cannot_be_read_gets_no_event(stack: Stack) -> None:
    stored = stack.store.load("prod")
    access = {"kind": "auto-scaling", "region": "eu-west-1"}
    register(stack.store, "prod", stored.versions, flavours=["auto-scaling"], access=access)
    assert stack.receive(event("group")).result is EventResult.IGNORED
    assert (stack.requested, stack.fenced) == ([], {})


def user_agent() -> str:
    """Return the user agent that Evenkeel's clients send."""
    sent: list[str] = []

    def keep(request: AWSPreparedRequest, **_: Any) -> None:
        sent.append(request.headers["User-Agent"].decode())
        raise InterruptedError

    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = AwsSession().client("eks", config=RUNS, region_name=REGION, **keys)
    client.meta.events.register("before-send", keep)
    with pytest.raises(InterruptedError):
        client.list_clusters()
    return sent[0]


@pytest.mark.parametrize("name", ["UpdateAutoScalingGroup", "SetDesiredCapacity"])
def test_calls_of_evenkeel_itself_request_nothing(name: str) -> None:
    own = event("call")
    own["detail"] |= {"eventName": name, "userAgent": user_agent()}
    found = read_event(own, OURS)
    assert isinstance(found, Ignored)
    assert found.kind == "no failure"


@pytest.mark.parametrize("fields", [{"eventName": "CreateOrUpdateTags"}, {"errorCode": "ValidationException"}])
def test_calls_that_change_no_size_request_nothing(fields: dict[str, str]) -> None:
    given = event("call")
    given["detail"] |= fields
    assert isinstance(read_event(given, OURS), Ignored)


@pytest.mark.parametrize("fields", [{"StatusCode": "Cancelled"}, {"Origin": "EC2", "Destination": "WarmPool"}])
def test_a_launch_that_was_cancelled_or_goes_into_a_warm_pool_is_no_failure(fields: dict[str, str]) -> None:
    given = event("group")
    given["detail"] |= fields
    found = read_event(given, OURS)
    assert isinstance(found, Ignored)
    assert found.kind == "no failure"


def test_a_storm_of_changes_requests_one_run_per_interval(stack: Stack) -> None:
    for second in range(120):
        stack.clock.at = NOON + timedelta(seconds=second)
        given = event("terminate", id=f"event-{second}", time=stack.clock.at.isoformat())
        stack.receive(given)
    assert 1 <= len(stack.requested) <= 120 / RUNS_APART.total_seconds() + 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("stock", FailureClass.CAPACITY),
        ("type", FailureClass.CAPACITY),
        ("quota", FailureClass.QUOTA),
        ("configuration", FailureClass.CONFIGURATION),
        ("key", FailureClass.CONFIGURATION),
        ("security group", FailureClass.CONFIGURATION),
    ],
)
def test_an_event_has_the_class_that_a_check_reads_of_its_activity(kind: str, expected: FailureClass) -> None:
    zone = f"{REGION}a"
    cloud = Cloud(zones=[zone])
    api = AutoScaling(cloud, clock=VirtualClock(NOON - timedelta(minutes=1)))
    events: list[dict[str, Any]] = []
    api.log.listeners.append(events.append)
    if kind == "stock":
        cloud.exhaust_zone(zone)
    else:
        refuse(cloud, zone, kind)
    template = {"LaunchTemplateName": "web", "Version": "1"}
    sizes = {"MinSize": 0, "MaxSize": 3, "DesiredCapacity": 1}
    tag = {"Key": "evenkeel.dev/pool", "Value": "workers", "PropagateAtLaunch": False}
    api.create_auto_scaling_group(
        AutoScalingGroupName=GROUP, AvailabilityZones=[zone], LaunchTemplate=template, Tags=[tag], **sizes
    )
    api.clock.run(timedelta(minutes=1))
    stack = Stack()
    stack.add("prod", [GROUP])
    refused = next(one for one in events if one["detail-type"] == "EC2 Instance Launch Unsuccessful")
    stack.receive(refused)
    groups = api.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    activities = api.describe_scaling_activities(AutoScalingGroupName=GROUP)["Activities"]
    record = stack.store.load("prod").record
    (member,), _ = read_groups(groups, record, api.clock.now, Answers(activities={GROUP: activities}))
    (failed,) = [machine.failure for machine in member.group.machines or () if machine.failure]
    assert stack.store.load("prod").state.groups[member.group.key].failure.failure_class is expected
    assert classify(failed.code, failed.message) is expected


ACCOUNTS = ("", OURS, THEIRS, "333333333333")
REGIONS = (REGION, "us-east-1")
NAMES = ("a", "b", "web-a")
CLUSTERS = st.lists(
    st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(REGIONS), st.sets(st.sampled_from(NAMES))), max_size=5
)


@given(
    clusters=CLUSTERS,
    sender=st.sampled_from(ACCOUNTS[1:]),
    region=st.sampled_from(REGIONS),
    group=st.sampled_from(NAMES),
    name=st.sampled_from(["group", *CHANGES]),
)
def test_an_event_reaches_the_clusters_of_its_account_and_region_that_know_the_group(
    clusters: list[tuple[str, str, set[str]]], sender: str, region: str, group: str, name: str
) -> None:
    stack, owners = Stack(), []
    for number, (account, its_region, groups) in enumerate(clusters):
        id = f"cluster-{number}"
        stack.add(id, sorted(groups), account, its_region, event_accounts=[*ACCOUNTS[1:]])
        if (account or OURS, its_region) == (sender, region) and group in groups:
            owners.append(id)
    stack.receive(event(name, group, account=sender, region=region))
    assert sorted(stack.requested) == owners
    recorded = {owners[0]: {f"auto-scaling/{region}/{group}"}} if name == "group" and len(owners) == 1 else {}
    assert stack.fenced == recorded


def test_each_event_of_the_folder_names_its_group() -> None:
    kinds: dict[Report, int] = {}
    for path in EVENTS.glob("provisioning-failure-auto-scaling-*.json"):
        found = read_event(json.loads(path.read_text("utf-8")), OURS)
        assert isinstance(found, Failure), path.name
        assert (found.flavour, found.namespace, found.name) == ("auto-scaling", REGION, GROUP)
        kinds[found.reports] = kinds.get(found.reports, 0) + 1
    assert kinds == {Report.FAILURE: 1, Report.ARRIVAL: 1, Report.CHANGE: 3}
