"""A drill from its start to its report, with every port in memory."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.application.errors import BadRequestError, ClusterUnavailableError
from evenkeel.domain.drill.drill import Drill, End, Facts, PoolZones, ZoneNodes
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod, Unscheduled, Workload
from tests.builders import MINUTE, NOW, group, key, stated, zones
from tests.fakes import plenty
from tests.parts import replace
from tests.stack import Stack, replaced_first
from tests.unit.kubernetes.test_server_time import SkewedStack

WHO = {"by": "arn:aws:sts::123456789012:assumed-role/platform/jane", "reason": "quarterly rehearsal"}
FORECAST = {
    "lostNodes": 2,
    "pods": 9,
    "bound": 1,
    "withoutPlace": 0,
    "longestWait": 390,
    "ordered": {"b": 1, "c": 1},
    "readyAfter": 390,
    "atMaximum": [],
}


class Drilled(Stack):
    """A stack that has settled, so that each later write is one of the drill."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.settle()
        self.bounds = self.maxima()

    def begin(self, zone: str = "a", **fields: Any) -> dict[str, Any]:
        answer = self.ask("drill", zone=zone, **{"for": "30m", **WHO, **fields})
        self.carry_out()
        return answer

    def maxima(self) -> dict[str, int]:
        return {group.identity.zone: group.bounds.max for group in self.cluster.groups.values()}

    @property
    def is_fenced(self) -> bool:
        """Return True if zone a may not grow."""
        found = self.cluster.groups[key("a")]
        return found.bounds.max == found.requested

    @property
    def drill(self) -> Any:
        return self.store.load("demo").drill

    @property
    def report(self) -> dict[str, Any]:
        report = self.ask("drill")["drill"]
        assert isinstance(report, dict)
        return report


def test_a_drill_fences_its_zone_until_its_time_and_the_report_is_kept() -> None:
    stack = Drilled()
    answer = stack.begin(forecast=FORECAST)
    assert answer["message"] == (
        "zone a of demo is fenced until 2026-01-15T12:33:00Z: its groups get no growth, its nodes stay. "
        "Report: evenkeel drill --stack NAME --cluster demo. "
        "To end it now: evenkeel drill --stack NAME --cluster demo --abort"
    )
    assert stack.is_fenced
    for _ in range(28):
        stack.run()
        assert stack.is_fenced
        assert stack.report["state"] == "open"
    stack.runs(3)
    assert not stack.is_fenced
    assert stack.maxima() == stack.bounds
    report = stack.report
    assert report["state"] == "ended"
    assert report["ended"] == {"at": "2026-01-15T12:33:00Z", "why": "time"}
    assert report["forecast"] == FORECAST
    assert report["start"]["a"] == {"requested": 2, "running": 2}
    assert (report["by"], report["reason"]) == (WHO["by"], WHO["reason"])
    assert stack.drill.is_recorded
    began, ended = stack.ask("history")["actions"]
    assert (began["cause"], began["by"], began["reason"]) == ("drill", WHO["by"], WHO["reason"])
    assert (ended["cause"], ended["drill"]) == ("drill-ended", report)
    assert ended["what"].endswith("quarterly rehearsal; its time was over")
    assert all(group.running == 2 for group in stack.cluster.groups.values()), "no node has gone"


class SkewedDrill(Drilled, SkewedStack):
    """The cluster's clock differs from Evenkeel's."""


@pytest.mark.parametrize("skew", [-10 * MINUTE, 10 * MINUTE, 45 * MINUTE])
def test_a_clock_that_differs_does_not_change_how_long_the_zone_is_fenced(skew: timedelta) -> None:
    stack = SkewedDrill(skew)
    stack.begin()
    for _ in range(29):
        assert stack.is_fenced
        (fenced,) = [group for group in stack.ask("plan")["plan"]["pools"][0]["groups"] if group["zone"] == "a"]
        assert fenced["state"] == "fenced"
        stack.run()
    stack.runs(2)
    assert not stack.is_fenced
    assert stack.report["ended"] == {"at": "2026-01-15T12:33:00Z", "why": "time"}


def test_a_cluster_without_a_drill_and_after_one_is_steady() -> None:
    stack = Drilled()
    stack.begin(**{"for": "5m"})
    stack.runs(9)
    stack.queue.requests.clear()
    for _ in range(20):
        stack.checks()
        stack.carry_out()
    stack.queue.requests.clear()
    stack.checks()
    assert stack.queue.clusters == []
    assert stack.store.load("demo").steady is not None


