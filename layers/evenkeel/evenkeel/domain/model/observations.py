"""A complete reading of one cluster: its node groups, and its pods and nodes if they were asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from evenkeel.domain.model.groups import NodeGroup, Shoot
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An object that is no node group of ours, and why."""

    namespace: str
    name: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One complete look at a cluster. A look that broke off half-way is an error, never an Observation."""

    groups: tuple[NodeGroup, ...]
    skipped: tuple[Skipped, ...] = ()
    # By their namespaces in the seed, those that relief asks for; a reason: it could not be read.
    shoots: Mapping[str, Shoot | Reason] = field(default_factory=dict)
    workload: Workload | None = None  # pods and nodes of its workload cluster; None: not asked for, or not read
    workload_unread: str = ""  # why they were asked for and not read
    clock_skew: timedelta = timedelta(0)  # the API server's clock less ours; zero: they agree, or its is not known
