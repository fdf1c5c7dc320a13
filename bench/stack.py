"""Benches of the built functions on ``bench.fleet``. Processor time is that of a function's process alone.

Figures compared take turns, so that a slow moment of the machine hits all of them. Quick checks are those of steady
clusters, full checks those of others. ``kept`` checks the same clusters with connections kept; ``met anew`` checks
each cluster for the first time. EventBridge, SQS and a message's delay are not part of any time.
"""

from __future__ import annotations

import json
import queue
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

from bench.fleet import Fleet, Function, Sample, chunk, delivered, failure, fleet
from bench.recorded import Object, name_of
from bench.rows import Rows, Samples
from evenkeel.domain.fleet.check_times import SECOND_CHECKS, is_full_check
from sandbox.template import ROOT

_MIB = 2**20


def _runs(stage: Fleet) -> list[Object]:
    """Take the requests for runs, as the events that deliver them."""
    return [delivered([message], "rebalance.fifo") for message in stage.aws(take="rebalance.fifo")["messages"]]


# --- quiet clusters


def quiet_check(
    flavour: str = "cluster-api",
    groups: tuple[int, ...] = (3, 30, 300, 3_000),
    chunk: tuple[int, ...] = (1, 50),
    rounds: int = 9,
) -> Rows:
    """Measure a check of a quiet cluster, by groups and by clusters of a chunk: processor time, memory, requests."""
    for size in groups:
        yield f"a check, {flavour}, by groups and clusters of a chunk"
        for clusters in chunk:
            if size * clusters <= 15_000:
                for way, samples in _quiet_samples(flavour, size, clusters, rounds).items():
                    cpu = [1000 * sample.cpu / clusters for sample in samples]
                    peak = max(sample.peak for sample in samples) / _MIB
                    yield f"{way} {size} {clusters}", {"cpu_ms": cpu, "peak_mib": peak}
        if size <= 300:
            yield "traffic of a check in a chunk of 50, with TLS; log of the chunk"
            yield from _traffic(flavour, size)


def _quiet_samples(flavour: str, groups: int, size: int, rounds: int) -> dict[str, list[Sample]]:
    """Return a sample of each way and round, without the first round, which creates the clients."""
    samples: dict[str, list[Sample]] = {}
    names = _names(2 * size * (rounds + 1))
    steady, others = names[::2], names[1::2]
    with ExitStack() as stack:
        stage = stack.enter_context(fleet(0, groups, flavour))
        stage.register(steady)
        stage.register(others, steady=False)
        ways = {
            f"{check} {way}": (stack.enter_context(stage.function("check")), clusters, way)
            for check, clusters in (("quick", steady), ("full", others))
            for way in ("kept", "met anew")
        }
        for turn in range(rounds + 1):
            for name, (function, clusters, way) in ways.items():
                first = turn * size if way == "met anew" else 0
                stage.clusters()
                sample = function(chunk(clusters[first : first + size]))
                _verify_checks(stage, name, size)
                if turn:
                    samples.setdefault(name, []).append(sample)
    return samples


def _names(number: int) -> list[str]:
    """Return clusters that are not due for a full check within ten minutes."""
    minutes = [datetime.now(UTC) + timedelta(minutes=minute) for minute in range(11)]
    names = (name_of(index) for index in count())
    return list(islice((name for name in names if not any(is_full_check(name, 60, at) for at in minutes)), number))


def _verify_checks(stage: Fleet, way: str, size: int) -> None:
    """Raise RuntimeError unless each cluster was checked once, as quick or full as said, and no run was requested."""
    requests = Counter(stage.clusters()["requests"].values())
    lists = 1 if way.startswith("quick") else 4  # a new connection adds a request for the served versions
    if requests.total() != size or len(set(requests) | {lists}) > 2 or not set(requests) <= {lists, lists + 1}:
        raise RuntimeError(f"{size} checks, {way}, made so many requests each: {dict(requests)}")
    if runs := _runs(stage):
        raise RuntimeError(f"{way}: checks requested runs: {runs}")


