"""What `readiness` of all clusters costs: the real action on the real store, side by side as in the function.

    python -m bench.ready [--clusters 1000] [--decisions 12]

The table is ``bench.aws``, in a process of its own. Each cluster has so many decisions of a dry run of thirty days,
a quarter of them within the last three. No cluster can be opened: whoever tried would fail.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from bench.counted import counted_store, counts_in_words
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.thread_pool import run_in_threads
from evenkeel.application.operate import Operate
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.model.ulids import ulid
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.texts.english import rfc3339
from tests.house import RECORD, House

_DAYS = 30


def _decided() -> tuple[House, dict[str, Any]]:
    """A cluster that was looked at in dry run, and what was decided for its pool."""
    house = House(dry_run=True)
    house.rebalance("demo", "schedule", lambda: 60.0)
    return house, house.decisions()[0]


def _fill(store: DynamoStore, names: list[str], decisions: int) -> None:
    house, decision = _decided()
    (id,) = house.state.pools
    (state,) = house.state.pools.values()
    now = SystemClock().now()

    def fill(name: str) -> None:
        record = ClusterRecord.model_validate({**RECORD, "id": name, "dry_run": True})
        store.save_record(record, ControlRecord(), None)
        store.save_pool(name, id, state, store.load(name).versions)
        for number in range(decisions):
            recent = number < max(1, decisions // 4)
            at = now - timedelta(days=3.1 * number / decisions if recent else _DAYS * (number + 0.9) / (decisions + 1))
            key = ulid(at, os.urandom(10))
            store.save_decision(
                name, key, {**decision, "id": key, "at": rfc3339(at), "cluster": name}, now.replace(year=2100)
            )

    run_in_threads([partial(fill, name) for name in names])


def measure(clusters: int, decisions: int) -> dict[str, Any]:
    """Seconds, of how many somebody said how ready they are, and what was asked of the table."""
    with counted_store() as (store, asked):
        _fill(store, [f"cluster-{number:05}" for number in range(clusters)], decisions)
        asked.clear()
        nobody: Any = None
        operate = Operate(
            store=store,
            clusters=nobody,
            queue=nobody,
            clock=SystemClock(),
            random_bytes=os.urandom,
            dry_run=False,
            together=run_in_threads,
        )
        began, cpu = time.perf_counter(), time.process_time()
        answer = operate({"action": "readiness"}, lambda: 60.0)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    states = Counter(found.get("state", "no answer") for found in answer["clusters"])
    return {"seconds": seconds, "cpu": cpu, "states": dict(states), "left": len(answer["left"]), "asked": dict(asked)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--decisions", type=int, default=12)
    options = parser.parse_args()
    found = measure(options.clusters, options.decisions)
    print(
        f"readiness of {options.clusters} clusters with {options.decisions} decisions each: {found['seconds']:.1f} s, "
        f"{found['cpu']:.1f} of them this process's; {counts_in_words(found['states'])}, {found['left']} left; "
        f"{counts_in_words(found['asked'])}"
    )


if __name__ == "__main__":
    main()
