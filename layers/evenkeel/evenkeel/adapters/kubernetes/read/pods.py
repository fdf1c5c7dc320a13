"""Reads the fields of pods that scheduling needs. Other fields are not decoded.

Pods of one template share one ``Needs``, because a cluster has thousands of pods but only some hundred templates.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from evenkeel.domain.model.values import BadValueError, quote
from evenkeel.domain.model.workload import (
    DEFAULT_SCHEDULER,
    Amounts,
    Container,
    HostPort,
    Needs,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodVolume,
    Requirement,
    Resources,
    Selector,
    Toleration,
    TopologySpreadConstraint,
    Unscheduled,
)
from evenkeel.domain.rebalancing.membership.quantities import read_amount, read_duration

_NO_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
# The kinds of volumes whose names are read. These names identify the claims of ephemeral volumes, and the local volumes
# that may be lost.
_NAMED_VOLUMES = frozenset({"persistentVolumeClaim", "ephemeral", "emptyDir", "hostPath"})
# The known fields of a pod's spec. Each field is either read here, or does not restrict where the pod can run (core/v1
# types.go, PodSpec of Kubernetes 1.36).
_KNOWN = frozenset(
    {
        *("affinity", "containers", "initContainers", "nodeName", "nodeSelector", "overhead", "priority"),
        *("resourceClaims", "resources", "schedulerName", "schedulingGates", "terminationGracePeriodSeconds"),
        *("tolerations", "topologySpreadConstraints", "volumes"),
        *("activeDeadlineSeconds", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks"),
        *("ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname"),
        *("hostnameOverride", "imagePullSecrets", "os", "preemptionPolicy", "priorityClassName", "readinessGates"),
        *("restartPolicy", "runtimeClassName", "securityContext", "serviceAccount", "serviceAccountName"),
        *("setHostnameAsFQDN", "shareProcessNamespace", "subdomain"),
    }
)
_Fields = Mapping[str, Any]  # name of a field -> the known fields below it; None: fields below it are not checked
_REQUIRED, _PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
_RESOURCES: _Fields = dict.fromkeys(("requests", "limits", "claims"))
_SELECTOR: _Fields = dict.fromkeys(("matchLabels", "matchExpressions"))
_POD_TERMS: _Fields = {
    _PREFERRED: None,
    _REQUIRED: {
        **dict.fromkeys(("topologyKey", "namespaces", "matchLabelKeys", "mismatchLabelKeys")),
        "labelSelector": _SELECTOR,
        "namespaceSelector": _SELECTOR,
    },
}
# The known fields below ``affinity`` and ``topologySpreadConstraints``.
_KNOWN_AFFINITY: _Fields = {
    "nodeAffinity": {
        _PREFERRED: None,
        _REQUIRED: {"nodeSelectorTerms": dict.fromkeys(("matchExpressions", "matchFields"))},
    },
    "podAffinity": _POD_TERMS,
    "podAntiAffinity": _POD_TERMS,
}
_KNOWN_SPREAD: _Fields = {
    **dict.fromkeys(("topologyKey", "maxSkew", "whenUnsatisfiable", "minDomains", "matchLabelKeys")),
    **dict.fromkeys(("nodeAffinityPolicy", "nodeTaintsPolicy")),
    "labelSelector": _SELECTOR,
}
_NULL = Raw(b"null")


class Shape(Struct, gc=False, rename="camel"):
    """The fields of an object that Evenkeel reads."""


class OwnerShape(Shape):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(Shape):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[OwnerShape] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    @property
    def controller(self) -> Owner | None:
        """Return the controlling owner."""
        owner = next((owner for owner in self.owner_references or () if owner.controller), None)
        return None if owner is None else Owner(owner.kind, owner.name)


class SelectorShape(Shape):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class NodeTermShape(Shape):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelectorShape(Shape):
    node_selector_terms: list[NodeTermShape] | None = None


class PodAnnotations(
    Struct,
    gc=False,
    rename={
        "mirror": "kubernetes.io/config.mirror",
        "daemon": "cluster-autoscaler.kubernetes.io/daemonset-pod",
        "safe": "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "safe_volumes": _SAFE_VOLUMES,
        "delay": "cluster-autoscaler.kubernetes.io/pod-scale-up-delay",
    },
):
    mirror: str | None = None
    daemon: str | None = None
    safe: str | None = None
    safe_volumes: str | None = None
    delay: str | None = None

    def read(self) -> Mapping[str, str]:
        """Return the annotations by their names."""
        return {name: text for field, name in _ANNOTATIONS if (text := getattr(self, field)) is not None}


_ANNOTATIONS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(PodAnnotations))


class PodMetadata(Metadata):
    uid: str = ""
    annotations: PodAnnotations | None = None


class ResourcesShape(Shape):
    requests: dict[str, Any] | None = None


class _Port(Shape):
    host_port: int = 0
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class _Container(Shape):
    name: str = ""
    resources: Raw = _NULL
    ports: list[_Port] | None = None
    restart_policy: str | None = None


class _PodTerm(Shape):
    topology_key: str
    label_selector: SelectorShape | None = None
    namespaces: list[str] | None = None
    namespace_selector: SelectorShape | None = None


class _PodAffinity(Shape):
    required: list[_PodTerm] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _NodeAffinity(Shape):
    required: NodeSelectorShape | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Shape):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Spread(Shape):
    topology_key: str
    max_skew: int
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: SelectorShape | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class _Named(Shape):
    name: str = ""


class _Spec(Shape):
    """A pod's spec. Its raw fields are decoded once for all equal specs."""

    node_name: str = ""
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    scheduler_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: Raw = _NULL
    overhead: dict[str, Any] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Raw = _NULL
    tolerations: list[_Toleration] | None = None
    topology_spread_constraints: Raw = _NULL
    volumes: list[dict[str, Raw]] | None = None
    resource_claims: list[_Named] | None = None
    scheduling_gates: list[_Named] | None = None


