"""However many trials of nodes fail in a check, a node is removed only if each of its pods has a place."""

from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.demand.requests import CPU, host_ports, request_of
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer, ScaleDownState
from evenkeel.domain.model.workload import ZONE, HostPort, Node, Pod, Workload
from tests.builders import NOW
from tests.workloads import LONG_AGO, container, group_key, node, pod, pool_offer

ZONES = "abc"
#: A node has 4,000 m of cpu. Every pod requests a multiple of 100 m.
WHOLE = 40


@st.composite
def crowded(draw: st.DrawFn) -> tuple[tuple[Node, ...], tuple[Pod, ...], PoolOffer]:
    """Draw nodes at most half used, with so many pods of many needs that most trials fail."""
    zones = draw(st.lists(st.sampled_from(ZONES), min_size=2, max_size=9))
    nodes = tuple(node(f"n{i}", zone, group=group_key(zone)) for i, zone in enumerate(zones))
    pods = []
    for each, zone in zip(nodes, zones, strict=True):
        left = WHOLE // 2
        ports = draw(st.permutations([0, 80, 81]))
        for number in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 12))
            if size > left:
                break
            left -= size
            port = ports[number] if draw(st.booleans()) else 0
            part = container(cpu=f"{size}00m", memory="1Mi", ports=(HostPort(port=port),) if port else ())
            bound = {ZONE: zone} if draw(st.booleans()) else {}
            pods.append(pod(f"{each.name}-{number}", containers=(part,), node=each.name, node_selector=bound))
    minimum = draw(st.integers(0, 2))
    counts = Counter(zones)
    offer = pool_offer(min=minimum)
    groups = tuple(replace(group, requested=counts[group.zone]) for group in offer.groups if counts[group.zone])
    return nodes, tuple(pods), PoolOffer(pool=offer.pool, groups=groups, room=30, min=minimum)


@settings(max_examples=6 * settings().max_examples)
@given(crowded(), st.integers(1, 10))
def test_no_needed_node_is_removed_however_many_trials_were_made(
    world: tuple[tuple[Node, ...], tuple[Pod, ...], PoolOffer], most_empty: int
) -> None:
    nodes, pods, pool = world
    policy = DemandPolicy(most_empty=most_empty)
    clocks = {each.name: LONG_AGO for each in nodes}
    answer = scale_down(
        Simulation(Workload(nodes=nodes, pods=pods), (pool,), policy, NOW), ScaleDownState(clocks=clocks)
    )
    going = {removal.node for removal in answer.go}
    assert going.isdisjoint(answer.needed)
    assert answer.clocks.keys() == {each.name for each in nodes} - answer.needed.keys()
    assert len(nodes) - len(going) >= min(len(nodes), pool.min)
    by_name = {str(each): each for each in pods}
    where = {name: each.node for name, each in by_name.items()}
    for removal in answer.go:
        assert removal.places.keys() == {name for name, on in where.items() if on == removal.node}
        where |= removal.places
    assert going.isdisjoint(where.values())
    used: defaultdict[str, int] = defaultdict(int)
    ports: Counter[tuple[str, int]] = Counter()
    zones = {each.name: each.labels[ZONE] for each in nodes}
    for name, on in where.items():
        used[on] += request_of(by_name[name])[CPU]
        ports.update((on, port.port) for port in host_ports(by_name[name].needs))
        assert by_name[name].needs.node_selector.get(ZONE, zones[on]) == zones[on]
    assert all(amount <= 100 * WHOLE for amount in used.values())
    assert all(count == 1 for count in ports.values())
