"""Converge, by example: one step at a time, launch before drain, with autoscalers, operators and outages."""

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
from tests.convergence import SETTLED, PlayedPool, convergence
from tests.parts import make, replace
from tests.workloads import pod

PRESERVES_A = "no machine of a may be drained: keeps 1 replica of machines that Gardener preserves"


def steady(*counts: int, workload: Callable[[PlayedPool], Workload] | None = None, **policy: object) -> PlayedPool:
    """Return a pool whose zones have differed for long enough, by its first checks."""
    return PlayedPool(counts, convergence(**policy), workload).settled()  # type: ignore[arg-type]


def begun(*counts: int, **policy: object) -> PlayedPool:
    """Return a pool that has ordered the machine of its first step."""
    pool = steady(*counts, **policy)
    assert pool.memory.step is not None
    return pool


def drained(*counts: int, then: int = 15, **policy: object) -> PlayedPool:
    """Return a pool whose first step is complete, checked so many seconds later."""
    pool = begun(*counts, **policy)
    pool.boot()
    pool.check(60)
    pool.drain()
    pool.check(then)
    return pool


def expect(pool: PlayedPool, seconds: float, *requested: int) -> None:
    pool.check(seconds)
    assert pool.requested == requested


def set_machines(pool: PlayedPool, zone: str, **fields: object) -> None:
    pool._put(zone, [replace(machine, **fields) for machine in pool.machines(zone)])  # type: ignore[arg-type]


def hangs(pool: PoolPlan) -> bool:
    return pool.convergence.report is not None and pool.convergence.report.hangs_since is not None


def move_on_failure(pool: PlayedPool) -> None:
    rules = tuple(replace(rule, on_failure=OnFailure.MOVE) for rule in pool.policy.pools)
    pool.policy = replace(pool.policy, pools=rules)


def test_a_step_launches_before_it_drains_and_the_next_one_follows_at_once() -> None:
    pool = PlayedPool((0, 4, 5))
    pool.check()
    assert pool.why == "no node is moved before 2026-01-15T12:10:00Z: the zones must stay uneven until then"
    expect(pool, SETTLED, 1, 4, 5)
    assert pool.bounds("a") == (1, 1)  # others neither order there nor remove the new node
    assert pool.bounds("c")[1] == 5
    expect(pool, 15, 1, 4, 5)
    pool.boot()
    expect(pool, 60, 1, 4, 4)
    (going,) = (machine for machine in pool.machines("c") if machine.deleting)
    pool.check(15)
    assert "is being drained since" in pool.why
    assert pool.requested == (1, 4, 4)
    pool.drain()
    expect(pool, 60, 2, 4, 4)
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)
    assert sorted(pool.went) == ["b", "c", "c"]
    assert going.name not in {machine.name for machine in pool.machines("c")}


@pytest.mark.parametrize("level", [Level.OFF, Level.SHRINK])
def test_the_levels_off_and_shrink_move_nothing(level: Level) -> None:
    assert steady(0, 4, 5, level=level).requested == (0, 4, 5)


def test_a_full_pool_moves_nothing_unless_the_record_allows_a_surge() -> None:
    pool = steady(1, 4, 4, maximum=9)
    assert pool.requested == (1, 4, 4)
    assert pool.why.startswith("9 of PoolMaximum 9 are requested, which leaves no room for a replacement")
    pool = begun(1, 4, 4, maximum=9, surge=1)
    planned = pool.check(15)
    assert (sum(pool.requested), planned.report.overcommitted, planned.report.problems) == (10, False, ())
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


def test_the_budget_of_an_hour_delays_the_next_step() -> None:
    pool = drained(0, 8, 8, per_hour=1, then=60)
    assert pool.why == "no node is moved before 2026-01-15T13:10:01Z: the limit of 1 step in an hour is reached"
    assert sorted(pool.requested) == [1, 7, 8]
    pool.check(60 * 60)
    assert pool.memory.step is not None


def test_a_step_waits_for_the_next_window() -> None:
    pool = steady(0, 4, 5, windows=(Window.read("22:00-06:00"),))
    assert pool.why == "the record's next window opens at 2026-01-15T22:00:00Z"
    pool.check(10 * 60 * 60)
    assert pool.memory.step is not None


@pytest.mark.parametrize("seen_after", [15 * 60, 15 * 60 + 30, 16 * 60])
def test_a_late_launch_holds_the_pool_for_an_hour_whenever_a_check_runs(seen_after: int) -> None:
    pool = begun(0, 4, 5)
    pool.check(15)
    planned = pool.check(seen_after)
    assert pool.requested == (0, 4, 5)
    assert [group.state for group in planned.groups] == [State.FENCED, State.HEALTHY, State.HEALTHY]
    pool.check(15)
    assert (pool.memory.step, pool.went) == (None, [])
    assert pool.memory.held_until == pool.now + timedelta(hours=1)


