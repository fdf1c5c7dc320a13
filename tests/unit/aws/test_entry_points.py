"""The Lambda functions parse, call one use case and answer."""

import ast
import importlib
import os
import subprocess
import sys
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from evenkeel import bootstrap
from evenkeel.adapters.aws.batches import Inbox
from evenkeel.bootstrap import Container
from tests.unit.project.test_config import ENVIRONMENT

FUNCTIONS = sorted((Path(__file__).resolve().parents[3] / "functions").glob("*/app.py"))
INNER_LAYERS = ("evenkeel.domain", "evenkeel.adapters.kubernetes", "evenkeel_cli")


def modules_of(path: Path) -> list[str]:
    """Return the modules outside the standard library that a file imports, in order."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]


EVERY_FUNCTION = pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.parent.name)


def test_there_are_nine_functions() -> None:
    names = [path.parent.name for path in FUNCTIONS]
    outward = ["notify", "status_page", "widget"]
    assert names == sorted(["admin", "check", "operator", "provisioning_failure", "rebalance", "scan", *outward])


def test_a_function_is_short_and_imports_only_outer_layers() -> None:
    for path in FUNCTIONS:
        names = modules_of(path)
        assert {name.partition(".")[0] for name in names} <= {"evenkeel", "aws_lambda_powertools"}, path
        assert not [name for name in names if name.startswith(INNER_LAYERS)], path
        assert len([line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]) <= 40, path


CLUSTERS = ("kubernetes", "msgspec", *(f"evenkeel.adapters.kubernetes.{part}" for part in ("access", "client", "read")))
PLANNING = (
    *("evenkeel.domain.plan", "evenkeel.domain.demand", "evenkeel.domain.convergence"),
    "evenkeel.application.rebalancing.plan",
)
PAGES = ("jinja2", "markupsafe", "evenkeel.adapters.page")
ALERTS = ("evenkeel.adapters.alerts", "evenkeel.application.incidents.alerting")
EVENTS = ("evenkeel.adapters.aws.inbound", "evenkeel.adapters.aws.sources", "evenkeel.application.rebalancing.events")
ACTIONS = ("evenkeel.application.operate", "evenkeel.application.actions")
EACH_ACTION = tuple(
    f"evenkeel.application.actions.{name}" for name in ("apply", "explain", "plan", "register", "status")
)
# A page reads the answer with the classes that write it.
ACTIONS_OF_NO_PAGE = EACH_ACTION[:-1]
NO_CLUSTER = (*CLUSTERS, *PLANNING, *PAGES, *ACTIONS)
# The use case that a function imports at its start, and the modules that this import must not load.
IMPORTS = {
    "admin": ("operate", (*CLUSTERS, *PLANNING, *PAGES, *ALERTS, *EVENTS, *EACH_ACTION)),
    "check": ("rebalancing.check", (*CLUSTERS, *PAGES, *ALERTS, *EVENTS, *ACTIONS)),
    "notify": ("incidents.alerting", (*NO_CLUSTER, *EVENTS)),
    "operator": ("operate", (*CLUSTERS, *PLANNING, *PAGES, *ALERTS, *EVENTS, *EACH_ACTION)),
    "provisioning_failure": ("rebalancing.events", (*NO_CLUSTER, *ALERTS)),
    "rebalance": ("rebalancing.rebalance", (*CLUSTERS, *PAGES, *ALERTS, *EVENTS, *ACTIONS)),
    "scan": ("fleet.scan", (*NO_CLUSTER, *ALERTS, *EVENTS)),
    "status_page": ("operate", (*CLUSTERS, *PLANNING, *ALERTS, *EVENTS, *ACTIONS_OF_NO_PAGE)),
    "widget": ("operate", (*CLUSTERS, *PLANNING, *ALERTS, *EVENTS, *ACTIONS_OF_NO_PAGE)),
}


@EVERY_FUNCTION
def test_a_start_imports_the_use_case_and_nothing_that_other_functions_need(path: Path) -> None:
    use_case, unused = IMPORTS[path.parent.name]
    code = f"import sys; sys.path.insert(0, {str(path.parent)!r}); import app; print(*sys.modules)"
    environment = os.environ | {"POWERTOOLS_METRICS_NAMESPACE": "Evenkeel", "POWERTOOLS_SERVICE_NAME": "evenkeel"}
    command = [sys.executable, "-c", code]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split())
    assert f"evenkeel.application.{use_case}" in loaded
    assert not [name for name in loaded if name.startswith(tuple(f"{other}." for other in unused)) or name in unused]
    assert all(find_spec(name) for name in unused), "a name of the table is no module any more"


def test_clusters_of_auto_scaling_groups_load_no_client_of_kubernetes() -> None:
    code = "import sys, evenkeel.adapters.auto_scaling.clusters, evenkeel.adapters.clusters; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "evenkeel.adapters.auto_scaling.cluster" in loaded
    assert not [name for name in loaded if name.startswith(("kubernetes", "evenkeel.adapters.kubernetes"))]


@pytest.mark.parametrize("kind", ["kubernetes", "auto_scaling"])
def test_threads_that_open_clusters_at_once_share_what_opens_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = cached_property(lambda container: container._opening.locked())  # no other thread creates it meanwhile
    part.__set_name__(Container, f"_{kind}_clusters")
    monkeypatch.setattr(Container, f"_{kind}_clusters", part)
    assert getattr(Container(ENVIRONMENT), f"_{kind}")() is True


@EVERY_FUNCTION
def test_a_function_takes_use_cases_inboxes_and_the_clock_from_the_container(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_container(node.value)}
    assert parts
    named = named_for_types()
    for name in parts - {"clock"}:
        part = vars(Container)[name]
        assert isinstance(part, cached_property)
        answer = get_type_hints(part.func, localns=named)["return"]
        assert answer is Inbox or answer.__module__.startswith("evenkeel.application."), f"{name} is {answer}"


def is_container(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "container"


def named_for_types() -> dict[str, Any]:
    """Return bootstrap's imports for annotations alone: use cases that are loaded where they are made."""
    tree = ast.parse(Path(bootstrap.__file__).read_text(encoding="utf-8"))
    return {
        alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
