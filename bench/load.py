"""Load: ten thousand clusters for a minute, an outage in five hundred of them at once, then a hundred that hang.

Real: the four built functions in Lambda's runtime client, their messages, HTTP and TLS to the API servers; of clusters
in an outage, what is read and patched (sandbox.kube). Stand-ins: AWS (``bench.aws``), API servers of quiet clusters,
which answer what was recorded (``bench.canned``). Messages that are to wait do not: their delay is kept as data.

    python -m bench.load --clusters 10000 --outage 500 --hanging 100
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import figures
from bench.canned import name_of
from bench.fleet import Fleet, Function, Object, Sample, chunk, delivered, failure, fleet
from sandbox.template import ROOT

STUCK = 2  # machines that a zone does not give, in each cluster of the outage
_MIXED = (5, 5, 40)  # clusters of a chunk that hang, that answer with garbage, that are healthy
_SCANS = (1, 40, 100, 1_000)  # and all
_ROUNDS = 5
_MINUTES = 15
# Functions whose clock goes ahead by what stands in the event.
_LATER = """
from datetime import UTC, datetime, timedelta
import time

from evenkeel import bootstrap


class Later:
    seconds = 0

    def now(self):
        return datetime.now(UTC) + timedelta(seconds=self.seconds)

    def sleep(self, seconds):
        time.sleep(seconds)


clock = Later()
bootstrap.use_clock(clock)

import real


def handler(event, context):
    clock.seconds = event.pop("later")
    return real.handler(event, context)
