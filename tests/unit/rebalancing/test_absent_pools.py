"""A pool that one list lacks stays; one that a second check a minute later also lacks is gone."""

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import MINUTE, zones
from tests.fakes import plenty
from tests.stack import Stack

SECOND = timedelta(seconds=1)


def check_again(stack: Stack, after: timedelta) -> None:
    stack.clock.at += after
    stack.rebalance("demo", "a test", plenty)


def empty_at(stack: Stack, after: timedelta, left: int = 0) -> None:
    """Check with a list that has only the first groups."""
    groups = stack.cluster.groups
    stack.cluster.groups = dict(list(groups.items())[:left])
    check_again(stack, after)
    stack.cluster.groups = groups


def fresh() -> Stack:
    return Stack(zones((3, 2, 2), bounds=[(0, 9)] * 3))


@pytest.fixture
def stack() -> Stack:
    """Return a cluster whose bounds Evenkeel has written."""
    stack = fresh()
    stack.settle()
    return stack


@pytest.mark.parametrize("fields", [{}, {"pool": "workers"}], ids=["cluster", "pool"])
class TestRestore:
    def is_over(self, stack: Stack) -> bool:
        return not (stack.control.restoring or stack.control.restoring_pools)

    @pytest.mark.parametrize("left", [0, 2])
    def test_one_incomplete_list_does_not_end_it(self, stack: Stack, fields: dict[str, str], left: int) -> None:
        stack.ask("restore", **fields)
        empty_at(stack, MINUTE, left)
        assert not self.is_over(stack)
        stack.runs(2)
        assert self.is_over(stack)
        assert stack.bounds() == [(0, 9)] * 3

    def test_it_ends_when_a_second_check_finds_nothing_either(self, stack: Stack, fields: dict[str, str]) -> None:
        stack.ask("restore", **fields)
        stack.cluster.groups = {}
        check_again(stack, MINUTE)
        check_again(stack, 59 * SECOND)
        assert not self.is_over(stack)
        check_again(stack, SECOND)
        assert self.is_over(stack)
        assert "adopted" not in str(stack.ask("unregister")["message"])

    def test_an_empty_list_at_the_first_check_does_not_end_it(self, fields: dict[str, str]) -> None:
        stack = fresh()
        stack.ask("restore", **fields)
        empty_at(stack, MINUTE)
        assert not self.is_over(stack)
        check_again(stack, MINUTE)
        assert self.is_over(stack)


class TestRequests:
    def request(self, stack: Stack, **fields: object) -> None:
        stack.ask("scale-up", nodes=2, **{"pool": "workers", **fields})

    def answer(self, stack: Stack) -> str:
        (record,) = stack.store.load("demo").scale_requests.values()
        return str(record.result) if record.done else ""

    @pytest.mark.parametrize("left", [0, 1, 2])
    def test_one_incomplete_list_neither_refuses_nor_shortens_one(self, stack: Stack, left: int) -> None:
        self.request(stack)
        empty_at(stack, MINUTE, left)
        assert self.answer(stack) == ""
        stack.runs(2)
        assert self.answer(stack) == "2 nodes in pool cluster-api/default/workers"
        assert sum(group.requested for group in stack.cluster.groups.values()) == 9

    @pytest.mark.parametrize("is_gone", [True, False])
    @pytest.mark.parametrize("age", [30 * SECOND, MINUTE, 30 * MINUTE])
    def test_a_second_empty_list_a_minute_later_refuses_it(self, age: timedelta, is_gone: bool) -> None:
        stack = fresh()
        self.request(stack)
        empty_at(stack, age)
        empty_at(stack, 59 * SECOND)
        assert self.answer(stack) == ""
        if is_gone:
            empty_at(stack, SECOND)
            assert self.answer(stack).startswith("refused: ")
        else:
            stack.runs(2)
            assert self.answer(stack) == "2 nodes in pool cluster-api/default/workers"