def _traffic(flavour: str, groups: int) -> Rows:
    names = _names(200)
    with fleet(0, groups, flavour, relayed=True) as stage, stage.function("check") as check:
        stage.register(names[:100])
        stage.register(names[100:], steady=False)
        check(chunk(names[50:100]))
        for kind, clusters in (("quick", names[:50]), ("full", names[100:150])):
            for way in ("met anew", "kept"):
                stage.aws(), stage.clusters()
                sample = check(chunk(clusters))
                aws, kubernetes = stage.aws(), stage.clusters()
                yield (
                    f"traffic {kind} {way} {groups}",
                    {
                        "requests": sum(kubernetes["methods"].values()) / 50,
                        "bytes_out": kubernetes["wire"]["out"] / 50,
                        "bytes_in": kubernetes["wire"]["in"] / 50,
                        "half_read_units": aws["half read units"] / 50,
                        "log_bytes": sample.log,
                    },
                )


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


def cold_start(pairs: int = 7) -> Rows:
    """Measure cold starts of each function, up to init and to its first answer, and ratios to a bare boto3 handler.

    The bare handler creates a DynamoDB client and sends one query. Each start follows one of the bare handler.
    """
    samples, ratios = Samples(), Samples()
    with tempfile.TemporaryDirectory() as folder, fleet(1, 3) as stage:
        (Path(folder) / "app.py").write_text(_BARE)
        for _ in range(pairs):
            for name, event in _first_events().items():
                bare, ours = _cold(stage, "bare", {}, Path(folder)), _cold(stage, name, event)
                samples.add("bare", **bare)
                samples.add(name, **ours)
                ratios.add(f"{name}, ratio", **{unit: value / bare[unit] for unit, value in ours.items()})
    yield from samples.items()
    yield "against the bare handler"
    yield from ratios.items()


def _first_events() -> dict[str, Object]:
    """Return the event of each function's first answer. The functions that read a cluster read a quiet one."""
    now, cluster = datetime.now(UTC).isoformat(), name_of(0)
    status = {"action": "status", "cluster": cluster}
    return {
        "scan": {"source": "evenkeel.schedule", "time": now},
        "check": chunk([cluster]),
        "rebalance": delivered(
            [{"body": json.dumps({"cluster": cluster, "reason": "bench"}), "group": cluster}], "r.fifo"
        ),
        "provisioning_failure": failure(cluster, {"name": "no-such-group", "namespace": "demo"}),
        "notify": json.loads((ROOT / "events" / "notify.json").read_text()),
        "admin": status,
        "operator": status,
        "widget": {"cluster": cluster, "widgetContext": {}},
        "status_page": {"source": "evenkeel.schedule", "time": now},
    }


def _cold(stage: Fleet, name: str, event: Object, folder: Path | None = None) -> dict[str, float]:
    """Start a function, and return its processor time, seconds and memory up to init and to its first answer."""
    stage.aws(), stage.clusters()
    with stage.function(name, folder, bare=folder is not None) as function:
        process = function.process
        init, init_cpu = process.init_seconds, process.cpu_seconds()
        answer = function(event)
        cpu = process.cpu_seconds()
    if stage.clusters()["patched"] or set(stage.aws()) == {"wire"}:
        raise RuntimeError(f"{name} wrote to a quiet cluster, or made no request: {answer.answer}")
    return {
        "init_cpu_ms": 1000 * init_cpu,
        "cpu_ms": 1000 * cpu,
        "init_ms": 1000 * init,
        "wall_ms": 1000 * (init + answer.wall),
        "peak_mib": answer.peak / _MIB,
    }


# --- an event in one cluster


def failure_to_patch(rounds: int = 9) -> Rows:
    """Measure from a failure event to the patches: `provisioning_failure`, its message, `rebalance`.

    The autoscaler has requested two machines of a zone that has none. Cold functions start for this event.
    """
    samples = Samples()
    names = ("provisioning_failure", "rebalance")
    with fleet(2 * rounds + 1, 3) as stage, ExitStack() as stack:
        warm = [stack.enter_context(stage.function(name)) for name in names]
        _to_patch(stage, name_of(2 * rounds), warm, cold=False)
        for turn in range(rounds):
            with ExitStack() as fresh:
                cold = (fresh.enter_context(stage.function(name)) for name in names)
                samples.add("cold", **_to_patch(stage, name_of(2 * turn), cold))
            samples.add("warm", **_to_patch(stage, name_of(2 * turn + 1), warm, cold=False))
    yield from samples.items()


