"""What it costs to read a workload cluster: processor time, time and memory of a process of its own.

The API server is another process: HTTPS, pages of 500, packed as a kube-apiserver packs them. Its pods are as long as
real ones are: environment, mounts, probes, managed fields and statuses, which a look passes over.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

from bench.figures import keep
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.client.api import PAGE
from evenkeel.application.rebalancing.ports import MachineNode
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.demand.advice import advise
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import GroupOffer, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.record import ClusterRecord
from sandbox.kube.access import kubeconfig

SIZES = ((30, 900), (300, 9_000), (1_000, 30_000))  # nodes, pods
_KINDS = 500  # of pods: one template each
_MADE = "2026-01-01T00:00:00Z"
_ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
_COUNT = "/asked"  # how many requests there were: no path of a Kubernetes API
_SECONDS, _MIB = 60, 512  # what the largest has to be read within
Object = dict[str, Any]


def _managed(manager: str) -> Object:
    """What server-side apply remembers of a pod: the larger part of many."""
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
    """A claim for each pod that has one, and its volume."""
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


def _serve(nodes: int, pods: int) -> None:
    """Say on standard output where the server is, and answer until somebody ends this process."""
    pages: dict[tuple[str, int], bytes] = {}
    size = 0
    for path, items in _lists(nodes, pods).items():
        for start in range(0, max(1, len(items)), PAGE):
            following = str(start + PAGE) if start + PAGE < len(items) else ""
            body = {"kind": "List", "items": items[start : start + PAGE], "metadata": {"continue": following}}
            text = json.dumps(body, separators=(",", ":")).encode()
            size += len(text)
            pages[path, start] = gzip.compress(text, 1)
        items.clear()
    policy = {"versions": [{"version": "v1", "groupVersion": "policy/v1"}]}
    pages["/apis/policy", 0] = gzip.compress(json.dumps(policy).encode())

    nobody = gzip.compress(b'{"kind":"List","items":[],"metadata":{}}')
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            address = urlsplit(self.path)
            query = parse_qs(address.query)
            body = pages.get((address.path, int(query.get("continue", ["0"])[0])))
            if query.get("fieldSelector", [""])[0].startswith("spec.nodeName=,"):
                body = nobody  # who asks for these alone finds that nobody waits
            if address.path == _COUNT:
                body = gzip.compress(json.dumps({"asked": len(asked)}).encode())
            if body is None:  # no other autoscaler's lease or status is there
                body = gzip.compress(b"{}")
                self.send_response(404)
            else:
                self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silence."""

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url, pem = f"https://127.0.0.1:{server.server_address[1]}", authority.cert_pem.bytes().decode()
    config = kubeconfig(url=url, ca_pem=pem, user="evenkeel", token="bench")
    print(json.dumps({"kubeconfig": config, "mib": size / 2**20}), flush=True)
    server.serve_forever()


def _read(nodes: int) -> None:
    """One look, in this process; what it cost is said on standard output."""
    text = sys.stdin.read()
    fields = {"access": {"kind": "kubeconfig", "secret": "bench"}, "flavours": ["cluster-api"], "id": "bench"}
    record = ClusterRecord.model_validate(
        {**fields, "demand": "advise", "workload": {"access": {"kind": "same"}}, "autoscaler": "none"}
    )

    def secret(_name: str, _fresh: bool) -> str:
        return text

    clusters = RecordedClusters(session=lambda: None, secret=secret, clock=SystemClock(), allow_loopback=True)
    groups = [GroupKey("cluster-api", "prod", f"workers-{zone}") for zone in _ZONES]
    machines = {f"n{number:05}": MachineNode(group=groups[number % 3]) for number in range(nodes)}
    clusters.open(record, lambda: 600.0)
    before, began, cpu = _peak(), time.perf_counter(), time.process_time()
    workload = clusters.open_workload(record, lambda: 600.0).read(lambda: machines, judges_nodes=True)
    found = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "mib": _peak()}
    found |= _again(clusters, record, machines)
    found |= {"before_mib": before, "pods": len(workload.pods), "nodes": len(workload.nodes)}
    found["specs"] = len({id(pod.needs) for pod in workload.pods})
    offers = tuple(
        GroupOffer(group=group, zone=zone, requested=nodes, room=100)
        for group, zone in zip(groups, _ZONES, strict=True)
    )
    pool = PoolOffer(pool=PoolId("cluster-api", "prod", "", "workers"), groups=offers, room=300)
    cpu = time.process_time()
    said = advise(
        Observation(groups=(), workload=workload), [pool], DemandStage.ADVISE, ScaleDownState(), datetime.now(UTC)
    )
    found |= {"advice_cpu_s": time.process_time() - cpu, "peak_mib": _peak()}
    found["judged"] = len(said.pools[pool.pool].nodes)
    print(json.dumps(found), flush=True)


def _again(clusters: RecordedClusters, record: ClusterRecord, machines: dict[str, MachineNode]) -> dict[str, float]:
    """What the next look costs, in a warm process with its connection kept, and one that finds that nobody waits."""
    found, asked = {}, _asked(clusters, record)
    for name, judges in (("kept", True), ("nobody_waits", False)):
        cpu = time.process_time()
        clusters.open_workload(record, lambda: 600.0).read(lambda: machines, judges_nodes=judges)
        found[f"{name}_cpu_s"] = time.process_time() - cpu
        before, asked = asked, _asked(clusters, record)
        found[f"{name}_requests"] = asked - before - 1
    return found


def _asked(clusters: RecordedClusters, record: ClusterRecord) -> int:
    workload = clusters.open_workload(record, lambda: 600.0)
    answer = workload._api.get(_COUNT, lambda: 600.0)  # type: ignore[attr-defined]
    assert answer is not None
    return int(answer["asked"])


def _peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(nodes: int, pods: int) -> dict[str, float]:
    """A server of that size, and one look at it, each in a process of its own."""
    command = [sys.executable, "-m", "bench.workload_view", "--nodes", str(nodes), "--pods", str(pods)]
    with subprocess.Popen([*command, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            text = json.dumps(said["kubeconfig"])
            done = subprocess.run([*command, "--read"], input=text, capture_output=True, text=True, check=True)
        finally:
            server.terminate()
    found: dict[str, float] = {**json.loads(done.stdout), "received_mib": said["mib"]}
    if (found["nodes"], found["pods"], found["judged"]) != (nodes, pods, nodes):
        raise AssertionError(f"{found}: not all was read")
    return found


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--pods", type=int)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args(arguments)
    if given.serve:
        _serve(given.nodes, given.pods)
        return
    if given.read:
        _read(given.nodes)
        return
    print("one look at a workload cluster, every page of every list; the process of its own has the rest loaded before")
    sizes = SIZES if given.nodes is None else ((given.nodes, given.pods),)
    for nodes, pods in sizes:
        found = measure(nodes, pods)
        keep("workload view", nodes, pods, **found)
        print(
            f"  {nodes:>5,} nodes, {pods:>6,} pods: {found['received_mib']:.0f} MiB of JSON read in "
            f"{found['cpu_s']:.1f} s CPU, {found['wall_s']:.1f} s, the process {found['before_mib']:.0f} -> "
            f"{found['mib']:.0f} MiB; {found['specs']:.0f} specs kept; what demand says of it: "
            f"{found['advice_cpu_s']:.1f} s CPU, {found['peak_mib']:.0f} MiB at most"
        )
        if found["wall_s"] > _SECONDS or found["peak_mib"] > _MIB:
            raise AssertionError(f"more than {_SECONDS} s or {_MIB} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
