"""A node while places are sought: what is free on it, and what stands there."""

from collections import Counter
from collections.abc import Hashable, Mapping

from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.requests import CPU, MEMORY, PODS, counts
from evenkeel.domain.demand.taints import GOING
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import HOSTNAME, HostPort, Node


class Shape:
    """Nodes that differ by name only, and what is known of kinds of pod on any of them."""

    __slots__ = ("standing", "volumes")

    def __init__(self) -> None:
        self.pods_on: dict[PodGroup, Reason | None] = {}
        self.volumes: dict[PodGroup, Reason | None] = {}


class Shapes:
    """One shape for all nodes with the same labels, but for the hostname, and the same taints."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Shape] = {}

    def of(self, node: Node) -> Shape:
        labels = frozenset((key, value) for key, value in node.labels.items() if key != HOSTNAME)
        return self._found.setdefault((labels, frozenset(node.taints), node.unschedulable), Shape())


class NodeInfo:
    """A node and what is free on it, counted as ``domain.demand.requests`` does."""

    __slots__ = (
        "allocatable",
        "attached",
        "cpu",
        "free",
        "is_open",
        "kinds",
        "labels",
        "limits",
        "memory",
        "name",
        "node",
        "pods",
        "ports",
        "shape",
        "user_of",
    )

    def __init__(self, node: Node, shape: Shape, attached: Mapping[str, int]) -> None:
        self.node = node
        self.name = node.name
        self.labels: Mapping[str, str] = node.labels
        self.shape = shape
        self.allocatable = counts(node.allocatable)
        self.free = dict(self.allocatable)
        self.cpu = self.free.pop(CPU, 0)
        self.memory = self.free.pop(MEMORY, 0)
        self.pods = self.free.pop(PODS, 0)
        self.limits = node.attach_limits
        self.attached: Counter[str] = Counter(attached)  # volumes by CSI driver
        self.ports: Counter[HostPort] = Counter()
        self.user_of: Counter[str] = Counter()  # claims that no second pod may use
        self.pod_groups: Counter[PodGroup] = Counter()
        going = node.deleting or any(taint.key == GOING for taint in node.taints)
        # Cluster Autoscaler looks for places on no cordoned node, whatever a pod tolerates (plugin_runner.go:106-110).
        self.is_open = node.ready and not node.unschedulable and not going

    def change(self, kind: PodGroup, count: int) -> None:
        """So many pods of a kind come; negative: go."""
        self.pod_groups[kind] += count
        if not self.pod_groups[kind]:
            del self.pod_groups[kind]
        self.cpu -= kind.cpu * count
        self.memory -= kind.memory * count
        self.pods -= count
        for name, each in kind.rest:
            self.free[name] = self.free.get(name, 0) - each * count
        for driver, each in kind.volumes.drivers:
            self.attached[driver] += each * count
        for port in kind.ports:
            self.ports[port] += count
        for claim in kind.volumes.exclusive:
            self.user_of[claim] += count

    @property
    def taken_ports(self) -> list[HostPort]:
        return [port for port, count in self.ports.items() if count > 0]
