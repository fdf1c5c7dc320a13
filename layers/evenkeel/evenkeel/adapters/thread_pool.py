"""Tasks side by side, on threads: one patch after the other, a big outage would not be fenced in time."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

# As many connections as are kept to an API server; it counts requests in flight by the hundred.
THREADS = 16


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """``Executor``. Raises what the first task that failed has raised.

    One task needs no thread: a quiet cluster never has one.
    """
    _on_threads(tasks, THREADS)


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """The same, with a thread for each: those that wait for an answer keep none of the others from asking.

    All on one processor: the interpreter runs one of them at a time, and those that are woken on another to wait for
    it there cost twice the time (``python -m bench quiet_check``).
    """
    _on_threads(tasks, len(tasks), _share_a_processor)


def _share_a_processor() -> None:
    """From now on the calling thread runs where all threads of this process that call this do."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[os.getpid() % len(processors)]})


def _on_threads(tasks: Sequence[Callable[[], None]], most: int, when_started: Callable[[], None] | None = None) -> None:
    if len(tasks) == 1:
        tasks[0]()
        return
    with ThreadPoolExecutor(max_workers=min(most, max(1, len(tasks))), initializer=when_started) as threads:
        ended = [threads.submit(task) for task in tasks]
        wait(ended)
    for task in ended:
        task.result()
