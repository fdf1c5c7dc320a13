"""Run tasks in parallel threads. Patches in sequence would fence a large outage too late."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

# Equal to the number of connections in the pool to an API server. An API server accepts hundreds of parallel requests.
THREADS = 16


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks, as an ``Executor``. Raises the error of the first task that failed. One task needs no thread."""
    _on_threads(tasks, THREADS)


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Start one thread per task, so that a task that waits for an answer delays no other task.

    All threads share one processor. The interpreter runs one thread at a time, and waking threads on other
    processors takes twice the time (``python -m bench quiet_check``).
    """
    _on_threads(tasks, len(tasks), _share_a_processor)


def _share_a_processor() -> None:
    """Bind the calling thread to the processor that this process has chosen."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[os.getpid() % len(processors)]})


def _on_threads(tasks: Sequence[Callable[[], None]], most: int, when_started: Callable[[], None] | None = None) -> None:
    if len(tasks) == 1:
        tasks[0]()
        return
    with ThreadPoolExecutor(max_workers=min(most, max(1, len(tasks))), initializer=when_started) as threads:
        futures = [threads.submit(task) for task in tasks]
        wait(futures)
    for future in futures:
        future.result()
