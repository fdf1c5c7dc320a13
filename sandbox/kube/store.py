"""The objects behind the simulated API and the rules for changing them.

HTTP requests, controllers and tests go through the same methods, so an in-process write is checked, versioned and
attributed like a write over HTTPS. The rules are those of a real kube-apiserver; `tests/contract` runs one suite
against both.
"""

from __future__ import annotations

import base64
import binascii
import json
import marshal
import random
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypedDict, Unpack, cast

from sandbox.kube.disruption import UNSUPPORTED, evicts_without_budget, grace_of, new_pod, protects, spend
from sandbox.kube.errors import ApiError, apply_conflict, conflict, details_of, expired, invalid, not_found
from sandbox.kube.managed_fields import Applied, Owner, managed_json, update_owners
from sandbox.kube.patches import clone, merge_patch
from sandbox.kube.resources import NATIVE, Resource, Version
from sandbox.kube.rules import (
    SYSTEM_METADATA,
    as_scale,
    check,
    check_type,
    check_version,
    keep_system_fields,
    prepare,
    with_scale,
)
from sandbox.kube.schema import Cause, Object, prune
from sandbox.kube.selectors import parse_field_selector, parse_label_selector

Clock = Callable[[], datetime]
Owners = list[Owner]
Webhook = Callable[[Object | None, Object], None]
Key = tuple[str, str]  # namespace, name
Objects = list[Object]


class WriteOptions(TypedDict, total=False):
    """Options that every write takes: API version (default: the storage version), subresource, field manager."""

    version: str | None
    subresource: str
    manager: str
    dry_run: bool


@dataclass(kw_only=True)
class _Write:
    """The options of one write, with their defaults."""

    kind: Resource
    version: Version
    subresource: str = ""
    manager: str = "sandbox"
    dry_run: bool = False

    @property
    def api_version(self) -> str:
        return self.kind.api_version(self.version.name)


