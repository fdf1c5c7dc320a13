"""The stage "advise" of a stack: who is told of pods that wait, what it costs, and that nothing follows."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_plan, page_of_status
from evenkeel.application.errors import AccessUnavailableError, ClusterUnavailableError, EvenkeelError, TooLargeError
from evenkeel.application.rebalancing.observe import CHECK_SECONDS
from evenkeel.domain.demand import advice
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.workload import Workload
from evenkeel.record import ClusterFile, ClusterRecord
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.answers import print_answer
from tests.builders import MINUTE, NOW, group, key
from tests.fakes import FakeWorkload, record
from tests.house import House
from tests.workloads import node, pod, pods, template

SAME = {"access": {"kind": "same"}}
ADVISE: dict[str, Any] = {"demand": "advise", "workload": SAME}


def house(found: Workload | Exception, **fields: Any) -> House:
    """The pool of three zones with two nodes each, and what runs there."""
    members = [group(zone, 2, bounds=(1, 9), template=template()) for zone in "abc"]
    made = House(members, **{**ADVISE, **fields})
    made.clusters.workloads["demo"] = FakeWorkload(found)
    return made


def reads(house: House) -> list[bool]:
    found: list[bool] = house.clusters.workloads["demo"].reads
    return found


WAITING = Workload(
    pods=(*pods(3, "web", cpu="3"), pod("odd", scheduler="volcano")),
    nodes=tuple(node(f"n-{zone}", zone, group=key(zone)) for zone in "abc"),
)


class TestWhoIsTold:
    def test_a_plan_has_what_each_pool_would_be_asked_for_and_for_whom(self) -> None:
        full = tuple(pod(f"full-{zone}", cpu="3", node=f"n-{zone}") for zone in "abc")
        plan = house(Workload(pods=(*WAITING.pods, *full), nodes=WAITING.nodes)).ask("plan")["plan"]
        (pool,) = plan["pools"]
        assert pool["demand"]["nodes"] == {str(key(zone)): 1 for zone in "abc"}
        (waiting,) = pool["demand"]["pending"]
        assert (waiting["pods"], waiting["count"]) == (["default/web-0", "default/web-1", "default/web-2"], 3)
        assert waiting["zones"] == ["a", "b", "c"]
        assert plan["demand"]["fitAlready"] == 0

    def test_a_pod_that_is_not_counted_is_told_with_the_reason(self) -> None:
        plan = house(WAITING).ask("plan")["plan"]
        (pool,) = plan["pools"]
        (unfit,) = pool["demand"]["unfit"]
        assert (unfit["pods"], unfit["rule"]) == (["default/odd"], "pod-of-other-scheduler")
        assert plan["demand"]["notCounted"] == [unfit]

    def test_explain_says_for_each_zone_why_a_pod_does_not_fit(self) -> None:
        waiting = pod("zonal", node_selector={"topology.kubernetes.io/zone": "d"})
        said = house(Workload(pods=(waiting,))).ask("explain", pool="workers")["message"]
        assert "Pod default/zonal has been waiting since" in said
        assert "its node selector requires topology.kubernetes.io/zone d" in said

    def test_status_counts_those_without_a_node(self) -> None:
        answer = house(Workload(pods=pods(2, cpu="64"))).ask("status")
        assert "2 pods without a node" in answer["headline"]
        assert answer["demand"]["unmet"][0]["count"] == 2

    def test_nodes_that_nobody_needs_and_why_the_others_are(self) -> None:
        running = Workload(pods=(pod("p", cpu="3", node="n-a"),), nodes=WAITING.nodes)
        (pool,) = house(running).ask("plan")["plan"]["pools"]
        assert [each["node"] for each in pool["demand"]["unneeded"]] == ["n-b", "n-c"]
        (kept,) = pool["demand"]["needed"]
        assert (kept["node"], kept["rule"], kept["group"]) == ("n-a", "node-in-use", str(key("a")))

    def test_what_keeps_a_node_for_a_pod_that_cannot_be_placed_is_on_every_answer_and_the_page(self) -> None:
        running = Workload(pods=(pod("train", node="n-a", resource_claims=("gpu",)),), nodes=WAITING.nodes)
        made = house(running)
        why = "Evenkeel cannot place pod default/train on another node: Evenkeel does not evaluate its resource claims"
        plan = made.ask("plan")["plan"]
        (kept,) = plan["pools"][0]["demand"]["needed"]
        assert (kept["node"], kept["rule"]) == ("n-a", "pod-not-placeable")
        assert why in kept["reason"]
        assert f"n-a is needed: {why}" in made.ask("explain", pool="workers")["message"]
        (section,) = page_of_plan(json.dumps(plan), "plan").sections
        assert any(why in words for pool in section.pools for words in pool.demand)

    def test_names_are_cut_where_thousands_wait_and_counts_are_not(self) -> None:
        answer = house(Workload(pods=pods(500, cpu="64"))).ask("plan")["plan"]["demand"]["unmet"][0]
        assert (len(answer["pods"]), answer["count"]) == (12, 500)

    def test_the_table_and_the_page_take_the_answers_as_they_are(self) -> None:
        made = house(WAITING)
        plan, status = made.ask("plan"), made.ask("status")
        assert page_of_plan(json.dumps(plan["plan"]), "plan").sections
        assert page_of_status({**status, "cluster": "demo", "action": "status", "ok": True}, "x", NOW).sections
        for action, answer in (("plan", plan), ("status", status)):
            console = Console(width=200, record=True, file=StringIO())
            print_answer({**answer, "action": action, "ok": True}, console)
            printed = console.export_text()
            assert "3 pending pods fit on existing or upcoming nodes." in printed
            assert "Pod default/odd is not counted: scheduler volcano places it" in printed


class TestCosts:
    @pytest.mark.parametrize("action", ["plan", "status", "explain"])
    def test_with_demand_off_nobody_opens_a_workload(self, action: str) -> None:
        made = House()  # whose clusters know of no workload: opening one is a KeyError
        made.ask(action)
        made.looks()
        made.run()
        assert made.journal.count("nodes") == 0

    def test_a_look_reads_who_waits_and_only_who_asks_makes_nodes_be_judged(self) -> None:
        made = house(WAITING)
        made.settle()
        reads(made).clear()
        made.looks()
        assert reads(made) == [False]
        made.ask("plan")
        assert reads(made) == [False, True]

    def test_where_a_fuller_zone_could_give_a_node_looks_judge_nodes(self) -> None:
        made = House([group("a", 5, bounds=(0, 9)), group("b", 2, bounds=(0, 9))], **ADVISE)
        made.clusters.workloads["demo"] = FakeWorkload(Workload())
        made.looks()
        assert reads(made) == [False, True]

    def test_beside_others_a_workload_cluster_has_the_time_of_a_look(self) -> None:
        made = house(WAITING)
        made.looks("demo", "gone")
        assert made.clusters.seconds_for_workload == pytest.approx(CHECK_SECONDS, abs=1)
        made.looks("demo")
        assert made.clusters.seconds_for_workload > CHECK_SECONDS

    @pytest.mark.parametrize("action", ["validate", "pause"])
    def test_who_asks_for_something_else_reads_no_pods(self, action: str) -> None:
        made = house(WAITING)
        made.ask(action)
        assert reads(made) == []

    @pytest.mark.parametrize(("stage", "judges"), [("scale-up", False), ("full", True)])
    def test_where_something_may_follow_every_look_and_run_reads_it(self, stage: str, judges: bool) -> None:
        made = house(WAITING, demand=stage, autoscaler="none")
        made.looks()
        made.run()
        assert reads(made) == [judges, judges]


class TestNothingElseFollows:
    def test_pods_that_come_and_go_are_no_news_and_no_write(self) -> None:
        made = house(WAITING)
        made.settle()
        written, asked = len(made.cluster.applied), len(made.queue.requests)
        for number in range(5):
            made.clusters.workloads["demo"].found = Workload(pods=pods(number * 7, cpu="3"), nodes=WAITING.nodes)
            made.looks()
            made.run()
        assert len(made.cluster.applied) == written
        news = [why for _, why in list(made.queue.requests.values())[asked:] if why != "nothing to be done"]
        assert news == []

    def test_a_cluster_whose_pods_count_is_looked_at_and_not_only_glanced_at(self) -> None:
        made = house(WAITING, demand="scale-up", autoscaler="none")
        made.settle()
        for _ in range(40):
            made.looks()
            made.carry_out()
        assert made.journal.count("glance") == 0

    def test_a_decision_says_nothing_of_pods(self) -> None:
        made = house(WAITING, demand="full", autoscaler="none", pools=[{"name": "workers", "min": 9, "max": 12}])
        made.run()
        decisions = made.store.decisions("demo", 10)
        assert decisions
        assert not any("demand" in decision["pool"] for decision in decisions)


class TestOrders:
    """More of them: tests/property/test_order_properties.py."""

    FULL = Workload(
        pods=(*pods(4, "web", cpu="3"), *(pod(f"on-{zone}", cpu="3", node=f"n-{zone}") for zone in "abc")),
        nodes=WAITING.nodes,
    )

    @pytest.mark.parametrize("stage", ["scale-up", "full"])
    def test_a_look_that_finds_pods_makes_it_news_and_the_run_orders_level(self, stage: str) -> None:
        made = house(self.FULL, demand=stage, autoscaler="none")
        made.looks()
        assert made.queue.clusters == ["demo"]
        assert made.cluster.applied == []
        made.carry_out()
        assert [made.cluster.groups[key(zone)].requested for zone in "abc"] in ([4, 3, 3], [3, 4, 3], [3, 3, 4])

    def test_somebodys_own_request_goes_first_and_its_nodes_count(self) -> None:
        made = house(self.FULL, demand="scale-up", autoscaler="none")
        made.ask("scale-up", pool="workers", nodes=3, id="r1")
        made.run()
        assert sum(each.requested for each in made.cluster.groups.values()) == 6 + 3
        made.runs(2)
        assert sum(each.requested for each in made.cluster.groups.values()) == 6 + 4
        assert made.store.load("demo").scale_requests["r1"].done

    def test_a_paused_pool_and_one_that_is_restored_are_asked_for_nothing(self) -> None:
        made = house(self.FULL, demand="scale-up", autoscaler="none")
        made.ask("pause", pool="workers")
        made.runs(2)
        assert sum(each.requested for each in made.cluster.groups.values()) == 6

    def test_beside_another_autoscaler_nothing_is_ordered_and_that_is_trouble_until_it_has_gone(self) -> None:
        def seen(minutes: int | None, *, sought: bool = True) -> Workload:
            at = None if minutes is None else made.clock.now() - minutes * MINUTE
            return replace(self.FULL, autoscaler_sought=sought, autoscaler_at=at)

        made = house(self.FULL, demand="scale-up", autoscaler="none")
        view = made.clusters.workloads["demo"]
        for found, kinds in [
            (seen(0), [IncidentKind.TWO_AUTOSCALERS]),
            (Workload(), [IncidentKind.TWO_AUTOSCALERS]),  # nobody waits, and nobody has looked
        ]:
            view.found = found
            made.looks()
            made.carry_out()
            assert [incident.kind for incident in made.store.load("demo").cluster_health.incidents] == kinds
        assert sum(each.requested for each in made.cluster.groups.values()) == 6
        view.found = seen(0)
        assert "a cluster-autoscaler was active in it" in made.ask("plan")["plan"]["demand"]["unread"]
        view.found = seen(10)
        made.run()
        assert made.store.load("demo").cluster_health.incidents == ()
        assert sum(each.requested for each in made.cluster.groups.values()) == 10

    def test_a_decision_says_for_whom_the_nodes_were_ordered(self) -> None:
        made = house(self.FULL, demand="scale-up", autoscaler="none")
        made.run()
        text = json.dumps(made.store.decisions("demo", 10))
        assert "its share of 4 nodes for pending pods" in text


class TestAWorkloadThatIsAway:
    ERRORS = (
        ClusterUnavailableError("workload cluster of demo does not answer"),
        AccessUnavailableError("the secret is not to be had"),
        TooLargeError("more than 30000 pods"),
        RuntimeError("a bug of ours"),
    )

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_is_one_sentence_and_bounds_and_fences_go_on(self, error: Exception) -> None:
        made = house(error, demand="full", autoscaler="none")
        made.fail("a")
        made.run()
        assert {patch.plan.group.key for patch in made.cluster.applied} >= {key("a")}
        answer = made.ask("plan")["plan"]
        assert "demand" not in answer["pools"][0]
        said = answer["demand"]["unread"]
        assert said.startswith("the pods of the workload cluster are unknown, so Evenkeel plans nothing for them: ")
        assert (str(error) in said) == isinstance(error, EvenkeelError)

    def test_is_no_silence_of_the_cluster_and_no_news_either(self) -> None:
        made = house(ClusterUnavailableError("away"), demand="full", autoscaler="none")
        made.settle()
        asked = len(made.queue.requests)
        summary = made.looks()
        assert summary.metrics()["ClustersUnreachable"] == 0
        assert len(made.queue.requests) == asked
        assert "its pods are not read" in made.ask("status")["headline"]

    @pytest.mark.parametrize("seconds", [60.0, 20.0, 9.0])
    def test_one_that_hangs_leaves_the_time_for_a_patch(self, seconds: float) -> None:
        made = house(WAITING, demand="full", autoscaler="none")
        made.run(lambda: seconds)
        assert made.clusters.seconds_for_workload == seconds - 15

    def test_one_that_cannot_be_opened_is_the_same(self) -> None:
        made = house(WAITING)
        made.clusters.workloads["demo"] = ClusterUnavailableError("no such secret")
        assert "no such secret" in made.ask("plan")["plan"]["demand"]["unread"]

    def test_pods_that_nobody_here_can_judge_hold_up_no_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> object:
            raise ZeroDivisionError("a secret of the pod")

        monkeypatch.setattr(advice, "scale_up", broken)
        made = house(WAITING, demand="full", autoscaler="none")
        made.fail("a")
        made.run()
        assert {patch.plan.group.key for patch in made.cluster.applied} >= {key("a")}
        unread = made.ask("plan")["plan"]["demand"]["unread"]
        assert "ZeroDivisionError while it was judged" in unread
        assert "secret" not in unread

    def test_one_too_large_beside_others_is_looked_at_alone(self) -> None:
        made = house(TooLargeError("beside others"), demand="full", autoscaler="none")
        made.settle()
        made.register_another("second", made.cluster)
        made.looks("demo", "second")
        assert [chunk.clusters for chunk in made.queue.looks] == [("demo",)]


class TestTheRecord:
    def test_demand_is_off_unless_said_also_in_records_of_before(self) -> None:
        assert record().demand_stage is DemandStage.OFF
        assert record().policy().demand is DemandStage.OFF
        assert read_model(ClusterFile, {"demand": False}, "record").demand_stage is DemandStage.OFF

    @pytest.mark.parametrize("stage", ["scale-up", "full"])
    def test_two_autoscalers_are_refused_with_one_line(self, stage: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read_model(ClusterFile, {"demand": stage}, "record")
        (fault,) = caught.value.faults
        assert fault.startswith(f"record: demand is '{stage}': it needs autoscaler: none")
        assert read_model(ClusterFile, {"demand": stage, "autoscaler": "none"}, "record").demand_stage.orders

    def test_a_stage_that_there_is_not_is_named_with_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"demand is 'advice': no such stage.*did you mean advise"):
            read_model(ClusterFile, {"demand": "advice"}, "record")

    def test_where_pods_are_has_to_be_said(self) -> None:
        with pytest.raises(ConfigError) as caught:
            read_model(ClusterRecord, {**record().model_dump(exclude_none=True), "demand": "advise"}, "record")
        (fault,) = caught.value.faults
        assert fault.startswith("record: workload is missing: demand is advise: say where its pods are")

    @pytest.mark.parametrize(
        ("workload", "fault"),
        [
            ({"access": {"kind": "sam"}}, "workload.access.kind is 'sam': it is one of"),
            ({"access": {"kind": "eks", "name": "x"}}, "workload.access.region is missing"),
            ({"access": {"kind": "secret", "name": "x"}}, "workload.access.namespace is missing"),
            ({"access": {"kind": "same"}, "most_pods": 0}, "workload.most_pods is '0'"),
            ({}, "workload.access is missing"),
        ],
    )
    def test_each_fault_of_it_is_named_by_its_field(self, workload: dict[str, Any], fault: str) -> None:
        given = {**record().model_dump(exclude_none=True), "demand": "advise", "workload": workload}
        with pytest.raises(ConfigError) as caught:
            read_model(ClusterRecord, given, "record")
        (line,) = caught.value.faults
        assert line.startswith(f"record: {fault}")

    def test_it_is_stored_and_read_again_and_one_without_is_as_it_was(self) -> None:
        made = house(WAITING, workload={**SAME, "most_pods": 5})
        stored = made.store.load("demo").record
        assert stored.workload is not None
        assert (stored.demand_stage, stored.workload.most_pods) == (DemandStage.ADVISE, 5)
        plain = House()
        assert "demand" not in plain.store.text("demo", "META")
        assert "workload" not in plain.store.text("demo", "META")

    def test_what_a_newer_release_says_of_it_is_kept(self) -> None:
        made = house(WAITING)
        text = made.store.text("demo", "META")
        made.store.plant("demo", text.replace('"kind":"same"', '"kind":"same","later":1'))
        made.ask("pause")
        made.ask("resume")
        assert '"later": 1' in made.store.text("demo", "META")
        assert made.ask("plan")["plan"]["demand"]["fitAlready"] == 3
