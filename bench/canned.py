"""A quiet cluster, recorded once from the sandbox, and API servers of its likes, which answer from memory.

A cluster that is put into an outage is a sandbox cluster of its own from then on: it is read and written for real.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from evenkeel import bootstrap
from evenkeel.adapters.codec import dump_stored
from evenkeel.adapters.kubernetes.client.api import PAGE
from evenkeel.adapters.kubernetes.client.lists import ReceivedList, versions_of
from evenkeel.application.rebalancing.observe import observe_cluster
from evenkeel.application.rebalancing.plan import zones_of
from evenkeel.domain.fleet.check_times import SteadyState
from sandbox.aws import AwsEndpoints
from sandbox.kube.controllers.life import Timing
from sandbox.kube.selectors import parse_label_selector
from sandbox.kube.world import ZONES, Cluster, Pool, World

Object = dict[str, Any]
Answer = tuple[int, bytes, str]  # status, body, and its Content-Encoding

# A kube-apiserver packs from here on, as fast as it can (apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
_PACKED_FROM, _LEVEL = 128 * 1024, 1
_SCALABLES = "machinedeployments.cluster.x-k8s.io"
ONE = "cluster-0000"  # another cluster's name is as long


def name_of(number: int) -> str:
    """What the clusters are called."""
    return f"cluster-{number:04}"


def _pools(groups: int) -> list[Pool]:
    # More than its bounds say: every group is written once, and says so since. What a zone does not give is moved, so
    # that whoever adds up what is requested finds nothing lost.
    more = {"evenkeel.dev/pool-max": "15", "evenkeel.dev/on-failure": "move"}
    return [Pool(name=f"pool-{i:04}", minimum=3, maximum=12, annotations=more) for i in range(groups // 3)]


def record(file: Path, flavour: str, groups: int) -> None:
    """Runs at a cluster until it is quiet, then writes down what a look asks for: objects, and the table's items."""
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
        access = {"kind": "kubeconfig", "secret": secret}
        answer = container.operate(
            {
                "action": "register",
                "cluster": ONE,
                "record": {"access": access, "dry_run": False, "flavours": [flavour]},
            },
            lambda: 60.0,
        )
        assert answer["ok"], answer
        while container.rebalance(ONE, "bench", lambda: 600.0).written:
            pass
        paths = sorted({call.path for call in api.requests if call.method == "GET"})
        token = {"authorization": f"Bearer {api.token('admin')}"}
        answers = {path: json.loads(api.answer("GET", path, token, b"").body) for path in paths}
        looked_at, observation = observe_cluster(
            container.clusters, container.store.load(ONE).record, lambda: 60.0, consistent=False
        )
        places = {place: _path_of(place, paths) for place in looked_at.seen()}
        items: list[Object] = []
        pages = aws.client("dynamodb").get_paginator("query")
        for page in pages.paginate(
            TableName=container.settings.table,
            KeyConditionExpression="pk = :pk AND sk >= :after",
            ExpressionAttributeValues={":pk": {"S": f"CLUSTER#{ONE}"}, ":after": {"S": "G"}},
        ):
            # The look that is due after the last write has long been.
            items += [item for item in page["Items"] if item["sk"]["S"] != "LOOK"]
    zones = sorted(zones_of(observation))
    file.write_text(json.dumps({"answers": answers, "items": items, "places": places, "zones": zones}))


def _path_of(place: str, paths: Sequence[str]) -> str:
    """Where the list of a flavour's kind and version is."""
    _, kind, version = place.split("/")
    return next(path for path in paths if path.endswith(f"/{version}/{kind.lower()}s"))


def settled(recorded: Object) -> str:
    """What a run would have remembered of what looks see."""
    query = {"limit": str(PAGE), "resourceVersion": "0"}
    lists = {
        place: ReceivedList(path, (body_of(recorded["answers"][path], query, 1),), whole=False)
        for place, path in recorded["places"].items()
    }
    seen = {place: versions_of([received]) or "" for place, received in lists.items()}
    return dump_stored(SteadyState(at=datetime.now(UTC), seen=seen, zones=frozenset(recorded["zones"])))


