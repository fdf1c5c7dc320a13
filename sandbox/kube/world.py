"""Simulated clusters for scenarios: one of each flavour, and others as their installers create them.

The only threads of a world are those of its API servers. Its only clock is the one that the caller passes. `step` runs
controllers and autoscalers, so nothing changes between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube import clusters as kinds
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.autoscaler import ClusterAutoscaler
from sandbox.kube.cloud import Cloud
from sandbox.kube.controllers.cluster_api import ClusterAPIControllers, HyperShiftControllers
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.machine_controller import MachineControllers, Timing
from sandbox.kube.controllers.openshift import OpenShiftControllers
from sandbox.kube.schema import load_crds
from sandbox.kube.store import Clock
from sandbox.kube.workloads import Workloads

REGION = "eu-central-1"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool to build: `minimum` and `maximum` are its bounds, `replicas` are those of each zone at the start."""

    name: str
    minimum: int
    maximum: int
    replicas: Sequence[int] = (1, 1, 1)
    zones: Sequence[str] = ZONES
    #: further annotations of every member, such as evenkeel.dev/strategy
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One node group as a table shows it. Bounds that do not parse are None."""

    cluster: str
    pool: str
    namespace: str
    name: str
    zone: str
    requested: int
    running: int
    minimum: int | None
    maximum: int | None
    annotations: dict[str, str]


POOLS = {
    "gardener": (Pool(name="main", minimum=3, maximum=12),),
    "cluster-api": (Pool(name="workers", minimum=3, maximum=12),),
    "openshift": (Pool(name="worker", minimum=3, maximum=12),),
}
_POOLS = (Pool(name="workers", minimum=3, maximum=12),)  # the pools of the other kinds of cluster


class Cluster:
    """One cluster: API server, cloud, controllers and autoscaler. `name` is a key of ECOSYSTEMS."""

    def __init__(
        self,
        name: str,
        *,
        pools: Sequence[Pool],
        clock: Clock,
        timing: Timing,
        settings: Flags | None,
        cluster_api_versions: Sequence[str] = ("v1beta1", "v1beta2"),
        users: Mapping[str, Sequence[Rule]] | None = None,
        seed: int = 0,
    ) -> None:
        ecosystem = ECOSYSTEMS[name]
        self.name = name
        self.flavour = ecosystem.controllers.flavour
        self.scalables = ecosystem.controllers.api.scalables
        self.namespace = ecosystem.namespace
        self.pools = {pool.name: pool for pool in pools}
        crds = load_crds(cluster_api_versions=cluster_api_versions)
        self.api = KubernetesAPI(crds=crds, clock=clock, users=users, seed=seed)
        self.store = self.api.store
        self.cloud = Cloud(zones=tuple(dict.fromkeys(zone for pool in pools for zone in pool.zones)))
        self.controllers = ecosystem.controllers(self.store, self.cloud, timing=timing, seed=seed)
        self.autoscaler: ClusterAutoscaler | None = None
        self.workloads = Workloads(self.store, control_plane=self.namespace) if ecosystem.runs_pods else None
        if settings is not None and not ecosystem.runs_pods:
            actor = ClusterAutoscaler(store=self.store, controllers=self.controllers, flags=settings, seed=seed)
            self.autoscaler = actor
        self.store.create("namespaces", {"metadata": {"name": self.namespace}})
        ecosystem.build(self)
        for pool in pools:
            self.set_demand(pool.name, sum(pool.replicas))

    def set_demand(self, pool: str, pods: int, zone: str | None = None) -> None:
        """Set how many nodes the pods of a pool need. Only a cluster-autoscaler acts on this number."""
        if pool not in self.pools:
            raise ValueError(f"pool {pool!r}: cluster {self.name} has {', '.join(self.pools)}")
        if self.autoscaler is not None:
            self.autoscaler.set_demand(pool, pods, zone)

    def step(self, now: datetime) -> None:
        """Run one loop of the autoscaler, then the workload controllers, then the machine controllers."""
        if self.autoscaler is not None:
            self.autoscaler.step(now)
        if self.workloads is not None:
            self.workloads.step(now)
        self.controllers.step(now)

    def settle(self, now: datetime) -> None:
        """Start the first machines without any delay, so that a scenario begins with a running cluster."""
        timing = self.controllers.timing
        self.controllers.timing = replace(timing, provision=timedelta(0))
        try:
            for _ in range(3):
                self.controllers.step(now)
        finally:
            self.controllers.timing = timing

    def groups(self) -> list[GroupView]:
        """Return every node group, sorted by pool and zone."""
        reader = self.autoscaler or ClusterAutoscaler(store=self.store, controllers=self.controllers)
        annotations = {
            f"{item['metadata']['namespace']}/{item['metadata']['name']}": item["metadata"].get("annotations") or {}
            for item in self.store.list(self.scalables)
        }
        views = [
            GroupView(
                cluster=self.name,
                pool=group.pool,
                namespace=group.namespace,
                name=group.name,
                zone=group.zone,
                requested=group.requested,
                running=group.running,
                minimum=group.readable_bounds.min if group.readable_bounds else None,
                maximum=group.readable_bounds.max if group.readable_bounds else None,
                annotations=annotations[group.key],
            )
            for group in reader.groups()
        ]
        return sorted(views, key=lambda view: (view.pool, view.zone, view.name))


@dataclass(frozen=True, kw_only=True)
class Ecosystem:
    """A kind of cluster: the controllers of its machine API, the namespace of its groups and its first objects."""

    controllers: type[MachineControllers]
    namespace: str
    build: Callable[[Cluster], None]
    #: True: the API also has the nodes and pods of the cluster, and the cluster has no autoscaler
    runs_pods: bool = False


def _hypershift(platform: str) -> Ecosystem:
    build = partial(kinds.build_hypershift, platform=platform)
    return Ecosystem(controllers=HyperShiftControllers, namespace="clusters-demo", build=build)


_SEED, _MACHINE_API = "shoot--demo--main", "openshift-machine-api"
ECOSYSTEMS = {
    "gardener": Ecosystem(controllers=GardenerControllers, namespace=_SEED, build=kinds.build_gardener),
    "cluster-api": Ecosystem(controllers=ClusterAPIControllers, namespace="demo", build=kinds.build_cluster_api),
    "self-managed": Ecosystem(
        controllers=ClusterAPIControllers, namespace="demo", build=kinds.build_cluster_api, runs_pods=True
    ),
    "openshift": Ecosystem(
        controllers=OpenShiftControllers, namespace=_MACHINE_API, build=partial(kinds.build_openshift, plain=False)
    ),
    "gardener-plain": Ecosystem(controllers=GardenerControllers, namespace=_SEED, build=kinds.build_plain_gardener),
    "cluster-class": Ecosystem(controllers=ClusterAPIControllers, namespace="demo", build=kinds.build_cluster_class),
    "openshift-plain": Ecosystem(
        controllers=OpenShiftControllers, namespace=_MACHINE_API, build=partial(kinds.build_openshift, plain=True)
    ),
    "hypershift": _hypershift("AWS"),
    "hypershift-openstack": _hypershift("OpenStack"),
}


class World:
    """The clusters of a scenario. Inside the `with` block every API server answers on its own port.

    `clusters` are keys of ECOSYSTEMS. `clock` gives all times. Without a clock, the argument of the last `step`
    is the time. `settings` are the autoscalers' flags; None: the world has no autoscalers.
    """

    def __init__(
        self,
        *,
        clusters: Iterable[str] = tuple(POOLS),
        pools: Mapping[str, Sequence[Pool]] | None = None,
        clock: Clock | None = None,
        timing: Timing | None = None,
        settings: Flags | None = Flags(),  # noqa: B008 (frozen)
        cluster_api_versions: Sequence[str] = ("v1beta1", "v1beta2"),
        users: Mapping[str, Sequence[Rule]] | None = None,
        seed: int = 0,
    ) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        self._clock: Clock = clock or (lambda: self._now)
        self.clusters = {
            name: Cluster(
                name,
                pools=(pools or {}).get(name) or POOLS.get(name, _POOLS),
                clock=self._clock,
                timing=timing or Timing(),
                settings=settings,
                cluster_api_versions=cluster_api_versions,
                users=users,
                seed=seed,
            )
            for name in clusters
        }
        for cluster in self.clusters.values():
            cluster.settle(self.now)
        self._stack = ExitStack()

    @property
    def now(self) -> datetime:
        """Return the time of the world's clock."""
        return self._clock()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for cluster in self.clusters.values():
                stack.enter_context(cluster.api)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self, now: datetime | None = None) -> None:
        """Run one loop of every autoscaler and controller at `now` (default: the time of the clock)."""
        if now is not None:
            self._now = now
        for cluster in self.clusters.values():
            cluster.step(now or self.now)

    def run(self, duration: timedelta, *, every: timedelta = timedelta(seconds=10)) -> None:
        """Run steps over a span of simulated time, in a world without a clock."""
        end = self._now + duration
        while self._now < end:
            self.step(min(end, self._now + every))

    def exhaust_zone(self, cluster: str, zone: str) -> None:
        """Let a zone refuse new machines to a cluster."""
        self.clusters[cluster].cloud.exhaust_zone(zone)

    def restore_zone(self, cluster: str, zone: str) -> None:
        """Let the zone deliver machines again."""
        self.clusters[cluster].cloud.restore_zone(zone)

    def set_demand(self, cluster: str, pool: str, pods: int, zone: str | None = None) -> None:
        """Set how many pods a pool has to run, each on its own node. `zone` binds these pods to a zone."""
        self.clusters[cluster].set_demand(pool, pods, zone)

    def groups(self) -> list[GroupView]:
        """Return every node group of every cluster."""
        return [view for cluster in self.clusters.values() for view in cluster.groups()]

    def pending(self, cluster: str, pool: str) -> int:
        """Return how many pods of a pool are pending."""
        autoscaler = self.clusters[cluster].autoscaler
        return autoscaler.pending(pool) if autoscaler is not None else 0