def _to_patch(
    stage: Fleet, cluster: str, functions: Iterator[Function] | Sequence[Function], *, cold: bool = True
) -> dict[str, float]:
    """Return milliseconds: the processor's, and those to the first and last patch. An iterator starts functions."""
    groups = stage.clusters(clusters=[cluster], incident="outage", stuck=2)["groups"][cluster]
    name = next(name for name, _, requested, running, _ in groups if requested > running)
    cpu, began, events = 0.0, time.monotonic(), [failure(cluster, {"name": name, "namespace": "demo"})]
    for function in functions:
        sample = function(events[0])
        cpu += function.process.cpu_seconds() if cold else sample.cpu
        events = _runs(stage) or events
    patched = stage.clusters()["patched"][cluster]
    return {
        "cpu_ms": 1000 * cpu,
        "first_patch_ms": 1000 * (patched[0] - began),
        "last_patch_ms": 1000 * (patched[-1] - began),
        "patches": len(patched),
    }


_PENDING, _QUIET = 6, 19  # pods; other clusters of the chunk
_RECORD = {
    "flavours": ["cluster-api"],
    "dry_run": False,
    "autoscaler": "none",
    "demand": "scale-up",
    "workload": {"access": {"kind": "same"}},
}


def pods_to_machines(rounds: int = 9) -> Rows:
    """Measure from six pending pods to six machines in a cluster without an autoscaler, through warm functions.

    By event, ``FailedScheduling`` starts at `provisioning_failure`. By scan, `check` reads a chunk of twenty clusters;
    a scan comes once a minute, which is to be added.
    """
    samples = Samples()
    with fleet(2 * rounds + 2 + _QUIET, 3) as stage, ExitStack() as stack:
        quiet = [name_of(2 * rounds + 2 + number) for number in range(_QUIET)]
        names = ("provisioning_failure", "check", "rebalance", "admin")
        receive, check, rebalance, admin = (stack.enter_context(stage.function(name)) for name in names)
        for turn in range(-1, rounds):  # the first turn warms the functions
            by_event, by_scan = name_of(2 * turn + 2), name_of(2 * turn + 3)
            for cluster in (by_event, by_scan):
                record = {**_RECORD, "access": {"kind": "kubeconfig", "secret": f"evenkeel/{cluster}"}}
                answer = admin({"action": "register", "cluster": cluster, "record": record}).answer
                if not answer["ok"]:
                    raise RuntimeError(answer["message"])
            event = _to_machines(stage, by_event, receive, _failed_scheduling(by_event), rebalance)
            scan = _to_machines(stage, by_scan, check, chunk([*quiet, by_scan]), rebalance)
            if turn >= 0:
                samples.add("pods to machines event", **event)
                samples.add("pods to machines scan", **scan)
    yield from samples.items()


def _failed_scheduling(cluster: str) -> Object:
    path = ROOT / "events" / "provisioning-failure-kubernetes-pod.json"
    event: Object = json.loads(path.read_text(encoding="utf-8"))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    detail = {**event["detail"], "clusterName": cluster, "firstTimestamp": now, "lastTimestamp": now}
    return {**event, "id": cluster, "time": now, "detail": detail}


def _to_machines(stage: Fleet, cluster: str, first: Function, event: Object, rebalance: Function) -> dict[str, float]:
    groups = stage.clusters(clusters=[cluster], incident="pods", pending=_PENDING)["groups"][cluster]
    before = sum(requested for _, _, requested, _, _ in groups)
    stage.aws(take="rebalance.fifo")
    began = time.monotonic()
    received = first(event)
    (message,) = _runs(stage)
    run = rebalance(message)
    after = stage.clusters()
    ordered = sum(requested for _, _, requested, _, _ in after["groups"][cluster]) - before
    if ordered != _PENDING:
        raise RuntimeError(f"{ordered} nodes were ordered for {_PENDING} pods: {received.answer}, {run.answer}")
    return {"cpu_ms": 1000 * (received.cpu + run.cpu), "ms": 1000 * (after["patched"][cluster][-1] - began)}


