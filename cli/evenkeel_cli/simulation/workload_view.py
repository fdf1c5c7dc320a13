"""A simulation's pods and nodes as Evenkeel reads them."""

# ruff: noqa: ARG002  arguments that limit a read have no effect here

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.workload import (
    ZONE,
    Container,
    Needs,
    Node,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodDisruptionBudget,
    Requirement,
    Resources,
    TopologySpreadConstraint,
    Unscheduled,
    Workload,
)
from evenkeel_cli.simulation.pods import SimulatedPod
from evenkeel_cli.simulation.scheduling import MAX_PODS, NodeInfo, PodGroup
from evenkeel_cli.simulation.world import World

_NAMESPACE = "simulated"
_APP = "app"


class WorkloadView:
    """The workload cluster of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        assert world.pods is not None  # without pods, no workload is opened
        self._pods = world.pods
        self._samples = {kind: self._sample(kind) for kind in self._pods.kinds}

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Return the whole workload."""
        return Workload(
            pods=tuple(self._pod(pod) for pod in self._pods.all()),
            nodes=tuple(self._nodes(machines())),
            budgets=tuple(
                PodDisruptionBudget(namespace=_NAMESPACE, name=kind.name, selector=_selector(kind), allowed=allowed)
                for kind in self._pods.kinds
                if (allowed := self._pods.allowed(kind)) is not None
            ),
            autoscaler_sought=True,
        )

    def _sample(self, kind: PodGroup) -> Pod:
        """Return a pod of a kind, without the fields that differ between its pods."""
        return Pod(
            namespace=_NAMESPACE,
            name="",
            created_at=self._world.moment(0),
            needs=needs_of(kind),
            labels={_APP: kind.name},
            owner=Owner("Job" if kind.setup.lifetime else "ReplicaSet", kind.name),
        )

    def _nodes(self, machines: Mapping[str, MachineNode]) -> Iterable[Node]:
        joined = {
            machine.name: self._world.moment(machine.joined)
            for group in self._world.groups
            for machine in group.machines
        }
        for node in self._pods.scheduler.nodes.values():
            yield node_of(node, machines[node.name], joined.get(node.name))

    def _pod(self, pod: SimulatedPod) -> Pod:
        moment = self._world.moment
        refused = pod.refused if pod.node is None else None
        return replace(
            self._samples[pod.kind],
            name=pod.name.rpartition("/")[2],
            created_at=moment(pod.created),
            node=pod.node.name if pod.node else "",
            phase="Running" if pod.ready else "Pending",
            unscheduled=None if refused is None else Unscheduled("Unschedulable", moment(refused)),
        )


def _selector(kind: PodGroup) -> tuple[Requirement, ...]:
    return (Requirement(_APP, "In", (kind.name,)),)


def needs_of(kind: PodGroup) -> Needs:
    """Return the spec of a kind's pods."""
    in_zones = NodeSelectorTerm(expressions=(Requirement(ZONE, "In", tuple(sorted(kind.zones))),))
    return Needs(
        node_selector=kind.selector,
        node_terms=(in_zones,) if kind.zones else None,
        spread=tuple(
            TopologySpreadConstraint(key=key, max_skew=skew, selector=_selector(kind))
            for key, skew in kind.spread.items()
        ),
        resources=Resources(
            containers=(Container(requests={"cpu": Fraction(kind.cpu, 1000), "memory": Fraction(kind.memory)}),)
        ),
    )


def node_of(node: NodeInfo, machine: MachineNode, joined: datetime | None) -> Node:
    """Return a node as its object shows it."""
    amounts = {"cpu": Fraction(node.cpu, 1000), "memory": Fraction(node.memory), "pods": Fraction(MAX_PODS)}
    return Node(
        name=node.name,
        labels=node.labels,
        capacity=amounts,
        allocatable=amounts,
        unschedulable=not node.is_open,
        created_at=joined,
        deleting=machine.deleting,
        group=machine.group,
        machine=machine.machine,
    )
