"""Anything may happen in any order: what Evenkeel promises holds after every step, and calm is found again.

With `--hypothesis-profile=explore -o faulthandler_timeout=0` it looks further, with new stories each time, for as long
as it is let.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenkeel.adapters.kubernetes import client
from sandbox.kube.world import REGION, ZONES
from tests.integration.chaos_harness import MAXIMUM, MINIMUM, PAUSED, SECONDS, ChaosHarness, Vessel

# A worker that is killed has counted nothing yet.
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

#: the cluster without an autoscaler, where stuck replicas are moved, or the other one
CLUSTER = st.booleans()
ZONE = st.sampled_from(ZONES)
ANY = st.integers(0, 7)
CODES = st.sampled_from(["InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "VcpuLimitExceeded", "Odd"])
SHIFTS = st.sampled_from(
    [
        "Autoshift In Progress",
        "Autoshift Completed",
        "Manual Shift Started",
        "Manual Shift Updated",
        "Manual Shift Canceled",
        "call",
    ]
)
# A run that moves replicas takes about twenty steps: looks, calls of the table, patches, messages.
Incidents = list[tuple[str, int, str, str | None, int]]
INCIDENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("killed", "killed", "answer lost", "refused", "scaled", "machines", "lease ends", "time", "table"),
                *("queue", "bounds put back"),
            ]
        ),
        st.integers(1, 22) | st.integers(-5, -1),
        st.sampled_from(["before", "after"]),
        st.sampled_from([None, None, *ZONES]),
        st.integers(-2, 3),
    ),
    min_size=1,
    max_size=3,
)
EDITS = st.sampled_from(
    [
        ("evenkeel.dev/pool-max", "4"),
        ("evenkeel.dev/pool-max", str(MAXIMUM)),
        ("evenkeel.dev/pool-max", str(MAXIMUM + 3)),
        ("evenkeel.dev/zone-max", "2"),
        ("evenkeel.dev/zone-max", None),
        ("evenkeel.dev/pool-min", "some"),
        ("evenkeel.dev/pool-min", str(MINIMUM)),
        (PAUSED, "true"),
        (PAUSED, None),
    ]
)


@contextmanager
def pages_of(size: int) -> Iterator[None]:
    """Lists come in pages so small that even these clusters need two."""
    before, client.PAGE = client.PAGE, size
    try:
        yield
    finally:
        client.PAGE = before


class EveryoneActs(RuleBasedStateMachine):
    """A story: rules are what may happen, `Sea` watches what must not."""

    sea: ChaosHarness

    @initialize(second=st.sampled_from(["openshift", "gardener"]))
    def two_clusters(self, second: str) -> None:
        self.sea = ChaosHarness(second=second)
        self.sea.__enter__()
        self.sea.minute()

    def vessel(self, moving: bool) -> Vessel:
        return self.sea.vessels[self.sea.second if moving else "cluster-api"]

    # ------------------------------------------------------------ ordinary life
    @rule(minutes=st.integers(1, 3))
    def minutes_pass(self, minutes: int) -> None:
        for _ in range(minutes):
            looks = {name: self.looks(name) for name in self.sea.vessels}
            self.sea.minute()
            waiting = {message.cluster for message in self.sea.queues.rebalance}
            for name, before in looks.items():
                # Whatever state the other cluster is in, this one has been looked at.
                if self.due(name) and name not in waiting:
                    assert self.looks(name) > before, f"{name} was not looked at"

    def looks(self, name: str) -> int:
        return self.sea.vessels[name].cluster.api.requests.count(method="GET")

    def due(self, name: str) -> bool:
        control = self.sea.store.control_of(name)
        away = self.sea.away or self.sea.queues.away or self.sea.vessels[name].down
        return not away and not control.paused

    @rule(seconds=st.sampled_from([10, 90, 400, 2000, 4 * 3600]), fires=st.booleans())
    def time_passes_without_us(self, seconds: int, fires: bool) -> None:
        self.sea.pass_time(timedelta(seconds=seconds), steps=2)
        if fires:
            self.sea.tick()

    @rule(pods=st.integers(2, MAXIMUM + 2), zone=st.none() | ZONE)
    def demand_changes(self, pods: int, zone: str | None) -> None:
        self.sea.world.set_demand("cluster-api", "workers", pods if zone is None else pods // 2, zone)
        self.sea.pass_time(timedelta(seconds=20), steps=2)

    # ------------------------------------------------------------ zones
    @rule(moving=CLUSTER, zone=ZONE, nodes=st.integers(1, 3))
    def a_zone_fails_when_more_is_wanted(self, moving: bool, zone: str, nodes: int) -> None:
        vessel = self.vessel(moving)
        self.sea.world.take_away(vessel.name, zone)
        if vessel.requested + nodes <= vessel.maximum:
            vessel.scale(zone, nodes, "kubectl")
        self.sea.pass_time(timedelta(seconds=20), steps=2)

    @rule(moving=CLUSTER, zone=ZONE)
    def a_zone_heals(self, moving: bool, zone: str) -> None:
        self.sea.world.give_back(self.vessel(moving).name, zone)

    @rule(
        moving=CLUSTER,
        zone=ZONE,
        code=CODES,
        age=st.sampled_from([0, 30, 400, 4000, 5 * 3600, -60]),
        which=ANY,
        of_set=st.booleans(),
    )
    def a_launch_fails_and_events_arrive(
        self, moving: bool, zone: str, code: str, age: int, which: int, of_set: bool = False
    ) -> None:
        """Early or late, once or often, or never: every event stays on the heap, and any of them may arrive."""
        self.sea.fail(self.vessel(moving).name, zone, code, timedelta(seconds=age), of_set=of_set)
        for back in {0, which // 2, which}:
            self.sea.hear(self.sea.failures[-1 - back % len(self.sea.failures)])

    @rule(kind=SHIFTS, zone=ZONE, age=st.sampled_from([0, 5, 30, 400, 4000]), which=ANY, elsewhere=st.booleans())
    def arc_says_something_about_a_zone(self, kind: str, zone: str, age: int, which: int, elsewhere: bool) -> None:
        """To both clusters. Words too come late, twice, in any order and about the zones of other regions."""
        region = "eu-west-3" if elsewhere else REGION
        self.sea.shift(kind, zone, timedelta(seconds=age), region=region)
        before = [self.sea.store.word_about(name, zone) for name in self.sea.vessels]
        self.sea.hear(self.sea.shifts[-1])
        if elsewhere:
            assert [self.sea.store.word_about(name, zone) for name in self.sea.vessels] == before
        for back in {which // 2, which}:
            self.sea.hear(self.sea.shifts[-1 - back % len(self.sea.shifts)])
        self.sea.drain()

    @rule(
        moving=CLUSTER, zone=ZONE, nodes=st.integers(1, 4), dies_at=st.none() | st.integers(-5, -1), twice=st.booleans()
    )
    def somebody_asks_for_nodes(self, moving: bool, zone: str, nodes: int, dies_at: int | None, twice: bool) -> None:
        """They are added once, however often the event arrives and wherever the worker dies."""
        vessel = self.vessel(moving)
        event = self.sea.ask(vessel.name, nodes, zone)
        self.sea.hear(event)
        if dies_at is not None:
            self.sea.deliver(self.sea.message_for(vessel.name), happenings={(dies_at, "after"): self.sea.steps.kill})
        if twice:
            self.sea.hear(event)
        self.sea.pass_time(timedelta(seconds=100), steps=2)
        self.sea.drain()

    # ------------------------------------------------------------ messages
    @precondition(lambda self: self.sea.queues.rebalance)
    @rule(which=ANY, what=st.sampled_from(["out of turn", "twice", "lost"]))
    def a_message_goes_astray(self, which: int, what: str) -> None:
        message = self.sea.queues.rebalance[which % len(self.sea.queues.rebalance)]
        if what == "lost":
            self.sea.queues.rebalance.remove(message)
        else:
            self.sea.run_undisturbed(message, again=what == "twice")

    @precondition(lambda self: self.sea.queues.recheck)
    @rule(which=ANY, lost=st.booleans())
    def a_second_look_comes_early_or_never(self, which: int, lost: bool) -> None:
        message = self.sea.queues.recheck[which % len(self.sea.queues.recheck)]
        if lost:
            self.sea.queues.recheck.remove(message)
        else:
            self.sea.deliver(message, function="scan")

    @rule(moving=CLUSTER, incidents=INCIDENTS, zone=ZONE, nodes=st.integers(1, 3), fresh=st.booleans())
    def a_run_is_disturbed(self, moving: bool, incidents: Incidents, zone: str, nodes: int, fresh: bool) -> None:
        """A run that has something to do, because a zone fails, and what befalls it or the cluster meanwhile."""
        vessel = self.vessel(moving)
        if fresh:  # every other zone is well again, and its backoff forgotten
            for other in ZONES:
                self.sea.world.give_back(vessel.name, other)
            self.sea.pass_time(timedelta(hours=4), steps=3)
            self.sea.minute()
        self.sea.world.take_away(vessel.name, zone)
        if vessel.requested + nodes > vessel.maximum:
            fullest = max(vessel.groups(), key=lambda group: group.requested)
            vessel.scale(fullest.zone, -nodes, "kubectl")
        vessel.scale(zone, nodes, "kubectl" if moving else "cluster-autoscaler")
        self.sea.pass_time(timedelta(seconds=20), steps=2)
        self.disturb(vessel, incidents, zone)

    @rule(
        moving=CLUSTER,
        zone=ZONE,
        nodes=st.integers(1, 3),
        what=st.sampled_from(["killed", "killed", "scaled", "machines"]),
        step=st.integers(-4, -1) | st.integers(4, 18),
        moment=st.sampled_from(["before", "after"]),
    )
    def one_thing_happens_to_a_run(
        self, moving: bool, zone: str, nodes: int, what: str, step: int, moment: str
    ) -> None:
        """The commonest incidents: a worker dies, or another writes between its look and its patch."""
        self.a_run_is_disturbed(moving, [(what, step, moment, None, 1)], zone, nodes, fresh=True)
        self.sea.pass_time(timedelta(seconds=100), steps=2)
        self.sea.drain()

    def disturb(self, vessel: Vessel, incidents: Incidents, failing: str) -> None:
        happenings = {
            (step, moment): self.incident(what, vessel, zone or failing, delta)
            for what, step, moment, zone, delta in incidents
        }
        self.sea.away_meanwhile = any(what == "table" for what, *_ in incidents)
        try:
            self.sea.deliver(self.sea.message_for(vessel.name), happenings=happenings)
        finally:
            if self.sea.away_meanwhile:
                self.sea.away = self.sea.away_meanwhile = False
            self.sea.queues.away = False
            vessel.cluster.api.faults.clear()

    def incident(self, what: str, vessel: Vessel, zone: str, delta: int) -> Callable[[], None]:
        def lease_ends() -> None:
            """Another worker takes over while this one still believes it is alone."""
            self.sea.clock.at += timedelta(seconds=SECONDS + 1)
            self.sea.deliver(self.sea.message_for(vessel.name), function="rebalance beside")
            vessel.touched = True

        def time() -> None:
            self.sea.clock.at += timedelta(seconds=50)

        def table() -> None:
            self.sea.away = True

        def queue() -> None:
            self.sea.queues.away = True

        def machines() -> None:
            self.sea.clock.at += timedelta(seconds=10)
            vessel.cluster.controllers.timing, timing = self.sea.at_once, vessel.cluster.controllers.timing
            vessel.step()
            vessel.cluster.controllers.timing = timing

        faults = vessel.cluster.api.faults
        happenings: Mapping[str, Callable[[], Any]] = {
            "killed": self.sea.steps.kill,
            "answer lost": lambda: faults.add(method="PATCH", stage="after"),
            "refused": lambda: faults.add(method="PATCH", status=500 if delta % 2 else 422),
            "scaled": lambda: vessel.scale(zone, delta, "cluster-autoscaler"),
            "machines": machines,
            "lease ends": lease_ends,
            "time": time,
            "table": table,
            "queue": queue,
            "bounds put back": lambda: vessel.put_back(zone, (0, 5)),
        }
        return happenings[what]

    # ------------------------------------------------------------ people, and Cluster Autoscaler
    @rule(moving=CLUSTER, zone=ZONE, delta=st.integers(-2, 3))
    def somebody_scales(self, moving: bool, zone: str, delta: int) -> None:
        self.vessel(moving).scale(zone, delta, "kubectl" if moving else "cluster-autoscaler")

    @rule(moving=CLUSTER, zone=ZONE, edit=EDITS)
    def somebody_edits(self, moving: bool, zone: str, edit: tuple[str, str | None]) -> None:
        key, value = edit
        vessel = self.vessel(moving)
        if key == "evenkeel.dev/pool-max" and value is not None:
            vessel.set_maximum(int(value))
        elif key != PAUSED or vessel.name == "cluster-api":
            vessel.annotate(zone, key, value)

    @rule(moving=CLUSTER, zone=ZONE, bounds=st.sampled_from([(0, 5), (1, 3), (2, 2)]), times=st.sampled_from([1, 3]))
    def somebody_puts_bounds_back(self, moving: bool, zone: str, bounds: tuple[int, int], times: int) -> None:
        """Three times within an hour is no edit but an owner: then that group is left alone until resume."""
        vessel = self.vessel(moving)
        overwritten = 0
        for _ in range(times):
            vessel.put_back(zone, bounds)
            before = vessel.in_zone(zone).bounds
            self.sea.minute()
            overwritten += vessel.in_zone(zone).bounds != before
        if overwritten == 3:
            vessel.put_back(zone, bounds)
            before = vessel.in_zone(zone).bounds
            self.sea.minute()
            assert vessel.in_zone(zone).bounds == before, "somebody's bounds were overwritten once more"
            assert vessel.in_zone(zone).contested

    @rule()
    def gardener_reconciles_its_workers(self) -> None:
        self.vessel(moving=True).workers_are_reconciled()

    @rule(moving=CLUSTER, zone=ZONE, minutes=st.sampled_from([-1, 2, 30]))
    def the_operator_fences_a_zone(self, moving: bool, zone: str, minutes: int) -> None:
        self.sea.fence(self.vessel(moving).name, zone, timedelta(minutes=minutes))

    @rule(moving=CLUSTER, action=st.sampled_from(["pause", "resume", "plan", "status"]))
    def the_operator_acts(self, moving: bool, action: str) -> None:
        self.operator(action, moving)
        if action == "pause":
            self.sea.minute()
            self.operator("resume", moving)

    @rule(moving=CLUSTER, minutes=st.integers(1, 3), zone=ZONE)
    def dry_run_is_switched_on_for_a_while(self, moving: bool, minutes: int, zone: str) -> None:
        """Looked at as ever, and not written; the zone fails meanwhile."""
        vessel = self.vessel(moving)
        self.sea.register(vessel.name, dry_run=True)
        self.a_launch_fails_and_events_arrive(moving, zone, "InsufficientInstanceCapacity", 0, 0)
        self.minutes_pass(minutes)
        self.sea.register(vessel.name, dry_run=False)

    @rule(moving=CLUSTER, dry_run=st.booleans(), resumes=st.booleans())
    def the_operator_leaves(self, moving: bool, dry_run: bool, resumes: bool) -> None:
        """Restore: what was found at adoption stands again, and nothing of ours. Then Evenkeel is asked back."""
        vessel = self.vessel(moving)
        self.sea.register(vessel.name, dry_run=dry_run)
        self.operator("restore", moving)
        for _ in range(3):
            self.sea.minute()
        frozen = any(group.frozen for group in vessel.groups())
        control = self.sea.store.control_of(vessel.name)
        assert control.paused or frozen, f"{vessel.name}: not left: {vessel.groups()}"
        if control.paused:
            assert not any(group.ours for group in vessel.groups()), f"{vessel.name}: not restored: {vessel.groups()}"
        if resumes:
            self.operator("resume", moving)
        self.sea.register(vessel.name, dry_run=False)

    def operator(self, action: str, moving: bool, **more: Any) -> None:
        answer = self.sea.operator(action, self.vessel(moving).name, **more)
        assert answer["ok"], answer

    # ------------------------------------------------------------ what we stand on
    @rule(moving=CLUSTER, zone=ZONE, code=CODES, kind=SHIFTS)
    def the_queues_are_away_for_a_minute(self, moving: bool, zone: str, code: str, kind: str) -> None:
        """Whoever could not ask for a look is called again by Lambda, and asks then."""
        self.sea.pass_time(timedelta(seconds=70))
        self.sea.fail(self.vessel(moving).name, zone, code, timedelta(0))
        self.sea.shift(kind, zone, timedelta(0))
        self.sea.queues.away = True
        self.sea.hear(self.sea.failures[-1])
        self.sea.hear(self.sea.shifts[-1])
        self.sea.minute()
        self.sea.queues.away = False
        self.sea.hear_postponed()
        self.sea.drain()

    @rule(
        moving=CLUSTER,
        how=st.sampled_from([{"status": 500}, {"status": 410}, {"status": 403}, {"cut_body": True}, {}]),
        kind=st.sampled_from(["machine", "deployments", "sets", ""]),
        zone=ZONE,
    )
    def a_list_breaks_off_after_its_first_page(self, moving: bool, how: dict[str, Any], kind: str, zone: str) -> None:
        """Half a list is worth nothing: nothing is written, to the cluster or about it."""
        vessel = self.vessel(moving)
        self.a_zone_fails_when_more_is_wanted(moving, zone, 1)
        self.sea.drain()
        fault = vessel.cluster.api.faults.add(query_contains="continue=", path_contains=kind, times=1_000_000, **how)
        patches, writes = vessel.patches, self.sea.store.writes
        told = len(self.sea.outcomes)
        with pages_of(2):
            self.sea.deliver(self.sea.message_for(vessel.name))
        vessel.cluster.api.faults.clear()
        if fault.times < 1_000_000:
            assert (vessel.patches, self.sea.store.writes) == (patches, writes)
            assert all(outcome.unreachable for outcome in self.sea.outcomes[told:])

    @rule(moving=CLUSTER, what=st.sampled_from(["table", "api server"]), minutes=st.integers(1, 3))
    def something_is_away_for_a_while(self, moving: bool, what: str, minutes: int) -> None:
        name = self.vessel(moving).name
        self.sea.away = what == "table"
        self.sea.set_down(name, what != "table")
        self.minutes_pass(minutes)
        self.sea.away = False
        self.sea.set_down(name, False)

    # ------------------------------------------------------------ what must hold
    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "sea"):
            self.sea.check()

    def teardown(self) -> None:
        if not hasattr(self, "sea"):
            return
        try:
            if not self.sea.broken:
                self.calm_is_found_again()
        finally:
            self.sea.__exit__(None, None, None)

    def calm_is_found_again(self) -> None:
        """Everything is healed: every pod and every replica finds its node, and then nothing is written any more."""
        sea = self.sea
        sea.calm()
        sea.settle()
        for name, vessel in sea.vessels.items():
            groups = vessel.groups()
            requested = sum(group.requested for group in groups)
            running = sum(len(group.running) for group in groups)
            assert requested == running, f"{name}: {groups}"
            assert not sea.store.open_requests(name)
            assert MINIMUM <= running <= max(MAXIMUM, running), f"{name}: {groups}"
            if not vessel.moving:
                assert sea.world.pending(name, "workers") == 0, f"{name}: {groups}"
        patches = {name: vessel.patches for name, vessel in sea.vessels.items()}
        writes = sea.store.writes
        sea.minute()
        assert {name: vessel.patches for name, vessel in sea.vessels.items()} == patches
        assert sea.store.writes == writes
        sea.check()


_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("name", ["cluster-api", "openshift", "gardener"])
def test_a_delete_mark_that_a_dead_worker_left_behind_never_costs_a_node(name: str) -> None:
    with ChaosHarness(second="gardener" if name == "gardener" else "openshift") as sea:
        vessel, zone = sea.vessels[name], ZONES[0]
        sea.world.set_demand("cluster-api", "workers", MAXIMUM)  # or its autoscaler would take nodes away
        sea.minute()

        def one_more_gets_stuck() -> None:
            sea.world.take_away(name, zone)
            vessel.scale(zone, 1, "kubectl")
            sea.pass_time(timedelta(seconds=20), steps=2)

        one_more_gets_stuck()
        sea.deliver(sea.message_for(name), happenings={(-1, "after"): sea.steps.kill})
        assert vessel.patches == 1, "the mark, and nothing else"
        sea.world.give_back(name, zone)
        sea.pass_time(timedelta(minutes=5), steps=5)  # before its autoscaler gives the machine up
        sea.pass_time(timedelta(hours=4), steps=4)
        assert len(vessel.in_zone(zone).running) == vessel.in_zone(zone).requested == 3, "the marked one is a node now"
        for _ in range(3):
            one_more_gets_stuck()
            sea.minute()
            sea.world.give_back(name, zone)
            sea.pass_time(timedelta(hours=4), steps=4)
            sea.check()


@pytest.mark.usefixtures("as_deployed")
def test_whatever_happens_every_promise_holds_and_calm_is_found_again() -> None:
    exploring = settings().max_examples > 500
    run_state_machine_as_test(
        EveryoneActs,
        settings=settings(
            max_examples=1000 if exploring else 12, stateful_step_count=30, deadline=None, suppress_health_check=_SLOW
        ),
    )


@pytest.mark.usefixtures("as_deployed")
def test_a_scale_right_after_a_raise_to_the_minimum_is_told_apart_from_it() -> None:
    """Found by exploring: the ledger took the raise and the scale together for replicas from nowhere."""
    story = EveryoneActs()
    try:
        story.two_clusters(second="openshift")
        story.the_operator_leaves(dry_run=False, moving=False, resumes=False)
        story.somebody_scales(delta=-2, moving=True, zone="eu-central-1a")
        story.somebody_scales(delta=-2, moving=True, zone="eu-central-1b")
        disturbed = [("killed", 1, "before", None, 0), ("lease ends", 5, "after", None, 1)]
        story.a_run_is_disturbed(moving=True, incidents=disturbed, zone="eu-central-1a", nodes=1, fresh=True)
        story.promises_hold()
    finally:
        story.teardown()
