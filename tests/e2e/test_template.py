"""template.yaml keeps the documents' promises: least privilege, no lost message, safe defaults."""

import json
import re
import tomllib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import pytest

from bench import bill
from evenkeel.adapters.aws.metrics import ALARMED
from evenkeel.adapters.aws.queues import LONGEST_WAIT_SECONDS, TRIES
from evenkeel.application.incidents.alerting import CLAIMED_FOR
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.settings import AlertSettings, Settings
from sandbox.template import ROOT, Template

TOPIC = "arn:aws:sns:eu-central-1:123456789012:trouble"
ALERTS = {
    "ChatTopicArn": TOPIC,
    "SlackSecret": "alerts/slack",
    "TeamsSecret": "alerts/teams",
    "PagerDutySecret": "alerts/pagerduty",
    "OpsgenieSecret": "alerts/opsgenie",
    "AlertmanagerSecret": "alerts/alertmanager",
}
ALL = {**ALERTS, "PageBucket": "pages"}  # with these, every function exists

TEMPLATE = Template()
ROLES = TEMPLATE.of_type("AWS::IAM::Role")
QUEUES = TEMPLATE.of_type("AWS::SQS::Queue")
FUNCTIONS = Template(parameters=ALL).functions()

# The only actions for which AWS has no resource. Tokens are requested under conditions: see test_least_privilege.py.
TRACES = {"xray:PutTraceSegments", "xray:PutTelemetryRecords"}
TOKENS = {"sts:GetWebIdentityToken"}

KEYS = {"dynamodb:LeadingKeys"}
QUERY, GET, PUT, DELETE = (f"dynamodb:{verb}" for verb in ("Query", "GetItem", "PutItem", "DeleteItem"))
STATE = {QUERY, GET, PUT, "dynamodb:UpdateItem"}
SEND, SECRET = "sqs:SendMessage", "secretsmanager:GetSecretValue"
SENDS = frozenset({SEND})
TAKE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}  # Lambda's part, in this role
LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
OPEN_CLUSTERS = {
    "AWS::StackName/*": {SECRET},
    "arn:AWS::Partition:eks:*:AWS::AccountId:cluster/*": {"eks:DescribeCluster"},
    "arn:AWS::Partition:eks:*:AWS::AccountId:nodegroup/*/*/*": {"eks:DescribeNodegroup"},
}
# There are no resources for these actions.
READ_GROUPS = {
    *("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"),
    "ec2:DescribeInstanceTypes",
}
READ_BEFORE_WRITES = {"autoscaling:DescribeInstanceRefreshes"}
WRITE_GROUPS = {  # all under conditions: tests/integration/test_least_privilege.py judges requests by them
    "arn:AWS::Partition:autoscaling:*:AWS::AccountId:autoScalingGroup:*:autoScalingGroupName/*": {
        f"autoscaling:{action}"
        for action in (
            *("UpdateAutoScalingGroup", "SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup"),
            *("SuspendProcesses", "ResumeProcesses", "CreateOrUpdateTags", "DeleteTags"),
        )
    }
}

ALLOWED: dict[str, dict[str, Set[str]]] = {
    "ScanRole": {
        "Table": {QUERY},  # under a condition
        "Table/index/due": {QUERY},
        **dict.fromkeys(("ChecksQueue", "RebalanceQueue", "DeadLetters"), SENDS),
        "ScanLogGroup": LOGS,
    },
    "ScheduleRole": {
        **{name: {"lambda:InvokeFunction"} for name in ("ScanFunction", "StatusPageFunction")},
        "DeadLetters": {SEND},
    },
    "CheckRole": {
        "Table": {QUERY, "dynamodb:BatchGetItem", PUT},  # puts only the times of checks: under a condition
        "ChecksQueue": {SEND, *TAKE},
        **dict.fromkeys(("RebalanceQueue", "DeadLetters"), SENDS),
        **OPEN_CLUSTERS,
        "CheckLogGroup": LOGS,
    },
    "ProvisioningFailureRole": {
        # All but Query under a condition: tests/integration/test_least_privilege.py judges requests by them.
        "Table": {*STATE, DELETE},
        "Table/index/due": {QUERY},
        **dict.fromkeys(("RebalanceQueue", "ChecksQueue", "DeadLetters"), SENDS),
        "ProvisioningFailureLogGroup": LOGS,
    },
    "RebalanceRole": {
        "Table": {*STATE, DELETE},  # DeleteItem under a condition, as above
        "RebalanceQueue": {*TAKE, "sqs:ChangeMessageVisibility"},
        **dict.fromkeys(("ChecksQueue", "DeadLetters"), SENDS),
        **OPEN_CLUSTERS,
        **WRITE_GROUPS,
        "AlertsQueue": {SEND},
        "EventBus": {"events:PutEvents"},
        "RebalanceLogGroup": LOGS,
    },
    "NotifyRole": {
        "Table": {GET, PUT},  # both under a condition
        "AlertsQueue": TAKE,
        "DeadLetters": {SEND},
        TOPIC: {"sns:Publish"},
        **{f"{name}-??????": {SECRET} for key, name in ALERTS.items() if key.endswith("Secret")},
        "NotifyLogGroup": LOGS,
    },
    "OperatorRole": {
        "Table": {*STATE, DELETE},
        "Table/index/due": {QUERY},
        **dict.fromkeys(("RebalanceQueue", "ChecksQueue"), SENDS),
        **OPEN_CLUSTERS,
        "AdminLogGroup": LOGS,
    },
    "WidgetRole": {"Table": {QUERY}, "Table/index/due": {QUERY}, **OPEN_CLUSTERS, "WidgetLogGroup": LOGS},
    "StatusPageRole": {
        "Table": {QUERY},  # of health, under a condition
        "Table/index/due": {QUERY},
        "arn:AWS::Partition:s3:::pages/AWS::StackName/index.html": {"s3:PutObject"},
        "DeadLetters": {SEND},
        "StatusPageLogGroup": LOGS,
    },
}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements(policies: list[dict[str, Any]], template: Template = TEMPLATE) -> Iterator[dict[str, Any]]:
    """Yield statements with Ref and GetAtt of an Arn resolved to logical ids, and a secret's ARN to its end."""

    def lookup(name: str, _attribute: str | None) -> str:
        return name

    for policy in policies:
        for statement in template.resolve(policy["PolicyDocument"]["Statement"], lookup):
            resources = [re.sub(r"^arn:.*:secret:", "", resource) for resource in as_list(statement["Resource"])]
            yield {**statement, "Resource": resources}


