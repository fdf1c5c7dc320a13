"""The manifests and roles grant exactly the requests that the functions send to a cluster and to AWS."""

import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import ACTIONS, right_needed
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel_cli.stack_client import _FUNCTIONS
from sandbox.admission import FILE, AdmissionWatch
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.demo.node_groups import EksCluster
from sandbox.kube.access import Rule
from sandbox.kube.world import Pool, World
from sandbox.permissions import Permissions, Request, request_of, requests_of
from sandbox.triggers import Triggers
from tests.fakes import FakeClock
from tests.integration import staging
from tests.integration.staging import EVENTS, put_kubeconfig
from tests.recorded_requests import Recorded

ROLE = next(d for d in yaml.safe_load_all((FILE.parent / "rbac.yaml").read_text()) if d["kind"] == "ClusterRole")
ZONE = "eu-central-1a"


@pytest.fixture(autouse=True, scope="module")
def _bucket_of_pages(aws: AwsEndpoints) -> Iterator[None]:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="pages", CreateBucketConfiguration={"LocationConstraint": aws.region})
    yield
    for found in s3.list_objects_v2(Bucket="pages").get("Contents", []):
        s3.delete_object(Bucket="pages", Key=found["Key"])
    s3.delete_bucket(Bucket="pages")


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    """Yield a stack with the prefix of the tests' secrets, and with the page."""
    with aws.deploy(parameters={"DryRun": "false", "SecretPrefix": "evenkeel/", "PageBucket": "pages"}) as made:
        yield made


@pytest.fixture
def functions(deployment: Deployment) -> Iterator[Recorded]:
    """Yield the handlers; their requests to AWS are recorded."""
    with Recorded(deployment, log=io.StringIO()) as handlers:
        yield handlers


class Stage(staging.Stage):
    """Three clusters that Evenkeel reaches as the user of rbac.yaml, with the admission policy."""

    def __init__(self, world: World, clock: FakeClock, deployment: Deployment, functions: Recorded) -> None:
        super().__init__(deployment, functions)
        self.world = world
        self.clock = clock
        self.functions = functions
        self.watches = {name: AdmissionWatch(cluster.api) for name, cluster in world.clusters.items()}
        for name, cluster in world.clusters.items():
            self.register_cluster(name, cluster, dry_run=False)

    def fail(self, cluster: str) -> None:
        """Put the event on the bus that an exporter in the cluster sends when ZONE has no machines."""
        self.report_failure(cluster, self.world.clusters[cluster], ZONE, self.clock.now())

    def pass_minutes(self, minutes: int) -> None:
        """Play autoscalers and controllers every ten seconds, and a scan every minute."""
        for _ in range(minutes):
            for _ in range(6):
                self.clock.sleep(10)
                self.world.step(self.clock.now())
            self.triggers.tick(self.clock.now())
            self.triggers.drain()


@pytest.fixture
def stage(deployment: Deployment, functions: Recorded) -> Iterator[Stage]:
    clock = FakeClock(datetime.now(UTC))
    with World(clock=clock.now, users={"evenkeel": Rule.of_role(ROLE)}) as world:
        use_clock(clock)
        try:
            yield Stage(world, clock, deployment, functions)
        finally:
            use_clock(SystemClock())


def test_growth_an_outage_the_recovery_and_leaving_need_nothing_beyond_the_manifests(stage: Stage) -> None:
    pools = {"gardener": "main", "cluster-api": "workers", "openshift": "worker"}
    for cluster, pool in pools.items():
        stage.world.set_demand(cluster, pool, 6)
    stage.pass_minutes(2)
    for cluster, pool in pools.items():
        stage.world.exhaust_zone(cluster, ZONE)
        stage.world.set_demand(cluster, pool, 11)
    stage.pass_minutes(1)
    for cluster in pools:
        stage.fail(cluster)
    stage.pass_minutes(2)
    for cluster in pools:
        stage.world.restore_zone(cluster, ZONE)
    stage.pass_minutes(6)  # the first backoff lasts five
    for cluster in pools:
        assert stage.operator("restore", cluster)["ok"]
    stage.pass_minutes(1)

    for name, watch in stage.watches.items():
        assert watch.refused == [], name
        denied = [r for r in stage.world.clusters[name].api.requests if r.user == "evenkeel" and r.status in (401, 403)]
        assert denied == [], name
    assert stage.triggers.failures == []
    assert stage.functions.refused() == []
    judged = {name: set(watch.judged) for name, watch in stage.watches.items()}
    assert judged["gardener"] >= {"machinedeployments", "machines"}
    assert judged["cluster-api"] >= {"machinedeployments", "machines"}
    assert judged["openshift"] >= {"machinesets", "machineautoscalers", "machines"}


