"""Where pods are seen: headroom goes to the zones that they wait for, and zones hold nodes while that can help."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.choices import DemandStage, Level
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import ZONE, Pod, Workload
from evenkeel.record import ClusterPolicy
from tests.builders import Played, after_backoff, group, in_backoff, key, maxima, minima, numbers, reasons
from tests.parts import replace
from tests.workloads import node, pod, pods, template

HOUR = 3600


def played(requested: tuple[int, ...], maximum: int, *waiting: Pod, minimum: int = 0, **policy: object) -> Played:
    """A pool of zones whose nodes of 4 cores are full, and pods that wait."""
    made = Played(
        [group(zone, count, template=template()) for zone, count in zip("abcd", requested, strict=False)],
        replace(numbers(minimum, maximum), demand=DemandStage.ADVISE, **policy),
    )
    made.workload = busy(made.groups, *waiting)
    return made


def busy(groups: list[NodeGroup], *waiting: Pod, idle: str = "") -> Workload:
    """Every node is taken by a pod of 3 cores, but one of each zone in ``idle``."""
    nodes = [
        node(f"{found.identity.zone}-{i}", found.identity.zone or "", group=key(found.identity.zone or ""))
        for found in groups
        for i in range(found.running)
    ]
    taken = [pod(f"on-{there.name}", cpu="3", node=there.name) for there in nodes if there.name not in with_zero(idle)]
    return Workload(pods=(*waiting, *taken), nodes=tuple(nodes))


def with_zero(zones: str) -> set[str]:
    return {f"{zone}-0" for zone in zones}


def bound(zone: str, number: int) -> tuple[Pod, ...]:
    """Pods of which each takes a node of this zone."""
    return pods(number, f"only-{zone}", cpu="3", node_selector={ZONE: zone})


class TestHeadroomGoesWherePodsWait:
    def test_a_zone_that_pods_name_has_it_at_the_first_look(self) -> None:
        found = played((0, 0, 0), 12, *bound("a", 8)).look()
        assert maxima(found) == (8, 2, 2)
        assert "pods wait for nodes here" in reasons(found, "a")

    def test_pods_that_any_zone_serves_leave_it_level(self) -> None:
        assert maxima(played((2, 2, 2), 12, *pods(6, cpu="3")).look()) == (4, 4, 4)

    def test_where_there_is_less_than_they_wait_for_nobody_else_gets_any(self) -> None:
        a, b, c = maxima(played((3, 3, 3), 12, *bound("a", 9), *bound("b", 9)).look())
        assert (a + b, c) == (9, 3)

    def test_while_they_wait_nothing_is_written_again_and_no_look_asked_for(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.look()
        assert [pool.look(seconds).changes for seconds in (15, 60, HOUR, HOUR)] == [()] * 4
        assert pool.next_check() is None

    def test_what_nobody_waits_for_any_more_goes_back_once_it_has_stood(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.look()
        pool.workload = Workload()
        assert maxima(pool.look(64)) == (8, 2, 2)
        assert pool.next_check() == 1
        assert maxima(pool.look(1)) == (4, 4, 4)

    def test_the_last_nodes_stay_with_nobody_and_come_to_who_waits(self) -> None:
        pool = played((4, 4, 3), 12)
        first = maxima(pool.look())
        assert [maxima(pool.look(HOUR)) for _ in range(3)] == [first] * 3
        for zone, expected in (("a", (5, 4, 3)), ("b", (4, 5, 3)), ("c", (4, 4, 4))):
            pool.workload = busy(pool.groups, *bound(zone, 1))
            assert maxima(pool.look(60)) == expected

    def test_a_zone_at_its_bound_gets_no_loan_while_nobody_waits(self) -> None:
        pool = played((0, 0, 0), 12)
        pool.look()
        pool.workload = Workload(pods=(), nodes=())
        pool.look(20, a=4)
        assert maxima(pool.look(20)) == maxima(played((4, 0, 0), 12).look())

    def test_a_pod_that_nobody_can_judge_makes_it_a_guess_again(self) -> None:
        odd = pod("odd", scheduler="volcano")
        pool = played((0, 0, 0), 12, odd)
        pool.look()
        pool.look(20, a=4)
        assert maxima(pool.look(15)) == (10, 1, 1)

    def test_a_pod_too_young_to_be_judged_makes_it_a_guess_for_that_look(self) -> None:
        pool = played((0, 0, 0), 12)
        pool.look()
        for seconds in (20, 15):
            newest = pool.now + timedelta(seconds=seconds - 1)
            pool.workload = Workload(pods=(pod("young", cpu="3", created_at=newest),))
            found = pool.look(seconds, a=4)
        assert maxima(found) == (10, 1, 1)

    def test_a_fenced_zone_gets_none_and_one_that_is_tried_a_single_node(self) -> None:
        pool = played((3, 3, 3), 12, *bound("a", 2))
        pool.state = ClusterState(groups={key("a"): in_backoff()})
        assert maxima(pool.look())[0] == 3
        pool = played((3, 3, 3), 12, *bound("a", 3))
        pool.state = ClusterState(groups={key("a"): after_backoff()})
        assert maxima(pool.look())[0] == 4

    def test_bounds_that_an_operator_caps_stay_capped(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.groups[0] = replace(pool.groups[0], zone_max=5)
        assert maxima(pool.look())[0] == 5


class TestALevelShrink:
    def uneven(self, idle: str, *nodes: int) -> Played:
        pool = played(nodes or (6, 3, 3), 30, level=Level.SHRINK)
        pool.workload = busy(pool.groups, idle=idle)
        return pool

    def test_holds_as_soon_as_the_fullest_has_a_node_that_nobody_needs(self) -> None:
        found = self.uneven("a").look()
        assert minima(found) == (3, 3, 3)
        assert "min raised to the 3 requested" in reasons(found, "b")

    @pytest.mark.parametrize("idle", ["", "b"])
    def test_holds_nobody_that_could_not_help(self, idle: str) -> None:
        pool = self.uneven(idle)
        assert minima(pool.look()) == (0, 0, 0)
        pool.workload = busy(pool.groups, idle=idle)
        assert minima(pool.look(60, a=5)) == (0, 0, 0)

    def test_lets_go_once_the_fullest_is_needed_again(self) -> None:
        pool = self.uneven("a")
        pool.look()
        pool.workload = busy(pool.groups)
        assert minima(pool.look(60)) == (0, 0, 0)

    def test_holds_no_longer_than_half_an_hour_however_often_nodes_are_needed_in_between(self) -> None:
        pool = self.uneven("a")
        held = 0
        for minute in range(120):
            pool.workload = busy(pool.groups, idle="a" if minute % 3 else "")
            held += minima(pool.look(60)) == (3, 3, 3)
        assert 0 < held <= 30

    def test_is_what_a_record_with_demand_asks_for_by_itself(self) -> None:
        assert ClusterPolicy().policy().settings.level is Level.OFF
        assert ClusterPolicy(demand=DemandStage.ADVISE).policy().settings.level is Level.SHRINK
        assert ClusterPolicy(demand=DemandStage.ADVISE, level=Level.OFF).policy().settings.level is Level.OFF
