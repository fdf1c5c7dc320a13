"""Looks write nothing, hand on what is news, and keep clusters that do not answer away from the others."""

import logging
from collections.abc import Callable
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
from evenkeel.application.rebalancing.plan import is_settled, plan_for
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind, Notified
from evenkeel.domain.model.offerings import CapacityReport, Offering, OfferingState
from tests.builders import MINUTE, key, zones
from tests.fakes import NOW, FakeCluster, FakeClusters, plenty, register
from tests.house import NUMBERS, RECORD, House

DARK = ClusterUnavailableError("demo does not answer: not within 8 s")


@pytest.fixture
def quiet() -> House:
    """A cluster for which there is nothing to do."""
    house = House()
    house.settle()
    house.clock.at += 5 * MINUTE
    house.queue.requests.clear()
    house.journal.entries.clear()
    return house


# All that looks write: when they have seen which clusters, once for a chunk.
SEEN = "save LOOKED"


def writes(house: House) -> list[str]:
    return [entry for entry in house.journal.entries if entry.startswith(("save", "apply", "mark")) and entry != SEEN]


def asked(house: House) -> list[tuple[str, CheckResult | None]]:
    """Why runs were asked for, and what they are told."""
    return [(why, house.queue.found[id]) for id, (_, why) in house.queue.requests.items()]


