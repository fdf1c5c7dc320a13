"""machine-controller-manager, with what Gardener does above it: shoots.py."""

# ruff: noqa: ARG002 - a hook takes what some flavour needs

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.deployments import DeploymentControllers
from sandbox.kube.controllers.objects import (
    ZONE_LABEL,
    age_of,
    annotations_of,
    arguments_of,
    controller_reference,
    is_deleting,
    labels_of,
    parse_time,
    positive,
    provider_id,
    status_of,
    without_request_id,
)
from sandbox.kube.controllers.shoots import DEPLOYMENTS, SHOOTS, WORKERS, Gardenlet, Pace, WorkerActuator
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import rfc3339

PRESERVE = "node.machine.sapcloud.io/preserve"
PRESERVE_OF_NODE = "node.machine.sapcloud.io/last-applied-node-preserve-value"
_ASKS_TO_PRESERVE = frozenset({"now", "when-failed", "auto-preserved"})
PRIORITY = "machinepriority.machine.sapcloud.io"
MARKED_AT = "machine.sapcloud.io/marked-for-deletion-time"
SCALED_AT = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
TRIGGER = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
# what the AWS provider of machine-controller-manager reports as ResourceExhausted; all else is Internal
_MCM_RESOURCE_EXHAUSTED = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientAddressCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "RouteLimitExceeded",
        "Unsupported",
    }
)
_MCM_PHASES = {
    "Terminating": 0,
    "Failed": 1,
    "CrashLoopBackOff": 2,
    "Unknown": 3,
    "Pending": 4,
    "Available": 5,
    "Running": 6,
}


def is_preserved(machine: Object, now: datetime) -> bool:
    """Whether machine-controller-manager keeps the machine: the time of expiry is set and has not come."""
    expires = _current_of(machine).get("preserveExpiryTime")
    return expires is not None and parse_time(expires) > now


def _marked_at(machine: Object) -> datetime | None:
    try:
        return parse_time(annotations_of(machine).get(MARKED_AT, ""))
    except ValueError:
        return None


def gardener_deletion_order(machines: Iterable[Object], now: datetime) -> list[Object]:
    """machine-controller-manager's order (pkg/controller/controller_utils.go, ActiveMachines).

    Preserved ones last, those that it preserved by itself before those that somebody asked for, the first to expire
    before the others; then by priority (lower first, default 3), marked before unmarked and the older mark first, then
    by phase and age.
    """

    def key(machine: Object) -> tuple[Any, ...]:
        current = _current_of(machine)
        kept: tuple[Any, ...] = (False, False, "")
        if is_preserved(machine, now):
            by_itself = annotations_of(machine).get(PRESERVE) == "auto-preserved"
            kept = (True, not by_itself, parse_time(current["preserveExpiryTime"]).isoformat())
        try:
            priority = int(annotations_of(machine).get(PRIORITY) or 3)
        except ValueError:
            priority = 3
        marked = _marked_at(machine)
        mark = (marked is None, marked.isoformat() if marked else "")
        phase = _MCM_PHASES.get(current.get("phase", ""), 0)
        return *kept, priority, *mark, phase, machine["metadata"]["creationTimestamp"]

    return sorted(machines, key=key)