def test_every_action_and_every_kind_of_event_needs_nothing_beyond_the_roles(stage: Stage) -> None:
    cluster, until = "cluster-api", (stage.clock.at + timedelta(hours=1)).isoformat()
    stage.pass_minutes(1)
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("pause", {"pool": "workers", "by": "jane"}), ("resume", {"pool": "workers"}), ("pause", {}), ("resume", {})),
        *(("fence-zone", {"zone": ZONE, "until": until}), ("validate", {"apply": True})),
        *(("scale-up", {"pool": "workers", "nodes": 1}), ("scale-down", {"pool": "workers", "nodes": 1})),
        ("level", {"pool": "workers", "dry_run": True}),
    ]
    reads: list[tuple[str, dict[str, Any]]] = [
        *(("status", {}), ("plan", {}), ("explain", {"pool": "workers"}), ("validate", {"fix": True}), ("record", {})),
        *(("readiness", {"live": True}), ("history", {})),
    ]
    for action, fields in asked + reads:
        on_duty = right_needed({"action": action, **fields}) is Right.WRITE
        function = "OperatorFunction" if on_duty else "AdminFunction"
        answer = stage.functions(function, {"action": action, "cluster": cluster, **fields})
        assert answer["ok"], answer
        stage.clock.sleep(1)
    record = {
        "records": {cluster: {"access": put_kubeconfig(stage.deployment, "again", stage.world.clusters[cluster])}}
    }
    record["records"][cluster] |= {"flavours": [cluster], "dry_run": False, "region": "eu-central-1"}
    for fields in ({**record, "list": True}, record):
        (reported,) = stage.functions("AdminFunction", {"action": "apply", **fields})["clusters"]
        assert (reported["ok"], reported.get("faults", [])) == (True, []), reported
    fence: dict[str, Any] = {"zone_id": "euc1-az2", "for": "1h", "clusters": [cluster]}
    for more in ({"list": True}, {}):
        (reported,) = stage.functions("AdminFunction", {"action": "fence-zone", **fence, **more})["clusters"]
        assert "zone eu-central-1" in reported["message"], reported
    for action, fields in (*reads, ("export", {})):
        answer = stage.functions("WidgetFunction", {"action": action, "cluster": cluster, **fields})
        assert answer["ok"], answer
    stage.functions("WidgetFunction", {"widgetContext": {}})
    assert stage.functions("StatusPageFunction", EVENTS["status-page-schedule"])["ok"]
    stage.functions("ScanFunction", {"clusters": [cluster]})
    stage.functions("CheckFunction", EVENTS["check-run"])
    account = stage.deployment.aws.account
    for name, event in EVENTS.items():
        if name.startswith("provisioning-failure"):
            detail = {**event["detail"], "cluster": cluster} if "cluster" in event["detail"] else event["detail"]
            stage.functions("ProvisioningFailureFunction", {**event, "account": account, "detail": detail})
    stage.fail(cluster)
    stage.pass_minutes(2)
    assert stage.operator("restore", cluster)["ok"]
    stage.pass_minutes(2)
    assert stage.operator("unregister", cluster)["ok"]
    stage.triggers.drain()
    assert set(stage.functions.sent) == set(stage.deployment.template.functions())
    assert stage.functions.refused() == []