@dataclass(kw_only=True)
class _Record:
    """One stored object and its encodings. A change replaces the record, so open lists keep the old record."""

    body: Object
    managed: Owners = field(default_factory=list)
    packed: dict[str, bytes] = field(default_factory=dict)  # marshalled by version, without managedFields
    packed_managed: bytes = b""  # the managedFields, marshalled
    encoded: dict[str, bytes] = field(default_factory=dict)

    def __deepcopy__(self, _: dict[int, Any]) -> _Record:
        return self  # a record never changes

    @property
    def key(self) -> Key:
        metadata = self.body["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


Records = list[_Record]


@dataclass(frozen=True, kw_only=True)
class _OpenList:
    """The objects of a list that are not sent yet, as they were when the first page was sent."""

    records: Records
    remaining: int | None
    version: int


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a list. `remaining` is None if the server does not report how many objects follow."""

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
        self._kinds: dict[tuple[str, str], Resource] = {}  # by group and kind
        self._records: dict[str, dict[Key, _Record]] = {}
        self._lists: dict[str, _OpenList] = {}
        #: validating webhooks by resource; each takes the old object (None for a create) and the new object
        self.webhooks: dict[str, list[Webhook]] = {}
        #: admission policies for updates; each takes the kind, the old and the new object and the field manager
        self.admission: list[Callable[[Resource, Object, Object, str], None]] = []
        for resource in (*NATIVE, *(Resource.of_crd(crd) for crd in crds)):
            self._resources[resource.full_name] = self._kinds[resource.group, resource.kind] = resource
            self._records[resource.full_name] = {}
        for namespace in ("default", "kube-system"):
            self.create("namespaces", {"metadata": {"name": namespace}}, manager="kube-apiserver")

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Return all resources."""
        return tuple(self._resources.values())

    def resource(self, name: str) -> Resource:
        """Return the resource of this full name. Raises ApiError 404."""
        try:
            return self._resources[name]
        except KeyError:
            raise ApiError(404, "404 page not found") from None

    def resource_of(self, item: Object) -> Resource:
        """Return the resource of an object by its apiVersion and kind."""
        return self._kinds[item["apiVersion"].rpartition("/")[0], item["kind"]]

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, resource: str, namespace: str, name: str, *, version: str | None = None) -> Object:
        """Return a copy of one object, without its managedFields."""
        kind = self.resource(resource)
        with self._lock:
            return self._copy(kind, self._find(kind, namespace, name), version or kind.storage)

    def encoded(self, resource: str, namespace: str, name: str, *, version: str) -> bytes:
        """Return one object as JSON, with its managedFields."""
        kind = self.resource(resource)
        with self._lock:
            return self._encoded(kind, self._find(kind, namespace, name), version)

    def list(
        self, resource: str, namespace: str = "", *, labels: str = "", fields: str = "", version: str | None = None
    ) -> Objects:
        """Return copies of all matching objects, without their managedFields, sorted by namespace and name."""
        kind = self.resource(resource)
        with self._lock:
            records = self._matching(kind, namespace, labels, fields)
            return [self._copy(kind, record, version or kind.storage) for record in records]

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
        """Return one page of a list, as the list was at its first page. Raises ApiError 410 if the token is too old."""
        kind = self.resource(resource)
        with self._lock:
            if token:
                opened = self._reopen(kind, token, namespace, labels, fields)
            else:
                records = self._matching(kind, namespace, labels, fields)
                # With a selector, the server does not count the objects that follow.
                remaining = None if labels or fields else len(records)
                opened = _OpenList(records=records, remaining=remaining, version=self._version)
            size = limit or len(opened.records)
            page, rest = opened.records[:size], opened.records[size:]
            left = None if opened.remaining is None else opened.remaining - len(page)
            next_token = ""
            if rest:
                next_token = self._token(opened.version, rest[0].key)
                self._lists[next_token] = _OpenList(records=rest, remaining=left, version=opened.version)
                while len(self._lists) > 1000:  # lists that a client never finished
                    del self._lists[next(iter(self._lists))]
            return Page(
                items=[self._encoded(kind, record, version) for record in page],
                resource_version=str(opened.version),
                continue_token=next_token,
                remaining=left or None,
            )

    def expire_continue_tokens(self) -> None:
        """Make the token of every open list too old, as a compaction of etcd does."""
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
        # The answer 410 offers a token that continues with the current objects.
        left = [record for record in self._matching(kind, namespace, labels, fields) if record.key >= start]
        return _OpenList(records=left, remaining=None, version=self._version)

    def _matching(self, kind: Resource, namespace: str, labels: str, fields: str) -> Records:
        by_label = parse_label_selector(labels)
        by_field = parse_field_selector(fields, kind.selectable)
        return [
            record
            for key, record in sorted(self._records[kind.full_name].items(), key=lambda entry: entry[0])
            if (not namespace or key[0] == namespace)
            and (not labels or by_label(record.body["metadata"].get("labels") or {}))
            and (not fields or by_field(record.body))
        ]

    def _find(self, kind: Resource, namespace: str, name: str) -> _Record:
        record = self._records[kind.full_name].get((namespace if kind.namespaced else "", name))
        if record is None:
            raise not_found(kind.group, kind.plural, name)
        return record

    def _copy(self, kind: Resource, record: _Record, version: str) -> Object:
        """Return a copy without managedFields. No controller reads them, and they would be four fifths of the work."""
        if version not in record.packed:
            body = {**record.body, "apiVersion": kind.api_version(version), "kind": kind.kind}
            schema = kind.version(version).schema
            if schema is not None and version != kind.storage:
                body = prune(body, schema)
            record.packed[version] = marshal.dumps(body)
        return cast("Object", marshal.loads(record.packed[version]))

    def _with_managed_fields(self, kind: Resource, record: _Record, version: str) -> Object:
        copy = self._copy(kind, record, version)
        if not record.packed_managed:
            record.packed_managed = marshal.dumps([managed_json(item) for item in record.managed])
        copy["metadata"]["managedFields"] = marshal.loads(record.packed_managed)
        return copy

    def _encoded(self, kind: Resource, record: _Record, version: str) -> bytes:
        if version not in record.encoded:
            text = json.dumps(self._with_managed_fields(kind, record, version), separators=(",", ":"))
            record.encoded[version] = text.encode()
        return record.encoded[version]

    # -- writing ------------------------------------------------------------------------------------------------

    def _write(
        self,
        resource: str,
        *,
        version: str | None = None,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> _Write:
        kind = self.resource(resource)
        return _Write(
            kind=kind,
            version=kind.version(version),
            subresource=subresource,
            manager=manager or "sandbox",
            dry_run=dry_run,
        )

    def create(
        self,
        resource: str,
        body: Object,
        *,
        namespace: str = "",
        applied: bool = False,
        **options: Unpack[WriteOptions],
    ) -> Object:
        """Store a new object and return a copy. `applied`: the request is a server-side apply."""
        write = self._write(resource, **options)
        kind, version = write.kind, write.version
        with self._lock:
            new = self._new(write, clone(body), namespace)
            metadata = new["metadata"]
            key = metadata.get("namespace", ""), metadata["name"]
            self._admit(kind, None, new)
            if key in self._records[kind.full_name]:
                text = f'{kind.full_name} "{key[1]}" already exists'
                raise ApiError(409, text, reason="AlreadyExists", details=details_of(kind.group, kind.plural, key[1]))
            now = self._now()
            metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
            metadata["creationTimestamp"] = now
            if kind.group:
                metadata["generation"] = 1
            record = _Record(body=new)
            if applied:
                schema = version.schema or {}
                request = prune(body, schema) if schema else body
                record.managed = Applied([], {}, request, write.manager, schema).owners(write.api_version, now)
            else:
                record.managed = update_owners([], {}, new, self._owner(write), version.schema)
            if not write.dry_run:
                metadata["resourceVersion"] = self._next_version()
                self._records[kind.full_name][key] = record
            return self._with_managed_fields(kind, record, version.name)

    def _new(self, write: _Write, new: Object, namespace: str) -> Object:
        """Return the object of a create request as it is stored, except its identity. ApiError if it is invalid."""
        kind, version = write.kind, write.version
        metadata = new.setdefault("metadata", {})
        namespace = (namespace or metadata.get("namespace") or "default") if kind.namespaced else ""
        check_type(kind, version.name, new)
        if metadata.get("namespace", namespace) != namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError(400, text)
        name = self._name_of_new(kind, metadata)
        if kind.namespaced and ("", namespace) not in self._records["namespaces"]:
            raise not_found("", "namespaces", namespace)
        for key in SYSTEM_METADATA:
            metadata.pop(key, None)
        metadata |= {"name": name} | ({"namespace": namespace} if kind.namespaced else {})
        if version.status and kind.group:
            new.pop("status", None)
        new = prepare(kind, version.name, new)
        if kind.full_name == "pods":
            new = new_pod(new)
        check(kind, version.name, new)
        return new

    def _name_of_new(self, kind: Resource, metadata: Object) -> str:
        if metadata.get("name"):
            return str(metadata["name"])
        if metadata.get("generateName"):
            return str(metadata["generateName"]) + "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        cause = Cause.required("metadata.name", "name or generateName is required")
        raise invalid(kind.group, kind.kind, "", [cause])

    def put(
        self, resource: str, body: Object, *, namespace: str = "", name: str = "", **options: Unpack[WriteOptions]
    ) -> Object:
        """Replace an object, its status or its scale. A custom resource must name the version that it replaces."""
        write = self._write(resource, **options)
        kind, metadata = write.kind, body.get("metadata") or {}
        namespace, name = _address(kind, metadata, namespace, name)
        _check_name(metadata, name)
        if kind.group and write.subresource != "scale" and not metadata.get("resourceVersion"):
            self.get(resource, namespace, name)  # 404 precedes 422
            cause = Cause.invalid("metadata.resourceVersion", "0x0", "must be specified for an update")
            raise invalid(kind.group, kind.plural, name, [cause])
        return self._change(write, namespace, name, lambda _: cast("Object", clone(body)))

    def patch(self, resource: str, namespace: str, name: str, patch: Object, **options: Unpack[WriteOptions]) -> Object:
        """Apply a merge patch."""

        def patched(current: Object) -> Object:
            new = cast("Object", merge_patch(current, patch))
            _check_name(new.get("metadata") or {}, name)
            return new

        return self._change(self._write(resource, **options), namespace, name, patched)

    def apply(
        self,
        resource: str,
        body: Object,
        *,
        namespace: str = "",
        name: str = "",
        force: bool = False,
        **options: Unpack[WriteOptions],
    ) -> Object:
        """Apply an object server-side; create it if it does not exist.

        ApiError 409 names every field that another manager owns with another value; with `force`, this manager
        becomes their owner.
        """
        write = self._write(resource, **options)
        kind, metadata = write.kind, body.get("metadata") or {}
        namespace, name = _address(kind, metadata, namespace, name)
        if metadata.get("managedFields"):
            raise ApiError(400, "metadata.managedFields must be nil")
        check_type(kind, write.version.name, body)
        schema = write.version.schema or {}
        with self._lock:
            try:
                record = self._find(kind, namespace, name)
            except ApiError:
                if uid := metadata.get("uid"):
                    text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    raise conflict(kind.group, kind.plural, name, text) from None
                named = {**body, "metadata": {**metadata, "name": name}}
                return self.create(resource, named, namespace=namespace, applied=True, **options)
            pruned = prune(body, schema) if schema else body
            applied = Applied(record.managed, record.body, pruned, write.manager, schema)
            if applied.conflicts and not force:
                raise apply_conflict(applied.conflicts)

            def merged(current: Object) -> Object:
                return applied.result | {key: current[key] for key in ("apiVersion", "kind")}

            return self._change(write, namespace, name, merged, applied)

    def scale(self, resource: str, namespace: str, name: str, replicas: int, *, manager: str = "sandbox") -> Object:
        """Write spec.replicas through the scale subresource without a version, as autoscalers do."""
        patch = {"spec": {"replicas": replicas}}
        return self.patch(resource, namespace, name, patch, subresource="scale", manager=manager)

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        version: str | None = None,
        preconditions: dict[str, str] | None = None,
        grace: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or set its deletionTimestamp while finalizers or its kubelet keep it.

        `grace` is a pod's grace period in seconds, instead of its own. Returns the Status or the object.
        """
        kind = self.resource(resource)
        with self._lock:
            record = self._find(kind, namespace, name)
            metadata = record.body["metadata"]
            _check_preconditions(kind, metadata, preconditions or {})
            period = grace_of(record.body, grace) if kind.full_name == "pods" else 0
            if metadata.get("finalizers") or period:
                current = metadata.get("deletionGracePeriodSeconds")
                if (current is None or period < current) and not dry_run:
                    body = clone(record.body)
                    requested = metadata.get("deletionTimestamp")
                    end = (parse_time(requested) if requested else self.clock()) + timedelta(
                        seconds=period - (current or 0)
                    )
                    body["metadata"] |= {"deletionTimestamp": rfc3339(end), "deletionGracePeriodSeconds": period}
                    if "generation" in body["metadata"]:
                        body["metadata"]["generation"] += 1
                    self._replace(kind, record, body)
                return self._with_managed_fields(kind, record, version or kind.storage)
            if not dry_run:
                self._drop(kind, record)
            return {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details_of(kind.group, kind.plural, name) | {"uid": metadata["uid"]},
            }

    def evict(
        self,
        namespace: str,
        name: str,
        *,
        preconditions: dict[str, str] | None = None,
        grace: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete a pod if its disruption budget allows it, else raise ApiError 429 (registry/core/pod/storage)."""
        with self._lock:
            pod = self._find(self.resource("pods"), namespace, name).body
            if not evicts_without_budget(pod):
                budgets = [item for item in self.list("poddisruptionbudgets.policy", namespace) if protects(item, pod)]
                if len(budgets) > 1:
                    raise ApiError(500, f"This pod has more than one {budgets[0]['kind']}, {UNSUPPORTED}")
                for budget in budgets:
                    if status := spend(budget, pod, self._now()):
                        key = ("poddisruptionbudgets.policy", namespace, budget["metadata"]["name"])
                        options = WriteOptions(subresource="status", manager="kube-apiserver", dry_run=dry_run)
                        self.patch(*key, {"status": status}, **options)
            self.delete("pods", namespace, name, preconditions=preconditions, grace=grace, dry_run=dry_run)

    def scale_of(self, resource: str, namespace: str, name: str, *, version: str | None = None) -> Object:
        """Return the `autoscaling/v1` Scale of an object. ApiError 500 if it has no replicas field."""
        kind = self.resource(resource)
        with self._lock:
            return as_scale(kind.version(version), self._find(kind, namespace, name).body, strict=True)

    def _change(
        self,
        write: _Write,
        namespace: str,
        name: str,
        mutate: Callable[[Object], Object],
        applied: Applied | None = None,
    ) -> Object:
        kind, version = write.kind, write.version
        with self._lock:
            record = self._find(kind, namespace, name)
            old = record.body
            if write.subresource == "scale":
                new = with_scale(kind, version, old, mutate(as_scale(version, old, strict=False)))
            else:
                new = mutate(self._copy(kind, record, version.name))
                if applied is None and new == self._copy(kind, record, version.name):  # as for most writes
                    return self._answer(write, record)
            check_version(kind, name, old, new)
            if write.subresource != "scale":
                check_type(kind, version.name, new)
                new = keep_system_fields(kind, version, old, new, write.subresource)
            new = prepare(kind, version.name, new)
            check(kind, version.name, new, old)
            self._admit(kind, old, new)
            for admit in () if write.subresource or _same(old, new) else self.admission:
                admit(kind, old, new, write.manager)
            managed = record.managed if applied is None else applied.owners(write.api_version, self._now())
            if _same(old, new) and managed is record.managed:
                return self._answer(write, record)
            if kind.group and not _same_but_status(old, new, status_apart=version.status):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            if applied is None:
                managed = update_owners(managed, old, new, self._owner(write), version.schema)
            if write.dry_run:
                return self._answer(write, _Record(body=new, managed=managed))
            record = self._replace(kind, record, new, managed)
            held = new["metadata"].get("finalizers") or new["metadata"].get("deletionGracePeriodSeconds")
            if "deletionTimestamp" in new["metadata"] and not held:
                self._drop(kind, record)
            return self._answer(write, record)

    def _admit(self, kind: Resource, old: Object | None, new: Object) -> None:
        """Call the validating webhooks. ApiError 403 or 422 if one denies the change."""
        for webhook in self.webhooks.get(kind.full_name, ()):
            webhook(old, new)

    def _owner(self, write: _Write) -> Owner:
        return Owner(
            manager=write.manager,
            subresource=write.subresource,
            api_version=write.api_version,
            time=self._now(),
            paths=set(),
        )

    def _answer(self, write: _Write, record: _Record) -> Object:
        if write.subresource == "scale":
            return as_scale(write.version, record.body, strict=True)
        return self._with_managed_fields(write.kind, record, write.version.name)

    def _replace(self, kind: Resource, record: _Record, body: Object, managed: Owners | None = None) -> _Record:
        """Replace a record by a new record, because open lists keep the old record."""
        body["metadata"]["resourceVersion"] = self._next_version()
        new = _Record(body=body, managed=record.managed if managed is None else managed)
        self._records[kind.full_name][new.key] = new
        return new

    def _drop(self, kind: Resource, record: _Record) -> None:
        del self._records[kind.full_name][record.key]
        self._next_version()

    def _next_version(self) -> str:
        self._version = next(self._versions)
        return str(self._version)

    def _now(self) -> str:
        return rfc3339(self.clock())


def _address(kind: Resource, metadata: Object, namespace: str, name: str) -> Key:
    """Return namespace and name of a write: those of the request, else those of the body."""
    return (namespace or metadata.get("namespace", "")) if kind.namespaced else "", name or metadata.get("name", "")


def _check_name(metadata: Object, name: str) -> None:
    if metadata.get("name") != name:
        text = f"the name of the object ({metadata.get('name') or ''}) does not match the name on the URL ({name})"
        raise ApiError(400, text)


def _check_preconditions(kind: Resource, metadata: Object, preconditions: dict[str, str]) -> None:
    for key, label, hint in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        expected = preconditions.get(key)
        if expected and expected != metadata[key]:
            text = (
                f"the {label} in the precondition ({expected}) does not match the {label} in record "
                f"({metadata[key]}). The object might have been {hint}"
            )
            raise conflict(kind.group, kind.kind, metadata["name"], text)


def rfc3339(moment: datetime) -> str:
    """Return a moment as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Return the time of a text in RFC 3339, in UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _content(body: Object) -> Object:
    ignored = ("resourceVersion", "managedFields", "generation")
    return {**body, "metadata": {key: value for key, value in body["metadata"].items() if key not in ignored}}


def _same(old: Object, new: Object) -> bool:
    return _content(old) == _content(new)


def _same_but_status(old: Object, new: Object, *, status_apart: bool) -> bool:
    """Return whether generation is unchanged. Metadata does not count, nor does a status that is a subresource."""
    ignored = {"metadata", "status"} if status_apart else {"metadata"}
    return {k: v for k, v in old.items() if k not in ignored} == {k: v for k, v in new.items() if k not in ignored}
