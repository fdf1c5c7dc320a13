"""Failure and zone events on AWS endpoints: the template's rules pass them, the function receives each once."""

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto.events.models import EventPattern

from evenkeel.adapters.aws import sources
from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.rebalancing.events import Failure, Ignored, Report, ScaleRequestEvent
from evenkeel.bootstrap import SystemClock, container, use_clock
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.states import PoolState
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.template import Template
from sandbox.triggers import InProcess
from tests.fakes import FakeClock
from tests.integration import staging
from tests.integration.staging import function_of

EVENTS = {name: event for name, event in staging.EVENTS.items() if function_of(name) == "ProvisioningFailureFunction"}
#: just after the events of the folder
NOW = datetime(2026, 1, 15, 12, 1, tzinfo=UTC)
ORDERS = {"demand": "scale-up", "autoscaler": "none", "workload": {"access": {"kind": "same"}}}
CLUSTERS = {
    **{"demo-cluster-api": ("cluster-api", "demo"), "demo-openshift": ("openshift", "openshift-machine-api")},
    "demo-eks": ("auto-scaling", "eu-central-1"),
}
GROUPS = {
    "provisioning-failure-auto-scaling-group": "demo-eks-workers-eu-central-1a",
    "provisioning-failure-kubernetes-event": "demo-workers-eu-central-1a",
    "provisioning-failure-kubernetes-event-openshift": "demo-x7k2p-worker-eu-central-1a",
    "provisioning-failure": "demo-workers-eu-central-1a",
}


def cluster_of(event: str) -> str:
    """Return the cluster of an event of the folder, by its file's name."""
    if event.startswith("provisioning-failure-auto-scaling-"):
        return "demo-eks"
    return "demo-openshift" if "openshift" in event else "demo-cluster-api"


class Stage(staging.Stage):
    """Registered clusters that do not answer. Received events are in the table."""

    def __init__(self, deployment: Deployment, functions: InProcess, clock: FakeClock) -> None:
        super().__init__(deployment, functions)
        self.clock = clock
        register = staging.EVENTS["admin-register"]
        for cluster, (flavour, namespace) in CLUSTERS.items():
            record = {**register["record"], "flavours": [flavour], **ORDERS}
            if flavour == "auto-scaling":
                record |= {"access": {"kind": flavour, "region": namespace}, "demand": "off"}
                del record["workload"]
            answer = self.operator("register", cluster, record=record)
            assert answer["ok"], answer
            name = next(name for event, name in GROUPS.items() if cluster_of(event) == cluster)
            state = PoolState(adopted={str(GroupKey(flavour, namespace, name)): None})
            container().store.save_pool(cluster, PoolId(flavour, namespace, "", "workers"), state, None)
        self.checks()

    def receive(self, event: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("ProvisioningFailureFunction", event)
        return answer

    def fenced(self, cluster: str) -> list[str]:
        return [key.name for key in container().store.load(cluster).state.groups]

    def impaired(self, cluster: str) -> list[str]:
        zones = container().store.load(cluster).zones
        return [zone for zone, record in zones.items() if record.impaired_until > self.clock.at]


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    with aws.deploy(parameters={"DryRun": "false", "WithDashboard": "true"}) as made:
        yield made


@pytest.fixture
def stage(deployment: Deployment, functions: InProcess) -> Iterator[Stage]:
    clock = FakeClock(NOW)
    use_clock(clock)
    try:
        yield Stage(deployment, functions, clock)
    finally:
        use_clock(SystemClock())


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_handled_once_as_its_kind_says(stage: Stage, name: str) -> None:
    stage.clock.at = datetime.fromisoformat(EVENTS[name]["time"]) + timedelta(minutes=1)
    answer = stage.receive(EVENTS[name])
    assert stage.receive(EVENTS[name]) == answer
    event, result = read_event(EVENTS[name]), "recorded"
    cluster = cluster_of(name)
    checks = [cluster]
    if isinstance(event, Ignored):
        result, checks = "ignored", []
    elif isinstance(event, Failure):
        result = "recorded" if name in GROUPS else "requested"
        if event.reports is Report.ARRIVAL:
            result, checks = "known", []
        assert stage.fenced(cluster) == ([GROUPS[name]] if name in GROUPS else [])
    elif isinstance(event, ScaleRequestEvent):
        assert list(container().store.load(cluster).scale_requests) == [event.record.id]
    else:
        checks = sorted(CLUSTERS)  # all have the zone
        assert stage.impaired(cluster) == (["eu-central-1a"] if event.impaired else [])
    assert (answer["result"], stage.checks()) == (result, checks)


@pytest.mark.parametrize(
    "event",
    [
        *({}, [], "x", None),
        {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification"},
        {**EVENTS["provisioning-failure-cloudtrail-run-instances"], "account": "210987654321"},
        {**EVENTS["provisioning-failure-kubernetes-event"], "detail": [[[[{}]]]]},
        {**EVENTS["provisioning-failure"], "padding": "x" * 300_000},
        {**EVENTS["provisioning-failure"], "detail": {**EVENTS["provisioning-failure"]["detail"], "cluster": "other"}},
    ],
    ids=["empty", "list", "text", "null", "unknown", "foreign", "garbage", "300 KB", "unknown cluster"],
)
def test_an_invalid_event_is_acknowledged_counted_and_changes_nothing(
    stage: Stage, event: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = stage.receive(event)
    assert answer["result"] == "ignored"
    assert answer["message"]
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"EventsIgnored"' in line]
    assert [one["EventsIgnored"] for one in metrics] == [[1.0]]
    assert stage.checks() == []
    assert stage.fenced("demo-cluster-api") == []


@pytest.mark.parametrize("name", [name for name, one in EVENTS.items() if not one["source"].startswith("aws.")])
def test_events_of_ours_come_in_by_the_stacks_bus(stage: Stage, name: str) -> None:
    stage.put_event(EVENTS[name])
    cluster = cluster_of(name)
    for rule in stage.deployment.subscriptions:
        stage.triggers._poll_rule(rule)
    assert stage.checks() == [cluster]
    assert stage.triggers.failures == []


def test_the_rules_let_through_what_is_parsed_and_keep_out_what_is_ignored_on_purpose() -> None:
    """This uses moto's matcher of patterns: neither AWS nor an emulator accepts events of aws.* from a test."""
    events = Template().functions()["ProvisioningFailureFunction"].events.values()
    patterns = [EventPattern.load(json.dumps(one["Properties"]["Pattern"])) for one in events]

    def passes(event: dict[str, Any]) -> int:
        return sum(pattern.matches_event(event) for pattern in patterns)

    for name, event in EVENTS.items():
        assert passes(event) == (0 if isinstance(read_event(event), Ignored) else 1), name
    for source, kind in sources.ROWS:
        if source == "aws.arc-zonal-shift" and "CloudTrail" not in kind:
            event = {**EVENTS["provisioning-failure-zone-shift-started"], "detail-type": kind}
            assert passes(event) == (0 if isinstance(read_event(event), Ignored) else 1), kind
    launched = deepcopy(EVENTS["provisioning-failure-cloudtrail-run-instances"])
    del launched["detail"]["errorCode"]
    assert passes(launched) == 0  # each new machine would cost an event
    assert passes({**EVENTS["provisioning-failure-kubernetes-event"], "detail": {"type": "Normal"}}) == 0
