"""The entry point: an interrupt during the imports prints one line, too."""

import os
import sys

_INTERRUPTED = 130  # as in shells


def main() -> None:
    """Run the command line. An interrupt prints one line and exits with 130."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed, as by cron
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (until the end)
    try:
        from evenkeel_cli.main import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and (end.code != _INTERRUPTED or type(end) is not SystemExit):
            raise  # typer exits silently on an interrupt; another type has been explained
        sys.stderr.write("evenkeel: interrupted\n")
        sys.exit(_INTERRUPTED)
