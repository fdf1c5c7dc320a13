"""Evenkeel's writes to Auto Scaling groups: read, suspend, update, resume, terminate by name. Others write meanwhile.

The real use case runs over the real adapter, against a simulated API. Replicas move from a zone without machines
(`move`), or a node is removed on request (`give back`).
"""

import contextlib
import copy
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from botocore.exceptions import ReadTimeoutError

from evenkeel.application.errors import EvenkeelError
from evenkeel.state_records import ScaleRequestRecord
from sandbox.auto_scaling.clock import VirtualClock
from tests.auto_scaling_groups import ZONES, InProcess, SimulatedClock, Stage, tag
from tests.crashing import KilledError, Mortal
from tests.exhaustive.explore import Events
from tests.exhaustive.worker import BOUNDS, ENDS, MAXIMA, MOVES, NODES, TABLE, Worker, minute_of, normalized
from tests.fakes import FakeQueue
from tests.timed import worker

MAXIMUM = 8
STUCK = 2
READ = "describe_auto_scaling_groups"
#: possible events at a call, if they lead to another state there than at the calls around it
CHOICES = {
    READ: ("old read",),
    "create_or_update_tags": ("dies", "others order"),
    "suspend_processes": ("dies", "answer lost", "second worker"),
    "update_auto_scaling_group": ("dies", "answer lost", "others order", "owner writes"),
    "set_desired_capacity": ("dies", "answer lost", "others order"),
    "terminate_instance_in_auto_scaling_group": ("dies", "answer lost", "others order", "second worker"),
    "resume_processes": ("dies", "answer lost", "second worker"),
    "decisions.save": ("dies", "answer lost"),
    "table.take_lease": ("dies",),
    "table.save_pool": ("dies", "answer lost"),
    "table.give_back_lease": ("answer lost",),
    "queue.check_again": ("message repeated",),
}


