"""A worker that dies at a chosen step, and a cluster that continues."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Self, cast

import urllib3

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.owners.cluster_topology import TOPOLOGY_NAME, TOPOLOGY_OWNED
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.adapters.own_annotations import DECISION
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import EvenkeelError, StateUnavailableError
from evenkeel.application.ports import Queue, Remaining, StoredCluster
from evenkeel.application.rebalancing.ports import Cluster, Clusters, WorkloadCluster
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.moves import UNNEEDED_NODES, ScaleRequest
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ScaleRequestRecord
from sandbox.kube.api import KubernetesAPI, Request
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.schema import Object
from sandbox.kube.store import Store
from sandbox.kube.workloads import Workloads
from sandbox.kube.world import ZONES, Pool, World
from tests.cluster_objects import CLUSTERS, ClusterObjects
from tests.fakes import FakeBus, FakeClock, FakeQueue, InMemoryStore, plenty, register
from tests.timed import worker

DEAD, BUSY, IDLE, FROZEN = (*ZONES, "eu-central-1d")
POOL = "workers"
#: who owns the bounds: the flavours' own objects, a Cluster's topology, NodePools without and with a pinning fence
OWNERS = ("gardener", "cluster-api", "openshift", "cluster-class", "hypershift", "hypershift-pinned")
PAUSED: dict[str, Object] = {
    "gardener": {"spec": {"paused": True}},
    "cluster-api": {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}},
    "openshift": {"spec": {"authoritativeAPI": "ClusterAPI"}},
    "hypershift": {"spec": {"pausedUntil": "true"}},
}


class How(StrEnum):
    """A fault at a step."""

    BEFORE = "dies before it"
    AFTER = "dies after it"
    LOST = "its answer is lost"
    SLIP = "Cluster Autoscaler scales before it"


class KilledError(BaseException):
    """The worker's process ended. It is no Exception, so that the code under test cannot catch it."""


