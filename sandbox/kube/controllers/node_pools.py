"""HyperShift on its management cluster: a NodePool owns bounds and replicas of its MachineDeployment.

The operator watches what it has made, so whatever somebody writes into its keys is gone within seconds; other keys it
never touches. NodePools that are upgraded in place have a MachineSet instead, and are left out here. Machines and their
template are those of Cluster API's AWS provider, whatever platform a NodePool names.
Sources (openshift/hypershift): hypershift-operator/controllers/nodepool/capi.go, nodepool_controller.go and
conditions.go; control-plane-operator's v2/assets/cluster-autoscaler.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sandbox.kube.cloud import subnet_in
from sandbox.kube.controllers.objects import (
    USERS_POOL_LABEL,
    arguments_of,
    condition,
    deployment_of,
    is_deleting,
    parse_time,
    status_of,
    template_hash,
)
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

NODE_POOLS = "nodepools.hypershift.openshift.io"
HOSTED_CLUSTERS = "hostedclusters.hypershift.openshift.io"
DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io"
TEMPLATES = "awsmachinetemplates.infrastructure.cluster.x-k8s.io"
NODE_POOL = "hypershift.openshift.io/nodePool"
PAUSED = "cluster.x-k8s.io/paused"
MIN_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
_AUTOSCALER = "cluster-autoscaler"


class NodePoolOperator:
    """Every step is an event of everything that it watches."""

    manager = "hypershift-operator-manager"

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self, now: datetime) -> None:
        """Reconcile every NodePool, and the autoscaler of every hosted cluster."""
        for hosted in self._store.list(HOSTED_CLUSTERS):
            metadata = hosted["metadata"]
            pools = [
                pool
                for pool in self._store.list(NODE_POOLS, metadata["namespace"])
                if pool["spec"]["clusterName"] == metadata["name"]
                and pool["spec"]["management"]["upgradeType"] == "Replace"
                and not is_deleting(pool)
            ]
            for pool in pools:
                self._reconcile(pool, hosted, now)
            self._deploy_autoscaler(hosted, pools)

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """What the hosted cluster's autoscaler is started with; None while it is scaled down."""
        found = self._store.list("deployments.apps", fields=f"metadata.name={_AUTOSCALER}")
        return arguments_of(found[0]) if found else None

    def _reconcile(self, pool: Object, hosted: Object, now: datetime) -> None:
        conditions = [_autoscaling_enabled(pool, now), _valid_release_image(pool, now), _active(pool, now)]
        deployment = self._deployment(pool)
        by_type = {item["type"]: item["status"] for item in conditions}
        # in the order of the real one: an invalid release image ends it before anybody asks whether it is paused
        if by_type["ValidReleaseImage"] == "False":
            pass
        elif by_type["ReconciliationActive"] == "False":
            if deployment is not None:
                self._patch(DEPLOYMENTS, deployment, {"metadata": {"annotations": {PAUSED: "true"}}})
        else:
            deployment = self._bring_about(pool, hosted, deployment)
        self._tell(pool, deployment, conditions)

    def _deployment(self, pool: Object) -> Object | None:
        try:
            return self._store.get(DEPLOYMENTS, control_plane_namespace(pool), pool["metadata"]["name"])
        except ApiError:
            return None

    def _bring_about(self, pool: Object, hosted: Object, existing: Object | None) -> Object:
        """Only the keys that it has something to say about."""
        namespace, infrastructure = control_plane_namespace(pool), hosted["spec"]["infraID"]
        template = self._template(pool, namespace)
        known = existing or {"spec": {}}
        low, high, replicas = self.size(pool, template, known["spec"].get("replicas", 0))
        body: Object = {
            "metadata": {
                "labels": {"cluster.x-k8s.io/cluster-name": infrastructure},
                "annotations": {NODE_POOL: _key(pool), MIN_SIZE: str(low), MAX_SIZE: str(high)},
            },
            "spec": {"replicas": replicas, **_machines(pool, infrastructure, template)},
        }
        if existing is None:
            body["metadata"] |= {"name": pool["metadata"]["name"], "namespace": namespace}
            return self._store.create(DEPLOYMENTS, body, manager=self.manager)
        body["metadata"]["annotations"][PAUSED] = None
        return self._patch(DEPLOYMENTS, existing, body)

    @staticmethod
    def size(pool: Object, template: Object, replicas: int) -> tuple[int, int, int]:
        """Min and max for the autoscaler, and replicas inside them; 0 and 0 where it is to keep away."""
        scaling = pool["spec"].get("autoScaling")
        if scaling is None:
            return 0, 0, pool["spec"].get("replicas", 0)
        low, high = scaling["min"], scaling["max"]
        if not low and "capacity" not in status_of(template):
            low = 1  # nobody could bring such a pool back from nothing
        return low, high, min(max(replicas, low), high)

    def _template(self, pool: Object, namespace: str) -> Object:
        """The machine template. The provider tells what a machine has, but for platforms that never do."""
        platform, name = pool["spec"]["platform"], pool["metadata"]["name"]
        instance = {"instanceType": "m5.xlarge", "instanceMetadataOptions": {"httpTokens": "optional"}}
        if aws := platform.get("aws"):
            instance |= {"instanceType": aws["instanceType"], "subnet": aws["subnet"]}
        name = f"{name}-{template_hash(instance)}"
        try:
            return self._store.get(TEMPLATES, namespace, name)
        except ApiError:
            body = {
                "metadata": {"name": name, "namespace": namespace, "annotations": {NODE_POOL: _key(pool)}},
                "spec": {"template": {"spec": instance}},
            }
            made = self._store.create(TEMPLATES, body, manager=self.manager)
        if platform["type"] not in ("AWS", "Azure"):
            return made
        info = {"architecture": pool["spec"]["arch"], "operatingSystem": "linux"}
        status = {"status": {"capacity": {"cpu": "4", "memory": "16Gi"}, "nodeInfo": info}}
        return self._patch(TEMPLATES, made, status, subresource="status", manager="manager")

    def _tell(self, pool: Object, deployment: Object | None, conditions: list[Object]) -> None:
        before = {item["type"]: item for item in status_of(pool).get("conditions") or ()}
        for item in conditions:
            item["observedGeneration"] = pool["metadata"]["generation"]
            if before.get(item["type"], {}).get("status") == item["status"]:
                item["lastTransitionTime"] = before[item["type"]]["lastTransitionTime"]
        available = status_of(deployment or {}).get("availableReplicas", 0)
        status = {"status": {"replicas": available, "conditions": conditions}}
        self._patch(NODE_POOLS, pool, status, subresource="status")

    def _deploy_autoscaler(self, hosted: Object, pools: Sequence[Object]) -> None:
        """It runs while any NodePool has autoScaling."""
        metadata = hosted["metadata"]
        namespace = f"{metadata['namespace']}-{metadata['name']}"
        arguments = [
            "--cloud-provider=clusterapi",
            f"--node-group-auto-discovery=clusterapi:namespace={namespace}",
            "--balance-similar-node-groups=true",
            f"--balancing-ignore-label={NODE_POOL}",
            "--balancing-ignore-label=topology.ebs.csi.aws.com/zone",
        ]
        limit = (hosted["spec"].get("autoscaling") or {}).get("maxNodesTotal")
        arguments += [] if limit is None else [f"--max-nodes-total={limit}"]
        replicas = 1 if any("autoScaling" in pool["spec"] for pool in pools) else 0
        wanted = deployment_of(_AUTOSCALER, namespace, arguments, replicas=replicas)
        if self._store.list("deployments.apps", namespace, fields=f"metadata.name={_AUTOSCALER}"):
            self._patch("deployments.apps", wanted, {"spec": wanted["spec"]})
        else:
            self._store.create("deployments.apps", wanted, manager=self.manager)

    def _patch(self, resource: str, item: Object, patch: Object, *, subresource: str = "", manager: str = "") -> Object:
        metadata = item["metadata"]
        return self._store.patch(
            resource,
            metadata["namespace"],
            metadata["name"],
            patch,
            subresource=subresource,
            manager=manager or self.manager,
        )


