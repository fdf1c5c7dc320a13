"""HyperShift on its management cluster: a NodePool owns bounds and replicas of its MachineDeployment.

The operator watches the objects that it creates: it overwrites writes of others to its keys within seconds, and never
changes other keys. A NodePool with in-place upgrades has a MachineSet instead, which is not simulated. Machines and
templates are always those of Cluster API's AWS provider, for any platform of a NodePool. Sources
(openshift/hypershift): hypershift-operator/controllers/nodepool/capi.go, nodepool_controller.go and conditions.go;
control-plane-operator's v2/assets/cluster-autoscaler.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sandbox.kube.client import Client
from sandbox.kube.cloud import subnet_in
from sandbox.kube.controllers.objects import (
    USERS_POOL_LABEL,
    arguments_of,
    condition,
    conditions_of,
    deployment_of,
    is_deleting,
    parse_time,
    status_of,
    template_hash,
)
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
    """Reconciles every NodePool in every step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, "hypershift-operator-manager")

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
        """Return the arguments of the hosted cluster's autoscaler; None while it is scaled down."""
        deployments = self._store.list("deployments.apps", fields=f"metadata.name={_AUTOSCALER}")
        return arguments_of(deployments[0]) if deployments else None

    def _reconcile(self, pool: Object, hosted: Object, now: datetime) -> None:
        conditions = [_autoscaling_enabled(pool, now), _valid_release_image(pool, now), _active(pool, now)]
        deployment = self._client.find(DEPLOYMENTS, control_plane_namespace(pool), pool["metadata"]["name"])
        _, valid, active = (item["status"] == "True" for item in conditions)
        # As in the real controller, an invalid release image ends the reconciliation before the pause is read.
        if valid and active:
            deployment = self._apply(pool, hosted, deployment)
        elif valid and deployment is not None:
            self._client.annotate(deployment, {PAUSED: "true"})
        self._update_status(pool, deployment, conditions)

    def _apply(self, pool: Object, hosted: Object, existing: Object | None) -> Object:
        """Write the keys that a NodePool owns into its MachineDeployment."""
        namespace, infrastructure = control_plane_namespace(pool), hosted["spec"]["infraID"]
        template = self._template(pool, namespace)
        low, high, replicas = self.size(pool, template, (existing or {"spec": {}})["spec"].get("replicas", 0))
        annotations = {NODE_POOL: _key(pool), MIN_SIZE: str(low), MAX_SIZE: str(high)}
        labels = {"cluster.x-k8s.io/cluster-name": infrastructure}
        body: Object = {
            "metadata": {"labels": labels, "annotations": annotations | ({} if existing is None else {PAUSED: None})},
            "spec": {"replicas": replicas, **_machines(pool, infrastructure, template)},
        }
        return self._client.create_or_patch(DEPLOYMENTS, namespace, pool["metadata"]["name"], body)

    @staticmethod
    def size(pool: Object, template: Object, replicas: int) -> tuple[int, int, int]:
        """Return min and max for the autoscaler, and replicas within these bounds. Bounds 0 and 0 exclude the group."""
        scaling = pool["spec"].get("autoScaling")
        if scaling is None:
            return 0, 0, pool["spec"].get("replicas", 0)
        low, high = scaling["min"], scaling["max"]
        if not low and "capacity" not in status_of(template):
            low = 1  # the autoscaler cannot scale such a pool from zero
        return low, high, min(max(replicas, low), high)

    def _template(self, pool: Object, namespace: str) -> Object:
        """Return the machine template. Providers of some platforms report the capacity of a machine in its status."""
        platform, name = pool["spec"]["platform"], pool["metadata"]["name"]
        instance = {"instanceType": "m5.xlarge", "instanceMetadataOptions": {"httpTokens": "optional"}}
        if aws := platform.get("aws"):
            instance |= {"instanceType": aws["instanceType"], "subnet": aws["subnet"]}
        name = f"{name}-{template_hash(instance)}"
        if template := self._client.find(TEMPLATES, namespace, name):
            return template
        metadata = {"name": name, "namespace": namespace, "annotations": {NODE_POOL: _key(pool)}}
        body = {"metadata": metadata, "spec": {"template": {"spec": instance}}}
        template = self._client.create(TEMPLATES, body)
        if platform["type"] not in ("AWS", "Azure"):
            return template
        info = {"architecture": pool["spec"]["arch"], "operatingSystem": "linux"}
        status = {"capacity": {"cpu": "4", "memory": "16Gi"}, "nodeInfo": info}
        return self._client.patch_status(template, status, manager="manager")

    def _update_status(self, pool: Object, deployment: Object | None, conditions: list[Object]) -> None:
        before = conditions_of(pool)
        for item in conditions:
            item["observedGeneration"] = pool["metadata"]["generation"]
            if before.get(item["type"], {}).get("status") == item["status"]:
                item["lastTransitionTime"] = before[item["type"]]["lastTransitionTime"]
        available = status_of(deployment or {}).get("availableReplicas", 0)
        self._client.patch_status(pool, {"replicas": available, "conditions": conditions})

    def _deploy_autoscaler(self, hosted: Object, pools: Sequence[Object]) -> None:
        """Deploy the autoscaler, with replicas while any NodePool has autoScaling."""
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
        body = deployment_of(_AUTOSCALER, namespace, arguments, replicas=replicas)
        self._client.create_or_patch("deployments.apps", namespace, _AUTOSCALER, body)


def control_plane_namespace(pool: Object) -> str:
    """Return the namespace of the hosted cluster's machine objects."""
    return f"{pool['metadata']['namespace']}-{pool['spec']['clusterName']}"


def _key(pool: Object) -> str:
    return f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"


def _machines(pool: Object, infrastructure: str, template: Object) -> Object:
    """Return the MachineDeployment's spec without replicas. Only OpenStack and GCP have the zone in it."""
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
    """Return the spec of a NodePool in one zone, without its size."""
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
