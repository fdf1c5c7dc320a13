"""Ticks become checks: every cluster as often as its interval says, spread over the minute, in chunks."""

from collections import Counter
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.errors import QueueUnavailableError, StateUnavailableError
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.ports import sequentially
from evenkeel.domain.fleet.check_times import CHUNK, chunks_of_minute, is_due
from evenkeel.domain.incidents.health import evaluate_unread
from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind
from tests.builders import MINUTE
from tests.fakes import NOW, FakeClock, FakeQueue, InMemoryStore, register
from tests.stack import Stack

IDS = st.text("abcdefghij-0123456789", min_size=1, max_size=20)


class Stage:
    def __init__(self) -> None:
        self.store, self.queue, self.clock = InMemoryStore(), FakeQueue(), FakeClock()
        self.scan = self.another_instance()

    def another_instance(self) -> Scan:
        return Scan(store=self.store, queue=self.queue, clock=self.clock, together=sequentially)

    def checks(self) -> Counter[str]:
        return Counter(cluster for chunk in self.queue.checks for cluster in chunk.clusters)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    register(stage.store, "fast", scan_interval=15)
    register(stage.store, "minute")
    register(stage.store, "hourly", scan_interval=3600)
    register(stage.store, "paused", paused=True)
    return stage


class TestWhenAClusterIsDue:
    @given(cluster=IDS, minutes=st.integers(1, 60), start=st.integers(0, 10_000_000), late=st.integers(0, 59))
    def test_a_cluster_is_due_once_per_interval(self, cluster: str, minutes: int, start: int, late: int) -> None:
        ticks = [NOW + (start + number) * MINUTE for number in range(minutes)]
        assert sum(is_due(cluster, minutes * 60, tick) for tick in ticks) == 1
        for tick in ticks:
            assert is_due(cluster, minutes * 60, tick) == is_due(cluster, minutes * 60, tick + timedelta(seconds=late))

    def test_many_clusters_of_one_interval_are_spread_over_its_minutes(self) -> None:
        due = [sum(is_due(f"cluster-{i}", 600, NOW + minute * MINUTE) for i in range(1000)) for minute in range(10)]
        assert sum(due) == 1000
        assert min(due) > 50


