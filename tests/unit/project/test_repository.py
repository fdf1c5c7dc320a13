"""Rules of this repository: short functions, one set of commands, and the files that CONTRIBUTING.md names."""

import ast
import re

import yaml

from deploy.package import PLUGIN, SUMS
from sandbox.template import ROOT

LONGEST = 50
PRODUCT = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for folder in ("layers", "functions")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_hooks_and_the_workflow_only_call_the_makefile() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    commands = [hook["entry"] for repository in hooks["repos"] for hook in repository["hooks"]]
    commands += [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert len(commands) == 3
    assert set(commands) <= {f"make {target}" for target in TARGETS}


def test_makefile_readme_and_contributing_name_the_same_time_for_make_test() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "README.md", "CONTRIBUTING.md")}
    assert re.search(r"^test: .*\(nine minutes on two cores\)$", texts["Makefile"], re.M)
    assert re.search(r"^make test .*: nine minutes$", texts["README.md"], re.M)
    assert re.search(r"^\| anything \| `make test`.* \| 9 min \|$", texts["CONTRIBUTING.md"], re.M)


WORKFLOWS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").iterdir()}


def test_workflows_pin_each_action_to_one_commit_and_contain_no_address() -> None:
    used = {line for text in WORKFLOWS.values() for line in re.findall(r"- uses: (.*)", text)}
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v[\d.]+", line) for line in used)
    assert len({line.partition("@")[0] for line in used}) == len(used)
    assert not any("://" in text for text in WORKFLOWS.values())


def test_known_holes_of_each_lock_are_checked_for_with_each_change_and_each_week() -> None:
    workflow = yaml.safe_load(WORKFLOWS["holes"])
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make audit"]
    assert workflow[True].keys() == {"push", "pull_request", "schedule"}, "YAML reads the key `on` as True"
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\naudit: ")[2].partition("\n\n")[0]
    assert "requirements/*.txt layers/dependencies/requirements.txt" in recipe
    assert "--require-hashes" in recipe


def test_a_tag_builds_the_release_and_publishes_only_what_its_checksums_hold() -> None:
    workflow = yaml.safe_load(WORKFLOWS["release"])
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert set(commands[0].removeprefix("make ").split()) <= TARGETS
    assert commands[1].endswith(f"sha256sum --check --strict {SUMS}")
    assert "--draft" in commands[2]
    assert {PLUGIN, SUMS} <= set(commands[2].split())
    assert workflow["permissions"] == {"contents": "write"}


def test_contributing_names_commands_and_files_that_exist() -> None:
    code = re.findall(r"`([^`\n]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert {text.removeprefix("make ") for text in code if text.startswith("make ")} <= TARGETS
    named = [text for text in code if re.fullmatch(r"[\w.-]+(/[\w.-]+)+|[\w-]+\.(?:yaml|md)", text)]
    assert len(named) > 20
    assert [text for text in named if not (ROOT / text).exists()] == []


def overlong(source: str) -> list[str]:
    """Return the functions of more than 50 lines, docstring included, without a reason in a comment above `def`."""
    lines = source.splitlines()
    return [
        f"{function.name}: {length} lines"
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST
        and not re.match(r"\s*# ?\w+ \w+ \w+", lines[function.lineno - 2])
    ]


def test_a_function_is_within_50_lines_or_has_a_reason() -> None:
    assert [f"{path}: {found}" for path, source in PRODUCT.items() for found in overlong(source)] == []


def test_an_ignored_limit_of_the_linter_has_a_reason() -> None:
    without = re.compile(r"# noqa: (?:C901|PLR0913)(?:, ?(?:C901|PLR0913))*\s*$", re.M)
    assert [str(path) for path, source in PRODUCT.items() if without.search(source)] == []
