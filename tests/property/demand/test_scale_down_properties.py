"""All removable unneeded nodes are removed, and no pod is lost, whatever happens to workers and demand."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from tests.builders import key
from tests.crashing import Life
from tests.fakes import FakeClock, InMemoryStore, register, register_again
from tests.parts import make
from tests.stories import DemandStory
from tests.world import App, World


@settings(max_examples=15)
@given(st.integers(0, 1_000_000))
@example(3924)  # another writer raises replicas five times
@example(977)  # a pod whose budget allows no eviction is placed on a node that is being removed
@example(1046)  # a removal's replicas are raised by hand, and lowered again
def test_minima_budgets_and_marks_hold_whatever_happens(seed: int) -> None:
    assert DemandStory(seed).play() == []


@st.composite
def worlds(draw: st.DrawFn) -> World:
    apps = [
        App(
            name=f"app{i}",
            pods=draw(st.integers(0, 5)),
            milli=draw(st.sampled_from([200, 500, 1000, 1900])),
            budget=draw(st.sampled_from([None, 0, 1, 2])),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    nodes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    return World(apps, nodes=nodes, minimum=draw(st.integers(0, sum(nodes))), mark_is_ours=draw(st.booleans()))


@settings(max_examples=8)
@given(worlds())
def test_pods_of_removed_nodes_need_no_new_node(world: World) -> None:
    world.live(15)
    ordered = world.ordered  # for the first waiting pods
    for _ in range(40):
        world.run()
        going = set(world.removed) - world.lost
        assert sum(1 for name in going if world.on(name)) <= 1
        world.pass_time()
    assert world.faults == []
    assert sum(world.requested().values()) >= world.minimum
    assert world.ordered == ordered


def test_a_clock_is_written_only_at_its_begin_and_end() -> None:
    world = World([App("web", 3, milli=3000)], nodes=(2, 1, 1))
    world.run()
    (since,) = world.clocks().values()
    saved = _saves(world, 8)
    assert (saved, set(world.clocks().values())) == (0, {since})
    world.live(6)
    assert world.clocks() == {}
    assert len(world.removed) == 1


@given(days=st.integers(1, 60), failed=st.booleans(), waits=st.booleans())
def test_clocks_of_unneeded_nodes_do_not_expire(days: int, failed: bool, waits: bool) -> None:
    clock = FakeClock()
    store = InMemoryStore(clock=clock)
    register(store)
    state = make(GroupState, unneeded={"n1": clock.at}, waiting_since=clock.at if waits else None)
    if failed:
        state = record_failure(state, clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
    store.save_group("demo", key("a"), state, None)
    clock.at += timedelta(days=days)
    found = store.load("demo")
    assert found.state.groups[key("a")].unneeded == state.unneeded
    assert list(found.expired) == []


def _saves(world: World, checks: int) -> int:
    count = 0
    for _ in range(checks):
        world.pass_time()
        life = Life()
        world.run(life)
        count += sum(step in ("table.save_group", "table.save_pool") for step in life.steps)
    return count


def away(world: World) -> None:
    world.unread = ClusterUnavailableError("away")


def another_autoscaler(world: World) -> None:
    world.another_at_work = True


def changed(**fields: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        register_again(world.store, world.store.load("demo").record.model_copy(update=fields))

    return change


dry, growing_only = changed(dry_run=True), changed(demand="scale-up")


@pytest.mark.parametrize("happens", [away, dry, growing_only, another_autoscaler])
def test_no_node_is_removed_while(happens: Callable[[World], None]) -> None:
    world = World([App("web", 0)], nodes=(2, 2, 2))
    world.live(5)
    assert world.clocks()
    happens(world)
    world.live(20)
    assert world.removed == []
    assert bool(world.clocks()) is (happens is not growing_only)


def test_a_dry_run_reports_removals_once() -> None:
    world = World([App("web", 0)], nodes=(2, 2, 2), dry_run=True)
    decided = []
    for _ in range(25):
        summary = world.run()
        decided.append(len(summary.decisions))
        world.pass_time()
    assert (world.removed, sum(decided[:5]), sum(decided[5:])) == ([], decided[0], 1)


def test_a_hanging_drain_is_an_incident_and_blocks_its_pool() -> None:
    world = World([App("web", 3, milli=1000, budget=3)], nodes=(1, 1, 1))
    world.slow = True
    while not world.removed:
        world.live(1)
    world.slow, world.apps["web"].budget = False, 0
    (first,) = world.removed
    world.live(30)
    assert world.removed == [first]
    (incident,) = world.store.load("demo").cluster_health.incidents
    assert (incident.kind, incident.message) == (IncidentKind.DRAIN_HANGS, first)
    world.apps["web"].budget = 3
    world.live(20)
    assert world.store.load("demo").cluster_health.incidents == ()
    assert len(world.removed) == 2
    assert world.wrong() == []


def test_slow_controllers_delay_the_next_removal() -> None:
    world = World([App("web", 4, milli=900)], nodes=(2, 1, 1))
    while not world.removed:
        world.live(1)
        world.slow = bool(world.clocks())
    before: dict[str, datetime] = world.clocks()
    world.live(5)
    assert len(world.removed) == 1
    others = {name: since for name, since in world.clocks().items() if name not in world.removed}
    assert others == {name: since for name, since in before.items() if name in others}
    world.slow = False
    world.live(60)
    assert world.faults == []


def test_raised_replicas_keep_a_marked_node() -> None:
    world = World([App("web", 1, milli=3000)], nodes=(1, 1, 0))
    world.slow = True
    while not world.removed:
        world.live(1)
    name = world.removed[0]
    key = next(key for key, machines in world.cluster.machines.items() if name in machines)
    world.cluster.change(key, requested=world.cluster.groups[key].requested + 1)
    world.apps["web"].pods = 2
    world.slow = False
    world.pass_time(timedelta(seconds=1))
    world.live(5)
    assert name in world.node_names()
    assert world.wrong() == []