@dataclass
class Life:
    """One life of a worker. Its calls to outside are steps; at some of them it dies, or a happening occurs.

    Steps count from 0. ``happenings`` are by step and moment ("before" or "after"); patches also count from -1 down.
    """

    at: int | None = None
    how: How = How.BEFORE
    slip: Callable[[], None] = lambda: None
    happenings: Mapping[tuple[int, str], Callable[[], None]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    dead: bool = False

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        """Carry out one step, or its fault. A dead worker carries out nothing."""
        if self.dead:
            raise KilledError
        numbers = [len(self.steps)]
        self.steps.append(name)
        if _is_patch(name):
            numbers.append(-sum(map(_is_patch, self.steps)))
        mine = numbers[0] == self.at
        self._happen(numbers, "before")
        if mine and self.how is How.BEFORE:
            self.die()
        if mine and self.how is How.SLIP:
            self.slip()
        answer = call()
        self._happen(numbers, "after")
        if mine and self.how is How.AFTER:
            self.die()
        if mine and self.how is How.LOST:
            raise lost()
        return answer

    def die(self) -> None:
        self.dead = True
        raise KilledError

    def _happen(self, numbers: Iterable[int], moment: str) -> None:
        for number in numbers:
            self.happenings.get((number, moment), lambda: None)()


#: the beginnings of requests that only read
_READS = ("GET ", "describe_", "table.load", "table.checked_at", "table.steady_clusters")


def is_read(step: str) -> bool:
    """Return True if a request changes nothing. ``CheckedLife`` checks this for API servers and the table."""
    return step.startswith(_READS)


def harmed_at(steps: Iterable[str], how: How) -> Iterator[tuple[int, str]]:
    """Yield the steps at which this fault leaves a new state, each with its number.

    A death after a read leaves the same state as a death after the previous step.
    """
    for at, step in enumerate(steps):
        if at == 0 or how is not How.AFTER or not is_read(step):
            yield at, step


def _is_patch(step: str) -> bool:
    return step.startswith("PATCH") or step.endswith(".patch")


class Mortal:
    """A port whose calls, or those named by ``only``, are steps of a life.

    A caller gets the error ``lost`` instead of a lost answer.
    """

    def __init__(
        self,
        port: object,
        life: Life | Lives,
        name: str,
        lost: type[EvenkeelError] = StateUnavailableError,
        only: Collection[str] | None = None,
    ) -> None:
        self._port, self._life, self._name, self._lost, self._only = port, life, name, lost, only

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        if not callable(target) or (self._only is not None and method not in self._only):
            return target

        def called(*arguments: Any, **named: Any) -> Any:
            return self._life.step(
                f"{self._name}.{method}",
                lambda: target(*arguments, **named),
                lambda: self._lost(f"{self._name}: the answer was lost"),
            )

        return called


class Lives:
    """The nested workers under way. A step belongs to the innermost."""

    def __init__(self) -> None:
        self._lives: list[Life] = []

    @contextlib.contextmanager
    def begin(self, happenings: Mapping[tuple[int, str], Callable[[], None]]) -> Iterator[None]:
        self._lives.append(Life(happenings=happenings))
        try:
            yield
        finally:
            self._lives.pop()

    @property
    def disturbed(self) -> bool:
        """Return True if a run under way has a fault or happening, now or before."""
        return any(life.happenings for life in self._lives)

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        return self._lives[-1].step(name, call, lost)

    def die(self) -> None:
        self._lives[-1].die()


class _Wireless:
    """The part of the client library's transport that the adapter needs, with calls instead of HTTP."""

    def __init__(self, api: KubernetesAPI, life: Life) -> None:
        self._api, self._life = api, life
        token = f"Bearer {api.token('evenkeel')}"
        self.configuration = SimpleNamespace(host="https://sandbox", get_api_key_with_prefix=lambda _: token)

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Any, _request_timeout: Any) -> Any:
        target = url.removeprefix(self.configuration.host)
        headers = {key.lower(): value for key, value in headers.items()}
        text = b"" if body is None else json.dumps(body).encode()
        answer = self._life.step(
            f"{method} {target.partition('?')[0]}",
            lambda: self._api.answer(method, target, headers, text),
            lambda: urllib3.exceptions.ProtocolError("the connection was cut"),
        )
        response = urllib3.HTTPResponse(io.BytesIO(answer.body), preload_content=False)
        return SimpleNamespace(status=answer.status, response=response, getheaders=lambda: dict(answer.headers))


@dataclass(frozen=True)
class WirelessClusters:
    """Opens the only cluster, for one life."""

    api: KubernetesAPI
    life: Life
    clock: FakeClock

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        client = cast("Any", _Wireless(self.api, self.life))
        api = KubernetesApi(record.id, client, None, self.clock)
        return KubernetesCluster(api, record, remaining, consistent=consistent)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        assert record.workload is not None
        api = KubernetesApi(record.id, cast("Any", _Wireless(self.api, self.life)), None, self.clock)
        return KubernetesWorkload(api, record.workload, remaining, flavours=record.flavours, alone=alone)

    def needs_run(self, record: ClusterRecord) -> bool:
        return False


class Runs:
    """Runs at a simulated cluster. Their calls to API server, table and queue are steps of a life."""

    api: KubernetesAPI
    objects: Store
    clock: FakeClock

    def __init__(self, memory: Any = None) -> None:
        self.memory: Any = memory or InMemoryStore()
        self.bus, self.chance = FakeBus(), random.Random(7)

    def clusters_of(self, life: Life) -> Clusters:
        return WirelessClusters(self.api, life, self.clock)

    def run(self, life: Life | None = None, clusters: Clusters | None = None) -> RunSummary:
        """Run once. Raise KilledError if its life ends, EvenkeelError if the message returns to the queue.

        ``clusters`` opens the cluster instead of WirelessClusters.
        """
        life = life or Life()
        return worker(
            cast("ActionStore", Mortal(self.memory, life, "table")),
            clusters or self.clusters_of(life),
            self.clock,
            cast("Queue", Mortal(FakeQueue(), life, "queue")),
            bus=self.bus,
            random_bytes=self.chance.randbytes,
        )("demo", "a test", plenty)

    def troubled(self, life: Life) -> None:
        """Run once, with any end. Then let time pass until its lease has expired."""
        with contextlib.suppress(KilledError, EvenkeelError):
            self.run(life)
        self._pass(timedelta(seconds=75))

    def again(self, *shared: object) -> Self:
        """Return a copy of the scene to play again. ``shared`` objects are not copied."""
        kept = (self.api, self.clock, self.objects._lock, *self.objects.resources, *shared)
        played = copy.deepcopy(self, {id(one): one for one in kept})
        played.clock = copy.copy(self.clock)
        played.objects.clock = played.clock.now
        played.api = copy.copy(self.api)
        played.api.store = played.objects
        played.api.before, played.api.after = [], [played._check_over]
        return played

    def _pass(self, time: timedelta) -> None:
        """Let time pass and the controllers act."""
        raise NotImplementedError

    def _check_over(self, request: Request) -> None:
        """Check the invariants of every request."""


