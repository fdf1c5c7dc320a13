"""A worker that dies at a step of our choice, beside a cluster that goes on living.

The real use case and the real Kubernetes adapter run against the simulated API, without a wire in between: every call
of the table, of the queue and of the API server is one *step*, and a run can end before it, after it, or live on with
its answer lost. Thousands of such runs fit into a minute.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Self, cast

import urllib3

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.objects import DECISION
from evenkeel.adapters.kubernetes.owners.cluster_topology import TOPOLOGY_NAME, TOPOLOGY_OWNED
from evenkeel.adapters.kubernetes.read.list_cache import ListCache
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import EvenkeelError, StateUnavailableError
from evenkeel.application.ports import Queue, Remaining
from evenkeel.application.rebalancing.ports import Cluster, Clusters, WorkloadCluster
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.record import ClusterRecord
from sandbox.kube.api import KubernetesAPI, Request
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.schema import Object
from sandbox.kube.world import ZONES, Pool, World
from tests.cluster_objects import CLUSTERS, ClusterObjects
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, plenty, register
from tests.timed import worker

DEAD, BUSY, IDLE, FROZEN = (*ZONES, "eu-central-1d")
POOL = "workers"
#: who owns the bounds: the flavours' own way, a Cluster's topology, NodePools without and with the fence that pins them
OWNERS = ("gardener", "cluster-api", "openshift", "cluster-class", "hypershift", "hypershift-pinned")
PAUSED: dict[str, Object] = {
    "gardener": {"spec": {"paused": True}},
    "cluster-api": {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}},
    "openshift": {"spec": {"authoritativeAPI": "ClusterAPI"}},
    "hypershift": {"spec": {"pausedUntil": "true"}},
}


class How(StrEnum):
    """What happens at a step."""

    BEFORE = "dies before it"
    AFTER = "dies after it"
    LOST = "its answer is lost"
    SLIP = "Cluster Autoscaler scales before it"


class KilledError(BaseException):
    """The worker's process is gone. Not an Exception: nothing under test may catch it and go on."""


