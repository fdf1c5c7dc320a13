"""MachineDeployments, which two of the three flavours have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from sandbox.kube.controllers.life import MachineControllers
from sandbox.kube.controllers.objects import annotations_of, is_deleting, status_of, template_hash
from sandbox.kube.schema import Object


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Machines of a deployment: wanted, and counted in the statuses of its sets."""

    wanted: int
    replicas: int
    ready: int
    available: int
    updated: int


class DeploymentControllers(MachineControllers):
    """Flavours with MachineDeployments: one MachineSet per deployment and template.

    A new template rolls out as the default strategy does: one machine more than wanted, none less.
    """

    hash_label: ClassVar[str] = "machine-template-hash"
    revision: ClassVar[str]

    def _reconcile_deployments(self) -> None:
        sets = self.by_owner("machinesets")
        for deployment in self.objects("machinedeployments"):
            if not (self.is_paused(deployment) or is_deleting(deployment)):
                self._reconcile_deployment(deployment, sets.get(deployment["metadata"]["uid"], []))

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        wanted = deployment["spec"].get("replicas", 0)
        digest = self.digest_of(deployment["spec"]["template"])
        current = next((item for item in sets if item["metadata"]["labels"][self.hash_label] == digest), None)
        old = [item for item in sets if item is not current and item["spec"].get("replicas")]
        ready = status_of(current).get("readyReplicas", 0) if current else 0
        share = min(wanted, ready + 1) if old else wanted
        if current is None:
            made = self.machine_set_of(deployment, digest)
            latest = max((int(annotations_of(item)[self.revision]) for item in sets), default=0)
            made["metadata"]["annotations"] = {self.revision: str(latest + 1)}
            made["spec"]["replicas"] = share
            self.create("machinesets", made)
        elif current["spec"].get("replicas") != share:
            self.patch("machinesets", current, {"spec": {"replicas": share}})
        left = max(0, wanted - ready)
        for item in old:
            kept = min(item["spec"]["replicas"], left)
            left -= kept
            if kept != item["spec"]["replicas"]:
                self.patch("machinesets", item, {"spec": {"replicas": kept}})

    def digest_of(self, template: Object) -> str:
        """What tells one template from another: a new one rolls out."""
        return template_hash(template)

    @abstractmethod
    def machine_set_of(self, deployment: Object, digest: str) -> Object:
        """The set that a deployment makes."""

    @abstractmethod
    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        """The status of a deployment with these sets."""

    def totals(self, deployment: Object, sets: Sequence[Object]) -> Totals:
        """What the statuses of a deployment's sets add up to."""
        template = self.digest_of(deployment["spec"]["template"])
        replicas, ready, available = (
            sum(status_of(machine_set).get(key, 0) for machine_set in sets)
            for key in ("replicas", "readyReplicas", "availableReplicas")
        )
        return Totals(
            wanted=deployment["spec"].get("replicas", 0),
            replicas=replicas,
            ready=ready,
            available=available,
            updated=sum(
                status_of(machine_set).get("replicas", 0)
                for machine_set in sets
                if machine_set["metadata"]["labels"][self.hash_label] == template
            ),
        )

    def _update_statuses(self, now: datetime) -> None:
        super()._update_statuses(now)
        sets = self.by_owner("machinesets")
        for deployment in self.objects("machinedeployments"):
            mine = sets.get(deployment["metadata"]["uid"], [])
            self.write_status(deployment, self.deployment_status(deployment, mine, now))
