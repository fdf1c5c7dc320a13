"""A quiet cluster recorded once from the sandbox, and API servers of its like, which answer from memory.

A cluster with an outage or with pending pods is a sandbox cluster from then on: it is read and written for real.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from evenkeel import bootstrap
from evenkeel.adapters.codec import dump_stored
from evenkeel.application.rebalancing.observe import observe_cluster
from evenkeel.domain.fleet.check_times import SteadyState
from sandbox.aws import AwsEndpoints
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.selectors import parse_label_selector
from sandbox.kube.world import ZONES, Cluster, Pool, World

Object = dict[str, Any]
Answer = tuple[int, bytes, str]  # status, body, Content-Encoding

# kube-apiserver compresses from this size on, at this level (apiserver/pkg/endpoints/handlers/responsewriters).
_COMPRESSED_FROM, _LEVEL = 128 * 1024, 1
_SCALABLES = "machinedeployments.cluster.x-k8s.io"
ONE = "cluster-0000"  # another cluster's name is as long


def name_of(number: int) -> str:
    """Return a cluster's name."""
    return f"cluster-{number:04}"


def _pools(groups: int) -> list[Pool]:
    # The annotation exceeds the bounds, so that every recorded group has been written once.
    annotations = {"evenkeel.dev/pool-max": "15", "evenkeel.dev/on-failure": "move"}
    return [Pool(name=f"pool-{i:04}", minimum=3, maximum=12, annotations=annotations) for i in range(groups // 3)]


def record(file: Path, flavour: str, groups: int) -> None:
    """Run at a cluster until it is quiet, then store the objects and items that a check reads."""
    with (
        World(clusters=[flavour], pools={flavour: _pools(groups)}, settings=None) as world,
        AwsEndpoints() as aws,
        aws.deploy() as stack,
        patch.dict(os.environ, stack.environment("RebalanceFunction")),
    ):
        api = world.clusters[flavour].api
        secret = f"bench-{time.monotonic_ns()}/{ONE}"  # moto's state outlives its server
        aws.client("secretsmanager").create_secret(Name=secret, SecretString=json.dumps(api.kubeconfig()))
        container = bootstrap.Container()
        fields = {"access": {"kind": "kubeconfig", "secret": secret}, "dry_run": False, "flavours": [flavour]}
        answer = container.operate({"action": "register", "cluster": ONE, "record": fields}, lambda: 60.0)
        assert answer["ok"], answer
        while container.rebalance(ONE, "bench", lambda: 600.0).written:
            pass
        paths = sorted({call.path for call in api.requests if call.method == "GET"})
        token = {"authorization": f"Bearer {api.token('admin')}"}
        answers = {path: json.loads(api.answer("GET", path, token, b"").body) for path in paths}
        cluster, _ = observe_cluster(
            container.clusters, container.store.load(ONE).record, lambda: 60.0, consistent=False
        )
        seen = dict(cluster.seen())
        pages = aws.client("dynamodb").get_paginator("query")
        items = [
            item
            for page in pages.paginate(
                TableName=container.settings.table,
                KeyConditionExpression="pk = :pk AND sk >= :after",
                ExpressionAttributeValues={":pk": {"S": f"CLUSTER#{ONE}"}, ":after": {"S": "E"}},
            )
            for item in page["Items"]
            if item["sk"]["S"] != "NEXT_CHECK"  # the check after the last write is long over
        ]
    file.write_text(json.dumps({"answers": answers, "items": items, "seen": seen}))


def steady_state(recorded: Object) -> str:
    """Return the steady state that a run would have stored."""
    return dump_stored(SteadyState(at=datetime.now(UTC), seen=recorded["seen"]))


def body_of(answer: Object, query: dict[str, str], version: int) -> bytes:
    """Return a list as kube-apiserver writes it: sorted fields, metadata last.

    From the watch cache a list is whole, whatever its limit (tests/contract/test_api_semantics.py).
    """
    if "items" not in answer:
        return json.dumps(answer, separators=(",", ":"), sort_keys=True).encode()
    matches = parse_label_selector(query.get("labelSelector", ""))
    items = [item for item in answer["items"] if matches(item["metadata"].get("labels", {}))]
    begin = int(query.get("continue") or 0)
    end = begin + int(query.get("limit") or len(items)) if query.get("resourceVersion") != "0" else len(items)
    metadata = {"continue": str(end) if end < len(items) else "", "resourceVersion": str(version)}
    page = {**answer, "items": items[begin:end], "metadata": metadata}
    return json.dumps(page, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _metadata_of(body: bytes) -> bytes:
    """Return a list as PartialObjectMetadataList (tests/contract/test_api_semantics.py)."""
    whole = json.loads(body)
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    items = [{**kind, "metadata": item["metadata"]} for item in whole["items"]]
    partial = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}
    return json.dumps({**partial, "items": items}, separators=(",", ":")).encode() + b"\n"


class Kubernetes:
    """The API servers of all clusters, each below its own path. A hanging one takes a request and sends no answer."""

    def __init__(self, answers: dict[str, Object], groups: int) -> None:
        self._answers = answers
        self._pools = _pools(groups)
        self._versions = itertools.cycle(range(1_000_001, 1_000_004))  # consecutive lists differ in their version
        self._incident: dict[str, str | Cluster] = {}
        self._reset()

    def _reset(self) -> None:
        self.requests: Counter[str] = Counter()  # by cluster
        self.methods: Counter[str] = Counter()
        self.last_request: dict[str, float] = {}  # monotonic time, by cluster
        self.patched: dict[str, list[float]] = defaultdict(list)  # monotonic times, by cluster

    @cache  # noqa: B019 (as long as the process)
    def _recorded(self, path: str, query: str, version: int, *, metadata_only: bool) -> Answer:
        answer = self._answers.get(path)
        if answer is None:
            return 404, b"", ""
        body = body_of(answer, {key: values[-1] for key, values in parse_qs(query).items()}, version)
        if metadata_only:
            body = _metadata_of(body)
        return (200, gzip.compress(body, _LEVEL), "gzip") if len(body) >= _COMPRESSED_FROM else (200, body, "")

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Answer a request as the cluster's API server."""
        _, cluster, path = target.split("/", 2)
        self.requests[cluster] += 1
        self.methods[method] += 1
        self.last_request[cluster] = time.monotonic()
        match self._incident.get(cluster):
            case None:
                parts = urlsplit(f"/{path}")
                partial = "as=PartialObjectMetadataList" in headers.get("accept", "")
                return self._recorded(parts.path, parts.query, next(self._versions), metadata_only=partial)
            case "hanging":
                await asyncio.sleep(3600)
            case Cluster() as sandbox:
                headers = headers | {"authorization": f"Bearer {sandbox.api.token('evenkeel')}"}
                answer = sandbox.api.answer(method, f"/{path}", headers, body)
                if method == "PATCH" and answer.status == 200:
                    self.patched[cluster].append(time.monotonic())
                return answer.status, answer.body, ""
        return 200, b"<html>" + b"garbage " * 1000, ""

    def control(self, command: Object) -> Object:
        """Give clusters an incident (``"none"`` ends it). Return the counts since the last call.

        ``ahead``: let the controllers of all clusters with an incident work at so many seconds from now.
        """
        for cluster in command.get("clusters", ()):
            match command["incident"]:
                case "none":
                    self._incident.pop(cluster, None)
                case "outage":
                    self._incident[cluster] = self._outage(command["stuck"])
                case "pods":
                    self._incident[cluster] = self._pending_pods(command["pending"])
                case incident:
                    self._incident[cluster] = incident
        sandboxes = {cluster: one for cluster, one in self._incident.items() if isinstance(one, Cluster)}
        if "ahead" in command:
            for sandbox in sandboxes.values():
                sandbox.controllers.step(datetime.now(UTC) + timedelta(seconds=command["ahead"]))
        counts = {
            "requests": dict(self.requests),
            "methods": dict(self.methods),
            "last_request": dict(self.last_request),
            "patched": dict(self.patched),
            "groups": {
                cluster: [[view.name, view.zone, view.requested, view.running, view.maximum] for view in one.groups()]
                for cluster, one in sandboxes.items()
            },
        }
        self._reset()
        return counts

    def _sandbox(self, flavour: str) -> tuple[Cluster, datetime]:
        """Return a cluster as recorded half a minute ago, with machines and Evenkeel's annotations on its groups."""
        now = datetime.now(UTC) - timedelta(seconds=30)
        cluster = Cluster(flavour, pools=self._pools, clock=lambda: now, timing=Timing(), settings=None)
        cluster.settle(now)
        recorded = next(a for path, a in self._answers.items() if path.endswith("/machinedeployments"))["items"]
        for item in recorded:
            name, annotations = item["metadata"]["name"], item["metadata"]["annotations"]
            cluster.store.patch(_SCALABLES, cluster.namespace, name, {"metadata": {"annotations": annotations}})
        return cluster, now

    def _pending_pods(self, pods: int) -> Cluster:
        """Return a cluster without an autoscaler whose nodes lack room for so many pods; each needs a node."""
        cluster, now = self._sandbox("self-managed")
        requests = {"containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "3"}}}]}
        spec = {
            "replicas": pods + len(cluster.store.list("nodes")),
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": requests},
        }
        cluster.store.create("deployments.apps", {"metadata": {"name": "web"}, "spec": spec}, manager="kubectl")
        assert cluster.workloads is not None
        cluster.workloads.step(now)
        return cluster

    def _outage(self, stuck: int) -> Cluster:
        """Return a cluster whose autoscaler has requested machines of the first zone, which has none."""
        cluster, now = self._sandbox("cluster-api")
        cluster.cloud.exhaust_zone(ZONES[0])
        first = next(view for view in cluster.groups() if view.zone == ZONES[0])
        cluster.store.scale(
            _SCALABLES, first.namespace, first.name, first.requested + stuck, manager="cluster-autoscaler"
        )
        for step in (10, 20, 30):
            cluster.controllers.step(now + timedelta(seconds=step))
        return cluster
