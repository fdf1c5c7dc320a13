"""Groups, zones and clusters whose nodes are not Ready: orders, kept nodes, and the end."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.json import Decoder, encode

from evenkeel.adapters.kubernetes.read.workload_objects import NodeShape
from evenkeel.application.rebalancing.record import is_failing
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import DemandStage, Level, OnFailure
from evenkeel.domain.model.convergence import ConvergenceState
from evenkeel.domain.model.groups import Machine, NodeGroup, State
from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind, Severity
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.workload import ZONE, Node, Pod, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.unhealthy import PROBE_AFTER, TRIED_FOR, is_broken
from tests.builders import MINUTE, NOW, group, in_backoff, key
from tests.parts import make, replace
from tests.workloads import LONG_AGO, node, pod, pods, pool_id, template

TIMEOUT, SECOND = timedelta(minutes=15), timedelta(seconds=1)
FULL = make(
    Policy,
    strategy=BALANCED,
    autoscaler=False,
    demand=DemandStage.FULL,
    pools=(PoolRule(name="workers", min=0, max=60),),
)
NEXT_TO_CA = replace(FULL, autoscaler=True, demand=DemandStage.ADVISE)


def zone(name: str, nodes: int, broken: int = 0, **fields: Any) -> tuple[NodeGroup, list[Node]]:
    """Return a group and its nodes, of which so many are not Ready since six minutes. All were Ready before."""
    machines = tuple(
        Machine(name=f"{name}-{i}", uid=f"uid-{name}-{i}", has_node=True, created_at=LONG_AGO) for i in range(nodes)
    )
    found = group(name, nodes, template=template(), machines=machines, bounds=(0, 30), **fields)
    since = NOW - 6 * MINUTE
    there = [
        node(
            machine.name,
            name,
            group=found.key,
            machine=machine,
            created_at=LONG_AGO,
            ready=i >= broken,
            not_ready_since=since if i < broken else None,
        )
        for i, machine in enumerate(machines)
    ]
    return found, there


World = Sequence[tuple[NodeGroup, list[Node]]]


def planned(
    world: World,
    *waiting: Pod,
    policy: Policy = FULL,
    states: Mapping[Any, GroupState] | None = None,
    request: ScaleRequest | None = None,
    now: Any = NOW,
    workload: Workload | None = None,
) -> Plan:
    """Return the plan. Each Ready node is full."""
    nodes = tuple(each for _, nodes in world for each in nodes)
    full = tuple(pod(f"on-{each.name}", cpu="4", memory="1Gi", node=each.name) for each in nodes if each.ready)
    seen = Observation(
        groups=tuple(found for found, _ in world), workload=workload or Workload(nodes=nodes, pods=(*full, *waiting))
    )
    state = ClusterState(groups=dict(states or {}), scale_requests=() if request is None else (request,))
    return plan(seen, state, policy, now)


def added(found: Plan) -> dict[str, int]:
    return {each.group.identity.zone or "": each.requested - each.group.requested for each in found.pools[0].groups}


def states_of(found: Plan) -> list[State]:
    return [each.state for each in found.pools[0].groups]


def maxima(found: Plan) -> list[int]:
    return [each.bounds.max - each.requested for each in found.pools[0].groups if each.bounds is not None]


def bound(zone: str, number: int = 1) -> tuple[Pod, ...]:
    return pods(number, f"bound-{zone}", cpu="3", node_selector={ZONE: zone})


TEN = pods(10, "free", cpu="3")


def test_a_zone_whose_nodes_are_all_broken_gets_none_of_ten_new_nodes() -> None:
    found = planned([zone("a", 10, 10), zone("b", 10), zone("c", 10)], *TEN)
    assert added(found) == {"a": 0, "b": 5, "c": 5}
    assert states_of(found) == [State.UNHEALTHY, State.HEALTHY, State.HEALTHY]


@pytest.mark.parametrize(
    ("nodes", "broken", "unhealthy"),
    [
        (8, 4, True),
        (9, 4, False),
        (8, 3, False),
        (3, 3, True),
        (2, 2, True),
        (1, 1, False),
        (0, 0, False),
        (20, 9, False),
        (20, 10, True),
    ],
)
def test_a_zone_is_unhealthy_by_its_count(nodes: int, broken: int, *, unhealthy: bool) -> None:
    found = planned([zone("a", nodes, broken), zone("b", 30)])
    assert (states_of(found)[0] is State.UNHEALTHY) is unhealthy


def test_it_ends_by_count_at_once() -> None:
    before = {key("a"): GroupState(unhealthy_since=NOW - MINUTE)}
    found = planned([zone("a", 8, 3), zone("b", 8)], states=before)
    assert states_of(found) == [State.HEALTHY, State.HEALTHY]
    assert found.states[key("a")].unhealthy_since is None


def test_a_new_node_is_not_broken_until_the_provision_timeout() -> None:
    young = node("n", created_at=NOW - TIMEOUT + SECOND, ready=False)
    assert not is_broken(young, TIMEOUT, NOW)
    assert is_broken(young, TIMEOUT, NOW + SECOND)
    assert not is_broken(replace(young, ready=True), TIMEOUT, NOW + MINUTE)


@pytest.mark.parametrize(
    ("known", "broken"),
    [
        ({}, True),
        ({"not_ready_since": NOW - MINUTE}, False),
        ({"not_ready_since": NOW - TIMEOUT}, True),
        ({"machine": Machine(name="m", has_node=True, created_at=NOW - MINUTE)}, False),
        ({"machine": Machine(name="m", has_node=True, created_at=LONG_AGO)}, True),
        ({"created_at": NOW + MINUTE}, False),
    ],
)
def test_a_node_without_a_creation_time_has_another_time(known: dict[str, Any], *, broken: bool) -> None:
    assert is_broken(node("n", ready=False, **known), TIMEOUT, NOW) is broken


def test_a_starting_node_shows_nothing() -> None:
    found, nodes = zone("a", 8, 4)
    starting = [node(f"new-{i}", "a", group=found.key, created_at=NOW - MINUTE, ready=False) for i in range(4)]
    assert states_of(planned([(found, [*nodes, *starting]), zone("b", 9)]))[0] is State.UNHEALTHY
    assert states_of(planned([(found, [*nodes[4:], *starting]), zone("b", 9)]))[0] is State.HEALTHY


@pytest.mark.parametrize(("statuses", "ready"), [(("False", "True"), True), (("Unknown", "False"), False), ((), False)])
def test_of_contradicting_conditions_one_true_is_enough(statuses: tuple[str, ...], *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": status} for status in statuses]
    item = {"metadata": {"name": "n"}, "status": {"conditions": conditions}}
    found = Decoder(NodeShape).decode(encode(item)).read({})
    assert (found.ready, is_broken(found, TIMEOUT, NOW)) == (ready, not ready)


def test_nodes_of_no_group_and_nodes_that_are_being_deleted_do_not_count() -> None:
    found, nodes = zone("a", 6, 4)
    others = [node(f"other-{i}", "a", created_at=LONG_AGO, ready=False) for i in range(10)]
    assert states_of(planned([(found, [*nodes[3:], *others]), zone("b", 6)])) == [State.HEALTHY] * 2
    going = [replace(each, deleting=not each.ready) for each in nodes]
    assert states_of(planned([(found, going), zone("b", 6)])) == [State.HEALTHY] * 2


def test_two_nodes_of_one_machine_count_once() -> None:
    """A machine has registered again under another name, and its former node is still listed."""
    found, nodes = zone("a", 4, 4)
    again = [replace(each, name=f"{each.name}-again", ready=True, not_ready_since=None) for each in nodes[:2]]
    assert states_of(planned([(found, [*nodes, *again]), zone("b", 6)]))[0] is State.HEALTHY
    twice = [replace(each, name=f"{each.name}-again") for each in nodes]
    world = [zone("b", 10), (found, [*nodes, *twice])]
    reason = planned(world).pools[0].groups[0].group.status.unhealthy
    assert reason is not None
    assert reason.facts == {"zone": "a", "broken": 4, "nodes": 4, "tried": 0}


def test_pools_of_one_zone_are_counted_together() -> None:
    other = group("a", 2, pool="spare", key=key("a", pool="spare"), template=template(), bounds=(0, 30))
    there = [node(f"spare-{i}", "a", group=other.key, created_at=LONG_AGO) for i in range(2)]
    policy = replace(FULL, pools=(*FULL.pools, PoolRule(name="spare", min=0, max=60)))
    found = planned([zone("a", 8, 8), zone("b", 8), (other, there)], policy=policy)
    (spare,) = next(pool for pool in found.pools if pool.id.name == "spare").groups
    assert spare.state is State.UNHEALTHY
    assert spare.reasons[0].rule is Rule.ZONE_UNHEALTHY
    healthy = replace(other, zone="b", key=key("b", pool="spare"))
    many = [replace(each, group=healthy.key, ready=False, not_ready_since=NOW - 6 * MINUTE) for each in there]
    found = planned([zone("a", 8), zone("b", 8), (healthy, many)], policy=policy)
    (spare,) = next(pool for pool in found.pools if pool.id.name == "spare").groups
    assert spare.reasons[0].rule is Rule.GROUP_UNHEALTHY


def test_a_group_without_a_zone_is_counted_alone() -> None:
    (found, nodes), other = zone("a", 4, 4, in_zone=None), zone("b", 4)
    nodes = [replace(node, labels={}) for node in nodes]
    reason = planned([(found, nodes), other]).pools[0].groups[0].reasons[0]
    assert (reason.rule, reason.facts["broken"]) == (Rule.GROUP_UNHEALTHY, 4)


# one node at a time


def test_pods_that_no_other_zone_can_take_get_one_node_at_a_time() -> None:
    world = [zone("a", 8, 4), zone("b", 8)]
    found = planned(world, *bound("a", 5))
    assert added(found) == {"a": 1, "b": 0}
    (advice,) = [pool.demand.advice for pool in found.pools]
    assert advice is not None
    assert [len(each.pods) for each in advice.asked.pending] == [1]
    on_its_way = [(replace(world[0][0], requested=9), world[0][1]), world[1]]
    assert added(planned(on_its_way, *bound("a", 5))) == {"a": 0, "b": 0}
    registered = node("new", "a", group=key("a"), created_at=NOW - MINUTE, ready=False)
    there = [(replace(world[0][0], requested=9, running=9), [*world[0][1], registered]), world[1]]
    assert added(planned(there, *bound("a", 5))) == {"a": 0, "b": 0}
    placed = [(there[0][0], [*world[0][1], replace(registered, ready=True)]), world[1]]
    assert added(planned(placed, *bound("a", 4)))["a"] > 1, "4 of 9 are not too many"


def test_no_node_is_tried_while_another_zone_gets_nodes() -> None:
    found = planned([zone("a", 8, 8), zone("b", 8)], *bound("a", 2), *bound("b"))
    assert added(found) == {"a": 0, "b": 1}


def test_one_node_is_tried_in_one_of_two_unhealthy_zones() -> None:
    world = [zone("a", 8, 8), zone("b", 9, 9), zone("c", 9)]
    assert added(planned(world, *bound("a", 2), *bound("b", 2))) == {"a": 1, "b": 0, "c": 0}
    first = [(replace(world[0][0], requested=9), world[0][1]), *world[1:]]
    assert added(planned(first, *bound("a", 2), *bound("b", 2))) == {"a": 0, "b": 1, "c": 0}


def test_pods_that_fit_a_healthy_zone_at_its_maximum_get_a_node_in_the_unhealthy_one() -> None:
    found = planned([zone("a", 8, 8), zone("b", 8, zone_max=8)], *TEN)
    assert added(found) == {"a": 1, "b": 0}


def test_an_unhealthy_zone_that_also_fails_waits_for_its_backoff() -> None:
    found, nodes = zone("a", 8, 8)
    born = NOW - TIMEOUT
    never = node("never", "a", group=found.key, created_at=born, ready=False, not_ready_since=born)
    world = [(replace(found, requested=9, running=9), [*nodes, never]), zone("b", 8)]
    assert added(planned(world, *bound("a", 2))) == {"a": 0, "b": 0}


# the cluster rests


@pytest.mark.parametrize("zones", [(5, 5, 5), (15,), (2, 2, 2)])
def test_nothing_is_ordered_or_removed_while_every_node_is_broken(zones: tuple[int, ...]) -> None:
    world = [zone("abc"[i], nodes, nodes) for i, nodes in enumerate(zones)]
    idle = {
        found.key: GroupState(unneeded={each.name: LONG_AGO for each in nodes}, unhealthy_since=LONG_AGO)
        for found, nodes in world
    }
    for waiting in ((), (*TEN, *bound("a", 3))):
        found = planned(world, *waiting, states=idle)
        assert set(added(found).values()) == {0}
        assert not found.changes or all(each.requested == each.group.requested for each in found.changes)
        assert {each.reasons[0].rule for each in found.pools[0].groups} == {Rule.CLUSTER_UNHEALTHY}


def test_the_cluster_rests_if_what_remains_is_unhealthy() -> None:
    assert set(added(planned([zone("a", 9, 9), zone("b", 6, 3), zone("c", 2, 1)], *TEN)).values()) == {0}
    assert added(planned([zone("a", 9, 9), zone("b", 6, 2), zone("c", 3, 1)], *pods(2, cpu="3")))["c"] == 2


def test_a_zone_without_nodes_takes_over() -> None:
    found = planned([zone("a", 9, 9), zone("b", 0)], *pods(3, cpu="3"))
    assert added(found) == {"a": 0, "b": 3}


# nodes stay


def test_a_node_that_was_ready_stays_and_one_that_never_was_goes() -> None:
    found, nodes = zone("a", 6, 5)
    born = NOW - timedelta(hours=1)
    never = replace(nodes[0], created_at=born, not_ready_since=born + SECOND)
    unneeded = {each.name: NOW - 30 * MINUTE for each in nodes}
    clocks = {found.key: GroupState(unneeded=unneeded, unhealthy_since=LONG_AGO)}
    quiet = Workload(nodes=(never, *nodes[1:], *zone("b", 6)[1]))
    done = planned([(found, [never, *nodes[1:]]), zone("b", 6)], states=clocks, workload=quiet)
    removed = [ref.name for each in done.pools[0].groups for ref in each.removal.machines]
    assert [name for name in removed if name.startswith("a")] == [never.name]
    (advice,) = [pool.demand.advice for pool in done.pools]
    assert advice is not None
    needed = {each.node: each.needed.rule for each in advice.nodes if each.needed is not None}
    assert {needed[each.name] for each in nodes[1:]} == {Rule.ZONE_UNHEALTHY}


def test_a_request_by_number_takes_no_node_of_an_unhealthy_zone_and_a_named_group_is_the_persons_desired() -> None:
    world = [zone("a", 10, 10), zone("b", 4)]
    bare = Workload(nodes=tuple(each for _, nodes in world for each in nodes))
    asked = ScaleRequest(id="r", nodes=-3, at=NOW, pool="workers")
    assert added(planned(world, request=asked, workload=bare)) == {"a": 0, "b": -3}
    named = replace(asked, only=frozenset({"workers-a"}))
    assert added(planned(world, request=named, workload=bare)) == {"a": -3, "b": 0}
    more = ScaleRequest(id="r", nodes=3, at=NOW, pool="workers")
    assert added(planned(world, request=more)) == {"a": 0, "b": 3}
    assert added(planned(world, request=replace(more, only=frozenset({"workers-a"})))) == {"a": 3, "b": 0}


# next to an autoscaler


def test_next_to_an_autoscaler_max_is_the_target_and_after_five_minutes_one_more() -> None:
    world = [zone("a", 10, 10), zone("b", 10)]
    first = planned(world, policy=NEXT_TO_CA)
    assert maxima(first)[0] == 0 < maxima(first)[1]
    assert first.check_at == NOW + PROBE_AFTER + SECOND
    state = {key("a"): first.states[key("a")]}
    assert maxima(planned(world, policy=NEXT_TO_CA, states=state, now=NOW + PROBE_AFTER - SECOND))[0] == 0
    later = planned(world, policy=NEXT_TO_CA, states=state, now=NOW + PROBE_AFTER)
    assert (states_of(later)[0], maxima(later)[0]) == (State.PROBING, 1)
    ordered = [(replace(world[0][0], requested=11), world[0][1]), world[1]]
    assert maxima(planned(ordered, policy=NEXT_TO_CA, states=state, now=NOW + PROBE_AFTER))[0] == 0
    starting = node("new", "a", group=key("a"), created_at=NOW, ready=False)
    registered = [(replace(world[0][0], requested=11, running=11), [*world[0][1], starting]), world[1]]
    assert maxima(planned(registered, policy=NEXT_TO_CA, states=state, now=NOW + PROBE_AFTER))[0] == 0
    assert maxima(planned(registered, policy=NEXT_TO_CA, states=state, now=NOW + TIMEOUT))[0] == 0
    assert maxima(planned(world, policy=NEXT_TO_CA, states=state, now=NOW + TIMEOUT))[0] == 1, "it is gone"
    assert maxima(planned(registered, policy=NEXT_TO_CA, states=state, now=NOW + TRIED_FOR))[0] == 1


def test_a_group_without_fencing_keeps_its_room() -> None:
    found = planned([zone("a", 10, 10, fencing_enabled=False), zone("b", 10)], policy=NEXT_TO_CA)
    assert all(maxima(found))


def test_without_demand_nothing_changes() -> None:
    found = planned([zone("a", 10, 10), zone("b", 10)], policy=replace(NEXT_TO_CA, demand=DemandStage.OFF))
    assert states_of(found) == [State.HEALTHY] * 2


@pytest.mark.parametrize("minutes", [1, 120])
def test_a_check_that_cannot_read_the_nodes_keeps_what_the_last_one_found(minutes: int) -> None:
    world, before = [zone("a", 10, 10), zone("b", 10)], {key("a"): GroupState(unhealthy_since=NOW - minutes * MINUTE)}
    seen = Observation(groups=tuple(found for found, _ in world))
    found = plan(seen, ClusterState(groups=before), NEXT_TO_CA, NOW)
    assert (states_of(found), maxima(found)[0]) == ([State.UNHEALTHY, State.HEALTHY], 0)
    assert not found.states
    only_pods = planned(world, policy=NEXT_TO_CA, states=before, workload=Workload(whole=False))
    assert states_of(only_pods) == [State.UNHEALTHY, State.HEALTHY]
    assert not only_pods.states


def test_a_probed_unhealthy_group_is_not_published_as_failing() -> None:
    states = {key("a"): GroupState(unhealthy_since=NOW - 10 * MINUTE)}
    (pool,) = planned([zone("a", 10, 10), zone("b", 10)], policy=NEXT_TO_CA, states=states).pools
    assert pool.groups[0].state is State.PROBING
    assert is_failing(pool, PoolState()) == ()
    assert is_failing(pool, PoolState(is_failing=(str(key("a")),))) == (str(key("a")),)


# minima, survival


def test_pool_minimum_is_raised_in_healthy_zones_only() -> None:
    policy = replace(FULL, pools=(PoolRule(name="workers", min=24, max=60),))
    assert added(planned([zone("a", 10, 10), zone("b", 10)], policy=policy)) == {"a": 0, "b": 4}


def test_stuck_replicas_move_to_a_healthy_zone_only() -> None:
    a, b, c = zone("a", 6, 6), zone("b", 6), zone("c", 6)
    stuck = (replace(b[0], requested=8), b[1])
    states = {key("a"): GroupState(unhealthy_since=NOW - MINUTE), key("b"): in_backoff()}
    unread = Observation(groups=tuple(group for group, _ in (a, stuck, c)))
    found = plan(unread, ClusterState(groups=states), replace(FULL, on_failure=OnFailure.MOVE), NOW)
    assert added(found) == {"a": 0, "b": -2, "c": 2}


@pytest.mark.parametrize("broken", [0, 6])
def test_no_step_of_convergence_starts_while_a_zone_is_unhealthy(broken: int) -> None:
    world = [zone("a", 6, broken), zone("b", 6), zone("c", 2)]
    rules = (PoolRule(name="workers", min=0, max=60, level=Level.CONVERGE),)
    uneven = ConvergenceState(uneven_since=NOW - timedelta(hours=2))
    state = ClusterState(pools={pool_id(): PoolState(convergence=uneven)})
    nodes = tuple(each for _, nodes in world for each in nodes)
    full = tuple(pod(f"on-{each.name}", cpu="3", memory="1Gi", node=each.name) for each in nodes)
    seen = Observation(groups=tuple(found for found, _ in world), workload=Workload(nodes=nodes, pods=full))
    found = plan(seen, state, replace(FULL, pools=rules), NOW)
    assert added(found) == {"a": 0, "b": 0, "c": 0 if broken else 1}


@pytest.mark.parametrize("broken", [0, 6])
def test_no_node_is_ordered_to_survive_while_a_zone_is_unhealthy(broken: int) -> None:
    rules = (PoolRule(name="workers", min=0, max=60, own={"survive_zones": "1"}),)
    world = [zone("a", 6, broken), zone("b", 4), zone("c", 2)]
    more = sum(added(planned(world, policy=replace(FULL, pools=rules))).values())
    assert (more == 0) is bool(broken)


# incidents


def health_of(found: Plan, before: ClusterHealth | None = None) -> ClusterHealth:
    return evaluate(before or ClusterHealth(), found, found.states, 5 * MINUTE)


def test_an_incident_names_the_zones_after_the_delay_and_closes_at_once() -> None:
    since = {key("a"): GroupState(unhealthy_since=NOW - 5 * MINUTE)}
    world = [zone("a", 10, 10), zone("b", 10)]
    assert health_of(planned(world)).incidents == ()
    found = planned(world, states=since)
    opened = evaluate(ClusterHealth(), found, since, 5 * MINUTE)
    (incident,) = opened.incidents
    assert (incident.kind, incident.zones, incident.message) == (IncidentKind.ZONE_UNHEALTHY, ("a",), "10 of 10")
    assert (incident.since, incident.kind.severity) == (NOW - 5 * MINUTE, Severity.WARNING)
    unread = plan(Observation(groups=tuple(group for group, _ in world)), ClusterState(groups=since), FULL, NOW)
    assert evaluate(opened, unread, since, 5 * MINUTE).incidents == opened.incidents
    well = planned([zone("a", 10), zone("b", 10)], states=since)
    assert evaluate(opened, well, since, 5 * MINUTE).incidents == ()


def test_a_cluster_that_rests_for_a_moment_changes_no_incident() -> None:
    long = {key("a"): GroupState(unhealthy_since=NOW - 60 * MINUTE)}
    opened = evaluate(ClusterHealth(), planned([zone("a", 5, 5), zone("b", 5)], states=long), long, 5 * MINUTE)
    assert [incident.kind for incident in opened.incidents] == [IncidentKind.ZONE_UNHEALTHY]
    world = [zone("a", 5, 5), zone("b", 5, 5)]
    for minutes, kind in ((0, IncidentKind.ZONE_UNHEALTHY), (5, IncidentKind.CLUSTER_UNHEALTHY)):
        states = {**long, key("b"): GroupState(unhealthy_since=NOW - minutes * MINUTE)}
        (incident,) = evaluate(opened, planned(world, states=states), states, 5 * MINUTE).incidents
        assert incident.kind is kind


def test_a_resting_cluster_has_one_critical_incident() -> None:
    world = [zone("a", 5, 5), zone("b", 5, 5), zone("c", 5, 5)]
    since = {found.key: GroupState(unhealthy_since=NOW - 6 * MINUTE) for found, _ in world}
    (incident,) = evaluate(ClusterHealth(), planned(world, states=since), since, 5 * MINUTE).incidents
    assert (incident.kind, incident.pool, incident.message) == (IncidentKind.CLUSTER_UNHEALTHY, "", "15 of 15")
    assert incident.kind.severity is Severity.CRITICAL
