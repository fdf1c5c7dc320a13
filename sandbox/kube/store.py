"""The objects behind the simulated API and every rule for changing them.

HTTP requests, controllers and tests go through the same methods, so an in-process write is checked, versioned and
attributed exactly as a write over the wire. The rules are those of a real kube-apiserver; `tests/contract` runs one
suite against both.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import cast

from sandbox.kube.errors import ApiError, bad_patch, conflict, details_of, expired, invalid, not_found
from sandbox.kube.patches import PatchError, clone, json_patch, merge_patch
from sandbox.kube.schema import Cause, Json, default, prune, validate
from sandbox.kube.selectors import parse_field_selector, parse_label_selector

Object = dict[str, Json]
Clock = Callable[[], datetime]
Path = tuple[str, ...]
Key = tuple[str, str]  # namespace, name
Objects = list[Object]

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_SYSTEM_METADATA = frozenset(
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


@dataclass(frozen=True, kw_only=True)
class Version:
    """One served version of a resource. `schema` is None for the resources that Kubernetes itself defines."""

    name: str
    schema: dict[str, Json] | None = None
    status: bool = False
    scale: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind of object: its names, its scope and its served versions, the preferred one first."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    versions: tuple[Version, ...]
    storage: str

    @property
    def full_name(self) -> str:
        """`machinesets.machine.openshift.io`, or `nodes` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def version(self, name: str | None) -> Version:
        wanted = name or self.storage
        return next(version for version in self.versions if version.name == wanted)

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    @classmethod
    def of_crd(cls, crd: Object) -> Resource:
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
    """Kubernetes' order of versions: stable over beta over alpha, then the higher number."""
    match = re.match(r"^v(\d+)(?:(alpha|beta)(\d+))?$", name)
    if match is None:
        return (-1, 0, 0)
    return ({None: 2, "beta": 1, "alpha": 0}[match[2]], int(match[1]), int(match[3] or 0))


def _native(plural: str, kind: str, *, namespaced: bool, status: bool = False) -> Resource:
    return Resource(
        group="",
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        versions=(Version(name="v1", status=status),),
        storage="v1",
    )


NATIVE = (
    _native("configmaps", "ConfigMap", namespaced=True),
    _native("events", "Event", namespaced=True),
    _native("namespaces", "Namespace", namespaced=False, status=True),
    _native("nodes", "Node", namespaced=False, status=True),
    _native("secrets", "Secret", namespaced=True),
)


@dataclass(frozen=True, kw_only=True)
class _Managed:
    """What one writer owns of an object."""

    manager: str
    subresource: str
    api_version: str
    time: str
    paths: set[Path]


@dataclass(kw_only=True)
class _Record:
    """One stored object and the answers made from it. A change replaces the record: open lists keep the old one."""

    body: Object
    managed: list[_Managed] = field(default_factory=list)
    shown: dict[str, Object] = field(default_factory=dict)
    encoded: dict[str, bytes] = field(default_factory=dict)


Found = list[tuple[Key, _Record]]
_Owners = list[_Managed]


