"""What `status` of all clusters costs: the real action on the real store, and the lines that people read.

    python -m bench.overview [--clusters 1000] [--dark 200]

The table is ``bench.aws``, in a process of its own. Of the clusters so many do not answer, a twentieth as many miss
nodes, the others are well. No cluster can be opened: whoever tried would fail. What the function's cold start and the
way to it cost stands elsewhere (``bench.cold_start``).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from bench.counted import counted_store, counts_in_words
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.application.operate import Operate
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind, Notified
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel_cli.answers import print_answer

_ROUNDS = 7
_POOL = "cluster-api/prod/workers"


class _Nobody:
    """Clusters and queues that nobody may ask."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"status of all asked for {name}")


class _Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _verdict(number: int, dark: int, now: datetime) -> ClusterHealth:
    since = now - timedelta(minutes=34)
    unreachable = Incident(kind=IncidentKind.UNREACHABLE, since=since, said="it does not answer: not within 8 s")
    missing = Incident(
        kind=IncidentKind.MISSING,
        since=since,
        pool=_POOL,
        zones=("eu-central-1a",),
        groups=(f"{_POOL}-a",),
        missing=1 + number % 7,
        requested=30,
        running=23,
        failure_class=FailureClass.CAPACITY,
        said="InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity",
    )
    incident = unreachable if number < dark else missing
    told = Notified(kind=incident.kind, since=since, pool=incident.pool, missing=incident.missing, matter="0" * 16)
    return ClusterHealth(notified={incident.key: told}).with_incidents([incident])


def _fill(store: DynamoStore, clusters: int, dark: int, now: datetime) -> None:
    names = [f"cluster-{number:05}" for number in range(clusters)]
    for number, name in enumerate(names):
        access = {"kind": "eks", "name": name, "region": "eu-central-1"}
        record = ClusterRecord.model_validate({"id": name, "flavours": ["cluster-api"], "access": access})
        store.save_record(record, ControlRecord(), None)
        if number < dark + dark // 20:
            store.save_cluster_health(name, _verdict(number, dark, now), None)
    for start in range(0, clusters, 50):
        if seen := names[max(start, dark) : start + 50]:
            store.save_looked_at(seen, now)


def measure(clusters: int, dark: int, rounds: int = _ROUNDS) -> dict[str, Any]:
    """Milliseconds of each round, what was asked of the table in one, the size of the answer, and its lines."""
    with counted_store() as (store, asked):
        clock = _Clock()
        _fill(store, clusters, dark, clock.now())
        nobody: Any = _Nobody()
        operate = Operate(
            store=store, clusters=nobody, queue=nobody, clock=clock, random_bytes=os.urandom, dry_run=False
        )
        walls = []
        for _ in range(rounds):
            asked.clear()
            began = time.perf_counter()
            answer = operate({"action": "status"}, lambda: 60.0)
            quote = io.StringIO()
            print_answer(answer, Console(file=quote, width=80))
            walls.append((time.perf_counter() - began) * 1000)
    lines = quote.getvalue().splitlines()
    return {"ms": walls, "asked": dict(asked), "bytes": len(json.dumps(answer)), "lines": lines, "answer": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--dark", type=int, default=200)
    options = parser.parse_args()
    found = measure(options.clusters, options.dark)
    ms = found["ms"]
    print(
        f"status of {options.clusters} clusters, {options.dark} of them dark: "
        f"{min(ms):.0f} / {statistics.median(ms):.0f} / {max(ms):.0f} ms, with its {len(found['lines'])} lines; "
        f"{counts_in_words(found['asked'])}; {found['bytes']} bytes"
    )
    print("\n".join((found["lines"][0], found["lines"][-1])))


if __name__ == "__main__":
    main()
