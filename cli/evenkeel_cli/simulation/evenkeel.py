"""Evenkeel in a simulation: the deployed use case with simulated node groups, and dictionaries instead of a table.

A check and its patches take no time. Annotations that one check writes are read by the next, as on real objects.
"""

# ruff: noqa: ARG002  ports receive arguments that a simulation does not need

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast

from evenkeel.access_config import AutoScalingAccess, KubeconfigAccess, SameAccess, WorkloadEntry
from evenkeel.application.ports import (
    Bus,
    Clock,
    Lease,
    Queue,
    Remaining,
    StoredCluster,
    Versions,
)
from evenkeel.application.rebalancing.ports import Clusters, Others, WorkloadCluster
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.domain.fleet.check_times import Timer
from evenkeel.domain.model.choices import DemandStage, Strategy
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, MachineFailure, NodeGroup, PoolId, State
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.rebalancing.health.backoff import record_failure, state_at
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord, ControlRecord, PoolEntry
from evenkeel_cli.simulation.scenario import Leaving, Scenario
from evenkeel_cli.simulation.workload_view import WorkloadView
from evenkeel_cli.simulation.world import Group, World

CLUSTER = "simulated"
# Fields that are copied from the scenario to the record, and from the scenario's pools to the record's pools.
_RECORD_FIELDS = ("converge", "expander", "expander_order", "max_step", "provision_timeout")
_POOL_FIELDS = ("name", "min", "max", "on_failure", "level", "fallback_for", "minimum_at")
# Methods of ports that have no effect in a simulation, with their return values.
_NO_EFFECT: Mapping[str, Any] = {
    **dict.fromkeys(("save_scale_request", "save_unreachable", "save_checked_at", "save_steady", "forget")),
    **dict.fromkeys(("give_back_lease", "write_pool_maximum", "write_owner_numbers")),
    **dict.fromkeys(("emit_event", "request", "request_checks", "sleep")),
    "seen": {},
    "shows": False,
    "show_status": False,
    "unfinished": (),
    "publish": True,
}
_PLENTY = 60.0  # the remaining time of a run in seconds, which never falls
_LONGEST_REST = 15 * 60  # seconds between two checks; the deployed scan checks a steady cluster as often


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision that a run stored for a pool."""

    at: int
    pool: str
    reasons: tuple[str, ...]


def record_of(scenario: Scenario, strategy: Strategy | None, *, autoscaler: bool, demand: DemandStage) -> ClusterRecord:
    """Return the cluster's record. If ``strategy`` is given, it replaces the strategy of every pool."""
    setup, is_aws = scenario.evenkeel, scenario.flavour == AUTO_SCALING
    of_cluster = KubeconfigAccess(kind="kubeconfig", secret=CLUSTER)
    of_aws = AutoScalingAccess(kind="auto-scaling", region="eu-central-1")
    workload = WorkloadEntry(access=of_cluster if is_aws else SameAccess(kind="same"))
    return ClusterRecord(
        id=CLUSTER,
        flavours=(scenario.flavour,),
        access=of_aws if is_aws else of_cluster,
        dry_run=False,
        autoscaler="cluster-autoscaler" if autoscaler else "none",
        autoscaler_loop=scenario.autoscaler.loop,
        demand=demand,
        workload=workload if scenario.pods else None,
        pools=tuple(
            PoolEntry(**{name: getattr(pool, name) for name in _POOL_FIELDS}, strategy=strategy or pool.strategy)
            for pool in scenario.pools
        ),
        **{name: getattr(setup, name) for name in _RECORD_FIELDS},
    )


class _Port:
    """A port of the use case. If a subclass does not define a method of ``_NO_EFFECT``, the method has no effect."""

    def __getattr__(self, name: str) -> Any:
        if name not in _NO_EFFECT:
            raise AttributeError(name)
        return lambda *_, **__: _NO_EFFECT[name]


