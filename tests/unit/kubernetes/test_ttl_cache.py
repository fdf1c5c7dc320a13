"""Threads that need one value share one request, and do not block other keys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from evenkeel.adapters.ttl_cache import Shared
from evenkeel.application.errors import AccessError
from tests.fakes import FakeClock

MINUTE = timedelta(minutes=1)
FIFTY = 50


class Service:
    """Answers with a new value each time, or fails; ``gate`` holds its answers up."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked = 0
        self.failure = failure
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def __call__(self) -> tuple[str, timedelta]:
        self.asked += 1
        self.reached.set()
        assert self.gate.wait(20)
        if self.failure is not None:
            raise self.failure
        return f"value-{self.asked}", MINUTE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def shared(clock: FakeClock) -> Shared[str]:
    return Shared(clock.now)


def outcomes(calls: list[Callable[[], str]]) -> list[str]:
    """Return each call's outcome. All begin before any ends."""
    together = threading.Barrier(len(calls))

    def run(call: Callable[[], str]) -> str:
        together.wait(20)
        try:
            return call()
        except AccessError as error:
            return f"failed: {error}"

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def test_fifty_threads_ask_once(shared: Shared[str]) -> None:
    service = Service()
    assert outcomes([lambda: shared.get("a", service)] * FIFTY) == ["value-1"] * FIFTY
    assert service.asked == 1


def test_a_hanging_key_does_not_block_another(shared: Shared[str]) -> None:
    hanging, quick = Service(), Service()
    hanging.gate.clear()
    with ThreadPoolExecutor(FIFTY) as threads:
        slow = [threads.submit(shared.get, "slow", hanging) for _ in range(FIFTY - 1)]
        assert hanging.reached.wait(20)
        assert threads.submit(shared.get, "quick", quick).result(20) == "value-1"
        assert not any(one.done() for one in slow)
        hanging.gate.set()
        assert {one.result(20) for one in slow} == {"value-1"}
    assert hanging.asked == 1


def test_a_failure_is_shared_for_some_seconds(shared: Shared[str], clock: FakeClock) -> None:
    service = Service(AccessError("no"))
    assert outcomes([lambda: shared.get("a", service)] * FIFTY) == ["failed: no"] * FIFTY
    assert service.asked == 1
    clock.at += timedelta(seconds=9)
    with pytest.raises(AccessError, match="no"):
        shared.get("a", service)
    assert service.asked == 1
    clock.at += timedelta(seconds=1)
    service.failure = None
    assert shared.get("a", service) == "value-2"


def test_an_unexpected_error_ends_every_waiting_call(shared: Shared[str]) -> None:
    service = Service(ZeroDivisionError("never reported"))
    service.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shared.get, "a", service)
        assert service.reached.wait(20)
        second = threads.submit(shared.get, "a", service)
        service.gate.set()
        assert isinstance(first.exception(20), ZeroDivisionError)
        assert "never reported" not in str(second.exception(20))
        assert isinstance(second.exception(20), AccessError | ZeroDivisionError)


def test_a_call_replaces_one_that_was_left_behind(shared: Shared[str], clock: FakeClock) -> None:
    frozen = Service()
    frozen.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        left_behind = threads.submit(shared.get, "a", frozen)
        assert frozen.reached.wait(20)
        clock.at += timedelta(seconds=8)
        assert shared.get("a", Service()) == "value-1"
        frozen.gate.set()
        left_behind.result(20)


def test_a_value_is_kept_until_it_expires(shared: Shared[str], clock: FakeClock) -> None:
    service = Service()
    values = []
    for _ in range(3):
        values.append(shared.get("a", service))
        clock.at += timedelta(seconds=30)
    assert values == ["value-1", "value-1", "value-2"]


def test_a_refused_value_is_replaced_once(shared: Shared[str]) -> None:
    service = Service()
    first = shared.get("a", service)
    assert outcomes([lambda: shared.get("a", service, first)] * FIFTY) == ["value-2"] * FIFTY
    assert shared.get("a", service) == "value-2"
    assert service.asked == 2


def test_expired_values_are_removed(shared: Shared[str], clock: FakeClock) -> None:
    for number in range(300):
        shared.get(number, Service())
    clock.at += 2 * MINUTE
    shared.get("last", Service())
    assert set(shared._entries) == {"last"}
