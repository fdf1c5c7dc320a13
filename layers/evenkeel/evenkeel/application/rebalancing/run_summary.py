"""What came of a run, for metrics, for the log and for whoever has asked for it."""

from dataclasses import dataclass, field

from evenkeel.domain.model.groups import State
from evenkeel.domain.model.plans import Plan


@dataclass(kw_only=True)
class RunSummary:
    """What came of a run, in numbers for metrics and in one sentence."""

    cluster: str
    message: str = ""
    plan: Plan | None = None
    writes: list[str] = field(default_factory=list)  # the objects that were patched, one entry a patch
    conflicts: int = 0
    rejected: int = 0
    unreachable: bool = False
    seen: bool = False  # by a look: the cluster was read
    doubtful: bool = False  # a patch was sent and its answer lost
    dry_run: bool = False
    decisions: list[str] = field(default_factory=list)
    seconds_to_patch: list[float] = field(default_factory=list)  # from a failure to the patch that fenced its group

    @property
    def written(self) -> int:
        return len(self.writes)

    @property
    def sentence(self) -> str:
        """For people: the message, where something kept the run from its work; else what it has written."""
        if self.message:
            return self.message
        changes = self.plan.changes if self.plan else ()
        if self.written:
            return f"{self.cluster}: {self.written} patches written, {self.conflicts} conflicts"
        if self.dry_run and changes:
            return f"{self.cluster}: dry run: would write {len(changes)} node groups"
        return f"{self.cluster}: nothing to write"

    def metrics(self) -> dict[str, int]:
        """What the run adds to the stack's metrics. Not per cluster: every name more would be billed."""
        pools = self.plan.pools if self.plan else ()
        groups = [group for pool in pools for group in pool.groups]
        return {
            "PatchesWritten": self.written,
            "Conflicts": self.conflicts,
            "Rejected": self.rejected,
            "WritesContested": sum(len(pool.contested) for pool in pools),
            "ClustersUnreachable": int(self.unreachable),
            "PoolsInvalid": sum(not pool.valid for pool in pools),
            "PoolsStarved": sum(pool.starved > 0 for pool in pools),
            "PoolsOvercommitted": sum(pool.overcommitted for pool in pools),
            "GroupsFenced": sum(group.state is State.FENCED for group in groups),
            "Imbalance": max((pool.imbalance for pool in pools), default=0),
            "Headroom": sum(pool.headroom for pool in pools),
        }
