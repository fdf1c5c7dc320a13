"""What a cluster's record asks for, where the objects themselves do not say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import DemandStage, Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import ConvergePolicy
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.similarity import Similarity


@dataclass(frozen=True, kw_only=True)
class BackoffPolicy:
    """Cluster Autoscaler's own constants (config/flags/flags.go:193-198)."""

    initial: timedelta = timedelta(minutes=5)
    longest: timedelta = timedelta(minutes=30)
    forget_after: timedelta = timedelta(hours=3)

    def is_forgotten(self, failure: datetime, now: datetime) -> bool:
        """Whether a failure is so long ago that it counts no more."""
        return now - failure > self.forget_after

    def length(self, failures: int) -> timedelta:
        """How long the backoff after this many failures in a row lasts."""
        # An exponent without bound would overflow; 2^20 initial backoffs are longer than any limit.
        return min(self.longest, self.initial * (1 << min(max(failures, 1) - 1, 20)))


@dataclass(frozen=True, kw_only=True)
class PoolRule:
    """A pool as the cluster's record describes it: who belongs to it, and its numbers."""

    name: str
    selector: Mapping[str, str] = field(default_factory=dict)  # empty: only numbers for a pool found by label
    namespace: str | None = None
    min: int | None = None
    max: int | None = None
    strategy: Strategy | None = None
    on_failure: OnFailure | None = None
    level: Level | None = None
    dry_run: bool | None = None  # None: as the cluster
    backoff: BackoffPolicy | None = None
    provision_timeout: timedelta | None = None
    max_step: int | None = None

    def selects(self, group: NodeGroup) -> bool:
        """Whether the rule's selector picks this group."""
        return (
            bool(self.selector)
            and self.namespace in (None, group.key.namespace)
            and all(group.labels.get(key) == value for key, value in self.selector.items())
        )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Of a whole cluster."""

    strategy: Strategy
    on_failure: OnFailure = OnFailure.RELEASE
    level: Level = Level.OFF
    converge: ConvergePolicy = field(default_factory=ConvergePolicy)
    convergence_requested: Mapping[str, datetime] = field(
        default_factory=dict
    )  # pool's name or id -> when a pass was asked for
    autoscaler: bool = True  # whether a Cluster Autoscaler obeys the bounds
    write_topology: bool = False  # whether bounds may be written to a Cluster's topology
    suspect_provision_time: timedelta | None = None  # for which an autoscaler waits in a suspect zone; None: as ever
    demand: DemandStage = DemandStage.OFF
    pool_order: tuple[str, ...] = ()  # pools by name or id, in the order in which pods get nodes; none: by least waste
    max_step: int | None = None  # nodes that one run may add to a pool; None: any number
    pools: tuple[PoolRule, ...] = ()
    similarity: Similarity | None = None  # None: groups that no label and no rule puts into a pool are in none
    paused: Mapping[str, datetime | None] = field(default_factory=dict)  # pool's name or id -> until; None: for good
    backoff: BackoffPolicy = BackoffPolicy()
    # Cluster Autoscaler's --max-node-provision-time (config/flags/flags.go:129)
    provision_timeout: timedelta = timedelta(minutes=15)
    autoscaler_loop: timedelta = timedelta(seconds=10)  # its --scan-interval
    pins_fenced: bool = False  # owners that can hold replicas do so for fenced groups (HyperShift's NodePools)
    shoot_relief: bool = False  # a Shoot's maximum is raised while zones are dead
    # Of a run, which writes nothing more there; whoever asks for a plan sees it without.
    is_paused: bool = False  # the whole cluster is
    is_dry: bool = False  # the cluster is in dry run
    restoring: bool = False  # the cluster is being restored: every group gets back what it had before us
    restoring_pools: tuple[str, ...] = ()  # these pools are, by name or id
