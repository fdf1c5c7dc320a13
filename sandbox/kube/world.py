"""Simulated clusters that a scenario can shake: one of each flavour, and others as their installers leave them.

A world has no threads of its own besides the API servers' and no clock but the one it is given: `step` moves
controllers and autoscalers on, and everything in between stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube import plain
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.autoscaler import FLAVOURS, POOL_LABEL, ClusterAutoscaler
from sandbox.kube.cloud import Cloud
from sandbox.kube.controllers import CONTROLLERS
from sandbox.kube.controllers.cluster_api import HyperShiftControllers
from sandbox.kube.controllers.life import MachineControllers, Timing
from sandbox.kube.controllers.shoots import distribute, machine_class, machine_deployment
from sandbox.kube.schema import Object, load_crds
from sandbox.kube.store import Clock
from sandbox.kube.workloads import Workloads

REGION = "eu-central-1"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_INFRASTRUCTURE = "demo-x7k2p"  # OpenShift's name for a cluster


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool to build: `minimum` and `maximum` are its pool-min and pool-max, `replicas` the start of each zone."""

    name: str
    minimum: int
    maximum: int
    replicas: Sequence[int] = (1, 1, 1)
    zones: Sequence[str] = ZONES
    #: further annotations of every member, such as evenkeel.dev/strategy
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One node group as a table shows it. Bounds are None where they do not parse."""

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
_POOLS = (Pool(name="workers", minimum=3, maximum=12),)  # of the other kinds of cluster


class Cluster:
    """One cluster: its API server, its cloud, its controllers and its autoscaler. `name`: a key of ECOSYSTEMS."""

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
        self.flavour = flavour = ecosystem.flavour
        self.namespace = ecosystem.namespace
        self.pools = {pool.name: pool for pool in pools}
        crds = load_crds(cluster_api_versions=cluster_api_versions)
        self.api = KubernetesAPI(crds=crds, clock=clock, users=users, seed=seed)
        self.store = self.api.store
        self.cloud = Cloud(zones=tuple(dict.fromkeys(zone for pool in pools for zone in pool.zones)))
        controllers = ecosystem.controllers or CONTROLLERS[flavour]
        self.controllers: MachineControllers = controllers(self.store, self.cloud, timing=timing, seed=seed)
        self.autoscaler: ClusterAutoscaler | None = None
        self.workloads = Workloads(self.store, control_plane=self.namespace) if ecosystem.runs_pods else None
        if settings is not None and not ecosystem.runs_pods:
            self.autoscaler = ClusterAutoscaler(
                store=self.store, controllers=self.controllers, flags=settings, seed=seed
            )
        self.store.create("namespaces", {"metadata": {"name": self.namespace}})
        ecosystem.build(self)
        for pool in pools:
            self.set_demand(pool.name, sum(pool.replicas))

    def set_demand(self, pool: str, pods: int, zone: str | None = None) -> None:
        """How many nodes the pods of a pool need. Without an autoscaler nobody acts on it."""
        if pool not in self.pools:
            raise ValueError(f"pool {pool!r}: cluster {self.name} has {', '.join(self.pools)}")
        if self.autoscaler is not None:
            self.autoscaler.set_demand(pool, pods, zone)

    def step(self, now: datetime) -> None:
        """One loop of the autoscaler, what pods make of their nodes, then what the controllers make of both."""
        if self.autoscaler is not None:
            self.autoscaler.step(now)
        if self.workloads is not None:
            self.workloads.step(now)
        self.controllers.step(now)

    def settle(self, now: datetime) -> None:
        """Bring up the machines of the start without any delay, so that a scenario begins with a running cluster."""
        timing, self.controllers.timing = (
            self.controllers.timing,
            replace(self.controllers.timing, provision=timedelta(0)),
        )
        try:
            for _ in range(3):
                self.controllers.step(now)
        finally:
            self.controllers.timing = timing

    def groups(self) -> list[GroupView]:
        """Every node group, in order of pool and zone."""
        flavour = FLAVOURS[self.flavour]
        reader = self.autoscaler or ClusterAutoscaler(store=self.store, controllers=self.controllers)
        annotations = {
            f"{item['metadata']['namespace']}/{item['metadata']['name']}": item["metadata"].get("annotations") or {}
            for item in self.store.list(flavour.scalables)
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


def _bounds(cluster: Cluster, pool: Pool, index: int) -> dict[str, str]:
    """The annotations of a member: its share of the pool as someone set it up by hand, and the pool's numbers."""
    prefix = FLAVOURS[cluster.flavour].prefix
    zones = len(pool.zones)
    return {
        f"{prefix}/cluster-api-autoscaler-node-group-min-size": str(distribute(index, pool.minimum, zones)),
        f"{prefix}/cluster-api-autoscaler-node-group-max-size": str(
            max(pool.replicas[index], distribute(index, pool.maximum, zones))
        ),
        "evenkeel.dev/pool-min": str(pool.minimum),
        "evenkeel.dev/pool-max": str(pool.maximum),
        **pool.annotations,
    }


