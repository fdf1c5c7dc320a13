"""A zone is fenced until a given time, or healthy again: by an operator, or by AWS. The newest report counts."""

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from evenkeel.application.errors import (
    BadRequestError,
    ClusterUnavailableError,
    QueueUnavailableError,
    StateConflictError,
    StateUnavailableError,
)
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, ZoneShift
from evenkeel.application.rebalancing.zones import LONGEST
from evenkeel.domain.fleet.check_times import Unreachable
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.texts.english import sentences
from evenkeel.validation import ConfigError
from tests.builders import MINUTE, group
from tests.crashing import BUSY, IDLE, Life, Scene
from tests.fakes import NOW, record, register, register_again
from tests.stack import Stack

ZONE_IDS = {"euc1-az1": "eu-central-1b", "euc1-az2": "eu-central-1c"}


def shift(zone: str = "euc1-az1", *, impaired: bool = True, minute: float = 0, **fields: Any) -> ZoneShift:
    """Return a report about a zone, so many minutes after NOW."""
    given = {"region": "eu-central-1", "until": None, "by": "arc", "id": f"{zone}-{minute}-{impaired}"}
    return ZoneShift(**{**given, "zone": zone, "impaired": impaired, "at": NOW + minute * MINUTE, **fields})


class Zoned(Stack):
    def __init__(self, groups: Sequence[NodeGroup] = (), **fields: Any) -> None:
        super().__init__(groups, **{"region": "eu-central-1", "zone_ids": ZONE_IDS, "pools": [], **fields})

    def receive(self, said: ZoneShift) -> EventOutcome:
        return self.record_zone_shift(said)

    def fence(self, zone: Any, until: Any, cluster: str = "demo") -> dict[str, Any]:
        until = until.isoformat() if isinstance(until, datetime) else until
        return self.ask("fence-zone", cluster, zone=zone, until=until)

    def until(self, zone: str, cluster: str = "demo") -> datetime | None:
        return self.store.load(cluster).state.zones.get(zone)

    def impaired(self, zone: str) -> bool:
        until = self.until(zone)
        return until is not None and self.clock.at < until


def test_fence_zone_says_that_a_cluster_is_paused_or_does_not_answer() -> None:
    stack = Stack(paused=True)
    silent = Unreachable(since=NOW, failed_checks=1, last_check=NOW, next_check=NOW + MINUTE)
    stack.store.save_unreachable("demo", silent, None)
    fields = {"zone": "a", "until": (NOW + 9 * MINUTE).isoformat()}
    (listed,) = stack.ask("fence-zone", None, clusters=["demo"], list=True, **fields)["clusters"]
    assert "; paused: nothing happens before it is resumed" in listed["alike"]
    assert listed["alike"].endswith("; unreachable: takes effect when it answers")
    assert "unreachable" in stack.ask("fence-zone", **fields)["alike"]


@pytest.fixture
def stack() -> Zoned:
    return Zoned()


