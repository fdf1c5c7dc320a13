"""Each file of events/, sent with `evenkeel send` to the functions in Lambda's real runtime client."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel_cli.main import app
from evenkeel_cli.send import target_of
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.lambda_runtime import HostBuild, RuntimeProcess
from sandbox.local_stack import LocalStack
from sandbox.template import ROOT, Template
from sandbox.triggers import Invoke
from tests.integration.staging import EVENTS

PAGE = (ROOT / "docs" / "guides" / "test-events.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z-]+)` \| ([a-z_]+) \| (.*) \|$", PAGE, re.M)
EFFECTS = {name: re.findall(r"`([^`]+)`", effect) for name, _, effect in ROWS}


class Stage:
    """The stack of the sandbox, whose functions are separate processes. `reset` makes it new for each file."""

    def __init__(self, aws: AwsEndpoints, twin: HostBuild) -> None:
        self._aws, self._twin = aws, twin
        self._processes: dict[str, RuntimeProcess] = {}
        self.stack = LocalStack(aws, self._functions)

    def _functions(self, deployment: Deployment, stack: ExitStack) -> Invoke:
        def invoke(function: str, event: Any) -> Any:
            if function not in self._processes:
                self._processes[function] = stack.enter_context(self._twin.process(deployment, function))
            return self._processes[function].invoke(event)

        return invoke

    def start(self) -> None:
        clusters = self.stack.world.clusters.values()
        self._groups = [(cluster, view) for cluster in clusters for view in cluster.groups()]

    def reset(self) -> None:
        """Empty the table, give the groups their first numbers, and register the clusters again."""
        dynamodb, table = self._aws.client("dynamodb"), self.stack.deployment.table
        for page in dynamodb.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                dynamodb.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})
        for cluster, view in self._groups:
            where = (cluster.scalables, view.namespace, view.name)
            added = dict.fromkeys(cluster.store.get(*where)["metadata"].get("annotations", ()))
            annotations = added | view.annotations
            cluster.store.patch(*where, {"metadata": {"annotations": annotations}}, manager="owner")
            cluster.store.scale(*where, view.requested, manager="owner")
        self.stack.register_all()

    def send(self, name: str) -> str:
        """Send a file. Return the command's output and the effect."""
        result = CliRunner().invoke(app, ["send", str(ROOT / "events" / f"{name}.json")], env=self.stack.environment())
        assert result.exit_code == 0, result.output
        return "\n".join([result.output, *self.stack.effects()])


@pytest.fixture(scope="module")
def started(aws: AwsEndpoints, twin: HostBuild) -> Iterator[Stage]:
    stage = Stage(aws, twin)
    stage.start()
    with stage.stack:
        yield stage


@pytest.fixture
def stage(started: Stage) -> Stage:
    started.reset()
    return started


def test_the_page_has_each_file_of_events_with_its_function() -> None:
    assert [name for name, _, _ in ROWS] == sorted(EVENTS)
    functions = Template().resources
    for name, folder, _ in ROWS:
        code = functions[target_of(name).function]["Properties"]["CodeUri"]
        assert code == f"functions/{folder}", name
    assert {folder for _, folder, _ in ROWS} == {path.parent.name for path in ROOT.glob("functions/*/app.py")}
    named = set(re.findall(r"\b([A-Z]\w+Function)\b", PAGE)) - {"InvokeFunction"}
    assert named <= functions.keys()


@pytest.mark.parametrize("name", EFFECTS)
def test_a_file_has_the_effect_that_the_page_names(stage: Stage, name: str) -> None:
    printed = stage.send(name)
    assert [effect for effect in EFFECTS[name] if effect not in printed] == [], printed


def test_a_file_that_is_sent_again_is_a_new_failure_which_does_not_prolong_the_backoff(stage: Stage) -> None:
    def until() -> str:
        answer = stage.stack.invoke("WidgetFunction", EVENTS["widget-status"])
        (backoff,) = (group["backoffUntil"] for group in answer["groups"].values() if group["backoffUntil"])
        return str(backoff)

    assert "capacity failure recorded" in stage.send("provisioning-failure")
    fenced = until()
    assert "capacity failure recorded" in stage.send("provisioning-failure")
    assert until() == fenced
