"""Evenkeel in a simulation: the deployed run, on a table that is a few dictionaries and groups that are numbers.

A look and its patches take no time. What is written is read back from the same annotations as on real objects.
"""

# ruff: noqa: ARG002  ports are given more than a simulation needs

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evenkeel.access_config import KubeconfigAccess, SameAccess, WorkloadEntry
from evenkeel.application.ports import CheckResult, Lease, Offerings, Remaining, SharedOffering, StoredCluster, Versions
from evenkeel.application.rebalancing.ports import MachineNode, WorkloadCluster
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Timer, Unreachable
from evenkeel.domain.model.choices import DemandStage, Strategy
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, NodeGroup, PoolId, Shoot
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import Buyer, Offering, OfferingState
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.plans import GroupPlan, Plan
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord, ControlRecord, PoolEntry
from evenkeel.state_records import ScaleRequestRecord
from evenkeel_cli.simulation.scenario import Scenario
from evenkeel_cli.simulation.workload_view import WorkloadView
from evenkeel_cli.simulation.world import Group, World

CLUSTER = "simulated"
_PLENTY = 60.0  # seconds: no run is short of time


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was decided for a pool, when it was news."""

    at: int
    pool: str
    reasons: tuple[str, ...]


def record_of(
    scenario: Scenario, strategy: Strategy | None, *, autoscaler: bool, demand: DemandStage, cluster: str = CLUSTER
) -> ClusterRecord:
    """The cluster's record; ``strategy`` takes the place of every pool's own."""
    return ClusterRecord(
        id=cluster,
        flavours=("cluster-api",),
        access=KubeconfigAccess(kind="kubeconfig", secret=cluster),
        dry_run=False,
        share_offerings=scenario.evenkeel.share_offerings,
        autoscaler="cluster-autoscaler" if autoscaler else "none",
        demand=demand,
        workload=WorkloadEntry(access=SameAccess(kind="same")) if scenario.pods else None,
        converge=scenario.evenkeel.converge,
        expander=scenario.evenkeel.expander,
        expander_order=scenario.evenkeel.expander_order,
        max_step=scenario.evenkeel.max_step,
        provision_timeout=scenario.evenkeel.provision_timeout,
        pools=tuple(
            PoolEntry(
                name=pool.name,
                min=pool.min,
                max=pool.max,
                strategy=strategy or pool.strategy,
                on_failure=pool.on_failure,
                level=pool.level,
            )
            for pool in scenario.pools
        ),
    )


@dataclass
class SharedTable:
    """What the clusters of a fleet say of what they buy. They have one run at a time."""

    states: dict[Offering, OfferingState] = field(default_factory=dict)


@dataclass
class _Table:
    """The table of a cluster that has one run at a time: nothing is ever written by somebody else meanwhile."""

    record: ClusterRecord
    world: World
    shared: SharedTable
    groups: dict[GroupKey, GroupState] = field(default_factory=dict)
    pools: dict[PoolId, PoolState] = field(default_factory=dict)
    zones: dict[str, datetime] = field(default_factory=dict)
    timer: Timer | None = None
    kept_verdict: ClusterHealth = field(default_factory=ClusterHealth)
    decisions: list[Decision] = field(default_factory=list)
    moved: int = 0  # nodes that converge has taken from a zone, once their successors ran

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        state = ClusterState(groups={**self.groups}, pools={**self.pools}, zones={**self.zones})
        return StoredCluster(
            record=self.record,
            control=ControlRecord(),
            state=state,
            zones={},
            scale_requests={},
            versions=Versions(),
            fencing_token=0,
            timer=self.timer,
            cluster_health=self.kept_verdict,
        )

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        self.record = record

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        self.groups[key] = state

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        before, after = self.pools.get(pool, PoolState()).convergence.last_drain, state.convergence.last_drain
        self.moved += after is not None and (before is None or after.at != before.at)
        self.pools[pool] = state

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Nobody asks for nodes in a scenario."""

    def save_silence(self, cluster: str, silence: Unreachable, versions: Versions | None) -> None:
        """A world always answers."""

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        self.kept_verdict = cluster_health

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        return self.kept_verdict, Versions()

    def save_looked_at(self, clusters: Sequence[str], at: datetime) -> None:
        """Nobody asks when."""

    def save_settled(self, cluster: str, settled: SteadyState, versions: Versions) -> None:
        """Nobody looks without a run."""

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        self.timer = timer

    def offerings(self) -> Offerings:
        return {offering: self.offering(offering) for offering in self.shared.states}

    def offering(self, offering: Offering) -> SharedOffering:
        return SharedOffering(state=self.shared.states.get(offering, OfferingState()), version=None)

    def save_offering(self, offering: Offering, state: OfferingState, version: int | None) -> None:
        self.shared.states[offering] = state

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """There is nothing to forget."""

    def take_lease(self, cluster: str, owner: str, seen_token: int, now: datetime, expires: datetime) -> Lease:
        return Lease(owner=owner, fencing_token=seen_token + 1, expires=expires)

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """Nobody waits for it."""

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        pool = decision["pool"]
        reasons = [
            f"{group['zone']}: {'; '.join(group['reasons'])}"
            for group in pool["groups"]
            if group["result"] == Result.WRITTEN
        ]
        self.decisions.append(Decision(at=self.world.now, pool=pool["name"], reasons=(*pool["problems"], *reasons)))


