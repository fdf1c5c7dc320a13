"""The ports of operator actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.drill.ports import DrillStore
from evenkeel.application.incidents.ports import FleetHealthStore
from evenkeel.application.ports import NAMELESS, RUNBOOKS, Clock, LeaseStore, Queue, Remaining, Versions
from evenkeel.application.rebalancing.ports import Clusters, EventStore
from evenkeel.application.rollout.ports import DecisionStore
from evenkeel.record import ClusterRecord


class ActionStore(DecisionStore, FleetHealthStore, DrillStore, EventStore, LeaseStore, Protocol):
    """The methods of the DynamoDB table that operator actions need."""

    def remove_record(self, cluster: str, versions: Versions) -> None:
        """Delete the registration and the control item. Raises StateConflictError.

        The stored state of node groups and pools remains, in case the cluster is registered again.
        """


class InspectableClusters(Clusters, Protocol):
    """Clusters, with reads that only operator actions need. All methods raise AccessError, ClusterUnavailableError."""

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """Return the zones of the cluster's running nodes: AWS's zone id -> zone name."""

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        """Return, as text, each right that a check needs but lacks; with ``writes``, each right that a run needs.

        Evenkeel asks the API server about each right, and reads no objects.
        """

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        """Return when cluster-autoscaler last renewed its lease in the workload cluster; None: no lease can be read."""


@dataclass(frozen=True, kw_only=True)
class ActionPorts:
    """The ports of all actions, and the settings of the stack."""

    store: ActionStore
    clusters: InspectableClusters
    queue: Queue
    clock: Clock
    random_bytes: Callable[[int], bytes]
    pack: Callable[[object], str]  # returns a dataclass of the domain as compressed text
    dry_run: bool  # the stack's setting, for clusters whose record has no setting
    # Returns, for a region: zone id -> zone name in the stack's AWS account.
    zone_names: Callable[[str], Mapping[str, str]] = lambda _region: {}
    stack: str = NAMELESS
    runbooks: str = RUNBOOKS  # a URL or file
