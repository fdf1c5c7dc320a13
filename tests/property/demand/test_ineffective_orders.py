"""No order repeats without effect, whatever the nodes that arrive look like, and none that helps comes later for it."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.codec import dump_stored
from evenkeel.domain.model.past_orders import ORDERS_KEPT, PastOrder, wait_after
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.workload import Node
from tests.builders import NOW
from tests.crashing import How, Life
from tests.vain_orders import (
    CASES,
    HOUR,
    LABEL,
    MINUTE,
    TAINT,
    App,
    Make,
    Story,
    VainWorld,
    fixed_at_each_minute,
    tainted,
    zero_taint,
)
from tests.workloads import template

RED = Make(taints=(TAINT,))


@pytest.mark.parametrize("name", CASES)
def test_ineffective_orders_become_rare_and_an_incident(name: str) -> None:
    case = CASES[name]
    world = case.make()
    world.live(4 * HOUR)
    hours = world.per_hour(4)
    assert hours[0] <= case.first
    assert max(hours[2:]) <= case.later
    assert bool(sum(hours)) == case.ordered
    incident = world.incident()
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
    world.live(2.5 * HOUR)
    before = world.waiting()
    case.fix(world)
    fixed = world.now()
    orders = len(world.orders)
    if case.is_visible:
        world.live(MINUTE)
        assert len(world.orders) > orders or world.waiting() < before
    while world.waiting() == before and world.now() - fixed < 2 * HOUR:
        world.live(MINUTE)
    assert world.now() - fixed <= (20 if case.is_soon else 75) * MINUTE
    world.live((15 if case.is_visible else 50) * MINUTE)
    assert world.waiting() == 0
    assert world.incident() is None


@pytest.mark.parametrize(("timeout", "boots"), [(300, 2), (900, 3)])
@pytest.mark.parametrize("name", [name for name in CASES if "Ready" in name])
def test_a_fixed_bootstrap_gives_a_node_within_20_minutes(name: str, timeout: int, boots: int) -> None:
    world = CASES[name].make(boots=boots * MINUTE, provision_timeout=timeout)
    world.live(2.5 * HOUR)
    assert max(fixed_at_each_minute(world, 17)) <= 20
    world.live(1.5 * HOUR)
    hours = world.per_hour(4)
    assert hours[0] <= 12
    assert max(hours[2:]) <= 4


@pytest.mark.parametrize("name", [name for name in CASES if "Ready" not in name])
def test_other_pods_of_the_pool_get_their_nodes_with_the_next_check(name: str) -> None:
    world = CASES[name].make()
    world.live(2.5 * HOUR)
    world.apps["other"] = App(name="other", pods=8, cpu="2", tolerates=True)
    world.schedule()
    orders = len(world.orders)
    world.live(MINUTE)
    assert sum(nodes for _, nodes in world.orders[orders:]) > 1
    world.live(11 * MINUTE)
    assert world.waiting("other") == 0


@pytest.mark.parametrize(
    ("fields", "renames"),
    [({}, 10), ({"ahead": 10 * MINUTE}, 0), ({"ahead": -10 * MINUTE}, 0)],
    ids=["pods are made anew", "the clock of the API server is ahead", "it is behind"],
)
def test_neither_new_pods_nor_clocks_restart_orders(fields: dict[str, Any], renames: int) -> None:
    world = tainted(**fields)
    world.apps["web"].is_unique = True
    world.renames = renames * MINUTE
    world.live(3 * HOUR)
    assert world.per_hour(3) == [5, 1, 1]


@pytest.mark.parametrize("stage", ["full", "scale-up"])
@pytest.mark.parametrize("nodes", [((Make(),), (Make(),), (Make(),)), ((), (), ())], ids=["one node each", "at zero"])
def test_zones_with_effective_nodes_serve_all_pods(stage: str, nodes: tuple[tuple[Make, ...], ...]) -> None:
    app = App(name="web", pods=2)
    world = VainWorld([app], nodes=nodes, demand=stage)
    world.makes = lambda _, zone: Make(taints=(TAINT,)) if zone == "a" else Make()
    for pods in range(2, 11):
        world.apps["web"].pods = pods
        world.schedule()
        world.live(20 * MINUTE)
        assert world.waiting() == 0, pods
    assert max(world.per_hour(3)) <= 6 + 3


def test_all_pods_run_where_half_of_the_machines_fit() -> None:
    chance = random.Random(2)
    world = VainWorld([App(name="web", pods=10, cpu="3500m")])
    world.makes = lambda *_: Make(cpu=chance.choice(["4", "3"]))
    world.live(2 * HOUR)
    assert world.waiting() == 0


def test_many_ineffective_pod_groups_delay_no_others() -> None:
    kinds = [App(name=f"vain-{i}", pods=1, cpu=f"{2000 + 10 * i}m", selects=LABEL) for i in range(22)]
    labelled, plain = (Make(labels=LABEL),), (Make(),)
    world = VainWorld(kinds, nodes=(labelled, plain, plain), maximum=100)
    world.live(2.5 * HOUR)
    world.apps["web"] = App(name="web", pods=8, cpu="2")
    world.schedule()
    world.live(5 * MINUTE)
    assert world.waiting() == 0


LIES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "taint": ({}, {"makes": RED}),
    "label": ({"absent": "disk"}, {"makes": Make(labels=LABEL)}),
    "cpu": ({}, {"promised": template(cpu="4"), "makes": Make(cpu="2")}),
    "DaemonSet": ({}, {"daemons": {"agent": "1800m"}, "lists_daemons": False}),
}


@pytest.mark.parametrize("zones", [1, 3])
@pytest.mark.parametrize("lie", LIES)
def test_ineffective_orders_do_not_move_between_pools(lie: str, zones: int) -> None:
    needs, fields = LIES[lie]
    apps = [App(name="web", pods=3, cpu="3", **needs)]
    pools = ["first", "second", "third", "fourth"]
    world = VainWorld(apps, pools=pools, nodes=[()] * zones, **fields)
    world.live(4 * HOUR)
    hours = world.per_hour(4)
    assert hours[0] <= 6
    assert max(hours[1:]) <= 2


@pytest.mark.parametrize("lie", LIES)
def test_many_pod_groups_order_no_more_than_a_few(lie: str) -> None:
    needs, fields = LIES[lie]
    apps = [App(name=f"app{number:02}", pods=1, cpu=f"{2500 + number}m", **needs) for number in range(25)]
    world = VainWorld(apps, maximum=60, **fields)
    world.live(4 * HOUR)
    hours = world.per_hour(4)
    assert hours[0] <= 25 + 5, "one for each kind, and what is tried again"
    assert max(hours[1:]) <= 3, "each for other kinds"


def test_runs_that_die_repeat_no_ineffective_order() -> None:
    """The first order, and the one that is tried again."""
    for when in (timedelta(0), 11 * MINUTE):
        life, undisturbed = Life(), zero_taint()
        undisturbed.live(when)
        undisturbed.run(life)
        undisturbed.live(30 * MINUTE)
        for at in range(len(life.steps)):
            for how in (How.BEFORE, How.LOST):
                world = zero_taint()
                world.live(when)
                world.run(Life(at=at, how=how))
                world.live(30 * MINUTE)
                ordered = sum(nodes for _, nodes in world.orders)
                assert 3 < ordered <= sum(nodes for _, nodes in undisturbed.orders) + 1, (when, at, how)


@pytest.mark.parametrize("seed", range(3))
def test_no_pod_waits_where_nodes_are_as_expected(seed: int) -> None:
    world = Story(seed).play()
    assert {app: count for app in world.apps if (count := world.waiting(app))} == {}
    assert world.incident() is None


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


class Dying(VainWorld):
    """A world whose new nodes are Ready for some minutes. Some time later, their pods are made anew."""

    def __init__(self, apps: list[App], *, lives: timedelta, evicts: timedelta, **fields: Any) -> None:
        self.lives, self.evicts = lives, evicts
        super().__init__(apps, **fields)

    def nodes(self) -> list[Node]:
        found = super().nodes()
        for i, node in enumerate(found):
            dies = self.joined.get(node.name, self.clock.now()) + self.lives
            if dies <= self.clock.now():
                found[i] = replace(node, ready=False, not_ready_since=dies)
        return found

    def schedule(self) -> None:
        for node in self.nodes():
            if not node.ready and node.not_ready_since is not None:
                gone = self.clock.now() - node.not_ready_since >= self.evicts
                self.pods = {name: pod for name, pod in self.pods.items() if not gone or pod.node != node.name}
        super().schedule()


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize(("lives", "evicts"), [(6, 5), (2, 0), (2, 5), (6, 0)])
def test_nodes_that_die_after_minutes_are_one_incident(demand: str, lives: int, evicts: int) -> None:
    world = Dying([App(name="web", pods=3)], demand=demand, lives=lives * MINUTE, evicts=evicts * MINUTE)
    opened = set()
    while world.now() < 3 * HOUR:
        world.live(MINUTE)
        if (incident := world.incident()) is not None:
            opened.add(incident.since)
    assert len(opened) == 1
    assert world.incident() is not None
