"""Where `evenkeel` begins: whoever interrupts it while it is still being imported gets one line, too."""

import os
import sys

_INTERRUPTED = 130  # as shells have it


def main() -> None:
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed, as by cron: nothing is read, the exit code is all that is wanted
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (until the end)
    try:
        from evenkeel_cli.main import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and (end.code != _INTERRUPTED or type(end) is not SystemExit):
            raise  # typer has caught an interrupt itself, and says nothing; an exit of another type has told of it
        sys.stderr.write("evenkeel: interrupted\n")
        sys.exit(_INTERRUPTED)
