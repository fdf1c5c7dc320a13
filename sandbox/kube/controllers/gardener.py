"""machine-controller-manager, together with the controllers of Gardener in shoots.py that own its objects."""

# ruff: noqa: ARG002 - a hook has the arguments that some flavour needs

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sandbox.kube.client import without_request_id
from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.deployments import DeploymentControllers
from sandbox.kube.controllers.machine_controller import MachineAPI, node_name
from sandbox.kube.controllers.objects import (
    ZONE_LABEL,
    age_of,
    annotations_of,
    arguments_of,
    is_deleting,
    labels_of,
    parse_time,
    positive,
    provider_id,
    status_of,
)
from sandbox.kube.controllers.shoots import DEPLOYMENTS, SHOOTS, WORKERS, Gardenlet, Pace, WorkerActuator
from sandbox.kube.schema import Object
from sandbox.kube.store import rfc3339

PRESERVE = "node.machine.sapcloud.io/preserve"
PRESERVE_OF_NODE = "node.machine.sapcloud.io/last-applied-node-preserve-value"
_PRESERVE_VALUES = frozenset({"now", "when-failed", "auto-preserved"})
PRIORITY = "machinepriority.machine.sapcloud.io"
MARKED_AT = "machine.sapcloud.io/marked-for-deletion-time"
SCALED_AT = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time"
TRIGGER = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
# the codes that machine-controller-manager's AWS provider maps to ResourceExhausted; it maps all others to Internal
_RESOURCE_EXHAUSTED = frozenset(
    (
        *("InsufficientCapacity", "InsufficientAddressCapacity", "InsufficientInstanceCapacity"),
        *("InsufficientVolumeCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded", "VolumeLimitExceeded"),
        *("MaxIOPSLimitExceeded", "RouteLimitExceeded", "Unsupported"),
    )
)
_PHASES = ("Terminating", "Failed", "CrashLoopBackOff", "Unknown", "Pending", "Available", "Running")


def is_preserved(machine: Object, now: datetime) -> bool:
    """Return whether machine-controller-manager preserves the machine: its expiry time is in the future."""
    expires = _current_status(machine).get("preserveExpiryTime")
    return expires is not None and parse_time(expires) > now


def _marked_at(machine: Object) -> datetime | None:
    try:
        return parse_time(annotations_of(machine).get(MARKED_AT, ""))
    except ValueError:
        return None


def gardener_deletion_order(machines: Iterable[Object], now: datetime) -> list[Object]:
    """Return machines in machine-controller-manager's order (pkg/controller/controller_utils.go, ActiveMachines).

    Preserved machines are last: first the auto-preserved ones, then those preserved on request, each sorted by expiry.
    All other machines are sorted by priority (lower first, default 3), by mark (marked first, older first), by phase
    and by age.
    """

    def key(machine: Object) -> tuple[Any, ...]:
        current = _current_status(machine)
        preserved: tuple[Any, ...] = (False, False, "")
        if is_preserved(machine, now):
            requested = annotations_of(machine).get(PRESERVE) != "auto-preserved"
            preserved = (True, requested, parse_time(current["preserveExpiryTime"]).isoformat())
        try:
            priority = int(annotations_of(machine).get(PRIORITY) or 3)
        except ValueError:
            priority = 3
        marked = _marked_at(machine)
        mark = (marked is None, marked.isoformat() if marked else "")
        phase = _PHASES.index(current["phase"]) if current.get("phase") in _PHASES else 0
        return *preserved, priority, *mark, phase, machine["metadata"]["creationTimestamp"]

    return sorted(machines, key=key)


