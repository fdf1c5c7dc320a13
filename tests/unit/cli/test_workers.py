"""Workers: their results and errors, and one that is killed."""

import os
from functools import partial
from typing import Any

import pytest

from evenkeel.validation import ConfigError
from evenkeel_cli.terminal import CommandError, fail
from evenkeel_cli.workers import outcomes

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the pipes to workers


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def compute(function: Any, *arguments: Any) -> Any:
    """What needs no reading."""
    return partial(partial, function, *arguments)


def test_each_name_gets_its_result_or_its_error() -> None:
    unreadable = ConfigError(["pools is 7: not a list"])

    def read() -> Any:
        raise unreadable

    found = dict(
        outcomes({"a": compute(int, "7"), "b": read, "c": compute(fail, ["x", "y"], 3), "d": compute(os.getpid)})
    )

    assert (found["a"], found["b"]) == (7, unreadable)
    assert isinstance(found["c"], CommandError)
    assert (found["c"].faults, found["c"].code) == (["x", "y"], 3)
    assert found["d"] != os.getpid()


def test_a_single_one_is_computed_here() -> None:
    assert list(outcomes({"a": compute(os.getpid)})) == [("a", os.getpid())]
    assert list(outcomes({})) == []


def test_a_killed_worker_costs_one_result() -> None:
    reads = {"a": compute(os._exit, 9), "b": compute(int, "1"), "c": compute(int, "2"), "d": compute(int, "3")}

    found = dict(outcomes(reads))

    killed = found.pop("a")
    assert isinstance(killed, CommandError)
    assert killed.faults == ["its process was killed, perhaps for lack of memory: forecast this cluster alone"]
    assert found == {"b": 1, "c": 2, "d": 3}