def test_a_zone_can_be_fenced_while_a_list_is_empty(stack: Stack) -> None:
    stack.cluster.groups = {}
    assert "It is unknown if it has such a zone" in stack.ask("fence-zone", zone="a", **{"for": "1h"})["message"]


def test_one_empty_list_does_not_end_a_requested_pass(stack: Stack) -> None:
    versions = stack.store.load("demo").versions
    asked = stack.control.model_copy(update={"convergence_requested": {"workers": stack.clock.at}})
    stack.store.save_record(stack.record, asked, versions)
    stack.cluster.groups = {}
    check_again(stack, MINUTE)
    assert set(stack.control.convergence_requested) == {"workers"}


def test_an_incident_of_an_absent_pool_stays_open(stack: Stack) -> None:
    for zone in "abc":
        stack.fail(zone)
    for key, group in list(stack.cluster.groups.items()):
        stack.cluster.change(key, requested=group.requested + 1, machines=())
    check_again(stack, SECOND)
    before = stack.store.load("demo").cluster_health
    assert len(before.incidents) == 1
    empty_at(stack, MINUTE)
    assert stack.store.load("demo").cluster_health.incidents == before.incidents
    check_again(stack, SECOND)
    kinds = [kind for kind in stack.bus.types if kind.startswith("Incident") or kind == "Node Group Recovered"]
    assert kinds == ["Incident Opened"]


def test_a_chain_of_checks_of_an_absent_pool_ends(stack: Stack) -> None:
    stack.cluster.groups = {}
    for _ in range(4):
        check_again(stack, MINUTE)
    stack.checks()
    stack.carry_out()
    asked = len(stack.queue.second_checks)
    for _ in range(5):
        stack.checks()
        assert not stack.queue.requests
    assert len(stack.queue.second_checks) == asked


class TestTwoIncompleteLists:
    """Two lists confirm each other only if they lack the same groups, are close in time, and none between has them."""

    def short_at(self, stack: Stack, after: timedelta, left: int) -> None:
        groups = stack.cluster.groups
        stack.cluster.groups = dict(list(groups.items())[:left])
        check_again(stack, after)
        stack.cluster.groups = {**groups, **stack.cluster.groups}

    def sum_of_maxima(self, stack: Stack) -> int:
        return sum(bounds[1] for bounds in stack.bounds())

    @pytest.mark.parametrize(
        ("lists", "more"),
        [
            pytest.param([(MINUTE, 1), (8 * MINUTE, 1)], False, id="eight minutes apart, one group"),
            pytest.param([(MINUTE, 2), (8 * MINUTE, 2)], False, id="eight minutes apart, two groups"),
            pytest.param([(MINUTE, 1), (30 * SECOND, 3), (30 * SECOND, 1)], False, id="a good one between, one group"),
            pytest.param([(MINUTE, 2), (30 * SECOND, 3), (30 * SECOND, 2)], False, id="a good one between, two groups"),
            pytest.param([(MINUTE, 2), (MINUTE, 1)], False, id="other groups"),
            pytest.param([(MINUTE, 2), (MINUTE, 2)], True, id="a minute apart"),
        ],
    )
    def test_the_groups_that_are_left_get_what_a_lost_one_had(self, stack: Stack, lists: Any, more: bool) -> None:
        before = self.sum_of_maxima(stack)
        for after, left in lists:
            self.short_at(stack, after, left)
        assert (self.sum_of_maxima(stack) > before) is more
        assert more or self.sum_of_maxima(stack) == before

    def test_a_good_list_ends_the_doubt_of_a_restore(self, stack: Stack) -> None:
        stack.ask("restore")
        doubted = stack.control.model_copy(update={"nothing_since": stack.clock.at})
        stack.store.save_record(stack.record, doubted, stack.store.load("demo").versions)
        check_again(stack, SECOND)
        assert stack.control.restoring
        assert stack.control.nothing_since is None
