"""`evenkeel discover` prints a fleet file that can be applied, and stores nothing."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError
from typer.testing import CliRunner, Result

from evenkeel.adapters.documents import read_document
from evenkeel.application.fleet.records import read_fleet
from evenkeel_cli import discover as command
from evenkeel_cli import live
from evenkeel_cli.main import app

ACCOUNT = "210987654321"


def discover(*arguments: str, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, ["discover", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def records(result: Result) -> dict[str, Any]:
    """Return the records as `apply` reads them."""
    assert result.exit_code == 0, result.output
    return read_fleet(["found"], lambda _: read_document(result.stdout), lambda _, path: path)


class Aws:
    def __init__(self, **tags: Mapping[str, str]) -> None:
        self.clusters = tags
        self.granted: list[tuple[str, str, str]] = []
        self.there: set[tuple[str, str]] = set()
        self.meta = SimpleNamespace(region_name="eu-central-1")

    def client(self, _service: str, **_: Any) -> "Aws":
        return self

    def get_paginator(self, _operation: str) -> "Aws":
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"clusters": [name]} for name in self.clusters]

    def describe_cluster(self, name: str) -> dict[str, Any]:
        arn = f"arn:aws:eks:eu-central-1:{ACCOUNT}:cluster/{name}"
        return {"cluster": {"name": name, "arn": arn, "tags": dict(self.clusters[name])}}

    def describe_availability_zones(self) -> dict[str, Any]:
        return {"AvailabilityZones": [{"ZoneId": "euc1-az2", "ZoneName": "eu-central-1a"}]}

    def create_access_entry(self, **entry: Any) -> None:
        if (entry["clusterName"], entry["principalArn"]) in self.there:
            raise ClientError({"Error": {"Code": "ResourceInUseException", "Message": "there"}}, "CreateAccessEntry")
        self.granted.append((entry["clusterName"], *entry["kubernetesGroups"], entry["principalArn"]))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    found = Aws(Blue={"team": "a", "env": "prod"}, green={"team": "a", "env": "test"}, red={})
    monkeypatch.setattr(boto3, "Session", lambda **_: found)
    monkeypatch.setattr(command, "role_arns", lambda stack, roles: {role: f"arn:{stack}:{role}" for role in roles})
    return found


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    monkeypatch.setattr(live, "list_objects", lambda *_: listed)
    return listed


def named(name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    labels = {"env": "prod", "cluster.x-k8s.io/owned": "x", "topology.kubernetes.io/zone": "a", "bad": "a b"}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, **fields}


class TestEks:
    def test_clusters_with_all_the_tags_become_records_without_dry_run(self, aws: Aws) -> None:
        found = records(discover("eks", "--tag", "team=a", "--tag", "env=prod"))
        assert found == {
            "blue": {
                "id": "blue",
                "flavours": ["cluster-api"],
                "access": {"kind": "eks", "name": "Blue", "region": "eu-central-1"},
                "region": "eu-central-1",
                "zone_ids": {"euc1-az2": "eu-central-1a"},
                "account": ACCOUNT,
                "labels": {"team": "a", "env": "prod"},
            }
        }

    def test_access_entries_are_proposed_as_commands_and_not_created(self, aws: Aws) -> None:
        result = discover("eks", "--tag", "env=prod", "--stack", "evenkeel")
        commands = [line for line in result.stdout.splitlines() if line.startswith("# aws eks create-access-entry ")]
        assert len(commands) == 4
        assert sum("--kubernetes-groups evenkeel " in line and "RebalanceRole" in line for line in commands) == 1
        assert sum("--kubernetes-groups evenkeel-readers " in line for line in commands) == 3
        assert aws.granted == []
        assert set(records(result)) == {"blue"}

    def test_grant_creates_missing_access_entries_once_confirmed(self, aws: Aws) -> None:
        aws.there.add(("Blue", "arn:evenkeel:CheckRole"))
        arguments = ["eks", "--tag", "env=prod", "--stack", "evenkeel", "--grant"]
        assert discover(*arguments, stdin="n\n").exit_code == 2
        assert aws.granted == []
        assert "has an access entry already" in discover(*arguments, "--yes").stderr
        groups = [(cluster, group) for cluster, group, _ in aws.granted]
        assert groups == [("Blue", "evenkeel"), ("Blue", "evenkeel-readers"), ("Blue", "evenkeel-readers")]

    @pytest.mark.parametrize(
        "arguments", [["--tag", "env"], ["--tag", "env=nowhere"], ["--tag", "env=prod", "--grant"]]
    )
    def test_a_bad_tag_or_no_cluster_is_one_line(self, aws: Aws, arguments: list[str]) -> None:
        result = discover("eks", *arguments)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)

    @pytest.mark.parametrize(
        ("error", "code", "says"),
        [
            (NoCredentialsError(), 1, "no AWS credentials: Unable to locate credentials: log in, or name a profile"),
            (NoRegionError(), 2, "no AWS region: give --region, or set AWS_REGION or the region of the profile"),
            (EndpointConnectionError(endpoint_url="https://eks"), 1, "AWS: Could not connect"),
        ],
    )
    def test_missing_access_to_aws_is_one_line_with_the_remedy(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, says: str
    ) -> None:
        def session(**_: object) -> None:
            raise error

        monkeypatch.setattr(boto3, "Session", session)
        result = discover("eks", "--tag", "env=prod")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)
        assert result.stderr.startswith(f"evenkeel: {says}")


class TestClusterApi:
    def test_each_cluster_is_a_record_with_a_unique_id(self, objects: list[dict[str, Any]]) -> None:
        objects += [named("one", "a"), named("one", "b"), named("two", "b")]
        found = records(discover("cluster-api", "--secret", "evenkeel/management"))
        assert set(found) == {"a.one", "b.one", "two"}
        assert found["two"] == {
            "id": "two",
            "flavours": ["cluster-api"],
            "access": {"kind": "kubeconfig", "secret": "evenkeel/management"},
            "namespaces": ["b"],
            "discovery": ["clusterapi:namespace=b,clusterName=two"],
            "labels": {"env": "prod"},
        }

    def test_without_a_secret_a_record_has_no_access(self, objects: list[dict[str, Any]]) -> None:
        assert (discover("cluster-api").exit_code, discover("cluster-api").stdout) == (2, "")
        objects.append(named("one", "a"))
        result = discover("cluster-api")
        assert "# access is missing" in result.stdout
        assert "access" not in read_document(result.stdout)["clusters"][0]


class TestGardener:
    def test_a_shoot_is_its_namespace_on_the_seed(self, objects: list[dict[str, Any]]) -> None:
        spec = {"region": "eu-central-1", "provider": {"type": "aws"}, "seedName": "s1"}
        azure = {**spec, "provider": {"type": "azure"}}
        objects += [
            named("blue", "garden-dev", spec=spec, status={"technicalID": "shoot--dev--blue", "seedName": "s2"}),
            named("new", "garden-dev", spec=spec),
            named("az", "garden-dev", spec=azure, status={"technicalID": "shoot--dev--az"}),
        ]
        result = discover("gardener", "--secret", "evenkeel/{seed}")
        assert "garden-dev/new is left out" in result.stdout
        found = records(result)
        assert found["shoot--dev--blue"] == {
            "id": "shoot--dev--blue",
            "flavours": ["gardener"],
            "access": {"kind": "kubeconfig", "secret": "evenkeel/s2"},
            "namespaces": ["shoot--dev--blue"],
            "region": "eu-central-1",
            "labels": {"env": "prod"},
        }
        assert "region" not in found["shoot--dev--az"]

    def test_a_seed_is_a_record_of_all_its_shoots(self, objects: list[dict[str, Any]]) -> None:
        objects.append(named("s1", "", spec={"provider": {"type": "aws", "region": "eu-central-1"}}))
        found = records(discover("gardener", "--seeds", "--secret", "evenkeel/{seed}"))
        assert (found["s1"]["access"]["secret"], found["s1"]["region"]) == ("evenkeel/s1", "eu-central-1")
        assert "namespaces" not in found["s1"]
