"""Many clusters and one AWS, a process each, and Evenkeel's built functions in Lambda's runtime client.

A measured function's process holds nothing else. Clusters are like the recorded one (``bench.recorded``), AWS is
``bench.aws``; code, layers, runtime client, TLS and HTTP are real.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import trustme

from bench.aws import Aws
from bench.recorded import ONE, Answer, Kubernetes, Object, name_of, record, steady_state
from evenkeel.adapters.aws.store import due_pk
from sandbox.kube.access import kubeconfig
from sandbox.lambda_runtime import RuntimeProcess, host_build
from sandbox.template import ROOT, Template

Answering = Callable[[str, str, dict[str, str], bytes], Awaitable[Answer]]
_REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 409: "Conflict", 422: "Unprocessable"}


async def _answer_all(answer: Answering, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if "expect" in headers:  # a client of S3 sends the body after this answer, or after a second
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            sent = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = first.split(" ")
            status, body, packed = await answer(method, target, headers, sent)
            head = [f"HTTP/1.1 {status} {_REASONS.get(status, '-')}", "Content-Type: application/json"]
            head += [f"Content-Length: {len(body)}", *([f"Content-Encoding: {packed}"] if packed else []), "", ""]
            writer.write("\r\n".join(head).encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        writer.close()


async def serve(
    answer: Answering, control: Callable[[Object], Object], context: ssl.SSLContext | None, **more: str
) -> None:
    """Serve until standard input ends: directly, through a byte counting relay, and a port for ``control``."""
    server = await asyncio.start_server(partial(_answer_all, answer), "127.0.0.1", 0, ssl=context, backlog=1024)
    relay = Relay(_port(server))
    relayed = await asyncio.start_server(relay.serve, "127.0.0.1", 0, backlog=1024)

    async def controlled(_method: str, _target: str, _headers: dict[str, str], body: bytes) -> Answer:
        counts = control(json.loads(body)) | {"wire": dict(relay.bytes)}
        relay.bytes = dict.fromkeys(relay.bytes, 0)
        return 200, json.dumps(counts).encode(), ""

    steering = await asyncio.start_server(partial(_answer_all, controlled), "127.0.0.1", 0, limit=2**26)
    ports = {"port": _port(server), "relayed": _port(relayed), "control": _port(steering)}
    print(json.dumps(ports | more), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


class Relay:
    """Passes bytes on to the API servers and counts them on the wire, TLS included."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.bytes = {"out": 0, "in": 0}  # seen from the function

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the bytes of one connection in both directions until both ends have closed it."""
        upstream, to_upstream = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, to_upstream, "out"), self._pass(upstream, writer, "in"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        while data := await reader.read(65_536):
            self.bytes[way] += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


def tls() -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context and the authority that signed its certificate."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority.cert_pem.bytes().decode()


def _run_kubernetes(file: str, groups: str) -> None:
    servers, (context, ca) = Kubernetes(json.loads(Path(file).read_text())["answers"], int(groups)), tls()
    asyncio.run(serve(servers.answer, servers.control, context, ca=ca))


def _run_aws(url: str, ca: str) -> None:
    # A token of AWS is as long.
    token = base64.urlsafe_b64encode(bytes(range(256)) * 5).decode().rstrip("=")[:1_081]

    def secret(name: str) -> str:
        return json.dumps(kubeconfig(url=f"{url}/{name.rpartition('/')[2]}", ca_pem=ca, user="evenkeel", token=token))

    aws = Aws(secret)

    async def answer(_method: str, _target: str, headers: dict[str, str], body: bytes) -> Answer:
        return *aws.answer(headers.get("x-amz-target", ""), body), ""

    asyncio.run(serve(answer, aws.control, None))


@contextmanager
def server(module: str, *arguments: str) -> Iterator[Object]:
    """Start a module that calls ``serve`` in a process; yield its ports."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class Sample:
    """One invocation: ``cpu`` and ``wall`` in seconds, ``log`` in bytes, ``peak`` the most bytes of memory so far."""

    event: Any
    answer: Any
    cpu: float
    wall: float
    log: int
    peak: int
    done: float  # monotonic time


class Function:
    """One function in one process."""

    def __init__(self, process: RuntimeProcess) -> None:
        self.process = process

    def __call__(self, event: Any) -> Sample:
        cpu, log, began = self.process.cpu_seconds(), len(self.process.log()), time.monotonic()
        answer = self.process.invoke(event)
        done = time.monotonic()
        if isinstance(answer, dict) and answer.get("batchItemFailures"):
            raise RuntimeError(self.process.log()[-4000:])
        return Sample(
            event=event,
            answer=answer,
            cpu=self.process.cpu_seconds() - cpu,
            wall=done - began,
            log=len(self.process.log()) - log,
            peak=self.process.peak_bytes(),
            done=done,
        )