def unwell(pool: PlayedPool, zone: str) -> None:
    """Let the newest machines of a zone have nodes that are not ready."""
    pool.boot(zone)
    newest = max(machine.created_at for machine in pool.machines(zone))
    pool._put(zone, [replace(machine, ready=machine.created_at < newest) for machine in pool.machines(zone)])


def test_a_node_that_is_not_ready_is_no_successor_and_outlives_a_zone_outage() -> None:
    pool = begun(0, 4, 5)
    unwell(pool, "a")
    expect(pool, 60, 1, 4, 5)
    pool.fences({"c": pool.now + timedelta(minutes=30)})
    expect(pool, 60, 1, 4, 5)  # pods may run there by now
    set_machines(pool, "a", ready=True)
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


def test_a_node_that_does_not_become_ready_is_removed_by_name() -> None:
    pool = begun(3, 3, 9)
    unwell(pool, "a")
    (new,) = (machine.ref for machine in pool.machines("a") if not machine.ready)
    for _ in range(15):
        expect(pool, 60, 4, 3, 9)
    assert [group.removal.machines for group in pool.check(120).groups] == [(new,), (), ()]
    pool.drain()
    pool.check(60)
    assert (pool.requested, pool.memory.step) == ((3, 3, 9), None)
    assert pool.memory.held_until == pool.now + timedelta(hours=1)
    assert pool.memory.last_drain is None, "the source gave nothing, so what it requests is not bound to it"


def test_a_machine_that_is_being_deleted_is_not_the_newest() -> None:
    pool = begun(3, 3, 9)
    pool.boot()
    (newest,) = pool.machines("a")[-1:]
    going = replace(newest, name="going", uid="going", created_at=pool.now, ready=False, deleting=True)
    pool.change("a", machines=(*pool.machines("a"), going))
    expect(pool, 60, 4, 3, 8)


def test_a_blind_step_removes_the_newest_ready_machine_and_no_preserved_one() -> None:
    pool = begun(3, 3, 9)
    first, *others, newest = pool.machines("c")
    aged = [replace(each, created_at=each.created_at + timedelta(hours=i)) for i, each in enumerate(others, 1)]
    late = replace(newest, created_at=pool.now, preserved=True)
    pool.change("c", machines=(first, *aged, late))
    pool.boot("a")
    pool.check(60)
    assert [each.name for each in pool.machines("c") if each.deleting] == [aged[-1].name]


def test_a_step_does_not_await_machines_that_others_order_beside_its_own() -> None:
    pool = begun(2, 4, 5)
    pool.boot()
    pool.scale("a", 5)
    expect(pool, 60, 5, 4, 4)


def test_a_failed_launch_is_cancelled_and_not_moved_elsewhere() -> None:
    pool = begun(0, 4, 5)
    pool.fail("a")
    pool.check(60)
    pool.check(60)
    assert (pool.requested, pool.memory.step, pool.went) == ((0, 4, 5), None, [])


def failed(*counts: int, **policy: object) -> PlayedPool:
    """Return a pool whose step has failed, when its backoff is over and the zone is in doubt."""
    pool = begun(*counts, **policy)
    pool.fail("a")
    pool.check(60)
    for _ in range(4):
        planned = pool.check(60)
        assert (planned.groups[0].state, pool.memory.step) == (State.FENCED, None)
    assert pool.check(2 * 60).groups[0].state is State.PROBING
    return pool


def test_when_backoff_is_over_a_step_tries_the_zone() -> None:
    pool = failed(0, 4, 5)
    assert pool.requested == (1, 4, 5)
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


def test_a_failed_probe_is_cancelled_and_repeated_after_the_longer_backoff() -> None:
    pool = failed(0, 4, 5, per_hour=60)
    tried = []
    for minute in range(180):
        if pool.requested == (1, 4, 5):
            tried.append(minute)
            pool.fail("a")
        pool.check(60)
    waited = [after - before for before, after in pairwise(tried)]
    backoff = pool.policy.settings.backoff
    for failures, minutes in enumerate(waited, start=2):
        late = minutes - backoff.length(failures) / timedelta(minutes=1)
        assert 0 < late <= 2  # checks to see the failure and the end
    assert max(waited) > backoff.longest / timedelta(minutes=1)
    assert pool.went == []


def test_a_probe_that_is_late_holds_the_pool_for_an_hour() -> None:
    pool = failed(0, 4, 5)
    for _ in range(17):
        pool.check(60)
    assert (pool.requested, pool.memory.step) == ((0, 4, 5), None)
    assert pool.memory.held_until is not None
    assert pool.memory.held_until - pool.now > timedelta(minutes=57)


