"""The strategies read every group a few times, whatever the number of groups."""

import pytest

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.drafts import Draft
from evenkeel.domain.model.groups import State
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import drafted, group, numbers


class Counted(Draft):
    """A draft that counts how often its numbers are read."""

    reads = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("requested", "state", "group"):
            Counted.reads += 1
        return super().__getattribute__(name)


def _reads(strategy: Strategy, number: int) -> int:
    states = (State.HEALTHY, State.HEALTHY, State.HEALTHY, State.FENCED, State.PROBING, State.FROZEN)
    groups = [group(f"{i:04}", i % 7, bounds=(0, 9)) for i in range(number)]
    pool = drafted(groups, numbers(number, number * 9, strategy))
    pool.groups = [
        Counted(group=found, state=states[i % len(states)], requested=found.requested, pool_id=pool.pool.id)
        for i, found in enumerate(groups)
    ]
    Counted.reads = 0
    pool.pool.settings.strategy.size(pool)
    return Counted.reads


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_ten_times_the_groups_are_ten_times_the_work(strategy: Strategy) -> None:
    assert _reads(strategy, 1000) <= 15 * _reads(strategy, 100)
