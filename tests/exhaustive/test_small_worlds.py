"""Every rule of a plan holds in every small world. What random worlds miss, all small worlds show."""

from itertools import islice
from pathlib import Path

from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.exhaustive.plan_rules import PLAN_RULES, becomes_quiet, check, pool_rule
from tests.exhaustive.small_worlds import small_worlds

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
#: `make test` plays one of so many worlds. It is prime, so that each number, state and setting occurs.
SAMPLE = 29


def test_every_rule_checks_a_promise_of_the_guarantees() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    assert [promise for promise in PLAN_RULES.values() if f"| **{promise}**" not in text] == []


def test_a_sample_of_the_small_worlds_keeps_every_rule() -> None:
    sample = list(islice(small_worlds(), 0, None, SAMPLE))
    for world in sample:
        check(world)
    assert len(sample) > 2000


def test_every_small_world_keeps_every_rule() -> None:
    count = 0
    for world in small_worlds():
        check(world)
        count += 1
    text = GUARANTEES.read_text(encoding="utf-8")
    assert f"all {count:,} pools of up to three zones" in text


def test_every_small_world_of_two_zones_becomes_quiet() -> None:
    for world in small_worlds((1, 2)):
        if pool_rule(world).strategy is BALANCED:
            becomes_quiet(world)