def _build_gardener(cluster: Cluster) -> None:
    namespace = cluster.namespace
    pools = [
        {
            "name": pool.name,
            "minimum": pool.minimum,
            "maximum": pool.maximum,
            "maxSurge": 1,
            "maxUnavailable": 0,
            "machineType": cluster.cloud.machine_type,
            "zones": list(pool.zones),
        }
        for pool in cluster.pools.values()
    ]
    worker = {
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"type": "aws", "region": REGION, "pools": pools},
    }
    cluster.store.create("workers.extensions.gardener.cloud", worker, manager="gardenlet")
    for pool in cluster.pools.values():
        for index, zone in enumerate(pool.zones):
            name = f"{namespace}-{pool.name}-z{index + 1}"
            deployment = machine_deployment(namespace, name, {"name": pool.name}, zone, pool.replicas[index])
            deployment["metadata"]["annotations"] = _bounds(cluster, pool, index)
            for resource, body in (
                ("machineclasses", machine_class(namespace, pool.name, name, zone, cluster.cloud.machine_type)),
                ("machinedeployments", deployment),
            ):
                cluster.store.create(f"{resource}.machine.sapcloud.io", body, manager="gardener-extension-provider-aws")


def _build_cluster_api(cluster: Cluster) -> None:
    store, manager = cluster.store, "kubectl-client-side-apply"
    owner = {"metadata": {"name": "demo", "namespace": cluster.namespace}, "spec": {}}
    store.create("clusters.cluster.x-k8s.io", owner, manager=manager)
    for pool in cluster.pools.values():
        _create_machine_template(cluster, f"demo-{pool.name}")
        for index in range(len(pool.zones)):
            body = _cluster_api_deployment(cluster, pool, index)
            store.create("machinedeployments.cluster.x-k8s.io", body, manager=manager)


def _create_machine_template(cluster: Cluster, name: str) -> None:
    resource = "awsmachinetemplates.infrastructure.cluster.x-k8s.io"
    body = {
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"template": {"spec": {"instanceType": cluster.cloud.machine_type}}},
    }
    status = {
        "capacity": {"cpu": "4", "memory": "16Gi"},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
    }
    cluster.store.create(resource, body, manager="kubectl-client-side-apply")
    cluster.store.patch(resource, cluster.namespace, name, {"status": status}, subresource="status", manager="manager")


def _cluster_api_deployment(cluster: Cluster, pool: Pool, index: int) -> Object:
    namespace, zone, template = cluster.namespace, pool.zones[index], f"demo-{pool.name}"
    reference = {"kind": "AWSMachineTemplate", "name": template}
    if cluster.store.resource("machinedeployments.cluster.x-k8s.io").storage == "v1beta2":
        reference |= {"apiGroup": "infrastructure.cluster.x-k8s.io"}
    else:
        reference |= {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "namespace": namespace}
    name = f"{template}-{zone}"
    labels = {"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/deployment-name": name}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": "demo", POOL_LABEL: pool.name},
            "annotations": _bounds(cluster, pool, index),
        },
        "spec": {
            "clusterName": "demo",
            "replicas": pool.replicas[index],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": "demo",
                    "failureDomain": zone,
                    "version": "v1.34.1",
                    "bootstrap": {"dataSecretName": f"{template}-bootstrap"},
                    "infrastructureRef": reference,
                },
            },
        },
    }


def _build_openshift(cluster: Cluster) -> None:
    prefix = FLAVOURS["openshift"].prefix
    for pool in cluster.pools.values():
        for index, zone in enumerate(pool.zones):
            name = f"{_INFRASTRUCTURE}-{pool.name}-{zone}"
            annotations = _bounds(cluster, pool, index)
            low, high = (
                int(annotations.pop(f"{prefix}/cluster-api-autoscaler-node-group-{end}-size")) for end in ("min", "max")
            )
            annotations |= {f"{prefix}/vCPU": "4", f"{prefix}/memoryMb": "16384", f"{prefix}/GPU": "0"}
            machine_set = _machine_set(cluster, pool, index, name, annotations)
            cluster.store.create("machinesets.machine.openshift.io", machine_set, manager="cluster-bootstrap")
            target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": name}
            autoscaler = {
                "metadata": {"name": f"{pool.name}-{zone}", "namespace": cluster.namespace},
                "spec": {"minReplicas": low, "maxReplicas": max(1, high), "scaleTargetRef": target},
            }
            cluster.store.create(
                "machineautoscalers.autoscaling.openshift.io", autoscaler, manager="kubectl-client-side-apply"
            )


