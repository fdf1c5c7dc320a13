"""What an action on all clusters takes in one event: apply, pause and fence-zone on the real store, side by side.

    python -m bench.many [--clusters 1000] [--milliseconds 50] [--dark 0]

The table is ``bench.aws``, in a process of its own. A cluster that is tried takes so many milliseconds to answer;
dark ones take all the time that a cluster is given. An invocation has 60 s; what it leaves is asked for again, as the
command line does, and counted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.counted import counted_store, counts_in_words
from evenkeel.adapters.thread_pool import run_in_threads
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.operate import Operate
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.bootstrap import SystemClock
from evenkeel.record import ClusterRecord

_INVOCATION = 60.0
_PATIENCE = 8.0  # of the Kubernetes client, for a server that does not answer


class _Queue:
    """Takes every request."""

    def request(self, *_: Any, **__: Any) -> None:
        """As SQS would, without its milliseconds."""


class _Clusters:
    """Answers for its rights after so many seconds; those whose number is below ``dark`` hang."""

    def __init__(self, seconds: float, dark: int) -> None:
        self._seconds, self._dark = seconds, dark

    def open(self, record: ClusterRecord, remaining: Remaining, **_: Any) -> Cluster:
        """A fence is stored before its cluster is read, and holds although that does not answer."""
        self.refused(record, remaining)
        raise ClusterUnavailableError(f"{record.id} does not answer")

    def refused(self, record: ClusterRecord, remaining: Remaining, **_: Any) -> Sequence[str]:
        if int(record.id.rpartition("-")[2]) < self._dark:
            time.sleep(min(_PATIENCE, remaining()))
            raise ClusterUnavailableError(f"{record.id} does not answer: not within 8 s")
        time.sleep(self._seconds)
        return []


def _record(name: str) -> dict[str, Any]:
    access = {"kind": "kubeconfig", "secret": f"evenkeel/{name}"}
    zone_ids = {"euc1-az2": "eu-central-1a", "euc1-az3": "eu-central-1b", "euc1-az1": "eu-central-1c"}
    return {"flavours": ["cluster-api"], "access": access, "zone_ids": zone_ids, "labels": {"env": "prod"}}


def _asked(operate: Operate, event: Mapping[str, Any]) -> dict[str, Any]:
    """Until nothing is left: the seconds, the invocations, and what became of the clusters."""
    given, seconds, ok, failed, invocations = dict(event), 0.0, 0, 0, 0
    while True:
        began = time.perf_counter()
        answer = operate(given, lambda began=began: _INVOCATION - (time.perf_counter() - began))  # type: ignore[misc]
        seconds, invocations = seconds + time.perf_counter() - began, invocations + 1
        left = answer["left"]
        done = [found for found in answer["clusters"] if found["cluster"] not in left]
        ok, failed = ok + sum(found["ok"] for found in done), failed + sum(not found["ok"] for found in done)
        if not left or not done:
            return {"seconds": seconds, "invocations": invocations, "ok": ok, "failed": failed, "left": len(left)}
        if "records" in given:
            given["records"] = {id: given["records"][id] for id in left}
        else:
            given = {name: value for name, value in given.items() if name not in ("all", "selector")}
            given["clusters"] = left


def measure(clusters: int, milliseconds: float, dark: int) -> dict[str, dict[str, Any]]:
    """By action, what it took; with what was asked of the table."""
    with counted_store() as (store, asked):
        queue: Any = _Queue()
        reached: Any = _Clusters(milliseconds / 1000, dark)
        operate = Operate(
            store=store,
            clusters=reached,
            queue=queue,
            clock=SystemClock(),
            random_bytes=os.urandom,
            dry_run=False,
            together=run_in_threads,
        )
        records = {name: _record(name) for name in (f"cluster-{number:05}" for number in range(clusters))}
        end = datetime.now(UTC).replace(year=2100).isoformat()
        events: dict[str, dict[str, Any]] = {
            "apply, listed and verified": {"action": "apply", "records": records, "list": True},
            "apply, not verified": {"action": "apply", "records": records, "verify": False},
            "apply, once more": {"action": "apply", "records": records},
            "fence-zone, listed": {
                "action": "fence-zone",
                "zone_id": "euc1-az2",
                "until": end,
                "all": True,
                "list": True,
            },
            "fence-zone": {"action": "fence-zone", "zone_id": "euc1-az2", "until": end, "all": True},
            "pause": {"action": "pause", "for": "2h", "selector": "env=prod"},
        }
        found = {}
        for name, event in events.items():
            asked.clear()
            found[name] = {**_asked(operate, event), "asked": dict(asked)}
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--milliseconds", type=float, default=50)
    parser.add_argument("--dark", type=int, default=0)
    options = parser.parse_args()
    for name, found in measure(options.clusters, options.milliseconds, options.dark).items():
        print(
            f"{name}: {found['seconds']:.1f} s in {found['invocations']} invocations: {found['ok']} done, "
            f"{found['failed']} refused, {found['left']} left; {counts_in_words(found['asked'])}"
        )


if __name__ == "__main__":
    main()