def test_abort_ends_it_and_says_who() -> None:
    stack = Drilled()
    stack.begin()
    stack.run()
    answer = stack.ask("drill", abort=True, by="bob", reason="pods wait")
    assert answer["drill"]["ended"] == {
        "at": "2026-01-15T12:04:00Z",
        "why": "aborted",
        "by": "bob",
        "reason": "pods wait",
    }
    stack.carry_out()
    assert stack.maxima() == stack.bounds
    assert stack.drill.is_recorded
    assert "no drill is open" in stack.refused("drill", abort=True)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_drill_repeated_after_a_lost_answer_answers_with_its_report(dry_run: bool) -> None:
    stack = Drilled()
    first = stack.ask("drill", zone="a", **WHO)
    stack.clock.at += MINUTE
    stack.queue.requests.clear()
    again = stack.ask("drill", zone="a", **WHO, dry_run=dry_run, **{"for": "30m"})
    assert again["drill"] == first["drill"]
    assert (again["zone"], again["done"]) == ("a", False)
    stack.carry_out()
    assert stack.is_fenced
    (began,) = stack.ask("history")["actions"]
    assert began["cause"] == "drill"


@pytest.mark.parametrize(
    "other", [{"zone": "b"}, {"by": "bob"}, {"reason": "another"}, {"for": "31m"}, {"zone": "b", "dry_run": True}]
)
def test_another_drill_is_refused_but_requests_the_run_again(other: dict[str, Any]) -> None:
    stack = Drilled()
    stack.ask("drill", zone="a", **WHO)
    stack.queue.requests.clear()
    refused = stack.refused("drill", **{"zone": "a", **WHO, **other})
    assert refused.startswith("demo has an open drill: a fenced until 2026-01-15T12:33:00Z by arn:")
    stack.carry_out()
    assert stack.is_fenced


def test_the_report_of_the_last_drill_survives_the_next_one() -> None:
    """The next one replaces the stored drill, even if no run has recorded the report of the last one."""
    stack = Drilled()
    stack.begin()
    stack.run()
    stack.clock.at += 60 * MINUTE
    stack.begin(zone="b")
    first, ended, second = stack.ask("history")["actions"]
    assert [entry["cause"] for entry in (first, ended, second)] == ["drill", "drill-ended", "drill"]
    assert (ended["drill"]["zone"], ended["drill"]["ended"]["why"]) == ("a", "time")
    assert stack.report["zone"] == "b"


@pytest.mark.parametrize("pool", ["workers", "other"])
def test_a_failure_in_another_zone_ends_it(pool: str) -> None:
    """Also in a pool without a node in the drill's zone."""
    stack = Drilled(
        [*zones((2, 2, 2), bounds=[(1, 9)] * 3), group("b", 2, pool="other", bounds=(1, 9))],
        pools=[{"name": "workers", "min": 3, "max": 12}, {"name": "other", "min": 1, "max": 9}],
    )
    stack.begin()
    stack.cluster.change(key("b", pool=pool), requested=3)
    stack.fail("b", pool=pool)
    stack.run()
    ended = stack.report["ended"]
    assert (ended["why"], ended["zone"]) == ("other-failure", "b")
    assert ended["pool"].endswith(f"/{pool}")
    assert stack.ask("drill")["message"].endswith(f"rehearsal; ended, because pool {pool} fails in b, too")
    stack.runs(2)
    assert stack.store.load("demo").state.zones == {}
    assert not stack.is_fenced


def test_no_drill_begins_next_to_a_failure_in_another_zone() -> None:
    stack = Drilled()
    stack.fail("b")
    refused = stack.refused("drill", zone="a", **WHO)
    assert refused == "pool workers of demo fails in zone b: begin a drill once it is healthy there"
    assert stack.drill is None
    assert stack.begin(zone="b")["drill"]["state"] == "open"


def test_nodes_that_are_not_ready_in_another_zone_end_it() -> None:
    stack = Drilled()
    stack.begin()
    lost = Reason.of(Rule.GROUP_UNHEALTHY, broken=4, nodes=4)
    stack.cluster.change(key("c"), unhealthy=lost)
    stack.run()
    assert (stack.drill.ended.why, stack.drill.ended.zone) == (End.OTHER_FAILURE, "c")


def test_a_zone_in_which_launches_are_stopped_does_not_end_it() -> None:
    stack = Drilled([*zones((2, 2), bounds=[(1, 9)] * 2), replace(group("c", 2), launches_stopped=stated("suspended"))])
    stack.begin()
    stack.runs(3)
    assert stack.report["state"] == "open"


