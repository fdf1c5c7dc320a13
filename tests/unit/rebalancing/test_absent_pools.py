"""Absent from one list ends nothing; absent from a second check a minute later is gone."""

from datetime import timedelta

import pytest

from tests.builders import MINUTE, zones
from tests.fakes import plenty
from tests.house import House

SECOND = timedelta(seconds=1)


def check_again(house: House, after: timedelta) -> None:
    house.clock.at += after
    house.rebalance("demo", "a test", plenty)


def empty_at(house: House, after: timedelta, left: int = 0) -> None:
    """One check whose list has only the first groups."""
    groups = house.cluster.groups
    house.cluster.groups = dict(list(groups.items())[:left])
    check_again(house, after)
    house.cluster.groups = groups


def fresh() -> House:
    return House(zones((3, 2, 2), bounds=[(0, 9)] * 3))


@pytest.fixture
def house() -> House:
    """A cluster whose bounds Evenkeel has written."""
    house = fresh()
    house.settle()
    return house


@pytest.mark.parametrize("fields", [{}, {"pool": "workers"}], ids=["cluster", "pool"])
class TestRestore:
    def is_over(self, house: House) -> bool:
        return not (house.control.restoring or house.control.restoring_pools)

    @pytest.mark.parametrize("left", [0, 2])
    def test_one_incomplete_list_does_not_end_it(self, house: House, fields: dict[str, str], left: int) -> None:
        house.ask("restore", **fields)
        empty_at(house, MINUTE, left)
        assert not self.is_over(house)
        house.runs(2)
        assert self.is_over(house)
        assert house.bounds() == [(0, 9)] * 3

    def test_it_ends_when_a_second_check_finds_nothing_either(self, house: House, fields: dict[str, str]) -> None:
        house.ask("restore", **fields)
        house.cluster.groups = {}
        check_again(house, MINUTE)
        check_again(house, 59 * SECOND)
        assert not self.is_over(house)
        check_again(house, SECOND)
        assert self.is_over(house)
        assert "adopted" not in str(house.ask("unregister")["message"])

    def test_an_empty_list_at_the_first_check_does_not_end_it(self, fields: dict[str, str]) -> None:
        house = fresh()
        house.ask("restore", **fields)
        empty_at(house, MINUTE)
        assert not self.is_over(house)
        check_again(house, MINUTE)
        assert self.is_over(house)


class TestRequests:
    def request(self, house: House, **fields: object) -> None:
        house.ask("scale-up", nodes=2, **{"pool": "workers", **fields})

    def answer(self, house: House) -> str:
        (record,) = house.store.load("demo").scale_requests.values()
        return str(record.result) if record.done else ""

    @pytest.mark.parametrize("left", [0, 1, 2])
    def test_one_incomplete_list_neither_refuses_nor_shortens_one(self, house: House, left: int) -> None:
        self.request(house)
        empty_at(house, MINUTE, left)
        assert self.answer(house) == ""
        house.runs(2)
        assert self.answer(house) == "2 nodes in pool cluster-api/default/workers"
        assert sum(group.requested for group in house.cluster.groups.values()) == 9

    @pytest.mark.parametrize("is_gone", [True, False])
    @pytest.mark.parametrize("age", [30 * SECOND, MINUTE, 30 * MINUTE])
    def test_a_second_empty_list_a_minute_later_refuses_it(self, age: timedelta, is_gone: bool) -> None:
        house = fresh()
        self.request(house)
        empty_at(house, age)
        empty_at(house, 59 * SECOND)
        assert self.answer(house) == ""
        if is_gone:
            empty_at(house, SECOND)
            assert self.answer(house).startswith("refused: ")
        else:
            house.runs(2)
            assert self.answer(house) == "2 nodes in pool cluster-api/default/workers"


def test_a_zone_can_be_fenced_while_a_list_is_empty(house: House) -> None:
    house.cluster.groups = {}
    assert "It is unknown if it has such a zone" in house.ask("fence-zone", zone="a", **{"for": "1h"})["message"]


def test_one_empty_list_does_not_end_a_requested_pass(house: House) -> None:
    versions = house.store.load("demo").versions
    asked = house.control.model_copy(update={"convergence_requested": {"workers": house.clock.at}})
    house.store.save_record(house.record, asked, versions)
    house.cluster.groups = {}
    check_again(house, MINUTE)
    assert set(house.control.convergence_requested) == {"workers"}


def test_an_incident_of_an_absent_pool_stays_open(house: House) -> None:
    for zone in "abc":
        house.fail(zone)
    for key, group in list(house.cluster.groups.items()):
        house.cluster.change(key, requested=group.requested + 1, machines=())
    check_again(house, SECOND)
    before = house.store.load("demo").cluster_health
    assert len(before.incidents) == 1
    empty_at(house, MINUTE)
    assert house.store.load("demo").cluster_health.incidents == before.incidents
    check_again(house, SECOND)
    kinds = [kind for kind in house.bus.types if kind.startswith("Incident") or kind == "Node Group Recovered"]
    assert kinds == ["Incident Opened"]


def test_a_chain_of_checks_of_an_absent_pool_ends(house: House) -> None:
    house.cluster.groups = {}
    for _ in range(4):
        check_again(house, MINUTE)
    house.looks()
    house.carry_out()
    asked = len(house.queue.second_checks)
    for _ in range(5):
        house.looks()
        assert not house.queue.requests
    assert len(house.queue.second_checks) == asked


class TestTwoIncompleteLists:
    """Two lists confirm each other only if they lack the same, soon after each other, and no good one lies between."""

    def short_at(self, house: House, after: timedelta, left: int) -> None:
        groups = house.cluster.groups
        house.cluster.groups = dict(list(groups.items())[:left])
        check_again(house, after)
        house.cluster.groups = {**groups, **house.cluster.groups}

    def sum_of_maxima(self, house: House) -> int:
        return sum(bounds[1] for bounds in house.bounds())

    @pytest.mark.parametrize("left", [1, 2])
    def test_eight_minutes_apart_they_confirm_nothing(self, house: House, left: int) -> None:
        before = self.sum_of_maxima(house)
        self.short_at(house, MINUTE, left)
        self.short_at(house, 8 * MINUTE, left)
        assert self.sum_of_maxima(house) == before

    @pytest.mark.parametrize("left", [1, 2])
    def test_a_good_list_between_them_ends_the_doubt(self, house: House, left: int) -> None:
        before = self.sum_of_maxima(house)
        self.short_at(house, MINUTE, left)
        check_again(house, 30 * SECOND)
        self.short_at(house, 30 * SECOND, left)
        assert self.sum_of_maxima(house) == before

    def test_lists_that_lack_other_groups_confirm_nothing(self, house: House) -> None:
        before = self.sum_of_maxima(house)
        self.short_at(house, MINUTE, 2)
        self.short_at(house, MINUTE, 1)
        assert self.sum_of_maxima(house) == before

    def test_a_minute_apart_they_confirm_each_other(self, house: House) -> None:
        before = self.sum_of_maxima(house)
        self.short_at(house, MINUTE, 2)
        self.short_at(house, MINUTE, 2)
        assert self.sum_of_maxima(house) > before, "the groups that are left get what the lost one had"

    def test_a_good_list_ends_the_doubt_of_a_restore(self, house: House) -> None:
        house.ask("restore")
        doubted = house.control.model_copy(update={"nothing_since": house.clock.at})
        house.store.save_record(house.record, doubted, house.store.load("demo").versions)
        check_again(house, SECOND)
        assert house.control.restoring
        assert house.control.nothing_since is None