def test_drills_need_nothing_beyond_the_roles(stage: Stage) -> None:
    cluster, who = "cluster-api", {"by": "jane", "reason": "a rehearsal"}
    drill = {"action": "drill", "cluster": cluster}
    stage.world.set_demand(cluster, "workers", 6)
    stage.pass_minutes(4)
    for how in ("aborted", "time"):
        for more in ({"dry_run": True}, {"for": "5m"}):
            answer = stage.functions("OperatorFunction", {**drill, "zone": ZONE, **who, **more})
            assert answer["ok"], answer
        stage.pass_minutes(1)
        if how == "time":  # pods appear while the zone is fenced
            stage.world.set_demand(cluster, "workers", 9)
        stage.pass_minutes(2)
        assert stage.functions("WidgetFunction", drill)["drill"]["state"] == "open"
        if how == "aborted":
            assert stage.functions("OperatorFunction", {**drill, "abort": True, "by": "bob"})["ok"]
        stage.pass_minutes(5)
        report = stage.functions("WidgetFunction", drill)["drill"]
        assert (report["state"], report["ended"]["why"]) == ("ended", how)
        assert ZONE not in report["measured"]["ordered"]
        assert sum(report["measured"]["ordered"].values()) == (3 if how == "time" else 0)
    _, *actions = stage.functions("WidgetFunction", {"action": "history", "cluster": cluster})["actions"]
    assert [entry["cause"] for entry in actions] == ["drill", "drill", "drill-ended", "drill", "drill-ended"]
    assert stage.watches[cluster].refused == []
    assert stage.triggers.failures == []
    assert stage.functions.refused() == []


# ------------------------------------------------------------ the function that receives events
META = {"pk": {"S": "CLUSTER#blue"}, "sk": {"S": "META"}}
CONTROL = {"pk": {"S": "CLUSTER#blue"}, "sk": {"S": "META#CONTROL"}}
DRILL = {"pk": {"S": "CLUSTER#blue"}, "sk": {"S": "ZONE-DRILL"}}
GROUP = {"pk": {"S": "CLUSTER#blue"}, "sk": {"S": "GROUP#cluster-api/ns/a"}}
ONCE = {"pk": {"S": "IDEMPOTENCY#provisioning_failure"}, "sk": {"S": "f#1"}}
FORGED: dict[str, tuple[str, dict[str, Any]]] = {
    "replacing a record": ("PutItem", {"Item": {**META, "record": {"S": "{}"}, "version": {"N": "2"}}}),
    "replacing a record by nothing but state": ("PutItem", {"Item": {**META, "state": {"S": "{}"}}}),
    "removing a record": ("DeleteItem", {"Key": META}),
    **{
        update: ("UpdateItem", {"Key": META, "UpdateExpression": update})
        for update in (
            *("SET record = :r", "SET state = :s, record = :r", "REMOVE record", "ADD version :one", "REMOVE due"),
            "SET expires_at = :e",
        )
    },
    "changing a record under another name": (
        "UpdateItem",
        {"Key": META, "UpdateExpression": "SET #a = :r", "ExpressionAttributeNames": {"#a": "record"}},
    ),
    "a drill": ("UpdateItem", {"Key": DRILL, "UpdateExpression": "SET record = :r"}),
    "a drill, whole": ("PutItem", {"Item": {**DRILL, "record": {"S": "{}"}}}),
    "a control": ("UpdateItem", {"Key": CONTROL, "UpdateExpression": "SET record = :r"}),
    "a control, whole": ("PutItem", {"Item": {**CONTROL, "record": {"S": "{}"}}}),
    "a condition on a record": (
        "UpdateItem",
        {"Key": GROUP, "UpdateExpression": "SET state = :s", "ConditionExpression": "version = :v"},
    ),
    "removing a group": ("DeleteItem", {"Key": GROUP}),
    **{
        f"events of {owner}": ("PutItem", {"Item": {"pk": {"S": f"IDEMPOTENCY#{owner}"}, "sk": {"S": "x"}}})
        for owner in ("other", "provisioning_failure2")
    },
}