@pytest.mark.parametrize("tracing", ["false", "true"])
@pytest.mark.parametrize("role", sorted(ALLOWED))
def test_a_role_allows_exactly_what_its_function_does(role: str, tracing: str) -> None:
    granted: dict[str, set[str]] = {}
    for statement in statements(ROLES[role]["Policies"], Template(parameters={"Tracing": tracing, **ALL})):
        for resource in statement["Resource"]:
            granted.setdefault(resource, set()).update(as_list(statement["Action"]))
    traces = TRACES if tracing == "true" and role != "ScheduleRole" else set()
    opens = TOKENS | READ_GROUPS if ALLOWED[role].items() >= OPEN_CLUSTERS.items() else set()
    zones = {"ec2:DescribeAvailabilityZones"} if role == "OperatorRole" else set()
    refreshes = READ_BEFORE_WRITES if role == "RebalanceRole" else set()
    assert granted.pop("*", set()) == traces | opens | zones | refreshes
    assert granted == ALLOWED[role]
    assert all("*" not in action for actions in granted.values() for action in actions)


@pytest.mark.parametrize("role", sorted(ALLOWED))
def test_a_role_names_the_keys_of_the_table_that_it_reads_and_writes(role: str) -> None:
    for statement in statements(ROLES[role]["Policies"], Template(parameters=ALL)):
        if "Table" not in statement["Resource"]:
            continue
        condition = statement["Condition"]
        keys = {operator: names["dynamodb:LeadingKeys"] for operator, names in condition.items() if KEYS & names.keys()}
        assert keys.pop("Null") == "false", "ForAllValues holds for a request without any"
        assert [operator.partition(":")[0] for operator in keys] == ["ForAllValues"], statement
        assert not {"*", ""} & {key for named in keys.values() for key in as_list(named)}, statement


def test_every_function_has_a_role_of_its_own_and_no_managed_policy_beyond_the_vpcs() -> None:
    functions = TEMPLATE.of_type("AWS::Serverless::Function")
    roles = {name: properties["Role"]["Fn::GetAtt"][0] for name, properties in functions.items()}
    assert set(ROLES) == set(ALLOWED)
    assert set(roles.values()) == set(ROLES) - {"ScheduleRole"}
    for name, role in ROLES.items():
        managed = TEMPLATE.resolve(role.get("ManagedPolicyArns", []), lambda *_: "x")
        assert managed == [], f"{name} has {managed} without a VPC"
        assert "PermissionsBoundary" in role
    assert all("Policies" not in properties for properties in functions.values())


