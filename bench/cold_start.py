"""Cold starts of the built artefact in Lambda's runtime client, against a bare boto3 handler.

The bare handler makes a DynamoDB client and answers one query. `rebalance` answers a message about a registered cluster
and really looks at it: secret, TLS, lists, plan; from an event to patches is ``bench.outage``. AWS's and the
clusters' servers are processes of their own, each sample is a new process, and both kinds take turns. Processor time is
that of the function's process alone: it says the same on a machine where others work too, which the clock on the wall
does not.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml

from bench.fleet import delivered
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.world import World
from sandbox.lambda_runtime import HostBuild, RuntimeProcess, host_build

_RUNS = 11
_FLAVOUR = "cluster-api"
_BARE = """
import os
import boto3

client = boto3.client("dynamodb")


def handler(event, context):
    return client.query(
        TableName=os.environ["EVENKEEL_TABLE"],
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "CLUSTER#bench"}},
    )["Count"]
"""


@dataclass(frozen=True)
class _Sample:
    """Seconds of processor and of the wall: of init, and of init and first answer. Bytes at the peak."""

    init: tuple[float, float]
    answer: tuple[float, float]
    peak: int


def _serve_aws(pipe: Connection) -> None:
    with AwsEndpoints() as aws:
        pipe.send(aws.url)
        pipe.recv()


def _serve_cluster(pipe: Connection) -> None:
    """Answers each message with how often it was read since the last, and the moment of the first patch, if any."""
    moments: list[float] = []  # on the clock that all processes share
    reads = 0
    with World(clusters=[_FLAVOUR], settings=None, clock=lambda: datetime.now(UTC)) as world:
        api = world.clusters[_FLAVOUR].api
        add = api.requests.add

        def timed(request: Any) -> None:
            nonlocal reads
            reads += request.method == "GET"
            if request.method == "PATCH":
                moments.append(time.monotonic())
            add(request)

        api.requests.add = timed  # type: ignore[method-assign]
        pipe.send(yaml.safe_dump(api.kubeconfig("evenkeel")))
        while pipe.recv():
            pipe.send((reads, moments[0] if moments else None))
            moments.clear()
            reads = 0


@contextmanager
def _apart(serve: Callable[[Connection], None]) -> Iterator[Connection]:
    """A server in a process of its own, which ends when it is told something false."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here
    finally:
        here.send(None)
        process.join(timeout=5)
        process.terminate()


class _Stage:
    """The built functions on a deployment, and what a cold start needs around it."""

    def __init__(self, build: HostBuild, deployment: Deployment, bare: Path) -> None:
        self.build = build
        self.deployment = deployment
        self._bare = bare

    def bare(self) -> _Sample:
        environment = self.deployment.environment("RebalanceFunction")
        return _sample(
            RuntimeProcess(
                function=self._bare, python=self.build.python, runtime=self.build.runtime, environment=environment
            ),
            {},
        )

    def rebalance(self, cluster: str, pipe: Connection) -> _Sample:
        _seen(pipe)
        sample = _sample(self._process("RebalanceFunction"), _message(cluster))
        reads, patched = _seen(pipe)
        if not reads or patched:
            raise RuntimeError(f"{cluster} is no quiet cluster that is looked at: {reads} reads, patched: {patched}")
        return sample

    def register(self, cluster: str, kubeconfig: str) -> None:
        secret = f"evenkeel/{self.deployment.stack}-{cluster}"
        self.deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
        access = {"kind": "kubeconfig", "secret": secret}
        record = {"flavours": [_FLAVOUR], "access": access, "dry_run": False}
        with self._process("AdminFunction") as operator:
            answer = operator.invoke({"action": "register", "cluster": cluster, "record": record})
        if not answer["ok"]:
            raise RuntimeError(answer["message"])

    def quiet(self, cluster: str) -> None:
        """Looks until there is nothing more to write."""
        with self._process("RebalanceFunction") as worker:
            for _ in range(3):
                worker.invoke(_message(cluster))

    def _process(self, logical_id: str) -> RuntimeProcess:
        return self.build.process(self.deployment, logical_id)


def _message(cluster: str) -> dict[str, Any]:
    body = json.dumps({"cluster": cluster, "reason": "bench"})
    return delivered([{"body": body, "group": cluster}], "rebalance.fifo")


def _seen(pipe: Connection) -> tuple[int, float | None]:
    """What the cluster has seen since it was last asked."""
    pipe.send(True)
    seen: tuple[int, float | None] = pipe.recv()
    return seen


def _sample(process: RuntimeProcess, event: Any) -> _Sample:
    with process:
        init = process.cpu_seconds(), process.init_seconds
        began = time.perf_counter()
        answer = process.invoke(event)
        wall = process.init_seconds + time.perf_counter() - began
        if isinstance(answer, dict) and answer.get("batchItemFailures"):
            raise RuntimeError(process.log())
        return _Sample(init, (process.cpu_seconds(), wall), process.peak_bytes())


def _print(title: str, seconds: Sequence[float]) -> None:
    low, middle, high = (round(value * 1000) for value in (min(seconds), statistics.median(seconds), max(seconds)))
    print(f"    {title:<10} {middle:5} ms ({low}-{high})")


def _compare(bare: Sequence[_Sample], ours: Sequence[_Sample]) -> None:
    for title, part in (("init", "init"), ("init and first answer", "answer")):
        for index, clock in enumerate(("CPU", "wall")):
            first, second = ([getattr(sample, part)[index] for sample in samples] for samples in (bare, ours))
            ratios = [mine / other for mine, other in zip(second, first, strict=True)]
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"  {title}, {clock}: {middle:.2f} x ({low:.2f}-{high:.2f}, pair by pair)")
            _print("bare", first)
            _print("rebalance", second)
    peaks = [statistics.median(sample.peak for sample in samples) / 2**20 for samples in (bare, ours)]
    print(f"  peak memory: bare {peaks[0]:.0f} MiB, rebalance {peaks[1]:.0f} MiB")


def main() -> None:
    """Medians, with least and most."""
    build = host_build()
    with tempfile.TemporaryDirectory() as folder, _apart(_serve_aws) as servers, _apart(_serve_cluster) as pipe:
        (Path(folder) / "app.py").write_text(_BARE)
        os.environ.setdefault("AWS_ENDPOINT_URL", servers.recv())
        kubeconfig = pipe.recv()
        with AwsEndpoints() as aws, aws.deploy(parameters={"DryRun": "false"}) as deployment:
            stage = _Stage(build, deployment, Path(folder))
            stage.register("bench", kubeconfig)
            stage.quiet("bench")
            pairs = [(stage.bare(), stage.rebalance("bench", pipe)) for _ in range(_RUNS)]
    print(f"cold start, medians of {_RUNS} pairs (least-most)")
    _compare([pair[0] for pair in pairs], [pair[1] for pair in pairs])


if __name__ == "__main__":
    main()
