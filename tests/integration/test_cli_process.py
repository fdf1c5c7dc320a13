"""`evenkeel plan` as a process: what a shell sees. Each costs half a second, so there are few."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evenkeel import __version__
from sandbox.template import ROOT
from tests.unit.cli.test_cli import Files, pool_of

PYTHON = shlex.quote(sys.executable)  # a checkout may lie in a folder with a space in its name


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return python("from evenkeel_cli.main import main; main()", "plan", *arguments, input=stdin, env=env)


def python(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


def shell(arguments: str, module: str = "start", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """`evenkeel` with these arguments and redirections, in a shell."""
    command = f"{PYTHON} -c 'from evenkeel_cli.{module} import main; main()' {arguments}"
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


def test_hundred_thousand_brackets_do_not_crash_the_interpreter() -> None:
    for garbage in (b"[" * 100_000, b'{"a":' * 100_000):
        end = run("-f", "-", stdin=garbage)
        assert (end.returncode, end.stderr.count(b"\n")) == (2, 1), end.stderr[-300:]
        assert b"Traceback" not in end.stderr


def test_an_object_that_multiplies_itself_does_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    laughs = "\n".join(["apiVersion: cluster.x-k8s.io/v1beta1", "kind: MachineDeployment", *lines])
    laughs += "\nmetadata: {name: a, labels: {evenkeel.dev/pool: p}}\nspec: {replicas: *a59}\n"
    end = run("-f", "-", stdin=laughs.encode())
    assert end.returncode in (2, 3)
    assert b"Traceback" not in end.stderr


def test_a_reader_that_has_seen_enough_is_no_error(files: Files) -> None:
    assert b"Traceback" not in shell(f"plan -f {files.listed(*pool_of(1, 1, 1))} -o json | true", "main").stderr


def test_a_terminal_without_unicode_gets_the_table_too(files: Files) -> None:
    end = run("-f", files.listed(*pool_of(4, 1, 1)), env={"PYTHONIOENCODING": "ascii", "PATH": ""})
    assert end.returncode == 0, end.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [("--version", 0), ("plan -f nowhere.json", 2)])
def test_with_a_closed_output_the_exit_code_remains(closed: str, arguments: str, code: int) -> None:
    end = shell(f"{arguments} {closed}")
    assert (end.returncode, b"Traceback" in end.stderr) == (code, False)


def test_a_closed_input_holds_no_object() -> None:
    end = shell("plan -f - <&-")
    assert (end.returncode, end.stderr) == (2, b"evenkeel: standard input: it holds no object\n")


@pytest.mark.parametrize("when", ["before it has begun", "while it reads"])
def test_an_interrupted_command_ends_in_one_line(when: str) -> None:
    # What it imports is interrupted, as by a ctrl-C at that moment.
    program = (
        "import sys\nfrom evenkeel_cli.start import main\n"
        "class Interrupted:\n  def __getattr__(self, name): raise KeyboardInterrupt\n"
        "sys.modules['evenkeel_cli.main'] = Interrupted(); main()"
    )
    if when == "while it reads":
        program = (
            "from evenkeel_cli import plan, start\n"
            "def interrupted(name): raise KeyboardInterrupt\n"
            "plan.read_text = interrupted\n"
            "import sys; sys.argv = ['evenkeel', 'plan', '-f', '-']; start.main()"
        )
    end = python(program)
    assert (end.returncode, end.stdout, end.stderr) == (130, b"", b"evenkeel: interrupted\n")


def _with_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_first_lines_import_nothing_that_python_has_not_imported_itself() -> None:
    program = (
        "import _signal, sys; wrong = []\n"
        "class Guard:\n"
        "  def find_spec(self, name, *_):\n"
        "    if not name.startswith('evenkeel_cli') and _signal.getsignal(2).__name__ != '_end': wrong.append(name)\n"
        "sys.meta_path.insert(0, Guard())\n"
        "from evenkeel_cli import start; print(wrong)"
    )
    assert python(program, preexec_fn=_with_interrupts).stdout == b"[]\n"


@pytest.mark.parametrize("milliseconds", [0, 20, 50, 100, 200, 400, 800])
def test_an_interrupt_while_evenkeel_is_imported_is_one_line(milliseconds: int) -> None:
    """Python reports an interrupt itself until Evenkeel's first line has run, which is what ``begun`` says."""
    program = (
        "import sys\nfrom evenkeel_cli import start\nprint('begun', flush=True)\n"
        "sys.argv = ['evenkeel', 'plan', '-f', '-']; start.main()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # If the tests run in the background, their processes ignore interrupts, and Evenkeel would ignore them, too.
    with subprocess.Popen([sys.executable, "-c", program], **pipes, preexec_fn=_with_interrupts) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"evenkeel: interrupted\n")


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


