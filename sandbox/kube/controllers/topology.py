"""Cluster API's topology controller: a Cluster's topology owns what it names on its MachineDeployments.

It applies by server-side apply with force, as `capi-topology`, whenever one of them changes: keys that the topology or
its class names are put back, keys that it never named stay, and replicas are its own only where the topology has them.
Sources (kubernetes-sigs/cluster-api): internal/controllers/topology/cluster, structuredmerge/serversidepatchhelper.go
and exp/topology/desiredstate/desired_state.go; the webhook of Cluster.
"""

from __future__ import annotations

from sandbox.kube.controllers.objects import annotations_of, is_deleting, labels_of, template_hash
from sandbox.kube.errors import ApiError, invalid
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
    """Every step is an event of every MachineDeployment."""

    manager = "capi-topology"

    def __init__(self, store: Store) -> None:
        self._store = store
        store.webhooks.setdefault(CLUSTERS, []).append(_refuse_replicas_beside_bounds)

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
        made = self._store.apply(DEPLOYMENTS, desired, manager=self.manager, force=True)
        if "replicas" not in made["spec"]:
            # the webhook of MachineDeployments, for a new one that an autoscaler is to care for
            replicas = int(annotations_of(made).get(MIN_SIZE, "1"))
            metadata = made["metadata"]
            patch = {"spec": {"replicas": replicas}}
            self._store.patch(DEPLOYMENTS, metadata["namespace"], metadata["name"], patch, manager="manager")

    def _class_of(self, cluster: Object, topology: Object) -> Object:
        """What the ClusterClass says of machine deployments of this class; nothing where it is not there."""
        wanted = cluster["spec"]["topology"]
        name = (wanted.get("classRef") or {}).get("name") or wanted.get("class")
        try:
            item = self._store.get(CLASSES, cluster["metadata"]["namespace"], str(name))
        except ApiError:
            return {}
        entries = (item["spec"].get("workers") or {}).get("machineDeployments") or ()
        return next((entry for entry in entries if entry["class"] == topology["class"]), {})

    def _desired(self, cluster: Object, topology: Object, from_class: Object, name: str) -> Object:
        """All that is applied; the topology's metadata win over those of the class."""
        # v1beta1's class has its metadata under `template`
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
        self, cluster: Object, topology: Object, from_class: Object, labels: dict[str, str], notes: dict[str, str]
    ) -> Object:
        """The part of the spec that machines are made from."""
        name = cluster["metadata"]["name"]
        machine_labels = {key: labels[key] for key in ("cluster.x-k8s.io/cluster-name", OWNED, NAME)}
        zone = topology.get("failureDomain") or from_class.get("failureDomain")
        reference = from_class.get("infrastructure") or (from_class.get("template") or {}).get("infrastructure") or {}
        return {
            "clusterName": name,
            "selector": {"matchLabels": machine_labels},
            "template": {
                "metadata": {"labels": {**labels, **machine_labels}} | ({"annotations": notes} if notes else {}),
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
    """The entries of a Cluster's topology; none where it has no topology."""
    workers = ((cluster.get("spec") or {}).get("topology") or {}).get("workers") or {}
    return [] if is_deleting(cluster) else list(workers.get("machineDeployments") or ())


def _refuse_replicas_beside_bounds(_old: Object | None, new: Object) -> None:
    causes = [
        Cause(
            reason="FieldValueInvalid",
            field=f"spec.topology.workers.machineDeployments[{entry['name']}].replicas",
            message=f"Invalid value: {entry['replicas']}: cannot be set for topologies with autoscaler annotations "
            f"{MIN_SIZE} and {MAX_SIZE}",
        )
        for entry in machine_deployments_of(new)
        if entry.get("replicas") is not None and annotations_of(entry).keys() & {MIN_SIZE, MAX_SIZE}
    ]
    if causes:
        raise invalid("cluster.x-k8s.io", "Cluster", new["metadata"]["name"], causes)