def test_a_failure_in_its_own_zone_does_not_end_it() -> None:
    stack = Drilled()
    stack.begin()
    stack.cluster.change(key("a"), requested=3)
    stack.fail("a")
    stack.run()
    assert stack.report["state"] == "open"


def test_nodes_that_are_missing_only_in_its_zone_do_not_end_it() -> None:
    stack = Drilled([group("a", 2, bounds=(1, 9))], pools=[{"name": "workers", "min": 1, "max": 9}])
    stack.begin()
    stack.cluster.change(key("a"), requested=2, running=1)
    stack.runs(12)
    (incident,) = stack.store.load("demo").cluster_health.incidents
    assert (incident.kind, incident.failure_class) == ("missing", None)
    assert stack.report["state"] == "open"
    assert stack.report["measured"]["incidents"] == ["cluster-api/default/workers/missing"]


def test_another_fence_ends_it() -> None:
    stack = Drilled()
    stack.begin()
    stack.ask("fence-zone", zone="b", **{"for": "2h"})
    stack.run()
    assert (stack.drill.ended.why, stack.drill.ended.zone) == (End.OTHER_FENCE, "b")
    assert not stack.is_fenced


def test_an_unreachable_cluster_ends_it() -> None:
    stack = Drilled()
    stack.begin()
    stack.cluster.unreadable = ClusterUnavailableError("no answer")
    for _ in range(9):
        stack.clock.at += MINUTE
        stack.checks()
        stack.carry_out()
    assert stack.drill.ended is not None
    assert (stack.drill.ended.why, stack.drill.ended.incident) == (End.INCIDENT, "unreachable")


def test_orders_and_missing_nodes_are_measured() -> None:
    stack = Drilled()
    stack.begin()
    stack.run()
    stack.cluster.change(key("b"), requested=4)
    stack.runs(3)
    assert stack.report["measured"]["notAtSize"] == ["cluster-api/default/workers"]
    stack.cluster.change(key("b"), running=4)
    stack.runs(2)
    measured = stack.report["measured"]
    assert measured["ordered"] == {"b": 2}
    assert measured["readyAfter"] == 180
    assert measured["notAtSize"] == []
    assert measured["waitingPods"] is None, "the record has no workload"


def test_status_and_explain_show_it_while_it_is_open() -> None:
    stack = Drilled()
    stack.begin()
    text = f"drill: a fenced until 2026-01-15T12:33:00Z by {WHO['by']}: quarterly rehearsal"
    status = stack.ask("status")
    assert text in status["headline"]
    assert status["drill"]["zone"] == "a"
    assert status["zones"]["a"]["by"] == "drill"
    assert f"{text}." in stack.ask("explain")["sentences"]
    assert f"{text}." in stack.ask("explain", pool="workers")["sentences"]
    stack.runs(32)
    assert "drill" not in stack.ask("status")
    assert "drill" not in stack.ask("status")["headline"]


@pytest.mark.parametrize(
    ("action", "fields"), [("pause", {}), ("pause", {"pool": "workers"}), ("dry-run", {}), ("restore", {})]
)
def test_a_pause_dry_run_or_restore_lifts_its_fence(action: str, fields: dict[str, Any]) -> None:
    stack = Drilled()
    stack.begin()
    stack.run()
    assert stack.is_fenced
    stack.ask(action, **fields)
    stack.carry_out()
    stack.runs(2)
    assert not stack.is_fenced
    assert stack.maxima() == (dict.fromkeys("abc", 9) if action == "restore" else stack.bounds)
    assert (stack.report["ended"]["why"], stack.drill.is_recorded) == ("stopped", True)
    held = "the cluster" if action != "dry-run" and not fields else "pool workers"
    assert f"ended, because {held} is paused or in dry run" in stack.ask("drill")["message"]
    applied = len(stack.cluster.applied)
    stack.runs(40)
    assert len(stack.cluster.applied) == applied


OWN = {"kind": IncidentKind.MISSING, "pool": "workers", "zones": ("a",)}
THREE = PoolZones(zones=frozenset("abc"), closed=frozenset("a"))


