"""Operator actions with the ports in memory: status, explain, validate, and single pools."""

import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any, ClassVar

import pytest
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from evenkeel.adapters.codec import unpack
from evenkeel.adapters.page.render import Theme
from evenkeel.adapters.page.widget import page_for
from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import ACTIONS, right_needed
from evenkeel.application.errors import (
    AccessError,
    BadRequestError,
    ClusterUnavailableError,
    RejectedError,
    StateUnavailableError,
)
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId, PublishedBounds
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.ulids import time_of, ulid
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.bounds.gep24 import LAX_GREEDY
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.record import BackoffEntry, ControlRecord, FixEntry
from evenkeel.state_records import ZoneRecord, ZoneStatement
from evenkeel.texts.english import sentence
from evenkeel.validation import ConfigError
from evenkeel_cli import stack_client
from evenkeel_cli.answers import print_answer
from evenkeel_cli.main import app
from evenkeel_cli.plan_tables import print_plan
from tests.builders import MINUTE, NOW, group, key, stated, zones
from tests.fakes import FakeCluster, FakeWorkload, plenty, record, register_again
from tests.parts import replace
from tests.stack import NUMBERS, RECORD, Stack, replaced_first
from tests.workloads import node, pod, template

LOW = {"pool_min": 0, "pool_max": 2}
SOON = "2026-01-15T12:02:30Z"


def two_pools() -> list[NodeGroup]:
    """Return pools workers and other, each in two zones, both of which need writes."""
    fields = {"bounds": (1, 9), "pool_min": 1, "pool_max": 8}
    return [group(zone, 2, pool=pool, **fields) for pool in ("workers", "other") for zone in "ab"]


def impair(stack: Stack, zone: str, stated_at: datetime) -> None:
    """Impair the zone for half an hour, as an operator does."""
    impaired = ZoneRecord(statements={"operator": ZoneStatement(until=NOW + 30 * MINUTE, stated_at=stated_at)})
    stack.store.save_zone("demo", "-", zone, impaired, None)


def fixes(stack: Stack) -> list[dict[str, Any]]:
    """Return the decisions that fixed a number, the newest first."""
    return [decision for decision in stack.decisions() if "fixed" in decision]


@pytest.fixture
def stack() -> Stack:
    return Stack()


@pytest.fixture
def pools() -> Stack:
    return Stack(two_pools())


