"""What the objects of all three machine APIs have in common, read and written."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import UTC, datetime

from sandbox.kube.cloud import Instance
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import rfc3339

ZONE_LABEL = "topology.kubernetes.io/zone"
#: by what the users of a cluster without our labels tell its pools apart
USERS_POOL_LABEL = "example.com/pool"
_TEN_DAYS = 864_000.0  # seconds


def annotations_of(item: Object) -> dict[str, str]:
    return (item.get("metadata") or {}).get("annotations") or {}


def labels_of(item: Object) -> dict[str, str]:
    return (item.get("metadata") or {}).get("labels") or {}


def status_of(item: Object) -> Object:
    return item.get("status") or {}


def is_deleting(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def age_of(item: Object, now: datetime) -> float:
    """Seconds since creation."""
    return (now - parse_time(item["metadata"]["creationTimestamp"])).total_seconds()


def seniority(machine: Object, now: datetime) -> float:
    """From 0 for a new machine towards 1, as Cluster API and OpenShift weigh age."""
    return 1.0 - math.exp(-max(0.0, age_of(machine, now)) / _TEN_DAYS)


def deployment_of(name: str, namespace: str, arguments: list[str], *, replicas: int = 1) -> Object:
    """A Deployment of apps/v1 with one container."""
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": name, "image": f"registry.example/{name}", "args": arguments}]},
            },
        },
    }


def arguments_of(deployment: Object) -> tuple[str, ...] | None:
    """What the one container of a Deployment is started with; None where none runs."""
    if not deployment["spec"].get("replicas", 1):
        return None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return tuple(container.get("args") or ())


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def controller_reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def provider_id(instance: Instance) -> str:
    return f"aws:///{instance.zone}/{instance.id}"


def without_request_id(text: str) -> str:
    return text.split("request id:")[0]


def template_hash(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:5]


def positive(**numbers: int) -> dict[str, int]:
    """Go leaves zeros out of the statuses of these APIs (`omitempty`)."""
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
    condition: Object = {"type": kind, "status": status, "lastTransitionTime": rfc3339(now)}
    if always_reason:
        condition["reason"] = reason or kind
    elif reason and status != "True":
        condition["reason"] = reason
    if severity:
        condition["severity"] = severity
    if message:
        condition["message"] = message
    return condition


def as_selector(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