@pytest.mark.parametrize("name", ["evenkeel", "kubectl-evenkeel"])
def test_a_shell_completes_commands_and_options(name: str) -> None:
    program = f"import sys; sys.argv[0] = {name!r}; from evenkeel_cli.start import main; main()"

    def completed(words: str, at: int) -> list[str]:
        asked = {"_EVENKEEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return python(program, env=os.environ | asked).stdout.decode().split()

    assert completed("evenkeel fen", 1) == ["fence-zone"]
    assert "--record" in completed("evenkeel plan --re", 2)


@pytest.mark.parametrize(
    ("shell", "asks", "answer"),
    [
        ("zsh", {}, '_arguments \'*: :(("fence-zone":'),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "fence-zone\t"),
    ],
)
def test_zsh_and_fish_complete(shell: str, asks: dict[str, str], answer: str) -> None:
    program = (
        "import atexit, sys; sys.argv = ['evenkeel']; from evenkeel_cli.start import main\n"
        "atexit.register(lambda: print('rich.markdown' in sys.modules, file=sys.stderr)); main()"
    )

    def said(**variables: str) -> str:
        end = python(program, env=os.environ | variables)
        assert end.stderr == b"False\n"  # it takes 0.05 s
        return end.stdout.decode()

    script = said(_EVENKEEL_COMPLETE=f"source_{shell}")
    asks = {**asks, "_EVENKEEL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "evenkeel fen"}
    asked = {name: value for name, value in asks.items() if name != "_TYPER_COMPLETE_ARGS"}
    assert all(f"{name}={value}" in script for name, value in asked.items())
    assert "_TYPER_COMPLETE_ARGS=" in script
    assert said(**asks).startswith(answer)


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_kubectls_own_completion_is_left_alone(option: str, tmp_path: Path) -> None:
    """A script for `kubectl evenkeel` would be one for two commands, of which one is kubectl."""
    program = "import sys; sys.argv[0] = 'kubectl-evenkeel'; from evenkeel_cli.start import main; main()"
    end = python(program, option, "bash", env=os.environ | {"HOME": str(tmp_path)})
    assert (end.returncode, end.stdout, end.stderr.count(b"\n")) == (2, b"", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_shell_that_has_sourced_the_script_completes(tmp_path: Path) -> None:
    (tmp_path / "evenkeel").write_text(
        f"#!/bin/sh\n'''exec' {PYTHON} \"$0\" \"$@\"\n' '''\nfrom evenkeel_cli.start import main\nmain()\n",
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
        "from evenkeel_cli import simulate, stack_client, start\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "def listed(stack, event):\n"
        "    if not event.get('list') or '--yes' not in sys.argv: raise KeyboardInterrupt\n"
        "    return {'ok': True, 'message': '', 'clusters': [{'cluster': 'blue', 'ok': True, 'message': 'blue'}]}\n"
        "stack_client.ask, simulate.read_yaml = listed, interrupted\n"
        f"import sys; sys.argv = ['evenkeel', *{action!r}.split()]\n"
        "sys.argv += ['--stack', 's'] if 'simulate' not in sys.argv else []\n"
        "start.main()"
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
