"""A simulated Kubernetes API server over HTTPS: real clients talk to it, tests and scenarios steer it.

The rules for objects live in `store`; here are the wire (paths, verbs, media types, discovery, tokens, RBAC), the
faults that a scenario asks for, and the log of every request.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml

from sandbox.kube.access import Rule, kubeconfig
from sandbox.kube.errors import REASONS, ApiError, details_of, expired
from sandbox.kube.resources import Resource
from sandbox.kube.schema import Json, Object, load_crds
from sandbox.kube.store import Clock, Store

_OWN_RIGHTS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PARTIAL = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_VERBS = ("create", "delete", "get", "list", "patch", "update")
_LARGEST_BODY = 3 * 1024 * 1024  # bytes, as the real server


@dataclass(kw_only=True)
class Request:
    """One request as the log keeps it. `status` is 0 until it is answered, and stays 0 when the answer was lost."""

    method: str
    path: str
    query: dict[str, str]
    user: str = ""
    manager: str = ""
    body: Json = None
    status: int = 0

    @property
    def has_patched(self) -> bool:
        """Whether an object was changed by it: a dry run changes none."""
        return self.method == "PATCH" and self.status == 200 and self.query.get("dryRun") != "All"

    def matches(
        self,
        *,
        method: str | None = None,
        path_contains: str = "",
        query_contains: str = "",
        manager: str | None = None,
        status: int | None = None,
    ) -> bool:
        return (
            (method is None or self.method == method)
            and path_contains in self.path
            and query_contains in "&".join(f"{key}={value}" for key, value in self.query.items())
            and (manager is None or self.manager == manager)
            and (status is None or self.status == status)
        )


class RequestLog:
    """Every request so far, in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Request] = []

    def add(self, request: Request) -> None:
        with self._lock:
            self._entries.append(request)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def matching(self, **criteria: Any) -> list[Request]:
        """The requests that meet all criteria of `Request.matches`."""
        return [entry for entry in self if entry.matches(**criteria)]

    def count(self, **criteria: Any) -> int:
        return len(self.matching(**criteria))

    def __iter__(self) -> Iterator[Request]:
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(kw_only=True)
class Fault:
    """Trouble for the next `times` requests that match.

    `stage` "before": the request is not carried out. "after": it is, and the answer is lost.
    `status` None with "before" drops the connection; `cut_body` answers 200 but breaks off half-way.
    """

    method: str | None
    path_contains: str
    query_contains: str
    status: int | None
    retry_after: float | None
    times: int
    stage: Literal["before", "after"]
    delay: float
    cut_body: bool
    message: str


class Faults:
    """The faults that wait for a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(
        self,
        *,
        method: str | None = None,
        path_contains: str = "",
        query_contains: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        times: int = 1,
        stage: Literal["before", "after"] = "before",
        delay: float = 0.0,
        cut_body: bool = False,
        message: str = "",
    ) -> Fault:
        """Arrange a fault. `delay` and `retry_after` are seconds.

        With neither `status`, `cut_body` nor stage "after", a `delay` alone only slows the request down.
        A later page of a list is `query_contains="continue="`.
        """
        fault = Fault(
            method=method,
            path_contains=path_contains,
            query_contains=query_contains,
            status=status,
            retry_after=retry_after,
            times=times,
            stage=stage,
            delay=delay,
            cut_body=cut_body,
            message=message,
        )
        with self._lock:
            self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def take(self, request: Request) -> Fault | None:
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


class _LostAnswerError(Exception):
    """The connection ends without an answer."""


@dataclass(frozen=True, kw_only=True)
class _Answer:
    code: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class _Target:
    """What a path addresses."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str


