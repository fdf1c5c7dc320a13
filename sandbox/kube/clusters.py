"""The objects that a simulated cluster starts with, as its installer or its users create them.

`manifests/` has a file for each kind of cluster. The clusters `gardener`, `cluster-api`, `self-managed` and `openshift`
carry Evenkeel's annotations. The others have none. Their owners store the bounds of a pool in a Shoot, in NodePools, in
a Cluster's topology or in MachineAutoscalers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import yaml

from sandbox.kube.client import Client
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.node_pools import node_pool_spec
from sandbox.kube.controllers.shoots import SHOOTS, distribute, machine_class, machine_deployment
from sandbox.kube.schema import Object

if TYPE_CHECKING:
    from sandbox.kube.world import Cluster, Pool

_USER = "kubectl-client-side-apply"
_MANIFESTS = Path(__file__).parent / "manifests"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Member:
    """One zone of a pool at the start: its replicas, and its share of the pool's bounds."""

    pool: Pool
    index: int
    zone: str
    minimum: int
    maximum: int
    replicas: int


def members_of(cluster: Cluster) -> Iterator[Member]:
    """Yield a member for each zone of each pool."""
    for pool in cluster.pools.values():
        count = len(pool.zones)
        for index, (zone, replicas) in enumerate(zip(pool.zones, pool.replicas, strict=False)):
            low, high = (distribute(index, size, count) for size in (pool.minimum, pool.maximum))
            yield Member(pool=pool, index=index, zone=zone, minimum=low, maximum=max(high, replicas), replicas=replicas)


@cache
def _template(name: str) -> jinja2.Template:
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    return jinja2.Environment(autoescape=False, **options).from_string((_MANIFESTS / name).read_text())


def create_manifests(cluster: Cluster, name: str, **values: Any) -> None:
    """Create the objects of a manifest file. `fieldManager` and `statusManager` of a document name its writers."""
    store = cluster.store
    text = _template(name).render(
        namespace=cluster.namespace,
        pools=list(cluster.pools.values()),
        members=list(members_of(cluster)),
        machine_type=cluster.cloud.machine_type,
        region=next(iter(cluster.cloud.zones))[:-1],
        cluster_api_version=store.resource("machinedeployments.cluster.x-k8s.io").storage,
        node_pool_spec=node_pool_spec,
        **values,
    )
    for document in yaml.load_all(text, Loader=_LOADER):
        resource, status = store.resource_of(document), document.pop("status", None)
        if resource.namespaced:
            document["metadata"].setdefault("namespace", cluster.namespace)
        client = Client(store, document.pop("fieldManager", _USER))
        status_manager = document.pop("statusManager", "")
        item = client.create(resource.full_name, document)
        if status:
            client.patch_status(item, status, manager=status_manager)


def build_gardener(cluster: Cluster) -> None:
    """Create a Worker, and a MachineClass and an annotated MachineDeployment for each zone."""
    create_manifests(cluster, "gardener.yaml")
    client, namespace = Client(cluster.store, "gardener-extension-provider-aws"), cluster.namespace
    size = "machine.sapcloud.io/cluster-api-autoscaler-node-group-{}-size"
    for member in members_of(cluster):
        pool, zone = member.pool, member.zone
        name = f"{namespace}-{pool.name}-z{member.index + 1}"
        deployment = machine_deployment(namespace, name, {"name": pool.name}, zone, member.replicas)
        deployment["metadata"]["annotations"] = {
            size.format("min"): str(member.minimum),
            size.format("max"): str(member.maximum),
            "evenkeel.dev/pool-min": str(pool.minimum),
            "evenkeel.dev/pool-max": str(pool.maximum),
            **pool.annotations,
        }
        template = machine_class(namespace, pool.name, name, zone, cluster.cloud.machine_type)
        client.create("machineclasses.machine.sapcloud.io", template)
        client.create("machinedeployments.machine.sapcloud.io", deployment)


def build_plain_gardener(cluster: Cluster) -> None:
    """Create a Shoot, and let gardenlet and the Worker's actuator create the other objects."""
    create_manifests(cluster, "gardener-plain.yaml")
    assert isinstance(cluster.controllers, GardenerControllers)
    (shoot,) = cluster.store.list(SHOOTS)
    cluster.controllers.gardenlet.reconcile(shoot, cluster.store.clock())
    _set_replicas(cluster)


def build_cluster_api(cluster: Cluster) -> None:
    """Create a Cluster, and annotated MachineDeployments."""
    create_manifests(cluster, "cluster-api.yaml")


def build_cluster_class(cluster: Cluster) -> None:
    """Create a Cluster with a topology, and let its controller create the MachineDeployments."""
    _build_owned(cluster, "cluster-class.yaml")


def build_hypershift(cluster: Cluster, *, platform: str) -> None:
    """Create a HostedCluster and its NodePools, and let their operator create the other objects."""
    _build_owned(cluster, "hypershift.yaml", platform=platform)


def build_openshift(cluster: Cluster, *, plain: bool) -> None:
    """Create MachineSets and MachineAutoscalers; if ``plain``, without Evenkeel's labels and annotations."""
    create_manifests(cluster, "openshift.yaml", plain=plain)


def _build_owned(cluster: Cluster, name: str, **values: Any) -> None:
    """Create the owners of a manifest file, and let their controllers create the scalables."""
    create_manifests(cluster, name, **values)
    cluster.controllers.reconcile_owners(cluster.store.clock())
    _set_replicas(cluster)


def _set_replicas(cluster: Cluster) -> None:
    """Give the scalables that controllers have created the replicas and annotations of their pools."""
    for group in cluster.groups():
        pool = cluster.pools[group.pool]
        key = (cluster.scalables, group.namespace, group.name)
        replicas = pool.replicas[list(pool.zones).index(group.zone)]
        if group.requested != replicas:
            cluster.store.scale(*key, replicas, manager="cluster-autoscaler")
        if pool.annotations:
            patch: Object = {"metadata": {"annotations": dict(pool.annotations)}}
            cluster.store.patch(*key, patch, manager=_USER)
