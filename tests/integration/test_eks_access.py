"""The endpoint of an EKS cluster, requested from AWS's API as the function does: by boto3, at AWS_ENDPOINT_URL."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from pydantic import ValidationError

from evenkeel.access_config import EksAccess
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access import eks as eks_access
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.eks import describe_eks
from evenkeel.application.errors import AccessError
from evenkeel.bootstrap import SystemClock
from sandbox.aws import AwsEndpoints
from tests.fakes import plenty, record

NAME = "blue_1"
ACCESS = {"kind": "eks", "name": NAME, "region": "eu-central-1"}
AUTHORITY = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


@pytest.fixture
def eks(aws: AwsEndpoints, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the service with one cluster. This process finds it by its environment alone."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    client = aws.client("eks")
    role = f"arn:aws:iam::{aws.account}:role/eks"
    client.create_cluster(name=NAME, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
    yield client
    client.delete_cluster(name=NAME)


def clusters() -> RecordedClusters:
    return RecordedClusters(session=AwsSession(), secret=lambda *_: "", clock=SystemClock())


def test_the_endpoint_of_a_cluster_is_the_one_that_aws_names(eks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The authority that moto returns is no certificate.
    with pytest.raises(AccessError, match=rf"cluster {NAME} in eu-central-1: certificateAuthority\.data is not a PEM"):
        clusters().open(record(access=ACCESS), plenty)
    monkeypatch.setattr(eks_access, "pem", lambda data, where: base64.b64decode(AUTHORITY).decode())
    reported = eks.describe_cluster(name=NAME)["cluster"]
    opened: Any = clusters().open(record(access=ACCESS), plenty)
    assert opened._api._client.configuration.host == reported["endpoint"].rstrip("/")
    with pytest.raises(ValidationError, match=r"access\.eks\.endpoint"):
        record(access={**ACCESS, "endpoint": "https://attacker.example"})


def test_a_cluster_that_does_not_exist_is_an_error(eks: Any) -> None:
    where = record(access={**ACCESS, "name": "bleu"})
    with pytest.raises(AccessError, match=r"EKS cluster bleu in eu-central-1: there is none: correct access\.name"):
        clusters().open(where, plenty)


def test_a_service_that_is_away_is_an_error_within_the_time_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    client = clusters()._identity.client("eks", "eu-central-1")
    with pytest.raises(AccessError, match="eks:DescribeCluster was not answered: EndpointConnectionError"):
        describe_eks(client, EksAccess.model_validate(ACCESS), "cluster demo")
