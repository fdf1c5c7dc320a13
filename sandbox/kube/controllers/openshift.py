"""OpenShift's machine API on AWS, and the operator whose MachineAutoscalers own the bounds."""

# ruff: noqa: ARG002 - a hook has the arguments that some flavour needs

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.cluster_autoscaler_operator import ClusterAutoscalerOperator
from sandbox.kube.controllers.machine_controller import MachineAPI, MachineControllers
from sandbox.kube.controllers.migration import Migration
from sandbox.kube.controllers.objects import (
    age_priority,
    annotations_of,
    condition,
    is_deleting,
    labels_of,
    positive,
    provider_id,
    status_of,
)
from sandbox.kube.schema import Object
from sandbox.kube.store import rfc3339


def openshift_deletion_order(machines: Iterable[Object], policy: str, now: datetime, *, seed: int) -> list[Object]:
    """Return machines in OpenShift's order: being deleted, marked or failed, without a node, then the set's policy.

    The older mark `cluster-api-delete-machine` has an effect only with the policy Oldest. OpenShift breaks ties at
    random; here, `seed` breaks them.
    """

    def priority(machine: Object) -> float:
        status, annotations = status_of(machine), annotations_of(machine)
        marks = ["machine.openshift.io/delete-machine"]
        if policy == "Oldest":
            marks.append("machine.openshift.io/cluster-api-delete-machine")
        first = any(map(annotations.get, marks)) or "errorReason" in status or "errorMessage" in status
        by_age = 100.0 * age_priority(machine, now)
        if is_deleting(machine):
            return 100.0
        if policy in ("Oldest", "Newest"):
            return 100.0 if first else by_age if policy == "Oldest" else 100.0 - by_age
        return 50.0 if first else 20.0 if status.get("nodeRef") else 40.0

    shuffled = sorted(machines, key=lambda machine: str(machine["metadata"]["name"]))
    random.Random(seed).shuffle(shuffled)
    return sorted(shuffled, key=priority, reverse=True)