class KubernetesAPI:
    """One simulated API server, for as long as a `with` block lasts.

    `users` maps a user's name to the rules it has; without it `evenkeel` and `cluster-autoscaler` may do everything,
    `nobody` nothing. `admin` always may. `crds` default to all that Evenkeel meets. `clock` dates the objects.
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
        #: called with the request before it is carried out, and after it was, without any lock held
        self.before: list[Callable[[Request], None]] = []
        self.after: list[Callable[[Request], None]] = []
        if users is None:
            users = {"evenkeel": [Rule.all()], "cluster-autoscaler": [Rule.all()], "nobody": []}
        self._rules = {user: list(rules) for user, rules in users.items()} | {"admin": [Rule.all()]}
        self._tokens = {user: secrets.token_hex(16) for user in self._rules}
        self._ca = trustme.CA()
        self.ca_pem = self._ca.cert_pem.bytes().decode()
        self.url = ""
        self._server: _Server | None = None

    # -- access -------------------------------------------------------------------------------------------------

    def token(self, user: str) -> str:
        """The bearer token of a user; KeyError for one that does not exist."""
        return self._tokens[user]

    def renew_token(self, user: str) -> str:
        """Make the user's token invalid and return the new one: what an expired credential looks like."""
        self._tokens[user] = secrets.token_hex(16)
        return self._tokens[user]

    def kubeconfig(self, user: str = "evenkeel") -> dict[str, Json]:
        """A kubeconfig with inline data only."""
        return kubeconfig(url=self.url, ca_pem=self.ca_pem, user=user, token=self.token(user))

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """Allow `user` what the rules say, in addition to what it has."""
        self._rules[user].extend(rules)

    def revoke(self, user: str) -> None:
        """From now on `user` may do nothing."""
        self._rules[user].clear()

    def expire_continue_tokens(self) -> None:
        """Make every running list's continue token too old (410 Expired)."""
        self.store.expire_continue_tokens()

    # -- life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        self._server = _Server(self, context)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    # -- one request --------------------------------------------------------------------------------------------

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        """Carry out one request; header names in lower case. _LostAnswerError when a fault wants the connection cut.

        The answer has the server's own time in its Date header, in whole seconds.
        """
        answer = self._answer(method, target, headers, body)
        return replace(answer, headers={**answer.headers, "Date": format_datetime(self.store.clock(), usegmt=True)})

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        agent = headers.get("user-agent", "")
        request = Request(
            method=method,
            path=parts.path,
            query=query,
            user=self._user(headers.get("authorization", "")),
            manager=query.get("fieldManager") or agent.split("/")[0] or "unknown",
        )
        self.requests.add(request)
        fault = self.faults.take(request)
        if fault is not None and fault.delay:
            threading.Event().wait(fault.delay)
        if fault is not None and fault.stage == "before" and fault.status is not None:
            answer = _failure(_fault_error(fault))
        elif fault is not None and fault.stage == "before" and not (fault.delay or fault.cut_body):
            raise _LostAnswerError
        else:
            for hook in list(self.before):
                hook(request)
            try:
                content_type = headers.get("content-type", "application/json").split(";")[0].strip()
                answer = self._carry_out(request, content_type, body)
                if _PARTIAL in headers.get("accept", "") and answer.code == 200:
                    answer = _metadata_only(answer)
            except ApiError as error:
                answer = _failure(error)
            for hook in list(self.after):
                hook(request)
            if fault is not None and fault.stage == "after":
                raise _LostAnswerError
            if fault is not None and fault.cut_body:
                answer = _Answer(code=answer.code, body=answer.body, cut=True)
        request.status = answer.code
        return answer

    def _user(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer":
            return ""
        return next((user for user, known in self._tokens.items() if secrets.compare_digest(known, token)), "")

    def _carry_out(self, request: Request, content_type: str, raw: bytes) -> _Answer:
        path = request.path
        if path in ("/healthz", "/livez", "/readyz"):
            return _Answer(code=200, body=b"ok", content_type="text/plain; charset=utf-8")
        if not request.user:
            raise ApiError(401, "Unauthorized")
        if request.method == "GET" and (document := self._discovery(path)) is not None:
            return _encode(200, document)
        if request.method == "POST" and path == _OWN_RIGHTS:
            request.body = _decode(raw, content_type, "create", "SelfSubjectAccessReview")
            return _encode(201, {**request.body, "status": {"allowed": self._may(request)}})
        target = _parse_path(path)
        if target is None:
            return _Answer(code=404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")
        self._authorize(request, target)
        resource = self._resource(target)
        if resource is None:
            return _Answer(code=404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")
        verb = _verb(request, target)
        if verb is None or (target.subresource and not _has(resource, target)):
            code = 404 if target.subresource and not _has(resource, target) else 405
            text = (
                "could not find the requested resource"
                if code == 404
                else "does not allow this method on the requested resource"
            )
            raise ApiError(code, f"the server {text}", details={})
        if verb in ("create", "update", "patch", "delete") and raw:
            _check_content_type(verb, content_type, resource)
            request.body = _decode(raw, content_type, verb, resource.kind)
            if content_type == _APPLY_PATCH:
                return self._apply(request, target, resource)
        return self._on_resource(request, target, resource, verb)

    def _apply(self, request: Request, target: _Target, resource: Resource) -> _Answer:
        if "fieldManager" not in request.query:
            text = "fieldManager: Required value: is required for apply patch"
            raise ApiError(422, f'PatchOptions.meta.k8s.io "" is invalid: {text}')
        if target.subresource:
            raise ApiError(415, "the sandbox applies no subresource")
        there = any(
            item["metadata"]["name"] == target.name
            for item in self.store.list(resource.full_name, target.namespace, fields=f"metadata.name={target.name}")
        )
        made = self.store.apply(
            resource.full_name,
            request.body,
            namespace=target.namespace,
            name=target.name,
            version=target.version,
            manager=request.manager,
            force=request.query.get("force") == "true",
            dry_run=request.query.get("dryRun") == "All",
        )
        return _encode(200 if there else 201, made)

    def _on_resource(self, request: Request, target: _Target, resource: Resource, verb: str) -> _Answer:
        store, name = self.store, resource.full_name
        write: dict[str, Any] = {
            "version": target.version,
            "manager": request.manager,
            "dry_run": request.query.get("dryRun") == "All",
        }
        if verb == "list":
            return self._list(request, target, resource)
        if verb == "get":
            if target.subresource == "scale":
                return _encode(200, store.scale_of(name, target.namespace, target.name, version=target.version))
            encoded = store.encoded(name, target.namespace, target.name, version=target.version)
            return _Answer(code=200, body=encoded)
        if verb == "delete":
            given = request.body if isinstance(request.body, dict) else {}
            return _encode(
                200,
                store.delete(
                    name,
                    target.namespace,
                    target.name,
                    version=target.version,
                    preconditions=given.get("preconditions"),
                    grace=_grace(request, given),
                    dry_run=write["dry_run"],
                ),
            )
        if request.body is None:
            raise ApiError(400, "unexpected end of JSON input")
        if target.subresource == "eviction":
            return self._evict(request, target, dry_run=write["dry_run"])
        if verb == "create":
            return _encode(201, store.create(name, request.body, namespace=target.namespace, **write))
        write |= {"subresource": target.subresource}
        if verb == "update":
            changed = store.put(name, request.body, namespace=target.namespace, name=target.name, **write)
        else:
            changed = store.patch(name, target.namespace, target.name, request.body, **write)
        return _encode(200, changed)

    def _evict(self, request: Request, target: _Target, *, dry_run: bool) -> _Answer:
        given = cast("Object", request.body)
        if (given.get("metadata") or {}).get("name", "") != target.name:
            raise ApiError(400, "name in URL does not match name in Eviction object")
        how = given.get("deleteOptions") or {}
        self.store.evict(
            target.namespace,
            target.name,
            preconditions=how.get("preconditions"),
            grace=how.get("gracePeriodSeconds"),
            dry_run=dry_run or bool(how.get("dryRun")),
        )
        return _encode(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _list(self, request: Request, target: _Target, resource: Resource) -> _Answer:
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
            limit = 0  # the watch cache answers, and that has no pages
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
        # Fields in the order of their names, as a real server writes custom resources; the items are JSON already.
        parts = (
            f'{{"apiVersion":{json.dumps(resource.api_version(target.version))},"items":['.encode(),
            b",".join(page.items),
            f'],"kind":"{resource.kind}List","metadata":{json.dumps(metadata, separators=(",", ":"))}}}\n'.encode(),
        )
        return _Answer(code=200, body=b"".join(parts))

    def _resource(self, target: _Target) -> Resource | None:
        full = f"{target.plural}.{target.group}" if target.group else target.plural
        for resource in self.store.resources:
            if resource.full_name == full and any(version.name == target.version for version in resource.versions):
                return resource
        return None

    def _may(self, request: Request) -> bool:
        """The answer to a SelfSubjectAccessReview."""
        asked = request.body["spec"]["resourceAttributes"]
        parts = [asked.get(part, "") for part in ("verb", "group", "resource", "namespace", "name")]
        return any(rule.allows(*parts) for rule in self._rules[request.user])

    def _authorize(self, request: Request, target: _Target) -> None:
        verb = _verb(request, target) or request.method.lower()
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        namespace, name = target.namespace, target.name
        for rule in self._rules[request.user]:
            if rule.allows(verb, target.group, resource, namespace, name):
                return
        full = f"{target.plural}.{target.group}" if target.group else target.plural
        subject = f'{full} "{name}"' if name else full
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
            return {
                "major": "1",
                "minor": "31",
                "gitVersion": "v1.31.0+evenkeel-sandbox",
                "gitCommit": "",
                "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "",
                "compiler": "python",
                "platform": "linux/amd64",
            }
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
    own = re.match(r"^/api/v1/namespaces(?:/([^/]+)(?:/(status))?)?/?$", path)
    if own:
        return _Target(
            group="", version="v1", plural="namespaces", namespace="", name=own[1] or "", subresource=own[2] or ""
        )
    match = _PATH.match(path)
    if match is None:
        return None
    return _Target(
        group=match["group"] or "",
        version=match["version"],
        plural=match["plural"],
        namespace=match["namespace"] or "",
        name=match["name"] or "",
        subresource=match["subresource"] or "",
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


def _grace(request: Request, given: Object) -> int | None:
    """The seconds that a deleted pod gets: of the address or of the body, None where neither says."""
    text = request.query.get("gracePeriodSeconds", given.get("gracePeriodSeconds"))
    return None if text is None else int(text)


def _metadata_only(answer: _Answer) -> _Answer:
    """A list as it is sent to who asks for metadata alone: a struct of Go's, whose fields come in their own order."""
    found = json.loads(answer.body)
    if "items" not in found:
        return answer
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    own = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}
    return _encode(200, {**own, "items": [{**one, "metadata": item["metadata"]} for item in found["items"]]})


def _check_content_type(verb: str, content_type: str, resource: Resource) -> None:
    if verb == "patch":
        accepted = [_MERGE_PATCH, _APPLY_PATCH] + ([] if resource.group else [_STRATEGIC_PATCH])
    else:
        accepted = ["application/json", "application/yaml"]
    if content_type not in accepted:
        raise ApiError(
            415,
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
        )


def _decode(raw: bytes, content_type: str, verb: str, kind: str) -> Json:
    try:
        body = _from_yaml(raw) if content_type in ("application/yaml", _APPLY_PATCH) else json.loads(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        if verb == "patch":
            raise ApiError(500, "Invalid JSON Patch", reason="") from None
        raise ApiError(
            400, f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {error}"
        ) from None
    if not isinstance(body, dict):
        raise ApiError(422, f' "" is invalid: patch: Invalid value: {json.dumps(body)[:80]}: no object')
    return body


def _from_yaml(raw: bytes) -> Json:
    """All JSON is YAML, and as JSON it is read a hundred times as fast."""
    try:
        return json.loads(raw)
    except ValueError:
        return yaml.safe_load(raw)


def _encode(code: int, body: Object) -> _Answer:
    return _Answer(code=code, body=json.dumps(body, separators=(",", ":")).encode())


def _failure(error: ApiError) -> _Answer:
    answer = _encode(error.code, error.status)
    return _Answer(code=answer.code, body=answer.body, headers=error.headers)


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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: KubernetesAPI, context: ssl.SSLContext) -> None:
        self.api = api
        self._context = context
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        # the handshake happens at the first read, in the connection's own thread: a slow client holds up nobody
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up or refuse our certificate are part of the tests, not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "evenkeel-sandbox"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    timeout = 60
    server: _Server

    def _serve(self) -> None:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            self._send(_failure(ApiError(413, "the request is too large", reason="RequestEntityTooLarge")))
            return
        body = self.rfile.read(int(length))
        try:
            answer = self.server.api.answer(
                self.command, self.path, {key.lower(): value for key, value in self.headers.items()}, body
            )
        except _LostAnswerError:
            self.close_connection = True
            return
        self._send(answer)

    def _send(self, answer: _Answer) -> None:
        self.send_response_only(answer.code)  # its Date would be the machine's
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        if answer.cut:
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(answer.body)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (the names that http.server calls)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence: `KubernetesAPI.requests` is the log."""
