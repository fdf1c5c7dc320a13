"""A pod that Evenkeel could not place again keeps its node, for removal and for convergence."""

from datetime import timedelta
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from evenkeel.domain.convergence.machine_choice import choose
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.workload import Pod, PodVolume, Workload
from tests.builders import NOW
from tests.parts import replace
from tests.property.demand.test_placing_properties import offers, workloads

ODD: list[dict[str, Any]] = [
    {"resource_claims": ("gpu",)},
    {"unread": ("schedulingGroup",)},
    {"unread": ("workloadRef",)},
    {"unread": ("future", "hostname")},
    {"scheduler": "volcano"},
    {"volumes": (PodVolume("data", "awsElasticBlockStore"),)},
    {"volumes": (PodVolume("data", "rbd"),)},
]
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@st.composite
def odd_workloads(draw: st.DrawFn) -> tuple[Workload, set[str]]:
    """Return a workload of light pods, and the names of those whose needs Evenkeel cannot judge."""
    workload = draw(workloads(spread=False))
    pods, odd = [], set()
    for number, each in enumerate(workload.pods):
        pod = replace(each, name=f"{each.name}-{number}", needs=replace(each.needs, containers=(), affinity=()))
        if draw(st.integers(0, 5)) == 0:
            pod = replace(pod, needs=replace(pod.needs, **draw(st.sampled_from(ODD))))
            odd.add(str(pod))
        said = draw(st.sampled_from([None, None, "true", "false", "on-completion"]))
        pods.append(replace(pod, annotations={} if said is None else {SAFE: said}))
    nodes = tuple(
        replace(node, machine=Machine(name=f"m-{node.name}", uid=node.name, has_node=True, created_at=NOW))
        for node in workload.nodes
    )
    return replace(workload, nodes=nodes, pods=tuple(pods), whole=True), odd


def is_held(pod: Pod) -> bool:
    """Return True if the pod would be evicted: a DaemonSet's pod ends with its node."""
    return pod.owner is None or pod.owner.kind != "DaemonSet"


@given(odd_workloads(), offers())
def test_a_pod_that_cannot_be_placed_keeps_its_node(
    drawn: tuple[Workload, set[str]], pools: tuple[PoolOffer, ...]
) -> None:
    workload, odd = drawn
    held = {pod.node for pod in workload.pods if pod.node and str(pod) in odd and is_held(pod)}
    clocks = ScaleDownState(clocks={each.name: NOW - timedelta(hours=1) for each in workload.nodes})
    gone = {removal.node for removal in scale_down(Simulation(workload, pools, DemandPolicy(), NOW), clocks).go}
    event(f"held {bool(held)}, gone {bool(gone)}")
    assert not gone & held
    groups = {str(node.group) for node in workload.nodes}
    choices, _ = choose(Observation(groups=(), workload=workload), pools, dict.fromkeys(groups, ""), NOW)
    chosen = {choice.machine.name.removeprefix("m-") for choice in choices.values() if choice.machine is not None}
    event(f"held {bool(held)}, chosen {bool(chosen)}")
    assert not chosen & held