class TestChunks:
    @given(due=st.dictionaries(IDS, st.sampled_from([15, 20, 30, 45, 60, 3600]), max_size=60), size=st.integers(1, 20))
    def test_a_cluster_is_in_as_many_chunks_as_its_interval_needs(self, due: dict[str, int], size: int) -> None:
        chunks = chunks_of_minute(due.items(), size)
        checks: dict[str, list[int]] = {cluster: [] for cluster in due}
        for chunk in chunks:
            assert 1 <= len(chunk.clusters) == len(set(chunk.clusters)) <= size
            assert 0 <= chunk.delay < 60
            for cluster in chunk.clusters:
                checks[cluster].append(chunk.delay)
        for cluster, interval in due.items():
            assert 60 // interval <= len(checks[cluster]) <= -(-60 // min(interval, 60))
            assert len(checks[cluster]) >= 1

    @given(clusters=st.dictionaries(IDS, st.booleans(), max_size=200), size=st.integers(1, 50))
    def test_a_resting_cluster_is_named_beside_the_checks_of_its_chunk(
        self, clusters: dict[str, bool], size: int
    ) -> None:
        due = [cluster for cluster, is_due in clusters.items() if is_due]
        resting = [cluster for cluster, is_due in clusters.items() if not is_due]
        chunks = chunks_of_minute([(cluster, 60) for cluster in due], size, resting)
        assert sorted(cluster for chunk in chunks for cluster in chunk.clusters) == sorted(due)
        named = [cluster for chunk in chunks for cluster in chunk.rests]
        assert sorted(set(named)) == sorted(named)
        assert set(named) <= set(resting)
        assert all(1 <= len(chunk.clusters) <= size for chunk in chunks)

    def test_chunks_have_the_same_clusters_while_other_clusters_rest(self) -> None:
        names, found = [f"cluster-{number}" for number in range(1_000)], set()
        for minute in range(30):
            busy = {name for number, name in enumerate(names) if (number + minute) % 40 == 0}
            due = [(name, 60) for name in names if name in busy or is_due(name, 300, NOW + minute * MINUTE)]
            resting = set(names) - dict(due).keys()
            found |= {frozenset((*chunk.clusters, *chunk.rests)) for chunk in chunks_of_minute(due, CHUNK, resting)}
        assert len(found) == 8

    @given(due=st.dictionaries(IDS, st.just(60), min_size=1, max_size=200), size=st.integers(1, 50))
    def test_chunks_are_few_and_about_equal(self, due: dict[str, int], size: int) -> None:
        sizes = [len(chunk.clusters) for chunk in chunks_of_minute(due.items(), size)]
        assert len(sizes) == -(-len(due) // size)
        assert max(sizes) - min(sizes) <= 1

    def test_ten_thousand_clusters_are_spread_over_the_minute(self) -> None:
        chunks = chunks_of_minute([(f"cluster-{number}", 60) for number in range(10_000)], CHUNK)
        by_second = Counter(dict.fromkeys(range(60), 0))
        for chunk in chunks:
            by_second[chunk.delay] += len(chunk.clusters)
        assert len(chunks) == 200
        assert max(by_second.values()) <= 5 * CHUNK, "no burst"
        assert min(by_second.values()) >= CHUNK, "no second is idle"

    @given(due=st.dictionaries(IDS, st.just(60), min_size=1, max_size=100))
    def test_chunks_are_the_same_every_minute(self, due: dict[str, int]) -> None:
        backwards = reversed(list(due.items()))
        assert chunks_of_minute(due.items(), 7) == chunks_of_minute(backwards, 7)


class TestTicks:
    def test_a_sub_minute_interval_is_spread_over_its_minute(self, stage: Stage) -> None:
        stage.scan.tick(NOW)
        delays = sorted(chunk.delay for chunk in stage.queue.checks if "fast" in chunk.clusters)
        assert len(delays) == 4
        assert delays[3] - delays[1] == 30

    def test_a_late_tick_does_not_shift_its_checks(self, stage: Stage) -> None:
        stage.scan.tick(NOW)
        in_time, stage.queue.checks = stage.queue.checks, []
        stage.clock.at = NOW + timedelta(seconds=20)
        stage.scan.tick(NOW)
        assert [check.delay for check in stage.queue.checks] == [max(0, check.delay - 20) for check in in_time]

    def test_an_hour_of_ticks_requests_checks_by_interval_and_no_run(self, stage: Stage) -> None:
        for minute in range(60):
            stage.scan.tick(NOW + minute * MINUTE)
        assert stage.checks() == {"fast": 240, "minute": 60, "hourly": 1, "paused": 60}
        assert stage.queue.requests == {}

    def test_an_invalid_record_is_reported_and_the_others_are_scanned(self, stage: Stage) -> None:
        stage.store.plant("broken", "{}")
        result = stage.scan.tick(NOW)
        assert set(stage.checks()) == {"fast", "minute", "paused"}
        assert len(result.broken) == 1
        assert "record of cluster broken" in result.answer()["message"]
        assert list(stage.queue.requests.values()) == [("broken", "its record is invalid")], "a run reports of it"
        assert result.answer()["ok"] is False

    def test_without_table_or_queue_the_tick_fails(self, stage: Stage) -> None:
        stage.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            stage.scan.tick(NOW)
        stage.store.away_from = 0
        with pytest.raises(StateUnavailableError):
            stage.scan.tick(NOW)


class TestByHand:
    def test_named_clusters_get_a_run_and_without_names_all_a_check(self, stage: Stage) -> None:
        assert stage.scan.by_hand(["hourly"]).requested == ("hourly",)
        assert stage.queue.clusters == ["hourly"]
        assert stage.scan.by_hand([]).requested == ("fast", "hourly", "minute", "paused")
        assert [(chunk.clusters, chunk.delay) for chunk in stage.queue.checks] == [
            (("fast", "hourly", "minute", "paused"), 0)
        ]

    def test_an_unknown_name_is_reported_and_every_scan_is_a_run(self, stage: Stage) -> None:
        answer = stage.scan.by_hand(["nobody", "minute"]).answer()
        assert answer["ok"] is False
        assert "cluster 'nobody' is not registered" in answer["message"]
        stage.clock.at += timedelta(seconds=1)
        stage.scan.by_hand(["minute"])
        assert stage.queue.clusters == ["minute", "minute"]


class TestStoppedChecks:
    """If no check has read a cluster for too long, this is notified without a request for the status."""

    def stack(self, **fields: Any) -> Stack:
        stack = Stack(**fields)
        stack.settle()
        stack.checks()
        stack.clock.at = stack.clock.at.replace(minute=stack.clock.at.minute // 5 * 5, second=0)
        stack.store.save_checked_at(["demo"], stack.clock.at)
        return stack

    def tick(self, stack: Stack, after: timedelta) -> None:
        """Play a tick whose checks never run, and the runs that it requests."""
        stack.clock.at += after
        scan = Scan(store=stack.store, queue=stack.queue, clock=stack.clock, together=sequentially)
        scan.tick(stack.clock.at)
        stack.carry_out()

    def changes(self, stack: Stack) -> list[tuple[str, str]]:
        return [(kind, detail["kind"]) for kind, detail in stack.bus.published if kind.startswith("Incident")]

    def test_the_incident_is_notified_once_and_ends_with_the_next_check(self) -> None:
        stack = self.stack()
        for _ in range(4):
            self.tick(stack, 5 * MINUTE)
        assert self.changes(stack) == [("Incident Opened", "stopped")]
        for _ in range(2):
            stack.checks()
            stack.carry_out()
        assert self.changes(stack) == [("Incident Opened", "stopped"), ("Incident Closed", "stopped")]

    def test_a_cluster_that_is_checked_in_time_causes_no_run(self) -> None:
        stack = self.stack(scan_interval=600)
        for _ in range(4):
            self.tick(stack, 5 * MINUTE)
        assert self.changes(stack) == []

    def test_a_paused_cluster_is_not_missed(self) -> None:
        stack = self.stack()
        stack.ask("pause")
        for _ in range(4):
            self.tick(stack, 5 * MINUTE)
        assert self.changes(stack) == []

    def test_a_cluster_that_does_not_answer_is_unreachable_and_not_stopped(self) -> None:
        stack = self.stack()
        stored = stack.store.load("demo")
        health = evaluate_unread(
            ClusterHealth(), IncidentKind.UNREACHABLE, "away", stack.clock.at, stack.clock.at, timedelta(0)
        )
        stack.store.save_cluster_health("demo", health, stored.versions)
        self.tick(stack, 5 * MINUTE)
        assert ("Incident Opened", "stopped") not in self.changes(stack)

    def test_a_scan_goes_on_without_the_times_of_the_last_checks(self, stage: Stage) -> None:
        def away() -> NoReturn:
            raise StateUnavailableError("away")

        stage.store.checked_at = away  # type: ignore[method-assign]
        at = NOW.replace(minute=5)
        assert "minute" in stage.scan.tick(at).requested
