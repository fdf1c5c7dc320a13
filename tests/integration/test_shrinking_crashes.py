"""A worker may die anywhere while nodes go that nobody needs: they go once, marked, one drain at a time, to the minima.

Real use case, real adapters of machines and of pods, simulated API with its controllers, scheduler and drains
(tests/crashing.py), every step of the run.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.incidents import IncidentKind
from sandbox.kube.schema import Object
from sandbox.kube.workloads import Workloads
from tests.crashing import BUSY, DEAD, IDLE, OWNERS, How, Life, Scene, dying_again, dying_at_every_step, patches_of

FULL: dict[str, Any] = {"demand": "full", "autoscaler": "none", "workload": {"access": {"kind": "same"}}}
LARGE, SMALL = "3", "200m"


class Emptying(Scene):
    """A quiet scene in which every node has a large pod that fills it; the frozen zone's one node as well."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner, incident=False, arrived=lambda scene: scene.fill(), **FULL)  # type: ignore[attr-defined]
        self.workloads: Workloads | None = None  # no scheduler and no kubelets, where nobody is drained

    def again(self) -> Emptying:
        played = super().again()
        if self.workloads is not None:
            played.run_workloads()
        return played

    def run_workloads(self) -> None:
        self.workloads = Workloads(self.objects, control_plane=self.namespace)

    def _pass(self, time: timedelta) -> None:
        super()._pass(time)
        workloads: Workloads | None = getattr(self, "workloads", None)
        for _ in range(3 if workloads is not None else 0):
            assert workloads is not None
            workloads.step(self.clock.at)
            self.controllers.step(self.clock.at)

    @property
    def spare(self) -> int:
        """Of three empty nodes, two in one zone: Gardener's Worker keeps one of those."""
        return 2 if self.kind == "gardener" else 3

    # -- pods
    def fill(self) -> None:
        for node in self.objects.list("nodes"):
            self.pod(f"large-{node['metadata']['name'].partition('.')[0]}", node, LARGE)

    def fill_again(self) -> None:
        """Every node that is there and has no large pod gets one."""
        large = [pod for pod in self.objects.list("pods") if not pod["metadata"]["name"].startswith("small")]
        taken = {pod["spec"]["nodeName"] for pod in large}
        for node in self.objects.list("nodes"):
            if node["metadata"]["name"] not in taken:
                self.pod(f"late-{node['metadata']['name'].partition('.')[0]}", node, LARGE)

    def pod(self, name: str, node: Object, cpu: str) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": True}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"containers": [container], "nodeName": node["metadata"]["name"]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.objects.create("pods", body)

    def nodes_in(self, zone: str) -> list[Object]:
        label = "topology.kubernetes.io/zone"
        return [item for item in self.objects.list("nodes") if item["metadata"]["labels"][label] == zone]

    def empty(self, zone: str, number: int, *, left: str | None = None) -> None:
        """So many nodes of a zone lose their pod; ``left``: each keeps a small one instead."""
        for node in self.nodes_in(zone)[:number]:
            name = node["metadata"]["name"]
            for pod in self.objects.list("pods", fields=f"spec.nodeName={name}"):
                self.objects.delete("pods", "default", pod["metadata"]["name"], grace=0)
            if left is not None:
                self.pod(f"small-{name.partition('.')[0]}", node, left)

    # -- what is expected
    def ripen(self) -> None:
        """A run that starts the clocks, and the time that they take."""
        self.run()
        self._pass(timedelta(minutes=11))

    def settle(self) -> None:
        for _ in range(2):
            self.troubled(Life())
        super().settle()

    def marks(self) -> list[str]:
        key = self.machine_api.machines.mark[0]
        return [name for name, item in self.machines().items() if key in (item["metadata"].get("annotations") or {})]

    def wrong_after(self, gone: int) -> list[str]:
        lost = self.nodes - self._nodes()
        self.nodes -= lost
        found = self.wrong(self.requested - gone)
        if len(lost) != gone:
            found.append(f"{len(lost)} nodes went, not {gone}")
        if marks := self.marks():
            found.append(f"marks are left on {marks}")
        groups = self.memory.load("demo").state.groups.values()
        found += [f"remembered: {state}" for state in groups if state.marked or state.unneeded]
        return found