class TestStatus:
    def test_every_pool_is_shown_by_zone_with_its_nodes_and_state(self) -> None:
        stack = Stack(zones((2, 2, 2), (2, 2, 1), bounds=[(1, 9)] * 3))
        stack.fail("c")
        (pool,) = stack.ask("status")["pools"]
        assert (pool["name"], pool["min"], pool["max"], pool["valid"]) == ("workers", 3, 12, True)
        shown = [(group["zone"], group["running"], group["state"]) for group in pool["groups"]]
        assert shown == [("a", 2, "healthy"), ("b", 2, "healthy"), ("c", 1, "fenced")]
        failure = {"class": "capacity", "failures": 1, "last": "2026-01-15T12:00:00Z", "message": "no room"}
        assert [group["failure"] for group in pool["groups"]] == [None, None, failure]

    def test_a_fence_and_an_impaired_zone_have_a_start_and_an_end(self, stack: Stack) -> None:
        def state(index: int) -> tuple[str, ...]:
            group = stack.ask("status")["pools"][0]["groups"][index]
            return group["state"], group["since"], group["until"]

        stack.fail("a")
        impair(stack, "b", NOW - MINUTE)
        stack.clock.at += 2 * MINUTE
        assert state(0) == ("fenced", "2026-01-15T12:00:00Z", "2026-01-15T12:05:00Z")
        assert state(1) == ("fenced", "2026-01-15T11:59:00Z", "2026-01-15T12:30:00Z")
        stack.clock.at += 10 * MINUTE
        assert state(0) == ("probing", "2026-01-15T12:05:00Z", None)

    def test_a_pools_own_backoff_counts_without_the_cluster_too(self) -> None:
        longer = {"initial": 1800, "longest": 3600, "forget_after": 21600}
        stack = Stack(pools=[{**NUMBERS[0], "backoff": longer}])
        stack.fail("a", BackoffEntry.model_validate(longer).policy())
        stack.run()
        stack.clock.at = NOW + timedelta(hours=4)  # forgotten by the cluster's backoff, and not by the pool's
        assert stack.ask("status")["pools"][0]["groups"][0]["state"] == "probing"
        stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        assert stack.ask("status")["groups"][str(key("a"))]["state"] == "probing"

    def test_held_groups_have_the_reasons_of_the_plan(self) -> None:
        frozen = group("a", 2, bounds=(1, 9), frozen_because=stated("rolling out"))
        stack = Stack([frozen, group("b", 3, running=1, bounds=(1, 9)), group("c", 0, closed_because=stated("no cpu"))])
        stack.fail("b")
        held = [found["held"] for found in stack.ask("status")["pools"][0]["groups"]]
        assert held[0] == ["frozen: rolling out"]
        assert held[1][0].startswith("fenced until ")
        assert held[2] == ["no cpu"]
        assert stack.ask("status")["pools"][0]["groups"][1]["requested"]["to"] == 1

    def test_status_and_plan_say_what_a_thaw_can_add(self) -> None:
        paused = group("a", 2, bounds=(1, 9), frozen_because=Reason.of(Rule.OBJECT_PAUSED))
        stack = Stack([paused, group("b", 3, bounds=(1, 9)), group("c", 3, bounds=(1, 9))])
        says = "workers-a cannot grow now: once that ends, the pool may pass PoolMaximum 12 by 7 nodes"
        assert stack.ask("status")["pools"][0]["notes"][0].startswith(says)
        assert stack.ask("plan")["plan"]["pools"][0]["notes"][0].startswith(says)

    def test_status_of_an_unreadable_cluster_shows_the_stored_state(self, stack: Stack) -> None:
        stack.fail("a")
        stack.run()
        stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        answer = stack.ask("status")
        assert answer["ok"] is True
        assert answer["pools"] == []
        assert answer["unread"] == "demo does not answer"
        group = answer["groups"][str(key("a"))]
        assert (group["state"], group["class"], group["failures"]) == ("fenced", "capacity", 1)
        assert group["backoffUntil"] == "2026-01-15T12:05:00Z"
        assert len(answer["decisions"]) == 1

    def test_the_message_has_the_age_of_the_last_decision(self, stack: Stack) -> None:
        stack.run()
        for passed, words in ((0, "just now"), (1, "1 minute ago"), (7200, "2 hours ago"), (259200, "3 days ago")):
            stack.clock.at = NOW + MINUTE + timedelta(seconds=max(passed, 60 * (passed > 0)))
            assert stack.ask("status")["message"].endswith(f"last decision {words}")

    def test_the_message_counts_held_groups_and_names_the_cluster_mode(self, stack: Stack) -> None:
        impair(stack, "b", NOW)  # no state of groups in an impaired zone is stored
        assert stack.ask("status")["message"] == "demo: on, no incident; node groups: 1 fenced"
        stack.ask("pause", pool="workers")
        assert stack.ask("status")["message"] == "demo: on, no incident; node groups: 3 frozen"
        stack.ask("pause", until="2026-01-15T13:00:00Z")
        assert stack.ask("status")["message"].startswith("demo: paused until 2026-01-15T13:00:00Z, ")
        stack.ask("restore")
        assert stack.ask("status")["message"].startswith("demo: being restored, ")

    def test_a_plan_of_a_stack_is_printed_as_a_plan_of_files(self, stack: Stack) -> None:
        answer, of_stack, of_files = stack.ask("plan"), StringIO(), StringIO()
        print_answer(answer, Console(file=of_stack, width=200))
        ids = ["cluster-api/default/workers"]
        print_plan(Console(file=of_files, width=200), answer["plan"], ids, answer["message"])
        assert of_stack.getvalue() == of_files.getvalue()
        assert of_files.getvalue().startswith("cluster-api/default/workers: ")
        assert "running" in of_files.getvalue()

    def test_the_table_shows_ages_and_outcomes(self, stack: Stack) -> None:
        stack.fail("a")
        stack.answer_writes(RejectedError("max is too large"), "workers-c")
        stack.run()
        answer = stack.ask("status")
        quote = StringIO()
        print_answer(answer, Console(file=quote, width=160))
        reported = quote.getvalue()
        assert "default/workers-a fenced  1 minute ago" in reported
        assert "a: fenced until 2026-01-15T12:05:00Z: capacity failure no. 1" in reported
        assert "2026-01-15T12:01:00Z (just now) workers: " in reported
        assert "workers-c rejected: max is too large" in reported

    def test_live_status_of_all_reads_every_cluster_and_names_broken_ones(self, stack: Stack) -> None:
        stack.register_another("another", FakeCluster(zones((1, 1))))
        stack.register_another("away", ClusterUnavailableError("away does not answer"))
        stack.register_another("garbage", ClusterUnavailableError("unused"))
        stack.store.plant("garbage", "{")
        for cluster in (None, "*"):
            answers = {one["cluster"]: one for one in stack.ask("status", cluster, live=True)["clusters"]}
            assert list(answers) == ["another", "away", "demo", "garbage"]
            assert "pools" in answers["another"]
            assert answers["demo"]["pools"]
            assert answers["away"]["unread"] == "away does not answer"
            assert answers["garbage"]["ok"] is False
            assert "not JSON" in answers["garbage"]["message"]

    @pytest.mark.parametrize("step", ["opened", "read"])
    @pytest.mark.parametrize(
        "error", [ValueError("b'Bearer s3cr3t'"), TypeError("s3cr3t"), UnicodeError("s3cr3t"), MemoryError("s3cr3t")]
    )
    def test_an_error_of_one_cluster_is_reported_without_its_text(self, step: str, error: Exception) -> None:
        stack = Stack()
        broken = FakeCluster([])
        broken.unreadable = error
        stack.register_another("broken", broken if step == "read" else error)
        kind = type(error).__name__
        for action, fields in (("status", {"live": True}), ("validate", {})):
            answer = stack.ask(action, "*", **fields)
            clusters = {one["cluster"]: one for one in answer["clusters"]}
            assert clusters["demo"]["ok"]
            assert clusters["demo"]["pools"] or action == "validate"
            assert f"broken: {kind} while it was {step}" in json.dumps(clusters["broken"])
            assert "s3cr3t" not in json.dumps(answer)
        page = page_for(stack.ask("status", "*", live=True), Theme.LIGHT, NOW)
        assert kind in page
        assert "workers" in page
        assert "s3cr3t" not in page

    def test_a_cluster_without_time_left_has_an_error(self, stack: Stack) -> None:
        answer = stack.operate({"action": "status", "live": True}, lambda: 2.0)
        assert answer["clusters"][0]["message"] == "demo: the time is over: ask for this cluster alone"


