"""One odd node starves no pod: the pod gets a node if a usual node would hold it, and its features are known."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.workload import ZONE, Node, Pod, Workload
from evenkeel.domain.plan import plan
from tests.builders import BALANCED, MINUTE, NOW, group, key
from tests.parts import make, replace
from tests.workloads import amounts, container, node, pod, taint, template

ZONES, CSI, GPU = "123", "topology.disk.csi.azure.com/zone", "nvidia.com/gpu"
LABELS = {"disk": "fast"}
SIZE = {"cpu": "4", "memory": "16Gi", GPU: "1"}
TEMPLATES = (template(labels=LABELS, **SIZE), template(), NodeTemplate(), NodeTemplate(labels=LABELS))


def label(zone: str) -> str:
    return f"westeurope-{zone}"


@dataclass(frozen=True)
class World:
    """Full nodes per zone, of which one may be odd, and a pod that is bound to one zone."""

    counts: tuple[int, ...]
    odd: str
    odd_zone: str
    promised: NodeTemplate
    waiting: Pod
    zone: str

    def nodes(self) -> list[Node]:
        found = []
        for zone, count in zip(ZONES, self.counts, strict=True):
            for number in range(count):
                labels = {**LABELS, CSI: label(zone)}
                age = timedelta(hours=9 - number)
                fields: dict[str, Any] = {"group": key(zone), "created_at": NOW - age, "labels": labels}
                found.append(node(f"n-{zone}-{number}", label(zone), size=SIZE, **fields))
            if zone == self.odd_zone and count:
                found[-1] = self.made_odd(found[-1])
        return found

    def made_odd(self, usual: Node) -> Node:
        """Return the newest node of the zone, made odd."""
        if self.odd == "taint":
            return replace(usual, taints=(taint("by=hand:NoSchedule"),))
        if self.odd == "label":
            return replace(usual, labels={**usual.labels, "disk": "slow"})
        if self.odd == "no label":
            return replace(usual, labels={name: value for name, value in usual.labels.items() if name != "disk"})
        if self.odd == "silent":
            return replace(usual, allocatable={**usual.allocatable, **amounts(**{GPU: 0})})
        return replace(usual, ready=False) if self.odd == "not ready" else usual

    def knows(self) -> bool:
        """Return True if the template or most Ready nodes show each feature that the pod needs."""
        usual = [each for each in self.nodes() if each.ready]
        counts = [sum(each.group == key(zone) for each in usual) for zone in ZONES]
        own = counts[ZONES.index(self.zone)]
        wants_label = "disk" in self.waiting.needs.node_selector
        wants_gpu = GPU in self.waiting.needs.resources.containers[0].requests
        wants_csi = CSI in self.waiting.needs.node_selector
        if own:  # the group's own nodes show it
            shown = [each for each in usual if each.group == key(self.zone)]
            fast = sum(each.labels.get("disk") == "fast" for each in shown)
            hand = sum(bool(each.taints) for each in shown)
            newest_is_fast = shown[-1].labels.get("disk") == "fast"
            has_label = newest_is_fast and (2 * fast > own or bool(self.promised.labels))
            devices = [each for each in usual if each.allocatable.get(GPU)]
            has_gpu = any(each in devices for each in shown) or GPU in self.promised.capacity
            has_gpu = has_gpu or 2 * len(devices) > len(usual)
            return (not wants_label or has_label) and 2 * hand <= own and (not wants_gpu or has_gpu)
        fast = sum(each.labels.get("disk") == "fast" for each in usual)
        has_label = bool(self.promised.labels) or 2 * fast > len(usual)
        devices = [each for each in usual if each.allocatable.get(GPU)]
        has_gpu = GPU in self.promised.capacity or 2 * len(devices) > len(usual)
        knows_size = self.promised.complete or bool(usual)
        knows_zone = bool(self.nodes())
        is_known = (not wants_label or has_label) and (not wants_gpu or has_gpu) and (not wants_csi or bool(usual))
        return knows_size and knows_zone and is_known

    def ordered(self) -> dict[str, int]:
        nodes = self.nodes()
        full = [pod(f"on-{each.name}", cpu="4", memory="1Gi", node=each.name) for each in nodes]
        groups = tuple(
            group(zone, count, bounds=(0, 9), template=self.promised, pool_min=0, pool_max=27)
            for zone, count in zip(ZONES, self.counts, strict=True)
        )
        workload = Workload(pods=(self.waiting, *full), nodes=tuple(nodes))
        policy = make(Policy, strategy=BALANCED, demand=DemandStage.SCALE_UP, autoscaler=False)
        policy = replace(policy, provision_timeout=15 * MINUTE)
        (found,) = plan(Observation(groups=groups, workload=workload), ClusterState(), policy, NOW).pools
        return {str(each.group.identity.zone): each.requested - each.group.requested for each in found.groups}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    zone = draw(st.sampled_from(ZONES))
    selector = {draw(st.sampled_from([ZONE, CSI])): label(zone)}
    if draw(st.booleans()):
        selector |= LABELS
    amounts_of_pod = {"cpu": "1", "memory": "1Gi"} | draw(st.sampled_from([{}, {"nvidia_com__gpu": "1"}]))
    asking = pod("db", node_selector=selector, containers=(container(**amounts_of_pod),))
    return World(
        counts=tuple(draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))),
        odd=draw(st.sampled_from(["", "taint", "label", "no label", "silent", "not ready"])),
        odd_zone=draw(st.sampled_from(ZONES)),
        promised=draw(st.sampled_from(TEMPLATES)),
        waiting=asking,
        zone=zone,
    )


@given(worlds())
def test_a_pod_gets_its_node_where_a_usual_node_would_hold_it(world: World) -> None:
    ordered = world.ordered()
    if world.knows():
        assert ordered == {**dict.fromkeys(ZONES, 0), world.zone: 1}
    else:
        assert {zone for zone, more in ordered.items() if more} <= {world.zone}
