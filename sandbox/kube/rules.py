"""The checks and the changes that an API server makes when an object is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.kube.errors import ApiError, conflict, invalid, invalid_patch
from sandbox.kube.patches import clone
from sandbox.kube.resources import Resource, Version
from sandbox.kube.schema import Cause, Json, Object, default, prune, validate

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SYSTEM_METADATA = frozenset(
    (
        *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"),
        *("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"),
    )
)


def as_scale(version: Version, body: Object, *, strict: bool) -> Object:
    """Return the `autoscaling/v1` Scale of an object; with `strict`, an error if it has no replicas field."""
    if version.scale is None:
        raise ApiError(404, "the server could not find the requested resource", details={})
    replicas = _at(body, version.scale["specReplicasPath"])
    if replicas is None and strict:
        text = f'the spec replicas field "{version.scale["specReplicasPath"]}" does not exist'
        raise ApiError(500, f"Internal error occurred: {text}", details={"causes": [{"message": text}]})
    metadata = body["metadata"]
    status: Object = {"replicas": _at(body, version.scale["statusReplicasPath"]) or 0}
    selector = _at(body, version.scale.get("labelSelectorPath", ""))
    copied = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in copied if key in metadata},
        "spec": {"replicas": replicas or 0},
        "status": status | ({"selector": selector} if selector else {}),
    }


def with_scale(kind: Resource, version: Version, old: Object, scale: Object) -> Object:
    """Return the object with the replicas and the resourceVersion of a written Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise invalid_patch(Cause.invalid("patch", repr(replicas), "no integer"))
    assert version.scale is not None  # as_scale raised an error before
    path = version.scale["specReplicasPath"]
    if causes := list(_replicas_faults(replicas, path)):
        raise invalid(kind.group, kind.kind, old["metadata"]["name"], causes)
    new: Object = clone(old)
    *parents, last = path.strip(".").split(".")
    target = new
    for part in parents:
        target = target.setdefault(part, {})
    target[last] = replicas
    if expected := (scale.get("metadata") or {}).get("resourceVersion"):
        new["metadata"]["resourceVersion"] = expected
    return new


def check_version(kind: Resource, name: str, old: Object, new: Object) -> None:
    """Raise ApiError 409 if the writer names another resourceVersion than the stored one."""
    expected = (new.get("metadata") or {}).get("resourceVersion")
    if expected in (None, ""):
        return
    if not isinstance(expected, str) or not expected.isdigit():
        raise ApiError(500, f'strconv.ParseUint: parsing "{expected}": invalid syntax')
    if expected != old["metadata"]["resourceVersion"]:
        raise conflict(kind.group, kind.plural, name)


def check_type(kind: Resource, version: str, body: Object) -> None:
    """Raise ApiError if kind or apiVersion differ from those of the URL."""
    expected = kind.api_version(version)
    body_kind, body_version = body.get("kind", kind.kind), body.get("apiVersion", expected)
    if body_kind != kind.kind:
        cause = Cause.invalid("kind", f'"{body_kind}"', f"must be {kind.kind}")
        raise invalid(kind.group, str(body_kind), (body.get("metadata") or {}).get("name", ""), [cause])
    if body_version != expected:
        text = f"the API version in the data ({body_version}) does not match the expected API version ({expected})"
        raise ApiError(400, text)


def keep_system_fields(kind: Resource, version: Version, old: Object, new: Object, subresource: str) -> Object:
    """Return the written object with the stored system metadata and without changes outside its subresource."""
    metadata = new.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    uid = metadata.get("uid")
    if uid and uid != old["metadata"]["uid"]:
        cause = Cause.invalid("metadata.uid", f'"{uid}"', "field is immutable")
        raise invalid(kind.group, kind.kind, old["metadata"]["name"], [cause])
    if subresource == "status":
        kept: Object = clone(old)
        kept.pop("status", None)
        return kept | ({"status": new["status"]} if "status" in new else {})
    new = dict(new)
    new["metadata"] = {key: item for key, item in metadata.items() if key not in SYSTEM_METADATA}
    new["metadata"] |= {key: item for key, item in old["metadata"].items() if key in SYSTEM_METADATA}
    if version.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    return new


def prepare(kind: Resource, version: str, new: Object) -> Object:
    """Return the object without unknown fields and empty metadata, with the defaults of its schema."""
    schema = kind.version(version).schema
    if schema is None:
        new = dict(new)
    else:
        new = prune(new, schema)
        default(new, schema)
    new.pop("apiVersion", None)
    new.pop("kind", None)
    metadata = new["metadata"]
    metadata.pop("managedFields", None)
    for key in ("annotations", "labels", "finalizers", "ownerReferences"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    return new


def check(kind: Resource, version: str, new: Object, old: Object | None = None) -> None:
    """Raise ApiError 422 with every fault of an object that is about to be stored."""
    metadata = new["metadata"]
    name = metadata["name"]
    _check_texts(metadata)
    causes: list[Cause] = []
    if not _NAME.match(name) or len(name) > 253:
        causes.append(Cause.invalid("metadata.name", f'"{name}"', _NAME_RULE))
    if old is not None and "deletionTimestamp" in old["metadata"]:
        causes.extend(_finalizer_faults(old["metadata"], metadata))
    served = kind.version(version)
    if served.schema is not None:
        causes.extend(validate(new, served.schema, old=old))
    if served.scale is not None:
        path = served.scale["specReplicasPath"]
        causes.extend(_replicas_faults(_at(new, path), path))
    if causes:
        raise invalid(kind.group, kind.kind, name, causes)


def _check_texts(metadata: Object) -> None:
    for key in ("annotations", "labels"):
        for label, item in (metadata.get(key) or {}).items():
            if not isinstance(item, str):
                raise invalid_patch(Cause.invalid("patch", f"metadata.{key}[{label}]", f"{item!r} is no string"))


def _finalizer_faults(old: Object, new: Object) -> Iterator[Cause]:
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if added:
        quote = ", ".join(f'"{item}"' for item in added)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{quote}}}"
        )
        yield Cause(reason="FieldValueForbidden", field="metadata.finalizers", message=text)


def _replicas_faults(replicas: Json, field: str) -> Iterator[Cause]:
    if isinstance(replicas, str):
        yield Cause.invalid(field, "0", f"{field} accessor error: {replicas} is of the type string, expected int64")
    elif isinstance(replicas, int) and replicas < 0:
        yield Cause.invalid(field, str(replicas), "should be a non-negative integer")


def _at(body: Json, path: str) -> Json:
    for part in filter(None, path.split(".")):
        body = body.get(part) if isinstance(body, dict) else None
    return body if path else None