@pytest.mark.parametrize(
    ("fields", "pool", "caused"),
    [
        ({}, THREE, True),
        ({"zones": ()}, THREE, True),
        ({}, PoolZones(zones=frozenset("a"), closed=frozenset("a")), True),
        ({"failure_class": FailureClass.CAPACITY}, THREE, False),
        ({"failure_class": FailureClass.UNKNOWN}, THREE, False),
        ({"is_rollout": True}, THREE, False),
        ({"zones": ("a", "b")}, THREE, False),
        ({"zones": ("b",)}, THREE, False),
        ({"pool": "other"}, THREE, False),
        ({}, PoolZones(zones=frozenset("bc")), False),
        ({"zones": ()}, PoolZones(zones=frozenset("abc"), closed=frozenset("ab")), False),
        ({"kind": IncidentKind.PODS_WAIT}, THREE, True),
        *(
            ({"kind": kind}, THREE, False)
            for kind in IncidentKind
            if kind not in (IncidentKind.MISSING, IncidentKind.PODS_WAIT)
        ),
    ],
)
def test_a_drill_causes_only_missing_nodes_of_its_own_zone(
    fields: dict[str, Any], pool: PoolZones, caused: bool
) -> None:
    drill = Drill(id="d", zone="a", at=NOW, until=NOW + MINUTE, reason="a rehearsal")
    incident = Incident(since=NOW, **{**OWN, **fields})
    assert drill.causes(incident, {"workers": pool}) is caused


def test_a_pool_outside_its_zone_that_is_paused_does_not_end_it() -> None:
    drill = Drill(id="d", zone="a", at=NOW, until=NOW + MINUTE, reason="a rehearsal")
    there, elsewhere = PoolZones(zones=frozenset("ab")), PoolZones(zones=frozenset("b"))
    assert drill.end(Facts(opened=("other",), pools={"workers": there, "other": elsewhere}), NOW) is None


def test_nodes_that_go_are_not_ordered_ones() -> None:
    drill = Drill(
        id="d", zone="a", at=NOW, until=NOW + MINUTE, reason="a rehearsal", start={"b": ZoneNodes(requested=3)}
    )
    for requested in (2, 4, 3, 4):
        drill = drill.after(Facts(zones={"b": ZoneNodes(requested=requested)}), NOW)
    assert drill.measured.ordered == {"b": 3}


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"zone": "d"}, "zone is 'd': no pool of demo is there; its zones are a, b, c"),
            ({"zone": "a", "for": "1m"}, "for is 1 min: choose 5 min to 4 h"),
            ({"zone": "a", "for": "5h"}, "for is 5 h: choose 5 min to 4 h"),
            ({"zone": "a", "for": "0m"}, "for is 0 s: choose 5 min to 4 h"),
            ({"zone": "a", "for": "soon"}, "for is 'soon': no length of time: write 2h, 90m or 1d"),
            ({"zone": "a", "zone_id": "euc1-az1"}, "drill needs a zone or a zone_id: name one of them"),
            ({"zone": "a", "abort": True}, "drill: abort and a zone are there: name one of the two"),
            ({"abort": True, "dry_run": True}, "drill: abort ends the drill: leave out dry_run, for and forecast"),
            ({"abort": True, "for": "5m"}, "drill: abort ends the drill: leave out dry_run, for and forecast"),
            ({"zone": "a", "reason": None}, "reason is missing: a drill stores who begins it, and why"),
            ({"zone": "a", "by": None}, "by is missing: a drill stores who begins it, and why"),
            ({"abort": True}, "demo: no drill is open: nothing is to be ended"),
        ],
    )
    def test_a_bad_value_is_one_line(self, fields: dict[str, Any], text: str) -> None:
        stack = Drilled()
        assert stack.refused("drill", **{**WHO, **fields}).startswith(text)
        assert stack.drill is None

    def test_a_length_without_a_zone(self) -> None:
        refused = Drilled().refused("drill", **{"for": "30m"})
        assert refused == "drill: the zone is missing: name it by zone or zone_id"

    @pytest.mark.parametrize(
        ("before", "text"),
        [
            ("pause", "demo is paused, so no zone would be fenced: resume it first"),
            ("restore", "demo is being restored, so no zone would be fenced: resume it first"),
        ],
    )
    def test_a_cluster_that_is_not_written(self, before: str, text: str) -> None:
        stack = Drilled()
        stack.ask(before)
        assert stack.refused("drill", zone="a", **WHO) == text

    def test_a_pool_that_is_paused(self) -> None:
        stack = Drilled()
        stack.ask("pause", pool="workers")
        refused = stack.refused("drill", zone="a", **WHO)
        assert refused.startswith("zone a of demo would not be fenced: each pool or node group is paused, ")

    @pytest.mark.parametrize("fields", [{"frozen_because": stated("rolling out")}, {"fencing_enabled": False}])
    def test_node_groups_that_no_fence_limits(self, fields: dict[str, Any]) -> None:
        stack = Drilled(replaced_first(zones((2, 2, 2), bounds=[(1, 9)] * 3), **fields))
        refused = stack.refused("drill", zone="a", **WHO)
        assert refused.startswith("zone a of demo would not be fenced: each pool or node group is paused, ")
        assert stack.ask("drill", zone="b", **WHO)["drill"]["state"] == "open"

    def test_an_open_incident(self) -> None:
        stack = Drilled()
        stack.cluster.change(key("b"), requested=3)
        stack.fail("b")
        stack.runs(7)
        refused = stack.refused("drill", zone="a", **WHO)
        assert refused.startswith("demo has an open incident: workers: ")
        assert refused.endswith(": begin a drill once it is closed")

    def test_a_zone_that_is_fenced_already(self) -> None:
        stack = Drilled()
        stack.ask("fence-zone", zone="b", **{"for": "2h"})
        refused = stack.refused("drill", zone="a", **WHO)
        assert refused == "zone b of demo is fenced already: begin a drill once that fence ends"

    def test_a_cluster_that_does_not_answer(self) -> None:
        stack = Drilled()
        stack.cluster.unreadable = ClusterUnavailableError("no answer")
        with pytest.raises(ClusterUnavailableError, match=r"demo cannot be read, so no drill begins: .*no answer"):
            stack.ask("drill", zone="a", **WHO)
        assert stack.drill is None

    @pytest.mark.parametrize("forecast", [{}, {**FORECAST, "pods": -1}, {**FORECAST, "ordered": {"b": "x"}}, 7])
    def test_a_forecast_that_is_none(self, forecast: object) -> None:
        stack = Drilled()
        with pytest.raises(Exception, match="forecast"):
            stack.ask("drill", zone="a", forecast=forecast, **WHO)
        assert stack.drill is None

    def test_only_reading_needs_no_right(self) -> None:
        stack = Drilled()
        assert stack.operate.read({"action": "drill", "cluster": "demo"}, plenty)["drill"] is None
        for fields in ({"zone": "a"}, {"zone_id": "x"}, {"abort": True}):
            with pytest.raises(BadRequestError, match="ask the operator function"):
                stack.operate.read({"action": "drill", "cluster": "demo", **WHO, **fields}, plenty)


