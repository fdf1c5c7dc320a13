"""Where `evenkeel` begins: whoever interrupts it while it is still being imported gets one line, too."""

import sys

_INTERRUPTED = 130  # as shells have it


def main() -> None:
    try:
        from evenkeel.cli.main import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and (end.code != _INTERRUPTED or type(end) is not SystemExit):
            raise  # typer has caught an interrupt itself, and says nothing; an exit of another type has told of it
        sys.stderr.write("evenkeel: interrupted\n")
        sys.exit(_INTERRUPTED)