class Fleet:
    """Clusters ``cluster-0000`` and so on, registered and quiet."""

    def __init__(self, recorded: Object, kubernetes: Object, aws: Object) -> None:
        self._recorded = recorded
        self._kubernetes, self._aws = kubernetes, aws
        self._url = f"http://127.0.0.1:{aws['port']}"

    def register(self, clusters: Sequence[str], *, steady: bool = True) -> None:
        """Store the recorded cluster's items for each cluster. A steady one needs quick checks only."""
        text = json.dumps(self._recorded["items"])
        for start in range(0, len(clusters), 500):
            items: list[Object] = []
            for cluster in clusters[start : start + 500]:
                mine = json.loads(text.replace(ONE, cluster))
                meta = next(item for item in mine if item["sk"]["S"] == "META")
                due = {"pk": {"S": due_pk(cluster)}, "sk": meta["pk"], "record": meta["record"]}
                if steady:
                    meta["steady"] = {"S": steady_state(self._recorded)}
                items += [*mine, due]
            self.aws(plant=items)

    def aws(self, **command: Any) -> Object:
        """Call ``Aws.control``."""
        return control_server(self._aws, command)

    def clusters(self, **command: Any) -> Object:
        """Call ``Kubernetes.control``."""
        return control_server(self._kubernetes, command)

    @contextmanager
    def function(self, name: str, folder: Path | None = None, *, bare: bool = False) -> Iterator[Function]:
        """Start a process of ``functions/<name>`` or of another folder; a bare one has no layers."""
        build = host_build()
        # A bare function is not in the template.
        timeouts = {function.code.name: function.timeout for function in Template().functions().values()}
        queues = {"REBALANCE_QUEUE": "rebalance.fifo", "CHECKS_QUEUE": "checks", "DEAD_LETTERS": "dead-letters"}
        environment = {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "EVENKEEL_ALLOW_LOOPBACK": "true",
            "EVENKEEL_TABLE": "bench",
            "EVENKEEL_BUS": "bench",
            "EVENKEEL_CHAT_TOPIC": "arn:aws:sns:eu-central-1:123456789012:bench",
            "EVENKEEL_PAGE": "s3://bench/index.html",
            "EVENKEEL_DRY_RUN": "false",
            "POWERTOOLS_SERVICE_NAME": "bench",
            "POWERTOOLS_METRICS_NAMESPACE": "Evenkeel",
            "PYDANTIC_DISABLE_PLUGINS": "1",
            "PYTHONTZPATH": "/usr/share/zoneinfo",
            **{f"EVENKEEL_{queue}_URL": f"{self._url}/1/{name}" for queue, name in queues.items()},
        }
        with RuntimeProcess(
            function=folder or ROOT / "functions" / name,
            python=build.python,
            layers=() if bare else build.layers,
            runtime=build.runtime,
            environment=environment,
            timeout=timeouts.get(name, 30),
            name=name,
        ) as process:
            yield Function(process)


def control_server(ports: Object, command: Mapping[str, Any]) -> Object:
    """Call a server's ``control``."""
    request = urllib.request.Request(f"http://127.0.0.1:{ports['control']}/", json.dumps(command).encode())
    with urllib.request.urlopen(request) as answer:
        counts: Object = json.load(answer)
        return counts


def delivered(messages: Sequence[Mapping[str, Any]], queue: str = "checks") -> Object:
    """Return the event in which Lambda's poller delivers messages."""
    return {
        "Records": [
            {
                "messageId": message.get("id", "1"),
                "receiptHandle": "1",
                "body": message["body"],
                "attributes": {"ApproximateReceiveCount": "1"}
                | ({"MessageGroupId": message["group"]} if message.get("group") else {}),
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:eu-central-1:123456789012:{queue}",
                "awsRegion": "eu-central-1",
            }
            for message in messages
        ]
    }


def chunk(clusters: Sequence[str]) -> Object:
    """Return the event of one chunk."""
    return delivered([{"body": json.dumps({"clusters": list(clusters)})}])


def failure(cluster: str, group: Mapping[str, str]) -> Object:
    """Return the event of a launch that was refused just now, in a group of this name and namespace."""
    now = datetime.now(UTC).isoformat()
    detail = {"cluster": cluster, "kind": "MachineDeployment", "code": "InsufficientInstanceCapacity", **group}
    return {
        "version": "0",
        "id": cluster,
        "detail-type": "Machine Provisioning Failed",
        "source": "evenkeel.provisioning",
        "account": "123456789012",
        "time": now,
        "region": "eu-central-1",
        "resources": [],
        "detail": {**detail, "occurredAt": now, "id": cluster},
    }


@contextmanager
def stand_in_for_aws() -> Iterator[str]:
    """Start an empty ``bench.aws`` and yield its URL."""
    with server("bench.fleet", "aws", "", "") as aws:
        yield f"http://127.0.0.1:{aws['port']}"


@contextmanager
def fleet(clusters: int, groups: int, flavour: str = "cluster-api", *, relayed: bool = False) -> Iterator[Fleet]:
    """Start clusters of so many groups. ``relayed`` counts the bytes to and from API servers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 20_000)), hard))
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "cluster.json"
        record(file, flavour, groups)
        kubernetes = stack.enter_context(server("bench.fleet", "kubernetes", str(file), str(groups)))
        url = f"https://127.0.0.1:{kubernetes['relayed' if relayed else 'port']}"
        aws = stack.enter_context(server("bench.fleet", "aws", url, kubernetes["ca"]))
        made = Fleet(json.loads(file.read_text()), kubernetes, aws)
        made.register([name_of(number) for number in range(clusters)])
        yield made


if __name__ == "__main__":
    {"kubernetes": _run_kubernetes, "aws": _run_aws}[sys.argv[1]](*sys.argv[2:])
