"""Orders whose instances are in service before their nodes register, or whose nodes never register."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.domain.model.incidents import IncidentKind
from sandbox.auto_scaling.groups import Instance
from tests.auto_scaling_groups import ZONES, Ec2
from tests.auto_scaling_pods import PodStage

KINDS = ("plain", "managed")


class SlowNodes(PodStage):
    """Nodes register some time after their instances are in service, in dead zones never."""

    def __init__(self, *, wait: timedelta = timedelta(seconds=45), **fields: Any) -> None:
        super().__init__(**fields)
        self.wait, self.dead = wait, set[str]()
        self.in_service: dict[str, datetime] = {}
        self.launched: set[str] = set()
        self.reported: set[IncidentKind] = set()

    def _join(self, instance: Instance) -> None:
        since = self.in_service.setdefault(instance.id, self.clock.now())
        if instance.zone not in self.dead and self.clock.now() - since >= self.wait:
            super()._join(instance)

    def minutes(self, minutes: float) -> None:
        super().minutes(minutes)
        for group in self.api.groups.by_name.values():
            self.launched |= group.instances.keys()

    def checks(self, minutes: int) -> None:
        """Run every 15 seconds, the interval while pods wait."""
        for _ in range(4 * minutes):
            self.run()
            self.reported |= self.kinds()
            self.minutes(0.25)

    def waiting(self) -> int:
        return sum(not pod["spec"].get("nodeName") for pod in self.pods())

    def kinds(self) -> set[IncidentKind]:
        return {incident.kind for incident in self.store.load("demo").cluster_health.incidents}


def make(kind: str, nodes: int = 0, **fields: Any) -> tuple[SlowNodes, list[str]]:
    stage, names = SlowNodes(**fields), []
    for zone in ZONES:
        name = f"workers-{zone[-1]}"
        if kind == "managed":
            name = stage.put_managed(name, zone, 0, nodes, 9)
        else:
            stage.put(name, zone, 0, nodes, 9, **SIZE)
        names.append(name)
    stage.minutes(3)
    return stage, names


SIZE = {
    "k8s.io/cluster-autoscaler/node-template/resources/cpu": "4",
    "k8s.io/cluster-autoscaler/node-template/resources/memory": "16Gi",
}


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wait", [0, 45, 120, 600])
def test_each_pod_gets_one_node_however_late_nodes_register(kind: str, demand: str, wait: int) -> None:
    stage, names = make(kind, nodes=1, demand=demand, wait=timedelta(seconds=wait))
    stage.minutes(wait / 60)
    stage.deploy("web", 9, cpu="3500m")
    stage.checks(8 + wait // 60)
    assert stage.waiting() == 0
    assert len(stage.launched) == 9, "three were there"
    assert stage.reported == set()
    assert [stage.group(name).maximum >= stage.group(name).desired for name in names] == [True] * 3


def test_from_zero_each_pod_gets_one_node() -> None:
    stage, _ = make("plain", demand="scale-up")
    stage.deploy("web", 12, cpu="3500m")
    stage.checks(10)
    assert (stage.waiting(), len(stage.launched)) == (0, 12)


def test_from_zero_pods_that_select_linux_get_nodes_with_room_for_the_daemons_that_select_it_too() -> None:
    """No tag names a size: EC2 does. The DaemonSet leaves room for one pod on a node of four cores."""
    stage = SlowNodes(demand="full")
    stage.clusters.ec2 = Ec2()
    of_group: dict[str, Any] = {"instanceTypes": ["m5.xlarge"], "amiType": "AL2023_x86_64_STANDARD"}
    names = [stage.put_managed(f"workers-{zone[-1]}", zone, 0, 0, 9, **of_group) for zone in ZONES]
    stage.minutes(3)
    on_linux = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    stage.run_on_each_node("agent", cpu="1500m", **on_linux)
    on_ebs = {"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [*ZONES]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_ebs]}}}
    stage.deploy("web", 3, cpu="1500m", affinity=affinity, **on_linux)
    stage.checks(10)
    assert (stage.waiting(), len(stage.launched)) == (0, 3)
    assert sum(stage.numbers(name)[1] for name in names) == 3


@pytest.mark.parametrize("demand", ["scale-up", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_instances_that_never_join_are_replaced_elsewhere_and_reported(kind: str, demand: str) -> None:
    stage, names = make(kind, nodes=1, demand=demand)
    stage.dead = {ZONES[0]}
    stage.deploy("web", 9, cpu="3500m")
    stage.checks(22)
    assert stage.waiting() == 0
    assert stage.reported == {IncidentKind.MISSING}
    assert len(stage.nodes()) == 9
    failure = stage.store.load("demo").state.groups
    assert {key.name: state.failure.failures for key, state in failure.items() if state.failure.failures} == {
        names[0]: 1
    }
    assert stage.kinds() == set()
    assert stage.lost == []


def test_a_single_pod_does_not_wait_for_ever_for_a_zone_that_never_joins() -> None:
    """While no instance has a node, none is removed. The dead one is removed once another zone has a node."""
    stage, _ = make("plain", demand="scale-up")
    stage.dead = {*ZONES}
    stage.deploy("web", 1, cpu="3500m")
    stage.checks(1)
    (first,) = (instance for group in stage.api.groups.by_name.values() for instance in group.instances.values())
    stage.dead = {first.zone}
    stage.checks(20)
    assert stage.waiting() == 0
    assert not any(first.id in group.instances for group in stage.api.groups.by_name.values())


def test_an_instance_that_joins_late_keeps_its_pods() -> None:
    stage, _ = make("plain", nodes=1, demand="full", wait=timedelta(minutes=14, seconds=30))
    stage.minutes(15)
    stage.deploy("web", 9, cpu="3500m")
    stage.checks(25)
    assert (stage.waiting(), len(stage.launched), stage.lost) == (0, 9, [])


def test_a_list_of_nodes_that_is_empty_for_an_hour_removes_no_instance() -> None:
    stage, _ = make("plain", nodes=2, demand="full")
    stage.deploy("web", 6, cpu="3500m")
    stage.checks(3)
    listed, hidden = stage.kube.store.list, True

    def empty(kind: str, *args: Any, **more: Any) -> Any:
        return [] if hidden and kind == "nodes" else listed(kind, *args, **more)

    nodes = stage.nodes()
    stage.nodes = lambda: nodes  # type: ignore[method-assign]
    stage.kube.store.list = empty  # type: ignore[method-assign,assignment]
    stage.checks(60)
    assert {id for group in stage.api.groups.by_name.values() for id in group.instances} >= set(nodes)
    assert stage.evicted() == 0
    hidden = False
    stage.checks(60)
    assert {id for group in stage.api.groups.by_name.values() for id in group.instances} >= set(nodes)
    assert all(state.arrivals.nodeless == {} for state in stage.store.load("demo").state.groups.values())
