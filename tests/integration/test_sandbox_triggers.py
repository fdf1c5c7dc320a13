"""The sandbox plays Lambda's part; these tests hold it to Lambda's rules, with small functions of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.aws import AwsEndpoints, Deployment
from sandbox.template import Template
from sandbox.triggers import InProcess
from tests.integration.staging import Stage

TEMPLATE = """
Parameters:
  Colour: {Type: String, Default: blue}
Conditions:
  IsBlue: !Equals [!Ref Colour, blue]
Globals:
  Function:
    Handler: app.handler
    Timeout: 3
    MemorySize: 128
    Environment:
      Variables:
        INBOX: !Ref Inbox
        COLOUR: !If [IsBlue, !Sub '${Colour} in ${AWS::Region}', other]
Resources:
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: worker
      EventInvokeConfig:
        MaximumRetryAttempts: 1
        DestinationConfig: {OnFailure: {Type: SQS, Destination: !GetAtt Dead.Arn}}
      Events:
        Message:
          Type: SQS
          Properties: {Queue: !GetAtt Inbox.Arn, BatchSize: 10, FunctionResponseTypes: [ReportBatchItemFailures]}
        Tick:
          Type: ScheduleV2
          Properties: {ScheduleExpression: rate(1 minute), Input: '{"at": "<aws.scheduler.scheduled-time>"}'}
        Rule: {Type: EventBridgeRule, Properties: {EventBusName: !Ref Bus, Pattern: {source: [toy]}}}
  Inbox:
    Type: AWS::SQS::Queue
    Properties: {RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 2}}
  Dead: {Type: AWS::SQS::Queue}
  Bus: {Type: AWS::Events::EventBus, Properties: {Name: !Ref AWS::StackName}}
"""

# Remembers what it got, refuses bodies that say so, and fails where asked to.
WORKER = """
import json, os
seen = []
def handler(event, context):
    seen.append((event, dict(os.environ), context.get_remaining_time_in_millis()))
    if event.get("detail", {}).get("fail"):
        raise RuntimeError("as asked")
    print("a line of the handler")
    failed = [r["messageId"] for r in event.get("Records", []) if r["body"] == "refuse"]
    return {"batchItemFailures": [{"itemIdentifier": i} for i in failed]}
"""


class Toy(Stage):
    def __init__(self, deployment: Deployment, functions: InProcess) -> None:
        super().__init__(deployment, functions)
        self.functions = functions

    def seen(self) -> list[Any]:
        seen: list[Any] = self.functions._load("Worker").seen
        return seen

    def bodies(self) -> list[str]:
        return sorted(record["body"] for event, _, _ in self.seen() for record in event.get("Records", []))

    def dead(self) -> list[str]:
        return [message["Body"] for message in self.take("Dead")]


@pytest.fixture
def toy(aws: AwsEndpoints, tmp_path: Path) -> Iterator[Toy]:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "app.py").write_text(WORKER)
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    with aws.deploy(tmp_path / "template.yaml") as deployment, InProcess(deployment) as functions:
        yield Toy(deployment, functions)


def test_an_emulator_elsewhere_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://example.com")
    with pytest.raises(ValueError, match="only talks to this machine"), AwsEndpoints():
        pass


def test_a_service_with_an_endpoint_of_its_own_is_asked_there_and_the_others_at_the_common_one(
    aws: AwsEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    with AwsEndpoints() as endpoints:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")  # what comes later leads no client astray
        assert endpoints.client("dynamodb").meta.endpoint_url == "http://127.0.0.1:1"
        assert endpoints.client("sqs").meta.endpoint_url == aws.url
        assert endpoints.environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:1"


def test_a_parameter_or_a_function_that_the_template_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text("Resources: {}\nParameters: {}\n")
    with pytest.raises(ValueError, match="no parameter Sise"):
        Template(tmp_path / "template.yaml", parameters={"Sise": "1"})


def test_our_own_template_can_be_made_on_the_endpoints(deployment: Deployment) -> None:
    sqs = deployment.aws.client("sqs")
    environments = {name: deployment.environment(name) for name in deployment.template.functions()}
    for environment in environments.values():
        for queue in ("EVENKEEL_REBALANCE_QUEUE_URL", "EVENKEEL_CHECKS_QUEUE_URL", "EVENKEEL_DEAD_LETTERS_URL"):
            sqs.get_queue_attributes(QueueUrl=environment[queue], AttributeNames=["QueueArn"])
        assert environment["EVENKEEL_DRY_RUN"] == "false"
    table = deployment.aws.client("dynamodb").describe_table(TableName=deployment.table)["Table"]
    assert [index["IndexName"] for index in table["GlobalSecondaryIndexes"]] == ["due"]
    ttl = deployment.aws.client("dynamodb").describe_time_to_live(TableName=deployment.table)
    assert ttl["TimeToLiveDescription"]["AttributeName"] == "expires_at"
    mapped = {m.function: m for m in deployment.event_source_mappings()}
    assert mapped["RebalanceFunction"].batch_size == 1
    assert mapped["CheckFunction"].queue_url == deployment.physical("ChecksQueue")
    assert len(deployment.subscriptions) >= 1
