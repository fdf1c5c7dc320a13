"""Anything may happen in any order: what Evenkeel promises holds after every step, and calm is found again.

`pytest tests/integration/test_state_machine.py --hypothesis-profile=explore` looks further, with new stories each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

from sandbox.kube.world import ZONES
from tests.integration.rough_sea import MAXIMUM, MINIMUM, PAUSED, SECONDS, Message, Sea, Vessel

# Which of the two clusters, and which of what there is: names differ from story to story.
FIRST_OR_SECOND = st.booleans()
ZONE = st.sampled_from(ZONES)
ANY = st.integers(0, 7)
#: a step of a run: looks, store calls, patches; a run that writes takes about thirty
STEP = st.integers(1, 30)
MOMENT = st.sampled_from(["before", "after"])
CODES = st.sampled_from(["InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "VcpuLimitExceeded", "Odd"])
INCIDENTS = st.sampled_from(
    ["killed", "answer lost", "refused", "scaled", "edited", "machines", "lease ends", "time", "table"]
)


class EveryoneActs(RuleBasedStateMachine):
    """A story: rules are what may happen, `Sea` watches what must not."""

    sea: Sea

    @initialize(second=st.sampled_from(["openshift", "gardener"]))
    def two_clusters(self, second: str) -> None:
        self.sea = Sea(second=second)
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
        record = self.sea.store.record_of(name)
        return not self.sea.away and not record.paused and not self.sea.vessels[name].down

    @rule(seconds=st.sampled_from([10, 20, 90, 400, 2000, 4 * 3600]))
    def time_passes_without_a_schedule(self, seconds: int) -> None:
        self.sea.pass_time(timedelta(seconds=seconds), steps=2)

    @rule()
    def the_schedule_fires(self) -> None:
        self.sea.tick()

    @rule(moving=FIRST_OR_SECOND)
    def the_controllers_work(self, moving: bool) -> None:
        self.vessel(moving).step()

    @rule(pods=st.integers(2, MAXIMUM + 2), zone=st.none() | ZONE)
    def demand_changes(self, pods: int, zone: str | None) -> None:
        self.sea.world.set_demand("cluster-api", "workers", pods if zone is None else pods // 2, zone)

    # ------------------------------------------------------------ zones
    @rule(moving=FIRST_OR_SECOND, zone=ZONE)
    def a_zone_fails(self, moving: bool, zone: str) -> None:
        self.sea.world.take_away(self.vessel(moving).name, zone)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE, nodes=st.integers(1, 3))
    def more_is_wanted_where_nothing_is_had(self, moving: bool, zone: str, nodes: int) -> None:
        vessel = self.vessel(moving)
        self.sea.world.take_away(vessel.name, zone)
        if sum(group.requested for group in vessel.groups()) + nodes <= vessel.maximum:
            vessel.scale(zone, nodes, "kubectl")
        self.sea.pass_time(timedelta(seconds=20), steps=2)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE)
    def a_zone_heals(self, moving: bool, zone: str) -> None:
        self.sea.world.give_back(self.vessel(moving).name, zone)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE, code=CODES, age=st.sampled_from([0, 30, 400, 4000, 5 * 3600, -60]))
    def a_launch_fails(self, moving: bool, zone: str, code: str, age: int) -> None:
        self.sea.fail(self.vessel(moving).name, zone, code, timedelta(seconds=age))

    @precondition(lambda self: self.sea.failures)
    @rule(which=ANY)
    def an_event_arrives(self, which: int) -> None:
        """Early or late, once or often, or never: events stay on the heap."""
        self.sea.hear(self.sea.failures[-1 - which % len(self.sea.failures)])

    # ------------------------------------------------------------ messages
    def message(self, which: int) -> Message:
        return self.sea.queues.rebalance[which % len(self.sea.queues.rebalance)]

    @precondition(lambda self: self.sea.queues.rebalance)
    @rule(which=ANY, again=st.booleans())
    def a_message_arrives_out_of_turn(self, which: int, again: bool) -> None:
        self.sea.run_undisturbed(self.message(which), again=again)

    @precondition(lambda self: self.sea.queues.rebalance)
    @rule(which=ANY)
    def a_message_is_lost(self, which: int) -> None:
        self.sea.queues.rebalance.remove(self.message(which))

    @precondition(lambda self: self.sea.queues.recheck)
    @rule(which=ANY, lost=st.booleans())
    def a_second_look_comes_early_or_never(self, which: int, lost: bool) -> None:
        message = self.sea.queues.recheck[which % len(self.sea.queues.recheck)]
        if lost:
            self.sea.queues.recheck.remove(message)
        else:
            self.sea.deliver(message, function="scan")

    @rule(
        moving=FIRST_OR_SECOND,
        incidents=st.lists(st.tuples(INCIDENTS, STEP, MOMENT, ZONE, st.integers(-2, 3)), min_size=1, max_size=3),
    )
    def a_run_is_disturbed(self, moving: bool, incidents: list[tuple[str, int, str, str, int]]) -> None:
        """A scan's message, and what befalls the worker or the cluster while it runs."""
        vessel = self.vessel(moving)
        self.sea.queues.request(vessel.name, "disturbed", f"disturbed-{len(self.sea.outcomes)}-{self.sea.clock.at}")
        message = next(each for each in reversed(self.sea.queues.rebalance) if each.cluster == vessel.name)
        happenings = {
            (step, moment): self.incident(what, vessel, zone, delta) for what, step, moment, zone, delta in incidents
        }
        self.sea.away_meanwhile = any(what == "table" for what, *_ in incidents)
        try:
            self.sea.deliver(message, happenings=happenings)
        finally:
            if self.sea.away_meanwhile:
                self.sea.away = False
            self.sea.away_meanwhile = False
            if not vessel.down:
                vessel.cluster.api.faults.clear()

    def incident(self, what: str, vessel: Vessel, zone: str, delta: int) -> Callable[[], None]:
        def lease_ends() -> None:
            """Another worker takes over while this one still believes it is alone."""
            self.sea.clock.at += timedelta(seconds=SECONDS + 1)
            self.sea.queues.request(vessel.name, "beside", f"beside-{self.sea.clock.at}")
            message = next(each for each in reversed(self.sea.queues.rebalance) if each.cluster == vessel.name)
            self.sea.deliver(message, function="rebalance beside")
            vessel.touched = True

        def time() -> None:
            self.sea.clock.at += timedelta(seconds=50)

        def table() -> None:
            self.sea.away = True

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
            "edited": lambda: vessel.scale(zone, delta, "kubectl"),
            "machines": machines,
            "lease ends": lease_ends,
            "time": time,
            "table": table,
        }
        return happenings[what]

    # ------------------------------------------------------------ people, and Cluster Autoscaler
    @rule(moving=FIRST_OR_SECOND, zone=ZONE, delta=st.integers(-2, 3))
    def somebody_scales(self, moving: bool, zone: str, delta: int) -> None:
        self.vessel(moving).scale(zone, delta, "kubectl" if moving else "cluster-autoscaler")

    @rule(moving=FIRST_OR_SECOND, maximum=st.integers(MINIMUM, MAXIMUM + 3))
    def pool_max_is_edited(self, moving: bool, maximum: int) -> None:
        self.vessel(moving).set_maximum(maximum)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE, value=st.sampled_from(["0", "2", "5", "much", "-1", None, None]))
    def zone_max_is_edited(self, moving: bool, zone: str, value: str | None) -> None:
        self.vessel(moving).annotate(zone, "evenkeel.dev/zone-max", value)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE, repaired=st.booleans())
    def an_annotation_is_broken_or_repaired(self, moving: bool, zone: str, repaired: bool) -> None:
        self.vessel(moving).annotate(zone, "evenkeel.dev/pool-min", str(MINIMUM) if repaired else "some")

    @rule(zone=ZONE, paused=st.booleans())
    def an_object_is_frozen_or_freed(self, zone: str, paused: bool) -> None:
        self.vessel(False).annotate(zone, PAUSED, "true" if paused else None)

    @rule(moving=FIRST_OR_SECOND, zone=ZONE, minutes=st.sampled_from([-1, 2, 30]))
    def the_operator_fences_a_zone(self, moving: bool, zone: str, minutes: int) -> None:
        until = (self.sea.clock.now() + timedelta(minutes=minutes)).isoformat()
        self.operator("fence-zone", moving, zone=zone, until=until)

    @rule(moving=FIRST_OR_SECOND, action=st.sampled_from(["pause", "resume", "resume", "plan", "status"]))
    def the_operator_acts(self, moving: bool, action: str) -> None:
        self.operator(action, moving)

    def operator(self, action: str, moving: bool, **more: Any) -> None:
        answer = self.sea.operator(action, self.vessel(moving).name, **more)
        assert answer["ok"] or self.sea.away or self.vessel(moving).down, answer

    # ------------------------------------------------------------ what we stand on
    @rule(away=st.booleans())
    def the_table_goes_or_comes_back(self, away: bool) -> None:
        self.sea.away = away

    @rule(moving=FIRST_OR_SECOND, down=st.booleans())
    def an_api_server_dies_or_lives(self, moving: bool, down: bool) -> None:
        self.sea.set_down(self.vessel(moving).name, down)

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
            assert MINIMUM <= running <= max(MAXIMUM, running), f"{name}: {groups}"
            if not vessel.moving:
                assert sea.world.pending(name, "workers") == 0, f"{name}: {groups}"
        patches = {name: vessel.patches for name, vessel in sea.vessels.items()}
        writes = sea.store.writes
        sea.minute()
        assert {name: vessel.patches for name, vessel in sea.vessels.items()} == patches
        assert sea.store.writes == writes
        sea.check()


@pytest.fixture
def _as_deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    variables = {"SERVICE_NAME": "evenkeel", "METRICS_NAMESPACE": "Evenkeel", "LOG_LEVEL": "CRITICAL"}
    for name, value in variables.items():
        monkeypatch.setenv(f"POWERTOOLS_{name}", value)
    yield


_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.usefixtures("_as_deployed")
def test_whatever_happens_every_promise_holds_and_calm_is_found_again() -> None:
    exploring = settings().max_examples > 500
    run_state_machine_as_test(
        EveryoneActs,
        settings=settings(
            max_examples=1000 if exploring else 12, stateful_step_count=40, deadline=None, suppress_health_check=_SLOW
        ),
    )
