"""Nodes that nobody needs go, as many as may, and nobody is hurt: whatever becomes of workers and of demand."""

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
from tests.shrinking import App, Story, Valley


@settings(max_examples=15)
@given(st.integers(0, 1_000_000))
@example(3924)  # somebody raises replicas five times
@example(977)  # a pod under a budget that lets none go comes onto a node that is on its way out
@example(1046)  # a removal's replicas are given back by hand, and taken again
def test_minima_budgets_and_marks_hold_whatever_happens(seed: int) -> None:
    assert Story(seed).play() == []


@st.composite
def valleys(draw: st.DrawFn) -> Valley:
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
    return Valley(apps, nodes=nodes, minimum=draw(st.integers(0, sum(nodes))), mark_is_ours=draw(st.booleans()))


@settings(max_examples=8)
@given(valleys())
def test_pods_of_removed_nodes_need_no_new_node(valley: Valley) -> None:
    valley.live(15)
    ordered = valley.ordered  # of what waited in the beginning
    for _ in range(40):
        valley.run()
        going = set(valley.removed) - valley.lost
        assert sum(1 for name in going if valley.on(name)) <= 1
        valley.pass_time()
    assert valley.faults == []
    assert sum(valley.requested().values()) >= valley.minimum
    assert valley.ordered == ordered


def test_a_clock_is_written_only_at_its_begin_and_end() -> None:
    valley = Valley([App("web", 3, milli=3000)], nodes=(2, 1, 1))
    valley.run()
    (since,) = valley.clocks().values()
    saved = _saves(valley, 8)
    assert (saved, set(valley.clocks().values())) == (0, {since})
    valley.live(6)
    assert valley.clocks() == {}
    assert len(valley.removed) == 1


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


def _saves(valley: Valley, looks: int) -> int:
    count = 0
    for _ in range(looks):
        valley.pass_time()
        life = Life()
        valley.run(life)
        count += sum(step in ("table.save_group", "table.save_pool") for step in life.steps)
    return count


def away(valley: Valley) -> None:
    valley.unread = ClusterUnavailableError("away")


def another_autoscaler(valley: Valley) -> None:
    valley.another_at_work = True


def changed(**fields: object) -> Callable[[Valley], None]:
    def change(valley: Valley) -> None:
        register_again(valley.store, valley.store.load("demo").record.model_copy(update=fields))

    return change


dry, growing_only = changed(dry_run=True), changed(demand="scale-up")


@pytest.mark.parametrize("happens", [away, dry, growing_only, another_autoscaler])
def test_no_node_is_removed_while(happens: Callable[[Valley], None]) -> None:
    valley = Valley([App("web", 0)], nodes=(2, 2, 2))
    valley.live(5)
    assert valley.clocks()
    happens(valley)
    valley.live(20)
    assert valley.removed == []
    assert bool(valley.clocks()) is (happens is not growing_only)


def test_a_dry_run_reports_removals_once() -> None:
    valley = Valley([App("web", 0)], nodes=(2, 2, 2), dry_run=True)
    told = []
    for _ in range(25):
        summary = valley.run()
        told.append(len(summary.decisions))
        valley.pass_time()
    assert (valley.removed, sum(told[:5]), sum(told[5:])) == ([], told[0], 1)


def test_a_hanging_drain_is_an_incident_and_blocks_its_pool() -> None:
    valley = Valley([App("web", 3, milli=1000, budget=3)], nodes=(1, 1, 1))
    valley.slow = True
    while not valley.removed:
        valley.live(1)
    valley.slow, valley.apps["web"].budget = False, 0
    (first,) = valley.removed
    valley.live(30)
    assert valley.removed == [first]
    (incident,) = valley.store.load("demo").cluster_health.incidents
    assert (incident.kind, incident.message) == (IncidentKind.DRAIN_HANGS, first)
    valley.apps["web"].budget = 3
    valley.live(20)
    assert valley.store.load("demo").cluster_health.incidents == ()
    assert len(valley.removed) == 2
    assert valley.wrong() == []


def test_slow_controllers_delay_the_next_removal() -> None:
    valley = Valley([App("web", 4, milli=900)], nodes=(2, 1, 1))
    while not valley.removed:
        valley.live(1)
        valley.slow = bool(valley.clocks())
    before: dict[str, datetime] = valley.clocks()
    valley.live(5)
    assert len(valley.removed) == 1
    others = {name: since for name, since in valley.clocks().items() if name not in valley.removed}
    assert others == {name: since for name, since in before.items() if name in others}
    valley.slow = False
    valley.live(60)
    assert valley.faults == []


def test_raised_replicas_keep_a_marked_node() -> None:
    valley = Valley([App("web", 1, milli=3000)], nodes=(1, 1, 0))
    valley.slow = True
    while not valley.removed:
        valley.live(1)
    name = valley.removed[0]
    key = next(key for key, machines in valley.cluster.machines.items() if name in machines)
    valley.cluster.change(key, requested=valley.cluster.groups[key].requested + 1)
    valley.apps["web"].pods = 2
    valley.slow = False
    valley.pass_time(timedelta(seconds=1))
    valley.live(5)
    assert name in valley.node_names()
    assert valley.wrong() == []
