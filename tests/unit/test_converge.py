"""Converge, by example: one step at a time, launch before drain, and what becomes of it where others interfere."""

import json
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from evenkeel.adapters.codec import dump_stored, keep_unknown, read_stored
from evenkeel.domain.convergence import converge as rules
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import DemandStage, Level, OnFailure
from evenkeel.domain.model.convergence import IDLE_GOES, ConvergenceState, Deleting, Ordered, Window
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.offerings import CapacityReport, Offering, OfferingState
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.workload import Workload
from tests.builders import NOW, stated
from tests.convergence import Home, convergence
from tests.parts import replace
from tests.workloads import node, pod

SETTLED = 601


def begun(*counts: int, **desired_bounds: object) -> Home:
    """A pool that has differed for long enough, with a step ordered."""
    home = Home(counts, convergence(**desired_bounds))  # type: ignore[arg-type]
    home.look()
    home.look(SETTLED)
    assert home.memory.step is not None
    return home


def test_a_pool_comes_home_one_machine_after_the_other_launch_before_drain() -> None:
    home = Home((0, 4, 5))
    home.look()
    assert (home.requested, home.why) == (
        (0, 4, 5),
        "no node is moved before 2026-01-15T12:10:00Z: the zones must differ until then",
    )
    home.look(SETTLED)
    assert home.requested == (1, 4, 5)
    assert [home.bounds(zone)[1] for zone in "ac"] == [1, 5]  # nobody else orders there
    assert home.bounds("a")[0] == 1  # nobody takes the new node away
    home.look(15)
    assert home.requested == (1, 4, 5)
    assert home.bounds("a")[0] == 1
    home.boot()
    home.look(60)
    assert home.requested == (1, 4, 4)
    (going,) = (machine for machine in home.machines("c") if machine.deleting)
    home.look(15)
    assert "is being drained since" in home.why
    assert home.requested == (1, 4, 4)
    home.drain()
    home.look(60)  # the next one begins at once: zones have differed all the time
    assert home.requested == (2, 4, 4)
    home.until_quiet()
    assert home.requested == (3, 3, 3)
    assert sorted(home.went) == ["b", "c", "c"]
    assert going.name not in {machine.name for machine in home.machines("c")}


def test_zones_one_node_apart_are_level_and_nothing_is_written_or_remembered() -> None:
    home = Home((3, 4, 3))
    home.look()
    before = home.state
    assert home.look(SETTLED).changes == ()
    assert home.state == before


def test_weights_say_what_level_is() -> None:
    home = Home((2, 4, 2))
    home.change("b", weight=2)
    home.look()
    home.look(SETTLED)
    assert (home.requested, home.why) == ((2, 4, 2), "")


def test_the_zone_with_the_fewest_nodes_for_its_weight_gets_the_next_one() -> None:
    home = Home((4, 2, 9))
    home.change("a", weight=4)
    home.look()
    home.look(SETTLED)
    assert home.requested == (5, 2, 9)


def test_off_and_shrink_move_nothing() -> None:
    for level in (Level.OFF, Level.SHRINK):
        home = Home((0, 4, 5), replace(convergence(), level=level))
        home.look()
        home.look(SETTLED)
        assert home.requested == (0, 4, 5)


def test_a_full_pool_stays_as_it_is_and_says_why_unless_the_record_lets_one_step_pass() -> None:
    home = Home((1, 4, 4), convergence(maximum=9))
    home.look()
    home.look(SETTLED)
    assert home.requested == (1, 4, 4)
    assert home.why.startswith("9 of PoolMaximum 9 are requested, and a replacement must arrive before")
    home = begun(1, 4, 4, maximum=9, surge=1)
    assert sum(home.requested) == 10
    found = home.look(15)
    assert sum(home.requested) == 10
    assert not found.report.overcommitted
    assert found.report.problems == ()
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_a_budget_and_windows_say_when_steps_begin() -> None:
    home = begun(0, 8, 8, per_hour=1)
    home.boot()
    home.look(60)
    home.drain()
    home.look(60)
    assert home.why == "the 1 step of an hour is used up until 2026-01-15T13:10:01Z"
    assert home.requested == (1, 8, 7) or home.requested == (1, 7, 8)
    home.look(60 * 60)
    assert home.memory.step is not None
    night = convergence(windows=(Window.read("22:00-06:00"),))
    home = Home((0, 4, 5), night)
    home.look()
    home.look(SETTLED)
    assert home.why == "the record's next window opens at 2026-01-15T22:00:00Z"
    home.look(10 * 60 * 60)
    assert home.memory.step is not None


def test_a_machine_that_never_comes_is_taken_back_after_the_provision_timeout_and_its_zone_is_fenced() -> None:
    home = begun(0, 4, 5)
    home.look(15)
    home.look(14 * 60)
    assert home.requested == (1, 4, 5)
    found = home.look(61)
    assert home.requested == (0, 4, 5)
    assert [each.state.value for each in found.groups] == ["fenced", "healthy", "healthy"]
    home.look(60)
    assert home.memory.step is None
    assert home.memory.held_until is not None
    assert home.went == []


