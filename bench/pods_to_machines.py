"""From pods that wait to machines ordered, through the real handlers: built layers, runtime client, TLS, patches.

A cluster without an autoscaler has six pods more than its nodes hold. By event: ``FailedScheduling`` goes into
``provisioning_failure``, and the message that comes of it into ``rebalance``. By scan: ``look`` reads a chunk of
clusters, of which one has pods that wait, and its news goes into ``rebalance``; a scan comes once a minute, which is to
be added. Nothing is added for EventBridge and SQS. Functions are warm; AWS and API servers are processes of their own
(``bench.fleet``).
"""

from __future__ import annotations

import json
import statistics
import time
from contextlib import ExitStack
from datetime import UTC, datetime

from bench.canned import name_of
from bench.figures import keep
from bench.fleet import Fleet, Function, Object, chunk, delivered, fleet
from sandbox.template import ROOT

_ROUNDS = 9
_WAITING = 6
_CHUNK = 20  # clusters of one look: the others are quiet
_RECORD = {
    "flavours": ["cluster-api"],
    "dry_run": False,
    "autoscaler": "none",
    "demand": "scale-up",
    "workload": {"access": {"kind": "same"}},
}


def _failed_scheduling(cluster: str) -> Object:
    """The example that the docs send, of this cluster and of now."""
    event: Object = json.loads((ROOT / "events" / "failure-kubernetes-pod.json").read_text(encoding="utf-8"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    detail = {**event["detail"], "clusterName": cluster, "firstTimestamp": now, "lastTimestamp": now}
    return {**event, "id": cluster, "time": now, "detail": detail}


def _to_machines(stage: Fleet, cluster: str, event: Object, functions: tuple[Function, Function]) -> dict[str, float]:
    """CPU of both functions, and seconds to the last patch. Raises AssertionError where other nodes were ordered."""
    groups = stage.clusters(clusters=[cluster], incident="pods", waiting=_WAITING)["groups"][cluster]
    before = sum(requested for _, _, requested, _, _ in groups)
    stage.aws(take="rebalance.fifo")
    first, rebalance = functions
    began = time.monotonic()
    received = first(event)
    run = rebalance(delivered(stage.aws(take="rebalance.fifo")["messages"], "rebalance.fifo"))
    found = stage.clusters()
    ordered = sum(requested for _, _, requested, _, _ in found["groups"][cluster]) - before
    if ordered != _WAITING:
        raise AssertionError(f"{ordered} nodes were ordered for {_WAITING} pods: {received.answer}, {run.answer}")
    return {"cpu_s": received.cpu + run.cpu, "seconds": found["patched"][cluster][-1] - began}


def main() -> None:
    """Medians, with least and most."""
    found: dict[str, list[dict[str, float]]] = {"event": [], "scan": []}
    with fleet(2 * _ROUNDS + 2 + _CHUNK, 3) as stage, ExitStack() as stack:
        quiet = [name_of(2 * _ROUNDS + 2 + number) for number in range(_CHUNK - 1)]
        listen, look, rebalance, operator = (
            stack.enter_context(stage.function(name))
            for name in ("provisioning_failure", "check", "rebalance", "admin")
        )
        for turn in range(-1, _ROUNDS):  # the first of each warms them
            by_event, by_scan = name_of(2 * turn + 2), name_of(2 * turn + 3)
            for cluster in (by_event, by_scan):
                access = {"kind": "kubeconfig", "secret": f"evenkeel/{cluster}"}
                asked = {"action": "register", "cluster": cluster, "record": {**_RECORD, "access": access}}
                if not (answer := operator(asked).answer)["ok"]:
                    raise AssertionError(answer["message"])
            heard = _to_machines(stage, by_event, _failed_scheduling(by_event), (listen, rebalance))
            seen = _to_machines(stage, by_scan, chunk([*quiet, by_scan]), (look, rebalance))
            if turn >= 0:
                found["event"].append(heard)
                found["scan"].append(seen)
    print(f"from {_WAITING} pods that wait to {_WAITING} machines ordered, medians of {_ROUNDS} (least-most)")
    for how, rounds in found.items():
        spans = {name: sorted(1000 * each[name] for each in rounds) for name in ("cpu_s", "seconds")}
        cpu, wall = (f"{statistics.median(s):.0f} ms ({s[0]:.0f}-{s[-1]:.0f})" for s in spans.values())
        keep("pods to machines", how, seconds=statistics.median(spans["seconds"]) / 1000)
        print(f"  by {how}: CPU of both functions {cpu}, to the last patch {wall}")


if __name__ == "__main__":
    main()