class Scene(Runs, ClusterObjects):
    """A pool of one of OWNERS in four zones: one gives no machines, one has a machine under way, one is idle, one
    frozen.

    Further ``fields`` are the record's; ``arrived`` is called before Evenkeel's first run; without ``incident`` all
    zones stay healthy; ``memory`` replaces the store in memory; ``faults`` collects each violation with the request
    before it.
    """

    def __init__(
        self,
        owner: str,
        *,
        stuck: int = 2,
        maximum: int = 16,
        incident: bool = True,
        arrived: Callable[[Any], None] = lambda _: None,
        memory: Any = None,
        **fields: Any,
    ) -> None:
        kind = {"cluster-class": "cluster-api", "hypershift-pinned": "hypershift"}.get(owner, owner)
        self.kind, self.hypershift = kind, kind == "hypershift"
        flavour = "cluster-api" if self.hypershift else kind
        #: bounds and replicas are on two objects, and no write can have the versions of both
        self.two_objects = owner in ("openshift", "cluster-class") or self.hypershift
        self.clock = FakeClock()
        pool = Pool(name=POOL, minimum=2, maximum=maximum, replicas=(2, 2, 2, 1), zones=(DEAD, BUSY, IDLE, FROZEN))
        world = World(clusters=[kind], pools={kind: [pool]}, clock=self.clock.now, settings=None)
        Runs.__init__(self, memory)
        ClusterObjects.__init__(self, world.clusters[kind])
        if self.hypershift:  # an installer's objects have no fields of Evenkeel
            pools = [{"name": POOL, "selector": {USERS_POOL_LABEL: POOL}, "min": 2, "max": maximum}]
            fields = {"pools": pools, "node_pool_fence": owner == "hypershift-pinned", **fields}
        switches = {"write_topology": True} if owner == "cluster-class" else {}
        register(self.memory, flavours=[flavour], **switches, **fields)
        self.faults: list[str] = []
        self.scaled = 0  # replicas that Cluster Autoscaler has added
        #: zones that it has scaled beyond their bounds -> Evenkeel's last decision then
        self.overtaken: dict[str, str] = {}
        if owner == "cluster-class":
            self._hand_over_to_topology()
        self.patch(self.pausable(FROZEN), PAUSED[kind])
        self._pass(timedelta(seconds=75))
        arrived(self)
        self.settle()
        # Until here, the frozen group's own controllers may write it. From now on, no writer may.
        self.frozen = self._frozen()
        if incident:
            self.cloud.exhaust_zone(DEAD)
            self.scale(DEAD, 2 + stuck)
            self.scale(BUSY, 3)
            self.controllers.step(self.clock.at)
        self.requested = sum(self.replicas().values())
        self.stuck = stuck
        self.expected = self.requested - (stuck if incident and fields.get("on_failure") == "release" else 0)
        self.nodes = self._nodes()
        self.scaled = 0

    def again(self, *shared: object) -> Self:
        return super().again(self.machine_api, *shared)

    # -- the world
    def scale(self, zone: str, replicas: int, manager: str = "cluster-autoscaler") -> None:
        self.scaled += replicas - self.replicas()[zone]
        super().scale(zone, replicas, manager)
        self.overtaken[zone] = self._decision(zone)

    def pausable(self, zone: str) -> Object:
        """Return the object that operators pause: on the scalable, HyperShift's operator would undo it."""
        return self.owner(zone) if self.hypershift else self.item(zone)

    def slip(self, zone: str) -> None:
        """Let Cluster Autoscaler order one machine in a zone. Above max, HyperShift's operator would undo it."""
        item = self.item(zone)
        most = int(item["metadata"]["annotations"][self.machine_api.max_key]) if self.hypershift else None
        if most is None or item["spec"]["replicas"] < most:
            self.scale(zone, self.replicas()[zone] + 1)

    def _hand_over_to_topology(self) -> None:
        """Let a ClusterClass manage the deployments, whose bounds the Cluster has from now on."""
        entries = []
        for zone in self.zones:
            annotations = self.annotations(zone)
            bounds = {key: annotations[key] for key in (self.machine_api.min_key, self.machine_api.max_key)}
            entries.append({"class": "worker", "name": zone, "metadata": {"annotations": bounds}})
            labels = {TOPOLOGY_OWNED: "", TOPOLOGY_NAME: zone}
            self.change(zone, {"metadata": {"labels": labels}})
        topology = {"class": "aws", "version": "v1.34.1", "workers": {"machineDeployments": entries}}
        (cluster,) = self.objects.list(CLUSTERS)
        self.patch(cluster, {"spec": {"topology": topology}})
        self.cluster_class = True

    def grow(self, zone: str, nodes: int) -> None:
        """Let Cluster Autoscaler scale a zone up, and the nodes join."""
        self.scale(zone, nodes)
        for _ in range(4):
            self._pass(timedelta(seconds=75))

    def oldest(self, zone: str) -> list[str]:
        mine = [(item["metadata"]["creationTimestamp"], name) for name, item in self.machines().items()]
        return [name for _, name in sorted(mine) if name.startswith(self.name_of(zone))]

    def marks(self) -> list[str]:
        key = self.machine_api.machines.mark[0]
        return [name for name, item in self.machines().items() if key in (item["metadata"].get("annotations") or {})]

    def _decision(self, zone: str) -> str:
        return str(self.annotations(zone).get(DECISION))

    def _frozen(self) -> str:
        owner = self.annotations(FROZEN) if self.cluster_class else self.owner(FROZEN)
        return json.dumps([self.item(FROZEN), owner], sort_keys=True)

    def _nodes(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.objects.list("nodes")}

    def _pass(self, time: timedelta) -> None:
        self.clock.at += time
        for _ in range(2):  # one controller reads the writes of another
            self.controllers.step(self.clock.at)

    def _check_over(self, request: Request) -> None:
        """Check after each write of Evenkeel that Cluster Autoscaler can work with the bounds that it could read."""
        if request.method != "PATCH" or request.manager != "evenkeel":
            return
        if self.hypershift:  # its operator watches, and acts at once
            self.controllers.reconcile_owners(self.clock.at)
        for zone, (replicas, low, high) in self.sizes().items():
            if 0 <= low <= high and high >= replicas:
                self.overtaken.pop(zone, None)
                continue
            # If it scales past Evenkeel's bounds meanwhile, this lasts until Evenkeel's next write there. With bounds
            # and replicas on two objects it lasts until the next check, because a version guards only one.
            missed = self.two_objects or self._decision(zone) == self.overtaken.get(zone)
            if zone not in self.overtaken or not missed or not 0 <= low <= high:
                self.faults.append(f"after {request.path}: {zone} requests {replicas} within {low}..{high}")

    # -- Evenkeel
    def settle(self) -> None:
        for _ in range(8):
            outcome = self.run()
            self._pass(timedelta(seconds=75))
            if not outcome.written and outcome.check_at is None:
                return
        raise AssertionError(f"eight runs, and it still writes: {outcome.plan}")

    def problems(self) -> list[str]:
        """Return every problem that is left once all is quiet."""
        return self.wrong(self.expected)

    def wrong(self, expected: int, *, lost: int = 0) -> list[str]:
        """Return the problems left, if ``expected`` replicas must be requested and ``lost`` nodes removed."""
        found = list(self.faults)
        sizes = self.sizes()
        total = sum([replicas for replicas, _, _ in sizes.values()])
        if total != expected:
            found.append(f"{total} replicas are requested, not {expected}: {self.replicas()}")
        for zone, (replicas, low, high) in sizes.items():
            if not 0 <= low <= replicas <= high:
                found.append(f"{zone} requests {replicas} within {low}..{high}")
        if len(gone := self.nodes - self._nodes()) != lost:
            found.append(f"running nodes are gone: {', '.join(sorted(gone))}")
        if self._frozen() != self.frozen:
            found.append(f"the frozen group was written: {self._frozen()}")
        for pool, stored in self.memory.load("demo").state.pools.items():
            if stored.move is not None:
                found.append(f"{pool}: the move is still open: {stored.move}")
        return found