def _machine_set(cluster: Cluster, pool: Pool, index: int, name: str, annotations: dict[str, str]) -> Object:
    prefix = FLAVOURS["openshift"].prefix
    labels = {f"{prefix}/cluster-api-cluster": _INFRASTRUCTURE, f"{prefix}/cluster-api-machineset": name}
    roles = {f"{prefix}/cluster-api-machine-role": "worker", f"{prefix}/cluster-api-machine-type": "worker"}
    provider = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "AWSMachineProviderConfig",
        "instanceType": cluster.cloud.machine_type,
        "placement": {"availabilityZone": pool.zones[index], "region": REGION},
    }
    return {
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {f"{prefix}/cluster-api-cluster": _INFRASTRUCTURE, POOL_LABEL: pool.name},
            "annotations": annotations,
        },
        "spec": {
            "replicas": pool.replicas[index],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | roles},
                "spec": {"providerSpec": {"value": provider}},
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class Ecosystem:
    """A kind of cluster: its machine API, where its groups are, how it is made, who works in it."""

    flavour: str
    namespace: str
    build: Callable[[Cluster], None]
    controllers: Callable[..., MachineControllers] | None = None
    #: its API is that of its own nodes and pods, and nobody in it orders machines for them
    runs_pods: bool = False


#: The first four have annotations of ours that say what a pool is, the others no word of ours: plain.py.
ECOSYSTEMS = {
    "gardener": Ecosystem(flavour="gardener", namespace="shoot--demo--main", build=_build_gardener),
    "cluster-api": Ecosystem(flavour="cluster-api", namespace="demo", build=_build_cluster_api),
    "self-managed": Ecosystem(flavour="cluster-api", namespace="demo", build=_build_cluster_api, runs_pods=True),
    "openshift": Ecosystem(flavour="openshift", namespace="openshift-machine-api", build=_build_openshift),
    "gardener-plain": Ecosystem(flavour="gardener", namespace="shoot--demo--main", build=plain.build_gardener),
    "cluster-class": Ecosystem(flavour="cluster-api", namespace="demo", build=plain.build_cluster_class),
    "openshift-plain": Ecosystem(flavour="openshift", namespace="openshift-machine-api", build=plain.build_openshift),
    "hypershift": Ecosystem(
        flavour="cluster-api",
        namespace="clusters-demo",
        build=partial(plain.build_hypershift, platform="AWS"),
        controllers=HyperShiftControllers,
    ),
    "hypershift-openstack": Ecosystem(
        flavour="cluster-api",
        namespace="clusters-demo",
        build=partial(plain.build_hypershift, platform="OpenStack"),
        controllers=HyperShiftControllers,
    ),
}


class World:
    """The clusters of a scenario. A context manager: inside it every API server answers on a port of its own.

    `clusters` are keys of ECOSYSTEMS. `clock` dates everything; without one, time is what the last `step` said.
    `settings` are the autoscalers' flags; None leaves them out.
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
        return self._clock()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for cluster in self.clusters.values():
                stack.enter_context(cluster.api)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def step(self, now: datetime | None = None) -> None:
        """One loop of every autoscaler and of every controller, at `now` (default: the clock's present)."""
        if now is not None:
            self._now = now
        for cluster in self.clusters.values():
            cluster.step(now or self.now)

    def run(self, duration: timedelta, *, every: timedelta = timedelta(seconds=10)) -> None:
        """Steps over a span of simulated time. For worlds without a clock of their own."""
        end = self._now + duration
        while self._now < end:
            self.step(min(end, self._now + every))

    def take_away(self, cluster: str, zone: str) -> None:
        """A zone gives no more machines to a cluster."""
        self.clusters[cluster].cloud.take_away(zone)

    def give_back(self, cluster: str, zone: str) -> None:
        """The zone delivers again."""
        self.clusters[cluster].cloud.give_back(zone)

    def set_demand(self, cluster: str, pool: str, pods: int, zone: str | None = None) -> None:
        """How many pods, one per node, want to run in a pool; `zone` binds them to a zone."""
        self.clusters[cluster].set_demand(pool, pods, zone)

    def groups(self) -> list[GroupView]:
        """Every node group of every cluster, for a table."""
        return [view for cluster in self.clusters.values() for view in cluster.groups()]

    def pending(self, cluster: str, pool: str) -> int:
        """Pods of a pool that have no node to run on."""
        autoscaler = self.clusters[cluster].autoscaler
        return autoscaler.pending(pool) if autoscaler is not None else 0
