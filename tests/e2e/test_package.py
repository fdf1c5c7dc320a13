"""What `make package` writes is deployed without a build, and is the same bytes each time."""

import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from deploy.package import PLUGIN, SUMS, package
from evenkeel import __version__
from sandbox.aws import AwsEndpoints
from sandbox.lambda_runtime import HostBuild
from sandbox.template import ROOT, Template

URL = "https://example.com/evenkeel/0"


@pytest.fixture(scope="session")
def dist(deployable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist") / "evenkeel"
    package(deployable, target, URL)
    return target


def sums(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name != SUMS
    }


def codes(template: Template) -> dict[str, str]:
    """Where functions and layers are, by logical id."""
    functions = template.of_type("AWS::Serverless::Function")
    layers = template.of_type("AWS::Serverless::LayerVersion")
    return {name: one["CodeUri"] for name, one in functions.items()} | {
        name: one["ContentUri"] for name, one in layers.items()
    }


def test_every_file_has_its_sum(dist: Path) -> None:
    lines = (dist / SUMS).read_text().splitlines()
    assert {name: digest for digest, name in (line.split("  ") for line in lines)} == sums(dist)


def test_the_template_names_a_zip_for_each_function_and_layer_and_builds_nothing(dist: Path) -> None:
    template = Template(dist / "template.yaml")
    assert codes(template) == {name: f"{name}.zip" for name in codes(Template())}
    for name, resource in template.resources.items():
        assert "BuildMethod" not in resource.get("Metadata", {}), name


def test_but_for_where_the_code_is_the_template_is_the_same(dist: Path) -> None:
    ours, theirs = Template().body, Template(dist / "template.yaml").body
    for body in (ours, theirs):
        for resource in body["Resources"].values():
            if resource["Type"].startswith("AWS::Serverless::"):
                resource.pop("Metadata", None)
                for field in ("CodeUri", "ContentUri"):
                    resource["Properties"].pop(field, None)
    assert theirs == ours


def test_a_zip_holds_what_was_built_and_can_be_read_by_lambda(dist: Path, deployable: Path) -> None:
    for name in codes(Template()):
        with zipfile.ZipFile(dist / f"{name}.zip") as archive:
            built = {str(file.relative_to(deployable / name)) for file in (deployable / name).rglob("*")}
            assert {entry.filename for entry in archive.infolist()} <= built
            assert any(entry.filename.endswith(".py") for entry in archive.infolist())
            for entry in archive.infolist():
                assert archive.read(entry) == (deployable / name / entry.filename).read_bytes()
                assert stat.S_IMODE(entry.external_attr >> 16) == 0o644


def test_the_same_source_is_the_same_bytes(dist: Path, deployable: Path, twin: HostBuild, tmp_path: Path) -> None:
    """Built anew as well: what compiles and installs brings no time, no path and no order of its own along."""
    again = tmp_path / "built"
    python = f"EVENKEEL_PYTHON={twin.python}"  # 3.13, or there were nothing to deploy
    for layer, folder in (("EvenkeelLayer", "evenkeel"), ("DependenciesLayer", "dependencies")):
        copy = tmp_path / folder
        shutil.copytree(ROOT / "layers" / folder, copy, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        command = ["make", "-s", f"build-{layer}", f"ARTIFACTS_DIR={again / layer}", python]
        subprocess.run(command, cwd=copy, check=True, timeout=200)
    for name in Template().of_type("AWS::Serverless::Function"):
        shutil.copytree(deployable / name, again / name)
    package(again, tmp_path / "dist", URL)
    assert sums(tmp_path / "dist") == sums(dist)


def test_sam_uploads_it_as_it_is(dist: Path, sam: Path, aws: AwsEndpoints, tmp_path: Path) -> None:
    bucket, s3 = f"releases-{os.getpid()}", aws.client("s3")
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": aws.region})
    environment = os.environ | aws.environment() | {"SAM_CLI_TELEMETRY": "0"}
    out = tmp_path / "uploaded.yaml"
    command = [sam, "package", "--template-file", dist / "template.yaml", "--s3-bucket", bucket]
    done = subprocess.run(
        [*command, "--output-template-file", out, "--region", aws.region],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    stored = {
        sha256(s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()).hexdigest()
        for item in s3.list_objects_v2(Bucket=bucket)["Contents"]
    }
    assert {sums(dist)[f"{name}.zip"] for name in codes(Template())} <= stored


def test_sams_linter_passes_it(dist: Path, sam: Path) -> None:
    command = [sam, "validate", "--lint", "--template", dist / "template.yaml", "--region", "eu-central-1"]
    environment = os.environ | {"SAM_CLI_TELEMETRY": "0"}
    checked = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


class TestPlugin:
    """`kubectl evenkeel`, unpacked and linked to as krew does it."""

    @pytest.fixture
    def store(self, dist: Path, tmp_path: Path) -> Iterator[Path]:
        manifest = yaml.safe_load((dist / "evenkeel.yaml").read_text())
        (at,) = manifest["spec"]["platforms"]
        assert at["uri"] == f"{URL}/{PLUGIN}"
        assert at["sha256"] == sha256((dist / PLUGIN).read_bytes()).hexdigest()
        store = tmp_path / "store"
        with tarfile.open(dist / PLUGIN) as archive:
            archive.extractall(store, filter="data")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "kubectl-evenkeel").symlink_to(store / at["bin"])
        return store

    def run(self, store: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{store.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {"PATH": path, "HOME": str(store.parent), **environment}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)

    def with_what_it_imports(self, store: Path) -> None:
        """In the place of the first call's download: what the lock pins is in this environment."""
        (store / "venv").symlink_to(ROOT / ".venv")
        assert (ROOT / ".venv" / ".ready").exists()

    def test_it_is_the_command_line_under_kubectls_name(self, store: Path) -> None:
        self.with_what_it_imports(store)
        assert self.run(store, "kubectl-evenkeel", "--version").stdout == f"evenkeel {__version__}\n"
        assert "Usage: kubectl evenkeel plan" in self.run(store, "kubectl-evenkeel", "plan", "--help").stdout

    @pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
    def test_kubectl_finds_it(self, store: Path) -> None:
        self.with_what_it_imports(store)
        ran = self.run(store, "kubectl", "evenkeel", "plan", "-f", "/nowhere")
        assert (ran.returncode, ran.stderr) == (2, "evenkeel: /nowhere: cannot be read: No such file or directory\n")

    def test_its_own_code_runs_and_not_one_that_is_installed(self, store: Path) -> None:
        self.with_what_it_imports(store)
        own = store / "evenkeel" / "__init__.py"
        own.write_text(own.read_text().replace(__version__, "9.9.9"))
        assert self.run(store, "kubectl-evenkeel", "--version").stdout == "evenkeel 9.9.9\n"

    def test_without_a_python_it_says_which_one_is_needed(self, store: Path) -> None:
        for python in ("/nowhere/python3", "false"):
            ran = self.run(store, "kubectl-evenkeel", "--version", EVENKEEL_PYTHON=python)
            says = f"kubectl evenkeel: {python} is no Python 3.11 or newer with venv: name one in EVENKEEL_PYTHON\n"
            assert (ran.returncode, ran.stderr) == (1, says)
        assert not (store / "venv").exists()

    def test_a_first_call_that_fails_is_made_again(self, store: Path) -> None:
        """Its lock is demanded, so that a wrong hash installs nothing; and what is half made is not taken for whole."""
        (store / "cli.txt").write_text(f"typer==0.29.2 --hash=sha256:{'0' * 64}\n")
        for _ in range(2):
            ran = self.run(store, "kubectl-evenkeel", "--version", PIP_NO_INDEX="1")
            assert ran.returncode == 1
            assert ran.stderr.endswith("kubectl evenkeel: what it imports cannot be installed: pip says why, above\n")
            assert (store / "venv" / "bin").exists()
