"""The sandbox's cluster-autoscaler obeys bounds, and stops at invalid ones, as the real one does."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.groups import Bounds
from sandbox.kube.autoscaler import BoundsError, ClusterAutoscaler, read_bounds
from sandbox.kube.controllers.cluster_api import ClusterAPIControllers
from sandbox.kube.world import Pool, World
from tests.objects import as_sent

FLAVOUR, POOL = "cluster-api", "p"
A = "eu-central-1a"
PREFIX = ClusterAPIControllers.api.prefix
MIN, MAX = (f"{PREFIX}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
SCALABLES = ClusterAPIControllers.api.scalables


class Scene:
    def __init__(self) -> None:
        pool = Pool(name=POOL, minimum=0, maximum=12, replicas=(1, 1, 1))
        self.world = World(clusters=[FLAVOUR], pools={FLAVOUR: [pool]})
        self.cluster = self.world.clusters[FLAVOUR]
        autoscaler = self.cluster.autoscaler
        assert autoscaler is not None
        self.autoscaler: ClusterAutoscaler = autoscaler

    def bounds(self, zone: str, low: Any, high: Any, **spec: Any) -> None:
        """Write a zone's bounds as Evenkeel would: one merge patch."""
        item = next(view for view in self.world.groups() if view.zone == zone)
        patch: dict[str, Any] = {"metadata": {"annotations": {MIN: str(low), MAX: str(high)}}}
        if spec:
            patch["spec"] = spec
        self.cluster.store.patch(SCALABLES, item.namespace, item.name, patch, manager="evenkeel")

    def demand(self, pods: int, zone: str | None = None) -> None:
        self.cluster.set_demand(POOL, pods, zone)

    def run(self, **duration: float) -> None:
        self.world.run(timedelta(**duration))

    @property
    def requested(self) -> list[int]:
        return [view.requested for view in self.world.groups()]

    @property
    def running(self) -> list[int]:
        return [view.running for view in self.world.groups()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, Bounds(0, 0)),
        ({MIN: "1", MAX: "4"}, Bounds(1, 4)),
        ({MAX: "3"}, Bounds(0, 3)),
        ({MIN: "2", MAX: "2"}, Bounds(2, 2)),
    ],
)
def test_bounds_are_read_with_missing_ones_as_zero(annotations: dict[str, str], expected: Bounds) -> None:
    assert read_bounds(annotations, PREFIX) == expected


@pytest.mark.parametrize("annotations", [{MIN: "-1", MAX: "4"}, {MAX: "four"}, {MIN: "5", MAX: "4"}, {MAX: ""}])
def test_invalid_bounds_are_refused(annotations: dict[str, str]) -> None:
    with pytest.raises(BoundsError):
        read_bounds(annotations, PREFIX)


@pytest.mark.parametrize("bad", [(3, 2), (-1, 4), ("x", 4)])
def test_an_invalid_bound_stops_it_for_every_group(bad: tuple[Any, Any]) -> None:
    scene = Scene()
    scene.bounds(A, *bad)
    scene.demand(9)
    scene.run(minutes=2)
    assert scene.requested == [1, 1, 1]
    assert A in scene.autoscaler.blind
    scene.bounds(A, 0, 4)
    scene.run(minutes=3)
    assert scene.running == [3, 3, 3]


def test_its_writes_have_no_version_and_name_the_writer(scene: Scene) -> None:
    before = scene.cluster.store.list(SCALABLES)[0]
    scene.bounds(A, 0, 9)
    scene.demand(9)
    scene.run(seconds=10)
    after = scene.cluster.store.list(SCALABLES)[0]
    assert after["spec"]["replicas"] > before["spec"]["replicas"]
    assert after["metadata"]["annotations"][MAX] == "9"
    sent = as_sent(scene.cluster.store, SCALABLES, after)
    (entry,) = [item for item in sent["metadata"]["managedFields"] if item["manager"] == "cluster-autoscaler"]
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
