"""From a tick of the schedule to one message per due cluster, and from a delayed second look to a message.

Nothing is written for this: which clusters are due follows from the tick's own time, the cluster's interval and its
id. A tick that arrives late or twice names the same clusters and the same deduplication ids.
"""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evenkeel.application.ports import Clock, Queue, Store

_log = logging.getLogger("evenkeel.scan")
_MINUTE = 60


def is_due(cluster: str, interval: int, tick: datetime) -> bool:
    """Whether a cluster with this interval (seconds) is looked at in this tick's minute. Clusters are spread evenly."""
    minutes = max(1, interval // _MINUTE)
    offset = int.from_bytes(hashlib.sha256(cluster.encode()).digest()[:4])
    return (int(tick.timestamp()) // _MINUTE + offset) % minutes == 0


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The clusters that a look was asked for, and why others could not be."""

    requested: tuple[str, ...]
    broken: tuple[str, ...]  # records that cannot be read, each with the reason

    def answer(self) -> dict[str, Any]:
        """For people who call the function by hand."""
        message = f"{len(self.requested)} clusters are looked at" + "".join(f"; {reason}" for reason in self.broken)
        return {"ok": not self.broken, "message": message, "clusters": list(self.requested)}


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Asks for a look at each cluster that is due."""

    store: Store
    queue: Queue
    clock: Clock

    def tick(self, at: datetime) -> ScanResult:
        """The schedule has fired for the minute of ``at``."""
        requested, broken = [], []
        for cluster, record in self.store.due():
            if isinstance(record, str):
                broken.append(record)
                _log.error("cluster cannot be scanned: %s", record, extra={"cluster": cluster})
            elif not record.control().is_paused(at) and is_due(cluster, record.scan_interval, at):
                minute = int(at.timestamp()) // _MINUTE
                self.queue.request(cluster, "scan", f"scan-{cluster}-{minute}")
                for delay in range(record.scan_interval, _MINUTE, record.scan_interval):
                    self.queue.look_again(cluster, "scan", delay)
                requested.append(cluster)
        return ScanResult(requested=tuple(requested), broken=tuple(broken))

    def by_hand(self, clusters: Iterable[str]) -> ScanResult:
        """Somebody asks for a look now, due or not. Without names: every registered cluster.

        Unknown names are reported as broken, nothing is sent for them.
        """
        registered = dict(self.store.due())
        names = list(clusters) or list(registered)
        at = self.clock.now()
        requested, broken = [], []
        for cluster in names:
            record = registered.get(cluster, f"cluster {cluster!r} is not registered")
            if isinstance(record, str):
                broken.append(record)
            else:
                self.queue.request(cluster, "scan by hand", f"hand-{cluster}-{at.timestamp()}")
                requested.append(cluster)
        return ScanResult(requested=tuple(requested), broken=tuple(broken))

    def look_again(self, cluster: str, reason: str, message_id: str) -> None:
        """A second look has come due: into the one queue that leads to the cluster."""
        self.queue.request(cluster, reason, f"again-{message_id}")
