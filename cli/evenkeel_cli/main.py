"""The command `evenkeel`, with one module per subcommand.

Exit codes: 0 done; 1 a cluster or a stack did not answer; 2 bad input, one line per fault; 3 some pool is invalid;
4 a cluster has an incident or is not checked yet, or a plan has no pool; 5 a cluster is not ready, a rollout was
halted, or the action is only planned (dry run); 130 interrupted.
"""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from evenkeel import __version__
from evenkeel.application.errors import EvenkeelError
from evenkeel.validation import ConfigError
from evenkeel_cli.actions import commands
from evenkeel_cli.collect import objects_command
from evenkeel_cli.discover import discover_app
from evenkeel_cli.plan import plan_command
from evenkeel_cli.report import report_command
from evenkeel_cli.simulate import simulate_command
from evenkeel_cli.stack_client import CannotAskError
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, fail, say


class _Commands(TyperGroup):
    """The group of all commands. For an expected error, print the lines of the error and exit with its code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            fail(error.faults)
        except CannotAskError as error:
            fail([str(error)], error.code)
        except EvenkeelError as error:
            fail([str(error)], CANNOT_READ)


app = typer.Typer(
    name="evenkeel",
    cls=_Commands,
    help="Keeps the zones of Kubernetes node pools even and whole.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # so that errors are plain lines
)


def _print_version(requested: bool) -> None:
    if requested:
        say(f"evenkeel {__version__}")
        raise typer.Exit


@app.callback()
def evenkeel(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps the zones of Kubernetes node pools even and whole."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that the encoding lacks must not cause an error
            stream.reconfigure(errors="backslashreplace")


app.command("plan")(plan_command)
app.command("objects")(objects_command)
for name, command in commands().items():
    app.command(name)(command)
app.add_typer(discover_app, name="discover")
app.command("simulate")(simulate_command)
app.command("report")(report_command)


def main() -> None:
    """Run the command line. If output cannot be written, report this in one line. A closed pipe is no error."""
    try:
        try:
            # kubectl starts this program as kubectl-evenkeel. Shell completion uses one variable for both program
            # names.
            called = Path(sys.argv[0]).stem.replace("kubectl-evenkeel", "kubectl evenkeel")
            if " " in called and {"--install-completion", "--show-completion"}.intersection(sys.argv):
                # The completion of the two words `kubectl evenkeel` would replace kubectl's own completion.
                say("evenkeel: kubectl completes its own lines: completion is for the command evenkeel alone", err=True)
                sys.exit(BAD_INPUT)
            app(prog_name=called, complete_var="_EVENKEEL_COMPLETE")
        finally:
            sys.stdout.flush()  # a full disk is reported here in one line, not when the interpreter ends
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)  # the reader of a pipe has closed it
    except OSError as error:
        _discard_output()
        say(f"evenkeel: output cannot be written: {error.strerror or error}", err=True)
        sys.exit(CANNOT_READ)


def _discard_output() -> None:
    """Discard buffered output. Otherwise, the interpreter would write it when it ends, and fail with a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
