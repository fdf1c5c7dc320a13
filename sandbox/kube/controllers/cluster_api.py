"""Cluster API core with its AWS provider, its topology controller and HyperShift's operator."""

# ruff: noqa: ARG002 - a hook has the arguments that some flavour needs

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.deployments import DeploymentControllers, Totals
from sandbox.kube.controllers.machine_controller import MachineAPI
from sandbox.kube.controllers.machine_pools import POOL_NAME, MachinePools
from sandbox.kube.controllers.node_pools import NODE_POOL, NODE_POOLS, NodePoolOperator
from sandbox.kube.controllers.objects import (
    USERS_POOL_LABEL,
    age_priority,
    annotations_of,
    as_selector,
    condition,
    conditions_of,
    controller_reference,
    is_deleting,
    labels_of,
    provider_id,
    status_of,
    template_hash,
)
from sandbox.kube.controllers.topology import TopologyController
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object

UPDATING = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
_NODE_LABEL_DOMAINS = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
PENDING_HOOKS = "runtime.cluster.x-k8s.io/pending-hooks"


def cluster_api_deletion_order(machines: Iterable[Object], order: str, now: datetime) -> list[Object]:
    """Return machines in Cluster API's order of deletion.

    The order is: machines that are being deleted, marked, updating in place, unhealthy, then all others in the set's
    order.
    """

    def priority(machine: Object) -> float:
        if is_deleting(machine):
            return 100.0
        if "cluster.x-k8s.io/delete-machine" in annotations_of(machine):
            return 80.0
        # An update in place begins with the annotation and ends with the hook.
        hooks = annotations_of(machine).get(PENDING_HOOKS, "").split(",")
        if UPDATING in annotations_of(machine) or "UpdateMachine" in hooks:
            return 75.0
        if not _cluster_api_healthy(machine):
            return 50.0
        by_age = 50.0 * age_priority(machine, now)
        return {"Oldest": by_age, "Newest": 50.0 - by_age}.get(order, 20.0)

    return sorted(machines, key=lambda machine: (-priority(machine), machine["metadata"]["name"]))


def _cluster_api_healthy(machine: Object) -> bool:
    conditions = conditions_of(machine)
    healthy = (conditions.get(kind, {}).get("status") != "False" for kind in ("NodeHealthy", "HealthCheckSucceeded"))
    return bool(status_of(machine).get("nodeRef")) and all(healthy)