class TestSinglePools:
    def test_a_paused_pool_is_read_and_not_written(self, pools: Stack) -> None:
        assert "workers of demo is paused until resumed" in pools.ask("pause", pool="workers")["message"]
        pools.settle()
        assert pools.patched() == {"other-a", "other-b"}
        pools = {pool["name"]: pool for pool in pools.ask("status")["pools"]}
        assert {found["state"] for found in pools["workers"]["groups"]} == {"frozen"}
        assert pools["workers"]["groups"][0]["held"] == ["frozen: paused by an operator until resumed"]
        assert pools["workers"]["starved"] == 0
        assert {found["state"] for found in pools["other"]["groups"]} == {"healthy"}

    def test_a_pause_with_an_end_expires(self, pools: Stack) -> None:
        pools.ask("pause", pool="workers", until="2026-01-15T12:02:30Z")
        status = pools.ask("status")
        assert status["pausedPools"] == {"workers": "2026-01-15T12:02:30Z"}
        assert status["pools"][1]["groups"][0]["held"] == ["frozen: paused by an operator until 2026-01-15T12:02:30Z"]
        pools.run()
        assert pools.patched() == {"other-a", "other-b"}
        pools.clock.at += 2 * MINUTE
        pools.run()
        assert len(pools.patched()) == 4
        assert pools.ask("status")["pausedPools"] == {}

    def test_a_resume_ends_its_own_pause_only(self, pools: Stack) -> None:
        for fields in ({"pool": "workers"}, {"pool": "other"}, {}):
            pools.ask("pause", **fields)
        assert pools.ask("resume")["message"].endswith("still paused: pool other, workers")
        answer = pools.ask("resume", pool="workers")
        assert answer["message"] == "pool workers of demo is resumed and checked now; still paused: pool other"
        assert pools.control == ControlRecord(paused_pools={"other": None})

    @pytest.mark.parametrize(
        ("action", "fields", "says", "reset"),
        [
            ("pause", {"pool": "workers"}, "still paused: pool workers", {"paused_pools": {}}),
            ("pause", {"until": SOON}, f"; it is still paused until {SOON}", {"paused": False}),
            ("restore", {}, "; it is still being restored", {"leaving": False}),
        ],
    )
    def test_registering_again_keeps_the_controls_unless_the_record_resets_them(
        self, pools: Stack, action: str, fields: dict[str, Any], says: str, reset: dict[str, Any]
    ) -> None:
        pools.ask(action, **fields)
        control = pools.control
        assert pools.ask("register", record=RECORD)["message"].endswith(says)
        assert pools.control == control != ControlRecord()
        pools.ask("register", record={**RECORD, **reset})
        assert pools.control == ControlRecord()

    def test_a_new_record_may_contain_controls(self, stack: Stack) -> None:
        fix = {"pool": "workers", "before": 12, "after": 13}
        controls = {"paused": True, "paused_pools": {"gpu": None}, "leaving_pools": ["old"], "fixes": [fix]}
        stack.ask("register", cluster="new", record={**RECORD, **controls})
        assert stack.store.load("new").control == ControlRecord(
            paused=True, paused_pools={"gpu": None}, restoring_pools=("old",), fixes=(FixEntry.model_validate(fix),)
        )

    def test_an_unknown_pool_is_refused_with_the_nearest_name(self, pools: Stack) -> None:
        for action in ("pause", "resume", "restore"):
            message = pools.refused(action, pool="wokers")
            assert message.startswith("pool is 'wokers': demo has no such pool: it has other, workers")
            assert message.endswith("did you mean workers?")

    def test_a_pool_that_is_known_can_be_paused_while_the_cluster_is_away(self, pools: Stack) -> None:
        pools.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        assert pools.ask("pause", pool="workers")["ok"]
        assert "demo does not answer" in pools.refused("pause", pool="other")

    def test_pools_of_one_name_differ_by_id(self) -> None:
        here, there = group("a", 2, bounds=(1, 9)), group("a", 2, bounds=(1, 9), key=key("a", namespace="two"))
        stack = Stack([here, there])
        stack.ask("pause", pool="cluster-api/two/workers")
        states = [pool["groups"][0]["state"] for pool in stack.ask("status")["pools"]]
        assert states == ["healthy", "frozen"]

    def test_a_pause_is_never_cut_short_by_another(self, pools: Stack) -> None:
        """`pause --all --for 2h` must not end a pause without an end two hours later."""
        for pool in ({}, {"pool": "workers"}):
            pools.ask("pause", **pool)
            answer = pools.ask("pause", **pool, **{"for": "2h"})
            assert answer["message"].endswith("is paused until resumed already: resume it before you shorten its pause")
        assert pools.control == ControlRecord(paused=True, paused_pools={"workers": None})
        assert pools.ask("pause", None, all=True, list=True, **{"for": "2h"})["untouched"] == 1
        pools.ask("resume")
        pools.ask("pause", **{"for": "2h"})
        pools.ask("pause", **{"for": "1h"})
        assert pools.control.paused_until == pools.clock.at + 120 * MINUTE
        pools.ask("pause", **{"for": "3h"})
        assert pools.control.paused_until == pools.clock.at + 180 * MINUTE

    def test_a_list_of_resume_names_the_author_of_the_pause(self, pools: Stack) -> None:
        pools.ask("pause", by="jane", reason="ticket 7", **{"for": "2h"})
        (listed,) = pools.ask("resume", None, all=True, list=True)["clusters"]
        assert listed["message"] == "demo: it is still paused until 2026-01-15T14:00:00Z, by jane (ticket 7)"


class TestResumeAfterRestore:
    POOL: ClassVar = [{}, {"pool": "workers"}]

    @pytest.mark.parametrize("pool", POOL, ids=["cluster", "pool"])
    @pytest.mark.parametrize("is_done", [True, False], ids=["restored", "being restored"])
    def test_only_an_administrator_resumes_a_restored_one(
        self, pools: Stack, pool: dict[str, str], is_done: bool
    ) -> None:
        pools.settle()
        pools.ask("restore", **pool)
        if is_done:
            pools.settle()
        before = pools.control
        assert pools.refused("resume", **pool).endswith("as an administrator, resume it with --restored")
        listed = pools.ask("resume", None, clusters=["demo"], list=True, **pool)["clusters"]
        assert [found["ok"] for found in listed] == [False]
        event = {"action": "resume", "cluster": "demo", "restored": True, **pool}
        with pytest.raises(BadRequestError, match="resume with restored is for administrators"):
            pools.operate.within(Right.WRITE, event, plenty)
        pools.ask("pause", **pool, **{"for": "5m"})
        if is_done:
            assert pools.control == before
        pools.ask("resume", **pool, restored=True)
        assert pools.control == ControlRecord()

    @pytest.mark.parametrize("pool", POOL, ids=["cluster", "pool"])
    def test_a_pause_during_a_restore_ends_and_the_restore_continues(self, pools: Stack, pool: dict[str, str]) -> None:
        pools.settle()
        pools.ask("restore", **pool)
        restoring = pools.control
        pools.ask("pause", **pool)
        assert "still being restored" in pools.ask("resume", **pool)["message"]
        assert pools.control == restoring

    def test_a_record_that_resets_the_pause_resets_the_restore(self, pools: Stack) -> None:
        pools.settle()
        for pool in self.POOL:
            pools.ask("restore", **pool)
            pools.settle()
            pools.ask("register", record=RECORD)
            assert pools.control.restored or pools.control.restored_pools
            pools.ask("register", record={**RECORD, "paused": False, "paused_pools": {}})
            assert pools.control == ControlRecord()

    def test_a_pause_after_a_restore_is_an_ordinary_pause(self, pools: Stack) -> None:
        """An earlier release ends the pause, and keeps the field that it does not know."""
        stored = pools.store.load("demo")
        pools.store.save_record(stored.record, ControlRecord(restored=True), stored.versions)
        pools.ask("pause")
        pools.ask("resume")
        assert pools.control == ControlRecord()


