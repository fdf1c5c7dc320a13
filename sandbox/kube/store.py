"""The objects behind the simulated API and every rule for changing them.

HTTP requests, controllers and tests go through the same methods, so an in-process write is checked, versioned and
attributed exactly as a write over the wire. The rules are those of a real kube-apiserver; `tests/contract` runs one
suite against both.
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
from typing import Any, cast

from sandbox.kube.disruption import UNSUPPORTED, grace_of, is_free_to_go, new_pod, protects, spend
from sandbox.kube.errors import ApiError, apply_conflict, conflict, details_of, expired, invalid, not_found
from sandbox.kube.managed_fields import Applied, Owner, attribute, managed_json
from sandbox.kube.patches import clone, merge_patch
from sandbox.kube.resources import NATIVE, Resource, Version
from sandbox.kube.rules import (
    SYSTEM_METADATA,
    as_scale,
    check,
    check_type,
    check_version,
    cleaned,
    keep_system_fields,
    scaled,
)
from sandbox.kube.schema import Cause, Object, prune
from sandbox.kube.selectors import parse_field_selector, parse_label_selector

Clock = Callable[[], datetime]
Owners = list[Owner]
Webhook = Callable[[Object | None, Object], None]
Key = tuple[str, str]  # namespace, name
Objects = list[Object]


@dataclass(kw_only=True)
class _Record:
    """One stored object and the answers made from it. A change replaces the record: open lists keep the old one."""

    body: Object
    managed: Owners = field(default_factory=list)
    packed: dict[str, bytes] = field(default_factory=dict)  # as marshal has it, without managedFields
    packed_managed: bytes = b""  # these
    encoded: dict[str, bytes] = field(default_factory=dict)

    def __deepcopy__(self, _: dict[int, Any]) -> _Record:
        return self  # nobody changes it


Found = list[tuple[Key, _Record]]


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
        #: validating webhooks by resource, called with the object before (None: it is made) and after
        self.webhooks: dict[str, list[Webhook]] = {}
        #: whoever may refuse a change of an object, by an ApiError: its kind, before, after, and who makes it
        self.admission: list[Callable[[Resource, Object, Object, str], None]] = []
        for resource in (*NATIVE, *(Resource.of_crd(crd) for crd in crds)):
            self._resources[resource.full_name] = resource
            self._records[resource.full_name] = {}
        for namespace in ("default", "kube-system"):
            self.create("namespaces", {"metadata": {"name": namespace}}, manager="kube-apiserver")

    def _admit(self, kind: Resource, old: Object | None, new: Object) -> None:
        """ApiError 403 or 422 where a webhook of the cluster's controllers refuses."""
        for webhook in self.webhooks.get(kind.full_name, ()):
            webhook(old, new)

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
        """A copy of one object, without its managedFields."""
        kind = self.resource(resource)
        with self._lock:
            return self._copy(kind, self._find(kind, namespace, name), version or kind.storage)

    def encoded(self, resource: str, namespace: str, name: str, *, version: str) -> bytes:
        """One object as JSON, with its managedFields; made once per change, because lists are read far more often."""
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
        """Copies of all objects that match, without their managedFields, in order of namespace and name."""
        kind = self.resource(resource)
        with self._lock:
            return [
                self._copy(kind, record, version or kind.storage)
                for _, record in self._matching(kind, namespace, labels, fields)
            ]

    def names(self, resource: str) -> set[str]:
        """Of all objects that there are."""
        with self._lock:
            return {name for _, name in self._records[self.resource(resource).full_name]}

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
        by_field = parse_field_selector(fields, kind.selectable)
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

    def _copy(self, kind: Resource, record: _Record, version: str) -> Object:
        """A copy of its own for whoever asks in this process; half of all that a simulated API does is to copy.

        Without managedFields, which nobody in here reads and whose many small maps are four fifths of the work.
        """
        if version not in record.packed:
            body = {**record.body, "apiVersion": kind.api_version(version), "kind": kind.kind}
            schema = kind.version(version).schema
            if schema is not None and version != kind.storage:
                body = prune(body, schema)
            record.packed[version] = marshal.dumps(body)
        return cast("Object", marshal.loads(record.packed[version]))

    def _shown(self, kind: Resource, record: _Record, version: str) -> Object:
        """A copy as the wire has it, with managedFields."""
        quote = self._copy(kind, record, version)
        if not record.packed_managed:
            record.packed_managed = marshal.dumps([managed_json(item) for item in record.managed])
        quote["metadata"]["managedFields"] = marshal.loads(record.packed_managed)
        return quote

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
        applied: bool = False,
    ) -> Object:
        """Store a new object and return a copy of it as stored. `applied`: it came by server-side apply."""
        kind = self.resource(resource)
        version = version or kind.storage
        with self._lock:
            new: Object = clone(body)
            metadata = new.setdefault("metadata", {})
            namespace = (namespace or metadata.get("namespace") or "default") if kind.namespaced else ""
            check_type(kind, version, new)
            if metadata.get("namespace", namespace) != namespace:
                raise ApiError(
                    400, "the namespace of the provided object does not match the namespace sent on the request"
                )
            name = metadata["name"] = self._name_of_new(kind, metadata)
            if kind.namespaced:
                if ("", namespace) not in self._records["namespaces"]:
                    raise not_found("", "namespaces", namespace)
                metadata["namespace"] = namespace
            for key in SYSTEM_METADATA - {"name", "namespace"}:
                metadata.pop(key, None)
            if kind.version(version).status and kind.group:
                new.pop("status", None)
            new = cleaned(kind, version, new)
            if kind.full_name == "pods":
                new = new_pod(new)
            check(kind, version, new)
            self._admit(kind, None, new)
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
            schema, api_version = kind.version(version).schema or {}, kind.api_version(version)
            if applied:
                given = prune(body, schema) if schema else body
                record.managed = Applied([], {}, given, manager, schema).owners(api_version, now)
            else:
                record.managed = attribute([], {}, new, manager, "", api_version, now, schema=schema)
            if not dry_run:
                metadata["resourceVersion"] = self._next_version()
                self._records[kind.full_name][(namespace, name)] = record
            return self._shown(kind, record, version)

    def _name_of_new(self, kind: Resource, metadata: Object) -> str:
        if metadata.get("name"):
            return str(metadata["name"])
        if metadata.get("generateName"):
            return str(metadata["generateName"]) + "".join(self._random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        cause = Cause(
            reason="FieldValueRequired",
            field="metadata.name",
            message="Required value: name or generateName is required",
        )
        raise invalid(kind.group, kind.kind, "", [cause])

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
        patch: Object,
        *,
        version: str | None = None,
        subresource: str = "",
        manager: str = "sandbox",
        dry_run: bool = False,
    ) -> Object:
        """Apply a merge patch."""
        kind = self.resource(resource)

        def patched(current: Object) -> Object:
            new = cast("Object", merge_patch(current, patch))
            given = (new.get("metadata") or {}).get("name")
            if given != name:
                raise ApiError(400, f"the name of the object ({given}) does not match the name on the URL ({name})")
            return new

        return self._change(kind, namespace, name, version, subresource, patched, manager, dry_run)

    def apply(
        self,
        resource: str,
        body: Object,
        *,
        namespace: str = "",
        name: str = "",
        version: str | None = None,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: the object is made where it is not there.

        ApiError 409 names every field that somebody else owns with another value; with `force` they become ours.
        """
        kind = self.resource(resource)
        version = version or kind.storage
        metadata = body.get("metadata") or {}
        name = name or metadata.get("name", "")
        namespace = (namespace or metadata.get("namespace", "")) if kind.namespaced else ""
        if metadata.get("managedFields"):
            raise ApiError(400, "metadata.managedFields must be nil")
        check_type(kind, version, body)
        schema = kind.version(version).schema or {}
        with self._lock:
            try:
                record = self._find(kind, namespace, name)
            except ApiError:
                if uid := metadata.get("uid"):
                    why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    raise conflict(kind.group, kind.plural, name, why) from None
                given = {**body, "metadata": {**metadata, "name": name}}
                return self.create(
                    resource,
                    given,
                    namespace=namespace,
                    version=version,
                    manager=manager,
                    dry_run=dry_run,
                    applied=True,
                )
            pruned = prune(body, schema) if schema else body
            made = Applied(record.managed, record.body, pruned, manager, schema)
            if made.conflicts and not force:
                raise apply_conflict(made.conflicts)

            def applied(current: Object) -> Object:
                # what identifies the object came along with the body, as far as it was given
                return made.result | {key: current[key] for key in ("apiVersion", "kind")}

            return self._change(kind, namespace, name, version, "", applied, manager, dry_run, made)

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
        grace: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or mark it as being deleted while finalizers or its kubelet hold it.

        `grace`: seconds that a pod gets, in place of those that it asks for. Returns the Status or the object.
        """
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
            given = grace_of(record.body, grace) if kind.full_name == "pods" else 0
            if metadata.get("finalizers") or given:
                known = metadata.get("deletionGracePeriodSeconds")
                if (known is None or given < known) and not dry_run:
                    body = clone(record.body)
                    since = parse_moment(metadata.get("deletionTimestamp"), self.clock()) - timedelta(
                        seconds=known or 0
                    )
                    until = rfc3339(since + timedelta(seconds=given))
                    body["metadata"] |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": given}
                    if "generation" in body["metadata"]:
                        body["metadata"]["generation"] += 1
                    self._replace(kind, record, body)
                return self._shown(kind, record, version or kind.storage)
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
        """Delete a pod if its disruption budget allows it; ApiError 429 if not now (registry/core/pod/storage)."""
        with self._lock:
            pod = self._find(self.resource("pods"), namespace, name).body
            if not is_free_to_go(pod):
                budgets = [item for item in self.list("poddisruptionbudgets.policy", namespace) if protects(item, pod)]
                if len(budgets) > 1:
                    raise ApiError(500, f"This pod has more than one {budgets[0]['kind']}, {UNSUPPORTED}")
                for budget in budgets:
                    if spent := spend(budget, pod, self._now()):
                        where = ("poddisruptionbudgets.policy", namespace, budget["metadata"]["name"])
                        self.patch(
                            *where, {"status": spent}, subresource="status", manager="kube-apiserver", dry_run=dry_run
                        )
            self.delete("pods", namespace, name, preconditions=preconditions, grace=grace, dry_run=dry_run)

    def scale_of(self, resource: str, namespace: str, name: str, *, version: str | None = None) -> Object:
        """The `autoscaling/v1` Scale of an object; ApiError 500 when it has no replicas field, as the server says."""
        kind = self.resource(resource)
        with self._lock:
            return as_scale(kind.version(version), self._find(kind, namespace, name).body, strict=True)

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
        applied: Applied | None = None,
    ) -> Object:
        version = kind.version(version_name)
        with self._lock:
            record = self._find(kind, namespace, name)
            old = record.body
            if subresource == "scale":
                new = scaled(kind, version, old, mutate(as_scale(version, old, strict=False)))
            else:
                new = mutate(self._copy(kind, record, version.name))
                if applied is None and new == self._copy(kind, record, version.name):  # most words of controllers
                    return self._answer(kind, record, version, subresource)
            check_version(kind, name, old, new)
            if subresource != "scale":
                check_type(kind, version.name, new)
                new = keep_system_fields(kind, version, old, new, subresource)
            new = cleaned(kind, version.name, new)
            check(kind, version.name, new, old)
            self._admit(kind, old, new)
            for admit in () if subresource or _same(old, new) else self.admission:
                admit(kind, old, new, manager)
            now = self._now()
            owned = applied.owners(kind.api_version(version.name), now) if applied is not None else record.managed
            if _same(old, new) and owned is record.managed:
                return self._answer(kind, record, version, subresource)
            if kind.group and not _same_but_status(old, new, status_apart=version.status):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            managed = owned
            if applied is None:
                api_version = kind.api_version(version.name)
                managed = attribute(
                    record.managed, old, new, manager, subresource, api_version, now, schema=version.schema
                )
            if dry_run:
                return self._answer(kind, _Record(body=new, managed=managed), version, subresource)
            record = self._replace(kind, record, new, managed)
            held = new["metadata"].get("finalizers") or new["metadata"].get("deletionGracePeriodSeconds")
            if "deletionTimestamp" in new["metadata"] and not held:
                self._drop(kind, record)
            return self._answer(kind, record, version, subresource)

    def _answer(self, kind: Resource, record: _Record, version: Version, subresource: str) -> Object:
        if subresource == "scale":
            return as_scale(version, record.body, strict=True)
        return self._shown(kind, record, version.name)

    def _replace(self, kind: Resource, record: _Record, body: Object, managed: Owners | None = None) -> _Record:
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


def parse_moment(text: str | None, otherwise: datetime) -> datetime:
    return otherwise if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


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
