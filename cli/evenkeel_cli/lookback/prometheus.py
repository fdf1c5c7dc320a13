"""Return the history that answers of Prometheus tell: replicas of node groups, and what else its exporters say.

Series of one group are one, whichever exporter, pod or Prometheus has them: only the names of the group and of its
namespace count. Groups of several clusters in one answer are refused.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from shlex import quote as shell
from statistics import median
from typing import Any

from evenkeel.adapters.documents import UnreadableError, read_documents
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, Identity, NodeGroup
from evenkeel.domain.model.values import quote
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.aws_names import stems, without_zone
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.lookback.activities import text_of
from evenkeel_cli.lookback.history import Doubt, GroupHistory, History, KnownBounds, Refusal
from evenkeel_cli.lookback.replicas import Replicas, read_replicas, usual_boot
from evenkeel_cli.objects import read_objects

MOST_POINTS = 11_000  # of a series in one answer; Prometheus refuses more
STEP = 60
_INFO_STEP = 3600  # of queries about what does not change
_DAY = 86400
_CA = "cluster_autoscaler_node_group_"
_BOUNDS = (f"{_CA}min_count", f"{_CA}max_count")
_JOINED = ("mcm_machine_machine_join_duration_seconds", "mcm_machine_join_duration_seconds")
_NODES = ("kube_node_info", "kube_node_labels", "kube_node_created")
_CREATED = "mapi_machine_created_timestamp_seconds"
_MACHINES = ("capi_machine_info", "capi_machine_status_noderef", "mcm_machine_info", _CREATED)
_FAILURES = {
    "mapi_instance_create_failed": "reason",
    "mcm_cloud_api_driver_requests_failed_total": "error_code",
    f"{_CA}backoff_status": "reason",
    "cluster_autoscaler_failed_node_creations_total": "reason",
}
_ZONE = re.compile(r"aws:///([a-z]{2}(?:-[a-z]+)+-\d[^/]+)/|gce://[^/]+/([^/]+)/")
_ZONE_LABELS = (
    "failure_domain",
    "label_topology_kubernetes_io_zone",
    "label_failure_domain_beta_kubernetes_io_zone",
)
_GROUP_LABELS = re.compile(r"label_.*(node_?group|node_?pool|instance_?group|agent_?pool|machine_?deployment)(_name)?$")
_ORDINAL = re.compile(r"[-._](?:[a-z]|(?:az|zone|z)?[0-9]{1,2})$")
_ANSWER = re.compile(r'\s*(\{\s*"(?:status|data|errorType|warnings)"\s*:|\[\s*(\{\s*"metric"|\]\s*$))')


@dataclass(frozen=True)
class Source:
    """The metrics of an exporter of node groups. ``running``: the first of them that there is."""

    requested: str
    running: tuple[str, ...]
    infos: tuple[str, ...] = ()


SOURCES = {
    "cluster-api": Source(
        "capi_machinedeployment_spec_replicas",
        ("capi_machinedeployment_status_replicas_ready", "capi_machinedeployment_status_replicas_available"),
        ("capi_machine_info", "capi_machine_status_noderef"),
    ),
    "machine-controller-manager": Source(
        "mcm_machine_deployment_info_spec_replicas",
        ("mcm_machine_deployment_status_ready_replicas", "mcm_machine_deployment_status_available_replicas"),
        ("mcm_machine_info",),
    ),
    "openshift": Source(
        "mapi_machine_set_status_replicas",
        ("mapi_machine_set_status_replicas_ready", "mapi_machine_set_status_replicas_available"),
        (_CREATED,),
    ),
    "cluster-autoscaler": Source(f"{_CA}target_count", ("kube_node_info",), ("kube_node_labels",)),
}
_ALIASES = {"kube-state-metrics": "cluster-autoscaler"}
EXPORTERS = (*SOURCES, *_ALIASES)

_Numbers = dict[str, dict[str, dict[int, int]]]
"""Samples by metric and by the key of a group."""


@dataclass
class Series:
    """A series whose labels count more than its samples."""

    labels: Mapping[str, str]
    first: int
    times: set[int]
    value: float


@dataclass
class Samples:
    """The samples of all answers."""

    numbers: _Numbers = field(default_factory=dict)
    series: dict[str, list[Series]] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)


def is_answer(text: str) -> bool:
    """Return True for the text of an answer of Prometheus, or of promtool."""
    return _ANSWER.match(text[:400]) is not None


def print_queries(name: str, days: int, now: datetime) -> Iterator[str]:
    """Yield a command per answer that a history of a source needs."""
    source = SOURCES[_ALIASES.get(name, name)]
    by_node = source.running == ("kube_node_info",)
    start = now - timedelta(days=days)
    infos = (*source.infos, *_NODES, *_JOINED, *_FAILURES)
    fast = (source.requested, *source.running, *_BOUNDS)
    slow = [info for info in dict.fromkeys(infos) if not (by_node and info in fast)]
    for kind, metrics, step in (("replicas", fast, STEP), ("infos", slow, _INFO_STEP)):
        since, number = start, 1
        while since < now:
            until = min(now, since + timedelta(seconds=step * (MOST_POINTS - 1)))
            query = f'{{__name__=~"{"|".join(metrics)}"}}'
            parts = (f"query={query}", f"start={rfc3339(since)}", f"end={rfc3339(until)}", f"step={step}")
            arguments = " ".join(f"--data-urlencode {shell(part)}" for part in parts)
            yield f'curl -fsS "$PROMETHEUS/api/v1/query_range" {arguments} > {kind}-{number}.json'
            since, number = until + timedelta(seconds=step), number + 1


def read_samples(files: Sequence[tuple[str, str]]) -> Samples:
    """Return the samples of answers, given as (name, text). Raises ConfigError with a line per fault."""
    found, faults = Samples(), list[str]()
    for file, text in files:
        try:
            documents = read_documents(text)
        except UnreadableError as error:
            faults.append(f"{file}: {error}")
            continue
        for document in documents:
            if isinstance(document, list):  # promtool prints the series alone
                document = {"data": {"resultType": "matrix", "result": document}}
            if fault := _take(found, file, document):
                faults.append(f"{file}: {fault}")
    if len(found.clusters) > 1:
        faults.append(f"the answers are of the clusters {', '.join(sorted(found.clusters))}: query one at a time")
    if faults:
        raise ConfigError(faults)
    return found


def _take(found: Samples, file: str, document: Any) -> str | None:
    """Add one answer. Return what is wrong with it."""
    if not isinstance(document, Mapping):
        return "no answer of Prometheus: give JSON of /api/v1/query_range"
    if document.get("status") == "error" or "errorType" in document:
        return f"Prometheus answered {document.get('errorType')}: {quote(str(document.get('error'))[:200])}: query again"
    data = document.get("data")
    if not isinstance(data, Mapping) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        kind = data.get("resultType") if isinstance(data, Mapping) else None
        return f"its resultType is {quote(str(kind))}, but only a matrix has a history: ask /api/v1/query_range"
    for warning in document.get("warnings") or ():
        found.doubts.append(f"Prometheus warned in {file}: {quote(str(warning)[:120])}: the answer may have gaps")
    for item in data["result"]:
        metric = item.get("metric") if isinstance(item, Mapping) else None
        if not isinstance(metric, Mapping):
            return "a series has no field metric: give the whole answer"
        if "__name__" not in metric:
            return "a series has no __name__: query the metrics without functions, as --print-queries prints them"
        _take_series(found, metric, _values(item.get("values")))
    return None


def _values(values: Any) -> Iterator[tuple[int, float]]:
    """Yield the samples that are numbers. Stale and missing ones are none."""
    for entry in values if isinstance(values, list) else ():
        try:
            at, value = round(float(entry[0])), float(entry[1])
        except (TypeError, ValueError, LookupError, OverflowError):
            continue
        if math.isfinite(value) and value >= 0:
            yield at, value


def _take_series(found: Samples, metric: Mapping[str, str], values: Iterable[tuple[int, float]]) -> None:
    name, key = metric["__name__"], _key(metric)
    samples = dict(values)
    if not samples:
        return
    if cluster := metric.get("cluster"):
        found.clusters.add(cluster)
    if name in _FAILURES or name in _JOINED or name in _NODES or name in _MACHINES:
        is_counted = name in _FAILURES
        changes = {at for (_, old), (at, new) in pairwise(sorted(samples.items())) if new > old} | {min(samples)}
        times = changes if is_counted else set(samples) if name == "kube_node_info" else {max(samples)}
        found.series.setdefault(name, []).append(Series(metric, min(samples), times, samples[max(samples)]))
        return
    into = found.numbers.setdefault(name, {}).setdefault(key, {})
    for at, value in samples.items():
        into[at] = max(into.get(at, 0), round(value))


def _label(metric: Mapping[str, str], *names: str) -> str:
    """Return the first of several labels. Prometheus renames a label that its target has, too."""
    return next((metric[full] for name in names for full in (f"exported_{name}", name) if metric.get(full)), "")


def _key(metric: Mapping[str, str]) -> str:
    group = metric.get("node_group")
    return group or f"{_label(metric, 'namespace')}/{_label(metric, 'name')}"


def read_history(samples: Samples, objects: Sequence[tuple[str, str]], days: int, now: datetime | None) -> History:
    """Return the history of the groups. ``objects``: files with the groups' objects, which have bounds and zones.

    Raises ConfigError if the replicas of groups are missing, or if an object is bad.
    """
    name, source = _source(samples)
    requested = samples.numbers[source.requested]
    last = max(at for values in requested.values() for at in values)
    until = min(last, int(now.timestamp())) if now else last
    since = until - days * _DAY
    requested = {key: cut for key, values in requested.items() if (cut := _cut(values, since, until))}
    if not requested:
        raise ConfigError([f"no sample of {source.requested} is from the {days} days before {text_of(until)}"])
    step = round(median([after - at for values in requested.values() for at, after in pairwise(sorted(values))] or [0]))
    known = _Known(samples, _read_objects(objects, until), sorted(requested))
    if source.running == ("kube_node_info",):
        running = known.count_nodes(since, until)
    else:
        metric = next((one for one in source.running if one in samples.numbers), None)
        if metric is None:
            raise ConfigError([f"no answer has {source.running[0]}: --print-queries {name} prints the query"])
        running = samples.numbers[metric]
    boots = known.boots()
    boot = usual_boot([(requested[key], running.get(key, {})) for key in requested], boots)
    failures = _Failures(samples, known)
    pools, groups = known.pools(), []
    for key in sorted(requested):
        wanted = _whole(requested[key], requested, since, until, step)
        found = read_replicas(wanted, running.get(key, {}), known.zones(key)[0], boot, step)
        gaps = _gaps(known.short(key), requested[key], step, until)
        unseen = [] if key in running else [f"no sample tells how many nodes of {known.short(key)} run"]
        doubts = [Doubt(until + 1, text) for text in (*samples.doubts, *unseen, *known.doubts(key))]
        groups.append(_group(key, found, known, pools[key], failures, (*doubts, *gaps), boots))
    return History(
        source=f"Prometheus, {name}",
        since=max(since, min(at for values in requested.values() for at in values)),
        until=until,
        step=max(1, step),
        groups=tuple(groups),
        flavour="cluster-api",
        unknown=tuple(known.unknown(failures.has_any)),
    )


def _source(samples: Samples) -> tuple[str, Source]:
    for name, source in SOURCES.items():
        if samples.numbers.get(source.requested):
            return name, source
    if any(name.startswith("cluster_autoscaler_") for name in (*samples.numbers, *samples.series)):
        advice = "run cluster-autoscaler with --emit-per-nodegroup-metrics, or query another exporter"
        raise ConfigError([f"cluster-autoscaler's answers name no node group, so replicas by group are missing: {advice}"])
    names = ", ".join(source.requested for source in SOURCES.values())
    raise ConfigError([f"replicas by group are missing: no answer has samples of one of {names} (--print-queries)"])


def _cut(values: Mapping[int, int], since: int, until: int) -> dict[int, int]:
    return {at: values[at] for at in values if since <= at <= until}


def _whole(own: Mapping[int, int], every: Mapping[str, Mapping[int, int]], since: int, until: int, step: int) -> dict[int, int]:
    """Return a group's samples, and 0 before it was created. A group that is deleted keeps its last sample."""
    start = min(at for values in every.values() for at in values)
    first = min(own)
    return {**({start: 0, first - step: 0} if first - start > 3 * step else {}), **own}


