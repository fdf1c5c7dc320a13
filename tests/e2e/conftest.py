"""Built artefacts for the end-to-end tests: the deployable one, and its twin for this machine."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from sandbox.lambda_runtime import HostBuild, host_build
from sandbox.template import ROOT
from tests.integration.conftest import aws, deployment

__all__ = ["aws", "deployment"]  # fixtures


@pytest.fixture(scope="session")
def twin() -> HostBuild:
    """Return the layers as deployed, for this machine's processor, with Python 3.13 if available."""
    return host_build()


@pytest.fixture(scope="session")
def sam() -> Path:
    command = ROOT / ".venv-sam" / "bin" / "sam"
    if not command.exists():
        pytest.skip("the SAM CLI is not set up: `make test` does it (.venv-sam)")
    return command


@pytest.fixture(scope="session")
def deployable(sam: Path, twin: HostBuild) -> Path:
    """Return the folder of `make build`, which `sam deploy` would upload. It imports the twin's packages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / ".sam.lock").open("w") as lock:  # one build at a time, by the first test worker
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            ["make", "build"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
    if "needs Python 3.13" in made.stdout + made.stderr:
        pytest.skip(
            "no Python 3.13 here, so the deployable artefact cannot be compiled; its twin is tested all the same"
        )
    assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / ".aws-sam" / "build"
