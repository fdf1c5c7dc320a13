"""Tasks on threads run at the same time and to their end; the first error is raised then."""

from functools import partial
from threading import Barrier, current_thread

import pytest

from evenkeel.adapters.thread_pool import THREADS, run_in_threads

_SECONDS = 30  # a barrier that is not full by then never will be


def test_as_many_as_there_are_threads_run_at_the_same_time() -> None:
    meeting = Barrier(THREADS)
    met = []

    def meet() -> None:
        met.append(meeting.wait(_SECONDS))

    run_in_threads([meet] * THREADS)
    assert sorted(met) == list(range(THREADS))


def test_the_first_error_is_raised_after_all_tasks_have_ended() -> None:
    done = []

    def task(number: int) -> None:
        done.append(number)
        if number in (3, 40):
            raise ValueError(number)

    with pytest.raises(ValueError, match=r"^3$"):
        run_in_threads([partial(task, number) for number in range(100)])
    assert sorted(done) == list(range(100))


def test_a_single_task_and_none_need_no_thread() -> None:
    threads = []
    run_in_threads([])
    run_in_threads([lambda: threads.append(current_thread())])
    assert threads == [current_thread()]
