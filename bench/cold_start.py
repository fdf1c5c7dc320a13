"""Cold start of the built `rebalance` artefact in Lambda's runtime client, against a bare DynamoDB handler.

Both run from start to their first answer, which takes one query of the same table: so that whatever a handler puts off
until it is first called counts as well.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sandbox.aws import AwsEndpoints, Deployment
from sandbox.lambda_runtime import HostBuild, RuntimeProcess, host_build

_RUNS = 9
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


def _message() -> dict[str, Any]:
    body = json.dumps({"cluster": "bench", "reason": "bench"})
    record = {
        "messageId": "1",
        "receiptHandle": "1",
        "body": body,
        "attributes": {"MessageGroupId": "bench"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:rebalance.fifo",
        "awsRegion": "eu-central-1",
    }
    return {"Records": [record]}


def _run(process: RuntimeProcess, event: Any) -> tuple[float, float]:
    """Seconds of init, and of init and first answer."""
    with process:
        began = time.perf_counter()
        process.invoke(event)
        return process.init_seconds, process.init_seconds + time.perf_counter() - began


def _paused_cluster(build: HostBuild, deployment: Deployment) -> None:
    record = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/bench"}}
    with build.process(deployment, "OperatorFunction") as operator:
        for event in (
            {"action": "register", "cluster": "bench", "record": record},
            {"action": "pause", "cluster": "bench"},
        ):
            answer = operator.invoke(event)
            if not answer["ok"]:
                raise RuntimeError(answer["message"])


def main() -> None:
    """Medians of runs that take turns, so that a slow moment of the machine hits both."""
    build = host_build()
    with tempfile.TemporaryDirectory() as folder, AwsEndpoints() as aws, aws.deploy() as deployment:
        (Path(folder) / "app.py").write_text(_BARE)
        _paused_cluster(build, deployment)
        environment = deployment.environment("RebalanceFunction")
        bare, ours = [], []
        for _ in range(_RUNS):
            process = RuntimeProcess(
                function=Path(folder), python=build.python, runtime=build.runtime, environment=environment
            )
            bare.append(_run(process, {}))
            ours.append(_run(build.process(deployment, "RebalanceFunction"), _message()))
    print(f"cold start, median of {_RUNS}")
    for title, index in (("init", 0), ("init and first answer", 1)):
        first, second = (statistics.median(run[index] for run in runs) for runs in (bare, ours))
        print(f"  {title:<22} bare {first * 1000:6.0f} ms, rebalance {second * 1000:6.0f} ms: {second / first:.2f} x")


if __name__ == "__main__":
    main()
