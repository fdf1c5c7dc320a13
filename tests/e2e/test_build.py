"""What `sam build` makes is what Lambda needs: arm64, compiled, small, and without a second boto3."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from sandbox.lambda_runtime import FunctionError, HostBuild, RuntimeProcess
from sandbox.template import ROOT, Template

pytestmark = pytest.mark.slow

LIMIT = 250 * 1024 * 1024
"""Bytes that Lambda allows for a function and its layers, unpacked."""

ELF_MACHINE = {"x86_64": 62, "aarch64": 183, "arm64": 183}
LAYERS = ("EvenkeelLayer", "DependenciesLayer")


def machine_of(library: Path) -> int:
    """The processor that an ELF file is for (e_machine, two bytes at offset 18)."""
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF", f"{library} is no ELF file"
    return int.from_bytes(header[18:20], "little")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def assert_compiled(layer: Path, tag: str) -> None:
    """Every source has a compiled file that Python takes without looking at the source's time or content."""
    sources = [file for file in (layer / "python").rglob("*.py") if file.parent.name != "__pycache__"]
    assert sources
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
        assert compiled.exists(), f"{source} is not compiled"
        # PEP 552: bit 0 says hash-based, bit 1 says that the hash is checked
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01, f"{compiled} is not of the unchecked kind"


def test_the_template_passes_sams_own_linter(sam: Path) -> None:
    environment = os.environ | {"SAM_CLI_TELEMETRY": "0"}
    checked = subprocess.run(
        [sam, "validate", "--lint", "--template", ROOT / "template.yaml", "--region", "eu-central-1"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_function_and_layer_of_the_template_is_built(deployable: Path) -> None:
    for name, function in Template().functions().items():
        module = f"{function.handler.rsplit('.', 1)[0]}.py"
        assert (deployable / name / module).read_bytes() == (function.code / module).read_bytes()
        assert not list((deployable / name).rglob("*.so")), f"{name} brings libraries of its own"
    for layer in LAYERS:
        assert (deployable / layer / "python").is_dir()
        assert not (deployable / layer / "python" / "python").exists()


def test_the_deployable_layers_are_compiled_for_lambdas_python(deployable: Path) -> None:
    for layer in LAYERS:
        assert_compiled(deployable / layer, "cpython-313")


def test_the_deployable_libraries_are_for_arm64_and_for_its_python(deployable: Path) -> None:
    libraries = list(deployable.rglob("*.so"))
    assert libraries
    for library in libraries:
        assert machine_of(library) == ELF_MACHINE["aarch64"], library
        assert "cpython-313" in library.name or "abi3" in library.name, library


def test_the_artefact_stays_far_below_lambdas_limit(deployable: Path) -> None:
    layers = sum(size_of(deployable / layer) for layer in LAYERS)
    largest = max(size_of(deployable / name) for name in Template().functions())
    assert layers + largest < LIMIT / 2


def test_the_runtimes_own_packages_and_the_command_lines_are_not_brought_along(deployable: Path) -> None:
    brought = {path.name for layer in LAYERS for path in (deployable / layer / "python").iterdir()}
    assert not brought & {"boto3", "botocore", "s3transfer", "awslambdaric", "typer", "rich", "aiohttp"}
    assert not (deployable / "DependenciesLayer" / "python" / "kubernetes" / "aio").exists()
    assert not (deployable / "EvenkeelLayer" / "python" / "evenkeel" / "cli").exists()


def test_the_twin_is_the_same_artefact_for_this_machine(twin: HostBuild) -> None:
    tag = subprocess.check_output([twin.python, "-c", "import sys; print(sys.implementation.cache_tag)"], text=True)
    for layer in twin.layers:
        assert_compiled(layer, tag.strip())
    if platform.system() == "Linux":
        for library in twin.layers[1].rglob("*.so"):
            assert machine_of(library) == ELF_MACHINE[platform.machine()], library


def test_twin_and_deployable_hold_the_same_packages(twin: HostBuild, deployable: Path) -> None:
    def packages(layer: Path) -> set[str]:
        return {path.name for path in (layer / "python").iterdir() if path.is_dir() and path.name != "__pycache__"}

    for layer in twin.layers:
        assert packages(layer) == packages(deployable / layer.name)


def test_every_module_of_our_code_can_be_imported_from_the_layers_alone(twin: HostBuild, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import importlib, pkgutil\n"
        "import evenkeel\n"
        "def handler(event, context):\n"
        "    names = [m.name for m in pkgutil.walk_packages(evenkeel.__path__, 'evenkeel.')]\n"
        "    for name in names:\n"
        "        importlib.import_module(name)\n"
        "    return {'imported': names, 'from': evenkeel.__file__}\n"
    )
    with RuntimeProcess(
        function=tmp_path, python=twin.python, layers=twin.layers, runtime=twin.runtime, timeout=60
    ) as runtime:
        answer = runtime.invoke({})
    assert "evenkeel.domain.plan" in answer["imported"]
    assert Path(answer["from"]).is_relative_to(twin.layers[0])


def test_a_function_that_cannot_be_imported_says_so_and_leaves_no_process(twin: HostBuild, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import not_there\n")
    with (
        pytest.raises(FunctionError, match="No module named 'not_there'"),
        RuntimeProcess(function=tmp_path, python=twin.python, runtime=twin.runtime),
    ):
        pytest.fail("it started")


def test_a_handler_that_raises_fails_one_call_and_serves_the_next(twin: HostBuild, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "def handler(event, context):\n    if event['fail']:\n        raise ValueError('as asked')\n    return event\n"
    )
    with RuntimeProcess(function=tmp_path, python=twin.python, runtime=twin.runtime) as runtime:
        with pytest.raises(FunctionError, match="ValueError: as asked"):
            runtime.invoke({"fail": True})
        assert runtime.invoke({"fail": False}) == {"fail": False}
    assert runtime.init_seconds > 0


def test_a_layer_is_compiled_under_the_path_that_lambda_shows_in_traces(twin: HostBuild) -> None:
    compiled = next((twin.layers[0] / "python" / "evenkeel" / "__pycache__").glob("__init__*.pyc")).read_bytes()
    assert b"/opt/python/evenkeel/__init__.py" in compiled
