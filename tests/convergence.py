"""A converging pool without an API. Machines boot and drain, and runs die between their patches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import ConvergenceState, ConvergePolicy
from evenkeel.domain.model.groups import Machine, MachineFailure, NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Node, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.domain.rebalancing.writes import in_safe_order
from evenkeel.texts.english import sentence
from tests.builders import NOW, group, numbers
from tests.parts import replace
from tests.workloads import node

SETTLED = 601


def convergence(minimum: int = 0, maximum: int = 60, **fields: object) -> Policy:
    """Return a policy with converge, which reads no pods and may move all nodes."""
    policy = numbers(minimum, maximum)
    desired_bounds = {
        "blind": True,
        **{name: fields.pop(name) for name in list(fields) if name in vars(ConvergePolicy())},
    }
    return replace(policy, **{"level": Level.CONVERGE, "converge": ConvergePolicy(**desired_bounds), **fields})


@dataclass
class PlayedPool:
    """Zones are a, b, c…. An ordered machine joins at the next ``boot``, a deleted one ends at the next ``drain``."""

    counts: Sequence[int]
    policy: Policy = field(default_factory=convergence)
    workload: Callable[["PlayedPool"], Workload] | None = None
    state: ClusterState = field(default_factory=ClusterState)
    now: datetime = NOW
    groups: dict[str, NodeGroup] = field(init=False)
    last: PoolPlan | None = field(init=False, default=None)
    made: int = field(init=False, default=0)
    #: the zone of each removed node, in order
    went: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.groups = {}
        for zone, count in zip("abcdefgh", self.counts, strict=False):
            self.groups[zone] = group(zone, count, machines=(), bounds=(0, count))
            for _ in range(count):
                self._make(zone, has_node=True, age=timedelta(days=2))

    @property
    def requested(self) -> tuple[int, ...]:
        return tuple(found.requested for found in self.groups.values())

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(found.running for found in self.groups.values())

    @property
    def memory(self) -> ConvergenceState:
        return next((pool.convergence for pool in self.state.pools.values()), ConvergenceState())

    def machines(self, zone: str) -> tuple[Machine, ...]:
        return self.groups[zone].machines or ()

    def bounds(self, zone: str) -> tuple[int, int]:
        return self.groups[zone].bounds.min, self.groups[zone].bounds.max

    @property
    def why(self) -> str:
        reported = self.last.convergence.report if self.last else None
        return sentence(reported.why) if reported is not None and reported.why is not None else ""

    def reasons(self, zone: str) -> str:
        (found,) = (each for each in self.last.groups if each.group.identity.zone == zone)
        return "; ".join(map(sentence, found.reasons))

    def change(self, zone: str, **fields: object) -> None:
        self.groups[zone] = replace(self.groups[zone], **fields)

    def scale(self, zone: str, replicas: int) -> None:
        self.change(zone, requested=replicas)
        self._reconcile(zone)

    def boot(self, *zones: str) -> None:
        for zone in zones or self.groups:
            self._put(zone, [replace(each, has_node=each.failure is None) for each in self.machines(zone)])

    def fail(self, zone: str) -> None:
        refused = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=self.now)
        self._put(zone, [each if each.has_node else replace(each, failure=refused) for each in self.machines(zone)])

    def drain(self, *zones: str) -> None:
        for zone in zones or self.groups:
            gone = [each for each in self.machines(zone) if each.deleting]
            self.went += [zone for each in gone if each.has_node]
            self._put(zone, [each for each in self.machines(zone) if not each.deleting])

    def live(self, minutes: int) -> None:
        """Check each minute while machines boot and drain."""
        for _ in range(minutes):
            self.check(60)
            self.boot()
            self.drain()

    def settled(self) -> "PlayedPool":
        """Return the pool after its first checks, which find that its zones have differed for long enough."""
        self.check()
        self.check(SETTLED)
        return self

    @property
    def going(self) -> set[str]:
        """Return the nodes that are drained."""
        return {each.name for zone in self.groups for each in self.machines(zone) if each.deleting and each.has_node}

    def nodes(self, **fields: Any) -> tuple[Node, ...]:
        """Return the nodes that stay."""
        return tuple(
            node(machine.name, zone, group=found.key, machine=machine, **fields)
            for zone, found in self.groups.items()
            for machine in self.machines(zone)
            if machine.has_node and not machine.deleting
        )

    def fences(self, zones: Mapping[str, datetime]) -> None:
        """Let an operator state the outages of exactly these zones."""
        self.state = replace(self.state, zones=zones)

    def check(self, seconds: float = 0, *, dies_after: int | None = None) -> PoolPlan:
        """Run after so many seconds. ``dies_after``: patches until the run dies; 0: it has only stored its plan."""
        self.now += timedelta(seconds=seconds)
        workload = self.workload(self) if self.workload else None
        observation = Observation(groups=tuple(self.groups.values()), workload=workload)
        found = plan(observation, self.state, self.policy, self.now)
        (pool,) = found.pools
        self.last = pool
        self.made += 1
        id = ulid(self.now, self.made.to_bytes(10))
        self.state = replace(self.state, groups={**self.state.groups, **found.states})
        self._remember(pool.id, opened(pool, id))
        writes = in_safe_order(pool.changes)
        for written in writes[:dies_after]:
            self._write(written, id)
        if dies_after is None or dies_after >= len(writes):
            self._remember(pool.id, closed(pool, self.state.pools[pool.id]))
        return pool

    def until_quiet(self, *, most: int = 400) -> None:
        """Run each minute without faults until nothing is left to do."""
        quiet = 0
        for _ in range(most):
            found = self.check(60)
            self.boot()
            self.drain()
            quiet = 0 if found.changes or self.memory.step or self._awaits() else quiet + 1
            if quiet >= 3:
                return
        raise AssertionError(f"{most} checks, and it still goes on: {self.requested} {self.memory}")

    def _awaits(self) -> bool:
        soon = self.last.convergence.report if self.last else None
        return (
            soon is not None and soon.why is not None and soon.why.rule.value in ("converge-settles", "converge-budget")
        )

    def _remember(self, id: PoolId, pool: PoolState) -> None:
        self.state = replace(self.state, pools={id: pool})

    def _write(self, written: GroupPlan, id: str) -> None:
        zone = str(written.group.identity.zone)
        before = self.groups[zone]
        assert 0 <= written.bounds.min <= written.requested <= written.bounds.max
        move = id if written.journal_delta and written.requested != before.requested else before.ours.move
        self.change(zone, bounds=written.bounds, requested=written.requested, move=move)
        self._reconcile(zone, {ref.name for ref in written.removal.machines})

    def _make(self, zone: str, *, has_node: bool = False, age: timedelta = timedelta(0)) -> None:
        self.made += 1
        name = f"{zone}-{self.made}"
        machine = Machine(name=name, uid=f"uid-{name}", has_node=has_node, created_at=self.now - age)
        self._put(zone, [*self.machines(zone), machine])

    def _put(self, zone: str, machines: Iterable[Machine]) -> None:
        listed = tuple(machines)
        running = sum(each.has_node and not each.deleting for each in listed)
        self.change(zone, machines=listed, running=running)

    def _reconcile(self, zone: str, first: Collection[str] = ()) -> None:
        """Match machines to replicas. ``first`` go first, then those without a node, the newest, and preserved ones
        last.
        """
        staying = [each for each in self.machines(zone) if not each.deleting]
        for _ in range(self.groups[zone].requested - len(staying)):
            self._make(zone)
        less = len(staying) - self.groups[zone].requested
        if less > 0:
            staying.sort(
                key=lambda each: (
                    each.preserved, each.name not in first, each.has_node, -each.created_at.timestamp()
                )
            )  # fmt: skip
            going = {each.name for each in staying[:less]}
            self._put(
                zone,
                [
                    replace(each, deleting=True, deleting_since=self.now) if each.name in going else each
                    for each in self.machines(zone)
                    if each.name not in going or each.has_node
                ],
            )
