"""Converge, by example: one step at a time, launch before drain, also beside autoscalers, operators and outages."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from evenkeel.adapters.codec import dump_stored, keep_unknown, read_stored
from evenkeel.domain import convergence as rules
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import DemandStage, Level, OnFailure
from evenkeel.domain.model.convergence import IDLE_REMOVED_WITHIN, ConvergenceState, Deleting, Ordered, Window
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.workload import Workload
from tests.builders import MINUTE, NOW, stated
from tests.convergence import Home, convergence
from tests.parts import make, replace
from tests.workloads import node, pod

SETTLED = 601
PRESERVES_A = "no machine of a may be drained: keeps 1 replica of machines that Gardener preserves"


def steady(*counts: int, workload: Callable[[Home], Workload] | None = None, **policy: object) -> Home:
    """A pool whose zones have differed for long enough, as far as its first checks know."""
    home = Home(counts, convergence(**policy), workload)  # type: ignore[arg-type]
    home.look()
    home.look(SETTLED)
    return home


def begun(*counts: int, **policy: object) -> Home:
    """A pool that has ordered the machine of its first step."""
    home = steady(*counts, **policy)
    assert home.memory.step is not None
    return home


def drained(*counts: int, then: int = 15, **policy: object) -> Home:
    """A pool whose first step is complete, checked so many seconds later."""
    home = begun(*counts, **policy)
    home.boot()
    home.look(60)
    home.drain()
    home.look(then)
    return home


def expect(home: Home, seconds: float, *requested: int) -> None:
    home.look(seconds)
    assert home.requested == requested


def play(home: Home, minutes: int) -> None:
    """Check each minute in a world where machines boot and drain."""
    for _ in range(minutes):
        home.look(60)
        home.boot()
        home.drain()


def set_machines(home: Home, zone: str, **fields: object) -> None:
    home._put(zone, [replace(machine, **fields) for machine in home.machines(zone)])  # type: ignore[arg-type]


def hangs(pool: PoolPlan) -> bool:
    return pool.convergence.report is not None and pool.convergence.report.hangs_since is not None


def move_on_failure(home: Home) -> None:
    rules = tuple(replace(rule, on_failure=OnFailure.MOVE) for rule in home.policy.pools)
    home.policy = replace(home.policy, pools=rules)


def test_a_step_launches_before_it_drains_and_the_next_one_follows_at_once() -> None:
    home = Home((0, 4, 5))
    home.look()
    assert home.why == "no node is moved before 2026-01-15T12:10:00Z: the zones must stay uneven until then"
    expect(home, SETTLED, 1, 4, 5)
    assert home.bounds("a") == (1, 1)  # others neither order there nor remove the new node
    assert home.bounds("c")[1] == 5
    expect(home, 15, 1, 4, 5)
    home.boot()
    expect(home, 60, 1, 4, 4)
    (going,) = (machine for machine in home.machines("c") if machine.deleting)
    home.look(15)
    assert "is being drained since" in home.why
    assert home.requested == (1, 4, 4)
    home.drain()
    expect(home, 60, 2, 4, 4)
    home.until_quiet()
    assert home.requested == (3, 3, 3)
    assert sorted(home.went) == ["b", "c", "c"]
    assert going.name not in {machine.name for machine in home.machines("c")}


@pytest.mark.parametrize("level", [Level.OFF, Level.SHRINK])
def test_the_levels_off_and_shrink_move_nothing(level: Level) -> None:
    assert steady(0, 4, 5, level=level).requested == (0, 4, 5)


def test_a_full_pool_moves_nothing_unless_the_record_allows_a_surge() -> None:
    home = steady(1, 4, 4, maximum=9)
    assert home.requested == (1, 4, 4)
    assert home.why.startswith("9 of PoolMaximum 9 are requested, which leaves no room for a replacement")
    home = begun(1, 4, 4, maximum=9, surge=1)
    pool = home.look(15)
    assert (sum(home.requested), pool.report.overcommitted, pool.report.problems) == (10, False, ())
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_the_budget_of_an_hour_delays_the_next_step() -> None:
    home = drained(0, 8, 8, per_hour=1, then=60)
    assert home.why == "no node is moved before 2026-01-15T13:10:01Z: the limit of 1 step in an hour is reached"
    assert sorted(home.requested) == [1, 7, 8]
    home.look(60 * 60)
    assert home.memory.step is not None


def test_a_step_waits_for_the_next_window() -> None:
    home = steady(0, 4, 5, windows=(Window.read("22:00-06:00"),))
    assert home.why == "the record's next window opens at 2026-01-15T22:00:00Z"
    home.look(10 * 60 * 60)
    assert home.memory.step is not None


@pytest.mark.parametrize("seen_after", [15 * 60, 15 * 60 + 30, 16 * 60])
def test_a_late_launch_holds_the_pool_for_an_hour_whenever_a_check_runs(seen_after: int) -> None:
    home = begun(0, 4, 5)
    home.look(15)
    pool = home.look(seen_after)
    assert home.requested == (0, 4, 5)
    assert [group.state for group in pool.groups] == [State.FENCED, State.HEALTHY, State.HEALTHY]
    home.look(15)
    assert (home.memory.step, home.went) == (None, [])
    assert home.memory.held_until == home.now + timedelta(hours=1)


def unwell(home: Home, zone: str) -> None:
    """The machines of a zone that have come last have nodes that are not ready."""
    home.boot(zone)
    newest = max(machine.created_at for machine in home.machines(zone))
    home._put(zone, [replace(machine, ready=machine.created_at < newest) for machine in home.machines(zone)])


def test_a_node_that_is_not_ready_is_no_successor_and_outlives_a_zone_outage() -> None:
    home = begun(0, 4, 5)
    unwell(home, "a")
    expect(home, 60, 1, 4, 5)
    home.state = replace(home.state, zones={"c": home.now + timedelta(minutes=30)})
    expect(home, 60, 1, 4, 5)  # pods may run there by now
    set_machines(home, "a", ready=True)
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_a_node_that_does_not_become_ready_is_removed_by_name() -> None:
    home = begun(3, 3, 9)
    unwell(home, "a")
    (new,) = (machine.ref for machine in home.machines("a") if not machine.ready)
    for _ in range(15):
        expect(home, 60, 4, 3, 9)
    assert [group.removal.machines for group in home.look(120).groups] == [(new,), (), ()]
    home.drain()
    home.look(60)
    assert (home.requested, home.memory.step) == ((3, 3, 9), None)
    assert home.memory.held_until == home.now + timedelta(hours=1)
    assert home.memory.last_drain is None, "the source gave nothing, so what it requests is not bound to it"


def test_a_machine_that_is_being_deleted_is_not_the_newest() -> None:
    home = begun(3, 3, 9)
    home.boot()
    (newest,) = home.machines("a")[-1:]
    going = replace(newest, name="going", uid="going", created_at=home.now, ready=False, deleting=True)
    home.change("a", machines=(*home.machines("a"), going))
    expect(home, 60, 4, 3, 8)


def test_a_blind_step_removes_the_newest_ready_machine_and_no_preserved_one() -> None:
    home = begun(3, 3, 9)
    first, *others, newest = home.machines("c")
    aged = [replace(each, created_at=each.created_at + timedelta(hours=i)) for i, each in enumerate(others, 1)]
    late = replace(newest, created_at=home.now, preserved=True)
    home.change("c", machines=(first, *aged, late))
    home.boot("a")
    home.look(60)
    assert [each.name for each in home.machines("c") if each.deleting] == [aged[-1].name]


def test_a_step_does_not_await_machines_that_others_order_beside_its_own() -> None:
    home = begun(2, 4, 5)
    home.boot()
    home.scale("a", 5)
    expect(home, 60, 5, 4, 4)


def test_a_failed_launch_is_cancelled_and_not_moved_elsewhere() -> None:
    home = begun(0, 4, 5)
    home.fail("a")
    home.look(60)
    home.look(60)
    assert (home.requested, home.memory.step, home.went) == ((0, 4, 5), None, [])


def failed(*counts: int, **policy: object) -> Home:
    """A pool whose step has failed, when its backoff is over and the zone is in doubt."""
    home = begun(*counts, **policy)
    home.fail("a")
    home.look(60)
    for _ in range(4):
        pool = home.look(60)
        assert (pool.groups[0].state, home.memory.step) == (State.FENCED, None)
    assert home.look(2 * 60).groups[0].state is State.PROBING
    return home


def test_when_backoff_is_over_a_step_tries_the_zone() -> None:
    home = failed(0, 4, 5)
    assert home.requested == (1, 4, 5)
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_a_failed_probe_is_cancelled_and_repeated_after_the_longer_backoff() -> None:
    home = failed(0, 4, 5, per_hour=60)
    tried = []
    for minute in range(180):
        if home.requested == (1, 4, 5):
            tried.append(minute)
            home.fail("a")
        home.look(60)
    waited = [after - before for before, after in pairwise(tried)]
    backoff = home.policy.settings.backoff
    for failures, minutes in enumerate(waited, start=2):
        late = minutes - backoff.length(failures) / timedelta(minutes=1)
        assert 0 < late <= 2  # checks to see the failure and the end
    assert max(waited) > backoff.longest / timedelta(minutes=1)
    assert home.went == []


def test_a_probe_that_is_late_holds_the_pool_for_an_hour() -> None:
    home = failed(0, 4, 5)
    for _ in range(17):
        home.look(60)
    assert (home.requested, home.memory.step) == ((0, 4, 5), None)
    assert home.memory.held_until is not None
    assert home.memory.held_until - home.now > timedelta(minutes=57)


def test_a_failed_launch_that_is_preserved_is_not_cancelled() -> None:
    home = begun(3, 3, 9)
    home.fail("a")
    home._put("a", [replace(machine, preserved=not machine.has_node) for machine in home.machines("a")])
    for _ in range(20):
        pool = home.look(60)
        home.drain()
        assert home.requested == (4, 3, 9)
    assert home.went == []
    assert hangs(pool)
    (kept,) = (machine for machine in home.machines("a") if machine.preserved)
    assert home.why.startswith(PRESERVES_A)
    whole = Plan(now=home.now, pools=(pool,), skipped=(), states={})
    incidents = evaluate(ClusterHealth(), whole, home.state.groups, timedelta(0)).incidents
    (incident,) = (each for each in incidents if each.kind is IncidentKind.STEP_HANGS)
    assert (incident.zones, incident.message) == (("a", "c"), kept.name)
    set_machines(home, "a", preserved=False)
    home.look(60)
    home.look(60)
    assert (home.requested, home.running, home.memory.step) == ((3, 3, 9), (3, 3, 9), None)


def test_a_preserved_launch_of_the_scalables_status_is_reported_as_preserved() -> None:
    home = begun(3, 3, 9)
    home.fail("a")
    home.change("a", preserved_failed=1)
    for _ in range(20):
        pool = home.look(60)
    assert home.requested == (4, 3, 9)
    assert hangs(pool)
    assert home.why.startswith(PRESERVES_A)


@pytest.mark.parametrize(("moves", "nodes"), [(False, 15), (True, 18)])
def test_a_replica_that_another_zone_takes_on_does_not_complete_the_step(moves: bool, nodes: int) -> None:
    home = begun(3, 3, 9, autoscaler=False)
    if moves:
        move_on_failure(home)
    home.boot()
    home.scale("c", 12)
    home.fail("c")
    play(home, 300)
    assert (sum(home.requested), home.memory.step) == (nodes, None)


def test_a_lost_node_of_the_source_that_moves_elsewhere_does_not_complete_the_step() -> None:
    home = begun(3, 3, 9, autoscaler=False)
    move_on_failure(home)
    home.boot()
    lost, *others = home.machines("c")
    home._put("c", [replace(lost, has_node=False, created_at=home.now), *others])
    home.fail("c")
    play(home, 300)
    assert (sum(home.requested), home.memory.step) == (15, None)


def doubted(*counts: int) -> Home:
    """A pool that has differed for long enough, when the backoff of zone a has just ended."""
    home = Home(counts)
    home.look()
    failure = make(GroupState, failures=1, last_failure=home.now, backoff_until=home.now + timedelta(minutes=5))
    home.state = replace(home.state, groups={home.groups["a"].key: failure})
    assert home.look(SETTLED).groups[0].state is State.PROBING
    return home


def test_of_equally_low_zones_the_healthy_one_is_filled_and_the_other_is_not_probed() -> None:
    home = doubted(1, 1, 3)
    assert home.requested == (1, 2, 3)
    home.boot()
    expect(home, 60, 1, 2, 2)
    assert home.last is not None
    assert home.last.groups[0].state is State.PROBING


@pytest.mark.parametrize(("dead", "back"), ["ab", "ba"])
def test_a_zone_that_stays_out_keeps_no_other_zone_from_being_filled(dead: str, back: str) -> None:
    home = Home((0, 0, 4, 5), convergence(per_hour=60))
    home.look()
    failure = make(GroupState, failures=1, last_failure=home.now, backoff_until=home.now + timedelta(minutes=5))
    home.state = replace(home.state, groups={home.groups[zone].key: failure for zone in "ab"})
    tries = 0
    for _ in range(2 * 60):
        home.look(60)
        if home.groups[dead].requested:
            home.fail(dead)
            tries += home.last is not None and home.last.convergence.step is not None
        home.boot(back, "c", "d")
        home.drain()
    assert home.requested == ((0, 3, 3, 3) if dead == "a" else (3, 0, 3, 3))
    assert 2 <= tries <= 6  # and it is still tried


@pytest.mark.parametrize("comes", ["while its successor boots", "after it has gone"])
def test_demand_bound_to_a_source_holds_the_pool_while_a_zone_is_in_doubt(comes: str) -> None:
    home = doubted(3, 2, 5)
    assert home.requested == (3, 3, 5)
    if comes == "after it has gone":
        home.boot()
        home.look(60)
        home.drain()
        expect(home, 15, 3, 3, 4)
    home.scale("c", home.requested[2] + 1)
    home.look(60)
    assert home.memory.held_until == home.now + timedelta(hours=24)


@pytest.mark.parametrize("counts", [(2, 1, 3), (2, 4, 1), (1, 1, 3)])
def test_a_fence_in_any_zone_cancels_the_machine_of_a_step(counts: tuple[int, ...]) -> None:
    home = doubted(*counts)
    assert sum(home.requested) == sum(counts) + 1
    home.scale("a", counts[0] + 1)
    home.fail("a")
    for _ in range(3):
        home.look(15)
    assert home.requested == counts
    assert home.went == []


def test_a_zone_in_doubt_is_no_source_and_another_one_is() -> None:
    home = doubted(7, 2, 2)
    assert (home.requested, home.why) == ((7, 2, 2), "zone a is probing")
    home = doubted(7, 2, 5)
    assert home.requested == (7, 3, 5)
    home.boot()
    expect(home, 60, 7, 3, 4)


def doubtful(home: Home, zone: str) -> None:
    """Put a zone in doubt: by a failure whose backoff is over."""
    failed_at = home.now - timedelta(minutes=7)
    after = make(GroupState, failures=1, last_failure=failed_at, backoff_until=failed_at + timedelta(minutes=5))
    home.state = replace(home.state, groups={home.groups[zone].key: after})


@pytest.mark.parametrize("zone", ["a", "b"])
def test_once_the_successor_runs_doubt_about_other_zones_stops_nothing(zone: str) -> None:
    home = begun(0, 4, 5)
    home.boot()
    doubtful(home, zone)
    expect(home, 60, 1, 4, 4)


def test_a_step_is_undone_at_its_deadline_if_its_source_is_in_doubt() -> None:
    home = begun(0, 4, 5)
    home.boot()
    doubtful(home, "c")
    for _ in range(15):
        expect(home, 60, 1, 4, 5)
        assert home.why == "zone c is probing"
    expect(home, 60, 0, 4, 5)
    home.drain()
    home.look(60)
    assert (home.memory.step, home.went) == (None, ["a"])
    assert home.memory.held_until is not None


@pytest.mark.parametrize("counts", [(0, 5), (0, 4, 5)])
def test_the_only_healthy_zone_stays_open_while_a_step_tries_another(counts: tuple[int, ...]) -> None:
    home = failed(*counts[:1], *counts[-1:]) if len(counts) == 2 else two_in_doubt(*counts)
    alone = "abc"[len(counts) - 1]
    assert home.requested == (1, *counts[1:])
    assert home.bounds("a")[1] == 1
    assert home.bounds(alone)[1] > home.policy.pools[0].max / 2
    home.scale(alone, counts[-1] + 3)
    for _ in range(2):
        home.look(60)
        home.boot(alone)
        assert home.requested == (1, *counts[1:-1], counts[-1] + 3)  # what it orders is bound nowhere


def test_a_try_does_not_take_the_last_place_from_the_only_zone_that_delivers() -> None:
    home = failed(0, 5)
    (rule,) = home.policy.pools
    home.policy = replace(home.policy, pools=(replace(rule, max=10),))
    home.scale("b", 9)
    home.boot("b")
    expect(home, 60, 0, 9)  # the machine was still on its way
    home.drain()
    for _ in range(120):
        expect(home, 60, 0, 9)
    assert "9 of PoolMaximum 10 are requested" in home.why
    assert home.bounds("b")[1] == 10


def test_growth_of_the_only_healthy_zone_during_a_probe_is_not_bound_to_it() -> None:
    home = failed(0, 5)
    home.boot("a")
    home.scale("b", 8)  # both since the last look
    home.boot("b")
    expect(home, 60, 1, 7)
    home.drain()
    home.until_quiet()
    assert home.requested == (4, 4)


def test_a_node_that_an_autoscaler_takes_from_a_source_that_has_grown_completes_the_step() -> None:
    home = failed(0, 5)
    home.scale("b", 7)
    home.boot("b")
    home.look(60)
    home.scale("b", 6)  # an autoscaler that counts all eight, and needs seven
    home.drain()
    home.boot("a")
    home.until_quiet()
    assert home.requested == (3, 4)


def test_growth_of_a_source_that_becomes_the_only_healthy_zone_is_not_bound_to_it() -> None:
    home = failed(0, 4, 5)
    known = home.state.groups
    doubtful(home, "b")
    set_state(home, groups={**known, **home.state.groups})
    home.look(15)
    assert home.bounds("c")[1] > 9
    home.scale("c", 9)  # and what the step has ordered has come, both since the last check
    home.boot()
    home.look(15)
    assert (home.requested, home.memory.held_until) == ((1, 4, 8), None)


def two_in_doubt(*counts: int) -> Home:
    """A pool of three zones, the first two of which are in doubt."""
    home = failed(*counts)
    home.fail("a")
    home.look(60)
    home.scale("b", counts[1] + 1)
    home.fail("b")
    home.look(60)
    home.scale("b", counts[1])
    pool = home.look(65 * 60)
    assert [group.state for group in pool.groups] == [State.PROBING, State.PROBING, State.HEALTHY]
    return home


def outage(zone: str) -> Callable[[Home], None]:
    return lambda home: set_state(home, zones={zone: home.now + timedelta(hours=1)})


def set_state(home: Home, **fields: object) -> None:
    home.state = replace(home.state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", "abc")
def test_an_outage_in_any_zone_stops_the_drain(zone: str) -> None:
    home = begun(0, 4, 5)
    home.boot()
    outage(zone)(home)
    expect(home, 60, 1, 4, 5)  # what runs is not taken away, and nothing goes for it
    set_state(home, zones={})
    home.until_quiet()
    assert home.requested == (3, 3, 3)


@pytest.mark.parametrize(
    "happens",
    [
        *map(outage, "abc"),
        lambda home: set_policy(home, pools=convergence(maximum=9).pools),
        lambda home: home.groups.pop("c"),
    ],
    ids=["outage in a", "outage in b", "outage in c", "a lowered PoolMaximum", "the source leaves the pool"],
)
def test_the_machine_of_a_step_is_cancelled_before_it_has_a_node(happens: Callable[[Home], object]) -> None:
    home = begun(0, 4, 5)
    happens(home)
    home.look(15)
    if "c" not in home.groups:
        assert home.requested == (1, 4)  # absent once, it may be there
    home.look(60)
    home.look(60)
    assert home.requested == (0, 4, 5)[: len(home.groups)]
    assert (home.memory.step, home.went) == (None, [])


@pytest.mark.parametrize("by_request", [True, False])
def test_nodes_that_others_order_in_the_destination_survive_a_cancellation(by_request: bool) -> None:
    home = begun(0, 4, 5, autoscaler=not by_request)
    if by_request:
        asked(home, 5)
        home.look(15)
        home.state = replace(home.state, scale_requests=())
    else:
        home.scale("a", 4)  # its patch was on its way when the step began
    before = home.requested
    home.state = replace(home.state, zones={"c": home.now + timedelta(minutes=30)})
    for dies_after in (0, 1, None, None, None):
        home.look(15, dies_after=dies_after)
    assert home.requested == (before[0] - 1, *before[1:])
    assert home.memory.step is None


def test_a_cancelled_machine_is_not_replaced_by_a_release_of_another_zone() -> None:
    home = begun(0, 4, 5, autoscaler=False)
    move_on_failure(home)
    home.scale("b", 6)
    home.fail("b")  # and its failure cancels the machine
    for _ in range(6):
        home.look(15)
    assert sum(home.requested) == 11
    assert home.memory.step is None


def test_a_drain_that_hangs_is_reported_and_no_second_one_begins() -> None:
    home = begun(0, 4, 5)
    home.boot()
    for _ in range(61):
        pool = home.look(60)
        assert home.requested == (1, 4, 4)
    assert hangs(pool)
    assert home.bounds("a")[0] == 0  # its new node is kept no longer than that
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_an_autoscaler_that_deletes_the_new_node_ends_the_step() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.scale("a", 0)
    home.drain()
    home.look(60)
    assert (home.requested, home.went) == ((0, 4, 5), ["a"])


def test_an_autoscaler_that_removes_a_node_of_the_source_completes_the_step() -> None:
    home = begun(0, 4, 5)
    home.scale("c", 4)
    home.boot()
    home.drain()
    home.look(60)
    assert (home.requested, home.went) == ((2, 4, 4), ["c"])  # and the next step has begun


def full(home: Home) -> Workload:
    """Each node is full of pods that may all move."""
    nodes = tuple(
        node(machine.name, zone, group=group.key, machine=machine)
        for zone, group in home.groups.items()
        for machine in home.machines(zone)
        if machine.has_node and not machine.deleting
    )
    return Workload(nodes=nodes, pods=tuple(pod(each.name, node=each.name, cpu="4") for each in nodes), whole=True)


def partly(home: Home) -> Workload:
    """The same, but the newest node of the fullest zone is empty."""
    workload = full(home)
    last = max(node.name for node in workload.nodes if node.name.startswith("c"))
    pods = tuple(replace(each, needs=pod(cpu="3").needs) for each in workload.pods if each.name != last)
    return replace(workload, pods=pods, autoscaler_sought=True)


def with_unneeded(*counts: int, demand: DemandStage = DemandStage.ADVISE, autoscaler: bool = True) -> Home:
    return steady(*counts, workload=partly, blind=False, demand=demand, autoscaler=autoscaler)


def test_no_successor_is_ordered_for_a_node_that_an_autoscaler_finds_unneeded() -> None:
    home = with_unneeded(2, 2, 5)
    assert home.requested == (2, 2, 5)
    assert home.why == "node c-9 of c is unneeded: scale-down removes it, and no replacement is ordered"
    home.scale("c", 4)
    home.drain()
    home.workload = full
    home.look(60)
    home.look(60)
    assert sorted(home.requested) == [2, 3, 4]


def test_a_node_that_no_autoscaler_takes_does_not_keep_the_pool_uneven() -> None:
    home = with_unneeded(2, 2, 5)
    while home.now < NOW + IDLE_REMOVED_WITHIN:
        assert home.requested == (2, 2, 5)
        home.look(60)
    assert sorted(home.requested) == [2, 3, 5]


def test_without_scale_down_a_step_does_not_await_an_unneeded_node() -> None:
    assert sorted(with_unneeded(2, 2, 5, autoscaler=False).requested) == [2, 3, 5]


def test_another_zone_is_the_source_while_one_has_an_unneeded_node() -> None:
    home = with_unneeded(0, 4, 5)
    assert home.requested == (1, 4, 5)
    assert home.memory.step is not None
    assert home.memory.step.order.source.endswith("b")


def test_where_evenkeel_removes_nodes_it_takes_an_unneeded_one_and_orders_none() -> None:
    home = with_unneeded(2, 2, 5, demand=DemandStage.FULL, autoscaler=False)
    while home.requested != (2, 2, 4):
        assert home.requested == (2, 2, 5)
        home.look(60)
    assert home.now - NOW < timedelta(minutes=15)


def test_a_step_keeps_both_nodes_until_the_pods_of_the_source_have_room() -> None:
    home = steady(0, 4, 5, workload=full, blind=False)
    assert home.requested == (1, 4, 5)  # there is room for a full node's pods where the new one comes
    home.boot()
    for _ in range(30):  # and none once pods that waited have been put there
        pool = home.look(60)
        assert home.requested == (1, 4, 5)
    assert home.why.startswith("no machine of c may be drained: ")
    assert hangs(pool)
    assert home.bounds("b")[1] > 4  # others may order again
    assert not any(machine.deleting for zone in "abc" for machine in home.machines(zone))
    new = {machine.name for machine in home.machines("a")}

    def emptied(home: Home) -> Workload:
        workload = full(home)
        return replace(workload, pods=tuple(pod for pod in workload.pods if pod.name not in new))

    home.workload = emptied
    expect(home, 60, 1, 4, 4)
    home.drain()
    home.look(60)
    assert home.went == ["c"]


def test_growth_of_the_source_during_a_step_holds_the_pool_for_a_day() -> None:
    home = begun(0, 4, 5)
    home.scale("c", 6)
    expect(home, 60, 0, 4, 6)
    home.boot()
    home.look(60)
    expect(home, 23 * 60 * 60, 0, 4, 6)
    assert home.why.startswith("no node is moved before")
    home.look(2 * 60 * 60)
    assert home.memory.step is not None


@pytest.mark.parametrize(("minutes", "holds"), [(10, True), (21, False)])
def test_demand_that_returns_to_the_source_within_15_minutes_holds_the_pool(minutes: int, holds: bool) -> None:
    home = drained(0, 4, 5, per_hour=1)
    home.look((minutes - 1) * 60)
    home.scale("c", 6)
    home.boot()
    home.look(60)
    assert home.requested[2] == 6
    assert home.memory.held_until == (home.now + timedelta(hours=24) if holds else None)


def test_a_frozen_destination_keeps_a_late_machine_until_it_may_be_written() -> None:
    home = begun(0, 4, 5)
    home.change("a", frozen_because=PAUSED)
    for _ in range(3):
        pool = home.look(10 * 60)
        assert (home.requested, pool.groups[0].requested) == ((1, 4, 5), 1)
    home.change("a", frozen_because=None)
    expect(home, 60, 0, 4, 5)


def test_a_zone_that_people_leave_by_suspending_launches_keeps_the_others_from_nothing() -> None:
    home = Home((2, 1, 5))
    home.change("a", launches_stopped=stated("Launch suspended"))
    home.look()
    expect(home, SETTLED, 2, 2, 5)
    home.boot()
    expect(home, 60, 2, 2, 4)


def test_a_step_into_a_zone_whose_launches_stop_is_cancelled() -> None:
    home = begun(0, 4, 5)
    home.change("a", launches_stopped=stated("Launch suspended"))
    expect(home, 60, 0, 4, 5)


def test_a_machine_that_was_chosen_and_never_deleted_is_chosen_anew() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.look(60, dies_after=0)
    assert isinstance(home.memory.step, Deleting)
    home.change("b", frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
    home.look(60)
    assert isinstance(home.memory.step, Ordered)


@pytest.mark.parametrize("frozen", ["", "a"])
def test_demand_that_any_zone_can_serve_holds_nothing(frozen: str) -> None:
    home = begun(1, 3, 3)
    home.boot()
    home.look(60)
    home.drain()
    if frozen:
        home.change(frozen, frozen_because=PAUSED)
    for zone in set("abc") - {frozen}:
        home.scale(zone, 6)
    home.look(60)
    assert home.memory.held_until is None


@pytest.mark.parametrize("grows", [False, True])
def test_growth_in_place_of_a_frozen_zone_holds_nothing_once_it_thaws(grows: bool) -> None:
    home = drained(1, 3, 3, then=60)
    (source,) = (zone for zone in "bc" if home.groups[zone].requested == 2)
    home.change("a", frozen_because=PAUSED)
    for zone in "bc":
        home.scale(zone, 6)
    home.boot()
    home.look(60)
    home.change("a", frozen_because=None)
    if grows:  # the source alone, after the thaw
        home.scale(source, 7)
    home.look(60)
    assert home.memory.held_until == (home.now + timedelta(hours=24) if grows else None)
    if not grows:
        home.until_quiet()
        assert sorted(home.requested) == [4, 5, 5]


def test_growth_in_place_of_a_zone_that_is_out_again_holds_nothing() -> None:
    home = drained(0, 4, 5, then=60)
    assert home.requested == (2, 4, 4)
    home.boot()
    home.state = replace(home.state, zones={"a": home.now + timedelta(minutes=5)})
    home.look(60)
    for zone in "bc":
        home.scale(zone, 6)  # by an autoscaler, which may grow only these
    home.look(60)
    home.boot()
    home.look(60)
    home.state = replace(home.state, zones={})
    home.look(300)
    assert home.memory.held_until is None
    home.until_quiet()
    assert max(home.requested) - min(home.requested) < 2
    assert sum(home.requested) == 13


def test_the_new_machine_is_removed_where_the_source_may_not_shrink() -> None:
    home = begun(1, 4, 5)
    home.boot()
    home.change("c", zone_min=5)
    for _ in range(14):
        expect(home, 60, 2, 4, 5)
    assert home.why.startswith("no machine of c may be drained")
    expect(home, 120, 1, 4, 5)
    home.drain()
    home.look(60)
    assert home.memory.step is None
    assert home.went == ["a"]
    assert home.why.startswith("no node is moved before")


def test_where_no_machine_may_go_autoscalers_may_order_again_later() -> None:
    home = begun(2, 8)
    home.boot()
    for zone in "ab":
        set_machines(home, zone, preserved=True)
    home.look(60)
    assert [home.bounds(zone)[1] for zone in "ab"] == [3, 8]
    home.look(16 * 60)
    assert all(home.bounds(zone)[1] > 8 for zone in "ab")
    home.scale("a", 5)
    play(home, 5)
    assert (home.requested, home.memory.step) == ((4, 8), None)  # one of these may go, and only one does


PAUSED, ROLLING = stated("paused"), Reason.of(Rule.ROLLING_SETS, sets=2)
#: what delays a step: how it begins and how it ends
OBSTACLES: dict[str, tuple[Callable[[Home], None], Callable[[Home], None]]] = {
    "a frozen source": (lambda h: h.change("c", frozen_because=PAUSED), lambda h: h.change("c", frozen_because=None)),
    "a rollout": (lambda h: h.change("b", frozen_because=ROLLING), lambda h: h.change("b", frozen_because=None)),
    "a pause": (lambda h: set_policy(h, paused={"workers": None}), lambda h: set_policy(h, paused={})),
    "a machine that goes": (lambda h: h.change("c", running=6), lambda h: h.change("c", running=5)),
}


def set_policy(home: Home, **fields: object) -> None:
    home.policy = replace(home.policy, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a frozen source", "a rollout", "a pause"])
def test_an_obstacle_delays_the_drain_of_a_step(name: str) -> None:
    begins, ends = OBSTACLES[name]
    home = begun(0, 4, 5)
    home.boot()
    begins(home)
    expect(home, 60, 1, 4, 5)
    assert "is in a rolling update" in home.why or name != "a rollout"
    ends(home)
    expect(home, 60, 1, 4, 4)


@pytest.mark.parametrize("name", ["a rollout", "a machine that goes"])
def test_an_obstacle_delays_the_next_step(name: str) -> None:
    begins, ends = OBSTACLES[name]
    home = Home((0, 4, 5))
    home.look()
    begins(home)
    home.look(SETTLED)
    assert (home.requested, home.memory.step) == ((0, 4, 5), None)
    ends(home)
    expect(home, 60, 1, 4, 5)


def test_level_off_lets_a_running_step_end_and_begins_no_other() -> None:
    home = begun(0, 4, 5)
    home.policy = replace(home.policy, level=Level.OFF)
    home.boot()
    play(home, 20)
    assert (home.requested, home.memory.step) == ((1, 4, 4), None)


def test_a_requested_pass_ignores_clocks_and_budget_and_works_at_level_off() -> None:
    home = Home((0, 4, 5), convergence(per_hour=1, level=Level.OFF, convergence_requested={"workers": NOW}))
    home.look()
    assert home.requested == (1, 4, 5)
    home.boot()
    play(home, 12)
    assert home.requested == (3, 3, 3)


def held_and_requested() -> Home:
    """A pool with a hold of before, and a pass that was requested after it."""
    home = begun(0, 4, 5)
    home.scale("a", 0)
    home.look(15)
    home.policy = replace(home.policy, convergence_requested={"workers": home.now + timedelta(seconds=15)})
    expect(home, 15, 1, 4, 5)
    return home


def test_a_requested_pass_ignores_an_earlier_hold_and_ends_with_a_step_that_fails() -> None:
    home = held_and_requested()
    home.scale("a", 0)
    for _ in range(3):
        expect(home, 60, 0, 4, 5)


def test_a_requested_pass_ends_where_demand_is_bound_to_a_source() -> None:
    home = held_and_requested()
    home.boot()
    home.look(15)
    home.drain()
    home.scale("c", 5)
    for _ in range(3):
        expect(home, 60, 1, 4, 5)
    assert home.memory.held_until is not None
    assert home.memory.held_until - home.now > timedelta(hours=23)


def test_without_a_view_of_the_pods_nothing_is_moved() -> None:
    home = steady(0, 4, 5, blind=False)
    assert home.requested == (0, 4, 5)
    assert "the pods on the nodes are unknown" in home.why
    assert home.last is not None
    assert home.last.convergence.asks


def asked(home: Home, nodes: int) -> None:
    request = ScaleRequest(id="r1", nodes=nodes, at=home.now, pool="workers")
    home.state = replace(home.state, scale_requests=(request,))


def test_nodes_requested_during_a_step_are_added_and_the_step_ends() -> None:
    home = begun(0, 4, 5)
    asked(home, 2)
    home.look(15)
    home.state = replace(home.state, scale_requests=())
    assert sum(home.requested) == 12
    home.until_quiet()
    assert sum(home.requested) == 11
    assert max(home.requested) - min(home.requested) < 2


def test_nodes_released_during_a_step_wait_for_its_end() -> None:
    home = begun(0, 4, 5)
    asked(home, -1)
    found = home.look(15)
    assert home.requested == (1, 4, 5)
    assert any(problem.kind is ProblemKind.REQUEST_BEHIND_MOVE for problem in found.report.problems)
    home.boot()
    expect(home, 60, 1, 4, 4)
    home.drain()
    home.look(60)
    home.state = replace(home.state, scale_requests=())
    home.until_quiet()
    assert sum(home.requested) == 8


def test_a_pool_that_is_renamed_during_a_step_is_recognised_by_its_members() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.policy = replace(home.policy, pools=(replace(home.policy.pools[0], name="nodes"),))
    for zone in home.groups:
        home.change(zone, pool_label="nodes")
    expect(home, 60, 1, 4, 4)


def test_a_pool_minimum_that_is_raised_during_a_step_ends_it() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.policy = convergence(minimum=10)
    expect(home, 60, 1, 4, 5)
    assert home.memory.step is None
    home.look(20 * 60)
    assert sum(home.requested) >= 10


def test_stored_states_of_older_and_newer_versions_are_readable() -> None:
    assert read_stored(PoolState, "{}", "pool").convergence == ConvergenceState()
    home = begun(0, 4, 5)
    (state,) = home.state.pools.values()
    stored = dump_stored(state)
    assert read_stored(PoolState, stored, "pool") == state
    newer = json.loads(stored)
    newer["convergence"]["step"]["colour"] = "green"
    assert read_stored(PoolState, json.dumps(newer), "pool") == state
    assert "green" in keep_unknown(PoolState, stored, json.dumps(newer))


def test_each_special_case_of_the_rules_names_a_test_of_this_file() -> None:
    modules = Path(rules.__file__).parent.glob("*.py")
    named = [name for module in modules for name in re.findall(r"\btest_\w+", module.read_text(encoding="utf-8"))]
    here = Path(__file__).read_text(encoding="utf-8")
    assert len(named) > 8
    assert [name for name in named if f"def {name}(" not in here] == []


def test_each_further_failed_step_doubles_the_hold_up_to_half_a_day() -> None:
    state, now, hours = ConvergenceState(), NOW, []
    for _ in range(6):
        state = state.held_after_failure(now)
        assert state.held_until is not None
        hours.append((state.held_until - now) / timedelta(hours=1))
        now = state.held_until + 30 * MINUTE
    assert hours == [1, 2, 4, 8, 12, 12]
    assert state.held_after_failure(now + timedelta(days=1)).held_until == now + timedelta(days=1, hours=1)
    bound = ConvergenceState().held(NOW, timedelta(days=1)).held_after_failure(NOW + timedelta(days=1, hours=1))
    assert bound.held_until == NOW + timedelta(days=1, hours=2)