class TestNews:
    def test_a_quiet_cluster_costs_three_reads_a_look_its_chunks_one_write_and_not_a_line(
        self, quiet: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        looks = quiet.cluster.looks
        with caplog.at_level(logging.INFO):
            for _ in range(10):
                quiet.looks()
        assert quiet.journal.entries == ["offerings", "at rest", "load", "observe", SEEN] * 10
        assert quiet.cluster.looks - looks == 10
        assert (asked(quiet), caplog.text) == ([], "")

    @pytest.mark.parametrize(
        "change",
        [
            lambda house: house.scale("a", 9),
            lambda house: house.cluster.change(key("a"), requested=5),
            lambda house: house.cluster.change(key("b"), pool_max=1),
            lambda house: house.fail("a"),
            lambda house: house.ask("fence-zone", zone="a", until="2026-01-15T18:00:00Z"),
            lambda house: house.ask("restore"),
            lambda house: house.ask("scale-up", nodes=2, pool="workers"),
            lambda house: house.ask(
                "register", record={**RECORD, "pools": [{"name": "workers", "min": 3, "max": 20}], "dry_run": False}
            ),
        ],
        ids=["grown", "ordered", "invalid", "failed", "fenced", "restored", "asked-for", "other numbers"],
    )
    def test_what_a_run_would_write_or_tell_is_handed_on_and_nothing_is_written(
        self, quiet: House, change: Callable[[House], object]
    ) -> None:
        change(quiet)
        quiet.queue.requests.clear()
        quiet.journal.entries.clear()
        patches = len(quiet.cluster.applied)
        quiet.looks()
        assert len(asked(quiet)) == 1
        assert (writes(quiet), len(quiet.cluster.applied)) == ([], patches)

    def test_after_the_run_it_is_no_news_any_more(self, quiet: House) -> None:
        quiet.scale("a", 8)
        quiet.looks()
        assert len(asked(quiet)) == 1
        quiet.settle()
        quiet.clock.at += 10 * MINUTE
        quiet.queue.requests.clear()
        quiet.looks()
        assert asked(quiet) == []

    def test_in_dry_run_a_plan_is_told_once(self) -> None:
        house = House(stack_dry_run=True)
        house.looks()
        assert len(asked(house)) == 1
        house.settle()
        house.clock.at += 5 * MINUTE
        house.queue.requests.clear()
        house.looks()
        assert [why for why, _ in asked(house) if why != "nothing to be done"] == []

    def test_several_looks_within_seconds_ask_once(self, quiet: House) -> None:
        quiet.scale("a", 9)
        quiet.clock.at = NOW + 60 * MINUTE
        for _ in range(5):
            quiet.look(("demo",), lambda: 30)
        assert len(asked(quiet)) == 1

    def test_a_look_that_is_due_and_lost_is_asked_for_again(self) -> None:
        house = House(zones((4, 2, 2), bounds=[(1, 9)] * 3))
        house.fail("a")
        house.runs(2)
        house.queue.requests.clear()
        while not asked(house):  # the message for the end of the backoff never comes
            house.looks()
        assert house.clock.at - NOW < 10 * MINUTE

    def test_paused_and_unregistered_clusters_are_left_alone(self, quiet: House) -> None:
        quiet.ask("pause")
        looks = quiet.cluster.looks
        quiet.queue.requests.clear()
        quiet.looks("demo", "gone")
        assert (asked(quiet), quiet.cluster.looks) == ([], looks)


class TestSettledClusters:
    """One that nothing happens to is glanced at: nothing is read of it but its groups, and that only compared."""

    @pytest.fixture
    def settled(self, quiet: House) -> House:
        """A quiet cluster, after a quarter of an hour of looks."""
        for _ in range(16):
            quiet.looks()
            quiet.carry_out()
        assert self.is_settled(quiet)
        quiet.journal.entries.clear()
        return quiet

    @staticmethod
    def is_settled(house: House) -> bool:
        return bool(house.store.steady_clusters(["demo"]))

    def test_all_of_it_is_looked_at_every_fifteen_minutes(
        self, settled: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            metrics = [settled.looks().metrics() for _ in range(45)]
        entries = settled.journal.entries
        assert (entries.count("glance"), entries.count("observe"), entries.count("load")) == (42, 3, 3)
        assert (asked(settled), caplog.text) == ([], "")
        assert all(metric == metrics[0] for metric in metrics)

    def test_a_glance_is_a_look_and_is_said_with_those_of_its_chunk(self, settled: House) -> None:
        settled.register_another("another", FakeCluster(zones((2, 2, 5), bounds=[(1, 9)] * 3)))
        settled.looks("demo", "another")
        assert (settled.journal.entries.count("glance"), settled.journal.entries.count("load")) == (1, 1)
        looked_at = settled.store.looked_at()
        assert settled.clock.at - looked_at["demo"] <= MINUTE
        assert looked_at["another"] == looked_at["demo"]
        assert settled.journal.entries.count(SEEN) == 1

    @pytest.mark.parametrize(
        "cluster_health",
        [
            ClusterHealth(incidents=(Incident(kind=IncidentKind.INVALID, since=NOW),)),
            ClusterHealth(notified={"invalid": Notified(kind=IncidentKind.INVALID, since=NOW)}),
            ClusterHealth(
                outbox=(IncidentChange(change=Change.CLOSED, incident=Incident(kind=IncidentKind.INVALID, since=NOW)),)
            ),
        ],
        ids=["in trouble", "its end not told", "bus away"],
    )
    def test_one_with_trouble_or_something_to_be_told_of_it_is_not_settled(
        self, settled: House, cluster_health: ClusterHealth
    ) -> None:
        remembered, observation = settled.store.load("demo"), settled.cluster.observe()
        plan = plan_for(remembered, remembered.policy, observation, settled.clock.at)
        assert is_settled(remembered, observation, plan)
        assert not is_settled(replace(remembered, cluster_health=cluster_health), observation, plan)

    def test_a_verdict_that_is_written_beside_it_ends_that(self, settled: House) -> None:
        """As where a run was killed before it had told that trouble is over."""
        over = IncidentChange(change=Change.CLOSED, incident=Incident(kind=IncidentKind.INVALID, since=NOW))
        settled.store.save_cluster_health("demo", ClusterHealth(outbox=(over,)), settled.store.load("demo").versions)
        settled.run()
        assert not self.is_settled(settled)
        assert settled.store.load("demo").cluster_health == ClusterHealth()

    @pytest.mark.parametrize("change", [{"requested": 5}, {"running": 0}, {"pool_max": 1}, {"pool_label": "other"}])
    def test_whatever_happens_to_its_groups_is_looked_at_at_once(self, settled: House, change: dict[str, Any]) -> None:
        settled.cluster.change(key("a"), **change)
        settled.looks()
        assert [why in ("scan", "a look is due") for why, _ in asked(settled)] == [True]

    @pytest.mark.parametrize(
        "said",
        [
            lambda house: (house.fail("a"), house.run()),
            lambda house: house.ask("fence-zone", zone="a", until="2026-01-15T20:00:00Z"),
            lambda house: house.ask("scale-up", nodes=2, pool="workers"),
            lambda house: house.ask("pause"),
            lambda house: house.ask("register", record={**RECORD, "dry_run": False}),
        ],
        ids=["failed", "fenced", "asked-for", "paused", "registered"],
    )
    def test_whatever_is_said_of_it_ends_that(self, settled: House, said: Callable[[House], object]) -> None:
        said(settled)
        settled.carry_out()
        assert not self.is_settled(settled)

    def test_what_a_run_has_ended_is_settled_again_within_minutes(self, settled: House) -> None:
        settled.scale("a", 3)
        minutes = 0
        while minutes < 2 or not self.is_settled(settled):
            settled.looks()
            settled.carry_out()
            settled.cluster.change(key("a"), running=3)
            minutes += 1
        assert minutes < 8

    def test_a_run_that_breaks_off_has_ended_it_before(self, settled: House) -> None:
        settled.cluster.change(key("a"), requested=9)

        def gone(_: object) -> None:
            raise StateUnavailableError("the table is away")

        settled.cluster.before_apply = gone
        with pytest.raises(StateUnavailableError):
            settled.run()
        assert not self.is_settled(settled)

    def test_one_that_answers_no_more_is_in_trouble_at_once_and_not_glanced_at_again(self, settled: House) -> None:
        settled.cluster.unreadable = DARK
        summary = settled.looks()
        assert (asked(settled), summary.metrics()["ClustersUnreachable"]) == ([(str(DARK), CheckResult.SILENT)], 1)
        settled.carry_out()
        assert not self.is_settled(settled)

    @pytest.mark.parametrize("refusal", [TooLargeError("too large"), AccessRefusedError("403"), AccessError("no")])
    def test_what_a_glance_cannot_do_a_look_decides(self, settled: House, refusal: Exception) -> None:
        settled.cluster.unreadable = refusal
        settled.journal.entries.clear()
        settled.looks("demo", "another")
        assert [entry for entry in settled.journal.entries if entry in ("glance", "observe")] == ["glance", "observe"]

    def test_an_aws_that_does_not_answer_is_no_word_about_it(self, settled: House) -> None:
        settled.cluster.unreadable = AccessUnavailableError("STS does not answer")
        summary = settled.looks()
        assert (asked(settled), summary.failed, self.is_settled(settled)) == ([], 1, True)

    def test_it_is_looked_at_where_others_have_words_about_its_zones(self, settled: House) -> None:
        offering = Offering("aws", "eu-west-1", "a", "m5.large", "on-demand")
        word = CapacityReport(failed_at=settled.clock.at, until=settled.clock.at + 60 * MINUTE)
        settled.ask("register", record={**RECORD, "dry_run": False, "zone_ids": {"a": "a"}})
        for _ in range(16):
            settled.looks()
            settled.carry_out()
        settled.store.save_offering(offering, OfferingState(reports={"0" * 16: word}), None)
        settled.journal.entries.clear()
        for _ in range(3):
            settled.looks()
        assert "glance" not in settled.journal.entries

    def test_one_in_which_something_is_wrong_or_awaited_is_not_settled(self, quiet: House) -> None:
        for change in ({"pool_max": 1}, {"pool_max": None, "requested": 3}):
            quiet.cluster.change(key("a"), **change)
            quiet.settle()
            for _ in range(30):
                quiet.looks()
                quiet.carry_out()
            assert not self.is_settled(quiet)

    def test_objects_that_change_all_the_time_and_mean_nothing_are_worth_a_run_an_hour(self, settled: House) -> None:
        runs = 0
        for minute in range(360):
            settled.cluster.change(key("a"), labels={"touched": str(minute)})
            settled.looks()
            runs += len(asked(settled))
            settled.carry_out()
        assert runs == 6

    def test_of_many_that_are_not_known_to_be_settled_each_minute_asks_for_some(self) -> None:
        """So that a release that knows of it does not set off a run of every cluster in its first minute."""
        names = [f"c{number}" for number in range(150)]
        house = House(clusters=FakeClusters({name: FakeCluster(House().cluster.groups.values()) for name in names}))
        for name in names:
            register(house.store, name, dry_run=None, pools=NUMBERS)
        for name in names:
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

    def test_what_a_newer_release_remembers_otherwise_is_not_known(self, settled: House) -> None:
        item = settled.store._items["demo"][META]
        settled.store._items["demo"][META] = replace(item, settled='{"at": "yesterday"}')
        assert not self.is_settled(settled)
        settled.journal.entries.clear()
        settled.looks()
        assert "observe" in settled.journal.entries


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

    def test_what_goes_wrong_at_one_is_that_ones_own(self, chunk: House, caplog: pytest.LogCaptureFixture) -> None:
        summary = chunk.looks(*self.NAMES)
        found = {cluster: chunk.queue.found[id] for id, (cluster, _) in chunk.queue.requests.items()}
        # What a look cannot open, a run may be able to: it has an identity of its own.
        assert {name for name, what in found.items() if what is CheckResult.UNSEEN} == {"locked"}
        assert {name for name, what in found.items() if what is None} == {"broken", "well-0", "well-1", "well-2"}
        assert {name for name, what in found.items() if what is CheckResult.SILENT} == {"dark", "garbage"}
        assert summary.metrics()["ClustersUnreachable"] == 3, "the record that cannot be read is among them"
        assert "record of cluster broken: flavours is missing" in caplog.text
        assert summary.metrics()["RunsFailed"] == 0
        assert "secret-token" not in caplog.text + str(chunk.queue.requests)

    def test_a_table_that_is_away_fails_each_look_and_asks_for_nothing(self, chunk: House) -> None:
        chunk.store.away_from = 0
        summary = chunk.looks("demo", "well-0")
        assert (summary.failed, chunk.queue.requests) == (2, {})

    def test_a_queue_that_is_away_loses_nothing_since_the_next_look_sends_it(self, chunk: House) -> None:
        chunk.queue.broken = QueueUnavailableError("away")
        assert chunk.looks("well-0").failed == 1
        chunk.queue.broken = None
        chunk.looks("well-0")
        assert len(asked(chunk)) == 1

    def test_one_that_is_too_large_beside_others_is_looked_at_alone(self, chunk: House) -> None:
        chunk.cluster.unreadable = TooLargeError("demo has more than 4 MiB")
        chunk.looks("demo", "well-0")
        assert chunk.queue.clusters == ["well-0"]
        assert [(look.clusters, look.delay) for look in chunk.queue.looks] == [(("demo",), 0)]
        chunk.looks("demo")
        assert ("too large for a look", CheckResult.UNSEEN) in asked(chunk), "alone, it is a run's"

    def test_one_that_comes_back_is_taken_apart(self, chunk: House) -> None:
        chunk.look.split(self.NAMES)
        assert [(look.clusters, look.delay) for look in chunk.queue.looks] == [((name,), 0) for name in self.NAMES]

    def test_metrics_are_of_all_its_clusters(self, chunk: House) -> None:
        metrics = chunk.looks("well-0", "well-1", "demo").metrics()
        assert (metrics["ClustersLookedAt"], metrics["Imbalance"]) == (3, 3)


class TestRefusedLooks:
    def test_a_run_looks_instead_as_long_as_looks_have_no_right_to(self, quiet: House) -> None:
        quiet.cluster.unreadable = AccessRefusedError("GET /apis of demo: 403 forbidden")
        quiet.looks()
        quiet.looks()
        assert asked(quiet) == [("looks are refused", CheckResult.UNSEEN)] * 2
        quiet.cluster.unreadable = None
        assert quiet.run().plan is not None


class Dark:
    """A stack with a cluster that does not answer and one that does; time passes in minutes."""

    def __init__(self, house: House) -> None:
        self.house, self.alone = house, list[datetime]()
        house.register_another("well", FakeCluster(zones((2, 2, 2), bounds=[(1, 9)] * 3)))
        house.cluster.unreadable = DARK
        house.queue.requests.clear()

    def deliver(self) -> None:
        """Every run that was asked for, with what it is to be told; then, looks of its own are on their way."""
        queue = self.house.queue
        for id, (cluster, why) in list(queue.requests.items()):
            del queue.requests[id]
            self.house.rebalance(cluster, why, plenty, queue.found[id])
        self.alone += [self.house.clock.at + timedelta(seconds=look.delay) for look in queue.looks]
        assert all(look.clusters == ("demo",) for look in queue.looks)
        queue.looks.clear()

    def pass_minutes(self, count: int) -> list[int]:
        """The minutes in which it is asked, with a chunk in each and its own looks when they are due."""
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
    def test_a_token_that_only_a_run_may_renew_is_news(self, quiet: House) -> None:
        quiet.clusters.to_renew.add("demo")
        quiet.looks()
        assert asked(quiet) == [("its access is renewed", None)]

    def test_an_aws_that_does_not_answer_is_no_word_about_the_cluster(self, quiet: House) -> None:
        quiet.cluster.unreadable = AccessUnavailableError("sts:AssumeRole was not answered")
        assert quiet.looks().failed == 1
        assert quiet.run().unreachable
        assert asked(quiet) == []
        assert quiet.store.load("demo").silence is None
        assert quiet.queue.looks == []


class TestSilence:
    """1, 2, 2, 5, 5, … minutes, by looks of its own; what a run remembers."""

    @pytest.fixture
    def dark(self, quiet: House) -> Dark:
        return Dark(quiet)

    def test_it_is_asked_less_and_less_often_by_looks_of_its_own(self, dark: Dark) -> None:
        assert dark.pass_minutes(24) == [0, 1, 3, 5, 10, 15, 20]

    def test_events_do_not_open_it_and_have_it_asked_once_a_minute_at_most(self, dark: Dark) -> None:
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

    def test_once_unanswered_may_be_a_hiccup_and_a_run_still_opens_it(self, dark: Dark) -> None:
        dark.pass_minutes(1)
        dark.house.cluster.unreadable = None
        looks = dark.house.cluster.looks
        assert dark.house.run().plan is not None
        assert dark.house.cluster.looks == looks + 1

    def test_when_it_answers_a_run_looks_and_all_is_as_before(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.house.cluster.unreadable = None
        assert dark.pass_minutes(6)[0] <= 5
        assert dark.house.store.load("demo").silence.is_over  # type: ignore[union-attr]
        assert sorted(set(dark.pass_minutes(3))) == [0, 1, 2]  # and a run that remembers it as settled
        assert asked(dark.house) == []

    def test_a_look_of_its_own_that_is_lost_is_not_waited_for(self, dark: Dark) -> None:
        dark.pass_minutes(2)
        dark.alone.clear()
        assert dark.pass_minutes(5)

    def test_the_same_look_told_twice_counts_once(self, dark: Dark) -> None:
        for _ in range(3):
            dark.house.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
        silence = dark.house.store.load("demo").silence
        assert silence is not None
        assert (silence.looks, len(dark.house.queue.looks)) == (1, 1)

    def test_registering_it_again_has_it_asked_at_once(self, dark: Dark) -> None:
        dark.pass_minutes(9)
        dark.house.clock.at += 2 * MINUTE
        dark.house.ask("register", record=RECORD)
        dark.deliver()
        assert dark.house.clock.at in dark.alone

    def test_without_a_queue_the_run_fails_and_is_tried_again(self, dark: Dark) -> None:
        dark.house.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            dark.house.rebalance("demo", "does not answer", plenty, CheckResult.SILENT)
