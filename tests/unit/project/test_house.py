"""Rules of this repository: short functions, one set of commands, and the files that CONTRIBUTING.md names."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from sandbox.template import ROOT

LONGEST = 50
PRODUCT = [path for room in ("layers", "functions") for path in sorted((ROOT / room).rglob("*.py"))]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_hooks_and_the_workflow_only_call_the_makefile() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    commands = [hook["entry"] for repository in hooks["repos"] for hook in repository["hooks"]]
    commands += [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert len(commands) == 3
    assert set(commands) <= {f"make {target}" for target in TARGETS}


def test_contributing_names_commands_and_files_that_exist() -> None:
    code = re.findall(r"`([^`\n]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert {text.removeprefix("make ") for text in code if text.startswith("make ")} <= TARGETS
    named = [text for text in code if re.fullmatch(r"[\w.-]+(/[\w.-]+)+|[\w-]+\.(?:yaml|md)", text)]
    assert len(named) > 20
    assert [text for text in named if not (ROOT / text).exists()] == []


def overlong(source: str) -> list[str]:
    """Functions, docstring included, of more than 50 lines whose `def` has no comment with a reason above it."""
    lines = source.splitlines()
    return [
        f"{function.name}: {length} lines"
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST
        and not re.match(r"\s*# ?\w+ \w+ \w+", lines[function.lineno - 2])
    ]


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_function_is_within_50_lines_or_has_a_reason(path: Path) -> None:
    assert overlong(path.read_text(encoding="utf-8")) == []


def test_an_ignored_limit_of_the_linter_has_a_reason() -> None:
    for path in PRODUCT:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"# noqa: (?:C901|PLR0913)(?:, ?(?:C901|PLR0913))*\s*$", line), f"{path}: {line}"