class TestRestoreOfAPool:
    def test_its_groups_alone_are_restored_and_then_paused(self, pools: Stack) -> None:
        pools.settle()
        assert all(one.ours.has_adopted for one in pools.cluster.groups.values())
        pools.ask("restore", pool="workers")
        patches = len(pools.cluster.applied)
        pools.run()
        restored = pools.cluster.applied[patches:]
        assert pools.patched(patches) == {"workers-a", "workers-b"}
        assert all(patch.leaves and patch.bounds == Bounds(1, 9) for patch in restored)
        for patch in restored:  # the annotations that the API would remove
            pools.cluster.change(patch.plan.group.key, published=None, has_adopted=False, adopted=None)
        outcome = pools.run()
        assert outcome.message == "demo: restored, and paused: pool workers: nothing of ours is left in it"
        assert pools.control.restoring_pools == ()
        assert (pools.control.paused_pools, pools.control.paused) == ({"workers": None}, False)
        states = pools.state.pools
        assert states[PoolId("cluster-api", "default", "", "workers")].adopted == {}
        assert len(states[PoolId("cluster-api", "default", "", "other")].adopted) == 2
        assert pools.run().written == 0

    @pytest.mark.parametrize(("pool", "written"), [({"pool": "workers"}, 2), ({}, 4)])
    def test_a_paused_pool_is_restored_as_well(self, pools: Stack, pool: dict[str, str], written: int) -> None:
        pools.settle()
        pools.ask("pause", pool="workers")
        pools.ask("restore", **pool)
        assert pools.run().written == written

    def test_a_restore_names_the_groups_that_aws_does_not_let_it_write(self, pools: Stack) -> None:
        facts = {"group": "workers-a", "region": "eu-central-1", "tags": ("evenkeel.dev/pool=workers",)}
        problem = Problem.of(ProblemKind.LOST_GROUP, **facts, min=0, max=9)
        lost = Incident(kind=IncidentKind.LOST_GROUP, since=NOW, pool="auto-scaling/r//workers", problems=(problem,))
        health, versions = pools.store.cluster_health("demo")
        pools.store.save_cluster_health("demo", health.with_incidents([lost]), versions)
        text = "Auto Scaling group workers-a has lost evenkeel.dev/pool=workers; its bounds before Evenkeel were 0 to 9"
        assert text in pools.ask("restore", pool="workers")["message"]
        assert text in pools.ask("restore")["message"]

    def test_a_restore_is_written_in_dry_run(self, pools: Stack) -> None:
        pools.settle()
        register_again(pools.store, pools.record.model_copy(update={"dry_run": True}))
        pools.cluster.change(key("a"), bounds=Bounds(0, 99))
        pools.ask("restore", pool="other")
        patches = len(pools.cluster.applied)
        pools.run()
        assert pools.patched(patches) == {"other-a", "other-b"}
        reported = {decision["pool"]["name"]: decision["dryRun"] for decision in pools.store.decisions("demo", 2)}
        assert reported == {"other": False, "workers": True}


REQUESTS = "the pool requests 6 of PoolMaximum"