class GardenerControllers(DeploymentControllers):
    """machine-controller-manager; gardenlet and the Worker's actuator, where there is a Shoot or a Worker."""

    flavour = "gardener"
    group = "machine.sapcloud.io"
    manager = "machine-controller-manager"
    finalizer = "machine.sapcloud.io/machine-controller-manager"
    drain_timeout = timedelta(hours=2)  # machine-controller-manager's --machine-drain-timeout
    revision = "deployment.kubernetes.io/revision"

    def __init__(
        self, *arguments: Any, worker_controller: bool = False, pace: Pace | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        #: whether each step reconciles the Workers, too; in life that happens when the Shoot is reconciled
        self.worker_controller = worker_controller
        self.actuator = WorkerActuator(self.store)
        self.gardenlet = Gardenlet(self.store, self.actuator, pace or Pace())

    def reconcile_owners(self, now: datetime) -> None:
        self.gardenlet.step(now)
        self.actuator.carry_out_requests(now)
        if self.worker_controller:
            self.reconcile_workers()
        for deployment in self.objects("machinedeployments"):
            self._trigger_deletions(deployment, now)

    def reconcile_workers(self) -> None:
        """Put the replicas of every pool back into the zones' shares, now."""
        now = self.store.clock()
        for worker in self.store.list(WORKERS):
            self.actuator.reconcile(worker, now)

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        if not self.store.list(SHOOTS):
            return ()  # somebody started one by hand, and it reads annotations
        found = self.store.list(DEPLOYMENTS, fields="metadata.name=cluster-autoscaler")
        return arguments_of(found[0]) if found else None

    def _trigger_deletions(self, deployment: Object, now: datetime) -> None:
        """Machines that the deployment names, each with the moment when the autoscaler decided it, are marked.

        A name without a moment gets that of the last change of replicas by a scaler, else the present.
        """
        listed = annotations_of(deployment).get(TRIGGER, "")
        namespace = deployment["metadata"]["namespace"]
        kept = []
        for entry in filter(None, (part.strip() for part in listed.split(","))):
            name, _, moment = entry.partition("~")
            moment = moment or annotations_of(deployment).get(SCALED_AT) or rfc3339(now)
            try:
                parse_time(moment)
                machine = self.store.get(self.resource("machines"), namespace, name)
            except (ValueError, ApiError):
                continue  # garbled, or gone: taken off the list
            if is_deleting(machine) or _mcm_phase(machine) in ("Failed", "Terminating"):
                continue
            kept.append(f"{name}~{moment}")
            marks = {PRIORITY: "1", MARKED_AT: moment}
            marks |= {key: value for key, value in annotations_of(machine).items() if key == MARKED_AT and value}
            if not marks.items() <= annotations_of(machine).items():
                self.patch("machines", machine, {"metadata": {"annotations": marks}})
        if listed != ",".join(kept):
            self.patch(
                "machinedeployments", deployment, {"metadata": {"annotations": {TRIGGER: ",".join(kept) or None}}}
            )

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        super()._reconcile_deployment(deployment, sets)
        most = {"autoPreserveFailedMachineMax": deployment["spec"].get("autoPreserveFailedMachineMax", 0)}
        for machine_set in sets:
            if machine_set["spec"].get("autoPreserveFailedMachineMax", 0) != most["autoPreserveFailedMachineMax"]:
                self.patch("machinesets", machine_set, {"spec": most})
        scaled_at = annotations_of(deployment).get(SCALED_AT)
        for machine_set in sets:
            if scaled_at and annotations_of(machine_set).get(SCALED_AT) != scaled_at:
                self.patch("machinesets", machine_set, {"metadata": {"annotations": {SCALED_AT: scaled_at}}})

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        if not is_deleting(machine):
            machine = self._preserve(machine, now)
        super()._reconcile_machine(machine, now)

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        super()._reconcile_set(machine_set, self._auto_preserve(machine_set, machines), now)

    def _auto_preserve(self, machine_set: Object, machines: list[Object]) -> list[Object]:
        """Failed machines that nobody has said anything about are kept, the newest first, up to the set's limit.

        Above it those kept by themselves are let go, the oldest first (manageAutoPreservationOfFailedMachines).
        """
        by_itself = [item for item in machines if annotations_of(item).get(PRESERVE) == "auto-preserved"]
        capacity = machine_set["spec"].get("autoPreserveFailedMachineMax", 0) - len(by_itself)
        if capacity < 0:
            chosen = sorted(by_itself, key=_created)[:-capacity]
        else:
            unasked = [item for item in machines if _mcm_phase(item) == "Failed" and not _asked(item)]
            chosen = sorted(unasked, key=_created, reverse=True)[:capacity]
        patch = {"metadata": {"annotations": {PRESERVE: "auto-preserved" if capacity > 0 else None}}}
        changed = {item["metadata"]["uid"]: self.patch("machines", item, patch) for item in chosen}
        return [changed.get(item["metadata"]["uid"], item) for item in machines]

    def _obey_node(self, machine: Object) -> Object:
        """What stands on the machine's node wins: it is written down on the machine, and the machine's own goes."""
        name = machine["metadata"]["name"]
        nodes = self.store.list("nodes", labels=f"sandbox.evenkeel.dev/machine={name}")
        asks = annotations_of(nodes[0]).get(PRESERVE, "") if nodes else ""
        known = annotations_of(machine)
        if not nodes or (not asks and not known.get(PRESERVE_OF_NODE)):
            return machine
        if known.get(PRESERVE_OF_NODE) == asks and PRESERVE not in known:
            return machine
        return self.patch("machines", machine, {"metadata": {"annotations": {PRESERVE: None, PRESERVE_OF_NODE: asks}}})

    def _preserve(self, machine: Object, now: datetime) -> Object:
        """Begin and end the preservation that the annotation of the machine or its node asks for."""
        machine = self._obey_node(machine)
        asks = _asked(machine)
        current = _current_of(machine)
        wanted = asks == "now" or (asks in ("when-failed", "auto-preserved") and current.get("phase") == "Failed")
        expires = current.get("preserveExpiryTime")
        over = expires is not None and parse_time(expires) <= now
        if wanted and expires is None and current:
            expiry = rfc3339(now + self.timing.preserve)
        elif expires is not None and (over or not wanted):
            expiry = None
            if over:
                self.patch("machines", machine, {"metadata": {"annotations": {PRESERVE: None}}})
        else:
            return machine
        current = {key: value for key, value in current.items() if key != "preserveExpiryTime"}
        status = {**machine["status"], "currentStatus": current | ({"preserveExpiryTime": expiry} if expiry else {})}
        self.write_status(machine, status)
        return {**machine, "status": status}

    @staticmethod
    def _current(machine: Object, phase: str, now: datetime, *, timeout: bool = False) -> Object:
        """A new currentStatus. How long the machine is preserved outlasts its phases."""
        known = _current_of(machine)
        kept = {key: value for key, value in known.items() if key == "preserveExpiryTime"}
        return {"phase": phase, "timeoutActive": timeout, "lastUpdateTime": rfc3339(now), **kept}

    def machine_set_of(self, deployment: Object, digest: str) -> Object:
        metadata = deployment["metadata"]
        return {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": {"name": metadata["name"], self.hash_label: digest},
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "selector": {"matchLabels": {"name": metadata["name"], self.hash_label: digest}},
                "template": deployment["spec"]["template"],
            },
        }

    def machine_of(self, machine_set: Object, name: str) -> Object:
        return {
            "metadata": {
                "name": name,
                "namespace": machine_set["metadata"]["namespace"],
                "labels": machine_set["metadata"]["labels"],
            },
            "spec": machine_set["spec"]["template"]["spec"],
        }

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        return gardener_deletion_order(machines, now)

    def zone_of(self, spec: Object) -> str:
        labels = ((spec.get("nodeTemplate") or {}).get("metadata") or {}).get("labels") or {}
        return str(labels.get(ZONE_LABEL, ""))

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        template = machine["spec"].get("nodeTemplate") or {}
        return labels_of(template), (template.get("spec") or {}).get("taints") or []

    def skips_drain(self, machine: Object) -> bool:
        return labels_of(machine).get("force-deletion") == "True"

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        if _mcm_phase(machine) == "Failed":
            return not is_preserved(machine, now) and _asked(machine) not in _ASKS_TO_PRESERVE
        marked, scaled_at = _marked_at(machine), annotations_of(machine_set).get(SCALED_AT)
        first = annotations_of(machine).get(PRIORITY) == "1"
        return first and marked is not None and scaled_at is not None and marked <= parse_time(scaled_at)

    def has_node(self, machine: Object) -> bool:
        return _mcm_phase(machine) in ("Running", "Unknown")

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        node = f"ip-{instance.id[-8:]}.{instance.zone[:-1]}.compute.internal"
        # the node's name is known, and written, long before the node is there
        self.patch(
            "machines",
            machine,
            {"metadata": {"labels": {"node": node}}, "spec": {"providerID": provider_id(instance)}},
        )
        self.write_status(
            machine,
            {
                "currentStatus": self._current(machine, "Pending", now, timeout=True),
                "lastOperation": {
                    "type": "Create",
                    "state": "Processing",
                    "description": "Creating machine on cloud provider",
                    "lastUpdateTime": rfc3339(now),
                },
            },
        )

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        code = "ResourceExhausted" if error.code in _MCM_RESOURCE_EXHAUSTED else "Internal"
        operation = {
            "type": "Create",
            "state": "Failed",
            "errorCode": code,
            "description": f"Cloud provider message - machine codes error: code = [{code}] message = [{error}]",
            "lastUpdateTime": rfc3339(now),
        }
        phase = "CrashLoopBackOff"
        if age_of(machine, now) > self.timing.creation_timeout.total_seconds():
            phase = "Failed"
        known = status_of(machine)
        last = known.get("lastOperation") or {}
        similar = (
            _mcm_phase(machine) == phase
            and last.get("errorCode") == code
            and without_request_id(last.get("description", "")) == without_request_id(operation["description"])
            and now - parse_time(last["lastUpdateTime"]) < self.timing.similar_status
        )
        if not similar:
            self.write_status(
                machine, {"currentStatus": self._current(machine, phase, now), "lastOperation": operation}
            )
        if code == "ResourceExhausted":
            return now + self.timing.resource_exhausted_retry
        return now + self.timing.other_retry

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        if _mcm_phase(machine) != "Failed" and age_of(machine, now) > self.timing.creation_timeout.total_seconds():
            self.write_status(machine, {**machine["status"], "currentStatus": self._current(machine, "Failed", now)})

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        if age_of(machine, now) > self.timing.creation_timeout.total_seconds() and _mcm_phase(machine) != "Failed":
            minutes = int(self.timing.creation_timeout.total_seconds() // 60)
            name = machine["metadata"]["name"]
            self.write_status(
                machine,
                {
                    "currentStatus": self._current(machine, "Failed", now),
                    # no error code: only the time tells that something is wrong
                    "lastOperation": {
                        "type": "Create",
                        "state": "Failed",
                        "description": f"Machine {name} failed to join the cluster in {minutes}m0s minutes.",
                        "lastUpdateTime": rfc3339(now),
                    },
                },
            )

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        self.write_status(
            machine,
            {
                "conditions": node["status"]["conditions"],
                "currentStatus": self._current(machine, "Running", now),
                "lastOperation": {
                    "type": "Create",
                    "state": "Successful",
                    "description": f"Machine {machine['metadata']['name']} successfully joined the cluster",
                    "lastUpdateTime": rfc3339(now),
                },
            },
        )

    def on_deleting(self, machine: Object, now: datetime) -> None:
        if _mcm_phase(machine) != "Terminating":
            self.write_status(
                machine,
                {
                    **status_of(machine),
                    "currentStatus": self._current(machine, "Terminating", now),
                    "lastOperation": {
                        "type": "Delete",
                        "state": "Processing",
                        "description": "Set machine status to termination. Now, getting VM Status",
                        "lastUpdateTime": rfc3339(now),
                    },
                },
            )

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        ready = sum(1 for machine in machines if self.has_node(machine))
        failed = [
            {
                "name": machine["metadata"]["name"],
                "providerID": machine["spec"].get("providerID", ""),
                "lastOperation": machine["status"]["lastOperation"],
                "ownerRef": machine_set["metadata"]["name"],
            }
            for machine in machines
            if (status_of(machine).get("lastOperation") or {}).get("state") == "Failed"
            and not _is_preserved_and_failed(machine)
        ]
        return {
            **positive(
                replicas=len(machines),
                fullyLabeledReplicas=len(machines),
                readyReplicas=ready,
                availableReplicas=ready,
                preservedFailedReplicas=sum(map(_is_preserved_and_failed, machines)),
                autoPreserveFailedMachineCount=sum(
                    annotations_of(machine).get(PRESERVE) == "auto-preserved" for machine in machines
                ),
            ),
            "observedGeneration": machine_set["metadata"]["generation"],
            **({"failedMachines": failed} if failed else {}),
        }

    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        totals = self.totals(deployment, sets)
        failed = [item for machine_set in sets for item in status_of(machine_set).get("failedMachines") or ()]
        enough = "True" if totals.available >= totals.wanted else "False"
        return {
            **positive(
                replicas=totals.replicas,
                readyReplicas=totals.ready,
                availableReplicas=totals.available,
                unavailableReplicas=max(0, totals.wanted - totals.available),
                updatedReplicas=totals.updated,
                preservedFailedReplicas=sum(status_of(item).get("preservedFailedReplicas", 0) for item in sets),
            ),
            "observedGeneration": deployment["metadata"]["generation"],
            "conditions": [
                {
                    "type": "Available",
                    "status": enough,
                    "reason": "MinimumReplicasAvailable" if enough == "True" else "MinimumReplicasUnavailable",
                    "message": f"Deployment has {'' if enough == 'True' else 'no '}minimum availability.",
                }
            ],
            **({"failedMachines": failed} if failed else {}),
        }


def _created(machine: Object) -> str:
    return str(machine["metadata"]["creationTimestamp"])


def _asked(machine: Object) -> str:
    """What is asked for the machine: by its node, as it was last obeyed, else by itself."""
    known = annotations_of(machine)
    return str(known.get(PRESERVE_OF_NODE) or known.get(PRESERVE, ""))


def _is_preserved_and_failed(machine: Object) -> bool:
    return _mcm_phase(machine) == "Failed" and "preserveExpiryTime" in _current_of(machine)


def _current_of(machine: Object) -> Object:
    return status_of(machine).get("currentStatus") or {}


def _mcm_phase(machine: Object) -> str:
    return str(_current_of(machine).get("phase", ""))
