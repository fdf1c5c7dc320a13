"""A pool with survive-zones whose pods are read: every pod that may run elsewhere finds a place, without a contest."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import ZONE, Workload
from evenkeel.domain.plan import plan
from evenkeel.state_records import ScaleRequestRecord
from tests.builders import NOW, Played, group, key, numbers, requested
from tests.parts import replace
from tests.property.survival.test_counts_properties import arrive, result_of, surviving
from tests.workloads import node, pod, template
from tests.world import CORES, MINUTE, App
from tests.world import World as Valley

POLICY = replace(surviving(numbers(0, 40)), demand=DemandStage.ADVISE)
Sizes = Mapping[str, Sequence[Sequence[int]]]  # zone -> node -> cores of its pods


def find_place(pods: Sequence[int], free: Sequence[int]) -> bool:
    """Return True if these pods, by cores, fit the free cores of these nodes. Every way is tried."""
    if not pods:
        return True
    first, *others = sorted(pods, reverse=True)
    tried = set()
    for i, room in enumerate(free):
        if room >= first and room not in tried:
            tried.add(room)
            if find_place(others, [*free[:i], room - first, *free[i + 1 :]]):
                return True
    return False


def survives(nodes: Sizes) -> bool:
    return all(
        find_place(
            [size for sizes in nodes[zone] for size in sizes],
            [CORES - sum(sizes) for other in nodes if other != zone for sizes in nodes[other]],
        )
        for zone in nodes
    )


@st.composite
def worlds(draw: st.DrawFn) -> Sizes:
    of_node = st.lists(st.integers(1, 3), max_size=3).filter(lambda sizes: sum(sizes) <= CORES)
    zones = "abcd"[: draw(st.integers(2, 4))]
    return {zone: draw(st.lists(of_node, max_size=3)) for zone in zones}


def workload_of(nodes: Sizes, bound: str = "") -> Workload:
    """Return the pods and nodes. Every second pod of zone ``bound`` is bound to its zone."""
    found = [(zone, f"{zone}{i}", sizes) for zone in nodes for i, sizes in enumerate(nodes[zone])]
    pods = [
        pod(
            f"{name}-{j}",
            cpu=str(size),
            memory="1",
            node=name,
            **({"node_selector": {ZONE: zone}} if zone == bound and j % 2 else {}),
        )
        for zone, name, sizes in found
        for j, size in enumerate(sizes)
    ]
    return Workload(pods=tuple(pods), nodes=tuple(node(name, zone, group=key(zone)) for zone, name, _ in found))


def seen(nodes: Sizes, bound: str = "") -> Observation:
    groups = tuple(group(zone, len(nodes[zone]), template=template()) for zone in nodes)
    return Observation(groups=groups, workload=workload_of(nodes, bound))


@given(worlds(), st.sampled_from("-ab"))
def test_a_pool_reported_as_surviving_has_places_for_the_pods_of_any_zone(nodes: Sizes, bound: str) -> None:
    (pool,) = plan(seen(nodes, bound), ClusterState(), POLICY, NOW).pools
    free = {
        zone: [[size for j, size in enumerate(sizes) if zone != bound or not j % 2] for sizes in nodes[zone]]
        for zone in nodes
    }
    if result_of(pool).survives:
        for zone in nodes:
            room = [CORES - sum(sizes) for other in nodes if other != zone for sizes in nodes[other]]
            assert find_place([size for sizes in free[zone] for size in sizes], room)
    stuck = sum(len(sizes) // 2 for sizes in nodes.get(bound, ()))
    assert (result_of(pool).bound or {}) == ({bound: stuck} if stuck else {})


@given(worlds())
def test_what_is_ordered_suffices(nodes: Sizes) -> None:
    assume(not survives(nodes))
    play = Played(list(seen(nodes).groups), POLICY)
    play.workload = workload_of(nodes)
    pool = play.check()
    assert sum(requested(pool)) > sum(map(len, nodes.values()))
    more = {
        zone: [*nodes[zone], *[[]] * (count - len(nodes[zone]))]
        for zone, count in zip(nodes, requested(pool), strict=True)
    }
    assert survives(more)
    arrive(play)
    play.workload = workload_of(more)
    pool = play.check(60)
    assert requested(pool) == tuple(map(len, more.values()))
    assert result_of(pool).survives


def sizes_in(valley: Valley) -> Sizes:
    return {
        zone: [
            [valley.apps[valley.pods[each].labels["app"]].milli // 1000 for each in valley.on(name)]
            for name in valley.node_names()
            if valley.zone_of(name) == zone
        ]
        for zone in valley.requested()
    }


@st.composite
def valleys(draw: st.DrawFn, **fields: Any) -> Valley:
    apps = [
        App(name=f"app{i}", pods=draw(st.integers(0, 4)), milli=1000 * draw(st.integers(1, 2)))
        for i in range(draw(st.integers(1, 2)))
    ]
    nodes = draw(st.lists(st.integers(0, 3), min_size=2, max_size=3))
    return Valley(apps, nodes=nodes, survive_zones="1", **fields)


def rest(valley: Valley, checks: int = 150) -> None:
    """Check until 25 checks change nothing. Then no pod waits, and the loss of any zone leaves every pod a place."""
    quiet, before = 0, None
    for _ in range(checks):
        valley.live(1)
        now = valley.ordered, tuple(valley.removed), tuple(valley.requested().items())
        quiet, before = (quiet + 1 if now == before else 0), now
        if quiet == 25:
            break
    assert quiet == 25
    assert all(each.node for each in valley.pods.values())
    assert survives(sizes_in(valley))


@settings(max_examples=10)
@given(valleys())
def test_scale_down_and_survival_come_to_rest(valley: Valley) -> None:
    rest(valley)
    assert valley.faults == []


def cyclic(**fields: Any) -> Valley:
    """Return a world whose scheduler places a drained node's pod on the empty node that the pool needs."""
    return Valley([App("app0", 2, milli=1000), App("app1", 3, milli=2000)], nodes=(1, 3), survive_zones="1", **fields)


