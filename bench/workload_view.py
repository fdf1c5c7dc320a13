"""A bench of reading a workload cluster: processor time, time and memory of a separate process.

The API server is another process: HTTPS, pages of 500, compressed as kube-apiserver does. Its pods are as long as real
ones: environment, mounts, probes, managed fields and statuses, none of which a check keeps.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.fleet import control_server, serve, server, tls
from bench.recorded import Answer, Object
from bench.rows import Rows, peak, share_of, timed
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.client.api import PAGE
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.demand.advice import advise
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import GroupOffer, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.record import ClusterRecord
from sandbox.kube.access import kubeconfig
from sandbox.template import Template

_KINDS = 500  # pod templates
_MADE = "2026-01-01T00:00:00Z"
_ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
_MIB = 512  # limit for the largest cluster
_ROUND_TRIP = 0.01  # seconds of one request; pages are read in sequence
Columns = dict[str, float]


def _managed(manager: str) -> Object:
    """Return the managed fields of an object, often the larger part of it."""
    fields = {f"f:field-{number}": {".": {}, "f:name": {}, "f:value": {}} for number in range(24)}
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _MADE,
        "fieldsV1": {"f:spec": fields},
    }


def _pod(number: int, nodes: int, waiting: int) -> Object:
    kind = number % _KINDS
    runs = number >= waiting
    name, image = f"app-{kind}-6c5d-{number}", f"registry.example.com/team-{kind % 20}/app-{kind}:1.{kind}"
    requests = {"cpu": f"{50 + kind % 19 * 10}m", "memory": f"{64 + kind % 7 * 32}Mi"}
    mounts = [{"name": f"volume-{i}", "mountPath": f"/data/{i}", "readOnly": True} for i in range(4)]
    env = [{"name": f"SETTING_{i}", "value": f"value of setting {i} of {name}"} for i in range(20)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    container = {"name": "app", "image": image, "env": env, "volumeMounts": mounts, "livenessProbe": probe}
    container["resources"] = {"requests": requests, "limits": requests}
    volumes: list[Object] = [{"name": f"volume-{i}", "configMap": {"name": f"settings-{i}"}} for i in range(3)]
    volumes.append({"name": f"kube-api-access-{number}", "projected": {"sources": [{"serviceAccountToken": {}}]}})
    if kind % 50 == 0:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}})
    spec: Object = {"containers": [container], "volumes": volumes, "schedulerName": "default-scheduler", "priority": 0}
    spec["tolerations"] = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    if kind % 10 == 0:
        selector = {"matchLabels": {"app": f"app-{kind}"}}
        constraint = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    conditions = [{"type": f"Condition{i}", "status": "True", "lastTransitionTime": _MADE} for i in range(4)]
    conditions.append({"type": "PodScheduled", "status": str(runs), "reason": "Unschedulable"})
    state = {"running": {"startedAt": _MADE}}
    status = {"name": "app", "image": image, "imageID": f"{image}@sha256:{'0' * 64}", "ready": True, "state": state}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{kind}-6c5d", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{kind % 20}",
            "creationTimestamp": _MADE,
            "labels": {"app": f"app-{kind}", "pod-template-hash": "6c5d", "team": f"team-{kind % 20}"},
            "annotations": {"checksum/config": "0" * 64, "prometheus.io/scrape": "true"},
            "ownerReferences": [owner],
            "managedFields": [_managed("kube-controller-manager"), _managed("kubelet")],
        },
        "spec": {**spec, **({"nodeName": f"n{number % nodes:05}"} if runs else {})},
        "status": {
            "phase": "Running" if runs else "Pending",
            "conditions": conditions,
            "containerStatuses": [{**status, "resources": {"requests": requests}, "allocatedResources": requests}],
        },
    }


def _node(number: int) -> Object:
    name, zone = f"n{number:05}", _ZONES[number % 3]
    labels = {f"feature.example/{i}": "true" for i in range(30)}
    labels |= {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    images = [{"names": [f"registry.example.com/image-{i}@sha256:{'0' * 64}"], "sizeBytes": i} for i in range(50)]
    size = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _MADE}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "creationTimestamp": _MADE,
            "managedFields": [_managed("kubelet")],
        },
        "spec": {"providerID": f"aws:///{zone}/i-{number:017x}"},
        "status": {"capacity": size, "allocatable": size, "conditions": [ready], "images": images},
    }


def _volumes(pods: int) -> tuple[list[Object], list[Object]]:
    """Return the claims of pods that have one, and their volumes."""
    claims, volumes = [], []
    for number in range(pods):
        if number % _KINDS % 50:
            continue
        named = {"name": f"data-{number}", "namespace": f"team-{number % _KINDS % 20}"}
        terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [*_ZONES]}]}]
        claims.append({"metadata": named, "spec": {"volumeName": f"pv-{number}", "storageClassName": "gp3"}})
        spec = {"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
        volumes.append({"metadata": {"name": f"pv-{number}"}, "spec": {**spec, "capacity": {"storage": "10Gi"}}})
    return claims, volumes


def _lists(nodes: int, pods: int) -> dict[str, list[Object]]:
    claims, volumes = _volumes(pods)
    drivers = [{"name": "ebs.csi.aws.com", "allocatable": {"count": 25}}]
    storage_class = {"metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com"}
    budgets = [
        {
            "metadata": {"name": f"app-{kind}", "namespace": f"team-{kind % 20}"},
            "spec": {"selector": {"matchLabels": {"app": f"app-{kind}"}}},
            "status": {"disruptionsAllowed": 1},
        }
        for kind in range(_KINDS)
    ]
    return {
        "/api/v1/pods": [_pod(number, nodes, waiting=pods // 100) for number in range(pods)],
        "/api/v1/nodes": [_node(number) for number in range(nodes)],
        "/api/v1/persistentvolumeclaims": claims,
        "/api/v1/persistentvolumes": volumes,
        "/apis/storage.k8s.io/v1/storageclasses": [storage_class],
        "/apis/storage.k8s.io/v1/csinodes": [
            {"metadata": {"name": f"n{number:05}"}, "spec": {"drivers": drivers}} for number in range(nodes)
        ],
        "/apis/storage.k8s.io/v1/volumeattachments": [
            {
                "metadata": {"name": f"csi-{number}"},
                "spec": {
                    "attacher": "ebs.csi.aws.com",
                    "nodeName": f"n{number % nodes:05}",
                    "source": {"persistentVolumeName": each["metadata"]["name"]},
                },
            }
            for number, each in enumerate(volumes)
        ],
        "/apis/policy/v1/poddisruptionbudgets": budgets,
        "/apis/apps/v1/daemonsets": [],
    }


def _serve(nodes: str, pods: str) -> None:
    """Serve a cluster of that size until standard input ends."""
    pages: dict[tuple[str, int], bytes] = {}
    size, requests = 0, 0
    for path, items in _lists(int(nodes), int(pods)).items():
        for start in range(0, max(1, len(items)), PAGE):
            following = str(start + PAGE) if start + PAGE < len(items) else ""
            body = {"kind": "List", "items": items[start : start + PAGE], "metadata": {"continue": following}}
            text = json.dumps(body, separators=(",", ":")).encode()
            size += len(text)
            pages[path, start] = gzip.compress(text, 1)
    versions = {"versions": [{"version": "v1", "groupVersion": "policy/v1"}]}
    pages["/apis/policy", 0] = gzip.compress(json.dumps(versions).encode())
    empty = gzip.compress(b'{"kind":"List","items":[],"metadata":{}}')

    async def answer(_method: str, target: str, _headers: dict[str, str], _body: bytes) -> Answer:
        nonlocal requests
        requests += 1
        address = urlsplit(target)
        query = parse_qs(address.query)
        if query.get("fieldSelector", [""])[0].startswith("spec.nodeName=,"):
            return 200, empty, "gzip"  # a query for pending pods alone finds none
        page = pages.get((address.path, int(query.get("continue", ["0"])[0])))
        return (200, page, "gzip") if page is not None else (404, gzip.compress(b"{}"), "gzip")

    def control(_command: Object) -> Object:
        return {"requests": requests}

    context, ca = tls()
    asyncio.run(serve(answer, control, context, ca=ca, mib=str(size / 2**20)))


def _read() -> None:
    """Read the cluster whose ports are on standard input; print the figures."""
    ports = json.load(sys.stdin)
    nodes = ports["nodes"]
    config = kubeconfig(url=f"https://127.0.0.1:{ports['port']}", ca_pem=ports["ca"], user="evenkeel", token="bench")
    fields = {"access": {"kind": "kubeconfig", "secret": "bench"}, "flavours": ["cluster-api"], "id": "bench"}
    record = ClusterRecord.model_validate(
        {**fields, "demand": "advise", "workload": {"access": {"kind": "same"}}, "autoscaler": "none"}
    )
    clusters = RecordedClusters(
        session=AwsSession(), secret=lambda *_: json.dumps(config), clock=SystemClock(), allow_loopback=True
    )
    groups = [GroupKey("cluster-api", "prod", f"workers-{zone}") for zone in _ZONES]
    machines = {f"n{number:05}": MachineNode(group=groups[number % 3]) for number in range(nodes)}

    def read(prefix: str, *, whole: bool = True) -> tuple[Any, Columns]:
        before = control_server(ports, {})["requests"]
        with timed() as timer:
            workload = clusters.open_workload(record, lambda: 600.0).read(lambda: machines, judges_nodes=whole)
        requests = control_server(ports, {})["requests"] - before
        return workload, {
            f"{prefix}cpu_s": timer.cpu,
            f"{prefix}wall_s": timer.wall,
            f"{prefix}mib": peak(),
            f"{prefix}requests": requests,
        }

    clusters.open(record, lambda: 600.0)
    figures = {"received_mib": float(ports["mib"]), "before_mib": peak()}
    workload, first = read("")
    figures |= first
    offers = tuple(
        GroupOffer(group=group, zone=zone, requested=nodes, room=100)
        for group, zone in zip(groups, _ZONES, strict=True)
    )
    pool = PoolOffer(pool=PoolId("cluster-api", "prod", "", "workers"), groups=offers, room=300)
    with timed() as timer:
        advice = advise(
            Observation(groups=(), workload=workload), [pool], DemandStage.ADVISE, ScaleDownState(), datetime.now(UTC)
        )
    figures |= {"advice_cpu_s": timer.cpu, "peak_mib": peak()}
    figures |= {"pods": len(workload.pods), "nodes": len(workload.nodes)}
    figures |= {"judged": len(advice.pools[pool.pool].nodes), "specs": len({id(pod.needs) for pod in workload.pods})}
    del workload, advice
    figures |= read("kept_")[1] | read("nobody_waits_", whole=False)[1]
    print(json.dumps(figures), flush=True)


def workload_view(nodes: tuple[int, ...] = (30, 300, 1_000, 5_000), pods_per_node: float = 30.0) -> Rows:
    """Measure one check of a workload cluster in a separate process: every page of every list, and its advice.

    The seconds ``check_s`` and ``rebalance_s`` are with the processor share of these functions, with round trips.
    ``kept`` repeats the reading with the connection kept; ``nobody_waits`` reads the pending pods alone.
    """
    functions = Template().functions()
    for size in nodes:
        pods = int(size * pods_per_node)
        with server("bench.workload_view", "serve", str(size), str(pods)) as ports:
            command = [sys.executable, "-m", "bench.workload_view", "read"]
            text = json.dumps(ports | {"nodes": size})
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        figures: Columns = json.loads(done.stdout)
        if (figures["nodes"], figures["pods"], figures["judged"]) != (size, pods, size):
            raise RuntimeError(f"not all was read: {figures}")
        for name in ("check", "rebalance"):
            function, cpu = f"{name.capitalize()}Function", figures["cpu_s"] + figures["advice_cpu_s"]
            seconds = figures[f"{name}_s"] = cpu / share_of(function) + figures["requests"] * _ROUND_TRIP
            if seconds > functions[function].timeout / 2 or figures["peak_mib"] > _MIB:
                raise RuntimeError(f"it takes more than half of the timeout, or more than {_MIB} MiB: {figures}")
        yield f"workload view {size} {pods}", figures


if __name__ == "__main__":
    {"serve": _serve, "read": _read}[sys.argv[1]](*sys.argv[2:])
