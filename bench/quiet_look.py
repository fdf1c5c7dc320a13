"""What a quiet look costs: CPU and memory of the process that looks, in Lambda's runtime client on the built layers.

The clusters and AWS answer from a process of their own (:mod:`bench.canned`). Each layer set that is compared has its
process, and they take turns, so that a slow moment of the machine hits all of them.

    python -m bench.quiet_look [--groups 30] [--chunk 50] [--layers name=<folder made by make build-host> ...]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.canned import name_of, serving
from sandbox.lambda_runtime import RuntimeProcess, host_build

SIZES = (3, 30, 300, 3_000)  # groups of a cluster
CHUNKS = (1, 50)  # clusters of one invocation
_ROUNDS = 9
# Until `look` is there: what it will do, one thread for each cluster of its chunk.
_HANDLER = """
import inspect, os, resource, threading
from concurrent.futures import ThreadPoolExecutor
from evenkeel import bootstrap
from evenkeel.application.observing import observe_cluster
from evenkeel.application.restoring import plan_for

if os.environ.get("BENCH_POOL"):
    bootstrap._AWS = bootstrap._AWS.merge(bootstrap.Config(max_pool_connections=int(os.environ["BENCH_POOL"])))
container = bootstrap.container()
if os.environ.get("BENCH_NOTHING_KEPT"):
    container.clusters._kept._most_bytes = 0
options = {"consistent": False} if "consistent" in inspect.signature(observe_cluster).parameters else {}


def look(cluster):
    remembered = container.store.load(cluster)
    _, observation = observe_cluster(
        container.clusters, remembered.record, lambda: 60.0, remembered.state, **options
    )
    plan = plan_for(remembered, observation, container.clock.now())
    return sum(len(pool.groups) for pool in plan.pools)


def handler(event, context):
    if event.get("profile"):
        import cProfile, pstats, io
        profile = cProfile.Profile()
        for cluster in event["clusters"]:
            profile.runcall(look, cluster)
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats(event["profile"]).print_stats(45)
        return {"text": text.getvalue()}
    before = resource.getrusage(resource.RUSAGE_SELF)
    with ThreadPoolExecutor(int(os.environ.get("BENCH_THREADS") or len(event["clusters"]))) as threads:
        groups = sum(threads.map(look, event["clusters"]))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"groups": groups, "cpu": cpu, "peak": after.ru_maxrss}
"""


@contextmanager
def looking(url: str, function: Path, layers: Path | None, **variables: str) -> Iterator[RuntimeProcess]:
    """A warm process that looks at the clusters behind this AWS endpoint."""
    build = host_build()
    folder = build.runtime.parent if layers is None else layers
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "EVENKEEL_ALLOW_LOOPBACK": "true",
        "EVENKEEL_TABLE": "bench",
        "EVENKEEL_BUS": "bench",
        "EVENKEEL_DRY_RUN": "false",
        "EVENKEEL_REBALANCE_QUEUE_URL": f"{url}/rebalance.fifo",
        "EVENKEEL_REBALANCE_DLQ_URL": f"{url}/dlq.fifo",
        "EVENKEEL_RECHECK_QUEUE_URL": f"{url}/recheck",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "bench",
    }
    with RuntimeProcess(
        function=function,
        python=build.python,
        layers=[folder / "EvenkeelLayer", folder / "DependenciesLayer"],
        runtime=folder / "runtime",
        environment=environment | variables,
        timeout=300,
    ) as process:
        yield process


def measure(
    flavour: str, groups: int, chunk: int, layers: Mapping[str, Path | None], recording: Path | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The answers of every layer set, one per round; the first, which opens the connections, is left out."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in layers}
    event = {"clusters": [name_of(number) for number in range(chunk)]}
    with ExitStack() as stack:
        function = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (function / "app.py").write_text(_HANDLER)
        url = stack.enter_context(serving(flavour, groups, recording))
        processes = {
            name: stack.enter_context(looking(url, function, folder, **_variables(name)))
            for name, folder in layers.items()
        }
        for turn in range(_ROUNDS + 1):
            for name, process in processes.items():
                answer = process.invoke(event)
                assert answer["groups"] == groups * chunk, answer
                if turn:
                    answers[name].append(answer)
    return answers


def _variables(name: str) -> dict[str, str]:
    """``nothing kept``: as an instance that has never met these clusters, but for the connections."""
    return {"BENCH_NOTHING_KEPT": "1"} if name == "nothing kept" else {}


def show(groups: int, chunk: int, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """One line for each layer set: least, median and largest CPU per look, and the peak of memory."""
    for name, rounds in answers.items():
        spent = sorted(answer["cpu"] / chunk * 1000 for answer in rounds)
        peak = max(answer["peak"] for answer in rounds) / 1024
        print(
            f"  {groups:>5} groups, chunk of {chunk:>2}, {name:<14} "
            f"{spent[0]:7.2f} / {statistics.median(spent):7.2f} / {spent[-1]:7.2f} ms of CPU per look, {peak:4.0f} MB",
            flush=True,
        )


def main(arguments: Sequence[str] = ()) -> None:
    """Every size in every chunk; of the largest clusters only one at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flavour", default="cluster-api")
    parser.add_argument("--groups", type=int, action="append")
    parser.add_argument("--chunk", type=int, action="append")
    parser.add_argument("--layers", action="append", default=[])
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--only-layers", action="store_true")
    chosen = parser.parse_args(arguments)
    layers: dict[str, Path | None] = {} if chosen.only_layers else {"kept": None, "nothing kept": None}
    layers |= {name: Path(folder) for name, _, folder in (entry.partition("=") for entry in chosen.layers)}
    print(f"a quiet look, {chosen.flavour}: least / median / largest of {_ROUNDS}")
    for groups in chosen.groups or SIZES:
        recording = chosen.recordings / f"{chosen.flavour}-{groups}.json" if chosen.recordings else None
        for chunk in chosen.chunk or CHUNKS:
            if groups * chunk <= 15_000:
                show(groups, chunk, measure(chosen.flavour, groups, chunk, layers, recording))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
