"""A quiet cluster, recorded once from the sandbox, and servers that answer for any number of its likes from memory.

The servers run in a process of their own, so that what is measured elsewhere holds nothing of theirs.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import trustme

from evenkeel import bootstrap
from sandbox.aws import AwsEndpoints
from sandbox.kube.access import kubeconfig
from sandbox.kube.selectors import parse_label_selector
from sandbox.kube.world import Pool, World
from sandbox.template import ROOT

Object = dict[str, Any]
Answer = tuple[bytes, str]  # a body, and its Content-Encoding

# A kube-apiserver packs from here on, as fast as it can (apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
_PACKED_FROM, _LEVEL = 128 * 1024, 1
_ONE = "cluster-0000"  # another cluster's name is as long


def name_of(number: int) -> str:
    """What the clusters are called."""
    return f"cluster-{number:04}"


def record(file: Path, flavour: str, groups: int) -> None:
    """Runs at a cluster until it is quiet, then writes down what a look asks for: objects, and the table's items."""
    # More than its bounds say: every group is written once, and says so since.
    more = {"evenkeel.dev/pool-max": "15"}
    pools = [Pool(name=f"pool-{i:04}", minimum=3, maximum=12, annotations=more) for i in range(groups // 3)]
    with (
        World(clusters=[flavour], pools={flavour: pools}, settings=None) as world,
        AwsEndpoints() as aws,
        aws.deploy() as stack,
        patch.dict(os.environ, stack.environment("RebalanceFunction")),
    ):
        api = world.clusters[flavour].api
        secret = f"bench/{_ONE}"
        aws.client("secretsmanager").create_secret(Name=secret, SecretString=json.dumps(api.kubeconfig()))
        container = bootstrap.Container()
        access = {"kind": "kubeconfig", "secret": secret}
        answer = container.operate(
            {
                "action": "register",
                "cluster": _ONE,
                "record": {"access": access, "dry_run": False, "flavours": [flavour]},
            },
            lambda: 60.0,
        )
        assert answer["ok"], answer
        while container.rebalance(_ONE, "bench", lambda: 600.0).written:
            pass
        paths = sorted({call.path for call in api.requests if call.method == "GET"})
        token = {"authorization": f"Bearer {api.token('admin')}"}
        answers = {path: json.loads(api.answer("GET", path, token, b"").body) for path in paths}
        items: list[Object] = []
        pages = aws.client("dynamodb").get_paginator("query")
        for page in pages.paginate(
            TableName=container.settings.table,
            KeyConditionExpression="pk = :pk AND sk >= :after",
            ExpressionAttributeValues={":pk": {"S": f"CLUSTER#{_ONE}"}, ":after": {"S": "G"}},
        ):
            items += page["Items"]
    file.write_text(json.dumps({"answers": answers, "items": items}))


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


class _Kubernetes:
    """The API servers of all clusters, each below a path of its own."""

    def __init__(self, answers: dict[str, Object]) -> None:
        self._answers = answers
        self._versions = itertools.cycle(range(1_000_001, 1_000_004))  # of a list: each is another's than the last

    @cache  # noqa: B019 (as long as the process)
    def _packed(self, path: str, query: str, version: int) -> Answer:
        answer = self._answers.get(path)
        if answer is None:
            return b"", ""
        body = body_of(answer, {key: values[-1] for key, values in parse_qs(query).items()}, version)
        return (gzip.compress(body, _LEVEL), "gzip") if len(body) >= _PACKED_FROM else (body, "")

    def answer(self, target: str, _body: bytes, _headers: bytes) -> Answer:
        parts = urlsplit(target)
        return self._packed("/" + parts.path.split("/", 2)[2], parts.query, next(self._versions))


class _Aws:
    """DynamoDB, which has one item collection per cluster, and Secrets Manager."""

    def __init__(self, items: list[Object], config: Callable[[str], str]) -> None:
        self._items = json.dumps({"Items": items, "Count": len(items), "ScannedCount": len(items)})
        self._config = config

    def answer(self, _target: str, body: bytes, headers: bytes) -> Answer:
        name = re.search(rb"cluster-[0-9]{4}", body)
        assert name is not None, body
        cluster = name[0].decode()
        if b"secretsmanager.GetSecretValue" in headers:
            secret = {"Name": f"bench/{cluster}", "SecretString": self._config(cluster), "VersionId": "1" * 32}
            return json.dumps(secret).encode(), ""
        return self._items.replace(_ONE, cluster).encode(), ""


async def _serve(
    answer: Callable[[str, bytes, bytes], Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            sent = await reader.readexactly(int(length[1])) if length else b""
            body, packed = answer(head.split(b" ", 2)[1].decode(), sent, head)
            lines = [f"HTTP/1.1 {200 if body else 404} -", "Content-Type: application/json"]
            lines += [f"Content-Length: {len(body)}", *([f"Content-Encoding: {packed}"] if packed else []), "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _run(file: Path) -> None:
    recorded = json.loads(file.read_text())
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = authority.cert_pem.bytes().decode()
    # As long as the tokens that AWS signs for others.
    token = base64.urlsafe_b64encode(bytes(range(256)) * 3).decode().rstrip("=")[:1_081]
    kube = await asyncio.start_server(
        partial(_serve, _Kubernetes(recorded["answers"]).answer), "127.0.0.1", 0, ssl=context, backlog=512
    )
    url = f"https://127.0.0.1:{kube.sockets[0].getsockname()[1]}"
    aws = _Aws(
        recorded["items"],
        lambda cluster: json.dumps(kubeconfig(url=f"{url}/{cluster}", ca_pem=ca, user="evenkeel", token=token)),
    )
    server = await asyncio.start_server(partial(_serve, aws.answer), "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until who started it has ended
    os._exit(0)


@contextmanager
def serving(flavour: str, groups: int, recording: Path | None = None) -> Iterator[str]:
    """The URL of the AWS endpoint that leads to clusters of so many groups; recorded anew where there is no file."""
    with tempfile.TemporaryDirectory() as folder:
        file = recording or Path(folder) / "cluster.json"
        if not file.exists():
            record(file, flavour, groups)
        command = [sys.executable, "-m", "bench.canned", str(file)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
            assert servers.stdin is not None
            assert servers.stdout is not None
            try:
                yield servers.stdout.readline().strip()
            finally:
                servers.stdin.close()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1])))
