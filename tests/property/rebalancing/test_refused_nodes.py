"""Refused nodes are released, moved or requested again: pods get theirs, and no node comes for nothing."""

from datetime import timedelta

import pytest

from tests.refusals import Night, Refusals, bound, play_request
from tests.vain_orders import HOUR, MINUTE


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize("fails", ["refusing", "dead"])
def test_a_bound_pod_adds_no_node_elsewhere_and_runs_when_its_zone_is_well(demand: str, fails: str) -> None:
    world = Refusals([bound("web", "a")], demand=demand)
    getattr(world, fails).add("a")
    for _ in range(14):
        world.live(HOUR / 2)
        assert world.running() == {"a": 1, "b": 1, "c": 1}
    assert len(world.orders) <= 16  # probes, at most one each half hour once backoff is at its longest
    getattr(world, fails).clear()
    ends = world.store.load("demo").state.groups
    fence = max(state.failure.backoff_until for state in ends.values() if state.failure.backoff_until is not None)
    world.live(max(timedelta(0), fence - world.clock.now()) + 2 * MINUTE + world.boots)
    assert world.waiting() == 0
    assert world.running() == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("seed", range(4))
def test_every_pod_gets_its_node_and_no_node_is_idle_for_an_hour(seed: int) -> None:
    night = Night(seed, demand=("scale-up", "full")[seed % 2], deaths=seed >= 2)
    world = night.play()
    assert all(world.waiting(app) == 0 for app in world.apps)
    assert world.longest_idle <= HOUR
    assert night.happened["zones fail"]


@pytest.mark.parametrize("seed", range(8))
def test_refused_nodes_of_a_request_come_where_the_request_allows_them(seed: int) -> None:
    world, nodes, only = play_request(seed)
    bound_pods = world.apps["web"].pods
    assert world.waiting() == 0
    more = sum(world.running().values()) - 3 - nodes
    assert more in {bound_pods, 0 if "workers-a" in only else bound_pods}  # the pod may run on a requested node
    others = {zone: nodes for zone, nodes in world.running().items() if f"workers-{zone}" not in only}
    assert others == {zone: 1 + (bound_pods if zone == "a" else 0) for zone in others}
