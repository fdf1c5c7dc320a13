"""`evenkeel plan --auto-scaling` as a user runs it, against the simulated API over HTTP."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from evenkeel.adapters.documents import read_document
from evenkeel.application.fleet.records import read_fleet
from evenkeel_cli.main import app
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.calls import AwsError
from sandbox.auto_scaling.server import AwsServer
from sandbox.server import LoopbackServer, Response
from tests.aws_account import ZONES, A, Account


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


class Aws:
    """AWS over HTTP. Its answers depend on the access key."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.server = AwsServer(self.find)

    def find(self, access_key: str, region: str) -> dict[str, Any]:
        refusals = {
            "DENIED": AwsError("AccessDenied", "User: me is not authorized", 403),
            "UNKNOWN": AwsError("InvalidClientTokenId", "The security token included in the request is invalid.", 403),
            "EXPIRED": AwsError("ExpiredToken", "The security token included in the request is expired", 403),
        }
        if access_key in refusals:
            raise refusals[access_key]
        api = self.account.api if region == self.account.api.region else AutoScaling(self.account.cloud)
        return {"autoscaling": api, "eks": self.account.eks}

    def variables(self, key: str) -> dict[str, str | None]:
        """Return the environment of a user with this access key, or without credentials."""
        keys = {"AWS_ACCESS_KEY_ID": key or None, "AWS_SECRET_ACCESS_KEY": "secret" if key else None}
        unset = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "EVENKEEL_REGION")
        files = {name: str(self.account.folder / "none") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
        return {
            **keys,
            **dict.fromkeys(unset),
            **files,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_ENDPOINT_URL_EC2": self.server.url,
            **self.server.environment(),
        }

    def invoke(self, *arguments: str, key: str = "OK", region: str = "eu-central-1") -> Result:
        return self.run("plan", "--auto-scaling", *arguments, key=key, region=region)

    def run(self, *arguments: str, key: str = "OK", region: str = "eu-central-1") -> Result:
        place = ["--region", region] if region else []
        return CliRunner().invoke(app, [*arguments, *place], env=self.variables(key), catch_exceptions=False)


@pytest.fixture
def aws(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.delenv("EVENKEEL_REGION", raising=False)
    account.api.clock.run(datetime.now(UTC) - account.api.clock.now - timedelta(minutes=8))
    with (aws := Aws(account)).server:
        yield aws


class TestLive:
    def test_a_zone_without_capacity_is_fenced(self, account: Account, aws: Aws) -> None:
        account.create_pool()
        account.cloud.exhaust_zone(A)
        account.desire(f"workers-{A}", 5)
        document = json.loads(aws.invoke("-o", "json").stdout)
        (pool,) = document["pools"]
        assert [group["state"] for group in pool["groups"]] == ["fenced", "healthy", "healthy"]
        # The refusal is two minutes old, so cluster-autoscaler has had time to give the launches up.
        assert pool["groups"][0]["requested"] == {"from": 5, "to": 2}

    def test_untagged_groups_and_groups_of_several_zones_get_a_plan(self, account: Account, aws: Aws) -> None:
        for zone in ZONES:
            account.create(f"workers-{zone[-1]}", zone)
        account.create("wide", *ZONES)
        before = copy.deepcopy(account.groups())
        document = json.loads(aws.invoke("-o", "json").stdout)
        (pool,) = document["pools"]
        assert pool["asIf"] == {"tags": {"evenkeel.dev/pool": "workers"}}
        assert len(document["proposals"]) == 1
        (split,) = document["ifSplit"]
        assert (split["group"], len(split["pool"]["groups"])) == ("wide", 3)
        assert account.groups() == before

    def test_nothing_is_written(self, account: Account, aws: Aws) -> None:
        account.create_pool()
        before = copy.deepcopy(account.groups())
        aws.invoke()
        assert account.groups() == before

    def test_the_process_prints_the_plan(self, account: Account, aws: Aws) -> None:
        account.create_pool()
        variables = {**os.environ, **aws.variables("OK")}
        command = [sys.executable, "-m", "evenkeel_cli.main", "plan", "--auto-scaling", "--region", "eu-central-1"]
        environment = {name: value for name, value in variables.items() if value is not None}
        done = subprocess.run([*command, "-o", "name"], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"workers-{zone}" for zone in ZONES]

    def test_more_groups_than_one_page_are_read(self, account: Account, aws: Aws) -> None:
        for number in range(120):
            account.create(f"workers-{number:03}", ZONES[number % 3], nodes=0, bounds=(0, 1), pool="w")
        assert len(aws.invoke("-o", "name").stdout.splitlines()) == 120

    @pytest.mark.parametrize(
        ("key", "region", "code", "says"),
        [
            ("", "eu-central-1", 1, "no AWS credentials: Unable to locate credentials: log in, or name a profile"),
            ("OK", "", 2, "no AWS region: give --region, or set AWS_REGION or the region of the profile"),
            ("DENIED", "eu-central-1", 1, "missing permission autoscaling:DescribeAutoScalingGroups: User: me is not"),
            ("UNKNOWN", "eu-central-1", 1, "AWS does not accept the credentials: The security token"),
            ("EXPIRED", "eu-central-1", 1, "the AWS credentials have expired: renew them and ask again"),
        ],
    )
    def test_what_the_caller_lacks_is_one_line(self, aws: Aws, key: str, region: str, code: int, says: str) -> None:
        result = aws.invoke(key=key, region=region)
        assert result.exit_code == code
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"evenkeel: {says}")

    @pytest.mark.parametrize("command", ["plan --auto-scaling", "discover auto-scaling"])
    @pytest.mark.parametrize("status", [200, 302, 403, 407])
    @pytest.mark.parametrize("page", [b"<html><body>log in</body></html>", b"<!DOCTYPE html><html><br>log in", b""])
    def test_a_page_of_a_proxy_is_one_line(self, aws: Aws, status: int, page: bytes, command: str) -> None:
        answer = Response(status=status, body=page, content_type="text/html")
        with LoopbackServer(lambda _request: answer) as proxy:
            variables = {**aws.variables("OK"), "AWS_ENDPOINT_URL_AUTO_SCALING": proxy.url}
            arguments = [*command.split(), "--region", "eu-central-1"]
            result = CliRunner().invoke(app, arguments, env=variables, catch_exceptions=False)
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert "proxy between" in line
        assert "please report" not in line

    def test_without_groups_the_plan_says_how_groups_are_found(self, aws: Aws) -> None:
        result = aws.invoke(region="us-east-1")
        assert result.exit_code == 4
        assert result.stdout.splitlines()[-1] == (
            "no Auto Scaling group of a cluster in us-east-1 of this account: looked for tags eks:…, "
            "kubernetes.io/cluster/…, k8s.io/cluster-autoscaler/… and evenkeel.dev/…: check --region and the "
            "credentials, or set tag evenkeel.dev/pool on the groups of a pool"
        )

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--role-arn", "admin"], "--role-arn is 'admin': write arn:aws:iam::ACCOUNT:role/NAME"),
            (["-f", "groups.json"], "--auto-scaling reads AWS itself: leave out --stack, -f"),
            (["--context", "blue"], "--auto-scaling reads AWS itself: leave out --stack, -f"),
        ],
    )
    def test_options_that_do_not_fit_are_one_line(self, aws: Aws, arguments: list[str], says: str) -> None:
        result = aws.invoke(*arguments)
        assert (result.exit_code, result.stderr.startswith(f"evenkeel: {says}")) == (2, True)