# --- load

_MIXED = (5, 5, 40)  # clusters of a chunk that hang, that answer with garbage, that are healthy
_SCANS = (1, 40, 100, 1_000)
_ROUNDS, _MINUTES = 5, 15
# Functions whose clock is ahead by the seconds that the event names.
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


def load(
    clusters: int = 1_000, outage: int = 50, hanging: int = 20, groups: int = 3, workers: int = 2, stuck: int = 2
) -> Rows:
    """Measure scans, a minute of checks, clusters that hang, and an outage of a zone in many clusters at once."""
    names = [name_of(number) for number in range(clusters)]
    with fleet(0, groups) as stage:
        registered = 0
        for size in [*(size for size in _SCANS if size < clusters), clusters]:
            stage.register(names[registered:size])
            registered, messages = size, (yield from _scan(stage, size))
        yield from _minute(stage, messages, clusters, workers)
        hung: list[str] = []
        if hanging:
            yield from _hanging_neighbours(stage, names[: sum(_MIXED)])
            hung = yield from _hang(stage, messages, hanging, 20)
        others = sorted(set(names) - set(hung))
        step = len(others) // outage
        yield from _outage(stage, others[: outage * step : step], workers, stuck)


Workers = Callable[[Sequence[Object]], list[Sample]]


@contextmanager
def _workers(stage: Fleet, name: str, number: int, folder: Path | None = None) -> Iterator[Workers]:
    """Start so many processes of a function; yield a function that handles events with them."""
    with ExitStack() as stack:
        free: queue.SimpleQueue[Function] = queue.SimpleQueue()
        for _ in range(number):
            free.put(stack.enter_context(stage.function(name, folder)))

        def handle(event: Object) -> Sample:
            function = free.get()
            try:
                return function(event)
            finally:
                free.put(function)

        threads = stack.enter_context(ThreadPoolExecutor(number))
        yield lambda events: list(threads.map(handle, events))


