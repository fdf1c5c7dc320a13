"""`evenkeel` on a laptop. One module per command; here they come together.

Exit codes: 0 done; 1 it could not be done now (a cluster or a stack did not answer); 2 bad input, one line per fault;
3 some pool is invalid; 4 a cluster is in trouble, or nobody has looked at it; 5 a cluster is not ready to go live, a
rollout was halted, or what was asked for is planned only, in dry run; 130 interrupted.
"""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from evenkeel import __version__
from evenkeel_cli.actions import commands
from evenkeel_cli.discover import discover_app
from evenkeel_cli.plan import plan_command
from evenkeel_cli.report import report_command
from evenkeel_cli.simulate import simulate_command
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, say

app = typer.Typer(
    name="evenkeel",
    help="Keeps the zones of Kubernetes node pools even and whole.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors as plain lines
)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"evenkeel {__version__}")
        raise typer.Exit


@app.callback()
def evenkeel(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Which release this is.")
    ] = False,
) -> None:
    """Keeps the zones of Kubernetes node pools even and whole."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that the terminal lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")


app.command("plan")(plan_command)
for name, command in commands().items():
    app.command(name)(command)
app.add_typer(discover_app, name="discover")
app.command("simulate")(simulate_command)
app.command("report")(report_command)


def main() -> None:
    try:
        try:
            # As it was called, by a person or by kubectl; completion asks in one way.
            called = Path(sys.argv[0]).stem.replace("kubectl-evenkeel", "kubectl evenkeel")
            if " " in called and {"--install-completion", "--show-completion"}.intersection(sys.argv):
                # It would be for two commands, and take the place of kubectl's.
                say("evenkeel: kubectl completes its own lines: completion is for the command evenkeel alone", err=True)
                sys.exit(BAD_INPUT)
            app(prog_name=called, complete_var="_EVENKEEL_COMPLETE")
        finally:
            sys.stdout.flush()  # here, where a full disk is told in one line, and not when the interpreter ends
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)  # the reader of a pipe has seen enough
    except OSError as error:
        _discard_output()
        say(f"evenkeel: output cannot be written: {error.strerror or error}", err=True)
        sys.exit(CANNOT_READ)


def _discard_output() -> None:
    """What is still to be written would fail once more when the interpreter ends, with a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
