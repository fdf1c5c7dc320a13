"""The model of Cluster Autoscaler behaves like the real one's sources and measurements."""

import pytest

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation.autoscaler_model import ClusterAutoscaler, Decrease, Delete, Flags, Increase, Refused
from tests.autoscaling import Group, Machine, loop

ANY = ("p", None)
LATE = 910  # seconds: past the provision timeout


def group(zone: str, low: int = 0, high: int = 9, *, nodes: int = 0, waiting: int = 0) -> Group:
    """Return a group with so many nodes, and machines of second 0 without a node."""
    made = Group(zone, Bounds(low, high))
    made.grow(nodes, now=0)
    made.deliver()
    made.grow(waiting, now=0)
    return made


@pytest.fixture
def model() -> ClusterAutoscaler[Group]:
    return ClusterAutoscaler(Flags())


def test_a_released_order_is_forgotten_and_the_next_loop_orders_elsewhere(model: ClusterAutoscaler[Group]) -> None:
    a, b = group("a"), group("b")
    loop(model, [a, b], {ANY: 4}, 0)
    assert (a.requested, b.requested) == (2, 2)
    a.machines, a.readable_bounds = [], Bounds(0, 0)
    loop(model, [a, b], {ANY: 4}, 10)
    assert (a.requested, b.requested) == (0, 4)


def test_the_order_of_a_group_that_was_hidden_for_a_loop_is_forgotten(model: ClusterAutoscaler[Group]) -> None:
    a, b = group("a"), group("b", high=0)
    loop(model, [a, b], {ANY: 3}, 0)
    a.readable_bounds = Bounds(0, 0)
    loop(model, [a, b], {ANY: 3}, 10)
    a.readable_bounds = Bounds(0, 9)
    assert loop(model, [a, b], {ANY: 3}, 20) == [Increase(a, 3)]


def test_replicas_of_others_on_top_of_an_open_order_keep_it_open(model: ClusterAutoscaler[Group]) -> None:
    a = group("a")
    loop(model, [a], {ANY: 2}, 0)
    a.deliver()
    a.grow(2, now=5)
    assert loop(model, [a], {ANY: 4}, 10) == [], "target above provisioned: the order is not done, all of it is coming"


def test_one_bad_bound_ends_the_loop_and_forgets_every_order(model: ClusterAutoscaler[Group]) -> None:
    a, b = group("a"), group("b")
    loop(model, [a, b], {ANY: 2}, 0)
    b.readable_bounds = None
    assert loop(model, [a, b], {ANY: 2}, 10) == []
    b.readable_bounds = Bounds(0, 9)
    assert [type(action) for action in loop(model, [a, b], {ANY: 2}, 20)] == [Increase, Increase]


def test_an_empty_group_without_a_template_is_invisible(model: ClusterAutoscaler[Group]) -> None:
    a = group("a")
    a.has_template = False
    assert loop(model, [a], {ANY: 2}, 0) == []


def test_an_open_order_of_a_group_without_a_template_stops_every_scale_up(model: ClusterAutoscaler[Group]) -> None:
    a, b = group("a", nodes=1), group("b", high=0)
    loop(model, [a, b], {ANY: 2}, 0)
    a.machines, a.has_template = a.machines[1:], False
    b.readable_bounds = Bounds(0, 9)
    assert loop(model, [a, b], {ANY: 4}, 10) == []
    a.has_template = True
    assert len(loop(model, [a, b], {ANY: 4}, 20)) > 0


def test_nodes_behind_a_hidden_group_go_on_serving_pods(model: ClusterAutoscaler[Group]) -> None:
    a, b = group("a", high=0, nodes=2), group("b")
    assert loop(model, [a, b], {ANY: 2}, 0) == []


def test_a_group_with_many_unordered_replicas_is_unhealthy_and_does_not_grow(model: ClusterAutoscaler[Group]) -> None:
    three, four = group("a", waiting=3), group("b", waiting=4)
    assert loop(model, [three], {ANY: 2}, 0) == [Increase(three, 2)]
    assert loop(model, [four], {ANY: 2}, 0) == []


def test_machines_without_a_node_go_after_the_timeout_down_to_the_min(model: ClusterAutoscaler[Group]) -> None:
    a = group("a", low=1, waiting=3)
    assert [type(action) for action in loop(model, [a], {}, LATE)] == [Delete, Delete]
    assert a.requested == 1
    assert not model.in_backoff(a.key, LATE)


def test_late_machines_go_although_a_younger_order_is_open(model: ClusterAutoscaler[Group]) -> None:
    a = group("a", waiting=1)
    loop(model, [a], {ANY: 1}, 300)
    assert a.requested == 2
    (action,) = loop(model, [a], {ANY: 1}, LATE)
    assert action == Delete(a, Machine("p-a-0", 0))


def test_a_timeout_takes_the_order_back_but_not_past_the_bounds(model: ClusterAutoscaler[Group]) -> None:
    a = group("a", high=2)
    loop(model, [a], {ANY: 2}, 0)
    a.readable_bounds = Bounds(1, 2)
    a.machines = [Machine(machine.name, 20) for machine in a.machines]
    assert loop(model, [a], {ANY: 2}, LATE) == [Refused(a, 0)]
    assert model.in_backoff(a.key, LATE)


def test_an_increase_that_is_refused_is_backed_off_at_once(model: ClusterAutoscaler[Group]) -> None:
    a = group("a")
    assert list(model.loop([a], {ANY: 2}, 0)) == [Increase(a, 2)]
    assert loop(model, [a], {ANY: 2}, 10) == []
    assert model.in_backoff(a.key, 300)
    assert not model.in_backoff(a.key, 301)


def test_a_failure_inside_a_backoff_begins_the_same_length_anew(model: ClusterAutoscaler[Group]) -> None:
    a = group("a")
    loop(model, [a], {ANY: 1}, 0)
    # the maximum was lowered while that order was in progress
    assert list(model.loop([a], {ANY: 2}, 700)) == [Increase(a, 1)]
    assert model.in_backoff(a.key, 1000)
    assert [type(action) for action in loop(model, [a], {ANY: 1}, LATE)] == [Decrease]
    assert model.in_backoff(a.key, LATE + 300)
    assert not model.in_backoff(a.key, LATE + 301)


def test_pods_that_wait_for_a_full_zone_need_no_nodes_elsewhere(model: ClusterAutoscaler[Group]) -> None:
    a, c = group("a", nodes=2), group("c", high=3, nodes=3)
    demand: dict[tuple[str, str | None], int] = {("p", "c"): 5}
    loop(model, [a, c], demand, 0)
    loop(model, [a, c], demand, 600)
    assert (a.running, c.running) == (0, 3)


def test_in_a_group_at_its_min_no_clock_runs(model: ClusterAutoscaler[Group]) -> None:
    a = group("a", low=2, nodes=2)
    for now in range(0, 1200, 10):
        loop(model, [a], {}, now)
    a.readable_bounds = Bounds(1, 9)
    loop(model, [a], {}, 1200)
    loop(model, [a], {}, 1790)
    assert a.running == 2
    loop(model, [a], {}, 1800)
    assert a.running == 1


def test_a_max_below_the_size_refuses_to_shrink_and_says_so(model: ClusterAutoscaler[Group]) -> None:
    a = group("a", high=2, nodes=4)
    loop(model, [a], {}, 0)
    actions = loop(model, [a], {}, 600)
    assert actions == [Refused(a, 3)] * 4
