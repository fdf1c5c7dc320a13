"""OpenShift's cluster-autoscaler-operator: MachineAutoscalers own bounds, a ClusterAutoscaler the autoscaler's flags.

Sources (openshift/cluster-autoscaler-operator): pkg/controller/machineautoscaler/machineautoscaler_controller.go,
machinetarget.go and validator.go beside it, pkg/controller/clusterautoscaler/clusterautoscaler.go.
"""

from __future__ import annotations

from collections.abc import Iterator

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
_EXPANDERS = {"LeastWaste": "least-waste", "Priority": "priority", "Random": "random"}


class ClusterAutoscalerOperator:
    """Every step is an event of everything that it watches: what it owns is back within the step."""

    manager = "cluster-autoscaler-operator"

    def __init__(self, store: Store) -> None:
        self._store = store
        #: MachineAutoscalers that it can do nothing for, by name, and why
        self.errors: dict[str, str] = {}
        store.webhooks.setdefault(SCALERS, []).append(_refuse_crossed_bounds)

    def step(self) -> None:
        """Reconcile everything once."""
        self.errors.clear()
        for scaler in self._store.list(SCALERS, NAMESPACE):
            self._reconcile(scaler)
        self._deploy()

    def autoscaler_arguments(self) -> tuple[str, ...] | None:
        """What the autoscaler is started with; nothing where no ClusterAutoscaler says so."""
        if not self._store.list(AUTOSCALERS):
            return ()  # somebody else runs one
        found = self._store.list(DEPLOYMENTS, NAMESPACE, fields="metadata.name=cluster-autoscaler-default")
        return arguments_of(found[0]) if found else None

    def _reconcile(self, scaler: Object) -> None:
        name, reference = scaler["metadata"]["name"], scaler["spec"]["scaleTargetRef"]
        target = self._target(name, reference)
        if is_deleting(scaler):
            self._finalize(target)
            self._patch(SCALERS, scaler, {"metadata": {"finalizers": None}})
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
            self._patch(SCALERS, scaler, {"status": {"lastTargetRef": reference}}, subresource="status")
        if FINALIZER not in (scaler["metadata"].get("finalizers") or ()):
            finalizers = [*(scaler["metadata"].get("finalizers") or ()), FINALIZER]
            self._patch(SCALERS, scaler, {"metadata": {"finalizers": finalizers}})
        spec = scaler["spec"]
        bounds = {MIN_SIZE: str(spec["minReplicas"]), MAX_SIZE: str(spec["maxReplicas"]), OWNED_BY: owner}
        try:
            self._patch(MACHINE_SETS, target, {"metadata": {"annotations": bounds}})
        except ApiError as error:  # Cluster API's by now
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
        """The group leaves the autoscaler."""
        if target is not None:
            gone = dict.fromkeys((MIN_SIZE, MAX_SIZE, OWNED_BY))
            self._patch(MACHINE_SETS, target, {"metadata": {"annotations": gone}})

    def _deploy(self) -> None:
        """The autoscaler of the ClusterAutoscaler `default`, which is the only one that counts."""
        wanted = self._store.list(AUTOSCALERS, fields="metadata.name=default")
        there = self._store.list(DEPLOYMENTS, NAMESPACE, fields="metadata.name=cluster-autoscaler-default")
        if not wanted:
            for item in there:
                self._store.delete(DEPLOYMENTS, NAMESPACE, item["metadata"]["name"])
            return
        body = deployment_of("cluster-autoscaler-default", NAMESPACE, list(flags_of(wanted[0])))
        if there:
            self._patch(DEPLOYMENTS, there[0], {"spec": body["spec"]})
        else:
            self._store.create(DEPLOYMENTS, body, manager=self.manager)

    def _patch(self, resource: str, item: Object, patch: Object, *, subresource: str = "") -> None:
        metadata = item["metadata"]
        self._store.patch(resource, NAMESPACE, metadata["name"], patch, subresource=subresource, manager=self.manager)


def flags_of(autoscaler: Object) -> Iterator[str]:
    """The arguments that a ClusterAutoscaler stands for. Balancing that is not mentioned is off, no label ignored."""
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
        raise ApiError(
            403, f'admission webhook "machineautoscalers.autoscaling.openshift.io" denied the request: {text}'
        )
