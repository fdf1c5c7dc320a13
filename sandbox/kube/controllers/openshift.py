"""OpenShift's machine API on AWS, and the operator whose MachineAutoscalers own the bounds."""

# ruff: noqa: ARG002 - a hook takes what some flavour needs

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.cluster_autoscaler_operator import ClusterAutoscalerOperator
from sandbox.kube.controllers.life import MachineControllers
from sandbox.kube.controllers.migration import Migration
from sandbox.kube.controllers.objects import (
    annotations_of,
    condition,
    is_deleting,
    labels_of,
    positive,
    provider_id,
    seniority,
    status_of,
)
from sandbox.kube.schema import Object
from sandbox.kube.store import rfc3339


def openshift_deletion_order(machines: Iterable[Object], policy: str, now: datetime, *, seed: int) -> list[Object]:
    """OpenShift: deleting, marked (a value that is not empty) or failed, without a node, then the set's policy.

    The older mark `cluster-api-delete-machine` counts under policy Oldest only. Ties are random there; here a seed
    settles them.
    """

    def priority(machine: Object) -> float:
        status = status_of(machine)
        notes = annotations_of(machine)
        marked = bool(notes.get("machine.openshift.io/delete-machine"))
        failed = "errorReason" in status or "errorMessage" in status
        by_age = 100.0 * seniority(machine, now)
        if is_deleting(machine):
            return 100.0
        if policy == "Oldest":
            old_mark = bool(notes.get("machine.openshift.io/cluster-api-delete-machine"))
            return 100.0 if marked or old_mark or failed else by_age
        if policy == "Newest":
            return 100.0 if marked or failed else 100.0 - by_age
        if marked or failed:
            return 50.0
        return 20.0 if status.get("nodeRef") else 40.0

    shuffled = sorted(machines, key=lambda machine: str(machine["metadata"]["name"]))
    random.Random(seed).shuffle(shuffled)
    return sorted(shuffled, key=priority, reverse=True)


class OpenShiftControllers(MachineControllers):
    """OpenShift's machine API on AWS, and the operator whose MachineAutoscalers own the bounds."""

    flavour = "openshift"
    group = "machine.openshift.io"
    manager = "machine-api-operator"
    finalizer = "machine.machine.openshift.io"
    _prefix = "machine.openshift.io"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operator = ClusterAutoscalerOperator(self.store)
        self._migration: Migration | None = None

    def begin_migration(self) -> None:
        """From here on each MachineSet has a twin in Cluster API, and may move there."""
        self._migration = Migration(self.store)

    def step(self, now: datetime) -> None:
        super().step(now)
        if self._migration is not None:
            self._migration.step()

    def reconcile_owners(self, now: datetime) -> None:
        self.operator.step()

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        return self.operator.autoscaler_arguments()

    def pool_of(self, item: Object) -> str | None:
        """Where no label of ours says it: the role of the machines, as the installer names it."""
        labels = (item["spec"].get("template", {}).get("metadata") or {}).get("labels") or {}
        return (
            None if "evenkeel.dev/pool" in labels_of(item) else labels.get(f"{self._prefix}/cluster-api-machine-role")
        )

    def machine_of(self, machine_set: Object, name: str) -> Object:
        template = machine_set["spec"].get("template") or {}
        zone = self.zone_of(template.get("spec") or {})
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": {
                    **(template.get("metadata") or {}).get("labels", {}),
                    f"{self._prefix}/zone": zone,
                    f"{self._prefix}/region": zone[:-1],
                    f"{self._prefix}/instance-type": self.cloud.machine_type,
                },
            },
            "spec": template.get("spec") or {},
        }

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        return labels_of(machine["spec"]), machine["spec"].get("taints") or []

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        return openshift_deletion_order(
            machines, machine_set["spec"].get("deletePolicy", "Random"), now, seed=self._seed
        )

    def is_paused(self, item: Object) -> bool:
        if self._migration is not None:
            return status_of(item).get("authoritativeAPI") == "Migrating"
        return str(item["spec"].get("authoritativeAPI", "MachineAPI")) != "MachineAPI"

    def zone_of(self, spec: Object) -> str:
        value = (spec.get("providerSpec") or {}).get("value") or {}
        return str((value.get("placement") or {}).get("availabilityZone", ""))

    def on_created(self, machine: Object, now: datetime) -> None:
        self.write_status(
            machine,
            {
                "phase": "Provisioning",
                "lastUpdated": rfc3339(now),
                "conditions": [
                    condition(
                        "InstanceExists",
                        "False",
                        now,
                        reason="InstanceNotCreated",
                        severity="Warning",
                        message="Instance has not been created",
                    )
                ],
            },
        )

    def _creation(self, status: str, reason: str, message: str, now: datetime) -> Object:
        return {
            "type": "MachineCreation",
            "status": status,
            "reason": reason,
            "message": message,
            "lastProbeTime": rfc3339(now),
            "lastTransitionTime": rfc3339(now),
        }

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        self.patch("machines", machine, {"spec": {"providerID": provider_id(instance)}})
        self.write_status(
            machine,
            {
                "phase": "Provisioned",
                "lastUpdated": rfc3339(now),
                "conditions": [condition("InstanceExists", "True", now)],
                "providerStatus": {
                    "instanceId": instance.id,
                    "instanceState": "running",
                    "conditions": [
                        self._creation("True", "MachineCreationSucceeded", "Machine successfully created", now)
                    ],
                },
            },
        )

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        client_fault = 400 <= error.status < 500
        cause = (
            f"error launching instance: {error.message}" if client_fault else f"error creating EC2 instance: {error}"
        )
        metadata = machine["metadata"]
        text = f"{metadata['name']}: reconciler failed to Create machine: failed to launch instance: {cause}"
        known = status_of(machine)
        status: Object = {
            **known,
            "phase": "Failed" if client_fault else "Provisioning",
            "lastUpdated": rfc3339(now),
            "providerStatus": {"conditions": [self._creation("False", "MachineCreationFailed", cause, now)]},
        }
        if client_fault:
            status |= {"errorReason": "InvalidConfiguration", "errorMessage": cause}
        self.write_status(machine, status)
        self.record_event(machine, "Machine", "machine.openshift.io/v1beta1", "FailedCreate", text, now)
        # a failed machine is never tried again; someone (or a health check) has to delete it
        return None if client_fault else now + self.timing.infrastructure_retry

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        status = {**machine["status"], "phase": "Running", "lastUpdated": rfc3339(now)}
        status["nodeRef"] = {"kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
        self.write_status(machine, status)

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        ready = sum(1 for machine in machines if self.has_node(machine) and not is_deleting(machine))
        active = sum(1 for machine in machines if not is_deleting(machine))
        return {
            "replicas": active,
            **positive(fullyLabeledReplicas=active, readyReplicas=ready, availableReplicas=ready),
            "observedGeneration": machine_set["metadata"]["generation"],
            **{key: value for key, value in status_of(machine_set).items() if key == "authoritativeAPI"},
        }
