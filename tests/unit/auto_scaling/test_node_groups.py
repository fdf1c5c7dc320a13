"""The kept answers of EKS: which node groups are read, and how many per minute."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.auto_scaling.node_groups import Descriptions, NodeGroups

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEYS = [("demo", f"workers-{number:03}") for number in range(300)]


class Table:
    """A store in memory."""

    def __init__(self) -> None:
        self.stored: Descriptions = {}
        self.writes = 0

    def load(self, _cluster: str) -> Descriptions:
        return self.stored

    def save(self, _cluster: str, descriptions: Descriptions) -> None:
        self.stored = descriptions
        self.writes += 1


def described(key: tuple[str, str], status: str = "ACTIVE") -> Mapping[str, Any]:
    return {"clusterName": key[0], "nodegroupName": key[1], "status": status, "createdAt": NOW}


def read(kept: NodeGroups, keys: list[tuple[str, str]], now: datetime) -> int:
    """Read as a check does. Return the number of calls."""
    kept.load("eks", keys, now)
    due = kept.due("eks", keys, now)
    for key in due:
        kept.keep("eks", key, described(key), now)
    kept.save("eks", keys)
    return len(due)


@given(count=st.integers(0, 300), seed=st.integers(0, 9), seconds=st.lists(st.integers(1, 90), max_size=60))
def test_checks_read_at_most_an_eighth_per_minute_and_in_the_end_all(count: int, seed: int, seconds: list[int]) -> None:
    kept, keys, now = NodeGroups(random=Random(seed).random), KEYS[:count], NOW
    calls: list[tuple[datetime, int]] = []
    for pause in [*seconds, *[60] * 15]:
        calls.append((now, read(kept, keys, now)))
        assert sum(number for at, number in calls if now - at < MINUTE) <= max(20, count // 8)
        now += timedelta(seconds=pause)
    assert len(kept.known("eks", keys)) == count


def test_over_an_hour_checks_read_a_twelfth_per_minute_on_average() -> None:
    kept = NodeGroups(random=Random(1).random)
    for minute in range(30):
        read(kept, KEYS, NOW + minute * MINUTE)
    calls = sum(read(kept, KEYS, NOW + minute * MINUTE) for minute in range(30, 90))
    assert calls / 60 <= 300 / 10


def test_an_answer_counts_until_its_successor_is_read() -> None:
    kept = NodeGroups(random=lambda: 0.0)
    read(kept, KEYS[:3], NOW)
    later = NOW + timedelta(hours=5)
    assert len(kept.due("eks", KEYS[:3], later)) == 3
    assert len(kept.known("eks", KEYS[:3])) == 3


def test_a_node_group_that_eks_changes_is_read_again_after_a_minute() -> None:
    kept = NodeGroups(random=lambda: 0.0)
    for key, status in zip(KEYS, ("ACTIVE", "UPDATING", "A_NEW_STATUS"), strict=False):
        kept.keep("eks", key, described(key, status), NOW)
    assert kept.due("eks", KEYS[:3], NOW + MINUTE) == [KEYS[1], KEYS[2]]


def test_another_instance_of_the_function_begins_with_the_stored_answers_and_reads_them_again_by_and_by() -> None:
    table = Table()
    run = NodeGroups(random=Random(1).random, store=table, saves=True)
    for minute in range(15):
        read(run, KEYS, NOW + minute * MINUTE)
    assert len(table.stored) == 300
    check = NodeGroups(random=Random(2).random, store=table)
    now = NOW + timedelta(hours=1)
    assert read(check, KEYS, now) == 0
    assert len(check.known("eks", KEYS)) == 300
    assert sum(read(check, KEYS, now + minute * MINUTE) for minute in range(1, 17)) >= 300


def test_only_runs_store_and_only_what_has_changed() -> None:
    table = Table()
    check, run = (NodeGroups(random=Random(1).random, store=table, saves=saves) for saves in (False, True))
    read(check, KEYS[:3], NOW)
    assert table.writes == 0
    for minute in range(0, 60, 5):
        read(run, KEYS[:3], NOW + minute * MINUTE)
    assert table.writes == 1
    run.keep("eks", KEYS[0], described(KEYS[0], "UPDATING"), NOW)
    run.save("eks", KEYS[:3])
    assert table.writes == 2