class OpenShiftControllers(MachineControllers):
    """OpenShift's machine API on AWS, and the operator whose MachineAutoscalers own the bounds."""

    flavour = "openshift"
    api = MachineAPI(
        scalables="machinesets.machine.openshift.io",
        machines="machines.machine.openshift.io",
        prefix="machine.openshift.io",
        mark=lambda now: {"machine.openshift.io/delete-machine": str(now)},
    )
    group = "machine.openshift.io"
    manager = "machine-api-operator"
    finalizer = "machine.machine.openshift.io"
    _prefix = "machine.openshift.io"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operator = ClusterAutoscalerOperator(self.store)
        self._migration: Migration | None = None

    def start_migration(self) -> None:
        """Start the migration controllers: each MachineSet gets a copy in Cluster API, and may migrate to it."""
        self._migration = Migration(self.store)

    def step(self, now: datetime) -> None:
        """Reconcile as every machine API does, then run the migration controllers if they have been started."""
        super().step(now)
        if self._migration is not None:
            self._migration.step()

    def reconcile_owners(self, now: datetime) -> None:
        """Run the operator of cluster-autoscaler."""
        self.operator.step()

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """Return the autoscaler's arguments; None while it does not run."""
        return self.operator.autoscaler_arguments()

    def pool_of(self, item: Object) -> str | None:
        """Return the role of the machines, which the installer names after the pool; None with Evenkeel's label."""
        if "evenkeel.dev/pool" in labels_of(item):
            return None
        return labels_of(item["spec"].get("template", {})).get(f"{self._prefix}/cluster-api-machine-role")

    def machine_of(self, machine_set: Object, name: str) -> Object:
        """Return the machine that a set creates, with labels for zone, region and instance type."""
        template = machine_set["spec"].get("template") or {}
        spec = template.get("spec") or {}
        zone = self.zone_of(spec)
        labels = {
            **labels_of(template),
            f"{self._prefix}/zone": zone,
            f"{self._prefix}/region": zone[:-1],
            f"{self._prefix}/instance-type": self.cloud.machine_type,
        }
        metadata = {"name": name, "namespace": machine_set["metadata"]["namespace"], "labels": labels}
        return {"metadata": metadata, "spec": spec}

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Return the labels and the taints of the machine's spec."""
        return labels_of(machine["spec"]), machine["spec"].get("taints") or []

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        """Return the machines in OpenShift's order of deletion."""
        return openshift_deletion_order(
            machines, machine_set["spec"].get("deletePolicy", "Random"), now, seed=self._seed
        )

    def is_paused(self, item: Object) -> bool:
        """Return True during a migration or, without migration controllers, if Machine API is not authoritative."""
        if self._migration is not None:
            return status_of(item).get("authoritativeAPI") == "Migrating"
        return str(item["spec"].get("authoritativeAPI", "MachineAPI")) != "MachineAPI"

    def zone_of(self, spec: Object) -> str:
        """Return the availability zone of the provider's spec, or an empty text."""
        value = (spec.get("providerSpec") or {}).get("value") or {}
        return str((value.get("placement") or {}).get("availabilityZone", ""))

    def _update_machine(self, machine: Object, now: datetime, phase: str, **status: Any) -> None:
        self.client.update_status(machine, {**status, "phase": phase, "lastUpdated": rfc3339(now)})

    def on_created(self, machine: Object, now: datetime) -> None:
        """Set the phase to Provisioning, and report that no instance exists."""
        message = "Instance has not been created"
        options = {"reason": "InstanceNotCreated", "severity": "Warning", "message": message}
        conditions = [condition("InstanceExists", "False", now, **options)]
        self._update_machine(machine, now, "Provisioning", conditions=conditions)

    def _provider_status(self, status: str, message: str, now: datetime) -> Object:
        reason = "MachineCreationSucceeded" if status == "True" else "MachineCreationFailed"
        creation = condition("MachineCreation", status, now, reason=reason, message=message, always_reason=True)
        return {"conditions": [creation | {"lastProbeTime": rfc3339(now)}]}

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Report the running instance, and set the phase to Provisioned."""
        self.client.patch(machine, {"spec": {"providerID": provider_id(instance)}})
        provider = {"instanceId": instance.id, "instanceState": "running"}
        provider |= self._provider_status("True", "Machine successfully created", now)
        conditions = [condition("InstanceExists", "True", now)]
        self._update_machine(machine, now, "Provisioned", conditions=conditions, providerStatus=provider)

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        """Report the refused launch. Return the time of the next try, or None if the machine has failed."""
        is_client_error = 400 <= error.status < 500
        message = f"error creating EC2 instance: {error}"
        if is_client_error:
            message = f"error launching instance: {error.message}"
        phase = "Failed" if is_client_error else "Provisioning"
        status = {**status_of(machine), "providerStatus": self._provider_status("False", message, now)}
        if is_client_error:
            status |= {"errorReason": "InvalidConfiguration", "errorMessage": message}
        self._update_machine(machine, now, **{**status, "phase": phase})
        name = machine["metadata"]["name"]
        text = f"{name}: reconciler failed to Create machine: failed to launch instance: {message}"
        self.client.record_event(machine, "FailedCreate", text, now)
        # The controller never retries a failed machine; a health check or a person has to delete it.
        return None if is_client_error else now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        """Report the node, and set the phase to Running."""
        reference = {"kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        status = {**machine["status"], "nodeRef": reference}
        self._update_machine(machine, now, **{**status, "phase": "Running"})

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        """Return the status of a set, whose replicas exclude machines that are being deleted."""
        ready = sum(1 for machine in machines if self.has_node(machine) and not is_deleting(machine))
        active = sum(1 for machine in machines if not is_deleting(machine))
        return {
            "replicas": active,
            **positive(fullyLabeledReplicas=active, readyReplicas=ready, availableReplicas=ready),
            "observedGeneration": machine_set["metadata"]["generation"],
            **{key: value for key, value in status_of(machine_set).items() if key == "authoritativeAPI"},
        }