def test_a_machine_that_is_there_and_not_well_is_no_successor() -> None:
    home = begun(0, 4, 5)
    home.change(
        "a", machines=tuple(replace(each, has_node=True, ready=False) for each in home.machines("a")), running=1
    )
    home.look(60)
    assert home.requested == (1, 4, 5)


def unwell(home: Home, zone: str) -> None:
    """The machines of a zone that have come last have nodes that are not ready."""
    home.boot(zone)
    newest = max(each.created_at for each in home.machines(zone))
    home._put(zone, [replace(each, ready=each.created_at < newest) for each in home.machines(zone)])


def test_a_node_that_runs_and_is_not_well_is_not_taken_back_at_a_word_about_a_zone() -> None:
    home = begun(0, 4, 5)
    unwell(home, "a")
    home.state = replace(home.state, zones={"c": home.now + timedelta(minutes=30)})
    home.look(60)
    assert home.requested == (1, 4, 5)  # pods may run there by now, and nobody has asked about them
    home.boot()
    home._put("a", [replace(each, ready=True) for each in home.machines("a")])
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_a_node_that_does_not_get_well_goes_again_by_name_and_nothing_goes_for_it() -> None:
    home = begun(3, 3, 9)
    unwell(home, "a")
    (new,) = (each.ref for each in home.machines("a") if not each.ready)
    for _ in range(15):
        home.look(60)
        assert home.requested == (4, 3, 9)
    found = home.look(120)
    assert [group.removal.machines for group in found.groups] == [(new,), (), ()]
    home.drain()
    home.look(60)
    assert (home.requested, home.memory.step) == ((3, 3, 9), None)
    assert home.memory.held_until == home.now + timedelta(hours=1)
    assert home.memory.last_drain is None, "the source gave nothing, so what it requests is not bound to it"


def test_a_machine_that_is_deleted_meanwhile_is_not_the_newest() -> None:
    home = begun(3, 3, 9)
    home.boot()
    (newest,) = home.machines("a")[-1:]
    going = replace(newest, name="going", uid="going", created_at=home.now, ready=False, deleting=True)
    home.change("a", machines=(*home.machines("a"), going))
    home.look(60)
    assert home.requested == (4, 3, 8)


def test_without_a_view_of_the_pods_the_newest_well_machine_goes_and_no_preserved_one() -> None:
    home = begun(3, 3, 9)
    first, *others, newest = home.machines("c")
    aged = [replace(each, created_at=each.created_at + timedelta(hours=i)) for i, each in enumerate(others, 1)]
    late = replace(newest, created_at=home.now, preserved=True)
    home.change("c", machines=(first, *aged, late))
    home.boot("a")
    home.look(60)
    assert [each.name for each in home.machines("c") if each.deleting] == [aged[-1].name]


def test_machines_of_others_that_boot_beside_the_new_node_are_not_waited_for() -> None:
    home = begun(2, 4, 5)
    home.boot()
    home.scale("a", 5)
    home.look(60)
    assert home.requested == (5, 4, 4)


def test_a_launch_that_fails_fences_its_zone_and_is_taken_back_and_not_moved_elsewhere() -> None:
    home = begun(0, 4, 5)
    home.fail("a")
    home.look(60)
    assert home.requested == (0, 4, 5)
    home.look(60)
    assert home.memory.step is None
    assert home.went == []


def failed(*counts: int, **desired_bounds: object) -> Home:
    """A pool whose step has failed, when its backoff is over: nobody knows whether the zone delivers again."""
    home = begun(*counts, **desired_bounds)
    home.fail("a")
    home.look(60)
    for _ in range(4):
        found = home.look(60)
        assert (found.groups[0].state, home.memory.step) == (State.FENCED, None)
    found = home.look(2 * 60)
    assert found.groups[0].state is State.PROBING
    return home


def test_when_backoff_is_over_a_step_tries_the_zone() -> None:
    home = failed(0, 4, 5)
    assert home.requested == (1, 4, 5)
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_each_try_that_fails_is_taken_back_and_the_next_one_comes_when_the_longer_backoff_is_over() -> None:
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
        assert (
            0 < minutes - backoff.length(failures) / timedelta(minutes=1) <= 2
        )  # looks to see the failure and the end
    assert max(waited) > backoff.longest / timedelta(minutes=1)
    assert home.went == []


def test_a_try_that_nobody_refuses_and_that_is_late_holds_the_pool_for_an_hour() -> None:
    home = failed(0, 4, 5)
    for _ in range(17):
        home.look(60)
    assert (home.requested, home.memory.step) == ((0, 4, 5), None)
    assert home.memory.held_until is not None
    assert home.memory.held_until - home.now > timedelta(minutes=57)


