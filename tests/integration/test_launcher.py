"""The launcher, which starts Python so that an interrupt waits for Evenkeel's own handler."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evenkeel import __version__
from sandbox.template import ROOT

LAUNCHER = ROOT / "cli" / "bin" / "evenkeel"
INSTALLED = Path(sys.executable).parent / "evenkeel"
# In the place of the console script: prints whether SIGINT is blocked, and its arguments.
_PRINTS = '#!/bin/sh\nwhile read -r key value; do [ "$key" != SigBlk: ] || echo "$value"; done </proc/self/status\n'
_PRINTS += 'for word; do printf "%s|" "$word"; done\n'
_INTERRUPTED = b"evenkeel: interrupted\n"

needs_gnu_env = pytest.mark.skipif(
    subprocess.run(["env", "--block-signal=INT", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0,
    reason="env cannot block a signal here",
)


def _default() -> None:
    """A test in the background ignores interrupts. A program that it starts would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _pending() -> None:
    """An interrupt that waits until the program accepts it."""
    _default()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.kill(os.getpid(), signal.SIGINT)


def _ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def ran(*words: str | Path, before: Callable[[], None] = _default, **env: str) -> subprocess.CompletedProcess[bytes]:
    variables = os.environ | env
    return subprocess.run(words, capture_output=True, check=False, timeout=60, preexec_fn=before, env=variables)


@pytest.fixture(params=["bin", "a folder", "a=b"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The launcher as installed, beside a script that prints how it was started."""
    folder = tmp_path / str(request.param)
    folder.mkdir()
    shutil.copy(LAUNCHER, folder)
    (folder / "evenkeel-python").write_text(_PRINTS, encoding="utf-8")
    (folder / "evenkeel-python").chmod(0o755)
    return folder


@needs_gnu_env
def test_the_console_script_starts_with_interrupts_blocked(folder: Path) -> None:
    blocked, words = ran(folder / "evenkeel", "plan", "-f", "a b", "").stdout.decode().split("\n")
    assert int(blocked, 16) & 1 << signal.SIGINT - 1 or "=" in folder.name  # env takes a path with = for a variable
    assert words == f"{folder / 'evenkeel'}|plan|-f|a b||"


def test_links_lead_to_the_folder_and_keep_their_name(folder: Path) -> None:
    (folder / "kubectl-evenkeel").symlink_to("evenkeel")
    other = folder.parent / "other"
    other.mkdir()
    (other / "kubectl-evenkeel").symlink_to(folder / "kubectl-evenkeel")
    path = f"{other}{os.pathsep}{os.environ['PATH']}"
    end = ran("kubectl-evenkeel", "status", PATH=path)
    assert (end.stdout.decode().split("\n")[1], end.stderr) == (f"{other / 'kubectl-evenkeel'}|status|", b"")


def test_where_env_cannot_block_a_signal_the_console_script_starts_all_the_same(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("#!/bin/sh\necho env: illegal option >&2\nexit 1\n", encoding="utf-8")
    (tmp_path / "env").chmod(0o755)
    end = ran(folder / "evenkeel", "plan", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert (end.stdout.decode().split("\n")[1], end.stderr) == (f"{folder / 'evenkeel'}|plan|", b"")


def test_the_folder_is_found_without_path_and_by_path(folder: Path) -> None:
    alone = ran(folder / "evenkeel", "plan", PATH="")
    assert (alone.stdout.decode().split("\n")[1], alone.stderr) == (f"{folder / 'evenkeel'}|plan|", b"")
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    by_path = ran("bash", "evenkeel", "plan", PATH=path)
    assert (by_path.stdout.decode().split("\n")[1], by_path.stderr) == ("evenkeel|plan|", b"")
    here = ran("sh", "-c", 'cd "$0" && sh evenkeel plan', folder)
    assert (here.stdout.decode().split("\n")[1], here.stderr) == ("evenkeel|plan|", b"")


def test_the_checkout_has_the_launcher_under_both_names() -> None:
    for name in ("evenkeel", "kubectl-evenkeel"):
        installed = INSTALLED.with_name(name)
        assert installed.read_text(encoding="utf-8") == LAUNCHER.read_text(encoding="utf-8")
        assert os.access(installed, os.X_OK)
    assert ran(INSTALLED, "--version").stdout == f"evenkeel {__version__}\n".encode()
    usage = ran(INSTALLED.with_name("kubectl-evenkeel"), "plan", "--nope").stderr
    assert usage.endswith(b": see kubectl evenkeel plan -h\n")


def test_an_interrupt_before_the_first_line_of_python_is_one_line() -> None:
    end = ran(INSTALLED.with_name("evenkeel-python"), "evenkeel", "--version", before=_pending)
    assert (end.returncode, end.stdout, end.stderr) == (130, b"", _INTERRUPTED)


def test_a_parent_that_ignores_interrupts_is_obeyed() -> None:
    program = 'kill -INT $$; exec "$0" --version'  # as nohup and background jobs
    end = ran("sh", "-c", program, INSTALLED, before=_ignored)
    assert (end.returncode, end.stdout, end.stderr) == (0, f"evenkeel {__version__}\n".encode(), b"")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_an_interrupt_that_cannot_be_reported_keeps_its_exit_code(closed: str) -> None:
    script = INSTALLED.with_name("evenkeel-python")
    end = ran("sh", "-c", f'exec "$0" evenkeel --version {closed}', script, before=_pending)
    assert (end.returncode, end.stdout, end.stderr) == (130, b"", b"")


def test_an_interrupt_while_one_is_reported_prints_no_second_line() -> None:
    program = (
        "import os, signal\nfrom evenkeel_cli import start\nwrite = os.write\n"
        "def interrupted_again(*words):\n  write(*words)\n  os.kill(os.getpid(), signal.SIGINT)\n"
        "os.write = interrupted_again\nos.kill(os.getpid(), signal.SIGINT)"
    )
    end = ran(sys.executable, "-c", program)
    assert (end.returncode, end.stdout, end.stderr) == (130, b"", _INTERRUPTED)


def test_an_interrupt_that_an_import_turns_into_another_error_is_one_line() -> None:
    program = (
        "import sys\nfrom evenkeel_cli.start import main\n"
        "class Interrupted:\n"
        "  def __getattr__(self, name):\n"
        "    try: raise KeyboardInterrupt\n"
        "    except KeyboardInterrupt as error: raise RuntimeError('in __set_name__') from error\n"
        "sys.modules['evenkeel_cli.main'] = Interrupted(); main()"
    )
    end = ran(sys.executable, "-c", program)
    assert (end.returncode, end.stdout, end.stderr) == (130, b"", _INTERRUPTED)


@needs_gnu_env
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_interrupt_at_any_moment_is_one_line_at_most(shell: str, tmp_path: Path) -> None:
    """As a terminal sends it: to all processes of the group. It comes at random, so what fails may pass next time."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    commands = (["--version"], ["plan", "-f", str(tmp_path / "none.yaml")], ["status"])
    for number in range(60):
        command = [shell, str(INSTALLED), *commands[number % len(commands)]]
        with subprocess.Popen(command, **pipes, start_new_session=True, preexec_fn=_default) as process:
            time.sleep(random.random() * 0.3)
            os.killpg(process.pid, signal.SIGINT)
            output, error = process.communicate(timeout=60)
        assert b"Traceback" not in error + output
        assert error.count(b"\n") <= 1
        assert process.returncode in (0, 2, 130, -signal.SIGINT)
        assert process.returncode != 130 or error in (b"", _INTERRUPTED)
