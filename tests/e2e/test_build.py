"""The result of `sam build` fits Lambda: arm64, compiled, small, and without a second boto3."""

import ast
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

from sandbox.lambda_runtime import FunctionError, HostBuild, RuntimeProcess
from sandbox.template import ROOT, Template

LARGEST = 40_000_000
"""Bytes of both layers, unpacked: what a cold start has to fetch. (Lambda would allow 250 MB.)"""

ELF_MACHINE = {"x86_64": 62, "aarch64": 183, "arm64": 183}
LAYERS = ("EvenkeelLayer", "DependenciesLayer")
RECIPE = ROOT / "layers" / "dependencies" / "Makefile"


def machine_of(library: Path) -> int:
    """Return the processor of an ELF file (e_machine, two bytes at offset 18)."""
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF", f"{library} is no ELF file"
    return int.from_bytes(header[18:20], "little")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def assert_compiled(layer: Path, tag: str) -> None:
    """Check that every source has a compiled file that Python uses without checking the source's time or content."""
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


def test_the_layers_stay_within_forty_megabytes(deployable: Path, twin: HostBuild) -> None:
    assert sum(size_of(deployable / layer) for layer in LAYERS) <= LARGEST
    assert sum(size_of(layer) for layer in twin.layers) <= LARGEST


def test_a_function_is_its_handler_and_nothing_else(deployable: Path) -> None:
    assert max(size_of(deployable / name) for name in Template().functions()) < 10_000


def test_every_package_that_is_shipped_has_its_reason_and_its_size(deployable: Path) -> None:
    text = (ROOT / "layers" / "dependencies" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9, -]+) \| .* \| ([0-9.]+) \|$", text, re.M)
    sizes = shipped_sizes(deployable / "DependenciesLayer" / "python")
    assert sorted(name for names, _ in rows for name in names.split(", ")) == sorted(sizes)
    for names, said in rows:
        size = sum(sizes[name] for name in names.split(", ")) / 1e6
        assert abs(size - float(said)) <= 0.15, f"{names}: {size:.1f} MB"


def shipped_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each package by its name in the lock, with its metadata."""
    sizes = {}
    for metadata in folder.glob("*.dist-info"):
        files = [line.split(",")[0] for line in (metadata / "RECORD").read_text(encoding="utf-8").splitlines()]
        tops = {file.partition("/")[0] for file in files if not file.startswith(("..", "bin/"))}
        parts = [folder / top for top in tops if (folder / top).exists()]
        parts += [compiled for part in parts for compiled in folder.glob(f"__pycache__/{part.stem}.*.pyc")]
        name = metadata.name.rpartition("-")[0].removesuffix(".dist").partition("-")[0].replace("_", "-")
        sizes[name] = sum(size_of(part) if part.is_dir() else part.stat().st_size for part in parts)
    return sizes


def test_the_runtimes_own_packages_and_the_command_lines_are_not_brought_along(deployable: Path) -> None:
    brought = {path.name for layer in LAYERS for path in (deployable / layer / "python").iterdir()}
    assert not brought & {"boto3", "botocore", "s3transfer", "awslambdaric", "typer", "rich", "aiohttp", "requests"}
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


def test_what_is_kept_of_the_kubernetes_client_imports_nothing_that_is_left_out(
    twin: HostBuild, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(
        "import importlib\n"
        "def handler(names, context):\n"
        "    missing = []\n"
        "    for name in names:\n"
        "        module, _, part = name.partition(':')\n"
        "        try:\n"
        "            if not hasattr(importlib.import_module(module), part):\n"
        "                importlib.import_module(f'{module}.{part}' if part else module)\n"
        "        except ImportError as error:\n"
        "            missing.append(f'{name}: {error}')\n"
        "    return missing\n"
    )
    kept = twin.layers[1] / "python" / "kubernetes"
    asked = {name for file in kept.rglob("*.py") for name in imports_of(file, kept)}
    # No SOCKS proxy is configured: urllib3 itself needs another package for it.
    asked.remove("urllib3.contrib.socks:SOCKSProxyManager")
    assert {"urllib3", "kubernetes.utils.keepalive:tcp_keepalive_socket_options"} <= asked
    with RuntimeProcess(
        function=tmp_path, python=twin.python, layers=twin.layers, runtime=twin.runtime, timeout=60
    ) as runtime:
        assert runtime.invoke(sorted(asked)) == [], (
            "add the file to KUBERNETES in layers/dependencies/Makefile, or the package"
        )


def imports_of(file: Path, package: Path) -> set[str]:
    """Return a file's imports, ``module`` or ``module:name``, also inside functions, without those for type checkers.

    Its tables of lazy names are no imports: the use of such a name raises an error with the name.
    """
    found: set[str] = set()
    parts = ("kubernetes", *file.relative_to(package).with_suffix("").parts)
    waiting: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            found |= {f"{module}:{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


def test_a_file_of_the_kubernetes_client_that_is_gone_stops_the_build_by_name(tmp_path: Path) -> None:
    used = re.search(r"^KUBERNETES := ((?:.*\\\n)*.*)$", RECIPE.read_text(encoding="utf-8"), re.M)
    assert used
    *there, gone = used[1].replace("\\\n", " ").split()
    folder = tmp_path / "python" / "kubernetes"
    for name in (*there, "client/models/v1_pod.py", "__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()

    def trim() -> subprocess.CompletedProcess[str]:
        command = ["make", "-s", "-C", RECIPE.parent, "only-what-is-used-of-kubernetes", f"ARTIFACTS_DIR={tmp_path}"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    refused = trim()
    assert refused.returncode != 0
    assert f"kubernetes has no {gone} any more" in refused.stdout
    assert (folder / "__init__.py").exists()  # the files of an unknown version are kept
    (folder / gone).touch()
    assert trim().returncode == 0
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == {*there, gone}


def test_a_cold_rebalance_imports_nothing_that_a_check_does_not_use(twin: HostBuild, tmp_path: Path) -> None:
    code = (ROOT / "functions" / "rebalance" / "app.py").read_text(encoding="utf-8")
    (tmp_path / "app.py").write_text(code)
    (tmp_path / "loaded.py").write_text(
        "import sys\nimport app\n\n\ndef handler(event, context):\n    return sorted(sys.modules)\n"
    )
    with RuntimeProcess(
        function=tmp_path,
        python=twin.python,
        layers=twin.layers,
        runtime=twin.runtime,
        handler="loaded.handler",
        environment={"POWERTOOLS_METRICS_NAMESPACE": "Evenkeel", "POWERTOOLS_SERVICE_NAME": "evenkeel"},
    ) as runtime:
        loaded = set(runtime.invoke({}))
    assert {"evenkeel.domain.plan", "boto3"} <= loaded
    unused = {
        "kubernetes.client.rest",  # until a cluster with such an API is opened
        "requests",
        "jinja2",
        "yaml",
        "evenkeel.application.operate",
        "evenkeel.application.rebalancing.events",
        "aws_lambda_powertools.utilities.batch",
        "aws_lambda_powertools.utilities.data_classes",
        "aws_lambda_powertools.utilities.idempotency",
        "aws_lambda_powertools.utilities.parameters",
    }
    assert not loaded & unused


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
