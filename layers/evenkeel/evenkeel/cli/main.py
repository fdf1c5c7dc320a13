"""`evenkeel` on a laptop. One module per command; here they come together.

Exit codes: 0 done; 1 it could not be done now (a cluster or a stack did not answer); 2 bad input, one line per fault;
3 some pool is invalid.
"""

import sys
from io import TextIOWrapper

import typer

from evenkeel.cli.acting import commands
from evenkeel.cli.planning import plan_command
from evenkeel.cli.reporting import report_command
from evenkeel.cli.simulating import simulate_command

app = typer.Typer(
    name="evenkeel",
    help="Keeps the zones of Kubernetes node pools even and whole.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors as plain lines
)


@app.callback()
def evenkeel() -> None:
    """Keeps the zones of Kubernetes node pools even and whole."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that the terminal lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")


app.command("plan")(plan_command)
for name, command in commands().items():
    app.command(name)(command)
app.command("simulate")(simulate_command)
app.command("report")(report_command)


def main() -> None:
    try:
        app()
    except BrokenPipeError:
        sys.exit(0)  # the reader of a pipe has seen enough


if __name__ == "__main__":
    main()
