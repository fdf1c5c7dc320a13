"""A fleet as files, and actions on many clusters at once: the real use cases, with the ports in memory."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evenkeel.adapters.documents import read_document
from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
)
from evenkeel.application.fleet.records import fleet_schema, read_fleet
from evenkeel.application.operate import answer_of_error
from evenkeel.domain.incidents.health import with_pending_changes
from evenkeel.domain.model.fleet import Selector, read_length
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import Workload
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError
from evenkeel_cli import stack_client
from evenkeel_cli.inputs import read_yaml
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, zones
from tests.fakes import FakeCluster, FakeWorkload, plenty
from tests.parts import replace
from tests.stack import Stack

ACCESS = {"kind": "kubeconfig", "secret": "evenkeel/one"}
DEMAND = {"demand": "full", "autoscaler": "none", "workload": {"access": {"kind": "same"}}}
POOLS = [{"name": "workers", "min": 3, "max": 12}]


def given(**fields: Any) -> dict[str, Any]:
    """Return a record as a file has it."""
    return {"flavours": ["cluster-api"], "access": ACCESS, "dry_run": False, "pools": POOLS, **fields}


class Fleet(Stack):
    """Three reachable clusters, none of them registered."""

    def __init__(self) -> None:
        super().__init__()
        self.store.remove_record("demo", self.store.load("demo").versions)
        for name in ("blue", "green", "red"):
            self.clusters.by_id[name] = FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3))

    def apply(self, options: Mapping[str, Any] | None = None, /, **records: Any) -> dict[str, dict[str, Any]]:
        return self.of_each(self.ask("apply", None, records=records, **(options or {})))

    def list(self, action: str, **fields: Any) -> dict[str, dict[str, Any]]:
        return self.of_each(self.ask(action, None, list=True, **fields))

    @staticmethod
    def of_each(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {cluster["cluster"]: cluster for cluster in answer["clusters"]}

    @property
    def registered(self) -> dict[str, Any]:
        return dict(self.store.registrations())

    def adopted(self, cluster: str) -> dict[Any, Any]:
        return {id: state.adopted for id, state in self.store.load(cluster).state.pools.items()}

    def clear_queue(self) -> None:
        self.queue.requests.clear()
        self.queue.second_checks.clear()

    def register_labelled(self) -> None:
        self.apply(
            blue=given(labels={"env": "prod"}, zone_ids={"euc1-az2": "eu-central-1a"}),
            green=given(labels={"env": "prod"}, zone_ids={"euc1-az2": "eu-central-1b"}),
            red=given(labels={"env": "test"}),
        )
        self.queue.requests.clear()

    def run_cluster(self, cluster: str) -> None:
        self.clock.at += MINUTE
        self.rebalance(cluster, "a test", plenty)

    def open_incident(self, cluster: str) -> None:
        """Register a cluster and report its incident to the bus."""
        self.apply(**{cluster: given()})
        self.clusters.by_id[cluster] = AccessError("closed")
        self.run_cluster(cluster)
        assert self.bus.types == ["Incident Opened"]
        self.clear_queue()

    def run_all_requested(self, cluster: str) -> None:
        """Carry out the requested runs, delayed ones included."""
        self.carry_out()
        later, self.queue.second_checks = self.queue.second_checks, []
        for requested, reason, _ in later:
            assert requested == cluster
            self.rebalance(requested, reason, plenty)


class _CutOff(BaseException):
    pass


def cut_off_after(patched: pytest.MonkeyPatch, fleet: Fleet, requests: int) -> None:
    """Answer this many requests to table and queue; the next one is not sent."""
    left = iter(range(requests))

    def counted(send: Callable[..., None]) -> Callable[..., None]:
        def sent(*given: Any) -> None:
            if next(left, None) is None:
                raise _CutOff
            send(*given)

        return sent

    patched.setattr(fleet.store, "_asked", counted(fleet.store._asked))
    for name in ("request", "check_again"):
        patched.setattr(fleet.queue, name, counted(getattr(fleet.queue, name)))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


class TestSelectors:
    @pytest.mark.parametrize(
        ("text", "labels", "selects"),
        [
            ("env=prod", {"env": "prod"}, True),
            ("env==prod", {"env": "test"}, False),
            ("env!=prod", {"env": "test"}, True),
            ("env!=prod", {}, True),
            ("team", {"team": ""}, True),
            ("team", {}, False),
            ("!team", {}, True),
            ("env=prod, !team", {"env": "prod", "team": "a"}, False),
            ("example.com/tier=gold", {"example.com/tier": "gold"}, True),
        ],
    )
    def test_every_term_must_hold(self, text: str, labels: dict[str, str], selects: bool) -> None:
        assert Selector.read(text).selects(labels) is selects

    @pytest.mark.parametrize("text", ["", ",", "=prod", "env=prod,", "env in (prod)", "a b", "env=prod=test", "!env=x"])
    def test_an_invalid_selector_is_refused_and_pauses_no_cluster(self, fleet: Fleet, text: str) -> None:
        fleet.register_labelled()
        assert fleet.refused("pause", cluster=None, selector=text).startswith("selector is ")
        assert not any(record.paused for record in fleet.registered.values())


@pytest.mark.parametrize(
    ("text", "minutes"), [("2h", 120), ("90m", 90), ("1d", 1440), ("1h30m", 90), ("1d2h", 1560), ("120s", 2)]
)
def test_durations_are_read(text: str, minutes: int) -> None:
    assert read_length(text) == minutes * MINUTE


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2h 5m", "1m1h", "367d", "999999s9", 7, None, "２h"])
def test_other_lengths_are_refused(text: object) -> None:
    with pytest.raises(BadValueError):
        read_length(text)


class TestLabels:
    def test_a_record_without_labels_is_stored_without_the_field(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(), green=given(labels={}), red=given(labels={"env": "prod"}))
        assert [name for name in fleet.registered if "labels" in fleet.store.text(name, "META")] == ["red"]

    @pytest.mark.parametrize(
        "labels", [{"a b": "x"}, {"a": "x y"}, {"": "x"}, {"a": "x,b=y"}, {"a": 1}, {"a" * 64: "x"}]
    )
    def test_a_label_that_no_selector_could_name_is_refused(self, fleet: Fleet, labels: dict[str, Any]) -> None:
        assert "labels" in fleet.apply(blue=given(labels=labels))["blue"]["message"]
        assert fleet.registered == {}

    def test_a_selector_leaves_out_and_reports_an_unreadable_record(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        fleet.store.save_checked_at(["red"], fleet.clock.now())
        assert fleet.ask("status", None, selector="env=test")["incident"] is False
        fleet.store.plant("bare", "{}")
        for action, fields in (("pause", {"list": True}), ("validate", {}), ("export", {}), ("status", {})):
            answer = fleet.ask(action, None, selector="env=test", **fields)
            assert answer["unknown"] == ["bare"]
            assert answer["message"].endswith("; left out, since their labels cannot be read: bare")
        assert (answer["counts"]["clusters"], answer["incident"]) == (1, True), "bare may be selected"
        assert "unknown" not in fleet.ask("status", None)
        assert set(fleet.list("pause", selector="env!=prod")) == {"red"}


class TestApply:
    def test_a_list_reports_changes_by_field_and_stores_nothing(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(), green=given())
        before = {name: fleet.store.text(name, "META") for name in ("blue", "green")}
        changed = given(scan_interval=120, pools=[{"name": "workers", "min": 3, "max": 20}])
        listed = fleet.list("apply", records={"blue": given(), "green": changed, "red": given()})
        assert [listed[name]["change"] for name in ("blue", "green", "red")] == ["same", "changed", "added"]
        assert listed["green"]["changes"] == [
            {"field": "pools.workers.max", "from": "12", "to": "20"},
            {"field": "scan_interval", "from": None, "to": "120"},
        ]
        assert {name: fleet.store.text(name, "META") for name in fleet.registered} == before

    def test_a_change_far_back_or_of_the_order_alone_is_a_change(self, fleet: Fleet) -> None:
        names = [f"name-{number}" for number in range(100)]
        pools = [{"name": "a", "selector": {"x": "1"}}, {"name": "b", "selector": {"x": "1"}}]
        fleet.apply(blue=given(names=names, pools=pools))
        listed = fleet.list("apply", records={"blue": given(names=[*names[:-1], "other"], pools=pools[::-1])})
        assert [change["field"] for change in listed["blue"]["changes"]] == ["pools (order)", "names"]
        fleet.apply(blue=given(names=names, pools=pools[::-1]))
        assert [entry.name for entry in fleet.store.load("blue").record.pool_entries] == ["b", "a"]

    def test_a_record_is_stored_checked_and_recorded_with_its_author_once(self, fleet: Fleet) -> None:
        fleet.ask("apply", None, records={"blue": given()}, by="jane", reason="ticket 7")
        assert fleet.queue.clusters == ["blue"]
        text = fleet.store.text("blue", "META")
        fleet.queue.requests.clear()
        assert fleet.apply(blue=given())["blue"]["change"] == "same"
        assert (fleet.store.text("blue", "META"), fleet.queue.clusters) == (text, [])
        (decision,) = fleet.ask("record", "blue")["decisions"]
        assert (decision["cause"], decision["by"], decision["reason"]) == ("apply", "jane", "ticket 7")

    def test_apply_keeps_pauses_and_restores_and_cannot_set_them(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.ask("pause", "blue", pool="workers")
        fleet.ask("pause", "blue")
        fleet.ask("restore", "blue", pool="workers")
        control = fleet.store.load("blue").control
        assert "still paused" in fleet.apply(blue=given(scan_interval=120))["blue"]["message"]
        assert fleet.store.load("blue").control == control
        assert "paused is not a field" in fleet.apply(blue=given(paused=False))["blue"]["message"]
        assert fleet.store.load("blue").control == control

    @pytest.mark.parametrize("registered", [False, True])
    def test_a_record_that_changed_since_the_list_is_not_overwritten(self, fleet: Fleet, registered: bool) -> None:
        if registered:
            fleet.apply(blue=given())
        before = fleet.list("apply", records={"blue": given(scan_interval=120)})["blue"]["before"]
        assert (before is not None) is registered
        fleet.ask("register", "blue", record=given(scan_interval=300))
        answer = fleet.apply({"before": {"blue": before}}, blue=given(scan_interval=120))["blue"]
        assert (answer["ok"], answer["retry"]) == (False, True)
        assert fleet.store.load("blue").record.scan_interval == 300

    def test_a_pause_since_the_list_is_no_change_of_the_record(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        before = fleet.list("apply", records={"blue": given()})["blue"]["before"]
        fleet.ask("pause", "blue")
        assert fleet.apply({"before": {"blue": before}}, blue=given())["blue"]["ok"]

    @pytest.mark.parametrize(
        ("closed", "says"),
        [
            (AccessError("secret evenkeel/one: there is none"), "there is none"),
            (ClusterUnavailableError("blue does not answer"), "gives no answer: blue does not answer"),
            (RuntimeError("token=abc"), "RuntimeError while its rights were asked for"),
        ],
    )
    def test_an_unreachable_cluster_is_not_stored_and_the_others_are(
        self, fleet: Fleet, closed: Exception, says: str
    ) -> None:
        fleet.clusters.by_id["blue"] = closed
        listed = fleet.list("apply", records={"blue": given(), "green": given()})
        assert says in listed["blue"]["faults"][0]
        answers = fleet.apply(blue=given(), green=given())
        assert says in answers["blue"]["message"]
        assert "token=abc" not in json.dumps([listed, answers])
        assert set(fleet.registered) == {"green"}
        assert fleet.apply({"verify": False}, blue=given())["blue"]["ok"]

    def test_missing_rights_are_named_and_those_of_a_writer_checked_where_it_writes(self, fleet: Fleet) -> None:
        cluster, missing = fleet.clusters.by_id["blue"], "it may not patch machines.cluster.x-k8s.io"
        cluster.rights_missing = [missing]
        assert fleet.apply(blue=given())["blue"]["message"] == f"blue is not stored: {missing}"
        cluster.rights_missing = []
        fleet.apply(blue=given(dry_run=True))
        fleet.apply(blue=given(access={"kind": "eks", "name": "one", "region": "eu-central-1"}))
        asked = [entry for entry in cluster.journal.entries if entry.startswith("rights")]
        assert asked == ["rights to write", "rights to check", "rights to check"]

    def test_similar_auto_scaling_groups_are_refused_because_the_stack_could_not_write_them(self, fleet: Fleet) -> None:
        access = {"kind": "auto-scaling", "region": "eu-central-1"}
        record = {"access": access, "dry_run": False, "pools": {"discover": "similar"}}
        for message in (
            fleet.apply(blue=record)["blue"]["message"],
            fleet.apply({"verify": False}, blue=record)["blue"]["message"],
            fleet.refused("register", cluster="blue", record=record),
        ):
            assert "pools: discover is similar, and a stack may write only Auto Scaling groups with tag" in message
        assert fleet.registered == {}
        fleet.ask("register", cluster="blue", record={**record, "pools": {"discover": "off"}})
        assert set(fleet.registered) == {"blue"}

    def test_a_record_with_demand_is_refused_beside_an_active_autoscaler(self, fleet: Fleet) -> None:
        record = given(**DEMAND)
        workload = fleet.clusters.workloads["blue"] = FakeWorkload(Workload(autoscaler_at=NOW - MINUTE))
        message = "blue is not stored: a cluster-autoscaler was active in the workload cluster at 2026-01-15T11:59:00Z"
        assert message in fleet.apply(blue=record)["blue"]["message"]
        assert message in fleet.refused("register", cluster="blue", record=record)
        assert fleet.apply(blue={**record, "demand": "advise"})["blue"]["ok"]
        assert message in fleet.apply(blue=record)["blue"]["message"]  # the access is unchanged
        workload.found = Workload(autoscaler_at=NOW - 6 * MINUTE)  # no longer active
        assert fleet.apply(blue=record)["blue"]["ok"]

    @pytest.mark.parametrize("error", [ClusterUnavailableError("dark"), AccessError("no secret"), KeyError("x")])
    def test_register_does_not_need_the_pods_and_apply_does(self, fleet: Fleet, error: Exception) -> None:
        fleet.clusters.workloads["blue"] = error
        assert fleet.ask("register", "blue", record=given(**DEMAND))["ok"]
        assert "blue is not stored" in fleet.apply(blue=given(**{**DEMAND, "demand": "scale-up"}))["blue"]["message"]

    def test_validate_names_a_missing_right_that_checks_do_not_need(self, fleet: Fleet) -> None:
        fleet.clusters.workloads["blue"] = FakeWorkload(Workload())
        fleet.apply(blue=given(**DEMAND))
        lease = "it may not get leases.coordination.k8s.io in namespace kube-system"
        fleet.clusters.by_id["blue"].rights_missing = [lease]
        answer = fleet.ask("validate", "blue")
        assert answer["refused"] == [lease]
        assert lease in answer["message"]

    def test_an_unchanged_access_is_not_verified(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.clusters.by_id["blue"] = ClusterUnavailableError("dark")
        assert fleet.apply(blue=given(scan_interval=120))["blue"]["ok"]

    def test_an_unreadable_record_is_replaced_as_a_whole(self, fleet: Fleet) -> None:
        fleet.store.plant("blue", "{}")
        listed = fleet.list("apply", records={"blue": given()})["blue"]
        assert (listed["change"], listed["changes"][0]["field"]) == ("changed", "the whole")
        assert fleet.apply({"before": {"blue": listed["before"]}}, blue=given())["blue"]["ok"]
        assert isinstance(fleet.registered["blue"].record, ClusterRecord)

    def test_a_bad_record_is_refused_and_the_others_are_stored(self, fleet: Fleet) -> None:
        answers = fleet.apply(blue=given(colour=1), green=given(id="red"), red=given())
        assert [answers[name]["ok"] for name in ("blue", "green", "red")] == [False, False, True]

    def test_a_sealed_token_is_never_shown(self, fleet: Fleet) -> None:
        sealed, ca = "QUJDREVGRw==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
        access = {"kind": "service-account", "endpoint": "https://blue.example.com", "ca_data": ca, "token": sealed}
        listed = fleet.list("apply", records={"blue": given(access=access)}, verify=False)["blue"]
        assert sealed not in json.dumps(listed)
        assert "access.token" in [change["field"] for change in listed["changes"]]

    def test_apply_repeated_after_a_kill_at_any_call_completes(self) -> None:
        whole = Fleet()
        whole.apply(blue=given(), green=given())
        for calls in range(40):
            fleet = Fleet()
            fleet.store.away_from = fleet.store.calls + calls
            with contextlib.suppress(StateUnavailableError):
                fleet.apply(blue=given(), green=given())
            fleet.store.away_from = None
            answers = fleet.apply(blue=given(), green=given())
            assert all(answer["ok"] for answer in answers.values())
            for name in ("blue", "green"):
                assert fleet.store.text(name, "META") == whole.store.text(name, "META")
            assert set(fleet.queue.clusters) >= {"blue", "green"}, calls


class TestUnregister:
    def test_a_cluster_without_writes_is_unregistered_and_a_repeat_succeeds(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(dry_run=True))
        fleet.run_cluster("blue")
        first = fleet.ask("unregister", "blue")
        assert fleet.registered == {}
        assert fleet.store.due("0").registrations == fleet.store.due("1").registrations == []
        for _ in range(2):
            again = fleet.ask("unregister", "blue")
            assert (again["ok"], again["done"], again["message"]) == (True, False, "blue is not registered any more")
            assert again["message"] in first["message"]
        answers = fleet.of_each(fleet.ask("unregister", None, clusters=["blue", "nobody"]))
        assert {cluster: answer["ok"] for cluster, answer in answers.items()} == {"blue": True, "nobody": False}
        listed = fleet.ask("unregister", None, clusters=["blue"], list=True)
        assert (listed["clusters"], listed["untouched"]) == ([], 1)

    def test_a_cluster_with_written_bounds_is_unregistered_once_restored(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.run_cluster("blue")
        listed = fleet.list("unregister", clusters=["blue"])["blue"]
        assert listed["message"] == "blue: Evenkeel's bounds are still set in pool workers"
        refusal = fleet.refused("unregister", cluster="blue")
        assert refusal.startswith(
            "blue is not unregistered: Evenkeel's bounds are still set in pool workers: restore it first"
        )
        fleet.ask("restore", "blue")
        assert "restore it first" in fleet.refused("unregister", cluster="blue")
        cluster = fleet.clusters.by_id["blue"]
        for key in list(cluster.groups):  # restored: the former bounds are back, and the annotations are gone
            cluster.change(key, bounds=Bounds(1, 9), has_adopted=False, adopted=None, published=None, move=None)
        fleet.run_cluster("blue")
        fleet.ask("unregister", "blue")
        assert fleet.registered == {}

    def test_force_leaves_the_bounds_and_keeps_the_adopted_ones_for_a_new_record(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.run_cluster("blue")
        adopted = fleet.adopted("blue")
        assert "bounds of ours stay in pool workers" in fleet.ask("unregister", "blue", force=True)["message"]
        fleet.apply(blue=given())
        assert fleet.adopted("blue") == adopted

    def test_a_running_run_makes_the_operator_retry(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(dry_run=True))
        fleet.store.take_lease("blue", "a run", fleet.store.load("blue").fencing_token, NOW, NOW + MINUTE)
        with pytest.raises(EvenkeelError) as caught:
            fleet.ask("unregister", "blue")
        assert answer_of_error(caught.value)["retry"] is True
        assert set(fleet.registered) == {"blue"}

    def test_a_run_that_planned_before_it_writes_nothing_after_it(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.store.before_write.append(lambda _key: fleet.ask("unregister", "blue"))  # the run takes its lease
        with pytest.raises(EvenkeelError):
            fleet.run_cluster("blue")
        assert fleet.clusters.by_id["blue"].applied == []

    def test_a_run_during_it_keeps_the_cluster_registered(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        fleet.apply(blue=given())

        def answer_late(*_requested: object) -> None:
            monkeypatch.undo()
            fleet.run_cluster("blue")

        monkeypatch.setattr(fleet.queue, "check_again", answer_late)
        with pytest.raises(StateConflictError):
            fleet.ask("unregister", "blue")
        assert fleet.clusters.by_id["blue"].applied
        assert set(fleet.registered) == {"blue"}

    def test_an_opened_incident_is_closed_wherever_the_invocation_is_killed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ends = set()
        for requests in range(20):
            fleet = Fleet()
            fleet.open_incident("blue")
            with monkeypatch.context() as patched:
                cut_off_after(patched, fleet, requests)
                with contextlib.suppress(_CutOff):
                    fleet.ask("unregister", "blue")
                    ends.add("whole")
            fleet.run_all_requested("blue")
            is_gone = fleet.registered == {}
            assert fleet.bus.types == ["Incident Opened", *(["Incident Closed"] if is_gone else [])], requests
            ends.add("gone" if is_gone else "stayed")
        assert ends == {"whole", "gone", "stayed"}

    @pytest.mark.parametrize("away", [timedelta(hours=5), None])
    def test_a_bus_that_is_away_is_retried_with_growing_delays_for_a_day(
        self, fleet: Fleet, away: timedelta | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        fleet.open_incident("blue")
        fleet.ask("unregister", "blue")
        fleet.queue.requests.clear()  # one of its two runs; the other is enough
        began, times = fleet.clock.at, 0
        while fleet.queue.second_checks:
            ((_, reason, seconds),) = fleet.queue.second_checks
            fleet.queue.second_checks.clear()
            fleet.clock.at += timedelta(seconds=seconds)
            fleet.bus.away = away is None or fleet.clock.at < began + away
            fleet.rebalance("blue", reason, plenty)
            times += 1
            assert times < 110
        lasted = fleet.clock.at - began
        if away is None:
            assert timedelta(days=1) <= lasted < timedelta(days=1, hours=1)
            assert caplog.text.count("the bus has not accepted it for a day: unregister it again") == 1
            fleet.bus.away = False
            fleet.ask("unregister", "blue")
            fleet.carry_out()
        else:
            assert lasted < away + timedelta(minutes=16)
        assert fleet.bus.types == ["Incident Opened", "Incident Closed"]

    def test_incidents_that_exceed_the_outbox_are_all_opened_and_closed(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        incidents = [
            Incident(kind=kind, pool=f"pool-{number}", since=NOW)
            for number in range(30)
            for kind in (IncidentKind.MISSING, IncidentKind.CONTESTED)
        ]
        pending = with_pending_changes(ClusterHealth().with_incidents(incidents))
        fleet.store.save_cluster_health("blue", pending, None)
        fleet.ask("unregister", "blue")
        fleet.queue.requests.clear()  # killed before it requested a run
        for _ in range(3):
            fleet.run_all_requested("blue")
        opened, closed = (
            {detail["key"] for kind, detail in fleet.bus.published if kind == f"Incident {change}"}
            for change in ("Opened", "Closed")
        )
        assert len(opened) == 60
        assert closed == opened
        assert fleet.queue.second_checks == []

    @pytest.mark.parametrize("scope", [{"clusters": ["blue"]}, {"cluster": "blue"}])
    def test_the_run_that_closes_its_incidents_comes_after_the_invocation(
        self, fleet: Fleet, scope: dict[str, Any]
    ) -> None:
        fleet.open_incident("blue")
        fleet.operate({"action": "unregister", **scope}, lambda: 60.0)
        ((_, _, seconds),) = fleet.queue.second_checks
        assert seconds > 60
        assert "blue is not registered: Evenkeel closes its incidents now" in fleet.ask("unregister", "blue")["message"]

    def test_an_unreadable_record_needs_force_and_an_unknown_id_is_refused(self, fleet: Fleet) -> None:
        fleet.store.plant("bare", "{}")
        assert "is unknown" in fleet.refused("unregister", cluster="bare")
        assert "did you mean bare?" in fleet.refused("unregister", cluster="baer")
        fleet.ask("unregister", "bare", force=True)
        assert fleet.registered == {}


ZONE = {"zone_id": "euc1-az2", "for": "2h"}


class TestSeveral:
    def test_a_selector_pauses_the_clusters_it_selects(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        answers = fleet.of_each(fleet.ask("pause", None, selector="env=prod", **{"for": "2h"}, reason="az out"))
        assert set(answers) == {"blue", "green"}
        ends = {name: record.paused_until for name, record in fleet.registered.items()}
        assert ends == {"blue": NOW + 120 * MINUTE, "green": NOW + 120 * MINUTE, "red": None}
        assert fleet.ask("status", "blue")["actions"][0]["reason"] == "az out"

    def test_a_list_changes_nothing_and_leaves_out_unaffected_clusters(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        fleet.ask("pause", "red")
        listed = fleet.ask("resume", None, all=True, list=True)
        assert [found["message"] for found in listed["clusters"]] == ["red: it is still paused"]
        assert listed["untouched"] == 2
        assert fleet.registered["red"].paused is True

    def test_a_zone_id_fences_the_zone_name_of_each_cluster(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        listed = fleet.list("fence-zone", all=True, **ZONE)
        assert [item["message"] for item in listed.values()] == [
            "blue: zone eu-central-1a",
            "green: zone eu-central-1b",
        ]
        fleet.ask("fence-zone", None, clusters=list(listed), **ZONE)
        fenced = {name: dict(fleet.store.load(name).state.zones) for name in fleet.registered}
        end = NOW + 120 * MINUTE
        assert fenced == {"blue": {"eu-central-1a": end}, "green": {"eu-central-1b": end}, "red": {}}

    def test_an_unreachable_cluster_is_listed_with_its_error(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        fleet.clusters.by_id["red"] = ClusterUnavailableError("red does not answer")
        listed = fleet.list("fence-zone", all=True, **ZONE)
        assert {name: item["ok"] for name, item in listed.items()} == {"blue": True, "green": True, "red": False}
        assert "red does not answer" in listed["red"]["message"]

    def test_a_fence_of_0m_lifts_it(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        for lasting in ("2h", "0m"):
            fleet.clock.at += MINUTE
            fleet.ask("fence-zone", "blue", zone_id="euc1-az2", **{"for": lasting})
            ends = fleet.store.load("blue").state.zones.get("eu-central-1a", NOW)
            assert (ends > fleet.clock.at) is (lasting == "2h")
        assert "more than nothing" in fleet.refused("pause", cluster="blue", **{"for": "0m"})

    def test_a_zone_name_comes_from_aws_for_this_account_and_else_from_nodes(self, fleet: Fleet) -> None:
        fleet.apply(
            blue=given(region="eu-central-1"),
            green=given(region="eu-central-1", account="210987654321"),
            red=given(region="eu-central-1", event_accounts=["210987654321"]),
        )
        fleet.operate = replace(fleet.operate, zone_names=lambda region: {"euc1-az2": f"{region}a"})
        fleet.clusters.by_id["green"].ids = {"euc1-az2": "eu-central-1c"}
        listed = fleet.list("fence-zone", all=True, **ZONE)
        messages = [item["message"] for item in listed.values()]
        assert messages == ["blue: zone eu-central-1a", "green: zone eu-central-1c"]
        assert "name it in its zone_ids" in fleet.refused("fence-zone", cluster="red", **ZONE)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"selector": "env=prod", "cluster": "blue"}, "name clusters by one of the two"),
            ({"selector": "env=prod", "all": True}, "name clusters by one of the two"),
            ({"all": "yes"}, "neither true nor false"),
            ({"clusters": "blue"}, "list the clusters' ids"),
            ({"clusters": []}, "list the clusters' ids"),
            ({"clusters": [7]}, "list the clusters' ids"),
            ({"cluster": "blue", "list": True}, "list goes with"),
            ({}, "name the cluster's id"),
            ({"cluster": "*"}, "is not registered"),
            ({"cluster": "blue", "for": "soon"}, "for is 'soon'"),
            ({"cluster": "blue", "for": "1h", "until": "2030-01-01T00:00:00Z"}, "name one of the two"),
            ({"cluster": "blue", "lasting": "1h"}, "'lasting' is no field"),
            ({"cluster": "blue", "reason": "a\nb"}, "reason is "),
        ],
    )
    def test_an_ambiguous_scope_or_bad_field_is_refused(self, fleet: Fleet, fields: dict[str, Any], says: str) -> None:
        fleet.register_labelled()
        assert says in fleet.refused("pause", **{"cluster": None, **fields})
        assert not any(record.paused for record in fleet.registered.values())

    def test_clusters_without_time_left_are_named_and_unchanged(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        assert fleet.operate({"action": "pause", "all": True}, lambda: 0.5)["left"] == ["blue", "green", "red"]
        assert not any(record.paused for record in fleet.registered.values())

    def test_reading_takes_no_reason_and_cannot_list_an_action(self, fleet: Fleet) -> None:
        fleet.register_labelled()
        assert "'reason' is no field" in fleet.refused("status", cluster="blue", reason="x")
        with pytest.raises(EvenkeelError):
            fleet.operate.read({"action": "pause", "all": True, "list": True}, plenty)


class TestHistory:
    def test_operator_actions_of_all_clusters_are_in_one_order_without_runs(self, laptop: "Laptop") -> None:
        fleet = laptop.fleet
        fleet.register_labelled()
        for minute, (cluster, action) in enumerate((("red", "pause"), ("blue", "pause"), ("red", "resume")), 1):
            fleet.clock.at = NOW + minute * MINUTE
            fleet.ask(action, cluster, by="jane", reason="ticket 7")
        fleet.run_cluster("green")
        lines = laptop.run("history", "--since", "2026-01-15T12:00:30Z").stdout.splitlines()
        assert [line.split(": ")[0] for line in lines] == [
            "2026-01-15T12:01:00Z red pause by jane (ticket 7)",
            "2026-01-15T12:02:00Z blue pause by jane (ticket 7)",
            "2026-01-15T12:03:00Z red resume by jane (ticket 7)",
        ]
        assert len(fleet.ask("history", None, selector="env=prod")["clusters"]) == 2

    def test_history_follows_pages_and_outlives_the_registration(self, fleet: Fleet) -> None:
        fleet.store.page = 2
        fleet.apply(blue=given(dry_run=True))
        for _ in range(5):
            fleet.clock.at += MINUTE
            fleet.ask("pause", "blue")
        fleet.ask("unregister", "blue", by="jane")
        causes = [entry["cause"] for entry in fleet.ask("history", "blue")["actions"]]
        assert causes == ["apply", *["pause"] * 5, "unregister"]
        assert "not registered" in fleet.refused("history", cluster="bleu")


class TestFiles:
    def read(self, **files: Any) -> dict[str, Any]:
        return read_fleet(list(files), lambda name: files[name], lambda _, path: path)

    def test_cluster_precedes_labels_and_defaults_and_they_precede_includes(self) -> None:
        found = self.read(
            common={"defaults": {"flavours": ["gardener"], "scan_interval": 120, "labels": {"by": "common", "a": "1"}}},
            prod={
                "include": ["common"],
                "labels": {"env": "prod"},
                "defaults": {"access": {"kind": "kubeconfig", "secret": "s"}, "labels": {"a": "2"}},
                "clusters": [{"id": "blue", "labels": {"a": "3"}}, {"id": "green", "scan_interval": None}],
            },
        )
        assert found["blue"]["labels"] == {"by": "common", "a": "3", "env": "prod"}
        assert found["green"]["labels"] == {"by": "common", "a": "2", "env": "prod"}
        assert (found["blue"]["scan_interval"], "scan_interval" in found["green"]) == (120, False)

    def test_entries_of_the_clock_come_from_defaults_unless_the_cluster_has_its_own(self) -> None:
        rush = {"from": "08:00", "until": "10:00", "time_zone": "Europe/Berlin", "min": 9}
        defaults = {"flavours": ["cluster-api"], "access": ACCESS, "minimum_at": [rush]}
        clusters = [{"id": "a"}, {"id": "b", "minimum_at": [{**rush, "min": 3}]}, {"id": "c", "minimum_at": []}]
        found = self.read(one={"defaults": defaults, "clusters": clusters})
        minima = {id: [entry["min"] for entry in record["minimum_at"]] for id, record in found.items()}
        assert minima == {"a": [9], "b": [3], "c": []}

    def test_a_cluster_can_switch_off_discovery_and_keep_default_rules(self) -> None:
        pools = {"discover": "similar", "rules": [{"name": "p", "min": 1, "max": 9}]}
        defaults = {"flavours": ["cluster-api"], "access": ACCESS, "pools": pools}
        clusters = [{"id": "a"}, {"id": "b", "pools": {"discover": "off"}}]
        found = self.read(one={"defaults": defaults, "clusters": clusters})
        assert found["a"]["pools"] == pools
        assert found["b"]["pools"] == {**pools, "discover": "off"}

    def test_an_access_of_another_kind_replaces_the_default_and_the_same_completes_it(self) -> None:
        defaults = {"flavours": ["cluster-api"], "access": {"kind": "eks", "region": "eu-central-1"}}
        clusters = [{"id": "a", "access": {"name": "a"}}, {"id": "b", "access": ACCESS}]
        found = self.read(one={"defaults": defaults, "clusters": clusters})
        assert found["a"]["access"] == {"kind": "eks", "region": "eu-central-1", "name": "a"}
        assert found["b"]["access"] == ACCESS

    @pytest.mark.parametrize(
        ("below", "above"), [("strategy", "sizing"), ("sizing", "strategy"), ("sizing", "sizingStrategy")]
    )
    def test_both_names_of_the_strategy_field_replace_each_other(self, below: str, above: str) -> None:
        defaults = {"flavours": ["gardener"], "access": ACCESS, below: "Adaptive"}
        found = self.read(one={"defaults": defaults, "clusters": [{"id": "a", above: "Lax-Greedy"}]})
        assert found["a"]["strategy"] == "Lax-Greedy"

    def test_every_fault_is_reported_with_its_file(self) -> None:
        with pytest.raises(ConfigError) as caught:
            self.read(
                one={"clusters": [{"id": "a", **given()}, {"id": "a", **given()}, {"id": "b"}, {**given()}]},
                two={"clusters": [{"id": "a", **given()}], "colour": 1},
                three={"include": ["four"]},
                four={"include": ["three"]},
                five={"defaults": {"id": "x"}},
            )
        for fault in (
            "one: cluster a is in one too: keep one of the two",
            "one: cluster b: flavours is missing",
            "one: cluster 4: id is missing",
            "two: colour is not a field",
            "it includes itself",
            "five: defaults.id",
        ):
            assert fault in "\n".join(caught.value.faults)

    def test_includes_in_a_diamond_are_read_once(self) -> None:
        names: list[str] = []
        files: dict[str, Any] = {f"f{n}": {"include": [f"f{n + 1}", f"f{n + 1}"]} for n in range(60)}
        files["f60"] = {"clusters": [{"id": "a", **given()}]}

        def read(name: str) -> Any:
            names.append(name)
            return files[name]

        assert set(read_fleet(["f0"], read, lambda _, path: path)) == {"a"}
        assert len(names) == len(files)


class Laptop:
    """The command line, which calls the fleet's use cases."""

    def __init__(self, fleet: Fleet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet, self.folder = fleet, folder
        self.events: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], object] | None = None  # another operator's action after the list
        monkeypatch.setattr(stack_client, "ask", self.answer)

    def answer(self, _stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
        self.events.append(json.loads(json.dumps(event)))
        if self.meanwhile is not None and event["action"] in ("apply", "unregister") and not event.get("list"):
            act, self.meanwhile = self.meanwhile, None
            act()
        try:
            return self.fleet.operate(event, plenty)
        except (EvenkeelError, ConfigError) as error:
            return answer_of_error(error)

    def write(self, name: str, **clusters: Any) -> None:
        listed = [{"id": id, **record} for id, record in clusters.items()]
        (self.folder / name).write_text(json.dumps({"clusters": listed}), encoding="utf-8")

    def write_text(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return file

    def apply(self, *options: str, stdin: str = "") -> Result:
        return self.run("apply", "-f", str(self.folder), *options, stdin=stdin)

    def run_in_folder(self, command: str) -> Result:
        return self.run(*(word.format(self.folder) for word in command.split()))

    def run(self, *arguments: str, stdin: str = "") -> Result:
        result = CliRunner().invoke(app, [arguments[0], "--stack", "evenkeel", *arguments[1:]], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result

    def asked(self, action: str, *, lists: bool = False) -> list[dict[str, Any]]:
        return [event for event in self.events if event["action"] == action and event.get("list", False) is lists]


@pytest.fixture
def laptop(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    return Laptop(fleet, tmp_path, monkeypatch)


class TestCommands:
    def test_an_empty_file_name_does_not_apply_the_working_directory(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.write("a.json", blue=given())
        monkeypatch.chdir(laptop.folder)
        ran = laptop.run("apply", "-f", "", "--prune", "--yes")
        assert (ran.exit_code, laptop.events) == (2, [])
        assert ran.stderr == "evenkeel: a file is '': name it, or - for standard input\n"

    def test_an_unreadable_path_is_bad_input(self, laptop: Laptop) -> None:
        laptop.write_text("a.json", json.dumps({"include": ["b\0c"]}))
        ran = laptop.apply()
        assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
        assert ": cannot be read: embedded null byte" in ran.stderr
        ran = laptop.run("apply", "-f", "x" * 5000)
        assert ran.exit_code == 2
        assert "xx: cannot be read: " in ran.stderr

    @pytest.mark.parametrize("of_folder", [False, True])
    @pytest.mark.parametrize("how", ["up", "absolute", "link", "link to a folder", "by way of another", "link beside"])
    def test_a_file_outside_of_the_folder_is_not_read(self, laptop: Laptop, how: str, of_folder: bool) -> None:
        secret = laptop.folder / "secret" / "token.yaml"
        fleet = laptop.folder / "fleet"
        for folder in (secret.parent, fleet, fleet / "eu"):
            folder.mkdir()
        secret.write_text("swordfish: swordfish\n", encoding="utf-8")
        (fleet / "link.yaml").symlink_to(secret)
        (fleet / "folder").symlink_to(secret.parent) if how == "link to a folder" else None
        paths = {"up": "../secret/token.yaml", "absolute": str(secret), "link": "link.yaml"}
        paths |= {"link to a folder": "folder/token.yaml", "by way of another": "eu/b.json", "link beside": "eu/c.json"}
        laptop.write_text("fleet/a.json", json.dumps({"include": [paths[how]]}))
        laptop.write_text("fleet/eu/b.json", json.dumps({"include": ["../../secret/token.yaml"]}))
        laptop.write_text("fleet/eu/c.json", "{}")
        ran = laptop.run("apply", "-f", str(fleet if of_folder else fleet / "a.json"), "--diff")
        if how == "link beside" and not of_folder:
            assert (ran.exit_code, "there is no cluster in it" in ran.stderr) == (2, True)
            return
        assert (ran.exit_code, laptop.events) == (2, [])
        outside = f"it is outside of {fleet}: keep the files of a fleet in one folder"
        assert outside in ran.stderr or "a link to a folder is not followed" in ran.stderr
        assert "swordfish" not in ran.output

    def test_a_file_in_the_folder_may_be_included_from_a_subfolder(self, laptop: Laptop) -> None:
        (laptop.folder / "eu").mkdir()
        (laptop.folder / "linked.yaml").symlink_to(laptop.write_text("common.yaml", json.dumps({"defaults": given()})))
        laptop.write_text("eu/a.json", json.dumps({"include": ["../linked.yaml"], "clusters": [{"id": "blue"}]}))
        assert laptop.apply("--yes").exit_code == 0
        assert laptop.fleet.store.registered("blue") is not None

    @pytest.mark.parametrize("text", ["swordfish", "[swordfish]", '"swordfish: 7"', "- a: swordfish", "swordfish: ["])
    def test_a_file_that_is_not_of_a_fleet_is_not_quoted(self, laptop: Laptop, text: str) -> None:
        file = laptop.write_text("a.yaml", text)
        ran = laptop.apply()
        assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
        assert f"{file}: " in ran.stderr
        assert "swordfish" not in ran.stderr

    @pytest.mark.parametrize(
        ("cluster", "error"), [("nobody", "cluster 'nobody' is not registered"), ("", "clusters is ")]
    )
    def test_live_of_an_unknown_cluster_is_a_one_line_error(self, laptop: Laptop, cluster: str, error: str) -> None:
        laptop.fleet.register_labelled()
        ran = laptop.run("live", "--cluster", cluster, "--yes")
        assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert ran.stderr.startswith(f"evenkeel: {error}")

    def test_live_dry_run_reports_as_json(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(dry_run=None), green=given(dry_run=True))
        laptop.fleet.operate = replace(laptop.fleet.operate, dry_run=True)
        ran = laptop.run("live", "--all", "--force", "--dry-run", "-o", "json")
        answers = {cluster["cluster"]: cluster["ok"] for cluster in json.loads(ran.stdout)["clusters"]}
        assert (ran.exit_code, answers) == (0, {"blue": True, "green": False})

    def test_a_folder_is_applied_once_the_diff_is_confirmed(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.write("a.json", blue=given())
        laptop.write("b.yaml", green=given())
        refused = laptop.apply()
        assert (refused.exit_code, "say --yes" in refused.stderr) == (2, True)
        monkeypatch.setattr("evenkeel_cli.terminal.has_terminal", lambda: True)
        assert laptop.apply(stdin="n\n").exit_code == 2
        assert laptop.fleet.registered == {}
        done = laptop.apply(stdin="y\n")
        assert (done.exit_code, set(laptop.fleet.registered)) == (0, {"blue", "green"})
        assert "+ blue\n    id: blue\n" in done.stdout
        again = laptop.apply()
        assert (again.exit_code, again.stdout) == (0, "2 clusters as in the files\n")

    def test_prune_alone_unregisters_what_no_file_names_and_needs_a_cluster(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given(), red=given(labels={"team": "b"}))
        laptop.write("one.yaml", blue=given())
        assert "green: in no file; --prune unregisters it" in laptop.apply("--yes").stdout
        assert len(laptop.fleet.registered) == 3
        laptop.apply("--prune", "--selector", "!team", "--yes")
        laptop.apply("--prune", "--diff")
        laptop.write_text("one.yaml", "clusters: []\n")
        assert laptop.apply("--prune", "--yes").exit_code == 2
        assert set(laptop.fleet.registered) == {"blue", "red"}

    def test_nothing_is_pruned_while_a_record_is_not_stored(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), red=given())
        laptop.write("one.yaml", green=given(), red=given(scan_interval=120))
        laptop.meanwhile = lambda: laptop.fleet.apply(red=given(scan_interval=300))
        done = laptop.apply("--prune", "--yes")
        assert (done.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green", "red"})
        assert "nothing is unregistered while a record is not stored: apply once more" in done.stderr
        assert laptop.apply("--prune", "--yes").exit_code == 0
        assert set(laptop.fleet.registered) == {"green", "red"}

    @pytest.mark.parametrize("command", ["apply -f {} --prune --yes", "unregister --selector team=data --yes"])
    def test_a_cluster_that_changed_since_the_list_is_not_unregistered(self, laptop: Laptop, command: str) -> None:
        labels = {"team": "data"}
        laptop.write("mine.json", blue=given())
        laptop.fleet.apply(blue=given(), green=given(labels=labels), red=given(labels=labels))
        theirs = {"green": given(labels=labels, scan_interval=120), "teal": given(labels=labels)}
        laptop.meanwhile = lambda: laptop.fleet.apply({"verify": False}, **theirs)
        ran = laptop.run_in_folder(command)
        assert (ran.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green", "teal"})
        assert "green is not as it was shown: another writer changed it at the same time" in ran.output
        assert laptop.fleet.registered["green"].scan_interval == 120

    @pytest.mark.parametrize("command", ["apply -f {} --prune --yes", "unregister --all --yes"])
    def test_a_cluster_that_could_not_be_listed_is_not_unregistered(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        fleet = laptop.fleet
        laptop.write("one.json", blue=given())
        fleet.apply(blue=given(), green=given(), red=given())
        load = fleet.store.load

        def fail_once(cluster: str, **options: Any) -> Any:
            if cluster == "green":
                monkeypatch.setattr(fleet.store, "load", load)
                raise StateUnavailableError("throttled")
            return load(cluster, **options)

        monkeypatch.setattr(fleet.store, "load", fail_once)
        ran = laptop.run_in_folder(command)
        assert (ran.exit_code, "throttled" in ran.output, "green" in fleet.registered) == (1, True, True)
        assert "red" not in fleet.registered

    @pytest.mark.parametrize("dies_at", range(1, 18))
    def test_prune_repeated_after_a_kill_at_any_call_completes(self, laptop: Laptop, dies_at: int) -> None:
        fleet = laptop.fleet
        fleet.apply(blue=given(), green=given())
        laptop.write("one.yaml", green=given(scan_interval=120), red=given())
        fleet.store.away_from = fleet.store.calls + dies_at
        laptop.apply("--prune", "--yes")
        fleet.store.away_from = None
        fleet.clock.at += MINUTE
        assert laptop.apply("--prune", "--yes").exit_code == 0
        assert {id: one.scan_interval for id, one in fleet.registered.items()} == {"green": 120, "red": "auto"}
        assert laptop.apply("--prune", "--yes").stdout == "2 clusters as in the files\n"

    def test_prune_needs_force_for_a_cluster_with_written_bounds(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given())
        laptop.fleet.run_cluster("green")
        laptop.write("one.yaml", blue=given())
        done = laptop.apply("--prune", "--yes")
        assert (done.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green"})
        assert "restore it first" in done.stderr
        laptop.apply("--prune", "--force", "--yes")
        assert set(laptop.fleet.registered) == {"blue"}

    @pytest.mark.parametrize("place", ["", "a.yaml"], ids=["in the folder", "included"])
    def test_a_named_pipe_is_refused_and_not_opened(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        def read(name: str) -> object:
            assert Path(name).is_file(), "it would wait for a writer"
            return read_yaml(name)

        monkeypatch.setattr("evenkeel_cli.fleet.read_yaml", read)
        pipe = laptop.folder / "pipe.yaml"
        os.mkfifo(pipe)
        laptop.write_text("a.yaml", "include: [pipe.yaml]\n")
        ran = laptop.run("apply", "-f", str(laptop.folder / place), "--diff")
        assert ran.exit_code == 2
        assert ran.stderr == f"evenkeel: {pipe}: it is no regular file: remove it, or write a file in its place\n"

    def test_a_folder_with_an_unreadable_part_is_an_error_and_prunes_nothing(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given())
        laptop.write("one.yaml", blue=given())
        elsewhere = laptop.folder / ".elsewhere"
        elsewhere.mkdir()
        for name, target, error in (
            ("two.yaml", elsewhere / "gone.yaml", "cannot be read: No such file"),
            ("two", elsewhere, "a link to a folder is not followed"),
        ):
            link = laptop.folder / name
            link.symlink_to(target)
            done = laptop.apply("--prune", "--force", "--yes")
            assert (done.exit_code, done.stderr.startswith(f"evenkeel: {link}: {error}")) == (2, True)
            link.unlink()
        assert set(laptop.fleet.registered) == {"blue", "green"}

    @pytest.mark.parametrize(
        "text",
        [
            "clusters: [{id: blue}]\nclusters: [{id: green}]\n",
            "clusters:\n- id: blue\n  id: green\n",
            '{\n\t"clusters": [],\n\t"labels": {"a": "1", "a": "2"}}',
        ],
    )
    def test_a_duplicate_key_is_an_error(self, laptop: Laptop, text: str) -> None:
        laptop.write_text("one.yaml", text)
        done = laptop.apply("--prune", "--force", "--yes")
        assert (done.exit_code, "occurs twice" in done.stderr) == (2, True)

    def test_one_fault_and_nothing_is_stored(self, laptop: Laptop) -> None:
        laptop.fleet.clusters.by_id["green"] = AccessError("closed")
        laptop.write("one.yaml", blue=given(), green=given())
        failed = laptop.apply("--yes")
        assert (failed.exit_code, failed.stderr) == (2, "evenkeel: green: closed\n")
        assert laptop.fleet.registered == {}
        assert laptop.apply("--yes", "--no-verify").exit_code == 0

    def test_records_go_in_as_few_events_as_hold_them(self, laptop: Laptop) -> None:
        clusters = [f"c{number:03}" for number in range(300)]
        laptop.fleet.clusters.by_id.update({cluster: FakeCluster([]) for cluster in clusters})
        laptop.write("one.yaml", **dict.fromkeys(clusters, given(names=["n" * 200] * 8)))
        assert laptop.apply("--yes").exit_code == 0
        sizes = [len(json.dumps(event["records"])) for event in laptop.asked("apply")]
        assert 1 < len(sizes) < 6
        assert max(sizes) <= 210_000
        assert set(laptop.fleet.registered) == set(clusters)

    def test_an_export_is_applied_unchanged_and_has_its_schema_beside_it(self, laptop: Laptop) -> None:
        laptop.fleet.register_labelled()
        out = laptop.folder / "all.yaml"
        assert laptop.run("export", "--out", str(out)).exit_code == 0
        assert out.read_text().startswith("# yaml-language-server: $schema=fleet.schema.json\n")
        assert json.loads((laptop.folder / "fleet.schema.json").read_text()) == fleet_schema()
        again = laptop.apply()
        assert (again.exit_code, again.stdout) == (0, "3 clusters as in the files\n")

    @pytest.mark.parametrize("options", [[], ["--live"]])
    def test_status_reports_an_incident_for_unreadable_labels(self, laptop: Laptop, options: list[str]) -> None:
        laptop.fleet.register_labelled()
        laptop.fleet.store.save_checked_at(["blue", "green"], laptop.fleet.clock.now())
        command = ("status", "--selector", "env=prod", *options)
        assert laptop.run(*command).exit_code == 0
        laptop.fleet.store.plant("bare", "{}")
        assert laptop.run(*command).exit_code == 4

    @pytest.mark.parametrize(
        ("options", "code", "clusters", "error"),
        [
            (["--selector", "env=prod"], 0, 2, "left out, since their labels cannot be read: bare"),
            ([], 2, 3, "record of cluster bare"),
        ],
    )
    def test_export_names_an_unreadable_record(
        self, laptop: Laptop, options: list[str], code: int, clusters: int, error: str
    ) -> None:
        laptop.fleet.register_labelled()
        laptop.fleet.store.plant("bare", "{}")
        ran = laptop.run("export", *options)
        assert (ran.exit_code, len(read_document(ran.stdout)["clusters"])) == (code, clusters)
        assert error in ran.stderr

    @pytest.mark.parametrize("command", [["status"], ["pause", "--yes"], ["unregister", "--force", "--yes"]])
    def test_a_cluster_of_release_0_1_0_is_one_line(self, laptop: Laptop, command: list[str]) -> None:
        laptop.fleet.store.plant("old", "{}", has_form=False)
        ran = laptop.run(*command, "--cluster", "old")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.startswith("evenkeel: cluster old: its items are of release 0.1.0")

    @pytest.mark.parametrize("action", ["status", "validate", "history", "readiness", "export"])
    def test_a_selector_without_clusters_is_an_error(self, laptop: Laptop, action: str) -> None:
        laptop.fleet.register_labelled()
        ran = laptop.run(action, "--selector", "env=prd")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr == "evenkeel: selector is 'env=prd': no registered cluster has such labels\n"

    @pytest.mark.parametrize("action", ["status", "validate", "history", "readiness"])
    def test_all_is_the_default_of_reading_commands(self, laptop: Laptop, action: str) -> None:
        laptop.fleet.register_labelled()
        assert laptop.run(action, "--all").output == laptop.run(action).output
        assert laptop.run(action, "--all", "--cluster", "blue").exit_code == 2

    @pytest.mark.parametrize("columns", ["0", "1", "9"])
    def test_a_terminal_of_unknown_width_gets_the_usual_status(
        self, laptop: Laptop, columns: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.fleet.register_labelled()
        usual = laptop.run("status").stdout
        monkeypatch.setenv("COLUMNS", columns)
        assert laptop.run("status").stdout == usual

    def test_the_listed_clusters_and_no_others_are_fenced(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("evenkeel_cli.terminal.has_terminal", lambda: True)
        laptop.fleet.register_labelled()
        asked = laptop.run("fence-zone", "--all", "--zone-id", "euc1-az2", "--for", "2h", stdin="y\n")
        assert asked.exit_code == 0
        assert "blue: zone eu-central-1a\ngreen: zone eu-central-1b\n" in asked.stdout
        (event,) = laptop.asked("fence-zone")
        assert event == {"action": "fence-zone", "clusters": ["blue", "green"], "zone_id": "euc1-az2", "for": "2h"}

    @pytest.mark.parametrize(
        "options",
        [
            "",
            "--all",
            "--all --cluster blue",
            "--selector a --cluster blue",
            "--selector a --all --yes",
            "--selector a --yes",
        ],
    )
    def test_pause_without_a_clear_scope_does_nothing(self, laptop: Laptop, options: str) -> None:
        laptop.fleet.register_labelled()
        assert laptop.run("pause", *options.split()).exit_code == 2
        assert laptop.asked("pause") == []

    def test_clusters_without_time_left_are_requested_again(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.fleet.register_labelled()
        answer_all: Callable[..., dict[str, Any]] = laptop.answer

        def one_at_a_time(stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
            answer = answer_all(stack, event)
            if event["action"] != "pause" or event.get("list"):
                return answer
            late = [{"cluster": id, "ok": False, "message": "late"} for id in event["clusters"][1:]]
            return {**answer, "clusters": [*answer["clusters"][:1], *late], "left": event["clusters"][1:]}

        monkeypatch.setattr(stack_client, "ask", one_at_a_time)
        assert laptop.run("pause", "--all", "--yes").exit_code == 0
        requests = [event["clusters"] for event in laptop.asked("pause")]
        assert requests == [["blue", "green", "red"], ["green", "red"], ["red"]]