class CheckedLife(Life):
    """A life whose reads must not change a scene: ``harmed_at`` leaves out the deaths after them."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        before = self._stored()
        answer = super().step(name, call, lost)
        assert not is_read(name) or self._stored() == before, f"{name} has changed something"
        return answer

    def _stored(self) -> str:
        items = [value for name, value in vars(self.scene.memory).items() if name.startswith("_")]
        return repr((self.scene.objects._version, items))


class ConvergingScene(Scene):
    """Three writable zones with four, two and two nodes: one step makes them level."""

    ready = False

    def __init__(self, owner: str, *, runs: int = 0, **fields: Any) -> None:
        fields = {"level": "converge", "converge": {"blind": True, "per_hour": 60}, **fields}
        super().__init__(owner, incident=False, arrived=lambda scene: scene.grow(BUSY, 4), **fields)
        self.clock.at += timedelta(minutes=11)
        self.controllers.step(self.clock.at)
        self.ready = True
        for _ in range(runs):
            self.troubled(Life())

    @property
    def step(self) -> Any:
        (pool,) = self.memory.load("demo").state.pools.values()
        return pool.convergence.step

    def _check_nodes(self, when: str) -> None:
        if (running := len(self._nodes())) < self.requested:
            self.faults.append(f"{when}: {running} nodes run, {self.requested} did")

    def _check_over(self, request: Request) -> None:
        super()._check_over(request)
        if not self.ready:
            return
        total = sum(self.replicas().values())
        if not self.requested <= total <= self.requested + 1 + self.scaled:
            self.faults.append(f"after {request.path}: {total} replicas are requested, {self.requested} were")
        self._check_nodes(f"after {request.path}")

    def settle(self, runs: int = 9) -> None:
        """Run every 75 s until two runs in a row have nothing left to do."""
        if not self.ready:
            return super().settle()
        idle = 0
        for _ in range(runs):
            idle = 0 if self.run().written or self.step is not None else idle + 1
            self._pass(timedelta(seconds=75))
            self._check_nodes("after a run")
            if idle == 2:
                break
        return None

    def problems(self) -> list[str]:
        lost = self.nodes - self._nodes()
        self.nodes -= lost  # converge may remove as many as it has added
        found = self.wrong(self.requested)
        if len(lost) > 1:
            found.append(f"{len(lost)} nodes have gone")
        counts = [count for zone, count in self.replicas().items() if zone != FROZEN]
        if max(counts) - min(counts) > 1:
            found.append(f"not level: {self.replicas()}")
        if (step := self.step) is not None:
            found.append(f"the step is still open: {step}")
        if any(self.run().written for _ in range(3)):
            found.append("it is not quiet")
        return found


class RequestScene(Scene):
    """A quiet scene with a request for so many nodes (negative: to remove)."""

    def __init__(self, owner: str, nodes: int) -> None:
        super().__init__(owner, incident=False)
        self.asked = nodes
        record = ScaleRequestRecord(id="r1", nodes=nodes, pool=POOL, at=self.clock.now())
        self.memory.save_scale_request("demo", record, None)

    @property
    def request(self) -> ScaleRequestRecord:
        return self.memory.load("demo").scale_requests["r1"]

    def problems(self) -> list[str]:
        return self.wrong(self.requested + self.asked, lost=max(0, -self.asked)) + (
            [] if self.request.done else ["the request is still open"]
        )


class _NamingStore(InMemoryStore):
    """A store that names one machine for removal until it is deleted."""

    scene: RemovalScene

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        stored = super().load(cluster, consistent=consistent)
        scene = self.scene
        machine = scene.machines().get(scene.named)
        if machine is None or scene.needed or "deletionTimestamp" in machine["metadata"]:
            return stored
        key = f"{scene.flavour}/{scene.namespace}/{scene.name_of(BUSY)}"
        machines = {key: (MachineRef(scene.named, scene.uid),)}
        request = ScaleRequest(id=UNNEEDED_NODES, nodes=-1, at=scene.clock.now(), pool=POOL, machines=machines)
        return replace(stored, state=replace(stored.state, scale_requests=(request,)))


class _DrainingScene(Scene):
    """A scene that removes nodes. A run without other writes closes a journal or removes a mark."""

    def settle(self) -> None:
        for _ in range(2):
            self.troubled(Life())
        super().settle()

    def gone(self, expected: int) -> list[str]:
        """Return the problems once it is quiet, if this many nodes had to be removed."""
        found = self.wrong(self.requested - expected, lost=expected)
        if marks := self.marks():
            found.append(f"marks are left on {marks}")
        states = self.memory.load("demo").state.groups.values()
        return found + [f"remembered: {state}" for state in states if state.marked or state.unneeded]


class RemovalScene(_DrainingScene):
    """A quiet scene whose busy zone has three machines, of which the oldest is named for removal."""

    named = uid = ""
    needed = True

    def __init__(self, owner: str) -> None:
        super().__init__(owner, incident=False)
        self.scale(BUSY, 3)
        self.settle()
        self.named = self.oldest(BUSY)[0]
        self.uid = self.machines()[self.named]["metadata"]["uid"]
        self.before = set(self.machines())
        self.nodes = self._nodes()
        self.requested = sum(self.replicas().values())
        table = _NamingStore.__new__(_NamingStore)
        table.__dict__.update(self.memory.__dict__)
        self.memory, table.scene = table, self
        self.needed = False

    def again(self, *shared: object) -> Self:
        played = super().again(*shared)
        cast("_NamingStore", played.memory).scene = played
        return played

    def problems(self, gone: int = 1) -> list[str]:
        found = self.gone(gone)
        went = self.before - set(self.machines())
        if went != ({self.named} if gone else set()):
            found.append(f"gone are {sorted(went)}, and {self.named} was named")
        return found


LARGE, SMALL = "3", "200m"


def running_pod(name: str, node: str, cpu: str) -> Object:
    """Return a pod of a StatefulSet that runs on a node."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": True}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class UnneededScene(_DrainingScene):
    """A quiet scene in which a large pod fills each node, also the frozen zone's one node."""

    def __init__(self, owner: str) -> None:
        full = {"demand": "full", "autoscaler": "none", "workload": {"access": {"kind": "same"}}}
        self.workloads: Workloads | None = None  # no scheduler or kubelets unless nodes are drained
        super().__init__(owner, incident=False, arrived=lambda scene: scene.fill(), **full)

    def again(self, *shared: object) -> Self:
        played = super().again(*shared)
        if self.workloads is not None:
            played.run_workloads()
        return played

    def run_workloads(self) -> None:
        self.workloads = Workloads(self.objects, control_plane=self.namespace)

    def _pass(self, time: timedelta) -> None:
        super()._pass(time)
        for _ in range(3 if self.workloads is not None else 0):
            cast("Workloads", self.workloads).step(self.clock.at)
            self.controllers.step(self.clock.at)

    def fill(self) -> None:
        large = [pod for pod in self.objects.list("pods") if not pod["metadata"]["name"].startswith("small")]
        taken = {pod["spec"]["nodeName"] for pod in large}
        for node in self.objects.list("nodes"):
            if node["metadata"]["name"] not in taken:
                self.pod("large", node, LARGE)

    def pod(self, name: str, node: Object, cpu: str) -> None:
        place = node["metadata"]["name"]
        self.objects.create("pods", running_pod(f"{name}-{place.partition('.')[0]}", place, cpu))

    def empty(self, zone: str, number: int, *, left: str | None = None) -> None:
        """Remove the pods of this many nodes of a zone. ``left``: each keeps a small one instead."""
        label = "topology.kubernetes.io/zone"
        nodes = [item for item in self.objects.list("nodes") if item["metadata"]["labels"][label] == zone]
        for node in nodes[:number]:
            for pod in self.objects.list("pods", fields=f"spec.nodeName={node['metadata']['name']}"):
                self.objects.delete("pods", "default", pod["metadata"]["name"], grace=0)
            if left is not None:
                self.pod("small", node, left)

    def ripen(self) -> Self:
        """Run once to start the unneeded times, and let them pass."""
        self.run()
        self._pass(timedelta(minutes=11))
        return self

    def problems(self) -> list[str]:
        """Return the problems. Of three empty nodes, two are in one zone: Gardener's Worker keeps one of these."""
        return self.gone(2 if self.kind == "gardener" else 3)