def _gaps(name: str, own: Mapping[int, int], step: int, until: int) -> Iterator[Doubt]:
    """Yield the times without samples, if they are long enough for an order that nothing shows."""
    since = None
    for at, after in pairwise([*sorted(own), until + step]):
        is_gap = after - at > 3 * max(step, 1)
        if is_gap and since is None:
            since = at
        if since is not None and (not is_gap or after > until):
            end = at if not is_gap else after
            yield Doubt(end + 1, f"samples of {name} are missing from {text_of(since)} to {text_of(end)}", since)
            since = None


def _group(  # noqa: PLR0913  each is another part of what is known
    key: str,
    found: Replicas,
    known: "_Known",
    pool: str,
    failures: "_Failures",
    doubts: Sequence[Doubt],
    boots: Sequence[int],
) -> GroupHistory:
    zones = known.zones(key)
    return GroupHistory(
        name=known.short(key),
        pool=pool,
        zones=zones,
        bounds=known.bounds(key),
        running=found.running,
        requested=found.requested,
        orders=tuple(found.orders),
        removals=tuple(found.removals),
        losses=tuple(found.losses),
        given_up=tuple(found.given_up),
        refusals=tuple(Refusal(at, zones[0], *failures.why(key, at, last), last) for at, last in found.refused),
        launches=tuple(found.launches),
        provision=tuple(boots),
        doubts=tuple(doubts),
    )


