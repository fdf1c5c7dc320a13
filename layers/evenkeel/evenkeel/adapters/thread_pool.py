"""Runs tasks in parallel threads. In a large outage, patches one after the other would fence groups too late."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

# The largest number of threads. It equals the number of connections that are kept to an API server, which accepts
# hundreds of parallel requests.
THREADS = 16


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks (an ``Executor``). Raises the error of the first failed task. A single task needs no new thread."""
    _on_threads(tasks, THREADS)


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Start one thread per task, so that a task that waits for an answer delays no other task."""
    _on_threads(tasks, len(tasks))


def _on_threads(tasks: Sequence[Callable[[], None]], most: int) -> None:
    if len(tasks) == 1:
        tasks[0]()
        return
    with ThreadPoolExecutor(max_workers=min(most, max(1, len(tasks)))) as threads:
        futures = [threads.submit(task) for task in tasks]
        wait(futures)
    for future in futures:
        future.result()
