"""Checks write nothing, request runs for pending changes, and separate clusters that do not answer."""

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws.records import META
from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    AccessUnavailableError,
    ClusterUnavailableError,
    QueueUnavailableError,
    StateUnavailableError,
    TooLargeError,
)
from evenkeel.application.ports import CheckResult
from evenkeel.application.rebalancing.plan import is_steady, plan_for
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind, Notified
from tests.builders import MINUTE, key, zones
from tests.fakes import NOW, FakeCluster, FakeClusters, plenty, register
from tests.stack import NUMBERS, RECORD, Stack, replaced_first

DARK = ClusterUnavailableError("demo does not answer: not within 8 s")


INVALID = Incident(kind=IncidentKind.INVALID, since=NOW)
CLOSED = IncidentChange(change=Change.CLOSED, incident=INVALID)


@pytest.fixture
def quiet() -> Stack:
    """Return a cluster for which there is nothing to do."""
    stack = Stack()
    stack.settle()
    stack.clock.at += 5 * MINUTE
    stack.queue.requests.clear()
    stack.journal.entries.clear()
    return stack


SEEN = "save CHECKED"  # the only write of checks: the times and clusters of checks, once for a chunk


def writes(stack: Stack) -> list[str]:
    return [entry for entry in stack.journal.entries if entry.startswith(("save", "apply", "mark")) and entry != SEEN]


def asked(stack: Stack) -> list[tuple[str, CheckResult | None]]:
    return [(reason, stack.queue.found[id]) for id, (_, reason) in stack.queue.requests.items()]


def many(stack: Stack, minutes: int) -> None:
    for _ in range(minutes):
        stack.checks()
        stack.carry_out()


CHANGES = {
    "grown": lambda stack: stack.scale("a", 9),
    "ordered": lambda stack: stack.cluster.change(key("a"), requested=5),
    "invalid": lambda stack: stack.cluster.change(key("b"), pool_max=1),
    "failed": lambda stack: stack.fail("a"),
    "restored": lambda stack: stack.ask("restore"),
    "paused": lambda stack: stack.ask("pause"),
    "fenced": lambda stack: stack.ask("fence-zone", zone="a", until="2026-01-15T20:00:00Z"),
    "requested": lambda stack: stack.ask("scale-up", nodes=2, pool="workers"),
    "registered": lambda stack: stack.ask(
        "register", record={**RECORD, "pools": [{"name": "workers", "min": 3, "max": 20}], "dry_run": False}
    ),
}


