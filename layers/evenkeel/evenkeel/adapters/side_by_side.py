"""Tasks side by side, on threads: one patch after the other, a big outage would not be fenced in time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

# As many connections as are kept to an API server; it counts requests in flight by the hundred.
THREADS = 16


def side_by_side(tasks: Sequence[Callable[[], None]]) -> None:
    """:class:`evenkeel.application.ports.Together`. Raises what the first task that failed has raised.

    One task needs no thread: a quiet cluster never has one.
    """
    _on_threads(tasks, THREADS)


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """The same, with a thread for each: those that wait for an answer keep none of the others from asking."""
    _on_threads(tasks, len(tasks))


def _on_threads(tasks: Sequence[Callable[[], None]], most: int) -> None:
    if len(tasks) == 1:
        tasks[0]()
        return
    with ThreadPoolExecutor(max_workers=min(most, max(1, len(tasks)))) as threads:
        ended = [threads.submit(task) for task in tasks]
        wait(ended)
    for task in ended:
        task.result()
