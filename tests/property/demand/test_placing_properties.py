"""Properties of pods, nodes and places."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot, Places
from evenkeel.domain.demand.drainability import Budgets
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import _ScaleUp, scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer, ScaleDownState
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Container,
    HostPort,
    Node,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodDisruptionBudget,
    Requirement,
    Toleration,
    TopologySpreadConstraint,
    Workload,
)
from tests.builders import MINUTE, NOW
from tests.workloads import amounts, container, group_key, node, offer, pod, pool_id, selector, taint, template, why_not

APPS = ("web", "db")
ZONES = "abc"
KEYS = st.sampled_from([ZONE, HOSTNAME, "rack"])
selectors = st.sampled_from([selector("app in web"), selector("app in db"), selector("app exists"), (), None])
terms = st.lists(st.builds(lambda key, wanted: PodAffinityTerm(key=key, selector=wanted), KEYS, selectors), max_size=2)
spreads = st.builds(
    lambda key, wanted, skew, domains, taints: TopologySpreadConstraint(
        key=key, max_skew=skew, selector=wanted, min_domains=domains, honors_taints=taints
    ),
    KEYS,
    selectors,
    st.integers(1, 2),
    st.integers(1, 3),
    st.booleans(),
)
node_terms = st.none() | st.sampled_from(
    [
        (NodeSelectorTerm(selector(f"{ZONE} in a,b")),),
        (NodeSelectorTerm(selector("disk exists")),),
        (NodeSelectorTerm(fields=(Requirement("metadata.name", "NotIn", ("n0",)),)),),
    ]
)


@st.composite
def some_pods(draw: st.DrawFn, *, spread: bool = True, prefix: str = "p", nodes: tuple[str, ...] = ()) -> list[Pod]:
    found = []
    for kind in range(draw(st.integers(1, 4))):
        ports = (HostPort(80),) if draw(st.integers(0, 5)) == 0 else ()
        gpus = {"nvidia_com__gpu": 1} if draw(st.integers(0, 5)) == 0 else {}
        asks = container(
            cpu=f"{draw(st.integers(0, 8)) * 500}m", memory=f"{draw(st.integers(0, 6))}Gi", ports=ports, **gpus
        )
        fields: dict[str, Any] = {
            "containers": (asks,),
            "labels": draw(st.sampled_from([{}, {"app": "web"}, {"app": "db"}])),
            "namespace": draw(st.sampled_from(["default", "other"])),
            "tolerations": draw(st.sampled_from([(), (Toleration("team", "Exists"),)])),
            "node_selector": draw(st.sampled_from([{}, {}, {ZONE: "a"}])),
            "node_terms": draw(node_terms),
            "affinity": tuple(draw(terms)) if draw(st.integers(0, 3)) == 0 else (),
            "anti_affinity": tuple(draw(terms)) if draw(st.integers(0, 2)) == 0 else (),
            "spread": tuple(draw(st.lists(spreads, max_size=2))) if spread else (),
            "priority": draw(st.sampled_from([None, None, 5, -20])),
            "owner": draw(st.sampled_from([Owner("ReplicaSet", "r")] * 4 + [Owner("DaemonSet", "d"), None])),
        }
        for number in range(draw(st.integers(1, 4))):
            where = {"node": draw(st.sampled_from(nodes))} if nodes else {}
            found.append(pod(f"{prefix}{kind}-{number}", **fields, **where))
    return found


@st.composite
def some_nodes(draw: st.DrawFn, most: int = 5) -> list[Node]:
    nodes = []
    for number in range(draw(st.integers(0, most))):
        zone = draw(st.sampled_from(ZONES))
        labels = draw(st.sampled_from([{}, {"disk": "ssd"}, {"rack": "1"}, {"rack": "2", "disk": "ssd"}]))
        nodes.append(
            node(
                f"n{number}",
                zone,
                labels=labels,
                taints=draw(st.sampled_from([(), (), (taint("team=red:NoSchedule"),)])),
                size=draw(st.sampled_from([{}, {"cpu": "8"}, {"nvidia_com__gpu": "1"}, {"pods": "2"}])),
                unschedulable=draw(st.integers(0, 6)) == 0,
                ready=draw(st.integers(0, 6)) > 0,
                group=group_key(zone),
            )
        )
    return nodes


@st.composite
def workloads(draw: st.DrawFn, *, spread: bool = True) -> Workload:
    nodes = draw(some_nodes())
    names = tuple(each.name for each in nodes)
    running = draw(some_pods(prefix="r", nodes=names, spread=spread)) if names else []
    waiting = draw(st.just([]) | some_pods(prefix="w", spread=spread))
    budgets = [
        PodDisruptionBudget(
            namespace="default", name=app, selector=selector(f"app in {app}"), allowed=draw(st.integers(0, 2))
        )
        for app in APPS
    ]
    return Workload(nodes=tuple(nodes), pods=(*running, *waiting), budgets=tuple(budgets))


@st.composite
def offers(draw: st.DrawFn) -> tuple[PoolOffer, ...]:
    pools = []
    for name in ("workers", "large", "red")[: draw(st.integers(1, 3))]:
        size = {"large": {"cpu": "16", "memory": "64Gi", "nvidia_com__gpu": "2"}}.get(name, {})
        taints = (taint("team=red:NoSchedule"),) if name == "red" else ()
        groups = tuple(
            offer(
                zone,
                name,
                template=template({"disk": "ssd"} if zone == "a" else {}, taints, **size),
                requested=draw(st.integers(0, 3)),
                coming=draw(st.integers(0, 1)),
                room=draw(st.integers(0, 4)),
            )
            for zone in ZONES[: draw(st.integers(1, 3))]
        )
        pools.append(
            PoolOffer(pool=pool_id(name), groups=groups, room=draw(st.integers(0, 9)), min=draw(st.integers(0, 2)))
        )
    return tuple(pools)


def fits_somewhere(asking: Pod, nodes: list[Node], standing: list[Pod]) -> bool:
    if not nodes:
        return False
    snapshot, kinds = placed(nodes, standing)
    return any(snapshot.failing_filter(kinds.of(asking), room) is None for room in snapshot.node_infos.values())


def placed(nodes: list[Node], standing: list[Pod]) -> tuple[ClusterSnapshot, PodGroups]:
    workload = Workload(nodes=tuple(nodes), pods=tuple(standing))
    kinds = PodGroups(Volumes(workload))
    snapshot = ClusterSnapshot({})
    for each in nodes:
        snapshot.add_node(each, Counter(kinds.of(item) for item in standing if item.node == each.name))
    return snapshot, kinds


def names(nodes: list[Node]) -> tuple[str, ...]:
    return tuple(each.name for each in nodes)


@given(st.data())
def test_another_node_makes_no_pod_unschedulable(data: st.DataObject) -> None:
    """For any node, unless the pod spreads: a new domain in which it cannot run holds it everywhere else."""
    nodes = data.draw(some_nodes())
    standing = data.draw(some_pods(prefix="r", nodes=names(nodes), spread=False)) if nodes else []
    asking = data.draw(some_pods(spread=False))[0]
    new = data.draw(st.sampled_from([node("new", "c"), node("new", "z", taints=(taint("x=y:NoExecute"),))]))
    if fits_somewhere(asking, nodes, standing):
        assert fits_somewhere(asking, [*nodes, new], standing)


@given(st.data())
def test_another_large_node_makes_no_spreading_pod_unschedulable(data: st.DataObject) -> None:
    nodes = data.draw(some_nodes())
    standing = data.draw(some_pods(prefix="r", nodes=names(nodes), spread=False)) if nodes else []
    standing = [replace(each, needs=replace(each.needs, affinity=(), anti_affinity=())) for each in standing]
    asking = pod(labels={"app": "web"}, spread=(data.draw(spreads),), node_terms=data.draw(node_terms))
    new = node("new", data.draw(st.sampled_from("az")), labels={"rack": "9", "disk": "ssd"})
    if fits_somewhere(asking, nodes, standing):
        assert fits_somewhere(asking, [*nodes, new], standing)


@given(st.data())
def test_a_pod_that_fits_a_node_fits_a_larger_one(data: st.DataObject) -> None:
    nodes = data.draw(some_nodes(3).filter(bool))
    standing = data.draw(some_pods(prefix="r", nodes=names(nodes)))
    asking = data.draw(some_pods())[0]
    larger = {**nodes[0].allocatable}
    for name, amount in amounts(cpu="2", memory="3Gi", pods="5", nvidia_com__gpu="1").items():
        larger[name] = larger.get(name, 0) + amount * data.draw(st.integers(0, 2))
    if why_not(asking, *nodes, standing=standing) is None:
        assert why_not(asking, replace(nodes[0], allocatable=larger), *nodes[1:], standing=standing) is None


@given(st.data())
def test_incremental_counts_equal_counts_from_scratch(data: st.DataObject) -> None:
    """After each placed pod, added or removed node and reverted step, every pod is judged as from scratch."""
    nodes = data.draw(some_nodes().filter(bool))
    standing = data.draw(some_pods(prefix="r", nodes=names(nodes)))
    asking = data.draw(some_pods(prefix="w"))
    snapshot, kinds = placed(nodes, standing)
    marks = []

    def judged(where: ClusterSnapshot) -> dict[tuple[str, str], Rule | None]:
        return {
            (str(each), room.name): (reason.rule if (reason := where.failing_filter(kinds.of(each), room)) else None)
            for each in asking
            for room in where.node_infos.values()
        }

    judged(snapshot)
    for step in range(data.draw(st.integers(1, 5))):
        action = data.draw(st.sampled_from(["put", "add", "remove", "back"]))
        if action == "put" and snapshot.node_infos:
            marks.append((snapshot.fork(), judged(snapshot)))
            room = snapshot.node_infos[data.draw(st.sampled_from(sorted(snapshot.node_infos)))]
            snapshot.add_pod(kinds.of(data.draw(st.sampled_from(asking))), room)
        elif action == "add":
            marks.append((snapshot.fork(), judged(snapshot)))
            snapshot.add_node(node(f"more{step}", data.draw(st.sampled_from(ZONES))), {})
        elif action == "remove" and snapshot.node_infos:
            marks.append((snapshot.fork(), judged(snapshot)))
            snapshot.remove_node(snapshot.node_infos[data.draw(st.sampled_from(sorted(snapshot.node_infos)))])
        elif marks:
            fork, before = marks.pop()
            snapshot.revert(fork)
            assert judged(snapshot) == before
        anew = ClusterSnapshot({})
        for room in snapshot.node_infos.values():
            anew.add_node(room.node, room.pod_groups)
        assert judged(snapshot) == judged(anew)


@given(st.data())
def test_each_place_is_the_first_node_that_fits(data: st.DataObject) -> None:
    """In trials that remove a node and are kept or reverted, the search's later start skips no node that fits."""
    nodes = data.draw(some_nodes().filter(bool))
    standing = data.draw(some_pods(prefix="r", nodes=names(nodes)))
    asking = data.draw(some_pods(prefix="w"))
    snapshot, kinds = placed(nodes, standing)
    rooms = list(snapshot.node_infos.values())
    places = Places(snapshot, rooms)
    for _ in range(data.draw(st.integers(1, 4))):
        there = [room for room in rooms if room.name in snapshot.node_infos]
        if not there:
            return
        removed, fork = data.draw(st.sampled_from(there)), snapshot.fork()
        places.begin(removed)
        snapshot.remove_node(removed)
        for each in data.draw(st.lists(st.sampled_from(asking), max_size=5)):
            fitting = (
                room
                for room in rooms
                if room.name in snapshot.node_infos and snapshot.failing_filter(kinds.of(each), room) is None
            )
            first = next(fitting, None)
            assert places.place(kinds.of(each)) is first
        if data.draw(st.booleans()):
            snapshot.revert(fork)
            places.revert()


