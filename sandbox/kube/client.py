"""The client of a controller. It reads and writes objects as one field manager, like controller-runtime's client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store, rfc3339


@dataclass(frozen=True)
class Client:
    """Reads and writes objects of a store as one field manager. An object's kind determines its resource."""

    store: Store
    manager: str

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object; None if it does not exist."""
        try:
            return self.store.get(resource, namespace, name)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def create(self, resource: str, body: Object) -> Object:
        """Create an object and return it as stored."""
        return self.store.create(resource, body, manager=self.manager)

    def patch(self, item: Object, patch: Object, *, subresource: str = "", manager: str = "") -> Object:
        """Apply a merge patch to an object and return the result. `manager` replaces the client's field manager."""
        resource, metadata = self.store.resource_of(item).full_name, item["metadata"]
        namespace, manager = metadata.get("namespace", ""), manager or self.manager
        return self.store.patch(resource, namespace, metadata["name"], patch, subresource=subresource, manager=manager)

    def annotate(self, item: Object, annotations: dict[str, str | None]) -> Object:
        """Set annotations of an object. The value None removes an annotation."""
        return self.patch(item, {"metadata": {"annotations": annotations}})

    def patch_status(self, item: Object, status: Object, *, manager: str = "") -> Object:
        """Apply a merge patch to the status of an object."""
        return self.patch(item, {"status": status}, subresource="status", manager=manager)

    def update_status(self, item: Object, status: Object) -> None:
        """Replace the whole status of an object: a field that is left out is removed."""
        if item.get("status") == status:
            return
        resource, metadata = self.store.resource_of(item).full_name, item["metadata"]
        try:
            current = self.store.get(resource, metadata["namespace"], metadata["name"])
            self.store.put(resource, {**current, "status": status}, subresource="status", manager=self.manager)
        except ApiError as error:
            if error.code not in (404, 409):  # 404: the object is deleted already; 409: the next step retries
                raise

    def create_or_patch(self, resource: str, namespace: str, name: str, body: Object) -> Object:
        """Create the object, or apply the body to it as a merge patch."""
        try:
            return self.store.patch(resource, namespace, name, body, manager=self.manager)
        except ApiError as error:
            if error.code != 404:
                raise
        metadata = {**body.get("metadata", {}), "name": name} | ({"namespace": namespace} if namespace else {})
        return self.create(resource, {**body, "metadata": metadata})

    def delete(self, item: Object) -> None:
        """Delete an object."""
        resource, metadata = self.store.resource_of(item).full_name, item["metadata"]
        self.store.delete(resource, metadata.get("namespace", ""), metadata["name"])

    def record_event(self, about: Object, reason: str, message: str, now: datetime, *, count: bool = True) -> None:
        """Record a Warning. As in the event recorder, a repeated Warning raises its count, unless `count` is False."""
        metadata, stamp = about["metadata"], rfc3339(now)
        digest = hashlib.sha256(f"{metadata['uid']}{reason}{without_request_id(message)}".encode()).hexdigest()[:16]
        name, namespace = f"{metadata['name']}.{digest}", metadata["namespace"]
        event = self.find("events", namespace, name)
        if event is not None:
            if count:
                self.patch(event, {"count": event["count"] + 1, "lastTimestamp": stamp, "message": message})
            return
        involved = {"namespace": namespace, "name": metadata["name"], "uid": metadata["uid"]}
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], **involved},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": self.manager},
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
        }
        self.create("events", body)


def without_request_id(text: str) -> str:
    """Return an error message of AWS without the request id, which always differs."""
    return text.split("request id:")[0]
