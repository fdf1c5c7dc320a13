"""The command `evenkeel`, with one module per subcommand.

Exit codes: 0 done; 1 a cluster or a stack did not answer; 2 bad input, one line per fault; 3 some pool is invalid;
4 a cluster has an incident or is not checked yet, a plan has no pool, or lookback has no verdict; 5 a cluster is not
ready, or the action is only planned (dry run); 130 interrupted.
"""

import gc
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from evenkeel import __version__
from evenkeel_cli.commands import PANELS, app
from evenkeel_cli.terminal import (
    BAD_INPUT,
    CANNOT_READ,
    INTERRUPTED,
    CommandError,
    Output,
    error_document,
    say,
    say_document,
)

_COMPLETION = "_EVENKEEL_COMPLETE"
# The option -o and its value, if the same word has it. Short options without a value may be before it: -Ao json.
_FORM = re.compile(r"--output(?:=(.*))?|-[^-flno]*o=?(.*)", re.DOTALL)


class _Commands(TyperGroup):
    """The group of all commands. An expected error is one line per fault, or a document if ``-o`` asks for one."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **settings: Any) -> Any:
        """Run a command, and exit with its code."""
        words = sys.argv[1:] if args is None else [*args]
        settings["standalone_mode"] = False  # with it, typer would print errors itself, with usage and a box
        try:
            code = super().main(words or ["--help"], *others, **settings)
        except typer.Abort:
            code = BAD_INPUT
        except SystemExit as end:
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            code = 0  # the reader of a pipe has closed it: typer would exit with 1
        except Exception as error:
            if (failure := _expected(error, self._path(words, settings))) is None:
                raise
            code = failure.code
            try:
                _print_failure(failure, _form(words))
            except OSError:  # the failure cannot be printed, but its exit code remains
                _discard_output()
        if code == INTERRUPTED:  # typer returns it in the place of KeyboardInterrupt
            _exit_interrupted()
        sys.exit(code or 0)

    def _path(self, words: Sequence[str], settings: Mapping[str, Any]) -> str:
        """Return the program and the command that is called, for errors of typer that name no command."""
        command = [word for word in words[:1] if word in self.commands]
        return " ".join([settings.get("prog_name") or "evenkeel", *command])

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (typer's signature)
        """Write the commands in panels, without the boxes that typer draws around them."""
        commands = sorted(self.commands.items(), key=lambda item: PANELS.index(_panel(item[1])))
        for panel, members in groupby(commands, key=lambda item: _panel(item[1])):
            with formatter.section(panel):
                formatter.write_dl([(name, command.get_short_help_str(100)) for name, command in members])


def _panel(command: Any) -> str:
    return str(command.rich_help_panel)


def _expected(error: Exception, path: str) -> CommandError | None:
    """Return the failure to print for an error of the command at ``path``; None for an error that none expects."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, typer.TyperException):
        return CommandError([_usage_fault(error, path)], BAD_INPUT)
    # Help and completion need none of these modules. If one of their errors was raised, they are imported already.
    from pydantic_core import SchemaError

    from evenkeel.application.errors import EvenkeelError
    from evenkeel.validation import ConfigError

    if isinstance(error, SchemaError):  # pydantic raises it for an interrupt while it builds a schema
        raise KeyboardInterrupt from None
    if isinstance(error, ConfigError):
        return CommandError(error.faults, BAD_INPUT)
    return CommandError([str(error)], CANNOT_READ) if isinstance(error, EvenkeelError) else None


def _usage_fault(error: typer.TyperException, path: str) -> str:
    """Return one line about a wrong command, option or argument, with the command that lists the right ones."""
    text = " ".join(error.format_message().split()).rstrip(".?").replace(" Value error,", "")  # pydantic's prefix
    context = getattr(error, "ctx", None)
    return f"{text[:1].lower()}{text[1:]}: see {context.command_path if context else path} -h"


def _form(words: Sequence[str]) -> Output:
    """Return the output form that these arguments ask for. They may be too wrong for typer to read."""
    form = Output.TABLE
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if (match := _FORM.fullmatch(word)) is None:
            continue
        value = match[1] or match[2] or after
        form = next((choice for choice in Output if choice == value), form)
    return form


def _print_failure(failure: CommandError, form: Output) -> None:
    if form.is_document:
        proposals = {"proposals": failure.proposed[1:]} if failure.proposed else {}
        say_document({**proposals, **error_document(failure.faults, failure.code)}, form)
        return
    for fault in failure.faults:
        say(f"evenkeel: {' '.join(fault.split())}", err=True)
    for line in failure.proposed:
        say(line, err=True)


def _print_version(requested: bool) -> None:
    if requested:
        say(f"evenkeel {__version__}")
        raise typer.Exit


@app.callback(cls=_Commands)
def evenkeel(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Lets node pools grow in other zones when one delivers no machines; moves or removes nodes only on request."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that the encoding lacks must not cause an error
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line. An interrupt and output that cannot be written are one line. A closed pipe is no error."""
    gc.set_threshold(100_000, 10, 50)  # the usual 700 costs a tenth of a plan: imports make many objects that stay
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of libraries, about insecure kubeconfigs for example
    try:
        try:
            # kubectl starts this program as kubectl-evenkeel. Shell completion uses one variable for both program
            # names.
            called = Path(sys.argv[0]).stem.replace("kubectl-evenkeel", "kubectl evenkeel")
            if " " in called and {"--install-completion", "--show-completion"}.intersection(sys.argv):
                # The completion of the two words `kubectl evenkeel` would replace kubectl's own completion.
                say("evenkeel: kubectl completes its own lines: completion is for the command evenkeel alone", err=True)
                sys.exit(BAD_INPUT)
            app(prog_name=called, complete_var=_COMPLETION)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is reported here in one line, not when the interpreter ends
            gc.freeze()  # otherwise, the interpreter looks for garbage in all objects when it ends: a tenth of a plan
    except KeyboardInterrupt:
        _exit_interrupted()
    except BrokenPipeError:
        _discard_output()
        sys.exit(0)  # the reader of a pipe has closed it
    except OSError as error:
        _discard_output()
        say(f"evenkeel: output cannot be written: {error.strerror or error}", err=True)
        sys.exit(CANNOT_READ)


def _exit_interrupted() -> NoReturn:
    try:
        say("evenkeel: interrupted", err=True)
    except OSError:  # the line cannot be printed, but its exit code remains
        _discard_output()
    sys.exit(INTERRUPTED)


def _discard_output() -> None:
    """Discard buffered output. Otherwise, the interpreter would write it when it ends, and fail with a traceback."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
