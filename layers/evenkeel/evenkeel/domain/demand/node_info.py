"""A node of a simulation, with its pods and its free resources."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from operator import attrgetter
from typing import Self

from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.requests import CPU, MEMORY, PODS, counts, is_gpu
from evenkeel.domain.demand.taints import TO_BE_DELETED
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import HOSTNAME, HostPort, Node

ANY_AMOUNT = float("-inf")  # of cpu or memory: a pod that requests none fits a node whose free amount is below zero
# A node with one of these labels has a GPU, even before the GPU's driver reports the GPU (GPULabel of three providers).
_GPU_LABELS = frozenset({"cluster-api/accelerator", "gardener.cloud/accelerator", "k8s.amazonaws.com/accelerator"})
_DEFAULT_GPU = "nvidia.com/gpu"  # the resource that cluster-autoscaler assumes for such a label


class Shape:
    """The filter results that all nodes of one shape share (``domain.demand.filters``).

    Two nodes have the same shape if ``shape_of`` returns equal keys for them.
    """

    def __init__(self) -> None:
        self.by_node: dict[int, Reason | None] = {}  # by ``PodGroup.selects``
        self.by_volumes: dict[PodGroup, Reason | None] = {}
        self.accepts: dict[int, bool] = {}  # by ``PodGroup.selects``: True if both filters accept such pods


def shape_of(node: Node) -> Hashable:
    """Return the key of a node's shape: its labels without the hostname's value, its taints, and ``unschedulable``."""
    labels = frozenset((key, value if key != HOSTNAME else "") for key, value in node.labels.items())
    return labels, frozenset(node.taints), node.unschedulable


class NodeInfo:
    """A node, its pods by pod group, and its free resources in the units of ``domain.demand.requests``."""

    __slots__ = (
        *("node", "name", "labels", "shape", "is_schedulable", "allocatable", "limits"),
        *("cpu", "memory", "pods", "free", "attached", "shared", "ports", "pod_groups"),
    )

    def __init__(
        self, node: Node, shape: Shape, attached: Mapping[str, int], pod_groups: Mapping[PodGroup, int]
    ) -> None:
        self.node = node
        self.name = node.name
        self.labels: Mapping[str, str] = node.labels
        self.shape = shape
        self.allocatable = counts(node.allocatable)
        free = dict(self.allocatable)
        self.cpu = free.pop(CPU, 0)
        self.memory = free.pop(MEMORY, 0)
        self.pods = free.pop(PODS, 0)
        self.free: Mapping[str, int] = free
        self.limits = node.attach_limits
        self.attached = attached  # number of attached volumes, by CSI driver
        self.shared: Mapping[tuple[str, str], int] = {}  # number of pods by driver and claim (``VolumeNeeds.shared``)
        self.ports: Mapping[HostPort, int] = {}
        self.pod_groups: dict[PodGroup, int] = {}
        deleting = node.deleting or any(taint.key == TO_BE_DELETED for taint in node.taints)
        # Cluster-autoscaler places no pod on a cordoned node, even if the pod tolerates the taint
        # (plugin_runner.go:106-110).
        self.is_schedulable = node.ready and not node.unschedulable and not deleting
        for pod_group, count in pod_groups.items():
            self.change(pod_group, count)

    def named(self, name: str) -> Self:
        """Return a copy with this name, which is also its hostname. ``node`` keeps its name."""
        copy = object.__new__(type(self))
        copy.name, copy.labels = name, {**self.labels, HOSTNAME: name}
        copy.node, copy.shape, copy.is_schedulable = self.node, self.shape, self.is_schedulable
        copy.allocatable, copy.limits = self.allocatable, self.limits
        copy.cpu, copy.memory, copy.pods = self.cpu, self.memory, self.pods
        copy.free, copy.attached, copy.shared, copy.ports = self.free, self.attached, self.shared, self.ports
        copy.pod_groups = self.pod_groups.copy()
        return copy

    def add(self, pod_group: PodGroup, wanted: int) -> int:
        """Add as many pods of a group as cpu, memory and the number of pods allow, at most ``wanted``. Return how many.

        The caller has checked all other conditions.
        """
        cpu, memory = pod_group.cpu, pod_group.memory
        # Conditional expressions are faster than min, and a packing calls this method most often.
        count = wanted if wanted < self.pods else self.pods
        if cpu and cpu * count > self.cpu:
            count = self.cpu // cpu
        if memory and memory * count > self.memory:
            count = self.memory // memory
        self.cpu -= cpu * count
        self.memory -= memory * count
        self.pods -= count
        self.pod_groups[pod_group] = self.pod_groups.get(pod_group, 0) + count
        if not pod_group.by_shape:
            self._change_rest(pod_group, count)
        return count

    def change(self, pod_group: PodGroup, count: int) -> None:
        """Add this many pods of a pod group. A negative count removes pods."""
        pods = self.pod_groups.get(pod_group, 0) + count
        if pods:
            self.pod_groups[pod_group] = pods
        else:
            del self.pod_groups[pod_group]
        self.cpu -= pod_group.cpu * count
        self.memory -= pod_group.memory * count
        self.pods -= count
        if not pod_group.by_shape:
            self._change_rest(pod_group, count)

    def _change_rest(self, pod_group: PodGroup, count: int) -> None:
        # Few pods change these mappings, so copies of a node share them until one changes.
        for name, request in pod_group.rest:
            self.free = {**self.free, name: self.free.get(name, 0) - request * count}
        for driver, volumes in pod_group.volumes.drivers:
            self.attached = {**self.attached, driver: self.attached.get(driver, 0) + volumes * count}
        for volume in pod_group.volumes.shared:
            before = self.shared.get(volume, 0)
            self.shared = {**self.shared, volume: before + count}
            more = (before + count > 0) - (before > 0)
            self.attached = {**self.attached, volume[0]: self.attached.get(volume[0], 0) + more}
        for port in pod_group.ports:
            self.ports = {**self.ports, port: self.ports.get(port, 0) + count}

    def volumes_to_attach(self, pod_group: PodGroup) -> Iterator[tuple[str, int, int]]:
        """Yield each CSI driver with the number of volumes to attach for each pod, and once for all pods of a group."""
        each = dict(pod_group.volumes.drivers)
        once = Counter(volume[0] for volume in pod_group.volumes.shared if not self.shared.get(volume))
        for driver in sorted(each.keys() | once.keys()):
            yield driver, each.get(driver, 0), once[driver]


def with_room(node_infos: Iterable[NodeInfo], pod_groups: Collection[PodGroup]) -> list[NodeInfo]:
    """Return the nodes with room for a pod that requests the least cpu and the least memory of these groups."""
    cpu = min(map(attrgetter("cpu"), pod_groups), default=0) or ANY_AMOUNT
    memory = min(map(attrgetter("memory"), pod_groups), default=0) or ANY_AMOUNT
    return [info for info in node_infos if info.cpu >= cpu and info.memory >= memory and info.pods > 0]


def utilization(node_info: NodeInfo) -> tuple[str, Fraction] | None:
    """Return the resource with the largest requested share, and this share; None: unknown.

    The rules are cluster-autoscaler's (simulator/utilization/info.go:44-134).

    On a node with a GPU, only the GPU counts, because the GPU determines the node's price. A GPU that the node does not
    report yet counts as unused.
    """
    allocatable = node_info.allocatable
    gpu = next((name for name, amount in sorted(node_info.node.capacity.items()) if is_gpu(name) and amount), None)
    gpu = gpu or next((name for name, count in sorted(allocatable.items()) if is_gpu(name) and count), None)
    if gpu is None and not _GPU_LABELS.isdisjoint(node_info.labels):
        gpu = _DEFAULT_GPU
    if gpu is not None:
        total = allocatable.get(gpu, 0)
        return gpu, Fraction(total - node_info.free.get(gpu, 0), total) if total else Fraction(0)
    if not allocatable.get(CPU) or not allocatable.get(MEMORY):
        return None
    share, name = max(
        (Fraction(allocatable[name] - free, allocatable[name]), name)
        for name, free in ((CPU, node_info.cpu), (MEMORY, node_info.memory))
    )
    return name, share