@pytest.mark.parametrize("seen_after", [15 * 60, 15 * 60 + 30, 16 * 60])
def test_a_late_launch_holds_the_pool_for_an_hour_whenever_a_check_runs(seen_after: int) -> None:
    home = begun(0, 4, 5)
    home.look(15)
    home.look(seen_after)
    assert home.requested == (0, 4, 5)
    home.look(15)
    assert home.memory.step is None
    assert home.memory.held_until == home.now + timedelta(hours=1)


def test_a_failed_launch_that_is_preserved_is_not_cancelled() -> None:
    home = begun(3, 3, 9)
    home.fail("a")
    home._put("a", [replace(each, preserved=not each.has_node) for each in home.machines("a")])
    for _ in range(20):
        found = home.look(60)
        home.drain()
        assert home.requested == (4, 3, 9)
    assert home.went == []
    assert found.convergence.report is not None
    assert found.convergence.report.hangs_since is not None
    (kept,) = (each for each in home.machines("a") if each.preserved)
    assert home.why.startswith("no machine of a may be drained: keeps 1 replica of machines that Gardener preserves")
    whole = Plan(now=home.now, pools=(found,), skipped=(), states={})
    incidents = evaluate(ClusterHealth(), whole, home.state.groups, timedelta(0)).incidents
    (told,) = (each for each in incidents if each.kind is IncidentKind.STEP_HANGS)
    assert (told.zones, told.said) == (("a", "c"), kept.name)
    home._put("a", [replace(each, preserved=False) for each in home.machines("a")])
    home.look(60)
    home.look(60)
    assert (home.requested, home.running, home.memory.step) == ((3, 3, 9), (3, 3, 9), None)


def test_a_preserved_launch_that_only_its_scalables_status_tells_of_is_told_as_one_and_not_as_a_min() -> None:
    home = begun(3, 3, 9)
    home.fail("a")
    home.change("a", preserved_failed=1)
    for _ in range(20):
        found = home.look(60)
    assert home.requested == (4, 3, 9)
    assert found.convergence.report is not None
    assert found.convergence.report.hangs_since is not None
    assert home.why.startswith("no machine of a may be drained: keeps 1 replica of machines that Gardener preserves")


@pytest.mark.parametrize("on_failure", [OnFailure.RELEASE, OnFailure.MOVE])
def test_a_replica_that_another_zone_takes_on_does_not_complete_the_step(
    on_failure: OnFailure,
) -> None:
    home = begun(3, 3, 9, autoscaler=False)
    home.policy = replace(home.policy, pools=tuple(replace(r, on_failure=on_failure) for r in home.policy.pools))
    home.boot()
    home.scale("c", 12)
    home.fail("c")
    for _ in range(300):
        home.look(60)
        home.boot()
        home.drain()
    asked = 0 if on_failure is OnFailure.RELEASE else 3
    assert sum(home.requested) == 15 + asked
    assert home.memory.step is None


def test_a_node_of_the_source_that_was_lost_and_moved_elsewhere_is_not_what_the_step_is_to_give() -> None:
    home = begun(3, 3, 9, autoscaler=False)
    home.policy = replace(
        home.policy, pools=tuple(replace(rule, on_failure=OnFailure.MOVE) for rule in home.policy.pools)
    )
    home.boot()
    lost, *others = home.machines("c")
    home._put("c", [replace(lost, has_node=False, created_at=home.now), *others])
    home.fail("c")
    for _ in range(300):
        home.look(60)
        home.boot()
        home.drain()
    assert sum(home.requested) == 15
    assert home.memory.step is None


def doubted(*counts: int, **desired_bounds: object) -> Home:
    """A pool that has differed for long enough, when the backoff of zone a has just ended."""
    home = Home(counts, convergence(**desired_bounds))  # type: ignore[arg-type]
    home.look()
    failure = GroupState(failures=1, last_failure=home.now, backoff_until=home.now + timedelta(minutes=5))
    home.state = replace(home.state, groups={home.groups["a"].key: failure})
    found = home.look(SETTLED)
    assert found.groups[0].state is State.PROBING
    return home


def test_of_zones_equally_low_the_one_that_delivers_is_filled_and_the_other_need_not_be_tried() -> None:
    home = doubted(1, 1, 3)
    assert home.requested == (1, 2, 3)
    home.boot()
    home.look(60)
    assert home.requested == (1, 2, 2)
    assert home.last is not None
    assert home.last.groups[0].state is State.PROBING


