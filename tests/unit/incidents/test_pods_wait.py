"""The incident ``pods-wait``: the waiting pods, its start, and no repeat by checks or runs."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws import records
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.incidents.health import evaluate, evaluate_unread
from evenkeel.domain.incidents.pods_wait import WAITS_FOR
from evenkeel.domain.model.demand import Advice, PendingPods, PoolAdvice, PoolDemand, Unfit
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind, Waiting
from evenkeel.domain.model.past_orders import IneffectiveOrder
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import ZONE, Unscheduled, Workload
from evenkeel.texts.incidents import incident_text, todo
from tests.builders import MINUTE, NOW, group, key, numbers, plan_of
from tests.fakes import FakeWorkload
from tests.parts import replace
from tests.stack import Stack
from tests.workloads import node, pod, template


def advice(**fields: Any) -> Advice:
    """Return the advice of a cluster in which Evenkeel orders nodes."""
    return Advice(**{"orders": True, **fields})


UNREAD = advice(unread=Reason.of(Rule.WORKLOAD_UNREAD, error="away"))
PLAN = plan_of([group("a", 2), group("b", 2)], numbers(1, 12))
POOL = PLAN.pools[0].id
FENCED = Reason.of(Rule.ZONE_IMPAIRED, zone="b", until=NOW + MINUTE)


def unfit(name: str = "db-0", *, fits: str = "b", why: Reason = FENCED, since: datetime = NOW) -> Unfit:
    of_pool = Reason.of(Rule.UNFIT_IN_POOL, pool=str(POOL), group="", why=why)
    reason = Reason.of(Rule.FITS_NO_POOL, pods=1, pod=name, why=(of_pool,))
    fitting = {POOL: tuple(map(key, fits))} if fits else {}
    return Unfit(pods=(name,), since=since, reason=reason, fitting=fitting)


@dataclass
class Checks:
    """The health of a cluster over checks that are a minute apart."""

    now: datetime = NOW
    health: ClusterHealth = field(default_factory=ClusterHealth)
    opened: int = 0
    closed: int = 0

    def see(self, advice: Advice | None, minutes: int = 1) -> list[Incident]:
        for _ in range(minutes):
            self.now += MINUTE
            before = {each.key for each in self.health.incidents}
            self.health = evaluate(self.health, replace(PLAN, now=self.now, demand=advice), {}, 5 * MINUTE)
            after = {each.key for each in self.health.incidents}
            self.opened, self.closed = self.opened + len(after - before), self.closed + len(before - after)
        return list(self.health.incidents)


def minutes(time: timedelta) -> int:
    return time // MINUTE


def test_pods_that_fit_a_pool_wait_for_it_and_others_for_the_cluster() -> None:
    checks = Checks()
    waits = advice(unmet=(unfit(), unfit("big", fits="", why=Reason.of(Rule.POOL_AT_ITS_MAX))))
    assert checks.see(waits, minutes(WAITS_FOR)) == []
    of_pool, of_cluster = sorted(checks.see(waits), key=lambda each: not each.pool)
    assert (of_pool.pool, of_pool.zones, of_pool.groups) == (str(POOL), ("b",), (str(key("b")),))
    assert (of_cluster.pool, of_cluster.zones) == ("", ())
    assert "workers: pods wait, and no node is on its way, for 15 min in b: db-0 waits:" in incident_text(
        of_pool, checks.now
    )
    assert "fenced until" in incident_text(of_pool, checks.now)


def test_the_time_in_which_nodes_were_on_their_way_does_not_count() -> None:
    checks, waits = Checks(), advice(unmet=(unfit(since=NOW - 4 * WAITS_FOR),))
    assert checks.see(waits, minutes(WAITS_FOR)) == []
    assert checks.see(waits)


def test_pods_that_are_recreated_while_they_wait_are_reported() -> None:
    checks = Checks()
    for number in range(minutes(WAITS_FOR) + 1):
        checks.see(advice(unmet=(unfit(f"job-{number}", since=checks.now),)))
    assert checks.opened == 1
    checks.see(advice(check_again=checks.now), 60)
    assert checks.closed == 0, "pods that are too young say nothing about those before them"


@pytest.mark.parametrize("pause", [1, 5, 14])
def test_nodes_on_their_way_now_and_then_close_nothing(pause: int) -> None:
    checks = Checks()
    for _ in range(8):
        checks.see(advice(unmet=(unfit(),)), 20)
        checks.see(advice(), pause)
    assert (checks.opened, checks.closed) == (1, 0)
    checks.see(advice(), minutes(WAITS_FOR) + 1)
    assert (checks.opened, checks.closed, checks.health.waiting) == (1, 1, {})


def test_an_open_incident_is_stored_once_whatever_pods_and_times_its_reasons_name() -> None:
    checks = Checks()
    checks.see(advice(unmet=(unfit(),)), 20)
    before = checks.health
    later = Reason.of(Rule.ZONE_IMPAIRED, zone="b", until=NOW + 90 * MINUTE)
    other = Reason.of(Rule.POOL_AT_ITS_MAX)
    for waiting in (unfit(why=later), unfit("db-1", why=later), unfit(why=other)):
        checks.see(advice(unmet=(waiting,)))
        assert checks.health == before
    checks.see(advice(unmet=(unfit("db-1", why=other),)))
    assert checks.health.incidents[0].matter != before.incidents[0].matter, "other pods with other reasons"
    assert checks.health.incidents[0].since == before.incidents[0].since


@pytest.mark.parametrize("last", [None, Advice(unmet=(unfit(),))], ids=["no demand", "an autoscaler orders"])
def test_where_evenkeel_orders_no_nodes_no_pod_waits(last: Advice | None) -> None:
    checks = Checks()
    checks.see(advice(unmet=(unfit(),)), 20)
    checks.see(last)
    assert checks.health == ClusterHealth()


def test_pods_of_an_order_that_did_not_help_are_reported_by_its_own_incident() -> None:
    order = IneffectiveOrder(pods=("db-0",), node="n", why=FENCED, groups=(), since=NOW)
    asked = PoolAdvice(asked=PoolDemand(pool=POOL, ineffective=(order,)))
    pools = tuple(replace(pool, advice=asked) for pool in PLAN.pools)
    plan = replace(PLAN, pools=pools, demand=advice(unmet=(unfit(since=NOW - WAITS_FOR),)))
    assert IncidentKind.PODS_WAIT not in [each.kind for each in evaluate(ClusterHealth(), plan, {}, MINUTE).incidents]


@pytest.mark.parametrize(("is_ordered", "waits"), [(True, False), (False, True)])
def test_pods_wait_for_a_pool_that_a_persons_request_keeps_busy_without_growth(is_ordered: bool, waits: bool) -> None:
    pending = PendingPods(pods=("db-0",), since=NOW - WAITS_FOR)
    asked = PoolDemand(pool=POOL, pending=(pending,), nodes={key("b"): 1})
    pools = tuple(replace(pool, advice=PoolAdvice(asked=asked, is_ordered=is_ordered)) for pool in PLAN.pools)
    before = ClusterHealth(waiting={str(POOL): Waiting(since=NOW - WAITS_FOR)})
    found = evaluate(before, replace(PLAN, pools=pools, demand=advice()), {}, MINUTE).incidents
    assert [each.pool for each in found] == [str(POOL)] * waits
    for each in found:
        assert "a move or a scale request of the pool is in progress" in incident_text(each, NOW)
        assert each.zones == ("b",)


# ---------------------------------------------------------------- pods cannot be read: the seven requirements


def unread(error: str, rule: Rule = Rule.WORKLOAD_UNREAD) -> Advice:
    return advice(unread=Reason.of(rule, error=error))


def test_1_the_open_incident_keeps_its_first_message() -> None:
    checks = Checks()
    checks.see(unread("timeout 1"), minutes(WAITS_FOR) + 1)
    first = checks.health
    assert "pods are not known for 15 min" in incident_text(first.incidents[0], checks.now)
    assert "timeout 1" in incident_text(first.incidents[0], checks.now)
    for number in range(5):
        checks.see(unread(f"timeout {number + 2}"))
        assert checks.health == first


def stack(found: Any = None, **fields: Any) -> Stack:
    members = [group(zone, 2, bounds=(1, 9), template=template()) for zone in "abc"]
    made = Stack(members, demand="scale-up", autoscaler="none", workload={"access": {"kind": "same"}}, **fields)
    made.clusters.workloads["demo"] = FakeWorkload(found or ClusterUnavailableError("no answer"))
    made.run()
    return made


CALM = Workload(nodes=tuple(node(f"n-{zone}", zone, group=key(zone)) for zone in "abc"))


def kinds(found: Stack) -> list[IncidentKind]:
    return [each.kind for each in found.store.load("demo").cluster_health.incidents]


def test_2_a_read_that_fails_in_checks_only_asks_for_a_run_at_the_turn_of_a_full_check_only() -> None:
    found = stack(CALM)
    found.settle()
    for _ in range(60):
        found.clusters.workloads["demo"] = FakeWorkload(ClusterUnavailableError("no answer"))
        found.clock.at += MINUTE
        asked = len(found.queue.requests)
        found.checks("demo")
        if len(found.queue.requests) > asked:
            found.clusters.workloads["demo"] = FakeWorkload(CALM)
            found.run()
    assert len(found.queue.requests) <= 8
    assert kinds(found) == []


def test_a_read_that_fails_everywhere_is_reported_although_nothing_else_needs_a_run() -> None:
    found = stack(CALM)
    found.settle()
    found.clusters.workloads["demo"] = FakeWorkload(ClusterUnavailableError("no answer"))
    for _ in range(35):
        found.clock.at += MINUTE
        asked = len(found.queue.requests)
        found.checks("demo")
        if len(found.queue.requests) > asked:
            found.run()
    assert kinds(found) == [IncidentKind.PODS_WAIT]


def test_3_a_read_that_succeeds_now_and_then_does_not_reset_the_start() -> None:
    checks = Checks()
    for _ in range(3):
        checks.see(UNREAD, 4)
        checks.see(advice(), 2)
    assert checks.see(UNREAD) != []


def test_3_a_read_that_succeeds_now_and_then_and_finds_pods_changes_the_incident_once() -> None:
    checks, found = Checks(), advice(unmet=(unfit(fits=""),))
    checks.see(found, 20)
    matters = [checks.health.incidents[0].matter]
    for _ in range(10):
        for seen in (UNREAD, UNREAD, UNREAD, found):
            checks.see(seen)
            (incident,) = checks.health.incidents
            matters += [incident.matter] if incident.matter != matters[-1] else []
    assert len(matters) == 2, "from the pods to the reads that fail"
    checks.see(found, minutes(WAITS_FOR) + 1)
    assert (checks.opened, checks.closed, checks.health.incidents[0].matter) == (1, 0, matters[0])


def test_4_an_unreachable_time_resets_the_start() -> None:
    checks = Checks()
    checks.see(UNREAD, 10)
    away = evaluate_unread(checks.health, IncidentKind.UNREACHABLE, "away", checks.now, checks.now, 5 * MINUTE)
    checks.health = away
    assert checks.see(UNREAD, minutes(WAITS_FOR)) == []
    assert checks.see(UNREAD, 1) != []


def test_4_an_unreachable_time_closes_no_open_incident() -> None:
    checks = Checks()
    checks.see(UNREAD, 20)
    checks.health = evaluate_unread(
        checks.health, IncidentKind.UNREACHABLE, "away", checks.now, checks.now, timedelta()
    )
    checks.see(UNREAD, 20)
    assert (checks.opened, checks.closed) == (1, 1), "only the incident unreachable has closed"
    assert [each.kind for each in checks.health.incidents] == [IncidentKind.PODS_WAIT]


@pytest.mark.parametrize("how", ["pause", "unregister"])
def test_4_a_pause_and_a_new_registration_reset_the_start(how: str) -> None:
    found = stack()
    assert found.store.load("demo").cluster_health.waiting
    if how == "pause":
        found.ask("pause")
        found.run()
        found.clock.at += 60 * MINUTE
        found.ask("resume")
    else:
        record = found.store.load("demo").record
        found.ask("unregister", force=True)
        found.run()
        found.clock.at += 60 * MINUTE
        found.ask("register", record={**record.model_dump(mode="json", exclude_none=True)})
    found.run()
    assert IncidentKind.PODS_WAIT not in kinds(found)
    assert [each.since for each in found.store.load("demo").cluster_health.waiting.values()] == [found.clock.at]


def test_5_with_a_delay_near_0_one_failed_read_opens_nothing_that_could_end_a_drill() -> None:
    plan = replace(PLAN, demand=UNREAD)
    assert evaluate(ClusterHealth(), plan, {}, timedelta()).incidents == ()


def test_6_the_stored_start_does_not_expire() -> None:
    checks = Checks()
    checks.see(UNREAD)
    assert not checks.health.is_empty
    assert records.entry(records.HEALTH, checks.health, None, NOW).expires is None


def test_7_an_error_of_evenkeel_itself_asks_for_a_report() -> None:
    checks = Checks()
    checks.see(unread("KeyError while it was judged: please report this", Rule.WORKLOAD_UNJUDGED), 20)
    (incident,) = checks.health.incidents
    assert incident.problems[0].kind is ProblemKind.PODS_UNJUDGED
    assert "report it" in todo(incident)
    assert "Let Evenkeel read the pods" not in todo(incident)
    checks = Checks()
    checks.see(UNREAD, 20)
    assert "Let Evenkeel read the pods" in todo(checks.health.incidents[0])


def test_7_an_error_of_evenkeel_itself_in_a_read_is_no_error_of_the_cluster() -> None:
    found = stack(KeyError("x"))
    for _ in range(16):
        found.clock.at += MINUTE
        found.run()
    (incident,) = found.store.load("demo").cluster_health.incidents
    assert incident.problems[0].kind is ProblemKind.PODS_UNJUDGED


def test_what_has_its_own_incident_is_not_reported_again() -> None:
    checks = Checks()
    checks.see(unread("more than 5 nodes", Rule.WORKLOAD_TOO_LARGE), 20)
    assert [each.kind for each in checks.health.incidents] == [IncidentKind.TOO_LARGE]


@pytest.mark.parametrize("seed", range(30))
def test_in_worlds_of_failing_reads_and_waiting_pods_it_opens_and_closes_once(seed: int) -> None:
    chance, checks = random.Random(seed), Checks()
    share = chance.choice((0.2, 0.5, 0.8))
    unreads = chance.random() < 0.5
    for number in range(120):
        waits = unread(f"timeout {chance.random()}") if unreads else advice(unmet=(unfit(f"p-{chance.randrange(9)}"),))
        checks.see(waits if chance.random() < share or number % 10 == 0 else advice())
    assert checks.opened == 1
    assert checks.closed == 0
    checks.see(advice(), minutes(WAITS_FOR) + 1)
    assert (checks.closed, checks.health) == (1, ClusterHealth())


def test_a_pod_without_a_zone_to_run_in_is_reported_end_to_end() -> None:
    waiting = pod("db", cpu="1", node_selector={ZONE: "nowhere"}, unscheduled=Unscheduled("Unschedulable", NOW))
    found = stack(replace(CALM, pods=(waiting,)))
    for _ in range(20):
        found.clock.at += MINUTE
        found.run()
    assert kinds(found) == [IncidentKind.PODS_WAIT]
    opened = [type_ for type_ in found.bus.types if type_ == "Incident Opened"]
    assert len(opened) == 1
