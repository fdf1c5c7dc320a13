"""cluster-capi-operator: OpenShift's MachineSets have copies in Cluster API. spec.authoritativeAPI selects one of both.

The operator copies the authoritative object to the other one. Its admission policies deny other writes to the latter
(openshift/cluster-capi-operator: pkg/controllers/machinesetsync, machinesetmigration; admission-policies/default). In
the sandbox, one machine controller serves both APIs. It works on the objects of Machine API.
"""

from __future__ import annotations

from typing import Any

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import annotations_of, status_of
from sandbox.kube.errors import ApiError
from sandbox.kube.resources import Resource
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

NAMESPACE, CLUSTER_API_NAMESPACE = "openshift-machine-api", "openshift-cluster-api"
SETS, CLUSTER_API_SETS = "machinesets.machine.openshift.io", "machinesets.cluster.x-k8s.io"
_MANAGER = "cluster-capi-operator"
_WRITERS = frozenset({_MANAGER, "machine-api-operator"})
_PAUSED = "cluster.x-k8s.io/paused"
_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


class Migration:
    """Keeps the copies of all MachineSets up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, _MANAGER)
        store.create("namespaces", {"metadata": {"name": CLUSTER_API_NAMESPACE}})
        store.admission.append(self._admit)

    def step(self) -> None:
        """Update the authority of each MachineSet, then copy the authoritative object to the other."""
        for machine_set in self._store.list(SETS, NAMESPACE):
            self._update_authority(machine_set)
        for machine_set in self._store.list(SETS, NAMESPACE):
            authority = status_of(machine_set).get("authoritativeAPI")
            if authority == "MachineAPI":
                self._copy_to_cluster_api(machine_set)
            elif authority == "ClusterAPI":
                self._copy_to_machine_api(machine_set)

    def _update_authority(self, machine_set: Object) -> None:
        """Set the status first to Migrating, then to the value of the spec. An empty status gets this value at once."""
        wanted = machine_set["spec"].get("authoritativeAPI", "MachineAPI")
        current = status_of(machine_set).get("authoritativeAPI")
        if current != wanted:
            authority = wanted if current in (None, "Migrating") else "Migrating"
            self._client.patch_status(machine_set, {"authoritativeAPI": authority})

    def _copy_to_cluster_api(self, machine_set: Object) -> None:
        metadata, spec = machine_set["metadata"], machine_set["spec"]
        labels = {"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/set-name": metadata["name"]}
        provider = spec["template"]["spec"]["providerSpec"]["value"]
        template = {"clusterName": "demo", "failureDomain": provider["placement"]["availabilityZone"]}
        copy = {
            "metadata": {
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
        if current := self._copy_of(machine_set):
            removed = annotations_of(current).keys() - copy["metadata"]["annotations"].keys()
            copy["metadata"]["annotations"] |= dict.fromkeys(removed)
        name = metadata["name"]
        current = self._client.create_or_patch(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, name, copy)
        self._copy_counts(machine_set, current)

    def _copy_to_machine_api(self, machine_set: Object) -> None:
        source = self._copy_of(machine_set)
        if source is None:
            return
        if _PAUSED in annotations_of(source):
            source = self._client.annotate(source, {_PAUSED: None})
        copied: dict[str, Any] = {
            key: value for key, value in annotations_of(source).items() if "cluster.x-k8s.io/" not in key
        }
        copied |= dict.fromkeys(annotations_of(machine_set).keys() - copied.keys())
        patch = {"metadata": {"annotations": copied}, "spec": {"replicas": source["spec"]["replicas"]}}
        self._client.patch(machine_set, patch)
        self._copy_counts(machine_set, source)

    def _copy_counts(self, machine_set: Object, copy: Object) -> None:
        self._client.patch_status(copy, {key: status_of(machine_set).get(key, 0) for key in _COUNTS})

    def _copy_of(self, machine_set: Object) -> Object | None:
        return self._client.find(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, machine_set["metadata"]["name"])

    def _admit(self, kind: Resource, old: Object, new: Object, manager: str) -> None:
        """Raise ApiError 422 for a write to the object that is not authoritative."""
        name, namespace = new["metadata"]["name"], new["metadata"].get("namespace")
        place = (kind.full_name, namespace)
        if manager in _WRITERS or place not in ((SETS, NAMESPACE), (CLUSTER_API_SETS, CLUSTER_API_NAMESPACE)):
            return
        is_machine_api = kind.full_name == SETS
        other_place = (CLUSTER_API_SETS, CLUSTER_API_NAMESPACE) if is_machine_api else (SETS, NAMESPACE)
        other = self._client.find(*other_place, name)
        if other is None:
            return
        authority = status_of(new if is_machine_api else other).get("authoritativeAPI")
        if authority != ("ClusterAPI" if is_machine_api else "MachineAPI"):
            return
        spec_changes = any(
            old["spec"].get(key) != new["spec"].get(key)
            for key in old["spec"].keys() | new["spec"].keys()
            if key != "authoritativeAPI"
        )
        if spec_changes or _guarded(annotations_of(old)) != _guarded(annotations_of(new)):
            policy = f"{'machine' if is_machine_api else 'cluster'}-api-machine-set-vap"
            text = f"ValidatingAdmissionPolicy '{policy}' denied request: status.authoritativeAPI is set to {authority}"
            raise ApiError(422, f'{kind.plural}.{kind.group} "{name}" is forbidden: {text}')


def _guarded(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations that only the operators may change."""
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith("machine.openshift.io") or "cluster.x-k8s.io" in key
    }
