"""Every rule of a plan holds in every small world. They include cases that random worlds miss."""

from itertools import islice
from pathlib import Path

import pytest

from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.exhaustive.plan_rules import PLAN_RULES, becomes_quiet, check, pool_rule
from tests.exhaustive.small_worlds import small_worlds

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
#: `make test` plays one of so many worlds. It is prime, so that each number, state and setting occurs.
SAMPLE = 29
#: The parts stay below the time that a test may take on a machine that is busy.
PARTS = 4


def test_every_rule_checks_a_promise_of_the_guarantees() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    assert [promise for promise in PLAN_RULES.values() if f"| **{promise}**" not in text] == []


def test_a_sample_of_the_small_worlds_keeps_every_rule() -> None:
    sample = list(islice(small_worlds(), 0, None, SAMPLE))
    for world in sample:
        check(world)
    assert len(sample) > 2000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_small_world_keeps_every_rule(part: int) -> None:
    for world in islice(small_worlds(), part, None, PARTS):
        check(world)


def test_every_small_world_is_counted_in_the_guarantees() -> None:
    count = sum(1 for _ in small_worlds())
    assert f"all {count:,} pools of up to three zones" in GUARANTEES.read_text(encoding="utf-8")


def test_every_small_world_of_two_zones_becomes_quiet() -> None:
    for world in small_worlds((1, 2)):
        if pool_rule(world).strategy is BALANCED:
            becomes_quiet(world)
