"""The ports of operator actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.offerings.ports import OfferingStore
from evenkeel.application.ports import NAMELESS, RUNBOOKS, Clock, LeaseStore, Queue, Remaining, Versions
from evenkeel.application.rebalancing.ports import Clusters, EventStore
from evenkeel.application.rollout.ports import RolloutStore
from evenkeel.record import ClusterRecord


class ActionStore(RolloutStore, EventStore, OfferingStore, LeaseStore, Protocol):
    """The table, as operator actions need it."""

    def remove_record(self, cluster: str, versions: Versions) -> None:
        """Delete the registration and the control item. Raises StateConflictError.

        The state of groups and pools is kept for a later registration.
        """


class InspectableClusters(Clusters, Protocol):
    """Clusters, with reads that only operator actions need. All methods raise AccessError, ClusterUnavailableError."""

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """Read the zones of the cluster's running nodes: AWS's zone id -> zone name."""

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        """Return, as text, the rights that the API server refuses to a check; with ``writes``: to a run.

        The API server is asked about each right. No objects are read.
        """

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        """Return when a cluster-autoscaler last renewed its lease in the workload cluster; None: it cannot be read."""


@dataclass(frozen=True, kw_only=True)
class ActionPorts:
    """The ports of all actions, and the settings of the stack."""

    store: ActionStore
    clusters: InspectableClusters
    queue: Queue
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool  # applies to clusters whose record has no setting
    zone_names: Callable[[str], Mapping[str, str]] = lambda _region: {}  # zone id -> zone name, in this account
    stack: str = NAMELESS
    runbooks: str = RUNBOOKS  # a URL
