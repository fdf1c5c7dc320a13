"""`make localstack`, and the commands for it on the page of test events."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import takewhile

import pytest

from sandbox.local_stack import EVENKEEL, VARIABLES
from sandbox.template import ROOT
from tests.integration.staging import eventually

PAGE = (ROOT / "docs" / "guides" / "test-events.md").read_text(encoding="utf-8")
pytestmark = [
    pytest.mark.aws,
    pytest.mark.skipif(
        not os.environ.get("EVENKEEL_LOCALSTACK"),
        reason="LocalStack is not set up: make test-localstack does it, with Python 3.13, Java and npm",
    ),
]


def _with_interrupts() -> None:
    """Restore the default: in the background, tests ignore interrupts, and the stack would never end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def stack() -> Iterator[None]:
    """Run `make localstack`, as in the first terminal."""
    VARIABLES.unlink(missing_ok=True)
    command = ["make", "localstack"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_with_interrupts
    ) as process:
        assert process.stdout is not None
        try:
            lines = list(takewhile(lambda line: "runs on LocalStack" not in line, process.stdout))
            assert VARIABLES.exists(), "".join(lines)
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
    assert not VARIABLES.exists()


def _bash(script: str) -> str:
    path = f"{EVENKEEL.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr  # 4: the status has an incident
    return done.stdout


@pytest.mark.usefixtures("stack")
def test_the_commands_of_the_page_drive_a_rebalance_on_localstack() -> None:
    (block,) = re.findall(r"^```sh localstack\n(.*?)^```", PAGE, re.S | re.M)
    variables, *commands = block.splitlines()
    printed = [_bash(f"{variables}\n{command}") for command in commands]
    assert "checks of 1 clusters are requested" in printed[0]
    eventually(lambda: re.search(r"eu-central-1a .*fenced", _bash(f"{variables}\n{commands[-1]}")) is not None)
    assert re.search(r"eu-central-1b .*healthy.* 7$", _bash(f"{variables}\n{commands[-1]}"), re.M)