@pytest.mark.parametrize("what", FORGED)
def test_the_event_function_may_not_write_what_people_and_the_worker_write(deployment: Deployment, what: str) -> None:
    operation, params = FORGED[what]
    request = request_of(deployment, "dynamodb", operation, {"TableName": deployment.table, **params})
    assert not Permissions(deployment, "ProvisioningFailureFunction").allows(request), request


def test_the_event_function_may_write_what_events_lead_to(deployment: Deployment) -> None:
    names = {"ExpressionAttributeNames": {"#s": "state"}}
    absent = "attribute_not_exists(pk) AND attribute_not_exists(revision)"
    new = {"UpdateExpression": "SET #s = :s, revision = :r REMOVE kept_until", "ConditionExpression": absent}
    known = {"UpdateExpression": "SET #s = :s, revision = :r, kept_until = :e", "ConditionExpression": "revision = :v"}
    for operation, params in (
        ("UpdateItem", {"Key": GROUP, **known, **names}),
        ("UpdateItem", {"Key": GROUP, **new, **names}),
        ("PutItem", {"Item": {**ONCE, "expires_at": {"N": "1"}, "status": {"S": "INPROGRESS"}}}),
        ("UpdateItem", {"Key": ONCE, "UpdateExpression": "SET data = :d"}),
        ("DeleteItem", {"Key": ONCE}),
        ("GetItem", {"Key": ONCE}),
    ):
        request = request_of(deployment, "dynamodb", operation, {"TableName": deployment.table, **params})
        assert Permissions(deployment, "ProvisioningFailureFunction").allows(request), request


def test_what_that_function_could_add_to_a_record_is_never_read(stage: Stage) -> None:
    key = {"pk": {"S": "CLUSTER#cluster-api"}, "sk": {"S": "META"}}
    before = stage.operator("status", "cluster-api")
    call = {
        "TableName": stage.deployment.table,
        "Key": key,
        "UpdateExpression": "SET #s = :s, revision = :r",
        "ExpressionAttributeNames": {"#s": "state"},
        "ExpressionAttributeValues": {":s": {"S": '{"paused": true}'}, ":r": {"N": "999"}},
    }
    assert Permissions(stage.deployment, "ProvisioningFailureFunction").allows(
        request_of(stage.deployment, "dynamodb", "UpdateItem", call)
    )
    stage.deployment.aws.client("dynamodb").update_item(**call)
    after = stage.operator("status", "cluster-api")
    assert {**after, "now": None} == {**before, "now": None}
    assert stage.operator("pause", "cluster-api")["ok"]  # and its version is still the valid one


def test_the_worker_deletes_on_the_version_of_an_events_item_and_the_admin_items_of_a_cluster(
    deployment: Deployment,
) -> None:
    def may_delete(function: str, key: dict[str, Any], condition: str = "") -> bool:
        params = {"TableName": deployment.table, "Key": key}
        params |= {"ConditionExpression": condition} if condition else {}
        return Permissions(deployment, function).allows(request_of(deployment, "dynamodb", "DeleteItem", params))

    assert may_delete("RebalanceFunction", GROUP, "revision = :v")
    for key, condition in ((GROUP, ""), (META, ""), (META, "version = :v")):
        assert not may_delete("RebalanceFunction", key, condition)
    due = {"pk": {"S": "DUE#7"}, "sk": {"S": "CLUSTER#blue"}}
    shared = [{"pk": {"S": pk}, "sk": {"S": "x"}} for pk in ("CHECKED", "HEALTH_BY_CLUSTER", "NAME#blue")]
    for key, expected in ((META, True), (CONTROL, True), (due, True), *((key, False) for key in (ONCE, *shared))):
        assert may_delete("AdminFunction", key) is expected, key


