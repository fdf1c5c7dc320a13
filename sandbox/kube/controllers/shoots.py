"""Gardener above its machines: gardenlet, which carries a Shoot to its seed, and the actuator of the Worker there.

Nothing here watches machine deployments: what somebody writes on them stands until the Worker is reconciled, and that
happens when its Shoot is, once an hour, or when somebody asks for it by annotation. Sources (gardener/gardener):
extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go and machines.go beside it,
extensions/pkg/predicate/default.go, pkg/component/autoscaling/clusterautoscaler/cluster_autoscaler.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.kube.controllers.objects import ZONE_LABEL, annotations_of, deployment_of, status_of
from sandbox.kube.errors import ApiError
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
    """Gardener's DistributeOverZones: the share of the zone with this index, remainders to the first zones."""
    return size // zones + (1 if index < size % zones else 0)


def distribute_int_or_percent(index: int, value: int | str, zones: int, total: int) -> int | str:
    """Gardener's DistributePositiveIntOrPercent: an int is dealt out; percents weigh by the zone's share of `total`."""
    if isinstance(value, int):
        return distribute(index, value, zones)
    percents = int(value.removesuffix("%"))
    if total % zones:
        percents = math.ceil(100.0 / (total / zones) * distribute(index, total, zones) * percents / 100.0)
    return f"{percents}%"


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one zone of a pool is wanted to be: one machine deployment."""

    name: str
    pool: Object
    zone: str
    minimum: int
    maximum: int
    max_surge: int | str
    max_unavailable: int | str

    def clamp(self, replicas: int) -> int:
        """`replicas`, inside the share."""
        return min(max(replicas, self.minimum), self.maximum)


def shares(namespace: str, pools: list[Object]) -> Iterator[Share]:
    """The zones of every pool of a Worker. The index in the name is the place in the list of zones, from 1."""
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
    """Whether any pool has room: without one, nobody but the actuator writes replicas."""
    return any(pool["maximum"] > pool["minimum"] for pool in pools)


def machine_class(namespace: str, pool: str, name: str, zone: str, machine_type: str) -> Object:
    """The MachineClass of one zone."""
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
    """The MachineDeployment of one zone, with the strategy of a pool that surges by one."""
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
    """Makes the machine deployments of a Worker, and puts their replicas back into the zones' shares."""

    manager = "gardener-extension-provider-aws"

    def __init__(self, store: Store) -> None:
        self._store = store

    def carry_out_requests(self, now: datetime) -> None:
        """Reconcile the Workers that somebody asked it for by annotation; a changed spec alone does nothing."""
        for worker in self._store.list(WORKERS):
            if annotations_of(worker).get(OPERATION) == "reconcile":
                self.reconcile(self._patch(WORKERS, worker, {"metadata": {"annotations": {OPERATION: None}}}), now)

    def reconcile(self, worker: Object, now: datetime) -> None:
        """Once: shares, replicas, options of the autoscaler, and what was done into the Worker's status."""
        namespace, pools = worker["metadata"]["namespace"], worker["spec"]["pools"]
        existing = {item["metadata"]["name"]: item for item in self._store.list(MACHINE_DEPLOYMENTS, namespace)}
        wanted = list(shares(namespace, pools))
        hibernated = _is_hibernated(self._shoot(namespace))
        asleep = not any(item["spec"].get("replicas") for item in existing.values())
        for share in wanted:
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
            for share in wanted
            for machine in status_of(existing.get(share.name, {})).get("failedMachines") or ()
        ]
        self._tell(worker, wanted, failed, now)

    def _deploy(self, namespace: str, share: Share, existing: Object | None, replicas: int) -> None:
        options = {key: share.pool.get("clusterAutoscaler", {}).get(field) for key, field in OPTIONS.items()}
        rolling = {"maxSurge": share.max_surge, "maxUnavailable": share.max_unavailable}
        patch = {
            "metadata": {"labels": {POOL_LABEL: share.pool["name"]}, "annotations": options},
            "spec": {"replicas": replicas, "strategy": {"rollingUpdate": rolling}},
        }
        if existing is None:
            name, pool = share.name, share.pool
            made = machine_class(namespace, pool["name"], name, share.zone, pool["machineType"])
            self._store.create(MACHINE_CLASSES, made, manager=self.manager)
            body = machine_deployment(namespace, name, pool, share.zone, replicas)
            existing = self._store.create(MACHINE_DEPLOYMENTS, body, manager=self.manager)
        self._patch(MACHINE_DEPLOYMENTS, existing, patch)

    def _tell(self, worker: Object, wanted: list[Share], failed: list[Object], now: datetime) -> None:
        operation: Object = {"type": "Reconcile", "state": "Succeeded", "progress": 100, "lastUpdateTime": rfc3339(now)}
        if failed:
            text = f"machine(s) failed: {failed[0]['name']}: {failed[0]['lastOperation']['description']}"
            operation |= {"state": "Error", "progress": 50, "description": text}
        deployments = [
            {"name": share.name, "minimum": share.minimum, "maximum": share.maximum}
            | {key: share.pool[key] for key in ("priority",) if key in share.pool}
            for share in wanted
        ]
        status = {
            "lastOperation": operation,
            "observedGeneration": worker["metadata"]["generation"],
            "machineDeployments": deployments,
            "machineDeploymentsLastUpdateTime": rfc3339(now),
        }
        self._patch(WORKERS, worker, {"status": status}, subresource="status")

    def _shoot(self, namespace: str) -> Object:
        """The Shoot of a seed's namespace, as extensions see it: in the Cluster of that name."""
        try:
            cluster = self._store.get(CLUSTERS, "", namespace)
        except ApiError:
            return {}
        return dict(cluster["spec"]["shoot"])

    def _patch(self, resource: str, item: Object, patch: Json, *, subresource: str = "") -> Object:
        metadata = item["metadata"]
        return self._store.patch(
            resource, metadata["namespace"], metadata["name"], patch, manager=self.manager, subresource=subresource
        )


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often gardenlet comes by. The last two are guesses: nobody has measured them."""

    #: gardenlet's syncPeriod
    period: timedelta = timedelta(hours=1)
    #: where a Shoot confines its rollouts, or is reconciled in its maintenance window only
    window: timedelta = timedelta(hours=24)
    #: from the beginning of a Shoot's reconciliation to its Worker
    flow: timedelta = timedelta(minutes=2)
    #: until a reconciliation that ended in an error is tried again
    retry: timedelta = timedelta(minutes=5)


class Gardenlet:
    """Carries Shoots to the seed: the Cluster, the Worker's pools, and the flags of cluster-autoscaler.

    A Shoot is reconciled when its spec changes (unless it confines that to its maintenance window), when somebody asks
    for it by annotation, an hour after the last time, and sooner after an error.
    """

    manager = "gardenlet"

    def __init__(self, store: Store, actuator: WorkerActuator, pace: Pace) -> None:
        self._store = store
        self._actuator = actuator
        self._pace = pace
        self._began: dict[str, datetime] = {}  # reconciliations that are under way, by uid of the Shoot
        self._ended: dict[str, datetime] = {}

    def step(self, now: datetime) -> None:
        """What gardenlet does at this moment."""
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
        """The part of the flow that concerns workers, all at once."""
        namespace, uid = status_of(shoot)["technicalID"], shoot["metadata"]["uid"]
        pools = [_worker_pool(worker) for worker in shoot["spec"]["provider"]["workers"]]
        self._put(CLUSTERS, "", namespace, {"spec": {"cloudProfile": {}, "seed": {}, "shoot": shoot}})
        asked = {OPERATION: "reconcile", "gardener.cloud/timestamp": rfc3339(now)}
        provider = {"type": shoot["spec"]["provider"]["type"], "region": shoot["spec"]["region"]}
        worker = {"metadata": {"annotations": asked}, "spec": {**provider, "pools": pools}}
        self._put(WORKERS, namespace, shoot["metadata"]["name"], worker)
        self._actuator.carry_out_requests(now)
        done = status_of(self._store.get(WORKERS, namespace, shoot["metadata"]["name"]))
        self._deploy_autoscaler(namespace, pools, done["machineDeployments"], asleep=_is_hibernated(shoot))
        metadata = shoot["metadata"]
        self._store.patch(
            SHOOTS,
            metadata["namespace"],
            metadata["name"],
            {"metadata": {"annotations": {OPERATION: None}}},
            manager=self.manager,
        )
        status = {
            "lastOperation": done["lastOperation"],
            "observedGeneration": metadata["generation"],
            "isHibernated": _is_hibernated(shoot),
        }
        self._store.patch(
            SHOOTS,
            metadata["namespace"],
            metadata["name"],
            {"status": status},
            subresource="status",
            manager=self.manager,
        )
        self._began.pop(uid, None)
        self._ended[uid] = now

    def _deploy_autoscaler(self, namespace: str, pools: list[Object], told: list[Object], *, asleep: bool) -> None:
        """machine-controller-manager and cluster-autoscaler; the second is deleted where no pool has room."""
        replicas = 0 if asleep else 1
        self._put_deployment(namespace, "machine-controller-manager", [], replicas)
        if needs_autoscaler(pools):
            nodes = [f"--nodes={item['minimum']}:{item['maximum']}:{namespace}.{item['name']}" for item in told]
            flags = ["--cloud-provider=mcm", "--expander=least-waste", "--balance-similar-node-groups=true", *nodes]
            self._put_deployment(namespace, "cluster-autoscaler", flags, replicas)
            return
        try:
            self._store.delete(DEPLOYMENTS, namespace, "cluster-autoscaler")
        except ApiError as error:
            if error.code != 404:
                raise

    def _put_deployment(self, namespace: str, name: str, arguments: list[str], replicas: int) -> None:
        self._put(DEPLOYMENTS, namespace, name, deployment_of(name, namespace, arguments, replicas=replicas))

    def _put(self, resource: str, namespace: str, name: str, body: Object) -> None:
        """Make the object, or bring what is given of it there; lists are replaced."""
        try:
            self._store.patch(resource, namespace, name, body, manager=self.manager)
        except ApiError as error:
            if error.code != 404:
                raise
            metadata = {**body.get("metadata", {}), "name": name} | ({"namespace": namespace} if namespace else {})
            self._store.create(resource, {**body, "metadata": metadata}, manager=self.manager)


def _is_hibernated(shoot: Mapping[str, Json]) -> bool:
    return bool(((shoot.get("spec") or {}).get("hibernation") or {}).get("enabled"))


def _worker_pool(worker: Object) -> Object:
    """A Worker's pool from a Shoot's worker: the same names, but for the machine; numbers in options become texts."""
    pool = {
        key: worker[key]
        for key in ("name", "minimum", "maximum", "zones", "annotations", "taints", "priority")
        if key in worker
    }
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
