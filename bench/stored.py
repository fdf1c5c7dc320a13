"""Benches of actions on all clusters: the real actions on the real store, whose table is ``bench.aws``."""

from __future__ import annotations

import io
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import botocore.session
from botocore.config import Config
from rich.console import Console

from bench.fleet import stand_in_for_aws
from bench.rows import Rows, timed
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.codec import pack
from evenkeel.adapters.thread_pool import run_in_threads
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.operate import Operate
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind, Notified
from evenkeel.domain.model.ulids import ulid
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.texts.english import rfc3339
from evenkeel_cli import stack_client
from evenkeel_cli.answers import print_answer
from tests.stack import RECORD, Stack

_INVOCATION = 60.0  # seconds
_TIMEOUT = 8.0  # seconds after which the Kubernetes client gives up
_POOL = "cluster-api/prod/workers"


@contextmanager
def _counted_store() -> Iterator[tuple[DynamoStore, Counter[str]]]:
    """Yield a store and the count of its requests, by operation."""
    requests: Counter[str] = Counter()
    with stand_in_for_aws() as url:
        access = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench", "region_name": "eu-central-1"}
        session, config = botocore.session.get_session(), Config(max_pool_connections=50)
        client = session.create_client("dynamodb", endpoint_url=url, config=config, **access)
        client.meta.events.register(
            "before-send.dynamodb", lambda event_name, **_: requests.update([event_name.rpartition(".")[2]])
        )
        yield DynamoStore(client, "bench"), requests


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _operate(store: DynamoStore, ports: Any = None) -> Operate:
    """Return the actions; without ports, an action that reads a cluster fails."""
    return Operate(
        store=store,
        clusters=ports,
        queue=ports,
        clock=SystemClock(),
        random_bytes=os.urandom,
        pack=pack,
        dry_run=False,
        together=run_in_threads,
    )


def status_of_all(clusters: int = 1_000, unreachable: int = 200, rounds: int = 7) -> Rows:
    """Measure `status` of all clusters with its printed lines. A twentieth as many as are unreachable miss nodes."""
    with _counted_store() as (store, requests):
        now = datetime.now(UTC)
        names = [f"cluster-{number:05}" for number in range(clusters)]
        for number, name in enumerate(names):
            access = {"kind": "eks", "name": name, "region": "eu-central-1"}
            record = ClusterRecord.model_validate({"id": name, "flavours": ["cluster-api"], "access": access})
            store.save_record(record, ControlRecord(), None)
            if number < unreachable + unreachable // 20:
                store.save_cluster_health(name, _health(number, now, reached=number >= unreachable), None)
        for start in range(0, clusters, 50):
            if checked := names[max(start, unreachable) : start + 50]:
                store.save_checked_at(checked, now)
        operate, walls = _operate(store), []
        for _ in range(rounds):
            requests.clear()
            with timed() as timer:
                answer = operate({"action": "status"}, lambda: _INVOCATION)
                output = io.StringIO()
                print_answer(answer, Console(file=output, width=80))
            walls.append(1000 * timer.wall)
    lines = output.getvalue().splitlines()
    yield (
        f"status of {clusters} clusters, {unreachable} unreachable",
        {
            "ms": walls,
            "requests": _words(requests),
            "bytes": len(json.dumps(answer)),
            "lines": len(lines),
            "widest": max(map(len, lines)),
            "last line": lines[-1],
        },
    )


def _health(number: int, now: datetime, *, reached: bool) -> ClusterHealth:
    since = now - timedelta(minutes=34)
    incident = Incident(kind=IncidentKind.UNREACHABLE, since=since, message="it does not answer: not within 8 s")
    if reached:
        incident = Incident(
            kind=IncidentKind.MISSING,
            since=since,
            pool=_POOL,
            zones=("eu-central-1a",),
            groups=(f"{_POOL}-a",),
            missing=1 + number % 7,
            requested=30,
            running=23,
            failure_class=FailureClass.CAPACITY,
            message="InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity",
        )
    notified = Notified(kind=incident.kind, since=since, pool=incident.pool, missing=incident.missing, matter="0" * 16)
    return ClusterHealth(notified={incident.key: notified}).with_incidents([incident])


def readiness_of_all(clusters: int = 1_000, decisions: int = 12) -> Rows:
    """Measure `readiness` of all clusters after a dry run of thirty days; a quarter of decisions is recent."""
    with _counted_store() as (store, requests):
        stack = Stack(dry_run=True)
        stack.rebalance("demo", "schedule", lambda: _INVOCATION)
        names = [f"cluster-{number:05}" for number in range(clusters)]
        run_in_threads([partial(_store_dry_run, store, stack, name, decisions) for name in names])
        requests.clear()
        with timed() as timer:
            answer = _operate(store)({"action": "readiness"}, lambda: _INVOCATION)
    states = Counter(cluster.get("state", "no answer") for cluster in answer["clusters"])
    figures = {"seconds": timer.wall, "cpu_s": timer.cpu, "states": _words(states), "left": len(answer["left"])}
    yield f"readiness of {clusters} clusters, {decisions} decisions each", {**figures, "requests": _words(requests)}