class ConditionShape(Shape):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: datetime | None = None


class _ContainerStatus(Shape):
    name: str = ""
    resources: ResourcesShape | None = None
    allocated_resources: dict[str, Any] | None = None


class _Status(Shape):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: list[ConditionShape] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resources: ResourcesShape | None = None
    allocated_resources: dict[str, Any] | None = None


class PodShape(Shape):
    """A pod. ``Pods`` decodes its spec."""

    metadata: PodMetadata
    spec: Raw
    status: _Status | None = None


_spec = msgspec.json.Decoder(_Spec).decode
_names = msgspec.json.Decoder(dict[str, Raw]).decode
_affinity = msgspec.json.Decoder(_Affinity | None).decode
_spreads = msgspec.json.Decoder(list[_Spread] | None).decode
_resources = msgspec.json.Decoder(ResourcesShape | None).decode
_plain = msgspec.json.Decoder().decode
_encode = msgspec.json.encode


class Pods:
    """Reads pods one after the other. Pods with equal needs, labels, owners or names of nodes share one copy."""

    def __init__(self) -> None:
        self._needs: dict[object, Needs] = {}
        self._labels: dict[object, Mapping[str, str]] = {}
        self._values: dict[Any, Any] = {}
        self.weight = 0  # the approximate bytes of the shared needs and labels

    def read(self, shape: PodShape) -> Pod:
        """Return the pod. Raises msgspec.ValidationError, BadValueError."""
        metadata, status = shape.metadata, shape.status or _Status()
        spec = _spec(shape.spec)
        fields = _names(shape.spec)
        unread = tuple(sorted(name for name in fields.keys() - _KNOWN if bytes(fields[name]) != b"null"))
        annotations = metadata.annotations.read() if metadata.annotations else {}
        priority, grace, node = spec.priority, spec.termination_grace_period_seconds, spec.node_name
        shared = self._values.setdefault
        owner, phase = metadata.controller, status.phase or "Pending"
        grace_period = timedelta(seconds=30 if grace is None else max(0, min(grace, 10**9)))
        return Pod(
            namespace=shared(metadata.namespace, metadata.namespace),
            name=metadata.name,
            created_at=utc(metadata.creation_timestamp) or _NO_MOMENT,
            needs=self._needs_of(spec, status, metadata.name, unread),
            labels=self._shared(metadata.labels),
            annotations=self._shared(annotations),
            owner=shared(owner, owner),
            node=shared(node, node),
            nominated=status.nominated_node_name or "",
            phase=shared(phase, phase),
            priority=priority,
            unscheduled=_unscheduled(status),
            deleted_at=utc(metadata.deletion_timestamp),
            grace=shared(grace_period, grace_period),
            scale_up_delay=_delay(metadata.annotations),
        )

    def _shared(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        if not labels:
            return _NOTHING
        equal = frozenset(labels.items())
        shared = self._labels.setdefault(equal, labels)
        if shared is labels:
            self.weight += sum(len(key) + len(value) for key, value in equal)
        return shared

    def _needs_of(self, spec: _Spec, status: _Status, pod: str, unread: tuple[str, ...]) -> Needs:
        volumes = tuple(_volume(entry, pod) for entry in spec.volumes or ())
        # These fields are cleared, because the specs of all pods of one template are equal without them.
        spec.volumes, spec.node_name, spec.priority, spec.termination_grace_period_seconds = None, "", None, None
        statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
        running = {one.name: one for one in statuses if one.resources is not None or one.allocated_resources}
        # Only a pod with pod-level requests can have a pod-level resize. The pod-level status of other pods is ignored,
        # so that pods of one template share their needs.
        whole = (status.resources, status.allocated_resources) if _resources(spec.resources) else (None, None)
        asked, taken = _encode(spec), _encode([*(running[name] for name in sorted(running)), whole])
        infeasible = _is_infeasible(status)
        equal = (asked, volumes, taken, unread, infeasible)
        needs = self._needs.get(equal)
        if needs is None:
            self.weight += len(asked) + len(taken) + sum(len(one.name) + len(one.claim) for one in volumes)
            needs = self._needs[equal] = _needs(spec, volumes, unread, _resources_of(spec, running, whole, infeasible))
        return needs


_NOTHING: Mapping[str, str] = {}


def _resources_of(
    spec: _Spec,
    running: Mapping[str, _ContainerStatus],
    whole: tuple[ResourcesShape | None, dict[str, Any] | None],
    infeasible: bool,
) -> Resources:
    has, granted = whole
    return Resources(
        containers=_containers(spec.containers, running),
        init_containers=_containers(spec.init_containers, running),
        pod_requests=_requests(spec.resources),
        pod_running_with=amounts(has.requests) if has else None,
        pod_allocated=amounts(granted) if granted else None,
        overhead=amounts(spec.overhead),
        resize_infeasible=infeasible,
    )


def _needs(spec: _Spec, volumes: tuple[PodVolume, ...], unread: tuple[str, ...], resources: Resources) -> Needs:
    affinity, spreads = _affinity(spec.affinity) or _Affinity(), _spreads(spec.topology_spread_constraints) or ()
    return Needs(
        resources=resources,
        node_selector=spec.node_selector or {},
        node_terms=node_terms(affinity.node_affinity.required if affinity.node_affinity else None),
        tolerations=tuple(
            Toleration(one.key or "", one.operator or "", one.value or "", one.effect or "")
            for one in spec.tolerations or ()
        ),
        spread=tuple(_spread(one) for one in spreads if one.when_unsatisfiable == "DoNotSchedule"),
        affinity=_pod_terms(affinity.pod_affinity),
        anti_affinity=_pod_terms(affinity.pod_anti_affinity),
        volumes=volumes,
        resource_claims=tuple(one.name for one in spec.resource_claims or ()),
        scheduler=spec.scheduler_name or DEFAULT_SCHEDULER,
        gates=tuple(one.name for one in spec.scheduling_gates or ()),
        unread=tuple(sorted({*unread, *_unread(spec, spreads)})),
    )


def _unread(spec: _Spec, spreads: Iterable[_Spread]) -> Iterator[str]:
    """Yield the paths of unknown fields below the spec. Each such field may restrict where the pod can run."""
    yield from _unknown(_plain(spec.affinity), _KNOWN_AFFINITY, "affinity")
    yield from _unknown(_plain(spec.topology_spread_constraints), _KNOWN_SPREAD, "topologySpreadConstraints")
    if any(one.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway") for one in spreads):
        yield "topologySpreadConstraints[].whenUnsatisfiable"
    yield from _unknown(_plain(spec.resources), _RESOURCES, "resources")
    for path, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for container in containers or ():
            yield from _unknown(_plain(container.resources), _RESOURCES, f"{path}[].resources")


def _unknown(value: Any, known: _Fields, path: str) -> Iterator[str]:
    """Yield the paths of a value's fields that are not known. A field with null counts as absent."""
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, known, f"{path}[]")
    elif isinstance(value, dict):
        for name, held in value.items():
            if held is None:
                continue
            if name not in known:
                yield f"{path}.{name}"
            elif (below := known[name]) is not None:
                yield from _unknown(held, below, f"{path}.{name}")


def _requests(resources: Raw) -> Amounts:
    shape = _resources(resources)
    return amounts(shape.requests if shape else None)


def _containers(shapes: Iterable[_Container] | None, running: Mapping[str, _ContainerStatus]) -> tuple[Container, ...]:
    containers = []
    for shape in shapes or ():
        status = running.get(shape.name)
        ports = (port for port in shape.ports or () if port.host_port)
        containers.append(
            Container(
                name=shape.name,
                requests=_requests(shape.resources),
                ports=tuple(HostPort(port.host_port, port.protocol or "TCP", port.host_ip or "") for port in ports),
                stays=shape.restart_policy == "Always",
                running_with=amounts(status.resources.requests) if status and status.resources else None,
                allocated=amounts(status.allocated_resources) if status and status.allocated_resources else None,
            )
        )
    return tuple(containers)


def _spread(shape: _Spread) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        key=shape.topology_key,
        max_skew=shape.max_skew,
        selector=selector(shape.label_selector),
        min_domains=shape.min_domains or 1,
        honors_affinity=shape.node_affinity_policy != "Ignore",
        honors_taints=shape.node_taints_policy == "Honor",
        label_keys=tuple(shape.match_label_keys or ()),
    )


