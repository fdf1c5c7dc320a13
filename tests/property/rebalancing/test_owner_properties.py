"""Properties of the arithmetic of owners of bounds and replicas, as the sandbox's controllers do it."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones
from sandbox.kube.controllers.node_pools import NodePoolOperator
from sandbox.kube.controllers.shoots import Share, distribute, distribute_int_or_percent, shares

Case = tuple[dict[str, Any], list[int]]
SIZES = st.integers(0, 1000)


@st.composite
def pools(draw: st.DrawFn) -> Case:
    zones = draw(st.integers(1, 6))
    low = draw(st.integers(0, 60))
    pool = {
        "name": "p",
        "minimum": low,
        "maximum": draw(st.integers(low, 90)),
        "zones": [f"z{index}" for index in range(zones)],
    }
    return pool, draw(st.lists(st.integers(0, 40), min_size=zones, max_size=zones))


def shares_of(pool: dict[str, Any], **changed: int) -> list[Share]:
    return list(shares("ns", [pool | changed]))


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_shares_are_even_and_those_of_gardener(size: int, zones: int) -> None:
    dealt = [distribute(index, size, zones) for index in range(zones)]
    assert dealt == [distribute_over_zones(index, size, zones) for index in range(zones)]
    assert sum(dealt) == size
    assert max(dealt) - min(dealt) <= 1
    assert dealt == sorted(dealt, reverse=True)


@given(SIZES, st.integers(1, 12), st.integers(1, 100))
def test_one_node_more_in_a_pool_is_one_more_in_one_zone(size: int, zones: int, more: int) -> None:
    for index in range(zones):
        assert distribute(index, size, zones) <= distribute(index, size + more, zones)


@given(pools())
def test_replicas_are_clamped_to_the_share(case: Case) -> None:
    pool, replicas = case
    for share, count in zip(shares_of(pool), replicas, strict=True):
        clamped = share.clamp(count)
        assert share.minimum <= clamped <= share.maximum
        assert clamped == share.clamp(clamped)
        if share.minimum <= count <= share.maximum:
            assert clamped == count
        else:
            assert clamped == (share.minimum if count < share.minimum else share.maximum)


@given(pools(), st.integers(0, 90))
def test_a_lower_maximum_removes_no_node_iff_it_holds_all(case: Case, maximum: int) -> None:
    pool, replicas = case
    zones = len(replicas)
    lowered = shares_of(pool, minimum=0, maximum=maximum)
    kept = all(share.clamp(count) >= count for share, count in zip(lowered, replicas, strict=True))
    keeps = all(maximum >= zones * (count - 1) + index + 1 for index, count in enumerate(replicas) if count >= 1)
    assert kept == keeps


@given(pools(), st.integers(0, 90))
def test_a_higher_minimum_orders_nothing_iff_zones_have_it(case: Case, minimum: int) -> None:
    pool, replicas = case
    zones = len(replicas)
    raised = shares_of(pool, minimum=minimum, maximum=1000)
    still = all(share.clamp(count) == count for share, count in zip(raised, replicas, strict=True))
    assert still == all(minimum <= zones * count + index for index, count in enumerate(replicas))


@given(st.integers(2, 6), st.integers(0, 200), st.data())
def test_relief_gives_healthy_zones_the_room_of_dead_ones(zones: int, maximum: int, data: st.DataObject) -> None:
    dead = data.draw(st.integers(1, zones - 1))
    left = data.draw(st.integers(0, maximum))  # nodes that still run in the dead zones
    relief = zones * math.ceil((maximum - left) / (zones - dead))
    per_zone = {distribute(index, relief, zones) for index in range(zones)}
    assert len(per_zone) == 1, "every zone gets the same, the dead ones as well"
    assert (zones - dead) * per_zone.pop() + left >= maximum


@given(st.integers(0, 3000), st.integers(1, 8), st.integers(0, 100))
def test_a_surge_is_distributed_over_zones(total: int, zones: int, surge: int) -> None:
    assert sum(int(distribute_int_or_percent(index, surge, zones, total)) for index in range(zones)) == surge
    for index in range(zones):
        percents = str(distribute_int_or_percent(index, f"{surge}%", zones, total))
        if total % zones == 0:
            assert percents == f"{surge}%"
        elif distribute(index, total, zones) > total / zones:
            assert int(percents[:-1]) >= surge


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 99), st.booleans())
def test_a_node_pool_keeps_replicas_within_its_autoscaling(low: int, room: int, replicas: int, known: bool) -> None:
    pool = {"spec": {"autoScaling": {"min": low, "max": max(1, low + room)}}}
    reported_low, reported_high, wanted = NodePoolOperator.size(
        pool, {"status": {"capacity": {}} if known else {}}, replicas
    )
    assert reported_low <= wanted <= reported_high == max(1, low + room)
    assert reported_low == (low or (0 if known else 1))
    if reported_low <= replicas <= reported_high:
        assert wanted == replicas


@given(st.none() | st.integers(0, 50), st.integers(0, 99))
def test_a_node_pool_with_replicas_has_no_autoscaling(fixed: int | None, replicas: int) -> None:
    pool = {"spec": {} if fixed is None else {"replicas": fixed}}
    assert NodePoolOperator.size(pool, {}, replicas) == (0, 0, fixed or 0)