@pytest.mark.parametrize(("dead", "back"), ["ab", "ba"])
def test_a_zone_that_stays_out_keeps_no_other_zone_from_being_filled(dead: str, back: str) -> None:
    home = Home((0, 0, 4, 5), convergence(per_hour=60))
    home.look()
    failure = GroupState(failures=1, last_failure=home.now, backoff_until=home.now + timedelta(minutes=5))
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
def test_demand_bound_to_a_source_holds_the_pool_for_a_day_while_a_zone_is_in_doubt_too(comes: str) -> None:
    home = doubted(3, 2, 5)
    assert home.requested == (3, 3, 5)
    if comes == "after it has gone":
        home.boot()
        home.look(60)
        home.drain()
        home.look(15)
        assert home.requested == (3, 3, 4)
    home.scale("c", home.requested[2] + 1)
    home.look(60)
    assert home.memory.held_until == home.now + timedelta(hours=24)


@pytest.mark.parametrize("counts", [(2, 1, 3), (2, 4, 1), (1, 1, 3)])
def test_a_fence_anywhere_takes_the_machine_back_however_little_its_zone_has_to_do_with_the_step(
    counts: tuple[int, ...],
) -> None:
    home = doubted(*counts)
    assert sum(home.requested) == sum(counts) + 1
    home.scale("a", counts[0] + 1)
    home.fail("a")
    for _ in range(3):
        home.look(15)
    assert home.requested == counts
    assert home.went == []


def test_a_zone_that_nobody_knows_of_gives_nothing_and_another_one_does() -> None:
    home = doubted(7, 2, 2)
    assert (home.requested, home.why) == ((7, 2, 2), "zone a is probing")
    home = doubted(7, 2, 5)
    assert home.requested == (7, 3, 5)
    home.boot()
    home.look(60)
    assert home.requested == (7, 3, 4)


def doubtful(home: Home, zone: str, doubt: str) -> None:
    """A zone that nobody knows of from now on: what others say of it, or a failure of its own whose backoff is over."""
    group, key = home.groups[zone], home.groups[zone].key
    after = GroupState(throttled_requested=group.requested)
    if doubt == "probing":
        failed_at = home.now - timedelta(minutes=7)
        after = GroupState(failures=1, last_failure=failed_at, backoff_until=failed_at + timedelta(minutes=5))
    else:
        offering = Offering("aws", "eu-central-1", zone, "m5", "on-demand")
        home.change(zone, offering=offering)
        word = CapacityReport(failed_at=home.now, until=home.now, cluster="green")
        home.state = replace(home.state, offerings={offering: OfferingState(reports={"green": word})})
    home.state = replace(home.state, groups={key: after})


@pytest.mark.parametrize("doubt", ["probing", "cautious"])
@pytest.mark.parametrize("zone", ["a", "b"])
def test_once_the_successor_runs_doubt_about_other_zones_stops_nothing(zone: str, doubt: str) -> None:
    home = begun(0, 4, 5)
    home.boot()
    doubtful(home, zone, doubt)
    home.look(60)
    assert home.requested == (1, 4, 4)


@pytest.mark.parametrize("doubt", ["probing", "cautious"])
def test_a_step_is_undone_at_its_deadline_if_its_source_is_in_doubt(doubt: str) -> None:
    home = begun(0, 4, 5)
    home.boot()
    doubtful(home, "c", doubt)
    for _ in range(15):
        home.look(60)
        assert home.requested == (1, 4, 5)
        shared = "throttled: other clusters could not get such machines"
        assert home.why == f"zone c is {shared if doubt == 'cautious' else doubt}"
    home.look(60)
    assert home.requested == (0, 4, 5)
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
    home.look(60)
    assert home.requested == (0, 9)  # the machine was still on its way
    home.drain()
    for _ in range(120):
        home.look(60)
        assert home.requested == (0, 9)
    assert "9 of PoolMaximum 10 are requested" in home.why
    assert home.bounds("b")[1] == 10


def test_what_the_only_zone_that_delivers_grows_by_during_a_try_is_not_bound_to_it_whenever_somebody_looks() -> None:
    home = failed(0, 5)
    home.boot("a")
    home.scale("b", 8)  # both since the last look
    home.boot("b")
    home.look(60)
    assert home.requested == (1, 7)
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


def test_where_the_source_comes_to_be_the_only_one_that_delivers_its_growth_is_not_bound_to_it_either() -> None:
    home = failed(0, 4, 5)
    known = home.state.groups
    doubtful(home, "b", "probing")
    home.state = replace(home.state, groups={**known, **home.state.groups})
    home.look(15)
    assert home.bounds("c")[1] > 9
    home.scale("c", 9)  # and what the step has ordered has come, both since the last look
    home.boot()
    home.look(15)
    assert home.requested == (1, 4, 8)
    assert home.memory.held_until is None


def two_in_doubt(*counts: int) -> Home:
    """A pool of three zones, the first two of which nobody knows of."""
    home = failed(*counts)
    home.fail("a")
    home.look(60)
    home.scale("b", counts[1] + 1)
    home.fail("b")
    home.look(60)
    home.scale("b", counts[1])
    home.look(65 * 60)
    assert [each.state.value for each in home.last.groups] == ["probing", "probing", "healthy"]  # type: ignore[union-attr]
    return home


