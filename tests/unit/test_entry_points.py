"""The six functions stay what design says they are: parse, call one use case, answer."""

import ast
import importlib
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from evenkeel import bootstrap
from evenkeel.adapters.aws.batches import Inbox
from evenkeel.bootstrap import Container

FUNCTIONS = sorted((Path(__file__).resolve().parents[2] / "functions").glob("*/app.py"))
# Clouds, clusters and rules are met behind bootstrap and the use cases.
INNER_ROOMS = ("evenkeel.domain", "evenkeel.adapters.kubernetes", "evenkeel_cli")


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_there_are_nine_functions() -> None:
    names = [path.parent.name for path in FUNCTIONS]
    outward = ["notify", "status_page", "widget"]
    assert names == sorted(["admin", "check", "operator", "provisioning_failure", "rebalance", "scan", *outward])


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_imports_our_code_powertools_and_nothing_else(path: Path) -> None:
    names = imported(ast.parse(path.read_text(encoding="utf-8")))
    foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in foreign} <= {"evenkeel", "aws_lambda_powertools"}
    assert not [name for name in foreign if name.startswith(INNER_ROOMS)]


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_imports_bootstrap_before_all_that_is_not_pythons_own(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)]
    foreign = [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
    assert foreign[0] == "evenkeel.bootstrap"


def test_garbage_is_looked_for_again_when_all_is_imported() -> None:
    code = "import gc, evenkeel.bootstrap; print(gc.isenabled(), gc.get_freeze_count() > 0)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "True"]


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_is_short(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 40


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.parent.name)
def test_a_function_asks_the_container_for_use_cases_inboxes_and_the_clock(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_container(node.value)}
    assert asked
    named = named_for_types()
    for name in asked - {"clock"}:
        part = vars(Container)[name]
        assert isinstance(part, cached_property)
        answer = get_type_hints(part.func, localns=named)["return"]
        assert answer is Inbox or answer.__module__.startswith("evenkeel.application."), f"{name} is {answer}"


def is_container(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "container"


def named_for_types() -> dict[str, Any]:
    """What bootstrap imports for its annotations alone: use cases that are loaded where they are made."""
    tree = ast.parse(Path(bootstrap.__file__).read_text(encoding="utf-8"))
    return {
        alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
