"""A whole zone is fenced until a moment, or well again: by an operator, or by AWS. The newest word counts."""

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
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.texts.english import sentences
from evenkeel.validation import ConfigError
from tests.builders import MINUTE, group
from tests.crashing import BUSY, IDLE, Life, Scene
from tests.fakes import NOW, record, register, register_again
from tests.house import House

ZONE_IDS = {"euc1-az1": "eu-central-1b", "euc1-az2": "eu-central-1c"}


def shift(zone: str = "euc1-az1", *, impaired: bool = True, minute: float = 0, **fields: Any) -> ZoneShift:
    """A word about a zone, said so many minutes after NOW."""
    given = {"region": "eu-central-1", "until": None, "by": "arc", "id": f"{zone}-{minute}-{impaired}"}
    return ZoneShift(**{**given, "zone": zone, "impaired": impaired, "at": NOW + minute * MINUTE, **fields})


class Zoned(House):
    """A registered cluster that knows the ids of its zones."""

    def __init__(self, groups: Sequence[NodeGroup] = (), **fields: Any) -> None:
        super().__init__(groups, **{"region": "eu-central-1", "zone_ids": ZONE_IDS, "pools": [], **fields})

    def hear(self, said: ZoneShift) -> EventOutcome:
        return self.record_zone_shift(said)

    def fence(self, zone: Any, until: Any, cluster: str = "demo") -> dict[str, Any]:
        until = until.isoformat() if isinstance(until, datetime) else until
        return self.ask("fence-zone", cluster, zone=zone, until=until)

    def until(self, zone: str, cluster: str = "demo") -> datetime | None:
        return self.store.load(cluster).state.zones.get(zone)

    def impaired(self, zone: str) -> bool:
        until = self.until(zone)
        return until is not None and self.clock.at < until


@pytest.fixture
def house() -> Zoned:
    return Zoned()


class TestWhatIsSaid:
    def test_an_operators_fence_ends_at_the_moment_that_was_named(self, house: Zoned) -> None:
        answer = house.fence("eu-central-1b", NOW + 90 * MINUTE)
        assert answer["ok"]
        assert "fenced until 2026-01-15T13:30:00Z" in answer["message"]
        assert house.until("eu-central-1b") == NOW + 90 * MINUTE
        assert house.queue.clusters == ["demo"], "it is looked at now"

    def test_an_operator_may_fence_for_longer_than_a_day(self, house: Zoned) -> None:
        house.fence("eu-central-1b", NOW + 3 * LONGEST)
        assert house.until("eu-central-1b") == NOW + 3 * LONGEST

    def test_asked_again_with_another_moment_the_new_one_counts(self, house: Zoned) -> None:
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        house.clock.at += MINUTE
        house.fence("eu-central-1b", NOW + 30 * MINUTE)
        assert house.until("eu-central-1b") == NOW + 30 * MINUTE

    def test_asked_again_with_a_moment_that_is_over_it_is_lifted_at_once(self, house: Zoned) -> None:
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        house.clock.at += MINUTE
        answer = house.fence("eu-central-1b", NOW - MINUTE)
        assert "no longer fenced" in answer["message"]
        assert not house.impaired("eu-central-1b")
        assert len(house.queue.requests) == 2, "looked at again, so that it comes home now"

    def test_a_zones_id_is_its_name_where_the_record_knows_it(self, house: Zoned) -> None:
        house.fence("euc1-az2", NOW + 90 * MINUTE)
        assert house.impaired("eu-central-1c")

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
    def test_a_bad_word_changes_nothing(self, house: Zoned, zone: Any, until: Any) -> None:
        with pytest.raises((ConfigError, BadRequestError)):
            house.fence(zone, until)
        assert house.store.load("demo").zones == {}

    def test_a_zone_that_the_cluster_does_not_have_is_refused_and_the_nearest_named(self) -> None:
        groups = [group("eu-central-1a"), group("eu-central-1b"), group("nowhere", in_zone=None)]
        house = Zoned(groups, zone_ids={})
        with pytest.raises(BadRequestError, match=r"'eu-centrl-1b': .* of demo .*, eu-central-1b; .* eu-central-1b\?$"):
            house.fence("eu-centrl-1b", NOW + MINUTE)
        assert house.store.load("demo").zones == {}
        with pytest.raises(BadRequestError, match=r"its zones are eu-central-1a, eu-central-1b$"):
            house.fence("westeurope-1", NOW + MINUTE)

    def test_a_zone_that_a_node_group_is_in_is_fenced_without_further_words(self) -> None:
        house = Zoned([group("eu-central-1a")], zone_ids={})
        assert house.fence("eu-central-1a", NOW + MINUTE)["message"].endswith("ask again for 0m")
        assert house.impaired("eu-central-1a")

    def test_a_cluster_whose_groups_say_no_zone_has_none_to_fence(self) -> None:
        house = Zoned([group("a", in_zone=None)], zone_ids={})
        with pytest.raises(BadRequestError, match="none of its node groups says its zone"):
            house.fence("eu-central-1b", NOW + MINUTE)

    def test_a_cluster_that_cannot_be_looked_at_is_fenced_all_the_same_and_that_is_said(self) -> None:
        house = Zoned([group("eu-central-1a")], zone_ids={})
        house.cluster.unreadable = ClusterUnavailableError("demo: no answer")
        assert house.fence("eu-central-1z", NOW + MINUTE)["message"].endswith("could not be seen: demo: no answer")
        assert house.impaired("eu-central-1z")
        house.cluster.unreadable = None
        house.clock.at += MINUTE
        assert house.fence("eu-central-1z", NOW)["ok"], "what was fenced once can be lifted"

    def test_the_fence_of_one_cluster_is_no_other_clusters(self, house: Zoned) -> None:
        register(house.store, "other", region="eu-central-1", zone_ids=ZONE_IDS)
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        assert house.until("eu-central-1b", "other") is None


