"""The entry point of the command line. Even an interrupt during its imports prints only one line."""

import os
import sys

_INTERRUPTED = 130  # the exit code of shells for an interrupt


def main() -> None:
    """Run the command line. An interrupt prints one line and exits with 130."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # a closed stream, as under cron
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (open until the end)
    try:
        from evenkeel_cli.main import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as end:
        # For an interrupt, typer raises a plain SystemExit and prints nothing. With a subclass, a message is already
        # printed.
        if isinstance(end, SystemExit) and (end.code != _INTERRUPTED or type(end) is not SystemExit):
            raise
        sys.stderr.write("evenkeel: interrupted\n")
        sys.exit(_INTERRUPTED)