def test_scale_down_and_survival_come_to_rest_wherever_evicted_pods_go() -> None:
    rest(cyclic())


def reorders(valley: Valley, checks: int) -> int:
    """Return how often the pool orders a node after it has lost one."""
    found, has_lost = 0, False
    for _ in range(checks):
        ordered, removed = valley.ordered, len(valley.removed)
        valley.live(1)
        if valley.ordered > ordered:
            found, has_lost = found + has_lost, False
        has_lost = has_lost or len(valley.removed) > removed
    return found


@st.composite
def scattering_valleys(draw: st.DrawFn) -> Valley:
    level = draw(st.sampled_from([{}, {"level": "converge", "converge": {"per_hour": 60}}]))
    fields = {"every": 5 * MINUTE, "seed": draw(st.integers(0, 99)), **level}
    valley = draw(valleys(**fields)) if draw(st.booleans()) else cyclic(**fields)
    valley.apps["more"] = App("more", draw(st.integers(0, 2)), milli=500)
    valley.scatters = draw(st.booleans())
    return valley


@settings(max_examples=10)
@given(scattering_valleys())
def test_drains_that_do_not_help_are_repeated_ever_more_rarely(valley: Valley) -> None:
    found = reorders(valley, 96)
    assert found <= 4  # in 8 hours
    event(f"{found} reorders")


def test_the_same_drain_is_tried_again_after_one_two_and_four_hours() -> None:
    valley = cyclic(every=3 * MINUTE)
    assert reorders(valley, 160) == 3
    assert valley.faults == []


@settings(max_examples=10)
@given(valleys(demand="scale-up", level="converge", converge={"per_hour": 60}))
def test_convergence_and_survival_come_to_rest(valley: Valley) -> None:
    valley.live(8)
    ordered = valley.ordered
    rest(valley)
    assert valley.faults == []
    assert valley.ordered - ordered == len(valley.removed)  # one node is removed for each that a step orders


@settings(max_examples=20)
@given(valleys(demand="scale-up"), st.integers(1, 4))
def test_a_request_gives_back_no_node_that_survival_needs(valley: Valley, nodes: int) -> None:
    valley.live(8)
    ordered = valley.ordered
    record = ScaleRequestRecord(id="r", nodes=-nodes, pool="workers", at=valley.clock.now())
    valley.store.save_scale_request("demo", record, None)
    rest(valley)
    assert valley.store.load("demo").scale_requests["r"].done
    assert len(valley.lost) <= nodes
    # Evicted pods may take other places than those that the plan found. Otherwise no node is ordered again.
    assert valley.ordered - ordered <= (len(valley.lost) if valley.evicted else 0)
    event(f"{len(valley.lost)} of {nodes}")


def test_empty_nodes_of_a_large_zone_go_while_those_of_a_small_zone_are_enough() -> None:
    valley = Valley([App("free", 5, milli=1900)], nodes=(3, 2, 2), survive_zones="1")
    places = ["workers-c-6", "workers-c-6", "workers-c-7", "workers-c-7", "workers-a-1"]
    for name, place in zip(sorted(valley.pods), places, strict=True):
        valley.pods[name] = replace(valley.pods[name], node=place)
    rest(valley)
    assert valley.requested() == {"a": 1, "b": 2, "c": 2}
