"""One complete reading of a cluster: its node groups and, on request, its pods and nodes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An object that Evenkeel does not treat as a node group, with the reason."""

    namespace: str
    name: str
    reason: Reason
    group: NodeGroup | None = None  # the group that the object becomes when its zone is named; None: another reason
    flavour: str = ""  # empty: the words of Kubernetes fit the reason


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything that one check has read. A check that fails midway raises an error and returns no observation."""

    groups: tuple[NodeGroup, ...]
    skipped: tuple[Skipped, ...] = ()
    parts: Parts = field(default_factory=Parts)  # what capabilities have read of other objects
    workload: Workload | None = None  # pods and nodes of the workload cluster; None: not requested, or not read
    workload_unread: Reason | None = None  # why a requested workload was not read; None: it was, or was not requested
    # The API server's clock minus Evenkeel's. Zero: both clocks agree, or the server's time is unknown.
    clock_skew: timedelta = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class MachineNode:
    """The machine of a node, and its group."""

    group: GroupKey
    machine: Machine | None = None  # None: an instance pool has no object per machine
    deleting: bool = False  # True: the machine is being deleted, whatever the node reports
    is_sought: bool = False  # True: only a Node shows that this machine is one, whatever the machine reports


class Check(NamedTuple):
    """The input of one check, from which every pool is planned."""

    observation: Observation
    state: ClusterState
    policy: Policy
    now: datetime