class GardenerControllers(DeploymentControllers):
    """machine-controller-manager, gardenlet for Shoots, and the Worker's actuator for Workers."""

    flavour = "gardener"
    api = MachineAPI(
        scalables="machinedeployments.machine.sapcloud.io",
        machines="machines.machine.sapcloud.io",
        prefix="machine.sapcloud.io",
        mark=lambda _now: {"machinepriority.machine.sapcloud.io": "1"},
        pool_label="worker.gardener.cloud/pool",
    )
    group = "machine.sapcloud.io"
    manager = "machine-controller-manager"
    finalizer = "machine.sapcloud.io/machine-controller-manager"
    drain_timeout = timedelta(hours=2)  # machine-controller-manager's --machine-drain-timeout
    revision = "deployment.kubernetes.io/revision"

    def __init__(
        self, *arguments: Any, worker_controller: bool = False, pace: Pace | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        #: True: each step also reconciles the Workers. Real Gardener does this only when it reconciles the Shoot.
        self.worker_controller = worker_controller
        self.actuator = WorkerActuator(self.store)
        self.gardenlet = Gardenlet(self.store, self.actuator, pace or Pace())

    def reconcile_owners(self, now: datetime) -> None:
        """Run gardenlet and the Worker's actuator, and mark the machines that deployments list for deletion."""
        self.gardenlet.step(now)
        self.actuator.carry_out_requests(now)
        if self.worker_controller:
            self.reconcile_workers()
        for deployment in self.objects("machinedeployments"):
            self._trigger_deletions(deployment, now)

    def reconcile_workers(self) -> None:
        """Limit the replicas of every pool to the shares of its zones again."""
        now = self.store.clock()
        for worker in self.store.list(WORKERS):
            self.actuator.reconcile(worker, now)

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """Return the arguments of the autoscaler's Deployment; None while it does not run; empty without a Shoot."""
        if not self.store.list(SHOOTS):
            return ()  # a cluster-autoscaler without flags for groups, which reads annotations
        deployments = self.store.list(DEPLOYMENTS, fields="metadata.name=cluster-autoscaler")
        return arguments_of(deployments[0]) if deployments else None

    def _trigger_deletions(self, deployment: Object, now: datetime) -> None:
        """Mark the machines that the deployment's annotation lists, each with the time of the autoscaler's decision.

        A name without a time gets the time of the last scaling; without that, the current time.
        """
        listed = annotations_of(deployment).get(TRIGGER, "")
        kept = []
        for entry in filter(None, (part.strip() for part in listed.split(","))):
            name, _, moment = entry.partition("~")
            moment = moment or annotations_of(deployment).get(SCALED_AT) or rfc3339(now)
            try:
                parse_time(moment)
            except ValueError:
                continue  # an invalid entry is removed from the list
            machine = self.client.find(self.resource("machines"), deployment["metadata"]["namespace"], name)
            if machine is None or is_deleting(machine) or _phase(machine) in ("Failed", "Terminating"):
                continue
            kept.append(f"{name}~{moment}")
            marks: dict[str, str | None] = {PRIORITY: "1"}
            marks[MARKED_AT] = annotations_of(machine).get(MARKED_AT) or moment
            if not marks.items() <= annotations_of(machine).items():
                self.client.annotate(machine, marks)
        if listed != ",".join(kept):
            self.client.annotate(deployment, {TRIGGER: ",".join(kept) or None})

    def _reconcile_deployment(self, deployment: Object, sets: list[Object]) -> None:
        super()._reconcile_deployment(deployment, sets)
        limit = deployment["spec"].get("autoPreserveFailedMachineMax", 0)
        scaled_at = annotations_of(deployment).get(SCALED_AT)
        for machine_set in sets:
            if machine_set["spec"].get("autoPreserveFailedMachineMax", 0) != limit:
                self.client.patch(machine_set, {"spec": {"autoPreserveFailedMachineMax": limit}})
        for machine_set in sets:
            if scaled_at and annotations_of(machine_set).get(SCALED_AT) != scaled_at:
                self.client.annotate(machine_set, {SCALED_AT: scaled_at})

    def _reconcile_machine(self, machine: Object, now: datetime) -> None:
        if not is_deleting(machine):
            machine = self._preserve(machine, now)
        super()._reconcile_machine(machine, now)

    def _reconcile_set(self, machine_set: Object, machines: list[Object], now: datetime) -> None:
        super()._reconcile_set(machine_set, self._auto_preserve(machine_set, machines), now)

    def _auto_preserve(self, machine_set: Object, machines: list[Object]) -> list[Object]:
        """Preserve failed machines without a preserve value, the newest first, up to the set's limit.

        Above the limit, release auto-preserved machines, the oldest first (manageAutoPreservationOfFailedMachines).
        """
        preserved = [item for item in machines if annotations_of(item).get(PRESERVE) == "auto-preserved"]
        capacity = machine_set["spec"].get("autoPreserveFailedMachineMax", 0) - len(preserved)
        if capacity < 0:
            chosen = sorted(preserved, key=_created)[:-capacity]
        else:
            failed = [item for item in machines if _phase(item) == "Failed" and not _preserve_value(item)]
            chosen = sorted(failed, key=_created, reverse=True)[:capacity]
        value = {PRESERVE: "auto-preserved" if capacity > 0 else None}
        changed = {item["metadata"]["uid"]: self.client.annotate(item, value) for item in chosen}
        return [changed.get(item["metadata"]["uid"], item) for item in machines]

    def _copy_node_value(self, machine: Object) -> Object:
        """Record the preserve value of the machine's node, which replaces the machine's own value."""
        nodes = self.nodes_of(machine)
        value = annotations_of(nodes[0]).get(PRESERVE, "") if nodes else ""
        recorded = annotations_of(machine).get(PRESERVE_OF_NODE)
        if not nodes or (not value and not recorded):
            return machine
        if recorded == value and PRESERVE not in annotations_of(machine):
            return machine
        return self.client.annotate(machine, {PRESERVE: None, PRESERVE_OF_NODE: value})

    def _preserve(self, machine: Object, now: datetime) -> Object:
        """Start or end the preservation that the annotation of the machine or of its node requests."""
        machine = self._copy_node_value(machine)
        value, current = _preserve_value(machine), _current_status(machine)
        wanted = value == "now" or (value in ("when-failed", "auto-preserved") and current.get("phase") == "Failed")
        expires = current.get("preserveExpiryTime")
        expired = expires is not None and parse_time(expires) <= now
        if wanted and expires is None and current:
            expiry = rfc3339(now + self.timing.preserve)
        elif expires is not None and (expired or not wanted):
            expiry = None
            if expired:
                self.client.annotate(machine, {PRESERVE: None})
        else:
            return machine
        current = {key: value for key, value in current.items() if key != "preserveExpiryTime"}
        status = {**machine["status"], "currentStatus": current | ({"preserveExpiryTime": expiry} if expiry else {})}
        self.client.update_status(machine, status)
        return {**machine, "status": status}

    def _update_machine(
        self, machine: Object, now: datetime, phase: str, operation: Object | None = None, **status: Any
    ) -> None:
        """Write a machine's phase and last operation. A preservation remains when the phase changes."""
        preserved = {key: text for key, text in _current_status(machine).items() if key == "preserveExpiryTime"}
        stamp = {"lastUpdateTime": rfc3339(now)}
        current = {"phase": phase, "timeoutActive": phase == "Pending", **stamp, **preserved}
        last = {} if operation is None else {"lastOperation": {"type": "Create", **operation, **stamp}}
        self.client.update_status(machine, {**status, "currentStatus": current, **last})

    def machine_set_of(self, deployment: Object, digest: str) -> tuple[dict[str, str], Object]:
        """Return the labels of the set that a deployment creates, and the other fields of the set's spec."""
        labels = {"name": deployment["metadata"]["name"], self.hash_label: digest}
        return labels, {"template": deployment["spec"]["template"]}

    def machine_of(self, machine_set: Object, name: str) -> Object:
        """Return the machine that a set creates, with the set's labels."""
        metadata = {key: machine_set["metadata"][key] for key in ("namespace", "labels")}
        return {"metadata": {"name": name, **metadata}, "spec": machine_set["spec"]["template"]["spec"]}

    def deletion_order(self, machine_set: Object, machines: Sequence[Object], now: datetime) -> list[Object]:
        """Return the machines in machine-controller-manager's order of deletion."""
        return gardener_deletion_order(machines, now)

    def zone_of(self, spec: Object) -> str:
        """Return the zone in the labels of the node template, or an empty text."""
        return str(labels_of(spec.get("nodeTemplate") or {}).get(ZONE_LABEL, ""))

    def node_template(self, machine: Object) -> tuple[dict[str, str], list[Object]]:
        """Return the labels and the taints of the node template."""
        template = machine["spec"].get("nodeTemplate") or {}
        return labels_of(template), (template.get("spec") or {}).get("taints") or []

    def skips_drain(self, machine: Object) -> bool:
        """Return True if the machine's label requests deletion without a drain."""
        return labels_of(machine).get("force-deletion") == "True"

    def must_go(self, machine_set: Object, machine: Object, now: datetime) -> bool:
        """Return True if the machine failed without preservation, or was marked before its set was scaled."""
        if _phase(machine) == "Failed":
            return not is_preserved(machine, now) and _preserve_value(machine) not in _PRESERVE_VALUES
        marked, scaled_at = _marked_at(machine), annotations_of(machine_set).get(SCALED_AT)
        first = annotations_of(machine).get(PRIORITY) == "1"
        return first and marked is not None and scaled_at is not None and marked <= parse_time(scaled_at)

    def has_node(self, machine: Object) -> bool:
        """Return True if the phase is Running or Unknown."""
        return _phase(machine) in ("Running", "Unknown")

    def on_launched(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Report the instance and the name of its node, and set the phase to Pending."""
        # The controller writes the node's name long before the node joins.
        labels, spec = {"node": node_name(instance)}, {"providerID": provider_id(instance)}
        self.client.patch(machine, {"metadata": {"labels": labels}, "spec": spec})
        operation = {"state": "Processing", "description": "Creating machine on cloud provider"}
        self._update_machine(machine, now, "Pending", operation)

    def on_refused(self, machine: Object, error: LaunchError, now: datetime) -> datetime | None:
        """Report the provider's error unless the last one is similar. Return the time of the next try."""
        code = "ResourceExhausted" if error.code in _RESOURCE_EXHAUSTED else "Internal"
        text = f"Cloud provider message - machine codes error: code = [{code}] message = [{error}]"
        phase = "Failed" if self._is_overdue(machine, now) else "CrashLoopBackOff"
        last = status_of(machine).get("lastOperation") or {}
        similar = (
            _phase(machine) == phase
            and last.get("errorCode") == code
            and without_request_id(last.get("description", "")) == without_request_id(text)
            and now - parse_time(last["lastUpdateTime"]) < self.timing.similar_status
        )
        if not similar:
            operation = {"state": "Failed", "errorCode": code, "description": text}
            self._update_machine(machine, now, phase, operation)
        timing = self.timing
        return now + (timing.resource_exhausted_retry if code == "ResourceExhausted" else timing.other_retry)

    def _is_overdue(self, machine: Object, now: datetime) -> bool:
        return age_of(machine, now) > self.timing.creation_timeout.total_seconds()

    def on_waiting_for_retry(self, machine: Object, now: datetime) -> None:
        """Set the phase to Failed after the creation timeout."""
        if _phase(machine) != "Failed" and self._is_overdue(machine, now):
            self._update_machine(machine, now, "Failed", **machine["status"])

    def on_waiting(self, machine: Object, instance: Instance, now: datetime) -> None:
        """Set the phase to Failed if the node has not joined within the creation timeout."""
        if _phase(machine) != "Failed" and self._is_overdue(machine, now):
            minutes = int(self.timing.creation_timeout.total_seconds() // 60)
            # The failure has no error code. Only the elapsed time shows it.
            text = f"Machine {machine['metadata']['name']} failed to join the cluster in {minutes}m0s minutes."
            self._update_machine(machine, now, "Failed", {"state": "Failed", "description": text})

    def on_joined(self, machine: Object, node: Object, now: datetime) -> None:
        """Set the phase to Running."""
        text = f"Machine {machine['metadata']['name']} successfully joined the cluster"
        operation = {"state": "Successful", "description": text}
        self._update_machine(machine, now, "Running", operation, conditions=node["status"]["conditions"])

    def on_deleting(self, machine: Object, now: datetime) -> None:
        """Set the phase to Terminating."""
        if _phase(machine) != "Terminating":
            text = "Set machine status to termination. Now, getting VM Status"
            operation = {"type": "Delete", "state": "Processing", "description": text}
            self._update_machine(machine, now, "Terminating", operation, **status_of(machine))

    def set_status(self, machine_set: Object, machines: Sequence[Object]) -> Object:
        """Return the status of a set, with its failed and its preserved machines."""
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
        auto_preserved = sum(annotations_of(machine).get(PRESERVE) == "auto-preserved" for machine in machines)
        return {
            **positive(
                replicas=len(machines),
                fullyLabeledReplicas=len(machines),
                readyReplicas=ready,
                availableReplicas=ready,
                preservedFailedReplicas=sum(map(_is_preserved_and_failed, machines)),
                autoPreserveFailedMachineCount=auto_preserved,
            ),
            "observedGeneration": machine_set["metadata"]["generation"],
            **({"failedMachines": failed} if failed else {}),
        }

    def deployment_status(self, deployment: Object, sets: Sequence[Object], now: datetime) -> Object:
        """Return the status of a deployment, with the failed machines of its sets."""
        totals = self.totals(deployment, sets)
        failed = [item for machine_set in sets for item in status_of(machine_set).get("failedMachines") or ()]
        enough = totals.available >= totals.desired
        available = {
            "type": "Available",
            "status": str(enough),
            "reason": f"MinimumReplicas{'Available' if enough else 'Unavailable'}",
            "message": f"Deployment has {'' if enough else 'no '}minimum availability.",
        }
        return {
            **positive(
                replicas=totals.replicas,
                readyReplicas=totals.ready,
                availableReplicas=totals.available,
                unavailableReplicas=max(0, totals.desired - totals.available),
                updatedReplicas=totals.updated,
                preservedFailedReplicas=sum(status_of(item).get("preservedFailedReplicas", 0) for item in sets),
            ),
            "observedGeneration": deployment["metadata"]["generation"],
            "conditions": [available],
            **({"failedMachines": failed} if failed else {}),
        }


def _created(machine: Object) -> str:
    return str(machine["metadata"]["creationTimestamp"])


def _preserve_value(machine: Object) -> str:
    """Return the preserve value in force: the recorded value of the node, else the machine's own."""
    annotations = annotations_of(machine)
    return str(annotations.get(PRESERVE_OF_NODE) or annotations.get(PRESERVE, ""))


def _is_preserved_and_failed(machine: Object) -> bool:
    return _phase(machine) == "Failed" and "preserveExpiryTime" in _current_status(machine)


def _current_status(machine: Object) -> Object:
    return status_of(machine).get("currentStatus") or {}


def _phase(machine: Object) -> str:
    return str(_current_status(machine).get("phase", ""))