def body_of(answer: Object, query: dict[str, str], version: int) -> bytes:
    """As a kube-apiserver writes it: fields in the order of their names, the list's own last.

    From the watch cache a list comes whole, whatever its limit (tests/contract/test_api_semantics.py).
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
    """As it is sent to who asks for metadata alone (tests/contract/test_api_semantics.py)."""
    found = json.loads(body)
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    items = [{**one, "metadata": item["metadata"]} for item in found["items"]]
    own = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}
    return json.dumps({**own, "items": items}, separators=(",", ":")).encode() + b"\n"


class Kubernetes:
    """The API servers of all clusters, each below a path of its own. Hanging ones take a request and say nothing."""

    def __init__(self, answers: dict[str, Object], groups: int) -> None:
        self._answers = answers
        self._pools = _pools(groups)
        self._versions = itertools.cycle(range(1_000_001, 1_000_004))  # of a list: each is another's than the last
        self._incident: dict[str, str | Cluster] = {}
        self.asked: Counter[str] = Counter()  # requests, by cluster
        self.methods: Counter[str] = Counter()
        self.sent = 0  # bytes of answers, as they are packed
        self._last: dict[str, float] = {}  # when a cluster was last asked
        self._patched: dict[str, list[float]] = defaultdict(list)  # on the clock that all processes share

    @cache  # noqa: B019 (as long as the process)
    def _packed(self, path: str, query: str, version: int, *, metadata_only: bool) -> Answer:
        answer = self._answers.get(path)
        if answer is None:
            return 404, b"", ""
        body = body_of(answer, {key: values[-1] for key, values in parse_qs(query).items()}, version)
        if metadata_only:
            body = _metadata_of(body)
        return (200, gzip.compress(body, _LEVEL), "gzip") if len(body) >= _PACKED_FROM else (200, body, "")

    async def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        _, cluster, path = target.split("/", 2)
        self.asked[cluster] += 1
        self.methods[method] += 1
        self._last[cluster] = time.monotonic()
        answer = await self._answered(cluster, method, f"/{path}", headers, body)
        self.sent += len(answer[1])
        return answer

    async def _answered(self, cluster: str, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        match self._incident.get(cluster):
            case None:
                parts = urlsplit(target)
                partial = "as=PartialObjectMetadataList" in headers.get("accept", "")
                return self._packed(parts.path, parts.query, next(self._versions), metadata_only=partial)
            case "hanging":
                await asyncio.sleep(3600)
            case "garbage":
                return 200, b"<html>" + b"garbage " * 1000, ""
            case Cluster() as sandbox:
                headers = headers | {"authorization": f"Bearer {sandbox.api.token('evenkeel')}"}
                answer = sandbox.api.answer(method, target, headers, body)
                if method == "PATCH" and answer.code == 200:
                    self._patched[cluster].append(time.monotonic())
                return answer.code, answer.body, ""
        raise AssertionError(self._incident[cluster])

    def control(self, asked: Object) -> Object:
        """For whoever measures: put clusters into trouble (``"none"`` ends it), or read what was asked since then."""
        for cluster in asked.get("clusters", ()):
            if asked["incident"] == "outage":
                self._incident[cluster] = self._outage(asked["stuck"])
            elif asked["incident"] == "pods":
                self._incident[cluster] = self._waiting(asked["waiting"])
            elif asked["incident"] == "none":
                self._incident.pop(cluster, None)
            else:
                self._incident[cluster] = asked["incident"]
        sandboxes = {cluster: one for cluster, one in self._incident.items() if isinstance(one, Cluster)}
        found = {
            "asked": dict(self.asked),
            "methods": dict(self.methods),
            "sent": self.sent,
            "last": dict(self._last),
            "patched": dict(self._patched),
            "groups": {
                cluster: [[view.name, view.zone, view.requested, view.running, view.maximum] for view in one.groups()]
                for cluster, one in sandboxes.items()
            },
        }
        self.asked.clear()
        self.methods.clear()
        self._patched.clear()
        self._last.clear()
        self.sent = 0
        return found

    def _as_recorded(self, cluster: Cluster, now: datetime) -> None:
        """With its machines, and with what our runs have left on its groups."""
        cluster.settle(now)
        recorded = next(a for path, a in self._answers.items() if path.endswith("/machinedeployments"))["items"]
        for item in recorded:
            name, annotations = item["metadata"]["name"], item["metadata"]["annotations"]
            cluster.store.patch(_SCALABLES, cluster.namespace, name, {"metadata": {"annotations": annotations}})

    def _waiting(self, pods: int) -> Cluster:
        """A cluster as recorded that runs pods, without an autoscaler; so many have just found no node, one on each."""
        now = datetime.now(UTC) - timedelta(seconds=30)
        cluster = Cluster("self-managed", pools=self._pools, clock=lambda: now, timing=Timing(), settings=None)
        self._as_recorded(cluster, now)
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
        """A cluster as recorded, whose autoscaler has just asked the first zone for machines that it does not give."""
        now = datetime.now(UTC) - timedelta(seconds=30)
        cluster = Cluster("cluster-api", pools=self._pools, clock=lambda: now, timing=Timing(), settings=None)
        self._as_recorded(cluster, now)
        cluster.cloud.take_away(ZONES[0])
        first = next(view for view in cluster.groups() if view.zone == ZONES[0])
        cluster.store.scale(
            _SCALABLES, first.namespace, first.name, first.requested + stuck, manager="cluster-autoscaler"
        )
        for _ in range(3):
            now += timedelta(seconds=10)
            cluster.controllers.step(now)
        return cluster