@dataclass
class _Cluster:
    """The simulated groups as a run finds and writes them."""

    world: World
    groups: dict[GroupKey, Group]

    def observe(self, closely: Collection[GroupKey] = (), buyer: Buyer | None = None) -> Observation:
        groups = self.world.groups
        return Observation(groups=tuple(self.world.observe(each, closely=each.key in closely) for each in groups))

    def seen(self) -> Mapping[str, str]:
        return {}

    def shows(self, seen: Mapping[str, str]) -> bool:
        return False

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

    def object_of(self, key: GroupKey) -> str:
        return str(key)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        group, plan = self.groups[patch.plan.group.key], patch.plan
        if plan.removes:
            return tuple(machine.name for machine in plan.removes)
        return deletion_candidates(
            self.world.machines_of(group),
            patch.requested or 0,
            may_remove_running=plan.may_remove_running,
            keeps=plan.keeps,
            provision_timeout=plan.provision_timeout,
            now=self.world.time,
        )

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        self.groups[patch.plan.group.key].marked = frozenset(names)

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        self.groups[group.key].marked = frozenset()
        return True

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        group = self.groups[patch.plan.group.key]
        group.decision = decision
        if patch.bounds is not None:
            group.bounds = patch.bounds
            group.adopted = group.adopted or adopted
        if patch.requested is not None:
            group.move = move or group.move
            self.world.shrink(group, patch.requested)
            self.world.order(group, patch.requested - group.requested)

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Nobody agrees to other numbers in a scenario."""

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """The same."""

    def shoots(self, namespaces: Collection[str]) -> Mapping[str, Shoot | Reason]:
        """No scenario has a Shoot."""
        return {}

    def write_shoot_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        """The same."""

    def show_status(self, place: str, text: str) -> bool:
        """Nor that."""
        return False

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Nobody reads them."""


class Evenkeel:
    """The run with ports of its own. ``look_again`` asks for a look after so many seconds."""

    def __init__(
        self, world: World, record: ClusterRecord, look_again: Callable[[int], None], shared: SharedTable
    ) -> None:
        self.patches = 0
        self._world = world
        self._table = _Table(record, world, shared)
        self._backoff = record.policy().backoff
        self._groups = {group.key: group for group in world.groups}
        self._look_again = look_again
        self._rebalance = Rebalance(
            store=self._table,
            clusters=self,
            queue=self,
            bus=self,
            clock=self,
            random_bytes=random.Random(f"{world.scenario.seed}/ids").randbytes,
            dry_run=False,
        )

    @property
    def decisions(self) -> list[Decision]:
        return self._table.decisions

    @property
    def moved(self) -> int:
        """Nodes that have been moved home."""
        return self._table.moved

    def record_failure(self, group: Group, failure: MachineFailure) -> None:
        """A failure event has arrived; a look follows it."""
        if failure.at is None:
            return
        state = self._table.groups.get(group.key, GroupState())
        self._table.groups[group.key] = record_failure(
            state,
            failure.at,
            class_of(failure),
            f"{failure.code}: {failure.message}",
            self._backoff,
            now=self._world.time,
        )

    def fence_zone(self, zone: str, until: int) -> None:
        """An operator has fenced a zone."""
        self._table.zones[zone] = self._world.moment(until)

    def look(self) -> Plan:
        """One run: observe, plan, write, remember."""
        summary = self._rebalance(self._table.record.id, "a look", lambda: _PLENTY)
        if summary.plan is None:
            raise RuntimeError(summary.message)
        if summary.plan.demand is not None and summary.plan.demand.unread is not None:
            raise RuntimeError(f"{self._table.record.id}: {summary.plan.demand.unread}")
        for pool in summary.plan.pools:
            for plan in pool.groups:
                self._groups[plan.group.key].state = plan.state
        self.patches += summary.written
        self._world.changed = True
        return summary.plan

    # Ports

    def now(self) -> datetime:
        return self._world.time

    def sleep(self, seconds: float) -> None:
        """Nothing waits within a run."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> _Cluster:
        return _Cluster(self._world, self._groups)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:
        return WorkloadView(self._world)

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        settled: SteadyState | None = None,
    ) -> None:
        """A run asks for runs with a delay only."""

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Only at a cluster that does not answer."""

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        self._look_again(seconds)

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Nobody listens, and nothing is told a second time for that."""
        return True
