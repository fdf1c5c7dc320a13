"""A cluster that is steady is glanced at, and that misses nothing, whatever happens between looks."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.rebalancing.plan import is_steady, plan_for
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import key, zones
from tests.house import House

Triple = tuple[int, int, int]
counts = st.tuples(*[st.integers(0, 5)] * 3)
pool_numbers = st.tuples(st.integers(0, 6), st.integers(3, 18))
names = st.sampled_from([strategy.name for strategy in STRATEGIES])
moments = st.timedeltas(timedelta(seconds=1), timedelta(days=3))


def settled_house(running: Triple, numbers: tuple[int, int], strategy: str) -> House:
    low, high = min(numbers), max(numbers)
    pools = [{"name": "workers", "min": low, "max": high, "strategy": strategy}]
    house = House(zones(running, bounds=[(0, 9)] * 3), pools=pools)
    for _ in range(10):
        house.run()
        for member in list(house.cluster.groups.values()):
            house.cluster.change(member.key, running=member.requested)
    house.clock.at += timedelta(hours=4)
    return house


@given(running=counts, numbers=pool_numbers, strategy=names, later=st.lists(moments, min_size=1, max_size=4))
def test_time_changes_no_steady_plan(
    running: Triple, numbers: tuple[int, int], strategy: str, later: list[timedelta]
) -> None:
    house = settled_house(running, numbers, strategy)
    stored, observation = house.store.load("demo"), house.cluster.observe()
    plan = plan_for(stored, stored.policy, observation, house.clock.at)
    if not is_steady(stored, observation, plan):
        return
    for time in later:
        again = plan_for(stored, stored.policy, observation, house.clock.at + time)
        assert replace(again, now=plan.now) == plan
        assert evaluate(stored.cluster_health, again, stored.state.groups, timedelta(minutes=5)) == ClusterHealth()


happenings = st.sampled_from(["order", "node", "edit", "fail", "pause", "resume", "nothing", "nothing", "nothing"])


@given(
    running=counts,
    numbers=pool_numbers,
    strategy=names,
    story=st.lists(st.tuples(happenings, st.sampled_from("abc"), st.integers(0, 9)), max_size=8),
)
def test_quick_checks_request_the_runs_of_full_checks(
    running: Triple, numbers: tuple[int, int], strategy: str, story: list[tuple[str, str, int]]
) -> None:
    house = settled_house(running, numbers, strategy)
    quiet(house)
    for what, zone, number in story:
        happen(house, what, zone, number)
        house.clock.at += timedelta(minutes=1)
        asked = []
        for steady_clusters in (house.store.steady_clusters, nothing_known):
            house.queue.requests.clear()
            with patch.object(house.store, "steady_clusters", steady_clusters):
                house.look(("demo",), lambda: 60)
            asked.append(sorted(why for _, why in house.queue.requests.values() if why != "nothing to be done"))
        assert asked[0] == asked[1]
        if number > 4:
            house.run()
            quiet(house)


def nothing_known(_: object) -> dict[str, SteadyCluster]:
    return {}


def quiet(house: House) -> None:
    """A quarter of an hour of looks with the runs that they ask for, and nothing else, or until it is steady."""
    for _ in range(16):
        if house.store.steady_clusters(["demo"]):
            return
        house.looks()
        house.carry_out()


def happen(house: House, what: str, zone: str, number: int) -> None:
    group = house.cluster.groups[key(zone)]
    match what:
        case "order":
            house.cluster.change(key(zone), requested=number)
        case "node":
            house.cluster.change(key(zone), running=group.requested)
        case "edit":
            house.cluster.change(key(zone), pool_max=number + 3)
        case "fail":
            if key(zone) not in house.state.groups:
                house.fail(zone)
                house.run()
        case "pause" | "resume":
            house.ask(what)
