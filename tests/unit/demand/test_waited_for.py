"""With a view of the pods, headroom goes to the zones of pending pods, and level shrink holds nodes while it helps."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.choices import DemandStage, Level
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import ZONE, Pod, Workload
from evenkeel.record import ClusterPolicy
from tests.builders import Played, after_backoff, group, in_backoff, key, maxima, minima, numbers, reasons
from tests.parts import replace
from tests.workloads import node, pod, pods, template

HOUR = 3600


def played(requested: tuple[int, ...], maximum: int, *waiting: Pod, minimum: int = 0, **policy: object) -> Played:
    """Return a pool whose nodes of 4 cores are full, and waiting pods."""
    made = Played(
        [group(zone, count, template=template()) for zone, count in zip("abcd", requested, strict=False)],
        replace(numbers(minimum, maximum), demand=DemandStage.ADVISE, **policy),
    )
    made.workload = busy(made.groups, *waiting)
    return made


def busy(groups: list[NodeGroup], *waiting: Pod, idle: str = "") -> Workload:
    """Return a workload with a pod of 3 cores on each node, except one of each zone in ``idle``."""
    nodes = [
        node(f"{group.identity.zone}-{i}", str(group.identity.zone), group=key(str(group.identity.zone)))
        for group in groups
        for i in range(group.running)
    ]
    free = {f"{zone}-0" for zone in idle}
    taken = [pod(f"on-{there.name}", cpu="3", node=there.name) for there in nodes if there.name not in free]
    return Workload(pods=(*waiting, *taken), nodes=tuple(nodes))


def bound(zone: str, number: int) -> tuple[Pod, ...]:
    """Return pods that each fill a node of this zone."""
    return pods(number, f"only-{zone}", cpu="3", node_selector={ZONE: zone})


class TestHeadroom:
    def test_a_zone_of_pending_pods_has_it_at_the_first_check(self) -> None:
        plan = played((0, 0, 0), 12, *bound("a", 8)).check()
        assert maxima(plan) == (8, 2, 2)
        assert "pods that wait for nodes here" in reasons(plan, "a")
        assert maxima(played((2, 2, 2), 12, *pods(6, cpu="3")).check()) == (4, 4, 4)

    def test_while_pods_wait_nothing_is_written_again(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.check()
        assert [pool.check(seconds).changes for seconds in (15, 60, HOUR, HOUR)] == [()] * 4
        assert pool.next_check() is None

    def test_headroom_without_pending_pods_is_shared_again_after_65_seconds(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.check()
        pool.workload = Workload()
        assert maxima(pool.check(64)) == (8, 2, 2)
        assert pool.next_check() == 1
        assert maxima(pool.check(1)) == (4, 4, 4)

    def test_the_last_nodes_go_to_the_zone_of_pending_pods(self) -> None:
        pool = played((4, 4, 3), 12)
        first = maxima(pool.check())
        assert [maxima(pool.check(HOUR)) for _ in range(3)] == [first] * 3
        for zone, expected in (("a", (5, 4, 3)), ("b", (4, 5, 3)), ("c", (4, 4, 4))):
            pool.workload = busy(pool.groups, *bound(zone, 1))
            assert maxima(pool.check(60)) == expected

    def test_a_zone_at_its_bound_gets_no_loan_without_pending_pods(self) -> None:
        pool = played((0, 0, 0), 12)
        pool.check()
        pool.workload = Workload(pods=(), nodes=())
        pool.check(20, a=4)
        assert maxima(pool.check(20)) == maxima(played((4, 0, 0), 12).check())

    @pytest.mark.parametrize("fields", [{"scheduler": "volcano"}, {"cpu": "3"}], ids=["other scheduler", "young"])
    def test_a_pod_that_cannot_be_evaluated_makes_headroom_a_guess(self, fields: dict[str, str]) -> None:
        pool = played((0, 0, 0), 12)
        pool.check()
        for seconds in (20, 15):
            newest = pool.now + timedelta(seconds=seconds - 1)
            pool.workload = Workload(pods=(pod("odd", created_at=newest, **fields),))
            plan = pool.check(seconds, a=4)
        assert maxima(plan) == (10, 1, 1)

    @pytest.mark.parametrize(
        ("state", "number", "maximum"), [(in_backoff(), 2, 3), (after_backoff(), 3, 4)], ids=["fenced", "probing"]
    )
    def test_a_fenced_zone_gets_none_and_a_probing_one_one(self, state: GroupState, number: int, maximum: int) -> None:
        pool = played((3, 3, 3), 12, *bound("a", number))
        pool.state = ClusterState(groups={key("a"): state})
        assert maxima(pool.check())[0] == maximum

    def test_bounds_that_an_operator_caps_stay_capped(self) -> None:
        pool = played((0, 0, 0), 12, *bound("a", 8))
        pool.groups[0] = replace(pool.groups[0], zone_max=5)
        assert maxima(pool.check())[0] == 5


class TestLevelShrink:
    def uneven(self, idle: str, *nodes: int) -> Played:
        pool = played(nodes or (6, 3, 3), 30, level=Level.SHRINK)
        pool.workload = busy(pool.groups, idle=idle)
        return pool

    def test_holds_zones_once_the_fullest_has_an_unneeded_node(self) -> None:
        found = self.uneven("a").check()
        assert minima(found) == (3, 3, 3)
        assert "min raised to the 3 requested" in reasons(found, "b")

    @pytest.mark.parametrize("idle", ["", "b"])
    def test_holds_no_zone_that_could_not_help(self, idle: str) -> None:
        pool = self.uneven(idle)
        assert minima(pool.check()) == (0, 0, 0)
        pool.workload = busy(pool.groups, idle=idle)
        assert minima(pool.check(60, a=5)) == (0, 0, 0)

    def test_lets_go_once_the_fullest_is_needed_again(self) -> None:
        pool = self.uneven("a")
        pool.check()
        pool.workload = busy(pool.groups)
        assert minima(pool.check(60)) == (0, 0, 0)

    def test_holds_zones_for_half_an_hour_at_most(self) -> None:
        pool = self.uneven("a")
        held = 0
        for minute in range(120):
            pool.workload = busy(pool.groups, idle="a" if minute % 3 else "")
            held += minima(pool.check(60)) == (3, 3, 3)
        assert 0 < held <= 30

    def test_is_the_default_of_a_record_with_demand(self) -> None:
        assert ClusterPolicy().policy().settings.level is Level.OFF
        assert ClusterPolicy(demand=DemandStage.ADVISE).policy().settings.level is Level.SHRINK
        assert ClusterPolicy(demand=DemandStage.ADVISE, level=Level.OFF).policy().settings.level is Level.OFF
