"""What the way of working rests on: one set of commands, and files that are where CONTRIBUTING.md says."""

from __future__ import annotations

import re

import yaml

from sandbox.template import ROOT

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_hooks_and_the_workflow_call_the_makefile_and_nothing_else() -> None:
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