class TestExplain:
    def text(self, stack: Stack, **asked: Any) -> str:
        return str(stack.ask("explain", **asked)["message"])

    def test_every_number_has_the_rule_that_set_it(self) -> None:
        stack = Stack([group("a", 4, bounds=(0, 4)), group("b", 1, bounds=(0, 4))])
        text = self.text(stack, group="workers-a")
        assert "PoolMinimum is 3: the record's min for pool workers." in text
        assert "PoolMaximum is 12: the record's max for pool workers." in text
        assert "Node group cluster-api/default/workers-a in zone a is healthy." in text
        assert "Requested stays 4, running 4." in text
        assert "Max goes from 4 to 6: strategy: Balanced: may grow by 2 of the pool's 7 free nodes" in text
        assert "Min goes from 0 to 2: strategy: PoolMinimum 3 levelled over the zones" in text
        assert "It may grow by 2, to 6." in text

    def test_numbers_from_annotations_and_sums_name_their_source(self) -> None:
        text = self.text(Stack(pools=[]), pool="workers")
        assert "PoolMaximum is 27: the sum of its members' bounds without Evenkeel's changes." in text
        text = self.text(Stack(zones((1, 1), pool_max=9)), pool="workers")
        assert "PoolMaximum is 9: annotation evenkeel.dev/pool-max on MachineDeployment default/workers-a, " in text

    def test_a_fence_is_explained_with_start_and_end(self) -> None:
        stack = Stack(zones((3, 2, 2), (1, 2, 2), bounds=[(1, 9)] * 3))
        stack.fail("a")
        stack.clock.at += MINUTE
        text = self.text(stack, group=str(key("a")))
        assert "is fenced since 2026-01-15T12:00:00Z (1 minute ago), until 2026-01-15T12:05:00Z" in text
        assert (
            "Requested goes from 3 to 1, running 1: release: released 2 stuck replicas; keeps 1 running replica."
            in text
        )
        assert "fence: max is the 1 requested replica: a fenced zone does not grow" in text
        assert "It cannot grow now: its fence ends at 2026-01-15T12:05:00Z." in text

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"zone_max": 2}, "evenkeel.dev/zone-max is 2"),
            ({"allowed_replicas": Bounds(0, 2)}, "its Worker allows 2 in this zone"),
            ({"pool_max": 6}, f"{REQUESTS} 6: PoolMaximum has to rise, or another zone to shrink."),
            ({"pool_max": 5}, f"{REQUESTS} 5: what is beyond it has to go first, or PoolMaximum has to rise."),
        ],
    )
    def test_what_limits_a_group_is_explained(self, fields: dict[str, Any], says: str) -> None:
        stack = Stack(replaced_first(zones((2, 2, 2), bounds=[(1, 9)] * 3), **fields))
        assert f"It cannot grow now: {says}" in self.text(stack, group="workers-a")
        stack = Stack(replaced_first(zones((2, 2, 2), bounds=[(1, 9)] * 3), allowed_replicas=Bounds(0, 3)))
        assert "It may grow by 1, to 3." in self.text(stack, group="workers-a")

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"frozen_because": stated("rolling out")}, "it is frozen: rolling out."),
            ({"pool_max": 1, "pool_min": 4}, "its pool is invalid."),
        ],
    )
    def test_an_unmanaged_group_may_grow_within_its_bounds(self, fields: dict[str, Any], says: str) -> None:
        stack = Stack(replaced_first(zones((2, 2, 2), bounds=[(1, 9)] * 3), **fields))
        reported = self.text(stack, group="workers-a")
        assert f"Its bounds leave room for 7 more, to 9; Evenkeel does not write them: {says}" in reported
        assert "It cannot grow" not in reported

    def test_maxima_beyond_the_pool_maximum_are_explained_with_both_numbers(self) -> None:
        text = self.text(Stack(strategy="Lax-Greedy"), pool="workers")
        assert "Its zones request 6 of 12: 6 more may come, and the maxima of its zones leave room for 18." in text
        pools = [{"name": "workers", "max": 6}]
        stack = Stack(zones((4, 1, 1), bounds=[(1, 9)] * 3), strategy="Backward-Compatible", pools=pools)
        text = self.text(stack, group="workers-b")
        assert "It may grow by 1, to 2, although the pool requests 6 of PoolMaximum 6: " in text

    def test_the_last_failure_has_the_cloud_message(self, stack: Stack) -> None:
        stack.fail("a")
        stack.clock.at += MINUTE
        text = self.text(stack, group="workers-a")
        assert "Its last failure was at 2026-01-15T12:00:00Z (1 minute ago): no room." in text
        assert "Its last failure" not in self.text(stack, group="workers-b")
        message = "no room.\n  request: 7"
        state = record_failure(GroupState(), stack.clock.at, FailureClass.CAPACITY, message, BackoffPolicy())
        stack.store.save_group("demo", key("b"), state, None)
        assert "(just now): no room. request: 7." in self.text(stack, group="workers-b")

    def test_a_restore_is_explained_and_planned_as_it_is_written(self) -> None:
        stack = Stack(two_pools(), dry_run=True)
        stack.ask("restore", pool="workers")
        stack.run()
        stack.ask("resume", pool="workers", restored=True)
        register_again(stack.store, stack.record.model_copy(update={"dry_run": False}))
        stack.settle()
        stack.ask("restore", pool="workers")
        reported = self.text(stack, pool="workers")
        assert "It is being restored, in dry run too" in reported
        assert stack.ask("status")["message"].endswith("; being restored: pool workers")
        assert "restore: restored: bounds 1 to 9" in reported
        planned = {pool["name"]: pool for pool in stack.ask("plan")["plan"]["pools"]}["workers"]
        stack.run()
        recorded = stack.store.decisions("demo", 1)[0]["pool"]
        for found in recorded["groups"]:
            assert (found.pop("outcome"), found.pop("result")) == ("written", "written")
        del planned["timeouts"], planned["timeoutRules"]  # a decision has none
        assert planned == recorded

    def test_a_group_that_left_its_pool_is_explained_during_a_restore(self) -> None:
        stack = Stack(two_pools())
        stack.settle()
        stack.cluster.change(key("a"), pool_label=None)
        stack.ask("restore")
        status = stack.ask("status")
        assert status["message"].startswith("demo: being restored, ")
        name = next(pool["name"] for pool in status["pools"] if len(pool["groups"]) == 1 or pool["name"] == "workers")
        assert "restored: bounds" in self.text(stack, pool=name)

    def test_a_group_that_autoscaler_cannot_see_says_which_annotation_opens_it(self) -> None:
        closed = group("a", 0, bounds=(0, 3), closed_because=stated("at zero: annotate cpu and memory"))
        assert "annotate cpu and memory" in self.text(Stack([closed, group("b", 1)]), group="workers-a")

    def test_explain_shows_the_last_write_and_the_history(self, stack: Stack) -> None:
        stack.run()
        published = PublishedBounds(at=stack.clock.at, bounds=Bounds(1, 4))
        stack.cluster.change(key("a"), published=published)
        stack.clock.at += 3 * MINUTE
        answer = stack.ask("explain", group="workers-a")
        assert "last written at 2026-01-15T12:01:00Z (3 minutes ago), to 1 and 4." in answer["message"]
        assert "Before Evenkeel it had 1 to 9: its adopted bounds, which restore puts back." in answer["message"]
        assert len(answer["history"]) == 1
        assert answer["history"][0].startswith("At 2026-01-15T12:01:00Z (3 minutes ago, a test): workers-a: max goes")
        assert answer["history"][0].endswith(": written.")

    def test_plan_and_explain_name_a_pause_or_dry_run(self) -> None:
        assert Stack(paused=True).ask("plan")["message"].endswith("none of this happens until it is resumed")
        assert "paused" not in Stack().ask("plan")["message"]
        assert self.text(Stack(dry_run=True), pool="workers").startswith("Cluster demo is in dry run: nothing")
        assert self.text(Stack(paused=True), pool="workers").startswith("Cluster demo is paused")

    def test_an_invalid_pool_says_what_is_wrong(self) -> None:
        text = self.text(Stack([group("a", 1, pool_min=4, pool_max=1)]), pool="workers")
        assert "It is invalid, so it is not written until that is fixed." in text
        assert "Problem: PoolMinimum 4 is larger than PoolMaximum 1" in text

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"group": "worker-a"}, "did you mean workers-a?"),
            ({"group": "workers-a"}, "name one of cluster-api/default/workers-a, cluster-api/two/workers-a"),
            ({"group": "loose-z"}, "is skipped: in no pool"),
            ({"pool": "workers"}, "name one of cluster-api/default/workers, cluster-api/two/workers"),
            ({"pool": "workers", "group": "workers-a"}, "explain takes a group or a pool: name one of them"),
            ({"group": 7}, "group is '7'"),
        ],
    )
    def test_an_unknown_or_ambiguous_name_is_refused(self, fields: dict[str, Any], says: str) -> None:
        same_name = [group("a", 1, bounds=(0, 3)), group("a", 1, bounds=(0, 3), key=key("a", namespace="two"))]
        assert says in Stack([*same_name, group("z", 1, pool=None)]).refused("explain", **fields)