def test_every_queue_that_a_function_reads_has_dead_letters() -> None:
    read = {
        event["Properties"]["Queue"]["Fn::GetAtt"][0]
        for function in FUNCTIONS.values()
        for event in function.events.values()
        if event["Type"] == "SQS"
    }
    assert read == {"AlertsQueue", "ChecksQueue", "RebalanceQueue"}
    assert set(QUEUES) - read == {"DeadLetters"}
    assert "FifoQueue" not in QUEUES["DeadLetters"], "EventBridge and Lambda send to standard queues only"
    tries = {"AlertsQueue": 40, "ChecksQueue": 5}
    for name in read:
        assert QUEUES["DeadLetters"]["MessageRetentionPeriod"] > QUEUES[name]["MessageRetentionPeriod"]
        # A FIFO queue cannot redrive to a standard queue; Inbox counts the tries of its messages.
        redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetters", "Arn"]}, "maxReceiveCount": tries.get(name)}
        assert QUEUES[name].get("RedrivePolicy") == (redrive if name in tries else None)
        assert QUEUES[name].get("FifoQueue", False) is (name not in tries)


def test_a_message_with_the_longest_delay_is_kept_long_enough_to_be_received() -> None:
    assert QUEUES["ChecksQueue"]["MessageRetentionPeriod"] >= 2 * 900


def test_every_asynchronous_way_in_ends_in_the_dead_letters_too() -> None:
    tick = FUNCTIONS["ScanFunction"].events["Tick"]["Properties"]
    assert tick["RoleArn"] == {"Fn::GetAtt": ["ScheduleRole", "Arn"]}
    assert json.loads(tick["Input"]) == {"source": "evenkeel.schedule", "time": "<aws.scheduler.scheduled-time>"}
    for function in FUNCTIONS.values():
        for event in function.events.values():
            if event["Type"] in ("ScheduleV2", "EventBridgeRule"):
                assert event["Properties"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}
                assert event["Properties"]["RetryPolicy"]["MaximumRetryAttempts"] >= 1
                assert function.invoke_config["DestinationConfig"]["OnFailure"]["Type"] == "SQS"


def test_awss_own_events_can_be_switched_off_and_ours_cannot() -> None:
    for event in FUNCTIONS["ProvisioningFailureFunction"].events.values():
        from_aws = any(str(source).startswith("aws.") for source in event["Properties"]["Pattern"]["source"])
        assert ("EventBusName" in event["Properties"]) is not from_aws
        assert event["Properties"].get("State") == ({"Ref": "AwsEvents"} if from_aws else None)


