"""Going live: one pool, one cluster that is ready, and a fleet."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.application.errors import ClusterUnavailableError, StateUnavailableError
from evenkeel.domain.model.groups import NodeGroup, PoolId
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.record import ControlRecord, Registration
from evenkeel.texts.english import rfc3339
from evenkeel_cli import stack_client
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, group, key
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, plenty, record, register
from tests.parts import replace
from tests.stack import Stack

DAY = timedelta(days=1)
POOLS = ("workers", "other")
NUMBERS = [{"name": name, "min": 1, "max": 8} for name in POOLS]


def two_pools(**fields: dict[str, Any]) -> list[NodeGroup]:
    """Return pools workers and other, each in two zones, both of which need writes; fields by the names of groups."""
    made = [group(zone, 2, pool=pool, bounds=(1, 9)) for pool in POOLS for zone in "ab"]
    return [replace(each, **fields.get(each.key.name.replace("-", "_"), {})) for each in made]


def document(**fields: Any) -> dict[str, Any]:
    """Return a record as in a file, which leaves dry run to the stack."""
    return record(dry_run=None, **fields).model_dump(mode="json", exclude_unset=True)


def written_pools(stack: Stack) -> set[str]:
    return {name.rpartition("-")[0] for name in stack.patched()}


class TestPools:
    """A pool's setting of dry run overrides its cluster's."""

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_one_member_decides_for_its_pool_and_the_cluster_for_the_other(self, dry_run: bool) -> None:
        stack = Stack(two_pools(workers_a={"dry_run": not dry_run}), stack_dry_run=dry_run, pools=NUMBERS)
        stack.settle()
        assert written_pools(stack) == ({"workers"} if dry_run else {"other"})
        decided = {decision["pool"]["name"]: decision["dryRun"] for decision in stack.decisions()}
        assert decided == {"workers": not dry_run, "other": dry_run}

    def test_an_annotation_precedes_the_record(self) -> None:
        numbers = [{**entry, "dry_run": False} for entry in NUMBERS]
        stack = Stack(two_pools(other_b={"dry_run": True}), stack_dry_run=True, pools=numbers)
        stack.settle()
        assert written_pools(stack) == {"workers"}

    def test_members_that_disagree_make_their_pool_invalid(self) -> None:
        stack = Stack(two_pools(workers_a={"dry_run": True}, workers_b={"dry_run": False}), pools=NUMBERS)
        stack.settle()
        assert written_pools(stack) == {"other"}
        (invalid,) = [pool for pool in stack.ask("plan")["plan"]["pools"] if not pool["valid"]]
        assert invalid["name"] == "workers"
        assert "evenkeel.dev/dry-run" in invalid["problems"][0]

    def test_a_plan_names_a_pool_that_differs_from_its_cluster(self) -> None:
        stack = Stack(two_pools(workers_a={"dry_run": False}), stack_dry_run=True, pools=NUMBERS)
        notes = {pool["name"]: pool.get("notes", []) for pool in stack.ask("plan")["plan"]["pools"]}
        assert any(note.startswith("live, set on the pool itself") for note in notes["workers"])
        assert not any("word" in note for note in notes["other"])
        assert "dry run (not so pool workers)" in stack.ask("status")["message"]
        assert "nothing of this is written, but of pool workers." in stack.ask("explain", pool="other")["message"]

    def test_a_restore_writes_pools_in_dry_run_too(self) -> None:
        stack = Stack(two_pools(), pools=NUMBERS)
        stack.settle()
        for zone in "ab":
            stack.cluster.change(key(zone), dry_run=True)
        stack.ask("restore")
        stack.settle()
        assert stack.bounds() == [(1, 9)] * 4

    def test_agreed_numbers_are_written_to_live_pools_only(self) -> None:
        small = {"pool_min": 0, "pool_max": 1}
        stack = Stack(two_pools(workers_a={**small, "dry_run": True}, other_a=small))
        stack.ask("validate", apply=True)
        stack.settle()
        maxima = {
            each.key.name: each.annotations.pool_max
            for each in stack.cluster.groups.values()
            if each.annotations.pool_max
        }
        assert maxima == {"workers-a": 1, "other-a": 2}
        reported = {one["pool"]["name"]: one["dryRun"] for one in stack.decisions() if "fixed" in one}
        assert reported == {"workers": True, "other": False}

    @pytest.mark.parametrize("dies_at", range(1, 30))
    def test_a_pool_in_dry_run_is_not_written_wherever_a_run_is_killed(self, dies_at: int) -> None:
        stack = Stack(two_pools(other_a={"dry_run": True}), pools=NUMBERS)
        stack.store.away_from = stack.store.calls + dies_at
        with suppress(StateUnavailableError):  # it may be too late for this run
            stack.run()
        stack.store.away_from = None
        stack.settle()
        assert written_pools(stack) == {"workers"}


class TestPrecedence:
    """The record's setting overrides that of actions, which overrides the stack's."""

    @pytest.mark.parametrize("said", [None, True, False])
    @pytest.mark.parametrize("live", [None, True, False])
    @pytest.mark.parametrize("stack", [True, False])
    def test_dry_run(self, said: bool | None, live: bool | None, stack: bool) -> None:
        control = ControlRecord(live=live)
        found = control.is_dry(record(dry_run=said), stack)
        assert found == (said if said is not None else (not live if live is not None else stack))

    def test_a_record_that_is_stored_again_keeps_the_controls(self) -> None:
        stack = Stack(stack_dry_run=True)
        stack.ask("live", force=True)
        answer = stack.ask("register", record=document(pools=NUMBERS))
        assert answer["dryRun"] is False
        stack.ask("apply", None, records={"demo": document(pools=NUMBERS, scan_interval=120)}, verify=False)
        assert stack.control.live is True
        assert [one.live for _, one in stack.store.registrations() if isinstance(one, Registration)] == [True]

    def test_a_file_with_dry_run_ends_live_at_once(self) -> None:
        stack = Stack(stack_dry_run=True)
        stack.ask("live", force=True)
        stack.ask("apply", None, records={"demo": record(dry_run=True).model_dump(mode="json")}, verify=False)
        stack.settle()
        assert stack.patched() == set()

    def test_status_counts_clusters_in_dry_run(self) -> None:
        stack = Stack(stack_dry_run=True)
        assert stack.ask("status", None)["counts"]["dryRun"] == 1
        stack.ask("live", force=True)
        assert stack.ask("status", None)["counts"]["dryRun"] == 0

    def test_a_steady_live_cluster_gets_quick_checks(self) -> None:
        stack = Stack(stack_dry_run=True)
        stack.ask("live", force=True)
        stack.settle()
        stack.clock.at += DAY
        for _ in range(15):  # one of these minutes is the cluster's own
            stack.checks()
            stack.carry_out()
        assert stack.store.load("demo").steady is not None


class Dry(Stack):
    """A cluster that has been in dry run for a week."""

    def __init__(self, groups: list[NodeGroup] | None = None, **fields: Any) -> None:
        super().__init__(groups, stack_dry_run=True, **fields)
        self.ask("register", record=document(pools=[{"name": "workers", "min": 3, "max": 12}]))
        self.run()
        self.clock.at += 7 * DAY
        self.run()

    def decide(self, at: Any, bounds: tuple[int, int], result: str = "planned", dry_run: bool = True) -> None:
        """Store a decision of that time, with these bounds before it."""
        (newest, *_) = [each for each in self.decisions() if "pool" in each]
        pool = json.loads(json.dumps(newest["pool"]))
        for each in pool["groups"]:
            each["min"]["from"], each["max"]["from"] = bounds
            each["result"] = each["outcome"] = result
        id = ulid(at, bytes(10))
        decision = {**newest, "id": id, "at": rfc3339(at), "pool": pool, "dryRun": dry_run}
        self.store.save_decision("demo", id, decision, at + 30 * DAY)

    def hindrances(self, **fields: Any) -> list[str]:
        return [each["rule"] for each in self.ask("readiness", **fields)["hindrances"]]


class TestReadiness:
    def test_a_week_of_dry_run_without_incidents_is_ready(self) -> None:
        answer = Dry().ask("readiness")
        assert (answer["state"], answer["ready"], answer["hindrances"]) == ("ready", True, [])
        assert answer["days"] == 3.0
        assert answer["message"].startswith("demo is ready: in 3.0 days of dry run ")

    def test_planned_patches_are_counted_per_day(self) -> None:
        stack = Dry()
        for hour in range(6):
            stack.decide(stack.clock.at - DAY + timedelta(hours=hour), (1, 9))
        answer = stack.ask("readiness")
        assert (answer["decisions"], answer["patches"]) == (6, 18)
        assert answer["patchesPerDay"] == 6.0

    def test_a_restless_plan_is_not_ready(self) -> None:
        stack = Dry()
        for number in range(800):
            stack.decide(stack.clock.at - timedelta(days=2, minutes=number), (1, 9))
        assert stack.hindrances() == []
        for number in range(800, 1800):
            stack.decide(stack.clock.at - timedelta(minutes=number), (1, 9))
        stack.store.page = 10_000
        assert stack.hindrances(**{"for": "1d"}) == ["restless"]

    def test_a_new_dry_run_is_too_short(self) -> None:
        stack = Stack(stack_dry_run=True)
        stack.ask("register", record=document())
        stack.run()
        stack.clock.at += DAY
        answer = stack.ask("readiness")
        assert [each["rule"] for each in answer["hindrances"]] == ["too-short"]
        assert answer["hindrances"][0]["says"] == "its dry run has lasted 1.0 of 3.0 days"
        assert stack.ask("readiness", **{"for": "12h"})["ready"] is True

    @pytest.mark.parametrize("action", ["pause", "dry-run"])
    def test_the_dry_run_begins_anew_after_a_pause_or_going_live(self, action: str) -> None:
        stack = Dry()
        if action == "dry-run":
            stack.ask("live")
            stack.run()
            stack.ask("dry-run")
        else:
            stack.ask("pause")
            stack.ask("resume")
        assert stack.hindrances() == ["too-short"]

    def test_more_than_30_days_are_refused(self) -> None:
        assert "decisions are kept for 30 days: choose 30d at most" in Dry().refused("readiness", **{"for": "31d"})

    def test_a_recent_write_was_no_dry_run(self) -> None:
        stack = Dry()
        stack.decide(stack.clock.at - DAY, (1, 9), "written", dry_run=False)
        assert stack.hindrances() == ["too-short"]

    def test_a_pool_that_is_live_by_itself_does_not_end_the_dry_run_of_others(self) -> None:
        stack = Dry([*two_pools(other_a={"dry_run": False, "pool_min": 1, "pool_max": 8})])
        stack.scale("a", 3)
        stack.run()
        assert written_pools(stack) == {"other"}
        assert stack.ask("readiness")["ready"] is True

    def test_a_cluster_without_pools_is_not_ready(self) -> None:
        stack = Stack([group("a", 1, pool=None)], stack_dry_run=True)
        stack.run()
        assert [each["rule"] for each in stack.ask("readiness")["hindrances"]] == ["no-pools"]

    def test_a_cluster_older_than_its_decisions_is_not_too_young(self) -> None:
        stack = Stack(stack_dry_run=True)
        state = PoolState(digest="an old digest")
        stack.store.save_pool("demo", PoolId("cluster-api", "default", "", "workers"), state, None)
        assert stack.ask("readiness")["ready"] is True

    def test_incidents_and_pauses_are_hindrances(self) -> None:
        stack = Dry()
        _, versions = stack.store.cluster_health("demo")
        incident = Incident(kind=IncidentKind.INVALID, since=NOW, pool="workers")
        stack.store.save_cluster_health("demo", ClusterHealth(incidents=(incident,)), versions)
        stack.ask("pause")
        assert stack.hindrances() == ["in-trouble", "paused"]

    @pytest.mark.parametrize("field", ["bounds_applied_by", "replicas_applied_by"])
    def test_owners_that_would_revert_a_write_are_named(self, field: str) -> None:
        stack = Dry()
        stack.store.save_group("demo", key("a"), replace(GroupState(), **{field: "argocd"}), None)
        answer = stack.ask("readiness")
        assert answer["putBack"] == {str(key("a")): "argocd"}
        assert f"other controllers put back bounds or replicas: {key('a')} by argocd" in answer["message"]

    @pytest.mark.parametrize(("changes", "ready"), [(0, True), (2, True), (3, False), (8, False)])
    def test_bounds_that_others_keep_writing_are_a_conflict(self, changes: int, ready: bool) -> None:
        stack = Dry()
        for number in range(changes + 1):
            stack.decide(stack.clock.at - DAY + number * MINUTE, (1, 9 + number))
        answer = stack.ask("readiness")
        assert answer["rewritten"] == ({str(key(zone)): changes for zone in "abc"} if changes else {})
        assert answer["ready"] is ready

    def test_the_cluster_is_read_only_with_live(self) -> None:
        stack = Dry([*Stack().cluster.groups.values(), group("z", 1, pool=None)])
        checks = stack.cluster.checks
        assert stack.ask("readiness")["skipped"] is None
        assert stack.cluster.checks == checks
        stack.cluster.rights_missing = ["patch machinedeployments.cluster.x-k8s.io"]
        answer = stack.ask("readiness", live=True)
        assert [each["name"] for each in answer["skipped"]] == ["loose-z"]
        assert [each["rule"] for each in answer["hindrances"]] == ["rights-missing"]
        stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        answer = stack.ask("readiness", live=True)
        assert [each["rule"] for each in answer["hindrances"]] == ["not-read"]
        assert stack.ask("readiness")["ready"] is True

    def test_unknown_decisions_are_ignored(self) -> None:
        stack = Dry()
        for number, odd in enumerate([{"pool": 7}, {"pool": {}}, {}, {"pool": {"name": "x", "strategy": "y"}}]):
            at = stack.clock.at - DAY + number * MINUTE
            id = ulid(at, bytes(10))
            stack.store.save_decision("demo", id, {"id": id, "at": rfc3339(at), **odd}, at + 30 * DAY)
        id = ulid(stack.clock.at, b"1" * 10)
        stack.store.save_decision("demo", id, {"id": id, "at": "yesterday", "pool": {}}, stack.clock.at + DAY)
        assert stack.ask("readiness")["ready"] is True

    def test_readiness_of_all_names_a_broken_record(self) -> None:
        stack = Dry()
        stack.register_another("live-one", FakeCluster([]))
        stack.store.plant("broken", "{}")
        answer = stack.ask("readiness", None)
        reported = {each["cluster"]: each.get("state") for each in answer["clusters"]}
        assert reported == {"broken": None, "demo": "ready", "live-one": "live"}

    @pytest.mark.parametrize("page", [1, 2, 5, 13])
    def test_pages_do_not_change_the_answer(self, page: int) -> None:
        stack = Dry()
        for number in range(12):
            stack.decide(stack.clock.at - DAY + number * MINUTE, (1, 9 + number % 2))
        whole = stack.ask("readiness")
        stack.store.page = page
        assert stack.ask("readiness") == whole


class TestLive:
    def test_a_ready_cluster_goes_live_and_is_written(self) -> None:
        stack = Dry()
        assert stack.patched() == set()
        assert stack.ask("live", reason="a week was enough")["message"].startswith("demo is live")
        stack.carry_out()
        assert stack.patched() != set()

    def test_a_cluster_that_is_not_ready_needs_force(self) -> None:
        stack = Stack(stack_dry_run=True)
        stack.ask("register", record=document(pools=NUMBERS))
        stack.run()
        assert stack.refused("live").startswith("demo is not ready: its dry run has lasted 0.0 of 3.0 days")
        assert stack.control.live is None
        stack.ask("live", force=True)
        assert stack.control.live is True

    @pytest.mark.parametrize(("action", "said"), [("live", True), ("dry-run", False)])
    def test_no_action_overrules_the_record(self, action: str, said: bool) -> None:
        stack = Stack(stack_dry_run=not said, dry_run=said)
        assert f"dry_run in its record is {str(said).lower()} and overrides {action}" in stack.refused(action)
        assert stack.control.live is None

    def test_a_cluster_back_in_dry_run_is_not_written_any_more(self) -> None:
        stack = Dry()
        stack.ask("live")
        stack.settle()
        patches = len(stack.cluster.applied)
        assert "leaves its objects as they are" in stack.ask("dry-run")["message"]
        stack.scale("a", 5)
        stack.runs(3)
        assert len(stack.cluster.applied) == patches
        stack = Stack()  # the stack itself is live
        stack.ask("dry-run")
        stack.settle()
        assert stack.patched() == set()

    def test_going_live_lists_the_open_fences_of_one_cluster_and_of_many(self) -> None:
        stack = Dry()
        until = rfc3339(stack.clock.at + DAY)
        stack.ask("fence-zone", zone="a", until=until)
        fences = [{"zone": "a", "until": until, "by": "operator"}]
        (listed,) = stack.ask("live", None, clusters=["demo"], list=True)["clusters"]
        answer = stack.ask("live")
        for each in (listed, answer):
            assert each["message"].endswith(f"; open fences: zone a until {until} by operator")
            assert each["fences"] == fences

    def test_going_live_lists_no_fence_that_has_ended(self) -> None:
        stack = Dry()
        stack.ask("fence-zone", zone="a", **{"for": "1h"})
        stack.clock.at += timedelta(hours=2)
        answer = stack.ask("live")
        assert answer["fences"] == []
        assert "fence" not in answer["message"]

    def test_a_repeated_action_is_done_once(self) -> None:
        stack = Dry()
        for action in ("live", "live", "dry-run", "dry-run"):
            stack.ask(action)
        reported = [entry["cause"] for entry in stack.ask("history")["actions"]]
        assert reported == ["live", "dry-run"]

    def test_a_list_shows_which_clusters_are_ready(self) -> None:
        stack = Dry()
        stack.register_another("written", FakeCluster([]))
        register(stack.store, "young", dry_run=None)
        stack.clusters.by_id["young"] = FakeCluster([])
        answer = stack.ask("live", None, all=True, list=True)
        reported = {each["cluster"]: each["ok"] for each in answer["clusters"]}
        assert reported == {"demo": True, "young": False}  # the third is live
        assert stack.control.live is None


class Fleet:
    """Clusters in dry run."""

    def __init__(self, clusters: int) -> None:
        self.clock = FakeClock()
        self.store = InMemoryStore(clock=self.clock)
        self.names = [f"c{number:03}" for number in range(clusters)]
        for name in self.names:
            register(self.store, name, dry_run=None)
        clusters_by_id = FakeClusters({name: FakeCluster([]) for name in self.names})
        self.stack = Stack(store=self.store, clusters=clusters_by_id, clock=self.clock, stack_dry_run=True)

    def incident(self, name: str, *kinds: IncidentKind) -> None:
        _, versions = self.store.cluster_health(name)
        incidents = tuple(Incident(kind=kind, since=self.clock.at, pool="default/workers") for kind in kinds)
        self.store.save_cluster_health(name, ClusterHealth(incidents=incidents), versions)

    @property
    def live(self) -> set[str]:
        return {name for name in self.names if self.store.load(name).control.live}


class TestCommands:
    """`evenkeel readiness`, `live` and `dry-run` with the real use cases."""

    @pytest.fixture
    def fleet(self, monkeypatch: pytest.MonkeyPatch) -> Fleet:
        fleet = Fleet(3)
        for name in fleet.names:
            pool = PoolId("cluster-api", "default", "", "workers")
            fleet.store.save_pool(name, pool, PoolState(), None)
        monkeypatch.setattr(stack_client, "ask", lambda _stack, event: fleet.stack.operate(event, plenty))
        return fleet

    def run(self, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words[:1], "--stack", "s", *words[1:]])
        assert result.exit_code == code, result.output
        return result.output

    def test_readiness_exits_with_5_if_a_cluster_is_not_ready(self, fleet: Fleet) -> None:
        assert self.run("readiness").count("is ready") == 3
        fleet.incident("c001", IncidentKind.INVALID)
        assert "c001 is not ready: it has an incident" in self.run("readiness", code=5)
        self.run("readiness", "--cluster", "c000")

    @pytest.mark.parametrize("more", [["--dry-run"], []])
    def test_nothing_goes_live_in_a_dry_run_or_without_consent(self, fleet: Fleet, more: list[str]) -> None:
        self.run("live", "--all", *more, code=0 if more else 2)
        assert fleet.live == set()

    def test_ready_clusters_go_live_at_once(self, fleet: Fleet) -> None:
        fleet.incident("c001", IncidentKind.INVALID)
        assert "left out: c001 is not ready" in self.run("live", "--all", "--yes")
        assert fleet.live == {"c000", "c002"}
        self.run("dry-run", "--all", "--yes", "--reason", "ticket 8")
        assert fleet.live == set()
        (*_, entry) = fleet.stack.ask("history", "c000")["actions"]
        assert (entry["cause"], entry["reason"]) == ("dry-run", "ticket 8")

    @pytest.mark.parametrize("words", [[], ["--all", "--cluster", "c000"], ["--all", "--selector", "a=b"]])
    def test_the_scope_of_live_must_be_given_once(self, fleet: Fleet, words: list[str]) -> None:
        self.run("live", *words, "--yes", code=2)
        assert fleet.live == set()

    def test_json_goes_alone_to_standard_output(self, fleet: Fleet) -> None:
        result = CliRunner().invoke(app, ["live", "--stack", "s", "--all", "--yes", "-o", "json"])
        assert {each["cluster"] for each in json.loads(result.stdout)["clusters"]} == {*fleet.names}
