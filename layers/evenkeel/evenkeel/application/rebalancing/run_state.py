"""The state of one run: the stored items, updated by the run's own writes, and the run's summary."""

from dataclasses import dataclass, field
from datetime import datetime

from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.ports import RunStore
from evenkeel.domain.model.groups import GroupKey, PoolId, State
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.plan import figures_of
from evenkeel.state_records import ScaleRequestRecord


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The stored state of a cluster. A write succeeds only if the item still has the last known version.

    Otherwise the write raises StateConflictError, as in the store.
    """

    store: RunStore
    stored: StoredCluster
    groups: dict[GroupKey, GroupState]
    pools: dict[PoolId, PoolState]
    scale_requests: dict[str, ScaleRequestRecord]  # by id

    def save_group(self, key: GroupKey, state: GroupState) -> None:
        """Write the state of a group."""
        self.store.save_group(self.stored.record.id, key, state, self.stored.versions)
        self.groups[key] = state

    def save_pool(self, id: PoolId, state: PoolState) -> None:
        """Write the state of a pool, if it has changed."""
        before = self.pools.get(id)
        if state is before or state == (before or PoolState()):
            return
        self.store.save_pool(self.stored.record.id, id, state, self.stored.versions)
        self.pools[id] = state

    def save_scale_request(self, record: ScaleRequestRecord) -> None:
        """Write a request for nodes."""
        self.store.save_scale_request(self.stored.record.id, record, self.stored.versions)
        self.scale_requests[record.id] = record

    def end_scale_request(self, record: ScaleRequestRecord, result: str) -> None:
        """Store the result of a request for nodes, and mark the request as done."""
        self.save_scale_request(record.model_copy(update={"done": True, "result": result[:1000]}))


@dataclass(kw_only=True)
class RunSummary:
    """The result of a run or a check, in numbers for metrics and in one sentence."""

    cluster: str
    message: str = ""
    plan: Plan | None = None
    writes: list[str] = field(default_factory=list)  # the patched objects, one entry for each patch
    conflicts: int = 0
    rejected: int = 0
    unreachable: bool = False
    seen: bool = False  # True: a check has read the cluster
    doubtful: bool = False  # True: a patch was sent, and its answer was lost
    check_at: datetime | None = None  # when a check must look again at what this run could not decide
    dry_run: bool = False
    decisions: list[str] = field(default_factory=list)
    seconds_to_patch: list[float] = field(default_factory=list)  # from a failure to the patch that fenced its group

    @property
    def written(self) -> int:
        """Return the number of patches."""
        return len(self.writes)

    @property
    def sentence(self) -> str:
        """Return the message if the run could not do its work, else the number of patches."""
        if self.message:
            return self.message
        changes = self.plan.changes if self.plan else ()
        if self.written:
            return f"{self.cluster}: {self.written} patches written, {self.conflicts} conflicts"
        if self.dry_run and changes:
            return f"{self.cluster}: dry run: would write {len(changes)} node groups"
        return f"{self.cluster}: nothing to write"

    def metrics(self) -> dict[str, int]:
        """Return the run's part of the stack's metrics.

        The metrics do not name the cluster, because each name would be billed.
        """
        pools = self.plan.pools if self.plan else ()
        groups = [group for pool in pools for group in pool.groups]
        return {
            "PatchesWritten": self.written,
            "Conflicts": self.conflicts,
            "Rejected": self.rejected,
            "WritesContested": sum(len(pool.report.contested) for pool in pools),
            "ClustersUnreachable": int(self.unreachable),
            "PoolsInvalid": sum(not pool.mode.valid for pool in pools),
            "PoolsStarved": sum(pool.report.starved > 0 for pool in pools),
            "PoolsOvercommitted": sum(pool.report.overcommitted for pool in pools),
            "GroupsFenced": sum(group.state is State.FENCED for group in groups),
            "Imbalance": max((pool.imbalance for pool in pools), default=0),
            "Headroom": sum(pool.headroom for pool in pools),
            **figures_of(pools),
        }