"""


class Workers:
    """So many processes of one function, each fed by a thread."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self._functions = functions

    def __call__(self, events: Sequence[Object], then: Callable[[Sample], None] = lambda _: None) -> list[Sample]:
        waiting: queue.SimpleQueue[Object] = queue.SimpleQueue()
        for event in events:
            waiting.put(event)
        samples: list[Sample] = []
        failed: list[BaseException] = []

        def work(function: Function) -> None:
            while not failed:
                try:
                    sample = function(waiting.get_nowait())
                    samples.append(sample)
                    then(sample)
                except queue.Empty:
                    return
                except BaseException as error:
                    failed.append(error)

        threads = [threading.Thread(target=work, args=(function,)) for function in self._functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return samples


@contextmanager
def workers(stage: Fleet, name: str, number: int, folder: Path | None = None) -> Iterator[Workers]:
    """Started, and ended with the block."""
    with ExitStack() as stack:
        yield Workers([stack.enter_context(stage.function(name, folder)) for _ in range(number)])


def scan(stage: Fleet, clusters: int) -> list[Object]:
    """One tick, cold and then warm; the chunks of the warm one."""
    with stage.function("scan") as function:
        for how in ("cold", "warm"):
            stage.aws()
            tick = function({"source": "evenkeel.schedule", "time": datetime.now(UTC).isoformat()})
            used, messages = stage.aws(), stage.aws(take="looks")["messages"]
            asked = [cluster for message in messages for cluster in json.loads(message["body"])["clusters"]]
            if sorted(asked) != [name_of(number) for number in range(clusters)]:
                raise RuntimeError(f"{len(asked)} of {clusters} clusters are looked at, or some of them twice")
            print(
                f"  scan of {clusters}, {how}: {tick.cpu:.2f} s of CPU, {tick.wall:.2f} s, "
                f"{tick.peak / 2**20:.0f} MiB; {used['query']} queries, {used['half read units'] / 2:.0f} read units, "
                f"{used['send_message_batch']} batches, {len(messages)} chunks"
            )
    figures.keep(
        "scan", clusters, cpu=tick.cpu, half_read_units=used["half read units"], batches=used["send_message_batch"]
    )
    delays = Counter(int(message["delay"]) // 10 for message in messages)
    print(f"  chunks in each ten seconds of the minute: {', '.join(str(delays[ten]) for ten in range(6))}")
    return messages  # type: ignore[no-any-return]


def minute(stage: Fleet, messages: Sequence[Object], clusters: int, number: int) -> None:
    """All chunks of a tick through ``look``."""
    with workers(stage, "check", number) as look:
        stage.clusters(), stage.aws()
        began = time.monotonic()
        samples = look([delivered([message]) for message in messages])
        wall = time.monotonic() - began
    asked, used = stage.clusters(), stage.aws()
    if len(asked["asked"]) != clusters or asked["patched"]:
        raise RuntimeError(f"{len(asked['asked'])} of {clusters} clusters were asked")
    runs = stage.aws(take="rebalance.fifo")["messages"]
    cpu = [sample.cpu for sample in samples]
    figures.keep(
        "minute", clusters, cpu_ms=sum(cpu) / clusters * 1000, secrets=used.get("get_secret_value", 0) / clusters
    )
    print(
        f"  a minute: {len(asked['asked'])} clusters looked at, "
        f"{sum(asked['asked'].values())} requests at API servers, {used['query']} queries, "
        f"{used.get('get_secret_value', 0)} secrets read, {len(runs)} runs asked for\n"
        f"    {sum(cpu):.1f} s of CPU in {number} processes, {sum(cpu) / clusters * 1000:.2f} ms per look, a chunk "
        f"{min(cpu):.2f} / {statistics.median(cpu):.2f} / {max(cpu):.2f} s; {wall:.1f} s; "
        f"{max(sample.peak for sample in samples) / 2**20:.0f} MiB at most"
    )


def outage(stage: Fleet, clusters: Sequence[str], number: int) -> None:
    """A zone gives no machine to any of these: events, runs, patches; then the looks that follow."""
    groups = stage.clusters(clusters=clusters, incident="outage", stuck=STUCK)["groups"]
    dead = {cluster: next(group for group in groups[cluster] if group[2] > group[3]) for cluster in clusters}
    events = [failure(cluster, {"name": dead[cluster][0], "namespace": "demo"}) for cluster in clusters]
    with workers(stage, "provisioning_failure", 1) as receive, workers(stage, "rebalance", number) as rebalance:
        stage.aws()
        # Each in an invocation of its own before, so that none of them is cold.
        receive([failure("nobody", {"name": "nothing", "namespace": "demo"})])
        began = time.monotonic()
        received = receive(events)
        messages = stage.aws(take="rebalance.fifo")["messages"]
        looks = rebalance([delivered([message], "rebalance.fifo") for message in messages])
        wall = time.monotonic() - began
        used, seen = stage.aws(), stage.clusters()
        again = stage.aws(take="recheck")["messages"]
        following = rebalance([delivered([message], "rebalance.fifo") for message in again])
    _is_whole(clusters, groups, seen)
    patched = {cluster: moments[0] for cluster, moments in seen["patched"].items()}
    heard = {sample.event["id"]: sample.wall for sample in received}
    begun = {sample.event["Records"][0]["attributes"]["MessageGroupId"]: sample.done - sample.wall for sample in looks}
    own = sorted(heard[cluster] + patched[cluster] - begun[cluster] for cluster in clusters)
    since = sorted(moment - began for moment in patched.values())
    figures.keep(
        "outage",
        event_cpu_ms=1000 * statistics.mean(sample.cpu for sample in received),
        run_cpu_ms=1000 * statistics.mean(sample.cpu for sample in looks),
        following_cpu_ms=1000 * statistics.mean(sample.cpu for sample in following),
        write_units=used["write units"] / len(clusters),
        half_read_units=used["half read units"] / len(clusters),
        log_bytes=statistics.mean(run.log + receipt.log for receipt, run in zip(received, looks, strict=True)),
    )
    print(
        f"  an outage in {len(clusters)} clusters at once: {len(received)} events, "
        f"{len(messages)} messages, {len(looks)} looks, {sum(map(len, seen['patched'].values()))} patches "
        f"at {len(seen['patched'])} clusters, {len(again)} second looks asked for\n"
        f"    event to first patch, without waiting for others: median {_ms(own, 0.5)}, "
        f"99th percentile {_ms(own, 0.99)}\n"
        f"    all at once with {number} workers: first patch after the events, median {_s(since, 0.5)}, "
        f"99th percentile {_s(since, 0.99)}, all done {wall:.1f} s\n"
        f"    CPU: {1000 * statistics.mean(s.cpu for s in received):.1f} ms per event, "
        f"{1000 * statistics.mean(s.cpu for s in looks):.1f} ms per run, "
        f"{1000 * statistics.mean(s.cpu for s in following):.1f} ms per second look; "
        f"{used['write units'] / len(clusters):.1f} write units each; requested before and after: the same in each"
    )


def _is_whole(clusters: Sequence[str], before: Object, seen: Object) -> None:
    """That nothing is lost: as many nodes requested as before, none in the dead zone, and nobody else was patched."""
    if sorted(seen["patched"]) != sorted(clusters):
        raise RuntimeError(f"{len(seen['patched'])} clusters were patched, {len(clusters)} had to be")
    for cluster in clusters:
        requested = [sum(group[2] for group in groups[cluster]) for groups in (before, seen["groups"])]
        if requested[0] != requested[1]:
            raise RuntimeError(f"{cluster}: {requested[0]} nodes requested before, {requested[1]} after")
        if any(group[2] > group[3] and group[1].endswith("a") for group in seen["groups"][cluster]):
            raise RuntimeError(f"{cluster}: machines are still asked of the dead zone: {seen['groups'][cluster]}")


def beside(stage: Fleet, clusters: Sequence[str]) -> None:
    """Healthy clusters in a chunk with hanging ones and garbage, against the same clusters alone."""
    hangs, breaks, _ = _MIXED
    hanging, garbage, healthy = clusters[:hangs], clusters[hangs : hangs + breaks], clusters[hangs + breaks :]
    stage.clusters(clusters=hanging, incident="hanging")
    stage.clusters(clusters=garbage, incident="garbage")
    took: dict[str, list[float]] = {"alone": [], "beside": []}
    with stage.function("check") as look:
        look(chunk(healthy))
        for _ in range(_ROUNDS):
            for how, members in (("alone", healthy), ("beside", clusters)):
                stage.clusters()
                began = time.monotonic()
                whole = look(chunk(members)).wall
                last = stage.clusters()["last"]
                took[how].append(max(last[cluster] for cluster in healthy) - began)
    ratios = sorted(b / a for a, b in zip(took["alone"], took["beside"], strict=True))
    figures.keep("hanging", wait=whole)
    print(
        f"  40 healthy clusters beside 5 that hang and 5 that answer garbage: their last request after "
        f"{statistics.median(ratios):.2f} x ({ratios[0]:.2f}-{ratios[-1]:.2f}) the time that they take alone, "
        f"{1000 * statistics.median(took['beside']):.0f} ms; the chunk ends after {whole:.1f} s"
    )
    stage.clusters(clusters=[*hanging, *garbage], incident="none")
    stage.aws(take="rebalance.fifo")


def hang(stage: Fleet, messages: Sequence[Object], hanging: int, number: int) -> list[str]:
    """Ten clusters in each of a few chunks hang for 15 minutes, on a clock that goes ahead: how often they are asked.

    The clusters: of them it is remembered that they do not answer.
    """
    chunks = messages[: max(1, hanging // 10)]
    members = [json.loads(message["body"])["clusters"] for message in chunks]
    dark = [cluster for clusters in members for cluster in clusters[: max(1, hanging // len(chunks))]]
    stage.clusters(clusters=dark, incident="hanging")
    asked: list[int] = []
    waiting: list[tuple[int, Object]] = []
    chunk_seconds: list[list[float]] = []
    runs = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pools = {}
        for name in ("check", "rebalance"):
            place = Path(folder) / name
            place.mkdir()
            (place / "real.py").write_text((ROOT / "functions" / name / "app.py").read_text())
            (place / "app.py").write_text(_LATER)
            pools[name] = stack.enter_context(workers(stage, name, number if name == "check" else 2, place))
        for now in range(0, 60 * _MINUTES + 1, 60):
            due = [message for at, message in waiting if at <= now]
            waiting = [(at, message) for at, message in waiting if at > now]
            stage.clusters()
            looked = pools["check"]([{**delivered([message]), "later": now} for message in [*chunks, *due]])
            chunk_seconds.append([sample.wall for sample in looked])
            counts = stage.clusters()["asked"]
            asked.append(sum(counts.get(cluster, 0) > 0 for cluster in dark))
            requests = stage.aws(take="rebalance.fifo")["messages"]
            runs += len(requests)
            pools["rebalance"]([{**delivered([one], "rebalance.fifo"), "later": now} for one in requests])
            waiting += [(now + one["delay"], one) for one in stage.aws(take="looks")["messages"]]
    times = sum(asked) / len(dark)
    after = [seconds for minute in chunk_seconds[1:2] for seconds in minute]
    figures.keep("hanging", asked=times, runs=runs / len(dark))
    print(
        f"  {len(dark)} that hang, in {len(chunks)} chunks: asked {times:.1f} times each in {_MINUTES} minutes "
        f"(a healthy one {_MINUTES + 1}), by minute {' '.join(map(str, asked))}; {runs / len(dark):.1f} runs each; "
        f"{sum(seconds > 5 for minute in chunk_seconds for seconds in minute)} invocations waited for them, "
        f"{sum(seconds > 5 for seconds in after)} of them in the second minute"
    )
    stage.clusters(clusters=dark, incident="none")
    return dark


def _ms(ordered: Sequence[float], part: float) -> str:
    return f"{1000 * ordered[int(part * (len(ordered) - 1))]:.0f} ms"


def _s(ordered: Sequence[float], part: float) -> str:
    return f"{ordered[int(part * (len(ordered) - 1))]:.1f} s"


def main(arguments: Sequence[str] = ()) -> None:
    """A minute, an outage, hanging clusters."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clusters", type=int, default=1_000)
    parser.add_argument("--outage", type=int, default=50)
    parser.add_argument("--hanging", type=int, default=20)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    chosen: Any = parser.parse_args(arguments)
    print(f"{chosen.clusters} clusters of {chosen.groups} groups, {chosen.workers} workers")
    names = [name_of(number) for number in range(chosen.clusters)]
    with fleet(0, chosen.groups) as stage:
        registered = 0
        for size in [*(size for size in _SCANS if size < len(names)), len(names)]:
            stage.register(names[registered:size])
            registered, messages = size, scan(stage, size)
        minute(stage, messages, chosen.clusters, chosen.workers)
        dark: list[str] = []
        if chosen.hanging:
            beside(stage, names[: sum(_MIXED)])
            dark = hang(stage, messages, chosen.hanging, 20)
        others = sorted(set(names) - set(dark))
        step = len(others) // chosen.outage
        outage(stage, others[: chosen.outage * step : step], chosen.workers)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