def test_a_message_stays_hidden_for_longer_than_its_function_may_run() -> None:
    for function in FUNCTIONS.values():
        for event in function.events.values():
            if event["Type"] == "SQS":
                queue = QUEUES[event["Properties"]["Queue"]["Fn::GetAtt"][0]]
                # Lambda refuses a mapping whose queue shows a message again while its function may still work on it.
                assert queue["VisibilityTimeout"] > function.timeout
                assert event["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_a_worker_that_died_does_not_outlast_the_first_backoff() -> None:
    hidden = QUEUES["RebalanceQueue"]["VisibilityTimeout"]
    assert FUNCTIONS["RebalanceFunction"].timeout < hidden < BackoffPolicy().initial.total_seconds() / 2
    assert hidden > LONGEST_WAIT_SECONDS  # otherwise a failed message would return too early


def test_the_rebalance_queue_keeps_one_cluster_in_order_and_the_others_free() -> None:
    queue = QUEUES["RebalanceQueue"]
    assert queue["FifoQueue"] is True
    assert queue["ContentBasedDeduplication"] is False
    assert queue["DeduplicationScope"] == "messageGroup"
    assert queue["FifoThroughputLimit"] == "perMessageGroupId"
    message = FUNCTIONS["RebalanceFunction"].events["Message"]["Properties"]
    assert message["BatchSize"] == 1
    assert TEMPLATE.resolve(message["ScalingConfig"], lambda *_: "x") == {"MaximumConcurrency": 10}


KEY = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.mark.parametrize("key", ["", KEY])
def test_everything_at_rest_is_encrypted_and_the_table_survives(key: str) -> None:
    template = Template(parameters={"KmsKeyArn": key})

    def encrypted(properties: dict[str, Any], *names: str) -> dict[str, Any]:
        there = {name: value for name, value in properties.items() if name in names}
        return dict(template.resolve(there, lambda *_: "x"))

    for queue in QUEUES.values():
        own = {"KmsMasterKeyId": key, "SqsManagedSseEnabled": False} if key else {"SqsManagedSseEnabled": True}
        assert encrypted(queue, "KmsMasterKeyId", "SqsManagedSseEnabled") == own
    for group in TEMPLATE.of_type("AWS::Logs::LogGroup").values():
        assert encrypted(group, "KmsKeyId") == ({"KmsKeyId": key} if key else {})
    common = TEMPLATE.body["Globals"]["Function"]
    assert encrypted(common, "KmsKeyArn") == ({"KmsKeyArn": key} if key else {})
    table = TEMPLATE.resources["Table"]
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    own = {"SSEEnabled": True, "SSEType": "KMS"} | ({"KMSMasterKeyId": key} if key else {})
    assert encrypted(table["Properties"], "SSESpecification") == {"SSESpecification": own}
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert TEMPLATE.resolve(table["Properties"]["DeletionProtectionEnabled"], lambda *_: "x") == "true"


@pytest.mark.parametrize("role", sorted(ALLOWED))
def test_a_role_may_use_the_key_by_the_services_that_it_uses_and_by_no_other(role: str) -> None:
    granted: dict[str, set[str]] = {}
    for statement in statements(ROLES[role]["Policies"], Template(parameters={"KmsKeyArn": KEY, **ALL})):
        if statement["Resource"] == [KEY]:
            (condition,) = statement["Condition"].values()
            ((name, value),) = condition.items()
            service = value.partition(".")[0] if name == "kms:ViaService" else name.split(":")[3]
            granted[service] = set(as_list(statement["Action"]))
    used = {action.partition(":")[0] for actions in ALLOWED[role].values() for action in actions}
    decrypt = {"kms:Decrypt"}
    expected = {service: decrypt | {"kms:GenerateDataKey"} for service in used & {"sqs", "sns", "s3"}}
    expected |= {"dynamodb": decrypt} if "dynamodb" in used else {}
    expected |= {"lambda": decrypt} if role != "ScheduleRole" else {}
    assert granted == expected


def test_the_key_policy_shipped_covers_every_log_group_and_eventbridge() -> None:
    policy = json.loads((ROOT / "deploy" / "kms-key-policy.json").read_text(encoding="utf-8"))
    account, logs, events = policy["Statement"]
    services = [one["Principal"]["Service"] for one in (logs, events)]
    assert services == ["logs.REGION.amazonaws.com", "events.amazonaws.com"]
    assert account["Principal"] == {"AWS": "arn:aws:iam::ACCOUNT:root"}
    assert set(events["Action"]) == {"kms:Decrypt", "kms:GenerateDataKey"}  # what SQS requires of senders
    prefix = logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"].partition("log-group:")[2]
    for group in TEMPLATE.of_type("AWS::Logs::LogGroup").values():
        name = TEMPLATE.resolve(group["LogGroupName"], lambda *_: "STACK")
        assert name.startswith(prefix.removesuffix("*"))


def test_without_a_key_no_role_may_use_one() -> None:
    for name, role in ROLES.items():
        granted = {
            action
            for one in statements(role["Policies"], Template(parameters=ALL))
            for action in as_list(one["Action"])
        }
        assert not {action for action in granted if action.startswith("kms:")}, name


def test_the_functions_get_every_variable_that_the_settings_read_and_no_loopback() -> None:
    assert "loopback" not in (ROOT / "template.yaml").read_text(encoding="utf-8").lower()
    assert "loopback" not in (ROOT / "samconfig.toml").read_text(encoding="utf-8").lower()
    wanted = {
        f"EVENKEEL_{name.upper()}" for name in Settings.model_fields.keys() - {"allow_loopback", "alerts_queue_url"}
    }
    of_alerts = {f"EVENKEEL_{name.upper()}" for name in AlertSettings.model_fields}
    for name, function in FUNCTIONS.items():
        own = {variable for variable in function.variables if variable.startswith("EVENKEEL_")}
        more = {"NotifyFunction": of_alerts, "RebalanceFunction": {"EVENKEEL_ALERTS_QUEUE_URL"}}
        assert own == wanted | more.get(name, set()), name
        settings = Settings.from_env(TEMPLATE.resolve(function.variables, lambda reference, _: f"the-{reference}"))
        assert (settings.dry_run, settings.allow_loopback) == (True, False)


def test_sams_profiles_name_parameters_that_exist_and_begin_in_dry_run() -> None:
    config = tomllib.loads((ROOT / "samconfig.toml").read_text())
    for profile in ("default", "staging", "prod", "local"):
        overrides = config[profile]["deploy"]["parameters"]["parameter_overrides"]
        # No profile that is deployed to AWS names a topic for alarms.
        assert any(override.startswith("AlarmTopicArn=") for override in overrides) is (profile == "local")
        for name, value in (override.split("=", 1) for override in overrides):
            declared = TEMPLATE.body["Parameters"][name]
            assert value in [str(allowed) for allowed in declared.get("AllowedValues", [value])]
            assert re.fullmatch(declared.get("AllowedPattern", ".*"), value)
    assert TEMPLATE.parameters["DryRun"] == "true"
    assert "DryRun=true" in config["default"]["deploy"]["parameters"]["parameter_overrides"]


def test_every_parameter_is_explained_grouped_and_bounded() -> None:
    interface = TEMPLATE.body["Metadata"]["AWS::CloudFormation::Interface"]
    grouped = [name for group in interface["ParameterGroups"] for name in group["Parameters"]]
    assert sorted(grouped) == sorted(TEMPLATE.parameters) == sorted(interface["ParameterLabels"])
    for name, spec in TEMPLATE.body["Parameters"].items():
        assert spec["Description"].endswith("."), name
        if spec["Type"] == "String":
            assert "AllowedValues" in spec or "AllowedPattern" in spec, name
        if spec["Type"] == "Number":
            assert "AllowedValues" in spec or {"MinValue", "MaxValue"} <= spec.keys(), name


ALARMS = TEMPLATE.of_type("AWS::CloudWatch::Alarm")


def test_only_the_schedule_raises_an_alarm_by_missing_data() -> None:
    breaching = {name for name, alarm in ALARMS.items() if alarm["TreatMissingData"] == "breaching"}
    assert breaching == {"ScansStoppedAlarm"}
    assert listened_to("AWS/Lambda", "Invocations") == {"ScanFunction"}
    assert ALARMS["ScansStoppedAlarm"]["Statistic"] == "Sum"
    assert list(FUNCTIONS["ScanFunction"].events) == ["Tick"], "no queue hides that the schedule has stopped"
    assert all(alarm["AlarmActions"] == alarm["OKActions"] for alarm in ALARMS.values())


def test_metrics_of_two_stacks_do_not_mix() -> None:
    stack = {"Ref": "AWS::StackName"}
    for function in FUNCTIONS.values():
        assert function.variables["POWERTOOLS_SERVICE_NAME"] == stack
    for metrics in bill.alarms().values():
        for metric in metrics:
            if metric["Namespace"] == "Evenkeel":
                assert metric["Dimensions"] == [{"Name": "service", "Value": stack}]


def listened_to(namespace: str, name: str) -> set[str]:
    """Return the queues or functions, by logical id, whose AWS metric of that name an alarm reads."""
    read = [metric for metrics in bill.alarms().values() for metric in metrics]
    named = [metric for metric in read if (metric["Namespace"], metric["MetricName"]) == (namespace, name)]
    values = [metric["Dimensions"][0]["Value"] for metric in named]
    return {value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0] for value in values}