class TestValidate:
    def test_valid_numbers_are_no_finding(self) -> None:
        answer = Stack().ask("validate")
        assert (answer["pools"], answer["diff"]) == ([], [])
        assert answer["message"] == "demo: pools checked: 1, invalid: 0, with warnings: 0"

    def test_an_unknown_pool_in_expander_order_is_a_finding(self) -> None:
        answer = Stack(expander="order", expander_order=["gone", "workers"]).ask("validate")
        (line,) = answer["record"]
        assert line == "expander_order names 'gone', and the cluster has no such pool: correct the name or remove it"
        assert answer["message"].endswith(f"; {line}")

    def test_a_pool_maximum_below_the_zones_is_fixed_by_a_diff(self) -> None:
        stack = Stack(zones((1, 0, 0), **LOW))
        (pool,) = stack.ask("validate")["pools"]
        assert "PoolMaximum 2 is smaller than the number of zones, 3" in pool["warnings"][0]
        assert pool["fix"] is None
        answer = stack.ask("validate", fix=True)
        assert answer["diff"][:4] == [
            "--- MachineDeployment default/workers-a",
            "+++ MachineDeployment default/workers-a",
            '-evenkeel.dev/pool-max: "2"',
            '+evenkeel.dev/pool-max: "3"',
        ]
        assert len(answer["diff"]) == 12
        assert stack.journal.count("write pool-max") == 0
        assert stack.control.fixes == ()

    def test_apply_lets_the_worker_write_the_fix(self) -> None:
        stack = Stack([replace(zones((1,))[0], **LOW), *zones((1, 0, 0), bounds=[(0, 1)] * 3)[1:]])
        answer = stack.ask("validate", apply=True)
        assert "changes: 1, of which the next check writes to objects: 1" in answer["message"]
        assert stack.journal.count("write pool-max") == 0
        assert stack.queue.clusters == ["demo"]
        stack.run()
        assert stack.cluster.groups[key("a")].annotations.pool_max == 3
        assert stack.control.fixes == ()
        change = {"object": "cluster-api/default/workers-a", "from": 2, "to": 3}
        assert fixes(stack)[0]["fixed"] == [{**change, "outcome": "written", "result": "written"}]
        assert stack.ask("validate")["pools"] == []

    def test_a_number_of_the_record_is_changed_in_the_record(self) -> None:
        stack = Stack(zones((1, 0, 0)), pools=[{"name": "workers", "min": 0, "max": 2}])
        answer = stack.ask("validate", apply=True)
        assert answer["diff"] == ["--- record, pool workers", "+++ record, pool workers", "-max: 2", "+max: 3"]
        assert stack.record.pool_entries[0].max == 3
        assert stack.control.fixes == ()
        stack.run()
        assert stack.journal.count("write pool-max") == 0
        assert stack.ask("validate")["pools"] == []

    def test_in_dry_run_a_fix_is_recorded_once_and_nothing_is_written(self) -> None:
        for of_record, stack in (
            (False, Stack(zones((1, 0, 0), **LOW), dry_run=True)),
            (True, Stack(zones((1, 0, 0)), pools=[{"name": "workers", "min": 0, "max": 2}], dry_run=True)),
        ):
            stack.ask("validate", apply=True)
            stack.run()
            stack.run()
            assert stack.journal.count("write pool-max") == 0
            assert "save LEASE" not in stack.journal.entries
            (decision,) = fixes(stack)
            assert decision["dryRun"] is True
            assert {change["outcome"] for change in decision["fixed"]} == {"planned"}
            if of_record:
                assert stack.record.pool_entries[0].max == 2
                change = {"object": "record", "from": 2, "to": 3, "outcome": "planned", "result": "planned"}
                assert decision["fixed"] == [change]

    def test_a_sum_that_is_too_small_gets_an_annotation_on_one_member(self) -> None:
        stack = Stack(zones((1, 0, 0), bounds=[(0, 1), (0, 1), (0, 0)]), pools=[])
        stack.ask("validate", apply=True)
        stack.run()
        assert [one.annotations.pool_max for one in stack.cluster.groups.values()] == [3, None, None]

    @pytest.mark.parametrize(
        ("fields", "left"),
        [
            ({"pool_min": 5, "pool_max": 2}, "an operator must choose the value"),
            ({**LOW, "frozen_because": stated("rolling out")}, "is unchanged: rolling out"),
            ({**LOW, "in_zone": None}, "an operator must choose the value"),
        ],
    )
    def test_an_ambiguous_fix_is_left_to_the_operator(self, fields: dict[str, Any], left: str) -> None:
        stack = Stack([group("a", 1, **fields), *zones((1, 0, 0))[1:]], pools=[])
        answer = stack.ask("validate", apply=True)
        assert answer["diff"] == []
        assert left in answer["pools"][0]["left"]
        assert stack.control.fixes == ()

    def test_a_number_that_changed_since_is_not_written(self) -> None:
        stack = Stack(replaced_first(zones((1, 0, 0)), **LOW))
        stack.ask("validate", apply=True)
        stack.cluster.change(key("a"), pool_max=7)
        stack.run()
        assert stack.cluster.groups[key("a")].annotations.pool_max == 7
        (decision,) = fixes(stack)
        assert decision["fixed"][0]["outcome"] == "not written: it has changed since, to 7: validate again"
        assert stack.control.fixes == ()

    def test_fixes_of_several_pools_are_all_written(self) -> None:
        groups = [replace(one, pool_max=None, pool_min=0) for one in two_pools()]
        stack = Stack([replace(one, pool_max=1) if one.identity.zone == "a" else one for one in groups], pools=[])
        stack.ask("validate", apply=True, pool="workers")
        stack.ask("validate", apply=True, pool="other")
        stack.ask("validate", apply=True, pool="other")
        stack.ask("register", record={**RECORD, "dry_run": False})
        assert sorted(entry.pool.rpartition("/")[2] for entry in stack.control.fixes) == ["other", "workers"]
        stack.run()
        assert [stack.cluster.groups[key("a", pool=pool)].annotations.pool_max for pool in ("workers", "other")] == [
            2,
            2,
        ]

    def test_a_conflict_is_tried_again_in_the_same_run(self) -> None:
        stack = Stack(replaced_first(zones((1, 0, 0)), **LOW))
        stack.ask("validate", apply=True)
        stack.store.before_write.append(lambda sort_key: stack.cluster.change(key("a"), weight=2))  # with the lease
        stack.run()
        assert stack.cluster.groups[key("a")].annotations.pool_max == 3

    def test_lax_greedy_is_warned_about(self) -> None:
        stack = Stack(zones((1, 1), strategy=LAX_GREEDY))
        (pool,) = stack.ask("validate")["pools"]
        assert pool["valid"] is True
        assert "can pass PoolMaximum 12 between two checks" in pool["warnings"][0]

    def test_all_clusters_are_validated_and_a_broken_one_is_named(self) -> None:
        stack = Stack(zones((1, 0, 0), **LOW))
        stack.register_another("away", ClusterUnavailableError("away does not answer"))
        answer = stack.ask("validate", None)
        away, demo = answer["clusters"]
        assert (away["ok"], away["message"]) == (False, "away does not answer")
        assert len(demo["pools"]) == 1
        assert "away does not answer" in answer["message"]


