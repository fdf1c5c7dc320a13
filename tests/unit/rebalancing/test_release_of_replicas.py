"""Released replicas are ordered once, by the autoscaler or by Evenkeel."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Bounds, NodeGroup, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState, Release
from evenkeel.domain.model.workload import Pod, Workload
from evenkeel.domain.rebalancing.replicas.release import RELEASE_KEPT
from evenkeel.texts.english import sentences
from tests.builders import NOW, Played, after_backoff, in_backoff, key, maxima, numbers, requested, zones
from tests.parts import replace
from tests.workloads import node, pod, pods, template

#: seconds from a release until the pool is closed to the autoscaler, and until Evenkeel orders; a loop takes 10 s
CLOSES, ORDERS = 40, 50


def workload(waiting: int, groups: list[NodeGroup]) -> Workload:
    """Return a workload of full nodes, and so many waiting pods that fill a node each."""
    nodes = [node(f"{g.key.name}-{i}", g.identity.zone or "", group=g.key) for g in groups for i in range(g.running)]
    running = [pod(f"on-{each.name}", cpu="4", node=each.name) for each in nodes]
    return Workload(pods=(*running, *pods(waiting, "w", cpu="3")), nodes=tuple(nodes))


def released(waiting: int | None = 3, policy: Policy | None = None, **fields: object) -> Played:
    """Return a pool right after zone a released its three replicas; ``waiting`` None: pods are not read."""
    groups = zones((3, 3, 3), running=(0, 3, 3), template=template(), **fields)
    play = Played(groups, policy or numbers(0, 12), ClusterState(groups={key("a"): in_backoff()}))
    found = play.check()
    assert requested(found) == (0, 3, 3)
    if waiting is not None:
        play.workload = workload(waiting, play.groups)
    return play


def memory(play: Played) -> Release | None:
    (pool,) = play.state.pools.values()
    return pool.release


def totals(found: PoolPlan) -> tuple[int, int]:
    return sum(requested(found)), sum(maxima(found))


def ordered(play: Played) -> int:
    """Return the requested nodes once the order for the release is due."""
    play.check(CLOSES)
    return sum(requested(play.check(ORDERS - CLOSES)))


def change(play: Played, zone: str, **fields: Any) -> None:
    play.groups = [replace(found, **fields) if found.identity.zone == zone else found for found in play.groups]


def add_pods(play: Played, *more: Pod) -> None:
    assert play.workload is not None
    play.workload = replace(play.workload, pods=(*play.workload.pods, *more))


def rules(found: PoolPlan, zone: str) -> set[Rule]:
    return {reason.rule for group in found.groups if group.group.identity.zone == zone for reason in group.reasons}


def arrive(play: Played) -> None:
    play.groups = [replace(found, running=found.requested) for found in play.groups]


class TestOrder:
    def test_evenkeel_orders_after_two_loops_without_an_order(self) -> None:
        play = released()
        assert sum(maxima(play.check(CLOSES - 1))) == 12
        assert play.next_check() == 1
        found = play.check(1)
        assert (requested(found), maxima(found)) == ((0, 3, 3), (0, 3, 3))
        assert rules(found, "b") >= {Rule.CLOSED_FOR_ORDER}
        assert "so Evenkeel orders up to 3 after 2026-01-15T12:00:50Z" in " ".join(sentences(found.groups[1].reasons))
        assert sum(requested(play.check(9))) == 6
        assert play.next_check() == 1
        found = play.check(1)
        assert sum(requested(found)) == 9
        assert requested(found) == maxima(found)
        assert "for pending pods" in " ".join(sentences(found.groups[1].reasons))

    def test_nodes_are_ordered_once_and_the_pool_opens_when_they_join(self) -> None:
        play = released()
        ordered(play)
        for _ in range(4):
            assert totals(play.check(15)) == (9, 9)
        arrive(play)
        play.workload = workload(3, play.groups)  # they fit none of the new nodes
        for _ in range(10):
            found = play.check(60)
            assert sum(requested(found)) == 9
        assert memory(play) is None
        assert sum(maxima(found)) == 12

    def test_a_closed_pool_is_open_for_pods_beyond_the_ordered_nodes(self) -> None:
        play = released()
        ordered(play)
        play.workload = workload(5, play.groups)
        found = play.check(60)
        assert totals(found) == (9, 11)
        assert any(Rule.OPEN_FOR_PODS in rules(found, zone) for zone in "bc")
        play.groups = [
            replace(g, requested=bounds.max) for g in play.groups if (bounds := g.bounds) is not None
        ]  # the autoscaler's order
        assert totals(play.check(60)) == (11, 11)

    def test_the_zone_opened_for_more_pods_is_not_the_one_that_seems_broken(self) -> None:
        groups = zones((7, 1, 1), running=(0, 1, 1), template=template())
        play = Played(groups, numbers(0, 16), ClusterState(groups={key("a"): in_backoff()}))
        play.check()
        play.workload = workload(7, play.groups)
        play.check(CLOSES)
        found = play.check(ORDERS - CLOSES)
        assert sorted(requested(found)) == [0, 4, 5]
        broken = requested(found).index(5)  # 4 awaited, one runs
        for nodes in (1, 2):  # the second time, the autoscaler's own orders do not count
            play.workload = workload(7 + nodes, play.groups)
            found = play.check(60)
            assert (sum(maxima(found)), maxima(found)[broken]) == (9 + nodes, 5)
            play.groups = [replace(g, requested=g.bounds.max) if g.bounds else g for g in play.groups]

    def test_pods_seen_within_a_minute_of_the_order_get_the_rest(self) -> None:
        play = released(waiting=1)  # of three: the list was incomplete, or their scheduler had not tried them
        assert ordered(play) == 7
        play.check(15)
        play.workload = workload(3, play.groups)
        assert sum(requested(play.check(15))) == 9

    def test_pods_that_come_later_are_left_to_the_autoscaler(self) -> None:
        play = released(waiting=1)
        ordered(play)
        for _ in range(5):
            play.check(15)
        play.workload = workload(3, play.groups)
        for _ in range(4):
            assert totals(play.check(15)) == (7, 9)

    def test_a_release_is_kept_while_no_zone_can_take_a_node(self) -> None:
        play = released()
        play.check(CLOSES)
        play.groups = [replace(each, frozen_because=Reason.of(Rule.FROZEN_BY_CONTROLLER)) for each in play.groups]
        for _ in range(8):
            assert sum(requested(play.check(15))) == 6
        play.groups = [replace(each, frozen_because=None) for each in play.groups]
        for _ in range(3):
            found = play.check(15)
        assert sum(requested(found)) == 9

    @pytest.mark.parametrize("nodes", [-1, 1])
    def test_an_operators_request_precedes_the_order_and_counts(self, nodes: int) -> None:
        play = released()
        play.check(CLOSES)
        request = ScaleRequest(id="r1", nodes=nodes, at=play.now, pool="workers")
        play.state = replace(play.state, scale_requests=(request,))
        found = play.check(ORDERS - CLOSES)
        assert (found.request.current, sum(requested(found))) == (request, 6 + nodes)
        play.state = replace(play.state, scale_requests=())
        for _ in range(3):
            found = play.check(15)
        assert nodes == -1 or sum(requested(found)) == 9

    @pytest.mark.parametrize(
        ("waiting", "more", "nodes"),
        [
            pytest.param(1, (), 7, id="fewer than released"),
            pytest.param(5, (), 9, id="more than released"),
            pytest.param(0, pods(2, "large", cpu="64"), 6, id="no node of the pool holds them"),
            pytest.param(0, (pod("odd", scheduler="volcano"),), 6, id="pods that Evenkeel cannot judge"),
        ],
    )
    def test_waiting_pods_get_at_most_the_released_nodes(self, waiting: int, more: tuple[Pod, ...], nodes: int) -> None:
        play = released(waiting)
        add_pods(play, *more)
        assert ordered(play) == nodes

    def test_the_order_keeps_pool_maximum_and_zone_max(self) -> None:
        assert ordered(released(policy=numbers(0, 8))) == 8
        play = released(zone_max=4)
        play.check(CLOSES)
        assert requested(play.check(ORDERS - CLOSES)) == (0, 4, 4)

    @pytest.mark.parametrize("taken", [{"b": 4, "c": 5}, {"a": 3}])
    def test_a_release_that_was_taken_is_forgotten_at_once(self, taken: dict[str, int]) -> None:
        play = released()
        if "a" in taken:
            play.state = replace(play.state, groups={})
        play.check(15, **taken)
        assert memory(play) is None
        assert play.check(60).release.asks_waiting is False

    def test_the_pool_is_closed_for_a_whole_loop_before_the_order(self) -> None:
        play = released()
        found = play.check(70)
        assert (requested(found), maxima(found)) == ((0, 3, 3), (0, 3, 3))
        found = play.check(9)
        assert (sum(requested(found)), play.next_check()) == (6, 1)
        assert sum(requested(play.check(1))) == 9

    def test_the_order_waits_for_a_writer_that_opened_the_pool_again(self) -> None:
        play = released()
        play.check(CLOSES)
        change(play, "b", bounds=Bounds(0, 9))
        found = play.check(ORDERS - CLOSES)
        assert (requested(found), maxima(found)) == ((0, 3, 3), (0, 3, 3))
        assert sum(requested(play.check(10))) == 9

    def test_the_order_waits_for_open_bounds_of_a_probing_zone(self) -> None:
        play = released()
        play.state = replace(play.state, groups={**play.state.groups, key("c"): after_backoff()})
        play.check(CLOSES)
        change(play, "c", bounds=Bounds(0, 9))
        assert sum(requested(play.check(ORDERS - CLOSES))) == 6

    def test_the_order_does_not_wait_for_bounds_that_evenkeel_may_not_write(self) -> None:
        play = released(policy=numbers(0, 30))
        play.check(CLOSES)
        change(play, "b", bounds=Bounds(0, 9), bounds_held=True)
        assert sum(requested(play.check(ORDERS - CLOSES))) == 9

    def test_the_order_does_not_wait_for_the_one_node_of_an_owners_minimum(self) -> None:
        play = released()
        change(play, "c", requested=0, running=0, least_max=1)
        play.check(CLOSES)
        assert [g.bounds.max for g in play.groups if g.bounds is not None and g.identity.zone == "c"] == [1]
        assert sum(requested(play.check(ORDERS - CLOSES))) == 6

    def test_a_loss_in_one_zone_is_not_a_gain_in_another(self) -> None:
        release = Release(at=NOW, replicas=3, requested={"b": 3, "c": 3})
        assert release.not_reordered({"b": 1, "c": 4}) == 2

    def test_a_slower_autoscaler_has_more_time(self) -> None:
        play = released(policy=replace(numbers(0, 12), autoscaler_loop=timedelta(seconds=30)))
        play.check(15)
        assert play.next_check() == 45
        play.check(45)
        assert sum(requested(play.check(29))) == 6
        assert sum(requested(play.check(1))) == 9

    def test_a_probing_zone_gets_no_node_and_offers_none(self) -> None:
        play = released()
        play.state = replace(play.state, groups={key("a"): replace(in_backoff(), backoff_until=NOW)})
        found = play.check(CLOSES)
        assert (found.groups[0].state, maxima(found)) == (State.PROBING, (0, 3, 3))
        assert requested(play.check(ORDERS - CLOSES))[0] == 0

    def test_a_paused_pool_gets_none(self) -> None:
        play = released()
        play.policy = replace(play.policy, paused={"workers": None})
        for seconds in (CLOSES, ORDERS - CLOSES, 60):
            assert requested(play.check(seconds)) == (0, 3, 3)


def step_by_step(max_step: int, waiting: int = 3) -> Played:
    """Return a pool whose released replicas are ordered at most so many at a time; the first part is ordered."""
    policy = numbers(0, 12)
    policy = replace(policy, pools=tuple(replace(rule, max_step=max_step) for rule in policy.pools))
    play = released(waiting, policy)
    assert ordered(play) == 6 + max_step
    return play


class TestMaxStep:
    def test_without_waiting_pods_the_pool_opens_while_nodes_come(self) -> None:
        play = step_by_step(1)
        play.workload = workload(1, play.groups)
        for seconds in (15, 60):
            assert totals(play.check(seconds)) == (7, 7)
        play.workload = workload(2, play.groups)
        assert totals(play.check(60)) == (7, 8)

    def test_a_pool_opened_between_steps_is_closed_for_a_loop(self) -> None:
        play = step_by_step(1)
        play.policy, policy = replace(play.policy, paused={"workers": None}), play.policy
        assert sum(maxima(play.check(5))) == 12
        play.policy = policy
        assert totals(play.check(20)) == (7, 7)
        assert sum(requested(play.check(10))) == 8


class TestWaitingPods:
    def test_without_a_view_nothing_is_ordered_and_nothing_closed(self) -> None:
        play = released(waiting=None)
        for _ in range(40):
            assert totals(play.check(60)) == (6, 12)
        assert memory(play) is None

    def test_a_release_ends_after_two_checks_without_waiting_pods(self) -> None:
        play = released(waiting=0)
        found = play.check(CLOSES)
        assert sum(maxima(found)) == 12
        assert memory(play) is not None
        assert play.next_check() == 60
        play.check(59)
        assert memory(play) is not None
        play.check(1)
        assert memory(play) is None

    @pytest.mark.parametrize("empty", [Workload(), None])
    def test_one_empty_list_before_the_order_does_not_end_the_release(self, empty: Workload | None) -> None:
        play = released()
        play.check(CLOSES)
        there = play.workload
        play.workload = empty
        play.check(5)
        play.workload = there
        play.check(5)
        assert sum(requested(play.check(10))) == 9

    def test_a_check_with_waiting_pods_between_keeps_the_release(self) -> None:
        play = released()
        there = play.workload
        for waiting in (Workload(), there, Workload()):
            play.workload = waiting
            play.check(CLOSES)
        assert memory(play) is not None

    @pytest.mark.parametrize("unknown", ["pods", "nodes"])
    def test_pods_and_nodes_that_cannot_be_judged_keep_the_release(self, unknown: str) -> None:
        play = released(waiting=0)
        if unknown == "pods":
            add_pods(play, pod("odd", scheduler="volcano"))
        else:
            play.groups = [replace(group, running=0, template=None) for group in play.groups]
            play.workload = workload(3, [])
        for _ in range(3):
            assert sum(requested(play.check(60))) == 6
        assert memory(play) is not None

    def test_pods_are_read_only_after_the_autoscalers_time(self) -> None:
        play = released(waiting=None)
        assert play.check(CLOSES - 1).release.asks_waiting is False
        assert play.check(1).release.asks_waiting is True


STOPS: dict[str, dict[str, object]] = {
    "its pool is paused": {"paused": {"workers": None}},
    "its pool is paused for a while": {"paused": {"workers": NOW + timedelta(hours=1)}},
    "its cluster is paused": {"is_paused": True},
    "its cluster is in dry run": {"is_dry": True},
    "its pool is in dry run": {"pools": (PoolRule(name="workers", min=0, max=12, dry_run=True),)},
}


class TestStopping:
    """Evenkeel stops acting on a pool that is closed to the autoscaler: it is opened first."""

    @pytest.mark.parametrize("why", STOPS)
    @pytest.mark.parametrize("after", [CLOSES, ORDERS, ORDERS + 30])
    def test_a_closed_pool_is_opened_and_nothing_else_is_written(self, why: str, after: int) -> None:
        play = released()
        for seconds in (CLOSES, ORDERS - CLOSES, 30):
            if play.now < NOW + timedelta(seconds=after):
                found = play.check(seconds)
        assert sum(maxima(found)) < 12
        before = requested(found)
        play.policy = replace(play.policy, **STOPS[why])  # type: ignore[arg-type]
        found = play.check(5)
        assert (found.mode.opens, requested(found), sum(maxima(found))) == (True, before, 12)
        assert Rule.OPENED in rules(found, "b")
        (pool,) = play.state.pools.values()
        assert (pool.closed_at, pool.release is None) == (None, False)
        assert play.check(60).mode.opens is False

    def test_a_pool_that_is_live_in_a_cluster_in_dry_run_goes_on(self) -> None:
        play = released()
        play.policy = replace(play.policy, is_dry=True, pools=(PoolRule(name="workers", min=0, max=12, dry_run=False),))
        assert ordered(play) == 9

    def test_after_a_short_pause_the_order_goes_on(self) -> None:
        play = released()
        play.check(CLOSES)
        play.policy, policy = replace(play.policy, paused={"workers": None}), play.policy
        play.check(5)
        play.policy = policy
        assert (sum(requested(play.check(60))), sum(requested(play.check(9)))) == (6, 6)
        assert sum(requested(play.check(1))) == 9

    def test_a_group_that_cannot_be_written_is_opened_as_soon_as_it_can(self) -> None:
        play = released()
        play.check(CLOSES)
        change(play, "b", frozen_because=Reason.of(Rule.ROLLING_SETS))
        play.policy = replace(play.policy, paused={"workers": None})
        assert maxima(play.check(5))[1] == 3
        change(play, "b", frozen_because=None)
        assert sum(maxima(play.check(60))) == 12

    def test_moved_machines_keep_no_zone_closed(self) -> None:
        groups = zones((3, 3, 3), running=(0, 3, 3), template=template())
        policy = numbers(0, 20, on_failure=OnFailure.MOVE)
        play = Played(groups, policy, ClusterState(groups={key("a"): in_backoff()}))
        found = play.check()
        assert sum(maxima(found)) == sum(requested(found)) == 9
        play.policy = replace(policy, paused={"workers": None})
        assert sum(maxima(play.check(5))) == 20

    def test_a_restore_replaces_it(self) -> None:
        play = released()
        play.check(CLOSES)
        play.policy = replace(play.policy, restoring=True, paused={"workers": None})
        found = play.check(5)
        assert found.mode.opens is False
        (pool,) = play.state.pools.values()
        assert pool.closed_at is None

    def test_closing_time_and_release_are_stored_and_may_be_absent(self) -> None:
        release = Release(
            at=NOW, replicas=3, requested={"a": 0, "b": 3}, ordered={"b": 2}, has_rest=True, idle_since=NOW
        )
        state = PoolState(closed_at=NOW, release=release)
        assert read_stored(PoolState, dump_stored(state), "pool") == state
        assert read_stored(PoolState, "{}", "pool") == PoolState()


class TestMemory:
    @pytest.mark.parametrize("on_failure", [OnFailure.HOLD, OnFailure.MOVE])
    def test_another_treatment_of_failures_ends_it(self, on_failure: OnFailure) -> None:
        play = released()
        play.policy = numbers(0, 12, on_failure=on_failure)
        play.check(15)
        assert memory(play) is None

    def test_without_an_autoscaler_no_release_is_stored(self) -> None:
        assert memory(released(policy=replace(numbers(0, 12), autoscaler=False))) is None

    def test_a_planned_release_is_not_stored(self) -> None:
        groups = zones((3, 3, 3), running=(0, 3, 3))
        play = Played(groups, numbers(0, 12), ClusterState(groups={key("a"): in_backoff()}))
        assert play.check().next_state.release is None

    def test_a_second_release_adds_to_what_is_left_of_the_first(self) -> None:
        play = released(waiting=4)
        play.check(20, c=4)
        play.groups = [replace(g, running=2) if g.identity.zone == "b" else g for g in play.groups]
        play.state = replace(play.state, groups={**play.state.groups, key("b"): in_backoff()})
        play.workload = workload(4, play.groups)
        assert requested(play.check(10)) == (0, 2, 4)
        left = memory(play)
        assert left is not None
        assert left.replicas == 3
        assert ordered(play) == 9

    def test_it_ends_after_the_autoscalers_longest_backoff(self) -> None:
        play = released(waiting=None)
        play.check(RELEASE_KEPT.total_seconds() - 1)
        assert memory(play) is not None
        play.check(1)
        assert memory(play) is None
