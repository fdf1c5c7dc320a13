"""The entry point of the command line. An interrupt prints only one line, also one during the imports."""

# Only modules that are built in or that Python has imported at its start: ``signal`` and ``typing`` import others.
import _signal  # type: ignore[import-not-found]  # has no stub
import os
import sys

_INTERRUPTED = 130  # the exit code of shells for an interrupt


def _end(*_: object) -> None:
    """End at once. During imports, an exception could be lost, or could print more than one line."""
    os.write(2, b"evenkeel: interrupted\n")
    os._exit(_INTERRUPTED)


# Before anything else is imported. A shell lets a background job ignore interrupts; that remains.
_IS_DEFAULT = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _IS_DEFAULT:
    _signal.signal(_signal.SIGINT, _end)


def _unraisable(ignored: "sys.UnraisableHookArgs") -> None:
    """End for an interrupt in a destructor or callback, where Python prints an exception and goes on."""
    if ignored.exc_type is KeyboardInterrupt:
        _end()
    sys.__unraisablehook__(ignored)


def main() -> None:
    """Run the command line. An interrupt prints one line and exits with 130."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # a closed stream, as under cron
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (open until the end)
    try:
        from evenkeel_cli.main import main as run

        sys.unraisablehook = _unraisable
        if _IS_DEFAULT:
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        run()
    except (KeyboardInterrupt, SystemExit) as end:
        # For an interrupt, typer raises a plain SystemExit and prints nothing. With a subclass, a message is already
        # printed.
        if isinstance(end, SystemExit) and (end.code != _INTERRUPTED or type(end) is not SystemExit):
            raise
        sys.stderr.write("evenkeel: interrupted\n")
        sys.exit(_INTERRUPTED)
    finally:
        if _IS_DEFAULT:
            _signal.signal(_signal.SIGINT, _end)  # while the interpreter ends
