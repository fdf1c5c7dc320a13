"""cluster-capi-operator: OpenShift's MachineSets get a twin in Cluster API, and move there when their spec says so.

It copies from whoever has the authority to the twin, and its admission policies refuse what anybody else writes to that
(openshift/cluster-capi-operator: pkg/controllers/machinesetsync, machinesetmigration; admission-policies/default). One
machine controller stands for those of both APIs here, as their Machines are twins as well: it works on Machine API's.
"""

from __future__ import annotations

from typing import Any

from sandbox.kube.controllers.objects import annotations_of, status_of
from sandbox.kube.errors import ApiError
from sandbox.kube.resources import Resource
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

NAMESPACE, CLUSTER_API_NAMESPACE = "openshift-machine-api", "openshift-cluster-api"
SETS, CLUSTER_API_SETS = "machinesets.machine.openshift.io", "machinesets.cluster.x-k8s.io"
_MANAGER = "cluster-capi-operator"
_MAY = frozenset({_MANAGER, "machine-api-operator"})
_PAUSED = "cluster.x-k8s.io/paused"
_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


class Migration:
    """Keeps the twins of all MachineSets, from the moment when it is made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.create("namespaces", {"metadata": {"name": CLUSTER_API_NAMESPACE}})
        store.admission.append(self._admit)

    def step(self) -> None:
        for machine_set in self._store.list(SETS, NAMESPACE):
            self._move_on(machine_set)
        for machine_set in self._store.list(SETS, NAMESPACE):
            authority = status_of(machine_set).get("authoritativeAPI")
            if authority == "MachineAPI":
                self._copy_to_cluster_api(machine_set)
            elif authority == "ClusterAPI":
                self._copy_to_machine_api(machine_set)

    def _move_on(self, machine_set: Object) -> None:
        """The status follows the spec, by way of Migrating; one that says nothing says what the spec does at once."""
        wanted = machine_set["spec"].get("authoritativeAPI", "MachineAPI")
        found = status_of(machine_set).get("authoritativeAPI")
        if found != wanted:
            status = {"authoritativeAPI": wanted if found in (None, "Migrating") else "Migrating"}
            self._patch(SETS, machine_set, {"status": status}, subresource="status")

    def _copy_to_cluster_api(self, machine_set: Object) -> None:
        metadata, spec = machine_set["metadata"], machine_set["spec"]
        labels = {"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/set-name": metadata["name"]}
        provider = spec["template"]["spec"]["providerSpec"]["value"]
        template = {"clusterName": "demo", "failureDomain": provider["placement"]["availabilityZone"]}
        twin = {
            "metadata": {
                "name": metadata["name"],
                "namespace": CLUSTER_API_NAMESPACE,
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": {**annotations_of(machine_set), _PAUSED: ""},
            },
            "spec": {
                "clusterName": "demo",
                "replicas": spec.get("replicas", 1),
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template},
            },
        }
        known = self._find(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, metadata["name"])
        if known is None:
            known = self._store.create(CLUSTER_API_SETS, twin, manager=_MANAGER)
        else:
            gone = dict.fromkeys(annotations_of(known).keys() - twin["metadata"]["annotations"].keys())
            twin["metadata"]["annotations"] |= gone
            known = self._patch(CLUSTER_API_SETS, known, twin)
        self._copy_counts(machine_set, known)

    def _copy_to_machine_api(self, machine_set: Object) -> None:
        twin = self._find(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, machine_set["metadata"]["name"])
        if twin is None:
            return
        if _PAUSED in annotations_of(twin):
            twin = self._patch(CLUSTER_API_SETS, twin, {"metadata": {"annotations": {_PAUSED: None}}})
        copied: dict[str, Any] = {
            key: value for key, value in annotations_of(twin).items() if "cluster.x-k8s.io/" not in key
        }
        gone = dict.fromkeys(annotations_of(machine_set).keys() - copied.keys())
        patch = {"metadata": {"annotations": copied | gone}, "spec": {"replicas": twin["spec"]["replicas"]}}
        self._patch(SETS, machine_set, patch)
        self._copy_counts(machine_set, twin)

    def _copy_counts(self, machine_set: Object, twin: Object) -> None:
        counts = {key: status_of(machine_set).get(key, 0) for key in _COUNTS}
        self._patch(CLUSTER_API_SETS, twin, {"status": counts}, subresource="status")

    def _patch(self, resource: str, item: Object, patch: Object, *, subresource: str = "") -> Object:
        metadata = item["metadata"]
        return self._store.patch(
            resource, metadata["namespace"], metadata["name"], patch, subresource=subresource, manager=_MANAGER
        )

    def _find(self, resource: str, namespace: str, name: str) -> Object | None:
        try:
            return self._store.get(resource, namespace, name)
        except ApiError:
            return None

    def _admit(self, kind: Resource, old: Object, new: Object, manager: str) -> None:
        """Raises ApiError where the object is the twin of the one that has the authority."""
        name, namespace = new["metadata"]["name"], new["metadata"].get("namespace")
        place = (kind.full_name, namespace)
        if manager in _MAY or place not in ((SETS, NAMESPACE), (CLUSTER_API_SETS, CLUSTER_API_NAMESPACE)):
            return
        is_machine_apis = kind.full_name == SETS
        other = self._find(*((CLUSTER_API_SETS, CLUSTER_API_NAMESPACE) if is_machine_apis else (SETS, NAMESPACE)), name)
        if other is None:
            return
        authority = status_of(new if is_machine_apis else other).get("authoritativeAPI")
        if authority != ("ClusterAPI" if is_machine_apis else "MachineAPI"):
            return
        spec_changes = any(
            old["spec"].get(key) != new["spec"].get(key)
            for key in old["spec"].keys() | new["spec"].keys()
            if key != "authoritativeAPI"
        )
        if spec_changes or _guarded(annotations_of(old)) != _guarded(annotations_of(new)):
            policy = f"{'machine' if is_machine_apis else 'cluster'}-api-machine-set-vap"
            text = f"ValidatingAdmissionPolicy '{policy}' denied request: status.authoritativeAPI is set to {authority}"
            raise ApiError(422, f'{kind.plural}.{kind.group} "{name}" is forbidden: {text}')


def _guarded(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations that only the operators may change on a twin."""
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith("machine.openshift.io") or "cluster.x-k8s.io" in key
    }
