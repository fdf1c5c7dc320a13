"""The imports of a user's first commands, by name: they take most of their time."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.test_cli import pool_of

PACKAGES = {
    *("evenkeel", "evenkeel_cli", "typer", "annotated_doc", "shellingham", "rich", "yaml"),
    *("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "msgspec"),
}
# Modules that a plan of machine objects does not use, with their imports.
NOT_PLANNED = (
    *("evenkeel.application.ports", "evenkeel.application.actions"),
    *("evenkeel.adapters.auto_scaling.read", "evenkeel.adapters.kubernetes.client", "evenkeel.adapters.aws"),
    *("evenkeel.adapters.kubernetes.read.pods", "evenkeel.adapters.kubernetes.read.workload_objects"),
    *("evenkeel.domain.demand.advice", "evenkeel.domain.demand.simulation", "evenkeel.domain.survival.pods"),
    *("evenkeel.domain.demand.node_info", "evenkeel.domain.demand.pod_groups", "evenkeel.domain.demand.pods"),
    *("evenkeel_cli.answers", "evenkeel.texts.incidents", "evenkeel.domain.incidents"),
)
# Modules that a table of a plan does not use, apart from those.
NOT_IN_A_TABLE = ("evenkeel_cli.state_file", "evenkeel.adapters.codec", "rich.table")
# Modules that print no answer of a stack.
NOT_PRINTED = (
    *("evenkeel.record", "evenkeel.application.actions", "evenkeel.application.ports", "evenkeel.domain.plan"),
    *("evenkeel.domain.model.states", "evenkeel.domain.model.workload", "evenkeel.domain.model.demand", "kubernetes"),
)
_PROGRAM = """
import atexit, sys
before = set(sys.modules)
atexit.register(lambda: print(*sorted(set(sys.modules) - before), file=sys.stderr))
from evenkeel_cli.main import main
main()
"""


def imports(*words: str, **settings: str) -> tuple[int, set[str]]:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, check=False, env=settings or None
    )
    return ran.returncode, set(ran.stderr.splitlines()[-1].split())


def needless(imported: set[str], names: tuple[str, ...]) -> list[str]:
    return [module for module in sorted(imported) if any(f"{module}.".startswith(f"{name}.") for name in names)]


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_plan_of_files_imports_only_what_it_uses(tmp_path: Path, form: str) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(pool_of(1, 2, 3)), encoding="utf-8")
    code, imported = imports("plan", "-f", str(file), "-o", form)
    assert code == 0
    packages = {module.partition(".")[0] for module in imported} - sys.stdlib_module_names
    assert {package for package in packages if not package.startswith(("_", "cython"))} == PACKAGES
    assert needless(imported, NOT_PLANNED if form == "json" else NOT_PLANNED + NOT_IN_A_TABLE) == []


@pytest.mark.parametrize("command", ["status", "explain", "history"])
def test_a_command_that_prints_an_answer_imports_no_classes_of_plans_and_records(command: str) -> None:
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "eu-central-1"}
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    code, imported = imports(command, "--stack", "s", **nowhere, **credentials)
    assert code == 1
    assert "botocore.client" in imported
    assert needless(imported, NOT_PRINTED) == []
