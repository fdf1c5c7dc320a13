"""`evenkeel ACTION --stack` against the built operator function in Lambda's real runtime client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.cli.main import app
from sandbox.aws import Deployment
from sandbox.kube.world import Pool, World
from sandbox.lambda_runtime import HostBuild
from sandbox.stack import StackEndpoint

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
        StackEndpoint("evenkeel", lambda function, event: operator.invoke(event)) as endpoint,
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
        assert (history["cluster"], history["decisions"]) == ("blue", [])
        assert "did you mean workers?" in run("explain", "--pool", "worker", code=2)
        assert not any(request.method == "PATCH" for request in api.requests)