class TestRecord:
    def test_decisions_come_oldest_first_in_pages(self, stack: Stack) -> None:
        for minute in range(5):
            at = NOW + minute * MINUTE
            id = ulid(at, bytes(10))
            stack.store.save_decision("demo", id, {"id": id, "at": at.isoformat()}, at + timedelta(days=30))
        stack.store.page = 2
        pages, after = [], None
        while True:
            answer = stack.ask("record", **({} if after is None else {"after": after}))
            pages.append([decision["at"] for decision in answer["decisions"]])
            after = answer["next"]
            if after is None:
                break
        assert [len(page) for page in pages] == [2, 2, 1]
        reported = [at for page in pages for at in page]
        assert reported == sorted(reported)

    def test_since_leaves_out_what_is_older(self, stack: Stack) -> None:
        stack.run()
        stack.scale("a", 5)
        stack.run()
        (decision,) = stack.ask("record", since="2026-01-15T12:01:30Z")["decisions"]
        assert datetime.fromisoformat(decision["at"]) == NOW + 2 * MINUTE
        assert len(stack.ask("record", since="2026-01-15T12:01:00Z")["decisions"]) == 2


class TestObservation:
    def test_the_answer_is_what_was_read_and_a_record_without_workload_reads_pods_too(self, stack: Stack) -> None:
        expendable = pod("web-0", node="n", priority=-10, labels={"app": "web"}, scale_up_delay=MINUTE)
        found = Workload(nodes=(node("n", "a", group=key("a")),), pods=(expendable,), namespaces={"default": {}})
        stack.clusters.workloads["demo"] = FakeWorkload(found)
        stack.cluster.change(key("b"), frozen_because=stated("rolling out"), node=template(cpu="4", memory="16Gi"))
        answer = stack.ask("plan", observation=True)
        assert set(answer) == {"ok", "action", "cluster", "observation", "message"}
        read = unpack(Observation, answer["observation"], "observation")
        assert read == replace(stack.cluster.observe(), workload=found)

    def test_pods_that_cannot_be_read_are_named(self, stack: Stack) -> None:
        stack.clusters.workloads["demo"] = AccessError("it may not list pods")
        read = unpack(Observation, stack.ask("plan", observation=True)["observation"], "observation")
        assert read.workload is None
        assert read.workload_unread is not None
        assert "it may not list pods" in sentence(read.workload_unread)

    def test_a_cluster_that_is_too_large_for_an_answer_is_one_line(self, stack: Stack) -> None:
        stack.operate = replace(stack.operate, pack=lambda _: "x" * 5_000_001)
        assert stack.refused("plan", observation=True) == (
            "cluster demo: its observation has 5000001 characters, and an answer has at most 5000000: "
            "read the cluster with a context of your kubeconfig (--context)"
        )

    @pytest.mark.parametrize("text", ["A", "AAAA", "eJw="])
    def test_a_text_that_is_no_observation_is_one_line(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"^observation of demo: not compressed JSON \(.*\): ask again$"):
            unpack(Observation, text, "observation of demo")


READING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plan", {}),
    ("plan", {"observation": True}),
    ("status", {}),
    ("explain", {"pool": "workers"}),
    ("validate", {"fix": True}),
)


class TestAuthor:
    JANE = "arn:aws:sts::123456789012:assumed-role/platform/jane"
    WRITING = (
        ("register", {"record": record().model_dump(mode="json", exclude_unset=True)}),
        ("pause", {}),
        ("pause", {"pool": "workers", "until": "2026-02-01T00:00:00Z"}),
        ("resume", {}),
        ("fence-zone", {"zone": "a", "until": "2026-02-01T00:00:00Z"}),
        ("scale-up", {"pool": "workers", "nodes": 1}),
        ("scale-down", {"pool": "workers", "nodes": 1}),
        ("level", {"pool": "workers"}),
        ("restore", {}),
        ("validate", {"apply": True}),
    )

    @pytest.mark.parametrize(("action", "fields"), WRITING)
    def test_an_action_that_writes_is_recorded_with_its_author(self, action: str, fields: dict[str, Any]) -> None:
        stack = Stack(zones((1, 2, 3), bounds=[(1, 9)] * 3))
        answer = stack.ask(action, **fields, by=self.JANE)
        (decision,) = stack.ask("record")["decisions"]
        assert {**decision, "id": None} == {
            "id": None,
            "at": "2026-01-15T12:00:00Z",
            "cluster": "demo",
            "cause": action,
            "by": self.JANE,
            "what": answer["message"],
        }
        assert time_of(decision["id"]) == NOW

    def test_every_action_is_either_recorded_or_reads(self) -> None:
        writing = {name for name, action in ACTIONS.items() if action.right is not Right.READ or action.rights_with}
        of_fleets = {"apply", "unregister"}  # test_fleet.py
        of_fleets |= {"live", "dry-run"}  # test_going_live.py
        of_fleets |= {"drill", "leave-zone"}  # drill/test_drill.py, leave/test_leave.py
        assert writing - of_fleets == {name for name, _ in self.WRITING}

    def test_reading_is_not_recorded_and_takes_no_name(self, stack: Stack) -> None:
        for action, fields in READING:
            stack.ask(action, **fields)
            assert "'by' is no field" in stack.refused(action, **fields, by=self.JANE)
        assert stack.ask("record")["decisions"] == []

    def test_a_refused_action_is_not_recorded(self, stack: Stack) -> None:
        stack.refused("pause", pool="worker", by=self.JANE)
        stack.refused("fence-zone", zone="nowhere", until="2026-02-01T00:00:00Z", by=self.JANE)
        assert stack.ask("record")["decisions"] == []

    @pytest.mark.parametrize("by", ["", "a\nb", "\x1b[31mred", "x" * 2049, 7, ["a"], "jürgen"])
    def test_a_name_that_could_forge_a_line_is_refused_and_nothing_is_done(self, stack: Stack, by: object) -> None:
        assert stack.refused("pause", by=by).startswith("by is ")
        assert stack.control.paused is False

    def test_status_and_explain_show_the_author(self, stack: Stack) -> None:
        stack.settle()
        decisions = stack.ask("status")["decisions"]
        stack.ask("pause", pool="workers", by=self.JANE)
        answer = stack.ask("status")
        assert answer["decisions"] == decisions
        assert [(reported["cause"], reported["by"]) for reported in answer["actions"]] == [("pause", self.JANE)]
        out = StringIO()
        print_answer(answer, Console(file=out, width=200))
        assert f"pause by {self.JANE}: pool workers of demo is paused until resumed" in out.getvalue()
        reported = stack.ask("explain", pool="workers")["history"]
        assert f"At 2026-01-15T12:03:00Z (just now): pause, asked for by {self.JANE}." in reported

    def test_a_scale_request_keeps_its_author(self, stack: Stack) -> None:
        stack.ask("scale-up", pool="workers", nodes=1, id="r1", by=self.JANE)
        assert stack.ask("status")["requests"]["r1"]["by"] == self.JANE

    def test_applying_for_all_clusters_is_recorded_for_each(self, stack: Stack) -> None:
        stack.register_another("other", FakeCluster(zones((1, 1, 1)), stack.journal))
        stack.ask("validate", None, apply=True, by=self.JANE)
        for cluster in ("demo", "other"):
            assert [reported["by"] for reported in stack.ask("record", cluster)["decisions"]] == [self.JANE]

    def test_an_action_that_cannot_be_recorded_is_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = Stack()

        def away(*_: object) -> None:
            raise StateUnavailableError("table: away")

        monkeypatch.setattr(stack.store, "save_decision", away)
        answer = stack.ask("scale-up", pool="workers", nodes=2, by=self.JANE)
        assert answer["ok"] is True
        assert answer["message"].endswith("; who asked is not recorded: table: away")


