"""The resources of an API server: its own, and those of custom resource definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.kube.schema import Json, Object


@dataclass(frozen=True, kw_only=True)
class Version:
    """One served version of a resource. `schema` is None for built-in resources."""

    name: str
    schema: dict[str, Json] | None = None
    status: bool = False
    scale: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind of object: names, scope and served versions, the preferred one first."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    versions: tuple[Version, ...]
    storage: str
    #: the fields that field selectors support besides name and namespace
    selectable: frozenset[str] = frozenset()

    @property
    def full_name(self) -> str:
        """Return the full name, such as `machinesets.machine.openshift.io`, or `nodes` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def version(self, name: str | None) -> Version:
        """Return the version with this name; without a name, the storage version."""
        return next(version for version in self.versions if version.name == (name or self.storage))

    def api_version(self, version: str) -> str:
        """Return the ``apiVersion`` of objects of a version."""
        return f"{self.group}/{version}" if self.group else version

    @classmethod
    def of_crd(cls, crd: Object) -> Resource:
        """Return the resource of a custom resource definition."""
        spec = crd["spec"]
        served = [version for version in spec["versions"] if version.get("served", True)]
        return cls(
            group=spec["group"],
            plural=spec["names"]["plural"],
            kind=spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
            storage=next(version["name"] for version in spec["versions"] if version.get("storage")),
            versions=tuple(
                Version(
                    name=version["name"],
                    schema=version["schema"]["openAPIV3Schema"],
                    status="status" in version.get("subresources", {}),
                    scale=version.get("subresources", {}).get("scale"),
                )
                for version in sorted(served, key=lambda item: _version_rank(item["name"]), reverse=True)
            ),
        )


def _version_rank(name: str) -> tuple[int, int, int]:
    """Return the sort key for Kubernetes' order of versions: stable over beta over alpha, then the higher number."""
    match = re.match(r"^v(\d+)(?:(alpha|beta)(\d+))?$", name)
    if match is None:
        return (-1, 0, 0)
    return ({None: 2, "beta": 1, "alpha": 0}[match[2]], int(match[1]), int(match[3] or 0))


def _native(
    plural: str,
    kind: str,
    *,
    namespaced: bool,
    status: bool = False,
    group: str = "",
    scale: bool = False,
    selectable: tuple[str, ...] = (),
) -> Resource:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return Resource(
        group=group,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        versions=(Version(name="v1", status=status, scale=paths if scale else None),),
        storage="v1",
        selectable=frozenset(selectable),
    )


_OF_EVENTS = (
    *(f"involvedObject.{key}" for key in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
    *("reason", "reportingComponent", "source", "type"),
)
_OF_PODS = (
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    *("status.phase", "status.podIP", "status.nominatedNodeName"),
)
NATIVE = (
    _native("deployments", "Deployment", namespaced=True, status=True, group="apps", scale=True),
    _native("replicasets", "ReplicaSet", namespaced=True, status=True, group="apps", scale=True),
    _native("daemonsets", "DaemonSet", namespaced=True, status=True, group="apps"),
    _native("configmaps", "ConfigMap", namespaced=True),
    _native("events", "Event", namespaced=True, selectable=_OF_EVENTS),
    _native("namespaces", "Namespace", namespaced=False, status=True, selectable=("status.phase",)),
    _native("nodes", "Node", namespaced=False, status=True, selectable=("spec.unschedulable",)),
    _native("secrets", "Secret", namespaced=True, selectable=("type",)),
    _native("pods", "Pod", namespaced=True, status=True, selectable=_OF_PODS),
    _native("persistentvolumes", "PersistentVolume", namespaced=False, status=True),
    _native("persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True, status=True),
    _native("storageclasses", "StorageClass", namespaced=False, group="storage.k8s.io"),
    _native("volumeattachments", "VolumeAttachment", namespaced=False, status=True, group="storage.k8s.io"),
    _native("csinodes", "CSINode", namespaced=False, group="storage.k8s.io"),
    _native("poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, status=True, group="policy"),
)
