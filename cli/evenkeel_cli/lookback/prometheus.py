"""Read answers of Prometheus to range queries about node groups, and print those queries.

Series of one group count as one, whichever exporter, pod or Prometheus they name, because restarts change these names.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from shlex import quote as shell
from typing import Any

from evenkeel.domain.model.values import quote
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError
from evenkeel_cli.inputs import documents_of

MOST_POINTS = 11_000  # of a series in one answer; Prometheus refuses more
_STEP, _INFO_STEP = 60, 3600  # seconds; of queries about replicas, and about what seldom changes
_CA = "cluster_autoscaler_node_group_"
_BACKOFF = f"{_CA}backoff_status"
BOUNDS = (f"{_CA}min_count", f"{_CA}max_count")
NODE, NODE_LABELS, NODE_CREATED = "kube_node_info", "kube_node_labels", "kube_node_created"
MACHINE_CREATED = "mapi_machine_created_timestamp_seconds"
MACHINES = ("capi_machine_info", "capi_machine_status_noderef", "mcm_machine_info", MACHINE_CREATED)
JOINED = "mcm_machine_machine_join_duration_seconds"
# Metrics of failed creations, with the label that has the reason.
FAILURES = {
    "mapi_instance_create_failed": "reason",
    "mcm_cloud_api_driver_requests_failed_total": "error_code",
    _BACKOFF: "reason",
    "cluster_autoscaler_failed_node_creations_total": "reason",
}
_SERIES = (NODE, NODE_LABELS, NODE_CREATED, *MACHINES, JOINED, *FAILURES)
_ANSWER = re.compile(r'\s*(\{\s*"(?:status|data|errorType|warnings)"\s*:|\[\s*(\{\s*"metric"|\]\s*$))')


@dataclass(frozen=True)
class Source:
    """The metrics of an exporter of node groups. ``running``: the first of them that there is."""

    requested: str
    running: tuple[str, ...]


SOURCES = {
    "cluster-api": Source(
        "capi_machinedeployment_spec_replicas",
        ("capi_machinedeployment_status_replicas_ready", "capi_machinedeployment_status_replicas_available"),
    ),
    "machine-controller-manager": Source(
        "mcm_machine_deployment_info_spec_replicas",
        ("mcm_machine_deployment_status_ready_replicas", "mcm_machine_deployment_status_available_replicas"),
    ),
    "openshift": Source(
        "mapi_machine_set_status_replicas",
        ("mapi_machine_set_status_replicas_ready", "mapi_machine_set_status_replicas_available"),
    ),
    "cluster-autoscaler": Source(f"{_CA}target_count", (NODE,)),
}
_ALIASES = {"kube-state-metrics": "cluster-autoscaler"}  # alone, it has no replicas by group
EXPORTERS = (*SOURCES, *_ALIASES)


@dataclass
class Series:
    """A series whose labels count: its last value, and when it was there or, for a counter, when it rose."""

    labels: Mapping[str, str]
    times: set[int]
    value: float


@dataclass
class Samples:
    """The samples of all answers: of replicas and bounds by metric and group, and other series by metric."""

    numbers: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    series: dict[str, list[Series]] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)

    def of(self, *metrics: str) -> Iterator[Series]:
        """Yield the series of metrics."""
        for metric in metrics:
            yield from self.series.get(metric, ())


def is_answer(text: str) -> bool:
    """Return True for the text of an answer of Prometheus, or of promtool."""
    return _ANSWER.match(text[:400]) is not None


def label_of(labels: Mapping[str, str], *names: str) -> str:
    """Return the first of several labels. Prometheus renames one that its target has, too."""
    return next((labels[full] for name in names for full in (f"exported_{name}", name) if labels.get(full)), "")


def print_queries(name: str, days: int, now: datetime) -> Iterator[str]:
    """Yield a command for each answer that a history of a source needs, within the limit of points."""
    source = SOURCES[_ALIASES.get(name, name)]
    fast = (source.requested, *source.running, *BOUNDS, _BACKOFF)
    slow = [metric for metric in _SERIES if metric not in fast]
    for kind, metrics, step in (("replicas", fast, _STEP), ("infos", slow, _INFO_STEP)):
        since, number = now - timedelta(days=days), 1
        while since < now:
            until = min(now, since + timedelta(seconds=step * (MOST_POINTS - 1)))
            query = f'query={{__name__=~"{"|".join(metrics)}"}}'
            parts = (query, f"start={rfc3339(since)}", f"end={rfc3339(until)}", f"step={step}")
            arguments = " ".join(f"--data-urlencode {shell(part)}" for part in parts)
            yield f'curl -sS "$PROMETHEUS/api/v1/query_range" {arguments} > {kind}-{number}.json'
            since, number = until + timedelta(seconds=step), number + 1


def read_samples(files: Sequence[tuple[str, str]]) -> Samples:
    """Return the samples of answers, given as (name, text). Raises ConfigError with a line per fault."""
    found, faults = Samples(), list[str]()
    for file, _, document in documents_of(files, faults):
        faults += [f"{file}: {fault}" for fault in _take(found, file, document)]
    if len(found.clusters) > 1:
        faults.append(f"the answers are of the clusters {', '.join(sorted(found.clusters))}: query one at a time")
    if faults:
        raise ConfigError(faults)
    return found


def _take(found: Samples, file: str, document: Any) -> Iterator[str]:
    """Add one answer, and yield what is wrong with it."""
    answer = document if isinstance(document, Mapping) else {}
    if answer.get("status") == "error" or "errorType" in answer:
        yield f"Prometheus answered {quote(str(answer.get('error'))[:200])} ({answer.get('errorType')}): query it again"
        return
    data = {"resultType": "matrix", "result": document} if isinstance(document, list) else answer.get("data")
    kind = data.get("resultType") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or kind != "matrix" or not isinstance(data.get("result"), list):
        yield f"resultType is {quote(str(kind))}: only a matrix has a history, so ask /api/v1/query_range"
        return
    partial = ["isPartial"] if answer.get("isPartial") else []  # of VictoriaMetrics
    for warning in [*(answer.get("warnings") or ()), *partial]:
        found.doubts.append(f"{file} has a warning of Prometheus, {quote(str(warning)[:120])}: query it again")
    for item in data["result"]:
        metric = item.get("metric") if isinstance(item, Mapping) else None
        if not isinstance(metric, Mapping) or not isinstance(metric.get("__name__"), str):
            yield "a series has no __name__: query metrics without functions, as --print-queries prints them"
            return
        _take_series(found, metric, dict(_values(item.get("values"))))


def _values(values: Any) -> Iterator[tuple[int, float]]:
    """Yield the samples that are numbers. Stale and missing ones are none."""
    for entry in values if isinstance(values, list) else ():
        try:
            at, value = round(float(entry[0])), float(entry[1])
        except (TypeError, ValueError, LookupError, OverflowError):
            continue
        if math.isfinite(value) and value >= 0:
            yield at, value


def _take_series(found: Samples, labels: Mapping[str, str], samples: Mapping[int, float]) -> None:
    name = labels["__name__"]
    if not samples:
        return
    if labels.get("cluster"):
        found.clusters.add(labels["cluster"])
    if name in _SERIES:
        times = set(samples)
        if name in FAILURES:
            rises = pairwise([(0, 0.0), *sorted(samples.items())])
            times = {at for (_, old), (at, new) in rises if new > old}
        found.series.setdefault(name, []).append(Series(labels, times, samples[max(samples)]))
        return
    key = labels.get("node_group") or f"{label_of(labels, 'namespace')}/{label_of(labels, 'name')}"
    into = found.numbers.setdefault(name, {}).setdefault(key, {})
    for at, value in samples.items():
        into[at] = max(into.get(at, 0), round(value))
