"""The ports of incidents."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from evenkeel.application.ports import NAMELESS, RUNBOOKS, Bus, Clock, Versions
from evenkeel.domain.model.incidents import ClusterHealth


class HealthStore(Protocol):
    """The health of one cluster. All methods raise StateUnavailableError."""

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        """Write the health twice: for its cluster, and for the overview of all clusters. Raises StateConflictError."""

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        """Read the health of a cluster, even if its other items cannot be read."""


class FleetHealthStore(HealthStore, Protocol):
    """``HealthStore``, and the stored health of all clusters."""

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        """Read the health of all clusters that ever had an incident: one query (and one more per MiB)."""

    def checked_at(self) -> Mapping[str, datetime]:
        """Read when each cluster was last read, in one query. A cluster not read in the last hours is missing."""


@dataclass(frozen=True, kw_only=True)
class HealthPorts:
    """The ports that store and notify cluster health. ``stack``: the stack's name in commands; ``runbooks``: a URL."""

    store: HealthStore
    bus: Bus
    clock: Clock
    stack: str = NAMELESS
    runbooks: str = RUNBOOKS