def _store_dry_run(store: DynamoStore, stack: Stack, name: str, decisions: int) -> None:
    ((pool, state),) = stack.state.pools.items()
    decision, now = stack.decisions()[0], datetime.now(UTC)
    store.save_record(ClusterRecord.model_validate({**RECORD, "id": name, "dry_run": True}), ControlRecord(), None)
    store.save_pool(name, pool, state, store.load(name).versions)
    for number in range(decisions):
        is_recent = number < max(1, decisions // 4)
        days = 3.1 * number / decisions if is_recent else 30 * (number + 0.9) / (decisions + 1)
        at = now - timedelta(days=days)
        key = ulid(at, os.urandom(10))
        stored = {**decision, "id": key, "at": rfc3339(at), "cluster": name}
        store.save_decision(name, key, stored, now.replace(year=2100))


class _Clusters:
    """Clusters that verify their rights after so many seconds; the first ``hanging`` ones never answer."""

    def __init__(self, seconds: float, hanging: int) -> None:
        self._seconds, self._hanging = seconds, hanging

    def request(self, *_: Any, **__: Any) -> None:
        """Take a request for a run, as SQS would."""

    def open(self, record: ClusterRecord, remaining: Remaining, **_: Any) -> Cluster:
        """Raise ClusterUnavailableError, always: a fence is stored before its cluster is read."""
        self.refused(record, remaining)
        raise ClusterUnavailableError(f"{record.id} does not answer")

    def refused(self, record: ClusterRecord, remaining: Remaining, **_: Any) -> Sequence[str]:
        """Return no missing right."""
        if int(record.id.rpartition("-")[2]) < self._hanging:
            time.sleep(min(_TIMEOUT, remaining()))
            raise ClusterUnavailableError(f"{record.id} does not answer: not within 8 s")
        time.sleep(self._seconds)
        return []


def actions_on_all(clusters: int = 1_000, milliseconds: float = 50.0, hanging: int = 0) -> Rows:
    """Measure apply, pause and fence-zone on all clusters, until no cluster is left, as the command line repeats them.

    A cluster answers after so many milliseconds; a hanging one uses all the time that it has.
    """
    access, zones = {"kind": "kubeconfig", "secret": "evenkeel/bench"}, ("euc1-az2", "euc1-az3", "euc1-az1")
    zone_ids = {zone: f"eu-central-1{letter}" for zone, letter in zip(zones, "abc", strict=True)}
    record = {"flavours": ["cluster-api"], "access": access, "zone_ids": zone_ids, "labels": {"env": "prod"}}
    records = {f"cluster-{number:05}": record for number in range(clusters)}
    fence = {"action": "fence-zone", "zone_id": "euc1-az2", "until": "2100-01-01T00:00:00+00:00", "all": True}
    events: dict[str, dict[str, Any]] = {
        "apply, listed and verified": {"action": "apply", "records": records, "list": True},
        "apply, not verified": {"action": "apply", "records": records, "verify": False},
        "apply, once more": {"action": "apply", "records": records},
        "fence-zone, listed": {**fence, "list": True},
        "fence-zone": fence,
        "pause": {"action": "pause", "for": "2h", "selector": "env=prod"},
    }
    with _counted_store() as (store, requests):
        operate = _operate(store, _Clusters(milliseconds / 1000, hanging))
        for name, event in events.items():
            requests.clear()
            yield name, {**_until_done(operate, event), "requests": _words(requests)}


def _until_done(operate: Operate, event: Mapping[str, Any]) -> dict[str, float]:
    """Perform an action as the command line does; return seconds, invocations and results."""
    figures: Counter[str] = Counter()

    def ask(_stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
        with timed() as timer:
            end = time.monotonic() + _INVOCATION
            answer = operate(event, lambda: end - time.monotonic())
        figures.update(seconds=timer.wall, invocations=1)  # type: ignore[arg-type]
        return answer

    fields = {name: value for name, value in event.items() if name != "action"}
    with patch.object(stack_client, "ask", ask):
        answer = stack_client.ask_of_all(event["action"], "bench", fields)
    done = [cluster for cluster in answer["clusters"] if cluster["cluster"] not in answer["left"]]
    succeeded = sum(cluster["ok"] for cluster in done)
    return {**figures, "ok": succeeded, "failed": len(done) - succeeded, "left": len(answer["left"])}