class TestWhatAwsSays:
    def test_every_cluster_that_has_the_zone_is_told_and_no_other(self, house: Zoned) -> None:
        register(house.store, "two", region="eu-central-1", zone_ids=ZONE_IDS)
        register(house.store, "elsewhere", region="us-east-1", zone_ids=ZONE_IDS)
        register(house.store, "without", region="eu-central-1")
        heard = house.hear(shift())
        assert heard.result is EventResult.RECORDED
        assert "demo, two" in heard.message
        assert sorted(house.queue.clusters) == ["demo", "two"]
        assert house.until("eu-central-1b", "elsewhere") is None
        assert house.store.load("without").zones == {}

    def test_a_zone_that_nobody_has_is_explained_and_not_retried(self, house: Zoned) -> None:
        heard = house.hear(shift("euc1-az9"))
        assert heard.result is EventResult.IGNORED
        assert "zone_ids" in heard.message
        assert house.queue.clusters == []

    def test_an_end_that_gets_lost_does_not_fence_a_zone_for_ever(self, house: Zoned) -> None:
        house.hear(shift())
        assert house.until("eu-central-1b") == NOW + LONGEST

    def test_its_end_is_kept_and_no_end_is_further_than_a_day(self, house: Zoned) -> None:
        house.hear(shift(until=NOW + 10 * MINUTE))
        assert house.until("eu-central-1b") == NOW + 10 * MINUTE
        house.hear(shift(minute=1, until=NOW + 9 * LONGEST))
        assert house.until("eu-central-1b") == NOW + MINUTE + LONGEST

    @pytest.mark.parametrize("turned", [False, True])
    def test_who_knows_the_end_of_a_shift_completes_who_does_not_in_any_order(self, house: Zoned, turned: bool) -> None:
        told, called = shift(), shift(minute=-0.1, until=NOW + 10 * MINUTE)
        for word in (called, told) if turned else (told, called):
            assert house.hear(word).result is EventResult.RECORDED
        assert house.until("eu-central-1b") == NOW + 10 * MINUTE
        assert house.hear(called).result is house.hear(told).result is EventResult.KNOWN
        house.clock.at += MINUTE
        house.hear(shift(minute=0.5, impaired=False))
        assert not house.impaired("eu-central-1b")
        assert house.hear(called).result is EventResult.KNOWN
        assert not house.impaired("eu-central-1b")

    def test_a_shift_that_is_prolonged_has_the_later_end(self, house: Zoned) -> None:
        house.hear(shift(until=NOW + 10 * MINUTE))
        house.hear(shift(minute=5, until=NOW + 60 * MINUTE))
        assert house.until("eu-central-1b") == NOW + 60 * MINUTE

    def test_completed_lifts_it(self, house: Zoned) -> None:
        house.hear(shift())
        house.clock.at += 20 * MINUTE
        house.hear(shift(minute=20, impaired=False))
        assert not house.impaired("eu-central-1b")

    def test_a_repeat_is_known(self, house: Zoned) -> None:
        house.hear(shift())
        assert house.hear(shift()).result is EventResult.KNOWN
        assert len(house.queue.requests) == 1

    def test_a_look_that_could_not_be_asked_for_is_asked_for_when_the_event_is_tried_again(self, house: Zoned) -> None:
        house.queue.broken = QueueUnavailableError("away")
        with pytest.raises(QueueUnavailableError):
            house.hear(shift())
        assert house.impaired("eu-central-1b"), "remembered, but nobody looks"
        house.queue.broken = None
        house.clock.at += MINUTE
        house.hear(shift())
        assert house.queue.clusters == ["demo"]

    def test_an_older_word_that_comes_again_asks_for_no_look(self, house: Zoned) -> None:
        house.hear(shift(minute=5))
        house.queue.requests.clear()
        house.hear(shift(minute=4, impaired=False))
        assert house.queue.clusters == []

    @pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
    def test_whatever_order_the_words_arrive_in_the_newest_counts(self, order: tuple[int, ...]) -> None:
        words = [
            shift(minute=0),
            shift(minute=5, impaired=False),
            shift(minute=10, until=NOW + 60 * MINUTE),
            shift(minute=11, until=NOW + 30 * MINUTE),
        ]
        house = Zoned()
        house.clock.at = NOW + 12 * MINUTE
        for number in order:
            house.hear(words[number])
        assert house.until("eu-central-1b") == NOW + 30 * MINUTE

    def test_a_record_that_cannot_be_read_keeps_nobody_else_from_hearing_it(self, house: Zoned) -> None:
        house.store.plant("broken", '{"id": "broken"}')
        assert house.hear(shift()).result is EventResult.RECORDED
        assert house.queue.clusters == ["demo"]

    def test_a_state_that_cannot_be_read_keeps_nobody_else_from_hearing_it(
        self, house: Zoned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        register(house.store, "broken", region="eu-central-1", zone_ids=ZONE_IDS)
        load = house.store.load

        def read(cluster: str) -> StoredCluster:
            if cluster == "broken":
                raise ConfigError(["group x of cluster broken: failures is -1"])
            return load(cluster)

        monkeypatch.setattr(house.store, "load", read)
        assert house.hear(shift()).result is EventResult.RECORDED
        assert house.queue.clusters == ["demo"]
        assert "failures is -1" in caplog.text

    def test_a_write_in_between_does_not_lose_the_word(self, house: Zoned) -> None:

        def another(key: str) -> None:
            house.hear(shift(minute=-5, impaired=False))

        house.store.before_write.append(another)
        assert house.hear(shift()).result is EventResult.RECORDED
        assert house.impaired("eu-central-1b")

    def test_without_the_table_the_event_comes_back(self, house: Zoned) -> None:
        house.store.away_from = house.store.calls
        with pytest.raises(StateUnavailableError):
            house.hear(shift())

    def test_endless_conflicts_end_in_an_error_so_that_the_event_comes_back(self, house: Zoned) -> None:

        def contended(key: str) -> None:
            house.store.before_write.append(contended)
            raise StateConflictError("somebody was faster")

        house.store.before_write.append(contended)
        with pytest.raises(StateConflictError):
            house.hear(shift())


class TestWhoSaysWhat:
    """Words are kept per source: the zone is fenced while any of them holds."""

    def test_a_shift_that_ends_leaves_an_operators_fence_as_it_is(self, house: Zoned) -> None:
        house.fence("eu-central-1b", NOW + LONGEST)
        house.hear(shift(minute=1))
        house.clock.at += 30 * MINUTE
        assert house.hear(shift(minute=30, impaired=False)).result is EventResult.RECORDED
        assert house.until("eu-central-1b") == NOW + LONGEST

    def test_an_operator_who_lifts_a_fence_leaves_a_shift_as_it_is_and_is_told(self, house: Zoned) -> None:
        house.hear(shift(by="ARC autoshift"))
        house.clock.at += MINUTE
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        house.clock.at += MINUTE
        answer = house.fence("eu-central-1b", NOW)
        assert house.until("eu-central-1b") == NOW + LONGEST
        assert "still impaired, says ARC autoshift" in answer["message"]

    def test_an_autoshift_and_a_zonal_shift_are_two_words(self, house: Zoned) -> None:
        house.hear(shift(by="ARC autoshift"))
        house.hear(shift(minute=1, by="ARC zonal shift", until=NOW + 20 * MINUTE))
        house.hear(shift(minute=5, by="ARC autoshift", impaired=False))
        assert house.until("eu-central-1b") == NOW + 20 * MINUTE
        house.hear(shift(minute=6, by="ARC zonal shift", impaired=False))
        house.clock.at += 7 * MINUTE
        assert not house.impaired("eu-central-1b")

    @pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
    def test_whatever_order_two_sources_words_arrive_in_the_zone_is_fenced_while_any_holds(
        self, order: tuple[int, ...]
    ) -> None:
        words = [
            shift(by="one"),
            shift(by="two", minute=1, until=NOW + 40 * MINUTE),
            shift(by="one", minute=5, impaired=False),
            shift(by="two", minute=6, until=NOW + 50 * MINUTE),
        ]
        house = Zoned()
        house.clock.at = NOW + 10 * MINUTE
        for number in order:
            house.hear(words[number])
        assert house.until("eu-central-1b") == NOW + 50 * MINUTE
        record = house.store.load("demo").zones["eu-central-1b"]
        assert set(record.holding(house.clock.at)) == {"two"}

    def test_status_says_who_fences_a_zone_and_who_did(self, house: Zoned) -> None:
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        house.hear(shift(minute=1, by="ARC autoshift"))
        house.clock.at += 10 * MINUTE
        house.hear(shift(minute=10, by="ARC autoshift", impaired=False))
        zone = house.ask("status")["zones"]["eu-central-1b"]
        assert (zone["impaired"], zone["impairedUntil"], zone["by"]) == (True, "2026-01-15T13:30:00Z", "operator")
        assert [(word["by"], word["holds"], word["saidAt"]) for word in zone["words"]] == [
            ("ARC autoshift", False, "2026-01-15T12:10:00Z"),
            ("operator", True, "2026-01-15T12:00:00Z"),
        ]


class TestTwoItemsForOneZone:
    """A record that has got its region since: what was said before stands under another key."""

    def test_the_newest_counts(self) -> None:
        house = Zoned(region="")
        house.fence("eu-central-1b", NOW + 90 * MINUTE)
        register_again(house.store, record(region="eu-central-1", zone_ids=ZONE_IDS))
        house.clock.at += MINUTE
        house.fence("eu-central-1b", NOW - MINUTE)
        assert not house.impaired("eu-central-1b")
        house.clock.at += MINUTE
        house.fence("eu-central-1b", NOW + 30 * MINUTE)
        assert house.until("eu-central-1b") == NOW + 30 * MINUTE

    def test_an_old_word_does_not_count_under_the_new_key_either(self) -> None:
        house = Zoned(region="")
        house.clock.at += 10 * MINUTE
        house.hear(shift(minute=5, impaired=False, region=""))
        register_again(house.store, record(region="eu-central-1", zone_ids=ZONE_IDS))
        assert house.hear(shift(minute=0)).result is EventResult.KNOWN
        assert not house.impaired("eu-central-1b")


class Fenced:
    """A cluster whose zones are all well; one has a machine under way, or a refused one, when it is fenced by hand."""

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
        house = House([group(BUSY)], store=self.scene.memory, clock=self.scene.clock)
        assert house.ask("fence-zone", zone=BUSY, until=until.isoformat())["ok"]

    def planned(self) -> GroupPlan:
        """The fenced zone's group, after a run."""
        found = self.scene.run().plan
        assert found is not None
        return next(planned for pool in found.pools for planned in pool.groups if planned.group.zone == BUSY)


@pytest.mark.parametrize("owner", ["gardener", "cluster-api", "openshift", "cluster-class"])
class TestAFencedZonesGroups:
    @pytest.mark.parametrize("on_failure", ["release", "move"])
    def test_what_is_stuck_there_goes_the_way_of_any_failure_and_what_runs_there_stays(
        self, owner: str, on_failure: str
    ) -> None:
        fenced = Fenced(owner, on_failure, refused=True)
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        planned = fenced.planned()
        assert planned.state is State.FENCED
        assert "is impaired)" in sentences(planned.reasons)[0]
        assert planned.requested == planned.group.running == 2
        assert fenced.scene.bounds(BUSY)[1] == 2
        fenced.scene.troubled(Life())
        fenced.scene.settle()
        expected = fenced.requested if on_failure == "move" else fenced.requested - 1
        assert fenced.scene.wrong(expected) == []

    @pytest.mark.parametrize("on_failure", ["release", "move"])
    def test_what_is_on_its_way_there_stays_and_becomes_a_node(self, owner: str, on_failure: str) -> None:
        fenced = Fenced(owner, on_failure)
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        planned = fenced.planned()
        assert (planned.state, planned.requested) == (State.FENCED, 3)
        assert fenced.scene.bounds(BUSY)[1] == 3
        fenced.scene.troubled(Life())
        fenced.scene.settle()
        assert fenced.scene.wrong(fenced.requested) == []
        assert fenced.planned().group.running == 3

    def test_it_comes_home_when_the_end_has_come(self, owner: str) -> None:
        fenced = Fenced(owner, "release")
        fenced.fence(fenced.scene.clock.at + 10 * MINUTE)
        fenced.planned()
        assert fenced.scene.bounds(BUSY)[1] == 3
        fenced.scene.clock.at += 11 * MINUTE
        assert fenced.planned().state is State.HEALTHY
        assert fenced.scene.bounds(BUSY)[1] > 3
        assert fenced.scene.bounds(IDLE)[1] > 2

    def test_it_comes_home_at_once_when_it_is_lifted(self, owner: str) -> None:
        fenced = Fenced(owner, "release")
        fenced.fence(fenced.scene.clock.at + 600 * MINUTE)
        fenced.planned()
        fenced.scene.clock.at += MINUTE
        fenced.fence(fenced.scene.clock.at - MINUTE)
        assert fenced.planned().state is State.HEALTHY
        assert fenced.scene.bounds(BUSY)[1] > 2
