"""Pods in virtual time: controllers, scheduler, disruption budgets and drains.

Scheduling takes no time. A controller replaces an evicted pod at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby

from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.scenario import Scenario
from evenkeel_cli.simulation.scheduling import NodeInfo, PodGroup, Scheduler

# Seconds after which Cluster API repeats an eviction that a budget refused (core/reconcilers/machine).
_DRAIN_AGAIN = 20


@dataclass(kw_only=True, eq=False, slots=True)
class SimulatedPod:
    """A pod."""

    name: str
    kind: PodGroup
    created: int
    node: NodeInfo | None = None
    refused: int | None = None  # the second in which the pod became unschedulable; None: it is bound or new
    ready: bool = False
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """The numbers of pods by kind, and the numbers of evictions so far."""

    wanted: Mapping[str, int]
    waiting: Mapping[str, int]
    evicted: int
    against_budget: int
    held: int


class Pods:
    """The pods of a scenario. ``refused`` is called, at most once a second, when pods become unschedulable."""

    def __init__(self, scenario: Scenario, agenda: Agenda, clock: Callable[[], int]) -> None:
        self._agenda = agenda
        self._clock = clock
        self.kinds = [PodGroup(setup) for setup in scenario.pods]
        self.scheduler = Scheduler()
        self.refused: Callable[[], None] = lambda: None
        self.version = 0  # increases with each change that can affect scheduling
        self._alive: dict[PodGroup, list[SimulatedPod]] = {kind: [] for kind in self.kinds}  # oldest first
        self._pending: defaultdict[PodGroup, dict[SimulatedPod, None]] = defaultdict(dict)  # oldest first
        self._waiting: tuple[int, list[SimulatedPod]] = (-1, [])  # the version, and its pending pods
        # The nodes that joined or lost pods since the scheduler last ran; None: a node was removed.
        self._roomier: dict[str, NodeInfo] | None = {}
        self._wanted: Counter[PodGroup] = Counter()  # the replicas of deployments
        self._numbers = count(1)
        self._is_scheduled = False
        self._evicted = self._against_budget = self._held = 0
        for kind in self.kinds:
            for step in kind.setup.count:
                agenda.enter(step.at, Turn.WORLD, partial(self._want, kind, step.pods))

    def all(self) -> Iterator[SimulatedPod]:
        """Yield all pods, kind by kind."""
        for pods in self._alive.values():
            yield from pods

    def waiting(self) -> list[SimulatedPod]:
        """Return pending pods, oldest first."""
        if self._waiting[0] != self.version:
            pending = (pod for kind in self.kinds for pod in self._pending[kind])
            self._waiting = self.version, sorted(pending, key=lambda pod: pod.created)
        return self._waiting[1]

    def counts(self) -> PodCounts:
        """Return the numbers of pods by kind, and the numbers of evictions so far."""
        waiting = Counter(pod.kind.name for pod in self.waiting())
        return PodCounts(
            wanted={kind.name: self._expected(kind) for kind in self.kinds},
            waiting={kind.name: waiting[kind.name] for kind in self.kinds},
            evicted=self._evicted,
            against_budget=self._against_budget,
            held=self._held,
        )

    def allowed(self, kind: PodGroup) -> int | None:
        """Return the evictions that a disruption budget allows now; None: no budget."""
        if kind.setup.max_unavailable is None:
            return None
        return max(0, self._serving(kind) - self._least(kind))

    def _expected(self, kind: PodGroup) -> int:
        return len(self._alive[kind]) if kind.setup.lifetime else self._wanted[kind]

    def _least(self, kind: PodGroup) -> int:
        """Return the number of pods that the disruption budget requires to be ready."""
        return self._expected(kind) - (kind.setup.max_unavailable or 0)

    def _serving(self, kind: PodGroup) -> int:
        return sum(pod.ready for pod in self._alive[kind])

    # Controllers

    def _want(self, kind: PodGroup, pods: int) -> None:
        if kind.setup.lifetime:
            more = pods
        else:
            self._wanted[kind] = pods
            more = pods - len(self._alive[kind])
        for _ in range(more):
            self._create(kind)
        for _ in range(-more):
            self._end(self._first_to_go(kind))
        self._changed()

    def _create(self, kind: PodGroup) -> None:
        pod = SimulatedPod(name=f"{kind.name}-{next(self._numbers)}", kind=kind, created=self._clock())
        self._alive[kind].append(pod)
        self._pending[kind][pod] = None
        self._changed()

    def _first_to_go(self, kind: PodGroup) -> SimulatedPod:
        """Return the pod that a controller deletes first (controller_utils.go).

        Pending pods are first, then pods on the node with the most pods of the kind. Among equals, the newest is first.
        """
        places = [(pod.node is None, pod.node.kinds[kind] if pod.node else 0) for pod in self._alive[kind]]
        index = max(range(len(places)), key=lambda index: (*places[index], index))
        return self._alive[kind][index]

    def _end(self, pod: SimulatedPod) -> None:
        self._alive[pod.kind].remove(pod)
        self._pending[pod.kind].pop(pod, None)
        pod.gone = True
        if pod.node is not None:
            self.scheduler.put(pod.kind, pod.node, -1)
            self._has_room(pod.node)
        self._changed()

    # The scheduler

    def _changed(self) -> None:
        """Count a change, and let the scheduler run later in this second."""
        self.version += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            self._agenda.enter(self._clock(), Turn.SCHEDULER, self._schedule)

    def _schedule(self) -> None:
        self._is_scheduled = False
        is_new = False
        roomier, self._roomier = self._roomier, {}
        fit_nowhere: set[PodGroup] = set()
        for kind, group in groupby(self.waiting(), key=lambda pod: pod.kind):
            pods = list(group)
            nodes = None
            if roomier is not None and all(pod.refused is not None for pod in pods):
                # These pods fitted nowhere before. They can fit only on a node that has more room than then. A pod that
                # spreads may fit other nodes, too, once such a node counts.
                nodes = [node for node in roomier.values() if kind.matches(node.labels)]
                if not nodes:
                    fit_nowhere.add(kind)
                    continue
                nodes = None if kind.spread else nodes
            places = iter(()) if kind in fit_nowhere else self.scheduler.emptiest_first(kind, nodes)
            for pod in pods:
                node = next(places, None)
                if node is not None:
                    self._bind(pod, node)
                else:
                    fit_nowhere.add(kind)
                    is_new |= pod.refused is None
                    pod.refused = self._clock() if pod.refused is None else pod.refused
        if is_new:
            self.version += 1
            self.refused()

    def _bind(self, pod: SimulatedPod, node: NodeInfo) -> None:
        pod.node, pod.refused = node, None
        del self._pending[pod.kind][pod]
        self.scheduler.put(pod.kind, node)
        self.version += 1
        setup, now = pod.kind.setup, self._clock()
        self._agenda.enter(now + setup.ready, Turn.MACHINE, partial(self._serve, pod))
        if setup.lifetime:
            self._agenda.enter(now + setup.lifetime, Turn.MACHINE, partial(self._complete, pod))

    def _serve(self, pod: SimulatedPod) -> None:
        if not pod.gone:
            pod.ready = True
            self.version += 1

    def _complete(self, pod: SimulatedPod) -> None:
        if not pod.gone:
            self._end(pod)

    # Nodes

    def join(self, node: NodeInfo) -> None:
        """Add a node."""
        self.scheduler.add(node)
        self._has_room(node)
        self._changed()

    def _has_room(self, node: NodeInfo) -> None:
        if self._roomier is not None:
            self._roomier[node.name] = node

    def lose_node(self, node: NodeInfo) -> None:
        """End a node with its pods, whatever budgets allow."""
        for pod in self._on(node):
            self._lose(pod)
        self._remove(node)

    def _on(self, node: NodeInfo) -> list[SimulatedPod]:
        kinds = [kind for kind in self.kinds if node.kinds[kind] > 0]
        return [pod for kind in kinds for pod in self._alive[kind] if pod.node is node]

    def drain(self, node: NodeInfo, done: Callable[[], None]) -> None:
        """Cordon a node and evict its pods as budgets allow; call ``done`` when the node is empty."""
        node.is_open = False
        self._changed()
        self._evict(node, done)

    def _evict(self, node: NodeInfo, done: Callable[[], None]) -> None:
        for pod in self._on(node):
            if self.allowed(pod.kind) == 0:
                self._held += 1
            else:
                self._lose(pod)
        if node.pods:
            self._agenda.enter(self._clock() + _DRAIN_AGAIN, Turn.MACHINE, partial(self._evict, node, done))
            return
        self._remove(node)
        done()

    def _remove(self, node: NodeInfo) -> None:
        self.scheduler.remove(node)
        self._roomier = None  # without the node's domain, pods that spread may fit other nodes
        self._changed()

    def _lose(self, pod: SimulatedPod) -> None:
        """Evict a pod; its controller creates another one."""
        kind = pod.kind
        self._end(pod)
        self._create(kind)
        self._evicted += 1
        # Counted here independently of ``allowed``, so that the measures show a drain that ignores budgets.
        self._against_budget += kind.setup.max_unavailable is not None and self._serving(kind) < self._least(kind)
