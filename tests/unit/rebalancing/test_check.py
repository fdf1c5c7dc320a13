"""Checks write nothing, queue pending changes, and keep clusters that do not answer away from the others."""

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
from tests.house import NUMBERS, RECORD, House, replaced_first

DARK = ClusterUnavailableError("demo does not answer: not within 8 s")


INVALID = Incident(kind=IncidentKind.INVALID, since=NOW)
CLOSED = IncidentChange(change=Change.CLOSED, incident=INVALID)


@pytest.fixture
def quiet() -> House:
    """A cluster for which there is nothing to do."""
    house = House()
    house.settle()
    house.clock.at += 5 * MINUTE
    house.queue.requests.clear()
    house.journal.entries.clear()
    return house


SEEN = "save LOOKED"  # all that checks write: when they have seen which clusters, once for a chunk


def writes(house: House) -> list[str]:
    return [entry for entry in house.journal.entries if entry.startswith(("save", "apply", "mark")) and entry != SEEN]


def asked(house: House) -> list[tuple[str, CheckResult | None]]:
    return [(reason, house.queue.found[id]) for id, (_, reason) in house.queue.requests.items()]


def many(house: House, minutes: int) -> None:
    for _ in range(minutes):
        house.looks()
        house.carry_out()


CHANGES = {
    "grown": lambda house: house.scale("a", 9),
    "ordered": lambda house: house.cluster.change(key("a"), requested=5),
    "invalid": lambda house: house.cluster.change(key("b"), pool_max=1),
    "failed": lambda house: house.fail("a"),
    "restored": lambda house: house.ask("restore"),
    "paused": lambda house: house.ask("pause"),
    "fenced": lambda house: house.ask("fence-zone", zone="a", until="2026-01-15T20:00:00Z"),
    "requested": lambda house: house.ask("scale-up", nodes=2, pool="workers"),
    "registered": lambda house: house.ask(
        "register", record={**RECORD, "pools": [{"name": "workers", "min": 3, "max": 20}], "dry_run": False}
    ),
}


