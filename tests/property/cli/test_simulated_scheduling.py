"""A scenario's pod fits the same nodes by the simulation's scheduler and by Evenkeel's, two separate programs."""

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.workload import Pod, Workload
from evenkeel_cli.simulation.scenario import NodeSize, PodsSetup
from evenkeel_cli.simulation.scheduling import NodeInfo, PodGroup, Scheduler, fill
from evenkeel_cli.simulation.workload_view import needs_of, node_of
from tests.builders import NOW

OURS = MachineNode(group=GroupKey("cluster-api", "simulated", "workers"))

kinds = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([0, "250m", "1", "1500m"]),
        "memory": st.sampled_from([0, "512Mi", "1Gi", "3G"]),
        "pool": st.sampled_from([None, None, "large"]),
        "zones": st.sampled_from([(), (), ("a",), ("a", "b")]),
        "selector": st.sampled_from([{}, {}, {"disk": "ssd"}]),
        "spread": st.sampled_from([{}, {}, {"zone": 1}, {"zone": 2, "node": 1}, {"node": 2}]),
    }
).map(lambda drawn: {"count": 0, **drawn})


@st.composite
def boards(draw: st.DrawFn) -> tuple[Scheduler, list[PodGroup]]:
    found: list[dict[str, Any]] = draw(st.lists(kinds, min_size=1, max_size=3))
    drawn = [PodGroup(PodsSetup.model_validate({"name": f"k{i}", **fields})) for i, fields in enumerate(found)]
    scheduler = Scheduler()
    for number in range(draw(st.integers(1, 5))):
        size = {
            "cpu": draw(st.sampled_from([2, 4])),
            "memory": draw(st.sampled_from(["4Gi", "8Gi"])),
            "labels": draw(st.sampled_from([{}, {"disk": "ssd"}])),
        }
        pool = draw(st.sampled_from(["small", "large"]))
        node = NodeInfo.of(f"n{number}", pool, draw(st.sampled_from("abc")), NodeSize.model_validate(size))
        node.is_open = draw(st.sampled_from([True, True, True, False]))
        for kind in drawn:
            node.put(kind, draw(st.sampled_from([0, 0, 1, 2, 109])))
        scheduler.nodes[node.name] = node
    return scheduler, drawn


def pod(kind: PodGroup, number: int) -> Pod:
    return Pod(
        namespace="simulated",
        name=f"{kind.name}-{number}",
        created_at=NOW,
        needs=needs_of(kind),
        labels={"app": kind.name},
    )


@given(boards())
def test_simulated_pods_are_bound_exactly_where_they_fit(drawn: tuple[Scheduler, list[PodGroup]]) -> None:
    scheduler, found = drawn
    theirs, snapshot = PodGroups(Volumes(Workload())), ClusterSnapshot({})
    one_of = {kind: theirs.of(pod(kind, 0)) for kind in found}
    for node in scheduler.nodes.values():
        standing = Counter({one_of[kind]: count for kind, count in node.kinds.items() if count})
        snapshot.add_node(node_of(node, OURS, NOW), standing)
    for kind in found:
        for name, node in scheduler.nodes.items():
            reason = snapshot.failing_filter(one_of[kind], snapshot.node_infos[name])
            event(reason.rule.value if reason else "fits")
            assert fits(scheduler, kind, node) is (reason is None), (name, reason)


@given(boards(), st.integers(1, 8))
def test_pods_are_placed_one_after_another_on_the_emptiest_node_that_they_fit(
    drawn: tuple[Scheduler, list[PodGroup]], pods: int
) -> None:
    scheduler, found = drawn
    for kind in found:
        places = scheduler.emptiest_first(kind)
        for _ in range(pods):
            fitting = [node for node in scheduler.nodes.values() if fits(scheduler, kind, node)]
            expected = min(fitting, key=emptiness, default=None)
            assert next(places, None) is expected
            if expected is None:
                break
            scheduler.put(kind, expected)


@given(boards(), st.integers(1, 8))
def test_pods_fill_the_first_nodes_that_they_fit(drawn: tuple[Scheduler, list[PodGroup]], pods: int) -> None:
    scheduler, found = drawn
    nodes = list(scheduler.nodes.values())
    for kind in found:
        alone = scheduler.copy()
        put = fill(kind, nodes, pods, scheduler.counts(kind), partial(scheduler.put, kind))
        singly = 0
        while singly < pods and (node := alone.first(kind)) is not None:
            alone.put(kind, node)
            singly += 1
        assert put == singly
        assert [node.kinds[kind] for node in nodes] == [node.kinds[kind] for node in alone.nodes.values()]


def fits(scheduler: Scheduler, kind: PodGroup, node: NodeInfo) -> bool:
    return next(scheduler.emptiest_first(kind, (node,)), None) is node


def emptiness(node: NodeInfo) -> tuple[float, str]:
    return node.used_cpu / node.cpu + node.used_memory / node.memory, node.name
