"""MachineDeployments, which two of the three flavours have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from sandbox.kube.controllers.machine_controller import MachineControllers
from sandbox.kube.controllers.objects import annotations_of, controller_reference, is_deleting, status_of, template_hash
from sandbox.kube.schema import Object


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The machines of a deployment: its replicas, and the sums of its sets' statuses."""

    desired: int
    replicas: int
    ready: int
    available: int
    updated: int


class DeploymentControllers(MachineControllers):
    """The controllers of flavours with MachineDeployments. There is one MachineSet per deployment and template.

    A new template rolls out with the default strategy: maxSurge 1, maxUnavailable 0.
    """

    hash_label: ClassVar[str] = "machine-template-hash"
    revision: ClassVar[str]

    def _reconcile_deployments(self) -> None:
        sets = self.by_owner("machinesets")
        for deployment in self.objects("machinedeployments"):
            if not (self.is_paused(deployment) or is_deleting(deployment)):
                self._reconcile_deployment(deployment, sets.get(deployment["metadata"]["uid"], []))

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        desired = deployment["spec"].get("replicas", 0)
        digest = self.digest_of(deployment["spec"]["template"])
        current = next((item for item in sets if item["metadata"]["labels"][self.hash_label] == digest), None)
        old = [item for item in sets if item is not current and item["spec"].get("replicas")]
        ready = status_of(current).get("readyReplicas", 0) if current else 0
        replicas = min(desired, ready + 1) if old else desired
        if current is None:
            latest = max((int(annotations_of(item)[self.revision]) for item in sets), default=0)
            self.client.create(self.resource("machinesets"), self._new_set(deployment, digest, latest + 1, replicas))
        elif current["spec"].get("replicas") != replicas:
            self.client.patch(current, {"spec": {"replicas": replicas}})
        left = max(0, desired - ready)
        for item in old:
            kept = min(item["spec"]["replicas"], left)
            left -= kept
            if kept != item["spec"]["replicas"]:
                self.client.patch(item, {"spec": {"replicas": kept}})

    def _new_set(self, deployment: Object, digest: str, revision: int, replicas: int) -> Object:
        metadata, (labels, spec) = deployment["metadata"], self.machine_set_of(deployment, digest)
        return {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [controller_reference(deployment)],
                "annotations": {self.revision: str(revision)},
            },
            "spec": {"selector": {"matchLabels": labels}, "replicas": replicas, **spec},
        }

    def digest_of(self, template: Object) -> str:
        """Return a digest of a template; a deployment rolls out when the digest changes."""
        return template_hash(template)

    @abstractmethod
    def machine_set_of(self, deployment: Object, digest: str) -> tuple[dict[str, str], Object]:
        """Return the labels of the set that a deployment creates, and the other fields of the set's spec."""

    @abstractmethod
    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        """Return the status of a deployment with these sets."""

    def totals(self, deployment: Object, sets: Sequence[Object]) -> Totals:
        """Return the sums of the statuses of a deployment's sets."""
        digest = self.digest_of(deployment["spec"]["template"])
        current = [item for item in sets if item["metadata"]["labels"][self.hash_label] == digest]
        return Totals(
            desired=deployment["spec"].get("replicas", 0),
            replicas=_sum(sets, "replicas"),
            ready=_sum(sets, "readyReplicas"),
            available=_sum(sets, "availableReplicas"),
            updated=_sum(current, "replicas"),
        )

    def _update_statuses(self, now: datetime) -> None:
        super()._update_statuses(now)
        sets = self.by_owner("machinesets")
        for deployment in self.objects("machinedeployments"):
            status = self.deployment_status(deployment, sets.get(deployment["metadata"]["uid"], []), now)
            self.client.update_status(deployment, status)


def _sum(sets: Sequence[Object], field: str) -> int:
    return sum(status_of(machine_set).get(field, 0) for machine_set in sets)
