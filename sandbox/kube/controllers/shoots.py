"""Gardener's controllers above machines: gardenlet, which applies a Shoot to its seed, and the Worker's actuator.

No controller here watches MachineDeployments: a write of others to them remains until the Worker is reconciled. This
happens with the Worker's Shoot once an hour, or when an annotation requests it. Sources (gardener/gardener):
extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go and machines.go in the same folder,
extensions/pkg/predicate/default.go, pkg/component/autoscaling/clusterautoscaler/cluster_autoscaler.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import ZONE_LABEL, annotations_of, deployment_of, status_of
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import Store, rfc3339

OPERATION = "gardener.cloud/operation"
IGNORE = "shoot.gardener.cloud/ignore"
POOL_LABEL = "worker.gardener.cloud/pool"
SHOOTS = "shoots.core.gardener.cloud"
CLUSTERS = "clusters.extensions.gardener.cloud"
WORKERS = "workers.extensions.gardener.cloud"
DEPLOYMENTS = "deployments.apps"
MACHINE_DEPLOYMENTS = "machinedeployments.machine.sapcloud.io"
MACHINE_CLASSES = "machineclasses.machine.sapcloud.io"
#: annotations of a machine deployment that cluster-autoscaler reads -> fields of a pool's `clusterAutoscaler`
OPTIONS = {
    "autoscaler.gardener.cloud/scale-down-utilization-threshold": "scaleDownUtilizationThreshold",
    "autoscaler.gardener.cloud/scale-down-gpu-utilization-threshold": "scaleDownGpuUtilizationThreshold",
    "autoscaler.gardener.cloud/scale-down-unneeded-time": "scaleDownUnneededTime",
    "autoscaler.gardener.cloud/scale-down-unready-time": "scaleDownUnreadyTime",
    "autoscaler.gardener.cloud/max-node-provision-time": "maxNodeProvisionTime",
}


def distribute(index: int, size: int, zones: int) -> int:
    """Return the share of the zone with this index; the first zones get the remainder (DistributeOverZones)."""
    return size // zones + (1 if index < size % zones else 0)


def distribute_int_or_percent(index: int, value: int | str, zones: int, total: int) -> int | str:
    """Return a zone's share: an int is divided, a percentage is weighted (DistributePositiveIntOrPercent)."""
    if isinstance(value, int):
        return distribute(index, value, zones)
    percents = int(value.removesuffix("%"))
    if total % zones:
        percents = math.ceil(100.0 / (total / zones) * distribute(index, total, zones) * percents / 100.0)
    return f"{percents}%"


@dataclass(frozen=True, kw_only=True)
class Share:
    """The desired machine deployment of one zone of a pool."""

    name: str
    pool: Object
    zone: str
    minimum: int
    maximum: int
    max_surge: int | str
    max_unavailable: int | str

    def clamp(self, replicas: int) -> int:
        """Return the replicas, limited to the share."""
        return min(max(replicas, self.minimum), self.maximum)


def shares(namespace: str, pools: list[Object]) -> Iterator[Share]:
    """Yield the share of each zone of every pool. The number in its name is the position of the zone, from 1."""
    for pool in pools:
        zones = pool.get("zones") or []
        for index, zone in enumerate(zones):
            yield Share(
                name=f"{namespace}-{pool['name']}-z{index + 1}",
                pool=pool,
                zone=zone,
                minimum=distribute(index, pool["minimum"], len(zones)),
                maximum=distribute(index, pool["maximum"], len(zones)),
                max_surge=distribute_int_or_percent(index, pool.get("maxSurge", 1), len(zones), pool["maximum"]),
                max_unavailable=distribute_int_or_percent(
                    index, pool.get("maxUnavailable", 0), len(zones), pool["minimum"]
                ),
            )


def needs_autoscaler(pools: list[Object]) -> bool:
    """Return whether any pool can grow; if none can, only the actuator writes replicas."""
    return any(pool["maximum"] > pool["minimum"] for pool in pools)


def machine_class(namespace: str, pool: str, name: str, zone: str, machine_type: str) -> Object:
    """Return the MachineClass of one zone."""
    return {
        "metadata": {"name": f"{name}-5b1c9", "namespace": namespace, "labels": {POOL_LABEL: pool}},
        "nodeTemplate": {
            "architecture": "amd64",
            "capacity": {"cpu": "4", "gpu": "0", "memory": "16Gi"},
            "instanceType": machine_type,
            "region": zone[:-1],
            "zone": zone,
        },
        "provider": "AWS",
        "providerSpec": {"machineType": machine_type, "region": zone[:-1]},
    }


def machine_deployment(namespace: str, name: str, pool: Object, zone: str, replicas: int) -> Object:
    """Return the MachineDeployment of one zone, with maxSurge 1."""
    labels = {POOL_LABEL: pool["name"]}
    node_labels = {
        **(pool.get("labels") or {}),
        **labels,
        ZONE_LABEL: zone,
        "topology.ebs.csi.aws.com/zone": zone,
        "node.kubernetes.io/role": "node",
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": 500,
            "selector": {"matchLabels": {"name": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"name": name}},
                "spec": {
                    "class": {"kind": "MachineClass", "name": f"{name}-5b1c9"},
                    "nodeTemplate": {"metadata": {"labels": node_labels}},
                },
            },
        },
    }


