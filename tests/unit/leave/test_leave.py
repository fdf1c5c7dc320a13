"""Leaving a zone: the action with every port in memory, plans and their texts, and the command."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.adapters.codec import pack
from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel.application.operate import Operate
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import Window
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.workload import Owner
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel_cli import stack_client, terminal
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, group, key, stated, zones
from tests.convergence import PlayedPool, convergence
from tests.crashing import Life
from tests.fakes import plenty
from tests.parts import replace
from tests.stack import Stack
from tests.unit.cli.test_drill_command import AskedStack
from tests.workloads import pod
from tests.world import App, World, _Opened

BLIND = {"converge": {"blind": True}}
WHO = {"by": "jane"}


def left(groups: Sequence[NodeGroup] | None = None, **fields: Any) -> Stack:
    stack = Stack(zones((3, 2, 2), bounds=[(0, 9)] * 3) if groups is None else groups, **{**BLIND, **fields})
    stack.settle()
    return stack


def leave(world: World, **fields: Any) -> None:
    stored = world.store.load("demo")
    control = stored.control.model_copy(update={"leave": Leave(zone="a", at=world.clock.at, **fields)})
    world.store.save_record(stored.record, control, stored.versions)


def test_the_zone_is_fenced_until_it_is_ended_and_the_command_may_be_repeated() -> None:
    stack = left()
    answer = stack.ask("leave-zone", zone="a", **WHO)
    assert answer["message"] == (
        "zone a of demo is left: 3 nodes to move, at most 4 an hour in pool workers, the last one not before "
        f"{stack.clock.at:%Y-%m-%dT%H:%M:%SZ}. To end it: evenkeel leave-zone --stack NAME --cluster demo --back"
    )
    control = stack.store.load("demo").control
    stack.clock.at += MINUTE
    assert stack.ask("leave-zone", zone="a", **WHO)["done"] is False
    assert stack.store.load("demo").control == control
    assert len(stack.queue.requests) == 2
    stack.carry_out()
    assert stack.cluster.groups[key("a")].bounds.max == 3
    stack.ask("leave-zone", back=True, **WHO)
    stack.runs(25)  # a step that has begun ends first
    assert stack.cluster.groups[key("a")].bounds.max > 3
    assert stack.ask("leave-zone", back=True, **WHO)["message"] == "demo leaves no zone: nothing is to be ended"


def test_status_plan_explain_and_page_show_the_progress() -> None:
    stack = left()
    stack.ask("leave-zone", zone="a", per_hour=1, **{"for": "2h", **WHO})
    stack.carry_out()
    note = "leaves zone a until 2026-01-15T14:"
    status = stack.ask("status")
    assert status["pools"][0]["notes"][0].startswith(note)
    assert status["pools"][0]["notes"][0].endswith(": 3 nodes are left there, at most 1 node moves in an hour")
    assert status["pools"][0]["groups"][0]["state"] == "fenced"
    assert "eaves zone a until" in document(page_of_status(status, "status", stack.clock.now()))
    assert "Leaves zone a until" in stack.ask("explain", pool="workers")["message"]
    assert "raised by 1 to leave a zone: once the new node runs, a machine of a is drained" in str(stack.ask("record"))
    assert "zone a is left" in str(stack.ask("plan")["plan"]["pools"][0]["groups"][0]["reasons"])


def test_a_leave_ends_at_its_time() -> None:
    stack = left()
    stack.ask("leave-zone", zone="a", **{"for": "90m", **WHO})
    stack.run()
    assert stack.cluster.groups[key("a")].bounds.max == 3
    stack.clock.at += timedelta(minutes=90)
    stack.run()
    assert stack.cluster.groups[key("a")].bounds.max > 3
    assert stack.ask("leave-zone", back=True, **WHO)["done"] is False
    assert stack.store.load("demo").control.leave is None
    assert stack.ask("leave-zone", zone="b", **WHO)["done"] is True


def test_in_dry_run_it_is_stored_and_nothing_moves_before_going_live() -> None:
    stack = left(stack_dry_run=True)
    answer = stack.ask("leave-zone", zone="a", **WHO)
    assert answer["message"].startswith("dry run: stored, applies from going live: zone a of demo is to be left")
    stack.run()
    assert [each.requested for each in stack.cluster.groups.values()] == [3, 2, 2]
    assert stack.cluster.groups[key("a")].bounds.max > 3


def test_a_forecast_stores_nothing() -> None:
    stack = left()
    answer = stack.ask("leave-zone", zone="a", per_hour=2, dry_run=True, **WHO)
    assert answer["message"].startswith("zone a of demo would be left: 3 nodes to move, at most 2 an hour in pool")
    assert (answer["leave"]["moving"], answer["leave"]["pools"][0]["nodes"]) == (3, 3)
    assert stack.store.load("demo").control.leave is None
    assert not stack.queue.requests


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"zone": "a", "per_hour": 0}, "per_hour is '0': ask for a whole number of nodes, 1 or more"),
        ({"zone": "a", "per_hour": True}, "per_hour is 'True': ask for a whole number of nodes, 1 or more"),
        ({"zone": "d"}, "zone is 'd': no node group of demo is there; its zones are a, b, c"),
        ({}, "leave-zone needs a zone or a zone_id: name one of them"),
        ({"zone": "a", "pool": "worker"}, "pool is 'worker': demo has no such pool"),
        (
            {"zone": "c", "pool": "single"},
            "zone c of demo cannot be left: pool single is invalid, or has no node group",
        ),
        (
            {"zone": "a", "pool": "single"},
            "zone a of demo cannot be left: pool single is invalid, or has no node group",
        ),
        ({"zone": "a", "until": "2026-01-15T12:00:00Z"}, "until is '2026-01-15T12:00:00Z': that is past"),
        ({"zone": "a", "for": "0m"}, "for is '0m'"),
        ({"zone": "a", "back": True}, "leave-zone: back ends it: leave out zone"),
    ],
)
def test_bad_input_is_one_line(fields: dict[str, Any], line: str) -> None:
    single = group("c", 1, pool="single", bounds=(1, 3))
    pools = [{"name": "workers", "min": 3, "max": 12}, {"name": "single", "min": 1, "max": 3}]
    stack = left([*zones((3, 2), bounds=[(0, 9)] * 2), single, group("c", 2, bounds=(0, 9))], pools=pools)
    assert stack.refused("leave-zone", **fields, **WHO).startswith(line)
    assert stack.store.load("demo").control.leave is None


def test_a_second_zone_is_refused_and_a_changed_rate_replaces_the_first() -> None:
    stack = left()
    stack.ask("leave-zone", zone="a", pool="workers", **WHO)
    assert stack.refused("leave-zone", zone="b", **WHO) == (
        "pool cluster-api/default/workers of demo leaves zone a: end that with --back first"
    )
    before = stack.store.load("demo").control.leave
    stack.ask("leave-zone", zone="a", per_hour=2, **WHO)
    assert stack.store.load("demo").control.leave == replace(before, pool="", per_hour=2)
    assert stack.refused("leave-zone", zone="b", **WHO) == "demo leaves zone a: end that with --back first"
    # Otherwise the other pools would silently return to the zone.
    narrower = stack.refused("leave-zone", zone="a", pool="workers", **WHO)
    assert narrower == "demo leaves zone a: end that with --back first"
    assert "fails in zone a" in stack.refused("drill", zone="b", reason="a rehearsal", **WHO)


def test_no_zone_is_left_during_a_drill() -> None:
    stack = left()
    stack.ask("drill", zone="a", reason="a rehearsal", **WHO)
    assert stack.refused("leave-zone", zone="b", **WHO) == "demo has an open drill: end it before you leave a zone"


def two_pools() -> World:
    world = World(nodes=(3, 2, 2), pools=("workers", "others"), demand="off", **BLIND)
    world.live(3)
    return world


def nodes_in_zone(world: World) -> dict[str, int]:
    return {
        name.name.rpartition("-")[0]: each.requested
        for name, each in world.cluster.groups.items()
        if name.name.endswith("-a")
    }


def test_the_rate_is_that_of_the_whole_cluster() -> None:
    world = two_pools()
    leave(world, per_hour=1)
    for hours in range(6):
        world.live(30)
        assert sum(nodes_in_zone(world).values()) == 5 - hours
        world.live(30)


def test_a_leave_of_one_pool_leaves_the_others_as_they_are() -> None:
    world = two_pools()
    leave(world, pool="others")
    world.live(20)
    assert nodes_in_zone(world) == {"workers": 3, "others": 0}
    assert world.cluster.groups[key("a")].bounds.max > 3


def leaving(counts: Sequence[int] = (3, 2, 2), **fields: Any) -> PlayedPool:
    policy = convergence(**{"maximum": 20, "level": Level.OFF, **fields})
    return PlayedPool(counts, replace(policy, leave=Leave(zone="a", at=NOW)))


def test_it_stops_while_another_zone_fails() -> None:
    pool = leaving()
    pool.fences({"b": NOW + timedelta(hours=1)})
    pool.live(30)
    assert pool.requested == (3, 2, 2)
    assert pool.why == "no node is moved: pool workers is fenced in zone b"
    pool.fences({})
    pool.live(30)
    assert pool.requested[0] == 0


def test_it_goes_on_where_only_the_zone_itself_fails() -> None:
    pool = leaving()
    pool.fences({"a": NOW + timedelta(hours=9)})
    pool.live(30)
    assert pool.requested[0] == 0


def test_it_waits_for_the_windows_and_the_room_of_converge() -> None:
    pool = leaving(windows=(Window.read("22:00-06:00"),))
    pool.live(20)
    assert (pool.requested, pool.why) == ((3, 2, 2), "the record's next window opens at 2026-01-15T22:00:00Z")
    full = leaving(maximum=7)
    full.live(20)
    assert full.requested == (3, 2, 2)
    assert "leaves no room for a replacement" in full.why


def test_without_another_healthy_zone_with_room_it_says_so() -> None:
    pool = leaving((3, 2))
    pool.change("b", zone_max=2)
    pool.live(20)
    assert (pool.requested, pool.why) == ((3, 2), "no node is moved: no other zone of the pool is healthy and has room")


def test_a_minimum_of_the_zone_itself_keeps_no_node() -> None:
    pool = leaving()
    pool.change("a", zone_min=2)
    pool.live(30)
    assert pool.requested[0] == 0


@pytest.mark.parametrize("strategy", ["Lax-Greedy", "Backward-Compatible", "Adaptive", "Balanced"])
@pytest.mark.parametrize("autoscaler", [True, False])
def test_the_zone_is_empty_with_every_strategy_although_its_share_of_the_minimum_was_there(
    strategy: str, autoscaler: bool
) -> None:
    pool = leaving((2, 2, 2), strategy=read_strategy(strategy), minimum=6, autoscaler=autoscaler)
    pool.live(40)
    assert (pool.requested[0], sum(pool.requested)) == (0, 6)
    assert pool.bounds("a") == (0, 0)


def test_the_fence_holds_where_an_annotation_turns_fences_off() -> None:
    pool = leaving()
    pool.change("a", fencing_enabled=False)
    pool.check()
    assert pool.bounds("a") == (0, 3)
    pool.live(30)
    assert pool.requested[0] == 0


@pytest.mark.parametrize(
    ("counts", "level", "after"),
    [((0, 1, 7), Level.CONVERGE, (0, 4, 4)), ((2, 1, 7), Level.CONVERGE, (0, 5, 5)), ((0, 1, 7), Level.OFF, (0, 1, 7))],
)
def test_once_the_zone_is_empty_converge_levels_the_others(
    counts: tuple[int, ...], level: Level, after: tuple[int, ...]
) -> None:
    pool = leaving(counts, level=level)
    pool.live(100)
    assert pool.requested == after


def test_pods_that_stay_keep_no_other_zone_from_being_levelled() -> None:
    world = World([App("web", 4, 300)], nodes=(1, 1, 5), demand="off", level="converge")
    world.live(5)
    world.add(pod("naked", cpu="100m", node=world.in_zone("a")[0], owner=None))
    leave(world)
    world.live(90)
    assert world.requested() == {"a": 1, "b": 3, "c": 3}


def test_a_frozen_group_keeps_its_nodes() -> None:
    pool = leaving()
    pool.groups["a"] = pool.groups["a"].frozen(stated("paused"))
    pool.live(30)
    assert (pool.requested, pool.last.groups[0].state) == ((3, 2, 2), State.FROZEN)


def test_a_hold_from_before_the_leave_does_not_delay_it() -> None:
    pool = leaving((2, 2, 5), level=Level.CONVERGE)
    pool.policy = replace(pool.policy, leave=None)
    pool.live(12)
    id, state = next(iter(pool.state.pools.items()))
    held = replace(state.convergence, step=None, held_since=pool.now, held_until=pool.now + timedelta(hours=24))
    pool.state = replace(pool.state, pools={id: replace(state, convergence=held)})
    pool.policy = replace(pool.policy, leave=Leave(zone="c", at=pool.now + MINUTE))
    pool.live(150)
    assert pool.requested[2] == 0


@pytest.mark.parametrize("autoscaler", ["none", "cluster-autoscaler"])
def test_pods_that_cannot_move_are_named_and_stay(autoscaler: str) -> None:
    world = World([App("web", 10, 1500)], nodes=(3, 3, 3), demand="off", autoscaler=autoscaler)
    world.live(5)
    for name, fields in {"naked": {"owner": None}, "bound": {"node_selector": {"zone": "a"}}}.items():
        world.add(pod(name, cpu="100m", node=world.in_zone("a")[0], **fields))
    world.add(pod("db", cpu="100m", node=world.in_zone("b")[0], owner=Owner("StatefulSet", "db")))
    leave(world)
    world.live(40)
    assert (world.requested()["a"], sum(world.requested().values())) == (1, 9)
    assert {"naked", "bound"} <= {name.rpartition("/")[2] for name in world.on(world.in_zone("a")[0])}
    assert world.waiting() == []
    (entry,) = world.store.load("demo").state.pools.values()
    assert entry.convergence.step is None


def test_the_forecast_names_the_pods_that_cannot_move() -> None:
    world = World([App("web", 6, 1500)], nodes=(3, 3, 3), demand="off")
    world.live(5)
    world.add(pod("naked", cpu="100m", node=world.in_zone("a")[1], owner=None))
    operate = Operate(
        store=world.store,
        clusters=_Opened(world, Life()),
        queue=world.queue,
        clock=world.clock,
        random_bytes=world.chance.randbytes,
        pack=pack,
        dry_run=False,
    )
    answer = operate({"action": "leave-zone", "cluster": "demo", "zone": "a", "dry_run": True}, plenty)
    (pool,) = answer["leave"]["pools"]
    assert (answer["leave"]["moving"], pool["nodes"], pool["moving"]) == (2, 3, 2)
    why = "no controller would recreate pod default/naked"
    assert pool["stays"] == [{"node": world.in_zone("a")[1], "why": why}]
    assert answer["message"].endswith(f"pods that cannot move: {why}")


class TestTheCommand:
    @pytest.fixture
    def stack(self, monkeypatch: pytest.MonkeyPatch) -> AskedStack:
        made = AskedStack(**BLIND)
        monkeypatch.setattr(stack_client, "ask", made.ask)
        return made

    @pytest.mark.parametrize(("answer", "begins"), [("y\n", True), ("n\n", False)])
    def test_it_shows_the_forecast_and_asks(
        self, stack: AskedStack, monkeypatch: pytest.MonkeyPatch, answer: str, begins: bool
    ) -> None:
        monkeypatch.setattr(terminal, "has_terminal", lambda: True)
        arguments = ["leave-zone", "--stack", "s", "--cluster", "demo", "--zone", "a", "--per-hour", "1"]
        ended = CliRunner().invoke(app, arguments, input=answer)
        assert "zone a of demo would be left: 2 nodes to move, at most 1 an hour" in ended.stderr
        assert "leave-zone: leave zone a of demo. Go on?" in ended.stderr
        assert (stack.real.store.load("demo").control.leave is not None) is begins
        back = CliRunner().invoke(app, [*arguments[:5], "--back"])
        assert ("is no longer left" in back.stdout) is begins
        assert stack.real.store.load("demo").control.leave is None