@pytest.mark.parametrize("zone", ["a", "b", "c"])
def test_any_word_about_a_zone_takes_the_machine_back_that_is_on_its_way_and_stops_what_would_go(zone: str) -> None:
    home = begun(0, 4, 5)
    until = home.now + timedelta(hours=1)
    home.state = replace(home.state, zones={zone: until})
    home.look(60)
    assert home.requested == (0, 4, 5)
    home = begun(0, 4, 5)
    home.boot()
    home.state = replace(home.state, zones={zone: home.now + timedelta(hours=1)})
    home.look(60)
    assert home.requested == (1, 4, 5)  # what runs is not taken away, and nothing goes for it
    home.state = replace(home.state, zones={})
    home.until_quiet()
    assert home.requested == (3, 3, 3)


@pytest.mark.parametrize("who", ["a request", "an autoscaler"])
def test_what_others_ask_of_the_destination_stays_when_its_machine_is_taken_back(who: str) -> None:
    home = begun(0, 4, 5, autoscaler=who != "a request")
    if who == "a request":
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


def test_what_is_taken_back_is_not_made_good_by_what_another_zone_gives_up_at_once() -> None:
    home = begun(0, 4, 5, autoscaler=False)
    rules = tuple(replace(rule, on_failure=OnFailure.MOVE) for rule in home.policy.pools)
    home.policy = replace(home.policy, pools=rules)
    home.scale("b", 6)
    home.fail("b")  # and its word takes the machine back
    for _ in range(6):
        home.look(15)
    assert sum(home.requested) == 11
    assert home.memory.step is None


def test_a_drain_that_hangs_is_told_and_no_second_one_begins() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.look(60)
    assert home.requested == (1, 4, 4)
    for _ in range(60):
        found = home.look(60)
        assert home.requested == (1, 4, 4)
    assert found.convergence.report is not None
    assert found.convergence.report.hangs_since is not None
    assert home.bounds("a")[0] == 0  # its new node is kept no longer than that
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_an_autoscaler_that_deletes_the_new_node_ends_the_step_and_no_other_node_goes() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.scale("a", 0)
    home.drain()
    home.look(60)
    assert home.requested == (0, 4, 5)
    assert home.went == ["a"]


def test_an_autoscaler_that_takes_one_of_the_source_itself_has_done_the_step() -> None:
    home = begun(0, 4, 5)
    home.scale("c", 4)
    home.boot()
    home.drain()
    home.look(60)
    assert home.went == ["c"]
    assert home.memory.step is not None  # the next one
    assert home.requested == (2, 4, 4)


def full(home: Home) -> Workload:
    """Each node has as many pods as it can, which may all move: where they come from does not matter."""
    nodes = tuple(
        node(each.name, zone, group=found.key, machine=each)
        for zone, found in home.groups.items()
        for each in home.machines(zone)
        if each.has_node and not each.deleting
    )
    return Workload(nodes=nodes, pods=tuple(pod(each.name, node=each.name, cpu="4") for each in nodes), whole=True)


def partly(home: Home) -> Workload:
    """The same, but the newest node of the fullest zone is empty."""
    there = full(home)
    last = max(each.name for each in there.nodes if each.name.startswith("c"))
    pods = tuple(replace(each, needs=pod(cpu="3").needs) for each in there.pods if each.name != last)
    return replace(there, pods=pods, autoscaler_sought=True)


def test_no_successor_is_ordered_for_a_node_that_an_autoscaler_finds_unneeded() -> None:
    home = Home((2, 2, 5), convergence(blind=False, demand=DemandStage.ADVISE), workload=partly)
    home.look()
    home.look(SETTLED)
    assert home.requested == (2, 2, 5)
    assert home.why == "node c-9 of c is unneeded: scale-down removes it, and no replacement is ordered"
    home.scale("c", 4)
    home.drain()
    home.workload = full
    home.look(60)
    home.look(60)
    assert sorted(home.requested) == [2, 3, 4]


def test_a_node_that_no_autoscaler_takes_does_not_keep_the_pool_uneven() -> None:
    home = Home((2, 2, 5), convergence(blind=False, demand=DemandStage.ADVISE), workload=partly)
    home.look()
    home.look(SETTLED)
    while home.now < NOW + IDLE_GOES:
        assert home.requested == (2, 2, 5)
        home.look(60)
    assert sorted(home.requested) == [2, 3, 5]


def test_without_scale_down_an_unneeded_node_is_not_waited_for() -> None:
    home = Home((2, 2, 5), convergence(blind=False, demand=DemandStage.ADVISE, autoscaler=False), workload=partly)
    home.look()
    home.look(SETTLED)
    assert sorted(home.requested) == [2, 3, 5]


def test_another_zone_may_give_meanwhile() -> None:
    home = Home((0, 4, 5), convergence(blind=False, demand=DemandStage.ADVISE), workload=partly)
    home.look()
    home.look(SETTLED)
    assert home.requested == (1, 4, 5)
    assert home.memory.step is not None
    assert home.memory.step.order.source.endswith("b")


