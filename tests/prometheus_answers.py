"""What Prometheus answers about a simulated cluster with cluster-autoscaler alone, and what has truly happened."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel_cli.simulation.engine import STATIC, GroupSnapshot, Record, Run, Variant, play
from evenkeel_cli.simulation.measures import served
from evenkeel_cli.simulation.scenario import Scenario

_CALM = 3600  # seconds before the scenario, in which nothing changes
CLUSTER_API = (
    "capi_machinedeployment_spec_replicas",
    "capi_machinedeployment_status_replicas_ready",
    "cluster_autoscaler_node_group_min_count",
    "cluster_autoscaler_node_group_max_count",
)


@dataclass
class Truth:
    """A run, from which answers of any exporter are made."""

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


def cluster_api(truth: Truth, step: int, phase: int = 0, **labels: str) -> dict[str, Any]:
    """Return the answer about replicas and bounds that Cluster API's and cluster-autoscaler's exporters lead to."""
    series: dict[tuple[str, str], list[list[Any]]] = {}
    for at, groups in truth.samples(step, phase):
        for group in groups:
            values = (group.requested, group.running, group.min, group.max)
            for metric, value in zip(CLUSTER_API, values, strict=True):
                series.setdefault((metric, group.name), []).append([at, str(value)])
    return answer(
        {
            "__name__": metric,
            **(
                {"node_group": f"MachineDeployment/default/{name}"}
                if "autoscaler" in metric
                else {"name": name, "namespace": "default"}
            ),
            **labels,
        }
        | {"values": values}
        for (metric, name), values in series.items()
    )


def machines(truth: Truth, **labels: str) -> dict[str, Any]:
    """Return the answer about machines, one a group, with their zones."""
    groups = truth.record.snapshots[0].groups
    return answer(
        {
            "__name__": "capi_machine_info",
            "name": f"{group.name}-5d4f9-x7k2p",
            "namespace": "default",
            "failure_domain": group.zone,
            "values": [[truth.start, "1"]],
        }
        for group in groups
    )


def answer(series: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    result = [
        {"metric": {key: value for key, value in one.items() if key != "values"}, "values": one["values"]}
        for one in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def texts(*answers: Any) -> list[tuple[str, str]]:
    return [(f"{number}.json", json.dumps(one)) for number, one in enumerate(answers, 1)]
