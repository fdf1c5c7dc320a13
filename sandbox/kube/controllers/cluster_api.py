"""Cluster API core with its AWS provider, with the topology controller and with HyperShift's operator above it."""

# ruff: noqa: ARG002 - a hook takes what some flavour needs

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.deployments import DeploymentControllers, Totals
from sandbox.kube.controllers.machine_pools import POOL_NAME, MachinePools
from sandbox.kube.controllers.node_pools import NODE_POOL, NODE_POOLS, NodePoolOperator
from sandbox.kube.controllers.objects import (
    USERS_POOL_LABEL,
    annotations_of,
    as_selector,
    condition,
    controller_reference,
    is_deleting,
    labels_of,
    provider_id,
    seniority,
    status_of,
    template_hash,
)
from sandbox.kube.controllers.topology import TopologyController
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object

UPDATING = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress"
_NODES = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
PENDING_HOOKS = "runtime.cluster.x-k8s.io/pending-hooks"


def cluster_api_deletion_order(machines: Iterable[Object], order: str, now: datetime) -> list[Object]:
    """Cluster API's: deleting, marked (any value), being updated in place, unhealthy, then the set's order and name."""

    def priority(machine: Object) -> float:
        if is_deleting(machine):
            return 100.0
        if "cluster.x-k8s.io/delete-machine" in annotations_of(machine):
            return 80.0
        # An update in place begins with the annotation and ends with the hook.
        if UPDATING in annotations_of(machine) or "UpdateMachine" in annotations_of(machine).get(
            PENDING_HOOKS, ""
        ).split(","):
            return 75.0
        if not _cluster_api_healthy(machine):
            return 50.0
        by_age = 50.0 * seniority(machine, now)
        return {"Oldest": by_age, "Newest": 50.0 - by_age}.get(order, 20.0)

    return sorted(machines, key=lambda machine: (-priority(machine), machine["metadata"]["name"]))


def _cluster_api_healthy(machine: Object) -> bool:
    status = status_of(machine)
    if not status.get("nodeRef"):
        return False
    states = {item["type"]: item["status"] for item in status.get("conditions") or ()}
    return states.get("NodeHealthy") != "False" and states.get("HealthCheckSucceeded") != "False"


