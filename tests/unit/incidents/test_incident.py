"""Incidents: when they open and close, their events, and their texts in status and explain."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel.application.errors import AccessError, ClusterUnavailableError, RejectedError, TooLargeError
from evenkeel.application.ports import RUNBOOKS
from evenkeel.domain.fleet.check_times import RETRY_DELAYS
from evenkeel.domain.incidents.health import (
    evaluate,
    evaluate_unread,
    pending_changes,
    unreadable,
    with_pending_changes,
    with_stopped,
)
from evenkeel.domain.model.demand import Advice, NotCounted, PendingPods, PoolAdvice, PoolDemand, Unfit
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, MachineFailure, NodeGroup
from evenkeel.domain.model.incidents import TROUBLE_AFTER, Change, ClusterHealth, Incident, IncidentKind, stopped_since
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import GroupState, Release
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel_cli import actions, stack_client
from evenkeel_cli.answers import print_answer
from evenkeel_cli.main import app
from tests.builders import MINUTE, group, in_backoff, key, numbers, plan_of, stated, zones
from tests.fakes import NOW, FakeCluster, FakeWorkload, plenty
from tests.parts import make, replace
from tests.stack import Stack

DARK = ClusterUnavailableError("demo does not answer: not within 8 s")
WORKERS = "cluster-api/default/workers"


def stuck(stack: Stack, requested: Sequence[int], running: Sequence[int]) -> None:
    """Set what the zones request and run, with no machine listed for a missing node."""
    for zone, wanted, nodes in zip("abc", requested, running, strict=False):
        stack.cluster.change(key(zone), requested=wanted, running=nodes, machines=())


def fail(stack: Stack, zones: str, failure_class: FailureClass = FailureClass.CAPACITY, words: str = "no room") -> None:
    versions = stack.store.load("demo").versions
    for zone in zones:
        before = stack.state.groups.get(key(zone), GroupState())
        state = record_failure(before, stack.clock.at, failure_class, words, BackoffPolicy())
        stack.store.save_group("demo", key(zone), state, versions)


def cluster_health(stack: Stack) -> tuple[Incident, ...]:
    incidents: tuple[Incident, ...] = stack.store.load("demo").cluster_health.incidents
    return incidents


def changes(stack: Stack) -> list[tuple[str, str]]:
    """Return the published incident changes in order, with their keys."""
    return [
        (detail_type.removeprefix("Incident "), detail["key"])
        for detail_type, detail in stack.bus.published
        if detail_type.startswith("Incident ")
    ]


MISSING = f"demo/{WORKERS}/missing"


def short(
    requested: Sequence[int] = (4, 2, 2),
    failing: str = "a",
    failure: FailureClass = FailureClass.CAPACITY,
    words: str = "no room",
    **fields: Any,
) -> Stack:
    """Return a stack whose zones run 2 nodes each and request these, and whose launches fail in some zones."""
    stack = Stack(**fields)
    stuck(stack, requested, (2, 2, 2))
    fail(stack, failing, failure, words)
    return stack


def all_ready(stack: Stack) -> None:
    """Let the nodes that zone a requests run, and end the fences."""
    machines = tuple(Machine(name=f"m{number}", has_node=True, created_at=stack.clock.at) for number in range(2))
    stack.cluster.change(key("a"), requested=4, running=4, machines=machines)
    stack.clock.at += 4 * 60 * MINUTE


class TestMissingNodes:
    def test_a_failure_that_another_zone_takes_over_is_no_incident(self) -> None:
        stack = short()
        stack.run()
        stuck(stack, (2, 3, 3), (2, 3, 3))
        stack.runs(12)
        assert (cluster_health(stack), changes(stack)) == ((), [])

    def test_released_nodes_that_no_autoscaler_orders_are_an_incident_until_it_does(self) -> None:
        stack = short()
        stack.runs(5)
        assert cluster_health(stack) == ()
        stack.runs(3)
        (incident,) = cluster_health(stack)
        assert (incident.kind, incident.missing, incident.not_reordered) == (IncidentKind.MISSING, 2, 2)
        assert incident.zones == ("a",)
        assert changes(stack) == [("Opened", MISSING)]
        detail = stack.bus.published[-1][1]
        assert "2 of 8 nodes missing" in detail["headline"]
        assert "no autoscaler has ordered 2 released replicas" in detail["headline"]
        assert "If the record has workload, Evenkeel orders the replicas" in detail["todo"]
        assert detail["runbook"] == f"{RUNBOOKS}#missing"
        stuck(stack, (2, 3, 3), (2, 3, 3))
        stack.runs(12)
        assert (cluster_health(stack), changes(stack)[-1]) == ((), ("Closed", MISSING))

    def test_a_launch_error_precedes_released_nodes_that_are_not_ordered(self) -> None:
        stack = short()
        stack.runs(8)
        stuck(stack, (2, 3, 2), (2, 2, 2))  # an autoscaler has ordered one of the two
        fail(stack, "b", FailureClass.QUOTA, "the quota is used up")
        stack.runs(3)
        (incident,) = cluster_health(stack)
        assert (incident.missing, incident.not_reordered, incident.failure_class) == (2, 1, FailureClass.QUOTA)
        assert incident.message == "the quota is used up"
        detail = stack.bus.published[-1][1]
        assert "no autoscaler has ordered 1 released replica" in detail["headline"]
        assert "If the record has workload, Evenkeel orders the replicas" not in detail["todo"]
        assert detail["runbook"] == f"{RUNBOOKS}#quota"

    @pytest.mark.parametrize(("due_in", "missing"), [(MINUTE, 1), (0 * MINUTE, 3)])
    def test_released_nodes_are_missing_once_an_autoscaler_had_its_time(self, due_in: timedelta, missing: int) -> None:
        state = make(GroupState, waiting_since=NOW - 10 * MINUTE, waiting_running=2)
        planned = plan_of(zones((3, 2, 2), (2, 2, 2), machines=()), numbers(1, 12), states={key("a"): state})
        pool = replace(planned.pools[0], not_reordered=2, order_due=NOW + due_in)
        (incident,) = evaluate(
            ClusterHealth(), replace(planned, pools=(pool,)), {key("a"): state}, 5 * MINUTE
        ).incidents
        assert incident.missing == missing

    @pytest.mark.parametrize(("minutes", "missing"), [(4, []), (5, [2])])
    def test_released_nodes_that_are_not_ordered_are_an_incident_once_it_has_lasted(
        self, minutes: int, missing: list[int]
    ) -> None:
        release = Release(at=NOW - minutes * MINUTE, replicas=2)
        planned = plan_of(zones((2, 2, 2)), numbers(1, 12))
        stored = replace(planned.pools[0].next_state, release=release)
        pool = replace(planned.pools[0], not_reordered=2, order_due=NOW, next_state=stored)
        incidents = evaluate(ClusterHealth(), replace(planned, pools=(pool,)), {}, 5 * MINUTE).incidents
        assert [(each.missing, each.since) for each in incidents] == [(number, release.at) for number in missing]

    def test_released_nodes_are_forgotten_after_half_an_hour(self) -> None:
        stack = short()
        stack.runs(45)
        assert (cluster_health(stack), changes(stack)[-1]) == ((), ("Closed", MISSING))

    def test_released_nodes_are_no_incident_where_no_pod_is_pending(self) -> None:
        stack = Stack(workload={"access": {"kind": "same"}})
        stack.clusters.workloads["demo"] = FakeWorkload(Workload())
        stuck(stack, (4, 2, 2), (2, 2, 2))
        fail(stack, "a")
        stack.runs(12)
        assert (cluster_health(stack), changes(stack)) == ((), [])

    def test_a_failure_that_no_zone_can_take_over_is_an_incident_at_once(self) -> None:
        stack = short((4, 2, 3), "abc")
        stack.run()
        (incident,) = cluster_health(stack)
        assert (incident.kind, incident.pool, incident.missing) == (IncidentKind.MISSING, WORKERS, 3)
        assert (incident.requested, incident.running, incident.zones) == (9, 6, ("a", "c"))
        assert (incident.failure_class, incident.message) == (FailureClass.CAPACITY, "no room")
        ((detail_type, event),) = [each for each in stack.bus.published if each[0].startswith("Incident")]
        assert (detail_type, event["key"], event["missing"]) == ("Incident Opened", MISSING, 3)
        assert (
            event["message"] == "workers: 3 of 9 nodes missing for 0 min: capacity (no zone delivers) in a, c: no room"
        )
        assert event["command"] == f"evenkeel explain --stack NAME --cluster demo --pool {WORKERS}"

    @pytest.mark.parametrize("failure_class", [FailureClass.QUOTA, FailureClass.CONFIGURATION])
    def test_a_quota_or_configuration_failure_is_an_incident_at_once(self, failure_class: FailureClass) -> None:
        stack = short(failure=failure_class, words="VcpuLimitExceeded: no more")
        stack.run()
        (incident,) = cluster_health(stack)
        assert (incident.missing, incident.failure_class) == (2, failure_class)

    def test_a_missing_node_without_a_failure_is_an_incident_after_trouble_after(self) -> None:
        stack = Stack(trouble_after=600)
        stuck(stack, (4, 2, 2), (2, 2, 2))  # no machine and no error
        opened = []
        for minute in range(1, 15):
            stack.checks()
            stack.carry_out()
            opened += [minute] * (len(changes(stack)) - len(opened))
        assert opened == [11], "missing since minute 1, an incident ten minutes later"
        assert cluster_health(stack)[0].failure_class is None

    def test_machines_that_boot_are_not_missing(self) -> None:
        stack = Stack()
        booting = tuple(Machine(name=f"m{number}", has_node=False, created_at=NOW) for number in range(2))
        stack.cluster.change(key("a"), requested=4, running=2, machines=booting)
        stack.runs(13)
        assert cluster_health(stack) == ()

    def test_it_ends_when_the_zone_delivers_what_was_missing_and_not_before(self) -> None:
        stack = short(failing="abc")
        stack.run()
        old = [Machine(name=f"m{number}", has_node=False, created_at=stack.clock.at) for number in range(2)]
        ready = [replace(machine, has_node=True) for machine in old]
        stack.clock.at += 10 * MINUTE
        stack.run()
        # One machine gets its node and ends the failure; the other was ordered with it, and boots.
        stack.cluster.change(key("a"), requested=4, running=3, machines=(ready[0], old[1]))
        stack.run()
        assert [incident.missing for incident in cluster_health(stack)] == [1]
        stack.cluster.change(key("a"), requested=4, running=4, machines=tuple(ready))
        stack.run()
        assert cluster_health(stack) == ()
        assert (changes(stack)[0], changes(stack)[-1]) == (("Opened", MISSING), ("Closed", MISSING))
        assert Counter(change for change, _ in changes(stack))["Closed"] == 1

    def test_nodes_that_an_autoscaler_gave_up_keep_it_open(self) -> None:
        stack = Stack(zones((2,), bounds=[(1, 9)]))
        stuck(stack, (4,), (2,))
        fail(stack, "a")
        stack.runs(2)
        node = Machine(name="new", has_node=True, created_at=stack.clock.at)
        stack.cluster.change(key("a"), requested=3, running=3, machines=(node,))
        stack.runs(20)
        assert [incident.missing for incident in cluster_health(stack)] == [0]

    def test_without_an_autoscaler_it_ends_when_no_more_nodes_are_requested(self) -> None:
        stack = Stack(zones((2,), bounds=[(1, 9)]), autoscaler="none", pools=[{"name": "workers", "min": 1, "max": 12}])
        stuck(stack, (4,), (2,))
        fail(stack, "a")
        stack.run()
        stuck(stack, (2,), (2,))
        stack.run()
        assert cluster_health(stack) == ()

    @pytest.mark.parametrize("waits", ["pending", "unmet", "not counted", ""])
    def test_nodes_that_were_given_up_are_wanted_while_pods_wait(self, waits: str) -> None:
        before = incident_of(IncidentKind.MISSING, groups=(str(key("a")),), missing=2, wanted=4)
        state, reason = in_backoff(), Reason.of(Rule.POD_YOUNG)
        planned = plan_of([group("a", 2)], numbers(1, 12), states={key("a"): state})
        (pool,) = planned.pools
        pending = (PendingPods(pods=("default/p",), since=NOW),) if waits == "pending" else ()
        unmet = (Unfit(pods=("default/p",), since=NOW, reason=reason),) if waits == "unmet" else ()
        not_counted = (NotCounted(pod="default/p", reason=reason),) if waits == "not counted" else ()
        pool = replace(pool, demand=PoolAdvice(asked=PoolDemand(pool=pool.id, pending=pending)))
        planned = replace(planned, pools=(pool,), demand=Advice(unmet=unmet, not_counted=not_counted))
        after = evaluate(ClusterHealth(incidents=(before,)), planned, {key("a"): state}, 5 * MINUTE)
        assert bool(after.incidents) is bool(waits)

    def test_an_outage_of_all_zones_is_shown_and_is_no_change_by_itself(self) -> None:
        stack = Stack()
        stuck(stack, (4, 3, 3), (2, 2, 2))
        for failing, outage in (("ab", False), ("abc", True)):
            fail(stack, failing)
            stack.runs(7)
            (incident,) = cluster_health(stack)
            assert (incident.is_outage, incident.missing > 0) == (outage, True)
            (answer,) = stack.ask("status", None)["clusters"]
            assert answer["incidents"][0]["outage"] is outage
        assert replace(incident, is_outage=False).matter == incident.matter

    def test_demand_that_went_away_ends_it_after_the_longest_backoff_where_a_zone_is_well(self) -> None:
        stack = short(failure=FailureClass.QUOTA)
        stack.run()
        stuck(stack, (2, 2, 2), (2, 2, 2))
        stack.run()
        (calm,) = cluster_health(stack)
        assert (calm.calm_since, calm.is_outage) == (stack.clock.at, False)
        assert (
            "workers: the failed zones have delivered no node yet for 1 min: quota"
            in stack.ask("status", None)["clusters"][0]["message"]
        )
        stack.runs(34)
        assert [what for what, _ in changes(stack)] == ["Opened"]
        stack.run()
        assert [what for what, _ in changes(stack)] == ["Opened", "Closed"]

    def test_an_autoscaler_that_gives_up_and_retries_after_half_an_hour_continues_it(self) -> None:
        stack = Stack(on_failure="hold")
        for _ in range(4):
            stuck(stack, (4, 2, 2), (2, 2, 2))
            fail(stack, "a")
            stack.runs(15)
            stuck(stack, (2, 2, 2), (2, 2, 2))
            stack.runs(31)
        assert [what for what, _ in changes(stack)] == ["Opened"]

    def test_machines_that_come_back_one_by_one_are_not_a_change_each(self) -> None:
        stack = short((66, 2, 2), "abc", pools=[{"name": "workers", "min": 3, "max": 200}])
        stack.run()
        for nodes in range(3, 66):
            stuck(stack, (66, 2, 2), (nodes, 2, 2))
            fail(stack, "abc")  # and the others do not
            stack.run()
            assert cluster_health(stack)[0].missing == 66 - nodes
        assert len(changes(stack)) <= 8, "reported when the number has halved"

    def test_dry_run_counts_the_nodes_that_no_release_takes_back(self) -> None:
        stack = short(dry_run=True)
        stack.runs(8)
        (incident,) = cluster_health(stack)
        assert (incident.missing, incident.requested, incident.running) == (2, 8, 6)
        stuck(stack, (4, 2, 2), (4, 2, 2))
        stack.runs(2)
        assert [what for what, _ in changes(stack)] == ["Opened", "Closed"]

    def test_half_a_list_neither_ends_nor_changes_an_incident(self) -> None:
        stack = short((4, 2, 3), "abc")
        stack.run()
        (opened,) = cluster_health(stack)
        others = {zone: stack.cluster.groups.pop(key(zone)) for zone in "ac"}
        stack.run()
        assert cluster_health(stack) == (opened,)
        stack.cluster.groups.update({key(zone): group for zone, group in others.items()})

    def test_the_event_of_its_end_has_the_number_of_nodes_that_were_missing(self) -> None:
        stack = short((4, 2, 3), "abc")
        stack.run()
        fail_over = stack.clock.at
        stuck(stack, (2, 2, 2), (2, 2, 2))
        stack.clock.at = fail_over + 4 * 60 * MINUTE
        stack.runs(2)
        ((_, closed),) = [each for each in stack.bus.published if each[0] == "Incident Closed"]
        assert closed["missing"] == 3


def incident_of(kind: IncidentKind, **fields: Any) -> Incident:
    return Incident(kind=kind, **{"since": NOW, "pool": WORKERS, **fields})


def waiting(minutes: int) -> GroupState:
    """Return a group that has waited so long for a node, and of which two run."""
    return make(GroupState, waiting_since=NOW - minutes * MINUTE, waiting_running=2)


def missing_of(
    groups: Sequence[NodeGroup], states: Mapping[str, GroupState], before: Incident | None = None
) -> Incident:
    """Return the incident about missing nodes after one check. States are by zone."""
    known = {key(zone): state for zone, state in states.items()}
    cluster_health = ClusterHealth() if before is None else ClusterHealth(incidents=(before,))
    (incident,) = evaluate(cluster_health, plan_of(groups, numbers(1, 30), states=known), known, 5 * MINUTE).incidents
    return incident


def failed(message: str, failure: FailureClass = FailureClass.CAPACITY) -> GroupState:
    return record_failure(GroupState(), NOW, failure, message, BackoffPolicy())


SHORT = zones((6, 3, 6), (2, 2, 2), machines=())


class TestIncidentDetails:
    @pytest.mark.parametrize(("frozen", "missing"), [("", 3), ("ab", 3), ("abc", 0)])
    def test_nodes_that_no_group_can_take_are_missing_unless_all_groups_are_frozen(
        self, frozen: str, missing: int
    ) -> None:
        groups = [
            replace(each, frozen_because=stated("paused")) if each.identity.zone in frozen else each
            for each in zones((2, 2, 2))
        ]
        planned = plan_of(groups, numbers(6, 12))
        pool = replace(planned.pools[0], unmet_minimum=3, starved=3)
        found = evaluate(ClusterHealth(), replace(planned, pools=(pool,)), {}, 5 * MINUTE).incidents
        assert [each.missing for each in found] == ([missing] if missing else [])

    def test_nodes_that_no_group_can_take_are_wanted_until_pods_show_otherwise(self) -> None:
        states = {key("a"): in_backoff()}
        planned = plan_of(zones((2, 2, 2)), numbers(1, 12), states=states)
        health = ClusterHealth(incidents=(incident_of(IncidentKind.MISSING, groups=(str(key("a")),), missing=1),))
        for unplaced in (3, 0):
            pool = replace(planned.pools[0], unplaced=unplaced)
            health = evaluate(health, replace(planned, pools=(pool,)), states, 5 * MINUTE)
            assert [(incident.missing, incident.wanted) for incident in health.incidents] == [(unplaced, 9)]

    @pytest.mark.parametrize(
        ("kind", "is_news"),
        [(IncidentKind.DRAIN_HANGS, True), (IncidentKind.CONTESTED, True), (IncidentKind.REFUSED, False)],
    )
    def test_another_node_that_hangs_or_writer_is_a_change_and_another_message_is_not(
        self, kind: IncidentKind, is_news: bool
    ) -> None:
        first, second = (Incident(kind=kind, since=NOW, pool=WORKERS, message=said) for said in ("one", "another"))
        reported = replace(with_pending_changes(ClusterHealth().with_incidents([first])), outbox=())
        news = pending_changes(reported.with_incidents([second]))
        assert [each.change for each in news] == ([Change.CHANGED] if is_news else [])

    def test_a_failure_with_a_reason_precedes_a_timeout_of_more_nodes(self) -> None:
        classes = {"a": FailureClass.TIMEOUT, "b": FailureClass.CAPACITY, "c": FailureClass.TIMEOUT}
        incident = missing_of(SHORT, {zone: failed(zone, failure) for zone, failure in classes.items()})
        assert (incident.failure_class, incident.message) == (FailureClass.CAPACITY, "b")

    def test_it_began_with_the_first_missing_node(self) -> None:
        incident = missing_of(zones((3, 3, 2), (2, 2, 2), machines=()), {"a": waiting(7), "b": waiting(10)})
        assert incident.since == NOW - 10 * MINUTE

    def test_a_frozen_group_misses_no_node(self) -> None:
        a, b, c = zones((6, 3, 2), (2, 2, 2), machines=())
        incident = missing_of([replace(a, frozen_because=stated("paused")), b, c], {"b": waiting(10)})
        assert (incident.missing, incident.wanted, incident.zones) == (1, 7, ("b",))

    def test_the_cloud_message_stays_while_the_class_is_the_same(self) -> None:
        before = missing_of(SHORT, {zone: failed("no room, request 1") for zone in "abc"})
        for message, failure, said in (
            ("no room, request 2", FailureClass.CAPACITY, "no room, request 1"),
            ("over quota", FailureClass.QUOTA, "over quota"),
        ):
            assert missing_of(SHORT, {zone: failed(message, failure) for zone in "abc"}, before).message == said


class TestChecksThatDoNotKnow:
    @pytest.mark.parametrize(("found", "stays"), [(None, True), (True, True), (False, False)])
    def test_another_autoscaler_is_gone_only_where_the_check_searched_for_one(
        self, found: bool | None, stays: bool
    ) -> None:
        before = ClusterHealth(incidents=(Incident(kind=IncidentKind.TWO_AUTOSCALERS, since=NOW),))
        planned = replace(plan_of([group("a", 2)], numbers(1, 12)), demand=Advice(beside_another=found))
        assert bool(evaluate(before, planned, {}, 5 * MINUTE).incidents) is stays

    def test_a_workload_that_is_too_large_hides_no_fault_of_the_cluster_itself(self) -> None:
        unread = Reason.of(Rule.WORKLOAD_TOO_LARGE, error="more than 5 nodes")
        planned = replace(plan_of([group("a", 2)], numbers(1, 12)), demand=Advice(unread=unread))
        open_ = evaluate(ClusterHealth(), planned, {}, 5 * MINUTE)
        assert [each.kind for each in open_.incidents] == [IncidentKind.TOO_LARGE]
        later = NOW + 30 * MINUTE
        away = evaluate_unread(open_, IncidentKind.UNREACHABLE, "away", later, later, 5 * MINUTE)
        assert away == open_, "unreachable opens only after its own delay"
        for health in (
            evaluate_unread(open_, IncidentKind.UNREACHABLE, "away", later, later + 5 * MINUTE, 5 * MINUTE),
            with_stopped(open_, later),
        ):
            assert health.unread is not None
            assert health.unread.since == later
            assert open_.incidents[0] in health.incidents
        itself = evaluate_unread(open_, IncidentKind.TOO_LARGE, "64 MiB", later, later, 5 * MINUTE)
        assert [(each.message, each.since) for each in itself.incidents] == [("64 MiB", later)]

    @pytest.mark.parametrize("kind", [IncidentKind.INEFFECTIVE_ORDER, IncidentKind.DRAIN_HANGS])
    def test_what_pods_and_nodes_showed_stays_while_they_are_not_read(self, kind: IncidentKind) -> None:
        before = ClusterHealth(incidents=(Incident(kind=kind, since=NOW, pool=WORKERS),))
        planned = plan_of([group("a", 2)], numbers(1, 12))
        assert planned.pools[0].demand.advice is None
        unread = replace(planned, demand=Advice(unread=Reason.of(Rule.WORKLOAD_UNREAD, error="away")))
        assert evaluate(before, unread, {}, 5 * MINUTE).incidents == before.incidents
        assert evaluate(before, planned, {}, 5 * MINUTE).incidents == (), "nobody asks for demand any more"

    def test_incidents_without_a_start_begin_when_they_are_found(self) -> None:
        before = ClusterHealth(incidents=(Incident(kind=IncidentKind.TWO_AUTOSCALERS, since=NOW - MINUTE),))
        planned = replace(plan_of([group("a", 2)], numbers(1, 12)), demand=Advice(beside_another=True))
        assert evaluate(before, planned, {}, 5 * MINUTE).incidents == before.incidents
        first = unreadable(before, "no such field", NOW)
        assert unreadable(first, "no such field", NOW + MINUTE) == first

    def test_a_cluster_as_a_whole_hides_no_incident_of_its_pools(self) -> None:
        known = Incident(kind=IncidentKind.MISSING, since=NOW, pool=WORKERS, missing=2)
        before = ClusterHealth(incidents=(known,))
        for after in (unreadable(before, "no such field", NOW), with_stopped(before, NOW - 9 * MINUTE)):
            assert len(after.incidents) == 2
            assert known in after.incidents

    def test_an_unread_cluster_with_another_error_keeps_its_start(self) -> None:
        first = evaluate_unread(ClusterHealth(), IncidentKind.UNREACHABLE, "away", NOW - 9 * MINUTE, NOW, 5 * MINUTE)
        then = evaluate_unread(first, IncidentKind.ACCESS, "no rights", NOW, NOW, 5 * MINUTE)
        assert [(each.kind, each.since) for each in then.incidents] == [(IncidentKind.ACCESS, NOW - 9 * MINUTE)]

    @pytest.mark.parametrize(("interval", "stopped_after"), [(60, 5), (3600, 121)])
    def test_a_cluster_is_stopped_after_two_checks_and_a_minute(self, interval: int, stopped_after: int) -> None:
        for minutes, kinds in ((stopped_after - 1, []), (stopped_after, [IncidentKind.STOPPED])):
            found = with_stopped(ClusterHealth(), stopped_since(interval, NOW - minutes * MINUTE, NOW))
            assert [each.kind for each in found.incidents] == kinds


def rolling(stack: Stack, *, running: int, **fields: Any) -> None:
    """Let zone a roll out, with so many running machines."""
    stack.cluster.change(
        key("a"), frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2), requested=4, running=running, **fields
    )


REFUSED = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=NOW)


class TestRollouts:
    def test_a_rollout_in_a_zone_without_capacity_is_an_incident_once_it_has_lasted(self) -> None:
        stack = Stack()
        without = tuple(Machine(name=f"m{i}", has_node=False, created_at=NOW, failure=REFUSED) for i in range(2))
        rolling(stack, running=2, machines=without)
        stack.runs(4)
        assert cluster_health(stack) == ()
        before = stack.cluster.groups[key("a")]
        stack.runs(3)
        (incident,) = cluster_health(stack)
        assert (incident.kind, incident.missing, incident.zones) == (IncidentKind.MISSING, 2, ("a",))
        assert incident.failure_class is FailureClass.CAPACITY
        assert stack.cluster.groups[key("a")] == before
        (event,) = [detail for kind, detail in stack.bus.published if kind == "Incident Opened"]
        assert event["rollout"]
        assert event["todo"].startswith("A rollout in this zone cannot finish and keeps Evenkeel from releasing")
        assert event["runbook"] == f"{RUNBOOKS}#a-rollout-in-a-zone-that-is-out"
        stack.runs(5)
        assert [what for what, _ in changes(stack)] == ["Opened"]
        rolling(stack, running=2, machines=tuple(replace(each, failure=None) for each in without))
        stack.cluster.change(key("a"), machines=(Machine(name="new", has_node=False, created_at=stack.clock.at),) * 2)
        stack.run()
        assert [what for what, _ in changes(stack)] == ["Opened", "Closed"]

    def test_a_rollout_that_a_failure_event_has_stopped_is_one_as_well(self) -> None:
        stack = Stack()
        rolling(stack, running=2, machines=())
        fail(stack, "a")
        stack.runs(7)
        (incident,) = cluster_health(stack)
        assert (incident.missing, incident.message) == (2, "no room")

    def test_a_rollout_in_which_machines_are_replaced_is_none(self) -> None:
        stack = Stack()
        fail(stack, "a")  # once, and no node has joined since
        for _ in range(12):
            going = Machine(name="old", has_node=True, created_at=NOW, deleting=True)
            booting = Machine(name="new", has_node=False, created_at=stack.clock.at)
            rolling(stack, running=2, machines=(going, booting))
            stack.run()
            assert cluster_health(stack) == ()

    def test_a_launch_that_is_refused_once_in_a_rollout_is_none(self) -> None:
        stack = Stack()
        refused = Machine(name="m", has_node=False, created_at=NOW, failure=REFUSED)
        for number in range(12):
            coming = Machine(name="new", has_node=False, created_at=stack.clock.at)
            rolling(stack, running=3, machines=(coming if number % 4 else refused,))
            stack.run()
            assert cluster_health(stack) == ()


class TestOtherIncidents:
    def test_an_invalid_pool_is_an_incident_until_its_numbers_are_fixed(self) -> None:
        stack = Stack()
        stack.cluster.change(key("b"), pool_max=1)
        stack.run()
        (incident,) = cluster_health(stack)
        assert incident.kind is IncidentKind.INVALID
        assert stack.ask("explain")["incidents"][0]["says"][0].startswith("PoolMinimum 3 is larger than PoolMaximum 1")
        stack.cluster.change(key("b"), pool_max=None)
        stack.run()
        assert [what for what, _ in changes(stack)] == ["Opened", "Closed"]

    def test_refused_writes_are_an_incident_with_the_message_of_the_api(self) -> None:
        stack = Stack(zones((2, 2, 9), bounds=[(1, 9)] * 3))
        stack.answer_writes(RejectedError("admission webhook denied it"), "workers-a")
        stack.run()
        assert [(incident.kind, incident.message) for incident in cluster_health(stack)] == [
            (IncidentKind.REFUSED, "admission webhook denied it")
        ]
        stack.answer_writes(None)
        stack.runs(8)
        assert IncidentKind.REFUSED not in {incident.kind for incident in cluster_health(stack)}

    def test_a_refused_write_that_is_not_tried_again_is_over_after_a_quarter_of_an_hour(self) -> None:
        stack = Stack()
        stack.settle()
        state = make(GroupState, write_refused_at=stack.clock.at, write_refused="admission webhook denied it")
        stack.store.save_group("demo", key("a"), state, stack.store.load("demo").versions)
        stack.runs(14)
        assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.REFUSED]
        stack.runs(2)
        assert cluster_health(stack) == ()

    def test_the_writer_that_reverts_our_bounds_is_named(self) -> None:
        stack = Stack()
        versions = stack.store.load("demo").versions
        state = make(GroupState, contested_since=NOW, contested_by="argocd")
        stack.store.save_group("demo", key("a"), state, versions)
        stack.run()
        (incident,) = cluster_health(stack)
        assert (incident.kind, incident.message, incident.zones) == (IncidentKind.CONTESTED, "argocd", ("a",))

    def test_more_than_pool_maximum_is_an_incident_once_it_has_lasted(self) -> None:
        stack = Stack(zones((6, 6, 6), bounds=[(1, 9)] * 3))
        stack.run()
        assert cluster_health(stack) == ()
        stack.runs(6)
        assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.OVER_COMMITTED]


class TestClustersThatCannotBeRead:
    def test_the_fourth_check_falls_on_the_default_trouble_after(self) -> None:
        assert Stack().record.opens_trouble_after == sum(RETRY_DELAYS[:3], timedelta()) == TROUBLE_AFTER
        assert min(RETRY_DELAYS) > timedelta()

    def test_an_unreachable_cluster_is_an_incident_after_five_minutes(self) -> None:
        stack = Stack()
        stack.cluster.change(key("b"), pool_max=1)
        stack.run()
        stack.cluster.unreadable = DARK
        for _ in range(4):
            stack.run()
        assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.INVALID]
        stack.runs(4)
        assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.UNREACHABLE, IncidentKind.INVALID]
        assert cluster_health(stack)[0].message == str(DARK)
        stack.cluster.unreadable = None
        stack.clock.at += 10 * MINUTE
        stack.run()
        assert changes(stack) == [
            ("Opened", f"demo/{WORKERS}/invalid"),
            ("Opened", "demo/unreachable"),
            ("Closed", "demo/unreachable"),
        ]

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (AccessError("cluster demo: secret evenkeel/demo cannot be read"), IncidentKind.ACCESS),
            (TooLargeError("demo has more than 64 MiB"), IncidentKind.TOO_LARGE),
        ],
    )
    def test_an_error_that_only_people_can_fix_is_an_incident_at_once(
        self, error: Exception, kind: IncidentKind
    ) -> None:
        stack = Stack()
        stack.cluster.unreadable = error
        stack.run()
        assert [incident.kind for incident in cluster_health(stack)] == [kind]

    def test_an_unreadable_record_is_published_once(self) -> None:
        stack = Stack()
        stack.store.plant("demo", "{")
        for _ in range(3):
            stack.checks()
            stack.carry_out()
        assert changes(stack) == [("Opened", "demo/invalid-record")]
        assert "not JSON" in stack.store.cluster_health("demo")[0].incidents[0].message


class TestPublishing:
    def test_an_incident_of_a_time_without_the_bus_is_published_later(self) -> None:
        stack = short(failing="abc")
        stack.bus.away = True
        stack.runs(2)
        assert ([incident.kind for incident in cluster_health(stack)], changes(stack)) == ([IncidentKind.MISSING], [])
        stack.bus.away = False
        stack.checks()
        assert len(stack.queue.requests) == 1, "an unpublished change is a pending change"
        stack.runs(3)
        assert changes(stack) == [("Opened", MISSING)]

    def test_an_incident_is_published_in_dry_run(self) -> None:
        stack = short(failing="abc", stack_dry_run=True)
        stack.runs(3)
        assert changes(stack) == [("Opened", MISSING)]

    def test_a_stored_health_of_a_newer_release_is_evaluated_again(self) -> None:
        stack = short(failing="abc")
        stack.run()
        text = json.loads(stack.store.text("demo", "HEALTH"))
        text["incidents"][0]["kind"] = "haunted"
        stack.store.plant("demo", json.dumps(text), "HEALTH")
        stack.run()
        assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.MISSING]


def printed(answer: dict[str, Any], width: int = 80) -> list[str]:
    quote = StringIO()
    print_answer(answer, Console(file=quote, width=width))
    return quote.getvalue().splitlines()


class TestStatusOfAll:
    def test_a_cluster_without_a_check_is_not_well(self) -> None:
        stack = Stack()
        answer = stack.ask("status", None)
        assert answer["message"] == "clusters: 1; 0 with incidents, 1 not checked yet, 0 well"
        assert answer["incident"] is True
        stack.checks()
        answer = stack.ask("status", None)
        assert (answer["message"], answer["incident"]) == ("clusters: 1; 0 with incidents, 1 well", False)
        assert answer["others"]["well"] == ["demo"]

    def test_a_cluster_without_recent_checks_has_an_incident(self) -> None:
        stack = Stack()
        stack.checks()
        stack.clock.at += 12 * MINUTE
        (found,) = stack.ask("status", None)["clusters"]
        assert (found["message"], found["incidents"][0]["kind"]) == ("not checked for 12 min", "stopped")

    def test_status_prints_which_cluster_was_checked_the_longest_time_ago(self) -> None:
        stack = Stack()
        stack.register_another("new", FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3)))
        stack.checks("demo")
        stack.clock.at += 2 * MINUTE
        stack.checks("new")
        answer = stack.ask("status", None)
        assert answer["oldestCheck"]["cluster"] == "demo"
        assert printed(answer)[-1] == "oldest check: demo, 3 minutes ago"
        stack.ask("pause")  # a paused cluster is not checked
        assert stack.ask("status", None)["oldestCheck"]["cluster"] == "new"
        assert Stack().ask("status", None)["oldestCheck"] is None

    def test_a_cluster_that_only_runs_can_read_counts_as_checked(self) -> None:
        stack = Stack()
        stack.cluster.unreadable = TooLargeError("demo has more than 4 MiB")
        stack.checks()
        stack.cluster.unreadable = None
        for id, (cluster, why) in list(stack.queue.requests.items()):
            stack.rebalance(cluster, why, plenty, stack.queue.found[id])
        assert stack.ask("status", None)["others"]["well"] == ["demo"]

    def test_status_of_all_opens_no_cluster_and_reads_the_table_three_times(self) -> None:
        stack = Stack()
        for number in range(30):
            stack.register_another(f"dark-{number}", DARK)
        stack.journal.entries.clear()
        stack.ask("status", None)
        assert stack.journal.entries == ["cluster_healths", "checked", "registrations"]

    def fleet(self) -> Stack:
        """Return five clusters: missing nodes, no answer, an invalid record, paused, healthy."""
        message = "InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"
        stack = short((4, 2, 3), "abc", words=message)
        names = [f"a-cluster-with-quite-a-long-name-{number:03}" for number in range(3)]
        for name in names:
            stack.register_another(name, FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3)))
        stack.clusters.by_id[names[0]] = DARK
        stack.register_another("bare", DARK)
        stack.store.plant("bare", "{")
        stack.ask("pause", names[1])
        stack.checks("demo", *names)
        for minute in range(8):
            stack.clock.at = NOW + minute * MINUTE
            stack.checks("demo", *names)
            for name in ("demo", names[0], names[2]):
                stack.rebalance(name, "a test", plenty)
        return stack

    def test_the_worst_cluster_is_first_and_the_healthy_ones_share_a_line(self) -> None:
        answer = self.fleet().ask("status", None)
        first, *lines = printed(answer)
        assert first == "outage: no zone is known to deliver for demo/workers"
        assert [len(line) <= 80 for line in lines] == [True] * 6
        assert lines[0].startswith("demo ")
        assert "critical  workers: 3 of 9 nodes missing for 7 min:" in lines[0]
        assert "warning   unreachable for 7 min: demo" in lines[1]
        assert lines[2].startswith("bare ")
        assert "invalid record" in lines[2]
        assert lines[3] == "evenkeel explain prints each message and what to do"
        assert lines[4] == "2 others: 1 well, 1 paused"
        assert lines[5].startswith("oldest check: ")
        assert "We currently do not have sufficient m5.large capacity" in printed(answer, 220)[1]

    def test_an_answer_that_is_too_large_still_names_every_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = self.fleet()
        monkeypatch.setattr("evenkeel.application.actions.overview._LARGEST_ANSWER", 1500)
        answer = stack.ask("status", None)
        clusters = answer["clusters"]
        assert [found["state"] for found in clusters] == ["incident"] * 3
        assert "truncated" not in clusters[0]
        assert clusters[-1]["truncated"] is True
        assert printed(answer)[3].split() == ["bare", "info", "invalid", "record", "for", "0", "min"]
        quote = document(page_of_status(answer, "a test", stack.clock.at))
        assert "invalid record for 0 min; the answer had no room for more" in quote


class TestTheCommand:
    """`evenkeel status`, with answers of the real use case."""

    def status(self, stack: Stack, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
        monkeypatch.setattr(stack_client, "ask", lambda _, event: stack.operate(event, plenty))
        return CliRunner().invoke(app, ["status", "--stack", "evenkeel", *options])

    def test_status_exits_with_4_for_an_incident_and_0_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = Stack()
        assert self.status(stack, monkeypatch).exit_code == 4, "there was no check"
        stack.checks()
        assert self.status(stack, monkeypatch).output == "1 cluster: 1 well\noldest check: demo, just now\n"
        assert self.status(stack, monkeypatch).exit_code == 0
        stack.cluster.unreadable = DARK
        assert self.status(stack, monkeypatch, "--cluster", "demo").exit_code == 4
        assert self.status(stack, monkeypatch, "--live").exit_code == 4
        stack.cluster.unreadable = None
        assert self.status(stack, monkeypatch, "--live", "-o", "json").exit_code == 0

    def test_watch_runs_until_it_is_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack, slept = Stack(), list[float]()

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            stack.checks()
            if len(slept) > 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(actions, "sleep", sleep)
        result = self.status(stack, monkeypatch, "--watch")
        assert result.output.splitlines() == [
            "1 cluster: 1 not checked yet",
            *["1 cluster: 1 well", "oldest check: demo, just now"] * 2,
        ]
        assert result.exit_code == 0

    def test_status_of_one_cluster_shows_the_cloud_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = short(failing="abc", words="InsufficientInstanceCapacity: no m5.large here")
        output = self.status(stack, monkeypatch, "--cluster", "demo").output
        assert "a, b, c: the cloud says: InsufficientInstanceCapacity: no m5.large here" in output


class TestOneCluster:
    def test_status_begins_with_the_incidents(self) -> None:
        answer = short(failing="abc").ask("status")
        assert answer["message"] == (
            "demo: on, incident: workers: 2 of 8 nodes missing for 0 min: capacity (no zone delivers) in a; "
            "node groups: 3 fenced"
        )
        assert answer["incident"] is True

    def test_explain_without_a_pool_explains_all_incidents_and_nothing_else(self) -> None:
        other = [group(zone, 1, pool="other", bounds=(0, 3), pool_max=3) for zone in "ab"]
        stack = Stack([*zones((2, 2, 2), bounds=[(1, 9)] * 3), *other])
        stuck(stack, (4, 2, 2), (2, 2, 2))
        fail(stack, "abc")
        answer = stack.ask("explain")
        text = answer["message"]
        assert "workers: 2 of 8 nodes missing for 0 min: capacity (no zone delivers) in a: no room." in text
        assert "What to do: The cloud is out of these machines" in text
        assert f"or a zone to the pool ({RUNBOOKS}#capacity)" in text, "and not to type what one has just typed"
        assert "Its last failure was at" in text
        assert list(answer["groups"]) == [str(key("a"))]
        assert "other-a" not in text
        assert f"Pool {WORKERS} is sized by Balanced" in text

    def test_status_and_explain_of_an_unreadable_cluster_say_why_and_write_nothing(self) -> None:
        stack = Stack()
        assert stack.ask("explain")["message"] == "demo has no incident."
        stack.cluster.unreadable = DARK
        assert stack.ask("status")["message"].startswith("demo: on, incident: unreachable for 0 min")
        assert cluster_health(stack) == ()
        text = stack.ask("explain")["message"]
        assert "demo cannot be read: demo does not answer: not within 8 s." in text
        assert "evenkeel plan --stack NAME --cluster demo" in text


def test_changes_beyond_the_outbox_are_published_by_the_next_run() -> None:
    stack = Stack()
    incidents = [incident_of(IncidentKind.MISSING, pool=f"p{number}") for number in range(80)]
    pending = with_pending_changes(ClusterHealth().with_incidents(incidents))
    stack.store.save_cluster_health("demo", pending, stack.store.load("demo").versions)
    stack.runs(1)
    assert Counter(change for change, _ in changes(stack)) == {"Opened": 80}
    stack.checks()
    stack.carry_out()
    assert Counter(change for change, _ in changes(stack)) == {"Opened": 80, "Closed": 80}


def test_the_health_of_a_cluster_with_200_incidents_fits_into_an_item() -> None:
    groups = [
        group(zone, 9, running=0, pool=f"pool-with-a-name-{number}", bounds=(1, 9), pool_max=1, in_zone=f"zone-{zone}")
        for number in range(200)
        for zone in "abc"
    ]
    stack = Stack(groups)
    stack.run()
    assert len(stack.store.text("demo", "HEALTH")) < 300_000


def test_trouble_after_is_that_of_the_record() -> None:
    stack = Stack(trouble_after=60)
    stack.cluster.unreadable = DARK
    stack.runs(2)
    assert [incident.kind for incident in cluster_health(stack)] == [IncidentKind.UNREACHABLE]
    assert stack.clock.at - NOW == timedelta(minutes=2)


def test_every_command_names_the_stack() -> None:
    stack = Stack(zones((4, 2, 3), (2, 2, 2)), trouble_after=0)
    stack.rebalance = replace(stack.rebalance, stack="prod")
    stack.operate = replace(stack.operate, stack="prod")
    stack.runs(3)
    commands = [event["command"] for kind, event in stack.bus.published if kind == "Incident Opened"]
    (cluster,) = stack.ask("status", None)["clusters"]
    explained = stack.ask("explain")
    commands += [answer["incidents"][0]["command"] for answer in (cluster, stack.ask("status"), explained)]
    assert len(commands) > 3
    assert {" --stack prod " in command for command in commands} == {True}
    assert "--stack NAME" not in json.dumps(explained)


class TestTheOutboxOfAPausedCluster:
    """No scan requests a run of a paused cluster, so unsent events of its last run are requested."""

    def with_unsent_close(self, how: str) -> Stack:
        stack = short(failing="abc")
        stack.run()
        stack.bus.away = True
        all_ready(stack)
        if how == "pause":
            stack.run()
        stack.ask(how)
        while stack.queue.requests or not stack.control.paused:
            stack.carry_out()
            if not stack.control.paused:
                stack.run()
        assert cluster_health(stack) == ()
        return stack

    def retries(self, stack: Stack) -> list[tuple[str, str, int]]:
        return [each for each in stack.queue.second_checks if each[1] == "paused"]

    @pytest.mark.parametrize("how", ["restore", "pause"])
    def test_the_close_is_published_once_the_bus_is_back(self, how: str) -> None:
        stack = self.with_unsent_close(how)
        assert changes(stack) == [("Opened", MISSING)]
        assert self.retries(stack), "a next try is requested"
        stack.bus.away = False
        stack.rebalance("demo", "paused", plenty)
        assert changes(stack) == [("Opened", MISSING), ("Closed", MISSING)]
        tries = len(self.retries(stack))
        stack.rebalance("demo", "paused", plenty)
        assert (len(changes(stack)), len(self.retries(stack))) == (2, tries), "once"

    def test_a_bus_that_is_away_is_retried_for_a_day(self) -> None:
        stack = self.with_unsent_close("restore")
        waits = []
        for _ in range(150):
            asked = self.retries(stack)
            if not asked:
                break
            waits.append(asked[-1][2])
            stack.queue.second_checks.clear()
            stack.clock.at += timedelta(seconds=waits[-1])
            stack.rebalance("demo", "paused", plenty)
        assert (waits[0], max(waits)) == (60, 900)
        assert timedelta(seconds=sum(waits)) >= timedelta(hours=23)
        assert len(waits) < 120

    def test_a_run_killed_at_the_end_of_a_restore_leaves_no_incident_open(self) -> None:
        stack = short(failing="abc")
        stack.run()
        stack.ask("restore")
        stack.run()
        assert stack.control.restoring, "the run after this one finds that all is put back"
        all_ready(stack)
        save = stack.store.save_record

        def die_after(*given: Any) -> None:
            save(*given)
            raise KeyboardInterrupt

        stack.store.save_record = die_after  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            stack.run()
        assert stack.control.paused
        assert changes(stack) == [("Opened", MISSING), ("Closed", MISSING)]