def test_what_a_function_fails_to_handle_ends_where_an_alarm_reads() -> None:
    dead = listened_to("AWS/SQS", "ApproximateNumberOfMessagesVisible")
    assert dead == {"DeadLetters"}
    by_hand = set()
    for name, function in FUNCTIONS.items():
        ends = set()
        for event in function.events.values():
            if event["Type"] == "SQS":
                ends.add("DeadLetters")  # test_every_queue_that_a_function_reads_has_dead_letters
            else:
                ends.add(event["Properties"]["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0])
                ends.add(function.invoke_config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0])
        assert ends <= dead, name
        by_hand |= set() if ends else {name}
    assert by_hand == {"OperatorFunction", "AdminFunction", "WidgetFunction"}, "who calls them gets the error"


def test_checks_and_runs_have_a_second_alarm_since_waiting_dead_letters_raise_one() -> None:
    """The age of a standard queue leaves out messages received three times, so a dying check needs its errors."""
    assert listened_to("AWS/Lambda", "Errors") == {"CheckFunction"}
    assert listened_to("AWS/SQS", "ApproximateAgeOfOldestMessage") == {"ChecksQueue", "RebalanceQueue"}


def test_alarms_read_the_metrics_of_ours_that_are_always_sent_and_no_others() -> None:
    read = [metric for metrics in bill.alarms().values() for metric in metrics if metric["Namespace"] == "Evenkeel"]
    assert {metric["MetricName"] for metric in read} == ALARMED


def test_a_metric_with_gaps_silences_no_other_of_its_alarm() -> None:
    for alarm in ALARMS.values():
        (total, *parts) = alarm.get("Metrics", [None])
        if parts:
            assert total["Expression"] == "SUM(FILL(METRICS(), 0))"
            assert alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"], "the last minute may be filled as well"


def test_an_alarm_counts_checks_that_are_five_minutes_apart() -> None:
    for name in ("RunsFailedAlarm", "IncidentAlarm"):
        alarm = ALARMS[name]
        parts = [metric["MetricStat"]["Period"] for metric in alarm.get("Metrics", []) if "MetricStat" in metric]
        (period,) = set(parts) or {alarm["Period"]}
        # The alarm's datapoints fit into its window, so it does not end between two checks.
        assert max(1, alarm["DatapointsToAlarm"] - 1) * 300 < alarm["EvaluationPeriods"] * period


def test_a_stalled_queue_raises_its_alarm_before_its_messages_are_dead_letters() -> None:
    alarm, queue = ALARMS["QueueAgeAlarm"], QUEUES["RebalanceQueue"]
    needed = alarm["DatapointsToAlarm"] * alarm["Period"]
    assert alarm["Threshold"] + needed <= TRIES * queue["VisibilityTimeout"]
    tries = sum(min(5 * 4**tried, LONGEST_WAIT_SECONDS) for tried in range(TRIES - 1))
    assert alarm["Threshold"] > tries, "a message that fails five times is no queue that stands"


@pytest.mark.parametrize("dashboard", ["false", "true"])
def test_with_a_dashboard_all_metrics_are_sent_and_shown(dashboard: str) -> None:
    template = Template(parameters={"WithDashboard": dashboard})
    for function in template.functions().values():
        variables = template.resolve(function.variables, lambda name, _: f"the-{name}")
        assert Settings.from_env(variables).all_metrics is (dashboard == "true")
    page = (
        (ROOT / "docs" / "reference/metrics.md")
        .read_text(encoding="utf-8")
        .partition("## Metrics")[2]
        .partition("## ")[0]
    )
    rows = re.findall(r"^- (`[A-Z].*?) \(", page, re.M)
    assert bill.dashboard_metrics() == {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_dashboard_is_made_on_request_and_shows_every_alarm_and_what_the_widget_draws() -> None:
    assert TEMPLATE.parameters["WithDashboard"] == "false"
    assert TEMPLATE.body["Conditions"]["HasDashboard"] == {"Fn::Equals": [{"Ref": "WithDashboard"}, "true"]}
    assert TEMPLATE.resources["Dashboard"]["Condition"] == "HasDashboard"
    assert TEMPLATE.body["Outputs"]["DashboardUrl"]["Condition"] == "HasDashboard"
    body = TEMPLATE.of_type("AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"]
    text = TEMPLATE.resolve(body, lambda name, attribute: f"{name}:{attribute}" if attribute else name)
    widgets = {widget["type"]: widget["properties"] for widget in json.loads(text)["widgets"]}
    assert widgets["alarm"]["alarms"] == [f"{name}:Arn" for name in ALARMS]
    drawn = [widget["properties"] for widget in json.loads(text)["widgets"] if widget["type"] == "custom"]
    assert [properties["endpoint"] for properties in drawn] == ["WidgetFunction:Arn"]


FROM_SAM = {
    "AWS::Serverless::Function": {"Function", "EventSourceMapping", "EventInvokeConfig", "Permission"},
    "AWS::Serverless::LayerVersion": {"LayerVersion"},
}
PARTS = {"AWS::SQS::QueuePolicy", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission"}
UNTAGGED = {
    "AWS::Lambda::LayerVersion": "layers",
    "AWS::IAM::ManagedPolicy": "managed policies",
    "AWS::Scheduler::Schedule": "schedules",
    "AWS::Logs::QueryDefinition": "saved queries",
}


def test_tags_of_the_stack_reach_all_that_can_have_tags(sam: Path) -> None:
    """CloudFormation passes them on; the registry's schemas say which resources take them."""
    schemas = next(sam.parents[1].glob("lib/python3*/site-packages/cfnlint/data/schemas"))
    files = json.loads((schemas / "providers" / "eu-central-1.json").read_text(encoding="utf-8"))
    written = {resource["Type"] for resource in TEMPLATE.resources.values()}
    made = {f"AWS::Lambda::{name}" for kind in written & FROM_SAM.keys() for name in FROM_SAM[kind]}
    without = set()
    for kind in (written - FROM_SAM.keys()) | made | {"AWS::Scheduler::Schedule"}:
        schema = json.loads((schemas / "resources" / f"{files[kind]}.json").read_text(encoding="utf-8"))
        without |= {kind} if not schema["tagging"]["taggable"] else set()
    assert without - PARTS == set(UNTAGGED)
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert all(word in page.partition("--tags")[2].partition("\n\n")[0].lower() for word in UNTAGGED.values())


def test_secrets_are_read_by_the_stacks_own_prefix_or_by_the_one_that_is_given() -> None:
    for given, readable in (("", "AWS::StackName/*"), ("team/", "team/*")):
        template = Template(parameters={"SecretPrefix": given})
        for role in ("RebalanceRole", "OperatorRole", "WidgetRole"):
            found = [
                statement["Resource"]
                for statement in statements(ROLES[role]["Policies"], template)
                if statement["Action"] == "secretsmanager:GetSecretValue"
            ]
            assert found == [[readable]], role


def test_a_customer_key_decrypts_secrets_and_nothing_else() -> None:
    for name in ("SecretKmsKeyArn", "KmsKeyArn"):
        assert re.fullmatch(TEMPLATE.body["Parameters"][name]["AllowedPattern"], KEY)
    template = Template(parameters={"SecretKmsKeyArn": KEY})
    opening = {"NotifyRole", "CheckRole", "RebalanceRole", "OperatorRole", "WidgetRole"}
    for role in ROLES:
        found = [found for found in statements(ROLES[role]["Policies"], template) if found["Action"] == "kms:Decrypt"]
        assert len(found) == (role in opening)
        for statement in found:
            assert statement["Resource"] == [KEY]
            assert statement["Condition"] == {
                "StringEquals": {"kms:ViaService": "secretsmanager.AWS::Region.AWS::URLSuffix"}
            }


@pytest.mark.parametrize("wanted", ["false", "true"])
def test_a_key_for_tokens_is_made_on_request_and_checks_decrypt_their_own_alone(wanted: str) -> None:
    assert TEMPLATE.resources["TokenKey"]["Condition"] == "HasTokenKey"
    assert TEMPLATE.resources["TokenKey"]["Properties"]["EnableKeyRotation"] is True
    granted = {
        role: [(sorted(as_list(one["Action"])), one.get("Condition")) for one in found]
        for role, properties in ROLES.items()
        if (
            found := [
                one
                for one in statements(properties["Policies"], Template(parameters={"WithTokenKey": wanted}))
                if "TokenKey" in one["Resource"]
            ]
        )
    }
    checks = [(["kms:Decrypt"], {"StringEquals": {"kms:EncryptionContext:purpose": "checks"}})]
    expected = {"RebalanceRole": [(["kms:Decrypt", "kms:Encrypt"], None)]}
    expected |= dict.fromkeys(("CheckRole", "OperatorRole", "WidgetRole"), checks)
    assert granted == (expected if wanted == "true" else {})


def other_account() -> dict[str, Any]:
    resources = Template(ROOT / "deploy/auto-scaling/account.yaml").resources
    return {name: resource["Properties"] for name, resource in resources.items()}


def test_another_accounts_roles_have_the_rights_on_groups_that_the_stack_has_in_its_own() -> None:
    account = other_account()
    assert "Policies" not in account["CheckRole"]
    assert all(account[name]["ManagedPolicyArns"] == [{"Ref": "ReadPolicy"}] for name in ("CheckRole", "WriteRole"))
    granted = statements([account["ReadPolicy"], *account["WriteRole"]["Policies"]])
    own = statements(ROLES["RebalanceRole"]["Policies"])
    about_groups = ("AutoScalingGroups", "NodeGroups", "InstanceRefreshes")
    assert {one["Sid"]: one for one in granted} == {one["Sid"]: one for one in own if one["Sid"].endswith(about_groups)}
    for role in ("CheckRole", "WriteRole"):
        (trust,) = account[role]["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Condition"] == {"StringEquals": {"sts:ExternalId": {"Ref": "ExternalId"}}}


def test_another_account_sends_the_events_that_the_stack_receives() -> None:
    own = FUNCTIONS["ProvisioningFailureFunction"].events
    names = ("AutoScalingGroup", "AutoScalingGroupCalled", "ZoneShift", "ZoneShiftCalled")
    patterns = [own[name]["Properties"]["Pattern"] for name in names]
    assert other_account()["SendEvents"]["EventPattern"] == {"$or": patterns}


def test_the_shipped_policies_hold_nothing_but_invoking_and_finding_the_function() -> None:
    policies = TEMPLATE.of_type("AWS::IAM::ManagedPolicy")
    invokes = {
        name: {
            resource
            for statement in statements([policy])
            for resource in statement["Resource"]
            if statement["Action"] == "lambda:InvokeFunction"
        }
        for name, policy in policies.items()
    }
    assert invokes == {
        "ReaderPolicy": {"WidgetFunction"},
        "OperatorPolicy": {"WidgetFunction", "OperatorFunction"},
        "AdminPolicy": {"WidgetFunction", "OperatorFunction", "AdminFunction"},
    }
    outputs = {name: output["Value"] for name, output in TEMPLATE.body["Outputs"].items()}
    for name, policy in policies.items():
        assert "ManagedPolicyName" not in policy  # a fixed name would need CAPABILITY_NAMED_IAM
        actions = [statement["Action"] for statement in statements([policy])]
        assert actions == ["cloudformation:DescribeStackResource", "lambda:InvokeFunction"]
        assert outputs[f"{name}Arn"] == {"Ref": name}


def test_a_service_that_may_use_a_queue_may_do_so_for_this_account_only() -> None:
    policies = TEMPLATE.of_type("AWS::SQS::QueuePolicy")
    assert policies
    for policy in policies.values():
        for statement in policy["PolicyDocument"]["Statement"]:
            assert "Service" in statement["Principal"]
            assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
            assert "aws:SourceArn" in statement["Condition"]["ArnLike"]


@pytest.mark.parametrize(("subnets", "groups"), [("", ""), ("subnet-0a", "sg-1"), ("subnet-0a,subnet-0b", "sg-1,sg-2")])
def test_a_vpc_is_entered_by_the_lists_that_the_parameters_spell(subnets: str, groups: str) -> None:
    parameters = {"VpcSubnetIds": subnets, "VpcSecurityGroupIds": groups}
    for name, value in parameters.items():
        assert re.fullmatch(TEMPLATE.body["Parameters"][name]["AllowedPattern"], value)
    config = TEMPLATE.body["Globals"]["Function"]["VpcConfig"]
    network = {"SubnetIds": subnets.split(","), "SecurityGroupIds": groups.split(",")} if subnets else None
    assert Template(parameters=parameters).resolve(config, lambda *_: "x") == network


# ------------------------------------------------------------ who is notified


def test_a_deployment_names_a_topic_for_alarms_or_nobody() -> None:
    (rule,) = TEMPLATE.body["Rules"]["AlarmTopicIsNamed"]["Assertions"]
    pattern = TEMPLATE.body["Parameters"]["AlarmTopicArn"]["AllowedPattern"]
    for said, is_taken, actions in (("", False, None), ("nobody", True, None), (TOPIC, True, [TOPIC])):
        template = Template(parameters={"AlarmTopicArn": said})
        assert re.fullmatch(pattern, said)
        assert template.resolve(rule["Assert"], lambda *_: "x") is is_taken
        for alarm in ALARMS.values():
            assert template.resolve(alarm["AlarmActions"], lambda *_: "x") == actions
        reported = template.resolve(TEMPLATE.body["Outputs"]["AlarmsGoTo"]["Value"], lambda *_: "x")
        assert reported == TOPIC if actions else reported.startswith("nobody")
    assert "AlarmTopicArn=nobody" in rule["AssertDescription"]
    assert not re.fullmatch(pattern, "another")


OF_ALERTS = {"AlertsQuery", "NotifyFunction", "NotifyRole", "AlertsQueue", "NotifyLogGroup"}


def test_without_an_address_for_alerts_nothing_is_made_for_them() -> None:
    assert {name for name, each in TEMPLATE.resources.items() if each.get("Condition") == "HasAlerts"} == OF_ALERTS
    for given in ({}, *({name: value} for name, value in ALERTS.items())):
        assert ("NotifyFunction" in Template(parameters=given).functions()) is bool(given)


@pytest.mark.parametrize("name", ALERTS)
def test_alert_may_read_the_keys_that_it_is_given_and_no_others(name: str) -> None:
    template = Template(parameters={name: ALERTS[name]})
    granted = {
        resource
        for statement in statements(ROLES["NotifyRole"]["Policies"], template)
        for resource in statement["Resource"]
        if as_list(statement["Action"])[0] in ("secretsmanager:GetSecretValue", "sns:Publish")
    }
    assert granted == ({TOPIC} if name == "ChatTopicArn" else {f"{ALERTS[name]}-??????"})


def test_only_rebalance_may_send_to_the_queue_of_alerts() -> None:
    """A message in it opens, changes or closes an incident at a pager."""
    template = Template(parameters=ALL)
    senders = {
        role
        for role, of_role in ROLES.items()
        for statement in statements(of_role["Policies"], template)
        if "AlertsQueue" in statement["Resource"] and SEND in as_list(statement["Action"])
    }
    assert senders == {"RebalanceRole"}
    policies = TEMPLATE.of_type("AWS::SQS::QueuePolicy").values()
    assert [policy["Queues"] for policy in policies] == [[{"Ref": "DeadLetters"}]], "no policy lets others send to it"
    assert not TEMPLATE.of_type("AWS::Events::Rule"), "no event of the bus reaches it"


def test_notify_receives_nothing_but_that_queue() -> None:
    (event,) = FUNCTIONS["NotifyFunction"].events.values()
    assert event["Properties"]["Queue"] == {"Fn::GetAtt": ["AlertsQueue", "Arn"]}
    kinds = ("AWS::Lambda::Permission", "AWS::Lambda::EventSourceMapping", "AWS::SNS::Subscription")
    assert not [name for kind in kinds for name in TEMPLATE.of_type(kind)]
    assert "NotifyFunction" not in str(list(TEMPLATE.of_type("AWS::IAM::ManagedPolicy").values()))


def test_a_claim_outlasts_the_function_and_ends_before_the_message_comes_back() -> None:
    hidden = QUEUES["AlertsQueue"]["VisibilityTimeout"]
    assert FUNCTIONS["NotifyFunction"].timeout < CLAIMED_FOR.total_seconds() < hidden
    redrive, kept = QUEUES["AlertsQueue"]["RedrivePolicy"], QUEUES["AlertsQueue"]["MessageRetentionPeriod"]
    assert redrive["maxReceiveCount"] * hidden <= kept, "what is not reported ends in the dead letters, not in nothing"


def test_alerts_go_to_addresses_of_the_template_or_of_a_secret() -> None:
    parameters = TEMPLATE.body["Parameters"]
    for name in ("PagerDutyUrl", "OpsgenieUrl"):
        assert all(url.startswith("https://") for url in parameters[name]["AllowedValues"])
    for url in ("javascript:alert(1)", "http://page.example/"):
        assert not re.fullmatch(parameters["PageUrl"]["AllowedPattern"], url)