def control_plane_namespace(pool: Object) -> str:
    """Where the machine objects of a NodePool's hosted cluster are."""
    return f"{pool['metadata']['namespace']}-{pool['spec']['clusterName']}"


def _key(pool: Object) -> str:
    return f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"


def _machines(pool: Object, infrastructure: str, template: Object) -> Object:
    """The MachineDeployment's spec but for replicas. OpenStack and GCP alone are told a zone by its name."""
    platform = pool["spec"]["platform"]
    zone = (platform.get("openstack") or {}).get("availabilityZone") or (platform.get("gcp") or {}).get("zone")
    name = f"{infrastructure}-{pool['metadata']['name']}"
    labels = {"cluster.x-k8s.io/cluster-name": infrastructure, name: name}
    return {
        "clusterName": infrastructure,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": {NODE_POOL: _key(pool)}},
            "spec": {
                "clusterName": infrastructure,
                "bootstrap": {"dataSecretName": f"user-data-{pool['metadata']['name']}"},
                "infrastructureRef": {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
                    "kind": "AWSMachineTemplate",
                    "name": template["metadata"]["name"],
                    "namespace": template["metadata"]["namespace"],
                },
                **({"failureDomain": zone} if zone else {}),
            },
        },
    }


def _autoscaling_enabled(pool: Object, now: datetime) -> Object:
    enabled = "autoScaling" in pool["spec"]
    return condition("AutoscalingEnabled", str(enabled), now, reason="AsExpected", always_reason=True)


def _valid_release_image(pool: Object, now: datetime) -> Object:
    valid = "/" in pool["spec"]["release"]["image"]
    reason = "AsExpected" if valid else "ValidationFailed"
    return condition("ValidReleaseImage", str(valid), now, reason=reason, always_reason=True)


def _active(pool: Object, now: datetime) -> Object:
    until = pool["spec"].get("pausedUntil", "false")
    if until.lower() in ("true", "false"):
        paused, text = until.lower() == "true", "Reconciliation paused until field removed"
    else:
        paused, text = parse_time(until) > now, f"Reconciliation paused until: {until}"
    reason = "ReconciliationPaused" if paused else "ReconciliationActive"
    message = text if paused else "Reconciliation active on resource"
    return condition("ReconciliationActive", str(not paused), now, reason=reason, message=message, always_reason=True)


def node_pool_spec(pool: str, cluster: str, zone: str, platform: str, machine_type: str) -> Object:
    """The spec of a NodePool in one zone, without its size."""
    platforms = {
        "AWS": {"aws": {"instanceType": machine_type, "subnet": {"id": subnet_in(zone)}}},
        "GCP": {"gcp": {"machineType": machine_type, "zone": zone}},
        "OpenStack": {"openstack": {"flavor": machine_type, "availabilityZone": zone}},
    }
    rolling = {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "clusterName": cluster,
        "management": {"upgradeType": "Replace", "autoRepair": False, "replace": rolling},
        "platform": {"type": platform, **platforms[platform]},
        "release": {"image": "quay.io/openshift-release-dev/ocp-release:4.20.0-x86_64"},
        "nodeLabels": {USERS_POOL_LABEL: pool},
    }
