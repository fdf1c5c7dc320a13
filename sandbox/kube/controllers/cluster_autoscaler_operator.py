"""OpenShift's cluster-autoscaler-operator: MachineAutoscalers own bounds, a ClusterAutoscaler owns the flags.

Sources (openshift/cluster-autoscaler-operator): pkg/controller/machineautoscaler/machineautoscaler_controller.go,
machinetarget.go and validator.go beside it, pkg/controller/clusterautoscaler/clusterautoscaler.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import annotations_of, arguments_of, deployment_of, is_deleting, status_of
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

NAMESPACE = "openshift-machine-api"
FINALIZER = "machinetarget.autoscaling.openshift.io"
OWNED_BY = "autoscaling.openshift.io/machineautoscaler"
MIN_SIZE = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
SCALERS = "machineautoscalers.autoscaling.openshift.io"
AUTOSCALERS = "clusterautoscalers.autoscaling.openshift.io"
DEPLOYMENTS = "deployments.apps"
MACHINE_SETS = "machinesets.machine.openshift.io"
_NAME = "cluster-autoscaler-default"
_EXPANDERS = {"LeastWaste": "least-waste", "Priority": "priority", "Random": "random"}


class ClusterAutoscalerOperator:
    """Reconciles every object that it owns in every step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, "cluster-autoscaler-operator")
        #: the errors of MachineAutoscalers, by name
        self.errors: dict[str, str] = {}
        store.webhooks.setdefault(SCALERS, []).append(_refuse_crossed_bounds)

    def step(self) -> None:
        """Reconcile everything once."""
        self.errors.clear()
        for scaler in self._store.list(SCALERS, NAMESPACE):
            self._reconcile(scaler)
        self._deploy()

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """Return the autoscaler's arguments; None while it does not run."""
        if not self._store.list(AUTOSCALERS):
            return ()  # another controller runs the autoscaler
        deployment = self._client.find(DEPLOYMENTS, NAMESPACE, _NAME)
        return arguments_of(deployment) if deployment else None

    def _reconcile(self, scaler: Object) -> None:
        name, reference = scaler["metadata"]["name"], scaler["spec"]["scaleTargetRef"]
        target = self._target(name, reference)
        if is_deleting(scaler):
            self._finalize(target)
            self._client.patch(scaler, {"metadata": {"finalizers": None}})
            return
        if target is None:
            return
        owner = f"{NAMESPACE}/{name}"
        if annotations_of(target).get(OWNED_BY, owner) != owner:
            self.errors[name] = "already owned by another MachineAutoscaler"
            return
        last = status_of(scaler).get("lastTargetRef")
        if last and last != reference:
            self._finalize(self._target(name, last))
        if last != reference:
            self._client.patch_status(scaler, {"lastTargetRef": reference})
        finalizers = scaler["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            self._client.patch(scaler, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        spec = scaler["spec"]
        try:
            bounds = {MIN_SIZE: str(spec["minReplicas"]), MAX_SIZE: str(spec["maxReplicas"])}
            self._client.annotate(target, {**bounds, OWNED_BY: owner})
        except ApiError as error:  # the MachineSet has moved to Cluster API
            self.errors[name] = str(error)

    def _target(self, name: str, reference: Object) -> Object | None:
        if (reference.get("apiVersion"), reference["kind"]) != ("machine.openshift.io/v1beta1", "MachineSet"):
            self.errors[name] = "unsupported MachineAutoscaler target"
            return None
        try:
            return self._store.get(MACHINE_SETS, NAMESPACE, reference["name"])
        except ApiError as error:
            self.errors[name] = str(error)
            return None

    def _finalize(self, target: Object | None) -> None:
        """Remove the bounds of a group. The autoscaler then ignores the group."""
        if target is not None:
            self._client.annotate(target, dict.fromkeys((MIN_SIZE, MAX_SIZE, OWNED_BY)))

    def _deploy(self) -> None:
        """Deploy the autoscaler of the ClusterAutoscaler `default`; the operator ignores all others."""
        autoscaler = self._client.find(AUTOSCALERS, "", "default")
        if autoscaler is not None:
            body = deployment_of(_NAME, NAMESPACE, list(flags_of(autoscaler)))
            self._client.create_or_patch(DEPLOYMENTS, NAMESPACE, _NAME, body)
        elif deployment := self._client.find(DEPLOYMENTS, NAMESPACE, _NAME):
            self._client.delete(deployment)


def flags_of(autoscaler: Object) -> Iterator[str]:
    """Yield the arguments for a ClusterAutoscaler. Without the field, balancing is off and no label is ignored."""
    spec = autoscaler.get("spec") or {}
    yield from ("--cloud-provider=openshift", f"--namespace={NAMESPACE}")
    if time := spec.get("maxNodeProvisionTime"):
        yield f"--max-node-provision-time={time}"
    limits = spec.get("resourceLimits") or {}
    if "maxNodesTotal" in limits:
        yield f"--max-nodes-total={limits['maxNodesTotal']}"
    for field, flag in (("cores", "--cores-total"), ("memory", "--memory-total")):
        if field in limits:
            yield f"{flag}={limits[field]['min']}:{limits[field]['max']}"
    if (down := spec.get("scaleDown")) is not None:
        yield f"--scale-down-enabled={str(down['enabled']).lower()}"
        if down["enabled"] and "unneededTime" in down:
            yield f"--scale-down-unneeded-time={down['unneededTime']}"
    if "balanceSimilarNodeGroups" in spec:
        yield f"--balance-similar-node-groups={str(spec['balanceSimilarNodeGroups']).lower()}"
        yield "--balancing-ignore-label=topology.ebs.csi.aws.com/zone"
    for label in spec.get("balancingIgnoredLabels") or ():
        yield f"--balancing-ignore-label={label}"
    if expanders := spec.get("expanders"):
        yield f"--expander={','.join(_EXPANDERS[item] for item in expanders)}"


def _refuse_crossed_bounds(_old: Object | None, new: Object) -> None:
    low, high = new["spec"]["minReplicas"], new["spec"]["maxReplicas"]
    if high < low:
        text = f"spec.maxReplicas: Invalid value: {high}: maxReplicas must be greater than or equal to minReplicas"
        raise ApiError(403, f'admission webhook "{SCALERS}" denied the request: {text}')