def unneeded(owner: str) -> UnneededScene:
    """Return a scene in which two nodes of one zone and one of another have been empty for long enough."""
    scene = UnneededScene(owner)
    scene.empty(BUSY, 2)
    scene.empty(IDLE, 1)
    return scene.ripen()


#: the scenes whose runs are killed at each step, by the subject of the run; each is made for an owner
SCENES: dict[str, Callable[[str], Scene]] = {
    "move": lambda owner: Scene(owner, on_failure="move", autoscaler="none"),
    "move-beside-ca": lambda owner: Scene(owner, on_failure="move", autoscaler="cluster-autoscaler"),
    "release": lambda owner: Scene(owner, on_failure="release", autoscaler="cluster-autoscaler"),
    "growth": lambda owner: RequestScene(owner, 5),
    "give-back": lambda owner: RequestScene(owner, -2),
    "converge-order": ConvergingScene,
    "converge-delete": lambda owner: ConvergingScene(owner, runs=1),
    "converge-close": lambda owner: ConvergingScene(owner, runs=2),
    "named-machine": RemovalScene,
    "unneeded": unneeded,
}


def steps_of(scene: Runs) -> list[str]:
    life = Life()
    scene.again().run(life)
    return life.steps


def patches_of(scene: Scene, part: str = "") -> list[int]:
    """Return the steps of an undisturbed run that patch paths with this part."""
    return [at for at, step in enumerate(steps_of(scene)) if step.startswith("PATCH") and part in step]


