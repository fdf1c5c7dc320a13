"""`evenkeel ACTION --stack` against the built functions in Lambda's real runtime client."""

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from evenkeel_cli.main import app
from sandbox.aws import Deployment
from sandbox.kube.world import World
from sandbox.lambda_runtime import HostBuild
from sandbox.stack import CALLER, StackEndpoint
from tests.integration.staging import UNEVEN, patches, put_kubeconfig


def run(endpoint: StackEndpoint, action: str, *arguments: str, code: int = 0) -> Any:
    """Run an action on the cluster `blue`. Return its answer, or its output if it ends with a code."""
    command = [action, "--stack", "evenkeel", "--cluster", "blue", *arguments]
    result = CliRunner().invoke(app, command, env=endpoint.environment())
    assert result.exit_code == code, result.output
    return result.output if code else json.loads(result.stdout)


def test_a_cluster_is_registered_explained_validated_and_left_from_a_laptop(
    twin: HostBuild, deployment: Deployment, tmp_path: Path
) -> None:
    with (
        World(clusters=["cluster-api"], pools=UNEVEN, clock=lambda: datetime.now(UTC), settings=None) as world,
        twin.process(deployment, "AdminFunction") as operator,
        twin.process(deployment, "OperatorFunction") as duty,
        twin.process(deployment, "WidgetFunction") as reader,
        StackEndpoint(
            "evenkeel",
            lambda function, event: {"AdminFunction": operator, "OperatorFunction": duty}.get(function, reader).invoke(
                event
            ),
        ) as endpoint,
    ):
        cluster = world.clusters["cluster-api"]
        record = {"flavours": ["cluster-api"], "access": put_kubeconfig(deployment, "blue", cluster), "dry_run": True}
        (tmp_path / "record.json").write_text(json.dumps(record))
        asked = partial(run, endpoint)
        assert asked("register", "--record", str(tmp_path / "record.json"), "-o", "json")["dryRun"] is True
        (pool,) = asked("status", "-o", "json")["pools"]
        assert [group["running"] for group in pool["groups"]] == [4, 1, 1]
        assert asked("plan", "-o", "json")["pools"][0]["name"] == "workers"
        reported = asked("explain", "--pool", "workers", "-o", "json")
        assert len(reported["groups"]) == 3
        assert asked("validate", "--fix", "-o", "json")["diff"] == []
        assert asked("pause", "--pool", "workers", "-o", "json")["ok"]
        assert asked("resume", "--pool", "workers", "-o", "json")["ok"]
        assert asked("restore", "--pool", "workers", "--yes", "-o", "json")["ok"]
        history = asked("record")
        reported = [(decision["cause"], decision["by"]) for decision in history["decisions"]]
        assert reported == [(action, CALLER) for action in ("register", "pause", "resume", "restore")]
        assert "did you mean workers?" in asked("explain", "--pool", "worker", code=2)
        assert patches(cluster) == 0
