"""Readers and builders of objects that all three machine APIs share."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import datetime

from sandbox.kube.cloud import Instance
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import parse_time, rfc3339

ZONE_LABEL = "topology.kubernetes.io/zone"
#: the label that has the name of the pool if the cluster has no labels of Evenkeel
USERS_POOL_LABEL = "example.com/pool"
_TEN_DAYS = 864_000.0  # in seconds


def annotations_of(item: Object) -> dict[str, str]:
    """Return the annotations of an object; empty if it has none."""
    return (item.get("metadata") or {}).get("annotations") or {}


def labels_of(item: Object) -> dict[str, str]:
    """Return the labels of an object; empty if it has none."""
    return (item.get("metadata") or {}).get("labels") or {}


def status_of(item: Object) -> Object:
    """Return the status of an object; empty if it has none."""
    return item.get("status") or {}


def is_deleting(item: Object) -> bool:
    """Return True if the object is being deleted."""
    return "deletionTimestamp" in item["metadata"]


def age_of(item: Object, now: datetime) -> float:
    """Return the seconds since creation."""
    return (now - parse_time(item["metadata"]["creationTimestamp"])).total_seconds()


def age_priority(machine: Object, now: datetime) -> float:
    """Return 0 for a new machine and up to 1 for an old one, as Cluster API and OpenShift weigh age."""
    return 1.0 - math.exp(-max(0.0, age_of(machine, now)) / _TEN_DAYS)


def deployment_of(name: str, namespace: str, arguments: list[str], *, replicas: int = 1) -> Object:
    """Return a Deployment of apps/v1 with one container."""
    labels = {"app": name}
    container = {"name": name, "image": f"registry.example/{name}", "args": arguments}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def arguments_of(deployment: Object) -> tuple[str, ...] | None:
    """Return the arguments of a Deployment's only container; None if it has no replicas."""
    if not deployment["spec"].get("replicas", 1):
        return None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return tuple(container.get("args") or ())


def controller_reference(owner: Object) -> Object:
    """Return the owner reference of a controller."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {**reference, "controller": True, "blockOwnerDeletion": True}


def provider_id(instance: Instance) -> str:
    """Return the provider ID of an instance, as AWS has it."""
    return f"aws:///{instance.zone}/{instance.id}"


def template_hash(template: Json) -> str:
    """Return a hash of a template, five characters long."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:5]


def positive(**numbers: int) -> dict[str, int]:
    """Return the numbers without zeros: Go omits them from the statuses of these APIs (`omitempty`)."""
    return {key: value for key, value in numbers.items() if value}


def condition(
    kind: str,
    status: str,
    now: datetime,
    *,
    reason: str = "",
    severity: str = "",
    message: str = "",
    always_reason: bool = False,
) -> Object:
    """Return a condition. Without `always_reason`, a condition that is True has no reason."""
    if always_reason:
        reason = reason or kind
    elif status == "True":
        reason = ""
    optional = {"reason": reason, "severity": severity, "message": message}
    entry: Object = {"type": kind, "status": status, "lastTransitionTime": rfc3339(now)}
    return entry | {key: text for key, text in optional.items() if text}


def conditions_of(item: Object) -> dict[str, Object]:
    """Return the conditions of an object by type."""
    return {entry["type"]: entry for entry in status_of(item).get("conditions") or ()}


def as_selector(labels: dict[str, str]) -> str:
    """Return labels as the text of a selector, sorted by key."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
