"""The four functions as the template connects them: schedule, rules and queues lead to handlers and clusters."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws import queues as messages
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.fleet.check_times import Timer
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.world import World
from sandbox.triggers import InProcess
from tests.integration import staging
from tests.integration.staging import EVENTS, UNEVEN, function_of, patches


class Stage(staging.Stage):
    """Three clusters with kubeconfigs in Secrets Manager, registered through the operator function."""

    def __init__(self, world: World, deployment: Deployment, functions: InProcess, log: io.StringIO) -> None:
        super().__init__(deployment, functions)
        self.world = world
        self.log = log
        self.store = DynamoStore(deployment.aws.client("dynamodb"), deployment.table)
        self.decisions = deployment.listen({"source": ["evenkeel"]})

    def secret(self, name: str) -> str:
        return f"evenkeel/{self.deployment.stack}-{name}"

    def put_secret(self, name: str, text: str) -> None:
        """Replace the secret of the registered cluster."""
        self.deployment.aws.client("secretsmanager").put_secret_value(SecretId=self.secret(name), SecretString=text)

    def register(self, *names: str, **fields: Any) -> None:
        for name in names or tuple(self.world.clusters):
            self.register_cluster(name, self.world.clusters[name], **fields)
        self.take("RebalanceQueue")  # registering requests a first check

    def delayed(self, queue: str) -> int:
        name = "ApproximateNumberOfMessagesDelayed"
        url = self.deployment.physical(queue)
        return int(self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])

    def patches(self, name: str) -> int:
        return patches(self.world.clusters[name])

    def maxima(self, name: str) -> list[int | None]:
        """Return the published max per zone, from the MachineAutoscaler if it is the owner."""
        cluster = self.world.clusters[name]
        if name == "openshift":
            scalers = cluster.store.list("machineautoscalers.autoscaling.openshift.io")
            return [scaler["spec"]["maxReplicas"] for scaler in scalers]
        return [view.maximum for view in cluster.groups()]

    def published(self, cause: str = "") -> list[dict[str, Any]]:
        """Return the decision events up to the first that has this in its cause."""
        return self.receive(self.decisions, lambda event: cause in event["detail"].get("cause", ""))

    def fail(self, name: str, zone: str, **fields: Any) -> dict[str, Any]:
        """Let a launch in that zone fail, report it by an event, and return its detail."""
        return self.report_failure(name, self.world.clusters[name], zone, datetime.now(UTC), **fields)


@pytest.fixture
def staged(aws: AwsEndpoints) -> Iterator[Callable[..., Stage]]:
    """Yield a function that makes the test's stage, with the template's parameters."""
    with ExitStack() as stack:

        def made(dry_run: bool = False, clusters: tuple[str, ...] = tuple(UNEVEN), *, dashboard: bool = False) -> Stage:
            world = World(clusters=clusters, pools=UNEVEN, clock=lambda: datetime.now(UTC), settings=None)
            stack.enter_context(world)
            for name in set(clusters) & {"gardener"}:
                # Evenkeel also publishes a Worker's shares for an uneven pool, so one zone gets other bounds.
                cluster = world.clusters[name]
                resource = cluster.controllers.resource("machinedeployments")
                other = {"metadata": {"annotations": {FLAVOURS[name].max_key: "3"}}}
                cluster.store.patch(resource, cluster.namespace, cluster.groups()[1].name, other, manager="test")
            parameters = {"DryRun": str(dry_run).lower(), "WithDashboard": str(dashboard).lower()}
            deployment = stack.enter_context(aws.deploy(parameters=parameters))
            log = io.StringIO()
            functions = stack.enter_context(InProcess(deployment, log=log))
            use_clock(SystemClock())  # forgets the clients of the stack before this one
            return Stage(world, deployment, functions, log)

        yield made


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    return staged()


def test_a_tick_leads_to_patches_in_every_cluster_and_to_a_second_check(stage: Stage) -> None:
    stage.register()
    stage.triggers.tick()
    assert stage.triggers.drain() == 4, "a chunk of three, and the news of each"
    assert stage.triggers.failures == []
    for name in UNEVEN:
        assert stage.patches(name) > 0, name
        assert sum(maximum or 0 for maximum in stage.maxima(name)) == 12, name
        assert stage.operator("status", name)["decisions"], name
    assert stage.delayed("ChecksQueue") == 3
    assert {event["detail-type"] for event in stage.published()} == {"Node Groups Rebalanced"}


def test_second_checks_come_through_the_check_function_until_nothing_is_to_do(stage: Stage) -> None:
    stage.register("cluster-api")
    stage.check()
    counts = [stage.patches("cluster-api")]
    for _ in range(3):
        body = json.dumps({"cluster": "cluster-api", "reason": "second check after a write"})
        stage.sqs.send_message(QueueUrl=stage.deployment.physical("ChecksQueue"), MessageBody=body)
        assert stage.triggers.drain() == 2  # the message of the checks queue, and the one that it leads to
        counts.append(stage.patches("cluster-api"))
    assert counts[-1] == counts[-2]
    assert "cluster-api: nothing to write" in stage.log.getvalue()


def test_a_quiet_cluster_is_checked_and_nothing_else_happens(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # Once in ten minutes, a full check requests the run that stores the settled state.
    monkeypatch.setattr("evenkeel.application.rebalancing.check.is_full_check", lambda *_, **__: False)
    stage.register("cluster-api")
    stage.check()
    stage.store.save_timer("cluster-api", Timer(due=datetime.now(UTC)), stage.store.load("cluster-api").versions)
    stage.sqs.purge_queue(QueueUrl=stage.deployment.physical("ChecksQueue"))  # a delayed check, due while this runs
    logged, patches = len(stage.log.getvalue()), stage.patches("cluster-api")
    for _ in range(3):
        stage.triggers.tick()
        assert stage.triggers.drain() == 1, "a chunk"
    assert (stage.patches("cluster-api"), stage.triggers.failures) == (patches, [])
    lines = stage.log.getvalue()[logged:].splitlines()
    assert [line for line in lines if '"_aws"' not in line] == [], "no line but the metrics of a tick"


def test_the_check_function_writes_nothing(stage: Stage) -> None:
    stage.register("cluster-api")
    stage.triggers.tick()
    (chunk,) = stage.take("ChecksQueue")
    record = EVENTS["check"]["Records"][0] | {"body": chunk["Body"]}
    before = stage.store.load("cluster-api").versions
    assert stage.call("CheckFunction", {"Records": [record]}) == {"batchItemFailures": []}
    assert (stage.patches("cluster-api"), stage.store.load("cluster-api").versions) == (0, before)
    (news,) = stage.take("RebalanceQueue")
    assert json.loads(news["Body"])["cluster"] == "cluster-api"


@pytest.mark.parametrize(
    "body", [{"cluster": "cluster-api", "reason": "a check is due"}, {"clusters": ["cluster-api"]}]
)
def test_a_request_with_a_wait_is_sent_again_with_a_delay(stage: Stage, body: dict[str, Any]) -> None:
    stage.register("cluster-api")
    delayed = stage.delayed("ChecksQueue")
    record = EVENTS["check"]["Records"][0] | {"body": json.dumps({**body, "wait": 300})}
    assert stage.call("CheckFunction", {"Records": [record]}) == {"batchItemFailures": []}
    assert stage.delayed("ChecksQueue") == delayed + 1
    assert stage.take("RebalanceQueue") == [], "neither a check nor a run"


def test_a_chunk_that_comes_back_is_taken_apart_and_poison_is_a_dead_letter(stage: Stage) -> None:
    record = EVENTS["check"]["Records"][0]
    second, again = (
        {**record, "attributes": {**record["attributes"], "ApproximateReceiveCount": count}} for count in ("2", "3")
    )
    chunk = {**again, "body": json.dumps({"clusters": ["one", "two"]})}
    assert stage.call("CheckFunction", {"Records": [{**second, "body": chunk["body"]}]}) == {"batchItemFailures": []}
    assert stage.take("ChecksQueue") == [], "the second delivery may be Lambda's own retry"
    poison = ({**record, "body": body} for body in ("garbage", '{"clusters": []}', '{"clusters": ["../../passwd"]}'))
    for message in (chunk, *poison):
        assert stage.call("CheckFunction", {"Records": [message]}) == {"batchItemFailures": []}
    chunks = sorted(json.loads(message["Body"])["clusters"] for message in stage.take("ChecksQueue"))
    assert chunks == [["one"], ["two"]]
    assert len(stage.take("DeadLetters")) == 3


def test_a_tick_that_is_delivered_twice_leads_to_one_run(stage: Stage) -> None:
    stage.register("cluster-api")
    at = datetime.now(UTC)
    stage.triggers.tick(at)
    stage.triggers.tick(at)
    # Two checks and one run. A second run, if the checks are in two stretches of time, finds nothing to write.
    assert stage.triggers.drain() in (3, 4)
    assert len(stage.published()) == 1


@pytest.mark.parametrize("name", list(UNEVEN))
def test_nodes_that_an_event_asks_for_twice_are_added_once_to_the_smallest_zones(stage: Stage, name: str) -> None:
    stage.register(name)
    stage.check()
    groups = {view.zone: view.name for view in stage.world.clusters[name].groups()}
    only = [groups["eu-central-1b"], groups["eu-central-1c"]]
    request = {"source": "evenkeel.provisioning", "detail-type": "Scale-Up Requested", "detail": {"cluster": name}}
    for _ in range(2):
        stage.put_event(request, group=groups["eu-central-1a"], nodes=3, only=only, id="batch")
        stage.triggers.drain()
        assert stage.store.load(name).scale_requests["batch"].done
    assert stage.triggers.failures == []
    first, *others = (view.requested for view in stage.world.clusters[name].groups())
    assert (first, sorted(others)) == (4, [2, 3])
    stage.put_event(request, pool="unknown", nodes=1, id="lost")
    stage.triggers.drain()
    assert "no pool here has the name" in stage.store.load(name).scale_requests["lost"].result


@pytest.mark.parametrize("name", list(UNEVEN))
def test_a_failure_event_fences_its_group_within_one_message(stage: Stage, name: str) -> None:
    stage.register(name)
    stage.check()
    attack = {"endpoint": "https://attacker.example", "access": {"kind": "kubeconfig", "secret": "evenkeel/other"}}
    detail = stage.fail(name, "eu-central-1b", **attack, server="https://attacker.example", token="mine")
    stage.triggers.drain()
    assert stage.triggers.failures == []
    stored = stage.store.load(name)
    group, *_ = stored.state.groups.values()
    assert (group.failure.failures, group.failure.failure_class.value) == (1, "capacity")
    views = {view.zone: view for view in stage.world.clusters[name].groups()}
    index = sorted(views).index("eu-central-1b")
    assert stage.maxima(name)[index] == max(1 if name == "openshift" else 0, views["eu-central-1b"].requested)
    cause = f"provisioning failure {detail['code']}"
    events = [event["detail"] for event in stage.published(cause) if event["detail"].get("cause") == cause]
    states = {group["zone"]: group["state"] for event in events for group in event["pool"]["groups"]}
    assert states == {"eu-central-1a": "healthy", "eu-central-1b": "fenced", "eu-central-1c": "healthy"}
    # An event cannot contain an endpoint or a credential.
    assert stored.record.access.model_dump()["secret"] == stage.secret(name)
    assert "attacker" not in stage.log.getvalue()


POISON = {
    "no JSON": "garbage",
    "nested garbage": "[" * 20_000,
    "deep objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "250 KB": "x" * 250_000,
    "no cluster": "{}",
    "a path": '{"cluster": "../../etc/passwd", "reason": "x"}',
    "another type": '{"cluster": ["a"], "reason": 1}',
    "what nobody can find": '{"cluster": "cluster-api", "reason": "x", "found": "gold"}',
    "a cluster that nobody registered": '{"cluster": "nobody", "reason": "x"}',
}


def test_poison_is_a_dead_letter_with_its_reason_at_once_and_delays_no_message(staged: Callable[..., Stage]) -> None:
    stage = staged(clusters=("cluster-api",))
    stage.register("cluster-api")
    url = stage.deployment.physical("RebalanceQueue")
    bodies = [*POISON.values(), json.dumps({"cluster": "cluster-api", "reason": "after all of them"})]
    for number, body in enumerate(bodies):
        stage.sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId="cluster-api", MessageDeduplicationId=str(number)
        )
    assert stage.triggers.drain() == len(bodies)
    assert stage.triggers.failures == []
    assert stage.patches("cluster-api") > 0
    dead = stage.take("DeadLetters")
    assert [message["Body"] for message in dead] == [body[:200_000] for body in POISON.values()]
    for message in dead:
        reason = message["MessageAttributes"]["reason"]["StringValue"]
        assert 10 < len(reason) < 1000
        assert "\n" not in reason
    assert "Traceback" not in stage.log.getvalue()


def deep(levels: int) -> Any:
    found: Any = "bottom"
    for _ in range(levels):
        found = {"a": [found]}
    return found


class TestOneClusterIsNotAnother:
    @pytest.mark.parametrize("incident", ["secret", "endpoint", "record", "slow server", "rights", "lease"])
    def test_a_broken_cluster_does_not_delay_another(self, stage: Stage, incident: str) -> None:
        stage.register()
        broken = stage.world.clusters["gardener"].api
        if incident == "secret":
            stage.put_secret("gardener", '{"users": "none"}')
        elif incident == "endpoint":
            config = broken.kubeconfig("evenkeel")
            config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
            stage.put_secret("gardener", json.dumps(config))
        elif incident == "record":
            stage.deployment.aws.client("dynamodb").update_item(
                TableName=stage.deployment.table,
                Key={"pk": {"S": "CLUSTER#gardener"}, "sk": {"S": "META"}},
                UpdateExpression="SET #record = :garbage",
                ExpressionAttributeNames={"#record": "record"},
                ExpressionAttributeValues={":garbage": {"S": '{"id": "gardener", "flavours": ["mesos"]}'}},
            )
        elif incident == "slow server":
            broken.faults.add(status=503, retry_after=300, times=100)
        elif incident == "rights":
            stage.put_secret("gardener", json.dumps(broken.kubeconfig("nobody")))
        else:
            now = datetime.now(UTC)
            stage.store.take_lease("gardener", "another run", 0, now, now + timedelta(minutes=5))
        stage.check()
        assert stage.patches("gardener") == 0
        for name in ("cluster-api", "openshift"):
            assert sum(maximum or 0 for maximum in stage.maxima(name)) == 12
        if incident == "lease":  # tried as often as the queue says, then in the dead-letter queue
            (dead,) = stage.take("DeadLetters")
            assert json.loads(dead["Body"])["cluster"] == "gardener"
        else:
            assert stage.take("DeadLetters") == []
            assert "gardener" in stage.log.getvalue()
        assert "Traceback" not in stage.log.getvalue()

    def test_a_failed_run_holds_up_its_cluster_for_seconds_and_not_for_the_visibility_timeout(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def receive() -> Any:
            url = stage.deployment.physical("RebalanceQueue")
            (message,) = stage.sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])["Messages"]
            return message

        stage.register("cluster-api")
        now = datetime.now(UTC)
        stage.store.take_lease("cluster-api", "another run", 0, now, now + timedelta(minutes=5))
        stage.call("ScanFunction", {"clusters": ["cluster-api"]})
        monkeypatch.setattr(messages, "_TRY_AGAIN_SECONDS", 0)  # seconds that this test does not wait for
        first = receive()
        names = ("MessageId", "ReceiptHandle", "Body", "Attributes")
        record = EVENTS["rebalance"]["Records"][0] | {name[0].lower() + name[1:]: first[name] for name in names}
        answer = stage.call("RebalanceFunction", {"Records": [record]})
        assert answer == {"batchItemFailures": [{"itemIdentifier": first["MessageId"]}]}
        again = receive()
        assert again["MessageId"] == first["MessageId"]
        assert again["Attributes"]["ApproximateReceiveCount"] == "2"

    def test_a_renewed_token_in_the_secret_is_taken_up_without_a_new_function(self, stage: Stage) -> None:
        stage.register("cluster-api")
        stage.triggers.tick(datetime.now(UTC))
        stage.triggers.drain()
        cluster = stage.world.clusters["cluster-api"]
        cluster.api.renew_token("evenkeel")
        stage.put_secret("cluster-api", json.dumps(cluster.api.kubeconfig("evenkeel")))
        answer = stage.operator("plan", "cluster-api")
        assert answer["ok"], answer


def metric_lines(stage: Stage) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stage.log.getvalue().splitlines() if '"_aws"' in line]


def sent(stage: Stage) -> set[str]:
    """Return the metrics that CloudWatch takes from the log, and bills."""
    directives = [directive for line in metric_lines(stage) for directive in line["_aws"]["CloudWatchMetrics"]]
    return {metric["Name"] for directive in directives for metric in directive["Metrics"]}


def test_metrics_have_one_dimension_so_that_the_bill_stays_flat(staged: Callable[..., Stage]) -> None:
    stage = staged(dashboard=True)
    stage.register()
    stage.check()
    directives = [directive for line in metric_lines(stage) for directive in line["_aws"]["CloudWatchMetrics"]]
    assert {(directive["Namespace"], str(directive["Dimensions"])) for directive in directives} == {
        ("Evenkeel", "[['service']]")
    }
    assert sent(stage) >= {"ClustersScanned", "ClustersChecked", "PatchesWritten", "Imbalance", "Headroom"}


def test_without_a_dashboard_metrics_without_an_alarm_are_only_in_the_log(stage: Stage) -> None:
    stage.register()
    stage.check()
    assert sent(stage) == set()
    lines = [json.loads(line) for line in stage.log.getvalue().splitlines() if '"counts"' in line]
    assert {line["message"]: line["counts"]["PatchesWritten"] for line in lines} == {
        "cluster-api: 2 patches written, 0 conflicts": 2,
        "gardener: 1 patches written, 0 conflicts": 1,
        "openshift: 2 patches written, 0 conflicts": 2,
    }
    assert all(0 not in line["counts"].values() for line in lines)


def test_every_event_of_the_events_folder_is_answered(staged: Callable[..., Stage]) -> None:
    stage = staged(clusters=())
    optional = {name for name in EVENTS if function_of(name) not in stage.deployment.template.functions()}
    assert optional == {"notify", "status-page-schedule"}  # they have their own tests
    for name in sorted(EVENTS.keys() - optional):
        answer = stage.call(function_of(name), EVENTS[name])
        text = answer if isinstance(answer, str) else answer.get("message", answer.get("batchItemFailures"))
        assert text is not None, name
        assert "Traceback" not in stage.log.getvalue(), name
