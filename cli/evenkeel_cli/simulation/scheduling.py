"""The simulated scheduler: on which nodes a pod fits, and to which of them it is bound.

It shares no code with ``domain.demand``, so that a run reveals errors of that module. The test
tests/property/cli/test_simulated_scheduling.py compares the two. The model of cluster-autoscaler uses this scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import ceil
from typing import Self

from evenkeel.domain.model.workload import HOSTNAME, ZONE
from evenkeel_cli.simulation.scenario import NodeSize, PodsSetup

POOL = "simulated/pool"
MAX_PODS = 110  # per node, the default of the kubelet


class PodGroup:
    """A group of equal pods. ``cpu`` is in millicores, ``memory`` in bytes."""

    def __init__(self, setup: PodsSetup) -> None:
        self.setup = setup
        self.name = setup.name
        self.cpu = ceil(setup.cpu * 1000)
        self.memory = ceil(setup.memory)
        self.selector = setup.selector if setup.pool is None else {**setup.selector, POOL: setup.pool}
        self.zones = frozenset(setup.zones)
        skews = {ZONE: setup.spread.zone, HOSTNAME: setup.spread.node}
        self.spread = {key: skew for key, skew in skews.items() if skew is not None}
        self.per_node: int | None = None  # the most of these pods on one node; None: no limit

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if the pods may run on a node with these labels."""
        in_zone = not self.zones or labels.get(ZONE) in self.zones
        return in_zone and all(labels.get(key) == value for key, value in self.selector.items())


@dataclass(eq=False, slots=True)
class NodeInfo:
    """A node and its used resources."""

    name: str
    labels: Mapping[str, str]
    cpu: int  # all millicores of the node, used and unused
    memory: int  # all bytes of the node, used and unused
    is_open: bool = True
    kinds: Counter[PodGroup] = field(default_factory=Counter)
    used_cpu: int = 0
    used_memory: int = 0
    most_pods: int = MAX_PODS

    @classmethod
    def of(cls, name: str, pool: str, zone: str, size: NodeSize) -> Self:
        """Return an empty node of this size in a pool and zone."""
        labels = {**size.labels, POOL: pool, ZONE: zone, HOSTNAME: name}
        return cls(name, labels, ceil(size.cpu * 1000), ceil(size.memory))

    def put(self, kind: PodGroup, count: int = 1) -> None:
        """Add pods; a negative count removes them."""
        self.kinds[kind] += count
        self.used_cpu += kind.cpu * count
        self.used_memory += kind.memory * count

    @property
    def pods(self) -> int:
        """Return the number of pods on the node."""
        return self.kinds.total()

    @property
    def used(self) -> float:
        """Return the larger of the used shares of cpu and memory."""
        return max(self.used_cpu / self.cpu, self.used_memory / self.memory)

    def copy(self) -> "NodeInfo":
        """Return a copy whose pods change independently."""
        node = NodeInfo(self.name, self.labels, self.cpu, self.memory, self.is_open, most_pods=self.most_pods)
        node.kinds, node.used_cpu, node.used_memory = self.kinds.copy(), self.used_cpu, self.used_memory
        return node


class Scheduler:
    """A scheduler with its nodes, in the order of their creation."""

    def __init__(self, nodes: Iterable[NodeInfo] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}

    def copy(self) -> "Scheduler":
        """Return a copy with a copy of each node."""
        return Scheduler(node.copy() for node in self.nodes.values())

    def fits(self, kind: PodGroup, node: NodeInfo) -> bool:
        """Return True if one more pod fits on a node."""
        return next(self._fitting(kind, (node,)), None) is not None

    def first(self, kind: PodGroup, nodes: Iterable[NodeInfo]) -> NodeInfo | None:
        """Return the first node on which a pod fits."""
        return next(self._fitting(kind, nodes), None)

    def emptiest(self, kind: PodGroup) -> NodeInfo | None:
        """Return the least used node on which a pod fits; None: it fits on no node."""
        return min(
            self._fitting(kind, self.nodes.values()),
            key=_emptiness,
            default=None,
        )

    def emptiest_first(self, kind: PodGroup) -> Iterator[NodeInfo]:
        """Yield the result of ``emptiest`` for one pod after another. The caller adds each pod to the yielded node."""
        if kind.spread:
            while (found := self.emptiest(kind)) is not None:
                yield found
            return
        # Only the yielded nodes change, so that the others keep their order.
        nodes = [(*_emptiness(node), node) for node in self._fitting(kind, self.nodes.values())]
        heapify(nodes)
        while nodes:
            node = nodes[0][-1]
            yield node
            if self.fits(kind, node):
                heapreplace(nodes, (*_emptiness(node), node))
            else:
                heappop(nodes)

    def _fitting(self, kind: PodGroup, nodes: Iterable[NodeInfo]) -> Iterator[NodeInfo]:
        """Yield nodes on which one more pod fits.

        Pods per topology domain are counted once, when the first node passes all other rules.
        """
        counts: dict[str, Counter[str]] = {}
        for node in nodes:
            if (
                node.is_open
                and kind.matches(node.labels)
                and node.pods < node.most_pods
                and (kind.per_node is None or node.kinds[kind] < kind.per_node)
                and (not kind.cpu or node.used_cpu + kind.cpu <= node.cpu)
                and (not kind.memory or node.used_memory + kind.memory <= node.memory)
            ):
                if kind.spread and not counts:
                    counts = {key: self._count(kind, key) for key in kind.spread}
                if all(
                    counts[key][node.labels[key]] + 1 - min(counts[key].values()) <= skew
                    for key, skew in kind.spread.items()
                ):
                    yield node

    def _count(self, kind: PodGroup, key: str) -> Counter[str]:
        """Return the number of a kind's pods by topology domain, on nodes whose labels match, cordoned or not."""
        counts: Counter[str] = Counter()
        for node in self.nodes.values():
            if kind.matches(node.labels):
                counts[node.labels[key]] += node.kinds[kind]
        return counts


def _emptiness(node: NodeInfo) -> tuple[float, str]:
    """Return a sort key, which is smallest for the least used node."""
    return node.used_cpu / node.cpu + node.used_memory / node.memory, node.name