class AutoScalingWrites:
    """Two groups with two instances each, a model for ``explore``."""

    def __init__(self, what: str) -> None:
        self.stage = Stage(autoscaler="none", on_failure="move", dry_run=False)
        put = self.stage.put_managed if what == "give back" else self.stage.put  # EKS drains its nodes
        names = [f"workers-{zone[-1]}" for zone in ZONES[:2]]
        self.names = [put(name, zone, 0, 2, 9) or name for name, zone in zip(names, ZONES, strict=False)]
        maximum = [tag(name, "evenkeel.dev/pool-max", str(MAXIMUM)) for name in self.names]
        self.stage.api.create_or_update_tags(Tags=maximum)
        self.stage.minutes(2)
        self.stage.settle()
        self.gone = int(what == "give back")  # how many instances may end
        if what == "give back":
            record = ScaleRequestRecord(id="r1", nodes=-1, pool="workers", at=self.stage.clock.now())
            self.stage.store.save_scale_request("demo", record, None)
        else:
            self.stage.refuse(ZONES[1])
            self.stage.api.set_desired_capacity(AutoScalingGroupName=self.names[1], DesiredCapacity=2 + STUCK)
            self.stage.minutes(3)
        self.requested = sum(self.stage.group(name).desired for name in self.names)
        self.expected = self.requested - self.gone
        self.running = self.in_service()
        self.steps: list[str] = []
        self.problems: list[str] = []
        self.is_calm = False
        self.ordered = 0  # by other writers
        self.happened = 0  # events
        self.wide = False  # the owner has written other bounds
        self.named = self.names[1]  # the group that Evenkeel's last call has named
        self.before_write: Any = None  # the groups as in a read from before the last write
        self.reads_are_old = False

    @property
    def others(self) -> dict[str, Callable[[], None]]:
        """Return other writers' acts by name."""
        return {"others order": self.orders, "owner writes": self.owner_writes, "old read": self.old_read}

    def again(self) -> Self:
        played = copy.copy(self)
        kept: dict[int, Any] = {id(VirtualClock.lock): VirtualClock.lock}
        stage, former = copy.copy(self.stage), self.stage
        stage.api, stage.eks, stage.store, stage.decisions, played.before_write = copy.deepcopy(
            (former.api, former.eks, former.store, former.decisions, self.before_write), kept
        )
        stage.clock = stage.store._clock = SimulatedClock(stage.api)
        stage.clusters = InProcess(stage.api, stage.eks)
        stage.clusters.decisions = stage.decisions
        played.stage, played.problems = stage, list(self.problems)
        return played

    def in_service(self) -> set[str]:
        groups = [self.stage.group(name) for name in self.names]
        return {one.id for group in groups for one in group.instances.values() if one.state == "InService"}

    # Possible events

    def choices(self, step: str) -> tuple[str, ...]:
        return CHOICES.get(step, ())

    def play(self, events: Events) -> None:
        happens = dict(events)
        life = Worker(happens, self.others, self.second_worker)
        self.happened += len(events)
        self.is_calm = False
        with contextlib.suppress(KilledError, EvenkeelError):
            outcome = self.run(life)
            self.is_calm = not (events or outcome.written or outcome.doubtful or outcome.conflicts or outcome.check_at)
        self.steps = life.steps
        if "message repeated" not in happens.values():
            self.stage.minutes(1.25)
            self.before_write = None  # no read is so stale
        self.check_moment("the run")
        if self.is_calm:
            self.check_calm()

    def run(self, life: Worker) -> Any:
        stage, table = self.stage, Mortal(self.stage.store, life, "table")
        wrap, wrap_store = stage.clusters.wrap, stage.clusters.wrap_store
        stage.clusters.wrap = lambda client: Client(client, life, self)
        stage.clusters.wrap_store = lambda store: Mortal(store, life, "decisions")
        try:
            queue = Mortal(FakeQueue(), life, "queue")
            return worker(table, stage.clusters, stage.clock, queue)("demo", "", minute_of(stage.clock))
        finally:
            stage.clusters.wrap, stage.clusters.wrap_store = wrap, wrap_store

    def second_worker(self) -> None:
        """End the lease of the worker that writes, and play a complete run of another one."""
        self.stage.minutes(1.02)
        self.run(Worker({}, {}, self.second_worker))

    def orders(self) -> None:
        """Order one node in a group as another writer, within the max that it reads."""
        group = self.stage.group(self.named)
        if group.desired < group.maximum:
            self.stage.api.set_desired_capacity(AutoScalingGroupName=self.named, DesiredCapacity=group.desired + 1)
            self.ordered += 1

    def owner_writes(self) -> None:
        """Write bounds as EKS or Terraform."""
        self.stage.api.update_auto_scaling_group(AutoScalingGroupName=self.named, MinSize=0, MaxSize=9)
        self.wide = True

    def old_read(self) -> None:
        """Let the next read show the groups from before the last write."""
        self.reads_are_old = True

    # The rules

    def check_moment(self, when: str) -> None:
        """Check the rules for every moment, after each call."""
        groups = [self.stage.group(name) for name in self.names]
        if len(self.running - self.in_service()) > self.gone:
            self.problems.append(f"{NODES} {self.running - self.in_service()} after {when}")
        if (total := sum(group.desired for group in groups)) > self.requested + self.ordered:
            self.problems.append(f"{MOVES} {total} are requested after {when}")
        if not self.wide and (maxima := sum(group.maximum for group in groups)) > MAXIMUM:
            self.problems.append(f"{MAXIMA} They are {maxima} after {when}")

    def check_calm(self) -> None:
        """Check the final state. AWS has no conditional writes: another's order at the moment of a write may be lost.

        With a further event, such an order may count as the announced move.
        """
        groups = [self.stage.group(name) for name in self.names]
        total = sum(group.desired for group in groups)
        least = self.expected - (STUCK if self.ordered and self.happened > 1 else 0)
        if not least <= total <= self.expected + self.ordered:
            self.problems.append(f"{MOVES} {total} are requested in the end")
        for group in groups:
            if not 0 <= group.minimum <= group.desired <= group.maximum:
                self.problems.append(f"{BOUNDS} {group.name}")
            if group.suspended or '"unfinished"' in self.stage.decision(group.name):
                self.problems.append(f"{ENDS} {group.name} is suspended or unfinished: {group.suspended}")
        state = self.stage.store.load("demo")
        if state.unfinished or any(pool.move is not None for pool in state.state.pools.values()):
            self.problems.append(f"{ENDS} A journal is open: {state.unfinished} {state.state.pools}")

    def key(self) -> str:
        """Return the state on which the next runs depend."""
        store, now = self.stage.store, self.stage.clock.now()
        lease = store._leases.get("demo")
        groups = [
            (vars(group) | {"instances": {id: vars(one) for id, one in group.instances.items()}})
            for group in map(self.stage.group, self.names)
        ]
        held = (lease.expires.isoformat() if lease and lease.expires > now else "", store._unfinished.get("demo"))
        decisions = [self.stage.decision(name) for name in self.names]
        items = [store.texts("demo"), held, groups, decisions, self.before_write, self.ordered, self.wide]
        return normalized(json.dumps(items, sort_keys=True, default=str), now)


class Client:
    """A client of AWS whose calls are steps of a worker. Other writers write the group that a call names."""

    def __init__(self, client: Any, life: Worker, world: AutoScalingWrites) -> None:
        self._client, self._life, self._world = client, life, world

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            self._world.named = request.get("AutoScalingGroupName") or self._world.named
            lost = partial(ReadTimeoutError, endpoint_url="https://autoscaling")
            answer = self._life.step(name, lambda: self._carry_out(name, request), lost)
            self._world.check_moment(name)
            return answer

        return call

    def _carry_out(self, name: str, request: dict[str, Any]) -> Any:
        world = self._world
        if not name.startswith("describe_"):
            if self._life.lease is None and name != "resume_processes":  # which ends the write of a dead worker
                world.problems.append(f"{TABLE} {name}")
            world.before_write = copy.deepcopy(world.stage.api.describe_auto_scaling_groups())
        answer = getattr(self._client, name)(**request)
        if name == READ and world.reads_are_old and world.before_write:
            found = {group["AutoScalingGroupName"]: group for group in world.before_write["AutoScalingGroups"]}
            old = [found[group["AutoScalingGroupName"]] for group in answer["AutoScalingGroups"]]
            answer = {**answer, "AutoScalingGroups": copy.deepcopy(old)}
        world.reads_are_old = False
        return answer
