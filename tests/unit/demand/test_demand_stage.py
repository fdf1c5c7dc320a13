"""Demand on a stack: the answers to operators, its reads and its effects."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.application.errors import AccessUnavailableError, ClusterUnavailableError, EvenkeelError, TooLargeError
from evenkeel.application.rebalancing.observe import CHECK_SECONDS
from evenkeel.domain.demand import advice
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.workload import Workload
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.answers import print_answer
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.printed_pages import page_of_plan
from tests.builders import MINUTE, NOW, group, key
from tests.fakes import FakeWorkload, record
from tests.stack import Stack
from tests.workloads import node, pod, pods, template

SAME = {"access": {"kind": "same"}}
ADVISE: dict[str, Any] = {"demand": "advise", "workload": SAME}


def stack(found: Workload | Exception, **fields: Any) -> Stack:
    """Return a stack with the pool of three zones with two nodes each, and this workload."""
    members = [group(zone, 2, bounds=(1, 9), template=template()) for zone in "abc"]
    made = Stack(members, **{**ADVISE, **fields})
    made.clusters.workloads["demo"] = FakeWorkload(found)
    return made


def ordering(found: Workload | Exception, stage: str = "full", **fields: Any) -> Stack:
    return stack(found, demand=stage, autoscaler="none", **fields)


def total(stack: Stack) -> int:
    return sum(member.requested for member in stack.cluster.groups.values())


def reads(stack: Stack) -> list[bool]:
    found: list[bool] = stack.clusters.workloads["demo"].reads
    return found


WAITING = Workload(
    pods=(*pods(3, "web", cpu="3"), pod("odd", scheduler="volcano")),
    nodes=tuple(node(f"n-{zone}", zone, group=key(zone)) for zone in "abc"),
)


class TestAnswers:
    def test_a_plan_has_the_nodes_and_pods_of_each_pool(self) -> None:
        full = tuple(pod(f"full-{zone}", cpu="3", node=f"n-{zone}") for zone in "abc")
        plan = stack(Workload(pods=(*WAITING.pods, *full), nodes=WAITING.nodes)).ask("plan")["plan"]
        (pool,) = plan["pools"]
        assert pool["demand"]["nodes"] == {str(key(zone)): 1 for zone in "abc"}
        (pending,) = pool["demand"]["pending"]
        assert (pending["pods"], pending["count"]) == ([f"default/web-{i}" for i in range(3)], 3)
        assert pending["zones"] == ["a", "b", "c"]
        assert plan["demand"]["fitAlready"] == 0
        (unfit,) = pool["demand"]["unfit"]
        assert (unfit["pods"], unfit["rule"]) == (["default/odd"], "pod-of-other-scheduler")
        assert plan["demand"]["notCounted"] == [unfit]

    def test_explain_has_the_reason_of_each_zone_for_a_pending_pod(self) -> None:
        waiting = pod("zonal", node_selector={"topology.kubernetes.io/zone": "d"})
        said = stack(Workload(pods=(waiting,))).ask("explain", pool="workers")["message"]
        assert "Pod default/zonal has been waiting since" in said
        assert "the pod's node selector requires topology.kubernetes.io/zone d" in said

    def test_status_counts_pods_without_a_node(self) -> None:
        answer = stack(Workload(pods=pods(2, cpu="64"))).ask("status")
        assert "2 pods without a node" in answer["headline"]
        assert answer["demand"]["unmet"][0]["count"] == 2

    def test_a_plan_lists_unneeded_nodes_and_why_others_are_needed(self) -> None:
        running = Workload(pods=(pod("p", cpu="3", node="n-a"),), nodes=WAITING.nodes)
        (pool,) = stack(running).ask("plan")["plan"]["pools"]
        assert [each["node"] for each in pool["demand"]["unneeded"]] == ["n-b", "n-c"]
        (kept,) = pool["demand"]["needed"]
        assert (kept["node"], kept["rule"], kept["group"]) == ("n-a", "node-in-use", str(key("a")))

    def test_a_pod_that_keeps_its_node_is_in_every_answer_and_on_the_page(self) -> None:
        running = Workload(pods=(pod("train", node="n-a", resource_claims=("gpu",)),), nodes=WAITING.nodes)
        made = stack(running)
        devices = "Evenkeel does not evaluate the pod's resource claims"
        why = f"Evenkeel cannot place pod default/train on another node: {devices}"
        plan = made.ask("plan")["plan"]
        (kept,) = plan["pools"][0]["demand"]["needed"]
        assert (kept["node"], kept["rule"]) == ("n-a", "pod-not-placeable")
        assert why in kept["reason"]
        assert f"n-a is needed: {why}" in made.ask("explain", pool="workers")["message"]
        (section,) = page_of_plan(json.dumps(plan), "plan").sections
        assert any(why in words for pool in section.pools for words in pool.demand)

    def test_a_long_list_of_pods_is_cut_and_its_count_is_not(self) -> None:
        answer = stack(Workload(pods=pods(500, cpu="64"))).ask("plan")["plan"]["demand"]["unmet"][0]
        assert (len(answer["pods"]), answer["count"]) == (12, 500)

    def test_the_table_and_the_page_show_the_answers(self) -> None:
        made = stack(WAITING)
        plan, status = made.ask("plan"), made.ask("status")
        assert page_of_plan(json.dumps(plan["plan"]), "plan").sections
        assert page_of_status({**status, "cluster": "demo", "action": "status", "ok": True}, "x", NOW).sections
        for action, answer in (("plan", plan), ("status", status)):
            printed = StringIO()
            print_answer({**answer, "action": action, "ok": True}, Console(file=printed, width=200))
            assert "3 pending pods fit on existing or upcoming nodes." in printed.getvalue()
            assert "Pod default/odd is not counted: scheduler volcano places the pod" in printed.getvalue()


class TestCosts:
    @pytest.mark.parametrize("action", ["plan", "status", "explain"])
    def test_with_demand_off_no_workload_is_opened(self, action: str) -> None:
        made = Stack()  # whose clusters know of no workload: opening one is a KeyError
        made.ask(action)
        made.checks()
        made.run()
        assert made.journal.count("nodes") == 0

    def test_a_check_reads_pods_and_a_plan_evaluates_nodes_too(self) -> None:
        made = stack(WAITING)
        made.settle()
        reads(made).clear()
        made.checks()
        assert reads(made) == [False]
        made.ask("plan")
        assert reads(made) == [False, True]

    def test_a_check_evaluates_nodes_where_a_fuller_zone_could_release_one(self) -> None:
        made = Stack([group("a", 5, bounds=(0, 9)), group("b", 2, bounds=(0, 9))], **ADVISE)
        made.clusters.workloads["demo"] = FakeWorkload(Workload())
        made.checks()
        assert reads(made) == [False, True]

    def test_beside_other_clusters_a_workload_has_the_time_of_a_check(self) -> None:
        made = stack(WAITING)
        made.checks("demo", "gone")
        assert made.clusters.seconds_for_workload == pytest.approx(CHECK_SECONDS, abs=1)
        made.checks("demo")
        assert made.clusters.seconds_for_workload > CHECK_SECONDS

    @pytest.mark.parametrize("action", ["validate", "pause"])
    def test_other_actions_read_no_pods(self, action: str) -> None:
        made = stack(WAITING)
        made.ask(action)
        assert reads(made) == []

    @pytest.mark.parametrize(("stage", "judges"), [("scale-up", False), ("full", True)])
    def test_every_check_and_run_reads_pods_where_nodes_may_be_ordered(self, stage: str, judges: bool) -> None:
        made = ordering(WAITING, stage)
        made.checks()
        made.run()
        assert reads(made) == [judges, judges]


class TestNothingElseFollows:
    def test_pods_that_come_and_go_cause_no_write_and_no_run(self) -> None:
        made = stack(WAITING)
        made.settle()
        written, before = len(made.cluster.applied), len(made.queue.requests)
        for number in range(5):
            made.clusters.workloads["demo"].found = Workload(pods=pods(number * 7, cpu="3"), nodes=WAITING.nodes)
            made.checks()
            made.run()
        assert len(made.cluster.applied) == written
        requests = list(made.queue.requests.values())[before:]
        assert [reason for _, reason in requests if reason != "nothing to be done"] == []

    def test_a_cluster_whose_pods_count_gets_full_checks(self) -> None:
        made = ordering(WAITING, "scale-up")
        made.settle()
        for _ in range(40):
            made.checks()
            made.carry_out()
        assert made.journal.count("quick check") == 0

    def test_a_decision_has_nothing_of_pods(self) -> None:
        made = ordering(WAITING, pools=[{"name": "workers", "min": 9, "max": 12}])
        made.run()
        decisions = made.store.decisions("demo", 10)
        assert decisions
        assert not any("demand" in decision["pool"] for decision in decisions)


class TestOrders:
    """More of them: tests/property/demand/test_order_properties.py."""

    FULL = Workload(
        pods=(*pods(4, "web", cpu="3"), *(pod(f"on-{zone}", cpu="3", node=f"n-{zone}") for zone in "abc")),
        nodes=WAITING.nodes,
    )

    @pytest.mark.parametrize("stage", ["scale-up", "full"])
    def test_a_check_that_finds_pods_requests_a_run_that_orders_evenly(self, stage: str) -> None:
        made = ordering(self.FULL, stage)
        made.checks()
        assert made.queue.clusters == ["demo"]
        assert made.cluster.applied == []
        made.carry_out()
        assert sorted(member.requested for member in made.cluster.groups.values()) == [3, 3, 4]
        assert "the group's share of 4 nodes for pending pods" in json.dumps(made.store.decisions("demo", 10))

    def test_an_operators_request_goes_first_and_its_nodes_count(self) -> None:
        made = ordering(self.FULL, "scale-up")
        made.ask("scale-up", pool="workers", nodes=3, id="r1")
        made.run()
        assert total(made) == 6 + 3
        made.runs(2)
        assert total(made) == 6 + 4
        assert made.store.load("demo").scale_requests["r1"].done

    def test_nothing_is_ordered_in_a_paused_pool(self) -> None:
        made = ordering(self.FULL, "scale-up")
        made.ask("pause", pool="workers")
        made.runs(2)
        assert total(made) == 6

    def test_beside_another_autoscaler_nothing_is_ordered_and_an_incident_is_open(self) -> None:
        def seen(minutes: int) -> Workload:
            return replace(self.FULL, autoscaler_sought=True, autoscaler_at=made.clock.now() - minutes * MINUTE)

        def incidents() -> list[IncidentKind]:
            return [incident.kind for incident in made.store.load("demo").cluster_health.incidents]

        made = ordering(self.FULL, "scale-up")
        view = made.clusters.workloads["demo"]
        for view.found in (seen(0), Workload()):  # finally no pod is pending, and the autoscaler was not searched for
            made.checks()
            made.carry_out()
            assert incidents() == [IncidentKind.TWO_AUTOSCALERS]
        assert total(made) == 6
        view.found = seen(0)
        assert "a cluster-autoscaler was active in the workload cluster" in made.ask("plan")["plan"]["demand"]["unread"]
        view.found = seen(10)
        made.run()
        assert (incidents(), total(made)) == ([], 10)


class TestUnreadableWorkload:
    ERRORS = (
        ClusterUnavailableError("workload cluster of demo does not answer"),
        AccessUnavailableError("the secret is not to be had"),
        TooLargeError("more than 30000 pods"),
        RuntimeError("a bug of ours"),
    )

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("opens", [True, False], ids=["opened", "not opened"])
    def test_is_one_sentence_and_bounds_and_fences_are_written(self, error: Exception, opens: bool) -> None:
        made = ordering(error)
        if not opens:
            made.clusters.workloads["demo"] = error
        made.fail("a")
        made.run()
        assert {patch.plan.group.key for patch in made.cluster.applied} >= {key("a")}
        answer = made.ask("plan")["plan"]
        assert "demand" not in answer["pools"][0]
        reason = answer["demand"]["unread"]
        known = {
            TooLargeError: "the workload cluster is too large to read",
            RuntimeError: "Evenkeel failed to evaluate the pods",
        }.get(type(error), "the pods of the workload cluster are unknown")
        assert reason.startswith(f"{known}, so ")
        assert (str(error) in reason) == isinstance(error, EvenkeelError)

    def test_above_a_limit_of_the_record_is_an_incident_with_its_remedy_until_it_is_read(self) -> None:
        def incidents() -> list[tuple[IncidentKind, str]]:
            return [(each.kind, each.message) for each in made.store.load("demo").cluster_health.incidents]

        too_large = TooLargeError("demo: it has more than 5 nodes: raise workload.most_nodes")
        made = ordering(too_large)
        view = made.clusters.workloads["demo"]
        for view.found in (too_large, ClusterUnavailableError("away")):  # another error does not end it
            made.checks()
            made.carry_out()
            assert incidents() == [(IncidentKind.TOO_LARGE, str(too_large))]
        assert made.store.load("demo").cluster_health.unread is None
        asked = len(made.queue.requests)
        made.checks()
        assert len(made.queue.requests) == asked, "an open incident requests no further run"
        (shown,) = made.ask("status")["incidents"]
        assert shown["todo"].startswith("Raise the limit that the message names")
        view.found = Workload()
        made.run()
        assert incidents() == []

    def test_is_no_outage_of_the_cluster_and_requests_no_run(self) -> None:
        made = stack(ClusterUnavailableError("away"), demand="full", autoscaler="none")
        made.settle()
        asked = len(made.queue.requests)
        summary = made.checks()
        assert summary.metrics()["ClustersUnreachable"] == 0
        assert len(made.queue.requests) == asked
        assert "its pods are not read" in made.ask("status")["headline"]

    @pytest.mark.parametrize("seconds", [60.0, 20.0, 9.0])
    def test_leaves_the_time_for_a_patch_where_it_hangs(self, seconds: float) -> None:
        made = stack(WAITING, demand="full", autoscaler="none")
        made.run(lambda: seconds)
        assert made.clusters.seconds_for_workload == seconds - 15

    def test_an_error_in_demand_delays_no_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> object:
            raise ZeroDivisionError("a secret of the pod")

        monkeypatch.setattr(advice, "scale_up", broken)
        made = stack(WAITING, demand="full", autoscaler="none")
        made.fail("a")
        made.run()
        assert {patch.plan.group.key for patch in made.cluster.applied} >= {key("a")}
        unread = made.ask("plan")["plan"]["demand"]["unread"]
        assert "ZeroDivisionError while it was judged" in unread
        assert "secret" not in unread

    def test_is_checked_alone_where_it_is_too_large_beside_others(self) -> None:
        made = stack(TooLargeError("beside others"), demand="full", autoscaler="none")
        made.settle()
        made.register_another("second", made.cluster)
        made.checks("demo", "second")
        assert [chunk.clusters for chunk in made.queue.checks] == [("demo",)]


class TestTheRecord:
    def test_demand_is_off_by_default(self) -> None:
        assert record().demand_stage is DemandStage.OFF
        assert record().policy().demand is DemandStage.OFF
        assert read_model(ClusterFile, {"demand": False}, "record").demand_stage is DemandStage.OFF

    @pytest.mark.parametrize(
        ("fields", "fault"),
        [
            ({"demand": "advise"}, "workload is missing: demand is advise: say where its pods are"),
            ({"demand": "scale-up", "workload": SAME}, "demand is 'scale-up': it needs autoscaler: none"),
            ({"demand": "full", "workload": SAME}, "demand is 'full': it needs autoscaler: none"),
            ({"demand": "advice"}, "demand is 'advice': no such stage"),
            ({"workload": {"access": {"kind": "sam"}}}, "workload.access.kind is 'sam': it is one of"),
            ({"workload": {"access": {"kind": "eks", "name": "x"}}}, "workload.access.region is missing"),
            ({"workload": {"access": {"kind": "secret", "name": "x"}}}, "workload.access.namespace is missing"),
            ({"workload": {"access": {"kind": "same"}, "most_pods": 0}}, "workload.most_pods is '0'"),
            ({"workload": {}}, "workload.access is missing"),
        ],
    )
    def test_a_bad_field_is_one_line(self, fields: dict[str, Any], fault: str) -> None:
        given = {**record().model_dump(exclude_none=True), "demand": "advise", **fields}
        with pytest.raises(ConfigError) as caught:
            read_model(ClusterRecord, given, "record")
        (line,) = caught.value.faults
        assert line.startswith(f"record: {fault}")
        assert line.endswith("did you mean advise?") or "advice" not in fault

    @pytest.mark.parametrize("stage", ["scale-up", "full"])
    def test_nodes_are_ordered_without_another_autoscaler(self, stage: str) -> None:
        assert read_model(ClusterFile, {"demand": stage, "autoscaler": "none"}, "record").demand_stage.orders

    def test_demand_is_stored_only_where_it_is_set(self) -> None:
        made = stack(WAITING, workload={**SAME, "most_pods": 5})
        stored = made.store.load("demo").record
        assert stored.workload is not None
        assert (stored.demand_stage, stored.workload.most_pods) == (DemandStage.ADVISE, 5)
        plain = Stack()
        assert "demand" not in plain.store.text("demo", "META")
        assert "workload" not in plain.store.text("demo", "META")

    def test_fields_of_a_newer_release_are_kept(self) -> None:
        made = stack(WAITING)
        text = made.store.text("demo", "META")
        made.store.plant("demo", text.replace('"kind":"same"', '"kind":"same","later":1'))
        made.ask("pause")
        made.ask("resume")
        assert '"later": 1' in made.store.text("demo", "META")
        assert made.ask("plan")["plan"]["demand"]["fitAlready"] == 3