class TestCommands:
    @pytest.mark.parametrize("name", ACTIONS)
    def test_every_action_is_a_command_with_its_fields_as_options(self, name: str) -> None:
        commands = get_command(app)
        assert isinstance(commands, TyperGroup)
        options = {parameter.name for parameter in commands.commands[name].params}
        paged = {"after", "records", "before"}  # the command itself requests each page and part
        paged |= {"forecast", "observation"}  # `drill` makes the first, and `forecast` requests the second
        assert set(ACTIONS[name].fields.model_fields) - paged <= options

    def test_an_option_that_is_not_given_is_left_to_the_function(self, monkeypatch: pytest.MonkeyPatch) -> None:
        events = []

        def answer(stack: str, event: dict[str, Any]) -> dict[str, Any]:
            events.append(event)
            return {"ok": True, "action": event["action"], "message": "done"}

        monkeypatch.setattr(stack_client, "ask", answer)
        given = ["scale-up", "--stack", "s", "--cluster", "demo", "--nodes", "2", "--only", "a", "--only", "b"]
        assert CliRunner().invoke(app, given).exit_code == 0
        assert events == [{"action": "scale-up", "cluster": "demo", "nodes": 2, "only": ["a", "b"]}]


class TestReadingOnly:
    @pytest.mark.parametrize(("action", "fields"), TestAuthor.WRITING)
    def test_the_read_function_refuses_actions_that_write(
        self, stack: Stack, action: str, fields: dict[str, Any]
    ) -> None:
        before = stack.record
        with pytest.raises(BadRequestError, match=r"this function only reads; ask the (admin|operator) function"):
            stack.operate.read({"action": action, "cluster": "demo", **fields}, plenty)
        assert stack.record == before
        assert stack.queue.clusters == []

    @pytest.mark.parametrize(("action", "fields"), [*READING, ("record", {})])
    def test_the_read_function_gives_the_same_answers(self, stack: Stack, action: str, fields: dict[str, Any]) -> None:
        event = {"action": action, "cluster": "demo", **fields}
        assert stack.operate.read(event, plenty) == stack.operate(event, plenty)

    #: actions for operators on call; all others that write are for administrators
    READS = ("plan", "status", "explain", "validate", "export", "readiness", "history", "record", "drill")
    ON_DUTY = ("pause", "resume", "dry-run", "fence-zone", "leave-zone", "scale-up", "scale-down", "level")

    @pytest.mark.parametrize("name", ACTIONS)
    def test_the_on_call_right_covers_no_administration(self, name: str) -> None:
        stack, action = Stack(), ACTIONS[name]
        event = {"action": name, "cluster": "demo"}
        right = Right.READ if name in self.READS else Right.WRITE if name in self.ON_DUTY else Right.ADMINISTER
        assert action.right is right
        if right is Right.ADMINISTER:
            refusal = f"action {name} is for administrators; ask the admin function"
            with pytest.raises(BadRequestError, match=refusal):
                stack.operate.within(Right.WRITE, event, plenty)
            assert stack.control == ControlRecord()

    @pytest.mark.parametrize(
        ("event", "needed"),
        [
            ({"action": "validate", "apply": True}, Right.ADMINISTER),
            *(({"action": "validate", "apply": apply}, Right.ADMINISTER) for apply in ([], "yes", 1)),
            ({"action": "resume"}, Right.WRITE),
            ({"action": "resume", "restored": True}, Right.ADMINISTER),
            ({"action": "rollout"}, Right.READ),
            ({"action": "drill"}, Right.READ),
            ({"action": "drill", "zone": "a"}, Right.WRITE),
            ({"action": "drill", "zone_id": ""}, Right.WRITE),
            ({"action": "drill", "abort": True}, Right.WRITE),
            ({"action": "apply", "list": True}, Right.ADMINISTER),
            ({"action": "none of them"}, Right.READ),
            ({"action": ["register"]}, Right.READ),
            ({}, Right.READ),
        ],
    )
    def test_the_needed_right_depends_on_the_fields(self, event: dict[str, Any], needed: Right) -> None:
        assert right_needed(event) is needed
        for right in Right:
            if right.covers(needed):
                continue
            with pytest.raises(BadRequestError):
                Stack().operate.within(right, event, plenty)
