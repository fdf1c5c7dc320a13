"""Cluster API's topology controller: a Cluster's topology owns those keys of MachineDeployments that it sets.

The controller uses server-side apply, with force and as `capi-topology`, whenever one of these keys changes. It
restores the keys that the topology or its class sets, and keeps all others. It owns replicas only if the topology sets
them.
Sources (kubernetes-sigs/cluster-api): internal/controllers/topology/cluster, structuredmerge/serversidepatchhelper.go
and exp/topology/desiredstate/desired_state.go; the webhook of Cluster.
"""

from __future__ import annotations

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import annotations_of, is_deleting, labels_of, template_hash
from sandbox.kube.errors import invalid
from sandbox.kube.schema import Cause, Object
from sandbox.kube.store import Store

CLUSTERS = "clusters.cluster.x-k8s.io"
CLASSES = "clusterclasses.cluster.x-k8s.io"
DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io"
OWNED = "topology.cluster.x-k8s.io/owned"
NAME = "topology.cluster.x-k8s.io/deployment-name"
MIN_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"


class TopologyController:
    """Applies every topology in every step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, "capi-topology")
        store.webhooks.setdefault(CLUSTERS, []).append(_deny_replicas_with_bounds)

    def step(self) -> None:
        """Apply every topology once."""
        for cluster in self._store.list(CLUSTERS):
            if not (cluster["spec"].get("paused") or "cluster.x-k8s.io/paused" in annotations_of(cluster)):
                for topology in machine_deployments_of(cluster):
                    self._apply(cluster, topology)

    def _apply(self, cluster: Object, topology: Object) -> None:
        namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        selector = f"cluster.x-k8s.io/cluster-name={name},{NAME}={topology['name']}"
        names = [item["metadata"]["name"] for item in self._store.list(DEPLOYMENTS, namespace, labels=selector)]
        from_class = self._class_of(cluster, topology)
        if not names and from_class:
            names = [f"{name}-{topology['name']}-{template_hash([name, topology['name']])}"]
        for deployment in names:
            self._apply_one(self._desired(cluster, topology, from_class, deployment))

    def _apply_one(self, desired: Object) -> None:
        applied = self._store.apply(DEPLOYMENTS, desired, manager=self._client.manager, force=True)
        if "replicas" not in applied["spec"]:
            # the webhook of MachineDeployments sets the replicas of a new object that an autoscaler manages
            replicas = int(annotations_of(applied).get(MIN_SIZE, "1"))
            self._client.patch(applied, {"spec": {"replicas": replicas}}, manager="manager")

    def _class_of(self, cluster: Object, topology: Object) -> Object:
        """Return the ClusterClass's entry for machine deployments of this class; empty if there is no class."""
        spec = cluster["spec"]["topology"]
        name = (spec.get("classRef") or {}).get("name") or spec.get("class")
        cluster_class = self._client.find(CLASSES, cluster["metadata"]["namespace"], str(name)) or {"spec": {}}
        entries = (cluster_class["spec"].get("workers") or {}).get("machineDeployments") or ()
        return next((entry for entry in entries if entry["class"] == topology["class"]), {})

    def _desired(self, cluster: Object, topology: Object, from_class: Object, name: str) -> Object:
        """Return the object to apply; the topology's metadata override those of the class."""
        # The class of v1beta1 has its metadata under `template`.
        metadata = from_class.get("metadata") or (from_class.get("template") or {}).get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), **annotations_of(topology)}
        cluster_name = cluster["metadata"]["name"]
        labels = {
            **(metadata.get("labels") or {}),
            **labels_of(topology),
            "cluster.x-k8s.io/cluster-name": cluster_name,
            OWNED: "",
            NAME: topology["name"],
        }
        spec: Object = {} if topology.get("replicas") is None else {"replicas": topology["replicas"]}
        if annotations:
            spec["template"] = {"metadata": {"annotations": annotations}}
        if from_class:
            spec |= self._template(cluster, topology, from_class, labels, annotations)
        return {
            "apiVersion": f"cluster.x-k8s.io/{self._store.resource(DEPLOYMENTS).storage}",
            "kind": "MachineDeployment",
            "metadata": {
                "name": name,
                "namespace": cluster["metadata"]["namespace"],
                "labels": labels,
                **({"annotations": annotations} if annotations else {}),
            },
            "spec": spec,
        }

    def _template(
        self, cluster: Object, topology: Object, from_class: Object, labels: dict[str, str], annotations: dict[str, str]
    ) -> Object:
        """Return the part of the spec with the machine template."""
        name = cluster["metadata"]["name"]
        machine_labels = {key: labels[key] for key in ("cluster.x-k8s.io/cluster-name", OWNED, NAME)}
        zone = topology.get("failureDomain") or from_class.get("failureDomain")
        reference = from_class.get("infrastructure") or (from_class.get("template") or {}).get("infrastructure") or {}
        return {
            "clusterName": name,
            "selector": {"matchLabels": machine_labels},
            "template": {
                "metadata": {"labels": {**labels, **machine_labels}}
                | ({"annotations": annotations} if annotations else {}),
                "spec": {
                    "clusterName": name,
                    "version": cluster["spec"]["topology"].get("version", ""),
                    "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                    "infrastructureRef": reference.get("templateRef") or reference.get("ref"),
                    **({"failureDomain": zone} if zone else {}),
                },
            },
        }


def machine_deployments_of(cluster: Object) -> list[Object]:
    """Return the entries of a Cluster's topology; none if it has no topology."""
    workers = ((cluster.get("spec") or {}).get("topology") or {}).get("workers") or {}
    return [] if is_deleting(cluster) else list(workers.get("machineDeployments") or ())


def _deny_replicas_with_bounds(_old: Object | None, new: Object) -> None:
    detail = f"cannot be set for topologies with autoscaler annotations {MIN_SIZE} and {MAX_SIZE}"
    path = "spec.topology.workers.machineDeployments[{}].replicas"
    causes = [
        Cause.invalid(path.format(entry["name"]), str(entry["replicas"]), detail)
        for entry in machine_deployments_of(new)
        if entry.get("replicas") is not None and annotations_of(entry).keys() & {MIN_SIZE, MAX_SIZE}
    ]
    if causes:
        raise invalid("cluster.x-k8s.io", "Cluster", new["metadata"]["name"], causes)