def test_a_failed_launch_that_is_preserved_is_not_cancelled() -> None:
    pool = begun(3, 3, 9)
    pool.fail("a")
    pool._put("a", [replace(machine, preserved=not machine.has_node) for machine in pool.machines("a")])
    for _ in range(20):
        planned = pool.check(60)
        pool.drain()
        assert pool.requested == (4, 3, 9)
    assert pool.went == []
    assert hangs(planned)
    (kept,) = (machine for machine in pool.machines("a") if machine.preserved)
    assert pool.why.startswith(PRESERVES_A)
    whole = Plan(now=pool.now, pools=(planned,), skipped=(), states={})
    incidents = evaluate(ClusterHealth(), whole, pool.state.groups, timedelta(0)).incidents
    (incident,) = (each for each in incidents if each.kind is IncidentKind.STEP_HANGS)
    assert (incident.zones, incident.message) == (("a", "c"), kept.name)
    set_machines(pool, "a", preserved=False)
    pool.check(60)
    pool.check(60)
    assert (pool.requested, pool.running, pool.memory.step) == ((3, 3, 9), (3, 3, 9), None)


def test_a_preserved_launch_of_the_scalables_status_is_reported_as_preserved() -> None:
    pool = begun(3, 3, 9)
    pool.fail("a")
    pool.change("a", preserved_failed=1)
    for _ in range(20):
        planned = pool.check(60)
    assert pool.requested == (4, 3, 9)
    assert hangs(planned)
    assert pool.why.startswith(PRESERVES_A)


@pytest.mark.parametrize(("moves", "nodes"), [(False, 15), (True, 18)])
def test_a_replica_that_another_zone_takes_on_does_not_complete_the_step(moves: bool, nodes: int) -> None:
    pool = begun(3, 3, 9, autoscaler=False)
    if moves:
        move_on_failure(pool)
    pool.boot()
    pool.scale("c", 12)
    pool.fail("c")
    pool.live(300)
    assert (sum(pool.requested), pool.memory.step) == (nodes, None)


def test_a_lost_node_of_the_source_that_moves_elsewhere_does_not_complete_the_step() -> None:
    pool = begun(3, 3, 9, autoscaler=False)
    move_on_failure(pool)
    pool.boot()
    lost, *others = pool.machines("c")
    pool._put("c", [replace(lost, has_node=False, created_at=pool.now), *others])
    pool.fail("c")
    pool.live(300)
    assert (sum(pool.requested), pool.memory.step) == (15, None)


def doubted(*counts: int) -> PlayedPool:
    """Return a pool that has differed for long enough, when the backoff of zone a has just ended."""
    pool = PlayedPool(counts)
    pool.check()
    failure = make(GroupState, failures=1, last_failure=pool.now, backoff_until=pool.now + timedelta(minutes=5))
    pool.state = replace(pool.state, groups={pool.groups["a"].key: failure})
    assert pool.check(SETTLED).groups[0].state is State.PROBING
    return pool


def test_of_equally_low_zones_the_healthy_one_is_filled_and_the_other_is_not_probed() -> None:
    pool = doubted(1, 1, 3)
    assert pool.requested == (1, 2, 3)
    pool.boot()
    expect(pool, 60, 1, 2, 2)
    assert pool.last is not None
    assert pool.last.groups[0].state is State.PROBING


@pytest.mark.parametrize(("dead", "back"), ["ab", "ba"])
def test_a_zone_that_stays_out_keeps_no_other_zone_from_being_filled(dead: str, back: str) -> None:
    pool = PlayedPool((0, 0, 4, 5), convergence(per_hour=60))
    pool.check()
    failure = make(GroupState, failures=1, last_failure=pool.now, backoff_until=pool.now + timedelta(minutes=5))
    pool.state = replace(pool.state, groups={pool.groups[zone].key: failure for zone in "ab"})
    tries = 0
    for _ in range(2 * 60):
        pool.check(60)
        if pool.groups[dead].requested:
            pool.fail(dead)
            tries += pool.last is not None and pool.last.convergence.step is not None
        pool.boot(back, "c", "d")
        pool.drain()
    assert pool.requested == ((0, 3, 3, 3) if dead == "a" else (3, 0, 3, 3))
    assert 2 <= tries <= 6  # and it is still tried


@pytest.mark.parametrize("comes", ["while its successor boots", "after it has gone"])
def test_demand_bound_to_a_source_holds_the_pool_while_a_zone_is_in_doubt(comes: str) -> None:
    pool = doubted(3, 2, 5)
    assert pool.requested == (3, 3, 5)
    if comes == "after it has gone":
        pool.boot()
        pool.check(60)
        pool.drain()
        expect(pool, 15, 3, 3, 4)
    pool.scale("c", pool.requested[2] + 1)
    pool.check(60)
    assert pool.memory.held_until == pool.now + timedelta(hours=24)