class TestDiscover:
    @staticmethod
    def records(result: Result) -> dict[str, Any]:
        assert result.exit_code == 0, result.output
        return read_fleet(["found"], lambda _: read_document(result.stdout), lambda _, path: path)

    def test_each_cluster_that_tags_name_becomes_a_record_without_dry_run(self, account: Account, aws: Aws) -> None:
        account.create_pool()
        account.create("green", A, tags={"eks:cluster-name": "green", "k8s.io/cluster-autoscaler/green": "owned"})
        account.create("web", A, tags={"team": "web"})
        result = aws.run("discover", "auto-scaling")
        access = {"kind": "auto-scaling", "region": "eu-central-1"}
        usual = {"flavours": ["auto-scaling"], "access": access, "region": "eu-central-1"}
        usual["account"] = "123456789012"
        found = self.records(result)
        assert found == {
            "blue": {"id": "blue", **usual, "discovery": ["asg:tag=kubernetes.io/cluster/blue"]},
            "green": {"id": "green", **usual, "discovery": ["asg:tag=eks:cluster-name=green"]},
        }
        assert "# 1 group left out: no tag names a cluster" in result.stdout
        assert "# green: 1 group without tag evenkeel.dev/pool: evenkeel plan --auto-scaling" in result.stdout

    def test_the_proposed_record_selects_the_groups(self, account: Account, aws: Aws) -> None:
        account.create_pool()
        record = account.file("record.json", self.records(aws.run("discover", "auto-scaling"))["blue"])
        assert aws.invoke("--record", record, "-o", "name").stdout.splitlines() == [f"workers-{zone}" for zone in ZONES]

    def test_groups_that_share_no_tag_are_named(self, account: Account, aws: Aws) -> None:
        account.create("a", A, tags={"eks:cluster-name": "blue"})
        account.create("b", A, tags={"k8s.io/cluster-autoscaler/blue": "owned"})
        result = aws.run("discover", "auto-scaling")
        assert result.exit_code == 2
        assert result.stderr.splitlines()[0].startswith("blue is left out: its groups share no tag")

    @pytest.mark.parametrize(("tag", "says"), [("team", "--tag is 'team': write KEY=VALUE"), ("a=b", "no cluster")])
    def test_a_bad_tag_or_no_cluster_is_one_line(self, account: Account, aws: Aws, tag: str, says: str) -> None:
        account.create_pool()
        result = aws.run("discover", "auto-scaling", "--tag", tag)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"evenkeel: {says}")

    def test_a_missing_right_is_one_line(self, aws: Aws) -> None:
        result = aws.run("discover", "auto-scaling", key="DENIED")
        assert result.stderr.startswith("evenkeel: missing permission autoscaling:DescribeAutoScalingGroups: ")