@dataclass(frozen=True, kw_only=True)
class _OpenList:
    """What is left of a list whose first page was given out: the objects as they were then."""

    records: Found
    remaining: int | None
    version: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a list. `remaining` is None when the server would not say how much is left."""

    items: list[bytes]
    resource_version: str
    continue_token: str
    remaining: int | None


class Store:
    """All objects of one API server. Every method is safe to call from many threads.

    `resource` arguments are full names: `nodes`, `machinesets.machine.openshift.io`. Errors are `ApiError`.
    """

    def __init__(self, crds: Iterable[Object], *, clock: Clock | None = None, seed: int = 0) -> None:
        self.clock: Clock = clock or (lambda: datetime.now(UTC))
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._versions = count(1)
        self._version = 0
        self._resources: dict[str, Resource] = {}
        self._records: dict[str, dict[Key, _Record]] = {}
        self._lists: dict[str, _OpenList] = {}
        for resource in (*NATIVE, *(Resource.of_crd(crd) for crd in crds)):
            self._resources[resource.full_name] = resource
            self._records[resource.full_name] = {}
        for namespace in ("default", "kube-system"):
            self.create("namespaces", {"metadata": {"name": namespace}}, manager="kube-apiserver")

    # -- what there is ------------------------------------------------------------------------------------------

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(self._resources.values())

    def resource(self, name: str) -> Resource:
        try:
            return self._resources[name]
        except KeyError:
            raise ApiError(404, "404 page not found") from None

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, resource: str, namespace: str, name: str, *, version: str | None = None) -> Object:
        """A copy of one object, with its managedFields."""
        kind = self.resource(resource)
        with self._lock:
            return cast("Object", clone(self._shown(kind, self._find(kind, namespace, name), version or kind.storage)))

    def encoded(self, resource: str, namespace: str, name: str, *, version: str) -> bytes:
        """One object as JSON; made once per change, because lists of hundreds are read far more often."""
        kind = self.resource(resource)
        with self._lock:
            return self._encoded(kind, self._find(kind, namespace, name), version)

    def list(
        self,
        resource: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        version: str | None = None,
    ) -> Objects:
        """Copies of all objects that match, in order of namespace and name."""
        kind = self.resource(resource)
        with self._lock:
            return [
                clone(self._shown(kind, record, version or kind.storage))
                for _, record in self._matching(kind, namespace, labels, fields)
            ]

    def page(
        self,
        resource: str,
        namespace: str,
        *,
        version: str,
        limit: int = 0,
        token: str = "",
        labels: str = "",
        fields: str = "",
    ) -> Page:
        """One page of a list, all pages as of the first one's moment. ApiError 410 for a token that is too old."""
        kind = self.resource(resource)
        with self._lock:
            if token:
                opened = self._reopen(kind, token, namespace, labels, fields)
            else:
                matching = self._matching(kind, namespace, labels, fields)
                # with a selector the server cannot know how many are left
                remaining = None if labels or fields else len(matching)
                opened = _OpenList(records=matching, remaining=remaining, version=self._version)
            taken, following = opened.records, opened.records[:0]
            if limit:
                taken, following = opened.records[:limit], opened.records[limit:]
            left = None if opened.remaining is None else opened.remaining - len(taken)
            after = ""
            if following:
                after = self._token(opened.version, following[0][0])
                self._lists[after] = _OpenList(records=following, remaining=left, version=opened.version)
                while len(self._lists) > 1000:  # clients that gave up half-way
                    del self._lists[next(iter(self._lists))]
            return Page(
                items=[self._encoded(kind, record, version) for _, record in taken],
                resource_version=str(opened.version),
                continue_token=after,
                remaining=left or None,
            )

    def expire_continue_tokens(self) -> None:
        """Make every running list's token too old, as a compaction of etcd does."""
        with self._lock:
            self._lists.clear()

    def _token(self, version: int, start: Key) -> str:
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(start), "n": self._random.random()})
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _reopen(self, kind: Resource, token: str, namespace: str, labels: str, fields: str) -> _OpenList:
        if token in self._lists:
            return self._lists[token]
        try:
            decoded = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            version, start = int(decoded["rv"]), tuple(decoded["start"].split("/"))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            raise ApiError(400, f"invalid continue token: continue key is not valid: {error}") from None
        if version >= 0:
            raise expired(self._token(-1, cast("Key", start)))
        # the answer to 410 offers a token that goes on with the present objects
        left = [item for item in self._matching(kind, namespace, labels, fields) if item[0] >= start]
        return _OpenList(records=left, remaining=None, version=self._version)

    def _matching(self, kind: Resource, namespace: str, labels: str, fields: str) -> Found:
        by_label = parse_label_selector(labels)
        by_field = parse_field_selector(fields, any_field=not kind.group)
        found = []
        for key in sorted(self._records[kind.full_name]):
            record = self._records[kind.full_name][key]
            if namespace and key[0] != namespace:
                continue
            if labels and not by_label(record.body["metadata"].get("labels") or {}):
                continue
            if fields and not by_field(record.body):
                continue
            found.append((key, record))
        return found

    def _find(self, kind: Resource, namespace: str, name: str) -> _Record:
        record = self._records[kind.full_name].get((namespace if kind.namespaced else "", name))
        if record is None:
            raise not_found(kind.group, kind.plural, name)
        return record

    def _shown(self, kind: Resource, record: _Record, version: str) -> Object:
        if version not in record.shown:
            body = {**record.body, "apiVersion": kind.api_version(version), "kind": kind.kind}
            schema = kind.version(version).schema
            if schema is not None and version != kind.storage:
                body = prune(body, schema)
            body["metadata"] = {**body["metadata"], "managedFields": [_managed_json(item) for item in record.managed]}
            record.shown[version] = body
        return record.shown[version]

    def _encoded(self, kind: Resource, record: _Record, version: str) -> bytes:
        if version not in record.encoded:
            text = json.dumps(self._shown(kind, record, version), separators=(",", ":"))
            record.encoded[version] = text.encode()
        return record.encoded[version]

    # -- writing ------------------------------------------------------------------------------------------------

    def create(
        self,
        resource: str,
        body: Object,
        *,
        namespace: str = "",
        version: str | None = None,
        manager: str = "sandbox",
        dry_run: bool = False,
    ) -> Object:
        """Store a new object and return a copy of it as stored."""
        kind = self.resource(resource)
        version = version or kind.storage
        with self._lock:
            new: Object = clone(body)
            metadata = new.setdefault("metadata", {})
            namespace = (namespace or metadata.get("namespace") or "default") if kind.namespaced else ""
            self._check_type(kind, version, new)
            if metadata.get("namespace", namespace) != namespace:
                raise ApiError(
                    400, "the namespace of the provided object does not match the namespace sent on the request"
                )
            name = metadata.get("name") or ""
            if not name and metadata.get("generateName"):
                name = metadata["generateName"] + "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
                metadata["name"] = name
            if not name:
                raise invalid(
                    kind.group,
                    kind.kind,
                    "",
                    [
                        Cause(
                            reason="FieldValueRequired",
                            field="metadata.name",
                            message="Required value: name or generateName is required",
                        )
                    ],
                )
            if kind.namespaced:
                if ("", namespace) not in self._records["namespaces"]:
                    raise not_found("", "namespaces", namespace)
                metadata["namespace"] = namespace
            for key in _SYSTEM_METADATA - {"name", "namespace"}:
                metadata.pop(key, None)
            if kind.version(version).status and kind.group:
                new.pop("status", None)
            new = self._cleaned(kind, version, new)
            self._check(kind, version, new)
            if (namespace, name) in self._records[kind.full_name]:
                raise ApiError(
                    409,
                    f'{kind.full_name} "{name}" already exists',
                    reason="AlreadyExists",
                    details=details_of(kind.group, kind.plural, name),
                )
            now = self._now()
            metadata = new["metadata"]
            metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
            metadata["creationTimestamp"] = now
            if kind.group:
                metadata["generation"] = 1
            record = _Record(body=new)
            record.managed = _attribute([], {}, new, manager, "", kind.api_version(version), now)
            if not dry_run:
                metadata["resourceVersion"] = self._next_version()
                self._records[kind.full_name][(namespace, name)] = record
            return cast("Object", clone(self._shown(kind, record, version)))

    def put(
        self,
        resource: str,
        body: Object,
        *,
        namespace: str = "",
        name: str = "",
        version: str | None = None,
        subresource: str = "",
        manager: str = "sandbox",
        dry_run: bool = False,
    ) -> Object:
        """Replace an object (or its status, or its scale). Custom resources must name the version they replace."""
        kind = self.resource(resource)
        metadata = body.get("metadata") or {}
        name = name or metadata.get("name", "")
        namespace = (namespace or metadata.get("namespace", "")) if kind.namespaced else ""
        if metadata.get("name") != name:
            raise ApiError(
                400, f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({name})"
            )

        def replaced(_: Object) -> Object:
            return cast("Object", clone(body))

        if kind.group and subresource != "scale" and not metadata.get("resourceVersion"):
            self.get(resource, namespace, name)  # 404 comes before 422
            raise invalid(
                kind.group,
                kind.plural,
                name,
                [
                    Cause(
                        reason="FieldValueInvalid",
                        field="metadata.resourceVersion",
                        message="Invalid value: 0x0: must be specified for an update",
                    )
                ],
            )
        return self._change(kind, namespace, name, version, subresource, replaced, manager, dry_run)

    def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: Json,
        *,
        version: str | None = None,
        subresource: str = "",
        manager: str = "sandbox",
        dry_run: bool = False,
    ) -> Object:
        """Apply a merge patch (an object) or a JSON patch (a list). A failing `test` is ApiError 422."""
        kind = self.resource(resource)

        def patched(current: Object) -> Object:
            if isinstance(patch, list):
                try:
                    new = json_patch(current, patch)
                except PatchError:
                    raise bad_patch() from None
            else:
                new = merge_patch(current, patch)
            if not isinstance(new, dict):
                raise bad_patch()
            given = (new.get("metadata") or {}).get("name")
            if given != name:
                raise ApiError(400, f"the name of the object ({given}) does not match the name on the URL ({name})")
            return new

        return self._change(kind, namespace, name, version, subresource, patched, manager, dry_run)

    def scale(self, resource: str, namespace: str, name: str, replicas: int, *, manager: str = "sandbox") -> Object:
        """Write spec.replicas through the scale subresource, without a version: how autoscalers do it."""
        return self.patch(
            resource, namespace, name, {"spec": {"replicas": replicas}}, subresource="scale", manager=manager
        )

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        version: str | None = None,
        preconditions: dict[str, str] | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or mark it as being deleted while finalizers hold it. Returns the Status or the object."""
        kind = self.resource(resource)
        with self._lock:
            record = self._find(kind, namespace, name)
            metadata = record.body["metadata"]
            for key, label, hint in (
                ("uid", "UID", "deleted and then recreated"),
                ("resourceVersion", "ResourceVersion", "modified"),
            ):
                wanted = (preconditions or {}).get(key)
                if wanted and wanted != metadata[key]:
                    raise conflict(
                        kind.group,
                        kind.kind,
                        name,
                        f"the {label} in the precondition ({wanted}) does not match the {label} in record "
                        f"({metadata[key]}). The object might have been {hint}",
                    )
            if metadata.get("finalizers"):
                if "deletionTimestamp" not in metadata and not dry_run:
                    body = clone(record.body)
                    body["metadata"] |= {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
                    if "generation" in body["metadata"]:
                        body["metadata"]["generation"] += 1
                    self._replace(kind, record, body)
                return cast("Object", clone(self._shown(kind, record, version or kind.storage)))
            if not dry_run:
                self._drop(kind, record)
            return {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details_of(kind.group, kind.plural, name) | {"uid": metadata["uid"]},
            }

    def scale_of(self, resource: str, namespace: str, name: str, *, version: str | None = None) -> Object:
        """The `autoscaling/v1` Scale of an object; ApiError 500 when it has no replicas field, as the server says."""
        kind = self.resource(resource)
        with self._lock:
            return _as_scale(kind.version(version), self._find(kind, namespace, name).body, strict=True)

    def _change(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        version_name: str | None,
        subresource: str,
        mutate: Callable[[Object], Object],
        manager: str,
        dry_run: bool,
    ) -> Object:
        version = kind.version(version_name)
        with self._lock:
            record = self._find(kind, namespace, name)
            old = record.body
            if subresource == "scale":
                new = self._scaled(kind, version, old, mutate(_as_scale(version, old, strict=False)))
            else:
                new = mutate(clone(self._shown(kind, record, version.name)))
            self._check_version(kind, name, old, new)
            if subresource != "scale":
                self._check_type(kind, version.name, new)
                new = self._keep_system_fields(kind, version, old, new, subresource)
            new = self._cleaned(kind, version.name, new)
            self._check(kind, version.name, new, old)
            if _same(old, new):
                return self._answer(kind, record, version, subresource)
            now = self._now()
            if kind.group and not _same_but_status(old, new, status_apart=version.status):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            managed = _attribute(record.managed, old, new, manager, subresource, kind.api_version(version.name), now)
            if dry_run:
                return self._answer(kind, _Record(body=new, managed=managed), version, subresource)
            record = self._replace(kind, record, new, managed)
            if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
                self._drop(kind, record)
            return self._answer(kind, record, version, subresource)

    def _answer(self, kind: Resource, record: _Record, version: Version, subresource: str) -> Object:
        if subresource == "scale":
            return _as_scale(version, record.body, strict=True)
        return cast("Object", clone(self._shown(kind, record, version.name)))

    def _scaled(self, kind: Resource, version: Version, old: Object, scale: Object) -> Object:
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        name = old["metadata"]["name"]
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            cause = Cause(reason="FieldValueInvalid", field="patch", message=f"Invalid value: {replicas!r}: no integer")
            raise ApiError(422, f' "" is invalid: patch: {cause.message}', details={"causes": [cause.as_json()]})
        assert version.scale is not None  # _as_scale has refused it before
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

    def _check_version(self, kind: Resource, name: str, old: Object, new: Object) -> None:
        wanted = (new.get("metadata") or {}).get("resourceVersion")
        if wanted in (None, ""):
            return
        if not isinstance(wanted, str) or not wanted.isdigit():
            raise ApiError(500, f'strconv.ParseUint: parsing "{wanted}": invalid syntax', reason="")
        if wanted != old["metadata"]["resourceVersion"]:
            raise conflict(kind.group, kind.plural, name)

    def _check_type(self, kind: Resource, version: str, body: Object) -> None:
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

    def _keep_system_fields(
        self, kind: Resource, version: Version, old: Object, new: Object, subresource: str
    ) -> Object:
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
        new["metadata"] = {key: item for key, item in given.items() if key not in _SYSTEM_METADATA}
        new["metadata"] |= {key: item for key, item in old["metadata"].items() if key in _SYSTEM_METADATA}
        if version.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = clone(old["status"])
        return new

    def _cleaned(self, kind: Resource, version: str, new: Object) -> Object:
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

    def _check(self, kind: Resource, version: str, new: Object, old: Object | None = None) -> None:
        metadata = new["metadata"]
        name = metadata["name"]
        for key in ("annotations", "labels"):
            for label, item in (metadata.get(key) or {}).items():
                if not isinstance(item, str):
                    text = f"Invalid value: metadata.{key}[{label}]: {item!r} is no string"
                    cause = Cause(reason="FieldValueInvalid", field="patch", message=text)
                    raise ApiError(422, f' "" is invalid: patch: {text}', details={"causes": [cause.as_json()]})
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
            added = sorted(set(metadata.get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ()))
            if added:
                shown = ", ".join(f'"{item}"' for item in added)
                causes.append(
                    Cause(
                        reason="FieldValueForbidden",
                        field="metadata.finalizers",
                        message="Forbidden: no new finalizers can be added if the object is being deleted, found new "
                        f"finalizers []string{{{shown}}}",
                    )
                )
        served = kind.version(version)
        if served.schema is not None:
            causes.extend(validate(new, served.schema))
        if served.scale is not None:
            path = served.scale["specReplicasPath"]
            replicas = _at(new, path)
            if isinstance(replicas, str):
                text = f"Invalid value: 0: {path} accessor error: {replicas} is of the type string, expected int64"
                causes.append(Cause(reason="FieldValueInvalid", field=path, message=text))
            elif isinstance(replicas, int) and replicas < 0:
                text = f"Invalid value: {replicas}: should be a non-negative integer"
                causes.append(Cause(reason="FieldValueInvalid", field=path, message=text))
        if causes:
            raise invalid(kind.group, kind.kind, name, causes)

    def _replace(self, kind: Resource, record: _Record, body: Object, managed: _Owners | None = None) -> _Record:
        """Put a new record in place of the old one: open lists go on showing the old one."""
        body["metadata"]["resourceVersion"] = self._next_version()
        new = _Record(body=body, managed=record.managed if managed is None else managed)
        metadata = body["metadata"]
        self._records[kind.full_name][(metadata.get("namespace", ""), metadata["name"])] = new
        return new

    def _drop(self, kind: Resource, record: _Record) -> None:
        metadata = record.body["metadata"]
        del self._records[kind.full_name][(metadata.get("namespace", ""), metadata["name"])]
        self._next_version()

    def _next_version(self) -> str:
        self._version = next(self._versions)
        return str(self._version)

    def _now(self) -> str:
        return rfc3339(self.clock())


def rfc3339(moment: datetime) -> str:
    """A moment as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_scale(version: Version, body: Object, *, strict: bool) -> Object:
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


