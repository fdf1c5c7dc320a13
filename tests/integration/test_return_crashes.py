"""If a worker dies at any request of a return from a fallback pool, no node is lost and no limit is passed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, Self

import pytest

from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.states import PoolState
from sandbox.kube.api import Request
from sandbox.kube.world import Pool, World
from tests.crashing import LARGE, How, Life, Runs, dying_at_every_step, running_pod, steps_of
from tests.fakes import FakeClock, register
from tests.parts import replace

A, B = "eu-central-1a", "eu-central-1b"
FIRST = Pool(name="first", minimum=2, maximum=5, replicas=(1, 1), zones=(A, B))
SPARE = Pool(
    name="spare",
    minimum=1,
    maximum=3,
    replicas=(1, 1),
    zones=(A, B),
    annotations={"evenkeel.dev/fallback-for": "first"},
)


class ReturnScene(Runs):
    """Two pools whose nodes are full. The fallback holds its node in zone a for the first pool.

    The pods of the held node need ``nodes`` new nodes. The scene begins after so many ``runs``. ``faults`` collects
    each violation with the request before it.
    """

    def __init__(self, kind: str, *, autoscaler: str = "none", nodes: int = 1, runs: int = 0) -> None:
        super().__init__()
        self.clock = FakeClock()
        # Gardener gives zone a the only node of such a minimum, and no step removes it.
        self.pools = (FIRST, dataclasses.replace(SPARE, minimum=0) if kind == "gardener" else SPARE)
        world = World(clusters=[kind], pools={kind: self.pools}, clock=self.clock.now, settings=None)
        self.cluster = world.clusters[kind]
        self.api, self.objects, self.controllers = self.cluster.api, self.cluster.store, self.cluster.controllers
        register(
            self.memory,
            flavours=[self.cluster.flavour],
            autoscaler=autoscaler,
            level="converge",
            converge={"per_hour": 60},
            workload={"access": {"kind": "same"}},
        )
        self.nodes, self.faults = nodes, list[str]()
        for _ in range(3):
            self._pass()
        self.run()
        self.held = self._fill(nodes)
        state, versions = self.state("spare"), self.memory.load("demo").versions
        self.memory.save_pool("demo", self._id("spare"), replace(state, held_nodes={self._key(): 1}), versions)
        self.there = self._running()
        self.api.after = [self._check_over]
        self.run()  # the pool settles for ten minutes
        self._pass(timedelta(minutes=11))
        for _ in range(runs):
            self.troubled(Life())

    # -- the world

    def _running(self) -> dict[str, str]:
        """Return the pool of each node, by name."""
        machine = "sandbox.evenkeel.dev/machine"
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.objects.list("nodes")}
        return {name: "spare" if "-spare-" in each[machine] else "first" for name, each in labels.items()}

    def _fill(self, nodes: int) -> str:
        """Fill each node, and return the name of the fallback's node in zone a, which has pods for several nodes."""
        pools, held = self._running(), ""
        for node in self.objects.list("nodes"):
            name = node["metadata"]["name"]
            is_held = pools[name] == "spare" and node["metadata"]["labels"]["topology.kubernetes.io/zone"] == A
            held = name if is_held else held
            for number in range(nodes if is_held else 1):
                self.objects.create("pods", running_pod(f"{name.partition('.')[0]}-{number}", name, LARGE))
        return held

    def _pass(self, time: timedelta = timedelta(seconds=75)) -> None:
        self.clock.at += time
        for _ in range(2):
            self.controllers.step(self.clock.at)
        for node in self.objects.list("nodes"):  # no kubelet ends a pod
            if node["spec"].get("unschedulable"):
                for pod in self.objects.list("pods", fields=f"spec.nodeName={node['metadata']['name']}"):
                    self.objects.delete("pods", "default", pod["metadata"]["name"], grace=0)
        self.controllers.step(self.clock.at)

    def requested(self) -> dict[str, int]:
        found = {"first": 0, "spare": 0}
        for group in self.cluster.groups():
            found[group.pool] += group.requested
        return found

    def _check_over(self, request: Request) -> None:
        """Check after each write of Evenkeel the sum, both pools' limits, and the bounds that an autoscaler reads."""
        if request.method != "PATCH" or request.manager != "evenkeel":
            return
        now = self.requested()
        if not 4 <= sum(now.values()) <= 4 + self.nodes:
            self.faults.append(f"after {request.path}: {now}")
        for pool in self.pools:
            if not pool.minimum <= now[pool.name] <= pool.maximum:
                self.faults.append(f"after {request.path}: {pool.name} requests {now[pool.name]}")
        for group in self.cluster.groups():
            low, high = group.minimum, group.maximum
            if low is None or high is None or not 0 <= low <= high or high < group.requested:
                self.faults.append(
                    f"after {request.path}: {group.name} requests {group.requested} within {low}..{high}"
                )
        if len(self._running()) < len(self.there):
            self.faults.append(f"after {request.path}: {len(self._running())} nodes run")
        if lost := self.there.keys() - self._running().keys() - {self.held}:
            self.faults.append(f"after {request.path}: {sorted(lost)} are gone")

    # -- Evenkeel

    def _id(self, name: str) -> PoolId:
        return next(id for id in self.memory.load("demo").state.pools if id.name == name)

    def _key(self) -> str:
        state = self.state("spare").seen
        assert state is not None
        return next(key for key in state.requested if key.endswith((A, "-z1")))

    def state(self, name: str) -> PoolState:
        return self.memory.load("demo").state.pools[self._id(name)]

    def again(self, *shared: object) -> Self:
        played = super().again(self.cluster.autoscaler, *shared)
        played.cluster.api = played.api
        return played

    def settle(self) -> None:
        quiet = 0
        for _ in range(16):
            outcome = self.run()
            self._pass()
            is_open = self.state("first").convergence.step is not None
            quiet = 0 if outcome.written or is_open else quiet + 1
            if quiet == 2:
                return

    def problems(self) -> list[str]:
        """Return the problems that are left once all is quiet, when the held node must have returned."""
        found, now = list(self.faults), self.requested()
        if now != {"first": 2 + self.nodes, "spare": 1}:
            found.append(f"{now} are requested")
        running = self._running()
        if self.there.keys() - running.keys() != {self.held}:
            found.append(f"gone are {sorted(self.there.keys() - running.keys())}")
        if sum(pool == "first" for pool in running.values()) != 2 + self.nodes:
            found.append(f"{running} run")
        for name in ("first", "spare"):
            state = self.state(name)
            if state.move is not None or state.convergence.step is not None or state.held_nodes:
                found.append(f"{name} is not done: {state}")
        return found


def at(kind: str, autoscaler: str, nodes: int, *runs: int) -> list[Any]:
    """Return a scene for each run that writes: order a node, delete a machine of the fallback, close the step."""
    return [pytest.param((kind, autoscaler, nodes, run), id=f"{kind}-{nodes}-{run}") for run in runs]


SCENES = [
    *at("cluster-api", "none", 1, 0, 2, 3),
    *at("gardener", "none", 2, 0, 2, 4, 5),
    *at("openshift", "cluster-autoscaler", 1, 0, 2, 3),
]


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> ReturnScene:
    kind, autoscaler, nodes, runs = request.param
    return ReturnScene(kind, autoscaler=autoscaler, nodes=nodes, runs=runs)


@pytest.mark.parametrize("scene", SCENES, indirect=True)
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
def test_a_death_or_a_lost_answer_at_any_request_of_a_return_does_no_harm(scene: ReturnScene, how: How) -> None:
    assert len(steps_of(scene)) > 5
    assert dying_at_every_step(scene, [how]) == {}


@pytest.mark.parametrize("kind", ["gardener", "cluster-api", "openshift"])
def test_an_undisturbed_return_ends_well(kind: str) -> None:
    scene = ReturnScene(kind)
    scene.settle()
    assert scene.problems() == []
