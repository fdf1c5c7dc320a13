"""A quick check finds every change of the groups and their owners that a full check finds."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.rebalancing.ports import Cluster
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store
from sandbox.kube.world import World
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, plenty, record

FLAVOURS = ("gardener", "cluster-api", "openshift")
#: the kinds that a check lists besides machines; another kind of each flavour has bounds or ranges
KINDS = {
    "gardener": (
        "machinedeployments.machine.sapcloud.io",
        "machinesets.machine.sapcloud.io",
        "workers.extensions.gardener.cloud",
    ),
    "cluster-api": ("machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"),
    "openshift": ("machinesets.machine.openshift.io", "machineautoscalers.autoscaling.openshift.io"),
}
#: the kinds that a quick check compares: the groups, and the known owners of numbers
COMPARED = (
    *(kinds[0] for kinds in KINDS.values()),
    "workers.extensions.gardener.cloud",
    "machineautoscalers.autoscaling.openshift.io",
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        ["evenkeel.dev/pool-max", "evenkeel.dev/zone-max", "evenkeel.dev/strategy", "evenkeel.dev/decision"]
    ),
    st.sampled_from(["1", "7", "Adaptive", "", None]),
    min_size=1,
)
PATCHES = st.one_of(
    ANNOTATIONS.map(lambda annotations: {"metadata": {"annotations": annotations}}),
    st.sampled_from(["a", "b", None]).map(lambda pool: {"metadata": {"labels": {"evenkeel.dev/pool": pool}}}),
    st.integers(0, 3).map(lambda replicas: {"spec": {"replicas": replicas}}),
    st.integers(1, 9).map(lambda most: {"spec": {"maxReplicas": most}}),
    st.booleans().map(lambda paused: {"spec": {"paused": paused}}),
)


@dataclass
class Checks:
    flavour: str

    def __post_init__(self) -> None:
        self.world = World(clusters=[self.flavour], settings=None)
        self.record = record(flavours=[self.flavour])

    def seen(self) -> Mapping[str, str]:
        cluster = self.opened()
        cluster.observe()
        return cluster.seen()

    def opened(self) -> Cluster:
        clusters = WirelessClusters(self.world.clusters[self.flavour].api, Life(), FakeClock())
        return clusters.open(self.record, plenty, consistent=False)

    @property
    def store(self) -> Store:
        return self.world.clusters[self.flavour].store

    def objects(self) -> list[tuple[str, Object]]:
        return [(kind, item) for kind in KINDS[self.flavour] for item in self.store.list(kind)]


def edited(checks: Checks, kind: str, item: Object, patch: Object) -> None:
    checks.store.patch(kind, item["metadata"]["namespace"], item["metadata"]["name"], patch, manager="another")


def deleted(checks: Checks, kind: str, item: Object, _: Object) -> None:
    checks.store.delete(kind, item["metadata"]["namespace"], item["metadata"]["name"])


def made_anew(checks: Checks, kind: str, item: Object, patch: Object) -> None:
    deleted(checks, kind, item, patch)
    metadata = {key: item["metadata"].get(key, {}) for key in ("name", "namespace", "labels", "annotations")}
    checks.store.create(kind, {"metadata": metadata, "spec": item["spec"]}, manager="another")


def controllers_acted(checks: Checks, *_: Any) -> None:
    checks.world.step()


def recorded_otherwise(checks: Checks, *_: Any) -> None:
    of_another = {} if checks.record.discoveries else {"discovery": [f"mcm:k8s.io/cluster-autoscaler/{checks.flavour}"]}
    checks.record = record(flavours=[checks.flavour], **of_another)


def nothing(*_: Any) -> None:
    pass


HAPPENINGS: list[Callable[..., None]] = [edited, edited, deleted, made_anew, controllers_acted, recorded_otherwise]
HAPPENINGS += [nothing]
EVENT = st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 20), PATCHES)
Event = tuple[Callable[..., None], int, Object]


@pytest.mark.parametrize("flavour", FLAVOURS)
@given(events=st.lists(EVENT, max_size=4))
@settings(max_examples=15)
def test_a_quick_check_is_right_about_unchanged_clusters(flavour: str, events: list[Event]) -> None:
    checks = Checks(flavour)
    for happens, which, patch in [(nothing, 0, {}), *events]:
        before = checks.opened()
        observation, seen = before.observe(), before.seen()
        objects = [entry for entry in checks.objects() if entry[0] in COMPARED]
        if objects and happens is not recorded_otherwise:  # a written record is checked
            with suppress(ApiError):
                happens(checks, *objects[which % len(objects)], patch)
        is_unchanged = checks.opened().shows(seen)
        assert is_unchanged or happens is not nothing or not seen
        if is_unchanged:
            assert checks.opened().observe() == observation


def test_a_fingerprint_of_another_release_counts_as_changed() -> None:
    checks = Checks("openshift")
    place, fingerprint = next(iter(checks.seen().items()))
    assert checks.opened().shows({place: fingerprint})
    others = ["", "openshift", "eks/NodeGroup/v1", "openshift/NodeGroup/v1beta1", "openshift/MachineSet/v9"]
    for seen in ({}, {place: "0" * 64}, *({other: fingerprint} for other in others)):
        assert not checks.opened().shows(seen)