@pytest.mark.parametrize("counts", [(2, 1, 3), (2, 4, 1), (1, 1, 3)])
def test_a_fence_in_any_zone_cancels_the_machine_of_a_step(counts: tuple[int, ...]) -> None:
    pool = doubted(*counts)
    assert sum(pool.requested) == sum(counts) + 1
    pool.scale("a", counts[0] + 1)
    pool.fail("a")
    for _ in range(3):
        pool.check(15)
    assert pool.requested == counts
    assert pool.went == []


def test_a_zone_in_doubt_is_no_source_and_another_one_is() -> None:
    pool = doubted(7, 2, 2)
    assert (pool.requested, pool.why) == ((7, 2, 2), "zone a is probing")
    pool = doubted(7, 2, 5)
    assert pool.requested == (7, 3, 5)
    pool.boot()
    expect(pool, 60, 7, 3, 4)


def doubtful(pool: PlayedPool, zone: str) -> None:
    """Put a zone in doubt: by a failure whose backoff is over."""
    failed_at = pool.now - timedelta(minutes=7)
    after = make(GroupState, failures=1, last_failure=failed_at, backoff_until=failed_at + timedelta(minutes=5))
    pool.state = replace(pool.state, groups={pool.groups[zone].key: after})


@pytest.mark.parametrize("zone", ["a", "b"])
def test_once_the_successor_runs_doubt_about_other_zones_stops_nothing(zone: str) -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    doubtful(pool, zone)
    expect(pool, 60, 1, 4, 4)


def test_a_step_is_undone_at_its_deadline_if_its_source_is_in_doubt() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    doubtful(pool, "c")
    for _ in range(15):
        expect(pool, 60, 1, 4, 5)
        assert pool.why == "zone c is probing"
    expect(pool, 60, 0, 4, 5)
    pool.drain()
    pool.check(60)
    assert (pool.memory.step, pool.went) == (None, ["a"])
    assert pool.memory.held_until is not None


@pytest.mark.parametrize("counts", [(0, 5), (0, 4, 5)])
def test_the_only_healthy_zone_stays_open_while_a_step_tries_another(counts: tuple[int, ...]) -> None:
    pool = failed(*counts[:1], *counts[-1:]) if len(counts) == 2 else two_in_doubt(*counts)
    alone = "abc"[len(counts) - 1]
    assert pool.requested == (1, *counts[1:])
    assert pool.bounds("a")[1] == 1
    assert pool.bounds(alone)[1] > pool.policy.pools[0].max / 2
    pool.scale(alone, counts[-1] + 3)
    for _ in range(2):
        pool.check(60)
        pool.boot(alone)
        assert pool.requested == (1, *counts[1:-1], counts[-1] + 3)  # its orders are limited in no zone


def test_a_try_does_not_take_the_last_place_from_the_only_zone_that_delivers() -> None:
    pool = failed(0, 5)
    (rule,) = pool.policy.pools
    pool.policy = replace(pool.policy, pools=(replace(rule, max=10),))
    pool.scale("b", 9)
    pool.boot("b")
    expect(pool, 60, 0, 9)  # the machine was not a node yet
    pool.drain()
    for _ in range(120):
        expect(pool, 60, 0, 9)
    assert "9 of PoolMaximum 10 are requested" in pool.why
    assert pool.bounds("b")[1] == 10


def test_growth_of_the_only_healthy_zone_during_a_probe_is_not_bound_to_it() -> None:
    pool = failed(0, 5)
    pool.boot("a")
    pool.scale("b", 8)  # both since the last check
    pool.boot("b")
    expect(pool, 60, 1, 7)
    pool.drain()
    pool.until_quiet()
    assert pool.requested == (4, 4)


def test_a_node_that_an_autoscaler_takes_from_a_source_that_has_grown_completes_the_step() -> None:
    pool = failed(0, 5)
    pool.scale("b", 7)
    pool.boot("b")
    pool.check(60)
    pool.scale("b", 6)  # an autoscaler that counts all eight, and needs seven
    pool.drain()
    pool.boot("a")
    pool.until_quiet()
    assert pool.requested == (3, 4)


def test_growth_of_a_source_that_becomes_the_only_healthy_zone_is_not_bound_to_it() -> None:
    pool = failed(0, 4, 5)
    known = pool.state.groups
    doubtful(pool, "b")
    set_state(pool, groups={**known, **pool.state.groups})
    pool.check(15)
    assert pool.bounds("c")[1] > 9
    pool.scale("c", 9)  # and the step's node has joined, both since the last check
    pool.boot()
    pool.check(15)
    assert (pool.requested, pool.memory.held_until) == ((1, 4, 8), None)


