"""Work in several processes: this one reads, and workers compute from what it has read.

``ProcessPoolExecutor`` would wait for ever for a worker that is killed while it sends its result. If this process were
killed, its workers would stay for ever.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from evenkeel.application.errors import EvenkeelError
from evenkeel.validation import ConfigError
from evenkeel_cli.terminal import CommandError

_T = TypeVar("_T")
_SPAWN = get_context("spawn")


def outcomes(reads: Mapping[str, Callable[[], Callable[[], _T]]]) -> Iterator[tuple[str, _T | Exception]]:
    """Yield each name with its result or its expected error, in the order of completion.

    ``reads`` are called here, one after the other. Each returns the function that computes the result. As many workers
    as processors call these functions, which must pickle. A single one is called here.
    """
    processes = min(len(reads), os.cpu_count() or 1)
    idle: list[Connection] = []
    busy: dict[Connection, str] = {}
    for name, read in reads.items():
        compute = _outcome(read)
        if isinstance(compute, Exception):
            yield name, compute
        elif processes == 1:
            yield name, _outcome(compute)
        else:
            if len(busy) == processes:
                yield from _received(busy, idle)
            worker = idle.pop() if idle else _start()
            with suppress(OSError):  # it was killed, so that it has no answer, either
                worker.send(compute)
            busy[worker] = name
    while busy:
        yield from _received(busy, idle)


def _outcome(call: Callable[[], _T]) -> _T | Exception:
    """Return what the function returns, or its expected error."""
    try:
        return call()
    except (CommandError, ConfigError, EvenkeelError) as error:
        return error


def _start() -> Connection:
    """Start a worker. It ends with this process."""
    here, there = _SPAWN.Pipe()
    worker = _SPAWN.Process(target=_work, args=(there, gc.get_threshold()), daemon=True)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the worker: Ctrl-C is for this process alone
    try:
        worker.start()
    finally:
        signal.signal(signal.SIGINT, handler)
    there.close()
    return here


def _work(connection: Connection, thresholds: tuple[int, int, int]) -> None:
    """Answer each received function with its outcome, until the other process ends."""
    gc.set_threshold(*thresholds)
    with suppress(EOFError, OSError):
        while True:
            connection.send(_outcome(connection.recv()))


def _received(busy: dict[Connection, str], idle: list[Connection]) -> Iterator[tuple[str, Any]]:
    """Wait for answers, and yield each with its name."""
    for worker in wait([*busy]):
        assert isinstance(worker, Connection)
        try:
            answer = worker.recv()
            idle.append(worker)
        except (EOFError, OSError):
            answer = CommandError(["its process was killed, perhaps for lack of memory: forecast this cluster alone"])
        yield busy.pop(worker), answer
