"""What an API server checks of an object that is written, and what it changes in it by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.kube.errors import ApiError, conflict, invalid
from sandbox.kube.patches import clone
from sandbox.kube.resources import Resource, Version
from sandbox.kube.schema import Cause, Json, Object, default, prune, validate

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
SYSTEM_METADATA = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "selfLink",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)


def as_scale(version: Version, body: Object, *, strict: bool) -> Object:
    """The `autoscaling/v1` Scale of an object. `strict`: without a replicas field it is an error."""
    if version.scale is None:
        raise ApiError(404, "the server could not find the requested resource", details={})
    replicas = _at(body, version.scale["specReplicasPath"])
    if replicas is None and strict:
        text = f'the spec replicas field "{version.scale["specReplicasPath"]}" does not exist'
        raise ApiError(500, f"Internal error occurred: {text}", details={"causes": [{"message": text}]})
    metadata = body["metadata"]
    status: Object = {"replicas": _at(body, version.scale["statusReplicasPath"]) or 0}
    selector = _at(body, version.scale.get("labelSelectorPath", ""))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in metadata
        },
        "spec": {"replicas": replicas or 0},
        "status": status | ({"selector": selector} if selector else {}),
    }


def scaled(kind: Resource, version: Version, old: Object, scale: Object) -> Object:
    """The object with the replicas, and the resourceVersion, of a Scale that was written."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    name = old["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        cause = Cause(reason="FieldValueInvalid", field="patch", message=f"Invalid value: {replicas!r}: no integer")
        raise ApiError(422, f' "" is invalid: patch: {cause.message}', details={"causes": [cause.as_json()]})
    assert version.scale is not None  # as_scale has refused it before
    path = version.scale["specReplicasPath"]
    if replicas < 0:
        text = f"Invalid value: {replicas}: should be a non-negative integer"
        raise invalid(kind.group, kind.kind, name, [Cause(reason="FieldValueInvalid", field=path, message=text)])
    new: Object = clone(old)
    parts = path.strip(".").split(".")
    target = new
    for part in parts[:-1]:
        target = target.setdefault(part, {})
    target[parts[-1]] = replicas
    wanted = (scale.get("metadata") or {}).get("resourceVersion")
    if wanted:
        new["metadata"]["resourceVersion"] = wanted
    return new


def check_version(kind: Resource, name: str, old: Object, new: Object) -> None:
    """ApiError 409 where the writer names another resourceVersion than the present one."""
    wanted = (new.get("metadata") or {}).get("resourceVersion")
    if wanted in (None, ""):
        return
    if not isinstance(wanted, str) or not wanted.isdigit():
        raise ApiError(500, f'strconv.ParseUint: parsing "{wanted}": invalid syntax', reason="")
    if wanted != old["metadata"]["resourceVersion"]:
        raise conflict(kind.group, kind.plural, name)


def check_type(kind: Resource, version: str, body: Object) -> None:
    """ApiError where kind and apiVersion are not those of the address."""
    given_kind, given_version = body.get("kind", kind.kind), body.get("apiVersion", kind.api_version(version))
    if given_kind != kind.kind:
        cause = Cause(
            reason="FieldValueInvalid", field="kind", message=f'Invalid value: "{given_kind}": must be {kind.kind}'
        )
        raise invalid(kind.group, str(given_kind), (body.get("metadata") or {}).get("name", ""), [cause])
    if given_version != kind.api_version(version):
        raise ApiError(
            400,
            f"the API version in the data ({given_version}) does not match the expected API version "
            f"({kind.api_version(version)})",
        )


def keep_system_fields(kind: Resource, version: Version, old: Object, new: Object, subresource: str) -> Object:
    """A written object whose system metadata, and what its subresource does not reach, are as they were."""
    given = new.get("metadata")
    given = given if isinstance(given, dict) else {}
    given_uid = given.get("uid")
    if given_uid and given_uid != old["metadata"]["uid"]:
        cause = Cause(
            reason="FieldValueInvalid",
            field="metadata.uid",
            message=f'Invalid value: "{given_uid}": field is immutable',
        )
        raise invalid(kind.group, kind.kind, old["metadata"]["name"], [cause])
    if subresource == "status":
        kept: Object = clone(old)
        kept.pop("status", None)
        if "status" in new:
            kept["status"] = new["status"]
        return kept
    new = dict(new)
    new["metadata"] = {key: item for key, item in given.items() if key not in SYSTEM_METADATA}
    new["metadata"] |= {key: item for key, item in old["metadata"].items() if key in SYSTEM_METADATA}
    if version.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    return new


def cleaned(kind: Resource, version: str, new: Object) -> Object:
    """Without unknown fields and empty metadata, with the defaults of the schema."""
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
    """ApiError 422 with every fault of an object that is about to be stored."""
    metadata = new["metadata"]
    name = metadata["name"]
    _check_texts(metadata)
    causes: list[Cause] = []
    if not _NAME.match(name) or len(name) > 253:
        causes.append(
            Cause(
                reason="FieldValueInvalid",
                field="metadata.name",
                message=f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'example.com', regex used for validation is "
                "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            )
        )
    if old is not None and "deletionTimestamp" in old["metadata"]:
        causes.extend(_finalizer_faults(old["metadata"], metadata))
    served = kind.version(version)
    if served.schema is not None:
        causes.extend(validate(new, served.schema, old=old))
    if served.scale is not None:
        causes.extend(_replicas_faults(new, served.scale["specReplicasPath"]))
    if causes:
        raise invalid(kind.group, kind.kind, name, causes)


def _check_texts(metadata: Object) -> None:
    for key in ("annotations", "labels"):
        for label, item in (metadata.get(key) or {}).items():
            if not isinstance(item, str):
                text = f"Invalid value: metadata.{key}[{label}]: {item!r} is no string"
                cause = Cause(reason="FieldValueInvalid", field="patch", message=text)
                raise ApiError(422, f' "" is invalid: patch: {text}', details={"causes": [cause.as_json()]})


def _finalizer_faults(old: Object, new: Object) -> Iterator[Cause]:
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if added:
        quote = ", ".join(f'"{item}"' for item in added)
        yield Cause(
            reason="FieldValueForbidden",
            field="metadata.finalizers",
            message="Forbidden: no new finalizers can be added if the object is being deleted, found new "
            f"finalizers []string{{{quote}}}",
        )


def _replicas_faults(body: Object, path: str) -> Iterator[Cause]:
    replicas = _at(body, path)
    if isinstance(replicas, str):
        text = f"Invalid value: 0: {path} accessor error: {replicas} is of the type string, expected int64"
        yield Cause(reason="FieldValueInvalid", field=path, message=text)
    elif isinstance(replicas, int) and replicas < 0:
        text = f"Invalid value: {replicas}: should be a non-negative integer"
        yield Cause(reason="FieldValueInvalid", field=path, message=text)


def _at(body: Json, path: str) -> Json:
    for part in filter(None, path.split(".")):
        body = body.get(part) if isinstance(body, dict) else None
    return body if path else None
