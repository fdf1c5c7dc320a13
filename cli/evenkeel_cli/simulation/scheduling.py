"""The simulated scheduler: on which nodes a pod fits, and to which of them it is bound.

It shares no code with ``domain.demand``, so that a run reveals errors of that module. The test
tests/property/cli/test_simulated_scheduling.py compares the two. The model of cluster-autoscaler uses this scheduler.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import count as numbers
from itertools import islice
from math import ceil
from typing import Self

from evenkeel.domain.model.workload import HOSTNAME, ZONE
from evenkeel_cli.simulation.scenario import NodeSize, PodsSetup

Counts = Mapping[str, Counter[str]]
"""The number of a kind's pods by topology key and domain."""
_Rank = tuple[float, str | int]

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
        self.rest: tuple[tuple[str, int], ...] = ()  # the request without cpu and memory

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
    pods: int = 0
    rest: dict[str, int] = field(default_factory=dict)  # unused amounts of all resources but cpu and memory

    @classmethod
    def of(cls, name: str, pool: str, zone: str, size: NodeSize) -> Self:
        """Return an empty node of this size in a pool and zone."""
        labels = {**size.labels, POOL: pool, ZONE: zone, HOSTNAME: name}
        return cls(name, labels, ceil(size.cpu * 1000), ceil(size.memory))

    def put(self, kind: PodGroup, count: int = 1) -> None:
        """Add pods; a negative count removes them."""
        self.kinds[kind] += count
        self.pods += count
        self.used_cpu += kind.cpu * count
        self.used_memory += kind.memory * count
        for name, request in kind.rest:
            self.rest[name] = self.rest.get(name, 0) - request * count

    def room(self, kind: PodGroup) -> int:
        """Return how many more pods of a kind fit on this node, by all rules that read no other node."""
        if not self.is_open or not kind.matches(self.labels):
            return 0
        most = self.most_pods - self.pods
        if kind.per_node is not None:
            most = min(most, kind.per_node - self.kinds[kind])
        if kind.cpu:
            most = min(most, (self.cpu - self.used_cpu) // kind.cpu)
        if kind.memory:
            most = min(most, (self.memory - self.used_memory) // kind.memory)
        for name, request in kind.rest:
            most = min(most, self.rest.get(name, 0) // request)
        return max(0, most)

    @property
    def used(self) -> float:
        """Return the larger of the used shares of cpu and memory."""
        return max(self.used_cpu / self.cpu, self.used_memory / self.memory)

    def copy(self) -> "NodeInfo":
        """Return a copy whose pods change independently."""
        node = NodeInfo(self.name, self.labels, self.cpu, self.memory, self.is_open, most_pods=self.most_pods)
        node.kinds, node.used_cpu, node.used_memory = self.kinds.copy(), self.used_cpu, self.used_memory
        node.pods, node.rest = self.pods, self.rest.copy()
        return node


class Scheduler:
    """A scheduler with its nodes, in the order of their creation. Pods are added with ``put``."""

    def __init__(self, nodes: Iterable[NodeInfo] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._counts: dict[PodGroup, dict[str, Counter[str]]] = {}  # of kinds that spread
        self._nodes_of: dict[PodGroup, dict[str, NodeInfo]] = {}  # those of ``nodes`` whose labels a kind accepts

    def copy(self) -> "Scheduler":
        """Return a copy with a copy of each node."""
        scheduler = Scheduler(node.copy() for node in self.nodes.values())
        scheduler._counts = {kind: _copied(counts) for kind, counts in self._counts.items()}
        return scheduler

    def add(self, node: NodeInfo) -> None:
        """Add a node."""
        self.nodes[node.name] = node
        for kind, nodes in self._nodes_of.items():
            if kind.matches(node.labels):
                nodes[node.name] = node
        for kind, counts in self._counts.items():
            _count(kind, counts, node)

    def remove(self, node: NodeInfo) -> None:
        """Remove a node."""
        del self.nodes[node.name]
        for nodes in self._nodes_of.values():
            nodes.pop(node.name, None)
        self._counts.clear()

    def put(self, kind: PodGroup, node: NodeInfo, count: int = 1) -> None:
        """Add pods to a node; a negative count removes them."""
        node.put(kind, count)
        if kind in self._counts and kind.matches(node.labels):
            for key, of_key in self._counts[kind].items():
                of_key[node.labels[key]] += count

    def first(self, kind: PodGroup) -> NodeInfo | None:
        """Return the first node on which a pod fits."""
        nodes = self.nodes_of(kind)
        if kind.spread:
            return next(places(kind, nodes, self.counts(kind)), None)
        return next((node for node in nodes if node.room(kind)), None)

    def emptiest_first(self, kind: PodGroup, nodes: Iterable[NodeInfo] | None = None) -> Iterator[NodeInfo]:
        """Yield the least used node on which a pod fits, for one pod after another, as ``places`` does."""
        return places(kind, self.nodes_of(kind) if nodes is None else nodes, self.counts(kind), _emptiness)

    def nodes_of(self, kind: PodGroup) -> Iterable[NodeInfo]:
        """Return the nodes whose labels a kind accepts, in the order of their creation."""
        if kind not in self._nodes_of:
            self._nodes_of[kind] = {node.name: node for node in self.nodes.values() if kind.matches(node.labels)}
        return self._nodes_of[kind].values()

    def counts(self, kind: PodGroup) -> Counts:
        """Return the number of a kind's pods by topology domain, on nodes whose labels match, cordoned or not."""
        if not kind.spread:
            return {}
        if kind not in self._counts:
            counts = self._counts[kind] = {key: Counter() for key in kind.spread}
            for node in self.nodes_of(kind):
                _count(kind, counts, node)
        return _copied(self._counts[kind])


def counts_with(kind: PodGroup, counts: Counts, nodes: Iterable[NodeInfo]) -> Counts:
    """Return the counts with the pods on more nodes."""
    more = _copied(counts)
    for node in nodes if more else ():
        _count(kind, more, node)
    return more


def _copied(counts: Counts) -> dict[str, Counter[str]]:
    return {key: of_key.copy() for key, of_key in counts.items()}


def _count(kind: PodGroup, counts: Counts, node: NodeInfo) -> None:
    """Add a node's pods of a kind to the counts."""
    if kind.matches(node.labels):
        for key, of_key in counts.items():
            of_key[node.labels[key]] += node.kinds[kind]


def places(
    kind: PodGroup, nodes: Iterable[NodeInfo], counts: Counts, rank: Callable[[NodeInfo], _Rank] | None = None
) -> Iterator[NodeInfo]:
    """Yield the node of lowest rank on which a pod fits, for one pod after another. Without ``rank``, take the first.

    The caller adds each pod to the yielded node. This function adds it to ``counts``, which has each node's domains.
    """
    # Only the yielded nodes change, so that the others keep their order. Pods that spread fit all nodes with room of a
    # domain, or none.
    order = numbers()
    heaps: dict[tuple[str, ...], list[tuple[_Rank, NodeInfo]]] = {}
    for node in nodes:
        if node.room(kind):
            ranked = (0, next(order)) if rank is None else rank(node)
            heaps.setdefault(tuple([node.labels[key] for key in kind.spread]), []).append((ranked, node))
    for heap in heaps.values():
        heapify(heap)
    while heaps:
        most = {key: min(counts[key].values()) + skew - 1 for key, skew in kind.spread.items()}
        allowed = [
            domains
            for domains in heaps
            if all(counts[key][domain] <= most[key] for key, domain in zip(most, domains, strict=True))
        ]
        if not allowed:
            return
        domains = min(allowed, key=lambda domains: heaps[domains][0][0])
        heap = heaps[domains]
        ranked, node = heap[0]
        yield node
        for key, domain in zip(kind.spread, domains, strict=True):
            counts[key][domain] += 1
        if node.room(kind):
            heapreplace(heap, (ranked if rank is None else rank(node), node))
        elif len(heap) > 1:
            heappop(heap)
        else:
            del heaps[domains]


def fill(
    kind: PodGroup, nodes: Iterable[NodeInfo], wanted: int, counts: Counts, put: Callable[[NodeInfo, int], None]
) -> int:
    """Place up to ``wanted`` pods on the first nodes where they fit, with ``put``. Return the number of placed pods."""
    placed = 0
    if kind.spread:  # a placed pod may make room on an earlier node
        for node in islice(places(kind, nodes, counts), wanted):
            put(node, 1)
            placed += 1
        return placed
    for node in nodes:
        if placed == wanted:
            break
        if more := min(node.room(kind), wanted - placed):
            put(node, more)
            placed += more
    return placed


def _emptiness(node: NodeInfo) -> _Rank:
    """Return a sort key, which is smallest for the least used node."""
    return node.used_cpu / node.cpu + node.used_memory / node.memory, node.name
