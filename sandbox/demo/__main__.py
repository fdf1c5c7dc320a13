"""Plays the demo with two clusters side by side; with the argument `all`, the demo with five kinds of clusters."""

import os
import signal
import sys
from typing import NoReturn

# An exception would print a traceback if a callback raised it. All threads and endpoints end with the process.
signal.signal(signal.SIGINT, lambda *_: os._exit(130))


def main() -> NoReturn:
    """Play a demo and end the process: 0 done, 1 it failed, 130 interrupted. A closed pipe is no error."""
    try:
        print("Starting clusters, AWS endpoints and Evenkeel's functions (about 3 seconds)", flush=True)
        if sys.argv[1:] == ["all"]:
            from sandbox.demo.five_clusters import main as play
        else:
            from sandbox.demo.side_by_side import main as play
        from sandbox.demo.stage import open_console

        sys.exit(play(open_console()))
    except BrokenPipeError:
        os._exit(0)  # nothing may flush into the pipe at the end
    except OSError as error:
        print(f"the demo ends: {error.strerror or error}", file=sys.stderr)
        os._exit(1)  # nothing may flush to a full disk at the end


if __name__ == "__main__":
    main()