class TestPendingChanges:
    def test_a_check_of_a_quiet_cluster_costs_two_reads(self, quiet: House, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            for _ in range(10):
                quiet.looks()
        assert quiet.journal.entries == ["at rest", "load", "observe", SEEN] * 10
        assert (asked(quiet), caplog.text) == ([], "")

    @pytest.mark.parametrize("change", [name for name in CHANGES if name != "paused"])
    def test_a_pending_change_requests_a_run_and_writes_nothing(self, quiet: House, change: str) -> None:
        CHANGES[change](quiet)
        quiet.queue.requests.clear()
        quiet.journal.entries.clear()
        patches = len(quiet.cluster.applied)
        quiet.looks()
        assert len(asked(quiet)) == 1
        assert (writes(quiet), len(quiet.cluster.applied)) == ([], patches)

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_a_change_is_pending_until_its_run(self, dry_run: bool) -> None:
        house = House(stack_dry_run=dry_run)
        house.looks()
        assert len(asked(house)) == 1
        house.settle()
        house.clock.at += 5 * MINUTE
        house.queue.requests.clear()
        house.looks()
        assert [reason for reason, _ in asked(house) if reason != "nothing to be done"] == []

    def test_several_checks_within_seconds_request_one_run(self, quiet: House) -> None:
        quiet.scale("a", 9)
        quiet.clock.at = NOW + 60 * MINUTE
        for _ in range(5):
            quiet.look(("demo",), lambda: 30)
        assert len(asked(quiet)) == 1

    def test_a_due_check_that_is_lost_is_requested_again(self) -> None:
        house = House(zones((4, 2, 2), bounds=[(1, 9)] * 3))
        house.fail("a")
        house.runs(2)
        house.queue.requests.clear()
        while not asked(house):  # the message for the end of the backoff never comes
            house.looks()
        assert house.clock.at - NOW < 10 * MINUTE

    def test_an_agreed_fix_whose_request_is_lost_is_requested_again(self) -> None:
        house = House(replaced_first(zones((1, 1, 0)), pool_min=0, pool_max=2))
        house.settle()
        house.ask("validate", apply=True)
        house.queue.requests.clear()
        house.looks()
        assert asked(house) == [("a check is due", None)]

    def test_paused_and_unregistered_clusters_are_not_read(self, quiet: House) -> None:
        quiet.ask("pause")
        looks = quiet.cluster.looks
        quiet.queue.requests.clear()
        quiet.looks("demo", "gone")
        assert (asked(quiet), quiet.cluster.looks) == ([], looks)


class TestSettledClusters:
    """A steady cluster gets quick checks: only its groups are read and compared."""

    @pytest.fixture
    def steady(self, quiet: House) -> House:
        many(quiet, 16)
        assert self.is_steady(quiet)
        quiet.journal.entries.clear()
        return quiet

    @staticmethod
    def is_steady(house: House) -> bool:
        return bool(house.store.steady_clusters(["demo"]))

    def test_a_full_check_comes_every_fifteen_minutes(self, steady: House, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            metrics = [steady.looks().metrics() for _ in range(45)]
        entries = steady.journal.entries
        assert (entries.count("glance"), entries.count("observe"), entries.count("load")) == (42, 3, 3)
        assert (asked(steady), caplog.text) == ([], "")
        assert all(metric == metrics[0] for metric in metrics)

    def test_a_quick_check_is_stored_as_a_check_of_its_chunk(self, steady: House) -> None:
        steady.register_another("another", FakeCluster(zones((2, 2, 5), bounds=[(1, 9)] * 3)))
        steady.looks("demo", "another")
        assert (steady.journal.entries.count("glance"), steady.journal.entries.count("load")) == (1, 1)
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
    def test_an_incident_or_a_notification_unsettles_it(self, steady: House, cluster_health: ClusterHealth) -> None:
        stored, observation = steady.store.load("demo"), steady.cluster.observe()
        plan = plan_for(stored, stored.policy, observation, steady.clock.at)
        assert is_steady(stored, observation, plan)
        assert not is_steady(replace(stored, cluster_health=cluster_health), observation, plan)

    def test_a_health_that_a_killed_run_has_stored_unsettles_the_cluster(self, steady: House) -> None:
        steady.store.save_cluster_health("demo", ClusterHealth(outbox=(CLOSED,)), steady.store.load("demo").versions)
        steady.run()
        assert not self.is_steady(steady)
        assert steady.store.load("demo").cluster_health == ClusterHealth()

    @pytest.mark.parametrize("change", [{"requested": 5}, {"running": 0}, {"pool_max": 1}, {"pool_label": "other"}])
    def test_any_change_of_its_groups_gets_a_full_check_at_once(self, steady: House, change: dict[str, Any]) -> None:
        steady.cluster.change(key("a"), **change)
        steady.looks()
        assert [why in ("scan", "a check is due") for why, _ in asked(steady)] == [True]

    @pytest.mark.parametrize("change", ["failed", "fenced", "requested", "paused", "registered"])
    def test_any_change_of_its_state_unsettles_it(self, steady: House, change: str) -> None:
        CHANGES[change](steady)
        if change == "failed":
            steady.run()
        steady.carry_out()
        assert not self.is_steady(steady)

    def test_a_cluster_settles_again_within_minutes_of_a_run(self, steady: House) -> None:
        steady.scale("a", 3)
        minutes = 0
        while minutes < 2 or not self.is_steady(steady):
            steady.looks()
            steady.carry_out()
            steady.cluster.change(key("a"), running=3)
            minutes += 1
        assert minutes < 8

    def test_a_cluster_settles_again_within_minutes_of_a_node(self, steady: House) -> None:
        steady.cluster.change(key("a"), requested=3)
        many(steady, 4)
        assert not self.is_steady(steady), "it waits for a node"
        steady.cluster.change(key("a"), running=3)
        many(steady, 4)
        assert self.is_steady(steady)

    def test_a_run_that_finds_nothing_to_do_after_a_write_settles_the_cluster(self, steady: House) -> None:
        steady.scale("a", 5)
        steady.looks()
        steady.carry_out()
        assert steady.patched()
        assert not self.is_steady(steady)
        steady.queue.requests.clear()
        steady.settle()
        assert self.is_steady(steady)
        steady.looks()
        assert asked(steady) == [], "no check requests a run for it"

    def test_a_run_that_fails_has_unsettled_the_cluster_before(self, steady: House) -> None:
        steady.cluster.change(key("a"), requested=9)

        def gone(_: object) -> None:
            raise StateUnavailableError("the table is away")

        steady.cluster.before_apply = gone
        with pytest.raises(StateUnavailableError):
            steady.run()
        assert not self.is_steady(steady)

    def test_a_cluster_that_stops_answering_is_reported_at_once_and_unsettled(self, steady: House) -> None:
        steady.cluster.unreadable = DARK
        summary = steady.looks()
        assert (asked(steady), summary.metrics()["ClustersUnreachable"]) == ([(str(DARK), CheckResult.SILENT)], 1)
        steady.carry_out()
        assert not self.is_steady(steady)

    @pytest.mark.parametrize("refusal", [TooLargeError("too large"), AccessRefusedError("403"), AccessError("no")])
    def test_a_quick_check_that_is_refused_becomes_a_full_check(self, steady: House, refusal: Exception) -> None:
        steady.cluster.unreadable = refusal
        steady.journal.entries.clear()
        steady.looks("demo", "another")
        assert [entry for entry in steady.journal.entries if entry in ("glance", "observe")] == ["glance", "observe"]

    @pytest.mark.parametrize("change", [{"pool_max": 1}, {"requested": 3}], ids=["invalid", "awaits a node"])
    def test_an_invalid_pool_or_an_ordered_node_unsettles_it(self, quiet: House, change: dict[str, int]) -> None:
        quiet.cluster.change(key("a"), **change)
        quiet.settle()
        many(quiet, 30)
        assert not self.is_steady(quiet)

    def test_objects_that_change_without_effect_request_one_run_an_hour(self, steady: House) -> None:
        runs = 0
        for minute in range(360):
            steady.cluster.change(key("a"), labels={"touched": str(minute)})
            steady.looks()
            runs += len(asked(steady))
            steady.carry_out()
        assert runs == 6

    def test_runs_that_store_the_settled_state_of_many_clusters_are_spread_over_minutes(self) -> None:
        names = [f"c{number}" for number in range(150)]
        house = House(clusters=FakeClusters({name: FakeCluster(House().cluster.groups.values()) for name in names}))
        for name in names:
            register(house.store, name, dry_run=None, pools=NUMBERS)
            for _ in range(4):
                house.clock.at += MINUTE
                house.rebalance(name, "a test", plenty)
        house.queue.requests.clear()
        minutes = []
        for _ in range(15):
            house.looks(*names)
            minutes.append(len(asked(house)))
            house.carry_out()
        assert sum(minutes) == len(house.store.steady_clusters(names)) == 150
        assert max(minutes) < 25

    def test_a_settled_state_of_another_release_is_ignored(self, steady: House) -> None:
        item = steady.store._items["demo"][META]
        steady.store._items["demo"][META] = replace(item, steady='{"at": "yesterday"}')
        assert not self.is_steady(steady)
        steady.journal.entries.clear()
        steady.looks()
        assert "observe" in steady.journal.entries


class TestChunks:
    @pytest.fixture
    def chunk(self, quiet: House) -> House:
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

    def test_a_failing_cluster_affects_no_other(self, chunk: House, caplog: pytest.LogCaptureFixture) -> None:
        summary = chunk.looks(*self.NAMES)
        results = {cluster: chunk.queue.found[id] for id, (cluster, _) in chunk.queue.requests.items()}
        assert results == {
            "locked": CheckResult.UNSEEN,  # a run has an identity of its own, and may be able to open it
            **dict.fromkeys(("broken", "well-0", "well-1", "well-2")),
            **dict.fromkeys(("dark", "garbage"), CheckResult.SILENT),
        }
        assert summary.metrics()["ClustersUnreachable"] == 3, "the record that cannot be read is among them"
        assert "record of cluster broken: flavours is missing" in caplog.text
        assert summary.metrics()["RunsFailed"] == 0
        assert "secret-token" not in caplog.text + str(chunk.queue.requests)

    def test_a_table_that_is_away_fails_each_check_and_requests_nothing(self, chunk: House) -> None:
        chunk.store.away_from = 0
        summary = chunk.looks("demo", "well-0")
        assert (summary.failed, chunk.queue.requests) == (2, {})

    def test_a_request_that_the_queue_refuses_is_sent_by_the_next_check(self, chunk: House) -> None:
        chunk.queue.broken = QueueUnavailableError("away")
        assert chunk.looks("well-0").failed == 1
        chunk.queue.broken = None
        chunk.looks("well-0")
        assert len(asked(chunk)) == 1

    def test_a_cluster_that_is_too_large_for_a_chunk_is_checked_alone(self, chunk: House) -> None:
        chunk.cluster.unreadable = TooLargeError("demo has more than 4 MiB")
        chunk.looks("demo", "well-0")
        assert chunk.queue.clusters == ["well-0"]
        assert [(look.clusters, look.delay) for look in chunk.queue.looks] == [(("demo",), 0)]
        chunk.looks("demo")
        assert ("too large for a check", CheckResult.UNSEEN) in asked(chunk), "alone, it is a run's"

    def test_a_chunk_that_returns_to_the_queue_is_split(self, chunk: House) -> None:
        chunk.look.split(self.NAMES)
        assert [(look.clusters, look.delay) for look in chunk.queue.looks] == [((name,), 0) for name in self.NAMES]

    def test_the_metrics_of_a_chunk_are_sums_over_its_clusters(self, chunk: House) -> None:
        metrics = chunk.looks("well-0", "well-1", "demo").metrics()
        assert (metrics["ClustersChecked"], metrics["Imbalance"]) == (3, 3)


class Dark:
    """A stack with a cluster that does not answer and one that does."""

    def __init__(self, house: House) -> None:
        self.house, self.alone = house, list[datetime]()
        house.register_another("well", FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3)))
        house.cluster.unreadable = DARK
        house.queue.requests.clear()

    def deliver(self) -> None:
        """Every requested run; then its own checks are due."""
        queue = self.house.queue
        for id, (cluster, reason) in list(queue.requests.items()):
            del queue.requests[id]
            self.house.rebalance(cluster, reason, plenty, queue.found[id])
        self.alone += [self.house.clock.at + timedelta(seconds=look.delay) for look in queue.looks]
        assert all(look.clusters == ("demo",) for look in queue.looks)
        queue.looks.clear()

    def pass_minutes(self, count: int) -> list[int]:
        """The minutes in which the cluster is checked, by its chunk and by its own checks when they are due."""
        began, asked_at = self.house.clock.at, []
        for minute in range(count):
            looks = self.house.cluster.looks
            for when in sorted(when for when in self.alone if when <= began + minute * MINUTE):
                self.alone.remove(when)
                self.house.clock.at = when
                self.house.look(("demo",), plenty)
                self.deliver()
            self.house.clock.at = began + minute * MINUTE
            self.house.look(("demo", "well"), plenty)
            self.deliver()
            asked_at += [minute] * (self.house.cluster.looks - looks)
        return asked_at


