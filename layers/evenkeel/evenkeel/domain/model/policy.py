"""The settings of a cluster's record. They apply to objects without settings of their own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from evenkeel.domain.model.choices import DemandStage, Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import ConvergePolicy
from evenkeel.domain.model.groups import PROVISION_TIMEOUT, NodeGroup
from evenkeel.domain.model.holds import doubled
from evenkeel.domain.model.similarity import Similarity

TimeoutMode = Literal["auto", "set"]
"""auto: the times of machines can make the provision timeout shorter (``health.provision_times``)."""


@dataclass(frozen=True, kw_only=True)
class BackoffPolicy:
    """The lengths of backoffs. The defaults are Cluster Autoscaler's (config/flags/flags.go:193-198)."""

    initial: timedelta = timedelta(minutes=5)
    longest: timedelta = timedelta(minutes=30)
    forget_after: timedelta = timedelta(hours=3)

    def is_forgotten(self, failure: datetime, now: datetime) -> bool:
        """Return True if a failure is too old to count."""
        return now - failure > self.forget_after

    def length(self, failures: int) -> timedelta:
        """Return the length of the backoff after this many failures in a row."""
        return doubled(self.initial, max(failures, 1) - 1, self.longest)


@dataclass(frozen=True, kw_only=True)
class Leave:
    """The zone that an operator leaves: the nodes there move to the other zones of their pools."""

    zone: str  # its name in the machine API
    at: datetime  # when the operator has asked for it
    pool: str = ""  # name or id of the only pool that leaves the zone; empty: each pool with another zone
    per_hour: int | None = None  # the most nodes of the cluster that move in an hour; None: ``converge`` limits them
    until: datetime | None = None  # when the leave ends; None: when an operator ends it


@dataclass(frozen=True, kw_only=True)
class PoolRule:
    """A pool of the cluster record: its selector, its minimum and maximum, and its settings."""

    name: str
    selector: Mapping[str, str] = field(default_factory=dict)  # empty: the pool is found by its label
    namespace: str | None = None
    min: int | None = None
    max: int | None = None
    strategy: Strategy | None = None
    on_failure: OnFailure | None = None
    level: Level | None = None
    dry_run: bool | None = None  # None: the cluster's setting applies
    backoff: BackoffPolicy | None = None
    provision_timeout: timedelta | None = None
    timeout_mode: TimeoutMode | None = None
    max_step: int | None = None
    own: Mapping[str, str] = field(default_factory=dict)  # the settings of capabilities (``model.parts.Setting``)

    def selects(self, group: NodeGroup) -> bool:
        """Return True if the rule's selector matches this group."""
        return (
            bool(self.selector)
            and self.namespace in (None, group.key.namespace)
            and all(group.identity.labels.get(key) == value for key, value in self.selector.items())
        )


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """The settings of one pool, or of all pools without settings of their own."""

    strategy: Strategy
    on_failure: OnFailure = OnFailure.RELEASE
    level: Level = Level.OFF
    ignored_taints: frozenset[str] = frozenset()  # keys of taints that each new node loses by itself
    max_step: int | None = None  # nodes that one run may add to a pool; None: any number
    backoff: BackoffPolicy = BackoffPolicy()
    provision_timeout: timedelta = PROVISION_TIMEOUT
    timeout_mode: TimeoutMode = "set"
    converge: ConvergePolicy = field(default_factory=ConvergePolicy)
    autoscaler: bool = True  # True: a Cluster Autoscaler scales within the bounds
    autoscaler_loop: timedelta = timedelta(seconds=10)  # the autoscaler's --scan-interval
    own: Mapping[str, str] = field(default_factory=dict)  # the settings of capabilities (``model.parts.Setting``)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Settings of a whole cluster."""

    settings: PoolSettings  # for pools without settings of their own
    # Name or id of a pool -> when an operator requested a pass of converge.
    convergence_requested: Mapping[str, datetime] = field(default_factory=dict)
    leave: Leave | None = None  # the zone that is left; None: no zone is
    write_topology: bool = False  # True: Evenkeel may write bounds to a Cluster's topology
    demand: DemandStage = DemandStage.OFF
    # Names or ids of the pools to try first for pods. Empty: the pool with the least waste is first.
    pool_order: tuple[str, ...] = ()
    pools: tuple[PoolRule, ...] = ()
    similarity: Similarity | None = None  # None: a group without label or rule is in no pool
    # Name or id of a paused pool -> the end of the pause; None: the pause has no end.
    paused: Mapping[str, datetime | None] = field(default_factory=dict)
    pins_fenced: bool = False  # True: owners set fixed replicas for fenced groups (HyperShift's NodePools)
    # If one of the next two fields is True, a plan raises the bounds that Evenkeel had lowered, so that autoscalers can
    # order again.
    is_paused: bool = False  # the whole cluster is paused
    is_dry: bool = False  # the cluster is in dry run
    restoring: bool = False  # the cluster is being restored: each group gets its adopted bounds back
    restoring_pools: tuple[str, ...] = ()  # names or ids of single pools that are being restored