def test_secrets_of_another_stack_are_not_read(deployment: Deployment) -> None:
    for function in ("RebalanceFunction", "AdminFunction", "WidgetFunction"):
        allowed = Permissions(deployment, function).allows
        assert allowed(request_of(deployment, "secretsmanager", "GetSecretValue", {"SecretId": "evenkeel/blue"}))
        assert not allowed(request_of(deployment, "secretsmanager", "GetSecretValue", {"SecretId": "evenkeel-2/blue"}))
        assert allowed(request_of(deployment, "eks", "DescribeCluster", {"name": "blue"}))
        assert not allowed(Request("eks:DescribeCluster", "arn:aws:eks:eu-central-1:210987654321:cluster/blue"))


CHECKING = ["CheckFunction", "AdminFunction", "WidgetFunction"]
OF_POOL = "aws:ResourceTag/evenkeel.dev/pool"
MIXED = {"LaunchTemplate": {"Overrides": [{"InstanceType": "m5.large"}]}}
RESERVED = {"CapacityReservationTarget": {"CapacityReservationIds": ["cr-1"]}}
BOUNDS = {"AutoScalingGroupName": "workers-a", "MinSize": 1, "MaxSize": 3}


@pytest.mark.parametrize(
    ("operation", "params", "allowed"),
    [
        ("UpdateAutoScalingGroup", BOUNDS, True),
        ("UpdateAutoScalingGroup", {"AutoScalingGroupName": "workers-a", "MinSize": 1}, True),
        ("UpdateAutoScalingGroup", {"AutoScalingGroupName": "workers-a", "MaxSize": 3}, False),
        ("UpdateAutoScalingGroup", {**BOUNDS, "LaunchConfigurationName": "other"}, False),
        ("UpdateAutoScalingGroup", {**BOUNDS, "VPCZoneIdentifier": "subnet-1,subnet-2"}, False),
        ("UpdateAutoScalingGroup", {**BOUNDS, "LaunchTemplate": {"LaunchTemplateName": "other"}}, False),
        ("UpdateAutoScalingGroup", {**BOUNDS, "MixedInstancesPolicy": MIXED}, False),
        ("UpdateAutoScalingGroup", {**BOUNDS, "CapacityReservationSpecification": RESERVED}, False),
        ("SetDesiredCapacity", {"AutoScalingGroupName": "workers-a", "DesiredCapacity": 2}, True),
        ("TerminateInstanceInAutoScalingGroup", {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": True}, True),
        ("CreateOrUpdateTags", {"Tags": [{"ResourceId": "workers-a", "Key": "evenkeel.dev/decision"}]}, True),
        ("DeleteTags", {"Tags": [{"ResourceId": "workers-a", "Key": "evenkeel.dev/adopted-bounds"}]}, True),
        ("CreateOrUpdateTags", {"Tags": [{"ResourceId": "workers-a", "Key": "evenkeel.dev/pool"}]}, False),
        ("CreateOrUpdateTags", {"Tags": [{"ResourceId": "workers-a", "Key": "team"}]}, False),
        ("DeleteAutoScalingGroup", {"AutoScalingGroupName": "workers-a"}, False),
        ("StartInstanceRefresh", {"AutoScalingGroupName": "workers-a"}, False),
    ],
)
def test_only_the_worker_writes_auto_scaling_groups_and_only_those_of_a_pool(
    aws: AwsEndpoints, deployment: Deployment, operation: str, params: dict[str, Any], allowed: bool
) -> None:
    request = request_of(deployment, "autoscaling", operation, params)
    without_tag = replace(request, keys={key: value for key, value in request.keys.items() if key != OF_POOL})
    foreign = replace(request, resource=request.resource.replace(aws.account, "210987654321"))
    permissions = {name: Permissions(deployment, name) for name in ("RebalanceFunction", *CHECKING)}
    assert permissions["RebalanceFunction"].allows(request) is allowed
    assert not permissions["RebalanceFunction"].allows(without_tag)
    assert not permissions["RebalanceFunction"].allows(foreign)
    assert not any(permissions[name].allows(request) for name in CHECKING)


def test_an_outage_of_an_eks_cluster_its_recovery_and_leaving_need_nothing_beyond_the_roles(
    deployment: Deployment, functions: Recorded
) -> None:
    clock = FakeClock(datetime.now(UTC))
    use_clock(clock)
    triggers = Triggers(deployment, functions)
    with EksCluster("eks", Pool(name="workers", minimum=3, maximum=12), clock.now()) as cluster:
        access = {"kind": "auto-scaling", "region": "eu-central-1"}
        level = {"level": "converge", "converge": {"blind": True}}
        record = {"access": access, "autoscaler": "none", "dry_run": False, **level}
        functions("AdminFunction", {"action": "register", "cluster": "eks", "record": record})

        def pass_minutes(minutes: float) -> None:
            for loop in range(round(minutes * 6)):
                clock.sleep(10)
                for event in cluster.step(clock.now()):
                    functions("ProvisioningFailureFunction", event)
                if loop % 6 == 0:
                    triggers.tick(clock.now())
                triggers.poll()

        pass_minutes(1)
        cluster.cloud.exhaust_zone(ZONE)
        functions("AdminFunction", {"action": "scale-up", "cluster": "eks", "pool": "workers", "nodes": 6})
        pass_minutes(8)
        cluster.cloud.restore_zone(ZONE)
        pass_minutes(12)
        assert [view.running for view in cluster.groups()] == [3, 3, 3]
        functions("AdminFunction", {"action": "restore", "cluster": "eks"})
        pass_minutes(2)
        sent = {request.action for request in functions.sent["RebalanceFunction"]}
        assert sent >= {
            *("autoscaling:UpdateAutoScalingGroup", "autoscaling:SetDesiredCapacity", "autoscaling:DeleteTags"),
            *("autoscaling:TerminateInstanceInAutoScalingGroup", "autoscaling:ResumeProcesses"),
        }
        assert functions.refused() == []


@pytest.mark.parametrize("wanted", [True, False])
def test_auto_scaling_groups_are_read_unless_the_stack_leaves_them_out(aws: AwsEndpoints, wanted: bool) -> None:
    group = {"clusterName": "blue", "nodegroupName": "workers-a"}
    with aws.deploy(parameters={"WithAutoScaling": str(wanted).lower()}) as made:
        reads = [request_of(made, "eks", "DescribeNodegroup", group)]
        reads += [
            request_of(made, "autoscaling", f"Describe{what}", {})
            for what in ("AutoScalingGroups", "ScalingActivities")
        ]
        before_writes = request_of(made, "autoscaling", "DescribeInstanceRefreshes", {})
        for function in ("RebalanceFunction", *CHECKING):
            assert {Permissions(made, function).allows(read) for read in reads} == {wanted}
        write = request_of(made, "autoscaling", "UpdateAutoScalingGroup", BOUNDS)
        for request in (before_writes, write):
            assert Permissions(made, "RebalanceFunction").allows(request) is wanted
            assert not any(Permissions(made, function).allows(request) for function in CHECKING)
        for function in ("ScanFunction", "ProvisioningFailureFunction", "StatusPageFunction"):
            assert not any(Permissions(made, function).allows(request) for request in (*reads, before_writes, write))


OWN, DOMAIN = "evenkeel:https://api.blue.example:6443", "evenkeel:prod"


@pytest.mark.parametrize(
    ("audience", "seconds", "algorithm", "writes", "checks"),
    [
        ([OWN], 300, "ES384", True, True),
        ([DOMAIN], 300, "ES384", False, True),
        ([DOMAIN], 900, "ES384", False, True),
        ([OWN, DOMAIN], 300, "ES384", False, True),
        ([OWN], 301, "ES384", False, True),
        ([DOMAIN], 901, "ES384", False, False),
        ([OWN], 300, "RS256", False, False),
        (["sts.amazonaws.com"], 300, "ES384", False, False),
        ([OWN, "sts.amazonaws.com"], 300, "ES384", False, False),
        ([], 300, "ES384", False, False),
    ],
)
def test_a_function_may_ask_for_tokens_of_its_purpose_alone(
    deployment: Deployment, audience: list[str], seconds: int, algorithm: str, writes: bool, checks: bool
) -> None:
    asked = {"Audience": audience, "DurationSeconds": seconds, "SigningAlgorithm": algorithm}
    request = request_of(deployment, "sts", "GetWebIdentityToken", asked)
    assert Permissions(deployment, "RebalanceFunction").allows(request) is writes
    assert {Permissions(deployment, function).allows(request) for function in CHECKING} == {checks}
    for function in ("ScanFunction", "ProvisioningFailureFunction", "StatusPageFunction"):
        assert not Permissions(deployment, function).allows(request)


def test_roles_of_other_accounts_are_assumed_where_the_stack_names_them(aws: AwsEndpoints) -> None:
    roles = {name: f"arn:aws:iam::210987654321:role/evenkeel-{name}" for name in ("write", "check", "other")}
    parameters = {"WriteRoleArns": roles["write"], "CheckRoleArns": f"{roles['check']},arn:aws:iam::*:role/check"}
    with aws.deploy(parameters=parameters) as named, aws.deploy() as unnamed:
        for function, allowed in (("RebalanceFunction", "write"), *((name, "check") for name in CHECKING)):
            for name, arn in roles.items():
                request = request_of(named, "sts", "AssumeRole", {"RoleArn": arn})
                assert Permissions(named, function).allows(request) is (name == allowed), (function, name)
                assert not Permissions(unnamed, function).allows(request)
        anywhere = request_of(named, "sts", "AssumeRole", {"RoleArn": "arn:aws:iam::111111111111:role/check"})
        assert Permissions(named, "WidgetFunction").allows(anywhere)


def test_the_page_writes_its_own_object_and_reads_no_cluster_or_secret(deployment: Deployment) -> None:
    permissions = Permissions(deployment, "StatusPageFunction")
    for place, allowed in ((f"{deployment.stack}/index.html", True), ("other/index.html", False)):
        request = request_of(deployment, "s3", "PutObject", {"Bucket": "pages", "Key": place})
        assert permissions.allows(request) is allowed, place
    for service, operation, params in (
        ("secretsmanager", "GetSecretValue", {"SecretId": "evenkeel/blue"}),
        ("eks", "DescribeCluster", {"name": "blue"}),
        ("sqs", "SendMessage", {"QueueUrl": deployment.physical("RebalanceQueue")}),
    ):
        assert not permissions.allows(request_of(deployment, service, operation, params)), operation


#: each function's rights on items of each partition: q(uery), b(atch get), g(et), p(ut), u(pdate), d(elete)
MAY = {
    "ScanFunction": {"DUE#0": "q", "CHECKED": "q"},
    "CheckFunction": {"CLUSTER#blue": "qb", "CHECKED": "p"},
    "ProvisioningFailureFunction": {"CLUSTER#blue": "q", "NAME#a": "q", "IDEMPOTENCY#provisioning_failure": "gpud"},
    "RebalanceFunction": {
        "CLUSTER#blue": "qgpu",
        "DUE#0": "p",
        "NAME#a": "p",
        **dict.fromkeys(("CHECKED", "HEALTH_BY_CLUSTER"), "qgp"),
    },
    "AdminFunction": {
        "CLUSTER#blue": "qgpud",
        "DUE#0": "pd",
        "NAME#a": "p",
        **dict.fromkeys(("CHECKED", "HEALTH_BY_CLUSTER"), "q"),
    },
    "WidgetFunction": {"CLUSTER#blue": "q", **dict.fromkeys(("CHECKED", "HEALTH_BY_CLUSTER"), "q")},
    "StatusPageFunction": dict.fromkeys(("CHECKED", "HEALTH_BY_CLUSTER"), "q"),
}
PARTITIONS = {key for keys in MAY.values() for key in keys} | {"ALERTED#slack", "IDEMPOTENCY#other", "CLUSTERS"}


@pytest.mark.parametrize("function", MAY)
def test_a_function_reads_and_writes_its_own_partitions_of_the_table_and_no_others(
    deployment: Deployment, function: str
) -> None:
    permissions, table = Permissions(deployment, function), deployment.table
    for partition in PARTITIONS:
        key = {"pk": {"S": partition}, "sk": {"S": "x"}}
        query = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": partition}}}
        asked: dict[str, tuple[str, dict[str, Any]]] = {
            "q": ("Query", {"TableName": table, **query}),
            "b": ("BatchGetItem", {"RequestItems": {table: {"Keys": [key]}}}),
            "g": ("GetItem", {"TableName": table, "Key": key}),
            "p": ("PutItem", {"TableName": table, "Item": {**key, "record": {"S": ""}}}),
            "u": ("UpdateItem", {"TableName": table, "Key": key, "UpdateExpression": "SET record = :x"}),
            "d": ("DeleteItem", {"TableName": table, "Key": key, "ConditionExpression": "version = :x"}),
        }
        may = "".join(
            letter
            for letter, (operation, params) in asked.items()
            if all(map(permissions.allows, requests_of(deployment, "dynamodb", operation, params)))
        )
        assert may == MAY[function].get(partition, ""), partition
    for operation in ("Query", "GetItem", "PutItem", "UpdateItem", "DeleteItem"):
        bare = Request(
            f"dynamodb:{operation}", f"arn:aws:dynamodb:{deployment.aws.region}:{deployment.aws.account}:table/{table}"
        )
        assert not permissions.allows(bare), "a request that names no key"


@pytest.mark.parametrize("function", ["ProvisioningFailureFunction", "RebalanceFunction"])
def test_writes_of_some_attributes_are_allowed_for_clusters_alone(deployment: Deployment, function: str) -> None:
    permissions = Permissions(deployment, function)
    for partition in PARTITIONS - {"CLUSTER#blue", "IDEMPOTENCY#provisioning_failure"}:
        key = {"TableName": deployment.table, "Key": {"pk": {"S": partition}, "sk": {"S": "x"}}}
        for operation, more in (
            ("UpdateItem", {"UpdateExpression": "SET revision = :x"}),
            ("DeleteItem", {"ConditionExpression": "revision = :x"}),
        ):
            request = request_of(deployment, "dynamodb", operation, {**key, **more})
            assert not permissions.allows(request), (partition, operation)


#: the policies for operators, and the actions that each allows
PEOPLE = {"ReaderPolicy": Right.READ, "OperatorPolicy": Right.WRITE, "AdminPolicy": Right.ADMINISTER}


@pytest.mark.parametrize(("policy", "right"), PEOPLE.items())
def test_people_may_invoke_what_answers_what_they_may_ask_and_no_other_function(
    deployment: Deployment, policy: str, right: Right
) -> None:
    def invokes(function: str) -> bool:
        return Permissions(deployment, policy).allows(Request("lambda:InvokeFunction", f"{function}.Arn"))

    for name, action in ACTIONS.items():
        for needed in {action.right, *action.rights_with.values()}:
            assert invokes(_FUNCTIONS[needed]) is right.covers(needed), (name, needed)
    invoked = {function for function in deployment.template.functions() if invokes(function)}
    assert invoked == {function for needed, function in _FUNCTIONS.items() if right.covers(needed)}


@pytest.mark.parametrize("action", [name for name, action in ACTIONS.items() if action.right is Right.ADMINISTER])
def test_with_the_operators_policy_no_cluster_comes_goes_or_goes_live(
    stage: Stage, deployment: Deployment, action: str
) -> None:
    (cluster, *_), more = sorted(stage.world.clusters), {"by": "jane"}
    before = stage.functions("WidgetFunction", {"action": "export"})
    for function in ("OperatorFunction", "WidgetFunction"):
        for scope in ({"cluster": cluster}, {"clusters": [cluster]}, {"all": True}, {"records": {cluster: {}}}):
            answer = stage.functions(function, {"action": action, **scope, **more})
            assert (answer["ok"], answer["retry"]) == (False, False), answer
            assert answer["message"].endswith("ask the admin function"), answer
    assert stage.functions("WidgetFunction", {"action": "export"}) == before
