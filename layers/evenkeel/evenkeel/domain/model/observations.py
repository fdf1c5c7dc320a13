"""A complete reading of one cluster: its node groups, and its pods and nodes if they were asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.groups import NodeGroup, Shoot
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An object that is not a node group, with the reason."""

    namespace: str
    name: str
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything that one check has read. A check that ended half-way is an error, never an Observation."""

    groups: tuple[NodeGroup, ...]
    skipped: tuple[Skipped, ...] = ()
    # The Shoots that relief needs, by namespace of the seed; a reason: it could not be read.
    shoots: Mapping[str, Shoot | Reason] = field(default_factory=dict)
    workload: Workload | None = None  # pods and nodes of its workload cluster; None: not requested, or not read
    workload_unread: str = ""  # why they were requested and not read
    clock_skew: timedelta = timedelta(0)  # the API server's clock less ours; zero: they agree, or its time is unknown


class Check(NamedTuple):
    """The input of one check, from which every pool is planned."""

    observation: Observation
    state: ClusterState
    policy: Policy
    now: datetime