def _read_objects(files: Sequence[tuple[str, str]], until: int) -> dict[str, NodeGroup]:
    """Return the groups of files by namespace and name."""
    policy = read_model(ClusterFile, {"pools": {"discover": "similar"}, "flavours": [*FLAVOURS]}, "record")
    observed = read_objects(files, policy, datetime.fromtimestamp(until, UTC))
    return {f"{group.key.namespace}/{group.key.name}": group for group in observed.groups}


class _Known:
    """What answers and objects tell about groups."""

    def __init__(self, samples: Samples, objects: Mapping[str, NodeGroup], keys: Sequence[str]) -> None:
        self._samples, self._objects, self._keys = samples, objects, keys
        self._node_zones = {
            _label(one.labels, "node"): zone
            for name in ("kube_node_info", "kube_node_labels")
            for one in samples.series.get(name, ())
            if (zone := _zone_of(one.labels))
        }
        self._zones: dict[str, set[str]] = {}
        for name in _MACHINES:
            for one in samples.series.get(name, ()):
                node = _label(one.labels, "node_name", "node")
                zone = _zone_of(one.labels) or self._node_zones.get(node or _label(one.labels, "name"))
                if zone and (key := self.group_of(_label(one.labels, "name"))):
                    self._zones.setdefault(key, set()).add(zone)
        self._unplaced = 0

    def short(self, key: str) -> str:
        """Return the name of a group."""
        return key.rpartition("/")[2]

    def group_of(self, machine: str) -> str:
        """Return the group whose name a machine's name begins with; empty: none."""
        fitting = [key for key in self._keys if machine == self.short(key) or machine.startswith(f"{self.short(key)}-")]
        return max(fitting, key=lambda key: len(self.short(key)), default="")

    def zones(self, key: str) -> tuple[str, ...]:
        """Return the zones of a group: of its object, its machines or its name. Without one, the name replaces it."""
        own = self._objects.get(key)
        if own is not None and own.identity.zone:
            return (own.identity.zone,)
        if found := self._zones.get(key):
            return tuple(sorted(found))
        every = {*self._node_zones.values(), *(zone for zones in self._zones.values() for zone in zones)}
        named = [zone for zone in sorted(every) if without_zone(key, zone) is not None]
        return (named[0],) if len(named) == 1 else (_plain(self.short(key)),)

    def pools(self) -> dict[str, str]:
        """Return the pool of each group: its label, else what the names of groups in several zones share."""
        found: dict[str, str] = {}
        for key in self._keys:
            zone, name = self.zones(key)[0], self.short(key)
            stem = _ORDINAL.sub("", name) if zone == _plain(name) else name
            found[key] = stem
        placed = [key for key in self._keys if self.zones(key)[0] != _plain(self.short(key))]
        groups = {
            key: NodeGroup(
                key=GroupKey("cluster-api", key.rpartition("/")[0], self.short(key)),
                identity=Identity(kind="MachineDeployment", zone=self.zones(key)[0]),
            )
            for key in placed
        }
        names = stems(groups.values())
        found |= {key: names[group.key] for key, group in groups.items()}
        found |= {key: own.identity.pool_label for key in found if (own := self._objects.get(key)) and own.identity.pool_label}
        return {key: _plain(pool) for key, pool in found.items()}

    def bounds(self, key: str) -> tuple[KnownBounds, ...]:
        """Return the bounds of a group: those that cluster-autoscaler counted, else those of its object."""
        least, most = (self._counted(metric, key) for metric in _BOUNDS)
        found: list[KnownBounds] = []
        for at in sorted(most):
            pair = least.get(at, 0), most[at]
            if not found or (found[-1].min, found[-1].max) != pair:
                found.append(KnownBounds(at, *pair))
        own = self._objects.get(key)
        if not found and own is not None and own.bounds is not None:
            found.append(KnownBounds(0, own.bounds.min, own.bounds.max))
        return tuple(found) or (KnownBounds(0, 0, 0),)

    def _counted(self, metric: str, key: str) -> dict[int, int]:
        ends = (f"/{self.short(key)}", f".{self.short(key)}")
        named = self._samples.numbers.get(metric, {})
        return next((named[name] for name in named if name in (key, self.short(key)) or name.endswith(ends)), {})

    def doubts(self, key: str) -> Iterator[str]:
        """Yield why a group cannot be replayed."""
        if self.bounds(key)[0].max == 0:
            yield (
                f"the bounds of {self.short(key)} are missing: add {_BOUNDS[1]}, or its object as kubectl prints it"
            )
        if self._unplaced:
            yield f"{self._unplaced} nodes fit no single group: add kube_node_labels with the label of their group"

    def count_nodes(self, since: int, until: int) -> dict[str, dict[int, int]]:
        """Return the nodes of each group at each sample, where only nodes are counted."""
        labels = {_label(one.labels, "node"): one.labels for one in self._samples.series.get("kube_node_labels", ())}
        nodes: dict[str, set[int]] = {}
        for one in self._samples.series.get("kube_node_info", ()):
            nodes.setdefault(_label(one.labels, "node"), set()).update(one.times)
        times = {at for own in nodes.values() for at in own if since <= at <= until}
        counts = {key: dict.fromkeys(times, 0) for key in self._keys}
        for node, seen in nodes.items():
            zone = self._node_zones.get(node, "")
            key = self._group_of_node(labels.get(node, {}), zone)
            if key is None:
                self._unplaced += 1
                continue
            if zone:
                self._zones.setdefault(key, set()).add(zone)
            for at in seen & times:
                counts[key][at] += 1
        return counts

    def _group_of_node(self, labels: Mapping[str, str], zone: str) -> str | None:
        names = [value for label, value in labels.items() if _GROUP_LABELS.match(label) and value]
        fitting = [key for key in self._keys if any(name in key for name in names)] or [*self._keys]
        zonal = [key for key in fitting if zone and without_zone(self.short(key), zone) is not None]
        fitting = zonal or fitting
        return fitting[0] if len(fitting) == 1 else None

    def boots(self) -> list[int]:
        """Return the seconds from machines to their nodes that exporters tell, without those of clocks apart."""
        created = {_label(one.labels, "node"): one.value for one in self._samples.series.get("kube_node_created", ())}
        found = [
            round(created[node] - one.value)
            for one in self._samples.series.get(_CREATED, ())
            if (node := _label(one.labels, "node")) in created
        ]
        for name in _JOINED:
            found += [round(one.value) for one in self._samples.series.get(name, ())]
        return sorted(boot for boot in found if 0 < boot <= _INFO_STEP)

    def unknown(self, has_failures: bool) -> Iterator[str]:
        """Yield what the answers lack."""
        if not has_failures:
            yield "why launches failed: they count as silent, so Evenkeel would learn of them late"
        if unknown := [self.short(key) for key in self._keys if self.zones(key) == (_plain(self.short(key)),)]:
            yield f"the zones of {len(unknown)} groups, which count as zones of their own: {unknown[0]}"
        if not any(metric in self._samples.numbers for metric in _BOUNDS):
            yield "former bounds of groups (cluster-autoscaler has them with --emit-per-nodegroup-metrics)"


