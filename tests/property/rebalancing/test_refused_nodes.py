"""Refused nodes are released, moved or requested again: pods get nodes, and no unneeded node is added."""

from datetime import timedelta

import pytest

from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.measures import measure
from evenkeel_cli.simulation.scenario import read_scenario
from tests.stories import Refusals, RefusalStory, bound, play_request
from tests.world import HOUR, MINUTE, App


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize("fails", ["refusing", "dead"])
def test_a_bound_pod_adds_no_node_elsewhere_and_runs_when_its_zone_is_well(demand: str, fails: str) -> None:
    world = Refusals([bound("web", "a")], demand=demand)
    getattr(world, fails).add("a")
    for _ in range(14):
        world.live_for(HOUR / 2)
        assert world.running() == {"a": 1, "b": 1, "c": 1}
    assert len(world.orders) <= 16  # probes, at most one each half hour once backoff is at its longest
    getattr(world, fails).clear()
    ends = world.store.load("demo").state.groups
    fence = max(state.failure.backoff_until for state in ends.values() if state.failure.backoff_until is not None)
    world.live_for(max(timedelta(0), fence - world.clock.now()) + 2 * MINUTE + world.takes)
    assert not world.waiting()
    assert world.running() == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_pod_gets_its_node_and_no_node_is_idle_for_an_hour(seed: int, *, for_good: bool) -> None:
    story = RefusalStory(seed, demand=("scale-up", "full")[seed % 2], deaths=seed >= 2, fails_for_good=for_good)
    world = story.play()
    assert not world.waiting()
    assert world.longest_idle <= HOUR
    assert story.happened["zones fail"]


@pytest.mark.parametrize("seed", range(8))
def test_refused_nodes_of_a_request_come_where_the_request_allows_them(seed: int) -> None:
    world, nodes, only = play_request(seed)
    bound_pods = world.apps["web"].pods
    assert not world.waiting()
    more = sum(world.running().values()) - 3 - nodes
    assert more in {bound_pods, 0 if "workers-a" in only else bound_pods}  # the pod may run on a requested node
    others = {zone: nodes for zone, nodes in world.running().items() if f"workers-{zone}" not in only}
    assert others == {zone: 1 + (bound_pods if zone == "a" else 0) for zone in others}


# All zones refuse machines for half a minute, and one continues. The other two get a node each.
AFTER_A_HICCUP = {
    "name": "hiccup",
    "duration": "30m",
    "seed": 1,
    "zones": [
        {"name": "a", "provision": "30s", "capacity": [{"at": "0s"}, {"at": "10m", "nodes": 3}]},
        *(
            {
                "name": name,
                "provision": "30s",
                "capacity": [{"at": "0s"}, {"at": "10m", "nodes": 3}, {"at": "10m30s"}],
                "failure": {"retry": "30s"},
            }
            for name in "bc"
        ),
    ],
    "pools": [{"name": "workers", "min": 0, "max": 12, "start": 9}],
    "demand": [{"nodes": [{"at": "0s", "nodes": 9}, {"at": "10m", "nodes": 12}]}],
}


@pytest.mark.parametrize("variant", ["own", "no-autoscaler"])
def test_a_zone_whose_node_came_after_a_hiccup_of_all_zones_takes_nodes(variant: str) -> None:
    scenario = read_scenario(AFTER_A_HICCUP, "hiccup.yaml")
    (found,) = variants_of(scenario, variant)
    seconds = measure(Run(scenario, found)()).worst_seconds
    assert seconds is not None
    assert seconds < 180  # of the simulation; once 975 s next to an autoscaler, and never without one


@pytest.mark.parametrize("demand", ["off", "scale-up"])
def test_after_a_hiccup_of_all_zones_no_node_waits_for_the_one_that_goes_on(demand: str) -> None:
    pods = 3 if demand == "scale-up" else 0
    world = Refusals([App("web", pods, 3000)], maximum=6, demand=demand)
    if demand == "off":
        world.request("more", 3)
    world.refusing = {"a", "b", "c"}
    world.live_for(2 * MINUTE)
    world.refusing = {"a"}
    world.live_for(15 * MINUTE)
    assert sum(world.running().values()) == 6
    assert world.running()["a"] == 1
