"""No order repeats without effect, whatever the new nodes are like, and this delays no order that helps."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.codec import dump_stored
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.past_orders import ORDERS_KEPT, PastOrder, wait_after
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import PoolState
from tests.builders import NOW
from tests.crashing import How, Life
from tests.stories import (
    ABSENT,
    CASES,
    LABEL,
    RED,
    ExpectedNodesStory,
    fixed_at_each_minute,
    ordering,
    per_hour,
    tainted,
    zero_taint,
)
from tests.workloads import EVERYTHING, template
from tests.world import HOUR, MINUTE, App, Shape, World


def incident_of(world: World) -> Incident | None:
    return next((each for each in world.incidents() if each.kind is IncidentKind.INEFFECTIVE_ORDER), None)


@pytest.mark.parametrize("name", CASES)
def test_ineffective_orders_become_rare_and_an_incident(name: str) -> None:
    case = CASES[name]
    world = case.make()
    world.live_for(4 * HOUR)
    hours = per_hour(world, 4)
    assert hours[0] <= case.first
    assert max(hours[2:]) <= case.later
    assert bool(sum(hours)) == case.ordered
    incident = incident_of(world)
    problem = incident.problems[0]
    assert problem.facts["count"] == 3
    assert isinstance(problem.facts["why"], Reason)
    if case.ordered:
        assert problem.kind is ProblemKind.INEFFECTIVE_ORDER
        assert str(problem.facts["node"]).startswith("workers-")
    else:
        assert problem.kind is ProblemKind.BLOCKED_BY_DAEMON_SETS
        assert problem.facts["daemons"] == ("kube-system/agent",)


@pytest.mark.parametrize("name", CASES)
def test_a_fixed_pod_gets_its_node_and_ends_the_incident(name: str) -> None:
    case = CASES[name]
    world = case.make()
    world.live_for(2.5 * HOUR)
    before = len(world.waiting())
    case.fix(world)
    fixed = world.age()
    orders = len(world.orders)
    if case.is_visible:
        world.live_for(MINUTE)
        assert len(world.orders) > orders or len(world.waiting()) < before
    while len(world.waiting()) == before and world.age() - fixed < 2 * HOUR:
        world.live_for(MINUTE)
    assert world.age() - fixed <= (20 if case.is_soon else 75) * MINUTE
    world.live_for((15 if case.is_visible else 50) * MINUTE)
    assert not world.waiting()
    assert incident_of(world) is None


@pytest.mark.parametrize(("timeout", "boots"), [(300, 2), (900, 3)])
@pytest.mark.parametrize("name", [name for name in CASES if "Ready" in name])
def test_a_fixed_bootstrap_gives_a_node_within_20_minutes(name: str, timeout: int, boots: int) -> None:
    world = CASES[name].make(takes=boots * MINUTE, provision_timeout=timeout)
    world.live_for(2.5 * HOUR)
    assert max(fixed_at_each_minute(world, 17)) <= 20
    world.live_for(1.5 * HOUR)
    hours = per_hour(world, 4)
    assert hours[0] <= 12
    assert max(hours[2:]) <= 4


@pytest.mark.parametrize("name", [name for name in CASES if "Ready" not in name])
def test_other_pods_of_the_pool_get_their_nodes_with_the_next_check(name: str) -> None:
    world = CASES[name].make()
    world.live_for(2.5 * HOUR)
    world.apps["other"] = App("other", 8, 2000, fields={"tolerations": EVERYTHING})
    world.settle_pods()
    orders = len(world.orders)
    world.live_for(MINUTE)
    assert sum(order.nodes for order in world.orders[orders:]) > 1
    world.live_for(11 * MINUTE)
    assert not world.waiting("other")


@pytest.mark.parametrize(
    ("fields", "renames"),
    [({}, 10), ({"ahead": 10 * MINUTE}, 0), ({"ahead": -10 * MINUTE}, 0)],
    ids=["pods are made anew", "the clock of the API server is ahead", "it is behind"],
)
def test_neither_new_pods_nor_clocks_restart_orders(fields: dict[str, Any], renames: int) -> None:
    world = tainted(**fields)
    world.apps["web"].is_unique = True
    world.renames = renames * MINUTE
    world.live_for(3 * HOUR)
    assert per_hour(world, 3) == [5, 1, 1]


@pytest.mark.parametrize("stage", ["full", "scale-up"])
@pytest.mark.parametrize("nodes", [(1, 1, 1), (0, 0, 0)])
def test_zones_with_effective_nodes_serve_all_pods(stage: str, nodes: tuple[int, ...]) -> None:
    world = ordering([App("web", 2, 3000)], nodes=nodes, demand=stage)
    world.shape_of = lambda zone: RED if zone == "a" else Shape()
    for pods in range(2, 11):
        world.apps["web"].pods = pods
        world.settle_pods()
        world.live_for(20 * MINUTE)
        assert not world.waiting(), pods
    assert max(per_hour(world, 3)) <= 6 + 3


def test_all_pods_run_where_half_of_the_machines_fit() -> None:
    chance = random.Random(2)
    world = ordering([App("web", 10, 3500)])
    world.shape_of = lambda _zone: Shape(cores=chance.choice([4, 3]))
    world.live_for(2 * HOUR)
    assert not world.waiting()


def test_many_ineffective_pod_groups_delay_no_others() -> None:
    kinds = [App(f"vain-{i}", 1, 2000 + 10 * i, fields={"node_selector": LABEL}) for i in range(22)]
    world = ordering(kinds, nodes=(1, 1, 1), shapes=(Shape(labels=LABEL),), maximum=100)
    world.live_for(2.5 * HOUR)
    world.apps["web"] = App("web", 8, 2000)
    world.settle_pods()
    world.live_for(5 * MINUTE)
    assert not world.waiting("web")


LIES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "taint": ({}, {"makes": RED}),
    "label": (ABSENT, {"makes": Shape(labels=LABEL)}),
    "cpu": ({}, {"promised": template(cpu="4"), "makes": Shape(cores=2)}),
    "DaemonSet": ({}, {"daemons": {"agent": 1800}, "lists_daemons": False}),
}


@pytest.mark.parametrize("zones", [1, 3])
@pytest.mark.parametrize("lie", LIES)
def test_ineffective_orders_do_not_move_between_pools(lie: str, zones: int) -> None:
    needs, fields = LIES[lie]
    apps = [App("web", 3, 3000, **needs)]
    pools = ["first", "second", "third", "fourth"]
    world = ordering(apps, pools=pools, nodes=[0] * zones, **fields)
    world.live_for(4 * HOUR)
    hours = per_hour(world, 4)
    assert hours[0] <= 6
    assert max(hours[1:]) <= 2


@pytest.mark.parametrize("lie", LIES)
def test_many_pod_groups_order_no_more_than_a_few(lie: str) -> None:
    needs, fields = LIES[lie]
    apps = [App(f"app{number:02}", 1, 2500 + number, **needs) for number in range(25)]
    world = ordering(apps, maximum=60, **fields)
    world.live_for(4 * HOUR)
    hours = per_hour(world, 4)
    assert hours[0] <= 25 + 5, "one for each kind, and what is tried again"
    assert max(hours[1:]) <= 3, "each for other kinds"


def test_runs_that_die_repeat_no_ineffective_order() -> None:
    """They repeat neither the first order nor the second try."""
    for when in (timedelta(0), 11 * MINUTE):
        life, undisturbed = Life(), zero_taint()
        undisturbed.live_for(when)
        undisturbed.run(life)
        undisturbed.live_for(30 * MINUTE)
        for at in range(len(life.steps)):
            for how in (How.BEFORE, How.LOST):
                world = zero_taint()
                world.live_for(when)
                world.run(Life(at=at, how=how))
                world.live_for(30 * MINUTE)
                ordered = world.ordered
                assert 3 < ordered <= undisturbed.ordered + 1, (when, at, how)


@pytest.mark.parametrize("seed", range(3))
def test_no_pod_waits_where_nodes_are_as_expected(seed: int) -> None:
    world = ExpectedNodesStory(seed).play()
    assert not world.waiting()
    assert incident_of(world) is None


ORDER = PastOrder(
    at=NOW,
    seen=NOW - MINUTE,
    groups=("cluster-api/default/workers-a",),
    is_open=False,
    failed=2,
    node="n1",
    why=Reason(Rule.NODE_AFFINITY, {"terms": 1, "keys": ("disk",)}),
)


def test_a_stored_order_is_small() -> None:
    assert len(dump_stored(PoolState(orders={"a" * 12 + "/" + "b" * 12: ORDER}))) < 700


def test_an_order_is_remembered_for_longer_than_its_wait() -> None:
    assert wait_after(10_000) == HOUR < ORDERS_KEPT
    never = replace(ORDER, why=Reason(Rule.NODE_NOT_READY))
    assert (ORDER.counted, never.counted) == (2, 0)


class Dying(World):
    """A world whose new nodes are Ready for some minutes."""

    lives: timedelta

    def pass_time(self, time: timedelta | None = None) -> None:
        super().pass_time(time)
        self.down([name for name, at in self.joined.items() if at + self.lives <= self.clock.now()])


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize(("lives", "evicts"), [(6, 5), (2, 0), (2, 5), (6, 0)])
def test_nodes_that_die_after_minutes_are_one_incident(demand: str, lives: int, evicts: int) -> None:
    world = Dying([App("web", 3, 3000)], nodes=(0, 0, 0), takes=2 * MINUTE, demand=demand)
    world.lives, world.evicted_after = lives * MINUTE, evicts * MINUTE
    opened = set()
    while world.age() < 3 * HOUR:
        world.live_for(MINUTE)
        if (incident := incident_of(world)) is not None:
            opened.add(incident.since)
    assert len(opened) == 1
    assert incident_of(world) is not None
