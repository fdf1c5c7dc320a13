"""Zones whose nodes are not Ready: pods are placed elsewhere, no node that was Ready is removed, and all recovers."""

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.workload import ZONE, Node, Workload
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.builders import NOW
from tests.exhaustive.plan_rules import check
from tests.parts import replace
from tests.property.worlds import World, pools
from tests.stories import Broken, BrokenStory
from tests.workloads import LONG_AGO, node
from tests.world import App

BOUND = {"node_selector": {ZONE: "a"}}


@settings(max_examples=10)
@given(st.integers(0, 1_000_000))
@example(3)  # without the rule: orders in a dead zone
@example(5)  # without the rule: removals and orders while the cluster rests
def test_whatever_breaks_the_rule_holds_and_every_pod_runs_in_the_end(seed: int) -> None:
    assert BrokenStory(seed).play() == []


@settings(max_examples=5)
@given(st.integers(0, 1_000_000))
@example(16)  # without the rule for fenced groups: a failed machine stays for ever
@example(19)  # without the rule: six pods wait for ever
def test_so_it_does_where_no_controller_retries_a_failed_machine(seed: int) -> None:
    assert BrokenStory(seed, fails_for_good=True).play() == []


@pytest.mark.parametrize("stage", ["scale-up", "full"])
def test_pods_get_nodes_after_all_zones_have_refused_machines_for_good(stage: str) -> None:
    world = Broken([App("web", 4, milli=2900)], nodes=(4, 4), demand=stage)
    world.fails_for_good = True
    world.apps["web"].pods, world.refusing = 12, {"a", "b"}
    world.settle_pods()
    world.live(60)
    assert world.ordered <= 10, "two per zone, and one probe per zone and backoff"
    world.refusing.clear()
    world.live(40)  # the longest backoff, and two boots
    assert not world.waiting()
    assert world.faults == []


@pytest.mark.parametrize("dead", [True, False])
@pytest.mark.parametrize("nodes", [(10, 10), (10, 10, 10), (4, 0)])
def test_pods_of_a_dead_zone_run_elsewhere_within_ten_minutes(nodes: tuple[int, ...], *, dead: bool) -> None:
    world = Broken([App("web", sum(nodes), milli=2900)], nodes=nodes)
    world.live(2)
    assert not world.waiting()
    world.outage("a", dead=dead)
    world.live(10)
    assert not world.waiting(), "five minutes until the pods are replaced, and then two checks and a boot"
    assert world.requested()["a"] == nodes[0]
    world.live(60)
    assert world.removed == []
    assert [incident.kind for incident in world.incidents()] == [IncidentKind.ZONE_UNHEALTHY]
    world.end("a")
    world.live(60)
    assert world.wrong() == []
    assert world.incidents() == ()


@settings(max_examples=5)
@given(st.lists(st.integers(2, 7), min_size=2, max_size=3), st.integers(0, 1000))
@example([3, 6], 3)  # without a pause, one pod waits for one dead node after another
def test_next_to_an_autoscaler_that_orders_anywhere_pods_run_in_the_other_zones(nodes: list[int], seed: int) -> None:
    record = {"demand": "advise", "autoscaler": "cluster-autoscaler"}
    world = Broken([App("web", sum(nodes), milli=2900)], nodes=nodes, seed=seed, **record)
    world.live(3)
    world.outage("a")
    tried: list[str] = []
    for minute in range(80):
        world.run()
        tried += [zone for zone in world.autoscaler_loop() if zone == "a"]
        assert len(tried) <= 1 + minute // 60
        world.pass_time()
    assert world.waiting() == []
    assert (world.removed, world.ordered) == ([], 0)
    world.end("a")
    world.live(3)
    assert world.incidents() == ()
    maxima = [each.bounds.max for each in world.cluster.groups.values() if each.bounds is not None]
    assert sum(maxima) == 60


def test_without_removals_it_begins_with_pending_pods_and_ends_although_none_is_pending() -> None:
    world = Broken([App("web", 12, milli=2900)], nodes=(4, 4, 4), demand="scale-up")
    world.live(2)
    world.outage("a")
    world.live(20)
    assert (world.waiting(), world.requested()) == ([], {"a": 4, "b": 6, "c": 6})
    assert [incident.kind for incident in world.incidents()] == [IncidentKind.ZONE_UNHEALTHY]
    world.end("a")
    world.live(1)
    assert world.incidents() == ()


