"""The formulas touch every group a few times, and not once for each other group."""

from __future__ import annotations

from datetime import timedelta

import pytest

from evenkeel.domain.bounds.balanced import deal
from evenkeel.domain.bounds.gep24 import FORMULAS, Seat
from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.groups import Bounds, State
from tests.builders import NOW


class Counted(Seat):
    """A seat that counts how often anybody reads its numbers."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("counted", "target", "running", "state", "bounds", "weight", "zone_max"):
            Counted.reads += 1
        return super().__getattribute__(name)


def _seats(number: int) -> list[Seat]:
    state = (State.HEALTHY, State.HEALTHY, State.HEALTHY, State.FENCED, State.PROBING, State.FROZEN)
    return [
        Counted(
            key=f"group-{i}",
            counted=i % 7,
            target=i % 7,
            running=i % 7,
            state=state[i % len(state)],
            bounds=Bounds(0, 9),
            tie=i * 7919 % 1009,
        )
        for i in range(number)
    ]


def _reads(strategy: Strategy, number: int) -> int:
    seats = _seats(number)
    Counted.reads = 0
    if strategy is Strategy.BALANCED:
        still = timedelta(seconds=15)
        deal(number, number * 9, seats, None, grower="", stood_since=NOW, still=still, now=NOW)
    else:
        FORMULAS[strategy](number, number * 9, seats)
    return Counted.reads


@pytest.mark.parametrize("strategy", list(Strategy))
def test_ten_times_the_groups_are_ten_times_the_work(strategy: Strategy) -> None:
    assert _reads(strategy, 1000) <= 15 * _reads(strategy, 100)