class TestAccess:
    def test_a_run_reads_instead_as_long_as_checks_have_no_right_to(self, quiet: House) -> None:
        quiet.cluster.unreadable = AccessRefusedError("GET /apis of demo: 403 forbidden")
        quiet.looks()
        quiet.looks()
        assert asked(quiet) == [("checks are refused", CheckResult.UNSEEN)] * 2
        quiet.cluster.unreadable = None
        assert quiet.run().plan is not None

    def test_a_token_that_only_a_run_may_renew_requests_one(self, quiet: House) -> None:
        quiet.clusters.to_renew.add("demo")
        quiet.looks()
        assert asked(quiet) == [("its access is renewed", None)]

    def test_an_aws_that_does_not_answer_says_nothing_about_the_cluster(self, quiet: House) -> None:
        many(quiet, 16)
        assert quiet.store.steady_clusters(["demo"])
        quiet.cluster.unreadable = AccessUnavailableError("sts:AssumeRole was not answered")
        assert quiet.looks().failed == 1
        assert quiet.store.steady_clusters(["demo"])
        assert quiet.run().unreachable
        assert (asked(quiet), quiet.store.load("demo").unreachable, quiet.queue.looks) == ([], None, [])


class TestSilence:
    """A cluster that does not answer is checked alone, after 1, 2, 2, 5, 5, … minutes."""

    @pytest.fixture
    def dark(self, quiet: House) -> Dark:
        return Dark(quiet)

    def test_its_checks_become_rarer(self, dark: Dark) -> None:
        assert dark.pass_minutes(24) == [0, 1, 3, 5, 10, 15, 20]

    def test_events_request_one_check_a_minute_at_most_and_no_run_opens_it(self, dark: Dark) -> None:
        dark.pass_minutes(11)
        looks, soonest = dark.house.cluster.looks, len(dark.alone)
        for _ in range(22):
            dark.house.clock.at += timedelta(seconds=5)
            dark.house.rebalance("demo", "provisioning failure", plenty)
        assert dark.house.cluster.looks == looks, "no run waits for it"
        dark.deliver()
        assert len(dark.alone) == soonest + 1
        first, *others = dark.pass_minutes(20)
        assert others == [first + number * 5 for number in range(1, len(others) + 1)], "there is one chain, as before"

    def test_after_one_check_without_answer_a_run_still_opens_it(self, dark: Dark) -> None:
        dark.pass_minutes(1)
        dark.house.cluster.unreadable = None
        looks = dark.house.cluster.looks
        assert dark.house.run().plan is not None
        assert dark.house.cluster.looks == looks + 1

    def test_when_it_answers_it_is_checked_each_minute_again(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.house.cluster.unreadable = None
        assert dark.pass_minutes(6)[0] <= 5
        assert dark.house.store.load("demo").unreachable.is_over  # type: ignore[union-attr]
        assert sorted(set(dark.pass_minutes(3))) == [0, 1, 2]  # and a run that remembers it as settled
        assert asked(dark.house) == []

    def test_a_lost_check_of_its_own_is_not_awaited(self, dark: Dark) -> None:
        dark.pass_minutes(2)
        dark.alone.clear()
        assert dark.pass_minutes(5)

    def test_a_check_without_answer_that_is_delivered_twice_counts_once(self, dark: Dark) -> None:
        for _ in range(3):
            dark.house.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
        unreachable = dark.house.store.load("demo").unreachable
        assert unreachable is not None
        assert (unreachable.failed_checks, len(dark.house.queue.looks)) == (1, 1)

    def test_registering_it_again_checks_it_at_once(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.house.clock.at += 2 * MINUTE
        dark.house.ask("register", record=RECORD)
        dark.deliver()
        assert dark.house.clock.at in dark.alone

    def test_without_a_queue_the_run_fails(self, dark: Dark) -> None:
        dark.house.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            dark.house.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