class ClusterAPIControllers(DeploymentControllers):
    """Cluster API core with its AWS provider, and the topology controller of ClusterClass."""

    flavour = "cluster-api"
    api = MachineAPI(
        scalables="machinedeployments.cluster.x-k8s.io",
        machines="machines.cluster.x-k8s.io",
        prefix="cluster.x-k8s.io",
        mark=lambda now: {"cluster.x-k8s.io/delete-machine": str(now)},
    )
    group = "cluster.x-k8s.io"
    manager = "manager"
    finalizer = "machine.cluster.x-k8s.io"
    revision = "machinedeployment.clusters.x-k8s.io/revision"
    counts_deleting = True
    _aws = "awsmachines.infrastructure.cluster.x-k8s.io"
    _aws_template = "awsmachinetemplates.infrastructure.cluster.x-k8s.io"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.topology = TopologyController(self.store)
        self.machine_pools = MachinePools(self, self._create_node, is_new=self._new)

    def step(self, now: datetime) -> None:
        """Reconcile as every machine API does, then reconcile the MachinePools."""
        super().step(now)
        self.machine_pools.step(now)

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        if POOL_NAME not in machine["metadata"].get("labels", {}):  # otherwise, the MachinePool creates the instance
            super()._reconcile_machine(machine, now)

    @property
    def _new(self) -> bool:
        """Return whether the storage version is v1beta2. The controllers then write objects in its shape."""
        return self.store.resource(self.resource("machines")).storage == "v1beta2"

    def is_paused(self, item: Object) -> bool:
        """Return True if the object's annotation or its Cluster pauses it."""
        if "cluster.x-k8s.io/paused" in annotations_of(item):
            return True
        namespace, name = item["metadata"]["namespace"], item["spec"]["clusterName"]
        cluster = self.client.find(self.resource("clusters"), namespace, name) or {}
        return bool(cluster.get("spec", {}).get("paused"))

    def reconcile_owners(self, now: datetime) -> None:
        """Run the topology controller."""
        self.topology.step()

    def digest_of(self, template: Object) -> str:
        """Return a digest of a template without its annotations, which change in place, without a rollout."""
        metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key != "annotations"}
        return template_hash({**template, "metadata": metadata} if annotations_of(template) else template)

    def pool_of(self, item: Object) -> str | None:
        """Return the pool's name in the label that users set."""
        return labels_of(item).get(USERS_POOL_LABEL)

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        super()._reconcile_deployment(deployment, sets)
        template = deployment["spec"]["template"]
        annotations, digest = annotations_of(template), self.digest_of(template)
        for machine_set in sets:
            current = annotations_of(machine_set["spec"]["template"])
            if machine_set["metadata"]["labels"][self.hash_label] == digest and current != annotations:
                patch = {"metadata": {"annotations": dict.fromkeys(current) | annotations}}
                self.client.patch(machine_set, {"spec": {"template": patch}})

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        super()._reconcile_set(machine_set, machines, now)
        annotations = annotations_of(machine_set["spec"].get("template") or {})
        for machine in machines:
            if not (annotations.items() <= annotations_of(machine).items() or is_deleting(machine)):
                self.client.annotate(machine, {**annotations})

    def machine_set_of(self, deployment: Object, digest: str) -> tuple[dict[str, str], Object]:
        """Return the labels of the set that a deployment creates, and the other fields of the set's spec."""
        spec = deployment["spec"]
        labels = {
            "cluster.x-k8s.io/cluster-name": spec["clusterName"],
            "cluster.x-k8s.io/deployment-name": deployment["metadata"]["name"],
            self.hash_label: digest,
        }
        template = spec["template"]
        metadata = {**(template.get("metadata") or {}), "labels": {**labels_of(template), **labels}}
        return labels, {"clusterName": spec["clusterName"], "template": {**template, "metadata": metadata}}

    def machine_of(self, machine_set: Object, name: str) -> Object:
        """Return the Machine that a set creates, with a reference to its AWSMachine."""
        metadata, template = machine_set["metadata"], machine_set["spec"]["template"]
        reference = dict(template["spec"].get("infrastructureRef") or {}) | {"kind": "AWSMachine", "name": name}
        cluster = machine_set["spec"]["clusterName"]
        return {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**labels_of(template), "cluster.x-k8s.io/set-name": metadata["name"]},
                "annotations": annotations_of(template),
            },
            "spec": {**template["spec"], "clusterName": cluster, "infrastructureRef": reference},
        }

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Return the labels that Cluster API copies from machines to nodes (machine_types.go)."""
        labels = labels_of(machine)
        return {key: labels[key] for key in labels if key.split("/")[0].endswith(_NODE_LABEL_DOMAINS)}, []

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        """Return the machines in Cluster API's order of deletion."""
        spec = machine_set["spec"]
        order = (spec.get("deletion") or {}).get("order") or spec.get("deletePolicy") or "Random"
        return cluster_api_deletion_order(machines, order, now)

    def zone_of(self, spec: Object) -> str:
        """Return the failure domain, or an empty text."""
        return str(spec.get("failureDomain", ""))

    def on_created(self, machine: Object, now: datetime) -> None:
        """Create the AWSMachine of a new Machine, and report that the Machine waits for it."""
        metadata = {key: machine["metadata"][key] for key in ("name", "namespace", "labels")}
        metadata["ownerReferences"] = [controller_reference(machine)]
        self.client.create(self._aws, {"metadata": metadata, "spec": self._infrastructure_of(machine)})
        status = self._machine_status(machine, "Provisioning", "WaitingForInfrastructure", "", now)
        self.client.update_status(machine, status)

    def _infrastructure_of(self, machine: Object) -> Object:
        """Return a copy of the machine template's spec; the default machine if the template does not exist."""
        namespace = machine["metadata"]["namespace"]
        try:
            owner = machine["metadata"]["ownerReferences"][0]["name"]
            machine_set = self.store.get(self.resource("machinesets"), namespace, owner)
            name = machine_set["spec"]["template"]["spec"]["infrastructureRef"]["name"]
            template = self.store.get(self._aws_template, namespace, name)
        except (ApiError, KeyError):
            return {"instanceType": self.cloud.machine_type}
        return dict(template["spec"]["template"]["spec"])

    def _aws_machine(self, machine: Object) -> Object | None:
        metadata = machine["metadata"]
        return self.client.find(self._aws, metadata["namespace"], metadata["name"])

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Report the running instance on AWSMachine and Machine."""
        aws = self._aws_machine(machine)
        assert aws is not None
        provider = {"providerID": provider_id(instance)}
        aws = self.client.patch(aws, {"spec": {**provider, "instanceID": instance.id}})
        conditions = [condition(kind, "True", now) for kind in ("Ready", "InstanceReady")]
        self.client.update_status(aws, {"ready": True, "instanceState": "running", "conditions": conditions})
        self.client.patch(machine, {"spec": provider})
        self.client.update_status(machine, self._machine_status(machine, "Provisioned", None, "", now))

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        """Report the refused launch on both objects and in an event. Return the time of the next try."""
        aws = self._aws_machine(machine)
        assert aws is not None
        cause, reason = f"failed to run instance: {error}", "InstanceProvisionFailed"
        message = f"failed to create AWSMachine instance: {cause}"
        conditions = [
            condition(kind, "False", now, reason=reason, severity="Error", message=message)
            for kind in ("Ready", "InstanceReady")
        ]
        self.client.update_status(aws, {"ready": False, "conditions": conditions})
        self.client.record_event(aws, "FailedCreate", f"Failed to create instance: {cause}", now)
        self.client.update_status(machine, self._machine_status(machine, "Provisioning", reason, message, now))
        return now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        """Report the node, and set the phase to Running."""
        status = self._machine_status(machine, "Running", None, "", now)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        old = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        status["nodeRef"] = {"name": name} if self._new else old
        status["conditions"].append(condition("NodeHealthy", "True", now))
        self.client.update_status(machine, status)

    def on_deleted(self, machine: Object) -> None:
        """Delete the AWSMachine."""
        if aws := self._aws_machine(machine):
            self.client.delete(aws)

    def _machine_status(self, machine: Object, phase: str, reason: str | None, message: str, now: datetime) -> Object:
        """Return the status of a machine. `reason`: why the infrastructure is not ready; None if it is ready."""
        ready = reason is None
        severity = "" if ready or self._new else ("Error" if message else "Info")  # v1beta2 has no severity
        options: dict[str, Any] = {"reason": reason or "", "severity": severity, "message": message}
        conditions = [
            condition(kind, str(ready), now, **options, always_reason=self._new)
            for kind in ("Ready", "InfrastructureReady")
        ]
        generation = machine["metadata"]["generation"]
        status: Object = {"phase": phase, "conditions": conditions, "observedGeneration": generation}
        if self._new:
            return status | {"initialization": {"infrastructureProvisioned": ready, "bootstrapDataSecretCreated": True}}
        return status | {"infrastructureReady": ready, "bootstrapReady": True}

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        """Return the status of a set, with the fields of the server's API version."""
        ready = sum(1 for machine in machines if self.has_node(machine) and not is_deleting(machine))
        labels = machine_set["spec"].get("selector", {}).get("matchLabels") or {}
        status: Object = {
            "replicas": len(machines),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": machine_set["metadata"]["generation"],
            "selector": as_selector(labels),
        }
        return status | ({"upToDateReplicas": len(machines)} if self._new else {"fullyLabeledReplicas": len(machines)})

    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        """Return the status of a deployment, with the fields of the server's API version."""
        totals = self.totals(deployment, sets)
        phase = "Running"
        if min(totals.replicas, totals.available) < totals.desired:
            phase = "ScalingUp"
        elif totals.replicas > totals.desired:
            phase = "ScalingDown"
        status: Object = {
            "replicas": totals.replicas,
            "readyReplicas": totals.ready,
            "availableReplicas": totals.available,
            "observedGeneration": deployment["metadata"]["generation"],
            "phase": phase,
            "selector": as_selector(deployment["spec"].get("selector", {}).get("matchLabels") or {}),
            "conditions": self._deployment_conditions(deployment, totals, now),
        }
        if self._new:
            return status | {"upToDateReplicas": totals.updated}
        missing = max(0, totals.desired - totals.available)
        return status | {"updatedReplicas": totals.updated, "unavailableReplicas": missing}

    def _deployment_conditions(self, deployment: Object, totals: Totals, now: datetime) -> list[Object]:
        states = {"Available": totals.available >= totals.desired}
        if self._new:
            states |= {
                "MachinesReady": totals.ready >= totals.desired,
                "MachinesUpToDate": totals.updated == totals.replicas,
                "RollingOut": totals.updated != totals.replicas,
                "ScalingUp": totals.replicas < totals.desired,
                "ScalingDown": totals.replicas > totals.desired,
            }
        else:
            states |= {"Ready": totals.available >= totals.desired, "MachineSetReady": totals.ready >= totals.desired}
        before = conditions_of(deployment)
        conditions = []
        for kind, true in states.items():
            entry = condition(kind, str(true), now, reason=kind if true else f"Not{kind}", always_reason=self._new)
            if before.get(kind, {}).get("status") == entry["status"]:
                entry = before[kind]  # keeps lastTransitionTime
            conditions.append(entry)
        return conditions


