"""Clusters of each ecosystem with Evenkeel: owners' controllers, an autoscaler, a check a minute."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from evenkeel.adapters.kubernetes.owners.annotations import MEMBER
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.api import Request
from sandbox.kube.controllers.cluster_autoscaler_operator import MACHINE_SETS, SCALERS
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.schema import Object
from sandbox.kube.world import ZONES, Cluster, Pool, World
from tests import objects
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, plenty, register
from tests.timed import worker

POOL = "workers"
DEAD = ZONES[0]
CAPI_DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io"
MACHINE_POOLS = "machinepools.cluster.x-k8s.io"
_LOOP = timedelta(seconds=10)
#: which groups of an ecosystem are one pool, if its labels do not say it
_SELECTORS = {
    "hypershift": {USERS_POOL_LABEL: POOL},
    "hypershift-openstack": {USERS_POOL_LABEL: POOL},
    "cluster-class": {USERS_POOL_LABEL: POOL},
    "openshift-plain": {"machine.openshift.io/cluster-api-cluster": "demo-x7k2p"},
}
# Further fields of its record, so that bounds are written to their owner.
_SWITCHES = {"cluster-class": {"write_topology": True}}


class Estate:
    """One pool of three zones in one ecosystem. Further ``fields`` are the record's.

    ``autoscaler``: whether one orders machines for pods; it removes no nodes. ``change`` changes the sandbox's
    ecosystem before Evenkeel's first check.
    """

    def __init__(
        self,
        kind: str,
        *,
        replicas: tuple[int, int, int] = (2, 2, 2),
        minimum: int = 3,
        maximum: int = 12,
        autoscaler: bool = True,
        **fields: Any,
    ) -> None:
        self.clock = FakeClock()
        pool = Pool(name=POOL, minimum=minimum, maximum=maximum, replicas=replicas)
        self.world = World(
            clusters=[kind],
            pools={kind: [pool]},
            clock=self.clock.now,
            timing=Timing(provision=timedelta(seconds=40)),
            settings=Flags(scale_down=False) if autoscaler else None,
        )
        self.cluster: Cluster = self.world.clusters[kind]
        self.objects = self.cluster.store
        self.memory = InMemoryStore()
        pools = [{"name": POOL, "selector": _SELECTORS[kind]}] if kind in _SELECTORS else []
        self.record = {"flavours": [self.cluster.flavour], "pools": pools, **_SWITCHES.get(kind, {}), **fields}
        register(self.memory, **self.record)

    def live(self, minutes: float) -> None:
        for _ in range(round(minutes * 6)):
            self.pass_by()
            if not self.clock.at.second:
                self.run()

    def pass_by(self, loops: int = 1) -> None:
        for _ in range(loops):
            self.clock.at += _LOOP
            self.world.step(self.clock.at)

    def run(self) -> RunSummary:
        clusters = WirelessClusters(self.cluster.api, Life(), self.clock)
        summary = worker(self.memory, clusters, self.clock, FakeQueue())("demo", "a test", plenty)
        assert (summary.unreachable, summary.rejected) == (False, 0), summary.message
        return summary

    def outage(self, pods: int, minutes: float = 6) -> None:
        self.run()
        self.cluster.cloud.exhaust_zone(DEAD)
        self.cluster.set_demand(POOL, pods)
        self.live(minutes)

    def pool(self) -> PoolPlan:
        plan = self.run().plan
        (pool,) = plan.pools
        return pool

    def groups(self) -> dict[str, GroupPlan]:
        return {str(plan.group.identity.zone): plan for plan in self.pool().groups}

    @property
    def replicas(self) -> list[int]:
        return [view.requested for view in self.cluster.groups()]

    @property
    def running(self) -> list[int]:
        return [view.running for view in self.cluster.groups()]

    @property
    def autoscalers(self) -> list[tuple[int | None, int | None]]:
        return [(view.minimum, view.maximum) for view in self.cluster.groups()]

    def nodes(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.objects.list("nodes")}

    def all(self, resource: str) -> list[Object]:
        return self.objects.list(resource)

    def patch(self, resource: str, item: Object, patch: Object, manager: str = "kubectl") -> None:
        metadata = item["metadata"]
        self.objects.patch(resource, metadata.get("namespace", ""), metadata["name"], patch, manager=manager)

    def writes(self) -> list[Request]:
        return [request for request in self.cluster.api.requests if request.has_patched and request.user == "evenkeel"]

    def written(self) -> set[str]:
        return {f"{plural} {field}" for request in self.writes() for plural, field in fields_of(request)}

    def dump(self, path: Path, *, without: tuple[str, ...] = ()) -> str:
        """Write all objects of the cluster to a file, except some kinds."""
        found = [
            item
            for resource in self.objects.resources
            for item in self.objects.list(resource.full_name)
            if item["kind"] not in without
        ]
        path.write_text(yaml.safe_dump_all(found))
        return str(path)

    def record_file(self, path: Path) -> str:
        path.write_text(yaml.safe_dump(self.record))
        return str(path)


def fields_of(request: Request) -> Iterator[tuple[str, str]]:
    """Yield plural and dotted name of each field that a patch sets. Entries of lists have their names."""
    plural = request.path.rstrip("/").split("/")[-2]
    yield from ((plural, field) for field in _leaves(request.body, ""))


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{path}[{key}]" if path.endswith("annotations") else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        for part in value:
            yield from _leaves(part, f"{path}[]")
    else:
        yield path


# -- ecosystems derived from another one


def cluster_api(**fields: Any) -> Estate:
    """Return plain Cluster API: bounds on the MachineDeployments, a pool's label, and no annotation of Evenkeel."""
    estate = Estate("cluster-api", **fields)
    for item in estate.all(CAPI_DEPLOYMENTS):
        ours = [key for key in item["metadata"]["annotations"] if key.startswith("evenkeel.dev/")]
        estate.patch(CAPI_DEPLOYMENTS, item, {"metadata": {"annotations": dict.fromkeys(ours)}})
    return estate