def _pod_terms(shape: _PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return tuple(
        PodAffinityTerm(
            key=term.topology_key,
            selector=selector(term.label_selector),
            namespaces=frozenset(term.namespaces or ()),
            namespace_selector=selector(term.namespace_selector),
        )
        for term in (shape.required if shape else None) or ()
    )


def _volume(entry: Mapping[str, Raw], pod: str) -> PodVolume:
    kind = min((key for key in entry if key != "name"), default="emptyDir")  # emptyDir is the API server's default
    if kind not in _NAMED_VOLUMES:
        return _unnamed_volume(kind)
    name = str(_plain(entry.get("name", b'""')))
    source = _plain(entry.get(kind, b"{}"))
    source = source if isinstance(source, dict) else {}
    claim = str(source.get("claimName", "")) if kind == "persistentVolumeClaim" else ""
    return PodVolume(
        name=name,
        kind=kind,
        claim=f"{pod}-{name}" if kind == "ephemeral" else claim,
        in_memory=kind == "emptyDir" and source.get("medium") == "Memory",
    )


@lru_cache(maxsize=64)
def _unnamed_volume(kind: str) -> PodVolume:
    """Return a volume without its name, which may be random, such as that of a ServiceAccount token."""
    return PodVolume(name="", kind=kind)


def _unscheduled(status: _Status) -> Unscheduled | None:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return Unscheduled(condition.reason or "", utc(condition.last_transition_time))
    return None


def _is_infeasible(status: _Status) -> bool:
    return any(one.type == "PodResizePending" and one.reason == "Infeasible" for one in status.conditions or ())


def _delay(annotations: PodAnnotations | None) -> timedelta:
    try:
        return read_duration(annotations.delay) if annotations and annotations.delay else timedelta(0)
    except BadValueError:  # Cluster Autoscaler ignores a bad value, too
        return timedelta(0)


# ---------------------------------------------------------------- fields that other kinds also have


def utc(moment: datetime | None) -> datetime | None:
    """Return a time with a time zone. A time without one is in UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def amounts(values: Mapping[str, Any] | None) -> Amounts:
    """Return amounts by resource. Raises BadValueError, which names the resource and its value."""
    read = {}
    for name, value in (values or {}).items():
        try:
            read[name] = _amount(value) if isinstance(value, str) else read_amount(value)
        except BadValueError as error:
            raise BadValueError(f"{name} is {quote(value)}: {error}") from None
    return read


_amount = lru_cache(maxsize=4096)(read_amount)


def selector(shape: SelectorShape | None) -> Selector | None:
    """Return a selector. A selector None matches nothing, an empty selector matches everything."""
    if shape is None:
        return None
    equal = (Requirement(key, "In", (value,)) for key, value in sorted((shape.match_labels or {}).items()))
    return (*equal, *(shape.match_expressions or ()))


def node_terms(shape: NodeSelectorShape | None) -> tuple[NodeSelectorTerm, ...] | None:
    """Return the terms of a node selector, or None where there is none."""
    if shape is None:
        return None
    return tuple(
        NodeSelectorTerm(tuple(term.match_expressions or ()), tuple(term.match_fields or ()))
        for term in shape.node_selector_terms or ()
    )