class TestPendingChanges:
    def test_a_check_of_a_quiet_cluster_costs_two_reads(self, quiet: Stack, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            for _ in range(10):
                quiet.checks()
        assert quiet.journal.entries == ["at rest", "load", "observe", SEEN] * 10
        assert (asked(quiet), caplog.text) == ([], "")

    @pytest.mark.parametrize("change", [name for name in CHANGES if name != "paused"])
    def test_a_pending_change_requests_a_run_and_writes_nothing(self, quiet: Stack, change: str) -> None:
        CHANGES[change](quiet)
        quiet.queue.requests.clear()
        quiet.journal.entries.clear()
        patches = len(quiet.cluster.applied)
        quiet.checks()
        assert len(asked(quiet)) == 1
        assert (writes(quiet), len(quiet.cluster.applied)) == ([], patches)

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_change_is_pending_until_its_run(self, dry_run: bool) -> None:
        stack = Stack(stack_dry_run=dry_run)
        stack.checks()
        assert len(asked(stack)) == 1
        stack.settle()
        stack.clock.at += 5 * MINUTE
        stack.queue.requests.clear()
        stack.checks()
        assert [reason for reason, _ in asked(stack) if reason != "nothing to be done"] == []

    def test_several_checks_within_seconds_request_one_run(self, quiet: Stack) -> None:
        quiet.scale("a", 9)
        quiet.clock.at = NOW + 60 * MINUTE
        for _ in range(5):
            quiet.check(("demo",), lambda: 30)
        assert len(asked(quiet)) == 1

    def test_a_due_check_that_is_lost_is_requested_again(self) -> None:
        stack = Stack(zones((4, 2, 2), bounds=[(1, 9)] * 3))
        stack.fail("a")
        stack.runs(2)
        stack.queue.requests.clear()
        while not asked(stack):  # the message for the end of the backoff never arrives
            stack.checks()
        assert stack.clock.at - NOW < 10 * MINUTE

    def test_an_agreed_fix_whose_request_is_lost_is_requested_again(self) -> None:
        stack = Stack(replaced_first(zones((1, 1, 0)), pool_min=0, pool_max=2))
        stack.settle()
        stack.ask("validate", apply=True)
        stack.queue.requests.clear()
        stack.checks()
        assert asked(stack) == [("a check is due", None)]

    def test_paused_and_unregistered_clusters_are_not_read(self, quiet: Stack) -> None:
        quiet.ask("pause")
        checks = quiet.cluster.checks
        quiet.queue.requests.clear()
        quiet.checks("demo", "gone")
        assert (asked(quiet), quiet.cluster.checks) == ([], checks)


class TestSettledClusters:
    """A steady cluster gets quick checks: only its groups are read and compared."""

    @pytest.fixture
    def steady(self, quiet: Stack) -> Stack:
        many(quiet, 16)
        assert self.is_steady(quiet)
        quiet.journal.entries.clear()
        return quiet

    @staticmethod
    def is_steady(stack: Stack) -> bool:
        return bool(stack.store.steady_clusters(["demo"]))

    def test_a_full_check_comes_every_fifteen_minutes(self, steady: Stack, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            metrics = [steady.checks().metrics() for _ in range(45)]
        entries = steady.journal.entries
        assert (entries.count("quick check"), entries.count("observe"), entries.count("load")) == (42, 3, 3)
        assert (asked(steady), caplog.text) == ([], "")
        assert all(metric == metrics[0] for metric in metrics)

    def test_a_quick_check_is_stored_as_a_check_of_its_chunk(self, steady: Stack) -> None:
        steady.register_another("another", FakeCluster(zones((2, 2, 5), bounds=[(1, 9)] * 3)))
        steady.checks("demo", "another")
        assert (steady.journal.entries.count("quick check"), steady.journal.entries.count("load")) == (1, 1)
        checked_at = steady.store.checked_at()
        assert steady.clock.at - checked_at["demo"] <= MINUTE
        assert checked_at["another"] == checked_at["demo"]
        assert steady.journal.entries.count(SEEN) == 1

    @pytest.mark.parametrize(
        "cluster_health",
        [
            ClusterHealth(incidents=(INVALID,)),
            ClusterHealth(notified={"invalid": Notified(kind=IncidentKind.INVALID, since=NOW)}),
            ClusterHealth(outbox=(CLOSED,)),
        ],
        ids=["open incident", "its end not notified", "bus away"],
    )
    def test_an_incident_or_a_notification_unsettles_it(self, steady: Stack, cluster_health: ClusterHealth) -> None:
        stored, observation = steady.store.load("demo"), steady.cluster.observe()
        plan = plan_for(stored, stored.policy, observation, steady.clock.at)
        assert is_steady(stored, observation, plan)
        assert not is_steady(replace(stored, cluster_health=cluster_health), observation, plan)

    def test_a_health_that_a_killed_run_has_stored_unsettles_the_cluster(self, steady: Stack) -> None:
        steady.store.save_cluster_health("demo", ClusterHealth(outbox=(CLOSED,)), steady.store.load("demo").versions)
        steady.run()
        assert not self.is_steady(steady)
        assert steady.store.load("demo").cluster_health == ClusterHealth()

    @pytest.mark.parametrize("change", [{"requested": 5}, {"running": 0}, {"pool_max": 1}, {"pool_label": "other"}])
    def test_any_change_of_its_groups_gets_a_full_check_at_once(self, steady: Stack, change: dict[str, Any]) -> None:
        steady.cluster.change(key("a"), **change)
        steady.checks()
        assert [why in ("scan", "a check is due") for why, _ in asked(steady)] == [True]

    @pytest.mark.parametrize("change", ["failed", "fenced", "requested", "paused", "registered"])
    def test_any_change_of_its_state_unsettles_it(self, steady: Stack, change: str) -> None:
        CHANGES[change](steady)
        if change == "failed":
            steady.run()
        steady.carry_out()
        assert not self.is_steady(steady)

    def test_a_cluster_settles_again_within_minutes_of_a_run(self, steady: Stack) -> None:
        steady.scale("a", 3)
        minutes = 0
        while minutes < 2 or not self.is_steady(steady):
            steady.checks()
            steady.carry_out()
            steady.cluster.change(key("a"), running=3)
            minutes += 1
        assert minutes < 8

    def test_a_cluster_settles_again_within_minutes_of_a_node(self, steady: Stack) -> None:
        steady.cluster.change(key("a"), requested=3)
        many(steady, 4)
        assert not self.is_steady(steady), "it waits for a node"
        steady.cluster.change(key("a"), running=3)
        many(steady, 4)
        assert self.is_steady(steady)

    def test_a_run_that_finds_nothing_to_do_after_a_write_settles_the_cluster(self, steady: Stack) -> None:
        steady.scale("a", 5)
        steady.checks()
        steady.carry_out()
        assert steady.patched()
        assert not self.is_steady(steady)
        steady.queue.requests.clear()
        steady.settle()
        assert self.is_steady(steady)
        steady.checks()
        assert asked(steady) == [], "no check requests a run for it"

    def test_a_run_that_fails_has_unsettled_the_cluster_before(self, steady: Stack) -> None:
        steady.cluster.change(key("a"), requested=9)

        def gone(_: object) -> None:
            raise StateUnavailableError("the table is away")

        steady.cluster.before_apply = gone
        with pytest.raises(StateUnavailableError):
            steady.run()
        assert not self.is_steady(steady)

    def test_a_cluster_that_stops_answering_is_reported_at_once_and_unsettled(self, steady: Stack) -> None:
        steady.cluster.unreadable = DARK
        summary = steady.checks()
        assert (asked(steady), summary.metrics()["ClustersUnreachable"]) == ([(str(DARK), CheckResult.SILENT)], 1)
        steady.carry_out()
        assert not self.is_steady(steady)

    @pytest.mark.parametrize("refusal", [TooLargeError("too large"), AccessRefusedError("403"), AccessError("no")])
    def test_a_quick_check_that_is_refused_becomes_a_full_check(self, steady: Stack, refusal: Exception) -> None:
        steady.cluster.unreadable = refusal
        steady.journal.entries.clear()
        steady.checks("demo", "another")
        assert [entry for entry in steady.journal.entries if entry in ("quick check", "observe")] == [
            "quick check",
            "observe",
        ]

    @pytest.mark.parametrize("change", [{"pool_max": 1}, {"requested": 3}], ids=["invalid", "awaits a node"])
    def test_an_invalid_pool_or_an_ordered_node_unsettles_it(self, quiet: Stack, change: dict[str, int]) -> None:
        quiet.cluster.change(key("a"), **change)
        quiet.settle()
        many(quiet, 30)
        assert not self.is_steady(quiet)

    def test_objects_that_change_without_effect_request_one_run_an_hour(self, steady: Stack) -> None:
        runs = 0
        for minute in range(360):
            steady.cluster.change(key("a"), labels={"touched": str(minute)})
            steady.checks()
            runs += len(asked(steady))
            steady.carry_out()
        assert runs == 6

    def test_runs_that_store_the_settled_state_of_many_clusters_are_spread_over_minutes(self) -> None:
        names = [f"c{number}" for number in range(150)]
        stack = Stack(clusters=FakeClusters({name: FakeCluster(Stack().cluster.groups.values()) for name in names}))
        for name in names:
            register(stack.store, name, dry_run=None, pools=NUMBERS)
            for _ in range(4):
                stack.clock.at += MINUTE
                stack.rebalance(name, "a test", plenty)
        stack.queue.requests.clear()
        minutes = []
        for _ in range(15):
            stack.checks(*names)
            minutes.append(len(asked(stack)))
            stack.carry_out()
        assert sum(minutes) == len(stack.store.steady_clusters(names)) == 150
        assert max(minutes) < 25

    def test_a_settled_state_of_another_release_is_ignored(self, steady: Stack) -> None:
        item = steady.store._items["demo"][META]
        steady.store._items["demo"][META] = replace(item, steady='{"at": "yesterday"}')
        assert not self.is_steady(steady)
        steady.journal.entries.clear()
        steady.checks()
        assert "observe" in steady.journal.entries


class TestChunks:
    @pytest.fixture
    def chunk(self, quiet: Stack) -> Stack:
        """Healthy clusters, and some that are not."""
        incidents: dict[str, Any] = {
            "dark": DARK,
            "garbage": ValueError("secret-token"),
            "locked": AccessError("cluster locked: secret evenkeel/locked cannot be read"),
        }
        for name, incident in incidents.items():
            quiet.register_another(name, incident)
        quiet.store.plant("broken", "{}")
        for number in range(3):
            quiet.register_another(f"well-{number}", FakeCluster(zones((2, 2, 5), bounds=[(1, 9)] * 3)))
        quiet.queue.requests.clear()
        return quiet

    NAMES = ("dark", "well-0", "garbage", "broken", "well-1", "locked", "gone", "well-2")

    def test_a_failing_cluster_affects_no_other(self, chunk: Stack, caplog: pytest.LogCaptureFixture) -> None:
        summary = chunk.checks(*self.NAMES)
        results = {cluster: chunk.queue.found[id] for id, (cluster, _) in chunk.queue.requests.items()}
        assert results == {
            "locked": CheckResult.UNSEEN,  # a run has another identity, which may be able to open it
            **dict.fromkeys(("broken", "well-0", "well-1", "well-2")),
            **dict.fromkeys(("dark", "garbage"), CheckResult.SILENT),
        }
        assert summary.metrics()["ClustersUnreachable"] == 3, "the record that cannot be read is among them"
        assert "record of cluster broken: flavours is missing" in caplog.text
        assert summary.metrics()["RunsFailed"] == 0
        assert "secret-token" not in caplog.text + str(chunk.queue.requests)

    def test_a_table_that_is_away_fails_each_check_and_requests_nothing(self, chunk: Stack) -> None:
        chunk.store.away_from = 0
        summary = chunk.checks("demo", "well-0")
        assert (summary.failed, chunk.queue.requests) == (2, {})

    def test_a_request_that_the_queue_refuses_is_sent_by_the_next_check(self, chunk: Stack) -> None:
        chunk.queue.broken = QueueUnavailableError("away")
        assert chunk.checks("well-0").failed == 1
        chunk.queue.broken = None
        chunk.checks("well-0")
        assert len(asked(chunk)) == 1

    def test_a_cluster_that_is_too_large_for_a_chunk_is_checked_alone(self, chunk: Stack) -> None:
        chunk.cluster.unreadable = TooLargeError("demo has more than 4 MiB")
        chunk.checks("demo", "well-0")
        assert chunk.queue.clusters == ["well-0"]
        assert [(check.clusters, check.delay) for check in chunk.queue.checks] == [(("demo",), 0)]
        chunk.checks("demo")
        assert ("too large for a check", CheckResult.UNSEEN) in asked(chunk), "alone, it is a run's"

    def test_a_chunk_that_returns_to_the_queue_is_split(self, chunk: Stack) -> None:
        chunk.check.split(self.NAMES)
        assert [(check.clusters, check.delay) for check in chunk.queue.checks] == [((name,), 0) for name in self.NAMES]

    def test_the_metrics_of_a_chunk_are_sums_over_its_clusters(self, chunk: Stack) -> None:
        metrics = chunk.checks("well-0", "well-1", "demo").metrics()
        assert (metrics["ClustersChecked"], metrics["Imbalance"]) == (3, 3)


class Dark:
    """A stack with a cluster that does not answer and one that does."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.alone = stack, list[datetime]()
        stack.register_another("well", FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3)))
        stack.cluster.unreadable = DARK
        stack.queue.requests.clear()

    def deliver(self) -> None:
        """Play every requested run; then the cluster's own checks are due."""
        queue = self.stack.queue
        for id, (cluster, reason) in list(queue.requests.items()):
            del queue.requests[id]
            self.stack.rebalance(cluster, reason, plenty, queue.found[id])
        self.alone += [self.stack.clock.at + timedelta(seconds=check.delay) for check in queue.checks]
        assert all(check.clusters == ("demo",) for check in queue.checks)
        queue.checks.clear()

    def pass_minutes(self, count: int) -> list[int]:
        """Return the minutes in which the cluster is checked, by its chunk and by its own checks when due."""
        began, asked_at = self.stack.clock.at, []
        for minute in range(count):
            checks = self.stack.cluster.checks
            for when in sorted(when for when in self.alone if when <= began + minute * MINUTE):
                self.alone.remove(when)
                self.stack.clock.at = when
                self.stack.check(("demo",), plenty)
                self.deliver()
            self.stack.clock.at = began + minute * MINUTE
            self.stack.check(("demo", "well"), plenty)
            self.deliver()
            asked_at += [minute] * (self.stack.cluster.checks - checks)
        return asked_at


class TestAccess:
    def test_a_run_reads_instead_as_long_as_checks_have_no_right_to(self, quiet: Stack) -> None:
        quiet.cluster.unreadable = AccessRefusedError("GET /apis of demo: 403 forbidden")
        quiet.checks()
        quiet.checks()
        assert asked(quiet) == [("checks are refused", CheckResult.UNSEEN)] * 2
        quiet.cluster.unreadable = None
        assert quiet.run().plan is not None

    def test_a_token_that_only_a_run_may_renew_requests_one(self, quiet: Stack) -> None:
        quiet.clusters.to_renew.add("demo")
        quiet.checks()
        assert asked(quiet) == [("its access is renewed", None)]

    def test_an_aws_that_does_not_answer_says_nothing_about_the_cluster(self, quiet: Stack) -> None:
        many(quiet, 16)
        assert quiet.store.steady_clusters(["demo"])
        quiet.cluster.unreadable = AccessUnavailableError("sts:AssumeRole was not answered")
        assert quiet.checks().failed == 1
        assert quiet.store.steady_clusters(["demo"])
        assert quiet.run().unreachable
        assert (asked(quiet), quiet.store.load("demo").unreachable, quiet.queue.checks) == ([], None, [])


class TestSilence:
    """A cluster that does not answer is checked alone, after 1, 2, 2, 5, 5, … minutes."""

    @pytest.fixture
    def dark(self, quiet: Stack) -> Dark:
        return Dark(quiet)

    def test_its_checks_become_rarer(self, dark: Dark) -> None:
        assert dark.pass_minutes(24) == [0, 1, 3, 5, 10, 15, 20]

    def test_events_request_one_check_a_minute_at_most_and_no_run_opens_it(self, dark: Dark) -> None:
        dark.pass_minutes(11)
        checks, soonest = dark.stack.cluster.checks, len(dark.alone)
        for _ in range(22):
            dark.stack.clock.at += timedelta(seconds=5)
            dark.stack.rebalance("demo", "provisioning failure", plenty)
        assert dark.stack.cluster.checks == checks, "no run waits for it"
        dark.deliver()
        assert len(dark.alone) == soonest + 1
        first, *others = dark.pass_minutes(20)
        assert others == [first + number * 5 for number in range(1, len(others) + 1)], "there is one chain, as before"

    def test_after_one_check_without_answer_a_run_still_opens_it(self, dark: Dark) -> None:
        dark.pass_minutes(1)
        dark.stack.cluster.unreadable = None
        checks = dark.stack.cluster.checks
        assert dark.stack.run().plan is not None
        assert dark.stack.cluster.checks == checks + 1

    def test_when_it_answers_it_is_checked_each_minute_again(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.stack.cluster.unreadable = None
        assert dark.pass_minutes(6)[0] <= 5
        assert dark.stack.store.load("demo").unreachable.is_over  # type: ignore[union-attr]
        assert sorted(set(dark.pass_minutes(3))) == [0, 1, 2]  # and a run that stores it as settled
        assert asked(dark.stack) == []

    def test_a_lost_check_of_its_own_is_not_awaited(self, dark: Dark) -> None:
        dark.pass_minutes(2)
        dark.alone.clear()
        assert dark.pass_minutes(5)

    def test_a_check_without_answer_that_is_delivered_twice_counts_once(self, dark: Dark) -> None:
        for _ in range(3):
            dark.stack.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
        unreachable = dark.stack.store.load("demo").unreachable
        assert unreachable is not None
        assert (unreachable.failed_checks, len(dark.stack.queue.checks)) == (1, 1)

    def test_registering_it_again_checks_it_at_once(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.stack.clock.at += 2 * MINUTE
        dark.stack.ask("register", record=RECORD)
        dark.deliver()
        assert dark.stack.clock.at in dark.alone

    def test_without_a_queue_the_run_fails(self, dark: Dark) -> None:
        dark.stack.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            dark.stack.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