class HyperShiftControllers(ClusterAPIControllers):
    """A management cluster of HyperShift: Cluster API below its NodePools."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operator = NodePoolOperator(self.store)

    def reconcile_owners(self, now: datetime) -> None:
        """Run the NodePool operator, then the topology controller."""
        self.operator.step(now)
        super().reconcile_owners(now)

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """Return the arguments of the hosted cluster's autoscaler; None while it is scaled down."""
        return self.operator.autoscaler_arguments()

    def pool_of(self, item: Object) -> str | None:
        """Return the pool's name in the label that users set on all NodePools of a pool."""
        namespace, _, name = annotations_of(item).get(NODE_POOL, "").partition("/")
        return labels_of(self.client.find(NODE_POOLS, namespace, name) or {}).get(USERS_POOL_LABEL)

    def zone_of(self, spec: Object) -> str:
        """Return the zone by its name, or by the subnet of the machine or of its template."""
        if zone := super().zone_of(spec):
            return zone
        reference = spec["infrastructureRef"]
        resource = self._aws if reference["kind"] == "AWSMachine" else self._aws_template
        item = self.client.find(resource, reference["namespace"], reference["name"])
        if item is None:
            return ""
        machine = item["spec"]["template"]["spec"] if resource == self._aws_template else item["spec"]
        return self.cloud.zone_of_subnet((machine.get("subnet") or {}).get("id", ""))