@dataclass
class Table(_Port):
    """The table of a cluster. Only one run is active at a time, so writes never conflict."""

    record: ClusterRecord
    world: World
    groups: dict[GroupKey, GroupState] = field(default_factory=dict)
    pools: dict[PoolId, PoolState] = field(default_factory=dict)
    zones: dict[str, datetime] = field(default_factory=dict)
    leave: Leave | None = None  # the zone that an operator leaves
    timer: Timer | None = None
    health: ClusterHealth = field(default_factory=ClusterHealth)
    decisions: list[Decision] = field(default_factory=list)
    moved: int = 0  # the number of nodes that converge removed after their replacements ran

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        state = ClusterState(groups={**self.groups}, pools={**self.pools}, zones={**self.zones})
        return StoredCluster(
            record=self.record,
            control=ControlRecord(leave=self.leave),
            state=state,
            zones={},
            scale_requests={},
            versions=Versions(),
            fencing_token=0,
            timer=self.timer,
            cluster_health=self.health,
        )

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        self.record = record

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        self.groups[key] = state

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        before, after = self.pools.get(pool, PoolState()).convergence.last_drain, state.convergence.last_drain
        self.moved += after is not None and (before is None or after.at != before.at)
        self.pools[pool] = state

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        self.health = cluster_health

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        return self.health, Versions()

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        self.timer = timer

    def take_lease(
        self,
        cluster: str,
        owner: str,
        seen_token: int,
        now: datetime,
        expires: datetime,
        writes: Collection[str] = (),
    ) -> Lease:
        return Lease(owner=owner, fencing_token=seen_token + 1, expires=expires)

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        pool = decision["pool"]
        reasons = [
            f"{group['zone']}: {'; '.join(group['reasons'])}"
            for group in pool["groups"]
            if group["result"] == Result.WRITTEN
        ]
        self.decisions.append(Decision(at=self.world.now, pool=pool["name"], reasons=(*pool["problems"], *reasons)))


@dataclass
class _Cluster(_Port):
    """The simulated cluster, as a run reads and writes it."""

    others: ClassVar[Mapping[type[Any], Others]] = {}
    world: World
    groups: dict[GroupKey, Group]

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        groups, chosen = self.world.groups, frozenset(reads_machines)
        return Observation(
            groups=tuple(self.world.observe(group, reads_machines=group.key in chosen) for group in groups)
        )

    def nodes(self) -> Mapping[str, MachineNode]:
        leaving = {
            name: MachineNode(group=group.key, machine=machine, deleting=True)
            for name, (group, machine) in self.world.leaving.items()
        }
        staying = {
            machine.name: MachineNode(group=group.key, machine=self.world.seen(machine))
            for group in self.world.groups
            for machine in group.nodes()
        }
        return {**staying, **leaving}

    def turn_of(self, key: GroupKey) -> str:
        return str(key)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        group, plan = self.groups[patch.plan.group.key], patch.plan
        if plan.removal.machines:
            return tuple(machine.name for machine in plan.removal.machines)
        return deletion_candidates(
            self.world.machines_of(group),
            patch.requested or 0,
            may_remove_running=plan.removal.may_remove_running,
            keeps=plan.removal.keeps,
            provision_timeout=plan.provision_timeout,
            now=self.world.time,
        )

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        self.groups[patch.plan.group.key].marked = frozenset(names)

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> None:
        self.groups[group.key].marked = frozenset()

    def confirm(self, groups: Collection[GroupKey]) -> None:
        pass

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        group = self.groups[patch.plan.group.key]
        group.decision = decision
        if patch.requested is not None:
            group.move = move or group.move
            self.world.resize(group, patch.requested)
        if patch.bounds is not None:
            group.bounds = patch.bounds
            group.adopted = group.adopted or adopted
            if group.is_auto_scaling:  # Auto Scaling keeps the desired capacity within the bounds
                self.world.resize(group, min(max(group.requested, group.bounds.min), group.bounds.max))