def openshift_by_hand(bounds: tuple[int, int] | None = (1, 4), **fields: Any) -> Estate:
    """Return OpenShift without a MachineAutoscaler, with or without annotations on the MachineSets."""
    estate = Estate("openshift-plain", **fields)
    for scaler in estate.all(SCALERS):
        estate.objects.delete(SCALERS, scaler["metadata"]["namespace"], scaler["metadata"]["name"])
    estate.pass_by(2)  # the operator removes its annotations
    assert not estate.all(SCALERS)
    for item in estate.all(MACHINE_SETS) if bounds else ():
        estate.patch(MACHINE_SETS, item, {"metadata": {"annotations": objects.bounds_of("openshift", *bounds)}})
    return estate


def machine_pools(replicas: tuple[int, int, int] = (2, 2, 2), **fields: Any) -> Estate:
    """Return MachinePools of Cluster API, one per zone, whose provider creates no Machines."""
    estate = Estate("cluster-api", autoscaler=False, replicas=(0, 0, 0), **fields)
    for item in estate.all(CAPI_DEPLOYMENTS):
        estate.objects.delete(CAPI_DEPLOYMENTS, item["metadata"]["namespace"], item["metadata"]["name"])
    for zone, count in zip(ZONES, replicas, strict=True):
        body = objects.machine_pool(zone, count, 0, instances=0)
        spec = {**body["spec"], "providerIDList": []}
        metadata = {**body["metadata"], "namespace": estate.cluster.namespace}
        estate.objects.create(MACHINE_POOLS, {"metadata": metadata, "spec": spec})
    estate.pass_by(12)
    return estate


class Karpenter:
    """The orders of karpenter-provider-cluster-api (pkg/cloudprovider/cloudprovider.go and create.go).

    An offering is available while replicas are below max. A batch is checked as a whole before it is ordered, so the
    deficit is added without checking max again.
    """

    manager = "karpenter"

    def __init__(self, estate: Estate) -> None:
        self._estate = estate

    def offers(self) -> list[Object]:
        return [item for item in self._estate.all(CAPI_DEPLOYMENTS) if self._has_room(item)]

    def order(self, zone: str, nodes: int) -> None:
        for item in self.offers():
            if item["spec"]["template"]["spec"]["failureDomain"] == zone:
                patch = {"spec": {"replicas": item["spec"]["replicas"] + nodes}}
                self._estate.patch(CAPI_DEPLOYMENTS, item, patch, self.manager)

    @staticmethod
    def _has_room(item: Object) -> bool:
        metadata = item["metadata"]
        most = metadata.get("annotations", {}).get("cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size")
        return MEMBER in metadata["labels"] and (most is None or item["spec"]["replicas"] < int(most))


def karpenter(**fields: Any) -> tuple[Estate, Karpenter]:
    """Return MachineDeployments that only karpenter-provider-cluster-api scales up."""
    estate = cluster_api(autoscaler=False, **fields)
    for item in estate.all(CAPI_DEPLOYMENTS):
        low, _ = objects.bounds_of("cluster-api", 0, 0)
        patch = {"metadata": {"labels": {MEMBER: ""}, "annotations": {low: None}}}
        estate.patch(CAPI_DEPLOYMENTS, item, patch)
    return estate, Karpenter(estate)
