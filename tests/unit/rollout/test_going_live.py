"""Going live: one pool, one cluster that is ready, and a fleet in waves that halt by themselves."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenkeel.application.errors import BadRequestError, ClusterUnavailableError, StateUnavailableError
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.ports import sequentially
from evenkeel.application.rollout.rollout import AdvanceRollouts
from evenkeel.domain.model.groups import NodeGroup, PoolId
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rollout.waves import Phase, Rollout, wave_size
from evenkeel.record import ControlRecord, Registration
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError
from evenkeel_cli import stack_client
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, group, key
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, plenty, record, register
from tests.house import House
from tests.parts import replace

DAY = timedelta(days=1)
POOLS = ("workers", "other")
NUMBERS = [{"name": name, "min": 1, "max": 8} for name in POOLS]


def two_pools(**fields: dict[str, Any]) -> list[NodeGroup]:
    """Pools workers and other, each in two zones, neither as it should be; fields by the names of groups."""
    made = [group(zone, 2, pool=pool, bounds=(1, 9)) for pool in POOLS for zone in "ab"]
    return [replace(each, **fields.get(each.key.name.replace("-", "_"), {})) for each in made]


def document(**fields: Any) -> dict[str, Any]:
    """A record that leaves dry run to the stack, as a file has it."""
    return record(dry_run=None, **fields).model_dump(mode="json", exclude_unset=True)


def written_pools(house: House) -> set[str]:
    return {name.rpartition("-")[0] for name in house.patched()}


class TestPools:
    """What a pool says of dry run goes before what its cluster is."""

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_one_member_decides_for_its_pool_and_the_cluster_for_the_other(self, dry_run: bool) -> None:
        house = House(two_pools(workers_a={"dry_run": not dry_run}), stack_dry_run=dry_run, pools=NUMBERS)
        house.settle()
        assert written_pools(house) == ({"workers"} if dry_run else {"other"})
        decided = {decision["pool"]["name"]: decision["dryRun"] for decision in house.decisions()}
        assert decided == {"workers": not dry_run, "other": dry_run}

    def test_an_annotation_precedes_the_record(self) -> None:
        numbers = [{**entry, "dry_run": False} for entry in NUMBERS]
        house = House(two_pools(other_b={"dry_run": True}), stack_dry_run=True, pools=numbers)
        house.settle()
        assert written_pools(house) == {"workers"}

    def test_members_that_disagree_make_their_pool_invalid(self) -> None:
        house = House(two_pools(workers_a={"dry_run": True}, workers_b={"dry_run": False}), pools=NUMBERS)
        house.settle()
        assert written_pools(house) == {"other"}
        (invalid,) = [pool for pool in house.ask("plan")["plan"]["pools"] if not pool["valid"]]
        assert invalid["name"] == "workers"
        assert "evenkeel.dev/dry-run" in invalid["problems"][0]

    def test_a_plan_names_a_pool_that_differs_from_its_cluster(self) -> None:
        house = House(two_pools(workers_a={"dry_run": False}), stack_dry_run=True, pools=NUMBERS)
        notes = {pool["name"]: pool.get("notes", []) for pool in house.ask("plan")["plan"]["pools"]}
        assert any(note.startswith("live, set on the pool itself") for note in notes["workers"])
        assert not any("word" in note for note in notes["other"])
        assert "dry run (not so pool workers)" in house.ask("status")["message"]
        assert "nothing of this is written, but of pool workers." in house.ask("explain", pool="other")["message"]

    def test_a_restore_writes_pools_in_dry_run_too(self) -> None:
        house = House(two_pools(), pools=NUMBERS)
        house.settle()
        for zone in "ab":
            house.cluster.change(key(zone), dry_run=True)
        house.ask("restore")
        house.settle()
        assert house.bounds() == [(1, 9)] * 4

    def test_agreed_numbers_are_written_to_live_pools_only(self) -> None:
        small = {"pool_min": 0, "pool_max": 1}
        house = House(two_pools(workers_a={**small, "dry_run": True}, other_a=small))
        house.ask("validate", apply=True)
        house.settle()
        maxima = {
            each.key.name: each.annotations.pool_max
            for each in house.cluster.groups.values()
            if each.annotations.pool_max
        }
        assert maxima == {"workers-a": 1, "other-a": 2}
        reported = {one["pool"]["name"]: one["dryRun"] for one in house.decisions() if "mended" in one}
        assert reported == {"workers": True, "other": False}

    @pytest.mark.parametrize("dies_at", range(1, 30))
    def test_a_pool_in_dry_run_is_not_written_wherever_a_run_is_killed(self, dies_at: int) -> None:
        house = House(two_pools(other_a={"dry_run": True}), pools=NUMBERS)
        house.store.away_from = house.store.calls + dies_at
        with suppress(StateUnavailableError):  # it may come too late for this run
            house.run()
        house.store.away_from = None
        house.settle()
        assert written_pools(house) == {"workers"}


class TestPrecedence:
    """The record's goes before what actions have said, and that before the stack's."""

    @pytest.mark.parametrize("said", [None, True, False])
    @pytest.mark.parametrize("live", [None, True, False])
    @pytest.mark.parametrize("stack", [True, False])
    def test_dry_run(self, said: bool | None, live: bool | None, stack: bool) -> None:
        control = ControlRecord(live=live)
        found = control.is_dry(record(dry_run=said), stack)
        assert found == (said if said is not None else (not live if live is not None else stack))

    def test_a_record_that_is_stored_again_keeps_the_controls(self) -> None:
        house = House(stack_dry_run=True)
        house.ask("live", force=True)
        answer = house.ask("register", record=document(pools=NUMBERS))
        assert answer["dryRun"] is False
        house.ask("apply", None, records={"demo": document(pools=NUMBERS, scan_interval=120)}, verify=False)
        assert house.control.live is True
        assert [one.live for _, one in house.store.registrations() if isinstance(one, Registration)] == [True]

    def test_a_file_with_dry_run_ends_live_at_once(self) -> None:
        house = House(stack_dry_run=True)
        house.ask("live", force=True)
        house.ask("apply", None, records={"demo": record(dry_run=True).model_dump(mode="json")}, verify=False)
        house.settle()
        assert house.patched() == set()

    def test_status_counts_clusters_in_dry_run(self) -> None:
        house = House(stack_dry_run=True)
        assert house.ask("status", None)["counts"]["dryRun"] == 1
        house.ask("live", force=True)
        assert house.ask("status", None)["counts"]["dryRun"] == 0

    def test_a_steady_live_cluster_gets_quick_checks(self) -> None:
        house = House(stack_dry_run=True)
        house.ask("live", force=True)
        house.settle()
        house.clock.at += DAY
        for _ in range(15):  # one of these minutes is the cluster's own
            house.looks()
            house.carry_out()
        assert house.store.load("demo").steady is not None


class Dry(House):
    """A cluster that has been in dry run for a week."""

    def __init__(self, groups: list[NodeGroup] | None = None, **fields: Any) -> None:
        super().__init__(groups, stack_dry_run=True, **fields)
        self.ask("register", record=document(pools=[{"name": "workers", "min": 3, "max": 12}]))
        self.run()
        self.clock.at += 7 * DAY
        self.run()

    def decide(self, at: Any, bounds: tuple[int, int], result: str = "planned", dry_run: bool = True) -> None:
        """A decision of that moment, which finds these bounds."""
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
        house = Dry()
        for hour in range(6):
            house.decide(house.clock.at - DAY + timedelta(hours=hour), (1, 9))
        answer = house.ask("readiness")
        assert (answer["decisions"], answer["patches"]) == (6, 18)
        assert answer["patchesPerDay"] == 6.0

    def test_a_restless_plan_is_not_ready(self) -> None:
        house = Dry()
        for number in range(800):
            house.decide(house.clock.at - timedelta(days=2, minutes=number), (1, 9))
        assert house.hindrances() == []
        for number in range(800, 1800):
            house.decide(house.clock.at - timedelta(minutes=number), (1, 9))
        house.store.page = 10_000
        assert house.hindrances(**{"for": "1d"}) == ["restless"]

    def test_a_new_dry_run_is_too_short(self) -> None:
        house = House(stack_dry_run=True)
        house.ask("register", record=document())
        house.run()
        house.clock.at += DAY
        answer = house.ask("readiness")
        assert [each["rule"] for each in answer["hindrances"]] == ["too-short"]
        assert answer["hindrances"][0]["says"] == "its dry run has lasted 1.0 of 3.0 days"
        assert house.ask("readiness", **{"for": "12h"})["ready"] is True

    @pytest.mark.parametrize("action", ["pause", "dry-run"])
    def test_the_dry_run_begins_anew_after_a_pause_or_going_live(self, action: str) -> None:
        house = Dry()
        if action == "dry-run":
            house.ask("live")
            house.run()
            house.ask("dry-run")
        else:
            house.ask("pause")
            house.ask("resume")
        assert house.hindrances() == ["too-short"]

    def test_more_than_30_days_are_refused(self) -> None:
        assert "decisions are kept for 30 days: choose 30d at most" in Dry().refused("readiness", **{"for": "31d"})

    def test_a_recent_write_was_no_dry_run(self) -> None:
        house = Dry()
        house.decide(house.clock.at - DAY, (1, 9), "written", dry_run=False)
        assert house.hindrances() == ["too-short"]

    def test_a_pool_that_is_live_by_itself_does_not_end_the_dry_run_of_others(self) -> None:
        house = Dry([*two_pools(other_a={"dry_run": False, "pool_min": 1, "pool_max": 8})])
        house.scale("a", 3)
        house.run()
        assert written_pools(house) == {"other"}
        assert house.ask("readiness")["ready"] is True

    def test_a_cluster_without_pools_is_not_ready(self) -> None:
        house = House([group("a", 1, pool=None)], stack_dry_run=True)
        house.run()
        assert [each["rule"] for each in house.ask("readiness")["hindrances"]] == ["no-pools"]

    def test_a_cluster_older_than_its_decisions_is_not_too_young(self) -> None:
        house = House(stack_dry_run=True)
        state = PoolState(digest="an old digest")
        house.store.save_pool("demo", PoolId("cluster-api", "default", "", "workers"), state, None)
        assert house.ask("readiness")["ready"] is True

    def test_incidents_and_pauses_are_hindrances(self) -> None:
        house = Dry()
        _, versions = house.store.cluster_health("demo")
        incident = Incident(kind=IncidentKind.INVALID, since=NOW, pool="workers")
        house.store.save_cluster_health("demo", ClusterHealth(incidents=(incident,)), versions)
        house.ask("pause")
        assert house.hindrances() == ["in-trouble", "paused"]

    @pytest.mark.parametrize("field", ["bounds_applied_by", "replicas_applied_by"])
    def test_owners_that_would_revert_a_write_are_named(self, field: str) -> None:
        house = Dry()
        house.store.save_group("demo", key("a"), replace(GroupState(), **{field: "argocd"}), None)
        answer = house.ask("readiness")
        assert answer["putBack"] == {str(key("a")): "argocd"}
        assert f"put back by others: {key('a')} by argocd" in answer["message"]

    @pytest.mark.parametrize(("changes", "ready"), [(0, True), (2, True), (3, False), (8, False)])
    def test_bounds_that_others_keep_writing_are_a_conflict(self, changes: int, ready: bool) -> None:
        house = Dry()
        for number in range(changes + 1):
            house.decide(house.clock.at - DAY + number * MINUTE, (1, 9 + number))
        answer = house.ask("readiness")
        assert answer["rewritten"] == ({str(key(zone)): changes for zone in "abc"} if changes else {})
        assert answer["ready"] is ready

    def test_the_cluster_is_read_only_with_live(self) -> None:
        house = Dry([*House().cluster.groups.values(), group("z", 1, pool=None)])
        looks = house.cluster.looks
        assert house.ask("readiness")["skipped"] is None
        assert house.cluster.looks == looks
        house.cluster.rights_missing = ["patch machinedeployments.cluster.x-k8s.io"]
        answer = house.ask("readiness", live=True)
        assert [each["name"] for each in answer["skipped"]] == ["loose-z"]
        assert [each["rule"] for each in answer["hindrances"]] == ["rights-missing"]
        house.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        answer = house.ask("readiness", live=True)
        assert [each["rule"] for each in answer["hindrances"]] == ["not-read"]
        assert house.ask("readiness")["ready"] is True

    def test_unknown_decisions_are_ignored(self) -> None:
        house = Dry()
        for number, odd in enumerate([{"pool": 7}, {"pool": {}}, {}, {"pool": {"name": "x", "strategy": "y"}}]):
            at = house.clock.at - DAY + number * MINUTE
            id = ulid(at, bytes(10))
            house.store.save_decision("demo", id, {"id": id, "at": rfc3339(at), **odd}, at + 30 * DAY)
        id = ulid(house.clock.at, b"1" * 10)
        house.store.save_decision("demo", id, {"id": id, "at": "yesterday", "pool": {}}, house.clock.at + DAY)
        assert house.ask("readiness")["ready"] is True

    def test_readiness_of_all_names_a_broken_record(self) -> None:
        house = Dry()
        house.register_another("live-one", FakeCluster([]))
        house.store.plant("broken", "{}")
        answer = house.ask("readiness", None)
        reported = {each["cluster"]: each.get("state") for each in answer["clusters"]}
        assert reported == {"broken": None, "demo": "ready", "live-one": "live"}

    @pytest.mark.parametrize("page", [1, 2, 5, 13])
    def test_pages_do_not_change_the_answer(self, page: int) -> None:
        house = Dry()
        for number in range(12):
            house.decide(house.clock.at - DAY + number * MINUTE, (1, 9 + number % 2))
        whole = house.ask("readiness")
        house.store.page = page
        assert house.ask("readiness") == whole


class TestLive:
    def test_a_ready_cluster_goes_live_and_is_written(self) -> None:
        house = Dry()
        assert house.patched() == set()
        assert house.ask("live", reason="a week was enough")["message"].startswith("demo is live")
        house.carry_out()
        assert house.patched() != set()

    def test_a_cluster_that_is_not_ready_needs_force(self) -> None:
        house = House(stack_dry_run=True)
        house.ask("register", record=document(pools=NUMBERS))
        house.run()
        assert house.refused("live").startswith("demo is not ready: its dry run has lasted 0.0 of 3.0 days")
        assert house.control.live is None
        house.ask("live", force=True)
        assert house.control.live is True

    @pytest.mark.parametrize(("action", "said"), [("live", True), ("dry-run", False)])
    def test_no_action_overrules_the_record(self, action: str, said: bool) -> None:
        house = House(stack_dry_run=not said, dry_run=said)
        assert f"its record says dry_run: {str(said).lower()}" in house.refused(action)
        assert house.control.live is None

    def test_a_cluster_back_in_dry_run_is_not_written_any_more(self) -> None:
        house = Dry()
        house.ask("live")
        house.settle()
        patches = len(house.cluster.applied)
        assert "leaves its objects as they are" in house.ask("dry-run")["message"]
        house.scale("a", 5)
        house.runs(3)
        assert len(house.cluster.applied) == patches
        house = House()  # the stack itself is live
        house.ask("dry-run")
        house.settle()
        assert house.patched() == set()

    def test_a_repeated_action_is_done_once(self) -> None:
        house = Dry()
        for action in ("live", "live", "dry-run", "dry-run"):
            house.ask(action)
        reported = [entry["cause"] for entry in house.ask("history")["actions"]]
        assert reported == ["live", "dry-run"]

    def test_a_list_shows_which_clusters_are_ready(self) -> None:
        house = Dry()
        house.register_another("written", FakeCluster([]))
        register(house.store, "young", dry_run=None)
        house.clusters.by_id["young"] = FakeCluster([])
        answer = house.ask("live", None, all=True, list=True)
        reported = {each["cluster"]: each["ok"] for each in answer["clusters"]}
        assert reported == {"demo": True, "young": False}  # the third is live
        assert house.control.live is None


def before_write(store: InMemoryStore, place: int, act: Callable[[str], None]) -> None:
    """Before the write at this place, from 0 on."""

    def wait(sort_key: str) -> None:
        if place == 0:
            act(sort_key)
        else:
            before_write(store, place - 1, act)

    store.before_write = [wait]


class Fleet:
    """Clusters in dry run that the schedule ticks for every minute, and looks at."""

    def __init__(self, clusters: int, *, dry_run: bool = True) -> None:
        self.clock = FakeClock()
        self.store = InMemoryStore(clock=self.clock)
        self.names = [f"c{number:03}" for number in range(clusters)]
        for name in self.names:
            register(self.store, name, dry_run=None)
        clusters_by_id = FakeClusters({name: FakeCluster([]) for name in self.names})
        self.house = House(store=self.store, clusters=clusters_by_id, clock=self.clock, stack_dry_run=dry_run)
        self.queue, self.bus = self.house.queue, self.house.bus
        chance = count(10**6)
        self.advance_rollouts = AdvanceRollouts(
            store=self.store,
            queue=self.queue,
            bus=self.bus,
            clock=self.clock,
            random_bytes=lambda size: next(chance).to_bytes(size),
            dry_run=dry_run,
        )
        self.dark: set[str] = set()
        self.look()

    def look(self) -> None:
        seen = [name for name in self.names if name not in self.dark]
        if seen:
            self.store.save_checked_at(seen, self.clock.at)

    def begin(self, **fields: Any) -> dict[str, Any]:
        return self.house.ask("rollout", None, **{"clusters": self.names, "wave": "10%", "by": "jane", **fields})

    def minute(self) -> None:
        self.clock.at += MINUTE
        self.look()
        self.advance_rollouts(plenty)

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.minute()

    def until(self, *phases: Phase) -> None:
        for _ in range(1000):
            if self.rollout.phase in phases:
                return
            self.minute()
        raise AssertionError(f"{self.rollout.phase} and no further")

    def incident(self, name: str, *kinds: IncidentKind) -> None:
        _, versions = self.store.cluster_health(name)
        incidents = tuple(Incident(kind=kind, since=self.clock.at, pool="default/workers") for kind in kinds)
        self.store.save_cluster_health(name, ClusterHealth(incidents=incidents), versions)

    def control(self, name: str) -> ControlRecord:
        return self.store.load(name).control

    @property
    def rollout(self) -> Rollout:
        found, _ = self.store.rollout()
        assert found is not None
        return found

    @property
    def live(self) -> set[str]:
        return {name for name in self.names if not self.store.load(name).is_dry(self.advance_rollouts.dry_run)}


def started(clusters: int, *, minutes: int = 1, **fields: Any) -> Fleet:
    """A fleet whose rollout began some minutes ago."""
    fleet = Fleet(clusters)
    fleet.begin(**fields)
    fleet.minutes(minutes)
    return fleet


def live_on(clusters: int, live: int) -> Fleet:
    """A fleet whose rollout has switched this many clusters."""
    fleet = started(clusters)
    while len(fleet.live) < live:
        fleet.minute()
    return fleet


class TestWaves:
    def test_each_wave_soaks_before_the_next_until_all_are_live(self) -> None:
        fleet = Fleet(30)
        assert fleet.begin(soak="10m", reason="ticket 7")["size"] == 3
        assert fleet.live == set()  # the schedule switches, not the caller
        seen = []
        while fleet.rollout.phase is not Phase.DONE:
            fleet.minute()
            seen.append(len(fleet.live))
            assert len(seen) < 200
        assert sorted(set(seen)) == list(range(3, 31, 3))
        assert all(seen.count(number) >= 10 for number in range(3, 30, 3))
        assert fleet.bus.types == ["Rollout Done"]
        (entry,) = fleet.house.ask("history", "c001")["actions"]
        assert (entry["cause"], entry["by"], entry["reason"]) == ("live", "jane", "ticket 7")

    def test_an_incident_in_a_wave_takes_back_that_wave_only(self) -> None:
        fleet = live_on(30, 6)
        first, second = fleet.rollout.proven, fleet.rollout.wave
        fleet.incident(second[1], IncidentKind.CONTESTED)
        fleet.minute()
        assert fleet.live == set(first)
        assert fleet.rollout.phase is Phase.HALTED
        fleet.minutes(120)
        assert fleet.live == set(first)
        assert fleet.bus.types == ["Rollout Halted"]
        ((_, reported),) = fleet.bus.published
        assert f"{second[1]}: contested of workers" in reported["message"]
        (*_, entry) = fleet.house.ask("history", second[0])["actions"]
        assert (entry["cause"], entry["by"]) == ("dry-run", None)

    def test_an_incident_in_an_earlier_wave_halts_and_soaked_waves_stay(self) -> None:
        fleet = live_on(30, 9)
        fleet.incident("c000", IncidentKind.MISSING)
        fleet.minute()
        assert fleet.live == set(fleet.names[:6])

    def test_an_incident_of_no_member_leaves_its_cluster_out(self) -> None:
        fleet = Fleet(10)
        fleet.incident("c005", IncidentKind.MISSING)
        fleet.begin()
        fleet.until(Phase.DONE)
        assert fleet.live == set(fleet.names) - {"c005"}
        assert fleet.house.ask("rollout", None)["leftOut"] == {"c005": "in-trouble"}

    def test_a_wave_without_checks_waits_and_is_taken_back(self) -> None:
        fleet = started(10, soak="10m")
        fleet.dark = {"c000"}
        fleet.minutes(30)
        assert fleet.live == {"c000"}
        fleet.until(Phase.HALTED)
        assert fleet.live == set()
        assert fleet.rollout.halts[0].kind is IncidentKind.STOPPED
        assert len([chunk for chunk in fleet.queue.looks if chunk.clusters == ("c000",)]) > 20  # asked for each minute

    def first_wave_lasts(self, fleet: Fleet) -> timedelta:
        """For how long the first wave is the only one that is live."""
        fleet.until(Phase.WATCHING)
        while not fleet.live:
            fleet.minute()
        first, began = fleet.live, fleet.clock.at
        while fleet.live == first:
            fleet.minute()
        return fleet.clock.at - began

    def change(self, fleet: Fleet, name: str, **fields: Any) -> None:
        found = fleet.store.registered(name)
        assert found is not None
        fleet.store.save_record(record(name, dry_run=None, **fields), found.control, found.versions)

    @pytest.mark.parametrize("soak", ["1m", "5m", "15m", "3h"])
    @pytest.mark.parametrize("trouble_after", [0, 60, 300, 3600, 86_400])
    def test_a_wave_lasts_longer_than_the_largest_trouble_after(self, soak: str, trouble_after: int) -> None:
        fleet = Fleet(4)
        self.change(fleet, "c001", trouble_after=trouble_after)
        soak_seconds = timedelta(seconds=fleet.begin(wave="2", soak=soak)["soakSeconds"])
        least = timedelta(seconds=max(trouble_after, 300))  # c000 has the default
        lasted = self.first_wave_lasts(fleet)
        assert lasted > least
        assert soak_seconds <= lasted <= max(least, soak_seconds) + 3 * MINUTE

    def test_the_answer_says_that_the_soak_is_too_short(self) -> None:
        fleet = Fleet(4)
        self.change(fleet, "c001", trouble_after=3600)
        reported = fleet.begin(wave="1", soak="5m")
        assert (reported["soakSeconds"], reported["waveSoakSeconds"]) == (300, 3660)
        assert reported["message"].endswith(
            "each wave is watched for up to 61 min, not 5 min: trouble_after is up to 60 min"
        )
        fleet.minute()
        assert "watched for 6 min, not 5 min: trouble_after is 5 min" in fleet.house.ask("rollout", None)["message"]
        enough = Fleet(4)
        assert "trouble_after" not in enough.begin(soak="15m")["message"]

    @pytest.mark.parametrize(("before", "after"), [(None, 3600), (86_400, 600), (3600, None)])
    def test_trouble_after_counts_as_it_is_at_the_end_of_the_wave(self, before: int | None, after: int | None) -> None:
        fleet = Fleet(4)
        self.change(fleet, "c000", trouble_after=before)
        fleet.begin(wave="2", soak="5m")
        fleet.minutes(3)
        self.change(fleet, "c000", trouble_after=after)
        needed = timedelta(seconds=after or 300)
        assert needed < self.first_wave_lasts(fleet) + 2 * MINUTE <= needed + 5 * MINUTE

    def test_a_cluster_that_is_no_member_changes_nothing(self) -> None:
        fleet = started(3, wave="2", soak="5m")
        register(fleet.store, "later", dry_run=None, trouble_after=86_400)
        assert self.first_wave_lasts(fleet) < 10 * MINUTE

    @pytest.mark.parametrize("dark", [(0, 14), (3, 14), (3, 9)])
    def test_a_wave_soaks_from_when_each_cluster_is_checked_live(self, dark: tuple[int, int]) -> None:
        fleet = Fleet(4)
        self.change(fleet, "c000", trouble_after=900)
        fleet.begin(wave="2", soak="5m")
        fleet.minute()
        began = fleet.clock.at
        for minute in range(40):
            fleet.dark = {"c000"} if dark[0] <= minute < dark[1] else set()
            fleet.minute()
            if len(fleet.live) > 2:
                break
        assert fleet.clock.at - began > timedelta(minutes=dark[1] + 15)
        assert fleet.clock.at - began < timedelta(minutes=dark[1] + 20)

    def test_a_short_gap_of_checks_does_not_restart_the_soak(self) -> None:
        fleet = started(4, minutes=3, wave="2", soak="10m")
        fleet.dark = {"c000"}
        fleet.minutes(4)
        fleet.dark = set()
        fleet.minutes(7)
        assert fleet.live == set(fleet.names)

    def test_the_wave_is_checked_every_minute(self) -> None:
        fleet = Fleet(4)
        fleet.begin(wave="2", soak="10m")
        for _ in range(15):
            fleet.clock.at += MINUTE
            asked = {name for chunk in fleet.queue.looks for name in chunk.clusters}
            fleet.queue.looks.clear()
            if asked:
                fleet.store.save_checked_at(sorted(asked), fleet.clock.at)
            fleet.advance_rollouts(plenty)
        assert fleet.live == set(fleet.names)

    @pytest.mark.parametrize("why", ["record-says", "live-already", "paused", "not-looked-at", "not-registered"])
    def test_clusters_that_are_left_out(self, why: str) -> None:
        fleet = Fleet(4)
        changes: dict[str, Callable[[], object]] = {
            "record-says": lambda: register(fleet.store, "c001", fleet.store.load("c001").versions, dry_run=True),
            "live-already": lambda: fleet.house.ask("live", "c001", force=True),
            "paused": lambda: fleet.house.ask("pause", "c001"),
            "not-looked-at": lambda: (fleet.dark.add("c001"), setattr(fleet.clock, "at", NOW + DAY), fleet.look()),
            "not-registered": lambda: fleet.house.ask("unregister", "c001"),
        }
        changes[why]()
        fleet.begin(wave="1")
        fleet.until(Phase.DONE)
        assert {id: left.value for id, left in fleet.rollout.left_out.items()} == {"c001": why}

    def test_a_wave_waits_for_an_unreadable_record_and_takes_it_back(self) -> None:
        fleet = started(4, wave="2", soak="5m")
        strange = '{"access": {"kind": "telepathy"}}'  # of a newer release
        for sort_key, text in {"META": strange, "META#CONTROL": fleet.store.text("c000", "META#CONTROL")}.items():
            fleet.store.plant("c000", text, sort_key)
        for _ in range(30):
            fleet.minute()
            assert fleet.rollout.wave == ("c000", "c001")
        fleet.until(Phase.HALTED)
        assert [halt.cluster for halt in fleet.rollout.halts] == ["c000"]
        assert fleet.bus.types == ["Rollout Halted"]
        assert fleet.store.text("c000", "META") == strange
        found = fleet.store.registered("c000")
        assert found is not None
        fleet.store.save_record(record("c000", dry_run=None), found.control, found.versions)
        assert fleet.live == set()

    def test_only_clusters_that_the_wave_switched_are_taken_back(self) -> None:
        fleet = started(6, wave="6")
        fleet.house.ask("dry-run", "c001")
        fleet.house.ask("live", "c002", force=True)  # it is live already, by the wave
        fleet.house.ask("dry-run", "c003")
        fleet.house.ask("live", "c003", force=True)
        fleet.incident("c000", IncidentKind.REFUSED)
        fleet.until(Phase.HALTED)
        assert fleet.live == {"c003"}

    def test_a_cluster_put_back_in_dry_run_is_not_switched_again(self) -> None:
        fleet = started(3, wave="3")
        found, version = fleet.store.rollout()
        assert found is not None
        fleet.house.ask("dry-run", "c001")
        fleet.store.save_rollout(found.in_phase(Phase.SWITCHING, fleet.clock.at), version)  # as if it had died
        fleet.minute()
        assert fleet.live == {"c000", "c002"}

    def test_a_wave_does_not_wait_for_an_unregistered_cluster(self) -> None:
        fleet = started(4, wave="2")
        fleet.house.ask("unregister", "c000")
        fleet.dark = {"c000"}
        fleet.names.remove("c000")
        fleet.until(Phase.DONE)
        assert fleet.live == {"c001", "c002", "c003"}

    def test_a_stack_that_is_live_has_nothing_to_switch(self) -> None:
        fleet = Fleet(3, dry_run=False)
        fleet.begin()
        fleet.until(Phase.DONE)
        assert all(fleet.control(name).live is None for name in fleet.names)

    @pytest.mark.parametrize("meets_another", [False, True])
    @pytest.mark.parametrize("place", range(12))
    def test_a_person_halts_it_also_while_it_switches(self, place: int, meets_another: bool) -> None:
        fleet = Fleet(10)
        fleet.begin(wave="5")

        def abort(_: str) -> None:
            fleet.house.ask("rollout", None, abort=True, by="joe")
            if meets_another:  # who takes all of the wave back before the first has done what it was about to
                fleet.until(Phase.HALTED)

        fleet.clock.at += MINUTE
        before_write(fleet.store, place, abort)
        fleet.advance_rollouts(plenty)
        fleet.until(Phase.HALTED)
        assert fleet.live == set()
        assert "halted, by joe" in fleet.house.ask("rollout", None)["message"]
        fleet.begin(wave="10")
        fleet.minute()
        assert fleet.live == set(fleet.names), "the next one may have them"

    def test_an_abort_after_an_incident_gives_the_rollout_up(self) -> None:
        fleet = started(10, wave="5")
        fleet.incident("c000", IncidentKind.REFUSED)
        fleet.until(Phase.HALTED)
        halted, switched = fleet.rollout, fleet.live
        for _ in range(2):
            fleet.house.ask("rollout", None, abort=True, by="joe", reason="not this week")
            fleet.minutes(2)
        assert (fleet.rollout.phase, fleet.rollout.id, fleet.live) == (Phase.HALTED, halted.id, switched)
        first, second = (detail for _, detail in fleet.bus.published)
        assert (fleet.bus.types, first["key"], second["haltedBy"]) == (["Rollout Halted"] * 2, second["key"], "joe")
        assert (first["halts"], second["halts"]) == (1, 0)

    @pytest.mark.parametrize("halts", [False, True])
    def test_an_end_is_published_by_a_later_tick_once_the_bus_is_back(self, halts: bool) -> None:
        fleet = Fleet(3)
        fleet.begin(wave="3")
        fleet.bus.away = True
        fleet.minutes(2)
        if halts:
            fleet.incident("c000", IncidentKind.REFUSED)
        fleet.minutes(20)
        assert not fleet.rollout.phase.is_over
        fleet.bus.away = False
        fleet.minute()
        assert fleet.bus.types == ["Rollout Halted" if halts else "Rollout Done"]
        assert fleet.rollout.phase.is_over

    def test_a_rollout_ends_unpublished_if_the_bus_stays_away(self) -> None:
        fleet = Fleet(3)
        fleet.begin(wave="3")
        fleet.bus.away = True
        fleet.until(Phase.DONE)
        assert fleet.live == set(fleet.names)

    @pytest.mark.parametrize("minutes", [0, 3, 40])
    def test_a_repeated_request_continues_the_rollout(self, minutes: int) -> None:
        fleet = Fleet(10)
        first = fleet.begin()
        if minutes:
            fleet.house.ask("dry-run", "c000")
            fleet.minutes(minutes)
        again = fleet.begin(by="joe")
        assert (again["ok"], again["rollout"]) == (True, first["rollout"])
        assert fleet.rollout.by == "jane"

    @pytest.mark.parametrize("fields", [{"wave": "5"}, {"soak": "2h"}, {"clusters": ["c001", "c000"]}, {}])
    def test_another_is_not_begun_beside_it(self, fields: dict[str, Any]) -> None:
        fleet = Fleet(10)
        fleet.begin()
        if not fields:  # the same one, while it is being halted
            fleet.house.ask("rollout", None, abort=True)
        with pytest.raises(BadRequestError, match="abort it first"):
            fleet.begin(**fields)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            *(({"wave": wave}, f"wave is '{wave}'") for wave in ("0%", "101%", "few", "٣")),
            *(({"soak": soak}, f"soak is '{soak}'") for soak in ("soon", "0m")),
            ({"abort": True}, "name one of the two"),
            ({"clusters": [f"c{number:050}" for number in range(9000)]}, "fewer at a time"),
        ],
    )
    def test_a_bad_value_is_refused_and_nothing_begins(self, fields: dict[str, Any], says: str) -> None:
        fleet = Fleet(2)
        with pytest.raises((BadRequestError, ConfigError)) as caught:
            fleet.begin(**fields)
        assert says in str(caught.value)
        assert fleet.store.rollout() == (None, None)
        assert fleet.house.ask("rollout", None)["message"] == "there was no rollout yet"

    def test_the_read_function_shows_a_rollout_and_can_neither_begin_nor_abort(self) -> None:
        fleet = Fleet(2)
        read = fleet.house.operate.read
        assert read({"action": "rollout"}, plenty)["message"] == "there was no rollout yet"
        for fields in ({"clusters": ["c000"]}, {"abort": True}):
            with pytest.raises(BadRequestError, match="this function only reads"):
                read({"action": "rollout", **fields}, plenty)

    def test_the_wave_is_checked_at_once(self) -> None:
        fleet = started(120, wave="100%")
        assert sorted(name for chunk in fleet.queue.looks for name in chunk.clusters) == fleet.names
        assert max(len(chunk.clusters) for chunk in fleet.queue.looks) <= 50

    def test_a_tick_sends_one_message_while_it_is_under_way_and_none_after(self) -> None:
        fleet = Fleet(1)
        scan = Scan(store=fleet.store, queue=fleet.queue, clock=fleet.clock, together=sequentially)
        scan.tick(NOW)
        assert fleet.queue.rollouts == []
        fleet.begin()
        scan.tick(NOW)
        assert fleet.queue.rollouts == [fleet.rollout.id]
        fleet.until(Phase.DONE)
        scan.tick(NOW)
        assert fleet.queue.rollouts == [fleet.rollout.id]

    def test_an_unreadable_rollout_stops_no_check(self) -> None:
        fleet = Fleet(1)
        fleet.store.plant("ROLLOUT", '{"phase": "soaring"}', "ROLLOUT")
        scan = Scan(store=fleet.store, queue=fleet.queue, clock=fleet.clock, together=sequentially)
        assert scan.tick(NOW).requested == ("c000",)

    def test_unknown_fields_of_a_rollout_are_ignored(self) -> None:
        fleet = Fleet(1)
        fleet.begin()
        document = json.loads(fleet.store.text("ROLLOUT", "ROLLOUT"))
        fleet.store.plant("ROLLOUT", json.dumps({**document, "canary": "c000"}), "ROLLOUT")
        fleet.until(Phase.DONE)
        assert fleet.live == {"c000"}


class TestKilledAndRepeated:
    """A rollout of three waves, of which any step may be the last of its invocation."""

    @pytest.mark.parametrize("ends", [True, False])
    @pytest.mark.parametrize("dies_at", range(1, 40))
    def test_a_rollout_ends_alike_wherever_it_is_killed(self, dies_at: int, ends: bool) -> None:
        fleet = Fleet(6)
        fleet.begin(wave="2", soak="5m")
        if not ends:
            while len(fleet.live) < 4:
                fleet.minute()
            fleet.incident("c003", IncidentKind.MISSING)
        calls = fleet.store.calls
        for _ in range(100):
            fleet.clock.at += MINUTE
            fleet.look()
            if fleet.store.calls < calls + dies_at:
                fleet.store.away_from = calls + dies_at
            try:
                fleet.advance_rollouts(plenty)
            except StateUnavailableError:
                calls = -1000
            fleet.store.away_from = None
            if fleet.rollout.phase.is_over:
                break
        assert fleet.rollout.phase is (Phase.DONE if ends else Phase.HALTED)
        assert fleet.live == (set(fleet.names) if ends else {"c000", "c001"})

    @given(st.lists(st.sampled_from(["again", "minute", "hour", "late"]), max_size=60))
    def test_repeated_late_or_lost_messages_switch_no_wave_too_soon(self, course: list[str]) -> None:
        fleet = Fleet(6)
        fleet.begin(wave="2", soak="10m")
        live_since: dict[str, Any] = {}
        for what in course:
            if what in ("minute", "hour"):
                fleet.clock.at += MINUTE if what == "minute" else timedelta(hours=1)
                fleet.look()
            if what != "late":
                fleet.advance_rollouts(plenty)
            for name in fleet.live:
                live_since.setdefault(name, fleet.clock.at)
            assert len(fleet.live) % 2 == 0
        moments = sorted(live_since.values())
        assert all(later - sooner >= timedelta(minutes=10) for sooner, later in pairwise(moments[::2]))

    @pytest.mark.parametrize("place", range(10))
    def test_two_at_once_do_no_more_than_one(self, place: int) -> None:
        fleet = Fleet(6)
        fleet.begin(wave="2")
        for _ in range(3):
            fleet.clock.at += MINUTE
            fleet.look()
            before_write(fleet.store, place, lambda _: fleet.advance_rollouts(plenty))
            fleet.advance_rollouts(plenty)
            fleet.store.before_write = []
            assert len(fleet.live) <= 2
        fleet.until(Phase.DONE)
        assert fleet.live == set(fleet.names)

    def test_a_switch_without_time_left_is_done_by_the_next_tick(self) -> None:
        fleet = Fleet(4)
        fleet.begin(wave="4")
        fleet.clock.at += MINUTE
        fleet.advance_rollouts(lambda: 9.0)
        assert fleet.live == set()
        fleet.minutes(2)
        assert fleet.live == set(fleet.names)


class TestSizes:
    @given(st.integers(1, 100), st.integers(1, 20_000))
    def test_a_percentage_is_rounded_up_and_ends(self, percent: int, clusters: int) -> None:
        size = wave_size(f"{percent}%", clusters)
        assert size is not None
        assert clusters * percent <= 100 * size < clusters * percent + 100

    @given(st.text(max_size=8))
    def test_anything_else_is_a_count_or_nothing(self, text: str) -> None:
        size = wave_size(text, 10)
        assert size is None or size >= 1


class TestCommands:
    """`evenkeel readiness`, `live`, `dry-run` and `rollout`, answered by the real use cases."""

    @pytest.fixture
    def fleet(self, monkeypatch: pytest.MonkeyPatch) -> Fleet:
        fleet = Fleet(3)
        for name in fleet.names:
            pool = PoolId("cluster-api", "default", "", "workers")
            fleet.store.save_pool(name, pool, PoolState(), None)
        monkeypatch.setattr(stack_client, "ask", lambda _stack, event: fleet.house.operate(event, plenty))
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
        for wave in ([], ["--wave", "50%"]):
            self.run("live", "--all", *wave, *more, code=0 if more else 2)
        assert fleet.live == set()
        assert fleet.store.rollout() == (None, None)

    def test_ready_clusters_go_live_at_once_or_in_waves(self, fleet: Fleet) -> None:
        fleet.incident("c001", IncidentKind.INVALID)
        assert "left out: c001 is not ready" in self.run("live", "--all", "--wave", "1", "--yes")
        assert fleet.rollout.waiting == ("c000", "c002")
        self.run("rollout", "--reason", "ticket 8", code=2)
        fleet.minute()
        self.run("rollout", "--abort", "--reason", "ticket 8")
        fleet.until(Phase.HALTED)
        assert "halted, by " in self.run("rollout", code=5)
        (*_, entry) = fleet.house.ask("history", "c000")["actions"]
        assert (entry["cause"], entry["reason"]) == ("dry-run", "ticket 8")
        self.run("live", "--cluster", "c002", "--yes")
        assert fleet.live == {"c002"}
        self.run("dry-run", "--all", "--yes")
        assert fleet.live == set()

    @pytest.mark.parametrize(
        "words", [[], ["--all", "--cluster", "c000"], ["--all", "--selector", "a=b"], ["--all", "--soak", "1h"]]
    )
    def test_the_scope_of_live_must_be_given_once(self, fleet: Fleet, words: list[str]) -> None:
        self.run("live", *words, "--yes", code=2)
        assert fleet.live == set()

    def test_json_goes_alone_to_standard_output(self, fleet: Fleet) -> None:
        result = CliRunner().invoke(app, ["live", "--stack", "s", "--all", "--wave", "3", "--yes", "-o", "json"])
        assert json.loads(result.stdout)["phase"] == fleet.rollout.phase.value