def cores(asking: Pod) -> Fraction:
    return sum((item.requests["cpu"] for item in asking.needs.resources.containers), start=Fraction(0))


def reported(answer: Any) -> Any:
    return replace(answer, pools=tuple(sorted(answer.pools, key=lambda pool: pool.pool)))


@given(workloads(), offers(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(workload: Workload, pools: tuple[PoolOffer, ...], chance: Any) -> None:
    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(chance.sample(items, len(items)))

    other = Workload(nodes=shuffled(workload.nodes), pods=shuffled(workload.pods), budgets=shuffled(workload.budgets))
    turned = shuffled(tuple(replace(pool, groups=shuffled(pool.groups)) for pool in pools))
    policy = DemandPolicy()
    assert reported(scale_up(Simulation(workload, pools, policy, NOW))) == reported(
        scale_up(Simulation(other, turned, policy, NOW))
    )
    clocks = ScaleDownState(clocks={each.name: NOW - timedelta(hours=1) for each in workload.nodes})
    assert scale_down(Simulation(workload, pools, policy, NOW), clocks) == scale_down(
        Simulation(other, turned, policy, NOW), clocks
    )


@given(workloads(), offers())
def test_each_pending_pod_has_one_answer_within_the_limits(workload: Workload, pools: tuple[PoolOffer, ...]) -> None:
    policy = DemandPolicy(most_nodes=6)
    answer = scale_up(Simulation(workload, pools, policy, NOW))
    placed = [name for pool in answer.pools for waiting in pool.pending for name in waiting.pods]
    everybody = [*answer.fits_already, *placed, *(item.pod for item in answer.not_counted)]
    everybody += [name for unmet in answer.unmet for name in unmet.pods]
    assert sorted(everybody) == sorted(str(each) for each in workload.pods if not each.node)
    assert answer.nodes <= policy.most_nodes
    for pool, asked in zip(pools, answer.pools, strict=True):
        assert asked.pool == pool.pool
        assert sum(asked.nodes.values()) <= pool.room
        assert all(
            count <= {each.group: each.room for each in pool.groups}[group] for group, count in asked.nodes.items()
        )


@given(workloads(), offers())
def test_new_nodes_have_room_for_their_pods(workload: Workload, pools: tuple[PoolOffer, ...]) -> None:
    """All cores that placed pods request exist, on new nodes and free space."""
    answer = scale_up(Simulation(workload, pools, DemandPolicy(), NOW))
    waiting = {str(each): each for each in workload.pods}
    there = sum(each.allocatable["cpu"] for each in workload.nodes)
    wanted = 0
    for pool, asked in zip(pools, answer.pools, strict=True):
        for each in pool.groups:
            there += each.template.capacity["cpu"] * (each.coming + asked.nodes.get(each.group, 0))
        wanted += sum(cores(waiting[name]) for each in asked.pending for name in each.pods)
    assert wanted <= there


@given(workloads(), offers())
def test_scale_up_leaves_nothing_behind_for_scale_down(workload: Workload, pools: tuple[PoolOffer, ...]) -> None:
    clocks = ScaleDownState(clocks={each.name: NOW - timedelta(hours=1) for each in workload.nodes})
    shared = Simulation(workload, pools, DemandPolicy(), NOW)
    start = shared.snapshot.fork()
    scale_up(shared)
    shared.snapshot.revert(start)
    assert scale_down(shared, clocks) == scale_down(Simulation(workload, pools, DemandPolicy(), NOW), clocks)


@given(workloads(spread=False), offers())
def test_a_pod_that_fits_nowhere_changes_no_order(workload: Workload, pools: tuple[PoolOffer, ...]) -> None:
    huge = pod("huge", containers=(Container(requests=amounts(cpu="10000")),), namespace="alone")
    before = scale_up(Simulation(workload, pools, DemandPolicy(), NOW))
    after = scale_up(Simulation(replace(workload, pods=(*workload.pods, huge)), pools, DemandPolicy(), NOW))
    assert [pool.nodes for pool in after.pools] == [pool.nodes for pool in before.pools]
    assert [unmet.reason.rule for unmet in after.unmet if unmet.pods == ("alone/huge",)] == [Rule.FITS_NO_POOL]


@given(workloads(), offers(), st.integers(0, 60))
def test_removed_nodes_are_unneeded_and_their_pods_have_places(
    workload: Workload, pools: tuple[PoolOffer, ...], minutes: int
) -> None:
    since = NOW - minutes * MINUTE
    answer = scale_down(
        Simulation(workload, pools, DemandPolicy(), NOW),
        ScaleDownState(clocks={each.name: since for each in workload.nodes}),
    )
    nodes = {each.name: each for each in workload.nodes}
    assert set(answer.clocks) | set(answer.needed) == set(nodes)
    assert not set(answer.clocks) & set(answer.needed)
    assert set(answer.waits) | {removal.node for removal in answer.go} == set(answer.clocks)
    assert minutes > 10 or not answer.go
    going = Counter(removal.group for removal in answer.go)
    for pool in pools:
        assert sum(going[each.group] for each in pool.groups) <= max(0, pool.requested - pool.min)
        assert all(going[each.group] <= max(0, each.requested - each.min) for each in pool.groups)
    assert sum(1 for removal in answer.go if removal.places) <= 1
    gone = {removal.node for removal in answer.go}
    used: dict[str, Fraction] = dict.fromkeys(nodes, Fraction(0))
    for each in workload.pods:
        if each.node and each.node not in gone and (each.priority or 0) >= -10:
            used[each.node] += cores(each)
    by_name = {str(each): each for each in workload.pods}
    for removal in answer.go:
        for name, place in removal.places.items():
            assert place not in gone
            assert nodes[place].ready
            assert not nodes[place].unschedulable
            arrives = cores(by_name[name])
            used[place] += arrives
            assert not arrives or used[place] <= nodes[place].allocatable["cpu"]
    for budget in workload.budgets:
        evicted = [
            name
            for removal in answer.go
            for name in removal.places
            if by_name[name].namespace == "default" and by_name[name].labels.get("app") == budget.name
        ]
        assert not evicted or budget.allowed > 0


@given(st.lists(st.integers(-1, 3), min_size=2, max_size=2), st.lists(st.sampled_from(APPS), max_size=8))
def test_budgets_are_counted_down_to_zero(allowed: list[int], evicted: list[str]) -> None:
    budgets = Budgets(
        PodDisruptionBudget(namespace="default", name=app, selector=selector(f"app in {app}"), allowed=number)
        for app, number in zip(APPS, allowed, strict=True)
    )
    before = dict(budgets.left)
    moving = [pod(f"p{number}", labels={"app": app}) for number, app in enumerate(evicted)]
    all_at_once = budgets.allow_all(moving)
    budgets.take(moving)
    for app in APPS:
        name = f"default/{app}"
        assert budgets.left[name] == max(0, before[name] - evicted.count(app))
    assert all_at_once == all(evicted.count(app) <= before[f"default/{app}"] for app in APPS)


@given(workloads(), offers())
def test_a_pool_that_its_bound_leaves_out_would_not_have_been_chosen(
    workload: Workload, pools: tuple[PoolOffer, ...]
) -> None:
    bounded = scale_up(Simulation(workload, pools, DemandPolicy(), NOW))
    with mock.patch.object(_ScaleUp, "_least_waste", return_value=float("-inf")):
        assert scale_up(Simulation(workload, pools, DemandPolicy(), NOW)) == bounded
