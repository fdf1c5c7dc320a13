"""Clusters straight from their installers: no annotation, no label and no name of Evenkeel's on anything.

What a pool may have stands where its ecosystem keeps it: in a Shoot, in NodePools, in a Cluster's topology, in
MachineAutoscalers. The controllers make the scalables of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.node_pools import HOSTED_CLUSTERS, NODE_POOLS, node_pool_spec
from sandbox.kube.controllers.objects import USERS_POOL_LABEL, labels_of
from sandbox.kube.controllers.shoots import MACHINE_DEPLOYMENTS, SHOOTS, distribute
from sandbox.kube.controllers.topology import NAME

if TYPE_CHECKING:
    from sandbox.kube.schema import Object
    from sandbox.kube.world import Cluster, Pool

_PERSON = "kubectl-client-side-apply"
_MIN, _MAX = (f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
_CAPI_DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io"


def _zones(cluster: Cluster) -> Iterator[tuple[Pool, int, str, int, int]]:
    """Pool, index, zone, and the share of the pool's minimum and maximum that somebody gave to it."""
    for pool in cluster.pools.values():
        count = len(pool.zones)
        for index, zone in enumerate(pool.zones):
            low, high = (distribute(index, size, count) for size in (pool.minimum, pool.maximum))
            yield pool, index, zone, low, max(1, high, pool.replicas[index])


def _start(cluster: Cluster, resource: str, zone_of: Callable[[Object], tuple[str, str]]) -> None:
    """Replicas as a scenario begins with, once the controllers have made the scalables; `zone_of`: pool and zone."""
    for item in cluster.store.list(resource):
        name, zone = zone_of(item)
        pool = cluster.pools[name]
        replicas, metadata = pool.replicas[list(pool.zones).index(zone)], item["metadata"]
        if item["spec"].get("replicas", 0) != replicas:
            cluster.store.scale(
                resource, metadata["namespace"], metadata["name"], replicas, manager="cluster-autoscaler"
            )
        if pool.annotations:
            patch = {"metadata": {"annotations": dict(pool.annotations)}}
            cluster.store.patch(resource, metadata["namespace"], metadata["name"], patch, manager=_PERSON)


def build_gardener(cluster: Cluster) -> None:
    """A Shoot, and what gardenlet and the Worker's actuator make of it."""
    region = next(iter(cluster.cloud.zones))[:-1]
    workers = [
        {
            "name": pool.name,
            "minimum": pool.minimum,
            "maximum": pool.maximum,
            "maxSurge": 1,
            "maxUnavailable": 0,
            "zones": list(pool.zones),
            "machine": {"type": cluster.cloud.machine_type, "image": {"name": "gardenlinux", "version": "1877.3.0"}},
        }
        for pool in cluster.pools.values()
    ]
    cluster.store.create("namespaces", {"metadata": {"name": "garden-demo"}})
    shoot = {
        "metadata": {"name": "main", "namespace": "garden-demo"},
        "spec": {"region": region, "provider": {"type": "aws", "workers": workers}},
    }
    cluster.store.create(SHOOTS, shoot, manager=_PERSON)
    status = {"status": {"technicalID": cluster.namespace}}
    made = cluster.store.patch(SHOOTS, "garden-demo", "main", status, subresource="status", manager="gardenlet")
    assert isinstance(cluster.controllers, GardenerControllers)
    cluster.controllers.gardenlet.reconcile(made, cluster.store.clock())

    def zone_of(item: Object) -> tuple[str, str]:
        name, _, index = item["metadata"]["name"].removeprefix(f"{cluster.namespace}-").rpartition("-z")
        return name, cluster.pools[name].zones[int(index) - 1]

    _start(cluster, MACHINE_DEPLOYMENTS, zone_of)


def build_cluster_class(cluster: Cluster) -> None:
    """A Cluster whose topology has one machine deployment per zone, with bounds and without replicas."""
    old = cluster.store.resource(_CAPI_DEPLOYMENTS).storage == "v1beta1"
    template = {
        "metadata": {"name": "demo-workers", "namespace": cluster.namespace},
        "spec": {"template": {"spec": {"instanceType": cluster.cloud.machine_type}}},
    }
    resource, api = "awsmachinetemplates.infrastructure.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io/v1beta2"
    cluster.store.create(resource, template, manager=_PERSON)
    known = {
        "capacity": {"cpu": "4", "memory": "16Gi"},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
    }
    cluster.store.patch(
        resource, cluster.namespace, "demo-workers", {"status": known}, subresource="status", manager="manager"
    )
    reference = {"apiVersion": api, "kind": "AWSMachineTemplate", "name": "demo-workers"}
    infrastructure = (
        {"template": {"infrastructure": {"ref": {**reference, "namespace": cluster.namespace}}}}
        if old
        else {"infrastructure": {"templateRef": reference}}
    )
    body = {
        "metadata": {"name": "aws", "namespace": cluster.namespace},
        "spec": {"workers": {"machineDeployments": [{"class": "worker", **infrastructure}]}},
    }
    cluster.store.create("clusterclasses.cluster.x-k8s.io", body, manager=_PERSON)
    entries = [
        {
            "class": "worker",
            "name": f"{pool.name}-{zone}",
            "failureDomain": zone,
            "metadata": {
                "labels": {USERS_POOL_LABEL: pool.name},
                "annotations": {_MIN: str(low), _MAX: str(high)},
            },
        }
        for pool, _, zone, low, high in _zones(cluster)
    ]
    topology = {"class": "aws"} if old else {"classRef": {"name": "aws"}}
    owner = {
        "metadata": {"name": "demo", "namespace": cluster.namespace},
        "spec": {"topology": {**topology, "version": "v1.34.1", "workers": {"machineDeployments": entries}}},
    }
    cluster.store.create("clusters.cluster.x-k8s.io", owner, manager=_PERSON)
    cluster.controllers.reconcile_owners(cluster.store.clock())

    def zone_of(item: Object) -> tuple[str, str]:
        name = labels_of(item)[USERS_POOL_LABEL]
        return name, labels_of(item)[NAME].removeprefix(f"{name}-")

    _start(cluster, _CAPI_DEPLOYMENTS, zone_of)


