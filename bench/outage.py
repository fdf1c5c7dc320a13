"""From a failure event to the patches, through the real handlers: built layers, Lambda's runtime client, TLS, patches.

An autoscaler has asked a zone for two machines that it does not give. The event goes into ``provisioning_failure``, the
message that comes of it into ``rebalance``, and its patches arrive at a simulated API server. Nothing is added for
EventBridge and SQS, which are not here. Cold: both functions start for this event. Warm: both have had one before, of
another cluster. Both kinds take turns, and AWS and API servers are processes of their own (``bench.fleet``).
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack

from bench.canned import name_of
from bench.fleet import Fleet, Function, delivered, failure, fleet

_ROUNDS = 9
_CPU, _FIRST, _LAST, _PATCHES = "CPU", "first patch", "last patch", "patches"


def _event_to_patch(stage: Fleet, cluster: str, functions: list[Function] | None) -> dict[str, float]:
    """CPU seconds of both functions, seconds to the patches and their number; without functions, cold ones."""
    group = next(
        g for g in stage.clusters(clusters=[cluster], incident="outage", stuck=2)["groups"][cluster] if g[2] > g[3]
    )
    event = failure(cluster, {"name": group[0], "namespace": "demo"})
    began = time.monotonic()
    with ExitStack() as stack:
        receive = functions[0] if functions else stack.enter_context(stage.function("provisioning_failure"))
        received = receive(event)
        cpu = received.cpu if functions else receive.process.cpu_seconds()
        messages = stage.aws(take="rebalance.fifo")["messages"]
        rebalance = functions[1] if functions else stack.enter_context(stage.function("rebalance"))
        run = rebalance(delivered(messages, "rebalance.fifo"))
        cpu += run.cpu if functions else rebalance.process.cpu_seconds()
    patched = stage.clusters()["patched"][cluster]
    return {_CPU: cpu, _FIRST: patched[0] - began, _LAST: patched[-1] - began, _PATCHES: len(patched)}


def main() -> None:
    """Medians, with least and most."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    with fleet(2 * _ROUNDS + 1, 3) as stage, ExitStack() as stack:
        warm = [stack.enter_context(stage.function(name)) for name in ("provisioning_failure", "rebalance")]
        _event_to_patch(stage, name_of(2 * _ROUNDS), warm)
        for turn in range(_ROUNDS):
            found["cold"].append(_event_to_patch(stage, name_of(2 * turn), None))
            found["warm"].append(_event_to_patch(stage, name_of(2 * turn + 1), warm))
    print(f"from a failure event to patches, both functions together, medians of {_ROUNDS} (least-most)")
    for how, rounds in found.items():
        spans = {name: sorted(1000 * each[name] for each in rounds) for name in (_CPU, _FIRST, _LAST)}
        parts = [f"{name} {statistics.median(s):.0f} ms ({s[0]:.0f}-{s[-1]:.0f})" for name, s in spans.items()]
        print(f"  {how}: {', '.join(parts)}, {rounds[0][_PATCHES]:.0f} patches")


if __name__ == "__main__":
    main()
