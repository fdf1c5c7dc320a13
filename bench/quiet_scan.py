"""What a quiet scan of a cluster with 300 groups costs: calls, and the share of planning in the time spent."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from evenkeel import bootstrap
from evenkeel.application import leaving
from evenkeel.domain.model.plans import Plan
from sandbox.aws import AwsEndpoints
from sandbox.kube.world import Pool, World

POOLS = 100  # of three zones each
_ROUNDS = 20


def main() -> None:
    """Run scans until the cluster is quiet, then count one and time twenty."""
    pools = {"cluster-api": [Pool(name=f"pool-{i:03}", minimum=3, maximum=12) for i in range(POOLS)]}
    with (
        World(clusters=["cluster-api"], pools=pools, settings=None) as world,
        AwsEndpoints() as aws,
        aws.deploy() as stack,
    ):
        api = world.clusters["cluster-api"].api
        with patch.dict(os.environ, stack.environment("RebalanceFunction")):
            container = bootstrap.Container()
            aws_calls: Counter[str] = Counter()
            container._dynamodb.meta.events.register(
                "before-call.dynamodb", lambda model, **_: aws_calls.update([model.name])
            )
            secret = json.dumps(api.kubeconfig("evenkeel"))
            aws.client("secretsmanager").create_secret(Name="evenkeel/bench", SecretString=secret)
            record = {"access": {"kind": "kubeconfig", "secret": "evenkeel/bench"}, "dry_run": False}
            answer = container.operate(
                {"action": "register", "cluster": "bench", "record": {**record, "flavours": ["cluster-api"]}},
                lambda: 60.0,
            )
            assert answer["ok"], answer
            while container.rebalance("bench", "bench", lambda: 60.0).written:
                pass
            api.requests.clear()
            aws_calls.clear()
            container.rebalance("bench", "bench", lambda: 60.0)
            kube = Counter(f"{call.method} {urlsplit(call.path).path}" for call in api.requests)
            counted = dict(aws_calls)
            total, planning = _timed(container)
    print(f"quiet scan of {3 * POOLS} groups in {POOLS} pools")
    for call, count in sorted(kube.items()):
        print(f"  Kubernetes: {count} x {call}")
    print(f"  DynamoDB: {counted}")
    print(f"  patches: {sum(count for call, count in kube.items() if call.startswith('PATCH'))}")
    print(
        f"  planning is {planning / total:.1%} of the time of a run: "
        f"{planning / _ROUNDS * 1000:.1f} of {total / _ROUNDS * 1000:.1f} ms (mean of {_ROUNDS})"
    )


def _timed(container: bootstrap.Container) -> tuple[float, float]:
    """Seconds of whole runs, and of planning within them."""
    planning = 0.0
    whole = leaving.plan

    def timed(*args: Any, **kwargs: Any) -> Plan:
        nonlocal planning
        began = time.perf_counter()
        try:
            return whole(*args, **kwargs)
        finally:
            planning += time.perf_counter() - began

    began = time.perf_counter()
    with patch.object(leaving, "plan", timed):
        for _ in range(_ROUNDS):
            container.rebalance("bench", f"bench at {datetime.now(UTC)}", lambda: 60.0)
    return time.perf_counter() - began, planning


if __name__ == "__main__":
    main()
