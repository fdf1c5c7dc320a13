"""Settings of a cluster record, for objects without settings of their own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import DemandStage, Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import ConvergePolicy
from evenkeel.domain.model.groups import PROVISION_TIMEOUT, NodeGroup
from evenkeel.domain.model.similarity import Similarity


@dataclass(frozen=True, kw_only=True)
class BackoffPolicy:
    """Cluster Autoscaler's constants (config/flags/flags.go:193-198)."""

    initial: timedelta = timedelta(minutes=5)
    longest: timedelta = timedelta(minutes=30)
    forget_after: timedelta = timedelta(hours=3)

    def is_forgotten(self, failure: datetime, now: datetime) -> bool:
        """Return True if a failure is too old to count."""
        return now - failure > self.forget_after

    def length(self, failures: int) -> timedelta:
        """Return the length of the backoff after this many failures in a row."""
        # An exponent without bound would overflow; 2^20 initial backoffs are longer than any limit.
        return min(self.longest, self.initial * (1 << min(max(failures, 1) - 1, 20)))


@dataclass(frozen=True, kw_only=True)
class PoolRule:
    """A pool of the cluster record: its selector, numbers and settings."""

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
        """Return True if the rule's selector matches this group."""
        return (
            bool(self.selector)
            and self.namespace in (None, group.key.namespace)
            and all(group.identity.labels.get(key) == value for key, value in self.selector.items())
        )


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """The settings of a pool, or of pools without settings of their own."""

    strategy: Strategy
    on_failure: OnFailure = OnFailure.RELEASE
    level: Level = Level.OFF
    max_step: int | None = None  # nodes that one run may add to a pool; None: any number
    backoff: BackoffPolicy = BackoffPolicy()
    provision_timeout: timedelta = PROVISION_TIMEOUT
    converge: ConvergePolicy = field(default_factory=ConvergePolicy)
    autoscaler: bool = True  # a Cluster Autoscaler follows the bounds
    autoscaler_loop: timedelta = timedelta(seconds=10)  # its --scan-interval
    suspect_provision_time: timedelta | None = None  # of an autoscaler, for suspect groups; None: unchanged


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings of a whole cluster."""

    settings: PoolSettings  # of pools without settings of their own
    convergence_requested: Mapping[str, datetime] = field(default_factory=dict)  # time of each pass, by pool
    write_topology: bool = False  # bounds may be written to a Cluster's topology
    demand: DemandStage = DemandStage.OFF
    pool_order: tuple[str, ...] = ()  # pools by name or id, in the order for pods; empty: by least waste
    pools: tuple[PoolRule, ...] = ()
    similarity: Similarity | None = None  # None: a group without label or rule is in no pool
    paused: Mapping[str, datetime | None] = field(default_factory=dict)  # pool's name or id -> until; None: for good
    pins_fenced: bool = False  # owners hold the replicas of fenced groups (HyperShift's NodePools)
    shoot_relief: bool = False  # a Shoot's maximum is raised while zones are dead
    # Only of a run, which writes nothing more there. Other plans ignore it.
    is_paused: bool = False  # the whole cluster is
    is_dry: bool = False  # the cluster is in dry run
    restoring: bool = False  # the cluster is being restored: each group gets its adopted bounds back
    restoring_pools: tuple[str, ...] = ()  # these pools are, by name or id
