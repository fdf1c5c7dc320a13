"""Prometheus's answers about a simulated cluster with cluster-autoscaler alone, and the true demand."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel_cli.lookback.prometheus import BOUNDS, SOURCES
from evenkeel_cli.simulation.engine import STATIC, GroupSnapshot, Record, Run, Variant, play
from evenkeel_cli.simulation.measures import served
from evenkeel_cli.simulation.scenario import Scenario

_CALM = 3600  # seconds before the scenario, in which nothing changes
PREFIXES = {
    "cluster-api": "MachineDeployment/default/",
    "machine-controller-manager": "default.",
    "openshift": "MachineSet/default/",
    "cluster-autoscaler": "",
}
INFOS = {
    "cluster-api": ("capi_machine_info", "failure_domain"),
    "machine-controller-manager": ("mcm_machine_info", "spec_provider_id"),
    "openshift": ("mapi_machine_created_timestamp_seconds", "spec_provider_id"),
}


@dataclass
class Truth:
    """The truth of a run, from which answers of each exporter are made."""

    record: Record

    @property
    def start(self) -> int:
        return int(self.record.scenario.start.timestamp())

    def between(self, since: int, until: int) -> tuple[int, int]:
        """Return node-seconds of waiting and of running nodes."""
        waited = nodes = 0
        snapshots = self.record.snapshots
        ends = [*(snapshot.at for snapshot in snapshots[1:]), self.record.scenario.duration]
        for snapshot, end in zip(snapshots, ends, strict=True):
            begin = -_CALM if snapshot is snapshots[0] else snapshot.at
            seconds = max(0, min(end, until - self.start) - max(begin, since - self.start))
            missing = sum(n - served(snapshot, pool, zone) for (pool, zone), n in snapshot.demand.items())
            waited += missing * seconds
            nodes += sum(group.running for group in snapshot.groups) * seconds
        return waited, nodes

    def samples(self, step: int, phase: int = 0) -> Iterable[tuple[int, tuple[GroupSnapshot, ...]]]:
        times = [snapshot.at for snapshot in self.record.snapshots]
        for at in range(phase - _CALM, self.record.scenario.duration, step):
            yield self.start + at, self.record.snapshots[max(0, bisect_right(times, at) - 1)].groups


def truth_of(scenario: Scenario) -> Truth:
    return Truth(play(Run(scenario, Variant(name=STATIC, evenkeel=False))))


def replicas(
    truth: Truth, step: int, phase: int = 0, source: str = "cluster-api", cloud: str = "gce://p/{}/vm-{}", **labels: str
) -> dict[str, Any]:
    """Return the answer to the query about replicas, nodes and bounds of a source."""
    own, prefix = SOURCES[source], PREFIXES[source]
    series: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
    for at, groups in truth.samples(step, phase):
        for group in groups:
            bounded = {"node_group": f"{prefix}{group.name}"}
            named = {"name": group.name, "namespace": "default"}
            values = [(own.requested, bounded if source == "cluster-autoscaler" else named, group.requested)]
            values += zip(BOUNDS, (bounded, bounded), (group.min, group.max), strict=True)
            if own.running == ("kube_node_info",):
                nodes = (
                    {"node": f"{group.name}-{n}", "provider_id": cloud.format(group.zone, n)}
                    for n in range(group.running)
                )
                values += [("kube_node_info", node, 1) for node in nodes]
            else:
                values.append((own.running[0], named, group.running))
            for metric, own_labels, value in values:
                key = (("__name__", metric), *own_labels.items(), *labels.items())
                series.setdefault(key, []).append([at, str(value)])
    return answer((dict(key), values) for key, values in series.items())


def infos(truth: Truth, source: str = "cluster-api") -> dict[str, Any]:
    """Return the answer to the query for info series: a machine of each group, with its zone."""
    metric, label = INFOS[source]
    return answer(
        (
            {
                "__name__": metric,
                "name": f"{group.name}-5d4f9-x7k2p",
                "namespace": "default",
                label: group.zone if label == "failure_domain" else f"aws:///{group.zone}/i-0",
            },
            [[truth.start, "1"]],
        )
        for group in truth.record.snapshots[0].groups
    )


def answer(series: Iterable[tuple[Mapping[str, str], list[list[Any]]]]) -> dict[str, Any]:
    """Return an answer of the HTTP API."""
    result = [{"metric": dict(labels), "values": values} for labels, values in series]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def texts(*answers: Any) -> list[tuple[str, str]]:
    return [(f"{number}.json", json.dumps(one)) for number, one in enumerate(answers, 1)]