class WorkerActuator:
    """Creates the machine deployments of a Worker, and limits their replicas to the shares of the zones again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, "gardener-extension-provider-aws")

    def carry_out_requests(self, now: datetime) -> None:
        """Reconcile the Workers whose annotation requests it; a changed spec alone has no effect."""
        for worker in self._store.list(WORKERS):
            if annotations_of(worker).get(OPERATION) == "reconcile":
                self.reconcile(self._client.annotate(worker, {OPERATION: None}), now)

    def reconcile(self, worker: Object, now: datetime) -> None:
        """Write shares, replicas and options of the autoscaler once, and the Worker's status."""
        namespace, pools = worker["metadata"]["namespace"], worker["spec"]["pools"]
        existing = {item["metadata"]["name"]: item for item in self._store.list(MACHINE_DEPLOYMENTS, namespace)}
        zones = list(shares(namespace, pools))
        cluster = self._client.find(CLUSTERS, "", namespace)  # extensions read the Shoot from the Cluster
        hibernated = cluster is not None and _is_hibernated(cluster["spec"]["shoot"])
        asleep = not any(item["spec"].get("replicas") for item in existing.values())
        for share in zones:
            replicas = existing.get(share.name, {}).get("spec", {}).get("replicas", 0)
            if hibernated:
                replicas = 0
            elif not needs_autoscaler(pools) or share.name not in existing or asleep:
                replicas = share.minimum
            else:
                replicas = share.clamp(replicas)
            self._deploy(namespace, share, existing.get(share.name), replicas)
        failed = [
            machine
            for share in zones
            for machine in status_of(existing.get(share.name, {})).get("failedMachines") or ()
        ]
        self._update_status(worker, zones, failed, now)

    def _deploy(self, namespace: str, share: Share, existing: Object | None, replicas: int) -> None:
        options = {key: share.pool.get("clusterAutoscaler", {}).get(field) for key, field in OPTIONS.items()}
        rolling = {"maxSurge": share.max_surge, "maxUnavailable": share.max_unavailable}
        if existing is None:
            name, pool = share.name, share.pool
            template = machine_class(namespace, pool["name"], name, share.zone, pool["machineType"])
            self._client.create(MACHINE_CLASSES, template)
            body = machine_deployment(namespace, name, pool, share.zone, replicas)
            existing = self._client.create(MACHINE_DEPLOYMENTS, body)
        metadata = {"labels": {POOL_LABEL: share.pool["name"]}, "annotations": options}
        spec = {"replicas": replicas, "strategy": {"rollingUpdate": rolling}}
        self._client.patch(existing, {"metadata": metadata, "spec": spec})

    def _update_status(self, worker: Object, zones: list[Share], failed: list[Object], now: datetime) -> None:
        operation: Object = {"type": "Reconcile", "state": "Succeeded", "progress": 100, "lastUpdateTime": rfc3339(now)}
        if failed:
            text = f"machine(s) failed: {failed[0]['name']}: {failed[0]['lastOperation']['description']}"
            operation |= {"state": "Error", "progress": 50, "description": text}
        deployments = [
            {"name": share.name, "minimum": share.minimum, "maximum": share.maximum}
            | {key: share.pool[key] for key in ("priority",) if key in share.pool}
            for share in zones
        ]
        status = {
            "lastOperation": operation,
            "observedGeneration": worker["metadata"]["generation"],
            "machineDeployments": deployments,
            "machineDeploymentsLastUpdateTime": rfc3339(now),
        }
        self._client.patch_status(worker, status)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The periods of gardenlet. ``flow`` and ``retry`` are estimates, not measurements."""

    #: gardenlet's syncPeriod
    period: timedelta = timedelta(hours=1)
    #: the period of a Shoot that is reconciled in its maintenance window only
    window: timedelta = timedelta(hours=24)
    #: from the start of a Shoot's reconciliation to its Worker
    flow: timedelta = timedelta(minutes=2)
    #: from an error to the next reconciliation
    retry: timedelta = timedelta(minutes=5)


class Gardenlet:
    """Applies Shoots to the seed: the Cluster, the Worker's pools, and the flags of cluster-autoscaler.

    It reconciles a Shoot when an annotation requests it, an hour after the last reconciliation, and sooner after an
    error. It also reconciles a changed spec, unless the Shoot allows this only in its maintenance window.
    """

    def __init__(self, store: Store, actuator: WorkerActuator, pace: Pace) -> None:
        self._store = store
        self._client = Client(store, "gardenlet")
        self._actuator = actuator
        self._pace = pace
        self._began: dict[str, datetime] = {}  # the start of running reconciliations, by uid of the Shoot
        self._ended: dict[str, datetime] = {}

    def step(self, now: datetime) -> None:
        """Start the reconciliations that are due, and finish those whose time is over."""
        for shoot in self._store.list(SHOOTS):
            uid = shoot["metadata"]["uid"]
            if annotations_of(shoot).get(IGNORE) == "true":
                continue
            if uid not in self._began and self._is_due(shoot, now):
                self._began[uid] = now
            if uid in self._began and now >= self._began[uid] + self._pace.flow:
                self.reconcile(shoot, now)

    def _is_due(self, shoot: Object, now: datetime) -> bool:
        status, ended = status_of(shoot), self._ended.get(shoot["metadata"]["uid"])
        confined = shoot["spec"].get("maintenance", {}).get("confineSpecUpdateRollout", False)
        changed = status.get("observedGeneration") != shoot["metadata"]["generation"]
        hibernates = _is_hibernated(shoot) != status.get("isHibernated", False)
        if annotations_of(shoot).get(OPERATION) in ("reconcile", "retry") or (changed and not confined) or hibernates:
            return True
        failed = (status.get("lastOperation") or {}).get("state") == "Error"
        wait = self._pace.retry if failed else self._pace.window if confined else self._pace.period
        return ended is None or now >= ended + wait

    def reconcile(self, shoot: Object, now: datetime) -> None:
        """Run the part of the flow that concerns workers."""
        namespace, metadata, spec = status_of(shoot)["technicalID"], shoot["metadata"], shoot["spec"]
        pools = [_worker_pool(worker) for worker in spec["provider"]["workers"]]
        cluster = {"spec": {"cloudProfile": {}, "seed": {}, "shoot": shoot}}
        self._client.create_or_patch(CLUSTERS, "", namespace, cluster)
        request = {OPERATION: "reconcile", "gardener.cloud/timestamp": rfc3339(now)}
        worker = {"type": spec["provider"]["type"], "region": spec["region"], "pools": pools}
        body = {"metadata": {"annotations": request}, "spec": worker}
        self._client.create_or_patch(WORKERS, namespace, metadata["name"], body)
        self._actuator.carry_out_requests(now)
        result = status_of(self._store.get(WORKERS, namespace, metadata["name"]))
        self._deploy_autoscaler(namespace, pools, result["machineDeployments"], asleep=_is_hibernated(shoot))
        self._client.annotate(shoot, {OPERATION: None})
        status = {
            "lastOperation": result["lastOperation"],
            "observedGeneration": metadata["generation"],
            "isHibernated": _is_hibernated(shoot),
        }
        self._client.patch_status(shoot, status)
        self._began.pop(metadata["uid"], None)
        self._ended[metadata["uid"]] = now

    def _deploy_autoscaler(self, namespace: str, pools: list[Object], groups: list[Object], *, asleep: bool) -> None:
        """Deploy machine-controller-manager and cluster-autoscaler; delete the latter if no pool can grow."""
        replicas, name = 0 if asleep else 1, "cluster-autoscaler"
        self._put_deployment(namespace, "machine-controller-manager", [], replicas)
        if needs_autoscaler(pools):
            nodes = [f"--nodes={item['minimum']}:{item['maximum']}:{namespace}.{item['name']}" for item in groups]
            flags = ["--cloud-provider=mcm", "--expander=least-waste", "--balance-similar-node-groups=true", *nodes]
            self._put_deployment(namespace, name, flags, replicas)
        elif deployment := self._client.find(DEPLOYMENTS, namespace, name):
            self._client.delete(deployment)

    def _put_deployment(self, namespace: str, name: str, arguments: list[str], replicas: int) -> None:
        body = deployment_of(name, namespace, arguments, replicas=replicas)
        self._client.create_or_patch(DEPLOYMENTS, namespace, name, body)


def _is_hibernated(shoot: Mapping[str, Json]) -> bool:
    return bool(((shoot.get("spec") or {}).get("hibernation") or {}).get("enabled"))


def _worker_pool(worker: Object) -> Object:
    """Return a Worker's pool for a Shoot's worker: the same fields, except for the machine; options become texts."""
    copied = ("name", "minimum", "maximum", "zones", "annotations", "taints", "priority")
    pool = {key: worker[key] for key in copied if key in worker}
    options = worker.get("clusterAutoscaler") or {}
    return {
        **pool,
        "maxSurge": worker.get("maxSurge", 1),
        "maxUnavailable": worker.get("maxUnavailable", 0),
        "labels": {**(worker.get("labels") or {}), POOL_LABEL: worker["name"]},
        "machineType": worker["machine"]["type"],
        "machineImage": worker["machine"].get("image", {"name": "gardenlinux", "version": "1877.3.0"}),
        "userDataSecretRef": {"name": f"gardener-node-init-{worker['name']}", "key": "userData"},
        **({"clusterAutoscaler": {key: str(value) for key, value in options.items()}} if options else {}),
    }
