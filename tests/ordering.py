"""A small cluster without an autoscaler: pending pods, a scheduler, machines that take time, and our worker."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.demand.requests import CPU
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import ZONE, Node, Pod, Workload
from evenkeel.state_records import ScaleRequestRecord
from tests.builders import group
from tests.crashing import KilledError, Life, Mortal
from tests.fakes import FakeBus, FakeClock, FakeCluster, FakeQueue, InMemoryStore, plenty, register
from tests.parts import replace
from tests.timed import worker
from tests.workloads import node, pod, template

SCALE_UP: dict[str, Any] = {
    "demand": "scale-up",
    "autoscaler": "none",
    "workload": {"access": {"kind": "same"}},
    "dry_run": False,
}
LOOK = timedelta(seconds=15)


class Town:
    """One pool of so many zones, whose machines become nodes so many looks after they were asked for.

    Its nodes at the beginning are full. ``dead`` zones give no machines. ``instances``: its groups are pools of
    instances, of which one is launched when its node comes. Further fields are the record's.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        *,
        nodes: Sequence[int] = (1, 1, 1),
        maximum: int = 30,
        takes: int = 2,
        instances: bool = False,
        **fields: Any,
    ) -> None:
        self.clock, self.queue, self.bus, self.store = FakeClock(), FakeQueue(), FakeBus(), InMemoryStore()
        self.maximum, self.takes, self.dead = maximum, takes, set[str]()
        groups = [
            group("abcdefgh"[i], count, template=template(), launched=count if instances else None)
            for i, count in enumerate(nodes)
        ]
        self.cluster = FakeCluster(groups)
        pools = [{"name": "workers", "min": 0, "max": maximum}]
        register(self.store, **{**SCALE_UP, "pools": pools, **fields})
        self.waiting = list(pods)
        self.nodes = {
            f"old-{g.identity.zone}-{i}": self._node(f"old-{g.identity.zone}-{i}", g.key)
            for g in groups
            for i in range(g.running)
        }
        self.standing = {name: [_filler(name)] for name in self.nodes}
        self.coming: list[tuple[datetime, GroupKey]] = []
        self.ordered: dict[str, int] = {}  # nodes by zone, as patches have asked for them
        self.runs: list[int] = []  # nodes that each run has added
        self.faults: list[str] = []
        self.unread: Exception | None = None

    def _node(self, name: str, group: GroupKey) -> Node:
        return node(name, group.name[-1], group=group, created_at=self.clock.now())

    def run(self, life: Life | None = None) -> RunSummary | None:
        """One run; None: it died, or its message goes back to the queue."""
        made = mortal_worker(self, life or Life(), {"observe", "apply"})
        before = {g.key: g.requested for g in self.cluster.groups.values()}
        try:
            with contextlib.suppress(KilledError, EvenkeelError):
                return made("demo", "a test", plenty)
            self.clock.at += timedelta(seconds=75)  # until its lease has ended
            return None
        finally:
            self._count(before)

    @property
    def requested(self) -> int:
        return sum(group.requested for group in self.cluster.groups.values())

    def request(self, id: str, nodes: int, only: tuple[str, ...] = ()) -> None:
        record = ScaleRequestRecord(id=id, nodes=nodes, pool="workers", only=only, at=self.clock.at)
        self.store.save_scale_request("demo", record, None)

    @property
    def requests(self) -> dict[str, ScaleRequestRecord]:
        return dict(self.store.load("demo").scale_requests)

    @property
    def has_open_move(self) -> bool:
        return any(pool.move is not None for pool in self.store.load("demo").state.pools.values())

    def _count(self, before: Mapping[GroupKey, int]) -> None:
        self.runs.append(self.requested - sum(before.values()))
        for each in self.cluster.groups.values():
            more = each.requested - before[each.key]
            if more > 0:
                self.coming += [(self.clock.at + self.takes * LOOK, each.key)] * more
                self.ordered[each.identity.zone or ""] = self.ordered.get(each.identity.zone or "", 0) + more
        if self.requested > self.maximum:
            self.faults.append(f"{self.requested} requested, at most {self.maximum}")

    def workload(self) -> Workload:
        if self.unread is not None:
            raise self.unread
        standing = [
            replace(pod, node=name, unscheduled=None, phase="Running")
            for name, pods in self.standing.items()
            for pod in pods
        ]
        return Workload(pods=(*self.waiting, *standing), nodes=tuple(self.nodes.values()))

    def pass_time(self, time: timedelta = LOOK) -> None:
        """Machines that are due become nodes, and pods are bound."""
        self.clock.at += time
        due = [each for each in self.coming if each[0] <= self.clock.at and each[1].name[-1] not in self.dead]
        self.coming = [each for each in self.coming if each not in due]
        for _, made in due:
            name = f"new-{made.name[-1]}-{len(self.nodes)}"
            self.nodes[name] = self._node(name, made)
            self.standing[name] = []
            there = self.cluster.groups[made].running + 1
            launched = None if self.cluster.groups[made].status.launched is None else there
            self.cluster.change(made, running=there, launched=launched)
        self.bind()

    def bind(self) -> None:
        for each in list(self.waiting):
            for name, there in self.nodes.items():
                zone = each.needs.node_selector.get(ZONE, there.labels[ZONE])
                if (
                    zone == there.labels[ZONE]
                    and sum(map(_cpu, [*self.standing[name], each])) <= there.allocatable[CPU]
                ):
                    self.standing[name].append(each)
                    self.waiting.remove(each)
                    break

    def live(self, looks: int) -> int:
        for number in range(looks):
            self.run()
            self.pass_time()
            if not self.waiting:
                return number + 1
        return looks + 1


def _cpu(pod: Pod) -> Any:
    return sum(each.requests.get(CPU, 0) for each in pod.needs.resources.containers)


def _filler(name: str) -> Pod:
    return pod(f"on-{name}", cpu="4", memory="1Gi", node=name)


class Opened:
    """Opens the one cluster of a world and its workload. ``steps``: the calls at which its life may end."""

    def __init__(self, world: Any, life: Life, steps: set[str]) -> None:
        self._world, self._life, self._steps = world, life, steps

    def open(self, *_: object, **__: object) -> Any:
        return Mortal(self._world.cluster, self._life, "api", ClusterUnavailableError, only=self._steps)

    def open_workload(self, *_: object, **__: object) -> Any:
        return Mortal(self, self._life, "workload", ClusterUnavailableError)

    def read(self, machines: object, *, judges_nodes: bool) -> Workload:
        workload: Workload = self._world.workload()
        return workload


def mortal_worker(world: Any, life: Life, steps: set[str]) -> Rebalance:
    """The worker of a world with a store, a queue, a bus, a clock and one cluster; its run may die at any call."""
    return worker(
        Mortal(world.store, life, "table"),
        Opened(world, life, steps),
        world.clock,
        Mortal(world.queue, life, "queue"),
        bus=world.bus,
    )