def _scan(stage: Fleet, clusters: int) -> Iterator[tuple[str, dict[str, float | str]]]:
    """Measure one scan, cold and warm. Return the warm one's messages."""
    with stage.function("scan") as function:
        for how in (", cold", ""):
            stage.aws()
            tick = function({"source": "evenkeel.schedule", "time": datetime.now(UTC).isoformat()})
            used, messages = stage.aws(), stage.aws(take="checks")["messages"]
            checked = [cluster for message in messages for cluster in json.loads(message["body"])["clusters"]]
            if sorted(checked) != [name_of(number) for number in range(clusters)]:
                raise RuntimeError(f"the scan requested {len(checked)} checks for {clusters} clusters")
            delays = Counter(int(message["delay"]) // 10 for message in messages)
            yield (
                f"scan {clusters}{how}",
                {
                    "cpu": tick.cpu,
                    "wall": tick.wall,
                    "peak_mib": tick.peak / _MIB,
                    "queries": used["query"],
                    "half_read_units": used["half read units"],
                    "batches": used["send_message_batch"],
                    "chunks": len(messages),
                    "chunks in each ten seconds": ", ".join(str(delays[ten]) for ten in range(6)),
                },
            )
    return messages  # type: ignore[no-any-return]


def _minute(stage: Fleet, messages: Sequence[Object], clusters: int, number: int) -> Rows:
    with _workers(stage, "check", number) as check:
        stage.clusters(), stage.aws()
        began = time.monotonic()
        samples = check([delivered([message]) for message in messages])
        wall = time.monotonic() - began
    seen, used = stage.clusters(), stage.aws()
    if len(seen["requests"]) != clusters or seen["patched"]:
        raise RuntimeError(f"{len(seen['requests'])} of {clusters} clusters were checked")
    yield (
        f"minute {clusters}",
        {
            "cpu_ms": 1000 * sum(sample.cpu for sample in samples) / clusters,
            "chunk_cpu_s": [sample.cpu for sample in samples],
            "wall_s": wall,
            "peak_mib": max(sample.peak for sample in samples) / _MIB,
            "clusters": len(seen["requests"]),
            "requests": sum(seen["requests"].values()),
            "queries": used.get("query", 0),
            "secrets": used.get("get_secret_value", 0) / clusters,
            "runs": len(_runs(stage)),
        },
    )


def _outage(stage: Fleet, clusters: Sequence[str], number: int, stuck: int) -> Rows:
    """Measure an outage from the events to the patches of all clusters, and the runs that follow."""
    groups = stage.clusters(clusters=clusters, incident="outage", stuck=stuck)["groups"]
    dead = {cluster: next(group[0] for group in groups[cluster] if group[2] > group[3]) for cluster in clusters}
    events = [failure(cluster, {"name": name, "namespace": "demo"}) for cluster, name in dead.items()]
    with _workers(stage, "provisioning_failure", 1) as receive, _workers(stage, "rebalance", number) as rebalance:
        receive([failure("none", {"name": "none", "namespace": "demo"})])  # warms it
        stage.aws()
        began = time.monotonic()
        received = receive(events)
        runs = rebalance(_runs(stage))
        wall = time.monotonic() - began
        used, seen = stage.aws(), stage.clusters()
    following = _following(stage)
    _verify_outage(clusters, groups, seen)
    patched = {cluster: moments[0] for cluster, moments in seen["patched"].items()}
    event_wall = {sample.event["id"]: sample.wall for sample in received}
    begun = {sample.event["Records"][0]["attributes"]["MessageGroupId"]: sample.done - sample.wall for sample in runs}
    alone = sorted(1000 * (event_wall[cluster] + patched[cluster] - begun[cluster]) for cluster in clusters)
    since = sorted(moment - began for moment in patched.values())
    yield f"an outage in {len(clusters)} clusters"
    yield (
        "outage",
        {
            "events": len(received),
            "runs": len(runs),
            "patches": sum(map(len, seen["patched"].values())),
            "event_cpu_ms": 1000 * statistics.mean(sample.cpu for sample in received),
            "run_cpu_ms": 1000 * statistics.mean(sample.cpu for sample in runs),
            **following,
            "write_units": used["write units"] / len(clusters),
            "half_read_units": used["half read units"] / len(clusters),
            "log_bytes": statistics.mean(run.log + receipt.log for receipt, run in zip(received, runs, strict=True)),
            "first_patch_alone_ms": alone,
            "first_patch_alone_p99_ms": alone[int(0.99 * (len(alone) - 1))],
            "first_patch_s": since,
            "first_patch_p99_s": since[int(0.99 * (len(since) - 1))],
            "wall_s": wall,
        },
    )


def _following(stage: Fleet) -> dict[str, float]:
    """Let runs follow on a clock that runs ahead, and return the means of those without patches.

    After the first patches come two follow-up runs, further patches when machines have joined, and two more.
    """
    forwards: list[Sample] = []
    runs: list[Sample] = []
    now, units = 0, 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check, rebalance = (stack.enter_context(_workers_ahead(stage, name, folder)) for name in ("check", "rebalance"))
        for _ in range(2 * len(SECOND_CHECKS) + 1):
            while not (events := _runs(stage)):  # a long wait is several messages
                messages = stage.aws(take="checks")["messages"]
                now += messages[0]["delay"]
                stage.clusters(ahead=now)
                forwards += check([{**delivered([message]), "later": now} for message in messages])
            stage.aws()
            samples = rebalance([{**event, "later": now} for event in events])
            used = stage.aws()
            if not stage.clusters()["patched"]:
                runs += samples
                units += used["write units"]
    return {
        "following_cpu_ms": 1000 * statistics.mean(sample.cpu for sample in runs),
        "following_log_bytes": statistics.mean(sample.log for sample in runs),
        "following_write_units": units / len(runs),
        "forward_cpu_ms": 1000 * statistics.median(sample.cpu for sample in forwards),
    }


@contextmanager
def _workers_ahead(stage: Fleet, name: str, folder: Path, number: int = 1) -> Iterator[Workers]:
    """Start processes of a function whose clock is ahead by the seconds that each event names."""
    place = folder / name
    place.mkdir()
    (place / "real.py").write_text((ROOT / "functions" / name / "app.py").read_text())
    (place / "app.py").write_text(_LATER)
    with _workers(stage, name, number, place) as workers:
        yield workers


def _verify_outage(clusters: Sequence[str], before: Object, seen: Object) -> None:
    """Raise RuntimeError unless exactly these clusters were patched, kept their nodes and left the dead zone."""
    if sorted(seen["patched"]) != sorted(clusters):
        raise RuntimeError(f"{len(seen['patched'])} clusters were patched instead of {len(clusters)}")
    for cluster in clusters:
        requested = [sum(group[2] for group in groups[cluster]) for groups in (before, seen["groups"])]
        if requested[0] != requested[1]:
            raise RuntimeError(f"{cluster}: {requested[0]} nodes requested before, {requested[1]} after")
        if any(group[2] > group[3] and group[1].endswith("a") for group in seen["groups"][cluster]):
            raise RuntimeError(f"{cluster}: machines are still requested in the dead zone: {seen['groups'][cluster]}")


def _hanging_neighbours(stage: Fleet, clusters: Sequence[str]) -> Rows:
    """Measure healthy clusters in a chunk with hanging and broken ones, against the same clusters alone."""
    hangs, breaks, _ = _MIXED
    hanging, garbage, healthy = clusters[:hangs], clusters[hangs : hangs + breaks], clusters[hangs + breaks :]
    stage.clusters(clusters=hanging, incident="hanging")
    stage.clusters(clusters=garbage, incident="garbage")
    last: dict[str, list[float]] = {"alone": [], "mixed": []}
    with stage.function("check") as check:
        check(chunk(healthy))
        for _ in range(_ROUNDS):
            for how, members in (("alone", healthy), ("mixed", clusters)):
                stage.clusters()
                began = time.monotonic()
                sample = check(chunk(members))
                moments = stage.clusters()["last_request"]
                last[how].append(max(moments[cluster] for cluster in healthy) - began)
    yield "40 healthy clusters in a chunk with 5 that hang and 5 that answer garbage"
    ratios = [mixed / alone for alone, mixed in zip(last["alone"], last["mixed"], strict=True)]
    last_ms = [1000 * seconds for seconds in last["mixed"]]
    yield "hanging", {"last_request_ms": last_ms, "times_alone": ratios, "wait": sample.wall}
    stage.clusters(clusters=[*hanging, *garbage], incident="none")
    stage.aws(take="rebalance.fifo")


def _hang(stage: Fleet, messages: Sequence[Object], hanging: int, number: int) -> Iterator[str | tuple[str, Object]]:
    """Let ten clusters in each of a few chunks hang for 15 minutes, on a clock that runs ahead. Return them."""
    chunks = messages[: max(1, hanging // 10)]
    members = [json.loads(message["body"])["clusters"] for message in chunks]
    hung = [cluster for clusters in members for cluster in clusters[: max(1, hanging // len(chunks))]]
    stage.clusters(clusters=hung, incident="hanging")
    checked: list[int] = []
    waiting: list[tuple[int, Object]] = []
    slow: list[int] = []
    runs = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pools = {
            name: stack.enter_context(_workers_ahead(stage, name, Path(folder), size))
            for name, size in (("check", number), ("rebalance", 2))
        }
        for now in range(0, 60 * _MINUTES + 1, 60):
            due = [message for at, message in waiting if at <= now]
            waiting = [(at, message) for at, message in waiting if at > now]
            stage.clusters()
            samples = pools["check"]([{**delivered([message]), "later": now} for message in [*chunks, *due]])
            slow.append(sum(sample.wall > 5 for sample in samples))
            requests = stage.clusters()["requests"]
            checked.append(sum(requests.get(cluster, 0) > 0 for cluster in hung))
            events = _runs(stage)
            runs += len(events)
            pools["rebalance"]([{**event, "later": now} for event in events])
            waiting += [(now + message["delay"], message) for message in stage.aws(take="checks")["messages"]]
    yield f"{len(hung)} clusters that hang for {_MINUTES} minutes, in {len(chunks)} chunks"
    yield (
        "hanging",
        {
            "asked": sum(checked) / len(hung),
            "runs": runs / len(hung),
            "checked in each minute": " ".join(map(str, checked)),
            "checks that waited": sum(slow),
            "of them in the second minute": slow[1],
        },
    )
    stage.clusters(clusters=hung, incident="none")
    return hung
