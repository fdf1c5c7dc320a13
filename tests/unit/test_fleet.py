"""A fleet as files, and what is done to many clusters at once: the real use cases, with the ports in memory."""

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
from evenkeel.application.fleet.records import fleet_schema, read_fleet, record_schema
from evenkeel.application.operate import answer_of_error
from evenkeel.domain.incidents.health import with_pending_changes
from evenkeel.domain.model.fleet import Selector, read_length
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
from tests.house import House
from tests.parts import replace
from tests.unit.test_docs import ROOT

ACCESS = {"kind": "kubeconfig", "secret": "evenkeel/one"}
POOLS = [{"name": "workers", "min": 3, "max": 12}]


def given(**fields: Any) -> dict[str, Any]:
    """A record as a file has it."""
    return {"flavours": ["cluster-api"], "access": ACCESS, "dry_run": False, "pools": POOLS, **fields}


class Fleet(House):
    """No cluster is registered yet; three can be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.store.remove_record("demo", self.store.load("demo").versions)
        for name in ("blue", "green", "red"):
            self.clusters.by_id[name] = FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3))

    def apply(self, **records: Any) -> dict[str, dict[str, Any]]:
        return self.of_each(self.ask("apply", None, records=records))

    def list(self, action: str, **fields: Any) -> dict[str, dict[str, Any]]:
        """What it would do."""
        return self.of_each(self.ask(action, None, list=True, **fields))

    @staticmethod
    def of_each(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        return {found["cluster"]: found for found in answer["clusters"]}

    @property
    def registered(self) -> dict[str, Any]:
        return dict(self.store.registrations())

    def labelled(self) -> None:
        self.apply(
            blue=given(labels={"env": "prod"}, zone_ids={"euc1-az2": "eu-central-1a"}),
            green=given(labels={"env": "prod"}, zone_ids={"euc1-az2": "eu-central-1b"}),
            red=given(labels={"env": "test"}),
        )
        self.queue.requests.clear()

    def run_there(self, cluster: str) -> None:
        self.clock.at += MINUTE
        self.rebalance(cluster, "a test", plenty)

    def is_failing(self, cluster: str) -> None:
        """It was told to be."""
        self.apply(**{cluster: given()})
        self.clusters.by_id[cluster] = AccessError("closed")
        self.run_there(cluster)
        assert self.bus.types == ["Incident Opened"]
        self.queue.requests.clear()
        self.queue.second_looks.clear()

    def all_that_was_asked_for(self, cluster: str) -> None:
        """The runs, also those that are asked for later."""
        self.carry_out()
        later, self.queue.second_looks = self.queue.second_looks, []
        for asked, why, _ in later:
            assert asked == cluster
            self.rebalance(asked, why, plenty)


class _CutOff(BaseException):
    """An invocation is killed."""


def cut_off_after(patched: pytest.MonkeyPatch, fleet: Fleet, requests: int) -> None:
    """So many requests to table and queue are answered, and the next is not even sent."""
    left = requests

    def counted(send: Callable[..., None]) -> Callable[..., None]:
        def sent(*given: Any) -> None:
            nonlocal left
            if left == 0:
                raise _CutOff
            left -= 1
            send(*given)

        return sent

    patched.setattr(fleet.store, "_asked", counted(fleet.store._asked))
    for name in ("request", "look_again"):
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
    def test_what_is_no_selector_is_refused_and_selects_nothing(self, fleet: Fleet, text: str) -> None:
        fleet.labelled()
        assert fleet.refused("pause", cluster=None, selector=text).startswith("selector is ")
        assert not any(record.paused for record in fleet.registered.values())


@pytest.mark.parametrize(
    ("text", "minutes"), [("2h", 120), ("90m", 90), ("1d", 1440), ("1h30m", 90), ("1d2h", 1560), ("120s", 2)]
)
def test_lengths_of_time_are_read_as_people_write_them(text: str, minutes: int) -> None:
    assert read_length(text) == minutes * MINUTE


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2h 5m", "1m1h", "367d", "999999s9", 7, None, "２h"])
def test_other_lengths_are_refused(text: object) -> None:
    with pytest.raises(BadValueError):
        read_length(text)


class TestLabels:
    def test_a_record_without_labels_is_stored_as_releases_before_labels_know_it(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(), green=given(labels={}), red=given(labels={"env": "prod"}))
        assert [("labels" in fleet.store.text(name, "META")) for name in ("blue", "green", "red")] == [
            False,
            False,
            True,
        ]

    @pytest.mark.parametrize(
        "labels", [{"a b": "x"}, {"a": "x y"}, {"": "x"}, {"a": "x,b=y"}, {"a": 1}, {"a" * 64: "x"}]
    )
    def test_a_label_that_no_selector_could_name_is_refused(self, fleet: Fleet, labels: dict[str, Any]) -> None:
        assert "labels" in fleet.apply(blue=given(labels=labels))["blue"]["message"]
        assert fleet.registered == {}

    def test_a_cluster_whose_record_cannot_be_read_has_none(self, fleet: Fleet) -> None:
        fleet.labelled()
        fleet.store.plant("bare", "{}")
        assert set(fleet.list("pause", selector="env=prod")) == {"blue", "green"}
        assert fleet.ask("status", None, selector="env=test")["counts"]["clusters"] == 1
        assert set(fleet.list("pause", selector="env!=prod")) == {"red"}

    def test_and_whoever_selects_is_told_that_nobody_knows_whether_it_is_meant(self, fleet: Fleet) -> None:
        fleet.labelled()
        fleet.store.save_looked_at(["red"], fleet.clock.now())
        before = fleet.ask("status", None, selector="env=test")
        fleet.store.plant("bare", "{}")
        for action, fields in (("status", {}), ("pause", {"list": True}), ("validate", {}), ("export", {})):
            answer = fleet.ask(action, None, selector="env=test", **fields)
            assert answer["unknown"] == ["bare"]
            assert answer["message"].endswith("; left out, since their labels cannot be read: bare")
        after = fleet.ask("status", None, selector="env=test")
        assert (before["incident"], after["incident"]) == (False, True), "it may be one of those that are asked for"
        assert "unknown" not in fleet.ask("status", None)


class TestApply:
    def test_what_is_new_changed_and_the_same_is_told_field_by_field_and_nothing_is_stored(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(), green=given())
        before = {name: fleet.store.text(name, "META") for name in ("blue", "green")}
        changed = given(scan_interval=120, pools=[{"name": "workers", "min": 3, "max": 20}])
        found = fleet.list("apply", records={"blue": given(), "green": changed, "red": given()})
        assert [found[name]["change"] for name in ("blue", "green", "red")] == ["same", "changed", "added"]
        assert found["green"]["changes"] == [
            {"field": "pools.workers.max", "from": "12", "to": "20"},
            {"field": "scan_interval", "from": None, "to": "120"},
        ]
        assert {name: fleet.store.text(name, "META") for name in ("blue", "green")} == before
        assert set(fleet.registered) == {"blue", "green"}

    def test_what_differs_far_behind_or_in_its_order_alone_is_a_change_too(self, fleet: Fleet) -> None:
        long = [f"name-{number}" for number in range(100)]
        pools = [{"name": "a", "selector": {"x": "1"}}, {"name": "b", "selector": {"x": "1"}}]
        fleet.apply(blue=given(names=long, pools=pools))
        found = fleet.list("apply", records={"blue": given(names=[*long[:-1], "other"], pools=pools[::-1])})["blue"]
        assert [change["field"] for change in found["changes"]] == ["pools (order)", "names"]
        fleet.apply(blue=given(names=long, pools=pools[::-1]))
        assert [entry.name for entry in fleet.store.load("blue").record.pool_entries] == ["b", "a"]

    def test_what_is_stored_is_looked_at_and_recorded_with_who_asked_and_why(self, fleet: Fleet) -> None:
        fleet.ask("apply", None, records={"blue": given()}, by="jane", reason="ticket 7")
        assert fleet.queue.clusters == ["blue"]
        (told,) = fleet.ask("record", "blue")["decisions"]
        assert (told["cause"], told["by"], told["reason"]) == ("apply", "jane", "ticket 7")

    def test_applied_twice_it_is_stored_and_recorded_once(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        text = fleet.store.text("blue", "META")
        fleet.queue.requests.clear()
        assert fleet.apply(blue=given())["blue"]["change"] == "same"
        assert fleet.store.text("blue", "META") == text
        assert fleet.queue.clusters == []
        assert len(fleet.ask("record", "blue")["decisions"]) == 1

    def test_pauses_and_restores_stay_and_a_file_cannot_set_them(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.ask("pause", "blue", pool="workers")
        fleet.ask("pause", "blue")
        fleet.ask("restore", "blue", pool="workers")
        control = fleet.store.load("blue").control
        assert "still paused" in fleet.apply(blue=given(scan_interval=120))["blue"]["message"]
        assert fleet.store.load("blue").control == control
        assert "paused is not a field" in fleet.apply(blue=given(paused=False))["blue"]["message"]
        assert fleet.store.load("blue").control == control

    def test_a_record_that_is_not_as_it_was_shown_is_left(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        quote = fleet.list("apply", records={"blue": given(scan_interval=120)})["blue"]["before"]
        fleet.ask("register", "blue", record=given(scan_interval=300))
        fields = {"records": {"blue": given(scan_interval=120)}, "before": {"blue": quote}}
        answer = fleet.of_each(fleet.ask("apply", None, **fields))["blue"]
        assert (answer["ok"], answer["retry"]) == (False, True)
        assert fleet.store.load("blue").record.scan_interval == 300
        # A pause in between is no change of the record.
        quote = fleet.list("apply", records={"blue": given()})["blue"]["before"]
        fleet.ask("pause", "blue")
        assert fleet.of_each(fleet.ask("apply", None, records={"blue": given()}, before={"blue": quote}))["blue"]["ok"]

    def test_a_cluster_that_somebody_registers_meanwhile_is_not_overwritten(self, fleet: Fleet) -> None:
        assert fleet.list("apply", records={"blue": given()})["blue"]["before"] is None
        fleet.ask("register", "blue", record=given(scan_interval=300))
        answer = fleet.of_each(fleet.ask("apply", None, records={"blue": given()}, before={"blue": None}))["blue"]
        assert not answer["ok"]
        assert fleet.store.load("blue").record.scan_interval == 300

    @pytest.mark.parametrize(
        ("closed", "says"),
        [
            (AccessError("secret evenkeel/one: there is none"), "there is none"),
            (ClusterUnavailableError("blue does not answer"), "gives no answer: blue does not answer"),
            (RuntimeError("token=abc"), "RuntimeError while its rights were asked for"),
        ],
    )
    def test_a_cluster_that_cannot_be_reached_is_not_stored_and_the_others_are(
        self, fleet: Fleet, closed: Exception, says: str
    ) -> None:
        fleet.clusters.by_id["blue"] = closed
        listed = fleet.list("apply", records={"blue": given(), "green": given()})
        assert says in listed["blue"]["faults"][0]
        answers = fleet.apply(blue=given(), green=given())
        assert says in answers["blue"]["message"]
        assert "token=abc" not in json.dumps([listed, answers])
        assert set(fleet.registered) == {"green"}
        assert fleet.of_each(fleet.ask("apply", None, records={"blue": given()}, verify=False))["blue"]["ok"]

    def test_rights_that_are_missing_are_named_and_a_writers_are_asked_for_where_the_same_one_writes(
        self, fleet: Fleet
    ) -> None:
        cluster = fleet.clusters.by_id["blue"]
        cluster.rights_missing = ["it may not patch machines.cluster.x-k8s.io"]
        assert fleet.apply(blue=given())["blue"]["message"] == (
            "blue is not stored: it may not patch machines.cluster.x-k8s.io"
        )
        cluster.rights_missing = []
        fleet.apply(blue=given(dry_run=True))
        eks = {"kind": "eks", "name": "one", "region": "eu-central-1"}
        fleet.apply(blue=given(access=eks))
        asked = [entry for entry in cluster.journal.entries if entry.startswith("rights")]
        assert asked == ["rights to write", "rights to look", "rights to look"]

    def test_a_record_that_orders_nodes_is_refused_beside_an_autoscaler_that_is_seen_at_work(
        self, fleet: Fleet
    ) -> None:
        orders = given(demand="full", autoscaler="none", workload={"access": {"kind": "same"}})
        workload = fleet.clusters.workloads["blue"] = FakeWorkload(Workload(autoscaler_at=NOW - MINUTE))
        says = "blue is not stored: a cluster-autoscaler was active in it at 2026-01-15T11:59:00Z"
        assert says in fleet.apply(blue=orders)["blue"]["message"]
        assert says in fleet.refused("register", cluster="blue", record=orders)
        assert fleet.apply(blue={**orders, "demand": "advise"})["blue"]["ok"]
        assert says in fleet.apply(blue=orders)["blue"]["message"]  # the way there is as it was
        workload.found = Workload(autoscaler_at=NOW - 6 * MINUTE)  # left behind
        assert fleet.apply(blue=orders)["blue"]["ok"]

    @pytest.mark.parametrize("away", [ClusterUnavailableError("dark"), AccessError("no secret"), KeyError("x")])
    def test_a_cluster_whose_pods_cannot_be_read_is_registered_all_the_same(
        self, fleet: Fleet, away: Exception
    ) -> None:
        orders = given(demand="full", autoscaler="none", workload={"access": {"kind": "same"}})
        fleet.clusters.workloads["blue"] = away
        assert fleet.ask("register", "blue", record=orders)["ok"]
        assert "blue is not stored" in fleet.apply(blue={**orders, "demand": "scale-up"})["blue"]["message"]

    def test_validate_names_a_right_that_looks_do_without(self, fleet: Fleet) -> None:
        fleet.clusters.workloads["blue"] = FakeWorkload(Workload())
        fleet.apply(blue=given(demand="full", autoscaler="none", workload={"access": {"kind": "same"}}))
        lease = "it may not get leases.coordination.k8s.io in namespace kube-system"
        fleet.clusters.by_id["blue"].rights_missing = [lease]
        answer = fleet.ask("validate", "blue")
        assert answer["refused"] == [lease]
        assert lease in answer["message"]

    def test_what_changes_nothing_about_the_way_there_is_not_tried(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.clusters.by_id["blue"] = ClusterUnavailableError("dark")
        assert fleet.apply(blue=given(scan_interval=120))["blue"]["ok"]

    def test_a_record_that_nobody_can_read_is_replaced_and_the_diff_says_what_was_wrong(self, fleet: Fleet) -> None:
        fleet.store.plant("blue", "{}")
        found = fleet.list("apply", records={"blue": given()})["blue"]
        assert found["change"] == "changed"
        assert found["changes"][0]["field"] == "the whole"
        fields = {"records": {"blue": given()}, "before": {"blue": found["before"]}}
        assert fleet.of_each(fleet.ask("apply", None, **fields))["blue"]["ok"]
        assert isinstance(fleet.registered["blue"].record, ClusterRecord)

    def test_one_bad_record_is_told_in_its_place_and_the_others_are_stored(self, fleet: Fleet) -> None:
        answers = fleet.apply(blue=given(colour=1), green=given(id="red"), red=given())
        assert [answers[name]["ok"] for name in ("blue", "green", "red")] == [False, False, True]

    def test_a_sealed_token_is_never_shown(self, fleet: Fleet) -> None:
        sealed, ca = "QUJDREVGRw==", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
        access = {"kind": "service-account", "endpoint": "https://blue.example.com", "ca_data": ca, "token": sealed}
        found = fleet.list("apply", records={"blue": given(access=access)}, verify=False)["blue"]
        assert sealed not in json.dumps(found)
        assert "access.token" in [change["field"] for change in found["changes"]]

    def test_killed_at_any_call_of_the_table_the_same_event_ends_as_if_it_had_not_been(self) -> None:
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
    def test_a_cluster_that_was_never_written_is_forgotten(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(dry_run=True))
        fleet.run_there("blue")
        fleet.ask("unregister", "blue")
        assert fleet.registered == {}
        assert fleet.store.due("0").registrations == fleet.store.due("1").registrations == []

    def test_it_is_refused_while_bounds_of_ours_stand_and_done_once_they_are_put_back(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.run_there("blue")
        assert fleet.list("unregister", clusters=["blue"])["blue"]["message"] == (
            "blue: bounds of ours stand in pool workers"
        )
        says = fleet.refused("unregister", cluster="blue")
        assert says.startswith("blue is not unregistered: bounds of ours stand in pool workers: restore it first")
        assert set(fleet.registered) == {"blue"}
        fleet.ask("restore", "blue")
        assert "restore it first" in fleet.refused("unregister", cluster="blue")
        cluster = fleet.clusters.by_id["blue"]
        for key in list(cluster.groups):  # it was written, and its annotations are gone
            cluster.change(key, has_adopted=False, adopted=None, published=None, move=None)
        fleet.run_there("blue")
        fleet.ask("unregister", "blue")
        assert fleet.registered == {}

    def test_by_force_bounds_stay_and_who_registers_it_again_finds_what_was_adopted(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        fleet.run_there("blue")
        adopted = {id: state.adopted for id, state in fleet.store.load("blue").state.pools.items()}
        assert "bounds of ours stay in pool workers" in fleet.ask("unregister", "blue", force=True)["message"]
        fleet.apply(blue=given())
        assert {id: state.adopted for id, state in fleet.store.load("blue").state.pools.items()} == adopted

    def test_a_run_that_is_under_way_is_waited_for(self, fleet: Fleet) -> None:
        fleet.apply(blue=given(dry_run=True))
        remembered = fleet.store.load("blue")
        fleet.store.take_lease("blue", "a run", remembered.fencing_token, NOW, NOW + MINUTE)
        with pytest.raises(EvenkeelError) as caught:
            fleet.ask("unregister", "blue")
        assert answer_of_error(caught.value)["retry"] is True
        assert set(fleet.registered) == {"blue"}

    def test_a_run_that_planned_before_it_writes_nothing_after_it(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())

        def unregister(_key: str) -> None:
            fleet.ask("unregister", "blue")

        fleet.store.before_write.append(unregister)  # the run takes its lease
        with pytest.raises(EvenkeelError):
            fleet.run_there("blue")
        assert fleet.clusters.by_id["blue"].applied == []

    def test_a_queue_that_answers_late_lets_no_run_write_what_nobody_puts_back(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet.apply(blue=given())

        def late(*_asked: object) -> None:
            monkeypatch.undo()
            fleet.run_there("blue")

        monkeypatch.setattr(fleet.queue, "look_again", late)
        with pytest.raises(StateConflictError):
            fleet.ask("unregister", "blue")
        assert fleet.clusters.by_id["blue"].applied
        assert set(fleet.registered) == {"blue"}

    def test_trouble_that_was_told_to_begin_is_told_to_end_wherever_it_is_cut_off(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended = set()
        for requests in range(20):
            fleet = Fleet()
            fleet.is_failing("blue")
            with monkeypatch.context() as patched:
                cut_off_after(patched, fleet, requests)
                with contextlib.suppress(_CutOff):
                    fleet.ask("unregister", "blue")
                    ended.add("whole")
            fleet.all_that_was_asked_for("blue")
            is_gone = fleet.registered == {}
            assert fleet.bus.types == ["Incident Opened", *(["Incident Closed"] if is_gone else [])], requests
            ended.add("gone" if is_gone else "stayed")
        assert ended == {"whole", "gone", "stayed"}

    def test_what_the_bus_does_not_take_of_its_end_is_told_later(self, fleet: Fleet) -> None:
        fleet.is_failing("blue")
        fleet.bus.away = True
        fleet.ask("unregister", "blue")
        fleet.all_that_was_asked_for("blue")
        assert fleet.bus.types == ["Incident Opened"]
        fleet.bus.away = False
        fleet.all_that_was_asked_for("blue")
        assert fleet.bus.types == ["Incident Opened", "Incident Closed"]
        assert fleet.queue.second_looks == []

    @pytest.mark.parametrize("away", [timedelta(hours=5), None])
    def test_a_bus_that_stays_away_is_asked_less_and_less_often_and_for_a_day(
        self, fleet: Fleet, away: timedelta | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        fleet.is_failing("blue")
        fleet.ask("unregister", "blue")
        fleet.queue.requests.clear()  # of the two runs that it asks for, the other goes on alike
        began, times = fleet.clock.at, 0
        while fleet.queue.second_looks:
            ((_, why, seconds),) = fleet.queue.second_looks
            fleet.queue.second_looks.clear()
            fleet.clock.at += timedelta(seconds=seconds)
            fleet.bus.away = away is None or fleet.clock.at < began + away
            fleet.rebalance("blue", why, plenty)
            times += 1
            assert times < 110
        lasted = fleet.clock.at - began
        if away is None:
            assert timedelta(days=1) <= lasted < timedelta(days=1, hours=1)
            assert caplog.text.count("the bus has not taken it for a day: unregister it again") == 1
            fleet.bus.away = False
            fleet.ask("unregister", "blue")
            fleet.carry_out()
        else:
            assert lasted < away + timedelta(minutes=16)
        assert fleet.bus.types == ["Incident Opened", "Incident Closed"]

    def test_of_ends_that_found_no_room_beside_what_the_bus_did_not_take_all_are_told(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        kinds = [IncidentKind.MISSING, IncidentKind.CONTESTED]
        pools = [f"pool-{number}" for number in range(30)]
        incidents = [Incident(kind=kind, pool=pool, since=NOW) for pool in pools for kind in kinds]
        told = with_pending_changes(ClusterHealth().with_incidents(incidents))
        fleet.store.save_cluster_health("blue", told, None)
        fleet.ask("unregister", "blue")
        fleet.queue.requests.clear()  # cut off before it asked for a run at once
        for _ in range(3):
            fleet.all_that_was_asked_for("blue")
        opened, closed = (
            {found["key"] for kind, found in fleet.bus.published if kind == f"Incident {news}"}
            for news in ("Opened", "Closed")
        )
        assert len(opened) == 60
        assert closed == opened
        assert fleet.queue.second_looks == []

    @pytest.mark.parametrize("of_many", [False, True])
    def test_the_run_that_ends_its_trouble_comes_when_the_whole_invocation_is_over(
        self, fleet: Fleet, of_many: bool
    ) -> None:
        fleet.is_failing("blue")
        scope: dict[str, Any] = {"clusters": ["blue"]} if of_many else {"cluster": "blue"}
        fleet.operate({"action": "unregister", **scope}, lambda: 60.0)
        ((_, _, seconds),) = fleet.queue.second_looks
        assert seconds > 60

    def test_asked_for_once_more_it_is_said_that_it_is_done(self, fleet: Fleet) -> None:
        fleet.is_failing("blue")
        fleet.ask("unregister", "blue")
        assert "blue is not registered; its trouble is told" in fleet.ask("unregister", "blue")["message"]

    def test_a_repeat_whose_first_answer_was_lost_is_answered_like_it(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        first = fleet.ask("unregister", "blue")
        for _ in range(2):
            again = fleet.ask("unregister", "blue")
            assert (again["ok"], again["done"], again["message"]) == (True, False, "blue is not registered any more")
            assert again["message"] in first["message"]
        of_many = fleet.operate({"action": "unregister", "clusters": ["blue", "nobody"]}, lambda: 60.0)["clusters"]
        assert [(each["cluster"], each["ok"]) for each in of_many] == [("blue", True), ("nobody", False)]
        listed = fleet.operate({"action": "unregister", "clusters": ["blue"], "list": True}, lambda: 60.0)
        assert (listed["clusters"], listed["untouched"]) == ([], 1)

    def test_an_unknown_cluster_is_unknown(self, fleet: Fleet) -> None:
        fleet.apply(blue=given())
        assert "did you mean blue?" in fleet.refused("unregister", cluster="bleu")

    def test_a_record_that_cannot_be_read_is_forgotten_by_force_alone(self, fleet: Fleet) -> None:
        fleet.store.plant("bare", "{}")
        assert "cannot be known" in fleet.refused("unregister", cluster="bare")
        fleet.ask("unregister", "bare", force=True)
        assert fleet.registered == {}


class TestSeveral:
    def test_those_that_a_selector_names_are_paused_by_one_event_and_the_others_are_not(self, fleet: Fleet) -> None:
        fleet.labelled()
        answers = fleet.of_each(fleet.ask("pause", None, selector="env=prod", **{"for": "2h"}, reason="az out"))
        assert set(answers) == {"blue", "green"}
        ends = {name: record.paused_until for name, record in fleet.registered.items()}
        assert ends == {"blue": NOW + 120 * MINUTE, "green": NOW + 120 * MINUTE, "red": None}
        assert fleet.ask("status", "blue")["actions"][0]["reason"] == "az out"

    def test_a_list_does_nothing_and_leaves_out_those_that_it_would_not_touch(self, fleet: Fleet) -> None:
        fleet.labelled()
        fleet.ask("pause", "red")
        listed = fleet.ask("resume", None, all=True, list=True)
        assert [found["message"] for found in listed["clusters"]] == ["red: it is still paused"]
        assert listed["untouched"] == 2
        assert fleet.registered["red"].paused is True

    def test_a_zone_is_fenced_by_its_id_under_the_name_that_each_cluster_has_for_it(self, fleet: Fleet) -> None:
        fleet.labelled()
        listed = fleet.list("fence-zone", all=True, zone_id="euc1-az2", **{"for": "2h"})
        assert [found["message"] for found in listed.values()] == [
            "blue: zone eu-central-1a",
            "green: zone eu-central-1b",
        ]
        fleet.ask("fence-zone", None, clusters=list(listed), zone_id="euc1-az2", **{"for": "2h"})
        fenced = {name: dict(fleet.store.load(name).state.zones) for name in fleet.registered}
        end = NOW + 120 * MINUTE
        assert fenced == {"blue": {"eu-central-1a": end}, "green": {"eu-central-1b": end}, "red": {}}

    def test_a_cluster_that_cannot_be_asked_for_its_zones_is_told_and_not_left_out(self, fleet: Fleet) -> None:
        fleet.labelled()
        fleet.clusters.by_id["red"] = ClusterUnavailableError("red does not answer")
        listed = fleet.list("fence-zone", all=True, zone_id="euc1-az2", **{"for": "2h"})
        assert {name: found["ok"] for name, found in listed.items()} == {"blue": True, "green": True, "red": False}
        assert "red does not answer" in listed["red"]["message"]

    def test_a_fence_for_no_time_lifts_it(self, fleet: Fleet) -> None:
        fleet.labelled()
        for lasting in ("2h", "0m"):
            fleet.clock.at += MINUTE
            fleet.ask("fence-zone", "blue", zone_id="euc1-az2", **{"for": lasting})
            ends = fleet.store.load("blue").state.zones.get("eu-central-1a", NOW)
            assert (ends > fleet.clock.at) is (lasting == "2h")
        assert "more than nothing" in fleet.refused("pause", cluster="blue", **{"for": "0m"})

    def test_a_zones_name_comes_from_aws_only_where_this_account_buys_and_else_from_nodes(self, fleet: Fleet) -> None:
        fleet.apply(
            blue=given(region="eu-central-1"),
            green=given(region="eu-central-1", account="210987654321"),
            red=given(region="eu-central-1", event_accounts=["210987654321"]),
        )
        fleet.operate = type(fleet.operate)(
            **{**vars(fleet.operate), "zone_names": lambda region: {"euc1-az2": f"{region}a"}}
        )
        fleet.clusters.by_id["green"].ids = {"euc1-az2": "eu-central-1c"}
        listed = fleet.list("fence-zone", all=True, zone_id="euc1-az2", **{"for": "2h"})
        assert [found["message"] for found in listed.values()] == [
            "blue: zone eu-central-1a",
            "green: zone eu-central-1c",
        ]
        assert "name it in its zone_ids" in fleet.refused(
            "fence-zone", cluster="red", zone_id="euc1-az2", **{"for": "1h"}
        )

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
    def test_what_is_meant_must_be_clear(self, fleet: Fleet, fields: dict[str, Any], says: str) -> None:
        fleet.labelled()
        assert says in fleet.refused("pause", **{"cluster": None, **fields})
        assert not any(record.paused for record in fleet.registered.values())

    def test_those_that_there_is_no_time_for_are_left_and_named(self, fleet: Fleet) -> None:
        fleet.labelled()
        event = {"action": "pause", "all": True}
        answer = fleet.operate(event, lambda: 0.5)
        assert answer["left"] == ["blue", "green", "red"]
        assert not any(record.paused for record in fleet.registered.values())

    def test_reading_takes_no_reason_and_a_list_of_all_is_no_right_to_read(self, fleet: Fleet) -> None:
        fleet.labelled()
        assert "'reason' is no field" in fleet.refused("status", cluster="blue", reason="x")
        with pytest.raises(EvenkeelError):
            fleet.operate.read({"action": "pause", "all": True, "list": True}, plenty)


class TestHistory:
    def test_what_people_did_is_told_of_all_clusters_in_one_order_and_what_the_worker_decided_is_not(
        self, laptop: "Laptop"
    ) -> None:
        fleet = laptop.fleet
        fleet.labelled()
        for minute, (cluster, action) in enumerate((("red", "pause"), ("blue", "pause"), ("red", "resume"))):
            fleet.clock.at = NOW + (minute + 1) * MINUTE
            fleet.ask(action, cluster, by="jane", reason="ticket 7")
        fleet.run_there("green")
        lines = laptop.run("history", "--since", "2026-01-15T12:00:30Z").stdout.splitlines()
        assert [line.split(": ")[0] for line in lines] == [
            "2026-01-15T12:01:00Z red pause by jane (ticket 7)",
            "2026-01-15T12:02:00Z blue pause by jane (ticket 7)",
            "2026-01-15T12:03:00Z red resume by jane (ticket 7)",
        ]
        assert len(fleet.ask("history", None, selector="env=prod")["clusters"]) == 2

    def test_pages_are_followed_and_a_cluster_that_was_unregistered_keeps_its_history(self, fleet: Fleet) -> None:
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
        """Every file is read, whatever includes it."""
        return read_fleet(list(files), lambda name: files[name], lambda _, path: path)

    def test_a_cluster_goes_before_labels_and_defaults_and_those_before_what_is_included(self) -> None:
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

    def test_a_cluster_switches_off_discovery_and_keeps_the_rules_of_the_defaults(self) -> None:
        pools = {"discover": "similar", "rules": [{"name": "p", "min": 1, "max": 9}]}
        defaults = {"flavours": ["cluster-api"], "access": ACCESS, "pools": pools}
        clusters = [{"id": "a"}, {"id": "b", "pools": {"discover": "off"}}]
        found = self.read(one={"defaults": defaults, "clusters": clusters})
        assert found["a"]["pools"] == pools
        assert found["b"]["pools"] == {**pools, "discover": "off"}

    def test_an_access_of_another_kind_replaces_the_default_and_one_of_the_same_completes_it(self) -> None:
        defaults = {"flavours": ["cluster-api"], "access": {"kind": "eks", "region": "eu-central-1"}}
        found = self.read(
            one={
                "defaults": defaults,
                "clusters": [{"id": "a", "access": {"name": "a"}}, {"id": "b", "access": ACCESS}],
            }
        )
        assert found["a"]["access"] == {"kind": "eks", "region": "eu-central-1", "name": "a"}
        assert found["b"]["access"] == ACCESS

    def test_a_proposals_name_of_a_field_replaces_ours_and_ours_replaces_it(self) -> None:
        base = {"flavours": ["gardener"], "access": ACCESS}
        for below, above in (("strategy", "sizing"), ("sizing", "strategy"), ("sizing", "sizingStrategy")):
            found = self.read(
                one={"defaults": {**base, below: "Adaptive"}, "clusters": [{"id": "a", above: "Lax-Greedy"}]}
            )
            assert found["a"]["strategy"] == "Lax-Greedy"

    def test_every_fault_is_told_with_its_file_and_nothing_is_used(self) -> None:
        with pytest.raises(ConfigError) as caught:
            self.read(
                one={"clusters": [{"id": "a", **given()}, {"id": "a", **given()}, {"id": "b"}, {**given()}]},
                two={"clusters": [{"id": "a", **given()}], "colour": 1},
                three={"include": ["four"]},
                four={"include": ["three"]},
                five={"defaults": {"id": "x"}},
            )
        faults = caught.value.faults
        assert "one: cluster a is in one too: keep one of the two" in faults
        assert "one: cluster b: flavours is missing" in faults
        assert "one: cluster 4: id is missing" in faults
        assert any(fault.startswith("two: colour is not a field") for fault in faults)
        assert any("it includes itself" in fault for fault in faults)
        assert any(fault.startswith("five: defaults.id") for fault in faults)

    def test_includes_in_a_diamond_are_read_once(self) -> None:
        read: list[str] = []
        files: dict[str, Any] = {f"f{n}": {"include": [f"f{n + 1}", f"f{n + 1}"]} for n in range(60)}
        files["f60"] = {"clusters": [{"id": "a", **given()}]}

        def of(name: str) -> Any:
            read.append(name)
            return files[name]

        assert set(read_fleet(["f0"], of, lambda _, path: path)) == {"a"}
        assert len(read) == len(files)


class Laptop:
    """The command line in front of the fleet's use cases."""

    def __init__(self, fleet: Fleet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet, self.folder = fleet, folder
        self.events: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], object] | None = None  # what somebody else does after the lists were shown
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
    def test_a_variable_that_is_not_set_applies_no_folder_that_somebody_happens_to_stand_in(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.write("a.json", blue=given())
        monkeypatch.chdir(laptop.folder)
        ran = laptop.run("apply", "-f", "", "--prune", "--yes")
        assert (ran.exit_code, laptop.events) == (2, [])
        assert ran.stderr == "evenkeel: a file is '': name it, or - for standard input\n"

    def test_an_include_that_is_no_name_of_a_file_is_bad_input(self, laptop: Laptop) -> None:
        (laptop.folder / "a.json").write_text(json.dumps({"include": ["b\0c"]}), encoding="utf-8")
        ran = laptop.run("apply", "-f", str(laptop.folder))
        assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
        assert ": cannot be read: embedded null byte" in ran.stderr

    @pytest.mark.parametrize("of_folder", [False, True])
    @pytest.mark.parametrize("how", ["up", "absolute", "link", "link to a folder", "by way of another", "link beside"])
    def test_what_is_outside_of_the_fleets_folder_is_named_and_neither_read_nor_quoted(
        self, laptop: Laptop, how: str, of_folder: bool
    ) -> None:
        secret = laptop.folder / "secret" / "token.yaml"
        fleet = laptop.folder / "fleet"
        for folder in (secret.parent, fleet, fleet / "eu"):
            folder.mkdir()
        secret.write_text("swordfish: swordfish\n", encoding="utf-8")
        (fleet / "link.yaml").symlink_to(secret)
        (fleet / "folder").symlink_to(secret.parent) if how == "link to a folder" else None
        paths = {"up": "../secret/token.yaml", "absolute": str(secret), "link": "link.yaml"}
        paths |= {"link to a folder": "folder/token.yaml", "by way of another": "eu/b.json", "link beside": "eu/c.json"}
        (fleet / "a.json").write_text(json.dumps({"include": [paths[how]]}), encoding="utf-8")
        (fleet / "eu" / "b.json").write_text(json.dumps({"include": ["../../secret/token.yaml"]}), encoding="utf-8")
        (fleet / "eu" / "c.json").write_text("{}", encoding="utf-8")
        ran = laptop.run("apply", "-f", str(fleet if of_folder else fleet / "a.json"), "--diff")
        if how == "link beside" and not of_folder:
            assert (ran.exit_code, "there is no cluster in it" in ran.stderr) == (2, True)
            return
        assert (ran.exit_code, laptop.events) == (2, [])
        assert f"it is outside of {fleet}: keep the files of a fleet in one folder" in ran.stderr or (
            "a link to a folder is not followed" in ran.stderr
        )
        assert "swordfish" not in ran.stderr + ran.stdout

    def test_what_is_within_the_folder_is_included_from_everywhere_in_it(self, laptop: Laptop) -> None:
        (laptop.folder / "eu").mkdir()
        (laptop.folder / "common.yaml").write_text(json.dumps({"defaults": given()}), encoding="utf-8")
        (laptop.folder / "linked.yaml").symlink_to(laptop.folder / "common.yaml")
        text = json.dumps({"include": ["../linked.yaml"], "clusters": [{"id": "blue"}]})
        (laptop.folder / "eu" / "a.json").write_text(text, encoding="utf-8")
        assert laptop.run("apply", "-f", str(laptop.folder), "--yes").exit_code == 0
        assert laptop.fleet.store.registered("blue") is not None

    @pytest.mark.parametrize("text", ["swordfish", "[swordfish]", '"swordfish: 7"', "- a: swordfish", "swordfish: ["])
    def test_a_file_that_is_none_of_a_fleet_is_not_quoted(self, laptop: Laptop, text: str) -> None:
        (laptop.folder / "a.yaml").write_text(text, encoding="utf-8")
        ran = laptop.run("apply", "-f", str(laptop.folder))
        assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
        assert f"{laptop.folder / 'a.yaml'}: " in ran.stderr
        assert "swordfish" not in ran.stderr

    def test_a_place_that_cannot_be_looked_at_is_bad_input(self, laptop: Laptop) -> None:
        ran = laptop.run("apply", "-f", "x" * 5000)
        assert ran.exit_code == 2
        assert "xx: cannot be read: " in ran.stderr

    def test_a_selector_that_no_cluster_has_exports_no_empty_fleet(self, laptop: Laptop) -> None:
        laptop.fleet.labelled()
        ran = laptop.run("export", "--selector", "env=pord")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr == "evenkeel: selector is 'env=pord': no registered cluster has such labels\n"

    @pytest.mark.parametrize(
        ("cluster", "says"), [("nobody", "cluster 'nobody' is not registered"), ("", "clusters is ")]
    )
    def test_one_cluster_that_cannot_go_live_is_one_line_as_of_every_other_action(
        self, laptop: Laptop, cluster: str, says: str
    ) -> None:
        laptop.fleet.labelled()
        ran = laptop.run("live", "--cluster", cluster, "--yes", "-o", "json")
        assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert ran.stderr.startswith(f"evenkeel: {says}")

    def test_who_would_go_live_is_told_to_programs_too(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(dry_run=None), green=given(dry_run=True))
        laptop.fleet.operate = replace(laptop.fleet.operate, dry_run=True)
        ran = laptop.run("live", "--all", "--force", "--dry-run", "-o", "json")
        told = {found["cluster"]: found["ok"] for found in json.loads(ran.stdout)["clusters"]}
        assert (ran.exit_code, told) == (0, {"blue": True, "green": False})

    def test_a_folder_is_applied_after_the_diff_was_agreed_to_and_then_there_is_nothing_more_to_do(
        self, laptop: Laptop
    ) -> None:
        laptop.write("a.json", blue=given())
        laptop.write("b.yaml", green=given())
        folder = str(laptop.folder)
        refused = laptop.run("apply", "-f", folder)
        assert (refused.exit_code, laptop.fleet.registered) == (2, {})
        assert "say --yes" in refused.stderr
        assert laptop.run("apply", "-f", folder, stdin="n\n").exit_code == 2
        done = laptop.run("apply", "-f", folder, stdin="y\n")
        assert (done.exit_code, set(laptop.fleet.registered)) == (0, {"blue", "green"})
        assert "+ blue\n    id: blue\n" in done.stdout
        again = laptop.run("apply", "-f", folder)
        assert (again.exit_code, again.stdout) == (0, "2 clusters as in the files\n")

    def test_only_prune_removes_what_no_file_names_and_never_because_there_is_no_file(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given(), red=given(labels={"team": "b"}))
        laptop.write("one.yaml", blue=given())
        folder = str(laptop.folder)
        quote = laptop.run("apply", "-f", folder, "--yes")
        assert "green: in no file; --prune unregisters it" in quote.stdout
        assert len(laptop.fleet.registered) == 3
        laptop.run("apply", "-f", folder, "--prune", "--selector", "!team", "--yes")
        assert set(laptop.fleet.registered) == {"blue", "red"}
        laptop.run("apply", "-f", folder, "--prune", "--diff")
        assert set(laptop.fleet.registered) == {"blue", "red"}
        (laptop.folder / "one.yaml").write_text("clusters: []\n", encoding="utf-8")
        assert laptop.run("apply", "-f", folder, "--prune", "--yes").exit_code == 2
        assert set(laptop.fleet.registered) == {"blue", "red"}

    def test_a_cluster_under_a_new_name_is_not_lost_where_its_record_is_not_stored(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), red=given())
        laptop.write("one.yaml", green=given(), red=given(scan_interval=120))
        arguments = ["apply", "-f", str(laptop.folder), "--prune", "--yes"]
        laptop.meanwhile = lambda: laptop.fleet.apply(red=given(scan_interval=300))
        done = laptop.run(*arguments)
        assert (done.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green", "red"})
        assert "nothing is unregistered while a record is not stored: apply once more" in done.stderr
        assert laptop.run(*arguments).exit_code == 0
        assert set(laptop.fleet.registered) == {"green", "red"}

    @pytest.mark.parametrize("command", ["apply -f {} --prune --yes", "unregister --selector team=data --yes"])
    def test_what_somebody_else_has_changed_since_it_was_shown_is_not_unregistered_and_that_is_told(
        self, laptop: Laptop, command: str
    ) -> None:
        """Two people with two folders and one stack."""
        laptop.write("mine.json", blue=given())
        laptop.fleet.apply(blue=given(), green=given(labels={"team": "data"}), red=given(labels={"team": "data"}))
        labels = {"team": "data"}
        theirs = {"green": given(labels=labels, scan_interval=120), "teal": given(labels=labels)}
        laptop.meanwhile = lambda: laptop.fleet.ask("apply", None, records=theirs, verify=False)
        ran = laptop.run(*(word.format(laptop.folder) for word in command.split()))
        assert (ran.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green", "teal"})
        assert "green is not as it was shown: somebody changed it at the same time" in ran.output
        assert laptop.fleet.registered["green"].scan_interval == 120

    @pytest.mark.parametrize("command", ["apply -f {} --prune --yes", "unregister --all --yes"])
    def test_what_could_not_be_shown_is_not_unregistered(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        fleet = laptop.fleet
        laptop.write("one.json", blue=given())
        fleet.apply(blue=given(), green=given(), red=given())
        load = fleet.store.load

        def refused_once(cluster: str, **how: Any) -> Any:
            if cluster == "green":
                monkeypatch.setattr(fleet.store, "load", load)
                raise StateUnavailableError("throttled")
            return load(cluster, **how)

        monkeypatch.setattr(fleet.store, "load", refused_once)
        ran = laptop.run(*(word.format(laptop.folder) for word in command.split()))
        assert (ran.exit_code, "throttled" in ran.output, "green" in fleet.registered) == (1, True, True)
        assert "red" not in fleet.registered

    @pytest.mark.parametrize("dies_at", range(1, 18))
    def test_killed_at_any_call_of_the_table_who_applies_and_prunes_once_more_ends_alike(
        self, laptop: Laptop, dies_at: int
    ) -> None:
        fleet = laptop.fleet
        fleet.apply(blue=given(), green=given())
        laptop.write("one.yaml", green=given(scan_interval=120), red=given())
        arguments = ["apply", "-f", str(laptop.folder), "--prune", "--yes"]
        fleet.store.away_from = fleet.store.calls + dies_at
        laptop.run(*arguments)
        fleet.store.away_from = None
        fleet.clock.at += MINUTE
        assert laptop.run(*arguments).exit_code == 0
        assert {id: one.scan_interval for id, one in fleet.registered.items()} == {"green": 120, "red": 60}
        assert laptop.run(*arguments).stdout == "2 clusters as in the files\n"

    def test_pruning_leaves_clusters_where_bounds_of_ours_stand(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given())
        laptop.fleet.run_there("green")
        laptop.write("one.yaml", blue=given())
        done = laptop.run("apply", "-f", str(laptop.folder), "--prune", "--yes")
        assert (done.exit_code, set(laptop.fleet.registered)) == (1, {"blue", "green"})
        assert "restore it first" in done.stderr
        laptop.run("apply", "-f", str(laptop.folder), "--prune", "--force", "--yes")
        assert set(laptop.fleet.registered) == {"blue"}

    @pytest.mark.parametrize("place", ["", "a.yaml"])
    def test_a_named_pipe_in_a_folder_or_included_is_refused_and_not_opened(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        def read(name: str) -> object:
            assert Path(name).is_file(), "it would wait for a writer"
            return read_yaml(name)

        monkeypatch.setattr("evenkeel_cli.fleet.read_yaml", read)
        os.mkfifo(laptop.folder / "pipe.yaml")
        (laptop.folder / "a.yaml").write_text("include: [pipe.yaml]\n", encoding="utf-8")
        ran = laptop.run("apply", "-f", str(laptop.folder / place), "--diff")
        assert ran.exit_code == 2
        place = str(laptop.folder / "pipe.yaml")
        assert ran.stderr == f"evenkeel: {place}: it is no regular file: remove it, or write a file in its place\n"

    def test_a_folder_of_which_a_part_cannot_be_read_is_a_fault_and_prunes_nobody(self, laptop: Laptop) -> None:
        laptop.fleet.apply(blue=given(), green=given())
        laptop.write("one.yaml", blue=given())
        elsewhere = laptop.folder / ".elsewhere"
        elsewhere.mkdir()
        for name, target, says in (
            ("two.yaml", elsewhere / "gone.yaml", "cannot be read: No such file"),
            ("two", elsewhere, "a link to a folder is not followed"),
        ):
            link = laptop.folder / name
            link.symlink_to(target)
            done = laptop.run("apply", "-f", str(laptop.folder), "--prune", "--force", "--yes")
            assert (done.exit_code, done.stderr.startswith(f"evenkeel: {link}: {says}")) == (2, True)
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
    def test_a_name_that_stands_twice_is_a_fault_since_one_of_the_two_would_be_dropped(
        self, laptop: Laptop, text: str
    ) -> None:
        file = laptop.folder / "one.yaml"
        file.write_text(text)
        done = laptop.run("apply", "-f", str(file), "--prune", "--force", "--yes")
        assert (done.exit_code, "stands twice" in done.stderr) == (2, True)

    def test_one_fault_and_nothing_is_stored(self, laptop: Laptop) -> None:
        laptop.fleet.clusters.by_id["green"] = AccessError("closed")
        laptop.write("one.yaml", blue=given(), green=given())
        failed = laptop.run("apply", "-f", str(laptop.folder), "--yes")
        assert (failed.exit_code, failed.stderr) == (2, "evenkeel: green: closed\n")
        assert laptop.fleet.registered == {}
        assert laptop.run("apply", "-f", str(laptop.folder), "--yes", "--no-verify").exit_code == 0

    def test_records_go_in_as_few_events_as_hold_them(self, laptop: Laptop) -> None:
        names = [f"c{number:03}" for number in range(300)]
        for name in names:
            laptop.fleet.clusters.by_id[name] = FakeCluster([])
        long = ["n" * 200 for _ in range(8)]
        laptop.write("one.yaml", **{name: given(names=long) for name in names})
        assert laptop.run("apply", "-f", str(laptop.folder), "--yes").exit_code == 0
        sizes = [len(json.dumps(event["records"])) for event in laptop.asked("apply")]
        assert 1 < len(sizes) < 6
        assert max(sizes) <= 210_000
        assert set(laptop.fleet.registered) == set(names)

    def test_what_is_exported_is_applied_as_it_is_and_has_its_schema_beside_it(self, laptop: Laptop) -> None:
        laptop.fleet.labelled()
        out = laptop.folder / "all.yaml"
        assert laptop.run("export", "--out", str(out)).exit_code == 0
        assert out.read_text().startswith("# yaml-language-server: $schema=fleet.schema.json\n")
        assert json.loads((laptop.folder / "fleet.schema.json").read_text()) == fleet_schema()
        again = laptop.run("apply", "-f", str(laptop.folder))
        assert (again.exit_code, again.stdout) == (0, "3 clusters as in the files\n")

    @pytest.mark.parametrize("options", [[], ["--live"]])
    def test_whoever_is_not_known_to_be_selected_is_not_known_to_be_well(
        self, laptop: Laptop, options: list[str]
    ) -> None:
        laptop.fleet.labelled()
        laptop.fleet.store.save_looked_at(["blue", "green"], laptop.fleet.clock.now())
        command = ("status", "--selector", "env=prod", *options)
        assert laptop.run(*command).exit_code == 0
        laptop.fleet.store.plant("bare", "{}")
        assert laptop.run(*command).exit_code == 4

    def test_a_record_that_cannot_be_read_is_named_beside_the_others(self, laptop: Laptop) -> None:
        laptop.fleet.labelled()
        laptop.fleet.store.plant("bare", "{}")
        found = laptop.run("export", "--selector", "env=prod")
        assert (found.exit_code, len(read_document(found.stdout)["clusters"])) == (0, 2)
        assert found.stderr == "evenkeel: left out, since their labels cannot be read: bare\n"
        found = laptop.run("export")
        assert found.exit_code == 2
        assert "record of cluster bare" in found.stderr
        assert len(read_document(found.stdout)["clusters"]) == 3

    @pytest.mark.parametrize("action", ["status", "validate", "history", "readiness"])
    def test_a_selector_that_no_cluster_has_is_a_fault_and_no_good_news(self, laptop: Laptop, action: str) -> None:
        laptop.fleet.labelled()
        found = laptop.run(action, "--selector", "env=prd")
        assert (found.exit_code, found.stdout) == (2, "")
        assert found.stderr == "evenkeel: selector is 'env=prd': no registered cluster has such labels\n"

    @pytest.mark.parametrize("action", ["status", "validate", "history", "readiness"])
    def test_who_reads_may_say_all_as_well_as_nothing(self, laptop: Laptop, action: str) -> None:
        laptop.fleet.labelled()
        assert laptop.run(action, "--all").output == laptop.run(action).output
        assert laptop.run(action, "--all", "--cluster", "blue").exit_code == 2

    @pytest.mark.parametrize("columns", ["0", "1", "9"])
    def test_a_terminal_that_knows_no_width_is_told_as_much_as_one_that_does(
        self, laptop: Laptop, columns: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.fleet.labelled()
        usual = laptop.run("status").stdout
        monkeypatch.setenv("COLUMNS", columns)
        assert laptop.run("status").stdout == usual

    def test_what_was_listed_and_agreed_to_is_done_and_nothing_else(self, laptop: Laptop) -> None:
        laptop.fleet.labelled()
        asked = laptop.run("fence-zone", "--all", "--zone-id", "euc1-az2", "--for", "2h", stdin="y\n")
        assert asked.exit_code == 0
        assert "blue: zone eu-central-1a\ngreen: zone eu-central-1b\n" in asked.stdout
        (event,) = laptop.asked("fence-zone")
        assert event == {"action": "fence-zone", "clusters": ["blue", "green"], "zone_id": "euc1-az2", "for": "2h"}

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["pause"], 2),
            (["pause", "--all", "--cluster", "blue"], 2),
            (["pause", "--selector", "env=prod", "--cluster", "blue"], 2),
            (["pause", "--selector", "env=prod", "--all", "--yes"], 2),
            (["pause", "--selector", "env=nowhere", "--yes"], 2),
            (["pause", "--all"], 2),
        ],
    )
    def test_without_a_clear_word_nothing_is_done(self, laptop: Laptop, arguments: list[str], code: int) -> None:
        laptop.fleet.labelled()
        assert laptop.run(*arguments).exit_code == code
        assert laptop.asked("pause") == []

    def test_what_there_was_no_time_for_is_asked_for_again_until_nothing_more_is_done(
        self, laptop: Laptop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop.fleet.labelled()
        whole: Callable[..., dict[str, Any]] = laptop.answer

        def one_at_a_time(stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
            answer = whole(stack, event)
            if event["action"] != "pause" or event.get("list"):
                return answer
            late = [{"cluster": id, "ok": False, "message": "late"} for id in event["clusters"][1:]]
            return {**answer, "clusters": [*answer["clusters"][:1], *late], "left": event["clusters"][1:]}

        monkeypatch.setattr(stack_client, "ask", one_at_a_time)
        assert laptop.run("pause", "--all", "--yes").exit_code == 0
        assert [event["clusters"] for event in laptop.asked("pause")] == [
            ["blue", "green", "red"],
            ["green", "red"],
            ["red"],
        ]


@pytest.mark.parametrize(("name", "schema"), [("record", record_schema), ("fleet", fleet_schema)])
def test_the_schema_in_the_docs_is_that_of_the_models(name: str, schema: Callable[[], dict[str, Any]]) -> None:
    found = (ROOT / "docs" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert found == json.dumps(schema(), indent=1) + "\n", "write it again from evenkeel.application.fleet.records"
