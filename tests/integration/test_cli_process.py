"""`evenkeel plan` as a process in a shell. Each start takes half a second, so there are few."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evenkeel import __version__
from sandbox.template import ROOT
from tests.unit.cli.test_cli import Files, pool_of

SCRIPTS = Path(sys.executable).parent
PYTHON = shlex.quote(sys.executable)  # a checkout's folder may have a space in its name


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return python("from evenkeel_cli.main import main; main()", "plan", *arguments, input=stdin, env=env)


def python(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


def shell(arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `evenkeel` with these arguments and redirections in a shell."""
    command = f"{PYTHON} -c 'from evenkeel_cli.main import main; main()' {arguments}"
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60, **options)


def test_exit_codes_reach_the_shell(files: Files) -> None:
    good = pool_of(1, 1, 1)
    bad = pool_of(1, 1, 1)
    bad[0]["metadata"]["annotations"]["evenkeel.dev/pool-max"] = "many"
    ends = [
        run("-f", files.listed(*good)),
        run("-f", "-", stdin=b"{"),
        run("-f", files.listed(*bad, name="bad.json")),
        run("--colour"),
    ]
    assert [end.returncode for end in ends] == [0, 2, 3, 2]
    assert ends[1].stderr.count(b"\n") == 1
    assert all(b"Traceback" not in end.stdout + end.stderr for end in ends)


def test_a_reader_that_has_seen_enough_is_no_error(files: Files) -> None:
    assert b"Traceback" not in shell(f"plan -f {files.listed(*pool_of(1, 1, 1))} -o json | true").stderr


def test_a_terminal_without_unicode_gets_the_table_too(files: Files) -> None:
    end = run("-f", files.listed(*pool_of(4, 1, 1)), env={"PYTHONIOENCODING": "ascii", "PATH": ""})
    assert end.returncode == 0, end.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--version", 0), ("--help", 0), ("plan -f nowhere.json", 2), ("simulate scenarios/hold-or-release.yaml", 0)],
)
def test_with_a_closed_output_the_exit_code_remains(closed: str, arguments: str, code: int) -> None:
    end = shell(f"{arguments} {closed}", cwd=ROOT)
    assert (end.returncode, b"Traceback" in end.stderr) == (code, False)


def test_a_closed_input_holds_no_object() -> None:
    end = shell("plan -f - <&-")
    assert (end.returncode, end.stderr) == (2, b"evenkeel: standard input: it holds no object\n")