def test_bound_pods_of_a_half_broken_zone_are_placed_one_node_at_a_time() -> None:
    apps = [App("bound", 4, milli=2900, fields=BOUND), App("web", 8, milli=2900)]
    world = Broken(apps, nodes=(8, 4))
    world.live(2)
    world.down(world.in_zone("a")[:4])
    world.live(6)
    world.apps["bound"].pods += 5
    most = 0
    for _ in range(60):
        before = world.requested()["a"]
        world.run()
        if world.zones()["a"].is_unhealthy:
            most = max(most, world.requested()["a"] - before)
        world.pass_time()
    assert (most, world.waiting(), world.faults) == (1, [], [])


def test_nothing_is_ordered_or_removed_while_every_node_is_broken() -> None:
    world = Broken([App("web", 12, milli=2900)], nodes=(5, 5, 5))
    world.live(1)
    for zone in "abc":
        world.outage(zone)
    world.live(120)
    assert (world.requested(), world.removed, world.ordered) == ({"a": 5, "b": 5, "c": 5}, [], 0)
    assert {incident.kind for incident in world.incidents()} == {IncidentKind.CLUSTER_UNHEALTHY, IncidentKind.PODS_WAIT}
    for zone in "abc":
        world.end(zone)
    world.live(40)
    assert world.wrong() == []
    assert world.incidents() == ()


def test_a_bound_pod_in_a_dead_zone_leaves_no_nodes_behind() -> None:
    world = Broken([App("bound", 2, milli=2900, fields=BOUND), App("web", 4, milli=2900)], nodes=(2, 4))
    world.live(1)
    world.outage("a")
    most = 0
    for _ in range(7 * 60):
        world.live(1)
        most = max(most, len(world.in_zone("a")) - 2)
    assert most <= 3, "a probe that never was Ready goes 20 minutes after it failed, and two have followed by then"
    assert world.faults == []
    world.end("a")
    world.live(2)
    assert not world.waiting()


def test_a_dead_zone_that_refuses_machines_gets_one_more_replica_not_one_after_another() -> None:
    world = Broken([App("bound", 1, milli=2900, fields=BOUND), App("web", 8, milli=2900)], nodes=(5, 4))
    world.live(3)
    world.refusing = {"a", "b"}
    world.outage("a")
    world.live(4 * 60)
    assert world.requested() == {"a": 6, "b": 8}
    world.refusing = set()
    world.end("a")
    world.live(6)
    assert not world.waiting()


@st.composite
def broken_pools(draw: st.DrawFn, *, autoscaler: bool) -> World:
    """Draw one pool of which many nodes are not Ready, some since before the last check."""
    world = draw(pools(strategies=(BALANCED,)) | pools())
    nodes: list[Node] = []
    states = dict(world.state.groups)
    for member in world.observation.groups:
        broken = draw(st.integers(0, member.running))
        for number in range(member.running):
            fields = {"group": member.key, "created_at": LONG_AGO, "ready": number >= broken}
            nodes.append(node(f"{member.key.name}-{number}", member.identity.zone or "?", **fields))
        if draw(st.booleans()):
            since = NOW - timedelta(minutes=draw(st.sampled_from([1, 5, 60])))
            states[member.key] = replace(states.get(member.key, GroupState()), unhealthy_since=since)
    demand = DemandStage.ADVISE if autoscaler else DemandStage.FULL
    return replace(
        world,
        observation=replace(world.observation, workload=Workload(nodes=tuple(nodes))),
        state=replace(world.state, groups=states),
        policy=replace(world.policy, demand=demand, autoscaler=autoscaler),
    )


@settings(max_examples=60)
@given(broken_pools(autoscaler=True) | broken_pools(autoscaler=False))
def test_whatever_holds_for_a_plan_holds_with_broken_nodes(world: World) -> None:
    check(world)


@settings(max_examples=60)
@given(broken_pools(autoscaler=True) | broken_pools(autoscaler=False))
def test_unhealthy_groups_keep_their_nodes_and_get_none(world: World) -> None:
    for planned in world.pool().groups:
        if planned.state is State.UNHEALTHY:
            assert planned.requested <= planned.group.requested
            if planned.group.annotations.fencing_enabled and planned.bounds and not planned.group.owner.bounds_held:
                assert planned.bounds.max == max(planned.requested, planned.group.owner.least_max)
        if planned.group.status.unhealthy is not None and planned.state is not State.FROZEN:
            assert planned.requested >= min(planned.group.running, planned.group.requested)
            assert planned.removal.machines == ()