@pytest.fixture(scope="module", params=OWNERS)
def filled(request: pytest.FixtureRequest) -> Emptying:
    return Emptying(request.param)


@pytest.fixture(scope="module")
def emptied(filled: Emptying) -> Emptying:
    """Two nodes of one zone and one of another are empty, long enough."""
    scene = filled.again()
    scene.empty(BUSY, 2)
    scene.empty(IDLE, 1)
    scene.ripen()
    return scene


def test_undisturbed_the_empty_go_at_once_and_nobody_else(emptied: Emptying) -> None:
    scene = emptied.again()
    assert scene.run().written
    scene.settle()
    assert scene.wrong_after(scene.spare) == []
    assert scene.replicas()[DEAD] == 2


def test_whatever_step_the_worker_dies_at_the_same_nodes_go(emptied: Emptying) -> None:
    assert len(patches_of(emptied)) >= 4
    assert dying_at_every_step(emptied, [How.AFTER], lambda scene: scene.wrong_after(scene.spare)) == {}  # type: ignore[attr-defined]


def test_dying_in_the_run_that_goes_on_does_no_harm_either(emptied: Emptying) -> None:
    first = max(patches_of(emptied))
    assert dying_again(emptied, first, lambda scene: scene.wrong_after(scene.spare)) == {}  # type: ignore[attr-defined]


def test_pods_that_come_before_replicas_fall_keep_their_node_and_its_mark_comes_off(emptied: Emptying) -> None:
    scene = emptied.again()
    life = Life()
    emptied.again().run(life)
    mark = next(at for at, step in enumerate(life.steps) if step.startswith("PATCH") and "/machines/" in step)
    scene.troubled(Life(at=mark, how=How.AFTER))
    assert len(scene.marks()) == 1
    scene.fill_again()
    scene.settle()
    assert scene.wrong_after(0) == []


# ---------------------------------------------------------------- nodes with pods


@pytest.fixture
def draining() -> Emptying:
    """Two nodes of two zones with a small pod each, long enough, and room for both on a third."""
    scene = Emptying("cluster-api")
    scene.run_workloads()
    scene.empty(BUSY, 1, left=SMALL)
    scene.empty(IDLE, 1, left=SMALL)
    scene.ripen()
    return scene


def test_nodes_with_pods_go_one_by_one_and_their_pods_are_evicted(draining: Emptying) -> None:
    draining.run()
    assert sum(draining.replicas().values()) == draining.requested - 1
    going = draining.nodes - draining._nodes()
    assert len(going) <= 1
    draining.settle()
    assert draining.faults == []
    assert sum(draining.replicas().values()) == draining.requested - 2
    assert not [pod for pod in draining.objects.list("pods") if pod["metadata"]["name"].startswith("small")]


def test_a_drain_that_a_budget_holds_is_told_once_and_no_second_one_begins(draining: Emptying) -> None:
    draining.run()
    spec = {"minAvailable": 100, "selector": {"matchLabels": {"app": "web"}}}
    draining.objects.create(
        "poddisruptionbudgets.policy", {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    )
    for _ in range(20):
        draining._pass(timedelta(minutes=1))
        draining.run()
    cluster_health = draining.memory.load("demo").cluster_health
    (incident,) = cluster_health.incidents
    assert incident.kind is IncidentKind.DRAIN_HANGS
    assert incident.said.startswith("ip-")
    assert sum(draining.replicas().values()) == draining.requested - 1
    draining.objects.delete("poddisruptionbudgets.policy", "default", "web")
    draining.settle()
    assert draining.memory.load("demo").cluster_health.incidents == ()