def two_in_doubt(*counts: int) -> PlayedPool:
    """Return a pool of three zones, the first two of which are in doubt."""
    pool = failed(*counts)
    pool.fail("a")
    pool.check(60)
    pool.scale("b", counts[1] + 1)
    pool.fail("b")
    pool.check(60)
    pool.scale("b", counts[1])
    planned = pool.check(65 * 60)
    assert [group.state for group in planned.groups] == [State.PROBING, State.PROBING, State.HEALTHY]
    return pool


def outage(zone: str) -> Callable[[PlayedPool], None]:
    return lambda pool: set_state(pool, zones={zone: pool.now + timedelta(hours=1)})


def set_state(pool: PlayedPool, **fields: object) -> None:
    pool.state = replace(pool.state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", "abc")
def test_an_outage_in_any_zone_stops_the_drain(zone: str) -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    outage(zone)(pool)
    expect(pool, 60, 1, 4, 5)  # the running node stays, and none is removed for it
    pool.fences({})
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


@pytest.mark.parametrize(
    "happens",
    [
        *map(outage, "abc"),
        lambda pool: set_policy(pool, pools=convergence(maximum=9).pools),
        lambda pool: pool.groups.pop("c"),
    ],
    ids=["outage in a", "outage in b", "outage in c", "a lowered PoolMaximum", "the source leaves the pool"],
)
def test_the_machine_of_a_step_is_cancelled_before_it_has_a_node(happens: Callable[[PlayedPool], object]) -> None:
    pool = begun(0, 4, 5)
    happens(pool)
    pool.check(15)
    if "c" not in pool.groups:
        assert pool.requested == (1, 4)  # absent once, it may be there
    pool.check(60)
    pool.check(60)
    assert pool.requested == (0, 4, 5)[: len(pool.groups)]
    assert (pool.memory.step, pool.went) == (None, [])


@pytest.mark.parametrize("by_request", [True, False])
def test_nodes_that_others_order_in_the_destination_survive_a_cancellation(by_request: bool) -> None:
    pool = begun(0, 4, 5, autoscaler=not by_request)
    if by_request:
        asked(pool, 5)
        pool.check(15)
        pool.state = replace(pool.state, scale_requests=())
    else:
        pool.scale("a", 4)  # its patch was in progress when the step began
    before = pool.requested
    pool.fences({"c": pool.now + timedelta(minutes=30)})
    for dies_after in (0, 1, None, None, None):
        pool.check(15, dies_after=dies_after)
    assert pool.requested == (before[0] - 1, *before[1:])
    assert pool.memory.step is None


def test_a_cancelled_machine_is_not_replaced_by_a_release_of_another_zone() -> None:
    pool = begun(0, 4, 5, autoscaler=False)
    move_on_failure(pool)
    pool.scale("b", 6)
    pool.fail("b")  # and its failure cancels the machine
    for _ in range(6):
        pool.check(15)
    assert sum(pool.requested) == 11
    assert pool.memory.step is None


def test_a_drain_that_hangs_is_reported_and_no_second_one_begins() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    for _ in range(61):
        planned = pool.check(60)
        assert pool.requested == (1, 4, 4)
    assert hangs(planned)
    assert pool.bounds("a")[0] == 0  # its new node is kept no longer than that
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


def test_an_autoscaler_that_deletes_the_new_node_ends_the_step() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    pool.scale("a", 0)
    pool.drain()
    pool.check(60)
    assert (pool.requested, pool.went) == ((0, 4, 5), ["a"])


def test_an_autoscaler_that_removes_a_node_of_the_source_completes_the_step() -> None:
    pool = begun(0, 4, 5)
    pool.scale("c", 4)
    pool.boot()
    pool.drain()
    pool.check(60)
    assert (pool.requested, pool.went) == ((2, 4, 4), ["c"])  # and the next step has begun


def full(pool: PlayedPool) -> Workload:
    """Return a workload in which each node is full of pods that may all move."""
    nodes = pool.nodes()
    return Workload(nodes=nodes, pods=tuple(pod(each.name, node=each.name, cpu="4") for each in nodes), whole=True)


def partly(pool: PlayedPool) -> Workload:
    """Return the same, but the newest node of the fullest zone is empty."""
    workload = full(pool)
    last = max(node.name for node in workload.nodes if node.name.startswith("c"))
    pods = tuple(replace(each, needs=pod(cpu="3").needs) for each in workload.pods if each.name != last)
    return replace(workload, pods=pods, autoscaler_sought=True)


def with_unneeded(*counts: int, demand: DemandStage = DemandStage.ADVISE, autoscaler: bool = True) -> PlayedPool:
    return steady(*counts, workload=partly, blind=False, demand=demand, autoscaler=autoscaler)


def test_no_successor_is_ordered_for_a_node_that_an_autoscaler_finds_unneeded() -> None:
    pool = with_unneeded(2, 2, 5)
    assert pool.requested == (2, 2, 5)
    assert pool.why == "node c-9 of c is unneeded: scale-down removes it, and no replacement is ordered"
    pool.scale("c", 4)
    pool.drain()
    pool.workload = full
    pool.check(60)
    pool.check(60)
    assert sorted(pool.requested) == [2, 3, 4]


def test_a_node_that_no_autoscaler_takes_does_not_keep_the_pool_uneven() -> None:
    pool = with_unneeded(2, 2, 5)
    while pool.now < NOW + IDLE_REMOVED_WITHIN:
        assert pool.requested == (2, 2, 5)
        pool.check(60)
    assert sorted(pool.requested) == [2, 3, 5]


def test_without_scale_down_a_step_does_not_await_an_unneeded_node() -> None:
    assert sorted(with_unneeded(2, 2, 5, autoscaler=False).requested) == [2, 3, 5]


def test_another_zone_is_the_source_while_one_has_an_unneeded_node() -> None:
    pool = with_unneeded(0, 4, 5)
    assert pool.requested == (1, 4, 5)
    assert pool.memory.step is not None
    assert pool.memory.step.order.source.endswith("b")


def test_where_evenkeel_removes_nodes_it_takes_an_unneeded_one_and_orders_none() -> None:
    pool = with_unneeded(2, 2, 5, demand=DemandStage.FULL, autoscaler=False)
    while pool.requested != (2, 2, 4):
        assert pool.requested == (2, 2, 5)
        pool.check(60)
    assert pool.now - NOW < timedelta(minutes=15)


def test_a_step_keeps_both_nodes_until_the_pods_of_the_source_have_room() -> None:
    pool = steady(0, 4, 5, workload=full, blind=False)
    assert pool.requested == (1, 4, 5)  # there is room for a full node's pods in the new node's zone
    pool.boot()
    for _ in range(30):  # and none after waiting pods have been placed there
        planned = pool.check(60)
        assert pool.requested == (1, 4, 5)
    assert pool.why.startswith("no machine of c may be drained: ")
    assert hangs(planned)
    assert pool.bounds("b")[1] > 4  # others may order again
    assert not any(machine.deleting for zone in "abc" for machine in pool.machines(zone))
    new = {machine.name for machine in pool.machines("a")}

    def emptied(pool: PlayedPool) -> Workload:
        workload = full(pool)
        return replace(workload, pods=tuple(pod for pod in workload.pods if pod.name not in new))

    pool.workload = emptied
    expect(pool, 60, 1, 4, 4)
    pool.drain()
    pool.check(60)
    assert pool.went == ["c"]


def test_growth_of_the_source_during_a_step_holds_the_pool_for_a_day() -> None:
    pool = begun(0, 4, 5)
    pool.scale("c", 6)
    expect(pool, 60, 0, 4, 6)
    pool.boot()
    pool.check(60)
    expect(pool, 23 * 60 * 60, 0, 4, 6)
    assert pool.why.startswith("no node is moved before")
    pool.check(2 * 60 * 60)
    assert pool.memory.step is not None


@pytest.mark.parametrize(("minutes", "holds"), [(10, True), (21, False)])
def test_demand_that_returns_to_the_source_within_15_minutes_holds_the_pool(minutes: int, holds: bool) -> None:
    pool = drained(0, 4, 5, per_hour=1)
    pool.check((minutes - 1) * 60)
    pool.scale("c", 6)
    pool.boot()
    pool.check(60)
    assert pool.requested[2] == 6
    assert pool.memory.held_until == (pool.now + timedelta(hours=24) if holds else None)


def test_a_frozen_destination_keeps_a_late_machine_until_it_may_be_written() -> None:
    pool = begun(0, 4, 5)
    pool.change("a", frozen_because=PAUSED)
    for _ in range(3):
        planned = pool.check(10 * 60)
        assert (pool.requested, planned.groups[0].requested) == ((1, 4, 5), 1)
    pool.change("a", frozen_because=None)
    expect(pool, 60, 0, 4, 5)


def test_a_zone_that_people_leave_by_suspending_launches_keeps_the_others_from_nothing() -> None:
    pool = PlayedPool((2, 1, 5))
    pool.change("a", launches_stopped=stated("Launch suspended"))
    pool.check()
    expect(pool, SETTLED, 2, 2, 5)
    pool.boot()
    expect(pool, 60, 2, 2, 4)


def test_a_step_into_a_zone_whose_launches_stop_is_cancelled() -> None:
    pool = begun(0, 4, 5)
    pool.change("a", launches_stopped=stated("Launch suspended"))
    expect(pool, 60, 0, 4, 5)


def test_a_machine_that_was_chosen_and_never_deleted_is_chosen_anew() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    pool.check(60, dies_after=0)
    assert isinstance(pool.memory.step, Deleting)
    pool.change("b", frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
    pool.check(60)
    assert isinstance(pool.memory.step, Ordered)


@pytest.mark.parametrize("frozen", ["", "a"])
def test_demand_that_any_zone_can_serve_holds_nothing(frozen: str) -> None:
    pool = begun(1, 3, 3)
    pool.boot()
    pool.check(60)
    pool.drain()
    if frozen:
        pool.change(frozen, frozen_because=PAUSED)
    for zone in set("abc") - {frozen}:
        pool.scale(zone, 6)
    pool.check(60)
    assert pool.memory.held_until is None


@pytest.mark.parametrize("grows", [False, True])
def test_growth_in_place_of_a_frozen_zone_holds_nothing_once_it_thaws(grows: bool) -> None:
    pool = drained(1, 3, 3, then=60)
    (source,) = (zone for zone in "bc" if pool.groups[zone].requested == 2)
    pool.change("a", frozen_because=PAUSED)
    for zone in "bc":
        pool.scale(zone, 6)
    pool.boot()
    pool.check(60)
    pool.change("a", frozen_because=None)
    if grows:  # the source alone, after the thaw
        pool.scale(source, 7)
    pool.check(60)
    assert pool.memory.held_until == (pool.now + timedelta(hours=24) if grows else None)
    if not grows:
        pool.until_quiet()
        assert sorted(pool.requested) == [4, 5, 5]


def test_growth_in_place_of_a_zone_that_is_out_again_holds_nothing() -> None:
    pool = drained(0, 4, 5, then=60)
    assert pool.requested == (2, 4, 4)
    pool.boot()
    pool.fences({"a": pool.now + timedelta(minutes=5)})
    pool.check(60)
    for zone in "bc":
        pool.scale(zone, 6)  # by an autoscaler, which may grow only these
    pool.check(60)
    pool.boot()
    pool.check(60)
    pool.fences({})
    pool.check(300)
    assert pool.memory.held_until is None
    pool.until_quiet()
    assert max(pool.requested) - min(pool.requested) < 2
    assert sum(pool.requested) == 13


def test_the_new_machine_is_removed_where_the_source_may_not_shrink() -> None:
    pool = begun(1, 4, 5)
    pool.boot()
    pool.change("c", zone_min=5)
    for _ in range(14):
        expect(pool, 60, 2, 4, 5)
    assert pool.why.startswith("no machine of c may be drained")
    expect(pool, 120, 1, 4, 5)
    pool.drain()
    pool.check(60)
    assert pool.memory.step is None
    assert pool.went == ["a"]
    assert pool.why.startswith("no node is moved before")


def test_where_no_machine_may_go_autoscalers_may_order_again_later() -> None:
    pool = begun(2, 8)
    pool.boot()
    for zone in "ab":
        set_machines(pool, zone, preserved=True)
    pool.check(60)
    assert [pool.bounds(zone)[1] for zone in "ab"] == [3, 8]
    pool.check(16 * 60)
    assert all(pool.bounds(zone)[1] > 8 for zone in "ab")
    pool.scale("a", 5)
    pool.live(5)
    assert (pool.requested, pool.memory.step) == ((4, 8), None)  # one of these may be removed, and only one is


PAUSED, ROLLING = stated("paused"), Reason.of(Rule.ROLLING_SETS, sets=2)
#: causes that delay a step: how each begins and ends
OBSTACLES: dict[str, tuple[Callable[[PlayedPool], None], Callable[[PlayedPool], None]]] = {
    "a frozen source": (lambda h: h.change("c", frozen_because=PAUSED), lambda h: h.change("c", frozen_because=None)),
    "a rollout": (lambda h: h.change("b", frozen_because=ROLLING), lambda h: h.change("b", frozen_because=None)),
    "a pause": (lambda h: set_policy(h, paused={"workers": None}), lambda h: set_policy(h, paused={})),
    "a machine that goes": (lambda h: h.change("c", running=6), lambda h: h.change("c", running=5)),
}


def set_policy(pool: PlayedPool, **fields: object) -> None:
    pool.policy = replace(pool.policy, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a frozen source", "a rollout", "a pause"])
def test_an_obstacle_delays_the_drain_of_a_step(name: str) -> None:
    begins, ends = OBSTACLES[name]
    pool = begun(0, 4, 5)
    pool.boot()
    begins(pool)
    expect(pool, 60, 1, 4, 5)
    assert "is in a rolling update" in pool.why or name != "a rollout"
    ends(pool)
    expect(pool, 60, 1, 4, 4)


@pytest.mark.parametrize("name", ["a rollout", "a machine that goes"])
def test_an_obstacle_delays_the_next_step(name: str) -> None:
    begins, ends = OBSTACLES[name]
    pool = PlayedPool((0, 4, 5))
    pool.check()
    begins(pool)
    pool.check(SETTLED)
    assert (pool.requested, pool.memory.step) == ((0, 4, 5), None)
    ends(pool)
    expect(pool, 60, 1, 4, 5)


def test_level_off_lets_a_running_step_end_and_begins_no_other() -> None:
    pool = begun(0, 4, 5)
    pool.policy = replace(pool.policy, level=Level.OFF)
    pool.boot()
    pool.live(20)
    assert (pool.requested, pool.memory.step) == ((1, 4, 4), None)


def test_a_requested_pass_ignores_clocks_and_budget_and_works_at_level_off() -> None:
    pool = PlayedPool((0, 4, 5), convergence(per_hour=1, level=Level.OFF, convergence_requested={"workers": NOW}))
    pool.check()
    assert pool.requested == (1, 4, 5)
    pool.boot()
    pool.live(12)
    assert pool.requested == (3, 3, 3)


def held_and_requested() -> PlayedPool:
    """Return a pool with an earlier hold, and a pass that was requested after it."""
    pool = begun(0, 4, 5)
    pool.scale("a", 0)
    pool.check(15)
    pool.policy = replace(pool.policy, convergence_requested={"workers": pool.now + timedelta(seconds=15)})
    expect(pool, 15, 1, 4, 5)
    return pool


def test_a_requested_pass_ignores_an_earlier_hold_and_ends_with_a_step_that_fails() -> None:
    pool = held_and_requested()
    pool.scale("a", 0)
    for _ in range(3):
        expect(pool, 60, 0, 4, 5)


def test_a_requested_pass_ends_where_demand_is_bound_to_a_source() -> None:
    pool = held_and_requested()
    pool.boot()
    pool.check(15)
    pool.drain()
    pool.scale("c", 5)
    for _ in range(3):
        expect(pool, 60, 1, 4, 5)
    assert pool.memory.held_until is not None
    assert pool.memory.held_until - pool.now > timedelta(hours=23)


def test_without_a_view_of_the_pods_nothing_is_moved() -> None:
    pool = steady(0, 4, 5, blind=False)
    assert pool.requested == (0, 4, 5)
    assert "the pods on the nodes are unknown" in pool.why
    assert pool.last is not None
    assert pool.last.convergence.asks


def asked(pool: PlayedPool, nodes: int) -> None:
    request = ScaleRequest(id="r1", nodes=nodes, at=pool.now, pool="workers")
    pool.state = replace(pool.state, scale_requests=(request,))


def test_nodes_requested_during_a_step_are_added_and_the_step_ends() -> None:
    pool = begun(0, 4, 5)
    asked(pool, 2)
    pool.check(15)
    pool.state = replace(pool.state, scale_requests=())
    assert sum(pool.requested) == 12
    pool.until_quiet()
    assert sum(pool.requested) == 11
    assert max(pool.requested) - min(pool.requested) < 2


def test_nodes_released_during_a_step_wait_for_its_end() -> None:
    pool = begun(0, 4, 5)
    asked(pool, -1)
    found = pool.check(15)
    assert pool.requested == (1, 4, 5)
    assert any(problem.kind is ProblemKind.REQUEST_BEHIND_MOVE for problem in found.report.problems)
    pool.boot()
    expect(pool, 60, 1, 4, 4)
    pool.drain()
    pool.check(60)
    pool.state = replace(pool.state, scale_requests=())
    pool.until_quiet()
    assert sum(pool.requested) == 8


def test_a_pool_that_is_renamed_during_a_step_is_recognised_by_its_members() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    pool.policy = replace(pool.policy, pools=(replace(pool.policy.pools[0], name="nodes"),))
    for zone in pool.groups:
        pool.change(zone, pool_label="nodes")
    expect(pool, 60, 1, 4, 4)


def test_a_pool_minimum_that_is_raised_during_a_step_ends_it() -> None:
    pool = begun(0, 4, 5)
    pool.boot()
    pool.policy = convergence(minimum=10)
    expect(pool, 60, 1, 4, 5)
    assert pool.memory.step is None
    pool.check(20 * 60)
    assert sum(pool.requested) >= 10


def test_stored_states_of_older_and_newer_versions_are_readable() -> None:
    assert read_stored(PoolState, "{}", "pool").convergence == ConvergenceState()
    pool = begun(0, 4, 5)
    (state,) = pool.state.pools.values()
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