class ClusterAPIControllers(DeploymentControllers):
    """Cluster API core with its AWS provider, and the topology controller of ClusterClass."""

    flavour = "cluster-api"
    group = "cluster.x-k8s.io"
    manager = "manager"
    finalizer = "machine.cluster.x-k8s.io"
    revision = "machinedeployment.clusters.x-k8s.io/revision"
    counts_deleting = True
    _aws = "awsmachines.infrastructure.cluster.x-k8s.io"
    _aws_template = "awsmachinetemplates.infrastructure.cluster.x-k8s.io"
    _aws_version = "infrastructure.cluster.x-k8s.io/v1beta2"

    def step(self, now: datetime) -> None:
        super().step(now)
        self.machine_pools.step(now)

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        if POOL_NAME not in machine["metadata"].get("labels", {}):  # its instance came first
            super()._reconcile_machine(machine, now)

    @property
    def _new(self) -> bool:
        """Whether objects are stored, and so written, in v1beta2's shape."""
        return self.store.resource(self.resource("machines")).storage == "v1beta2"

    def is_paused(self, item: Object) -> bool:
        if "cluster.x-k8s.io/paused" in annotations_of(item):
            return True
        try:
            name = item["spec"]["clusterName"]
            cluster = self.store.get(self.resource("clusters"), item["metadata"]["namespace"], name)
        except ApiError:
            return False
        return bool(cluster.get("spec", {}).get("paused"))

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.topology = TopologyController(self.store)
        self.machine_pools = MachinePools(self, self._create_node, is_new=self._new)

    def reconcile_owners(self, now: datetime) -> None:
        self.topology.step()

    def digest_of(self, template: Object) -> str:
        """Annotations of machines are brought to those that run, without a rollout."""
        metadata = {key: value for key, value in (template.get("metadata") or {}).items() if key != "annotations"}
        return template_hash({**template, "metadata": metadata} if annotations_of(template) else template)

    def pool_of(self, item: Object) -> str | None:
        return labels_of(item).get(USERS_POOL_LABEL)

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        super()._reconcile_deployment(deployment, sets)
        notes, digest = annotations_of(deployment["spec"]["template"]), self.digest_of(deployment["spec"]["template"])
        for machine_set in sets:
            current = annotations_of(machine_set["spec"]["template"])
            if machine_set["metadata"]["labels"][self.hash_label] == digest and current != notes:
                patch = {"metadata": {"annotations": dict.fromkeys(current) | notes}}
                self.patch("machinesets", machine_set, {"spec": {"template": patch}})

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        super()._reconcile_set(machine_set, machines, now)
        notes = annotations_of(machine_set["spec"].get("template") or {})
        for machine in machines:
            if not (notes.items() <= annotations_of(machine).items() or is_deleting(machine)):
                self.patch("machines", machine, {"metadata": {"annotations": notes}})

    def machine_set_of(self, deployment: Object, digest: str) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        labels = {
            "cluster.x-k8s.io/cluster-name": spec["clusterName"],
            "cluster.x-k8s.io/deployment-name": metadata["name"],
            self.hash_label: digest,
        }
        template = json.loads(json.dumps(spec["template"]))
        template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
        return {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "clusterName": spec["clusterName"],
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }

    def machine_of(self, machine_set: Object, name: str) -> Object:
        template = machine_set["spec"]["template"]
        reference = dict(template["spec"].get("infrastructureRef") or {}) | {"kind": "AWSMachine", "name": name}
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": {
                    **template.get("metadata", {}).get("labels", {}),
                    "cluster.x-k8s.io/set-name": machine_set["metadata"]["name"],
                },
                "annotations": annotations_of(template),
            },
            "spec": {
                **template["spec"],
                "clusterName": machine_set["spec"]["clusterName"],
                "infrastructureRef": reference,
            },
        }

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Of a machine's labels, those that Cluster API takes care of on nodes (machine_types.go)."""
        return {key: text for key, text in labels_of(machine).items() if key.split("/")[0].endswith(_NODES)}, []

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        spec = machine_set["spec"]
        order = (spec.get("deletion") or {}).get("order") or spec.get("deletePolicy") or "Random"
        return cluster_api_deletion_order(machines, order, now)

    def zone_of(self, spec: Object) -> str:
        return str(spec.get("failureDomain", ""))

    def on_created(self, machine: Object, now: datetime) -> None:
        self.store.create(
            self._aws,
            {
                "metadata": {
                    "name": machine["metadata"]["name"],
                    "namespace": machine["metadata"]["namespace"],
                    "labels": machine["metadata"]["labels"],
                    "ownerReferences": [controller_reference(machine)],
                },
                "spec": self._infrastructure_of(machine),
            },
            manager=self.manager,
        )
        self.write_status(machine, self._machine_status(machine, "Provisioning", "WaitingForInfrastructure", "", now))

    def _infrastructure_of(self, machine: Object) -> Object:
        """A copy of the machine template's spec; the usual machine where the template is not there."""
        namespace = machine["metadata"]["namespace"]
        try:
            owner = machine["metadata"]["ownerReferences"][0]["name"]
            machine_set = self.store.get(self.resource("machinesets"), namespace, owner)
            name = machine_set["spec"]["template"]["spec"]["infrastructureRef"]["name"]
            template = self.store.get(self._aws_template, namespace, name)
        except (ApiError, KeyError):
            return {"instanceType": self.cloud.machine_type}
        return dict(template["spec"]["template"]["spec"])

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        metadata = machine["metadata"]
        aws = self.store.patch(
            self._aws,
            metadata["namespace"],
            metadata["name"],
            {"spec": {"providerID": provider_id(instance), "instanceID": instance.id}},
            manager=self.manager,
        )
        ready = condition("InstanceReady", "True", now)
        self.write_status(
            aws,
            {"ready": True, "instanceState": "running", "conditions": [condition("Ready", "True", now), ready]},
            resource=self._aws,
        )
        self.patch("machines", machine, {"spec": {"providerID": provider_id(instance)}})
        self.write_status(machine, self._machine_status(machine, "Provisioned", None, "", now))

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        metadata = machine["metadata"]
        aws = self.store.get(self._aws, metadata["namespace"], metadata["name"])
        cause = f"failed to run instance: {error}"
        message = f"failed to create AWSMachine instance: {cause}"
        conditions = [
            condition(kind, "False", now, reason="InstanceProvisionFailed", severity="Error", message=message)
            for kind in ("Ready", "InstanceReady")
        ]
        self.write_status(aws, {"ready": False, "conditions": conditions}, resource=self._aws)
        self.record_event(
            aws, "AWSMachine", self._aws_version, "FailedCreate", f"Failed to create instance: {cause}", now
        )
        status = self._machine_status(machine, "Provisioning", "InstanceProvisionFailed", message, now)
        self.write_status(machine, status)
        return now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        status = self._machine_status(machine, "Running", None, "", now)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        status["nodeRef"] = (
            {"name": name} if self._new else {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        )
        status["conditions"].append(condition("NodeHealthy", "True", now))
        self.write_status(machine, status)

    def on_deleted(self, machine: Object) -> None:
        try:
            self.store.delete(self._aws, machine["metadata"]["namespace"], machine["metadata"]["name"])
        except ApiError as error:
            if error.code != 404:
                raise

    def _machine_status(self, machine: Object, phase: str, reason: str | None, message: str, now: datetime) -> Object:
        """`reason` says why the infrastructure is not ready; None when it is."""
        ready = reason is None
        severity = "" if ready else ("Error" if message else "Info")
        conditions = [
            condition(
                kind,
                "True" if ready else "False",
                now,
                reason=reason or "",
                # v1beta2's conditions know no severity
                severity="" if self._new else severity,
                message=message,
                always_reason=self._new,
            )
            for kind in ("Ready", "InfrastructureReady")
        ]
        status: Object = {
            "phase": phase,
            "conditions": conditions,
            "observedGeneration": machine["metadata"]["generation"],
        }
        if self._new:
            return status | {"initialization": {"infrastructureProvisioned": ready, "bootstrapDataSecretCreated": True}}
        return status | {"infrastructureReady": ready, "bootstrapReady": True}

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
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
        totals = self.totals(deployment, sets)
        phase = "Running"
        if totals.replicas < totals.wanted or totals.available < totals.wanted:
            phase = "ScalingUp"
        elif totals.replicas > totals.wanted:
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
        missing = max(0, totals.wanted - totals.available)
        return status | {"updatedReplicas": totals.updated, "unavailableReplicas": missing}

    def _deployment_conditions(self, deployment: Object, totals: Totals, now: datetime) -> list[Object]:
        states = {"Available": totals.available >= totals.wanted}
        if self._new:
            states |= {
                "MachinesReady": totals.ready >= totals.wanted,
                "MachinesUpToDate": totals.updated == totals.replicas,
                "RollingOut": totals.updated != totals.replicas,
                "ScalingUp": totals.replicas < totals.wanted,
                "ScalingDown": totals.replicas > totals.wanted,
            }
        else:
            states |= {"Ready": totals.available >= totals.wanted, "MachineSetReady": totals.ready >= totals.wanted}
        before = {item["type"]: item for item in status_of(deployment).get("conditions") or ()}
        conditions = []
        for kind, true in states.items():
            entry = condition(kind, str(true), now, reason=kind if true else f"Not{kind}", always_reason=self._new)
            if before.get(kind, {}).get("status") == entry["status"]:
                entry = before[kind]  # the time of the last change stays
            conditions.append(entry)
        return conditions


class HyperShiftControllers(ClusterAPIControllers):
    """A management cluster of HyperShift: Cluster API below its NodePools."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operator = NodePoolOperator(self.store)

    def reconcile_owners(self, now: datetime) -> None:
        self.operator.step(now)
        super().reconcile_owners(now)

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        return self.operator.autoscaler_arguments()

    def pool_of(self, item: Object) -> str | None:
        """NodePools are told apart by zone; what they share is a label of their users."""
        namespace, _, name = annotations_of(item).get(NODE_POOL, "").partition("/")
        try:
            pool = self.store.get(NODE_POOLS, namespace, name)
        except ApiError:
            return None
        return labels_of(pool).get(USERS_POOL_LABEL)

    def zone_of(self, spec: Object) -> str:
        """By name, or by the subnet of the machine or of its template."""
        if zone := super().zone_of(spec):
            return zone
        reference = spec["infrastructureRef"]
        resource = self._aws if reference["kind"] == "AWSMachine" else self._aws_template
        try:
            item = self.store.get(resource, reference["namespace"], reference["name"])
        except ApiError:
            return ""
        found = item["spec"]["template"]["spec"] if resource == self._aws_template else item["spec"]
        return self.cloud.zone_of_subnet((found.get("subnet") or {}).get("id", ""))
