"""PoolMinimum by the clock, in random pools."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.capabilities.minimum_at import MINIMUM_AT
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import ClusterState
from tests.builders import numbers, requested, zones
from tests.parts import replace
from tests.property.worlds import World, pools

DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
times = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 30]))


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    start, until = draw(st.tuples(times, times).filter(lambda pair: pair[0] != pair[1]))
    return {
        "days": draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=7)),
        "from": start,
        "until": until,
        "time_zone": draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"])),
        "min": draw(st.integers(0, 40)),
    }


def planned(world: World, listed: Sequence[dict[str, Any]]) -> PoolPlan:
    rules = tuple(replace(rule, minimum_at=MINIMUM_AT.read(json.dumps(listed))) for rule in world.policy.pools)
    return replace(world, policy=replace(world.policy, pools=rules)).pool()


@given(pools(), st.lists(entries(), max_size=4))
def test_the_floor_is_never_above_the_maximum_of_the_pool(world: World, listed: Sequence[dict[str, Any]]) -> None:
    before, after = world.pool(), planned(world, listed)
    if after.mode.valid:
        assert before.min is not None
        assert after.min is not None
        assert after.max is not None
        assert before.min <= after.min <= after.max


@given(pools(), st.lists(entries(), max_size=3), entries())
def test_one_more_entry_never_lowers_the_minimum(
    world: World, listed: Sequence[dict[str, Any]], more: dict[str, Any]
) -> None:
    assert (planned(world, listed).min or 0) <= (planned(world, [*listed, more]).min or 0)


@given(pools(), st.lists(entries(), min_size=1, max_size=3))
def test_a_rise_takes_no_node_that_a_plan_without_it_leaves(world: World, listed: Sequence[dict[str, Any]]) -> None:
    before, after = world.pool(), planned(world, listed)
    for was, now in zip(before.groups, after.groups, strict=True):
        assert now.requested >= min(was.requested, was.group.requested)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 30), st.integers(0, 30))
def test_a_rise_in_a_healthy_pool_gets_its_nodes_level_over_zones(nodes: list[int], least: int, most: int) -> None:
    world = World(Observation(groups=tuple(zones(nodes))), ClusterState(), numbers(0, max(most, len(nodes))))
    found = requested(planned(world, [{"from": "00:00", "until": "24:00", "time_zone": "UTC", "min": least}]))
    assert sum(found) == max(sum(nodes), min(least, max(most, len(nodes))))
    assert all(now >= before for now, before in zip(found, nodes, strict=True))
    grown = [now for now, before in zip(found, nodes, strict=True) if now > before]
    assert not grown or max(grown) - min(found) <= 1
