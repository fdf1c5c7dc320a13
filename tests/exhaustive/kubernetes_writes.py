"""Evenkeel's writes to a cluster: journal and lease in the table, then patches in stages. Others write meanwhile.

The real use case runs over the real adapter, against a simulated API server. Replicas move from a zone without machines
to zones that have some, next to cluster-autoscaler.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from evenkeel.application.errors import EvenkeelError
from evenkeel.application.ports import Lease
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from sandbox.kube.api import Request
from tests.crashing import BUSY, DEAD, KilledError, Scene
from tests.crashing import FROZEN as PAUSED_ZONE
from tests.exhaustive.explore import Events
from tests.exhaustive.worker import ENDS, LEASE, MAXIMA, MOVES, TABLE, Worker, normalized

MAXIMUM = 12
#: possible events at a call of the table or of the queue, each with another resulting state
CHOICES = {
    "table.save_group": ("dies",),
    "table.take_lease": ("dies", "answer lost"),
    "table.save_pool": ("dies", "answer lost", "failure stored"),
    "table.give_back_lease": ("answer lost",),
    "queue.check_again": ("message repeated",),
}


class KubernetesWrites(Scene):
    """A pool of 10 replicas, of which two get no machine, a model for ``explore``."""

    def __init__(self, owner: str) -> None:
        self.watched = False
        super().__init__(owner, on_failure="move", autoscaler="cluster-autoscaler", maximum=MAXIMUM)
        self.steps: list[str] = []
        self.is_calm = False
        self.writers: dict[str, int] = {}  # path of an object -> the newest lease under which it was written
        self.watched = True
        self.others: dict[str, Callable[[], None]] = {
            "others write": self.others_write,
            "failure stored": self.failure_stored,
        }

    @property
    def problems(self) -> list[str]:
        return self.faults

    # Possible events

    def choices(self, step: str) -> tuple[str, ...]:
        if step.startswith("PATCH"):
            return ("dies",) if "/machines/" in step else ("dies", "answer lost", "others write", "second worker")
        return CHOICES.get(step, ())

    def play(self, events: Events) -> None:
        happens = dict(events)
        life = Writing(self, happens)
        self.is_calm = False
        with contextlib.suppress(KilledError, EvenkeelError):
            outcome = self.run(life)
            self.is_calm = not (events or outcome.written or outcome.doubtful or outcome.check_at)
        self.steps = life.steps
        if "message repeated" not in happens.values():
            self._pass(timedelta(seconds=75))
        if self.is_calm:
            self.check_calm()

    def second_worker(self) -> None:
        """End the lease of a worker, and play a complete run of another one."""
        self.clock.at += timedelta(seconds=61)
        self.run(Writing(self, {}))

    def others_write(self) -> None:
        """Edit one group as an operator, and order one node of another as cluster-autoscaler, within max."""
        self.change(DEAD, {"metadata": {"labels": {"edited": f"at {self.clock.at.timestamp():.0f}"}}})
        replicas, _, most = self.sizes()[BUSY]
        if replicas < most:
            self.scale(BUSY, replicas + 1)

    def failure_stored(self) -> None:
        """Store one more failure of the dead zone, as the function for failure events."""
        key = GroupKey(self.kind, self.namespace, self.name_of(DEAD))
        before = self.memory.load("demo").state.groups.get(key, GroupState())
        after = record_failure(before, self.clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
        self.memory.save_group("demo", key, after, self.memory.load("demo").versions)

    # The rules

    def _look_over(self, request: Request) -> None:
        """Check after each request: bounds that cluster-autoscaler can use, no replica twice, and no max too high."""
        super()._look_over(request)  # BOUNDS
        sizes = self.sizes()
        requested = sum(size[0] for size in sizes.values())
        maxima = sum(size[0] if zone == PAUSED_ZONE else size[2] for zone, size in sizes.items())
        if self.watched and requested > self.requested + self.scaled:
            self.faults.append(f"{MOVES} {requested} are requested after {request.path}")
        if self.watched and maxima > MAXIMUM:
            self.faults.append(f"{MAXIMA} They are {maxima} after {request.path}")

    def check_lease(self, step: str, lease: Lease | None, status: int) -> None:
        """Check after each patch: the worker held the lease, and no newer worker has written the object."""
        if lease is None:
            self.faults.append(f"{TABLE} {step}")
        elif status < 300:
            newest = self.writers.setdefault(step, lease.fencing_token)
            if newest > lease.fencing_token:
                self.faults.append(f"{LEASE} {step} by an old one")
            self.writers[step] = max(lease.fencing_token, newest)

    def check_calm(self) -> None:
        """Check the final state: no replica is lost, each node runs, and no journal or mark is left."""
        self.faults += self.wrong(self.expected + self.scaled)  # MOVES, NODES, BOUNDS, FROZEN, ENDS
        if self.marks():
            self.faults.append(f"{ENDS} Marks are left on {self.marks()}")
        if self.memory._leases["demo"].expires > self.clock.at:
            self.faults.append(f"{ENDS} The lease is held")

    # The state

    def key(self) -> str:
        """Return the state on which the next runs depend, without the history of decisions."""
        items = {
            kind: item.text for kind, item in self.memory._items["demo"].items() if not kind.startswith("DECISION")
        }
        lease = self.memory._leases["demo"]
        machines = [
            (name, item["metadata"].get("annotations"), item["metadata"].get("deletionTimestamp"), item["status"])
            for name, item in self.machines().items()
        ]
        groups = [(zone, self.sizes()[zone], self.annotations(zone)) for zone in self.zones]
        held = lease.expires.isoformat() if lease.expires > self.clock.at else ""
        text = json.dumps([items, held, machines, groups, self.scaled], sort_keys=True)
        return normalized(text, self.clock.at)


class Writing(Worker):
    """A worker whose patches are checked against its lease."""

    def __init__(self, world: KubernetesWrites, happens: Mapping[int, str]) -> None:
        super().__init__(happens, world.others, world.second_worker)
        self.world = world

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        late = self.lease is None or self.world.clock.at >= self.lease.expires

        def checked() -> Any:
            answer = call()
            if name.startswith("PATCH"):
                self.world.check_lease(name, None if late else self.lease, answer.status)
            return answer

        return super().step(name, checked, lost)