class TestOperatorFence:
    @pytest.mark.parametrize("zone", ["eu-central-1b", "euc1-az1"], ids=["name", "zone id"])
    def test_an_operators_newest_fence_counts_and_one_in_the_past_lifts_it(self, stack: Zoned, zone: str) -> None:
        answer = stack.fence(zone, NOW + 90 * MINUTE)
        assert answer["ok"]
        assert "fenced until 2026-01-15T13:30:00Z" in answer["message"]
        assert stack.until("eu-central-1b") == NOW + 90 * MINUTE
        assert stack.queue.clusters == ["demo"], "it is checked now"
        for until in (NOW + 30 * MINUTE, NOW + 3 * LONGEST):
            stack.clock.at += MINUTE
            stack.fence(zone, until)
            assert stack.until("eu-central-1b") == until
        stack.clock.at += MINUTE
        assert "no longer fenced" in stack.fence(zone, NOW - MINUTE)["message"]
        assert not stack.impaired("eu-central-1b")
        assert len(stack.queue.requests) == 4

    @pytest.mark.parametrize(
        ("zone", "until"),
        [
            ("", NOW + MINUTE),
            (None, NOW + MINUTE),
            ("a b", NOW + MINUTE),
            ("../META", NOW + MINUTE),
            ("z" * 64, NOW + MINUTE),
            ("eu-central-1b", None),
            ("eu-central-1b", "tomorrow"),
            ("eu-central-1b", "2026-01-15T12:30:00"),
        ],
    )
    def test_an_invalid_fence_changes_nothing(self, stack: Zoned, zone: Any, until: Any) -> None:
        with pytest.raises((ConfigError, BadRequestError)):
            stack.fence(zone, until)
        assert stack.store.load("demo").zones == {}

    def test_an_unknown_zone_is_refused_with_the_nearest_name(self) -> None:
        groups = [group("eu-central-1a"), group("eu-central-1b"), group("nowhere", in_zone=None)]
        stack = Zoned(groups, zone_ids={})
        with pytest.raises(BadRequestError, match=r"'eu-centrl-1b': .* of demo .*, eu-central-1b; .* eu-central-1b\?$"):
            stack.fence("eu-centrl-1b", NOW + MINUTE)
        assert stack.store.load("demo").zones == {}
        with pytest.raises(BadRequestError, match=r"its zones are eu-central-1a, eu-central-1b$"):
            stack.fence("westeurope-1", NOW + MINUTE)

    def test_the_zones_of_node_groups_can_be_fenced(self) -> None:
        stack = Zoned([group("eu-central-1a")], zone_ids={})
        assert stack.fence("eu-central-1a", NOW + MINUTE)["message"].endswith("--zone eu-central-1a --for 0m")
        assert stack.impaired("eu-central-1a")
        stack = Zoned([group("a", in_zone=None)], zone_ids={})
        with pytest.raises(BadRequestError, match="none of its node groups says its zone"):
            stack.fence("eu-central-1b", NOW + MINUTE)

    def test_an_unreachable_cluster_can_be_fenced(self) -> None:
        stack = Zoned([group("eu-central-1a")], zone_ids={})
        stack.cluster.unreadable = ClusterUnavailableError("demo: no answer")
        message = stack.fence("eu-central-1z", NOW + MINUTE)["message"]
        assert message.endswith("It is unknown if it has such a zone: demo: no answer")
        assert stack.impaired("eu-central-1z")
        stack.cluster.unreadable = None
        stack.clock.at += MINUTE
        assert stack.fence("eu-central-1z", NOW)["ok"], "what was fenced once can be lifted"

    def test_a_fence_applies_to_one_cluster(self, stack: Zoned) -> None:
        register(stack.store, "other", region="eu-central-1", zone_ids=ZONE_IDS)
        stack.fence("eu-central-1b", NOW + 90 * MINUTE)
        assert stack.until("eu-central-1b", "other") is None


