"""Runs tasks in parallel threads. In a large outage, patches one after the other would fence groups too late."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

# The largest number of threads. It equals the number of connections that are kept to an API server, which accepts
# hundreds of parallel requests.
THREADS = 16


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks (an ``Executor``). Raises the error of the first failed task. A single task needs no new thread."""
    _on_threads(tasks, THREADS)


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Start one thread per task, so that a task that waits for an answer delays no other task.

    All threads share one processor. The interpreter runs one thread at a time, and waking threads on other
    processors takes twice the time (``python -m bench quiet_check``).
    """
    _on_threads(tasks, len(tasks), _share_a_processor)


def _share_a_processor() -> None:
    """Bind the calling thread to one processor, the same for all threads of this process."""
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