class Evenkeel(_Port):
    """The deployed use case on simulated ports. ``check_again`` requests a check after the given seconds."""

    def __init__(
        self,
        world: World,
        record: ClusterRecord,
        check_again: Callable[[int], None],
        state: ClusterState | None = None,
    ) -> None:
        self.patches = 0
        self._world = world
        self.table = Table(record, world)
        if state is not None:
            self.table.groups |= state.groups
            self.table.pools |= state.pools
            self.table.zones |= state.zones
        self._backoff = record.policy().settings.backoff
        scenario = world.scenario
        has_windows = bool(scenario.evenkeel.converge.windows)
        self._follows_clock = has_windows or any(pool.minimum_at for pool in scenario.pools)
        self._checked: tuple[int, Sequence[object]] = (-_LONGEST_REST, ())  # the last check: second and facts
        self._groups = {group.key: group for group in world.groups}
        self._check_again = check_again
        self._rebalance = Rebalance(
            store=cast("Any", self.table),
            clusters=cast("Clusters", self),
            queue=cast("Queue", self),
            bus=cast("Bus", self),
            clock=cast("Clock", self),
            random_bytes=random.Random(f"{world.scenario.seed}/ids").randbytes,
            dry_run=False,
        )

    def record_failure(self, group: Group, failure: MachineFailure) -> None:
        """Store a failure event."""
        state, now = self.table.groups.get(group.key, GroupState()), self._world.time
        text = f"{failure.code}: {failure.message}"
        self.table.groups[group.key] = record_failure(
            state, failure.at or now, class_of(failure), text, self._backoff, now=now
        )

    def fence_zone(self, zone: str, until: int) -> None:
        """Fence a zone until a second, as an operator does."""
        self.table.zones[zone] = self._world.moment(until)

    def leave_zone(self, leaving: Leaving) -> None:
        """Leave a zone until a second, as an operator does."""
        self.table.leave = Leave(
            zone=leaving.zone,
            at=self._world.time,
            pool=leaving.pool or "",
            per_hour=leaving.per_hour,
            until=self._world.moment(leaving.until),
        )

    def repeats(self) -> bool:
        """Return True if a check now would read what the last one read, so that a scan may be skipped.

        Not skipped: a scan while a replica has no node, in the second of a requested check, or 15 minutes after the
        last check. For each end that ``_facts`` does not name, the last check has requested a check.
        """
        at, facts = self._checked
        timer, now = self.table.timer, self._world.time
        return (
            not self._follows_clock
            and self._world.now < at + _LONGEST_REST
            and self._has_all_nodes()
            and (timer is None or timer.due < now or now + timedelta(seconds=1) < timer.due)
            and facts == self._facts()
        )

    def _has_all_nodes(self) -> bool:
        return all(group.requested == group.running for group in self._world.groups)

    def _facts(self) -> Sequence[object]:
        """Return what a check reads, and what time has ended: a backoff, or the memory of a failure."""
        world, table = self._world, self.table
        return (
            [{**vars(group), "machines": [*group.machines]} for group in world.groups],
            None if world.pods is None else world.pods.version,
            [*world.leaving],
            {**table.groups},
            {**table.pools},
            {**table.zones},
            table.leave,
            [self._effect_of_failures(state) for state in table.groups.values()],
        )

    def _effect_of_failures(self, state: GroupState) -> tuple[State, bool]:
        failed, now = state.failure.last_failure, self._world.time
        return state_at(state, now, self._backoff), failed is None or self._backoff.is_forgotten(failed, now)

    def check(self) -> None:
        """Perform one run."""
        # These are the facts before the run: if the run changes them, the next scan is a check, too. A check with a
        # missing node keeps none, so that the first scan after the node has joined is a check.
        self._checked = self._world.now, self._facts() if self._has_all_nodes() else ()
        summary = self._rebalance(self.table.record.id, "a simulated check", lambda: _PLENTY)
        if summary.plan is None:
            raise RuntimeError(summary.message)
        if summary.plan.demand is not None and summary.plan.demand.unread is not None:
            raise RuntimeError(f"{self.table.record.id}: {summary.plan.demand.unread}")
        for pool in summary.plan.pools:
            for plan in pool.groups:
                self._groups[plan.group.key].state = plan.state
        self.patches += summary.written
        self._world.changed = True

    # Ports

    def now(self) -> datetime:
        """Return the simulated time in UTC."""
        return self._world.time

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> _Cluster:
        """Return the simulated cluster."""
        return _Cluster(self._world, self._groups)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        """Return the simulated workload cluster."""
        return WorkloadView(self._world)

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Request a check after this many seconds."""
        self._check_again(seconds)