def test_where_evenkeel_removes_nodes_it_takes_an_unneeded_one_and_orders_none() -> None:
    policy = convergence(blind=False, demand=DemandStage.FULL, autoscaler=False)
    home = Home((2, 2, 5), policy, workload=partly)
    while home.requested[2] == 5:
        home.look(60)
        assert home.requested[:2] == (2, 2)
    assert home.requested == (2, 2, 4)
    assert home.now - NOW < timedelta(minutes=15)


def test_an_autoscaler_that_fills_the_new_one_keeps_both_nodes_and_the_step_waits_until_there_is_room() -> None:
    home = Home((0, 4, 5), convergence(blind=False), workload=full)
    home.look()
    home.look(SETTLED)
    assert home.requested == (1, 4, 5)  # there is room for a full node's pods where the new one comes
    home.boot()
    for _ in range(30):  # and none once pods that waited have been put there
        found = home.look(60)
        assert home.requested == (1, 4, 5)
    assert home.why.startswith("no machine of c may be drained: ")
    assert found.convergence.report is not None
    assert found.convergence.report.hangs_since is not None
    assert home.bounds("b")[1] > 4  # others are not kept from ordering any more
    for zone in "abc":
        assert not any(each.deleting for each in home.machines(zone))
    new = {each.name for each in home.machines("a")}

    def emptied(home: Home) -> Workload:
        there = full(home)
        return replace(there, pods=tuple(each for each in there.pods if each.name not in new))

    home.workload = emptied
    home.look(60)
    assert home.requested == (1, 4, 4)
    home.drain()
    home.look(60)
    assert home.went == ["c"]


def test_a_source_that_grows_meanwhile_is_bound_and_nothing_is_moved_for_a_day() -> None:
    home = begun(0, 4, 5)
    home.scale("c", 6)
    home.look(60)
    assert home.requested == (0, 4, 6)
    home.boot()
    home.look(60)
    home.look(23 * 60 * 60)
    assert home.requested == (0, 4, 6)
    assert home.why.startswith("no node is moved before")
    home.look(2 * 60 * 60)
    assert home.memory.step is not None


def test_demand_that_comes_back_to_the_source_within_a_quarter_of_an_hour_holds_the_pool_for_a_day() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.look(60)
    home.drain()
    home.look(15)
    home.scale("c", 5)
    home.boot()
    home.look(10 * 60)
    assert home.requested[2] == 5
    assert home.memory.held_until == home.now + timedelta(hours=24)


def test_demand_that_comes_to_the_source_later_holds_nothing() -> None:
    home = begun(0, 4, 5, per_hour=1)
    home.boot()
    home.look(60)
    home.drain()
    home.look(15)
    home.look(20 * 60)
    home.scale("c", 6)
    home.boot()
    home.look(60)
    assert home.memory.held_until is None


def test_no_step_begins_while_a_machine_still_goes() -> None:
    home = Home((0, 4, 5))
    home.look()
    home.change("c", running=6)
    home.look(SETTLED)
    assert home.memory.step is None
    home.change("c", running=5)
    home.look(60)
    assert home.memory.step is not None


def test_a_frozen_destination_keeps_the_machine_that_is_late_until_it_may_be_written() -> None:
    home = begun(0, 4, 5)
    home.change("a", frozen_because=stated("paused"))
    for _ in range(3):
        home.look(10 * 60)
        assert (home.requested, home.last and home.last.groups[0].requested) == ((1, 4, 5), 1)
    home.change("a", frozen_because=None)
    home.look(60)
    assert home.requested == (0, 4, 5)