class TestDryRun:
    def test_a_drill_in_dry_run_fences_nothing(self) -> None:
        stack = Drilled(stack_dry_run=True)
        answer = stack.begin()
        assert answer["message"] == (
            "planned only: dry run: zone a of demo is not fenced: a drill in dry run is only a forecast"
        )
        assert (answer["dryRun"], answer["plannedOnly"], answer["drill"]) == (True, ["workers"], None)
        assert stack.drill is None
        assert stack.ask("history")["actions"] == []

    def test_with_dry_run_a_live_cluster_is_checked_but_not_fenced(self) -> None:
        stack = Drilled()
        answer = stack.ask("drill", zone="a", dry_run=True)
        assert answer["message"] == "zone a of demo would be fenced for 30 min; nothing is fenced"
        assert (stack.drill, stack.queue.clusters) == (None, [])

    def test_pools_in_dry_run_are_named(self) -> None:
        groups = [
            *zones((2, 2, 2), bounds=[(1, 9)] * 3),
            *(group(zone, 2, pool="other", bounds=(1, 9)) for zone in "abc"),
        ]
        pools = [{"name": name, "min": 3, "max": 12, "dry_run": name == "other"} for name in ("workers", "other")]
        stack = Stack(groups, pools=pools)
        answer = stack.ask("drill", zone="a", **WHO)
        assert "; not fenced, because in dry run: pool other. " in answer["message"]


def test_pods_that_begin_to_wait_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[int] = []

    class Pods:
        def read(self, *_: object, **__: object) -> Workload:
            pods = [
                Pod(
                    namespace="default",
                    name=f"web-{at}",
                    created_at=NOW,
                    unscheduled=Unscheduled("Unschedulable", NOW + at * MINUTE),
                )
                for at in waiting
            ]
            return Workload(pods=tuple(pods))

    stack = Drilled(workload={"access": {"kind": "same"}})
    monkeypatch.setattr(stack.clusters, "open_workload", lambda *_, **__: Pods(), raising=False)
    stack.begin()
    waiting += [1, 5, 6]  # the first waited before the drill
    stack.runs(4)
    waiting.clear()
    stack.runs(2)
    measured = stack.report["measured"]
    assert (measured["waitingPods"], measured["longestWait"]) == (2, 3 * 60)