class _Failures:
    """The reasons of failed creations."""

    def __init__(self, samples: Samples, known: _Known) -> None:
        self._seen = [
            (at, known.group_of(_label(one.labels, "name")) or one.labels.get("node_group", ""), text)
            for name, label in _FAILURES.items()
            for one in samples.series.get(name, ())
            if (text := one.labels.get(label)) and (one.value > 0 or name not in (f"{_CA}backoff_status",))
            for at in one.times
        ]
        self.has_any = bool(self._seen)

    def why(self, key: str, since: int, until: int) -> tuple[FailureClass, str]:
        """Return class and text of a node that was refused between two seconds. Silence is a timeout."""
        near = [entry for entry in self._seen if since - _INFO_STEP <= entry[0] <= until + _INFO_STEP]
        own = [entry for entry in near if entry[1].endswith(key.rpartition("/")[2]) and entry[1]]
        for _, _, text in sorted(own or [entry for entry in near if not entry[1]]):
            if (kind := classify(text)) is not FailureClass.UNKNOWN:
                return kind, text
        return FailureClass.TIMEOUT, "no node joined in time"


def _zone_of(labels: Mapping[str, str]) -> str:
    found = _ZONE.match(_label(labels, "provider_id", "spec_provider_id"))
    named = _label(labels, *_ZONE_LABELS)
    return named or (next(filter(None, found.groups())) if found else "")


def _plain(name: str) -> str:
    """Return a name that a scenario may use."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower())[-63:].strip("-.") or "workers"