def dying_at_every_step(
    scene: Any, hows: Iterable[How], wrong: Callable[[Any], list[str]] = lambda scene: scene.problems()
) -> dict[str, list[str]]:
    """Return the problems left once all is quiet after a run with one fault, by its step."""
    found = {}
    for how in hows:
        for at, step in harmed_at(steps_of(scene), how):
            played = scene.again()
            played.troubled(Life(at=at, how=how))
            played.settle()
            if problems := wrong(played):
                found[f"{at} {step}: {how.value}"] = problems
    return found


def dying_again(scene: Scene, first: int) -> dict[str, list[str]]:
    """Return the same after a run that died before step ``first`` and a second run that dies at each of its steps."""
    found, died = {}, scene.again()
    died.troubled(Life(at=first, how=How.BEFORE))
    for at, step in harmed_at(steps_of(died), How.AFTER):
        played = died.again()
        played.troubled(Life(at=at, how=How.AFTER))
        played.settle()
        if problems := played.problems():
            found[f"{at} {step}"] = problems
    return found


def random_crashes(scene: Scene, chance: random.Random, runs: int, hows: Sequence[How]) -> tuple[int, str]:
    """Play runs with a fault at a random step, until all is quiet.

    Return how many replicas Cluster Autoscaler added in healthy zones meanwhile, and a text about the faults.
    """
    story, before = [], scene.scaled
    for _ in range(runs):
        life = Life(at=chance.randrange(26), how=chance.choice(hows), slip=lambda: scene.slip(BUSY))
        scene.troubled(life)
        if life.at is not None and life.at < len(life.steps):
            story.append(f"{life.steps[life.at]}: {life.how.value}")
    scene.settle()
    return scene.scaled - before, "; ".join(story) or "nothing happened"
