"""`evenkeel ACTION --stack` against the built functions in Lambda's real runtime client."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.cli.main import app
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.world import Pool, World
from sandbox.lambda_runtime import HostBuild
from sandbox.stack import CALLER, StackEndpoint
from sandbox.triggers import Triggers

pytestmark = pytest.mark.slow


def test_a_cluster_is_registered_explained_validated_and_left_from_a_laptop(
    twin: HostBuild, deployment: Deployment, tmp_path: Path
) -> None:
    pools = {"cluster-api": [Pool(name="workers", minimum=3, maximum=12, replicas=(4, 1, 1))]}
    secret = f"evenkeel/{deployment.stack}"
    given = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": secret}, "dry_run": True}
    (tmp_path / "record.json").write_text(json.dumps(given))
    with (
        World(clusters=["cluster-api"], pools=pools, clock=lambda: datetime.now(UTC), settings=None) as world,
        twin.process(deployment, "OperatorFunction") as operator,
        twin.process(deployment, "WidgetFunction") as reader,
        StackEndpoint(
            "evenkeel", lambda function, event: (operator if function == "OperatorFunction" else reader).invoke(event)
        ) as endpoint,
    ):
        api = world.clusters["cluster-api"].api
        secrets = deployment.aws.client("secretsmanager")
        secrets.create_secret(Name=secret, SecretString=json.dumps(api.kubeconfig("evenkeel")))

        def run(action: str, *arguments: str, code: int = 0) -> Any:
            command = [action, "--stack", "evenkeel", "--cluster", "blue", *arguments]
            result = CliRunner().invoke(app, command, env=endpoint.environment())
            assert result.exit_code == code, result.output
            return result.output if code else json.loads(result.stdout)

        assert run("register", "--record", str(tmp_path / "record.json"), "-o", "json")["dryRun"] is True
        (pool,) = run("status", "-o", "json")["pools"]
        assert [group["running"] for group in pool["groups"]] == [4, 1, 1]
        assert run("plan", "-o", "json")["pools"][0]["name"] == "workers"
        told = run("explain", "--pool", "workers", "-o", "json")
        assert len(told["groups"]) == 3
        assert run("validate", "--fix", "-o", "json")["diff"] == []
        assert run("pause", "--pool", "workers", "-o", "json")["ok"]
        assert run("resume", "--pool", "workers", "-o", "json")["ok"]
        assert run("restore", "--pool", "workers", "-o", "json")["ok"]
        history = run("record")
        told = [(decision["cause"], decision["by"]) for decision in history["decisions"]]
        assert told == [(action, CALLER) for action in ("register", "pause", "resume", "restore")]
        assert "did you mean workers?" in run("explain", "--pool", "worker", code=2)
        assert not any(request.method == "PATCH" for request in api.requests)


def test_a_first_deployment_records_what_switching_the_cluster_on_then_writes(
    twin: HostBuild, aws: AwsEndpoints, tmp_path: Path
) -> None:
    pools = {"cluster-api": [Pool(name="workers", minimum=3, maximum=12, replicas=(4, 1, 1))]}
    with ExitStack() as stack:
        deployment = stack.enter_context(aws.deploy())  # the template's own defaults
        world = World(clusters=["cluster-api"], pools=pools, clock=lambda: datetime.now(UTC), settings=None)
        api = stack.enter_context(world).clusters["cluster-api"].api
        names = ("OperatorFunction", "RebalanceFunction", "WidgetFunction")
        processes = {name: stack.enter_context(twin.process(deployment, name)) for name in names}
        triggers = Triggers(deployment, lambda function, event: processes[function].invoke(event))
        endpoint = stack.enter_context(
            StackEndpoint("evenkeel", lambda function, event: processes[function].invoke(event))
        )
        secret = f"evenkeel/{deployment.stack}"
        aws.client("secretsmanager").create_secret(Name=secret, SecretString=json.dumps(api.kubeconfig("evenkeel")))
        record = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": secret}}

        def run(action: str, *arguments: str) -> Any:
            command = [action, "--stack", "evenkeel", "--cluster", "blue", *arguments]
            result = CliRunner().invoke(app, command, env=endpoint.environment())
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout)

        def register(**more: Any) -> list[Any]:
            """What is decided after the record is registered: the pools of the decisions that are new."""
            known = len(run("record")["decisions"]) if more else 0
            (tmp_path / "record.json").write_text(json.dumps({**record, **more}))
            assert run("register", "--record", str(tmp_path / "record.json"), "-o", "json")["ok"]
            triggers.drain()
            assert triggers.failures == []
            return [decision["pool"] for decision in run("record")["decisions"][known:] if "pool" in decision]

        def outcomes(pools: list[Any]) -> set[str]:
            return {group.pop(name) for pool in pools for group in pool["groups"] for name in ("outcome", "result")}

        recorded = register()
        planned = run("plan", "-o", "json")["pools"]
        assert outcomes(recorded) == {"planned", "left alone"}
        assert not any(request.method == "PATCH" for request in api.requests)
        written = register(dry_run=False)
        assert outcomes(written) == {"written", "left alone"}
        assert any(request.method == "PATCH" for request in api.requests)
        assert planned == recorded == written
