"""The entry point of the command line. An interrupt prints only one line, also one during the imports."""

# Only modules that are built in or that Python has imported at its start: ``signal`` and ``typing`` import others.
import _signal  # type: ignore[import-not-found]  # has no stub
import os
import sys

_INTERRUPTED = 130  # the exit code of shells for an interrupt


def _end(*_: object) -> None:
    """End at once. During imports, an exception could be lost, or could print more than one line."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # a second interrupt must not print a second line
    try:  # noqa: SIM105 (contextlib is not imported yet)
        os.write(2, b"evenkeel: interrupted\n")
    except OSError:
        pass  # standard error is closed or full, but the exit code remains
    os._exit(_INTERRUPTED)


# Before anything else is imported. A shell lets a background job ignore interrupts; that remains.
_IS_DEFAULT = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _IS_DEFAULT:
    _signal.signal(_signal.SIGINT, _end)
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})  # the launcher has blocked it until here


def _unraisable(ignored: "sys.UnraisableHookArgs") -> None:
    """End for an interrupt in a destructor or callback, where Python prints an exception and goes on."""
    if ignored.exc_type is KeyboardInterrupt:
        _end()
    sys.__unraisablehook__(ignored)


def _is_interrupt(end: BaseException) -> bool:
    """Return True if an interrupt ended the command line and no message is printed yet."""
    if isinstance(end, SystemExit):  # typer raises a plain one for an interrupt; with a subclass, a message is printed
        return end.code == _INTERRUPTED and type(end) is SystemExit
    cause: BaseException | None = end
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__  # Python 3.11 raises RuntimeError for one in __set_name__
    return cause is not None


def launched() -> None:
    """Run the command line under the name of the launcher, which is the first argument."""
    sys.argv = sys.argv[1:] or sys.argv
    main()


def main() -> None:
    """Run the command line. An interrupt prints one line and exits with 130."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # a closed stream, as under cron
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (open until the end)
    try:
        try:
            from evenkeel_cli.main import main as run

            sys.unraisablehook = _unraisable
            if _IS_DEFAULT:
                _signal.signal(_signal.SIGINT, _signal.default_int_handler)
            run()
        finally:
            if _IS_DEFAULT:
                _signal.signal(_signal.SIGINT, _end)  # also while the interpreter ends
    except BaseException as end:
        if not _is_interrupt(end):
            raise
        _end()
