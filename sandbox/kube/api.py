"""A simulated Kubernetes API server over HTTPS: real clients talk to it, tests and scenarios control it.

The rules for objects are in `store`. This module has the HTTP side: paths, verbs, media types, discovery, tokens and
RBAC. It also has the faults that a scenario requests, and a log of all requests.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from email.utils import format_datetime
from typing import Any, Literal, Self, cast
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml

from sandbox.kube.access import Rule, kubeconfig
from sandbox.kube.errors import REASONS, ApiError, details_of, expired
from sandbox.kube.resources import Resource
from sandbox.kube.schema import Json, Object, load_crds
from sandbox.kube.store import Clock, Store, WriteOptions
from sandbox.server import LoopbackServer, Response

_SELF_SUBJECT_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PARTIAL = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_VERBS = ("create", "delete", "get", "list", "patch", "update")
_LARGEST_BODY = 3 * 1024 * 1024  # bytes, as the real server
_NOT_FOUND = Response(status=404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")


@dataclass(kw_only=True)
class Request:
    """One request in the log. `status` is 0 until the answer is sent, and stays 0 if the answer is lost."""

    method: str
    path: str
    query: dict[str, str]
    user: str = ""
    manager: str = ""
    body: Json = None
    status: int = 0

    @property
    def is_dry_run(self) -> bool:
        """Return True if the server checks the request without storing its result."""
        return self.query.get("dryRun") == "All"

    @property
    def has_patched(self) -> bool:
        """Return whether the request changed an object: a dry run changes none."""
        return self.method == "PATCH" and self.status == 200 and not self.is_dry_run

    def matches(
        self,
        *,
        method: str | None = None,
        path_contains: str = "",
        query_contains: str = "",
        manager: str | None = None,
        status: int | None = None,
    ) -> bool:
        """Return whether the request meets every criterion that is not None."""
        return (
            method in (None, self.method)
            and path_contains in self.path
            and query_contains in "&".join(f"{key}={value}" for key, value in self.query.items())
            and manager in (None, self.manager)
            and status in (None, self.status)
        )


class RequestLog:
    """Every request so far, in order of arrival."""

    def __init__(self) -> None:
        self._entries: list[Request] = []

    def add(self, request: Request) -> None:
        """Add a request."""
        self._entries.append(request)  # atomic, as is the copy below

    def clear(self) -> None:
        """Remove all requests."""
        self._entries.clear()

    def matching(self, **criteria: Any) -> list[Request]:
        """Return the requests that meet all criteria of `Request.matches`."""
        return [entry for entry in self if entry.matches(**criteria)]

    def count(self, **criteria: Any) -> int:
        """Return the number of requests that meet all criteria of `Request.matches`."""
        return len(self.matching(**criteria))

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(kw_only=True)
class Fault:
    """A failure of the next `times` requests that match. `delay` and `retry_after` are seconds.

    With stage "before", the server does not carry out the request. With stage "after", the server carries out the
    request, but the answer is lost. With `cut_body`, the answer is 200 and ends in the middle of the body.
    If `status` is None, stage "before" drops the connection, but a fault with a `delay` only slows the request down.
    To match the later pages of a list, use `query_contains="continue="`.
    """

    method: str | None = None
    path_contains: str = ""
    query_contains: str = ""
    status: int | None = None
    retry_after: float | None = None
    times: int = 1
    stage: Literal["before", "after"] = "before"
    delay: float = 0.0
    cut_body: bool = False
    message: str = ""


class Faults:
    """The faults that later requests will meet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(self, **fields: Any) -> Fault:
        """Add a fault with these fields of `Fault`."""
        fault = Fault(**fields)
        with self._lock:
            self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._waiting.clear()

    def take(self, request: Request) -> Fault | None:
        """Return the first fault that matches a request, and lower its remaining `times`."""
        with self._lock:
            for fault in self._waiting:
                if request.matches(
                    method=fault.method, path_contains=fault.path_contains, query_contains=fault.query_contains
                ):
                    fault.times -= 1
                    if fault.times <= 0:
                        self._waiting.remove(fault)
                    return fault
        return None


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The object or list that a path addresses."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class KubernetesAPI:
    """One simulated API server, for as long as a `with` block lasts.

    `users` maps the name of a user to its rules. By default, `evenkeel` and `cluster-autoscaler` may do everything, and
    `nobody` may do nothing. `admin` may always do everything. By default, `crds` are all that Evenkeel uses. `clock`
    sets the timestamps of objects.
    """

    name = "sandbox"

    def __init__(
        self,
        *,
        crds: Iterable[dict[str, Json]] | None = None,
        clock: Clock | None = None,
        users: Mapping[str, Sequence[Rule]] | None = None,
        seed: int = 0,
    ) -> None:
        self.store = Store(load_crds() if crds is None else crds, clock=clock, seed=seed)
        self.faults = Faults()
        self.requests = RequestLog()
        #: called with the request before and after the server carries it out, without any lock held
        self.before: list[Callable[[Request], None]] = []
        self.after: list[Callable[[Request], None]] = []
        if users is None:
            users = {"evenkeel": [Rule.all()], "cluster-autoscaler": [Rule.all()], "nobody": []}
        self._rules = {user: list(rules) for user, rules in users.items()} | {"admin": [Rule.all()]}
        self._tokens = {user: secrets.token_hex(16) for user in self._rules}
        self._ca = trustme.CA()
        self.ca_pem = self._ca.cert_pem.bytes().decode()
        self.url = ""
        self._stack = ExitStack()

    # -- access -------------------------------------------------------------------------------------------------

    def token(self, user: str) -> str:
        """Return the bearer token of a user; KeyError for an unknown user."""
        return self._tokens[user]

    def renew_token(self, user: str) -> str:
        """Return a new token for the user; the old one becomes invalid, like an expired credential."""
        self._tokens[user] = secrets.token_hex(16)
        return self._tokens[user]

    def kubeconfig(self, user: str = "evenkeel") -> dict[str, Json]:
        """Return a kubeconfig with inline data only."""
        return kubeconfig(url=self.url, ca_pem=self.ca_pem, user=user, token=self.token(user))

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """Add rules to those of a user."""
        self._rules[user].extend(rules)

    def revoke(self, user: str) -> None:
        """Remove all rules of a user."""
        self._rules[user].clear()

    def expire_continue_tokens(self) -> None:
        """Make the continue token of every open list too old (410 Expired)."""
        self.store.expire_continue_tokens()

    def __enter__(self) -> Self:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert("127.0.0.1", "localhost").configure_cert(tls)
        server = LoopbackServer(
            lambda call: self.answer(call.method, call.target, call.headers, call.body),
            tls=tls,
            max_body=_LARGEST_BODY,
            too_large=_failure(ApiError(413, "the request is too large", reason="RequestEntityTooLarge")),
        )
        self.url = self._stack.enter_context(server).url
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- one request --------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response | None:
        """Return the answer to one request; None if a fault drops the connection. Header names are in lower case.

        The Date header is the time of the simulated server, in whole seconds.
        """
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        request = Request(
            method=method,
            path=parts.path,
            query=query,
            user=self._user(headers.get("authorization", "")),
            manager=query.get("fieldManager") or headers.get("user-agent", "").split("/")[0] or "unknown",
        )
        self.requests.add(request)
        fault = self.faults.take(request)
        if fault is not None and fault.delay:
            threading.Event().wait(fault.delay)
        if fault is not None and fault.stage == "before" and fault.status is not None:
            answer = _failure(_fault_error(fault))
        elif fault is not None and fault.stage == "before" and not (fault.delay or fault.cut_body):
            return None
        else:
            for hook in list(self.before):
                hook(request)
            try:
                answer = self._carry_out(request, headers, body)
            except ApiError as error:
                answer = _failure(error)
            for hook in list(self.after):
                hook(request)
            if fault is not None and fault.stage == "after":
                return None
            answer = replace(answer, cut=fault is not None and fault.cut_body)
        request.status = answer.status
        return replace(answer, headers={**answer.headers, "Date": format_datetime(self.store.clock(), usegmt=True)})

    def _user(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer":
            return ""
        return next((user for user, known in self._tokens.items() if secrets.compare_digest(known, token)), "")

    def _carry_out(self, request: Request, headers: Mapping[str, str], raw: bytes) -> Response:
        path = request.path
        content_type = headers.get("content-type", "application/json").split(";")[0].strip()
        if path in ("/healthz", "/livez", "/readyz"):
            return Response(status=200, body=b"ok", content_type="text/plain; charset=utf-8")
        if not request.user:
            raise ApiError(401, "Unauthorized")
        if request.method == "GET" and (document := self._discovery(path)) is not None:
            return _encode(200, document)
        if request.method == "POST" and path == _SELF_SUBJECT_ACCESS_REVIEWS:
            request.body = _decode(raw, content_type, "create", "SelfSubjectAccessReview")
            return _encode(201, {**request.body, "status": {"allowed": self._may(request)}})
        target = _parse_path(path)
        if target is None:
            return _NOT_FOUND
        self._authorize(request, target)
        resource = self._resource(target)
        if resource is None:
            return _NOT_FOUND
        if target.subresource and not _has(resource, target):
            raise ApiError(404, "the server could not find the requested resource", details={})
        verb = _verb(request, target)
        if verb is None:
            raise ApiError(405, "the server does not allow this method on the requested resource", details={})
        if verb not in ("get", "list") and raw:
            _check_content_type(verb, content_type, resource)
            request.body = _decode(raw, content_type, verb, resource.kind)
            if content_type == _APPLY_PATCH:
                return self._apply(request, target, resource)
        answer = self._on_resource(request, target, resource, verb)
        return _metadata_only(answer) if _PARTIAL in headers.get("accept", "") else answer

    def _apply(self, request: Request, target: _Target, resource: Resource) -> Response:
        if "fieldManager" not in request.query:
            text = "fieldManager: Required value: is required for apply patch"
            raise ApiError(422, f'PatchOptions.meta.k8s.io "" is invalid: {text}')
        if target.subresource:
            raise ApiError(415, "the sandbox applies no subresource")
        name, namespace = resource.full_name, target.namespace
        exists = bool(self.store.list(name, namespace, fields=f"metadata.name={target.name}"))
        applied = self.store.apply(
            name,
            request.body,
            namespace=namespace,
            name=target.name,
            force=request.query.get("force") == "true",
            **_options(request, target),
        )
        return _encode(200 if exists else 201, applied)

    def _on_resource(self, request: Request, target: _Target, resource: Resource, verb: str) -> Response:
        store, kind, body = self.store, resource.full_name, request.body
        key, options = (target.namespace, target.name), _options(request, target)
        if verb == "list":
            return self._list(request, target, resource)
        if verb == "get":
            if target.subresource == "scale":
                return _encode(200, store.scale_of(kind, *key, version=target.version))
            return Response(status=200, body=store.encoded(kind, *key, version=target.version))
        if verb == "delete":
            body = body if isinstance(body, dict) else {}
            deleted = store.delete(
                kind,
                *key,
                version=target.version,
                preconditions=body.get("preconditions"),
                grace=_grace(request, body),
                dry_run=request.is_dry_run,
            )
            return _encode(200, deleted)
        if body is None:
            raise ApiError(400, "unexpected end of JSON input")
        if target.subresource == "eviction":
            return self._evict(request, target)
        if verb == "create":
            return _encode(201, store.create(kind, body, namespace=target.namespace, **options))
        if verb == "update":
            return _encode(200, store.put(kind, body, namespace=target.namespace, name=target.name, **options))
        return _encode(200, store.patch(kind, *key, body, **options))

    def _evict(self, request: Request, target: _Target) -> Response:
        eviction = cast("Object", request.body)
        if (eviction.get("metadata") or {}).get("name", "") != target.name:
            raise ApiError(400, "name in URL does not match name in Eviction object")
        options = eviction.get("deleteOptions") or {}
        self.store.evict(
            target.namespace,
            target.name,
            preconditions=options.get("preconditions"),
            grace=options.get("gracePeriodSeconds"),
            dry_run=request.is_dry_run or bool(options.get("dryRun")),
        )
        return _encode(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _list(self, request: Request, target: _Target, resource: Resource) -> Response:
        query = request.query
        if query.get("watch", "false") in ("true", "1"):
            raise ApiError(405, "the sandbox serves no watch: list again", details={})
        try:
            limit = int(query.get("limit") or 0)
        except ValueError:
            raise ApiError(400, f'strconv.ParseInt: parsing "{query["limit"]}": invalid syntax') from None
        if query.get("continue") and query.get("resourceVersion", "0") != "0":
            raise ApiError(400, "specifying resource version is not allowed when using continue")
        if query.get("resourceVersion") == "0" and not query.get("continue"):
            limit = 0  # the answer comes from the watch cache, which has no pages
        page = self.store.page(
            resource.full_name,
            target.namespace,
            version=target.version,
            limit=limit,
            token=query.get("continue", ""),
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        metadata: Object = {"resourceVersion": page.resource_version, "continue": page.continue_token}
        if page.continue_token and page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        # The fields are sorted, as a real server writes custom resources. The items are JSON already.
        parts = (
            f'{{"apiVersion":{json.dumps(resource.api_version(target.version))},"items":['.encode(),
            b",".join(page.items),
            f'],"kind":"{resource.kind}List","metadata":{json.dumps(metadata, separators=(",", ":"))}}}\n'.encode(),
        )
        return Response(status=200, body=b"".join(parts))

    def _resource(self, target: _Target) -> Resource | None:
        for resource in self.store.resources:
            served = any(version.name == target.version for version in resource.versions)
            if resource.full_name == target.full_name and served:
                return resource
        return None

    def _may(self, request: Request) -> bool:
        """Return the answer to a SelfSubjectAccessReview."""
        attributes = request.body["spec"]["resourceAttributes"]
        verb, group, namespace, name = (attributes.get(part, "") for part in ("verb", "group", "namespace", "name"))
        resource = "/".join(filter(None, (attributes.get("resource", ""), attributes.get("subresource", ""))))
        return any(rule.allows(verb, group, resource, namespace, name) for rule in self._rules[request.user])

    def _authorize(self, request: Request, target: _Target) -> None:
        verb = _verb(request, target) or request.method.lower()
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        namespace, name = target.namespace, target.name
        if any(rule.allows(verb, target.group, resource, namespace, name) for rule in self._rules[request.user]):
            return
        subject = f'{target.full_name} "{name}"' if name else target.full_name
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        raise ApiError(
            403,
            f'{subject} is forbidden: User "{request.user}" cannot {verb} resource "{resource}" in API group '
            f'"{target.group}" {where}',
            details=details_of(target.group, target.plural, name),
        )

    def _discovery(self, path: str) -> Object | None:
        groups: dict[str, list[str]] = {}
        for resource in self.store.resources:
            names = groups.setdefault(resource.group, [])
            names.extend(version.name for version in resource.versions if version.name not in names)
        path = path.rstrip("/")
        if path == "/version":
            release = {"major": "1", "minor": "31", "gitVersion": "v1.31.0+evenkeel-sandbox"}
            git = {"gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z"}
            return {**release, **git, "goVersion": "", "compiler": "python", "platform": "linux/amd64"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        parts = path.split("/")
        if path == "/api/v1":
            return self._resource_list("", "v1")
        if path.startswith("/apis/") and len(parts) == 3 and parts[2] in groups:
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(parts[2], groups[parts[2]])
        if path.startswith("/apis/") and len(parts) == 4 and parts[3] in groups.get(parts[2], ()):
            return self._resource_list(parts[2], parts[3])
        return None

    def _resource_list(self, group: str, version_name: str) -> Object:
        entries: list[Object] = []
        for resource in self.store.resources:
            if resource.group != group or all(version.name != version_name for version in resource.versions):
                continue
            version = resource.version(version_name)
            base = {"namespaced": resource.namespaced, "kind": resource.kind}
            entries.append(
                {"name": resource.plural, "singularName": resource.kind.lower(), **base, "verbs": list(_VERBS)}
            )
            subresource = {"singularName": "", "verbs": ["get", "patch", "update"]}
            if version.status:
                entries.append({"name": f"{resource.plural}/status", **base, **subresource})
            if resource.full_name == "pods":
                eviction = {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
                entries.append({"name": "pods/eviction", **base, "singularName": "", **eviction})
            if version.scale:
                scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
                entries.append({"name": f"{resource.plural}/scale", **base, **subresource, **scale})
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version_name}" if group else version_name,
            "resources": entries,
        }


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?/?$"
)


def _parse_path(path: str) -> _Target | None:
    # /namespaces/<name>/status is the namespace itself, not a kind called "status"
    if match := re.match(r"^/api/v1/namespaces(?:/([^/]+)(?:/(status))?)?/?$", path):
        return _Target(group="", version="v1", plural="namespaces", name=match[1] or "", subresource=match[2] or "")
    match = _PATH.match(path)
    return None if match is None else _Target(**match.groupdict(default=""))


def _options(request: Request, target: _Target) -> WriteOptions:
    """Return the options of a write from its URL."""
    return WriteOptions(
        version=target.version,
        subresource=target.subresource,
        manager=request.manager,
        dry_run=request.is_dry_run,
    )


def _verb(request: Request, target: _Target) -> str | None:
    if not target.name:
        return {"GET": "list", "POST": "create"}.get(request.method)
    if target.subresource == "eviction":
        return {"POST": "create"}.get(request.method)
    verbs = {"GET": "get", "PUT": "update", "PATCH": "patch"}
    return (verbs if target.subresource else verbs | {"DELETE": "delete"}).get(request.method)


def _has(resource: Resource, target: _Target) -> bool:
    version = resource.version(target.version)
    has = {"status": version.status, "scale": version.scale is not None, "eviction": resource.full_name == "pods"}
    return has.get(target.subresource, False)


def _grace(request: Request, body: Object) -> int | None:
    """Return the grace period in seconds that the URL or the body of a delete request sets; None for neither."""
    text = request.query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    return None if text is None else int(text)


def _metadata_only(answer: Response) -> Response:
    """Return a list for a client that accepts only metadata. The fields are in the order of the Go struct."""
    body = json.loads(answer.body)
    if "items" not in body:
        return answer
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    own = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}
    return _encode(200, {**own, "items": [{**one, "metadata": item["metadata"]} for item in body["items"]]})


def _check_content_type(verb: str, content_type: str, resource: Resource) -> None:
    if verb == "patch":
        accepted = [_MERGE_PATCH, _APPLY_PATCH] + ([] if resource.group else [_STRATEGIC_PATCH])
    else:
        accepted = ["application/json", "application/yaml"]
    if content_type not in accepted:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise ApiError(415, text + ", ".join(accepted))


def _decode(raw: bytes, content_type: str, verb: str, kind: str) -> Json:
    try:
        body = _from_yaml(raw) if content_type in ("application/yaml", _APPLY_PATCH) else json.loads(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        if verb == "patch":
            raise ApiError(500, "Invalid JSON Patch") from None
        text = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {error}"
        raise ApiError(400, text) from None
    if not isinstance(body, dict):
        raise ApiError(422, f' "" is invalid: patch: Invalid value: {json.dumps(body)[:80]}: no object')
    return body


def _from_yaml(raw: bytes) -> Json:
    """Parse YAML. All JSON is YAML, and the JSON parser is a hundred times faster."""
    try:
        return json.loads(raw)
    except ValueError:
        return yaml.safe_load(raw)


def _encode(status: int, body: Object) -> Response:
    return Response(status=status, body=json.dumps(body, separators=(",", ":")).encode())


def _failure(error: ApiError) -> Response:
    return replace(_encode(error.code, error.status), headers=error.headers)


def _fault_error(fault: Fault) -> ApiError:
    code = cast("int", fault.status)
    headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
    if code == 410:
        return expired("")
    message = fault.message or f"the sandbox was asked to fail with {code} {REASONS.get(code, '')}".strip()
    error = ApiError(code, message, headers=headers)
    if fault.retry_after is not None:
        error.status["details"] = {"retryAfterSeconds": int(fault.retry_after)}
    return error
