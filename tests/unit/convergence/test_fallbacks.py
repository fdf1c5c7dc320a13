"""Fallback pools: the setting and its faults, the nodes that a fallback holds, and those that it takes over."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import ConvergenceState, Deleting, Order
from evenkeel.domain.model.groups import Bounds, MachineRef, NodeGroup, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import ClusterState, MemberSnapshot, PoolState, Release
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.survival.setting import SurviveZones
from evenkeel.texts.english import sentences
from tests.builders import MINUTE, NOW, after_backoff, group, in_backoff, key, problems_of
from tests.pages import assert_note_is_shown
from tests.parts import make, replace
from tests.stack import Stack


def pools(*names: str, zones: str = "ab", **fallback_for: str) -> list[NodeGroup]:
    return [
        group(zone, 2, pool=name, bounds=(0, 9), pool_max=9, pool_min=0, fallback_for=fallback_for.get(name))
        for name in names
        for zone in zones
    ]


def planned(
    groups: Sequence[NodeGroup],
    states: dict[str, PoolState] | None = None,
    fenced: Sequence[tuple[str, str]] = (),
    probing: Sequence[tuple[str, str]] = (),
    **fields: object,
) -> Plan:
    health = {key(zone, pool=pool): in_backoff() for pool, zone in fenced}
    health |= {key(zone, pool=pool): after_backoff() for pool, zone in probing}
    known = {PoolId("cluster-api", "default", "", name): state for name, state in (states or {}).items()}
    policy = make(Policy, strategy=BALANCED, **fields)
    return plan(Observation(groups=tuple(groups)), ClusterState(groups=health, pools=known), policy, NOW)


def reports(found: Plan) -> dict[str, tuple[str, ...]]:
    return {pool.id.name: problems_of(pool.report.problems) for pool in found.pools if pool.report.problems}


def named(found: Plan, name: str) -> PoolPlan:
    return next(pool for pool in found.pools if pool.id.name == name)


def seen(pool: str, **requested: int) -> MemberSnapshot:
    return MemberSnapshot(since=NOW, requested={str(key(zone, pool=pool)): count for zone, count in requested.items()})


def holds(pool: str, **nodes: int) -> dict[str, int]:
    return {str(key(zone, pool=pool)): count for zone, count in nodes.items()}


def held(before: int, was: int, *, fenced: Sequence[tuple[str, str]]) -> int:
    """Return the held nodes after a check that finds two in each zone of the fallback, where ``was`` ran in zone a."""
    state = PoolState(held_nodes=holds("spare", a=before), seen=seen("spare", a=was, b=2))
    found = planned(pools("first", "spare", spare="first"), {"spare": state}, fenced)
    return sum(named(found, "spare").next_state.held_nodes.values())


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (pools("a", "b", b="x"), {"b": "fallback-for is 'x': no such pool exists; set it to the name of a pool"}),
        (pools("a", "b", a="b", b="a"), {"a": "fallback-for leads back to the same pool (a, b): remove it from one"}),
        (pools("a", "b", "c", a="b", b="c", c="a"), {"a": "leads back to the same pool (a, b, c)"}),
        (pools("a", a="a"), {"a": "leads back to the same pool (a)"}),
        (
            [*pools("a", a="b"), group("a", 1, pool="b", key=key("a", pool="b", namespace="other"), pool_max=3)],
            {"a": "fallback-for is 'b': cluster-api/other/b is in another cluster or namespace"},
        ),
        (
            [*pools("a", a="b"), group("a", 1, pool="b", pool_max=1, pool_min=3)],
            {"a": "fallback-for is 'b': that pool is invalid; fix it first", "b": "PoolMinimum 3 is larger"},
        ),
    ],
)
def test_a_fallback_without_effect_is_one_line_of_its_pool(groups: list[NodeGroup], expected: dict[str, str]) -> None:
    found = reports(planned(groups))
    assert found.keys() == expected.keys()
    for pool, text in expected.items():
        (line,) = found[pool]
        assert text in line
    assert all(pool.mode.valid for pool in planned(groups).pools if pool.id.name != "b" or "b" not in expected)


def test_the_record_sets_a_fallback_too() -> None:
    rules = (PoolRule(name="b", own={"fallback_for": "x"}),)
    assert reports(planned(pools("a", "b"), pools=rules)).keys() == {"b"}


def test_a_chain_leads_to_each_pool_before_it() -> None:
    found = planned(
        pools("a", "b", "c", b="a", c="b"), {"c": PoolState(held_nodes=holds("c", a=1, b=1), seen=seen("c", a=2, b=2))}
    )
    assert reports(found) == {}
    assert "holds 2 nodes for pool b" in sentences(named(found, "c").report.notes)


@pytest.mark.parametrize(
    ("before", "was", "fenced", "expected"),
    [
        (0, 0, [("first", "a"), ("first", "b")], 2),  # grew by two while the first pool failed
        (0, 0, [("first", "a")], 2),  # pods of that zone
        (0, 0, [("first", "b")], 0),  # the first pool could have taken them
        (0, 0, [], 0),
        (1, 1, [("first", "a")], 2),
        (3, 5, [("first", "a")], 0),  # removed nodes count as held first
        (3, 4, [], 1),
        (2, 2, [], 2),
        (9, 2, [], 2),  # never more than all nodes
    ],
)
def test_a_fallback_holds_what_it_gained_while_the_first_pool_failed(before, was, fenced, expected) -> None:
    assert held(before, was, fenced=fenced) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bounds": Bounds(0, 2)}, 2),  # closed while Evenkeel orders its released replicas, or during a step
        ({"bounds": Bounds(0, 3)}, 0),
        ({"bounds": Bounds(0, 2), "zone_max": 2}, 0),  # the user's own limit
        ({"bounds": Bounds(0, 2), "pool_max": 4}, 0),
        ({"bounds": None}, 0),
    ],
)
def test_nodes_that_an_autoscaler_could_not_order_in_a_closed_first_pool_are_held(fields, expected) -> None:
    groups = [
        replace(each, **fields) if each.identity.pool_label == "first" else each
        for each in pools("first", "spare", spare="first")
    ]
    state = {"spare": PoolState(seen=seen("spare", a=0, b=2))}
    assert sum(named(planned(groups, state), "spare").next_state.held_nodes.values()) == expected
    alone = planned(groups, state, autoscaler=False)
    assert named(alone, "spare").next_state.held_nodes == {}  # Evenkeel's own orders are not limited by bounds


def test_a_full_first_pool_and_nodes_for_the_minimum_are_not_held() -> None:
    failing = [("first", "a"), ("first", "b")]
    groups = pools("first", "spare", spare="first")
    least = [replace(each, pool_min=3) if each.identity.pool_label == "spare" else each for each in groups]
    state = {"spare": PoolState(seen=seen("spare", a=0, b=2))}
    assert named(planned(least, state, failing), "spare").next_state.held_nodes == holds("spare", a=1)
    full = [group(zone, 5, pool="first", bounds=(0, 9), pool_max=9, pool_min=0) for zone in "ab"]
    assert named(planned([*full, *groups[2:]], state, failing), "spare").next_state.held_nodes == {}


def test_without_the_setting_nothing_is_held() -> None:
    found = planned(
        pools("first", "spare"), {"spare": PoolState(held_nodes=holds("spare", a=2, b=1), seen=seen("spare", a=2, b=2))}
    )
    assert named(found, "spare").next_state.held_nodes == {}
    assert named(found, "first").next_state.convergence == ConvergenceState()


@pytest.mark.parametrize(("spare", "released"), [("first", True), (None, False)])
def test_stuck_replicas_are_released_if_a_fallback_takes_their_pods(spare: str | None, released: bool) -> None:
    groups = pools("first", "spare", **({"spare": spare} if spare else {}))
    groups[0] = group("a", 4, running=2, pool="first", bounds=(0, 9), pool_max=9, pool_min=0)
    found = named(planned(groups, fenced=[("first", "a"), ("first", "b")]), "first")
    assert [each.requested for each in found.groups] == [2 if released else 4, 2]


def test_a_full_fallback_takes_no_pods_of_released_replicas() -> None:
    groups = pools("first", "spare", spare="first")
    groups[0] = group("a", 4, running=2, pool="first", bounds=(0, 9), pool_max=9, pool_min=0)
    full = [replace(each, pool_max=4) if each.identity.pool_label == "spare" else each for each in groups]
    found = named(planned(full, fenced=[("first", "a"), ("first", "b")]), "first")
    assert [each.requested for each in found.groups] == [4, 2]


def test_nodes_that_any_pool_before_it_could_take_are_not_held() -> None:
    state = {"c": PoolState(seen=seen("c", a=0, b=2))}
    found = planned(pools("a", "b", "c", b="a", c="b"), state, [("a", "a"), ("a", "b")])
    assert named(found, "c").next_state.held_nodes == {}


@pytest.mark.parametrize(
    ("fenced", "taker"), [([], "a"), ([("a", "b")], "b"), ([("a", "b"), ("b", "a")], ""), ([("b", "a")], "a")]
)
def test_nodes_return_to_the_most_preferred_pool_without_a_fence(fenced: list[tuple[str, str]], taker: str) -> None:
    long_ago = PoolState(convergence=ConvergenceState(uneven_since=NOW - 60 * MINUTE))
    state = PoolState(held_nodes=holds("c", a=1), seen=seen("c", a=2, b=2))
    known = {"a": long_ago, "b": long_ago, "c": state}
    found = planned(pools("a", "b", "c", b="a", c="b"), known, fenced, level=Level.CONVERGE)
    takers = [pool.id.name for pool in found.pools if str(key("a", pool="c")) in pool.convergence.asks]
    assert takers == ([taker] if taker else [])


@pytest.mark.parametrize(("taken", "left"), [(0, 2), (1, 1), (2, 0), (5, 0)])
def test_nodes_that_a_fallback_gains_replace_released_replicas(taken: int, left: int) -> None:
    def world(first: int, running: int, spare: int) -> Plan:
        groups = pools("first", "spare", spare="first")
        groups[0] = group("a", first, running=running, pool="first", bounds=(0, 9), pool_max=9, pool_min=0)
        groups[2] = group("a", spare, pool="spare", bounds=(0, 9), pool_max=9, pool_min=0)
        return plan(Observation(groups=tuple(groups)), state, make(Policy, strategy=BALANCED), at)

    at = NOW
    health = {key(zone, pool="first"): in_backoff() for zone in "ab"}
    state = ClusterState(groups=health)
    found = named(world(4, 2, 2), "first")
    release = found.release.planned
    assert release is not None
    assert release.replicas == 2
    at = NOW + 2 * MINUTE
    state = ClusterState(groups=health, pools={found.id: replace(found.next_state, release=release)})
    later = world(2, 2, 2 + taken)
    assert named(later, "first").release.not_reordered == left
    incidents = evaluate(ClusterHealth(), later, health, timedelta(0)).incidents
    assert sum(incident.not_reordered for incident in incidents) == left
    state = replace(state, pools={**state.pools, **later.pool_states})
    returned = 2 + min(taken, 2)
    assert named(world(returned, returned, 2), "first").release.not_reordered == left


def test_a_fallback_that_a_person_adds_after_the_release_replaces_nothing() -> None:
    health = {key("a", pool="first"): in_backoff()}
    first = group("a", 2, pool="first", bounds=(0, 9), pool_max=9, pool_min=0)
    release = Release(at=NOW - MINUTE, replicas=2, requested={str(first.key): 2})
    id = PoolId("cluster-api", "default", "", "first")
    state = ClusterState(groups=health, pools={id: PoolState(release=release)})
    groups = (first, *pools("spare", spare="first"))
    found = plan(Observation(groups=groups), state, make(Policy, strategy=BALANCED), NOW)
    assert named(found, "first").release.not_reordered == 2


def test_a_node_removed_in_another_zone_is_no_held_one() -> None:
    state = PoolState(held_nodes=holds("spare", a=2), seen=seen("spare", a=2, b=4))
    found = planned(pools("first", "spare", spare="first"), {"spare": state})
    assert named(found, "spare").next_state.held_nodes == holds("spare", a=2)


def test_a_step_that_levels_a_fallback_moves_a_held_node() -> None:
    a, b = (str(key(zone, pool="spare")) for zone in "ab")
    machine = MachineRef(name="m", uid="m")
    order = Order(
        source=a, destination=b, begun_at=NOW, target_replicas=2, source_replicas=3, excused_replicas=3
    )  # fmt: skip
    step = Deleting(phase="deleting", order=order, draining_group=a, machine=machine, delete_move_id="x")
    state = PoolState(
        held_nodes=holds("spare", a=2), seen=seen("spare", a=3, b=2), convergence=ConvergenceState(step=step)
    )
    found = planned(pools("first", "spare", spare="first"), {"spare": state})
    assert named(found, "spare").next_state.held_nodes == holds("spare", a=1, b=1)


def test_plan_status_page_and_explain_show_the_held_nodes() -> None:
    stack = Stack(pools("first", "spare", spare="first"), pools=[])
    stack.run()
    id = PoolId("cluster-api", "default", "", "spare")
    loaded = stack.store.load("demo")
    state = replace(loaded.state.pools[id], held_nodes=holds("spare", a=2, b=1))
    stack.store.save_pool("demo", id, state, loaded.versions)
    says = "holds 3 nodes for pool first"
    assert_note_is_shown(stack, says, "spare")
    (pool,) = [pool for pool in stack.ask("plan")["plan"]["pools"] if pool["name"] == "spare"]
    (rule,) = [rule for rule in pool["noteRules"] if rule["rule"] == "holds-nodes"]
    assert (rule["nodes"], rule["pool"]) == (3, "first")


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({}, True),
        ({"survive_zones": SurviveZones.ONE, "bounds": Bounds(2, 9)}, False),
        ({"survive_zones": SurviveZones.ONE, "bounds": Bounds(1, 9)}, True),
        ({"survive_zones": SurviveZones.NONE, "bounds": Bounds(2, 9)}, True),
    ],
)
def test_no_node_returns_without_which_the_fallback_would_not_survive(fields: dict[str, object], *, asks: bool) -> None:
    groups = [
        replace(each, **fields) if each.identity.pool_label == "spare" else each
        for each in pools("first", "spare", spare="first")
    ]
    state = PoolState(held_nodes=holds("spare", a=1), seen=seen("spare", a=2, b=2))
    long_ago = PoolState(convergence=ConvergenceState(uneven_since=NOW - 60 * MINUTE))
    found = planned(groups, {"spare": state, "first": long_ago}, level=Level.CONVERGE)
    assert bool(named(found, "first").convergence.asks) is asks
