"""The result of `make package` is deployed without a build, and has the same bytes each time."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from deploy.package import NAMESPACE, PLUGIN, SBOM, SUMS, distributions, package, sign
from deploy.sbom import sbom
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


@pytest.fixture(scope="session")
def pypi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pypi") / "made"
    distributions(folder)
    return folder


def sums(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and file.name != SUMS
    }


def codes(template: Template) -> dict[str, str]:
    """Return the paths of functions and layers by logical id."""
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
    """This includes the layers' build: compiling and installing add no time, path or random order."""
    again = tmp_path / "built"
    python = f"EVENKEEL_PYTHON={twin.python}"  # 3.13, otherwise there is no deployable build
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


def test_the_bill_of_materials_is_part_of_it(dist: Path) -> None:
    assert json.loads((dist / SBOM).read_text(encoding="utf-8")) == sbom(__version__)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")
class TestSignature:
    def signed(self, folder: Path, key: Path) -> Path:
        release = folder / "release"
        release.mkdir()
        (release / SUMS).write_text(f"{'0' * 64}  template.yaml\n")
        sign(release, str(key))
        return release

    @pytest.fixture
    def key(self, tmp_path: Path) -> Path:
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
        return key

    def verified(self, release: Path, key: Path) -> bool:
        """Verify the release as docs/operate/upgrade.md shows."""
        signers = release.parent / "allowed_signers"
        signers.write_text(f"evenkeel {key.with_suffix('.pub').read_text()}")
        command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "evenkeel", "-n", NAMESPACE]
        with (release / SUMS).open("rb") as sums:
            done = subprocess.run(
                [*command, "-s", release / f"{SUMS}.sig"], stdin=sums, capture_output=True, check=False
            )
        return done.returncode == 0

    def test_it_holds_for_these_sums_by_this_key_alone(self, tmp_path: Path, key: Path) -> None:
        release = self.signed(tmp_path, key)
        assert self.verified(release, key)
        other = tmp_path / "other"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
        assert not self.verified(release, other)
        (release / SUMS).write_text(f"{'1' * 64}  template.yaml\n")
        assert not self.verified(release, key)

    def test_a_key_that_is_not_there_is_named_on_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match=r"^SIGNING_KEY: /nowhere/key: ssh-keygen does not sign: [^\n]+$"):
            self.signed(tmp_path, Path("/nowhere/key"))


class TestDistributions:
    """The distributions for PyPI. Its `evenkeel` is another project, so none of these may require that name."""

    def test_there_is_a_wheel_and_a_source_of_each_and_both_hold_every_file(self, pypi: Path) -> None:
        packages = {"evenkeel_core": ROOT / "layers/evenkeel/evenkeel", "evenkeel_cli": ROOT / "cli/evenkeel_cli"}
        stems = {f"{name}-{__version__}{end}" for name in packages for end in ("-py3-none-any.whl", ".tar.gz")}
        assert {file.name for file in pypi.iterdir()} == stems
        for name, package_ in packages.items():
            ours = {
                str(file.relative_to(package_.parent))
                for file in package_.rglob("*")
                if file.is_file() and file.parent.name != "__pycache__"
            }
            with zipfile.ZipFile(pypi / f"{name}-{__version__}-py3-none-any.whl") as wheel:
                installed = {one for one in wheel.infolist() if ".dist-info/" not in one.filename}
                assert {one.filename for one in installed} == ours
                (metadata,) = (one for one in wheel.namelist() if one.endswith("METADATA"))
                fields = wheel.read(metadata).decode()
            assert "Requires-Dist: evenkeel\n" not in fields
            assert "License" not in fields  # the owner has not chosen one yet
            with tarfile.open(pypi / f"{name}-{__version__}.tar.gz") as source:
                assert all(any(one.endswith(f"/{file}") for one in source.getnames()) for file in ours)

    def test_the_wheels_install_without_network_and_run(self, pypi: Path, tmp_path: Path) -> None:
        """They are installed into a folder. Their dependencies are in this environment, as the lock pins them."""
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-index", "--no-deps", "--target", tmp_path]
        subprocess.run([*command, *pypi.glob("*.whl")], check=True, timeout=120)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}

        def run(*words: str | Path) -> str:
            return subprocess.check_output(words, env=environment, cwd=tmp_path, text=True, timeout=60)

        where = "import evenkeel, evenkeel_cli; print(evenkeel.__file__, evenkeel_cli.__file__)"
        assert all(Path(file).is_relative_to(tmp_path) for file in run(sys.executable, "-c", where).split())
        for name in ("evenkeel", "kubectl-evenkeel"):
            assert run(tmp_path / "bin" / name, "--version") == f"evenkeel {__version__}\n"


class TestPlugin:
    """`kubectl evenkeel`, unpacked and linked as krew does it."""

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
        """Use this environment instead of the first call's download: it has the locked packages."""
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

    def test_an_interrupt_while_it_fetches_is_one_line(self, store: Path) -> None:
        """As from a terminal, its children are interrupted too. Their traceback is not shown."""
        python = store / "python3"
        python.write_text('#!/bin/sh\n[ "$1" = -c ] || { echo Traceback >&2; kill -INT 0; }\n')
        python.chmod(0o755)
        command = ["sh", store / "kubectl-evenkeel", "--version"]
        ran = subprocess.run(
            command,
            env=os.environ | {"EVENKEEL_PYTHON": str(python)},
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        first, last = ran.stderr.splitlines()
        assert (ran.returncode, last) == (130, "kubectl evenkeel: interrupted")
        assert "(once)" in first
        assert not (store / "venv" / ".ready").exists()

    def test_a_first_call_that_fails_is_made_again(self, store: Path) -> None:
        """Hashes are verified, so a wrong one installs nothing. An incomplete environment is not used."""
        (store / "cli.txt").write_text(f"typer==0.29.2 --hash=sha256:{'0' * 64}\n")
        for _ in range(2):
            ran = self.run(store, "kubectl-evenkeel", "--version", PIP_NO_INDEX="1")
            assert ran.returncode == 1
            assert ran.stderr.endswith("kubectl evenkeel: what it imports cannot be installed: the reason is above\n")
            assert (store / "venv" / "bin").exists()
