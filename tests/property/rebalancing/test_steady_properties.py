"""A steady cluster gets a quick check, which misses no change, whatever happens between checks."""

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
from tests.stack import Stack

Triple = tuple[int, int, int]
counts = st.tuples(*[st.integers(0, 5)] * 3)
pool_numbers = st.tuples(st.integers(0, 6), st.integers(3, 18))
names = st.sampled_from([strategy.name for strategy in STRATEGIES])
moments = st.timedeltas(timedelta(seconds=1), timedelta(days=3))


def settled_stack(running: Triple, numbers: tuple[int, int], strategy: str) -> Stack:
    low, high = min(numbers), max(numbers)
    pools = [{"name": "workers", "min": low, "max": high, "strategy": strategy}]
    stack = Stack(zones(running, bounds=[(0, 9)] * 3), pools=pools)
    for _ in range(10):
        stack.run()
        for member in list(stack.cluster.groups.values()):
            stack.cluster.change(member.key, running=member.requested)
    stack.clock.at += timedelta(hours=4)
    return stack


@given(running=counts, numbers=pool_numbers, strategy=names, later=st.lists(moments, min_size=1, max_size=4))
def test_time_changes_no_steady_plan(
    running: Triple, numbers: tuple[int, int], strategy: str, later: list[timedelta]
) -> None:
    stack = settled_stack(running, numbers, strategy)
    stored, observation = stack.store.load("demo"), stack.cluster.observe()
    plan = plan_for(stored, stored.policy, observation, stack.clock.at)
    if not is_steady(stored, observation, plan):
        return
    for time in later:
        again = plan_for(stored, stored.policy, observation, stack.clock.at + time)
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
    stack = settled_stack(running, numbers, strategy)
    quiet(stack)
    for what, zone, number in story:
        happen(stack, what, zone, number)
        stack.clock.at += timedelta(minutes=1)
        asked = []
        for steady_clusters in (stack.store.steady_clusters, nothing_known):
            stack.queue.requests.clear()
            with patch.object(stack.store, "steady_clusters", steady_clusters):
                stack.check(("demo",), lambda: 60)
            asked.append(sorted(why for _, why in stack.queue.requests.values() if why != "nothing to be done"))
        assert asked[0] == asked[1]
        if number > 4:
            stack.run()
            quiet(stack)


def nothing_known(_: object) -> dict[str, SteadyCluster]:
    return {}


def quiet(stack: Stack) -> None:
    """Play checks and the runs that they request, for a quarter of an hour or until the cluster is steady."""
    for _ in range(16):
        if stack.store.steady_clusters(["demo"]):
            return
        stack.checks()
        stack.carry_out()


def happen(stack: Stack, what: str, zone: str, number: int) -> None:
    group = stack.cluster.groups[key(zone)]
    match what:
        case "order":
            stack.cluster.change(key(zone), requested=number)
        case "node":
            stack.cluster.change(key(zone), running=group.requested)
        case "edit":
            stack.cluster.change(key(zone), pool_max=number + 3)
        case "fail":
            if key(zone) not in stack.state.groups:
                stack.fail(zone)
                stack.run()
        case "pause" | "resume":
            stack.ask(what)