@dataclass
class Life:
    """One life of a worker. Its calls to the world outside are steps; it ends, or something happens, at some of them.

    Steps count from 0. ``happenings`` by step and moment ("before" or "after"); those of patches also from -1 down.
    """

    at: int | None = None
    how: How = How.BEFORE
    slip: Callable[[], None] = lambda: None
    happenings: Mapping[tuple[int, str], Callable[[], None]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    dead: bool = False

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        """Carry out one step, or what has been arranged instead. The dead carry out nothing."""
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


def _is_patch(step: str) -> bool:
    return step.startswith("PATCH") or step.endswith(".patch")


class Mortal:
    """A port whose every call is a step of a life, or the calls of some names alone.

    ``lost`` is what a caller gets in the place of a lost answer.
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
        if self._only is not None and method not in self._only:
            return target

        def called(*arguments: Any, **named: Any) -> Any:
            return self._life.step(
                f"{self._name}.{method}",
                lambda: target(*arguments, **named),
                lambda: self._lost(f"{self._name}: the answer was lost"),
            )

        return called


class Lives:
    """The workers that are under way, one within another: a step is one of the innermost."""

    def __init__(self) -> None:
        self._lives: list[Life] = []

    @contextlib.contextmanager
    def begin(self, happenings: Mapping[tuple[int, str], Callable[[], None]]) -> Iterator[None]:
        """One invocation, to which all this happens."""
        self._lives.append(Life(happenings=happenings))
        try:
            yield
        finally:
            self._lives.pop()

    @property
    def disturbed(self) -> bool:
        """Whether something happens, or has happened, to a run that is under way."""
        return any(life.happenings for life in self._lives)

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        return self._lives[-1].step(name, call, lost)

    def die(self) -> None:
        self._lives[-1].die()


class _Wireless:
    """What the adapter needs of the client library's transport: requests go straight to the simulated server."""

    def __init__(self, api: KubernetesAPI, life: Life) -> None:
        self._api, self._life = api, life
        token = f"Bearer {api.token('evenkeel')}"
        self.configuration = SimpleNamespace(host="https://sandbox", get_api_key_with_prefix=lambda _: token)

    def call_api(
        self, method: str, url: str, *, header_params: Mapping[str, str], body: Any, _request_timeout: Any
    ) -> Any:
        target = url.removeprefix(self.configuration.host)
        headers = {key.lower(): value for key, value in header_params.items()}
        text = b"" if body is None else json.dumps(body).encode()
        answer = self._life.step(
            f"{method} {target.partition('?')[0]}",
            lambda: self._api.answer(method, target, headers, text),
            lambda: urllib3.exceptions.ProtocolError("the connection was cut"),
        )
        response = urllib3.HTTPResponse(io.BytesIO(answer.body), preload_content=False)
        return SimpleNamespace(status=answer.code, response=response, getheaders=lambda: dict(answer.headers))


@dataclass(frozen=True)
class WirelessClusters:
    """Opens the one cluster there is, for one life."""

    api: KubernetesAPI
    life: Life
    clock: FakeClock
    kept: ListCache | None = None  # of the lives before; None: this is the first

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        client = cast("Any", _Wireless(self.api, self.life))
        api = KubernetesApi(record.id, client, None, self.clock)
        return KubernetesCluster(api, record, remaining, consistent=consistent, list_cache=self.kept)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Its pods run in the same cluster."""
        assert record.workload is not None
        api = KubernetesApi(record.id, cast("Any", _Wireless(self.api, self.life)), None, self.clock)
        return KubernetesWorkload(api, record.workload, remaining, alone=alone)


class Scene(ClusterObjects):
    """A pool of one of OWNERS: four zones, of which one gives no machines any more, one has a machine under
    way, one is idle, one frozen.

    ``fields`` go into the cluster's record; ``arrived`` is called when the world is ready, before Evenkeel comes;
    without ``incident`` all zones stay well. ``faults`` collects each violation with the request after which
    it was.
    """

    def __init__(
        self,
        owner: str,
        *,
        stuck: int = 2,
        incident: bool = True,
        arrived: Callable[[Scene], None] = lambda _: None,
        **fields: Any,
    ) -> None:
        kind = {"cluster-class": "cluster-api", "hypershift-pinned": "hypershift"}.get(owner, owner)
        self.kind, self.hypershift = kind, kind == "hypershift"
        flavour = "cluster-api" if self.hypershift else kind
        #: bounds and replicas stand on two objects, and no write can carry the versions of both
        self.two_objects = owner in ("openshift", "cluster-class") or self.hypershift
        self.clock = FakeClock()
        pool = Pool(name=POOL, minimum=2, maximum=16, replicas=(2, 2, 2, 1), zones=(DEAD, BUSY, IDLE, FROZEN))
        world = World(clusters=[kind], pools={kind: [pool]}, clock=self.clock.now, settings=None)
        super().__init__(world.clusters[kind])
        self.memory = InMemoryStore()
        if self.hypershift:  # an installer's objects say nothing of ours
            pools = [{"name": POOL, "selector": {USERS_POOL_LABEL: POOL}, "min": 2, "max": 16}]
            fields = {"pools": pools, "node_pool_fence": owner == "hypershift-pinned", **fields}
        switches = {"write_topology": True} if owner == "cluster-class" else {}
        register(self.memory, flavours=[flavour], **switches, **fields)
        self.chance = random.Random(7)
        self.faults: list[str] = []
        self.scaled = 0  # replicas that Cluster Autoscaler has added
        #: zones that it has scaled, and whose bounds have not held that since; what we had last decided then
        self.overtaken: dict[str, str] = {}
        if owner == "cluster-class":
            self._hand_over_to_topology()
        self.patch(self.pausable(FROZEN), PAUSED[kind])
        self._pass(timedelta(seconds=75))
        arrived(self)
        self.settle()
        # The frozen group's own controllers may have written it until here; nobody may from now on.
        self.frozen = self._frozen()
        if incident:
            self.cloud.exhaust_zone(DEAD)
            self.scale(DEAD, 2 + stuck)
            self.scale(BUSY, 3)
            self.controllers.step(self.clock.at)
        self.requested = sum(self.replicas().values())
        self.stuck = stuck
        self.nodes = self._nodes()
        self.scaled = 0

    def again(self) -> Self:
        """The same scene, to be played once more."""
        kept = (self.api, self.clock, self.machine_api, self.objects._lock, *self.objects.resources)
        memo: dict[int, Any] = {id(one): one for one in kept}
        played = copy.deepcopy(self, memo)
        played.clock = copy.copy(self.clock)
        played.objects.clock = played.clock.now
        played.api = copy.copy(self.api)
        played.api.store = played.objects
        played.api.before, played.api.after = [], [played._look_over]
        return played

    # -- the world
    def scale(self, zone: str, replicas: int, manager: str = "cluster-autoscaler") -> None:
        self.scaled += replicas - self.replicas()[zone]
        super().scale(zone, replicas, manager)
        self.overtaken[zone] = self._decision(zone)

    def pausable(self, zone: str) -> Object:
        """What people pause there: HyperShift's operator would take it off the scalable again."""
        return self.owner(zone) if self.hypershift else self.item(zone)

    def slip(self, zone: str) -> None:
        """Cluster Autoscaler orders one more machine in a zone. Above max HyperShift's operator would take it back."""
        item = self.item(zone)
        most = int(item["metadata"]["annotations"][self.machine_api.max_key]) if self.hypershift else None
        if most is None or item["spec"]["replicas"] < most:
            self.scale(zone, self.replicas()[zone] + 1)

    def _hand_over_to_topology(self) -> None:
        """A ClusterClass makes the deployments: their bounds come from the Cluster from now on."""
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

    def _decision(self, zone: str) -> str:
        return str(self.annotations(zone).get(DECISION))

    def _frozen(self) -> str:
        owner = self.annotations(FROZEN) if self.cluster_class else self.owner(FROZEN)
        return json.dumps([self.item(FROZEN), owner], sort_keys=True)

    def _nodes(self) -> set[str]:
        return self.objects.names("nodes")

    def _pass(self, time: timedelta) -> None:
        """Time goes by, and the controllers do their work."""
        self.clock.at += time
        for _ in range(2):  # what one controller wrote another reads
            self.controllers.step(self.clock.at)

    def _look_over(self, request: Request) -> None:
        """After every write of ours: bounds that Cluster Autoscaler could read now are bounds that it can live with."""
        if request.method != "PATCH" or request.manager != "evenkeel":
            return
        if self.hypershift:  # its operator watches, and does its part at once
            self.controllers.reconcile_owners(self.clock.at)
        for zone, (replicas, low, high) in self.sizes().items():
            if 0 <= low <= high and high >= replicas:
                self.overtaken.pop(zone, None)
                continue
            # What it scales past our bounds meanwhile lasts until our next write there; where bounds and replicas stand
            # on two objects until our next look, because a version guards only one.
            missed = self.two_objects or self._decision(zone) == self.overtaken.get(zone)
            if zone not in self.overtaken or not missed or not 0 <= low <= high:
                self.faults.append(f"after {request.path}: {zone} requests {replicas} within {low}..{high}")

    # -- Evenkeel
    def run(self, life: Life | None = None, clusters: Clusters | None = None) -> RunSummary:
        """One run. KilledError where its life ends; EvenkeelError where the message goes back to the queue.

        ``clusters`` opens the cluster in another way than without a wire.
        """
        life = life or Life()
        return worker(
            cast("ActionStore", Mortal(self.memory, life, "table")),
            clusters or WirelessClusters(self.api, life, self.clock),
            self.clock,
            cast("Queue", Mortal(FakeQueue(), life, "queue")),
            random_bytes=self.chance.randbytes,
        )("demo", "a test", plenty)

    def troubled(self, life: Life) -> None:
        """A run that may end badly, and then a minute and more in which its lease runs out."""
        with contextlib.suppress(KilledError, EvenkeelError):
            self.run(life)
        self._pass(timedelta(seconds=75))

    def settle(self) -> None:
        """Runs until nothing is written any more."""
        for _ in range(8):
            outcome = self.run()
            self._pass(timedelta(seconds=75))
            if not outcome.written:
                return
        raise AssertionError(f"eight runs, and it still writes: {outcome.plan}")

    def wrong(self, expected: int) -> list[str]:
        """Everything that is not as it must be, once all is quiet; ``expected`` is the sum of requested."""
        found = list(self.faults)
        sizes = self.sizes()
        total = sum([replicas for replicas, _, _ in sizes.values()])
        if total != expected:
            found.append(f"{total} replicas are requested, not {expected}: {self.replicas()}")
        for zone, (replicas, low, high) in sizes.items():
            if not 0 <= low <= replicas <= high:
                found.append(f"{zone} requests {replicas} within {low}..{high}")
        if lost := self.nodes - self._nodes():
            found.append(f"running nodes are gone: {', '.join(sorted(lost))}")
        if self._frozen() != self.frozen:
            found.append(f"the frozen group was written: {self._frozen()}")
        for pool, remembered in self.memory.load("demo").state.pools.items():
            if remembered.move is not None:
                found.append(f"{pool}: the move is still open: {remembered.move}")
        return found


def steps_of(scene: Scene) -> list[str]:
    """What an undisturbed run does, step by step."""
    life = Life()
    scene.again().run(life)
    return life.steps


def patches_of(scene: Scene) -> list[int]:
    """The steps of an undisturbed run that are patches."""
    return [at for at, step in enumerate(steps_of(scene)) if step.startswith("PATCH")]


def dying_at_every_step(scene: Scene, hows: Iterable[How], wrong: Callable[[Scene], list[str]]) -> dict[str, list[str]]:
    """What is wrong once all is quiet after a run that came to harm, by the step that it happened at."""
    found = {}
    for how in hows:
        for at, step in enumerate(steps_of(scene)):
            played = scene.again()
            played.troubled(Life(at=at, how=how))
            played.settle()
            if problems := wrong(played):
                found[f"{at} {step}: {how.value}"] = problems
    return found


def dying_again(scene: Scene, first: int, wrong: Callable[[Scene], list[str]]) -> dict[str, list[str]]:
    """The same after a run that died before its step ``first``, and a second one that dies at every step of its own."""
    found = {}
    for at in range(60):
        played = scene.again()
        played.troubled(Life(at=first, how=How.BEFORE))
        mending = Life(at=at, how=How.AFTER)
        played.troubled(mending)
        if not mending.dead:
            return found
        played.settle()
        if problems := wrong(played):
            found[f"{at} {mending.steps[-1]}"] = problems
    raise AssertionError("a run of sixty steps: the loop must go on for longer")


def random_crash(scene: Scene, chance: random.Random) -> tuple[int, str]:
    """One to three runs that each come to harm at a random step, and then peace.

    Returns how many replicas Cluster Autoscaler has added in healthy zones meanwhile, and what happened, in words.
    """
    story, before = [], scene.scaled
    for _ in range(chance.randint(1, 3)):
        life = Life(at=chance.randrange(26), how=chance.choice(list(How)))
        life.slip = lambda: scene.slip(BUSY)
        scene.troubled(life)
        if life.at is not None and life.at < len(life.steps):
            story.append(f"{life.steps[life.at]}: {life.how.value}")
    scene.settle()
    return scene.scaled - before, "; ".join(story) or "nothing happened"