def _at(body: Json, path: str) -> Json:
    for part in filter(None, path.split(".")):
        body = body.get(part) if isinstance(body, dict) else None
    return body if path else None


def _content(body: Object) -> Object:
    metadata = {
        key: value
        for key, value in body["metadata"].items()
        if key not in ("resourceVersion", "managedFields", "generation")
    }
    return {**body, "metadata": metadata}


def _same(old: Object, new: Object) -> bool:
    return _content(old) == _content(new)


def _same_but_status(old: Object, new: Object, *, status_apart: bool) -> bool:
    """Whether generation stays: metadata never counts, status only where it is no subresource."""
    skipped = {"metadata", "status"} if status_apart else {"metadata"}
    return {k: v for k, v in old.items() if k not in skipped} == {k: v for k, v in new.items() if k not in skipped}


def _leaves(value: Json, prefix: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every field that can be owned: scalars and lists; an empty object is a leaf, too."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if prefix == ("metadata",) and key in _SYSTEM_METADATA:
                continue
            yield from _leaves(item, (*prefix, key))
    elif prefix and prefix != ("metadata",):
        yield prefix, value


def _attribute(
    managed: list[_Managed],
    old: Object,
    new: Object,
    manager: str,
    subresource: str,
    api_version: str,
    now: str,
) -> list[_Managed]:
    """Who wrote which field last: the writer of a changed field takes it from whoever had it before."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = set(before) - set(after)
    if not changed and not gone:
        return managed
    mine = (manager, subresource, api_version)
    left: _Owners = []
    own = set(changed)
    for item in managed:
        paths = item.paths - changed - gone
        if (item.manager, item.subresource, item.api_version) == mine:
            own |= paths
        elif paths:
            left.append(replace(item, paths=paths))
    if own:
        left.append(_Managed(manager=manager, subresource=subresource, api_version=api_version, time=now, paths=own))
    return left


def _managed_json(item: _Managed) -> Object:
    tree: Object = {}
    for path in sorted(item.paths):
        node = tree
        for part in path:
            node = node.setdefault(f"f:{part}", {})
    entry: Object = {
        "apiVersion": item.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
        "manager": item.manager,
        "operation": "Update",
        "time": item.time,
    }
    return entry | ({"subresource": item.subresource} if item.subresource else {})
