"""The endpoints of the sandbox, and the template as deployed on them."""

from pathlib import Path

import pytest

from sandbox.aws import AwsEndpoints, Deployment
from sandbox.template import Template


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
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")  # a later change affects no client
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
