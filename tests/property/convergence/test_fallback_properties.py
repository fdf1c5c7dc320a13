"""Fallback pools: the right nodes return in time, and never too many, whatever happens to the runs."""

import pytest

from tests.returning import World, play

ALONE, BESIDE_AN_AUTOSCALER = "serverless", "own"


def wrong(world: World) -> dict[str, int]:
    return dict(+world.wrong)


@pytest.mark.parametrize("variant", [ALONE, BESIDE_AN_AUTOSCALER])
def test_held_nodes_return_within_the_budget_and_no_pod_waits(variant: str) -> None:
    worlds = {seed: play(seed, variant) for seed in range(3)}
    assert {seed: found for seed, world in worlds.items() if (found := wrong(world))} == {}
    assert {seed: world.held for seed, world in worlds.items() if any(world.held.values())} == {}
    assert sum(len(world.given) for world in worlds.values()) > 3


@pytest.mark.parametrize("variant", [ALONE, BESIDE_AN_AUTOSCALER])
def test_runs_that_die_lose_and_double_no_node(variant: str) -> None:
    worlds = {seed: play(seed, variant, harm=0.4) for seed in range(100, 103)}
    assert {seed: found for seed, world in worlds.items() if (found := wrong(world))} == {}
    assert {seed: world.held for seed, world in worlds.items() if any(world.held.values())} == {}


def test_several_fallbacks_give_one_node_at_a_time() -> None:
    worlds = {seed: play(seed, ALONE, harm=0.3, fallbacks=2) for seed in range(200, 203)}
    assert {seed: found for seed, world in worlds.items() if (found := wrong(world))} == {}
    assert sum(len(world.given) for world in worlds.values()) > 2


@pytest.mark.parametrize("variant", [ALONE, BESIDE_AN_AUTOSCALER])
def test_nodes_of_other_sizes_return_in_one_step_per_new_node(variant: str) -> None:
    worlds = {seed: play(seed, variant, harm=0.3, sizes=(2, 8)) for seed in (302, 305, 306)}
    assert {seed: found for seed, world in worlds.items() if (found := wrong(world))} == {}
    assert {seed: world.held for seed, world in worlds.items() if any(world.held.values())} == {}
    assert any(len(world.orders) > len(world.given) > 0 for world in worlds.values())
