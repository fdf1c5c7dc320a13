"""The built artefact in Lambda's real runtime client, fed with the events that people are told to try."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from sandbox.aws import Deployment
from sandbox.kube.world import Cluster, World
from sandbox.lambda_runtime import HostBuild, RuntimeProcess
from tests.integration import staging
from tests.integration.staging import EVENTS, UNEVEN, function_of, patches


class Stage(staging.Stage):
    """A deployment, the cluster that the events speak of, and a process per function that has been called."""

    def __init__(self, twin: HostBuild, deployment: Deployment, cluster: Cluster, stack: ExitStack) -> None:
        super().__init__(deployment, self.invoke)
        self.cluster = cluster
        self.processes: dict[str, RuntimeProcess] = {}
        self._twin = twin
        self._stack = stack

    def invoke(self, function: str, event: Any) -> Any:
        if function not in self.processes:
            self.processes[function] = self._stack.enter_context(self._twin.process(self.deployment, function))
        return self.processes[function].invoke(event)

    def send(self, name: str, change: Callable[[Any], object] | None = None) -> Any:
        """The function that an event of events/ is for, called with it."""
        event = json.loads(json.dumps(EVENTS[name]))
        if change:
            change(event)
        return self.call(function_of(name), event)

    def switch_on(self) -> None:
        answer = self.send("admin-register", lambda event: event["record"].update(dry_run=False))
        assert answer["ok"], answer
        self.looks()  # registering asks for a first look by itself


@pytest.fixture
def stage(twin: HostBuild, deployment: Deployment) -> Iterator[Stage]:
    with ExitStack() as stack:
        world = World(clusters=["cluster-api"], pools=UNEVEN, clock=lambda: datetime.now(UTC), settings=None)
        cluster = stack.enter_context(world).clusters["cluster-api"]
        name = EVENTS["admin-register"]["record"]["access"]["secret"]
        secrets = deployment.aws.client("secretsmanager")
        secrets.create_secret(Name=name, SecretString=json.dumps(cluster.api.kubeconfig("evenkeel")))
        stack.callback(secrets.delete_secret, SecretId=name, ForceDeleteWithoutRecovery=True)
        yield Stage(twin, deployment, cluster, stack)


def test_every_function_has_an_event_to_try_it_with(deployment: Deployment) -> None:
    # A stack that has nobody told of trouble has no function for it, and one without a bucket none for the page.
    left_out = {"NotifyFunction", "StatusPageFunction"}
    assert {function_of(name) for name in EVENTS} - left_out == set(deployment.template.functions())


def test_the_events_lead_from_registration_over_a_scan_to_patches_and_a_status(stage: Stage) -> None:
    stage.switch_on()
    scanned = stage.send("scan-schedule")
    assert scanned["clusters"] == ["demo-cluster-api"]
    assert stage.chunks() == [["demo-cluster-api"]]
    assert stage.send("check") == {"batchItemFailures": []}
    assert stage.looks() == ["demo-cluster-api"]
    assert stage.send("rebalance") == {"batchItemFailures": []}
    assert patches(stage.cluster) > 0
    status = stage.send("widget-status")
    assert status["ok"]
    assert status["decisions"]
    maxima = [view.maximum for view in stage.cluster.groups()]
    assert sum(m for m in maxima if m is not None) == 12
    html = stage.send("widget")
    assert all(view.name in html for view in stage.cluster.groups())
    stage.looks()
    assert stage.send("scan-by-hand")["ok"]
    assert stage.send("check-run") == {"batchItemFailures": []}
    assert stage.looks() == ["demo-cluster-api"] * 2


def test_a_failure_event_is_answered_and_a_repeated_one_changes_nothing(stage: Stage) -> None:
    stage.switch_on()
    assert stage.send("rebalance") == {"batchItemFailures": []}  # what is written is known by name from now on
    now = datetime.now(UTC).isoformat()
    first = stage.send("provisioning-failure", lambda event: event["detail"].update(occurredAt=now))
    again = stage.send("provisioning-failure", lambda event: event["detail"].update(occurredAt=now))
    assert first == again
    assert stage.looks() == ["demo-cluster-api"]
    # The event as it stands in the file is long past: a late event must not start a backoff.
    stage.send("provisioning-failure", lambda event: event["detail"].update(id="another"))
    assert stage.send("rebalance") == {"batchItemFailures": []}
    states = {group["state"] for pool in stage.send("widget-plan")["plan"]["pools"] for group in pool["groups"]}
    assert states == {"healthy", "fenced"}