def test_a_machine_that_was_chosen_and_never_taken_is_chosen_anew() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.look(60, dies_after=0)
    step = home.memory.step
    assert step is not None
    assert isinstance(step, Deleting)
    home.change("b", frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
    home.look(60)
    step = home.memory.step
    assert step is not None
    assert isinstance(step, Ordered)


@pytest.mark.parametrize("frozen", ["", "a"])
def test_demand_that_any_zone_can_serve_holds_nothing(frozen: str) -> None:
    home = begun(1, 3, 3)
    home.boot()
    home.look(60)
    home.drain()
    assert sorted(home.requested) == [2, 2, 3]
    if frozen:
        home.change(frozen, frozen_because=stated("paused"))
    for zone in set("abc") - {frozen}:
        home.scale(zone, 6)
    home.look(60)
    assert home.memory.held_until is None


def thawed() -> tuple[Home, str]:
    """A pool whose first zone was frozen while the others grew, and which of these had given a node just before."""
    home = begun(1, 3, 3)
    home.boot()
    home.look(60)
    home.drain()
    home.look(60)
    (given,) = (zone for zone in "bc" if home.groups[zone].requested == 2)
    home.change("a", frozen_because=stated("paused"))
    for zone in "bc":
        home.scale(zone, 6)
    home.boot()
    home.look(60)
    home.change("a", frozen_because=None)
    return home, given


def test_growth_in_place_of_a_frozen_zone_holds_nothing_once_it_thaws() -> None:
    home, _ = thawed()
    home.look(60)
    assert home.memory.held_until is None
    home.until_quiet()
    assert sorted(home.requested) == [4, 5, 5]


def test_what_the_source_alone_grows_by_after_a_thaw_is_bound_as_ever() -> None:
    home, given = thawed()
    home.scale(given, 7)
    home.look(60)
    assert home.memory.held_until == home.now + timedelta(hours=24)


def test_what_zones_grow_by_in_place_of_one_that_is_out_again_holds_nothing() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.look(60)
    home.drain()
    home.look(60)
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


def test_where_the_source_cannot_give_in_the_end_the_new_machine_goes_again_by_name() -> None:
    home = begun(1, 4, 5)
    home.boot()
    home.change("c", zone_min=5)
    for _ in range(14):
        home.look(60)
        assert home.requested == (2, 4, 5)
    assert home.why.startswith("no machine of c may be drained")
    home.look(120)
    assert home.requested == (1, 4, 5)
    home.drain()
    home.look(60)
    assert home.memory.step is None
    assert home.went == ["a"]
    assert home.why.startswith("no node is moved before")


def test_where_no_machine_may_go_autoscalers_may_order_again_after_the_provision_timeout() -> None:
    home = begun(2, 8)
    home.boot()
    for zone in "ab":
        home._put(zone, [replace(each, preserved=True) for each in home.machines(zone)])
    home.look(60)
    assert [home.bounds(zone)[1] for zone in "ab"] == [3, 8]
    home.look(16 * 60)
    assert [home.bounds(zone)[1] > 8 for zone in "ab"] == [True, True]
    home.scale("a", 5)
    for _ in range(5):
        home.look(60)
        home.boot()
        home.drain()
    assert (home.requested, home.memory.step) == ((4, 8), None)  # one of these may go, and only one does


def test_a_frozen_source_is_waited_for_and_the_step_ends_once_it_may_be_written() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.change("c", frozen_because=stated("paused"))
    home.look(60)
    assert home.requested == (1, 4, 5)
    home.change("c", frozen_because=None)
    home.look(60)
    assert home.requested == (1, 4, 4)


def test_a_lowered_pool_maximum_takes_the_machine_back_that_has_no_node_yet() -> None:
    home = begun(0, 4, 5)
    home.policy = convergence(maximum=9)
    home.look(60)
    assert home.requested == (0, 4, 5)
    home.look(60)
    assert home.memory.step is None
    assert home.went == []


def test_level_off_in_the_middle_lets_the_step_end_and_begins_no_other() -> None:
    home = begun(0, 4, 5)
    home.policy = replace(home.policy, level=Level.OFF)
    home.boot()
    home.look(60)
    home.drain()
    home.look(60)
    home.look(SETTLED)
    assert home.requested == (1, 4, 4)
    assert home.memory.step is None


def test_a_pass_by_hand_waits_for_no_clock_and_works_where_level_is_off() -> None:
    home = Home((0, 4, 5), replace(convergence(per_hour=1), level=Level.OFF))
    home.policy = replace(home.policy, convergence_requested={"workers": home.now})
    found = home.look()
    assert home.requested == (1, 4, 5)
    assert found.convergence.report is not None
    for _ in range(12):
        home.boot()
        home.drain()
        home.look(60)
    assert home.requested == (3, 3, 3)


def test_a_pass_by_hand_ends_with_the_first_step_that_comes_to_nothing_whatever_was_held_before() -> None:
    home = begun(0, 4, 5)
    home.scale("a", 0)
    home.look(15)
    home.policy = replace(home.policy, convergence_requested={"workers": home.now + timedelta(seconds=15)})
    home.look(15)
    assert home.requested == (1, 4, 5)  # it does not wait for a hold that was there before
    home.scale("a", 0)
    for _ in range(3):
        home.look(60)
        assert home.requested == (0, 4, 5)


def test_a_pass_by_hand_ends_where_demand_is_bound_to_a_source_whatever_was_held_before() -> None:
    home = begun(0, 4, 5)
    home.scale("a", 0)
    home.look(15)
    home.policy = replace(home.policy, convergence_requested={"workers": home.now + timedelta(seconds=15)})
    home.look(15)
    home.boot()
    home.look(15)
    home.drain()
    assert home.requested == (1, 4, 4)
    home.scale("c", 5)
    for _ in range(3):
        home.look(60)
        assert home.requested == (1, 4, 5)
    assert home.memory.held_until is not None
    assert home.memory.held_until - home.now > timedelta(hours=23)


def test_the_course_says_all_steps_that_would_follow() -> None:
    home = Home((0, 4, 5))
    found = home.look()
    assert found.convergence.report is not None
    assert (
        found.convergence.report.course == (("c", "a"), ("b", "a"), ("c", "a"))
        or len(found.convergence.report.course) == 3
    )


def test_without_a_view_of_the_pods_nothing_is_moved_and_it_says_so() -> None:
    home = Home((0, 4, 5), convergence(blind=False))
    home.look()
    found = home.look(SETTLED)
    assert home.requested == (0, 4, 5)
    assert "its pods are unknown" in home.why
    assert found.convergence.asks


def asked(home: Home, nodes: int) -> None:
    request = ScaleRequest(id="r1", nodes=nodes, at=home.now, pool="workers")
    home.state = replace(home.state, scale_requests=(request,))


def test_nodes_that_somebody_asks_for_in_the_middle_come_and_the_step_ends() -> None:
    home = begun(0, 4, 5)
    asked(home, 2)
    home.look(15)
    home.state = replace(home.state, scale_requests=())
    assert sum(home.requested) == 12
    home.until_quiet()
    assert sum(home.requested) == 11
    assert max(home.requested) - min(home.requested) < 2


def test_nodes_that_somebody_gives_back_in_the_middle_wait_for_the_end_of_the_step() -> None:
    home = begun(0, 4, 5)
    asked(home, -1)
    found = home.look(15)
    assert home.requested == (1, 4, 5)
    assert any(problem.kind is ProblemKind.REQUEST_BEHIND_MOVE for problem in found.report.problems)
    home.boot()
    home.look(60)
    assert home.requested == (1, 4, 4)
    home.drain()
    home.look(60)
    home.state = replace(home.state, scale_requests=())
    home.until_quiet()
    assert sum(home.requested) == 8


def test_a_pool_that_is_renamed_in_the_middle_is_found_again_by_its_members() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.policy = replace(home.policy, pools=(replace(home.policy.pools[0], name="nodes"),))
    for zone in home.groups:
        home.change(zone, pool_label="nodes")
    home.look(60)
    assert home.requested == (1, 4, 4)


def test_a_source_that_leaves_the_pool_has_the_machine_taken_back() -> None:
    home = begun(0, 4, 5)
    gone = home.groups.pop("c")
    home.look(15)
    assert home.requested == (1, 4)  # absent once, it may be there
    home.look(60)
    assert home.requested == (0, 4)
    home.groups["c"] = gone


def test_a_rollout_in_the_middle_lets_nothing_go_before_it_is_over() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.change("b", frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
    home.look(60)
    assert home.requested == (1, 4, 5)
    assert home.why == "zone b is rolling out, or its controller has frozen it"
    home.change("b", frozen_because=None)
    home.look(60)
    assert home.requested == (1, 4, 4)


def test_a_pool_minimum_that_is_raised_during_a_step_keeps_its_node_and_ends_the_step() -> None:
    home = begun(0, 4, 5)
    home.boot()
    home.policy = convergence(minimum=10)
    home.look(60)
    assert home.requested == (1, 4, 5)
    assert home.memory.step is None
    home.look(20 * 60)
    assert sum(home.requested) >= 10


def test_no_step_begins_while_another_zone_of_the_pool_rolls_out() -> None:
    home = Home((0, 4, 5))
    home.look()
    home.change("b", frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2))
    home.look(SETTLED)
    assert home.requested == (0, 4, 5)
    assert home.why == "zone b is rolling out, or its controller has frozen it"
    home.change("b", frozen_because=None)
    home.look(60)
    assert home.requested == (1, 4, 5)


def test_a_pause_stops_between_two_steps_and_in_the_middle_of_one() -> None:
    home = begun(0, 4, 5)
    home.policy = replace(home.policy, paused={"workers": None})
    home.boot()
    home.look(60)
    assert home.requested == (1, 4, 5)
    home.policy = replace(home.policy, paused={})
    home.until_quiet()
    assert home.requested == (3, 3, 3)


def test_older_memory_without_any_of_it_and_newer_with_more_are_read() -> None:
    assert read_stored(PoolState, "{}", "pool").convergence == ConvergenceState()
    home = begun(0, 4, 5)
    (state,) = home.state.pools.values()
    stored = dump_stored(state)
    assert read_stored(PoolState, stored, "pool") == state
    newer = json.loads(stored)
    newer["convergence"]["step"]["colour"] = "green"
    assert read_stored(PoolState, json.dumps(newer), "pool") == state
    assert "green" in keep_unknown(PoolState, stored, json.dumps(newer))


def test_each_special_case_of_the_rules_names_a_test_that_is_here() -> None:
    named = re.findall(r"\btest_\w+", Path(rules.__file__).read_text(encoding="utf-8"))
    here = Path(__file__).read_text(encoding="utf-8")
    assert len(named) > 8
    assert [name for name in named if f"def {name}(" not in here] == []
