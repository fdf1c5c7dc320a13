"""What is absent from one list ends nothing; what a second check a minute later misses as well is gone."""

from datetime import timedelta

import pytest

from tests.builders import MINUTE, zones
from tests.fakes import plenty
from tests.house import House

SECOND = timedelta(seconds=1)


def check_again(house: House, after: timedelta) -> None:
    house.clock.at += after
    house.rebalance("demo", "a test", plenty)


@pytest.fixture
def house() -> House:
    """A cluster whose bounds are ours."""
    house = House(zones((3, 2, 2), bounds=[(0, 9)] * 3))
    house.settle()
    return house


@pytest.mark.parametrize("fields", [{}, {"pool": "workers"}], ids=["cluster", "pool"])
class TestRestore:
    def is_over(self, house: House) -> bool:
        return not (house.control.restoring or house.control.restoring_pools)

    def test_one_empty_list_does_not_end_it(self, house: House, fields: dict[str, str]) -> None:
        house.ask("restore", **fields)
        groups, house.cluster.groups = house.cluster.groups, {}
        check_again(house, MINUTE)
        assert not self.is_over(house)
        house.cluster.groups = groups
        house.runs(2)
        assert self.is_over(house)
        assert house.bounds() == [(0, 9)] * 3

    def test_one_list_without_one_member_does_not_end_it(self, house: House, fields: dict[str, str]) -> None:
        house.ask("restore", **fields)
        key, group = house.cluster.groups.popitem()
        check_again(house, MINUTE)
        assert not self.is_over(house)
        house.cluster.groups[key] = group
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

    def test_an_empty_list_at_the_very_first_check_does_not_end_it(self, fields: dict[str, str]) -> None:
        house = House(zones((3, 2, 2), bounds=[(0, 9)] * 3))
        house.ask("restore", **fields)
        groups, house.cluster.groups = house.cluster.groups, {}
        check_again(house, MINUTE)
        assert not self.is_over(house)
        house.cluster.groups = groups
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
        groups = dict(house.cluster.groups)
        house.cluster.groups = dict(list(groups.items())[:left])
        check_again(house, MINUTE)
        assert self.answer(house) == ""
        house.cluster.groups = groups
        house.runs(2)
        assert self.answer(house) == "2 nodes in pool cluster-api/default/workers"
        assert sum(group.requested for group in house.cluster.groups.values()) == 9

    def test_for_a_pool_that_a_second_check_misses_as_well_it_is_refused(self, house: House) -> None:
        self.request(house)
        house.cluster.groups = {}
        check_again(house, MINUTE)
        check_again(house, MINUTE)
        assert self.answer(house).startswith("refused: ")

    @pytest.mark.parametrize("age", [30 * SECOND, MINUTE, 30 * MINUTE])
    def test_an_empty_list_at_the_very_first_check_does_not_refuse_it(self, age: timedelta) -> None:
        house = House(zones((3, 2, 2), bounds=[(0, 9)] * 3))
        self.request(house)
        groups, house.cluster.groups = house.cluster.groups, {}
        check_again(house, age)
        assert self.answer(house) == ""
        check_again(house, 59 * SECOND)
        assert self.answer(house) == ""
        house.cluster.groups = groups
        house.runs(2)
        assert self.answer(house) == "2 nodes in pool cluster-api/default/workers"

    @pytest.mark.parametrize("age", [30 * SECOND, MINUTE, 30 * MINUTE])
    def test_a_second_empty_list_a_minute_later_refuses_it(self, age: timedelta) -> None:
        house = House(zones((3, 2, 2), bounds=[(0, 9)] * 3))
        self.request(house)
        house.cluster.groups = {}
        check_again(house, age)
        check_again(house, 59 * SECOND)
        assert self.answer(house) == ""
        check_again(house, SECOND)
        assert self.answer(house).startswith("refused: ")


def test_a_zone_can_be_fenced_while_a_list_is_empty(house: House) -> None:
    house.cluster.groups = {}
    assert "could not be seen" in house.ask("fence-zone", zone="a", **{"for": "1h"})["message"]


def test_a_pass_of_converge_is_not_forgotten_by_one_empty_list(house: House) -> None:
    versions = house.store.load("demo").versions
    asked = house.control.model_copy(update={"convergence_requested": {"workers": house.clock.at}})
    house.store.save_record(house.record, asked, versions)
    house.cluster.groups = {}
    check_again(house, MINUTE)
    assert set(house.control.convergence_requested) == {"workers"}


def test_an_incident_of_an_absent_pool_stays_open(house: House) -> None:
    house.fail("a")
    house.fail("b")
    house.fail("c")
    for key in list(house.cluster.groups):
        house.cluster.change(key, requested=house.cluster.groups[key].requested + 1, machines=())
    check_again(house, SECOND)
    before = house.store.load("demo").cluster_health
    assert len(before.incidents) == 1
    groups, house.cluster.groups = house.cluster.groups, {}
    check_again(house, MINUTE)
    assert house.store.load("demo").cluster_health.incidents == before.incidents
    house.cluster.groups = groups
    check_again(house, SECOND)
    told = [kind for kind, _ in house.bus.published if kind in ("Incident Opened", "Incident Closed")]
    assert told == ["Incident Opened"]
    kinds = [kind for kind, _ in house.bus.published]
    assert "Node Group Recovered" not in kinds


def test_a_chain_of_checks_of_an_absent_pool_ends(house: House) -> None:
    house.cluster.groups = {}
    for _ in range(4):
        check_again(house, MINUTE)
    house.looks()
    house.carry_out()
    asked = len(house.queue.second_looks)
    for _ in range(5):
        house.looks()
        assert not house.queue.requests
    assert len(house.queue.second_looks) == asked
