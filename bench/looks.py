"""How a look grows with groups and machines in the middle of an outage: CPU, as a ratio to half the size."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.record import ClusterFile
from evenkeel_cli.answers import Output
from evenkeel_cli.plan import plan_command

Object = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = ((225, 1_725), (450, 3_450), (900, 6_900), (1_800, 13_800))  # groups, machines
FROM_FILES = (1_200, 7_200)
_API = "cluster.x-k8s.io/v1beta2"
_LABEL = "cluster.x-k8s.io/deployment-name"
_REFUSED = "InsufficientInstanceCapacity: We currently do not have sufficient m5.xlarge capacity"


class _Recorded:
    """An API server's answers as text, so that reading the JSON counts as it does in a look over the network."""

    name = "bench"

    def __init__(self, answers: dict[str, list[Object]]) -> None:
        self._texts = {plural: json.dumps(items) for plural, items in answers.items()}
        machines: dict[str, list[Object]] = defaultdict(list)
        for item in answers["machines"]:
            machines[item["metadata"]["labels"][_LABEL]].append(item)
        self._machines = {name: json.dumps(items)[1:-1] for name, items in machines.items()}

    def list_all(self, path: str, _remaining: Any, selector: str | None = None, **_: Any) -> Any:
        if selector is None:
            return _received(self._texts[path.rpartition("/")[2]])
        names = selector.partition(" in ")[2].strip("()").split(",")
        return _received(f"[{','.join(self._machines[name] for name in names)}]")

    def served(self, _group: str, _remaining: Any) -> list[str]:
        return ["v1beta2"]

    def now(self) -> datetime:
        return NOW


def _received(items: str) -> ReceivedList:
    return ReceivedList("bench", (f'{{"items":{items}}}'.encode(),))


def cluster(groups: int, machines: int) -> dict[str, list[Object]]:
    """Pools of three zones, all of them short of machines; every other machine was refused."""
    deployments, sets, found = [], [], []
    for number in range(groups):
        name, share = (
            f"pool-{number // 3:05}-{'abc'[number % 3]}",
            machines * (number + 1) // groups - machines * number // groups,
        )
        labels = {"cluster.x-k8s.io/cluster-name": "bench", _LABEL: name}
        template = {"metadata": {"labels": labels}, "spec": {"failureDomain": f"eu-central-1{'abc'[number % 3]}"}}
        annotations = {"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9"}
        metadata = {
            "name": name,
            "namespace": "bench",
            "resourceVersion": "1",
            "labels": {"evenkeel.dev/pool": f"pool-{number // 3:05}"},
            "annotations": {**annotations, "evenkeel.dev/pool-max": "30"},
        }
        spec = {"clusterName": "bench", "replicas": share, "template": template}
        status = {"replicas": share, "readyReplicas": share // 2}
        deployments.append(
            {"apiVersion": _API, "kind": "MachineDeployment", "metadata": metadata, "spec": spec, "status": status}
        )
        owner = {"kind": "MachineDeployment", "name": name, "controller": True}
        set_metadata = {"name": f"{name}-x", "namespace": "bench", "labels": labels, "ownerReferences": [owner]}
        sets.append(
            {"apiVersion": _API, "kind": "MachineSet", "metadata": set_metadata, "spec": spec, "status": status}
        )
        found += [_machine(f"{name}-x-{i:03}", labels, refused=i % 2 == 0) for i in range(share)]
    no_others: dict[str, list[Object]] = {"machinepools": [], "clusters": []}
    return {"machinedeployments": deployments, "machinesets": sets, **no_others, "machines": found}


def _machine(name: str, labels: dict[str, str], *, refused: bool) -> Object:
    moment = (NOW - timedelta(minutes=2)).isoformat()
    condition = {"type": "InfrastructureReady", "status": "False" if refused else "True", "lastTransitionTime": moment}
    if refused:
        condition |= {"reason": "InstanceProvisionFailed", "message": _REFUSED}
    status = {"conditions": [condition]} if refused else {"conditions": [condition], "nodeRef": {"name": name}}
    metadata = {"name": name, "namespace": "bench", "labels": labels, "creationTimestamp": moment}
    return {"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": {}, "status": status}


def _look(groups: int, machines: int) -> float:
    policy = ClusterFile.model_validate({"flavours": ["cluster-api"]})
    api = cast(KubernetesApi, _Recorded(cluster(groups, machines)))
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        observation = KubernetesCluster(api, policy, lambda: 60.0).observe()
        best = min(best, time.process_time() - began)
        if sum(len(group.machines or ()) for group in observation.groups) != machines:
            raise AssertionError("some machine found no group")
    return best


def _plan_of_files(groups: int, machines: int) -> tuple[float, float]:
    """The command itself, from reading the file to the JSON of the plan: by the clock on the wall, and CPU."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "objects.json"
        items = [item for items in cluster(groups, machines).values() for item in items]
        file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        began, worked = time.perf_counter(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            plan_command(file=[str(file)], now=NOW.isoformat(), output=Output.JSON)
        return time.perf_counter() - began, time.process_time() - worked


def main() -> None:
    """Best of three per size."""
    print("a look in an outage: every group waits for machines")
    before = 0.0
    for groups, machines in SIZES:
        took = _look(groups, machines)
        ratio = f", {took / before:.2f} x half the size" if before else ""
        print(f"  {groups:>5} groups, {machines:>6} machines: {took:.2f} s of CPU{ratio}")
        before = took
    groups, machines = FROM_FILES
    took, worked = _plan_of_files(groups, machines)
    print(f"  plan -f, {groups} groups, {machines} machines: {took:.2f} s, {worked:.2f} s of CPU")


if __name__ == "__main__":
    main()