def _with_interrupts() -> None:
    """Restore the default: in the background, tests ignore interrupts, and Evenkeel would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["evenkeel", "kubectl-evenkeel"])
def test_an_interrupt_ends_the_console_script_with_one_line(name: str, tmp_path: Path) -> None:
    """The command waits for the objects in a named pipe, so that the interrupt comes after its start."""
    fifo = tmp_path / "objects"
    os.mkfifo(fifo)
    command = [str(SCRIPTS / name), "plan", "-f", str(fifo)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=_with_interrupts) as process:
        with fifo.open("wb"):  # opens when the command reads it
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"evenkeel: interrupted\n")


def test_an_interrupt_while_pydantic_builds_a_schema_is_one_line() -> None:
    code = (
        "import sys\n"
        "from pydantic_core import SchemaError\n"
        "from evenkeel_cli import main, simulate\n"
        "def interrupted(*_): raise SchemaError('KeyboardInterrupt')\n"
        "simulate.read_yaml = interrupted\n"
        "sys.argv[1:] = ['simulate', 'x.yaml']\n"
        "main.main()\n"
    )
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (end.returncode, end.stderr) == (130, b"evenkeel: interrupted\n")


@pytest.mark.parametrize(("name", "called"), [("evenkeel", b"evenkeel"), ("kubectl-evenkeel", b"kubectl evenkeel")])
def test_a_console_script_uses_the_name_by_which_it_is_called(name: str, called: bytes) -> None:
    end = subprocess.run([SCRIPTS / name, "plan", "--nothing"], capture_output=True, check=False, timeout=60)
    assert (end.returncode, end.stderr) == (2, b"evenkeel: no such option: --nothing: see " + called + b" plan -h\n")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("status -h", 0),
        ("simulate scenarios/hold-or-release.yaml", 0),
        ("simulate scenarios/hold-or-release.yaml -o json", 0),
        ("plan -f missing -o json", 2),
    ],
)
def test_a_reader_that_closes_the_pipe_causes_no_line(command: str, code: int) -> None:
    end = shell(f"{command} | true; exit ${{PIPESTATUS[0]}}", cwd=ROOT)
    assert (end.returncode, end.stderr) == (code, b"")


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_kubectls_own_completion_is_left_alone(option: str, tmp_path: Path) -> None:
    """A completion script for `kubectl evenkeel` would also complete kubectl."""
    program = "import sys; sys.argv[0] = 'kubectl-evenkeel'; from evenkeel_cli.main import main; main()"
    end = python(program, option, "bash", env=os.environ | {"HOME": str(tmp_path)})
    assert (end.returncode, end.stdout, end.stderr.count(b"\n")) == (2, b"", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_shell_that_has_sourced_the_script_completes(tmp_path: Path) -> None:
    (tmp_path / "evenkeel").write_text(
        f"#!/bin/sh\n'''exec' {PYTHON} \"$0\" \"$@\"\n' '''\nfrom evenkeel_cli.main import main\nmain()\n",
        encoding="utf-8",
    )
    (tmp_path / "evenkeel").chmod(0o755)
    script = (
        "evenkeel --install-completion bash >/dev/null; source ~/.bashrc\n"
        "COMP_WORDS=(evenkeel fence-zone --zo) COMP_CWORD=2\n"
        "$(complete -p evenkeel | sed 's/.*-F //; s/ .*//') evenkeel; echo ${COMPREPLY[@]}"
    )
    variables = os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    end = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)
    assert (end.stdout, end.stderr) == ("--zone --zone-id\n", "")


@pytest.mark.parametrize(
    ("action", "more"),
    [("pause --all --yes", b": the stack goes on with what it was asked for by then: evenkeel history --stack s tells")]
    + [(action, b"") for action in ("status", "pause --all", "simulate -")],
)
def test_an_interrupted_request_to_a_stack_says_that_it_goes_on(action: str, more: bytes) -> None:
    program = (
        "from evenkeel_cli import main, simulate, stack_client\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "def listed(stack, event):\n"
        "    if not event.get('list') or '--yes' not in sys.argv: raise KeyboardInterrupt\n"
        "    return {'ok': True, 'message': '', 'clusters': [{'cluster': 'blue', 'ok': True, 'message': 'blue'}]}\n"
        "stack_client.ask, simulate.read_yaml = listed, interrupted\n"
        f"import sys; sys.argv = ['evenkeel', *{action!r}.split()]\n"
        "sys.argv += ['--stack', 's'] if 'simulate' not in sys.argv else []\n"
        "main.main()"
    )
    end = python(program)
    assert (end.returncode, end.stderr) == (130, b"evenkeel: interrupted" + more + b"\n")


def test_a_failure_keeps_its_code_on_a_full_disk() -> None:
    assert shell("nope 2>/dev/full").returncode == 2


@pytest.mark.parametrize(
    "command", ["--version", "--help", "plan --help", "simulate scenarios/hold-or-release.yaml -o json"]
)
def test_a_full_disk_is_one_line_whatever_is_printed(command: str) -> None:
    end = shell(f"{command} >/dev/full", cwd=ROOT)
    assert (end.returncode, end.stderr) == (1, b"evenkeel: output cannot be written: No space left on device\n")


def test_version_prints_the_release() -> None:
    assert shell("--version").stdout == f"evenkeel {__version__}\n".encode()