def build_hypershift(cluster: Cluster, *, platform: str) -> None:
    """A hosted cluster with one NodePool per zone. Those of one pool share a label of their users."""
    store, infrastructure = cluster.store, "demo-x7k2p"
    store.create("namespaces", {"metadata": {"name": "clusters"}})
    hosted = {
        "metadata": {"name": "demo", "namespace": "clusters"},
        "spec": {"infraID": infrastructure, "platform": {"type": platform}},
    }
    store.create(HOSTED_CLUSTERS, hosted, manager=_PERSON)
    owner = {"metadata": {"name": infrastructure, "namespace": cluster.namespace}, "spec": {}}
    store.create("clusters.cluster.x-k8s.io", owner, manager="hypershift-operator-manager")
    for pool, _, zone, low, high in _zones(cluster):
        spec = node_pool_spec(pool.name, "demo", zone, platform, cluster.cloud.machine_type)
        low = low if platform == "AWS" else max(1, low)  # elsewhere 0 is refused
        body = {
            "metadata": {
                "name": f"demo-{pool.name}-{zone}",
                "namespace": "clusters",
                "labels": {USERS_POOL_LABEL: pool.name},
            },
            "spec": {**spec, "autoScaling": {"min": low, "max": high}},
        }
        store.create(NODE_POOLS, body, manager=_PERSON)
    cluster.controllers.reconcile_owners(store.clock())

    def zone_of(item: Object) -> tuple[str, str]:
        name = cluster.controllers.pool_of(item)
        assert name is not None
        return name, item["metadata"]["name"].removeprefix(f"demo-{name}-")

    _start(cluster, _CAPI_DEPLOYMENTS, zone_of)


def build_openshift(cluster: Cluster) -> None:
    """MachineSets as the installer makes them, a MachineAutoscaler for each, and the ClusterAutoscaler."""
    infrastructure, prefix = "demo-x7k2p", "machine.openshift.io"
    limit = sum(pool.maximum for pool in cluster.pools.values())
    autoscaler = {
        "metadata": {"name": "default"},
        "spec": {
            "balanceSimilarNodeGroups": True,
            "resourceLimits": {"maxNodesTotal": limit},
            "scaleDown": {"enabled": True, "unneededTime": "10m"},
        },
    }
    cluster.store.create("clusterautoscalers.autoscaling.openshift.io", autoscaler, manager=_PERSON)
    for pool, index, zone, low, high in _zones(cluster):
        name = f"{infrastructure}-{pool.name}-{zone}"
        labels = {f"{prefix}/cluster-api-cluster": infrastructure, f"{prefix}/cluster-api-machineset": name}
        roles = {f"{prefix}/cluster-api-machine-{word}": pool.name for word in ("role", "type")}
        provider = {
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "AWSMachineProviderConfig",
            "instanceType": cluster.cloud.machine_type,
            "placement": {"availabilityZone": zone, "region": zone[:-1]},
        }
        machine_set = {
            "metadata": {
                "name": name,
                "namespace": cluster.namespace,
                "labels": {f"{prefix}/cluster-api-cluster": infrastructure},
                # written by the machine API operator's AWS actuator, not by a person
                "annotations": {f"{prefix}/vCPU": "4", f"{prefix}/memoryMb": "16384", f"{prefix}/GPU": "0"}
                | pool.annotations,
            },
            "spec": {
                "replicas": pool.replicas[index],
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels | roles}, "spec": {"providerSpec": {"value": provider}}},
            },
        }
        cluster.store.create("machinesets.machine.openshift.io", machine_set, manager="cluster-bootstrap")
        target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": name}
        scaler = {
            "metadata": {"name": f"{pool.name}-{zone}", "namespace": cluster.namespace},
            "spec": {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": target},
        }
        cluster.store.create("machineautoscalers.autoscaling.openshift.io", scaler, manager=_PERSON)