class TestZonalShift:
    def test_a_shift_fences_every_cluster_that_has_the_zone(self, stack: Zoned) -> None:
        register(stack.store, "two", region="eu-central-1", zone_ids=ZONE_IDS)
        register(stack.store, "elsewhere", region="us-east-1", zone_ids=ZONE_IDS)
        register(stack.store, "without", region="eu-central-1")
        outcome = stack.receive(shift())
        assert outcome.result is EventResult.RECORDED
        assert "demo, two" in outcome.message
        assert sorted(stack.queue.clusters) == ["demo", "two"]
        assert stack.until("eu-central-1b", "elsewhere") is None
        assert stack.store.load("without").zones == {}

    def test_a_shift_of_an_unknown_zone_is_ignored(self, stack: Zoned) -> None:
        outcome = stack.receive(shift("euc1-az9"))
        assert outcome.result is EventResult.IGNORED
        assert "zone_ids" in outcome.message
        assert stack.queue.clusters == []

    @pytest.mark.parametrize("until", [None, NOW + 9 * LONGEST])
    def test_a_shift_ends_after_a_day_at_most(self, stack: Zoned, until: datetime | None) -> None:
        stack.receive(shift(until=until))
        assert stack.until("eu-central-1b") == NOW + LONGEST

    def test_a_repeated_or_older_report_requests_no_check(self, stack: Zoned) -> None:
        stack.receive(shift(minute=5))
        assert stack.receive(shift(minute=5)).result is EventResult.KNOWN
        stack.receive(shift(minute=4, impaired=False))
        assert len(stack.queue.requests) == 1

    @pytest.mark.parametrize("turned", [False, True])
    def test_a_report_with_an_end_completes_one_without_in_any_order(self, stack: Zoned, turned: bool) -> None:
        reported, called = shift(), shift(minute=-0.1, until=NOW + 10 * MINUTE)
        for word in (called, reported) if turned else (reported, called):
            assert stack.receive(word).result is EventResult.RECORDED
        assert stack.until("eu-central-1b") == NOW + 10 * MINUTE
        assert stack.receive(called).result is stack.receive(reported).result is EventResult.KNOWN
        stack.clock.at += MINUTE
        stack.receive(shift(minute=0.5, impaired=False))
        assert not stack.impaired("eu-central-1b")
        assert stack.receive(called).result is EventResult.KNOWN
        assert not stack.impaired("eu-central-1b")

    def test_a_retried_event_requests_the_check_that_the_queue_refused(self, stack: Zoned) -> None:
        stack.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            stack.receive(shift())
        assert stack.impaired("eu-central-1b"), "stored, but not checked"
        stack.queue.broken = None
        stack.clock.at += MINUTE
        stack.receive(shift())
        assert stack.queue.clusters == ["demo"]

    @pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
    def test_the_newest_report_counts_in_any_order_of_arrival(self, order: tuple[int, ...]) -> None:
        words = [
            shift(minute=0),
            shift(minute=5, impaired=False),
            shift(minute=10, until=NOW + 60 * MINUTE),
            shift(minute=11, until=NOW + 30 * MINUTE),
        ]
        stack = Zoned()
        stack.clock.at = NOW + 12 * MINUTE
        for number in order:
            stack.receive(words[number])
        assert stack.until("eu-central-1b") == NOW + 30 * MINUTE

    @pytest.mark.parametrize("unreadable", ["record", "state"])
    def test_an_unreadable_cluster_does_not_keep_the_report_from_others(
        self, stack: Zoned, unreadable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        register(stack.store, "broken", region="eu-central-1", zone_ids=ZONE_IDS)
        load = stack.store.load

        def read(cluster: str) -> StoredCluster:
            if cluster == "broken":
                raise ConfigError(["group x of cluster broken: failures is -1"])
            return load(cluster)

        if unreadable == "record":
            stack.store.plant("broken", '{"id": "broken"}')
        else:
            monkeypatch.setattr(stack.store, "load", read)
        assert stack.receive(shift()).result is EventResult.RECORDED
        assert stack.queue.clusters == ["demo"]
        assert unreadable == "record" or "failures is -1" in caplog.text

    def test_a_concurrent_write_does_not_lose_the_report(self, stack: Zoned) -> None:
        stack.store.before_write.append(lambda _: stack.receive(shift(minute=-5, impaired=False)))  # type: ignore[arg-type, return-value]
        assert stack.receive(shift()).result is EventResult.RECORDED
        assert stack.impaired("eu-central-1b")

    def test_without_the_table_the_event_is_retried(self, stack: Zoned) -> None:
        stack.store.away_from = stack.store.calls
        with pytest.raises(StateUnavailableError):
            stack.receive(shift())

    def test_endless_conflicts_end_in_an_error_and_a_retry(self, stack: Zoned) -> None:

        def contended(key: str) -> None:
            stack.store.before_write.append(contended)
            raise StateConflictError("another writer was faster")

        stack.store.before_write.append(contended)
        with pytest.raises(StateConflictError):
            stack.receive(shift())


class TestReportsPerSource:
    """Reports are kept per source: the zone is fenced while any of them holds."""

    def test_the_end_of_a_shift_keeps_an_operators_fence(self, stack: Zoned) -> None:
        stack.fence("eu-central-1b", NOW + LONGEST)
        stack.receive(shift(minute=1))
        stack.clock.at += 30 * MINUTE
        assert stack.receive(shift(minute=30, impaired=False)).result is EventResult.RECORDED
        assert stack.until("eu-central-1b") == NOW + LONGEST

    def test_lifting_a_fence_keeps_a_shift(self, stack: Zoned) -> None:
        stack.receive(shift(by="ARC autoshift"))
        stack.clock.at += MINUTE
        stack.fence("eu-central-1b", NOW + 90 * MINUTE)
        stack.clock.at += MINUTE
        answer = stack.fence("eu-central-1b", NOW)
        assert stack.until("eu-central-1b") == NOW + LONGEST
        assert "still impaired, says ARC autoshift" in answer["message"]

    @pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
    def test_a_zone_is_fenced_while_any_source_reports_it_in_any_order(self, order: tuple[int, ...]) -> None:
        words = [
            shift(by="one"),
            shift(by="two", minute=1, until=NOW + 40 * MINUTE),
            shift(by="one", minute=5, impaired=False),
            shift(by="two", minute=6, until=NOW + 50 * MINUTE),
        ]
        stack = Zoned()
        stack.clock.at = NOW + 10 * MINUTE
        for number in order:
            stack.receive(words[number])
        assert stack.until("eu-central-1b") == NOW + 50 * MINUTE
        record = stack.store.load("demo").zones["eu-central-1b"]
        assert set(record.holding(stack.clock.at)) == {"two"}

    def test_status_names_the_sources_of_a_fence(self, stack: Zoned) -> None:
        stack.fence("eu-central-1b", NOW + 90 * MINUTE)
        stack.receive(shift(minute=1, by="ARC autoshift"))
        stack.clock.at += 10 * MINUTE
        stack.receive(shift(minute=10, by="ARC autoshift", impaired=False))
        zone = stack.ask("status")["zones"]["eu-central-1b"]
        assert (zone["impaired"], zone["impairedUntil"], zone["by"]) == (True, "2026-01-15T13:30:00Z", "operator")
        assert [(word["by"], word["holds"], word["statedAt"]) for word in zone["statements"]] == [
            ("ARC autoshift", False, "2026-01-15T12:10:00Z"),
            ("operator", True, "2026-01-15T12:00:00Z"),
        ]


class TestTwoItemsForOneZone:
    """A record that got its region later: earlier reports have another key."""

    def test_the_newest_counts(self) -> None:
        stack = Zoned(region="")
        stack.fence("eu-central-1b", NOW + 90 * MINUTE)
        register_again(stack.store, record(region="eu-central-1", zone_ids=ZONE_IDS))
        stack.clock.at += MINUTE
        stack.fence("eu-central-1b", NOW - MINUTE)
        assert not stack.impaired("eu-central-1b")
        stack.clock.at += MINUTE
        stack.fence("eu-central-1b", NOW + 30 * MINUTE)
        assert stack.until("eu-central-1b") == NOW + 30 * MINUTE

    def test_an_old_report_does_not_count_under_the_new_key(self) -> None:
        stack = Zoned(region="")
        stack.clock.at += 10 * MINUTE
        stack.receive(shift(minute=5, impaired=False, region=""))
        register_again(stack.store, record(region="eu-central-1", zone_ids=ZONE_IDS))
        assert stack.receive(shift(minute=0)).result is EventResult.KNOWN
        assert not stack.impaired("eu-central-1b")


class Fenced:
    """A cluster of healthy zones, of which an operator fences one with an upcoming or refused machine."""

    def __init__(self, owner: str, on_failure: str, *, refused: bool = False) -> None:
        self.scene = Scene(owner, incident=False, on_failure=on_failure)
        if refused:
            self.scene.cloud.exhaust_zone(BUSY)
        self.scene.scale(BUSY, 3)
        self.scene.controllers.step(self.scene.clock.at)
        self.scene.scaled = 0
        self.scene.overtaken.clear()
        self.requested = sum(self.scene.replicas().values())

    def fence(self, until: datetime) -> None:
        stack = Stack([group(BUSY)], store=self.scene.memory, clock=self.scene.clock)
        assert stack.ask("fence-zone", zone=BUSY, until=until.isoformat())["ok"]

    def planned(self) -> GroupPlan:
        found = self.scene.run().plan
        assert found is not None
        return next(planned for pool in found.pools for planned in pool.groups if planned.group.identity.zone == BUSY)


@pytest.mark.parametrize("owner", ["gardener", "cluster-api", "openshift", "cluster-class"])
class TestGroupsOfAFencedZone:
    @pytest.mark.parametrize("on_failure", ["release", "move"])
    def test_stuck_replicas_are_handled_as_after_a_failure(self, owner: str, on_failure: str) -> None:
        fenced = Fenced(owner, on_failure, refused=True)
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        planned = fenced.planned()
        assert planned.state is State.FENCED
        assert "is impaired" in sentences(planned.reasons)[0]
        assert planned.requested == planned.group.running == 2
        assert fenced.scene.bounds(BUSY)[1] == 2
        fenced.scene.troubled(Life())
        fenced.scene.settle()
        expected = fenced.requested if on_failure == "move" else fenced.requested - 1
        assert fenced.scene.wrong(expected) == []

    @pytest.mark.parametrize("on_failure", ["release", "move"])
    def test_machines_on_their_way_become_nodes(self, owner: str, on_failure: str) -> None:
        fenced = Fenced(owner, on_failure)
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        planned = fenced.planned()
        assert (planned.state, planned.requested) == (State.FENCED, 3)
        assert fenced.scene.bounds(BUSY)[1] == 3
        fenced.scene.troubled(Life())
        fenced.scene.settle()
        assert fenced.scene.wrong(fenced.requested) == []
        assert fenced.planned().group.running == 3

    @pytest.mark.parametrize("lifted", [False, True])
    def test_the_zone_is_healthy_when_the_fence_ends_or_is_lifted(self, owner: str, lifted: bool) -> None:
        fenced = Fenced(owner, "release")
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        fenced.planned()
        assert fenced.scene.bounds(BUSY)[1] == 3
        fenced.scene.clock.at += MINUTE if lifted else 11 * MINUTE
        if lifted:
            fenced.fence(fenced.scene.clock.at - MINUTE)
        assert fenced.planned().state is State.HEALTHY
        assert fenced.scene.bounds(BUSY)[1] > 3
        assert fenced.scene.bounds(IDLE)[1] > 2
